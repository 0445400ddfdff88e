/*
 * Calls in two halves, given up or not, and the patience with silent servers. Each on all
 * transports, by the loop index.
 */
#include "tests/lib/held_calls.h"
#include "tests/lib/rpc_fixture.h"

#define LARGE (8u * 1024 * 1024)
#define POISON 0xd7

static int finish(struct held_call *c)
{
	return rpc_client_finish(c->started, &c->reply);
}

static void finish_ok(struct held_call *c)
{
	ck_assert_int_eq(finish(c), 0);
	call_check(c);
	call_fini(c);
}

static void start(struct held_call *c, uint64_t flags, uint64_t offset, uint64_t bytes)
{
	struct rpc_call_options options;

	call_init(c, flags, offset, bytes);
	options = call_options(c);
	call_start(c, &options);
}

static void wait_done(struct held_call *c)
{
	struct rpc_chan *chan = borrow();

	while (!rpc_client_started_done(c->started))
		wait_readable(chan);
	rpc_client_return(client, chan);
}

/* -- in flight --------------------------------------------------------------------------------- */

START_TEST(calls_in_flight_are_finished_in_any_order)
{
	enum { CALLS = 24 };
	static struct held_call calls[CALLS];

	begin(_i);
	for (unsigned i = 0; i < CALLS; i++)
		start(&calls[i], i % 2 ? HELD_FILE : HELD_MEMORY, i, 1 + i * 50000);
	for (unsigned i = 0; i < CALLS; i++)
		finish_ok(&calls[(i * 7 + 3) % CALLS]);
	end();
}
END_TEST

START_TEST(done_tells_whether_a_finish_would_wait)
{
	struct held_call a, b;

	begin(_i);
	start(&a, HELD_DEFER, 0, 0);
	start(&b, HELD_FILE, 1, 1000000);
	held_serve_wait_deferred(held, 1);
	wait_done(&b);
	ck_assert(!rpc_client_started_done(a.started));
	held_serve_release(held);
	wait_done(&a);
	finish_ok(&a);
	finish_ok(&b);
	end();
}
END_TEST

START_TEST(a_call_started_on_a_connection_that_broke_is_sent_again)
{
	struct held_call calls[3];
	struct rpc_chan *chan;

	begin(_i);
	for (unsigned i = 0; i < GX_COUNT_OF(calls); i++)
		start(&calls[i], HELD_DEFER | HELD_FILE, i, 100000);
	held_serve_wait_deferred(held, 3);
	/* Behind the client's back; there is one connection, and each call has it still. */
	chan = borrow();
	rpc_chan_abort(chan);
	rpc_client_return(client, chan);
	for (unsigned i = 0; i < GX_COUNT_OF(calls); i++) {
		ck_assert(rpc_client_started_done(calls[i].started));
		held_serve_release(held);
		calls[i].order.flags = HELD_FILE;
	}
	/* The first to be finished opens another, although the old one has users. */
	for (unsigned i = 0; i < GX_COUNT_OF(calls); i++)
		finish_ok(&calls[i]);
	ck_assert_uint_eq(held_serve_calls(held), 6);
	end();
}
END_TEST

START_TEST(a_call_to_nobody_starts_and_fails_at_its_finish)
{
	struct rpc_client_options options;
	struct rpc_call_options call;
	struct rpc_endpoint endpoint;
	struct held_call c;
	struct gx_buf errors;

	begin(HELD_UNIX);
	rpc_client_free(client);
	ck_assert_int_eq(rpc_endpoint_parse(env, "unix:/nonexistent/x", false, &endpoint, NULL), 0);
	held_client_options(env, &endpoint, &options);
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	gx_buf_init(&errors, 1024);
	call_init(&c, 0, 0, 0);
	call = call_options(&c);
	call.fail_fast = true;
	call.errors = &errors;
	call_start(&c, &call);
	ck_assert(rpc_client_started_done(c.started));
	ck_assert_int_eq(finish(&c), -ENOENT);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "/nonexistent/x"));
	call_fini(&c);
	/* And can be given up like any other. */
	call_init(&c, 0, 0, 0);
	call = call_options(&c);
	call.fail_fast = true;
	call_start(&c, &call);
	rpc_client_cancel(c.started);
	rpc_client_cancel(NULL);
	call_fini(&c);
	gx_buf_fini(&errors);
	end();
}
END_TEST

/* -- given up ---------------------------------------------------------------------------------- */

/* The memory is ours again, whatever still comes. */
static void cancel(struct held_call *c)
{
	rpc_client_cancel(c->started);
	if (c->space)
		memset(c->space, POISON, c->order.bytes);
}

static void cancelled_fini(struct held_call *c)
{
	uint64_t i = 0;

	while (i < c->order.bytes && c->space[i] == POISON)
		i++;
	ck_assert_uint_eq(i, c->order.bytes);
	call_fini(c);
}

START_TEST(a_call_can_be_given_up_at_any_time)
{
	struct held_call before, between, after, other;

	begin(_i);
	/* Not answered; half arrived; arrived. */
	start(&before, HELD_DEFER | HELD_MEMORY, 0, 100000);
	held_serve_wait_deferred(held, 1);
	start(&after, HELD_FILE, 0, 5000);
	wait_done(&after);
	start(&between, HELD_FILE, 0, LARGE);
	held_serve_wait_done(held, 1);
	rpc_client_started_done(between.started);
	cancel(&before);
	cancel(&between);
	cancel(&after);
	held_serve_release(held);
	/* The connection goes on: the same one, since there is no other. */
	start(&other, HELD_FILE, 9, 1000000);
	finish_ok(&other);
	ck_assert_int_eq(call_once(HELD_FILE, 3, 1000), 0);
	cancelled_fini(&before);
	cancelled_fini(&between);
	cancelled_fini(&after);
	end();
}
END_TEST

struct reader {
	struct gx_thread thread;
	struct held_call call;
	int err;
};

static void reader_main(void *arg)
{
	struct reader *reader = arg;

	reader->err = finish(&reader->call);
}

/* Another thread waits for its own reply, and meanwhile reads into our memory. */
START_TEST(a_call_can_be_given_up_while_another_thread_reads_its_reply)
{
	for (unsigned round = 0; round < 5; round++) {
		struct reader reader = {.err = 1};
		struct held_call c;

		begin(_i);
		start(&c, HELD_FILE, 0, LARGE);
		start(&reader.call, HELD_FILE, 4096, LARGE - 4096);
		ck_assert_int_eq(
			gx_env_thread_start(env, &reader.thread, "reader", reader_main, &reader),
			0);
		if (round > 0)
			gx_env_sleep_until(env, gx_env_now_ns(env) + round * 300000);
		cancel(&c);
		gx_env_thread_join(env, &reader.thread);
		/* If that broke the connection, the other call was sent again. */
		ck_assert_int_eq(reader.err, 0);
		call_check(&reader.call);
		call_fini(&reader.call);
		cancelled_fini(&c);
		end();
	}
}
END_TEST

START_TEST(a_connection_with_a_reply_that_nobody_wants_is_not_the_first_choice)
{
	struct rpc_client_options options;
	struct held_call c;
	struct rpc_chan *first, *second;

	begin(_i);
	rpc_client_free(client);
	held_serve_client_options(held, &options);
	options.connections_max = 2;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	first = borrow();
	rpc_client_return(client, first);
	start(&c, HELD_DEFER, 0, 0);
	held_serve_wait_deferred(held, 1);
	cancel(&c);
	second = borrow();
	ck_assert_ptr_ne(first, second);
	rpc_client_return(client, second);
	held_serve_release(held);
	wait_readable(first);
	/* The reply has come and is thrown away at the next look. */
	gx_env_sleep_until(env, gx_env_deadline_ms(env, 6));
	ck_assert_ptr_eq(borrow(), first);
	rpc_client_return(client, first);
	call_fini(&c);
	end();
}
END_TEST

START_TEST(a_mutation_given_up_gives_its_number_back)
{
	PbEcho__TallyRequest message = PB_ECHO__TALLY_REQUEST__INIT;
	struct rpc_fixture *fixture = rpc_fixture_start(NULL);
	struct rpc_client_options options;
	struct rpc_started *started[2];
	struct rpc_reply reply;

	rpc_fixture_client_options(fixture, RPC_FIXTURE_PLAIN, RPC_FIXTURE_ALICE, &options);
	options.mutations_max = 2;
	options.connections_max = 1;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	message.add = 1;
	message.delay_ms = 3000;
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(rpc_client_start(client, rpc_method_get(RPC_INDEX_TALLY),
						  &message.base, NULL, &started[i]),
				 0);
	rpc_fixture_wait_tally(fixture, 2);
	ck_assert_uint_eq(rpc_client_outstanding(client), 2);
	rpc_client_cancel(started[0]);
	ck_assert_uint_eq(rpc_client_outstanding(client), 1);
	rpc_client_cancel(started[1]);
	ck_assert_uint_eq(rpc_client_outstanding(client), 0);
	message.delay_ms = 0;
	ck_assert_int_eq(rpc_client_start(client, rpc_method_get(RPC_INDEX_TALLY), &message.base,
					  NULL, &started[0]),
			 0);
	ck_assert_int_eq(rpc_client_finish(started[0], &reply), 0);
	ck_assert_int_eq(((const PbEcho__TallyReply *)reply.message)->value, 3);
	rpc_reply_fini(&reply);
	rpc_client_free(client);
	client = NULL;
	rpc_fixture_stop(fixture);
}
END_TEST

/* -- silence ----------------------------------------------------------------------------------- */

/* A server of which nothing but the kernel's part is there: it has been stopped. */
START_TEST(a_server_that_accepts_and_says_nothing_is_given_up)
{
	struct rpc_client_options options;
	struct rpc_call_options call;
	struct rpc_endpoint endpoint;
	struct held_call c;
	char address[128];
	int64_t before;
	int listener;

	begin(HELD_UNIX);
	rpc_client_free(client);
	ck_assert_int_eq(gx_format(address, sizeof(address), "unix:%s/dumb", dir), 0);
	ck_assert_int_eq(rpc_endpoint_parse(env, address, false, &endpoint, NULL), 0);
	listener = gx_env_listen(env, &endpoint.addr, 5);
	ck_assert_int_ge(listener, 0);
	held_client_options(env, &endpoint, &options);
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	call_init(&c, 0, 0, 0);
	call = call_options(&c);
	call.silent_ns = 300 * GX_NSEC_PER_MSEC;
	before = gx_env_now_ns(env);
	call_start(&c, &call);
	ck_assert_int_eq(finish(&c), -EHOSTDOWN);
	ck_assert_int_ge(gx_env_now_ns(env) - before, 300 * GX_NSEC_PER_MSEC);
	ck_assert_int_lt(gx_env_now_ns(env) - before, 5 * GX_NSEC_PER_SEC);
	call_fini(&c);
	gx_env_close(env, listener);
	ck_assert_int_eq(unlink(address + strlen("unix:")), 0);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_client_halves");
	TCase *tc = tcase_create("halves");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, calls_in_flight_are_finished_in_any_order, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, done_tells_whether_a_finish_would_wait, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_call_started_on_a_connection_that_broke_is_sent_again, 0,
			    HELD_TRANSPORTS);
	tcase_add_test(tc, a_call_to_nobody_starts_and_fails_at_its_finish);
	tcase_add_loop_test(tc, a_call_can_be_given_up_at_any_time, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_call_can_be_given_up_while_another_thread_reads_its_reply, 0,
			    HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_connection_with_a_reply_that_nobody_wants_is_not_the_first_choice,
			    0, HELD_TRANSPORTS);
	tcase_add_test(tc, a_mutation_given_up_gives_its_number_back);
	tcase_add_test(tc, a_server_that_accepts_and_says_nothing_is_given_up);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
