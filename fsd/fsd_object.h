/*
 * fsd_object.h - objects in a spool: whole files of bytes with a checksum per 4 KiB block (rule
 *B6).
 *
 * A spool is a directory on one disk. An object is the content of one inode in one generation: a
 * data file, as long as the content and sparse where it is, and beside it a sum file. Nothing else
 * may write there.
 *
 *	<spool>/spool                    uuid of the spool, format version, metad's epoch
 *	<spool>/objects/<2 hex>/<2 hex>/<ino>.<generation>       bytes
 *	<spool>/objects/<2 hex>/<2 hex>/<ino>.<generation>.sum   checksums and marks (fsd_sum.h)
 *	<spool>/objects/<2 hex>/<2 hex>/<ino>.<generation>.new   the same before the first sync
 *	<spool>/quarantine/              objects nobody knows (rule N9)
 *
 * Each block is settled (its checksum in the sum file is valid) or dirty. The bytes of a block may
 * differ from its checksum only while the block is dirty *on disk*: before a settled block is
 * overwritten, its region (FSD_REGION_BYTES) is marked dirty in the sum file and that mark is
 * synced, once per region and not per write. Blocks behind the settled size are dirty without a
 * mark, so writing a new file costs no sync at all. Sync syncs data and sum file at the same time;
 * only afterwards, and lazily, marks are cleared and the settled size grows: a crash in between
 * leaves blocks dirty whose checksums are right, which is harmless. After a crash, dirty blocks are
 * hashed anew from the disk, once, when the object is opened; settled ones must match.
 *
 * To programs that run, that is to the page cache, every block has its right checksum at any time:
 * a write stores the checksums (first, since they need less space) and the bytes under the lock of
 * the region. So a block that is changed in part is verified before, dirty or not, and a flipped
 * byte never gets a new checksum.
 *
 * Reading verifies: a block is handed out only if its checksum fits, and a mismatch counts only
 * when it has been hashed again under the block's lock and still disagrees (rule B7): -EBADMSG, and
 * the object is marked bad in memory so that it is reported. The checksum of a block is that of
 * FSD_BLOCK_BYTES bytes: behind the end of the content come zeros. So growing changes no checksum.
 *
 * Threads: any number on one object; ranges of FSD_REGION_BYTES are locked, readers of a range side
 * by side. Append and truncate have the object for themselves.
 */
#ifndef FSD_OBJECT_H
#define FSD_OBJECT_H

#include "common/gx_buf.h"
#include "common/gx_env.h"

#define FSD_BLOCK_BYTES 4096u
#ifndef FSD_REGION_BYTES /* tests of crashes have smaller ones */
#define FSD_REGION_BYTES (1024u * 1024)
#endif
#define FSD_OBJECT_BYTES_MAX (UINT64_C(1) << 50) /* else -EFBIG; the filesystem may have less */
#define FSD_SPOOL_VERSION 2u
#define FSD_SUM_VERSION 1u

struct fsd_spool;
struct fsd_object;

/*
 * Opens a spool; `make` allows making one in an empty directory, else a directory without a spool
 * is refused (-ENODEV: a disk that is not mounted must not become a new spool, rule N9), and so is
 * making one where something else is (-ENOTEMPTY). -EBADMSG, -EPROTONOSUPPORT (newer), -EBUSY
 * (locked by another).
 */
GX_MUST_CHECK int fsd_spool_open(struct gx_env *env, const char *dir, bool make,
				 struct fsd_spool **ret_spool);
/* No object may be open. */
void fsd_spool_close(struct fsd_spool *spool);
void fsd_spool_uuid(const struct fsd_spool *spool, uint8_t ret_uuid[16]);
/* The highest epoch of metad that this spool has seen; 0: none (rule N9). */
uint64_t fsd_spool_epoch(struct fsd_spool *spool);
/* On disk when it returns; for one caller at a time. -ESTALE: lower than the one it has. */
GX_MUST_CHECK int fsd_spool_set_epoch(struct fsd_spool *spool, uint64_t epoch);
/*
 * How many servers have worked on it: counts on, on disk when it returns, before the first change
 * of a server. So what is counted within a life goes on behind all earlier ones, whatever the
 * machine's clock says.
 */
GX_MUST_CHECK int fsd_spool_begin_life(struct fsd_spool *spool);
uint64_t fsd_spool_lives(const struct fsd_spool *spool);
/* Of its filesystem. */
GX_MUST_CHECK int fsd_spool_space(struct fsd_spool *spool, uint64_t *ret_bytes, uint64_t *ret_free);

struct fsd_object_id {
	uint64_t ino;
	uint64_t generation;
};

/*
 * All objects, in no order; non-zero stops. `bytes` is the length of the data file. The callback
 * may remove or quarantine the object it is shown.
 */
typedef int (*fsd_object_fn)(void *arg, const struct fsd_object_id *id, uint64_t bytes);
GX_MUST_CHECK int fsd_spool_each(struct fsd_spool *spool, fsd_object_fn fn, void *arg);
/* The objects of one inode, in no order; non-zero stops. */
typedef int (*fsd_generation_fn)(void *arg, const struct fsd_object_id *id);
GX_MUST_CHECK int fsd_spool_generations(struct fsd_spool *spool, uint64_t ino, fsd_generation_fn fn,
					void *arg);
/* Moves an object aside; its name tells when. -ENOENT, -EBUSY (it is open). */
GX_MUST_CHECK int fsd_spool_quarantine(struct fsd_spool *spool, const struct fsd_object_id *id);
/* Deletes what was moved aside before this moment (wall clock). */
GX_MUST_CHECK int fsd_spool_expire(struct fsd_spool *spool, int64_t before_ns);

/*
 * One struct per object however often it is opened. -EEXIST, -ENOENT, -EBADMSG (sum file damaged or
 * lost, or the data shorter than what is settled).
 */
GX_MUST_CHECK int fsd_object_create(struct fsd_spool *spool, const struct fsd_object_id *id,
				    struct fsd_object **ret_object);
GX_MUST_CHECK int fsd_object_open(struct fsd_spool *spool, const struct fsd_object_id *id,
				  struct fsd_object **ret_object);
/* Does not sync; settles. One that is sick stays so until the spool is closed. */
void fsd_object_close(struct fsd_object *object);
/* Also while it is open: the last close then frees the space. */
GX_MUST_CHECK int fsd_object_remove(struct fsd_spool *spool, const struct fsd_object_id *id);
/*
 * The next generation of an object: the same bytes under another id, by rename. A crash leaves
 * exactly one of both, and once this returns the new one (rule B1). The data file's name decides;
 * a sum file left behind is found by the next open. -EEXIST, -EINVAL (not a higher one).
 */
GX_MUST_CHECK int fsd_object_advance(struct fsd_object *object, uint64_t generation);

uint64_t fsd_object_size(struct fsd_object *object);
/* Its generation may move at any time. */
void fsd_object_get_id(struct fsd_object *object, struct fsd_object_id *ret_id);
/* Of the data file; borrowed, for reading only, and what is read is not verified. */
int fsd_object_data_fd(const struct fsd_object *object);
/* A descriptor of the data file that can do nothing but read; the caller's. -ENOENT: removed. */
GX_MUST_CHECK int fsd_object_open_reader(struct fsd_object *object);
/* What the data file takes on disk, without holes. */
GX_MUST_CHECK int fsd_object_stored(struct fsd_object *object, uint64_t *ret_bytes);
/* Bytes read, 0 at the end. `sums` may be NULL: else gets the checksums of all blocks touched. */
GX_MUST_CHECK ssize_t fsd_object_read(struct fsd_object *object, void *buf, size_t bytes,
				      uint64_t offset, struct gx_buf *sums);
/*
 * All, or an error and perhaps a beginning of it: -ENOSPC, -EFBIG, -EIO, -EBADMSG (a block that is
 * changed in part is damaged). What was acknowledged before and lies elsewhere stays right. An
 * error other than of space makes the object sick, see fsd_object_sync().
 */
GX_MUST_CHECK int fsd_object_write(struct fsd_object *object, const void *buf, size_t bytes,
				   uint64_t offset);
/* Where it went: at the end, in one piece, or not at all. */
GX_MUST_CHECK int fsd_object_append(struct fsd_object *object, const void *buf, size_t bytes,
				    uint64_t *ret_offset);
/* The same, but -EFBIG if it would end behind `size_max`. */
GX_MUST_CHECK int fsd_object_append_max(struct fsd_object *object, const void *buf, size_t bytes,
					uint64_t size_max, uint64_t *ret_offset);
GX_MUST_CHECK int fsd_object_truncate(struct fsd_object *object, uint64_t bytes);
/* Zeros; gives the space back where the filesystem can. Does not change the size. */
GX_MUST_CHECK int fsd_object_punch(struct fsd_object *object, uint64_t offset, uint64_t bytes);
/*
 * Room on the disk for these bytes, which stay what they are, or zeros. `grow`: the object ends
 * behind them at least. -ENOSPC, -EFBIG, -EOPNOTSUPP (the filesystem cannot; nothing has changed).
 */
GX_MUST_CHECK int fsd_object_allocate(struct fsd_object *object, uint64_t offset, uint64_t bytes,
				      bool grow);
/* The next byte that is data (or, `hole`, that is not) from offset on; -ENXIO behind the end. */
GX_MUST_CHECK int fsd_object_seek(struct fsd_object *object, uint64_t offset, bool hole,
				  uint64_t *ret_offset);
/*
 * Bytes and checksums of all that was written before are on disk. Several callers share one sync.
 * After a failed sync the object is sick: every further write and sync fails with the same error
 * (never a second fdatasync on the same data).
 */
GX_MUST_CHECK int fsd_object_sync(struct fsd_object *object);
/* Nothing written since the last successful sync? */
bool fsd_object_stable(struct fsd_object *object);
/* A block did not match its checksum. */
bool fsd_object_bad(struct fsd_object *object);
/* All its blocks have been verified, or written anew, since. */
void fsd_object_mended(struct fsd_object *object);
/* 0, or the error that made it sick. */
int fsd_object_sick(struct fsd_object *object);
/* Clears marks that a sync has made unnecessary; cheap, for a background thread. */
void fsd_object_settle(struct fsd_object *object);
/*
 * All three: synced, settled, and that on disk as well. Before that a bit that is flipped is not
 * noticed if the machine crashes, however much later, and nobody has opened the object since. So
 * it comes before anybody hears that the object is stable.
 */
GX_MUST_CHECK int fsd_object_sync_settled(struct fsd_object *object);
/* Checksums of blocks [first, first + count), as a reader or a copy needs them; zeros' for holes.
 */
GX_MUST_CHECK int fsd_object_sums(struct fsd_object *object, uint64_t first, size_t count,
				  uint64_t *ret_sums);

#endif
