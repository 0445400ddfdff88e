/*
 * Extended attributes: user.* and gfs.* are metad's. There are no others, and the kernel asks for
 * some of them again and again, so metad is not bothered.
 */
#include "fuse/gfuse.h"
#include <sys/xattr.h>

#define XATTR_REMOVE 4u /* SetxattrRequest.flags */

static bool is_ours(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strncmp(name, "gfs.", 4) == 0;
}

/* 0 bytes: only how many there are. */
static void reply_buf(fuse_req_t req, const struct gx_buf *buf, size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, buf->bytes);
	else if (buf->bytes > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, (const char *)buf->data, buf->bytes);
}

void gfuse_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct gfuse *g = gfuse_of(req);
	struct gx_buf value;
	struct gfc_ref ref;
	int r;

	if (!is_ours(name)) {
		fuse_reply_err(req, strncmp(name, "security.", 9) == 0 ? ENODATA : EOPNOTSUPP);
		return;
	}
	gx_buf_init(&value, GFS_XATTR_VALUE_MAX);
	r = gfuse_ref(g, ino, &ref);
	if (r == 0)
		r = gfc_getxattr(g->gfc, ref, name, &value);
	if (r < 0)
		gfuse_reply(req, r);
	else
		reply_buf(req, &value, size);
	gx_buf_fini(&value);
}

static void set(fuse_req_t req, fuse_ino_t ino, const char *name, const void *value, size_t size,
		unsigned flags)
{
	struct gfuse *g = gfuse_of(req);
	struct gfc_ref ref;
	int r = is_ours(name) ? gfuse_ref(g, ino, &ref) : -EOPNOTSUPP;

	if (r == 0)
		r = gfc_setxattr(g->gfc, ref, name, value, size, flags);
	gfuse_reply(req, r);
}

void gfuse_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		    size_t size, int flags)
{
	unsigned ours = 0;

	if (flags & XATTR_CREATE)
		ours |= GFS_XATTR_CREATE;
	if (flags & XATTR_REPLACE)
		ours |= GFS_XATTR_REPLACE;
	set(req, ino, name, value, size, ours);
}

void gfuse_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	set(req, ino, name, NULL, 0, XATTR_REMOVE);
}

void gfuse_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct gfuse *g = gfuse_of(req);
	struct gx_buf names;
	struct gfc_ref ref;
	int r = gfuse_ref(g, ino, &ref);

	gx_buf_init(&names, GFS_XATTR_NAMES_MAX);
	if (r == 0)
		r = gfc_listxattr(g->gfc, ref, &names);
	if (r < 0)
		gfuse_reply(req, r);
	else
		reply_buf(req, &names, size);
	gx_buf_fini(&names);
}
