/*
 * The handshake: the input is a sequence of frames (type, length, message) for a server, or with
 * the first byte odd for a client. Without the key nobody gets through.
 */
#include "common/gx_num.h"
#include "rpc/rpc_handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Random numbers that are none, so that an input always does the same. */
static int fixed_random(struct gx_env *env GX_UNUSED, void *buf, size_t bytes)
{
	memset(buf, 0x5a, bytes);
	return 0;
}

static int no_session(void *arg GX_UNUSED, const struct rpc_peer *peer GX_UNUSED, uint64_t asked,
		      uint64_t *ret_session, bool *ret_known)
{
	*ret_session = asked ? asked : 1;
	*ret_known = asked != 0;
	return 0;
}

static void feed(struct rpc_handshake *hs, const uint8_t *data, size_t bytes)
{
	bool may_finish = hs->tls; /* there TLS has proven who it is */

	while (bytes >= 3) {
		struct rpc_frame frame = {.type = (enum rpc_frame_type)(data[0] & 7),
					  .message_bytes =
						  gx_get_le16(data + 1) % (GX_HELLO_MAX + 1)};
		unsigned char header[RPC_FRAME_HEADER_BYTES];
		struct rpc_frame_limits limits;
		int r;

		frame.message_bytes = (uint32_t)GX_MIN((size_t)frame.message_bytes, bytes - 3);
		frame.code = frame.type == RPC_FRAME_REFUSED ? data[1] : 0;
		rpc_frame_encode(&frame, data + 3, 0, header);
		rpc_handshake_limits(hs, &limits);
		if (rpc_frame_decode(header, &limits, &frame, NULL) < 0)
			return;
		r = rpc_handshake_step(hs, &frame, data + 3);
		gx_assert(r <= 1);
		gx_assert(r != 1 || may_finish);
		gx_assert(r >= 0 || hs->reason);
		gx_assert(hs->out.bytes <= 2 * (RPC_FRAME_HEADER_BYTES + GX_HELLO_MAX));
		gx_buf_clear(&hs->out);
		if (r != 0)
			return;
		data += 3 + frame.message_bytes;
		bytes -= 3 + frame.message_bytes;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const unsigned char secret[RPC_KEY_BYTES] = {0x13, 0x37, 0xc0, 0xde};
	static const struct rpc_peer tls_peer = {.kind = RPC_IDENTITY_USER,
						 .identity = "user:alice"};
	struct gx_env_ops ops = *gx_env_posix()->ops;
	struct gx_env env = {.ops = &ops};
	struct gx_addr addr = {.kind = GX_ADDR_MEM, .mem_name = "x"};
	struct rpc_key key = {.kind = RPC_IDENTITY_USER, .identity = "user:alice"};
	struct rpc_handshake hs;
	bool tls;

	if (bytes < 1)
		return 0;
	ops.random = fixed_random;
	tls = data[0] & 2;
	memcpy(key.secret, secret, sizeof(secret));
	if (data[0] & 1) {
		struct rpc_handshake_client client = {
			.identity = "user:alice", .key = secret, .program = "fuzz"};

		gx_assert(rpc_handshake_init_client(&hs, &env, &client, tls, &addr, &addr) == 0);
		feed(&hs, data + 1, bytes - 1);
		rpc_handshake_fini(&hs);
	} else {
		GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *keys = NULL;
		struct rpc_auth auth = {.env = &env, .node = "node"};
		struct rpc_handshake_server server = {
			.auth = &auth, .name = "fuzz", .session = no_session};

		gx_assert(rpc_keytab_new(&keys) == 0);
		gx_assert(rpc_keytab_put(keys, &key, false) == 0);
		auth.keys = keys;
		rpc_handshake_init_server(&hs, &env, &server, tls, tls ? &tls_peer : NULL, &addr,
					  &addr);
		feed(&hs, data + 1, bytes - 1);
		rpc_handshake_fini(&hs);
	}
	return 0;
}
