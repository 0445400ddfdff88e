/*
 * rpc_dispatch.h - from a request frame to a handler and back to a reply.
 *
 * The order is the same for all methods: method row → version, session and
 * rights → decode → replay table → handler → status → counters → reply. Only
 * this file replies. A handler holds its own logic and nothing else; it
 * returns 0 or a negative errno, or RPC_DEFERRED and later exactly one
 * rpc_call_finish().
 *
 * Threads: on a loop a call belongs to the loop's thread, and rpc_call_finish()
 * of a deferred call is made there, perhaps through gx_loop_post(). In rpc_serve
 * a deferred call is finished by any one thread.
 */
#ifndef RPC_DISPATCH_H
#define RPC_DISPATCH_H

#include "common/gx_loop.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_auth.h"
#include "rpc/rpc_frame.h"
#include "rpc/rpc_method.h"
#include "rpc/rpc_stats.h"

/* A handler's "not yet". Not an errno. */
#define RPC_DEFERRED 1

struct rpc_call;
struct rpc_dispatcher;

/* How a call reaches its connection. */
struct rpc_call_ops {
	/*
	 * Sends a reply and gives the call back to the connection, which calls
	 * rpc_call_clear() once the reply payload (if any) is out. A connection that
	 * is gone drops the reply.
	 */
	void (*reply)(struct rpc_call *call, const struct rpc_frame *frame, const void *message);
	/* Threaded connections: reads more of the request's payload; NULL on a loop. */
	ssize_t (*read_payload)(struct rpc_call *call, void *buf, size_t bytes);
};

struct rpc_call {
	/* For handlers. */
	struct gx_env *env;
	void *data; /* the service's own, from rpc_dispatcher_add() */
	const struct rpc_method *method;
	const struct rpc_peer *peer;
	uint64_t session;          /* 0: none */
	int64_t deadline_ns;       /* GX_FOREVER: none */
	unsigned char *payload;    /* loop servers: the whole payload; may be changed */
	uint64_t payload_bytes;    /* of the request */
	const void *reply_payload; /* set by the handler: must live until the call is cleared */
	uint64_t reply_payload_bytes;
	/* rpc_serve only; -1: none. What they name stays the handler's: see reply_done. */
	int reply_file; /* the reply's payload is sent from this file … */
	uint64_t reply_file_offset;
	int reply_descriptor;    /* goes to the peer with an OK reply … */
	bool passes_descriptors; /* … if this says so: unix sockets only, else -EOPNOTSUPP */
	void (*reply_done)(struct rpc_call *call); /* once, by rpc_call_clear(), sent or not */
	void *reply_done_arg;
	uint32_t retry_after_ms;        /* hint behind AGAIN and SHUTDOWN */
	char detail[GX_DETAIL_MAX + 1]; /* human text behind an error; see rpc_call_fail() */
	const void *packed;             /* set by a handler that has packed the reply itself … */
	uint32_t packed_bytes; /* … for rpc_call_finish(call, 0); lives as long as the call */

	/* For the connection and the dispatcher. */
	const struct rpc_call_ops *ops;
	struct rpc_dispatcher *dispatcher;
	void *conn;
	struct rpc_call *next; /* free list, or waiters of a mutation being done */
	struct rpc_frame frame;
	uint32_t version;      /* of the connection */
	const char *transport; /* "tcp", "unix", "tls" … */
	int64_t start_ns;
	uint64_t request_check; /* over method and message: what a retry has in common */
	ProtobufCMessage *request;
	ProtobufCMessage *reply;
	uint64_t payload_left; /* threaded: not read yet */
	int payload_err;       /* threaded: why the rest will not come */
	size_t held_bytes;     /* loop servers: charged to the server while in work */
	void *pool_buffer;     /* loop servers: payload memory to give back */
	int state;
	void *replay_data; /* the replay table's own */
	struct rpc_arena arena;
};

/* Memory that lives as long as the call; NULL at the call's maximum. */
static inline void *rpc_call_alloc(struct rpc_call *call, size_t bytes)
{
	return rpc_arena_alloc(&call->arena, bytes);
}

/* Sets the human text of an error (cut to its maximum) and evaluates to err. */
int rpc_call_fail(struct rpc_call *call, int err, const char *fmt, ...) GX_PRINTF(3, 4);

/*
 * Runs the handler of a deferred call once more, from the start, and finishes the call unless it is
 * deferred again: for a handler that could not begin yet.
 */
void rpc_call_run_again(struct rpc_call *call);

/* Ends a deferred call: 0 or negative errno. call->reply is the reply to fill before. */
void rpc_call_finish(struct rpc_call *call, int err);

/*
 * Payload bytes of the request, in order: from memory on a loop, from the
 * stream in a thread. Count, 0 at the end, negative errno.
 */
ssize_t rpc_call_read_payload(struct rpc_call *call, void *buf, size_t bytes);

typedef int (*rpc_thunk)(struct rpc_call *call, const ProtobufCMessage *request,
			 ProtobufCMessage *reply);

/* A service as rpc_service_def.h expands it. */
struct rpc_service_row {
	uint16_t method;
	rpc_thunk thunk;
};

struct rpc_service {
	const struct rpc_service_row *rows;
	size_t row_count;
};

/*
 * The replay table behind mutating methods, a seam: in memory (rpc_session.h),
 * in metad part of its durable state (rule N5).
 */
struct rpc_replay;
struct rpc_replay_ops {
	/*
	 * A mutation arrived. 0: new, go on. RPC_ANSWERED: it was done before, and the
	 * table has replied through rpc_call_answer(). RPC_DEFERRED: it is being worked
	 * on; the table keeps the call and answers it together with the first.
	 * Negative: refuse with that (-ENOTRECOVERABLE: done or not, nobody knows).
	 */
	int (*begin)(struct rpc_replay *replay, struct rpc_call *call);
	/* The mutation of this call ended; the frame and message are what is being sent. */
	void (*finish)(struct rpc_replay *replay, struct rpc_call *call,
		       const struct rpc_frame *frame, const void *message);
};
struct rpc_replay {
	const struct rpc_replay_ops *ops;
};
#define RPC_ANSWERED 2

/* For replay tables: replies with remembered bytes. */
void rpc_call_answer(struct rpc_call *call, uint16_t status, const void *message, uint32_t bytes);

struct rpc_dispatcher {
	struct gx_env *env;
	const char *server_name;
	const char *program;
	int64_t started_ns;
	struct {
		rpc_thunk thunk;
		void *data;
	} handlers[RPC_METHOD_COUNT];
	struct rpc_replay *replay; /* NULL: mutating methods are refused */
	struct rpc_stats stats;
	struct gx_mutex *stats_lock; /* threaded servers: around stats; NULL on a loop */
	struct gx_loop *loop;        /* whose longest turn is reported; NULL: none */
	bool draining;               /* new requests are answered SHUTDOWN */
};

/* Adds the core service (ping, stats) by itself. Strings are borrowed. */
void rpc_dispatcher_init(struct rpc_dispatcher *d, struct gx_env *env, const char *server_name,
			 const char *program);
void rpc_dispatcher_add(struct rpc_dispatcher *d, const struct rpc_service *service, void *data);

/* Around a look at or a change of stats. */
void rpc_dispatcher_lock(struct rpc_dispatcher *d);
void rpc_dispatcher_unlock(struct rpc_dispatcher *d);

/* A server's drain is over: no connection is left. On the loop. */
typedef void (*rpc_drained_fn)(void *arg);

/* -- for connections --------------------------------------------------------- */

/* Readies a call object (memory from the connection's free list). */
void rpc_call_init(struct rpc_call *call, struct rpc_dispatcher *d, const struct rpc_call_ops *ops,
		   void *conn);
/* Frees what the call holds; the object may be used again after rpc_call_init(). */
void rpc_call_clear(struct rpc_call *call);

/*
 * Judges and decodes a request. 0: go on with rpc_dispatch_run() once the
 * payload is there; negative: to be ended with rpc_call_finish(call, r) once
 * the payload has been skipped. The message bytes are not needed afterwards.
 */
GX_MUST_CHECK int rpc_dispatch_begin(struct rpc_call *call, const struct rpc_frame *frame,
				     const void *message);
/* Runs the handler and replies, now or later. */
void rpc_dispatch_run(struct rpc_call *call);

#endif
