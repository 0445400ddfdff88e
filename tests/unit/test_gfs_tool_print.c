#include "client/tools/gfs_print.h"
#include "client/tools/gfs_tool.h"
#include <check.h>
#include <sys/stat.h>

/* What a function prints. */
static char *printed;
static size_t printed_bytes;
static FILE *out;

static void setup(void)
{
	out = open_memstream(&printed, &printed_bytes);
	ck_assert_ptr_nonnull(out);
}

static void teardown(void)
{
	fclose(out);
	free(printed);
}

static const char *text(void)
{
	fflush(out);
	return printed;
}

static const struct {
	const char *name, *json, *people;
	size_t columns;
} name_cases[] = {
	{"", "\"\"", "", 0},
	{"plain", "\"plain\"", "plain", 5},
	{"a\"b\\c", "\"a\\\"b\\\\c\"", "a\"b\\c", 5},
	{"\n\t\x01\x7f", "\"\\u000a\\u0009\\u0001\\u007f\"", "????", 4},
	{"\xc3\xa9", "\"\xc3\xa9\"", "\xc3\xa9", 1},
	{"\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\"", "\xf0\x9f\x98\x80", 1},
	/* Not UTF-8: stray, cut, over-long, surrogate. Each byte for itself. */
	{"\xff", "\"\\udcff\"", "?", 1},
	{"x\xc3", "\"x\\udcc3\"", "x?", 2},
	{"\xc0\x80", "\"\\udcc0\\udc80\"", "??", 2},
	{"\xed\xb2\x80", "\"\\udced\\udcb2\\udc80\"", "???", 3},
	/* A control character of two bytes. */
	{"\xc2\x9b", "\"\xc2\x9b\"", "?", 1},
};

START_TEST(json_holds_any_bytes)
{
	gfs_json_string(out, name_cases[_i].name);
	ck_assert_str_eq(text(), name_cases[_i].json);
}
END_TEST

START_TEST(people_see_no_control_characters)
{
	gfs_print_name(out, name_cases[_i].name, true);
	ck_assert_str_eq(text(), name_cases[_i].people);
	ck_assert_uint_eq(gfs_name_columns(name_cases[_i].name), name_cases[_i].columns);
}
END_TEST

START_TEST(programs_see_names_as_they_are)
{
	gfs_print_name(out, name_cases[_i].name, false);
	ck_assert_str_eq(text(), name_cases[_i].name);
}
END_TEST

START_TEST(modes_look_as_in_ls)
{
	static const struct {
		uint32_t mode;
		const char *text;
	} cases[] = {
		{S_IFREG | 0644, "-rw-r--r--"},
		{S_IFDIR | 01777, "drwxrwxrwt"},
		{S_IFREG | 06755, "-rwsr-sr-x"},
		{S_IFREG | 07000, "---S--S--T"},
		{S_IFLNK | 0777, "lrwxrwxrwx"},
		{S_IFIFO | 0600, "prw-------"},
		{0, "?---------"},
	};
	char shown[11];

	for (size_t i = 0; i < GX_COUNT_OF(cases); i++) {
		gfs_mode_text(cases[i].mode, shown);
		ck_assert_str_eq(shown, cases[i].text);
	}
	ck_assert_str_eq(gfs_type_word(S_IFREG | 0644), "file");
	ck_assert_str_eq(gfs_type_text(S_IFDIR), "directory");
}
END_TEST

START_TEST(sizes_for_people_are_rounded_up)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0"},
		{1023, "1023"},
		{1024, "1.0K"},
		{1025, "1.1K"},
		{8192, "8.0K"},
		{10137, "9.9K"},
		{10138, "10K"},
		{10241, "11K"},
		{1023 * 1024, "1023K"},
		{1023 * 1024 + 1, "1.0M"},
		{1ull << 60, "1.0E"},
		{UINT64_MAX, "16E"},
	};
	char shown[16];

	for (size_t i = 0; i < GX_COUNT_OF(cases); i++) {
		gfs_size_text(cases[i].bytes, shown);
		ck_assert_str_eq(shown, cases[i].text);
	}
}
END_TEST

START_TEST(old_times_show_the_year)
{
	const int64_t now_ns = INT64_C(1000000000) * GX_NSEC_PER_SEC; /* 2001-09-09 01:46:40 */
	struct timespec recent = {999999999, 0}, old = {900000000, 5}, far = {1100000000, 0};
	char shown[32], full[64];

	setenv("TZ", "UTC", 1);
	tzset();
	gfs_time_short(&recent, now_ns, shown);
	ck_assert_str_eq(shown, "Sep  9 01:46");
	gfs_time_short(&old, now_ns, shown);
	ck_assert_str_eq(shown, "Jul  9  1998");
	gfs_time_short(&far, now_ns, shown);
	ck_assert_str_eq(shown, "Nov  9  2004");
	gfs_time_long(&old, full);
	ck_assert_str_eq(full, "1998-07-09 16:00:00.000000005 +0000");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfs_tool_print");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, json_holds_any_bytes, 0, (int)GX_COUNT_OF(name_cases));
	tcase_add_loop_test(tc, people_see_no_control_characters, 0, (int)GX_COUNT_OF(name_cases));
	tcase_add_loop_test(tc, programs_see_names_as_they_are, 0, (int)GX_COUNT_OF(name_cases));
	tcase_add_test(tc, modes_look_as_in_ls);
	tcase_add_test(tc, sizes_for_people_are_rounded_up);
	tcase_add_test(tc, old_times_show_the_year);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
