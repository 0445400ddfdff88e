#include "metad/md_lock.h"
#include "metad/md_lock_impl.h"
#include <stdlib.h>

/* -- life and tables -----------------------------------------------------------------------------
 */

int md_locks_new(const struct md_locks_options *options, struct md_locks **ret_locks)
{
	struct md_locks *locks = calloc(1, sizeof(*locks));

	if (!locks)
		return -ENOMEM;
	locks->options = *options;
	*ret_locks = locks;
	return 0;
}

void md_locks_free(struct md_locks *locks)
{
	if (!locks)
		return;
	locks->options.turn_fn = NULL;
	while (locks->sessions)
		md_lock_release_session(locks, locks->sessions->id, UINT32_MAX);
	free(locks);
}

static struct md_lock_inode *inode_find(struct md_locks *locks, uint64_t ino)
{
	struct md_lock_inode *inode;

	HASH_FIND(hh, locks->inodes, &ino, sizeof(ino), inode);
	return inode;
}

static struct md_lock_inode *inode_make(struct md_locks *locks, uint64_t ino)
{
	struct md_lock_inode *inode = inode_find(locks, ino);
	bool gx_hash_failed = false;

	if (inode)
		return inode;
	inode = calloc(1, sizeof(*inode));
	if (!inode)
		return NULL;
	inode->ino = ino;
	HASH_ADD(hh, locks->inodes, ino, sizeof(inode->ino), inode);
	if (!gx_hash_failed)
		return inode;
	free(inode);
	return NULL;
}

static void inode_unused(struct md_locks *locks, struct md_lock_inode *inode)
{
	if (inode->lock_count > 0 || inode->wait_count > 0)
		return;
	HASH_DEL(locks->inodes, inode);
	free(inode);
}

static struct md_lock_session *session_find(struct md_locks *locks, uint64_t id)
{
	struct md_lock_session *session;

	HASH_FIND(hh, locks->sessions, &id, sizeof(id), session);
	return session;
}

static struct md_lock_session *session_make(struct md_locks *locks, uint64_t id)
{
	struct md_lock_session *session = session_find(locks, id);
	bool gx_hash_failed = false;

	if (session)
		return session;
	session = calloc(1, sizeof(*session));
	if (!session)
		return NULL;
	session->id = id;
	HASH_ADD(hh, locks->sessions, id, sizeof(session->id), session);
	if (!gx_hash_failed)
		return session;
	free(session);
	return NULL;
}

static struct md_lock_owner *owner_find(struct md_locks *locks, const struct md_lock_what *what)
{
	struct owner_key key = {what->session, what->owner, what->kind};
	struct md_lock_owner *owner;

	HASH_FIND(hh, locks->owners, &key, sizeof(key), owner);
	return owner;
}

static void owner_unused(struct md_locks *locks, struct md_lock_owner *owner)
{
	struct md_lock_session *session = owner->session;

	if (owner->locks || owner->waits)
		return;
	DL_DELETE(session->owners, owner);
	HASH_DEL(locks->owners, owner);
	free(owner);
	if (!session->owners) {
		HASH_DEL(locks->sessions, session);
		free(session);
	}
}

static struct md_lock_owner *owner_make(struct md_locks *locks, const struct md_lock_what *what)
{
	struct md_lock_owner *owner = owner_find(locks, what);
	bool gx_hash_failed = false;
	struct md_lock_session *session;

	if (owner)
		return owner;
	session = session_make(locks, what->session);
	owner = session ? calloc(1, sizeof(*owner)) : NULL;
	if (owner) {
		owner->key = (struct owner_key){what->session, what->owner, what->kind};
		owner->session = session;
		HASH_ADD(hh, locks->owners, key, sizeof(owner->key), owner);
		if (!gx_hash_failed) {
			DL_APPEND(session->owners, owner);
			return owner;
		}
		free(owner);
	}
	if (session && !session->owners) {
		HASH_DEL(locks->sessions, session);
		free(session);
	}
	return NULL;
}

static void lock_insert(struct md_locks *locks, struct md_lock *lock)
{
	struct md_lock **head = &lock->inode->locks[lock->owner->key.kind - 1];
	struct md_lock *behind = *head;

	while (behind && behind->start <= lock->start)
		behind = behind->next;
	if (behind)
		DL_PREPEND_ELEM(*head, behind, lock);
	else
		DL_APPEND(*head, lock);
	DL_APPEND2(lock->owner->locks, lock, of_prev, of_next);
	lock->inode->lock_count++;
	lock->owner->session->lock_count++;
	locks->lock_count++;
}

static void lock_remove(struct md_locks *locks, struct md_lock *lock)
{
	DL_DELETE(lock->inode->locks[lock->owner->key.kind - 1], lock);
	DL_DELETE2(lock->owner->locks, lock, of_prev, of_next);
	lock->inode->lock_count--;
	lock->owner->session->lock_count--;
	locks->lock_count--;
	free(lock);
}

static void wait_insert(struct md_locks *locks, struct md_lock_wait *wait)
{
	struct md_lock_inode *inode = wait->inode;

	DL_APPEND(inode->waits[wait->what.kind - 1], wait);
	DL_APPEND2(wait->owner->waits, wait, of_prev, of_next);
	DL_APPEND2(wait->owner->session->waits, wait, s_prev, s_next);
	if (inode->wait_count++ == 0)
		DL_APPEND(locks->waited, inode);
	wait->owner->session->wait_count++;
	locks->wait_count++;
}

static void wait_remove(struct md_locks *locks, struct md_lock_wait *wait)
{
	struct md_lock_inode *inode = wait->inode;

	HASH_DEL(locks->waits, wait);
	DL_DELETE(inode->waits[wait->what.kind - 1], wait);
	DL_DELETE2(wait->owner->waits, wait, of_prev, of_next);
	DL_DELETE2(wait->owner->session->waits, wait, s_prev, s_next);
	if (--inode->wait_count == 0)
		DL_DELETE(locks->waited, inode);
	wait->owner->session->wait_count--;
	locks->wait_count--;
	free(wait);
}

/* -- setting --------------------------------------------------------------------------------------
 */

int md_lock_check(const struct md_lock_what *what)
{
	if (what->kind < 1 || what->kind > MD_LOCK_KINDS || what->type > MD_LOCK_WRITE ||
	    what->start > what->end || what->end > MD_LOCK_END)
		return -EINVAL;
	if (what->kind == MD_LOCK_FLOCK && (what->start != 0 || what->end != MD_LOCK_END))
		return -EINVAL;
	return 0;
}

static bool touches(const struct md_lock *lock, const struct md_lock_what *what)
{
	uint64_t before = what->start > 0 ? what->start - 1 : 0;

	return lock->start <= what->end + 1 && lock->end >= before;
}

static bool overlaps(const struct md_lock *lock, const struct md_lock_what *what)
{
	return lock->start <= what->end && lock->end >= what->start;
}

/*
 * Cuts what the owner has out of the range, and joins what is of the new type and touches it:
 * *range grows. `tail` is memory for the second half of a lock that is cut in two; NULL when used.
 */
static void carve(struct md_locks *locks, struct md_lock_inode *inode,
		  const struct md_lock_owner *owner, const struct md_lock_what *what,
		  struct md_lock_what *range, struct md_lock **tail)
{
	struct md_lock *lock, *next;

	for (lock = inode->locks[what->kind - 1]; lock && lock->start <= what->end + 1;
	     lock = next) {
		next = lock->next;
		if (lock->owner != owner || !touches(lock, what))
			continue;
		if (lock->type == what->type) {
			range->start = GX_MIN(range->start, lock->start);
			range->end = GX_MAX(range->end, lock->end);
			lock_remove(locks, lock);
		} else if (overlaps(lock, what)) {
			if (lock->end > what->end && lock->start < what->start) {
				**tail = *lock;
				(*tail)->start = what->end + 1;
				lock->end = what->start - 1;
				lock_insert(locks, GX_TAKE(*tail));
			} else if (lock->start < what->start) {
				lock->end = what->start - 1;
			} else if (lock->end > what->end) {
				/* Its place in the order is behind what it was, or the same. */
				**tail = *lock;
				(*tail)->start = what->end + 1;
				lock_remove(locks, lock);
				lock_insert(locks, GX_TAKE(*tail));
			} else {
				lock_remove(locks, lock);
			}
		}
	}
}

/* Does it cut a lock at its right end, so that memory for a tail is needed? At most one. */
static bool needs_tail(const struct md_lock_inode *inode, const struct md_lock_owner *owner,
		       const struct md_lock_what *what, bool *ret_more)
{
	const struct md_lock *lock;

	for (lock = inode->locks[what->kind - 1]; lock && lock->start <= what->end;
	     lock = lock->next) {
		if (lock->owner == owner && lock->type != what->type && overlaps(lock, what) &&
		    lock->end > what->end) {
			*ret_more = lock->start < what->start;
			return true;
		}
	}
	*ret_more = false;
	return false;
}

static bool has_room(const struct md_locks *locks, const struct md_lock_inode *inode,
		     const struct md_lock_session *session, size_t more)
{
	const struct md_locks_options *o = &locks->options;

	return locks->lock_count + more <= o->locks_max &&
	       inode->lock_count + more <= o->locks_per_inode_max &&
	       session->lock_count + more <= o->locks_per_session_max;
}

/* Nobody is in the way. What was had before stays if this fails. */
static int apply(struct md_locks *locks, struct md_lock_inode *inode, struct md_lock_owner *owner,
		 const struct md_lock_what *what)
{
	struct md_lock_what range = *what;
	struct md_lock *lock = NULL, *tail = NULL;
	bool more, cut = needs_tail(inode, owner, what, &more);

	if ((more || what->type != MD_LOCK_NONE) &&
	    !has_room(locks, inode, owner->session,
		      (size_t)more + (what->type != MD_LOCK_NONE ? 1 : 0)))
		return -ENOLCK;
	if (cut) {
		tail = malloc(sizeof(*tail));
		if (!tail)
			return -ENOMEM;
	}
	if (what->type != MD_LOCK_NONE) {
		lock = malloc(sizeof(*lock));
		if (!lock) {
			free(tail);
			return -ENOMEM;
		}
	}
	carve(locks, inode, owner, what, &range, &tail);
	gx_assert(!tail);
	if (lock) {
		*lock = (struct md_lock){.owner = owner,
					 .inode = inode,
					 .type = what->type,
					 .pid = what->pid,
					 .start = range.start,
					 .end = range.end};
		lock_insert(locks, lock);
	}
	return 0;
}

static int enqueue(struct md_locks *locks, struct md_lock_inode *inode, struct md_lock_owner *owner,
		   const struct md_lock_what *what, uint64_t id)
{
	bool gx_hash_failed = false;
	struct md_lock_wait *wait;

	if (locks->wait_count >= locks->options.waits_max ||
	    inode->wait_count >= locks->options.waits_per_inode_max ||
	    owner->session->wait_count >= locks->options.waits_per_session_max)
		return -ENOLCK;
	wait = malloc(sizeof(*wait));
	if (!wait)
		return -ENOMEM;
	*wait = (struct md_lock_wait){
		.owner = owner, .inode = inode, .what = *what, .key = {what->session, id}};
	HASH_ADD(hh, locks->waits, key, sizeof(wait->key), wait);
	if (gx_hash_failed) {
		free(wait);
		return -ENOMEM;
	}
	wait_insert(locks, wait);
	/* Who has nothing and waits for nothing else is waited for by nobody. */
	if (owner->locks || wait->of_prev != wait)
		md_lock_look_along(locks, owner);
	return -EAGAIN;
}

/* A flock that is to become another is lost when that cannot be had at once. */
static void lose_flock(struct md_locks *locks, struct md_lock_inode *inode,
		       struct md_lock_owner *owner)
{
	struct md_lock *lock;

	DL_FOREACH (inode->locks[MD_LOCK_FLOCK - 1], lock) {
		if (lock->owner == owner) {
			lock_remove(locks, lock);
			md_lock_look(locks, inode, MD_LOCK_FLOCK);
			return;
		}
	}
}

/* Somebody is in the way. */
static int blocked(struct md_locks *locks, struct md_lock_inode *inode, struct md_lock_owner *owner,
		   const struct md_lock_what *what, uint64_t id, struct md_lock_wait *self)
{
	if (what->kind == MD_LOCK_FLOCK)
		lose_flock(locks, inode, owner);
	if (id == 0)
		return -EAGAIN;
	if (self) {
		self->turn = false;
		return -EAGAIN;
	}
	if (md_lock_would_deadlock(locks, inode, owner, what))
		return -EDEADLK;
	return enqueue(locks, inode, owner, what, id);
}

/* The place in the queue that this request has already. */
static struct md_lock_wait *own_place(struct md_locks *locks, const struct md_lock_what *what,
				      uint64_t id)
{
	struct md_lock_wait *wait = id ? md_lock_wait_find(locks, what->session, id) : NULL;
	bool same;

	if (!wait)
		return NULL;
	same = wait->what.ino == what->ino && wait->what.owner == what->owner &&
	       wait->what.kind == what->kind && wait->what.type == what->type &&
	       wait->what.start == what->start && wait->what.end == what->end;
	if (same)
		return wait;
	/* A number used again. */
	md_lock_wait_drop(locks, wait);
	return NULL;
}

int md_lock_set(struct md_locks *locks, const struct md_lock_what *what, uint64_t id,
		struct md_lock_what *ret_conflict)
{
	struct md_lock_wait *self = own_place(locks, what, id);
	struct md_lock_inode *inode = inode_find(locks, what->ino);
	struct md_lock_owner *owner = owner_find(locks, what);
	struct md_lock_what conflict;
	int r;

	if (what->type == MD_LOCK_NONE && (!inode || !owner))
		return 0;
	inode = inode_make(locks, what->ino);
	if (!inode)
		return -ENOMEM;
	owner = owner_make(locks, what);
	if (!owner) {
		inode_unused(locks, inode);
		return -ENOMEM;
	}
	if (what->type != MD_LOCK_NONE &&
	    md_lock_is_blocked(locks, inode, owner, self, id != 0, what, &conflict)) {
		if (ret_conflict)
			*ret_conflict = conflict;
		r = blocked(locks, inode, owner, what, id, self);
	} else {
		r = apply(locks, inode, owner, what);
		if (r == 0 && self)
			wait_remove(locks, self);
		/* By this lock others may wait for this owner while another thread of it waits. */
		if (r == 0 && owner->waits)
			md_lock_look_along(locks, owner);
	}
	md_lock_look(locks, inode, what->kind);
	owner_unused(locks, owner);
	inode_unused(locks, inode);
	return r;
}

bool md_lock_test(struct md_locks *locks, const struct md_lock_what *what,
		  struct md_lock_what *ret_conflict)
{
	const struct md_lock_inode *inode = inode_find(locks, what->ino);

	return inode && md_lock_is_blocked(locks, inode, owner_find(locks, what), NULL, false, what,
					   ret_conflict);
}

/* -- the end --------------------------------------------------------------------------------------
 */

struct md_lock_wait *md_lock_wait_find(struct md_locks *locks, uint64_t session, uint64_t id)
{
	struct md_lock_wait_key key = {session, id};
	struct md_lock_wait *wait;

	HASH_FIND(hh, locks->waits, &key, sizeof(key), wait);
	return wait;
}

struct md_lock_wait *md_lock_wait_first(struct md_locks *locks, uint64_t session)
{
	struct md_lock_session *found = session_find(locks, session);

	return found ? found->waits : NULL;
}

void md_lock_wait_drop(struct md_locks *locks, struct md_lock_wait *wait)
{
	struct md_lock_inode *inode = wait->inode;
	struct md_lock_owner *owner = wait->owner;
	unsigned kind = wait->what.kind;

	wait_remove(locks, wait);
	owner_unused(locks, owner);
	md_lock_look(locks, inode, kind);
	inode_unused(locks, inode);
}

bool md_lock_has(struct md_locks *locks, uint64_t session, uint64_t ino)
{
	const struct md_lock_inode *inode = inode_find(locks, ino);

	for (unsigned k = 0; inode && k < MD_LOCK_KINDS; k++) {
		const struct md_lock_wait *wait;
		const struct md_lock *lock;

		DL_FOREACH (inode->locks[k], lock)
			if (lock->owner->key.session == session)
				return true;
		DL_FOREACH (inode->waits[k], wait)
			if (wait->what.session == session)
				return true;
	}
	return false;
}

static void release_kind(struct md_locks *locks, struct md_lock_inode *inode, uint64_t session,
			 unsigned kind)
{
	struct md_lock_wait *wait, *next_wait;
	struct md_lock *lock, *next;

	DL_FOREACH_SAFE (inode->waits[kind - 1], wait, next_wait) {
		struct md_lock_owner *owner = wait->owner;

		if (wait->what.session != session)
			continue;
		wait_remove(locks, wait);
		owner_unused(locks, owner);
	}
	DL_FOREACH_SAFE (inode->locks[kind - 1], lock, next) {
		struct md_lock_owner *owner = lock->owner;

		if (owner->key.session != session)
			continue;
		lock_remove(locks, lock);
		owner_unused(locks, owner);
	}
	md_lock_look(locks, inode, kind);
}

void md_lock_release_inode(struct md_locks *locks, uint64_t session, uint64_t ino)
{
	struct md_lock_inode *inode = inode_find(locks, ino);

	if (!inode || !session_find(locks, session))
		return;
	for (unsigned kind = 1; kind <= MD_LOCK_KINDS; kind++)
		release_kind(locks, inode, session, kind);
	inode_unused(locks, inode);
}

bool md_lock_release_session(struct md_locks *locks, uint64_t id, unsigned steps)
{
	struct md_lock_session *session;

	while ((session = session_find(locks, id)) != NULL) {
		struct md_lock_owner *owner = session->owners;

		if (steps-- == 0)
			return false;
		if (owner->waits)
			md_lock_wait_drop(locks, owner->waits);
		else
			md_lock_release_inode(locks, id, owner->locks->inode->ino);
	}
	return true;
}

size_t md_lock_count(const struct md_locks *locks)
{
	return locks->lock_count;
}

size_t md_lock_wait_count(const struct md_locks *locks)
{
	return locks->wait_count;
}

size_t md_lock_count_of(struct md_locks *locks, uint64_t session)
{
	const struct md_lock_session *found = session_find(locks, session);

	return found ? found->lock_count : 0;
}
