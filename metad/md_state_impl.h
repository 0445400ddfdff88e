/*
 * md_state_impl.h - what the files of the state machine share.
 */
#ifndef MD_STATE_IMPL_H
#define MD_STATE_IMPL_H

#include "metad/md_state.h"

#define MD_MAY_EXEC 1u
#define MD_MAY_WRITE 2u
#define MD_MAY_READ 4u

/* -ESTALE when there is no such inode. Depends on its last change. */
GX_MUST_CHECK int md_get_inode(struct md_ctx *ctx, uint64_t ino, struct md_inode *ret_inode);
/* Stores it with a new version; `as_parent`: only times and counters changed (N4). */
void md_put_inode(struct md_ctx *ctx, struct md_inode *inode, bool as_parent);
/* -ENOENT. Also a missing name is an answer that depends on who removed it. */
GX_MUST_CHECK int md_get_entry(struct md_ctx *ctx, uint64_t parent, const char *name,
			       uint64_t *ret_ino, uint32_t *ret_type);
void md_put_entry(struct md_ctx *ctx, uint64_t parent, const char *name,
		  const struct md_inode *inode);
void md_delete_entry(struct md_ctx *ctx, uint64_t parent, const char *name);
/* -EACCES */
GX_MUST_CHECK int md_may(const struct md_ctx *ctx, const struct md_inode *inode, unsigned want);
/* A directory in which the caller may do `want`: -ENOTDIR, -EACCES. */
GX_MUST_CHECK int md_get_dir(struct md_ctx *ctx, uint64_t ino, unsigned want,
			     struct md_inode *ret_dir);
bool md_owns(const struct md_ctx *ctx, const struct md_inode *inode);
bool md_in_group(const struct md_ctx *ctx, uint32_t gid);
/* The answer depends on this change, if another session made it and the disk lacks it (N4). */
void md_depend(struct md_ctx *ctx, const struct md_tag *tag);
/* Names in this directory changed; the answer depends on all names of it. */
void md_names_changed(struct md_ctx *ctx, uint64_t dir);
void md_depend_names(struct md_ctx *ctx, uint64_t dir);
struct md_tag md_tag_of(const struct md_ctx *ctx);
void md_fill_attr(const struct md_inode *inode, PbMeta__Attr *attr);
/*
 * Room for a PbMeta__Attr in the arena, before anything is changed: how much a request unpacks to
 * is up to the client, so the arena may be full. -ENOMEM.
 */
GX_MUST_CHECK int md_new_attr(struct md_ctx *ctx, PbMeta__Attr **ret_attr);
void md_count(struct md_ctx *ctx, int64_t inodes, int64_t inline_bytes);
/* Removes the inode and all that hangs on it. */
void md_erase_inode(struct md_ctx *ctx, const struct md_inode *inode);
/* Content of an inline file: borrowed until the next state call. */
GX_MUST_CHECK int md_get_content(struct md_ctx *ctx, uint64_t ino, const void **ret_data,
				 size_t *ret_bytes);
void md_put_content(struct md_ctx *ctx, uint64_t ino, const void *data, size_t bytes);

/* The appliers, one per mutating method. */
typedef int (*md_apply_fn)(struct md_ctx *ctx, struct md_command *command, bool live,
			   ProtobufCMessage *reply);
int md_apply_make(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_link(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_unlink(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_rename(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_open(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_setattr(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_write(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_setxattr(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);

#endif
