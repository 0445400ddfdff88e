/*
 * gx_sim_impl.h - what the files of the simulation share; nobody else includes it.
 *
 * gx_sim.c       scheduler, processes, descriptors, time
 * gx_sim_sync.c  fibers, waiting, threads, mutexes, conditions
 * gx_sim_link.c  connections: what travels between hosts
 * gx_sim_net.c   sockets, poll, events
 * gx_sim_disk.c  disks
 * gx_sim_fs.c    files and directories on them
 *
 * Rules that keep a seed replaying: every choice draws from sim->rng; nothing is
 * ordered by address or by real time; lists are walked in order of insertion.
 *
 * Memory: simulator state is allocated with sim_alloc() and never charged to the
 * process whose fiber happens to run. Running out of memory aborts: tests do not
 * inject allocation failures into the simulator.
 */
#ifndef GX_SIM_IMPL_H
#define GX_SIM_IMPL_H

#include "common/gx_sim.h"

#define SIM_START_NS (1000 * GX_NSEC_PER_SEC)
#define SIM_WALL_START_NS (INT64_C(1767225600) * GX_NSEC_PER_SEC) /* 2026-01-01 */
#define SIM_FD_FIRST 512 /* above what the test process itself has open, so mix-ups fail */
#define SIM_FD_MAX 4096
#define SIM_CALL_NS 20     /* virtual cost of one env call */
#define SIM_CALLS_MAX 1024 /* calls in a row after which a fiber must let others run */
#define SIM_NAME_MAX 32
#define SIM_CUTS_MAX 8

/* Memory that belongs to the simulator. Never NULL. */
void *sim_alloc(size_t bytes); /* zeroed */
void *sim_realloc(void *p, size_t bytes);
void sim_free(void *p);

struct sim_rng {
	uint64_t s[4];
};

uint64_t sim_rng_next(struct sim_rng *rng);
uint64_t sim_rng_below(struct sim_rng *rng, uint64_t bound);

/* -- timers: a heap ordered by (at_ns, seq) -------------------------------- */

struct sim_timer {
	int64_t at_ns; /* simulation time */
	uint64_t seq;  /* order of arming, so equal times have one order */
	size_t place;  /* index in the heap + 1; 0 when idle */
	void (*fn)(struct sim_timer *timer);
};

void sim_timer_start(struct gx_sim *sim, struct sim_timer *timer, int64_t at_ns);
void sim_timer_stop(struct gx_sim *sim, struct sim_timer *timer);

/* -- fibers and waiting ---------------------------------------------------- */

struct sim_fiber;
struct sim_waitq;

struct sim_wait {
	struct sim_fiber *fiber;
	struct sim_waitq *queue; /* NULL once the queue has gone */
	struct sim_wait *prev, *next;
};

struct sim_waitq {
	struct sim_wait *head;
};

enum sim_fiber_state { SIM_READY, SIM_WAITING, SIM_DONE };

struct sim_fiber {
	uint64_t id; /* in order of birth */
	struct gx_sim_proc *proc;
	struct sim_fiber *prev, *next; /* of the process */
	char name[SIM_NAME_MAX];
	enum sim_fiber_state state;
	size_t run_place; /* index in sim->run + 1; 0 when not there */
	bool woken;       /* a queue woke it, not its timer */
	unsigned calls;   /* env calls since it was resumed */
	struct sim_timer timer;
	const char *why; /* what it waits for, for the deadlock report */
	int why_fd;      /* -1: none */

	struct sim_wait *waits; /* reused by each wait */
	size_t waits_count, waits_max;
	struct sim_waitq joiners;

	void (*main_fn)(struct gx_env *env, void *arg); /* first fiber of a process */
	gx_thread_fn thread_fn;                         /* the others */
	void *arg;

	void *stack; /* NULL once given back */
	size_t stack_bytes;
	void *context;    /* saved stack pointer, or the ucontext_t */
	void *fake_stack; /* ASan's */
	void *tsan;       /* TSan's fiber */
};

/* The running fiber, or NULL outside. */
struct sim_fiber *sim_fiber_current(void);
struct sim_fiber *sim_fiber_new(struct gx_sim_proc *proc, const char *name);
void sim_fiber_free(struct sim_fiber *fiber);
/* Scheduler to fiber; returns when the fiber waits or has ended. */
void sim_fiber_resume(struct gx_sim *sim, struct sim_fiber *fiber);
/* The running fiber to the scheduler; `last`: it will never be resumed. */
void sim_fiber_suspend(bool last);
/* The running fiber ends, by itself or because its process is to die. */
GX_NORETURN void sim_fiber_exit(void);
/* Puts a fiber where the scheduler finds it; one of a stopped process stays out of there. */
void sim_fiber_make_ready(struct sim_fiber *fiber);
void sim_fiber_unqueue(struct sim_fiber *fiber);
/* Gives the stack back early: a thread that ended may wait long for its join. */
void sim_fiber_release_stack(struct sim_fiber *fiber);
/* Where the scheduler's own context is saved. */
void sim_context_init(void **context);
void sim_context_fini(void **context);

/*
 * Waiting: sim_wait_add() for each queue, then sim_wait() until one of them wakes
 * the fiber (0) or the deadline on the process's clock passes (-ETIMEDOUT).
 */
void sim_wait_add(struct sim_waitq *queue);
int sim_wait(struct gx_sim_proc *proc, int64_t deadline_ns, const char *why, int fd);
int sim_wait_one(struct gx_sim_proc *proc, struct sim_waitq *queue, int64_t deadline_ns,
		 const char *why, int fd);
/* Sleeps `ns`, at most until the deadline: 0, or -ETIMEDOUT when the deadline came first. */
int sim_pause(struct gx_sim_proc *proc, int64_t ns, int64_t deadline_ns, const char *why);
void sim_wake_all(struct sim_waitq *queue);
/* Wakes one fiber not woken yet, chosen by the seed. */
void sim_wake_one(struct gx_sim *sim, struct sim_waitq *queue);
/* The queue's memory is about to go. */
void sim_waitq_fini(struct sim_waitq *queue);

/* -- hosts and processes --------------------------------------------------- */

struct sim_disk;
struct sim_conn;
struct sim_listener;

struct gx_sim_host {
	struct gx_sim *sim;
	struct gx_sim_host *prev, *next;
	char name[GX_NAME_USER_MAX];
	unsigned number; /* from 1 */
	bool down;       /* power was cut, nothing spawned since */

	int64_t clock_ns; /* local monotonic time at clock_at_ns */
	int64_t clock_at_ns;
	int64_t rate_ppm;
	int64_t ahead_ns;

	uint16_t next_port;
	struct sim_disk *disk;
};

enum sim_kind { SIM_FILE, SIM_SOCK, SIM_LISTENER, SIM_EVENT };

/* Behind a descriptor. A call that waits holds a reference, as in a kernel. */
struct sim_obj {
	enum sim_kind kind;
	unsigned refs;
	struct gx_sim_proc *proc;
	struct sim_obj *prev, *next; /* proc->objs */
	struct sim_waitq waiters;
};

struct sim_mutex;
struct sim_cond;

struct gx_sim_proc {
	struct gx_env env;
	struct gx_sim *sim;
	struct gx_sim_host *host;
	struct gx_sim_proc *prev, *next; /* sim->procs */
	char name[SIM_NAME_MAX];
	struct sim_fiber *fibers;
	struct sim_fiber *main;
	bool stopped, dying, ended;
	struct sim_obj **fds;
	size_t fds_count;
	struct sim_obj *objs;
	struct sim_mutex *mutexes;
	struct sim_cond *conds;
};

struct sim_partition {
	struct gx_sim_host *a, *b;
	int64_t since_ns;
};

struct gx_sim {
	struct gx_sim_options options;
	struct sim_rng rng;      /* schedule, latency, coins */
	struct sim_rng user_rng; /* random() and gx_sim_random() */
	int64_t now_ns;
	uint64_t seq, fiber_seq, switches, trace;

	struct sim_timer **heap;
	size_t heap_count, heap_max;
	struct sim_fiber **run;
	size_t run_count, run_max;

	struct gx_sim_host *hosts;
	unsigned hosts_count;
	struct gx_sim_proc *procs;
	void (*on_death)(struct gx_sim_proc *proc);

	void *context; /* of the scheduler, while a fiber runs */
	void *fake_stack;
	const void *stack_bottom;
	size_t stack_bytes;
	void *tsan;

	struct sim_conn *conns;
	struct sim_listener *listeners;
	struct sim_partition *partitions;
	size_t partitions_count;
	/* For the connections to come, in order. */
	uint64_t cuts[GX_SIM_DIRECTION_COUNT][SIM_CUTS_MAX];
	size_t cuts_count[GX_SIM_DIRECTION_COUNT];
	uint64_t passed_bytes[GX_SIM_DIRECTION_COUNT];
	uint64_t clients; /* to number unnamed mem clients */
};

static inline struct gx_sim_proc *sim_proc(struct gx_env *env)
{
	return GX_CONTAINER_OF(env, struct gx_sim_proc, env);
}

/* Start of every env call: time passes, and perhaps another fiber runs first. */
struct gx_sim_proc *sim_enter(struct gx_env *env);
void sim_trace(struct gx_sim *sim, uint64_t value);
bool sim_chance(struct gx_sim *sim, unsigned percent);
int64_t sim_host_clock(const struct gx_sim_host *host);

/* -- descriptors ----------------------------------------------------------- */

void sim_obj_init(struct sim_obj *obj, struct gx_sim_proc *proc, enum sim_kind kind);
void sim_obj_unref(struct sim_obj *obj);
/* Takes over one reference: a descriptor, or -EMFILE (then the reference stays the caller's). */
int sim_fd_install(struct gx_sim_proc *proc, struct sim_obj *obj);
struct sim_obj *sim_fd_find(struct gx_sim_proc *proc, int fd);
int sim_op_close(struct gx_env *env, int fd);

/* Called when the last reference goes, or the process dies; they free the object. */
void sim_file_destroy(struct sim_obj *obj);
void sim_sock_destroy(struct sim_obj *obj);
void sim_listener_destroy(struct sim_obj *obj);

/* -- life of the parts ------------------------------------------------------ */

void sim_sync_proc_fini(struct gx_sim_proc *proc);
struct sim_disk *sim_disk_new(struct gx_sim *sim);
void sim_disk_free(struct sim_disk *disk);
void sim_disk_power_cut(struct sim_disk *disk);
void sim_net_boot(struct gx_sim_host *host);
void sim_net_fini(struct gx_sim *sim);

/* -- the operations --------------------------------------------------------- */

int sim_op_open(struct gx_env *env, const char *path, int flags, mode_t mode);
ssize_t sim_op_pread(struct gx_env *env, int fd, void *buf, size_t bytes, uint64_t offset);
ssize_t sim_op_pwritev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		       uint64_t offset);
int sim_op_fsync(struct gx_env *env, int fd);
int sim_op_ftruncate(struct gx_env *env, int fd, uint64_t bytes);
int sim_op_fallocate(struct gx_env *env, int fd, int mode, uint64_t offset, uint64_t bytes);
int sim_op_seek(struct gx_env *env, int fd, uint64_t offset, bool hole, uint64_t *ret_offset);
int sim_op_fstat(struct gx_env *env, int fd, struct stat *ret_st);
int sim_op_stat(struct gx_env *env, const char *path, struct stat *ret_st);
int sim_op_rename(struct gx_env *env, const char *from, const char *to);
int sim_op_unlink(struct gx_env *env, const char *path);
int sim_op_mkdir(struct gx_env *env, const char *path, mode_t mode);
int sim_op_rmdir(struct gx_env *env, const char *path);
int sim_op_sync_dir(struct gx_env *env, const char *path);
int sim_op_list_dir(struct gx_env *env, const char *path, gx_dirent_fn fn, void *arg);
int sim_op_lock_file(struct gx_env *env, int fd);
int sim_op_space(struct gx_env *env, const char *path, uint64_t *ret_bytes, uint64_t *ret_free);

int sim_op_listen(struct gx_env *env, const struct gx_addr *addr, int backlog);
int sim_op_accept(struct gx_env *env, int fd);
int sim_op_connect(struct gx_env *env, const struct gx_addr *addr, int64_t deadline_ns);
int sim_op_sock_name(struct gx_env *env, int fd, struct gx_addr *ret_addr);
int sim_op_peer_name(struct gx_env *env, int fd, struct gx_addr *ret_addr);
ssize_t sim_op_readv(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		     int64_t deadline_ns);
ssize_t sim_op_writev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		      int64_t deadline_ns);
int sim_op_shutdown(struct gx_env *env, int fd);
int sim_op_resolve(struct gx_env *env, const char *host, const char *port,
		   struct gx_addr *ret_addr);
int sim_op_poll(struct gx_env *env, struct gx_pollfd *fds, size_t count, int64_t deadline_ns);
int sim_op_event_open(struct gx_env *env);
int sim_op_event_set(struct gx_env *env, int fd);
int sim_op_event_clear(struct gx_env *env, int fd);

int sim_op_thread_start(struct gx_env *env, struct gx_thread *t, const char *name, gx_thread_fn fn,
			void *arg);
int sim_op_thread_join(struct gx_env *env, struct gx_thread *t);
int sim_op_mutex_init(struct gx_env *env, struct gx_mutex *m);
void sim_op_mutex_fini(struct gx_env *env, struct gx_mutex *m);
void sim_op_mutex_lock(struct gx_env *env, struct gx_mutex *m);
void sim_op_mutex_unlock(struct gx_env *env, struct gx_mutex *m);
int sim_op_cond_init(struct gx_env *env, struct gx_cond *c);
void sim_op_cond_fini(struct gx_env *env, struct gx_cond *c);
int sim_op_cond_wait(struct gx_env *env, struct gx_cond *c, struct gx_mutex *m,
		     int64_t deadline_ns);
void sim_op_cond_signal(struct gx_env *env, struct gx_cond *c);
void sim_op_cond_broadcast(struct gx_env *env, struct gx_cond *c);

#endif
