/*
 * Who may do what: mode bits and access control lists.
 *
 * Lists are extended attributes as far as storing goes (their bytes are what Linux programs give
 * and get); flags of the inode say that there are some, so that most inodes cost nothing. The mode
 * mirrors the access list at all times.
 */
#include "metad/md_acl.h"
#include "metad/md_state_impl.h"

static const char *const names[] = {"system.posix_acl_access", "system.posix_acl_default"};
static const uint32_t flags[] = {MD_INODE_ACL, MD_INODE_DEFAULT_ACL};
enum which { ACCESS, DEFAULT };

bool md_is_acl(const char *name)
{
	return strcmp(name, names[ACCESS]) == 0 || strcmp(name, names[DEFAULT]) == 0;
}

static int load(struct md_ctx *ctx, const struct md_inode *inode, enum which which,
		struct md_acl *ret_acl)
{
	const void *value;
	struct md_key key;
	size_t bytes;
	int r;

	ret_acl->count = 0;
	if (!(inode->flags & flags[which]))
		return 0;
	md_key_xattr(&key, inode->ino, names[which], strlen(names[which]));
	r = md_get(ctx, &key, &value, &bytes);
	if (r == 0)
		r = md_acl_decode(value, bytes, ret_acl);
	return r < 0 || ret_acl->count == 0 ? -EBADMSG : 0;
}

/* No entries: removes it. The inode is not stored. */
static void store(struct md_ctx *ctx, struct md_inode *inode, enum which which,
		  const struct md_acl *acl)
{
	bool has = inode->flags & flags[which];
	unsigned char bytes[MD_ACL_BYTES_MAX];
	struct md_key key;
	size_t count;

	if (!has && acl->count == 0)
		return;
	md_key_xattr(&key, inode->ino, names[which], strlen(names[which]));
	if (acl->count > 0) {
		count = md_acl_encode(acl, bytes);
		md_put(ctx, &key, bytes, count, false);
		inode->flags |= flags[which];
		inode->xattrs += !has;
	} else {
		md_delete(ctx, &key);
		inode->flags &= ~flags[which];
		inode->xattrs--;
	}
}

int md_may(struct md_ctx *ctx, const struct md_inode *inode, unsigned want)
{
	unsigned bits = inode->mode & 7;
	struct md_acl acl;
	int r;

	if (ctx->cred->uid == 0) {
		/* Root may all, but executes only what somebody may execute. */
		bool executable = S_ISDIR(inode->mode) || (inode->mode & 0111);

		return (want & MD_MAY_EXEC) && !executable ? -EACCES : 0;
	}
	if (ctx->cred->uid == inode->uid) {
		bits = (inode->mode >> 6) & 7;
	} else if (inode->flags & MD_INODE_ACL) {
		r = load(ctx, inode, ACCESS, &acl);
		if (r < 0)
			return r;
		return md_acl_allows(&acl, inode->uid, inode->gid, ctx->cred, want) ? 0 : -EACCES;
	} else if (md_in_group(ctx, inode->gid)) {
		bits = (inode->mode >> 3) & 7;
	}
	return (bits & want) == want ? 0 : -EACCES;
}

int md_acl_begin_new(struct md_ctx *ctx, const struct md_inode *dir, uint32_t umask, uint32_t *mode,
		     struct md_acls *ret_acls)
{
	int r;

	ret_acls->access.count = ret_acls->deflt.count = 0;
	if (S_ISLNK(*mode))
		return 0;
	if (!(dir->flags & MD_INODE_DEFAULT_ACL)) {
		*mode &= ~(umask & 0777);
		return 0;
	}
	r = load(ctx, dir, DEFAULT, &ret_acls->deflt);
	if (r < 0)
		return r;
	ret_acls->access = ret_acls->deflt;
	if (!md_acl_inherit(&ret_acls->access, mode))
		ret_acls->access.count = 0;
	if (!S_ISDIR(*mode))
		ret_acls->deflt.count = 0;
	return 0;
}

void md_acl_end_new(struct md_ctx *ctx, struct md_inode *inode, const struct md_acls *acls)
{
	store(ctx, inode, ACCESS, &acls->access);
	store(ctx, inode, DEFAULT, &acls->deflt);
}

int md_acl_begin_chmod(struct md_ctx *ctx, const struct md_inode *inode, uint32_t mode,
		       struct md_acls *ret_acls)
{
	int r = load(ctx, inode, ACCESS, &ret_acls->access);

	if (r == 0 && ret_acls->access.count > 0)
		md_acl_chmod(&ret_acls->access, mode);
	return r;
}

void md_acl_end_chmod(struct md_ctx *ctx, struct md_inode *inode, const struct md_acls *acls)
{
	if (acls->access.count > 0)
		store(ctx, inode, ACCESS, &acls->access);
}

/* The mode becomes what the list says; a list that says no more than a mode can is none. */
static void mirror(const struct md_ctx *ctx, struct md_inode *inode, struct md_acl *acl)
{
	uint32_t bits;

	if (acl->count == 0)
		return;
	if (!md_acl_mode(acl, &bits))
		acl->count = 0;
	inode->mode = (inode->mode & ~(uint32_t)0777) | bits;
	if (!md_in_group(ctx, inode->gid) && ctx->cred->uid != 0)
		inode->mode &= ~(uint32_t)S_ISGID;
}

int md_acl_set(struct md_ctx *ctx, struct md_inode *inode, const char *name, const void *value,
	       size_t bytes)
{
	enum which which = strcmp(name, names[ACCESS]) == 0 ? ACCESS : DEFAULT;
	struct md_acl acl;
	int r;

	if (S_ISLNK(inode->mode))
		return -EOPNOTSUPP;
	if (!md_owns(ctx, inode))
		return -EPERM;
	r = md_acl_decode(value, bytes, &acl);
	if (r < 0)
		return r;
	if (which == DEFAULT && !S_ISDIR(inode->mode))
		return acl.count > 0 ? -EACCES : 0;
	if (acl.count > 0 && !(inode->flags & flags[which]) &&
	    inode->xattrs >= MD_XATTRS_PER_INODE_MAX)
		return -ENOSPC;
	if (which == ACCESS)
		mirror(ctx, inode, &acl);
	store(ctx, inode, which, &acl);
	inode->ctime_ns = ctx->time_ns;
	md_put_inode(ctx, inode, false);
	if (S_ISDIR(inode->mode))
		for (unsigned i = 0; i < ctx->touched_count; i++)
			ctx->touched[i].rights |= ctx->touched[i].ino == inode->ino;
	return 0;
}
