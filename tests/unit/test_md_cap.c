/*
 * Capabilities, tokens and receipts: the same words give the same number, any other word another.
 */
#include "metad/md_cap.h"
#include <check.h>
#include <openssl/crypto.h>

static const unsigned char secret[MD_CAP_SECRET_BYTES] = {0, 1, 2,  3,  4,  5,  6,  7,
							  8, 9, 10, 11, 12, 13, 14, 15};
static struct md_cap *cap;
static size_t allocations; /* OpenSSL's */

static void setup(void)
{
	ck_assert_int_eq(md_cap_new(secret, &cap), 0);
}

static void teardown(void)
{
	md_cap_free(cap);
}

/* Clients keep tokens and receipts over a new release of metad. Values by `openssl enc`. */
START_TEST(numbers_never_change_between_releases)
{
	ck_assert_uint_eq(md_cap_inode(cap, 42), 0xb387f0890f26dda5);
	ck_assert_uint_eq(md_cap_token(cap, 7, 8, 42, 3), 0xbb26795be2d41236);
	ck_assert_uint_eq(md_cap_receipt(cap, 7, 8, 0x1234567890abcdef, 42, -5),
			  0xe1856bb0375e53ed);
}
END_TEST

START_TEST(a_number_does_not_depend_on_what_was_asked_before)
{
	struct md_cap *other;
	uint64_t first = md_cap_inode(cap, 1), second = md_cap_inode(cap, 2);

	ck_assert_int_eq(md_cap_new(secret, &other), 0);
	ck_assert_uint_eq(md_cap_inode(other, 2), second);
	ck_assert_uint_eq(md_cap_inode(other, 1), first);
	ck_assert_uint_eq(md_cap_inode(cap, 1), first);
	md_cap_free(other);
}
END_TEST

START_TEST(every_word_the_kind_and_the_secret_count)
{
	unsigned char flipped[MD_CAP_SECRET_BYTES];
	uint64_t all[16];
	size_t count = 0;
	struct md_cap *other;

	memcpy(flipped, secret, sizeof(flipped));
	flipped[15] ^= 0x80;
	ck_assert_int_eq(md_cap_new(flipped, &other), 0);
	all[count++] = md_cap_inode(cap, 1);
	all[count++] = md_cap_inode(cap, UINT64_C(1) << 63);
	all[count++] = md_cap_inode(other, 1);
	all[count++] = md_cap_token(cap, 1, 0, 0, 0);
	all[count++] = md_cap_token(cap, 0, 1, 0, 0);
	all[count++] = md_cap_token(cap, 0, 0, 1, 0);
	all[count++] = md_cap_token(cap, 0, 0, 0, 1);
	all[count++] = md_cap_token(other, 1, 0, 0, 0);
	all[count++] = md_cap_receipt(cap, 1, 0, 0, 0, 0);
	all[count++] = md_cap_receipt(cap, 0, 1, 0, 0, 0);
	all[count++] = md_cap_receipt(cap, 0, 0, 1, 0, 0);
	all[count++] = md_cap_receipt(cap, 0, 0, 0, 1, 0);
	all[count++] = md_cap_receipt(cap, 0, 0, 0, 0, 1);
	all[count++] = md_cap_receipt(cap, 0, 0, 0, 0, -1);
	all[count++] = md_cap_receipt(other, 1, 0, 0, 0, 0);
	ck_assert_uint_le(count, GX_COUNT_OF(all));
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < i; j++)
			ck_assert_msg(!md_cap_same(all[i], all[j]), "%zu and %zu", i, j);
	md_cap_free(other);
}
END_TEST

START_TEST(same_looks_at_all_bits)
{
	ck_assert(md_cap_same(UINT64_MAX, UINT64_MAX));
	for (unsigned bit = 0; bit < 64; bit++)
		ck_assert(!md_cap_same(5, 5 ^ UINT64_C(1) << bit));
}
END_TEST

START_TEST(asking_allocates_nothing)
{
	size_t before;

	ck_assert_uint_gt(allocations, 0);
	ck_assert_uint_ne(md_cap_inode(cap, 1), 0);
	before = allocations;
	for (uint64_t ino = 0; ino < 10000; ino++)
		ck_assert_uint_ne(md_cap_inode(cap, ino), 0);
	ck_assert_uint_eq(allocations, before);
}
END_TEST

START_TEST(freeing_nothing_is_fine)
{
	md_cap_free(NULL);
}
END_TEST

static void *count_malloc(size_t bytes, const char *file GX_UNUSED, int line GX_UNUSED)
{
	allocations++;
	return malloc(bytes);
}

static void *count_realloc(void *old, size_t bytes, const char *file GX_UNUSED, int line GX_UNUSED)
{
	allocations++;
	return realloc(old, bytes);
}

static void count_free(void *p, const char *file GX_UNUSED, int line GX_UNUSED)
{
	free(p);
}

/* Only possible before OpenSSL has allocated anything, which rpc_tls.c makes it do at start. */
__attribute__((constructor(101))) static void count_allocations(void)
{
	gx_assert(CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) == 1);
}

int main(void)
{
	Suite *suite = suite_create("md_cap");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, numbers_never_change_between_releases);
	tcase_add_test(tc, a_number_does_not_depend_on_what_was_asked_before);
	tcase_add_test(tc, every_word_the_kind_and_the_secret_count);
	tcase_add_test(tc, same_looks_at_all_bits);
	tcase_add_test(tc, asking_allocates_nothing);
	tcase_add_test(tc, freeing_nothing_is_fine);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
