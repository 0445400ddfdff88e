/*
 * md_access.h - who may read and write which object: the table of leases (rules B2, B4).
 *
 * A grant is a pair (session, inode): read (any current copy, may be cached), exclusive (no other
 * session has it: writes may be held back) or shared (several sessions with a writer among them:
 * nothing is cached, all goes through the primary), and whether the session may write. This is the
 * table alone, and who is in whose way; asking holders to give way, waiting for them and recovering
 * what a vanished one left behind is md_data.c's.
 *
 * Nothing here is durable: after a restart clients tell what they have (Resume).
 *
 * A session that ends in the middle of shared writing may still have a ticket that the primary
 * believes, and may have written more than it told. As long as others have the inode it stays
 * shared then (`tainted`), and the last writer's end must move the generation and ask the primary.
 * After a restart nobody knows whether there was one: what was shared is taken for tainted.
 *
 * Threads: the loop's.
 */
#ifndef MD_ACCESS_H
#define MD_ACCESS_H

#include "common/gx_hash.h"

#define MD_ACCESS_READ 1u
#define MD_ACCESS_EXCLUSIVE 2u
#define MD_ACCESS_SHARED 3u

struct md_access;
struct md_access_inode;
struct md_access_session;

struct md_grant {
	struct md_grant *prev, *next;         /* of the inode */
	struct md_grant *of_prev, *of_next;   /* of the session */
	struct md_grant *way_prev, *way_next; /* those that are to give way, if recalled */
	struct md_access_inode *inode;
	struct md_access_session *of;
	uint64_t session, ino;
	unsigned mode; /* MD_ACCESS_ */
	bool write;
	bool recalled;       /* asked to give way, no answer yet */
	int64_t recalled_ns; /* since then */
	uint64_t ask;        /* the question for its size that was sent last (rule N12) … */
	bool asking;         /* … which it has not answered … */
	int64_t asked_ns;    /* … when; … */
	int64_t told_ns;     /* … and when the last was asked that it did answer */
};

GX_MUST_CHECK int md_access_new(struct md_access **ret_access);
void md_access_free(struct md_access *access);

/* -- query -- */

/* NULL: it has none. */
struct md_grant *md_access_find(struct md_access *access, uint64_t session, uint64_t ino);
/* The first of an inode (go on with ->next), of a session, of those asked to give way. */
struct md_grant *md_access_first(struct md_access *access, uint64_t ino);
struct md_grant *md_access_first_of(struct md_access *access, uint64_t session);
struct md_grant *md_access_first_recalled(struct md_access *access);
size_t md_access_count(const struct md_access *access);
/* Somebody other than `session` (0: anybody) may write it. */
bool md_access_has_writer(struct md_access *access, uint64_t session, uint64_t ino);
bool md_access_is_tainted(struct md_access *access, uint64_t ino);
/*
 * Must this grant give way before another session may read (or `write`)? While the file grows out
 * of metad there can be only one writer: the inline content is copied by him (rule N10).
 */
bool md_access_in_way(const struct md_grant *grant, bool write, bool growing);
/*
 * The mode for a session, once nobody is in its way. `recallable`: it can be asked to give way, so
 * it may have it for itself. What it has for itself it keeps, also while its push channel is away.
 */
unsigned md_access_mode(struct md_access *access, uint64_t session, uint64_t ino, bool write,
			bool recallable);

/* -- change -- */

/* Makes or changes a grant: the right to write is added, never taken. -ENOMEM. */
GX_MUST_CHECK int md_access_give(struct md_access *access, uint64_t session, uint64_t ino,
				 unsigned mode, bool write, struct md_grant **ret_grant);
void md_access_drop(struct md_access *access, struct md_grant *grant);
/* The holder has vanished: as md_access_drop(), but what it may still do is remembered. */
void md_access_lose(struct md_access *access, struct md_grant *grant);
/* It shares with those who have come back after a restart, and perhaps with one who will not. */
void md_access_taint(struct md_grant *grant);
void md_access_recall(struct md_access *access, struct md_grant *grant, int64_t now_ns);
/* It has given way: it is shared from now on. */
void md_access_share(struct md_access *access, struct md_grant *grant);
/* The generation has moved: whoever was lost can do nothing any more. */
void md_access_clean(struct md_access *access, uint64_t ino);
/* Time that counts for nobody (rule N15). */
void md_access_forgive(struct md_access *access, int64_t gap_ns);

#endif
