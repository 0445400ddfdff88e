/*
 * Reading through a descriptor that a node on this machine handed out. The bytes come from the page
 * cache, the checksums from the node, many at a time; each block is hashed the first time (rule
 * B8). A block that does not fit is asked for in the ordinary way: the node proves it, or another
 * has it.
 */
#include "client/fs/gfd_impl.h"
#include "common/gx_num.h"

/* -- checksums --------------------------------------------------------------------------------- */

static void batch_free(struct gfd_file *file, struct gfd_batch *batch)
{
	HASH_DEL(file->batches, batch);
	DL_DELETE(file->batch_list, batch);
	file->batch_count--;
	free(batch);
}

void gfd_batches_drop(struct gfd_file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t size = (uint64_t)GFD_BATCH_BLOCKS * GFD_BLOCK_BYTES;
	uint64_t end = bytes > UINT64_MAX - offset ? UINT64_MAX : offset + bytes;
	struct gfd_batch *batch, *next;

	gfd_file_lock(file);
	DL_FOREACH_SAFE (file->batch_list, batch, next)
		if (batch->index * size < end && (batch->index + 1) * size > offset)
			batch_free(file, batch);
	gfd_file_unlock(file);
}

/* Under the lock. */
static struct gfd_batch *batch_find(struct gfd_file *file, uint64_t index)
{
	struct gfd_batch *batch;

	HASH_FIND(hh, file->batches, &index, sizeof(index), batch);
	return batch;
}

static int batch_load(struct gfd_file *file, const struct gfc_place *place, uint64_t index,
		      struct gfd_batch **ret_batch)
{
	PbData__DataSumsRequest request = PB_DATA__DATA_SUMS_REQUEST__INIT;
	struct gfd_batch *batch = calloc(1, sizeof(*batch));
	struct rpc_call_options options = {.deadline_ns = gfd_deadline(file->gfd),
					   .silent_ns = GFD_SILENT_NS,
					   .fail_fast = true};
	struct gfd_link *link;
	struct rpc_reply reply;
	int r;

	if (!batch)
		return -ENOMEM;
	r = gfd_link_get(file->gfd, place->node, &link);
	if (r < 0) {
		free(batch);
		return r;
	}
	batch->index = index;
	options.payload_in = batch->sums;
	options.payload_in_bytes = sizeof(batch->sums);
	request.ticket =
		(ProtobufCBinaryData){place->ticket_bytes, (uint8_t *)(uintptr_t)place->ticket};
	request.first = index * GFD_BATCH_BLOCKS;
	request.count = GFD_BATCH_BLOCKS;
	r = rpc_client_call(link->client, rpc_method_get(RPC_INDEX_DATA_SUMS), &request.base,
			    &options, &reply);
	if (r == 0)
		batch->count = (uint32_t)(reply.payload_bytes / 8);
	rpc_reply_fini(&reply);
	gfd_link_put(file->gfd, link);
	if (r < 0)
		free(batch);
	else
		*ret_batch = batch;
	return r;
}

/* Under the lock. Two may have loaded it. */
static int batch_add_take(struct gfd_file *file, struct gfd_batch *batch)
{
	bool gx_hash_failed = false;

	if (batch_find(file, batch->index)) {
		free(batch);
		return 0;
	}
	while (file->batch_count >= GFD_BATCHES_MAX)
		batch_free(file, file->batch_list);
	HASH_ADD(hh, file->batches, index, sizeof(batch->index), batch);
	if (gx_hash_failed) {
		free(batch);
		return -ENOMEM;
	}
	DL_APPEND(file->batch_list, batch);
	file->batch_count++;
	return 0;
}

/* -- the descriptor ---------------------------------------------------------------------------- */

static int fetch_descriptor(struct gfd_file *file, const struct gfc_place *place, int *ret_fd)
{
	PbData__DataDescriptorRequest request = PB_DATA__DATA_DESCRIPTOR_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = gfd_deadline(file->gfd),
					   .silent_ns = GFD_SILENT_NS,
					   .fail_fast = true};
	struct gfd_link *link;
	struct rpc_reply reply;
	int r = gfd_link_get(file->gfd, place->node, &link);

	if (r < 0)
		return r;
	if (!link->near) {
		gfd_link_put(file->gfd, link);
		return -EOPNOTSUPP;
	}
	request.ticket =
		(ProtobufCBinaryData){place->ticket_bytes, (uint8_t *)(uintptr_t)place->ticket};
	r = rpc_client_call(link->client, rpc_method_get(RPC_INDEX_DATA_DESCRIPTOR), &request.base,
			    &options, &reply);
	if (r == 0 && reply.descriptor < 0)
		r = -EOPNOTSUPP;
	if (r == 0) {
		*ret_fd = reply.descriptor;
		reply.descriptor = -1;
	}
	rpc_reply_fini(&reply);
	gfd_link_put(file->gfd, link);
	return r;
}

/* Which place is on this machine? */
static ssize_t near_place(struct gfd_file *file)
{
	for (size_t i = 0; i < file->place_count; i++) {
		const struct gfc_place *place = &file->places[i].place;

		if (file->places[i].bad || gfd_is_suspect(file->gfd, place->node))
			continue;
		if (file->gfd->host[0] == '\0' || strcmp(place->host, file->gfd->host) == 0)
			return (ssize_t)i;
	}
	return -1;
}

/* A descriptor and whose it is; -EOPNOTSUPP. */
static int need_descriptor(struct gfd_file *file, size_t *ret_place, int *ret_fd)
{
	ssize_t i = near_place(file);
	int fd = -1, r;
	bool none;

	gfd_file_lock(file);
	none = file->no_descriptor || i < 0;
	*ret_fd = file->descriptor;
	gfd_file_unlock(file);
	if (none)
		return -EOPNOTSUPP;
	*ret_place = (size_t)i;
	if (*ret_fd >= 0)
		return 0;
	r = fetch_descriptor(file, &file->places[i].place, &fd);
	if (gfd_is_unreachable(r))
		gfd_place_failed(file, (size_t)i, r);
	gfd_file_lock(file);
	if (r < 0) {
		/* Not a second time, unless it is only away. */
		file->no_descriptor = !gfd_is_unreachable(r);
	} else if (file->descriptor < 0) {
		file->descriptor = fd;
		fd = -1;
	}
	*ret_fd = file->descriptor;
	gfd_file_unlock(file);
	if (fd >= 0)
		gx_env_close(file->gfd->env, fd);
	return *ret_fd >= 0 ? 0 : -EOPNOTSUPP;
}

/* -- reading ----------------------------------------------------------------------------------- */

#define RUN_BLOCKS (GFD_PIECE_BYTES / GFD_BLOCK_BYTES)

/* Under the lock: is the block known to be good? */
static bool is_verified(const struct gfd_batch *batch, uint64_t block)
{
	uint32_t i = (uint32_t)(block % GFD_BATCH_BLOCKS);

	return i < batch->count && ((batch->verified[i / 64] >> (i % 64)) & 1);
}

/* Under the lock. 1: all are good; 0: not all; -ENODATA: *ret_missing is a batch we do not have. */
static int all_verified(struct gfd_file *file, uint64_t first, uint64_t last, uint64_t *ret_missing)
{
	struct gfd_batch *batch = NULL;
	int all = 1;

	for (uint64_t b = first; b <= last; b++) {
		uint64_t index = b / GFD_BATCH_BLOCKS;

		if (!batch || batch->index != index)
			batch = batch_find(file, index);
		if (!batch) {
			*ret_missing = index;
			return -ENODATA;
		}
		if (!is_verified(batch, b))
			all = 0;
	}
	return all;
}

/* The same, with checksums that were missing. */
static int need_sums(struct gfd_file *file, const struct gfc_place *place, uint64_t first,
		     uint64_t last)
{
	/* Two batches at most are of interest, but others may push them out meanwhile. */
	for (unsigned tries = 0; tries < 8; tries++) {
		struct gfd_batch *batch;
		uint64_t missing = 0;
		int r;

		gfd_file_lock(file);
		r = all_verified(file, first, last, &missing);
		gfd_file_unlock(file);
		if (r != -ENODATA)
			return r;
		r = batch_load(file, place, missing, &batch);
		if (r < 0)
			return r;
		gfd_file_lock(file);
		r = batch_add_take(file, batch);
		gfd_file_unlock(file);
		if (r < 0)
			return r;
	}
	return 0;
}

/* A run of blocks: their checksums, and those that need not be looked at. */
struct run {
	uint64_t sums[RUN_BLOCKS];
	bool good[RUN_BLOCKS];
};

static bool run_get(struct gfd_file *file, uint64_t first, size_t count, struct run *run)
{
	struct gfd_batch *batch = NULL;
	bool known = true;

	gfd_file_lock(file);
	for (size_t i = 0; i < count && known; i++) {
		uint64_t index = (first + i) / GFD_BATCH_BLOCKS;
		uint32_t at = (uint32_t)((first + i) % GFD_BATCH_BLOCKS);

		if (!batch || batch->index != index)
			batch = batch_find(file, index);
		known = batch && at < batch->count;
		if (known) {
			run->sums[i] = gx_get_le64(&batch->sums[at]);
			run->good[i] = is_verified(batch, first + i);
		}
	}
	gfd_file_unlock(file);
	return known;
}

static void run_verified(struct gfd_file *file, uint64_t first, size_t count)
{
	struct gfd_batch *batch = NULL;

	gfd_file_lock(file);
	for (uint64_t b = first; b < first + count; b++) {
		if (!batch || batch->index != b / GFD_BATCH_BLOCKS)
			batch = batch_find(file, b / GFD_BATCH_BLOCKS);
		if (batch)
			batch->verified[b % GFD_BATCH_BLOCKS / 64] |= UINT64_C(1) << (b % 64);
	}
	gfd_file_unlock(file);
}

/* Whole blocks in `data`, of one piece at most; the last may be short. -EBADMSG: one does not fit.
 */
static int verify_blocks(struct gfd_file *file, const uint8_t *data, size_t bytes, uint64_t first)
{
	size_t count = (bytes + GFD_BLOCK_BYTES - 1) / GFD_BLOCK_BYTES;
	uint8_t last[GFD_BLOCK_BYTES];
	uint64_t hashed = 0;
	struct run run;

	if (!run_get(file, first, count, &run))
		return -EBADMSG;
	for (size_t i = 0; i < count; i++) {
		size_t part = GX_MIN(bytes - i * GFD_BLOCK_BYTES, GFD_BLOCK_BYTES);
		const uint8_t *p = data + i * GFD_BLOCK_BYTES;

		if (run.good[i])
			continue;
		if (part < GFD_BLOCK_BYTES) {
			memcpy(last, p, part);
			memset(last + part, 0, GFD_BLOCK_BYTES - part);
			p = last;
		}
		if (gx_block_sum(p) != run.sums[i])
			return -EBADMSG;
		hashed++;
	}
	run_verified(file, first, count);
	atomic_fetch_add(&file->gfd->verified, hashed);
	return 0;
}

/* Whole blocks, from the descriptor or, if they do not fit, from whoever has them. */
static ssize_t read_whole(struct gfd_file *file, int fd, uint8_t *buf, size_t whole,
			  uint64_t offset)
{
	ssize_t n = gx_env_pread(file->gfd->env, fd, buf, whole, offset);

	if (n == (ssize_t)GX_MIN(whole, file->size - offset) &&
	    verify_blocks(file, buf, (size_t)n, offset / GFD_BLOCK_BYTES) == 0)
		return n;
	atomic_fetch_add(&file->gfd->damaged, 1);
	return gfd_read_blocks(file, buf, whole, offset, 0);
}

/* Into the caller's memory if it takes whole blocks, else through a buffer. */
static ssize_t read_hashed(struct gfd_file *file, int fd, uint8_t *buf, size_t bytes,
			   uint64_t offset)
{
	size_t skip = offset % GFD_BLOCK_BYTES, whole;
	uint8_t *data;
	ssize_t n;

	if (skip == 0 && bytes >= GFD_BLOCK_BYTES)
		return read_whole(file, fd, buf, bytes / GFD_BLOCK_BYTES * GFD_BLOCK_BYTES, offset);
	bytes = GX_MIN(bytes, GFD_PIECE_BYTES - skip);
	/* To the next block, or, if that is less, just what is wanted. */
	if (skip + bytes > GFD_BLOCK_BYTES && (skip + bytes) % GFD_BLOCK_BYTES == 0)
		bytes = GFD_BLOCK_BYTES - skip;
	whole = (skip + bytes + GFD_BLOCK_BYTES - 1) / GFD_BLOCK_BYTES * GFD_BLOCK_BYTES;
	data = gfd_buffer_get(file->gfd);
	if (!data)
		return -ENOMEM;
	n = read_whole(file, fd, data, whole, offset - skip);
	if (n >= 0) {
		n = (size_t)n > skip ? (ssize_t)GX_MIN((size_t)n - skip, bytes) : 0;
		memcpy(buf, data + skip, (size_t)n);
	}
	gfd_buffer_put(file->gfd, data);
	return n;
}

/*
 * Nothing is hashed any more; so it must be sure that nobody has begun to write meanwhile, while
 * this process slept, say.
 */
static ssize_t read_verified(struct gfd_file *file, int fd, uint8_t *buf, size_t bytes,
			     uint64_t offset)
{
	ssize_t n = gx_env_pread(file->gfd->env, fd, buf, bytes, offset);
	bool cached;

	return n >= 0 && !(gfd_has_lease(file, &cached) && cached) ? -ESTALE : n;
}

/* Not through this descriptor, as long as this lease lasts. */
static void give_up(struct gfd_file *file)
{
	gfd_file_lock(file);
	file->no_descriptor = true;
	gfd_file_unlock(file);
}

/* bytes > 0, and all below the end of the file. */
ssize_t gfd_read_near(struct gfd_file *file, uint8_t *buf, size_t bytes, uint64_t offset)
{
	uint64_t first = offset / GFD_BLOCK_BYTES, last;
	size_t place;
	ssize_t n;
	int fd, r = need_descriptor(file, &place, &fd);

	if (r < 0)
		return r;
	/* A piece at most, from its blocks' beginning. */
	bytes = GX_MIN(bytes, GFD_PIECE_BYTES - (size_t)(offset % GFD_BLOCK_BYTES));
	last = (offset + bytes - 1) / GFD_BLOCK_BYTES;
	r = need_sums(file, &file->places[place].place, first, last);
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		/* Others may do better. */
		if (gfd_is_unreachable(r))
			gfd_place_failed(file, place, r);
		give_up(file);
		return -EOPNOTSUPP;
	}
	n = r > 0 ? read_verified(file, fd, buf, bytes, offset)
		  : read_hashed(file, fd, buf, bytes, offset);
	if (n > 0)
		atomic_fetch_add(&file->gfd->read_local, (uint64_t)n);
	return n;
}

#define QUICK_BLOCKS 32u

/* Under the lock: nobody is in the way, and nothing has to be asked, sent or hashed. */
static bool is_quick(struct gfd_file *file, size_t bytes, uint64_t offset)
{
	uint64_t missing;

	if (file->alone || file->asked != 0 || file->descriptor < 0 || file->no_descriptor ||
	    file->distrust || (file->mode != GFC_MODE_READ && file->mode != GFC_MODE_EXCLUSIVE) ||
	    gfd_holds(file) || (file->growing && !file->based))
		return false;
	if (bytes > QUICK_BLOCKS * GFD_BLOCK_BYTES || offset >= file->size ||
	    bytes > file->size - offset)
		return false;
	return all_verified(file, offset / GFD_BLOCK_BYTES, (offset + bytes - 1) / GFD_BLOCK_BYTES,
			    &missing) > 0;
}

/*
 * A read of verified blocks costs little more than a pread(): two turns of one lock, and the clock,
 * before and after, since who slept in between may have read what somebody else was writing.
 */
ssize_t gfd_read_quick(struct gfd_file *file, uint8_t *buf, size_t bytes, uint64_t offset)
{
	struct gfc *gfc = file->gfd->gfc;
	ssize_t n = -EAGAIN;
	bool quick, asked;
	int fd;

	if (!gfc_trusted(gfc))
		return -EAGAIN;
	gfd_file_lock(file);
	quick = is_quick(file, bytes, offset);
	if (quick) {
		file->readers++;
		file->next_offset = offset + bytes;
		fd = file->descriptor;
	}
	gfd_file_unlock(file);
	if (!quick)
		return -EAGAIN;
	n = gx_env_pread(file->gfd->env, fd, buf, bytes, offset);
	gfd_file_lock(file);
	if (n != (ssize_t)bytes || file->distrust || !gfc_trusted(gfc))
		n = -EAGAIN;
	asked = gfd_end_locked(file, false);
	gfd_file_unlock(file);
	if (asked)
		gfd_activate(file);
	if (n > 0)
		atomic_fetch_add(&file->gfd->read_local, (uint64_t)n);
	return n;
}
