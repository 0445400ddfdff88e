#include "client/fs/gfs_impl.h"
#include "client/fs/gfs_path.h"

#define XATTR_REMOVE 4u /* SetxattrRequest */

/* As POSIX callers want it: the size alone, all of it, or -ERANGE. */
static ssize_t hand_out(const struct gx_buf *from, void *buf, size_t bytes)
{
	if (bytes == 0)
		return (ssize_t)from->bytes;
	if (from->bytes > bytes)
		return -ERANGE;
	if (from->bytes > 0)
		memcpy(buf, from->data, from->bytes);
	return (ssize_t)from->bytes;
}

ssize_t gfs_getxattr(struct gfs *fs, const char *path, const char *name, void *value, size_t bytes,
		     bool follow)
{
	struct gfc_attr attr;
	struct gx_buf buf;
	ssize_t n;

	gx_buf_init(&buf, GFS_XATTR_VALUE_MAX);
	n = gfs_path_find(fs->gfc, path, follow, &attr);
	if (n == 0)
		n = gfc_getxattr(fs->gfc, attr.ref, name, &buf);
	if (n >= 0)
		n = hand_out(&buf, value, bytes);
	gx_buf_fini(&buf);
	return gfs_path_result(n, path);
}

static int set(struct gfs *fs, const char *path, const char *name, const void *value, size_t bytes,
	       unsigned flags, bool follow)
{
	struct gfc_attr attr;
	int r;

	if (bytes > GFS_XATTR_VALUE_MAX)
		return -E2BIG;
	r = gfs_path_find(fs->gfc, path, follow, &attr);
	if (r == 0)
		r = gfc_setxattr(fs->gfc, attr.ref, name, value, bytes, flags);
	return r;
}

int gfs_setxattr(struct gfs *fs, const char *path, const char *name, const void *value,
		 size_t bytes, unsigned flags, bool follow)
{
	int r = -EINVAL;

	if (!(flags & ~(GFS_XATTR_CREATE | GFS_XATTR_REPLACE)))
		r = set(fs, path, name, value, bytes, flags, follow);
	return (int)gfs_path_result(r, path);
}

int gfs_removexattr(struct gfs *fs, const char *path, const char *name, bool follow)
{
	return (int)gfs_path_result(set(fs, path, name, NULL, 0, XATTR_REMOVE, follow), path);
}

ssize_t gfs_listxattr(struct gfs *fs, const char *path, char *list, size_t bytes, bool follow)
{
	struct gfc_attr attr;
	struct gx_buf buf;
	ssize_t n;

	gx_buf_init(&buf, GFS_XATTR_NAMES_MAX);
	n = gfs_path_find(fs->gfc, path, follow, &attr);
	if (n == 0)
		n = gfc_listxattr(fs->gfc, attr.ref, &buf);
	if (n >= 0)
		n = hand_out(&buf, list, bytes);
	gx_buf_fini(&buf);
	return gfs_path_result(n, path);
}
