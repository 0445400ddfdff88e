/*
 * gx_sim_disk.c - a host's disk: what programs see, and what a power cut leaves.
 *
 * Content: a file is a sparse map of 4 KiB blocks. Each block has a live image and
 * a durable one; they are the same memory until a write separates them. A sync
 * makes the live image durable. Eight bits per block say which 512-byte sectors
 * were written since; a power cut decides for each such sector by a coin.
 *
 * A sync takes time. By a coin it takes effect at its start, so that bytes written
 * while it is under way are not covered, or at its end, so that a cut before it returns
 * loses everything. Both are fsync(2); each catches another mistake of log writers.
 *
 * Size: between durable and live size, up to the end of the last sector that was
 * kept. A truncation is one metadata operation: it happened or it did not.
 *
 * Names: directory changes go to a journal, in order. sync_dir() applies those that
 * concern the directory (with what they depend on); a power cut applies a random
 * prefix of the rest. So syncing a file does not make its name durable, nor does a
 * name in the journal make the bytes durable: strict, as POSIX is.
 *
 * Not modelled: hard and symbolic links, permissions (mode is kept, not enforced).
 */
#include "common/gx_sim_disk.h"

/* -- blocks -------------------------------------------------------------------- */

struct sim_block *sim_block_find(struct sim_inode *inode, uint64_t number)
{
	struct sim_block *block;

	HASH_FIND(hh, inode->blocks, &number, sizeof(number), block);
	return block;
}

struct sim_block *sim_block_get(struct sim_inode *inode, uint64_t number)
{
	struct sim_block *block = sim_block_find(inode, number);

	if (block == NULL) {
		block = sim_alloc(sizeof(*block));
		block->number = number;
		HASH_ADD(hh, inode->blocks, number, sizeof(block->number), block);
	}
	return block;
}

int sim_block_allocate(struct sim_inode *inode, struct sim_block *block)
{
	struct sim_disk *disk = inode->disk;

	if (block->allocated)
		return 0;
	if (disk->limit_blocks > 0 && disk->used_blocks >= disk->limit_blocks)
		return -ENOSPC;
	disk->used_blocks++;
	inode->allocated_blocks++;
	block->allocated = true;
	return 0;
}

static void block_release(struct sim_inode *inode, struct sim_block *block)
{
	if (!block->allocated)
		return;
	inode->disk->used_blocks--;
	inode->allocated_blocks--;
	block->allocated = false;
}

void sim_block_mark(struct sim_inode *inode, struct sim_block *block, uint8_t sectors)
{
	block->dirty |= sectors;
	if (!block->listed) {
		DL_APPEND2(inode->dirty, block, dirty_prev, dirty_next);
		block->listed = true;
	}
}

static void block_unmark(struct sim_inode *inode, struct sim_block *block)
{
	block->dirty = 0;
	if (block->listed) {
		DL_DELETE2(inode->dirty, block, dirty_prev, dirty_next);
		block->listed = false;
	}
}

/* A live image that may be written to. */
uint8_t *sim_block_own(struct sim_block *block)
{
	if (block->live == NULL) {
		block->live = sim_alloc(BLOCK_BYTES);
	} else if (block->live == block->durable) {
		block->live = sim_alloc(BLOCK_BYTES);
		memcpy(block->live, block->durable, BLOCK_BYTES);
	}
	return block->live;
}

static void block_drop_live(struct sim_block *block)
{
	if (block->live != block->durable)
		sim_free(block->live);
	block->live = NULL;
}

void sim_block_free(struct sim_inode *inode, struct sim_block *block)
{
	block_unmark(inode, block);
	block_release(inode, block);
	block_drop_live(block);
	sim_free(block->durable);
	HASH_DELETE(hh, inode->blocks, block);
	sim_free(block);
}

uint8_t sim_sectors_of(size_t start, size_t bytes)
{
	size_t first = start / SECTOR_BYTES;
	size_t last = (start + bytes - 1) / SECTOR_BYTES;

	return (uint8_t)(((1u << (last + 1)) - 1) & ~((1u << first) - 1));
}

/* Zeros [start, end) of the live image; whole blocks lose their memory and their space. */
void sim_zero_range(struct sim_inode *inode, uint64_t start, uint64_t end)
{
	struct sim_block *block;
	struct sim_block *tmp;

	HASH_ITER (hh, inode->blocks, block, tmp) {
		uint64_t base = block->number * BLOCK_BYTES;
		uint64_t from = GX_MAX(start, base);
		uint64_t to = GX_MIN(end, base + BLOCK_BYTES);

		if (from >= to)
			continue;
		if (block->live != NULL) {
			sim_block_mark(inode, block, sim_sectors_of(from - base, to - from));
			if (to - from == BLOCK_BYTES)
				block_drop_live(block);
			else
				memset(sim_block_own(block) + (from - base), 0, to - from);
		}
		if (to - from == BLOCK_BYTES)
			block_release(inode, block);
	}
}

/* -- inodes ---------------------------------------------------------------------- */

struct sim_inode *sim_inode_new(struct sim_disk *disk, mode_t mode)
{
	struct sim_inode *inode = sim_alloc(sizeof(*inode));

	inode->disk = disk;
	inode->number = ++disk->next_number;
	inode->mode = mode;
	inode->refs = 1;
	inode->change_ns = disk->sim->now_ns;
	DL_APPEND(disk->inodes, inode);
	return inode;
}

struct sim_inode *sim_inode_ref(struct sim_inode *inode)
{
	inode->refs++;
	return inode;
}

static void entries_clear(struct sim_entry **entries);

static void inode_free(struct sim_inode *inode)
{
	struct sim_block *block;
	struct sim_block *tmp;

	DL_DELETE(inode->disk->inodes, inode);
	HASH_ITER (hh, inode->blocks, block, tmp) {
		sim_block_free(inode, block);
	}
	sim_free(inode);
}

/* Recursion is bounded: a directory freed here has lost its own names before, or all go. */
void sim_inode_unref(struct sim_inode *inode)
{
	gx_assert(inode->refs > 0);
	if (--inode->refs > 0)
		return;
	entries_clear(&inode->live);
	entries_clear(&inode->durable);
	inode_free(inode);
}

struct sim_entry *sim_entry_find(struct sim_entry *entries, const char *name)
{
	struct sim_entry *entry;

	HASH_FIND_STR(entries, name, entry);
	return entry;
}

static void entry_remove(struct sim_entry **entries, const char *name)
{
	struct sim_entry *entry = sim_entry_find(*entries, name);

	if (entry == NULL)
		return;
	HASH_DEL(*entries, entry);
	sim_inode_unref(entry->inode);
	sim_free(entry);
}

static void entry_set(struct sim_entry **entries, const char *name, struct sim_inode *inode)
{
	size_t bytes = strlen(name) + 1;
	struct sim_entry *entry = sim_alloc(sizeof(*entry) + bytes);

	sim_inode_ref(inode);
	entry_remove(entries, name);
	entry->inode = inode;
	memcpy(entry->name, name, bytes);
	HASH_ADD_STR(*entries, name, entry);
}

static void entries_clear(struct sim_entry **entries)
{
	struct sim_entry *entry;
	struct sim_entry *tmp;

	HASH_ITER (hh, *entries, entry, tmp) {
		HASH_DEL(*entries, entry);
		sim_inode_unref(entry->inode);
		sim_free(entry);
	}
}

/* -- the journal of names ----------------------------------------------------------- */

static char *copy_name(const char *name)
{
	size_t bytes = strlen(name) + 1;

	return memcpy(sim_alloc(bytes), name, bytes);
}

/* A directory that loses its last name has no way up. */
static void orphan(struct sim_inode *dir, const char *name, const struct sim_inode *successor)
{
	struct sim_entry *entry = sim_entry_find(dir->live, name);

	if (entry != NULL && entry->inode != successor)
		entry->inode->parent = NULL;
}

/* Does it live and remembers it for the disk. */
void sim_names_change(struct sim_inode *from_dir, const char *from_name, struct sim_inode *to_dir,
		      const char *to_name, struct sim_inode *inode)
{
	struct sim_disk *disk = from_dir != NULL ? from_dir->disk : to_dir->disk;
	struct sim_change *change = sim_alloc(sizeof(*change));

	if (inode != NULL) {
		change->inode = sim_inode_ref(inode);
		change->to_dir = sim_inode_ref(to_dir);
		change->to_name = copy_name(to_name);
		orphan(to_dir, to_name, inode);
		entry_set(&to_dir->live, to_name, inode);
		if (S_ISDIR(inode->mode))
			inode->parent = to_dir;
	}
	if (from_dir != NULL) {
		change->from_dir = sim_inode_ref(from_dir);
		change->from_name = copy_name(from_name);
		orphan(from_dir, from_name, inode);
		entry_remove(&from_dir->live, from_name);
	}
	DL_APPEND(disk->journal, change);
}

static void change_free(struct sim_disk *disk, struct sim_change *change)
{
	DL_DELETE(disk->journal, change);
	if (change->from_dir != NULL)
		sim_inode_unref(change->from_dir);
	if (change->to_dir != NULL)
		sim_inode_unref(change->to_dir);
	if (change->inode != NULL)
		sim_inode_unref(change->inode);
	sim_free(change->from_name);
	sim_free(change->to_name);
	sim_free(change);
}

static void change_apply(struct sim_disk *disk, struct sim_change *change)
{
	if (change->inode != NULL)
		entry_set(&change->to_dir->durable, change->to_name, change->inode);
	if (change->from_dir != NULL)
		entry_remove(&change->from_dir->durable, change->from_name);
	change_free(disk, change);
}

/*
 * Applies the changes of one directory. A rename between two directories pulls in what
 * happened in the other one before it; walking backwards finds all of that in one pass.
 */
void sim_journal_commit(struct sim_disk *disk, struct sim_inode *dir)
{
	struct sim_inode **dirs = sim_alloc((disk->next_number + 1) * sizeof(*dirs));
	size_t dirs_count = 0;
	struct sim_change *change = disk->journal != NULL ? disk->journal->prev : NULL;
	struct sim_change *tmp;

	dirs[dirs_count++] = dir;
	for (; change != NULL; change = change == disk->journal ? NULL : change->prev) {
		bool from = false;
		bool to = false;

		for (size_t i = 0; i < dirs_count; i++) {
			from = from || change->from_dir == dirs[i];
			to = to || change->to_dir == dirs[i];
		}
		change->chosen = from || to;
		if (change->chosen && !from && change->from_dir != NULL)
			dirs[dirs_count++] = change->from_dir;
		if (change->chosen && !to && change->to_dir != NULL)
			dirs[dirs_count++] = change->to_dir;
	}
	sim_free(dirs);
	DL_FOREACH_SAFE (disk->journal, change, tmp) {
		if (change->chosen)
			change_apply(disk, change);
	}
}

/* -- life, sync and power cut ---------------------------------------------------------- */

struct sim_disk *sim_disk_new(struct gx_sim *sim)
{
	struct sim_disk *disk = sim_alloc(sizeof(*disk));

	disk->sim = sim;
	disk->root = sim_inode_new(disk, S_IFDIR | 0755);
	return disk;
}

void sim_disk_free(struct sim_disk *disk)
{
	struct sim_inode *inode;
	struct sim_inode *tmp;

	while (disk->journal != NULL)
		change_free(disk, disk->journal);
	/* Directories may hold each other in the two views: empty all before any goes. */
	DL_FOREACH (disk->inodes, inode) {
		sim_inode_ref(inode);
	}
	DL_FOREACH (disk->inodes, inode) {
		entries_clear(&inode->live);
		entries_clear(&inode->durable);
	}
	DL_FOREACH_SAFE (disk->inodes, inode, tmp) {
		inode_free(inode);
	}
	sim_free(disk);
}

void sim_inode_sync(struct sim_inode *inode)
{
	struct sim_block *block;
	struct sim_block *tmp;

	DL_FOREACH_SAFE2(inode->dirty, block, tmp, dirty_next)
	{
		if (block->durable != block->live) {
			sim_free(block->durable);
			block->durable = block->live;
		}
		block_unmark(inode, block);
		if (block->durable == NULL && !block->allocated)
			sim_block_free(inode, block);
	}
	inode->durable_bytes = inode->live_bytes;
	inode->truncated = false;
}

/* Drops the durable bytes from `bytes` on: the truncation reached the disk. */
static void durable_truncate(struct sim_inode *inode, uint64_t bytes)
{
	struct sim_block *block;
	struct sim_block *tmp;

	HASH_ITER (hh, inode->blocks, block, tmp) {
		uint64_t base = block->number * BLOCK_BYTES;

		if (block->durable == NULL || base + BLOCK_BYTES <= bytes)
			continue;
		if (block->live == block->durable) {
			block->live = NULL;
			(void)sim_block_own(block);
			memcpy(block->live, block->durable, BLOCK_BYTES);
		}
		if (base >= bytes) {
			sim_free(block->durable);
			block->durable = NULL;
		} else {
			memset(block->durable + (bytes - base), 0, BLOCK_BYTES - (bytes - base));
		}
	}
}

/* Merges the sectors that reached the disk into the live image; returns where they end. */
static uint64_t block_settle(struct gx_sim *sim, struct sim_inode *inode, struct sim_block *block,
			     uint64_t keep_below)
{
	uint64_t kept_end = 0;

	for (unsigned i = 0; i < SECTORS_PER_BLOCK; i++) {
		uint64_t at = block->number * BLOCK_BYTES + i * SECTOR_BYTES;
		size_t offset = i * SECTOR_BYTES;

		if ((block->dirty & (1u << i)) == 0)
			continue;
		if (at < keep_below && sim_rng_below(&sim->rng, 2) == 0) {
			kept_end = at + SECTOR_BYTES;
			continue;
		}
		if (block->durable != NULL)
			memcpy(sim_block_own(block) + offset, block->durable + offset,
			       SECTOR_BYTES);
		else if (block->live != NULL)
			memset(sim_block_own(block) + offset, 0, SECTOR_BYTES);
	}
	if (block->live != NULL)
		(void)sim_block_allocate(inode, block);
	return kept_end;
}

static void file_power_cut(struct gx_sim *sim, struct sim_inode *inode)
{
	uint64_t bytes = inode->durable_bytes;
	uint64_t keep_below = UINT64_MAX;
	uint64_t kept_end = 0;
	struct sim_block *block;

	if (inode->truncated && sim_rng_below(&sim->rng, 2) == 0) {
		durable_truncate(inode, inode->truncated_bytes);
		bytes = GX_MIN(bytes, inode->truncated_bytes);
	} else if (inode->truncated) {
		/* What was written behind the cut-off came later than the truncation. */
		keep_below = inode->truncated_bytes / SECTOR_BYTES * SECTOR_BYTES;
	}
	DL_FOREACH2(inode->dirty, block, dirty_next)
	{
		uint64_t end = block_settle(sim, inode, block, keep_below);

		kept_end = GX_MAX(kept_end, end);
	}
	if (keep_below == UINT64_MAX && inode->live_bytes > bytes) {
		/* Grown: to the last sector kept, or wholly (the size was written, not the bytes).
		 */
		if (sim_rng_below(&sim->rng, 4) == 0)
			kept_end = inode->live_bytes;
		bytes = GX_MAX(bytes, GX_MIN(kept_end, inode->live_bytes));
	}
	inode->live_bytes = bytes;
	sim_zero_range(inode, bytes, UINT64_MAX);
	sim_inode_sync(inode);
}

static void dir_power_cut(struct sim_inode *dir)
{
	struct sim_entry *entry;
	struct sim_entry *tmp;

	entries_clear(&dir->live);
	HASH_ITER (hh, dir->durable, entry, tmp) {
		entry_set(&dir->live, entry->name, entry->inode);
		if (S_ISDIR(entry->inode->mode))
			entry->inode->parent = dir;
	}
}

void sim_disk_power_cut(struct sim_disk *disk)
{
	struct sim_change *change;
	struct sim_inode *inode;
	struct sim_inode *tmp;
	uint64_t keep;

	DL_COUNT(disk->journal, change, keep);
	keep = sim_rng_below(&disk->sim->rng, keep + 1);
	while (keep-- > 0)
		change_apply(disk, disk->journal);
	while (disk->journal != NULL)
		change_free(disk, disk->journal);

	/* Held while names change, so that walking the list is safe. */
	DL_FOREACH (disk->inodes, inode) {
		sim_inode_ref(inode);
	}
	DL_FOREACH (disk->inodes, inode) {
		if (S_ISDIR(inode->mode))
			dir_power_cut(inode);
		else
			file_power_cut(disk->sim, inode);
	}
	DL_FOREACH_SAFE (disk->inodes, inode, tmp) {
		sim_inode_unref(inode);
	}
}

void gx_sim_disk_limit(struct gx_sim_host *host, uint64_t bytes)
{
	host->disk->limit_blocks = bytes > 0 ? GX_MAX(bytes / BLOCK_BYTES, 1) : 0;
}
