/*
 * The graceful end of the threaded server. That its calls work is in test_rpc_server.c, which
 * runs them on every kind of server.
 */
#include "echo.pb-c.h"
#include "rpc/rpc_chan_impl.h"
#include "rpc/rpc_status.h"
#include "tests/lib/rpc_fixture.h"
#include <check.h>

static struct rpc_fixture *fixture;
static struct rpc_client *client;
static struct rpc_chan *chan;
static unsigned char *space;

/* Both threaded kinds, by the loop index. */
static void begin(int i)
{
	fixture = rpc_fixture_start(NULL);
	client = rpc_fixture_client(fixture, RPC_FIXTURE_THREAD_PLAIN + (unsigned)i,
				    RPC_FIXTURE_ALICE, 1);
	ck_assert_int_eq(rpc_client_borrow(client, rpc_fixture_in_ms(fixture, 10000), NULL, &chan),
			 0);
	space = malloc(ECHO_SOURCE_MAX);
	ck_assert_ptr_nonnull(space);
}

static void end(void)
{
	rpc_client_return(client, chan);
	rpc_client_free(client);
	rpc_fixture_stop(fixture);
	free(space);
}

/* Asks for a reply that no socket buffer holds, and returns when the server is sending it. */
static uint64_t ask_for_much(void)
{
	PbEcho__SourceRequest message = PB_ECHO__SOURCE_REQUEST__INIT;
	struct rpc_request request = {
		.method = rpc_method_get(RPC_INDEX_SOURCE),
		.message = &message.base,
		.payload_in = space,
		.payload_in_bytes = ECHO_SOURCE_MAX,
		.deadline_ns = rpc_fixture_in_ms(fixture, 20000),
	};
	struct gx_pollfd pfd = {.fd = chan->stream.fd, .events = GX_READABLE};
	uint64_t call;

	message.bytes = ECHO_SOURCE_MAX;
	ck_assert_int_eq(rpc_chan_submit(chan, &request, &call, NULL), 0);
	ck_assert_int_eq(gx_env_poll(rpc_fixture_env(fixture), &pfd, 1, request.deadline_ns), 1);
	return call;
}

START_TEST(a_drain_lets_a_request_in_work_be_answered)
{
	struct rpc_reply reply;
	uint64_t call;

	begin(_i);
	call = ask_for_much();
	rpc_fixture_drain_threads(fixture, 15000);
	rpc_reply_init(&reply);
	ck_assert_int_eq(rpc_chan_wait(chan, call, &reply), 0);
	ck_assert_uint_eq(reply.status, RPC_STATUS_OK);
	ck_assert_uint_eq(reply.payload_bytes, ECHO_SOURCE_MAX);
	rpc_reply_fini(&reply);
	/* After it the connection ends, long before the deadline. */
	ck_assert(rpc_fixture_wait_drained(fixture, 10000));
	end();
}
END_TEST

START_TEST(a_drain_ends_idle_connections_and_takes_no_new_ones)
{
	struct rpc_chan *other;

	begin(_i);
	rpc_fixture_drain_threads(fixture, 15000);
	ck_assert(rpc_fixture_wait_drained(fixture, 10000));
	rpc_client_return(client, chan);
	rpc_client_free(client);
	client = rpc_fixture_client(fixture, RPC_FIXTURE_THREAD_PLAIN + (unsigned)_i,
				    RPC_FIXTURE_ALICE, 1);
	ck_assert_int_eq(rpc_client_borrow(client, rpc_fixture_in_ms(fixture, 5000), NULL, &other),
			 -ECONNREFUSED);
	rpc_client_free(client);
	rpc_fixture_stop(fixture);
	free(space);
}
END_TEST

START_TEST(a_drain_cuts_off_who_is_still_at_work_at_the_deadline)
{
	struct rpc_reply reply;
	uint64_t call;

	begin(_i);
	call = ask_for_much();
	rpc_fixture_drain_threads(fixture, 100);
	ck_assert(rpc_fixture_wait_drained(fixture, 10000));
	rpc_reply_init(&reply);
	ck_assert_int_lt(rpc_chan_wait(chan, call, &reply), 0);
	rpc_reply_fini(&reply);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_serve");
	TCase *tc = tcase_create("drain");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_drain_lets_a_request_in_work_be_answered, 0, 2);
	tcase_add_loop_test(tc, a_drain_ends_idle_connections_and_takes_no_new_ones, 0, 2);
	tcase_add_loop_test(tc, a_drain_cuts_off_who_is_still_at_work_at_the_deadline, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
