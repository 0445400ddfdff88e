#include "common/gx_num.h"
#include <check.h>

/* A fixed sequence (splitmix64), so that a failure repeats. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

struct u64_case {
	const char *text;
	int r;
	uint64_t value;
};

static const struct u64_case u64_cases[] = {
	{"0", 0, 0},
	{"7", 0, 7},
	{"007", 0, 7},
	{"18446744073709551615", 0, UINT64_MAX},
	{"18446744073709551616", -ERANGE, 0},
	{"18446744073709551620", -ERANGE, 0},
	{"99999999999999999999999", -ERANGE, 0},
	{"99999999999999999999999x", -EINVAL, 0},
	{"", -EINVAL, 0},
	{" 1", -EINVAL, 0},
	{"1 ", -EINVAL, 0},
	{"+1", -EINVAL, 0},
	{"-1", -EINVAL, 0},
	{"-0", -EINVAL, 0},
	{"0x10", -EINVAL, 0},
	{"1e3", -EINVAL, 0},
	{"1.0", -EINVAL, 0},
	{"one", -EINVAL, 0},
	{"\xd9\xa1", -EINVAL, 0}, /* an Arabic digit one */
};

START_TEST(u64_takes_exactly_one_number)
{
	const struct u64_case *c = &u64_cases[_i];
	uint64_t value = 42;

	ck_assert_int_eq(gx_parse_u64(c->text, &value), c->r);
	ck_assert_uint_eq(value, c->r == 0 ? c->value : 42);
}
END_TEST

static const struct {
	const char *text;
	int r;
	int64_t value;
} i64_cases[] = {
	{"0", 0, 0},
	{"-0", 0, 0},
	{"-1", 0, -1},
	{"9223372036854775807", 0, INT64_MAX},
	{"9223372036854775808", -ERANGE, 0},
	{"-9223372036854775808", 0, INT64_MIN},
	{"-9223372036854775809", -ERANGE, 0},
	{"-99999999999999999999", -ERANGE, 0},
	{"--1", -EINVAL, 0},
	{"-", -EINVAL, 0},
	{"", -EINVAL, 0},
	{"+5", -EINVAL, 0},
	{"- 5", -EINVAL, 0},
};

START_TEST(i64_takes_a_minus_and_both_ends)
{
	int64_t value = 42;

	ck_assert_int_eq(gx_parse_i64(i64_cases[_i].text, &value), i64_cases[_i].r);
	ck_assert_int_eq(value, i64_cases[_i].r == 0 ? i64_cases[_i].value : 42);
}
END_TEST

START_TEST(bool_takes_the_eight_words_in_any_case)
{
	static const char *const yes[] = {"yes", "true", "on", "1", "YES", "True", "oN"};
	static const char *const no[] = {"no", "false", "off", "0", "NO", "False", "oFf"};
	static const char *const bad[] = {"", "y", "n", "2", "yes ", " no", "maybe", "truee"};
	bool value;

	for (size_t i = 0; i < GX_COUNT_OF(yes); i++) {
		value = false;
		ck_assert_int_eq(gx_parse_bool(yes[i], &value), 0);
		ck_assert(value);
		value = true;
		ck_assert_int_eq(gx_parse_bool(no[i], &value), 0);
		ck_assert(!value);
	}
	for (size_t i = 0; i < GX_COUNT_OF(bad); i++)
		ck_assert_int_eq(gx_parse_bool(bad[i], &value), -EINVAL);
}
END_TEST

static const struct u64_case size_cases[] = {
	{"0", 0, 0},
	{"4096", 0, 4096},
	{"4096B", 0, 4096},
	{"64KiB", 0, 65536},
	{"64K", 0, 65536},
	{"64KB", 0, 64000},
	{"64kB", 0, 64000},
	{"10MB", 0, 10000000},
	{"1.5GiB", 0, UINT64_C(1610612736)},
	{"0.1KiB", 0, 102},
	{"0.000000001GB", 0, 1},
	{"2T", 0, UINT64_C(2) << 40},
	{"1PiB", 0, UINT64_C(1) << 50},
	{"15EiB", 0, UINT64_C(15) << 60},
	{"16EiB", -ERANGE, 0},
	{"15.999999999EiB", 0, UINT64_C(18446744072556630111)},
	{"18446744073709551615", 0, UINT64_MAX},
	{"18446744073709551616", -ERANGE, 0},
	{"18446744073709551616KiB", -ERANGE, 0},
	{"99999999999999999999", -ERANGE, 0},
	{"99999999999999999999parsecs", -EINVAL, 0},
	{"", -EINVAL, 0},
	{"KiB", -EINVAL, 0},
	{"1.5", -EINVAL, 0},
	{"1.5B", -EINVAL, 0},
	{"1.GiB", -EINVAL, 0},
	{".5GiB", -EINVAL, 0},
	{"1.0000000000GiB", -EINVAL, 0},
	{"1 GiB", -EINVAL, 0},
	{"1gib", -EINVAL, 0},
	{"1GiBs", -EINVAL, 0},
	{"-1", -EINVAL, 0},
	{"1e9", -EINVAL, 0},
};

START_TEST(size_takes_numbers_with_units)
{
	const struct u64_case *c = &size_cases[_i];
	uint64_t value = 42;

	ck_assert_int_eq(gx_parse_size(c->text, &value), c->r);
	ck_assert_uint_eq(value, c->r == 0 ? c->value : 42);
}
END_TEST

static const struct {
	const char *text;
	int r;
	int64_t ns;
} duration_cases[] = {
	{"0", 0, 0},
	{"0s", 0, 0},
	{"5ns", 0, 5},
	{"10us", 0, 10000},
	{"250ms", 0, 250000000},
	{"30s", 0, INT64_C(30000000000)},
	{"1.5s", 0, INT64_C(1500000000)},
	{"5m", 0, INT64_C(300000000000)},
	{"2h", 0, INT64_C(7200000000000)},
	{"1d", 0, INT64_C(86400000000000)},
	{"106751d", 0, INT64_C(9223286400000000000)},
	{"106752d", -ERANGE, 0},
	{"9223372036854775807ns", 0, INT64_MAX},
	{"9223372036854775808ns", -ERANGE, 0},
	{"99999999999999999999s", -ERANGE, 0},
	{"30", -EINVAL, 0},
	{"1", -EINVAL, 0},
	{"99999999999999999999", -EINVAL, 0},
	{"", -EINVAL, 0},
	{"s", -EINVAL, 0},
	{"-1s", -EINVAL, 0},
	{"1 s", -EINVAL, 0},
	{"1S", -EINVAL, 0},
	{"1.5ns", -EINVAL, 0},
	{"1h30m", -EINVAL, 0},
	{"0.5", -EINVAL, 0},
};

START_TEST(duration_takes_numbers_with_units)
{
	int64_t ns = 42;

	ck_assert_int_eq(gx_parse_duration(duration_cases[_i].text, &ns), duration_cases[_i].r);
	ck_assert_int_eq(ns, duration_cases[_i].r == 0 ? duration_cases[_i].ns : 42);
}
END_TEST

START_TEST(formatted_sizes_and_durations_parse_back)
{
	uint64_t seed = 1;

	for (int i = 0; i < 200000; i++) {
		uint64_t value = next_random(&seed) >> (next_random(&seed) % 64);
		uint64_t bytes = 0;
		int64_t ns = 0;
		char text[32];

		/* Round values are the ones people write. */
		if (i % 3 == 0)
			value <<= next_random(&seed) % 64;
		gx_format_size(value, text);
		ck_assert_int_eq(gx_parse_size(text, &bytes), 0);
		ck_assert_uint_eq(bytes, value);
		value &= INT64_MAX;
		if (i % 3 == 1)
			value = value % 1000 * 1000000000;
		gx_format_duration((int64_t)value, text);
		ck_assert_int_eq(gx_parse_duration(text, &ns), 0);
		ck_assert_uint_eq((uint64_t)ns, value);
	}
}
END_TEST

START_TEST(formatting_uses_the_largest_exact_unit)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} sizes[] = {{0, "0"},
		     {1, "1"},
		     {1000, "1000"},
		     {65536, "64KiB"},
		     {1536, "1536"},
		     {UINT64_C(3) << 29, "1536MiB"},
		     {UINT64_C(1) << 60, "1EiB"},
		     {UINT64_MAX, "18446744073709551615"}};
	static const struct {
		int64_t ns;
		const char *text;
	} durations[] = {{0, "0s"},
			 {1, "1ns"},
			 {1500000000, "1500ms"},
			 {INT64_C(30000000000), "30s"},
			 {INT64_C(90000000000), "90s"},
			 {INT64_C(120000000000), "2m"},
			 {INT64_C(86400000000000), "1d"},
			 {-5000, "-5us"},
			 {INT64_MAX, "9223372036854775807ns"},
			 {INT64_MIN, "-9223372036854775808ns"}};
	char text[32];

	for (size_t i = 0; i < GX_COUNT_OF(sizes); i++) {
		gx_format_size(sizes[i].bytes, text);
		ck_assert_str_eq(text, sizes[i].text);
	}
	for (size_t i = 0; i < GX_COUNT_OF(durations); i++) {
		gx_format_duration(durations[i].ns, text);
		ck_assert_str_eq(text, durations[i].text);
	}
}
END_TEST

static const struct {
	const char *text;
	int r;
	int64_t ns;
} time_cases[] = {
	{"1970-01-01", 0, 0},
	{"1970-01-01T00:00:00Z", 0, 0},
	{"1970-01-01T00:00:00.000000001Z", 0, 1},
	{"1969-12-31T23:59:59.999999999Z", 0, -1},
	{"2026-11-16T12:00:00Z", 0, INT64_C(1794830400000000000)},
	{"2026-11-16T12:00:00.5Z", 0, INT64_C(1794830400500000000)},
	{"2000-02-29", 0, INT64_C(951782400000000000)},
	{"2024-02-29", 0, INT64_C(1709164800000000000)},
	{"2023-02-29", -EINVAL, 0},
	{"2100-02-29", -EINVAL, 0},
	{"2262-04-11T23:47:16.854775807Z", 0, INT64_MAX},
	{"2262-04-11T23:47:16.854775808Z", -ERANGE, 0},
	{"9999-12-31", -ERANGE, 0},
	{"1677-09-21T00:12:43.145224192Z", 0, INT64_MIN},
	{"1677-09-21T00:12:43.145224191Z", -ERANGE, 0},
	{"", -EINVAL, 0},
	{"2026", -EINVAL, 0},
	{"2026-13-01", -EINVAL, 0},
	{"2026-00-01", -EINVAL, 0},
	{"2026-11-31", -EINVAL, 0},
	{"2026-11-00", -EINVAL, 0},
	{"2026-11-16T24:00:00Z", -EINVAL, 0},
	{"2026-11-16T12:60:00Z", -EINVAL, 0},
	{"2026-11-16T12:00:60Z", -EINVAL, 0},
	{"2026-11-16T12:00:00", -EINVAL, 0},
	{"2026-11-16T12:00:00.Z", -EINVAL, 0},
	{"2026-11-16T12:00:00.1234567890Z", -EINVAL, 0},
	{"2026-11-16T12:00:00Zx", -EINVAL, 0},
	{"2026-11-16T12:00:00+01:00", -EINVAL, 0},
	{"2026-11-16 12:00:00Z", -EINVAL, 0},
	{"2026-11-16T12:00Z", -EINVAL, 0},
	{"26-11-16", -EINVAL, 0},
	{"2026-11-16x", -EINVAL, 0},
	{"2026-11-1", -EINVAL, 0},
};

START_TEST(time_takes_rfc_3339_in_utc_or_a_date)
{
	int64_t ns = 42;

	ck_assert_int_eq(gx_parse_time(time_cases[_i].text, &ns), time_cases[_i].r);
	ck_assert_int_eq(ns, time_cases[_i].r == 0 ? time_cases[_i].ns : 42);
}
END_TEST

START_TEST(formatted_times_parse_back_and_agree_with_libc)
{
	uint64_t seed = 7;

	for (int i = 0; i < 100000; i++) {
		int64_t wall = (int64_t)(next_random(&seed) >> (i % 4)) / 1000 * 1000;
		int64_t back = 0;
		time_t seconds = wall / GX_NSEC_PER_SEC - (wall % GX_NSEC_PER_SEC < 0);
		struct tm tm;
		char text[40], expected[40];

		gx_format_time(wall, true, text);
		ck_assert_int_eq(gx_parse_time(text, &back), 0);
		ck_assert_int_eq(back, wall);
		gx_format_time(wall, false, text);
		ck_assert_ptr_nonnull(gmtime_r(&seconds, &tm));
		ck_assert_uint_gt(strftime(expected, sizeof(expected), "%Y-%m-%dT%H:%M:%SZ", &tm),
				  0);
		ck_assert_str_eq(text, expected);
	}
}
END_TEST

START_TEST(hex_round_trips_and_refuses_other_lengths)
{
	unsigned char data[256], back[256];
	char text[513];

	for (int i = 0; i < 256; i++)
		data[i] = (unsigned char)i;
	gx_hex_encode(data, sizeof(data), text);
	ck_assert_uint_eq(strlen(text), 512);
	ck_assert_int_eq(strncmp(text, "000102030405060708090a0b", 24), 0);
	ck_assert_int_eq(gx_hex_decode(text, back, sizeof(back)), 0);
	ck_assert_mem_eq(data, back, sizeof(data));
	ck_assert_int_eq(gx_hex_decode("aBCd", back, 2), 0);
	ck_assert_int_eq(back[0], 0xab);
	back[0] = 1;
	ck_assert_int_eq(gx_hex_decode("abc", back, 2), -EINVAL);
	ck_assert_int_eq(gx_hex_decode("abcde", back, 2), -EINVAL);
	ck_assert_int_eq(gx_hex_decode("abcg", back, 2), -EINVAL);
	ck_assert_int_eq(gx_hex_decode("ab d", back, 2), -EINVAL);
	ck_assert_int_eq(back[0], 1);
	ck_assert_int_eq(gx_hex_decode("", back, 0), 0);
	gx_hex_encode(data, 0, text);
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(fixed_width_fields_have_their_byte_order)
{
	unsigned char at[9] = {0};

	gx_put_le64(at + 1, UINT64_C(0x0102030405060708));
	ck_assert_mem_eq(at + 1, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
	ck_assert_uint_eq(gx_get_le64(at + 1), UINT64_C(0x0102030405060708));
	gx_put_be64(at + 1, UINT64_C(0x0102030405060708));
	ck_assert_mem_eq(at + 1, "\x01\x02\x03\x04\x05\x06\x07\x08", 8);
	ck_assert_uint_eq(gx_get_be64(at + 1), UINT64_C(0x0102030405060708));
	gx_put_le32(at + 1, UINT32_C(0x01020304));
	ck_assert_uint_eq(gx_get_le32(at + 1), UINT32_C(0x01020304));
	ck_assert_int_eq(at[1], 4);
	gx_put_le16(at + 1, 0x0102);
	ck_assert_uint_eq(gx_get_le16(at + 1), 0x0102);
	ck_assert_int_eq(at[1], 2);
}
END_TEST

/* Encodes a code point without any check. */
static size_t encode(uint32_t c, unsigned char out[4])
{
	if (c < 0x80) {
		out[0] = (unsigned char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (unsigned char)(0xc0 | c >> 6);
		out[1] = (unsigned char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (unsigned char)(0xe0 | c >> 12);
		out[1] = (unsigned char)(0x80 | (c >> 6 & 63));
		out[2] = (unsigned char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (unsigned char)(0xf0 | c >> 18);
	out[1] = (unsigned char)(0x80 | (c >> 12 & 63));
	out[2] = (unsigned char)(0x80 | (c >> 6 & 63));
	out[3] = (unsigned char)(0x80 | (c & 63));
	return 4;
}

START_TEST(utf8_takes_every_character_and_nothing_else)
{
	unsigned char at[4];
	uint32_t valid = 0;

	for (uint32_t c = 0; c < 0x120000; c++) {
		size_t bytes = encode(c, at);
		bool good = (c < 0xd800 || c > 0xdfff) && c <= 0x10ffff;

		ck_assert_uint_eq(gx_utf8_char(at, bytes), good ? bytes : 0);
		if (bytes > 1)
			ck_assert_uint_eq(gx_utf8_char(at, bytes - 1), 0);
	}
	/* Every sequence of three bytes: exactly the three-byte characters are accepted as such. */
	for (uint32_t v = 0; v < 1u << 24; v++) {
		at[0] = (unsigned char)(v >> 16);
		at[1] = (unsigned char)(v >> 8);
		at[2] = (unsigned char)v;
		valid += gx_utf8_char(at, 3) == 3;
	}
	ck_assert_uint_eq(valid, 0x10000 - 0x800 - 0x800);
	ck_assert_uint_eq(gx_utf8_char("\xc0\x80", 2), 0);
	ck_assert_uint_eq(gx_utf8_char("\xf0\x80\x80\x80", 4), 0);
	ck_assert_uint_eq(gx_utf8_char("\x80", 1), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_num");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, u64_takes_exactly_one_number, 0, (int)GX_COUNT_OF(u64_cases));
	tcase_add_loop_test(tc, i64_takes_a_minus_and_both_ends, 0, (int)GX_COUNT_OF(i64_cases));
	tcase_add_test(tc, bool_takes_the_eight_words_in_any_case);
	tcase_add_loop_test(tc, size_takes_numbers_with_units, 0, (int)GX_COUNT_OF(size_cases));
	tcase_add_loop_test(tc, duration_takes_numbers_with_units, 0,
			    (int)GX_COUNT_OF(duration_cases));
	tcase_add_test(tc, formatted_sizes_and_durations_parse_back);
	tcase_add_test(tc, formatting_uses_the_largest_exact_unit);
	tcase_add_loop_test(tc, time_takes_rfc_3339_in_utc_or_a_date, 0,
			    (int)GX_COUNT_OF(time_cases));
	tcase_add_test(tc, formatted_times_parse_back_and_agree_with_libc);
	tcase_add_test(tc, hex_round_trips_and_refuses_other_lengths);
	tcase_add_test(tc, fixed_width_fields_have_their_byte_order);
	tcase_add_test(tc, utf8_takes_every_character_and_nothing_else);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
