#include "rpc/rpc_server.h"
#include "common/gx_hash.h"
#include "rpc/rpc_conn.h"

#define SWEEP_NS (500 * GX_NSEC_PER_MSEC)
/* After GOAWAY an idle connection is read this long for requests that crossed it. */
#define DRAIN_LINGER_NS (100 * GX_NSEC_PER_MSEC)

/* -- accepting --------------------------------------------------------------------- */

static bool has_room(void *arg)
{
	struct rpc_server *server = arg;

	return server->dispatcher->stats.connections < server->connections_max;
}

static int on_accepted(void *arg, int fd, const struct rpc_endpoint *endpoint)
{
	struct rpc_server *server = arg;

	/* Over the ceiling of half-open connections the oldest makes way. */
	if (server->half_open && server->dispatcher->stats.half_open >= server->half_open_max) {
		server->dispatcher->stats.dropped++;
		rpc_conn_close(server->half_open, "made way for newer connections");
	}
	return rpc_conn_new(server, fd, endpoint);
}

int rpc_server_listen(struct rpc_server *server, const struct rpc_endpoint *endpoint,
		      struct rpc_endpoint *ret_bound)
{
	return rpc_listeners_add(&server->listeners, endpoint, ret_bound);
}

/* -- life ------------------------------------------------------------------------------ */

static void reap(struct rpc_server *server)
{
	struct rpc_conn *conn, *tmp;

	/* All of them first: who hears that a push broke may end a call of another dead one. */
	DL_FOREACH2(server->dead, conn, next)
	rpc_conn_push_abort(conn);
	DL_FOREACH_SAFE2(server->dead, conn, tmp, next)
	{
		if (conn->inflight == 0)
			rpc_conn_free(conn);
	}
	if (has_room(server))
		rpc_listeners_resume(&server->listeners);
}

static void check_drained(struct rpc_server *server)
{
	rpc_drained_fn fn = server->drained;

	if (!server->draining || !fn || server->conns)
		return;
	/* Deferred calls of closed connections have until the deadline; then finish() ends them. */
	if (server->dead && gx_env_now_ns(server->env) < server->drain_deadline_ns)
		return;
	server->drained = NULL;
	gx_timer_stop(&server->sweep);
	fn(server->drained_arg);
}

static void flush_dirty(struct rpc_server *server)
{
	while (server->dirty) {
		struct rpc_conn *conn = server->dirty;

		LL_DELETE2(server->dirty, conn, dirty_next);
		conn->is_dirty = false;
		rpc_conn_flush(conn);
	}
}

static void on_sweep(struct gx_timer *timer);

/* A sweep that cannot be set is tried again at the end of a turn, but a drain must not wait. */
static void sweep_at(struct rpc_server *server, int64_t at_ns)
{
	if (gx_timer_start(server->loop, &server->sweep, at_ns, on_sweep) < 0 && server->draining)
		while (server->conns)
			rpc_conn_close(server->conns, "shutting down");
}

static void on_turn_end(struct gx_hook *hook)
{
	struct rpc_server *server = GX_CONTAINER_OF(hook, struct rpc_server, turn_end);

	flush_dirty(server);
	if (server->dead) {
		reap(server);
		/* Telling the senders of broken pushes may have ended calls elsewhere. */
		flush_dirty(server);
	}
	if (!server->sweep.impl && !server->draining)
		sweep_at(server, gx_loop_now_ns(server->loop) + SWEEP_NS);
	check_drained(server);
}

/* Idle ones first; whoever still works gets until the drain's deadline. */
static void sweep_draining(struct rpc_server *server, int64_t now)
{
	struct rpc_conn *conn, *tmp;

	DL_FOREACH_SAFE2(server->conns, conn, tmp, next)
	{
		bool idle = conn->inflight == 0 && conn->out.bytes == 0;

		if ((idle && now >= server->drain_started_ns + DRAIN_LINGER_NS) ||
		    now >= server->drain_deadline_ns)
			rpc_conn_close(conn, "shutting down");
	}
}

static void on_sweep(struct gx_timer *timer)
{
	struct rpc_server *server = GX_CONTAINER_OF(timer, struct rpc_server, sweep);
	int64_t now = gx_env_now_ns(server->env);
	int64_t next = now + SWEEP_NS;
	struct rpc_conn *conn, *tmp;

	while (server->half_open && server->half_open->accepted_ns + server->handshake_ns < now) {
		server->dispatcher->stats.dropped++;
		rpc_conn_close(server->half_open, "did not authenticate in time");
	}
	DL_FOREACH_SAFE2(server->conns, conn, tmp, next)
	rpc_conn_sweep(conn, now);
	if (server->sessions)
		rpc_sessions_expire(server->sessions);
	if (server->draining) {
		sweep_draining(server, now);
		next = now + DRAIN_LINGER_NS / 2;
	}
	/* Accepting may have been paused for lack of descriptors, not of room. */
	if (has_room(server))
		rpc_listeners_resume(&server->listeners);
	sweep_at(server, next);
}

int rpc_server_new(const struct rpc_server_options *options, struct rpc_server **ret_server)
{
	struct rpc_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return -ENOMEM;
	server->loop = options->loop;
	server->env = gx_loop_env(options->loop);
	server->dispatcher = options->dispatcher;
	server->listeners = (struct rpc_listeners){
		.loop = options->loop,
		.auth = options->auth,
		.has_room = has_room,
		.accepted = on_accepted,
		.arg = server,
	};
	server->sessions = options->sessions;
	server->session_events = options->session_events;
	server->session_arg = options->session_arg;
	server->commit_fn = options->commit_fn;
	server->commit_arg = options->commit_arg;
	server->connections_max = options->connections_max;
	server->half_open_max = options->half_open_max;
	server->handshake_ns = options->handshake_ns;
	server->pool_buffers_max = options->payload_pool_bytes / GX_PAYLOAD_LOOP_MAX;
	server->hello = (struct rpc_handshake_server){
		.auth = options->auth,
		.name = options->dispatcher->server_name,
		.boot = options->boot,
		.session = options->session_fn ? options->session_fn : rpc_sessions_open,
		.session_arg = options->session_fn ? options->session_arg : options->sessions,
	};
	gx_assert(options->session_fn || options->sessions);
	server->scratch = gx_alloc_pages(RPC_SCRATCH_BYTES);
	r = server->scratch ? 0 : -ENOMEM;
	if (r == 0)
		r = gx_timer_start(server->loop, &server->sweep,
				   gx_env_now_ns(server->env) + SWEEP_NS, on_sweep);
	if (r < 0) {
		free(server->scratch);
		free(server);
		return r;
	}
	server->dispatcher->loop = server->loop;
	gx_hook_start(server->loop, &server->turn_end, RPC_HOOK_LEVEL, on_turn_end);
	*ret_server = server;
	return 0;
}

void rpc_server_free(struct rpc_server *server)
{
	if (!server)
		return;
	rpc_listeners_close(&server->listeners);
	while (server->conns)
		rpc_conn_close(server->conns, "server ends");
	reap(server);
	gx_assert(!server->dead);
	gx_timer_stop(&server->sweep);
	gx_hook_stop(&server->turn_end);
	while (server->free_calls) {
		struct rpc_call *call = server->free_calls;

		LL_DELETE(server->free_calls, call);
		free(call);
	}
	while (server->pool) {
		void *buffer = server->pool;

		memcpy(&server->pool, buffer, sizeof(void *));
		free(buffer);
	}
	rpc_listeners_fini(&server->listeners);
	free(server->scratch);
	free(server);
}

void rpc_server_kick(struct rpc_server *server, uint64_t session, const char *reason)
{
	struct rpc_conn *conn, *tmp;

	DL_FOREACH_SAFE2(server->conns, conn, tmp, next)
	{
		if (conn->state == RPC_CONN_OPEN && conn->session == session)
			rpc_conn_close(conn, reason);
	}
}

void rpc_server_drain(struct rpc_server *server, int64_t deadline_ns, rpc_drained_fn fn, void *arg)
{
	struct rpc_conn *conn;
	int64_t now = gx_env_now_ns(server->env);

	gx_assert(!server->draining);
	server->draining = true;
	server->dispatcher->draining = true;
	server->drained = fn;
	server->drained_arg = arg;
	server->drain_started_ns = now;
	server->drain_deadline_ns = deadline_ns;
	rpc_listeners_close(&server->listeners);
	while (server->half_open)
		rpc_conn_close(server->half_open, "shutting down");
	DL_FOREACH2(server->conns, conn, next)
	rpc_conn_goaway(conn);
	sweep_at(server, now);
}
