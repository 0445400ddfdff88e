/*
 * md_inode.h - the records of the state: their keys and their bytes (docs/STORAGE.md).
 *
 * Keys, big-endian so that a scan is in order:
 *	I<ino>             inode, first byte is the format's version
 *	D<parent><name>    directory entry: ino, type
 *	X<ino><name>       extended attribute
 *	C<ino>             content of an inline file (rule N10)
 *	L<ino>             layout: where the content is that is not inline (md_layout.h)
 *	N<node>\0          boot id of a node's machine (rule B3)
 *	O<ino>             orphan: no name any more, still open (or being deleted)
 *	R<node>\0<ino>     a node has a copy of this inode
 *	Ss<session>        session: whose it is, since when
 *	Sr<session><slot>  replay table: result of a mutation (rule N5)
 *	Sc                 counters: inodes, inline bytes
 *	Sn                 ids: those below have been reserved (rule N3)
 *	Sv                 superblock: format version, uuid of the log, secret
 *	T<node>\0<ino><generation>  trash: the node is to delete this object
 *	U<ino>             the copies of this inode are not as wanted
 *
 * Encoding writes exactly what decoding accepts; decoding validates, because
 * a disk may lie (-EBADMSG).
 */
#ifndef MD_INODE_H
#define MD_INODE_H

#include "common/gx_limits.h"
#include "metad/md_store.h"
#include <sys/stat.h>

#define MD_ROOT_INO UINT64_C(1)
#define MD_NAME_MAX 255u
#define MD_INLINE_MAX GX_INLINE_MAX
#define MD_SYMLINK_MAX 4095u
#define MD_XATTR_VALUE_MAX 65536u
#define MD_XATTRS_PER_INODE_MAX 64u
#define MD_LINK_MAX 65000u
#define MD_NODE_NAME_MAX GX_NAME_USER_MAX
#define MD_NCOPY_MAX 16u
#define MD_INODE_FIELDS 17u
#define MD_INODE_BYTES_MAX 174u /* head, and 10 bytes per field; most take 25 to 40 in all */
/* Parents walked to see whether a directory would come to lie in itself: more than a path can name.
 */
#define MD_DEPTH_MAX 2048u

enum md_inode_flag {
	MD_INODE_INLINE = 1u, /* content, if any, is in C<ino> */
	/*
	 * An object is being written: `writing` of the layout is not 0. Together with INLINE the
	 * content is about to move there (rule N10). A file has a layout if and only if it is not
	 * inline or being written.
	 */
	MD_INODE_WRITING = 2u,
	MD_INODE_ACL = 4u,         /* has an access list; its mask is the group's bits */
	MD_INODE_DEFAULT_ACL = 8u, /* a directory: has a list for what is made in it */
	MD_INODE_FLAGS = 15u,      /* all there are */
};

struct md_inode {
	uint64_t ino;
	uint32_t mode; /* type and permissions, as stat's */
	uint32_t nlink;
	uint32_t uid, gid;
	uint32_t flags;  /* enum md_inode_flag */
	uint32_t xattrs; /* how many */
	uint64_t size;   /* of a directory: number of entries */
	uint64_t rdev;
	uint64_t parent; /* directories: for ".." and loop checks; 0 otherwise */
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	uint64_t generation; /* of the content (rule B1) */
	uint64_t version;    /* goes up with every change of the inode */
	uint32_t ncopy;      /* files and directories: wanted copies; 0: nobody has said */
};

struct md_key {
	unsigned char bytes[MD_KEY_MAX];
	size_t count;
};

void md_key_inode(struct md_key *key, uint64_t ino);
/* name_bytes 0: the start of the directory's entries. */
void md_key_entry(struct md_key *key, uint64_t parent, const char *name, size_t name_bytes);
void md_key_xattr(struct md_key *key, uint64_t ino, const char *name, size_t name_bytes);
void md_key_content(struct md_key *key, uint64_t ino);
void md_key_orphan(struct md_key *key, uint64_t ino);
void md_key_layout(struct md_key *key, uint64_t ino);
void md_key_unbalanced(struct md_key *key, uint64_t ino);
/* Of node names that md_node_name_check() accepts. */
void md_key_copy(struct md_key *key, const char *node, uint64_t ino);
void md_key_trash(struct md_key *key, const char *node, uint64_t ino, uint64_t generation);
void md_key_node(struct md_key *key, const char *node);
/* The start of all layouts; of all unbalanced inodes; of a node's copies; of its trash. */
void md_key_layouts(struct md_key *key);
void md_key_unbalanced_all(struct md_key *key);
void md_key_copies(struct md_key *key, const char *node);
void md_key_trash_all(struct md_key *key, const char *node);
void md_key_session(struct md_key *key, uint64_t session);
/* The slot of a sequence number: a ring of GX_UNSYNCED_PER_SESSION_MAX. */
void md_key_replay(struct md_key *key, uint64_t session, uint64_t seq);
/* The start of a session's slots; of all sessions. */
void md_key_replays(struct md_key *key, uint64_t session);
void md_key_sessions(struct md_key *key);
void md_key_orphans(struct md_key *key);
void md_key_ids(struct md_key *key);
void md_key_counters(struct md_key *key);
void md_key_super(struct md_key *key);
/* The first key behind all that start like this one: the end of a scan. */
void md_key_end(const struct md_key *prefix, struct md_key *ret_end);

/* How many bytes it wrote. */
GX_MUST_CHECK size_t md_inode_encode(const struct md_inode *inode,
				     unsigned char bytes[MD_INODE_BYTES_MAX]);
GX_MUST_CHECK int md_inode_decode(const void *bytes, size_t byte_count, struct md_inode *ret_inode);

#define MD_ENTRY_BYTES 9u
void md_entry_encode(uint64_t ino, uint32_t mode, unsigned char bytes[MD_ENTRY_BYTES]);
/* *ret_type: the S_IFMT bits. */
GX_MUST_CHECK int md_entry_decode(const void *bytes, size_t byte_count, uint64_t *ret_ino,
				  uint32_t *ret_type);

/* A name from the wire: 1 to 255 bytes, no '/', no NUL, not "." or "..". The one place. */
GX_MUST_CHECK int md_name_check(const char *name);
/* The name of a storage node: 1 to 64 bytes. -EINVAL. */
GX_MUST_CHECK int md_node_name_check(const char *name);

#endif
