/*
 * Files and descriptors through sockets, and the space of filesystems: on the real machine, over
 * TCP and unix sockets by the loop index, and in the simulation.
 */
#include "common/gx_sim.h"
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BYTES 3000000u

static struct gx_env *env;
static char dir[] = "/tmp/test_gx_send.XXXXXX";
static char path[64], sock_path[64];
static int file, listener, from, to;
static unsigned char *content;

static int64_t in_ms(uint64_t ms)
{
	return gx_env_deadline_ms(env, ms);
}

static void fill(unsigned char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (unsigned char)(i * 7 + i / 251);
}

static void open_link(int kind)
{
	struct gx_pollfd waiting = {.events = GX_READABLE};
	struct gx_addr addr;
	char text[80];

	ck_assert_int_eq(gx_format(text, sizeof(text), "unix:%s", sock_path), 0);
	ck_assert_int_eq(gx_addr_parse(env, kind == 0 ? "127.0.0.1:0" : text, &addr, NULL), 0);
	listener = gx_env_listen(env, &addr, 8);
	ck_assert_int_ge(listener, 0);
	ck_assert_int_eq(gx_env_sock_name(env, listener, &addr), 0);
	from = gx_env_connect(env, &addr, in_ms(5000));
	ck_assert_int_ge(from, 0);
	waiting.fd = listener;
	ck_assert_int_eq(gx_env_poll(env, &waiting, 1, in_ms(5000)), 1);
	to = gx_env_accept(env, listener);
	ck_assert_int_ge(to, 0);
}

static void set_up(void)
{
	ck_assert_int_eq(sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL), 0);
	env = gx_env_posix();
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/file", dir), 0);
	ck_assert_int_eq(gx_format(sock_path, sizeof(sock_path), "%s/sock", dir), 0);
	content = malloc(BYTES);
	ck_assert_ptr_nonnull(content);
	fill(content, BYTES);
	file = gx_env_open(env, path, O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(gx_env_pwrite(env, file, content, BYTES, 0), 0);
	from = to = listener = -1;
}

static void tear_down(void)
{
	int fds[] = {file, from, to, listener};

	for (size_t i = 0; i < GX_COUNT_OF(fds); i++)
		if (fds[i] >= 0)
			gx_env_close(env, fds[i]);
	free(content);
	unlink(path);
	unlink(sock_path);
	ck_assert_int_eq(rmdir(dir), 0);
}

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		count++;
	closedir(d);
	return count;
}

/* -- sendfile --------------------------------------------------------------------------------- */

struct sink {
	struct gx_thread thread;
	unsigned char *got;
	size_t bytes;
};

static void sink_main(void *arg)
{
	struct sink *sink = arg;
	ssize_t n = 1;

	while (n > 0) {
		struct iovec iov = {sink->got + sink->bytes, BYTES + 1 - sink->bytes};

		n = gx_env_readv(env, to, &iov, 1, in_ms(10000));
		if (n > 0)
			sink->bytes += (size_t)n;
	}
}

static void send_all_of_it(struct gx_env *through, uint64_t offset)
{
	struct sink sink = {.got = malloc(BYTES + 1)};
	uint64_t at = offset;
	ssize_t n = 1;

	ck_assert_ptr_nonnull(sink.got);
	ck_assert_int_eq(gx_env_thread_start(env, &sink.thread, "sink", sink_main, &sink), 0);
	while (n > 0) {
		/* More than there is: it ends with 0 at the end of the file. */
		n = gx_env_sendfile(through, from, file, at, BYTES + 1000, in_ms(10000));
		ck_assert_int_ge(n, 0);
		at += (uint64_t)n;
	}
	ck_assert_uint_eq(at, BYTES);
	ck_assert_int_eq(gx_env_shutdown(env, from), 0);
	gx_env_thread_join(env, &sink.thread);
	ck_assert_uint_eq(sink.bytes, BYTES - offset);
	ck_assert(memcmp(sink.got, content + offset, sink.bytes) == 0);
	free(sink.got);
}

START_TEST(a_file_goes_through_a_socket)
{
	open_link(_i);
	send_all_of_it(env, _i == 0 ? 0 : 12345);
}
END_TEST

START_TEST(with_a_fault_attached_it_is_a_read_and_a_send)
{
	struct gx_fault fault = {.kinds = UINT64_C(1) << GX_FAULT_READ | UINT64_C(1)
										 << GX_FAULT_SEND,
				 .nth = UINT64_MAX};
	struct gx_env faulty = {.ops = env->ops, .fault = &fault};

	open_link(_i);
	send_all_of_it(&faulty, 1);
	fault = (struct gx_fault){.kinds = UINT64_C(1) << GX_FAULT_READ, .nth = 1};
	ck_assert_int_eq(gx_env_sendfile(&faulty, from, file, 0, 10, in_ms(1000)), -EIO);
	fault = (struct gx_fault){.kinds = UINT64_C(1) << GX_FAULT_SEND, .nth = 1};
	ck_assert_int_eq(gx_env_sendfile(&faulty, from, file, 0, 10, in_ms(1000)), -EPIPE);
}
END_TEST

/* As much as the socket takes. */
static uint64_t stuff(void)
{
	uint64_t at = 0;

	for (;;) {
		ssize_t n = gx_env_sendfile(env, from, file, at % BYTES, 100000, GX_NOWAIT);

		if (n == -EAGAIN)
			return at;
		ck_assert_int_gt(n, 0);
		at += (uint64_t)n;
	}
}

/* A wait finds room where a glance does not; in the end there is none, and the time is kept. */
static void time_out(uint64_t ms)
{
	int64_t before;
	ssize_t n;

	do {
		before = gx_env_now_ns(env);
		n = gx_env_sendfile(env, from, file, 0, BYTES, in_ms(ms));
	} while (n > 0);
	ck_assert_int_eq(n, -ETIMEDOUT);
	ck_assert_int_ge(gx_env_now_ns(env) - before, (int64_t)ms * GX_NSEC_PER_MSEC);
	ck_assert_int_lt(gx_env_now_ns(env) - before, 5 * GX_NSEC_PER_SEC);
}

/* The longer wait is longer than a tick of the socket's own time-out. */
START_TEST(a_full_socket_is_eagain_or_a_deadline)
{
	open_link(_i);
	ck_assert_uint_gt(stuff(), 0);
	time_out(80);
	time_out(700);
	ck_assert_uint_eq(stuff(), 0);
	/* A deadline that has passed is one, too. */
	ck_assert_int_eq(gx_env_sendfile(env, from, file, 0, BYTES, gx_env_now_ns(env) - 1),
			 -ETIMEDOUT);
}
END_TEST

START_TEST(a_peer_that_has_gone_is_an_error)
{
	ssize_t n;

	open_link(_i);
	gx_env_close(env, to);
	to = -1;
	do {
		n = gx_env_sendfile(env, from, file, 0, 1000, in_ms(5000));
	} while (n > 0);
	ck_assert(n == -EPIPE || n == -ECONNRESET);
}
END_TEST

/* -- descriptors --------------------------------------------------------------------------------
 */

static ssize_t send_fd(const void *data, size_t bytes, int passed)
{
	struct iovec iov = {(void *)(uintptr_t)data, bytes};

	return gx_env_send_fd(env, from, &iov, 1, passed, in_ms(1000));
}

static ssize_t recv_fd(void *data, size_t bytes, int *ret_passed)
{
	struct iovec iov = {data, bytes};

	return gx_env_recv_fd(env, to, &iov, 1, ret_passed, in_ms(1000));
}

START_TEST(a_descriptor_comes_with_the_first_byte_of_its_write)
{
	struct gx_addr addr;
	char buf[16];
	int passed;

	open_link(1);
	ck_assert_int_eq(gx_env_sock_name(env, from, &addr), 0);
	ck_assert(gx_env_passes_fds(env, &addr));
	/* Bytes before it do not have it, even if one read gets both. */
	ck_assert_int_eq(write(from, "abc", 3), 3);
	ck_assert_int_eq(send_fd("defg", 4, file), 4);
	ck_assert_int_eq(write(from, "h", 1), 1);
	ck_assert_int_eq(recv_fd(buf, 3, &passed), 3);
	ck_assert_int_eq(passed, -1);
	ck_assert_int_eq(recv_fd(buf, 1, &passed), 1);
	ck_assert_int_ge(passed, 0);
	ck_assert_int_ne(passed, file);
	ck_assert_int_eq(fcntl(passed, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(pread(passed, buf, 2, 7), 2);
	ck_assert_mem_eq(buf, content + 7, 2);
	gx_env_close(env, passed);
	/* The rest of the write comes without it. */
	ck_assert_int_eq(recv_fd(buf, 3, &passed), 3);
	ck_assert_int_eq(passed, -1);
	ck_assert_int_eq(recv_fd(buf, 16, &passed), 1);
	ck_assert_int_eq(passed, -1);
}
END_TEST

START_TEST(a_plain_read_drops_a_descriptor)
{
	struct iovec iov[2] = {{(char[4]){0}, 4}, {(char[4]){0}, 4}};
	int fds;

	open_link(1);
	fds = count_fds();
	for (int parts = 1; parts <= 2; parts++) {
		ck_assert_int_eq(send_fd("abcdefgh", 8, file), 8);
		ck_assert_int_eq(gx_env_readv(env, to, iov, parts, in_ms(1000)), 4 * parts);
		if (parts == 1)
			ck_assert_int_eq(gx_env_readv(env, to, iov, 1, in_ms(1000)), 4);
	}
	ck_assert_int_eq(count_fds(), fds);
}
END_TEST

/* The kernel would put as many into the process as the reader says there is room for. */
START_TEST(more_than_one_descriptor_is_one)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
	struct cmsghdr *c = (struct cmsghdr *)control;
	int count = _i + 1;
	struct iovec iov = {(char[1]){'x'}, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
	int four[4] = {file, file, file, file};
	int fds, passed;
	char byte;

	open_link(1);
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)count * sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(c), four, (size_t)count * sizeof(int));
	fds = count_fds();
	ck_assert_int_eq(sendmsg(from, &msg, 0), 1);
	ck_assert_int_eq(recv_fd(&byte, 1, &passed), 1);
	ck_assert_int_ge(passed, 0);
	gx_env_close(env, passed);
	ck_assert_int_eq(count_fds(), fds);
}
END_TEST

START_TEST(a_tcp_socket_passes_none)
{
	struct gx_addr addr;

	open_link(0);
	ck_assert_int_eq(gx_env_sock_name(env, from, &addr), 0);
	ck_assert(!gx_env_passes_fds(env, &addr));
}
END_TEST

/* -- space --------------------------------------------------------------------------------------
 */

START_TEST(space_is_what_the_filesystem_says)
{
	uint64_t bytes, free_bytes;
	struct statvfs st;

	ck_assert_int_eq(gx_env_space(env, dir, &bytes, &free_bytes), 0);
	ck_assert_int_eq(statvfs(dir, &st), 0);
	ck_assert_uint_eq(bytes, (uint64_t)st.f_blocks * st.f_frsize);
	ck_assert_uint_le(free_bytes, bytes);
	ck_assert_int_eq(gx_env_space(env, "/nonexistent", &bytes, &free_bytes), -ENOENT);
}
END_TEST

/* -- in the simulation --------------------------------------------------------------------------
 */

#define SIM_BYTES 200000u

static struct gx_sim_host *host;

static void sim_server(struct gx_env *senv, void *arg)
{
	unsigned char *got = malloc(SIM_BYTES), *want = malloc(SIM_BYTES);
	struct gx_pollfd pfd = {.events = GX_READABLE};
	struct gx_addr addr;
	size_t bytes = 0;
	ssize_t n = 1;
	int fd;

	ck_assert(got && want);
	fill(want, SIM_BYTES);
	gx_sim_host_addr(host, 99, &addr);
	pfd.fd = gx_env_listen(senv, &addr, 1);
	ck_assert_int_ge(pfd.fd, 0);
	ck_assert_int_eq(gx_env_poll(senv, &pfd, 1, GX_FOREVER), 1);
	fd = gx_env_accept(senv, pfd.fd);
	ck_assert_int_ge(fd, 0);
	while (n > 0) {
		struct iovec iov = {got + bytes, SIM_BYTES - bytes + (bytes == SIM_BYTES)};

		n = gx_env_readv(senv, fd, &iov, 1, GX_FOREVER);
		bytes += (size_t)GX_MAX(n, 0);
	}
	*(bool *)arg = bytes == SIM_BYTES && memcmp(got, want, SIM_BYTES) == 0;
	free(got);
	free(want);
}

static void sim_client(struct gx_env *senv, void *arg GX_UNUSED)
{
	unsigned char *data = malloc(SIM_BYTES);
	struct gx_addr addr;
	uint64_t at = 0;
	ssize_t n = 1;
	int fd, sfile;

	ck_assert_ptr_nonnull(data);
	fill(data, SIM_BYTES);
	sfile = gx_env_open(senv, "/file", O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(sfile, 0);
	ck_assert_int_eq(gx_env_pwrite(senv, sfile, data, SIM_BYTES, 0), 0);
	gx_sim_host_addr(host, 99, &addr);
	do {
		fd = gx_env_connect(senv, &addr, gx_env_deadline_ms(senv, 1000));
	} while (fd < 0);
	ck_assert(!gx_env_passes_fds(senv, &addr));
	while (n > 0) {
		n = gx_env_sendfile(senv, fd, sfile, at, SIM_BYTES, GX_FOREVER);
		ck_assert_int_ge(n, 0);
		at += (uint64_t)n;
	}
	ck_assert_uint_eq(at, SIM_BYTES);
	gx_env_close(senv, fd);
	free(data);
}

START_TEST(a_file_goes_through_a_simulated_socket)
{
	struct gx_sim_options options = GX_SIM_OPTIONS_INIT;
	struct gx_sim_host *other;
	struct gx_sim_proc *server;
	struct gx_sim *sim;
	bool right = false;

	options.seed = (uint64_t)_i + 1;
	ck_assert_int_eq(gx_sim_new(&options, &sim), 0);
	ck_assert_int_eq(gx_sim_host_new(sim, "server", &host), 0);
	ck_assert_int_eq(gx_sim_host_new(sim, "client", &other), 0);
	ck_assert_int_eq(gx_sim_spawn(host, "server", sim_server, &right, &server), 0);
	ck_assert_int_eq(gx_sim_spawn(other, "client", sim_client, NULL, NULL), 0);
	ck_assert_int_eq(gx_sim_run(sim, server), 0);
	ck_assert(right);
	gx_sim_free(sim);
}
END_TEST

static void sim_space(struct gx_env *senv, void *arg GX_UNUSED)
{
	uint64_t bytes, before, after;
	int fd;

	ck_assert_int_eq(gx_env_space(senv, "/nonexistent", &bytes, &before), -ENOENT);
	ck_assert_int_eq(gx_env_space(senv, "/", &bytes, &before), 0);
	ck_assert_uint_eq(bytes, 1048576);
	ck_assert_uint_le(before, bytes);
	fd = gx_env_open(senv, "/f", O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gx_env_pwrite(senv, fd, "x", 1, 8 * 4096), 0);
	ck_assert_int_eq(gx_env_space(senv, "/", &bytes, &after), 0);
	ck_assert_uint_eq(before - after, 4096);
	gx_env_close(senv, fd);
	gx_sim_disk_limit(host, 0);
	ck_assert_int_eq(gx_env_space(senv, "/", &bytes, &after), 0);
	ck_assert_uint_eq(bytes, UINT64_C(1) << 50);
}

START_TEST(space_in_the_simulation_is_the_disks_limit)
{
	struct gx_sim_options options = GX_SIM_OPTIONS_INIT;
	struct gx_sim_proc *proc;
	struct gx_sim *sim;

	ck_assert_int_eq(gx_sim_new(&options, &sim), 0);
	ck_assert_int_eq(gx_sim_host_new(sim, "host", &host), 0);
	gx_sim_disk_limit(host, 1048576);
	ck_assert_int_eq(gx_sim_spawn(host, "space", sim_space, NULL, &proc), 0);
	ck_assert_int_eq(gx_sim_run(sim, proc), 0);
	gx_sim_free(sim);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_env_send");
	TCase *tc = tcase_create("real");
	TCase *sim = tcase_create("simulated");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, a_file_goes_through_a_socket, 0, 2);
	tcase_add_loop_test(tc, with_a_fault_attached_it_is_a_read_and_a_send, 0, 2);
	tcase_add_loop_test(tc, a_full_socket_is_eagain_or_a_deadline, 0, 2);
	tcase_add_loop_test(tc, a_peer_that_has_gone_is_an_error, 0, 2);
	tcase_add_test(tc, a_descriptor_comes_with_the_first_byte_of_its_write);
	tcase_add_test(tc, a_plain_read_drops_a_descriptor);
	tcase_add_loop_test(tc, more_than_one_descriptor_is_one, 0, 4);
	tcase_add_test(tc, a_tcp_socket_passes_none);
	tcase_add_test(tc, space_is_what_the_filesystem_says);
	tcase_add_loop_test(sim, a_file_goes_through_a_simulated_socket, 0, 5);
	tcase_add_test(sim, space_in_the_simulation_is_the_disks_limit);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, sim);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
