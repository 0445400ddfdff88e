/*
 * grid.h - a grid of one's own to measure: `gfs up` of the same build in a scratch directory.
 */
#ifndef BENCH_GRID_H
#define BENCH_GRID_H

#include "common/gx_base.h"
#include "common/gx_limits.h"
#include "include/gfs.h"

enum grid_kind { GRID_UNIX, GRID_TCP, GRID_KIND_COUNT }; /* as `gfs up` orders its addresses */

struct grid {
	char dir[64];
	pid_t metad;
	unsigned fsds;
	char addresses[GRID_KIND_COUNT][GX_PATH_MAX];
};

/* Starts it, with so many storage nodes; grid_stop() is needed after a failure, too. */
GX_MUST_CHECK int grid_start(struct grid *grid, unsigned fsds);
/* Stops it and removes the directory. */
void grid_stop(struct grid *grid);
/* cache_bytes as in struct gfs_options. */
GX_MUST_CHECK int grid_connect(const struct grid *grid, enum grid_kind kind, int64_t cache_bytes,
			       struct gfs **ret_fs);
/* Processor time so far, in seconds: of metad's loop, and of all its threads. */
GX_MUST_CHECK int grid_cpu(const struct grid *grid, double *ret_loop, double *ret_all);
/* The gfs command of this build. */
GX_MUST_CHECK int grid_program(char path[GX_PATH_MAX]);
/* The longest turn of metad's loop so far, by the clock and on the CPU. */
GX_MUST_CHECK int grid_longest_turn_ns(struct gfs *fs, uint64_t *ret_ns, uint64_t *ret_work_ns);

/* -- storage nodes, called "fsd1" with the host label "host1" and so on ----------------------- */

#define GRID_NEAR "host1" /* label of a client that may use fsd1's unix socket */
#define GRID_FAR "far"    /* and of one for which every node is on another host */

/* A client as programs are, on a host with that label; it reaches metad by its unix socket. */
GX_MUST_CHECK int grid_connect_host(const struct grid *grid, const char *host, struct gfs **ret_fs);
/* What programs connect to that this process starts from now on, as clients on this host. */
GX_MUST_CHECK int grid_environ(const struct grid *grid, const char *host);
/* So many nodes at least. */
GX_MUST_CHECK int grid_grow(struct grid *grid, unsigned fsds);
/* From now on all nodes listen with TLS, or without, beside their unix sockets. */
GX_MUST_CHECK int grid_use_tls(const struct grid *grid, bool tls);
/* Processor time so far of all its threads, in seconds; what it has in memory. */
GX_MUST_CHECK int grid_node_cpu(const struct grid *grid, const char *name, double *ret_sec);
GX_MUST_CHECK int grid_node_rss(const struct grid *grid, const char *name, uint64_t *ret_bytes);
/* On the first CPU only, or anywhere again. */
GX_MUST_CHECK int grid_node_pin(const struct grid *grid, const char *name, bool pinned);
/* The same of any process, 0: this one, and of one's own children that are to come. */
GX_MUST_CHECK int grid_pin(pid_t pid, bool pinned);
/* Processor time of any process. */
GX_MUST_CHECK int grid_process_cpu(pid_t pid, double *ret_sec);

#endif
