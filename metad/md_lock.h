/*
 * md_lock.h - locks on files: the table, who is in whose way, and whose turn it is.
 *
 * Two kinds that know nothing of each other, as on Linux: POSIX locks (fcntl: ranges of bytes, any
 * number per owner, split, merged, upgraded and downgraded by setting them again) and flocks (the
 * whole file). An owner is a number its session has chosen: a process, an open file.
 *
 * Waiting is a place in a queue and nothing more: nobody gets a lock behind his back. When the way
 * is free the first in the queue gets his *turn*: from then on nobody else can take what he asked
 * for, and he takes it himself with md_lock_set(). So an answer that gets lost, a client that gives
 * up and one that asks twice need no undoing; a turn that is not used is dropped by the caller.
 *
 * The queue of an inode is first in, first out among those who are in each other's way, readers do
 * not pass a waiting writer. With one exception: nobody stands behind one who waits, over however
 * many others, for himself; fairness must not make deadlocks. Who does not wait (a try) minds those
 * who have a lock or their turn, not the queue, so that a try and a test agree.
 *
 * A POSIX lock whose waiting would close a circle of owners that wait for each other's locks is
 * refused with -EDEADLK, across inodes and sessions. Flocks are not, as on Linux: who waits for one
 * has none on that file.
 *
 * Nothing here is durable: after a restart clients tell what they have (Resume).
 * Threads: the loop's.
 */
#ifndef MD_LOCK_H
#define MD_LOCK_H

#include "common/gx_hash.h"

#define MD_LOCK_POSIX 1u
#define MD_LOCK_FLOCK 2u
#define MD_LOCK_KINDS 2u

#define MD_LOCK_NONE 0u /* to unlock; or nobody is in the way */
#define MD_LOCK_READ 1u
#define MD_LOCK_WRITE 2u

/* The last byte there can be: a range to there is one to the end of the file, however long. */
#define MD_LOCK_END ((uint64_t)INT64_MAX)

/* A lock: had, asked for, or in the way. */
struct md_lock_what {
	uint64_t ino;
	uint64_t session;
	uint64_t owner;      /* in the session */
	unsigned kind, type; /* MD_LOCK_ */
	uint64_t start, end; /* both belong to it; of a flock 0 and MD_LOCK_END */
	uint32_t pid;        /* for F_GETLK */
};

struct md_locks;
struct md_lock_owner;
struct md_lock_inode;
struct md_lock_session;

/* A place in a queue. */
struct md_lock_wait {
	struct md_lock_wait *prev, *next;       /* of the inode and kind, in order */
	struct md_lock_wait *of_prev, *of_next; /* of the owner */
	struct md_lock_wait *s_prev, *s_next;   /* of the session */
	struct md_lock_owner *owner;
	struct md_lock_inode *inode;
	struct md_lock_what what;
	struct md_lock_wait_key {
		uint64_t session;
		uint64_t id; /* in the session; its client's choice */
	} key;
	bool turn;
	/* The caller's, set by turn_fn: since when; has its client been told? */
	int64_t turn_ns;
	bool told;
	UT_hash_handle hh;
};

struct md_locks_options {
	size_t locks_max, locks_per_inode_max, locks_per_session_max;
	size_t waits_max, waits_per_session_max;
	size_t waits_per_inode_max; /* searches in a queue of n may take n² steps */
	/* It is the turn of this one. Must not call back. May be NULL. */
	void (*turn_fn)(void *arg, struct md_lock_wait *wait);
	void *arg;
};

GX_MUST_CHECK int md_locks_new(const struct md_locks_options *options, struct md_locks **ret_locks);
void md_locks_free(struct md_locks *locks);

/* Is this a lock that can be? -EINVAL. */
GX_MUST_CHECK int md_lock_check(const struct md_lock_what *what);

/*
 * Sets, changes or (type NONE) ends what the owner has in this range. wait != 0: if somebody is in
 * the way, and for his turn, a place in the queue is taken under this id, or kept; 0: a try.
 *
 * 0: done, the place in the queue is gone. -EAGAIN: *ret_conflict (may be NULL) is in the way; what
 * the owner had is unchanged, except a flock of another type, which is lost (flock(2)). -EDEADLK.
 * -ENOLCK: too many. -ENOMEM. NONE fails only with -ENOLCK and -ENOMEM, when it cuts a lock in two.
 */
GX_MUST_CHECK int md_lock_set(struct md_locks *locks, const struct md_lock_what *what,
			      uint64_t wait, struct md_lock_what *ret_conflict);
/* Who is in the way? False: nobody. */
bool md_lock_test(struct md_locks *locks, const struct md_lock_what *what,
		  struct md_lock_what *ret_conflict);
/* All that a session has and waits for on an inode; has it anything? */
void md_lock_release_inode(struct md_locks *locks, uint64_t session, uint64_t ino);
bool md_lock_has(struct md_locks *locks, uint64_t session, uint64_t ino);
/* All of a session, at most so many locks and places; true: nothing is left. */
bool md_lock_release_session(struct md_locks *locks, uint64_t session, unsigned steps);

/* Places in queues. */
struct md_lock_wait *md_lock_wait_find(struct md_locks *locks, uint64_t session, uint64_t id);
struct md_lock_wait *md_lock_wait_first(struct md_locks *locks, uint64_t session); /* ->s_next */
void md_lock_wait_drop(struct md_locks *locks, struct md_lock_wait *wait);

/*
 * For each of those who wait longest, on every inode, one lock that is in his way. fn must not call
 * back.
 */
typedef void (*md_lock_blocker_fn)(void *arg, const struct md_lock_what *holder);
void md_lock_each_blocker(struct md_locks *locks, md_lock_blocker_fn fn, void *arg);

size_t md_lock_count(const struct md_locks *locks);
size_t md_lock_wait_count(const struct md_locks *locks);
size_t md_lock_count_of(struct md_locks *locks, uint64_t session);

#endif
