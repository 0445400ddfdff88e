/*
 * fsd_table_impl.h - what the two files of the table share.
 *
 * fsd_table.c         entries: objects that are open, and their generations
 * fsd_table_spools.c  what is on the disks: which generations, how much room, lists of all
 */
#ifndef FSD_TABLE_IMPL_H
#define FSD_TABLE_IMPL_H

#include "common/gx_hash.h"
#include "fsd/fsd_server_impl.h"

/* A spool. */
struct fsd_home {
	struct fsd_spool *spool;
	/* Under the table's lock. */
	uint64_t bytes, free_bytes; /* when looked at, less what was promised since */
	int64_t looked_ns;
};

struct fsd_entry {
	UT_hash_handle hh; /* by id */
	struct fsd_object *object;
	struct fsd_home *home;
	_Atomic uint64_t clock;
	_Atomic int64_t changed_ns;
	_Atomic bool is_dirty; /* in table->dirty; changed under the lock */
	_Atomic bool is_damaged;

	/* Under the lock. */
	struct fsd_object_id id;
	struct fsd_entry *prev, *next; /* table->idle while nobody has a reference */
	struct fsd_entry *dirty_prev, *dirty_next;
	unsigned refs;
	unsigned changers;
	bool is_moving; /* its generation; changes wait */
	bool is_outdated;
	bool is_held;    /* a copy brings it up: no ticket opens it */
	bool is_removed; /* not in the hash */
};

/* Somebody opens, makes, moves or removes objects of this inode. */
struct fsd_busy {
	struct fsd_busy *prev, *next;
	uint64_t ino;
};

struct fsd_item {
	struct fsd_object_id id;
	uint64_t bytes;
};

struct fsd_items {
	struct fsd_item *list;
	size_t count, size;
	bool is_sorted;
};

struct fsd_table {
	struct fsd_server *server;
	struct gx_env *env;
	struct fsd_home *homes;
	size_t home_count;
	size_t open_max;
	struct gx_mutex epoch_lock; /* one caller of fsd_table_epoch() at a time */
	struct gx_mutex lock;
	struct gx_cond changed; /* busy, is_moving, changers */
	bool epoch_lock_ready, lock_ready, changed_ready;

	/* Under the lock. */
	struct fsd_entry *entries;
	struct fsd_entry *idle; /* longest idle first */
	struct fsd_entry *dirty;
	struct fsd_busy *busy;
	uint64_t clock_floor; /* at least that of every entry that was closed */
	void (*waker)(void *arg);
	void *waker_arg;
	struct fsd_items
		items; /* fsd_table_list(): what there was when it began, and has come since */
	bool listing;
};

/* What the spools have of one inode. */
struct fsd_search {
	struct fsd_table *table;
	struct fsd_home *home; /* being looked at */
	uint64_t wanted, base;
	struct fsd_home *wanted_home, *base_home; /* NULL: there is none */
	uint64_t highest;
	uint64_t lower; /* the highest of those below the wanted one */
	bool has_lower;
	bool outdate; /* entries lower than wanted are outdated */
};

static inline void fsd_table_lock(struct fsd_table *table)
{
	gx_env_mutex_lock(table->env, &table->lock);
}

static inline void fsd_table_unlock(struct fsd_table *table)
{
	gx_env_mutex_unlock(table->env, &table->lock);
}

/* NULL: not open. Under the lock. */
static inline struct fsd_entry *fsd_entry_find(const struct fsd_table *table,
					       const struct fsd_object_id *id)
{
	struct fsd_entry *entry;

	HASH_FIND(hh, table->entries, id, sizeof(*id), entry);
	return entry;
}

/* -- fsd_table_spools.c -------------------------------------------------------- */

/* Asks all spools. Not under the lock. */
GX_MUST_CHECK int fsd_search_disk(struct fsd_search *search, uint64_t ino);
/* The generations below the one that was wanted are old from now on. Not under the lock. */
GX_MUST_CHECK int fsd_search_outdate(struct fsd_search *search, uint64_t ino);
GX_MUST_CHECK int fsd_table_look(struct fsd_table *table, struct fsd_home *home);
/* The spool with most room; -ENOSPC. */
GX_MUST_CHECK int fsd_table_choose(struct fsd_table *table, struct fsd_home **ret_home);
/* What comes into being while fsd_table_list() is under way is shown, too. Under the lock. */
void fsd_table_note_item(struct fsd_table *table, const struct fsd_object_id *id, uint64_t bytes);
void fsd_items_clear(struct fsd_items *items);

#endif
