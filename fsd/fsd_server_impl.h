/*
 * fsd_server_impl.h - what the files of the server share.
 */
#ifndef FSD_SERVER_IMPL_H
#define FSD_SERVER_IMPL_H

#include "data.pb-c.h"
#include "fsd/fsd_object.h"
#include "fsd/fsd_server.h"
#include "meta.pb-c.h"
#include "rpc/rpc_auth.h"
#include "rpc/rpc_file_ticket.h"
#include "rpc/rpc_serve.h"

struct fsd_table;
struct fsd_syncer;
struct fsd_agent;

struct fsd_server {
	struct gx_env *env;
	struct gx_loop *loop;
	struct fsd_server_options options;
	struct rpc_auth auth;
	struct rpc_sessions *sessions;
	struct rpc_dispatcher dispatcher;
	struct rpc_serve *serve;
	uint64_t boot; /* of the machine (rule B3) */
	struct fsd_table *table;
	struct fsd_service *service;
	struct fsd_syncer *syncer;
	struct fsd_agent *agent; /* NULL: none */
	struct gx_buf addresses; /* bound, a line each */
	struct gx_timer tick;

	/* The drain. */
	struct gx_thread closer; /* what of it blocks, so that the loop does not */
	bool closer_runs;
	struct gx_task closed;
	rpc_drained_fn drained_fn;
	void *drained_arg;
};

/* How much the clocks of metad and of this node may differ, for tickets (rule N13). */
#define FSD_SKEW_NS (60 * GX_NSEC_PER_SEC)

/* -- fsd_table.c: objects that are open ----------------------------------------------------------
 *
 * Keeps recently used objects open (at most FSD_TABLE_OPEN_MAX; the kernel's limit on descriptors
 * is raised or obeyed) and knows for each the clock of its changes and when it was written last.
 * Thread-safe.
 */
#define FSD_TABLE_OPEN_MAX 4096u

/* A reference to an open object; from _get until _put. */
struct fsd_ref {
	struct fsd_object *object;
	struct fsd_entry *entry;
	uint64_t generation; /* that it had then */
};

GX_MUST_CHECK int fsd_table_new(struct fsd_server *server, struct fsd_table **ret_table);
void fsd_table_free(struct fsd_table *table);
/*
 * The object of a ticket, moved on from its base or made, as rpc_file_ticket.h says. -ESTALE: this
 * node has another generation, or (without base) nothing; -ENOSPC: no spool has room for a new one;
 * -EIO, -EBADMSG.
 */
GX_MUST_CHECK int fsd_table_get(struct fsd_table *table, const struct rpc_file_ticket *ticket,
				struct fsd_ref *ret_ref);
/* One for a job: whatever generation is asked for, made if `make`. -ENOENT. */
GX_MUST_CHECK int fsd_table_get_id(struct fsd_table *table, const struct fsd_object_id *id,
				   bool make, struct fsd_ref *ret_ref);
void fsd_table_put(struct fsd_table *table, struct fsd_ref *ref);
/* The highest generation of an inode that is lower than `below`; -ENOENT. */
GX_MUST_CHECK int fsd_table_below(struct fsd_table *table, uint64_t ino, uint64_t below,
				  uint64_t *ret_generation);
/* No ticket opens the object until it is released. -EBUSY: somebody else holds it. For jobs. */
GX_MUST_CHECK int fsd_table_hold(struct fsd_table *table, const struct fsd_ref *ref);
void fsd_table_release(struct fsd_table *table, const struct fsd_ref *ref);
/* Moves an object on to a generation that is higher than all there are; else -ESTALE. For jobs. */
GX_MUST_CHECK int fsd_table_advance(struct fsd_table *table, struct fsd_ref *ref,
				    uint64_t generation);
/*
 * Around every change of the object's bytes or size: between the two its generation does not move,
 * so that nobody who was shut out changes it any more (rules B1, B2). Not while waiting for a peer.
 * -ESTALE: it has moved already, or is removed.
 */
GX_MUST_CHECK int fsd_table_begin(struct fsd_table *table, const struct fsd_ref *ref);
void fsd_table_end(struct fsd_table *table, const struct fsd_ref *ref);
/*
 * The object has been changed: its clock after that. Of two reports the one with the higher clock
 * is right about the size if each looked at the clock first and at the size then.
 */
uint64_t fsd_table_changed(struct fsd_table *table, struct fsd_ref *ref);
uint64_t fsd_table_clock(struct fsd_table *table, const struct fsd_ref *ref);
/* A block of it is damaged: metad is told, once. */
void fsd_table_damaged(struct fsd_table *table, const struct fsd_ref *ref);
/* All of it is right: the next damage is told again. */
void fsd_table_mended(struct fsd_table *table, const struct fsd_ref *ref);
/* Removes an object; who still has it open keeps it to the end. 0 also if there is none. */
GX_MUST_CHECK int fsd_table_remove(struct fsd_table *table, const struct fsd_object_id *id);
/* -ENOENT; -EBUSY: somebody uses it. */
GX_MUST_CHECK int fsd_table_quarantine(struct fsd_table *table, const struct fsd_object_id *id);
/* Deletes from quarantine what has been there for quarantine_ns. */
void fsd_table_expire(struct fsd_table *table);
/*
 * All objects of all spools in the order of inode numbers, from `first` on, at most `max`, of an
 * inode all or (unless it has more than that) none; 0 at the end. A walk of all spools with first
 * 0, or if the last list has come to its end. For one caller at a time.
 */
GX_MUST_CHECK int fsd_table_list(struct fsd_table *table, uint64_t first, size_t max,
				 PbMeta__ObjectInfo *ret_list, size_t *ret_count);
/* Of all spools, less what is reserved. */
void fsd_table_space(struct fsd_table *table, uint64_t *ret_capacity, uint64_t *ret_free);
/* Room for so many more bytes in the object's spool? -ENOSPC (rule: reserved space is kept). */
GX_MUST_CHECK int fsd_table_room(struct fsd_table *table, const struct fsd_ref *ref,
				 uint64_t bytes);
/* metad's epoch: remembered in each spool. -ESTALE: lower than one seen (rule N9). */
GX_MUST_CHECK int fsd_table_epoch(struct fsd_table *table, uint64_t epoch);
/*
 * Objects that were changed and not touched for `idle_ns`, one reference each; how many. They are
 * shown once; the next change makes them dirty again.
 */
size_t fsd_table_dirty(struct fsd_table *table, int64_t idle_ns, struct fsd_ref *ret_refs,
		       size_t max);
/* When fsd_table_dirty() will have one if nothing happens; GX_FOREVER: there is none. */
int64_t fsd_table_due(struct fsd_table *table, int64_t idle_ns);
/* Called when that may have become earlier, under the table's lock; NULL: nobody. */
void fsd_table_set_waker(struct fsd_table *table, void (*fn)(void *arg), void *arg);

/* -- fsd_service.c: handlers of the data service ------------------------------------------------
 */

struct fsd_service;
extern const struct rpc_service fsd_service_table;

/* It is what handlers get as call->data. */
GX_MUST_CHECK int fsd_service_new(struct fsd_server *server, struct fsd_service **ret_service);
void fsd_service_free(struct fsd_service *service);

/* -- fsd_syncer.c -------------------------------------------------------------------------------
 */

GX_MUST_CHECK int fsd_syncer_new(struct fsd_server *server, struct fsd_syncer **ret_syncer);
void fsd_syncer_free(struct fsd_syncer *syncer);
/*
 * Finishes the deferred call once the object is on disk (from another thread; reply filled by
 * `fn`, which gets the reference back to put it). Several objects at a time, one sync of each.
 */
typedef void (*fsd_synced_fn)(struct rpc_call *call, struct fsd_ref *ref, int err);
GX_MUST_CHECK int fsd_syncer_add(struct fsd_syncer *syncer, struct fsd_ref *ref,
				 struct rpc_call *call, fsd_synced_fn fn);
/* An earlier life may have left it unsynced: it is looked at, synced and told as stable. */
void fsd_syncer_look(struct fsd_syncer *syncer, const struct fsd_object_id *id);
/* Everything that was changed until now is on disk, or could not be brought there. Blocks. */
void fsd_syncer_flush(struct fsd_syncer *syncer);

/* -- fsd_agent.c --------------------------------------------------------------------------------
 */

GX_MUST_CHECK int fsd_agent_new(struct fsd_server *server, struct fsd_agent **ret_agent);
/* Starts its threads. */
GX_MUST_CHECK int fsd_agent_start(struct fsd_agent *agent);
/* Ends its threads, after the last words to metad. What is noted later nobody hears. */
void fsd_agent_stop(struct fsd_agent *agent);
/* Stops and frees. */
void fsd_agent_free(struct fsd_agent *agent);
bool fsd_agent_known(struct fsd_agent *agent);
/* Jobs are to be given up. */
bool fsd_agent_stopping(struct fsd_agent *agent);
/* Something metad should know about an object: ObjectNote.what. NULL agent is fine. Any thread. */
void fsd_agent_note(struct fsd_agent *agent, const struct fsd_object_id *id, unsigned what,
		    uint64_t clock);
#define FSD_NOTE_STABLE 1u
#define FSD_NOTE_DAMAGED 2u
#define FSD_NOTE_GONE 3u

/* -- fsd_copy.c ---------------------------------------------------------------------------------
 *
 * Brings the object (ino, generation) up from one of the sources: with a base, only blocks whose
 * checksums differ travel; everything is verified before it counts, holes stay holes; synced when
 * it returns. The base is not served meanwhile. Other sources are tried if one fails.
 * -EHOSTUNREACH, -ESTALE (no source has that generation any more), -ENOSPC, -EBADMSG (no good
 * source), -ECANCELED (this node is going).
 */
#define FSD_COPY_GENERATION UINT64_C(0) /* of an object that is not all there; in no ticket */
GX_MUST_CHECK int fsd_copy_job(struct fsd_server *server, const PbMeta__Job *job,
			       uint64_t *ret_size);

#endif
