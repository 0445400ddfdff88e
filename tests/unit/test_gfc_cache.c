/*
 * The cache of names and attributes by itself.
 */
#include "client/fs/gfc_cache.h"
#include <check.h>
#include <stdio.h>

/* A clock the test moves. */
static struct gx_env env;
static struct gx_env_ops ops;
static int64_t clock_ns;

static int64_t test_now(struct gx_env *e GX_UNUSED)
{
	return clock_ns;
}

static struct gfc_cache *cache;

static void setup_bytes(size_t bytes)
{
	env = *gx_env_posix();
	ops = *env.ops;
	ops.now_ns = test_now;
	env.ops = &ops;
	clock_ns = 1000 * GX_NSEC_PER_SEC;
	ck_assert_int_eq(gfc_cache_new(&env, bytes, &cache), 0);
	gfc_cache_start(cache);
	ck_assert(gfc_cache_answered(cache, clock_ns));
}

static void setup(void)
{
	setup_bytes(1024 * 1024);
}

static void teardown(void)
{
	gfc_cache_free(cache);
}

static struct gfc_attr attr_of(uint64_t ino, uint64_t version)
{
	return (struct gfc_attr){.ref = {ino, ino * 100}, .version = version};
}

static void put(uint64_t dir, const char *name, uint64_t ino, uint64_t version)
{
	uint64_t clock = gfc_cache_clock(cache);
	struct gfc_attr attr = attr_of(ino, version);

	gfc_cache_put_attr(cache, clock, &attr);
	gfc_cache_put_name(cache, clock, dir, name, ino);
}

/* The inode, 0 for "does not exist", -1 for "ask". */
static int64_t find(uint64_t dir, const char *name)
{
	struct gfc_attr attr;
	int r = gfc_cache_find_name(cache, dir, name, &attr);

	if (r == 0)
		return (int64_t)attr.ref.ino;
	return r == -ENOENT ? 0 : -1;
}

static int64_t version(uint64_t ino)
{
	struct gfc_attr attr;

	return gfc_cache_find_attr(cache, ino, &attr) == 0 ? (int64_t)attr.version : -1;
}

START_TEST(what_was_put_is_found)
{
	ck_assert_int_eq(find(1, "a"), -1);
	put(1, "a", 5, 1);
	ck_assert_int_eq(find(1, "a"), 5);
	ck_assert_int_eq(version(5), 1);
	ck_assert_int_eq(find(2, "a"), -1);
	ck_assert_int_eq(find(1, "aa"), -1);
	gfc_cache_put_name(cache, gfc_cache_clock(cache), 1, "none", 0);
	ck_assert_int_eq(find(1, "none"), 0);
	put(1, "none", 6, 1);
	ck_assert_int_eq(find(1, "none"), 6);
}
END_TEST

START_TEST(the_newer_version_stays)
{
	put(1, "a", 5, 7);
	put(1, "a", 5, 6);
	ck_assert_int_eq(version(5), 7);
	put(1, "a", 5, 8);
	ck_assert_int_eq(version(5), 8);
}
END_TEST

START_TEST(dots_and_long_names_are_not_kept)
{
	char name[300];

	memset(name, 'x', sizeof(name));
	name[256] = '\0';
	put(1, "..", 5, 1);
	put(1, ".", 5, 1);
	put(1, name, 5, 1);
	ck_assert_int_eq(find(1, ".."), -1);
	ck_assert_int_eq(find(1, "."), -1);
	ck_assert_int_eq(find(1, name), -1);
	name[255] = '\0';
	put(1, name, 5, 1);
	ck_assert_int_eq(find(1, name), 5);
}
END_TEST

START_TEST(forgetting_drops_what_is_named_and_nothing_else)
{
	put(1, "a", 5, 1);
	put(1, "b", 6, 1);
	put(2, "a", 7, 1);
	gfc_cache_forget(cache, 1, GFC_FORGET_NAME, "a");
	ck_assert_int_eq(find(1, "a"), -1);
	ck_assert_int_eq(find(1, "b"), 6);
	ck_assert_int_eq(version(5), 1);
	gfc_cache_forget(cache, 6, GFC_FORGET_ATTR, "");
	ck_assert_int_eq(version(6), -1);
	ck_assert_int_eq(find(1, "b"), -1);
	put(1, "b", 6, 2);
	gfc_cache_forget(cache, 1, GFC_FORGET_NAMES, "");
	ck_assert_int_eq(find(1, "b"), -1);
	ck_assert_int_eq(find(2, "a"), 7);
	put(1, "b", 6, 2);
	ck_assert_int_eq(find(1, "b"), 6);
	gfc_cache_forget_all(cache);
	ck_assert_int_eq(find(2, "a"), -1);
}
END_TEST

START_TEST(a_reply_older_than_a_push_is_not_stored)
{
	uint64_t clock = gfc_cache_clock(cache);
	struct gfc_attr attr = attr_of(5, 1);

	gfc_cache_forget(cache, 5, GFC_FORGET_ATTR, "");
	gfc_cache_put_attr(cache, clock, &attr);
	ck_assert_int_eq(version(5), -1);
	/* Another inode of the same reply is not concerned. */
	attr = attr_of(6, 1);
	gfc_cache_put_attr(cache, clock, &attr);
	ck_assert_int_eq(version(6), 1);
	gfc_cache_forget(cache, 1, GFC_FORGET_NAME, "x");
	gfc_cache_put_name(cache, clock, 1, "a", 6);
	ck_assert_int_eq(find(1, "a"), -1);
	clock = gfc_cache_clock(cache);
	gfc_cache_forget_all(cache);
	gfc_cache_put_attr(cache, clock, &attr);
	ck_assert_int_eq(version(6), -1);
}
END_TEST

START_TEST(a_directory_that_only_we_change_is_known)
{
	struct gfc_cache_change change = {.names = {{1, "a", true, 5, 1, 1}}, .name_count = 1};
	struct gfc_attr attr = attr_of(1, 7);
	uint64_t clock;

	attr.nlink = 2;
	attr.size = 3;
	gfc_cache_put_attr(cache, gfc_cache_clock(cache), &attr);
	clock = gfc_cache_touch(cache, &change);
	change.time_ns = 99;
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(gfc_cache_find_attr(cache, 1, &attr), 0);
	ck_assert_int_eq(attr.nlink, 3);
	ck_assert_int_eq(attr.size, 4);
	ck_assert_int_eq(attr.mtime_ns, 99);
	ck_assert_int_eq(attr.ctime_ns, 99);
	ck_assert_int_eq(attr.version, 7);
	/* Somebody else has been there meanwhile, or it is not known what was done. */
	for (int told = 0; told < 2; told++) {
		attr = attr_of(1, 8);
		gfc_cache_put_attr(cache, gfc_cache_clock(cache), &attr);
		clock = gfc_cache_touch(cache, &change);
		if (told)
			gfc_cache_forget(cache, 1, GFC_FORGET_NAME, "b");
		change.time_ns = told ? 99 : 0;
		gfc_cache_changed(cache, clock, &change);
		ck_assert_int_eq(version(1), -1);
	}
}
END_TEST

/*
 * What metad said while a change was on its way may hold that change already, or not: counted on
 * from there, a directory had -1 entries.
 */
START_TEST(an_own_change_is_not_counted_twice)
{
	struct gfc_cache_change change = {.names = {{1, "a", true, 0, -1, 0}}, .name_count = 1};
	struct gfc_attr attr = attr_of(1, 7);
	struct gfc_ref ref;
	uint32_t type;
	uint64_t clock;

	put(9, "dir", 1, 7);
	clock = gfc_cache_touch(cache, &change);
	attr.version = 8;
	attr.size = 0;
	gfc_cache_put_attr(cache, gfc_cache_clock(cache), &attr);
	change.time_ns = 99;
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(version(1), -1);
	/* The way through it is known all the same. */
	ck_assert_int_eq(gfc_cache_find_ref(cache, 9, "dir", &ref, &type), 0);
	/* metad's next word counts again. */
	gfc_cache_put_attr(cache, gfc_cache_clock(cache), &attr);
	ck_assert_int_eq(version(1), 8);
}
END_TEST

START_TEST(a_kernel_may_keep_what_is_here_while_it_is_trusted)
{
	struct gfc_cache_change change = {.inos = {5}};
	uint64_t clock;

	put(1, "a", 5, 3);
	clock_ns += 400 * GX_NSEC_PER_MSEC;
	ck_assert_int_eq(gfc_cache_keep_name(cache, 1, "a", 5), 1100 * GX_NSEC_PER_MSEC);
	ck_assert_int_eq(gfc_cache_keep_attr(cache, 5, 3), 1100 * GX_NSEC_PER_MSEC);
	ck_assert_int_eq(gfc_cache_keep_name(cache, 1, "a", 6), 0);
	ck_assert_int_eq(gfc_cache_keep_name(cache, 1, "a", 0), 0);
	ck_assert_int_eq(gfc_cache_keep_name(cache, 1, "b", 0), 0);
	ck_assert_int_eq(gfc_cache_keep_attr(cache, 5, 2), 0);
	ck_assert_int_eq(gfc_cache_keep_attr(cache, 6, 3), 0);
	gfc_cache_put_name(cache, gfc_cache_clock(cache), 1, "b", 0);
	ck_assert_int_gt(gfc_cache_keep_name(cache, 1, "b", 0), 0);
	/* Not while a change of our own is on its way. */
	clock = gfc_cache_touch(cache, &change);
	ck_assert_int_eq(gfc_cache_keep_attr(cache, 5, 3), 0);
	gfc_cache_changed(cache, clock, &change);
	put(1, "a", 5, 4);
	clock_ns += 1100 * GX_NSEC_PER_MSEC;
	ck_assert_int_eq(gfc_cache_keep_name(cache, 1, "a", 5), 0);
	ck_assert_int_eq(gfc_cache_keep_attr(cache, 5, 4), 0);
}
END_TEST

START_TEST(a_reply_older_than_an_own_change_is_not_stored)
{
	struct gfc_attr attr = attr_of(5, 2);
	struct gfc_cache_change change = {.inos = {5}};
	uint64_t before = gfc_cache_clock(cache), clock, between;

	clock = gfc_cache_touch(cache, &change);
	between = gfc_cache_clock(cache);
	change.attr = &attr;
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(version(5), 2);
	attr = attr_of(5, 1);
	gfc_cache_put_attr(cache, before, &attr);
	ck_assert_int_eq(version(5), 2);
	gfc_cache_put_attr(cache, between, &attr);
	ck_assert_int_eq(version(5), 2);
	attr = attr_of(5, 3);
	gfc_cache_put_attr(cache, gfc_cache_clock(cache), &attr);
	ck_assert_int_eq(version(5), 3);
	/* Newer than what is here, but perhaps not newest: neither of both is shown. */
	attr = attr_of(5, 4);
	gfc_cache_put_attr(cache, between, &attr);
	ck_assert_int_eq(version(5), -1);
}
END_TEST

START_TEST(nothing_is_used_while_an_own_change_is_on_its_way)
{
	struct gfc_cache_change change = {
		.names = {{7, "x", true, 0}}, .name_count = 1, .inos = {5}};
	struct gfc_attr attr = attr_of(5, 2);
	uint64_t clock;

	gfc_cache_put_attr(cache, gfc_cache_clock(cache), &attr);
	gfc_cache_put_name(cache, gfc_cache_clock(cache), 7, "x", 5);
	ck_assert_int_eq(version(5), 2);
	ck_assert_int_eq(gfc_cache_find_name(cache, 7, "x", &attr), 0);
	clock = gfc_cache_touch(cache, &change);
	ck_assert_int_eq(version(5), -1);
	ck_assert_int_eq(gfc_cache_find_name(cache, 7, "x", &attr), -EAGAIN);
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(gfc_cache_find_name(cache, 7, "x", &attr), -ENOENT);
}
END_TEST

START_TEST(the_answer_to_an_own_change_is_not_stored_if_a_push_came_first)
{
	struct gfc_attr attr = attr_of(5, 2);
	struct gfc_cache_change change = {
		.names = {{1, "a", true, 5}}, .name_count = 1, .attr = &attr};
	uint64_t clock = gfc_cache_touch(cache, &change);

	put(1, "a", 5, 1);
	gfc_cache_forget(cache, 5, GFC_FORGET_ATTR, "");
	gfc_cache_forget(cache, 1, GFC_FORGET_NAME, "a");
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(version(5), -1);
	ck_assert_int_eq(find(1, "a"), -1);
}
END_TEST

START_TEST(an_own_change_drops_the_directory_and_stores_names)
{
	struct gfc_attr attr = attr_of(5, 2);
	struct gfc_cache_change change = {
		.names = {{1, "a", true, 5}}, .name_count = 1, .attr = &attr};
	struct gfc_cache_change gone = {.names = {{1, "a", true, 0}}, .name_count = 1, .inos = {5}};
	struct gfc_ref ref;
	uint64_t clock;
	uint32_t type;

	put(7, "dir", 1, 1);
	/* Without having looked there is no lease on the directory's names. */
	clock = gfc_cache_touch(cache, &change);
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(find(1, "a"), -1);
	ck_assert_int_eq(version(5), 2);
	gfc_cache_put_name(cache, gfc_cache_clock(cache), 1, "a", 0);
	clock = gfc_cache_touch(cache, &change);
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(find(1, "a"), 5);
	ck_assert_int_eq(version(1), -1);
	/* What the directory's name stands for is still known; its size is not. */
	ck_assert_int_eq(find(7, "dir"), -1);
	ck_assert_int_eq(gfc_cache_find_ref(cache, 7, "dir", &ref, &type), 0);
	ck_assert_uint_eq(ref.cap, 100);
	put(7, "dir", 1, 2);
	ck_assert_int_eq(version(1), 2);
	clock = gfc_cache_touch(cache, &gone);
	gfc_cache_changed(cache, clock, &gone);
	ck_assert_int_eq(find(1, "a"), 0);
	ck_assert_int_eq(version(5), -1);
}
END_TEST

START_TEST(a_rename_of_names_that_are_not_known_forgets_everything)
{
	struct gfc_cache_change change = {
		.names = {{1, "a", true, 0}, {2, "b", false, 0}}, .name_count = 2, .guess = true};
	uint64_t clock;

	put(1, "a", 5, 1);
	put(2, "b", 6, 1);
	put(3, "c", 7, 1);
	clock = gfc_cache_touch(cache, &change);
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(find(1, "a"), 0);
	ck_assert_int_eq(find(2, "b"), -1);
	ck_assert_int_eq(version(5), -1);
	ck_assert_int_eq(version(6), -1);
	ck_assert_int_eq(find(3, "c"), 7);
	/* Now neither what moves nor what is replaced is known. */
	clock = gfc_cache_touch(cache, &change);
	gfc_cache_changed(cache, clock, &change);
	ck_assert_int_eq(find(3, "c"), -1);
}
END_TEST

START_TEST(trust_ends_by_the_clock_and_an_answer_too_late_ends_all)
{
	put(1, "a", 5, 1);
	clock_ns += GFC_TRUST_NS - 1;
	ck_assert_int_eq(find(1, "a"), 5);
	/* An answer in time: trust goes on from its sending. */
	ck_assert(gfc_cache_answered(cache, clock_ns - 100));
	clock_ns += GFC_TRUST_NS - 101;
	ck_assert_int_eq(find(1, "a"), 5);
	clock_ns += 1;
	ck_assert_int_eq(find(1, "a"), -1);
	/* Too late, though sent in time: others may have changed it since. */
	ck_assert(!gfc_cache_answered(cache, clock_ns - 1));
	ck_assert_int_eq(find(1, "a"), -1);
	/* And may have given up the channel: nothing is kept before there is a new one. */
	ck_assert(gfc_cache_answered(cache, clock_ns));
	put(1, "a", 5, 2);
	ck_assert_int_eq(find(1, "a"), -1);
	gfc_cache_start(cache);
	ck_assert(gfc_cache_answered(cache, clock_ns));
	put(1, "a", 5, 2);
	ck_assert_int_eq(find(1, "a"), 5);
}
END_TEST

START_TEST(nothing_is_stored_or_found_without_a_push_channel)
{
	uint64_t clock = gfc_cache_clock(cache);
	struct gfc_attr attr = attr_of(5, 1);

	put(1, "a", 5, 1);
	gfc_cache_stop(cache);
	ck_assert_int_eq(find(1, "a"), -1);
	put(1, "a", 5, 1);
	gfc_cache_answered(cache, clock_ns);
	ck_assert_int_eq(find(1, "a"), -1);
	gfc_cache_start(cache);
	/* Trust begins with an answer. */
	put(1, "b", 6, 1);
	ck_assert_int_eq(find(1, "b"), -1);
	gfc_cache_answered(cache, clock_ns);
	ck_assert_int_eq(find(1, "b"), 6);
	/* Asked for in an earlier life. */
	gfc_cache_put_attr(cache, clock, &attr);
	ck_assert_int_eq(version(5), -1);
}
END_TEST

START_TEST(memory_is_bounded_and_the_longest_unused_goes)
{
	struct gfc_cache_stats stats;
	char name[32];

	teardown();
	setup_bytes(64 * 1024);
	put(1, "hot", 1000000, 1);
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "name%u", i);
		put(1, name, 10 + i, 1);
		ck_assert_int_eq(find(1, "hot"), 1000000);
		ck_assert_int_eq(find(1, name), 10 + i);
		gfc_cache_stats(cache, &stats);
		ck_assert_uint_le(stats.bytes, 64 * 1024);
	}
	ck_assert_int_eq(find(1, "name0"), -1);
	ck_assert_uint_gt(stats.count, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfc_cache");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_was_put_is_found);
	tcase_add_test(tc, the_newer_version_stays);
	tcase_add_test(tc, dots_and_long_names_are_not_kept);
	tcase_add_test(tc, forgetting_drops_what_is_named_and_nothing_else);
	tcase_add_test(tc, a_reply_older_than_a_push_is_not_stored);
	tcase_add_test(tc, a_reply_older_than_an_own_change_is_not_stored);
	tcase_add_test(tc, a_directory_that_only_we_change_is_known);
	tcase_add_test(tc, an_own_change_is_not_counted_twice);
	tcase_add_test(tc, a_kernel_may_keep_what_is_here_while_it_is_trusted);
	tcase_add_test(tc, nothing_is_used_while_an_own_change_is_on_its_way);
	tcase_add_test(tc, the_answer_to_an_own_change_is_not_stored_if_a_push_came_first);
	tcase_add_test(tc, an_own_change_drops_the_directory_and_stores_names);
	tcase_add_test(tc, a_rename_of_names_that_are_not_known_forgets_everything);
	tcase_add_test(tc, trust_ends_by_the_clock_and_an_answer_too_late_ends_all);
	tcase_add_test(tc, nothing_is_stored_or_found_without_a_push_channel);
	tcase_add_test(tc, memory_is_bounded_and_the_longest_unused_goes);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
