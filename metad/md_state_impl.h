/*
 * md_state_impl.h - what the files of the state machine share.
 */
#ifndef MD_STATE_IMPL_H
#define MD_STATE_IMPL_H

#include "metad/md_acl.h"
#include "metad/md_state.h"

#define MD_MAY_EXEC 1u
#define MD_MAY_WRITE 2u
#define MD_MAY_READ 4u

/* A record. -ENOENT; the answer depends on who changed or removed it. */
GX_MUST_CHECK int md_get(struct md_ctx *ctx, const struct md_key *key, const void **ret_value,
			 size_t *ret_bytes);
/* keep_tag: the change does not count for N4. */
void md_put(struct md_ctx *ctx, const struct md_key *key, const void *value, size_t bytes,
	    bool keep_tag);
void md_delete(struct md_ctx *ctx, const struct md_key *key);
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
/* -EACCES; -EBADMSG: its access list is damaged. */
GX_MUST_CHECK int md_may(struct md_ctx *ctx, const struct md_inode *inode, unsigned want);
/*
 * Access lists (md_rights.c). For something new in `dir`, before anything is changed: *mode is what
 * it gets, by the umask or by the directory's default list; then its lists are stored with it. The
 * same for chmod.
 */
struct md_acls {
	struct md_acl access, deflt;
};
GX_MUST_CHECK int md_acl_begin_new(struct md_ctx *ctx, const struct md_inode *dir, uint32_t umask,
				   uint32_t *mode, struct md_acls *ret_acls);
void md_acl_end_new(struct md_ctx *ctx, struct md_inode *inode, const struct md_acls *acls);
GX_MUST_CHECK int md_acl_begin_chmod(struct md_ctx *ctx, const struct md_inode *inode,
				     uint32_t mode, struct md_acls *ret_acls);
void md_acl_end_chmod(struct md_ctx *ctx, struct md_inode *inode, const struct md_acls *acls);
/* The extended attributes that are lists; setting one (no bytes: removing it) stores the inode. */
bool md_is_acl(const char *name);
GX_MUST_CHECK int md_acl_set(struct md_ctx *ctx, struct md_inode *inode, const char *name,
			     const void *value, size_t bytes);
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
/* A change of owner or content takes set-id bits from files, as POSIX wants. */
void md_clear_setid(struct md_inode *inode);
/* Removes the inode and all that hangs on it; its layout is md_load_layout()'s. */
void md_erase_inode(struct md_ctx *ctx, const struct md_inode *inode,
		    const PbMeta__LayoutRecord *layout);
/* Content of an inline file: borrowed until the next state call. */
GX_MUST_CHECK int md_get_content(struct md_ctx *ctx, uint64_t ino, const void **ret_data,
				 size_t *ret_bytes);
void md_put_content(struct md_ctx *ctx, uint64_t ino, const void *data, size_t bytes);

/* -- objects (md_layout.c) ------------------------------------------------------------------ */

/*
 * The layout of an inode, NULL if it has none. Whoever may need it asks before anything is changed:
 * -EBADMSG, -ENOMEM.
 */
GX_MUST_CHECK int md_load_layout(struct md_ctx *ctx, const struct md_inode *inode,
				 PbMeta__LayoutRecord **ret_layout);
/* The content is no longer in objects: all there are become trash. NULL: there are none. */
void md_drop_layout(struct md_ctx *ctx, uint64_t ino, const PbMeta__LayoutRecord *layout);
/* No object of this inode had this generation or a higher one. */
uint64_t md_next_generation(const struct md_inode *inode, const PbMeta__LayoutRecord *layout);
/* The U record, as md_layout_balanced() says. NULL: there is no layout. */
void md_balance(struct md_ctx *ctx, const struct md_inode *inode,
		const PbMeta__LayoutRecord *layout);

/* Open with the truncate flag, of the inode it names: the caller's rights are checked. */
GX_MUST_CHECK int md_open_truncate(struct md_ctx *ctx, const PbMeta__OpenRequest *request,
				   PbMeta__OpenReply *reply);

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
/* About objects (md_layout.c); all but the first are metad's own. */
int md_apply_report(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_write_begin(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_write_recover(struct md_ctx *, struct md_command *, bool live,
			   ProtobufCMessage *reply);
int md_apply_copy_change(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_trash_done(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_node_boot(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
/* metad's own (md_grid.c). */
int md_apply_format(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_reserve(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_session_open(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_session_end(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);
int md_apply_reap(struct md_ctx *, struct md_command *, bool live, ProtobufCMessage *reply);

#endif
