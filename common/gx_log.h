/*
 * gx_log.h - one line per event: time level component req=… message key=value…
 *
 * The message is a literal of plain words; facts go in key=value pairs made
 * with the macros below, which quote and escape them, so a hostile name cannot
 * forge a line.
 *
 *	gx_log(WARNING, "handshake refused", GX_KS("peer", peer), GX_KS("reason", why));
 *
 * Each .c file that logs says `#define GX_LOG_COMPONENT "rpc.server"` before
 * including this header. Levels are set for all or per component at run time
 * ("info,rpc=debug,rpc.tls=warning": the longest matching prefix wins).
 *
 * Only main-side code logs above debug; library code logs debug. Any thread
 * may log; lines are written whole. The sink and the levels are the one
 * mutable global of common/.
 */
#ifndef GX_LOG_H
#define GX_LOG_H

#include "common/gx_base.h"
#include "common/gx_limits.h"
#include <stdatomic.h>

/* Numbers are syslog's. */
enum gx_log_level {
	GX_LOG_ERR = 3,
	GX_LOG_WARNING = 4,
	GX_LOG_NOTICE = 5,
	GX_LOG_INFO = 6,
	GX_LOG_DEBUG = 7
};

enum gx_log_sink {
	GX_LOG_STDERR, /* plain; "<n>" prefixes when under systemd (JOURNAL_STREAM) */
	GX_LOG_SYSLOG,
	GX_LOG_FILE,     /* appended; reopened by gx_log_reopen() for rotation */
	GX_LOG_CALLBACK, /* tests */
	GX_LOG_SINK_COUNT
};

enum gx_log_kv_type { GX_KV_END, GX_KV_STR, GX_KV_I64, GX_KV_U64, GX_KV_HEX, GX_KV_ERR };

struct gx_log_kv {
	enum gx_log_kv_type type;
	const char *key;
	union {
		const char *str; /* NULL prints as "-" */
		int64_t i64;
		uint64_t u64;
	} value;
};

#define GX_KS(k, v) ((struct gx_log_kv){GX_KV_STR, (k), {.str = (v)}})
#define GX_KI(k, v) ((struct gx_log_kv){GX_KV_I64, (k), {.i64 = (v)}})
#define GX_KU(k, v) ((struct gx_log_kv){GX_KV_U64, (k), {.u64 = (v)}})
#define GX_KX(k, v) ((struct gx_log_kv){GX_KV_HEX, (k), {.u64 = (v)}})
/* error="No such file or directory", from a negative errno */
#define GX_KE(err) ((struct gx_log_kv){GX_KV_ERR, "error", {.i64 = (err)}})

/* State of one call site: level cache and rate limit (10 lines a second, then one "suppressed=n").
 */
struct gx_log_site {
	const char *component;
	const char *file;
	int line;
	_Atomic uint32_t generation; /* of the level table when `level` was cached */
	_Atomic int level;
	_Atomic int64_t window_ns;
	_Atomic uint32_t in_window;
	_Atomic uint32_t suppressed;
};

/*
 * How many lines one call site may write per second. What is over that is counted, and the site's
 * next line carries suppressed=n. Errors are never suppressed: each may be the only trace.
 */
#define GX_LOG_SITE_RATE 10u

/* True if a line of this level from this site would be written; counts against its rate. */
bool gx_log_enabled_slow(struct gx_log_site *site, enum gx_log_level level);
/* Counts changes of the level table, from 1, so that a fresh site (0) asks once. */
extern _Atomic uint32_t gx_log_generation;
static inline bool gx_log_enabled(struct gx_log_site *site, enum gx_log_level level)
{
	/* The whole cost of a line that is switched off. */
	if (GX_LIKELY(atomic_load_explicit(&site->generation, memory_order_acquire) ==
		      atomic_load_explicit(&gx_log_generation, memory_order_relaxed)) &&
	    (int)level > atomic_load_explicit(&site->level, memory_order_relaxed))
		return false;
	return gx_log_enabled_slow(site, level);
}
void gx_log_write(struct gx_log_site *site, enum gx_log_level level, const char *message,
		  const struct gx_log_kv *kvs);

/* gx_log(LEVEL, "message", pairs…): the pairs are evaluated only if the line is written. */
#define gx_log(lvl, message, ...)                                                                  \
	do {                                                                                       \
		static struct gx_log_site gx_site_ = {                                             \
			GX_LOG_COMPONENT, __FILE__, __LINE__, 0, 0, 0, 0, 0};                      \
		if (gx_log_enabled(&gx_site_, GX_LOG_##lvl))                                       \
			gx_log_write(&gx_site_, GX_LOG_##lvl, message,                             \
				     (struct gx_log_kv[]){__VA_ARGS__ __VA_OPT__(, ){              \
					     GX_KV_END, NULL, {.u64 = 0}}});                       \
	} while (0)

/* Logs with error=… and evaluates to r, so `return gx_log_errno(ERR, r, "cannot …", pairs);` */
#define gx_log_errno(lvl, r, message, ...)                                                         \
	({                                                                                         \
		int gx_r_ = (r);                                                                   \
		gx_log(lvl, message, GX_KE(gx_r_) __VA_OPT__(, ) __VA_ARGS__);                     \
		gx_r_;                                                                             \
	})

/* The id of the request this thread is working on; appears as req=… in its lines. 0: none. */
void gx_log_set_request(uint64_t request_id);
uint64_t gx_log_request(void);

/*
 * "info" or "info,rpc=debug,…"; a component means itself and what is below it ("rpc" is also
 * "rpc.tls", not "rpcd"). -EINVAL or -E2BIG (too many rules) leaves the old levels.
 */
GX_MUST_CHECK int gx_log_set_levels(const char *spec);
/* Would gx_log_set_levels accept it? Changes nothing. */
GX_MUST_CHECK int gx_log_check_levels(const char *spec);

typedef void (*gx_log_fn)(void *arg, enum gx_log_level level, const char *line);

/* Switching the sink waits for lines being written; the old file is closed. */
GX_MUST_CHECK int gx_log_open_file(const char *path);
/* Opens the file's path again, for rotation; on failure the old file stays. 0 with other sinks. */
int gx_log_reopen(void);
void gx_log_to_stderr(void);
/* `program` must stay valid. */
void gx_log_to_syslog(const char *program);
/* The callback runs in the thread that logs, one line at a time, and must not log itself. */
void gx_log_to_callback(gx_log_fn fn, void *arg);

/*
 * The clock of the lines (wall, ns since 1970); NULL is the machine's. A simulation gives its own
 * so that a seed replays to the same log.
 */
void gx_log_set_clock(int64_t (*wall_ns)(void));

/* What a dying process has to say (gx_assert): to stderr and the log file; no lock, no memory. */
void gx_log_last_words(const char *line);

/* Parses "err".."debug" or a number 3..7. */
GX_MUST_CHECK int gx_log_parse_level(const char *text, enum gx_log_level *ret_level);

#endif
