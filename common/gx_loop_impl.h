/*
 * gx_loop_impl.h - what the loop and its two ways of waiting share.
 *
 * The loop proper (turns, timers, posts, hooks; in gx_loop.c) is one. A
 * backend only waits and says which descriptors are ready; it calls nobody
 * back, so the order within a turn and the rules for stopping watchers are the
 * same on both. Included by gx_loop*.c only.
 */
#ifndef GX_LOOP_IMPL_H
#define GX_LOOP_IMPL_H

#include "common/gx_loop.h"

/* In gx_loop_watch.ready beside GX_READABLE and GX_WRITABLE: error or hang-up. */
#define GX_LOOP_ERROR 0x100u

/* The loop's side of a started gx_io; a backend puts it first in its own struct. */
struct gx_loop_watch {
	struct gx_io *io;                  /* NULL once stopped */
	struct gx_loop_watch *prev, *next; /* in loop->watches */
	/* In loop->ready while ready is not 0. */
	struct gx_loop_watch *ready_prev, *ready_next;
	unsigned ready; /* what the last wait reported */
};

/* The loop's side of a started gx_signal, likewise. */
struct gx_loop_signal {
	struct gx_signal *sig; /* NULL once stopped */
	struct gx_loop_signal *prev, *next;
};

struct gx_loop_timer {
	int64_t key_ns; /* the deadline, or later when set from a timer callback */
	uint64_t order; /* equal times run in the order they were started */
	struct gx_timer *timer;
};

struct gx_loop_ops {
	/* Makes and arms a watcher for io->fd and io->events; the caller links it. */
	int (*watch_new)(struct gx_loop *loop, struct gx_io *io, struct gx_loop_watch **ret_watch);
	/* Takes over io->events, which have just changed. */
	int (*watch_set)(struct gx_loop *loop, struct gx_loop_watch *watch);
	/* Disarms at once, frees now or later. */
	void (*watch_free)(struct gx_loop *loop, struct gx_loop_watch *watch);
	/* NULL where there are no signals. */
	int (*signal_new)(struct gx_loop *loop, struct gx_signal *sig, int signo,
			  struct gx_loop_signal **ret_signal);
	void (*signal_free)(struct gx_loop *loop, struct gx_loop_signal *signal);
	/* Waits until something is ready, the deadline, or a wake; reports with gx_loop_ready(). */
	int (*wait)(struct gx_loop *loop, int64_t deadline_ns);
	/* Ends the current or the next wait; any thread. */
	void (*wake)(struct gx_loop *loop);
	void (*free)(struct gx_loop *loop);
};

struct gx_loop {
	const struct gx_loop_ops *ops;
	struct gx_env *env;
	int64_t now_ns; /* at the start of the turn */
	_Atomic int64_t longest_turn_ns, longest_work_ns;
	int64_t cpu_ns,
		cpu_at_ns; /* the thread's CPU time when last looked at, and when that was */

	struct gx_loop_watch *watches; /* all started */
	struct gx_loop_watch *ready;   /* to be called in this turn */
	struct gx_loop_signal *signals;

	struct gx_loop_timer *timers; /* binary heap, soonest first */
	size_t timer_count, timer_room;
	uint64_t timer_order;
	bool in_timers; /* timer callbacks are running */

	struct gx_hook *hooks;     /* by level */
	struct gx_hook *hook_next; /* the one to run after the current, while hooks run */

	struct gx_mutex lock; /* of what follows */
	struct gx_task *posts, **posts_end;
	struct gx_task *due; /* taken off posts in this turn, not run yet */
	/* The loop's thread looks at these without the lock, to spare an idle turn the locking. */
	_Atomic bool has_posts;
	_Atomic bool stop;
	_Atomic bool asleep; /* in wait, and nobody has called wake yet */
};

/* Sets up the shared part; on failure nothing is left behind. */
GX_MUST_CHECK int gx_loop_init(struct gx_loop *loop, struct gx_env *env,
			       const struct gx_loop_ops *ops);
/* Stops all watchers and frees the shared part, but not the struct. */
void gx_loop_fini(struct gx_loop *loop);

/* From within wait: events are GX_READABLE, GX_WRITABLE and GX_LOOP_ERROR. */
void gx_loop_ready(struct gx_loop *loop, struct gx_loop_watch *watch, unsigned events);

/* The libuv loop; gx_loop_new() picks. */
GX_MUST_CHECK int gx_loop_new_uv(struct gx_env *env, struct gx_loop **ret_loop);

#endif
