#define GX_LOG_COMPONENT "rpc.serve"
#include "rpc/rpc_serve.h"
#include "common/gx_hash.h"
#include "common/gx_log.h"
#include "rpc/rpc_listener.h"

#define SKIP_BYTES 65536u
/* A peer that takes this long to take a reply or finish a request is gone. */
#define STALL_NS (60 * GX_NSEC_PER_SEC)

struct serve_conn {
	struct serve_conn *prev, *next; /* serve->conns; under serve->lock */
	struct rpc_serve *serve;
	struct gx_thread thread;
	struct gx_task ended; /* posted by the thread as its last act */
	int fd;               /* until the stream owns it */
	bool tls;
	const char *transport;
	char remote[GX_ADDR_TEXT_MAX];

	/* The thread's own. */
	struct rpc_stream stream;
	bool stream_ready; /* under serve->lock: may be shut down from outside */
	bool busy;         /* under serve->lock: a request is being read or worked on */
	bool has_place;    /* under serve->lock: authenticated, or asked to make way already */
	uint64_t secret;
	struct rpc_handshake *handshake;
	struct rpc_peer peer;
	uint64_t session;
	uint32_t version;
	struct rpc_call call; /* one at a time */
	bool replied;         /* under reply_lock */
	int reply_err;
	struct gx_mutex reply_lock;
	struct gx_cond reply_cond;
	unsigned char *message; /* grows to the largest message seen */
	size_t message_size;
};

struct rpc_serve {
	struct gx_env *env;
	struct gx_loop *loop;
	struct rpc_dispatcher *dispatcher;
	struct rpc_sessions *sessions;
	struct rpc_handshake_server hello;
	struct rpc_listeners listeners;
	unsigned threads_max;
	int64_t handshake_ns;
	struct gx_mutex lock; /* conns, count, stopping, dispatcher->stats */
	struct serve_conn *conns;
	unsigned count;
	bool stopping;
	struct gx_task drain_begun;
	struct gx_timer drain_end;
	rpc_drained_fn drained;
	void *drained_arg;
};

/* -- replies ----------------------------------------------------------------------- */

static int conn_write(struct serve_conn *conn, const struct rpc_frame *frame, const void *message,
		      const void *payload)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	struct iovec iov[3];

	rpc_frame_encode(frame, message, conn->secret, header);
	iov[0] = (struct iovec){header, sizeof(header)};
	iov[1] = (struct iovec){(void *)message, frame->message_bytes};
	iov[2] = (struct iovec){(void *)payload, frame->payload_bytes};
	return rpc_stream_write_all(&conn->stream, iov, 3,
				    gx_env_now_ns(conn->serve->env) + STALL_NS);
}

/* May come from another thread when a handler deferred. */
static void call_reply(struct rpc_call *call, const struct rpc_frame *frame, const void *message)
{
	struct serve_conn *conn = call->conn;
	int r = conn_write(conn, frame, message, call->reply_payload);

	gx_env_mutex_lock(conn->serve->env, &conn->reply_lock);
	conn->replied = true;
	conn->reply_err = r;
	gx_env_cond_signal(conn->serve->env, &conn->reply_cond);
	gx_env_mutex_unlock(conn->serve->env, &conn->reply_lock);
}

static ssize_t call_read_payload(struct rpc_call *call, void *buf, size_t bytes)
{
	struct serve_conn *conn = call->conn;
	struct iovec iov = {buf, (size_t)GX_MIN((uint64_t)bytes, call->payload_left)};
	ssize_t n;

	if (iov.iov_len == 0)
		return 0;
	n = rpc_stream_readv(&conn->stream, &iov, 1, gx_env_now_ns(call->env) + STALL_NS);
	if (n == 0)
		n = -ECONNRESET;
	if (n > 0)
		call->payload_left -= (uint64_t)n;
	return n;
}

static const struct rpc_call_ops call_ops = {.reply = call_reply,
					     .read_payload = call_read_payload};

static int wait_replied(struct serve_conn *conn)
{
	int r;

	gx_env_mutex_lock(conn->serve->env, &conn->reply_lock);
	while (!conn->replied)
		gx_env_cond_wait(conn->serve->env, &conn->reply_cond, &conn->reply_lock,
				 GX_FOREVER);
	r = conn->reply_err;
	gx_env_mutex_unlock(conn->serve->env, &conn->reply_lock);
	return r;
}

/* -- requests ------------------------------------------------------------------------ */

static int skip_payload(struct serve_conn *conn)
{
	unsigned char space[SKIP_BYTES];

	while (conn->call.payload_left > 0) {
		ssize_t n = call_read_payload(&conn->call, space, sizeof(space));

		if (n < 0)
			return (int)n;
	}
	return 0;
}

static int refuse(struct serve_conn *conn, bool open, const char *reason)
{
	struct rpc_serve *serve = conn->serve;
	const char *identity = conn->peer.identity;

	if (!open)
		identity = conn->tls ? rpc_tls_identity(&conn->stream) : conn->handshake->claimed;
	gx_env_mutex_lock(serve->env, &serve->lock);
	if (open)
		serve->dispatcher->stats.garbage++;
	else
		serve->dispatcher->stats.refused++;
	gx_env_mutex_unlock(serve->env, &serve->lock);
	gx_log(WARNING, open ? "connection dropped: protocol broken" : "connection refused",
	       GX_KS("peer", conn->remote), GX_KS("transport", conn->transport),
	       GX_KS("identity", identity), GX_KS("reason", reason));
	return -EPROTO;
}

static int read_message(struct serve_conn *conn, size_t bytes, int64_t deadline_ns)
{
	if (bytes > conn->message_size) {
		unsigned char *bigger = realloc(conn->message, bytes);

		if (!bigger)
			return -ENOMEM;
		conn->message = bigger;
		conn->message_size = bytes;
	}
	return rpc_stream_read_all(&conn->stream, conn->message, bytes, deadline_ns);
}

static int run_call(struct serve_conn *conn, const struct rpc_frame *frame)
{
	struct rpc_call *call = &conn->call;
	int r;

	rpc_call_init(call, conn->serve->dispatcher, &call_ops, conn);
	call->peer = &conn->peer;
	call->session = conn->session;
	call->version = conn->version;
	call->transport = conn->transport;
	call->payload_left = frame->payload_bytes;
	conn->replied = false;
	r = rpc_dispatch_begin(call, frame, conn->message);
	if (r < 0)
		rpc_call_finish(call, r);
	else
		rpc_dispatch_run(call);
	r = wait_replied(conn);
	if (r == 0)
		r = skip_payload(conn);
	rpc_call_clear(call);
	return r;
}

/* From the first byte of a request to its reply: a drain leaves the connection alone meanwhile. */
static bool set_busy(struct serve_conn *conn, bool busy)
{
	struct rpc_serve *serve = conn->serve;
	bool stopping;

	gx_env_mutex_lock(serve->env, &serve->lock);
	conn->busy = busy;
	stopping = serve->stopping;
	gx_env_mutex_unlock(serve->env, &serve->lock);
	return stopping;
}

static int serve_one(struct serve_conn *conn)
{
	static const struct rpc_frame_limits limits = {
		.types = UINT32_C(1) << RPC_FRAME_REQUEST,
		.message_max = GX_MESSAGE_MAX,
		.payload_max = GX_PAYLOAD_MAX,
	};
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	struct rpc_frame frame;
	const char *reason = NULL;
	int r;

	r = rpc_stream_read_all(&conn->stream, header, sizeof(header), GX_FOREVER);
	if (r < 0)
		return r;
	set_busy(conn, true);
	reason = rpc_peer_expired(&conn->peer, conn->serve->env);
	if (reason) {
		gx_log(WARNING, "connection dropped", GX_KS("peer", conn->remote),
		       GX_KS("identity", conn->peer.identity), GX_KS("reason", reason));
		return -EKEYREJECTED;
	}
	r = rpc_frame_decode(header, &limits, &frame, &reason);
	if (r < 0)
		return refuse(conn, true, reason);
	r = read_message(conn, frame.message_bytes, gx_env_now_ns(conn->serve->env) + STALL_NS);
	if (r < 0)
		return r;
	r = rpc_frame_verify(header, conn->message, frame.message_bytes, conn->secret);
	if (r < 0)
		return refuse(conn, true, "frame check failed (tampered or out of sync)");
	r = run_call(conn, &frame);
	return set_busy(conn, false) && r == 0 ? -ESHUTDOWN : r;
}

/* -- handshake -------------------------------------------------------------------------- */

static int run_handshake(struct serve_conn *conn)
{
	struct rpc_serve *serve = conn->serve;
	int64_t deadline_ns = gx_env_now_ns(serve->env) + serve->handshake_ns;
	struct rpc_handshake hs;
	int r;

	if (conn->tls) {
		r = rpc_tls_start(&conn->stream, serve->listeners.tls);
		if (r == 0)
			r = rpc_stream_handshake(&conn->stream, deadline_ns);
		if (r < 0)
			return refuse(conn, false,
				      conn->stream.reason ? conn->stream.reason : gx_strerror(r));
	}
	rpc_handshake_init_server(&hs, serve->env, &serve->hello, conn->tls,
				  conn->tls ? rpc_tls_peer(&conn->stream) : NULL,
				  &conn->stream.local, &conn->stream.remote);
	conn->handshake = &hs;
	do {
		r = rpc_handshake_round(&hs, &conn->stream, deadline_ns);
	} while (r == 0);
	if (r == 1) {
		conn->peer = hs.peer;
		conn->secret = hs.secret;
		conn->version = hs.version;
		conn->session = hs.session;
		r = 0;
	} else {
		refuse(conn, false, hs.reason ? hs.reason : gx_strerror(r));
	}
	conn->handshake = NULL;
	rpc_handshake_fini(&hs);
	return r;
}

/* -- threads ------------------------------------------------------------------------------ */

static void conn_main(void *arg)
{
	struct serve_conn *conn = arg;
	struct rpc_serve *serve = conn->serve;
	bool stopping;
	int r;

	r = rpc_stream_init(&conn->stream, serve->env, conn->fd);
	if (r == 0) {
		gx_addr_format(&conn->stream.remote, conn->remote);
		gx_env_mutex_lock(serve->env, &serve->lock);
		conn->stream_ready = true;
		stopping = serve->stopping;
		gx_env_mutex_unlock(serve->env, &serve->lock);
		r = stopping ? -ESHUTDOWN : run_handshake(conn);
	}
	if (r == 0) {
		gx_env_mutex_lock(serve->env, &serve->lock);
		conn->has_place = true;
		gx_env_mutex_unlock(serve->env, &serve->lock);
		rpc_sessions_attach(serve->sessions, conn->session);
		while (r == 0)
			r = serve_one(conn);
		if (r == -EPROTO && conn->stream.reason) /* TLS met a changed record */
			refuse(conn, true, conn->stream.reason);
		rpc_sessions_detach(serve->sessions, conn->session);
	}
	gx_env_mutex_lock(serve->env, &serve->lock);
	conn->stream_ready = false;
	gx_env_mutex_unlock(serve->env, &serve->lock);
	rpc_stream_fini(&conn->stream);
	free(conn->message);
	gx_loop_post(serve->loop, &conn->ended);
}

static void conn_free(struct serve_conn *conn)
{
	struct rpc_serve *serve = conn->serve;

	gx_env_thread_join(serve->env, &conn->thread);
	gx_loop_unpost(serve->loop, &conn->ended);
	gx_env_mutex_lock(serve->env, &serve->lock);
	DL_DELETE(serve->conns, conn);
	serve->count--;
	serve->dispatcher->stats.connections--;
	gx_env_mutex_unlock(serve->env, &serve->lock);
	gx_env_cond_fini(serve->env, &conn->reply_cond);
	gx_env_mutex_fini(serve->env, &conn->reply_lock);
	free(conn);
}

static void check_drained(struct rpc_serve *serve)
{
	rpc_drained_fn fn = serve->drained;

	if (!fn || serve->conns)
		return;
	serve->drained = NULL;
	gx_timer_stop(&serve->drain_end);
	fn(serve->drained_arg);
}

static void on_ended(struct gx_task *task)
{
	struct serve_conn *conn = GX_CONTAINER_OF(task, struct serve_conn, ended);
	struct rpc_serve *serve = conn->serve;

	conn_free(conn);
	if (!serve->stopping)
		rpc_listeners_resume(&serve->listeners);
	else
		check_drained(serve);
}

static int conn_init(struct serve_conn *conn)
{
	struct gx_env *env = conn->serve->env;
	int r = gx_env_mutex_init(env, &conn->reply_lock);

	if (r < 0)
		return r;
	r = gx_env_cond_init(env, &conn->reply_cond);
	if (r < 0)
		gx_env_mutex_fini(env, &conn->reply_lock);
	return r;
}

static int on_accepted(void *arg, int fd, const struct rpc_endpoint *endpoint)
{
	struct rpc_serve *serve = arg;
	struct serve_conn *conn = calloc(1, sizeof(*conn));
	int r = conn ? 0 : -ENOMEM;

	if (r == 0) {
		conn->serve = serve;
		conn->fd = fd;
		conn->tls = endpoint->tls;
		conn->transport = rpc_endpoint_transport(endpoint);
		conn->ended.fn = on_ended;
		r = conn_init(conn);
	}
	if (r < 0) {
		free(conn);
		gx_env_close(serve->env, fd);
		return r;
	}
	gx_env_mutex_lock(serve->env, &serve->lock);
	DL_APPEND(serve->conns, conn);
	serve->count++;
	serve->dispatcher->stats.connections++;
	serve->dispatcher->stats.accepted++;
	r = gx_env_thread_start(serve->env, &conn->thread, "rpc-serve", conn_main, conn);
	if (r < 0) {
		DL_DELETE(serve->conns, conn);
		serve->count--;
		serve->dispatcher->stats.connections--;
	}
	gx_env_mutex_unlock(serve->env, &serve->lock);
	if (r < 0) {
		gx_env_cond_fini(serve->env, &conn->reply_cond);
		gx_env_mutex_fini(serve->env, &conn->reply_lock);
		gx_env_close(serve->env, fd);
		free(conn);
	}
	return r;
}

/* The oldest connection that has not authenticated is ended: strangers cannot take all threads. */
static void make_room(struct rpc_serve *serve)
{
	struct serve_conn *conn;

	gx_env_mutex_lock(serve->env, &serve->lock);
	DL_FOREACH (serve->conns, conn) {
		if (conn->stream_ready && !conn->has_place) {
			conn->has_place = true;
			gx_env_shutdown(serve->env, conn->stream.fd);
			break;
		}
	}
	gx_env_mutex_unlock(serve->env, &serve->lock);
}

static bool has_room(void *arg)
{
	struct rpc_serve *serve = arg;

	if (serve->count < serve->threads_max)
		return true;
	/* Its thread ends soon, and with it the pause of the listeners. */
	make_room(serve);
	return false;
}

/* So that a server without connections is drained, too, but not before rpc_serve_drain() returns.
 */
static void on_drain_begun(struct gx_task *task)
{
	check_drained(GX_CONTAINER_OF(task, struct rpc_serve, drain_begun));
}

/* -- life ------------------------------------------------------------------------------------ */

int rpc_serve_new(const struct rpc_serve_options *options, struct rpc_serve **ret_serve)
{
	struct rpc_serve *serve = calloc(1, sizeof(*serve));
	int r;

	if (!serve)
		return -ENOMEM;
	serve->loop = options->loop;
	serve->env = gx_loop_env(options->loop);
	serve->dispatcher = options->dispatcher;
	serve->listeners = (struct rpc_listeners){
		.loop = options->loop,
		.auth = options->auth,
		.has_room = has_room,
		.accepted = on_accepted,
		.arg = serve,
	};
	serve->sessions = options->sessions;
	serve->threads_max = options->threads_max;
	serve->handshake_ns = options->handshake_ns;
	serve->hello = (struct rpc_handshake_server){
		.auth = options->auth,
		.name = options->dispatcher->server_name,
		.boot = options->boot,
		.session = rpc_sessions_open,
		.session_arg = options->sessions,
	};
	r = gx_env_mutex_init(serve->env, &serve->lock);
	if (r < 0) {
		free(serve);
		return r;
	}
	serve->dispatcher->stats_lock = &serve->lock;
	serve->drain_begun.fn = on_drain_begun;
	*ret_serve = serve;
	return 0;
}

int rpc_serve_listen(struct rpc_serve *serve, const struct rpc_endpoint *endpoint,
		     struct rpc_endpoint *ret_bound)
{
	return rpc_listeners_add(&serve->listeners, endpoint, ret_bound);
}

/* Ends connections; those in the middle of a request only if `all`. Their threads notice. */
static void end_connections(struct rpc_serve *serve, bool all)
{
	struct serve_conn *conn;

	gx_env_mutex_lock(serve->env, &serve->lock);
	serve->stopping = true;
	DL_FOREACH (serve->conns, conn) {
		if (conn->stream_ready && (all || !conn->busy))
			gx_env_shutdown(serve->env, conn->stream.fd);
	}
	gx_env_mutex_unlock(serve->env, &serve->lock);
}

static void on_drain_end(struct gx_timer *timer)
{
	end_connections(GX_CONTAINER_OF(timer, struct rpc_serve, drain_end), true);
}

void rpc_serve_drain(struct rpc_serve *serve, int64_t deadline_ns, rpc_drained_fn fn, void *arg)
{
	bool timed;

	gx_assert(!serve->stopping);
	rpc_listeners_close(&serve->listeners);
	serve->drained = fn;
	serve->drained_arg = arg;
	/* Without a timer (no memory) nobody is waited for. */
	timed = gx_timer_start(serve->loop, &serve->drain_end, deadline_ns, on_drain_end) == 0;
	end_connections(serve, !timed);
	gx_loop_post(serve->loop, &serve->drain_begun);
}

void rpc_serve_free(struct rpc_serve *serve)
{
	if (!serve)
		return;
	rpc_listeners_close(&serve->listeners);
	gx_timer_stop(&serve->drain_end);
	gx_loop_unpost(serve->loop, &serve->drain_begun);
	end_connections(serve, true);
	while (serve->conns)
		conn_free(serve->conns);
	rpc_listeners_fini(&serve->listeners);
	serve->dispatcher->stats_lock = NULL;
	gx_env_mutex_fini(serve->env, &serve->lock);
	free(serve);
}
