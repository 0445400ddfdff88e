/*
 * rpc_session.h - sessions in memory: who is connected, what they did last.
 *
 * A session is one client process as the server sees it, over any number of
 * connections. It owns the replay table for its mutations (rule N5). It stays
 * for a while after its last connection so that a client can come back and ask
 * "was that done?".
 *
 * Replay: a mutation carries a sequence number, from 1, chosen by the client
 * and never used twice, and a window: the client has the replies of all
 * numbers up to seq - window and will not ask for them again. Results above
 * that line are kept, at most GX_REPLAY_PER_SESSION_MAX of them.
 *
 * This table lives as long as the process. metad has its own in its durable
 * state, behind the same two seams: rpc_session_fn and struct rpc_replay.
 *
 * Thread-safe.
 */
#ifndef RPC_SESSION_H
#define RPC_SESSION_H

#include "rpc/rpc_dispatch.h"

struct rpc_sessions;

/* `linger_ns`: how long a session outlives its last connection. */
GX_MUST_CHECK int rpc_sessions_new(struct gx_env *env, int64_t linger_ns,
				   struct rpc_sessions **ret_sessions);
/* No call may still be waiting in it. */
void rpc_sessions_free(struct rpc_sessions *sessions);
GX_DEFINE_CLEANUP(struct rpc_sessions *, rpc_sessions_free)

/* Plug into rpc_dispatcher.replay. */
struct rpc_replay *rpc_sessions_replay(struct rpc_sessions *sessions);

/*
 * An rpc_session_fn (arg is the table). A session belongs to the identity that
 * opened it: asking for somebody else's gets a new one. With a ticket the
 * ticket's session is used, or -EKEYREJECTED if that is somebody else's.
 * -EAGAIN when the table is full.
 */
int rpc_sessions_open(void *sessions, const struct rpc_peer *peer, uint64_t asked,
		      uint64_t *ret_session, bool *ret_known);

/* A connection of the session came or went. */
void rpc_sessions_attach(struct rpc_sessions *sessions, uint64_t session);
void rpc_sessions_detach(struct rpc_sessions *sessions, uint64_t session);
/* Forgets sessions without connections whose time is over. Call every second or so. */
void rpc_sessions_expire(struct rpc_sessions *sessions);
size_t rpc_sessions_count(struct rpc_sessions *sessions);

#endif
