/*
 * Handlers that change something: from a request to a command, and from the command to everything
 * that has to happen before its answer leaves.
 */
#define GX_LOG_COMPONENT "metad"
#include "metad/md_server_impl.h"
#include "common/gx_broken.h"
#include "common/gx_limits.h"
#include "common/gx_log.h"
#include "common/gx_sum.h"

/* Memory of a mutation's answer, there before anything is changed. */
struct change {
	PbMeta__Done done;
	uint32_t bytes;
	unsigned char packed[MD_RESULT_MAX];
};

struct md_command md_command_of(struct md_server *md, struct md_session *session,
				struct rpc_call *call)
{
	return (struct md_command){
		.method = call->method,
		.time_ns = md_time(md),
		.session = session->id,
		.seq = call->frame.seq,
		.check = md_check_with(call->request_check, call),
		.cred = session->user->cred,
		.request = call->request,
		.payload = call->payload,
		.payload_bytes = (uint32_t)call->payload_bytes,
	};
}

/* May this session change anything now? If not, an error or RPC_DEFERRED. */
static int may_change(struct md_server *md, struct rpc_call *call, struct md_session *session)
{
	struct md_pending *pending = call->replay_data;

	if (md_session_log(md, session) < 0)
		return rpc_call_fail(call, -ENOSPC, "no room in metad's log");
	/* The database is behind and memory is full (rule N8). */
	if (!md_kv_room(md->kv))
		return md->store_err < 0 ? md->store_err : md_park(md, call, true);
	/* Before it is full each waits for one sync: many short waits instead of a long one. */
	if (md_kv_pressed(md->kv) && !pending->slowed) {
		pending->slowed = true;
		return md_park(md, call, true);
	}
	/* Who only looks is not to wait for a file of the log with us (rule N17). */
	return md_log_busy(md->log) ? md_park(md, call, true) : 0;
}

int md_change_enter(struct md_server *md, struct rpc_call *call, struct md_session **ret_session)
{
	int r = md_enter(md, call, ret_session);

	return r != 0 ? r : may_change(md, call, *ret_session);
}

/* Does what the command says. ctx->changed tells whether anything was. */
static int execute(struct md_server *md, struct rpc_call *call, struct md_command *command,
		   struct md_ctx *ctx, ProtobufCMessage *reply, struct change *change)
{
	int r;

	ctx->arena = &call->arena;
	r = md_execute(md, command, ctx, reply, call->frame.message_bytes + call->payload_bytes);
	if (r == -ENOSPC && !md_log_room(md->log, 4096))
		return rpc_call_fail(call, r, "no room in metad's log");
	if (r < 0 || !ctx->changed)
		return r;
	change->bytes =
		(uint32_t)md_complete(md, ctx, command, reply, &change->done, change->packed);
	md_finish_command(md, ctx, command);
	return 0;
}

/* The same for the call's own request: its reply is ready to be sent. */
int md_change_execute(struct md_server *md, struct rpc_call *call, struct md_command *command,
		      struct md_ctx *ctx)
{
	struct change *change = rpc_call_alloc(call, sizeof(*change));
	int r;

	if (!change)
		return -ENOMEM;
	r = execute(md, call, command, ctx, call->reply, change);
	if (r == 0 && ctx->changed) {
		call->packed = change->packed;
		call->packed_bytes = change->bytes;
	}
	return r;
}

/* The mutation is done, with r: others forget, and the answer waits for whom and what it must. */
int md_changed(struct md_server *md, struct rpc_call *call, struct md_session *session,
	       struct md_ctx *ctx, int r)
{
	struct md_pending *pending = call->replay_data;
	uint64_t need;

	session->need = GX_MAX(session->need, ctx->depends);
	need = GX_MAX(session->need, session->open_index);
	if (r == 0 && ctx->changed) {
		if (md->options.strict)
			need = GX_MAX(need, ctx->index);
		md_forget(md, session, ctx, pending);
	}
	return md_settle(md, call, session, pending, need, r, ctx);
}

/* A mutation without anything special about it; attr may be NULL. */
static int change(struct md_server *md, struct rpc_call *call, struct md_session *session,
		  struct md_command *command, PbMeta__Attr **attr)
{
	struct md_ctx ctx = {0};
	int r = md_change_execute(md, call, command, &ctx);

	if (r == 0 && attr && *attr)
		md_show(md, session, *attr);
	return md_changed(md, call, session, &ctx, r);
}

/* May this inode be changed for this call? Then its command. As md_enter(). */
static int begin(struct rpc_call *call, uint64_t ino, uint64_t cap, struct md_session **ret_session,
		 struct md_command *ret_command)
{
	struct md_server *md = call->data;
	int r = md_change_enter(md, call, ret_session);

	if (r == 0)
		r = md_cap_check(md, ino, cap);
	if (r == 0)
		*ret_command = md_command_of(md, *ret_session, call);
	return r;
}

int md_op_make(struct rpc_call *call, const PbMeta__MakeRequest *request, PbMeta__MakeReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_command command;
	struct md_ctx ctx = {0};
	int r;

	r = begin(call, request->parent, request->cap, &session, &command);
	if (r != 0)
		return r;
	r = md_peek_ino(md, &command.new_ino);
	if (r < 0)
		return r;
	r = md_change_execute(md, call, &command, &ctx);
	if (r == 0) {
		md_took_ino(md);
		md_show(md, session, reply->attr);
	}
	return md_changed(md, call, session, &ctx, r);
}

int md_op_link(struct rpc_call *call, const PbMeta__LinkRequest *request, PbMeta__LinkReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_command command;
	int r;

	r = begin(call, request->ino, request->cap, &session, &command);
	if (r == 0)
		r = md_cap_check(md, request->parent, request->parent_cap);
	if (r != 0)
		return r;
	return change(md, call, session, &command, &reply->attr);
}

int md_op_unlink(struct rpc_call *call, const PbMeta__UnlinkRequest *request,
		 PbMeta__UnlinkReply *reply GX_UNUSED)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_command command;
	int r;

	r = begin(call, request->parent, request->cap, &session, &command);
	if (r != 0)
		return r;
	return change(md, call, session, &command, NULL);
}

int md_op_rename(struct rpc_call *call, const PbMeta__RenameRequest *request,
		 PbMeta__RenameReply *reply GX_UNUSED)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_command command;
	int r;

	r = begin(call, request->from_parent, request->from_cap, &session, &command);
	if (r == 0)
		r = md_cap_check(md, request->to_parent, request->to_cap);
	if (r != 0)
		return r;
	return change(md, call, session, &command, NULL);
}

int md_op_setxattr(struct rpc_call *call, const PbMeta__SetxattrRequest *request,
		   PbMeta__SetxattrReply *reply GX_UNUSED)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_command command;
	int r;

	r = begin(call, request->ino, request->cap, &session, &command);
	if (r != 0)
		return r;
	return change(md, call, session, &command, NULL);
}

int md_op_setattr(struct rpc_call *call, const PbMeta__SetattrRequest *request,
		  PbMeta__SetattrReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_command command;
	struct md_open *open = NULL;
	int r;

	r = md_change_enter(md, call, &session);
	if (r != 0)
		return r;
	if (request->handle != 0) {
		r = md_open_find(session, request->handle, 0, &open);
		if (r == 0 && open->ino != request->ino)
			r = -EBADF;
	} else {
		r = md_cap_check(md, request->ino, request->cap);
	}
	if (r < 0)
		return r;
	if (request->mask & MD_SET_SIZE)
		r = md_inline_enter(md, call, session, request->ino, true);
	if (r != 0)
		return r;
	command = md_command_of(md, session, call);
	if (open && (open->flags & MD_OPEN_WRITE))
		command.flags |= MD_COMMAND_HANDLE;
	return change(md, call, session, &command, &reply->attr);
}

int md_op_write(struct rpc_call *call, const PbMeta__WriteRequest *request,
		PbMeta__WriteReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_command command;
	struct md_ctx ctx = {0};
	struct md_open *open;
	int r;

	r = md_change_enter(md, call, &session);
	if (r == 0)
		r = md_open_find(session, request->handle, MD_OPEN_WRITE, &open);
	if (r != 0)
		return r;
	/* The log must say which inode: handles do not outlive us. */
	if (request->ino != open->ino)
		return rpc_call_fail(call, -EBADF, "the handle is of another inode");
	r = md_inline_enter(md, call, session, open->ino, true);
	if (r != 0)
		return r;
	command = md_command_of(md, session, call);
	command.flags |= MD_COMMAND_HANDLE;
	r = md_change_execute(md, call, &command, &ctx);
	if (r == 0) {
		md_show(md, session, reply->attr);
		if (request->close)
			md_open_close(md, session, open);
	}
	return md_changed(md, call, session, &ctx, r);
}

/* -- open
 * ------------------------------------------------------------------------------------------- */

/*
 * The content goes. An object that sessions use is not taken away from them: the opener cuts it
 * through the primary, in order with their reads and writes (rule B4).
 */
static int open_truncate(struct md_server *md, struct rpc_call *call, struct md_session *session,
			 uint64_t ino, struct md_ctx *ctx, PbMeta__OpenReply *reply)
{
	struct md_command command;
	int r = md_inline_enter(md, call, session, ino, true);

	if (r != 0)
		return r;
	if (md_access_first(md->access, ino)) {
		reply->truncate_later = true;
		return 0;
	}
	r = may_change(md, call, session);
	if (r != 0)
		return r;
	command = md_command_of(md, session, call);
	return md_change_execute(md, call, &command, ctx);
}

/* The name is there: may it be opened, and is there anything to truncate? */
static int open_existing(struct md_server *md, struct rpc_call *call, struct md_session *session,
			 PbMeta__OpenRequest *request, struct md_ctx *ctx, PbMeta__OpenReply *reply)
{
	PbMeta__Attr *attr = rpc_call_alloc(call, sizeof(*attr));
	uint32_t flags = request->flags & (MD_OPEN_READ | MD_OPEN_WRITE);
	int r;

	if (!attr)
		return -ENOMEM;
	ctx->state = &md->state;
	ctx->cred = &session->user->cred;
	ctx->arena = &call->arena;
	ctx->session = session->id;
	r = md_state_may_open(ctx, request->ino, flags, attr);
	if (r < 0)
		return r;
	/* While it is being written its size is not for sure. */
	if ((request->flags & MD_OPEN_TRUNCATE) && S_ISREG(attr->mode) &&
	    (attr->size > 0 || (attr->flags & MD_INODE_WRITING))) {
		r = open_truncate(md, call, session, attr->ino, ctx, reply);
		if (r != 0 || ctx->changed)
			return r;
	}
	reply->attr = attr;
	md_fill_cap(md, attr);
	reply->handle = call->frame.seq;
	reply->token = md_cap_token(md->cap, session->id, reply->handle, attr->ino, flags);
	return 0;
}

/* Finds the name; request->ino is set if it is there. */
static int open_find(struct md_server *md, struct rpc_call *call, struct md_session *session,
		     PbMeta__OpenRequest *request, struct md_ctx *ctx)
{
	PbMeta__LookupRequest lookup = PB_META__LOOKUP_REQUEST__INIT;
	PbMeta__LookupReply found = PB_META__LOOKUP_REPLY__INIT;
	int r;

	*ctx = (struct md_ctx){.state = &md->state,
			       .cred = &session->user->cred,
			       .arena = &call->arena,
			       .session = session->id};
	lookup.parent = request->parent;
	lookup.name = request->name;
	r = md_state_lookup(ctx, &lookup, &found);
	if (r == 0 && (request->flags & (MD_OPEN_CREATE | MD_OPEN_EXCLUSIVE)) ==
			      (MD_OPEN_CREATE | MD_OPEN_EXCLUSIVE))
		r = -EEXIST;
	if (r == 0)
		request->ino = found.attr->ino;
	return r;
}

static int open_new(struct md_server *md, struct rpc_call *call, struct md_session *session,
		    struct md_ctx *ctx)
{
	struct md_command command = md_command_of(md, session, call);
	uint64_t depends = ctx->depends;
	int r = may_change(md, call, session);

	if (r == 0)
		r = md_peek_ino(md, &command.new_ino);
	if (r != 0)
		return r;
	*ctx = (struct md_ctx){.depends = depends};
	r = md_change_execute(md, call, &command, ctx);
	if (r == 0)
		md_took_ino(md);
	return r;
}

int md_op_open(struct rpc_call *call, const PbMeta__OpenRequest *request_const,
	       PbMeta__OpenReply *reply)
{
	PbMeta__OpenRequest *request = (PbMeta__OpenRequest *)call->request;
	uint32_t mode = request_const->flags & (MD_OPEN_READ | MD_OPEN_WRITE);
	bool by_name = request->parent != 0;
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_ctx ctx = {0};
	int r;

	/* To look at a file that is there needs no room (rule N7). */
	r = md_enter(md, call, &session);
	if (r == 0)
		r = md_cap_check(md, by_name ? request->parent : request->ino, request->cap);
	if (r != 0)
		return r;
	if ((request->flags & ~31u) || mode == 0 || (!by_name && request->name[0] != '\0') ||
	    ((request->flags & MD_OPEN_TRUNCATE) && !(mode & MD_OPEN_WRITE)))
		return -EINVAL;
	if (!md_open_room(md, session))
		return -EMFILE;
	if (by_name) {
		request->ino = 0;
		r = open_find(md, call, session, request, &ctx);
	}
	if (r == -ENOENT && (request->flags & MD_OPEN_CREATE))
		r = open_new(md, call, session, &ctx);
	else if (r == 0)
		r = open_existing(md, call, session, request, &ctx, reply);
	if (r == RPC_DEFERRED)
		return r;
	if (r == 0) {
		r = md_open_add(md, session, reply->handle, reply->attr->ino, mode);
		/* The file may have been made: then the answer must not deny it. */
		if (r < 0 && ctx.changed)
			md_fatal(md, r);
	}
	if (r == 0) {
		md_show(md, session, reply->attr);
		/*
		 * Who makes a file has not looked at the directory: without a lease on its names
		 * many clients can make files in one directory and need not tell each other.
		 */
		if (by_name && !reply->created)
			md_lease(md, session, request->parent, MD_LEASE_NAMES);
	}
	return md_changed(md, call, session, &ctx, r);
}

int md_op_close(struct rpc_call *call, const PbMeta__CloseRequest *request,
		PbMeta__CloseReply *reply GX_UNUSED)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_open *open;
	int r;

	r = md_enter(md, call, &session);
	if (r != 0)
		return r;
	if (md_open_find(session, request->handle, 0, &open) == 0)
		md_open_close(md, session, open);
	return 0;
}

/* -- after a restart
 * ---------------------------------------------------------------------------------- */

/* A session that may speak during recovery, too. */
static int enter_early(struct md_server *md, struct rpc_call *call, struct md_session **ret_session)
{
	struct md_session *session = md_session_get(md, call->session);

	if (!session || session->ending)
		return rpc_call_fail(call, -ENOTRECOVERABLE, "the session is over");
	if (session->distrusted)
		return md_park(md, call, false);
	session->contact_ns = gx_loop_now_ns(md->loop);
	*ret_session = session;
	return 0;
}

#define RESUME_FILES_MAX 1000u
#define RESUME_LOCKS_MAX 10000u

/* One file that was open. */
static int resume_file(struct md_server *md, struct md_session *session,
		       const PbMeta__OpenFile *file)
{
	struct md_ctx ctx = {.state = &md->state, .session = session->id};
	PbMeta__GetattrRequest request = PB_META__GETATTR_REQUEST__INIT;
	PbMeta__GetattrReply reply = PB_META__GETATTR_REPLY__INIT;
	uint32_t flags = file->flags & (MD_OPEN_READ | MD_OPEN_WRITE);
	int r;

	if (!md_cap_same(file->token,
			 md_cap_token(md->cap, session->id, file->handle, file->ino, flags)))
		return -EPERM;
	ctx.arena = &md->arena;
	request.ino = file->ino;
	r = md_state_getattr(&ctx, &request, &reply);
	rpc_arena_clear(&md->arena);
	if (r == 0)
		r = md_open_add(md, session, file->handle, file->ino, flags);
	if (r == 0 && file->lease != 0)
		md_access_resume(md, session, file);
	return r;
}

int md_op_resume(struct rpc_call *call, const PbMeta__ResumeRequest *request,
		 PbMeta__ResumeReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	int r;

	r = enter_early(md, call, &session);
	if (r != 0)
		return r;
	if (request->n_files > RESUME_FILES_MAX || request->n_locks > RESUME_LOCKS_MAX)
		return rpc_call_fail(call, -E2BIG, "at most %u files and %u locks at a time",
				     RESUME_FILES_MAX, RESUME_LOCKS_MAX);
	reply->lost =
		rpc_call_alloc(call, (request->n_files + request->n_locks + 1) * sizeof(uint64_t));
	if (!reply->lost)
		return -EAGAIN;
	for (size_t i = 0; i < request->n_files; i++)
		if (resume_file(md, session, request->files[i]) < 0)
			reply->lost[reply->n_lost++] = request->files[i]->handle;
	reply->epoch = md_log_epoch(md->log);
	for (size_t i = 0; i < request->n_locks; i++)
		if (md_locking_resume(md, session, request->locks[i], request->lock_epoch) < 0)
			reply->lost[reply->n_lost++] = request->locks[i]->handle;
	if (!request->last)
		return 0;
	if (session->fresh_from == UINT64_MAX && request->next_seq > 0)
		session->fresh_from = request->next_seq;
	if (session->awaited) {
		session->awaited = false;
		md->awaited--;
		md_recovery_check(md);
	}
	return 0;
}

/* Is this what we said? Then the mutation it repeats. */
static int replay_decode(struct md_server *md, struct rpc_call *call, struct md_session *session,
			 const PbMeta__ReplayRequest *request, struct md_command *ret_command)
{
	const struct rpc_method *method = rpc_method_find(request->method);
	const PbMeta__Done *done = request->done;
	ProtobufCMessage *message;
	uint64_t check;
	int r;

	if (!method || !done ||
	    (method->flags & (RPC_F_MUTATES | RPC_F_COMMAND)) != RPC_F_MUTATES ||
	    method->id == RPC_REPLAY || method->request->n_fields == 0 || method->id >> 8 != 3)
		return -EPROTO;
	check = md_check_with(
		gx_sum64_seed(request->request.data, request->request.len, method->id), call);
	if (!md_cap_same(done->receipt, md_cap_receipt(md->cap, session->id, call->frame.seq, check,
						       done->new_ino, done->time_ns)))
		return rpc_call_fail(call, -EPERM, "this was not answered so");
	r = rpc_arena_unpack(&call->arena, method->request, request->request.data,
			     request->request.len, &message);
	if (r < 0)
		return r;
	*ret_command = md_command_of(md, session, call);
	ret_command->method = method;
	ret_command->check = check;
	ret_command->new_ino = done->new_ino;
	ret_command->time_ns = done->time_ns;
	ret_command->request = message;
	return 0;
}

/* What metad found out by itself the first time. */
static int replay_prepare(struct md_server *md, struct rpc_call *call, struct md_session *session,
			  struct md_command *command, struct md_ctx *ctx)
{
	PbMeta__OpenRequest *open = (PbMeta__OpenRequest *)command->request;
	PbMeta__GetattrRequest request = PB_META__GETATTR_REQUEST__INIT;
	PbMeta__GetattrReply found = PB_META__GETATTR_REPLY__INIT;

	*ctx = (struct md_ctx){.state = &md->state,
			       .cred = &session->user->cred,
			       .arena = &call->arena,
			       .session = session->id};
	/* It was answered with success, so a handle in it was good for what it did. */
	if (command->method->id == RPC_WRITE ||
	    (command->method->id == RPC_SETATTR &&
	     ((const PbMeta__SetattrRequest *)command->request)->handle != 0))
		command->flags |= MD_COMMAND_HANDLE;
	if (command->new_ino != 0) {
		request.ino = command->new_ino;
		return md_state_getattr(ctx, &request, &found) == 0 ? -EEXIST : 0;
	}
	/* Not made, so it was there, and truncated. */
	if (command->method->id == RPC_OPEN && open->parent != 0)
		return open_find(md, call, session, open, ctx);
	return 0;
}

static int replay_again(struct md_server *md, struct rpc_call *call, struct md_session *session,
			struct md_command *command, struct md_ctx *ctx)
{
	ProtobufCMessage *inner = rpc_call_alloc(call, command->method->reply->sizeof_message);
	struct change *change = rpc_call_alloc(call, sizeof(*change));
	int r;

	if (!inner || !change)
		return -EAGAIN;
	r = replay_prepare(md, call, session, command, ctx);
	if (r < 0)
		return r;
	*ctx = (struct md_ctx){.arena = &call->arena};
	protobuf_c_message_init(command->method->reply, inner);
	r = execute(md, call, command, ctx, inner, change);
	if (r < 0)
		gx_log(ERR, "a change that was lost cannot be made again",
		       GX_KS("method", command->method->name), GX_KX("session", session->id),
		       GX_KU("seq", command->seq), GX_KE(r));
	return r;
}

/* It was not lost, or has been done again already: where it is in the log. */
static int replay_known(struct rpc_call *call, const struct md_command *command,
			const struct md_result *result, PbMeta__ReplayReply *reply)
{
	const PbMeta__Done *done;
	ProtobufCMessage *message;

	if (result->method != command->method->id || result->check != command->check)
		return rpc_call_fail(call, -EPROTO, "sequence number used for another request");
	if (rpc_arena_unpack(&call->arena, command->method->reply, result->reply,
			     result->reply_bytes, &message) < 0)
		return -EAGAIN;
	done = md_reply_done(command->method->id, message);
	if (!done)
		return -EBADMSG;
	reply->index = done->index;
	return 0;
}

int md_op_replay(struct rpc_call *call, const PbMeta__ReplayRequest *request,
		 PbMeta__ReplayReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_command command;
	struct md_result result;
	struct md_ctx ctx = {0};
	size_t bytes;
	int r;

	r = enter_early(md, call, &session);
	if (r != 0)
		return r;
	if (!session->user || !session->logged)
		return -EACCES;
	r = replay_decode(md, call, session, request, &command);
	if (r < 0)
		return r;
	if (md_state_recall(&md->state, session->id, call->frame.seq, &result) == 0) {
		if (result.seq > call->frame.seq)
			return rpc_call_fail(call, -ENOTRECOVERABLE,
					     "its result was acknowledged before");
		if (result.seq == call->frame.seq)
			return replay_known(call, &command, &result, reply);
	}
	/* A full log is no reason for the client to take it for lost. */
	bytes = md_record_bytes(&command, call->frame.message_bytes + call->payload_bytes);
	if (!md_log_room(md->log, bytes))
		return -EAGAIN;
	r = replay_again(md, call, session, &command, &ctx);
	if (r == 0) {
		reply->index = ctx.index;
		reply->again = true;
	}
	return md_changed(md, call, session, &ctx, r);
}

/* -- the disk
 * ---------------------------------------------------------------------------------------- */

int md_op_sync(struct rpc_call *call, const PbMeta__SyncRequest *request, PbMeta__SyncReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	uint64_t need;
	int r;

	r = enter_early(md, call, &session);
	if (r != 0)
		return r;
	need = GX_MAX(session->last_index, session->need);
	if (request->nowait || GX_BROKEN(6)) {
		reply->index = md_log_durable(md->log);
		return 0;
	}
	reply->index = GX_MAX(need, md_log_durable(md->log));
	return md_settle(md, call, session, NULL, need, 0, NULL);
}

int md_op_renew(struct rpc_call *call, const PbMeta__RenewRequest *request GX_UNUSED,
		PbMeta__RenewReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	int r;

	r = enter_early(md, call, &session);
	if (r == 0)
		reply->durable = md_log_durable(md->log);
	return r;
}

static void left(struct md_pending *pending)
{
	struct md_server *md = pending->call->data;

	md_session_end(md, pending->session, "left");
}

int md_op_leave(struct rpc_call *call, const PbMeta__LeaveRequest *request GX_UNUSED,
		PbMeta__LeaveReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session = md_session_get(md, call->session);
	struct md_pending *pending;
	int r;

	if (!session || session->ending)
		return 0; /* it has left before */
	r = enter_early(md, call, &session);
	if (r != 0)
		return r;
	pending = md_pending_new(session, call);
	if (!pending)
		return -EAGAIN;
	pending->then = left;
	reply->index = GX_MAX(session->last_index, session->need);
	r = md_settle(md, call, session, pending, GX_BROKEN(6) ? 0 : reply->index, 0, NULL);
	if (r == 0) {
		session->pendings--;
		left(pending);
	}
	return r;
}
