/*
 * rpc_conn.h - one connection of a loop server. Internal to rpc_server.
 *
 * States: TLS handshake → HELLO (ours) → OPEN → dead. A dead connection is
 * already closed and detached; its memory stays until its last deferred call
 * has been finished.
 */
#ifndef RPC_CONN_H
#define RPC_CONN_H

#include "common/gx_hash.h"
#include "rpc/rpc_listener.h"
#include "rpc/rpc_out.h"
#include "rpc/rpc_server.h"
#include "rpc/rpc_tls.h"

/* One read takes at most this much; shared by all connections of a server. */
#define RPC_SCRATCH_BYTES (64u * 1024)

enum rpc_conn_state { RPC_CONN_TLS, RPC_CONN_HELLO, RPC_CONN_OPEN, RPC_CONN_DEAD };

struct rpc_push {
	struct rpc_push *prev, *next;
	uint64_t seq;
	rpc_pushed_fn fn;
	void *arg;
};

struct rpc_conn {
	struct rpc_server *server;
	struct rpc_conn *prev, *next;           /* server->conns or server->dead */
	struct rpc_conn *half_prev, *half_next; /* server->half_open, oldest first */
	struct rpc_conn *dirty_next;
	struct rpc_conn *wait_next; /* server->pool_waiters */
	bool is_dirty, is_half_open, is_waiting;
	enum rpc_conn_state state;
	struct rpc_stream stream;
	struct gx_io io;
	struct gx_task again; /* posted when TLS holds bytes that make no event */
	const char *transport;
	char remote[GX_ADDR_TEXT_MAX];
	int64_t accepted_ns;

	struct rpc_handshake *handshake; /* until OPEN */
	struct rpc_peer peer;
	uint64_t secret;
	uint32_t version;
	uint64_t features;
	uint64_t session;
	bool attached; /* counted in the session table */

	struct gx_buf in;      /* bytes that are no whole frame yet, or wait for room */
	struct rpc_call *body; /* its payload is arriving */
	uint64_t body_left;    /* payload bytes still to come, for body or to skip */
	int body_err;          /* the call's fate once its payload is there (or skipped) */
	bool paused;           /* not read until room is made */
	int64_t got_ns;        /* when it was last read from, or could be again */
	unsigned inflight;     /* calls not yet replied to, or whose payload is being sent */
	struct rpc_out out;
	int64_t sent_ns; /* while out is not empty: when the peer last took something */

	/* Push channel only. */
	struct rpc_push *pushes; /* sent, not acknowledged, oldest first */
	unsigned push_count;
	uint64_t push_seq; /* newest number */
	bool is_push;
	UT_hash_handle hh; /* server->push_conns, by session; valid if is_push */
};

struct rpc_server {
	struct gx_loop *loop;
	struct gx_env *env;
	struct rpc_dispatcher *dispatcher;
	struct rpc_sessions *sessions;
	const struct rpc_session_events *session_events;
	void *session_arg;
	void (*commit_fn)(void *arg);
	void *commit_arg;
	struct rpc_handshake_server hello;
	unsigned connections_max, half_open_max;
	int64_t handshake_ns;
	struct rpc_listeners listeners;
	struct rpc_conn *conns, *dead, *half_open, *dirty;
	struct rpc_conn *push_conns;
	struct rpc_conn *pool_waiters; /* paused until a payload buffer is free */
	struct rpc_call *free_calls;
	unsigned free_call_count;
	void *pool; /* free payload buffers, linked through their first bytes */
	uint64_t pool_buffers, pool_buffers_max; /* made; may be made */
	size_t held_bytes;                       /* decoded requests in work, all connections */
	unsigned char *scratch;
	struct gx_hook turn_end;
	struct gx_timer sweep;
	bool draining;
	int64_t drain_started_ns, drain_deadline_ns;
	rpc_drained_fn drained;
	void *drained_arg;
};

/* Takes over fd, also when it fails. */
GX_MUST_CHECK int rpc_conn_new(struct rpc_server *server, int fd,
			       const struct rpc_endpoint *endpoint);
/* Moves it to server->dead. */
void rpc_conn_close(struct rpc_conn *conn, const char *reason);
/* A dead one without calls. */
void rpc_conn_free(struct rpc_conn *conn);
void rpc_conn_flush(struct rpc_conn *conn);
/* Flushes at the end of the turn. */
void rpc_conn_mark_dirty(struct rpc_conn *conn);
/* Now and then: ends it if the peer has stalled, resumes it if there is room again. */
void rpc_conn_sweep(struct rpc_conn *conn, int64_t now);
void rpc_conn_goaway(struct rpc_conn *conn);
/* Queues a frame; a connection that cannot is closed. */
void rpc_conn_send(struct rpc_conn *conn, const struct rpc_frame *frame, const void *message);
/* PUSH_ACK arrived; false: it makes no sense. */
bool rpc_conn_push_ack(struct rpc_conn *conn, uint64_t seq);
/* Fails all that are not acknowledged: when a dead connection is reaped. */
void rpc_conn_push_abort(struct rpc_conn *conn);

#endif
