#include "common/gx_sum.h"
#include <check.h>

static const char *const all_variants[] = {"avx512", "avx2", "sse2", "generic"};

static unsigned char data[70000];

static void fill(void)
{
	uint32_t v = 1;

	for (size_t i = 0; i < sizeof(data); i++) {
		v = v * 1664525u + 1013904223u;
		data[i] = (unsigned char)(v >> 24);
	}
}

START_TEST(known_sums_never_change)
{
	/* From the reference implementation (xxhsum -H3); these are on disks and wires. */
	ck_assert_uint_eq(gx_sum64("", 0), UINT64_C(0x2d06800538d394c2));
	ck_assert_uint_eq(gx_sum64("a", 1), UINT64_C(0xe6c632b61e964e1f));
	ck_assert_uint_eq(gx_sum64("abc", 3), UINT64_C(0x78af5f94892f3950));
	memset(data, 0, 4096);
	ck_assert_uint_eq(gx_sum64(data, 4096), UINT64_C(0x93d76fe148c689ba));
}
END_TEST

START_TEST(every_variant_gives_the_same_sum_at_every_length)
{
	int tried = 0;

	fill();
	for (size_t v = 0; v < GX_COUNT_OF(all_variants); v++) {
		for (size_t bytes = 0; bytes < sizeof(data) - 8;
		     bytes += bytes < 2100 ? 1 : bytes / 7) {
			uint64_t sum = 0, seed = bytes % 3 == 0 ? 0 : bytes * 77;
			/* Not aligned, as in a frame. */
			const unsigned char *at = data + bytes % 8;
			int r = gx_sum64_variant(all_variants[v], at, bytes, seed, &sum);

			if (r == -ENOSYS)
				break;
			ck_assert_int_eq(r, 0);
			ck_assert_uint_eq(sum, gx_sum64_seed(at, bytes, seed));
			tried++;
		}
	}
	ck_assert_int_gt(tried, 2000);
}
END_TEST

START_TEST(the_chosen_variant_is_one_this_cpu_has)
{
	uint64_t sum;

	ck_assert_int_eq(gx_sum64_variant(gx_sum_variant(), "x", 1, 0, &sum), 0);
	ck_assert_int_eq(gx_sum64_variant("mmx", "x", 1, 0, &sum), -ENOSYS);
}
END_TEST

START_TEST(one_flipped_bit_changes_the_sum)
{
	uint64_t before;

	fill();
	before = gx_sum64(data, 4096);
	for (size_t bit = 0; bit < 4096 * 8; bit += 37) {
		data[bit / 8] ^= (unsigned char)(1u << bit % 8);
		ck_assert_uint_ne(gx_sum64(data, 4096), before);
		data[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	ck_assert_uint_eq(gx_sum64(data, 4096), before);
	ck_assert_uint_ne(gx_sum64_seed(data, 4096, 1), before);
}
END_TEST

/* What fsd sends and what a reader compares is this, and not the form on disk (docs/STORAGE.md). */
START_TEST(a_block_sum_is_the_plain_sum_of_the_block)
{
	static const unsigned char zeros[GX_BLOCK_BYTES];

	fill();
	ck_assert_uint_eq(gx_block_sum(data), gx_sum64(data, GX_BLOCK_BYTES));
	ck_assert_uint_eq(gx_block_sum(zeros), GX_BLOCK_ZEROS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_sum");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, known_sums_never_change);
	tcase_add_test(tc, every_variant_gives_the_same_sum_at_every_length);
	tcase_add_test(tc, the_chosen_variant_is_one_this_cpu_has);
	tcase_add_test(tc, one_flipped_bit_changes_the_sum);
	tcase_add_test(tc, a_block_sum_is_the_plain_sum_of_the_block);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
