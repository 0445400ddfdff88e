/*
 * md_store.h - where the state rests: ordered keys and values, written in
 * batches, each on disk or not at all.
 *
 * An interface with two implementations: LevelDB (md_store_leveldb.c) in
 * production, and in the simulation and crash tests a table in memory with its
 * own small file through gx_env (md_store_mem.c), which obeys kill, power cut
 * and fault points as everything else there.
 *
 * Keys are compared as bytes. Those that begin with a zero byte are for
 * housekeeping: two zero bytes are the store's own (format, batch numbers), one
 * is free for whoever writes batches. get finds them, iteration leaves them out.
 *
 * Format (rule N18): both files carry MD_STORE_VERSION. A newer one is refused;
 * there is no older one yet.
 *
 * Threads: get and scan from the loop's thread, write from the writer's; an
 * implementation serves both at once.
 */
#ifndef MD_STORE_H
#define MD_STORE_H

#include "common/gx_buf.h"
#include "common/gx_env.h"

#define MD_KEY_MAX 300u            /* longest: entry key, 9 + 255, with room */
#define MD_VALUE_MAX (128u * 1024) /* longest: an extended attribute of 64 KiB */
#define MD_STORE_VERSION 1u        /* of what both implementations put on disk */

struct md_store;
struct md_store_batch;
struct md_store_iter;

struct md_store_ops {
	/* -ENOENT, -EIO, -EBADMSG; else the value replaces the contents of `value`. */
	int (*get)(struct md_store *, const void *key, size_t key_bytes, struct gx_buf *value);
	/*
	 * Iterates keys >= from, as the store is now; later writes are not seen. Close it soon:
	 * it keeps old files and memory from going.
	 */
	int (*iter_open)(struct md_store *, const void *from, size_t from_bytes,
			 struct md_store_iter **ret_iter);
	/* 1 and the next pair (borrowed until the next call), 0 at the end, or an error. */
	int (*iter_next)(struct md_store_iter *, const void **ret_key, size_t *ret_key_bytes,
			 const void **ret_value, size_t *ret_value_bytes);
	void (*iter_close)(struct md_store_iter *);
	/*
	 * All of the batch, synced, or an error: then the next opening finds all of it or nothing,
	 * reading goes on, and every further write fails with the same error.
	 */
	int (*write)(struct md_store *, const struct md_store_batch *batch);
	/* Accepts a store after errors. No iterator is open. */
	void (*close)(struct md_store *);
};

struct md_store {
	const struct md_store_ops *ops;
	struct gx_env *env;
};

/* A batch is a list of puts and deletes; the last one of a key wins. Values may be empty. */
struct md_store_batch {
	struct gx_buf bytes; /* encoded; private */
	size_t count;
};
void md_store_batch_init(struct md_store_batch *batch, size_t bytes_max);
void md_store_batch_fini(struct md_store_batch *batch);
void md_store_batch_clear(struct md_store_batch *batch);
/* -E2BIG (the batch is full), -ENOMEM. Keys and values within MD_KEY_MAX and MD_VALUE_MAX. */
GX_MUST_CHECK int md_store_batch_put(struct md_store_batch *batch, const void *key,
				     size_t key_bytes, const void *value, size_t value_bytes);
GX_MUST_CHECK int md_store_batch_delete(struct md_store_batch *batch, const void *key,
					size_t key_bytes);
/* Calls back for each change in order; value is NULL for a delete. Stops on non-zero. */
typedef int (*md_store_change_fn)(void *arg, const void *key, size_t key_bytes, const void *value,
				  size_t value_bytes);
int md_store_batch_each(const struct md_store_batch *batch, md_store_change_fn fn, void *arg);
/* The same for an encoded batch that was on disk: -EBADMSG if it is none. */
int md_store_batch_decode(const void *bytes, size_t byte_count, md_store_change_fn fn, void *arg);

/*
 * Makes or opens. -EPROTONOSUPPORT: a newer format. -EBADMSG: damaged, or something else.
 * A tail torn by a power cut is no damage; it is cut off.
 *
 * LevelDB: `cache_bytes` is its block cache; besides it uses two write buffers
 * (MD_STORE_LEVELDB_BUFFER_BYTES each) and some 40 KiB per table file. Its string errors are
 * logged here, once each, and come back as -EIO or -EBADMSG.
 */
#define MD_STORE_LEVELDB_BUFFER_BYTES (16u * 1024 * 1024)
GX_MUST_CHECK int md_store_open_leveldb(struct gx_env *env, const char *dir, size_t cache_bytes,
					struct md_store **ret_store);
GX_MUST_CHECK int md_store_open_mem(struct gx_env *env, const char *path,
				    struct md_store **ret_store);

#endif
