/*
 * The ring between reading and writing, the line about a transfer, and which parts of copies are
 * gone on with.
 */
#include "client/tools/gfs_bar.h"
#include "client/tools/gfs_copy_part.h"
#include "client/tools/gfs_pipe.h"
#include <check.h>
#include <stdlib.h>

/* -- the pipe ---------------------------------------------------------------------------------- */

#define FILE_BYTES (10u * GFS_PIPE_PIECE + 777)

/* A file whose bytes follow from their place, and what has been written. */
static struct world {
	uint64_t size, read_fails_at, write_fails_at, enough_at;
	size_t piece_max;
	uint64_t written, steps;
	bool wrong;
} w;

static unsigned char byte_at(uint64_t offset)
{
	return (unsigned char)(offset * 31 + (offset >> 13));
}

static ssize_t read_file(void *arg GX_UNUSED, void *buf, size_t bytes, uint64_t offset)
{
	unsigned char *p = buf;

	if (offset >= w.read_fails_at)
		return -EIO;
	if (offset >= w.size)
		return 0;
	bytes = (size_t)GX_MIN(GX_MIN((uint64_t)bytes, (uint64_t)w.piece_max), w.size - offset);
	for (size_t i = 0; i < bytes; i++)
		p[i] = byte_at(offset + i);
	return (ssize_t)bytes;
}

static int write_file(void *arg GX_UNUSED, const void *buf, size_t bytes, uint64_t offset)
{
	const unsigned char *p = buf;

	if (offset >= w.write_fails_at)
		return -ENOSPC;
	w.wrong |= offset != w.written;
	for (size_t i = 0; i < bytes; i++)
		w.wrong |= p[i] != byte_at(offset + i);
	w.written = offset + bytes;
	return 0;
}

static bool step(void *arg GX_UNUSED, uint64_t at)
{
	w.steps++;
	return at >= w.enough_at;
}

static int run(bool read_here, uint64_t from, uint64_t end, struct gfs_pipe_result *ret_result)
{
	struct gfs_pipe_ends ends = {
		.read = read_file, .write = write_file, .read_here = read_here, .step = step};

	w.written = from;
	return gfs_pipe_run(gx_env_posix(), &ends, from, end, ret_result);
}

static void setup(void)
{
	w = (struct world){.size = FILE_BYTES,
			   .read_fails_at = UINT64_MAX,
			   .write_fails_at = UINT64_MAX,
			   .enough_at = UINT64_MAX,
			   .piece_max = SIZE_MAX};
}

/* _i: which side is the caller's. */
START_TEST(all_bytes_arrive_in_order)
{
	struct gfs_pipe_result result;

	w.piece_max = 100000;
	ck_assert_int_eq(run(_i, 0, FILE_BYTES, &result), 0);
	ck_assert(!w.wrong);
	ck_assert_uint_eq(w.written, FILE_BYTES);
	ck_assert_uint_eq(result.at, FILE_BYTES);
	ck_assert(!result.ended);
	ck_assert_uint_eq(w.steps, (FILE_BYTES + 99999) / 100000);
}
END_TEST

START_TEST(a_range_begins_and_ends_where_it_shall)
{
	struct gfs_pipe_result result;

	ck_assert_int_eq(run(_i, 5000, 5 * GFS_PIPE_PIECE + 1, &result), 0);
	ck_assert(!w.wrong);
	ck_assert_uint_eq(w.written, 5 * GFS_PIPE_PIECE + 1);
	ck_assert(!result.ended);
}
END_TEST

START_TEST(a_source_that_is_shorter_ends_it)
{
	struct gfs_pipe_result result;

	ck_assert_int_eq(run(_i, 0, UINT64_MAX, &result), 0);
	ck_assert_uint_eq(result.at, FILE_BYTES);
	ck_assert(result.ended);
	ck_assert_int_eq(result.read_err, 0);
}
END_TEST

START_TEST(what_was_read_before_a_failure_is_written)
{
	struct gfs_pipe_result result;

	w.read_fails_at = 3 * GFS_PIPE_PIECE;
	ck_assert_int_eq(run(_i, 0, FILE_BYTES, &result), 0);
	ck_assert_int_eq(result.read_err, -EIO);
	ck_assert_int_eq(result.write_err, 0);
	ck_assert_uint_eq(result.at, 3 * GFS_PIPE_PIECE);
	ck_assert(!result.ended);
}
END_TEST

START_TEST(a_failed_write_stops_the_reader)
{
	struct gfs_pipe_result result;

	w.write_fails_at = 2 * GFS_PIPE_PIECE;
	w.size = UINT64_MAX;
	ck_assert_int_eq(run(_i, 0, UINT64_MAX, &result), 0);
	ck_assert_int_eq(result.write_err, -ENOSPC);
	ck_assert_uint_eq(result.at, 2 * GFS_PIPE_PIECE);
}
END_TEST

START_TEST(it_stops_when_the_caller_has_enough)
{
	struct gfs_pipe_result result;

	w.enough_at = 4 * GFS_PIPE_PIECE;
	w.size = UINT64_MAX;
	ck_assert_int_eq(run(_i, 0, UINT64_MAX, &result), -EINTR);
	ck_assert(!w.wrong);
}
END_TEST

/* -- the line ---------------------------------------------------------------------------------- */

START_TEST(the_line_tells_rate_and_time_left)
{
	struct gfs_bar bar = {.name = "/data/file",
			      .total = UINT64_C(1) << 30,
			      .from = 0,
			      .done = UINT64_C(256) << 20};
	char text[GFS_BAR_TEXT];

	gfs_bar_text(&bar, 2 * GX_NSEC_PER_SEC, 80, text);
	ck_assert_str_eq(text, "/data/file   25%  256M of 1.0G  128M/s  0:06 left");
	/* What was there before this transfer began does not make it fast. */
	bar.from = UINT64_C(128) << 20;
	gfs_bar_text(&bar, 2 * GX_NSEC_PER_SEC, 80, text);
	ck_assert_str_eq(text, "/data/file   25%  256M of 1.0G  64M/s  0:12 left");
	bar.total = UINT64_MAX;
	gfs_bar_text(&bar, 2 * GX_NSEC_PER_SEC, 80, text);
	ck_assert_str_eq(text, "/data/file  256M  64M/s");
	bar.from = bar.done;
	bar.total = bar.done * 4;
	gfs_bar_text(&bar, 2 * GX_NSEC_PER_SEC, 80, text);
	ck_assert_str_eq(text, "/data/file   25%  256M of 1.0G  0/s  -:-- left");
}
END_TEST

START_TEST(the_line_fits_into_every_terminal)
{
	static char name[5000];
	struct gfs_bar bar = {.name = name, .total = 1000, .done = 10};
	char text[GFS_BAR_TEXT];

	memset(name, 'x', sizeof(name) - 1);
	name[3] = '\033';
	for (unsigned columns = 0; columns < 300; columns++) {
		gfs_bar_text(&bar, 5 * GX_NSEC_PER_SEC, columns, text);
		ck_assert_uint_le(strlen(text), columns);
		ck_assert_ptr_null(strchr(text, '\033'));
	}
}
END_TEST

START_TEST(when_it_is_shown_is_one_of_three_words)
{
	enum gfs_bar_when when;

	ck_assert_int_eq(gfs_bar_parse("always", &when), 0);
	ck_assert_int_eq(when, GFS_BAR_ALWAYS);
	ck_assert_int_eq(gfs_bar_parse("never", &when), 0);
	ck_assert_int_eq(when, GFS_BAR_NEVER);
	ck_assert_int_eq(gfs_bar_parse("auto", &when), 0);
	ck_assert_int_eq(when, GFS_BAR_AUTO);
	ck_assert_int_eq(gfs_bar_parse("", &when), -EINVAL);
	ck_assert_int_eq(gfs_bar_parse("sometimes", &when), -EINVAL);
}
END_TEST

/* -- parts ------------------------------------------------------------------------------------- */

static enum gfs_part_fate look(struct gfs_part_search *search, const char *name, bool ours,
			       uint64_t size, time_t age)
{
	struct gfs_part_seen seen = {
		.name = name, .ours = ours, .size = size, .mtime.tv_sec = search->now.tv_sec - age};
	enum gfs_part_fate fate;

	ck_assert_int_eq(gfs_part_look(search, &seen, &fate), 0);
	return fate;
}

START_TEST(the_longest_part_of_the_same_copy_is_taken)
{
	struct gfs_part_search search = {.names = {".gfs-tmp-d-", ".gfs-tmp-d-s-"},
					 .now.tv_sec = 1000000};

	ck_assert_int_eq(look(&search, ".gfs-tmp-d-s-1", true, 100, 5), GFS_PART_TAKEN);
	ck_assert_int_eq(look(&search, ".gfs-tmp-d-s-2", true, 90, 5), GFS_PART_STAYS);
	ck_assert_int_eq(look(&search, ".gfs-tmp-d-s-3", true, 101, 99999), GFS_PART_TAKEN);
	/* Somebody else's; of another content, just now and long ago; of another file. */
	ck_assert_int_eq(look(&search, ".gfs-tmp-d-s-4", false, 999, 5), GFS_PART_STAYS);
	ck_assert_int_eq(look(&search, ".gfs-tmp-d-t-5", true, 999, 5), GFS_PART_STAYS);
	ck_assert_int_eq(look(&search, ".gfs-tmp-d-t-5", true, 999, 99999), GFS_PART_GOES);
	ck_assert_int_eq(look(&search, ".gfs-tmp-d-t-5", false, 999, 99999), GFS_PART_STAYS);
	ck_assert_int_eq(look(&search, ".gfs-tmp-e-s-6", true, 999, 99999), GFS_PART_STAYS);
	ck_assert_str_eq(search.best, ".gfs-tmp-d-s-3");
	free(search.best);
}
END_TEST

/* Two files for gfs_part_check(); ours differs from wrong_at on. */
#define SOURCE_BYTES (3 * GFS_PART_CHECK)
static uint64_t hole_at, wrong_at, compared_from;

static ssize_t read_blocks(void *buf, size_t bytes, uint64_t offset)
{
	unsigned char *p = buf;

	bytes = (size_t)GX_MIN((uint64_t)bytes, SOURCE_BYTES - GX_MIN(offset, SOURCE_BYTES));
	for (size_t at = 0; at < bytes;) {
		size_t part = GX_MIN(bytes - at, 4096 - (offset + at) % 4096);

		memset(p + at, byte_at((offset + at) / 4096), part);
		at += part;
	}
	return (ssize_t)bytes;
}

static ssize_t read_theirs(void *arg GX_UNUSED, void *buf, size_t bytes, uint64_t offset)
{
	return read_blocks(buf, bytes, offset);
}

static ssize_t read_ours(void *arg GX_UNUSED, void *buf, size_t bytes, uint64_t offset)
{
	ssize_t n = read_blocks(buf, bytes, offset);

	compared_from = GX_MIN(compared_from, offset);
	if (n > 0 && wrong_at < offset + (uint64_t)n)
		((unsigned char *)buf)[GX_MAX(wrong_at, offset) - offset] ^= 1;
	return n;
}

static int64_t seek_theirs(void *arg GX_UNUSED, int64_t offset GX_UNUSED, int whence GX_UNUSED)
{
	return (int64_t)hole_at;
}

static uint64_t check_part(uint64_t size)
{
	struct gfs_tool tool = {.env = gx_env_posix(), .command = "test"};
	struct gfs_copy copy = {.tool = &tool, .buf = malloc(GFS_COPY_BUF_BYTES)};
	struct gfs_copy_source source = {.name = "theirs",
					 .attr.size = SOURCE_BYTES,
					 .read = read_theirs,
					 .seek = seek_theirs};
	struct gfs_copy_sink sink = {.read = read_ours};
	uint64_t from = UINT64_MAX;

	ck_assert_ptr_nonnull(copy.buf);
	compared_from = UINT64_MAX;
	ck_assert_int_eq(gfs_part_check(&copy, &source, &sink, size, &from), 0);
	free(copy.buf);
	return from;
}

static void part_setup(void)
{
	hole_at = SOURCE_BYTES;
	wrong_at = UINT64_MAX;
}

START_TEST(a_part_counts_as_far_as_it_is_right)
{
	ck_assert_uint_eq(check_part(0), 0);
	ck_assert_uint_eq(check_part(2000000), 2000000 / 4096 * 4096);
	wrong_at = 1500000;
	ck_assert_uint_eq(check_part(2000000), 1500000 / 4096 * 4096);
	wrong_at = 0;
	ck_assert_uint_eq(check_part(2000000), 0);
}
END_TEST

START_TEST(of_a_long_part_the_end_is_looked_at)
{
	const uint64_t size = 2 * GFS_PART_CHECK + 4096;

	ck_assert_uint_eq(check_part(size), size);
	ck_assert_uint_eq(compared_from, size - GFS_PART_CHECK);
	/* Longer than the source: what is behind its end does not count. */
	ck_assert_uint_eq(check_part(SOURCE_BYTES + 5), SOURCE_BYTES);
	wrong_at = size - 10;
	ck_assert_uint_eq(check_part(size), size - 4096);
	/* If not even the beginning of the end is right, nothing is. */
	wrong_at = size - GFS_PART_CHECK + 5;
	ck_assert_uint_eq(check_part(size), 0);
}
END_TEST

START_TEST(a_part_with_holes_is_looked_at_from_its_beginning)
{
	const uint64_t size = GFS_PART_CHECK + 8 * 4096;

	hole_at = 4096;
	ck_assert_uint_eq(check_part(size), size);
	ck_assert_uint_eq(compared_from, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfs_pipe");
	TCase *pipe = tcase_create("pipe"), *bar = tcase_create("bar"),
	      *part = tcase_create("part");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(pipe, setup, NULL);
	tcase_add_loop_test(pipe, all_bytes_arrive_in_order, 0, 2);
	tcase_add_loop_test(pipe, a_range_begins_and_ends_where_it_shall, 0, 2);
	tcase_add_loop_test(pipe, a_source_that_is_shorter_ends_it, 0, 2);
	tcase_add_loop_test(pipe, what_was_read_before_a_failure_is_written, 0, 2);
	tcase_add_loop_test(pipe, a_failed_write_stops_the_reader, 0, 2);
	tcase_add_loop_test(pipe, it_stops_when_the_caller_has_enough, 0, 2);
	suite_add_tcase(suite, pipe);
	tcase_add_test(bar, the_line_tells_rate_and_time_left);
	tcase_add_test(bar, the_line_fits_into_every_terminal);
	tcase_add_test(bar, when_it_is_shown_is_one_of_three_words);
	suite_add_tcase(suite, bar);
	tcase_add_test(part, the_longest_part_of_the_same_copy_is_taken);
	tcase_add_checked_fixture(part, part_setup, NULL);
	tcase_add_test(part, a_part_counts_as_far_as_it_is_right);
	tcase_add_test(part, of_a_long_part_the_end_is_looked_at);
	tcase_add_test(part, a_part_with_holes_is_looked_at_from_its_beginning);
	suite_add_tcase(suite, part);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
