/*
 * Server push, and the graceful end of a server.
 */
#include "core.pb-c.h"
#include "echo.pb-c.h"
#include "rpc/rpc_conn.h"
#include "rpc/rpc_status.h"
#include "tests/lib/rpc_fixture.h"
#include <check.h>

#define RPC_SERVICE_CORE
#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

#define ALICE RPC_FIXTURE_ALICE

static struct rpc_fixture *fixture;
static struct rpc_client *client;

static void setup(void)
{
	fixture = rpc_fixture_start(NULL);
}

static void teardown(void)
{
	rpc_client_free(client);
	client = NULL;
	rpc_fixture_stop(fixture);
}

static void use(int kind)
{
	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)kind, ALICE, 0);
}

static int64_t soon(void)
{
	return rpc_fixture_in_ms(fixture, 10000);
}

/* An emit in a thread of its own, since it is answered only when its ticks are. */
struct emitter {
	struct gx_thread thread;
	uint32_t count, acknowledged;
	int err;
};

static void emit_main(void *arg)
{
	struct emitter *e = arg;
	PbEcho__EmitRequest request = PB_ECHO__EMIT_REQUEST__INIT;
	const PbEcho__EmitReply *answer;
	struct rpc_reply reply;

	request.count = e->count;
	e->err = echo_call_emit(client, &request, NULL, &reply, &answer);
	if (e->err == 0)
		e->acknowledged = answer->acknowledged;
	rpc_reply_fini(&reply);
}

static void emit_start(struct emitter *e, uint32_t count)
{
	*e = (struct emitter){.count = count};
	ck_assert_int_eq(
		gx_env_thread_start(rpc_fixture_env(fixture), &e->thread, "emit", emit_main, e), 0);
}

static void emit_join(struct emitter *e)
{
	gx_env_thread_join(rpc_fixture_env(fixture), &e->thread);
}

static struct rpc_chan *open_push(void)
{
	struct rpc_chan *push = NULL;

	ck_assert_int_eq(rpc_client_open_push(client, soon(), NULL, &push), 0);
	return push;
}

static void receive(struct rpc_chan *push, uint32_t first, uint32_t count)
{
	struct rpc_push_message message;

	rpc_push_message_init(&message);
	for (uint32_t i = 0; i < count; i++) {
		ck_assert_int_eq(rpc_chan_receive(push, soon(), &message), 0);
		ck_assert_uint_eq(message.seq, first + i);
		ck_assert_uint_eq(message.method->id, RPC_TICK);
	}
	rpc_push_message_fini(&message);
}

/* -- push ------------------------------------------------------------------------------- */

START_TEST(a_hundred_ticks_arrive_in_order_and_are_acknowledged)
{
	struct rpc_push_message message;
	struct rpc_chan *push;
	struct emitter e;

	use(_i);
	push = open_push();
	emit_start(&e, 100);
	rpc_push_message_init(&message);
	for (uint32_t i = 1; i <= 100; i++) {
		ck_assert_int_eq(rpc_chan_receive(push, soon(), &message), 0);
		ck_assert_uint_eq(message.seq, i);
		ck_assert_uint_eq(((PbEcho__TickRequest *)message.message)->number, i);
		/* One by one, then the rest with a single acknowledgement. */
		if (i <= 50 || i == 100)
			ck_assert_int_eq(rpc_chan_ack(push, i, soon()), 0);
	}
	rpc_push_message_fini(&message);
	emit_join(&e);
	ck_assert_int_eq(e.err, 0);
	ck_assert_uint_eq(e.acknowledged, 100);
	rpc_chan_close(push);
}
END_TEST

START_TEST(without_a_push_channel_it_is_enotconn)
{
	struct emitter e;

	use(_i);
	emit_start(&e, 3);
	emit_join(&e);
	ck_assert_int_eq(e.err, -ENOTCONN);
}
END_TEST

START_TEST(a_push_channel_that_breaks_in_the_middle_is_an_error_and_no_hang)
{
	struct rpc_chan *push;
	struct emitter e;

	use(_i);
	push = open_push();
	emit_start(&e, 100);
	receive(push, 1, 40);
	ck_assert_int_eq(rpc_chan_ack(push, 30, soon()), 0);
	rpc_chan_close(push);
	emit_join(&e);
	ck_assert_int_eq(e.err, -ENOTCONN);
	/* A new channel starts counting anew. */
	push = open_push();
	emit_start(&e, 5);
	receive(push, 1, 5);
	ck_assert_int_eq(rpc_chan_ack(push, 5, soon()), 0);
	emit_join(&e);
	ck_assert_int_eq(e.err, 0);
	rpc_chan_close(push);
}
END_TEST

START_TEST(a_newer_push_channel_replaces_the_older)
{
	struct rpc_push_message message;
	struct rpc_chan *older, *newer;
	struct emitter e;

	use(_i);
	older = open_push();
	newer = open_push();
	rpc_push_message_init(&message);
	ck_assert_int_lt(rpc_chan_receive(older, soon(), &message), 0);
	rpc_push_message_fini(&message);
	emit_start(&e, 2);
	receive(newer, 1, 2);
	ck_assert_int_eq(rpc_chan_ack(newer, 2, soon()), 0);
	emit_join(&e);
	ck_assert_int_eq(e.err, 0);
	rpc_chan_close(older);
	rpc_chan_close(newer);
}
END_TEST

START_TEST(an_acknowledgement_of_what_was_not_sent_ends_the_channel)
{
	struct rpc_push_message message;
	struct rpc_chan *push;

	use(_i);
	push = open_push();
	ck_assert_int_eq(rpc_chan_ack(push, 7, soon()), 0);
	ck_assert(rpc_fixture_log_wait(fixture, "protocol broken",
				       "acknowledges a push that was not sent"));
	rpc_push_message_init(&message);
	ck_assert_int_lt(rpc_chan_receive(push, soon(), &message), 0);
	rpc_push_message_fini(&message);
	rpc_chan_close(push);
}
END_TEST

START_TEST(a_receive_times_out_and_can_be_repeated)
{
	struct rpc_push_message message;
	struct rpc_chan *push;
	struct emitter e;

	use(_i);
	push = open_push();
	rpc_push_message_init(&message);
	ck_assert_int_eq(rpc_chan_receive(push, rpc_fixture_in_ms(fixture, 20), &message),
			 -ETIMEDOUT);
	rpc_push_message_fini(&message);
	emit_start(&e, 1);
	receive(push, 1, 1);
	ck_assert_int_eq(rpc_chan_ack(push, 1, soon()), 0);
	emit_join(&e);
	ck_assert_int_eq(e.err, 0);
	rpc_chan_close(push);
}
END_TEST

static void abort_main(void *arg)
{
	rpc_chan_abort(arg);
}

START_TEST(a_receive_ends_when_another_thread_aborts)
{
	struct rpc_push_message message;
	struct rpc_chan *push;
	struct gx_thread thread;

	use(_i);
	push = open_push();
	ck_assert_int_eq(
		gx_env_thread_start(rpc_fixture_env(fixture), &thread, "abort", abort_main, push),
		0);
	rpc_push_message_init(&message);
	ck_assert_int_lt(rpc_chan_receive(push, soon(), &message), 0);
	rpc_push_message_fini(&message);
	gx_env_thread_join(rpc_fixture_env(fixture), &thread);
	rpc_chan_close(push);
}
END_TEST

START_TEST(too_many_unacknowledged_pushes_close_the_channel)
{
	struct rpc_chan *push;
	struct emitter e;

	use(_i);
	push = open_push();
	emit_start(&e, GX_PUSH_QUEUE_PER_SESSION_MAX + 1);
	emit_join(&e);
	ck_assert_int_lt(e.err, 0);
	ck_assert(rpc_fixture_log_wait(fixture, "too many pushes", NULL));
	rpc_chan_close(push);
}
END_TEST

struct flood {
	int err;
	unsigned sent;
};

/* Pushes of a megabyte each, in one turn, so that none can leave before the next is queued. */
static void push_large(struct rpc_fixture *f, void *arg)
{
	struct flood *flood = arg;
	PbEcho__EchoRequest large = PB_ECHO__ECHO_REQUEST__INIT;
	unsigned char *data = calloc(1, GX_MESSAGE_MAX - 64);

	ck_assert_ptr_nonnull(data);
	large.data = (ProtobufCBinaryData){GX_MESSAGE_MAX - 64, data};
	while (flood->err == 0 && flood->sent < 100) {
		flood->err = rpc_server_push(rpc_fixture_server(f), rpc_client_session(client),
					     RPC_TICK, &large.base, NULL, NULL);
		flood->sent += flood->err == 0;
	}
	free(data);
}

START_TEST(pushes_that_are_not_taken_are_bounded_in_bytes_too)
{
	struct flood flood = {0};
	struct rpc_chan *push;

	use(_i);
	push = open_push();
	rpc_fixture_run(fixture, push_large, &flood);
	ck_assert_int_eq(flood.err, -E2BIG);
	ck_assert_uint_le(flood.sent, GX_OUT_QUEUE_PER_CONN_MAX / (GX_MESSAGE_MAX - 64) + 1);
	rpc_chan_close(push);
}
END_TEST

/* -- the graceful end ----------------------------------------------------------------------- */

struct slow {
	struct gx_thread thread;
	int64_t value;
	int err;
};

static void slow_main(void *arg)
{
	struct slow *s = arg;
	PbEcho__TallyRequest request = PB_ECHO__TALLY_REQUEST__INIT;
	const PbEcho__TallyReply *answer;
	struct rpc_reply reply;

	request.add = 5;
	request.delay_ms = 300;
	s->err = echo_call_tally(client, &request, NULL, &reply, &answer);
	if (s->err == 0)
		s->value = answer->value;
	rpc_reply_fini(&reply);
}

static int ping(struct rpc_client *c, bool fail_fast, uint64_t timeout_ms)
{
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	struct rpc_call_options options = {.fail_fast = fail_fast,
					   .deadline_ns = rpc_fixture_in_ms(fixture, timeout_ms)};
	const PbCore__PingReply *pong;
	struct rpc_reply reply;
	int r = core_call_ping(c, &request, &options, &reply, &pong);

	rpc_reply_fini(&reply);
	return r;
}

START_TEST(a_drain_answers_what_is_in_work_and_refuses_the_rest)
{
	PbCore__PingRequest ping_message = PB_CORE__PING_REQUEST__INIT;
	struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_PING),
				      .message = &ping_message.base};
	struct rpc_chan *chan, *idle;
	struct rpc_reply reply;
	struct slow slow = {.err = 1};
	uint64_t call;

	use(_i);
	ck_assert_int_eq(rpc_client_borrow(client, soon(), NULL, &chan), 0);
	ck_assert_int_eq(rpc_client_borrow(client, soon(), NULL, &idle), 0);
	rpc_client_return(client, idle);
	ck_assert_int_eq(gx_env_thread_start(rpc_fixture_env(fixture), &slow.thread, "slow",
					     slow_main, &slow),
			 0);
	rpc_fixture_wait_tally(fixture, 1);
	/* One more request may have crossed the GOAWAY: it is answered, with SHUTDOWN. */
	rpc_fixture_drain(fixture, 10000);
	request.deadline_ns = soon();
	rpc_reply_init(&reply);
	ck_assert_int_eq(rpc_chan_submit(chan, &request, &call, NULL), 0);
	ck_assert_int_eq(rpc_chan_wait(chan, call, &reply), 0);
	ck_assert_uint_eq(reply.status, RPC_STATUS_SHUTDOWN);
	ck_assert_uint_gt(reply.retry_after_ms, 0);
	rpc_reply_fini(&reply);
	ck_assert(!rpc_chan_usable(chan));
	rpc_client_return(client, chan);
	gx_env_thread_join(rpc_fixture_env(fixture), &slow.thread);
	ck_assert_int_eq(slow.err, 0);
	ck_assert_int_eq(slow.value, 5);
	ck_assert(rpc_fixture_wait_drained(fixture, 10000));
	/* Nobody listens any more. */
	ck_assert_int_lt(ping(client, true, 5000), 0);
}
END_TEST

START_TEST(a_drain_of_an_idle_server_ends_soon)
{
	use(_i);
	ck_assert_int_eq(ping(client, false, 5000), 0);
	rpc_fixture_drain(fixture, 60000);
	ck_assert(rpc_fixture_wait_drained(fixture, 5000));
}
END_TEST

START_TEST(a_drain_without_connections_ends_at_once)
{
	rpc_fixture_drain(fixture, 60000);
	ck_assert(rpc_fixture_wait_drained(fixture, 5000));
}
END_TEST

START_TEST(a_drain_does_not_wait_longer_than_its_deadline)
{
	int fd = rpc_fixture_connect(fixture, (enum rpc_fixture_kind)_i);
	struct rpc_chan *push;
	struct emitter e;

	/* A half-open connection, and a push nobody acknowledges. */
	use(_i);
	push = open_push();
	emit_start(&e, 3);
	receive(push, 1, 3);
	rpc_fixture_drain(fixture, 200);
	ck_assert(rpc_fixture_wait_drained(fixture, 5000));
	rpc_chan_close(push);
	/* The emit hears of it one way or another; its client must not hang until its time is up.
	 */
	rpc_fixture_down(fixture);
	emit_join(&e);
	ck_assert_int_lt(e.err, 0);
	gx_env_close(rpc_fixture_env(fixture), fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_push");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, a_hundred_ticks_arrive_in_order_and_are_acknowledged, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, without_a_push_channel_it_is_enotconn, 0, RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_push_channel_that_breaks_in_the_middle_is_an_error_and_no_hang, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_newer_push_channel_replaces_the_older, 0, RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, an_acknowledgement_of_what_was_not_sent_ends_the_channel, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_receive_times_out_and_can_be_repeated, 0, RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_receive_ends_when_another_thread_aborts, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, too_many_unacknowledged_pushes_close_the_channel, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_drain_answers_what_is_in_work_and_refuses_the_rest, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_drain_of_an_idle_server_ends_soon, 0, RPC_FIXTURE_LOOP_COUNT);
	tcase_add_test(tc, a_drain_without_connections_ends_at_once);
	tcase_add_loop_test(tc, a_drain_does_not_wait_longer_than_its_deadline, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, pushes_that_are_not_taken_are_bounded_in_bytes_too, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
