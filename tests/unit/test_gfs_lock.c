/*
 * Locks by gfs.h: two processes' worth of library, small files in a real metad.
 */
#include "include/gfs.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define RW (GFS_O_READ | GFS_O_WRITE)

static struct meta_fixture *fixture;
static struct gfs *fs[2];
static struct gfs_file *file[2];

static void setup(void)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;

	options.root_mode = 0777;
	fixture = meta_fixture_start(&options);
	for (unsigned i = 0; i < 2; i++) {
		fs[i] = meta_fixture_gfs(fixture, META_ALICE);
		ck_assert_int_eq(gfs_open(fs[i], "/f", RW | GFS_O_CREATE, 0644, &file[i]), 0);
	}
}

static void teardown(void)
{
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(gfs_close(file[i]), 0);
		ck_assert_int_eq(gfs_disconnect(fs[i]), 0);
	}
	meta_fixture_stop(fixture);
}

START_TEST(ranges_and_flocks_exclude_each_other_between_processes)
{
	struct gfs_lock_info info;
	struct gfs_file *second;

	ck_assert_int_eq(gfs_lock(file[0], GFS_LOCK_WRITE, 10, 10, 0), 0);
	ck_assert_int_eq(gfs_lock(file[1], GFS_LOCK_READ, 0, 0, 0), -EAGAIN);
	ck_assert_ptr_nonnull(strstr(gfs_error(), "/f"));
	ck_assert_int_eq(gfs_lock(file[1], GFS_LOCK_READ, 19, 1, 30), -ETIMEDOUT);
	ck_assert_int_eq(gfs_lock(file[1], GFS_LOCK_READ, 20, 0, 0), 0);
	ck_assert_int_eq(gfs_getlock(file[1], GFS_LOCK_READ, 0, 0, &info), 0);
	ck_assert_uint_eq(info.type, GFS_LOCK_WRITE);
	ck_assert_uint_eq(info.offset, 10);
	ck_assert_uint_eq(info.bytes, 10);
	ck_assert_int_eq(info.pid, 0);
	/* Another open file of the same process is another owner. */
	ck_assert_int_eq(gfs_open(fs[0], "/f", RW, 0, &second), 0);
	ck_assert_int_eq(gfs_getlock(second, GFS_LOCK_READ, 15, 1, &info), 0);
	ck_assert_int_eq(info.pid, getpid());
	ck_assert_int_eq(gfs_lock(second, GFS_LOCK_READ, 15, 1, 0), -EAGAIN);
	ck_assert_int_eq(gfs_unlock(file[0], 0, 0), 0);
	ck_assert_int_eq(gfs_lock(second, GFS_LOCK_WRITE, 0, 20, 0), 0);
	ck_assert_int_eq(gfs_flock(second, GFS_LOCK_WRITE, 0), 0);
	ck_assert_int_eq(gfs_flock(file[1], GFS_LOCK_READ, 0), -EAGAIN);
	ck_assert_int_eq(gfs_close(second), 0);
	ck_assert_int_eq(gfs_flock(file[1], GFS_LOCK_READ, 0), 0);
	ck_assert_int_eq(gfs_lock(file[1], GFS_LOCK_WRITE, 0, 0, 0), 0);
	ck_assert_int_eq(gfs_getlock(file[1], GFS_LOCK_WRITE, 0, 0, &info), 0);
	ck_assert_uint_eq(info.type, GFS_LOCK_NONE);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused)
{
	struct gfs_lock_info info;

	ck_assert_int_eq(gfs_lock(file[0], 3, 0, 0, 0), -EINVAL);
	ck_assert_int_eq(gfs_lock(file[0], GFS_LOCK_READ, UINT64_MAX, 1, 0), -EINVAL);
	ck_assert_int_eq(gfs_lock(file[0], GFS_LOCK_READ, INT64_MAX, 2, 0), -EOVERFLOW);
	ck_assert_int_eq(gfs_lock(file[0], GFS_LOCK_READ, 1, UINT64_MAX, 0), -EOVERFLOW);
	ck_assert_int_eq(gfs_lock(file[0], GFS_LOCK_READ, INT64_MAX, 1, 0), 0);
	ck_assert_int_eq(gfs_getlock(file[0], GFS_LOCK_NONE, 0, 0, &info), -EINVAL);
}
END_TEST

static _Atomic int waited = 1;

static void *waiter_main(void *arg GX_UNUSED)
{
	waited = gfs_lock(file[1], GFS_LOCK_WRITE, 0, 0, -1);
	return NULL;
}

START_TEST(who_gets_the_lock_sees_what_was_written_under_it)
{
	char text[16] = "";
	pthread_t thread;

	ck_assert_int_eq(gfs_lock(file[0], GFS_LOCK_WRITE, 0, 0, 0), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, waiter_main, NULL), 0);
	/* Small, and nobody asks for it: held back until the lock ends. */
	ck_assert_int_eq(gfs_pwrite(file[0], "written", 7, 0), 7);
	ck_assert_int_eq(waited, 1);
	ck_assert_int_eq(gfs_unlock(file[0], 0, 0), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(waited, 0);
	ck_assert_int_eq(gfs_pread(file[1], text, sizeof(text), 0), 7);
	ck_assert_str_eq(text, "written");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfs_lock");
	TCase *tc = tcase_create("gfs_lock");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, ranges_and_flocks_exclude_each_other_between_processes);
	tcase_add_test(tc, what_makes_no_sense_is_refused);
	tcase_add_test(tc, who_gets_the_lock_sees_what_was_written_under_it);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
