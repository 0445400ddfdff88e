/*
 * gx_loop_uv.c - waiting with libuv: the backend of gx_loop on the real machine.
 *
 * Each turn of our loop is one iteration of libuv's, in which its callbacks
 * only note what happened (gx_loop.c tells why). Signals are the
 * exception: their callback runs inside the wait, before the turn's timers.
 *
 * libuv closes handles late: the memory of a watcher is ours, freed in the
 * close callback, so that a stopped gx_io is free for reuse at once. The
 * descriptor itself leaves the epoll set in uv_close(), not later, and may be
 * closed right after gx_io_stop().
 *
 * One uv timer stands for our whole heap of timers. uv_now() is CLOCK_MONOTONIC
 * in milliseconds, the env's clock, so absolute times carry over; they are
 * rounded up, so that a wake-up is never too early.
 */
/* Before ours: libuv includes dirent.h, whose readdir_r we ban. */
#include <uv.h>

#include "common/gx_loop_impl.h"

#define NOT_ARMED UINT64_MAX

struct uv_backend {
	struct gx_loop loop; /* first */
	uv_loop_t uv;
	uv_async_t wake;
	uv_timer_t timer;
	uint64_t armed_ms; /* when timer fires, on libuv's clock; or NOT_ARMED */
	bool timer_active;
};

struct uv_watch {
	struct gx_loop_watch watch; /* first */
	struct gx_loop *loop;
	uv_poll_t poll;
};

struct uv_sig {
	struct gx_loop_signal signal; /* first */
	uv_signal_t handle;
};

/* libuv's codes are negative errno here, but for those of its own, below -3000. */
static int uv_result(int r)
{
	if (r >= 0)
		return 0;
	return r > -3000 ? r : -EIO;
}

static struct uv_backend *backend_of(struct gx_loop *loop)
{
	return GX_CONTAINER_OF(loop, struct uv_backend, loop);
}

static struct uv_watch *watch_of(struct gx_loop_watch *watch)
{
	return GX_CONTAINER_OF(watch, struct uv_watch, watch);
}

/* -- readiness ------------------------------------------------------------ */

static int poll_arm(struct uv_watch *w, unsigned events);

static void on_poll(uv_poll_t *poll, int status, int uv_events)
{
	struct uv_watch *w = poll->data;
	unsigned events = (uv_events & UV_READABLE ? GX_READABLE : 0) |
			  (uv_events & UV_WRITABLE ? GX_WRITABLE : 0);

	if (status < 0) {
		/* libuv has stopped the handle; ours stays level-triggered until its owner stops
		 * it. */
		events = GX_LOOP_ERROR;
		(void)poll_arm(w, w->watch.io->events);
	}
	gx_loop_ready(w->loop, &w->watch, events);
}

static int poll_arm(struct uv_watch *w, unsigned events)
{
	int wanted =
		(events & GX_READABLE ? UV_READABLE : 0) | (events & GX_WRITABLE ? UV_WRITABLE : 0);

	return uv_result(wanted != 0 ? uv_poll_start(&w->poll, wanted, on_poll)
				     : uv_poll_stop(&w->poll));
}

static void on_watch_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static int uvb_watch_new(struct gx_loop *loop, struct gx_io *io, struct gx_loop_watch **ret_watch)
{
	struct uv_watch *w = calloc(1, sizeof(*w));
	int r;

	if (w == NULL)
		return -ENOMEM;
	r = uv_result(uv_poll_init(&backend_of(loop)->uv, &w->poll, io->fd));
	if (r < 0) {
		free(w);
		return r;
	}
	w->loop = loop;
	w->poll.data = w;
	r = poll_arm(w, io->events);
	if (r < 0) {
		uv_close((uv_handle_t *)&w->poll, on_watch_closed);
		return r;
	}
	*ret_watch = &w->watch;
	return 0;
}

static int uvb_watch_set(struct gx_loop *loop GX_UNUSED, struct gx_loop_watch *watch)
{
	return poll_arm(watch_of(watch), watch->io->events);
}

static void uvb_watch_free(struct gx_loop *loop GX_UNUSED, struct gx_loop_watch *watch)
{
	uv_close((uv_handle_t *)&watch_of(watch)->poll, on_watch_closed);
}

/* -- signals -------------------------------------------------------------- */

static void on_signal(uv_signal_t *handle, int signo)
{
	struct uv_sig *s = handle->data;

	s->signal.sig->fn(s->signal.sig, signo);
}

static int uvb_signal_new(struct gx_loop *loop, struct gx_signal *sig GX_UNUSED, int signo,
			  struct gx_loop_signal **ret_signal)
{
	struct uv_sig *s = calloc(1, sizeof(*s));
	int r;

	if (s == NULL)
		return -ENOMEM;
	r = uv_result(uv_signal_init(&backend_of(loop)->uv, &s->handle));
	if (r < 0) {
		free(s);
		return r;
	}
	s->handle.data = s;
	r = uv_result(uv_signal_start(&s->handle, on_signal, signo));
	if (r < 0) {
		uv_close((uv_handle_t *)&s->handle, on_watch_closed);
		return r;
	}
	*ret_signal = &s->signal;
	return 0;
}

static void uvb_signal_free(struct gx_loop *loop GX_UNUSED, struct gx_loop_signal *signal)
{
	struct uv_sig *s = GX_CONTAINER_OF(signal, struct uv_sig, signal);

	uv_close((uv_handle_t *)&s->handle, on_watch_closed);
}

/* -- waiting -------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
	/* Our loop runs the timers; the next wait arms this one afresh. */
	((struct uv_backend *)timer->data)->armed_ms = NOT_ARMED;
}

static int arm_timer(struct uv_backend *b, int64_t deadline_ns)
{
	uint64_t due_ms = (uint64_t)(deadline_ns / GX_NSEC_PER_MSEC) +
			  (deadline_ns % GX_NSEC_PER_MSEC != 0 ? 1 : 0);
	uint64_t now_ms = uv_now(&b->uv);

	if (deadline_ns == GX_FOREVER) {
		if (b->timer_active)
			uv_timer_stop(&b->timer);
		b->timer_active = false;
		b->armed_ms = NOT_ARMED;
		return 0;
	}
	if (b->timer_active && b->armed_ms == due_ms)
		return 0;
	b->timer_active = true;
	b->armed_ms = due_ms;
	/*
	 * It repeats, because libuv also runs timers before it waits: one that
	 * comes due between our look at the clock and libuv's would be spent
	 * there, and the wait would have no end.
	 */
	return uv_result(
		uv_timer_start(&b->timer, on_timer, due_ms > now_ms ? due_ms - now_ms : 0, 1));
}

static int uvb_wait(struct gx_loop *loop, int64_t deadline_ns)
{
	struct uv_backend *b = backend_of(loop);
	int r;

	if (deadline_ns == GX_NOWAIT) {
		uv_run(&b->uv, UV_RUN_NOWAIT);
		return 0;
	}
	r = arm_timer(b, deadline_ns);
	if (r < 0)
		return r;
	uv_run(&b->uv, UV_RUN_ONCE);
	return 0;
}

static void on_wake(uv_async_t *wake GX_UNUSED)
{
	/* Only there to end the wait. */
}

static void uvb_wake(struct gx_loop *loop)
{
	int r = uv_async_send(&backend_of(loop)->wake);

	gx_assert(r == 0);
}

/* -- life ----------------------------------------------------------------- */

/* Lets libuv call the close callbacks that are due, then frees it. */
static void close_uv(struct uv_backend *b)
{
	int r;

	uv_run(&b->uv, UV_RUN_DEFAULT);
	r = uv_loop_close(&b->uv);
	gx_assert(r == 0);
}

static void uvb_free(struct gx_loop *loop)
{
	struct uv_backend *b = backend_of(loop);

	gx_loop_fini(loop);
	uv_close((uv_handle_t *)&b->wake, NULL);
	uv_close((uv_handle_t *)&b->timer, NULL);
	close_uv(b);
	free(b);
}

static int open_uv(struct uv_backend *b)
{
	int r = uv_result(uv_loop_init(&b->uv));

	if (r < 0)
		return r;
	r = uv_result(uv_async_init(&b->uv, &b->wake, on_wake));
	if (r < 0) {
		close_uv(b);
		return r;
	}
	r = uv_result(uv_timer_init(&b->uv, &b->timer));
	if (r < 0) {
		uv_close((uv_handle_t *)&b->wake, NULL);
		close_uv(b);
		return r;
	}
	b->timer.data = b;
	b->armed_ms = NOT_ARMED;
	return 0;
}

int gx_loop_new_uv(struct gx_env *env, struct gx_loop **ret_loop)
{
	static const struct gx_loop_ops ops = {
		.watch_new = uvb_watch_new,
		.watch_set = uvb_watch_set,
		.watch_free = uvb_watch_free,
		.signal_new = uvb_signal_new,
		.signal_free = uvb_signal_free,
		.wait = uvb_wait,
		.wake = uvb_wake,
		.free = uvb_free,
	};
	GX_AUTOFREE struct uv_backend *b = calloc(1, sizeof(*b));
	int r;

	if (b == NULL)
		return -ENOMEM;
	r = gx_loop_init(&b->loop, env, &ops);
	if (r < 0)
		return r;
	r = open_uv(b);
	if (r < 0) {
		gx_loop_fini(&b->loop);
		return r;
	}
	*ret_loop = &GX_TAKE(b)->loop;
	return 0;
}
