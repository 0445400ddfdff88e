/*
 * File tickets: metad's word to one node about one object (rule S1).
 */
#include "rpc/rpc_file_ticket.h"
#include "common/gx_num.h"
#include "rpc/rpc_auth.h"
#include <check.h>

#define SEAL_BYTES 16u
#define BODY_BYTES (RPC_FILE_TICKET_BYTES - SEAL_BYTES)

static const struct rpc_file_ticket sample = {
	.rights = RPC_FILE_READ | RPC_FILE_WRITE,
	.ino = UINT64_C(0x1112131415161718),
	.generation = UINT64_C(0x2122232425262728),
	.base = UINT64_C(0x3132333435363738),
	.session = UINT64_C(0x4142434445464748),
	.size_max = UINT64_C(0x5152535455565758),
	.epoch = UINT64_C(0x7172737475767778),
	.expires_ns = INT64_C(0x6162636465666768),
};
static unsigned char key[RPC_KEY_BYTES];
static unsigned char bytes[RPC_FILE_TICKET_BYTES];

static void setup(void)
{
	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (unsigned char)i;
	ck_assert_int_eq(rpc_file_ticket_seal(&sample, key, bytes), 0);
}

static int open_it(struct rpc_file_ticket *ret_ticket)
{
	return rpc_file_ticket_open(bytes, sizeof(bytes), key, ret_ticket);
}

START_TEST(a_ticket_survives_its_bytes)
{
	struct rpc_file_ticket got;

	ck_assert_int_eq(open_it(&got), 0);
	ck_assert_uint_eq(got.rights, sample.rights);
	ck_assert_uint_eq(got.ino, sample.ino);
	ck_assert_uint_eq(got.generation, sample.generation);
	ck_assert_uint_eq(got.base, sample.base);
	ck_assert_uint_eq(got.session, sample.session);
	ck_assert_uint_eq(got.size_max, sample.size_max);
	ck_assert_uint_eq(got.epoch, sample.epoch);
	ck_assert_int_eq(got.expires_ns, sample.expires_ns);
}
END_TEST

/* What docs/PROTOCOL.md says; a change here needs another version. */
START_TEST(the_bytes_are_these)
{
	static const char want[] = "0100000003000000"
				   "1817161514131211"
				   "2827262524232221"
				   "3837363534333231"
				   "4847464544434241"
				   "5857565554535251"
				   "0000000000000000"
				   "6867666564636261"
				   "7877767574737271";
	char hex[2 * RPC_FILE_TICKET_BYTES + 1];

	gx_hex_encode(bytes, BODY_BYTES, hex);
	ck_assert_str_eq(hex, want);
}
END_TEST

/* The seal has an HMAC of its own, for speed: it must be the one everybody else computes. */
START_TEST(the_seal_is_the_head_of_the_mac_that_all_else_uses)
{
	unsigned char mac[32];

	for (unsigned i = 0; i < 100; i++) {
		struct rpc_file_ticket ticket = sample;

		key[i % sizeof(key)] = (unsigned char)(251 * i);
		ticket.ino += i;
		ck_assert_int_eq(rpc_file_ticket_seal(&ticket, key, bytes), 0);
		ck_assert_int_eq(rpc_auth_mac(key, "gridstage file ticket", bytes, BODY_BYTES, mac),
				 0);
		ck_assert_mem_eq(bytes + BODY_BYTES, mac, SEAL_BYTES);
	}
}
END_TEST

START_TEST(every_flipped_bit_is_refused)
{
	struct rpc_file_ticket got = {.ino = 1};

	for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		ck_assert_int_eq(open_it(&got), -EKEYREJECTED);
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	ck_assert_uint_eq(got.ino, 1); /* written only on success */
	ck_assert_int_eq(open_it(&got), 0);
}
END_TEST

START_TEST(another_length_is_refused)
{
	unsigned char longer[RPC_FILE_TICKET_BYTES + 8] = {0};
	struct rpc_file_ticket got;

	memcpy(longer, bytes, sizeof(bytes));
	for (size_t n = 0; n <= sizeof(longer); n++)
		ck_assert_int_eq(rpc_file_ticket_open(longer, n, key, &got),
				 n == RPC_FILE_TICKET_BYTES ? 0 : -EKEYREJECTED);
	ck_assert_int_eq(rpc_file_ticket_open(NULL, 0, key, &got), -EKEYREJECTED);
}
END_TEST

START_TEST(another_key_is_refused)
{
	struct rpc_file_ticket got;

	for (size_t i = 0; i < sizeof(key); i++) {
		key[i] ^= 0x80;
		ck_assert_int_eq(open_it(&got), -EKEYREJECTED);
		key[i] ^= 0x80;
	}
}
END_TEST

/* Sealed by somebody with the key, but not as we do it: a later version, or a use for the spare. */
START_TEST(a_sound_seal_over_another_layout_is_refused)
{
	static const size_t places[] = {0, 1, 2, 3, 48, 55};
	unsigned char mac[32];
	struct rpc_file_ticket got;

	for (size_t i = 0; i < GX_COUNT_OF(places); i++) {
		setup();
		bytes[places[i]] ^= 2;
		ck_assert_int_eq(rpc_auth_mac(key, "gridstage file ticket", bytes, BODY_BYTES, mac),
				 0);
		memcpy(bytes + BODY_BYTES, mac, SEAL_BYTES);
		ck_assert_int_eq(open_it(&got), -EKEYREJECTED);
	}
}
END_TEST

/* The same key and the same bytes in another role give another mac. */
START_TEST(no_other_use_of_the_key_makes_a_seal)
{
	static const char *const labels[] = {"gridstage ticket", "gridstage node key", ""};
	unsigned char mac[32];
	struct rpc_file_ticket got;

	for (size_t i = 0; i < GX_COUNT_OF(labels); i++) {
		ck_assert_int_eq(rpc_auth_mac(key, labels[i], bytes, BODY_BYTES, mac), 0);
		memcpy(bytes + BODY_BYTES, mac, SEAL_BYTES);
		ck_assert_int_eq(open_it(&got), -EKEYREJECTED);
	}
}
END_TEST

START_TEST(a_node_key_is_not_the_key_of_the_node)
{
	unsigned char node_key[RPC_KEY_BYTES], again[RPC_KEY_BYTES], other[RPC_KEY_BYTES];

	ck_assert_int_eq(rpc_node_key(key, node_key), 0);
	ck_assert_int_eq(rpc_node_key(key, again), 0);
	ck_assert_mem_eq(node_key, again, RPC_KEY_BYTES);
	ck_assert_mem_ne(node_key, key, RPC_KEY_BYTES);
	key[31] ^= 1;
	ck_assert_int_eq(rpc_node_key(key, other), 0);
	ck_assert_mem_ne(node_key, other, RPC_KEY_BYTES);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_file_ticket");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_ticket_survives_its_bytes);
	tcase_add_test(tc, the_bytes_are_these);
	tcase_add_test(tc, the_seal_is_the_head_of_the_mac_that_all_else_uses);
	tcase_add_test(tc, every_flipped_bit_is_refused);
	tcase_add_test(tc, another_length_is_refused);
	tcase_add_test(tc, another_key_is_refused);
	tcase_add_test(tc, a_sound_seal_over_another_layout_is_refused);
	tcase_add_test(tc, no_other_use_of_the_key_makes_a_seal);
	tcase_add_test(tc, a_node_key_is_not_the_key_of_the_node);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
