/*
 * rpc_frame.h - the fixed header in front of every message.
 *
 * A frame is 64 bytes of header, one protobuf message (or, behind an error
 * status, a short human text), then raw payload. All numbers little-endian.
 *
 *	 0  u32 magic "GSX1"        24  u64 id: of the request on this connection
 *	 4  u8  version             32  u64 trace: request id for all logs
 *	 5  u8  type                40  u32 time_ms: remaining (request), retry after (reply)
 *	 6  u16 flags               44  u32 window: unacknowledged span below seq
 *	 8  u16 code                48  u64 seq: mutation or push number, 0 none
 *	10  u16 reserved, 0         56  u64 check
 *	12  u32 message bytes
 *	16  u64 payload bytes
 *
 * `code` is the method in REQUEST and PUSH, the status in REPLY and REFUSED.
 *
 * `check` is XXH3-64 over header bytes 0..55 and the message, seeded with a
 * secret of the connection (0 during the handshake). It catches garbage,
 * lost sync and a changed frame before anything is decoded. It is not a MAC:
 * where an adversary could sit on the path we use TLS. The payload is not
 * covered; bulk data carries its own block checksums end to end.
 */
#ifndef RPC_FRAME_H
#define RPC_FRAME_H

#include "common/gx_base.h"
#include "common/gx_limits.h"

#define RPC_FRAME_HEADER_BYTES 64u
#define RPC_FRAME_MAGIC 0x31585347u /* "GSX1" */
#define RPC_FRAME_VERSION 1u

enum rpc_frame_type {
	RPC_FRAME_HELLO = 1,
	RPC_FRAME_CHALLENGE = 2,
	RPC_FRAME_PROOF = 3,
	RPC_FRAME_WELCOME = 4,
	RPC_FRAME_REFUSED = 5,
	RPC_FRAME_REQUEST = 16,
	RPC_FRAME_REPLY = 17,
	RPC_FRAME_PUSH = 18,
	RPC_FRAME_PUSH_ACK = 19,
	RPC_FRAME_PROGRESS = 20, /* "still working on id": silence is a hang, slowness is not */
	RPC_FRAME_GOAWAY = 21    /* no new requests on this connection, please */
};

/* Flags. */
#define RPC_FRAME_DESCRIPTOR 1u /* REPLY, on a unix socket: a descriptor comes with its bytes */

struct rpc_frame {
	enum rpc_frame_type type;
	uint16_t flags; /* RPC_FRAME_DESCRIPTOR; others must be 0 */
	uint16_t code;
	uint32_t message_bytes;
	uint64_t payload_bytes;
	uint64_t id;
	uint64_t trace;
	uint32_t time_ms;
	uint32_t window;
	uint64_t seq;
	uint64_t check;
};

/* What a receiver is willing to take, by the state of its connection. */
struct rpc_frame_limits {
	uint32_t types; /* bit per enum rpc_frame_type */
	uint32_t message_max;
	uint64_t payload_max;
};

/* Writes the header, with its check over `message` (frame->message_bytes of it). */
void rpc_frame_encode(const struct rpc_frame *frame, const void *message, uint64_t secret,
		      unsigned char header[RPC_FRAME_HEADER_BYTES]);

/*
 * Reads a header and judges everything that can be judged before the message
 * has arrived: magic, version, type, reserved bits, lengths. -EPROTO, -E2BIG,
 * -EPROTONOSUPPORT (version). *ret_reason (may be NULL) is a static text for the log.
 */
GX_MUST_CHECK int rpc_frame_decode(const unsigned char header[RPC_FRAME_HEADER_BYTES],
				   const struct rpc_frame_limits *limits,
				   struct rpc_frame *ret_frame, const char **ret_reason);

/* With the message there: -EBADMSG if the check does not fit. */
GX_MUST_CHECK int rpc_frame_verify(const unsigned char header[RPC_FRAME_HEADER_BYTES],
				   const void *message, uint32_t message_bytes, uint64_t secret);

#endif
