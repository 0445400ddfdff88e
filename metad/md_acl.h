/*
 * md_acl.h - POSIX access control lists: their bytes, what they allow, how they are inherited.
 *
 * The bytes are those of Linux's system.posix_acl_access and system.posix_acl_default: a version
 * (2) of 32 bits, then 8 bytes for each entry, tag, permissions and id, little-endian. Entries are
 * in the order of their tags; ids are the grid's (rule N16).
 *
 * Pure functions; the state machine's part is in md_rights.c.
 */
#ifndef MD_ACL_H
#define MD_ACL_H

#include "metad/md_command.h"

#define MD_ACL_USER_OBJ 0x01u
#define MD_ACL_USER 0x02u
#define MD_ACL_GROUP_OBJ 0x04u
#define MD_ACL_GROUP 0x08u
#define MD_ACL_MASK 0x10u
#define MD_ACL_OTHER 0x20u

#define MD_ACL_ENTRIES_MAX 128u
#define MD_ACL_BYTES_MAX (4u + 8u * MD_ACL_ENTRIES_MAX)

struct md_acl_entry {
	uint16_t tag, perm;
	uint32_t id; /* of USER and GROUP */
};
struct md_acl {
	unsigned count; /* 0: none */
	struct md_acl_entry entries[MD_ACL_ENTRIES_MAX];
};

/* -EINVAL: not a list; -EOPNOTSUPP: another version; -E2BIG. No bytes, or no entry: count is 0. */
GX_MUST_CHECK int md_acl_decode(const void *bytes, size_t byte_count, struct md_acl *ret_acl);
size_t md_acl_encode(const struct md_acl *acl, unsigned char bytes[MD_ACL_BYTES_MAX]);

/* As acl(5) says for a file of this owner and group; not for uid 0. `want`: bits of rwx. */
bool md_acl_allows(const struct md_acl *acl, uint32_t uid, uint32_t gid, const struct md_cred *cred,
		   unsigned want);
/* The bits of the mode that mirror it. False: it says nothing that a mode could not. */
bool md_acl_mode(const struct md_acl *acl, uint32_t *ret_bits);
/* chmod */
void md_acl_chmod(struct md_acl *acl, uint32_t mode);
/*
 * A default list becomes the access list of something made with `mode`: takes from both what the
 * other one does not have. False: the mode alone says it all.
 */
bool md_acl_inherit(struct md_acl *acl, uint32_t *mode);

#endif
