/*
 * gfsmount without a kernel: its table of inodes and its options.
 */
#include "fuse/gfuse.h"
#include <check.h>
#include <getopt.h>

static struct gfuse_inodes *inodes;

static void setup(void)
{
	ck_assert_int_eq(gfuse_inodes_new(gx_env_posix(), &inodes), 0);
}

static void teardown(void)
{
	gfuse_inodes_free(inodes);
}

static uint64_t cap_of(uint64_t ino)
{
	struct gfc_ref ref;

	return gfuse_inodes_find(inodes, ino, &ref) == 0 ? ref.cap : 0;
}

START_TEST(an_inode_is_known_as_often_as_the_kernel_knows_it)
{
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(gfuse_inodes_add(inodes, (struct gfc_ref){7, 70}), 0);
	gfuse_inodes_forget(inodes, 7, 2);
	ck_assert_uint_eq(cap_of(7), 70);
	gfuse_inodes_forget(inodes, 7, 1);
	ck_assert_uint_eq(cap_of(7), 0);
	gfuse_inodes_forget(inodes, 7, 1); /* the kernel's mistake is not ours */
	ck_assert_uint_eq(gfuse_inodes_count(inodes), 0);
}
END_TEST

/* Against an array, with many in and out: entries move when others go. */
START_TEST(many_inodes_come_and_go)
{
	enum { COUNT = 20000 };
	static unsigned char counts[COUNT];
	uint64_t random = 1;
	size_t known = 0;

	memset(counts, 0, sizeof(counts));
	for (int i = 0; i < 400000; i++) {
		uint64_t n, ino;

		random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		n = (random >> 33) % COUNT;
		ino = n * 16 + 2; /* as numbers from a range are */
		if ((random >> 20) % 5 < (i < 200000 ? 3u : 1u) && counts[n] < 200) {
			ck_assert_int_eq(gfuse_inodes_add(inodes, (struct gfc_ref){ino, n + 1}), 0);
			counts[n]++;
		} else if (counts[n] > 0) {
			gfuse_inodes_forget(inodes, ino, 1);
			counts[n]--;
		}
		ck_assert_uint_eq(cap_of(ino), counts[n] ? n + 1 : 0);
	}
	for (uint64_t n = 0; n < COUNT; n++) {
		ck_assert_uint_eq(cap_of(n * 16 + 2), counts[n] ? n + 1 : 0);
		known += counts[n] > 0;
	}
	ck_assert_uint_eq(gfuse_inodes_count(inodes), known);
}
END_TEST

static uint64_t told;

static void tell(void *arg GX_UNUSED, uint64_t ino)
{
	told += ino;
}

START_TEST(pages_stay_while_nothing_has_changed)
{
	ck_assert(!gfuse_inodes_pages(inodes, 5, 99)); /* not known */
	ck_assert_int_eq(gfuse_inodes_add(inodes, (struct gfc_ref){5, 50}), 0);
	ck_assert_int_eq(gfuse_inodes_add(inodes, (struct gfc_ref){6, 60}), 0);
	ck_assert(!gfuse_inodes_doubt(inodes, 5));
	ck_assert(!gfuse_inodes_pages(inodes, 5, 99));
	ck_assert(gfuse_inodes_pages(inodes, 5, 99));
	ck_assert(!gfuse_inodes_pages(inodes, 5, 100));
	ck_assert(gfuse_inodes_doubt(inodes, 5));
	ck_assert(!gfuse_inodes_pages(inodes, 5, 100));
	ck_assert(gfuse_inodes_pages(inodes, 5, 100));
	told = 0;
	gfuse_inodes_doubt_all(inodes, tell, NULL);
	ck_assert_uint_eq(told, 5); /* the other has no pages */
	ck_assert(!gfuse_inodes_pages(inodes, 5, 100));
	/* A mark that looks like "none" or "in doubt" is none of them. */
	ck_assert(!gfuse_inodes_pages(inodes, 6, 0));
	ck_assert(gfuse_inodes_pages(inodes, 6, 0));
	ck_assert(gfuse_inodes_doubt(inodes, 6));
	ck_assert(!gfuse_inodes_pages(inodes, 6, 1));
}
END_TEST

/* -- options ------------------------------------------------------------------------------------
 */

static struct gfuse_conf conf;
static struct gx_buf errors;

static int parse(const char *options, const char *first, const char *second)
{
	char *argv[] = {"gfsmount",
			"-o",
			(char *)(uintptr_t)options,
			(char *)(uintptr_t)first,
			(char *)(uintptr_t)second,
			NULL};

	optind = 0;
	gx_buf_init(&errors, 4096);
	return gfuse_conf_parse(&conf, second ? 5 : first ? 4 : 3, argv, &errors);
}

static void parsed(void)
{
	gfuse_conf_fini(&conf);
	gx_buf_fini(&errors);
}

START_TEST(options_go_where_they_belong)
{
	ck_assert_int_eq(parse("ro,hard,cache=64MiB,timeout=0s,allow_other,_netdev,x-systemd.mount,"
			       "noatime,ncopy=2,names=no",
			       "gfs:/sub", "/mnt"),
			 0);
	ck_assert(conf.hard && conf.read_only && conf.noatime && !conf.names && !conf.writeback);
	ck_assert_uint_eq(conf.cache_bytes, 64u * 1024 * 1024);
	ck_assert_uint_eq(conf.ncopy, 2);
	ck_assert_int_eq(conf.timeout_ns, 0);
	ck_assert_str_eq(conf.source, "gfs:/sub");
	ck_assert_str_eq(conf.mountpoint, "/mnt");
	ck_assert_str_eq((const char *)conf.pass.data,
			 "ro,allow_other,noatime,default_permissions,subtype=gfsmount,"
			 "fsname=gfs:/sub");
	parsed();
	ck_assert_int_eq(parse("no_default_permissions,fsname=x", "/mnt", NULL), 0);
	ck_assert_str_eq((const char *)conf.pass.data, "fsname=x,subtype=gfsmount");
	parsed();
}
END_TEST

START_TEST(wrong_options_are_named)
{
	static const char *const wrong[] = {"nonsense", "cache=much", "ncopy=65", "hard,soft",
					    "timeout=-1s"};

	for (size_t i = 0; i < GX_COUNT_OF(wrong); i++) {
		ck_assert_int_lt(parse(wrong[i], "/mnt", NULL), 0);
		ck_assert_uint_gt(errors.bytes, 0);
		parsed();
	}
	ck_assert_int_lt(parse("ro", NULL, NULL), 0);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "where to mount"));
	parsed();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfuse");
	TCase *tc = tcase_create("inodes");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, an_inode_is_known_as_often_as_the_kernel_knows_it);
	tcase_add_test(tc, many_inodes_come_and_go);
	tcase_add_test(tc, pages_stay_while_nothing_has_changed);
	suite_add_tcase(suite, tc);
	tc = tcase_create("options");
	tcase_add_test(tc, options_go_where_they_belong);
	tcase_add_test(tc, wrong_options_are_named);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
