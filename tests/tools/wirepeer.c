/*
 * wirepeer ACTION ADDRESS KEYFILE [NUMBER]... - one misdeed, or one question, per run.
 *
 * Prints what the server did about it in one line; exit 0 unless the action itself could not be
 * carried out (1) or is unknown (2). tests/integ/ scripts compare the line and the daemon's log.
 */
#include "core.pb-c.h"
#include "echo.pb-c.h"
#include "tests/tools/peer.h"
#include <sys/socket.h>

#define RPC_SERVICE_CORE
#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

struct ask {
	struct gx_env *env;
	struct rpc_endpoint endpoint;
	struct rpc_key key;
	uint64_t numbers[3];
};

static int say_end(int r)
{
	if (r == 0)
		printf("dropped\n");
	else if (r == -EEXIST)
		printf("answered\n");
	else
		printf("failed: %s\n", gx_strerror(r));
	return r == 0 || r == -EEXIST ? 0 : 1;
}

/* Reads one frame: "refused: TEXT" or "frame TYPE" or "dropped". */
static int say_frame(struct peer *peer)
{
	struct rpc_frame frame;
	unsigned char *message = NULL;
	int r = peer_read(peer, &frame, &message);

	if (r == -ETIMEDOUT)
		return say_end(r);
	if (r < 0)
		return say_end(0);
	if (frame.type == RPC_FRAME_REFUSED)
		printf("refused: %.*s\n", (int)frame.message_bytes, (char *)message);
	else
		printf("frame %d\n", frame.type);
	free(message);
	return 0;
}

/* A good handshake; then the very same bytes on a new connection. */
static int do_replay(struct ask *ask)
{
	struct peer first, second;
	struct rpc_frame frame;
	unsigned char *message = NULL;
	int r = peer_open(&first, ask->env, &ask->endpoint, &ask->key, 0);

	if (r < 0)
		return say_end(r);
	if (peer_call(&first, RPC_PING, NULL, 0) != RPC_STATUS_OK)
		return say_end(-EPROTO);
	r = peer_connect(&second, ask->env, &ask->endpoint);
	if (r == 0)
		r = peer_write(&second, first.sent.data, first.sent.bytes);
	/* The new challenge, which the old proof does not answer. */
	if (r == 0)
		r = peer_read(&second, &frame, &message);
	free(message);
	if (r == 0 && frame.type != RPC_FRAME_CHALLENGE)
		r = -EPROTO;
	r = r < 0 ? say_end(r) : say_frame(&second);
	peer_close(&first);
	peer_close(&second);
	return r;
}

/* A good handshake; then a ping with one bit changed on its way. */
static int do_tamper(struct ask *ask)
{
	unsigned char space[RPC_FRAME_HEADER_BYTES + 16];
	unsigned char message[9] = {0x09, 1, 2, 3, 4, 5, 6, 7, 8};
	struct peer peer;
	size_t bytes;
	int r = peer_open(&peer, ask->env, &ask->endpoint, &ask->key, 0);

	if (r < 0)
		return say_end(r);
	bytes = peer_request(&peer, RPC_PING, message, sizeof(message), space);
	space[ask->numbers[0] % bytes] ^= (unsigned char)(1u << (ask->numbers[1] % 8));
	r = peer_write(&peer, space, bytes);
	r = say_end(r < 0 ? r : peer_expect_end(&peer));
	peer_close(&peer);
	return r;
}

/* Names another mechanism than the port's in its HELLO. */
static int do_mechanism(struct ask *ask)
{
	PbCore__Hello hello = PB_CORE__HELLO__INIT;
	unsigned char nonce[32] = {1};
	unsigned char packed[GX_HELLO_MAX];
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	struct rpc_frame frame = {.type = RPC_FRAME_HELLO};
	struct peer peer;
	int r = peer_connect(&peer, ask->env, &ask->endpoint);

	hello.version_min = RPC_PROTOCOL_MIN;
	hello.version_max = RPC_PROTOCOL_MAX;
	hello.mechanism = (uint32_t)ask->numbers[0];
	hello.identity = ask->key.identity;
	hello.nonce.data = nonce;
	hello.nonce.len = sizeof(nonce);
	frame.message_bytes = (uint32_t)pb_core__hello__pack(&hello, packed);
	rpc_frame_encode(&frame, packed, 0, header);
	if (r == 0)
		r = peer_write(&peer, header, sizeof(header));
	if (r == 0)
		r = peer_write(&peer, packed, frame.message_bytes);
	r = r < 0 ? say_end(r) : say_frame(&peer);
	peer_close(&peer);
	return r;
}

/* Counters of the daemon, one "name value" a line; the key must be an administrator's. */
static int do_stats(struct ask *ask)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	PbCore__StatsRequest request = PB_CORE__STATS_REQUEST__INIT;
	const PbCore__StatsReply *stats;
	struct rpc_call_options once = {.fail_fast = true};
	struct rpc_client *client;
	struct rpc_reply reply;
	int r;

	options.env = ask->env;
	options.endpoint = ask->endpoint;
	options.identity = ask->key.identity;
	options.key = ask->key.secret;
	r = rpc_client_new(&options, &client);
	if (r < 0)
		return say_end(r);
	r = core_call_stats(client, &request, &once, &reply, &stats);
	if (r == 0)
		printf("connections %llu\nhalf_open %llu\nrefused %llu\ngarbage %llu\n",
		       (unsigned long long)stats->connections, (unsigned long long)stats->half_open,
		       (unsigned long long)stats->refused, (unsigned long long)stats->garbage);
	else
		printf("failed: %s %s\n", gx_strerror(r), reply.detail);
	rpc_reply_fini(&reply);
	rpc_client_free(client);
	return r < 0;
}

/*
 * NUMBER calls in flight on one connection, each answered after DELAY ms: prints "sent" when
 * they are all on their way, then how many were answered well.
 */
/* Requests of a connection are taken in order: once this is answered, all before it have arrived.
 */
static int await_arrival(struct gx_env *env, struct rpc_chan *chan)
{
	PbCore__PingRequest message = PB_CORE__PING_REQUEST__INIT;
	struct rpc_request request = {
		.method = rpc_method_get(RPC_INDEX_PING),
		.message = &message.base,
		.deadline_ns = gx_env_now_ns(env) + PEER_WAIT_NS,
	};
	struct rpc_reply reply;
	uint64_t call;
	int r;

	rpc_reply_init(&reply);
	r = rpc_chan_submit(chan, &request, &call, NULL);
	if (r == 0)
		r = rpc_chan_wait(chan, call, &reply);
	rpc_reply_fini(&reply);
	return r;
}

static int do_tally(struct ask *ask)
{
	struct rpc_chan_options options = {
		.env = ask->env,
		.endpoint = &ask->endpoint,
		.identity = ask->key.identity,
		.key = ask->key.secret,
		.program = "test-tally",
		.deadline_ns = gx_env_now_ns(ask->env) + PEER_WAIT_NS,
	};
	size_t count = ask->numbers[0], good = 0;
	GX_AUTOFREE uint64_t *calls = calloc(count + 1, sizeof(*calls));
	PbEcho__TallyRequest message = PB_ECHO__TALLY_REQUEST__INIT;
	struct rpc_request request = {
		.method = rpc_method_get(RPC_INDEX_TALLY),
		.message = &message.base,
		.deadline_ns = gx_env_now_ns(ask->env) + PEER_WAIT_NS,
	};
	struct rpc_chan *chan;
	int r;

	if (!calls)
		return say_end(-ENOMEM);
	if (ask->endpoint.tls &&
	    rpc_tls_ctx_new_client(ask->env, ask->key.identity, ask->key.secret, &options.tls) < 0)
		return say_end(-ENOMEM);
	r = rpc_chan_open(&options, &chan);
	if (r < 0)
		return say_end(r);
	message.add = 1;
	message.delay_ms = (uint32_t)ask->numbers[1];
	for (size_t i = 0; r == 0 && i < count; i++) {
		request.seq = i + 1;
		request.window = (uint32_t)(i + 1);
		r = rpc_chan_submit(chan, &request, &calls[i], NULL);
	}
	if (r == 0)
		r = await_arrival(ask->env, chan);
	if (r < 0)
		return say_end(r);
	printf("sent\n");
	fflush(stdout);
	for (size_t i = 0; i < count; i++) {
		struct rpc_reply reply;

		rpc_reply_init(&reply);
		r = rpc_chan_wait(chan, calls[i], &reply);
		if (r == 0 && reply.status == RPC_STATUS_OK)
			good++;
		rpc_reply_fini(&reply);
	}
	printf("answered %zu\n", good);
	rpc_chan_close(chan);
	rpc_tls_ctx_free(options.tls);
	return 0;
}

/*
 * NUMBER requests, far more than may be in work at once, each wanting DELAY ms, written in parts
 * of PART bytes (0: all at once); then reads. Every one must be answered, whatever the status: none
 * may be forgotten in a buffer.
 */
static int do_flood(struct ask *ask)
{
	size_t count = ask->numbers[0], answered = 0;
	PbEcho__TallyRequest message = PB_ECHO__TALLY_REQUEST__INIT;
	unsigned char packed[64];
	struct gx_buf all;
	size_t part;
	struct peer peer;
	int r = peer_open(&peer, ask->env, &ask->endpoint, &ask->key, 0);

	gx_buf_init(&all, 256u * 1024 * 1024);
	message.add = 1;
	message.delay_ms = (uint32_t)ask->numbers[1];
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct rpc_frame frame = {.type = RPC_FRAME_REQUEST, .code = RPC_TALLY};
		unsigned char header[RPC_FRAME_HEADER_BYTES];

		frame.id = i + 1;
		frame.seq = i + 1;
		frame.window = (uint32_t)GX_MIN(i + 1, 512);
		frame.message_bytes = (uint32_t)pb_echo__tally_request__pack(&message, packed);
		rpc_frame_encode(&frame, packed, peer.secret, header);
		r = gx_buf_append(&all, header, sizeof(header));
		if (r == 0)
			r = gx_buf_append(&all, packed, frame.message_bytes);
	}
	/* Small writes are small TLS records, of which the library takes many from the socket at
	 * once. */
	part = ask->numbers[2] > 0 ? ask->numbers[2] : all.bytes;
	for (size_t at = 0; r == 0 && at < all.bytes; at += part)
		r = peer_write(&peer, all.data + at, GX_MIN(part, all.bytes - at));
	while (r == 0 && answered < count) {
		struct rpc_frame frame;
		unsigned char *reply = NULL;

		r = peer_read(&peer, &frame, &reply);
		free(reply);
		answered += r == 0;
	}
	printf("answered %zu%s%s\n", answered, r < 0 ? ": " : "", r < 0 ? gx_strerror(r) : "");
	gx_buf_fini(&all);
	peer_close(&peer);
	return r < 0;
}

/* NUMBER connections that are reset as soon as they are made. */
static int do_reset(struct ask *ask)
{
	struct linger reset = {.l_onoff = 1, .l_linger = 0};

	for (uint64_t i = 0; i < ask->numbers[0]; i++) {
		struct peer peer;
		int r = peer_connect(&peer, ask->env, &ask->endpoint);

		if (r < 0)
			return say_end(r);
		setsockopt(peer.stream.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		peer_close(&peer);
	}
	printf("reset\n");
	return 0;
}

/* Asks for a payload of NUMBER bytes. */
static int do_source(struct ask *ask)
{
	PbEcho__SourceRequest message = PB_ECHO__SOURCE_REQUEST__INIT;
	unsigned char packed[16];
	struct peer peer;
	int r = peer_open(&peer, ask->env, &ask->endpoint, &ask->key, 0);

	if (r < 0)
		return say_end(r);
	message.bytes = ask->numbers[0];
	r = peer_call(&peer, RPC_SOURCE, packed,
		      (uint32_t)pb_echo__source_request__pack(&message, packed));
	printf("status %d\n", r);
	peer_close(&peer);
	return r != RPC_STATUS_OK;
}

/*
 * NUMBER connections that say nothing: prints "open", then counts how many the server closes
 * until standard input ends.
 */
static int do_silent(struct ask *ask)
{
	size_t count = ask->numbers[0], closed = 0;
	GX_AUTOFREE struct gx_pollfd *fds = calloc(count + 1, sizeof(*fds));
	bool over = false;

	if (!fds)
		return say_end(-ENOMEM);
	for (size_t i = 0; i < count; i++) {
		fds[i].fd = gx_env_connect(ask->env, &ask->endpoint.addr,
					   gx_env_now_ns(ask->env) + PEER_WAIT_NS);
		fds[i].events = GX_READABLE;
		if (fds[i].fd < 0)
			return say_end(fds[i].fd);
	}
	fds[count].fd = 0;
	fds[count].events = GX_READABLE;
	printf("open\n");
	fflush(stdout);
	while (!over && closed < count) {
		if (gx_env_poll(ask->env, fds, count + 1, GX_FOREVER) < 0)
			return 1;
		over = fds[count].revents != 0;
		for (size_t i = 0; i < count; i++) {
			char byte;

			if (fds[i].revents && recv(fds[i].fd, &byte, 1, MSG_DONTWAIT) <= 0) {
				fds[i].events = 0;
				gx_env_close(ask->env, fds[i].fd);
				/* A descriptor that is never ready keeps its place. */
				fds[i].fd = -1;
				closed++;
			}
		}
	}
	printf("closed %zu\n", closed);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct ask *);
	} actions[] = {
		{"replay", do_replay}, {"tamper", do_tamper}, {"mechanism", do_mechanism},
		{"stats", do_stats},   {"tally", do_tally},   {"silent", do_silent},
		{"flood", do_flood},   {"source", do_source}, {"reset", do_reset},
	};
	struct ask ask = {.env = gx_env_posix()};

	if (argc < 4 || argc > 7) {
		fprintf(stderr, "usage: wirepeer ACTION ADDRESS KEYFILE [NUMBER]...\n");
		return 2;
	}
	peer_arguments(ask.env, argv[2], argv[3], &ask.endpoint, &ask.key);
	for (int i = 4; i < argc; i++)
		if (gx_parse_u64(argv[i], &ask.numbers[i - 4]) < 0)
			return 2;
	for (size_t i = 0; i < GX_COUNT_OF(actions); i++)
		if (strcmp(actions[i].name, argv[1]) == 0)
			return actions[i].run(&ask);
	fprintf(stderr, "wirepeer: no action \"%s\"\n", argv[1]);
	return 2;
}
