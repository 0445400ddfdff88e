/*
 * metad on a sick disk (rule N7): full, failing to write, failing to sync, a store that fails.
 *
 * A client makes files while each call of each kind that metad makes to its disk fails in turn.
 * What metad cannot promise any more makes it stop; the next life finds a healthy disk. Whatever
 * happens, the client sees all that it made, and nothing is ever synced a second time after a
 * failure.
 */
#include "tests/sim/md_life.h"

#define FILES 40u
#define FILE_BYTES 700u
#define PATIENCE_NS (30 * GX_NSEC_PER_SEC)
#define RETRY_NS (50 * GX_NSEC_PER_MSEC)

static struct {
	unsigned made;
	unsigned refused; /* with -ENOSPC */
	int last_err;
	int end_err;
	unsigned lives; /* when the client was done */
} seen;

static void file_name(char name[16], unsigned i)
{
	snprintf(name, 16, "f%u", i);
}

/* The name over and over. */
static void file_text(char text[FILE_BYTES], unsigned i)
{
	char name[16];
	size_t bytes;

	file_name(name, i);
	bytes = strlen(name);
	for (size_t at = 0; at < FILE_BYTES; at++)
		text[at] = name[at % bytes];
}

/* One operation that fails as a whole: makes, writes and closes; an empty one is tidied away. */
static int make_file(struct gfc *gfc, unsigned i)
{
	char name[16], text[FILE_BYTES];
	struct gfc_write write = {.data = text, .bytes = sizeof(text), .close = true};
	struct gfc_open *open;
	struct gfc_attr attr;
	uint64_t offset;
	int r;

	file_name(name, i);
	file_text(text, i);
	r = gfc_open(gfc, GFC_ROOT, name, GFC_OPEN_WRITE | GFC_OPEN_CREATE, 0644, &attr, &open);
	return r < 0 ? r : gfc_write(gfc, open, &write, &offset, &attr);
}

/* The same, until there is room. */
static int make_file_at_last(struct gx_env *env, struct gfc *gfc, unsigned i)
{
	int64_t deadline_ns = gx_env_now_ns(env) + PATIENCE_NS;
	int r;

	while ((r = make_file(gfc, i)) == -ENOSPC && gx_env_now_ns(env) < deadline_ns) {
		seen.refused++;
		gx_env_sleep_until(env, gx_env_now_ns(env) + RETRY_NS);
	}
	return r;
}

static int read_file(struct gfc *gfc, unsigned i)
{
	char name[16], text[FILE_BYTES], got[FILE_BYTES];
	struct gfc_open *open;
	struct gfc_attr attr;
	ssize_t n;
	int r;

	file_name(name, i);
	file_text(text, i);
	r = gfc_open(gfc, GFC_ROOT, name, GFC_OPEN_READ, 0, &attr, &open);
	if (r < 0)
		return r;
	n = gfc_read(gfc, open, got, sizeof(got), 0, &attr);
	if (n >= 0 && ((size_t)n != sizeof(got) || memcmp(got, text, sizeof(got)) != 0))
		n = -EBADMSG;
	r = gfc_close(gfc, open);
	return n < 0 ? (int)n : r;
}

static void read_all(struct gfc *gfc, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		int r = read_file(gfc, i);

		ck_assert_msg(r == 0, "reading file %u of %u says %s", i, count, gx_strerror(r));
	}
}

static void world_begin(uint64_t seed, int test_writer)
{
	memset(&seen, 0, sizeof(seen));
	world_new(seed);
	w.options.test_writer = test_writer;
	w.options.layer_bytes = 16 * 1024;
	w.options.overlay_bytes_max = 256 * 1024;
	w.skip_tree = true;
}

/* Ends the world: what is left must hold together, and somebody must be able to read it. */
static void reader_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfc *gfc = world_connect(env, 0);

	read_all(gfc, seen.made);
	ck_assert_int_eq(gfc_free(gfc), 0);
	world_client_done();
}

static void world_end(void)
{
	w.fault = NULL;
	w.store_fails = false;
	w.client_done = false;
	world_metad();
	world_client(reader_main, NULL);
	world_run();
	world_look();
	ck_assert_msg(w.wrong_count == 0, "%s", w.wrong);
	ck_assert_msg(w.syncs_after == 0, "synced again after a failure");
	world_free();
}

/* -- each call fails once ---------------------------------------------------------------------- */

static struct gx_fault fault;

static void maker_main(struct gx_env *env, void *arg)
{
	struct gfc *gfc = world_connect(env, 0);

	ck_assert_int_eq(make_file(gfc, 0), 0);
	ck_assert_int_eq(gfc_sync(gfc), 0);
	fault.count = 0;
	fault.nth = *(uint64_t *)arg;
	for (seen.made = 1; seen.made < FILES && seen.last_err == 0;) {
		seen.last_err = make_file_at_last(env, gfc, seen.made);
		seen.made += seen.last_err == 0;
	}
	seen.end_err = gfc_sync(gfc);
	read_all(gfc, seen.made);
	fault.nth = 0;
	if (seen.end_err == 0)
		seen.end_err = gfc_free(gfc);
	seen.lives = w.lives;
	world_client_done();
}

struct fate {
	uint64_t points, fatals, refused;
};

static void fail_each(enum gx_fault_kind kind, int err, int test_writer, bool power,
		      struct fate *fate)
{
	*fate = (struct fate){0};
	for (uint64_t nth = 1;; nth++) {
		unsigned fatals;

		fault = (struct gx_fault){.kinds = UINT64_C(1) << kind, .err = err};
		world_begin(nth, test_writer);
		w.fault = &fault;
		w.fatal_power = power;
		world_metad();
		world_client(maker_main, &nth);
		world_run();
		fatals = w.fatals;
		ck_assert_msg(seen.last_err == 0 && seen.end_err == 0 && seen.made == FILES,
			      "%s %llu fails with %s: %u files, %s, sync %s", gx_fault_name(kind),
			      (unsigned long long)nth, gx_strerror(-err), seen.made,
			      gx_strerror(seen.last_err), gx_strerror(seen.end_err));
		ck_assert_msg(fatals == seen.lives - 1, "%u lives, %u ended by metad", seen.lives,
			      fatals);
		world_end();
		if (fault.fired == 0)
			break;
		fate->points++;
		fate->fatals += fatals;
		fate->refused += seen.refused > 0;
	}
	printf("%s %s, writer %d%s: %llu points, metad stopped in %llu, refused in %llu\n",
	       gx_fault_name(kind), gx_strerror(-err), test_writer, power ? ", power cut" : "",
	       (unsigned long long)fate->points, (unsigned long long)fate->fatals,
	       (unsigned long long)fate->refused);
}

/* Without a store only the log writes; making its next file is the exception that may fail. */
START_TEST(a_failed_write_of_the_log_stops_metad_and_loses_nothing)
{
	struct fate fate;

	fail_each(GX_FAULT_WRITE, EIO, 1, _i == 1, &fate);
	ck_assert_uint_ge(fate.fatals, FILES);
	fail_each(GX_FAULT_WRITE, ENOSPC, 1, _i == 1, &fate);
	ck_assert_uint_ge(fate.fatals, FILES);
}
END_TEST

START_TEST(a_failed_fdatasync_stops_metad_and_is_not_tried_again)
{
	struct fate fate;

	fail_each(GX_FAULT_SYNC, EIO, 1, _i == 1, &fate);
	ck_assert_uint_gt(fate.fatals, 10);
}
END_TEST

/* The writer stores each command: many of these calls are the store's. */
START_TEST(a_call_of_the_store_that_fails_is_not_the_end)
{
	struct fate fate;

	fail_each(GX_FAULT_WRITE, EIO, 2, _i == 1, &fate);
	ck_assert_uint_gt(fate.points, fate.fatals);
	fail_each(GX_FAULT_SYNC, EIO, 2, _i == 1, &fate);
	ck_assert_uint_gt(fate.points, fate.fatals);
}
END_TEST

START_TEST(a_file_of_the_log_that_cannot_be_made_is_made_later)
{
	static const enum gx_fault_kind kinds[] = {GX_FAULT_ALLOCATE, GX_FAULT_OPEN,
						   GX_FAULT_RENAME};
	struct fate fate;

	for (size_t i = 0; i < GX_COUNT_OF(kinds); i++) {
		fail_each(kinds[i], EIO, 2, false, &fate);
		ck_assert_uint_gt(fate.points, 0);
		/* The next file comes into use by its new name; without it the log is sick. */
		ck_assert(fate.fatals == 0 || kinds[i] == GX_FAULT_RENAME);
	}
}
END_TEST

/* -- a full disk ------------------------------------------------------------------------------- */

static void full_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfc *gfc = world_connect(env, 0), *late;
	struct gfc_attr attr;
	int64_t since_ns;
	int r = 0;

	for (seen.made = 0; seen.made < 10; seen.made++)
		ck_assert_int_eq(make_file(gfc, seen.made), 0);
	gx_sim_disk_limit(w.host, 4096);
	/* What was allocated before is used up first. */
	while (seen.made < 10000 && r == 0) {
		r = make_file(gfc, seen.made);
		seen.made += r == 0;
	}
	ck_assert_msg(r == -ENOSPC, "%u files, then %s", seen.made, gx_strerror(r));
	read_all(gfc, seen.made);
	ck_assert_int_eq(gfc_sync(gfc), 0);
	since_ns = gx_env_now_ns(env);
	ck_assert_int_eq(make_file(gfc, seen.made), -ENOSPC);
	ck_assert_int_lt(gx_env_now_ns(env) - since_ns, GX_NSEC_PER_SEC);
	/* A newcomer may look as well. */
	late = world_connect(env, 0);
	read_all(late, seen.made);
	ck_assert_int_eq(gfc_make(late, GFC_ROOT, "late", S_IFDIR | 0755, 0, NULL, &attr), -ENOSPC);
	/* There is room again: everybody goes on. */
	gx_sim_disk_limit(w.host, 0);
	for (unsigned i = 0; i < 200; i++, seen.made++)
		ck_assert_int_eq(make_file_at_last(env, i % 2 ? gfc : late, seen.made), 0);
	ck_assert_int_eq(gfc_make(late, GFC_ROOT, "late", S_IFDIR | 0755, 0, NULL, &attr), 0);
	ck_assert_int_eq(gfc_free(late), 0);
	ck_assert_int_eq(gfc_free(gfc), 0);
	ck_assert_uint_eq(w.lives, 1);
	world_client_done();
}

START_TEST(a_full_disk_refuses_changes_until_there_is_room_and_reads_go_on)
{
	world_begin(1, _i);
	/* With a store that could not be written either, memory takes what is new. */
	w.options.overlay_bytes_max = 4 * 1024 * 1024;
	world_metad();
	world_client(full_main, NULL);
	world_run();
	ck_assert_uint_eq(w.fatals, 0);
	world_end();
}
END_TEST

/* A full disk at the start: metad comes up, to be read. */
static void full_start_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfc *gfc = world_connect(env, 0), *late;
	int r = 0;

	for (seen.made = 0; seen.made < 10; seen.made++)
		ck_assert_int_eq(make_file(gfc, seen.made), 0);
	gx_sim_disk_limit(w.host, 4096);
	while (r == 0) {
		r = make_file(gfc, seen.made);
		seen.made += r == 0;
	}
	ck_assert_int_eq(r, -ENOSPC);
	for (unsigned i = 0; i < 5; i++) {
		gx_sim_kill(w.metad);
		read_all(gfc, seen.made);
		r = make_file(gfc, seen.made);
		ck_assert_msg(r == -ENOSPC || r == 0, "restart %u: %s", i, gx_strerror(r));
		seen.made += r == 0;
	}
	/* This metad has no range of session ids: who only wants to look is let in all the same. */
	late = world_connect(env, 0);
	read_all(late, seen.made);
	gx_sim_disk_limit(w.host, 0);
	ck_assert_int_eq(make_file_at_last(env, gfc, seen.made++), 0);
	ck_assert_int_eq(make_file_at_last(env, late, seen.made++), 0);
	ck_assert_int_eq(gfc_free(late), 0);
	ck_assert_int_eq(gfc_free(gfc), 0);
	world_client_done();
}

START_TEST(metad_starts_on_a_full_disk)
{
	world_begin(1, _i);
	w.options.overlay_bytes_max = 4 * 1024 * 1024;
	world_metad();
	world_client(full_start_main, NULL);
	world_run();
	ck_assert_uint_eq(w.fatals, 0);
	world_end();
}
END_TEST

/* -- a store that fails for good --------------------------------------------------------------- */

static void store_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfc *gfc = world_connect(env, 0);
	unsigned healthy;
	int r = 0;

	for (seen.made = 0; seen.made < 10; seen.made++)
		ck_assert_int_eq(make_file(gfc, seen.made), 0);
	w.store_fails = true;
	healthy = seen.made;
	while (seen.made < 10000 && r == 0) {
		r = make_file(gfc, seen.made);
		seen.made += r == 0;
	}
	ck_assert_msg(r == -EIO, "%u files, then %s", seen.made, gx_strerror(r));
	/* Memory has taken a good part of what it may. */
	ck_assert_uint_gt((seen.made - healthy) * FILE_BYTES, 64 * 1024);
	read_all(gfc, seen.made);
	ck_assert_int_eq(gfc_sync(gfc), 0);
	ck_assert_int_eq(make_file(gfc, seen.made), -EIO);
	ck_assert_uint_eq(w.lives, 1);
	/* A restart with a healthy disk has all of it in the log. */
	w.store_fails = false;
	gx_sim_kill(w.metad);
	read_all(gfc, seen.made);
	for (unsigned i = 0; i < 300; i++, seen.made++)
		ck_assert_int_eq(make_file_at_last(env, gfc, seen.made), 0);
	ck_assert_int_eq(gfc_free(gfc), 0);
	world_client_done();
}

START_TEST(a_store_that_fails_lets_reads_go_on_and_changes_until_memory_is_full)
{
	world_begin(1, _i);
	world_metad();
	world_client(store_main, NULL);
	world_run();
	ck_assert_uint_eq(w.fatals, 0);
	world_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_fault");
	TCase *tc = tcase_create("fault");
	SRunner *runner;
	int failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, a_failed_write_of_the_log_stops_metad_and_loses_nothing, 0, 2);
	tcase_add_loop_test(tc, a_failed_fdatasync_stops_metad_and_is_not_tried_again, 0, 2);
	tcase_add_loop_test(tc, a_call_of_the_store_that_fails_is_not_the_end, 0, 2);
	tcase_add_test(tc, a_file_of_the_log_that_cannot_be_made_is_made_later);
	tcase_add_loop_test(tc, a_full_disk_refuses_changes_until_there_is_room_and_reads_go_on, 0,
			    3);
	tcase_add_loop_test(tc, metad_starts_on_a_full_disk, 0, 3);
	tcase_add_test(tc, a_store_that_fails_lets_reads_go_on_and_changes_until_memory_is_full);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
