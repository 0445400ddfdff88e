/*
 * gfc_impl.h - what the files of the client of metad share.
 *
 * Locks: gfc->lock may be held when a channel is aborted; cache and replay have their own. None is
 * held during a call. data_lock is never taken with another one held.
 */
#ifndef GFC_IMPL_H
#define GFC_IMPL_H

#include "client/fs/gfc.h"
#include "client/fs/gfc_cache.h"
#include "client/fs/gfc_replay.h"
#include "include/gfs.h"
#include <stdatomic.h>

#define RPC_SERVICE_META
#include "rpc/rpc_stub.h"

#define GFC_ERROR_MAX 512u

struct gfc_open {
	struct gfc_open *prev, *next; /* gfc->opens */
	struct gfc_ref ref;
	uint64_t handle;
	uint64_t token;
	uint32_t flags; /* GFC_OPEN_* that a new metad needs */
	bool truncate_later;
	/* gfc->lock: */
	bool lost;    /* metad has it no more: -ESTALE */
	bool written; /* since it was opened */
};

/* Locks as this client has them, for who restarts metad; and those it waits for (gfc_lock.c). */
struct gfc_locks {
	struct gfc_locked *owners; /* by inode, owner and kind */
	struct gfc_waiting *waits; /* in the order of their ids */
	uint64_t last_id;
	uint64_t epoch; /* of the newest life of metad that has confirmed all of them */
	uint64_t count, wait_count;
	unsigned unsure;       /* owners that metad may think of otherwise */
	struct gx_cond change; /* of anything here */
	bool has_thread;
	bool stopping;
	bool calling; /* the thread waits for metad */
	struct gx_thread thread;
};

struct gfc {
	struct gx_env *env;
	struct rpc_client *client;
	int64_t timeout_ns;
	char program[GX_NAME_USER_MAX + 1];
	struct gfc_cache *cache; /* NULL: none */
	struct gfc_replay replay;

	_Atomic uint64_t calls;
	_Atomic uint64_t resumed;
	_Atomic uint64_t forgotten;
	_Atomic uint64_t syncs;
	_Atomic uint64_t ask_at; /* with so many numbers outstanding metad is asked for the disk */

	/* Calls into it are made with this lock, so that it can be taken away; above gfd's locks.
	 */
	struct gx_mutex data_lock;
	struct gfd *data; /* NULL: none */

	struct gx_mutex lock; /* all below */
	struct gfc_open *opens;
	struct gfc_open *late;         /* closed, but metad does not know yet; linked by next */
	int lost_err;                  /* to be told once by the next sync or close; 0: none */
	char lost_text[GFC_ERROR_MAX]; /* which */

	struct gfc_locks locks;
	bool predicts;       /* set once, with the first told_fn, before there are changes */
	gfc_told_fn told_fn; /* NULL: none */
	void *told_arg;
	unsigned telling; /* calls of it that run */

	/* The background thread (gfc_push.c). */
	bool has_thread;
	struct gx_thread thread;
	bool busy;     /* it connects or calls */
	bool stopping; /* no more of that */
	bool stopped;  /* and the channel there is shall end */
	struct gx_cond wake;
	struct rpc_chan *push; /* while open */
	uint64_t push_resets;
};

/* -- calls ---------------------------------------------------------------------------------- */

/* One call of one operation; init, call through the stub with these options, end. */
struct gfc_call {
	struct gfc *gfc;
	struct rpc_call_options options;
	struct rpc_reply reply;
	struct gx_buf errors;
	unsigned char text[GFC_ERROR_MAX];
	uint64_t clock; /* of the cache, when it began */

	/* Mutations. */
	struct gfc_unsynced *unsynced;
	size_t done_offset;    /* of the Done in the reply */
	struct gfc_open *open; /* Open: to be entered; Write: to be removed */
};

void gfc_call_init(struct gfc_call *call, struct gfc *gfc);
/*
 * The call is a mutation: waits for the disk if too much is unsynced, and copies the request.
 * done_offset: of the field `done` in the reply's struct.
 */
GX_MUST_CHECK int gfc_call_mutates(struct gfc_call *call, enum rpc_method_index method,
				   const ProtobufCMessage *request, size_t done_offset);
/* Frees; evaluates to r, and explains it in gfc_error() if it is an error. */
int gfc_call_end(struct gfc_call *call, int r);
/* metad itself has said so: nothing was done. */
static inline bool gfc_call_answered(const struct gfc_call *call)
{
	return call->reply.status != 0;
}

/* Asks metad how far the disk is; waits for all of this session if `wait`. */
GX_MUST_CHECK int gfc_ask_disk(struct gfc *gfc, bool wait, int64_t deadline_ns);
/* The next sync or close fails with err; the first reason stays. */
void gfc_lose(struct gfc *gfc, int err, const char *fmt, ...) GX_PRINTF(3, 4);
/* That error, once. */
int gfc_take_lost(struct gfc *gfc);
int64_t gfc_deadline(struct gfc *gfc);

static inline uint64_t gfc_clock(struct gfc *gfc)
{
	return gfc->cache ? gfc_cache_clock(gfc->cache) : 0;
}

/* -- attributes ------------------------------------------------------------------------------- */

/* -EPROTO if metad left it out. */
GX_MUST_CHECK int gfc_attr_from(const PbMeta__Attr *pb, struct gfc_attr *ret_attr);
/* The same, into the cache too, if it is still true. */
GX_MUST_CHECK int gfc_learn(struct gfc_call *call, const PbMeta__Attr *pb,
			    struct gfc_attr *ret_attr);
/* Before and after a change of our own; `change` says what it did, or (r < 0) might have done. */
void gfc_touch(struct gfc_call *call, struct gfc_cache_change *change);
void gfc_changed(struct gfc_call *call, int r, struct gfc_cache_change *change);

/* -- open files ------------------------------------------------------------------------------- */

void gfc_opens_add(struct gfc *gfc, struct gfc_open *open);
void gfc_opens_remove(struct gfc *gfc, struct gfc_open *open);
/* metad has been restarted: tells it what is open. */
GX_MUST_CHECK int gfc_opens_resume(struct gfc *gfc, struct rpc_chan *chan, int64_t deadline_ns);
/* metad has forgotten by itself what it was to hear of. */
void gfc_opens_forget_late(struct gfc *gfc);
/* All are lost. */
void gfc_opens_lose(struct gfc *gfc);
bool gfc_open_lost(struct gfc *gfc, const struct gfc_open *open);

/*
 * metad has refused the handle although it was opened for `want`: it was taken away, because we
 * were silent and another wanted a lock that we had. Evaluates to r, or -ESTALE.
 */
int gfc_open_refused(struct gfc *gfc, struct gfc_open *open, uint32_t want, int r);

/* -- locks (gfc_lock.c) ------------------------------------------------------------------------ */

GX_MUST_CHECK int gfc_locks_init(struct gfc *gfc);
void gfc_locks_stop(struct gfc *gfc);
void gfc_locks_fini(struct gfc *gfc);
/* The open file is about to go: what it locked ends. */
void gfc_locks_closing(struct gfc *gfc, struct gfc_open *open);
/* Under the lock: locks of files that are lost are, too. */
void gfc_locks_lost(struct gfc *gfc);
/* All there are, to be told a new metad; the caller frees both. */
GX_MUST_CHECK int gfc_locks_copy(struct gfc *gfc, PbMeta__HeldLock **ret_locks,
				 PbMeta__HeldLock ***ret_list, size_t *ret_count,
				 uint64_t *ret_epoch);

/* -- the other half (gfd.h) ------------------------------------------------------------------- */

/* A push of metad's. */
void gfc_data_obey(struct gfc *gfc, const PbMeta__ForgetRequest *forget);
/* The layer above is told (gfc_told_fn). */
void gfc_tell(struct gfc *gfc, const PbMeta__ForgetRequest *forget);
/* Nothing that was leased may be trusted any more. */
void gfc_data_reset(struct gfc *gfc);
/* Fills in what this session may do with each inode. */
void gfc_data_leases(struct gfc *gfc, PbMeta__OpenFile *files, size_t count);

/* -- pushes -------------------------------------------------------------------------------------
 */

GX_MUST_CHECK int gfc_push_start(struct gfc *gfc);
/* Until there is a channel, for a while: without one metad would give no more than a shared lease.
 */
void gfc_push_wait(struct gfc *gfc);
/*
 * The end begins: the thread neither calls nor connects any more when this returns, but stays on
 * the channel there is, since metad answers nothing for a while when that closes.
 */
void gfc_push_last(struct gfc *gfc);
void gfc_push_stop(struct gfc *gfc);
/* The push channel there is must be of no more use: empties the cache at once. */
void gfc_push_reset(struct gfc *gfc);
/* An rpc_answered_fn. */
void gfc_push_answered(void *arg, int64_t sent_ns);
GX_MUST_CHECK int gfc_renew(struct gfc *gfc, int64_t deadline_ns);

#endif
