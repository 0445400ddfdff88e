#include "metad/md_lock_impl.h"

/* Of the longest queues only so many look who is in their way. */
#define BLOCKED_LOOKED_AT 64u

/* -- who is in whose way -------------------------------------------------------------------------
 */

static bool excludes(unsigned type, uint64_t start, uint64_t end, const struct md_lock_what *what)
{
	return start <= what->end && end >= what->start &&
	       (type == MD_LOCK_WRITE || what->type == MD_LOCK_WRITE);
}

/* The next lock of another owner that is in the way, from `lock` on. */
static struct md_lock *next_holder(struct md_lock *lock, const struct md_lock_owner *owner,
				   const struct md_lock_what *what)
{
	for (; lock && lock->start <= what->end; lock = lock->next)
		if (lock->owner != owner && excludes(lock->type, lock->start, lock->end, what))
			return lock;
	return NULL;
}

static struct md_lock *holder(const struct md_lock_inode *inode, const struct md_lock_owner *owner,
			      const struct md_lock_what *what)
{
	return next_holder(inode->locks[what->kind - 1], owner, what);
}

static bool waits_against(const struct md_lock_wait *wait, const struct md_lock_owner *owner,
			  const struct md_lock_what *what)
{
	return wait->owner != owner &&
	       excludes(wait->what.type, wait->what.start, wait->what.end, what);
}

/* A search from owner to owner, along who waits for whom. */
struct search {
	uint64_t visit;
	struct md_lock_owner *last; /* found last; the list begins with who was added first */
	bool queues;                /* also along places in queues, not only locks */
};

static void search_add(struct search *search, struct md_lock_owner *owner)
{
	if (owner->visit == search->visit)
		return;
	owner->visit = search->visit;
	owner->found = NULL;
	if (search->last)
		search->last->found = owner;
	search->last = owner;
}

static void search_wait(struct search *search, const struct md_lock_wait *wait)
{
	const struct md_lock_inode *inode = wait->inode;
	struct md_lock *lock = holder(inode, wait->owner, &wait->what);
	struct md_lock_wait *before;

	for (; lock; lock = next_holder(lock->next, wait->owner, &wait->what))
		search_add(search, lock->owner);
	if (!search->queues)
		return;
	DL_FOREACH (inode->waits[wait->what.kind - 1], before) {
		if (before == wait)
			return;
		if (waits_against(before, wait->owner, &wait->what))
			search_add(search, before->owner);
	}
}

/* Does anybody that the search has found, or will find, wait for `target`? NULL: finds all. */
static bool search_reaches(struct search *search, struct md_lock_owner *first,
			   const struct md_lock_owner *target)
{
	for (struct md_lock_owner *owner = first; owner; owner = owner->found) {
		const struct md_lock_wait *wait;

		if (owner == target)
			return true;
		DL_FOREACH2(owner->waits, wait, of_next)
		search_wait(search, wait);
	}
	return false;
}

static bool waits_for(struct md_locks *locks, struct md_lock_owner *from,
		      const struct md_lock_owner *target)
{
	struct search search = {.visit = ++locks->visits, .queues = true};

	search_add(&search, from);
	return search_reaches(&search, from, target);
}

/*
 * Must this owner, who asks for `what`, stand behind `before`? Not behind one who waits for him
 * (see the header). Who comes without a lock and waits for nothing yet, as most do, is waited for
 * by nobody.
 */
static bool stands_behind(struct md_locks *locks, struct md_lock_owner *owner,
			  const struct md_lock_what *what, const struct md_lock_wait *before)
{
	if (!waits_against(before, owner, what))
		return false;
	if (before->turn || !owner)
		return true;
	if (!owner->locks && !owner->waits)
		return true;
	return !waits_for(locks, before->owner, owner);
}

/* Somebody in the queue before `self` (NULL: at its end) is in the way. */
static const struct md_lock_wait *first_before(struct md_locks *locks,
					       const struct md_lock_inode *inode,
					       struct md_lock_owner *owner,
					       const struct md_lock_wait *self,
					       const struct md_lock_what *what)
{
	const struct md_lock_wait *before;

	DL_FOREACH (inode->waits[what->kind - 1], before) {
		if (before == self)
			return NULL;
		if (stands_behind(locks, owner, what, before))
			return before;
	}
	return NULL;
}

/* Somebody whose turn it is. */
static const struct md_lock_wait *first_turn(const struct md_lock_inode *inode,
					     const struct md_lock_owner *owner,
					     const struct md_lock_what *what)
{
	const struct md_lock_wait *wait;

	DL_FOREACH (inode->waits[what->kind - 1], wait)
		if (wait->turn && waits_against(wait, owner, what))
			return wait;
	return NULL;
}

static void tell_holder(const struct md_lock *lock, struct md_lock_what *ret_conflict)
{
	const struct owner_key *key = &lock->owner->key;

	*ret_conflict = (struct md_lock_what){
		.ino = lock->inode->ino,
		.session = key->session,
		.owner = key->owner,
		.kind = (unsigned)key->kind,
		.type = lock->type,
		.start = lock->start,
		.end = lock->end,
		.pid = lock->pid,
	};
}

bool md_lock_is_blocked(struct md_locks *locks, const struct md_lock_inode *inode,
			struct md_lock_owner *owner, const struct md_lock_wait *self, bool queued,
			const struct md_lock_what *what, struct md_lock_what *ret_conflict)
{
	const struct md_lock *lock = holder(inode, owner, what);
	const struct md_lock_wait *wait;

	if (lock) {
		tell_holder(lock, ret_conflict);
		return true;
	}
	wait = first_turn(inode, owner, what);
	if (!wait && queued && !(self && self->turn))
		wait = first_before(locks, inode, owner, self, what);
	if (wait)
		*ret_conflict = wait->what;
	return wait != NULL;
}

bool md_lock_would_deadlock(struct md_locks *locks, const struct md_lock_inode *inode,
			    const struct md_lock_owner *owner, const struct md_lock_what *what)
{
	struct search search = {.visit = ++locks->visits};
	struct md_lock_owner *first = NULL;
	struct md_lock *lock;

	if (!owner || !owner->locks || what->kind != MD_LOCK_POSIX)
		return false;
	for (lock = holder(inode, owner, what); lock; lock = next_holder(lock->next, owner, what)) {
		search_add(&search, lock->owner);
		first = first ? first : search.last;
	}
	return search_reaches(&search, first, owner);
}

/* -- turns ---------------------------------------------------------------------------------------
 */

void md_lock_look(struct md_locks *locks, struct md_lock_inode *inode, unsigned kind)
{
	struct md_lock_wait *wait;
	struct md_lock_what conflict;

	DL_FOREACH (inode->waits[kind - 1], wait) {
		if (wait->turn || md_lock_is_blocked(locks, inode, wait->owner, wait, true,
						     &wait->what, &conflict))
			continue;
		wait->turn = true;
		if (locks->options.turn_fn)
			locks->options.turn_fn(locks->options.arg, wait);
	}
}

void md_lock_look_along(struct md_locks *locks, struct md_lock_owner *owner)
{
	struct search search = {.visit = ++locks->visits, .queues = true};
	struct md_lock_inode *list = NULL;
	const struct md_lock_wait *wait;

	search_add(&search, owner);
	search_reaches(&search, owner, NULL);
	/* Looking searches again, so all are noted first. */
	for (; owner; owner = owner->found) {
		DL_FOREACH2(owner->waits, wait, of_next)
		{
			if (wait->turn || wait->inode->look)
				continue;
			wait->inode->look = true;
			wait->inode->look_next = list;
			list = wait->inode;
		}
	}
	for (; list; list = list->look_next) {
		list->look = false;
		for (unsigned kind = 1; kind <= MD_LOCK_KINDS; kind++)
			md_lock_look(locks, list, kind);
	}
}

void md_lock_each_blocker(struct md_locks *locks, md_lock_blocker_fn fn, void *arg)
{
	const struct md_lock_inode *inode;

	DL_FOREACH (locks->waited, inode) {
		for (unsigned k = 0; k < MD_LOCK_KINDS; k++) {
			const struct md_lock_wait *wait = inode->waits[k];

			for (unsigned i = 0; wait && i < BLOCKED_LOOKED_AT; i++) {
				const struct md_lock *lock =
					holder(inode, wait->owner, &wait->what);
				struct md_lock_what what;

				if (lock) {
					tell_holder(lock, &what);
					fn(arg, &what);
				}
				wait = wait->next;
			}
		}
	}
}
