/*
 * gx_env_posix.c - gx_env on the real machine.
 *
 * Socket deadlines. A call that finds data or room at once, or soon, must cost
 * exactly one system call, so a socket is left blocking and born with receive
 * and send time-outs of SOCK_TICK_MS. A transfer whose deadline is further
 * away than one tick simply blocks in the kernel; only when that comes back
 * empty-handed (a tick has passed, or a loop has made the descriptor
 * non-blocking) do we poll() for exactly the time that is left. A deadline
 * nearer than a tick takes the poll() way from the start; telling the two
 * apart reads the coarse clock, a load from the vdso page. Rejected: poll()
 * before each transfer (doubles the calls), setting SO_RCVTIMEO per call (the
 * same), non-blocking sockets (each wait is then two calls more).
 */
#include "common/gx_env.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define UNIX_SNDBUF_BYTES (1024 * 1024) /* the kernel takes it twice, for its own costs */
#define SOCK_TICK_MS 100
/* The coarse clock is behind by up to a scheduler tick (10 ms at 100 Hz). */
#define NEAR_DEADLINE_NS ((SOCK_TICK_MS + 20) * GX_NSEC_PER_MSEC)
#define POLL_STACK_COUNT 64u
#define SENDFILE_BYTES (1024u * 1024)
#define SENDFILE_NEAR_BYTES 4096u
/* Of a thread: a server may have a thousand, and no frame of ours is over 100 KiB. */
#define STACK_BYTES (1024u * 1024)
#define IOV_COUNT_MAX 1024 /* the kernel's UIO_MAXIOV; more would be EMSGSIZE */

/* The call again while a signal interrupts it; the value, or the negative errno. */
#define RESTART(call)                                                                              \
	({                                                                                         \
		__typeof__(call) restart_r_;                                                       \
		do {                                                                               \
			restart_r_ = (call);                                                       \
		} while (restart_r_ < 0 && errno == EINTR);                                        \
		restart_r_ < 0 ? (__typeof__(call))gx_errno() : restart_r_;                        \
	})

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * GX_NSEC_PER_SEC + ts.tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / GX_NSEC_PER_SEC, .tv_nsec = ns % GX_NSEC_PER_SEC};
}

static int64_t px_now_ns(struct gx_env *env GX_UNUSED)
{
	int64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	return now_ns > 0 ? now_ns : 1;
}

static int64_t px_cpu_ns(struct gx_env *env GX_UNUSED)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static int64_t px_wall_ns(struct gx_env *env GX_UNUSED)
{
	return clock_ns(CLOCK_REALTIME);
}

static int px_random(struct gx_env *env GX_UNUSED, void *buf, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t r = RESTART(getrandom((char *)buf + done, bytes - done, 0));

		if (r < 0)
			return (int)r;
		done += (size_t)r;
	}
	return 0;
}

static int px_sleep_until(struct gx_env *env GX_UNUSED, int64_t deadline_ns)
{
	struct timespec ts = timespec_of(deadline_ns);
	int err;

	do {
		err = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	} while (err == EINTR);
	return -err;
}

/* -- files ---------------------------------------------------------------- */

static int px_open(struct gx_env *env GX_UNUSED, const char *path, int flags, mode_t mode)
{
	return RESTART(open(path, flags | O_CLOEXEC, mode));
}

static int px_close(struct gx_env *env GX_UNUSED, int fd)
{
	/* Linux has released the descriptor even then; closing again could hit another thread's. */
	if (close(fd) < 0 && errno != EINTR)
		return gx_errno();
	return 0;
}

static ssize_t px_pread(struct gx_env *env GX_UNUSED, int fd, void *buf, size_t bytes,
			uint64_t offset)
{
	if (offset > INT64_MAX)
		return -EINVAL;
	return RESTART(pread(fd, buf, bytes, (off_t)offset));
}

static ssize_t px_pwritev(struct gx_env *env GX_UNUSED, int fd, const struct iovec *iov,
			  int iov_count, uint64_t offset)
{
	if (offset > INT64_MAX)
		return -EINVAL;
	return RESTART(pwritev(fd, iov, iov_count, (off_t)offset));
}

static int px_fdatasync(struct gx_env *env GX_UNUSED, int fd)
{
	return RESTART(fdatasync(fd));
}

static int px_fsync(struct gx_env *env GX_UNUSED, int fd)
{
	return RESTART(fsync(fd));
}

static int px_ftruncate(struct gx_env *env GX_UNUSED, int fd, uint64_t bytes)
{
	if (bytes > INT64_MAX)
		return -EFBIG;
	return RESTART(ftruncate(fd, (off_t)bytes));
}

static int px_fallocate(struct gx_env *env GX_UNUSED, int fd, int mode, uint64_t offset,
			uint64_t bytes)
{
	if (offset > INT64_MAX || bytes > INT64_MAX)
		return -EFBIG;
	return RESTART(fallocate(fd, mode, (off_t)offset, (off_t)bytes));
}

static int px_seek(struct gx_env *env GX_UNUSED, int fd, uint64_t offset, bool hole,
		   uint64_t *ret_offset)
{
	off_t r;

	if (offset > INT64_MAX)
		return -ENXIO;
	r = lseek(fd, (off_t)offset, hole ? SEEK_HOLE : SEEK_DATA);
	if (r < 0)
		return gx_errno();
	*ret_offset = (uint64_t)r;
	return 0;
}

static int px_fstat(struct gx_env *env GX_UNUSED, int fd, struct stat *ret_st)
{
	return fstat(fd, ret_st) < 0 ? gx_errno() : 0;
}

static int px_stat(struct gx_env *env GX_UNUSED, const char *path, struct stat *ret_st)
{
	return stat(path, ret_st) < 0 ? gx_errno() : 0;
}

static int px_rename(struct gx_env *env GX_UNUSED, const char *from, const char *to)
{
	return rename(from, to) < 0 ? gx_errno() : 0;
}

static int px_unlink(struct gx_env *env GX_UNUSED, const char *path)
{
	return unlink(path) < 0 ? gx_errno() : 0;
}

static int px_mkdir(struct gx_env *env GX_UNUSED, const char *path, mode_t mode)
{
	return mkdir(path, mode) < 0 ? gx_errno() : 0;
}

static int px_rmdir(struct gx_env *env GX_UNUSED, const char *path)
{
	return rmdir(path) < 0 ? gx_errno() : 0;
}

static int px_sync_dir(struct gx_env *env, const char *path)
{
	int fd = px_open(env, path, O_RDONLY | O_DIRECTORY, 0);
	int r;

	if (fd < 0)
		return fd;
	r = px_fsync(env, fd);
	px_close(env, fd);
	return r;
}

static int px_list_dir(struct gx_env *env, const char *path, gx_dirent_fn fn, void *arg)
{
	int fd = px_open(env, path, O_RDONLY | O_DIRECTORY, 0);
	int r = 0;
	DIR *dir;

	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (dir == NULL) {
		r = gx_errno();
		px_close(env, fd);
		return r;
	}
	while (r == 0) {
		const struct dirent *entry;

		errno = 0;
		entry = readdir(dir);
		if (entry == NULL) {
			r = errno > 0 ? gx_errno() : 0;
			break;
		}
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = fn(arg, entry->d_name);
	}
	closedir(dir);
	return r;
}

static int px_lock_file(struct gx_env *env GX_UNUSED, int fd)
{
	return RESTART(flock(fd, LOCK_EX | LOCK_NB));
}

static int px_space(struct gx_env *env GX_UNUSED, const char *path, uint64_t *ret_bytes,
		    uint64_t *ret_free)
{
	struct statvfs st;

	if (statvfs(path, &st) < 0)
		return gx_errno();
	*ret_bytes = (uint64_t)st.f_blocks * st.f_frsize;
	*ret_free = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

/* -- waiting for several things ------------------------------------------- */

/* ppoll until an absolute deadline; 0 when it has passed. */
static int poll_until(struct pollfd *fds, size_t count, int64_t deadline_ns)
{
	for (;;) {
		struct timespec ts = {0};
		int r;

		if (deadline_ns != GX_NOWAIT && deadline_ns != GX_FOREVER) {
			int64_t left_ns = deadline_ns - clock_ns(CLOCK_MONOTONIC);

			ts = timespec_of(GX_MAX(left_ns, 0));
		}
		r = ppoll(fds, count, deadline_ns == GX_FOREVER ? NULL : &ts, NULL);
		if (r >= 0)
			return r;
		if (errno != EINTR)
			return gx_errno();
	}
}

static int px_poll(struct gx_env *env GX_UNUSED, struct gx_pollfd *fds, size_t count,
		   int64_t deadline_ns)
{
	struct pollfd stack[POLL_STACK_COUNT];
	struct pollfd *native = stack;
	GX_AUTOFREE struct pollfd *heap = NULL;
	int r;

	if (count > POLL_STACK_COUNT) {
		heap = calloc(count, sizeof(*heap));
		if (heap == NULL)
			return -ENOMEM;
		native = heap;
	}
	for (size_t i = 0; i < count; i++)
		native[i] = (struct pollfd){
			.fd = fds[i].fd,
			.events = (short)((fds[i].events & GX_READABLE ? POLLIN : 0) |
					  (fds[i].events & GX_WRITABLE ? POLLOUT : 0))};
	r = poll_until(native, count, deadline_ns);
	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++) {
		short got = native[i].revents;

		if (got & POLLNVAL)
			return -EBADF;
		fds[i].revents = (got & (POLLIN | POLLERR | POLLHUP) ? GX_READABLE : 0) |
				 (got & POLLOUT ? GX_WRITABLE : 0);
		/* Whoever waits to write learns of the error by writing. */
		if (got & (POLLERR | POLLHUP))
			fds[i].revents |= fds[i].events & GX_WRITABLE;
	}
	return r;
}

static int px_event_open(struct gx_env *env GX_UNUSED)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return fd < 0 ? gx_errno() : fd;
}

static int px_event_set(struct gx_env *env GX_UNUSED, int fd)
{
	uint64_t one = 1;
	ssize_t r = RESTART(write(fd, &one, sizeof(one)));

	/* EAGAIN: the counter is full, so it is set. */
	return r < 0 && r != -EAGAIN ? (int)r : 0;
}

static int px_event_clear(struct gx_env *env GX_UNUSED, int fd)
{
	uint64_t count;
	ssize_t r = RESTART(read(fd, &count, sizeof(count)));

	return r < 0 && r != -EAGAIN ? (int)r : 0;
}

/* -- stream sockets ------------------------------------------------------- */

static int set_option(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) < 0 ? gx_errno() : 0;
}

static int set_time_out(int fd, int name, int64_t ns)
{
	struct timeval tv = {.tv_sec = ns / GX_NSEC_PER_SEC,
			     .tv_usec = ns % GX_NSEC_PER_SEC / GX_NSEC_PER_USEC};

	return setsockopt(fd, SOL_SOCKET, name, &tv, sizeof(tv)) < 0 ? gx_errno() : 0;
}

/* What every connected socket gets before anybody sees it. */
static int prepare_connected(int fd, int family)
{
	int r = set_time_out(fd, SO_RCVTIMEO, SOCK_TICK_MS * GX_NSEC_PER_MSEC);

	if (r == 0)
		r = set_time_out(fd, SO_SNDTIMEO, SOCK_TICK_MS * GX_NSEC_PER_MSEC);
	if (r == 0 && family != AF_UNIX)
		r = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (r == 0 && family != AF_UNIX)
		r = set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	/* Who waits for an answer learns within seconds that the other machine lost its power. */
	if (r == 0 && family != AF_UNIX)
		r = set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
	if (r == 0 && family != AF_UNIX)
		r = set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
	if (r == 0 && family != AF_UNIX)
		r = set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
	/* The same for bytes that are never acknowledged, which keep the probes above from going.
	 */
	if (r == 0 && family != AF_UNIX)
		r = set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 10 * 1000);
	return r;
}

/*
 * A name as the kernel tells it. A v4 peer of a dual-stack listener is turned
 * back into plain v4, so that both ends of a connection name it alike.
 */
static void addr_from_kernel(const struct sockaddr_storage *sa, socklen_t sa_bytes,
			     struct gx_addr *ret_addr)
{
	struct gx_addr addr = {.kind = sa->ss_family == AF_UNIX ? GX_ADDR_UNIX : GX_ADDR_INET,
			       .sa_bytes = sa_bytes,
			       .sa = *sa};
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
	struct sockaddr_in *in = (struct sockaddr_in *)&addr.sa;

	if (sa->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memset(&addr.sa, 0, sizeof(addr.sa));
		in->sin_family = AF_INET;
		in->sin_port = in6->sin6_port;
		memcpy(&in->sin_addr, in6->sin6_addr.s6_addr + 12, 4);
		addr.sa_bytes = sizeof(*in);
	}
	*ret_addr = addr;
}

typedef int (*name_fn)(int fd, struct sockaddr *sa, socklen_t *bytes);

static int name_of(int fd, name_fn fn, struct gx_addr *ret_addr)
{
	struct sockaddr_storage sa = {0};
	socklen_t bytes = sizeof(sa);

	if (fn(fd, (struct sockaddr *)&sa, &bytes) < 0)
		return gx_errno();
	addr_from_kernel(&sa, bytes, ret_addr);
	return 0;
}

static int px_sock_name(struct gx_env *env GX_UNUSED, int fd, struct gx_addr *ret_addr)
{
	return name_of(fd, getsockname, ret_addr);
}

static int px_peer_name(struct gx_env *env GX_UNUSED, int fd, struct gx_addr *ret_addr)
{
	return name_of(fd, getpeername, ret_addr);
}

static int open_socket(const struct gx_addr *addr, int flags)
{
	int fd;

	if (addr->kind != GX_ADDR_INET && addr->kind != GX_ADDR_UNIX)
		return -EAFNOSUPPORT;
	fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	return fd < 0 ? gx_errno() : fd;
}

static int bind_to(int fd, const struct gx_addr *addr)
{
	return bind(fd, (const struct sockaddr *)&addr->sa, addr->sa_bytes) < 0 ? gx_errno() : 0;
}

/* Removes a socket file on which nobody accepts; -EADDRINUSE for anything else. */
static int remove_stale(const struct gx_addr *addr)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&addr->sa;
	struct stat st;
	int fd, err;

	/* connect() is refused by a regular file, too, and that one is somebody's data. */
	if (lstat(un->sun_path, &st) < 0)
		return gx_errno();
	if (!S_ISSOCK(st.st_mode))
		return -EADDRINUSE;
	fd = open_socket(addr, SOCK_NONBLOCK);
	if (fd < 0)
		return fd;
	err = connect(fd, (const struct sockaddr *)&addr->sa, addr->sa_bytes) < 0 ? errno : 0;
	close(fd);
	if (err != ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(un->sun_path) < 0 ? gx_errno() : 0;
}

/*
 * Two daemons that start on one path in the same instant may both find the old
 * file stale; they are kept apart by the lock on their state directory.
 */
static int listen_unix(int fd, const struct gx_addr *addr, int backlog)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&addr->sa;
	int r;

	if (un->sun_path[0] != '/')
		return -EINVAL;
	/* The file takes over the mode of the socket, so it is never open to more than that. */
	if (fchmod(fd, 0600) < 0)
		return gx_errno();
	r = bind_to(fd, addr);
	if (r == -EADDRINUSE) {
		r = remove_stale(addr);
		if (r == 0)
			r = bind_to(fd, addr);
	}
	if (r < 0)
		return r;
	/* Again, because the umask may have taken away from our own rights. */
	if (chmod(un->sun_path, 0600) < 0 || listen(fd, backlog) < 0) {
		r = gx_errno();
		unlink(un->sun_path);
	}
	return r;
}

static int listen_inet(int fd, const struct gx_addr *addr, int backlog)
{
	int r = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);

	/* "[::]" takes IPv4, too, whatever the machine's default. */
	if (r == 0 && addr->sa.ss_family == AF_INET6)
		r = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	if (r == 0)
		r = bind_to(fd, addr);
	if (r == 0 && listen(fd, backlog) < 0)
		r = gx_errno();
	return r;
}

static int px_listen(struct gx_env *env GX_UNUSED, const struct gx_addr *addr, int backlog)
{
	int fd = open_socket(addr, SOCK_NONBLOCK);
	int r;

	if (fd < 0)
		return fd;
	r = addr->kind == GX_ADDR_UNIX ? listen_unix(fd, addr, backlog)
				       : listen_inet(fd, addr, backlog);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

static int px_accept(struct gx_env *env GX_UNUSED, int fd)
{
	struct sockaddr_storage sa = {0};
	socklen_t bytes;
	int conn, r;

	/* A connection that died in the queue is nobody's error: look at the next one. */
	do {
		bytes = sizeof(sa);
		conn = accept4(fd, (struct sockaddr *)&sa, &bytes, SOCK_CLOEXEC);
	} while (conn < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO));
	if (conn < 0)
		return gx_errno();
	r = prepare_connected(conn, sa.ss_family);
	if (r < 0) {
		close(conn);
		return r;
	}
	return conn;
}

/*
 * A unix connect waits only for room in the backlog, and only a blocking one
 * can: so the send time-out, which bounds that wait, carries the deadline.
 */
static int connect_unix(int fd, const struct gx_addr *addr, int64_t deadline_ns)
{
	for (;;) {
		if (deadline_ns == GX_NOWAIT) {
			if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
				return gx_errno();
		} else if (deadline_ns != GX_FOREVER) {
			int64_t left_ns = deadline_ns - clock_ns(CLOCK_MONOTONIC);
			/* 0 would mean to wait for ever. */
			int r = set_time_out(fd, SO_SNDTIMEO, GX_MAX(left_ns, GX_NSEC_PER_MSEC));

			if (r < 0)
				return r;
		}
		if (connect(fd, (const struct sockaddr *)&addr->sa, addr->sa_bytes) == 0)
			return 0;
		if (errno == EAGAIN)
			return deadline_ns == GX_NOWAIT ? -EAGAIN : -ETIMEDOUT;
		if (errno != EINTR)
			return gx_errno();
	}
}

/* Loopback may connect a socket to itself when the port is free and ephemeral. */
static bool connected_to_itself(int fd)
{
	struct gx_addr self, peer;

	return name_of(fd, getsockname, &self) == 0 && name_of(fd, getpeername, &peer) == 0 &&
	       gx_addr_equal(&self, &peer);
}

static int connect_inet(int fd, const struct gx_addr *addr, int64_t deadline_ns)
{
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};
	int err = 0;
	socklen_t bytes = sizeof(err);

	if (connect(fd, (const struct sockaddr *)&addr->sa, addr->sa_bytes) < 0) {
		int r;

		if (errno != EINPROGRESS)
			return gx_errno();
		r = poll_until(&pfd, 1, deadline_ns);
		if (r < 0)
			return r;
		if (r == 0)
			return deadline_ns == GX_NOWAIT ? -EAGAIN : -ETIMEDOUT;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &bytes) < 0)
			return gx_errno();
		if (err != 0)
			return -err;
	}
	return connected_to_itself(fd) ? -ECONNREFUSED : 0;
}

static int px_connect(struct gx_env *env GX_UNUSED, const struct gx_addr *addr, int64_t deadline_ns)
{
	bool is_unix = addr->kind == GX_ADDR_UNIX;
	int fd = open_socket(addr, is_unix ? 0 : SOCK_NONBLOCK);
	int r;

	if (fd < 0)
		return fd;
	/* TCP finds its own; without it half a megabyte is sent only as fast as it is read. */
	if (is_unix)
		GX_IGNORE(set_option(fd, SOL_SOCKET, SO_SNDBUF, UNIX_SNDBUF_BYTES));
	r = is_unix ? connect_unix(fd, addr, deadline_ns) : connect_inet(fd, addr, deadline_ns);
	/* Back to blocking: the transfers below rely on it for speed, not for correctness. */
	if (r == 0 && fcntl(fd, F_SETFL, 0) < 0)
		r = gx_errno();
	if (r == 0)
		r = prepare_connected(fd, addr->sa.ss_family);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* One recv or send; a plain call is a little cheaper than one with a message header. */
static inline ssize_t transfer_once(int fd, struct msghdr *msg, bool sending, int flags)
{
	const struct iovec *iov = msg->msg_iov;

	if (GX_LIKELY(msg->msg_iovlen == 1 && !msg->msg_control))
		return sending ? send(fd, iov->iov_base, iov->iov_len, flags)
			       : recv(fd, iov->iov_base, iov->iov_len, flags);
	return sending ? sendmsg(fd, msg, flags) : recvmsg(fd, msg, flags | MSG_CMSG_CLOEXEC);
}

static ssize_t transfer_message(int fd, struct msghdr *msg, bool sending, int64_t deadline_ns)
{
	struct pollfd pfd = {.fd = fd, .events = sending ? POLLOUT : POLLIN};
	int flags = MSG_NOSIGNAL;

	if (deadline_ns != GX_FOREVER &&
	    (deadline_ns == GX_NOWAIT ||
	     deadline_ns - clock_ns(CLOCK_MONOTONIC_COARSE) < NEAR_DEADLINE_NS))
		flags |= MSG_DONTWAIT;
	for (;;) {
		ssize_t r = transfer_once(fd, msg, sending, flags);

		if (GX_LIKELY(r >= 0))
			return r;
		/* Not simply again after EINTR: frequent signals would move the deadline on and on.
		 */
		if ((errno != EAGAIN && errno != EINTR) || deadline_ns == GX_NOWAIT)
			return gx_errno();
		r = poll_until(&pfd, 1, deadline_ns);
		if (r < 0)
			return r;
		if (r == 0)
			return -ETIMEDOUT;
		/* Ready just now, but another thread may be quicker: do not block on it. */
		flags |= MSG_DONTWAIT;
	}
}

static ssize_t transfer(int fd, const struct iovec *iov, int iov_count, bool sending,
			int64_t deadline_ns)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov,
			     .msg_iovlen = (size_t)GX_MIN(iov_count, IOV_COUNT_MAX)};

	return transfer_message(fd, &msg, sending, deadline_ns);
}

static ssize_t px_readv(struct gx_env *env GX_UNUSED, int fd, const struct iovec *iov,
			int iov_count, int64_t deadline_ns)
{
	return transfer(fd, iov, iov_count, false, deadline_ns);
}

static ssize_t px_writev(struct gx_env *env GX_UNUSED, int fd, const struct iovec *iov,
			 int iov_count, int64_t deadline_ns)
{
	return transfer(fd, iov, iov_count, true, deadline_ns);
}

/*
 * sendfile(2) has no flag to keep it from blocking. A socket that polls writable takes a little;
 * more than that is tried only while a tick more or less does not matter. A large count would be
 * many ticks, one after the other.
 */
static ssize_t px_sendfile(struct gx_env *env GX_UNUSED, int fd, int file, uint64_t offset,
			   size_t bytes, int64_t deadline_ns)
{
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};
	bool near = deadline_ns != GX_FOREVER &&
		    (deadline_ns == GX_NOWAIT ||
		     deadline_ns - clock_ns(CLOCK_MONOTONIC_COARSE) < NEAR_DEADLINE_NS);

	if (offset > INT64_MAX)
		return -EINVAL;
	for (;;) {
		off_t at = (off_t)offset;
		ssize_t r = 1;

		if (near)
			r = poll_until(&pfd, 1, deadline_ns);
		if (r > 0)
			r = sendfile(fd, file, &at,
				     GX_MIN(bytes, near ? SENDFILE_NEAR_BYTES : SENDFILE_BYTES));
		else if (r == 0)
			return deadline_ns == GX_NOWAIT ? -EAGAIN : -ETIMEDOUT;
		else
			return r;
		if (r >= 0)
			return r;
		if ((errno != EAGAIN && errno != EINTR) || deadline_ns == GX_NOWAIT)
			return gx_errno();
		near = true;
	}
}

/*
 * A control message with room for one descriptor. Where it is received the room is told as
 * CMSG_LEN: in CMSG_SPACE, with its padding, the kernel finds room for two.
 */
union fd_control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static ssize_t px_send_fd(struct gx_env *env GX_UNUSED, int fd, const struct iovec *iov,
			  int iov_count, int passed, int64_t deadline_ns)
{
	union fd_control control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
					       .cmsg_level = SOL_SOCKET,
					       .cmsg_type = SCM_RIGHTS}};
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov,
			     .msg_iovlen = (size_t)GX_MIN(iov_count, IOV_COUNT_MAX),
			     .msg_control = &control,
			     .msg_controllen = sizeof(control.bytes)};

	memcpy(CMSG_DATA(&control.header), &passed, sizeof(passed));
	return transfer_message(fd, &msg, true, deadline_ns);
}

static ssize_t px_recv_fd(struct gx_env *env GX_UNUSED, int fd, const struct iovec *iov,
			  int iov_count, int *ret_passed, int64_t deadline_ns)
{
	union fd_control control;
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov,
			     .msg_iovlen = (size_t)GX_MIN(iov_count, IOV_COUNT_MAX),
			     .msg_control = &control,
			     .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t n = transfer_message(fd, &msg, false, deadline_ns);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	*ret_passed = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_passed, CMSG_DATA(c), sizeof(*ret_passed));
	return n;
}

static int px_shutdown(struct gx_env *env GX_UNUSED, int fd)
{
	/* Not connected any more is what was asked for. */
	return shutdown(fd, SHUT_RDWR) < 0 && errno != ENOTCONN ? gx_errno() : 0;
}

static int px_resolve(struct gx_env *env GX_UNUSED, const char *host, const char *port,
		      struct gx_addr *ret_addr)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *list = NULL;
	const struct addrinfo *best;
	struct gx_addr addr = {.kind = GX_ADDR_INET};
	int code;

	/* Numbers never ask the name service, which may be slow or down. */
	code = getaddrinfo(host, port, &hints, &list);
	if (code == EAI_NONAME) {
		hints.ai_flags = AI_NUMERICSERV;
		code = getaddrinfo(host, port, &hints, &list);
	}
	if (code != 0)
		return code == EAI_SYSTEM   ? gx_errno()
		       : code == EAI_MEMORY ? -ENOMEM
					    : -EHOSTUNREACH;
	/* IPv4 first: "localhost" must find a daemon that listens on 127.0.0.1. */
	for (best = list; best != NULL && best->ai_family != AF_INET; best = best->ai_next)
		;
	if (best == NULL)
		best = list;
	memcpy(&addr.sa, best->ai_addr, best->ai_addrlen);
	addr.sa_bytes = best->ai_addrlen;
	freeaddrinfo(list);
	*ret_addr = addr;
	return 0;
}

/* -- threads -------------------------------------------------------------- */

/* For calls that fail only when they are misused. */
static void must(int err)
{
	gx_assert(err == 0);
}

struct thread_start {
	gx_thread_fn fn;
	void *arg;
	char name[16]; /* the kernel's limit */
};

static void *thread_main(void *arg)
{
	struct thread_start start = *(struct thread_start *)arg;

	free(arg);
	pthread_setname_np(pthread_self(), start.name);
	start.fn(start.arg);
	return NULL;
}

static int px_thread_start(struct gx_env *env GX_UNUSED, struct gx_thread *t, const char *name,
			   gx_thread_fn fn, void *arg)
{
	GX_AUTOFREE struct thread_start *start = calloc(1, sizeof(*start));
	pthread_attr_t attr;
	sigset_t all, old;
	int err;

	if (start == NULL)
		return -ENOMEM;
	err = pthread_attr_init(&attr);
	if (err != 0)
		return -err;
	must(pthread_attr_setstacksize(&attr, STACK_BYTES));
	start->fn = fn;
	start->arg = arg;
	memcpy(start->name, name, strnlen(name, sizeof(start->name) - 1));
	/* The new thread inherits the mask: no signal ever finds it. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&t->posix, &attr, thread_main, start);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err != 0)
		return -err;
	(void)GX_TAKE(start);
	return 0;
}

static int px_thread_join(struct gx_env *env GX_UNUSED, struct gx_thread *t)
{
	return -pthread_join(t->posix, NULL);
}

static int px_mutex_init(struct gx_env *env GX_UNUSED, struct gx_mutex *m)
{
	m->sim = NULL;
	return -pthread_mutex_init(&m->posix, NULL);
}

static void px_mutex_fini(struct gx_env *env GX_UNUSED, struct gx_mutex *m)
{
	must(pthread_mutex_destroy(&m->posix));
}

static void px_mutex_lock(struct gx_env *env GX_UNUSED, struct gx_mutex *m)
{
	must(pthread_mutex_lock(&m->posix));
}

static void px_mutex_unlock(struct gx_env *env GX_UNUSED, struct gx_mutex *m)
{
	must(pthread_mutex_unlock(&m->posix));
}

static int px_cond_init(struct gx_env *env GX_UNUSED, struct gx_cond *c)
{
	pthread_condattr_t attr;
	int err = pthread_condattr_init(&attr);

	if (err != 0)
		return -err;
	c->sim = NULL;
	err = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (err == 0)
		err = pthread_cond_init(&c->posix, &attr);
	pthread_condattr_destroy(&attr);
	return -err;
}

static void px_cond_fini(struct gx_env *env GX_UNUSED, struct gx_cond *c)
{
	must(pthread_cond_destroy(&c->posix));
}

static int px_cond_wait(struct gx_env *env GX_UNUSED, struct gx_cond *c, struct gx_mutex *m,
			int64_t deadline_ns)
{
	struct timespec ts;
	int err;

	if (deadline_ns == GX_FOREVER) {
		err = pthread_cond_wait(&c->posix, &m->posix);
	} else {
		ts = timespec_of(deadline_ns);
		err = pthread_cond_timedwait(&c->posix, &m->posix, &ts);
	}
	gx_assert(err == 0 || err == ETIMEDOUT);
	return -err;
}

static void px_cond_signal(struct gx_env *env GX_UNUSED, struct gx_cond *c)
{
	pthread_cond_signal(&c->posix);
}

static void px_cond_broadcast(struct gx_env *env GX_UNUSED, struct gx_cond *c)
{
	pthread_cond_broadcast(&c->posix);
}

struct gx_env *gx_env_posix(void)
{
	static const struct gx_env_ops ops = {
#define OP(name) .name = px_##name
		OP(now_ns),         OP(wall_ns),     OP(random),       OP(sleep_until),
		OP(open),           OP(close),       OP(pread),        OP(pwritev),
		OP(fdatasync),      OP(fsync),       OP(ftruncate),    OP(fallocate),
		OP(fstat),          OP(stat),        OP(rename),       OP(unlink),
		OP(mkdir),          OP(rmdir),       OP(sync_dir),     OP(list_dir),
		OP(lock_file),      OP(listen),      OP(accept),       OP(connect),
		OP(sock_name),      OP(peer_name),   OP(readv),        OP(writev),
		OP(shutdown),       OP(resolve),     OP(poll),         OP(event_open),
		OP(event_set),      OP(event_clear), OP(thread_start), OP(thread_join),
		OP(mutex_init),     OP(mutex_fini),  OP(mutex_lock),   OP(mutex_unlock),
		OP(cond_init),      OP(cond_fini),   OP(cond_wait),    OP(cond_signal),
		OP(cond_broadcast), OP(seek),        OP(space),        OP(sendfile),
		OP(send_fd),        OP(recv_fd),     OP(cpu_ns),
#undef OP
	};
	static struct gx_env env = {.ops = &ops};

	return &env;
}
