#include "metad/md_acl.h"
#include "common/gx_num.h"

#define VERSION 2u
#define HEADER_BYTES 4u
#define ENTRY_BYTES 8u
#define NO_ID UINT32_MAX

/* -- bytes --------------------------------------------------------------------------------------
 */

/* Each tag in its place, those that must be there once, a mask if anybody is named. */
static bool is_valid(const struct md_acl *acl)
{
	unsigned seen = 0, last = 0;

	for (unsigned i = 0; i < acl->count; i++) {
		const struct md_acl_entry *e = &acl->entries[i];
		bool named = e->tag == MD_ACL_USER || e->tag == MD_ACL_GROUP;

		switch (e->tag) {
		case MD_ACL_USER_OBJ:
		case MD_ACL_USER:
		case MD_ACL_GROUP_OBJ:
		case MD_ACL_GROUP:
		case MD_ACL_MASK:
		case MD_ACL_OTHER:
			break;
		default:
			return false;
		}
		if (e->perm > 7 || e->tag < last || (e->tag == last && !named))
			return false;
		if (named && e->id == NO_ID)
			return false;
		/* The same one twice could mean either. */
		if (named && e->tag == last)
			for (unsigned j = 0; j < i; j++)
				if (acl->entries[j].tag == e->tag && acl->entries[j].id == e->id)
					return false;
		last = e->tag;
		seen |= e->tag;
	}
	if ((seen & (MD_ACL_USER | MD_ACL_GROUP)) && !(seen & MD_ACL_MASK))
		return false;
	return (seen & MD_ACL_USER_OBJ) && (seen & MD_ACL_GROUP_OBJ) && (seen & MD_ACL_OTHER);
}

int md_acl_decode(const void *bytes, size_t byte_count, struct md_acl *ret_acl)
{
	const unsigned char *p = bytes;
	size_t count;

	ret_acl->count = 0;
	if (byte_count == 0)
		return 0;
	if (byte_count < HEADER_BYTES || (byte_count - HEADER_BYTES) % ENTRY_BYTES != 0)
		return -EINVAL;
	if (gx_get_le32(p) != VERSION)
		return -EOPNOTSUPP;
	count = (byte_count - HEADER_BYTES) / ENTRY_BYTES;
	if (count > MD_ACL_ENTRIES_MAX)
		return -E2BIG;
	for (size_t i = 0; i < count; i++) {
		const unsigned char *e = p + HEADER_BYTES + i * ENTRY_BYTES;

		ret_acl->entries[i].tag = gx_get_le16(e);
		ret_acl->entries[i].perm = gx_get_le16(e + 2);
		ret_acl->entries[i].id = gx_get_le32(e + 4);
	}
	ret_acl->count = (unsigned)count;
	return count == 0 || is_valid(ret_acl) ? 0 : -EINVAL;
}

size_t md_acl_encode(const struct md_acl *acl, unsigned char bytes[MD_ACL_BYTES_MAX])
{
	gx_put_le32(bytes, VERSION);
	for (unsigned i = 0; i < acl->count; i++) {
		const struct md_acl_entry *e = &acl->entries[i];
		unsigned char *p = bytes + HEADER_BYTES + (size_t)i * ENTRY_BYTES;
		bool named = e->tag == MD_ACL_USER || e->tag == MD_ACL_GROUP;

		gx_put_le16(p, e->tag);
		gx_put_le16(p + 2, e->perm);
		gx_put_le32(p + 4, named ? e->id : NO_ID);
	}
	return HEADER_BYTES + (size_t)acl->count * ENTRY_BYTES;
}

/* -- meaning ------------------------------------------------------------------------------------
 */

static const struct md_acl_entry *find(const struct md_acl *acl, unsigned tag)
{
	for (unsigned i = 0; i < acl->count; i++)
		if (acl->entries[i].tag == tag)
			return &acl->entries[i];
	return NULL;
}

static bool is_member(const struct md_cred *cred, uint32_t gid)
{
	if (cred->gid == gid)
		return true;
	for (uint32_t i = 0; i < cred->group_count; i++)
		if (cred->groups[i] == gid)
			return true;
	return false;
}

bool md_acl_allows(const struct md_acl *acl, uint32_t uid, uint32_t gid, const struct md_cred *cred,
		   unsigned want)
{
	const struct md_acl_entry *mask = find(acl, MD_ACL_MASK);
	unsigned most = mask ? mask->perm : 7;
	bool in_group = false;

	for (unsigned i = 0; i < acl->count; i++) {
		const struct md_acl_entry *e = &acl->entries[i];

		switch (e->tag) {
		case MD_ACL_USER_OBJ:
			if (cred->uid == uid)
				return (e->perm & want) == want;
			break;
		case MD_ACL_USER:
			if (cred->uid == e->id)
				return (e->perm & most & want) == want;
			break;
		case MD_ACL_GROUP_OBJ:
		case MD_ACL_GROUP:
			if (!is_member(cred, e->tag == MD_ACL_GROUP ? e->id : gid))
				break;
			/* One of his groups is enough, but it must have all that he wants. */
			if ((e->perm & most & want) == want)
				return true;
			in_group = true;
			break;
		case MD_ACL_OTHER:
			return !in_group && (e->perm & want) == want;
		default:
			break;
		}
	}
	return false;
}

bool md_acl_mode(const struct md_acl *acl, uint32_t *ret_bits)
{
	const struct md_acl_entry *mask = find(acl, MD_ACL_MASK);
	const struct md_acl_entry *group = mask ? mask : find(acl, MD_ACL_GROUP_OBJ);

	*ret_bits = (uint32_t)find(acl, MD_ACL_USER_OBJ)->perm << 6 | (uint32_t)group->perm << 3 |
		    find(acl, MD_ACL_OTHER)->perm;
	return mask != NULL;
}

/* The entry that the group's bits of the mode stand for. */
static struct md_acl_entry *group_class(struct md_acl *acl)
{
	struct md_acl_entry *group = NULL;

	for (unsigned i = 0; i < acl->count; i++) {
		if (acl->entries[i].tag == MD_ACL_MASK)
			return &acl->entries[i];
		if (acl->entries[i].tag == MD_ACL_GROUP_OBJ)
			group = &acl->entries[i];
	}
	return group;
}

void md_acl_chmod(struct md_acl *acl, uint32_t mode)
{
	group_class(acl)->perm = mode >> 3 & 7;
	for (unsigned i = 0; i < acl->count; i++) {
		if (acl->entries[i].tag == MD_ACL_USER_OBJ)
			acl->entries[i].perm = mode >> 6 & 7;
		else if (acl->entries[i].tag == MD_ACL_OTHER)
			acl->entries[i].perm = mode & 7;
	}
}

bool md_acl_inherit(struct md_acl *acl, uint32_t *mode)
{
	uint32_t bits;

	group_class(acl)->perm &= *mode >> 3 & 7;
	for (unsigned i = 0; i < acl->count; i++) {
		if (acl->entries[i].tag == MD_ACL_USER_OBJ)
			acl->entries[i].perm &= *mode >> 6 & 7;
		else if (acl->entries[i].tag == MD_ACL_OTHER)
			acl->entries[i].perm &= *mode & 7;
	}
	if (md_acl_mode(acl, &bits)) {
		*mode = (*mode & ~(uint32_t)0777) | bits;
		return true;
	}
	*mode = (*mode & ~(uint32_t)0777) | bits;
	return false;
}
