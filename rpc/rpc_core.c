#include "rpc/rpc_core.h"
#include "core.pb-c.h"

#define RPC_SERVICE_CORE
#define RPC_HANDLER(lower) rpc_core_op_##lower
#define RPC_TABLE rpc_core_service
#include "rpc/rpc_service_def.h"

int rpc_core_op_ping(struct rpc_call *call, const PbCore__PingRequest *request,
		     PbCore__PingReply *reply)
{
	struct rpc_dispatcher *d = call->data;

	reply->stamp = request->stamp;
	reply->server = (char *)d->server_name;
	reply->program = (char *)d->program;
	reply->uptime_ns = (uint64_t)(call->start_ns - d->started_ns);
	reply->identity = (char *)call->peer->identity;
	reply->transport = (char *)call->transport;
	return 0;
}

static PbCore__MethodStats *method_stats(struct rpc_call *call, const struct rpc_method *method,
					 const struct rpc_method_stats *row)
{
	PbCore__MethodStats *out = rpc_call_alloc(call, sizeof(*out));

	if (!out)
		return NULL;
	pb_core__method_stats__init(out);
	out->method = (char *)method->name;
	out->calls = row->latency.count;
	out->errors = row->errors;
	out->bytes_in = row->bytes_in;
	out->bytes_out = row->bytes_out;
	out->p50_ns = gx_hist_quantile_ns(&row->latency, 0.5);
	out->p99_ns = gx_hist_quantile_ns(&row->latency, 0.99);
	out->max_ns = row->latency.count ? row->latency.max_ns : 0;
	out->mean_ns = (uint64_t)gx_hist_mean_ns(&row->latency);
	return out;
}

static int fill_stats(struct rpc_call *call, const struct rpc_dispatcher *d, const char *prefix,
		      PbCore__StatsReply *reply)
{
	const struct rpc_stats *stats = &d->stats;

	for (size_t i = 0; i < RPC_METHOD_COUNT; i++) {
		const struct rpc_method *method = rpc_method_get(i);

		if (!d->handlers[i].thunk || strncmp(method->name, prefix, strlen(prefix)) != 0)
			continue;
		reply->methods[reply->n_methods] = method_stats(call, method, &stats->methods[i]);
		if (!reply->methods[reply->n_methods])
			return -ENOMEM;
		reply->n_methods++;
	}
	reply->connections = stats->connections;
	reply->half_open = stats->half_open;
	reply->refused = stats->refused;
	reply->garbage = stats->garbage;
	reply->replayed = stats->replayed;
	return 0;
}

int rpc_core_op_stats(struct rpc_call *call, const PbCore__StatsRequest *request,
		      PbCore__StatsReply *reply)
{
	struct rpc_dispatcher *d = call->data;
	int r;

	reply->methods = rpc_call_alloc(call, RPC_METHOD_COUNT * sizeof(*reply->methods));
	if (!reply->methods)
		return -ENOMEM;
	rpc_dispatcher_lock(d);
	r = fill_stats(call, d, request->prefix, reply);
	rpc_dispatcher_unlock(d);
	if (d->loop)
		reply->longest_turn_ns = (uint64_t)gx_loop_longest_turn_ns(d->loop);
	return r;
}
