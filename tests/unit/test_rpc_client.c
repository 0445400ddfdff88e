/*
 * The client against a server that goes away and comes back, refuses, or is not there.
 */
#include "core.pb-c.h"
#include "echo.pb-c.h"
#include "rpc/rpc_conn.h"
#include "tests/lib/rpc_fixture.h"
#include <check.h>

#define RPC_SERVICE_CORE
#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

#define ALICE RPC_FIXTURE_ALICE

static struct rpc_fixture *fixture;
static struct rpc_client *client;
static struct gx_buf errors;

static void setup(void)
{
	fixture = rpc_fixture_start(NULL);
	gx_buf_init(&errors, 4096);
}

static void teardown(void)
{
	rpc_client_free(client);
	client = NULL;
	gx_buf_fini(&errors);
	rpc_fixture_stop(fixture);
}

static int64_t now(void)
{
	return gx_env_now_ns(rpc_fixture_env(fixture));
}

static void use(int kind, enum rpc_fixture_who who)
{
	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)kind, who, 0);
}

static int ping(bool fail_fast, uint64_t timeout_ms)
{
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	struct rpc_call_options options = {.fail_fast = fail_fast,
					   .errors = &errors,
					   .deadline_ns = rpc_fixture_in_ms(fixture, timeout_ms)};
	const PbCore__PingReply *pong;
	struct rpc_reply reply;
	int r = core_call_ping(client, &request, &options, &reply, &pong);

	rpc_reply_fini(&reply);
	return r;
}

static int tally(uint32_t delay_ms, uint64_t timeout_ms)
{
	PbEcho__TallyRequest request = PB_ECHO__TALLY_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = rpc_fixture_in_ms(fixture, timeout_ms)};
	const PbEcho__TallyReply *answer;
	struct rpc_reply reply;
	int r;

	request.add = 1;
	request.delay_ms = delay_ms;
	r = echo_call_tally(client, &request, &options, &reply, &answer);
	rpc_reply_fini(&reply);
	return r;
}

/* -- restarts ------------------------------------------------------------------------------ */

START_TEST(after_a_restart_the_next_call_connects_again)
{
	uint64_t session;

	use(_i, ALICE);
	ck_assert_int_eq(ping(false, 10000), 0);
	session = rpc_client_session(client);
	ck_assert_uint_ne(session, 0);
	for (unsigned i = 0; i < 3; i++) {
		rpc_fixture_down(fixture);
		rpc_fixture_up(fixture);
		ck_assert_int_eq(ping(false, 10000), 0);
	}
	/* The server has forgotten; the client has another session and can mutate in it. */
	ck_assert_uint_ne(rpc_client_session(client), session);
	if (_i < RPC_FIXTURE_LOOP_COUNT)
		ck_assert_int_eq(tally(0, 10000), 0);
}
END_TEST

struct caller {
	struct gx_thread thread;
	int err;
	uint32_t delay_ms;
	bool is_ping;
};

static void caller_main(void *arg)
{
	struct caller *c = arg;

	c->err = c->is_ping ? ping(false, 20000) : tally(c->delay_ms, 20000);
}

static void start(struct caller *c)
{
	ck_assert_int_eq(
		gx_env_thread_start(rpc_fixture_env(fixture), &c->thread, "caller", caller_main, c),
		0);
}

static void join(struct caller *c)
{
	gx_env_thread_join(rpc_fixture_env(fixture), &c->thread);
}

START_TEST(a_call_waits_for_a_server_that_comes_back)
{
	struct caller c = {.is_ping = true, .err = 1};

	use(_i, ALICE);
	ck_assert_int_eq(ping(false, 10000), 0);
	rpc_fixture_down(fixture);
	start(&c);
	rpc_fixture_up(fixture);
	join(&c);
	ck_assert_int_eq(c.err, 0);
}
END_TEST

START_TEST(a_mutation_whose_session_was_lost_has_an_unknown_outcome)
{
	struct caller c = {.delay_ms = 9000, .err = 1};

	use(_i, ALICE);
	ck_assert_int_eq(ping(false, 10000), 0);
	start(&c);
	rpc_fixture_wait_tally(fixture, 1);
	/* The server dies between doing it and saying so. */
	rpc_fixture_down(fixture);
	rpc_fixture_up(fixture);
	join(&c);
	ck_assert_int_eq(c.err, -ENOTRECOVERABLE);
	ck_assert_uint_eq(rpc_fixture_tally_calls(fixture), 0);
	ck_assert_int_eq(tally(0, 10000), 0);
}
END_TEST

START_TEST(a_mutation_whose_connection_broke_is_asked_for_again_and_done_once)
{
	struct caller c = {.delay_ms = 300, .err = 1};
	struct rpc_stats stats;

	use(_i, ALICE);
	ck_assert_int_eq(ping(false, 10000), 0);
	start(&c);
	rpc_fixture_wait_tally(fixture, 1);
	rpc_fixture_cut(fixture);
	join(&c);
	ck_assert_int_eq(c.err, 0);
	ck_assert_uint_eq(rpc_fixture_tally_calls(fixture), 1);
	rpc_fixture_stats(fixture, false, &stats);
	ck_assert_uint_eq(stats.replayed, 1);
}
END_TEST

/* A server that knows nobody's session, though it works on in the old ones. */
static int open_another(void *arg, const struct rpc_peer *peer, uint64_t asked GX_UNUSED,
			uint64_t *ret_session, bool *ret_known)
{
	return rpc_sessions_open(arg, peer, 0, ret_session, ret_known);
}

static void forget_sessions(struct rpc_fixture *f, void *arg GX_UNUSED)
{
	rpc_fixture_server(f)->hello.session = open_another;
}

static void cut_session(struct rpc_fixture *f, void *arg)
{
	const uint64_t *session = arg;
	struct rpc_conn *conn, *tmp;

	for (conn = rpc_fixture_server(f)->conns; conn; conn = tmp) {
		tmp = conn->next;
		if (conn->session == *session)
			rpc_conn_close(conn, "cut");
	}
}

START_TEST(a_mutation_is_never_asked_for_again_under_another_session)
{
	struct caller c = {.delay_ms = 300, .err = 1};
	struct rpc_chan *first, *second;
	struct rpc_chan_info info;
	uint64_t session;

	use(_i, ALICE);
	ck_assert_int_eq(rpc_client_borrow(client, now() + GX_NSEC_PER_SEC * 10, NULL, &first), 0);
	session = rpc_client_session(client);
	rpc_fixture_run(fixture, forget_sessions, NULL);
	ck_assert_int_eq(rpc_client_borrow(client, now() + GX_NSEC_PER_SEC * 10, NULL, &second), 0);
	rpc_chan_info(second, &info);
	ck_assert_uint_ne(info.session, session);
	rpc_client_return(client, first);
	rpc_client_return(client, second);
	/* It goes out on the first connection; the second could not say whether it was done. */
	start(&c);
	rpc_fixture_wait_tally(fixture, 1);
	rpc_fixture_run(fixture, cut_session, &session);
	join(&c);
	ck_assert_int_eq(c.err, -ENOTRECOVERABLE);
	ck_assert_uint_eq(rpc_fixture_tally_calls(fixture), 1);
}
END_TEST

START_TEST(mutations_of_many_threads_are_each_done_once)
{
	struct caller callers[8];

	use(_i, ALICE);
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < GX_COUNT_OF(callers); i++) {
			callers[i] = (struct caller){.err = 1, .delay_ms = i};
			start(&callers[i]);
		}
		for (unsigned i = 0; i < GX_COUNT_OF(callers); i++) {
			join(&callers[i]);
			ck_assert_int_eq(callers[i].err, 0);
		}
	}
	ck_assert_uint_eq(rpc_fixture_tally_calls(fixture), 5 * GX_COUNT_OF(callers));
}
END_TEST

/* -- nobody there --------------------------------------------------------------------------- */

START_TEST(fail_fast_returns_at_once)
{
	int64_t begin;
	int r;

	use(_i, ALICE);
	rpc_fixture_down(fixture);
	begin = now();
	r = ping(true, 20000);
	ck_assert(r == -ECONNREFUSED || r == -ENOENT);
	ck_assert_int_lt(now() - begin, 5 * GX_NSEC_PER_SEC);
	ck_assert_uint_gt(errors.bytes, 0);
	rpc_fixture_up(fixture);
	ck_assert_int_eq(ping(true, 20000), 0);
}
END_TEST

START_TEST(a_server_that_stays_away_ends_the_call_at_its_deadline)
{
	int64_t begin;

	use(_i, ALICE);
	rpc_fixture_down(fixture);
	begin = now();
	ck_assert_int_lt(ping(false, 300), 0);
	ck_assert_int_lt(now() - begin, 5 * GX_NSEC_PER_SEC);
	/* Not given up at the first refusal either. */
	ck_assert_int_ge(now() - begin, 100 * GX_NSEC_PER_MSEC);
	ck_assert_uint_gt(errors.bytes, 0);
}
END_TEST

START_TEST(a_server_that_accepts_and_says_nothing_ends_the_call_at_its_deadline)
{
	struct gx_env *env = rpc_fixture_env(fixture);
	struct rpc_client_options options;
	struct gx_addr any;
	int64_t begin = now();
	int fd;

	/* The kernel completes the connection; nobody ever accepts it. */
	ck_assert_int_eq(gx_addr_parse(env, "127.0.0.1:0", &any, NULL), 0);
	fd = gx_env_listen(env, &any, 8);
	ck_assert_int_ge(fd, 0);
	rpc_fixture_client_options(fixture, (enum rpc_fixture_kind)_i, ALICE, &options);
	ck_assert_int_eq(gx_env_sock_name(env, fd, &options.endpoint.addr), 0);
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	ck_assert_int_eq(ping(false, 200), -ETIMEDOUT);
	ck_assert_int_lt(now() - begin, 5 * GX_NSEC_PER_SEC);
	gx_env_close(env, fd);
}
END_TEST

/* -- refused ---------------------------------------------------------------------------------- */

static const struct {
	enum rpc_fixture_who who;
	const char *identity, *reason;
} strangers[] = {
	{RPC_FIXTURE_IMPOSTOR, "user:alice", "wrong key"},
	{RPC_FIXTURE_STRANGER, "user:mallory", "unknown user"},
	{RPC_FIXTURE_EXPIRED, "user:late", "expired key"},
};

START_TEST(a_wrong_key_is_refused_logged_and_not_retried)
{
	int kind = _i % RPC_FIXTURE_COUNT;
	unsigned who = (unsigned)_i / RPC_FIXTURE_COUNT;
	bool threaded = kind >= RPC_FIXTURE_LOOP_COUNT;
	struct rpc_stats stats;
	int64_t begin = now();

	use(kind, strangers[who].who);
	ck_assert_int_eq(ping(false, 20000), -EKEYREJECTED);
	ck_assert_int_lt(now() - begin, 10 * GX_NSEC_PER_SEC);
	if (!rpc_fixture_log_wait(fixture, "connection refused", strangers[who].reason))
		rpc_fixture_log_print(fixture);
	ck_assert(rpc_fixture_log_has(fixture, strangers[who].identity, strangers[who].reason));
	ck_assert(rpc_fixture_log_has(fixture, "peer=", strangers[who].reason));
	rpc_fixture_stats(fixture, threaded, &stats);
	ck_assert_uint_eq(stats.refused, 1);
	ck_assert_uint_eq(stats.accepted, 1);
	ck_assert_uint_gt(errors.bytes, 0);
	/* What the refused one is told does not say why. */
	ck_assert_ptr_null(strstr(gx_buf_text(&errors), "unknown"));
	ck_assert_ptr_null(strstr(gx_buf_text(&errors), "expired"));
}
END_TEST

static void wrong_transport(enum rpc_fixture_kind port, bool tls)
{
	struct rpc_client_options options;
	int r;

	rpc_fixture_client_options(fixture, port, ALICE, &options);
	options.endpoint.tls = tls;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	r = ping(true, 5000);
	ck_assert_int_lt(r, 0);
	ck_assert_int_ne(r, -ETIMEDOUT);
}

START_TEST(a_tls_client_on_a_plain_port_is_refused_and_named)
{
	wrong_transport(_i == 0 ? RPC_FIXTURE_PLAIN : RPC_FIXTURE_THREAD_PLAIN, true);
	ck_assert(rpc_fixture_log_wait(fixture, "connection refused", "speaks TLS"));
}
END_TEST

START_TEST(a_plain_client_on_a_tls_port_is_refused_and_named)
{
	wrong_transport(_i == 0 ? RPC_FIXTURE_TLS : RPC_FIXTURE_THREAD_TLS, false);
	ck_assert(rpc_fixture_log_wait(fixture, "connection refused", "reason="));
	ck_assert(rpc_fixture_log_has(fixture, "connection refused", "peer="));
}
END_TEST

/* -- pool ---------------------------------------------------------------------------------------
 */

static void copy_connections(struct rpc_fixture *f, void *arg)
{
	*(uint64_t *)arg = rpc_fixture_dispatcher(f, false)->stats.connections;
}

START_TEST(the_pool_never_passes_its_maximum)
{
	struct rpc_chan *chans[9];
	uint64_t open = 0;
	unsigned different = 1;

	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)_i, ALICE, 3);
	for (unsigned i = 0; i < GX_COUNT_OF(chans); i++)
		ck_assert_int_eq(rpc_client_borrow(client, rpc_fixture_in_ms(fixture, 10000), NULL,
						   &chans[i]),
				 0);
	for (unsigned i = 1; i < GX_COUNT_OF(chans); i++) {
		bool seen = false;

		for (unsigned k = 0; k < i; k++)
			seen = seen || chans[k] == chans[i];
		different += !seen;
	}
	ck_assert_uint_eq(different, 3);
	rpc_fixture_run(fixture, copy_connections, &open);
	ck_assert_uint_eq(open, 3);
	for (unsigned i = 0; i < GX_COUNT_OF(chans); i++)
		rpc_client_return(client, chans[i]);
	/* One idle connection serves a lone caller. */
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(ping(false, 10000), 0);
	rpc_fixture_run(fixture, copy_connections, &open);
	ck_assert_uint_eq(open, 3);
}
END_TEST

START_TEST(all_connections_of_a_client_share_its_session)
{
	struct rpc_chan *chans[3];
	struct rpc_chan_info first, info;

	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)_i, ALICE, 3);
	for (unsigned i = 0; i < GX_COUNT_OF(chans); i++)
		ck_assert_int_eq(rpc_client_borrow(client, rpc_fixture_in_ms(fixture, 10000), NULL,
						   &chans[i]),
				 0);
	rpc_chan_info(chans[0], &first);
	ck_assert_uint_eq(first.session, rpc_client_session(client));
	ck_assert_str_eq(first.server, "fixture");
	for (unsigned i = 1; i < GX_COUNT_OF(chans); i++) {
		rpc_chan_info(chans[i], &info);
		ck_assert_uint_eq(info.session, first.session);
		ck_assert(info.session_known);
		ck_assert_uint_eq(info.boot, first.boot);
	}
	for (unsigned i = 0; i < GX_COUNT_OF(chans); i++)
		rpc_client_return(client, chans[i]);
}
END_TEST

/* -- tickets (rule S1) ------------------------------------------------------------------------ */

static const unsigned char node_key[RPC_KEY_BYTES] = "the key metad shares with fsd1.";

static void become_node(struct rpc_fixture *f, void *arg GX_UNUSED)
{
	struct rpc_auth *auth = (struct rpc_auth *)rpc_fixture_server(f)->hello.auth;

	auth->node = "fsd1";
	memcpy(auth->node_key, node_key, sizeof(node_key));
}

/* A client with a ticket for `node`, whose key was made with `key_of_node`. */
static void use_ticket(int kind, const char *node, const unsigned char *key_of_node,
		       int64_t lifetime_ns)
{
	struct rpc_ticket ticket = {.identity = "user:carol", .session = 4711, .epoch = 1};
	struct rpc_client_options options;
	unsigned char key[RPC_KEY_BYTES];
	char text[GX_IDENTITY_MAX];

	ck_assert_int_eq(gx_strcpy(ticket.node, sizeof(ticket.node), node), 0);
	ticket.expires_ns = gx_env_wall_ns(rpc_fixture_env(fixture)) + lifetime_ns;
	rpc_ticket_format(&ticket, text);
	ck_assert_int_eq(rpc_ticket_key(text, key_of_node, key), 0);
	rpc_fixture_client_options(fixture, (enum rpc_fixture_kind)kind, ALICE, &options);
	options.identity = text;
	options.key = key;
	rpc_client_free(client);
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
}

START_TEST(a_ticket_lets_its_user_into_its_session_on_its_node_until_it_expires)
{
	static const unsigned char other_key[RPC_KEY_BYTES] = "the key metad shares with fsd2.";
	int r = 0;

	rpc_fixture_run(fixture, become_node, NULL);
	use_ticket(_i, "fsd1", node_key, GX_NSEC_PER_SEC);
	ck_assert_int_eq(ping(true, 10000), 0);
	ck_assert_uint_eq(rpc_client_session(client), 4711);
	while (r == 0)
		r = ping(true, 10000);
	ck_assert(rpc_fixture_log_wait(fixture, "connection dropped", "expired ticket"));
	ck_assert_int_eq(ping(true, 10000), -EKEYREJECTED);
	use_ticket(_i, "fsd1", other_key, GX_NSEC_PER_SEC * 60);
	ck_assert_int_eq(ping(true, 10000), -EKEYREJECTED);
	use_ticket(_i, "fsd2", node_key, GX_NSEC_PER_SEC * 60);
	ck_assert_int_eq(ping(true, 10000), -EKEYREJECTED);
	ck_assert(rpc_fixture_log_wait(fixture, "connection refused", "ticket for another node"));
}
END_TEST

START_TEST(a_client_that_never_calls_costs_nothing)
{
	uint64_t open = 1;

	use(_i, ALICE);
	ck_assert_uint_eq(rpc_client_session(client), 0);
	rpc_fixture_run(fixture, copy_connections, &open);
	ck_assert_uint_eq(open, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_client");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, after_a_restart_the_next_call_connects_again, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, a_call_waits_for_a_server_that_comes_back, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, a_mutation_whose_session_was_lost_has_an_unknown_outcome, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_mutation_whose_connection_broke_is_asked_for_again_and_done_once,
			    0, RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_mutation_is_never_asked_for_again_under_another_session, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, mutations_of_many_threads_are_each_done_once, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, fail_fast_returns_at_once, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, a_server_that_stays_away_ends_the_call_at_its_deadline, 0,
			    RPC_FIXTURE_COUNT);
	tcase_add_loop_test(
		tc, a_server_that_accepts_and_says_nothing_ends_the_call_at_its_deadline, 0, 2);
	tcase_add_loop_test(tc, a_wrong_key_is_refused_logged_and_not_retried, 0,
			    RPC_FIXTURE_COUNT * (int)GX_COUNT_OF(strangers));
	tcase_add_loop_test(tc, a_tls_client_on_a_plain_port_is_refused_and_named, 0, 2);
	tcase_add_loop_test(tc, a_plain_client_on_a_tls_port_is_refused_and_named, 0, 2);
	tcase_add_loop_test(tc, the_pool_never_passes_its_maximum, 0, RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, all_connections_of_a_client_share_its_session, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc,
			    a_ticket_lets_its_user_into_its_session_on_its_node_until_it_expires, 0,
			    RPC_FIXTURE_COUNT);
	tcase_add_test(tc, a_client_that_never_calls_costs_nothing);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
