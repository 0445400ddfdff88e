/*
 * held_serve.h - a threaded server (rpc_serve) whose calls do what a test tells them.
 *
 * It answers the method "echo"; the request's data is a struct held_order. It runs in any
 * environment, in threads of that environment: beside the test in the real one, inside a process of
 * the simulation. Anything that goes wrong once it runs aborts the program with a message.
 */
#ifndef HELD_SERVE_H
#define HELD_SERVE_H

#include "rpc/rpc_client.h"

/* What a call does, several of them in this order. */
#define HELD_EAT 1u        /* reads its payload */
#define HELD_EAT_HALF 2u   /* reads half of its payload */
#define HELD_BLOCK 4u      /* waits in the handler for held_serve_unblock() */
#define HELD_DESCRIPTOR 8u /* gives a descriptor of the file */
#define HELD_FILE 16u      /* its payload comes from the file */
#define HELD_MEMORY 32u    /* its payload comes from memory, with the same bytes */
#define HELD_FAIL 64u      /* -EBUSY */
#define HELD_DEFER 128u    /* stays until held_serve_release() */

struct held_order {
	uint64_t flags;
	uint64_t offset, bytes; /* of the file */
};

struct held_serve;

/* `address`: as rpc_endpoint_parse() takes it; `dir` for the file, which has `bytes`. */
GX_MUST_CHECK int held_serve_start(struct gx_env *env, const char *address, const char *dir,
				   size_t bytes, struct held_serve **ret_held);
/* Unblocks and releases whatever is left. */
void held_serve_stop(struct held_serve *held);

void held_serve_client_options(const struct held_serve *held,
			       struct rpc_client_options *ret_options);
/* The same for clients in another process of the simulation. */
void held_client_options(struct gx_env *env, const struct rpc_endpoint *endpoint,
			 struct rpc_client_options *ret_options);

/* Returns when so many calls are deferred, or blocked. */
void held_serve_wait_deferred(struct held_serve *held, unsigned count);
void held_serve_wait_blocked(struct held_serve *held, unsigned count);
unsigned held_serve_deferred(struct held_serve *held);
/* Finishes the oldest deferred call, in this thread. */
void held_serve_release(struct held_serve *held);
/* Lets all that are blocked, or will be, go on. */
void held_serve_unblock(struct held_serve *held);
/* How many calls have given back what they held (reply_done). */
unsigned held_serve_done(struct held_serve *held);
void held_serve_wait_done(struct held_serve *held, unsigned count);
/* How many handlers have begun. */
unsigned held_serve_calls(struct held_serve *held);
/* Changes the size of the file. */
void held_serve_truncate(struct held_serve *held, uint64_t bytes);

/* The graceful end; true once it is over. */
void held_serve_drain(struct held_serve *held, uint64_t ms);
bool held_serve_wait_drained(struct held_serve *held, uint64_t ms);

/* What the file holds at `offset`. */
void held_pattern(void *buf, uint64_t offset, size_t bytes);

#endif
