/*
 * md_server_impl.h - what the files of the server share.
 *
 *	md_server.c    life, commands, commit, waiting replies
 *	md_start.c     lock, database, log, replay, ids
 *	md_session.c   sessions, their open files, the replay table, recovery
 *	md_forget.c    cache leases: telling others to forget
 *	md_names.c     handlers that look
 *	md_change.c    handlers that change
 *	md_data.c      handlers about objects: leases, reports, where they are
 *	md_recall.c    leases that are in somebody's way; calls that wait for that; lost writers
 *	md_locking.c   locks on files: whose turn it is, who has vanished with a lock
 *	md_jobs.c      work for storage nodes, and what they say
 *	md_admin.c     handlers about the grid itself: status, users, nodes
 */
#ifndef MD_SERVER_IMPL_H
#define MD_SERVER_IMPL_H

#include "common/gx_hash.h"
#include "common/gx_sum.h"
#include "metad/md_access.h"
#include "metad/md_cap.h"
#include "metad/md_jobs.h"
#include "metad/md_layout.h"
#include "metad/md_lease.h"
#include "metad/md_lock.h"
#include "metad/md_log.h"
#include "metad/md_nodes.h"
#include "metad/md_server.h"
#include "metad/md_state.h"

/* End-of-turn level of the commit: before replies leave. */
#define MD_HOOK_LEVEL 50
/* A getattr waits so long for the writer's word (rule N12). */
#define MD_ASK_NS GX_NSEC_PER_SEC

struct md_session;
struct md_server;

/* An open file. Volatile: after a restart its client declares it again. */
struct md_open {
	uint64_t handle;
	uint64_t ino;
	uint32_t flags; /* 1 read, 2 write */
	struct md_session *session;
	struct md_open *prev, *next; /* md_open_inode.opens */
	UT_hash_handle hh;
};
#define MD_OPEN_READ 1u
#define MD_OPEN_WRITE 2u
#define MD_OPEN_CREATE 4u
#define MD_OPEN_EXCLUSIVE 8u
#define MD_OPEN_TRUNCATE 16u
#define MD_SET_SIZE 8u /* SetattrRequest.mask */
#define MD_OPENS_PER_SESSION_MAX 65536u
#define MD_OPENS_MAX 1000000u /* of all; about 150 bytes each */

/* An inode that is open. */
struct md_open_inode {
	uint64_t ino;
	struct md_open *opens;
	bool orphan; /* has lost its last name meanwhile */
	UT_hash_handle hh;
};

struct md_tell;
/* Somebody waits for a tell. */
struct md_link {
	struct md_link *next;
	struct md_pending *pending;
};

/* A call that has begun. Mutations have one from the start, others when they must wait. */
struct md_pending {
	struct rpc_call *call;
	struct md_session *session;
	struct md_pending *prev, *next;         /* md->waiting */
	struct md_pending *run_prev, *run_next; /* session->running: mutations */
	uint64_t seq;
	struct rpc_call *waiters; /* the same mutation, sent again meanwhile */
	bool is_waiting, is_mutation;
	bool slowed;           /* has waited because the database is behind */
	int err;               /* how it will end */
	uint64_t need;         /* the log must be on disk up to here */
	unsigned tells;        /* clients that must forget first */
	struct md_link *links; /* calls that wait until this one has been settled */
	unsigned touched_count;
	uint64_t touched[MD_TOUCHED_MAX];         /* inodes changed */
	void (*then)(struct md_pending *pending); /* before it is finished; may be NULL */
};

/* A session has been told to forget something and has not acknowledged yet. */
struct md_tell {
	struct md_tell *prev, *next; /* session->tells */
	struct md_session *session;
	struct md_link *links;
	int64_t sent_ns;
	bool pushed; /* the push channel still owes us an answer */
	bool over;   /* … which does not matter any more */
	bool evicted;
};

/* A call that waits until something about an inode changes: it then runs again, from its start. */
struct md_wait {
	struct md_wait *prev, *next;
	struct md_wait_list *list; /* NULL: on md->ready */
	struct rpc_call *call;
	size_t bytes;
	int64_t until_ns; /* then it runs again in any case */
};
struct md_wait_list {
	uint64_t ino;
	struct md_wait *waits;
	UT_hash_handle hh;
};

struct md_session {
	uint64_t id;
	uint64_t lease_id; /* of its leases; another one when it has lost them all */
	char identity[GX_NAME_USER_MAX + 8];
	char program[GX_NAME_USER_MAX + 1];
	char remote[GX_ADDR_TEXT_MAX];
	const struct md_user *user; /* NULL: not a user of the grid */
	bool logged;                /* its opening is in the log; else it may only look */
	bool ending;
	bool awaited;        /* recovery: it has not reported yet */
	bool late;           /* … and had not when recovery ended */
	uint64_t open_index; /* of its opening in the log */
	uint64_t need;       /* what it has been told rests on this (rule N4) */
	uint64_t last_index; /* its newest command */
	uint64_t acked;      /* its client will not ask for these numbers any more */
	uint64_t fresh_from; /* no mutation had this number or a higher one */
	unsigned connections;
	unsigned pendings;   /* calls in work */
	size_t parked_bytes; /* of calls that are kept */
	size_t wait_bytes;   /* of calls that wait for an inode */
	bool push;           /* has a push channel: gets leases */
	bool kick;           /* its connections are to be closed */
	bool distrusted;     /* its push channel broke … */
	int64_t trust_ns;    /* … and until then it may believe what it has in its cache */
	int64_t contact_ns;
	struct md_open *opens;
	struct md_pending *running;
	struct md_tell *tells;
	bool pushed;                /* has had a push channel: it calls every half second */
	struct rpc_call *lock_call; /* its LockWait; NULL: none */
	int64_t lock_until_ns;      /* when that is answered in any case */
	int64_t lock_heard_ns;      /* when it last said what it waits for */
	bool lock_news;             /* in md->lock_news */
	struct md_session *news_prev, *news_next;
	UT_hash_handle hh;       /* md->sessions, by id */
	UT_hash_handle hh_lease; /* md->lease_holders, by lease_id */
};

/* Leases that count no more; they go a few per turn (rule N17). */
struct md_old_leases {
	struct md_old_leases *next;
	uint64_t lease_id;
};

struct md_server {
	struct gx_env *env;
	struct gx_loop *loop;
	const char *name;
	struct md_server_options options;
	int lock_fd;
	struct md_log *log;
	struct md_kv *kv;
	struct md_state state;
	struct md_cap *cap;
	struct md_users *users;
	struct md_nodes *nodes;
	struct md_leases *leases;
	struct md_access *access;
	struct md_jobs *jobs;
	struct rpc_replay replay;
	struct rpc_dispatcher dispatcher;
	struct rpc_server *rpc;
	struct gx_hook turn_end;
	struct gx_timer tick;
	struct gx_task work;
	struct gx_buf record;
	struct rpc_arena arena; /* for metad's own commands and the replay */
	int64_t started_ns;
	int64_t time_ns; /* of the newest command: metad's clock does not go back (rule N13) */
	uint64_t stored; /* index */
	bool stopping;   /* no new work */
	bool freeing;
	rpc_drained_fn drained_fn;
	void *drained_arg;
	int store_err;

	/* Ids (rule N3): next to give; below this are ours to give; asked for, at index. */
	uint64_t next_ino, ino_limit, next_session, session_limit;
	uint64_t reserve_index; /* 0: none under way */
	struct md_ids reserving;

	struct md_session *sessions;
	struct md_session *lease_holders;
	uint64_t lease_ids; /* given */
	struct md_old_leases *old_leases;
	struct md_open_inode *open_inodes;
	unsigned open_count;
	struct md_pending *waiting;
	unsigned unsettled; /* waiting ones with tells of their own */
	struct rpc_call *parked, **parked_end;
	unsigned parked_count;
	size_t parked_bytes;
	bool parked_for_room; /* some of them */
	bool kicks;           /* some session has `kick` set */
	unsigned evictions;   /* tells of evicted leases not acknowledged */
	unsigned endings;
	struct md_wait_list *wait_lists; /* by inode */
	struct md_wait *ready;           /* those that run with the next work */
	unsigned wait_count;
	size_t wait_bytes;
	struct md_locks *locks;
	struct md_session *lock_news; /* it is the turn of something they wait for */
	unsigned lock_calls;          /* sessions with one */
	uint64_t locks_lost;
	uint64_t lock_epoch; /* the last life before that gave new locks */
	bool lock_logged;    /* this one does */
	uint64_t
		lock_need; /* what a new lock rests on: that, and that a session has lost its own */
	uint64_t node_changes; /* md_nodes_changes() at the last tick */
	uint64_t asks;         /* the newest question for a size; never the same twice */
	int64_t ask_ns;        /* who looks waits so long for the answer */

	bool recovering;
	unsigned awaited;
	int64_t recovery_deadline_ns;
	int64_t recovered_ns; /* since then all are answered */
	int64_t ticked_ns;
	bool recovery_ends; /* somebody it waited for has gone: look again */
	bool reaping;
	uint64_t reap_from;
};

/* -- md_server.c ------------------------------------------------------------------------------ */

void md_fatal(struct md_server *md, int err) GX_NORETURN;
/* The time of a new command. */
int64_t md_time(struct md_server *md);
/* At most so long is the command's record; `bytes`: its request and payload. */
size_t md_record_bytes(const struct md_command *command, size_t bytes);
/*
 * Applies a command and puts it into the log. ctx->changed false: nothing to log, nothing was.
 * -ENOSPC: the log is full; what the state machine says. After success md_finish_command() ends it.
 */
GX_MUST_CHECK int md_execute(struct md_server *md, struct md_command *command, struct md_ctx *ctx,
			     ProtobufCMessage *reply, size_t bytes);
void md_finish_command(struct md_server *md, struct md_ctx *ctx, const struct md_command *command);
/* One of metad's own. -ENOSPC. */
GX_MUST_CHECK int md_own_command(struct md_server *md, enum rpc_method_index method,
				 uint64_t session, const ProtobufCMessage *request,
				 ProtobufCMessage *reply, uint64_t *ret_index);
/* The same; *ctx tells what it did, and its texts are gone. */
GX_MUST_CHECK int md_own_execute(struct md_server *md, enum rpc_method_index method,
				 uint64_t session, const ProtobufCMessage *request,
				 ProtobufCMessage *reply, struct md_ctx *ctx);
/* A number for a new inode, and that it has been used. -EAGAIN: none is reserved yet. */
GX_MUST_CHECK int md_peek_ino(struct md_server *md, uint64_t *ret_ino);
void md_took_ino(struct md_server *md);
GX_MUST_CHECK int md_take_session_id(struct md_server *md, uint64_t *ret_session);
/*
 * Puts caps, tokens and receipts into the reply of a command, packs it and remembers it. `packed`
 * has MD_RESULT_MAX bytes; `done` is memory for the reply's.
 */
size_t md_complete(struct md_server *md, struct md_ctx *ctx, const struct md_command *command,
		   ProtobufCMessage *reply, PbMeta__Done *done, unsigned char *packed);
/* What a mutation's reply says of it; NULL: nothing. */
const PbMeta__Done *md_reply_done(uint16_t method, ProtobufCMessage *reply);
/* -ESTALE: whoever sends this was never told of the inode. */
GX_MUST_CHECK int md_cap_check(struct md_server *md, uint64_t ino, uint64_t cap);
void md_fill_cap(struct md_server *md, PbMeta__Attr *attr);

/* A call that must wait. NULL: no memory. */
struct md_pending *md_pending_new(struct md_session *session, struct rpc_call *call);
/*
 * The call is done, with err, but for what it must wait for: returns err, or RPC_DEFERRED.
 * `pending` may be NULL for one that is no mutation; ctx (may be NULL) tells what it looked at.
 */
int md_settle(struct md_server *md, struct rpc_call *call, struct md_session *session,
	      struct md_pending *pending, uint64_t need, int err, const struct md_ctx *ctx);
/* Something it waited for has come. True: it has ended, and its `then` may have ended others. */
bool md_pending_check(struct md_server *md, struct md_pending *pending);
/*
 * Keeps a call that cannot begin yet: RPC_DEFERRED, or -EAGAIN if too much is kept. `for_room`:
 * until the log or the database can take more.
 */
int md_park(struct md_server *md, struct rpc_call *call, bool for_room);
void md_unpark(struct md_server *md);
/* There is more to do than fits this turn. */
void md_more_work(struct md_server *md);

/* The check of a request, with its payload: what a retry and a receipt have in common with it. */
static inline uint64_t md_check_with(uint64_t check, const struct rpc_call *call)
{
	return call->payload_bytes > 0 ? gx_sum64_seed(call->payload, call->payload_bytes, check)
				       : check;
}

/* For md_log and md_kv. */
void md_on_durable(void *server, uint64_t index, int err);
void md_on_stored(void *server, uint64_t index, int err);
/* Inode numbers are reserved in such pieces, when half of one is left. */
#define MD_INO_RANGE (UINT64_C(1) << 18)
/* More ids are asked for; the answer is on disk. */
void md_reserve_ids(struct md_server *md);
void md_ids_reserved(struct md_server *md);

/* -- md_start.c -------------------------------------------------------------------------------- */

/* State and log are open and agree. What is wrong has been logged. */
GX_MUST_CHECK int md_start_state(struct md_server *md);

/* -- md_session.c ------------------------------------------------------------------------------ */

extern const struct rpc_replay_ops md_replay_ops;
extern const struct rpc_session_events md_session_events;
/* An rpc_session_fn. */
int md_session_find_or_make(void *server, const struct rpc_peer *peer, uint64_t asked,
			    uint64_t *ret_session, bool *ret_known);
/* After the log has been replayed: the sessions it knows, all awaited. */
GX_MUST_CHECK int md_sessions_load(struct md_server *md);
void md_sessions_free(struct md_server *md);
void md_sessions_tick(struct md_server *md, int64_t now);
void md_sessions_users(struct md_server *md);
/* Pieces of work for this turn: sessions that end, orphans to remove. */
void md_sessions_work(struct md_server *md);
/* Its opening is in the log now, if it was not yet. -ENOSPC. */
GX_MUST_CHECK int md_session_log(struct md_server *md, struct md_session *session);
void md_session_end(struct md_server *md, struct md_session *session, const char *reason);
/*
 * The same, and from *ret_index on in the log nothing brings it back. -ENOSPC: it goes on.
 */
GX_MUST_CHECK int md_session_end_for_sure(struct md_server *md, struct md_session *session,
					  const char *reason, uint64_t *ret_index);
struct md_session *md_session_get(struct md_server *md, uint64_t id);
/*
 * The start of every handler: who asks. 0; RPC_DEFERRED: parked until recovery is over; negative.
 */
GX_MUST_CHECK int md_enter(struct md_server *md, struct rpc_call *call,
			   struct md_session **ret_session);
/* -EBADF. `want`: MD_OPEN_READ, MD_OPEN_WRITE or 0. */
GX_MUST_CHECK int md_open_find(struct md_session *session, uint64_t handle, uint32_t want,
			       struct md_open **ret_open);
/* May this session open one more file? */
bool md_open_room(const struct md_server *md, const struct md_session *session);
GX_MUST_CHECK int md_open_add(struct md_server *md, struct md_session *session, uint64_t handle,
			      uint64_t ino, uint32_t flags);
void md_open_close(struct md_server *md, struct md_session *session, struct md_open *open);
/* All that the session has of this inode. */
void md_open_close_all(struct md_server *md, struct md_session *session, uint64_t ino);
bool md_is_open(void *server, uint64_t ino);
/* For what `want` says; 0: for anything. */
bool md_session_has_open(struct md_server *md, const struct md_session *session, uint64_t ino,
			 uint32_t want);
void md_recovery_check(struct md_server *md);

/* -- md_forget.c ------------------------------------------------------------------------------- */

/* The session may cache this; nothing happens for one without a push channel. */
void md_lease(struct md_server *md, struct md_session *session, uint64_t ino, unsigned what);
/*
 * An answer shows these attributes: gives the right to name the inode, and to keep them in a cache.
 * Those of a file that is being written nobody keeps (rule N12), so who writes need not tell.
 */
void md_show(struct md_server *md, struct md_session *session, PbMeta__Attr *attr);
/* Others forget what the command touched; `pending` waits for them. */
void md_forget(struct md_server *md, struct md_session *by, const struct md_ctx *ctx,
	       struct md_pending *pending);
/* A lease made way for others (md_lease_evict_fn). */
void md_forget_evicted(void *server, uint64_t session, uint64_t ino, unsigned what);
/* A new session may hold leases; it goes. */
GX_MUST_CHECK int md_lease_join(struct md_server *md, struct md_session *session);
void md_lease_part(struct md_server *md, struct md_session *session);
/* One turn's share; true: there is more. */
bool md_lease_work(struct md_server *md);
/* The session has an empty cache: nobody need wait for it. */
void md_forget_over(struct md_server *md, struct md_session *session);
/* All that waited on this list have one thing less to wait for. */
void md_links_release(struct md_server *md, struct md_link **list);
void md_forget_tick(struct md_server *md, int64_t now);
/*
 * Does a call wait for clients to forget what this one has looked at? Then this one waits, too:
 * else it would show a change while somebody may still see the old state.
 */
bool md_is_unsettled(struct md_server *md, const struct md_ctx *ctx);
void md_wait_settled(struct md_server *md, struct md_pending *pending, const struct md_ctx *ctx);

/* Pushes one item to a session, which need not be waited for: Forget.what, Forget.ask. */
void md_tell(struct md_server *md, struct md_session *session, uint64_t ino, uint32_t what,
	     uint64_t ask);
#define MD_TELL_RECALL 8u
#define MD_TELL_SIZE 16u

/* -- md_change.c: a mutation of a client, for handlers elsewhere ---------------------------------
 */

/* As md_enter(), and may this session change anything now? */
GX_MUST_CHECK int md_change_enter(struct md_server *md, struct rpc_call *call,
				  struct md_session **ret_session);
struct md_command md_command_of(struct md_server *md, struct md_session *session,
				struct rpc_call *call);
/* Does what the command says: the call's reply is ready to be sent. ctx->changed: anything? */
GX_MUST_CHECK int md_change_execute(struct md_server *md, struct rpc_call *call,
				    struct md_command *command, struct md_ctx *ctx);
/* The mutation is done, with r: others forget, the answer waits for whom and what it must. */
int md_changed(struct md_server *md, struct rpc_call *call, struct md_session *session,
	       struct md_ctx *ctx, int r);

/* -- md_names.c ----------------------------------------------------------------------------------
 */

struct md_ctx md_ctx_of(struct md_server *md, struct md_session *session, struct rpc_call *call);
/* The answer is err; it rests on what ctx says. */
int md_looked(struct md_server *md, struct rpc_call *call, struct md_session *session,
	      const struct md_ctx *ctx, int err);

/* -- md_recall.c ---------------------------------------------------------------------------------
 */

/*
 * Keeps the call until something about the inode changes, or until then (at most); it then runs
 * again. RPC_DEFERRED, or -EAGAIN if too much is kept.
 */
int md_wait_for(struct md_server *md, struct rpc_call *call, uint64_t ino, int64_t until_ns);
/* Something about it has changed; 0: about nodes. Those who wait run with the next work. */
void md_inode_news(struct md_server *md, uint64_t ino);
void md_nodes_news(struct md_server *md);
void md_waits_work(struct md_server *md);
/* All of them end. */
void md_waits_stop(struct md_server *md);
/*
 * Whoever is in the way of this session is asked to give way; true: somebody is, wait for news.
 * `growing`: the content is inline. `begins`: nobody writes it yet, so all others must give way.
 */
bool md_recall(struct md_server *md, struct md_session *session, uint64_t ino, bool write,
	       bool growing, bool begins);
/*
 * In front of everything that reads or changes inline content: another session may have it on the
 * way out of metad. 0, RPC_DEFERRED, -EAGAIN.
 */
GX_MUST_CHECK int md_inline_enter(struct md_server *md, struct rpc_call *call,
				  struct md_session *session, uint64_t ino, bool write);
/*
 * Rule N12: writers of other sessions are asked for the size first. True: one has not told yet; the
 * call is to wait for news of the inode until md_ask_until(). A writer that does not tell until
 * then is not waited for.
 */
bool md_ask_size(struct md_server *md, struct rpc_call *call, struct md_session *session,
		 uint64_t ino);
int64_t md_ask_until(const struct md_server *md, const struct rpc_call *call);
/* The writer of this inode has vanished, if it is being written: what he left is recovered (B2). */
void md_recover(struct md_server *md, uint64_t ino);
/* The primary has told the size. */
void md_recovered(struct md_server *md, uint64_t ino, uint64_t generation, uint64_t size);
/* The session has closed a handle; it ends (a piece, true: all done); has a new push channel. */
void md_access_closed(struct md_server *md, struct md_session *session, uint64_t ino);
bool md_access_ended(struct md_server *md, struct md_session *session, unsigned steps);
void md_access_rejoined(struct md_server *md, struct md_session *session);
/* After a restart the session says which lease it has; one that cannot be is lost. */
void md_access_resume(struct md_server *md, struct md_session *session,
		      const PbMeta__OpenFile *file);
void md_access_tick(struct md_server *md, int64_t now);

/* -- md_locking.c --------------------------------------------------------------------------------
 */

GX_MUST_CHECK int md_locking_start(struct md_server *md);
/* Those whose turn it is hear of it. */
void md_locking_work(struct md_server *md);
void md_locking_tick(struct md_server *md, int64_t now);
/* Time that counts for nobody (rule N15). */
void md_locking_forgive(struct md_server *md, int64_t gap_ns);
/* The session has closed a handle of this inode; it ends, a piece, true: all done. */
void md_locking_closed(struct md_server *md, struct md_session *session, uint64_t ino);
bool md_locking_ended(struct md_server *md, struct md_session *session, unsigned steps);
/* After a restart the session says which lock it has. An error: it cannot have it any more. */
GX_MUST_CHECK int md_locking_resume(struct md_server *md, struct md_session *session,
				    const PbMeta__HeldLock *lock, uint64_t epoch);
/* No more calls wait. */
void md_locking_stop(struct md_server *md);

/* -- md_data.c -----------------------------------------------------------------------------------
 */

/* Inode (regular) and layout (may be NULL) of a file. -ESTALE, -EISDIR, -EINVAL, -EBADMSG. */
GX_MUST_CHECK int md_file_get(struct md_ctx *ctx, uint64_t ino, struct md_inode *ret_inode,
			      PbMeta__LayoutRecord **ret_layout);
/* A node as clients and other nodes see it, in the call's memory. NULL: no memory. */
PbMeta__Place *md_place_new(struct md_server *md, struct rpc_call *call, const char *node);
/*
 * Adds the ticket for an object to a place, for the session of the call; `base` and `rights` as in
 * rpc_file_ticket.h. -ENOKEY: the node has no key.
 */
GX_MUST_CHECK int md_place_ticket(struct md_server *md, struct rpc_call *call, PbMeta__Place *place,
				  uint64_t ino, uint64_t generation, uint64_t base,
				  uint32_t rights);
/* Adds the way to the node's data connections, for the caller of the call. */
GX_MUST_CHECK int md_place_session(struct md_server *md, struct rpc_call *call,
				   PbMeta__Place *place);

/* -- the handlers -------------------------------------------------------------------------------
 */

#define RPC_PUSH(...)
#define RPC_METHOD(svc, Svc, id, UPPER, lower, Camel, flags, since, text)                          \
	int md_op_##lower(struct rpc_call *call, const PbMeta__##Camel##Request *request,          \
			  PbMeta__##Camel##Reply *reply);
#define RPC_SERVICE_META
#include "idl/methods.def"

#endif
