/*
 * gx_env.h - the world as product code may see it: time, random, files,
 * sockets, threads and waiting.
 *
 * Everything that can block, fail or differ between two runs goes through a
 * `struct gx_env`. There are two implementations: gx_env_posix() is the real
 * machine, and gx_sim (gx_sim.h) runs many simulated processes as fibers in
 * one real thread with virtual time, a faulty network and a faulty disk. Code
 * written against this header runs unchanged in both, whether it blocks (the
 * client library, fsd's data threads) or sits on a gx_loop (gx_loop.h).
 *
 * Faults: if `env->fault` is set, each call below first asks gx_fault_check()
 * whether this, the n-th call of its kind, is to fail (gx_fault.h).
 *
 * Conventions: 0, a count or a descriptor on success, negative errno on
 * failure. Descriptors are close-on-exec at birth. Deadlines are absolute, on
 * the env's monotonic clock, in nanoseconds.
 *
 * Descriptors of a simulated env are small numbers that mean nothing to the
 * kernel, so a descriptor must only ever be used with the env it came from.
 */
#ifndef GX_ENV_H
#define GX_ENV_H

#include "common/gx_addr.h"
#include "common/gx_base.h"
#include "common/gx_fault.h"
#include <pthread.h>
#include <sys/stat.h>
#include <sys/uio.h>

struct gx_env;

/* Deadlines. */
#define GX_NOWAIT INT64_C(0) /* never block: -EAGAIN instead */
#define GX_FOREVER INT64_MAX /* block as long as it takes */

/* Events for gx_env_poll() and gx_loop. ERR and HUP are reported as readable. */
#define GX_READABLE 1u
#define GX_WRITABLE 2u

struct gx_pollfd {
	int fd;
	unsigned events;  /* wanted: GX_READABLE | GX_WRITABLE */
	unsigned revents; /* got */
};

/* One of these is embedded where it is needed; only env calls look inside. */
struct gx_mutex {
	pthread_mutex_t posix;
	void *sim; /* owner and waiters, in the simulation */
};

struct gx_cond {
	pthread_cond_t posix;
	void *sim;
};

struct gx_thread {
	pthread_t posix;
	void *sim;
};

typedef void (*gx_thread_fn)(void *arg);
/* Called once per entry (never "." or ".."); non-zero stops the walk and is returned. */
typedef int (*gx_dirent_fn)(void *arg, const char *name);

struct gx_env_ops {
	int64_t (*now_ns)(struct gx_env *);
	int64_t (*wall_ns)(struct gx_env *);
	int64_t (*cpu_ns)(struct gx_env *); /* may be NULL: the monotonic clock */
	int (*random)(struct gx_env *, void *buf, size_t bytes);
	int (*sleep_until)(struct gx_env *, int64_t deadline_ns);

	int (*open)(struct gx_env *, const char *path, int flags, mode_t mode);
	int (*close)(struct gx_env *, int fd);
	ssize_t (*pread)(struct gx_env *, int fd, void *buf, size_t bytes, uint64_t offset);
	ssize_t (*pwritev)(struct gx_env *, int fd, const struct iovec *iov, int iov_count,
			   uint64_t offset);
	int (*fdatasync)(struct gx_env *, int fd);
	int (*fsync)(struct gx_env *, int fd);
	int (*ftruncate)(struct gx_env *, int fd, uint64_t bytes);
	int (*fallocate)(struct gx_env *, int fd, int mode, uint64_t offset, uint64_t bytes);
	int (*seek)(struct gx_env *, int fd, uint64_t offset, bool hole, uint64_t *ret_offset);
	int (*fstat)(struct gx_env *, int fd, struct stat *ret_st);
	int (*stat)(struct gx_env *, const char *path, struct stat *ret_st);
	int (*rename)(struct gx_env *, const char *from, const char *to);
	int (*unlink)(struct gx_env *, const char *path);
	int (*mkdir)(struct gx_env *, const char *path, mode_t mode);
	int (*rmdir)(struct gx_env *, const char *path);
	int (*sync_dir)(struct gx_env *, const char *path);
	int (*list_dir)(struct gx_env *, const char *path, gx_dirent_fn fn, void *arg);
	int (*lock_file)(struct gx_env *, int fd);
	int (*space)(struct gx_env *, const char *path, uint64_t *ret_bytes, uint64_t *ret_free);

	int (*listen)(struct gx_env *, const struct gx_addr *addr, int backlog);
	int (*accept)(struct gx_env *, int fd);
	int (*connect)(struct gx_env *, const struct gx_addr *addr, int64_t deadline_ns);
	int (*sock_name)(struct gx_env *, int fd, struct gx_addr *ret_addr);
	int (*peer_name)(struct gx_env *, int fd, struct gx_addr *ret_addr);
	ssize_t (*readv)(struct gx_env *, int fd, const struct iovec *iov, int iov_count,
			 int64_t deadline_ns);
	ssize_t (*writev)(struct gx_env *, int fd, const struct iovec *iov, int iov_count,
			  int64_t deadline_ns);
	/* The next three may be NULL: the first is then made of others, descriptors are not passed.
	 */
	ssize_t (*sendfile)(struct gx_env *, int fd, int file, uint64_t offset, size_t bytes,
			    int64_t deadline_ns);
	ssize_t (*send_fd)(struct gx_env *, int fd, const struct iovec *iov, int iov_count,
			   int passed, int64_t deadline_ns);
	ssize_t (*recv_fd)(struct gx_env *, int fd, const struct iovec *iov, int iov_count,
			   int *ret_passed, int64_t deadline_ns);
	int (*shutdown)(struct gx_env *, int fd);
	int (*resolve)(struct gx_env *, const char *host, const char *port,
		       struct gx_addr *ret_addr);

	int (*poll)(struct gx_env *, struct gx_pollfd *fds, size_t count, int64_t deadline_ns);
	int (*event_open)(struct gx_env *);
	int (*event_set)(struct gx_env *, int fd);
	int (*event_clear)(struct gx_env *, int fd);

	int (*thread_start)(struct gx_env *, struct gx_thread *t, const char *name, gx_thread_fn fn,
			    void *arg);
	int (*thread_join)(struct gx_env *, struct gx_thread *t);
	int (*mutex_init)(struct gx_env *, struct gx_mutex *m);
	void (*mutex_fini)(struct gx_env *, struct gx_mutex *m);
	void (*mutex_lock)(struct gx_env *, struct gx_mutex *m);
	void (*mutex_unlock)(struct gx_env *, struct gx_mutex *m);
	int (*cond_init)(struct gx_env *, struct gx_cond *c);
	void (*cond_fini)(struct gx_env *, struct gx_cond *c);
	int (*cond_wait)(struct gx_env *, struct gx_cond *c, struct gx_mutex *m,
			 int64_t deadline_ns);
	void (*cond_signal)(struct gx_env *, struct gx_cond *c);
	void (*cond_broadcast)(struct gx_env *, struct gx_cond *c);
};

struct gx_env {
	const struct gx_env_ops *ops;
	struct gx_fault *fault; /* NULL in production */
	bool simulated;         /* true: gx_loop_new() picks the poll loop, TLS is not offered */
};

/* The real machine. One shared object without state; never freed. */
struct gx_env *gx_env_posix(void);

/* -- time, random, waiting ------------------------------------------------ */

/* Monotonic clock. Never 0 (0 is GX_NOWAIT). */
static inline int64_t gx_env_now_ns(struct gx_env *env)
{
	return env->ops->now_ns(env);
}

/* Wall clock, nanoseconds since 1970; may jump. */
static inline int64_t gx_env_wall_ns(struct gx_env *env)
{
	return env->ops->wall_ns(env);
}

/* Time this thread has spent on a CPU. */
static inline int64_t gx_env_cpu_ns(struct gx_env *env)
{
	return env->ops->cpu_ns != NULL ? env->ops->cpu_ns(env) : env->ops->now_ns(env);
}

/* Deadline `timeout_ms` from now; saturates at GX_FOREVER. */
static inline int64_t gx_env_deadline_ms(struct gx_env *env, uint64_t timeout_ms)
{
	int64_t now = env->ops->now_ns(env);

	if (timeout_ms > (uint64_t)(GX_FOREVER - now) / (uint64_t)GX_NSEC_PER_MSEC)
		return GX_FOREVER;
	return now + (int64_t)timeout_ms * GX_NSEC_PER_MSEC;
}

/* Cryptographic random bytes (a seeded stream in the simulation). */
GX_MUST_CHECK int gx_env_random(struct gx_env *env, void *buf, size_t bytes);

/* Sleeps; 0 at the deadline. Not for waiting on something that has an event. */
int gx_env_sleep_until(struct gx_env *env, int64_t deadline_ns);

/* -- files ---------------------------------------------------------------- */

/* open(2) with O_CLOEXEC added. */
GX_MUST_CHECK int gx_env_open(struct gx_env *env, const char *path, int flags, mode_t mode);
/* Closes any descriptor of this env. The descriptor is gone even when an error comes back. */
int gx_env_close(struct gx_env *env, int fd);
/* Reads until `bytes` or end of file; restarts after EINTR. Returns the count. */
GX_MUST_CHECK ssize_t gx_env_pread(struct gx_env *env, int fd, void *buf, size_t bytes,
				   uint64_t offset);
/* Writes all or fails; a partial write before an error is possible, as on disk. */
GX_MUST_CHECK int gx_env_pwrite(struct gx_env *env, int fd, const void *buf, size_t bytes,
				uint64_t offset);
/* As gx_env_pwrite for a vector (at most 64 entries). */
GX_MUST_CHECK int gx_env_pwritev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
				 uint64_t offset);
GX_MUST_CHECK int gx_env_fdatasync(struct gx_env *env, int fd);
GX_MUST_CHECK int gx_env_fsync(struct gx_env *env, int fd);
GX_MUST_CHECK int gx_env_ftruncate(struct gx_env *env, int fd, uint64_t bytes);
/* `mode` as fallocate(2): 0, FALLOC_FL_KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE. */
GX_MUST_CHECK int gx_env_fallocate(struct gx_env *env, int fd, int mode, uint64_t offset,
				   uint64_t bytes);
/* Next byte that is data, or (`hole`) that is not; the end is a hole. -ENXIO: there is none. */
GX_MUST_CHECK int gx_env_seek(struct gx_env *env, int fd, uint64_t offset, bool hole,
			      uint64_t *ret_offset);
GX_MUST_CHECK int gx_env_fstat(struct gx_env *env, int fd, struct stat *ret_st);
GX_MUST_CHECK int gx_env_stat(struct gx_env *env, const char *path, struct stat *ret_st);
GX_MUST_CHECK int gx_env_rename(struct gx_env *env, const char *from, const char *to);
GX_MUST_CHECK int gx_env_unlink(struct gx_env *env, const char *path);
GX_MUST_CHECK int gx_env_mkdir(struct gx_env *env, const char *path, mode_t mode);
GX_MUST_CHECK int gx_env_rmdir(struct gx_env *env, const char *path);
/* Makes creations, renames and removals in a directory durable. */
GX_MUST_CHECK int gx_env_sync_dir(struct gx_env *env, const char *path);
/* Entries in no particular order. */
int gx_env_list_dir(struct gx_env *env, const char *path, gx_dirent_fn fn, void *arg);
/* Exclusive advisory lock, not waiting: -EAGAIN when another process has it. Ends with close. */
GX_MUST_CHECK int gx_env_lock_file(struct gx_env *env, int fd);
/* Of the filesystem that a path is on: its size, and what a user without privileges may still take.
 */
GX_MUST_CHECK int gx_env_space(struct gx_env *env, const char *path, uint64_t *ret_bytes,
			       uint64_t *ret_free);

/* -- stream sockets ------------------------------------------------------- */

/*
 * Listens; port 0 picks a free one (see gx_env_sock_name). A unix address must
 * be an absolute path; a stale socket file (nobody accepts on it) is replaced,
 * a live one is -EADDRINUSE. The socket file gets mode 0600 less nothing: the
 * directory decides who may reach it.
 */
GX_MUST_CHECK int gx_env_listen(struct gx_env *env, const struct gx_addr *addr, int backlog);
/* Never blocks: -EAGAIN when nobody is waiting. */
GX_MUST_CHECK int gx_env_accept(struct gx_env *env, int fd);
GX_MUST_CHECK int gx_env_connect(struct gx_env *env, const struct gx_addr *addr,
				 int64_t deadline_ns);
GX_MUST_CHECK int gx_env_sock_name(struct gx_env *env, int fd, struct gx_addr *ret_addr);
GX_MUST_CHECK int gx_env_peer_name(struct gx_env *env, int fd, struct gx_addr *ret_addr);
/*
 * One read of at least one byte: the count, 0 at end of stream, -EAGAIN with
 * GX_NOWAIT, -ETIMEDOUT at the deadline. The hot path is a single recvmsg.
 */
GX_MUST_CHECK ssize_t gx_env_readv(struct gx_env *env, int fd, const struct iovec *iov,
				   int iov_count, int64_t deadline_ns);
/* One write of at least one byte, same errors, -EPIPE when the peer is gone (no signal). */
GX_MUST_CHECK ssize_t gx_env_writev(struct gx_env *env, int fd, const struct iovec *iov,
				    int iov_count, int64_t deadline_ns);
/*
 * As gx_env_writev with the bytes of a file: at least one byte, 0 at its end. The thread must have
 * SIGPIPE blocked or ignored, as all threads of gx_env_thread_start() and all daemons have.
 */
GX_MUST_CHECK ssize_t gx_env_sendfile(struct gx_env *env, int fd, int file, uint64_t offset,
				      size_t bytes, int64_t deadline_ns);
/*
 * As gx_env_writev and _readv on a unix socket, with a descriptor: who reads the first byte gets a
 * descriptor of its own for the same open file, if it reads with _recv_fd (*ret_passed, else -1).
 * The sender keeps its own. -EOPNOTSUPP where descriptors cannot be passed, which
 * gx_env_passes_fds() tells beforehand, from the socket's own address.
 */
static inline bool gx_env_passes_fds(const struct gx_env *env, const struct gx_addr *addr)
{
	return addr->kind == GX_ADDR_UNIX && env->ops->send_fd != NULL;
}
GX_MUST_CHECK ssize_t gx_env_send_fd(struct gx_env *env, int fd, const struct iovec *iov,
				     int iov_count, int passed, int64_t deadline_ns);
GX_MUST_CHECK ssize_t gx_env_recv_fd(struct gx_env *env, int fd, const struct iovec *iov,
				     int iov_count, int *ret_passed, int64_t deadline_ns);
/* Ends both directions; blocked calls of other threads on it return. */
int gx_env_shutdown(struct gx_env *env, int fd);
/* Name or number and port to an address; may block on the name service. */
GX_MUST_CHECK int gx_env_resolve(struct gx_env *env, const char *host, const char *port,
				 struct gx_addr *ret_addr);

/* -- waiting for several things ------------------------------------------- */

/* Count of ready entries, 0 at the deadline. EINTR is not reported. */
GX_MUST_CHECK int gx_env_poll(struct gx_env *env, struct gx_pollfd *fds, size_t count,
			      int64_t deadline_ns);
/* An event is a descriptor that polls readable from _set until _clear; any thread may set it. */
GX_MUST_CHECK int gx_env_event_open(struct gx_env *env);
int gx_env_event_set(struct gx_env *env, int fd);
int gx_env_event_clear(struct gx_env *env, int fd);

/* -- threads -------------------------------------------------------------- */

/* Signals are blocked in the new thread. Each started thread is joined once. */
GX_MUST_CHECK int gx_env_thread_start(struct gx_env *env, struct gx_thread *t, const char *name,
				      gx_thread_fn fn, void *arg);
int gx_env_thread_join(struct gx_env *env, struct gx_thread *t);
GX_MUST_CHECK int gx_env_mutex_init(struct gx_env *env, struct gx_mutex *m);
GX_MUST_CHECK int gx_env_cond_init(struct gx_env *env, struct gx_cond *c);

static inline void gx_env_mutex_fini(struct gx_env *env, struct gx_mutex *m)
{
	env->ops->mutex_fini(env, m);
}

static inline void gx_env_mutex_lock(struct gx_env *env, struct gx_mutex *m)
{
	env->ops->mutex_lock(env, m);
}

static inline void gx_env_mutex_unlock(struct gx_env *env, struct gx_mutex *m)
{
	env->ops->mutex_unlock(env, m);
}

static inline void gx_env_cond_fini(struct gx_env *env, struct gx_cond *c)
{
	env->ops->cond_fini(env, c);
}

/* 0 when woken (perhaps spuriously), -ETIMEDOUT at the deadline. The mutex is held again. */
static inline int gx_env_cond_wait(struct gx_env *env, struct gx_cond *c, struct gx_mutex *m,
				   int64_t deadline_ns)
{
	return env->ops->cond_wait(env, c, m, deadline_ns);
}

static inline void gx_env_cond_signal(struct gx_env *env, struct gx_cond *c)
{
	env->ops->cond_signal(env, c);
}

static inline void gx_env_cond_broadcast(struct gx_env *env, struct gx_cond *c)
{
	env->ops->cond_broadcast(env, c);
}

#endif
