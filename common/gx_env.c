/*
 * gx_env.c - the calls of gx_env.h: ask for a fault, then do the operation.
 *
 * What both worlds promise alike stands here and not in the implementations:
 * reads and writes of files that go on until all is moved, and the shortened
 * socket transfers of a fault test.
 *
 * gx_env_event_set/_clear, _shutdown, _sleep_until and _thread_join have no
 * fault point: on the real machine they cannot fail with valid arguments, and
 * a wake-up that a test loses would only hang the test.
 */
#include "common/gx_env.h"

#define PWRITEV_IOV_MAX 64
#define SENDFILE_COPY_BYTES 16384u

/* Leaves the function with the error when a fault strikes. */
#define CHECK_FAULT(kind)                                                                          \
	do {                                                                                       \
		int fault_err = gx_fault_check(env, kind);                                         \
		if (GX_UNLIKELY(fault_err < 0))                                                    \
			return fault_err;                                                          \
	} while (0)

int gx_env_random(struct gx_env *env, void *buf, size_t bytes)
{
	CHECK_FAULT(GX_FAULT_RANDOM);
	return env->ops->random(env, buf, bytes);
}

int gx_env_sleep_until(struct gx_env *env, int64_t deadline_ns)
{
	return env->ops->sleep_until(env, deadline_ns);
}

/* -- files ---------------------------------------------------------------- */

int gx_env_open(struct gx_env *env, const char *path, int flags, mode_t mode)
{
	CHECK_FAULT(GX_FAULT_OPEN);
	return env->ops->open(env, path, flags, mode);
}

int gx_env_close(struct gx_env *env, int fd)
{
	int fault_err = gx_fault_check(env, GX_FAULT_CLOSE);
	int r = env->ops->close(env, fd);

	return fault_err < 0 ? fault_err : r;
}

ssize_t gx_env_pread(struct gx_env *env, int fd, void *buf, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	CHECK_FAULT(GX_FAULT_READ);
	while (done < bytes) {
		ssize_t r =
			env->ops->pread(env, fd, (char *)buf + done, bytes - done, offset + done);

		if (r < 0)
			return r;
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

int gx_env_pwrite(struct gx_env *env, int fd, const void *buf, size_t bytes, uint64_t offset)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = bytes};

	return gx_env_pwritev(env, fd, &iov, 1, offset);
}

int gx_env_pwritev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		   uint64_t offset)
{
	struct iovec left[PWRITEV_IOV_MAX];
	int first = 0;

	gx_assert(iov_count > 0 && iov_count <= PWRITEV_IOV_MAX);
	CHECK_FAULT(GX_FAULT_WRITE);
	memcpy(left, iov, (size_t)iov_count * sizeof(*iov));
	for (;;) {
		ssize_t r = env->ops->pwritev(env, fd, left + first, iov_count - first, offset);

		if (r < 0)
			return (int)r;
		offset += (uint64_t)r;
		if (r == 0 && left[first].iov_len > 0) /* a device that takes nothing, silently */
			return -EIO;
		while (first < iov_count && (size_t)r >= left[first].iov_len)
			r -= (ssize_t)left[first++].iov_len;
		if (first == iov_count)
			return 0;
		left[first].iov_base = (char *)left[first].iov_base + r;
		left[first].iov_len -= (size_t)r;
	}
}

int gx_env_fdatasync(struct gx_env *env, int fd)
{
	CHECK_FAULT(GX_FAULT_SYNC);
	return env->ops->fdatasync(env, fd);
}

int gx_env_fsync(struct gx_env *env, int fd)
{
	CHECK_FAULT(GX_FAULT_SYNC);
	return env->ops->fsync(env, fd);
}

int gx_env_ftruncate(struct gx_env *env, int fd, uint64_t bytes)
{
	CHECK_FAULT(GX_FAULT_TRUNCATE);
	return env->ops->ftruncate(env, fd, bytes);
}

int gx_env_fallocate(struct gx_env *env, int fd, int mode, uint64_t offset, uint64_t bytes)
{
	CHECK_FAULT(GX_FAULT_ALLOCATE);
	return env->ops->fallocate(env, fd, mode, offset, bytes);
}

int gx_env_seek(struct gx_env *env, int fd, uint64_t offset, bool hole, uint64_t *ret_offset)
{
	CHECK_FAULT(GX_FAULT_READ);
	return env->ops->seek(env, fd, offset, hole, ret_offset);
}

int gx_env_fstat(struct gx_env *env, int fd, struct stat *ret_st)
{
	CHECK_FAULT(GX_FAULT_STAT);
	return env->ops->fstat(env, fd, ret_st);
}

int gx_env_stat(struct gx_env *env, const char *path, struct stat *ret_st)
{
	CHECK_FAULT(GX_FAULT_STAT);
	return env->ops->stat(env, path, ret_st);
}

int gx_env_rename(struct gx_env *env, const char *from, const char *to)
{
	CHECK_FAULT(GX_FAULT_RENAME);
	return env->ops->rename(env, from, to);
}

int gx_env_unlink(struct gx_env *env, const char *path)
{
	CHECK_FAULT(GX_FAULT_UNLINK);
	return env->ops->unlink(env, path);
}

int gx_env_mkdir(struct gx_env *env, const char *path, mode_t mode)
{
	CHECK_FAULT(GX_FAULT_MKDIR);
	return env->ops->mkdir(env, path, mode);
}

int gx_env_rmdir(struct gx_env *env, const char *path)
{
	CHECK_FAULT(GX_FAULT_UNLINK);
	return env->ops->rmdir(env, path);
}

int gx_env_sync_dir(struct gx_env *env, const char *path)
{
	CHECK_FAULT(GX_FAULT_SYNC);
	return env->ops->sync_dir(env, path);
}

int gx_env_list_dir(struct gx_env *env, const char *path, gx_dirent_fn fn, void *arg)
{
	CHECK_FAULT(GX_FAULT_LIST);
	return env->ops->list_dir(env, path, fn, arg);
}

int gx_env_lock_file(struct gx_env *env, int fd)
{
	CHECK_FAULT(GX_FAULT_LOCK);
	return env->ops->lock_file(env, fd);
}

int gx_env_space(struct gx_env *env, const char *path, uint64_t *ret_bytes, uint64_t *ret_free)
{
	CHECK_FAULT(GX_FAULT_STAT);
	return env->ops->space(env, path, ret_bytes, ret_free);
}

/* -- stream sockets ------------------------------------------------------- */

int gx_env_listen(struct gx_env *env, const struct gx_addr *addr, int backlog)
{
	CHECK_FAULT(GX_FAULT_LISTEN);
	return env->ops->listen(env, addr, backlog);
}

int gx_env_accept(struct gx_env *env, int fd)
{
	CHECK_FAULT(GX_FAULT_ACCEPT);
	return env->ops->accept(env, fd);
}

int gx_env_connect(struct gx_env *env, const struct gx_addr *addr, int64_t deadline_ns)
{
	CHECK_FAULT(GX_FAULT_CONNECT);
	return env->ops->connect(env, addr, deadline_ns);
}

int gx_env_sock_name(struct gx_env *env, int fd, struct gx_addr *ret_addr)
{
	CHECK_FAULT(GX_FAULT_NAME);
	return env->ops->sock_name(env, fd, ret_addr);
}

int gx_env_peer_name(struct gx_env *env, int fd, struct gx_addr *ret_addr)
{
	CHECK_FAULT(GX_FAULT_NAME);
	return env->ops->peer_name(env, fd, ret_addr);
}

typedef ssize_t (*transfer_fn)(struct gx_env *, int fd, const struct iovec *iov, int iov_count,
			       int64_t deadline_ns);

/* The way with a fault attached: it may fail, or move fewer bytes than it could. */
static ssize_t transfer_faulty(struct gx_env *env, enum gx_fault_kind kind, transfer_fn fn, int fd,
			       const struct iovec *iov, int iov_count, int64_t deadline_ns)
{
	size_t short_bytes = env->fault->short_bytes;
	struct iovec cut;

	CHECK_FAULT(kind);
	if (short_bytes == 0)
		return fn(env, fd, iov, iov_count, deadline_ns);
	while (iov_count > 1 && iov->iov_len == 0) {
		iov++;
		iov_count--;
	}
	cut = *iov;
	cut.iov_len = GX_MIN(cut.iov_len, short_bytes);
	return fn(env, fd, &cut, 1, deadline_ns);
}

ssize_t gx_env_readv(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		     int64_t deadline_ns)
{
	gx_assert(iov_count > 0);
	if (GX_UNLIKELY(env->fault != NULL))
		return transfer_faulty(env, GX_FAULT_RECV, env->ops->readv, fd, iov, iov_count,
				       deadline_ns);
	return env->ops->readv(env, fd, iov, iov_count, deadline_ns);
}

ssize_t gx_env_writev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		      int64_t deadline_ns)
{
	gx_assert(iov_count > 0);
	if (GX_UNLIKELY(env->fault != NULL))
		return transfer_faulty(env, GX_FAULT_SEND, env->ops->writev, fd, iov, iov_count,
				       deadline_ns);
	return env->ops->writev(env, fd, iov, iov_count, deadline_ns);
}

/* What both worlds can do: through memory. */
static ssize_t sendfile_copying(struct gx_env *env, int fd, int file, uint64_t offset, size_t bytes,
				int64_t deadline_ns)
{
	unsigned char space[SENDFILE_COPY_BYTES];
	ssize_t n = gx_env_pread(env, file, space, GX_MIN(bytes, sizeof(space)), offset);
	struct iovec iov = {space, (size_t)GX_MAX(n, 0)};

	return n <= 0 ? n : gx_env_writev(env, fd, &iov, 1, deadline_ns);
}

ssize_t gx_env_sendfile(struct gx_env *env, int fd, int file, uint64_t offset, size_t bytes,
			int64_t deadline_ns)
{
	gx_assert(bytes > 0);
	/* A fault test sees a read and a send. */
	if (GX_UNLIKELY(env->fault != NULL) || !env->ops->sendfile)
		return sendfile_copying(env, fd, file, offset, bytes, deadline_ns);
	return env->ops->sendfile(env, fd, file, offset, bytes, deadline_ns);
}

ssize_t gx_env_send_fd(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		       int passed, int64_t deadline_ns)
{
	gx_assert(iov_count > 0 && passed >= 0);
	CHECK_FAULT(GX_FAULT_SEND);
	if (!env->ops->send_fd)
		return -EOPNOTSUPP;
	return env->ops->send_fd(env, fd, iov, iov_count, passed, deadline_ns);
}

ssize_t gx_env_recv_fd(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		       int *ret_passed, int64_t deadline_ns)
{
	gx_assert(iov_count > 0);
	CHECK_FAULT(GX_FAULT_RECV);
	if (!env->ops->recv_fd)
		return -EOPNOTSUPP;
	return env->ops->recv_fd(env, fd, iov, iov_count, ret_passed, deadline_ns);
}

int gx_env_shutdown(struct gx_env *env, int fd)
{
	return env->ops->shutdown(env, fd);
}

int gx_env_resolve(struct gx_env *env, const char *host, const char *port, struct gx_addr *ret_addr)
{
	CHECK_FAULT(GX_FAULT_RESOLVE);
	return env->ops->resolve(env, host, port, ret_addr);
}

/* -- waiting for several things ------------------------------------------- */

int gx_env_poll(struct gx_env *env, struct gx_pollfd *fds, size_t count, int64_t deadline_ns)
{
	CHECK_FAULT(GX_FAULT_POLL);
	return env->ops->poll(env, fds, count, deadline_ns);
}

int gx_env_event_open(struct gx_env *env)
{
	CHECK_FAULT(GX_FAULT_EVENT);
	return env->ops->event_open(env);
}

int gx_env_event_set(struct gx_env *env, int fd)
{
	return env->ops->event_set(env, fd);
}

int gx_env_event_clear(struct gx_env *env, int fd)
{
	return env->ops->event_clear(env, fd);
}

/* -- threads -------------------------------------------------------------- */

int gx_env_thread_start(struct gx_env *env, struct gx_thread *t, const char *name, gx_thread_fn fn,
			void *arg)
{
	CHECK_FAULT(GX_FAULT_THREAD);
	return env->ops->thread_start(env, t, name, fn, arg);
}

int gx_env_thread_join(struct gx_env *env, struct gx_thread *t)
{
	return env->ops->thread_join(env, t);
}

int gx_env_mutex_init(struct gx_env *env, struct gx_mutex *m)
{
	CHECK_FAULT(GX_FAULT_MUTEX);
	return env->ops->mutex_init(env, m);
}

int gx_env_cond_init(struct gx_env *env, struct gx_cond *c)
{
	CHECK_FAULT(GX_FAULT_MUTEX);
	return env->ops->cond_init(env, c);
}
