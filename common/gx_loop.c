/*
 * gx_loop.c - the loop itself: turns, timers, posts, hooks, whatever way it waits.
 *
 * A turn first waits and collects what is ready, and only then calls back:
 * timers, readiness, posts, hooks. Calling back from inside the wait, as libuv
 * would have it, was rejected: its timers run before the wait and its
 * descriptors within, so work queued by a timer could sit through a long wait
 * before its end-of-turn hook, and the two backends would differ.
 *
 * Stopping in a callback. What is ready is a list of watchers; stopping one
 * takes it off the list, so memory may be reused at once and a callback never
 * comes late. Readiness is level-triggered: what is dropped is reported again.
 *
 * Sleeping and posting. The loop declares itself asleep under the lock after
 * seeing an empty queue; who posts first after that wakes it, the others need
 * not. A loop that is awake looks at the queue before it sleeps, so a post to
 * a busy loop costs a lock and no system call.
 */
#include "common/gx_loop.h"
#include "common/gx_loop_impl.h"
#include <utlist.h>

/* -- timers: a heap whose entries know their timer, whose timers know their place -- */

static void timer_place(struct gx_loop *loop, size_t index, struct gx_loop_timer entry)
{
	loop->timers[index] = entry;
	/* From 1, because NULL means stopped. */
	entry.timer->impl = (void *)(uintptr_t)(index + 1);
}

static size_t timer_index(const struct gx_timer *timer)
{
	return (size_t)(uintptr_t)timer->impl - 1;
}

static bool timer_before(const struct gx_loop_timer *a, const struct gx_loop_timer *b)
{
	return a->key_ns != b->key_ns ? a->key_ns < b->key_ns : a->order < b->order;
}

/* Puts the entry where it belongs, starting from the free place `index`. */
static void timer_settle(struct gx_loop *loop, size_t index, struct gx_loop_timer entry)
{
	while (index > 0 && timer_before(&entry, &loop->timers[(index - 1) / 2])) {
		timer_place(loop, index, loop->timers[(index - 1) / 2]);
		index = (index - 1) / 2;
	}
	for (;;) {
		size_t child = 2 * index + 1;

		if (child + 1 < loop->timer_count &&
		    timer_before(&loop->timers[child + 1], &loop->timers[child]))
			child++;
		if (child >= loop->timer_count || !timer_before(&loop->timers[child], &entry))
			break;
		timer_place(loop, index, loop->timers[child]);
		index = child;
	}
	timer_place(loop, index, entry);
}

static int timer_reserve(struct gx_loop *loop)
{
	size_t room = loop->timer_room > 0 ? loop->timer_room * 2 : 16;
	struct gx_loop_timer *timers;

	if (loop->timer_count < loop->timer_room)
		return 0;
	timers = reallocarray(loop->timers, room, sizeof(*timers));
	if (timers == NULL)
		return -ENOMEM;
	loop->timers = timers;
	loop->timer_room = room;
	return 0;
}

int gx_timer_start(struct gx_loop *loop, struct gx_timer *timer, int64_t deadline_ns,
		   gx_timer_fn fn)
{
	struct gx_loop_timer entry = {.key_ns = deadline_ns, .timer = timer};
	size_t index;
	int r;

	if (timer->impl == NULL) {
		r = gx_fault_check(loop->env, GX_FAULT_LOOP);
		if (r == 0)
			r = timer_reserve(loop);
		if (r < 0)
			return r;
		index = loop->timer_count++;
	} else {
		gx_assert(timer->loop == loop);
		index = timer_index(timer);
	}
	/* A timer that restarts itself in the past must not keep the turn from ending. */
	if (loop->in_timers && deadline_ns <= loop->now_ns)
		entry.key_ns = loop->now_ns + 1;
	entry.order = loop->timer_order++;
	timer->loop = loop;
	timer->fn = fn;
	timer->deadline_ns = deadline_ns;
	timer_settle(loop, index, entry);
	return 0;
}

void gx_timer_stop(struct gx_timer *timer)
{
	struct gx_loop *loop = timer->loop;
	size_t index;

	if (timer->impl == NULL)
		return;
	index = timer_index(timer);
	gx_assert(index < loop->timer_count && loop->timers[index].timer == timer);
	timer->impl = NULL;
	loop->timer_count--;
	if (index < loop->timer_count)
		timer_settle(loop, index, loop->timers[loop->timer_count]);
}

static void run_timers(struct gx_loop *loop)
{
	loop->in_timers = true;
	while (loop->timer_count > 0 && loop->timers[0].key_ns <= loop->now_ns) {
		struct gx_timer *timer = loop->timers[0].timer;

		gx_timer_stop(timer);
		timer->fn(timer);
	}
	loop->in_timers = false;
}

/* -- readiness ------------------------------------------------------------ */

int gx_io_start(struct gx_loop *loop, struct gx_io *io, int fd, unsigned events, gx_io_fn fn)
{
	struct gx_loop_watch *watch;
	int r;

	gx_assert(io->impl == NULL);
	r = gx_fault_check(loop->env, GX_FAULT_LOOP);
	if (r < 0)
		return r;
	io->loop = loop;
	io->fn = fn;
	io->fd = fd;
	io->events = events;
	r = loop->ops->watch_new(loop, io, &watch);
	if (r < 0)
		return r;
	watch->io = io;
	io->impl = watch;
	DL_APPEND(loop->watches, watch);
	return 0;
}

int gx_io_set(struct gx_io *io, unsigned events)
{
	unsigned old = io->events;
	int r;

	gx_assert(io->impl != NULL);
	if (events == old)
		return 0;
	r = gx_fault_check(io->loop->env, GX_FAULT_LOOP);
	if (r < 0)
		return r;
	io->events = events;
	r = io->loop->ops->watch_set(io->loop, io->impl);
	if (r < 0)
		io->events = old;
	return r;
}

static void unready(struct gx_loop *loop, struct gx_loop_watch *watch)
{
	if (watch->ready == 0)
		return;
	watch->ready = 0;
	DL_DELETE2(loop->ready, watch, ready_prev, ready_next);
}

void gx_io_stop(struct gx_io *io)
{
	struct gx_loop_watch *watch = io->impl;
	struct gx_loop *loop = io->loop;

	if (watch == NULL)
		return;
	io->impl = NULL;
	watch->io = NULL;
	unready(loop, watch);
	DL_DELETE(loop->watches, watch);
	loop->ops->watch_free(loop, watch);
}

void gx_loop_ready(struct gx_loop *loop, struct gx_loop_watch *watch, unsigned events)
{
	if (watch->ready == 0 && events != 0)
		DL_APPEND2(loop->ready, watch, ready_prev, ready_next);
	watch->ready |= events;
}

static void run_ready(struct gx_loop *loop)
{
	struct gx_loop_watch *watch;

	while ((watch = loop->ready) != NULL) {
		struct gx_io *io = watch->io;
		/* An earlier callback of this turn may have changed what is wanted. */
		unsigned events = watch->ready & io->events;

		if ((watch->ready & GX_LOOP_ERROR) && io->events != 0)
			events |= io->events | GX_READABLE;
		unready(loop, watch);
		if (events != 0)
			io->fn(io, events);
	}
}

/* -- posts ---------------------------------------------------------------- */

/* Called with the lock held: whether the caller, after unlocking, has to wake the loop. */
static bool must_wake(struct gx_loop *loop)
{
	bool asleep = loop->asleep;

	loop->asleep = false;
	return asleep;
}

void gx_loop_post(struct gx_loop *loop, struct gx_task *task)
{
	bool wake = false;

	gx_env_mutex_lock(loop->env, &loop->lock);
	if (!task->queued) {
		task->queued = true;
		task->next = NULL;
		*loop->posts_end = task;
		loop->posts_end = &task->next;
		loop->has_posts = true;
		wake = must_wake(loop);
	}
	gx_env_mutex_unlock(loop->env, &loop->lock);
	if (wake)
		loop->ops->wake(loop);
}

void gx_loop_stop(struct gx_loop *loop)
{
	bool wake;

	gx_env_mutex_lock(loop->env, &loop->lock);
	loop->stop = true;
	wake = must_wake(loop);
	gx_env_mutex_unlock(loop->env, &loop->lock);
	if (wake)
		loop->ops->wake(loop);
}

/* Runs what is queued now; what these tasks post comes in the next turn. */
static void run_posts(struct gx_loop *loop)
{
	struct gx_task *task;

	if (!loop->has_posts)
		return;
	gx_env_mutex_lock(loop->env, &loop->lock);
	loop->due = loop->posts;
	loop->posts = NULL;
	loop->posts_end = &loop->posts;
	loop->has_posts = false;
	while ((task = loop->due) != NULL) {
		loop->due = task->next;
		/* From the moment it is no longer queued another thread may queue it again. */
		task->queued = false;
		gx_env_mutex_unlock(loop->env, &loop->lock);
		task->fn(task);
		gx_env_mutex_lock(loop->env, &loop->lock);
	}
	gx_env_mutex_unlock(loop->env, &loop->lock);
}

void gx_loop_unpost(struct gx_loop *loop, struct gx_task *task)
{
	struct gx_task **at = &loop->due;

	gx_env_mutex_lock(loop->env, &loop->lock);
	if (task->queued) {
		while (*at != NULL && *at != task)
			at = &(*at)->next;
		if (*at == NULL)
			for (at = &loop->posts; *at != task; at = &(*at)->next)
				gx_assert(*at != NULL);
		*at = task->next;
		if (loop->posts_end == &task->next)
			loop->posts_end = at;
		task->queued = false;
	}
	gx_env_mutex_unlock(loop->env, &loop->lock);
}

/* -- hooks ---------------------------------------------------------------- */

void gx_hook_start(struct gx_loop *loop, struct gx_hook *hook, int level, gx_hook_fn fn)
{
	struct gx_hook **at = &loop->hooks;

	gx_assert(hook->loop == NULL);
	while (*at != NULL && (*at)->level <= level)
		at = &(*at)->next;
	hook->loop = loop;
	hook->level = level;
	hook->fn = fn;
	hook->next = *at;
	*at = hook;
}

void gx_hook_stop(struct gx_hook *hook)
{
	struct gx_loop *loop = hook->loop;
	struct gx_hook **at;

	if (loop == NULL)
		return;
	for (at = &loop->hooks; *at != hook; at = &(*at)->next)
		gx_assert(*at != NULL);
	*at = hook->next;
	if (loop->hook_next == hook)
		loop->hook_next = hook->next;
	hook->loop = NULL;
}

static void run_hooks(struct gx_loop *loop)
{
	struct gx_hook *hook;

	for (hook = loop->hooks; hook != NULL; hook = loop->hook_next) {
		loop->hook_next = hook->next;
		hook->fn(hook);
	}
	loop->hook_next = NULL;
}

/* -- signals -------------------------------------------------------------- */

int gx_signal_start(struct gx_loop *loop, struct gx_signal *sig, int signo, gx_signal_fn fn)
{
	struct gx_loop_signal *signal;
	int r;

	gx_assert(sig->impl == NULL);
	if (loop->ops->signal_new == NULL)
		return -ENOSYS;
	r = gx_fault_check(loop->env, GX_FAULT_LOOP);
	if (r == 0)
		r = loop->ops->signal_new(loop, sig, signo, &signal);
	if (r < 0)
		return r;
	signal->sig = sig;
	sig->impl = signal;
	sig->loop = loop;
	sig->fn = fn;
	DL_APPEND(loop->signals, signal);
	return 0;
}

void gx_signal_stop(struct gx_signal *sig)
{
	struct gx_loop_signal *signal = sig->impl;

	if (signal == NULL)
		return;
	sig->impl = NULL;
	signal->sig = NULL;
	DL_DELETE(sig->loop->signals, signal);
	sig->loop->ops->signal_free(sig->loop, signal);
}

/* -- the loop ------------------------------------------------------------- */

int gx_loop_init(struct gx_loop *loop, struct gx_env *env, const struct gx_loop_ops *ops)
{
	int r = gx_fault_check(env, GX_FAULT_LOOP);

	if (r == 0)
		r = gx_env_mutex_init(env, &loop->lock);
	if (r < 0)
		return r;
	loop->ops = ops;
	loop->env = env;
	loop->posts_end = &loop->posts;
	loop->now_ns = gx_env_now_ns(env);
	return 0;
}

void gx_loop_fini(struct gx_loop *loop)
{
	while (loop->watches != NULL)
		gx_io_stop(loop->watches->io);
	while (loop->signals != NULL)
		gx_signal_stop(loop->signals->sig);
	while (loop->hooks != NULL)
		gx_hook_stop(loop->hooks);
	while (loop->timer_count > 0)
		gx_timer_stop(loop->timers[0].timer);
	free(loop->timers);
	loop->timers = NULL;
	gx_env_mutex_fini(loop->env, &loop->lock);
}

int gx_loop_new(struct gx_env *env, struct gx_loop **ret_loop)
{
	return env->simulated ? gx_loop_new_poll(env, ret_loop) : gx_loop_new_uv(env, ret_loop);
}

void gx_loop_free(struct gx_loop *loop)
{
	if (loop != NULL)
		loop->ops->free(loop);
}

struct gx_env *gx_loop_env(struct gx_loop *loop)
{
	return loop->env;
}

int64_t gx_loop_now_ns(struct gx_loop *loop)
{
	return loop->now_ns;
}

int64_t gx_loop_longest_turn_ns(struct gx_loop *loop)
{
	return loop->longest_turn_ns;
}

int64_t gx_loop_longest_work_ns(struct gx_loop *loop)
{
	return loop->longest_work_ns;
}

/*
 * The CPU clock is a system call, too much for each turn. So it is looked at behind a turn only
 * when the last look is old: what a long turn has used is then known but for the turns of the last
 * GX_LOOP_CPU_LOOK_NS before it.
 */
static void count_turn(struct gx_loop *loop, int64_t end_ns)
{
	int64_t turn_ns = end_ns - loop->now_ns, cpu_ns;

	if (turn_ns > loop->longest_turn_ns)
		loop->longest_turn_ns = turn_ns;
	if (end_ns - loop->cpu_at_ns < GX_LOOP_CPU_LOOK_NS)
		return;
	cpu_ns = gx_env_cpu_ns(loop->env);
	if (turn_ns >= GX_LOOP_CPU_LOOK_NS && loop->cpu_at_ns > 0) {
		int64_t work_ns = GX_MIN(cpu_ns - loop->cpu_ns, turn_ns);

		if (work_ns > loop->longest_work_ns)
			loop->longest_work_ns = work_ns;
	}
	loop->cpu_ns = cpu_ns;
	loop->cpu_at_ns = end_ns;
}

/* How long this turn may wait; declares the loop asleep if it may at all. */
static int64_t wait_deadline(struct gx_loop *loop, int64_t now_ns)
{
	int64_t deadline_ns = loop->timer_count > 0 ? loop->timers[0].key_ns : GX_FOREVER;

	if (deadline_ns <= now_ns)
		return GX_NOWAIT;
	gx_env_mutex_lock(loop->env, &loop->lock);
	if (loop->posts != NULL || loop->stop)
		deadline_ns = GX_NOWAIT;
	else
		loop->asleep = true;
	gx_env_mutex_unlock(loop->env, &loop->lock);
	return deadline_ns;
}

/* now_ns goes in as the time of the call and comes out as the time at the turn's end. */
static int run_turn(struct gx_loop *loop, int64_t *now_ns)
{
	int r = loop->ops->wait(loop, wait_deadline(loop, *now_ns));

	/* Without the lock: who still sees the loop asleep only wakes it once too often. */
	loop->asleep = false;
	if (r < 0)
		return r;
	loop->now_ns = gx_env_now_ns(loop->env);
	run_timers(loop);
	run_ready(loop);
	run_posts(loop);
	run_hooks(loop);
	*now_ns = gx_env_now_ns(loop->env);
	count_turn(loop, *now_ns);
	return 0;
}

int gx_loop_run(struct gx_loop *loop)
{
	int64_t now_ns = gx_env_now_ns(loop->env);
	bool stop = false;
	int r = 0;

	/* At least one turn: what was posted before an early stop still runs. */
	while (r == 0 && !stop) {
		r = run_turn(loop, &now_ns);
		stop = loop->stop;
	}
	loop->stop = false;
	return r;
}
