/*
 * fsd_table.c - which objects are open, and which spool has which.
 *
 * An entry is an object that is open. It is found by inode and generation, stays open when nobody
 * uses it, and makes room for others then, the longest idle first. One that was changed and has not
 * been synced since has a reference of its own (the list `dirty`), so it cannot be closed before.
 *
 * What is not open is looked for on disk: the names in a directory of the spool are the only truth
 * about which generations of an inode there are, and a list of all in memory would grow with the
 * spool. Opening, making, moving on and removing objects of one inode are done one after the other
 * (`busy`), those of different inodes side by side: an open may hash a whole object after a crash.
 *
 * A generation that is lower than another one of the same inode is old, whatever it is kept for (a
 * base to catch up from, or not deleted yet). No ticket opens it, and an open one is `outdated`
 * from the moment that a higher one appears.
 *
 * Moving on waits until no change is under way (fsd_table_begin): afterwards those with the old
 * generation cannot begin one. Reads are not waited for; one that is under way overlaps with
 * whatever comes after in any case.
 *
 * Locks, outermost first: `busy` of an inode, `lock`; the object's own are taken inside or outside
 * of `busy`, never under `lock`.
 */
#define GX_LOG_COMPONENT "fsd.table"
#include "common/gx_broken.h"
#include "common/gx_log.h"
#include "fsd/fsd_table_impl.h"
#include <sys/resource.h>

#define LIFE_SHIFT 40u /* changes of an object in one life of a server */
#define OPEN_MIN 16u
#define OTHER_DESCRIPTORS 128u /* logs, sockets that listen, directories … */
#define DESCRIPTORS_MAX 1048576u

static void wait_changed(struct fsd_table *table)
{
	/* Woken or not, the caller asks its condition again. */
	GX_IGNORE(gx_env_cond_wait(table->env, &table->changed, &table->lock, GX_FOREVER));
}

/* -- one at a time for an inode ---------------------------------------------------------------- */

/* Under the lock. */
static bool is_busy(const struct fsd_table *table, uint64_t ino)
{
	const struct fsd_busy *busy;

	DL_FOREACH (table->busy, busy)
		if (busy->ino == ino)
			return true;
	return false;
}

static void hold_inode(struct fsd_table *table, struct fsd_busy *busy, uint64_t ino)
{
	busy->ino = ino;
	fsd_table_lock(table);
	while (is_busy(table, ino))
		wait_changed(table);
	DL_APPEND(table->busy, busy);
	fsd_table_unlock(table);
}

static void drop_inode(struct fsd_table *table, struct fsd_busy *busy)
{
	fsd_table_lock(table);
	DL_DELETE(table->busy, busy);
	gx_env_cond_broadcast(table->env, &table->changed);
	fsd_table_unlock(table);
}

/* -- entries ----------------------------------------------------------------------------------- */

/* Under the lock; the entry has a reference of the caller. */
static void make_dirty(struct fsd_table *table, struct fsd_entry *entry)
{
	if (entry->is_dirty || entry->is_removed)
		return;
	entry->is_dirty = true;
	entry->refs++;
	DL_APPEND2(table->dirty, entry, dirty_prev, dirty_next);
	if (table->waker)
		table->waker(table->waker_arg);
}

/* Under the lock. The reference of the list becomes the caller's. */
static void take_dirty(struct fsd_table *table, struct fsd_entry *entry)
{
	DL_DELETE2(table->dirty, entry, dirty_prev, dirty_next);
	entry->is_dirty = false;
}

static void entry_close(struct fsd_entry *entry)
{
	fsd_object_close(entry->object);
	free(entry);
}

/* Under the lock: out of the hash. */
static void forget(struct fsd_table *table, struct fsd_entry *entry)
{
	gx_assert(!entry->is_removed);
	HASH_DEL(table->entries, entry);
	entry->is_removed = true;
	table->clock_floor = GX_MAX(table->clock_floor, atomic_load(&entry->clock));
}

/* Under the lock: drops a reference. What it returns is to be closed without the lock. */
static struct fsd_entry *unref(struct fsd_table *table, struct fsd_entry *entry)
{
	gx_assert(entry->refs > 0);
	if (--entry->refs > 0)
		return NULL;
	if (entry->is_removed)
		return entry;
	DL_APPEND(table->idle, entry);
	if (HASH_COUNT(table->entries) <= table->open_max)
		return NULL;
	entry = table->idle;
	DL_DELETE(table->idle, entry);
	forget(table, entry);
	return entry;
}

/* Under the lock. */
static void give_ref(struct fsd_table *table, struct fsd_entry *entry, struct fsd_ref *ret_ref)
{
	if (entry->refs++ == 0)
		DL_DELETE(table->idle, entry);
	*ret_ref = (struct fsd_ref){
		.object = entry->object, .entry = entry, .generation = entry->id.generation};
}

void fsd_table_put(struct fsd_table *table, struct fsd_ref *ref)
{
	struct fsd_entry *closing;

	if (!ref->entry)
		return;
	fsd_table_lock(table);
	closing = unref(table, ref->entry);
	fsd_table_unlock(table);
	*ref = (struct fsd_ref){.object = NULL};
	if (closing)
		entry_close(closing);
}

/* An object that was just opened or made becomes an entry with a reference. */
static int entry_add(struct fsd_table *table, struct fsd_home *home, const struct fsd_object_id *id,
		     struct fsd_object *object, bool made, struct fsd_ref *ret_ref)
{
	struct fsd_entry *entry = calloc(1, sizeof(*entry));
	bool gx_hash_failed = false;
	struct fsd_entry *closing = NULL;
	bool stable = fsd_object_stable(object);

	if (!entry)
		return -ENOMEM;
	entry->object = object;
	entry->home = home;
	entry->id = *id;
	atomic_init(&entry->changed_ns, gx_env_now_ns(table->env));
	fsd_table_lock(table);
	atomic_init(&entry->clock, table->clock_floor + 1);
	HASH_ADD(hh, table->entries, id, sizeof(entry->id), entry);
	if (!gx_hash_failed) {
		DL_APPEND(table->idle, entry);
		give_ref(table, entry, ret_ref);
		if (made)
			fsd_table_note_item(table, id, 0);
		/* New, or left so by an earlier life. */
		if (!stable)
			make_dirty(table, entry);
		if (HASH_COUNT(table->entries) > table->open_max && table->idle) {
			closing = table->idle;
			DL_DELETE(table->idle, closing);
			forget(table, closing);
		}
	}
	fsd_table_unlock(table);
	if (closing)
		entry_close(closing);
	if (gx_hash_failed) {
		free(entry);
		return -ENOMEM;
	}
	return 0;
}

/* An object that is in this spool. The inode is held. */
static int open_in(struct fsd_table *table, struct fsd_home *home, const struct fsd_object_id *id,
		   struct fsd_ref *ret_ref)
{
	struct fsd_object *object;
	struct fsd_entry *entry;
	int r;

	fsd_table_lock(table);
	entry = fsd_entry_find(table, id);
	if (entry) {
		entry->is_outdated = false;
		give_ref(table, entry, ret_ref);
	}
	fsd_table_unlock(table);
	if (entry)
		return 0;
	r = fsd_object_open(home->spool, id, &object);
	if (r < 0)
		return r;
	r = entry_add(table, home, id, object, false, ret_ref);
	if (r < 0)
		fsd_object_close(object);
	return r;
}

static int make_in(struct fsd_table *table, struct fsd_home *home, const struct fsd_object_id *id,
		   struct fsd_ref *ret_ref)
{
	struct fsd_object *object;
	int r = fsd_object_create(home->spool, id, &object);

	if (r < 0)
		return r;
	r = entry_add(table, home, id, object, true, ret_ref);
	if (r < 0) {
		fsd_object_close(object);
		/* Else it is an empty object that the next one with this ticket opens. */
		GX_IGNORE(fsd_object_remove(home->spool, id));
	}
	return r;
}

/* -- generations ------------------------------------------------------------------------------- */

/* The entry is found under its new id from now on. */
static int rekey(struct fsd_table *table, struct fsd_ref *ref, uint64_t generation)
{
	struct fsd_entry *entry = ref->entry;
	bool gx_hash_failed = false;

	forget(table, entry);
	entry->id.generation = generation;
	HASH_ADD(hh, table->entries, id, sizeof(entry->id), entry);
	if (gx_hash_failed)
		return -ENOMEM; /* opened anew by the next one */
	entry->is_removed = false;
	ref->generation = generation;
	/* It is synced once more (which costs nothing if it was) and then told as stable. */
	atomic_fetch_add(&entry->clock, 1);
	atomic_store(&entry->changed_ns, gx_env_now_ns(table->env));
	make_dirty(table, entry);
	return 0;
}

static int move_on(struct fsd_table *table, struct fsd_ref *ref, uint64_t generation)
{
	struct fsd_entry *entry = ref->entry;
	struct fsd_object_id id;
	uint64_t bytes;
	int r;

	fsd_table_lock(table);
	entry->is_moving = true;
	while (entry->changers > 0)
		wait_changed(table);
	fsd_table_unlock(table);
	r = fsd_object_advance(ref->object, generation);
	fsd_object_get_id(ref->object, &id);
	bytes = fsd_object_size(ref->object);
	fsd_table_lock(table);
	/* If it failed half way the object tells which it is; it is sick then. */
	if (id.generation == generation) {
		int r_key = rekey(table, ref, generation);

		r = r < 0 ? r : r_key;
		fsd_table_note_item(table, &id, bytes);
	}
	entry->is_moving = false;
	gx_env_cond_broadcast(table->env, &table->changed);
	fsd_table_unlock(table);
	return r == -EEXIST ? -ESTALE : r;
}

int fsd_table_begin(struct fsd_table *table, const struct fsd_ref *ref)
{
	struct fsd_entry *entry = ref->entry;
	int r = 0;

	fsd_table_lock(table);
	while (entry->is_moving)
		wait_changed(table);
	if (entry->is_removed || entry->id.generation != ref->generation)
		r = -ESTALE;
	else
		entry->changers++;
	fsd_table_unlock(table);
	return r;
}

void fsd_table_end(struct fsd_table *table, const struct fsd_ref *ref)
{
	struct fsd_entry *entry = ref->entry;

	fsd_table_lock(table);
	gx_assert(entry->changers > 0);
	if (--entry->changers == 0 && entry->is_moving)
		gx_env_cond_broadcast(table->env, &table->changed);
	fsd_table_unlock(table);
}

/* The base of a ticket moves on, whoever comes first with one. */
static int get_moved(struct fsd_table *table, struct fsd_home *home,
		     const struct rpc_file_ticket *ticket, struct fsd_ref *ret_ref)
{
	struct fsd_object_id base = {.ino = ticket->ino, .generation = ticket->base};
	struct fsd_ref ref;
	int r = open_in(table, home, &base, &ref);

	if (r < 0)
		return r;
	r = move_on(table, &ref, ticket->generation);
	if (r < 0)
		fsd_table_put(table, &ref);
	else
		*ret_ref = ref;
	return r;
}

static int get_from_disk(struct fsd_table *table, const struct rpc_file_ticket *ticket,
			 struct fsd_ref *ret_ref)
{
	struct fsd_object_id id = {.ino = ticket->ino, .generation = ticket->generation};
	struct fsd_search search = {.table = table, .wanted = id.generation, .base = ticket->base};
	struct fsd_home *home;
	int r = fsd_search_disk(&search, id.ino);

	/* Whoever has a ticket gets what there is. */
	if (GX_BROKEN(205) && r == 0 && search.highest > id.generation) {
		id.generation = search.wanted = search.highest;
		r = fsd_search_disk(&search, id.ino);
	}
	if (r < 0)
		return r;
	if (search.highest > id.generation)
		return -ESTALE;
	if (search.wanted_home) {
		r = open_in(table, search.wanted_home, &id, ret_ref);
	} else if (ticket->base != 0) {
		if (!search.base_home || search.highest != ticket->base)
			return -ESTALE;
		r = get_moved(table, search.base_home, ticket, ret_ref);
		search.has_lower = false; /* the base was the highest, and is this one now */
	} else {
		if (!(ticket->rights & RPC_FILE_WRITE))
			return -ESTALE;
		r = fsd_table_choose(table, &home);
		if (r == 0)
			r = make_in(table, home, &id, ret_ref);
	}
	if (r < 0)
		return r == -ENOENT ? -ESTALE : r;
	r = fsd_search_outdate(&search, id.ino);
	if (r < 0)
		fsd_table_put(table, ret_ref);
	return r;
}

static bool is_held(struct fsd_table *table, uint64_t ino, uint64_t generation)
{
	struct fsd_object_id id = {.ino = ino, .generation = generation};
	struct fsd_entry *entry;
	bool held;

	fsd_table_lock(table);
	entry = fsd_entry_find(table, &id);
	held = entry && entry->is_held;
	fsd_table_unlock(table);
	return held;
}

/* An entry that may be used as it is. */
static bool get_open(struct fsd_table *table, const struct fsd_object_id *id,
		     struct fsd_ref *ret_ref)
{
	struct fsd_entry *entry;
	bool found;

	fsd_table_lock(table);
	entry = fsd_entry_find(table, id);
	found = entry && !entry->is_outdated && !entry->is_held;
	if (found)
		give_ref(table, entry, ret_ref);
	fsd_table_unlock(table);
	return found;
}

int fsd_table_get(struct fsd_table *table, const struct rpc_file_ticket *ticket,
		  struct fsd_ref *ret_ref)
{
	struct fsd_object_id id = {.ino = ticket->ino, .generation = ticket->generation};
	struct fsd_busy busy;
	int r;

	if (GX_LIKELY(get_open(table, &id, ret_ref)))
		return 0;
	hold_inode(table, &busy, id.ino);
	/* Without a base: half a copy of an older generation is in nobody's way. */
	if (is_held(table, id.ino, id.generation) ||
	    (ticket->base != 0 && is_held(table, id.ino, ticket->base)))
		r = -ESTALE;
	else
		r = get_from_disk(table, ticket, ret_ref);
	drop_inode(table, &busy);
	return r;
}

int fsd_table_get_id(struct fsd_table *table, const struct fsd_object_id *id, bool make,
		     struct fsd_ref *ret_ref)
{
	struct fsd_search search = {.table = table, .wanted = id->generation};
	struct fsd_busy busy;
	struct fsd_home *home;
	int r;

	hold_inode(table, &busy, id->ino);
	r = fsd_search_disk(&search, id->ino);
	if (r == 0 && search.wanted_home) {
		r = open_in(table, search.wanted_home, id, ret_ref);
	} else if (r == 0) {
		r = make ? fsd_table_choose(table, &home) : -ENOENT;
		if (r == 0)
			r = make_in(table, home, id, ret_ref);
	}
	if (r == 0 && make) {
		r = fsd_search_outdate(&search, id->ino);
		if (r < 0)
			fsd_table_put(table, ret_ref);
	}
	drop_inode(table, &busy);
	return r;
}

int fsd_table_hold(struct fsd_table *table, const struct fsd_ref *ref)
{
	int r;

	fsd_table_lock(table);
	r = ref->entry->is_held ? -EBUSY : 0;
	ref->entry->is_held = true;
	fsd_table_unlock(table);
	return r;
}

void fsd_table_release(struct fsd_table *table, const struct fsd_ref *ref)
{
	fsd_table_lock(table);
	ref->entry->is_held = false;
	fsd_table_unlock(table);
}

int fsd_table_advance(struct fsd_table *table, struct fsd_ref *ref, uint64_t generation)
{
	struct fsd_search search = {.table = table, .wanted = generation};
	uint64_t ino = ref->entry->id.ino;
	struct fsd_busy busy;
	int r;

	hold_inode(table, &busy, ino);
	r = fsd_search_disk(&search, ino);
	if (r == 0 && search.highest >= generation)
		r = -ESTALE;
	if (r == 0)
		r = move_on(table, ref, generation);
	if (r == 0)
		r = fsd_search_outdate(&search, ino);
	drop_inode(table, &busy);
	return r;
}

/* -- changes ----------------------------------------------------------------------------------- */

uint64_t fsd_table_changed(struct fsd_table *table, struct fsd_ref *ref)
{
	struct fsd_entry *entry = ref->entry;
	uint64_t clock = atomic_fetch_add(&entry->clock, 1) + 1;

	atomic_store(&entry->changed_ns, gx_env_now_ns(table->env));
	if (!atomic_load(&entry->is_dirty)) {
		fsd_table_lock(table);
		make_dirty(table, entry);
		fsd_table_unlock(table);
	}
	return clock;
}

uint64_t fsd_table_clock(struct fsd_table *table GX_UNUSED, const struct fsd_ref *ref)
{
	return atomic_load(&ref->entry->clock);
}

void fsd_table_damaged(struct fsd_table *table, const struct fsd_ref *ref)
{
	struct fsd_object_id id;

	if (atomic_exchange(&ref->entry->is_damaged, true))
		return;
	fsd_object_get_id(ref->object, &id);
	gx_log(ERR, "an object is damaged", GX_KU("ino", id.ino),
	       GX_KU("generation", id.generation));
	fsd_agent_note(table->server->agent, &id, FSD_NOTE_DAMAGED, 0);
}

void fsd_table_mended(struct fsd_table *table GX_UNUSED, const struct fsd_ref *ref)
{
	fsd_object_mended(ref->object);
	atomic_store(&ref->entry->is_damaged, false);
}

/* Under the lock. Many that cannot be closed because they wait for their sync do not wait. */
static int64_t patience(const struct fsd_table *table, int64_t idle_ns)
{
	return HASH_COUNT(table->entries) > table->open_max ? 0 : idle_ns;
}

size_t fsd_table_dirty(struct fsd_table *table, int64_t idle_ns, struct fsd_ref *ret_refs,
		       size_t max)
{
	int64_t now = gx_env_now_ns(table->env);
	struct fsd_entry *entry, *tmp;
	size_t count = 0;

	fsd_table_lock(table);
	idle_ns = patience(table, idle_ns);
	DL_FOREACH_SAFE2(table->dirty, entry, tmp, dirty_next)
	{
		if (count == max)
			break;
		if (atomic_load(&entry->changed_ns) > now - idle_ns)
			continue;
		take_dirty(table, entry);
		ret_refs[count++] = (struct fsd_ref){.object = entry->object,
						     .entry = entry,
						     .generation = entry->id.generation};
	}
	fsd_table_unlock(table);
	return count;
}

int64_t fsd_table_due(struct fsd_table *table, int64_t idle_ns)
{
	int64_t first = GX_FOREVER;
	struct fsd_entry *entry;

	fsd_table_lock(table);
	idle_ns = patience(table, idle_ns);
	DL_FOREACH2(table->dirty, entry, dirty_next)
	first = GX_MIN(first, atomic_load(&entry->changed_ns) + idle_ns);
	fsd_table_unlock(table);
	return first;
}

void fsd_table_set_waker(struct fsd_table *table, void (*fn)(void *arg), void *arg)
{
	fsd_table_lock(table);
	table->waker = fn;
	table->waker_arg = arg;
	fsd_table_unlock(table);
}

/* -- removing ---------------------------------------------------------------------------------- */

/*
 * Under the lock: nobody finds it any more. What it returns is to be closed without the lock; NULL
 * if somebody has a reference, who closes it.
 */
static struct fsd_entry *drop_entry(struct fsd_table *table, struct fsd_entry *entry)
{
	struct fsd_entry *closing = NULL;

	forget(table, entry);
	if (entry->refs == 0) {
		DL_DELETE(table->idle, entry);
		closing = entry;
	} else if (entry->is_dirty) {
		take_dirty(table, entry);
		closing = unref(table, entry);
	}
	return closing;
}

/* Where an object is; NULL: nowhere. The inode is held. */
static int find_home(struct fsd_table *table, const struct fsd_object_id *id,
		     struct fsd_home **ret_home)
{
	struct fsd_search search = {.table = table, .wanted = id->generation};
	int r = fsd_search_disk(&search, id->ino);

	if (r == 0)
		*ret_home = search.wanted_home;
	return r;
}

int fsd_table_remove(struct fsd_table *table, const struct fsd_object_id *id)
{
	struct fsd_entry *closing = NULL;
	struct fsd_entry *entry;
	struct fsd_busy busy;
	struct fsd_home *home;
	int r;

	hold_inode(table, &busy, id->ino);
	r = find_home(table, id, &home);
	if (r == 0 && home) {
		r = fsd_object_remove(home->spool, id);
		if (r == -ENOENT)
			r = 0;
		fsd_table_lock(table);
		entry = r == 0 ? fsd_entry_find(table, id) : NULL;
		if (entry)
			closing = drop_entry(table, entry);
		fsd_table_unlock(table);
	}
	if (closing)
		entry_close(closing);
	drop_inode(table, &busy);
	return r;
}

static int quarantine(struct fsd_table *table, struct fsd_home *home,
		      const struct fsd_object_id *id)
{
	struct fsd_entry *closing = NULL;
	struct fsd_entry *entry;
	bool in_use;

	fsd_table_lock(table);
	entry = fsd_entry_find(table, id);
	in_use = entry && entry->refs > (entry->is_dirty ? 1u : 0u);
	if (entry && !in_use)
		closing = drop_entry(table, entry);
	fsd_table_unlock(table);
	if (closing)
		entry_close(closing);
	return in_use ? -EBUSY : fsd_spool_quarantine(home->spool, id);
}

int fsd_table_quarantine(struct fsd_table *table, const struct fsd_object_id *id)
{
	struct fsd_busy busy;
	struct fsd_home *home;
	int r;

	hold_inode(table, &busy, id->ino);
	r = find_home(table, id, &home);
	if (r == 0)
		r = home ? quarantine(table, home, id) : -ENOENT;
	drop_inode(table, &busy);
	return r;
}

/* -- life -------------------------------------------------------------------------------------- */

/* Two descriptors per object, one per connection. */
static size_t descriptors_allow(const struct fsd_server *server)
{
	uint64_t others = server->options.threads_max + OTHER_DESCRIPTORS;
	struct rlimit limit;

	if (server->env->simulated || getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return FSD_TABLE_OPEN_MAX;
	if (limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = GX_MIN(limit.rlim_max, (rlim_t)DESCRIPTORS_MAX);
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			GX_IGNORE(getrlimit(RLIMIT_NOFILE, &limit)); /* it is obeyed */
	}
	if (limit.rlim_cur < others + (uint64_t)2 * OPEN_MIN)
		return OPEN_MIN;
	return (size_t)GX_MIN((uint64_t)FSD_TABLE_OPEN_MAX, (limit.rlim_cur - others) / 2);
}

static int open_spools(struct fsd_table *table)
{
	const struct fsd_server_options *options = &table->server->options;
	int r = 0;

	table->homes = calloc(options->spool_count, sizeof(table->homes[0]));
	if (!table->homes)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < options->spool_count; i++) {
		struct fsd_home *home = &table->homes[i];

		r = fsd_spool_open(table->env, options->spools[i], options->make_spools,
				   &home->spool);
		if (r < 0)
			return gx_log_errno(ERR, r, "cannot open spool",
					    GX_KS("directory", options->spools[i]));
		table->home_count++;
		r = fsd_spool_begin_life(home->spool);
		if (r < 0)
			return gx_log_errno(ERR, r, "cannot write to spool",
					    GX_KS("directory", options->spools[i]));
		/* Clocks of objects go on behind those of all earlier lives. */
		table->clock_floor =
			GX_MAX(table->clock_floor, fsd_spool_lives(home->spool) << LIFE_SHIFT);
		r = fsd_table_look(table, home);
	}
	return r;
}

int fsd_table_new(struct fsd_server *server, struct fsd_table **ret_table)
{
	struct fsd_table *table = calloc(1, sizeof(*table));
	int r;

	if (!table)
		return -ENOMEM;
	table->server = server;
	table->env = server->env;
	table->open_max = descriptors_allow(server);
	r = gx_env_mutex_init(table->env, &table->lock);
	table->lock_ready = r == 0;
	if (r == 0) {
		r = gx_env_mutex_init(table->env, &table->epoch_lock);
		table->epoch_lock_ready = r == 0;
	}
	if (r == 0) {
		r = gx_env_cond_init(table->env, &table->changed);
		table->changed_ready = r == 0;
	}
	if (r == 0)
		r = open_spools(table);
	if (r < 0) {
		fsd_table_free(table);
		return r;
	}
	*ret_table = table;
	return 0;
}

void fsd_table_free(struct fsd_table *table)
{
	struct fsd_entry *entry, *tmp;

	if (!table)
		return;
	HASH_ITER (hh, table->entries, entry, tmp) {
		gx_assert(entry->refs == (entry->is_dirty ? 1u : 0u));
		HASH_DEL(table->entries, entry);
		entry_close(entry);
	}
	for (size_t i = 0; i < table->home_count; i++)
		fsd_spool_close(table->homes[i].spool);
	free(table->homes);
	fsd_items_clear(&table->items);
	if (table->changed_ready)
		gx_env_cond_fini(table->env, &table->changed);
	if (table->epoch_lock_ready)
		gx_env_mutex_fini(table->env, &table->epoch_lock);
	if (table->lock_ready)
		gx_env_mutex_fini(table->env, &table->lock);
	free(table);
}
