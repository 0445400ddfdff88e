/*
 * echo_service.h - the handlers of the echo service, for gfs-echod, tests and benchmarks.
 */
#ifndef ECHO_SERVICE_H
#define ECHO_SERVICE_H

#include "rpc/rpc_server.h"

#define ECHO_SOURCE_MAX (64u * 1024 * 1024) /* largest payload that "source" sends */

struct echo_service {
	struct gx_loop *loop;      /* for delayed replies; NULL in threads */
	struct rpc_server *server; /* for pushes; NULL in threads */
	int64_t tally;
	uint64_t tally_calls;       /* how often the handler really ran */
	unsigned char *source_data; /* ECHO_SOURCE_MAX bytes, made at first use */
	struct gx_mutex lock;       /* tally, tally_calls, source_data */
	struct gx_env *env;
	struct echo_delay *delays; /* tallies that are answered later */
};

extern const struct rpc_service echo_service_table;

GX_MUST_CHECK int echo_service_init(struct echo_service *echo, struct gx_env *env);
/* Delayed tallies are answered with -ECANCELED. */
void echo_service_fini(struct echo_service *echo);

#endif
