/*
 * rpc_client.h - calls to one server: a pool of connections, one session,
 * deadlines, retries.
 *
 * A call borrows a connection of the pool (an idle one, else a new one up to
 * the maximum, else the least busy), sends, and reads the reply in the calling
 * thread. What happens when a connection breaks:
 *
 *	not sent yet             sent again on another connection
 *	idempotent method        sent again
 *	mutating method          sent again with the same number: the server's
 *	                         replay table answers if it was done already; if the
 *	                         server does not know our session any more, the call
 *	                         ends with -ENOTRECOVERABLE (outcome unknown)
 *
 * A mutation that may have been done and about which the server could not be asked ends with
 * -ETIMEDOUT or -ENOTRECOVERABLE; any other error means that it was not done.
 *
 * A server that cannot be reached is tried again, with growing pauses,
 * until the call's deadline, unless the call asks to fail fast.
 *
 * Thread-safe. Not fork-safe: a child must not use its parent's client.
 */
#ifndef RPC_CLIENT_H
#define RPC_CLIENT_H

#include "rpc/rpc_chan.h"

struct rpc_client;

struct rpc_client_options {
	struct gx_env *env;
	struct rpc_endpoint endpoint;
	const char *identity;     /* copied: "user:alice" or a ticket */
	const unsigned char *key; /* copied: RPC_KEY_BYTES */
	const char *program;      /* for the server's log; a static string */
	unsigned connections_max;
	int64_t timeout_ns; /* of a call that names no deadline */
};
#define RPC_CLIENT_OPTIONS_INIT                                                                    \
	{                                                                                          \
		.program = "gridstage/" GX_VERSION_TEXT, .connections_max = 4,                     \
		.timeout_ns = 30 * GX_NSEC_PER_SEC                                                 \
	}
#ifdef GX_VERSION
#define GX_VERSION_TEXT GX_VERSION
#else
#define GX_VERSION_TEXT "unknown"
#endif

/* Nothing is sent before the first call. */
GX_MUST_CHECK int rpc_client_new(const struct rpc_client_options *options,
				 struct rpc_client **ret_client);
/* Nobody may be calling. */
void rpc_client_free(struct rpc_client *client);
GX_DEFINE_CLEANUP(struct rpc_client *, rpc_client_free)

struct rpc_call_options {
	int64_t deadline_ns; /* 0: the client's timeout from now */
	const struct iovec *payload_out;
	int payload_out_count;
	void *payload_in;
	size_t payload_in_bytes;
	bool fail_fast;        /* one try to connect, no pauses */
	struct gx_buf *errors; /* may be NULL: gets a line for a person when it fails */
};

/*
 * Calls and waits. 0 with an OK reply; else the negative errno behind the
 * server's status (text in ret_reply->detail), or of what broke. The caller
 * ends with rpc_reply_fini() in each case. options may be NULL.
 */
GX_MUST_CHECK int rpc_client_call(struct rpc_client *client, const struct rpc_method *method,
				  const ProtobufCMessage *message,
				  const struct rpc_call_options *options,
				  struct rpc_reply *ret_reply);

/* A connection of the pool for several calls in flight (rpc_chan.h); give it back. */
GX_MUST_CHECK int rpc_client_borrow(struct rpc_client *client, int64_t deadline_ns,
				    struct gx_buf *errors, struct rpc_chan **ret_chan);
void rpc_client_return(struct rpc_client *client, struct rpc_chan *chan);

/* A push channel of the client's session; the caller closes it. */
GX_MUST_CHECK int rpc_client_open_push(struct rpc_client *client, int64_t deadline_ns,
				       struct gx_buf *errors, struct rpc_chan **ret_chan);

/* The session in use; 0 before the first connection. Changes when the server lost it. */
uint64_t rpc_client_session(struct rpc_client *client);

#endif
