/*
 * Locks, between all mounts and programs of the grid: metad has them, the kernel asks for each.
 *
 * Who may have to wait does so in a thread of its own, not in one of libfuse's: those are needed by
 * who is to let go, and the session's loop waits for them when it ends. Such threads are started
 * when none is idle and stay until the end, so that a lock that is free costs no new one; there are
 * never more than may wait in one session. To try without waiting first would save the change of
 * threads, but pass those who stand in the queue.
 *
 * Pages get nothing of their own here. A write that has returned is to be seen by every read that
 * begins after it, lock or not (gfuse_names.c: mark_time(), gfuse_notify.c); where that fails
 * (known to be open, docs/ARCHITECTURE.md) a lock does not help either. What is only in this
 * process goes to its node before a lock ends, in case that we do not live to be asked for it.
 */
#include "fuse/gfuse.h"
#include "common/gx_hash.h"
#include "common/gx_limits.h"
#include <fcntl.h>
#include <sys/file.h>

#define THREADS_MAX GX_LOCK_WAITS_PER_SESSION_MAX

struct waiter {
	struct waiter *prev, *next;
	struct gfuse *g;
	fuse_req_t req;
	struct gfuse_file *file; /* stays open: who waits is in a call with it */
	struct gfc_lock lock;
	struct gfc_lock_cancel cancel;
};

struct gfuse_locks {
	struct gfuse *g;
	struct gx_env *env;

	struct gx_mutex lock; /* all below */
	struct gx_cond wake;  /* threads */
	struct waiter *queue; /* for a thread */
	struct waiter *taken; /* by one */
	size_t queued, idle;
	bool stopping;
	size_t thread_count;
	struct gx_thread threads[THREADS_MAX];
};

/* What is let go by this, if only for readers, is let go with what was written. */
static int apply(struct gfuse_file *file, const struct gfc_lock *lock, int64_t deadline_ns,
		 struct gfc_lock_cancel *cancel)
{
	struct gfuse *g = file->g;
	int r, sent = 0;

	if (lock->type != GFC_LOCK_WRITE && file->writes)
		sent = gfd_flush_ino(g->gfd, file->ino);
	r = gfc_lock(g->gfc, file->open, lock, deadline_ns, cancel);
	/* Nobody is kept out because a write failed; that is told all the same. */
	return r < 0 ? r : sent;
}

/* -- waiting ---------------------------------------------------------------------------------- */

/* A fuse_interrupt_func_t: a signal for who waits. */
static void on_interrupt(fuse_req_t req GX_UNUSED, void *arg)
{
	struct waiter *waiter = arg;

	gfc_lock_cancel(waiter->g->gfc, &waiter->cancel);
}

static void waiter_answer(struct waiter *waiter, int r)
{
	/* Behind this on_interrupt() is not running, and never will. */
	fuse_req_interrupt_func(waiter->req, NULL, NULL);
	gfuse_reply(waiter->req, r);
	free(waiter);
}

static void locks_main(void *arg)
{
	struct gfuse_locks *locks = arg;

	gx_env_mutex_lock(locks->env, &locks->lock);
	while (!locks->stopping) {
		struct waiter *waiter = locks->queue;
		bool stopping;
		int r;

		if (!waiter) {
			locks->idle++;
			GX_IGNORE(gx_env_cond_wait(locks->env, &locks->wake, &locks->lock,
						   GX_FOREVER));
			locks->idle--;
			continue;
		}
		DL_DELETE(locks->queue, waiter);
		locks->queued--;
		DL_APPEND(locks->taken, waiter);
		gx_env_mutex_unlock(locks->env, &locks->lock);
		r = apply(waiter->file, &waiter->lock, GX_FOREVER, &waiter->cancel);
		gx_env_mutex_lock(locks->env, &locks->lock);
		DL_DELETE(locks->taken, waiter);
		stopping = locks->stopping;
		gx_env_mutex_unlock(locks->env, &locks->lock);
		/* To the kernel EINTR means that there is a signal; here it may be our own end. */
		waiter_answer(waiter, r == -EINTR && stopping ? -ENOTCONN : r);
		gx_env_mutex_lock(locks->env, &locks->lock);
	}
	gx_env_mutex_unlock(locks->env, &locks->lock);
}

/* Under the lock: there is a thread for one more. */
static int have_thread(struct gfuse_locks *locks)
{
	int r;

	if (locks->idle > locks->queued)
		return 0;
	if (locks->thread_count == THREADS_MAX)
		return -ENOLCK;
	r = gx_env_thread_start(locks->env, &locks->threads[locks->thread_count], "gfs-lock",
				locks_main, locks);
	if (r == 0)
		locks->thread_count++;
	return r < 0 ? -ENOLCK : 0;
}

/* Answers the request, sooner or later. */
static void wait_for(fuse_req_t req, struct gfuse_file *file, const struct gfc_lock *lock)
{
	struct gfuse_locks *locks = file->g->locks;
	struct waiter *waiter = calloc(1, sizeof(*waiter));
	int r;

	if (!waiter) {
		gfuse_reply(req, -ENOMEM);
		return;
	}
	*waiter = (struct waiter){.g = file->g, .req = req, .file = file, .lock = *lock};
	/* Before a thread has it: it may be answered and freed at any time from then on. */
	fuse_req_interrupt_func(req, on_interrupt, waiter);
	gx_env_mutex_lock(locks->env, &locks->lock);
	r = locks->stopping ? -ENOTCONN : have_thread(locks);
	if (r == 0) {
		DL_APPEND(locks->queue, waiter);
		locks->queued++;
		gx_env_cond_signal(locks->env, &locks->wake);
	}
	gx_env_mutex_unlock(locks->env, &locks->lock);
	if (r < 0)
		waiter_answer(waiter, r);
}

/* -- handlers --------------------------------------------------------------------------------- */

static void set(fuse_req_t req, struct gfuse_file *file, const struct gfc_lock *lock, bool sleep)
{
	if (sleep && lock->type != GFC_LOCK_NONE)
		wait_for(req, file, lock);
	else
		gfuse_reply(req, apply(file, lock, 0, NULL));
}

static unsigned type_of(int type)
{
	switch (type) {
	case F_RDLCK:
		return GFC_LOCK_READ;
	case F_WRLCK:
		return GFC_LOCK_WRITE;
	default:
		return GFC_LOCK_NONE;
	}
}

/* The kernel has checked it: it starts in the file and does not end behind all of them. */
static struct gfc_lock range_of(const struct fuse_file_info *fi, const struct flock *flock)
{
	struct gfc_lock lock = {.owner = fi->lock_owner,
				.kind = GFC_LOCK_POSIX,
				.type = type_of(flock->l_type),
				.start = (uint64_t)flock->l_start,
				.end = GFC_LOCK_END,
				.pid = (uint32_t)flock->l_pid};

	if (flock->l_len > 0)
		lock.end = lock.start + (uint64_t)flock->l_len - 1;
	return lock;
}

void gfuse_getlk(fuse_req_t req, fuse_ino_t ino GX_UNUSED, struct fuse_file_info *fi,
		 struct flock *flock)
{
	struct gfuse *g = gfuse_of(req);
	struct gfc_lock lock = range_of(fi, flock);
	struct flock found = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	int r = gfc_getlock(g->gfc, gfuse_file_of(fi)->open, &lock);

	if (r < 0) {
		gfuse_reply(req, r);
		return;
	}
	if (lock.type != GFC_LOCK_NONE) {
		found.l_type = lock.type == GFC_LOCK_READ ? F_RDLCK : F_WRLCK;
		found.l_start = (off_t)lock.start;
		found.l_len = lock.end == GFC_LOCK_END ? 0 : (off_t)(lock.end - lock.start + 1);
		/* A number of another machine would name somebody else here. */
		found.l_pid = lock.own ? (pid_t)lock.pid : 0;
	}
	fuse_reply_lock(req, &found);
}

void gfuse_setlk(fuse_req_t req, fuse_ino_t ino GX_UNUSED, struct fuse_file_info *fi,
		 struct flock *flock, int sleep)
{
	struct gfc_lock lock = range_of(fi, flock);

	set(req, gfuse_file_of(fi), &lock, sleep);
}

void gfuse_flock(fuse_req_t req, fuse_ino_t ino GX_UNUSED, struct fuse_file_info *fi, int op)
{
	struct gfc_lock lock = {.owner = fi->lock_owner,
				.kind = GFC_LOCK_FLOCK,
				.type = GFC_LOCK_NONE,
				.end = GFC_LOCK_END,
				.pid = (uint32_t)fuse_req_ctx(req)->pid};

	if (op & LOCK_SH)
		lock.type = GFC_LOCK_READ;
	else if (op & LOCK_EX)
		lock.type = GFC_LOCK_WRITE;
	set(req, gfuse_file_of(fi), &lock, !(op & LOCK_NB));
}

/* -- life ------------------------------------------------------------------------------------- */

int gfuse_locks_new(struct gfuse *g, struct gfuse_locks **ret_locks)
{
	struct gfuse_locks *locks = calloc(1, sizeof(*locks));
	int r;

	if (!locks)
		return -ENOMEM;
	locks->g = g;
	locks->env = g->env;
	r = gx_env_mutex_init(g->env, &locks->lock);
	if (r == 0)
		r = gx_env_cond_init(g->env, &locks->wake);
	if (r < 0) {
		free(locks);
		return r;
	}
	*ret_locks = locks;
	return 0;
}

void gfuse_locks_stop(struct gfuse_locks *locks)
{
	struct waiter *waiter, *next;

	gx_env_mutex_lock(locks->env, &locks->lock);
	locks->stopping = true;
	DL_FOREACH (locks->taken, waiter)
		gfc_lock_cancel(locks->g->gfc, &waiter->cancel);
	gx_env_cond_broadcast(locks->env, &locks->wake);
	gx_env_mutex_unlock(locks->env, &locks->lock);
	while (locks->thread_count > 0)
		gx_env_thread_join(locks->env, &locks->threads[--locks->thread_count]);
	DL_FOREACH_SAFE (locks->queue, waiter, next) {
		DL_DELETE(locks->queue, waiter);
		waiter_answer(waiter, -ENOTCONN);
	}
}

void gfuse_locks_free(struct gfuse_locks *locks)
{
	if (!locks)
		return;
	gx_env_cond_fini(locks->env, &locks->wake);
	gx_env_mutex_fini(locks->env, &locks->lock);
	free(locks);
}
