/*
 * The three ways a configuration table is printed: the values in force (--dump-config), a
 * commented sample for conf/, and the key list of a man page. All are made from the rows alone.
 */
#include "common/gx_conf.h"
#include "common/gx_num.h"

#define WRAP_COLUMNS 90

static const char *type_name(enum gx_conf_type type)
{
	switch (type) {
	case GX_CONF_STRING:
		return "text";
	case GX_CONF_PATH:
		return "path";
	case GX_CONF_BOOL:
		return "yes or no";
	case GX_CONF_U64:
		return "number";
	case GX_CONF_SIZE:
		return "size";
	case GX_CONF_DURATION:
		return "duration";
	case GX_CONF_ENUM:
		return "one of";
	case GX_CONF_LIST:
		return "list";
	case GX_CONF_TYPE_COUNT:
		break;
	}
	gx_assert(false);
	return "";
}

/* Starts a section when the row opens one; rows of a section stand together in a table. */
static bool opens_section(const struct gx_conf_row *row, const char **section)
{
	if (*section != NULL && strcmp(*section, row->section) == 0)
		return false;
	*section = row->section;
	return true;
}

/* -- dump ----------------------------------------------------------------- */

static int dump_row(const struct gx_conf_row *row, const void *config, struct gx_buf *out)
{
	const void *field = gx_conf_field_const(row, config);
	const char *value = NULL;
	char text[32];

	switch (row->type) {
	case GX_CONF_STRING:
	case GX_CONF_PATH:
	case GX_CONF_LIST:
		value = *(char *const *)field;
		break;
	case GX_CONF_BOOL:
		value = *(const bool *)field ? "yes" : "no";
		break;
	case GX_CONF_U64:
		(void)gx_format(text, sizeof(text), "%llu",
				(unsigned long long)*(const uint64_t *)field);
		value = text;
		break;
	case GX_CONF_SIZE:
		gx_format_size(*(const uint64_t *)field, text);
		value = text;
		break;
	case GX_CONF_DURATION:
		gx_format_duration(*(const int64_t *)field, text);
		value = text;
		break;
	case GX_CONF_ENUM:
		value = row->choices[*(const int *)field];
		break;
	case GX_CONF_TYPE_COUNT:
		gx_assert(false);
	}
	/* A text that was never set is not the same as one set to nothing. */
	if (value == NULL)
		return gx_buf_append_format(out, "#%s =\n", row->key);
	return gx_buf_append_format(out, "%s =%s%s\n", row->key, value[0] ? " " : "", value);
}

int gx_conf_dump(const struct gx_conf_table *table, const void *config, struct gx_buf *out)
{
	const char *section = NULL;

	for (size_t i = 0; i < table->row_count; i++) {
		const struct gx_conf_row *row = &table->rows[i];
		const char *gap = section == NULL ? "" : "\n";
		int r = 0;

		if (opens_section(row, &section))
			r = gx_buf_append_format(out, "%s[%s]\n", gap, section);
		if (r == 0)
			r = dump_row(row, config, out);
		if (r < 0)
			return r;
	}
	return 0;
}

/* -- sample --------------------------------------------------------------- */

/* What the row accepts, in one line: "size, 1MiB to 4GiB, default 64MiB, reloadable". */
static int describe(const struct gx_conf_row *row, struct gx_buf *out)
{
	int r = gx_buf_append_format(out, "%s", type_name(row->type));

	for (int i = 0; r == 0 && row->type == GX_CONF_ENUM && row->choices[i] != NULL; i++)
		r = gx_buf_append_format(out, "%s%s", i == 0 ? " " : " | ", row->choices[i]);
	if (r == 0 && row->min_text != NULL && row->max_text != NULL)
		r = gx_buf_append_format(out, ", %s to %s", row->min_text, row->max_text);
	else if (r == 0 && row->min_text != NULL)
		r = gx_buf_append_format(out, ", at least %s", row->min_text);
	else if (r == 0 && row->max_text != NULL)
		r = gx_buf_append_format(out, ", at most %s", row->max_text);
	if (r == 0 && (row->flags & GX_CONF_REQUIRED))
		r = gx_buf_append_format(out, ", must be set");
	else if (r == 0 && row->default_text != NULL && row->default_text[0] != '\0')
		r = gx_buf_append_format(out, ", default %s", row->default_text);
	if (r == 0 && (row->flags & GX_CONF_SECRET))
		r = gx_buf_append_format(out, ", a file only its owner may read");
	if (r == 0 && (row->flags & GX_CONF_RELOAD))
		r = gx_buf_append_format(out, ", reloaded on SIGHUP");
	return r;
}

/* `text` as comment lines no longer than WRAP_COLUMNS, broken at blanks. */
static int comment(const char *text, struct gx_buf *out)
{
	while (*text != '\0') {
		size_t left = strlen(text);
		size_t take = GX_MIN(left, (size_t)WRAP_COLUMNS);
		int r;

		if (left > take) {
			while (take > 0 && text[take] != ' ')
				take--;
			if (take == 0) /* one endless word */
				take = strcspn(text, " ");
		}
		r = gx_buf_append_format(out, "# %.*s\n", (int)take, text);
		if (r < 0)
			return r;
		text += take;
		text += strspn(text, " ");
	}
	return 0;
}

static int sample_row(const struct gx_conf_row *row, struct gx_buf *out)
{
	const char *value = row->default_text == NULL ? "" : row->default_text;
	struct gx_buf line;
	const char *text;
	int r = comment(row->help, out);

	if (r < 0)
		return r;
	gx_buf_init(&line, GX_CONF_LINE_MAX);
	r = describe(row, &line);
	text = r < 0 ? NULL : gx_buf_text(&line);
	if (r == 0 && text == NULL)
		r = -ENOMEM;
	if (r == 0)
		r = gx_buf_append_format(out, "# (");
	if (r == 0)
		r = gx_buf_append_format(out, "%s)\n#%s =%s%s\n", text, row->key,
					 value[0] ? " " : "", value);
	gx_buf_fini(&line);
	return r;
}

int gx_conf_sample(const struct gx_conf_table *table, struct gx_buf *out)
{
	const char *section = NULL;
	int r = gx_buf_append_format(
		out,
		"# Configuration of %s.\n"
		"# A line that starts with # is a comment; the ones below show "
		"the defaults.\n",
		table->program);

	for (size_t i = 0; r == 0 && i < table->row_count; i++) {
		const struct gx_conf_row *row = &table->rows[i];

		if (row->flags & GX_CONF_HIDDEN)
			continue;
		if (opens_section(row, &section))
			r = gx_buf_append_format(out, "\n[%s]\n", section);
		else
			r = gx_buf_append_format(out, "\n");
		if (r == 0)
			r = sample_row(row, out);
	}
	return r;
}

/* -- mdoc ----------------------------------------------------------------- */

/* Running text: a new line per sentence, control lines and backslashes disarmed. */
static int mdoc_text(const char *text, struct gx_buf *out)
{
	bool line_start = true;
	int r = 0;

	for (const char *p = text; *p != '\0' && r == 0; p++) {
		if (line_start && (*p == '.' || *p == '\''))
			r = gx_buf_append_format(out, "\\&");
		line_start = false;
		if (r < 0)
			break;
		if (*p == '\\') {
			r = gx_buf_append_format(out, "\\e");
		} else if (*p == ' ' && p > text && p[-1] == '.') {
			r = gx_buf_append_format(out, "\n");
			line_start = true;
		} else {
			r = gx_buf_append(out, p, 1);
		}
	}
	return r < 0 ? r : gx_buf_append_format(out, "\n");
}

static int mdoc_row(const struct gx_conf_row *row, struct gx_buf *out)
{
	struct gx_buf line;
	int r = gx_buf_append_format(out, ".It Ic %s\n", row->key);

	if (r == 0)
		r = mdoc_text(row->help, out);
	if (r < 0)
		return r;
	gx_buf_init(&line, GX_CONF_LINE_MAX);
	r = gx_buf_append_format(&line, "(");
	if (r == 0)
		r = describe(row, &line);
	if (r == 0)
		r = gx_buf_append_format(&line, ")");
	if (r == 0) {
		const char *text = gx_buf_text(&line);

		r = text == NULL ? -ENOMEM : mdoc_text(text, out);
	}
	gx_buf_fini(&line);
	return r;
}

int gx_conf_mdoc(const struct gx_conf_table *table, struct gx_buf *out)
{
	const char *section = NULL;
	int r = 0;

	for (size_t i = 0; r == 0 && i < table->row_count; i++) {
		const struct gx_conf_row *row = &table->rows[i];
		bool first = section == NULL;

		if (row->flags & GX_CONF_HIDDEN)
			continue;
		if (opens_section(row, &section))
			r = gx_buf_append_format(out, "%s.Ss [%s]\n.Bl -tag -width Ds\n",
						 first ? "" : ".El\n", section);
		if (r == 0)
			r = mdoc_row(row, out);
	}
	if (r == 0 && section != NULL)
		r = gx_buf_append_format(out, ".El\n");
	return r;
}
