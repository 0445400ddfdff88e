/*
 * Every fallible call of the rpc layer fails once: the handshake by itself, then client and
 * server in the simulation, where every run is the same up to the fault.
 */
#include "common/gx_log.h"
#include "common/gx_sum.h"
#include "echo.pb-c.h"
#include "tests/fault/fault_run.h"
#include "tests/lib/sim_grid.h"

#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

#define PAYLOAD_BYTES 70000u /* more than a loop server keeps in a call's own memory */
#define TICKS 3u

static const unsigned char key[RPC_KEY_BYTES] = {7};

/* -- handshake ----------------------------------------------------------------------------- */

static int open_session(void *arg GX_UNUSED, const struct rpc_peer *peer GX_UNUSED,
			uint64_t asked GX_UNUSED, uint64_t *ret_session, bool *ret_known)
{
	*ret_session = 5;
	*ret_known = false;
	return 0;
}

/* Hands what one side has to say to the other; its step's result, or 0 if there was nothing. */
static int carry(struct rpc_handshake *from, struct rpc_handshake *to)
{
	struct rpc_frame_limits limits;
	struct rpc_frame frame;
	int r;

	if (from->out.bytes == 0)
		return 0;
	rpc_handshake_limits(to, &limits);
	r = rpc_frame_decode(from->out.data, &limits, &frame, NULL);
	if (r == 0)
		r = rpc_handshake_step(to, &frame, from->out.data + RPC_FRAME_HEADER_BYTES);
	gx_buf_clear(&from->out);
	return r;
}

static void handshake_scenario(struct gx_fault *fault)
{
	struct gx_env env = *gx_env_posix();
	struct rpc_key alice = {.kind = RPC_IDENTITY_USER, .identity = "user:alice"};
	struct rpc_handshake_client client_options = {
		.identity = "user:alice", .key = key, .program = "test"};
	struct rpc_keytab *keys = NULL;
	struct rpc_auth auth = {.env = &env};
	struct rpc_handshake_server server_options = {
		.auth = &auth, .name = "server", .boot = 1, .session = open_session};
	struct rpc_handshake client, server;
	struct gx_addr addr = {.kind = GX_ADDR_MEM};
	int r;

	env.fault = fault;
	memcpy(alice.secret, key, sizeof(key));
	r = rpc_keytab_new(&keys);
	if (r == 0)
		r = rpc_keytab_put(keys, &alice, false);
	if (r < 0) {
		rpc_keytab_free(keys);
		return;
	}
	auth.keys = keys;
	rpc_handshake_init_server(&server, &env, &server_options, false, NULL, &addr, &addr);
	r = rpc_handshake_init_client(&client, &env, &client_options, false, &addr, &addr);
	while (r == 0 && client.out.bytes + server.out.bytes > 0) {
		r = carry(&client, &server);
		if (r >= 0)
			r = carry(&server, &client);
	}
	/* Done on both sides and the same on both, or a reason. */
	if (r == 1)
		fault_must(client.secret == server.secret && client.session == 5 &&
				   strcmp(server.peer.identity, "user:alice") == 0,
			   "the two sides differ");
	else
		fault_must(r < 0 && (client.reason != NULL || server.reason != NULL),
			   "no reason for %d", r);
	rpc_handshake_fini(&client);
	rpc_handshake_fini(&server);
	rpc_keytab_free(keys);
}

START_TEST(every_call_of_the_handshake_may_fail)
{
	fault_run_allocs("handshake", handshake_scenario, true);
	fault_run_kinds("handshake", handshake_scenario, FAULT_BIT(RANDOM) | FAULT_BIT(CRYPTO),
			true);
}
END_TEST

/* -- client and server in the simulation --------------------------------------------------------
 */

struct guest {
	struct gx_fault *fault;
	struct gx_env *env;
	int64_t leave_ns;
	struct rpc_client *client;
	struct rpc_chan *push;
	int tally[3];
	bool all_right;   /* every call succeeded */
	bool calls_right; /* all but the pushes, which a broken channel may lose */
	char wrong[96];
};

static void complain(struct guest *g, const char *what, int value)
{
	snprintf(g->wrong, sizeof(g->wrong), "%s: %d", what, value);
}

static int64_t soon(struct guest *g)
{
	return gx_env_now_ns(g->env) + GX_NSEC_PER_SEC;
}

static int call_echo(struct guest *g, unsigned char *data)
{
	PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
	unsigned char *back = malloc(PAYLOAD_BYTES);
	struct iovec iov = {data, PAYLOAD_BYTES};
	struct rpc_call_options options = {.deadline_ns = soon(g),
					   .payload_out = &iov,
					   .payload_out_count = 1,
					   .payload_in = back,
					   .payload_in_bytes = PAYLOAD_BYTES};
	const PbEcho__EchoReply *answer;
	struct rpc_reply reply;
	int r;

	if (back == NULL)
		return -ENOMEM;
	/* More than fits the stack of a sender and the first block of an arena. */
	request.data.data = data;
	request.data.len = 30000;
	r = echo_call_echo(g->client, &request, &options, &reply, &answer);
	if (r == 0 &&
	    (answer->data.len != 30000 || reply.payload_bytes != PAYLOAD_BYTES ||
	     memcmp(back, data, PAYLOAD_BYTES) != 0 || memcmp(answer->data.data, data, 30000) != 0))
		complain(g, "echo gave back something else", 0);
	rpc_reply_fini(&reply);
	free(back);
	return r;
}

static int call_sink(struct guest *g, unsigned char *data, size_t bytes)
{
	PbEcho__SinkRequest request = PB_ECHO__SINK_REQUEST__INIT;
	struct iovec iov = {data, bytes};
	struct gx_buf errors;
	struct rpc_call_options options = {.deadline_ns = soon(g),
					   .payload_out = &iov,
					   .payload_out_count = 1,
					   .errors = &errors};
	const PbEcho__SinkReply *answer;
	struct rpc_reply reply;
	int r;

	gx_buf_init(&errors, 1000);
	request.checksum = true;
	r = echo_call_sink(g->client, &request, &options, &reply, &answer);
	if (r == 0 && (answer->bytes != bytes || answer->sum != gx_sum64(data, bytes)))
		complain(g, "sink saw something else", 0);
	rpc_reply_fini(&reply);
	gx_buf_fini(&errors);
	return r;
}

static void receive_ticks(void *arg)
{
	struct guest *g = arg;
	struct rpc_push_message push;
	uint64_t last = 0;
	int r = 0;

	rpc_push_message_init(&push);
	while (r == 0) {
		r = rpc_chan_receive(g->push, GX_FOREVER, &push);
		if (r == 0 && push.seq != last + 1)
			complain(g, "a push is missing before", (int)push.seq);
		last = push.seq;
		if (r == 0)
			r = rpc_chan_ack(g->push, push.seq, soon(g));
	}
	rpc_push_message_fini(&push);
}

static int call_emit(struct guest *g)
{
	PbEcho__EmitRequest request = PB_ECHO__EMIT_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = soon(g)};
	const PbEcho__EmitReply *answer;
	struct gx_thread thread;
	struct rpc_reply reply;
	int r;

	r = rpc_client_open_push(g->client, soon(g), NULL, &g->push);
	if (r < 0)
		return r;
	r = gx_env_thread_start(g->env, &thread, "ticks", receive_ticks, g);
	if (r == 0) {
		request.count = TICKS;
		r = echo_call_emit(g->client, &request, &options, &reply, &answer);
		rpc_reply_fini(&reply);
		rpc_chan_abort(g->push);
		gx_env_thread_join(g->env, &thread);
	}
	rpc_chan_close(g->push);
	return r;
}

static void guest_calls(struct guest *g, unsigned char *data)
{
	int64_t value;
	int bad = 0;

	for (size_t i = 0; i < PAYLOAD_BYTES; i++)
		data[i] = (unsigned char)(i * 5 + i / 256);
	bad += call_echo(g, data) < 0;
	for (int i = 0; i < 3; i++) {
		g->tally[i] = sim_tally(g->client, INT64_C(1) << (3 * i), i == 1 ? 5 : 0, soon(g),
					&value);
		bad += g->tally[i] < 0;
	}
	bad += call_sink(g, data, PAYLOAD_BYTES) < 0;
	bad += call_sink(g, data, 100) < 0;
	g->calls_right = bad == 0;
	bad += call_emit(g) < 0;
	g->all_right = bad == 0;
}

static void guest_main(struct gx_env *env, void *arg)
{
	struct guest *g = arg;
	struct rpc_client_options options;
	unsigned char *data = malloc(PAYLOAD_BYTES);

	env->fault = g->fault;
	g->env = env;
	g->leave_ns = gx_env_now_ns(env) + 30 * GX_NSEC_PER_SEC;
	sim_grid_client_options(env, &options);
	options.connections_max = 2;
	if (data != NULL && rpc_client_new(&options, &g->client) == 0) {
		guest_calls(g, data);
		/* Its idle connections are still there when the server drains. */
		gx_env_sleep_until(env, g->leave_ns);
		rpc_client_free(g->client);
	}
	free(data);
}

static bool in_a_process(void)
{
	return gx_sim_current() != NULL;
}

static void check_grid(const struct sim_grid *grid, const struct guest *g)
{
	fault_must(g->wrong[0] == '\0', "%s", g->wrong);
	for (unsigned i = 0; i < 3; i++) {
		unsigned done = sim_grid_done(grid, i);
		int r = g->tally[i];
		bool unknown = r == -ETIMEDOUT || r == -ENOTRECOVERABLE || r == -ECANCELED;

		fault_must(done <= 1 && (r != 0 || done == 1) && (r >= 0 || unknown || done == 0),
			   "tally %u: result %d (%s), done %u times", i, r, gx_strerror(r), done);
	}
}

/* Whether the run without any fault did all it should is asked once, here. */
static bool last_all_right, last_calls_right, last_drained;
static int last_server_err;

static void grid_scenario(struct gx_fault *fault)
{
	struct guest g = {.fault = fault, .tally = {1, 1, 1}};
	struct sim_grid grid;
	struct gx_sim_proc *proc;
	int r;

	sim_grid_init(&grid, 1);
	grid.options.short_io_percent = 0;
	grid.server_fault = fault;
	grid.drain_after_ns = 20 * GX_NSEC_PER_SEC;
	sim_grid_start(&grid);
	r = gx_sim_spawn(grid.client_host, "guest", guest_main, &g, &proc);
	if (r == 0)
		r = gx_sim_run(grid.sim, NULL);
	fault_must(r == 0, "%s", gx_strerror(r));
	if (g.tally[0] != 1)
		check_grid(&grid, &g);
	last_drained = grid.drained;
	last_all_right = g.all_right;
	last_calls_right = g.calls_right;
	last_server_err = grid.server_err;
	/* A server that could start ends by its drain and in the drain's time. */
	if (grid.server_err == 0)
		fault_must(grid.drained && grid.drained_ns < 26 * GX_NSEC_PER_SEC,
			   "not drained, or late");
	sim_grid_free(&grid);
}

static void grid_setup(void)
{
	fault_alloc_filter(in_a_process);
	snprintf(fault_run_name, sizeof(fault_run_name), "no fault");
	grid_scenario(NULL);
	ck_assert(last_all_right && last_drained);
}

START_TEST(every_allocation_of_client_and_server_may_fail)
{
	grid_setup();
	fault_run_allocs("grid", grid_scenario, true);
}
END_TEST

START_TEST(every_env_call_of_client_and_server_may_fail)
{
	grid_setup();
	fault_run_kinds("grid", grid_scenario,
			FAULT_BIT(RANDOM) | FAULT_BIT(CLOSE) | FAULT_BIT(LISTEN) |
				FAULT_BIT(ACCEPT) | FAULT_BIT(CONNECT) | FAULT_BIT(NAME) |
				FAULT_BIT(RECV) | FAULT_BIT(SEND) | FAULT_BIT(POLL) |
				FAULT_BIT(EVENT) | FAULT_BIT(THREAD) | FAULT_BIT(MUTEX) |
				FAULT_BIT(LOOP) | FAULT_BIT(CRYPTO),
			true);
}
END_TEST

START_TEST(reads_and_writes_of_one_byte_only_make_it_slower)
{
	struct gx_fault fault = {.kinds = 0, .short_bytes = 1};

	grid_setup();
	snprintf(fault_run_name, sizeof(fault_run_name), "one byte at a time");
	fault_run_once(grid_scenario, &fault, true);
	ck_assert(last_all_right && last_drained);
}
END_TEST

/* From the n-th call of a kind on, all of them fail: calls end with errors, in their time. */
START_TEST(calls_that_fail_for_ever_end_too)
{
	grid_setup();
	for (int kind = 0; kind < GX_FAULT_COUNT; kind++)
		fault_run_kind("for ever", grid_scenario, (enum gx_fault_kind)kind, UINT64_MAX, 0,
			       true);
}
END_TEST

/* Calls that can be tried again are: one failure of these must not be seen by the caller. */
START_TEST(one_failed_call_of_the_network_is_not_seen_by_the_caller)
{
	static const enum gx_fault_kind kinds[] = {GX_FAULT_RECV, GX_FAULT_SEND, GX_FAULT_CONNECT,
						   GX_FAULT_ACCEPT};

	grid_setup();
	for (size_t k = 0; k < GX_COUNT_OF(kinds); k++)
		for (uint64_t n = 1;; n++) {
			struct gx_fault fault = {.kinds = UINT64_C(1) << kinds[k], .nth = n};

			snprintf(fault_run_name, sizeof(fault_run_name), "%s %llu",
				 gx_fault_name(kinds[k]), (unsigned long long)n);
			fault_run_once(grid_scenario, &fault, true);
			if (fault.fired == 0)
				break;
			ck_assert_msg(last_calls_right && last_drained, "%s: %s", fault_run_name,
				      last_drained ? "a call failed" : "not drained");
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_rpc");
	TCase *tc = tcase_create("fault_rpc");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, every_call_of_the_handshake_may_fail);
	tcase_add_test(tc, every_allocation_of_client_and_server_may_fail);
	tcase_add_test(tc, every_env_call_of_client_and_server_may_fail);
	tcase_add_test(tc, calls_that_fail_for_ever_end_too);
	tcase_add_test(tc, reads_and_writes_of_one_byte_only_make_it_slower);
	tcase_add_test(tc, one_failed_call_of_the_network_is_not_seen_by_the_caller);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
