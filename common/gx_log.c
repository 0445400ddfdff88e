/*
 * A line is built on the stack and leaves in one write(2), so nothing here allocates and lines of
 * several threads never mix. One mutex guards the sink and the level table; it is held while a
 * line is written, which also means that a sink can be switched and its file closed safely.
 *
 * A line that is switched off costs two loads and two compares (gx_log.h): each call site caches
 * its level together with the generation of the level table that it came from.
 *
 * This file calls the clock and the file system directly and not through gx_env: the log must
 * work before an env exists and while one is failing.
 */
#include "common/gx_log.h"
#include "common/gx_num.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define ELLIPSIS "\xe2\x80\xa6"
/* Room kept for the end of a cut line: the ellipsis, a closing quote, newline, NUL. */
#define LINE_TAIL 6u
#define SITE_WINDOW_NS GX_NSEC_PER_SEC

#define COMPONENT_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_.-"

struct rule {
	char component[GX_LOG_COMPONENT_MAX];
	enum gx_log_level level;
};

struct levels {
	enum gx_log_level fallback;
	size_t rule_count;
	struct rule rules[GX_LOG_RULES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under `lock`. */
static struct levels levels = {.fallback = GX_LOG_INFO};
static enum gx_log_sink sink = GX_LOG_STDERR;
static bool journal_checked;
static bool journal; /* stderr is systemd's journal */
static char file_path[GX_PATH_MAX];
static gx_log_fn callback;
static void *callback_arg;

static _Atomic int file_fd = -1; /* changed under `lock`, read by gx_log_last_words without */
static _Atomic(int64_t (*)(void)) clock_fn;
static _Thread_local uint64_t request_id;

_Atomic uint32_t gx_log_generation = 1;

/* -- levels --------------------------------------------------------------- */

static const char *const level_names[] = {
	[GX_LOG_ERR] = "err",   [GX_LOG_WARNING] = "warning", [GX_LOG_NOTICE] = "notice",
	[GX_LOG_INFO] = "info", [GX_LOG_DEBUG] = "debug",
};

int gx_log_parse_level(const char *text, enum gx_log_level *ret_level)
{
	for (int level = GX_LOG_ERR; level <= GX_LOG_DEBUG; level++) {
		if (strcmp(text, level_names[level]) == 0 ||
		    (text[0] == '0' + level && text[1] == '\0')) {
			*ret_level = (enum gx_log_level)level;
			return 0;
		}
	}
	return -EINVAL;
}

/* One "level" or "component=level" of `bytes` bytes, blanks around it removed. */
static int parse_rule(struct levels *out, const char *text, size_t bytes)
{
	char item[GX_LOG_COMPONENT_MAX + sizeof("=warning")];
	char *equals;
	enum gx_log_level level;
	int r;

	while (bytes > 0 && *text == ' ') {
		text++;
		bytes--;
	}
	while (bytes > 0 && text[bytes - 1] == ' ')
		bytes--;
	if (bytes == 0 || bytes >= sizeof(item))
		return -EINVAL;
	memcpy(item, text, bytes);
	item[bytes] = '\0';
	equals = strchr(item, '=');
	r = gx_log_parse_level(equals == NULL ? item : equals + 1, &level);
	if (r < 0)
		return r;
	if (equals == NULL) {
		out->fallback = level;
		return 0;
	}
	*equals = '\0';
	if (equals == item || item[strspn(item, COMPONENT_CHARS)] != '\0')
		return -EINVAL;
	if (out->rule_count == GX_LOG_RULES_MAX)
		return -E2BIG;
	if (gx_strcpy(out->rules[out->rule_count].component, GX_LOG_COMPONENT_MAX, item) < 0)
		return -EINVAL;
	out->rules[out->rule_count++].level = level;
	return 0;
}

static int parse_levels(const char *spec, struct levels *ret_levels)
{
	struct levels fresh = {.fallback = GX_LOG_INFO};

	for (const char *item = spec;;) {
		size_t bytes = strcspn(item, ",");
		int r = parse_rule(&fresh, item, bytes);

		if (r < 0)
			return r;
		if (item[bytes] == '\0')
			break;
		item += bytes + 1;
	}
	*ret_levels = fresh;
	return 0;
}

int gx_log_check_levels(const char *spec)
{
	struct levels ignored;

	return parse_levels(spec, &ignored);
}

int gx_log_set_levels(const char *spec)
{
	struct levels fresh;
	int r = parse_levels(spec, &fresh);

	if (r < 0)
		return r;
	pthread_mutex_lock(&lock);
	levels = fresh;
	atomic_fetch_add(&gx_log_generation, 1);
	pthread_mutex_unlock(&lock);
	return 0;
}

static bool component_below(const char *component, const char *prefix, size_t prefix_bytes)
{
	return strncmp(component, prefix, prefix_bytes) == 0 &&
	       (component[prefix_bytes] == '\0' || component[prefix_bytes] == '.');
}

/* The longest prefix wins; of two equal ones the later. Call with the lock. */
static enum gx_log_level level_of(const char *component)
{
	enum gx_log_level level = levels.fallback;
	size_t longest = 0;

	for (size_t i = 0; i < levels.rule_count; i++) {
		size_t bytes = strlen(levels.rules[i].component);

		if (bytes >= longest &&
		    component_below(component, levels.rules[i].component, bytes)) {
			longest = bytes;
			level = levels.rules[i].level;
		}
	}
	return level;
}

static int64_t now_wall_ns(void)
{
	int64_t (*fn)(void) = atomic_load_explicit(&clock_fn, memory_order_relaxed);
	struct timespec ts;

	if (fn != NULL)
		return fn();
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * GX_NSEC_PER_SEC + ts.tv_nsec;
}

void gx_log_set_clock(int64_t (*wall_ns)(void))
{
	atomic_store(&clock_fn, wall_ns);
}

/* Threads that race at the edge of a window may let a line too many through: harmless. */
static bool within_rate(struct gx_log_site *site)
{
	int64_t now = now_wall_ns();
	int64_t window = atomic_load(&site->window_ns);

	if ((now < window || now - window >= SITE_WINDOW_NS) &&
	    atomic_compare_exchange_strong(&site->window_ns, &window, now))
		atomic_store(&site->in_window, 0);
	if (atomic_fetch_add(&site->in_window, 1) < GX_LOG_SITE_RATE)
		return true;
	atomic_fetch_add(&site->suppressed, 1);
	return false;
}

bool gx_log_enabled_slow(struct gx_log_site *site, enum gx_log_level level)
{
	if (atomic_load(&site->generation) != atomic_load(&gx_log_generation)) {
		pthread_mutex_lock(&lock);
		atomic_store_explicit(&site->level, (int)level_of(site->component),
				      memory_order_relaxed);
		atomic_store_explicit(&site->generation, atomic_load(&gx_log_generation),
				      memory_order_release);
		pthread_mutex_unlock(&lock);
	}
	if ((int)level > atomic_load_explicit(&site->level, memory_order_relaxed))
		return false;
	return level == GX_LOG_ERR || within_rate(site);
}

/* -- building a line ------------------------------------------------------ */

struct line {
	char text[GX_LOG_LINE_MAX];
	size_t bytes;
	bool full;   /* something did not fit; nothing more is added */
	bool marked; /* … and the ellipsis that says so is there */
};

/* All or nothing, so that a cut never splits an escape or a character. */
static bool line_add(struct line *line, const char *text, size_t bytes)
{
	if (line->full || line->bytes + bytes > sizeof(line->text) - LINE_TAIL) {
		line->full = true;
		return false;
	}
	memcpy(line->text + line->bytes, text, bytes);
	line->bytes += bytes;
	return true;
}

static void line_add_text(struct line *line, const char *text)
{
	(void)line_add(line, text, strlen(text));
}

/* Past the limit on purpose: this is what LINE_TAIL keeps room for. */
static void line_add_tail(struct line *line, const char *text)
{
	size_t bytes = strlen(text);

	gx_assert(line->bytes + bytes < sizeof(line->text));
	memcpy(line->text + line->bytes, text, bytes);
	line->bytes += bytes;
}

/*
 * True for characters that can make a line look like something else: C0 and C1 controls, and
 * Unicode's line separators and direction marks (U+2028..202E, U+2066..2069).
 */
static bool is_deceptive(const unsigned char *p, size_t bytes)
{
	if (bytes == 1)
		return p[0] < 0x20 || p[0] == 0x7f;
	if (bytes == 2)
		return p[0] == 0xc2 && p[1] < 0xa0;
	if (bytes == 3 && p[0] == 0xe2)
		return (p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae) ||
		       (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9);
	return false;
}

/* Writes the character at p as it shall appear; returns how many bytes it consumed. */
static size_t escape_char(const unsigned char *p, size_t bytes, bool quoted, char out[16],
			  size_t *ret_out_bytes)
{
	size_t length = gx_utf8_char(p, bytes);

	if (length > 0 && !is_deceptive(p, length)) {
		size_t at = 0;

		if (quoted && (p[0] == '"' || p[0] == '\\'))
			out[at++] = '\\';
		memcpy(out + at, p, length);
		*ret_out_bytes = at + length;
		return length;
	}
	(void)gx_format(out, 16, "\\x%02x", p[0]);
	*ret_out_bytes = 4;
	/* The rest of a deceptive character is no longer well-formed and gets escaped in turn. */
	return 1;
}

static void line_add_escaped(struct line *line, const char *text, bool quoted)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t left = strlen(text);
	size_t used = 0;

	while (left > 0) {
		char out[16];
		size_t out_bytes;
		size_t n = escape_char(p, left, quoted, out, &out_bytes);

		if (used + out_bytes > GX_LOG_VALUE_MAX) {
			line_add_text(line, ELLIPSIS);
			return;
		}
		if (!line_add(line, out, out_bytes))
			return;
		used += out_bytes;
		p += n;
		left -= n;
	}
}

static bool is_plain(const char *text)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789_./:@+-";

	/* A lone "-" stands for "no value". */
	return text[0] != '\0' && strcmp(text, "-") != 0 && text[strspn(text, plain)] == '\0';
}

static void line_add_value(struct line *line, const char *text)
{
	if (text == NULL) {
		line_add_text(line, "-");
	} else if (is_plain(text)) {
		line_add_escaped(line, text, false);
	} else if (line_add(line, "\"", 1)) {
		line_add_escaped(line, text, true);
		line->marked = line->full;
		line_add_tail(line, line->full ? ELLIPSIS "\"" : "\"");
	}
}

static void line_add_kv(struct line *line, const struct gx_log_kv *kv)
{
	char number[32];
	size_t start = line->bytes;

	line_add_text(line, " ");
	line_add_text(line, kv->key);
	line_add_text(line, "=");
	if (line->full) { /* no half key */
		line->bytes = start;
		return;
	}
	switch (kv->type) {
	case GX_KV_END:
		return;
	case GX_KV_STR:
		line_add_value(line, kv->value.str);
		return;
	case GX_KV_ERR:
		line_add_value(line, gx_strerror((int)kv->value.i64));
		return;
	case GX_KV_I64:
		(void)gx_format(number, sizeof(number), "%lld", (long long)kv->value.i64);
		break;
	case GX_KV_U64:
		(void)gx_format(number, sizeof(number), "%llu", (unsigned long long)kv->value.u64);
		break;
	case GX_KV_HEX:
		(void)gx_format(number, sizeof(number), "%016llx",
				(unsigned long long)kv->value.u64);
		break;
	}
	line_add_text(line, number);
	if (line->full)
		line->bytes = start;
}

/* -- sinks ---------------------------------------------------------------- */

static void write_all(int fd, const char *text, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = write(fd, text, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* nobody is left to tell */
		text += n;
		bytes -= (size_t)n;
	}
}

/* systemd sets JOURNAL_STREAM to "device:inode" of the stream it gave us; stderr may be another. */
static bool stderr_is_journal(void)
{
	const char *text = getenv("JOURNAL_STREAM");
	char expected[64];
	struct stat st;

	if (text == NULL || fstat(STDERR_FILENO, &st) < 0)
		return false;
	(void)gx_format(expected, sizeof(expected), "%llu:%llu", (unsigned long long)st.st_dev,
			(unsigned long long)st.st_ino);
	return strcmp(text, expected) == 0;
}

/* `body` is the offset behind the time; the line ends with a newline. Call with the lock. */
static void emit(enum gx_log_level level, struct line *line, size_t prefix, size_t body)
{
	char *plain = line->text + prefix;
	size_t plain_bytes = line->bytes - prefix;

	switch (sink) {
	case GX_LOG_STDERR:
		if (!journal_checked) {
			journal = stderr_is_journal();
			journal_checked = true;
		}
		if (journal)
			write_all(STDERR_FILENO, line->text, line->bytes);
		else
			write_all(STDERR_FILENO, plain, plain_bytes);
		break;
	case GX_LOG_FILE:
		write_all(atomic_load(&file_fd), plain, plain_bytes);
		break;
	case GX_LOG_SYSLOG:
		syslog((int)level, "%.*s", (int)(line->bytes - body - 1), line->text + body);
		break;
	case GX_LOG_CALLBACK:
		line->text[line->bytes - 1] = '\0';
		callback(callback_arg, level, plain);
		break;
	case GX_LOG_SINK_COUNT:
		break;
	}
}

void gx_log_write(struct gx_log_site *site, enum gx_log_level level, const char *message,
		  const struct gx_log_kv *kvs)
{
	struct line line;
	char text[40];
	size_t prefix, body;
	uint32_t suppressed = atomic_exchange(&site->suppressed, 0);
	int saved_errno = errno; /* logging between a failure and its handling must not matter */

	line.bytes = 0;
	line.full = false;
	line.marked = false;
	(void)gx_format(text, sizeof(text), "<%d>", (int)level);
	line_add_text(&line, text);
	prefix = line.bytes;
	gx_format_time(now_wall_ns(), true, text);
	line_add_text(&line, text);
	line_add_text(&line, " ");
	body = line.bytes;
	line_add_text(&line, level_names[level]);
	line_add_text(&line, " ");
	line_add_text(&line, site->component);
	if (request_id != 0) {
		(void)gx_format(text, sizeof(text), " req=%016llx", (unsigned long long)request_id);
		line_add_text(&line, text);
	}
	line_add_text(&line, " ");
	line_add_escaped(&line, message, false);
	/* Before the caller's pairs, so that a long line does not lose the count. */
	if (suppressed > 0)
		line_add_kv(&line, &GX_KU("suppressed", suppressed));
	for (const struct gx_log_kv *kv = kvs; kv->type != GX_KV_END && !line.full; kv++)
		line_add_kv(&line, kv);
	if (line.full && !line.marked)
		line_add_tail(&line, ELLIPSIS);
	line_add_tail(&line, "\n");

	pthread_mutex_lock(&lock);
	emit(level, &line, prefix, body);
	pthread_mutex_unlock(&lock);
	errno = saved_errno;
}

void gx_log_last_words(const char *line)
{
	int fd = atomic_load(&file_fd);

	write_all(STDERR_FILENO, line, strlen(line));
	if (fd >= 0)
		write_all(fd, line, strlen(line));
}

/* Switches the sink; `fd` is the new file or -1. Call with the lock. */
static void switch_to(enum gx_log_sink to, int fd)
{
	int old = atomic_exchange(&file_fd, fd);

	if (old >= 0)
		close(old);
	if (sink == GX_LOG_SYSLOG && to != GX_LOG_SYSLOG)
		closelog();
	sink = to;
}

static int open_log(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);

	return fd < 0 ? gx_errno() : fd;
}

int gx_log_open_file(const char *path)
{
	int fd;

	if (strlen(path) >= sizeof(file_path))
		return -E2BIG;
	fd = open_log(path);
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&lock);
	/* The caller may hand back our own copy; strlen was checked above. */
	memmove(file_path, path, strlen(path) + 1);
	switch_to(GX_LOG_FILE, fd);
	pthread_mutex_unlock(&lock);
	return 0;
}

int gx_log_reopen(void)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	if (sink == GX_LOG_FILE) {
		r = open_log(file_path);
		if (r >= 0) {
			switch_to(GX_LOG_FILE, r);
			r = 0;
		}
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void gx_log_to_stderr(void)
{
	pthread_mutex_lock(&lock);
	switch_to(GX_LOG_STDERR, -1);
	journal_checked = false;
	pthread_mutex_unlock(&lock);
}

void gx_log_to_syslog(const char *program)
{
	pthread_mutex_lock(&lock);
	switch_to(GX_LOG_SYSLOG, -1);
	openlog(program, LOG_PID | LOG_NDELAY, LOG_DAEMON);
	pthread_mutex_unlock(&lock);
}

void gx_log_to_callback(gx_log_fn fn, void *arg)
{
	pthread_mutex_lock(&lock);
	switch_to(GX_LOG_CALLBACK, -1);
	callback = fn;
	callback_arg = arg;
	pthread_mutex_unlock(&lock);
}

void gx_log_set_request(uint64_t id)
{
	request_id = id;
}

uint64_t gx_log_request(void)
{
	return request_id;
}
