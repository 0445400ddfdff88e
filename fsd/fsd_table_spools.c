/*
 * fsd_table_spools.c - the table's view of the disks: which generations there are, how much room,
 * and all objects in order.
 *
 * A list of all objects is read once, when fsd_table_list() begins, and kept while it goes on: the
 * directories of a spool are not in the order of inode numbers.
 */
#define GX_LOG_COMPONENT "fsd.table"
#include "common/gx_log.h"
#include "fsd/fsd_table_impl.h"

#define SPACE_AGE_NS (100 * GX_NSEC_PER_MSEC)

/* -- what the spools have ---------------------------------------------------------------------- */

static int look(void *arg, const struct fsd_object_id *id)
{
	struct fsd_search *search = arg;
	struct fsd_entry *entry;

	search->highest = GX_MAX(search->highest, id->generation);
	if (id->generation == search->wanted)
		search->wanted_home = search->home;
	else if (id->generation == search->base)
		search->base_home = search->home;
	if (id->generation >= search->wanted)
		return 0;
	search->has_lower = true;
	search->lower = GX_MAX(search->lower, id->generation);
	if (search->outdate) {
		fsd_table_lock(search->table);
		entry = fsd_entry_find(search->table, id);
		if (entry)
			entry->is_outdated = true;
		fsd_table_unlock(search->table);
	}
	return 0;
}

int fsd_search_disk(struct fsd_search *search, uint64_t ino)
{
	struct fsd_table *table = search->table;
	int r = 0;

	for (size_t i = 0; r == 0 && i < table->home_count; i++) {
		search->home = &table->homes[i];
		r = fsd_spool_generations(search->home->spool, ino, look, search);
	}
	return r;
}

/* Its lower generations are old from now on. Rare: then the directory is read once more. */
int fsd_search_outdate(struct fsd_search *search, uint64_t ino)
{
	if (!search->has_lower)
		return 0;
	search->outdate = true;
	return fsd_search_disk(search, ino);
}

int fsd_table_below(struct fsd_table *table, uint64_t ino, uint64_t below, uint64_t *ret_generation)
{
	struct fsd_search search = {.table = table, .wanted = below};
	int r = fsd_search_disk(&search, ino);

	if (r < 0)
		return r;
	if (!search.has_lower)
		return -ENOENT;
	*ret_generation = search.lower;
	return 0;
}

/* -- space ------------------------------------------------------------------------------------- */

int fsd_table_look(struct fsd_table *table, struct fsd_home *home)
{
	uint64_t bytes, free_bytes;
	int r = fsd_spool_space(home->spool, &bytes, &free_bytes);

	if (r < 0)
		return r;
	fsd_table_lock(table);
	home->bytes = bytes;
	home->free_bytes = free_bytes;
	home->looked_ns = gx_env_now_ns(table->env);
	fsd_table_unlock(table);
	return 0;
}

/* Under the lock. */
static bool take_space(struct fsd_table *table, struct fsd_home *home, uint64_t bytes)
{
	uint64_t reserved = table->server->options.reserved_bytes;

	if (home->free_bytes < reserved || home->free_bytes - reserved < bytes)
		return false;
	home->free_bytes -= bytes;
	return true;
}

int fsd_table_room(struct fsd_table *table, const struct fsd_ref *ref, uint64_t bytes)
{
	struct fsd_home *home = ref->entry->home;
	bool has_room;
	int r;

	fsd_table_lock(table);
	has_room = gx_env_now_ns(table->env) - home->looked_ns < SPACE_AGE_NS &&
		   take_space(table, home, bytes);
	fsd_table_unlock(table);
	if (has_room)
		return 0;
	r = fsd_table_look(table, home);
	if (r < 0)
		return r;
	fsd_table_lock(table);
	has_room = take_space(table, home, bytes);
	fsd_table_unlock(table);
	return has_room ? 0 : -ENOSPC;
}

void fsd_table_space(struct fsd_table *table, uint64_t *ret_capacity, uint64_t *ret_free)
{
	uint64_t reserved = table->server->options.reserved_bytes;

	*ret_capacity = *ret_free = 0;
	for (size_t i = 0; i < table->home_count; i++) {
		struct fsd_home *home = &table->homes[i];

		/* A disk that does not answer has what it had; its objects will tell. */
		GX_IGNORE(fsd_table_look(table, home));
		fsd_table_lock(table);
		*ret_capacity += home->bytes - GX_MIN(home->bytes, reserved);
		*ret_free += home->free_bytes - GX_MIN(home->free_bytes, reserved);
		fsd_table_unlock(table);
	}
}

/* The spool with most room; -ENOSPC. */
int fsd_table_choose(struct fsd_table *table, struct fsd_home **ret_home)
{
	struct fsd_home *best = NULL;
	int r = 0;

	for (size_t i = 0; i < table->home_count; i++) {
		struct fsd_home *home = &table->homes[i];
		int r_home = fsd_table_look(table, home);

		if (r_home < 0) {
			r = r_home;
			continue;
		}
		fsd_table_lock(table);
		if (home->free_bytes > table->server->options.reserved_bytes &&
		    (!best || home->free_bytes > best->free_bytes))
			best = home;
		fsd_table_unlock(table);
	}
	if (!best)
		return r < 0 ? r : -ENOSPC;
	*ret_home = best;
	return 0;
}

/* -- rule N9 --------------------------------------------------------------------------------------
 */

void fsd_table_expire(struct fsd_table *table)
{
	int64_t before_ns = gx_env_wall_ns(table->env) - table->server->options.quarantine_ns;

	for (size_t i = 0; i < table->home_count; i++) {
		int r = fsd_spool_expire(table->homes[i].spool, before_ns);

		if (r < 0)
			gx_log(WARNING, "cannot empty the quarantine, ignoring", GX_KE(r));
	}
}

int fsd_table_epoch(struct fsd_table *table, uint64_t epoch)
{
	int r = 0;

	gx_env_mutex_lock(table->env, &table->epoch_lock);
	/* All or none: what one spool has seen counts for each. */
	for (size_t i = 0; i < table->home_count; i++)
		if (fsd_spool_epoch(table->homes[i].spool) > epoch)
			r = -ESTALE;
	for (size_t i = 0; r == 0 && i < table->home_count; i++)
		r = fsd_spool_set_epoch(table->homes[i].spool, epoch);
	gx_env_mutex_unlock(table->env, &table->epoch_lock);
	return r;
}

/* -- all objects, in order --------------------------------------------------------------------- */

static int items_add(struct fsd_items *items, const struct fsd_object_id *id, uint64_t bytes)
{
	if (items->count == items->size) {
		size_t size = items->size > 0 ? 2 * items->size : 1024;
		struct fsd_item *bigger = reallocarray(items->list, size, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		items->list = bigger;
		items->size = size;
	}
	items->is_sorted = false;
	items->list[items->count++] = (struct fsd_item){.id = *id, .bytes = bytes};
	return 0;
}

void fsd_items_clear(struct fsd_items *items)
{
	free(items->list);
	*items = (struct fsd_items){.list = NULL};
}

static int item_compare(const void *a, const void *b)
{
	const struct fsd_object_id *x = &((const struct fsd_item *)a)->id;
	const struct fsd_object_id *y = &((const struct fsd_item *)b)->id;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->generation < y->generation ? -1 : x->generation > y->generation;
}

void fsd_table_note_item(struct fsd_table *table, const struct fsd_object_id *id, uint64_t bytes)
{
	/* Without memory the list begins anew with the next page. */
	if (table->listing && items_add(&table->items, id, bytes) < 0)
		table->listing = false;
}

static int collect(void *arg, const struct fsd_object_id *id, uint64_t bytes)
{
	return items_add(arg, id, bytes);
}

/* What is made from now on is noted; then the disks are read, which takes its time. */
static int list_begin(struct fsd_table *table)
{
	struct fsd_items items = {.list = NULL};
	int r = 0;

	fsd_table_lock(table);
	fsd_items_clear(&table->items);
	table->listing = true;
	fsd_table_unlock(table);
	for (size_t i = 0; r == 0 && i < table->home_count; i++)
		r = fsd_spool_each(table->homes[i].spool, collect, &items);
	fsd_table_lock(table);
	for (size_t i = 0; r == 0 && i < items.count; i++)
		r = items_add(&table->items, &items.list[i].id, items.list[i].bytes);
	if (r < 0)
		table->listing = false;
	fsd_table_unlock(table);
	fsd_items_clear(&items);
	return r;
}

static size_t lower_bound(const struct fsd_items *items, uint64_t ino)
{
	size_t low = 0;
	size_t high = items->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (items->list[middle].id.ino < ino)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Those of one inode from `at` on: how many, without those that are there twice. */
static size_t list_inode(const struct fsd_items *items, size_t at, size_t room,
			 PbMeta__ObjectInfo *ret_list, size_t *ret_count)
{
	uint64_t ino = items->list[at].id.ino;
	size_t end = at;
	size_t count = 0;

	for (; end < items->count && items->list[end].id.ino == ino; end++) {
		const struct fsd_item *item = &items->list[end];

		if (end > at && item->id.generation == item[-1].id.generation)
			continue;
		if (count == room)
			break;
		pb_meta__object_info__init(&ret_list[count]);
		ret_list[count].ino = ino;
		ret_list[count].generation = item->id.generation;
		ret_list[count].size = item->bytes;
		count++;
	}
	*ret_count = count;
	return end - at;
}

/* Under the lock. */
static size_t list_page(struct fsd_table *table, uint64_t first, size_t max,
			PbMeta__ObjectInfo *ret_list)
{
	struct fsd_items *items = &table->items;
	size_t done = 0;
	size_t at;

	if (!items->is_sorted && items->count > 0)
		qsort(items->list, items->count, sizeof(items->list[0]), item_compare);
	items->is_sorted = true;
	at = lower_bound(items, first);
	while (at < items->count && done < max) {
		size_t count;
		size_t taken = list_inode(items, at, max - done, ret_list + done, &count);

		/* Cut off in the middle: it comes whole on the next page. */
		if (at + taken < items->count && done > 0 &&
		    items->list[at + taken].id.ino == items->list[at].id.ino)
			break;
		at += taken;
		done += count;
	}
	return done;
}

int fsd_table_list(struct fsd_table *table, uint64_t first, size_t max,
		   PbMeta__ObjectInfo *ret_list, size_t *ret_count)
{
	bool listing;
	int r = 0;

	fsd_table_lock(table);
	listing = table->listing && first != 0;
	fsd_table_unlock(table);
	if (!listing)
		r = list_begin(table);
	if (r < 0)
		return r;
	fsd_table_lock(table);
	*ret_count = list_page(table, first, max, ret_list);
	if (*ret_count == 0) {
		table->listing = false;
		fsd_items_clear(&table->items);
	}
	fsd_table_unlock(table);
	return 0;
}
