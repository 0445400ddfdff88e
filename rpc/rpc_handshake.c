#include "rpc/rpc_handshake.h"
#include "common/gx_num.h"
#include "common/gx_secret.h"
#include "core.pb-c.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_status.h"
#include "rpc/rpc_stream.h"

#define NONCE_BYTES 32u
#define MAC_BYTES 32u
#define TRANSCRIPT_MAX (3 * GX_HELLO_MAX + 2 * GX_ADDR_TEXT_MAX)
/* Handshake messages are small and flat: nothing honest unpacks to more. */
#define UNPACK_MAX (16u * 1024)

enum {
	SERVER_WAITS_HELLO,
	SERVER_WAITS_PROOF,
	CLIENT_WAITS_CHALLENGE,
	CLIENT_WAITS_WELCOME,
	DONE,
	FAILED,
};

static int fail(struct rpc_handshake *hs, int err, const char *reason)
{
	hs->state = FAILED;
	hs->reason = reason;
	return err;
}

/* -- frames out ----------------------------------------------------------------- */

static int append_frame(struct gx_buf *out, enum rpc_frame_type type, uint16_t code,
			const void *message, size_t bytes)
{
	struct rpc_frame frame = {.type = type, .code = code, .message_bytes = (uint32_t)bytes};
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	int r;

	rpc_frame_encode(&frame, message, 0, header);
	r = gx_buf_append(out, header, sizeof(header));
	return r < 0 ? r : gx_buf_append(out, message, bytes);
}

/* Packs and queues a message; with `record` it becomes part of the transcript too. */
static int send_message(struct rpc_handshake *hs, enum rpc_frame_type type,
			const ProtobufCMessage *message, bool record)
{
	unsigned char packed[GX_HELLO_MAX];
	size_t bytes = protobuf_c_message_get_packed_size(message);
	int r = 0;

	if (bytes > sizeof(packed))
		return -E2BIG;
	protobuf_c_message_pack(message, packed);
	if (record)
		r = gx_buf_append(&hs->transcript, packed, bytes);
	return r < 0 ? r : append_frame(&hs->out, type, 0, packed, bytes);
}

int rpc_handshake_refuse(struct gx_buf *out, int err, const char *detail)
{
	size_t bytes = GX_MIN(strlen(detail), (size_t)GX_DETAIL_MAX);

	return append_frame(out, RPC_FRAME_REFUSED, (uint16_t)rpc_status_from_errno(err, NULL),
			    detail, bytes);
}

/* Server: tells the peer no (and not why), the log why. */
static int refuse(struct rpc_handshake *hs, int err, const char *reason)
{
	const char *told = err == -EKEYREJECTED ? "authentication failed" : reason;

	(void)rpc_handshake_refuse(&hs->out, err, told);
	return fail(hs, err, reason);
}

/* -- transcript ------------------------------------------------------------------ */

static int transcript_close(struct rpc_handshake *hs)
{
	char text[GX_ADDR_TEXT_MAX];
	int r;

	/* With the terminating NUL, so that two addresses cannot run into each other. */
	gx_addr_format(&hs->client_addr, text);
	r = gx_buf_append(&hs->transcript, text, strlen(text) + 1);
	if (r < 0)
		return r;
	gx_addr_format(&hs->server_addr, text);
	return gx_buf_append(&hs->transcript, text, strlen(text) + 1);
}

static int transcript_mac(struct rpc_handshake *hs, const unsigned char *key, const char *label,
			  unsigned char ret_mac[MAC_BYTES])
{
	int r = gx_fault_check(hs->env, GX_FAULT_CRYPTO);

	if (r < 0)
		return r;
	return rpc_auth_mac(key, label, hs->transcript.data, hs->transcript.bytes, ret_mac);
}

static const char label_client[] = "gridstage handshake client";
static const char label_server[] = "gridstage handshake server";
static const char label_secret[] = "gridstage handshake frames";

static int derive_secret(struct rpc_handshake *hs, const unsigned char *key)
{
	unsigned char mac[MAC_BYTES];
	int r = transcript_mac(hs, key, label_secret, mac);

	if (r < 0)
		return r;
	hs->secret = gx_get_le64(mac);
	gx_wipe(mac, sizeof(mac));
	return 0;
}

/* -- server ----------------------------------------------------------------------- */

void rpc_handshake_init_server(struct rpc_handshake *hs, struct gx_env *env,
			       const struct rpc_handshake_server *server, bool tls,
			       const struct rpc_peer *tls_peer, const struct gx_addr *local,
			       const struct gx_addr *remote)
{
	*hs = (struct rpc_handshake){
		.env = env,
		.tls = tls,
		.state = SERVER_WAITS_HELLO,
		.server = server,
		.tls_peer = tls_peer,
		.client_addr = *remote,
		.server_addr = *local,
		.boot = server->boot,
	};
	gx_buf_init(&hs->transcript, TRANSCRIPT_MAX);
	gx_buf_init(&hs->out, 4 * GX_HELLO_MAX);
}

static int server_open_session(struct rpc_handshake *hs)
{
	int r = hs->server->session(hs->server->session_arg, &hs->peer, hs->session_asked,
				    &hs->session, &hs->session_known);

	return r < 0 ? refuse(hs, r, "session refused") : 0;
}

/*
 * The server's mac: over the transcript and the welcome itself, mac left out, so that nobody
 * changes the session on the way. Packed again from the fields: what a newer peer may add to the
 * end stays covered.
 */
static int welcome_mac(struct rpc_handshake *hs, const unsigned char *key,
		       const PbCore__Welcome *welcome, unsigned char ret_mac[MAC_BYTES])
{
	PbCore__Welcome bare = *welcome;
	unsigned char packed[GX_HELLO_MAX];
	int r;

	bare.mac = (ProtobufCBinaryData){0, NULL};
	if (pb_core__welcome__get_packed_size(&bare) > sizeof(packed))
		return -E2BIG;
	r = gx_buf_append(&hs->transcript, packed, pb_core__welcome__pack(&bare, packed));
	return r < 0 ? r : transcript_mac(hs, key, label_server, ret_mac);
}

static int server_welcome(struct rpc_handshake *hs)
{
	PbCore__Welcome welcome = PB_CORE__WELCOME__INIT;
	unsigned char mac[MAC_BYTES];
	int r = server_open_session(hs);

	if (r < 0)
		return r;
	welcome.version = hs->version;
	welcome.features = hs->features;
	welcome.session = hs->session;
	welcome.session_known = hs->session_known;
	welcome.boot = hs->boot;
	welcome.server = (char *)hs->server->name;
	if (!hs->tls) {
		r = welcome_mac(hs, hs->key, &welcome, mac);
		if (r < 0)
			return refuse(hs, r, "cannot make the welcome");
		welcome.mac = (ProtobufCBinaryData){sizeof(mac), mac};
	}
	r = send_message(hs, RPC_FRAME_WELCOME, &welcome.base, false);
	if (r < 0)
		return fail(hs, r, "cannot send the welcome");
	hs->state = DONE;
	return 1;
}

/* A key nobody has, so that an unknown user fails exactly where a wrong key does. */
static int server_take_key(struct rpc_handshake *hs)
{
	int r = rpc_auth_find(hs->server->auth, hs->claimed, &hs->peer, hs->key, &hs->refusal);

	if (r == -EKEYREJECTED) {
		r = gx_env_random(hs->env, hs->key, sizeof(hs->key));
		if (r < 0)
			return r;
	}
	return r;
}

static int server_challenge(struct rpc_handshake *hs, const void *hello, size_t hello_bytes)
{
	PbCore__Challenge challenge = PB_CORE__CHALLENGE__INIT;
	unsigned char nonce[NONCE_BYTES];
	int r;

	r = server_take_key(hs);
	if (r == 0)
		r = gx_env_random(hs->env, nonce, sizeof(nonce));
	if (r == 0)
		r = gx_buf_append(&hs->transcript, hello, hello_bytes);
	if (r == 0) {
		challenge.version = hs->version;
		challenge.features = hs->features;
		challenge.nonce.data = nonce;
		challenge.nonce.len = sizeof(nonce);
		challenge.server = (char *)hs->server->name;
		r = send_message(hs, RPC_FRAME_CHALLENGE, &challenge.base, true);
	}
	if (r == 0)
		r = transcript_close(hs);
	if (r < 0)
		return fail(hs, r, "cannot make a challenge");
	hs->state = SERVER_WAITS_PROOF;
	return 0;
}

static int server_hello(struct rpc_handshake *hs, struct rpc_arena *arena, const void *bytes,
			size_t byte_count)
{
	ProtobufCMessage *message;
	const PbCore__Hello *hello;
	uint32_t mechanism = hs->tls ? RPC_MECHANISM_TLS_PSK : RPC_MECHANISM_HMAC;
	int r;

	r = rpc_arena_unpack(arena, &pb_core__hello__descriptor, bytes, byte_count, &message);
	if (r < 0)
		return refuse(hs, r, "malformed hello");
	hello = (const PbCore__Hello *)message;
	if (gx_strcpy(hs->claimed, sizeof(hs->claimed), hello->identity) < 0)
		return refuse(hs, -EPROTO, "identity too long");
	(void)gx_format(hs->program, sizeof(hs->program), "%s", hello->program);
	if (hello->mechanism != mechanism)
		return refuse(hs, -EKEYREJECTED, "mechanism not offered here (downgrade)");
	if (hello->nonce.len != NONCE_BYTES)
		return refuse(hs, -EPROTO, "nonce has the wrong size");
	if (hello->channel >= RPC_CHANNEL_COUNT)
		return refuse(hs, -EPROTO, "unknown channel");
	if (hello->version_min > RPC_PROTOCOL_MAX || hello->version_max < RPC_PROTOCOL_MIN ||
	    hello->version_min > hello->version_max)
		return refuse(hs, -EPROTONOSUPPORT, "no common protocol version");
	hs->version = GX_MIN(hello->version_max, RPC_PROTOCOL_MAX);
	hs->features = hello->features & RPC_FEATURES_ALL;
	hs->session_asked = hello->session;
	hs->channel = (enum rpc_channel)hello->channel;
	if (!hs->tls)
		return server_challenge(hs, bytes, byte_count);
	/* The ticket's text is the PSK identity; the peer's own name is inside it. */
	if (!hs->tls_peer ||
	    (!hs->tls_peer->by_ticket && strcmp(hs->claimed, hs->tls_peer->identity) != 0))
		return refuse(hs, -EKEYREJECTED, "identity differs from the TLS one");
	hs->peer = *hs->tls_peer;
	return server_welcome(hs);
}

static int server_proof(struct rpc_handshake *hs, struct rpc_arena *arena, const void *bytes,
			size_t byte_count)
{
	unsigned char mac[MAC_BYTES];
	ProtobufCMessage *message;
	const PbCore__Proof *proof;
	bool good;
	int r;

	r = rpc_arena_unpack(arena, &pb_core__proof__descriptor, bytes, byte_count, &message);
	if (r < 0)
		return refuse(hs, r, "malformed proof");
	proof = (const PbCore__Proof *)message;
	r = transcript_mac(hs, hs->key, label_client, mac);
	if (r < 0)
		return refuse(hs, r, "cannot check the proof");
	good = proof->mac.len == MAC_BYTES && gx_equal_secret(proof->mac.data, mac, MAC_BYTES);
	if (!good || hs->refusal)
		return refuse(hs, -EKEYREJECTED,
			      hs->refusal ? hs->refusal : "wrong key or changed handshake");
	r = derive_secret(hs, hs->key);
	if (r < 0)
		return refuse(hs, r, "cannot make the welcome");
	return server_welcome(hs);
}

/* -- client ----------------------------------------------------------------------- */

int rpc_handshake_init_client(struct rpc_handshake *hs, struct gx_env *env,
			      const struct rpc_handshake_client *client, bool tls,
			      const struct gx_addr *local, const struct gx_addr *remote)
{
	PbCore__Hello hello = PB_CORE__HELLO__INIT;
	unsigned char nonce[NONCE_BYTES];
	int r;

	*hs = (struct rpc_handshake){
		.env = env,
		.tls = tls,
		.state = tls ? CLIENT_WAITS_WELCOME : CLIENT_WAITS_CHALLENGE,
		.client = *client,
		.client_addr = *local,
		.server_addr = *remote,
		.channel = client->channel,
	};
	gx_buf_init(&hs->transcript, TRANSCRIPT_MAX);
	gx_buf_init(&hs->out, 4 * GX_HELLO_MAX);
	r = gx_env_random(env, nonce, sizeof(nonce));
	if (r < 0)
		return fail(hs, r, "no random numbers");
	hello.version_min = RPC_PROTOCOL_MIN;
	hello.version_max = RPC_PROTOCOL_MAX;
	hello.features = RPC_FEATURES_ALL;
	hello.mechanism = tls ? RPC_MECHANISM_TLS_PSK : RPC_MECHANISM_HMAC;
	hello.identity = (char *)client->identity;
	hello.nonce.data = nonce;
	hello.nonce.len = sizeof(nonce);
	hello.session = client->session;
	hello.channel = client->channel;
	hello.program = (char *)client->program;
	r = send_message(hs, RPC_FRAME_HELLO, &hello.base, true);
	return r < 0 ? fail(hs, r, "cannot make the hello") : 0;
}

static int client_challenge(struct rpc_handshake *hs, struct rpc_arena *arena, const void *bytes,
			    size_t byte_count)
{
	PbCore__Proof proof = PB_CORE__PROOF__INIT;
	unsigned char mac[MAC_BYTES];
	ProtobufCMessage *message;
	const PbCore__Challenge *challenge;
	int r;

	r = rpc_arena_unpack(arena, &pb_core__challenge__descriptor, bytes, byte_count, &message);
	if (r < 0)
		return fail(hs, r, "malformed challenge");
	challenge = (const PbCore__Challenge *)message;
	if (challenge->version < RPC_PROTOCOL_MIN || challenge->version > RPC_PROTOCOL_MAX)
		return fail(hs, -EPROTONOSUPPORT, "the server chose a version we do not speak");
	if (challenge->features & ~RPC_FEATURES_ALL || challenge->nonce.len != NONCE_BYTES)
		return fail(hs, -EPROTO, "malformed challenge");
	hs->version = challenge->version;
	hs->features = challenge->features;
	r = gx_buf_append(&hs->transcript, bytes, byte_count);
	if (r == 0)
		r = transcript_close(hs);
	if (r == 0)
		r = transcript_mac(hs, hs->client.key, label_client, mac);
	if (r < 0)
		return fail(hs, r, "cannot make the proof");
	proof.mac.data = mac;
	proof.mac.len = sizeof(mac);
	r = send_message(hs, RPC_FRAME_PROOF, &proof.base, false);
	if (r < 0)
		return fail(hs, r, "cannot make the proof");
	hs->state = CLIENT_WAITS_WELCOME;
	return 0;
}

static int client_check_mac(struct rpc_handshake *hs, const PbCore__Welcome *welcome)
{
	unsigned char mac[MAC_BYTES];
	int r = derive_secret(hs, hs->client.key);

	if (r == 0)
		r = welcome_mac(hs, hs->client.key, welcome, mac);
	if (r < 0)
		return fail(hs, r, "cannot check the welcome");
	if (welcome->mac.len != MAC_BYTES || !gx_equal_secret(welcome->mac.data, mac, MAC_BYTES) ||
	    welcome->version != hs->version || welcome->features != hs->features)
		return fail(hs, -EKEYREJECTED, "the server does not know our key");
	return 0;
}

static int client_welcome(struct rpc_handshake *hs, struct rpc_arena *arena, const void *bytes,
			  size_t byte_count)
{
	ProtobufCMessage *message;
	const PbCore__Welcome *welcome;
	int r;

	r = rpc_arena_unpack(arena, &pb_core__welcome__descriptor, bytes, byte_count, &message);
	if (r < 0)
		return fail(hs, r, "malformed welcome");
	welcome = (const PbCore__Welcome *)message;
	if (!hs->tls) {
		r = client_check_mac(hs, welcome);
		if (r < 0)
			return r;
	} else if (welcome->version < RPC_PROTOCOL_MIN || welcome->version > RPC_PROTOCOL_MAX) {
		return fail(hs, -EPROTONOSUPPORT, "the server chose a version we do not speak");
	}
	hs->version = welcome->version;
	hs->features = welcome->features & RPC_FEATURES_ALL;
	hs->session = welcome->session;
	hs->session_known = welcome->session_known;
	hs->boot = welcome->boot;
	(void)gx_format(hs->server_name, sizeof(hs->server_name), "%s", welcome->server);
	hs->state = DONE;
	return 1;
}

static int client_refused(struct rpc_handshake *hs, const struct rpc_frame *frame,
			  const void *message)
{
	int err = rpc_status_to_errno(frame->code);

	rpc_detail_copy(message, frame->message_bytes, hs->detail);
	return fail(hs, err < 0 ? err : -EPROTO, "refused by the server");
}

/* -- both --------------------------------------------------------------------------- */

void rpc_handshake_fini(struct rpc_handshake *hs)
{
	gx_buf_wipe(&hs->transcript);
	gx_buf_fini(&hs->out);
	gx_wipe(hs->key, sizeof(hs->key));
}

void rpc_handshake_limits(const struct rpc_handshake *hs, struct rpc_frame_limits *ret_limits)
{
	uint32_t types = 0;

	switch (hs->state) {
	case SERVER_WAITS_HELLO:
		types = UINT32_C(1) << RPC_FRAME_HELLO;
		break;
	case SERVER_WAITS_PROOF:
		types = UINT32_C(1) << RPC_FRAME_PROOF;
		break;
	case CLIENT_WAITS_CHALLENGE:
		types = UINT32_C(1) << RPC_FRAME_CHALLENGE | UINT32_C(1) << RPC_FRAME_REFUSED;
		break;
	case CLIENT_WAITS_WELCOME:
		types = UINT32_C(1) << RPC_FRAME_WELCOME | UINT32_C(1) << RPC_FRAME_REFUSED;
		break;
	default:
		break;
	}
	*ret_limits = (struct rpc_frame_limits){types, GX_HELLO_MAX, 0};
}

int rpc_handshake_step(struct rpc_handshake *hs, const struct rpc_frame *frame, const void *message)
{
	struct rpc_arena arena;
	size_t bytes = frame->message_bytes;
	int r;

	rpc_arena_init(&arena, UNPACK_MAX);
	if (frame->type == RPC_FRAME_REFUSED)
		r = client_refused(hs, frame, message);
	else if (hs->state == SERVER_WAITS_HELLO)
		r = server_hello(hs, &arena, message, bytes);
	else if (hs->state == SERVER_WAITS_PROOF)
		r = server_proof(hs, &arena, message, bytes);
	else if (hs->state == CLIENT_WAITS_CHALLENGE)
		r = client_challenge(hs, &arena, message, bytes);
	else if (hs->state == CLIENT_WAITS_WELCOME)
		r = client_welcome(hs, &arena, message, bytes);
	else
		r = -EPROTO;
	rpc_arena_clear(&arena);
	return r;
}

static int read_frame(struct rpc_handshake *hs, struct rpc_stream *stream, int64_t deadline_ns)
{
	unsigned char bytes[RPC_FRAME_HEADER_BYTES + GX_HELLO_MAX];
	unsigned char *message = bytes + RPC_FRAME_HEADER_BYTES;
	struct rpc_frame_limits limits;
	struct rpc_frame frame;
	int r;

	r = rpc_stream_read_all(stream, bytes, RPC_FRAME_HEADER_BYTES, deadline_ns);
	if (r < 0) {
		/* A TLS server answers a plain hello with a short alert and hangs up. */
		return fail(hs, r, r == -EPIPE ? "hung up (does it want TLS?)" : gx_strerror(r));
	}
	rpc_handshake_limits(hs, &limits);
	r = rpc_frame_decode(bytes, &limits, &frame, &hs->reason);
	if (r < 0)
		return fail(hs, r, hs->reason);
	r = rpc_stream_read_all(stream, message, frame.message_bytes, deadline_ns);
	if (r == 0)
		r = rpc_frame_verify(bytes, message, frame.message_bytes, 0);
	if (r < 0)
		return fail(hs, r, "broken handshake frame");
	return rpc_handshake_step(hs, &frame, message);
}

int rpc_handshake_round(struct rpc_handshake *hs, struct rpc_stream *stream, int64_t deadline_ns)
{
	int r = read_frame(hs, stream, deadline_ns);
	struct iovec iov = {hs->out.data, hs->out.bytes};
	int sent = rpc_stream_write_all(stream, &iov, 1, deadline_ns);

	gx_buf_clear(&hs->out);
	if (r >= 0 && sent < 0)
		return fail(hs, sent, gx_strerror(sent));
	return r;
}
