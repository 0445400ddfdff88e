/*
 * The parser goes over a file line by line and reports every problem it meets, so that one run of
 * --check-config is enough. A line inside an unknown section is skipped: one mistake, one message.
 *
 * Rejected: libinih, whose packaged build cuts values at 192 bytes and hides line numbers.
 */
#include "common/gx_conf.h"
#include "common/gx_num.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define SHOWN_MAX 80      /* bytes of a foreign text quoted in a message */
#define NAME_COMPARED 48u /* names longer than this are never a near miss */

/* One source of values: a file, or a --set option. */
struct source {
	const struct gx_conf_table *table;
	void *config;
	const char *name;    /* for messages */
	const char *base;    /* directory that relative paths start from; "" is the current one */
	unsigned line;       /* 0: no lines (--set) */
	const char *section; /* row's string, or NULL before the first and in an unknown one */
	bool section_unknown;
	unsigned *set_at_line; /* per row; NULL for --set */
	struct gx_buf *errors;
	bool failed; /* at least one problem was reported */
	int fatal;   /* -ENOMEM: stop */
};

static void problem(struct source *src, const char *fmt, ...) GX_PRINTF(2, 3);
static void problem(struct source *src, const char *fmt, ...)
{
	char text[1024];
	va_list args;
	int r;

	src->failed = true;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (src->line > 0)
		r = gx_buf_append_format(src->errors, "%s:%u: %s\n", src->name, src->line, text);
	else
		r = gx_buf_append_format(src->errors, "%s: %s\n", src->name, text);
	if (r == -ENOMEM)
		src->fatal = r;
}

/* How much of a text a message quotes: whole characters up to SHOWN_MAX bytes. */
static int shown(const char *text)
{
	size_t left = strlen(text), at = 0;

	while (left > 0) {
		size_t n = gx_utf8_char(text + at, left);

		if (n == 0 || at + n > SHOWN_MAX)
			break;
		at += n;
		left -= n;
	}
	return (int)at;
}

/* -- nearest match -------------------------------------------------------- */

/* Levenshtein distance; both shorter than NAME_COMPARED. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[NAME_COMPARED + 1];
	size_t b_bytes = strlen(b);

	for (size_t j = 0; j <= b_bytes; j++)
		row[j] = (unsigned)j;
	for (size_t i = 0; a[i] != '\0'; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i + 1;
		for (size_t j = 0; j < b_bytes; j++) {
			unsigned substitute = diagonal + (a[i] != b[j]);

			diagonal = row[j + 1];
			row[j + 1] = GX_MIN(substitute, GX_MIN(row[j], row[j + 1]) + 1);
		}
	}
	return row[b_bytes];
}

/* Remembers `candidate` in *best if it is nearer to `name` than what was there. */
static void consider(const char *name, const char *candidate, unsigned *best_distance,
		     const char **best)
{
	unsigned d;

	if (strlen(name) >= NAME_COMPARED || strlen(candidate) >= NAME_COMPARED)
		return;
	d = distance(name, candidate);
	if (d <= 1 + strlen(name) / 4 && d < *best_distance) {
		*best_distance = d;
		*best = candidate;
	}
}

static void unknown_section(struct source *src, const char *name)
{
	const char *best = NULL;
	unsigned best_distance = UINT32_MAX;

	for (size_t i = 0; i < src->table->row_count; i++)
		consider(name, src->table->rows[i].section, &best_distance, &best);
	if (best != NULL)
		problem(src, "unknown section [%.*s], did you mean [%s]?", shown(name), name, best);
	else
		problem(src, "unknown section [%.*s]", shown(name), name);
}

static void unknown_key(struct source *src, const char *section, const char *key)
{
	const char *best = NULL, *elsewhere = NULL;
	unsigned best_distance = UINT32_MAX;

	for (size_t i = 0; i < src->table->row_count; i++) {
		const struct gx_conf_row *row = &src->table->rows[i];

		if (strcmp(row->section, section) == 0)
			consider(key, row->key, &best_distance, &best);
		else if (strcmp(row->key, key) == 0)
			elsewhere = row->section;
	}
	if (elsewhere != NULL)
		problem(src, "unknown key \"%.*s\" in [%s], it belongs in [%s]", shown(key), key,
			section, elsewhere);
	else if (best != NULL)
		problem(src, "unknown key \"%.*s\" in [%s], did you mean \"%s\"?", shown(key), key,
			section, best);
	else
		problem(src, "unknown key \"%.*s\" in [%s]", shown(key), key, section);
}

static const char *section_find(const struct gx_conf_table *table, const char *name)
{
	for (size_t i = 0; i < table->row_count; i++) {
		if (strcmp(table->rows[i].section, name) == 0)
			return table->rows[i].section;
	}
	return NULL;
}

static const struct gx_conf_row *row_find(const struct gx_conf_table *table, const char *section,
					  const char *key)
{
	for (size_t i = 0; i < table->row_count; i++) {
		if (strcmp(table->rows[i].section, section) == 0 &&
		    strcmp(table->rows[i].key, key) == 0)
			return &table->rows[i];
	}
	return NULL;
}

/* -- values --------------------------------------------------------------- */

/* Parses a number row's text; -EINVAL or -ERANGE as the gx_num parsers. */
static int parse_number(enum gx_conf_type type, const char *text, uint64_t *ret_value)
{
	int64_t ns;
	int r;

	if (type == GX_CONF_U64)
		return gx_parse_u64(text, ret_value);
	if (type == GX_CONF_SIZE)
		return gx_parse_size(text, ret_value);
	r = gx_parse_duration(text, &ns);
	if (r < 0)
		return r;
	*ret_value = (uint64_t)ns; /* never negative */
	return 0;
}

static void bad_value(struct source *src, const struct gx_conf_row *row, const char *text,
		      const char *what)
{
	problem(src, "[%s] %s: \"%.*s\" %s", row->section, row->key, shown(text), text, what);
}

static void set_number(struct source *src, const struct gx_conf_row *row, const char *text)
{
	const char *what = row->type == GX_CONF_U64    ? "is not a whole number"
			   : row->type == GX_CONF_SIZE ? "is not a size such as 64MiB"
						       : "is not a duration such as 30s";
	char bound_text[96];
	uint64_t value, bound;
	int64_t ns;
	int r = parse_number(row->type, text, &value);

	if (r < 0) {
		bad_value(src, row, text, r == -ERANGE ? "is too large" : what);
		return;
	}
	if (row->min_text != NULL) {
		r = parse_number(row->type, row->min_text, &bound);
		gx_assert(r == 0);
		if (value < bound) {
			(void)gx_format(bound_text, sizeof(bound_text), "is below the minimum %s",
					row->min_text);
			bad_value(src, row, text, bound_text);
			return;
		}
	}
	if (row->max_text != NULL) {
		r = parse_number(row->type, row->max_text, &bound);
		gx_assert(r == 0);
		if (value > bound) {
			(void)gx_format(bound_text, sizeof(bound_text), "is above the maximum %s",
					row->max_text);
			bad_value(src, row, text, bound_text);
			return;
		}
	}
	ns = (int64_t)value;
	if (row->type == GX_CONF_DURATION)
		memcpy(gx_conf_field(row, src->config), &ns, sizeof(ns));
	else
		memcpy(gx_conf_field(row, src->config), &value, sizeof(value));
}

static void set_enum(struct source *src, const struct gx_conf_row *row, const char *text)
{
	char choices[512] = "";
	size_t used = 0;

	for (int i = 0; row->choices[i] != NULL; i++) {
		if (strcmp(row->choices[i], text) == 0) {
			memcpy(gx_conf_field(row, src->config), &i, sizeof(i));
			return;
		}
		if (gx_format(choices + used, sizeof(choices) - used, "%s%s", i > 0 ? ", " : "",
			      row->choices[i]) == 0)
			used += strlen(choices + used);
	}
	problem(src, "[%s] %s: \"%.*s\" is not one of %s", row->section, row->key, shown(text),
		text, choices);
}

/* Takes the heap string `fresh`. */
static void replace_string(struct source *src, const struct gx_conf_row *row, char *fresh)
{
	char **field = gx_conf_field(row, src->config);

	free(*field);
	*field = fresh;
}

static void set_string(struct source *src, const struct gx_conf_row *row, const char *text)
{
	char *fresh = strdup(text);

	if (fresh == NULL)
		src->fatal = -ENOMEM;
	else
		replace_string(src, row, fresh);
}

/* dst = current directory / base / text, with what is absolute winning. */
static int absolute_path(char dst[GX_PATH_MAX], const char *base, const char *text)
{
	char cwd[GX_PATH_MAX];

	if (text[0] == '/')
		return gx_strcpy(dst, GX_PATH_MAX, text);
	if (base[0] == '/')
		return gx_format(dst, GX_PATH_MAX, "%s%s%s", base,
				 base[strlen(base) - 1] == '/' ? "" : "/", text);
	if (getcwd(cwd, sizeof(cwd)) == NULL)
		return gx_errno();
	return gx_format(dst, GX_PATH_MAX, "%s%s%s%s%s", strcmp(cwd, "/") == 0 ? "" : cwd, "/",
			 base, base[0] == '\0' ? "" : "/", text);
}

static void set_path(struct source *src, const struct gx_conf_row *row, const char *text)
{
	char path[GX_PATH_MAX];
	int r;

	if (text[0] == '\0') {
		set_string(src, row, text);
		return;
	}
	r = absolute_path(path, src->base, text);
	if (r == -E2BIG)
		bad_value(src, row, text, "is too long for a path");
	else if (r < 0)
		bad_value(src, row, text, gx_strerror(r));
	else
		set_string(src, row, path);
}

static char *trim(char *text)
{
	size_t bytes;

	text += strspn(text, " \t");
	bytes = strlen(text);
	while (bytes > 0 && (text[bytes - 1] == ' ' || text[bytes - 1] == '\t'))
		bytes--;
	text[bytes] = '\0';
	return text;
}

static void set_list(struct source *src, const struct gx_conf_row *row, const char *text)
{
	GX_AUTOFREE char *items = strdup(text);
	GX_AUTOFREE char *joined = malloc(strlen(text) + 1);
	char *rest = items, *item;
	size_t used = 0;

	if (items == NULL || joined == NULL) {
		src->fatal = -ENOMEM;
		return;
	}
	joined[0] = '\0';
	while (text[0] != '\0' && (item = strsep(&rest, ",")) != NULL) {
		size_t bytes;

		item = trim(item);
		bytes = strlen(item);
		if (bytes == 0) {
			bad_value(src, row, text, "has an empty item");
			return;
		}
		if (used > 0)
			joined[used++] = ',';
		memcpy(joined + used, item, bytes + 1);
		used += bytes;
	}
	replace_string(src, row, GX_TAKE(joined));
}

static void set_bool(struct source *src, const struct gx_conf_row *row, const char *text)
{
	bool value;

	if (gx_parse_bool(text, &value) < 0)
		bad_value(src, row, text, "is not yes or no");
	else
		memcpy(gx_conf_field(row, src->config), &value, sizeof(value));
}

static bool type_is_text(enum gx_conf_type type)
{
	return type == GX_CONF_STRING || type == GX_CONF_PATH || type == GX_CONF_LIST;
}

static void set_value(struct source *src, const struct gx_conf_row *row, const char *text)
{
	if (text[0] == '\0' && !type_is_text(row->type)) {
		problem(src, "[%s] %s: the value is missing", row->section, row->key);
		return;
	}
	switch (row->type) {
	case GX_CONF_STRING:
		set_string(src, row, text);
		break;
	case GX_CONF_PATH:
		set_path(src, row, text);
		break;
	case GX_CONF_BOOL:
		set_bool(src, row, text);
		break;
	case GX_CONF_U64:
	case GX_CONF_SIZE:
	case GX_CONF_DURATION:
		set_number(src, row, text);
		break;
	case GX_CONF_ENUM:
		set_enum(src, row, text);
		break;
	case GX_CONF_LIST:
		set_list(src, row, text);
		break;
	case GX_CONF_TYPE_COUNT:
		gx_assert(false);
	}
}

/* -- lines ---------------------------------------------------------------- */

/* NULL if the bytes are text we accept, else what is wrong with them. */
static const char *bad_text(const char *text, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		size_t n = gx_utf8_char(text + at, bytes - at);
		unsigned char c = (unsigned char)text[at];

		if (c == '\0')
			return "contains a NUL byte";
		if (n == 0)
			return "is not valid UTF-8";
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return "contains a control character";
		at += n;
	}
	return NULL;
}

static void parse_section(struct source *src, char *text)
{
	char *end = strchr(text, ']');
	char *name;

	/* Until a good header comes, keys have no home; they are not reported again. */
	src->section = NULL;
	src->section_unknown = true;
	if (end == NULL) {
		problem(src, "missing \"]\" behind the section name");
		return;
	}
	if (end[1] != '\0') {
		problem(src, "unexpected text behind \"]\": \"%.*s\"", shown(end + 1), end + 1);
		return;
	}
	*end = '\0';
	name = trim(text + 1);
	src->section = section_find(src->table, name);
	src->section_unknown = src->section == NULL;
	if (src->section_unknown)
		unknown_section(src, name);
}

static void parse_assignment(struct source *src, char *text)
{
	char *equals = strchr(text, '=');
	const struct gx_conf_row *row;
	unsigned *first;
	char *key;

	if (equals == NULL || equals == text) {
		problem(src, "expected \"key = value\" or \"[section]\", found \"%.*s\"",
			shown(text), text);
		return;
	}
	*equals = '\0';
	key = trim(text);
	if (src->section_unknown)
		return;
	if (src->section == NULL) {
		problem(src, "\"%.*s\" is set before the first [section]", shown(key), key);
		return;
	}
	row = row_find(src->table, src->section, key);
	if (row == NULL) {
		unknown_key(src, src->section, key);
		return;
	}
	first = &src->set_at_line[row - src->table->rows];
	if (*first != 0) {
		problem(src, "[%s] %s is set twice, first at line %u", row->section, row->key,
			*first);
		return;
	}
	*first = src->line;
	set_value(src, row, trim(equals + 1));
}

static void parse_line(struct source *src, const char *text, size_t bytes)
{
	char line[GX_CONF_LINE_MAX + 1];
	const char *wrong;
	char *trimmed;

	if (bytes > 0 && text[bytes - 1] == '\r')
		bytes--;
	if (bytes > GX_CONF_LINE_MAX) {
		problem(src, "the line is longer than %u bytes", GX_CONF_LINE_MAX);
		return;
	}
	wrong = bad_text(text, bytes);
	if (wrong != NULL) {
		problem(src, "the line %s", wrong);
		return;
	}
	memcpy(line, text, bytes);
	line[bytes] = '\0';
	trimmed = trim(line);
	if (trimmed[0] == '\0' || trimmed[0] == '#')
		return;
	if (trimmed[0] == '[')
		parse_section(src, trimmed);
	else
		parse_assignment(src, trimmed);
}

static int source_result(const struct source *src)
{
	if (src->fatal < 0)
		return src->fatal;
	return src->failed ? -EINVAL : 0;
}

/* "dir" of "dir/file", "/" of "/file", "" of "file". */
static int directory_of(const char *path, char dir[GX_PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	size_t bytes = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);

	if (bytes >= GX_PATH_MAX)
		return -E2BIG;
	memcpy(dir, path, bytes);
	dir[bytes] = '\0';
	return 0;
}

int gx_conf_parse(const struct gx_conf_table *table, void *config, const char *name,
		  const char *text, size_t bytes, struct gx_buf *errors)
{
	GX_AUTOFREE unsigned *set_at_line = calloc(table->row_count + 1, sizeof(unsigned));
	char base[GX_PATH_MAX];
	struct source src = {.table = table,
			     .config = config,
			     .name = name,
			     .base = base,
			     .set_at_line = set_at_line,
			     .errors = errors};
	const char *end = text + bytes;
	int r;

	if (set_at_line == NULL)
		return -ENOMEM;
	r = directory_of(name, base);
	if (r < 0)
		return r;
	if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* a byte order mark */
		text += 3;
	while (text < end && src.fatal == 0) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		const char *line_end = newline == NULL ? end : newline;

		src.line++;
		parse_line(&src, text, (size_t)(line_end - text));
		text = newline == NULL ? end : newline + 1;
	}
	return source_result(&src);
}

int gx_conf_set(const struct gx_conf_table *table, void *config, const char *assignment,
		struct gx_buf *errors)
{
	GX_AUTOFREE char *copy = strdup(assignment);
	struct source src = {
		.table = table, .config = config, .name = "--set", .base = "", .errors = errors};
	const struct gx_conf_row *row;
	const char *wrong, *section;
	char *equals, *dot;

	if (copy == NULL)
		return -ENOMEM;
	wrong = bad_text(copy, strlen(copy));
	if (wrong != NULL) {
		problem(&src, "the option's value %s", wrong);
		return source_result(&src);
	}
	equals = strchr(copy, '=');
	if (equals != NULL)
		*equals = '\0';
	dot = strchr(copy, '.');
	if (equals == NULL || dot == NULL) {
		problem(&src, "expected \"section.key=value\", found \"%.*s\"", shown(assignment),
			assignment);
		return source_result(&src);
	}
	*dot = '\0';
	section = section_find(table, trim(copy));
	if (section == NULL) {
		unknown_section(&src, trim(copy));
		return source_result(&src);
	}
	row = row_find(table, section, trim(dot + 1));
	if (row == NULL)
		unknown_key(&src, section, trim(dot + 1));
	else
		set_value(&src, row, trim(equals + 1));
	return source_result(&src);
}

/* -- whole configurations ------------------------------------------------- */

int gx_conf_init(const struct gx_conf_table *table, void *config)
{
	struct gx_buf errors;
	struct source src = {.table = table,
			     .config = config,
			     .name = "default",
			     .base = "/",
			     .errors = &errors};

	gx_buf_init(&errors, 4096);
	memset(config, 0, table->struct_bytes);
	for (size_t i = 0; i < table->row_count && src.fatal == 0; i++) {
		const struct gx_conf_row *row = &table->rows[i];

		gx_assert(row->type != GX_CONF_ENUM || row->choices != NULL);
		if (row->default_text != NULL)
			set_value(&src, row, row->default_text);
	}
	gx_buf_fini(&errors);
	/* A default that its own row refuses is a mistake in the table. */
	gx_assert(!src.failed);
	if (src.fatal < 0)
		gx_conf_fini(table, config);
	return src.fatal;
}

void gx_conf_fini(const struct gx_conf_table *table, void *config)
{
	for (size_t i = 0; i < table->row_count; i++) {
		if (type_is_text(table->rows[i].type)) {
			char **field = gx_conf_field(&table->rows[i], config);

			free(*field);
		}
	}
	memset(config, 0, table->struct_bytes);
}

static bool is_set(const struct gx_conf_row *row, const void *config)
{
	const void *field = gx_conf_field_const(row, config);

	if (type_is_text(row->type)) {
		const char *text = *(char *const *)field;

		return text != NULL && text[0] != '\0';
	}
	/* 0 of a switch or a choice is a value like any other. */
	gx_assert(row->type != GX_CONF_BOOL && row->type != GX_CONF_ENUM);
	return *(const uint64_t *)field != 0;
}

int gx_conf_validate(const struct gx_conf_table *table, const void *config, struct gx_buf *errors)
{
	struct source src = {.table = table, .name = table->program, .errors = errors};

	for (size_t i = 0; i < table->row_count; i++) {
		const struct gx_conf_row *row = &table->rows[i];

		if ((row->flags & GX_CONF_REQUIRED) && !is_set(row, config))
			problem(&src, "[%s] %s must be set", row->section, row->key);
	}
	return source_result(&src);
}

static size_t field_bytes(enum gx_conf_type type)
{
	switch (type) {
	case GX_CONF_STRING:
	case GX_CONF_PATH:
	case GX_CONF_LIST:
		return sizeof(char *);
	case GX_CONF_BOOL:
		return sizeof(bool);
	case GX_CONF_U64:
	case GX_CONF_SIZE:
		return sizeof(uint64_t);
	case GX_CONF_DURATION:
		return sizeof(int64_t);
	case GX_CONF_ENUM:
		return sizeof(int);
	case GX_CONF_TYPE_COUNT:
		break;
	}
	gx_assert(false);
	return 0;
}

static bool same_value(const struct gx_conf_row *row, const void *a, const void *b)
{
	const void *x = gx_conf_field_const(row, a);
	const void *y = gx_conf_field_const(row, b);

	if (type_is_text(row->type)) {
		const char *s = *(char *const *)x, *t = *(char *const *)y;

		return strcmp(s == NULL ? "" : s, t == NULL ? "" : t) == 0;
	}
	return memcmp(x, y, field_bytes(row->type)) == 0;
}

int gx_conf_reload(const struct gx_conf_table *table, void *config, void *fresh,
		   struct gx_buf *notes)
{
	/* Notes first: they may fail, the swaps cannot. */
	for (size_t i = 0; i < table->row_count; i++) {
		const struct gx_conf_row *row = &table->rows[i];

		if ((row->flags & GX_CONF_RELOAD) || same_value(row, config, fresh))
			continue;
		if (gx_buf_append_format(notes, "[%s] %s has changed and needs a restart\n",
					 row->section, row->key) == -ENOMEM)
			return -ENOMEM;
	}
	for (size_t i = 0; i < table->row_count; i++) {
		const struct gx_conf_row *row = &table->rows[i];
		size_t bytes = field_bytes(row->type);
		unsigned char held[sizeof(uint64_t)];

		if (!(row->flags & GX_CONF_RELOAD))
			continue;
		memcpy(held, gx_conf_field(row, config), bytes);
		memcpy(gx_conf_field(row, config), gx_conf_field(row, fresh), bytes);
		memcpy(gx_conf_field(row, fresh), held, bytes);
	}
	return 0;
}
