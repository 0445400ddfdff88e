/*
 * Session tickets: who, for which node, until when; and the key behind them (rule S1).
 */
#include "common/gx_num.h"
#include "rpc/rpc_auth.h"
#include <check.h>

static struct rpc_ticket ticket;
static char text[GX_IDENTITY_MAX];
static unsigned char node_key[RPC_KEY_BYTES];
static struct rpc_auth node;

static void setup(void)
{
	struct gx_env *env = gx_env_posix();

	ticket = (struct rpc_ticket){
		.identity = "user:alice",
		.node = "fsd1",
		.session = UINT64_C(0xfedcba9876543210),
		.epoch = 7,
		.expires_ns = gx_env_wall_ns(env) + 60 * GX_NSEC_PER_SEC,
	};
	rpc_ticket_format(&ticket, text);
	memset(node_key, 0x11, sizeof(node_key));
	node = (struct rpc_auth){.env = env, .node = "fsd1"};
	memcpy(node.node_key, node_key, sizeof(node_key));
}

static int find(const char *identity, unsigned char *ret_key, const char **ret_reason)
{
	struct rpc_peer peer;

	return rpc_auth_find(&node, identity, &peer, ret_key, ret_reason);
}

START_TEST(a_ticket_survives_its_text_form)
{
	struct rpc_ticket got;

	ck_assert(strncmp(text, "ticket:", 7) == 0);
	ck_assert_int_eq(rpc_ticket_parse(text, &got), 0);
	ck_assert_str_eq(got.identity, ticket.identity);
	ck_assert_str_eq(got.node, ticket.node);
	ck_assert_uint_eq(got.session, ticket.session);
	ck_assert_uint_eq(got.epoch, ticket.epoch);
	ck_assert_int_eq(got.expires_ns, ticket.expires_ns);
}
END_TEST

START_TEST(the_longest_names_fit)
{
	struct rpc_ticket got;

	memset(ticket.identity + 5, 'a', GX_NAME_USER_MAX);
	memset(ticket.node, 'n', GX_NAME_USER_MAX);
	rpc_ticket_format(&ticket, text);
	ck_assert_uint_lt(strlen(text), GX_IDENTITY_MAX);
	ck_assert_int_eq(rpc_ticket_parse(text, &got), 0);
	ck_assert_str_eq(got.identity, ticket.identity);
	ck_assert_str_eq(got.node, ticket.node);
}
END_TEST

START_TEST(the_node_finds_the_peer_and_the_key_that_metad_gave)
{
	unsigned char by_metad[RPC_KEY_BYTES], by_node[RPC_KEY_BYTES];
	const char *reason = NULL;
	struct rpc_peer peer;

	ck_assert_int_eq(rpc_ticket_key(text, node_key, by_metad), 0);
	ck_assert_int_eq(rpc_auth_find(&node, text, &peer, by_node, &reason), 0);
	ck_assert_mem_eq(by_metad, by_node, RPC_KEY_BYTES);
	ck_assert_str_eq(peer.identity, "user:alice");
	ck_assert_int_eq(peer.kind, RPC_IDENTITY_USER);
	ck_assert(peer.by_ticket && !peer.admin);
	ck_assert_uint_eq(peer.ticket_session, ticket.session);
	ck_assert_uint_eq(peer.ticket_epoch, 7);
}
END_TEST

START_TEST(a_ticket_for_another_node_is_refused)
{
	unsigned char key[RPC_KEY_BYTES];
	const char *reason = NULL;

	node.node = "fsd2";
	ck_assert_int_eq(find(text, key, &reason), -EKEYREJECTED);
	ck_assert_str_eq(reason, "ticket for another node");
	node.node = NULL;
	ck_assert_int_eq(find(text, key, &reason), -EKEYREJECTED);
	ck_assert_str_eq(reason, "tickets are not accepted here");
}
END_TEST

START_TEST(one_nodes_key_makes_no_key_for_another)
{
	unsigned char of_one[RPC_KEY_BYTES], of_other[RPC_KEY_BYTES], other_key[RPC_KEY_BYTES];

	/* fsd2 is broken into and forges a ticket for fsd1: it lacks fsd1's key. */
	memset(other_key, 0x22, sizeof(other_key));
	ck_assert_int_eq(rpc_ticket_key(text, node_key, of_one), 0);
	ck_assert_int_eq(rpc_ticket_key(text, other_key, of_other), 0);
	ck_assert_mem_ne(of_one, of_other, RPC_KEY_BYTES);
	ck_assert_mem_ne(of_one, node_key, RPC_KEY_BYTES);
}
END_TEST

START_TEST(an_expired_ticket_is_refused_beyond_the_skew)
{
	unsigned char key[RPC_KEY_BYTES];
	const char *reason = NULL;

	ticket.expires_ns = gx_env_wall_ns(node.env) - 5 * GX_NSEC_PER_SEC;
	rpc_ticket_format(&ticket, text);
	ck_assert_int_eq(find(text, key, &reason), -EKEYREJECTED);
	ck_assert_str_eq(reason, "expired ticket");
	node.skew_ns = 3600 * GX_NSEC_PER_SEC;
	ck_assert_int_eq(find(text, key, &reason), 0);
	ticket.expires_ns = INT64_MIN;
	rpc_ticket_format(&ticket, text);
	ck_assert_int_eq(find(text, key, &reason), -EKEYREJECTED);
}
END_TEST

START_TEST(every_changed_digit_changes_the_key_or_is_refused)
{
	unsigned char good[RPC_KEY_BYTES];

	ck_assert_int_eq(rpc_ticket_key(text, node_key, good), 0);
	for (size_t i = 7; text[i]; i++) {
		for (const char *digit = "0123456789abcdef"; *digit; digit++) {
			unsigned char key[RPC_KEY_BYTES];
			const char *reason = NULL;
			char saved = text[i];

			if (*digit == saved)
				continue;
			text[i] = *digit;
			if (find(text, key, &reason) == 0)
				ck_assert_mem_ne(key, good, RPC_KEY_BYTES);
			text[i] = saved;
		}
	}
}
END_TEST

START_TEST(only_what_the_formatter_writes_is_parsed)
{
	size_t bytes = strlen(text);
	struct rpc_ticket got;
	char longer[GX_IDENTITY_MAX + 8];

	for (size_t n = 0; n < bytes; n++) {
		char cut[GX_IDENTITY_MAX];

		memcpy(cut, text, n);
		cut[n] = '\0';
		ck_assert_int_eq(rpc_ticket_parse(cut, &got), -EINVAL);
	}
	ck_assert_int_eq(gx_format(longer, sizeof(longer), "%s0", text), 0);
	ck_assert_int_eq(rpc_ticket_parse(longer, &got), -EINVAL);
	ck_assert_int_eq(gx_format(longer, sizeof(longer), "%s00", text), 0);
	ck_assert_int_eq(rpc_ticket_parse(longer, &got), -EINVAL);
	ck_assert_int_eq(rpc_ticket_parse("ticket:zz", &got), -EINVAL);
	ck_assert_int_eq(rpc_ticket_parse("user:alice", &got), -EINVAL);
}
END_TEST

START_TEST(a_text_with_upper_case_digits_is_not_a_second_name_of_a_ticket)
{
	struct rpc_ticket got;
	bool changed = false;

	for (size_t i = 7; text[i]; i++) {
		if (text[i] >= 'a' && text[i] <= 'f') {
			text[i] = (char)(text[i] - 'a' + 'A');
			changed = true;
		}
	}
	ck_assert(changed);
	ck_assert_int_eq(rpc_ticket_parse(text, &got), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_ticket");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_ticket_survives_its_text_form);
	tcase_add_test(tc, the_longest_names_fit);
	tcase_add_test(tc, the_node_finds_the_peer_and_the_key_that_metad_gave);
	tcase_add_test(tc, a_ticket_for_another_node_is_refused);
	tcase_add_test(tc, one_nodes_key_makes_no_key_for_another);
	tcase_add_test(tc, an_expired_ticket_is_refused_beyond_the_skew);
	tcase_add_test(tc, every_changed_digit_changes_the_key_or_is_refused);
	tcase_add_test(tc, only_what_the_formatter_writes_is_parsed);
	tcase_add_test(tc, a_text_with_upper_case_digits_is_not_a_second_name_of_a_ticket);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
