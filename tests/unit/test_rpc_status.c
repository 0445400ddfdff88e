/*
 * The map between errno and the wire.
 */
#include "rpc/rpc_status.h"
#include <check.h>

static const struct row {
	uint32_t number;
	const char *name;
	int err;
	bool retryable;
	const char *text;
} rows[] = {
#define RPC_STATUS(number, name, err, retryable, text) {number, #name, err, retryable, text},
#include "idl/status.def"
};

START_TEST(every_row_goes_to_errno_and_back)
{
	const struct row *row = &rows[_i];
	bool exact = false;

	ck_assert_int_eq(rpc_status_to_errno(row->number), -row->err);
	ck_assert_uint_eq(rpc_status_from_errno(-row->err, &exact), row->number);
	ck_assert(exact);
	ck_assert_uint_eq(rpc_status_from_errno(-row->err, NULL), row->number);
	ck_assert_str_eq(rpc_status_name(row->number), row->name);
	ck_assert_str_eq(rpc_status_text(row->number), row->text);
	ck_assert_int_eq(rpc_status_retryable(row->number), row->retryable);
}
END_TEST

START_TEST(numbers_are_dense_and_in_order)
{
	for (size_t i = 0; i < GX_COUNT_OF(rows); i++)
		ck_assert_uint_eq(rows[i].number, i);
}
END_TEST

START_TEST(no_errno_stands_in_two_rows)
{
	for (size_t i = 0; i < GX_COUNT_OF(rows); i++)
		for (size_t k = 0; k < i; k++)
			ck_assert_int_ne(rows[i].err, rows[k].err);
}
END_TEST

START_TEST(an_errno_without_a_row_becomes_io_and_is_flagged)
{
	static const int errs[] = {-ENOTTY, -EUSERS, -EILSEQ, -100000, INT32_MIN};

	for (size_t i = 0; i < GX_COUNT_OF(errs); i++) {
		bool exact = true;

		ck_assert_uint_eq(rpc_status_from_errno(errs[i], &exact), RPC_STATUS_IO);
		ck_assert(!exact);
	}
}
END_TEST

START_TEST(an_unknown_number_is_a_protocol_error_with_a_text)
{
	static const uint32_t numbers[] = {(uint32_t)GX_COUNT_OF(rows), 1000, 0xffff, UINT32_MAX};

	for (size_t i = 0; i < GX_COUNT_OF(numbers); i++) {
		ck_assert_int_eq(rpc_status_to_errno(numbers[i]), -EPROTO);
		ck_assert_ptr_null(rpc_status_name(numbers[i]));
		ck_assert_ptr_nonnull(rpc_status_text(numbers[i]));
		ck_assert_uint_gt(strlen(rpc_status_text(numbers[i])), 0);
		ck_assert(!rpc_status_retryable(numbers[i]));
	}
}
END_TEST

START_TEST(a_detail_loses_its_control_characters_and_keeps_its_letters)
{
	static const char text[] = "caf\xc3\xa9\x1b[2J\xc2\x9b"
				   "1m\n\x7f.";
	char detail[GX_DETAIL_MAX + 1];
	char longer[GX_DETAIL_MAX + 9];

	rpc_detail_copy(text, sizeof(text) - 1, detail);
	ck_assert_str_eq(detail, "caf\xc3\xa9?[2J??1m??.");
	memset(longer, 'x', sizeof(longer));
	rpc_detail_copy(longer, sizeof(longer), detail);
	ck_assert_uint_eq(strlen(detail), GX_DETAIL_MAX);
	rpc_detail_copy(NULL, 0, detail);
	ck_assert_str_eq(detail, "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_status");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, every_row_goes_to_errno_and_back, 0, (int)GX_COUNT_OF(rows));
	tcase_add_test(tc, numbers_are_dense_and_in_order);
	tcase_add_test(tc, no_errno_stands_in_two_rows);
	tcase_add_test(tc, an_errno_without_a_row_becomes_io_and_is_flagged);
	tcase_add_test(tc, an_unknown_number_is_a_protocol_error_with_a_text);
	tcase_add_test(tc, a_detail_loses_its_control_characters_and_keeps_its_letters);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
