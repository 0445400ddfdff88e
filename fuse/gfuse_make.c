/*
 * Names that are made, moved and removed.
 */
#include "fuse/gfuse.h"

/*
 * A mount of the grid's root acts for all users of this machine: what they make is theirs. Any
 * other mount acts as who it is, whoever asks. metad gives a new inode the group of a directory
 * with the set-group-id bit; that stays.
 */
bool gfuse_owner(fuse_req_t req, struct gfc_ref dir, uint32_t mode, struct gfc_change *ret_change)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct gfuse *g = gfuse_of(req);
	struct gfc_attr attr;

	*ret_change = (struct gfc_change){.mask = GFC_SET_UID | GFC_SET_GID | GFC_SET_MODE,
					  .mode = mode & 07777};
	if (g->uid != 0 || (ctx->uid == 0 && ctx->gid == 0))
		return false;
	if (gfuse_ids_grid(g->ids, ctx->uid, false, &ret_change->uid) < 0)
		ret_change->uid = GFUSE_NOBODY;
	if (gfuse_ids_grid(g->ids, ctx->gid, true, &ret_change->gid) < 0)
		ret_change->gid = GFUSE_NOBODY;
	if (gfc_getattr(g->gfc, dir, &attr) == 0 && (attr.mode & S_ISGID)) {
		ret_change->mask &= ~GFC_SET_GID;
		if (S_ISDIR(mode))
			ret_change->mode |= S_ISGID;
	}
	/* A link has no mode of its own. */
	if (S_ISLNK(mode))
		ret_change->mask &= ~GFC_SET_MODE;
	return true;
}

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev,
		 const char *target)
{
	struct gfuse *g = gfuse_of(req);
	struct gfc_change owner;
	struct gfc_attr attr;
	struct gfc_ref dir;
	bool foreign = false;
	int r = gfuse_ref(g, parent, &dir);

	gfuse_busy_begin(g->notify, parent);
	if (r == 0) {
		foreign = gfuse_owner(req, dir, mode, &owner);
		/* Until it has its owner nobody but root may do anything with it. */
		r = gfc_make(g->gfc, dir, name, foreign && !S_ISLNK(mode) ? mode & S_IFMT : mode,
			     rdev, target, &attr);
	}
	if (r == 0 && foreign)
		r = gfc_setattr(g->gfc, attr.ref, NULL, &owner, &attr);
	if (r < 0)
		gfuse_reply(req, r);
	else
		gfuse_reply_entry(req, dir, name, &attr);
	gfuse_busy_end(g->notify, parent);
}

void gfuse_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	if ((mode & S_IFMT) == 0)
		mode |= S_IFREG;
	make(req, parent, name, mode, rdev, NULL);
}

void gfuse_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	make(req, parent, name, S_IFDIR | (mode & 07777), 0, NULL);
}

void gfuse_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	make(req, parent, name, S_IFLNK | 0777, 0, target);
}

void gfuse_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct gfuse *g = gfuse_of(req);
	struct gfc_attr attr;
	struct gfc_ref ref, dir;
	int r = gfuse_ref(g, ino, &ref);

	if (r == 0)
		r = gfuse_ref(g, parent, &dir);
	gfuse_busy_begin(g->notify, parent);
	if (r == 0)
		r = gfc_link(g->gfc, ref, dir, name, &attr);
	if (r < 0)
		gfuse_reply(req, r);
	else
		gfuse_reply_entry(req, dir, name, &attr);
	gfuse_busy_end(g->notify, parent);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, bool directory)
{
	struct gfuse *g = gfuse_of(req);
	struct gfc_ref dir;
	int r = gfuse_ref(g, parent, &dir);

	gfuse_busy_begin(g->notify, parent);
	if (r == 0)
		r = gfc_unlink(g->gfc, dir, name, directory);
	gfuse_reply(req, r);
	gfuse_busy_end(g->notify, parent);
}

void gfuse_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, false);
}

void gfuse_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, true);
}

static int rename_flags(unsigned flags, unsigned *ret_flags)
{
	*ret_flags = 0;
	if (flags & RENAME_NOREPLACE)
		*ret_flags |= GFS_RENAME_NOREPLACE;
	if (flags & RENAME_EXCHANGE)
		*ret_flags |= GFS_RENAME_EXCHANGE;
	/* RENAME_WHITEOUT is for overlays only. */
	return flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE) ? -EINVAL : 0;
}

void gfuse_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		  const char *new_name, unsigned flags)
{
	struct gfuse *g = gfuse_of(req);
	struct gfc_ref from, to;
	unsigned ours;
	int r = rename_flags(flags, &ours);

	if (r == 0)
		r = gfuse_ref(g, parent, &from);
	if (r == 0)
		r = gfuse_ref(g, new_parent, &to);
	gfuse_busy_begin(g->notify, parent);
	gfuse_busy_begin(g->notify, new_parent);
	if (r == 0)
		r = gfc_rename(g->gfc, from, name, to, new_name, ours);
	gfuse_reply(req, r);
	gfuse_busy_end(g->notify, new_parent);
	gfuse_busy_end(g->notify, parent);
}
