/*
 * ours.h - the measured: the echo service on a loop server and on a threaded
 * server, and clients for them, used the way the daemons and the library use
 * them.
 */
#ifndef BENCH_OURS_H
#define BENCH_OURS_H

#include "rpc/rpc_client.h"

enum ours_kind { OURS_TCP, OURS_UNIX, OURS_TLS, OURS_KIND_COUNT };

struct ours {
	struct gx_env *env;
	struct rpc_key key; /* of the one user there is */
	struct rpc_endpoint loop[OURS_KIND_COUNT];
	struct rpc_endpoint threads[OURS_KIND_COUNT]; /* no unix */
	char directory[64];                           /* for the unix socket */
};

/* Makes the key; the servers are not there yet. */
GX_MUST_CHECK int ours_init(struct ours *ours, struct gx_env *env, const char *directory);
/* Serves until killed; writes the two endpoint arrays of *ours to ready_fd once it listens. */
GX_NORETURN void ours_server_run(struct ours *ours, int ready_fd);
/* In the other process: takes what the server wrote. */
GX_MUST_CHECK int ours_take_endpoints(struct ours *ours, int ready_fd);

/* A client with at most one connection. */
GX_MUST_CHECK int ours_client_new(const struct ours *ours, const struct rpc_endpoint *endpoint,
				  struct rpc_client **ret_client);

#endif
