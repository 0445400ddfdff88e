/*
 * The simulated world itself: time, fibers, network, disk and faults.
 *
 * Processes here allocate nothing, so that killing them leaks nothing even though this
 * program is not linked with sim_alloc.c; memory of killed processes is tested in tests/sim.
 */
#include "common/gx_sim.h"
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

static struct gx_sim *sim;
static struct gx_sim_host *a;
static struct gx_sim_host *b;
static struct gx_sim_options options;

static void world_open(uint64_t seed)
{
	options.seed = seed;
	ck_assert_int_eq(gx_sim_new(&options, &sim), 0);
	ck_assert_int_eq(gx_sim_host_new(sim, "a", &a), 0);
	ck_assert_int_eq(gx_sim_host_new(sim, "b", &b), 0);
}

static void world_close(void)
{
	gx_sim_free(sim);
	sim = NULL;
}

static void setup(void)
{
	options = (struct gx_sim_options)GX_SIM_OPTIONS_INIT;
	world_open(1);
}

static struct gx_sim_proc *spawn(struct gx_sim_host *host, const char *name,
				 void (*fn)(struct gx_env *, void *), void *arg)
{
	struct gx_sim_proc *proc;

	ck_assert_int_eq(gx_sim_spawn(host, name, fn, arg, &proc), 0);
	return proc;
}

static void run(struct gx_sim_proc *proc)
{
	ck_assert_int_eq(gx_sim_run(sim, proc), 0);
}

static void run_fn(struct gx_sim_host *host, void (*fn)(struct gx_env *, void *), void *arg)
{
	run(spawn(host, "step", fn, arg));
}

static void sleep_ms(struct gx_env *env, uint64_t ms)
{
	ck_assert_int_eq(gx_env_sleep_until(env, gx_env_deadline_ms(env, ms)), 0);
}

/* -- streams ---------------------------------------------------------------------- */

static int write_all(struct gx_env *env, int fd, const void *data, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		struct iovec iov = {(char *)(uintptr_t)data + done, bytes - done};
		ssize_t r = gx_env_writev(env, fd, &iov, 1, gx_env_deadline_ms(env, 60000));

		if (r < 0)
			return (int)r;
		done += (size_t)r;
	}
	return 0;
}

static int read_all(struct gx_env *env, int fd, void *data, size_t bytes, uint64_t timeout_ms)
{
	size_t done = 0;

	while (done < bytes) {
		struct iovec iov = {(char *)data + done, bytes - done};
		ssize_t r = gx_env_readv(env, fd, &iov, 1, gx_env_deadline_ms(env, timeout_ms));

		if (r <= 0)
			return r < 0 ? (int)r : -ENODATA;
		done += (size_t)r;
	}
	return 0;
}

static int listen_on(struct gx_env *env, struct gx_sim_host *host, uint16_t port)
{
	struct gx_addr addr;
	int fd;

	gx_sim_host_addr(host, port, &addr);
	fd = gx_env_listen(env, &addr, 16);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static int accept_one(struct gx_env *env, int fd)
{
	struct gx_pollfd p = {.fd = fd, .events = GX_READABLE};

	ck_assert_int_eq(gx_env_poll(env, &p, 1, GX_FOREVER), 1);
	return gx_env_accept(env, fd);
}

static int connect_to(struct gx_env *env, struct gx_sim_host *host, uint16_t port,
		      uint64_t timeout_ms)
{
	struct gx_addr addr;

	gx_sim_host_addr(host, port, &addr);
	return gx_env_connect(env, &addr, gx_env_deadline_ms(env, timeout_ms));
}

/* Serves one connection after the other until killed: echoes records of 100 bytes. */
static void echo_server(struct gx_env *env, void *arg)
{
	int lfd = listen_on(env, arg, 7);

	for (;;) {
		char record[100];
		int fd = accept_one(env, lfd);

		ck_assert_int_ge(fd, 0);
		while (read_all(env, fd, record, sizeof(record), 60000) == 0)
			if (write_all(env, fd, record, sizeof(record)) < 0)
				break;
		gx_env_close(env, fd);
	}
}

struct exchange {
	int rounds;
	int done;
	int err;
};

static void echo_client(struct gx_env *env, void *arg)
{
	struct exchange *x = arg;
	int fd;

	do {
		fd = connect_to(env, b, 7, 5000);
	} while (fd == -ECONNREFUSED);
	x->err = fd < 0 ? fd : 0;
	for (; fd >= 0 && x->done < x->rounds; x->done++) {
		char out[100];
		char in[100];

		ck_assert_int_eq(gx_env_random(env, out, sizeof(out)), 0);
		x->err = write_all(env, fd, out, sizeof(out));
		if (x->err == 0)
			x->err = read_all(env, fd, in, sizeof(in), 60000);
		if (x->err < 0)
			break;
		ck_assert_mem_eq(out, in, sizeof(in));
	}
	if (fd >= 0)
		gx_env_close(env, fd);
}

static uint64_t echo_trace(uint64_t seed)
{
	struct exchange x = {.rounds = 50};
	uint64_t trace;

	world_open(seed);
	spawn(b, "server", echo_server, b);
	run(spawn(a, "client", echo_client, &x));
	ck_assert_int_eq(x.done, 50);
	trace = gx_sim_trace(sim);
	world_close();
	return trace;
}

START_TEST(equal_seeds_replay_exactly_and_others_differ)
{
	world_close();
	for (uint64_t seed = 1; seed <= 20; seed++) {
		uint64_t trace = echo_trace(seed);

		ck_assert_uint_eq(trace, echo_trace(seed));
		ck_assert_uint_ne(trace, echo_trace(seed + 1000));
	}
	world_open(1);
}
END_TEST

static void names_match(struct gx_env *env, void *arg)
{
	struct gx_addr any = {0};
	struct gx_addr bound, local, peer, server_local, server_peer;
	int lfd, fd, sfd;

	(void)arg;
	ck_assert_int_eq(gx_env_resolve(env, "0.0.0.0", "0", &any), 0);
	lfd = gx_env_listen(env, &any, 4);
	ck_assert_int_ge(lfd, 0);
	ck_assert_int_eq(gx_env_sock_name(env, lfd, &bound), 0);
	fd = connect_to(env, a, ntohs(((struct sockaddr_in *)&bound.sa)->sin_port), 1000);
	ck_assert_int_ge(fd, 0);
	sfd = accept_one(env, lfd);
	ck_assert_int_eq(gx_env_sock_name(env, fd, &local), 0);
	ck_assert_int_eq(gx_env_peer_name(env, fd, &peer), 0);
	ck_assert_int_eq(gx_env_sock_name(env, sfd, &server_local), 0);
	ck_assert_int_eq(gx_env_peer_name(env, sfd, &server_peer), 0);
	ck_assert(gx_addr_equal(&local, &server_peer));
	ck_assert(gx_addr_equal(&peer, &server_local));
	ck_assert(!gx_addr_equal(&local, &peer));
	ck_assert_int_eq(gx_env_listen(env, &bound, 4), -EADDRINUSE);
}

START_TEST(both_ends_agree_on_their_names)
{
	run_fn(a, names_match, NULL);
}
END_TEST

static void other_families(struct gx_env *env, void *arg)
{
	static const char *const names[] = {"mem:x", "unix:/run/s", "[::1]:70", "127.0.0.2:71"};
	struct gx_addr addr;

	(void)arg;
	for (size_t i = 0; i < GX_COUNT_OF(names); i++) {
		char got;
		int lfd, fd, sfd;

		ck_assert_int_eq(gx_addr_parse(env, names[i], &addr, NULL), 0);
		ck_assert_int_eq(gx_env_connect(env, &addr, GX_FOREVER), -ECONNREFUSED);
		lfd = gx_env_listen(env, &addr, 4);
		ck_assert_int_ge(lfd, 0);
		fd = gx_env_connect(env, &addr, GX_FOREVER);
		ck_assert_int_ge(fd, 0);
		sfd = accept_one(env, lfd);
		ck_assert_int_eq(write_all(env, fd, "x", 1), 0);
		gx_env_close(env, fd);
		ck_assert_int_eq(read_all(env, sfd, &got, 1, 1000), 0);
		ck_assert_int_eq(read_all(env, sfd, &got, 1, 1000), -ENODATA);
		gx_env_close(env, sfd);
		gx_env_close(env, lfd);
	}
}

START_TEST(mem_unix_and_loopback_addresses_connect)
{
	run_fn(a, other_families, NULL);
}
END_TEST

static void full_pipe(struct gx_env *env, void *arg)
{
	int lfd = listen_on(env, a, 9);
	int fd = connect_to(env, a, 9, 1000);
	int sfd = accept_one(env, lfd);
	char data[5000] = {0};
	struct iovec iov = {data, sizeof(data)};
	struct gx_pollfd p = {.fd = fd, .events = GX_WRITABLE};
	size_t sent = 0;
	ssize_t r;

	(void)arg;
	while ((r = gx_env_writev(env, fd, &iov, 1, GX_NOWAIT)) > 0)
		sent += (size_t)r;
	ck_assert_int_eq(r, -EAGAIN);
	ck_assert_uint_eq(sent, options.socket_buffer_bytes);
	ck_assert_int_eq(gx_env_writev(env, fd, &iov, 1, gx_env_deadline_ms(env, 5)), -ETIMEDOUT);
	ck_assert_int_eq(gx_env_poll(env, &p, 1, gx_env_deadline_ms(env, 5)), 0);
	ck_assert_int_gt(gx_env_readv(env, sfd, &iov, 1, GX_NOWAIT), 0);
	ck_assert_int_eq(gx_env_poll(env, &p, 1, GX_NOWAIT), 1);
	ck_assert_uint_eq(p.revents, GX_WRITABLE);
	/* Unread bytes: the peer is reset; without: it sees the end. */
	gx_env_close(env, sfd);
	p.events = GX_READABLE;
	ck_assert_int_eq(gx_env_poll(env, &p, 1, gx_env_deadline_ms(env, 5)), 1);
	ck_assert_int_eq(gx_env_readv(env, fd, &iov, 1, GX_NOWAIT), -ECONNRESET);
	ck_assert_int_eq(gx_env_writev(env, fd, &iov, 1, GX_NOWAIT), -ECONNRESET);
	ck_assert_int_eq(gx_env_writev(env, fd, &iov, 1, GX_NOWAIT), -EPIPE);
}

START_TEST(a_full_socket_blocks_and_closing_it_unread_resets_the_peer)
{
	run_fn(a, full_pipe, NULL);
}
END_TEST

static void set_later(void *arg)
{
	struct gx_env *env = gx_sim_env(gx_sim_current());

	sleep_ms(env, 10);
	gx_env_event_set(env, *(int *)arg);
}

static void event_poll(struct gx_env *env, void *arg)
{
	int fd = gx_env_event_open(env);
	struct gx_pollfd p = {.fd = fd, .events = GX_READABLE};
	struct gx_thread t;
	int64_t start_ns = gx_env_now_ns(env);

	(void)arg;
	ck_assert_int_eq(gx_env_thread_start(env, &t, "setter", set_later, &fd), 0);
	ck_assert_int_eq(gx_env_poll(env, &p, 1, gx_env_deadline_ms(env, 5)), 0);
	ck_assert_int_eq(gx_env_poll(env, &p, 1, gx_env_deadline_ms(env, 50)), 1);
	ck_assert_int_ge(gx_env_now_ns(env) - start_ns, 10 * GX_NSEC_PER_MSEC);
	ck_assert_int_eq(gx_env_event_clear(env, fd), 0);
	ck_assert_int_eq(gx_env_poll(env, &p, 1, GX_NOWAIT), 0);
	ck_assert_int_eq(gx_env_thread_join(env, &t), 0);
	ck_assert_int_eq(gx_env_close(env, fd), 0);
	ck_assert_int_eq(gx_env_event_set(env, fd), -EBADF);
}

START_TEST(poll_wakes_when_an_event_is_set)
{
	run_fn(a, event_poll, NULL);
}
END_TEST

/* -- time --------------------------------------------------------------------------- */

static void sleep_an_hour(struct gx_env *env, void *arg)
{
	int64_t start_ns = gx_env_now_ns(env);

	sleep_ms(env, 3599 * 1000);
	*(int64_t *)arg = gx_env_now_ns(env) - start_ns;
}

START_TEST(an_hour_of_sleep_takes_no_real_time)
{
	int64_t slept_ns = 0;
	struct timespec t0, t1;

	clock_gettime(CLOCK_MONOTONIC, &t0);
	run_fn(a, sleep_an_hour, &slept_ns);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	ck_assert_int_ge(slept_ns, 3599 * GX_NSEC_PER_SEC);
	ck_assert_int_lt(slept_ns, 3600 * GX_NSEC_PER_SEC);
	ck_assert_int_le(t1.tv_sec - t0.tv_sec, 10);
}
END_TEST

START_TEST(past_the_time_limit_the_run_ends_with_etimedout)
{
	int64_t slept_ns;

	world_close();
	options.time_limit_ns = GX_NSEC_PER_SEC;
	world_open(1);
	ck_assert_int_eq(gx_sim_run(sim, spawn(a, "p", sleep_an_hour, &slept_ns)), -ETIMEDOUT);
}
END_TEST

START_TEST(a_fast_clock_wakes_its_sleeper_early_and_wall_clocks_shift)
{
	int64_t slept_ns;
	int64_t start_ns = gx_sim_now_ns(sim);
	struct gx_sim_proc *pa;
	struct gx_sim_proc *pb;

	gx_sim_clock(a, 5 * GX_NSEC_PER_SEC, 100000); /* 10 % fast */
	pa = spawn(a, "fast", sleep_an_hour, &slept_ns);
	pb = spawn(b, "p", sleep_an_hour, &slept_ns);
	ck_assert_int_ge(gx_env_wall_ns(gx_sim_env(pa)) - gx_env_wall_ns(gx_sim_env(pb)),
			 4 * GX_NSEC_PER_SEC);
	run(pa);
	ck_assert(!gx_sim_proc_ended(pb));
	ck_assert_int_ge(slept_ns, 3599 * GX_NSEC_PER_SEC); /* as it saw it */
	ck_assert_int_lt(gx_sim_now_ns(sim) - start_ns, 3300 * GX_NSEC_PER_SEC);
}
END_TEST

/* -- threads ------------------------------------------------------------------------- */

struct counter {
	struct gx_mutex mutex;
	struct gx_cond cond;
	int value;
	int inside;
};

static void count_up(void *arg)
{
	struct counter *c = arg;
	struct gx_env *env = gx_sim_env(gx_sim_current());

	for (int i = 0; i < 100; i++) {
		gx_env_mutex_lock(env, &c->mutex);
		ck_assert_int_eq(c->inside++, 0);
		sleep_ms(env, 1);
		c->value++;
		ck_assert_int_eq(--c->inside, 0);
		gx_env_cond_signal(env, &c->cond);
		gx_env_mutex_unlock(env, &c->mutex);
	}
}

static void count_together(struct gx_env *env, void *arg)
{
	struct counter c = {.value = 0};
	struct gx_thread t[3];
	int r;

	(void)arg;
	ck_assert_int_eq(gx_env_mutex_init(env, &c.mutex), 0);
	ck_assert_int_eq(gx_env_cond_init(env, &c.cond), 0);
	for (size_t i = 0; i < GX_COUNT_OF(t); i++)
		ck_assert_int_eq(gx_env_thread_start(env, &t[i], "counter", count_up, &c), 0);
	gx_env_mutex_lock(env, &c.mutex);
	while (c.value < 300)
		(void)gx_env_cond_wait(env, &c.cond, &c.mutex, GX_FOREVER);
	do {
		int64_t deadline_ns = gx_env_deadline_ms(env, 7);

		r = gx_env_cond_wait(env, &c.cond, &c.mutex, deadline_ns);
		ck_assert(r == 0 || gx_env_now_ns(env) >= deadline_ns);
	} while (r == 0);
	ck_assert_int_eq(r, -ETIMEDOUT);
	gx_env_mutex_unlock(env, &c.mutex);
	for (size_t i = 0; i < GX_COUNT_OF(t); i++)
		ck_assert_int_eq(gx_env_thread_join(env, &t[i]), 0);
	gx_env_cond_fini(env, &c.cond);
	gx_env_mutex_fini(env, &c.mutex);
}

START_TEST(a_mutex_excludes_and_a_condition_wakes_or_times_out)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		world_close();
		world_open(seed);
		run_fn(a, count_together, NULL);
	}
}
END_TEST

static void lock_forever(struct gx_env *env, void *arg)
{
	struct gx_mutex m;
	struct gx_cond c;

	(void)arg;
	ck_assert_int_eq(gx_env_mutex_init(env, &m), 0);
	ck_assert_int_eq(gx_env_cond_init(env, &c), 0);
	gx_env_mutex_lock(env, &m);
	for (;;)
		(void)gx_env_cond_wait(env, &c, &m, GX_FOREVER);
}

START_TEST(when_everybody_waits_the_run_reports_a_deadlock)
{
	char text[400] = "";
	FILE *saved = stderr;
	FILE *f = fmemopen(text, sizeof(text), "w");
	struct gx_sim_proc *proc = spawn(a, "stuck", lock_forever, NULL);
	int r;

	stderr = f;
	r = gx_sim_run(sim, proc);
	stderr = saved;
	fclose(f);
	ck_assert_int_eq(r, -EDEADLK);
	ck_assert_ptr_nonnull(strstr(text, "a/stuck/main: condition"));
}
END_TEST

/* -- kill, stop, partition, cut --------------------------------------------------------- */

static void wait_ms(struct gx_env *env, void *arg)
{
	sleep_ms(env, *(uint64_t *)arg);
}

static void kill_self(struct gx_env *env, void *arg)
{
	ck_assert_int_ge(listen_on(env, a, 3), 0);
	*(int *)arg = 1;
	gx_sim_kill(gx_sim_current());
	*(int *)arg = 2;
}

START_TEST(a_process_can_kill_itself_and_its_port_is_free_again)
{
	int step = 0;

	run_fn(a, kill_self, &step);
	ck_assert_int_eq(step, 1);
	run_fn(a, kill_self, &step);
}
END_TEST

START_TEST(a_killed_server_ends_the_clients_connection)
{
	struct exchange x = {.rounds = 1000000};
	struct gx_sim_proc *server = spawn(b, "server", echo_server, b);
	struct gx_sim_proc *client = spawn(a, "client", echo_client, &x);
	uint64_t ms = 1;

	while (x.done < 10)
		run_fn(a, wait_ms, &ms);
	gx_sim_kill(server);
	ck_assert(gx_sim_proc_ended(server));
	run(client);
	ck_assert(x.err == -ENODATA || x.err == -ECONNRESET || x.err == -EPIPE);
}
END_TEST

START_TEST(a_stopped_process_does_nothing_until_continued)
{
	struct exchange x = {.rounds = 1000};
	struct gx_sim_proc *server = spawn(b, "server", echo_server, b);
	struct gx_sim_proc *client = spawn(a, "client", echo_client, &x);
	uint64_t ms = 20;
	int done;

	run_fn(a, wait_ms, &ms);
	ck_assert_int_gt(x.done, 0);
	gx_sim_stop(server);
	run_fn(a, wait_ms, &ms);
	done = x.done;
	run_fn(a, wait_ms, &ms);
	ck_assert_int_eq(x.done, done);
	gx_sim_continue(server);
	run(client);
	ck_assert_int_eq(x.done, x.rounds);
}
END_TEST

static void partition_for(uint64_t ms, struct exchange *x)
{
	struct gx_sim_proc *client;
	uint64_t start_ms = 20;

	spawn(b, "server", echo_server, b);
	client = spawn(a, "client", echo_client, x);
	run_fn(a, wait_ms, &start_ms);
	gx_sim_partition(a, b, true);
	run_fn(a, wait_ms, &ms);
	ck_assert(!gx_sim_proc_ended(client));
	gx_sim_partition(a, b, false);
	run(client);
}

START_TEST(after_a_short_partition_the_connection_goes_on)
{
	struct exchange x = {.rounds = 1000};

	partition_for(1000, &x);
	ck_assert_int_eq(x.err, 0);
	ck_assert_int_eq(x.done, x.rounds);
}
END_TEST

START_TEST(after_a_long_partition_the_connection_is_reset)
{
	struct exchange x = {.rounds = 1000};

	world_close();
	options.partition_reset_ns = 5 * GX_NSEC_PER_SEC;
	world_open(1);
	partition_for(6000, &x);
	ck_assert_int_eq(x.err, -ECONNRESET);
}
END_TEST

static void connect_expecting(struct gx_env *env, void *arg)
{
	int fd = connect_to(env, b, 7, 3000);

	*(int *)arg = fd < 0 ? fd : 0;
}

START_TEST(connect_is_refused_unreachable_or_times_out)
{
	int r = 1;

	run_fn(a, connect_expecting, &r);
	ck_assert_int_eq(r, -ECONNREFUSED);
	gx_sim_partition(a, b, true);
	run_fn(a, connect_expecting, &r);
	ck_assert_int_eq(r, -ETIMEDOUT);
	gx_sim_partition(a, b, false);
	gx_sim_power_cut(b);
	run_fn(a, connect_expecting, &r);
	ck_assert_int_eq(r, -ETIMEDOUT);
	spawn(b, "server", echo_server, b);
	run_fn(a, connect_expecting, &r);
	ck_assert_int_eq(r, 0);
}
END_TEST

START_TEST(reset_links_reaches_both_ends_at_once)
{
	struct exchange x = {.rounds = 1000000};
	struct gx_sim_proc *client;
	uint64_t ms = 20;

	spawn(b, "server", echo_server, b);
	client = spawn(a, "client", echo_client, &x);
	run_fn(a, wait_ms, &ms);
	gx_sim_reset_links(a, b);
	run(client);
	ck_assert_int_eq(x.err, -ECONNRESET);
	x = (struct exchange){.rounds = 5};
	run_fn(a, echo_client, &x);
	ck_assert_int_eq(x.done, 5);
}
END_TEST

START_TEST(after_a_power_cut_the_peer_hears_nothing_until_the_host_is_back)
{
	struct exchange x = {.rounds = 1000000};
	struct gx_sim_proc *client;
	uint64_t ms = 20;

	spawn(b, "server", echo_server, b);
	client = spawn(a, "client", echo_client, &x);
	run_fn(a, wait_ms, &ms);
	gx_sim_power_cut(b);
	ms = 5000;
	run_fn(a, wait_ms, &ms);
	ck_assert(!gx_sim_proc_ended(client));
	ms = 0;
	run_fn(b, wait_ms, &ms); /* boots */
	run(client);
	ck_assert(x.err == -ECONNRESET || x.err == -ETIMEDOUT);
}
END_TEST

/* Cuts one exchange of two records at each byte; what passed is exactly what was allowed. */
START_TEST(a_cut_lets_exactly_the_given_bytes_pass)
{
	enum gx_sim_direction d = (enum gx_sim_direction)_i;

	for (uint64_t cut = 0; cut <= 200; cut++) {
		struct exchange x = {.rounds = 2};

		world_close();
		world_open(cut + 1);
		gx_sim_cut_after(sim, d, cut);
		spawn(b, "server", echo_server, b);
		run(spawn(a, "client", echo_client, &x));
		ck_assert_uint_eq(gx_sim_bytes(sim, d), cut);
		if (d == GX_SIM_TO_CLIENT)
			ck_assert_int_eq(x.done, (int)(cut / 100));
		else
			ck_assert_int_le(x.done, (int)(cut / 100));
	}
}
END_TEST

/* -- disk ---------------------------------------------------------------------------------- */

static int file_open(struct gx_env *env, const char *path)
{
	int fd = gx_env_open(env, path, O_RDWR | O_CREAT, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void file_basics(struct gx_env *env, void *arg)
{
	int fd = file_open(env, "/f");
	struct stat st;
	char buf[16];
	int fd2;

	(void)arg;
	ck_assert_int_eq(gx_env_open(env, "/f", O_RDWR | O_CREAT | O_EXCL, 0600), -EEXIST);
	ck_assert_int_eq(gx_env_open(env, "/no/f", O_RDWR | O_CREAT, 0600), -ENOENT);
	ck_assert_int_eq(gx_env_pwrite(env, fd, "abc", 3, 10000), 0);
	ck_assert_int_eq(gx_env_fstat(env, fd, &st), 0);
	ck_assert_int_eq(st.st_size, 10003);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	ck_assert_uint_eq(st.st_uid, getuid());
	ck_assert_int_eq(gx_env_pread(env, fd, buf, 16, 9999), 4);
	ck_assert_mem_eq(buf, "\0abc", 4);
	ck_assert_int_eq(
		gx_env_fallocate(env, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10001, 1), 0);
	ck_assert_int_eq(gx_env_pread(env, fd, buf, 16, 10000), 3);
	ck_assert_mem_eq(buf, "a\0c", 3);
	ck_assert_int_eq(gx_env_ftruncate(env, fd, 10001), 0);
	ck_assert_int_eq(gx_env_ftruncate(env, fd, 20000), 0);
	ck_assert_int_eq(gx_env_pread(env, fd, buf, 4, 10000), 4);
	ck_assert_mem_eq(buf, "a\0\0\0", 4);

	ck_assert_int_eq(gx_env_lock_file(env, fd), 0);
	fd2 = gx_env_open(env, "/f", O_RDONLY, 0);
	ck_assert_int_eq(gx_env_lock_file(env, fd2), -EAGAIN);
	ck_assert_int_eq(gx_env_pwrite(env, fd2, "x", 1, 0), -EBADF);
	ck_assert_int_eq(gx_env_unlink(env, "/f"), 0);
	ck_assert_int_eq(gx_env_stat(env, "/f", &st), -ENOENT);
	ck_assert_int_eq(gx_env_pread(env, fd2, buf, 1, 10000), 1);
	gx_env_close(env, fd);
	ck_assert_int_eq(gx_env_lock_file(env, fd2), 0);
}

START_TEST(files_are_sparse_lockable_and_outlive_their_name)
{
	run_fn(a, file_basics, NULL);
}
END_TEST

static int count_name(void *arg, const char *name)
{
	(void)name;
	++*(int *)arg;
	return 0;
}

static void dir_basics(struct gx_env *env, void *arg)
{
	struct stat st;
	int names = 0;

	(void)arg;
	ck_assert_int_eq(gx_env_mkdir(env, "/d", 0700), 0);
	ck_assert_int_eq(gx_env_mkdir(env, "/d", 0700), -EEXIST);
	ck_assert_int_eq(gx_env_mkdir(env, "/d/e", 0700), 0);
	gx_env_close(env, file_open(env, "/d/e/../f"));
	ck_assert_int_eq(gx_env_rename(env, "/d", "/d/e/x"), -EINVAL);
	ck_assert_int_eq(gx_env_rename(env, "/d/f", "/d/e"), -EISDIR);
	ck_assert_int_eq(gx_env_rename(env, "/d/f", "/d/e/g"), 0);
	ck_assert_int_eq(gx_env_rmdir(env, "/d/e"), -ENOTEMPTY);
	ck_assert_int_eq(gx_env_unlink(env, "/d/e"), -EISDIR);
	ck_assert_int_eq(gx_env_rename(env, "/d/e", "/e"), 0);
	ck_assert_int_eq(gx_env_stat(env, "/e/g", &st), 0);
	ck_assert_int_eq(gx_env_list_dir(env, "/", count_name, &names), 0);
	ck_assert_int_eq(names, 2);
	ck_assert_int_eq(gx_env_rmdir(env, "/d"), 0);
	ck_assert_int_eq(gx_env_stat(env, "/e/g/h", &st), -ENOTDIR);
}

START_TEST(directories_rename_list_and_refuse_as_on_linux)
{
	run_fn(a, dir_basics, NULL);
}
END_TEST

#define DISK_SECTORS 64u
#define SECTOR 512u

static void fill_sectors(struct gx_env *env, int fd, int value)
{
	char sector[SECTOR];

	memset(sector, value, sizeof(sector));
	for (unsigned i = 0; i < DISK_SECTORS; i++)
		ck_assert_int_eq(gx_env_pwrite(env, fd, sector, SECTOR, i * SECTOR), 0);
}

static void write_and_lose_power(struct gx_env *env, void *arg)
{
	int fd = file_open(env, "/data");

	(void)arg;
	fill_sectors(env, fd, 1);
	ck_assert_int_eq(gx_env_fdatasync(env, fd), 0);
	ck_assert_int_eq(gx_env_sync_dir(env, "/"), 0);
	fill_sectors(env, fd, 2);
	gx_env_close(env, file_open(env, "/unsynced1"));
	gx_env_close(env, file_open(env, "/unsynced2"));
	gx_sim_power_cut(a);
}

struct found {
	unsigned old, fresh;
	bool first, second;
};

static void look_after_cut(struct gx_env *env, void *arg)
{
	struct found *found = arg;
	int fd = gx_env_open(env, "/data", O_RDONLY, 0);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gx_env_fstat(env, fd, &st), 0);
	ck_assert_int_eq(st.st_size, DISK_SECTORS * SECTOR);
	for (unsigned i = 0; i < DISK_SECTORS; i++) {
		char sector[SECTOR];

		ck_assert_int_eq(gx_env_pread(env, fd, sector, SECTOR, i * SECTOR), SECTOR);
		ck_assert(sector[0] == 1 || sector[0] == 2);
		ck_assert(memcmp(sector, sector + 1, SECTOR - 1) == 0);
		*(sector[0] == 1 ? &found->old : &found->fresh) += 1;
	}
	found->first = gx_env_stat(env, "/unsynced1", &st) == 0;
	found->second = gx_env_stat(env, "/unsynced2", &st) == 0;
	ck_assert(found->first || !found->second); /* a prefix */
}

START_TEST(a_power_cut_loses_only_what_was_not_synced_by_sectors)
{
	unsigned old = 0, fresh = 0, first = 0, second = 0;

	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct found found = {0};

		world_close();
		world_open(seed);
		run_fn(a, write_and_lose_power, NULL);
		run_fn(a, look_after_cut, &found);
		old += found.old;
		fresh += found.fresh;
		first += found.first;
		second += found.second;
	}
	ck_assert_uint_gt(old, 300);
	ck_assert_uint_gt(fresh, 300);
	ck_assert_uint_gt(first, second);
	ck_assert_uint_lt(first, 30);
	ck_assert_uint_gt(second, 0);
}
END_TEST

static void truncate_and_lose_power(struct gx_env *env, void *arg)
{
	int fd = file_open(env, "/data");

	(void)arg;
	fill_sectors(env, fd, 1);
	ck_assert_int_eq(gx_env_fsync(env, fd), 0);
	ck_assert_int_eq(gx_env_sync_dir(env, "/"), 0);
	ck_assert_int_eq(gx_env_ftruncate(env, fd, 1000), 0);
	gx_sim_power_cut(a);
}

static void look_after_truncate(struct gx_env *env, void *arg)
{
	int fd = gx_env_open(env, "/data", O_RDONLY, 0);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gx_env_fstat(env, fd, &st), 0);
	ck_assert(st.st_size == 1000 || st.st_size == DISK_SECTORS * SECTOR);
	*(int *)arg += st.st_size == 1000;
	for (off_t at = 0; at < st.st_size; at += 100) {
		char byte;

		ck_assert_int_eq(gx_env_pread(env, fd, &byte, 1, (uint64_t)at), 1);
		ck_assert_int_eq(byte, 1);
	}
}

START_TEST(an_unsynced_truncation_happened_or_did_not)
{
	int happened = 0;

	for (uint64_t seed = 1; seed <= 30; seed++) {
		world_close();
		world_open(seed);
		run_fn(a, truncate_and_lose_power, NULL);
		run_fn(a, look_after_truncate, &happened);
	}
	ck_assert_int_gt(happened, 0);
	ck_assert_int_lt(happened, 30);
}
END_TEST

static void append_and_lose_power(struct gx_env *env, void *arg)
{
	int fd = file_open(env, "/log");
	char sector[SECTOR];

	(void)arg;
	memset(sector, 7, sizeof(sector));
	ck_assert_int_eq(gx_env_sync_dir(env, "/"), 0);
	for (unsigned i = 0; i < 40; i++) {
		ck_assert_int_eq(gx_env_pwrite(env, fd, sector, 100, i * 100), 0);
		if (i == 19)
			ck_assert_int_eq(gx_env_fdatasync(env, fd), 0);
	}
	gx_sim_power_cut(a);
}

static void look_after_append(struct gx_env *env, void *arg)
{
	int fd = gx_env_open(env, "/log", O_RDONLY, 0);
	struct stat st;
	char byte;

	(void)arg;
	ck_assert_int_eq(gx_env_fstat(env, fd, &st), 0);
	ck_assert(st.st_size >= 2000 && st.st_size <= 4000);
	for (uint64_t at = 0; at < (uint64_t)st.st_size; at++) {
		ck_assert_int_eq(gx_env_pread(env, fd, &byte, 1, at), 1);
		ck_assert(byte == 7 || (byte == 0 && at >= 2000));
	}
}

START_TEST(synced_bytes_of_a_growing_file_survive_every_power_cut)
{
	for (uint64_t seed = 1; seed <= 30; seed++) {
		world_close();
		world_open(seed);
		run_fn(a, append_and_lose_power, NULL);
		run_fn(a, look_after_append, NULL);
	}
}
END_TEST

static void write_and_get_killed(struct gx_env *env, void *arg)
{
	int fd = file_open(env, "/data");

	(void)arg;
	ck_assert_int_eq(gx_env_lock_file(env, fd), 0);
	ck_assert_int_eq(gx_env_pwrite(env, fd, "kept", 4, 0), 0);
	gx_sim_kill(gx_sim_current());
}

static void look_after_kill(struct gx_env *env, void *arg)
{
	int fd = gx_env_open(env, "/data", O_RDWR, 0);
	char buf[5] = "";

	(void)arg;
	ck_assert_int_eq(gx_env_lock_file(env, fd), 0);
	ck_assert_int_eq(gx_env_pread(env, fd, buf, 4, 0), 4);
	ck_assert_str_eq(buf, "kept");
}

START_TEST(a_kill_keeps_what_was_written_and_drops_the_locks)
{
	run_fn(a, write_and_get_killed, NULL);
	run_fn(a, look_after_kill, NULL);
}
END_TEST

static void fill_disk(struct gx_env *env, void *arg)
{
	int fd = file_open(env, "/big");
	char block[4096] = {0};
	uint64_t at = 0;
	int r;

	(void)arg;
	while ((r = gx_env_pwrite(env, fd, block, sizeof(block), at)) == 0)
		at += sizeof(block);
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_eq(at, 1048576);
	ck_assert_int_eq(gx_env_pwrite(env, fd, block, sizeof(block), 0), 0);
	ck_assert_int_eq(gx_env_fallocate(env, fd, 0, at, 4096), -ENOSPC);
	ck_assert_int_eq(gx_env_ftruncate(env, fd, 0), 0);
	ck_assert_int_eq(gx_env_fallocate(env, fd, 0, 0, 1048576), 0);
	ck_assert_int_eq(gx_env_pwrite(env, fd, block, 1, 1048576), -ENOSPC);
	gx_env_close(env, fd);
	ck_assert_int_eq(gx_env_unlink(env, "/big"), 0);
	ck_assert_int_eq(gx_env_sync_dir(env, "/"), 0);
	fd = file_open(env, "/next");
	ck_assert_int_eq(gx_env_pwrite(env, fd, block, sizeof(block), 0), 0);
}

START_TEST(a_full_disk_gives_enospc_until_space_is_freed)
{
	gx_sim_disk_limit(a, 1048576);
	run_fn(a, fill_disk, NULL);
}
END_TEST

START_TEST(a_flipped_bit_is_read_back)
{
	struct found found = {0};

	run_fn(a, write_and_get_killed, NULL);
	ck_assert_int_eq(gx_sim_flip_bit(a, "/data", 8), 0);
	ck_assert_int_eq(gx_sim_flip_bit(a, "/data", 8), 0);
	run_fn(a, look_after_kill, &found);
	ck_assert_int_eq(gx_sim_flip_bit(a, "/data", 32), -ENOENT);
	ck_assert_int_eq(gx_sim_flip_bit(a, "/none", 0), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_sim");
	TCase *tc = tcase_create("gx_sim");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, world_close);
	tcase_add_test(tc, equal_seeds_replay_exactly_and_others_differ);
	tcase_add_test(tc, both_ends_agree_on_their_names);
	tcase_add_test(tc, mem_unix_and_loopback_addresses_connect);
	tcase_add_test(tc, a_full_socket_blocks_and_closing_it_unread_resets_the_peer);
	tcase_add_test(tc, poll_wakes_when_an_event_is_set);
	tcase_add_test(tc, an_hour_of_sleep_takes_no_real_time);
	tcase_add_test(tc, past_the_time_limit_the_run_ends_with_etimedout);
	tcase_add_test(tc, a_fast_clock_wakes_its_sleeper_early_and_wall_clocks_shift);
	tcase_add_test(tc, a_mutex_excludes_and_a_condition_wakes_or_times_out);
	tcase_add_test(tc, when_everybody_waits_the_run_reports_a_deadlock);
	tcase_add_test(tc, a_process_can_kill_itself_and_its_port_is_free_again);
	tcase_add_test(tc, a_killed_server_ends_the_clients_connection);
	tcase_add_test(tc, a_stopped_process_does_nothing_until_continued);
	tcase_add_test(tc, after_a_short_partition_the_connection_goes_on);
	tcase_add_test(tc, after_a_long_partition_the_connection_is_reset);
	tcase_add_test(tc, connect_is_refused_unreachable_or_times_out);
	tcase_add_test(tc, reset_links_reaches_both_ends_at_once);
	tcase_add_test(tc, after_a_power_cut_the_peer_hears_nothing_until_the_host_is_back);
	tcase_add_loop_test(tc, a_cut_lets_exactly_the_given_bytes_pass, 0, GX_SIM_DIRECTION_COUNT);
	tcase_add_test(tc, files_are_sparse_lockable_and_outlive_their_name);
	tcase_add_test(tc, directories_rename_list_and_refuse_as_on_linux);
	tcase_add_test(tc, a_power_cut_loses_only_what_was_not_synced_by_sectors);
	tcase_add_test(tc, an_unsynced_truncation_happened_or_did_not);
	tcase_add_test(tc, synced_bytes_of_a_growing_file_survive_every_power_cut);
	tcase_add_test(tc, a_kill_keeps_what_was_written_and_drops_the_locks);
	tcase_add_test(tc, a_full_disk_gives_enospc_until_space_is_freed);
	tcase_add_test(tc, a_flipped_bit_is_read_back);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
