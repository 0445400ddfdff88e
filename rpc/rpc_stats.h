/*
 * rpc_stats.h - counters and latency histograms per method, and of the wire itself.
 *
 * One writer at a time: the loop thread, or threads under the owner's lock.
 */
#ifndef RPC_STATS_H
#define RPC_STATS_H

#include "common/gx_hist.h"
#include "rpc/rpc_method.h"

struct rpc_method_stats {
	uint64_t errors;
	uint64_t bytes_in; /* messages and payloads, without headers */
	uint64_t bytes_out;
	struct gx_hist latency; /* its count is the number of calls */
};

struct rpc_stats {
	struct rpc_method_stats methods[RPC_METHOD_COUNT];
	uint64_t connections; /* open now */
	uint64_t half_open;   /* of those, not yet authenticated */
	uint64_t accepted;
	uint64_t refused;  /* handshakes refused */
	uint64_t garbage;  /* connections closed for breaking the protocol */
	uint64_t unknown;  /* calls of unknown methods */
	uint64_t replayed; /* mutations answered from the replay table */
	uint64_t dropped;  /* connections closed to stay within a maximum */
};

void rpc_stats_init(struct rpc_stats *stats);
void rpc_stats_call(struct rpc_stats *stats, const struct rpc_method *method, bool failed,
		    uint64_t bytes_in, uint64_t bytes_out, int64_t latency_ns);

#endif
