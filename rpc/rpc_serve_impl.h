/*
 * rpc_serve_impl.h - what the files of the threaded server share; nobody else includes it.
 *
 * rpc_serve.c       the server: listening, threads, the watcher, draining
 * rpc_serve_conn.c  one connection: handshake, requests, its end
 * rpc_serve_reply.c one connection: replies, PROGRESS frames
 *
 * Locks, from the outside in: serve->lock or serve->watch_lock, then conn->lock. A handler runs
 * under none of them; reply_done, if the watcher sends the last of a reply, under watch_lock.
 */
#ifndef RPC_SERVE_IMPL_H
#define RPC_SERVE_IMPL_H

#include "rpc/rpc_listener.h"
#include "rpc/rpc_serve.h"

/* A peer that takes this long to take a byte of a reply, or to send one of a request, is gone. */
#define SERVE_STALL_NS (60 * GX_NSEC_PER_SEC)
#define SERVE_PROGRESS_NS (250 * GX_NSEC_PER_MSEC)

/* A call of a connection, from its request to the end of its reply. */
struct serve_call {
	struct rpc_call call;
	struct serve_call *prev, *next; /* conn->calls */
	int64_t progress_ns;            /* when the next PROGRESS frame is due */

	/* Once it is finished: the reply on its way. Who has set `writing` owns the first one's. */
	struct serve_call *next_reply; /* conn->replies */
	struct rpc_frame frame;
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	const void *message;
	uint64_t written;
};

struct serve_conn {
	struct serve_conn *prev, *next; /* serve->conns; under serve->lock and watch_lock */
	struct rpc_serve *serve;
	struct gx_thread thread;
	struct gx_task ended; /* posted by the thread as its last act */
	int fd;               /* until the stream owns it */
	bool tls;
	const char *transport;
	char remote[GX_ADDR_TEXT_MAX];
	bool stream_ready; /* under serve->lock: may be shut down from outside */
	bool has_place;    /* under serve->lock: authenticated, or asked to make way already */

	/* The thread's own. */
	struct rpc_stream stream;
	uint64_t secret;
	uint64_t features;
	struct rpc_handshake *handshake;
	struct rpc_peer peer;
	uint64_t session;
	uint32_t version;
	unsigned char *message;
	size_t message_size;
	struct rpc_call *current; /* whose payload is on the stream, */
	uint64_t payload_left;    /* not read yet */

	struct gx_mutex lock;   /* all below */
	struct gx_cond changed; /* a call has ended, or a reply is there that nobody writes */
	unsigned waiters;       /* on it */
	bool open;              /* requests and replies may travel */
	bool busy;              /* a request is being read or handled */
	bool stopping;          /* no more requests, please */
	bool writing;           /* some thread writes replies, and owns `tail` */
	int broken;             /* negative errno: nothing can be written any more */
	unsigned call_count;
	struct serve_call *calls;   /* in work */
	struct serve_call *spare;   /* for the next one */
	struct serve_call first;    /* so that an ordinary call allocates nothing */
	struct serve_call *replies; /* finished calls whose replies are not out */
	/* What the socket has not taken of a PROGRESS frame goes before anything else. */
	unsigned char tail[RPC_FRAME_HEADER_BYTES];
	size_t tail_bytes;
};

struct rpc_serve {
	struct gx_env *env;
	struct gx_loop *loop;
	struct rpc_dispatcher *dispatcher;
	struct rpc_sessions *sessions;
	struct rpc_handshake_server hello;
	struct rpc_listeners listeners;
	unsigned threads_max;
	int64_t handshake_ns;
	struct gx_mutex lock; /* conns, count, stopping, dispatcher->stats */
	struct serve_conn *conns;
	unsigned count;
	bool stopping;
	struct gx_task drain_begun;
	struct gx_timer drain_end;
	rpc_drained_fn drained;
	void *drained_arg;

	struct gx_mutex watch_lock; /* held by the watcher while it visits connections */
	struct gx_cond watch_wake;
	struct gx_thread watcher;
	bool watching;   /* the loop's: there is one */
	bool watch_ends; /* under watch_lock */
};

GX_MUST_CHECK int serve_conn_init(struct serve_conn *conn, struct rpc_serve *serve);
/* Its thread has ended. */
void serve_conn_fini(struct serve_conn *conn);

/* The thread: from the handshake to the end of the connection. */
void serve_conn_run(struct serve_conn *conn);
/* The server stops: no request after those in work. True: there are none. */
bool serve_conn_stop(struct serve_conn *conn);
/*
 * Sends the replies that are left over, and the PROGRESS frames that are due, as far as that needs
 * no waiting. True: replies are still left over. The watcher's.
 */
bool serve_conn_progress(struct serve_conn *conn, int64_t now_ns);

/* -- between the two files of a connection; the first four under its lock -- */

/* Waits for a change; sends replies, waiting for the peer, if nobody else does. */
void serve_conn_wait(struct serve_conn *conn);
void serve_conn_tell(struct serve_conn *conn);
/* Nobody gets anything more through this stream; its reader notices. */
void serve_conn_break(struct serve_conn *conn, int err);
bool serve_conn_is_idle(const struct serve_conn *conn);
/* All replies that are there go out before this returns. */
void serve_conn_flush(struct serve_conn *conn);
void serve_call_reply(struct rpc_call *call, const struct rpc_frame *frame, const void *message);

#endif
