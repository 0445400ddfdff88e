/*
 * gx_loop_poll.c - the loop's plain backend over gx_env_poll(): for the simulation,
 * and for tests that compare it with libuv's (gx_loop_uv.c).
 */
#include "common/gx_loop_impl.h"
#include <utlist.h>

struct poll_loop {
	struct gx_loop loop; /* first */
	int wake_fd;
	/* Room for all watchers and the wake event, so that waiting needs no memory. */
	struct gx_pollfd *fds;
	struct gx_loop_watch **polled; /* the watcher of each entry of fds */
	size_t room, watch_count;
};

static struct poll_loop *poll_loop_of(struct gx_loop *loop)
{
	return GX_CONTAINER_OF(loop, struct poll_loop, loop);
}

static int poll_reserve(struct poll_loop *pl, size_t count)
{
	size_t room = GX_MAX(pl->room, 16u);
	struct gx_loop_watch **polled;
	struct gx_pollfd *fds;

	if (count <= pl->room)
		return 0;
	while (room < count)
		room *= 2;
	fds = reallocarray(pl->fds, room, sizeof(*fds));
	if (fds == NULL)
		return -ENOMEM;
	pl->fds = fds;
	polled = reallocarray(pl->polled, room, sizeof(struct gx_loop_watch *));
	if (polled == NULL)
		return -ENOMEM;
	pl->polled = polled;
	pl->room = room;
	return 0;
}

static int poll_watch_new(struct gx_loop *loop, struct gx_io *io, struct gx_loop_watch **ret_watch)
{
	struct poll_loop *pl = poll_loop_of(loop);
	struct gx_loop_watch *watch;
	int r;

	/* libuv refuses this, and the backends must not be told apart. */
	DL_FOREACH (loop->watches, watch)
		if (watch->io->fd == io->fd)
			return -EEXIST;
	r = poll_reserve(pl, pl->watch_count + 2);
	if (r < 0)
		return r;
	watch = calloc(1, sizeof(*watch));
	if (watch == NULL)
		return -ENOMEM;
	pl->watch_count++;
	*ret_watch = watch;
	return 0;
}

static int poll_watch_set(struct gx_loop *loop GX_UNUSED, struct gx_loop_watch *watch GX_UNUSED)
{
	return 0; /* each wait looks at io->events */
}

static void poll_watch_free(struct gx_loop *loop, struct gx_loop_watch *watch)
{
	poll_loop_of(loop)->watch_count--;
	free(watch);
}

static int poll_wait(struct gx_loop *loop, int64_t deadline_ns)
{
	struct poll_loop *pl = poll_loop_of(loop);
	struct gx_loop_watch *watch;
	size_t count = 1;
	int r;

	pl->fds[0] = (struct gx_pollfd){.fd = pl->wake_fd, .events = GX_READABLE};
	DL_FOREACH (loop->watches, watch) {
		if (watch->io->events == 0)
			continue;
		pl->polled[count] = watch;
		pl->fds[count++] =
			(struct gx_pollfd){.fd = watch->io->fd, .events = watch->io->events};
	}
	r = gx_env_poll(loop->env, pl->fds, count, deadline_ns);
	if (r <= 0)
		return r;
	if (pl->fds[0].revents != 0) {
		r = gx_env_event_clear(loop->env, pl->wake_fd);
		if (r < 0)
			return r;
	}
	for (size_t i = 1; i < count; i++) {
		unsigned got = pl->fds[i].revents;

		/* Readable though nobody asked: that is how an error shows. */
		if (got & ~pl->fds[i].events)
			got |= GX_LOOP_ERROR;
		gx_loop_ready(loop, pl->polled[i], got);
	}
	return 0;
}

static void poll_wake(struct gx_loop *loop)
{
	int r = gx_env_event_set(loop->env, poll_loop_of(loop)->wake_fd);

	gx_assert(r == 0);
}

static void poll_free(struct gx_loop *loop)
{
	struct poll_loop *pl = poll_loop_of(loop);

	gx_loop_fini(loop);
	gx_env_close(loop->env, pl->wake_fd);
	free(pl->fds);
	free(pl->polled);
	free(pl);
}

int gx_loop_new_poll(struct gx_env *env, struct gx_loop **ret_loop)
{
	static const struct gx_loop_ops ops = {
		.watch_new = poll_watch_new,
		.watch_set = poll_watch_set,
		.watch_free = poll_watch_free,
		.wait = poll_wait,
		.wake = poll_wake,
		.free = poll_free,
	};
	GX_AUTOFREE struct poll_loop *pl = calloc(1, sizeof(*pl));
	int r;

	if (pl == NULL)
		return -ENOMEM;
	r = gx_loop_init(&pl->loop, env, &ops);
	if (r < 0)
		return r;
	pl->wake_fd = gx_env_event_open(env);
	r = pl->wake_fd < 0 ? pl->wake_fd : poll_reserve(pl, 1);
	if (r < 0) {
		if (pl->wake_fd >= 0)
			gx_env_close(env, pl->wake_fd);
		free(pl->fds);
		free(pl->polled);
		gx_loop_fini(&pl->loop);
		return r;
	}
	*ret_loop = &GX_TAKE(pl)->loop;
	return 0;
}
