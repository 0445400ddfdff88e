/*
 * What the kernel must forget, because another client has changed it.
 *
 * metad's pushes come in the background thread of gfc, before they are acknowledged. Attributes are
 * invalidated right there, which takes no lock; from then on a read asks us before it uses pages
 * (AUTO_INVAL_DATA). Names and pages go into a queue, and one thread hands them to the kernel: a
 * name is dropped under the lock of its directory, pages wait until nobody reads them, and whoever
 * holds these may be waiting for us. The push is acknowledged when the kernel has been told.
 *
 * Pages are dropped for who has mapped them; read() would find out by itself. And never later than
 * that: the kernel ignores attributes that it asked for before an inode was invalidated, so that
 * one which comes too late could make a read miss what was written long before.
 *
 * Except while a handler is busy in that directory or file (gfuse_busy_begin()). Then the kernel's
 * lock may be held by the process whose request the handler has sent to metad, and metad may answer
 * that only after another mount has acknowledged, which may wait for us in the same way. So nobody
 * waits there (rule N11). For names there is a better way where the kernel has it (Linux 6.16): a
 * new epoch makes it ask again for every name, and takes no lock; so that is done where waiting
 * would take long. Without, a name can stay for as long as it was lent, at most 1.5 s.
 */
#define GX_LOG_COMPONENT "gfsmount.notify"
#include "fuse/gfuse.h"
#include "client/fs/gfc_cache.h"
#include "common/gx_hash.h"
#include "common/gx_log.h"
#include <linux/fuse.h>
#include <unistd.h>

#define SLOTS 1024u
/* With epochs nothing is lost by not waiting longer; without, metad gives up on us after 2 s. */
#define WAIT_NS (20 * GX_NSEC_PER_MSEC)
#define WAIT_LONG_NS GX_NSEC_PER_SEC
#define NOTIFY_INC_EPOCH 8 /* newer than the system's header */
#define RECALL 8u          /* Forget.what: the lease on the bytes goes */

struct item {
	struct item *prev, *next;
	uint64_t seq;
	uint64_t ino; /* of the grid */
	char name[];  /* "": its pages, else this name in it */
};

struct gfuse_notify {
	struct gfuse *g;
	struct gx_env *env;
	bool has_thread;
	struct gx_thread thread;
	_Atomic unsigned busy[SLOTS];
	_Atomic bool waiting;
	_Atomic bool no_epoch; /* the kernel does not know it */

	struct gx_mutex lock; /* all below */
	struct gx_cond wake;  /* the thread */
	struct gx_cond done;  /* who waits for it */
	struct item *queue;
	uint64_t queued, finished; /* numbers */
	uint64_t telling;          /* the inode that the thread is at; 0: none */
	bool all;                  /* everything must go */
	bool stopping;
};

static size_t slot_of(uint64_t node)
{
	return (size_t)((node * UINT64_C(0x9e3779b97f4a7c15)) >> 54) % SLOTS;
}

/* -- life ------------------------------------------------------------------------------------- */

int gfuse_notify_new(struct gfuse *g, struct gfuse_notify **ret_notify)
{
	struct gfuse_notify *notify = calloc(1, sizeof(*notify));
	int r;

	if (!notify)
		return -ENOMEM;
	notify->g = g;
	notify->env = g->env;
	r = gx_env_mutex_init(g->env, &notify->lock);
	if (r == 0)
		r = gx_env_cond_init(g->env, &notify->wake);
	if (r == 0)
		r = gx_env_cond_init(g->env, &notify->done);
	if (r < 0) {
		free(notify);
		return r;
	}
	*ret_notify = notify;
	return 0;
}

void gfuse_notify_free(struct gfuse_notify *notify)
{
	struct item *item, *next;

	if (!notify)
		return;
	DL_FOREACH_SAFE (notify->queue, item, next)
		free(item);
	gx_env_cond_fini(notify->env, &notify->done);
	gx_env_cond_fini(notify->env, &notify->wake);
	gx_env_mutex_fini(notify->env, &notify->lock);
	free(notify);
}

/* -- the kernel ------------------------------------------------------------------------------- */

/* Every name is asked for again. Takes no lock of the kernel's. */
static void new_epoch(struct gfuse_notify *notify)
{
	struct fuse_out_header header = {.len = sizeof(header), .error = NOTIFY_INC_EPOCH};

	if (notify->no_epoch)
		return;
	if (write(fuse_session_fd(notify->g->session), &header, sizeof(header)) < 0 &&
	    errno == EINVAL) {
		notify->no_epoch = true;
		gx_log(DEBUG, "this kernel knows no epochs of names");
	}
}

/* -ENOENT: it does not have it, which is as good. */
static void tell_inode(void *arg, uint64_t ino)
{
	struct gfuse *g = arg;

	fuse_lowlevel_notify_inval_inode(g->session, gfuse_node(g, ino), 0, 0);
}

static void tell(struct gfuse_notify *notify, const struct item *item)
{
	struct gfuse *g = notify->g;

	if (item->name[0])
		fuse_lowlevel_notify_inval_entry(g->session, gfuse_node(g, item->ino), item->name,
						 strlen(item->name));
	else
		tell_inode(g, item->ino);
}

static void notify_main(void *arg)
{
	struct gfuse_notify *notify = arg;

	gx_env_mutex_lock(notify->env, &notify->lock);
	while (!notify->stopping) {
		struct item *item = notify->queue;
		bool all = notify->all;
		uint64_t seq = item ? item->seq : notify->finished;

		if (!item && !all) {
			GX_IGNORE(gx_env_cond_wait(notify->env, &notify->wake, &notify->lock,
						   GX_FOREVER));
			continue;
		}
		notify->all = false;
		notify->telling = item ? item->ino : 0;
		if (item)
			DL_DELETE(notify->queue, item);
		gx_env_mutex_unlock(notify->env, &notify->lock);
		if (all) {
			new_epoch(notify);
			gfuse_inodes_doubt_all(notify->g->inodes, tell_inode, notify->g);
		}
		if (item)
			tell(notify, item);
		free(item);
		gx_env_mutex_lock(notify->env, &notify->lock);
		notify->finished = seq;
		notify->telling = 0;
		gx_env_cond_broadcast(notify->env, &notify->done);
	}
	gx_env_mutex_unlock(notify->env, &notify->lock);
}

/* -- the queue -------------------------------------------------------------------------------- */

/* Under the lock. Without memory for one everything goes, which needs none. */
static void put(struct gfuse_notify *notify, uint64_t ino, const char *name)
{
	size_t bytes = strlen(name) + 1;
	struct item *item = malloc(sizeof(*item) + bytes);

	gx_env_cond_signal(notify->env, &notify->wake);
	if (!item) {
		notify->all = true;
		return;
	}
	item->seq = ++notify->queued;
	item->ino = ino;
	memcpy(item->name, name, bytes);
	DL_APPEND(notify->queue, item);
}

static bool is_busy(struct gfuse_notify *notify, uint64_t ino)
{
	return atomic_load(&notify->busy[slot_of(gfuse_node(notify->g, ino))]) > 0;
}

/* Under the lock: somewhere in the way of what is in the queue. */
static bool any_busy(struct gfuse_notify *notify)
{
	struct item *item;

	if (notify->telling && is_busy(notify, notify->telling))
		return true;
	DL_FOREACH (notify->queue, item)
		if (is_busy(notify, item->ino))
			return true;
	return false;
}

void gfuse_busy_begin(struct gfuse_notify *notify, uint64_t ino)
{
	atomic_fetch_add(&notify->busy[slot_of(ino)], 1);
	if (!atomic_load(&notify->waiting))
		return;
	gx_env_mutex_lock(notify->env, &notify->lock);
	gx_env_cond_broadcast(notify->env, &notify->done);
	gx_env_mutex_unlock(notify->env, &notify->lock);
}

void gfuse_busy_end(struct gfuse_notify *notify, uint64_t ino)
{
	atomic_fetch_sub(&notify->busy[slot_of(ino)], 1);
}

/* -- pushes ----------------------------------------------------------------------------------- */

/* False: a name was left out, because its directory is busy; an epoch will do it. */
static bool put_all(struct gfuse_notify *notify, const PbMeta__ForgetRequest *forget)
{
	bool all = true;

	for (size_t i = 0; i < forget->n_items; i++) {
		const PbMeta__Forget *item = forget->items[i];

		if ((item->what & (GFC_FORGET_ATTR | RECALL)) &&
		    gfuse_inodes_doubt(notify->g->inodes, item->ino) && !is_busy(notify, item->ino))
			put(notify, item->ino, "");
		if (!(item->what & GFC_FORGET_NAME) || !item->name[0])
			continue;
		if (!notify->no_epoch && is_busy(notify, item->ino))
			all = false;
		else
			put(notify, item->ino, item->name);
	}
	return all;
}

/* Until the kernel has been told, or nobody can wait for that. True: it has. */
static bool wait_told(struct gfuse_notify *notify)
{
	int64_t deadline_ns =
		gx_env_now_ns(notify->env) + (notify->no_epoch ? WAIT_LONG_NS : WAIT_NS);
	uint64_t seq = notify->queued;
	int r = 0;

	/* Before busy counts are looked at: who begins later sees it, and wakes us. */
	atomic_store(&notify->waiting, true);
	while (r == 0 && notify->finished < seq && !notify->stopping && !any_busy(notify))
		r = gx_env_cond_wait(notify->env, &notify->done, &notify->lock, deadline_ns);
	atomic_store(&notify->waiting, false);
	return notify->finished >= seq;
}

/* What can be told at once: all names of a directory, and those that nobody waited for. */
static void tell_names(struct gfuse_notify *notify, const PbMeta__ForgetRequest *forget, bool told)
{
	uint32_t what = told ? GFC_FORGET_NAMES : GFC_FORGET_NAMES | GFC_FORGET_NAME;

	for (size_t i = 0; i < forget->n_items; i++) {
		if (forget->items[i]->what & what) {
			new_epoch(notify);
			return;
		}
	}
}

/* Attributes, and that pages are not used without asking. */
static void tell_attrs(struct gfuse_notify *notify, const PbMeta__ForgetRequest *forget)
{
	struct gfuse *g = notify->g;

	for (size_t i = 0; i < forget->n_items; i++)
		if (forget->items[i]->what & (GFC_FORGET_ATTR | RECALL))
			fuse_lowlevel_notify_inval_inode(
				g->session, gfuse_node(g, forget->items[i]->ino), -1, 0);
}

/* A gfc_told_fn. */
static void on_told(void *arg, const PbMeta__ForgetRequest *forget)
{
	struct gfuse_notify *notify = arg;
	bool told = true;

	if (forget)
		tell_attrs(notify, forget);
	gx_env_mutex_lock(notify->env, &notify->lock);
	if (!forget || forget->all) {
		notify->all = true;
		gx_env_cond_signal(notify->env, &notify->wake);
	}
	if (forget) {
		told = put_all(notify, forget);
		told = wait_told(notify) && told;
	}
	gx_env_mutex_unlock(notify->env, &notify->lock);
	if (forget)
		tell_names(notify, forget, told);
}

int gfuse_notify_start(struct gfuse_notify *notify)
{
	int r = gx_env_thread_start(notify->env, &notify->thread, "gfs-notify", notify_main,
				    notify);

	if (r < 0)
		return r;
	notify->has_thread = true;
	gfc_set_told(notify->g->gfc, on_told, notify);
	return 0;
}

void gfuse_notify_stop(struct gfuse_notify *notify)
{
	if (!notify || !notify->has_thread)
		return;
	gx_env_mutex_lock(notify->env, &notify->lock);
	notify->stopping = true;
	gx_env_cond_broadcast(notify->env, &notify->wake);
	gx_env_cond_broadcast(notify->env, &notify->done);
	gx_env_mutex_unlock(notify->env, &notify->lock);
	gfc_set_told(notify->g->gfc, NULL, NULL);
	gx_env_thread_join(notify->env, &notify->thread);
	notify->has_thread = false;
}
