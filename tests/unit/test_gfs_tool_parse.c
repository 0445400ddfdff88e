#include "client/tools/gfs_parse.h"
#include "client/tools/gfs_paths.h"
#include <check.h>
#include <sys/stat.h>

/* -- modes ------------------------------------------------------------------------------------- */

static const struct {
	const char *text;
	mode_t umask;
	uint32_t before, after;
} mode_cases[] = {
	{"644", 022, S_IFREG | 0777, 0644},
	{"0", 0, S_IFREG | 0777, 0},
	{"7777", 0, S_IFREG, 07777},
	{"u+x", 022, S_IFREG | 0644, 0744},
	{"u+rwx,g-w,a=rX", 0, S_IFREG | 0664, 0555},
	{"a=rX", 0, S_IFREG | 0664, 0444},
	{"a=rX", 0, S_IFDIR | 0700, 0555},
	{"go-rwx", 0, S_IFREG | 0777, 0700},
	{"g=u", 0, S_IFREG | 0640, 0660},
	{"o=g-w", 0, S_IFREG | 0660, 0664},
	{"ug+w-x", 0, S_IFREG | 0555, 0665},
	{"u+s", 0, S_IFREG | 0755, 04755},
	{"g+s", 0, S_IFREG | 0755, 02755},
	{"ug-s", 0, S_IFREG | 06755, 0755},
	{"+t", 0, S_IFDIR | 0777, 01777},
	{"o+t", 0, S_IFDIR | 0777, 01777},
	{"u=", 0, S_IFREG | 0755, 0055},
	/* Without a who the umask counts, except for what '=' clears. */
	{"+w", 022, S_IFREG | 0444, 0644},
	{"-w", 022, S_IFREG | 0666, 0466},
	{"=r", 022, S_IFREG | 0777, 0444},
	{"=rw", 077, S_IFREG | 0777, 0600},
	/* Directories keep their set-id bits unless these are named. */
	{"755", 0, S_IFDIR | 02700, 02755},
	{"00755", 0, S_IFDIR | 02700, 0755},
	{"755", 0, S_IFREG | 06700, 0755},
	{"g=rx", 0, S_IFDIR | 02770, 02750},
	{"g=rx", 0, S_IFREG | 02770, 0750},
};

START_TEST(a_mode_changes_what_chmod_would)
{
	struct gfs_mode_change change;

	ck_assert_int_eq(gfs_mode_parse(mode_cases[_i].text, mode_cases[_i].umask, &change), 0);
	ck_assert_uint_eq(gfs_mode_apply(&change, mode_cases[_i].before), mode_cases[_i].after);
}
END_TEST

START_TEST(what_is_no_mode_is_refused)
{
	static const char *const bad[] = {"",     "8",    "778",  "17777", "77777777777777",
					  "u",    "rwx",  "u+q",  "u+r,",  ",u+r",
					  "u+r ", "+r,u", "u:+r", "0x7"};
	struct gfs_mode_change change;
	char many[2 * GFS_MODE_STEPS_MAX + 3] = {0};

	for (size_t i = 0; i < GX_COUNT_OF(bad); i++)
		ck_assert_msg(gfs_mode_parse(bad[i], 0, &change) < 0, "%s", bad[i]);
	for (size_t i = 0; i <= GFS_MODE_STEPS_MAX; i++)
		memcpy(many + 2 * i, "+r", 2);
	ck_assert_int_eq(gfs_mode_parse(many, 0, &change), -E2BIG);
	many[2 * GFS_MODE_STEPS_MAX] = '\0';
	ck_assert_int_eq(gfs_mode_parse(many, 0, &change), 0);
}
END_TEST

/* -- times ------------------------------------------------------------------------------------- */

#define NOW_NS INT64_C(1000000000123456789)

static const struct {
	const char *text;
	int64_t sec;
	long nsec;
} time_cases[] = {
	{"now", 1000000000, 123456789},
	{"@0", 0, 0},
	{"@-5", -5, 0},
	{"@1000000000.25", 1000000000, 250000000},
	{"@1.0000000019", 1, 1},
	{"2001-09-09T01:46:40Z", 1000000000, 0},
	{"1969-12-31T23:59:59.5Z", -1, 500000000},
	/* TZ is UTC+1 without a summer time here. */
	{"2001-09-09", 999990000, 0},
	{"2001-09-09 02:46", 999999960, 0},
	{"2001-09-09 02:46:40", 1000000000, 0},
	{"2001-09-09T02:46:40", 1000000000, 0},
};

START_TEST(a_time_is_utc_with_z_and_local_without)
{
	struct timespec ts = {0};

	setenv("TZ", "TEST-1", 1);
	tzset();
	ck_assert_int_eq(gfs_time_parse(time_cases[_i].text, NOW_NS, &ts), 0);
	ck_assert_int_eq(ts.tv_sec, time_cases[_i].sec);
	ck_assert_int_eq(ts.tv_nsec, time_cases[_i].nsec);
}
END_TEST

START_TEST(what_is_no_time_is_refused)
{
	static const char *const bad[] = {"",
					  "@",
					  "@x",
					  "@1.",
					  "@1.x",
					  "@-1.5",
					  "tomorrow",
					  "2001-02-30",
					  "2001-13-01",
					  "2001-01-01 ",
					  "2001-01-01 1",
					  "2001-01-01 25:00",
					  "2001-02-30T00:00:00Z",
					  "@99999999999999999999999999"};
	struct timespec ts;

	for (size_t i = 0; i < GX_COUNT_OF(bad); i++)
		ck_assert_msg(gfs_time_parse(bad[i], NOW_NS, &ts) < 0, "%s", bad[i]);
}
END_TEST

/* -- find's numbers ---------------------------------------------------------------------------- */

static const struct {
	const char *text;
	uint64_t bytes;
	bool matches;
} size_cases[] = {
	{"3c", 3, true},
	{"3c", 4, false},
	{"+3c", 3, false},
	{"+3c", 4, true},
	{"-3c", 2, true},
	{"-3c", 3, false},
	{"1", 1, true},
	{"1", 512, true},
	{"1", 513, false},
	{"0", 0, true},
	{"1k", 1, true},
	{"1k", 1025, false},
	/* As find(1): a byte already is one whole unit. */
	{"-1M", 1, false},
	{"-1M", 0, true},
	{"+1G", UINT64_MAX, true},
	{"2w", 3, true},
	{"1T", 1ull << 40, true},
};

START_TEST(a_size_counts_units_begun)
{
	struct gfs_compare compare;

	ck_assert_int_eq(gfs_size_compare_parse(size_cases[_i].text, &compare), 0);
	ck_assert_int_eq(gfs_size_matches(&compare, size_cases[_i].bytes), size_cases[_i].matches);
}
END_TEST

START_TEST(an_age_counts_whole_days)
{
	struct gfs_compare compare;

	ck_assert_int_eq(gfs_age_compare_parse("1", &compare), 0);
	ck_assert(!gfs_age_matches(&compare, 86399));
	ck_assert(gfs_age_matches(&compare, 86400));
	ck_assert(gfs_age_matches(&compare, 2 * 86400 - 1));
	ck_assert_int_eq(gfs_age_compare_parse("-1", &compare), 0);
	ck_assert(gfs_age_matches(&compare, -5));
	ck_assert_int_eq(gfs_age_compare_parse("+1", &compare), 0);
	ck_assert(!gfs_age_matches(&compare, 2 * 86400 - 1));
	ck_assert(gfs_age_matches(&compare, 2 * 86400));
}
END_TEST

START_TEST(what_is_no_number_is_refused)
{
	static const char *const bad[] = {"",
					  "+",
					  "-",
					  "c",
					  "+c",
					  "1x",
					  "1kk",
					  "--1",
					  "1 k",
					  "1.5k",
					  "99999999999999999999999999999"};
	struct gfs_compare compare;

	for (size_t i = 0; i < GX_COUNT_OF(bad); i++) {
		ck_assert_msg(gfs_size_compare_parse(bad[i], &compare) < 0, "%s", bad[i]);
		ck_assert_msg(gfs_age_compare_parse(bad[i], &compare) < 0, "%s", bad[i]);
	}
	ck_assert_int_lt(gfs_age_compare_parse("1c", &compare), 0);
}
END_TEST

/* -- paths ------------------------------------------------------------------------------------- */

static const struct {
	const char *text, *clean, *parent, *last;
	bool wants_dir;
} path_cases[] = {
	{"/", "/", "/", "/", false},
	{"gfs:", "/", "/", "/", false},
	{"//", "/", "/", "/", false},
	{"a", "/a", "/", "a", false},
	{"gfs:/a/b", "/a/b", "/a", "b", false},
	{"gfs:a//b", "/a/b", "/a", "b", false},
	{"///a///b///", "/a/b/", "/a", "b/", true},
	{"/a/gfs:/b", "/a/gfs:/b", "/a/gfs:", "b", false},
};

START_TEST(a_path_is_cleaned_and_split)
{
	char *clean = gfs_path_clean(path_cases[_i].text);
	char *parent = gfs_path_parent(clean);

	ck_assert_str_eq(clean, path_cases[_i].clean);
	ck_assert_str_eq(parent, path_cases[_i].parent);
	ck_assert_str_eq(gfs_path_last(clean), path_cases[_i].last);
	ck_assert_int_eq(gfs_path_wants_dir(clean), path_cases[_i].wants_dir);
	gfs_path_cut_slash(clean);
	ck_assert(!gfs_path_wants_dir(clean));
	ck_assert_int_eq(clean[0], '/');
	free(clean);
	free(parent);
}
END_TEST

START_TEST(joining_makes_one_slash)
{
	char *a = gfs_path_join("/", "x"), *b = gfs_path_join("/d", "x"),
	     *c = gfs_path_join("d/", "x");

	ck_assert_str_eq(a, "/x");
	ck_assert_str_eq(b, "/d/x");
	ck_assert_str_eq(c, "d/x");
	free(a);
	free(b);
	free(c);
}
END_TEST

START_TEST(a_pattern_has_a_star_question_mark_or_bracket_that_is_not_escaped)
{
	static const char *const patterns[] = {"*", "/a/?", "/[ab]", "\\\\*", "a\\*b*"};
	static const char *const plain[] = {"", "/a", "/a\\*", "\\?\\[", "]", "\\"};

	for (size_t i = 0; i < GX_COUNT_OF(patterns); i++)
		ck_assert_msg(gfs_path_is_pattern(patterns[i]), "%s", patterns[i]);
	for (size_t i = 0; i < GX_COUNT_OF(plain); i++)
		ck_assert_msg(!gfs_path_is_pattern(plain[i]), "%s", plain[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfs_tool_parse");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_mode_changes_what_chmod_would, 0, (int)GX_COUNT_OF(mode_cases));
	tcase_add_test(tc, what_is_no_mode_is_refused);
	tcase_add_loop_test(tc, a_time_is_utc_with_z_and_local_without, 0,
			    (int)GX_COUNT_OF(time_cases));
	tcase_add_test(tc, what_is_no_time_is_refused);
	tcase_add_loop_test(tc, a_size_counts_units_begun, 0, (int)GX_COUNT_OF(size_cases));
	tcase_add_test(tc, an_age_counts_whole_days);
	tcase_add_test(tc, what_is_no_number_is_refused);
	tcase_add_loop_test(tc, a_path_is_cleaned_and_split, 0, (int)GX_COUNT_OF(path_cases));
	tcase_add_test(tc, joining_makes_one_slash);
	tcase_add_test(tc, a_pattern_has_a_star_question_mark_or_bracket_that_is_not_escaped);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
