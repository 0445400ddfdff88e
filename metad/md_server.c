#define GX_LOG_COMPONENT "metad"
#include "metad/md_server.h"
#include "common/gx_broken.h"
#include "common/gx_limits.h"
#include "common/gx_log.h"
#include "metad/md_server_impl.h"
#include "metad/md_service.h"
#include <unistd.h>

#define TICK_NS (100 * GX_NSEC_PER_MSEC)
#define SESSION_RANGE (UINT64_C(1) << 12)
/* What a record may have besides the request and its payload. */
#define RECORD_OVERHEAD 160u
#define OWN_COMMAND_BYTES 512u

void md_fatal(struct md_server *md, int err)
{
	gx_log(ERR, "metad stops: nothing more can be promised", GX_KE(err));
	if (md->options.fatal_fn)
		md->options.fatal_fn(md->options.fatal_arg, err);
	_exit(1);
}

int64_t md_time(struct md_server *md)
{
	md->time_ns = GX_MAX(md->time_ns, gx_env_wall_ns(md->env));
	return md->time_ns;
}

/* -- commands --------------------------------------------------------------------------------- */

size_t md_record_bytes(const struct md_command *command, size_t bytes)
{
	return bytes + RECORD_OVERHEAD + 4 * (size_t)command->cred.group_count;
}

int md_execute(struct md_server *md, struct md_command *command, struct md_ctx *ctx,
	       ProtobufCMessage *reply, size_t bytes)
{
	uint64_t index;
	int r;

	bytes = md_record_bytes(command, bytes);
	/* Before anything is changed: afterwards there is no going back. */
	if (bytes > MD_COMMAND_BYTES_MAX)
		return -E2BIG;
	if (!md_log_room(md->log, bytes))
		return md_log_sick(md->log) ? -EIO : -ENOSPC;
	ctx->state = &md->state;
	ctx->index = md_log_next(md->log);
	r = md_state_apply(ctx, command, true, reply);
	if (r < 0 || !ctx->changed)
		return r;
	/* From here on there is no going back: the state has it, so the log must. */
	gx_buf_clear(&md->record);
	r = md_command_encode(command, &md->record);
	if (r == 0)
		r = md_log_append(md->log, md->record.data, md->record.bytes, &index);
	if (r < 0)
		md_fatal(md, r);
	gx_assert(index == ctx->index);
	return 0;
}

void md_finish_command(struct md_server *md, struct md_ctx *ctx, const struct md_command *command)
{
	struct md_session *session = md_session_get(md, command->session);

	md_kv_applied(md->kv, ctx->index);
	/* That a session begins or ends need not be on disk for anybody. */
	if (session && command->seq != 0)
		session->last_index = ctx->index;
}

int md_own_execute(struct md_server *md, enum rpc_method_index method, uint64_t session,
		   const ProtobufCMessage *request, ProtobufCMessage *reply, struct md_ctx *ctx)
{
	struct md_command command = {
		.method = rpc_method_get(method),
		.time_ns = md_time(md),
		.session = session,
		.request = request,
	};
	int r;

	*ctx = (struct md_ctx){.arena = &md->arena};
	r = md_execute(md, &command, ctx, reply, OWN_COMMAND_BYTES);
	rpc_arena_clear(&md->arena);
	if (r == 0 && ctx->changed)
		md_finish_command(md, ctx, &command);
	return r;
}

int md_own_command(struct md_server *md, enum rpc_method_index method, uint64_t session,
		   const ProtobufCMessage *request, ProtobufCMessage *reply, uint64_t *ret_index)
{
	struct md_ctx ctx;
	int r = md_own_execute(md, method, session, request, reply, &ctx);

	if (r == 0 && ret_index)
		*ret_index = ctx.changed ? ctx.index : 0;
	return r;
}

int md_cap_check(struct md_server *md, uint64_t ino, uint64_t cap)
{
	if (ino == MD_ROOT_INO || md_cap_same(cap, md_cap_inode(md->cap, ino)))
		return 0;
	return -ESTALE;
}

void md_fill_cap(struct md_server *md, PbMeta__Attr *attr)
{
	if (attr && attr->ino != MD_ROOT_INO)
		attr->cap = md_cap_inode(md->cap, attr->ino);
}

/* Where a reply has what all of its kind have. */
static void reply_parts(uint16_t method, ProtobufCMessage *reply, PbMeta__Attr **ret_attr,
			PbMeta__Done ***ret_done)
{
	*ret_attr = NULL;
	*ret_done = NULL;
	switch (method) {
#define PARTS(id, type)                                                                            \
	case id:                                                                                   \
		*ret_attr = ((type *)reply)->attr;                                                 \
		*ret_done = &((type *)reply)->done;                                                \
		break;
		PARTS(RPC_SETATTR, PbMeta__SetattrReply)
		PARTS(RPC_MAKE, PbMeta__MakeReply)
		PARTS(RPC_LINK, PbMeta__LinkReply)
		PARTS(RPC_OPEN, PbMeta__OpenReply)
		PARTS(RPC_WRITE, PbMeta__WriteReply)
		PARTS(RPC_REPORT, PbMeta__ReportReply)
#undef PARTS
	case RPC_UNLINK:
		*ret_done = &((PbMeta__UnlinkReply *)reply)->done;
		break;
	case RPC_RENAME:
		*ret_done = &((PbMeta__RenameReply *)reply)->done;
		break;
	case RPC_SETXATTR:
		*ret_done = &((PbMeta__SetxattrReply *)reply)->done;
		break;
	default:
		break;
	}
}

const PbMeta__Done *md_reply_done(uint16_t method, ProtobufCMessage *reply)
{
	PbMeta__Done **slot;
	PbMeta__Attr *attr;

	reply_parts(method, reply, &attr, &slot);
	return slot ? *slot : NULL;
}

size_t md_complete(struct md_server *md, struct md_ctx *ctx, const struct md_command *command,
		   ProtobufCMessage *reply, PbMeta__Done *done, unsigned char *packed)
{
	PbMeta__Done **slot;
	PbMeta__Attr *attr;
	size_t bytes;

	reply_parts(command->method->id, reply, &attr, &slot);
	gx_assert(slot);
	md_fill_cap(md, attr);
	pb_meta__done__init(done);
	done->index = ctx->index;
	done->time_ns = command->time_ns;
	done->new_ino = command->new_ino;
	done->receipt = md_cap_receipt(md->cap, command->session, command->seq, command->check,
				       command->new_ino, command->time_ns);
	*slot = done;
	if (command->method->id == RPC_OPEN) {
		const PbMeta__OpenRequest *request = (const PbMeta__OpenRequest *)command->request;
		PbMeta__OpenReply *open = (PbMeta__OpenReply *)reply;

		open->handle = command->seq;
		open->token = md_cap_token(md->cap, command->session, open->handle, attr->ino,
					   request->flags & (MD_OPEN_READ | MD_OPEN_WRITE));
	}
	bytes = protobuf_c_message_get_packed_size(reply);
	gx_assert(bytes <= MD_RESULT_MAX);
	protobuf_c_message_pack(reply, packed);
	md_state_remember(ctx, command, packed, bytes);
	return bytes;
}

/* -- ids ----------------------------------------------------------------------------------------
 */

void md_reserve_ids(struct md_server *md)
{
	PbMeta__ReserveRequest request = PB_META__RESERVE_REQUEST__INIT;
	PbMeta__ReserveReply reply = PB_META__RESERVE_REPLY__INIT;

	if (md->reserve_index != 0)
		return;
	request.ino_limit = md->next_ino + MD_INO_RANGE;
	request.session_limit = md->next_session + SESSION_RANGE;
	/* A full log says no: it is asked again with the next id. */
	if (md_own_command(md, RPC_INDEX_RESERVE, 0, &request.base, &reply.base,
			   &md->reserve_index) < 0)
		return;
	md->reserving = (struct md_ids){request.ino_limit, request.session_limit, 0};
}

void md_ids_reserved(struct md_server *md)
{
	md->reserve_index = 0;
	md->ino_limit = md->reserving.ino_limit;
	md->session_limit = md->reserving.session_limit;
}

int md_peek_ino(struct md_server *md, uint64_t *ret_ino)
{
	if (md->next_ino >= md->ino_limit) {
		md_reserve_ids(md);
		return -EAGAIN;
	}
	*ret_ino = md->next_ino;
	return 0;
}

void md_took_ino(struct md_server *md)
{
	md->next_ino++;
	if (md->ino_limit - md->next_ino < MD_INO_RANGE / 2)
		md_reserve_ids(md);
}

int md_take_session_id(struct md_server *md, uint64_t *ret_session)
{
	if (md->next_session >= md->session_limit) {
		md_reserve_ids(md);
		return -EAGAIN;
	}
	*ret_session = md->next_session++;
	if (md->session_limit - md->next_session < SESSION_RANGE / 2)
		md_reserve_ids(md);
	return 0;
}

/* -- replies that wait ------------------------------------------------------------------------ */

struct md_pending *md_pending_new(struct md_session *session, struct rpc_call *call)
{
	struct md_pending *pending = rpc_call_alloc(call, sizeof(*pending));

	if (!pending)
		return NULL;
	*pending = (struct md_pending){.call = call, .session = session};
	session->pendings++;
	return pending;
}

int md_settle(struct md_server *md, struct rpc_call *call, struct md_session *session,
	      struct md_pending *pending, uint64_t need, int err, const struct md_ctx *ctx)
{
	bool disk = need > md_log_durable(md->log) && !GX_BROKEN(4);
	bool unsettled = md->unsettled > 0 && ctx && md_is_unsettled(md, ctx);

	if (!disk && !unsettled && (!pending || pending->tells == 0))
		return err;
	if (!pending)
		pending = md_pending_new(session, call);
	if (!pending)
		return -EAGAIN;
	pending->need = disk ? need : 0;
	pending->err = err;
	if (unsettled)
		md_wait_settled(md, pending, ctx);
	pending->is_waiting = true;
	DL_APPEND(md->waiting, pending);
	return RPC_DEFERRED;
}

bool md_pending_check(struct md_server *md, struct md_pending *pending)
{
	bool more = pending->then != NULL;

	if (!pending->is_waiting || pending->tells > 0 || pending->need > md_log_durable(md->log))
		return false;
	DL_DELETE(md->waiting, pending);
	pending->is_waiting = false;
	if (pending->then)
		pending->then(pending);
	if (!pending->is_mutation)
		pending->session->pendings--;
	rpc_call_finish(pending->call, pending->err);
	return more;
}

/* Until the first that does more than to be answered: that may end others in the list. */
static bool wake_some(struct md_server *md)
{
	struct md_pending *pending, *tmp;

	DL_FOREACH_SAFE (md->waiting, pending, tmp)
		if (md_pending_check(md, pending))
			return true;
	return false;
}

static void wake_waiting(struct md_server *md)
{
	while (wake_some(md))
		;
}

/* Unpacked requests are as large as their senders like. */
#define PARKED_BYTES_MAX (64u * 1024 * 1024)
#define PARKED_BYTES_PER_SESSION_MAX (8u * 1024 * 1024)

int md_park(struct md_server *md, struct rpc_call *call, bool for_room)
{
	struct md_session *session = md_session_get(md, call->session);
	size_t bytes = call->held_bytes + sizeof(*call);

	if (md->parked_bytes + bytes > PARKED_BYTES_MAX ||
	    session->parked_bytes + bytes > PARKED_BYTES_PER_SESSION_MAX)
		return -EAGAIN;
	md->parked_bytes += bytes;
	session->parked_bytes += bytes;
	md->parked_for_room = md->parked_for_room || for_room;
	call->next = NULL;
	*md->parked_end = call;
	md->parked_end = &call->next;
	md->parked_count++;
	return RPC_DEFERRED;
}

void md_unpark(struct md_server *md)
{
	struct rpc_call *list = md->parked;

	md->parked = NULL;
	md->parked_end = &md->parked;
	md->parked_count = 0;
	md->parked_bytes = 0;
	md->parked_for_room = false;
	/* All of them first: what runs may be kept again, and then counts. */
	for (struct rpc_call *call = list; call; call = call->next) {
		struct md_session *session = md_session_get(md, call->session);

		if (session)
			session->parked_bytes = 0;
	}
	while (list) {
		struct rpc_call *call = list;

		list = call->next;
		call->next = NULL;
		if (md->stopping)
			rpc_call_finish(call, -ESHUTDOWN);
		else
			rpc_call_run_again(call);
	}
}

/* Room may have come. */
static void unpark_for_room(struct md_server *md)
{
	if (md->parked_for_room && (md_kv_room(md->kv) || md->store_err < 0))
		md_unpark(md);
}

/* -- turns ----------------------------------------------------------------------------------------
 */

static void commit(void *arg)
{
	struct md_server *md = arg;
	int r;

	if (GX_BROKEN(1))
		md_kv_durable(md->kv, md_log_next(md->log) - 1);
	r = md_log_commit(md->log);
	if (r < 0)
		md_fatal(md, r);
}

static void kick_all(struct md_server *md)
{
	struct md_session *session, *tmp;

	md->kicks = false;
	HASH_ITER (hh, md->sessions, session, tmp) {
		if (!session->kick)
			continue;
		session->kick = false;
		rpc_server_kick(md->rpc, session->id, "its push channel broke");
	}
}

static void on_turn_end(struct gx_hook *hook)
{
	struct md_server *md = GX_CONTAINER_OF(hook, struct md_server, turn_end);

	if (md->kicks)
		kick_all(md);
	commit(md);
}

void md_on_durable(void *arg, uint64_t index, int err)
{
	struct md_server *md = arg;

	if (err < 0)
		md_fatal(md, err);
	md_kv_durable(md->kv, index);
	if (md->reserve_index != 0 && index >= md->reserve_index)
		md_ids_reserved(md);
	wake_waiting(md);
	unpark_for_room(md);
	/* Only now nodes may hear of it (rule N2). */
	if (md->jobs)
		md_jobs_durable(md->jobs);
}

void md_on_stored(void *arg, uint64_t index, int err)
{
	struct md_server *md = arg;

	if (err < 0) {
		md->store_err = err;
		gx_log(ERR, "the database cannot be written: no changes once memory is full",
		       GX_KE(err));
		unpark_for_room(md);
		return;
	}
	md->stored = index;
	md_log_trim(md->log, index);
	unpark_for_room(md);
}

void md_more_work(struct md_server *md)
{
	gx_loop_post(md->loop, &md->work);
}

static void on_work(struct gx_task *task)
{
	struct md_server *md = GX_CONTAINER_OF(task, struct md_server, work);

	md_sessions_work(md);
	md_waits_work(md);
	md_locking_work(md);
	md_jobs_work(md->jobs);
	if (md->parked)
		md_unpark(md);
}

static void on_tick(struct gx_timer *timer)
{
	struct md_server *md = GX_CONTAINER_OF(timer, struct md_server, tick);
	int64_t now = gx_loop_now_ns(md->loop);

	md_sessions_tick(md, now);
	md_forget_tick(md, now);
	md_nodes_tick(md->nodes);
	md_access_tick(md, now);
	md_locking_tick(md, now);
	md_jobs_tick(md->jobs, now);
	unpark_for_room(md);
	if (gx_timer_start(md->loop, &md->tick, now + TICK_NS, on_tick) < 0)
		md_fatal(md, -ENOMEM);
}

/* -- life -----------------------------------------------------------------------------------------
 */

static int start_rpc(struct md_server *md)
{
	struct rpc_server_options options = RPC_SERVER_OPTIONS_INIT;
	int r;

	rpc_dispatcher_init(&md->dispatcher, md->env, md->name, md->options.program);
	md->dispatcher.replay = &md->replay;
	md->dispatcher.loop = md->loop;
	rpc_dispatcher_add(&md->dispatcher, &md_service_table, md);
	options.loop = md->loop;
	options.dispatcher = &md->dispatcher;
	options.auth = md->options.auth;
	options.session_fn = md_session_find_or_make;
	options.session_arg = md;
	options.session_events = &md_session_events;
	options.commit_fn = commit;
	options.commit_arg = md;
	options.connections_max = md->options.connections_max;
	options.half_open_max = md->options.half_open_max;
	options.handshake_ns = md->options.handshake_ns;
	r = gx_env_random(md->env, &options.boot, sizeof(options.boot));
	return r < 0 ? r : rpc_server_new(&options, &md->rpc);
}

static int start(struct md_server *md)
{
	int r = md_start_state(md);

	if (r == 0)
		md->asks = md_log_epoch(md->log) << 32;
	if (r == 0)
		r = md_leases_new(md->options.leases_max, md_forget_evicted, md, &md->leases);
	if (r == 0)
		r = md_nodes_new(md->env, &md->nodes);
	if (r == 0)
		r = md_access_new(&md->access);
	if (r == 0)
		r = md_locking_start(md);
	if (r == 0)
		r = md_jobs_new(md, &md->jobs);
	if (r == 0)
		r = md_sessions_load(md);
	if (r == 0)
		r = start_rpc(md);
	if (r == 0)
		r = gx_timer_start(md->loop, &md->tick, gx_env_now_ns(md->env) + TICK_NS, on_tick);
	return r;
}

int md_server_new(const struct md_server_options *options, struct md_server **ret_server)
{
	struct md_server *md = calloc(1, sizeof(*md));
	int r;

	if (!md) {
		md_users_free(options->users);
		return -ENOMEM;
	}
	md->options = *options;
	md->env = options->env;
	md->loop = options->loop;
	md->name = options->name;
	md->users = options->users;
	md->lock_fd = -1;
	md->ask_ns = MD_ASK_NS;
	md->parked_end = &md->parked;
	md->replay.ops = &md_replay_ops;
	md->state.is_open = md_is_open;
	md->state.arg = md;
	md->work.fn = on_work;
	md->started_ns = gx_env_now_ns(md->env);
	gx_buf_init(&md->record, MD_COMMAND_BYTES_MAX);
	rpc_arena_init(&md->arena, GX_UNPACK_MAX);
	r = start(md);
	if (r < 0) {
		md_server_free(md);
		return r;
	}
	gx_hook_start(md->loop, &md->turn_end, MD_HOOK_LEVEL, on_turn_end);
	gx_log(NOTICE, "namespace ready", GX_KU("epoch", md_log_epoch(md->log)),
	       GX_KU("index", md_log_next(md->log) - 1), GX_KU("stored", md->stored),
	       GX_KU("sessions", HASH_COUNT(md->sessions)));
	*ret_server = md;
	return 0;
}

void md_server_free(struct md_server *md)
{
	if (!md)
		return;
	md->stopping = md->freeing = true;
	md_unpark(md);
	md_waits_stop(md);
	md_locking_stop(md);
	if (md->jobs)
		md_jobs_stop(md->jobs);
	while (md->waiting) {
		md_links_release(md, &md->waiting->links);
		md->waiting->tells = 0;
		md->waiting->need = 0;
		md->waiting->err = -ESHUTDOWN;
		md_pending_check(md, md->waiting);
	}
	rpc_server_free(md->rpc);
	gx_timer_stop(&md->tick);
	gx_loop_unpost(md->loop, &md->work);
	gx_hook_stop(&md->turn_end);
	md_sessions_free(md);
	while (md->old_leases) {
		struct md_old_leases *old = md->old_leases;

		md->old_leases = old->next;
		free(old);
	}
	md_leases_free(md->leases);
	md_jobs_free(md->jobs);
	md_access_free(md->access);
	md_locks_free(md->locks);
	md_nodes_free(md->nodes);
	md_log_close(md->log);
	md_kv_close(md->kv);
	md_cap_free(md->cap);
	md_users_free(md->users);
	rpc_arena_clear(&md->arena);
	gx_buf_fini(&md->record);
	if (md->lock_fd >= 0)
		GX_IGNORE(gx_env_close(md->env, md->lock_fd));
	free(md);
}

int md_server_listen(struct md_server *md, const struct rpc_endpoint *endpoint,
		     struct rpc_endpoint *ret_bound)
{
	return rpc_server_listen(md->rpc, endpoint, ret_bound);
}

static void on_drained(void *arg)
{
	struct md_server *md = arg;

	commit(md);
	if (md_log_sync(md->log) < 0)
		md_fatal(md, md_log_sick(md->log));
	md->drained_fn(md->drained_arg);
}

void md_server_drain(struct md_server *md, int64_t deadline_ns, rpc_drained_fn fn, void *arg)
{
	md->stopping = true;
	md->drained_fn = fn;
	md->drained_arg = arg;
	md_unpark(md);
	md_waits_stop(md);
	md_locking_stop(md);
	md_jobs_stop(md->jobs);
	rpc_server_drain(md->rpc, deadline_ns, on_drained, md);
}

void md_server_set_users(struct md_server *md, struct md_users *users)
{
	struct md_users *old = md->users;

	md->users = users;
	md_sessions_users(md);
	md_users_free(old);
}

void md_server_keys_changed(struct md_server *md)
{
	struct md_session *session, *tmp;

	HASH_ITER (hh, md->sessions, session, tmp) {
		if (!rpc_keytab_find(md->options.auth->keys, session->identity))
			md_session_end(md, session, "its key was removed");
	}
}

struct md_state *md_server_state(struct md_server *md)
{
	return &md->state;
}

struct rpc_dispatcher *md_server_dispatcher(struct md_server *md)
{
	return &md->dispatcher;
}

bool md_server_recovering(const struct md_server *md)
{
	return md->recovering;
}
