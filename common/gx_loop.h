/*
 * gx_loop.h - the event loop of a daemon: readiness, timers, posts, end of turn.
 *
 * Thin on purpose. On the real machine it is libuv (gx_loop_uv.c); in the
 * simulation, or when asked for, it is a plain loop over gx_env_poll()
 * (gx_loop_poll.c). Product code cannot tell which.
 *
 * A turn = wait, then timers, then readiness callbacks, then posted tasks,
 * then the end-of-turn hooks in order of their level. metad commits the turn's
 * commands in a hook of a low level; the rpc server flushes replies in one of
 * a high level; so one log write covers all requests of the turn.
 *
 * Threads: a loop belongs to the thread that runs it. Only gx_loop_post() and
 * gx_loop_stop() may be called from elsewhere.
 *
 * Life of watchers: `_start` registers an embedded struct, `_stop` unregisters
 * it; after `_stop` returns the callback will not be called again and the
 * memory may be reused at once. `_stop` on a stopped watcher does nothing.
 * Callbacks may start and stop any watcher, their own included.
 */
#ifndef GX_LOOP_H
#define GX_LOOP_H

#include "common/gx_env.h"

struct gx_loop;

struct gx_io;
typedef void (*gx_io_fn)(struct gx_io *io, unsigned events);
struct gx_io {
	void *impl; /* NULL: stopped */
	struct gx_loop *loop;
	gx_io_fn fn;
	int fd;
	unsigned events;
};

struct gx_timer;
typedef void (*gx_timer_fn)(struct gx_timer *timer);
struct gx_timer {
	void *impl;
	struct gx_loop *loop;
	gx_timer_fn fn;
	int64_t deadline_ns;
};

/* Work handed over from another thread; embedded, queued at most once at a time. */
struct gx_task;
typedef void (*gx_task_fn)(struct gx_task *task);
struct gx_task {
	struct gx_task *next;
	gx_task_fn fn;
	bool queued; /* under the loop's post lock */
};

/* Called at the end of every turn until stopped. */
struct gx_hook;
typedef void (*gx_hook_fn)(struct gx_hook *hook);
struct gx_hook {
	struct gx_hook *next;
	struct gx_loop *loop; /* NULL: stopped */
	gx_hook_fn fn;
	int level; /* lower runs first */
};

struct gx_signal;
typedef void (*gx_signal_fn)(struct gx_signal *sig, int signo);
struct gx_signal {
	void *impl;
	struct gx_loop *loop;
	gx_signal_fn fn;
};

/* The loop that fits env: poll loop if env->simulated, else libuv. */
GX_MUST_CHECK int gx_loop_new(struct gx_env *env, struct gx_loop **ret_loop);
/* The poll loop on any env (tests compare the two). */
GX_MUST_CHECK int gx_loop_new_poll(struct gx_env *env, struct gx_loop **ret_loop);
/* All watchers are stopped by it; the loop must not be running. */
void gx_loop_free(struct gx_loop *loop);
GX_DEFINE_CLEANUP(struct gx_loop *, gx_loop_free)

/* Runs until gx_loop_stop(). 0, or negative errno if waiting itself failed. */
int gx_loop_run(struct gx_loop *loop);
/* Ends the run after the current turn; may be called before the run. Any thread. */
void gx_loop_stop(struct gx_loop *loop);

struct gx_env *gx_loop_env(struct gx_loop *loop);
/* Monotonic time at the start of this turn: cheap, for time-outs. */
int64_t gx_loop_now_ns(struct gx_loop *loop);
/* Longest turn so far (callbacks only, not waiting), in ns: rule N17's counter. */
int64_t gx_loop_longest_turn_ns(struct gx_loop *loop);
/*
 * The longest a turn has kept the CPU, at most GX_LOOP_CPU_LOOK_NS too much: what the turns do
 * themselves, without waiting for a disk, a lock or a CPU. 0: none took GX_LOOP_CPU_LOOK_NS.
 */
int64_t gx_loop_longest_work_ns(struct gx_loop *loop);
#define GX_LOOP_CPU_LOOK_NS GX_NSEC_PER_MSEC

GX_MUST_CHECK int gx_io_start(struct gx_loop *loop, struct gx_io *io, int fd, unsigned events,
			      gx_io_fn fn);
/* Changes what a started watcher waits for; 0 pauses it. */
GX_MUST_CHECK int gx_io_set(struct gx_io *io, unsigned events);
/* Must come before the descriptor is closed. */
void gx_io_stop(struct gx_io *io);

/* One shot at an absolute time; restarting moves it. */
GX_MUST_CHECK int gx_timer_start(struct gx_loop *loop, struct gx_timer *timer, int64_t deadline_ns,
				 gx_timer_fn fn);
void gx_timer_stop(struct gx_timer *timer);

/* From any thread; the task's memory must stay until it ran. A queued task is not queued twice. */
void gx_loop_post(struct gx_loop *loop, struct gx_task *task);
/* Takes a queued task back: it will not run and its memory may go. On the loop's thread, or
 * when the loop does not run; does nothing if the task is not queued. */
void gx_loop_unpost(struct gx_loop *loop, struct gx_task *task);

void gx_hook_start(struct gx_loop *loop, struct gx_hook *hook, int level, gx_hook_fn fn);
void gx_hook_stop(struct gx_hook *hook);

/* Real loop only; -ENOSYS on the poll loop. */
GX_MUST_CHECK int gx_signal_start(struct gx_loop *loop, struct gx_signal *sig, int signo,
				  gx_signal_fn fn);
void gx_signal_stop(struct gx_signal *sig);

#endif
