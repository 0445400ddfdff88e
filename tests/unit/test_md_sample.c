/*
 * A data directory of version 1, kept for ever: log, LevelDB and the records in them (rule N18).
 *
 * With GX_GOLDEN_WRITE=1 it is made anew; that is for a new version, beside the old ones.
 */
#include "metad/md_state.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <stdlib.h>

#define SAMPLE "tests/golden/metad_v1.tar.gz"

static struct meta_fixture *f;
static struct gfc *gfc;

static struct meta_fixture *start(void)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;

	/* Small files; and the first changes get from the log into the database. */
	options.segment_bytes = 64 * 1024;
	options.layer_bytes = 16 * 1024;
	return meta_fixture_start(&options);
}

/* A command that finds the fixture's directory in $DIR. */
static void run(const char *command)
{
	ck_assert_int_eq(setenv("DIR", meta_fixture_dir(f), 1), 0);
	ck_assert_int_eq(system(command), 0);
}

static void put(struct gfc_ref dir, const char *name, uint32_t mode, const char *text)
{
	struct gfc_write write = {.data = text, .bytes = strlen(text), .close = true};
	struct gfc_open *open;
	struct gfc_attr attr;

	ck_assert_int_eq(
		gfc_open(gfc, dir, name, GFC_OPEN_WRITE | GFC_OPEN_CREATE, mode, &attr, &open), 0);
	ck_assert_int_eq(gfc_write(gfc, open, &write, NULL, NULL), 0);
}

static void write_sample(void)
{
	struct gfc_change change = {.mask = GFC_SET_UID | GFC_SET_GID | GFC_SET_MTIME,
				    .uid = 1000,
				    .gid = 50,
				    .mtime_ns = 1234567890};
	struct gfc_attr dir, attr;
	char name[32];

	gfc = meta_fixture_gfc(f, META_ROOT, 0);
	ck_assert_int_eq(gfc_make(gfc, GFC_ROOT, "dir", S_IFDIR | 0755, 0, NULL, &dir), 0);
	for (unsigned i = 0; i < 300; i++) {
		ck_assert_int_eq(gx_format(name, sizeof(name), "file%u", i), 0);
		put(dir.ref, name, 0640, name);
	}
	ck_assert_int_eq(gfc_make(gfc, GFC_ROOT, "link", S_IFLNK | 0777, 0, "dir/file1", &attr), 0);
	ck_assert_int_eq(gfc_make(gfc, GFC_ROOT, "null", S_IFCHR | 0666, 0x103, NULL, &attr), 0);
	ck_assert_int_eq(gfc_lookup(gfc, dir.ref, "file7", &attr), 0);
	ck_assert_int_eq(gfc_link(gfc, attr.ref, GFC_ROOT, "seven", &attr), 0);
	ck_assert_int_eq(gfc_setattr(gfc, attr.ref, NULL, &change, &attr), 0);
	ck_assert_int_eq(gfc_setxattr(gfc, attr.ref, "user.note", "value", 5, 0), 0);
	ck_assert_int_eq(gfc_unlink(gfc, dir.ref, "file8", false), 0);
	ck_assert_int_eq(gfc_rename(gfc, dir.ref, "file9", GFC_ROOT, "nine", 0), 0);
	ck_assert_int_eq(gfc_free(gfc), 0);
	meta_fixture_down(f);
	run("tar -C \"$DIR\" -czf " SAMPLE " --owner=0 --group=0 --exclude=LOG log db");
	meta_fixture_up(f);
}

static int count_entry(void *arg, const struct gfc_dirent *entry GX_UNUSED)
{
	++*(unsigned *)arg;
	return 0;
}

static unsigned count_entries(struct gfc_ref dir)
{
	char after[256] = "";
	unsigned count = 0;
	int r;

	do {
		r = gfc_readdir(gfc, dir, after, true, count_entry, &count);
	} while (r == 0);
	ck_assert_int_eq(r, 1);
	return count;
}

static void assert_content(struct gfc_ref dir, const char *name, const char *want)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	char text[64];

	ck_assert_int_eq(gfc_open(gfc, dir, name, GFC_OPEN_READ, 0, &attr, &open), 0);
	ck_assert_int_eq(gfc_read(gfc, open, text, sizeof(text), 0, NULL), (ssize_t)strlen(want));
	ck_assert_mem_eq(text, want, strlen(want));
	ck_assert_int_eq(gfc_close(gfc, open), 0);
}

static void look_version(struct md_server *server, void *arg)
{
	const void *value;
	struct md_key key;
	size_t bytes;

	md_key_super(&key);
	ck_assert_int_eq(
		md_kv_get(md_server_state(server)->kv, key.bytes, key.count, &value, &bytes, NULL),
		0);
	*(unsigned char *)arg = *(const unsigned char *)value;
}

START_TEST(a_grid_of_version_1_is_read_and_goes_on)
{
	struct gfc_attr dir, attr;
	struct gx_buf value;
	unsigned char version;
	char target[GX_PATH_MAX];

	meta_fixture_down(f);
	run("rm -rf \"$DIR/log\" \"$DIR/db\" && tar -C \"$DIR\" -xzf " SAMPLE);
	meta_fixture_up(f);
	gfc = meta_fixture_gfc(f, META_ROOT, 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "dir", &dir), 0);
	ck_assert_uint_eq(count_entries(dir.ref), 298);
	ck_assert_uint_eq(count_entries(GFC_ROOT), 5);
	assert_content(dir.ref, "file299", "file299");
	assert_content(GFC_ROOT, "nine", "file9");
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "link", &attr), 0);
	ck_assert_int_eq(gfc_readlink(gfc, attr.ref, target), 0);
	ck_assert_str_eq(target, "dir/file1");
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "null", &attr), 0);
	ck_assert_uint_eq(attr.rdev, 0x103);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "seven", &attr), 0);
	ck_assert_uint_eq(attr.nlink, 2);
	ck_assert_uint_eq(attr.uid, 1000);
	ck_assert_uint_eq(attr.gid, 50);
	ck_assert_uint_eq(attr.mode, S_IFREG | 0640);
	ck_assert_int_eq(attr.mtime_ns, 1234567890);
	gx_buf_init(&value, 64);
	ck_assert_int_eq(gfc_getxattr(gfc, attr.ref, "user.note", &value), 0);
	ck_assert_uint_eq(value.bytes, 5);
	gx_buf_fini(&value);
	put(dir.ref, "new", 0644, "new");
	assert_content(dir.ref, "new", "new");
	/* From now on an older metad would not understand all of it, and is told so. */
	meta_fixture_run(f, look_version, &version);
	ck_assert_uint_eq(version, 3);
	ck_assert_int_eq(gfc_free(gfc), 0);
	meta_fixture_check(f);
}
END_TEST

static void setup(void)
{
	f = start();
	if (getenv("GX_GOLDEN_WRITE"))
		write_sample();
}

static void teardown(void)
{
	meta_fixture_stop(f);
}

int main(void)
{
	Suite *s = suite_create("md_sample");
	TCase *t = tcase_create("sample");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_grid_of_version_1_is_read_and_goes_on);
	suite_add_tcase(s, t);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
