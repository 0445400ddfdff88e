/*
 * metad and its clients in the simulation: whatever happens to processes, power, connections and
 * clocks, what was answered stays true (sim_meta_work.h says how that is seen).
 *
 * SIM_SEEDS=n runs more seeds, SIM_SEED=n one of them, SIM_LOG=info (or another
 * level) shows what happens. Each
 * failure names its seed.
 */
#include "common/gx_num.h"
#include "tests/lib/sim_grid.h"
#include "tests/lib/sim_meta_work.h"
#include <check.h>
#include <stdio.h>

#define FAILURES_MAX 10u

static struct work work;

static void add(struct work_counts *sum, const struct work_counts *counts)
{
	sum->changes += counts->changes;
	sum->looks += counts->looks;
	sum->hits += counts->hits;
	sum->replayed += counts->replayed;
	sum->resumed += counts->resumed;
	sum->forgotten += counts->forgotten;
	sum->lives += counts->lives;
	sum->lost += counts->lost;
}

/* 1 if the seed shows something wrong. */
static unsigned run_seed(uint64_t seed, struct work_counts *sum)
{
	const char *wrong;

	work_init(&work, seed);
	wrong = work_run(&work);
	add(sum, &work.counts);
	if (wrong[0] == '\0')
		return 0;
	printf("seed %llu, faults %u: %s\n", (unsigned long long)seed, work.faults, wrong);
	return 1;
}

START_TEST(what_was_answered_stays_true_in_any_weather)
{
	struct work_counts sum = {0};
	const char *one = getenv("SIM_SEED");
	unsigned failed = 0;
	uint64_t seed;

	if (one != NULL && gx_parse_u64(one, &seed) == 0) {
		ck_assert_uint_eq(run_seed(seed, &sum), 0);
		return;
	}
	for (seed = 1; seed <= sim_seeds_long(3000) && failed < FAILURES_MAX; seed++)
		failed += run_seed(seed, &sum);
	printf("%llu changes, %llu looks, %llu cache hits, %llu pushes, %llu lives of metad, %llu "
	       "resumed, %llu replayed, %llu sessions lost\n",
	       (unsigned long long)sum.changes, (unsigned long long)sum.looks,
	       (unsigned long long)sum.hits, (unsigned long long)sum.forgotten,
	       (unsigned long long)sum.lives, (unsigned long long)sum.resumed,
	       (unsigned long long)sum.replayed, (unsigned long long)sum.lost);
	ck_assert_msg(failed == 0, "%u seeds failed, see above", failed);
	/* The weather was bad enough to mean something. */
	ck_assert_uint_gt(sum.hits, 0);
	ck_assert_uint_gt(sum.forgotten, 0);
	ck_assert_uint_gt(sum.resumed, 0);
	ck_assert_uint_gt(sum.replayed, 0);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_run)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		uint64_t trace;

		work_init(&work, seed);
		ck_assert_str_eq(work_run(&work), "");
		trace = work.trace;
		work_init(&work, seed);
		ck_assert_str_eq(work_run(&work), "");
		ck_assert_msg(work.trace == trace, "seed %llu", (unsigned long long)seed);
	}
}
END_TEST

/* -- what seeds have found, as small as possible ----------------------------------------------- */

#define SCENE_ROUNDS 40u
#define TIMEOUT_NS (100 * GX_NSEC_PER_SEC)

struct scene {
	struct sim_meta meta;
	struct gx_sim_proc *clients[2];
	struct gfc *gfc; /* of the client with two threads */
	uint64_t next;   /* token */
	uint64_t offsets[2 * SCENE_ROUNDS];
	int err;
	const char *what;
};
static struct scene scene;

static void scene_failed(const char *what, int r)
{
	if (r >= 0 || scene.err < 0)
		return;
	scene.err = r;
	scene.what = what;
}

/* Runs the processes, with `weather` beside them, until all have ended. */
static void scene_run(uint64_t seed, void (*first)(struct gx_env *, void *),
		      void (*second)(struct gx_env *, void *),
		      void (*weather)(struct gx_env *, void *))
{
	struct gx_sim *sim;

	scene = (struct scene){.what = ""};
	sim_meta_init(&scene.meta, seed);
	scene.meta.options.sync_max_ns = 100 * GX_NSEC_PER_MSEC;
	sim_meta_start(&scene.meta);
	sim = scene.meta.sim;
	ck_assert_int_eq(
		gx_sim_spawn(scene.meta.client_hosts[0], "first", first, NULL, &scene.clients[0]),
		0);
	if (second != NULL)
		ck_assert_int_eq(gx_sim_spawn(scene.meta.client_hosts[1], "second", second, NULL,
					      &scene.clients[1]),
				 0);
	ck_assert_int_eq(gx_sim_spawn(scene.meta.other_host, "weather", weather, NULL, NULL), 0);
	for (unsigned i = 0; i < 2 && scene.clients[i] != NULL; i++)
		ck_assert_msg(gx_sim_run(sim, scene.clients[i]) == 0, "seed %llu does not end",
			      (unsigned long long)seed);
	ck_assert_msg(scene.err == 0, "seed %llu: %s: %s", (unsigned long long)seed, scene.what,
		      gx_strerror(scene.err));
	ck_assert_msg(scene.meta.fatals == 0, "seed %llu: metad ended itself",
		      (unsigned long long)seed);
	sim_meta_check(&scene.meta);
	ck_assert_msg(scene.meta.wrong[0] == '\0', "seed %llu: %s", (unsigned long long)seed,
		      scene.meta.wrong);
	sim_meta_free(&scene.meta);
}

static int open_and_close(struct gfc *gfc, const char *name)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	int r = gfc_open(gfc, GFC_ROOT, name, GFC_OPEN_CREATE | GFC_OPEN_WRITE, 0644, &attr, &open);

	return r < 0 ? r : gfc_close(gfc, open);
}

static void opener_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfc *gfc;
	int r = sim_meta_connect(&scene.meta, env, 0, TIMEOUT_NS, &gfc);

	scene_failed("connect", r);
	if (r < 0)
		return;
	for (unsigned i = 0; i < SCENE_ROUNDS; i++)
		scene_failed("open", open_and_close(gfc, "x"));
	scene_failed("leave", gfc_free(gfc));
}

/* Puts another file under the name, or none, again and again. */
static void mover_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfc *gfc;
	int r = sim_meta_connect(&scene.meta, env, 0, TIMEOUT_NS, &gfc);

	scene_failed("connect", r);
	if (r < 0)
		return;
	for (unsigned i = 0; i < SCENE_ROUNDS; i++) {
		scene_failed("open y", open_and_close(gfc, "y"));
		scene_failed("rename", gfc_rename(gfc, GFC_ROOT, "y", GFC_ROOT, "x", 0));
		r = i % 2 == 0 ? gfc_unlink(gfc, GFC_ROOT, "x", false) : 0;
		scene_failed("unlink", r);
	}
	scene_failed("leave", gfc_free(gfc));
}

static void resets_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gx_sim *sim = scene.meta.sim;

	while (!gx_sim_proc_ended(scene.clients[0])) {
		gx_env_sleep_until(env, gx_env_now_ns(env) + GX_NSEC_PER_MSEC +
						(int64_t)gx_sim_random_below(sim, 20000000));
		gx_sim_reset_links(scene.meta.metad_host, scene.meta.client_hosts[0]);
	}
}

/* The handle is the number of the call, and the first answer was lost. */
START_TEST(an_open_that_is_sent_again_may_find_another_file)
{
	for (uint64_t seed = 1; seed <= sim_seeds(40); seed++)
		scene_run(seed, opener_main, mover_main, resets_main);
}
END_TEST

static void appender_main(void *arg GX_UNUSED)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	int r = gfc_open(scene.gfc, GFC_ROOT, "log", GFC_OPEN_CREATE | GFC_OPEN_WRITE, 0644, &attr,
			 &open);

	scene_failed("open", r);
	if (r < 0)
		return;
	for (unsigned i = 0; i < SCENE_ROUNDS && scene.err == 0; i++) {
		uint64_t token = scene.next++;
		struct gfc_write write = {.data = &token, .bytes = sizeof(token), .append = true};

		scene_failed("append",
			     gfc_write(scene.gfc, open, &write, &scene.offsets[token], NULL));
	}
	scene_failed("close", gfc_close(scene.gfc, open));
}

static void read_log(struct gfc *gfc)
{
	uint64_t tokens[2 * SCENE_ROUNDS];
	struct gfc_open *open;
	struct gfc_attr attr;
	ssize_t n;
	int r = gfc_open(gfc, GFC_ROOT, "log", GFC_OPEN_READ, 0, &attr, &open);

	scene_failed("open to read", r);
	if (r < 0)
		return;
	n = gfc_read(gfc, open, tokens, sizeof(tokens), 0, NULL);
	scene_failed("close", gfc_close(gfc, open));
	scene_failed("all tokens", n == sizeof(tokens) ? 0 : -EIO);
	for (size_t i = 0; scene.err == 0 && i < GX_COUNT_OF(tokens); i++)
		scene_failed("places of tokens", scene.offsets[tokens[i]] == 8 * i ? 0 : -EIO);
}

static void two_threads_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gx_thread thread;
	int r = sim_meta_connect(&scene.meta, env, 0, TIMEOUT_NS, &scene.gfc);

	scene_failed("connect", r);
	if (r < 0)
		return;
	ck_assert_int_eq(gx_env_thread_start(env, &thread, "appender", appender_main, NULL), 0);
	appender_main(NULL);
	gx_env_thread_join(env, &thread);
	read_log(scene.gfc);
	scene_failed("leave", gfc_free(scene.gfc));
}

static void one_cut_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gx_sim *sim = scene.meta.sim;

	while (scene.next < 3)
		gx_env_sleep_until(env, gx_env_now_ns(env) + GX_NSEC_PER_MSEC);
	gx_env_sleep_until(env, gx_env_now_ns(env) + (int64_t)gx_sim_random_below(sim, 20000000));
	gx_sim_power_cut(scene.meta.metad_host);
	sim_meta_up(&scene.meta);
	/* TCP's keepalive. */
	gx_env_sleep_until(env, gx_env_now_ns(env) + GX_NSEC_PER_SEC);
	gx_sim_reset_links(scene.meta.metad_host, scene.meta.client_hosts[0]);
}

/* They are done in another order than they were numbered. */
START_TEST(changes_of_two_threads_are_made_again_in_the_order_they_were_done)
{
	for (uint64_t seed = 1; seed <= sim_seeds(40); seed++)
		scene_run(seed, two_threads_main, NULL, one_cut_main);
}
END_TEST

/* -- silence and clocks (rules N15 and N13) -----------------------------------------------------
 */

static void sleep_for(struct gx_env *env, int64_t ns)
{
	gx_env_sleep_until(env, gx_env_now_ns(env) + ns);
}

/* `next` counts the steps: 1 the file is open, 2 metad has been stopped and goes on. */
static void holder_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfc_write write = {.data = "x", .bytes = 1};
	struct gfc_open *open;
	struct gfc_attr attr;
	uint64_t session;
	struct gfc *gfc;
	int r = sim_meta_connect(&scene.meta, env, 1 << 20, GX_FOREVER, &gfc);

	scene_failed("connect", r);
	if (r == 0)
		r = gfc_open(gfc, GFC_ROOT, "f", GFC_OPEN_CREATE | GFC_OPEN_WRITE, 0644, &attr,
			     &open);
	scene_failed("open", r);
	session = r == 0 ? gfc_session(gfc) : 0;
	scene.next = 1;
	while (scene.next == 1)
		sleep_for(env, GX_NSEC_PER_SEC);
	if (r < 0)
		return;
	scene_failed("write", gfc_write(gfc, open, &write, NULL, NULL));
	scene_failed("close", gfc_close(gfc, open));
	scene_failed("the session", gfc_session(gfc) == session ? 0 : -ENOTRECOVERABLE);
	scene_failed("leave", gfc_free(gfc));
}

static void long_stop_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gx_sim *sim = scene.meta.sim;

	while (scene.next == 0)
		sleep_for(env, GX_NSEC_PER_MSEC);
	sleep_for(env, (int64_t)gx_sim_random_below(sim, 1000000000));
	gx_sim_stop(scene.meta.metad);
	sleep_for(env,
		  scene.meta.session_timeout_ns + (int64_t)gx_sim_random_below(sim, 30000000000));
	gx_sim_continue(scene.meta.metad);
	sleep_for(env, 5 * GX_NSEC_PER_SEC);
	scene.next = 2;
}

START_TEST(who_was_silent_while_metad_did_not_listen_keeps_session_and_files)
{
	for (uint64_t seed = 1; seed <= sim_seeds(20); seed++)
		scene_run(seed, holder_main, NULL, long_stop_main);
}
END_TEST

/* `next` counts the files that are there; an even number waits for the weather. */
static void clock_watcher_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfc_attr attr, before = {0};
	char name[16];
	struct gfc *gfc;
	int r = sim_meta_connect(&scene.meta, env, 0, TIMEOUT_NS, &gfc);

	scene_failed("connect", r);
	for (unsigned i = 0; r == 0 && i < 8; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		r = gfc_make(gfc, GFC_ROOT, name, S_IFDIR | 0755, 0, NULL, &attr);
		scene_failed("mkdir", r);
		scene_failed("time", attr.btime_ns >= before.btime_ns ? 0 : -EDOM);
		before = attr;
		scene.next++;
		while (scene.next % 2 == 1)
			sleep_for(env, GX_NSEC_PER_MSEC);
	}
	if (r == 0)
		scene_failed("leave", gfc_free(gfc));
}

/* metad's clock goes back, every second time while it is away. */
static void clocks_back_main(struct gx_env *env, void *arg GX_UNUSED)
{
	for (unsigned i = 0; !gx_sim_proc_ended(scene.clients[0]);) {
		sleep_for(env, GX_NSEC_PER_MSEC);
		if (scene.next % 2 == 0)
			continue;
		gx_sim_clock(scene.meta.metad_host, -100 * GX_NSEC_PER_SEC, 0);
		if (i++ % 2 == 1) {
			gx_sim_kill(scene.meta.metad);
			sim_meta_up(&scene.meta);
		}
		scene.next++;
	}
}

START_TEST(times_of_files_do_not_go_back_with_metads_clock)
{
	for (uint64_t seed = 1; seed <= sim_seeds(10); seed++)
		scene_run(seed, clock_watcher_main, NULL, clocks_back_main);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_meta");
	TCase *tc = tcase_create("sim_meta");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 3600);
	tcase_add_test(tc, what_was_answered_stays_true_in_any_weather);
	tcase_add_test(tc, the_same_seed_gives_the_same_run);
	tcase_add_test(tc, an_open_that_is_sent_again_may_find_another_file);
	tcase_add_test(tc, changes_of_two_threads_are_made_again_in_the_order_they_were_done);
	tcase_add_test(tc, who_was_silent_while_metad_did_not_listen_keeps_session_and_files);
	tcase_add_test(tc, times_of_files_do_not_go_back_with_metads_clock);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
