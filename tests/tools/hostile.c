/*
 * hostile FRAMES SEED KEYFILE ADMINKEY ADDRESS... - everything a bad peer can think of.
 *
 * Works on all addresses (plain, TLS, unix; loop and threaded servers) at once:
 *	truncated handshakes of every length; 1,000 half-open connections held;
 *	peers that send without reading, peers that send a byte at a time;
 *	messages that unpack to many times their size;
 *	FRAMES random and mutated frames, before and after authentication.
 *
 * What must hold is checked from this side: each well-framed request gets exactly one reply,
 * whatever is in it; whoever breaks the protocol is hung up on; nobody waits longer than a
 * deadline. Each violation is a line, and the exit status 1. The seed is printed: the same one
 * makes the same frames (threads share them out differently).
 */
#include "core.pb-c.h"
#include "echo.pb-c.h"
#include "tests/tools/peer.h"
#include <stdatomic.h>
#include <sys/socket.h>

#define RPC_SERVICE_CORE
#include "rpc/rpc_stub.h"

#define WORKERS 4
#define ENDPOINTS_MAX 8
#define HALF_OPEN 1000u
#define BURST_MAX 100u
#define MESSAGE_MAX 256u
/* What one peer may get rid of without reading: queue, kernel buffers of both ends, some. */
#define UNREAD_BYTES_MAX (64u * 1024 * 1024)
#define FRAME_SPACE (RPC_FRAME_HEADER_BYTES + MESSAGE_MAX + 4096u)

static struct {
	struct gx_env *env;
	struct rpc_endpoint endpoints[ENDPOINTS_MAX];
	unsigned endpoint_count;
	struct rpc_key key, admin;
	uint64_t seed;
	_Atomic int64_t frames_left;
	_Atomic uint64_t requests, replies, broken, strangers, violations;
} all;

/* -- random, reproducible ----------------------------------------------------------- */

struct dice {
	uint64_t state;
};

static uint64_t roll(struct dice *dice)
{
	uint64_t z = (dice->state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint32_t below(struct dice *dice, uint32_t n)
{
	return (uint32_t)(roll(dice) % n);
}

static void fill(struct dice *dice, unsigned char *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		data[i] = (unsigned char)roll(dice);
}

/* Bits flipped, bytes set to edge values. */
static void mutate(struct dice *dice, unsigned char *data, size_t bytes)
{
	static const unsigned char edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	unsigned times = 1 + below(dice, 4);

	while (bytes > 0 && times-- > 0) {
		size_t at = roll(dice) % bytes;

		if (below(dice, 2))
			data[at] ^= (unsigned char)(1u << below(dice, 8));
		else
			data[at] = edges[below(dice, sizeof(edges))];
	}
}

/* -- verdicts -------------------------------------------------------------------------- */

static void violation(const char *what, const struct rpc_endpoint *endpoint, int err)
{
	char text[GX_ADDR_TEXT_MAX];

	rpc_endpoint_format(endpoint, text);
	if (atomic_fetch_add(&all.violations, 1) < 20)
		fprintf(stderr, "VIOLATION: %s on %s: %s\n", what, text, gx_strerror(err));
}

/* Connects; a full accept queue (EAGAIN on unix sockets) is no refusal. */
static bool reach(struct peer *peer, const struct rpc_endpoint *endpoint)
{
	int64_t deadline_ns = gx_env_now_ns(all.env) + PEER_WAIT_NS;
	int r;

	for (;;) {
		r = peer_connect(peer, all.env, endpoint);
		if (r == 0)
			return true;
		/* A peer that we pushed out a moment ago, or a port that is still in TIME_WAIT. */
		if ((r != -EAGAIN && r != -EADDRNOTAVAIL && r != -ECONNRESET) ||
		    gx_env_now_ns(all.env) > deadline_ns)
			break;
		gx_env_sleep_until(all.env, gx_env_now_ns(all.env) + GX_NSEC_PER_MSEC);
	}
	violation("cannot connect", endpoint, r);
	return false;
}

/*
 * After a breach: the server must hang up. It may also be waiting for the rest of a message
 * whose length we mutated, so it sees our end first.
 */
static void expect_hangup(struct peer *peer, const struct rpc_endpoint *endpoint)
{
	int r;

	shutdown(peer->stream.fd, SHUT_WR);
	r = peer_drain(peer);
	if (r < 0)
		violation("not hung up on", endpoint, r);
}

/* -- before authentication ---------------------------------------------------------------- */

/* An honest HELLO frame for this connection; with it the state to answer a challenge. */
static bool make_hello(struct peer *peer, struct rpc_handshake *hs)
{
	struct rpc_handshake_client client = {
		.identity = all.key.identity,
		.key = all.key.secret,
		.program = "hostile",
	};

	return rpc_handshake_init_client(hs, all.env, &client, false, &peer->stream.local,
					 &peer->stream.remote) == 0;
}

/* Absurd lengths under a valid check: refused from the header alone. */
static void absurd_lengths(struct dice *dice, unsigned char *header, uint64_t secret)
{
	static const uint64_t lengths[] = {UINT64_C(1) << 31,
					   (UINT64_C(1) << 31) - 1,
					   UINT32_MAX,
					   UINT64_C(1) << 63,
					   UINT64_MAX,
					   (UINT64_C(1) << 63) - 1,
					   GX_PAYLOAD_MAX + UINT64_C(1)};
	uint64_t bytes = lengths[below(dice, GX_COUNT_OF(lengths))];

	if (bytes <= UINT32_MAX && below(dice, 2))
		gx_put_le32(header + 12, (uint32_t)bytes);
	else
		gx_put_le64(header + 16, bytes);
	peer_seal(header, NULL, 0, secret);
}

/* One connection that never gets in. */
static void be_stranger(struct dice *dice, const struct rpc_endpoint *endpoint)
{
	unsigned char space[RPC_FRAME_HEADER_BYTES + GX_HELLO_MAX];
	struct rpc_handshake hs;
	struct peer peer;
	size_t bytes = 0;
	uint32_t message_bytes;

	if (!reach(&peer, endpoint))
		return;
	if (!make_hello(&peer, &hs)) {
		peer_close(&peer);
		return;
	}
	bytes = hs.out.bytes;
	memcpy(space, hs.out.data, bytes);
	message_bytes = (uint32_t)(bytes - RPC_FRAME_HEADER_BYTES);
	switch (below(dice, 6)) {
	case 0: /* noise */
		bytes = 1 + below(dice, 400);
		fill(dice, space, bytes);
		break;
	case 1: /* a changed HELLO, found by its check */
		mutate(dice, space, bytes);
		break;
	case 2: /* a changed HELLO whose check fits: the message parser's turn */
		mutate(dice, space + RPC_FRAME_HEADER_BYTES, message_bytes);
		peer_seal(space, space + RPC_FRAME_HEADER_BYTES, message_bytes, 0);
		break;
	case 3: /* changed header fields under a fitting check */
		mutate(dice, space + 4, 52);
		peer_seal(space, space + RPC_FRAME_HEADER_BYTES, message_bytes, 0);
		break;
	case 4:
		absurd_lengths(dice, space, 0);
		break;
	case 5: /* a good HELLO, then a proof out of thin air */
		if (bytes + RPC_FRAME_HEADER_BYTES + 34 <= sizeof(space)) {
			struct rpc_frame frame = {.type = RPC_FRAME_PROOF, .message_bytes = 34};
			unsigned char proof[34] = {0x0a, 32};

			fill(dice, proof + 2, 32);
			rpc_frame_encode(&frame, proof, 0, space + bytes);
			memcpy(space + bytes + RPC_FRAME_HEADER_BYTES, proof, sizeof(proof));
			bytes += RPC_FRAME_HEADER_BYTES + sizeof(proof);
		}
		break;
	}
	rpc_handshake_fini(&hs);
	atomic_fetch_add(&all.strangers, 1);
	/* It may hang up before it has all: that is an answer too. */
	GX_IGNORE(peer_write(&peer, space, bytes) < 0);
	expect_hangup(&peer, endpoint);
	peer_close(&peer);
}

/* -- after authentication ------------------------------------------------------------------ */

static uint32_t make_message(struct dice *dice, uint16_t method, unsigned char *message)
{
	PbEcho__EchoRequest echo = PB_ECHO__ECHO_REQUEST__INIT;
	PbEcho__TallyRequest tally = PB_ECHO__TALLY_REQUEST__INIT;
	unsigned char data[64];
	uint32_t bytes = below(dice, MESSAGE_MAX);

	switch (below(dice, 3)) {
	case 0: /* garbage */
		fill(dice, message, bytes);
		return bytes;
	case 1: /* a good one, mutated */
		fill(dice, data, sizeof(data));
		echo.data.data = data;
		echo.data.len = below(dice, sizeof(data));
		tally.add = (int64_t)roll(dice);
		if (method == RPC_TALLY)
			bytes = (uint32_t)pb_echo__tally_request__pack(&tally, message);
		else
			bytes = (uint32_t)pb_echo__echo_request__pack(&echo, message);
		mutate(dice, message, bytes);
		return bytes;
	default: /* unknown fields, varints of any length */
		for (uint32_t i = 0; i < bytes; i++)
			message[i] = below(dice, 4) ? 0x80 : (unsigned char)roll(dice);
		return bytes;
	}
}

static uint16_t pick_method(struct dice *dice)
{
	if (below(dice, 4) == 0)
		return (uint16_t)roll(dice);
	return rpc_method_get(below(dice, RPC_METHOD_COUNT))->id;
}

/* A request that is framed well and otherwise anything; its bytes. */
static size_t make_request(struct dice *dice, struct peer *peer, uint16_t method,
			   unsigned char *space)
{
	unsigned char message[MESSAGE_MAX];
	struct rpc_frame frame = {
		.type = RPC_FRAME_REQUEST,
		.code = method,
		.id = peer->next_id++,
		.trace = roll(dice),
		.window = (uint32_t)roll(dice),
		.seq = below(dice, 3) ? roll(dice) : 0,
		.payload_bytes = below(dice, 16) ? 0 : below(dice, 4096),
		.time_ms = below(dice, 2) ? (uint32_t)roll(dice) : 0,
	};

	frame.message_bytes = make_message(dice, method, message);
	rpc_frame_encode(&frame, message, peer->secret, space);
	memcpy(space + RPC_FRAME_HEADER_BYTES, message, frame.message_bytes);
	fill(dice, space + RPC_FRAME_HEADER_BYTES + frame.message_bytes, frame.payload_bytes);
	return RPC_FRAME_HEADER_BYTES + frame.message_bytes + frame.payload_bytes;
}

/* A frame that breaks the protocol; its bytes. */
static size_t make_breach(struct dice *dice, struct peer *peer, unsigned char *space)
{
	struct rpc_frame ack = {.type = RPC_FRAME_PUSH_ACK};
	size_t bytes;

	switch (below(dice, 5)) {
	case 0: /* noise that is no frame even by accident */
		fill(dice, space, RPC_FRAME_HEADER_BYTES);
		space[0] = 0;
		return RPC_FRAME_HEADER_BYTES;
	case 1: /* a changed frame, found by its check */
		bytes = peer_request(peer, RPC_PING, NULL, 0, space);
		mutate(dice, space + 24, bytes - 24);
		space[24 + below(dice, 32)] ^= 0x55;
		return bytes;
	case 2: /* types that a client may not send, bits that nobody may */
		bytes = peer_request(peer, RPC_PING, NULL, 0, space);
		if (below(dice, 2))
			space[5] = (unsigned char)(32 + below(dice, 200));
		else
			space[below(dice, 2) ? 6 : 10] = 1;
		peer_seal(space, NULL, 0, peer->secret);
		return bytes;
	case 3:
		bytes = peer_request(peer, RPC_PING, NULL, 0, space);
		absurd_lengths(dice, space, peer->secret);
		return bytes;
	default: /* nothing was pushed here */
		ack.seq = 1 + below(dice, 1000);
		rpc_frame_encode(&ack, NULL, peer->secret, space);
		return RPC_FRAME_HEADER_BYTES;
	}
}

/* Reads until each request but the deferred ones has its reply. False: none came. */
static bool read_replies(struct peer *peer, const bool *deferred, uint64_t first_id, unsigned count)
{
	bool seen[BURST_MAX] = {false};
	unsigned missing = 0;

	for (unsigned i = 0; i < count; i++)
		missing += !deferred[i];
	while (missing > 0) {
		struct rpc_frame frame;
		unsigned char *message = NULL;
		uint64_t index;

		if (peer_read(peer, &frame, &message) < 0)
			return false;
		free(message);
		index = frame.id - first_id;
		if (frame.type != RPC_FRAME_REPLY || index >= count || seen[index])
			return false;
		seen[index] = true;
		atomic_fetch_add(&all.replies, 1);
		missing -= !deferred[index];
	}
	return true;
}

/* Lets itself in, sends a burst in one write, wants its replies, then breaks the protocol. */
static void be_insider(struct dice *dice, const struct rpc_endpoint *endpoint, unsigned count,
		       uint64_t *session)
{
	GX_AUTOFREE unsigned char *space = malloc((size_t)BURST_MAX * FRAME_SPACE);
	bool deferred[BURST_MAX] = {false};
	unsigned char breach[FRAME_SPACE];
	struct peer peer;
	uint64_t first_id;
	size_t bytes = 0;
	int r;

	if (!space || !reach(&peer, endpoint))
		return;
	r = peer_handshake(&peer, endpoint->tls, &all.key, *session);
	if (r < 0) {
		/* Pushed out by newer connections, which is what happens to the half-open. */
		if (r != -ECONNRESET && r != -EPIPE)
			violation("not let in", endpoint, r);
		peer_close(&peer);
		return;
	}
	*session = peer.session;
	first_id = peer.next_id;
	for (unsigned i = 0; i < count; i++) {
		uint16_t method = pick_method(dice);

		/* A tally may have decoded to a delay of seconds: its reply is not waited for. */
		deferred[i] = method == RPC_TALLY;
		bytes += make_request(dice, &peer, method, space + bytes);
	}
	atomic_fetch_add(&all.requests, count);
	r = peer_write(&peer, space, bytes);
	if (r < 0 || !read_replies(&peer, deferred, first_id, count))
		violation("a request without a reply", endpoint, r);
	bytes = make_breach(dice, &peer, breach);
	atomic_fetch_add(&all.broken, 1);
	GX_IGNORE(peer_write(&peer, breach, bytes) < 0);
	expect_hangup(&peer, endpoint);
	peer_close(&peer);
}

static void storm(void *arg)
{
	struct dice dice = {all.seed + 1000 * (uint64_t)(uintptr_t)arg};
	uint64_t sessions[ENDPOINTS_MAX] = {0};

	for (;;) {
		unsigned which = below(&dice, all.endpoint_count);
		bool stranger = below(&dice, 3) > 0;
		unsigned count = stranger ? 0 : 1 + below(&dice, BURST_MAX);

		/* Its frames: the burst and the breach, or the one of a stranger. */
		if (atomic_fetch_sub(&all.frames_left, count + 1) <= 0)
			break;
		if (stranger)
			be_stranger(&dice, &all.endpoints[which]);
		else
			be_insider(&dice, &all.endpoints[which], count, &sessions[which]);
		/* Now and then as a new process would come. */
		if (below(&dice, 20) == 0)
			sessions[which] = 0;
	}
}

/* -- handshakes cut short ---------------------------------------------------------------------- */

/* The first bytes of a TLS client, caught on a socket pair. */
static size_t client_hello(unsigned char *space, size_t size)
{
	struct rpc_tls_ctx *ctx = NULL;
	struct rpc_stream stream = {0};
	ssize_t n = -1;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return 0;
	if (rpc_stream_init(&stream, all.env, fds[0]) == 0 &&
	    rpc_tls_ctx_new_client(all.env, all.key.identity, all.key.secret, &ctx) == 0 &&
	    rpc_tls_start(&stream, ctx) == 0 && rpc_stream_handshake(&stream, GX_NOWAIT) == -EAGAIN)
		n = recv(fds[1], space, size, MSG_DONTWAIT);
	rpc_stream_fini(&stream);
	rpc_tls_ctx_free(ctx);
	gx_env_close(all.env, fds[1]);
	return n > 0 ? (size_t)n : 0;
}

/* Sends `cut` bytes of the handshake's client side and goes; false: there are no more. */
static bool cut_plain(const struct rpc_endpoint *endpoint, size_t cut)
{
	struct rpc_handshake hs;
	struct rpc_frame frame;
	unsigned char *message = NULL;
	struct peer peer;
	size_t hello;
	bool more = true;

	if (!reach(&peer, endpoint))
		return false;
	if (!make_hello(&peer, &hs)) {
		peer_close(&peer);
		return false;
	}
	hello = hs.out.bytes;
	GX_IGNORE(peer_write(&peer, hs.out.data, GX_MIN(cut, hello)) < 0);
	if (cut >= hello) {
		gx_buf_clear(&hs.out);
		if (peer_read(&peer, &frame, &message) < 0 ||
		    rpc_handshake_step(&hs, &frame, message) != 0)
			violation("no challenge", endpoint, -EPROTO);
		else if (cut - hello >= hs.out.bytes)
			more = false;
		else
			GX_IGNORE(peer_write(&peer, hs.out.data, cut - hello) < 0);
		free(message);
	}
	if (cut % 2) {
		struct linger reset = {.l_onoff = 1, .l_linger = 0};

		setsockopt(peer.stream.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	}
	rpc_handshake_fini(&hs);
	peer_close(&peer);
	return more;
}

static void cut_handshakes(const struct rpc_endpoint *endpoint)
{
	unsigned char space[4096];
	size_t bytes = endpoint->tls ? client_hello(space, sizeof(space)) : 0;
	size_t cuts = 0;

	for (; endpoint->tls && cuts < bytes; cuts++) {
		struct peer peer;

		if (!reach(&peer, endpoint))
			return;
		GX_IGNORE(peer_write(&peer, space, cuts) < 0);
		peer_close(&peer);
	}
	while (!endpoint->tls && cut_plain(endpoint, cuts))
		cuts++;
	if (cuts < 150)
		violation("fewer cuts than a handshake has bytes", endpoint, -EPROTO);
}

/* -- half-open --------------------------------------------------------------------------------- */

static uint64_t ask_half_open(void)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	PbCore__StatsRequest request = PB_CORE__STATS_REQUEST__INIT;
	const PbCore__StatsReply *stats;
	struct rpc_client *client;
	struct rpc_reply reply;
	uint64_t half_open = 0;

	options.env = all.env;
	options.endpoint = all.endpoints[0];
	options.identity = all.admin.identity;
	options.key = all.admin.secret;
	if (rpc_client_new(&options, &client) < 0)
		return 0;
	if (core_call_stats(client, &request, NULL, &reply, &stats) == 0)
		half_open = stats->half_open;
	else
		fprintf(stderr, "cannot ask for counters: %s\n", reply.detail);
	rpc_reply_fini(&reply);
	rpc_client_free(client);
	return half_open;
}

/* Silent, in the middle of a HELLO, or waiting with a challenge: one third each. */
static void hold_half_open(struct peer *peers, unsigned count)
{
	const struct rpc_endpoint *endpoint = &all.endpoints[0];
	uint64_t seen;

	for (unsigned i = 0; i < count; i++) {
		struct rpc_handshake hs;

		if (!reach(&peers[i], endpoint) || i % 3 == 0 || !make_hello(&peers[i], &hs))
			continue;
		GX_IGNORE(peer_write(&peers[i], hs.out.data,
				     i % 3 == 1 ? hs.out.bytes / 2 : hs.out.bytes) < 0);
		rpc_handshake_fini(&hs);
	}
	seen = ask_half_open();
	printf("half-open connections held: %llu\n", (unsigned long long)seen);
	if (seen < count)
		violation("half-open connections were not kept", endpoint, -EPROTO);
}

/* -- slow, greedy and swollen
 * ----------------------------------------------------------------------- */

/* A byte every 50 ms is alive, but not in time. */
static void be_slow(void *arg)
{
	const struct rpc_endpoint *endpoint = arg;
	struct gx_pollfd pfd = {.events = GX_READABLE};
	struct rpc_handshake hs;
	struct peer peer;
	bool ended = false;

	if (!reach(&peer, endpoint) || !make_hello(&peer, &hs))
		return;
	pfd.fd = peer.stream.fd;
	for (size_t i = 0; i < hs.out.bytes && !ended; i++) {
		if (peer_write(&peer, hs.out.data + i, 1) < 0)
			ended = true;
		else if (gx_env_poll(all.env, &pfd, 1,
				     gx_env_now_ns(all.env) + 50 * GX_NSEC_PER_MSEC) > 0)
			ended = peer_expect_end(&peer) == 0;
	}
	if (!ended)
		violation("a byte at a time was let in", endpoint, -ETIMEDOUT);
	rpc_handshake_fini(&hs);
	peer_close(&peer);
}

/* Sends echoes without reading until the server stops taking them; then reads them all. */
static void be_greedy(void *arg)
{
	const struct rpc_endpoint *endpoint = arg;
	enum { DATA = 65536 };
	GX_AUTOFREE unsigned char *message = calloc(1, DATA + 4);
	GX_AUTOFREE unsigned char *space = malloc(RPC_FRAME_HEADER_BYTES + DATA + 4);
	uint64_t sent = 0, whole = 0;
	struct peer peer;
	int r = 0;

	if (!message || !space || peer_open(&peer, all.env, endpoint, &all.key, 0) < 0) {
		violation("not let in", endpoint, -EPROTO);
		return;
	}
	/* EchoRequest.data, field 1, with a three-byte length. */
	message[0] = 0x0a;
	message[1] = 0x80;
	message[2] = 0x80;
	message[3] = 0x04;
	while (r == 0 && sent < UNREAD_BYTES_MAX) {
		size_t bytes = peer_request(&peer, RPC_ECHO, message, DATA + 4, space);
		struct iovec iov = {space, bytes};

		/* Two seconds without taking a byte: it has stopped reading us. */
		r = rpc_stream_write_all(&peer.stream, &iov, 1,
					 gx_env_now_ns(all.env) + 2 * GX_NSEC_PER_SEC);
		sent += bytes;
		whole += r == 0;
	}
	if (r != -ETIMEDOUT)
		violation("takes requests without end from one who does not read", endpoint, r);
	for (uint64_t i = 0; r == -ETIMEDOUT && i < whole; i++) {
		struct rpc_frame frame;
		unsigned char *reply = NULL;

		if (peer_read(&peer, &frame, &reply) < 0) {
			violation("a reply was lost to back-pressure", endpoint, -EPROTO);
			break;
		}
		free(reply);
	}
	printf("without reading: %llu KiB taken\n", (unsigned long long)sent / 1024);
	peer_close(&peer);
}

/* 1 MiB of two-byte unknown fields would unpack to 44 times its size. */
static void be_swollen(const struct rpc_endpoint *endpoint)
{
	GX_AUTOFREE unsigned char *message = malloc(GX_MESSAGE_MAX);
	struct peer peer;

	if (!message || peer_open(&peer, all.env, endpoint, &all.key, 0) < 0) {
		violation("not let in", endpoint, -EPROTO);
		return;
	}
	for (size_t i = 0; i < GX_MESSAGE_MAX; i += 2) {
		message[i] = 0x78; /* field 15, varint */
		message[i + 1] = 0x01;
	}
	for (int i = 0; i < 5; i++) {
		int status = peer_call(&peer, RPC_ECHO, message, GX_MESSAGE_MAX);

		if (status != RPC_STATUS_TOOBIG)
			violation("a swollen message is not TOOBIG", endpoint, status);
	}
	if (peer_call(&peer, RPC_PING, NULL, 0) != RPC_STATUS_OK)
		violation("no ping after a swollen message", endpoint, -EPROTO);
	peer_close(&peer);
}

/* -- all of it
 * ------------------------------------------------------------------------------------------ */

static void start(struct gx_thread *thread, gx_thread_fn fn, void *arg)
{
	if (gx_env_thread_start(all.env, thread, "hostile", fn, arg) < 0) {
		fprintf(stderr, "hostile: no thread\n");
		exit(1);
	}
}

static void attack(void)
{
	static struct peer half_open[HALF_OPEN];
	struct gx_thread threads[WORKERS + 2 * ENDPOINTS_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < all.endpoint_count; i++)
		cut_handshakes(&all.endpoints[i]);
	hold_half_open(half_open, HALF_OPEN);
	for (unsigned i = 0; i < all.endpoint_count; i++) {
		start(&threads[count++], be_slow, &all.endpoints[i]);
		if (i < 2)
			start(&threads[count++], be_greedy, &all.endpoints[i]);
	}
	for (uintptr_t i = 0; i < WORKERS; i++)
		start(&threads[count++], storm, (void *)i);
	for (unsigned i = 0; i < all.endpoint_count; i++)
		be_swollen(&all.endpoints[i]);
	while (count > 0)
		gx_env_thread_join(all.env, &threads[--count]);
	for (unsigned i = 0; i < HALF_OPEN; i++)
		peer_close(&half_open[i]);
}

int main(int argc, char **argv)
{
	uint64_t frames;
	int64_t begin_ns;

	all.env = gx_env_posix();
	if (argc < 6 || argc - 5 > ENDPOINTS_MAX || gx_parse_u64(argv[1], &frames) < 0 ||
	    gx_parse_u64(argv[2], &all.seed) < 0) {
		fprintf(stderr, "usage: hostile FRAMES SEED KEYFILE ADMINKEY ADDRESS...\n");
		return 2;
	}
	peer_arguments(all.env, argv[5], argv[4], &all.endpoints[0], &all.admin);
	for (int i = 5; i < argc; i++)
		peer_arguments(all.env, argv[i], argv[3], &all.endpoints[all.endpoint_count++],
			       &all.key);
	all.frames_left = (int64_t)frames;
	printf("seed %llu\n", (unsigned long long)all.seed);
	begin_ns = gx_env_now_ns(all.env);
	attack();
	printf("%llu frames: %llu requests (%llu replies), %llu breaches, %llu strangers; "
	       "%llu violations; %.1f s\n",
	       (unsigned long long)(all.requests + all.broken + all.strangers),
	       (unsigned long long)all.requests, (unsigned long long)all.replies,
	       (unsigned long long)all.broken, (unsigned long long)all.strangers,
	       (unsigned long long)all.violations,
	       (double)(gx_env_now_ns(all.env) - begin_ns) / 1e9);
	return all.violations > 0;
}
