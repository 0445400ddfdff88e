/*
 * Names and attributes: looking, and changing attributes.
 */
#include "fuse/gfuse.h"
#include "client/fs/gfs_path.h"
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK_BYTES 512u /* of st_blocks */
#define IO_BLOCK_BYTES 4096u
/* How long the kernel keeps what it reads of a file that this mount alone writes. */
#define EXCLUSIVE_SEC 0.1

/* -- errors ----------------------------------------------------------------------------------- */

int gfuse_errno(int r)
{
	switch (-r) {
	case ENOTRECOVERABLE: /* the session was lost: whether it was done is unknown */
	case EPROTO:
	case EKEYREJECTED:
		return EIO;
	default:
		return -r;
	}
}

void gfuse_reply(fuse_req_t req, int r)
{
	fuse_reply_err(req, r < 0 ? gfuse_errno(r) : 0);
}

/* -- what the kernel is told ------------------------------------------------------------------ */

static struct timespec time_of(int64_t ns)
{
	int64_t sec = ns / GX_NSEC_PER_SEC, rest = ns % GX_NSEC_PER_SEC;

	if (rest < 0) {
		sec--;
		rest += GX_NSEC_PER_SEC;
	}
	return (struct timespec){.tv_sec = sec, .tv_nsec = rest};
}

void gfuse_stat_of(struct gfuse *g, const struct gfc_attr *attr, struct stat *ret_st)
{
	*ret_st = (struct stat){
		.st_ino = attr->ref.ino,
		.st_mode = attr->mode,
		.st_nlink = attr->nlink,
		.st_uid = gfuse_ids_local(g->ids, attr->uid, false),
		.st_gid = gfuse_ids_local(g->ids, attr->gid, true),
		.st_rdev = attr->rdev,
		.st_size = (off_t)attr->size,
		.st_blksize = IO_BLOCK_BYTES,
		.st_blocks = (blkcnt_t)((attr->size + BLOCK_BYTES - 1) / BLOCK_BYTES),
		.st_atim = time_of(attr->atime_ns),
		.st_mtim = time_of(attr->mtime_ns),
		.st_ctim = time_of(attr->ctime_ns),
	};
}

static double seconds(const struct gfuse *g, int64_t ns)
{
	ns = GX_MIN(ns, g->conf->timeout_ns);
	return ns > 0 ? (double)ns / (double)GX_NSEC_PER_SEC : 0;
}

double gfuse_keep_name(struct gfuse *g, struct gfc_ref dir, const char *name, uint64_t ino)
{
	return seconds(g, gfc_keep_name(g->gfc, dir, name, ino));
}

double gfuse_keep_attr(struct gfuse *g, const struct gfc_attr *attr)
{
	return seconds(g, gfc_keep_attr(g->gfc, attr));
}

int gfuse_entry(struct gfuse *g, struct gfc_ref dir, const char *name, struct gfc_attr *attr,
		struct fuse_entry_param *ret_entry)
{
	uint64_t ino = attr->ref.ino;
	int r = gfuse_inodes_add(g->inodes, attr->ref);

	if (r < 0)
		return r;
	*ret_entry = (struct fuse_entry_param){
		.ino = gfuse_node(g, ino),
		.entry_timeout = gfuse_keep_name(g, dir, name, ino),
		.attr_timeout = gfuse_keep_attr(g, attr),
	};
	/* What this process writes it knows better than metad. */
	if (S_ISREG(attr->mode) && gfd_correct_attr(g->gfd, attr))
		ret_entry->attr_timeout = 0;
	gfuse_stat_of(g, attr, &ret_entry->attr);
	return 0;
}

void gfuse_unentry(struct gfuse *g, const struct fuse_entry_param *entry)
{
	gfuse_inodes_forget(g->inodes, entry->ino, 1);
}

void gfuse_reply_entry(fuse_req_t req, struct gfc_ref dir, const char *name, struct gfc_attr *attr)
{
	struct gfuse *g = gfuse_of(req);
	struct fuse_entry_param entry;
	int r = gfuse_entry(g, dir, name, attr, &entry);

	if (r < 0)
		gfuse_reply(req, r);
	else if (fuse_reply_entry(req, &entry) < 0)
		gfuse_unentry(g, &entry);
}

/*
 * The kernel drops its pages of a file when the time of its last change differs from what it knows.
 * metad hears of changes by several writers some milliseconds later than they happen; so while
 * there are several, the primary's clock, which goes up with every change, stands in the digits
 * below a millisecond. A read then never gets bytes from before a write that has returned.
 */
static void mark_time(struct gfc_attr *attr)
{
	const int64_t unit = GX_NSEC_PER_MSEC;

	if (attr->clock > 0 && attr->mtime_ns >= 0)
		attr->mtime_ns += (int64_t)(attr->clock % (uint64_t)unit) - attr->mtime_ns % unit;
}

static void reply_attr(fuse_req_t req, struct gfc_attr *attr)
{
	struct gfuse *g = gfuse_of(req);
	double keep = gfuse_keep_attr(g, attr);
	struct stat st;
	bool write;

	if (S_ISREG(attr->mode) && (attr->flags & GFC_ATTR_WRITING)) {
		bool alone =
			gfd_lease_of(g->gfd, attr->ref.ino, &write, NULL) == GFC_MODE_EXCLUSIVE;

		keep = alone && gfc_trusted(g->gfc) ? EXCLUSIVE_SEC : 0;
		/* Under a shared lease our last word to the primary is not the newest there is. */
		if (alone)
			gfd_correct_attr(g->gfd, attr);
	}
	mark_time(attr);
	gfuse_stat_of(g, attr, &st);
	fuse_reply_attr(req, &st, keep);
}

/* -- looking ---------------------------------------------------------------------------------- */

/* A name that is not there may be kept as well. */
static void reply_absent(fuse_req_t req, struct gfc_ref dir, const char *name)
{
	struct gfuse *g = gfuse_of(req);
	struct fuse_entry_param entry = {.entry_timeout = gfuse_keep_name(g, dir, name, 0)};

	if (entry.entry_timeout > 0)
		fuse_reply_entry(req, &entry);
	else
		fuse_reply_err(req, ENOENT);
}

void gfuse_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct gfuse *g = gfuse_of(req);
	struct gfc_attr attr;
	struct gfc_ref dir;
	int r = gfuse_ref(g, parent, &dir);

	gfuse_busy_begin(g->notify, parent);
	if (r == 0)
		r = gfc_lookup(g->gfc, dir, name, &attr);
	if (r == 0)
		gfuse_reply_entry(req, dir, name, &attr);
	else if (r == -ENOENT)
		reply_absent(req, dir, name);
	else
		gfuse_reply(req, r);
	gfuse_busy_end(g->notify, parent);
}

void gfuse_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	if (ino != FUSE_ROOT_ID)
		gfuse_inodes_forget(gfuse_of(req)->inodes, ino, count);
	fuse_reply_none(req);
}

void gfuse_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		if (forgets[i].ino != FUSE_ROOT_ID)
			gfuse_inodes_forget(gfuse_of(req)->inodes, forgets[i].ino,
					    forgets[i].nlookup);
	fuse_reply_none(req);
}

/*
 * The directory that is mounted is looked at by everybody who only wants to know what is there, and
 * by umount(8). So that they do not hang while metad is away, it is shown as it was last seen.
 */
static bool root_of_dead_grid(struct gfuse *g, struct gfc_attr *ret_attr)
{
	if (gfc_trusted(g->gfc))
		return false;
	gx_env_mutex_lock(g->env, &g->lock);
	*ret_attr = g->root_attr;
	gx_env_mutex_unlock(g->env, &g->lock);
	return true;
}

static int getattr_root(struct gfuse *g, struct gfc_attr *ret_attr)
{
	int r;

	if (root_of_dead_grid(g, ret_attr))
		return 0;
	r = gfc_getattr(g->gfc, g->root, ret_attr);
	if (r == 0) {
		gx_env_mutex_lock(g->env, &g->lock);
		g->root_attr = *ret_attr;
		gx_env_mutex_unlock(g->env, &g->lock);
	}
	return r;
}

static int getattr_by_ref(struct gfuse *g, fuse_ino_t ino, struct gfc_attr *ret_attr)
{
	struct gfc_ref ref;
	bool write = false;
	int r;

	if (ino == FUSE_ROOT_ID)
		return getattr_root(g, ret_attr);
	r = gfuse_ref(g, ino, &ref);
	if (r < 0)
		return r;
	/* What was written before has its time, too. */
	if (gfd_lease_of(g->gfd, ref.ino, &write, NULL) != 0 && write)
		GX_IGNORE(gfd_flush_ino(g->gfd, ref.ino)); /* its file keeps the error */
	return gfc_getattr(g->gfc, ref, ret_attr);
}

void gfuse_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct gfuse *g = gfuse_of(req);
	struct gfuse_file *file = fi ? gfuse_file_of(fi) : NULL;
	struct gfc_attr attr;
	int r;

	/* Before a name is changed the kernel may ask for its directory, which it has locked. */
	gfuse_busy_begin(g->notify, ino);
	if (file)
		r = gfd_getattr(file->content, file->open, &attr);
	else
		r = getattr_by_ref(g, ino, &attr);
	if (r < 0)
		gfuse_reply(req, r);
	else
		reply_attr(req, &attr);
	gfuse_busy_end(g->notify, ino);
}

void gfuse_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[GX_PATH_MAX];
	struct gfc_ref ref;
	int r = gfuse_ref(gfuse_of(req), ino, &ref);

	if (r == 0)
		r = gfc_readlink(gfuse_of(req)->gfc, ref, target);
	if (r < 0)
		gfuse_reply(req, r);
	else
		fuse_reply_readlink(req, target);
}

/* Only without default_permissions: what metad lets us do it says when we try. */
void gfuse_access(fuse_req_t req, fuse_ino_t ino, int mask GX_UNUSED)
{
	struct gfc_ref ref;

	gfuse_reply(req, gfuse_ref(gfuse_of(req), ino, &ref));
}

void gfuse_statfs(fuse_req_t req, fuse_ino_t ino GX_UNUSED)
{
	struct gfuse *g = gfuse_of(req);
	struct gfs_statfs fs;
	struct statvfs st = {.f_bsize = IO_BLOCK_BYTES, .f_frsize = IO_BLOCK_BYTES};
	bool dead = !gfc_trusted(g->gfc);
	int r = dead ? 0 : gfs_statfs(g->fs, &fs);

	if (r < 0) {
		gfuse_reply(req, r);
		return;
	}
	gx_env_mutex_lock(g->env, &g->lock);
	if (dead)
		fs = g->statfs;
	else
		g->statfs = fs;
	gx_env_mutex_unlock(g->env, &g->lock);
	st.f_blocks = fs.capacity_bytes / IO_BLOCK_BYTES;
	st.f_bfree = st.f_bavail = fs.free_bytes / IO_BLOCK_BYTES;
	/* Inodes have no limit: as many as fit, each with a name. */
	st.f_files = fs.inodes + st.f_bfree;
	st.f_ffree = st.f_favail = st.f_bfree;
	st.f_namemax = fs.name_max;
	fuse_reply_statfs(req, &st);
}

/* -- changing attributes ---------------------------------------------------------------------- */

static int64_t ns_of(const struct timespec *t)
{
	return (int64_t)t->tv_sec * GX_NSEC_PER_SEC + t->tv_nsec;
}

/* Owners become those of the grid. */
static int change_owner(struct gfuse *g, const struct stat *st, int to_set,
			struct gfc_change *change)
{
	int r = 0;

	if (to_set & FUSE_SET_ATTR_UID) {
		change->mask |= GFC_SET_UID;
		r = gfuse_ids_grid(g->ids, st->st_uid, false, &change->uid);
	}
	if (r == 0 && (to_set & FUSE_SET_ATTR_GID)) {
		change->mask |= GFC_SET_GID;
		r = gfuse_ids_grid(g->ids, st->st_gid, true, &change->gid);
	}
	return r;
}

/* All but the size. */
static int change_of(struct gfuse *g, const struct stat *st, int to_set, struct gfc_change *change)
{
	if (to_set & FUSE_SET_ATTR_MODE) {
		change->mask |= GFC_SET_MODE;
		change->mode = st->st_mode & 07777;
	}
	if (to_set & FUSE_SET_ATTR_ATIME_NOW) {
		change->mask |= GFC_SET_ATIME_NOW;
	} else if (to_set & FUSE_SET_ATTR_ATIME) {
		change->mask |= GFC_SET_ATIME;
		change->atime_ns = ns_of(&st->st_atim);
	}
	if (to_set & FUSE_SET_ATTR_MTIME_NOW) {
		change->mask |= GFC_SET_MTIME_NOW;
	} else if (to_set & FUSE_SET_ATTR_MTIME) {
		change->mask |= GFC_SET_MTIME;
		change->mtime_ns = ns_of(&st->st_mtim);
	}
	return change_owner(g, st, to_set, change);
}

/*
 * The kernel leaves set-id bits to us. metad clears them when somebody else than root changes size
 * or owner; but as root we do that for others, too.
 */
static void clear_setid(fuse_req_t req, struct gfc_ref ref, int to_set, struct gfc_change *change)
{
	struct gfuse *g = gfuse_of(req);
	struct gfc_attr attr;

	if (!(to_set & FUSE_SET_ATTR_SIZE) || (change->mask & GFC_SET_MODE) ||
	    fuse_req_ctx(req)->uid == 0 || g->uid != 0)
		return;
	if (gfc_getattr(g->gfc, ref, &attr) < 0 || !(attr.mode & (S_ISUID | S_ISGID)))
		return;
	change->mask |= GFC_SET_MODE;
	change->mode = attr.mode & 07777 & ~(uint32_t)S_ISUID;
	if (attr.mode & S_IXGRP)
		change->mode &= ~(uint32_t)S_ISGID;
}

static int set_size(struct gfuse *g, struct gfc_ref ref, struct gfuse_file *file, uint64_t size)
{
	if (file && file->writes) {
		file->written = true;
		return gfd_truncate(file->content, file->open, size);
	}
	return gfuse_truncate(g, ref, size);
}

/* What is written and not reported would set the time again. */
static int flush_before(struct gfuse *g, uint64_t ino, const struct gfc_change *change)
{
	bool write = false;

	if (!(change->mask & (GFC_SET_MTIME | GFC_SET_MTIME_NOW)) ||
	    gfd_lease_of(g->gfd, ino, &write, NULL) == 0 || !write)
		return 0;
	return gfd_flush_ino(g->gfd, ino);
}

void gfuse_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		   struct fuse_file_info *fi)
{
	struct gfuse *g = gfuse_of(req);
	struct gfuse_file *file = fi ? gfuse_file_of(fi) : NULL;
	struct gfc_change change = {0};
	struct gfc_attr attr;
	struct gfc_ref ref;
	int r = gfuse_ref(g, ino, &ref);

	if (r == 0)
		r = change_of(g, st, to_set, &change);
	gfuse_busy_begin(g->notify, ino);
	if (r == 0 && (to_set & FUSE_SET_ATTR_SIZE)) {
		r = set_size(g, ref, file, (uint64_t)st->st_size);
		clear_setid(req, ref, to_set, &change);
	}
	if (r == 0 && change.mask) {
		r = flush_before(g, ref.ino, &change);
		if (r == 0)
			r = gfc_setattr(g->gfc, ref, file ? file->open : NULL, &change, &attr);
		if (change.mask & GFC_SET_MODE)
			atomic_fetch_add(&g->chmods, 1);
	} else if (r == 0) {
		r = file ? gfd_getattr(file->content, file->open, &attr)
			 : getattr_by_ref(g, ino, &attr);
	}
	if (r < 0)
		gfuse_reply(req, r);
	else
		reply_attr(req, &attr);
	gfuse_busy_end(g->notify, ino);
}
