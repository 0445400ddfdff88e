/*
 * gx_sim.c - scheduler, processes, descriptors and time of the simulation.
 *
 * One real thread runs a scheduler (gx_sim_run) on its own stack and switches to
 * one fiber at a time; a fiber that has to wait switches back (gx_sim_sync.c). There
 * is no preemption: a fiber loses the processor only inside an env call, so each env
 * call is a point where the seed may interleave somebody else.
 *
 * Time: sim->now_ns is the only clock; hosts derive theirs from it by an offset and
 * a rate. Hosts start with different monotonic times, so that code which compares
 * such times of two machines is caught. When no fiber can run, time jumps to the
 * earliest timer.
 */
#include "common/gx_sim.h"
#include "common/gx_sim_impl.h"
#include <stdio.h>
#include <unistd.h>
#include <utlist.h>

/* Defined by tests/lib/sim_alloc.c where a test links it: frees what a dead process left. */
extern void sim_alloc_on_death(struct gx_sim_proc *proc) __attribute__((weak));

/*
 * > 0: allocations are the simulator's own. Volatile because the compiler knows that calloc()
 * does not look at it and would drop the change; the wrapped one does.
 */
static _Thread_local volatile unsigned simulator_depth;

/* -- memory ------------------------------------------------------------------ */

void *sim_alloc(size_t bytes)
{
	void *p;

	simulator_depth = simulator_depth + 1;
	p = calloc(1, bytes > 0 ? bytes : 1);
	simulator_depth = simulator_depth - 1;
	gx_assert(p != NULL);
	return p;
}

void *sim_realloc(void *p, size_t bytes)
{
	simulator_depth = simulator_depth + 1;
	p = realloc(p, bytes);
	simulator_depth = simulator_depth - 1;
	gx_assert(p != NULL);
	return p;
}

void sim_free(void *p)
{
	free(p);
}

/* -- random: xoshiro256**, seeded by splitmix64 ------------------------------- */

static void rng_init(struct sim_rng *rng, uint64_t seed)
{
	for (size_t i = 0; i < GX_COUNT_OF(rng->s); i++) {
		uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);

		z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
		rng->s[i] = z ^ (z >> 31);
	}
}

static inline uint64_t rotate_left(uint64_t x, int bits)
{
	return (x << bits) | (x >> (64 - bits));
}

uint64_t sim_rng_next(struct sim_rng *rng)
{
	uint64_t *s = rng->s;
	uint64_t result = rotate_left(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate_left(s[3], 45);
	return result;
}

/* Multiply-shift; the bias of at most bound/2^64 does not matter here. */
uint64_t sim_rng_below(struct sim_rng *rng, uint64_t bound)
{
	gx_assert(bound > 0);
	return (uint64_t)(((unsigned __int128)sim_rng_next(rng) * bound) >> 64);
}

bool sim_chance(struct gx_sim *sim, unsigned percent)
{
	return percent > 0 && sim_rng_below(&sim->rng, 100) < percent;
}

void sim_trace(struct gx_sim *sim, uint64_t value)
{
	sim->trace = rotate_left((sim->trace ^ value) * UINT64_C(0x9e3779b97f4a7c15), 29);
}

/* -- timers -------------------------------------------------------------------- */

static bool timer_before(const struct sim_timer *a, const struct sim_timer *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static void heap_put(struct gx_sim *sim, size_t i, struct sim_timer *timer)
{
	sim->heap[i] = timer;
	timer->place = i + 1;
}

/* Moves the timer to where it belongs, starting from slot i. */
static void heap_settle(struct gx_sim *sim, size_t i, struct sim_timer *timer)
{
	while (i > 0 && timer_before(timer, sim->heap[(i - 1) / 2])) {
		heap_put(sim, i, sim->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= sim->heap_count)
			break;
		if (child + 1 < sim->heap_count &&
		    timer_before(sim->heap[child + 1], sim->heap[child]))
			child++;
		if (!timer_before(sim->heap[child], timer))
			break;
		heap_put(sim, i, sim->heap[child]);
		i = child;
	}
	heap_put(sim, i, timer);
}

void sim_timer_stop(struct gx_sim *sim, struct sim_timer *timer)
{
	struct sim_timer *last;
	size_t i = timer->place - 1;

	if (timer->place == 0)
		return;
	timer->place = 0;
	last = sim->heap[--sim->heap_count];
	if (last != timer)
		heap_settle(sim, i, last);
}

void sim_timer_start(struct gx_sim *sim, struct sim_timer *timer, int64_t at_ns)
{
	sim_timer_stop(sim, timer);
	timer->at_ns = at_ns;
	timer->seq = sim->seq++;
	if (sim->heap_count == sim->heap_max) {
		sim->heap_max = GX_MAX(64, 2 * sim->heap_max);
		sim->heap = sim_realloc(sim->heap, sim->heap_max * sizeof(*sim->heap));
	}
	sim->heap_count++;
	heap_settle(sim, sim->heap_count - 1, timer);
}

static void run_due_timers(struct gx_sim *sim)
{
	while (sim->heap_count > 0 && sim->heap[0]->at_ns <= sim->now_ns) {
		struct sim_timer *timer = sim->heap[0];

		sim_timer_stop(sim, timer);
		timer->fn(timer);
	}
}

/* -- descriptors ------------------------------------------------------------------------ */

void sim_obj_init(struct sim_obj *obj, struct gx_sim_proc *proc, enum sim_kind kind)
{
	obj->kind = kind;
	obj->refs = 1;
	obj->proc = proc;
	DL_APPEND(proc->objs, obj);
}

static void obj_destroy(struct sim_obj *obj)
{
	DL_DELETE(obj->proc->objs, obj);
	sim_waitq_fini(&obj->waiters);
	switch (obj->kind) {
	case SIM_FILE:
		sim_file_destroy(obj);
		break;
	case SIM_SOCK:
		sim_sock_destroy(obj);
		break;
	case SIM_LISTENER:
		sim_listener_destroy(obj);
		break;
	case SIM_EVENT:
		sim_free(obj);
		break;
	}
}

void sim_obj_unref(struct sim_obj *obj)
{
	gx_assert(obj->refs > 0);
	if (--obj->refs == 0)
		obj_destroy(obj);
}

/* The lowest free number, as a kernel does: stale numbers then hit somebody else's object. */
int sim_fd_install(struct gx_sim_proc *proc, struct sim_obj *obj)
{
	size_t i;

	for (i = 0; i < proc->fds_count && proc->fds[i] != NULL; i++)
		;
	if (i >= SIM_FD_MAX)
		return -EMFILE;
	if (i == proc->fds_count) {
		size_t count = GX_MAX(16, 2 * proc->fds_count);

		proc->fds = sim_realloc(proc->fds, count * sizeof(struct sim_obj *));
		memset(proc->fds + proc->fds_count, 0,
		       (count - proc->fds_count) * sizeof(struct sim_obj *));
		proc->fds_count = count;
	}
	proc->fds[i] = obj;
	return SIM_FD_FIRST + (int)i;
}

struct sim_obj *sim_fd_find(struct gx_sim_proc *proc, int fd)
{
	if (fd < SIM_FD_FIRST || (size_t)(fd - SIM_FD_FIRST) >= proc->fds_count)
		return NULL;
	return proc->fds[fd - SIM_FD_FIRST];
}

int sim_op_close(struct gx_env *env, int fd)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);

	if (obj == NULL)
		return -EBADF;
	proc->fds[fd - SIM_FD_FIRST] = NULL;
	sim_obj_unref(obj);
	return 0;
}

/* -- time and random ---------------------------------------------------------------------- */

int64_t sim_host_clock(const struct gx_sim_host *host)
{
	__int128 delta = host->sim->now_ns - host->clock_at_ns;

	return host->clock_ns + (int64_t)(delta + delta * host->rate_ppm / 1000000);
}

/* No switch point: clocks are read under locks that the simulation does not know (the log's). */
static int64_t op_now_ns(struct gx_env *env)
{
	struct gx_sim_proc *proc = sim_proc(env);

	proc->sim->now_ns += SIM_CALL_NS;
	return sim_host_clock(proc->host);
}

static int64_t op_wall_ns(struct gx_env *env)
{
	struct gx_sim_host *host = sim_proc(env)->host;

	return SIM_WALL_START_NS + op_now_ns(env) - SIM_START_NS * (host->number + 1) +
	       host->ahead_ns;
}

static int op_random(struct gx_env *env, void *buf, size_t bytes)
{
	struct gx_sim_proc *proc = sim_enter(env);
	unsigned char *p = buf;

	while (bytes > 0) {
		uint64_t word = sim_rng_next(&proc->sim->user_rng);
		size_t n = GX_MIN(bytes, sizeof(word));

		memcpy(p, &word, n);
		p += n;
		bytes -= n;
	}
	return 0;
}

static int op_sleep_until(struct gx_env *env, int64_t deadline_ns)
{
	struct gx_sim_proc *proc = sim_enter(env);

	(void)sim_wait(proc, deadline_ns, "sleep", -1);
	return 0;
}

static const struct gx_env_ops sim_ops = {
	.now_ns = op_now_ns,
	.wall_ns = op_wall_ns,
	.random = op_random,
	.sleep_until = op_sleep_until,
	.open = sim_op_open,
	.close = sim_op_close,
	.pread = sim_op_pread,
	.pwritev = sim_op_pwritev,
	.fdatasync = sim_op_fsync,
	.fsync = sim_op_fsync,
	.ftruncate = sim_op_ftruncate,
	.fallocate = sim_op_fallocate,
	.seek = sim_op_seek,
	.fstat = sim_op_fstat,
	.stat = sim_op_stat,
	.rename = sim_op_rename,
	.unlink = sim_op_unlink,
	.mkdir = sim_op_mkdir,
	.rmdir = sim_op_rmdir,
	.sync_dir = sim_op_sync_dir,
	.list_dir = sim_op_list_dir,
	.lock_file = sim_op_lock_file,
	.space = sim_op_space,
	.listen = sim_op_listen,
	.accept = sim_op_accept,
	.connect = sim_op_connect,
	.sock_name = sim_op_sock_name,
	.peer_name = sim_op_peer_name,
	.readv = sim_op_readv,
	.writev = sim_op_writev,
	.shutdown = sim_op_shutdown,
	.resolve = sim_op_resolve,
	.poll = sim_op_poll,
	.event_open = sim_op_event_open,
	.event_set = sim_op_event_set,
	.event_clear = sim_op_event_clear,
	.thread_start = sim_op_thread_start,
	.thread_join = sim_op_thread_join,
	.mutex_init = sim_op_mutex_init,
	.mutex_fini = sim_op_mutex_fini,
	.mutex_lock = sim_op_mutex_lock,
	.mutex_unlock = sim_op_mutex_unlock,
	.cond_init = sim_op_cond_init,
	.cond_fini = sim_op_cond_fini,
	.cond_wait = sim_op_cond_wait,
	.cond_signal = sim_op_cond_signal,
	.cond_broadcast = sim_op_cond_broadcast,
};

/* -- the simulation -------------------------------------------------------------------------- */

int gx_sim_new(const struct gx_sim_options *options, struct gx_sim **ret_sim)
{
	struct gx_sim *sim;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (options->latency_min_ns < 0 || options->latency_max_ns < options->latency_min_ns ||
	    options->local_latency_ns < 0 || options->socket_buffer_bytes == 0 ||
	    options->stack_bytes < 16384)
		return -EINVAL;
	sim = sim_alloc(sizeof(*sim));
	sim->options = *options;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	sim->options.stack_bytes *= 4; /* instrumented frames are larger */
#endif
	sim->options.stack_bytes = (sim->options.stack_bytes + page - 1) / page * page;
	rng_init(&sim->rng, options->seed);
	rng_init(&sim->user_rng, ~options->seed);
	sim->now_ns = SIM_START_NS;
	sim_context_init(&sim->context);
	*ret_sim = sim;
	return 0;
}

/* Everything the kernel would take back. The struct stays for gx_sim_proc_ended(). */
static void proc_reap(struct gx_sim_proc *proc)
{
	struct gx_sim *sim = proc->sim;

	gx_assert(!proc->ended &&
		  (sim_fiber_current() == NULL || sim_fiber_current()->proc != proc));
	proc->ended = true;
	while (proc->fibers != NULL)
		sim_fiber_free(proc->fibers);
	proc->main = NULL;
	while (proc->objs != NULL)
		obj_destroy(proc->objs);
	sim_free(proc->fds);
	proc->fds = NULL;
	proc->fds_count = 0;
	sim_sync_proc_fini(proc);
	if (sim->on_death != NULL)
		sim->on_death(proc);
	if (sim_alloc_on_death != NULL)
		sim_alloc_on_death(proc);
}

void gx_sim_free(struct gx_sim *sim)
{
	struct gx_sim_proc *proc;
	struct gx_sim_proc *proc_tmp;
	struct gx_sim_host *host;
	struct gx_sim_host *host_tmp;

	if (sim == NULL)
		return;
	gx_assert(sim_fiber_current() == NULL);
	DL_FOREACH_SAFE (sim->procs, proc, proc_tmp) {
		if (!proc->ended)
			proc_reap(proc);
	}
	sim_net_fini(sim);
	DL_FOREACH_SAFE (sim->procs, proc, proc_tmp) {
		sim_free(proc);
	}
	DL_FOREACH_SAFE (sim->hosts, host, host_tmp) {
		sim_disk_free(host->disk);
		sim_free(host);
	}
	sim_context_fini(&sim->context);
	sim_free(sim->heap);
	sim_free(sim->run);
	sim_free(sim);
}

int gx_sim_host_new(struct gx_sim *sim, const char *name, struct gx_sim_host **ret_host)
{
	struct gx_sim_host *host;

	if (strlen(name) >= sizeof(host->name) || sim->hosts_count >= 65534)
		return -E2BIG;
	host = sim_alloc(sizeof(*host));
	host->sim = sim;
	(void)gx_format(host->name, sizeof(host->name), "%s", name);
	host->number = ++sim->hosts_count;
	host->clock_at_ns = SIM_START_NS;
	host->clock_ns = SIM_START_NS * (host->number + 1);
	host->next_port = 32768;
	host->disk = sim_disk_new(sim);
	DL_APPEND(sim->hosts, host);
	*ret_host = host;
	return 0;
}

int gx_sim_spawn(struct gx_sim_host *host, const char *name,
		 void (*fn)(struct gx_env *env, void *arg), void *arg,
		 struct gx_sim_proc **ret_proc)
{
	struct gx_sim *sim = host->sim;
	struct gx_sim_proc *proc = sim_alloc(sizeof(*proc));

	proc->env.ops = &sim_ops;
	proc->env.simulated = true;
	proc->sim = sim;
	proc->host = host;
	(void)gx_format(proc->name, sizeof(proc->name), "%s", name);
	DL_APPEND(sim->procs, proc);
	proc->main = sim_fiber_new(proc, "main");
	proc->main->main_fn = fn;
	proc->main->arg = arg;
	if (host->down) {
		host->down = false;
		sim_net_boot(host);
	}
	if (ret_proc != NULL)
		*ret_proc = proc;
	return 0;
}

static void report_deadlock(struct gx_sim *sim)
{
	struct gx_sim_proc *proc;
	struct sim_fiber *fiber;

	fprintf(stderr, "simulation: everybody waits (seed %llu, %.6f s)\n",
		(unsigned long long)sim->options.seed, (double)gx_sim_now_ns(sim) / 1e9);
	DL_FOREACH (sim->procs, proc) {
		DL_FOREACH (proc->fibers, fiber) {
			fprintf(stderr, "  %s/%s/%s: %s", proc->host->name, proc->name, fiber->name,
				fiber->state == SIM_DONE ? "ended, not joined"
				: fiber->why != NULL     ? fiber->why
							 : "ready");
			if (fiber->why != NULL && fiber->why_fd >= 0)
				fprintf(stderr, " fd %d", fiber->why_fd);
			fprintf(stderr, "%s\n", proc->stopped ? " (process stopped)" : "");
		}
	}
}

/* After a fiber came back: it waits, or it ended, or its process is to die. */
static void after_switch(struct sim_fiber *fiber)
{
	struct gx_sim_proc *proc = fiber->proc;

	if (proc->dying || (fiber->state == SIM_DONE && fiber == proc->main)) {
		proc_reap(proc);
	} else if (fiber->state == SIM_DONE) {
		sim_fiber_release_stack(fiber);
		sim_wake_all(&fiber->joiners);
	}
}

static bool run_finished(const struct gx_sim *sim, const struct gx_sim_proc *proc)
{
	if (proc != NULL)
		return proc->ended;
	DL_FOREACH (sim->procs, proc) {
		if (!proc->ended)
			return false;
	}
	return true;
}

int gx_sim_run(struct gx_sim *sim, struct gx_sim_proc *proc)
{
	gx_assert(sim_fiber_current() == NULL);
	while (!run_finished(sim, proc)) {
		struct sim_fiber *fiber;

		run_due_timers(sim);
		while (sim->run_count == 0 && sim->heap_count > 0) {
			sim->now_ns = GX_MAX(sim->now_ns, sim->heap[0]->at_ns);
			run_due_timers(sim);
			if (gx_sim_now_ns(sim) > sim->options.time_limit_ns)
				return -ETIMEDOUT;
		}
		if (gx_sim_now_ns(sim) > sim->options.time_limit_ns)
			return -ETIMEDOUT;
		if (sim->run_count == 0) {
			report_deadlock(sim);
			return -EDEADLK;
		}
		fiber = sim->run[sim->run_count > 1 ? sim_rng_below(&sim->rng, sim->run_count) : 0];
		sim_fiber_unqueue(fiber);
		sim_fiber_resume(sim, fiber);
		after_switch(fiber);
	}
	return 0;
}

/* -- what tests do to the world -----------------------------------------------------------------
 */

bool gx_sim_proc_ended(const struct gx_sim_proc *proc)
{
	return proc->ended;
}

void gx_sim_kill(struct gx_sim_proc *proc)
{
	if (proc->ended)
		return;
	sim_trace(proc->sim, 9);
	if (sim_fiber_current() != NULL && sim_fiber_current()->proc == proc) {
		proc->dying = true;
		sim_fiber_exit();
	}
	proc_reap(proc);
}

void gx_sim_stop(struct gx_sim_proc *proc)
{
	struct sim_fiber *fiber;

	if (proc->ended || proc->stopped)
		return;
	proc->stopped = true;
	DL_FOREACH (proc->fibers, fiber) {
		sim_fiber_unqueue(fiber);
	}
	if (sim_fiber_current() != NULL && sim_fiber_current()->proc == proc)
		sim_fiber_suspend(false);
}

void gx_sim_continue(struct gx_sim_proc *proc)
{
	struct sim_fiber *fiber;

	if (proc->ended || !proc->stopped)
		return;
	proc->stopped = false;
	DL_FOREACH (proc->fibers, fiber) {
		if (fiber->state == SIM_READY)
			sim_fiber_make_ready(fiber);
	}
}

void gx_sim_power_cut(struct gx_sim_host *host)
{
	struct gx_sim_proc *proc;
	struct gx_sim_proc *self = NULL;

	sim_trace(host->sim, 10);
	host->down = true;
	DL_FOREACH (host->sim->procs, proc) {
		if (proc->host != host || proc->ended)
			continue;
		if (sim_fiber_current() != NULL && sim_fiber_current()->proc == proc)
			self = proc;
		else
			proc_reap(proc);
	}
	sim_disk_power_cut(host->disk);
	if (self != NULL)
		gx_sim_kill(self);
}

struct gx_env *gx_sim_env(struct gx_sim_proc *proc)
{
	return &proc->env;
}

struct gx_sim_host *gx_sim_proc_host(struct gx_sim_proc *proc)
{
	return proc->host;
}

void gx_sim_clock(struct gx_sim_host *host, int64_t ahead_ns, int64_t rate_ppm)
{
	gx_assert(rate_ppm > -1000000);
	host->clock_ns = sim_host_clock(host);
	host->clock_at_ns = host->sim->now_ns;
	host->ahead_ns = ahead_ns;
	host->rate_ppm = rate_ppm;
}

uint64_t gx_sim_random(struct gx_sim *sim)
{
	return sim_rng_next(&sim->user_rng);
}

uint64_t gx_sim_random_below(struct gx_sim *sim, uint64_t bound)
{
	return sim_rng_below(&sim->user_rng, bound);
}

int64_t gx_sim_now_ns(struct gx_sim *sim)
{
	return sim->now_ns - SIM_START_NS;
}

uint64_t gx_sim_trace(const struct gx_sim *sim)
{
	return sim->trace;
}

uint64_t gx_sim_switches(const struct gx_sim *sim)
{
	return sim->switches;
}

struct gx_sim_proc *gx_sim_current(void)
{
	if (sim_fiber_current() == NULL || simulator_depth > 0)
		return NULL;
	return sim_fiber_current()->proc;
}

void gx_sim_on_death(struct gx_sim *sim, void (*fn)(struct gx_sim_proc *proc))
{
	sim->on_death = fn;
}
