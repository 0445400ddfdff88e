/*
 * The same on the real machine, with threads, libuv and TLS: client and server in one process,
 * the n-th allocation or call of a kind fails, whoever makes it. Which call that is differs from
 * run to run, so what is promised is only that a run ends, frees everything and lies about
 * nothing.
 */
#include "common/gx_log.h"
#include "common/gx_sum.h"
#include "echo.pb-c.h"
#include "rpc/echod/echo_service.h"
#include "rpc/rpc_client.h"
#include "rpc/rpc_serve.h"
#include "rpc/rpc_server.h"
#include "tests/fault/fault_run.h"

#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

#define PAYLOAD_BYTES 100000u

static const unsigned char key[RPC_KEY_BYTES] = {9, 8, 7};

static struct {
	const char *name;
	const char *address;
	bool threaded; /* rpc_serve instead of rpc_server */
} modes[] = {
	{"loop, plain", "127.0.0.1:0", false},
	{"loop, tls", "tls:127.0.0.1:0", false},
	{"threads, plain", "127.0.0.1:0", true},
	{"threads, tls", "tls:127.0.0.1:0", true},
};
static int mode; /* of the scenario that runs */
static uint64_t call_ms = 400;
static bool last_all_right;

struct host {
	struct gx_env env;
	struct gx_loop *loop;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct rpc_sessions *sessions;
	struct rpc_dispatcher dispatcher;
	struct echo_service echo;
	struct rpc_server *server;
	struct rpc_serve *serve;
	struct rpc_endpoint bound;
	struct gx_thread thread;
	struct gx_task drain;
};

static void no_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		   const char *line GX_UNUSED)
{
}

static int make_server(struct host *h)
{
	struct rpc_server_options options = RPC_SERVER_OPTIONS_INIT;

	options.loop = h->loop;
	options.dispatcher = &h->dispatcher;
	options.auth = &h->auth;
	options.sessions = h->sessions;
	return rpc_server_new(&options, &h->server);
}

static int make_serve(struct host *h)
{
	struct rpc_serve_options options = RPC_SERVE_OPTIONS_INIT;

	options.loop = h->loop;
	options.dispatcher = &h->dispatcher;
	options.auth = &h->auth;
	options.sessions = h->sessions;
	return rpc_serve_new(&options, &h->serve);
}

static int host_make(struct host *h)
{
	struct rpc_key alice = {.kind = RPC_IDENTITY_USER, .identity = "user:alice"};
	bool threaded = modes[mode].threaded;
	struct rpc_endpoint endpoint;
	int r;

	memcpy(alice.secret, key, sizeof(key));
	r = rpc_keytab_new(&h->keys);
	if (r == 0)
		r = rpc_keytab_put(h->keys, &alice, false);
	if (r == 0)
		r = gx_loop_new(&h->env, &h->loop);
	if (r == 0)
		r = rpc_sessions_new(&h->env, GX_NSEC_PER_SEC, &h->sessions);
	if (r == 0)
		r = echo_service_init(&h->echo, &h->env);
	if (r < 0)
		return r;
	rpc_dispatcher_init(&h->dispatcher, &h->env, "server", "test");
	h->dispatcher.replay = rpc_sessions_replay(h->sessions);
	rpc_dispatcher_add(&h->dispatcher, &echo_service_table, &h->echo);
	h->auth = (struct rpc_auth){.env = &h->env, .keys = h->keys};
	r = threaded ? make_serve(h) : make_server(h);
	if (r == 0)
		r = rpc_endpoint_parse(&h->env, modes[mode].address, false, &endpoint, NULL);
	if (r == 0)
		r = threaded ? rpc_serve_listen(h->serve, &endpoint, &h->bound)
			     : rpc_server_listen(h->server, &endpoint, &h->bound);
	if (r == 0 && !threaded) {
		h->echo.loop = h->loop;
		h->echo.server = h->server;
	}
	return r;
}

static void host_free(struct host *h)
{
	/* Threads first, they use the service; the loop server last, it waits for delayed calls. */
	rpc_serve_free(h->serve);
	echo_service_fini(&h->echo);
	rpc_server_free(h->server);
	rpc_sessions_free(h->sessions);
	gx_loop_free(h->loop);
	rpc_keytab_free(h->keys);
}

static void host_main(void *arg)
{
	struct host *h = arg;

	GX_IGNORE(gx_loop_run(h->loop));
}

static void on_drained(void *arg)
{
	gx_loop_stop(((struct host *)arg)->loop);
}

static void on_drain(struct gx_task *task)
{
	struct host *h = GX_CONTAINER_OF(task, struct host, drain);

	if (h->server != NULL)
		rpc_server_drain(h->server, gx_env_deadline_ms(&h->env, 1000), on_drained, h);
	else
		gx_loop_stop(h->loop);
}

/* -- client -------------------------------------------------------------------------------- */

static int call_tally(struct host *h, struct rpc_client *client, int *ret_added)
{
	PbEcho__TallyRequest request = PB_ECHO__TALLY_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = gx_env_deadline_ms(&h->env, call_ms)};
	const PbEcho__TallyReply *answer;
	struct rpc_reply reply;
	int r;

	request.add = 1;
	r = echo_call_tally(client, &request, &options, &reply, &answer);
	if (r == 0)
		*ret_added += 1;
	rpc_reply_fini(&reply);
	return r;
}

static int call_sink(struct host *h, struct rpc_client *client, unsigned char *data)
{
	PbEcho__SinkRequest request = PB_ECHO__SINK_REQUEST__INIT;
	struct iovec iov = {data, PAYLOAD_BYTES};
	struct rpc_call_options options = {.deadline_ns = gx_env_deadline_ms(&h->env, call_ms),
					   .payload_out = &iov,
					   .payload_out_count = 1};
	const PbEcho__SinkReply *answer;
	struct rpc_reply reply;
	int r;

	request.checksum = true;
	r = echo_call_sink(client, &request, &options, &reply, &answer);
	if (r == 0)
		fault_must(answer->bytes == PAYLOAD_BYTES, "sink took %llu bytes",
			   (unsigned long long)answer->bytes);
	rpc_reply_fini(&reply);
	return r;
}

static int call_echo(struct host *h, struct rpc_client *client, unsigned char *data)
{
	PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = gx_env_deadline_ms(&h->env, call_ms)};
	const PbEcho__EchoReply *answer;
	struct rpc_reply reply;
	int r;

	request.data.data = data;
	request.data.len = 20000;
	r = echo_call_echo(client, &request, &options, &reply, &answer);
	if (r == 0)
		fault_must(answer->data.len == 20000 && memcmp(answer->data.data, data, 20000) == 0,
			   "echo gave back something else");
	rpc_reply_fini(&reply);
	return r;
}

/* Ends with the first call that fails: what comes after would only wait for its time. */
static int client_calls(struct host *h, int *ret_added)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	unsigned char *data = calloc(1, PAYLOAD_BYTES);
	struct rpc_client *client = NULL;
	int r = data != NULL ? 0 : -ENOMEM;

	options.env = &h->env;
	options.endpoint = h->bound;
	options.identity = "user:alice";
	options.key = key;
	options.connections_max = 2;
	if (r == 0)
		r = rpc_client_new(&options, &client);
	for (int i = 0; i < 2 && r == 0; i++)
		r = call_tally(h, client, ret_added);
	if (r == 0)
		r = call_sink(h, client, data);
	if (r == 0)
		r = call_echo(h, client, data);
	rpc_client_free(client);
	free(data);
	return r;
}

static void real_scenario(struct gx_fault *fault)
{
	struct host h = {.env = *gx_env_posix(), .drain = {.fn = on_drain}};
	bool ran = false;
	int added = 0;
	int r;

	gx_log_to_callback(no_log, NULL);
	h.env.fault = fault;
	r = host_make(&h);
	if (r == 0)
		r = gx_env_thread_start(&h.env, &h.thread, "server", host_main, &h);
	if (r == 0) {
		r = client_calls(&h, &added);
		gx_loop_post(h.loop, &h.drain);
		gx_env_thread_join(&h.env, &h.thread);
		gx_loop_unpost(h.loop, &h.drain); /* if the loop had ended by itself */
		ran = true;
	}
	last_all_right = r == 0;
	host_free(&h);
	/* Only now have the threads of the connections ended, who count. */
	if (ran)
		fault_must(h.echo.tally == added || (r < 0 && h.echo.tally == added + 1),
			   "%d acknowledged, %lld done", added, (long long)h.echo.tally);
}

START_TEST(every_allocation_of_real_client_and_server_may_fail)
{
	mode = _i;
	snprintf(fault_run_name, sizeof(fault_run_name), "%s: no fault", modes[mode].name);
	real_scenario(NULL);
	ck_assert(last_all_right);
	fault_run_allocs(modes[mode].name, real_scenario, true);
}
END_TEST

START_TEST(every_env_call_of_real_client_and_server_may_fail)
{
	mode = _i;
	fault_run_kinds(
		modes[mode].name, real_scenario,
		FAULT_BIT(RANDOM) | FAULT_BIT(LISTEN) | FAULT_BIT(ACCEPT) | FAULT_BIT(CONNECT) |
			FAULT_BIT(NAME) | FAULT_BIT(THREAD) | FAULT_BIT(MUTEX) | FAULT_BIT(LOOP) |
			(mode % 2 == 0 ? FAULT_BIT(RECV) | FAULT_BIT(SEND) | FAULT_BIT(CRYPTO)
				       : FAULT_BIT(TLS)),
		true);
}
END_TEST

/* Nobody tells a server when there are descriptors again: it has to look by itself. */
START_TEST(a_failed_accept_only_delays_a_connection)
{
	mode = _i;
	call_ms = 5000;
	for (uint64_t n = 1;; n++) {
		struct gx_fault fault = {.kinds = FAULT_BIT(ACCEPT), .nth = n};

		snprintf(fault_run_name, sizeof(fault_run_name), "%s: accept %llu",
			 modes[mode].name, (unsigned long long)n);
		fault_run_once(real_scenario, &fault, true);
		if (fault.fired == 0)
			break;
		ck_assert_msg(last_all_right, "%s: a call failed", fault_run_name);
	}
	call_ms = 400;
}
END_TEST

START_TEST(real_reads_and_writes_of_one_byte_only_make_it_slower)
{
	struct gx_fault fault = {.kinds = 0, .short_bytes = 1};

	mode = _i;
	snprintf(fault_run_name, sizeof(fault_run_name), "%s: one byte", modes[mode].name);
	real_scenario(&fault);
	/* A hundred thousand system calls may take longer than a call's time. */
	fault.short_bytes = 100;
	fault_run_once(real_scenario, &fault, true);
	ck_assert(last_all_right);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_rpc_real");
	TCase *tc = tcase_create("fault_rpc_real");
	int mode_count = (int)GX_COUNT_OF(modes);
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, every_allocation_of_real_client_and_server_may_fail, 0, mode_count);
	tcase_add_loop_test(tc, every_env_call_of_real_client_and_server_may_fail, 0, mode_count);
	tcase_add_loop_test(tc, a_failed_accept_only_delays_a_connection, 0, mode_count);
	tcase_add_loop_test(tc, real_reads_and_writes_of_one_byte_only_make_it_slower, 0,
			    mode_count);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
