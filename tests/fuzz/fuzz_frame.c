/*
 * The frame header: any bytes are refused or make a frame within the limits that encodes back to
 * the same bytes (but for a check that did not fit).
 */
#include "common/gx_num.h"
#include "rpc/rpc_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_frame(const unsigned char *header, const void *message, size_t message_bytes,
			const struct rpc_frame_limits *limits)
{
	unsigned char again[RPC_FRAME_HEADER_BYTES];
	const char *reason = NULL;
	struct rpc_frame frame;
	int r = rpc_frame_decode(header, limits, &frame, &reason);

	gx_assert(r == 0 || r == -EPROTO || r == -E2BIG || r == -EPROTONOSUPPORT);
	gx_assert((r == 0) == (reason == NULL));
	if (r < 0)
		return;
	gx_assert(frame.message_bytes <= limits->message_max);
	gx_assert(frame.payload_bytes <= limits->payload_max);
	gx_assert(limits->types & (UINT32_C(1) << frame.type));
	if (frame.message_bytes > message_bytes)
		return;
	rpc_frame_encode(&frame, message, 7, again);
	gx_assert(memcmp(header, again, 56) == 0);
	r = rpc_frame_verify(header, message, frame.message_bytes, 7);
	gx_assert(r == 0 || r == -EBADMSG);
	gx_assert((r == 0) == (memcmp(header, again, sizeof(again)) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct rpc_frame_limits limits[] = {
		{UINT32_MAX, GX_MESSAGE_MAX, GX_PAYLOAD_MAX},
		{UINT32_C(1) << RPC_FRAME_HELLO, GX_HELLO_MAX, 0},
		{UINT32_C(1) << RPC_FRAME_REQUEST, GX_MESSAGE_MAX, GX_PAYLOAD_LOOP_MAX},
	};

	if (bytes < RPC_FRAME_HEADER_BYTES)
		return 0;
	for (size_t i = 0; i < GX_COUNT_OF(limits); i++)
		check_frame(data, data + RPC_FRAME_HEADER_BYTES, bytes - RPC_FRAME_HEADER_BYTES,
			    &limits[i]);
	return 0;
}
