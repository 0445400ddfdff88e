/*
 * rpc_file_ticket.h - metad's word to an fsd about one object (rule S1).
 *
 * A session ticket (rpc_ticket.h) lets a client connect to a node; a file ticket, in each request,
 * says what it may do there: which inode, which generation of its content, read or write, up to
 * which size, in which session and until when. It is sealed with the node's key, so it is worth
 * something at this node only, and only on connections of the session it names.
 *
 * Generations: the object must have `generation`. A node that has `base` instead (lower, not 0)
 * moves it on to `generation` first (fsd_object_advance); with base 0 and the right to write it may
 * make it. Whatever else it has is the wrong one: -ESTALE. So a metad that has moved the generation
 * shuts out everybody who holds an older ticket as soon as somebody with a newer one has been there
 * (rules B1, B2, B5).
 */
#ifndef RPC_FILE_TICKET_H
#define RPC_FILE_TICKET_H

#include "rpc/rpc_key.h"

#define RPC_FILE_TICKET_BYTES 88u
#define RPC_FILE_READ 1u
#define RPC_FILE_WRITE 2u

struct rpc_file_ticket {
	uint32_t rights; /* RPC_FILE_ */
	uint64_t ino;
	uint64_t generation;
	uint64_t base;
	uint64_t session;
	uint64_t size_max;  /* no write may end behind it (rule N14) */
	uint64_t epoch;     /* metad's (rule N3) */
	int64_t expires_ns; /* wall clock */
};

/* The key that metad and the node share, from the node's own key (in metad's table: host:NAME). */
GX_MUST_CHECK int rpc_node_key(const unsigned char host_key[RPC_KEY_BYTES],
			       unsigned char ret_node_key[RPC_KEY_BYTES]);

/* -EIO: the library failed. */
GX_MUST_CHECK int rpc_file_ticket_seal(const struct rpc_file_ticket *ticket,
				       const unsigned char node_key[RPC_KEY_BYTES],
				       unsigned char ret_bytes[RPC_FILE_TICKET_BYTES]);
/*
 * Checks the seal, nothing else: session, time and rights are the caller's. -EKEYREJECTED: not
 * sealed with this key, changed, or of another length or version.
 */
GX_MUST_CHECK int rpc_file_ticket_open(const void *bytes, size_t byte_count,
				       const unsigned char node_key[RPC_KEY_BYTES],
				       struct rpc_file_ticket *ret_ticket);

#endif
