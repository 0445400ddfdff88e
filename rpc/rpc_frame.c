#include "rpc/rpc_frame.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"

#define CHECK_OFFSET 56

/* Header and message are chained through the seed, so neither has to be copied. */
static uint64_t frame_check(const unsigned char *header, const void *message, uint32_t bytes,
			    uint64_t secret)
{
	uint64_t sum = gx_sum64_seed(header, CHECK_OFFSET, secret);

	return bytes > 0 ? gx_sum64_seed(message, bytes, sum) : sum;
}

void rpc_frame_encode(const struct rpc_frame *frame, const void *message, uint64_t secret,
		      unsigned char header[RPC_FRAME_HEADER_BYTES])
{
	gx_assert(frame->message_bytes <= GX_MESSAGE_MAX);
	gx_assert(frame->payload_bytes <= GX_PAYLOAD_MAX);
	gx_put_le32(header, RPC_FRAME_MAGIC);
	header[4] = RPC_FRAME_VERSION;
	header[5] = (unsigned char)frame->type;
	gx_put_le16(header + 6, frame->flags);
	gx_put_le16(header + 8, frame->code);
	gx_put_le16(header + 10, 0);
	gx_put_le32(header + 12, frame->message_bytes);
	gx_put_le64(header + 16, frame->payload_bytes);
	gx_put_le64(header + 24, frame->id);
	gx_put_le64(header + 32, frame->trace);
	gx_put_le32(header + 40, frame->time_ms);
	gx_put_le32(header + 44, frame->window);
	gx_put_le64(header + 48, frame->seq);
	gx_put_le64(header + CHECK_OFFSET,
		    frame_check(header, message, frame->message_bytes, secret));
}

static int refuse(int err, const char *why, const char **ret_reason)
{
	if (ret_reason)
		*ret_reason = why;
	return err;
}

int rpc_frame_decode(const unsigned char header[RPC_FRAME_HEADER_BYTES],
		     const struct rpc_frame_limits *limits, struct rpc_frame *ret_frame,
		     const char **ret_reason)
{
	uint32_t magic = gx_get_le32(header);
	uint8_t type = header[5];
	unsigned flags_ok = type == RPC_FRAME_REPLY ? RPC_FRAME_DESCRIPTOR : 0;

	if (magic != RPC_FRAME_MAGIC) {
		/* A TLS record starts 0x16 (handshake) or 0x15 (alert), then 0x03. */
		if ((header[0] == 0x16 || header[0] == 0x15) && header[1] == 0x03)
			return refuse(-EPROTO, "peer speaks TLS on a plain connection", ret_reason);
		return refuse(-EPROTO, "not a frame (bad magic)", ret_reason);
	}
	if (header[4] != RPC_FRAME_VERSION)
		return refuse(-EPROTONOSUPPORT, "unknown frame version", ret_reason);
	if (type >= 32 || !(limits->types & (UINT32_C(1) << type)))
		return refuse(-EPROTO, "frame type not allowed here", ret_reason);
	*ret_frame = (struct rpc_frame){
		.type = (enum rpc_frame_type)type,
		.flags = gx_get_le16(header + 6),
		.code = gx_get_le16(header + 8),
		.message_bytes = gx_get_le32(header + 12),
		.payload_bytes = gx_get_le64(header + 16),
		.id = gx_get_le64(header + 24),
		.trace = gx_get_le64(header + 32),
		.time_ms = gx_get_le32(header + 40),
		.window = gx_get_le32(header + 44),
		.seq = gx_get_le64(header + 48),
		.check = gx_get_le64(header + CHECK_OFFSET),
	};
	if ((ret_frame->flags & ~flags_ok) != 0 || gx_get_le16(header + 10) != 0)
		return refuse(-EPROTO, "reserved bits set", ret_reason);
	if (ret_frame->message_bytes > limits->message_max)
		return refuse(-E2BIG, "message too long", ret_reason);
	if (ret_frame->payload_bytes > limits->payload_max)
		return refuse(-E2BIG, "payload too long", ret_reason);
	return 0;
}

int rpc_frame_verify(const unsigned char header[RPC_FRAME_HEADER_BYTES], const void *message,
		     uint32_t message_bytes, uint64_t secret)
{
	uint64_t want = gx_get_le64(header + CHECK_OFFSET);

	return frame_check(header, message, message_bytes, secret) == want ? 0 : -EBADMSG;
}
