#include "client/fs/gfs_impl.h"
#include "client/fs/gfs_path.h"

/* -- looking ------------------------------------------------------------------------------------
 */

static struct timespec time_of(int64_t ns)
{
	struct timespec ts = {ns / GX_NSEC_PER_SEC, ns % GX_NSEC_PER_SEC};

	if (ts.tv_nsec < 0) { /* before 1970 */
		ts.tv_sec--;
		ts.tv_nsec += GX_NSEC_PER_SEC;
	}
	return ts;
}

void gfs_stat_of(const struct gfc_attr *attr, struct gfs_stat *ret_st)
{
	*ret_st = (struct gfs_stat){
		.ino = attr->ref.ino,
		.mode = attr->mode,
		.nlink = attr->nlink,
		.uid = attr->uid,
		.gid = attr->gid,
		.size = attr->size,
		.rdev = attr->rdev,
		.atime = time_of(attr->atime_ns),
		.mtime = time_of(attr->mtime_ns),
		.ctime = time_of(attr->ctime_ns),
		.btime = time_of(attr->btime_ns),
		.generation = attr->generation,
		.version = attr->version,
	};
}

/*
 * This process shares the writing with others: what it knows may be newer than what metad knows,
 * or older than what another has told. metad can tell, once it has heard us as well.
 */
static int stat_shared(struct gfs *fs, struct gfc_attr *attr)
{
	bool write;

	if (gfd_lease_of(fs->gfd, attr->ref.ino, &write, NULL) != GFC_MODE_SHARED || !write)
		return 0;
	GX_IGNORE(gfd_flush_ino(fs->gfd, attr->ref.ino)); /* its file keeps the error */
	return gfc_getattr(fs->gfc, attr->ref, attr);
}

static int stat_path(struct gfs *fs, const char *path, bool follow, struct gfs_stat *ret_st)
{
	struct gfc_attr attr;
	int r = gfs_path_find(fs->gfc, path, follow, &attr);

	/* What this process has written counts, even if metad has not seen it yet. */
	if (r == 0 && atomic_load(&fs->holding) > 0 && S_ISREG(attr.mode)) {
		GX_IGNORE(gfs_files_flush(fs, attr.ref.ino)); /* its file keeps the error */
		r = gfc_getattr(fs->gfc, attr.ref, &attr);
	}
	if (r == 0 && atomic_load(&fs->large) > 0) {
		r = stat_shared(fs, &attr);
		gfd_correct_attr(fs->gfd, &attr);
	}
	if (r == 0)
		gfs_stat_of(&attr, ret_st);
	return (int)gfs_path_result(r, path);
}

int gfs_stat(struct gfs *fs, const char *path, struct gfs_stat *ret_st)
{
	return stat_path(fs, path, true, ret_st);
}

int gfs_lstat(struct gfs *fs, const char *path, struct gfs_stat *ret_st)
{
	return stat_path(fs, path, false, ret_st);
}

static ssize_t readlink_path(struct gfs *fs, const char *path, char *buf, size_t bytes)
{
	char target[GX_PATH_MAX];
	struct gfc_attr attr;
	int r;

	if (bytes == 0)
		return -EINVAL;
	r = gfs_path_find(fs->gfc, path, false, &attr);
	if (r == 0 && !S_ISLNK(attr.mode))
		r = -EINVAL;
	if (r == 0)
		r = gfc_readlink(fs->gfc, attr.ref, target);
	if (r < 0)
		return r;
	bytes = GX_MIN(bytes, strlen(target));
	memcpy(buf, target, bytes);
	return (ssize_t)bytes;
}

ssize_t gfs_readlink(struct gfs *fs, const char *path, char *buf, size_t bytes)
{
	return gfs_path_result(readlink_path(fs, path, buf, bytes), path);
}

/* -- making -------------------------------------------------------------------------------------
 */

/*
 * A slash behind a name that is to become anything but a directory: as Linux says it, it exists
 * or it never can.
 */
static int slash_problem(struct gfs_walk *walk)
{
	struct gfc_attr attr;
	int r = gfc_lookup(walk->gfc, walk->dir, walk->name, &attr);

	return r == 0 ? -EEXIST : r;
}

static int make(struct gfs *fs, const char *path, uint32_t mode, uint64_t rdev, const char *target)
{
	struct gfc_attr attr;
	struct gfs_walk walk;
	int r = gfs_walk_init(&walk, fs->gfc, path);

	if (r == 0)
		r = gfs_walk_parent(&walk);
	if (r == 0 && walk.last != GFS_LAST_NAME)
		r = -EEXIST;
	if (r == 0 && walk.slash && !S_ISDIR(mode))
		r = slash_problem(&walk);
	if (r == 0)
		r = gfc_make(fs->gfc, walk.dir, walk.name, mode, rdev, target, &attr);
	gfs_walk_fini(&walk);
	return r;
}

int gfs_mkdir(struct gfs *fs, const char *path, mode_t mode)
{
	return (int)gfs_path_result(make(fs, path, S_IFDIR | (mode & 07777), 0, NULL), path);
}

/* A directory after this, or an error. */
static int ensure_dir(struct gfs *fs, const char *path, mode_t mode)
{
	struct gfc_attr attr;
	int made = -EEXIST;
	int r = gfs_path_find(fs->gfc, path, true, &attr);

	if (r == -ENOENT) {
		made = make(fs, path, S_IFDIR | (mode & 07777), 0, NULL);
		if (made != -EEXIST)
			return made;
		/* Somebody was faster, or it is a link to nowhere. */
		r = gfs_path_find(fs->gfc, path, true, &attr);
	}
	if (r < 0)
		return r == -ENOENT ? made : r;
	return S_ISDIR(attr.mode) ? 0 : -EEXIST;
}

static int mkdir_all(struct gfs *fs, const char *path, mode_t mode)
{
	char text[GFS_PATH_MAX + 8]; /* with "gfs:" */
	struct gfc_attr attr;
	int r = gfs_path_find(fs->gfc, path, true, &attr);

	if (r == 0)
		return S_ISDIR(attr.mode) ? 0 : -EEXIST;
	if (r != -ENOENT)
		return r;
	if (path[0] == '\0')
		return -ENOENT;
	if (gx_strcpy(text, sizeof(text), path) < 0)
		return -ENAMETOOLONG;
	for (char *end = text + strspn(text, "/"); *end;) {
		char behind;

		end += strcspn(end, "/");
		behind = *end;
		*end = '\0';
		r = ensure_dir(fs, text, mode);
		if (r < 0)
			return r == -EEXIST && behind ? -ENOTDIR : r;
		*end = behind;
		end += strspn(end, "/");
	}
	return 0;
}

int gfs_mkdir_all(struct gfs *fs, const char *path, mode_t mode)
{
	return (int)gfs_path_result(mkdir_all(fs, path, mode), path);
}

static int mknod_path(struct gfs *fs, const char *path, mode_t mode, dev_t dev)
{
	mode_t type = mode & S_IFMT ? mode & S_IFMT : S_IFREG;
	bool device = type == S_IFBLK || type == S_IFCHR;

	if (type == S_IFDIR)
		return -EPERM;
	if (type == S_IFLNK)
		return -EINVAL;
	return make(fs, path, type | (mode & 07777), device ? dev : 0, NULL);
}

int gfs_mknod(struct gfs *fs, const char *path, mode_t mode, dev_t dev)
{
	return (int)gfs_path_result(mknod_path(fs, path, mode, dev), path);
}

static int symlink_path(struct gfs *fs, const char *target, const char *path)
{
	if (target[0] == '\0')
		return -ENOENT;
	if (strlen(target) >= GFS_PATH_MAX)
		return -ENAMETOOLONG;
	return make(fs, path, S_IFLNK | 0777, 0, target);
}

int gfs_symlink(struct gfs *fs, const char *target, const char *path)
{
	return (int)gfs_path_result(symlink_path(fs, target, path), path);
}

static int link_path(struct gfs *fs, const char *from, const char *to)
{
	struct gfc_attr attr;
	struct gfs_walk walk;
	int r = gfs_path_find(fs->gfc, from, false, &attr);

	if (r < 0)
		return r;
	r = gfs_walk_init(&walk, fs->gfc, to);
	if (r == 0)
		r = gfs_walk_parent(&walk);
	if (r == 0 && walk.last != GFS_LAST_NAME)
		r = -EEXIST;
	if (r == 0 && walk.slash)
		r = slash_problem(&walk);
	if (r == 0)
		r = gfc_link(fs->gfc, attr.ref, walk.dir, walk.name, &attr);
	gfs_walk_fini(&walk);
	return r;
}

int gfs_link(struct gfs *fs, const char *from, const char *to)
{
	return (int)gfs_path_result(link_path(fs, from, to), to);
}

/* -- removing -----------------------------------------------------------------------------------
 */

static int unlink_last(struct gfs_walk *walk)
{
	struct gfc_attr attr;
	int r;

	if (walk->last != GFS_LAST_NAME)
		return -EISDIR;
	if (!walk->slash)
		return gfc_unlink(walk->gfc, walk->dir, walk->name, false);
	/* Never removes anything: what a slash allows, unlink does not. */
	r = gfc_lookup(walk->gfc, walk->dir, walk->name, &attr);
	if (r < 0)
		return r;
	return S_ISDIR(attr.mode) ? -EISDIR : -ENOTDIR;
}

static int rmdir_last(struct gfs_walk *walk)
{
	switch (walk->last) {
	case GFS_LAST_ROOT:
		return -EBUSY;
	case GFS_LAST_DOT:
		return -EINVAL;
	case GFS_LAST_DOTDOT:
		return -ENOTEMPTY;
	case GFS_LAST_NAME:
	case GFS_LAST_COUNT:
		break;
	}
	return gfc_unlink(walk->gfc, walk->dir, walk->name, true);
}

static int remove_path(struct gfs *fs, const char *path, int (*remove_last)(struct gfs_walk *))
{
	struct gfs_walk walk;
	int r = gfs_walk_init(&walk, fs->gfc, path);

	if (r == 0)
		r = gfs_walk_parent(&walk);
	if (r == 0)
		r = remove_last(&walk);
	gfs_walk_fini(&walk);
	return r;
}

int gfs_unlink(struct gfs *fs, const char *path)
{
	return (int)gfs_path_result(remove_path(fs, path, unlink_last), path);
}

int gfs_rmdir(struct gfs *fs, const char *path)
{
	return (int)gfs_path_result(remove_path(fs, path, rmdir_last), path);
}

/* -- moving -------------------------------------------------------------------------------------
 */

static int renamable(const struct gfs_walk *walk)
{
	if (walk->last == GFS_LAST_ROOT)
		return -EBUSY;
	return walk->last == GFS_LAST_NAME ? 0 : -EINVAL;
}

static int must_be_dir(struct gfs_walk *walk)
{
	struct gfc_attr attr;
	int r = gfc_lookup(walk->gfc, walk->dir, walk->name, &attr);

	if (r < 0)
		return r;
	return S_ISDIR(attr.mode) ? 0 : -ENOTDIR;
}

static int rename_last(struct gfs_walk *from, struct gfs_walk *to, unsigned flags)
{
	bool exchange = flags & GFS_RENAME_EXCHANGE;
	int r = renamable(from);

	if (r == 0)
		r = renamable(to);
	/* A slash behind the new name says that a directory arrives there. */
	if (r == 0 && (from->slash || (to->slash && !exchange)))
		r = must_be_dir(from);
	if (r == 0 && to->slash && exchange)
		r = must_be_dir(to);
	if (r < 0)
		return r;
	return gfc_rename(from->gfc, from->dir, from->name, to->dir, to->name, flags);
}

static int rename_path(struct gfs *fs, const char *from, const char *to, unsigned flags)
{
	struct gfs_walk a, b;
	int r;

	if ((flags & ~(GFS_RENAME_NOREPLACE | GFS_RENAME_EXCHANGE)) ||
	    flags == (GFS_RENAME_NOREPLACE | GFS_RENAME_EXCHANGE))
		return -EINVAL;
	r = gfs_walk_init(&a, fs->gfc, from);
	if (r == 0)
		r = gfs_walk_parent(&a);
	if (r == 0) {
		r = gfs_walk_init(&b, fs->gfc, to);
		if (r == 0)
			r = gfs_walk_parent(&b);
		if (r == 0)
			r = rename_last(&a, &b, flags);
		gfs_walk_fini(&b);
	}
	gfs_walk_fini(&a);
	return r;
}

int gfs_rename(struct gfs *fs, const char *from, const char *to, unsigned flags)
{
	return (int)gfs_path_result(rename_path(fs, from, to, flags), from);
}

/* -- changing -----------------------------------------------------------------------------------
 */

/* Held writes come before what is done now: their time must not win over ours. */
static void flush_before(struct gfs *fs, uint64_t ino)
{
	/* Its file keeps the error. */
	if (atomic_load(&fs->holding) > 0)
		GX_IGNORE(gfs_files_flush(fs, ino));
	if (atomic_load(&fs->large) > 0)
		GX_IGNORE(gfd_flush_ino(fs->gfd, ino));
}

static int change(struct gfs *fs, const char *path, bool follow, const struct gfc_change *change)
{
	struct gfc_attr attr;
	int r = gfs_path_find(fs->gfc, path, follow, &attr);

	if (r == 0)
		flush_before(fs, attr.ref.ino);
	if (r == 0 && change->mask != 0)
		r = gfc_setattr(fs->gfc, attr.ref, NULL, change, &attr);
	return (int)gfs_path_result(r, path);
}

int gfs_chmod(struct gfs *fs, const char *path, mode_t mode)
{
	struct gfc_change c = {.mask = GFC_SET_MODE, .mode = mode & 07777};

	return change(fs, path, true, &c);
}

int gfs_chown(struct gfs *fs, const char *path, uid_t uid, gid_t gid, bool follow)
{
	struct gfc_change c = {.uid = uid, .gid = gid};

	if (uid != (uid_t)-1)
		c.mask |= GFC_SET_UID;
	if (gid != (gid_t)-1)
		c.mask |= GFC_SET_GID;
	return change(fs, path, follow, &c);
}

/* One of the two times; `set` and `now` are its bits. */
static int time_change(const struct timespec *ts, uint32_t set, uint32_t now, uint32_t *mask,
		       int64_t *ret_ns)
{
	if (!ts || ts->tv_nsec == UTIME_NOW) {
		*mask |= now;
		return 0;
	}
	if (ts->tv_nsec == UTIME_OMIT)
		return 0;
	if (ts->tv_nsec < 0 || ts->tv_nsec >= GX_NSEC_PER_SEC ||
	    __builtin_mul_overflow((int64_t)ts->tv_sec, GX_NSEC_PER_SEC, ret_ns) ||
	    __builtin_add_overflow(*ret_ns, (int64_t)ts->tv_nsec, ret_ns))
		return -EINVAL;
	*mask |= set;
	return 0;
}

int gfs_utimens(struct gfs *fs, const char *path, const struct timespec times[2], bool follow)
{
	struct gfc_change c = {0};
	int r = time_change(times ? &times[0] : NULL, GFC_SET_ATIME, GFC_SET_ATIME_NOW, &c.mask,
			    &c.atime_ns);

	if (r == 0)
		r = time_change(times ? &times[1] : NULL, GFC_SET_MTIME, GFC_SET_MTIME_NOW, &c.mask,
				&c.mtime_ns);
	if (r < 0)
		return (int)gfs_path_result(r, path);
	return change(fs, path, follow, &c);
}

static int truncate_path(struct gfs *fs, const char *path, uint64_t size)
{
	struct gfc_change c = {.mask = GFC_SET_SIZE, .size = size};
	struct gfc_attr attr;
	bool leased, write;
	int r = gfs_path_find(fs->gfc, path, true, &attr);

	if (r < 0)
		return r;
	if (S_ISDIR(attr.mode))
		return -EISDIR;
	if (size > INT64_MAX)
		return -EFBIG;
	if (!S_ISREG(attr.mode))
		return gfc_setattr(fs->gfc, attr.ref, NULL, &c, &attr);
	flush_before(fs, attr.ref.ino);
	leased = gfd_lease_of(fs->gfd, attr.ref.ino, &write, NULL) != 0;
	/* metad does it alone if it has all the bytes, before and after; else it says -EFBIG. */
	r = -EFBIG;
	if ((attr.flags & GFC_ATTR_INLINE) && size <= GX_INLINE_MAX && !leased)
		r = gfc_setattr(fs->gfc, attr.ref, NULL, &c, &attr);
	return r == -EFBIG ? gfs_content_truncate(fs, attr.ref, size) : r;
}

int gfs_truncate(struct gfs *fs, const char *path, uint64_t size)
{
	return (int)gfs_path_result(truncate_path(fs, path, size), path);
}
