#include "common/gx_hist.h"
#include <check.h>

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

START_TEST(an_empty_histogram_answers_zero)
{
	struct gx_hist hist;

	gx_hist_init(&hist);
	ck_assert_uint_eq(gx_hist_quantile_ns(&hist, 0.5), 0);
	ck_assert(gx_hist_mean_ns(&hist) == 0.0);
}
END_TEST

START_TEST(one_value_is_every_quantile)
{
	static const uint64_t values[] = {0, 1, 7, 8, 9, 1000, UINT64_C(1) << 40, INT64_MAX};

	for (size_t i = 0; i < GX_COUNT_OF(values); i++) {
		struct gx_hist hist;

		gx_hist_init(&hist);
		gx_hist_add(&hist, values[i]);
		ck_assert_uint_eq(gx_hist_quantile_ns(&hist, 0.0), values[i]);
		ck_assert_uint_eq(gx_hist_quantile_ns(&hist, 0.5), values[i]);
		ck_assert_uint_eq(gx_hist_quantile_ns(&hist, 1.0), values[i]);
		ck_assert_uint_eq(hist.min_ns, values[i]);
		ck_assert_uint_eq(hist.max_ns, values[i]);
	}
}
END_TEST

/* With a huge second value the quantile shows the bucket's end instead of the maximum. */
START_TEST(a_bucket_is_at_most_an_eighth_wide)
{
	uint64_t seed = 99;

	for (int i = 0; i < 100000; i++) {
		uint64_t value = next_random(&seed) >> (1 + next_random(&seed) % 63);
		struct gx_hist hist;
		uint64_t end;

		gx_hist_init(&hist);
		gx_hist_add(&hist, value);
		gx_hist_add(&hist, UINT64_MAX);
		end = gx_hist_quantile_ns(&hist, 0.5);
		ck_assert_uint_ge(end, value);
		ck_assert_uint_le(end - value, value / 8);
	}
}
END_TEST

START_TEST(quantiles_of_a_ramp_are_right_to_an_eighth)
{
	struct gx_hist hist;

	gx_hist_init(&hist);
	for (uint64_t i = 1; i <= 100000; i++)
		gx_hist_add(&hist, i);
	for (int percent = 1; percent <= 100; percent++) {
		uint64_t exact = (uint64_t)percent * 1000;
		uint64_t got = gx_hist_quantile_ns(&hist, percent / 100.0);

		ck_assert_uint_ge(got, exact);
		ck_assert_uint_le(got, exact + exact / 8);
	}
	ck_assert(gx_hist_mean_ns(&hist) == 50000.5);
	ck_assert_uint_eq(gx_hist_quantile_ns(&hist, 2.0), 100000);
	ck_assert_uint_eq(gx_hist_quantile_ns(&hist, -1.0), 1);
}
END_TEST

START_TEST(merging_equals_adding_everything_to_one)
{
	struct gx_hist a, b, both;
	uint64_t seed = 5;

	gx_hist_init(&a);
	gx_hist_init(&b);
	gx_hist_init(&both);
	for (int i = 0; i < 1000; i++) {
		uint64_t value = next_random(&seed) >> 30;

		gx_hist_add(i % 3 ? &a : &b, value);
		gx_hist_add(&both, value);
	}
	gx_hist_merge(&a, &b);
	ck_assert_mem_eq(&a, &both, sizeof(a));
	gx_hist_init(&b);
	gx_hist_merge(&a, &b);
	ck_assert_mem_eq(&a, &both, sizeof(a));
	gx_hist_merge(&b, &a);
	ck_assert_mem_eq(&b, &both, sizeof(b));
}
END_TEST

START_TEST(a_full_bucket_stays_full)
{
	struct gx_hist hist;

	gx_hist_init(&hist);
	gx_hist_add(&hist, 3);
	hist.buckets[3] = UINT32_MAX;
	gx_hist_add(&hist, 3);
	ck_assert_uint_eq(hist.buckets[3], UINT32_MAX);
}
END_TEST

START_TEST(values_past_the_last_bucket_land_in_it)
{
	struct gx_hist hist;

	gx_hist_init(&hist);
	gx_hist_add(&hist, UINT64_MAX);
	ck_assert_uint_eq(hist.buckets[GX_HIST_BUCKETS - 1], 1);
	ck_assert_uint_eq(hist.max_ns, UINT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_hist");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, an_empty_histogram_answers_zero);
	tcase_add_test(tc, one_value_is_every_quantile);
	tcase_add_test(tc, a_bucket_is_at_most_an_eighth_wide);
	tcase_add_test(tc, quantiles_of_a_ramp_are_right_to_an_eighth);
	tcase_add_test(tc, merging_equals_adding_everything_to_one);
	tcase_add_test(tc, a_full_bucket_stays_full);
	tcase_add_test(tc, values_past_the_last_bucket_land_in_it);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
