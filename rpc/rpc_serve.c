#define GX_LOG_COMPONENT "rpc.serve"
#include "rpc/rpc_serve.h"
#include "common/gx_hash.h"
#include "rpc/rpc_serve_impl.h"

/* How often the watcher looks; PROGRESS frames are at most this much late. */
#define WATCH_NS (125 * GX_NSEC_PER_MSEC)
/* The same while some peer does not take its replies. */
#define STUCK_NS (10 * GX_NSEC_PER_MSEC)

/* -- the watcher ------------------------------------------------------------------------- */

/* Says on behalf of slow calls that they are being worked on. Without connections it sleeps. */
static void watch_main(void *arg)
{
	struct rpc_serve *serve = arg;
	struct gx_env *env = serve->env;
	struct serve_conn *conn;

	gx_env_mutex_lock(env, &serve->watch_lock);
	while (!serve->watch_ends) {
		int64_t now = gx_env_now_ns(env);
		bool stuck = false;

		DL_FOREACH (serve->conns, conn)
			stuck |= serve_conn_progress(conn, now);
		gx_env_cond_wait(env, &serve->watch_wake, &serve->watch_lock,
				 !serve->conns ? GX_FOREVER : now + (stuck ? STUCK_NS : WATCH_NS));
	}
	gx_env_mutex_unlock(env, &serve->watch_lock);
}

/* With the first connection, because a daemon may fork before. Without it all else works. */
static void watch_start(struct rpc_serve *serve)
{
	if (!serve->watching)
		serve->watching = gx_env_thread_start(serve->env, &serve->watcher, "rpc-watch",
						      watch_main, serve) == 0;
}

static void watch_stop(struct rpc_serve *serve)
{
	gx_env_mutex_lock(serve->env, &serve->watch_lock);
	serve->watch_ends = true;
	gx_env_cond_signal(serve->env, &serve->watch_wake);
	gx_env_mutex_unlock(serve->env, &serve->watch_lock);
	if (serve->watching)
		gx_env_thread_join(serve->env, &serve->watcher);
}

/* -- connections -------------------------------------------------------------------------- */

/* Under serve->lock. */
static void conn_link(struct serve_conn *conn)
{
	struct rpc_serve *serve = conn->serve;

	gx_env_mutex_lock(serve->env, &serve->watch_lock);
	if (!serve->conns)
		gx_env_cond_signal(serve->env, &serve->watch_wake);
	DL_APPEND(serve->conns, conn);
	gx_env_mutex_unlock(serve->env, &serve->watch_lock);
	serve->count++;
	serve->dispatcher->stats.connections++;
}

static void conn_unlink(struct serve_conn *conn)
{
	struct rpc_serve *serve = conn->serve;

	gx_env_mutex_lock(serve->env, &serve->watch_lock);
	DL_DELETE(serve->conns, conn);
	gx_env_mutex_unlock(serve->env, &serve->watch_lock);
	serve->count--;
	serve->dispatcher->stats.connections--;
}

static void conn_main(void *arg)
{
	struct serve_conn *conn = arg;

	serve_conn_run(conn);
	gx_loop_post(conn->serve->loop, &conn->ended);
}

static void conn_free(struct serve_conn *conn)
{
	struct rpc_serve *serve = conn->serve;

	gx_env_thread_join(serve->env, &conn->thread);
	gx_loop_unpost(serve->loop, &conn->ended);
	gx_env_mutex_lock(serve->env, &serve->lock);
	conn_unlink(conn);
	gx_env_mutex_unlock(serve->env, &serve->lock);
	serve_conn_fini(conn);
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

static int on_accepted(void *arg, int fd, const struct rpc_endpoint *endpoint)
{
	struct rpc_serve *serve = arg;
	struct serve_conn *conn = calloc(1, sizeof(*conn));
	int r = conn ? 0 : -ENOMEM;

	if (r == 0) {
		conn->fd = fd;
		conn->tls = endpoint->tls;
		conn->transport = rpc_endpoint_transport(endpoint);
		conn->ended.fn = on_ended;
		r = serve_conn_init(conn, serve);
	}
	if (r < 0) {
		free(conn);
		gx_env_close(serve->env, fd);
		return r;
	}
	watch_start(serve);
	gx_env_mutex_lock(serve->env, &serve->lock);
	conn_link(conn);
	serve->dispatcher->stats.accepted++;
	r = gx_env_thread_start(serve->env, &conn->thread, "rpc-serve", conn_main, conn);
	if (r < 0)
		conn_unlink(conn);
	gx_env_mutex_unlock(serve->env, &serve->lock);
	if (r < 0) {
		serve_conn_fini(conn);
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

static int serve_init_locks(struct rpc_serve *serve)
{
	int r = gx_env_mutex_init(serve->env, &serve->lock);

	if (r < 0)
		return r;
	r = gx_env_mutex_init(serve->env, &serve->watch_lock);
	if (r == 0) {
		r = gx_env_cond_init(serve->env, &serve->watch_wake);
		if (r < 0)
			gx_env_mutex_fini(serve->env, &serve->watch_lock);
	}
	if (r < 0)
		gx_env_mutex_fini(serve->env, &serve->lock);
	return r;
}

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
	r = serve_init_locks(serve);
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
		bool idle = serve_conn_stop(conn);

		if (conn->stream_ready && (all || idle))
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
	watch_stop(serve);
	rpc_listeners_fini(&serve->listeners);
	serve->dispatcher->stats_lock = NULL;
	gx_env_cond_fini(serve->env, &serve->watch_wake);
	gx_env_mutex_fini(serve->env, &serve->watch_lock);
	gx_env_mutex_fini(serve->env, &serve->lock);
	free(serve);
}
