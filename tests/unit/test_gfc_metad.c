/*
 * The client of metad against the real one: every operation once, two clients with caches,
 * and a restart.
 */
#include "include/gfs.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <stdio.h>

#define CACHE (1024 * 1024)
#define ROOT GFC_ROOT

static struct meta_fixture *fixture;
static struct gfc *root, *alice, *other;

static void setup(void)
{
	struct gfc_change open_to_all = {.mask = GFC_SET_MODE, .mode = 01777};
	struct gfc_attr attr;

	fixture = meta_fixture_start(NULL);
	root = meta_fixture_gfc(fixture, META_ROOT, CACHE);
	ck_assert_int_eq(gfc_setattr(root, ROOT, NULL, &open_to_all, &attr), 0);
	alice = meta_fixture_gfc(fixture, META_ALICE, CACHE);
	other = meta_fixture_gfc(fixture, META_ALICE, CACHE);
}

static void teardown(void)
{
	ck_assert_int_eq(gfc_free(alice), 0);
	ck_assert_int_eq(gfc_free(other), 0);
	ck_assert_int_eq(gfc_free(root), 0);
	meta_fixture_check(fixture);
	meta_fixture_stop(fixture);
}

static int mkdir_at(struct gfc *gfc, struct gfc_ref dir, const char *name, struct gfc_attr *attr)
{
	return gfc_make(gfc, dir, name, S_IFDIR | 0755, 0, NULL, attr);
}

static int put(struct gfc *gfc, struct gfc_ref dir, const char *name, const char *text)
{
	struct gfc_write write = {
		.data = text, .bytes = strlen(text), .truncate = true, .close = true};
	struct gfc_open *open;
	struct gfc_attr attr;
	int r = gfc_open(gfc, dir, name, GFC_OPEN_WRITE | GFC_OPEN_CREATE, 0644, &attr, &open);

	return r < 0 ? r : gfc_write(gfc, open, &write, NULL, &attr);
}

static int get(struct gfc *gfc, struct gfc_ref dir, const char *name, char *text, size_t bytes)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	ssize_t got;
	int r = gfc_open(gfc, dir, name, GFC_OPEN_READ, 0, &attr, &open);

	if (r < 0)
		return r;
	got = gfc_read(gfc, open, text, bytes - 1, 0, NULL);
	ck_assert_int_ge(got, 0);
	text[got] = '\0';
	return gfc_close(gfc, open);
}

static int count_entry(void *arg, const struct gfc_dirent *entry)
{
	ck_assert(entry->has_attr);
	++*(unsigned *)arg;
	return 0;
}

START_TEST(every_operation_works_once)
{
	struct gfc_change change = {.mask = GFC_SET_SIZE, .size = 3};
	struct gfc_attr dir, attr, again;
	uint64_t inodes, bytes;
	char text[GX_PATH_MAX], after[GFS_NAME_MAX + 1] = "";
	struct gfc_open *open;
	struct gx_buf buf;
	unsigned count = 0;
	uint32_t name_max;

	gx_buf_init(&buf, 65536);
	ck_assert_int_eq(mkdir_at(alice, ROOT, "d", &dir), 0);
	ck_assert_int_eq(put(alice, dir.ref, "f", "hello"), 0);
	ck_assert_int_eq(get(alice, dir.ref, "f", text, sizeof(text)), 0);
	ck_assert_str_eq(text, "hello");
	ck_assert_int_eq(gfc_lookup(alice, dir.ref, "f", &attr), 0);
	ck_assert_uint_eq(attr.size, 5);
	ck_assert_int_eq(gfc_link(alice, attr.ref, dir.ref, "g", &again), 0);
	ck_assert_uint_eq(again.nlink, 2);
	ck_assert_int_eq(gfc_getattr(alice, attr.ref, &again), 0);
	ck_assert_uint_eq(again.nlink, 2);
	ck_assert_int_eq(gfc_rename(alice, dir.ref, "g", dir.ref, "h", 0), 0);
	ck_assert_int_eq(gfc_lookup(alice, dir.ref, "g", &again), -ENOENT);
	ck_assert_int_eq(gfc_lookup(alice, dir.ref, "h", &again), 0);
	ck_assert_uint_eq(again.ref.ino, attr.ref.ino);
	/* Both are names of one inode: POSIX says that nothing happens. */
	ck_assert_int_eq(gfc_rename(alice, dir.ref, "h", dir.ref, "f", 0), 0);
	ck_assert_int_eq(gfc_lookup(alice, dir.ref, "h", &again), 0);
	ck_assert_int_eq(gfc_setattr(alice, attr.ref, NULL, &change, &again), 0);
	ck_assert_uint_eq(again.size, 3);
	ck_assert_int_eq(gfc_setxattr(alice, attr.ref, "user.k", "v", 1, 0), 0);
	ck_assert_int_eq(gfc_getxattr(alice, attr.ref, "user.k", &buf), 0);
	ck_assert_uint_eq(buf.bytes, 1);
	gx_buf_clear(&buf);
	ck_assert_int_eq(gfc_listxattr(alice, attr.ref, &buf), 0);
	ck_assert_str_eq((char *)buf.data, "user.k");
	ck_assert_int_eq(gfc_make(alice, dir.ref, "l", S_IFLNK | 0777, 0, "f", &again), 0);
	ck_assert_int_eq(gfc_readlink(alice, again.ref, text), 0);
	ck_assert_str_eq(text, "f");
	ck_assert_int_eq(gfc_readdir(alice, dir.ref, after, true, count_entry, &count), 1);
	ck_assert_uint_eq(count, 3);
	ck_assert_int_eq(gfc_open(alice, attr.ref, NULL, GFC_OPEN_READ, 0, &again, &open), 0);
	ck_assert_int_eq(gfc_unlink(alice, dir.ref, "f", false), 0);
	ck_assert_int_eq(gfc_unlink(alice, dir.ref, "h", false), 0);
	ck_assert_int_eq(gfc_open_getattr(alice, open, &again), 0);
	ck_assert_uint_eq(again.nlink, 0);
	ck_assert_int_eq(gfc_close(alice, open), 0);
	ck_assert_int_eq(gfc_unlink(alice, ROOT, "d", true), -ENOTEMPTY);
	ck_assert_int_eq(gfc_unlink(alice, dir.ref, "l", false), 0);
	ck_assert_int_eq(gfc_unlink(alice, ROOT, "d", true), 0);
	ck_assert_int_eq(gfc_lookup(alice, ROOT, "d", &again), -ENOENT);
	ck_assert_int_eq(gfc_statfs(alice, &inodes, &bytes, &name_max), 0);
	ck_assert_uint_eq(name_max, 255);
	ck_assert_int_eq(gfc_sync(alice), 0);
	gx_buf_fini(&buf);
}
END_TEST

START_TEST(a_change_is_seen_by_another_client_as_soon_as_it_has_returned)
{
	struct gfc_stats stats;
	struct gfc_attr attr;
	char name[32];

	for (unsigned i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "n%u", i % 7);
		ck_assert_int_eq(put(alice, ROOT, name, name), 0);
		ck_assert_int_eq(gfc_lookup(other, ROOT, name, &attr), 0);
		ck_assert_int_eq(gfc_lookup(other, ROOT, name, &attr), 0);
		ck_assert_int_eq(gfc_unlink(alice, ROOT, name, false), 0);
		ck_assert_int_eq(gfc_lookup(other, ROOT, name, &attr), -ENOENT);
		ck_assert_int_eq(gfc_lookup(other, ROOT, name, &attr), -ENOENT);
	}
	gfc_stats(other, &stats);
	ck_assert_uint_gt(stats.cache_hits, 0);
	ck_assert_uint_gt(stats.forgotten, 0);
}
END_TEST

START_TEST(files_stay_open_over_a_restart_and_caches_come_back)
{
	struct gfc_write write = {.data = "more", .bytes = 4, .append = true};
	struct gfc_open *open;
	struct gfc_stats stats;
	struct gfc_attr attr;
	char text[64];

	ck_assert_int_eq(put(alice, ROOT, "f", "some"), 0);
	ck_assert_int_eq(gfc_open(alice, ROOT, "f", GFC_OPEN_WRITE, 0, &attr, &open), 0);
	for (unsigned i = 0; i < 3; i++) {
		meta_fixture_down(fixture);
		meta_fixture_up(fixture);
		ck_assert_int_eq(gfc_write(alice, open, &write, NULL, &attr), 0);
	}
	ck_assert_int_eq(gfc_close(alice, open), 0);
	ck_assert_int_eq(get(other, ROOT, "f", text, sizeof(text)), 0);
	ck_assert_str_eq(text, "somemoremoremore");
	gfc_stats(alice, &stats);
	ck_assert_uint_eq(stats.resumed, 3);
	ck_assert_int_eq(gfc_sync(alice), 0);
}
END_TEST

START_TEST(a_short_visit_is_short_and_leaves_nothing)
{
	struct gx_env *env = gfc_env(alice);
	int64_t begin_ns = gx_env_now_ns(env);
	struct gfc_attr attr;
	uint64_t first = 0;

	/* Leaving must not run into metad's waiting for a client whose push channel broke. */
	for (unsigned i = 0; i < 20; i++) {
		struct gfc *gfc = meta_fixture_gfc(fixture, META_ALICE, CACHE);

		ck_assert_int_eq(gfc_getattr(gfc, ROOT, &attr), 0);
		/* And must not leave a session behind. */
		first = first ? first : rpc_client_session(gfc_rpc(gfc));
		ck_assert_uint_eq(rpc_client_session(gfc_rpc(gfc)), first + i);
		ck_assert_int_eq(gfc_free(gfc), 0);
	}
	ck_assert_int_lt(gx_env_now_ns(env) - begin_ns, 10 * GX_NSEC_PER_SEC);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfc_metad");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, every_operation_works_once);
	tcase_add_test(tc, a_change_is_seen_by_another_client_as_soon_as_it_has_returned);
	tcase_add_test(tc, files_stay_open_over_a_restart_and_caches_come_back);
	tcase_add_test(tc, a_short_visit_is_short_and_leaves_nothing);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
