/*
 * md_lock_impl.h - what the two files of the table of locks share.
 *
 *	md_lock.c        the tables; setting, splitting, joining, releasing
 *	md_lock_queue.c  who is in whose way; whose turn it is; deadlocks
 */
#ifndef MD_LOCK_IMPL_H
#define MD_LOCK_IMPL_H

#include "metad/md_lock.h"

/* A lock somebody has. Those of one owner and kind on an inode never overlap, and are as long as
 * they can be. */
struct md_lock {
	struct md_lock *prev, *next;       /* of the inode and kind, by start */
	struct md_lock *of_prev, *of_next; /* of the owner */
	struct md_lock_owner *owner;
	struct md_lock_inode *inode;
	unsigned type;
	uint32_t pid;
	uint64_t start, end;
};

struct md_lock_inode {
	uint64_t ino;
	struct md_lock *locks[MD_LOCK_KINDS];
	struct md_lock_wait *waits[MD_LOCK_KINDS];
	size_t lock_count, wait_count;
	struct md_lock_inode *prev, *next; /* locks->waited, if anybody waits */
	bool look;                         /* in a list of those to look at … */
	struct md_lock_inode *look_next;   /* … the next */
	UT_hash_handle hh;
};

struct owner_key {
	uint64_t session, owner, kind;
};

struct md_lock_owner {
	struct owner_key key;
	struct md_lock_session *session;
	struct md_lock_owner *prev, *next; /* of the session */
	struct md_lock *locks;
	struct md_lock_wait *waits;
	uint64_t visit;              /* the last search that came here */
	struct md_lock_owner *found; /* the next it came to */
	UT_hash_handle hh;
};

struct md_lock_session {
	uint64_t id;
	struct md_lock_owner *owners;
	struct md_lock_wait *waits;
	size_t lock_count, wait_count;
	UT_hash_handle hh;
};

struct md_locks {
	struct md_locks_options options;
	struct md_lock_inode *inodes;
	struct md_lock_inode *waited;
	struct md_lock_owner *owners;
	struct md_lock_session *sessions;
	struct md_lock_wait *waits;
	size_t lock_count, wait_count;
	uint64_t visits;
};

/* -- md_lock_queue.c -- */

/*
 * Is anybody in the way? `self`: the place in the queue that the request has; `queued`: it minds
 * the queue. owner NULL: nobody yet.
 */
bool md_lock_is_blocked(struct md_locks *locks, const struct md_lock_inode *inode,
			struct md_lock_owner *owner, const struct md_lock_wait *self, bool queued,
			const struct md_lock_what *what, struct md_lock_what *ret_conflict);
/* Would all wait for each other if this owner waited for who has what he wants? */
bool md_lock_would_deadlock(struct md_locks *locks, const struct md_lock_inode *inode,
			    const struct md_lock_owner *owner, const struct md_lock_what *what);
/* Something about the inode has changed: whose turn is it? */
void md_lock_look(struct md_locks *locks, struct md_lock_inode *inode, unsigned kind);
/*
 * This owner waits now: whoever it waits for may not have to stand behind somebody any more who, by
 * that, waits for him.
 */
void md_lock_look_along(struct md_locks *locks, struct md_lock_owner *owner);

#endif
