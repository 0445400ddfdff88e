#define GX_LOG_COMPONENT "rpc.listener"
#include "rpc/rpc_listener.h"
#include "common/gx_hash.h"
#include "common/gx_log.h"
#include <sys/un.h>

#define BACKLOG 1024
#define ACCEPTS_PER_TURN 64
#define RETRY_NS (100 * GX_NSEC_PER_MSEC)

struct rpc_listener {
	struct rpc_listener *next;
	struct rpc_listeners *owner;
	struct gx_io io;
	struct rpc_endpoint endpoint;
};

static void on_retry(struct gx_timer *timer);

/* For want of room, descriptors, memory or threads: nobody may tell us when there are some again.
 */
static void retry_later(struct rpc_listeners *listeners)
{
	int64_t at_ns = gx_loop_now_ns(listeners->loop) + RETRY_NS;

	/* Without a timer either, only the owner's own calls of rpc_listeners_resume() are left. */
	GX_IGNORE(gx_timer_start(listeners->loop, &listeners->retry, at_ns, on_retry));
}

static void set_paused(struct rpc_listeners *listeners, bool paused)
{
	struct rpc_listener *l;

	if (listeners->paused == paused)
		return;
	listeners->paused = paused;
	LL_FOREACH (listeners->list, l) {
		/* One that cannot be paused only wakes in vain; one that cannot be resumed is deaf.
		 */
		if (gx_io_set(&l->io, paused ? 0 : GX_READABLE) < 0 && !paused)
			listeners->paused = true;
	}
	if (!paused && listeners->paused)
		retry_later(listeners);
}

static void on_retry(struct gx_timer *timer)
{
	rpc_listeners_resume(GX_CONTAINER_OF(timer, struct rpc_listeners, retry));
}

static void on_accept(struct gx_io *io, unsigned events GX_UNUSED)
{
	struct rpc_listener *l = GX_CONTAINER_OF(io, struct rpc_listener, io);
	struct rpc_listeners *listeners = l->owner;
	struct gx_env *env = gx_loop_env(listeners->loop);

	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd, r;

		if (!listeners->has_room(listeners->arg)) {
			set_paused(listeners, true);
			retry_later(listeners);
			return;
		}
		fd = gx_env_accept(env, l->io.fd);
		if (fd == -EAGAIN || fd == -ECONNABORTED)
			return;
		r = fd < 0 ? fd : listeners->accepted(listeners->arg, fd, &l->endpoint);
		/* Gone before we looked: its trouble, and no reason to keep others waiting. */
		if (r == -ENOTCONN || r == -ECONNRESET)
			continue;
		if (r < 0) {
			/* Out of descriptors, memory or threads: wait, do not spin. */
			gx_log(WARNING, "cannot accept a connection", GX_KE(r));
			set_paused(listeners, true);
			retry_later(listeners);
			return;
		}
	}
}

int rpc_listeners_add(struct rpc_listeners *listeners, const struct rpc_endpoint *endpoint,
		      struct rpc_endpoint *ret_bound)
{
	struct gx_env *env = gx_loop_env(listeners->loop);
	struct rpc_listener *l;
	int fd, r;

	if (endpoint->tls && !listeners->tls) {
		r = rpc_tls_ctx_new_server(listeners->auth, &listeners->tls);
		if (r < 0)
			return r;
	}
	if (endpoint->insecure)
		gx_log(WARNING,
		       "INSECURE: listening without TLS beyond this machine, as configured");
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->owner = listeners;
	l->endpoint = *endpoint;
	fd = gx_env_listen(env, &endpoint->addr, BACKLOG);
	if (fd < 0) {
		free(l);
		return fd;
	}
	r = gx_env_sock_name(env, fd, &l->endpoint.addr);
	if (r == 0)
		r = gx_io_start(listeners->loop, &l->io, fd, GX_READABLE, on_accept);
	if (r < 0) {
		gx_env_close(env, fd);
		free(l);
		return r;
	}
	LL_PREPEND(listeners->list, l);
	if (ret_bound)
		*ret_bound = l->endpoint;
	return 0;
}

void rpc_listeners_resume(struct rpc_listeners *listeners)
{
	set_paused(listeners, false);
}

void rpc_listeners_close(struct rpc_listeners *listeners)
{
	struct gx_env *env = gx_loop_env(listeners->loop);

	gx_timer_stop(&listeners->retry);
	while (listeners->list) {
		struct rpc_listener *l = listeners->list;

		LL_DELETE(listeners->list, l);
		gx_io_stop(&l->io);
		gx_env_close(env, l->io.fd);
		if (l->endpoint.addr.kind == GX_ADDR_UNIX) {
			const struct sockaddr_un *un = (const void *)&l->endpoint.addr.sa;

			/* So that a client sees "not there" instead of "refused". */
			GX_IGNORE(gx_env_unlink(env, un->sun_path));
		}
		free(l);
	}
}

void rpc_listeners_fini(struct rpc_listeners *listeners)
{
	rpc_listeners_close(listeners);
	rpc_tls_ctx_free(listeners->tls);
	listeners->tls = NULL;
}
