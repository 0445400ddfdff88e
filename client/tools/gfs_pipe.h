/*
 * gfs_pipe.h - reading and writing at the same time, for copies of large files.
 *
 * A ring of pieces between two threads. The caller's is the one that talks to the grid, because
 * the story behind a failure is kept for each thread (gfs_error()); the other side is local.
 */
#ifndef GFS_PIPE_H
#define GFS_PIPE_H

#include "common/gx_env.h"

#define GFS_PIPE_PIECE (1024u * 1024)
#define GFS_PIPE_PIECES 4u

struct gfs_pipe_ends {
	/* As in gfs_copy.h. */
	ssize_t (*read)(void *arg, void *buf, size_t bytes, uint64_t offset);
	void *read_arg;
	int (*write)(void *arg, const void *buf, size_t bytes, uint64_t offset);
	void *write_arg;
	bool read_here; /* by the caller's thread; else it writes */
	/* In the caller's thread: so much is done. True: that is enough, -EINTR. */
	bool (*step)(void *arg, uint64_t at);
	void *step_arg;
};

/* What it has come to. */
struct gfs_pipe_result {
	uint64_t at; /* all before this is written */
	bool ended;  /* the source has, before `end` */
	int read_err, write_err;
};

/*
 * Copies from `from` to `end`, or to the end of the source. 0, also if one side failed, which the
 * result tells; -EINTR; negative: there are no threads or there is no memory, and nothing happened.
 */
GX_MUST_CHECK int gfs_pipe_run(struct gx_env *env, const struct gfs_pipe_ends *ends, uint64_t from,
			       uint64_t end, struct gfs_pipe_result *ret_result);

#endif
