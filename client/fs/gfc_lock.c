/*
 * Locks on files.
 *
 * metad's word is what counts. This client remembers what it has, to tell a metad that has been
 * restarted, and so the two must agree: requests of one owner about one inode go one after the
 * other (`busy`), and what metad answered is noted before its connection can be given up.
 *
 * Who has to wait waits here, for a thread of ours that asks metad for all of them with one call
 * (LockWait); then the request is sent again. So waiting costs no connection, can be called off at
 * once, and needs no undoing.
 *
 * A request that was not answered may have been done or not. What its owner has from then on is the
 * weaker of both, which can never be in anybody's way, and the thread tells that to metad until it
 * has heard it.
 */
#define GX_LOG_COMPONENT "gfs.lock"
#include "client/fs/gfc_impl.h"
#include "common/gx_hash.h"
#include "common/gx_log.h"

/* metad answers within 2 s. gfc_free() may have to wait for a call to a metad that is away. */
#define CALL_NS (5 * GX_NSEC_PER_SEC)
/* To give up a place in a queue; it goes by itself, too. */
#define GIVE_UP_NS GX_NSEC_PER_SEC
#define PAUSE_NS (200 * GX_NSEC_PER_MSEC)
/* A range that is set: two ends that may cut others, and itself. */
#define SPARES 3u

struct range {
	struct range *prev, *next;
	unsigned type;
	uint32_t pid;
	uint64_t start, end;
};

/* What one owner has on one inode; and a number for each thing a request may do. */
struct gfc_locked {
	struct {
		uint64_t ino, owner, kind;
	} key;
	struct range *ranges;  /* in order, apart from each other or of different types */
	struct gfc_open *open; /* by which it was set; NULL: closed, it is all to end */
	bool busy;             /* with a request; or, if unsure, until metad has been told */
	bool unsure;
	uint64_t unsure_start, unsure_end;
	UT_hash_handle hh;
};

enum wait_state { ASKING, WAITING, TURN };
struct gfc_waiting {
	struct gfc_waiting *prev, *next;
	uint64_t id;
	enum wait_state state;
	bool early; /* its turn came before the answer that it has to wait */
};

static void lock(struct gfc *gfc)
{
	gx_env_mutex_lock(gfc->env, &gfc->lock);
}

static void unlock(struct gfc *gfc)
{
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

static void changed(struct gfc *gfc)
{
	gx_env_cond_broadcast(gfc->env, &gfc->locks.change);
}

/* -- what an owner has (under the lock) ----------------------------------------------------------
 */

struct spares {
	struct range *list[SPARES];
	unsigned count;
};

static int spares_init(struct spares *spares)
{
	for (spares->count = 0; spares->count < SPARES; spares->count++) {
		spares->list[spares->count] = malloc(sizeof(struct range));
		if (!spares->list[spares->count])
			return -ENOMEM;
	}
	return 0;
}

static void spares_fini(struct spares *spares)
{
	while (spares->count > 0)
		free(spares->list[--spares->count]);
}

static struct range *spares_take(struct spares *spares)
{
	gx_assert(spares->count > 0);
	return spares->list[--spares->count];
}

static void range_free(struct gfc *gfc, struct gfc_locked *locked, struct range *range)
{
	DL_DELETE(locked->ranges, range);
	gfc->locks.count--;
	free(range);
}

static void ranges_clear(struct gfc *gfc, struct gfc_locked *locked)
{
	while (locked->ranges)
		range_free(gfc, locked, locked->ranges);
}

/* No range goes over the border in front of this byte. */
static void ranges_cut(struct gfc *gfc, struct gfc_locked *locked, uint64_t at,
		       struct spares *spares)
{
	struct range *range, *tail;

	DL_FOREACH (locked->ranges, range) {
		if (range->start >= at || range->end < at)
			continue;
		tail = spares_take(spares);
		*tail = *range;
		tail->start = at;
		range->end = at - 1;
		DL_APPEND_ELEM(locked->ranges, range, tail);
		gfc->locks.count++;
		return;
	}
}

/* Neighbours of one type become one. */
static void ranges_join(struct gfc *gfc, struct gfc_locked *locked)
{
	struct range *range = locked->ranges;

	while (range && range->next) {
		struct range *next = range->next;

		if (range->type != next->type || range->end + 1 != next->start) {
			range = next;
			continue;
		}
		range->end = next->end;
		range_free(gfc, locked, next);
	}
}

static void ranges_insert(struct gfc *gfc, struct gfc_locked *locked, struct range *range)
{
	struct range *behind = locked->ranges;

	while (behind && behind->start < range->start)
		behind = behind->next;
	if (behind)
		DL_PREPEND_ELEM(locked->ranges, behind, range);
	else
		DL_APPEND(locked->ranges, range);
	gfc->locks.count++;
}

/* What is in the range becomes this; `weaken`: only what is stronger. */
static void ranges_set(struct gfc *gfc, struct gfc_locked *locked, const struct gfc_lock *what,
		       bool weaken, struct spares *spares)
{
	struct range *range, *next;

	ranges_cut(gfc, locked, what->start, spares);
	ranges_cut(gfc, locked, what->end + 1, spares);
	DL_FOREACH_SAFE (locked->ranges, range, next) {
		if (range->start < what->start || range->end > what->end)
			continue;
		if (weaken && what->type != GFC_LOCK_NONE)
			range->type = GX_MIN(range->type, what->type);
		else
			range_free(gfc, locked, range);
	}
	if (!weaken && what->type != GFC_LOCK_NONE) {
		range = spares_take(spares);
		*range = (struct range){.type = what->type,
					.pid = what->pid,
					.start = what->start,
					.end = what->end};
		ranges_insert(gfc, locked, range);
	}
	ranges_join(gfc, locked);
}

/* -- owners --------------------------------------------------------------------------------------
 */

/* Under the lock. NULL: it has nothing; or, if it is to be made, no memory. */
static struct gfc_locked *locked_find(struct gfc *gfc, uint64_t ino, uint64_t owner, unsigned kind,
				      bool make)
{
	struct gfc_locked *locked, key = {.key = {ino, owner, kind}};
	bool gx_hash_failed = false;

	HASH_FIND(hh, gfc->locks.owners, &key.key, sizeof(key.key), locked);
	if (locked || !make)
		return locked;
	locked = calloc(1, sizeof(*locked));
	if (!locked)
		return NULL;
	locked->key = key.key;
	HASH_ADD(hh, gfc->locks.owners, key, sizeof(locked->key), locked);
	if (!gx_hash_failed)
		return locked;
	free(locked);
	return NULL;
}

/* Under the lock: nobody is busy with it any more. */
static void locked_done(struct gfc *gfc, struct gfc_locked *locked)
{
	locked->busy = false;
	if (!locked->ranges) {
		HASH_DEL(gfc->locks.owners, locked);
		free(locked);
	}
	changed(gfc);
}

/* Waits until nobody else is busy with this owner. -ETIMEDOUT, -EINTR, -ENOMEM. */
static int locked_begin(struct gfc *gfc, struct gfc_open *open, const struct gfc_lock *what,
			int64_t deadline_ns, const struct gfc_lock_cancel *cancel,
			struct gfc_locked **ret_locked)
{
	struct gfc_locked *locked;
	int r = 0;

	lock(gfc);
	for (;;) {
		locked = locked_find(gfc, open->ref.ino, what->owner, what->kind, true);
		if (!locked)
			r = -ENOMEM;
		else if (locked->busy && cancel && cancel->cancelled)
			r = -EINTR;
		if (r < 0 || !locked->busy)
			break;
		r = gx_env_cond_wait(gfc->env, &gfc->locks.change, &gfc->lock, deadline_ns);
	}
	if (r == 0) {
		locked->busy = true;
		*ret_locked = locked;
	}
	unlock(gfc);
	return r;
}

/* -- calls ---------------------------------------------------------------------------------------
 */

struct sending {
	struct gfc *gfc;
	struct gfc_locked *locked;
	const struct gfc_lock *what;
	struct spares spares;
};

/* An rpc_keep_fn: what metad has answered is noted while no new metad can have asked yet. */
static bool note(void *arg, uint64_t seq GX_UNUSED, const struct rpc_reply *reply)
{
	const PbMeta__LockReply *answer = (const PbMeta__LockReply *)reply->message;
	struct sending *sending = arg;
	struct gfc *gfc = sending->gfc;

	lock(gfc);
	gfc->locks.epoch = GX_MAX(gfc->locks.epoch, answer->epoch);
	if (answer->granted)
		ranges_set(gfc, sending->locked, sending->what, false, &sending->spares);
	else if (sending->what->kind == GFC_LOCK_FLOCK)
		ranges_clear(gfc, sending->locked); /* it is lost, as in flock(2) */
	unlock(gfc);
	return false;
}

static void fill_request(PbMeta__LockRequest *request, uint64_t ino, uint64_t handle,
			 const struct gfc_lock *what)
{
	pb_meta__lock_request__init(request);
	request->ino = ino;
	request->handle = handle;
	request->owner = what->owner;
	request->kind = what->kind;
	request->type = what->type;
	request->start = what->start;
	request->end = what->end;
	request->pid = what->pid;
}

/* 1: it is ours; 0: somebody is in the way. *ret_answered: metad has said so. */
static int send_lock(struct sending *sending, uint64_t handle, uint64_t wait, bool patient,
		     int64_t deadline_ns, bool *ret_answered)
{
	struct gfc *gfc = sending->gfc;
	const PbMeta__LockReply *answer;
	PbMeta__LockRequest request;
	struct gfc_call call;
	int r;

	fill_request(&request, sending->locked->key.ino, handle, sending->what);
	request.wait = wait;
	gfc_call_init(&call, gfc);
	if (deadline_ns != 0)
		call.options.deadline_ns = GX_MIN(call.options.deadline_ns, deadline_ns);
	call.options.fail_fast = !patient;
	call.options.keep_fn = note;
	call.options.keep_arg = sending;
	r = meta_call_lock(gfc->client, &request, &call.options, &call.reply, &answer);
	*ret_answered = r == 0 || gfc_call_answered(&call);
	if (r == 0)
		r = answer->granted;
	else if (r == -EAGAIN) /* busy to the end; not "somebody is in the way" */
		r = -ETIMEDOUT;
	return gfc_call_end(&call, r);
}

static int thread_start(struct gfc *gfc);

/* One request. 1, 0 as send_lock(). */
static int set_lock(struct gfc *gfc, struct gfc_open *open, const struct gfc_lock *what,
		    uint64_t wait, bool patient, int64_t deadline_ns,
		    const struct gfc_lock_cancel *cancel)
{
	struct sending sending = {.gfc = gfc, .what = what};
	bool answered = true, unsure;
	int r = spares_init(&sending.spares);

	if (r == 0)
		r = locked_begin(gfc, open, what,
				 deadline_ns != 0 ? deadline_ns : gfc_deadline(gfc), cancel,
				 &sending.locked);
	if (r < 0) {
		spares_fini(&sending.spares);
		return gfc_fail(r, "%s", gx_strerror(r));
	}
	lock(gfc);
	if (what->type != GFC_LOCK_NONE)
		sending.locked->open = open;
	unlock(gfc);
	r = send_lock(&sending, open->handle, wait, patient, deadline_ns, &answered);
	lock(gfc);
	/* What is not known to have been done: the weaker counts. */
	unsure = !answered && r != -ENOTRECOVERABLE;
	if (unsure) {
		ranges_set(gfc, sending.locked, what, true, &sending.spares);
		sending.locked->unsure = true;
		sending.locked->unsure_start = what->start;
		sending.locked->unsure_end = what->end;
		gfc->locks.unsure++;
		changed(gfc);
	} else {
		locked_done(gfc, sending.locked);
	}
	unlock(gfc);
	spares_fini(&sending.spares);
	if (unsure)
		GX_IGNORE(thread_start(gfc)); /* else the session's end ends it */
	return r;
}

/* -- the thread: waits for metad ----------------------------------------------------------------
 */

/* Under the lock: the lists of a LockWait, in one piece of memory. */
static int fill_wait(struct gfc *gfc, PbMeta__LockWaitRequest *request, uint64_t **ret_ids)
{
	size_t count = gfc->locks.wait_count;
	uint64_t *ids = calloc(2 * count + 1, sizeof(*ids));
	const struct gfc_waiting *wait;

	if (!ids)
		return -ENOMEM;
	request->waits = ids;
	request->known = ids + count;
	DL_FOREACH (gfc->locks.waits, wait) {
		if (wait->state == WAITING)
			request->waits[request->n_waits++] = wait->id;
		else
			request->known[request->n_known++] = wait->id;
	}
	request->upto = gfc->locks.last_id;
	*ret_ids = ids;
	return 0;
}

static void take_turns(struct gfc *gfc, const uint64_t *ids, size_t count)
{
	struct gfc_waiting *wait;

	for (size_t i = 0; i < count; i++) {
		DL_FOREACH (gfc->locks.waits, wait) {
			if (wait->id != ids[i])
				continue;
			wait->early = wait->state == ASKING;
			if (wait->state == WAITING)
				wait->state = TURN;
		}
	}
}

/* Says what is waited for and, unless `nowait`, waits for news. */
static int call_wait(struct gfc *gfc, bool nowait, int64_t ns)
{
	PbMeta__LockWaitRequest request = PB_META__LOCK_WAIT_REQUEST__INIT;
	const PbMeta__LockWaitReply *answer;
	GX_AUTOFREE uint64_t *ids = NULL;
	struct gfc_call call;
	int r;

	lock(gfc);
	r = fill_wait(gfc, &request, &ids);
	unlock(gfc);
	if (r < 0)
		return r;
	request.nowait = nowait;
	gfc_call_init(&call, gfc);
	call.options.deadline_ns = gx_env_now_ns(gfc->env) + ns;
	call.options.fail_fast = nowait;
	r = meta_call_lock_wait(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0) {
		lock(gfc);
		take_turns(gfc, answer->turns, answer->n_turns);
		take_turns(gfc, answer->gone, answer->n_gone);
		changed(gfc);
		unlock(gfc);
	}
	return gfc_call_end(&call, r);
}

/* Under the lock: what this owner has from `at` on, up to where it is the same. */
static struct gfc_lock state_at(const struct gfc_locked *locked, uint64_t at)
{
	struct gfc_lock what = {.owner = locked->key.owner,
				.kind = (unsigned)locked->key.kind,
				.start = at,
				.end = locked->unsure_end};
	const struct range *range;

	DL_FOREACH (locked->ranges, range) {
		if (range->end < at)
			continue;
		if (range->start > at) {
			what.end = GX_MIN(what.end, range->start - 1);
			break;
		}
		what.type = range->type;
		what.pid = range->pid;
		what.end = GX_MIN(what.end, range->end);
		break;
	}
	return what;
}

static struct gfc_locked *find_unsure(struct gfc *gfc)
{
	struct gfc_locked *locked, *tmp;

	HASH_ITER (hh, gfc->locks.owners, locked, tmp)
		if (locked->unsure)
			return locked;
	return NULL;
}

/* Tells metad what an owner has, piece by piece. 0: it knows. */
static int restate(struct gfc *gfc, struct gfc_locked *locked)
{
	uint64_t at = 0, handle;
	int r = 0;

	for (bool first = true;; first = false) {
		struct sending sending = {.gfc = gfc, .locked = locked};
		struct gfc_lock what;
		bool answered = false;

		lock(gfc);
		at = first ? locked->unsure_start : at;
		/* Who has closed the file, or lost it, has nothing. */
		if (!locked->open || locked->open->lost)
			ranges_clear(gfc, locked);
		handle = locked->open ? locked->open->handle : 0;
		what = state_at(locked, at);
		unlock(gfc);
		sending.what = &what;
		r = spares_init(&sending.spares);
		if (r == 0)
			r = send_lock(&sending, handle, 0, true, gx_env_now_ns(gfc->env) + CALL_NS,
				      &answered);
		spares_fini(&sending.spares);
		/* -EBADF and the like: metad has ended it by itself. */
		if (r < 0 && (!answered || r == -ETIMEDOUT) && r != -ENOTRECOVERABLE)
			return r;
		if (what.end >= locked->unsure_end)
			return 0;
		at = what.end + 1;
	}
}

static int restate_one(struct gfc *gfc)
{
	struct gfc_locked *locked;
	int r;

	lock(gfc);
	locked = find_unsure(gfc);
	unlock(gfc);
	if (!locked)
		return 0;
	r = restate(gfc, locked);
	lock(gfc);
	if (r == 0) {
		locked->unsure = false;
		gfc->locks.unsure--;
		locked_done(gfc, locked);
	}
	unlock(gfc);
	return r;
}

/* Under the lock: somebody waits for metad's word, and not only for his own request. */
static bool any_waiting(const struct gfc *gfc)
{
	const struct gfc_waiting *wait;

	DL_FOREACH (gfc->locks.waits, wait)
		if (wait->state == WAITING)
			return true;
	return false;
}

/* Until there is something to do for the thread. False: the end. */
static bool thread_next(struct gfc *gfc)
{
	struct gfc_locks *locks = &gfc->locks;
	bool go;

	lock(gfc);
	while (!locks->stopping && !any_waiting(gfc) && locks->unsure == 0)
		GX_IGNORE(gx_env_cond_wait(gfc->env, &locks->change, &gfc->lock, GX_FOREVER));
	go = !locks->stopping;
	locks->calling = go;
	unlock(gfc);
	return go;
}

static void thread_pause(struct gfc *gfc)
{
	int64_t until_ns = gx_env_now_ns(gfc->env) + PAUSE_NS;
	int r = 0;

	lock(gfc);
	while (r == 0 && !gfc->locks.stopping)
		r = gx_env_cond_wait(gfc->env, &gfc->locks.change, &gfc->lock, until_ns);
	unlock(gfc);
}

static void thread_main(void *arg)
{
	struct gfc *gfc = arg;

	while (thread_next(gfc)) {
		bool waits;
		int r = restate_one(gfc);

		lock(gfc);
		waits = any_waiting(gfc);
		unlock(gfc);
		if (r == 0 && waits)
			r = call_wait(gfc, false, CALL_NS);
		lock(gfc);
		gfc->locks.calling = false;
		unlock(gfc);
		/* metad is away, or turns us down: not at once again. */
		if (r < 0)
			thread_pause(gfc);
	}
}

static int thread_start(struct gfc *gfc)
{
	struct gfc_locks *locks = &gfc->locks;
	bool start;
	int r;

	lock(gfc);
	start = !locks->has_thread;
	locks->has_thread = true;
	unlock(gfc);
	if (!start)
		return 0;
	r = gx_env_thread_start(gfc->env, &locks->thread, "gfs-lock", thread_main, gfc);
	if (r == 0)
		return 0;
	lock(gfc);
	locks->has_thread = false;
	unlock(gfc);
	return gfc_fail(r, "cannot start a thread: %s", gx_strerror(r));
}

/* -- waiting -------------------------------------------------------------------------------------
 */

static int wait_begin(struct gfc *gfc, struct gfc_waiting *wait)
{
	int r = 0;

	lock(gfc);
	if (gfc->locks.wait_count >= GX_LOCK_WAITS_PER_SESSION_MAX) {
		r = -ENOLCK;
	} else {
		*wait = (struct gfc_waiting){.id = ++gfc->locks.last_id, .state = ASKING};
		DL_APPEND(gfc->locks.waits, wait);
		gfc->locks.wait_count++;
	}
	unlock(gfc);
	return r < 0 ? gfc_fail(r, "too many programs wait for locks") : thread_start(gfc);
}

/* `queued`: metad may have it in a queue. */
static void wait_end(struct gfc *gfc, struct gfc_waiting *wait, bool queued)
{
	lock(gfc);
	DL_DELETE(gfc->locks.waits, wait);
	gfc->locks.wait_count--;
	changed(gfc);
	unlock(gfc);
	/* Else others would stand behind nobody until the thread calls again. */
	if (queued)
		GX_IGNORE(call_wait(gfc, true, GIVE_UP_NS));
}

/* Until it may be asked for again. -EINTR, -ETIMEDOUT. */
static int wait_turn(struct gfc *gfc, struct gfc_waiting *wait, int64_t deadline_ns,
		     const struct gfc_lock_cancel *cancel)
{
	int r = 0;

	lock(gfc);
	if (!wait->early) {
		wait->state = WAITING;
		changed(gfc);
	}
	wait->early = false;
	while (r == 0 && wait->state == WAITING) {
		if (cancel && cancel->cancelled)
			r = -EINTR;
		else
			r = gx_env_cond_wait(gfc->env, &gfc->locks.change, &gfc->lock, deadline_ns);
	}
	wait->state = ASKING;
	unlock(gfc);
	return r;
}

static int lock_waiting(struct gfc *gfc, struct gfc_open *open, const struct gfc_lock *what,
			int64_t deadline_ns, struct gfc_lock_cancel *cancel)
{
	struct gfc_waiting wait;
	int r = wait_begin(gfc, &wait);

	if (r < 0)
		return r;
	for (;;) {
		/* A deadline of the one who waits is not one for metad. */
		r = set_lock(gfc, open, what, wait.id, true, 0, cancel);
		if (r != 0)
			break;
		r = wait_turn(gfc, &wait, deadline_ns, cancel);
		if (r < 0) {
			r = gfc_fail(r, "%s", r == -EINTR ? "interrupted" : "still locked");
			break;
		}
	}
	wait_end(gfc, &wait, r == -EINTR || r == -ETIMEDOUT);
	return r;
}

void gfc_lock_cancel(struct gfc *gfc, struct gfc_lock_cancel *cancel)
{
	lock(gfc);
	cancel->cancelled = true;
	changed(gfc);
	unlock(gfc);
}

/* -- for callers ---------------------------------------------------------------------------------
 */

int gfc_open_refused(struct gfc *gfc, struct gfc_open *open, uint32_t want, int r)
{
	if (r != -EBADF || (open->flags & want) != want)
		return r;
	lock(gfc);
	open->lost = true;
	gfc_locks_lost(gfc);
	unlock(gfc);
	return gfc_fail(-ESTALE, "the open file was lost");
}

static uint32_t open_for(const struct gfc_lock *what)
{
	if (what->kind != GFC_LOCK_POSIX || what->type == GFC_LOCK_NONE)
		return 0;
	return what->type == GFC_LOCK_WRITE ? GFC_OPEN_WRITE : GFC_OPEN_READ;
}

int gfc_lock(struct gfc *gfc, struct gfc_open *open, const struct gfc_lock *what,
	     int64_t deadline_ns, struct gfc_lock_cancel *cancel)
{
	uint32_t want = open_for(what);
	int r;

	if (what->start > what->end || what->end > GFC_LOCK_END)
		return gfc_fail(-EINVAL, "not a range of bytes");
	if ((open->flags & want) != want)
		return gfc_fail(-EBADF, "the file is not open for that");
	if (gfc_open_lost(gfc, open))
		return gfc_fail(-ESTALE, "the open file was lost");
	if (what->type == GFC_LOCK_NONE || deadline_ns == 0)
		r = set_lock(gfc, open, what, 0, true, 0, cancel);
	else
		r = lock_waiting(gfc, open, what, deadline_ns, cancel);
	if (r == 0)
		return gfc_fail(-EAGAIN, "locked by another");
	/* The session is over, and its locks with it: whether this one was set before is all one.
	 */
	if (r == -ENOTRECOVERABLE && gfc_open_lost(gfc, open))
		return gfc_fail(-ESTALE, "the open file was lost");
	return r > 0 ? 0 : gfc_open_refused(gfc, open, want, r);
}

int gfc_getlock(struct gfc *gfc, struct gfc_open *open, struct gfc_lock *what)
{
	const PbMeta__LockReply *answer;
	PbMeta__LockRequest request;
	struct gfc_call call;
	int r;

	if (gfc_open_lost(gfc, open))
		return gfc_fail(-ESTALE, "the open file was lost");
	fill_request(&request, open->ref.ino, open->handle, what);
	request.test = true;
	gfc_call_init(&call, gfc);
	r = meta_call_lock(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0 && answer->granted) {
		what->type = GFC_LOCK_NONE;
	} else if (r == 0) {
		what->type = answer->type;
		what->start = answer->start;
		what->end = answer->end;
		what->pid = answer->pid;
		what->own = answer->own;
	}
	return gfc_open_refused(gfc, open, 0, gfc_call_end(&call, r));
}

static int unlock_all(struct gfc *gfc, struct gfc_open *open, unsigned kind, uint64_t owner)
{
	struct gfc_lock all = {.owner = owner, .kind = kind, .end = GFC_LOCK_END};
	bool busy, has;
	int r;

	lock(gfc);
	has = locked_find(gfc, open->ref.ino, owner, kind, false) != NULL;
	unlock(gfc);
	if (!has)
		return 0;
	r = set_lock(gfc, open, &all, 0, false, 0, NULL);
	lock(gfc);
	busy = locked_find(gfc, open->ref.ino, owner, kind, false) != NULL;
	unlock(gfc);
	/* metad will hear of it from the thread. */
	return r < 0 && !busy ? r : 0;
}

int gfc_unlock_owner(struct gfc *gfc, struct gfc_open *open, unsigned kind, uint64_t owner)
{
	return unlock_all(gfc, open, kind, owner);
}

/* Under the lock: an owner that has set something by this file, and nobody has told metad yet. */
static struct gfc_locked *find_of(struct gfc *gfc, const struct gfc_open *open)
{
	struct gfc_locked *locked, *tmp;

	HASH_ITER (hh, gfc->locks.owners, locked, tmp)
		if (locked->open == open)
			return locked;
	return NULL;
}

void gfc_locks_closing(struct gfc *gfc, struct gfc_open *open)
{
	for (;;) {
		struct gfc_locked *locked;
		uint64_t owner = 0;
		unsigned kind = 0;
		bool told = false;

		lock(gfc);
		locked = gfc->locks.owners ? find_of(gfc, open) : NULL;
		if (locked && (locked->unsure || open->lost)) {
			/* The thread ends it all; or metad has. */
			ranges_clear(gfc, locked);
			locked->open = NULL;
			locked->unsure_start = 0;
			locked->unsure_end = GFC_LOCK_END;
			if (!locked->busy)
				locked_done(gfc, locked);
			told = true;
		} else if (locked) {
			owner = locked->key.owner;
			kind = (unsigned)locked->key.kind;
		}
		unlock(gfc);
		if (!locked)
			return;
		if (!told && unlock_all(gfc, open, kind, owner) < 0)
			gx_log(DEBUG, "a lock could not be ended", GX_KS("error", gfc_error()));
	}
}

void gfc_locks_lost(struct gfc *gfc)
{
	struct gfc_locked *locked, *tmp;

	HASH_ITER (hh, gfc->locks.owners, locked, tmp) {
		if (!locked->open || !locked->open->lost)
			continue;
		ranges_clear(gfc, locked);
		if (!locked->busy)
			locked_done(gfc, locked);
	}
}

int gfc_locks_copy(struct gfc *gfc, PbMeta__HeldLock **ret_locks, PbMeta__HeldLock ***ret_list,
		   size_t *ret_count, uint64_t *ret_epoch)
{
	GX_AUTOFREE PbMeta__HeldLock *locks = NULL;
	GX_AUTOFREE PbMeta__HeldLock **list = NULL;
	struct gfc_locked *locked, *tmp;
	const struct range *range;
	size_t count = 0;

	lock(gfc);
	*ret_epoch = gfc->locks.epoch;
	locks = calloc(gfc->locks.count + 1, sizeof(*locks));
	list = calloc(gfc->locks.count + 1, sizeof(PbMeta__HeldLock *));
	HASH_ITER (hh, gfc->locks.owners, locked, tmp) {
		/* One that is being closed is not among the files that were told. */
		if (!locks || !list || !locked->open || locked->open->lost || !locked->open->prev)
			continue;
		DL_FOREACH (locked->ranges, range) {
			list[count] = &locks[count];
			pb_meta__held_lock__init(&locks[count]);
			locks[count].handle = locked->open->handle;
			locks[count].owner = locked->key.owner;
			locks[count].kind = (uint32_t)locked->key.kind;
			locks[count].type = range->type;
			locks[count].start = range->start;
			locks[count].end = range->end;
			locks[count++].pid = range->pid;
		}
	}
	unlock(gfc);
	if (!locks || !list)
		return -ENOMEM;
	*ret_locks = GX_TAKE(locks);
	*ret_list = GX_TAKE(list);
	*ret_count = count;
	return 0;
}

int gfc_locks_init(struct gfc *gfc)
{
	return gx_env_cond_init(gfc->env, &gfc->locks.change);
}

void gfc_locks_stop(struct gfc *gfc)
{
	bool has_thread, calling;

	lock(gfc);
	has_thread = gfc->locks.has_thread;
	calling = gfc->locks.calling;
	gfc->locks.stopping = true;
	changed(gfc);
	unlock(gfc);
	if (!has_thread)
		return;
	/* So that metad answers the call that waits. */
	if (calling)
		GX_IGNORE(call_wait(gfc, true, GIVE_UP_NS));
	gx_env_thread_join(gfc->env, &gfc->locks.thread);
	gfc->locks.has_thread = false;
}

void gfc_locks_fini(struct gfc *gfc)
{
	struct gfc_locked *locked, *tmp;

	HASH_ITER (hh, gfc->locks.owners, locked, tmp) {
		ranges_clear(gfc, locked);
		HASH_DEL(gfc->locks.owners, locked);
		free(locked);
	}
	gx_env_cond_fini(gfc->env, &gfc->locks.change);
}
