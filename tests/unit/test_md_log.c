/*
 * The log of commands on real files: append, commit, replay, roll-over, trim, disks that are full
 * or fail, the durable index on a loop. What a crash leaves: test_md_log_recover.c.
 */
#include "metad/md_log.h"
#include "tests/unit/md_log_fixture.h"

/* -- the plain path ------------------------------------------------------------------------ */

START_TEST(committed_records_are_replayed_in_order)
{
	struct md_log *log = open_after(0);

	ck_assert_uint_eq(md_log_epoch(log), 1);
	ck_assert_uint_eq(add(log, "one"), 2);
	ck_assert_uint_eq(add(log, "two"), 3);
	ck_assert_uint_eq(md_log_written(log), 1);
	ck_assert_int_eq(md_log_commit(log), 0);
	ck_assert_uint_eq(md_log_written(log), 3);
	ck_assert_uint_eq(add(log, ""), 4);
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);

	log = open_after(0);
	ck_assert_uint_eq(seen.count, 3);
	ck_assert_uint_eq(seen.index[0], 2);
	ck_assert_str_eq(seen.text[0], "one");
	ck_assert_uint_eq(seen.epoch[0], 1);
	ck_assert_str_eq(seen.text[1], "two");
	ck_assert_uint_eq(seen.bytes[2], 0);
	md_log_close(log);
}
END_TEST

START_TEST(what_was_not_committed_is_not_replayed)
{
	struct md_log *log = open_after(0);

	add(log, "in");
	ck_assert_int_eq(md_log_commit(log), 0);
	add(log, "out");
	md_log_close(log);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 1);
	ck_assert_str_eq(seen.text[0], "in");
	md_log_close(log);
}
END_TEST

START_TEST(replay_begins_after_the_index_given)
{
	struct md_log *log = open_after(0);
	uint64_t last = add_many(log, 10, 20);

	md_log_close(log);
	log = open_after(last - 2);
	ck_assert_uint_eq(seen.count, 2);
	ck_assert_uint_eq(seen.index[0], last - 1);
	md_log_close(log);
}
END_TEST

START_TEST(an_error_of_the_replay_stops_the_opening)
{
	struct md_log *log = open_after(0);

	add_many(log, 3, 20);
	md_log_close(log);
	seen.stop_with = -EDOM;
	ck_assert_int_eq(open_fails(0), -EDOM);
	seen.stop_with = 0;
}
END_TEST

START_TEST(every_open_has_a_higher_epoch_and_new_indexes)
{
	uint64_t last = 0;

	for (uint64_t life = 1; life <= 200; life++) {
		struct md_log *log = open_after(0);
		uint64_t index;

		ck_assert_uint_eq(md_log_epoch(log), life);
		ck_assert_uint_eq(seen.count, life - 1);
		ck_assert_uint_eq(md_log_durable(log), md_log_written(log));
		index = add_many(log, 1, 8);
		ck_assert_uint_gt(index, last);
		last = index;
		md_log_close(log);
	}
}
END_TEST

START_TEST(records_roll_over_into_new_segments)
{
	struct md_log *log = open_after(0);
	uint64_t last = add_many(log, 100, 500);
	struct segments s;

	md_log_close(log);
	s = list_segments();
	ck_assert_uint_ge(s.count, 12);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 100);
	for (size_t i = 0; i < seen.count; i++)
		ck_assert_uint_eq(seen.index[i], i + 2);
	ck_assert_uint_eq(seen.index[99], last);
	md_log_close(log);
}
END_TEST

START_TEST(one_commit_may_span_segments)
{
	struct md_log *log = open_after(0);
	char data[700] = "x";
	uint64_t index;

	for (unsigned i = 0; i < 30; i++)
		ck_assert_int_eq(md_log_append(log, data, sizeof(data), &index), 0);
	ck_assert_int_eq(md_log_commit(log), 0);
	ck_assert_uint_eq(md_log_written(log), index);
	md_log_close(log);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 30);
	md_log_close(log);
}
END_TEST

START_TEST(a_record_larger_than_a_segment_is_e2big)
{
	struct md_log *log = open_after(0);
	static char data[MD_LOG_RECORD_MAX + 1];
	uint64_t index;

	ck_assert_int_eq(md_log_append(log, data, SMALL_SEGMENT, &index), -E2BIG);
	ck_assert_int_eq(md_log_append(log, data, MD_LOG_RECORD_MAX + 1, &index), -E2BIG);
	ck_assert(!md_log_room(log, SMALL_SEGMENT));
	ck_assert_int_eq(md_log_sick(log), 0);
	add_many(log, 1, 10);
	md_log_close(log);
}
END_TEST

START_TEST(the_largest_record_fits_and_comes_back)
{
	static char data[MD_LOG_RECORD_MAX];
	struct md_log_options options = {
		.env = &env, .dir = dir, .segment_bytes = 4 * MD_LOG_RECORD_MAX};
	struct md_log *log;
	uint64_t index;

	ck_assert_int_eq(md_log_open(&options, 0, see, &seen, &log), 0);
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(md_log_append(log, data, sizeof(data), &index), 0);
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);
	seen.count = 0;
	ck_assert_int_eq(md_log_open(&options, 0, see, &seen, &log), 0);
	ck_assert_uint_eq(seen.count, 5);
	ck_assert_uint_eq(seen.bytes[4], sizeof(data));
	md_log_close(log);
}
END_TEST

START_TEST(absurd_segment_sizes_are_einval)
{
	struct md_log_options options = {.env = &env, .dir = dir, .segment_bytes = 100};
	struct md_log *log;

	ck_assert_int_eq(md_log_open(&options, 0, see, &seen, &log), -EINVAL);
	options.segment_bytes = UINT64_MAX;
	ck_assert_int_eq(md_log_open(&options, 0, see, &seen, &log), -EINVAL);
}
END_TEST

START_TEST(another_segment_size_reads_the_old_segments)
{
	struct md_log_options options = {.env = &env, .dir = dir, .segment_bytes = 65536};
	struct md_log *log = open_after(0);

	add_many(log, 20, 500);
	md_log_close(log);
	seen.count = 0;
	ck_assert_int_eq(md_log_open(&options, 0, see, &seen, &log), 0);
	ck_assert_uint_eq(seen.count, 20);
	add_many(log, 20, 500);
	md_log_close(log);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 40);
	md_log_close(log);
}
END_TEST

/* -- trim ------------------------------------------------------------------------------------ */

START_TEST(trim_removes_only_segments_that_are_covered)
{
	struct md_log *log = open_after(0);
	uint64_t last = add_many(log, 50, 500);
	struct segments before = list_segments();
	struct segments s;

	/* Not on disk yet: nothing goes. */
	md_log_trim(log, last);
	ck_assert_uint_eq(list_segments().count, before.count);
	ck_assert_int_eq(md_log_sync(log), 0);
	md_log_trim(log, before.first[3] - 2);
	s = list_segments();
	ck_assert_uint_eq(s.count, before.count - 2);
	ck_assert_uint_eq(s.first[0], before.first[2]);
	md_log_trim(log, last);
	s = list_segments();
	ck_assert_uint_eq(s.count, 1);
	md_log_close(log);

	/* What a store needs is there; what it cannot have skipped is not. */
	ck_assert_int_eq(open_fails(s.first[0] - 2), -EBADMSG);
	log = open_after(last);
	ck_assert_uint_eq(seen.count, 0);
	ck_assert_uint_gt(add(log, "x"), last);
	md_log_close(log);
}
END_TEST

START_TEST(a_trimmed_segment_is_used_again_and_its_old_records_do_not_come_back)
{
	struct md_log *log = open_after(0);
	uint64_t last = add_many(log, 50, 500);
	struct segments s = list_segments();
	struct stat old[4], again;
	bool same = false;
	uint64_t fresh;

	ck_assert_uint_gt(s.count, 4);
	for (size_t i = 0; i < 4; i++)
		ck_assert_int_eq(stat(segment(s.first[i]), &old[i]), 0);
	ck_assert_int_eq(md_log_sync(log), 0);
	md_log_trim(log, last);
	ck_assert_uint_eq(list_segments().count, 1);
	/* Of the same size as before: right behind the last of these lies a whole old one. */
	do
		fresh = add_many(log, 1, 500);
	while (list_segments().count == 1);
	ck_assert_int_eq(stat(segment(list_segments().first[1]), &again), 0);
	for (size_t i = 0; i < 4; i++)
		same = same || old[i].st_ino == again.st_ino;
	ck_assert(same);
	md_log_close(log);

	log = open_after(last);
	ck_assert_uint_eq(seen.count, fresh - last);
	ck_assert_uint_eq(seen.index[seen.count - 1], fresh);
	ck_assert_uint_gt(add(log, "x"), fresh);
	md_log_close(log);
}
END_TEST

START_TEST(segments_before_the_start_are_trimmed_after_a_restart)
{
	struct md_log *log = open_after(0);
	uint64_t last = add_many(log, 50, 500);

	md_log_close(log);
	log = open_after(last);
	ck_assert_uint_gt(list_segments().count, 4);
	md_log_trim(log, last);
	ck_assert_uint_eq(list_segments().count, 1);
	md_log_close(log);
	log = open_after(last);
	md_log_close(log);
}
END_TEST

START_TEST(damage_in_what_the_store_covers_does_not_matter)
{
	struct md_log *log = open_after(0);
	uint64_t last = add_many(log, 50, 500);

	md_log_close(log);
	flip(segment(1), 200, 1);
	log = open_after(last);
	md_log_close(log);
	ck_assert_int_eq(open_fails(0), -EBADMSG);
}
END_TEST

/* -- a disk that is full or broken ------------------------------------------------------------- */

static void make_fail(enum gx_fault_kind kind, uint64_t nth, uint64_t repeat)
{
	fault.kinds = UINT64_C(1) << kind;
	fault.count = 0;
	fault.fired = 0;
	fault.nth = nth;
	fault.repeat = repeat;
}

START_TEST(no_space_for_a_segment_is_enospc_until_it_returns)
{
	struct md_log *log = open_after(0);
	char data[500] = "x";
	unsigned count = 0;
	uint64_t index;
	uint64_t last;

	make_fail(GX_FAULT_ALLOCATE, 1, UINT64_MAX);
	while (md_log_room(log, sizeof(data))) {
		ck_assert_int_eq(md_log_append(log, data, sizeof(data), &index), 0);
		ck_assert_int_eq(md_log_commit(log), 0);
		ck_assert_uint_lt(++count, 100);
	}
	ck_assert_uint_eq(count, 6);
	last = md_log_written(log);
	ck_assert_int_eq(md_log_append(log, data, sizeof(data), &index), -ENOSPC);
	ck_assert_int_eq(md_log_commit(log), 0);
	ck_assert_int_eq(md_log_sync(log), 0);
	ck_assert_int_eq(md_log_sick(log), 0);
	ck_assert_uint_eq(md_log_written(log), last);
	fault.nth = 0;
	ck_assert(md_log_room(log, sizeof(data)));
	ck_assert_uint_eq(add(log, "again"), last + 1);
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, count + 1);
	md_log_close(log);
}
END_TEST

START_TEST(a_full_disk_still_lets_the_log_open)
{
	struct md_log *log = open_after(0);

	make_fail(GX_FAULT_ALLOCATE, 1, UINT64_MAX);
	while (md_log_room(log, 8))
		add(log, "12345678");
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);
	for (uint64_t life = 2; life < 7; life++) {
		log = open_after(0);
		ck_assert_uint_eq(md_log_epoch(log), life);
		ck_assert(!md_log_room(log, 8));
		md_log_close(log);
	}
}
END_TEST

START_TEST(a_failed_write_makes_the_log_sick)
{
	struct md_log *log = open_after(0);
	uint64_t index;

	add_many(log, 1, 20);
	add(log, "lost");
	make_fail(GX_FAULT_WRITE, 1, 1);
	ck_assert_int_eq(md_log_commit(log), -ENOSPC);
	ck_assert_int_eq(md_log_sick(log), -ENOSPC);
	ck_assert_int_eq(md_log_commit(log), -ENOSPC);
	ck_assert_int_eq(md_log_append(log, "x", 1, &index), -ENOSPC);
	ck_assert(!md_log_room(log, 1));
	make_fail(GX_FAULT_SYNC, 0, 0);
	ck_assert_int_eq(md_log_sync(log), -ENOSPC);
	ck_assert_uint_eq(fault.count, 0);
	ck_assert_uint_eq(md_log_written(log), 2);
	md_log_close(log);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 1);
	md_log_close(log);
}
END_TEST

START_TEST(after_a_failed_fdatasync_there_is_no_second)
{
	struct md_log *log = open_after(0);
	uint64_t index;

	add_many(log, 3, 20);
	make_fail(GX_FAULT_SYNC, 1, 1);
	ck_assert_int_eq(md_log_sync(log), -EIO);
	ck_assert_int_eq(md_log_sync(log), -EIO);
	ck_assert_int_eq(md_log_append(log, "x", 1, &index), -EIO);
	ck_assert_int_eq(md_log_commit(log), -EIO);
	ck_assert_uint_eq(md_log_durable(log), 1);
	md_log_close(log);
	ck_assert_uint_eq(fault.count, 1);
}
END_TEST

/* The bytes of earlier lives that are written by an open: where the records of the log are. */
static uint64_t written_bytes;

static ssize_t counting_pwritev(struct gx_env *e, int fd, const struct iovec *iov, int iov_count,
				uint64_t offset)
{
	for (int i = 0; i < iov_count; i++)
		written_bytes += iov[i].iov_len;
	return gx_env_posix()->ops->pwritev(e, fd, iov, iov_count, offset);
}

START_TEST(open_writes_again_what_is_not_known_to_be_on_disk)
{
	struct gx_env_ops ops = *gx_env_posix()->ops;
	struct md_log *log = open_after(0);

	add_many(log, 5, 100);
	make_fail(GX_FAULT_SYNC, 1, 1);
	ck_assert_int_eq(md_log_sync(log), -EIO);
	fault.nth = 0;
	md_log_close(log);
	ops.pwritev = counting_pwritev;
	env.ops = &ops;
	written_bytes = 0;
	log = open_after(0);
	ck_assert_uint_eq(written_bytes, 5 * md_log_record_span(100) + md_log_record_span(0));
	add_many(log, 1, 10);
	md_log_close(log);
	/* Now the five are testified; of the rest nobody knows. */
	written_bytes = 0;
	log = open_after(0);
	ck_assert_uint_eq(written_bytes, md_log_record_span(10) + md_log_record_span(0));
	md_log_close(log);
}
END_TEST

/* Any single failing call: the open or the work fails cleanly, and what was committed is there. */
START_TEST(every_failing_call_leaves_a_log_that_opens)
{
	for (uint64_t nth = 1;; nth++) {
		struct md_log *log;
		size_t committed = 0;
		char data[500] = "x";
		bool fired;

		setup();
		log = open_after(0);
		add_many(log, 5, 500);
		md_log_close(log);
		fault.kinds = ~UINT64_C(0);
		fault.count = 0;
		fault.fired = 0;
		fault.nth = nth;
		committed = 5;
		if (try_open(0, NULL, &log) == 0) {
			uint64_t index;

			for (unsigned i = 0; i < 10; i++) {
				if (md_log_append(log, data, sizeof(data), &index) < 0 ||
				    md_log_commit(log) < 0)
					break;
				committed++;
			}
			if (md_log_sync(log) == 0)
				md_log_trim(log, 5);
			md_log_close(log);
		}
		fired = fault.fired > 0;
		fault.nth = 0;
		log = open_after(5);
		ck_assert_uint_ge(seen.count, committed - 4);
		ck_assert_uint_le(seen.count, committed - 4 + 1);
		md_log_close(log);
		teardown();
		if (!fired)
			break;
	}
}
END_TEST

/* -- on a loop ----------------------------------------------------------------------------------
 */

struct watch {
	struct gx_loop *loop;
	uint64_t durable;
	uint64_t wanted;
	unsigned calls;
	int err;
};

static void durable(void *arg, uint64_t index, int err)
{
	struct watch *w = arg;

	ck_assert_uint_ge(index, w->durable);
	w->durable = index;
	w->err = err;
	w->calls++;
	if (err < 0 || index >= w->wanted)
		gx_loop_stop(w->loop);
}

static struct md_log *open_watched(struct watch *w)
{
	struct md_log_options options = {.env = &env,
					 .dir = dir,
					 .segment_bytes = SMALL_SEGMENT,
					 .durable_fn = durable,
					 .arg = w};
	struct md_log *log;

	ck_assert_int_eq(gx_loop_new(&env, &w->loop), 0);
	options.loop = w->loop;
	seen.count = 0;
	ck_assert_int_eq(md_log_open(&options, 0, see, &seen, &log), 0);
	return log;
}

START_TEST(the_durable_index_is_told_on_the_loop)
{
	struct watch w = {0};
	struct md_log *log = open_watched(&w);

	for (unsigned round = 0; round < 50; round++) {
		w.wanted = add_many(log, 7, 300);
		ck_assert_int_eq(gx_loop_run(w.loop), 0);
		ck_assert_uint_eq(w.durable, w.wanted);
		ck_assert_uint_eq(md_log_durable(log), w.wanted);
		md_log_trim(log, w.wanted);
	}
	ck_assert_int_eq(w.err, 0);
	ck_assert_uint_ge(w.calls, 50);
	md_log_close(log);
	gx_loop_free(w.loop);
}
END_TEST

START_TEST(sync_waits_for_the_thread)
{
	struct watch w = {0};
	struct md_log *log = open_watched(&w);

	for (unsigned round = 0; round < 50; round++) {
		add_many(log, 3, 100);
		ck_assert_int_eq(md_log_sync(log), 0);
		ck_assert_uint_eq(md_log_durable(log), md_log_written(log));
	}
	md_log_close(log);
	gx_loop_free(w.loop);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 150);
	md_log_close(log);
}
END_TEST

START_TEST(a_failed_fdatasync_is_told_on_the_loop_once)
{
	struct watch w = {.wanted = UINT64_MAX};
	struct md_log *log = open_watched(&w);
	uint64_t index;

	/* The spare is made before syncs are to fail. */
	add_many(log, 1, 3000 / 2);
	ck_assert_int_eq(md_log_sync(log), 0);
	ck_assert(md_log_room(log, 3000)); /* waits for it */
	make_fail(GX_FAULT_SYNC, 1, UINT64_MAX);
	add_many(log, 1, 10);
	ck_assert_int_eq(gx_loop_run(w.loop), 0);
	ck_assert_int_eq(w.err, -EIO);
	ck_assert_int_eq(md_log_sync(log), -EIO);
	ck_assert_int_eq(md_log_append(log, "x", 1, &index), -EIO);
	ck_assert_int_eq(md_log_commit(log), -EIO);
	md_log_close(log);
	ck_assert_uint_eq(fault.count, 1);
	gx_loop_free(w.loop);
}
END_TEST

static _Atomic bool disk_is_full;

static int full_fallocate(struct gx_env *e, int fd, int mode, uint64_t offset, uint64_t bytes)
{
	return disk_is_full ? -ENOSPC : gx_env_posix()->ops->fallocate(e, fd, mode, offset, bytes);
}

START_TEST(space_that_returns_is_found_by_the_thread)
{
	struct gx_env_ops ops = *gx_env_posix()->ops;
	struct watch w = {0};
	struct md_log *log;
	char data[500] = "x";
	uint64_t index;

	ops.fallocate = full_fallocate;
	env.ops = &ops;
	log = open_watched(&w);
	disk_is_full = true;
	for (unsigned i = 0; md_log_room(log, sizeof(data)); i++) {
		ck_assert_int_eq(md_log_append(log, data, sizeof(data), &index), 0);
		ck_assert_int_eq(md_log_commit(log), 0);
		ck_assert_uint_lt(i, 100);
	}
	ck_assert_int_eq(md_log_append(log, data, sizeof(data), &index), -ENOSPC);
	disk_is_full = false;
	while (!md_log_room(log, sizeof(data)))
		gx_env_sleep_until(&env, gx_env_deadline_ms(&env, 5)); /* as clients would retry */
	add_many(log, 10, 500);
	ck_assert_int_eq(md_log_sync(log), 0);
	md_log_close(log);
	gx_loop_free(w.loop);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_log");
	TCase *tc = tcase_create("core");
	TCase *bare = tcase_create("own directories");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_set_timeout(bare, 60);
	tcase_add_test(tc, committed_records_are_replayed_in_order);
	tcase_add_test(tc, what_was_not_committed_is_not_replayed);
	tcase_add_test(tc, replay_begins_after_the_index_given);
	tcase_add_test(tc, an_error_of_the_replay_stops_the_opening);
	tcase_add_test(tc, every_open_has_a_higher_epoch_and_new_indexes);
	tcase_add_test(tc, records_roll_over_into_new_segments);
	tcase_add_test(tc, one_commit_may_span_segments);
	tcase_add_test(tc, a_record_larger_than_a_segment_is_e2big);
	tcase_add_test(tc, the_largest_record_fits_and_comes_back);
	tcase_add_test(tc, absurd_segment_sizes_are_einval);
	tcase_add_test(tc, another_segment_size_reads_the_old_segments);
	tcase_add_test(tc, trim_removes_only_segments_that_are_covered);
	tcase_add_test(tc, a_trimmed_segment_is_used_again_and_its_old_records_do_not_come_back);
	tcase_add_test(tc, segments_before_the_start_are_trimmed_after_a_restart);
	tcase_add_test(tc, damage_in_what_the_store_covers_does_not_matter);
	tcase_add_test(tc, no_space_for_a_segment_is_enospc_until_it_returns);
	tcase_add_test(tc, a_full_disk_still_lets_the_log_open);
	tcase_add_test(tc, a_failed_write_makes_the_log_sick);
	tcase_add_test(tc, after_a_failed_fdatasync_there_is_no_second);
	tcase_add_test(tc, open_writes_again_what_is_not_known_to_be_on_disk);
	tcase_add_test(bare, every_failing_call_leaves_a_log_that_opens);
	tcase_add_test(tc, the_durable_index_is_told_on_the_loop);
	tcase_add_test(tc, sync_waits_for_the_thread);
	tcase_add_test(tc, a_failed_fdatasync_is_told_on_the_loop_once);
	tcase_add_test(tc, space_that_returns_is_found_by_the_thread);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, bare);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
