/*
 * sim_data_work.h - clients that read and write files in a simulated grid with storage, faults that
 * hit it, and whether the bytes are those that CONSISTENCY.md promises (sim_data_model.h).
 *
 * Each client process has one or two workers. The files, half of them with two copies:
 *
 *	private  one worker writes, all read
 *	shared   all write and read
 *	logs     all append and read
 *
 * and temporary ones that come and go, so that objects do. At the end everybody leaves, the
 * faults are healed, all machines lose their power at once, and an auditor reads everything, flips
 * a bit, and looks at what is on the disks (sim_data_check()).
 *
 * The seed decides everything. `wrong` is the first promise that was broken.
 */
#ifndef SIM_DATA_WORK_H
#define SIM_DATA_WORK_H

#include "tests/lib/sim_data.h"
#include "tests/lib/sim_data_model.h"

#define DWORK_CLIENTS_MAX SIM_META_CLIENTS_MAX
#define DWORK_WORKERS_MAX 6u
#define DWORK_SHARED 2u
#define DWORK_LOGS 2u
#define DWORK_FILES_MAX (DWORK_WORKERS_MAX + DWORK_SHARED + DWORK_LOGS)
#define DWORK_HELD 3u

/* What may happen; bits. */
enum {
	DWORK_META_KILLS = 1,
	DWORK_META_CUTS = 2,
	DWORK_FSD_KILLS = 4,
	DWORK_FSD_CUTS = 8,
	DWORK_FSD_RESTARTS = 16, /* drained */
	DWORK_CLIENT_KILLS = 32,
	DWORK_STOPS = 64,
	DWORK_PARTITIONS = 128,
	DWORK_RESETS = 256,
	DWORK_CLOCKS = 512,
	DWORK_FULL = 1024,  /* a disk, for a while */
	DWORK_FLIPS = 2048, /* never together with crashes of fsds: see STORAGE.md, errors */
	DWORK_ACTS = 12,    /* those above */
	DWORK_SLOW_DISK = 4096,
	DWORK_LONG = 8192, /* some are so long that sessions and patience end: less is promised */
	DWORK_FAULTS = 16383,
};

struct dwork;

struct dwork_file {
	struct hist_file hist;
	char path[24];
	int owner; /* worker; -1: shared */
	bool log;
	unsigned ncopy;
	uint64_t ino;
	int64_t large_ns;   /* since when it has been seen to be large; 0: it is not */
	int64_t changed_ns; /* the last call about it */
	bool flipped;       /* a bit of it: reads may fail */
	/* Per client. */
	bool doubt[DWORK_CLIENTS_MAX];          /* it may have lost its lease */
	bool may_fail[DWORK_CLIENTS_MAX];       /* it may be told so by an error */
	uint32_t could_fail[DWORK_CLIENTS_MAX]; /* until this tick */
};

struct dwork_held {
	struct gfs_file *file; /* NULL: free */
	struct dwork_file *of;
	unsigned number; /* of the handle */
	unsigned flags;
	bool small;    /* as far as it knows the file is metad's: it may hold writes back */
	unsigned late; /* bytes written so though the file was large */
};

struct dwork_worker {
	struct dwork *work;
	unsigned number, client;
	struct gx_thread thread;
	unsigned steps;
	unsigned temporary; /* number of the last */
	bool lost;
	struct dwork_held held[DWORK_HELD];
};

struct dwork_client {
	struct dwork *work;
	unsigned number;
	struct gx_sim_proc *proc;
	struct gfs *fs;
	struct gfd_options options;
	size_t cache_bytes;
	bool dead, done, left;
	unsigned hampers;  /* stopped or cut off from metad, now */
	uint32_t hampered; /* tick of the last end of one */
};

struct dwork_counts {
	uint64_t writes, reads, appends, syncs, failures, temporary, resent, failovers, verified,
		damaged, lives, flips;
};

struct dwork {
	/* Set after dwork_init(). */
	unsigned faults;
	unsigned client_count, worker_count;
	unsigned acts;  /* of the weather */
	unsigned steps; /* of each worker */
	int64_t act_gap_ns;
	bool gentle_end; /* no power cut at the end */
	bool write_back; /* before it; else no bit is flipped after it */

	struct sim_data data;
	struct dwork_client clients[DWORK_CLIENTS_MAX];
	struct dwork_worker workers[DWORK_WORKERS_MAX];
	struct dwork_file files[DWORK_FILES_MAX];
	unsigned file_count;
	uint32_t tick;
	unsigned handles;    /* given */
	int64_t meta_cut_ns; /* the last; 0: none */
	uint32_t fsd_cut;    /* tick of the last; 0: none */
	uint64_t fsd_away_ms[SIM_DATA_FSDS];
	struct dwork_counts counts;
	uint64_t trace;
	char wrong[400];
};

/* Chooses clients, workers and faults by the seed. */
void dwork_init(struct dwork *work, uint64_t seed);
/* Runs all of it; "" or what is wrong. */
const char *dwork_run(struct dwork *work);

/* -- for the files of this ------------------------------------------------------------------------
 */

void dwork_wrong(struct dwork *work, const char *fmt, ...) GX_PRINTF(2, 3);
uint64_t dwork_random(struct dwork *work, uint64_t bound);
/* Clients that are not dead, as bits. */
unsigned dwork_alive(const struct dwork *work);
/* The client is stopped or cut off from metad, and is back. */
void dwork_hamper(struct dwork_client *client);
void dwork_unhamper(struct dwork_client *client);
/* Everything a client has not synced may be lost: somebody was away for too long. */
void dwork_doubt(struct dwork_client *client);
/* One step of a worker (sim_data_steps.c). */
void dwork_step(struct dwork_worker *worker, struct gfs *fs);
void dwork_close_all(struct dwork_worker *worker);
/*
 * Has it two copies? Waits until both can be read: who finds nothing but a damaged one is told so
 * (B8), also if the node of a good one is not back yet.
 */
bool dwork_all_there(struct gfs *fs, struct gx_env *env, const struct dwork_file *file);
/* Reads all of it; the error, which is allowed or has been told. */
int dwork_read_all(struct dwork *work, struct gfs *fs, struct dwork_file *file, int client);

#endif
