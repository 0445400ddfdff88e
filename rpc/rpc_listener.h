/*
 * rpc_listener.h - the listening sockets of a server, and its TLS context.
 */
#ifndef RPC_LISTENER_H
#define RPC_LISTENER_H

#include "common/gx_loop.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_tls.h"

struct rpc_listener;

struct rpc_listeners {
	struct gx_loop *loop;
	const struct rpc_auth *auth;
	struct rpc_tls_ctx *tls; /* made with the first TLS listener */
	struct rpc_listener *list;
	bool paused;
	struct gx_timer retry; /* resumes after a failure to accept */
	/* May a connection be accepted now? If not, listening is paused. */
	bool (*has_room)(void *arg);
	/* Takes over fd. An error (no memory, no threads) is logged and pauses accepting. */
	int (*accepted)(void *arg, int fd, const struct rpc_endpoint *endpoint);
	void *arg;
};

/* Set loop, auth and callbacks first. *ret_bound (may be NULL): the address really bound. */
GX_MUST_CHECK int rpc_listeners_add(struct rpc_listeners *listeners,
				    const struct rpc_endpoint *endpoint,
				    struct rpc_endpoint *ret_bound);
/* Accepts again; call when room was made, and now and then. */
void rpc_listeners_resume(struct rpc_listeners *listeners);
/* Stops listening and removes unix sockets; the TLS context stays. */
void rpc_listeners_close(struct rpc_listeners *listeners);
/* After all connections are gone. */
void rpc_listeners_fini(struct rpc_listeners *listeners);

#endif
