/*
 * Every allocation of libgfs' public half fails once; below it is a tree in memory.
 */
#include "tests/fault/fault_run.h"
#include "tests/unit/gfs_fake.h"

static char key_path[128];

/* It worked, or it says that memory is short. */
static bool went_well(ssize_t result)
{
	fault_must(result >= 0 || result == -ENOMEM, "ended with %zd: %s", result, gfs_error());
	return result >= 0;
}

static void use_file(void)
{
	struct gfs_file *file;
	struct gfs_stat st;
	char buf[8];

	if (!went_well(
		    gfs_open(fs, "/d/link", GFS_O_READ | GFS_O_WRITE | GFS_O_CREATE, 0644, &file)))
		return;
	if (went_well(gfs_write(file, "abc", 3)) && went_well(gfs_write(file, "def", 3))) {
		went_well(gfs_stat(fs, "/f", &st));
		fault_must(gfs_pread(file, buf, sizeof(buf), 0) == 6, "wrote less");
	}
	went_well(gfs_pwrite(file, "x", 1, 3000));
	fault_must(gfs_close(file) == 0, "a close needs no memory");
}

static void use_dir(void)
{
	struct gfs_dirent entry;
	struct gfs_dir *dir;
	int r;

	if (!went_well(gfs_opendir(fs, "/d/..", &dir)))
		return;
	do {
		r = gfs_readdir(dir, &entry);
	} while (r > 0);
	went_well(r);
	gfs_closedir(dir);
}

static void scenario(struct gx_fault *fault GX_UNUSED)
{
	struct gfs_options options = {.metad = "127.0.0.1:1", .key_file = key_path};
	char buf[8];

	if (!went_well(gfs_connect(&options, &fs)))
		return;
	if (went_well(gfs_mkdir_all(fs, "/d/e", 0755)) &&
	    went_well(gfs_symlink(fs, "../f", "/d/link")) && went_well(gfs_mkdir(fs, "/e", 0755)) &&
	    went_well(gfs_mkdir(fs, "/g", 0755))) {
		use_file();
		use_dir();
		went_well(gfs_setxattr(fs, "/d/e", "user.a", "abc", 3, 0, true));
		gfs_getxattr(fs, "/d/e", "user.a", buf, sizeof(buf), true);
		went_well(gfs_listxattr(fs, "/d/e", buf, sizeof(buf), true));
		went_well(gfs_rename(fs, "/d/e/../link", "/d/e/l", 0));
	}
	fault_must(gfs_disconnect(fs) == 0, "leaving needs no memory");
	fs = NULL;
}

START_TEST(every_allocation_may_fail)
{
	fake_setup();
	ck_assert_int_eq(gfs_disconnect(fs), 0);
	fs = NULL;
	ck_assert_int_eq(gx_format(key_path, sizeof(key_path), "%s/key", fake_dir), 0);
	fault_run_allocs("gfs", scenario, true);
	fake_teardown();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_gfs");
	TCase *tc = tcase_create("fault_gfs");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, every_allocation_may_fail);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
