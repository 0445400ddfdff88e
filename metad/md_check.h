/*
 * md_check.h - does the state hold together?
 *
 * Reads all of it and compares every record with the others: each entry leads to an inode, link
 * counts are the number of names, a directory knows its size and its parent and hangs below the
 * root, nothing lies around that nobody refers to except orphans, and the counters are right. What
 * is not inline has a layout, which the nodes' indexes mirror; no node is to delete what it still
 * counts for, and exactly the inodes whose copies are not as wanted are marked so. For tests and
 * for looking after a damaged store; it takes as long as the state is large, and some hundred bytes
 * per inode.
 *
 * Threads: the loop's.
 */
#ifndef MD_CHECK_H
#define MD_CHECK_H

#include "metad/md_state.h"

/* One line about one thing that is wrong. */
typedef void (*md_check_fn)(void *arg, const char *text);

/* How many things are wrong, each told to fn (may be NULL); -ENOMEM. */
GX_MUST_CHECK int md_check(struct md_state *state, md_check_fn fn, void *arg);

#endif
