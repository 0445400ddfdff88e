/*
 * fsd_object_impl.h - what the files of the object engine share.
 *
 * fsd_spool.c           the spool: its file, names, the table of open objects
 * fsd_object.c          life of an object, sync and settle, generations
 * fsd_object_io.c       locks; read, write, truncate, punch
 * fsd_object_recover.c  opening what an earlier life left
 * fsd_sum.c             the bytes of the sum file
 *
 * Locks, outermost first: object shared or exclusive (`sharers`, `exclusive`); regions, in
 * ascending order; `names`; `sum_sync`; `lock` of the object; `lock` of the spool.
 */
#ifndef FSD_OBJECT_IMPL_H
#define FSD_OBJECT_IMPL_H

#include "common/gx_hash.h"
#include "fsd/fsd_broken.h"
#include "fsd/fsd_object.h"
#include "fsd/fsd_sum.h"
#include <limits.h>

#define FSD_UUID_BYTES 16u
#define FSD_DIRS 65536u       /* objects/xx/yy */
#define FSD_SPAN_REGIONS 64u  /* locked, and marked with one sync, at once */
#define FSD_SUFFIX_SUM ".sum" /* on disk once */
#define FSD_SUFFIX_NEW ".new" /* perhaps not */

struct fsd_spool {
	struct gx_env *env;
	char *dir;
	int fd; /* of the file `spool`; carries the lock */
	uint8_t uuid[FSD_UUID_BYTES];
	uint64_t lives; /* of servers, on disk */
	struct gx_mutex lock;
	struct gx_cond changed; /* an object has been opened, or has failed to */
	bool lock_ready, changed_ready;
	/* Under the lock. */
	uint64_t epoch;                    /* metad's, on disk */
	struct fsd_object *objects;        /* hash by id; also those being opened */
	struct fsd_object *anchor;         /* in the hash so that it is never empty; no object */
	uint8_t dirs_synced[FSD_DIRS / 8]; /* bit: its name is on disk, seen in this life */
};

/* A region is in the object's table while it is locked, waited for, marked or dirty. */
struct fsd_region {
	uint64_t number;
	unsigned users;   /* hold or wait for the lock */
	unsigned readers; /* hold it */
	bool writer;
	bool marked;  /* its mark is on disk; false while that is not sure */
	bool dirty;   /* changed since the last sync began */
	bool syncing; /* changed before, and that sync is not over */
	UT_hash_handle hh;
};

struct fsd_object {
	struct fsd_spool *spool;
	struct gx_env *env;
	UT_hash_handle hh; /* spool->objects, by id */
	int data_fd, sum_fd;

	/* Under the spool's lock. */
	struct fsd_object_id id; /* changed with `names`, too */
	unsigned refs;
	bool opening;
	bool removed; /* not in the table; the last close frees */

	struct gx_mutex names;    /* renaming, removing */
	struct gx_mutex sum_sync; /* one fdatasync of the sum file: each error is met once */
	struct gx_mutex lock;
	struct gx_cond changed;
	bool names_ready, sum_sync_ready, lock_ready, changed_ready;

	/* Under `names`. */
	bool young;         /* the sum file is .new */
	_Atomic bool named; /* the names are on disk */

	/* Under `lock`. */
	struct fsd_region *regions;
	unsigned sharers, exclusive_waiting;
	bool exclusive;
	uint64_t size_bytes;
	uint64_t header_generation; /* of which the names are on disk */
	uint64_t settled_bytes;     /* at least what the header on disk says */
	uint64_t synced_bytes;   /* what is before this was on disk once, and is but where dirty */
	uint64_t snapshot_bytes; /* size when the running sync began, or less if cut since */
	uint64_t limit_bytes;    /* while it is being cut: no sync covers more */
	bool resized;            /* since the last sync began */
	bool resize_syncing;
	uint64_t syncs_begun, syncs_done;
	bool sync_running;
	bool bad;
	int sick;
};

/* -- fsd_spool.c --------------------------------------------------------------- */

/* "<dir>/objects/xx/yy" and "<that>/<ino>.<generation><suffix>". */
GX_MUST_CHECK int fsd_spool_dir_path(const struct fsd_spool *spool, uint64_t ino,
				     char ret_path[PATH_MAX]);
GX_MUST_CHECK int fsd_spool_object_path(const struct fsd_spool *spool,
					const struct fsd_object_id *id, const char *suffix,
					char ret_path[PATH_MAX]);
/* An object's id from the name of one of its files, and where the suffix begins; -EINVAL. */
GX_MUST_CHECK int fsd_spool_name_parse(const char *name, struct fsd_object_id *ret_id,
				       const char **ret_suffix);
/* Makes the directories of an object; not synced. */
GX_MUST_CHECK int fsd_spool_make_dirs(struct fsd_spool *spool, uint64_t ino);
/* The names in the directory of an object are on disk, and its own name. */
GX_MUST_CHECK int fsd_spool_sync_dirs(struct fsd_spool *spool, uint64_t ino);

/* -- fsd_object.c -------------------------------------------------------------- */

static inline void fsd_object_lock(struct fsd_object *object)
{
	gx_env_mutex_lock(object->env, &object->lock);
}

static inline void fsd_object_unlock(struct fsd_object *object)
{
	gx_env_mutex_unlock(object->env, &object->lock);
}

static inline uint64_t fsd_blocks(uint64_t bytes)
{
	return (bytes + FSD_BLOCK_BYTES - 1) / FSD_BLOCK_BYTES;
}

/* Closes the files; accepts a half-built one. Not in the table any more. */
void fsd_object_free(struct fsd_object *object);
/* First failure wins; returns the error for convenience. Not under `lock`. */
int fsd_object_fall_sick(struct fsd_object *object, int err);
/* Writes the header as it stands; under `lock`. */
GX_MUST_CHECK int fsd_object_put_header(struct fsd_object *object);
/* The sum file is on disk. An error makes the object sick. */
GX_MUST_CHECK int fsd_object_sync_sum(struct fsd_object *object);

/* -- fsd_object_io.c ----------------------------------------------------------- */

/* Finds or makes it; NULL: no memory. Under `lock`. */
struct fsd_region *fsd_region_get(struct fsd_object *object, uint64_t number);
/* Forgets it if nothing is left to remember; under `lock`. */
void fsd_region_put(struct fsd_object *object, struct fsd_region *region);

/* -- fsd_object_recover.c ------------------------------------------------------ */

/* Opens the files of object->id and makes the invariants true. */
GX_MUST_CHECK int fsd_object_recover(struct fsd_object *object);

#endif
