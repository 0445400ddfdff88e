/*
 * gfs_parse.h - what users write on the command line of file commands: modes, times, numbers
 * with a sign. Parsers take the whole text or return -EINVAL.
 */
#ifndef GFS_PARSE_H
#define GFS_PARSE_H

#include "common/gx_base.h"
#include <time.h>

/* A change of permissions: "644" or "u+rwx,g-w,a=rX". */
#define GFS_MODE_STEPS_MAX 32u
struct gfs_mode_step {
	char op;         /* '+', '-', '=' */
	uint32_t who;    /* which of the twelve bits it may set */
	uint32_t clears; /* and what '=' clears first */
	uint32_t bits;   /* what to add, remove or set */
	char copy;       /* 'u', 'g', 'o': take that one's bits; 0: `bits` */
	bool x_if_any;   /* 'X': x for directories, and where somebody has x */
	bool keeps_high; /* an '=' that does not name s leaves setuid and setgid of a directory */
};
struct gfs_mode_change {
	struct gfs_mode_step step[GFS_MODE_STEPS_MAX];
	size_t count;
};
/* As chmod(1): a step without u, g, o, a means a, less the umask. */
GX_MUST_CHECK int gfs_mode_parse(const char *text, mode_t umask,
				 struct gfs_mode_change *ret_change);
/* The twelve bits that `mode` (with its type) turns into. */
uint32_t gfs_mode_apply(const struct gfs_mode_change *change, uint32_t mode);

/*
 * "now", "@SECONDS[.FRACTION]", "2026-11-16T12:00:00[.5]Z" in UTC; "2026-11-16", or with
 * " 12:00[:00]" or "T12:00[:00]", in the local time zone.
 */
GX_MUST_CHECK int gfs_time_parse(const char *text, int64_t now_ns, struct timespec *ret_ts);

/* find: "N" exactly, "+N" more, "-N" less. */
struct gfs_compare {
	int sign; /* -1, 0, 1 */
	uint64_t number;
	uint64_t unit; /* numbers count these, rounded up for sizes */
};
/* Blocks of 512 without a unit, and c (bytes), w (2), b (512), k, M, G, T. */
GX_MUST_CHECK int gfs_size_compare_parse(const char *text, struct gfs_compare *ret_compare);
/* Days. */
GX_MUST_CHECK int gfs_age_compare_parse(const char *text, struct gfs_compare *ret_compare);
bool gfs_size_matches(const struct gfs_compare *compare, uint64_t bytes);
/* Whole units of age count, as in find(1): one day and 23 hours are 1. */
bool gfs_age_matches(const struct gfs_compare *compare, int64_t age_sec);

#endif
