/*
 * md_jobs_impl.h - what the files of md_jobs share.
 *
 *	md_jobs.c        the queues: jobs, nodes that wait, giving and taking back
 *	md_jobs_plan.c   what is to be done: copies that lack or are too many, trash, lost writers
 *	md_jobs_evict.c  cache copies that make room
 *	md_jobs_told.c   what nodes say: results, notes, which objects they have, that they rebooted
 */
#ifndef MD_JOBS_IMPL_H
#define MD_JOBS_IMPL_H

#include "metad/md_server_impl.h"

/* Job.kind */
#define MD_JOB_COPY 1u
#define MD_JOB_DELETE 2u
#define MD_JOB_RECOVER 3u

/* CopyChangeRequest.what */
#define MD_COPY_IS_THERE 1u
#define MD_COPY_IS_STALE 2u
#define MD_COPY_IS_GONE 3u
#define MD_COPY_TO_DELETE 4u

/* Writers that have vanished, all nodes together; more are found again later. */
#define MD_JOBS_RECOVER_MAX 65536u
/* Inodes to be looked at soon; with more all that are unbalanced are. */
#define MD_JOBS_LOOKS_MAX 4096u
/* Inodes about which a job has failed lately. */
#define MD_JOBS_FAILED_MAX 65536u
/* NodeWork calls of one node that wait; a node has two lines. */
#define MD_JOBS_WAITS_MAX 4u
/* What may go wrong once is tried again after that; twice as long each time. */
#define MD_JOBS_RETRY_NS GX_NSEC_PER_SEC
#define MD_JOBS_RETRY_MAX_NS (60 * GX_NSEC_PER_SEC)

struct md_worker;
struct md_eviction;

struct md_job {
	struct md_job *prev, *next; /* of the node */
	UT_hash_handle hh;          /* by id */
	struct md_worker *worker;
	struct md_job_inode *inode;
	struct md_job *ino_prev, *ino_next;
	uint64_t id;
	unsigned kind; /* MD_JOB_ */
	uint64_t generation;
	uint64_t from_generation; /* recover */
	bool cache;               /* the copy is one (rule B11) */
	uint64_t need;            /* the log must be on disk up to here first (rule N2) */
	int64_t given_ns;         /* 0: it has not been, or is to be given anew */
	bool was_given;           /* the node may have done it */
	bool again;               /* the node may not have heard of it: it is given once more */
	bool doubted;             /* since then a source has lost its power (rule B3) */
	int64_t after_ns;         /* not before */
};

/* An inode that has jobs, or had one that failed. */
struct md_job_inode {
	uint64_t ino;
	struct md_job *jobs;
	unsigned fails;                         /* since a copy succeeded */
	int64_t retry_ns;                       /* with fails: no new copy before … */
	bool looked;                            /* … and then it has been looked at */
	char failed_node[MD_NODE_NAME_MAX + 1]; /* the last copy that failed was to be there */
	UT_hash_handle hh;
};

/* A NodeWork call that waits, in its own memory. */
struct md_work_wait {
	struct md_work_wait *prev, *next;
	struct rpc_call *call;
	int64_t until_ns;
	uint64_t need; /* what it told is on disk then */
};

/* An inventory, or the look at a node that has rebooted: in pieces (rule N17). */
struct md_sweep {
	struct rpc_call *call; /* to be answered at its end; NULL: none */
	uint64_t next;         /* inode */
	bool over;             /* all have been looked at */
	uint64_t need;         /* on disk before the answer */
};

/* A storage node, as far as work is concerned. */
#define MD_JOBS_WRITTEN_SLOTS 16384u

struct md_worker {
	char name[MD_NODE_NAME_MAX + 1];
	UT_hash_handle hh;
	struct md_job *jobs;
	unsigned job_count;  /* all but recoveries */
	unsigned copy_count; /* copies among them */
	struct md_work_wait *waits;
	unsigned wait_count;
	/* Trash: where the next page begins; ino 0: at the first. */
	bool trash_news;
	struct md_trash trash_next;
	int64_t trash_after_ns;
	/* Rule B3: the boot whose copies have been judged, and the look that does so. */
	uint64_t boot;
	uint64_t rebooting; /* the new boot; 0: no look is under way */
	struct md_sweep reboot;
	struct md_sweep inventory;
	size_t inventory_at;   /* in the request's objects */
	int64_t registered_ns; /* what it lists it has looked for after that */
	/* Caches (rule B11): the pass that is under way; when the next may be, for room and for
	 * age. */
	struct md_eviction *eviction;
	int64_t evict_after_ns, evict_age_ns;
};

struct md_look {
	uint64_t ino;
	UT_hash_handle hh;
};

struct md_jobs {
	struct md_server *md;
	struct rpc_arena arena; /* of one look at the state */
	struct md_worker *workers;
	struct md_job *jobs;         /* by id */
	struct md_job_inode *inodes; /* by number */
	struct md_look *looks;
	uint64_t last_id;
	unsigned recovers;
	size_t failed;      /* inodes with `fails` */
	int64_t retries_ns; /* when they are looked at next */
	/*
	 * By inode, modulo: when a writer was last heard of. An inventory can be late, and what was
	 * made since its node registered need not be in it. Two that meet only judge one too late.
	 */
	int64_t written_ns[MD_JOBS_WRITTEN_SLOTS];
	bool stopped;

	/* All unbalanced inodes. */
	bool scan_wanted; /* from the start, once the one under way is over */
	bool scanning;
	uint64_t scan_next;
	bool scan_missed; /* something could not be planned */
	int64_t scan_begun_ns;
	int64_t scan_after_ns; /* not before */
	int64_t missed_ns;     /* nor because of what was missed */

	/* Files that were being written when metad ended, and whose writer has not come back. */
	bool abandoned_wanted;
	bool abandoned_scan;
	uint64_t abandoned_next;
};

static inline struct md_ctx md_jobs_ctx(struct md_jobs *jobs)
{
	return (struct md_ctx){.state = &jobs->md->state, .arena = &jobs->arena};
}

/* -- md_jobs.c -------------------------------------------------------------------------------- */

/* NULL: no such node has been heard of. */
struct md_worker *md_worker_find(struct md_jobs *jobs, const char *node);
/* -ENOMEM */
GX_MUST_CHECK int md_worker_make(struct md_jobs *jobs, const char *node,
				 struct md_worker **ret_worker);
struct md_job_inode *md_job_inode_find(struct md_jobs *jobs, uint64_t ino);
/* -ENOMEM */
GX_MUST_CHECK int md_job_new(struct md_jobs *jobs, struct md_worker *worker, unsigned kind,
			     uint64_t ino, uint64_t generation, struct md_job **ret_job);
void md_job_free(struct md_jobs *jobs, struct md_job *job);
struct md_job *md_job_find(struct md_jobs *jobs, const struct md_worker *worker, uint64_t id);
/* A copy has failed: the inode is left alone for a while. */
void md_job_failed(struct md_jobs *jobs, struct md_job *job, int err);
/* It counts no more; the record of the inode may go with that. */
void md_job_forgive(struct md_jobs *jobs, struct md_job_inode *inode);
/* Nodes that wait get what there is. */
void md_worker_serve(struct md_jobs *jobs, struct md_worker *worker);
/* All jobs are to be given anew. */
void md_worker_again(struct md_worker *worker);
/* An answer to the node got lost: what it was given it may not have. */
void md_worker_repeat(struct md_worker *worker);
/*
 * Keeps a NodeWork until there is a job, or a second has passed; `told`: until what it told is on
 * disk, which is `need`. RPC_DEFERRED, or negative.
 */
GX_MUST_CHECK int md_jobs_wait(struct md_jobs *jobs, struct md_worker *worker,
			       struct rpc_call *call, bool told, uint64_t need);

/*
 * One CopyChange; *ret_changed (may be NULL): it was still true. *need grows to its index. -ENOSPC.
 */
GX_MUST_CHECK int md_copy_change(struct md_jobs *jobs, const char *node, uint64_t ino,
				 uint64_t generation, uint32_t flags, unsigned what,
				 bool *ret_changed, uint64_t *need);

/* It is there, and on disk up to this clock. */
GX_MUST_CHECK int md_copy_stable(struct md_jobs *jobs, const char *node, uint64_t ino,
				 uint64_t generation, uint32_t flags, uint64_t clock,
				 uint64_t *need);

/* -- md_jobs_plan.c --------------------------------------------------------------------------- */

/* Is this copy still wanted, so that it may be given? */
bool md_plan_wants(struct md_jobs *jobs, const struct md_job *job, struct md_inode *ret_inode,
		   PbMeta__LayoutRecord **ret_layout);
/* Is it still the primary's turn? The file may have been deleted meanwhile. */
bool md_plan_wants_recovery(struct md_jobs *jobs, const struct md_job *job);
/* A copy that is not wanted any more, and may have been made without our hearing of it, goes. */
void md_plan_discard(struct md_jobs *jobs, const struct md_job *job);
/* What the node has of it is in doubt: a cache copy counts from now on, if no other does. -ENOSPC.
 */
GX_MUST_CHECK int md_plan_stand_in(struct md_jobs *jobs, const char *node, uint64_t ino,
				   uint64_t *need);
/* A share of this turn; true: there is more. */
bool md_plan_work(struct md_jobs *jobs);
void md_plan_free(struct md_jobs *jobs);

/* -- md_jobs_evict.c -------------------------------------------------------------------------- */

void md_evict_tick(struct md_jobs *jobs, int64_t now);
bool md_evict_work(struct md_jobs *jobs);
/* Has the node so much room that a cache copy would not be the next to go? */
bool md_evict_has_room(struct md_jobs *jobs, const char *node);

/* -- md_jobs_told.c --------------------------------------------------------------------------- */

/* A node has noticed something about a copy of its own: ObjectNote.what and .clock. -ENOSPC. */
GX_MUST_CHECK int md_note_copy(struct md_jobs *jobs, const char *node, uint64_t ino,
			       uint64_t generation, unsigned what, uint64_t clock, uint64_t *need);
bool md_told_work(struct md_jobs *jobs);
/* What was done is on disk: sweeps that wait for it are answered. */
void md_told_durable(struct md_jobs *jobs);
void md_told_stop(struct md_jobs *jobs);

#endif
