/*
 * What a crash or a bad disk leaves of the log: torn tails and damage byte by byte, stale records,
 * foreign and newer segments, a stored sample.
 *
 * MD_LOG_WRITE_GOLDEN=1 writes the sample anew, for a new version of the format.
 */
#include "common/gx_sum.h"
#include "metad/md_log.h"
#include "tests/unit/md_log_fixture.h"

#define GOLDEN "tests/golden/md_log_v1.log"

/* -- torn tails and damage --------------------------------------------------------------------- */

/* A log of five records nobody has synced, the last three of them 40 bytes and an odd payload. */
struct tail {
	uint8_t bytes[SMALL_SEGMENT];
	size_t start[6]; /* of each record; [5]: end */
};

static void make_tail(struct tail *tail)
{
	static const char *const texts[5] = {"first", "second one", "3", "fourth, longer", "5th"};
	struct md_log *log = open_after(0);
	size_t at = MD_LOG_HEADER_BYTES + md_log_record_span(0);

	for (unsigned i = 0; i < 5; i++) {
		add(log, texts[i]);
		tail->start[i] = at;
		at += md_log_record_span(strlen(texts[i]));
	}
	tail->start[5] = at;
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);
	ck_assert_uint_eq(load(segment(1), tail->bytes, sizeof(tail->bytes)), SMALL_SEGMENT);
}

static size_t records_before(const struct tail *tail, size_t end)
{
	size_t n = 0;

	while (n < 5 && tail->start[n + 1] <= end)
		n++;
	return n;
}

/* Replays `expected`, goes on in a new epoch, and the same again after another start. */
static void check_prefix(size_t expected)
{
	struct md_log *log = open_after(0);

	ck_assert_uint_eq(seen.count, expected);
	ck_assert_uint_eq(md_log_epoch(log), 2);
	ck_assert_uint_eq(add(log, "new"), expected + 3);
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, expected + 1);
	ck_assert_str_eq(seen.text[expected], "new");
	ck_assert_uint_eq(seen.epoch[expected], 2);
	ck_assert_uint_eq(md_log_epoch(log), 3);
	md_log_close(log);
}

static void remove_others(void)
{
	struct segments s = list_segments();

	for (size_t i = 1; i < s.count; i++)
		unlink(segment(s.first[i]));
}

START_TEST(a_tail_cut_at_any_byte_leaves_the_whole_records)
{
	struct tail tail;

	make_tail(&tail);
	for (size_t end = tail.start[0]; end <= tail.start[5] + 16; end++) {
		remove_others();
		store(segment(1), tail.bytes, end);
		check_prefix(records_before(&tail, end));
	}
}
END_TEST

START_TEST(a_tail_zeroed_from_any_byte_leaves_the_whole_records)
{
	struct tail tail;
	struct tail torn;

	make_tail(&tail);
	for (size_t end = tail.start[0]; end <= tail.start[5]; end++) {
		size_t whole = records_before(&tail, end);

		torn = tail;
		memset(torn.bytes + end, 0, sizeof(torn.bytes) - end);
		/* Zeros at the end of a record may have been zeros before. */
		while (whole < 5 &&
		       memcmp(torn.bytes + tail.start[whole], tail.bytes + tail.start[whole],
			      tail.start[whole + 1] - tail.start[whole]) == 0)
			whole++;
		store(segment(1), torn.bytes, sizeof(torn.bytes));
		check_prefix(whole);
	}
}
END_TEST

START_TEST(a_flipped_byte_in_the_tail_ends_the_replay_there)
{
	struct tail tail;

	make_tail(&tail);
	for (size_t at = tail.start[0]; at < tail.start[5]; at++) {
		size_t record = records_before(&tail, at);
		size_t payload = gx_get_le32(tail.bytes + tail.start[record] + 8);
		bool padding = at >= tail.start[record] + MD_LOG_RECORD_HEADER_BYTES + payload;

		store(segment(1), tail.bytes, sizeof(tail.bytes));
		flip(segment(1), (off_t)at, (uint8_t)(1u << (at % 8)));
		/* Nobody has said that they were on disk, so it is taken for a torn tail. */
		check_prefix(padding ? 5 : record);
	}
}
END_TEST

START_TEST(whole_records_of_an_older_epoch_behind_a_torn_tail_never_parse)
{
	struct tail tail;
	struct md_log *log;
	struct md_log_record record;
	size_t epoch_span = md_log_record_span(0);
	uint64_t seed;
	uint8_t now[SMALL_SEGMENT];

	/* Life 1: five records; "3" is replaced by an empty one, so that what life 2 writes there
	 * (its epoch record) ends exactly where life 1's record "fourth" begins. */
	make_tail(&tail);
	seed = md_log_seed(tail.bytes + 16);
	ck_assert_int_eq(md_log_record_decode(tail.bytes + tail.start[3], 200, seed, &record), 0);
	ck_assert_uint_eq(record.index, 5);
	memmove(tail.bytes + tail.start[2] + epoch_span, tail.bytes + tail.start[3],
		tail.start[5] - tail.start[3]);
	memset(tail.bytes + tail.start[2], 0, epoch_span);
	store(segment(1), tail.bytes, sizeof(tail.bytes));
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 2);
	md_log_close(log);
	/* The trap is set: index, checksum and place are right, only the epoch is not. */
	load(segment(1), now, sizeof(now));
	ck_assert_int_eq(md_log_record_decode(now + tail.start[2] + epoch_span, 200, seed, &record),
			 0);
	ck_assert_uint_eq(record.index, 5);
	ck_assert_uint_eq(record.epoch, 1);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 2);
	ck_assert_uint_eq(md_log_written(log), 5); /* the epoch record of life 3 */
	md_log_close(log);
}
END_TEST

START_TEST(damage_before_synced_records_is_ebadmsg)
{
	struct tail tail;
	struct md_log *log;
	size_t end;
	int r;

	make_tail(&tail);
	/* Life 2 has synced them; its own record says so. */
	log = open_after(0);
	add(log, "witness");
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);
	end = load(segment(1), tail.bytes, sizeof(tail.bytes));
	for (size_t at = MD_LOG_HEADER_BYTES; at < tail.start[5]; at += 3) {
		store(segment(1), tail.bytes, end);
		flip(segment(1), (off_t)at, 0x10);
		r = try_open(0, NULL, &log);
		if (r == 0) {
			/* Only padding may be anything. */
			ck_assert_uint_eq(seen.count, 6);
			ck_assert_uint_eq(tail.bytes[at], 0);
			md_log_close(log);
		} else {
			ck_assert_int_eq(r, -EBADMSG);
		}
		remove_others();
	}
}
END_TEST

START_TEST(damage_in_the_middle_with_later_segments_is_ebadmsg)
{
	struct md_log *log = open_after(0);
	struct segments s;

	for (unsigned i = 0; i < 10; i++) {
		add_many(log, 3, 500);
		ck_assert_int_eq(md_log_sync(log), 0);
	}
	md_log_close(log);
	s = list_segments();
	ck_assert_uint_ge(s.count, 4);
	flip(segment(s.first[1]), 300, 4);
	ck_assert_int_eq(open_fails(0), -EBADMSG);
	ck_assert_uint_eq(list_segments().count, s.count);
	flip(segment(s.first[1]), 300, 4);
	flip(segment(s.first[2]), 20, 4); /* a header */
	ck_assert_int_eq(open_fails(0), -EBADMSG);
	flip(segment(s.first[2]), 20, 4);
	unlink(segment(s.first[1]));
	ck_assert_int_eq(open_fails(0), -EBADMSG);
}
END_TEST

START_TEST(later_segments_behind_a_tail_nobody_was_promised_are_dropped)
{
	struct md_log *log = open_after(0);
	struct segments s;

	add_many(log, 30, 500);
	md_log_close(log);
	s = list_segments();
	flip(segment(s.first[1]), 300, 4);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, s.first[1] - 2);
	md_log_close(log);
	ck_assert_uint_eq(list_segments().count, 2);
}
END_TEST

START_TEST(a_log_that_lacks_what_the_store_has_is_ebadmsg)
{
	struct md_log *log;

	ck_assert_int_eq(open_fails(7), -EBADMSG);
	log = open_after(0);
	add_many(log, 3, 20);
	md_log_close(log);
	ck_assert_int_eq(open_fails(100), -EBADMSG);
	flip(segment(1), 120, 1);
	ck_assert_int_eq(open_fails(3), -EBADMSG);
}
END_TEST

/* -- versions and foreign segments ----------------------------------------------------------------
 */

START_TEST(a_newer_version_is_refused)
{
	struct md_log *log = open_after(0);
	uint8_t bytes[SMALL_SEGMENT];
	size_t n;

	add_many(log, 3, 20);
	md_log_close(log);
	n = load(segment(1), bytes, sizeof(bytes));
	gx_put_le32(bytes + 8, MD_LOG_VERSION + 1);
	gx_put_le64(bytes + 56, gx_sum64(bytes, 56));
	store(segment(1), bytes, n);
	ck_assert_int_eq(open_fails(0), -EPROTONOSUPPORT);
	/* A damaged version field is damage. */
	bytes[8] = 77;
	store(segment(1), bytes, n);
	ck_assert_int_eq(open_fails(0), -EBADMSG);
}
END_TEST

START_TEST(a_segment_of_another_log_is_ebadmsg)
{
	struct md_log *log = open_after(0);
	uint8_t bytes[SMALL_SEGMENT];
	uint8_t uuid[MD_LOG_UUID_BYTES];
	uint8_t other[MD_LOG_UUID_BYTES];
	struct segments s;

	add_many(log, 20, 500);
	md_log_uuid(log, uuid);
	md_log_close(log);
	s = list_segments();
	load(segment(s.first[1]), bytes, sizeof(bytes));
	for (size_t i = 0; i < s.count; i++)
		unlink(segment(s.first[i]));
	log = open_after(0);
	add_many(log, 20, 500);
	md_log_uuid(log, other);
	ck_assert_int_ne(memcmp(uuid, other, sizeof(uuid)), 0);
	md_log_close(log);
	store(segment(s.first[1]), bytes, sizeof(bytes));
	ck_assert_int_eq(open_fails(0), -EBADMSG);
}
END_TEST

START_TEST(a_segment_under_a_wrong_name_is_ebadmsg)
{
	struct md_log *log = open_after(0);
	uint8_t bytes[SMALL_SEGMENT];

	md_log_close(log);
	load(segment(1), bytes, sizeof(bytes));
	unlink(segment(1));
	store(segment(2), bytes, sizeof(bytes));
	ck_assert_int_eq(open_fails(1), -EBADMSG);
}
END_TEST

START_TEST(other_files_in_the_directory_are_left_alone)
{
	struct md_log *log;
	char path[128];

	gx_format(path, sizeof(path), "%s/README", dir);
	store(path, "hello", 5);
	log = open_after(0);
	md_log_close(log);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

static void write_golden(void)
{
	uint8_t bytes[SMALL_SEGMENT];
	struct md_log *log = open_after(0);

	add(log, "mkdir /a");
	add_many(log, 1, 300);
	add(log, "");
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);
	log = open_after(0);
	add(log, "rename /a /b");
	ck_assert_int_eq(md_log_commit(log), 0);
	md_log_close(log);
	store(GOLDEN, bytes, load(segment(1), bytes, sizeof(bytes)));
}

START_TEST(the_stored_sample_of_version_1_opens)
{
	uint8_t bytes[65536];
	struct md_log *log;
	size_t n;

	if (getenv("MD_LOG_WRITE_GOLDEN") != NULL)
		write_golden();
	n = load(GOLDEN, bytes, sizeof(bytes));
	store(segment(1), bytes, n);
	log = open_after(0);
	ck_assert_uint_eq(seen.count, 4);
	ck_assert_str_eq(seen.text[0], "mkdir /a");
	ck_assert_uint_eq(seen.index[0], 2);
	ck_assert_uint_eq(seen.bytes[1], 300);
	ck_assert_uint_eq(seen.bytes[2], 0);
	ck_assert_str_eq(seen.text[3], "rename /a /b");
	ck_assert_uint_eq(seen.index[3], 6);
	ck_assert_uint_eq(seen.epoch[3], 2);
	ck_assert_uint_eq(md_log_epoch(log), 3);
	md_log_close(log);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_log_recover");
	TCase *tc = tcase_create("core");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_tail_cut_at_any_byte_leaves_the_whole_records);
	tcase_add_test(tc, a_tail_zeroed_from_any_byte_leaves_the_whole_records);
	tcase_add_test(tc, a_flipped_byte_in_the_tail_ends_the_replay_there);
	tcase_add_test(tc, whole_records_of_an_older_epoch_behind_a_torn_tail_never_parse);
	tcase_add_test(tc, damage_before_synced_records_is_ebadmsg);
	tcase_add_test(tc, damage_in_the_middle_with_later_segments_is_ebadmsg);
	tcase_add_test(tc, later_segments_behind_a_tail_nobody_was_promised_are_dropped);
	tcase_add_test(tc, a_log_that_lacks_what_the_store_has_is_ebadmsg);
	tcase_add_test(tc, a_newer_version_is_refused);
	tcase_add_test(tc, a_segment_of_another_log_is_ebadmsg);
	tcase_add_test(tc, a_segment_under_a_wrong_name_is_ebadmsg);
	tcase_add_test(tc, other_files_in_the_directory_are_left_alone);
	tcase_add_test(tc, the_stored_sample_of_version_1_opens);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
