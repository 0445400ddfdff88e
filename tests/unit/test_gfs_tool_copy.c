/*
 * Copies of a file that another program is changing: what cuts it at the wrong moment must not make
 * zeros of bytes that were never zeros.
 */
#include "client/tools/gfs_copy.h"
#include "client/tools/gfs_tool.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES (3u * GFS_COPY_BUF_BYTES)

/* A file whose data ends at `data_end` and that is `size` long; the sink has what was written. */
static struct world {
	uint64_t size, data_end;
	unsigned cut_asked;     /* that SEEK_DATA finds it cut to nothing; 0: none */
	unsigned written_asked; /* and that one finds it whole again; 0: none */
	unsigned asked;
	uint64_t copied_bytes, copied_end;
} w;

static int64_t seek_source(void *arg GX_UNUSED, int64_t offset, int whence)
{
	if (whence == SEEK_END)
		return (int64_t)w.size;
	if (whence == SEEK_DATA) {
		w.asked++;
		if (w.asked == w.cut_asked)
			w.size = w.data_end = 0;
		if (w.asked == w.written_asked)
			w.size = w.data_end = FILE_BYTES;
		return (uint64_t)offset < w.data_end ? offset : -ENXIO;
	}
	return (int64_t)((uint64_t)offset < w.data_end ? w.data_end : w.size);
}

static ssize_t read_source(void *arg GX_UNUSED, void *buf, size_t bytes, uint64_t offset)
{
	if (offset >= w.size)
		return 0;
	bytes = (size_t)GX_MIN((uint64_t)bytes, w.size - offset);
	memset(buf, 'x', bytes);
	return (ssize_t)bytes;
}

static int write_sink(void *arg GX_UNUSED, const void *buf GX_UNUSED, size_t bytes, uint64_t offset)
{
	w.copied_bytes += bytes;
	w.copied_end = GX_MAX(w.copied_end, offset + bytes);
	return 0;
}

static int set_size_sink(void *arg GX_UNUSED, uint64_t size)
{
	w.copied_end = size;
	return 0;
}

static void copy_file(void)
{
	struct gfs_tool tool = {.env = gx_env_posix(), .command = "test"};
	struct gfs_copy copy = {
		.tool = &tool, .dest = &gfs_copy_dest_local, .buf = malloc(GFS_COPY_BUF_BYTES)};
	struct gfs_copy_source source = {
		.name = "source",
		.local = true,
		.attr = {.size = w.size},
		.read = read_source,
		.seek = seek_source,
	};
	struct gfs_copy_sink sink = {.write = write_sink, .set_size = set_size_sink};

	ck_assert_ptr_nonnull(copy.buf);
	ck_assert_int_eq(gfs_copy_bytes(&copy, &source, &sink, 0), 0);
	free(copy.buf);
}

START_TEST(a_hole_at_the_end_stays_one)
{
	w = (struct world){.size = FILE_BYTES, .data_end = GFS_COPY_BUF_BYTES};
	copy_file();
	ck_assert_uint_eq(w.copied_bytes, GFS_COPY_BUF_BYTES);
	ck_assert_uint_eq(w.copied_end, FILE_BYTES);
}
END_TEST

START_TEST(a_file_of_holes_stays_one)
{
	w = (struct world){.size = FILE_BYTES};
	copy_file();
	ck_assert_uint_eq(w.copied_bytes, 0);
	ck_assert_uint_eq(w.copied_end, FILE_BYTES);
}
END_TEST

/* Between the question for its end and the one for its data. */
START_TEST(a_file_cut_to_nothing_is_not_copied_as_zeros)
{
	w = (struct world){.size = FILE_BYTES, .data_end = FILE_BYTES, .cut_asked = 1};
	copy_file();
	ck_assert_uint_eq(w.copied_bytes, 0);
	ck_assert_uint_eq(w.copied_end, 0);
}
END_TEST

START_TEST(a_file_cut_and_written_again_is_copied_as_written)
{
	w = (struct world){
		.size = FILE_BYTES, .data_end = FILE_BYTES, .cut_asked = 1, .written_asked = 2};
	copy_file();
	ck_assert_uint_eq(w.copied_bytes, FILE_BYTES);
	ck_assert_uint_eq(w.copied_end, FILE_BYTES);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gfs_copy");
	TCase *tc = tcase_create("changing");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, a_hole_at_the_end_stays_one);
	tcase_add_test(tc, a_file_of_holes_stays_one);
	tcase_add_test(tc, a_file_cut_to_nothing_is_not_copied_as_zeros);
	tcase_add_test(tc, a_file_cut_and_written_again_is_copied_as_written);
	suite_add_tcase(s, tc);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
