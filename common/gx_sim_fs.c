/*
 * gx_sim_fs.c - a host's disk: what programs see, and what a power cut leaves.
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
#include "common/gx_sim_impl.h"
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#define uthash_malloc(bytes) sim_alloc(bytes)
#define uthash_free(p, bytes) sim_free(p)
#include <uthash.h>
#include <utlist.h>

#define SECTOR_BYTES 512u
#define BLOCK_BYTES 4096u
#define SECTORS_PER_BLOCK (BLOCK_BYTES / SECTOR_BYTES)
#define FILE_BYTES_MAX (UINT64_C(1) << 44)

struct sim_block {
	uint64_t number;
	uint8_t *live;    /* NULL: zeros */
	uint8_t *durable; /* NULL: zeros; may be the same memory as live */
	uint8_t dirty;    /* bit per sector that differs since the last sync */
	bool allocated;   /* counts against the disk limit */
	bool listed;      /* in inode->dirty */
	struct sim_block *dirty_prev, *dirty_next;
	UT_hash_handle hh;
};

struct sim_inode;

struct sim_entry {
	struct sim_inode *inode; /* referenced */
	UT_hash_handle hh;
	char name[]; /* the key */
};

struct sim_inode {
	struct sim_disk *disk;
	struct sim_inode *prev, *next; /* disk->inodes */
	uint64_t number;
	mode_t mode; /* with S_IFDIR or S_IFREG */
	unsigned refs;
	int64_t change_ns; /* simulation time of the last change */

	/* files */
	uint64_t live_bytes, durable_bytes;
	bool truncated; /* since the last sync, down to truncated_bytes at least */
	uint64_t truncated_bytes;
	uint64_t allocated_blocks;
	struct sim_block *blocks; /* hash */
	struct sim_block *dirty;  /* list */
	struct sim_file *lock;    /* who holds the advisory lock */

	/* directories */
	struct sim_inode *parent; /* live; NULL for the root and for removed ones */
	struct sim_entry *live, *durable;
};

/* One atomic change of names: remove (if from), then set (if inode). */
struct sim_change {
	struct sim_change *prev, *next;      /* disk->journal */
	struct sim_inode *from_dir, *to_dir; /* referenced */
	char *from_name, *to_name;
	struct sim_inode *inode; /* referenced; NULL: only a removal */
	bool chosen;
};

struct sim_disk {
	struct gx_sim *sim;
	struct sim_inode *inodes;
	struct sim_inode *root;
	uint64_t next_number;
	uint64_t used_blocks, limit_blocks; /* limit 0: none */
	struct sim_change *journal;
};

/* An open file description. */
struct sim_file {
	struct sim_obj obj;
	struct sim_inode *inode; /* referenced */
	int flags;
};

/* -- blocks -------------------------------------------------------------------- */

static struct sim_block *block_find(struct sim_inode *inode, uint64_t number)
{
	struct sim_block *block;

	HASH_FIND(hh, inode->blocks, &number, sizeof(number), block);
	return block;
}

static struct sim_block *block_get(struct sim_inode *inode, uint64_t number)
{
	struct sim_block *block = block_find(inode, number);

	if (block == NULL) {
		block = sim_alloc(sizeof(*block));
		block->number = number;
		HASH_ADD(hh, inode->blocks, number, sizeof(block->number), block);
	}
	return block;
}

static int block_allocate(struct sim_inode *inode, struct sim_block *block)
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

static void block_mark(struct sim_inode *inode, struct sim_block *block, uint8_t sectors)
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
static uint8_t *block_own(struct sim_block *block)
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

static void block_free(struct sim_inode *inode, struct sim_block *block)
{
	block_unmark(inode, block);
	block_release(inode, block);
	block_drop_live(block);
	sim_free(block->durable);
	HASH_DELETE(hh, inode->blocks, block);
	sim_free(block);
}

static uint8_t sectors_of(size_t start, size_t bytes)
{
	size_t first = start / SECTOR_BYTES;
	size_t last = (start + bytes - 1) / SECTOR_BYTES;

	return (uint8_t)(((1u << (last + 1)) - 1) & ~((1u << first) - 1));
}

/* Zeros [start, end) of the live image; whole blocks lose their memory and their space. */
static void zero_range(struct sim_inode *inode, uint64_t start, uint64_t end)
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
			block_mark(inode, block, sectors_of(from - base, to - from));
			if (to - from == BLOCK_BYTES)
				block_drop_live(block);
			else
				memset(block_own(block) + (from - base), 0, to - from);
		}
		if (to - from == BLOCK_BYTES)
			block_release(inode, block);
	}
}

/* -- inodes ---------------------------------------------------------------------- */

static struct sim_inode *inode_new(struct sim_disk *disk, mode_t mode)
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

static struct sim_inode *inode_ref(struct sim_inode *inode)
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
		block_free(inode, block);
	}
	sim_free(inode);
}

/* Recursion is bounded: a directory freed here has lost its own names before, or all go. */
static void inode_unref(struct sim_inode *inode)
{
	gx_assert(inode->refs > 0);
	if (--inode->refs > 0)
		return;
	entries_clear(&inode->live);
	entries_clear(&inode->durable);
	inode_free(inode);
}

static struct sim_entry *entry_find(struct sim_entry *entries, const char *name)
{
	struct sim_entry *entry;

	HASH_FIND_STR(entries, name, entry);
	return entry;
}

static void entry_remove(struct sim_entry **entries, const char *name)
{
	struct sim_entry *entry = entry_find(*entries, name);

	if (entry == NULL)
		return;
	HASH_DEL(*entries, entry);
	inode_unref(entry->inode);
	sim_free(entry);
}

static void entry_set(struct sim_entry **entries, const char *name, struct sim_inode *inode)
{
	size_t bytes = strlen(name) + 1;
	struct sim_entry *entry = sim_alloc(sizeof(*entry) + bytes);

	inode_ref(inode);
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
		inode_unref(entry->inode);
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
	struct sim_entry *entry = entry_find(dir->live, name);

	if (entry != NULL && entry->inode != successor)
		entry->inode->parent = NULL;
}

/* Does it live and remembers it for the disk. */
static void names_change(struct sim_inode *from_dir, const char *from_name,
			 struct sim_inode *to_dir, const char *to_name, struct sim_inode *inode)
{
	struct sim_disk *disk = from_dir != NULL ? from_dir->disk : to_dir->disk;
	struct sim_change *change = sim_alloc(sizeof(*change));

	if (inode != NULL) {
		change->inode = inode_ref(inode);
		change->to_dir = inode_ref(to_dir);
		change->to_name = copy_name(to_name);
		orphan(to_dir, to_name, inode);
		entry_set(&to_dir->live, to_name, inode);
		if (S_ISDIR(inode->mode))
			inode->parent = to_dir;
	}
	if (from_dir != NULL) {
		change->from_dir = inode_ref(from_dir);
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
		inode_unref(change->from_dir);
	if (change->to_dir != NULL)
		inode_unref(change->to_dir);
	if (change->inode != NULL)
		inode_unref(change->inode);
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
static void journal_commit(struct sim_disk *disk, struct sim_inode *dir)
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
	disk->root = inode_new(disk, S_IFDIR | 0755);
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
		inode_ref(inode);
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

static void inode_sync(struct sim_inode *inode)
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
			block_free(inode, block);
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
			(void)block_own(block);
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
			memcpy(block_own(block) + offset, block->durable + offset, SECTOR_BYTES);
		else if (block->live != NULL)
			memset(block_own(block) + offset, 0, SECTOR_BYTES);
	}
	if (block->live != NULL)
		(void)block_allocate(inode, block);
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
	zero_range(inode, bytes, UINT64_MAX);
	inode_sync(inode);
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
		inode_ref(inode);
	}
	DL_FOREACH (disk->inodes, inode) {
		if (S_ISDIR(inode->mode))
			dir_power_cut(inode);
		else
			file_power_cut(disk->sim, inode);
	}
	DL_FOREACH_SAFE (disk->inodes, inode, tmp) {
		inode_unref(inode);
	}
}

void gx_sim_disk_limit(struct gx_sim_host *host, uint64_t bytes)
{
	host->disk->limit_blocks = bytes > 0 ? GX_MAX(bytes / BLOCK_BYTES, 1) : 0;
}

/* -- paths ------------------------------------------------------------------------------ */

/*
 * Walks to the directory of the last component, which is copied to `name`; name is
 * empty when the path is the root. -ENOENT, -ENOTDIR, -ENAMETOOLONG.
 */
static int path_walk(struct sim_disk *disk, const char *path, struct sim_inode **ret_dir,
		     char name[NAME_MAX + 1])
{
	struct sim_inode *dir = disk->root;

	name[0] = '\0';
	if (path[0] == '\0')
		return -ENOENT;
	for (;;) {
		size_t bytes;

		path += strspn(path, "/");
		bytes = strcspn(path, "/");
		if (bytes == 0)
			break;
		if (bytes > NAME_MAX)
			return -ENAMETOOLONG;
		if (name[0] != '\0') {
			struct sim_entry *entry = entry_find(dir->live, name);

			if (entry == NULL)
				return -ENOENT;
			if (!S_ISDIR(entry->inode->mode))
				return -ENOTDIR;
			dir = entry->inode;
			name[0] = '\0';
		}
		if (bytes == 2 && memcmp(path, "..", 2) == 0) {
			dir = dir->parent != NULL ? dir->parent : dir;
		} else if (bytes != 1 || path[0] != '.') {
			memcpy(name, path, bytes);
			name[bytes] = '\0';
		}
		path += bytes;
	}
	*ret_dir = dir;
	return 0;
}

static int path_find(struct sim_disk *disk, const char *path, struct sim_inode **ret_inode)
{
	char name[NAME_MAX + 1];
	struct sim_inode *dir;
	struct sim_entry *entry;
	int r = path_walk(disk, path, &dir, name);

	if (r < 0)
		return r;
	if (name[0] == '\0') {
		*ret_inode = dir;
		return 0;
	}
	entry = entry_find(dir->live, name);
	if (entry == NULL)
		return -ENOENT;
	*ret_inode = entry->inode;
	return 0;
}

int gx_sim_flip_bit(struct gx_sim_host *host, const char *path, uint64_t bit)
{
	struct sim_inode *inode;
	struct sim_block *block;
	size_t at = bit / 8 % BLOCK_BYTES;
	uint8_t mask = (uint8_t)(1u << (bit % 8));
	int r = path_find(host->disk, path, &inode);

	if (r < 0)
		return r;
	if (S_ISDIR(inode->mode) || bit / 8 >= inode->live_bytes)
		return -ENOENT;
	block = block_get(inode, bit / 8 / BLOCK_BYTES);
	if (block->live == NULL || block->live != block->durable) {
		if (block->durable != NULL)
			block->durable[at] ^= mask;
		block_own(block)[at] ^= mask;
		/* A flip in a hole must survive as the bytes around it do. */
		block_mark(inode, block, sectors_of(at, 1));
	} else {
		block->live[at] ^= mask;
	}
	return 0;
}

/* -- open files ------------------------------------------------------------------------- */

static void inode_truncate(struct sim_inode *inode, uint64_t bytes)
{
	if (bytes < inode->live_bytes) {
		zero_range(inode, bytes, UINT64_MAX);
		inode->truncated_bytes =
			inode->truncated ? GX_MIN(inode->truncated_bytes, bytes) : bytes;
		inode->truncated = true;
	}
	inode->live_bytes = bytes;
	inode->change_ns = inode->disk->sim->now_ns;
}

int sim_op_open(struct gx_env *env, const char *path, int flags, mode_t mode)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_disk *disk = proc->host->disk;
	char name[NAME_MAX + 1];
	struct sim_inode *dir;
	struct sim_inode *inode;
	struct sim_file *file;
	int r;

	if ((flags & O_TMPFILE) == O_TMPFILE)
		return -EOPNOTSUPP;
	r = path_find(disk, path, &inode);
	if (r == -ENOENT && (flags & O_CREAT) != 0) {
		r = path_walk(disk, path, &dir, name);
		if (r < 0)
			return r;
		inode = inode_new(disk, S_IFREG | (mode & 07777));
		names_change(NULL, NULL, dir, name, inode);
		inode_unref(inode);
	} else if (r < 0) {
		return r;
	} else if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) {
		return -EEXIST;
	} else if (S_ISDIR(inode->mode) && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT))) {
		return -EISDIR;
	} else if (!S_ISDIR(inode->mode) && (flags & O_DIRECTORY) != 0) {
		return -ENOTDIR;
	}
	if ((flags & O_TRUNC) != 0 && (flags & O_ACCMODE) != O_RDONLY)
		inode_truncate(inode, 0);
	file = sim_alloc(sizeof(*file));
	sim_obj_init(&file->obj, proc, SIM_FILE);
	file->inode = inode_ref(inode);
	file->flags = flags;
	r = sim_fd_install(proc, &file->obj);
	if (r < 0)
		sim_obj_unref(&file->obj);
	return r;
}

void sim_file_destroy(struct sim_obj *obj)
{
	struct sim_file *file = GX_CONTAINER_OF(obj, struct sim_file, obj);

	if (file->inode->lock == file)
		file->inode->lock = NULL;
	inode_unref(file->inode);
	sim_free(file);
}

static int file_find(struct gx_sim_proc *proc, int fd, bool to_write, struct sim_inode **ret_inode)
{
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_file *file;

	if (obj == NULL)
		return -EBADF;
	if (obj->kind != SIM_FILE)
		return -ESPIPE;
	file = GX_CONTAINER_OF(obj, struct sim_file, obj);
	if (S_ISDIR(file->inode->mode) && to_write)
		return -EISDIR;
	if ((file->flags & O_ACCMODE) == (to_write ? O_RDONLY : O_WRONLY))
		return -EBADF;
	*ret_inode = file->inode;
	return 0;
}

ssize_t sim_op_pread(struct gx_env *env, int fd, void *buf, size_t bytes, uint64_t offset)
{
	struct sim_inode *inode;
	size_t done = 0;
	int r = file_find(sim_enter(env), fd, false, &inode);

	if (r < 0)
		return r;
	if (S_ISDIR(inode->mode))
		return -EISDIR;
	if (offset >= inode->live_bytes)
		return 0;
	bytes = GX_MIN(bytes, inode->live_bytes - offset);
	while (done < bytes) {
		struct sim_block *block = block_find(inode, (offset + done) / BLOCK_BYTES);
		size_t at = (offset + done) % BLOCK_BYTES;
		size_t n = GX_MIN(bytes - done, BLOCK_BYTES - at);

		if (block != NULL && block->live != NULL)
			memcpy((char *)buf + done, block->live + at, n);
		else
			memset((char *)buf + done, 0, n);
		done += n;
	}
	return (ssize_t)done;
}

/* Returns how much found space. */
static size_t write_bytes(struct sim_inode *inode, const uint8_t *data, size_t bytes,
			  uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		struct sim_block *block = block_get(inode, (offset + done) / BLOCK_BYTES);
		size_t at = (offset + done) % BLOCK_BYTES;
		size_t n = GX_MIN(bytes - done, BLOCK_BYTES - at);

		if (block_allocate(inode, block) < 0) {
			if (block->live == NULL && block->durable == NULL && !block->listed)
				block_free(inode, block);
			break;
		}
		memcpy(block_own(block) + at, data + done, n);
		block_mark(inode, block, sectors_of(at, n));
		done += n;
	}
	if (done > 0) {
		inode->live_bytes = GX_MAX(inode->live_bytes, offset + done);
		inode->change_ns = inode->disk->sim->now_ns;
	}
	return done;
}

ssize_t sim_op_pwritev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		       uint64_t offset)
{
	struct sim_inode *inode;
	size_t done = 0;
	size_t wanted = 0;
	int r = file_find(sim_enter(env), fd, true, &inode);

	if (r < 0)
		return r;
	for (int i = 0; i < iov_count; i++)
		wanted += iov[i].iov_len;
	if (offset > FILE_BYTES_MAX || wanted > FILE_BYTES_MAX - offset)
		return -EFBIG;
	for (int i = 0; i < iov_count; i++) {
		size_t n = write_bytes(inode, iov[i].iov_base, iov[i].iov_len, offset + done);

		done += n;
		if (n < iov[i].iov_len)
			break;
	}
	return done == 0 && wanted > 0 ? -ENOSPC : (ssize_t)done;
}

/* The disk is busy. Outside fibers time does not pass. */
static void sync_takes_time(struct gx_sim_proc *proc)
{
	struct gx_sim *sim = proc->sim;
	int64_t ns;

	if (sim->options.sync_max_ns <= 0 || sim_fiber_current() == NULL)
		return;
	ns = 1 + (int64_t)sim_rng_below(&sim->rng, (uint64_t)sim->options.sync_max_ns);
	(void)sim_pause(proc, ns, GX_FOREVER, "disk sync");
}

static void sync_now(struct sim_inode *inode)
{
	if (S_ISDIR(inode->mode))
		journal_commit(inode->disk, inode);
	else
		inode_sync(inode);
}

int sim_op_fsync(struct gx_env *env, int fd)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_inode *inode;
	bool late;

	if (obj == NULL)
		return -EBADF;
	if (obj->kind != SIM_FILE)
		return -EINVAL;
	inode = GX_CONTAINER_OF(obj, struct sim_file, obj)->inode;
	late = sim_chance(proc->sim, 50);
	obj->refs++;
	if (!late)
		sync_now(inode);
	sync_takes_time(proc);
	if (late)
		sync_now(inode);
	sim_obj_unref(obj);
	return 0;
}

int sim_op_ftruncate(struct gx_env *env, int fd, uint64_t bytes)
{
	struct sim_inode *inode;
	int r = file_find(sim_enter(env), fd, true, &inode);

	if (r < 0)
		return r;
	if (bytes > FILE_BYTES_MAX)
		return -EFBIG;
	inode_truncate(inode, bytes);
	return 0;
}

int sim_op_fallocate(struct gx_env *env, int fd, int mode, uint64_t offset, uint64_t bytes)
{
	struct sim_inode *inode;
	bool keep_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
	bool zero = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
	bool punch = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
	int r = file_find(sim_enter(env), fd, true, &inode);

	if (r < 0)
		return r;
	if (bytes == 0 || (punch && !keep_size))
		return -EINVAL;
	if (offset > FILE_BYTES_MAX || bytes > FILE_BYTES_MAX - offset)
		return -EFBIG;
	if ((mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0)
		return -EOPNOTSUPP;
	if (zero)
		zero_range(inode, offset, offset + bytes);
	if (punch)
		return 0;
	for (uint64_t n = offset / BLOCK_BYTES; n <= (offset + bytes - 1) / BLOCK_BYTES; n++) {
		struct sim_block *block = block_get(inode, n);

		r = block_allocate(inode, block);
		if (r < 0)
			return r;
	}
	if (!keep_size)
		inode->live_bytes = GX_MAX(inode->live_bytes, offset + bytes);
	return 0;
}

int sim_op_lock_file(struct gx_env *env, int fd)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_file *file;

	if (obj == NULL || obj->kind != SIM_FILE)
		return -EBADF;
	file = GX_CONTAINER_OF(obj, struct sim_file, obj);
	if (file->inode->lock != NULL && file->inode->lock != file)
		return -EAGAIN;
	file->inode->lock = file;
	return 0;
}

/* -- names ---------------------------------------------------------------------------------- */

static void fill_stat(struct gx_sim_proc *proc, const struct sim_inode *inode, struct stat *ret_st)
{
	int64_t wall_ns =
		SIM_WALL_START_NS + inode->change_ns - SIM_START_NS + proc->host->ahead_ns;

	memset(ret_st, 0, sizeof(*ret_st));
	ret_st->st_dev = proc->host->number;
	ret_st->st_ino = inode->number;
	ret_st->st_mode = inode->mode;
	ret_st->st_nlink = 1;
	ret_st->st_uid = getuid();
	ret_st->st_gid = getgid();
	ret_st->st_size = (off_t)inode->live_bytes;
	ret_st->st_blksize = BLOCK_BYTES;
	ret_st->st_blocks = (blkcnt_t)(inode->allocated_blocks * SECTORS_PER_BLOCK);
	ret_st->st_mtim.tv_sec = wall_ns / GX_NSEC_PER_SEC;
	ret_st->st_mtim.tv_nsec = wall_ns % GX_NSEC_PER_SEC;
	ret_st->st_ctim = ret_st->st_mtim;
}

int sim_op_fstat(struct gx_env *env, int fd, struct stat *ret_st)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);

	if (obj == NULL || obj->kind != SIM_FILE)
		return -EBADF;
	fill_stat(proc, GX_CONTAINER_OF(obj, struct sim_file, obj)->inode, ret_st);
	return 0;
}

int sim_op_stat(struct gx_env *env, const char *path, struct stat *ret_st)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_inode *inode;
	int r = path_find(proc->host->disk, path, &inode);

	if (r < 0)
		return r;
	fill_stat(proc, inode, ret_st);
	return 0;
}

static bool dir_is_below(const struct sim_inode *dir, const struct sim_inode *ancestor)
{
	for (; dir != NULL; dir = dir->parent)
		if (dir == ancestor)
			return true;
	return false;
}

/* May `inode` take the place of `old`? */
static int check_replace(const struct sim_inode *inode, const struct sim_inode *old)
{
	if (S_ISDIR(old->mode) && !S_ISDIR(inode->mode))
		return -EISDIR;
	if (!S_ISDIR(old->mode) && S_ISDIR(inode->mode))
		return -ENOTDIR;
	return S_ISDIR(old->mode) && old->live != NULL ? -ENOTEMPTY : 0;
}

int sim_op_rename(struct gx_env *env, const char *from, const char *to)
{
	struct sim_disk *disk = sim_enter(env)->host->disk;
	char from_name[NAME_MAX + 1];
	char to_name[NAME_MAX + 1];
	struct sim_inode *from_dir;
	struct sim_inode *to_dir;
	struct sim_entry *source;
	struct sim_entry *target;
	int r = path_walk(disk, from, &from_dir, from_name);

	if (r == 0)
		r = path_walk(disk, to, &to_dir, to_name);
	if (r < 0)
		return r;
	if (from_name[0] == '\0' || to_name[0] == '\0')
		return -EBUSY;
	source = entry_find(from_dir->live, from_name);
	if (source == NULL)
		return -ENOENT;
	if (dir_is_below(to_dir, source->inode))
		return -EINVAL;
	target = entry_find(to_dir->live, to_name);
	if (target != NULL && target->inode == source->inode)
		return 0;
	r = target != NULL ? check_replace(source->inode, target->inode) : 0;
	if (r < 0)
		return r;
	names_change(from_dir, from_name, to_dir, to_name, source->inode);
	return 0;
}

static int remove_name(struct gx_env *env, const char *path, bool is_dir)
{
	struct sim_disk *disk = sim_enter(env)->host->disk;
	char name[NAME_MAX + 1];
	struct sim_inode *dir;
	struct sim_entry *entry;
	int r = path_walk(disk, path, &dir, name);

	if (r < 0)
		return r;
	if (name[0] == '\0')
		return -EBUSY;
	entry = entry_find(dir->live, name);
	if (entry == NULL)
		return -ENOENT;
	if (is_dir && !S_ISDIR(entry->inode->mode))
		return -ENOTDIR;
	if (!is_dir && S_ISDIR(entry->inode->mode))
		return -EISDIR;
	if (is_dir && entry->inode->live != NULL)
		return -ENOTEMPTY;
	names_change(dir, name, NULL, NULL, NULL);
	return 0;
}

int sim_op_unlink(struct gx_env *env, const char *path)
{
	return remove_name(env, path, false);
}

int sim_op_rmdir(struct gx_env *env, const char *path)
{
	return remove_name(env, path, true);
}

int sim_op_mkdir(struct gx_env *env, const char *path, mode_t mode)
{
	struct sim_disk *disk = sim_enter(env)->host->disk;
	char name[NAME_MAX + 1];
	struct sim_inode *dir;
	struct sim_inode *inode;
	int r = path_walk(disk, path, &dir, name);

	if (r < 0)
		return r;
	if (name[0] == '\0' || entry_find(dir->live, name) != NULL)
		return -EEXIST;
	inode = inode_new(disk, S_IFDIR | (mode & 07777));
	names_change(NULL, NULL, dir, name, inode);
	inode_unref(inode);
	return 0;
}

int sim_op_sync_dir(struct gx_env *env, const char *path)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_disk *disk = proc->host->disk;
	struct sim_inode *dir;
	bool late = sim_chance(proc->sim, 50);
	int r = path_find(disk, path, &dir);

	if (r < 0)
		return r;
	if (!S_ISDIR(dir->mode))
		return -ENOTDIR;
	if (!late)
		sync_now(dir);
	sync_takes_time(proc);
	/* Looked up again: it may have been removed meanwhile, and then there is nothing to keep.
	 */
	if (late && path_find(disk, path, &dir) == 0 && S_ISDIR(dir->mode))
		sync_now(dir);
	return 0;
}

/* A copy is walked, since fn may change the directory; it is the process's memory, like fn's. */
int sim_op_list_dir(struct gx_env *env, const char *path, gx_dirent_fn fn, void *arg)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_inode *inode;
	struct sim_entry *entry;
	struct sim_entry *tmp;
	GX_AUTOFREE char *names = NULL;
	size_t bytes = 0;
	int r = path_find(proc->host->disk, path, &inode);

	if (r < 0)
		return r;
	if (!S_ISDIR(inode->mode))
		return -ENOTDIR;
	HASH_ITER (hh, inode->live, entry, tmp) {
		bytes += strlen(entry->name) + 1;
	}
	names = malloc(bytes + 1);
	if (names == NULL)
		return -ENOMEM;
	bytes = 0;
	HASH_ITER (hh, inode->live, entry, tmp) {
		size_t n = strlen(entry->name) + 1;

		memcpy(names + bytes, entry->name, n);
		bytes += n;
	}
	for (size_t at = 0; at < bytes && r == 0; at += strlen(names + at) + 1)
		r = fn(arg, names + at);
	return r;
}
