/*
 * md_inode.h - the records of the state: their keys and their bytes (docs/STORAGE.md).
 *
 * Keys, big-endian so that a scan is in order:
 *	I<ino>             inode, fixed size, first byte is the format's version
 *	D<parent><name>    directory entry: ino, type
 *	X<ino><name>       extended attribute
 *	C<ino>             content of an inline file (rule N10)
 *	O<ino>             orphan: no name any more, still open (or being deleted)
 *	So<session><handle> an open file: ino, flags
 *	Ss<session>        session: identity, index of its opening
 *	Sr<session><seq>   replay table: result of a mutation
 *	Sc                 counters: inodes, inline bytes
 *	Sv                 superblock: format version
 *
 * The S keys of sessions, open files and the replay table are for the daemon; nothing writes them
 * yet.
 *
 * Encoding writes exactly what decoding accepts; decoding validates, because
 * a disk may lie (-EBADMSG).
 */
#ifndef MD_INODE_H
#define MD_INODE_H

#include "metad/md_store.h"
#include <sys/stat.h>

#define MD_ROOT_INO UINT64_C(1)
#define MD_NAME_MAX 255u
#define MD_INLINE_MAX 8192u
#define MD_SYMLINK_MAX 4095u
#define MD_XATTR_VALUE_MAX 65536u
#define MD_XATTRS_PER_INODE_MAX 64u
#define MD_LINK_MAX 65000u
#define MD_INODE_BYTES 128u
/* Parents walked to see whether a directory would come to lie in itself: more than a path can name.
 */
#define MD_DEPTH_MAX 2048u

enum md_inode_flag {
	MD_INODE_INLINE = 1u, /* content, if any, is in C<ino> */
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
void md_key_open(struct md_key *key, uint64_t session, uint64_t handle);
void md_key_session(struct md_key *key, uint64_t session);
void md_key_replay(struct md_key *key, uint64_t session, uint64_t seq);
void md_key_counters(struct md_key *key);
void md_key_super(struct md_key *key);
/* The first key behind all that start like this one: the end of a scan. */
void md_key_end(const struct md_key *prefix, struct md_key *ret_end);

void md_inode_encode(const struct md_inode *inode, unsigned char bytes[MD_INODE_BYTES]);
GX_MUST_CHECK int md_inode_decode(const void *bytes, size_t byte_count, struct md_inode *ret_inode);

#define MD_ENTRY_BYTES 9u
void md_entry_encode(uint64_t ino, uint32_t mode, unsigned char bytes[MD_ENTRY_BYTES]);
/* *ret_type: the S_IFMT bits. */
GX_MUST_CHECK int md_entry_decode(const void *bytes, size_t byte_count, uint64_t *ret_ino,
				  uint32_t *ret_type);

/* A name from the wire: 1 to 255 bytes, no '/', no NUL, not "." or "..". The one place. */
GX_MUST_CHECK int md_name_check(const char *name);

#endif
