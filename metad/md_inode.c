#include "metad/md_inode.h"
#include "common/gx_num.h"

#define INODE_VERSION 1

static void key_put(struct md_key *key, const char *prefix, const uint64_t *numbers, size_t count,
		    const char *name, size_t name_bytes)
{
	size_t prefix_bytes = strlen(prefix);

	gx_assert(prefix_bytes + 8 * count + name_bytes <= sizeof(key->bytes));
	memcpy(key->bytes, prefix, prefix_bytes);
	key->count = prefix_bytes;
	for (size_t i = 0; i < count; i++) {
		gx_put_be64(key->bytes + key->count, numbers[i]);
		key->count += 8;
	}
	if (name_bytes > 0)
		memcpy(key->bytes + key->count, name, name_bytes);
	key->count += name_bytes;
}

void md_key_inode(struct md_key *key, uint64_t ino)
{
	key_put(key, "I", &ino, 1, NULL, 0);
}

void md_key_entry(struct md_key *key, uint64_t parent, const char *name, size_t name_bytes)
{
	key_put(key, "D", &parent, 1, name, name_bytes);
}

void md_key_xattr(struct md_key *key, uint64_t ino, const char *name, size_t name_bytes)
{
	key_put(key, "X", &ino, 1, name, name_bytes);
}

void md_key_content(struct md_key *key, uint64_t ino)
{
	key_put(key, "C", &ino, 1, NULL, 0);
}

void md_key_orphan(struct md_key *key, uint64_t ino)
{
	key_put(key, "O", &ino, 1, NULL, 0);
}

void md_key_open(struct md_key *key, uint64_t session, uint64_t handle)
{
	key_put(key, "So", (uint64_t[]){session, handle}, 2, NULL, 0);
}

void md_key_session(struct md_key *key, uint64_t session)
{
	key_put(key, "Ss", &session, 1, NULL, 0);
}

void md_key_replay(struct md_key *key, uint64_t session, uint64_t seq)
{
	key_put(key, "Sr", (uint64_t[]){session, seq}, 2, NULL, 0);
}

void md_key_counters(struct md_key *key)
{
	key_put(key, "Sc", NULL, 0, NULL, 0);
}

void md_key_super(struct md_key *key)
{
	key_put(key, "Sv", NULL, 0, NULL, 0);
}

void md_key_end(const struct md_key *prefix, struct md_key *ret_end)
{
	*ret_end = *prefix;
	while (ret_end->count > 0 && ret_end->bytes[ret_end->count - 1] == 0xff)
		ret_end->count--;
	gx_assert(ret_end->count > 0); /* our prefixes start with a letter */
	ret_end->bytes[ret_end->count - 1]++;
}

static bool type_valid(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return true;
	default:
		return false;
	}
}

/* What every inode of ours fulfils: asserted before writing, checked after reading. */
static bool inode_valid(const struct md_inode *inode)
{
	bool is_inline = inode->flags & MD_INODE_INLINE;

	return inode->ino != 0 && type_valid(inode->mode) &&
	       (inode->mode & ~(uint32_t)(S_IFMT | 07777)) == 0 &&
	       (inode->flags & ~(uint32_t)MD_INODE_INLINE) == 0 && inode->nlink <= MD_LINK_MAX &&
	       inode->xattrs <= MD_XATTRS_PER_INODE_MAX &&
	       S_ISDIR(inode->mode) == (inode->parent != 0) &&
	       (!is_inline ||
		((S_ISREG(inode->mode) || S_ISLNK(inode->mode)) && inode->size <= MD_INLINE_MAX));
}

static bool all_zero(const unsigned char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

void md_inode_encode(const struct md_inode *inode, unsigned char b[MD_INODE_BYTES])
{
	gx_assert(inode_valid(inode));
	memset(b, 0, MD_INODE_BYTES);
	b[0] = INODE_VERSION;
	gx_put_le32(b + 4, inode->mode);
	gx_put_le64(b + 8, inode->ino);
	gx_put_le32(b + 16, inode->nlink);
	gx_put_le32(b + 20, inode->uid);
	gx_put_le32(b + 24, inode->gid);
	gx_put_le32(b + 28, inode->flags);
	gx_put_le32(b + 32, inode->xattrs);
	gx_put_le64(b + 40, inode->size);
	gx_put_le64(b + 48, inode->rdev);
	gx_put_le64(b + 56, inode->parent);
	gx_put_le64(b + 64, (uint64_t)inode->atime_ns);
	gx_put_le64(b + 72, (uint64_t)inode->mtime_ns);
	gx_put_le64(b + 80, (uint64_t)inode->ctime_ns);
	gx_put_le64(b + 88, (uint64_t)inode->btime_ns);
	gx_put_le64(b + 96, inode->generation);
	gx_put_le64(b + 104, inode->version);
}

int md_inode_decode(const void *bytes, size_t byte_count, struct md_inode *ret_inode)
{
	const unsigned char *b = bytes;
	struct md_inode inode;

	if (byte_count != MD_INODE_BYTES || b[0] == 0)
		return -EBADMSG;
	if (b[0] > INODE_VERSION)
		return -EPROTONOSUPPORT;
	if (!all_zero(b + 1, 3) || !all_zero(b + 36, 4) || !all_zero(b + 112, 16))
		return -EBADMSG;
	inode = (struct md_inode){
		.mode = gx_get_le32(b + 4),
		.ino = gx_get_le64(b + 8),
		.nlink = gx_get_le32(b + 16),
		.uid = gx_get_le32(b + 20),
		.gid = gx_get_le32(b + 24),
		.flags = gx_get_le32(b + 28),
		.xattrs = gx_get_le32(b + 32),
		.size = gx_get_le64(b + 40),
		.rdev = gx_get_le64(b + 48),
		.parent = gx_get_le64(b + 56),
		.atime_ns = (int64_t)gx_get_le64(b + 64),
		.mtime_ns = (int64_t)gx_get_le64(b + 72),
		.ctime_ns = (int64_t)gx_get_le64(b + 80),
		.btime_ns = (int64_t)gx_get_le64(b + 88),
		.generation = gx_get_le64(b + 96),
		.version = gx_get_le64(b + 104),
	};
	if (!inode_valid(&inode))
		return -EBADMSG;
	*ret_inode = inode;
	return 0;
}

void md_entry_encode(uint64_t ino, uint32_t mode, unsigned char bytes[MD_ENTRY_BYTES])
{
	gx_assert(ino != 0 && type_valid(mode));
	gx_put_le64(bytes, ino);
	bytes[8] = (unsigned char)((mode & S_IFMT) >> 12);
}

int md_entry_decode(const void *bytes, size_t byte_count, uint64_t *ret_ino, uint32_t *ret_type)
{
	const unsigned char *b = bytes;

	if (byte_count != MD_ENTRY_BYTES || gx_get_le64(b) == 0 || b[8] > 15 ||
	    !type_valid((uint32_t)b[8] << 12))
		return -EBADMSG;
	*ret_ino = gx_get_le64(b);
	*ret_type = (uint32_t)b[8] << 12;
	return 0;
}

int md_name_check(const char *name)
{
	size_t bytes = strlen(name);

	if (bytes == 0)
		return -EINVAL;
	if (bytes > MD_NAME_MAX)
		return -ENAMETOOLONG;
	if (strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL;
	return 0;
}
