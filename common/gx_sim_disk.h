/*
 * gx_sim_disk.h - what the two files of a simulated disk share; nobody else includes it.
 *
 * gx_sim_disk.c  blocks, inodes, the journal of names, sync and power cut
 * gx_sim_fs.c    paths, descriptors and the env's operations on files
 */
#ifndef GX_SIM_DISK_H
#define GX_SIM_DISK_H

#include "common/gx_sim_impl.h"

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

/* NULL: a hole. */
struct sim_block *sim_block_find(struct sim_inode *inode, uint64_t number);
/* Made if it is not there, without content. */
struct sim_block *sim_block_get(struct sim_inode *inode, uint64_t number);
/* Counts it against the disk's limit: 0 or -ENOSPC. */
int sim_block_allocate(struct sim_inode *inode, struct sim_block *block);
/* These sectors were written. */
void sim_block_mark(struct sim_inode *inode, struct sim_block *block, uint8_t sectors);
/* The live image, as memory of its own that may be changed. */
uint8_t *sim_block_own(struct sim_block *block);
void sim_block_free(struct sim_inode *inode, struct sim_block *block);
/* Bit per sector of a block that these bytes touch. */
uint8_t sim_sectors_of(size_t start, size_t bytes);
void sim_zero_range(struct sim_inode *inode, uint64_t start, uint64_t end);

struct sim_inode *sim_inode_new(struct sim_disk *disk, mode_t mode);
struct sim_inode *sim_inode_ref(struct sim_inode *inode);
void sim_inode_unref(struct sim_inode *inode);
/* The live content of a file becomes its durable one. */
void sim_inode_sync(struct sim_inode *inode);

struct sim_entry *sim_entry_find(struct sim_entry *entries, const char *name);
/* Changes the live names and writes it to the journal; see struct sim_change. */
void sim_names_change(struct sim_inode *from_dir, const char *from_name, struct sim_inode *to_dir,
		      const char *to_name, struct sim_inode *inode);
/* Makes what concerns a directory durable. */
void sim_journal_commit(struct sim_disk *disk, struct sim_inode *dir);

#endif
