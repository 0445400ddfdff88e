/*
 * Files being opened and closed.
 *
 * The kernel keeps pages of a file from one opening to the next as long as they show its content:
 * metad says when others change it, and then the pages go (gfuse_notify.c). What was changed while
 * nobody would have told us shows in generation, size and time.
 */
#define GX_LOG_COMPONENT "gfsmount"
#include "fuse/gfuse.h"
#include "common/gx_hash.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include <fcntl.h>

/* -- buffers ---------------------------------------------------------------------------------- */

void *gfuse_buffer_get(struct gfuse *g)
{
	void *buffer = NULL;

	gx_env_mutex_lock(g->env, &g->lock);
	if (g->buffer_count > 0)
		buffer = g->buffers[--g->buffer_count];
	gx_env_mutex_unlock(g->env, &g->lock);
	return buffer ? buffer : gx_alloc_pages(GFUSE_IO_BYTES);
}

void gfuse_buffer_put(struct gfuse *g, void *buffer)
{
	if (!buffer)
		return;
	gx_env_mutex_lock(g->env, &g->lock);
	if (g->buffer_count < GFUSE_BUFFERS_MAX)
		g->buffers[g->buffer_count++] = GX_TAKE(buffer);
	gx_env_mutex_unlock(g->env, &g->lock);
	free(buffer);
}

/* -- opening ---------------------------------------------------------------------------------- */

static unsigned open_flags(int flags)
{
	unsigned ours = 0;

	switch (flags & O_ACCMODE) {
	case O_RDONLY:
		ours = GFC_OPEN_READ;
		break;
	case O_WRONLY:
		ours = GFC_OPEN_WRITE;
		break;
	default:
		ours = GFC_OPEN_READ | GFC_OPEN_WRITE;
		break;
	}
	if (flags & O_TRUNC)
		ours |= GFC_OPEN_TRUNC;
	return ours;
}

/* What the pages of a file show, in a number. */
static uint64_t mark_of(const struct gfc_attr *attr)
{
	uint64_t mark = attr->generation;

	mark = mark * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)attr->mtime_ns;
	return mark * UINT64_C(0x9e3779b97f4a7c15) + attr->size;
}

/*
 * Under a shared lease, or if others are writing, nothing is kept: every read and write of this
 * opening is one of ours (rule B4). And so it is for who appends: through pages the kernel would
 * cut a write in two where one of them ends, and somebody else could come in between.
 */
static void set_caching(struct gfuse *g, struct gfuse_file *file, struct fuse_file_info *fi)
{
	bool write;
	unsigned mode = gfd_lease_of(g->gfd, file->ino, &write, NULL);

	if (!S_ISREG(file->attr.mode))
		return;
	if (mode == GFC_MODE_SHARED || (file->writes && (fi->flags & O_APPEND)) ||
	    ((file->attr.flags & GFC_ATTR_WRITING) && mode != GFC_MODE_EXCLUSIVE)) {
		fi->direct_io = 1;
		gfuse_inodes_doubt(g->inodes, file->ino);
		return;
	}
	/* While this mount writes it its pages are right, and marks are not. */
	if (gfuse_inodes_pages(g->inodes, file->ino, mark_of(&file->attr)) ||
	    mode == GFC_MODE_EXCLUSIVE)
		fi->keep_cache = 1;
	if (file->writes)
		gfuse_inodes_doubt(g->inodes, file->ino);
}

/* What gfc_open() gave becomes a file; closes it if that fails. */
static int file_new(struct gfuse *g, struct gfc_open *open, const struct gfc_attr *attr,
		    bool truncate, struct gfuse_file **ret_file)
{
	struct gfuse_file *file = calloc(1, sizeof(*file));
	int r = file ? 0 : -ENOMEM;

	if (r == 0) {
		file->g = g;
		file->open = open;
		file->ino = attr->ref.ino;
		file->writes = gfc_open_flags(open) & GFC_OPEN_WRITE;
		file->attr = *attr;
		atomic_store(&file->safe, UINT64_MAX);
		r = gfd_open(g->gfd, open, attr, &file->content);
	}
	if (r == 0 && truncate) {
		r = gfd_truncate(file->content, open, 0);
		file->attr.size = 0;
		if (r < 0)
			GX_IGNORE(gfd_close(file->content, open)); /* r says more */
	}
	if (r < 0) {
		GX_IGNORE(gfc_close(g->gfc, open)); /* nothing was written */
		free(file);
		return r;
	}
	gx_env_mutex_lock(g->env, &g->lock);
	DL_APPEND(g->files, file);
	gx_env_mutex_unlock(g->env, &g->lock);
	*ret_file = file;
	return 0;
}

static int open_ref(struct gfuse *g, struct gfc_ref ref, int flags, struct gfuse_file **ret_file)
{
	unsigned ours = open_flags(flags);
	struct gfc_open *open;
	struct gfc_attr attr;
	bool write, truncate = false;
	int r;

	/* If gfd is at work on the inode, the truncation has its place among its writes. */
	if ((ours & GFC_OPEN_TRUNC) && gfd_lease_of(g->gfd, ref.ino, &write, NULL) != 0) {
		truncate = true;
		ours &= ~GFC_OPEN_TRUNC;
	}
	r = gfc_open(g->gfc, ref, NULL, ours, 0, &attr, &open);
	return r < 0 ? r : file_new(g, open, &attr, truncate, ret_file);
}

/* Gives everything back; the first error. */
static int file_close(struct gfuse_file *file)
{
	struct gfuse *g = file->g;
	int closed, r;

	gx_env_mutex_lock(g->env, &g->lock);
	DL_DELETE(g->files, file);
	gx_env_mutex_unlock(g->env, &g->lock);
	r = gfd_close(file->content, file->open);
	closed = gfc_close(g->gfc, file->open);
	free(file);
	return r < 0 ? r : closed;
}

void gfuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct gfuse *g = gfuse_of(req);
	struct gfuse_file *file;
	struct gfc_ref ref;
	int r = gfuse_ref(g, ino, &ref);

	if (r == 0)
		r = open_ref(g, ref, fi->flags, &file);
	if (r < 0) {
		gfuse_reply(req, r);
		return;
	}
	set_caching(g, file, fi);
	fi->fh = (uintptr_t)file;
	if (fuse_reply_open(req, fi) < 0)
		GX_IGNORE(file_close(file)); /* who opened it is gone, and wrote nothing */
}

/* -- making ----------------------------------------------------------------------------------- */

static int set_copies(struct gfuse *g, struct gfc_ref ref)
{
	char text[24];

	GX_IGNORE(gx_format(text, sizeof(text), "%llu", (unsigned long long)g->conf->ncopy));
	return gfc_setxattr(g->gfc, ref, "gfs.ncopy", text, strlen(text), 0);
}

/* Whose it is, and how many copies it shall have, if that is to be said. */
static int finish_new(struct gfuse *g, const struct gfc_change *owner, struct gfc_attr *attr)
{
	int r = 0;

	if (owner)
		r = gfc_setattr(g->gfc, attr->ref, NULL, owner, attr);
	if (r == 0 && g->conf->ncopy > 0)
		r = set_copies(g, attr->ref);
	return r;
}

/*
 * The kernel has looked before and found nothing, but somebody may have been faster; O_EXCL tells.
 * So who is not us and wants a file that he owns says O_EXCL first, and opens what is there if that
 * fails.
 */
static int create(fuse_req_t req, struct gfc_ref dir, const char *name, mode_t mode, int flags,
		  struct gfuse_file **ret_file)
{
	struct gfuse *g = gfuse_of(req);
	unsigned ours = open_flags(flags);
	bool exclusive = flags & O_EXCL, foreign, special;
	struct gfc_change owner;
	struct gfc_open *open;
	struct gfc_attr attr;
	int r;

	foreign = gfuse_owner(req, dir, S_IFREG | mode, &owner);
	special = foreign || g->conf->ncopy > 0;
	r = gfc_open(g->gfc, dir, name,
		     ours | GFC_OPEN_CREATE | (exclusive || special ? GFC_OPEN_EXCL : 0),
		     foreign ? 0 : mode & 07777, &attr, &open);
	if (r == -EEXIST && !exclusive && special) {
		r = gfc_lookup(g->gfc, dir, name, &attr);
		return r < 0 ? r : open_ref(g, attr.ref, flags, ret_file);
	}
	if (r < 0)
		return r;
	if (special)
		r = finish_new(g, foreign ? &owner : NULL, &attr);
	if (r < 0) {
		GX_IGNORE(gfc_close(g->gfc, open)); /* nothing was written */
		return r;
	}
	return file_new(g, open, &attr, false, ret_file);
}

void gfuse_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		  struct fuse_file_info *fi)
{
	struct gfuse *g = gfuse_of(req);
	struct fuse_entry_param entry;
	struct gfuse_file *file = NULL;
	struct gfc_ref dir;
	int r = gfuse_ref(g, parent, &dir);

	gfuse_busy_begin(g->notify, parent);
	if (r == 0)
		r = create(req, dir, name, mode, fi->flags, &file);
	if (r == 0)
		r = gfuse_entry(g, dir, name, &file->attr, &entry);
	if (r == 0) {
		set_caching(g, file, fi);
		fi->fh = (uintptr_t)file;
		if (fuse_reply_create(req, &entry, fi) < 0) {
			gfuse_unentry(g, &entry);
			r = -ENOENT;
		}
	} else {
		gfuse_reply(req, r);
	}
	if (r < 0 && file)
		GX_IGNORE(file_close(file)); /* nobody has written */
	gfuse_busy_end(g->notify, parent);
}

/* -- closing ---------------------------------------------------------------------------------- */

/*
 * Each close() of a descriptor: others shall see what was written, and who closes shall hear what
 * went wrong. A file that was not written needs nobody. And whoever closes any descriptor of a file
 * has no ranges of it locked any more (fcntl(2)), which must not come before what he wrote.
 */
void gfuse_flush(fuse_req_t req, fuse_ino_t ino GX_UNUSED, struct fuse_file_info *fi)
{
	struct gfuse_file *file = gfuse_file_of(fi);

	int r = file->written ? gfd_flush(file->content, file->open) : 0;
	int unlocked = gfc_unlock_owner(file->g->gfc, file->open, GFC_LOCK_POSIX, fi->lock_owner);

	gfuse_reply(req, r < 0 ? r : unlocked);
}

void gfuse_release(fuse_req_t req, fuse_ino_t ino GX_UNUSED, struct fuse_file_info *fi)
{
	struct gfuse_file *file = gfuse_file_of(fi);
	uint64_t number = file->ino;
	int r = file_close(file);

	/*
	 * flush() has told what there was to tell; nobody listens here. A flock ended with the open
	 * file, whose it was, behind all that was written.
	 */
	if (r < 0)
		gx_log(WARNING, "a file could not be closed well", GX_KU("ino", number), GX_KE(r));
	gfuse_reply(req, 0);
}

int gfuse_files_close(struct gfuse *g)
{
	int result = 0;

	while (g->files) {
		int r = file_close(g->files);

		if (r < 0 && result == 0)
			result = r;
	}
	return result;
}

int gfuse_truncate(struct gfuse *g, struct gfc_ref ref, uint64_t size)
{
	struct gfc_change change = {.mask = GFC_SET_SIZE, .size = size};
	struct gfc_attr attr;
	bool write;
	int r;

	if (size > INT64_MAX)
		return -EFBIG;
	r = gfc_getattr(g->gfc, ref, &attr);
	if (r < 0)
		return r;
	/* metad does it alone if it has all the bytes, before and after; else it says -EFBIG. */
	r = -EFBIG;
	if ((attr.flags & GFC_ATTR_INLINE) && size <= GX_INLINE_MAX &&
	    gfd_lease_of(g->gfd, ref.ino, &write, NULL) == 0)
		r = gfc_setattr(g->gfc, ref, NULL, &change, &attr);
	return r == -EFBIG ? gfs_content_truncate(g->fs, ref, size) : r;
}
