/*
 * sim_meta.h - a grid of one metad and its clients inside the simulation.
 *
 * metad's process runs the real md_server on its simulated disk, with segments and layers so small
 * that they are filled, stored and trimmed all the time; each client process has a real struct gfc.
 * metad can be killed or lose its power and be started again; at the end its state is opened
 * once more and looked through (md_check.h).
 *
 * What a test wants to know after a process has died lives in structs of the test.
 */
#ifndef SIM_META_H
#define SIM_META_H

#include "client/fs/gfc.h"
#include "common/gx_sim.h"

#define SIM_META_CLIENTS_MAX 4u

struct md_state;

struct sim_meta {
	/* Set before sim_meta_start(). */
	struct gx_sim_options options;
	uint64_t segment_bytes;
	size_t layer_bytes;
	size_t leases_max;
	int64_t session_timeout_ns;
	int64_t recovery_ns;
	bool strict;
	unsigned nodes;  /* fsd1 to fsdN have keys */
	const char *dir; /* where metad's state is; another one: as if it came from a backup */

	struct gx_sim *sim;
	struct gx_sim_host *metad_host, *other_host;
	struct gx_sim_host *client_hosts[SIM_META_CLIENTS_MAX];
	struct gx_sim_proc *metad;

	/* metad's, of its present or last life. */
	struct gx_fault fault; /* hung on its env at the start; set it to strike */
	int metad_err;         /* 1 while it runs or was killed; else why it did not start */
	unsigned lives;
	unsigned fatals; /* it ended itself */

	/* Of sim_meta_check(). look_fn (may be NULL) sees the state as well. */
	void (*look_fn)(void *arg, struct md_state *state);
	void *look_arg;
	char wrong[160]; /* the first thing that is wrong; "": none */
	uint64_t orphans;
	unsigned sessions;
};

void sim_meta_init(struct sim_meta *meta, uint64_t seed);
/* Makes the simulation, its hosts and a metad on an empty disk. Aborts when it cannot. */
void sim_meta_start(struct sim_meta *meta);
void sim_meta_free(struct sim_meta *meta);
/* Starts metad (again) if it does not run. */
void sim_meta_up(struct sim_meta *meta);
/* A line with the virtual time for whoever looks into a seed (SIM_LOG, as for the daemons' log). */
void sim_meta_say(const struct sim_meta *meta, const char *fmt, ...) GX_PRINTF(2, 3);
/* metad's disk: the next sync fails. */
void sim_meta_break_disk(struct sim_meta *meta);

/* Where metad listens. */
void sim_meta_endpoint(struct rpc_endpoint *ret_endpoint);
/* The key of a storage node ("fsd1"). */
void sim_meta_node_key(const char *name, struct rpc_key *ret_key);

/* What a client needs to connect; cache_bytes as below. */
void sim_meta_client_options(struct gx_env *env, size_t cache_bytes, int64_t timeout_ns,
			     struct gfc_options *ret_options);
/* For a client process: connects. cache_bytes 0: without a cache. */
GX_MUST_CHECK int sim_meta_connect(const struct sim_meta *meta, struct gx_env *env,
				   size_t cache_bytes, int64_t timeout_ns, struct gfc **ret_gfc);

/* Kills metad, opens its state and looks at all of it; the outcome is in `meta`. */
void sim_meta_check(struct sim_meta *meta);

#endif
