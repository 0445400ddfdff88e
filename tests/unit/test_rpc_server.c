/*
 * Calls against a real server: over each transport, on a loop and with a thread per connection.
 */
#include "common/gx_sum.h"
#include "core.pb-c.h"
#include "echo.pb-c.h"
#include "rpc/rpc_chan_impl.h"
#include "rpc/rpc_conn.h"
#include "rpc/rpc_status.h"
#include "tests/lib/rpc_fixture.h"
#include <check.h>
#include <stdatomic.h>

#define RPC_SERVICE_CORE
#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

#define ALICE RPC_FIXTURE_ALICE
#define SINK_PIECE (256u * 1024) /* what the threaded sink sums at a time */

static struct rpc_fixture *fixture;
static struct rpc_client *client;
static struct rpc_reply reply;

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

static void use(int kind, enum rpc_fixture_who who)
{
	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)kind, who, 0);
}

static int ping(struct rpc_client *c)
{
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	const PbCore__PingReply *pong;
	struct rpc_reply r0;
	int r = core_call_ping(c, &request, NULL, &r0, &pong);

	rpc_reply_fini(&r0);
	return r;
}

static unsigned char *pattern(size_t bytes)
{
	unsigned char *data = malloc(bytes + 1);

	ck_assert_ptr_nonnull(data);
	for (size_t i = 0; i < bytes; i++)
		data[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + (i >> 16));
	return data;
}

START_TEST(ping_tells_who_answers_and_who_asks)
{
	static const char *const transports[RPC_FIXTURE_COUNT] = {"tcp",      "tls", "unix",
								  "tls+unix", "tcp", "tls"};
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	const PbCore__PingReply *pong;

	use(_i, ALICE);
	request.stamp = 0x1122334455667788;
	ck_assert_int_eq(core_call_ping(client, &request, NULL, &reply, &pong), 0);
	ck_assert_uint_eq(pong->stamp, request.stamp);
	ck_assert_str_eq(pong->server, "fixture");
	ck_assert_str_eq(pong->program, "fixture/1");
	ck_assert_str_eq(pong->identity, "user:alice");
	ck_assert_str_eq(pong->transport, transports[_i]);
	rpc_reply_fini(&reply);
}
END_TEST

START_TEST(echo_gives_data_back)
{
	static const size_t sizes[] = {0, 1, 1023, 1024, 1025, 65535, 65536, 65537, 1000000};

	use(_i, ALICE);
	for (size_t i = 0; i < GX_COUNT_OF(sizes); i++) {
		PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
		const PbEcho__EchoReply *answer;
		unsigned char *data = pattern(sizes[i]);

		request.data = (ProtobufCBinaryData){sizes[i], data};
		ck_assert_int_eq(echo_call_echo(client, &request, NULL, &reply, &answer), 0);
		ck_assert_uint_eq(answer->data.len, sizes[i]);
		ck_assert(sizes[i] == 0 || memcmp(answer->data.data, data, sizes[i]) == 0);
		rpc_reply_fini(&reply);
		free(data);
	}
}
END_TEST

static const size_t payloads[] = {
	0, 1, 63, 64, 65535, 65536, 65537, 262145, GX_PAYLOAD_LOOP_MAX - 1, GX_PAYLOAD_LOOP_MAX};

START_TEST(a_payload_goes_there_and_back)
{
	use(_i, ALICE);
	for (size_t i = 0; i < GX_COUNT_OF(payloads); i++) {
		PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
		const PbEcho__EchoReply *answer;
		unsigned char *data = pattern(payloads[i]);
		unsigned char *back = calloc(1, payloads[i] + 1);
		/* In two pieces, so that the boundary is ours and not the payload's. */
		struct iovec iov[2] = {{data, payloads[i] / 3},
				       {data + payloads[i] / 3, payloads[i] - payloads[i] / 3}};
		struct rpc_call_options options = {.payload_out = iov,
						   .payload_out_count = 2,
						   .payload_in = back,
						   .payload_in_bytes = payloads[i]};

		ck_assert_int_eq(echo_call_echo(client, &request, &options, &reply, &answer), 0);
		ck_assert_uint_eq(reply.payload_bytes, payloads[i]);
		ck_assert(memcmp(data, back, payloads[i]) == 0);
		rpc_reply_fini(&reply);
		free(data);
		free(back);
	}
}
END_TEST

static uint64_t expected_sum(const unsigned char *data, size_t bytes, bool streamed)
{
	uint64_t sum = 0;

	if (!streamed)
		return gx_sum64(data, bytes);
	for (size_t at = 0; at < bytes; at += SINK_PIECE)
		sum = gx_sum64_seed(data + at, GX_MIN(bytes - at, (size_t)SINK_PIECE), sum);
	return sum;
}

START_TEST(sink_sums_what_arrived)
{
	bool streamed = _i >= RPC_FIXTURE_LOOP_COUNT;

	use(_i, ALICE);
	for (size_t i = 1; i < GX_COUNT_OF(payloads); i++) {
		PbEcho__SinkRequest request = PB_ECHO__SINK_REQUEST__INIT;
		const PbEcho__SinkReply *answer;
		unsigned char *data = pattern(payloads[i]);
		struct iovec iov = {data, payloads[i]};
		struct rpc_call_options options = {.payload_out = &iov, .payload_out_count = 1};

		request.checksum = true;
		ck_assert_int_eq(echo_call_sink(client, &request, &options, &reply, &answer), 0);
		ck_assert_uint_eq(answer->bytes, payloads[i]);
		ck_assert_uint_eq(answer->sum, expected_sum(data, payloads[i], streamed));
		rpc_reply_fini(&reply);
		free(data);
	}
}
END_TEST

static int source(uint64_t bytes, void *space, size_t space_bytes)
{
	PbEcho__SourceRequest request = PB_ECHO__SOURCE_REQUEST__INIT;
	const PbEcho__SourceReply *answer;
	struct rpc_call_options options = {.payload_in = space, .payload_in_bytes = space_bytes};
	int r;

	request.bytes = bytes;
	r = echo_call_source(client, &request, &options, &reply, &answer);
	if (r == 0) {
		ck_assert_uint_eq(answer->bytes, bytes);
		ck_assert_uint_eq(reply.payload_bytes, bytes);
	}
	rpc_reply_fini(&reply);
	return r;
}

START_TEST(source_fills_the_space_given)
{
	const size_t largest = 5u * 1024 * 1024;
	unsigned char *space = malloc(largest);

	use(_i, ALICE);
	for (size_t i = 0; i < GX_COUNT_OF(payloads); i++)
		ck_assert_int_eq(source(payloads[i], space, payloads[i]), 0);
	/* Replies may be larger than what a loop server takes in. */
	memset(space, 0, largest);
	ck_assert_int_eq(source(largest, space, largest), 0);
	for (uint64_t i = 0; i < largest / 8; i++) {
		uint64_t word;

		memcpy(&word, space + 8 * i, 8);
		ck_assert_uint_eq(word, i * UINT64_C(0x9e3779b97f4a7c15));
	}
	free(space);
}
END_TEST

START_TEST(a_reply_payload_larger_than_the_space_is_e2big_and_the_client_goes_on)
{
	unsigned char space[1000];

	use(_i, ALICE);
	ck_assert_int_eq(source(1000000, space, sizeof(space)), -E2BIG);
	ck_assert_int_eq(source(1000, space, sizeof(space)), 0);
	ck_assert_int_eq(source(UINT64_C(1) << 40, space, sizeof(space)), -E2BIG);
	ck_assert_int_eq(ping(client), 0);
}
END_TEST

START_TEST(a_payload_over_the_loop_servers_maximum_is_refused)
{
	PbEcho__SinkRequest request = PB_ECHO__SINK_REQUEST__INIT;
	const PbEcho__SinkReply *answer;
	unsigned char *data = pattern(GX_PAYLOAD_LOOP_MAX + 1);
	struct iovec iov = {data, GX_PAYLOAD_LOOP_MAX + 1};
	struct rpc_call_options options = {.payload_out = &iov,
					   .payload_out_count = 1,
					   .deadline_ns = rpc_fixture_in_ms(fixture, 2000)};
	struct rpc_stats stats;

	use(_i, ALICE);
	ck_assert_int_eq(echo_call_sink(client, &request, &options, &reply, &answer), -E2BIG);
	ck_assert_ptr_nonnull(strstr(reply.detail, "payload"));
	rpc_reply_fini(&reply);
	/* It was skipped, and the connection is still in step. */
	ck_assert_int_eq(ping(client), 0);
	rpc_fixture_stats(fixture, false, &stats);
	ck_assert_uint_eq(stats.accepted, 1);
	free(data);
}
END_TEST

START_TEST(a_threaded_server_streams_what_a_loop_server_refuses)
{
	PbEcho__SinkRequest request = PB_ECHO__SINK_REQUEST__INIT;
	const PbEcho__SinkReply *answer;
	const size_t bytes = 9u * 1024 * 1024 + 1;
	unsigned char *data = pattern(bytes);
	struct iovec iov = {data, bytes};
	struct rpc_call_options options = {.payload_out = &iov, .payload_out_count = 1};

	use(_i, ALICE);
	request.checksum = true;
	ck_assert_int_eq(echo_call_sink(client, &request, &options, &reply, &answer), 0);
	ck_assert_uint_eq(answer->sum, expected_sum(data, bytes, true));
	rpc_reply_fini(&reply);
	free(data);
}
END_TEST

/* -- several at once ----------------------------------------------------------------- */

START_TEST(two_hundred_requests_are_in_flight_on_one_connection)
{
	enum { COUNT = 200 };
	uint64_t calls[COUNT];
	struct rpc_chan *chan;

	use(_i, ALICE);
	ck_assert_int_eq(rpc_client_borrow(client, rpc_fixture_in_ms(fixture, 10000), NULL, &chan),
			 0);
	for (unsigned i = 0; i < COUNT; i++) {
		PbCore__PingRequest message = PB_CORE__PING_REQUEST__INIT;
		struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_PING),
					      .message = &message.base,
					      .deadline_ns = rpc_fixture_in_ms(fixture, 10000)};

		message.stamp = i;
		ck_assert_int_eq(rpc_chan_submit(chan, &request, &calls[i], NULL), 0);
	}
	ck_assert_uint_eq(rpc_chan_load(chan), COUNT);
	/* Waited for in another order than sent: evens first, backwards. */
	for (unsigned n = 0; n < COUNT; n++) {
		unsigned i = n < COUNT / 2 ? COUNT - 2 - 2 * n : 2 * (n - COUNT / 2) + 1;

		rpc_reply_init(&reply);
		ck_assert_int_eq(rpc_chan_wait(chan, calls[i], &reply), 0);
		ck_assert_uint_eq(reply.status, RPC_STATUS_OK);
		ck_assert_uint_eq(((PbCore__PingReply *)reply.message)->stamp, i);
		rpc_reply_fini(&reply);
	}
	ck_assert_uint_eq(rpc_chan_load(chan), 0);
	rpc_client_return(client, chan);
}
END_TEST

struct worker {
	struct gx_thread thread;
	struct rpc_client *client;
	unsigned number, calls;
	int err;
};

static void worker_main(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < w->calls && w->err == 0; i++) {
		PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
		const PbEcho__EchoReply *answer;
		struct rpc_reply own;
		unsigned char data[300];

		memset(data, (int)(w->number * 31 + i), sizeof(data));
		request.data = (ProtobufCBinaryData){1 + (i * 37) % sizeof(data), data};
		w->err = echo_call_echo(w->client, &request, NULL, &own, &answer);
		if (w->err == 0 && (answer->data.len != request.data.len ||
				    memcmp(answer->data.data, data, answer->data.len) != 0))
			w->err = -EBADMSG;
		rpc_reply_fini(&own);
	}
}

static void eight_threads(int kind, unsigned connections)
{
	struct worker workers[8];
	struct gx_env *env = rpc_fixture_env(fixture);
	struct rpc_stats stats;

	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)kind, ALICE, connections);
	for (unsigned i = 0; i < GX_COUNT_OF(workers); i++) {
		workers[i] = (struct worker){.client = client, .number = i, .calls = 100};
		ck_assert_int_eq(gx_env_thread_start(env, &workers[i].thread, "worker", worker_main,
						     &workers[i]),
				 0);
	}
	for (unsigned i = 0; i < GX_COUNT_OF(workers); i++)
		gx_env_thread_join(env, &workers[i].thread);
	for (unsigned i = 0; i < GX_COUNT_OF(workers); i++)
		ck_assert_int_eq(workers[i].err, 0);
	rpc_fixture_stats(fixture, kind >= RPC_FIXTURE_LOOP_COUNT, &stats);
	ck_assert_uint_eq(stats.methods[RPC_INDEX_ECHO].latency.count, 800);
	ck_assert_uint_le(stats.accepted, connections);
}

START_TEST(eight_threads_share_one_connection)
{
	eight_threads(_i, 1);
}
END_TEST

START_TEST(eight_threads_share_four_connections)
{
	eight_threads(_i, 4);
}
END_TEST

/* -- deadlines --------------------------------------------------------------------------- */

static int tally(int64_t add, uint32_t delay_ms, int64_t deadline_ns, int64_t *ret_value)
{
	PbEcho__TallyRequest request = PB_ECHO__TALLY_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = deadline_ns};
	const PbEcho__TallyReply *answer;
	int r;

	request.add = add;
	request.delay_ms = delay_ms;
	r = echo_call_tally(client, &request, &options, &reply, &answer);
	if (r == 0)
		*ret_value = answer->value;
	rpc_reply_fini(&reply);
	return r;
}

START_TEST(a_deadline_ends_the_call_and_the_late_reply_is_ignored)
{
	struct rpc_stats stats;
	int64_t value = 0;
	int64_t begin = gx_env_now_ns(rpc_fixture_env(fixture));

	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)_i, ALICE, 1);
	ck_assert_int_eq(tally(1, 500, rpc_fixture_in_ms(fixture, 50), &value), -ETIMEDOUT);
	ck_assert_int_lt(gx_env_now_ns(rpc_fixture_env(fixture)) - begin, 450 * GX_NSEC_PER_MSEC);
	/* This one is answered after the late reply, on the same connection. */
	ck_assert_int_eq(tally(1, 600, 0, &value), 0);
	ck_assert_int_eq(value, 2);
	ck_assert_int_eq(tally(1, 0, 0, &value), 0);
	ck_assert_int_eq(value, 3);
	rpc_fixture_stats(fixture, false, &stats);
	ck_assert_uint_eq(stats.accepted, 1);
}
END_TEST

START_TEST(a_deadline_in_the_past_waits_for_nothing)
{
	int64_t value = 0;
	int r;

	use(_i, ALICE);
	ck_assert_int_eq(ping(client), 0);
	/* Not before the reply of a delayed tally, whatever the client tries. */
	r = tally(1, 5000, gx_env_now_ns(rpc_fixture_env(fixture)) - 1, &value);
	ck_assert_int_eq(r, -ETIMEDOUT);
	ck_assert_int_eq(ping(client), 0);
	/* Nor has it been sent: this is the first one that is done. */
	ck_assert_int_eq(tally(1, 0, 0, &value), 0);
	ck_assert_int_eq(value, 1);
}
END_TEST

/* -- refusals ------------------------------------------------------------------------------- */

static int call_raw(uint16_t id, const struct rpc_method *like, const struct rpc_call_options *o)
{
	struct rpc_method method = *like;
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	int r;

	method.id = id;
	r = rpc_client_call(client, &method, &request.base, o, &reply);
	rpc_reply_fini(&reply);
	return r;
}

START_TEST(an_unknown_method_is_enosys_and_the_connection_stays)
{
	struct rpc_stats stats;

	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)_i, ALICE, 1);
	ck_assert_int_eq(call_raw(0x7f7f, rpc_method_get(RPC_INDEX_PING), NULL), -ENOSYS);
	ck_assert_ptr_nonnull(strstr(reply.detail, "0x7f7f"));
	/* What only a server sends is no method either. */
	ck_assert_int_eq(call_raw(RPC_TICK, rpc_method_get(RPC_INDEX_PING), NULL), -ENOSYS);
	ck_assert_int_eq(ping(client), 0);
	rpc_fixture_stats(fixture, _i >= RPC_FIXTURE_LOOP_COUNT, &stats);
	ck_assert_uint_eq(stats.unknown, 2);
	ck_assert_uint_eq(stats.accepted, 1);
	ck_assert_uint_eq(stats.garbage, 0);
}
END_TEST

static int get_stats(const char *prefix)
{
	PbCore__StatsRequest request = PB_CORE__STATS_REQUEST__INIT;
	const PbCore__StatsReply *answer;

	request.prefix = (char *)prefix;
	return core_call_stats(client, &request, NULL, &reply, &answer);
}

START_TEST(an_admin_method_is_eperm_for_others)
{
	use(_i, ALICE);
	ck_assert_int_eq(get_stats(""), -EPERM);
	ck_assert_ptr_nonnull(strstr(reply.detail, "core.stats"));
	rpc_reply_fini(&reply);
	ck_assert_int_eq(ping(client), 0);
}
END_TEST

START_TEST(stats_count_calls_and_errors)
{
	const PbCore__StatsReply *answer;
	int64_t value;

	use(_i, RPC_FIXTURE_ROOT);
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(ping(client), 0);
	ck_assert_int_eq(source(UINT64_C(1) << 40, NULL, 0), -E2BIG);
	if (_i < RPC_FIXTURE_LOOP_COUNT)
		ck_assert_int_eq(tally(1, 0, 0, &value), 0);
	ck_assert_int_eq(get_stats("core.ping"), 0);
	answer = (const PbCore__StatsReply *)reply.message;
	ck_assert_uint_eq(answer->n_methods, 1);
	ck_assert_str_eq(answer->methods[0]->method, "core.ping");
	ck_assert_uint_eq(answer->methods[0]->calls, 5);
	ck_assert_uint_eq(answer->methods[0]->errors, 0);
	ck_assert_uint_gt(answer->methods[0]->bytes_out, 0);
	ck_assert_uint_gt(answer->methods[0]->max_ns, 0);
	ck_assert_uint_le(answer->methods[0]->p50_ns, answer->methods[0]->max_ns * 2);
	ck_assert_uint_eq(answer->connections, 1);
	ck_assert_uint_eq(answer->half_open, 0);
	ck_assert_uint_eq(answer->refused, 0);
	rpc_reply_fini(&reply);
	ck_assert_int_eq(get_stats("echo.source"), 0);
	answer = (const PbCore__StatsReply *)reply.message;
	ck_assert_uint_eq(answer->methods[0]->calls, 1);
	ck_assert_uint_eq(answer->methods[0]->errors, 1);
	rpc_reply_fini(&reply);
}
END_TEST

START_TEST(a_payload_where_none_belongs_is_skipped_and_refused)
{
	unsigned char *data = pattern(300000);
	struct iovec iov = {data, 300000};
	struct rpc_call_options options = {.payload_out = &iov, .payload_out_count = 1};

	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)_i, ALICE, 1);
	ck_assert_int_eq(call_raw(RPC_PING, rpc_method_get(RPC_INDEX_PING), &options), -EPROTO);
	ck_assert_ptr_nonnull(strstr(reply.detail, "takes no payload"));
	ck_assert_int_eq(call_raw(0x7f7f, rpc_method_get(RPC_INDEX_PING), &options), -ENOSYS);
	ck_assert_int_eq(ping(client), 0);
	free(data);
}
END_TEST

START_TEST(a_request_that_is_no_such_message_is_eproto_and_the_connection_stays)
{
	/* A ping's fixed64 where echo.tally's handler would want something else. */
	static const uint16_t ids[] = {RPC_ECHO, RPC_STATS};

	client = rpc_fixture_client(fixture, (enum rpc_fixture_kind)_i, RPC_FIXTURE_ROOT, 1);
	for (size_t i = 0; i < GX_COUNT_OF(ids); i++) {
		struct rpc_method method = *rpc_method_get(RPC_INDEX_PING);
		PbCore__PingReply request = PB_CORE__PING_REPLY__INIT;

		method.id = ids[i];
		method.request = &pb_core__ping_reply__descriptor;
		request.stamp = 7;
		request.server = (char *)"x";
		/* Field 1 as fixed64: a wire type that bytes and strings do not have. */
		ck_assert_int_eq(rpc_client_call(client, &method, &request.base, NULL, &reply),
				 -EPROTO);
		rpc_reply_fini(&reply);
	}
	ck_assert_int_eq(ping(client), 0);
}
END_TEST

/* -- who may not stay ------------------------------------------------------------------------ */

START_TEST(strangers_cannot_keep_all_threads_of_a_threaded_server)
{
	struct rpc_fixture_options options = RPC_FIXTURE_OPTIONS_INIT;
	int fds[8];

	rpc_fixture_stop(fixture);
	options.connections_max = 4;
	options.handshake_ns = 60 * GX_NSEC_PER_SEC;
	fixture = rpc_fixture_start(&options);
	for (size_t i = 0; i < GX_COUNT_OF(fds); i++)
		fds[i] = rpc_fixture_connect(fixture, (enum rpc_fixture_kind)_i);
	use(_i, ALICE);
	ck_assert_int_eq(ping(client), 0);
	for (size_t i = 0; i < GX_COUNT_OF(fds); i++)
		gx_env_close(rpc_fixture_env(fixture), fds[i]);
}
END_TEST

/* Gives user:brief a key that ends soon. */
static void add_brief_key(struct rpc_fixture *f, void *arg)
{
	struct rpc_key *key = arg;
	struct gx_env *env = rpc_fixture_env(f);

	ck_assert_int_eq(rpc_key_make(env, "user:brief", 0, false, key), 0);
	key->expires_ns = gx_env_wall_ns(env) + 500 * GX_NSEC_PER_MSEC;
	ck_assert_int_eq(rpc_keytab_put(rpc_fixture_server(f)->hello.auth->keys, key, false), 0);
}

START_TEST(an_open_connection_ends_with_its_key)
{
	struct rpc_client_options options;
	struct rpc_key key;
	int r = 0;

	rpc_fixture_run(fixture, add_brief_key, &key);
	rpc_fixture_client_options(fixture, (enum rpc_fixture_kind)_i, ALICE, &options);
	options.identity = key.identity;
	options.key = key.secret;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	ck_assert_int_eq(ping(client), 0);
	while (r == 0 &&
	       gx_env_wall_ns(rpc_fixture_env(fixture)) < key.expires_ns + 5 * GX_NSEC_PER_SEC)
		r = ping(client);
	ck_assert_int_lt(r, 0);
	ck_assert(rpc_fixture_log_wait(fixture, "connection dropped", "expired key"));
	ck_assert_int_eq(ping(client), -EKEYREJECTED);
}
END_TEST

static void pretend_long_ago(struct rpc_fixture *f, void *arg GX_UNUSED)
{
	struct rpc_conn *conn;

	for (conn = rpc_fixture_server(f)->conns; conn; conn = conn->next)
		conn->got_ns -= 31 * GX_NSEC_PER_SEC;
}

START_TEST(a_request_that_is_begun_and_not_finished_ends_the_connection)
{
	struct rpc_client *idle;
	struct iovec iov = {(void *)"GSX1", 4};
	struct rpc_chan *chan;
	int64_t deadline_ns = rpc_fixture_in_ms(fixture, 10000);

	use(_i, ALICE);
	idle = rpc_fixture_client(fixture, (enum rpc_fixture_kind)_i, ALICE, 0);
	ck_assert_int_eq(ping(idle), 0);
	ck_assert_int_eq(rpc_client_borrow(client, deadline_ns, NULL, &chan), 0);
	ck_assert_int_eq(rpc_stream_write_all(&chan->stream, &iov, 1, deadline_ns), 0);
	/* The bytes are at the server once a later request has been answered. */
	ck_assert_int_eq(ping(idle), 0);
	rpc_fixture_run(fixture, pretend_long_ago, NULL);
	ck_assert(rpc_fixture_log_wait(fixture, "connection dropped", "does not finish"));
	/* Who is only idle may stay. */
	ck_assert_int_eq(ping(idle), 0);
	rpc_client_return(client, chan);
	rpc_client_free(idle);
}
END_TEST

struct sinker {
	struct gx_thread thread;
	int err;
};

static void sinker_main(void *arg)
{
	struct sinker *s = arg;
	PbEcho__SinkRequest request = PB_ECHO__SINK_REQUEST__INIT;
	unsigned char *data = pattern(1024 * 1024);
	struct iovec iov = {data, 1024 * 1024};
	struct rpc_call_options options = {.payload_out = &iov, .payload_out_count = 1};
	const PbEcho__SinkReply *answer;
	struct rpc_reply r0;

	s->err = echo_call_sink(client, &request, &options, &r0, &answer);
	rpc_reply_fini(&r0);
	free(data);
}

static void use_up_the_pool(struct rpc_fixture *f, void *arg)
{
	struct rpc_server *server = rpc_fixture_server(f);

	server->pool_buffers = *(bool *)arg ? server->pool_buffers_max : 0;
}

static void look_for_waiter(struct rpc_fixture *f, void *arg)
{
	*(bool *)arg = rpc_fixture_server(f)->pool_waiters != NULL;
}

/* Nobody gives a buffer back: there was no memory for one, or the connection woken for it went. */
START_TEST(a_connection_that_waits_for_a_buffer_gets_one_though_nobody_wakes_it)
{
	struct sinker s = {.err = 1};
	bool all = true, none = false, waits = false;

	use(_i, ALICE);
	rpc_fixture_run(fixture, use_up_the_pool, &all);
	ck_assert_int_eq(
		gx_env_thread_start(rpc_fixture_env(fixture), &s.thread, "sinker", sinker_main, &s),
		0);
	while (!waits)
		rpc_fixture_run(fixture, look_for_waiter, &waits);
	rpc_fixture_run(fixture, use_up_the_pool, &none);
	gx_env_thread_join(rpc_fixture_env(fixture), &s.thread);
	ck_assert_int_eq(s.err, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_server");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, ping_tells_who_answers_and_who_asks, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, echo_gives_data_back, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, a_payload_goes_there_and_back, 0, RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, sink_sums_what_arrived, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, source_fills_the_space_given, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc,
			    a_reply_payload_larger_than_the_space_is_e2big_and_the_client_goes_on,
			    0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, a_payload_over_the_loop_servers_maximum_is_refused, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_threaded_server_streams_what_a_loop_server_refuses,
			    RPC_FIXTURE_LOOP_COUNT, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, two_hundred_requests_are_in_flight_on_one_connection, 0,
			    RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, eight_threads_share_one_connection, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, eight_threads_share_four_connections, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, a_deadline_ends_the_call_and_the_late_reply_is_ignored, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, a_deadline_in_the_past_waits_for_nothing, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc, an_unknown_method_is_enosys_and_the_connection_stays, 0,
			    RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, an_admin_method_is_eperm_for_others, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, stats_count_calls_and_errors, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, a_payload_where_none_belongs_is_skipped_and_refused, 0,
			    RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc,
			    a_request_that_is_no_such_message_is_eproto_and_the_connection_stays, 0,
			    RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, strangers_cannot_keep_all_threads_of_a_threaded_server,
			    RPC_FIXTURE_LOOP_COUNT, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, an_open_connection_ends_with_its_key, 0, RPC_FIXTURE_COUNT);
	tcase_add_loop_test(tc, a_request_that_is_begun_and_not_finished_ends_the_connection, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	tcase_add_loop_test(tc,
			    a_connection_that_waits_for_a_buffer_gets_one_though_nobody_wakes_it, 0,
			    RPC_FIXTURE_LOOP_COUNT);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
