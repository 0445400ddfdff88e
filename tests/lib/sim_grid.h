/*
 * sim_grid.h - a grid of one echo server and its clients inside the simulation.
 *
 * The server process runs the real rpc_server with the echo service on gx_loop_new(env), client
 * processes run the real rpc_client, both on simulated hosts. What a test wants to know after a
 * process has died (how often the tally's handler ran, what each call returned) lives in the
 * structs below, which belong to the test.
 *
 * Adds. Call number i adds 8^i, so that the tally is a list: its i-th octal digit tells how often
 * call i was really done. ADDS_MAX calls fit.
 */
#ifndef SIM_GRID_H
#define SIM_GRID_H

#include "common/gx_sim.h"
#include "rpc/echod/echo_service.h"
#include "rpc/rpc_client.h"
#include "rpc/rpc_server.h"

#define SIM_GRID_ADDS_MAX 20u
#define SIM_GRID_FIBERS_MAX 8u
#define SIM_GRID_ADDRESS "mem:server:7000"

struct sim_grid {
	/* Set before sim_grid_start(). */
	struct gx_sim_options options;
	bool ignore_replay;     /* the server's replay table always says "new": to see tests fail */
	int64_t drain_after_ns; /* > 0: the server starts a drain then, and ends after it */
	int64_t drain_ns;       /* time the drain has */
	int64_t stop_after_ns;  /* > 0: the server ends then, without a drain */
	int64_t linger_ns;      /* of sessions */
	struct gx_fault *server_fault; /* may be NULL */

	struct gx_sim *sim;
	struct gx_sim_host *server_host, *client_host, *other_host;
	struct gx_sim_proc *server;

	/* The server's, of its present or last life. */
	struct echo_service echo;
	struct rpc_dispatcher dispatcher;
	int server_err;       /* why it ended; 1 while it runs */
	size_t server_blocks; /* memory it had not freed when it ended by itself */
	bool drained;
	int64_t drained_ns;
	/* All earlier lives together. */
	int64_t tally_before;
	unsigned lives;
};

void sim_grid_init(struct sim_grid *grid, uint64_t seed);
/* Makes the simulation, its hosts and the server. Aborts when it cannot. */
void sim_grid_start(struct sim_grid *grid);
/* Starts the server again, after it has ended or was killed. */
void sim_grid_restart_server(struct sim_grid *grid);
void sim_grid_free(struct sim_grid *grid);
/* How often call i was done, in all lives. */
unsigned sim_grid_done(const struct sim_grid *grid, unsigned i);

/* Options of a client that may connect. */
void sim_grid_client_options(struct gx_env *env, struct rpc_client_options *ret_options);

/* A client process: `fibers` threads share one rpc_client and make `calls` tally calls in all. */
struct sim_adder {
	unsigned fibers, calls;
	unsigned connections_max;
	uint32_t delay_ms;      /* > 0: the server answers after this time */
	int64_t timeout_ns;     /* of each call */
	int64_t pause_ns;       /* between calls of a fiber */
	struct gx_fault *fault; /* may be NULL */

	int result[SIM_GRID_ADDS_MAX]; /* 1: not called */
	int64_t value[SIM_GRID_ADDS_MAX];
	int64_t late_ns[SIM_GRID_ADDS_MAX]; /* when it ended, less its deadline */
	int err;                            /* of the client itself */
	size_t blocks;                      /* memory not freed at its end */
	struct gx_sim_proc *proc;
	/* Its own. */
	struct gx_env *env;
	struct rpc_client *client;
	unsigned next;
};

void sim_adder_init(struct sim_adder *adder, unsigned fibers, unsigned calls);
void sim_adder_start(struct sim_adder *adder, struct sim_grid *grid);

/* Calls tally once through a client. */
int sim_tally(struct rpc_client *client, int64_t add, uint32_t delay_ms, int64_t deadline_ns,
	      int64_t *ret_value);

/* SIM_SEEDS from the environment, else `normal`. */
uint64_t sim_seeds(uint64_t normal);
/* Of long runs: with a sanitizer, which makes each several times as slow, a fifth of them. */
uint64_t sim_seeds_long(uint64_t normal);

#endif
