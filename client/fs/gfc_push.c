/*
 * The background thread: keeps a push channel open, forgets what metad says, renews the lease.
 * Without a cache there is no channel; it then only says now and then that we are alive, so that
 * the session does not end while files are open, and so that a restarted metad hears of us in time.
 *
 * metad answers nothing to a session whose push channel broke, on no connection, until it has a
 * new one (with an empty cache behind it) or its leases are over by the clock. So every answer
 * renews trust in the cache, and one that comes too late ends it (gfc_cache.h); a new channel is
 * opened then, because metad may have closed the old one unnoticed.
 */
#define GX_LOG_COMPONENT "gfs.push"
#include "client/fs/gfc_impl.h"
#include "common/gx_broken.h"
#include "common/gx_log.h"

/* Without a cache. metad waits 10 s for its clients after a restart, and keeps a session for 60. */
#define KEEP_NS (2 * GX_NSEC_PER_SEC)
/* Quiet for this long: renew. Three tries fit into GFC_TRUST_NS. */
#define RENEW_NS (500 * GX_NSEC_PER_MSEC)
/* A renewal that takes longer does not help; and pushes wait meanwhile. */
#define RENEW_TIMEOUT_NS GX_NSEC_PER_SEC
/* Who needs the channel waits so long for it. */
#define WAIT_NS GX_NSEC_PER_SEC
/* To reach a metad that is away; gfc_push_stop() may have to wait for it. */
#define OPEN_TIMEOUT_NS (5 * GX_NSEC_PER_SEC)
#define PAUSE_MIN_NS (20 * GX_NSEC_PER_MSEC)
#define PAUSE_MAX_NS GX_NSEC_PER_SEC

/* Under the lock: what there is shall end; the thread will see it. */
static void abort_push(struct gfc *gfc)
{
	if (gfc->push)
		rpc_chan_abort(gfc->push);
}

void gfc_push_answered(void *arg, int64_t sent_ns)
{
	struct gfc *gfc = arg;

	if (gfc_cache_answered(gfc->cache, sent_ns))
		return;
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	abort_push(gfc);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

void gfc_push_reset(struct gfc *gfc)
{
	if (!gfc->cache)
		return;
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	gfc->push_resets++;
	gfc_cache_stop(gfc->cache);
	abort_push(gfc);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	gfc_data_reset(gfc);
}

/*
 * Around all that connects or calls. False: the end has begun; a call that was still under way
 * when the session ends would open another.
 */
static bool busy_begin(struct gfc *gfc)
{
	bool may;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	may = !gfc->stopping;
	gfc->busy = may;
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	return may;
}

static void busy_end(struct gfc *gfc)
{
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	gfc->busy = false;
	gx_env_cond_broadcast(gfc->env, &gfc->wake);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

static void pause_for(struct gfc *gfc, int64_t ns)
{
	int64_t deadline_ns = gx_env_now_ns(gfc->env) + ns;
	int r = 0;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	while (r == 0 && !gfc->stopping)
		r = gx_env_cond_wait(gfc->env, &gfc->wake, &gfc->lock, deadline_ns);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

static int open_push(struct gfc *gfc)
{
	int64_t deadline_ns = gx_env_now_ns(gfc->env) + OPEN_TIMEOUT_NS;
	struct rpc_chan *chan;
	uint64_t resets;
	int r;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	resets = gfc->push_resets;
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	r = rpc_client_open_push(gfc->client, deadline_ns, NULL, &chan);
	if (r < 0)
		return r;
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	gfc->push = chan;
	/* A reset meant this channel, too, if it came while it was being opened. */
	if (resets == gfc->push_resets)
		gfc_cache_start(gfc->cache);
	if (gfc->stopped || resets != gfc->push_resets)
		abort_push(gfc);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	return 0;
}

static void close_push(struct gfc *gfc)
{
	struct rpc_chan *chan;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	chan = GX_TAKE(gfc->push);
	gfc_cache_stop(gfc->cache);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	gfc_data_reset(gfc);
	rpc_chan_close(chan);
}

static int obey(struct gfc *gfc, const struct rpc_push_message *push)
{
	const PbMeta__ForgetRequest *forget = (const PbMeta__ForgetRequest *)push->message;

	if (push->method->id != RPC_FORGET)
		return -EPROTO;
	if (forget->all)
		gfc_cache_forget_all(gfc->cache);
	for (size_t i = 0; i < forget->n_items && !GX_BROKEN(111); i++)
		gfc_cache_forget(gfc->cache, forget->items[i]->ino, forget->items[i]->what,
				 forget->items[i]->name);
	gfc_tell(gfc, forget);
	gfc_data_obey(gfc, forget);
	atomic_fetch_add(&gfc->forgotten, 1);
	return rpc_chan_ack(gfc->push, push->seq, gx_env_now_ns(gfc->env) + GFC_TRUST_NS);
}

/* -ECONNRESET: metad answers, but the cache went off meanwhile. */
static int renew_lease(struct gfc *gfc)
{
	int64_t begin_ns = gx_env_now_ns(gfc->env);
	int r = gfc_renew(gfc, begin_ns + RENEW_TIMEOUT_NS);

	if (r == 0 && gfc_cache_answered_ns(gfc->cache) < begin_ns)
		r = -ECONNRESET;
	return r;
}

static int next_push(struct gfc *gfc, int64_t deadline_ns, struct rpc_push_message *push)
{
	int r = rpc_chan_receive(gfc->push, deadline_ns, push);

	if (r == -ETIMEDOUT)
		return 0;
	return r < 0 ? r : obey(gfc, push);
}

/* Until the channel breaks or the lease cannot be renewed. */
static int listen_push(struct gfc *gfc)
{
	struct rpc_push_message push;
	int r = 0;

	rpc_push_message_init(&push);
	while (r == 0) {
		int64_t due_ns = gfc_cache_answered_ns(gfc->cache) + RENEW_NS;

		if (gx_env_now_ns(gfc->env) < due_ns) {
			r = next_push(gfc, due_ns, &push);
		} else if (busy_begin(gfc)) {
			r = renew_lease(gfc);
			busy_end(gfc);
		} else {
			r = next_push(gfc, GX_FOREVER, &push);
		}
	}
	rpc_push_message_fini(&push);
	return r;
}

static void push_main(void *arg)
{
	struct gfc *gfc = arg;
	int64_t pause_ns = PAUSE_MIN_NS;

	while (busy_begin(gfc)) {
		int64_t begin_ns;
		int r = open_push(gfc);

		busy_end(gfc);
		if (r < 0) {
			pause_for(gfc, pause_ns);
			pause_ns = GX_MIN(pause_ns * 2, PAUSE_MAX_NS);
			continue;
		}
		begin_ns = gx_env_now_ns(gfc->env);
		r = listen_push(gfc);
		close_push(gfc);
		gx_log(DEBUG, "push channel ended", GX_KE(r));
		/* One that breaks at once each time must not make this a busy loop. */
		if (gx_env_now_ns(gfc->env) - begin_ns > PAUSE_MAX_NS)
			pause_ns = PAUSE_MIN_NS;
		else
			pause_for(gfc, pause_ns);
	}
}

static void keep_main(void *arg)
{
	struct gfc *gfc = arg;

	for (;;) {
		pause_for(gfc, KEEP_NS);
		if (!busy_begin(gfc))
			return;
		/* If it fails, metad is away: the next one brings what it has to know. */
		GX_IGNORE(gfc_renew(gfc, gx_env_now_ns(gfc->env) + KEEP_NS));
		busy_end(gfc);
	}
}

int gfc_push_start(struct gfc *gfc)
{
	int r = gx_env_thread_start(gfc->env, &gfc->thread, "gfs-push",
				    gfc->cache ? push_main : keep_main, gfc);

	if (r < 0)
		return gfc_fail(r, "cannot start a thread: %s", gx_strerror(r));
	gfc->has_thread = true;
	return 0;
}

void gfc_push_wait(struct gfc *gfc)
{
	int64_t deadline_ns = gx_env_now_ns(gfc->env) + WAIT_NS;
	int r = 0;

	if (!gfc->cache)
		return;
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	while (r == 0 && gfc->has_thread && !gfc->push && !gfc->stopping)
		r = gx_env_cond_wait(gfc->env, &gfc->wake, &gfc->lock, deadline_ns);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

void gfc_push_last(struct gfc *gfc)
{
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	gfc->stopping = true;
	gx_env_cond_broadcast(gfc->env, &gfc->wake);
	while (gfc->busy) /* its calls have deadlines */
		GX_IGNORE(gx_env_cond_wait(gfc->env, &gfc->wake, &gfc->lock, GX_FOREVER));
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

void gfc_push_stop(struct gfc *gfc)
{
	if (!gfc->has_thread)
		return;
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	gfc->stopped = true;
	abort_push(gfc);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	gx_env_thread_join(gfc->env, &gfc->thread);
	gfc->has_thread = false;
}
