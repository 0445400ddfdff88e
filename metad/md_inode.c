#include "metad/md_inode.h"
#include "common/gx_limits.h"
#include "common/gx_num.h"
#include <assert.h>

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

void md_key_layout(struct md_key *key, uint64_t ino)
{
	key_put(key, "L", &ino, 1, NULL, 0);
}

void md_key_unbalanced(struct md_key *key, uint64_t ino)
{
	key_put(key, "U", &ino, 1, NULL, 0);
}

void md_key_layouts(struct md_key *key)
{
	key_put(key, "L", NULL, 0, NULL, 0);
}

void md_key_unbalanced_all(struct md_key *key)
{
	key_put(key, "U", NULL, 0, NULL, 0);
}

/* The zero byte ends the name, so that no node's keys lie among those of another. */
static void key_put_node(struct md_key *key, const char *prefix, const char *node,
			 const uint64_t *numbers, size_t count)
{
	key_put(key, prefix, NULL, 0, node, strlen(node) + 1);
	for (size_t i = 0; i < count; i++) {
		gx_put_be64(key->bytes + key->count, numbers[i]);
		key->count += 8;
	}
}
static_assert(1 + MD_NODE_NAME_MAX + 1 + 16 <= MD_KEY_MAX, "a node's keys fit");

void md_key_copies(struct md_key *key, const char *node)
{
	key_put_node(key, "R", node, NULL, 0);
}

void md_key_copy(struct md_key *key, const char *node, uint64_t ino)
{
	key_put_node(key, "R", node, &ino, 1);
}

void md_key_trash_all(struct md_key *key, const char *node)
{
	key_put_node(key, "T", node, NULL, 0);
}

void md_key_trash(struct md_key *key, const char *node, uint64_t ino, uint64_t generation)
{
	key_put_node(key, "T", node, (uint64_t[]){ino, generation}, 2);
}

void md_key_node(struct md_key *key, const char *node)
{
	key_put_node(key, "N", node, NULL, 0);
}

void md_key_session(struct md_key *key, uint64_t session)
{
	key_put(key, "Ss", &session, 1, NULL, 0);
}

void md_key_sessions(struct md_key *key)
{
	key_put(key, "Ss", NULL, 0, NULL, 0);
}

void md_key_replay(struct md_key *key, uint64_t session, uint64_t seq)
{
	uint64_t slot = seq % GX_UNSYNCED_PER_SESSION_MAX;

	key_put(key, "Sr", (uint64_t[]){session, slot}, 2, NULL, 0);
}

void md_key_replays(struct md_key *key, uint64_t session)
{
	key_put(key, "Sr", (uint64_t[]){session}, 1, NULL, 0);
}

void md_key_orphans(struct md_key *key)
{
	key_put(key, "O", NULL, 0, NULL, 0);
}

void md_key_ids(struct md_key *key)
{
	key_put(key, "Sn", NULL, 0, NULL, 0);
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
	bool is_writing = inode->flags & MD_INODE_WRITING;

	return inode->ino != 0 && type_valid(inode->mode) &&
	       (inode->mode & ~(uint32_t)(S_IFMT | 07777)) == 0 &&
	       (inode->flags & ~(uint32_t)MD_INODE_FLAGS) == 0 && inode->nlink <= MD_LINK_MAX &&
	       inode->xattrs <= MD_XATTRS_PER_INODE_MAX &&
	       S_ISDIR(inode->mode) == (inode->parent != 0) &&
	       (!is_writing || S_ISREG(inode->mode)) && inode->ncopy <= MD_NCOPY_MAX &&
	       (inode->ncopy == 0 || S_ISREG(inode->mode) || S_ISDIR(inode->mode)) &&
	       (!is_inline ||
		((S_ISREG(inode->mode) || S_ISLNK(inode->mode)) && inode->size <= MD_INLINE_MAX));
}

/*
 * The record: version, a mask of the fields that are not zero, those fields as varints. Most fields
 * of most files are zero and their times are the same, so a new file takes some 25 bytes instead
 * of 128. That is what bounds memory: the mapped tables of a large grid are mostly inodes.
 *
 * There is one form of each inode: a varint is as short as it can be and not zero, and nothing
 * follows the last one. Version 1 has a mask of 16 bits; version 2 has 24 and is for inodes with a
 * field behind the 16th, so most are as small as before.
 */
#define VARINT_BYTES_MAX 10u
#define INODE_VERSION 2
#define V1_FIELDS 16u
static_assert(4 + MD_INODE_FIELDS * VARINT_BYTES_MAX == MD_INODE_BYTES_MAX, "as said");

static size_t head_bytes(unsigned version)
{
	return version == 1 ? 3 : 4;
}

static size_t varint_put(unsigned char *bytes, uint64_t value)
{
	size_t count = 0;

	for (; value > 0x7f; value >>= 7)
		bytes[count++] = (unsigned char)(value | 0x80);
	bytes[count++] = (unsigned char)value;
	return count;
}

/* How many bytes it took; 0 for what varint_put() does not write. */
static size_t varint_get(const unsigned char *bytes, size_t byte_count, uint64_t *ret_value)
{
	uint64_t value = 0;

	for (size_t i = 0; i < byte_count && i < VARINT_BYTES_MAX; i++) {
		uint64_t part = bytes[i] & 0x7f;

		value |= part << (7 * i);
		if (bytes[i] & 0x80)
			continue;
		if ((part == 0 && i > 0) || (i == VARINT_BYTES_MAX - 1 && part > 1))
			return 0;
		*ret_value = value;
		return i + 1;
	}
	return 0;
}

/* A time as seen from another, near ones being small whatever the sign; it wraps, so none is lost.
 */
static uint64_t time_since(int64_t time_ns, int64_t base_ns)
{
	uint64_t d = (uint64_t)time_ns - (uint64_t)base_ns;

	return d << 1 ^ -(d >> 63);
}

static int64_t time_at(uint64_t since, int64_t base_ns)
{
	return (int64_t)((since >> 1 ^ -(since & 1)) + (uint64_t)base_ns);
}

size_t md_inode_encode(const struct md_inode *inode, unsigned char bytes[MD_INODE_BYTES_MAX])
{
	const uint64_t fields[MD_INODE_FIELDS] = {
		[0] = inode->ino,
		[1] = inode->mode,
		[2] = inode->nlink,
		[3] = inode->uid,
		[4] = inode->gid,
		[5] = inode->flags,
		[6] = inode->xattrs,
		[7] = inode->size,
		[8] = inode->rdev,
		[9] = inode->parent,
		[10] = time_since(inode->btime_ns, 0),
		[11] = time_since(inode->atime_ns, inode->btime_ns),
		[12] = time_since(inode->mtime_ns, inode->btime_ns),
		[13] = time_since(inode->ctime_ns, inode->mtime_ns),
		[14] = inode->generation,
		[15] = inode->version,
		[16] = inode->ncopy,
	};
	unsigned version = inode->ncopy > 0 ? INODE_VERSION : 1;
	size_t count = head_bytes(version);
	unsigned mask = 0;

	gx_assert(inode_valid(inode));
	for (unsigned i = 0; i < MD_INODE_FIELDS; i++)
		if (fields[i] != 0) {
			mask |= 1u << i;
			count += varint_put(bytes + count, fields[i]);
		}
	bytes[0] = (unsigned char)version;
	gx_put_le16(bytes + 1, (uint16_t)mask);
	if (version > 1)
		bytes[3] = (unsigned char)(mask >> V1_FIELDS);
	return count;
}

static int decode_fields(const unsigned char *bytes, size_t byte_count,
			 uint64_t fields[MD_INODE_FIELDS])
{
	size_t at = head_bytes(bytes[0]);
	unsigned mask = gx_get_le16(bytes + 1);

	if (bytes[0] > 1)
		mask |= (unsigned)bytes[3] << V1_FIELDS;
	if (mask >> MD_INODE_FIELDS != 0 || (bytes[0] > 1) != (mask >> V1_FIELDS != 0))
		return -EBADMSG;
	for (unsigned i = 0; i < MD_INODE_FIELDS; i++) {
		size_t count;

		fields[i] = 0;
		if (!(mask & 1u << i))
			continue;
		count = varint_get(bytes + at, byte_count - at, &fields[i]);
		if (count == 0 || fields[i] == 0)
			return -EBADMSG;
		at += count;
	}
	for (unsigned i = 1; i <= 6; i++)
		if (fields[i] > UINT32_MAX)
			return -EBADMSG;
	if (fields[16] > UINT32_MAX)
		return -EBADMSG;
	return at == byte_count ? 0 : -EBADMSG;
}

int md_inode_decode(const void *bytes, size_t byte_count, struct md_inode *ret_inode)
{
	const unsigned char *b = bytes;
	uint64_t fields[MD_INODE_FIELDS];
	struct md_inode inode;

	if (byte_count < 1 || b[0] == 0)
		return -EBADMSG;
	if (b[0] > INODE_VERSION)
		return -EPROTONOSUPPORT;
	if (byte_count < head_bytes(b[0]) || decode_fields(b, byte_count, fields) < 0)
		return -EBADMSG;
	inode = (struct md_inode){
		.ino = fields[0],
		.mode = (uint32_t)fields[1],
		.nlink = (uint32_t)fields[2],
		.uid = (uint32_t)fields[3],
		.gid = (uint32_t)fields[4],
		.flags = (uint32_t)fields[5],
		.xattrs = (uint32_t)fields[6],
		.size = fields[7],
		.rdev = fields[8],
		.parent = fields[9],
		.btime_ns = time_at(fields[10], 0),
		.generation = fields[14],
		.version = fields[15],
		.ncopy = (uint32_t)fields[16],
	};
	inode.atime_ns = time_at(fields[11], inode.btime_ns);
	inode.mtime_ns = time_at(fields[12], inode.btime_ns);
	inode.ctime_ns = time_at(fields[13], inode.mtime_ns);
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

int md_node_name_check(const char *name)
{
	size_t bytes = strlen(name);

	return bytes == 0 || bytes > MD_NODE_NAME_MAX ? -EINVAL : 0;
}
