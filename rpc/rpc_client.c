#include "rpc/rpc_client.h"
#include "common/gx_secret.h"
#include "rpc/rpc_status.h"
#include <utlist.h>

#define CONNECTIONS_MAX 64u
#define BACKOFF_MIN_NS (10 * GX_NSEC_PER_MSEC)
#define BACKOFF_MAX_NS GX_NSEC_PER_SEC

/* A connection of the pool; nothing but `users` and `retired` changes while there are users. */
struct pooled {
	struct pooled *prev, *next; /* client->pool */
	struct rpc_chan *chan;
	unsigned users;
	uint64_t session; /* it belongs to */
	bool retired;     /* of no more use, and its place free for another; goes with its users */
};

struct rpc_client {
	struct gx_env *env;
	struct rpc_endpoint endpoint;
	struct rpc_tls_ctx *tls;
	char identity[GX_IDENTITY_MAX];
	unsigned char key[RPC_KEY_BYTES];
	const char *program;
	int64_t timeout_ns;
	uint64_t trace_base;
	rpc_resume_fn resume_fn;
	rpc_full_fn full_fn;
	rpc_answered_fn answered_fn;
	void *arg;
	unsigned mutations_max;

	struct gx_mutex lock; /* all below */
	bool connecting;      /* one thread connects at a time, and the others wait their time */
	struct gx_cond connected;
	struct pooled *pool;
	unsigned connections; /* in it and not retired */
	unsigned connections_max;
	bool draining; /* who connects waits on `drained` for the users of all connections to go */
	struct gx_cond drained;
	uint64_t session;
	bool has_met;  /* calls have met a server: */
	uint64_t boot; /* in this life */
	uint64_t trace;
	/* Mutations: numbers below `lowest` are over, done[] marks those above it. */
	uint64_t next_seq, lowest;
	bool *done; /* mutations_max */
	unsigned seq_waiters;
	uint64_t seq_events; /* releases and keeps so far */
	struct gx_cond seq_free;
};

/* -- life ------------------------------------------------------------------------------ */

static int client_init(struct rpc_client *client, const struct rpc_client_options *options)
{
	struct gx_env *env = options->env;
	int r;

	client->env = env;
	client->endpoint = options->endpoint;
	client->program = options->program;
	client->timeout_ns = options->timeout_ns;
	client->connections_max = GX_MIN(GX_MAX(options->connections_max, 1u), CONNECTIONS_MAX);
	client->next_seq = client->lowest = GX_MAX(options->first_seq, UINT64_C(1));
	client->mutations_max =
		GX_MIN(GX_MAX(options->mutations_max, 1u), GX_UNSYNCED_PER_SESSION_MAX);
	client->resume_fn = options->resume_fn;
	client->full_fn = options->full_fn;
	client->answered_fn = options->answered_fn;
	client->arg = options->arg;
	memcpy(client->key, options->key, RPC_KEY_BYTES);
	client->done = calloc(client->mutations_max, sizeof(*client->done));
	r = client->done ? 0 : -ENOMEM;
	if (r == 0)
		r = gx_strcpy(client->identity, sizeof(client->identity), options->identity);
	if (r == 0)
		r = gx_env_random(env, &client->trace_base, sizeof(client->trace_base));
	if (r == 0 && client->endpoint.tls)
		r = rpc_tls_ctx_new_client(env, client->identity, client->key, &client->tls);
	return r;
}

int rpc_client_new(const struct rpc_client_options *options, struct rpc_client **ret_client)
{
	struct rpc_client *client = calloc(1, sizeof(*client));
	int r;

	if (!client)
		return -ENOMEM;
	r = client_init(client, options);
	if (r < 0)
		goto fail;
	r = gx_env_mutex_init(client->env, &client->lock);
	if (r < 0)
		goto fail;
	r = gx_env_cond_init(client->env, &client->connected);
	if (r < 0)
		goto fail_lock;
	r = gx_env_cond_init(client->env, &client->seq_free);
	if (r < 0)
		goto fail_connected;
	r = gx_env_cond_init(client->env, &client->drained);
	if (r < 0)
		goto fail_seq_free;
	*ret_client = client;
	return 0;

fail_seq_free:
	gx_env_cond_fini(client->env, &client->seq_free);
fail_connected:
	gx_env_cond_fini(client->env, &client->connected);
fail_lock:
	gx_env_mutex_fini(client->env, &client->lock);
fail:
	rpc_tls_ctx_free(client->tls);
	gx_wipe(client->key, sizeof(client->key));
	free(client->done);
	free(client);
	return r;
}

/* Under the lock. */
static void pooled_retire(struct rpc_client *client, struct pooled *p)
{
	if (!p->retired)
		client->connections--;
	p->retired = true;
}

static void pooled_free(struct rpc_client *client, struct pooled *p)
{
	pooled_retire(client, p);
	DL_DELETE(client->pool, p);
	rpc_chan_close(p->chan);
	free(p);
}

void rpc_client_free(struct rpc_client *client)
{
	if (!client)
		return;
	while (client->pool) {
		gx_assert(client->pool->users == 0);
		pooled_free(client, client->pool);
	}
	gx_env_cond_fini(client->env, &client->drained);
	gx_env_cond_fini(client->env, &client->seq_free);
	gx_env_cond_fini(client->env, &client->connected);
	gx_env_mutex_fini(client->env, &client->lock);
	rpc_tls_ctx_free(client->tls);
	gx_wipe(client->key, sizeof(client->key));
	free(client->done);
	free(client);
}

uint64_t rpc_client_session(struct rpc_client *client)
{
	uint64_t session;

	gx_env_mutex_lock(client->env, &client->lock);
	session = client->session;
	gx_env_mutex_unlock(client->env, &client->lock);
	return session;
}

/* -- pool --------------------------------------------------------------------------------- */

/*
 * Becomes the one who connects. A thread whose time is up while another is still at it must not
 * wait for the other's deadline, so this is no mutex.
 */
static int connect_begin(struct rpc_client *client, int64_t deadline_ns)
{
	int r = 0;

	gx_env_mutex_lock(client->env, &client->lock);
	while (r == 0 && client->connecting)
		r = gx_env_cond_wait(client->env, &client->connected, &client->lock, deadline_ns);
	if (r == 0)
		client->connecting = true;
	else if (!client->connecting)
		gx_env_cond_signal(client->env, &client->connected); /* it was meant for us */
	gx_env_mutex_unlock(client->env, &client->lock);
	return r;
}

static void connect_end(struct rpc_client *client)
{
	gx_env_mutex_lock(client->env, &client->lock);
	client->connecting = false;
	gx_env_cond_signal(client->env, &client->connected);
	gx_env_mutex_unlock(client->env, &client->lock);
}

/* Opens a connection that asks for our session. Between connect_begin() and _end(). */
static int open_chan(struct rpc_client *client, enum rpc_channel channel, int64_t deadline_ns,
		     struct gx_buf *errors, struct rpc_chan **ret_chan)
{
	struct rpc_chan_options options = {
		.env = client->env,
		.endpoint = &client->endpoint,
		.tls = client->tls,
		.identity = client->identity,
		.key = client->key,
		.program = client->program,
		.session = rpc_client_session(client),
		.channel = channel,
		.deadline_ns = deadline_ns,
		.errors = errors,
	};

	return rpc_chan_open(&options, ret_chan);
}

/* Under the lock: is this the life of the server, and the session, that calls have met? */
static bool is_met(const struct rpc_client *client, const struct rpc_chan_info *info)
{
	return client->has_met && client->boot == info->boot && client->session == info->session;
}

static bool any_users(const struct rpc_client *client)
{
	const struct pooled *p;

	DL_FOREACH (client->pool, p) {
		if (p->users > 0)
			return true;
	}
	return false;
}

/*
 * The server has been restarted, or has lost our session: nothing good will come from the
 * connections there are. Ends their calls and waits until nobody uses them: a reply that has been
 * received must be dealt with before resume_fn tells the server what we know.
 */
static int drain_pool(struct rpc_client *client, int64_t deadline_ns)
{
	struct pooled *p;
	int r = 0;

	gx_env_mutex_lock(client->env, &client->lock);
	DL_FOREACH (client->pool, p)
		rpc_chan_abort(p->chan);
	client->draining = true;
	while (r == 0 && any_users(client))
		r = gx_env_cond_wait(client->env, &client->drained, &client->lock, deadline_ns);
	client->draining = false;
	gx_env_mutex_unlock(client->env, &client->lock);
	return r;
}

/* A connection for calls is new: if it leads to something new, that is settled first. */
static int greet(struct rpc_client *client, struct rpc_chan *chan, int64_t deadline_ns)
{
	struct rpc_chan_info info;
	bool first, met;
	int r = 0;

	rpc_chan_info(chan, &info);
	gx_env_mutex_lock(client->env, &client->lock);
	first = !client->has_met;
	met = is_met(client, &info);
	gx_env_mutex_unlock(client->env, &client->lock);
	if (!first && !met && client->resume_fn) {
		r = drain_pool(client, deadline_ns);
		if (r == 0)
			r = client->resume_fn(client->arg, chan, &info, deadline_ns);
	}
	if (r < 0)
		return r;
	gx_env_mutex_lock(client->env, &client->lock);
	client->session = info.session;
	client->boot = info.boot;
	client->has_met = true;
	gx_env_mutex_unlock(client->env, &client->lock);
	return 0;
}

/*
 * Under the lock. Connections of no more use make room, even if calls that were started on them are
 * still to be finished: their owner may be the very one who needs the room.
 */
static void drop_failed(struct rpc_client *client)
{
	struct pooled *p, *tmp;

	DL_FOREACH_SAFE (client->pool, p, tmp) {
		if (rpc_chan_usable(p->chan))
			continue;
		if (p->users == 0)
			pooled_free(client, p);
		else
			pooled_retire(client, p);
	}
}

/*
 * Calls that use the connection, or will. One that was given up counts as long as its reply has not
 * come: the next one would have to wait for it.
 */
static unsigned pooled_load(const struct pooled *p)
{
	return GX_MAX(p->users, rpc_chan_load(p->chan));
}

/* Under the lock: an idle connection; or, if `busy_too`, the one with the fewest calls. */
static struct pooled *pick(struct rpc_client *client, bool busy_too)
{
	struct pooled *best = NULL;
	unsigned best_load = 0;
	struct pooled *p;

	DL_FOREACH (client->pool, p) {
		unsigned load;

		if (p->retired || (p->users > 0 && !busy_too) || !rpc_chan_usable(p->chan))
			continue;
		load = pooled_load(p);
		if (load > 0 && !busy_too)
			continue;
		if (!best || load < best_load) {
			best = p;
			best_load = load;
		}
		if (best_load == 0)
			break;
	}
	return best;
}

/* A connection for one more call; if there is none, whether one may be opened. */
static struct pooled *take(struct rpc_client *client, bool *ret_may_open)
{
	struct pooled *p;

	gx_env_mutex_lock(client->env, &client->lock);
	p = pick(client, false);
	if (!p) {
		drop_failed(client);
		*ret_may_open = client->connections < client->connections_max;
		if (!*ret_may_open)
			p = pick(client, true);
	}
	if (p)
		p->users++;
	gx_env_mutex_unlock(client->env, &client->lock);
	return p;
}

/* Puts an open connection into the pool; only who connects does, so there is still room. */
static int pooled_add(struct rpc_client *client, struct rpc_chan *chan, unsigned users,
		      struct pooled **ret_pooled)
{
	struct pooled *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->chan = chan;
	p->users = users;
	gx_env_mutex_lock(client->env, &client->lock);
	p->session = client->session;
	DL_APPEND(client->pool, p);
	client->connections++;
	gx_env_mutex_unlock(client->env, &client->lock);
	*ret_pooled = p;
	return 0;
}

/* Opens one more for the pool. Between connect_begin() and _end(). */
static int open_pooled(struct rpc_client *client, int64_t deadline_ns, struct gx_buf *errors,
		       struct pooled **ret_pooled)
{
	struct rpc_chan *chan;
	int r;

	r = open_chan(client, RPC_CHANNEL_CALLS, deadline_ns, errors, &chan);
	if (r < 0)
		return r;
	r = greet(client, chan, deadline_ns);
	if (r == 0)
		r = pooled_add(client, chan, 1, ret_pooled);
	if (r < 0)
		rpc_chan_close(chan);
	return r;
}

static int pool_borrow(struct rpc_client *client, int64_t deadline_ns, struct gx_buf *errors,
		       struct pooled **ret_pooled)
{
	bool may_open = false;
	struct pooled *p = take(client, &may_open);
	int r;

	if (p) {
		*ret_pooled = p;
		return 0;
	}
	r = connect_begin(client, deadline_ns);
	if (r < 0)
		return r;
	/* While we waited another thread may have opened or returned one. */
	p = take(client, &may_open);
	if (!p && !may_open)
		r = -EAGAIN; /* those there were have failed just now */
	else if (!p)
		r = open_pooled(client, deadline_ns, errors, &p);
	connect_end(client);
	if (r < 0)
		return r;
	*ret_pooled = p;
	return 0;
}

static void pool_return(struct rpc_client *client, struct pooled *p)
{
	gx_env_mutex_lock(client->env, &client->lock);
	gx_assert(p->users > 0);
	p->users--;
	if (client->draining && p->users == 0)
		gx_env_cond_signal(client->env, &client->drained);
	if (p->users == 0 && (p->retired || !rpc_chan_usable(p->chan)))
		pooled_free(client, p);
	gx_env_mutex_unlock(client->env, &client->lock);
}

int rpc_client_borrow(struct rpc_client *client, int64_t deadline_ns, struct gx_buf *errors,
		      struct rpc_chan **ret_chan)
{
	struct pooled *p;
	int r = pool_borrow(client, deadline_ns, errors, &p);

	if (r == 0)
		*ret_chan = p->chan;
	return r;
}

void rpc_client_return(struct rpc_client *client, struct rpc_chan *chan)
{
	struct pooled *p;

	/* One in use stays in the pool. */
	gx_env_mutex_lock(client->env, &client->lock);
	DL_SEARCH_SCALAR(client->pool, p, chan, chan);
	gx_env_mutex_unlock(client->env, &client->lock);
	pool_return(client, p);
}

/*
 * A push channel alone would be the first to meet a restarted server, and to close it again is no
 * remedy: the server takes it for a channel that broke. So a new connection for calls goes first;
 * the pool takes it if there is room. Between connect_begin() and _end().
 */
static int scout(struct rpc_client *client, int64_t deadline_ns, struct gx_buf *errors)
{
	struct rpc_chan *chan;
	struct pooled *p;
	bool room;
	int r;

	r = open_chan(client, RPC_CHANNEL_CALLS, deadline_ns, errors, &chan);
	if (r < 0)
		return r;
	r = greet(client, chan, deadline_ns);
	if (r == 0) {
		gx_env_mutex_lock(client->env, &client->lock);
		drop_failed(client);
		room = client->connections < client->connections_max;
		gx_env_mutex_unlock(client->env, &client->lock);
		if (room && pooled_add(client, chan, 0, &p) == 0)
			chan = NULL;
	}
	rpc_chan_close(chan);
	return r;
}

static int open_push(struct rpc_client *client, int64_t deadline_ns, struct gx_buf *errors,
		     struct rpc_chan **ret_chan)
{
	struct rpc_chan_info info;
	struct rpc_chan *chan;
	int r;

	r = client->resume_fn ? scout(client, deadline_ns, errors) : 0;
	if (r == 0)
		r = open_chan(client, RPC_CHANNEL_PUSH, deadline_ns, errors, &chan);
	if (r < 0)
		return r;
	rpc_chan_info(chan, &info);
	gx_env_mutex_lock(client->env, &client->lock);
	if (!client->resume_fn)
		client->session = info.session;
	else if (!is_met(client, &info))
		r = -EAGAIN;
	gx_env_mutex_unlock(client->env, &client->lock);
	if (r == 0)
		*ret_chan = chan;
	else
		rpc_chan_close(chan);
	return r;
}

int rpc_client_open_push(struct rpc_client *client, int64_t deadline_ns, struct gx_buf *errors,
			 struct rpc_chan **ret_chan)
{
	int r;

	r = connect_begin(client, deadline_ns);
	if (r < 0)
		return r;
	r = open_push(client, deadline_ns, errors, ret_chan);
	connect_end(client);
	return r;
}

/* -- sequence numbers ------------------------------------------------------------------------ */

/* Under the lock, which is let go meanwhile: all numbers are taken. */
static int seq_wait(struct rpc_client *client, int64_t deadline_ns)
{
	uint64_t events = client->seq_events;
	int r = 0;

	client->seq_waiters++;
	if (client->full_fn) {
		gx_env_mutex_unlock(client->env, &client->lock);
		r = client->full_fn(client->arg, deadline_ns);
		gx_env_mutex_lock(client->env, &client->lock);
	}
	/* Nothing to free: the lowest number is unanswered, and whoever has it wakes us. */
	if (r == 0 && client->seq_events == events)
		r = gx_env_cond_wait(client->env, &client->seq_free, &client->lock, deadline_ns);
	client->seq_waiters--;
	return r;
}

/* The next number; waits while too many are outstanding. */
static int seq_take(struct rpc_client *client, int64_t deadline_ns, uint64_t *ret_seq)
{
	int r = 0;

	gx_env_mutex_lock(client->env, &client->lock);
	while (r == 0 && client->next_seq - client->lowest >= client->mutations_max)
		r = seq_wait(client, deadline_ns);
	if (r == 0) {
		*ret_seq = client->next_seq++;
		client->done[*ret_seq % client->mutations_max] = false;
	}
	gx_env_mutex_unlock(client->env, &client->lock);
	return r;
}

/* Under the lock: a number is free, or is kept so that full_fn has something to free now. */
static void seq_event(struct rpc_client *client)
{
	client->seq_events++;
	if (client->seq_waiters > 0)
		gx_env_cond_broadcast(client->env, &client->seq_free);
}

void rpc_client_release(struct rpc_client *client, uint64_t seq)
{
	gx_env_mutex_lock(client->env, &client->lock);
	client->done[seq % client->mutations_max] = true;
	while (client->lowest < client->next_seq &&
	       client->done[client->lowest % client->mutations_max])
		client->lowest++;
	seq_event(client);
	gx_env_mutex_unlock(client->env, &client->lock);
}

static void seq_kept(struct rpc_client *client)
{
	gx_env_mutex_lock(client->env, &client->lock);
	seq_event(client);
	gx_env_mutex_unlock(client->env, &client->lock);
}

uint64_t rpc_client_outstanding(struct rpc_client *client)
{
	uint64_t count;

	gx_env_mutex_lock(client->env, &client->lock);
	count = client->next_seq - client->lowest;
	gx_env_mutex_unlock(client->env, &client->lock);
	return count;
}

uint64_t rpc_client_next_seq(struct rpc_client *client)
{
	uint64_t seq;

	gx_env_mutex_lock(client->env, &client->lock);
	seq = client->next_seq;
	gx_env_mutex_unlock(client->env, &client->lock);
	return seq;
}

uint32_t rpc_client_window(struct rpc_client *client, uint64_t seq)
{
	uint32_t window;

	gx_env_mutex_lock(client->env, &client->lock);
	gx_assert(seq >= client->lowest && seq < client->next_seq);
	window = (uint32_t)(seq - (client->lowest - 1));
	gx_env_mutex_unlock(client->env, &client->lock);
	return window;
}

/* -- calls --------------------------------------------------------------------------------------
 */

/* One call on its way, over all its tries. */
struct attempt {
	struct rpc_request request;
	bool fail_fast;
	struct gx_buf *errors;
	rpc_keep_fn keep_fn;
	void *keep_arg;
	bool kept;        /* the number stays taken */
	bool maybe_done;  /* an earlier try may have reached the server */
	bool answered;    /* the server has decided */
	bool broken;      /* a connection broke under it before */
	uint64_t session; /* under which it was sent */
	int64_t pause_ns;
	/* This try. */
	bool begun; /* it has been sent, or `err` says why not */
	bool sent;  /* the server may have seen it */
	int err;
	struct pooled *pooled; /* the connection, while its reply is waited for */
	uint64_t call;         /* there */
	int64_t sent_ns;
};

/* Sleeps before the next try; false if the deadline would pass first. */
static bool attempt_pause(struct rpc_client *client, struct attempt *a, int64_t at_least_ns)
{
	int64_t now = gx_env_now_ns(client->env);
	int64_t pause = GX_MAX(a->pause_ns, at_least_ns);

	/* A little spread, so that many clients of a restarted server do not come at once. */
	pause += pause / 4 * (int64_t)(client->trace_base % 100) / 100;
	a->pause_ns = GX_MIN(a->pause_ns * 2, BACKOFF_MAX_NS);
	if (a->request.deadline_ns != GX_FOREVER && pause >= a->request.deadline_ns - now)
		return false;
	gx_env_sleep_until(client->env, now + pause);
	return true;
}

/* No retry helps against these. */
static bool is_final(int err)
{
	switch (err) {
	case -EKEYREJECTED:
	case -EPROTO:
	case -EPROTONOSUPPORT:
	case -EBADMSG:
	case -ENOMEM:
	case -E2BIG:
	case -EINVAL:
	case -EPERM:
	case -EACCES:
	case -ENOSYS:
	case -EAFNOSUPPORT:
	case -ETIMEDOUT:
	case -ECANCELED:
	case -EHOSTDOWN:
		return true;
	default:
		return false;
	}
}

/* A reply has come; the connection is still ours. */
static void attempt_answered(struct rpc_client *client, struct attempt *a, int64_t sent_ns,
			     const struct rpc_reply *reply)
{
	/* "Again" says nothing about the session; neither does what is asked without one. */
	if (client->answered_fn && (a->request.method->flags & RPC_F_SESSION) &&
	    !rpc_status_retryable(reply->status))
		client->answered_fn(client->arg, sent_ns);
	if (a->keep_fn && reply->status == RPC_STATUS_OK)
		a->kept = a->keep_fn(a->keep_arg, a->request.seq, reply);
}

/* A connection, no slower than the call's patience with a silent server. */
static int attempt_borrow(struct rpc_client *client, struct attempt *a, struct pooled **ret_pooled)
{
	int64_t deadline_ns = a->request.deadline_ns;
	bool patient = true;
	int r;

	if (a->request.silent_ns > 0) {
		int64_t now = gx_env_now_ns(client->env);

		patient = deadline_ns - now <= a->request.silent_ns;
		if (!patient)
			deadline_ns = now + a->request.silent_ns;
	}
	r = pool_borrow(client, deadline_ns, a->errors, ret_pooled);
	if (r == -EHOSTDOWN)
		r = -EHOSTUNREACH; /* the kernel's word, not ours */
	return r == -ETIMEDOUT && !patient ? -EHOSTDOWN : r;
}

/* The first half of a try: sends on some connection. */
static int attempt_send(struct rpc_client *client, struct attempt *a)
{
	struct pooled *p;
	int r;

	a->sent = false;
	r = attempt_borrow(client, a, &p);
	if (r < 0)
		return r;
	if (a->request.seq) {
		/*
		 * Only the session it was sent under can tell whether it was done; this connection
		 * may belong to another (rule N5).
		 */
		if (a->maybe_done && p->session != a->session) {
			pool_return(client, p);
			return -ENOTRECOVERABLE;
		}
		a->session = p->session;
		a->request.window = rpc_client_window(client, a->request.seq);
	}
	if (client->answered_fn)
		a->sent_ns = gx_env_now_ns(client->env);
	r = rpc_chan_submit(p->chan, &a->request, &a->call, &a->sent);
	if (r == 0)
		a->pooled = p;
	else
		pool_return(client, p);
	return r;
}

static void attempt_begin(struct rpc_client *client, struct attempt *a)
{
	a->err = attempt_send(client, a);
	a->begun = true;
}

/* The second half: waits for the reply. */
static int attempt_end(struct rpc_client *client, struct attempt *a, struct rpc_reply *reply)
{
	struct pooled *p = GX_TAKE(a->pooled);
	int r = a->err;

	a->begun = false;
	if (r == 0) {
		r = rpc_chan_wait(p->chan, a->call, reply);
		if (r == 0)
			attempt_answered(client, a, a->sent_ns, reply);
		pool_return(client, p);
	}
	/* Who aborts a connection of the pool has found the server restarted: drain_pool(). */
	return r == -ECANCELED ? -ECONNRESET : r;
}

static int attempt_all(struct rpc_client *client, struct attempt *a, struct rpc_reply *reply)
{
	bool again_ok = (a->request.method->flags & (RPC_F_IDEMPOTENT | RPC_F_MUTATES)) != 0;

	for (;;) {
		bool sent;
		int r;

		if (!a->begun)
			attempt_begin(client, a);
		sent = a->sent;
		r = attempt_end(client, a, reply);
		if (r == 0 && !rpc_status_retryable(reply->status)) {
			a->answered = true;
			return rpc_status_to_errno(reply->status);
		}
		if (r == 0) {
			/* The server did nothing, and says so. */
			r = rpc_status_to_errno(reply->status);
			if (!attempt_pause(client, a,
					   (int64_t)reply->retry_after_ms * GX_NSEC_PER_MSEC))
				return r;
			rpc_reply_fini(reply);
			rpc_reply_init(reply);
			continue;
		}
		a->maybe_done = a->maybe_done || sent;
		if (is_final(r) || r == -ENOTRECOVERABLE || (sent && !again_ok) ||
		    (a->fail_fast && !sent))
			return r;
		/*
		 * A connection that broke is retried at once, the first time; one that breaks
		 * again, or cannot be made, later.
		 */
		if ((!sent || a->broken) && !attempt_pause(client, a, 0))
			return r;
		a->broken = a->broken || sent;
		if (a->errors)
			gx_buf_clear(a->errors);
		/* It may hold half of a reply. */
		rpc_reply_fini(reply);
		rpc_reply_init(reply);
	}
}

/* One line for a person, unless whoever failed has left one already. */
static void explain(struct rpc_client *client, struct gx_buf *errors, int err, const char *detail)
{
	char where[GX_ADDR_TEXT_MAX];

	if (!errors || errors->bytes > 0)
		return;
	rpc_endpoint_format(&client->endpoint, where);
	/* A text that does not fit is no reason for another error. */
	GX_IGNORE(gx_buf_append_format(errors, "%s: %s\n", where,
				       detail[0] ? detail : gx_strerror(err)));
}

static int64_t deadline_after(struct rpc_client *client)
{
	int64_t now = gx_env_now_ns(client->env);

	return client->timeout_ns < GX_FOREVER - now ? now + client->timeout_ns : GX_FOREVER;
}

/* A call with its number. -ETIMEDOUT: none became free. */
static int attempt_init(struct rpc_client *client, struct attempt *a,
			const struct rpc_method *method, const ProtobufCMessage *message,
			const struct rpc_call_options *options)
{
	static const struct rpc_call_options none;

	if (!options)
		options = &none;
	*a = (struct attempt){.pause_ns = BACKOFF_MIN_NS};
	a->fail_fast = options->fail_fast;
	a->errors = options->errors;
	a->request = (struct rpc_request){
		.method = method,
		.message = message,
		.payload_out = options->payload_out,
		.payload_out_count = options->payload_out_count,
		.payload_file = options->payload_file,
		.payload_in = options->payload_in,
		.payload_in_bytes = options->payload_in_bytes,
		.deadline_ns = options->deadline_ns,
		.silent_ns = options->silent_ns,
	};
	if (a->request.deadline_ns == 0)
		a->request.deadline_ns = deadline_after(client);
	if (method->flags & RPC_F_MUTATES) {
		int r = seq_take(client, a->request.deadline_ns, &a->request.seq);

		if (r < 0)
			return r;
		a->keep_fn = options->keep_fn;
		a->keep_arg = options->keep_arg;
	}
	gx_env_mutex_lock(client->env, &client->lock);
	a->request.trace = client->trace_base + client->trace++;
	gx_env_mutex_unlock(client->env, &client->lock);
	return 0;
}

/* All tries, from wherever it is, and what follows from their result. */
static int attempt_finish(struct rpc_client *client, struct attempt *a, struct rpc_reply *reply)
{
	int r = attempt_all(client, a, reply);

	if (r < 0)
		explain(client, a->errors, r, reply->detail);
	if (a->request.seq) {
		if (a->kept)
			seq_kept(client);
		else
			rpc_client_release(client, a->request.seq);
		/* No server said so: after a try that may have arrived nobody knows. */
		if (r < 0 && a->maybe_done && !a->answered && r != -ETIMEDOUT && r != -EHOSTDOWN)
			r = -ENOTRECOVERABLE;
	}
	return r;
}

int rpc_client_call(struct rpc_client *client, const struct rpc_method *method,
		    const ProtobufCMessage *message, const struct rpc_call_options *options,
		    struct rpc_reply *ret_reply)
{
	struct attempt a;
	int r;

	rpc_reply_init(ret_reply);
	r = attempt_init(client, &a, method, message, options);
	return r < 0 ? r : attempt_finish(client, &a, ret_reply);
}

/* -- calls in two halves -------------------------------------------------------------------- */

struct rpc_started {
	struct rpc_client *client;
	struct attempt attempt;
};

int rpc_client_start(struct rpc_client *client, const struct rpc_method *method,
		     const ProtobufCMessage *message, const struct rpc_call_options *options,
		     struct rpc_started **ret_started)
{
	struct rpc_started *started = malloc(sizeof(*started));
	int r;

	gx_assert(!client->resume_fn); /* it waits until no call is under way */
	if (!started)
		return -ENOMEM;
	started->client = client;
	r = attempt_init(client, &started->attempt, method, message, options);
	if (r < 0) {
		free(started);
		return r;
	}
	attempt_begin(client, &started->attempt);
	*ret_started = started;
	return 0;
}

int rpc_client_finish(struct rpc_started *started, struct rpc_reply *ret_reply)
{
	int r;

	rpc_reply_init(ret_reply);
	r = attempt_finish(started->client, &started->attempt, ret_reply);
	free(started);
	return r;
}

bool rpc_client_redirect(struct rpc_started *started, void *payload_in)
{
	struct attempt *a = &started->attempt;

	if (a->pooled && !rpc_chan_redirect(a->pooled->chan, a->call, payload_in))
		return false;
	a->request.payload_in = payload_in;
	return true;
}

bool rpc_client_started_sent(const struct rpc_started *started)
{
	return started->attempt.pooled != NULL;
}

bool rpc_client_started_done(struct rpc_started *started)
{
	const struct attempt *a = &started->attempt;

	return !a->pooled || rpc_chan_arrived(a->pooled->chan, a->call);
}

void rpc_client_cancel(struct rpc_started *started)
{
	struct attempt *a;

	if (!started)
		return;
	a = &started->attempt;
	if (a->pooled) {
		rpc_chan_cancel(a->pooled->chan, a->call);
		pool_return(started->client, a->pooled);
	}
	if (a->request.seq)
		rpc_client_release(started->client, a->request.seq);
	free(started);
}
