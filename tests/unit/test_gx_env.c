/* The real machine's env: files, sockets with deadlines, events, threads, and the fault points. */
#include "common/gx_env.h"
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static struct gx_env *env;
static char dir[] = "/tmp/test_gx_env.XXXXXX";
static char path[64];

static void set_up(void)
{
	env = gx_env_posix();
	ck_assert_ptr_nonnull(mkdtemp(dir));
	gx_format(path, sizeof(path), "%s/file", dir);
}

static void tear_down(void)
{
	unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
}

static int64_t elapsed_ms(int64_t since_ns)
{
	return (gx_env_now_ns(env) - since_ns) / GX_NSEC_PER_MSEC;
}

static int64_t in_ms(uint64_t ms)
{
	return gx_env_deadline_ms(env, ms);
}

static ssize_t read_some(int fd, void *buf, size_t bytes, int64_t deadline_ns)
{
	struct iovec iov = {.iov_base = buf, .iov_len = bytes};

	return gx_env_readv(env, fd, &iov, 1, deadline_ns);
}

static ssize_t write_some(int fd, const char *text, int64_t deadline_ns)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};

	return gx_env_writev(env, fd, &iov, 1, deadline_ns);
}

static struct gx_addr addr_of(const char *text)
{
	struct gx_addr addr;

	ck_assert_int_eq(gx_addr_parse(env, text, &addr, NULL), 0);
	return addr;
}

static struct gx_addr unix_addr(void)
{
	char text[80];

	gx_format(text, sizeof(text), "unix:%s", path);
	return addr_of(text);
}

struct link {
	int listener, client, server;
};

static struct link link_over(struct gx_addr addr)
{
	struct gx_pollfd waiting = {.events = GX_READABLE};
	struct link l;

	l.listener = gx_env_listen(env, &addr, 8);
	ck_assert_int_ge(l.listener, 0);
	ck_assert_int_eq(gx_env_sock_name(env, l.listener, &addr), 0);
	l.client = gx_env_connect(env, &addr, in_ms(5000));
	ck_assert_int_ge(l.client, 0);
	waiting.fd = l.listener;
	ck_assert_int_eq(gx_env_poll(env, &waiting, 1, in_ms(5000)), 1);
	l.server = gx_env_accept(env, l.listener);
	ck_assert_int_ge(l.server, 0);
	return l;
}

static void link_close(struct link *l)
{
	ck_assert_int_eq(gx_env_close(env, l->client), 0);
	ck_assert_int_eq(gx_env_close(env, l->server), 0);
	ck_assert_int_eq(gx_env_close(env, l->listener), 0);
}

/* Loop tests run over both kinds of socket. */
static struct link link_of_kind(int kind)
{
	return link_over(kind == 0 ? addr_of("127.0.0.1:0") : unix_addr());
}

/* -- files ---------------------------------------------------------------- */

START_TEST(a_vector_is_written_and_read_back_whole)
{
	char a[] = "hello ", c[] = "world", got[32] = "";
	struct iovec iov[] = {{a, 6}, {NULL, 0}, {c, 5}};
	struct stat st;
	int fd = gx_env_open(env, path, O_RDWR | O_CREAT, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(gx_env_pwritev(env, fd, iov, 3, 4), 0);
	ck_assert_int_eq(gx_env_pread(env, fd, got, sizeof(got), 4), 11);
	ck_assert_str_eq(got, "hello world");
	ck_assert_int_eq(gx_env_fdatasync(env, fd), 0);
	ck_assert_int_eq(gx_env_fsync(env, fd), 0);
	ck_assert_int_eq(gx_env_ftruncate(env, fd, 5), 0);
	ck_assert_int_eq(gx_env_fstat(env, fd, &st), 0);
	ck_assert_int_eq(st.st_size, 5);
	ck_assert_int_eq(gx_env_close(env, fd), 0);
	ck_assert_int_eq(gx_env_close(env, fd), -EBADF);
}
END_TEST

/* An implementation that moves at most three bytes at a time. */
static ssize_t small_pread(struct gx_env *e GX_UNUSED, int fd, void *buf, size_t bytes,
			   uint64_t offset)
{
	return pread(fd, buf, GX_MIN(bytes, 3u), (off_t)offset);
}

static ssize_t small_pwritev(struct gx_env *e GX_UNUSED, int fd, const struct iovec *iov,
			     int iov_count GX_UNUSED, uint64_t offset)
{
	return pwrite(fd, iov->iov_base, GX_MIN(iov->iov_len, 3u), (off_t)offset);
}

START_TEST(partial_transfers_of_files_are_continued)
{
	struct gx_env_ops ops = *env->ops;
	struct gx_env small = {.ops = &ops};
	char a[] = "abcdefg", b[] = "hi", got[16] = "";
	struct iovec iov[] = {{a, 7}, {b, 2}, {NULL, 0}};
	int fd = gx_env_open(env, path, O_RDWR | O_CREAT, 0600);

	ops.pread = small_pread;
	ops.pwritev = small_pwritev;
	ck_assert_int_eq(gx_env_pwritev(&small, fd, iov, 3, 0), 0);
	ck_assert_int_eq(gx_env_pread(&small, fd, got, 9, 0), 9);
	ck_assert_str_eq(got, "abcdefghi");
	gx_env_close(env, fd);
}
END_TEST

static int count_entry(void *arg, const char *name)
{
	ck_assert_str_ne(name, ".");
	ck_assert_str_ne(name, "..");
	return ++*(int *)arg == 2 ? -ECANCELED : 0;
}

START_TEST(directories_are_made_listed_and_removed)
{
	char sub[80], other[80];
	struct stat st;
	int seen = 0;

	gx_format(sub, sizeof(sub), "%s/sub", dir);
	gx_format(other, sizeof(other), "%s/other", dir);
	ck_assert_int_eq(gx_env_mkdir(env, sub, 0700), 0);
	ck_assert_int_eq(gx_env_mkdir(env, sub, 0700), -EEXIST);
	ck_assert_int_eq(gx_env_list_dir(env, dir, count_entry, &seen), 0);
	ck_assert_int_eq(seen, 1);
	ck_assert_int_eq(gx_env_rename(env, sub, other), 0);
	ck_assert_int_eq(gx_env_stat(env, sub, &st), -ENOENT);
	ck_assert_int_eq(gx_env_mkdir(env, sub, 0700), 0);
	seen = 0;
	ck_assert_int_eq(gx_env_list_dir(env, dir, count_entry, &seen), -ECANCELED);
	ck_assert_int_eq(gx_env_sync_dir(env, dir), 0);
	ck_assert_int_eq(gx_env_rmdir(env, sub), 0);
	ck_assert_int_eq(gx_env_rmdir(env, other), 0);
	ck_assert_int_eq(gx_env_unlink(env, other), -ENOENT);
}
END_TEST

START_TEST(a_locked_file_cannot_be_locked_twice)
{
	int a = gx_env_open(env, path, O_RDWR | O_CREAT, 0600);
	int b = gx_env_open(env, path, O_RDWR, 0);

	ck_assert_int_eq(gx_env_lock_file(env, a), 0);
	ck_assert_int_eq(gx_env_lock_file(env, b), -EAGAIN);
	gx_env_close(env, a);
	ck_assert_int_eq(gx_env_lock_file(env, b), 0);
	gx_env_close(env, b);
}
END_TEST

/* -- sockets -------------------------------------------------------------- */

START_TEST(bytes_pass_both_ways_and_end_with_zero)
{
	struct link l = link_of_kind(_i);
	char a[3] = "", b[8] = "";
	struct iovec iov[] = {{a, 2}, {b, 7}};

	ck_assert_int_eq(write_some(l.client, "ping!", in_ms(1000)), 5);
	ck_assert_int_eq(gx_env_readv(env, l.server, iov, 2, in_ms(1000)), 5);
	ck_assert_str_eq(a, "pi");
	ck_assert_str_eq(b, "ng!");
	ck_assert_int_eq(write_some(l.server, "pong", GX_FOREVER), 4);
	ck_assert_int_eq(read_some(l.client, b, 8, GX_FOREVER), 4);
	ck_assert_int_eq(gx_env_shutdown(env, l.client), 0);
	ck_assert_int_eq(read_some(l.server, b, 8, in_ms(1000)), 0);
	ck_assert_int_eq(gx_env_shutdown(env, l.client), 0);
	link_close(&l);
}
END_TEST

START_TEST(writing_to_a_gone_peer_is_epipe_without_a_signal)
{
	struct link l = link_of_kind(_i);
	ssize_t r = 0;

	ck_assert_int_eq(gx_env_shutdown(env, l.client), 0);
	for (int i = 0; i < 100 && r >= 0; i++)
		r = write_some(l.client, "x", in_ms(1000));
	ck_assert_int_eq(r, -EPIPE);
	link_close(&l);
}
END_TEST

START_TEST(nowait_is_eagain_at_once)
{
	struct link l = link_of_kind(_i);
	char buf[8];

	ck_assert_int_eq(read_some(l.client, buf, 8, GX_NOWAIT), -EAGAIN);
	ck_assert_int_eq(gx_env_accept(env, l.listener), -EAGAIN);
	link_close(&l);
}
END_TEST

static const int64_t wait_ms_rows[] = {-1000, 0, 15, 90, 130, 260};

START_TEST(a_read_ends_at_its_deadline)
{
	struct link l = link_of_kind(0);
	int64_t start_ns = gx_env_now_ns(env), took_ms;
	int64_t wait_ms = wait_ms_rows[_i];
	char buf[8];

	ck_assert_int_eq(read_some(l.client, buf, 8, start_ns + wait_ms * GX_NSEC_PER_MSEC),
			 -ETIMEDOUT);
	took_ms = elapsed_ms(start_ns);
	ck_assert_int_ge(took_ms, GX_MAX(wait_ms, 0));
	ck_assert_int_lt(took_ms, GX_MAX(wait_ms, 0) + 2000); /* a busy machine is no failure */
	link_close(&l);
}
END_TEST

static void on_alarm(int signo GX_UNUSED)
{
}

START_TEST(signals_do_not_move_a_deadline)
{
	struct link l = link_of_kind(_i);
	struct sigaction action = {.sa_handler = on_alarm};
	struct itimerval often = {{0, 5000}, {0, 5000}}, never = {0};
	int64_t start_ns = gx_env_now_ns(env);
	char buf[8];

	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
	ck_assert_int_eq(read_some(l.client, buf, 8, in_ms(200)), -ETIMEDOUT);
	setitimer(ITIMER_REAL, &never, NULL);
	ck_assert_int_ge(elapsed_ms(start_ns), 200);
	ck_assert_int_lt(elapsed_ms(start_ns), 300);
	link_close(&l);
}
END_TEST

START_TEST(a_past_deadline_still_takes_what_is_there)
{
	struct link l = link_of_kind(_i);
	struct gx_pollfd ready = {.fd = l.server, .events = GX_READABLE};
	char buf[8];

	ck_assert_int_eq(write_some(l.client, "x", 1), 1);
	ck_assert_int_eq(gx_env_poll(env, &ready, 1, in_ms(1000)), 1);
	ck_assert_int_eq(read_some(l.server, buf, 8, 1), 1);
	ck_assert_int_eq(read_some(l.server, buf, 8, 1), -ETIMEDOUT);
	link_close(&l);
}
END_TEST

START_TEST(deadlines_hold_on_a_descriptor_made_nonblocking)
{
	struct link l = link_of_kind(_i);
	int64_t start_ns = gx_env_now_ns(env);
	char buf[8];

	ck_assert_int_eq(fcntl(l.client, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(read_some(l.client, buf, 8, in_ms(200)), -ETIMEDOUT);
	ck_assert_int_ge(elapsed_ms(start_ns), 200);
	link_close(&l);
}
END_TEST

START_TEST(a_write_to_a_full_socket_ends_at_its_deadline)
{
	static char block[1 << 20];
	struct link l = link_of_kind(_i);
	struct iovec iov = {block, sizeof(block)};
	int64_t start_ns;

	while (gx_env_writev(env, l.client, &iov, 1, GX_NOWAIT) > 0)
		;
	ck_assert_int_eq(gx_env_writev(env, l.client, &iov, 1, GX_NOWAIT), -EAGAIN);
	start_ns = gx_env_now_ns(env);
	ck_assert_int_eq(gx_env_writev(env, l.client, &iov, 1, in_ms(150)), -ETIMEDOUT);
	ck_assert_int_ge(elapsed_ms(start_ns), 150);
	ck_assert_int_lt(elapsed_ms(start_ns), 300);
	link_close(&l);
}
END_TEST

struct blocked {
	struct gx_thread thread;
	int fd;
	ssize_t r;
};

static void block_in_read(void *arg)
{
	struct blocked *b = arg;
	char buf[8];

	b->r = read_some(b->fd, buf, 8, GX_FOREVER);
}

START_TEST(shutdown_ends_a_read_that_blocks_in_another_thread)
{
	struct link l = link_of_kind(_i);
	struct blocked b = {.fd = l.client, .r = -1};

	ck_assert_int_eq(gx_env_thread_start(env, &b.thread, "blocked", block_in_read, &b), 0);
	/* Either order must work, so there is no need to know that it blocks already. */
	ck_assert_int_eq(gx_env_sleep_until(env, in_ms(20)), 0);
	ck_assert_int_eq(gx_env_shutdown(env, l.client), 0);
	ck_assert_int_eq(gx_env_thread_join(env, &b.thread), 0);
	ck_assert_int_eq(b.r, 0);
	link_close(&l);
}
END_TEST

START_TEST(both_ends_name_the_connection_alike)
{
	const char *texts[] = {"127.0.0.1:0", NULL, "[::]:0"};
	struct gx_addr server_self, server_peer, client_self, client_peer, target;
	struct link l;

	if (_i == 2) { /* a dual-stack listener reached over IPv4 */
		target = addr_of(texts[2]);
		l.listener = gx_env_listen(env, &target, 1);
		if (l.listener == -EAFNOSUPPORT || l.listener == -EADDRNOTAVAIL)
			return; /* a machine without IPv6 */
		ck_assert_int_ge(l.listener, 0);
		ck_assert_int_eq(gx_env_sock_name(env, l.listener, &target), 0);
		client_peer = addr_of("127.0.0.1:0");
		((struct sockaddr_in *)&client_peer.sa)->sin_port =
			((struct sockaddr_in6 *)&target.sa)->sin6_port;
		l.client = gx_env_connect(env, &client_peer, in_ms(1000));
		ck_assert_int_ge(l.client, 0);
		l.server = gx_env_accept(env, l.listener);
		ck_assert_int_ge(l.server, 0);
	} else {
		l = link_of_kind(_i);
	}
	ck_assert_int_eq(gx_env_sock_name(env, l.server, &server_self), 0);
	ck_assert_int_eq(gx_env_peer_name(env, l.server, &server_peer), 0);
	ck_assert_int_eq(gx_env_sock_name(env, l.client, &client_self), 0);
	ck_assert_int_eq(gx_env_peer_name(env, l.client, &client_peer), 0);
	ck_assert(gx_addr_equal(&server_self, &client_peer));
	ck_assert(gx_addr_equal(&client_self, &server_peer));
	if (_i == 1) {
		target = unix_addr();
		ck_assert(gx_addr_equal(&server_self, &target));
	}
	link_close(&l);
}
END_TEST

START_TEST(tcp_sockets_are_born_with_our_options)
{
	struct link l = link_of_kind(0);
	int fds[] = {l.client, l.server};

	for (size_t i = 0; i < 2; i++) {
		int on = 0;
		socklen_t bytes = sizeof(on);

		ck_assert_int_eq(getsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, &bytes), 0);
		ck_assert_int_ne(on, 0);
		ck_assert_int_eq(getsockopt(fds[i], SOL_SOCKET, SO_KEEPALIVE, &on, &bytes), 0);
		ck_assert_int_ne(on, 0);
		ck_assert_int_eq(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
		ck_assert_int_eq(fcntl(fds[i], F_GETFL) & O_NONBLOCK, 0);
	}
	link_close(&l);
}
END_TEST

START_TEST(nobody_listening_is_econnrefused)
{
	struct gx_addr addr = addr_of("127.0.0.1:0");
	int listener = gx_env_listen(env, &addr, 1);

	ck_assert_int_eq(gx_env_sock_name(env, listener, &addr), 0);
	gx_env_close(env, listener);
	ck_assert_int_eq(gx_env_connect(env, &addr, in_ms(1000)), -ECONNREFUSED);
}
END_TEST

START_TEST(a_connect_to_a_full_backlog_ends_at_its_deadline)
{
	struct gx_addr addr = _i == 0 ? addr_of("127.0.0.1:0") : unix_addr();
	int listener = gx_env_listen(env, &addr, 1), fds[64], count = 0, r = 0;
	int64_t start_ns = 0;

	ck_assert_int_eq(gx_env_sock_name(env, listener, &addr), 0);
	while (count < 64) {
		start_ns = gx_env_now_ns(env);
		r = gx_env_connect(env, &addr, in_ms(100));
		if (r < 0)
			break;
		fds[count++] = r;
	}
	ck_assert_int_eq(r, -ETIMEDOUT);
	ck_assert_int_ge(elapsed_ms(start_ns), 99);
	ck_assert_int_lt(elapsed_ms(start_ns), 200);
	ck_assert_int_eq(gx_env_connect(env, &addr, GX_NOWAIT), -EAGAIN);
	while (count > 0)
		gx_env_close(env, fds[--count]);
	gx_env_close(env, listener);
}
END_TEST

START_TEST(a_stale_unix_socket_is_replaced_and_a_live_one_is_not)
{
	struct gx_addr addr = unix_addr();
	struct stat st;
	mode_t old = umask(0277);
	int first = gx_env_listen(env, &addr, 1), second;

	umask(old);
	ck_assert_int_ge(first, 0);
	ck_assert_int_eq(gx_env_stat(env, path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(gx_env_listen(env, &addr, 1), -EADDRINUSE);
	gx_env_close(env, first);
	ck_assert_int_eq(gx_env_connect(env, &addr, in_ms(100)), -ECONNREFUSED);
	second = gx_env_listen(env, &addr, 1);
	ck_assert_int_ge(second, 0);
	gx_env_close(env, second);
}
END_TEST

START_TEST(a_regular_file_in_place_of_the_socket_is_left_alone)
{
	struct gx_addr addr = unix_addr();
	int fd = gx_env_open(env, path, O_RDWR | O_CREAT, 0600);
	struct stat st;

	gx_env_close(env, fd);
	ck_assert_int_eq(gx_env_listen(env, &addr, 1), -EADDRINUSE);
	ck_assert_int_eq(gx_env_stat(env, path, &st), 0);
	ck_assert(S_ISREG(st.st_mode));
}
END_TEST

START_TEST(odd_addresses_are_refused)
{
	struct gx_addr mem = addr_of("mem:x"), relative = {.kind = GX_ADDR_UNIX};
	struct sockaddr_un *un = (struct sockaddr_un *)&relative.sa;

	un->sun_family = AF_UNIX;
	un->sun_path[0] = 'x';
	relative.sa_bytes = sizeof(sa_family_t) + 2;
	ck_assert_int_eq(gx_env_listen(env, &mem, 1), -EAFNOSUPPORT);
	ck_assert_int_eq(gx_env_connect(env, &mem, GX_FOREVER), -EAFNOSUPPORT);
	ck_assert_int_eq(gx_env_listen(env, &relative, 1), -EINVAL);
}
END_TEST

/* -- waiting, threads ----------------------------------------------------- */

START_TEST(an_event_polls_readable_from_set_to_clear)
{
	int event = gx_env_event_open(env);
	struct gx_pollfd pfd = {.fd = event, .events = GX_READABLE};
	int64_t start_ns = gx_env_now_ns(env);

	ck_assert_int_eq(gx_env_poll(env, &pfd, 1, in_ms(30)), 0);
	ck_assert_int_ge(elapsed_ms(start_ns), 30);
	ck_assert_int_eq(gx_env_event_set(env, event), 0);
	ck_assert_int_eq(gx_env_event_set(env, event), 0);
	ck_assert_int_eq(gx_env_poll(env, &pfd, 1, GX_FOREVER), 1);
	ck_assert_uint_eq(pfd.revents, GX_READABLE);
	ck_assert_int_eq(gx_env_event_clear(env, event), 0);
	ck_assert_int_eq(gx_env_event_clear(env, event), 0);
	ck_assert_int_eq(gx_env_poll(env, &pfd, 1, GX_NOWAIT), 0);
	gx_env_close(env, event);
	ck_assert_int_eq(gx_env_poll(env, &pfd, 1, GX_NOWAIT), -EBADF);
}
END_TEST

START_TEST(poll_takes_more_descriptors_than_fit_on_the_stack)
{
	struct gx_pollfd fds[200];

	for (size_t i = 0; i < 200; i++) {
		fds[i] = (struct gx_pollfd){gx_env_event_open(env), GX_READABLE, 0};
		ck_assert_int_ge(fds[i].fd, 0);
	}
	gx_env_event_set(env, fds[199].fd);
	ck_assert_int_eq(gx_env_poll(env, fds, 200, GX_FOREVER), 1);
	ck_assert_uint_eq(fds[0].revents, 0);
	ck_assert_uint_eq(fds[199].revents, GX_READABLE);
	for (size_t i = 0; i < 200; i++)
		gx_env_close(env, fds[i].fd);
}
END_TEST

START_TEST(a_hang_up_is_readable_and_wakes_a_writer)
{
	struct link l = link_of_kind(1);
	struct gx_pollfd pfd = {.fd = l.client, .events = GX_WRITABLE};

	ck_assert_int_eq(gx_env_shutdown(env, l.server), 0);
	ck_assert_int_eq(gx_env_poll(env, &pfd, 1, in_ms(1000)), 1);
	ck_assert_uint_eq(pfd.revents, GX_READABLE | GX_WRITABLE);
	link_close(&l);
}
END_TEST

struct hand_over {
	struct gx_thread thread;
	struct gx_mutex lock;
	struct gx_cond changed;
	int stage;
	bool signals_blocked;
};

static void answer(void *arg)
{
	struct hand_over *h = arg;
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	gx_env_mutex_lock(env, &h->lock);
	h->signals_blocked = sigismember(&mask, SIGTERM) == 1;
	while (h->stage != 1)
		gx_env_cond_wait(env, &h->changed, &h->lock, GX_FOREVER);
	h->stage = 2;
	gx_env_cond_broadcast(env, &h->changed);
	gx_env_mutex_unlock(env, &h->lock);
}

START_TEST(threads_hand_over_with_mutex_and_condition)
{
	struct hand_over h = {0};
	int64_t start_ns = gx_env_now_ns(env);

	ck_assert_int_eq(gx_env_mutex_init(env, &h.lock), 0);
	ck_assert_int_eq(gx_env_cond_init(env, &h.changed), 0);
	ck_assert_int_eq(
		gx_env_thread_start(env, &h.thread, "a name longer than the kernel's", answer, &h),
		0);
	gx_env_mutex_lock(env, &h.lock);
	ck_assert_int_eq(gx_env_cond_wait(env, &h.changed, &h.lock, in_ms(20)), -ETIMEDOUT);
	ck_assert_int_ge(elapsed_ms(start_ns), 20);
	h.stage = 1;
	gx_env_cond_signal(env, &h.changed);
	while (h.stage != 2)
		ck_assert_int_eq(gx_env_cond_wait(env, &h.changed, &h.lock, in_ms(5000)), 0);
	gx_env_mutex_unlock(env, &h.lock);
	ck_assert_int_eq(gx_env_thread_join(env, &h.thread), 0);
	ck_assert(h.signals_blocked);
	gx_env_cond_fini(env, &h.changed);
	gx_env_mutex_fini(env, &h.lock);
}
END_TEST

START_TEST(clocks_deadlines_and_random_behave)
{
	unsigned char a[64] = {0}, b[64] = {0};

	ck_assert_int_gt(gx_env_now_ns(env), 0);
	ck_assert_int_gt(gx_env_wall_ns(env), INT64_C(1600000000) * GX_NSEC_PER_SEC);
	ck_assert_int_eq(gx_env_deadline_ms(env, UINT64_MAX), GX_FOREVER);
	ck_assert_int_eq(gx_env_random(env, a, sizeof(a)), 0);
	ck_assert_int_eq(gx_env_random(env, b, sizeof(b)), 0);
	ck_assert_mem_ne(a, b, sizeof(a));
}
END_TEST

/* -- faults --------------------------------------------------------------- */

START_TEST(a_failing_close_still_closes)
{
	struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = 1};
	struct gx_env faulty = {.ops = env->ops, .fault = &fault};
	int event = gx_env_event_open(env);

	ck_assert_int_eq(gx_env_close(&faulty, event), -EIO);
	ck_assert_int_eq(fcntl(event, F_GETFD), -1);
}
END_TEST

START_TEST(short_bytes_cut_socket_transfers)
{
	struct gx_fault fault = {.short_bytes = 2};
	struct gx_env faulty = {.ops = env->ops, .fault = &fault};
	struct link l = link_of_kind(_i);
	char a[] = "abc", got[8];
	struct iovec out[] = {{a, 0}, {a, 3}}, in = {got, sizeof(got)};

	ck_assert_int_eq(gx_env_writev(&faulty, l.client, out, 2, in_ms(1000)), 2);
	ck_assert_int_eq(write_some(l.client, "defg", in_ms(1000)), 4);
	ck_assert_int_eq(gx_env_readv(&faulty, l.server, &in, 1, in_ms(1000)), 2);
	ck_assert_mem_eq(got, "ab", 2);
	link_close(&l);
}
END_TEST

/* A scenario that makes each call once; the n-th is to fail. */
static int each_call_once(struct gx_env *e)
{
	char byte = 'x';
	struct iovec iov = {&byte, 1};
	struct gx_addr addr, name;
	struct gx_pollfd pfd = {.fd = -1};
	struct gx_mutex lock;
	int fds[4] = {-1, -1, -1, -1}, r, seen = 0;
	struct stat st;

	r = gx_env_random(e, &byte, 1);
	if (r == 0)
		r = fds[0] = gx_env_open(e, path, O_RDWR | O_CREAT, 0600);
	if (r >= 0)
		r = gx_env_lock_file(e, fds[0]);
	if (r >= 0)
		r = gx_env_pwrite(e, fds[0], "x", 1, 0);
	if (r >= 0)
		r = (int)gx_env_pread(e, fds[0], &byte, 1, 0);
	if (r >= 0)
		r = gx_env_fdatasync(e, fds[0]);
	if (r >= 0)
		r = gx_env_ftruncate(e, fds[0], 0);
	if (r >= 0)
		r = gx_env_fstat(e, fds[0], &st);
	if (r >= 0)
		r = gx_env_list_dir(e, dir, count_entry, &seen);
	if (r >= 0)
		r = gx_addr_parse(e, "127.0.0.1:0", &addr, NULL);
	if (r >= 0)
		r = fds[1] = gx_env_listen(e, &addr, 1);
	if (r >= 0)
		r = gx_env_sock_name(e, fds[1], &name);
	if (r >= 0)
		r = fds[2] = gx_env_connect(e, &name, in_ms(1000));
	if (r >= 0)
		r = fds[3] = gx_env_accept(e, fds[1]);
	if (r >= 0)
		r = (int)gx_env_writev(e, fds[2], &iov, 1, in_ms(1000));
	if (r >= 0)
		r = (int)gx_env_readv(e, fds[3], &iov, 1, in_ms(1000));
	if (r >= 0)
		r = gx_env_poll(e, &pfd, 1, GX_NOWAIT);
	if (r >= 0)
		r = gx_env_mutex_init(e, &lock);
	if (r >= 0)
		gx_env_mutex_fini(e, &lock);
	for (int i = 3; i >= 0; i--)
		if (fds[i] >= 0)
			gx_env_close(env, fds[i]);
	return r;
}

START_TEST(every_call_can_be_made_to_fail)
{
	uint64_t nth;
	int r;

	for (nth = 1;; nth++) {
		struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = nth, .err = EXDEV};
		struct gx_env faulty = {.ops = env->ops, .fault = &fault};

		r = each_call_once(&faulty);
		if (fault.fired == 0)
			break;
		ck_assert_int_eq(r, -EXDEV);
	}
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(nth, 19); /* 18 calls */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_env");
	TCase *tc = tcase_create("core");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_vector_is_written_and_read_back_whole);
	tcase_add_test(tc, partial_transfers_of_files_are_continued);
	tcase_add_test(tc, directories_are_made_listed_and_removed);
	tcase_add_test(tc, a_locked_file_cannot_be_locked_twice);
	tcase_add_loop_test(tc, bytes_pass_both_ways_and_end_with_zero, 0, 2);
	tcase_add_loop_test(tc, writing_to_a_gone_peer_is_epipe_without_a_signal, 0, 2);
	tcase_add_loop_test(tc, nowait_is_eagain_at_once, 0, 2);
	tcase_add_loop_test(tc, a_read_ends_at_its_deadline, 0, GX_COUNT_OF(wait_ms_rows));
	tcase_add_loop_test(tc, signals_do_not_move_a_deadline, 0, 2);
	tcase_add_loop_test(tc, a_past_deadline_still_takes_what_is_there, 0, 2);
	tcase_add_loop_test(tc, deadlines_hold_on_a_descriptor_made_nonblocking, 0, 2);
	tcase_add_loop_test(tc, a_write_to_a_full_socket_ends_at_its_deadline, 0, 2);
	tcase_add_loop_test(tc, shutdown_ends_a_read_that_blocks_in_another_thread, 0, 2);
	tcase_add_loop_test(tc, both_ends_name_the_connection_alike, 0, 3);
	tcase_add_test(tc, tcp_sockets_are_born_with_our_options);
	tcase_add_test(tc, nobody_listening_is_econnrefused);
	tcase_add_loop_test(tc, a_connect_to_a_full_backlog_ends_at_its_deadline, 0, 2);
	tcase_add_test(tc, a_stale_unix_socket_is_replaced_and_a_live_one_is_not);
	tcase_add_test(tc, a_regular_file_in_place_of_the_socket_is_left_alone);
	tcase_add_test(tc, odd_addresses_are_refused);
	tcase_add_test(tc, an_event_polls_readable_from_set_to_clear);
	tcase_add_test(tc, poll_takes_more_descriptors_than_fit_on_the_stack);
	tcase_add_test(tc, a_hang_up_is_readable_and_wakes_a_writer);
	tcase_add_test(tc, threads_hand_over_with_mutex_and_condition);
	tcase_add_test(tc, clocks_deadlines_and_random_behave);
	tcase_add_test(tc, a_failing_close_still_closes);
	tcase_add_loop_test(tc, short_bytes_cut_socket_transfers, 0, 2);
	tcase_add_test(tc, every_call_can_be_made_to_fail);
	tcase_set_timeout(tc, 20);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
