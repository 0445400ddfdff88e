/*
 * gx_sim_sync.c - fibers and how they wait; threads, mutexes and conditions on top.
 *
 * The context switch is a dozen instructions by hand where we know the machine:
 * swapcontext() makes two system calls each time, which would be most of a run.
 * -DGX_SIM_UCONTEXT builds the portable one.
 *
 * A thread is a fiber of the process. A mutex is not handed over at unlock: the
 * woken fiber competes with whoever comes next, as on a real machine. Conditions
 * wake spuriously now and then, because the contract allows it and code forgets.
 *
 * Mistakes that would hang or corrupt a real process are assertions here: locking
 * twice, unlocking what another holds, destroying what is in use.
 */
#include "common/gx_sim_impl.h"
#include "common/gx_log.h"
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(GX_SIM_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define GX_SIM_UCONTEXT
#endif
#ifdef GX_SIM_UCONTEXT
#include <ucontext.h>
#endif

#define SIM_STACKS_KEPT_MAX 256
#define SPURIOUS_WAKE_PERCENT 1

static _Thread_local struct sim_fiber *current_fiber;

/* -- context switch -------------------------------------------------------------- */

#ifdef GX_SIM_UCONTEXT

static void context_switch(void **from, void **to)
{
	gx_assert(swapcontext(*from, *to) == 0);
}

static void context_make(void **context, void *stack, size_t bytes, void (*entry)(void))
{
	ucontext_t *uc = sim_alloc(sizeof(*uc));

	gx_assert(getcontext(uc) == 0);
	uc->uc_stack.ss_sp = stack;
	uc->uc_stack.ss_size = bytes;
	makecontext(uc, entry, 0);
	*context = uc;
}

void sim_context_init(void **context)
{
	*context = sim_alloc(sizeof(ucontext_t));
}

void sim_context_fini(void **context)
{
	sim_free(*context);
	*context = NULL;
}

#else

/* Saves the callee-saved registers on this stack, its pointer in *from; the reverse from *to. */
void sim_context_switch(void **from, void **to);

#if defined(__x86_64__)
__asm__(".text\n"
	".type sim_context_switch, @function\n"
	"sim_context_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	subq $8, %rsp\n"
	"	stmxcsr (%rsp)\n"
	"	fnstcw 4(%rsp)\n"
	"	movq %rsp, (%rdi)\n"
	"	movq (%rsi), %rsp\n"
	"	ldmxcsr (%rsp)\n"
	"	fldcw 4(%rsp)\n"
	"	addq $8, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size sim_context_switch, . - sim_context_switch\n");

/* A stack as if the new fiber had once called sim_context_switch() from `entry`. */
static void context_make(void **context, void *stack, size_t bytes, void (*entry)(void))
{
	uint64_t *sp = (uint64_t *)((char *)stack + bytes);

	*--sp = 0; /* return address of entry: nowhere; leaves the alignment a call would */
	*--sp = (uint64_t)(uintptr_t)entry;
	for (int i = 0; i < 6; i++)
		*--sp = 0;
	*--sp = UINT64_C(0x037f00001f80); /* x87 control word and mxcsr as the ABI starts them */
	*context = sp;
}
#else
__asm__(".text\n"
	".type sim_context_switch, %function\n"
	"sim_context_switch:\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp, #0]\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	mov x9, sp\n"
	"	str x9, [x0]\n"
	"	ldr x9, [x1]\n"
	"	mov sp, x9\n"
	"	ldp x19, x20, [sp, #0]\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	ret\n"
	".size sim_context_switch, . - sim_context_switch\n");

static void context_make(void **context, void *stack, size_t bytes, void (*entry)(void))
{
	uint64_t *sp = (uint64_t *)((char *)stack + bytes) - 20;

	memset(sp, 0, 160);
	sp[11] = (uint64_t)(uintptr_t)entry; /* x30 */
	*context = sp;
}
#endif

static void context_switch(void **from, void **to)
{
	sim_context_switch(from, to);
}

void sim_context_init(void **context)
{
	*context = NULL;
}

void sim_context_fini(void **context)
{
	*context = NULL;
}
#endif

/* -- stacks: mapped with a guard page below, kept for reuse across simulations ------ */

struct stack_cache {
	void *stacks[SIM_STACKS_KEPT_MAX];
	size_t count;
	size_t bytes; /* size of those kept */
};
static _Thread_local struct stack_cache stack_cache;

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static void stack_unmap(void *stack, size_t bytes)
{
	munmap((char *)stack - page_bytes(), bytes + page_bytes());
}

static void *stack_get(size_t bytes)
{
	char *map;

	if (stack_cache.bytes == bytes && stack_cache.count > 0)
		return stack_cache.stacks[--stack_cache.count];
	map = mmap(NULL, bytes + page_bytes(), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
	gx_assert(map != MAP_FAILED);
	gx_assert(mprotect(map, page_bytes(), PROT_NONE) == 0);
	return map + page_bytes();
}

static void stack_put(void *stack, size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
	/* A killed fiber leaves the red zones of its frames behind. */
	__asan_unpoison_memory_region(stack, bytes);
#endif
	if (stack_cache.bytes != bytes) {
		while (stack_cache.count > 0)
			stack_unmap(stack_cache.stacks[--stack_cache.count], stack_cache.bytes);
		stack_cache.bytes = bytes;
	}
	if (stack_cache.count < SIM_STACKS_KEPT_MAX)
		stack_cache.stacks[stack_cache.count++] = stack;
	else
		stack_unmap(stack, bytes);
}

/* -- fibers ------------------------------------------------------------------------- */

struct sim_fiber *sim_fiber_current(void)
{
	return current_fiber;
}

static void finish_switch(void *fake_stack, struct gx_sim *from_scheduler)
{
#if defined(__SANITIZE_ADDRESS__)
	if (from_scheduler != NULL)
		__sanitizer_finish_switch_fiber(fake_stack, &from_scheduler->stack_bottom,
						&from_scheduler->stack_bytes);
	else
		__sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#else
	(void)fake_stack;
	(void)from_scheduler;
#endif
}

/* Scheduler to fiber, and back when it waits. */
void sim_fiber_resume(struct gx_sim *sim, struct sim_fiber *fiber)
{
	gx_assert(fiber->state == SIM_READY && current_fiber == NULL);
	sim->switches++;
	sim_trace(sim, fiber->id);
	sim_trace(sim, (uint64_t)sim->now_ns);
	fiber->calls = 0;
	current_fiber = fiber;
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_start_switch_fiber(&sim->fake_stack, fiber->stack, fiber->stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
	sim->tsan = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(fiber->tsan, 0);
#endif
	context_switch(&sim->context, &fiber->context);
	finish_switch(sim->fake_stack, NULL);
	current_fiber = NULL;
}

/* Fiber to scheduler; `last`: it will never be resumed. */
void sim_fiber_suspend(bool last)
{
	struct sim_fiber *fiber = current_fiber;
	struct gx_sim *sim = fiber->proc->sim;
	uint64_t request_id = gx_log_request(); /* the log keeps it per real thread */

#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_start_switch_fiber(last ? NULL : &fiber->fake_stack, sim->stack_bottom,
				       sim->stack_bytes);
#else
	(void)last;
#endif
#if defined(__SANITIZE_THREAD__)
	__tsan_switch_to_fiber(sim->tsan, 0);
#endif
	context_switch(&fiber->context, &sim->context);
	finish_switch(fiber->fake_stack, sim);
	gx_log_set_request(request_id);
}

GX_NORETURN void sim_fiber_exit(void)
{
	current_fiber->state = SIM_DONE;
	sim_fiber_suspend(true);
	abort(); /* a finished fiber was resumed */
}

static void fiber_entry(void)
{
	struct sim_fiber *fiber = current_fiber;

	finish_switch(NULL, fiber->proc->sim);
	gx_log_set_request(0);
	if (fiber->main_fn != NULL)
		fiber->main_fn(&fiber->proc->env, fiber->arg);
	else
		fiber->thread_fn(fiber->arg);
	sim_fiber_exit();
}

/* Puts a fiber where the scheduler finds it; those of a stopped process wait in `ready` state. */
void sim_fiber_make_ready(struct sim_fiber *fiber)
{
	struct gx_sim *sim = fiber->proc->sim;

	fiber->state = SIM_READY;
	if (fiber->proc->stopped || fiber->run_place != 0)
		return;
	if (sim->run_count == sim->run_max) {
		sim->run_max = GX_MAX(64, 2 * sim->run_max);
		sim->run = sim_realloc(sim->run, sim->run_max * sizeof(struct sim_fiber *));
	}
	sim->run[sim->run_count++] = fiber;
	fiber->run_place = sim->run_count;
}

void sim_fiber_unqueue(struct sim_fiber *fiber)
{
	struct gx_sim *sim = fiber->proc->sim;
	struct sim_fiber *last;

	if (fiber->run_place == 0)
		return;
	last = sim->run[--sim->run_count];
	sim->run[fiber->run_place - 1] = last;
	last->run_place = fiber->run_place;
	fiber->run_place = 0;
}

static void fiber_timer_fired(struct sim_timer *timer)
{
	sim_fiber_make_ready(GX_CONTAINER_OF(timer, struct sim_fiber, timer));
}

struct sim_fiber *sim_fiber_new(struct gx_sim_proc *proc, const char *name)
{
	struct sim_fiber *fiber = sim_alloc(sizeof(*fiber));

	fiber->id = ++proc->sim->fiber_seq;
	fiber->proc = proc;
	(void)gx_format(fiber->name, sizeof(fiber->name), "%s", name);
	fiber->why_fd = -1;
	fiber->timer.fn = fiber_timer_fired;
	fiber->stack_bytes = proc->sim->options.stack_bytes;
	fiber->stack = stack_get(fiber->stack_bytes);
	context_make(&fiber->context, fiber->stack, fiber->stack_bytes, fiber_entry);
#if defined(__SANITIZE_THREAD__)
	fiber->tsan = __tsan_create_fiber(0);
#endif
	DL_APPEND(proc->fibers, fiber);
	sim_fiber_make_ready(fiber);
	return fiber;
}

/* Gives the stack back early: a thread that ended may wait long for its join. */
void sim_fiber_release_stack(struct sim_fiber *fiber)
{
	if (fiber->stack == NULL)
		return;
	sim_context_fini(&fiber->context);
	stack_put(fiber->stack, fiber->stack_bytes);
	fiber->stack = NULL;
#if defined(__SANITIZE_THREAD__)
	__tsan_destroy_fiber(fiber->tsan);
#endif
}

static void wait_clear(struct sim_fiber *fiber)
{
	for (size_t i = 0; i < fiber->waits_count; i++) {
		struct sim_wait *w = &fiber->waits[i];

		if (w->queue != NULL)
			DL_DELETE(w->queue->head, w);
	}
	fiber->waits_count = 0;
}

void sim_fiber_free(struct sim_fiber *fiber)
{
	gx_assert(fiber != current_fiber);
	sim_timer_stop(fiber->proc->sim, &fiber->timer);
	sim_fiber_unqueue(fiber);
	wait_clear(fiber);
	sim_waitq_fini(&fiber->joiners);
	sim_fiber_release_stack(fiber);
	DL_DELETE(fiber->proc->fibers, fiber);
	sim_free(fiber->waits);
	sim_free(fiber);
}

/* -- waiting -------------------------------------------------------------------------- */

void sim_wait_add(struct sim_waitq *queue)
{
	struct sim_fiber *fiber = current_fiber;
	struct sim_wait *w;

	gx_assert(fiber != NULL); /* only fibers can wait */
	if (fiber->waits_count == fiber->waits_max) {
		/* The entries are linked: take them out of their queues while they move. */
		size_t old_count = fiber->waits_count;

		wait_clear(fiber);
		fiber->waits_max = GX_MAX(4, 2 * fiber->waits_max);
		fiber->waits = sim_realloc(fiber->waits, fiber->waits_max * sizeof(*fiber->waits));
		for (; fiber->waits_count < old_count; fiber->waits_count++) {
			w = &fiber->waits[fiber->waits_count];
			if (w->queue != NULL)
				DL_APPEND(w->queue->head, w);
		}
	}
	w = &fiber->waits[fiber->waits_count++];
	w->fiber = fiber;
	w->queue = queue;
	DL_APPEND(queue->head, w);
}

/* When the host's clock will show `local_ns`, if its rate stays. */
static int64_t clock_to_sim(const struct gx_sim_host *host, int64_t local_ns)
{
	__int128 delta = (__int128)(local_ns - host->clock_ns) * 1000000;
	__int128 rate = 1000000 + host->rate_ppm;
	__int128 at_ns = host->clock_at_ns + (delta + rate - 1) / rate;

	return at_ns < INT64_MAX ? (int64_t)at_ns : INT64_MAX;
}

int sim_wait(struct gx_sim_proc *proc, int64_t deadline_ns, const char *why, int fd)
{
	struct sim_fiber *fiber = current_fiber;
	int r = 0;

	gx_assert(fiber != NULL);
	fiber->woken = false;
	fiber->why = why;
	fiber->why_fd = fd;
	while (!fiber->woken) {
		if (deadline_ns != GX_FOREVER) {
			int64_t at_ns = clock_to_sim(proc->host, deadline_ns);

			if (sim_host_clock(proc->host) >= deadline_ns) {
				r = -ETIMEDOUT;
				break;
			}
			sim_timer_start(proc->sim, &fiber->timer,
					GX_MAX(at_ns, proc->sim->now_ns + 1));
		}
		fiber->state = SIM_WAITING;
		sim_fiber_suspend(false);
	}
	sim_timer_stop(proc->sim, &fiber->timer);
	wait_clear(fiber);
	fiber->why = NULL;
	return r;
}

int sim_wait_one(struct gx_sim_proc *proc, struct sim_waitq *queue, int64_t deadline_ns,
		 const char *why, int fd)
{
	sim_wait_add(queue);
	return sim_wait(proc, deadline_ns, why, fd);
}

int sim_pause(struct gx_sim_proc *proc, int64_t ns, int64_t deadline_ns, const char *why)
{
	int64_t until_ns = sim_host_clock(proc->host) + ns;

	(void)sim_wait(proc, GX_MIN(until_ns, deadline_ns), why, -1);
	return until_ns > deadline_ns ? -ETIMEDOUT : 0;
}

static void wake(struct sim_fiber *fiber)
{
	fiber->woken = true;
	if (fiber->state == SIM_WAITING)
		sim_fiber_make_ready(fiber);
}

void sim_wake_all(struct sim_waitq *queue)
{
	struct sim_wait *w;

	DL_FOREACH (queue->head, w) {
		wake(w->fiber);
	}
}

void sim_wake_one(struct gx_sim *sim, struct sim_waitq *queue)
{
	struct sim_wait *w;
	uint64_t asleep = 0;
	uint64_t chosen;

	DL_FOREACH (queue->head, w) {
		asleep += !w->fiber->woken;
	}
	if (asleep == 0)
		return;
	chosen = asleep > 1 ? sim_rng_below(&sim->rng, asleep) : 0;
	DL_FOREACH (queue->head, w) {
		if (!w->fiber->woken && chosen-- == 0) {
			wake(w->fiber);
			return;
		}
	}
}

void sim_waitq_fini(struct sim_waitq *queue)
{
	struct sim_wait *w;
	struct sim_wait *tmp;

	DL_FOREACH_SAFE (queue->head, w, tmp) {
		DL_DELETE(queue->head, w);
		w->queue = NULL;
		wake(w->fiber);
	}
}

struct gx_sim_proc *sim_enter(struct gx_env *env)
{
	struct gx_sim_proc *proc = sim_proc(env);
	struct gx_sim *sim = proc->sim;
	struct sim_fiber *fiber = current_fiber;

	gx_assert(!proc->ended);
	sim->now_ns += SIM_CALL_NS;
	if (fiber == NULL)
		return proc;
	if (++fiber->calls >= SIM_CALLS_MAX || sim_chance(sim, sim->options.switch_percent)) {
		sim_fiber_make_ready(fiber);
		sim_fiber_suspend(false);
	}
	return proc;
}

/* -- threads, mutexes, conditions --------------------------------------------------------- */

struct sim_mutex {
	struct sim_mutex *prev, *next; /* of the process */
	void *owner; /* NULL: free; the fiber, or the mutex itself outside fibers */
	struct sim_waitq waiters;
};

struct sim_cond {
	struct sim_cond *prev, *next;
	struct sim_waitq waiters;
};

/* Who is calling, as far as mutex ownership goes. */
static void *caller(struct sim_mutex *mutex)
{
	struct sim_fiber *fiber = current_fiber;

	return fiber != NULL ? (void *)fiber : (void *)mutex;
}

void sim_sync_proc_fini(struct gx_sim_proc *proc)
{
	struct sim_mutex *mutex;
	struct sim_mutex *mutex_tmp;
	struct sim_cond *cond;
	struct sim_cond *cond_tmp;

	DL_FOREACH_SAFE (proc->mutexes, mutex, mutex_tmp) {
		sim_free(mutex);
	}
	DL_FOREACH_SAFE (proc->conds, cond, cond_tmp) {
		sim_free(cond);
	}
	proc->mutexes = NULL;
	proc->conds = NULL;
}

int sim_op_thread_start(struct gx_env *env, struct gx_thread *t, const char *name, gx_thread_fn fn,
			void *arg)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_fiber *fiber = sim_fiber_new(proc, name != NULL ? name : "thread");

	fiber->thread_fn = fn;
	fiber->arg = arg;
	t->sim = fiber;
	return 0;
}

int sim_op_thread_join(struct gx_env *env, struct gx_thread *t)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_fiber *fiber = t->sim;

	gx_assert(fiber != NULL && fiber != sim_fiber_current());
	while (fiber->state != SIM_DONE)
		(void)sim_wait_one(proc, &fiber->joiners, GX_FOREVER, "thread to join", -1);
	t->sim = NULL;
	sim_fiber_free(fiber);
	return 0;
}

int sim_op_mutex_init(struct gx_env *env, struct gx_mutex *m)
{
	struct gx_sim_proc *proc = sim_proc(env);
	struct sim_mutex *mutex = sim_alloc(sizeof(*mutex));

	DL_APPEND(proc->mutexes, mutex);
	m->sim = mutex;
	return 0;
}

void sim_op_mutex_fini(struct gx_env *env, struct gx_mutex *m)
{
	struct sim_mutex *mutex = m->sim;

	gx_assert(mutex != NULL && mutex->owner == NULL && mutex->waiters.head == NULL);
	DL_DELETE(sim_proc(env)->mutexes, mutex);
	sim_free(mutex);
	m->sim = NULL;
}

static void mutex_take(struct gx_sim_proc *proc, struct sim_mutex *mutex)
{
	gx_assert(mutex->owner != caller(mutex));
	while (mutex->owner != NULL)
		(void)sim_wait_one(proc, &mutex->waiters, GX_FOREVER, "mutex", -1);
	mutex->owner = caller(mutex);
}

static void mutex_release(struct gx_sim_proc *proc, struct sim_mutex *mutex)
{
	gx_assert(mutex->owner == caller(mutex));
	mutex->owner = NULL;
	sim_wake_one(proc->sim, &mutex->waiters);
}

void sim_op_mutex_lock(struct gx_env *env, struct gx_mutex *m)
{
	gx_assert(m->sim != NULL);
	mutex_take(sim_enter(env), m->sim);
}

void sim_op_mutex_unlock(struct gx_env *env, struct gx_mutex *m)
{
	gx_assert(m->sim != NULL);
	mutex_release(sim_proc(env), m->sim);
	/* Afterwards, so that the others may see the lock free before we go on. */
	(void)sim_enter(env);
}

int sim_op_cond_init(struct gx_env *env, struct gx_cond *c)
{
	struct gx_sim_proc *proc = sim_proc(env);
	struct sim_cond *cond = sim_alloc(sizeof(*cond));

	DL_APPEND(proc->conds, cond);
	c->sim = cond;
	return 0;
}

void sim_op_cond_fini(struct gx_env *env, struct gx_cond *c)
{
	struct sim_cond *cond = c->sim;

	gx_assert(cond != NULL && cond->waiters.head == NULL);
	DL_DELETE(sim_proc(env)->conds, cond);
	sim_free(cond);
	c->sim = NULL;
}

int sim_op_cond_wait(struct gx_env *env, struct gx_cond *c, struct gx_mutex *m, int64_t deadline_ns)
{
	struct gx_sim_proc *proc = sim_proc(env);
	struct sim_cond *cond = c->sim;
	int r = 0;

	gx_assert(cond != NULL && m->sim != NULL);
	mutex_release(proc, m->sim);
	if (sim_chance(proc->sim, SPURIOUS_WAKE_PERCENT))
		(void)sim_pause(proc, SIM_CALL_NS, GX_FOREVER, "spurious wake-up");
	else
		r = sim_wait_one(proc, &cond->waiters, deadline_ns, "condition", -1);
	mutex_take(proc, m->sim);
	return r;
}

void sim_op_cond_signal(struct gx_env *env, struct gx_cond *c)
{
	struct gx_sim_proc *proc = sim_enter(env);

	sim_wake_one(proc->sim, &((struct sim_cond *)c->sim)->waiters);
}

void sim_op_cond_broadcast(struct gx_env *env, struct gx_cond *c)
{
	(void)sim_enter(env);
	sim_wake_all(&((struct sim_cond *)c->sim)->waiters);
}
