#include "rpc/rpc_stats.h"

void rpc_stats_init(struct rpc_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	for (size_t i = 0; i < RPC_METHOD_COUNT; i++)
		gx_hist_init(&stats->methods[i].latency);
}

void rpc_stats_call(struct rpc_stats *stats, const struct rpc_method *method, bool failed,
		    uint64_t bytes_in, uint64_t bytes_out, int64_t latency_ns)
{
	struct rpc_method_stats *row = &stats->methods[method->index];

	row->errors += failed;
	row->bytes_in += bytes_in;
	row->bytes_out += bytes_out;
	gx_hist_add(&row->latency, (uint64_t)GX_MAX(latency_ns, (int64_t)0));
}
