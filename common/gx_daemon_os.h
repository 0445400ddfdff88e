/*
 * gx_daemon_os.h - the parts of starting a daemon that are pure system calls:
 * background, users, readiness. Used by gx_daemon.c only, from the main thread.
 */
#ifndef GX_DAEMON_OS_H
#define GX_DAEMON_OS_H

#include "common/gx_base.h"

/* Keys pass through this process: no core dumps (rule S3), unless GX_COREDUMP=1. */
void gx_forbid_core_dumps(void);

/* Ignores SIGPIPE; keeps keys out of core dumps (unless GX_COREDUMP=1) and files from others. */
void gx_daemon_harden(void);

/*
 * Forks into the background. In the daemon: 0, and *ret_status_fd is where it writes one byte,
 * its exit code or 0 for ready. In the starter, which waits for that: 1, and *ret_code is the
 * code to exit with. Negative errno (already printed) if there is no daemon. `silent`: one that
 * could not start has said why, and that is enough.
 */
GX_MUST_CHECK int gx_daemon_fork(const char *program, bool silent, int *ret_status_fd,
				 int *ret_code);

/* Points descriptors 0, 1 and 2 at /dev/null. */
void gx_daemon_null_stdio(void);

/*
 * Becomes `user` for good, with its groups; log_file (may be NULL) is given to it first, so that
 * it can be reopened. 0 also if we are that user already. -ENOENT: no such user, -EPERM: not root.
 */
GX_MUST_CHECK int gx_daemon_become(const char *user, const char *log_file);

/* Sends a message to the service manager (sd_notify's protocol); nothing without NOTIFY_SOCKET. */
void gx_daemon_notify(const char *message);

#endif
