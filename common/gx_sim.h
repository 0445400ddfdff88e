/*
 * gx_sim.h - a grid inside one test process: fibers, virtual time, faults.
 *
 * A simulation holds hosts (a disk, a clock) and processes on them. A process
 * has its own struct gx_env, so the real code of daemons and clients runs in
 * it: threads are fibers, sockets are queues in memory, files live on the
 * host's simulated disk. One real thread runs everything; the seed decides
 * which fiber goes next, how long a packet takes and which fault strikes, so
 * a seed replays exactly. Virtual time jumps to the next timer when every fiber
 * waits; besides, each env call costs a few nanoseconds, so a busy loop ends.
 *
 * Faults: kill (-9) a process, stop and continue it (SIGSTOP), cut the power
 * of a host (unsynced bytes are lost, in whole sectors, arbitrarily), reset or
 * partition connections, delay, fill a disk, make clocks run ahead, and the
 * n-th call of a kind through env->fault (gx_fault.h).
 *
 * Addresses: the n-th host (from 1) is 10.0.0.n, and its name resolves to that;
 * 127.x.x.x and ::1 are the own host; unix paths belong to a host (they are no
 * files on its disk); mem names are global, "host:port" names the host to reach.
 *
 * Limits of the illusion: _Thread_local variables are shared by all fibers
 * (the log's request id is switched along), and a process that ends takes its
 * fibers with it without running any clean-up.
 *
 * Memory of a killed process: a real kernel would free it. Test programs link
 * tests/lib/sim_alloc.c with --wrap=malloc and friends; it charges each
 * allocation to the running process and frees what is left at its death.
 *
 * Not thread-safe: only one real thread may touch a simulation.
 */
#ifndef GX_SIM_H
#define GX_SIM_H

#include "common/gx_env.h"

struct gx_sim;
struct gx_sim_host;
struct gx_sim_proc;

struct gx_sim_options {
	uint64_t seed;
	int64_t latency_min_ns; /* one way, between different hosts */
	int64_t latency_max_ns;
	int64_t local_latency_ns;  /* within one host */
	unsigned short_io_percent; /* chance that a socket read or write moves fewer bytes */
	unsigned switch_percent;   /* chance that a fiber that need not wait yields anyway */
	size_t socket_buffer_bytes;
	size_t stack_bytes;         /* per fiber */
	int64_t time_limit_ns;      /* virtual; gx_sim_run returns -ETIMEDOUT past it */
	int64_t sync_max_ns;        /* an fsync takes a random time up to this */
	int64_t partition_reset_ns; /* a partition this long resets connections that sent into it */
};
#define GX_SIM_OPTIONS_INIT                                                                        \
	{                                                                                          \
		.seed = 1, .latency_min_ns = 50000, .latency_max_ns = 500000,                      \
		.local_latency_ns = 10000, .short_io_percent = 5, .switch_percent = 5,             \
		.socket_buffer_bytes = 262144, .stack_bytes = 262144,                              \
		.time_limit_ns = 3600 * GX_NSEC_PER_SEC, .sync_max_ns = 500000,                    \
		.partition_reset_ns = 60 * GX_NSEC_PER_SEC                                         \
	}

GX_MUST_CHECK int gx_sim_new(const struct gx_sim_options *options, struct gx_sim **ret_sim);
/* Kills all processes and frees everything. */
void gx_sim_free(struct gx_sim *sim);
GX_DEFINE_CLEANUP(struct gx_sim *, gx_sim_free)

GX_MUST_CHECK int gx_sim_host_new(struct gx_sim *sim, const char *name,
				  struct gx_sim_host **ret_host);
/* The host's address (10.0.0.n) with a port. */
void gx_sim_host_addr(const struct gx_sim_host *host, uint16_t port, struct gx_addr *ret_addr);
/*
 * Starts a process whose first fiber runs fn(env, arg); when fn returns the process
 * ends. Boots the host again if its power was cut. The proc stays valid until
 * gx_sim_free(), its env only as long as it runs.
 */
GX_MUST_CHECK int gx_sim_spawn(struct gx_sim_host *host, const char *name,
			       void (*fn)(struct gx_env *env, void *arg), void *arg,
			       struct gx_sim_proc **ret_proc);
/*
 * Runs until `proc` ended (NULL: until all have). 0; -ETIMEDOUT past the time limit;
 * -EDEADLK when every fiber waits for ever (who waits for what is printed to stderr).
 */
GX_MUST_CHECK int gx_sim_run(struct gx_sim *sim, struct gx_sim_proc *proc);

/*
 * All of these may be called from any fiber or between runs. A fiber that kills its own
 * process does not return from the call.
 */
bool gx_sim_proc_ended(const struct gx_sim_proc *proc);
/* -9: descriptors close, locks go, written bytes stay. Peers see an end of stream or a reset. */
void gx_sim_kill(struct gx_sim_proc *proc);
void gx_sim_stop(struct gx_sim_proc *proc);
void gx_sim_continue(struct gx_sim_proc *proc);
/*
 * Kills all processes of the host; what was not synced is lost, each sector by its own
 * coin; of the directory operations not synced a random prefix stays. Peers hear nothing:
 * until the next gx_sim_spawn() on the host packets to it are held, then answered by a reset.
 */
void gx_sim_power_cut(struct gx_sim_host *host);
struct gx_env *gx_sim_env(struct gx_sim_proc *proc);
struct gx_sim_host *gx_sim_proc_host(struct gx_sim_proc *proc);

/*
 * Network. While `cut`, nothing passes between two hosts: connections hang, connect() times
 * out. At the heal what was sent arrives late, or, if the partition was longer than
 * partition_reset_ns, connections that have unsent bytes are reset, as TCP gives up.
 */
void gx_sim_partition(struct gx_sim_host *a, struct gx_sim_host *b, bool cut);
/* Resets every connection between two hosts now. */
void gx_sim_reset_links(struct gx_sim_host *a, struct gx_sim_host *b);
/*
 * Cuts the next connection made (from now on) once `bytes` have passed in the given
 * direction: bytes up to there arrive, then both ends see a reset. For "every point of loss".
 * A second call, before that connection is made, is for the one after it, and so on (up to 8);
 * UINT64_MAX lets one pass uncut.
 */
enum gx_sim_direction { GX_SIM_TO_SERVER, GX_SIM_TO_CLIENT, GX_SIM_DIRECTION_COUNT };
void gx_sim_cut_after(struct gx_sim *sim, enum gx_sim_direction direction, uint64_t bytes);
/* Bytes that arrived on all connections so far in a direction. */
uint64_t gx_sim_bytes(struct gx_sim *sim, enum gx_sim_direction direction);

/* Disk: how many bytes fit (in blocks of 4 KiB); 0 is no limit. */
void gx_sim_disk_limit(struct gx_sim_host *host, uint64_t bytes);
/* Flips one bit of a file, behind everyone's back; -ENOENT. */
int gx_sim_flip_bit(struct gx_sim_host *host, const char *path, uint64_t bit);

/* Clocks: `ahead_ns` shifts the wall clock; `rate_ppm` makes the monotonic one drift. */
void gx_sim_clock(struct gx_sim_host *host, int64_t ahead_ns, int64_t rate_ppm);

/* The simulation's own random stream, for test decisions. */
uint64_t gx_sim_random(struct gx_sim *sim);
uint64_t gx_sim_random_below(struct gx_sim *sim, uint64_t bound);
/* Virtual time since the start. */
int64_t gx_sim_now_ns(struct gx_sim *sim);
/* Digest of every scheduling decision and delivery so far: equal seeds give equal traces. */
uint64_t gx_sim_trace(const struct gx_sim *sim);
/* Fiber switches so far, to report speed. */
uint64_t gx_sim_switches(const struct gx_sim *sim);
/* The process whose fiber is running, or NULL; used by tests/lib/sim_alloc.c. */
struct gx_sim_proc *gx_sim_current(void);
/* Hook called when a process has died (killed or ended). One at most. */
void gx_sim_on_death(struct gx_sim *sim, void (*fn)(struct gx_sim_proc *proc));

#endif
