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
 * -ETIMEDOUT, -EHOSTDOWN (silent_ns) or -ENOTRECOVERABLE; any other error means that it was not
 *done.
 *
 * A server that cannot be reached is tried again, with growing pauses,
 * until the call's deadline, unless the call asks to fail fast.
 *
 * A server that comes back after a restart may have lost what it had answered. Who can say it again
 * gives a resume_fn; it goes first on the first connection to the new life of the server, and
 * mutations are kept (keep_fn) until they need not be said again.
 *
 * Thread-safe. Not fork-safe: a child must not use its parent's client.
 */
#ifndef RPC_CLIENT_H
#define RPC_CLIENT_H

#include "rpc/rpc_chan.h"

struct rpc_client;

/*
 * The connection `chan` goes to another life of the server (info->boot) than the one before, or
 * the server did not know our session (info->session_known) and gave another. Called in the thread
 * that opened it, before anyone else can use it or open one, and after the calls on all older
 * connections have ended: each of them has either been answered, and its keep_fn has run, or will
 * be sent again afterwards. An error closes the connection; the call that wanted it goes on as
 * after a failed connect. It may use rpc_chan_submit() and rpc_chan_wait() on `chan`, but not call.
 */
typedef int (*rpc_resume_fn)(void *arg, struct rpc_chan *chan, const struct rpc_chan_info *info,
			     int64_t deadline_ns);
/*
 * The numbers of mutations have run out: all of mutations_max are unanswered or kept. It should
 * make some free (rpc_client_release) and may call, but nothing that mutates. No other lock is
 * held.
 */
typedef int (*rpc_full_fn)(void *arg, int64_t deadline_ns);
/*
 * A request sent at `sent_ns` has been answered. For leases, which count from the sending (rule
 * N13). Must be quick.
 */
typedef void (*rpc_answered_fn)(void *arg, int64_t sent_ns);

struct rpc_client_options {
	struct gx_env *env;
	struct rpc_endpoint endpoint;
	const char *identity;     /* copied: "user:alice" or a ticket */
	const unsigned char *key; /* copied: RPC_KEY_BYTES */
	const char *program;      /* for the server's log; a static string */
	unsigned connections_max;
	int64_t timeout_ns; /* of a call that names no deadline; GX_FOREVER */
	/* Mutations unanswered or kept, at most GX_UNSYNCED_PER_SESSION_MAX: what the server takes
	 */
	unsigned mutations_max;
	/* Of the first mutation; 0: 1. To go on with a session that another client has used there.
	 */
	uint64_t first_seq;
	/* All may be NULL. */
	rpc_resume_fn resume_fn;
	rpc_full_fn full_fn;
	rpc_answered_fn answered_fn;
	void *arg; /* of these */
};
#define RPC_CLIENT_OPTIONS_INIT                                                                    \
	{                                                                                          \
		.program = "gridstage/" GX_VERSION_TEXT, .connections_max = 4,                     \
		.timeout_ns = 30 * GX_NSEC_PER_SEC, .mutations_max = GX_REPLAY_PER_SESSION_MAX     \
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

/*
 * A mutation has been done; `seq` is its number. True: the number stays taken until
 * rpc_client_release(). Called before the connection can be used again or given up, so that it
 * happens before any resume_fn for the next life of the server.
 */
typedef bool (*rpc_keep_fn)(void *arg, uint64_t seq, const struct rpc_reply *reply);

struct rpc_call_options {
	int64_t deadline_ns; /* 0: the client's timeout from now */
	const struct iovec *payload_out;
	int payload_out_count;
	const struct rpc_payload_file *payload_file; /* may be NULL */
	void *payload_in;
	size_t payload_in_bytes;
	/*
	 * 0: off. Nothing was heard on the call's connection, no byte of a reply and no PROGRESS
	 * frame, for so long while it was waited for: the call ends with -EHOSTDOWN, without
	 * another try, and the connection is given up (rule B10). Connecting may not take longer
	 * either.
	 */
	int64_t silent_ns;
	bool fail_fast;        /* one try to connect, no pauses */
	struct gx_buf *errors; /* may be NULL: gets a line for a person when it fails */
	rpc_keep_fn keep_fn;   /* may be NULL: mutations only */
	void *keep_arg;
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

/*
 * A call in two halves, to have several in flight from one thread; not for clients with a
 * resume_fn. A mutation gets its number in _start, which sends the request if it can (it may wait
 * for a connection) and reports nothing but -ENOMEM, or -ETIMEDOUT when no number became free;
 * _finish does the rest of what rpc_client_call() does, with the same results, and frees `started`.
 * Message, payloads and `errors` must stay until then; `options` itself need not.
 */
struct rpc_started;
GX_MUST_CHECK int rpc_client_start(struct rpc_client *client, const struct rpc_method *method,
				   const ProtobufCMessage *message,
				   const struct rpc_call_options *options,
				   struct rpc_started **ret_started);
GX_MUST_CHECK int rpc_client_finish(struct rpc_started *started, struct rpc_reply *ret_reply);
/*
 * A payload of the reply goes here instead of options->payload_in, as large. What is asked for
 * ahead of a reader waits in the socket until he comes with his memory: nothing is copied twice.
 * False: too late, it goes where it was asked for.
 */
bool rpc_client_redirect(struct rpc_started *started, void *payload_in);
/* Is it on its way? If not there was no connection, and _finish begins with another try. */
bool rpc_client_started_sent(const struct rpc_started *started);
/* Has the reply arrived, or the connection failed? Reads what is there, without waiting. */
bool rpc_client_started_done(struct rpc_started *started);
/*
 * Instead of _finish: gives the call up and frees `started`. Whether a mutation is done nobody
 * learns. The payload memory is the caller's again when this returns. NULL is fine.
 */
void rpc_client_cancel(struct rpc_started *started);

/* A connection of the pool for several calls in flight (rpc_chan.h); give it back. */
GX_MUST_CHECK int rpc_client_borrow(struct rpc_client *client, int64_t deadline_ns,
				    struct gx_buf *errors, struct rpc_chan **ret_chan);
void rpc_client_return(struct rpc_client *client, struct rpc_chan *chan);

/* -- mutations that were kept -------------------------------------------------------------- */

/* The result of this number will not be asked for again. */
void rpc_client_release(struct rpc_client *client, uint64_t seq);
/* From the oldest number that is unanswered or kept to the newest given: up to mutations_max. */
uint64_t rpc_client_outstanding(struct rpc_client *client);
/* No mutation has had this number or a higher one. */
uint64_t rpc_client_next_seq(struct rpc_client *client);
/* What a request with this number says in its frame, for resume_fn. */
uint32_t rpc_client_window(struct rpc_client *client, uint64_t seq);

/* -- push ------------------------------------------------------------------------------------ */

/*
 * A push channel of the client's session; the caller closes it. With a resume_fn a connection for
 * calls is opened first, so that the server's life is a known one; -EAGAIN if it ended between.
 */
GX_MUST_CHECK int rpc_client_open_push(struct rpc_client *client, int64_t deadline_ns,
				       struct gx_buf *errors, struct rpc_chan **ret_chan);

/* The session in use; 0 before the first connection. Changes when the server lost it. */
uint64_t rpc_client_session(struct rpc_client *client);

#endif
