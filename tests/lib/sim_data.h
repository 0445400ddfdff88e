/*
 * sim_data.h - a grid with storage inside the simulation: metad, fsds, and clients with libgfs.
 *
 * metad is that of sim_meta.h. Each fsd is a real fsd_server with two spools on the disk of a
 * host of its own; the boot id of its machine changes with each power cut. Each client process has
 * a real struct gfs. At the end the state of metad and the spools of all nodes are opened
 * once more and compared (sim_data_check()).
 */
#ifndef SIM_DATA_H
#define SIM_DATA_H

#include "client/fs/gfd.h"
#include "include/gfs.h"
#include "tests/lib/sim_meta.h"

#define SIM_DATA_FSDS 2u
#define SIM_DATA_SPOOLS 2u
#define SIM_DATA_FLIPS_MAX 16u
#define SIM_DATA_OBJECTS_MAX 512u /* of a node, that are looked at in the end */

struct sim_data;

/* An object in a spool, as the node has it. */
struct sim_data_object {
	uint64_t ino, generation;
	uint64_t bytes, sum; /* of the content */
	int err;             /* why it cannot be read */
};

/* A copy that metad knows. */
struct sim_data_copy {
	uint64_t ino, generation;
	uint64_t base; /* the node may have one from this generation on; 0: exactly that one */
	uint64_t size; /* of the file */
	bool current, cache, bad, growing;
	bool found;
};

struct sim_data_fsd {
	struct sim_data *data;
	unsigned number; /* from 0; its name is fsdN+1 */
	char name[8], label[8];
	struct gx_sim_host *host;
	struct gx_sim_proc *proc;
	uint64_t boot;
	unsigned lives;
	unsigned fatals; /* syncs that failed */
	int err;         /* 1 while it runs or was killed; else why it ended */
	bool drain;      /* set: it ends by itself */

	/* Of sim_data_check(). */
	struct sim_data_object objects[SIM_DATA_OBJECTS_MAX];
	unsigned object_count;
	struct sim_data_copy copies[SIM_DATA_OBJECTS_MAX];
	unsigned copy_count;
	unsigned trash;
};

struct sim_data {
	/* Set after sim_data_init(). */
	int64_t sync_after_ns;
	int64_t data_timeout_ns, meta_timeout_ns;
	struct sim_meta meta;
	struct sim_data_fsd fsds[SIM_DATA_FSDS];
	/* Inodes whose bits were flipped: a copy may be damaged that nobody has read since. */
	uint64_t flipped[SIM_DATA_FLIPS_MAX];
	unsigned flip_count;
	bool cut;        /* a node has lost its power with bytes that were not synced */
	char wrong[200]; /* of sim_data_check(): the first thing; "": none */
	char found[128]; /* of sim_data_pick(): path of a data file; "": none */
};

void sim_data_init(struct sim_data *data, uint64_t seed);
/* Makes the simulation, its hosts, metad and the fsds on empty disks. Aborts when it cannot. */
void sim_data_start(struct sim_data *data);
void sim_data_free(struct sim_data *data);
/* Starts an fsd (again) if it does not run. */
void sim_data_fsd_up(struct sim_data_fsd *fsd);
void sim_data_fsd_cut(struct sim_data_fsd *fsd);
/* Everything that does not run. */
void sim_data_up(struct sim_data *data);

/* For a client process; host is its label, "" none. */
GX_MUST_CHECK int sim_data_connect(const struct sim_data *data, struct gx_env *env,
				   const struct gfd_options *options, size_t cache_bytes,
				   struct gfs **ret_fs);

/* Some data file of the node, of the inode (0: any), in data->found. For a process of its host. */
void sim_data_pick(struct sim_data_fsd *fsd, struct gx_env *env, uint64_t ino);
/*
 * What a kernel does within half a minute: all that is in the page caches of nodes goes to disk.
 * Between runs.
 */
void sim_data_write_back(struct sim_data *data);
/*
 * Kills all daemons, opens what they left and compares: every copy that counts is there, whole, and
 * the same everywhere; every object has an owner. The outcome is in data->wrong. Between runs.
 */
void sim_data_check(struct sim_data *data);

#endif
