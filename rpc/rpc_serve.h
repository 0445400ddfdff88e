/*
 * rpc_serve.h - a server with one blocking thread per connection, for bulk data.
 *
 * Same handshake, dispatcher, sessions and limits as rpc_server.h; the
 * differences: a payload of any size up to GX_PAYLOAD_MAX is not buffered but
 * read by the handler (rpc_call_read_payload), a handler may block, and requests
 * of one connection are handled one after the other. What a handler leaves of a
 * payload is skipped.
 *
 * A handler that returns RPC_DEFERRED does not hold up its connection: the next
 * requests are handled at once, up to 64 deferred ones, and their replies may
 * overtake its own. It reads the payload before; rpc_call_finish() may then come
 * from any thread. A connection ends only when its deferred calls are finished.
 *
 * A reply's payload may come from a file (rpc_call.reply_file), and on a unix
 * socket a descriptor may go with it (reply_descriptor). While a call is in work
 * for longer than 250 ms the peer gets a PROGRESS frame for it that often (rule
 * B10).
 *
 * Listening sockets are watched on a loop; new connections get a thread each,
 * up to a ceiling, above which they wait in the kernel's queue; for one that
 * waits, the oldest that has not authenticated yet makes way.
 */
#ifndef RPC_SERVE_H
#define RPC_SERVE_H

#include "common/gx_loop.h"
#include "rpc/rpc_dispatch.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_handshake.h"
#include "rpc/rpc_session.h"

struct rpc_serve;

struct rpc_serve_options {
	struct gx_loop *loop;
	struct rpc_dispatcher *dispatcher; /* borrowed, used by this server only */
	const struct rpc_auth *auth;       /* borrowed; not changed while the server runs */
	struct rpc_sessions *sessions;     /* borrowed */
	uint64_t boot;
	unsigned threads_max;
	int64_t handshake_ns;
};
#define RPC_SERVE_OPTIONS_INIT                                                                     \
	{                                                                                          \
		.threads_max = 1024, .handshake_ns = 10 * GX_NSEC_PER_SEC                          \
	}

GX_MUST_CHECK int rpc_serve_new(const struct rpc_serve_options *options,
				struct rpc_serve **ret_serve);
/*
 * Ends all connections and joins their threads: blocks until running handlers return and deferred
 * calls are finished, so what finishes them must still be at work.
 */
void rpc_serve_free(struct rpc_serve *serve);
GX_DEFINE_CLEANUP(struct rpc_serve *, rpc_serve_free)

/*
 * Graceful end: no new connections and no new requests; requests in work are
 * finished and answered. `fn` is called on the loop once all connections are
 * gone; those still at work at the deadline are cut off.
 */
void rpc_serve_drain(struct rpc_serve *serve, int64_t deadline_ns, rpc_drained_fn fn, void *arg);

GX_MUST_CHECK int rpc_serve_listen(struct rpc_serve *serve, const struct rpc_endpoint *endpoint,
				   struct rpc_endpoint *ret_bound);

#endif
