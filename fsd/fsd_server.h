/*
 * fsd_server.h - fsd as an object: spools of objects behind a wire, and a node of the grid.
 *
 * It owns the spools, the open objects, the threaded rpc server (rpc_serve.h) in front of them, a
 * syncer that brings objects to disk that nobody writes any more (rule B3), and the agent that
 * registers with metad, reports and does metad's jobs. The daemon (fsd_main.c) is options and this;
 * so is an fsd of the simulation.
 *
 *	fsd_server.c    life: spools, connections, boot id, free space
 *	fsd_service.c   handlers of the data service, tickets
 *	fsd_table.c     objects that are open, found by inode; which spool has which
 *	fsd_syncer.c    overlapped syncs for DataSync, and the background one
 *	fsd_agent.c     registration, heartbeats, inventory, jobs
 *	fsd_copy.c      one job: bringing an object up from another fsd (rule B9)
 *
 * Start: the spools are opened, listed and (if metad can be reached) compared with what metad
 * believes (rule N9) before the node serves; objects nobody knows go to quarantine, unless metad's
 * epoch is lower than one the spool has seen. If metad cannot be reached the node serves what
 * tickets allow and asks again.
 */
#ifndef FSD_SERVER_H
#define FSD_SERVER_H

#include "common/gx_loop.h"
#include "rpc/rpc_dispatch.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_key.h"

struct fsd_server;

struct fsd_server_options {
	struct gx_env *env;
	struct gx_loop *loop; /* of the rpc server's sockets and timers */
	const char *name;     /* of the node: its key is host:NAME; borrowed like all text here */
	const char *host;     /* label: no two copies on one */
	const char *group;    /* may be NULL */
	const char *program;
	const char *const *spools; /* directories */
	size_t spool_count;
	bool make_spools;          /* in empty directories */
	const struct rpc_key *key; /* host:NAME; its node key opens tickets */
	struct rpc_endpoint metad; /* scheme none: no agent (tests) */
	struct rpc_keytab *keys;   /* may be NULL: others (administrators) who may connect */
	const char *addresses;     /* told to metad, "a,b"; NULL: those it listens on */
	uint64_t boot;             /* of the machine; 0: read from the kernel */
	uint64_t reserved_bytes;   /* per spool, kept free: less is -ENOSPC to writers */
	unsigned threads_max;      /* connections */
	unsigned jobs_max;         /* of metad, at a time */
	int64_t sync_after_ns;     /* an object not written for this long is synced: <= 5 s */
	int64_t quarantine_ns;     /* unknown objects are kept this long */
	int64_t handshake_ns;
	/* The disk does not keep its word (rule B12 later). NULL: logged only. */
	void (*fatal_fn)(void *arg, int err);
	void *fatal_arg;
};
#define FSD_SERVER_OPTIONS_INIT                                                                    \
	{                                                                                          \
		.name = "fsd1", .host = "localhost", .program = "gfs-fsd",                         \
		.reserved_bytes = 64u * 1024 * 1024, .threads_max = 1024, .jobs_max = 4,           \
		.sync_after_ns = 2 * GX_NSEC_PER_SEC,                                              \
		.quarantine_ns = 24 * 3600 * GX_NSEC_PER_SEC, .handshake_ns = 10 * GX_NSEC_PER_SEC \
	}

/*
 * Opens the spools. What is wrong is logged. -ENODEV, -EBUSY, -EPROTONOSUPPORT … -EKEYREJECTED: the
 * key is not host:NAME.
 */
GX_MUST_CHECK int fsd_server_new(const struct fsd_server_options *options,
				 struct fsd_server **ret_server);
/*
 * At once; what is acknowledged is in the kernel. Waits for a job of metad that is being done. NULL
 * is fine.
 */
void fsd_server_free(struct fsd_server *server);
GX_MUST_CHECK int fsd_server_listen(struct fsd_server *server, const struct rpc_endpoint *endpoint,
				    struct rpc_endpoint *ret_bound);
/* All addresses are bound: the agent may register them with metad. */
GX_MUST_CHECK int fsd_server_start(struct fsd_server *server);
/* Graceful end: answers what is in work, syncs what is open, says goodbye, calls fn. */
void fsd_server_drain(struct fsd_server *server, int64_t deadline_ns, rpc_drained_fn fn, void *arg);
/* Registered with this metad and compared with it, at least once. For `ready`. */
bool fsd_server_known(struct fsd_server *server);
struct rpc_dispatcher *fsd_server_dispatcher(struct fsd_server *server);

#endif
