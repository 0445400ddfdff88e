/*
 * The client of metad: life, errors, calls, and what happens when metad comes back.
 */
#define GX_LOG_COMPONENT "gfs.client"
#include "client/fs/gfc.h"
#include "client/fs/gfc_impl.h"
#include "common/gx_log.h"
#include "rpc/rpc_status.h"
#include <stdarg.h>
#include <stdio.h>

/* With half of the numbers unsynced metad is asked how far the disk is. */
#define ASK_FIRST (GX_UNSYNCED_PER_SESSION_MAX / 2)
#define ASK_STEP (GX_UNSYNCED_PER_SESSION_MAX / 8)

/* -- errors -------------------------------------------------------------------------------- */

static _Thread_local char error_text[GFC_ERROR_MAX];

const char *gfc_error(void)
{
	return error_text;
}

int gfc_fail(int err, const char *fmt, ...)
{
	char text[GFC_ERROR_MAX]; /* the arguments may point into the old text */
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	memcpy(error_text, text, sizeof(text));
	return err;
}

void gfc_lose(struct gfc *gfc, int err, const char *fmt, ...)
{
	va_list args;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	if (gfc->lost_err == 0) {
		gfc->lost_err = err;
		va_start(args, fmt);
		vsnprintf(gfc->lost_text, sizeof(gfc->lost_text), fmt, args);
		va_end(args);
	}
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

int gfc_take_lost(struct gfc *gfc)
{
	int r;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	r = gfc->lost_err;
	if (r < 0)
		r = gfc_fail(r, "%s", gfc->lost_text);
	gfc->lost_err = 0;
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	return r;
}

/* -- calls ----------------------------------------------------------------------------------- */

int64_t gfc_deadline(struct gfc *gfc)
{
	int64_t now = gx_env_now_ns(gfc->env);

	return gfc->timeout_ns < GX_FOREVER - now ? now + gfc->timeout_ns : GX_FOREVER;
}

void gfc_call_init(struct gfc_call *call, struct gfc *gfc)
{
	call->gfc = gfc;
	call->clock = gfc_clock(gfc);
	/* A buffer that cannot grow beyond what is here already. */
	call->errors = (struct gx_buf){call->text, 0, sizeof(call->text), sizeof(call->text)};
	call->options = (struct rpc_call_options){.deadline_ns = gfc_deadline(gfc),
						  .errors = &call->errors};
	call->reply.used = false;
	call->reply.status = 0;
	call->unsynced = NULL;
	call->open = NULL;
	atomic_fetch_add_explicit(&gfc->calls, 1, memory_order_relaxed);
}

/*
 * An rpc_keep_fn: a mutation was done. What must be known when metad comes back is entered here,
 * while no connection to a new metad can have been made yet.
 */
static bool keep(void *arg, uint64_t seq, const struct rpc_reply *reply)
{
	struct gfc_call *call = arg;
	const PbMeta__Done *done;

	memcpy(&done, (const char *)reply->message + call->done_offset, sizeof(done));
	if (reply->message->descriptor == &pb_meta__open_reply__descriptor) {
		const PbMeta__OpenReply *opened = (const PbMeta__OpenReply *)reply->message;

		call->open->handle = opened->handle;
		call->open->token = opened->token;
		if (opened->attr)
			call->open->ref = (struct gfc_ref){opened->attr->ino, opened->attr->cap};
		gfc_opens_add(call->gfc, call->open);
	} else if (call->open) {
		gfc_opens_remove(call->gfc, call->open);
	}
	if (!done || done->index == 0)
		return false;
	gfc_replay_add_take(&call->gfc->replay, seq, GX_TAKE(call->unsynced), done);
	return true;
}

int gfc_call_mutates(struct gfc_call *call, enum rpc_method_index method,
		     const ProtobufCMessage *request, size_t done_offset)
{
	struct gfc *gfc = call->gfc;
	int r;

	if (gfc_replay_bytes(&gfc->replay) > GFC_REPLAY_BYTES_MAX) {
		r = gfc_ask_disk(gfc, true, call->options.deadline_ns);
		if (r < 0)
			return r;
	}
	call->done_offset = done_offset;
	call->options.keep_fn = keep;
	call->options.keep_arg = call;
	return gfc_unsynced_new(rpc_method_get(method), request, call->options.payload_out,
				&call->unsynced);
}

/* Many numbers are taken: one thread asks, before the others have to wait. */
static void ask_early(struct gfc *gfc)
{
	uint64_t outstanding = rpc_client_outstanding(gfc->client);
	uint64_t at = atomic_load_explicit(&gfc->ask_at, memory_order_relaxed);

	if (outstanding < at || !atomic_compare_exchange_strong(&gfc->ask_at, &at, UINT64_MAX))
		return;
	/* If this fails the next mutation will say so. */
	GX_IGNORE(gfc_ask_disk(gfc, false, gfc_deadline(gfc)));
	outstanding = rpc_client_outstanding(gfc->client);
	atomic_store(&gfc->ask_at, GX_MAX(ASK_FIRST, outstanding + ASK_STEP));
}

static int explain(struct gfc_call *call, int r)
{
	char *end;

	if (gfc_call_answered(call))
		return gfc_fail(r, "%s",
				call->reply.detail[0] ? call->reply.detail : gx_strerror(r));
	if (call->errors.bytes == 0)
		return gfc_fail(r, "%s", gx_strerror(r));
	end = memchr(call->text, '\n', call->errors.bytes);
	return gfc_fail(r, "%.*s",
			(int)(end ? (size_t)(end - (char *)call->text) : call->errors.bytes),
			(const char *)call->text);
}

/*
 * metad could not be reached as long as we tried. How that failed last says nothing to who asked,
 * or something wrong: a socket that is not there is no missing file.
 */
static bool is_away(int err)
{
	switch (-err) {
	case ECONNABORTED:
	case ECONNREFUSED:
	case ECONNRESET:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENOENT:
	case ENOTCONN:
	case EPIPE:
	case ESHUTDOWN:
		return true;
	default:
		return false;
	}
}

int gfc_call_end(struct gfc_call *call, int r)
{
	if (r < 0) {
		r = explain(call, r);
		/* Who connects for the first time wants to know. */
		if (is_away(r) && !gfc_call_answered(call) && rpc_client_session(call->gfc->client))
			r = -ETIMEDOUT;
	}
	rpc_reply_fini(&call->reply);
	if (call->options.keep_fn) {
		free(call->unsynced);
		ask_early(call->gfc);
	}
	return r;
}

int gfc_ask_disk(struct gfc *gfc, bool wait, int64_t deadline_ns)
{
	PbMeta__SyncRequest request = PB_META__SYNC_REQUEST__INIT;
	const PbMeta__SyncReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	call.options.deadline_ns = deadline_ns;
	request.nowait = !wait;
	r = meta_call_sync(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		gfc_replay_durable(&gfc->replay, answer->index);
	return gfc_call_end(&call, r);
}

/* An rpc_full_fn. */
static int on_full(void *arg, int64_t deadline_ns)
{
	return gfc_ask_disk(arg, true, deadline_ns);
}

int gfc_renew(struct gfc *gfc, int64_t deadline_ns)
{
	PbMeta__RenewRequest request = PB_META__RENEW_REQUEST__INIT;
	const PbMeta__RenewReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	call.options.deadline_ns = deadline_ns;
	r = meta_call_renew(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		gfc_replay_durable(&gfc->replay, answer->durable);
	return gfc_call_end(&call, r);
}

int gfc_sync(struct gfc *gfc)
{
	int r;

	atomic_fetch_add(&gfc->syncs, 1);
	r = gfc_ask_disk(gfc, true, gfc_deadline(gfc));
	return r < 0 ? r : gfc_take_lost(gfc);
}

uint64_t gfc_syncs(struct gfc *gfc)
{
	return atomic_load(&gfc->syncs);
}

/* -- metad has been restarted -------------------------------------------------------------------
 */

/* A gfc_replay_lost_fn. */
static void on_lost(void *arg, const struct gfc_unsynced *u, int err, const char *detail)
{
	const char *why = detail[0] ? detail : gx_strerror(err);

	gx_log(DEBUG, "metad lost a change and could not do it again",
	       GX_KS("method", u->method->name), GX_KU("seq", u->seq), GX_KS("error", why));
	gfc_lose(arg, -EIO, "%s was lost in a restart of metad and could not be done again: %s",
		 u->method->name, why);
}

static void session_lost(struct gfc *gfc)
{
	uint64_t count = gfc_replay_drop(&gfc->replay);

	gx_log(DEBUG, "metad does not know this session any more", GX_KU("unsynced", count));
	if (count > 0)
		gfc_lose(gfc, -EIO,
			 "session lost: whether the last %llu changes were kept is unknown",
			 (unsigned long long)count);
	gfc_opens_lose(gfc);
}

/* An rpc_resume_fn. */
static int on_resume(void *arg, struct rpc_chan *chan, const struct rpc_chan_info *info,
		     int64_t deadline_ns)
{
	struct gfc *gfc = arg;
	int r;

	gfc_push_reset(gfc);
	gfc_opens_forget_late(gfc);
	if (!info->session_known) {
		session_lost(gfc);
		return 0;
	}
	r = gfc_replay_resend(&gfc->replay, chan, deadline_ns, on_lost, gfc);
	if (r == 0)
		r = gfc_opens_resume(gfc, chan, deadline_ns);
	if (r < 0)
		return r;
	atomic_fetch_add(&gfc->resumed, 1);
	return 0;
}

/* -- life ----------------------------------------------------------------------------------------
 */

static int new_client(struct gfc *gfc, const struct gfc_options *options)
{
	struct rpc_client_options o = RPC_CLIENT_OPTIONS_INIT;
	int r;

	o.env = options->env;
	o.endpoint = options->metad;
	o.identity = options->identity;
	o.key = options->key;
	o.timeout_ns = options->timeout_ns;
	if (options->connections_max > 0)
		o.connections_max = options->connections_max;
	if (options->program) {
		r = gx_strcpy(gfc->program, sizeof(gfc->program), options->program);
		if (r < 0)
			return r;
		o.program = gfc->program;
	}
	o.mutations_max = GX_UNSYNCED_PER_SESSION_MAX;
	o.resume_fn = on_resume;
	o.full_fn = on_full;
	o.answered_fn = options->cache_bytes > 0 ? gfc_push_answered : NULL;
	o.arg = gfc;
	r = rpc_client_new(&o, &gfc->client);
	gfc->replay.client = gfc->client;
	return r;
}

static void free_parts(struct gfc *gfc)
{
	gfc_locks_fini(gfc);
	gfc_opens_forget_late(gfc);
	while (gfc->opens) {
		struct gfc_open *open = gfc->opens;

		gfc_opens_remove(gfc, open);
		free(open);
	}
	rpc_client_free(gfc->client);
	gfc_cache_free(gfc->cache);
	gfc_replay_fini(&gfc->replay);
	gx_env_cond_fini(gfc->env, &gfc->wake);
	gx_env_mutex_fini(gfc->env, &gfc->data_lock);
	gx_env_mutex_fini(gfc->env, &gfc->lock);
	free(gfc);
}

static int init_locks(struct gfc *gfc)
{
	int r = gx_env_mutex_init(gfc->env, &gfc->lock);

	if (r < 0)
		return r;
	r = gx_env_mutex_init(gfc->env, &gfc->data_lock);
	if (r < 0)
		goto fail_lock;
	r = gx_env_cond_init(gfc->env, &gfc->wake);
	if (r < 0)
		goto fail;
	r = gfc_locks_init(gfc);
	if (r < 0)
		goto fail_wake;
	r = gfc_replay_init(&gfc->replay, gfc->env);
	if (r == 0)
		return 0;
	gfc_locks_fini(gfc);
fail_wake:
	gx_env_cond_fini(gfc->env, &gfc->wake);
fail:
	gx_env_mutex_fini(gfc->env, &gfc->data_lock);
fail_lock:
	gx_env_mutex_fini(gfc->env, &gfc->lock);
	return r;
}

int gfc_new(const struct gfc_options *options, struct gfc **ret_gfc)
{
	struct gfc *gfc = calloc(1, sizeof(*gfc));
	int r;

	if (!gfc)
		return gfc_fail(-ENOMEM, "out of memory");
	gfc->env = options->env;
	gfc->timeout_ns = options->timeout_ns;
	atomic_store(&gfc->ask_at, ASK_FIRST);
	r = init_locks(gfc);
	if (r < 0) {
		free(gfc);
		return gfc_fail(r, "%s", gx_strerror(r));
	}
	if (options->cache_bytes > 0)
		r = gfc_cache_new(gfc->env, options->cache_bytes, &gfc->cache);
	if (r == 0)
		r = new_client(gfc, options);
	if (r < 0)
		gfc_fail(r, "%s", gx_strerror(r));
	else
		r = gfc_renew(gfc, gfc_deadline(gfc));
	if (r == 0)
		r = gfc_push_start(gfc);
	if (r < 0) {
		free_parts(gfc);
		return r;
	}
	*ret_gfc = gfc;
	return 0;
}

static int leave(struct gfc *gfc)
{
	PbMeta__LeaveRequest request = PB_META__LEAVE_REQUEST__INIT;
	const PbMeta__LeaveReply *answer;
	struct gfc_call call;

	gfc_call_init(&call, gfc);
	return gfc_call_end(
		&call, meta_call_leave(gfc->client, &request, &call.options, &call.reply, &answer));
}

int gfc_free(struct gfc *gfc)
{
	int lost, r = 0;

	if (!gfc)
		return 0;
	/*
	 * If Leave's answer gets lost, nobody can be asked any more: all must be known before. The
	 * thread still runs: should metad lose its power while we wait, only it would notice.
	 */
	if (gfc_replay_count(&gfc->replay) > 0)
		r = gfc_ask_disk(gfc, true, gfc_deadline(gfc));
	gfc_locks_stop(gfc);
	gfc_push_last(gfc);
	if (r == 0)
		r = leave(gfc);
	gfc_push_stop(gfc);
	lost = gfc_take_lost(gfc);
	free_parts(gfc);
	return r < 0 ? r : lost;
}

struct gx_env *gfc_env(struct gfc *gfc)
{
	return gfc->env;
}

uint64_t gfc_session(struct gfc *gfc)
{
	return rpc_client_session(gfc->client);
}

struct rpc_client *gfc_rpc(struct gfc *gfc)
{
	return gfc->client;
}

void gfc_stats(struct gfc *gfc, struct gfc_stats *ret_stats)
{
	struct gfc_cache_stats cache = {0};

	if (gfc->cache)
		gfc_cache_stats(gfc->cache, &cache);
	*ret_stats = (struct gfc_stats){
		.calls = atomic_load(&gfc->calls),
		.cache_hits = cache.hits,
		.cache_count = cache.count,
		.replayed = gfc_replay_replayed(&gfc->replay),
		.resumed = atomic_load(&gfc->resumed),
		.forgotten = atomic_load(&gfc->forgotten),
		.unsynced = gfc_replay_count(&gfc->replay),
	};
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	ret_stats->locks = gfc->locks.count;
	ret_stats->lock_waits = gfc->locks.wait_count;
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}
