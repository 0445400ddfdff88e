/*
 * Whole programs in the simulation: processes that allocate, hold locks and run threads
 * are killed at any moment, and nothing of theirs stays. Linked with sim_alloc.c; the leak
 * check of the ASan build is part of what is tested here.
 *
 * SIM_SEEDS=n runs more seeds; each failure names its seed.
 */
#include "common/gx_loop.h"
#include "common/gx_num.h"
#include "common/gx_sim.h"
#include "tests/lib/sim_alloc.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#define WORKERS 3
#define LOG_RECORD 64u

static uint64_t seeds(uint64_t normal)
{
	const char *text = getenv("SIM_SEEDS");
	uint64_t n;

	return text != NULL && gx_parse_u64(text, &n) == 0 ? n : normal;
}

/* -- a server on a loop: one line of 8 bytes in, a number 8 bytes out ------------------- */

struct server {
	struct gx_env *env;
	struct gx_loop *loop;
	struct gx_io listen_io;
	char *state; /* something that only a clean end would free */
};

struct conn {
	struct gx_io io;
	struct server *server;
	unsigned char got[8];
	size_t got_bytes;
};

static void conn_close(struct conn *conn)
{
	int fd = conn->io.fd;

	gx_io_stop(&conn->io);
	gx_env_close(conn->server->env, fd);
	free(conn);
}

static void conn_ready(struct gx_io *io, unsigned events)
{
	struct conn *conn = GX_CONTAINER_OF(io, struct conn, io);
	struct gx_env *env = conn->server->env;
	struct iovec iov = {conn->got + conn->got_bytes, sizeof(conn->got) - conn->got_bytes};
	ssize_t r = gx_env_readv(env, io->fd, &iov, 1, GX_NOWAIT);

	(void)events;
	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		conn_close(conn);
		return;
	}
	conn->got_bytes += (size_t)r;
	if (conn->got_bytes < sizeof(conn->got))
		return;
	gx_put_le64(conn->got, gx_get_le64(conn->got) + 1);
	conn->got_bytes = 0;
	for (size_t done = 0; done < sizeof(conn->got); done += (size_t)r) {
		iov = (struct iovec){conn->got + done, sizeof(conn->got) - done};
		r = gx_env_writev(env, io->fd, &iov, 1, gx_env_deadline_ms(env, 1000));
		if (r < 0) {
			conn_close(conn);
			return;
		}
	}
}

static void listen_ready(struct gx_io *io, unsigned events)
{
	struct server *server = GX_CONTAINER_OF(io, struct server, listen_io);
	int fd = gx_env_accept(server->env, io->fd);
	struct conn *conn;

	(void)events;
	if (fd < 0)
		return;
	conn = calloc(1, sizeof(*conn));
	conn->server = server;
	ck_assert_int_eq(gx_io_start(server->loop, &conn->io, fd, GX_READABLE, conn_ready), 0);
}

static void background(void *arg)
{
	struct server *server = arg;

	for (;;) {
		char *work = strdup("work in progress");

		gx_env_sleep_until(server->env, gx_env_deadline_ms(server->env, 3));
		free(work);
	}
}

static void server_main(struct gx_env *env, void *arg)
{
	struct server server = {.env = env};
	struct gx_thread t;
	struct gx_addr addr;
	int fd;

	(void)arg;
	server.state = malloc(1000);
	ck_assert_int_eq(gx_addr_parse(env, "mem:server:1", &addr, NULL), 0);
	ck_assert_int_eq(gx_loop_new(env, &server.loop), 0);
	fd = gx_env_listen(env, &addr, 8);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gx_io_start(server.loop, &server.listen_io, fd, GX_READABLE, listen_ready),
			 0);
	ck_assert_int_eq(gx_env_thread_start(env, &t, "background", background, &server), 0);
	gx_loop_run(server.loop);
}

/* -- clients: reconnect as often as it takes ------------------------------------------------ */

static int call_once(struct gx_env *env, int fd, uint64_t value)
{
	unsigned char data[8];
	int64_t deadline_ns = gx_env_deadline_ms(env, 500);
	ssize_t r;

	gx_put_le64(data, value);
	for (size_t done = 0; done < sizeof(data); done += (size_t)r) {
		struct iovec iov = {data + done, sizeof(data) - done};

		r = gx_env_writev(env, fd, &iov, 1, deadline_ns);
		if (r < 0)
			return (int)r;
	}
	for (size_t done = 0; done < sizeof(data); done += (size_t)r) {
		struct iovec iov = {data + done, sizeof(data) - done};

		r = gx_env_readv(env, fd, &iov, 1, deadline_ns);
		if (r <= 0)
			return r < 0 ? (int)r : -EPIPE;
	}
	ck_assert_uint_eq(gx_get_le64(data), value + 1);
	return 0;
}

static void client_main(struct gx_env *env, void *arg)
{
	struct gx_addr addr;
	uint64_t calls = *(uint64_t *)arg;
	int fd = -1;

	ck_assert_int_eq(gx_addr_parse(env, "mem:server:1", &addr, NULL), 0);
	for (uint64_t i = 0; i < calls;) {
		if (fd < 0)
			fd = gx_env_connect(env, &addr, gx_env_deadline_ms(env, 500));
		if (fd < 0) {
			gx_env_sleep_until(env, gx_env_deadline_ms(env, 2));
			continue;
		}
		if (call_once(env, fd, i) == 0) {
			i++;
		} else {
			gx_env_close(env, fd);
			fd = -1;
		}
	}
	gx_env_close(env, fd);
}

struct cluster {
	struct gx_sim *sim;
	struct gx_sim_host *server_host, *client_host;
	struct gx_sim_proc *server;
};

static void cluster_open(struct cluster *c, uint64_t seed)
{
	struct gx_sim_options options = GX_SIM_OPTIONS_INIT;

	options.seed = seed;
	ck_assert_int_eq(gx_sim_new(&options, &c->sim), 0);
	ck_assert_int_eq(gx_sim_host_new(c->sim, "server", &c->server_host), 0);
	ck_assert_int_eq(gx_sim_host_new(c->sim, "client", &c->client_host), 0);
	ck_assert_int_eq(gx_sim_spawn(c->server_host, "server", server_main, NULL, &c->server), 0);
}

/* Kills, stops, cuts and heals for a while; the last act leaves everything working. */
static void chaos_main(struct gx_env *env, void *arg)
{
	struct cluster *c = arg;

	for (int i = 0; i < 20; i++) {
		uint64_t dice = gx_sim_random_below(c->sim, 5);

		gx_env_sleep_until(env, gx_env_deadline_ms(env, gx_sim_random_below(c->sim, 30)));
		gx_sim_continue(c->server);
		gx_sim_partition(c->server_host, c->client_host, dice == 0);
		if (dice == 1)
			gx_sim_stop(c->server);
		else if (dice == 2)
			gx_sim_reset_links(c->server_host, c->client_host);
		else if (dice == 3)
			gx_sim_kill(c->server);
		else if (dice == 4)
			gx_sim_power_cut(c->server_host);
		if (gx_sim_proc_ended(c->server))
			ck_assert_int_eq(gx_sim_spawn(c->server_host, "server", server_main, NULL,
						      &c->server),
					 0);
	}
	gx_sim_continue(c->server);
	gx_sim_partition(c->server_host, c->client_host, false);
}

static uint64_t chaos_run(uint64_t seed)
{
	struct cluster c;
	struct gx_sim_proc *client[WORKERS];
	struct gx_sim_host *elsewhere;
	uint64_t calls = 200;
	uint64_t trace;

	cluster_open(&c, seed);
	ck_assert_int_eq(gx_sim_host_new(c.sim, "elsewhere", &elsewhere), 0);
	ck_assert_int_eq(gx_sim_spawn(elsewhere, "chaos", chaos_main, &c, NULL), 0);
	for (size_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(
			gx_sim_spawn(c.client_host, "client", client_main, &calls, &client[i]), 0);
	for (size_t i = 0; i < WORKERS; i++)
		ck_assert_msg(gx_sim_run(c.sim, client[i]) == 0, "seed %llu",
			      (unsigned long long)seed);
	trace = gx_sim_trace(c.sim);
	gx_sim_free(c.sim);
	return trace;
}

START_TEST(clients_get_right_answers_through_any_weather)
{
	for (uint64_t seed = 1; seed <= seeds(100); seed++)
		(void)chaos_run(seed);
}
END_TEST

START_TEST(a_chaotic_run_replays_exactly)
{
	for (uint64_t seed = 1; seed <= 10; seed++)
		ck_assert_uint_eq(chaos_run(seed), chaos_run(seed));
}
END_TEST

/* -- memory of the dead ---------------------------------------------------------------------- */

static void hoarder_main(struct gx_env *env, void *arg)
{
	struct gx_mutex m;
	char *line = NULL;
	size_t line_bytes = 0;
	FILE *f = fmemopen((char[]){"from libc\n"}, 10, "r");

	(void)arg;
	/* A block that libc made must survive our free(). */
	ck_assert_int_gt(getline(&line, &line_bytes, f), 0);
	free(line);
	fclose(f);
	ck_assert_int_eq(gx_env_mutex_init(env, &m), 0);
	gx_env_mutex_lock(env, &m);
	for (size_t i = 1;; i++) {
		char *p = malloc(i);
		char *q = calloc(1, i);

		p = realloc(p, 3 * i);
		ck_assert(p != NULL && q != NULL && strdup("x") != NULL);
		if (i % 2 == 0)
			free(p);
		gx_env_sleep_until(env, gx_env_deadline_ms(env, 1));
	}
}

static void ticker_main(struct gx_env *env, void *arg)
{
	gx_env_sleep_until(env, gx_env_deadline_ms(env, *(uint64_t *)arg));
}

START_TEST(a_killed_process_leaves_no_memory_behind)
{
	for (uint64_t ms = 1; ms < 50; ms++) {
		struct cluster c;
		struct gx_sim_proc *hoarder;
		struct gx_sim_proc *ticker;

		cluster_open(&c, ms);
		ck_assert_int_eq(gx_sim_spawn(c.server_host, "h", hoarder_main, NULL, &hoarder), 0);
		ck_assert_int_eq(gx_sim_spawn(c.client_host, "t", ticker_main, &ms, &ticker), 0);
		ck_assert_int_eq(gx_sim_run(c.sim, ticker), 0);
		ck_assert_uint_ge(sim_alloc_blocks(hoarder), ms / 2);
		gx_sim_kill(hoarder);
		ck_assert_uint_eq(sim_alloc_blocks(hoarder), 0);
		gx_sim_free(c.sim);
	}
}
END_TEST

/* -- a log that promises: what was acknowledged survives a power cut ----------------------------
 */

struct journal {
	bool careless; /* acknowledges before the sync: the test must notice */
	uint64_t acknowledged;
};

static void journal_main(struct gx_env *env, void *arg)
{
	struct journal *j = arg;
	unsigned char record[LOG_RECORD] = {0};
	int fd = gx_env_open(env, "/log", O_RDWR | O_CREAT, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gx_env_sync_dir(env, "/"), 0);
	for (uint64_t i = 0;; i++) {
		gx_put_le64(record, i + 1);
		ck_assert_int_eq(gx_env_pwrite(env, fd, record, sizeof(record), i * LOG_RECORD), 0);
		if (j->careless)
			j->acknowledged = i + 1;
		ck_assert_int_eq(gx_env_fdatasync(env, fd), 0);
		j->acknowledged = i + 1;
	}
}

struct recovery {
	uint64_t records;
};

static void recovery_main(struct gx_env *env, void *arg)
{
	struct recovery *rec = arg;
	unsigned char record[LOG_RECORD];
	int fd = gx_env_open(env, "/log", O_RDONLY, 0);

	if (fd < 0)
		return;
	while (gx_env_pread(env, fd, record, sizeof(record), rec->records * LOG_RECORD) ==
		       LOG_RECORD &&
	       gx_get_le64(record) == rec->records + 1)
		rec->records++;
}

/* Returns how many acknowledged records were lost. */
static uint64_t journal_run(uint64_t seed, bool careless)
{
	struct cluster c;
	struct journal j = {.careless = careless};
	struct recovery rec = {0};
	struct gx_sim_proc *proc;
	uint64_t ms;

	cluster_open(&c, seed);
	ms = gx_sim_random_below(c.sim, 20);
	ck_assert_int_eq(gx_sim_spawn(c.server_host, "journal", journal_main, &j, NULL), 0);
	ck_assert_int_eq(gx_sim_spawn(c.client_host, "ticker", ticker_main, &ms, &proc), 0);
	ck_assert_int_eq(gx_sim_run(c.sim, proc), 0);
	gx_sim_power_cut(c.server_host);
	ck_assert_int_eq(gx_sim_spawn(c.server_host, "recovery", recovery_main, &rec, &proc), 0);
	ck_assert_int_eq(gx_sim_run(c.sim, proc), 0);
	gx_sim_free(c.sim);
	return j.acknowledged > rec.records ? j.acknowledged - rec.records : 0;
}

START_TEST(acknowledged_records_survive_and_a_careless_log_is_caught)
{
	uint64_t lost = 0;

	for (uint64_t seed = 1; seed <= seeds(200); seed++) {
		ck_assert_uint_eq(journal_run(seed, false), 0);
		lost += journal_run(seed, true);
	}
	ck_assert_uint_gt(lost, 0);
}
END_TEST

/* -- speed, printed for the record
 * ----------------------------------------------------------------- */

START_TEST(speed_is_printed)
{
	struct cluster c;
	struct gx_sim_proc *client;
	struct timespec t0, t1;
	uint64_t calls = 20000;
	double sec;

	cluster_open(&c, 1);
	ck_assert_int_eq(gx_sim_spawn(c.client_host, "client", client_main, &calls, &client), 0);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	ck_assert_int_eq(gx_sim_run(c.sim, client), 0);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	sec = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
	printf("%.0f switches/s, %.0f messages/s, %.0f virtual s per s\n",
	       (double)gx_sim_switches(c.sim) / sec, (double)(2 * calls) / sec,
	       (double)gx_sim_now_ns(c.sim) / 1e9 / sec);
	gx_sim_free(c.sim);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_basics");
	TCase *tc = tcase_create("sim_basics");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, clients_get_right_answers_through_any_weather);
	tcase_add_test(tc, a_chaotic_run_replays_exactly);
	tcase_add_test(tc, a_killed_process_leaves_no_memory_behind);
	tcase_add_test(tc, acknowledged_records_survive_and_a_careless_log_is_caught);
	tcase_add_test(tc, speed_is_printed);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
