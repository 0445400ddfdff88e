/*
 * Inodes: attributes, inline content, extended attributes, the right to open.
 */
#include "common/gx_num.h"
#include "metad/md_layout.h"
#include "metad/md_state_impl.h"

#define SET_MODE 1u
#define SET_UID 2u
#define SET_GID 4u
#define SET_SIZE 8u
#define SET_ATIME 16u
#define SET_MTIME 32u
#define SET_ATIME_NOW 64u
#define SET_MTIME_NOW 128u
#define SET_ALL 255u

#define OPEN_READ 1u
#define OPEN_WRITE 2u
#define OPEN_TRUNCATE 16u

int md_state_getattr(struct md_ctx *ctx, const PbMeta__GetattrRequest *request,
		     PbMeta__GetattrReply *reply)
{
	struct md_inode inode;
	int r = md_get_inode(ctx, request->ino, &inode);

	if (r == 0)
		r = md_new_attr(ctx, &reply->attr);
	if (r < 0)
		return r;
	md_fill_attr(&inode, reply->attr);
	return 0;
}

int md_state_may_open(struct md_ctx *ctx, uint64_t ino, uint32_t flags, PbMeta__Attr *attr)
{
	struct md_inode inode;
	unsigned want =
		(flags & OPEN_READ ? MD_MAY_READ : 0) | (flags & OPEN_WRITE ? MD_MAY_WRITE : 0);
	int r = md_get_inode(ctx, ino, &inode);

	if (r < 0)
		return r;
	if (S_ISLNK(inode.mode))
		return -ELOOP;
	if (S_ISDIR(inode.mode) && (flags & OPEN_WRITE))
		return -EISDIR;
	r = md_may(ctx, &inode, want);
	if (r < 0)
		return r;
	md_fill_attr(&inode, attr);
	return 0;
}

/* Is there inline content to read or write? */
static int check_inline(const struct md_inode *inode)
{
	if (S_ISDIR(inode->mode))
		return -EISDIR;
	if (!S_ISREG(inode->mode))
		return -EINVAL;
	/* It has grown out (rule N10): the bytes are elsewhere. */
	return inode->flags & MD_INODE_INLINE ? 0 : -EFBIG;
}

/* -- setattr ---------------------------------------------------------------------------- */

void md_clear_setid(struct md_inode *inode)
{
	if (!S_ISREG(inode->mode))
		return;
	inode->mode &= ~(uint32_t)S_ISUID;
	if (inode->mode & S_IXGRP)
		inode->mode &= ~(uint32_t)S_ISGID;
}

static int check_owner_change(const struct md_ctx *ctx, const struct md_inode *inode,
			      const PbMeta__SetattrRequest *request)
{
	if (((request->mask & SET_UID) && request->uid == UINT32_MAX) ||
	    ((request->mask & SET_GID) && request->gid == UINT32_MAX))
		return -EINVAL; /* "leave it" to chown(), nobody's number */
	if (ctx->cred->uid == 0)
		return 0;
	if ((request->mask & SET_UID) && request->uid != inode->uid)
		return -EPERM;
	if ((request->mask & SET_GID) && request->gid != inode->gid &&
	    (ctx->cred->uid != inode->uid || !md_in_group(ctx, request->gid)))
		return -EPERM;
	return md_owns(ctx, inode) ? 0 : -EPERM;
}

static int check_setattr(struct md_ctx *ctx, const struct md_inode *inode,
			 const struct md_command *command, const PbMeta__SetattrRequest *request)
{
	uint32_t mask = request->mask;
	bool by_handle = command->flags & MD_COMMAND_HANDLE;
	int r = 0;

	if (mask & ~SET_ALL)
		return -EINVAL;
	if ((mask & SET_MODE) && S_ISLNK(inode->mode))
		return -EOPNOTSUPP;
	if ((mask & SET_MODE) && !md_owns(ctx, inode))
		return -EPERM;
	if (mask & (SET_UID | SET_GID))
		r = check_owner_change(ctx, inode, request);
	if (r == 0 && (mask & SET_SIZE)) {
		r = check_inline(inode);
		if (r == 0 && !by_handle)
			r = md_may(ctx, inode, MD_MAY_WRITE);
		if (r == 0 && request->size > MD_INLINE_MAX)
			r = -EFBIG;
	}
	if (r == 0 && (mask & (SET_ATIME | SET_MTIME)) && !md_owns(ctx, inode))
		return -EPERM;
	/* "Now" is for everybody who may write: it is what writing does, too. */
	if (r == 0 && (mask & (SET_ATIME_NOW | SET_MTIME_NOW)) && !md_owns(ctx, inode) &&
	    !by_handle)
		r = md_may(ctx, inode, MD_MAY_WRITE);
	return r;
}

/* Content cut or filled with zeros to `size`. */
static int resize(struct md_ctx *ctx, struct md_inode *inode, uint64_t size)
{
	unsigned char content[MD_INLINE_MAX] = {0};
	const void *old;
	size_t bytes;
	int r = md_get_content(ctx, inode->ino, &old, &bytes);

	if (r < 0)
		return r;
	if (bytes != inode->size)
		return -EBADMSG;
	memcpy(content, old, GX_MIN((uint64_t)bytes, size));
	md_put_content(ctx, inode->ino, content, size);
	md_count(ctx, 0, (int64_t)size - (int64_t)inode->size);
	inode->size = size;
	return 0;
}

int md_open_truncate(struct md_ctx *ctx, const PbMeta__OpenRequest *request,
		     PbMeta__OpenReply *reply)
{
	PbMeta__LayoutRecord *layout;
	struct md_inode inode;
	int r;

	if (!(request->flags & OPEN_TRUNCATE))
		return -EEXIST;
	r = md_get_inode(ctx, request->ino, &inode);
	if (r == 0) {
		r = check_inline(&inode);
		r = r == -EFBIG ? 0 : r; /* the content comes back by going */
	}
	if (r == 0)
		r = md_may(ctx, &inode,
			   MD_MAY_WRITE | (request->flags & OPEN_READ ? MD_MAY_READ : 0));
	if (r == 0)
		r = md_new_attr(ctx, &reply->attr);
	if (r == 0)
		r = md_load_layout(ctx, &inode, &layout);
	if (r == 0 && (inode.flags & MD_INODE_INLINE) && inode.size > 0)
		r = resize(ctx, &inode, 0);
	if (r == 0 && layout) {
		md_drop_layout(ctx, inode.ino, layout);
		inode.generation = md_next_generation(&inode, layout);
		inode.flags = (inode.flags & ~(uint32_t)MD_INODE_WRITING) | MD_INODE_INLINE;
		inode.size = 0;
	}
	if (r < 0)
		return r;
	if (ctx->changed) {
		inode.mtime_ns = inode.ctime_ns = ctx->time_ns;
		if (ctx->cred->uid != 0)
			md_clear_setid(&inode);
		md_put_inode(ctx, &inode, false);
	}
	md_fill_attr(&inode, reply->attr);
	return 0;
}

int md_apply_setattr(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		     ProtobufCMessage *reply)
{
	const PbMeta__SetattrRequest *request = (const PbMeta__SetattrRequest *)command->request;
	PbMeta__SetattrReply *out = (PbMeta__SetattrReply *)reply;
	struct md_inode inode;
	struct md_acls acls;
	uint32_t mask = request->mask;
	int r;

	r = md_get_inode(ctx, request->ino, &inode);
	if (r == 0)
		r = check_setattr(ctx, &inode, command, request);
	if (r == 0)
		r = md_new_attr(ctx, &out->attr);
	if (r == 0 && (mask & SET_MODE))
		r = md_acl_begin_chmod(ctx, &inode, request->mode, &acls);
	if (r == 0 && (mask & SET_SIZE))
		r = resize(ctx, &inode, request->size);
	if (r < 0)
		return r;
	md_fill_attr(&inode, out->attr);
	if (mask == 0)
		return 0; /* for anybody, so it changes nothing */
	if (mask & SET_SIZE) {
		inode.mtime_ns = ctx->time_ns;
		if (ctx->cred->uid != 0)
			md_clear_setid(&inode);
	}
	if (mask & (SET_UID | SET_GID))
		md_clear_setid(&inode);
	if (mask & SET_UID)
		inode.uid = request->uid;
	if (mask & SET_GID)
		inode.gid = request->gid;
	if (mask & SET_MODE) {
		inode.mode = (inode.mode & S_IFMT) | (request->mode & 07777);
		if (!md_in_group(ctx, inode.gid) && ctx->cred->uid != 0)
			inode.mode &= ~(uint32_t)S_ISGID;
		md_acl_end_chmod(ctx, &inode, &acls);
	}
	if (mask & (SET_ATIME | SET_ATIME_NOW))
		inode.atime_ns = mask & SET_ATIME ? request->atime_ns : ctx->time_ns;
	if (mask & (SET_MTIME | SET_MTIME_NOW))
		inode.mtime_ns = mask & SET_MTIME ? request->mtime_ns : ctx->time_ns;
	inode.ctime_ns = ctx->time_ns;
	md_put_inode(ctx, &inode, false);
	if (S_ISDIR(inode.mode) && (mask & (SET_MODE | SET_UID | SET_GID)))
		ctx->touched[0].rights = true;
	md_fill_attr(&inode, out->attr);
	return 0;
}

/* -- inline content -----------------------------------------------------------------------------
 */

int md_state_read(struct md_ctx *ctx, uint64_t ino, uint64_t offset, uint32_t bytes,
		  PbMeta__ReadReply *reply, const void **ret_data, size_t *ret_bytes)
{
	struct md_inode inode;
	const void *content;
	unsigned char *copy;
	size_t have;
	int r;

	r = md_get_inode(ctx, ino, &inode);
	if (r == 0)
		r = check_inline(&inode);
	if (r == 0)
		r = md_new_attr(ctx, &reply->attr);
	if (r == 0)
		r = md_get_content(ctx, ino, &content, &have);
	if (r < 0)
		return r;
	md_fill_attr(&inode, reply->attr);
	*ret_bytes = 0;
	*ret_data = "";
	if (offset >= have)
		return 0;
	have = GX_MIN(have - (size_t)offset, (size_t)bytes);
	copy = rpc_arena_alloc(ctx->arena, have);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, (const unsigned char *)content + offset, have);
	*ret_data = copy;
	*ret_bytes = have;
	return 0;
}

/* How much of the payload is written: all, or what lies within the file. */
static size_t write_bytes(const struct md_command *command, const struct md_inode *inode)
{
	const PbMeta__WriteRequest *request = (const PbMeta__WriteRequest *)command->request;

	if (!request->within)
		return command->payload_bytes;
	if (request->offset >= inode->size)
		return 0;
	return (size_t)GX_MIN((uint64_t)command->payload_bytes, inode->size - request->offset);
}

int md_apply_write(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		   ProtobufCMessage *reply)
{
	const PbMeta__WriteRequest *request = (const PbMeta__WriteRequest *)command->request;
	PbMeta__WriteReply *out = (PbMeta__WriteReply *)reply;
	unsigned char content[MD_INLINE_MAX] = {0};
	struct md_inode inode;
	const void *old;
	size_t old_bytes;
	uint64_t offset, end;
	size_t bytes;
	int r;

	r = md_get_inode(ctx, request->ino, &inode);
	if (r == 0)
		r = check_inline(&inode);
	if (r == 0 && !(command->flags & MD_COMMAND_HANDLE))
		r = md_may(ctx, &inode, MD_MAY_WRITE);
	if (r == 0)
		r = md_new_attr(ctx, &out->attr);
	if (r == 0 && request->within && (request->append || request->truncate))
		r = -EINVAL;
	if (r < 0)
		return r;
	offset = request->append ? inode.size : request->offset;
	/* Growing out of inline is another command (rule N10). */
	bytes = write_bytes(command, &inode);
	if (bytes == 0 && request->within)
		offset = 0;
	if (offset > MD_INLINE_MAX || bytes > MD_INLINE_MAX - offset)
		return -EFBIG;
	end = offset + bytes;
	if (!request->truncate)
		end = GX_MAX(end, inode.size);
	/* Without bytes nothing grows, but what is behind may still go. */
	if (bytes > 0 || (request->truncate && end < inode.size)) {
		/* A file that is empty has no such key: a new one need not ask the store for it. */
		if (inode.size > 0) {
			r = md_get_content(ctx, inode.ino, &old, &old_bytes);
			if (r < 0)
				return r;
			if (old_bytes != inode.size)
				return -EBADMSG;
			memcpy(content, old, GX_MIN((uint64_t)old_bytes, end));
		}
		if (bytes > 0)
			memcpy(content + offset, command->payload, bytes);
		md_put_content(ctx, inode.ino, content, end);
		md_count(ctx, 0, (int64_t)end - (int64_t)inode.size);
		inode.size = end;
		inode.mtime_ns = inode.ctime_ns = ctx->time_ns;
		if (ctx->cred->uid != 0)
			md_clear_setid(&inode);
		md_put_inode(ctx, &inode, false);
	}
	md_fill_attr(&inode, out->attr);
	out->offset = offset;
	return 0;
}

/* -- extended attributes ---------------------------------------------------------------- */

#define XATTR_CREATE_FLAG 1u
#define XATTR_REPLACE_FLAG 2u
#define XATTR_REMOVE_FLAG 4u

/* user.* belongs to who may read and write the file; gfs.* to its owner. */
static int check_xattr(struct md_ctx *ctx, const struct md_inode *inode, const char *name,
		       bool write)
{
	size_t bytes = strlen(name);
	bool ours = strncmp(name, "gfs.", 4) == 0;

	if (bytes > MD_NAME_MAX)
		return -ERANGE;
	if (md_is_acl(name)) /* everybody may look; md_acl_set() says who may change */
		return 0;
	if (!ours && strncmp(name, "user.", 5) != 0)
		return -EOPNOTSUPP;
	if (bytes == (ours ? 4u : 5u))
		return -EINVAL;
	if (ours)
		return write && !md_owns(ctx, inode) ? -EPERM : 0;
	/* As on local filesystems: only files and directories, sticky ones for their owner. */
	if (!S_ISREG(inode->mode) && !S_ISDIR(inode->mode))
		return write ? -EPERM : -ENODATA;
	if (write && S_ISDIR(inode->mode) && (inode->mode & S_ISVTX) && !md_owns(ctx, inode))
		return -EPERM;
	return md_may(ctx, inode, write ? MD_MAY_WRITE : MD_MAY_READ);
}

/*
 * Attributes that are fields of the inode. gfs.ncopy, the wanted copies, is always there, but
 * listed only if somebody has set it, here or above; removing it brings the default back.
 * gfs.generation is only to be looked at, and not listed: who copies all attributes of a file would
 * fail.
 */
static const char ncopy_name[] = "gfs.ncopy";
static const char generation_name[] = "gfs.generation";

static bool is_field(const struct md_inode *inode, const char *name)
{
	return (S_ISREG(inode->mode) || S_ISDIR(inode->mode)) &&
	       (strcmp(name, ncopy_name) == 0 || strcmp(name, generation_name) == 0);
}

static int set_field(struct md_ctx *ctx, struct md_inode *inode,
		     const PbMeta__SetxattrRequest *request)
{
	PbMeta__LayoutRecord *layout;
	char text[24] = "";
	uint64_t ncopy = 0;
	int r;

	if (strcmp(request->name, ncopy_name) != 0)
		return -EPERM;
	if (request->flags & XATTR_CREATE_FLAG)
		return -EEXIST;
	if (!(request->flags & XATTR_REMOVE_FLAG)) {
		if (request->value.len >= sizeof(text))
			return -EINVAL;
		if (request->value.len > 0)
			memcpy(text, request->value.data, request->value.len);
		if (gx_parse_u64(text, &ncopy) < 0 || ncopy < 1 || ncopy > MD_NCOPY_MAX)
			return -EINVAL;
	}
	r = md_load_layout(ctx, inode, &layout);
	if (r < 0)
		return r;
	inode->ncopy = (uint32_t)ncopy;
	inode->ctime_ns = ctx->time_ns;
	md_put_inode(ctx, inode, false);
	md_balance(ctx, inode, layout);
	return 0;
}

static int get_xattr(struct md_ctx *ctx, uint64_t ino, const char *name, const void **ret_value,
		     size_t *ret_bytes)
{
	struct md_tag tag = {0, 0};
	struct md_key key;
	int r;

	md_key_xattr(&key, ino, name, strlen(name));
	r = md_kv_get(ctx->state->kv, key.bytes, key.count, ret_value, ret_bytes, &tag);
	if (r == -ENOENT)
		md_kv_tag(ctx->state->kv, key.bytes, key.count, &tag);
	md_depend(ctx, &tag);
	return r == -ENOENT ? -ENODATA : r;
}

int md_state_getxattr(struct md_ctx *ctx, const PbMeta__GetxattrRequest *request,
		      PbMeta__GetxattrReply *reply)
{
	struct md_inode inode;
	const void *value;
	char text[24];
	size_t bytes;
	int r;

	r = md_get_inode(ctx, request->ino, &inode);
	if (r == 0)
		r = check_xattr(ctx, &inode, request->name, false);
	if (r < 0)
		return r;
	if (is_field(&inode, request->name)) {
		bool is_ncopy = strcmp(request->name, ncopy_name) == 0;

		GX_IGNORE(gx_format(
			text, sizeof(text), "%llu",
			(unsigned long long)(is_ncopy ? md_ncopy(&inode) : inode.generation)));
		value = text;
		bytes = strlen(text);
	} else {
		r = get_xattr(ctx, inode.ino, request->name, &value, &bytes);
		if (r < 0)
			return r;
	}
	reply->value.data = rpc_arena_alloc(ctx->arena, bytes);
	if (!reply->value.data)
		return -ENOMEM;
	memcpy(reply->value.data, value, bytes);
	reply->value.len = bytes;
	return 0;
}

int md_apply_setxattr(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		      ProtobufCMessage *reply GX_UNUSED)
{
	const PbMeta__SetxattrRequest *request = (const PbMeta__SetxattrRequest *)command->request;
	bool remove = request->flags & XATTR_REMOVE_FLAG;
	struct md_inode inode;
	const void *value;
	struct md_key key;
	size_t bytes;
	bool exists;
	int r;

	r = md_get_inode(ctx, request->ino, &inode);
	if (r == 0)
		r = check_xattr(ctx, &inode, request->name, true);
	if (r < 0)
		return r;
	if (request->flags & ~(XATTR_CREATE_FLAG | XATTR_REPLACE_FLAG | XATTR_REMOVE_FLAG) ||
	    (remove && (request->flags != XATTR_REMOVE_FLAG || request->value.len > 0)))
		return -EINVAL;
	if (is_field(&inode, request->name))
		return set_field(ctx, &inode, request);
	if (md_is_acl(request->name))
		return md_acl_set(ctx, &inode, request->name, request->value.data,
				  request->value.len);
	r = get_xattr(ctx, inode.ino, request->name, &value, &bytes);
	if (r < 0 && r != -ENODATA)
		return r;
	exists = r == 0;
	if (exists && (request->flags & XATTR_CREATE_FLAG))
		return -EEXIST;
	if (!exists && (remove || (request->flags & XATTR_REPLACE_FLAG)))
		return -ENODATA;
	if (!remove && request->value.len > MD_XATTR_VALUE_MAX)
		return -E2BIG;
	if (!remove && !exists && inode.xattrs >= MD_XATTRS_PER_INODE_MAX)
		return -ENOSPC;
	md_key_xattr(&key, inode.ino, request->name, strlen(request->name));
	if (remove)
		md_delete(ctx, &key);
	else
		md_put(ctx, &key, request->value.data, request->value.len, false);
	inode.xattrs = inode.xattrs + (!exists && !remove) - (exists && remove);
	inode.ctime_ns = ctx->time_ns;
	md_put_inode(ctx, &inode, false);
	return 0;
}

#define LISTED_MAX (MD_XATTRS_PER_INODE_MAX + 1) /* and gfs.ncopy */

struct name_list {
	struct md_ctx *ctx;
	const struct md_inode *inode;
	PbMeta__ListxattrReply *reply;
};

static int list_name(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
		     size_t value_bytes GX_UNUSED, const struct md_tag *tag)
{
	struct name_list *list = arg;
	size_t bytes = key_bytes - 9;
	char *name = rpc_arena_alloc(list->ctx->arena, bytes + 1);

	md_depend(list->ctx, tag);
	if (!name || list->reply->n_names >= LISTED_MAX)
		return -ENOMEM;
	memcpy(name, (const char *)key + 9, bytes);
	name[bytes] = '\0';
	if (is_field(list->inode, name))
		return 0; /* stored when it was none */
	list->reply->names[list->reply->n_names++] = name;
	return 0;
}

int md_state_listxattr(struct md_ctx *ctx, const PbMeta__ListxattrRequest *request,
		       PbMeta__ListxattrReply *reply)
{
	struct md_inode inode;
	struct name_list list = {.ctx = ctx, .inode = &inode, .reply = reply};
	struct md_key from, to;
	int r;

	r = md_get_inode(ctx, request->ino, &inode);
	if (r < 0)
		return r;
	reply->names = rpc_arena_alloc(ctx->arena, LISTED_MAX * sizeof(char *));
	if (!reply->names)
		return -ENOMEM;
	if (inode.ncopy > 0)
		reply->names[reply->n_names++] = (char *)(uintptr_t)ncopy_name;
	md_key_xattr(&from, inode.ino, NULL, 0);
	md_key_end(&from, &to);
	return md_kv_scan(ctx->state->kv, from.bytes, from.count, to.bytes, to.count, list_name,
			  &list);
}
