/*
 * Locks on files, for clients (md_lock.h has the table).
 *
 * A client waits with one call for all its locks (LockWait), which is answered when it is the turn
 * of one; it then takes the lock with the request it began with. So however many of its programs
 * wait, they take no connection away from the others, and a reconnect has nothing to repeat but
 * that call.
 *
 * Locks live in memory. They end with the last handle of the session for the inode; after a restart
 * the session tells them again (Resume), and before all have nobody gets a new one (rule N4).
 *
 * A session that is silent ends when somebody wants a lock it has, and that is on disk before the
 * other one gets it: then whatever it still sends, to us or to a storage node, is refused, over a
 * restart, too, and a lock means what it says also if its holder only hung. In nobody's way it
 * loses nothing.
 *
 * What a client says it had is believed only if nobody can have had it since. That a life of metad
 * gives new locks is in the log before the first; a client tells the newest life that has confirmed
 * its locks. Who was away for all of a life that gave locks has lost his own.
 */
#define GX_LOG_COMPONENT "metad.lock"
#include "metad/md_server_impl.h"
#include "common/gx_limits.h"
#include "common/gx_log.h"

/* Silent for so long: without a connection; the same if it calls seldom; with one. */
#define GONE_NS MD_LEASE_NS
#define GONE_SELDOM_NS (5 * GX_NSEC_PER_SEC)
#define SILENT_NS (10 * GX_NSEC_PER_SEC)
/* A turn is to be used within this, a place in a queue is to be asked about within that. */
#define TURN_NS (2 * GX_NSEC_PER_SEC)
#define HEARD_NS (5 * GX_NSEC_PER_SEC)
/* A LockWait is answered after this, so that a client that has gone is noticed. */
#define ROUND_NS (2 * GX_NSEC_PER_SEC)
/* Silent sessions that end in one tick (rule N17). */
#define LOST_PER_TICK 16u

/* -- whose turn it is ---------------------------------------------------------------------------
 */

static void on_turn(void *arg, struct md_lock_wait *wait)
{
	struct md_server *md = arg;
	struct md_session *session = md_session_get(md, wait->what.session);

	wait->turn_ns = gx_loop_now_ns(md->loop);
	wait->told = false;
	if (!session || session->lock_news)
		return;
	session->lock_news = true;
	DL_APPEND2(md->lock_news, session, news_prev, news_next);
	md_more_work(md);
}

static void no_news(struct md_server *md, struct md_session *session)
{
	if (!session->lock_news)
		return;
	session->lock_news = false;
	DL_DELETE2(md->lock_news, session, news_prev, news_next);
}

/* Is it in the list, which is in order? */
static bool is_listed(const uint64_t *ids, size_t count, uint64_t id)
{
	size_t from = 0;

	while (from < count) {
		size_t middle = from + (count - from) / 2;

		if (ids[middle] == id)
			return true;
		if (ids[middle] < id)
			from = middle + 1;
		else
			count = middle;
	}
	return false;
}

/*
 * What there is to say to the session: turns it has not been told of, also of what came into a
 * queue since it asked; those it asks about, told or not; and what it asks about in vain.
 * reply NULL: only whether there is anything.
 */
static size_t tell_turns(struct md_server *md, const PbMeta__LockWaitRequest *request,
			 uint64_t session, PbMeta__LockWaitReply *reply)
{
	struct md_lock_wait *wait = md_lock_wait_first(md->locks, session);
	size_t turns = 0, gone = 0;

	for (; wait; wait = wait->s_next) {
		if (!wait->turn ||
		    (wait->told && !is_listed(request->waits, request->n_waits, wait->key.id)))
			continue;
		if (reply) {
			reply->turns[turns] = wait->key.id;
			wait->told = true;
		}
		turns++;
	}
	for (size_t i = 0; i < request->n_waits; i++) {
		if (md_lock_wait_find(md->locks, session, request->waits[i]))
			continue;
		if (reply)
			reply->gone[gone] = request->waits[i];
		gone++;
	}
	if (reply) {
		reply->n_turns = turns;
		reply->n_gone = gone;
	}
	return turns + gone;
}

static int fill_reply(struct md_server *md, struct rpc_call *call)
{
	const PbMeta__LockWaitRequest *request = (const PbMeta__LockWaitRequest *)call->request;
	PbMeta__LockWaitReply *reply = (PbMeta__LockWaitReply *)call->reply;
	size_t max = GX_LOCK_WAITS_PER_SESSION_MAX + request->n_waits;

	reply->turns = rpc_call_alloc(call, max * sizeof(uint64_t));
	reply->gone = rpc_call_alloc(call, (request->n_waits + 1) * sizeof(uint64_t));
	if (!reply->turns || !reply->gone)
		return -EAGAIN;
	tell_turns(md, request, call->session, reply);
	return 0;
}

/* Its call is answered with what there is to say, if there is anything or if it is over. */
static void answer(struct md_server *md, struct md_session *session, bool over, int err)
{
	struct rpc_call *call = session->lock_call;

	if (!call || (!over && tell_turns(md, (const PbMeta__LockWaitRequest *)call->request,
					  session->id, NULL) == 0))
		return;
	session->lock_call = NULL;
	md->lock_calls--;
	rpc_call_finish(call, err < 0 ? err : fill_reply(md, call));
}

void md_locking_work(struct md_server *md)
{
	while (md->lock_news) {
		struct md_session *session = md->lock_news;

		no_news(md, session);
		answer(md, session, false, 0);
	}
}

static bool is_ascending(const uint64_t *ids, size_t count)
{
	for (size_t i = 1; i < count; i++)
		if (ids[i] <= ids[i - 1])
			return false;
	return true;
}

static void drop_unwanted(struct md_server *md, uint64_t session,
			  const PbMeta__LockWaitRequest *request)
{
	struct md_lock_wait *wait = md_lock_wait_first(md->locks, session), *next;

	for (; wait; wait = next) {
		next = wait->s_next;
		if (wait->key.id <= request->upto &&
		    !is_listed(request->waits, request->n_waits, wait->key.id) &&
		    !is_listed(request->known, request->n_known, wait->key.id))
			md_lock_wait_drop(md->locks, wait);
	}
}

int md_op_lock_wait(struct rpc_call *call, const PbMeta__LockWaitRequest *request,
		    PbMeta__LockWaitReply *reply GX_UNUSED)
{
	struct md_server *md = call->data;
	struct md_session *session;
	int r = md_enter(md, call, &session);

	if (r != 0)
		return r;
	if (md->stopping)
		return -ESHUTDOWN;
	if (request->n_waits > GX_LOCK_WAITS_PER_SESSION_MAX ||
	    request->n_known > GX_LOCK_WAITS_PER_SESSION_MAX)
		return rpc_call_fail(call, -E2BIG, "at most %u waiting locks",
				     GX_LOCK_WAITS_PER_SESSION_MAX);
	if (!is_ascending(request->waits, request->n_waits) ||
	    !is_ascending(request->known, request->n_known))
		return rpc_call_fail(call, -EINVAL, "waiting locks are not in order");
	session->lock_heard_ns = gx_loop_now_ns(md->loop);
	drop_unwanted(md, session->id, request);
	answer(md, session, true, 0);
	if (request->nowait || tell_turns(md, request, session->id, NULL) > 0)
		return fill_reply(md, call);
	session->lock_call = call;
	session->lock_until_ns = GX_MIN(session->lock_heard_ns + ROUND_NS, call->deadline_ns);
	md->lock_calls++;
	return RPC_DEFERRED;
}

/* -- setting -------------------------------------------------------------------------------------
 */

/* May this handle be locked so? */
static int check_open(struct md_session *session, uint64_t handle, uint64_t ino, unsigned kind,
		      unsigned type)
{
	uint32_t want = 0;
	struct md_open *open;
	int r;

	if (kind == MD_LOCK_POSIX)
		want = type == MD_LOCK_WRITE ? MD_OPEN_WRITE : MD_OPEN_READ;
	r = md_open_find(session, handle, want, &open);
	return r == 0 && open->ino != ino ? -EBADF : r;
}

static void tell_conflict(const struct md_lock_what *conflict, uint64_t session,
			  PbMeta__LockReply *reply)
{
	reply->type = conflict->type;
	reply->start = conflict->start;
	reply->end = conflict->end;
	reply->pid = conflict->pid;
	reply->own = conflict->session == session;
}

/* This life gives new locks: that is in the log before the first of them is. */
static int log_epoch(struct md_server *md)
{
	PbMeta__ReserveRequest request = PB_META__RESERVE_REQUEST__INIT;
	PbMeta__ReserveReply reply = PB_META__RESERVE_REPLY__INIT;
	uint64_t index;
	int r;

	if (md->lock_logged)
		return 0;
	request.lock_epoch = md_log_epoch(md->log);
	r = md_own_command(md, RPC_INDEX_RESERVE, 0, &request.base, &reply.base, &index);
	if (r < 0)
		return r;
	md->lock_logged = true;
	md->lock_need = GX_MAX(md->lock_need, index);
	return 0;
}

static int set_lock(struct md_server *md, struct md_session *session,
		    const PbMeta__LockRequest *request, const struct md_lock_what *what,
		    PbMeta__LockReply *reply)
{
	struct md_lock_what conflict;
	int r = 0;

	if (request->test) {
		reply->granted = !md_lock_test(md->locks, what, &conflict);
		if (!reply->granted)
			tell_conflict(&conflict, session->id, reply);
		return 0;
	}
	if (request->wait != 0)
		session->lock_heard_ns = gx_loop_now_ns(md->loop);
	if (what->type != MD_LOCK_NONE)
		r = log_epoch(md);
	if (r < 0)
		return r;
	r = md_lock_set(md->locks, what, request->wait, &conflict);
	reply->granted = r == 0;
	reply->epoch = md_log_epoch(md->log);
	/* On the wire AGAIN would mean that nothing was looked at. */
	if (r == -EAGAIN) {
		tell_conflict(&conflict, session->id, reply);
		r = 0;
	}
	return r;
}

int md_op_lock(struct rpc_call *call, const PbMeta__LockRequest *request, PbMeta__LockReply *reply)
{
	struct md_server *md = call->data;
	struct md_lock_what what = {.ino = request->ino,
				    .owner = request->owner,
				    .kind = request->kind,
				    .type = request->type,
				    .start = request->start,
				    .end = request->end,
				    .pid = request->pid};
	struct md_session *session;
	int r = md_enter(md, call, &session);

	if (r != 0)
		return r;
	what.session = session->id;
	r = md_lock_check(&what);
	if (r == 0 && request->test && what.type == MD_LOCK_NONE)
		r = -EINVAL;
	if (r < 0)
		return rpc_call_fail(call, r, "not a lock that can be");
	if (request->test)
		r = check_open(session, request->handle, what.ino, MD_LOCK_FLOCK, what.type);
	else if (what.type != MD_LOCK_NONE)
		r = check_open(session, request->handle, what.ino, what.kind, what.type);
	if (r == 0)
		r = set_lock(md, session, request, &what, reply);
	if (r == -ENOLCK)
		return rpc_call_fail(call, r, "too many locks");
	if (r == -ENOSPC)
		return rpc_call_fail(call, r, "no room in metad's log");
	if (r < 0 || !reply->granted)
		return r;
	return md_settle(md, call, session, call->replay_data, md->lock_need, r, NULL);
}

/* Can nobody have had since what this client says it has? */
static bool is_current(const struct md_server *md, const struct md_session *session, uint64_t epoch)
{
	return epoch >= md->lock_epoch && !(session->late && md->lock_logged);
}

int md_locking_resume(struct md_server *md, struct md_session *session,
		      const PbMeta__HeldLock *lock, uint64_t epoch)
{
	struct md_lock_what what = {.session = session->id,
				    .owner = lock->owner,
				    .kind = lock->kind,
				    .type = lock->type,
				    .start = lock->start,
				    .end = lock->end,
				    .pid = lock->pid};
	struct md_open *open;
	int r = md_open_find(session, lock->handle, 0, &open);

	if (r < 0)
		return r;
	what.ino = open->ino;
	r = what.type == MD_LOCK_NONE ? -EINVAL : md_lock_check(&what);
	if (r == 0)
		r = check_open(session, lock->handle, what.ino, what.kind, what.type);
	if (r == 0 && !is_current(md, session, epoch))
		r = -ETIMEDOUT;
	if (r == 0)
		r = md_lock_set(md->locks, &what, 0, NULL);
	if (r < 0) {
		gx_log(NOTICE, "a lock could not be kept over a restart", GX_KU("ino", what.ino),
		       GX_KX("session", session->id), GX_KE(r));
		md->locks_lost++;
		md_open_close_all(md, session, what.ino);
	}
	return r;
}

/* -- the end
 * ---------------------------------------------------------------------------------------
 */

void md_locking_closed(struct md_server *md, struct md_session *session, uint64_t ino)
{
	if (md_lock_has(md->locks, session->id, ino) && !md_session_has_open(md, session, ino, 0))
		md_lock_release_inode(md->locks, session->id, ino);
}

bool md_locking_ended(struct md_server *md, struct md_session *session, unsigned steps)
{
	no_news(md, session);
	answer(md, session, true, -ENOTRECOVERABLE);
	return md_lock_release_session(md->locks, session->id, steps);
}

static bool is_silent(const struct md_session *session, int64_t now)
{
	int64_t silent_ns = now - session->contact_ns;

	if (session->connections > 0)
		return silent_ns > SILENT_NS;
	return silent_ns > (session->pushed ? GONE_NS : GONE_SELDOM_NS);
}

/* Who is in somebody's way and has not been heard of. */
struct blockers {
	struct md_server *md;
	int64_t now;
	unsigned count;
	uint64_t sessions[LOST_PER_TICK];
};

static void on_blocker(void *arg, const struct md_lock_what *holder)
{
	struct blockers *blockers = arg;
	const struct md_session *session = md_session_get(blockers->md, holder->session);

	if (!session || session->ending || blockers->count == LOST_PER_TICK ||
	    !is_silent(session, blockers->now))
		return;
	blockers->sessions[blockers->count++] = holder->session;
}

static void lose_silent(struct md_server *md, int64_t now)
{
	struct blockers blockers = {.md = md, .now = now};

	md_lock_each_blocker(md->locks, on_blocker, &blockers);
	for (unsigned i = 0; i < blockers.count; i++) {
		struct md_session *session = md_session_get(md, blockers.sessions[i]);
		uint64_t index;

		/* It may be in the list twice; with a full log it stays for now. */
		if (session->ending ||
		    md_session_end_for_sure(md, session, "silent, and another wants a lock it has",
					    &index) < 0)
			continue;
		gx_log(NOTICE, "a silent client had a lock that another wants: it has lost all",
		       GX_KX("session", session->id), GX_KS("address", session->remote));
		md->locks_lost++;
		md->lock_need = GX_MAX(md->lock_need, index);
	}
}

static void session_tick(struct md_server *md, struct md_session *session, int64_t now)
{
	struct md_lock_wait *wait = md_lock_wait_first(md->locks, session->id), *next;
	bool unheard = !session->lock_call && now - session->lock_heard_ns > HEARD_NS;

	for (; wait; wait = next) {
		next = wait->s_next;
		if (unheard || (wait->turn && now - wait->turn_ns > TURN_NS))
			md_lock_wait_drop(md->locks, wait);
	}
	if (session->lock_call)
		answer(md, session, now >= session->lock_until_ns, 0);
}

void md_locking_tick(struct md_server *md, int64_t now)
{
	struct md_session *session, *tmp;

	if (md->lock_calls == 0 && md_lock_wait_count(md->locks) == 0)
		return;
	HASH_ITER (hh, md->sessions, session, tmp)
		session_tick(md, session, now);
	lose_silent(md, now);
}

void md_locking_forgive(struct md_server *md, int64_t gap_ns)
{
	struct md_session *session, *tmp;
	struct md_lock_wait *wait;

	HASH_ITER (hh, md->sessions, session, tmp) {
		session->lock_heard_ns += gap_ns;
		wait = md_lock_wait_first(md->locks, session->id);
		for (; wait; wait = wait->s_next)
			wait->turn_ns += gap_ns;
	}
}

void md_locking_stop(struct md_server *md)
{
	struct md_session *session, *tmp;

	HASH_ITER (hh, md->sessions, session, tmp) {
		no_news(md, session);
		answer(md, session, true, -ESHUTDOWN);
	}
}

int md_locking_start(struct md_server *md)
{
	struct md_locks_options options = {
		.locks_max = GX_LOCKS_MAX,
		.locks_per_inode_max = GX_LOCKS_PER_INODE_MAX,
		.locks_per_session_max = GX_LOCKS_PER_SESSION_MAX,
		.waits_max = GX_LOCK_WAITS_MAX,
		.waits_per_session_max = GX_LOCK_WAITS_PER_SESSION_MAX,
		.waits_per_inode_max = GX_LOCK_WAITS_PER_INODE_MAX,
		.turn_fn = on_turn,
		.arg = md,
	};

	return md_locks_new(&options, &md->locks);
}
