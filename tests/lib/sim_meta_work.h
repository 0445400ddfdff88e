/*
 * sim_meta_work.h - clients that work in a simulated grid, faults that hit it, and whether all that
 * metad promised is true afterwards.
 *
 * Each client process has one or two workers. A worker changes its own directories (see
 * sim_meta_model.h), looks at those of others, and takes part in what is shared:
 *
 *	locks  directories made by one at a time: whoever made it removes it
 *	log    a file to which all append, each token once, where the answer said
 *	mix    names that all create, link, rename and remove; at the end all clients and the
 *	       disk agree about them
 *
 * The seed decides everything. `wrong` is the first promise that was broken.
 */
#ifndef SIM_META_WORK_H
#define SIM_META_WORK_H

#include "tests/lib/sim_meta.h"
#include "tests/lib/sim_meta_model.h"

#define WORKERS_MAX 6u
#define WORK_LOCKS 2u
#define WORK_MIX 4u
#define WORK_APPENDS 48u /* of one worker */
#define WORK_HELD 3u     /* files held open by a worker */

/* What may happen; bits. */
enum {
	WORK_KILLS = 1,      /* metad -9 */
	WORK_CUTS = 2,       /* metad's power */
	WORK_RESETS = 4,     /* connections */
	WORK_PARTITIONS = 8, /* of one client, shorter than the recovery window */
	WORK_STOPS = 16,     /* of a process, for a while */
	WORK_CLIENT_KILLS = 32,
	WORK_CLOCKS = 64,     /* jump and drift */
	WORK_BAD_DISK = 128,  /* a sync of metad's fails */
	WORK_SLOW_DISK = 256, /* syncs take up to 100 ms */
	WORK_LONG = 512,      /* partitions so long that sessions end: less is promised */
	WORK_FAULTS = 1023,
};

struct work;

struct work_held {
	struct gfc_open *open; /* NULL: free */
	unsigned inode;        /* of the model */
	bool writes;
};

struct work_append {
	uint64_t token;
	uint64_t offset;
	bool acked;
};

struct work_worker {
	struct work *work;
	unsigned number, client;
	struct gx_thread thread;
	unsigned steps; /* to do */
	bool lost;      /* its session was, or an outcome is unknown: it ends */
	struct model model;
	struct gfc_ref dirs[MODEL_DIRS];
	uint64_t caps[MODEL_INODES];
	struct work_held held[WORK_HELD];
	uint64_t token; /* last used */
	struct work_append appends[WORK_APPENDS];
	unsigned append_count, append_synced;
};

struct work_client {
	struct work *work;
	unsigned number;
	struct gx_sim_proc *proc;
	struct gfc *gfc;
	size_t cache_bytes;
	bool dead, done, left;
	bool has_mix;
	uint64_t mix[WORK_MIX]; /* what it sees at the end */
};

struct work_lock {
	int holder;       /* worker; -1: nobody */
	unsigned last;    /* worker whose change of it was answered last */
	bool releasing;   /* the holder has begun to */
	uint64_t pending; /* workers with a call about it on its way; bits */
	uint64_t events;  /* counts what happened to it */
	bool unknown;     /* somebody died with a call on its way */
	uint64_t ino;
};

struct work_counts {
	uint64_t changes, looks, hits, replayed, resumed, forgotten, lives, lost;
};

struct work {
	/* Set after work_init(). */
	unsigned faults;
	unsigned client_count, worker_count;
	unsigned acts;  /* of the weather */
	unsigned steps; /* of each worker */
	int64_t act_gap_ns;

	struct sim_meta meta;
	struct work_client clients[SIM_META_CLIENTS_MAX];
	struct work_worker workers[WORKERS_MAX];
	struct work_lock locks[WORK_LOCKS];
	struct gfc_ref shared, log;
	unsigned cuts;
	struct work_counts counts;
	uint64_t trace; /* of the simulation, at the end */
	char wrong[300];
};

/* Chooses clients, workers and faults by the seed. */
void work_init(struct work *work, uint64_t seed);
/* Runs all of it; "" or what is wrong. */
const char *work_run(struct work *work);

/* -- for the files of this ------------------------------------------------------------------------
 */

void work_wrong(struct work *work, const char *fmt, ...) GX_PRINTF(2, 3);
uint64_t work_random(struct work *work, uint64_t bound);
/* May changes of this worker that were answered have been lost? */
bool work_weak(const struct work_worker *worker);
void work_lock_name(unsigned i, char name[8]);
void work_mix_name(unsigned i, char name[8]);
void work_own_name(unsigned i, char name[8]);
/* One step of a worker. */
void work_step(struct work_worker *worker, struct gfc *gfc);
void work_close_all(struct work_worker *worker, struct gfc *gfc);
/* Steps in what is shared (sim_meta_shared.c). */
void work_step_lock(struct work_worker *worker, struct gfc *gfc);
void work_step_append(struct work_worker *worker, struct gfc *gfc);
/* Is it known whether this lock is there? */
bool work_lock_known(const struct work *work, const struct work_lock *lock);
void work_step_mix(struct work_worker *worker, struct gfc *gfc);
/* An error that nothing in this run explains? Then it is wrong, else the worker is lost. */
void work_failed(struct work_worker *worker, const char *what, int r, int expected);

#endif
