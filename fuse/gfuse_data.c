/*
 * The bytes of open files.
 */
#include "fuse/gfuse.h"
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

void gfuse_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		struct fuse_file_info *fi)
{
	struct gfuse *g = gfuse_of(req);
	struct gfuse_file *file = gfuse_file_of(fi);
	void *buf = gfuse_buffer_get(g);
	ssize_t n = -ENOMEM;

	gfuse_busy_begin(g->notify, ino);
	if (buf)
		n = gfd_read(file->content, file->open, buf, GX_MIN(size, GFUSE_IO_BYTES),
			     (uint64_t)offset);
	file->was_read = true;
	if (n < 0)
		gfuse_reply(req, (int)n);
	else
		fuse_reply_buf(req, buf, (size_t)n);
	gfuse_busy_end(g->notify, ino);
	gfuse_buffer_put(g, buf);
}

/*
 * Who writes and is not root takes set-id bits away. metad does it if we are not root ourselves.
 * Looked at once for each opening, and again when a mode has been set through this mount.
 */
static void kill_setid(fuse_req_t req, struct gfuse_file *file)
{
	struct gfuse *g = file->g;
	struct gfc_change change = {.mask = GFC_SET_MODE};
	uint64_t chmods = atomic_load(&g->chmods);
	struct gfc_attr attr;

	if (g->uid != 0 || fuse_req_ctx(req)->uid == 0 || atomic_load(&file->safe) == chmods)
		return;
	if (gfc_open_getattr(g->gfc, file->open, &attr) < 0)
		return;
	change.mode = attr.mode & 07777 & ~(uint32_t)S_ISUID;
	if (attr.mode & S_IXGRP)
		change.mode &= ~(uint32_t)S_ISGID;
	if (change.mode != (attr.mode & 07777) &&
	    gfc_setattr(g->gfc, attr.ref, NULL, &change, &attr) < 0)
		return;
	atomic_store(&file->safe, chmods);
}

void gfuse_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
		 struct fuse_file_info *fi)
{
	struct gfuse *g = gfuse_of(req);
	struct gfuse_file *file = gfuse_file_of(fi);
	/* Pages that are written back (mmap) have their place, also in a file opened to append. */
	bool append = (fi->flags & O_APPEND) && !fi->writepage;
	int r;

	gfuse_busy_begin(g->notify, ino);
	kill_setid(req, file);
	file->written = true;
	r = gfd_write(file->content, file->open, buf, size, (uint64_t)offset, append, NULL);
	if (r == 0 && (fi->flags & (O_SYNC | O_DSYNC)))
		r = gfd_sync(file->content, file->open);
	if (r < 0)
		gfuse_reply(req, r);
	else
		fuse_reply_write(req, size);
	gfuse_busy_end(g->notify, ino);
}

void gfuse_fsync(fuse_req_t req, fuse_ino_t ino GX_UNUSED, int datasync GX_UNUSED,
		 struct fuse_file_info *fi)
{
	struct gfuse_file *file = gfuse_file_of(fi);

	gfuse_reply(req, gfd_sync(file->content, file->open));
}

static int allocate(struct gfuse_file *file, int mode, uint64_t offset, uint64_t bytes)
{
	bool keep = mode & FALLOC_FL_KEEP_SIZE;
	int r;

	switch (mode & ~FALLOC_FL_KEEP_SIZE) {
	case 0:
		return gfd_allocate(file->content, file->open, offset, bytes, keep);
	case FALLOC_FL_PUNCH_HOLE:
		return keep ? gfd_punch(file->content, file->open, offset, bytes) : -EOPNOTSUPP;
	case FALLOC_FL_ZERO_RANGE:
		r = gfd_punch(file->content, file->open, offset, bytes);
		return r < 0 ? r : gfd_allocate(file->content, file->open, offset, bytes, keep);
	default:
		return -EOPNOTSUPP;
	}
}

void gfuse_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		     struct fuse_file_info *fi)
{
	struct gfuse *g = gfuse_of(req);
	struct gfuse_file *file = gfuse_file_of(fi);

	gfuse_busy_begin(g->notify, ino);
	file->written = true;
	kill_setid(req, file);
	gfuse_reply(req, allocate(file, mode, (uint64_t)offset, (uint64_t)length));
	gfuse_busy_end(g->notify, ino);
}

void gfuse_lseek(fuse_req_t req, fuse_ino_t ino GX_UNUSED, off_t offset, int whence,
		 struct fuse_file_info *fi)
{
	struct gfuse_file *file = gfuse_file_of(fi);
	uint64_t found = 0;
	int r = -EINVAL;

	if (offset < 0)
		r = -ENXIO;
	else if (whence == SEEK_DATA || whence == SEEK_HOLE)
		r = gfd_seek(file->content, file->open, (uint64_t)offset, whence == SEEK_HOLE,
			     &found);
	if (r < 0)
		gfuse_reply(req, r);
	else
		fuse_reply_lseek(req, (off_t)found);
}

/* Bytes copied; less only at the end of the source. */
static ssize_t copy_range(struct gfuse_file *from, uint64_t from_offset, struct gfuse_file *to,
			  uint64_t to_offset, size_t bytes)
{
	void *buf = gfuse_buffer_get(from->g);
	size_t done = 0;
	ssize_t n = buf ? 1 : -ENOMEM;

	while (n > 0 && done < bytes) {
		n = gfd_read(from->content, from->open, buf, GX_MIN(bytes - done, GFUSE_IO_BYTES),
			     from_offset + done);
		if (n > 0) {
			int r = gfd_write(to->content, to->open, buf, (size_t)n, to_offset + done,
					  false, NULL);

			done += r < 0 ? 0 : (size_t)n;
			n = r < 0 ? r : n;
		}
	}
	gfuse_buffer_put(from->g, buf);
	return n < 0 && done == 0 ? n : (ssize_t)done;
}

void gfuse_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			   struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			   struct fuse_file_info *fi_out, size_t len, int flags)
{
	struct gfuse *g = gfuse_of(req);
	struct gfuse_file *from = gfuse_file_of(fi_in), *to = gfuse_file_of(fi_out);
	ssize_t n = -EINVAL;

	gfuse_busy_begin(g->notify, ino_in);
	gfuse_busy_begin(g->notify, ino_out);
	if (flags == 0) {
		to->written = true;
		kill_setid(req, to);
		/* So many that one call cannot keep a thread for minutes; the caller goes on. */
		n = copy_range(from, (uint64_t)off_in, to, (uint64_t)off_out,
			       GX_MIN(len, 64u * GFUSE_IO_BYTES));
	}
	if (n < 0)
		gfuse_reply(req, (int)n);
	else
		fuse_reply_write(req, (size_t)n);
	gfuse_busy_end(g->notify, ino_out);
	gfuse_busy_end(g->notify, ino_in);
}
