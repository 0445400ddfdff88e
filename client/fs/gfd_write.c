/*
 * What changes a file, wherever its bytes are, and its growing out of metad.
 *
 * Without a lease the content may be metad's: then metad is asked to do it, and says -EFBIG if it
 * cannot. A file grows out of metad under a lease to write: the inline content goes into the object
 * first, then whatever was wanted, and the next report says that the object is the truth (N10).
 */
#include "client/fs/gfd_impl.h"
#include "common/gx_broken.h"
#include <assert.h>

#define SHARED_BYTES (4u * 1024 * 1024) /* of one request under a shared lease */

enum { ROOM_HOLE = 1, ROOM_GROW = 2, ROOM_KEEP = 3 };

static_assert(GFD_APPEND_MAX <= SHARED_BYTES, "an append is one request");

/* -- growing ----------------------------------------------------------------------------------- */

/* Is all of it ours, and did we never sync it? Then the object need not be on disk first. */
static bool is_fresh(struct gfd_file *file, const struct gfc_attr *attr)
{
	if (!file->fresh)
		return false;
	return attr->size == 0 || (attr->version == file->fresh_version &&
				   gfc_syncs(file->gfd->gfc) == file->fresh_syncs);
}

int gfd_put_base(struct gfd_file *file, struct gfc_open *open)
{
	GX_AUTOFREE uint8_t *content = malloc(GX_INLINE_MAX);
	struct gfc_attr attr;
	ssize_t n;
	int r = 0;

	if (!content)
		return gfc_fail(-ENOMEM, "out of memory");
	n = gfc_read(file->gfd->gfc, open, content, GX_INLINE_MAX, 0, &attr);
	if (n < 0)
		return (int)n;
	if (attr.size != (uint64_t)n)
		return gfc_fail(-EPROTO, "metad keeps a file of %llu bytes",
				(unsigned long long)attr.size);
	gfd_file_lock(file);
	file->fresh = is_fresh(file, &attr);
	file->size = attr.size;
	file->based = true;
	gfd_file_unlock(file);
	if (n > 0)
		r = gfd_put(file, content, (size_t)n, 0);
	/* It is the first, and less than a piece. */
	for (struct gfd_op *op = file->dirty; n > 0 && op; op = op->next)
		op->base = op->base || op->offset == 0;
	file->spoiled = r < 0;
	return r;
}

/* -- as long as it is metad's ------------------------------------------------------------------ */

/* Alone: metad may have the bytes, and we have no lease. */
static bool may_be_inline(const struct gfd_file *file)
{
	return file->mode == GFC_MODE_NONE && file->is_inline;
}

/* A change of ours has been done in metad. */
static void inline_changed(struct gfd_file *file, const struct gfc_attr *attr)
{
	gfd_file_lock(file);
	file->size = attr->size;
	file->fresh_version = attr->version;
	file->fresh_syncs = gfc_syncs(file->gfd->gfc);
	gfd_file_unlock(file);
}

/* These return -EFBIG if it is not metad's work, and nothing has happened. */

static int inline_write(struct gfd_file *file, struct gfc_open *open, const struct gfc_write *write,
			uint64_t *ret_offset)
{
	uint64_t before = file->fresh_version, syncs = gfc_syncs(file->gfd->gfc);
	struct gfc_attr attr;
	int r;

	if (write->bytes > GX_INLINE_MAX ||
	    (!write->append && write->offset > GX_INLINE_MAX - write->bytes))
		return -EFBIG;
	r = gfc_write(file->gfd->gfc, open, write, ret_offset, &attr);
	if (r < 0)
		return r;
	/* Somebody else has been there, or we have synced: growing will ask for a sync. */
	if ((attr.version != before + 1 && !(write->within && attr.version == before)) ||
	    syncs != file->fresh_syncs)
		file->fresh = false;
	inline_changed(file, &attr);
	return 0;
}

static int inline_resize(struct gfd_file *file, struct gfc_open *open, uint64_t size)
{
	struct gfc_change change = {.mask = GFC_SET_SIZE, .size = size};
	struct gfc_attr attr;
	int r;

	if (size > GX_INLINE_MAX)
		return -EFBIG;
	r = gfc_setattr(file->gfd->gfc, gfc_open_ref(open), open, &change, &attr);
	if (r < 0)
		return r;
	if (!(attr.flags & GFC_ATTR_INLINE))
		return -EFBIG;
	file->fresh = size == 0;
	inline_changed(file, &attr);
	return 0;
}

/*
 * Not by Getattr: what another client holds back is not in its answer if that client is slow (rule
 * N12), and of that it would be as if it had never been written. A Read waits for it.
 */
static int inline_attr(struct gfd_file *file, struct gfc_open *open, struct gfc_attr *ret_attr)
{
	return (int)gfc_read(file->gfd->gfc, open, NULL, 0, 0, ret_attr);
}

/* In one step: others may write to it and cut it at the same time. */
static int inline_punch(struct gfd_file *file, struct gfc_open *open, uint64_t offset,
			uint64_t bytes)
{
	static const uint8_t zeros[GX_INLINE_MAX];
	uint64_t from = GX_MIN(offset, (uint64_t)GX_INLINE_MAX);
	struct gfc_write write = {.data = zeros,
				  .bytes = (size_t)GX_MIN(bytes, GX_INLINE_MAX - from),
				  .offset = from,
				  .within = true};

	return inline_write(file, open, &write, NULL);
}

static int inline_allocate(struct gfd_file *file, struct gfc_open *open, uint64_t end,
			   bool keep_size)
{
	struct gfc_attr attr;
	int r;

	if (end > GX_INLINE_MAX)
		return -EFBIG;
	r = inline_attr(file, open, &attr);
	if (r < 0 || keep_size || attr.size >= end)
		return r;
	return inline_resize(file, open, end);
}

/* -- changes ----------------------------------------------------------------------------------- */

static int need_write(struct gfd_file *file, struct gfc_open *open)
{
	int r = gfd_need_lease(file, open, true, gfd_deadline(file->gfd), NULL);

	/* What could not be written before is told before more is taken. */
	return r == 0 && file->error < 0 ? gfd_take_error(file) : r;
}

/* What was read of the range is old; and of the old end, if the file becomes longer. */
static void drop_changed(struct gfd_file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t from = GX_MIN(offset, file->size);
	uint64_t end = bytes > UINT64_MAX - offset ? UINT64_MAX : offset + bytes;

	gfd_drop_range(file, from, end == UINT64_MAX ? UINT64_MAX : end - from);
}

/*
 * Under a shared lease nobody is asked to let others in before they read: what has just been done
 * must be there for all, and so the object is the truth at once.
 */
static int tell_grown(struct gfd_file *file)
{
	if (file->mode != GFC_MODE_SHARED || !file->growing)
		return 0;
	return gfd_report(file, gfd_some_open(file, true), 0, false);
}

static int write_shared(struct gfd_file *file, const uint8_t *buf, size_t bytes, uint64_t offset,
			bool append, uint64_t *ret_offset)
{
	if (append && GX_BROKEN(324)) {
		append = false;
		offset = file->size;
	}
	for (size_t done = 0; done < bytes;) {
		struct gfd_op op = {.kind = GFD_OP_WRITE,
				    .offset = append ? 0 : offset + done,
				    .bytes = GX_MIN(bytes - done, SHARED_BYTES),
				    .append = append,
				    .borrowed = buf + done};
		uint64_t where;
		int r = gfd_do(file, &op, &where);

		if (r < 0)
			return r;
		if (done == 0)
			*ret_offset = append ? where : offset;
		done += op.bytes;
	}
	return tell_grown(file);
}

static int write_alone(struct gfd_file *file, struct gfc_open *open, const void *buf, size_t bytes,
		       uint64_t offset, bool append, uint64_t *ret_offset)
{
	struct gfc_write write = {.data = buf, .bytes = bytes, .offset = offset, .append = append};
	int r = -EFBIG;

	if (may_be_inline(file))
		r = inline_write(file, open, &write, ret_offset);
	if (r != -EFBIG)
		return r;
	r = need_write(file, open);
	if (r < 0)
		return r;
	if (file->mode == GFC_MODE_SHARED)
		return write_shared(file, buf, bytes, offset, append, ret_offset);
	if (append)
		offset = file->size;
	if (bytes > (uint64_t)INT64_MAX - GX_MIN(offset, (uint64_t)INT64_MAX))
		return gfc_fail(-EFBIG, "beyond the largest offset");
	*ret_offset = offset;
	drop_changed(file, offset, bytes);
	return gfd_put(file, buf, bytes, offset);
}

int gfd_write(struct gfd_file *file, struct gfc_open *open, const void *buf, size_t bytes,
	      uint64_t offset, bool append, uint64_t *ret_offset)
{
	uint64_t where = offset;
	int r;

	if (append && bytes > GFD_APPEND_MAX)
		return gfc_fail(-EMSGSIZE, "too much to append in one piece");
	if (bytes == 0) {
		if (ret_offset)
			*ret_offset = offset;
		return 0;
	}
	gfd_begin(file, true);
	r = write_alone(file, open, buf, bytes, offset, append, &where);
	gfd_end(file, true);
	if (r == 0 && ret_offset)
		*ret_offset = where;
	return r;
}

int gfd_write_file(struct gfd_file *file, struct gfc_open *open, int fd, uint64_t from,
		   size_t bytes, uint64_t offset)
{
	int r = -EOPNOTSUPP;

	if (offset % GFD_PIECE_BYTES != 0 || bytes % GFD_PIECE_BYTES != 0 ||
	    bytes > (uint64_t)INT64_MAX - GX_MIN(offset, (uint64_t)INT64_MAX))
		return -EOPNOTSUPP;
	gfd_begin(file, true);
	/* The first write gets the lease. */
	if (file->may_write && file->mode == GFC_MODE_EXCLUSIVE) {
		r = need_write(file, open);
		if (r == 0 && file->mode != GFC_MODE_EXCLUSIVE)
			r = -EOPNOTSUPP;
		if (r == 0) {
			drop_changed(file, offset, bytes);
			r = gfd_put_file(file, fd, from, bytes, offset);
		}
	}
	gfd_end(file, true);
	return r;
}

/* A change the primary is asked for by itself. */
static int change(struct gfd_file *file, struct gfc_open *open, const struct gfd_op *op,
		  uint64_t offset, uint64_t bytes)
{
	int r = need_write(file, open);

	if (r < 0)
		return r;
	drop_changed(file, offset, bytes);
	r = gfd_do(file, op, NULL);
	return r < 0 ? r : tell_grown(file);
}

int gfd_truncate(struct gfd_file *file, struct gfc_open *open, uint64_t size)
{
	struct gfd_op op = {.kind = GFD_OP_TRUNCATE, .offset = size};
	int r = -EFBIG;

	gfd_begin(file, true);
	if (may_be_inline(file))
		r = inline_resize(file, open, size);
	if (r == -EFBIG)
		r = change(file, open, &op, size, UINT64_MAX);
	gfd_end(file, true);
	return r;
}

int gfd_punch(struct gfd_file *file, struct gfc_open *open, uint64_t offset, uint64_t bytes)
{
	struct gfd_op op = {
		.kind = GFD_OP_ROOM, .room = ROOM_HOLE, .offset = offset, .bytes = bytes};
	int r = -EFBIG;

	gfd_begin(file, true);
	if (may_be_inline(file))
		r = inline_punch(file, open, offset, bytes);
	if (r == -EFBIG)
		r = change(file, open, &op, offset, bytes);
	gfd_end(file, true);
	return r;
}

int gfd_allocate(struct gfd_file *file, struct gfc_open *open, uint64_t offset, uint64_t bytes,
		 bool keep_size)
{
	struct gfd_op op = {.kind = GFD_OP_ROOM,
			    .room = keep_size ? ROOM_KEEP : ROOM_GROW,
			    .offset = offset,
			    .bytes = bytes};
	int r = -EFBIG;

	if (bytes > UINT64_MAX - offset)
		return gfc_fail(-EFBIG, "beyond the largest offset");
	gfd_begin(file, true);
	if (may_be_inline(file))
		r = inline_allocate(file, open, offset + bytes, keep_size);
	if (r == -EFBIG)
		r = change(file, open, &op, offset, bytes);
	gfd_end(file, true);
	return r;
}

/* -- data and holes ---------------------------------------------------------------------------- */

/* Small files have no holes but the one at the end. */
static int inline_seek(struct gfd_file *file, struct gfc_open *open, uint64_t offset, bool hole,
		       uint64_t *ret_offset)
{
	struct gfc_attr attr;
	int r = inline_attr(file, open, &attr);

	if (r < 0)
		return r;
	if (offset >= attr.size)
		return -ENXIO;
	*ret_offset = hole ? attr.size : offset;
	return 0;
}

static int seek_object(struct gfd_file *file, struct gfc_open *open, uint64_t offset, bool hole,
		       uint64_t *ret_offset)
{
	PbData__DataSeekRequest request = PB_DATA__DATA_SEEK_REQUEST__INIT;
	struct gfd_data_call call = {
		.method = RPC_INDEX_DATA_SEEK, .request = &request.base, .ticket = &request.ticket};
	int r;

	request.offset = offset;
	request.hole = hole;
	r = gfd_call_primary(file, open, &call);
	if (r == 0)
		*ret_offset = ((const PbData__DataSeekReply *)call.reply.message)->offset;
	rpc_reply_fini(&call.reply);
	return r;
}

int gfd_seek(struct gfd_file *file, struct gfc_open *open, uint64_t offset, bool hole,
	     uint64_t *ret_offset)
{
	int r = -EFBIG;

	gfd_begin(file, true);
	if (may_be_inline(file))
		r = inline_seek(file, open, offset, hole, ret_offset);
	if (r == -EFBIG) {
		r = gfd_need_lease(file, open, false, gfd_deadline(file->gfd), NULL);
		if (r == 0 && gfd_holds(file))
			r = gfd_send_all(file);
		if (r == 0 && file->mode == GFC_MODE_NONE)
			r = inline_seek(file, open, offset, hole, ret_offset);
		else if (r == 0)
			r = seek_object(file, open, offset, hole, ret_offset);
	}
	gfd_end(file, true);
	return r;
}
