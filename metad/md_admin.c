/*
 * Handlers about the grid itself: how it is, who is who, which nodes there are.
 */
#include "metad/md_server_impl.h"

#define RPC_SERVICE_META
#define RPC_HANDLER(lower) md_op_##lower
#define RPC_TABLE md_service_table
#include "rpc/rpc_service_def.h"

int md_op_statfs(struct rpc_call *call, const PbMeta__StatfsRequest *request GX_UNUSED,
		 PbMeta__StatfsReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_counters counters;
	int r = md_enter(md, call, &session);

	if (r != 0)
		return r;
	md_state_counters(&md->state, &counters);
	reply->inodes = counters.inodes;
	reply->inline_bytes = counters.inline_bytes;
	reply->name_max = MD_NAME_MAX;
	md_nodes_space(md->nodes, &reply->capacity_bytes, &reply->free_bytes);
	return 0;
}

/* -- users and groups -----------------------------------------------------------------------------
 */

static PbMeta__Id *id_new(struct rpc_call *call, const char *name, uint32_t number, uint32_t gid)
{
	PbMeta__Id *id = rpc_call_alloc(call, sizeof(*id));

	if (!id)
		return NULL;
	pb_meta__id__init(id);
	id->name = (char *)(uintptr_t)name;
	id->id = number;
	id->gid = gid;
	return id;
}

static int add_user(struct rpc_call *call, const struct md_user *user, PbMeta__IdsReply *reply)
{
	if (!user)
		return 0;
	reply->users[reply->n_users] = id_new(call, user->name, user->cred.uid, user->cred.gid);
	return reply->users[reply->n_users++] ? 0 : -EAGAIN;
}

static int add_group(struct rpc_call *call, const struct md_group *group, PbMeta__IdsReply *reply)
{
	if (!group)
		return 0;
	reply->groups[reply->n_groups] = id_new(call, group->name, group->gid, 0);
	return reply->groups[reply->n_groups++] ? 0 : -EAGAIN;
}

#define IDS_MAX 1000u

int md_op_ids(struct rpc_call *call, const PbMeta__IdsRequest *request, PbMeta__IdsReply *reply)
{
	struct md_server *md = call->data;
	const struct md_user *self = NULL;
	size_t users = request->n_users + request->n_uids;
	size_t groups = request->n_groups + request->n_gids;
	int r = 0;

	if (users + groups > IDS_MAX)
		return rpc_call_fail(call, -E2BIG, "at most %u names at a time", IDS_MAX);
	reply->users = rpc_call_alloc(call, (users + 1) * sizeof(void *));
	reply->groups = rpc_call_alloc(call, (groups + 1) * sizeof(void *));
	if (!reply->users || !reply->groups)
		return -EAGAIN;
	for (size_t i = 0; r == 0 && i < request->n_users; i++)
		r = add_user(call, md_users_by_name(md->users, request->users[i]), reply);
	for (size_t i = 0; r == 0 && i < request->n_uids; i++)
		r = add_user(call, md_users_by_uid(md->users, request->uids[i]), reply);
	for (size_t i = 0; r == 0 && i < request->n_groups; i++)
		r = add_group(call, md_groups_by_name(md->users, request->groups[i]), reply);
	for (size_t i = 0; r == 0 && i < request->n_gids; i++)
		r = add_group(call, md_groups_by_gid(md->users, request->gids[i]), reply);
	if (r == 0 && call->peer->kind == RPC_IDENTITY_USER)
		self = md_users_by_name(md->users, rpc_identity_name(call->peer->identity));
	if (r == 0 && self) {
		reply->self = id_new(call, self->name, self->cred.uid, self->cred.gid);
		if (!reply->self)
			return -EAGAIN;
		reply->self->n_gids = self->cred.group_count;
		reply->self->gids = (uint32_t *)(uintptr_t)self->cred.groups;
	}
	return r;
}

/* -- nodes
 * --------------------------------------------------------------------------------------------- */

int md_op_node_register(struct rpc_call *call, const PbMeta__NodeRegisterRequest *request,
			PbMeta__NodeRegisterReply *reply)
{
	struct md_server *md = call->data;
	const char *problem = NULL;
	int r;

	if (!request->node)
		return -EINVAL;
	if (md->stopping)
		return -ESHUTDOWN;
	r = md_nodes_check(call->peer->identity, request->node, &problem);
	if (r == 0 && strcmp(request->node->kind, "fsd") == 0)
		r = md_jobs_reboot(md->jobs, call, request->node->name, request->node->boot);
	if (r == 0)
		r = md_nodes_register(md->nodes, call->peer->identity, request->node, &problem);
	if (r != 0)
		return problem ? rpc_call_fail(call, r, "%s", problem) : r;
	if (strcmp(request->node->kind, "fsd") == 0)
		md_jobs_registered(md->jobs, request->node->name);
	reply->epoch = md_log_epoch(md->log);
	reply->heartbeat_ms = MD_NODE_HEARTBEAT_NS / GX_NSEC_PER_MSEC;
	return 0;
}

int md_op_node_heartbeat(struct rpc_call *call, const PbMeta__NodeHeartbeatRequest *request,
			 PbMeta__NodeHeartbeatReply *reply)
{
	struct md_server *md = call->data;

	reply->epoch = md_log_epoch(md->log);
	return md_nodes_heartbeat(md->nodes, call->peer->identity, request);
}

/* -- status
 * -------------------------------------------------------------------------------------------- */

static const char *problem_of(struct md_server *md)
{
	if (md->store_err < 0)
		return "the database cannot be written";
	if (!md_log_room(md->log, 4096))
		return "no room in the log: nothing can be changed";
	if (!md_kv_room(md->kv))
		return "the database is behind: changes wait";
	return NULL;
}

static int add_session(struct md_server *md, struct rpc_call *call, struct md_session *session,
		       PbMeta__StatusReply *reply)
{
	PbMeta__SessionInfo *info = rpc_call_alloc(call, sizeof(*info));

	if (!info)
		return -EAGAIN;
	pb_meta__session_info__init(info);
	info->id = session->id;
	info->identity = session->identity;
	info->program = session->program;
	info->address = session->remote;
	info->connections = session->connections;
	info->open_files = HASH_COUNT(session->opens);
	info->locks = (uint32_t)md_lock_count_of(md->locks, session->id);
	info->leases = md_lease_count_of(md->leases, session->lease_id);
	info->idle_ms =
		(uint64_t)((gx_loop_now_ns(md->loop) - session->contact_ns) / GX_NSEC_PER_MSEC);
	reply->sessions[reply->n_sessions++] = info;
	return 0;
}

/* As many as fit a message. */
#define SESSIONS_SHOWN_MAX 1000u

static int add_sessions(struct md_server *md, struct rpc_call *call, PbMeta__StatusReply *reply)
{
	struct md_session *session, *tmp;
	int r = 0;

	reply->sessions = rpc_call_alloc(call, SESSIONS_SHOWN_MAX * sizeof(void *));
	if (!reply->sessions)
		return -EAGAIN;
	HASH_ITER (hh, md->sessions, session, tmp) {
		if (r == 0 && reply->n_sessions < SESSIONS_SHOWN_MAX)
			r = add_session(md, call, session, reply);
	}
	return r;
}

int md_op_status(struct rpc_call *call, const PbMeta__StatusRequest *request,
		 PbMeta__StatusReply *reply)
{
	struct md_server *md = call->data;
	const char *problem = problem_of(md);
	struct md_counters counters;
	struct md_kv_stats stats;
	int r;

	if (request->sessions && !call->peer->admin)
		return rpc_call_fail(call, -EPERM, "sessions are shown to administrators only");
	md_state_counters(&md->state, &counters);
	md_kv_stats(md->kv, &stats);
	reply->epoch = md_log_epoch(md->log);
	reply->recovering = md->recovering;
	reply->log_written = md_log_written(md->log);
	reply->log_durable = md_log_durable(md->log);
	reply->stored = md->stored;
	reply->inodes = counters.inodes;
	reply->inline_bytes = counters.inline_bytes;
	reply->session_count = HASH_COUNT(md->sessions);
	reply->leases = md_lease_count(md->leases);
	reply->open_files = md->open_count;
	reply->cache_bytes = stats.cache_bytes;
	reply->overlay_bytes = stats.active_bytes + stats.frozen_bytes;
	reply->cache_hits = stats.hits;
	reply->cache_misses = stats.misses;
	reply->longest_turn_ns = (uint64_t)gx_loop_longest_turn_ns(md->loop);
	reply->longest_work_ns = (uint64_t)gx_loop_longest_work_ns(md->loop);
	reply->uptime_ns = (uint64_t)(gx_env_now_ns(md->env) - md->started_ns);
	reply->locks = md_lock_count(md->locks);
	reply->lock_waits = md_lock_wait_count(md->locks);
	reply->locks_lost = md->locks_lost;
	reply->parked = md->parked_count + md->wait_count;
	if (problem)
		reply->problem = (char *)(uintptr_t)problem;
	r = md_nodes_list(md->nodes, &call->arena, &reply->nodes, &reply->n_nodes);
	if (r == 0 && request->sessions)
		r = add_sessions(md, call, reply);
	return r;
}
