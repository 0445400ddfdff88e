/*
 * The log under kill -9 and power cuts, at random moments and at every single call.
 *
 * A model beside the simulation remembers what was appended, what commit returned for, what was
 * told to be durable, and how far the (imagined) store is. After each crash the log is opened
 * again and must hold a prefix of the model: after a kill at least what was committed, after a
 * power cut at least what was told. SIM_SEEDS=n runs more seeds; the number of a
 * failed test (name:seed) is its seed, SIM_SEED=<seed>
 * runs that one alone.
 */
#include "common/gx_loop.h"
#include "common/gx_num.h"
#include "common/gx_sim.h"
#include "metad/md_log.h"
#include <check.h>
#include <stdio.h>

#define INDEX_MAX 4096u
#define SEGMENT 4096u
#define RECORD_BYTES_MAX 900u

enum crash { NONE, KILL, POWER };

struct model {
	struct gx_sim *sim;
	struct gx_sim_host *host;
	struct gx_sim_proc *proc;
	uint64_t value[INDEX_MAX]; /* of the command with this index; 0: none */
	uint64_t appended, committed, durable, stored;
	uint64_t epoch; /* of the last life that got as far as open() */
	uint64_t replayed;
	uint64_t next_value;
	unsigned ticks; /* how long a life is */
	bool disk_full;
	bool open_failed; /* for want of space, which may be */
	enum crash crash_mode;
	uint64_t crash_at; /* the call to die in; 0: none */
	uint64_t calls;
	unsigned lives;
	uint64_t first_crash_at; /* of life 1, for messages */
};
static struct model m;
static const struct gx_env_ops *sim_ops;

static uint64_t seeds(uint64_t normal)
{
	const char *text = getenv("SIM_SEEDS");
	uint64_t n;

	return text != NULL && gx_parse_u64(text, &n) == 0 ? n : normal;
}

static uint64_t below(uint64_t bound)
{
	return gx_sim_random_below(m.sim, bound);
}

/* As ck_assert, without a note in check's file for each that holds. */
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			ck_abort_msg("%s in life %u, call %llu", #cond, m.lives,                   \
				     (unsigned long long)m.first_crash_at);                        \
	} while (0)

/* -- dying in the n-th call ------------------------------------------------------------------- */

static void die(void)
{
	/* From here on only what was told durable is owed. */
	if (m.crash_mode == POWER)
		m.committed = m.durable;
	if (m.crash_mode == POWER)
		gx_sim_power_cut(m.host);
	else
		gx_sim_kill(m.proc);
}

static bool last_call(void)
{
	return m.crash_at > 0 && ++m.calls == m.crash_at;
}

#define CRASHING(type, op, params, args)                                                           \
	static type crash_##op params                                                              \
	{                                                                                          \
		if (last_call())                                                                   \
			die();                                                                     \
		return sim_ops->op args;                                                           \
	}
CRASHING(int, open, (struct gx_env * e, const char *p, int f, mode_t mode), (e, p, f, mode))
CRASHING(int, close, (struct gx_env * e, int fd), (e, fd))
CRASHING(ssize_t, pread, (struct gx_env * e, int fd, void *b, size_t n, uint64_t o),
	 (e, fd, b, n, o))
CRASHING(int, fdatasync, (struct gx_env * e, int fd), (e, fd))
CRASHING(int, fsync, (struct gx_env * e, int fd), (e, fd))
CRASHING(int, fallocate, (struct gx_env * e, int fd, int mode, uint64_t o, uint64_t n),
	 (e, fd, mode, o, n))
CRASHING(int, rename, (struct gx_env * e, const char *a, const char *b), (e, a, b))
CRASHING(int, unlink, (struct gx_env * e, const char *p), (e, p))
CRASHING(int, sync_dir, (struct gx_env * e, const char *p), (e, p))
CRASHING(int, list_dir, (struct gx_env * e, const char *p, gx_dirent_fn fn, void *arg),
	 (e, p, fn, arg))
CRASHING(void, cond_signal, (struct gx_env * e, struct gx_cond *c), (e, c))

/* A write may get half way. */
static ssize_t crash_pwritev(struct gx_env *e, int fd, const struct iovec *iov, int iov_count,
			     uint64_t offset)
{
	if (last_call()) {
		struct iovec part = iov[0];

		part.iov_len = (size_t)below(part.iov_len + 1);
		if (part.iov_len > 0 && sim_ops->pwritev(e, fd, &part, 1, offset) >= 0)
			die();
		die();
	}
	return sim_ops->pwritev(e, fd, iov, iov_count, offset);
}

static void arm(struct gx_env *env)
{
	static struct gx_env_ops ops;

	sim_ops = env->ops == &ops ? sim_ops : env->ops;
	ops = *sim_ops;
	ops.open = crash_open;
	ops.close = crash_close;
	ops.pread = crash_pread;
	ops.pwritev = crash_pwritev;
	ops.fdatasync = crash_fdatasync;
	ops.fsync = crash_fsync;
	ops.fallocate = crash_fallocate;
	ops.rename = crash_rename;
	ops.unlink = crash_unlink;
	ops.sync_dir = crash_sync_dir;
	ops.list_dir = crash_list_dir;
	ops.cond_signal = crash_cond_signal;
	env->ops = &ops;
}

/* -- one life ------------------------------------------------------------------------------------
 */

struct life {
	struct md_log *log;
	struct gx_loop *loop;
	struct gx_timer timer;
	unsigned ticks;
};

static int check_record(void *arg, uint64_t index, uint64_t epoch, const void *data, size_t bytes)
{
	uint8_t expected[RECORD_BYTES_MAX];
	bool ok = index > m.replayed && index <= m.appended && epoch > 0 && bytes >= 8 &&
		  bytes <= RECORD_BYTES_MAX;

	(void)arg;
	/* What lies between are epoch records. */
	for (uint64_t i = m.replayed + 1; ok && i < index; i++)
		ok = m.value[i] == 0;
	if (ok) {
		memset(expected, (uint8_t)m.value[index], bytes);
		memcpy(expected, &m.value[index], sizeof(m.value[index]));
		ok = memcmp(expected, data, bytes) == 0;
	}
	if (!ok)
		ck_abort_msg("record %llu in life %u, call %llu", (unsigned long long)index,
			     m.lives, (unsigned long long)m.first_crash_at);
	m.replayed = index;
	return 0;
}

static void told(void *arg, uint64_t durable, int err)
{
	(void)arg;
	CHECK(err == 0);
	CHECK(durable >= m.durable);
	m.durable = durable;
}

static void check_opened(struct md_log *log)
{
	uint64_t must = m.committed;
	uint64_t last = md_log_written(log);

	/* `last` is the new epoch's record; everything up to it is on disk now. */
	ck_assert_msg(last > must, "%llu of %llu are left", (unsigned long long)last - 1,
		      (unsigned long long)must);
	for (uint64_t i = m.replayed + 1; i <= must; i++)
		if (m.value[i] != 0)
			ck_abort_msg("command %llu is missing", (unsigned long long)i);
	ck_assert_uint_eq(md_log_durable(log), last);
	ck_assert_uint_gt(md_log_epoch(log), m.epoch);
	ck_assert_uint_lt(last, INDEX_MAX);
	m.epoch = md_log_epoch(log);
	/* What was not replayed is lost, or was an epoch record of an open that died. */
	for (uint64_t i = m.replayed + 1; i <= m.appended; i++)
		m.value[i] = 0;
	m.appended = m.committed = m.durable = last;
}

static int append_one(struct md_log *log)
{
	uint8_t data[RECORD_BYTES_MAX];
	size_t bytes = 8 + (size_t)below(RECORD_BYTES_MAX - 8);
	uint64_t value = m.next_value++;
	uint64_t index;
	int r;

	memset(data, (uint8_t)value, bytes);
	memcpy(data, &value, sizeof(value));
	/* Before the call: it may write, and the process may die in it. */
	m.appended = GX_MAX(m.appended, md_log_written(log)) + 1;
	m.value[m.appended] = value;
	r = md_log_append(log, data, bytes, &index);
	if (r < 0) {
		CHECK(r == -ENOSPC);
		ck_assert(m.disk_full);
		m.value[m.appended--] = 0;
		return r;
	}
	CHECK(index == m.appended);
	return 0;
}

static void tick(struct gx_timer *timer)
{
	struct life *life = GX_CONTAINER_OF(timer, struct life, timer);
	struct gx_env *env = gx_loop_env(life->loop);
	uint64_t count = 1 + below(4);

	for (uint64_t i = 0; i < count && m.appended + 8 < INDEX_MAX; i++)
		if (append_one(life->log) < 0)
			break;
	CHECK(md_log_commit(life->log) == 0);
	m.committed = md_log_written(life->log);
	CHECK(m.committed == m.appended);
	if (below(10) == 0) {
		ck_assert_int_eq(md_log_sync(life->log), 0);
		m.durable = md_log_durable(life->log);
		CHECK(m.durable == m.committed);
	}
	if (below(6) == 0) {
		m.stored += below(m.durable - m.stored + 1);
		md_log_trim(life->log, m.stored);
	}
	if (++life->ticks >= m.ticks)
		gx_loop_stop(life->loop);
	else
		CHECK(gx_timer_start(life->loop, timer,
				     gx_env_now_ns(env) + 1 + (int64_t)below(300000), tick) == 0);
}

static void live(struct gx_env *env, void *arg)
{
	struct life life = {0};
	struct md_log_options options = {
		.env = env, .dir = "/log", .segment_bytes = SEGMENT, .durable_fn = told};
	int r;

	(void)arg;
	arm(env);
	m.replayed = m.stored;
	ck_assert_int_eq(gx_loop_new(env, &life.loop), 0);
	options.loop = life.loop;
	r = md_log_open(&options, m.stored, check_record, NULL, &life.log);
	m.open_failed = r == -ENOSPC && m.disk_full;
	if (!m.open_failed) {
		ck_assert_msg(r == 0, "open: %s in life %u, call %llu", gx_strerror(r), m.lives,
			      (unsigned long long)m.first_crash_at);
		check_opened(life.log);
		ck_assert_int_eq(gx_timer_start(life.loop, &life.timer, gx_env_now_ns(env), tick),
				 0);
		ck_assert_int_eq(gx_loop_run(life.loop), 0);
		md_log_close(life.log);
	}
	gx_loop_free(life.loop);
}

/* -- the world ------------------------------------------------------------------------------------
 */

static void make_dir(struct gx_env *env, void *arg)
{
	(void)arg;
	ck_assert_int_eq(gx_env_mkdir(env, "/log", 0700), 0);
	ck_assert_int_eq(gx_env_sync_dir(env, "/"), 0);
}

static void world_new(uint64_t seed, struct gx_sim_host **ret_other)
{
	struct gx_sim_options options = GX_SIM_OPTIONS_INIT;

	memset(&m, 0, sizeof(m));
	m.next_value = 1;
	options.seed = seed;
	ck_assert_int_eq(gx_sim_new(&options, &m.sim), 0);
	ck_assert_int_eq(gx_sim_host_new(m.sim, "metad", &m.host), 0);
	ck_assert_int_eq(gx_sim_host_new(m.sim, "elsewhere", ret_other), 0);
	ck_assert_int_eq(gx_sim_spawn(m.host, "mkdir", make_dir, NULL, &m.proc), 0);
	ck_assert_int_eq(gx_sim_run(m.sim, NULL), 0);
}

static void spawn_life(enum crash crash_mode, uint64_t crash_at)
{
	m.lives++;
	m.crash_mode = crash_mode;
	m.crash_at = crash_at;
	if (m.lives == 1)
		m.first_crash_at = crash_at;
	m.calls = 0;
	ck_assert_int_eq(gx_sim_spawn(m.host, "metad", live, NULL, &m.proc), 0);
}

static void run_world(void)
{
	ck_assert_int_eq(gx_sim_run(m.sim, NULL), 0);
}

/* The reaper's chance that a life ends by itself is there, and tells clean restarts. */
static void reap(struct gx_env *env, void *arg)
{
	(void)arg;
	gx_env_sleep_until(env, gx_env_now_ns(env) + (int64_t)below(10 * GX_NSEC_PER_MSEC));
	if (!gx_sim_proc_ended(m.proc) || m.crash_mode == POWER)
		die();
}

static void fill_disk(struct gx_env *env, void *arg)
{
	(void)arg;
	gx_env_sleep_until(env, gx_env_now_ns(env) + (int64_t)below(2 * GX_NSEC_PER_MSEC));
	m.disk_full = true;
	gx_sim_disk_limit(m.host, 4096);
	gx_env_sleep_until(env, gx_env_now_ns(env) + (int64_t)below(6 * GX_NSEC_PER_MSEC));
	gx_sim_disk_limit(m.host, 0);
}

static void random_crashes(uint64_t seed, bool power)
{
	struct gx_sim_host *other;
	struct gx_sim_proc *proc;

	world_new(seed, &other);
	m.ticks = 30;
	for (unsigned i = 0; i < 6; i++) {
		bool last = i == 5;

		spawn_life(last ? NONE : power && below(2) == 0 ? POWER : KILL, 0);
		if (!last)
			ck_assert_int_eq(gx_sim_spawn(other, "reaper", reap, NULL, &proc), 0);
		if (!last && below(4) == 0)
			ck_assert_int_eq(gx_sim_spawn(other, "filler", fill_disk, NULL, &proc), 0);
		run_world();
	}
	ck_assert(!m.open_failed);
	gx_sim_free(m.sim);
}

START_TEST(kill_at_any_moment_loses_nothing_committed)
{
	random_crashes((uint64_t)_i, false);
}
END_TEST

START_TEST(a_power_cut_leaves_a_prefix_with_all_that_was_told_durable)
{
	random_crashes((uint64_t)_i, true);
}
END_TEST

/* Life 1 dies in its n-th call, life 2 in some call of its own start or work, life 3 must stand. */
static bool crash_in_call(uint64_t seed, uint64_t nth, enum crash mode)
{
	struct gx_sim_host *other;
	bool reached;

	world_new(seed, &other);
	m.ticks = 12;
	spawn_life(mode, nth);
	run_world();
	reached = m.calls >= nth;
	spawn_life(below(2) == 0 ? KILL : POWER, 1 + below(60));
	run_world();
	m.ticks = 3;
	spawn_life(NONE, 0);
	run_world();
	gx_sim_free(m.sim);
	return reached;
}

static void crash_in_every_call(uint64_t seed, enum crash mode)
{
	uint64_t nth = 1;

	while (crash_in_call(seed, nth, mode))
		nth++;
	ck_assert_uint_gt(nth, 60);
}

START_TEST(a_kill_in_every_single_call_is_survived)
{
	crash_in_every_call((uint64_t)_i, KILL);
}
END_TEST

START_TEST(a_power_cut_in_every_single_call_is_survived)
{
	crash_in_every_call((uint64_t)_i, POWER);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, uint64_t count)
{
	TCase *tc = tcase_create(name);
	const char *text = getenv("SIM_SEED");
	uint64_t one = 0;

	if (text != NULL && gx_parse_u64(text, &one) == 0)
		count = 1;
	else
		one = 1;
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test, (int)one, (int)(one + count));
	suite_add_tcase(suite, tc);
}

int main(void)
{
	Suite *suite = suite_create("sim_md_log");
	SRunner *runner = srunner_create(suite);
	uint64_t count = seeds(500);
	int failed;

	add(suite, "kill", kill_at_any_moment_loses_nothing_committed, count);
	add(suite, "power", a_power_cut_leaves_a_prefix_with_all_that_was_told_durable, 2 * count);
	add(suite, "kill_call", a_kill_in_every_single_call_is_survived, 1 + count / 200);
	add(suite, "power_call", a_power_cut_in_every_single_call_is_survived, 1 + count / 200);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
