/*
 * rpc_server.h - a server on a loop: many connections, one thread.
 *
 * The server owns listeners and connections. Each connection goes from the
 * transport's handshake over ours to open; then requests are decoded in the
 * order they come, several may be in work at once, and replies leave in the
 * order they are finished, all replies of a loop turn in one write.
 *
 * What a peer can make it hold: before authentication one handshake message;
 * afterwards, per connection, GX_INFLIGHT_PER_CONN_MAX calls and
 * GX_OUT_QUEUE_PER_CONN_MAX unsent bytes, then it is not read until that has
 * gone down; payload memory comes from a pool with a maximum for the whole
 * server. Connections and half-open ones have ceilings; the oldest half-open
 * one makes way.
 *
 * All calls on the loop's thread.
 */
#ifndef RPC_SERVER_H
#define RPC_SERVER_H

#include "common/gx_loop.h"
#include "rpc/rpc_dispatch.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_handshake.h"
#include "rpc/rpc_session.h"

struct rpc_server;

/* End-of-turn level at which replies are flushed; commit hooks use a lower one. */
#define RPC_HOOK_LEVEL 100

/*
 * What a session table of one's own (session_fn) wants to hear; called from inside the server,
 * which must not be called back except by rpc_server_push().
 */
struct rpc_session_events {
	/* A connection of the session is open; of a push channel the older one is closed before. */
	void (*attached)(void *arg, uint64_t session, bool push, const char *program,
			 const char *remote);
	void (*detached)(void *arg, uint64_t session, bool push);
};

struct rpc_server_options {
	struct gx_loop *loop;
	struct rpc_dispatcher *dispatcher; /* borrowed */
	const struct rpc_auth *auth;       /* borrowed */
	struct rpc_sessions *sessions;     /* borrowed; NULL if session_fn is given */
	rpc_session_fn session_fn;         /* other session tables */
	void *session_arg;
	const struct rpc_session_events *session_events; /* with session_fn; may be NULL */
	/*
	 * Called before bytes go to any peer: what replies promise must be in force by then. May be
	 * called several times a turn. NULL: nothing to do.
	 */
	void (*commit_fn)(void *arg);
	void *commit_arg;
	uint64_t boot;
	unsigned connections_max;
	unsigned half_open_max;
	uint64_t payload_pool_bytes;
	int64_t handshake_ns; /* time a connection has to authenticate */
};
#define RPC_SERVER_OPTIONS_INIT                                                                    \
	{                                                                                          \
		.connections_max = 4096, .half_open_max = 1024,                                    \
		.payload_pool_bytes = 64u * 1024 * 1024, .handshake_ns = 10 * GX_NSEC_PER_SEC      \
	}

GX_MUST_CHECK int rpc_server_new(const struct rpc_server_options *options,
				 struct rpc_server **ret_server);
/* Closes everything at once. Deferred calls must have been finished. */
void rpc_server_free(struct rpc_server *server);
GX_DEFINE_CLEANUP(struct rpc_server *, rpc_server_free)

/* Listens; *ret_bound (may be NULL) tells the address really bound (port 0). */
GX_MUST_CHECK int rpc_server_listen(struct rpc_server *server, const struct rpc_endpoint *endpoint,
				    struct rpc_endpoint *ret_bound);

/*
 * Graceful end: no new connections, GOAWAY to all, requests in work are
 * finished and answered, later ones answered SHUTDOWN; `fn` is called once all
 * connections are gone, at the latest at the deadline.
 */
void rpc_server_drain(struct rpc_server *server, int64_t deadline_ns, rpc_drained_fn fn, void *arg);

/* Closes all connections of a session: what it is told afterwards it must ask for anew. */
void rpc_server_kick(struct rpc_server *server, uint64_t session, const char *reason);

/* 0: the client has acknowledged it; -ECONNRESET: its push channel broke first. */
typedef void (*rpc_pushed_fn)(void *arg, int err);
/*
 * Sends a message on a session's push channel. -ENOTCONN: it has none (fn is
 * not called); -E2BIG: too many, or too many bytes, are waiting (the channel is
 * closed, so that the client notices). May not call back before returning.
 */
GX_MUST_CHECK int rpc_server_push(struct rpc_server *server, uint64_t session,
				  enum rpc_method_id method, const ProtobufCMessage *message,
				  rpc_pushed_fn fn, void *arg);

#endif
