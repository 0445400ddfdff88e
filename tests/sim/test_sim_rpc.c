/*
 * The real rpc client and server in the simulation: whatever happens to connections, a mutation
 * is done once, an answer is true, a deadline holds.
 *
 * SIM_SEEDS=n runs more seeds; each failure names its seed and the cut.
 */
#include "tests/lib/sim_grid.h"
#include <check.h>
#include <stdio.h>

/* How one exchange is run; each is repeated for every point of loss. */
struct mode {
	const char *name;
	unsigned fibers, calls, connections_max;
	uint32_t delay_ms;
	unsigned short_io_percent;
};

static const struct mode modes[] = {
	{"one after the other", 1, 3, 1, 0, 0},
	{"answered later", 1, 2, 1, 40, 0},
	{"four at once on one connection", 4, 4, 1, 0, 0},
	{"four at once, answered later", 4, 4, 2, 40, 0},
	{"four at once, short reads and writes", 4, 4, 2, 0, 60},
};

/* "" if all is as promised, else what is not. Calls may only fail where `may_fail` says so. */
static const char *verdict(const struct sim_grid *grid, const struct sim_adder *adder,
			   bool may_fail)
{
	static char text[128];

	text[0] = '\0';
	for (unsigned i = 0; i < adder->calls; i++) {
		unsigned done = sim_grid_done(grid, i);
		int r = adder->result[i];
		bool unknown = r == -ETIMEDOUT || r == -ENOTRECOVERABLE;

		if (done > 1 || (r == 0 && done != 1) || (r < 0 && !unknown && done != 0) ||
		    (r != 0 && !may_fail))
			snprintf(text, sizeof(text), "call %u: result %d (%s), done %u times", i, r,
				 r < 0 ? gx_strerror(r) : "", done);
		/* Its own add is in the answer it got. */
		else if (r == 0 && ((adder->value[i] >> (3 * i)) & 7) != 1)
			snprintf(text, sizeof(text), "call %u: answer %llo", i,
				 (unsigned long long)adder->value[i]);
	}
	if (adder->blocks > 0)
		snprintf(text, sizeof(text), "the client leaked %zu blocks", adder->blocks);
	return text;
}

struct cut {
	enum gx_sim_direction direction;
	uint64_t bytes;
};

/* One exchange with the first connections cut; returns the bytes that passed in *ret_bytes. */
static const char *exchange(const struct mode *mode, uint64_t seed, bool ignore_replay,
			    const struct cut *cuts, size_t cut_count,
			    uint64_t ret_bytes[GX_SIM_DIRECTION_COUNT])
{
	struct sim_grid grid;
	struct sim_adder adder;
	const char *text;
	int r;

	sim_grid_init(&grid, seed);
	grid.options.short_io_percent = mode->short_io_percent;
	grid.ignore_replay = ignore_replay;
	sim_grid_start(&grid);
	for (size_t i = 0; i < cut_count; i++)
		for (unsigned d = 0; d < GX_SIM_DIRECTION_COUNT; d++)
			gx_sim_cut_after(grid.sim, d,
					 cuts[i].direction == d ? cuts[i].bytes : UINT64_MAX);
	sim_adder_init(&adder, mode->fibers, mode->calls);
	adder.connections_max = mode->connections_max;
	adder.delay_ms = mode->delay_ms;
	sim_adder_start(&adder, &grid);
	r = gx_sim_run(grid.sim, adder.proc);
	text = r < 0 ? gx_strerror(r) : verdict(&grid, &adder, false);
	for (unsigned d = 0; ret_bytes && d < GX_SIM_DIRECTION_COUNT; d++)
		ret_bytes[d] = gx_sim_bytes(grid.sim, d);
	sim_grid_free(&grid);
	return text;
}

START_TEST(a_mutation_is_done_once_whatever_byte_the_connection_is_cut_at)
{
	const struct mode *mode = &modes[_i];
	uint64_t total[GX_SIM_DIRECTION_COUNT];
	uint64_t runs = 0;

	ck_assert_str_eq(exchange(mode, 1, false, NULL, 0, total), "");
	for (unsigned d = 0; d < GX_SIM_DIRECTION_COUNT; d++) {
		for (uint64_t at = 0; at <= total[d] + 1; at++) {
			struct cut cut = {d, at};
			const char *text = exchange(mode, 1 + at, false, &cut, 1, NULL);

			ck_assert_msg(text[0] == '\0', "%s, cut at byte %llu %s, seed %llu: %s",
				      mode->name, (unsigned long long)at,
				      d == GX_SIM_TO_SERVER ? "to the server" : "to the client",
				      (unsigned long long)(1 + at), text);
			runs++;
		}
	}
	printf("%s: %llu points of loss\n", mode->name, (unsigned long long)runs);
}
END_TEST

START_TEST(a_mutation_is_done_once_when_its_retries_are_cut_too)
{
	const struct mode *mode = &modes[_i];
	uint64_t total[GX_SIM_DIRECTION_COUNT];

	ck_assert_str_eq(exchange(mode, 1, false, NULL, 0, total), "");
	for (uint64_t seed = 1; seed <= sim_seeds(400); seed++) {
		struct cut cuts[4];
		uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15);
		size_t count = 2 + x % 3;
		const char *text;

		for (size_t i = 0; i < count; i++) {
			x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
			cuts[i].direction = x >> 60 & 1;
			cuts[i].bytes = (x >> 8) % (total[cuts[i].direction] + 1);
		}
		text = exchange(mode, seed, false, cuts, count, NULL);
		ck_assert_msg(text[0] == '\0', "%s, seed %llu: %s", mode->name,
			      (unsigned long long)seed, text);
	}
}
END_TEST

/* The check above must be able to fail: without a replay table it has to. */
START_TEST(without_a_replay_table_the_same_check_fails)
{
	const struct mode *mode = &modes[_i];
	uint64_t total[GX_SIM_DIRECTION_COUNT];
	unsigned wrong = 0;

	ck_assert_str_eq(exchange(mode, 1, true, NULL, 0, total), "");
	for (uint64_t at = 0; at <= total[GX_SIM_TO_CLIENT]; at++) {
		struct cut cut = {GX_SIM_TO_CLIENT, at};

		wrong += exchange(mode, 1 + at, true, &cut, 1, NULL)[0] != '\0';
	}
	ck_assert_uint_gt(wrong, 0);
}
END_TEST

/* -- weather --------------------------------------------------------------------------------- */

struct weather {
	struct sim_grid *grid;
	bool kills;
	unsigned acts;
	uint64_t longest_ms;
};

static void weather_main(struct gx_env *env, void *arg)
{
	struct weather *w = arg;
	struct sim_grid *grid = w->grid;
	struct gx_sim *sim = grid->sim;

	for (unsigned i = 0; i < w->acts; i++) {
		gx_env_sleep_until(env, gx_env_deadline_ms(env, gx_sim_random_below(sim, 50)));
		switch (gx_sim_random_below(sim, w->kills ? 5 : 4)) {
		case 0:
			gx_sim_partition(grid->server_host, grid->client_host, true);
			break;
		case 1:
			gx_sim_stop(grid->server);
			break;
		case 2:
			gx_sim_reset_links(grid->server_host, grid->client_host);
			break;
		case 3:
			break;
		case 4:
			gx_sim_kill(grid->server);
			break;
		}
		gx_env_sleep_until(
			env, gx_env_deadline_ms(env, gx_sim_random_below(sim, w->longest_ms)));
		gx_sim_continue(grid->server);
		gx_sim_partition(grid->server_host, grid->client_host, false);
		if (gx_sim_proc_ended(grid->server))
			sim_grid_restart_server(grid);
	}
}

struct weather_counts {
	unsigned ok, timed_out, unknown, other;
};

/* Random latency, resets, partitions, stops, and perhaps kills. */
static void weather_run(uint64_t seed, bool kills, int64_t timeout_ns,
			struct weather_counts *counts)
{
	struct sim_grid grid;
	struct sim_adder adder;
	struct weather w = {&grid, kills, 12, 300};
	const char *text;
	int r;

	sim_grid_init(&grid, seed);
	grid.options.short_io_percent = (unsigned)(seed % 40);
	grid.options.latency_max_ns = (int64_t)(1 + seed % 20) * GX_NSEC_PER_MSEC;
	grid.options.partition_reset_ns = 100 * GX_NSEC_PER_MSEC;
	sim_grid_start(&grid);
	gx_sim_clock(grid.client_host, 0, (int64_t)(seed % 2001) - 1000);
	sim_adder_init(&adder, 1 + (unsigned)(seed % 4), SIM_GRID_ADDS_MAX);
	adder.connections_max = 1 + (unsigned)(seed / 4 % 3);
	adder.delay_ms = seed % 3 == 0 ? 20 : 0;
	adder.timeout_ns = timeout_ns;
	adder.pause_ns = 30 * GX_NSEC_PER_MSEC;
	sim_adder_start(&adder, &grid);
	ck_assert_int_eq(gx_sim_spawn(grid.other_host, "weather", weather_main, &w, NULL), 0);
	r = gx_sim_run(grid.sim, adder.proc);
	ck_assert_msg(r == 0, "seed %llu: %s", (unsigned long long)seed, gx_strerror(r));
	/* What is on its way or being worked on comes to an end, so that late doubles would show.
	 */
	gx_sim_partition(grid.server_host, grid.client_host, false);
	gx_sim_continue(grid.server);
	text = verdict(&grid, &adder, true);
	ck_assert_msg(text[0] == '\0', "seed %llu%s: %s", (unsigned long long)seed,
		      kills ? " with kills" : "", text);
	for (unsigned i = 0; i < adder.calls; i++) {
		counts->ok += adder.result[i] == 0;
		counts->timed_out += adder.result[i] == -ETIMEDOUT;
		counts->unknown += adder.result[i] == -ENOTRECOVERABLE;
		counts->other += adder.result[i] < 0 && adder.result[i] != -ETIMEDOUT &&
				 adder.result[i] != -ENOTRECOVERABLE;
		/* Nothing goes on past its deadline. */
		ck_assert_msg(adder.late_ns[i] < GX_NSEC_PER_MSEC,
			      "seed %llu: call %u %lld ns late", (unsigned long long)seed, i,
			      (long long)adder.late_ns[i]);
	}
	sim_grid_free(&grid);
}

START_TEST(in_any_weather_with_time_enough_every_add_counts_once)
{
	struct weather_counts counts = {0};

	for (uint64_t seed = 1; seed <= sim_seeds(1000); seed++)
		weather_run(seed, false, 60 * GX_NSEC_PER_SEC, &counts);
	printf("%u of %u ok\n", counts.ok, counts.ok + counts.timed_out + counts.unknown);
	ck_assert_uint_eq(counts.timed_out + counts.unknown + counts.other, 0);
}
END_TEST

START_TEST(with_short_deadlines_what_is_not_acknowledged_counts_at_most_once)
{
	struct weather_counts counts = {0};

	for (uint64_t seed = 1; seed <= sim_seeds(1000); seed++)
		weather_run(seed, false, 100 * GX_NSEC_PER_MSEC, &counts);
	printf("%u ok, %u timed out, %u unknown, %u other\n", counts.ok, counts.timed_out,
	       counts.unknown, counts.other);
	ck_assert_uint_gt(counts.ok, 0);
	ck_assert_uint_gt(counts.timed_out, 0);
}
END_TEST

START_TEST(a_restarted_server_never_makes_a_call_done_twice_or_a_success_untrue)
{
	struct weather_counts counts = {0};

	for (uint64_t seed = 1; seed <= sim_seeds(1000); seed++)
		weather_run(seed, true, 60 * GX_NSEC_PER_SEC, &counts);
	printf("%u ok, %u timed out, %u unknown, %u other\n", counts.ok, counts.timed_out,
	       counts.unknown, counts.other);
	ck_assert_uint_gt(counts.ok, 0);
	ck_assert_uint_gt(counts.unknown, 0);
	/* With a minute and a server that comes back nothing else may end a call. */
	ck_assert_uint_eq(counts.timed_out + counts.other, 0);
}
END_TEST

/* -- deadlines -----------------------------------------------------------------------------------
 */

struct lonely {
	struct sim_grid *grid;
	int64_t after_ns; /* the server is cut off so long after the start */
};

static void lonely_main(struct gx_env *env, void *arg)
{
	struct lonely *l = arg;

	gx_env_sleep_until(env, gx_env_now_ns(env) + l->after_ns);
	gx_sim_partition(l->grid->server_host, l->grid->client_host, true);
}

/* Before the connection, in its handshake, and with calls in flight; with drifting clocks too. */
START_TEST(a_call_to_a_partitioned_server_ends_exactly_at_its_deadline)
{
	for (int64_t after_us = 0; after_us < 5000; after_us += 50) {
		struct sim_grid grid;
		struct sim_adder adder;
		struct lonely lonely = {&grid, after_us * 1000 + 1};

		sim_grid_init(&grid, (uint64_t)after_us + 1);
		sim_grid_start(&grid);
		gx_sim_clock(grid.client_host, 0, after_us % 300 == 0 ? 50000 : 0);
		sim_adder_init(&adder, 3, 6);
		adder.connections_max = 1 + (unsigned)(after_us / 50 % 3);
		adder.delay_ms = 2;
		adder.timeout_ns = 3 * GX_NSEC_PER_SEC;
		sim_adder_start(&adder, &grid);
		ck_assert_int_eq(
			gx_sim_spawn(grid.other_host, "lonely", lonely_main, &lonely, NULL), 0);
		ck_assert_int_eq(gx_sim_run(grid.sim, adder.proc), 0);
		for (unsigned i = 0; i < adder.calls; i++) {
			if (adder.result[i] == 0)
				continue;
			ck_assert_int_eq(adder.result[i], -ETIMEDOUT);
			ck_assert_msg(adder.late_ns[i] >= 0 && adder.late_ns[i] < 100000,
				      "after %lld us: call %u ends %lld ns after its deadline",
				      (long long)after_us, i, (long long)adder.late_ns[i]);
		}
		ck_assert_int_eq(adder.result[5], -ETIMEDOUT);
		sim_grid_free(&grid);
	}
}
END_TEST

/* -- drain
 * ------------------------------------------------------------------------------------------ */

START_TEST(a_drain_answers_what_is_in_work_and_ends)
{
	unsigned answered = 0, refused = 0;

	for (uint64_t seed = 1; seed <= sim_seeds(700); seed++) {
		struct sim_grid grid;
		struct sim_adder adder;
		const char *text;

		sim_grid_init(&grid, seed);
		grid.drain_after_ns = (int64_t)(1 + seed % 100) * GX_NSEC_PER_MSEC;
		sim_grid_start(&grid);
		sim_adder_init(&adder, 4, SIM_GRID_ADDS_MAX);
		adder.delay_ms = seed % 2 == 0 ? 30 : 0;
		adder.timeout_ns = 2 * GX_NSEC_PER_SEC;
		adder.pause_ns = 10 * GX_NSEC_PER_MSEC;
		sim_adder_start(&adder, &grid);
		ck_assert_int_eq(gx_sim_run(grid.sim, adder.proc), 0);
		ck_assert_int_eq(gx_sim_run(grid.sim, grid.server), 0);
		ck_assert_msg(grid.drained, "seed %llu: not drained", (unsigned long long)seed);
		/* Nobody held on for longer than a deferred answer and the linger. */
		ck_assert_int_lt(grid.drained_ns - grid.drain_after_ns, 400 * GX_NSEC_PER_MSEC);
		ck_assert_uint_eq(grid.server_blocks, 0);
		text = verdict(&grid, &adder, true);
		ck_assert_msg(text[0] == '\0', "seed %llu: %s", (unsigned long long)seed, text);
		for (unsigned i = 0; i < adder.calls; i++) {
			/* Graceful: no call is left without knowing. */
			ck_assert_msg(adder.result[i] != -ENOTRECOVERABLE, "seed %llu: call %u",
				      (unsigned long long)seed, i);
			answered += adder.result[i] == 0;
			refused += adder.result[i] < 0;
		}
		sim_grid_free(&grid);
	}
	ck_assert_uint_gt(answered, 0);
	ck_assert_uint_gt(refused, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_rpc");
	TCase *tc = tcase_create("sim_rpc");
	int mode_count = (int)GX_COUNT_OF(modes);
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, a_mutation_is_done_once_whatever_byte_the_connection_is_cut_at, 0,
			    mode_count);
	tcase_add_loop_test(tc, a_mutation_is_done_once_when_its_retries_are_cut_too, 0,
			    mode_count);
	tcase_add_loop_test(tc, without_a_replay_table_the_same_check_fails, 0, mode_count);
	tcase_add_test(tc, in_any_weather_with_time_enough_every_add_counts_once);
	tcase_add_test(tc, with_short_deadlines_what_is_not_acknowledged_counts_at_most_once);
	tcase_add_test(tc, a_restarted_server_never_makes_a_call_done_twice_or_a_success_untrue);
	tcase_add_test(tc, a_call_to_a_partitioned_server_ends_exactly_at_its_deadline);
	tcase_add_test(tc, a_drain_answers_what_is_in_work_and_ends);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
