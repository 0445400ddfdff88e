/*
 * peer.h - a client made by hand, for test programs that misbehave on purpose.
 *
 * The product's client (rpc_chan.h) cannot send a broken frame or stop in the
 * middle of a handshake; this one can. Blocking, one thread per peer, every wait
 * has a deadline. Header only: each program in this folder is one file.
 */
#ifndef TESTS_TOOLS_PEER_H
#define TESTS_TOOLS_PEER_H

#include "common/gx_num.h"
#include "common/gx_sum.h"
#include "rpc/rpc_chan.h"
#include "rpc/rpc_key.h"
#include "rpc/rpc_status.h"
#include <stdio.h>

#define PEER_WAIT_NS (20 * GX_NSEC_PER_SEC)

struct peer {
	struct gx_env *env;
	struct rpc_stream stream;
	struct rpc_tls_ctx *tls; /* owned; NULL: plain */
	uint64_t secret;         /* of the frame check; 0 before the handshake */
	uint64_t session;
	uint64_t next_id;
	struct gx_buf sent; /* handshake bytes, as they went out */
	char reason[GX_DETAIL_MAX + 64];
};

GX_UNUSED static int64_t peer_deadline(const struct peer *peer)
{
	return gx_env_now_ns(peer->env) + PEER_WAIT_NS;
}

GX_UNUSED static void peer_close(struct peer *peer)
{
	if (!peer->env)
		return;
	rpc_stream_fini(&peer->stream);
	rpc_tls_ctx_free(peer->tls);
	gx_buf_fini(&peer->sent);
	memset(peer, 0, sizeof(*peer));
}

/* Only the socket: nothing has been sent. */
GX_UNUSED GX_MUST_CHECK static int peer_connect(struct peer *peer, struct gx_env *env,
						const struct rpc_endpoint *endpoint)
{
	int fd, r;

	memset(peer, 0, sizeof(*peer));
	fd = gx_env_connect(env, &endpoint->addr, gx_env_now_ns(env) + PEER_WAIT_NS);
	if (fd < 0)
		return fd;
	r = rpc_stream_init(&peer->stream, env, fd);
	if (r < 0)
		return r;
	peer->env = env;
	peer->next_id = 1;
	gx_buf_init(&peer->sent, 16 * GX_HELLO_MAX);
	return 0;
}

GX_UNUSED GX_MUST_CHECK static int peer_write(struct peer *peer, const void *data, size_t bytes)
{
	struct iovec iov = {(void *)data, bytes};

	return rpc_stream_write_all(&peer->stream, &iov, 1, peer_deadline(peer));
}

/* 0 when the server hung up (also with a reset), -EEXIST when it said something instead. */
GX_UNUSED GX_MUST_CHECK static int peer_expect_end(struct peer *peer)
{
	unsigned char space[4096];
	struct iovec iov = {space, sizeof(space)};
	ssize_t n = rpc_stream_readv(&peer->stream, &iov, 1, peer_deadline(peer));

	if (n > 0)
		return -EEXIST;
	return n == -ETIMEDOUT ? -ETIMEDOUT : 0;
}

/* Reads and throws away until the server hangs up. -ETIMEDOUT if it never does. */
GX_UNUSED GX_MUST_CHECK static int peer_drain(struct peer *peer)
{
	int r;

	do {
		r = peer_expect_end(peer);
	} while (r == -EEXIST);
	return r;
}

/* One frame with any message; *ret_message is malloc'd. */
GX_UNUSED GX_MUST_CHECK static int peer_read(struct peer *peer, struct rpc_frame *ret_frame,
					     unsigned char **ret_message)
{
	static const struct rpc_frame_limits limits = {UINT32_MAX, GX_MESSAGE_MAX, GX_PAYLOAD_MAX};
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	unsigned char *message;
	int r = rpc_stream_read_all(&peer->stream, header, sizeof(header), peer_deadline(peer));

	if (r == 0)
		r = rpc_frame_decode(header, &limits, ret_frame, NULL);
	if (r < 0)
		return r;
	message = malloc(ret_frame->message_bytes + 1);
	if (!message)
		return -ENOMEM;
	r = rpc_stream_read_all(&peer->stream, message, ret_frame->message_bytes,
				peer_deadline(peer));
	if (r == 0)
		r = rpc_frame_verify(header, message, ret_frame->message_bytes, peer->secret);
	for (uint64_t left = ret_frame->payload_bytes; r == 0 && left > 0;) {
		unsigned char space[65536];
		size_t part = (size_t)GX_MIN(left, (uint64_t)sizeof(space));

		r = rpc_stream_read_all(&peer->stream, space, part, peer_deadline(peer));
		left -= part;
	}
	if (r < 0) {
		free(message);
		return r;
	}
	*ret_message = message;
	return 0;
}

GX_UNUSED static int peer_send_handshake(struct peer *peer, struct rpc_handshake *hs)
{
	int r = peer_write(peer, hs->out.data, hs->out.bytes);

	if (r == 0)
		r = gx_buf_append(&peer->sent, hs->out.data, hs->out.bytes);
	gx_buf_clear(&hs->out);
	return r;
}

/*
 * The whole handshake, honest; `session` to resume or 0. After a refusal
 * peer->reason holds what the server said.
 */
GX_UNUSED GX_MUST_CHECK static int peer_handshake(struct peer *peer, bool tls,
						  const struct rpc_key *key, uint64_t session)
{
	struct rpc_handshake_client client = {
		.identity = key->identity,
		.key = key->secret,
		.program = "test-peer",
		.session = session,
	};
	struct rpc_handshake hs;
	int r;

	if (tls) {
		r = rpc_tls_ctx_new_client(peer->env, key->identity, key->secret, &peer->tls);
		if (r == 0)
			r = rpc_tls_start(&peer->stream, peer->tls);
		if (r == 0)
			r = rpc_stream_handshake(&peer->stream, peer_deadline(peer));
		if (r < 0)
			return r;
	}
	r = rpc_handshake_init_client(&hs, peer->env, &client, tls, &peer->stream.local,
				      &peer->stream.remote);
	if (r == 0)
		r = peer_send_handshake(peer, &hs);
	while (r == 0) {
		struct rpc_frame frame;
		unsigned char *message = NULL;

		r = peer_read(peer, &frame, &message);
		if (r == 0) {
			r = rpc_handshake_step(&hs, &frame, message);
			free(message);
		}
		if (hs.out.bytes > 0) {
			int sent = peer_send_handshake(peer, &hs);

			if (sent < 0)
				r = sent;
		}
	}
	if (r == 1) {
		peer->secret = hs.secret;
		peer->session = hs.session;
	}
	(void)gx_format(peer->reason, sizeof(peer->reason), "%s",
			hs.detail[0] ? hs.detail
			: hs.reason  ? hs.reason
				     : gx_strerror(r));
	rpc_handshake_fini(&hs);
	return r < 0 ? r : 0;
}

/* Connects and authenticates. */
GX_UNUSED GX_MUST_CHECK static int peer_open(struct peer *peer, struct gx_env *env,
					     const struct rpc_endpoint *endpoint,
					     const struct rpc_key *key, uint64_t session)
{
	int r = peer_connect(peer, env, endpoint);

	if (r == 0)
		r = peer_handshake(peer, endpoint->tls, key, session);
	return r;
}

/* Puts the right check into a header whose other fields may be as wrong as one likes. */
GX_UNUSED static void peer_seal(unsigned char *header, const void *message, uint32_t bytes,
				uint64_t secret)
{
	uint64_t sum = gx_sum64_seed(header, 56, secret);

	gx_put_le64(header + 56, bytes > 0 ? gx_sum64_seed(message, bytes, sum) : sum);
}

/* A request frame into `space` (header and message); its size. */
GX_UNUSED static size_t peer_request(struct peer *peer, uint16_t method, const void *message,
				     uint32_t bytes, unsigned char *space)
{
	struct rpc_frame frame = {
		.type = RPC_FRAME_REQUEST,
		.code = method,
		.message_bytes = bytes,
		.id = peer->next_id++,
		.trace = peer->next_id,
		.time_ms = 10000,
	};

	rpc_frame_encode(&frame, message, peer->secret, space);
	if (bytes > 0)
		memcpy(space + RPC_FRAME_HEADER_BYTES, message, bytes);
	return RPC_FRAME_HEADER_BYTES + bytes;
}

/* Sends a request and reads its reply; the wire status, or negative. */
GX_UNUSED GX_MUST_CHECK static int peer_call(struct peer *peer, uint16_t method,
					     const void *message, uint32_t bytes)
{
	unsigned char *space = malloc(RPC_FRAME_HEADER_BYTES + (size_t)bytes);
	struct rpc_frame frame;
	unsigned char *reply = NULL;
	uint64_t id = peer->next_id;
	int r;

	if (!space)
		return -ENOMEM;
	r = peer_write(peer, space, peer_request(peer, method, message, bytes, space));
	free(space);
	/* A server that is slow says that it is still at work. */
	frame.type = RPC_FRAME_PROGRESS;
	while (r == 0 && frame.type == RPC_FRAME_PROGRESS) {
		r = peer_read(peer, &frame, &reply);
		free(GX_TAKE(reply));
	}
	if (r < 0)
		return r;
	return frame.type == RPC_FRAME_REPLY && frame.id == id ? frame.code : -EPROTO;
}

/* -- what every program here starts with ------------------------------------------ */

/* For main(): an endpoint and a key, or exit 2 with a message. */
GX_UNUSED static void peer_arguments(struct gx_env *env, const char *address, const char *key_path,
				     struct rpc_endpoint *ret_endpoint, struct rpc_key *ret_key)
{
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, 4096);
	r = rpc_endpoint_parse(env, address, false, ret_endpoint, &errors);
	if (r == 0)
		r = rpc_key_load(env, key_path, ret_key, &errors);
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", gx_strerror(r), gx_buf_text(&errors));
		exit(2);
	}
	gx_buf_fini(&errors);
}

#endif
