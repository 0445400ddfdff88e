/*
 * md_lease.h - who may have what in a cache (rule N11).
 *
 * A lease is a pair (inode, session) with what the session may have cached of it: its attributes
 * and content, names in it. Leases are given with answers and end when metad tells the session to
 * forget, or when the session has lost them all. This is the table alone: whom to tell is asked
 * here, telling and waiting is md_forget.h's.
 *
 * Memory is bounded: at `leases_max` the oldest lease makes way, and its session must be told to
 * forget it (evict_fn); nobody waits for that, but see md_forget.h.
 *
 * A directory whose names change again and again while a session does not look at it: after
 * MD_LEASE_NAMES_MAX single names the session is told to forget all names, and its lease on them
 * ends; so it costs the other side no more round trips.
 *
 * Threads: the loop's.
 */
#ifndef MD_LEASE_H
#define MD_LEASE_H

#include "common/gx_base.h"

#define MD_LEASE_ATTR 1u      /* attributes, content, target of a link, extended attributes */
#define MD_LEASE_NAMES 2u     /* names in it that exist, and that do not */
#define MD_LEASE_ALL_NAMES 4u /* md_lease_break(): all of them at once */
#define MD_LEASE_NAMES_MAX 16u

struct md_leases;

/*
 * The session must forget this inode (MD_LEASE_*); its lease is gone. Called from md_lease_give();
 * may not call this table.
 */
typedef void (*md_lease_evict_fn)(void *arg, uint64_t session, uint64_t ino, unsigned what);

/* Takes its memory at once, about 64 bytes a lease (untouched until used). -EINVAL: 0 or 2^32 - 1
 * leases and more; -ENOMEM. */
GX_MUST_CHECK int md_leases_new(size_t leases_max, md_lease_evict_fn evict_fn, void *arg,
				struct md_leases **ret_leases);
void md_leases_free(struct md_leases *leases);

/*
 * Adds to what the session (not 0) may cache; makes the lease the newest, and with MD_LEASE_NAMES
 * counts as a look. -ENOMEM: it may not cache it.
 */
GX_MUST_CHECK int md_lease_give(struct md_leases *leases, uint64_t session, uint64_t ino,
				unsigned what);

/*
 * Something changes: `what` is MD_LEASE_ATTR, or MD_LEASE_NAMES for one name in a directory, or
 * MD_LEASE_ALL_NAMES for who may use names in it at all. Calls
 * fn for each session other than `by` (0: all of them) that has it, with what it is to be told:
 * MD_LEASE_ATTR (its lease on the attributes is over), or for names `all` false (the one name; it
 * keeps the lease) or `all` true (all names; the lease is over). fn may not call this table.
 */
typedef void (*md_lease_fn)(void *arg, uint64_t session, uint64_t ino, unsigned what, bool all);
void md_lease_break(struct md_leases *leases, uint64_t by, uint64_t ino, unsigned what,
		    md_lease_fn fn, void *arg);

/* The session has nothing cached any more. At most `steps_max` leases per call; true: all gone. */
bool md_lease_drop_session(struct md_leases *leases, uint64_t session, size_t steps_max);
size_t md_lease_count(const struct md_leases *leases);
size_t md_lease_count_of(const struct md_leases *leases, uint64_t session);

#endif
