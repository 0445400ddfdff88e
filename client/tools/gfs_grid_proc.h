/*
 * gfs_grid_proc.h - the daemons of a grid as processes: start, find, stop.
 *
 * A daemon is found by its pid file, whose lock it holds as long as it lives (gx_daemon.h). It is
 * held by a pidfd from then on, so that a signal can never reach another process that was given
 * the same number later.
 */
#ifndef GFS_GRID_PROC_H
#define GFS_GRID_PROC_H

#include "common/gx_buf.h"
#include "common/gx_env.h"

struct gfs_proc {
	pid_t pid;
	int fd; /* pidfd */
};

/*
 * Starts `program --background -c conf` in the directory `dir` and returns when it is ready. The
 * program is looked for beside this one, in ../sbin from there, and in PATH. -ENOENT: not found;
 * -ECHILD: it ended before it was ready (it has said why); -ETIMEDOUT: it is still starting.
 */
GX_MUST_CHECK int gfs_proc_start(struct gx_env *env, const char *program, const char *conf,
				 const char *dir);

/* The same of any program that goes to the background by itself. */
GX_MUST_CHECK int gfs_proc_run(struct gx_env *env, char *const *argv, const char *dir);

/*
 * 1: it runs, and ret_proc is to be closed; 0: nobody does. -EAGAIN: somebody holds the lock but
 * is just starting or dying, even after some seconds; -EBADMSG: the process in the file is not one
 * of our daemons.
 */
GX_MUST_CHECK int gfs_proc_find(struct gx_env *env, const char *pid_path,
				struct gfs_proc *ret_proc);
void gfs_proc_close(struct gx_env *env, struct gfs_proc *proc);

/* Sends the signal; -ESRCH: it has ended. */
GX_MUST_CHECK int gfs_proc_signal(const struct gfs_proc *proc, int signo);
/* Sends the signal and waits for the end; -ETIMEDOUT. */
GX_MUST_CHECK int gfs_proc_stop(struct gx_env *env, const struct gfs_proc *proc, int signo,
				int64_t deadline_ns);

#endif
