#include "common/gx_env.h"
#include <check.h>

/* Which of the first ten calls fail, as a bit mask from bit 0. */
static unsigned failing_calls(struct gx_fault *fault, enum gx_fault_kind kind)
{
	unsigned mask = 0;

	for (unsigned i = 0; i < 10; i++)
		if (gx_fault_check_slow(fault, kind) < 0)
			mask |= 1u << i;
	return mask;
}

START_TEST(an_env_without_fault_never_fails)
{
	struct gx_env env = {0};

	ck_assert_int_eq(gx_fault_check(&env, GX_FAULT_OPEN), 0);
}
END_TEST

START_TEST(only_the_nth_call_fails)
{
	struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = 3};

	ck_assert_uint_eq(failing_calls(&fault, GX_FAULT_OPEN), 1u << 2);
	ck_assert_uint_eq(fault.count, 10);
	ck_assert_uint_eq(fault.fired, 1);
	ck_assert_int_eq(fault.last_kind, GX_FAULT_OPEN);
}
END_TEST

START_TEST(repeat_fails_that_many_calls_in_a_row)
{
	struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = 2, .repeat = 3};

	ck_assert_uint_eq(failing_calls(&fault, GX_FAULT_SEND), 7u << 1);
	ck_assert_uint_eq(fault.fired, 3);
}
END_TEST

START_TEST(the_largest_repeat_means_for_ever)
{
	struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = 2, .repeat = UINT64_MAX};

	ck_assert_uint_eq(failing_calls(&fault, GX_FAULT_SEND), 0x3feu);
}
END_TEST

START_TEST(nth_zero_counts_but_never_fails)
{
	struct gx_fault fault = {.kinds = ~UINT64_C(0)};

	ck_assert_uint_eq(failing_calls(&fault, GX_FAULT_SEND), 0);
	ck_assert_uint_eq(fault.count, 10);
}
END_TEST

START_TEST(kinds_outside_the_mask_are_not_counted)
{
	struct gx_fault fault = {.kinds = UINT64_C(1) << GX_FAULT_SYNC, .nth = 1};

	ck_assert_uint_eq(failing_calls(&fault, GX_FAULT_SEND), 0);
	ck_assert_uint_eq(fault.count, 0);
	ck_assert_uint_eq(failing_calls(&fault, GX_FAULT_SYNC), 1);
}
END_TEST

START_TEST(the_error_is_the_kinds_default_unless_given)
{
	struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = 1, .repeat = 2};

	ck_assert_int_eq(gx_fault_check_slow(&fault, GX_FAULT_CONNECT), -ECONNREFUSED);
	fault.err = EINTR;
	ck_assert_int_eq(gx_fault_check_slow(&fault, GX_FAULT_CONNECT), -EINTR);
}
END_TEST

START_TEST(every_kind_has_a_name_and_an_error)
{
	struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = 1};
	enum gx_fault_kind kind = (enum gx_fault_kind)_i;

	ck_assert_uint_gt(strlen(gx_fault_name(kind)), 1);
	ck_assert_int_lt(gx_fault_check_slow(&fault, kind), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_fault");
	TCase *tc = tcase_create("core");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tc, an_env_without_fault_never_fails);
	tcase_add_test(tc, only_the_nth_call_fails);
	tcase_add_test(tc, repeat_fails_that_many_calls_in_a_row);
	tcase_add_test(tc, the_largest_repeat_means_for_ever);
	tcase_add_test(tc, nth_zero_counts_but_never_fails);
	tcase_add_test(tc, kinds_outside_the_mask_are_not_counted);
	tcase_add_test(tc, the_error_is_the_kinds_default_unless_given);
	tcase_add_loop_test(tc, every_kind_has_a_name_and_an_error, 0, GX_FAULT_COUNT);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
