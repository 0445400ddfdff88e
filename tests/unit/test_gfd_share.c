/*
 * Several clients on one file: recalls, shared leases, leases that are taken away (rules B4, B5,
 * N12; docs/CONSISTENCY.md).
 */
#include "tests/unit/gfd_fake.h"

#define INO 2u
#define KIB 1024u
#define MIB (1024u * KIB)
#define RW (GFC_OPEN_READ | GFC_OPEN_WRITE)

static uint8_t pattern[4 * MIB], got[4 * MIB];
static struct gfd *gfds[2];
static struct fake_open a, b;

static void setup(void)
{
	fake_setup();
	fake_node_up(0);
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 5 + i / 4096 * 3 + 9);
	for (unsigned i = 0; i < 2; i++)
		gfds[i] = fake_client(i, NULL);
	fake_open(0, INO, RW, &a);
	fake_open(1, INO, RW, &b);
}

static void teardown(void)
{
	for (unsigned i = 0; i < 2; i++)
		gfd_free(gfds[i]);
	fake_teardown();
}

static int put(struct fake_open *o, const void *data, size_t bytes, uint64_t offset)
{
	return gfd_write(o->file, &o->open, data, bytes, offset, false, NULL);
}

static void must_put(struct fake_open *o, const void *data, size_t bytes, uint64_t offset)
{
	int r = put(o, data, bytes, offset);

	ck_assert_msg(r == 0, "%d: %s", r, gfc_error());
}

static void must_get(struct fake_open *o, const void *data, size_t bytes, uint64_t offset)
{
	ssize_t n = gfd_read(o->file, &o->open, got, bytes, offset);

	ck_assert_msg(n == (ssize_t)bytes, "%zd: %s", n, gfc_error());
	ck_assert_int_eq(memcmp(got, data, bytes), 0);
}

static enum gfc_mode mode_of(unsigned client)
{
	bool write;

	return gfd_lease_of(gfds[client], INO, &write, NULL);
}

static void close_both(void)
{
	ck_assert_int_eq(fake_close(&a), 0);
	ck_assert_int_eq(fake_close(&b), 0);
}

/* Without any fsync or close. */
START_TEST(who_reads_gets_what_was_written_before)
{
	must_put(&a, pattern, MIB + 100, 0);
	ck_assert_int_eq(mode_of(0), GFC_MODE_EXCLUSIVE);
	must_get(&b, pattern, MIB + 100, 0);
	ck_assert_int_eq(mode_of(0), GFC_MODE_SHARED);
	/* From now on nothing is held back. */
	for (unsigned i = 0; i < 50; i++) {
		must_put(&a, pattern + i, 5000, i * 3000);
		must_get(&b, pattern + i, 5000, i * 3000);
		must_put(&b, pattern + 2 * i, 5000, i * 3000 + 1);
		must_get(&a, pattern + 2 * i, 5000, i * 3000 + 1);
	}
	close_both();
}
END_TEST

/* Small files are metad's, which needs no leases; then it grows under both. */
START_TEST(a_file_grows_under_two_clients)
{
	must_put(&a, pattern, 1000, 0);
	must_get(&b, pattern, 1000, 0);
	must_put(&b, pattern + 1000, 100000, 1000);
	must_get(&a, pattern, 101000, 0);
	must_put(&a, pattern + 101000, 100000, 101000);
	must_get(&b, pattern, 201000, 0);
	close_both();
	ck_assert_uint_eq(file_of(INO)->size, 201000);
	ck_assert(!file_of(INO)->writing);
}
END_TEST

/* Getattr may be told an old size; what was written is there all the same. */
START_TEST(a_hole_is_made_in_what_another_holds_back)
{
	static const uint8_t zeros[4096];
	uint64_t at;

	grid.silent = true;
	must_put(&a, pattern, 20000, 0);
	ck_assert_int_eq(mode_of(0), GFC_MODE_EXCLUSIVE);
	ck_assert_int_eq(gfd_punch(b.file, &b.open, 4096, 4096), 0);
	must_get(&b, pattern, 4096, 0);
	must_get(&b, zeros, 4096, 4096);
	must_get(&a, pattern + 8192, 20000 - 8192, 8192);
	ck_assert_int_eq(gfd_seek(b.file, &b.open, 19000, false, &at), 0);
	close_both();
}
END_TEST

START_TEST(sizes_are_true_for_others)
{
	struct gfc_attr attr;

	must_put(&a, pattern, MIB, 0);
	must_put(&a, pattern, 77, MIB);
	/* Held back; metad asks the writer. */
	ck_assert_int_eq(gfd_getattr(b.file, &b.open, &attr), 0);
	ck_assert_uint_eq(attr.size, MIB + 77);
	must_get(&b, pattern, 100, 0);
	ck_assert_int_eq(gfd_truncate(a.file, &a.open, 5000), 0);
	ck_assert_int_eq(gfd_getattr(b.file, &b.open, &attr), 0);
	ck_assert_uint_eq(attr.size, 5000);
	ck_assert_int_eq(gfd_read(b.file, &b.open, got, 10000, 0), 5000);
	ck_assert_int_eq(gfd_truncate(b.file, &b.open, 70000), 0);
	ck_assert_int_eq(gfd_read(a.file, &a.open, got, 100000, 0), 70000);
	close_both();
	ck_assert_uint_eq(file_of(INO)->size, 70000);
}
END_TEST

/* Who only read has nothing to lose but his cache. */
START_TEST(a_reader_sees_the_new_bytes_of_a_writer)
{
	grid.near[0] = _i;
	must_put(&a, pattern, 2 * MIB, 0);
	ck_assert_int_eq(fake_close(&a), 0);
	fake_open(0, INO, GFC_OPEN_READ, &a);
	for (unsigned i = 0; i < 32; i++)
		must_get(&a, pattern + i * 64 * KIB, 64 * KIB, i * 64 * KIB);
	ck_assert_int_eq(mode_of(0), GFC_MODE_READ);
	must_put(&b, pattern + 1, MIB, 64 * KIB);
	must_get(&a, pattern, 64 * KIB, 0);
	must_get(&a, pattern + 1, MIB, 64 * KIB);
	close_both();
	fake_open(0, INO, GFC_OPEN_READ, &a);
	must_get(&a, pattern + 1, MIB, 64 * KIB);
	ck_assert_int_eq(mode_of(0), GFC_MODE_READ);
	ck_assert_int_eq(fake_close(&a), 0);
}
END_TEST

/* -- threads ----------------------------------------------------------------------------------- */

#define RECORDS 150u
#define RECORD_BYTES 700u

struct worker {
	struct gx_thread thread;
	struct fake_open *open;
	uint8_t mark;
	int err;
};

static void append_main(void *arg)
{
	struct worker *w = arg;
	uint8_t record[RECORD_BYTES];

	memset(record, w->mark, sizeof(record));
	for (unsigned i = 0; i < RECORDS && w->err == 0; i++) {
		memcpy(record, &i, sizeof(i));
		w->err = gfd_write(w->open->file, &w->open->open, record, sizeof(record), 0, true,
				   NULL);
	}
}

static void run_two(gx_thread_fn fn, struct worker *workers)
{
	for (unsigned i = 0; i < 2; i++) {
		workers[i].open = i ? &b : &a;
		workers[i].mark = (uint8_t)(0xa0 + i);
		ck_assert_int_eq(gx_env_thread_start(grid.env, &workers[i].thread, "worker", fn,
						     &workers[i]),
				 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		gx_env_thread_join(grid.env, &workers[i].thread);
		ck_assert_msg(workers[i].err == 0, "%d", workers[i].err);
	}
}

/* Every record whole, none lost, each client's in their order; from the first inline byte on. */
START_TEST(appends_of_two_clients)
{
	struct worker workers[2] = {0};
	unsigned next[2] = {0, 0};
	size_t bytes = 2 * RECORDS * RECORD_BYTES;

	run_two(append_main, workers);
	ck_assert_int_eq(gfd_read(a.file, &a.open, got, sizeof(got), 0), (ssize_t)bytes);
	for (size_t at = 0; at < bytes; at += RECORD_BYTES) {
		unsigned who = got[at + 8] - 0xa0u, number;

		ck_assert_uint_lt(who, 2);
		memcpy(&number, got + at, sizeof(number));
		ck_assert_uint_eq(number, next[who]++);
		ck_assert_uint_eq(run_of(got + at + 4, RECORD_BYTES - 4, (uint8_t)(0xa0 + who)),
				  RECORD_BYTES - 4);
	}
	close_both();
}
END_TEST

/* Each its own blocks, both at the same time, and both close and open again now and then. */
static void interleave_main(void *arg)
{
	struct worker *w = arg;
	unsigned who = w->mark - 0xa0u;
	uint8_t *buf = malloc(16 * KIB);

	for (unsigned i = 0; i < 120 && w->err == 0; i++) {
		uint64_t at = (2 * i + who) * (uint64_t)16 * KIB;
		ssize_t n;

		memset(buf, (int)(w->mark + i), 16 * KIB);
		w->err = put(w->open, buf, 16 * KIB, at);
		if (w->err == 0 && i % 7 == 3) {
			n = gfd_read(w->open->file, &w->open->open, buf, 16 * KIB, at);
			for (unsigned j = 0; n > 0 && j < 16 * KIB; j++)
				if (buf[j] != (uint8_t)(w->mark + i))
					n = -EILSEQ;
			w->err = n == 16 * KIB ? 0 : n < 0 ? (int)n : -EILSEQ;
		}
		if (w->err == 0 && i % 20 == 19) {
			w->err = fake_close(w->open);
			fake_open(who, INO, RW, w->open);
		}
	}
	free(buf);
}

START_TEST(writers_take_turns)
{
	struct worker workers[2] = {0};

	must_put(&a, pattern, 20000, 0);
	run_two(interleave_main, workers);
	close_both();
	fake_open(0, INO, GFC_OPEN_READ, &a);
	for (unsigned i = 0; i < 240; i++) {
		ck_assert_int_eq(gfd_read(a.file, &a.open, got, 16 * KIB, i * 16 * KIB), 16 * KIB);
		ck_assert_uint_eq(run_of(got, 16 * KIB, (uint8_t)(0xa0 + i % 2 + i / 2)), 16 * KIB);
	}
	ck_assert_int_eq(fake_close(&a), 0);
}
END_TEST

struct stream {
	struct gx_thread thread;
	_Atomic uint64_t written; /* write() has returned up to here */
	_Atomic bool stop;
	int err;
};

static void stream_main(void *arg)
{
	struct stream *s = arg;

	for (uint64_t at = 0; !atomic_load(&s->stop) && at < sizeof(pattern) && s->err == 0;) {
		size_t n = (size_t)GX_MIN((uint64_t)3000, sizeof(pattern) - at);

		s->err = put(&a, pattern + at, n, at);
		at += n;
		atomic_store(&s->written, at);
	}
}

/* A recall in the middle of a stream of writes. */
START_TEST(a_recall_while_writing)
{
	struct stream s = {.err = 0};

	ck_assert_int_eq(gx_env_thread_start(grid.env, &s.thread, "stream", stream_main, &s), 0);
	for (unsigned i = 0; i < 40; i++) {
		uint64_t written = atomic_load(&s.written);
		ssize_t n;

		n = gfd_read(b.file, &b.open, got, sizeof(got), 0);
		ck_assert_msg(n >= (ssize_t)written, "%zd, after %llu: %s", n,
			      (unsigned long long)written, gfc_error());
		ck_assert_int_eq(memcmp(got, pattern, (size_t)n), 0);
		/* So that the writer is alone again, now and then. */
		if (i % 4 == 3) {
			ck_assert_int_eq(fake_close(&b), 0);
			fake_open(1, INO, GFC_OPEN_READ, &b);
		}
	}
	atomic_store(&s.stop, true);
	gx_env_thread_join(grid.env, &s.thread);
	ck_assert_int_eq(s.err, 0);
	close_both();
}
END_TEST

static void sync_main(void *arg)
{
	struct worker *w = arg;

	w->err = gfd_sync(w->open->file, &w->open->open);
}

/* Whoever asks metad does not wait for the disk of the node. */
START_TEST(a_long_sync_keeps_nobody_waiting)
{
	struct worker w = {.open = &a};
	unsigned reports;
	struct gfc_attr attr;

	must_put(&a, pattern, MIB, 0);
	ck_assert_int_eq(gfd_sync(a.file, &a.open), 0);
	must_put(&a, pattern + 1, MIB, MIB);
	ck_assert_int_eq(gfd_flush(a.file, &a.open), 0);
	data_node_stop(&grid.nodes[0]);
	ck_assert_int_eq(gx_env_thread_start(grid.env, &w.thread, "sync", sync_main, &w), 0);
	/* It has been at metad, so it is on its way to the node. */
	while (gfc_syncs(&grid.clients[0]) < 2)
		gx_env_sleep_until(grid.env, gx_env_now_ns(grid.env) + GX_NSEC_PER_MSEC);
	reports = file_of(INO)->reports;
	ck_assert_int_eq(gfd_getattr(b.file, &b.open, &attr), 0);
	ck_assert_uint_eq(attr.size, 2 * MIB);
	/* That was the writer's word. */
	ck_assert_uint_gt(file_of(INO)->reports, reports);
	must_put(&a, pattern, 100, 0);
	data_node_go_on(&grid.nodes[0]);
	gx_env_thread_join(grid.env, &w.thread);
	ck_assert_int_eq(w.err, 0);
	/* What was written meanwhile is not covered, and not forgotten. */
	ck_assert(a.file->unsynced || gfd_holds(a.file));
	must_get(&b, pattern, 100, 0);
	close_both();
}
END_TEST

/* -- leases that are taken away ---------------------------------------------------------------- */

/* A hangs: its report does not come. What it synced is there, what it held is lost, and it hears.
 */
START_TEST(a_writer_that_does_not_answer)
{
	int r;

	must_put(&a, pattern, MIB, 0);
	ck_assert_int_eq(gfd_sync(a.file, &a.open), 0);
	grid.recall_ns = 300 * GX_NSEC_PER_MSEC;
	/* Nothing it says is heard, from here on. */
	fake_lock();
	grid.fail_reports = UINT_MAX;
	grid.fail_err = -ETIMEDOUT;
	fake_unlock();
	must_put(&a, pattern + 9, 1000, 0);
	must_get(&b, pattern + 2000, MIB - 2000, 2000);
	fake_lock();
	grid.fail_reports = 0;
	fake_unlock();
	must_put(&b, pattern, 5000, 0);
	/* Its late writes change nothing that is served. */
	r = put(&a, pattern + 77, 4000, 0);
	ck_assert_int_eq(r == 0 ? gfd_sync(a.file, &a.open) : r, -EIO);
	must_get(&b, pattern, 5000, 0);
	ck_assert_int_eq(gfd_sync(a.file, &a.open), 0);
	must_get(&a, pattern, 5000, 0);
	must_put(&a, pattern + 5, 100, 200);
	must_get(&b, pattern + 5, 100, 200);
	close_both();
}
END_TEST

/* What is in the object is in the file only when metad has heard of it, on disk or not (N10). */
START_TEST(a_file_that_could_not_grow_has_lost_what_was_synced)
{
	must_put(&a, pattern, 5000, 0);
	ck_assert_int_eq(gfd_sync(a.file, &a.open), 0);
	must_put(&a, pattern + 5000, 20000, 5000);
	ck_assert_int_eq(mode_of(0), GFC_MODE_EXCLUSIVE);
	fake_lock();
	fake_take_away(b.open.gfc, INO, true);
	fake_unlock();
	/* The node still takes and syncs it; metad does not. */
	ck_assert_int_eq(gfd_sync(a.file, &a.open), -EIO);
	must_get(&a, pattern, 5000, 0);
	ck_assert_uint_eq(file_of(INO)->size, 5000);
	close_both();
}
END_TEST

START_TEST(an_error_comes_at_close_if_nobody_asked_before)
{
	must_put(&a, pattern, MIB, 0);
	ck_assert_int_eq(gfd_sync(a.file, &a.open), 0);
	must_put(&a, pattern + 9, 1000, 0);
	fake_lock();
	file_of(INO)->grants[0] = (struct fake_grant){GFC_MODE_NONE, false};
	fake_recover(INO);
	fake_unlock();
	ck_assert_int_eq(fake_close(&a), -EIO);
	must_get(&b, pattern, MIB, 0);
	ck_assert_int_eq(fake_close(&b), 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	SRunner *runner;
	TCase *tc;
	int failed;

	if (data_node_is(argc, argv))
		return data_node_main(argv);
	suite = suite_create("gfd_share");
	tc = tcase_create("sharing");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, who_reads_gets_what_was_written_before);
	tcase_add_test(tc, a_file_grows_under_two_clients);
	tcase_add_test(tc, a_hole_is_made_in_what_another_holds_back);
	tcase_add_test(tc, sizes_are_true_for_others);
	tcase_add_loop_test(tc, a_reader_sees_the_new_bytes_of_a_writer, 0, 2);
	tcase_add_test(tc, appends_of_two_clients);
	tcase_add_test(tc, writers_take_turns);
	tcase_add_test(tc, a_recall_while_writing);
	tcase_add_test(tc, a_long_sync_keeps_nobody_waiting);
	tcase_add_test(tc, a_writer_that_does_not_answer);
	tcase_add_test(tc, a_file_that_could_not_grow_has_lost_what_was_synced);
	tcase_add_test(tc, an_error_comes_at_close_if_nobody_asked_before);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
