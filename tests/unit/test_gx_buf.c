#include "common/gx_buf.h"
#include <check.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(append_keeps_the_bytes_in_order)
{
	struct gx_buf buf;
	unsigned char expected[1000];

	gx_buf_init(&buf, 1000);
	for (size_t i = 0; i < sizeof(expected); i++) {
		expected[i] = (unsigned char)(i * 7);
		ck_assert_int_eq(gx_buf_append(&buf, &expected[i], 1), 0);
	}
	ck_assert_uint_eq(buf.bytes, sizeof(expected));
	ck_assert_mem_eq(buf.data, expected, sizeof(expected));
	ck_assert_uint_le(buf.capacity, 1000);
	gx_buf_fini(&buf);
}
END_TEST

START_TEST(append_past_the_maximum_fails_with_e2big_and_changes_nothing)
{
	struct gx_buf buf;

	gx_buf_init(&buf, 4);
	ck_assert_int_eq(gx_buf_append(&buf, "abc", 3), 0);
	ck_assert_int_eq(gx_buf_append(&buf, "de", 2), -E2BIG);
	ck_assert_int_eq(gx_buf_append(&buf, "de", SIZE_MAX), -E2BIG);
	ck_assert_int_eq(gx_buf_append_format(&buf, "%s", "de"), -E2BIG);
	ck_assert_int_eq(gx_buf_reserve(&buf, 2), -E2BIG);
	ck_assert_uint_eq(buf.bytes, 3);
	ck_assert_int_eq(gx_buf_append(&buf, "d", 1), 0);
	ck_assert_str_eq(gx_buf_text(&buf), "abcd");
	gx_buf_fini(&buf);
}
END_TEST

START_TEST(format_fits_exactly_up_to_the_maximum)
{
	struct gx_buf buf;

	gx_buf_init(&buf, 10);
	ck_assert_int_eq(gx_buf_append_format(&buf, "%d-", 1234), 0);
	ck_assert_int_eq(gx_buf_append_format(&buf, "%05d", 6), 0);
	ck_assert_int_eq(gx_buf_append_format(&buf, "x"), -E2BIG);
	ck_assert_str_eq(gx_buf_text(&buf), "1234-00006");
	gx_buf_fini(&buf);
}
END_TEST

START_TEST(format_longer_than_the_capacity_grows_it)
{
	struct gx_buf buf;
	char big[5000];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	gx_buf_init(&buf, 100000);
	ck_assert_int_eq(gx_buf_append_format(&buf, "<%s>", big), 0);
	ck_assert_uint_eq(buf.bytes, sizeof(big) + 1);
	ck_assert_int_eq(buf.data[0], '<');
	ck_assert_int_eq(buf.data[buf.bytes - 1], '>');
	gx_buf_fini(&buf);
}
END_TEST

START_TEST(consume_moves_the_rest_to_the_front)
{
	struct gx_buf buf;

	gx_buf_init(&buf, 64);
	ck_assert_int_eq(gx_buf_append(&buf, "hello world", 11), 0);
	gx_buf_consume(&buf, 6);
	ck_assert_str_eq(gx_buf_text(&buf), "world");
	gx_buf_consume(&buf, 5);
	ck_assert_uint_eq(buf.bytes, 0);
	gx_buf_consume(&buf, 0);
	gx_buf_fini(&buf);
}
END_TEST

START_TEST(an_empty_buffer_is_an_empty_text_and_usable_after_fini)
{
	struct gx_buf buf;

	gx_buf_init(&buf, 0);
	ck_assert_str_eq(gx_buf_text(&buf), "");
	ck_assert_int_eq(gx_buf_append(&buf, NULL, 0), 0);
	ck_assert_int_eq(gx_buf_append(&buf, "a", 1), -E2BIG);
	gx_buf_fini(&buf);
	gx_buf_init(&buf, 8);
	ck_assert_int_eq(gx_buf_append(&buf, "secret", 6), 0);
	gx_buf_wipe(&buf);
	ck_assert_ptr_null(buf.data);
	ck_assert_uint_eq(buf.bytes_max, 8);
	ck_assert_int_eq(gx_buf_append(&buf, "again", 5), 0);
	gx_buf_clear(&buf);
	ck_assert_uint_eq(buf.bytes, 0);
	ck_assert_ptr_nonnull(buf.data);
	gx_buf_fini(&buf);
}
END_TEST

START_TEST(strcpy_refuses_what_does_not_fit)
{
	char dst[4] = "zzz";

	ck_assert_int_eq(gx_strcpy(dst, sizeof(dst), "abc"), 0);
	ck_assert_str_eq(dst, "abc");
	ck_assert_int_eq(gx_strcpy(dst, sizeof(dst), "abcd"), -E2BIG);
	ck_assert_str_eq(dst, "");
	ck_assert_int_eq(gx_format(dst, sizeof(dst), "%d", 123), 0);
	ck_assert_int_eq(gx_format(dst, sizeof(dst), "%d", 12345), -E2BIG);
	ck_assert_str_eq(dst, "123");
}
END_TEST

START_TEST(strerror_takes_both_signs_and_unknown_numbers)
{
	ck_assert_str_eq(gx_strerror(-ENOENT), "No such file or directory");
	ck_assert_str_eq(gx_strerror(ENOENT), "No such file or directory");
	ck_assert_str_eq(gx_strerror(99999), "Unknown error 99999");
	ck_assert_ptr_nonnull(gx_strerror(INT32_MIN));
}
END_TEST

START_TEST(a_failed_assertion_names_its_place_and_aborts)
{
	char text[600] = "";
	int fds[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		gx_assert(1 + 1 == 3);
		_exit(0);
	}
	close(fds[1]);
	ck_assert_int_gt(read(fds[0], text, sizeof(text) - 1), 0);
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ck_assert_ptr_nonnull(strstr(text, "1 + 1 == 3"));
	ck_assert_ptr_nonnull(strstr(text, "test_gx_buf.c:"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_buf");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, append_keeps_the_bytes_in_order);
	tcase_add_test(tc, append_past_the_maximum_fails_with_e2big_and_changes_nothing);
	tcase_add_test(tc, format_fits_exactly_up_to_the_maximum);
	tcase_add_test(tc, format_longer_than_the_capacity_grows_it);
	tcase_add_test(tc, consume_moves_the_rest_to_the_front);
	tcase_add_test(tc, an_empty_buffer_is_an_empty_text_and_usable_after_fini);
	tcase_add_test(tc, strcpy_refuses_what_does_not_fit);
	tcase_add_test(tc, strerror_takes_both_signs_and_unknown_numbers);
	tcase_add_test(tc, a_failed_assertion_names_its_place_and_aborts);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
