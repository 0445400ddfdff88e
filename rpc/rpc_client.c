#include "rpc/rpc_client.h"
#include "common/gx_secret.h"
#include "rpc/rpc_status.h"

#define CONNECTIONS_MAX 64u
#define BACKOFF_MIN_NS (10 * GX_NSEC_PER_MSEC)
#define BACKOFF_MAX_NS GX_NSEC_PER_SEC

struct pooled {
	struct rpc_chan *chan;
	unsigned users;
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

	struct gx_mutex lock; /* all below */
	bool connecting;      /* one thread connects at a time, and the others wait their time */
	struct gx_cond connected;
	struct pooled pool[CONNECTIONS_MAX];
	unsigned connections_max;
	uint64_t session;
	uint64_t trace;
	/* Mutations: numbers below `lowest` are over, done[] marks those above it. */
	uint64_t next_seq, lowest;
	bool done[GX_REPLAY_PER_SESSION_MAX];
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
	client->next_seq = client->lowest = 1;
	memcpy(client->key, options->key, RPC_KEY_BYTES);
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
	*ret_client = client;
	return 0;

fail_connected:
	gx_env_cond_fini(client->env, &client->connected);
fail_lock:
	gx_env_mutex_fini(client->env, &client->lock);
fail:
	rpc_tls_ctx_free(client->tls);
	gx_wipe(client->key, sizeof(client->key));
	free(client);
	return r;
}

void rpc_client_free(struct rpc_client *client)
{
	if (!client)
		return;
	for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
		gx_assert(client->pool[i].users == 0);
		rpc_chan_close(client->pool[i].chan);
	}
	gx_env_cond_fini(client->env, &client->seq_free);
	gx_env_cond_fini(client->env, &client->connected);
	gx_env_mutex_fini(client->env, &client->lock);
	rpc_tls_ctx_free(client->tls);
	gx_wipe(client->key, sizeof(client->key));
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

/* Opens a connection that belongs to our session. Between connect_begin() and _end(). */
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
	struct rpc_chan_info info;
	struct rpc_chan *chan;
	int r;

	r = rpc_chan_open(&options, &chan);
	if (r < 0)
		return r;
	rpc_chan_info(chan, &info);
	gx_env_mutex_lock(client->env, &client->lock);
	client->session = info.session;
	gx_env_mutex_unlock(client->env, &client->lock);
	*ret_chan = chan;
	return 0;
}

/* Under the lock. Closes connections nobody uses that are of no more use. */
static void drop_failed(struct rpc_client *client)
{
	for (unsigned i = 0; i < client->connections_max; i++) {
		struct pooled *p = &client->pool[i];

		if (p->chan && p->users == 0 && !rpc_chan_usable(p->chan)) {
			rpc_chan_close(p->chan);
			p->chan = NULL;
		}
	}
}

/* Under the lock: an idle connection; or, if `busy_too`, the one with the fewest users. */
static struct pooled *pick(struct rpc_client *client, bool busy_too)
{
	struct pooled *best = NULL;

	for (unsigned i = 0; i < client->connections_max; i++) {
		struct pooled *p = &client->pool[i];

		if (!p->chan || (p->users > 0 && !busy_too) || !rpc_chan_usable(p->chan))
			continue;
		if (p->users == 0)
			return p;
		if (!best || p->users < best->users)
			best = p;
	}
	return best;
}

/* Under the lock: a place for one more connection, or NULL. */
static struct pooled *vacancy(struct rpc_client *client)
{
	for (unsigned i = 0; i < client->connections_max; i++)
		if (!client->pool[i].chan)
			return &client->pool[i];
	return NULL;
}

/* A connection for one more call; if there is none, whether one may be opened. */
static struct rpc_chan *take(struct rpc_client *client, bool *ret_may_open)
{
	struct rpc_chan *chan = NULL;
	struct pooled *p;

	gx_env_mutex_lock(client->env, &client->lock);
	p = pick(client, false);
	if (!p) {
		drop_failed(client);
		*ret_may_open = vacancy(client) != NULL;
		if (!*ret_may_open)
			p = pick(client, true);
	}
	if (p) {
		p->users++;
		chan = p->chan;
	}
	gx_env_mutex_unlock(client->env, &client->lock);
	return chan;
}

int rpc_client_borrow(struct rpc_client *client, int64_t deadline_ns, struct gx_buf *errors,
		      struct rpc_chan **ret_chan)
{
	bool may_open = false;
	struct rpc_chan *chan = take(client, &may_open);
	struct pooled *p;
	int r;

	if (chan) {
		*ret_chan = chan;
		return 0;
	}
	r = connect_begin(client, deadline_ns);
	if (r < 0)
		return r;
	/* While we waited another thread may have opened or returned one. */
	chan = take(client, &may_open);
	if (!chan && !may_open)
		r = -EAGAIN; /* all places are taken by connections that have failed */
	if (!chan && r == 0)
		r = open_chan(client, RPC_CHANNEL_CALLS, deadline_ns, errors, &chan);
	else if (chan)
		r = 1;
	if (r == 0) {
		gx_env_mutex_lock(client->env, &client->lock);
		/* Only who connects fills places, so the vacancy is still there. */
		p = vacancy(client);
		gx_assert(p);
		*p = (struct pooled){chan, 1};
		gx_env_mutex_unlock(client->env, &client->lock);
	}
	connect_end(client);
	if (r < 0)
		return r;
	*ret_chan = chan;
	return 0;
}

void rpc_client_return(struct rpc_client *client, struct rpc_chan *chan)
{
	gx_env_mutex_lock(client->env, &client->lock);
	for (unsigned i = 0; i < client->connections_max; i++) {
		struct pooled *p = &client->pool[i];

		if (p->chan != chan)
			continue;
		gx_assert(p->users > 0);
		p->users--;
		if (p->users == 0 && !rpc_chan_usable(chan)) {
			rpc_chan_close(chan);
			p->chan = NULL;
		}
		break;
	}
	gx_env_mutex_unlock(client->env, &client->lock);
}

int rpc_client_open_push(struct rpc_client *client, int64_t deadline_ns, struct gx_buf *errors,
			 struct rpc_chan **ret_chan)
{
	int r;

	r = connect_begin(client, deadline_ns);
	if (r < 0)
		return r;
	r = open_chan(client, RPC_CHANNEL_PUSH, deadline_ns, errors, ret_chan);
	connect_end(client);
	return r;
}

/* -- sequence numbers ------------------------------------------------------------------------ */

/* The next number; waits while too many are outstanding. */
static int seq_take(struct rpc_client *client, int64_t deadline_ns, uint64_t *ret_seq)
{
	int r = 0;

	gx_env_mutex_lock(client->env, &client->lock);
	while (r == 0 && client->next_seq - client->lowest >= GX_REPLAY_PER_SESSION_MAX)
		r = gx_env_cond_wait(client->env, &client->seq_free, &client->lock, deadline_ns);
	if (r == 0) {
		*ret_seq = client->next_seq++;
		client->done[*ret_seq % GX_REPLAY_PER_SESSION_MAX] = false;
	}
	gx_env_mutex_unlock(client->env, &client->lock);
	return r;
}

/* Nobody will ask for the result of this number again. */
static void seq_end(struct rpc_client *client, uint64_t seq)
{
	gx_env_mutex_lock(client->env, &client->lock);
	client->done[seq % GX_REPLAY_PER_SESSION_MAX] = true;
	while (client->lowest < client->next_seq &&
	       client->done[client->lowest % GX_REPLAY_PER_SESSION_MAX])
		client->lowest++;
	gx_env_cond_broadcast(client->env, &client->seq_free);
	gx_env_mutex_unlock(client->env, &client->lock);
}

/* -- calls --------------------------------------------------------------------------------------
 */

/* One call on its way, over all its tries. */
struct attempt {
	struct rpc_request request;
	bool fail_fast;
	struct gx_buf *errors;
	bool maybe_done;  /* an earlier try may have reached the server */
	bool answered;    /* the server has decided */
	bool broken;      /* a connection broke under it before */
	uint64_t session; /* under which it was sent */
	int64_t pause_ns;
};

static void attempt_stamp(struct rpc_client *client, struct attempt *a)
{
	gx_env_mutex_lock(client->env, &client->lock);
	a->request.window = (uint32_t)(a->request.seq - (client->lowest - 1));
	gx_env_mutex_unlock(client->env, &client->lock);
}

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
		return true;
	default:
		return false;
	}
}

/* One try on one connection. *ret_sent: the server may have seen it. */
static int attempt_once(struct rpc_client *client, struct attempt *a, struct rpc_reply *reply,
			bool *ret_sent)
{
	struct rpc_chan_info info;
	struct rpc_chan *chan;
	uint64_t call;
	int r;

	*ret_sent = false;
	r = rpc_client_borrow(client, a->request.deadline_ns, a->errors, &chan);
	if (r < 0)
		return r;
	if (a->request.seq) {
		/*
		 * Only the session it was sent under can tell whether it was done; this connection
		 * may belong to another (rule N5).
		 */
		rpc_chan_info(chan, &info);
		if (a->maybe_done && info.session != a->session) {
			rpc_client_return(client, chan);
			return -ENOTRECOVERABLE;
		}
		a->session = info.session;
		attempt_stamp(client, a);
	}
	r = rpc_chan_submit(chan, &a->request, &call, ret_sent);
	if (r == 0)
		r = rpc_chan_wait(chan, call, reply);
	rpc_client_return(client, chan);
	return r;
}

static int attempt_all(struct rpc_client *client, struct attempt *a, struct rpc_reply *reply)
{
	bool again_ok = (a->request.method->flags & (RPC_F_IDEMPOTENT | RPC_F_MUTATES)) != 0;

	for (;;) {
		bool sent;
		int r = attempt_once(client, a, reply, &sent);

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

int rpc_client_call(struct rpc_client *client, const struct rpc_method *method,
		    const ProtobufCMessage *message, const struct rpc_call_options *options,
		    struct rpc_reply *ret_reply)
{
	static const struct rpc_call_options none;
	struct attempt a = {.pause_ns = BACKOFF_MIN_NS};
	int r;

	if (!options)
		options = &none;
	rpc_reply_init(ret_reply);
	a.fail_fast = options->fail_fast;
	a.errors = options->errors;
	a.request = (struct rpc_request){
		.method = method,
		.message = message,
		.payload_out = options->payload_out,
		.payload_out_count = options->payload_out_count,
		.payload_in = options->payload_in,
		.payload_in_bytes = options->payload_in_bytes,
		.deadline_ns = options->deadline_ns,
	};
	if (a.request.deadline_ns == 0)
		a.request.deadline_ns = gx_env_now_ns(client->env) + client->timeout_ns;
	if (method->flags & RPC_F_MUTATES) {
		r = seq_take(client, a.request.deadline_ns, &a.request.seq);
		if (r < 0)
			return r;
	}
	gx_env_mutex_lock(client->env, &client->lock);
	a.request.trace = client->trace_base + client->trace++;
	gx_env_mutex_unlock(client->env, &client->lock);
	r = attempt_all(client, &a, ret_reply);
	if (r < 0)
		explain(client, options->errors, r, ret_reply->detail);
	if (a.request.seq) {
		seq_end(client, a.request.seq);
		/* No server said so: after a try that may have arrived nobody knows. */
		if (r < 0 && a.maybe_done && !a.answered && r != -ETIMEDOUT)
			r = -ENOTRECOVERABLE;
	}
	return r;
}
