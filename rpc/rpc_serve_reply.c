/*
 * What a connection of the threaded server sends.
 *
 * Replies stand in a queue and are sent one after the other by whoever has set conn->writing. That
 * is the thread of the connection, which waits for its peer; or, for a call that was deferred, the
 * thread that finished it, which must not: it has work to do for others (a few threads sync objects
 * for all connections), and a peer that does not read would stop it. So it sends what the socket
 * takes at once. The rest is sent by the thread of the connection if it comes by, and by the
 * server's watcher, which does not wait either.
 *
 * The watcher also writes the PROGRESS frames. What the socket does not take of one stays in
 * conn->tail and goes in front of the next frame.
 */
#define GX_LOG_COMPONENT "rpc.serve"
#include "common/gx_broken.h"
#include "common/gx_hash.h"
#include "common/gx_log.h"
#include "rpc/rpc_serve_impl.h"
#include "rpc/rpc_status.h"

/* A file's bytes up to this size are read and go out together with the header. */
#define FILE_COPY_BYTES 16384u

static void lock(struct serve_conn *conn)
{
	gx_env_mutex_lock(conn->serve->env, &conn->lock);
}

static void unlock(struct serve_conn *conn)
{
	gx_env_mutex_unlock(conn->serve->env, &conn->lock);
}

void serve_conn_tell(struct serve_conn *conn)
{
	if (conn->waiters > 0)
		gx_env_cond_broadcast(conn->serve->env, &conn->changed);
}

void serve_conn_break(struct serve_conn *conn, int err)
{
	if (conn->broken == 0)
		conn->broken = err;
	gx_env_shutdown(conn->serve->env, conn->stream.fd);
}

bool serve_conn_is_idle(const struct serve_conn *conn)
{
	return !conn->busy && conn->call_count == 0;
}

/* -- one reply ------------------------------------------------------------------------------- */

static bool has_file(const struct serve_call *sc)
{
	return sc->frame.payload_bytes > 0 && sc->call.reply_file >= 0;
}

static bool has_large_file(const struct serve_call *sc)
{
	return has_file(sc) && sc->frame.payload_bytes > FILE_COPY_BYTES;
}

/* Nothing of it has been sent, and its payload cannot be read: the peer gets the error instead. */
static void turn_into_error(struct serve_conn *conn, struct serve_call *sc, int err)
{
	bool exact;

	if (err != -EAGAIN)
		gx_log(WARNING, "the file behind a reply cannot be read",
		       GX_KS("peer", conn->remote), GX_KS("method", sc->call.method->name),
		       GX_KE(err));
	sc->frame.code = (uint16_t)rpc_status_from_errno(err, &exact);
	sc->frame.flags = 0;
	sc->frame.message_bytes = 0;
	sc->frame.payload_bytes = 0;
	rpc_frame_encode(&sc->frame, NULL, conn->secret, sc->header);
}

/* The payload into `space`. Shorter than it was a moment ago: cut off by another request. */
static int read_small(const struct serve_call *sc, void *space)
{
	size_t bytes = (size_t)sc->frame.payload_bytes;
	ssize_t n = gx_env_pread(sc->call.env, sc->call.reply_file, space, bytes,
				 sc->call.reply_file_offset);

	return n < 0 ? (int)n : (size_t)n < bytes ? -EAGAIN : 0;
}

/* Bytes of header, message and a payload in memory. */
static ssize_t write_memory(struct serve_conn *conn, struct serve_call *sc, int64_t deadline_ns)
{
	unsigned char space[FILE_COPY_BYTES];
	const void *payload = sc->call.reply_payload;
	struct iovec parts[3], *iov = parts;
	int count;

	if (has_large_file(sc)) {
		payload = NULL;
	} else if (has_file(sc)) {
		int r = read_small(sc, space);

		if (r < 0 && sc->written > 0)
			return r == -EAGAIN ? -ENODATA : r;
		if (r < 0)
			turn_into_error(conn, sc, r);
		payload = space;
	}
	parts[0] = (struct iovec){sc->header, sizeof(sc->header)};
	parts[1] = (struct iovec){(void *)(uintptr_t)sc->message, sc->frame.message_bytes};
	parts[2] = (struct iovec){(void *)(uintptr_t)payload,
				  has_large_file(sc) ? 0 : sc->frame.payload_bytes};
	count = rpc_iov_advance(&iov, 3, (size_t)sc->written);
	if (sc->written == 0 && (sc->frame.flags & RPC_FRAME_DESCRIPTOR))
		return rpc_stream_writev_fd(&conn->stream, iov, count, sc->call.reply_descriptor,
					    deadline_ns);
	return rpc_stream_writev(&conn->stream, iov, count, deadline_ns);
}

static ssize_t write_file(struct serve_conn *conn, struct serve_call *sc, int64_t deadline_ns)
{
	uint64_t begun = sc->written - (sizeof(sc->header) + sc->frame.message_bytes);
	ssize_t n = rpc_stream_send_file(&conn->stream, sc->call.reply_file,
					 sc->call.reply_file_offset + begun,
					 sc->frame.payload_bytes - begun, deadline_ns);

	if (n == 0)
		gx_log(WARNING, "a file is shorter than the reply made from it",
		       GX_KS("peer", conn->remote), GX_KS("method", sc->call.method->name));
	/* The peer was promised more bytes: only the end of the stream can tell it otherwise. */
	return n == 0 ? -ENODATA : n;
}

static int64_t write_deadline(struct serve_conn *conn, bool waiting)
{
	return waiting ? gx_env_now_ns(conn->serve->env) + SERVE_STALL_NS : GX_NOWAIT;
}

/* -EAGAIN: not all of it, and `waiting` is false. */
static int send_reply(struct serve_conn *conn, struct serve_call *sc, bool waiting)
{
	for (;;) {
		uint64_t head_bytes = sizeof(sc->header) + sc->frame.message_bytes;
		int64_t deadline_ns;
		ssize_t n;

		if (sc->written == head_bytes + sc->frame.payload_bytes)
			return 0;
		deadline_ns = write_deadline(conn, waiting);
		if (has_large_file(sc) && sc->written >= head_bytes)
			n = write_file(conn, sc, deadline_ns);
		else
			n = write_memory(conn, sc, deadline_ns);
		if (n < 0)
			return (int)n;
		sc->written += (uint64_t)n;
	}
}

/* What is left of a PROGRESS frame. -EAGAIN as above. */
static int send_tail(struct serve_conn *conn, bool waiting)
{
	while (conn->tail_bytes > 0) {
		struct iovec iov = {conn->tail, conn->tail_bytes};
		ssize_t n =
			rpc_stream_writev(&conn->stream, &iov, 1, write_deadline(conn, waiting));

		if (n < 0)
			return (int)n;
		conn->tail_bytes -= (size_t)n;
		memmove(conn->tail, conn->tail + n, conn->tail_bytes);
	}
	return 0;
}

/* -- the queue (under the lock) -------------------------------------------------------------- */

static void call_put(struct serve_conn *conn, struct serve_call *sc)
{
	DL_DELETE(conn->calls, sc);
	conn->call_count--;
	if (!conn->spare || sc == &conn->first) {
		struct serve_call *old = conn->spare;

		conn->spare = sc;
		sc = old;
	}
	free(sc);
}

/* The first reply, without the lock. -EAGAIN: it stays the first. */
static int send_first(struct serve_conn *conn, struct serve_call *sc, int broken, bool waiting)
{
	int r = broken;

	if (r == 0)
		r = send_tail(conn, waiting);
	if (r == 0)
		r = send_reply(conn, sc, waiting);
	if (r != -EAGAIN)
		rpc_call_clear(&sc->call);
	return r;
}

/*
 * Sends what is in the queue, letting the lock go meanwhile. Without waiting, replies from large
 * files are left to the thread of the connection if it is about: sendfile is made for waiting.
 */
static void send_all(struct serve_conn *conn, bool waiting)
{
	gx_assert(!conn->writing);
	conn->writing = true;
	while (conn->replies) {
		struct serve_call *sc = conn->replies;
		int broken = conn->broken;
		int r;

		if (!waiting && conn->busy && has_large_file(sc))
			break;
		unlock(conn);
		r = send_first(conn, sc, broken, waiting);
		lock(conn);
		if (r == -EAGAIN)
			break;
		conn->replies = sc->next_reply;
		call_put(conn, sc);
		if (r < 0)
			serve_conn_break(conn, r);
	}
	conn->writing = false;
	/* Its thread reads, and nothing more will come. */
	if (conn->stopping && serve_conn_is_idle(conn))
		gx_env_shutdown(conn->serve->env, conn->stream.fd);
	serve_conn_tell(conn);
}

void serve_conn_wait(struct serve_conn *conn)
{
	if (conn->replies && !conn->writing) {
		send_all(conn, true);
		return;
	}
	conn->waiters++;
	gx_env_cond_wait(conn->serve->env, &conn->changed, &conn->lock, GX_FOREVER);
	conn->waiters--;
}

void serve_conn_flush(struct serve_conn *conn)
{
	lock(conn);
	while (conn->replies)
		serve_conn_wait(conn);
	unlock(conn);
}

/*
 * In any thread when a handler deferred. After this neither call nor connection may be touched: the
 * reply may be out already.
 */
void serve_call_reply(struct rpc_call *call, const struct rpc_frame *frame, const void *message)
{
	struct serve_call *sc = GX_CONTAINER_OF(call, struct serve_call, call);
	struct serve_conn *conn = call->conn;

	sc->frame = *frame;
	sc->message = message;
	sc->written = 0;
	sc->next_reply = NULL;
	rpc_frame_encode(frame, message, conn->secret, sc->header);
	lock(conn);
	LL_APPEND2(conn->replies, sc, next_reply);
	if (!conn->writing)
		send_all(conn, false);
	/* Without the watcher's lock: if it misses this it comes by a little later. */
	if (conn->replies && !conn->busy)
		gx_env_cond_signal(conn->serve->env, &conn->serve->watch_wake);
	unlock(conn);
}

/* -- progress -------------------------------------------------------------------------------- */

/* Under the lock. False: nothing more can be sent now. */
static bool send_progress(struct serve_conn *conn, const struct serve_call *sc)
{
	struct rpc_frame frame = {
		.type = RPC_FRAME_PROGRESS, .id = sc->call.frame.id, .trace = sc->call.frame.trace};
	int r = send_tail(conn, false);

	if (r == 0) {
		rpc_frame_encode(&frame, NULL, conn->secret, conn->tail);
		conn->tail_bytes = sizeof(conn->tail);
		r = send_tail(conn, false);
	}
	if (r < 0 && r != -EAGAIN)
		serve_conn_break(conn, r);
	return r == 0;
}

bool serve_conn_progress(struct serve_conn *conn, int64_t now_ns)
{
	struct serve_call *sc;
	bool stuck;

	lock(conn);
	if (conn->replies && !conn->writing)
		send_all(conn, false);
	/* While a reply is on its way the peer hears enough. */
	if (conn->open && !conn->replies && !conn->writing && conn->broken == 0 &&
	    (conn->features & RPC_FEATURE_PROGRESS) && !GX_BROKEN(210)) {
		DL_FOREACH (conn->calls, sc) {
			if (sc->progress_ns > now_ns)
				continue;
			if (!send_progress(conn, sc))
				break;
			sc->progress_ns = now_ns + SERVE_PROGRESS_NS;
		}
	}
	stuck = conn->replies && !conn->writing && !conn->busy;
	unlock(conn);
	return stuck;
}
