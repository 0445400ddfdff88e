/*
 * Sessions and the replay table: a mutation is done once, however often it arrives.
 */
#include "echo.pb-c.h"
#include "rpc/rpc_session.h"
#include "rpc/rpc_status.h"
#include <check.h>

static struct rpc_peer alice = {.kind = RPC_IDENTITY_USER, .identity = "user:alice"};
static struct rpc_peer bob = {.kind = RPC_IDENTITY_USER, .identity = "user:bob"};
static struct gx_env env;
static struct gx_env_ops ops;
static int64_t now_ns;
static struct rpc_sessions *sessions;
static struct rpc_replay *replay;
static struct rpc_dispatcher dispatcher;
static uint64_t session;

/* The last replies sent, by the id of the request. */
static struct {
	uint64_t id;
	uint16_t status;
	char text[64];
} sent[16];
static unsigned sent_count;

static int64_t fake_now(struct gx_env *e GX_UNUSED)
{
	return now_ns;
}

static void setup(void)
{
	ops = *gx_env_posix()->ops;
	ops.now_ns = fake_now;
	env.ops = &ops;
	now_ns = 1000 * GX_NSEC_PER_SEC;
	sent_count = 0;
	ck_assert_int_eq(rpc_sessions_new(&env, 10 * GX_NSEC_PER_SEC, &sessions), 0);
	replay = rpc_sessions_replay(sessions);
	rpc_dispatcher_init(&dispatcher, &env, "srv", "test");
	dispatcher.replay = replay;
}

static void teardown(void)
{
	rpc_sessions_free(sessions);
}

static uint64_t open_as(const struct rpc_peer *peer, uint64_t asked, bool *ret_known)
{
	uint64_t id = 0;
	bool known = false;

	ck_assert_int_eq(rpc_sessions_open(sessions, peer, asked, &id, &known), 0);
	if (ret_known)
		*ret_known = known;
	return id;
}

static void on_reply(struct rpc_call *call, const struct rpc_frame *frame, const void *message)
{
	ck_assert_uint_lt(sent_count, GX_COUNT_OF(sent));
	sent[sent_count].id = frame->id;
	sent[sent_count].status = frame->code;
	memset(sent[sent_count].text, 0, sizeof(sent[0].text));
	ck_assert_uint_lt(frame->message_bytes, sizeof(sent[0].text));
	if (frame->message_bytes > 0)
		memcpy(sent[sent_count].text, message, frame->message_bytes);
	sent_count++;
	rpc_call_clear(call);
}

static const struct rpc_call_ops call_ops = {.reply = on_reply};

/* A mutation as the dispatcher hands it over. */
static void make_call(struct rpc_call *call, uint64_t seq, uint32_t window, uint64_t check)
{
	rpc_call_init(call, &dispatcher, &call_ops, NULL);
	call->method = rpc_method_find(RPC_TALLY);
	call->session = session;
	call->frame = (struct rpc_frame){.type = RPC_FRAME_REQUEST,
					 .code = RPC_TALLY,
					 .id = seq * 1000 + check,
					 .seq = seq,
					 .window = window};
	call->request_check = check;
	call->state = 1; /* decoded */
}

static int begin(struct rpc_call *call, uint64_t seq, uint32_t window, uint64_t check)
{
	make_call(call, seq, window, check);
	return replay->ops->begin(replay, call);
}

static void finish(struct rpc_call *call, uint16_t status, const char *text)
{
	struct rpc_frame frame = {.type = RPC_FRAME_REPLY,
				  .code = status,
				  .message_bytes = (uint32_t)strlen(text),
				  .id = call->frame.id,
				  .seq = call->frame.seq};

	replay->ops->finish(replay, call, &frame, text);
	on_reply(call, &frame, text);
}

/* A whole mutation. */
static int once(uint64_t seq, uint32_t window)
{
	struct rpc_call call;
	int r = begin(&call, seq, window, 1);

	if (r == 0) {
		finish(&call, RPC_STATUS_OK, "done");
		sent_count = 0;
	} else if (r < 0) {
		rpc_call_clear(&call);
	}
	return r;
}

/* -- replay ---------------------------------------------------------------------------- */

START_TEST(the_same_number_is_answered_from_the_table)
{
	struct rpc_call first, again;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(begin(&first, 1, 1, 7), 0);
	finish(&first, RPC_STATUS_OK, "result");
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(begin(&again, 1, 1, 7), RPC_ANSWERED);
		ck_assert_uint_eq(sent[i + 1].status, RPC_STATUS_OK);
		ck_assert_str_eq(sent[i + 1].text, "result");
		ck_assert_uint_eq(sent[i + 1].id, again.frame.id);
	}
	ck_assert_uint_eq(dispatcher.stats.replayed, 3);
}
END_TEST

START_TEST(an_error_is_remembered_like_a_result)
{
	struct rpc_call first, again;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(begin(&first, 1, 1, 7), 0);
	finish(&first, RPC_STATUS_EXIST, "there already");
	ck_assert_int_eq(begin(&again, 1, 1, 7), RPC_ANSWERED);
	ck_assert_uint_eq(sent[1].status, RPC_STATUS_EXIST);
	ck_assert_str_eq(sent[1].text, "there already");
}
END_TEST

START_TEST(an_empty_result_is_remembered_too)
{
	struct rpc_call first, again;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(begin(&first, 1, 1, 7), 0);
	finish(&first, RPC_STATUS_OK, "");
	ck_assert_int_eq(begin(&again, 1, 1, 7), RPC_ANSWERED);
	ck_assert_uint_eq(sent[1].status, RPC_STATUS_OK);
	ck_assert_str_eq(sent[1].text, "");
}
END_TEST

START_TEST(another_request_under_a_used_number_is_eproto)
{
	struct rpc_call first, other;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(begin(&first, 1, 1, 7), 0);
	/* While it runs, and afterwards; by content, and by method. */
	ck_assert_int_eq(begin(&other, 1, 1, 8), -EPROTO);
	finish(&first, RPC_STATUS_OK, "result");
	ck_assert_int_eq(begin(&other, 1, 1, 8), -EPROTO);
	make_call(&other, 1, 1, 7);
	other.frame.code = RPC_EMIT;
	ck_assert_int_eq(replay->ops->begin(replay, &other), -EPROTO);
	rpc_call_clear(&other);
}
END_TEST

START_TEST(duplicates_in_progress_are_answered_together)
{
	struct rpc_call first, second, third;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(begin(&first, 1, 1, 7), 0);
	ck_assert_int_eq(begin(&second, 1, 1, 7), RPC_DEFERRED);
	ck_assert_int_eq(begin(&third, 1, 1, 7), RPC_DEFERRED);
	ck_assert_uint_eq(sent_count, 0);
	finish(&first, RPC_STATUS_OK, "result");
	ck_assert_uint_eq(sent_count, 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_str_eq(sent[i].text, "result");
}
END_TEST

START_TEST(a_retryable_refusal_is_forgotten)
{
	struct rpc_call first, waiter, again;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(begin(&first, 1, 1, 7), 0);
	ck_assert_int_eq(begin(&waiter, 1, 1, 7), RPC_DEFERRED);
	finish(&first, RPC_STATUS_AGAIN, "busy");
	ck_assert_uint_eq(sent_count, 2);
	ck_assert_uint_eq(sent[0].status, RPC_STATUS_AGAIN);
	ck_assert_uint_eq(sent[1].status, RPC_STATUS_AGAIN);
	ck_assert_int_eq(begin(&again, 1, 1, 7), 0);
	finish(&again, RPC_STATUS_OK, "now");
}
END_TEST

START_TEST(what_the_client_has_acknowledged_is_forgotten)
{
	session = open_as(&alice, 0, NULL);
	for (uint64_t seq = 1; seq <= 10; seq++)
		ck_assert_int_eq(once(seq, (uint32_t)seq), 0);
	for (uint64_t seq = 1; seq <= 10; seq++)
		ck_assert_int_eq(once(seq, (uint32_t)seq), RPC_ANSWERED);
	/* 11 with a window of 3: replies up to 8 are there. */
	sent_count = 0;
	ck_assert_int_eq(once(11, 3), 0);
	for (uint64_t seq = 1; seq <= 8; seq++)
		ck_assert_int_eq(once(seq, 1), -ENOTRECOVERABLE);
	ck_assert_int_eq(once(9, 1), RPC_ANSWERED);
	ck_assert_int_eq(once(10, 1), RPC_ANSWERED);
	ck_assert_int_eq(once(11, 1), RPC_ANSWERED);
}
END_TEST

START_TEST(impossible_windows_are_eproto)
{
	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(once(5, 0), -EPROTO);
	ck_assert_int_eq(once(5, 6), -EPROTO);
	ck_assert_int_eq(once(5, UINT32_MAX), -EPROTO);
	ck_assert_int_eq(once(5, 5), 0);
}
END_TEST

START_TEST(more_than_the_table_holds_is_e2big)
{
	session = open_as(&alice, 0, NULL);
	for (uint64_t seq = 1; seq <= GX_REPLAY_PER_SESSION_MAX; seq++)
		ck_assert_int_eq(once(seq, (uint32_t)seq), 0);
	ck_assert_int_eq(once(GX_REPLAY_PER_SESSION_MAX + 1, GX_REPLAY_PER_SESSION_MAX + 1),
			 -E2BIG);
	/* Acknowledging one makes room for one. */
	ck_assert_int_eq(once(GX_REPLAY_PER_SESSION_MAX + 1, GX_REPLAY_PER_SESSION_MAX), 0);
	ck_assert_int_eq(once(2, 1), RPC_ANSWERED);
	ck_assert_int_eq(once(1, 1), -ENOTRECOVERABLE);
}
END_TEST

START_TEST(a_jump_of_numbers_leaves_nothing_stale)
{
	const uint64_t jump = UINT64_C(1000000000000);

	session = open_as(&alice, 0, NULL);
	for (uint64_t seq = 1; seq <= 700; seq++)
		ck_assert_int_eq(once(seq, (uint32_t)seq), 0);
	/* Every place of the table is used again, none with an old result. */
	for (uint64_t seq = jump; seq < jump + 3 * GX_REPLAY_PER_SESSION_MAX; seq++)
		ck_assert_int_eq(once(seq, 1), 0);
	ck_assert_int_eq(once(700, 1), -ENOTRECOVERABLE);
	ck_assert_int_eq(once(jump, 1), -ENOTRECOVERABLE);
	ck_assert_int_eq(once(UINT64_MAX, 1), 0);
	ck_assert_int_eq(once(UINT64_MAX, 1), RPC_ANSWERED);
	ck_assert_int_eq(once(UINT64_MAX, UINT32_MAX), RPC_ANSWERED);
}
END_TEST

START_TEST(a_running_mutation_is_not_forgotten_by_a_jump)
{
	struct rpc_call running, again;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(begin(&running, 5, 5, 7), 0);
	/* A client that lies about having its reply only gets less room for itself. */
	ck_assert_int_eq(once(UINT64_C(1000000000000), 1), -E2BIG);
	ck_assert_int_eq(once(6, 1), 0);
	ck_assert_int_eq(begin(&again, 5, 1, 7), RPC_DEFERRED);
	finish(&running, RPC_STATUS_OK, "late");
	ck_assert_uint_eq(sent_count, 2);
	ck_assert_str_eq(sent[0].text, "late");
	ck_assert_str_eq(sent[1].text, "late");
}
END_TEST

START_TEST(a_table_that_grows_keeps_its_results_and_what_is_running)
{
	struct rpc_call running, again;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(once(1, 1), 0);
	ck_assert_int_eq(once(2, 1), 0);
	ck_assert_int_eq(begin(&running, 3, 2, 7), 0);
	for (uint64_t seq = 4; seq <= 900; seq++)
		ck_assert_int_eq(once(seq, (uint32_t)seq - 1), 0);
	for (uint64_t seq = 4; seq <= 900; seq += 112)
		ck_assert_int_eq(once(seq, 1), RPC_ANSWERED);
	ck_assert_int_eq(begin(&again, 3, 1, 7), RPC_DEFERRED);
	sent_count = 0;
	finish(&running, RPC_STATUS_OK, "late");
	ck_assert_uint_eq(sent_count, 2);
}
END_TEST

START_TEST(many_processes_of_one_user_have_room)
{
	for (unsigned i = 0; i < 4000; i++) {
		session = open_as(&alice, 0, NULL);
		ck_assert_int_eq(once(1, 1), 0);
		ck_assert_int_eq(once(2, 1), 0);
	}
}
END_TEST

START_TEST(a_mutation_of_a_lost_session_has_an_unknown_outcome)
{
	session = open_as(&alice, 0, NULL) + 1;
	ck_assert_int_eq(once(1, 1), -ENOTRECOVERABLE);
}
END_TEST

/* What one identity may take. */
#define SHARE_BYTES (GX_REPLAY_BYTES_MAX / 4)

START_TEST(remembered_bytes_have_a_maximum_per_identity)
{
	static unsigned char big[GX_MESSAGE_MAX];
	struct rpc_frame frame = {.type = RPC_FRAME_REPLY, .message_bytes = sizeof(big)};
	struct rpc_call call;
	uint64_t kept = 0;
	uint64_t hers;
	int r;

	session = open_as(&alice, 0, NULL);
	while ((r = begin(&call, kept + 1, (uint32_t)kept + 1, 7)) == 0) {
		ck_assert_uint_le(kept * sizeof(big), (uint64_t)SHARE_BYTES + sizeof(big));
		frame.seq = ++kept;
		replay->ops->finish(replay, &call, &frame, big);
		rpc_call_clear(&call);
	}
	ck_assert_int_eq(r, -EAGAIN);
	ck_assert_uint_ge(kept * sizeof(big), SHARE_BYTES - sizeof(big));
	rpc_call_clear(&call);
	/* It is one user's share: another has room. */
	hers = session;
	session = open_as(&bob, 0, NULL);
	ck_assert_int_eq(once(1, 1), 0);
	/* Acknowledging lets it go on. */
	session = hers;
	ck_assert_int_eq(once(kept + 1, 1), 0);
}
END_TEST

/* -- sessions ------------------------------------------------------------------------------ */

START_TEST(a_session_belongs_to_its_identity)
{
	bool known;
	uint64_t first = open_as(&alice, 0, &known);

	ck_assert(!known);
	ck_assert_uint_ne(first, 0);
	ck_assert_uint_eq(open_as(&alice, first, &known), first);
	ck_assert(known);
	ck_assert_uint_ne(open_as(&bob, first, &known), first);
	ck_assert(!known);
	/* An unknown one is not made under the number asked for. */
	ck_assert_uint_ne(open_as(&alice, 12345, &known), 12345);
	ck_assert(!known);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 3);
}
END_TEST

START_TEST(a_ticket_uses_its_own_session)
{
	struct rpc_peer by_ticket = alice;
	bool known;

	by_ticket.by_ticket = true;
	by_ticket.ticket_session = 777;
	ck_assert_uint_eq(open_as(&by_ticket, 999, &known), 777);
	ck_assert(!known);
	ck_assert_uint_eq(open_as(&by_ticket, 0, &known), 777);
	ck_assert(known);
}
END_TEST

START_TEST(a_ticket_for_a_session_of_somebody_else_is_refused)
{
	struct rpc_peer by_ticket = bob;
	bool known;
	uint64_t id = open_as(&alice, 0, &known);

	by_ticket.by_ticket = true;
	by_ticket.ticket_session = id;
	ck_assert_int_eq(rpc_sessions_open(sessions, &by_ticket, 0, &id, &known), -EKEYREJECTED);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 1);
}
END_TEST

START_TEST(a_session_outlives_its_last_connection_for_a_while)
{
	uint64_t id = open_as(&alice, 0, NULL);

	rpc_sessions_attach(sessions, id);
	rpc_sessions_attach(sessions, id);
	now_ns += 100 * GX_NSEC_PER_SEC;
	rpc_sessions_expire(sessions);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 1);
	rpc_sessions_detach(sessions, id);
	now_ns += 100 * GX_NSEC_PER_SEC;
	rpc_sessions_expire(sessions);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 1);
	rpc_sessions_detach(sessions, id);
	now_ns += 9 * GX_NSEC_PER_SEC;
	rpc_sessions_expire(sessions);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 1);
	now_ns += 2 * GX_NSEC_PER_SEC;
	rpc_sessions_expire(sessions);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 0);
	/* Numbers of sessions that are gone do no harm. */
	rpc_sessions_attach(sessions, id);
	rpc_sessions_detach(sessions, id);
}
END_TEST

START_TEST(a_session_at_work_does_not_expire)
{
	struct rpc_call call;

	session = open_as(&alice, 0, NULL);
	ck_assert_int_eq(begin(&call, 1, 1, 7), 0);
	now_ns += 1000 * GX_NSEC_PER_SEC;
	rpc_sessions_expire(sessions);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 1);
	finish(&call, RPC_STATUS_OK, "done");
	rpc_sessions_expire(sessions);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 0);
}
END_TEST

START_TEST(one_identity_cannot_take_all_sessions)
{
	uint64_t id;
	bool known;

	for (unsigned i = 0; i < GX_REPLAY_SESSIONS_MAX / 4; i++)
		open_as(&alice, 0, NULL);
	ck_assert_int_eq(rpc_sessions_open(sessions, &alice, 0, &id, &known), -EAGAIN);
	ck_assert_int_eq(rpc_sessions_open(sessions, &bob, 0, &id, &known), 0);
}
END_TEST

START_TEST(a_full_table_is_eagain_until_sessions_expire)
{
	static struct rpc_peer carol = {.kind = RPC_IDENTITY_USER, .identity = "user:carol"};
	static struct rpc_peer dave = {.kind = RPC_IDENTITY_HOST, .identity = "host:dave"};
	static struct rpc_peer erin = {.kind = RPC_IDENTITY_USER, .identity = "user:erin"};
	const struct rpc_peer *peers[] = {&alice, &carol, &dave, &erin};
	uint64_t id;
	bool known;

	/* Each may have a fourth of it, and only all together fill it. */
	for (unsigned i = 0; i < GX_REPLAY_SESSIONS_MAX; i++)
		open_as(peers[i / (GX_REPLAY_SESSIONS_MAX / 4)], 0, NULL);
	ck_assert_int_eq(rpc_sessions_open(sessions, &bob, 0, &id, &known), -EAGAIN);
	now_ns += 11 * GX_NSEC_PER_SEC;
	rpc_sessions_expire(sessions);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 0);
	ck_assert_int_eq(rpc_sessions_open(sessions, &bob, 0, &id, &known), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_session");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 20);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_same_number_is_answered_from_the_table);
	tcase_add_test(tc, an_error_is_remembered_like_a_result);
	tcase_add_test(tc, an_empty_result_is_remembered_too);
	tcase_add_test(tc, another_request_under_a_used_number_is_eproto);
	tcase_add_test(tc, duplicates_in_progress_are_answered_together);
	tcase_add_test(tc, a_retryable_refusal_is_forgotten);
	tcase_add_test(tc, what_the_client_has_acknowledged_is_forgotten);
	tcase_add_test(tc, impossible_windows_are_eproto);
	tcase_add_test(tc, more_than_the_table_holds_is_e2big);
	tcase_add_test(tc, a_jump_of_numbers_leaves_nothing_stale);
	tcase_add_test(tc, a_running_mutation_is_not_forgotten_by_a_jump);
	tcase_add_test(tc, a_table_that_grows_keeps_its_results_and_what_is_running);
	tcase_add_test(tc, many_processes_of_one_user_have_room);
	tcase_add_test(tc, a_mutation_of_a_lost_session_has_an_unknown_outcome);
	tcase_add_test(tc, remembered_bytes_have_a_maximum_per_identity);
	tcase_add_test(tc, a_session_belongs_to_its_identity);
	tcase_add_test(tc, a_ticket_uses_its_own_session);
	tcase_add_test(tc, a_ticket_for_a_session_of_somebody_else_is_refused);
	tcase_add_test(tc, a_session_outlives_its_last_connection_for_a_while);
	tcase_add_test(tc, a_session_at_work_does_not_expire);
	tcase_add_test(tc, one_identity_cannot_take_all_sessions);
	tcase_add_test(tc, a_full_table_is_eagain_until_sessions_expire);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
