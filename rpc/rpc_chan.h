/*
 * rpc_chan.h - one client connection: blocking calls, several in flight, any
 * number of threads, no thread of its own.
 *
 * A call sends its request and then reads. If another thread is reading
 * already, it waits; the reading thread hands every reply to the call it is
 * for and, when its own has come, passes the reading on to one of those who
 * wait. So a lone caller does its I/O itself (one send, one receive, no
 * hand-over), and many callers share a connection.
 *
 * A channel that failed stays failed; all its calls end with the error.
 */
#ifndef RPC_CHAN_H
#define RPC_CHAN_H

#include "rpc/rpc_arena.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_handshake.h"
#include "rpc/rpc_method.h"
#include "rpc/rpc_tls.h"

struct rpc_chan;

/* What came back. Zero it, or RPC_REPLY_INIT, before the first use; _fini after each. */
struct rpc_reply {
	uint32_t status; /* enum rpc_status as sent */
	uint32_t retry_after_ms;
	ProtobufCMessage *message; /* if OK: the method's reply type; lives in the arena */
	uint64_t payload_bytes;    /* received into the request's payload_in */
	char detail[GX_DETAIL_MAX + 1];
	int descriptor;     /* came with the reply (unix sockets); who takes it sets -1; -1: none */
	struct gx_env *env; /* whose it is */
	bool used;
	struct rpc_arena arena;
};

void rpc_reply_init(struct rpc_reply *reply);
void rpc_reply_fini(struct rpc_reply *reply);

/*
 * A payload that is a part of a file, sent without a copy of it in memory where that is possible.
 * What the file lacks, because somebody cut it, is sent as zeros.
 */
struct rpc_payload_file {
	int fd;
	uint64_t offset, bytes;
};

struct rpc_request {
	const struct rpc_method *method;
	const ProtobufCMessage *message;
	const struct iovec *payload_out; /* request payload; must stay until the call returns */
	int payload_out_count;
	const struct rpc_payload_file *payload_file; /* NULL: none; else behind payload_out */
	void *payload_in; /* where a reply payload goes; one that does not fit is -E2BIG */
	size_t payload_in_bytes;
	int64_t deadline_ns;
	int64_t silent_ns; /* 0: off; see struct rpc_call_options */
	uint64_t trace;
	uint64_t seq; /* mutating methods */
	uint32_t window;
};

struct rpc_chan_options {
	struct gx_env *env;
	const struct rpc_endpoint *endpoint;
	struct rpc_tls_ctx *tls; /* for a TLS endpoint; borrowed, outlives the channel */
	const char *identity;
	const unsigned char *key;
	const char *program;
	uint64_t session; /* to resume, or 0 */
	enum rpc_channel channel;
	int64_t deadline_ns;
	struct gx_buf *errors; /* may be NULL: gets a line for a person when it fails */
};

/* Connects and authenticates. -EKEYREJECTED, -EPROTO, -ECONNREFUSED, -ETIMEDOUT … */
GX_MUST_CHECK int rpc_chan_open(const struct rpc_chan_options *options, struct rpc_chan **ret_chan);
/* Nobody may be calling. */
void rpc_chan_close(struct rpc_chan *chan);

/* What the handshake agreed on. */
struct rpc_chan_info {
	uint64_t session;
	bool session_known;
	uint64_t boot;
	uint64_t features;
	const char *server; /* lives with the channel */
};
void rpc_chan_info(const struct rpc_chan *chan, struct rpc_chan_info *ret_info);

/*
 * A call in two halves, to have several in flight from one thread. The number
 * identifies the call until its wait has returned. -ECONNRESET and others when
 * the channel failed; *ret_sent (may be NULL) tells whether a byte may have
 * reached the server.
 */
GX_MUST_CHECK int rpc_chan_submit(struct rpc_chan *chan, const struct rpc_request *request,
				  uint64_t *ret_call, bool *ret_sent);
/* 0 with the reply (whatever its status), or why none came. */
GX_MUST_CHECK int rpc_chan_wait(struct rpc_chan *chan, uint64_t call, struct rpc_reply *ret_reply);
/* Would that wait return at once? Reads what has arrived, without waiting. */
bool rpc_chan_arrived(struct rpc_chan *chan, uint64_t call);
/*
 * Before the wait: a payload of the reply goes here, where there is room for as much, and the first
 * memory is the caller's again. False: too late, it goes where it was asked for.
 */
bool rpc_chan_redirect(struct rpc_chan *chan, uint64_t call, void *payload_in);
/*
 * Instead of the wait: the call is given up. Its memory is the caller's again when this returns;
 * the late reply is thrown away.
 */
void rpc_chan_cancel(struct rpc_chan *chan, uint64_t call);

/*
 * Not failed, and the server did not ask us to leave. Reads what an idle connection has received
 * meanwhile, without waiting.
 */
bool rpc_chan_usable(struct rpc_chan *chan);
/* Calls in flight. */
unsigned rpc_chan_load(struct rpc_chan *chan);

/* -- push channels --------------------------------------------------------------- */

struct rpc_push_message {
	uint64_t seq;
	const struct rpc_method *method;
	ProtobufCMessage *message; /* in the arena */
	struct rpc_arena arena;
};

/*
 * Waits for the next push. -ETIMEDOUT; -EPROTO if a number is missing. One
 * thread only. The message is valid until the next receive.
 */
GX_MUST_CHECK int rpc_chan_receive(struct rpc_chan *chan, int64_t deadline_ns,
				   struct rpc_push_message *ret_push);
void rpc_push_message_init(struct rpc_push_message *push);
void rpc_push_message_fini(struct rpc_push_message *push);
/* Everything up to seq has been dealt with. */
GX_MUST_CHECK int rpc_chan_ack(struct rpc_chan *chan, uint64_t seq, int64_t deadline_ns);
/* Makes a thread in rpc_chan_receive() or a call return with an error. Any thread. */
void rpc_chan_abort(struct rpc_chan *chan);

#endif
