/*
 * One connection of the threaded server.
 *
 * Its thread reads a request, runs the handler, sends what replies there are, reads the next. A
 * handler that defers leaves its call in conn->calls; whoever finishes it, in whatever thread,
 * makes a reply of it, and whoever sends the last of that puts the call object away. So the thread
 * of the connection never looks at a call once it has run, and replies come in any order, each
 * whole.
 */
#define GX_LOG_COMPONENT "rpc.serve"
#include "common/gx_hash.h"
#include "common/gx_log.h"
#include "rpc/rpc_serve_impl.h"

#define SKIP_BYTES 65536u
/* Calls in work on one connection; the next request waits. */
#define CALLS_MAX 65u /* 64 deferred and the one that is being handled */
/* A message buffer larger than this is not kept for the next request. */
#define MESSAGE_KEEP_BYTES 16384u

int serve_conn_init(struct serve_conn *conn, struct rpc_serve *serve)
{
	int r = gx_env_mutex_init(serve->env, &conn->lock);

	if (r < 0)
		return r;
	r = gx_env_cond_init(serve->env, &conn->changed);
	if (r < 0)
		gx_env_mutex_fini(serve->env, &conn->lock);
	conn->serve = serve;
	conn->spare = &conn->first;
	return r;
}

void serve_conn_fini(struct serve_conn *conn)
{
	gx_assert(!conn->calls);
	if (conn->spare != &conn->first)
		free(conn->spare);
	gx_env_cond_fini(conn->serve->env, &conn->changed);
	gx_env_mutex_fini(conn->serve->env, &conn->lock);
}

static void lock(struct serve_conn *conn)
{
	gx_env_mutex_lock(conn->serve->env, &conn->lock);
}

static void unlock(struct serve_conn *conn)
{
	gx_env_mutex_unlock(conn->serve->env, &conn->lock);
}

/* -- calls -------------------------------------------------------------------------- */

/* An object for the next request; waits for one while too many are in work. */
static struct serve_call *call_take(struct serve_conn *conn)
{
	struct serve_call *sc = NULL;

	lock(conn);
	for (;;) {
		if (conn->call_count < CALLS_MAX) {
			sc = conn->spare ? GX_TAKE(conn->spare) : malloc(sizeof(*sc));
			if (sc)
				break;
		}
		/* One is in use, else there were a spare one. */
		serve_conn_wait(conn);
	}
	conn->call_count++;
	unlock(conn);
	return sc;
}

/* From now on the watcher speaks for it. */
static void call_add(struct serve_conn *conn, struct serve_call *sc)
{
	lock(conn);
	sc->progress_ns = sc->call.start_ns + SERVE_PROGRESS_NS;
	DL_APPEND(conn->calls, sc);
	unlock(conn);
}

/* -- requests ------------------------------------------------------------------------ */

static ssize_t call_read_payload(struct rpc_call *call, void *buf, size_t bytes)
{
	struct serve_conn *conn = call->conn;
	struct iovec iov = {buf, (size_t)GX_MIN((uint64_t)bytes, call->payload_left)};
	ssize_t n;

	/* Once it is deferred the stream belongs to the next request. */
	gx_assert(conn->current == call);
	if (iov.iov_len == 0)
		return 0;
	n = rpc_stream_readv(&conn->stream, &iov, 1, gx_env_now_ns(call->env) + SERVE_STALL_NS);
	if (n == 0)
		n = -ECONNRESET;
	if (n > 0) {
		call->payload_left -= (uint64_t)n;
		conn->payload_left -= (uint64_t)n;
	}
	return n;
}

static const struct rpc_call_ops call_ops = {.reply = serve_call_reply,
					     .read_payload = call_read_payload};

static int skip_payload(struct serve_conn *conn)
{
	unsigned char space[SKIP_BYTES];

	while (conn->payload_left > 0) {
		struct iovec iov = {space,
				    (size_t)GX_MIN((uint64_t)sizeof(space), conn->payload_left)};
		ssize_t n = rpc_stream_readv(&conn->stream, &iov, 1,
					     gx_env_now_ns(conn->serve->env) + SERVE_STALL_NS);

		if (n <= 0)
			return n < 0 ? (int)n : -ECONNRESET;
		conn->payload_left -= (uint64_t)n;
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

static void drop_large_message(struct serve_conn *conn)
{
	if (conn->message_size <= MESSAGE_KEEP_BYTES)
		return;
	free(conn->message);
	conn->message = NULL;
	conn->message_size = 0;
}

static int run_call(struct serve_conn *conn, const struct rpc_frame *frame)
{
	struct serve_call *sc = call_take(conn);
	struct rpc_call *call = &sc->call;
	int r;

	rpc_call_init(call, conn->serve->dispatcher, &call_ops, conn);
	call->peer = &conn->peer;
	call->session = conn->session;
	call->version = conn->version;
	call->transport = conn->transport;
	call->passes_descriptors = conn->stream.passes_fds;
	call->payload_left = frame->payload_bytes;
	conn->payload_left = frame->payload_bytes;
	conn->current = call;
	r = rpc_dispatch_begin(call, frame, conn->message);
	drop_large_message(conn);
	call_add(conn, sc);
	if (r < 0)
		rpc_call_finish(call, r);
	else
		rpc_dispatch_run(call);
	conn->current = NULL;
	/* A peer that is still sending its request may not read before it has sent all of it. */
	r = skip_payload(conn);
	if (r == 0)
		serve_conn_flush(conn);
	return r;
}

static void set_busy(struct serve_conn *conn)
{
	lock(conn);
	conn->busy = true;
	unlock(conn);
}

/* The request is over; 0: on to the next one. */
static int end_busy(struct serve_conn *conn, int err)
{
	lock(conn);
	conn->busy = false;
	if (err == 0)
		err = conn->broken;
	if (err == 0 && conn->stopping)
		err = -ESHUTDOWN;
	unlock(conn);
	return err;
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
	/* To the end of the request a drain leaves the connection alone. */
	set_busy(conn);
	reason = rpc_peer_expired(&conn->peer, conn->serve->env);
	if (reason) {
		gx_log(WARNING, "connection dropped", GX_KS("peer", conn->remote),
		       GX_KS("identity", conn->peer.identity), GX_KS("reason", reason));
		return -EKEYREJECTED;
	}
	r = rpc_frame_decode(header, &limits, &frame, &reason);
	if (r < 0)
		return refuse(conn, true, reason);
	r = read_message(conn, frame.message_bytes,
			 gx_env_now_ns(conn->serve->env) + SERVE_STALL_NS);
	if (r < 0)
		return r;
	r = rpc_frame_verify(header, conn->message, frame.message_bytes, conn->secret);
	if (r < 0)
		return refuse(conn, true, "frame check failed (tampered or out of sync)");
	return end_busy(conn, run_call(conn, &frame));
}

/* -- life -------------------------------------------------------------------------------- */

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
		conn->features = hs.features;
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

bool serve_conn_stop(struct serve_conn *conn)
{
	bool idle;

	lock(conn);
	conn->stopping = true;
	idle = serve_conn_is_idle(conn);
	unlock(conn);
	return idle;
}

/* Waits until nobody needs the stream: deferred calls are finished by their handlers. */
static void wait_calls(struct serve_conn *conn, int err)
{
	/* A drain lets their replies out; otherwise nobody is there to take them. */
	lock(conn);
	if (err != -ESHUTDOWN)
		serve_conn_break(conn, err);
	while (conn->call_count > 0 || conn->writing)
		serve_conn_wait(conn);
	conn->open = false;
	unlock(conn);
}

static void serve_requests(struct serve_conn *conn)
{
	struct rpc_serve *serve = conn->serve;
	int r = 0;

	gx_env_mutex_lock(serve->env, &serve->lock);
	conn->has_place = true;
	gx_env_mutex_unlock(serve->env, &serve->lock);
	rpc_sessions_attach(serve->sessions, conn->session);
	lock(conn);
	conn->open = true;
	unlock(conn);
	while (r == 0)
		r = serve_one(conn);
	if (r == -EPROTO && conn->stream.reason) /* TLS met a changed record */
		refuse(conn, true, conn->stream.reason);
	wait_calls(conn, r);
	rpc_sessions_detach(serve->sessions, conn->session);
}

void serve_conn_run(struct serve_conn *conn)
{
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
	if (r == 0)
		serve_requests(conn);
	gx_env_mutex_lock(serve->env, &serve->lock);
	conn->stream_ready = false;
	gx_env_mutex_unlock(serve->env, &serve->lock);
	rpc_stream_fini(&conn->stream);
	free(conn->message);
}
