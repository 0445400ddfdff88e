/*
 * md_kv.h - one view of the state: what is in the store, what is not yet, and
 * a bounded cache of what was read (rules N1, N8).
 *
 * Changes go to the active layer. Now and then it is frozen, at a command
 * index F, and a new one begins. Once the log is on disk up to F, the writer
 * thread puts the frozen layer into the store as one batch together with F
 * itself; so the store always holds the state exactly as it was after some
 * command, never a part of one, never one the log could lose. After a start
 * the log is replayed from there.
 *
 * Reading looks at active, frozen, cache, store, in this order; a scan merges
 * active, frozen and store. There is at most one frozen layer: while the
 * writer is busy with it the active one grows, up to a maximum; md_kv_room()
 * then tells metad to slow mutations down. A frozen layer that has been stored
 * is kept as part of the cache until the next one comes, so what was written
 * just now need not be read back; what is read from it moves on to the rest of
 * the cache. The cache also remembers keys that do not exist.
 *
 * Keys do not begin with a zero byte (md_store.h); "\0index" holds F.
 *
 * Every changed value carries a tag: the session that changed it and the
 * command's index, for rule N4; md_kv_get() reports it as long as the value is
 * not on disk in the log.
 *
 * Running out of memory, or a store that cannot be read, in the middle of a
 * command would leave it half done. There is no going back then, and none is
 * needed: the command is in the log. So put, delete, get and scan end the
 * process in these cases (fatal_fn), and the next start replays.
 *
 * Threads: the loop's; the writer thread is inside.
 */
#ifndef MD_KV_H
#define MD_KV_H

#include "common/gx_loop.h"
#include "metad/md_store.h"

struct md_kv;

/* Who changed a value last, as long as that matters; index 0: long ago. */
struct md_tag {
	uint64_t session;
	uint64_t index;
};

struct md_kv_options {
	struct gx_env *env;
	struct gx_loop *loop;
	struct md_store *store;   /* owned from here on */
	size_t cache_bytes;       /* clean values kept in memory */
	size_t layer_bytes;       /* freeze when the active layer is this large … */
	size_t overlay_bytes_max; /* … and slow down when both together are */
	/*
	 * A batch is in the store, synced, up to this command; or (err < 0, once) the store failed:
	 * nothing more will be stored, reading goes on. Called by the loop.
	 */
	void (*stored_fn)(void *arg, uint64_t index, int err);
	/* Ends the process; does not return. NULL: a line in the log and _exit(1). */
	void (*fatal_fn)(void *arg, int err);
	void *arg;
	/*
	 * Tests (N8): 0 write behind as production does; 1 never; 2 after every command, as far as
	 * the log is on disk, and md_kv_durable() waits for it.
	 */
	int test_writer;
};

/*
 * Also tells the index of the last command that is in the store. The store is
 * closed on failure, too.
 */
GX_MUST_CHECK int md_kv_open(const struct md_kv_options *options, struct md_kv **ret_kv,
			     uint64_t *ret_stored_index);
/* Waits for the writer; what is not stored stays in the log. */
void md_kv_close(struct md_kv *kv);

/*
 * The value, borrowed until the next call on this kv. -ENOENT. ret_tag may be
 * NULL.
 */
GX_MUST_CHECK int md_kv_get(struct md_kv *kv, const void *key, size_t key_bytes,
			    const void **ret_value, size_t *ret_value_bytes,
			    struct md_tag *ret_tag);
/* The tag of a change, or of a deletion not yet on disk; index 0 if neither. */
void md_kv_tag(struct md_kv *kv, const void *key, size_t key_bytes, struct md_tag *ret_tag);

/*
 * With keep_tag the earlier tag stays (a parent's times do not count for N4). Key and value may
 * be borrowed from this kv.
 */
void md_kv_put(struct md_kv *kv, const void *key, size_t key_bytes, const void *value,
	       size_t value_bytes, struct md_tag tag, bool keep_tag);
void md_kv_delete(struct md_kv *kv, const void *key, size_t key_bytes, struct md_tag tag);

/*
 * Pairs with keys in [from, to) in order, as they are now; to_bytes 0 means to
 * the end. Changes during the scan are allowed and seen if they lie ahead; so
 * are gets and other scans. Key and value are borrowed until fn returns or
 * calls this kv. fn stops the scan with non-zero, which is returned. The store
 * is read in bounded pieces, never while fn runs.
 */
typedef int (*md_kv_scan_fn)(void *arg, const void *key, size_t key_bytes, const void *value,
			     size_t value_bytes, const struct md_tag *tag);
int md_kv_scan(struct md_kv *kv, const void *from, size_t from_bytes, const void *to,
	       size_t to_bytes, md_kv_scan_fn fn, void *arg);
/*
 * The same for at most `steps_max` places, where a deleted pair that is still
 * in the way counts as well: so that no scan makes a turn long (N17). -EAGAIN
 * (which fn does not return): there is more; go on from `next`, a buffer for at
 * least MD_KEY_MAX + 1 bytes whose contents are replaced. A caller that
 * empties a directory in pieces goes on from there too; from the beginning it
 * would walk over all it has deleted, again and again.
 */
GX_MUST_CHECK int md_kv_scan_some(struct md_kv *kv, const void *from, size_t from_bytes,
				  const void *to, size_t to_bytes, size_t steps_max,
				  md_kv_scan_fn fn, void *arg, struct gx_buf *next);

/* After each command: its index, higher than the one before. Freezes if it is time. */
void md_kv_applied(struct md_kv *kv, uint64_t index);
/* The log is on disk up to here: the writer may go on, tags up to here are forgotten. */
void md_kv_durable(struct md_kv *kv, uint64_t index);
/* False: the overlay is full, mutations should wait. Always true with test_writer 1. */
bool md_kv_room(const struct md_kv *kv);
/* It is three quarters full: mutations should come slower, lest they have to wait long. */
bool md_kv_pressed(const struct md_kv *kv);

struct md_kv_stats {
	size_t cache_bytes;  /* of the options' cache_bytes; the last stored layer included */
	size_t active_bytes; /* changes not stored, and the tables around them */
	size_t frozen_bytes;
	size_t active_count;
	uint64_t hits;   /* gets answered from memory */
	uint64_t misses; /* gets that asked the store */
	uint64_t batches;
};
void md_kv_stats(const struct md_kv *kv, struct md_kv_stats *ret_stats);

#endif
