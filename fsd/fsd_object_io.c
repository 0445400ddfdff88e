/*
 * fsd_object_io.c - reading and changing the bytes of an object.
 *
 * Every change of bytes, under the locks of its regions, goes
 *
 *   1. mark      settled blocks in it: the marks of their regions are on disk
 *   2. sums      the new checksums go to the sum file
 *   3. bytes     one pwrite (or a hole is punched)
 *
 * In this order, because 2 may run out of space and then no byte has changed yet, and because after
 * a failure of 3 the checksums that are to be put right have their space already. What stays of a
 * block that is changed in part is verified before 1: a marked region is hashed anew after a crash,
 * and damage that was seen must not be blessed. Nothing is synced but the marks.
 *
 * Checksums are not kept in memory: the page cache has them (2 KiB per MiB), and what is to be
 * known about a block is then in one place only.
 */
#include "fsd/fsd_object_impl.h"
#include <fcntl.h>

#define ZEROS_BYTES 65536u

/* -- locks --------------------------------------------------------------------- */

static void wait_changed(struct fsd_object *object)
{
	/* Woken or not, the caller asks its condition again. */
	GX_IGNORE(gx_env_cond_wait(object->env, &object->changed, &object->lock, GX_FOREVER));
}

static void hold_shared(struct fsd_object *object)
{
	fsd_object_lock(object);
	while (object->exclusive || object->exclusive_waiting > 0)
		wait_changed(object);
	object->sharers++;
	fsd_object_unlock(object);
}

static void drop_shared(struct fsd_object *object)
{
	fsd_object_lock(object);
	gx_assert(object->sharers > 0);
	if (--object->sharers == 0 && object->exclusive_waiting > 0)
		gx_env_cond_broadcast(object->env, &object->changed);
	fsd_object_unlock(object);
}

static void hold_alone(struct fsd_object *object)
{
	fsd_object_lock(object);
	object->exclusive_waiting++;
	while (object->exclusive || object->sharers > 0)
		wait_changed(object);
	object->exclusive_waiting--;
	object->exclusive = true;
	fsd_object_unlock(object);
}

static void drop_alone(struct fsd_object *object)
{
	fsd_object_lock(object);
	object->exclusive = false;
	gx_env_cond_broadcast(object->env, &object->changed);
	fsd_object_unlock(object);
}

struct fsd_region *fsd_region_get(struct fsd_object *object, uint64_t number)
{
	bool gx_hash_failed = false;
	struct fsd_region *region;

	HASH_FIND(hh, object->regions, &number, sizeof(number), region);
	if (region != NULL)
		return region;
	region = calloc(1, sizeof(*region));
	if (region == NULL)
		return NULL;
	region->number = number;
	HASH_ADD(hh, object->regions, number, sizeof(region->number), region);
	if (gx_hash_failed) {
		free(region);
		return NULL;
	}
	return region;
}

void fsd_region_put(struct fsd_object *object, struct fsd_region *region)
{
	if (region->users > 0 || region->marked || region->dirty || region->syncing)
		return;
	HASH_DELETE(hh, object->regions, region);
	free(region);
}

/* A run of regions that an operation has locked. */
struct span {
	uint64_t first;
	uint64_t end;
	bool write;
	struct fsd_region *regions[FSD_SPAN_REGIONS];
};

static void region_lock(struct fsd_object *object, struct fsd_region *region, bool write)
{
	while (region->writer || (write && region->readers > 0))
		wait_changed(object);
	if (write)
		region->writer = true;
	else
		region->readers++;
}

/* `changed`: perhaps; what was written is not on disk. */
static void span_unlock(struct fsd_object *object, struct span *span, bool changed)
{
	bool wanted = false;

	fsd_object_lock(object);
	for (uint64_t number = span->first; number < span->end; number++) {
		struct fsd_region *region = span->regions[number - span->first];

		if (span->write)
			region->writer = false;
		else
			region->readers--;
		region->dirty = region->dirty || changed;
		region->users--;
		wanted = wanted || region->users > 0;
		fsd_region_put(object, region);
	}
	if (wanted)
		gx_env_cond_broadcast(object->env, &object->changed);
	fsd_object_unlock(object);
}

/* Locks the regions of [offset, offset + bytes), as many as fit; the bytes that they cover. */
static int span_lock(struct fsd_object *object, struct span *span, uint64_t offset, uint64_t bytes,
		     bool write, size_t *ret_bytes)
{
	uint64_t last = (offset + bytes - 1) / FSD_REGION_BYTES;

	gx_assert(bytes > 0);
	span->first = span->end = offset / FSD_REGION_BYTES;
	span->write = write;
	last = GX_MIN(last, span->first + FSD_SPAN_REGIONS - 1);
	fsd_object_lock(object);
	while (span->end <= last) {
		struct fsd_region *region = fsd_region_get(object, span->end);

		if (region == NULL) {
			fsd_object_unlock(object);
			span_unlock(object, span, false);
			return -ENOMEM;
		}
		region->users++;
		region_lock(object, region, write);
		span->regions[span->end++ - span->first] = region;
	}
	fsd_object_unlock(object);
	*ret_bytes = (size_t)GX_MIN(bytes, span->end * FSD_REGION_BYTES - offset);
	return 0;
}

/* -- blocks -------------------------------------------------------------------- */

/* A block with zeros behind the end. */
static int read_block(struct fsd_object *object, uint64_t number, uint8_t block[FSD_BLOCK_BYTES])
{
	ssize_t n = gx_env_pread(object->env, object->data_fd, block, FSD_BLOCK_BYTES,
				 number * FSD_BLOCK_BYTES);

	if (n < 0)
		return (int)n;
	memset(block + n, 0, FSD_BLOCK_BYTES - (size_t)n);
	return 0;
}

/*
 * A block that fits its checksum, its region being locked. What does not fit is read once more
 * before it counts (B7): memory or a cable may have been wrong, not the disk.
 */
static int read_verified(struct fsd_object *object, uint64_t number, uint8_t block[FSD_BLOCK_BYTES])
{
	for (unsigned attempt = 0; attempt < 2; attempt++) {
		uint64_t sum;
		int r = read_block(object, number, block);

		if (r == 0)
			r = fsd_sum_load(object->env, object->sum_fd, number, 1, &sum);
		if (r < 0)
			return r;
		if (fsd_sum_block(block) == sum)
			return 0;
	}
	fsd_object_lock(object);
	object->bad = true;
	fsd_object_unlock(object);
	return -EBADMSG;
}

/* -- reading ------------------------------------------------------------------- */

struct part {
	uint8_t *buf;
	size_t bytes;
	uint64_t offset;
};

/* The bytes of [offset, offset + bytes) in a block: where they begin in it and how many. */
static size_t part_in_block(uint64_t block, uint64_t offset, uint64_t bytes, size_t *ret_at)
{
	uint64_t base = block * FSD_BLOCK_BYTES;
	uint64_t from = GX_MAX(base, offset);

	*ret_at = (size_t)(from - base);
	return (size_t)(GX_MIN(base + FSD_BLOCK_BYTES, offset + bytes) - from);
}

/* The bytes are read already; puts right what the first look did not like, or what is no whole
 * block. */
static int check_block(struct fsd_object *object, const struct part *part, uint64_t number,
		       uint64_t sum)
{
	uint8_t block[FSD_BLOCK_BYTES];
	size_t at;
	size_t n = part_in_block(number, part->offset, part->bytes, &at);
	uint8_t *target = part->buf + (number * FSD_BLOCK_BYTES + at - part->offset);
	int r;

	if (GX_LIKELY(n == FSD_BLOCK_BYTES) && GX_LIKELY(fsd_sum_block(target) == sum))
		return 0;
	r = read_verified(object, number, block);
	if (r == 0)
		memcpy(target, block + at, n);
	return r;
}

/* Whole blocks come straight into the caller's memory and are hashed there. */
static int read_part(struct fsd_object *object, const struct part *part, struct gx_buf *ret_sums)
{
	uint64_t sums[FSD_SUM_BATCH];
	uint64_t end = fsd_blocks(part->offset + part->bytes);
	uint64_t first = part->offset / FSD_BLOCK_BYTES;
	uint64_t whole = fsd_blocks(part->offset);
	uint64_t whole_end = (part->offset + part->bytes) / FSD_BLOCK_BYTES;

	if (whole < whole_end) {
		uint8_t *target = part->buf + (whole * FSD_BLOCK_BYTES - part->offset);
		size_t bytes = (size_t)(whole_end - whole) * FSD_BLOCK_BYTES;
		ssize_t n = gx_env_pread(object->env, object->data_fd, target, bytes,
					 whole * FSD_BLOCK_BYTES);

		if (n < 0)
			return (int)n;
		memset(target + n, 0, bytes - (size_t)n);
	}
	while (first < end) {
		size_t count = (size_t)GX_MIN(end - first, (uint64_t)FSD_SUM_BATCH);
		int r = fsd_sum_load(object->env, object->sum_fd, first, count, sums);

		for (size_t i = 0; r == 0 && i < count; i++)
			r = check_block(object, part, first + i, sums[i]);
		if (r == 0 && ret_sums != NULL)
			r = gx_buf_append(ret_sums, sums, count * sizeof(sums[0]));
		if (r < 0)
			return r;
		first += count;
	}
	return 0;
}

ssize_t fsd_object_read(struct fsd_object *object, void *buf, size_t bytes, uint64_t offset,
			struct gx_buf *sums)
{
	struct part part = {.buf = buf, .offset = offset};
	struct span span;
	bool end = false;
	size_t done = 0;
	int r = 0;

	hold_shared(object);
	end = offset >= fsd_object_size(object);
	while (r == 0 && !end && done < bytes) {
		uint64_t size;

		r = span_lock(object, &span, part.offset, bytes - done, false, &part.bytes);
		if (r < 0)
			break;
		/* Now nobody makes the last block longer than what is read of it. */
		size = fsd_object_size(object);
		end = part.offset + part.bytes >= size;
		if (end)
			part.bytes = part.offset < size ? (size_t)(size - part.offset) : 0;
		if (part.bytes > 0)
			r = read_part(object, &part, sums);
		span_unlock(object, &span, false);
		done += part.bytes;
		part.buf += part.bytes;
		part.offset += part.bytes;
	}
	drop_shared(object);
	return r < 0 ? r : (ssize_t)done;
}

int fsd_object_sums(struct fsd_object *object, uint64_t first, size_t count, uint64_t *ret_sums)
{
	struct span span;
	int r = 0;

	if (first > FSD_OBJECT_BYTES_MAX / FSD_BLOCK_BYTES ||
	    count > FSD_OBJECT_BYTES_MAX / FSD_BLOCK_BYTES - first)
		return -EINVAL;
	hold_shared(object);
	while (r == 0 && count > 0) {
		size_t bytes;
		size_t n;

		r = span_lock(object, &span, first * FSD_BLOCK_BYTES,
			      (uint64_t)count * FSD_BLOCK_BYTES, false, &bytes);
		if (r < 0)
			break;
		n = bytes / FSD_BLOCK_BYTES;
		r = fsd_sum_load(object->env, object->sum_fd, first, n, ret_sums);
		span_unlock(object, &span, false);
		first += n;
		ret_sums += n;
		count -= n;
	}
	drop_shared(object);
	return r;
}

int fsd_object_seek(struct fsd_object *object, uint64_t offset, bool hole, uint64_t *ret_offset)
{
	uint64_t size;
	uint64_t found;
	int r;

	hold_shared(object);
	size = fsd_object_size(object);
	r = offset < size ? gx_env_seek(object->env, object->data_fd, offset, hole, &found)
			  : -ENXIO;
	drop_shared(object);
	if (r < 0)
		return r;
	if (!hole && found >= size)
		return -ENXIO;
	*ret_offset = GX_MIN(found, size);
	return 0;
}

/* -- changing ------------------------------------------------------------------ */

static bool is_want_of_space(int err)
{
	return err == -ENOSPC || err == -EDQUOT || err == -EFBIG;
}

/* Blocks of [offset, offset + bytes) that keep some of their bytes are as they should be. */
static int verify_edges(struct fsd_object *object, uint64_t offset, size_t bytes)
{
	uint8_t block[FSD_BLOCK_BYTES];
	uint64_t end = offset + bytes;
	int r = 0;

	if (offset % FSD_BLOCK_BYTES != 0)
		r = read_verified(object, offset / FSD_BLOCK_BYTES, block);
	if (r == 0 && end % FSD_BLOCK_BYTES != 0)
		r = read_verified(object, end / FSD_BLOCK_BYTES, block);
	return r;
}

/* Which regions of a span have settled blocks in [offset, ...) and no mark? */
static bool marks_wanted(struct fsd_object *object, const struct span *span, uint64_t offset,
			 bool ret_wanted[FSD_SPAN_REGIONS])
{
	bool any = false;

	fsd_object_lock(object);
	for (uint64_t number = span->first; number < span->end; number++) {
		size_t i = number - span->first;
		uint64_t from = GX_MAX(offset, number * FSD_REGION_BYTES);

		ret_wanted[i] = !span->regions[i]->marked &&
				from / FSD_BLOCK_BYTES * FSD_BLOCK_BYTES < object->settled_bytes;
		any = any || ret_wanted[i];
	}
	fsd_object_unlock(object);
	return any;
}

/* One sync for all regions of the span. */
static int span_mark(struct fsd_object *object, const struct span *span, uint64_t offset,
		     size_t bytes)
{
	bool wanted[FSD_SPAN_REGIONS];
	int r;

	if (GX_LIKELY(!marks_wanted(object, span, offset, wanted)) || FSD_BROKEN(FSD_STEP_MARK))
		return 0;
	r = verify_edges(object, offset, bytes);
	if (r < 0)
		return r;
	for (uint64_t number = span->first; r == 0 && number < span->end; number++)
		if (wanted[number - span->first])
			r = fsd_sum_mark(object->env, object->sum_fd, number, true);
	if (r < 0)
		return is_want_of_space(r) ? r : fsd_object_fall_sick(object, r);
	if (!FSD_BROKEN(FSD_STEP_MARK_SYNC))
		r = fsd_object_sync_sum(object);
	if (r < 0)
		return r;
	fsd_object_lock(object);
	for (size_t i = 0; i < span->end - span->first; i++)
		span->regions[i]->marked = span->regions[i]->marked || wanted[i];
	fsd_object_unlock(object);
	return 0;
}

/* A change of bytes in one go; data NULL: zeros. */
struct edit {
	const uint8_t *data;
	size_t bytes;
	uint64_t offset;
	uint64_t first; /* block */
	size_t count;   /* of blocks, at most FSD_SUM_BATCH */
	uint64_t old_sums[FSD_SUM_BATCH];
	uint64_t new_sums[FSD_SUM_BATCH];
};

static int sum_after(struct fsd_object *object, const struct edit *edit, uint64_t number,
		     uint64_t *ret_sum)
{
	uint8_t block[FSD_BLOCK_BYTES];
	size_t at;
	size_t n = part_in_block(number, edit->offset, edit->bytes, &at);
	const uint8_t *data = edit->data;
	int r;

	if (data != NULL)
		data += number * FSD_BLOCK_BYTES + at - edit->offset;
	if (GX_LIKELY(n == FSD_BLOCK_BYTES)) {
		*ret_sum = data != NULL ? fsd_sum_block(data) : fsd_sum_zeros();
		return 0;
	}
	/* What stays must be right before it gets a new checksum. */
	r = read_verified(object, number, block);
	if (r < 0)
		return r;
	if (data != NULL)
		memcpy(block + at, data, n);
	else
		memset(block + at, 0, n);
	*ret_sum = fsd_sum_block(block);
	return 0;
}

/* Old and new checksums of all blocks; changes nothing yet. */
static int edit_init(struct fsd_object *object, struct edit *edit)
{
	int r = 0;

	edit->first = edit->offset / FSD_BLOCK_BYTES;
	edit->count = (size_t)(fsd_blocks(edit->offset + edit->bytes) - edit->first);
	if (edit->first * FSD_BLOCK_BYTES < fsd_object_size(object))
		r = fsd_sum_load(object->env, object->sum_fd, edit->first, edit->count,
				 edit->old_sums);
	else
		for (size_t i = 0; i < edit->count; i++)
			edit->old_sums[i] = fsd_sum_zeros();
	for (size_t i = 0; r == 0 && i < edit->count; i++)
		r = sum_after(object, edit, edit->first + i, &edit->new_sums[i]);
	return r;
}

static int write_zeros(struct fsd_object *object, uint64_t offset, size_t bytes)
{
	static const uint8_t zeros[ZEROS_BYTES];

	while (bytes > 0) {
		size_t n = GX_MIN(bytes, sizeof(zeros));
		int r = gx_env_pwrite(object->env, object->data_fd, zeros, n, offset);

		if (r < 0)
			return r;
		offset += n;
		bytes -= n;
	}
	return 0;
}

static int put_bytes(struct fsd_object *object, const struct edit *edit)
{
	int r;

	if (edit->data != NULL)
		return gx_env_pwrite(object->env, object->data_fd, edit->data, edit->bytes,
				     edit->offset);
	r = gx_env_fallocate(object->env, object->data_fd,
			     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, edit->offset, edit->bytes);
	return r == -EOPNOTSUPP ? write_zeros(object, edit->offset, edit->bytes) : r;
}

/*
 * A change failed half way. Each block is as it was, or as it should be, or (where the write
 * stopped) in between; it gets the checksum that fits. What fits already is not written: there may
 * be no space for it.
 */
static int repair(struct fsd_object *object, const struct edit *edit)
{
	uint8_t block[FSD_BLOCK_BYTES];
	bool stopped = false;

	for (size_t i = 0; i < edit->count; i++) {
		uint64_t number = edit->first + i;
		uint64_t stored;
		uint64_t sum;
		int r = read_block(object, number, block);

		if (r == 0)
			r = fsd_sum_load(object->env, object->sum_fd, number, 1, &stored);
		if (r < 0)
			return r;
		sum = fsd_sum_block(block);
		/* Only the first that is not new may be in between; another one is damaged. */
		if (sum != edit->new_sums[i] && stopped)
			sum = edit->old_sums[i];
		stopped = stopped || sum != edit->new_sums[i];
		if (sum != stored)
			r = fsd_sum_store(object->env, object->sum_fd, number, 1, &sum);
		if (r < 0)
			return r;
	}
	return 0;
}

static int change_part(struct fsd_object *object, struct edit *edit)
{
	int r = edit_init(object, edit);

	if (r < 0)
		return r;
	/* Zeros over zeros: a hole in the sum file stays one. */
	if (edit->data != NULL ||
	    memcmp(edit->old_sums, edit->new_sums, edit->count * sizeof(edit->new_sums[0])) != 0)
		r = fsd_sum_store(object->env, object->sum_fd, edit->first, edit->count,
				  edit->new_sums);
	if (r == 0)
		r = put_bytes(object, edit);
	if (GX_UNLIKELY(r < 0)) {
		if (repair(object, edit) < 0 || !is_want_of_space(r))
			return fsd_object_fall_sick(object, r);
		return r;
	}
	fsd_object_lock(object);
	if (edit->data != NULL && edit->offset + edit->bytes > object->size_bytes)
		object->size_bytes = edit->offset + edit->bytes;
	fsd_object_unlock(object);
	return 0;
}

/* In parts whose checksums fit into a batch. */
static int change_span(struct fsd_object *object, const struct span *span, const uint8_t *data,
		       size_t bytes, uint64_t offset)
{
	struct edit edit;
	int r = span_mark(object, span, offset, bytes);

	while (r == 0 && bytes > 0) {
		uint64_t batch_end = (offset / FSD_BLOCK_BYTES + FSD_SUM_BATCH) * FSD_BLOCK_BYTES;

		edit.data = data;
		edit.offset = offset;
		edit.bytes = (size_t)GX_MIN((uint64_t)bytes, batch_end - offset);
		r = change_part(object, &edit);
		data = data != NULL ? data + edit.bytes : NULL;
		offset += edit.bytes;
		bytes -= edit.bytes;
	}
	return r;
}

static int change(struct fsd_object *object, const uint8_t *data, uint64_t bytes, uint64_t offset)
{
	struct span span;
	int r = fsd_object_sick(object);

	while (r == 0 && bytes > 0) {
		size_t n;

		r = span_lock(object, &span, offset, bytes, true, &n);
		if (r < 0)
			break;
		r = change_span(object, &span, data, n, offset);
		span_unlock(object, &span, true);
		data = data != NULL ? data + n : NULL;
		offset += n;
		bytes -= n;
	}
	return r;
}

/* -- size ---------------------------------------------------------------------- */

/* No mark may stay behind the end: blocks there are dirty without, and it would never be cleared.
 */
static int clear_marks_from(struct fsd_object *object, uint64_t first)
{
	struct fsd_region *region;
	struct fsd_region *tmp;
	int r = 0;

	fsd_object_lock(object);
	HASH_ITER (hh, object->regions, region, tmp) {
		if (region->number < first)
			continue;
		if (r == 0 && region->marked)
			r = fsd_sum_mark(object->env, object->sum_fd, region->number, false);
		region->marked = false;
		region->dirty = false;
		fsd_region_put(object, region);
	}
	fsd_object_unlock(object);
	return r;
}

/*
 * The settled size is on disk before the file is shorter than it was. It becomes lower than the new
 * size, by a block at most: where the two are the same an opening takes the size for synced.
 */
static int lower_settled(struct fsd_object *object, uint64_t bytes)
{
	uint64_t whole = bytes > 0 ? (bytes - 1) / FSD_BLOCK_BYTES * FSD_BLOCK_BYTES : 0;
	bool needed;
	int r = 0;

	fsd_object_lock(object);
	object->synced_bytes = GX_MIN(object->synced_bytes, whole);
	object->snapshot_bytes = GX_MIN(object->snapshot_bytes, whole);
	object->limit_bytes = whole;
	needed = whole < object->settled_bytes && !FSD_BROKEN(FSD_STEP_TRUNCATE_LOWER);
	if (needed) {
		object->settled_bytes = whole;
		r = fsd_object_put_header(object);
	}
	fsd_object_unlock(object);
	if (r < 0)
		return fsd_object_fall_sick(object, r);
	return needed && !FSD_BROKEN(FSD_STEP_TRUNCATE_SYNC) ? fsd_object_sync_sum(object) : 0;
}

static void note_size(struct fsd_object *object, uint64_t bytes)
{
	fsd_object_lock(object);
	object->size_bytes = bytes;
	object->resized = true;
	fsd_object_unlock(object);
}

/* The data file, then the sum file. The block with the new end (count 1) gets its checksum before.
 */
static int cut(struct fsd_object *object, const struct edit *edit, uint64_t bytes)
{
	struct gx_env *env = object->env;
	int r = fsd_sum_store(env, object->sum_fd, edit->first, edit->count, edit->new_sums);

	if (r == 0)
		r = clear_marks_from(object, (bytes + FSD_REGION_BYTES - 1) / FSD_REGION_BYTES);
	if (r == 0)
		r = gx_env_ftruncate(env, object->data_fd, bytes);
	if (r < 0) {
		/* It is sick now, but should be readable. */
		GX_IGNORE(fsd_sum_store(env, object->sum_fd, edit->first, edit->count,
					edit->old_sums));
		return fsd_object_fall_sick(object, r);
	}
	note_size(object, bytes);
	if (!FSD_BROKEN(FSD_STEP_CUT_SUMS))
		r = gx_env_ftruncate(env, object->sum_fd, fsd_sum_file_bytes(fsd_blocks(bytes)));
	return r < 0 ? fsd_object_fall_sick(object, r) : 0;
}

/*
 * The block with the new end gets zeros behind it. Its region is locked, so that no sync or settle
 * takes it for unchanged. For whoever holds the object alone.
 */
static int shrink(struct fsd_object *object, uint64_t bytes)
{
	struct edit edit = {.offset = bytes, .bytes = FSD_BLOCK_BYTES - bytes % FSD_BLOCK_BYTES};
	bool inside = bytes % FSD_BLOCK_BYTES != 0;
	struct span span;
	size_t n;
	int r = inside ? span_lock(object, &span, bytes, 1, true, &n) : 0;

	if (r < 0)
		return r;
	if (inside)
		r = edit_init(object, &edit);
	if (r == 0)
		r = lower_settled(object, bytes);
	if (r == 0)
		r = cut(object, &edit, bytes);
	fsd_object_lock(object);
	object->limit_bytes = UINT64_MAX;
	fsd_object_unlock(object);
	if (inside)
		span_unlock(object, &span, true);
	return r;
}

static int set_size(struct fsd_object *object, uint64_t bytes)
{
	uint64_t size = fsd_object_size(object);
	int r = fsd_object_sick(object);

	if (r < 0 || bytes == size)
		return r;
	if (bytes < size)
		return shrink(object, bytes);
	r = gx_env_ftruncate(object->env, object->data_fd, bytes);
	if (r == 0)
		note_size(object, bytes);
	return r;
}

/* -- the calls ------------------------------------------------------------------ */

/* What a failed write has left behind the end must not show when the file grows. */
static void cut_leftover(struct fsd_object *object)
{
	struct stat st;
	uint64_t size = fsd_object_size(object);
	int r = gx_env_fstat(object->env, object->data_fd, &st);

	if (r == 0 && (uint64_t)st.st_size > size)
		r = shrink(object, size);
	if (r < 0)
		GX_IGNORE(fsd_object_fall_sick(object, r));
}

int fsd_object_write(struct fsd_object *object, const void *buf, size_t bytes, uint64_t offset)
{
	int r;

	if (offset > FSD_OBJECT_BYTES_MAX || bytes > FSD_OBJECT_BYTES_MAX - offset)
		return -EFBIG;
	hold_shared(object);
	r = change(object, buf, bytes, offset);
	drop_shared(object);
	if (GX_UNLIKELY(r < 0 && fsd_object_sick(object) == 0)) {
		hold_alone(object);
		cut_leftover(object);
		drop_alone(object);
	}
	return r;
}

int fsd_object_punch(struct fsd_object *object, uint64_t offset, uint64_t bytes)
{
	uint64_t end;
	int r = 0;

	hold_shared(object);
	/* Of the last block all, if asked for: a filesystem gives back whole ones. */
	end = fsd_blocks(fsd_object_size(object)) * FSD_BLOCK_BYTES;
	if (offset < end)
		r = change(object, NULL, GX_MIN(bytes, end - offset), offset);
	drop_shared(object);
	return r;
}

int fsd_object_truncate(struct fsd_object *object, uint64_t bytes)
{
	int r;

	if (bytes > FSD_OBJECT_BYTES_MAX)
		return -EFBIG;
	hold_alone(object);
	r = set_size(object, bytes);
	drop_alone(object);
	return r;
}

/*
 * Keeping the size: where there was a hole there are zeros now, whose checksums are right already.
 * Only then does it grow, by what needs no more space.
 */
int fsd_object_allocate(struct fsd_object *object, uint64_t offset, uint64_t bytes, bool grow)
{
	int r;

	if (bytes == 0)
		return -EINVAL;
	if (offset > FSD_OBJECT_BYTES_MAX || bytes > FSD_OBJECT_BYTES_MAX - offset)
		return -EFBIG;
	hold_alone(object);
	r = fsd_object_sick(object);
	if (r == 0)
		r = gx_env_fallocate(object->env, object->data_fd, FALLOC_FL_KEEP_SIZE, offset,
				     bytes);
	/* Who has made room must not hear of a full disk because of the checksums (rule B6). */
	if (r == 0)
		r = fsd_sum_room(object->env, object->sum_fd, offset / FSD_BLOCK_BYTES,
				 (offset + bytes - 1) / FSD_BLOCK_BYTES - offset / FSD_BLOCK_BYTES +
					 1);
	if (r == 0 && grow && offset + bytes > fsd_object_size(object))
		r = set_size(object, offset + bytes);
	drop_alone(object);
	return r;
}

int fsd_object_append(struct fsd_object *object, const void *buf, size_t bytes,
		      uint64_t *ret_offset)
{
	return fsd_object_append_max(object, buf, bytes, FSD_OBJECT_BYTES_MAX, ret_offset);
}

int fsd_object_append_max(struct fsd_object *object, const void *buf, size_t bytes,
			  uint64_t size_max, uint64_t *ret_offset)
{
	uint64_t offset;
	int r = -EFBIG;

	size_max = GX_MIN(size_max, FSD_OBJECT_BYTES_MAX);
	hold_alone(object);
	offset = fsd_object_size(object);
	if (offset <= size_max && bytes <= size_max - offset)
		r = change(object, buf, bytes, offset);
	if (r == 0)
		*ret_offset = offset;
	if (GX_UNLIKELY(r < 0 && fsd_object_sick(object) == 0)) {
		/* If this fails it is sick, and the first error is the one to tell. */
		GX_IGNORE(set_size(object, offset));
		cut_leftover(object);
	}
	drop_alone(object);
	return r;
}
