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

/* -- kept mutations, and a server that comes back ------------------------------------------------
 */

/* What the hooks have seen. */
static struct {
	unsigned keeps, resumes, fulls, answers;
	uint64_t kept[8];  /* numbers, oldest first */
	bool known;        /* in the last resume */
	int resume_err;    /* what resume_fn returns, once */
	int64_t newest_ns; /* sending time of the newest answered request */
} seen;

static bool on_keep(void *arg GX_UNUSED, uint64_t seq, const struct rpc_reply *reply)
{
	ck_assert_ptr_nonnull(reply->message);
	seen.kept[seen.keeps++] = seq;
	return true;
}

/* Frees the oldest number that is kept, if any is. */
static int on_full(void *arg GX_UNUSED, int64_t deadline_ns GX_UNUSED)
{
	seen.fulls++;
	if (seen.keeps == 0)
		return 0;
	rpc_client_release(client, seen.kept[0]);
	memmove(seen.kept, seen.kept + 1, --seen.keeps * sizeof(seen.kept[0]));
	return 0;
}

static int on_resume(void *arg GX_UNUSED, struct rpc_chan *chan, const struct rpc_chan_info *info,
		     int64_t deadline_ns)
{
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	struct rpc_request ping_request = {.method = rpc_method_get(RPC_INDEX_PING),
					   .message = &request.base,
					   .deadline_ns = deadline_ns};
	struct rpc_reply reply;
	uint64_t call;
	int r = seen.resume_err;

	seen.resumes++;
	seen.known = info->session_known;
	seen.resume_err = 0;
	/* The connection is there for us alone. */
	rpc_reply_init(&reply);
	ck_assert_int_eq(rpc_chan_submit(chan, &ping_request, &call, NULL), 0);
	ck_assert_int_eq(rpc_chan_wait(chan, call, &reply), 0);
	rpc_reply_fini(&reply);
	return r;
}

static void on_answered(void *arg GX_UNUSED, int64_t sent_ns)
{
	seen.answers++;
	seen.newest_ns = GX_MAX(seen.newest_ns, sent_ns);
}

static void use_hooks(int kind, unsigned mutations_max)
{
	struct rpc_client_options options;

	memset(&seen, 0, sizeof(seen));
	rpc_fixture_client_options(fixture, (enum rpc_fixture_kind)kind, ALICE, &options);
	options.mutations_max = mutations_max;
	options.resume_fn = on_resume;
	options.full_fn = on_full;
	options.answered_fn = on_answered;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
}

static int tally_kept(uint64_t timeout_ms)
{
	PbEcho__TallyRequest request = PB_ECHO__TALLY_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = rpc_fixture_in_ms(fixture, timeout_ms),
					   .keep_fn = on_keep};
	const PbEcho__TallyReply *answer;
	struct rpc_reply reply;
	int r;

	request.add = 1;
	r = echo_call_tally(client, &request, &options, &reply, &answer);
	rpc_reply_fini(&reply);
	return r;
}

START_TEST(a_kept_number_stays_taken_until_it_is_released)
{
	use_hooks(_i, 100);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(tally_kept(10000), 0);
	ck_assert_int_eq(tally(0, 10000), 0);
	ck_assert_uint_eq(rpc_client_next_seq(client), 5);
	ck_assert_uint_eq(rpc_client_outstanding(client), 4);
	ck_assert_uint_eq(rpc_client_window(client, 3), 3);
	rpc_client_release(client, seen.kept[1]);
	ck_assert_uint_eq(rpc_client_outstanding(client), 4);
	rpc_client_release(client, seen.kept[0]);
	ck_assert_uint_eq(rpc_client_outstanding(client), 2);
	ck_assert_uint_eq(rpc_client_window(client, 4), 2);
	rpc_client_release(client, seen.kept[2]);
	ck_assert_uint_eq(rpc_client_outstanding(client), 0);
}
END_TEST

START_TEST(numbers_begin_where_they_are_told_to)
{
	struct rpc_client_options options;

	memset(&seen, 0, sizeof(seen));
	rpc_fixture_client_options(fixture, (enum rpc_fixture_kind)_i, ALICE, &options);
	options.mutations_max = 4;
	options.first_seq = 4321;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	ck_assert_uint_eq(rpc_client_next_seq(client), 4321);
	ck_assert_uint_eq(rpc_client_outstanding(client), 0);
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(tally(0, 10000), 0);
	ck_assert_int_eq(tally_kept(10000), 0);
	ck_assert_uint_eq(seen.kept[0], 4326);
	ck_assert_uint_eq(rpc_client_window(client, 4326), 1);
	ck_assert_uint_eq(rpc_client_next_seq(client), 4327);
}
END_TEST

START_TEST(a_full_window_asks_for_numbers)
{
	use_hooks(_i, 4);
	for (unsigned i = 0; i < 10; i++) {
		ck_assert_int_eq(tally_kept(10000), 0);
		ck_assert_uint_le(rpc_client_outstanding(client), 4);
	}
	ck_assert_uint_eq(seen.fulls, 6);
}
END_TEST

START_TEST(a_full_window_of_unanswered_calls_waits_for_them)
{
	struct caller slow = {.delay_ms = 300};

	use_hooks(_i, 1);
	start(&slow);
	rpc_fixture_wait_tally(fixture, 1);
	ck_assert_int_eq(tally(0, 10000), 0);
	ck_assert_uint_ge(seen.fulls, 1);
	join(&slow);
	ck_assert_int_eq(slow.err, 0);
}
END_TEST

START_TEST(a_server_that_comes_back_is_resumed_once_before_anything_else)
{
	struct rpc_chan *push;

	use_hooks(_i, 100);
	ck_assert_int_eq(ping(false, 10000), 0);
	ck_assert_uint_eq(seen.resumes, 0);
	rpc_fixture_down(fixture);
	rpc_fixture_up(fixture);
	seen.resume_err = -ECONNRESET;
	ck_assert_int_eq(ping(false, 10000), 0);
	ck_assert_uint_eq(seen.resumes, 2); /* the first failed: again */
	ck_assert(!seen.known);             /* the fixture forgets its sessions */
	ck_assert_int_eq(ping(false, 10000), 0);
	ck_assert_uint_eq(seen.resumes, 2);
	/* Connections that break are no restart. */
	rpc_fixture_cut(fixture);
	ck_assert_int_eq(ping(false, 10000), 0);
	ck_assert_uint_eq(seen.resumes, 2);
	/* A push channel never is the first to meet a server. */
	rpc_fixture_down(fixture);
	rpc_fixture_up(fixture);
	ck_assert_int_eq(
		rpc_client_open_push(client, rpc_fixture_in_ms(fixture, 10000), NULL, &push), 0);
	ck_assert_uint_eq(seen.resumes, 3);
	rpc_chan_close(push);
}
END_TEST

/* A mutation whose answer is there, but not dealt with yet when the server is restarted. */
static struct {
	struct gx_mutex lock;
	struct gx_cond changed;
	bool entered, early;
} slow_keep;

static bool keep_slowly(void *arg GX_UNUSED, uint64_t seq GX_UNUSED,
			const struct rpc_reply *reply GX_UNUSED)
{
	struct gx_env *env = rpc_fixture_env(fixture);
	int64_t until_ns = rpc_fixture_in_ms(fixture, 300);

	gx_env_mutex_lock(env, &slow_keep.lock);
	slow_keep.entered = true;
	gx_env_cond_broadcast(env, &slow_keep.changed);
	/* That nothing happens can only be seen by waiting for it. */
	while (!slow_keep.early &&
	       gx_env_cond_wait(env, &slow_keep.changed, &slow_keep.lock, until_ns) == 0)
		;
	slow_keep.entered = false;
	gx_env_mutex_unlock(env, &slow_keep.lock);
	return false;
}

static int resume_after_keep(void *arg GX_UNUSED, struct rpc_chan *chan GX_UNUSED,
			     const struct rpc_chan_info *info GX_UNUSED,
			     int64_t deadline_ns GX_UNUSED)
{
	struct gx_env *env = rpc_fixture_env(fixture);

	gx_env_mutex_lock(env, &slow_keep.lock);
	seen.resumes++;
	slow_keep.early = slow_keep.entered;
	gx_env_cond_broadcast(env, &slow_keep.changed);
	gx_env_mutex_unlock(env, &slow_keep.lock);
	return 0;
}

static void slow_main(void *arg)
{
	PbEcho__TallyRequest request = PB_ECHO__TALLY_REQUEST__INIT;
	struct rpc_call_options options = {.keep_fn = keep_slowly};
	const PbEcho__TallyReply *answer;
	struct rpc_reply reply;

	*(int *)arg = echo_call_tally(client, &request, &options, &reply, &answer);
	rpc_reply_fini(&reply);
}

START_TEST(an_answer_is_dealt_with_before_the_next_life_is_resumed)
{
	struct gx_env *env = rpc_fixture_env(fixture);
	struct rpc_client_options options;
	struct gx_thread thread;
	int err = 1;

	memset(&seen, 0, sizeof(seen));
	memset(&slow_keep, 0, sizeof(slow_keep));
	ck_assert_int_eq(gx_env_mutex_init(env, &slow_keep.lock), 0);
	ck_assert_int_eq(gx_env_cond_init(env, &slow_keep.changed), 0);
	rpc_fixture_client_options(fixture, (enum rpc_fixture_kind)_i, ALICE, &options);
	options.resume_fn = resume_after_keep;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	ck_assert_int_eq(gx_env_thread_start(env, &thread, "slow", slow_main, &err), 0);
	gx_env_mutex_lock(env, &slow_keep.lock);
	while (!slow_keep.entered)
		GX_IGNORE(gx_env_cond_wait(env, &slow_keep.changed, &slow_keep.lock, GX_FOREVER));
	gx_env_mutex_unlock(env, &slow_keep.lock);
	rpc_fixture_down(fixture);
	rpc_fixture_up(fixture);
	ck_assert_int_eq(ping(false, 10000), 0);
	gx_env_thread_join(env, &thread);
	ck_assert_int_eq(err, 0);
	ck_assert_uint_eq(seen.resumes, 1);
	ck_assert(!slow_keep.early);
	gx_env_cond_fini(env, &slow_keep.changed);
	gx_env_mutex_fini(env, &slow_keep.lock);
}
END_TEST

START_TEST(answers_tell_when_their_requests_were_sent)
{
	int64_t begin_ns;

	use_hooks(_i, 100);
	begin_ns = now();
	/* Who has no session is answered, too: that says nothing about one. */
	ck_assert_int_eq(ping(false, 10000), 0);
	ck_assert_uint_eq(seen.answers, 0);
	ck_assert_int_eq(tally(50, 10000), 0);
	ck_assert_uint_eq(seen.answers, 1);
	ck_assert_int_ge(seen.newest_ns, begin_ns);
	/* Of its sending, not of its coming back. */
	ck_assert_int_le(seen.newest_ns, now() - 50 * GX_NSEC_PER_MSEC);
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
	tcase_add_loop_test(tc, a_kept_number_stays_taken_until_it_is_released, 0, 2);
	tcase_add_loop_test(tc, numbers_begin_where_they_are_told_to, 0, 2);
	tcase_add_loop_test(tc, a_full_window_asks_for_numbers, 0, 2);
	tcase_add_loop_test(tc, a_full_window_of_unanswered_calls_waits_for_them, 0, 2);
	tcase_add_loop_test(tc, a_server_that_comes_back_is_resumed_once_before_anything_else, 0,
			    2);
	tcase_add_loop_test(tc, an_answer_is_dealt_with_before_the_next_life_is_resumed, 0, 2);
	tcase_add_loop_test(tc, answers_tell_when_their_requests_were_sent, 0, 2);
	tcase_add_test(tc, a_client_that_never_calls_costs_nothing);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
