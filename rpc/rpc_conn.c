/*
 * One connection of a loop server: bytes in, calls, bytes out.
 *
 * Input. A read goes into the server's scratch memory, and whole frames are
 * taken from there without a copy; only what is left over is kept per
 * connection, so an idle connection costs no buffer. A payload is read
 * straight into its place, with the scratch behind it for what follows.
 *
 * Back-pressure. With too many calls in work, too much unsent, or no payload
 * buffer free, the connection is paused: its socket is not read, and what has
 * been read already waits in `in`. Finishing a call, sending, or freeing a
 * buffer resumes it.
 */
#define GX_LOG_COMPONENT "rpc.conn"
#include "rpc/rpc_conn.h"
#include "common/gx_log.h"
#include "rpc/rpc_status.h"

/* Payloads up to this size live in the call's arena, larger ones in pool buffers. */
#define PAYLOAD_SMALL_BYTES 65536u
#define FREE_CALLS_MAX 256u
/* Reads of one connection per readiness event, so that one busy peer is not alone. */
#define READS_PER_EVENT 8
/* A peer that takes nothing of what we send, or sends no more of a request, for so long is gone. */
#define STALL_NS (30 * GX_NSEC_PER_SEC)

/* -- pool of payload buffers --------------------------------------------------------- */

static void *pool_take(struct rpc_server *server)
{
	void *buffer = server->pool;

	if (buffer) {
		memcpy(&server->pool, buffer, sizeof(void *));
		return buffer;
	}
	if (server->pool_buffers >= server->pool_buffers_max)
		return NULL;
	buffer = gx_alloc_pages(GX_PAYLOAD_LOOP_MAX);
	if (buffer)
		server->pool_buffers++;
	return buffer;
}

/* Resumed when it is flushed, not here: calls would nest as deep as the queue is long. */
static void pool_wake(struct rpc_conn *waiter)
{
	LL_DELETE2(waiter->server->pool_waiters, waiter, wait_next);
	waiter->is_waiting = false;
	rpc_conn_mark_dirty(waiter);
}

static void pool_give(struct rpc_server *server, void *buffer)
{
	struct rpc_conn *waiter = server->pool_waiters;

	memcpy(buffer, &server->pool, sizeof(void *));
	server->pool = buffer;
	if (waiter)
		pool_wake(waiter);
}

/* -- calls ----------------------------------------------------------------------------- */

static void call_release(struct rpc_call *call);
static void call_reply(struct rpc_call *call, const struct rpc_frame *frame, const void *message);

static const struct rpc_call_ops call_ops = {.reply = call_reply};

static struct rpc_call *call_take(struct rpc_conn *conn)
{
	struct rpc_server *server = conn->server;
	struct rpc_call *call = server->free_calls;

	if (call) {
		LL_DELETE(server->free_calls, call);
		server->free_call_count--;
	} else {
		call = malloc(sizeof(*call));
		if (!call)
			return NULL;
	}
	rpc_call_init(call, server->dispatcher, &call_ops, conn);
	call->peer = &conn->peer;
	call->session = conn->session;
	call->version = conn->version;
	call->transport = conn->transport;
	conn->inflight++;
	return call;
}

/* The reply is out (or dropped): nothing of the call is needed any more. */
static void call_release(struct rpc_call *call)
{
	struct rpc_conn *conn = call->conn;
	struct rpc_server *server = conn->server;
	void *buffer = call->pool_buffer;
	size_t call_bytes = call->held_bytes;

	rpc_call_clear(call);
	if (server->free_call_count < FREE_CALLS_MAX) {
		LL_PREPEND(server->free_calls, call);
		server->free_call_count++;
	} else {
		free(call);
	}
	gx_assert(conn->inflight > 0);
	conn->inflight--;
	server->held_bytes -= call_bytes;
	if (conn->paused)
		rpc_conn_mark_dirty(conn);
	if (buffer)
		pool_give(server, buffer);
}

static void call_reply(struct rpc_call *call, const struct rpc_frame *frame, const void *message)
{
	struct rpc_conn *conn = call->conn;

	if (conn->state != RPC_CONN_DEAD)
		rpc_conn_send(conn, frame, message);
	if (conn->state != RPC_CONN_DEAD && frame->payload_bytes > 0) {
		if (rpc_out_payload(&conn->out, call) == 0)
			return; /* released when it is out */
		rpc_conn_close(conn, "out of memory");
	}
	call_release(call);
}

void rpc_conn_send(struct rpc_conn *conn, const struct rpc_frame *frame, const void *message)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	int r;

	if (conn->state == RPC_CONN_DEAD)
		return;
	if (conn->out.bytes == 0)
		conn->sent_ns = gx_loop_now_ns(conn->server->loop);
	rpc_frame_encode(frame, message, conn->secret, header);
	r = rpc_out_append(&conn->out, header, sizeof(header));
	if (r == 0)
		r = rpc_out_append(&conn->out, message, frame->message_bytes);
	if (r < 0)
		rpc_conn_close(conn, "out of memory");
	else
		rpc_conn_mark_dirty(conn);
}

void rpc_conn_goaway(struct rpc_conn *conn)
{
	struct rpc_frame frame = {.type = RPC_FRAME_GOAWAY};

	if (conn->state == RPC_CONN_OPEN)
		rpc_conn_send(conn, &frame, NULL);
}

/* -- life --------------------------------------------------------------------------------- */

void rpc_conn_mark_dirty(struct rpc_conn *conn)
{
	if (conn->is_dirty || conn->state == RPC_CONN_DEAD)
		return;
	conn->is_dirty = true;
	LL_PREPEND2(conn->server->dirty, conn, dirty_next);
}

static void leave_half_open(struct rpc_conn *conn)
{
	struct rpc_server *server = conn->server;

	if (!conn->is_half_open)
		return;
	DL_DELETE2(server->half_open, conn, half_prev, half_next);
	conn->is_half_open = false;
	server->dispatcher->stats.half_open--;
}

/* Sends what is queued. Nothing leaves before what it promises is in force. */
static int conn_out(struct rpc_conn *conn)
{
	struct rpc_server *server = conn->server;

	if (server->commit_fn)
		server->commit_fn(server->commit_arg);
	return rpc_out_flush(&conn->out, &conn->stream);
}

static void conn_attach(struct rpc_conn *conn, const char *program)
{
	struct rpc_server *server = conn->server;

	if (server->sessions)
		rpc_sessions_attach(server->sessions, conn->session);
	else if (server->session_events)
		server->session_events->attached(server->session_arg, conn->session, conn->is_push,
						 program, conn->remote);
	conn->attached = true;
}

static void conn_detach(struct rpc_conn *conn)
{
	struct rpc_server *server = conn->server;

	if (server->sessions)
		rpc_sessions_detach(server->sessions, conn->session);
	else if (server->session_events)
		server->session_events->detached(server->session_arg, conn->session, conn->is_push);
	conn->attached = false;
}

void rpc_conn_close(struct rpc_conn *conn, const char *reason)
{
	struct rpc_server *server = conn->server;

	if (conn->state == RPC_CONN_DEAD)
		return;
	gx_log(DEBUG, "connection closed", GX_KS("peer", conn->remote), GX_KS("reason", reason));
	/* What is queued goes out if it can at once: a refusal, the last replies. */
	if (conn->out.bytes > 0 && conn->state != RPC_CONN_TLS)
		GX_IGNORE(conn_out(conn));
	leave_half_open(conn);
	if (conn->is_dirty) {
		LL_DELETE2(server->dirty, conn, dirty_next);
		conn->is_dirty = false;
	}
	if (conn->is_waiting) {
		LL_DELETE2(server->pool_waiters, conn, wait_next);
		conn->is_waiting = false;
	}
	gx_loop_unpost(server->loop, &conn->again);
	if (conn->is_push)
		HASH_DEL(server->push_conns, conn);
	if (conn->attached)
		conn_detach(conn);
	conn->is_push = false;
	gx_io_stop(&conn->io);
	rpc_stream_fini(&conn->stream);
	conn->state = RPC_CONN_DEAD;
	server->dispatcher->stats.connections--;
	DL_DELETE2(server->conns, conn, prev, next);
	DL_APPEND2(server->dead, conn, prev, next);
	if (conn->body) {
		struct rpc_call *body = GX_TAKE(conn->body);

		call_release(body);
	}
	rpc_out_fini(&conn->out);
	gx_buf_fini(&conn->in);
}

void rpc_conn_free(struct rpc_conn *conn)
{
	gx_assert(conn->state == RPC_CONN_DEAD && conn->inflight == 0);
	DL_DELETE2(conn->server->dead, conn, prev, next);
	if (conn->handshake) {
		rpc_handshake_fini(conn->handshake);
		free(conn->handshake);
	}
	free(conn);
}

/* A peer that breaks the protocol, or may not come in: said once, in one line. */
static void conn_refuse(struct rpc_conn *conn, const char *reason)
{
	struct rpc_stats *stats = &conn->server->dispatcher->stats;
	const char *identity = conn->peer.identity;

	if (conn->state == RPC_CONN_OPEN) {
		stats->garbage++;
		gx_log(WARNING, "connection dropped: protocol broken", GX_KS("peer", conn->remote),
		       GX_KS("identity", identity), GX_KS("reason", reason));
	} else {
		stats->refused++;
		/* With TLS the name that was proven, or tried; not the one claimed inside. */
		identity = conn->stream.tls ? rpc_tls_identity(&conn->stream)
					    : conn->handshake->claimed;
		gx_log(WARNING, "connection refused", GX_KS("peer", conn->remote),
		       GX_KS("transport", conn->transport), GX_KS("identity", identity),
		       GX_KS("reason", reason));
	}
	rpc_conn_close(conn, reason);
}

/* -- frames in ------------------------------------------------------------------------------ */

/* Copies what the handshake wants to say into the queue. */
static int handshake_send(struct rpc_conn *conn)
{
	struct gx_buf *out = &conn->handshake->out;
	int r = rpc_out_append(&conn->out, out->data, out->bytes);

	gx_buf_clear(out);
	rpc_conn_mark_dirty(conn);
	return r;
}

static int conn_open(struct rpc_conn *conn)
{
	struct rpc_handshake *hs = conn->handshake;
	struct rpc_server *server = conn->server;

	conn->peer = hs->peer;
	conn->secret = hs->secret;
	conn->version = hs->version;
	conn->features = hs->features;
	conn->session = hs->session;
	conn->state = RPC_CONN_OPEN;
	conn->in.bytes_max = RPC_FRAME_HEADER_BYTES + GX_MESSAGE_MAX + RPC_SCRATCH_BYTES;
	leave_half_open(conn);
	if (hs->channel == RPC_CHANNEL_PUSH) {
		bool gx_hash_failed = false;
		struct rpc_conn *old;

		HASH_FIND(hh, server->push_conns, &conn->session, sizeof(conn->session), old);
		if (old)
			rpc_conn_close(old, "replaced by a newer push channel");
		HASH_ADD(hh, server->push_conns, session, sizeof(conn->session), conn);
		if (gx_hash_failed)
			return -ENOMEM;
		conn->is_push = true;
	}
	conn_attach(conn, hs->program);
	gx_log(DEBUG, "connection open", GX_KS("peer", conn->remote),
	       GX_KS("identity", conn->peer.identity), GX_KS("program", hs->program),
	       GX_KX("session", conn->session));
	rpc_handshake_fini(hs);
	free(hs);
	conn->handshake = NULL;
	if (server->draining)
		rpc_conn_goaway(conn);
	return 0;
}

static void frame_handshake(struct rpc_conn *conn, const struct rpc_frame *frame,
			    const void *message)
{
	struct rpc_handshake *hs = conn->handshake;
	int r = rpc_handshake_step(hs, frame, message);
	int sent = handshake_send(conn);

	if (r < 0) {
		conn_refuse(conn, hs->reason);
		return;
	}
	if (r == 1)
		r = conn_open(conn);
	if (r < 0 || sent < 0)
		rpc_conn_close(conn, "out of memory");
}

/* Memory for a payload; false: none now, the connection waits. */
static bool body_place(struct rpc_conn *conn, struct rpc_call *call)
{
	struct rpc_server *server = conn->server;

	if (call->payload_bytes <= PAYLOAD_SMALL_BYTES) {
		call->payload = rpc_call_alloc(call, call->payload_bytes);
		if (!call->payload)
			conn->body_err = -ENOMEM;
		return true;
	}
	call->pool_buffer = pool_take(server);
	call->payload = call->pool_buffer;
	if (call->payload)
		return true;
	if (!conn->is_waiting) {
		conn->is_waiting = true;
		LL_APPEND2(server->pool_waiters, conn, wait_next);
	}
	return false;
}

static void body_finish(struct rpc_conn *conn)
{
	struct rpc_call *call = GX_TAKE(conn->body);

	call->payload_left = call->payload_bytes;
	if (conn->body_err < 0)
		rpc_call_finish(call, conn->body_err);
	else
		rpc_dispatch_run(call);
}

static void frame_request(struct rpc_conn *conn, const struct rpc_frame *frame, const void *message)
{
	struct rpc_call *call = call_take(conn);
	int r;

	if (!call) {
		rpc_conn_close(conn, "out of memory");
		return;
	}
	r = rpc_dispatch_begin(call, frame, message);
	if (r == 0 && frame->payload_bytes > GX_PAYLOAD_LOOP_MAX)
		r = rpc_call_fail(call, -E2BIG, "at most %u bytes of payload here",
				  GX_PAYLOAD_LOOP_MAX);
	call->held_bytes = call->arena.total;
	if (frame->payload_bytes <= PAYLOAD_SMALL_BYTES)
		call->held_bytes += frame->payload_bytes;
	conn->server->held_bytes += call->held_bytes;
	if (frame->payload_bytes == 0) {
		if (r < 0)
			rpc_call_finish(call, r);
		else
			rpc_dispatch_run(call);
		return;
	}
	conn->body = call;
	conn->body_left = frame->payload_bytes;
	conn->body_err = r;
	/* Early, so that the rest is read into its place; without a buffer the connection waits. */
	if (r == 0)
		body_place(conn, call);
}

static void frame_take(struct rpc_conn *conn, const struct rpc_frame *frame, const void *message)
{
	if (conn->state == RPC_CONN_HELLO)
		frame_handshake(conn, frame, message);
	else if (frame->type == RPC_FRAME_REQUEST)
		frame_request(conn, frame, message);
	else if (!rpc_conn_push_ack(conn, frame->seq))
		conn_refuse(conn, "acknowledges a push that was not sent");
}

static void conn_limits(struct rpc_conn *conn, struct rpc_frame_limits *ret_limits)
{
	if (conn->state == RPC_CONN_HELLO) {
		rpc_handshake_limits(conn->handshake, ret_limits);
		return;
	}
	*ret_limits = (struct rpc_frame_limits){
		.types = UINT32_C(1) << RPC_FRAME_REQUEST | UINT32_C(1) << RPC_FRAME_PUSH_ACK,
		.message_max = GX_MESSAGE_MAX,
		.payload_max = GX_PAYLOAD_MAX, /* above GX_PAYLOAD_LOOP_MAX it is skipped */
	};
}

static bool has_room(const struct rpc_conn *conn)
{
	return conn->inflight < GX_INFLIGHT_PER_CONN_MAX &&
	       conn->out.bytes < GX_OUT_QUEUE_PER_CONN_MAX && !conn->is_waiting &&
	       conn->server->held_bytes < GX_CALLS_PER_SERVER_MAX;
}

/* Why an open connection must go now; NULL: it may stay. */
static const char *overdue(const struct rpc_conn *conn, int64_t now)
{
	bool half_request = !conn->paused && (conn->body || conn->in.bytes > 0);

	if (conn->state != RPC_CONN_OPEN)
		return NULL; /* has its own time, and that is shorter */
	if (conn->out.bytes > 0 && now - conn->sent_ns > STALL_NS)
		return "does not take its replies";
	/* It may hold a payload buffer that others wait for. */
	if (half_request && now - conn->got_ns > STALL_NS)
		return "does not finish its request";
	return rpc_peer_expired(&conn->peer, conn->server->env);
}

void rpc_conn_sweep(struct rpc_conn *conn, int64_t now)
{
	struct rpc_server *server = conn->server;
	const char *reason = overdue(conn, now);

	if (reason) {
		server->dispatcher->stats.dropped++;
		gx_log(WARNING, "connection dropped", GX_KS("peer", conn->remote),
		       GX_KS("identity", conn->peer.identity), GX_KS("reason", reason));
		rpc_conn_close(conn, reason);
	} else if (conn->is_waiting &&
		   (server->pool || server->pool_buffers < server->pool_buffers_max)) {
		/* There was no memory, or the one who was woken in its place has gone. */
		pool_wake(conn);
	} else if (conn->paused && has_room(conn)) {
		/* Held up by the calls of others, which do not wake us. */
		rpc_conn_mark_dirty(conn);
	}
}

/* Payload bytes from memory; the count used. */
static size_t body_input(struct rpc_conn *conn, const unsigned char *data, size_t bytes)
{
	struct rpc_call *call = conn->body;
	size_t part = (size_t)GX_MIN((uint64_t)bytes, conn->body_left);

	if (conn->body_err == 0 && !call->payload && !body_place(conn, call))
		return 0;
	if (conn->body_err == 0)
		memcpy(call->payload + (call->payload_bytes - conn->body_left), data, part);
	conn->body_left -= part;
	if (conn->body_left == 0)
		body_finish(conn);
	return part;
}

/* One frame (or a piece of payload) from memory; 0: needs more, or room. */
static size_t take_one(struct rpc_conn *conn, const unsigned char *data, size_t bytes)
{
	struct rpc_frame_limits limits;
	struct rpc_frame frame;
	const char *reason = NULL;
	size_t total;

	if (conn->body)
		return body_input(conn, data, bytes);
	if (bytes < RPC_FRAME_HEADER_BYTES) {
		/* A TLS client on a plain port is told from its first bytes: it waits for an
		 * answer. */
		if (conn->state == RPC_CONN_HELLO && bytes >= 3 && data[0] == 0x16 && data[1] == 3)
			conn_refuse(conn, "peer speaks TLS on a plain connection");
		return 0;
	}
	conn_limits(conn, &limits);
	if (rpc_frame_decode(data, &limits, &frame, &reason) < 0) {
		conn_refuse(conn, reason);
		return 0;
	}
	total = RPC_FRAME_HEADER_BYTES + frame.message_bytes;
	if (bytes < total)
		return 0;
	if (rpc_frame_verify(data, data + RPC_FRAME_HEADER_BYTES, frame.message_bytes,
			     conn->secret) < 0) {
		conn_refuse(conn, "frame check failed (tampered or out of sync)");
		return 0;
	}
	frame_take(conn, &frame, data + RPC_FRAME_HEADER_BYTES);
	return total;
}

/* Works through bytes in memory; the count used. Stops when paused, dead or out of frames. */
static size_t conn_work(struct rpc_conn *conn, const unsigned char *data, size_t bytes)
{
	size_t used = 0;

	while (used < bytes && conn->state != RPC_CONN_DEAD) {
		size_t n;

		if (!has_room(conn)) {
			conn->paused = true;
			break;
		}
		n = take_one(conn, data + used, bytes - used);
		if (n == 0)
			break;
		used += n;
	}
	if (conn->is_waiting)
		conn->paused = true;
	return used;
}

static void conn_input(struct rpc_conn *conn, const unsigned char *data, size_t bytes)
{
	size_t used = 0;
	int r = 0;

	if (conn->in.bytes == 0)
		used = conn_work(conn, data, bytes);
	if (conn->state == RPC_CONN_DEAD || used == bytes)
		return;
	r = gx_buf_append(&conn->in, data + used, bytes - used);
	if (r < 0) {
		rpc_conn_close(conn, "out of memory");
		return;
	}
	if (used == 0 && !conn->paused) {
		used = conn_work(conn, conn->in.data, conn->in.bytes);
		if (conn->state != RPC_CONN_DEAD)
			gx_buf_consume(&conn->in, used);
	}
	/* An idle connection keeps no buffer. */
	if (conn->state != RPC_CONN_DEAD && conn->in.bytes == 0)
		gx_buf_fini(&conn->in);
}

/* -- readiness -------------------------------------------------------------------------------- */

static void conn_watch(struct rpc_conn *conn)
{
	unsigned events = 0;

	if (conn->state == RPC_CONN_DEAD)
		return;
	if (!conn->paused)
		events |= conn->state == RPC_CONN_TLS ? conn->stream.want : GX_READABLE;
	/* What this turn queued leaves at its end: mostly there is nothing to wait for. */
	if (conn->out.bytes > 0)
		events |= conn->is_dirty ? conn->io.events & GX_WRITABLE : GX_WRITABLE;
	if (events != conn->io.events && gx_io_set(&conn->io, events) < 0)
		rpc_conn_close(conn, "cannot watch the socket");
}

/* Reads in the next turn, whether the socket has an event or not. */
static void read_later(struct rpc_conn *conn)
{
	gx_loop_post(conn->server->loop, &conn->again);
}

/* Room was made: first what has been read already, then the socket again. */
static void conn_resume(struct rpc_conn *conn)
{
	if (!conn->paused || conn->state == RPC_CONN_DEAD || !has_room(conn))
		return;
	conn->paused = false;
	conn->got_ns = gx_loop_now_ns(conn->server->loop);
	if (conn->in.bytes > 0) {
		size_t used = conn_work(conn, conn->in.data, conn->in.bytes);

		if (conn->state != RPC_CONN_DEAD)
			gx_buf_consume(&conn->in, used);
	}
	/* Bytes inside the TLS library make no event. */
	if (conn->state != RPC_CONN_DEAD && rpc_stream_pending(&conn->stream))
		read_later(conn);
}

/* One read and what it brings. False: nothing more to get now. */
static bool conn_read_once(struct rpc_conn *conn)
{
	struct rpc_server *server = conn->server;
	struct iovec iov[2];
	size_t direct = 0;
	int count = 0;
	ssize_t n;

	if (conn->body && conn->body_err == 0 && conn->body->payload && conn->in.bytes == 0) {
		direct = conn->body_left;
		iov[count++] = (struct iovec){conn->body->payload +
						      (conn->body->payload_bytes - conn->body_left),
					      direct};
	}
	iov[count++] = (struct iovec){server->scratch, RPC_SCRATCH_BYTES};
	if (conn->state == RPC_CONN_HELLO)
		iov[0].iov_len = conn->in.bytes_max - conn->in.bytes;
	n = rpc_stream_readv(&conn->stream, iov, count, GX_NOWAIT);
	if (n == -EAGAIN)
		return false;
	if (n <= 0) {
		if (n < 0 && conn->stream.reason && conn->state == RPC_CONN_OPEN && n == -EPROTO)
			conn_refuse(conn, conn->stream.reason);
		else
			rpc_conn_close(conn, n == 0 ? "closed by the peer" : gx_strerror((int)n));
		return false;
	}
	conn->got_ns = gx_loop_now_ns(server->loop);
	if (direct > 0) {
		size_t part = GX_MIN((size_t)n, direct);

		conn->body_left -= part;
		n -= (ssize_t)part;
		if (conn->body_left == 0)
			body_finish(conn);
	}
	if (n > 0 && conn->state != RPC_CONN_DEAD)
		conn_input(conn, server->scratch, (size_t)n);
	return conn->state != RPC_CONN_DEAD && !conn->paused &&
	       (rpc_stream_pending(&conn->stream) || (conn->body && conn->body_left > 0));
}

static void conn_read(struct rpc_conn *conn)
{
	int i = 0;

	while (!conn->paused && i < READS_PER_EVENT && conn_read_once(conn))
		i++;
	/* TLS may hold more bytes that make no event. */
	if (i == READS_PER_EVENT && conn->state != RPC_CONN_DEAD && conn->stream.tls)
		read_later(conn);
}

static void on_again(struct gx_task *task)
{
	struct rpc_conn *conn = GX_CONTAINER_OF(task, struct rpc_conn, again);

	conn_read(conn);
	conn_watch(conn);
}

static int handshake_begin(struct rpc_conn *conn)
{
	conn->handshake = malloc(sizeof(*conn->handshake));
	if (!conn->handshake)
		return -ENOMEM;
	rpc_handshake_init_server(conn->handshake, conn->server->env, &conn->server->hello,
				  conn->stream.tls,
				  conn->stream.tls ? rpc_tls_peer(&conn->stream) : NULL,
				  &conn->stream.local, &conn->stream.remote);
	conn->state = RPC_CONN_HELLO;
	return 0;
}

static void conn_tls_step(struct rpc_conn *conn)
{
	int r = rpc_stream_handshake(&conn->stream, GX_NOWAIT);

	if (r == -EAGAIN)
		return;
	if (r == 0)
		r = handshake_begin(conn);
	if (r < 0)
		conn_refuse(conn, conn->stream.reason ? conn->stream.reason : gx_strerror(r));
	else
		conn_read(conn);
}

static void on_ready(struct gx_io *io, unsigned events)
{
	struct rpc_conn *conn = GX_CONTAINER_OF(io, struct rpc_conn, io);

	if (conn->state == RPC_CONN_TLS)
		conn_tls_step(conn);
	else if ((events & GX_READABLE) || conn->stream.tls)
		conn_read(conn);
	if ((events & GX_WRITABLE) && conn->state != RPC_CONN_DEAD)
		rpc_conn_mark_dirty(conn);
	conn_watch(conn);
}

void rpc_conn_flush(struct rpc_conn *conn)
{
	int r = 0;

	if (conn->state == RPC_CONN_DEAD)
		return;
	if (conn->out.bytes > 0) {
		size_t before = conn->out.bytes;

		r = conn_out(conn);
		if (conn->out.bytes < before)
			conn->sent_ns = gx_loop_now_ns(conn->server->loop);
	}
	if (r < 0 && r != -EAGAIN) {
		rpc_conn_close(conn, gx_strerror(r));
		return;
	}
	conn_resume(conn);
	conn_watch(conn);
}

int rpc_conn_new(struct rpc_server *server, int fd, const struct rpc_endpoint *endpoint)
{
	struct rpc_conn *conn = calloc(1, sizeof(*conn));
	int r;

	if (!conn) {
		gx_env_close(server->env, fd);
		return -ENOMEM;
	}
	conn->server = server;
	conn->transport = rpc_endpoint_transport(endpoint);
	conn->accepted_ns = gx_env_now_ns(server->env);
	conn->again.fn = on_again;
	rpc_out_init(&conn->out, call_release);
	gx_buf_init(&conn->in, RPC_FRAME_HEADER_BYTES + GX_HELLO_MAX);
	r = rpc_stream_init(&conn->stream, server->env, fd);
	if (r < 0) {
		free(conn);
		return r;
	}
	gx_addr_format(&conn->stream.remote, conn->remote);
	conn->state = RPC_CONN_TLS;
	conn->stream.want = GX_READABLE;
	r = endpoint->tls ? rpc_tls_start(&conn->stream, server->listeners.tls)
			  : handshake_begin(conn);
	if (r == 0)
		r = gx_io_start(server->loop, &conn->io, fd, GX_READABLE, on_ready);
	if (r < 0) {
		if (conn->handshake)
			rpc_handshake_fini(conn->handshake);
		free(conn->handshake);
		rpc_stream_fini(&conn->stream);
		free(conn);
		return r;
	}
	server->dispatcher->stats.accepted++;
	server->dispatcher->stats.connections++;
	server->dispatcher->stats.half_open++;
	conn->is_half_open = true;
	DL_APPEND2(server->conns, conn, prev, next);
	DL_APPEND2(server->half_open, conn, half_prev, half_next);
	return 0;
}
