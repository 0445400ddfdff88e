/*
 * rpc_out.h - the queue of bytes a connection still has to send.
 *
 * Small things (headers, messages) are copied into blocks, so that the replies
 * of a turn leave in one write; a reply's payload is not copied: the queue
 * keeps its call until the last byte is out.
 */
#ifndef RPC_OUT_H
#define RPC_OUT_H

#include "rpc/rpc_dispatch.h"
#include "rpc/rpc_stream.h"

struct rpc_out_block;

struct rpc_out {
	struct rpc_out_block *head, *tail;
	struct rpc_out_block *spare; /* one kept for the next turn */
	size_t bytes;                /* not sent yet */
	void (*release)(struct rpc_call *call);
};

/* `release` is called for each call handed to rpc_out_payload() when it is sent or dropped. */
void rpc_out_init(struct rpc_out *out, void (*release)(struct rpc_call *call));
void rpc_out_fini(struct rpc_out *out);

GX_MUST_CHECK int rpc_out_append(struct rpc_out *out, const void *data, size_t bytes);
/* The call's reply payload. On failure nothing is taken. */
GX_MUST_CHECK int rpc_out_payload(struct rpc_out *out, struct rpc_call *call);

/* Sends what it can without waiting. 0: all sent; -EAGAIN: stream->want says what to wait for. */
GX_MUST_CHECK int rpc_out_flush(struct rpc_out *out, struct rpc_stream *stream);

#endif
