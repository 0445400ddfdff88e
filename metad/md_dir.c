/*
 * Names: lookup, making, linking, removing, renaming, listing.
 *
 * Every function first looks and judges, then changes; nothing fails after the
 * first change.
 */
#include "metad/md_state_impl.h"
#include "common/gx_limits.h"

/*
 * A page: no more names, with attributes, than fit a message and a turn (rule N17), and no more
 * places than a turn has time for, where names that are gone count too.
 */
#define READDIR_MAX 1024u
#define READDIR_PLUS_MAX                                                                           \
	256u /* each may be a read of the store: 7 us, and a turn has 10 ms (N17) */
#define READDIR_STEPS_MAX 8192u
#define READDIR_ENTRY_BYTES_MAX 512u /* packed: name, numbers, attributes */
static_assert(READDIR_MAX * READDIR_ENTRY_BYTES_MAX < GX_MESSAGE_MAX, "a page fits a message");

#define OPEN_CREATE 4u

int md_state_lookup(struct md_ctx *ctx, const PbMeta__LookupRequest *request,
		    PbMeta__LookupReply *reply)
{
	struct md_inode dir, inode;
	uint64_t ino;
	uint32_t type;
	int r;

	r = md_get_dir(ctx, request->parent, MD_MAY_EXEC, &dir);
	if (r < 0)
		return r;
	if (strcmp(request->name, "..") == 0) {
		ino = dir.parent;
	} else {
		r = md_name_check(request->name);
		if (r == 0)
			r = md_get_entry(ctx, dir.ino, request->name, &ino, &type);
		if (r < 0)
			return r;
	}
	r = md_get_inode(ctx, ino, &inode);
	if (r == 0)
		r = md_new_attr(ctx, &reply->attr);
	if (r < 0)
		return r;
	md_fill_attr(&inode, reply->attr);
	return 0;
}

/* -- making ----------------------------------------------------------------------------- */

/* A directory changed: its times and, by `entries` and `subdirs`, its counters. */
static void touch_dir(struct md_ctx *ctx, struct md_inode *dir, int entries, int subdirs)
{
	dir->size = (uint64_t)((int64_t)dir->size + entries);
	dir->nlink = (uint32_t)((int64_t)dir->nlink + subdirs);
	dir->mtime_ns = dir->ctime_ns = ctx->time_ns;
	md_put_inode(ctx, dir, true);
	md_names_changed(ctx, dir->ino);
}

/* May a new name be put here? -EEXIST, -EACCES … */
static int check_new_name(struct md_ctx *ctx, uint64_t parent, const char *name,
			  struct md_inode *ret_dir)
{
	uint64_t ino;
	uint32_t type;
	int r;

	r = md_name_check(name);
	if (r == 0)
		r = md_get_dir(ctx, parent, MD_MAY_EXEC, ret_dir);
	if (r < 0)
		return r;
	r = md_get_entry(ctx, parent, name, &ino, &type);
	if (r != -ENOENT)
		return r == 0 ? -EEXIST : r;
	/* A removed directory that somebody still stands in takes no new names. */
	if (ret_dir->nlink == 0)
		return -ENOENT;
	return md_may(ctx, ret_dir, MD_MAY_WRITE | MD_MAY_EXEC);
}

/* Owner, group and bits of something new in `dir`, as POSIX and setgid want them. */
static struct md_inode new_inode(struct md_ctx *ctx, const struct md_command *command,
				 const struct md_inode *dir, uint32_t mode)
{
	struct md_inode inode = {
		.ino = command->new_ino,
		/* mkdir does not give set-id bits. */
		.mode = mode & (S_IFMT | (S_ISDIR(mode) ? 01777 : 07777)),
		.nlink = 1,
		.uid = ctx->cred->uid,
		.gid = ctx->cred->gid,
		.atime_ns = ctx->time_ns,
		.mtime_ns = ctx->time_ns,
		.ctime_ns = ctx->time_ns,
		.btime_ns = ctx->time_ns,
		.generation = 1,
	};

	if (dir->mode & S_ISGID) {
		inode.gid = dir->gid;
		if (S_ISDIR(mode))
			inode.mode |= S_ISGID;
		else if (!md_in_group(ctx, dir->gid) && ctx->cred->uid != 0)
			inode.mode &= ~(uint32_t)S_ISGID;
	}
	if (S_ISREG(mode) || S_ISDIR(mode))
		inode.ncopy = dir->ncopy;
	return inode;
}

static void add_inode(struct md_ctx *ctx, struct md_inode *dir, const char *name,
		      struct md_inode *inode, int64_t inline_bytes)
{
	bool is_dir = S_ISDIR(inode->mode);

	md_put_inode(ctx, inode, false);
	md_put_entry(ctx, dir->ino, name, inode);
	touch_dir(ctx, dir, 1, is_dir ? 1 : 0);
	md_count(ctx, 1, inline_bytes);
}

static int check_kind(const struct md_ctx *ctx, const PbMeta__MakeRequest *request)
{
	size_t target_bytes = strlen(request->target);

	/* It would only fill the log. */
	if (!S_ISLNK(request->mode) && target_bytes > 0)
		return -EINVAL;
	switch (request->mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFIFO:
	case S_IFSOCK:
		return 0;
	case S_IFLNK:
		if (target_bytes == 0)
			return -ENOENT;
		return target_bytes > MD_SYMLINK_MAX ? -ENAMETOOLONG : 0;
	case S_IFCHR:
	case S_IFBLK:
		return ctx->cred->uid == 0 ? 0 : -EPERM;
	default:
		return -EINVAL;
	}
}

int md_apply_make(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		  ProtobufCMessage *reply)
{
	const PbMeta__MakeRequest *request = (const PbMeta__MakeRequest *)command->request;
	PbMeta__MakeReply *out = (PbMeta__MakeReply *)reply;
	uint32_t mode = request->mode;
	struct md_inode dir, inode;
	int64_t inline_bytes = 0;
	struct md_acls acls;
	int r;

	r = check_kind(ctx, request);
	if (r == 0)
		r = check_new_name(ctx, request->parent, request->name, &dir);
	if (r == 0 && S_ISDIR(request->mode) && dir.nlink >= MD_LINK_MAX)
		r = -EMLINK;
	if (r == 0)
		r = md_acl_begin_new(ctx, &dir, request->umask, &mode, &acls);
	if (r == 0)
		r = md_new_attr(ctx, &out->attr);
	if (r < 0)
		return r;
	inode = new_inode(ctx, command, &dir, mode);
	if (S_ISDIR(inode.mode)) {
		inode.nlink = 2;
		inode.parent = dir.ino;
	} else if (S_ISLNK(inode.mode)) {
		inode.mode = S_IFLNK | 0777;
		inode.size = strlen(request->target);
		inode.flags = MD_INODE_INLINE;
		inline_bytes = (int64_t)inode.size;
		md_put_content(ctx, inode.ino, request->target, inode.size);
	} else if (S_ISREG(inode.mode)) {
		inode.flags = MD_INODE_INLINE;
	} else if (S_ISCHR(inode.mode) || S_ISBLK(inode.mode)) {
		inode.rdev = request->rdev;
	}
	md_acl_end_new(ctx, &inode, &acls);
	add_inode(ctx, &dir, request->name, &inode, inline_bytes);
	md_fill_attr(&inode, out->attr);
	return 0;
}

int md_state_readlink(struct md_ctx *ctx, const PbMeta__ReadlinkRequest *request,
		      PbMeta__ReadlinkReply *reply)
{
	struct md_inode inode;
	const void *data;
	size_t bytes;
	char *target;
	int r;

	r = md_get_inode(ctx, request->ino, &inode);
	if (r == 0 && !S_ISLNK(inode.mode))
		r = -EINVAL;
	if (r == 0)
		r = md_get_content(ctx, inode.ino, &data, &bytes);
	if (r < 0)
		return r;
	target = rpc_arena_alloc(ctx->arena, bytes + 1);
	if (!target)
		return -ENOMEM;
	memcpy(target, data, bytes);
	target[bytes] = '\0';
	reply->target = target;
	return 0;
}

/* Opening a name that is not there, with the flag that makes it; or truncating what is there. */
int md_apply_open(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		  ProtobufCMessage *reply)
{
	const PbMeta__OpenRequest *request = (const PbMeta__OpenRequest *)command->request;
	PbMeta__OpenReply *out = (PbMeta__OpenReply *)reply;
	uint32_t mode = S_IFREG | (request->mode & 07777);
	struct md_inode dir, inode;
	struct md_acls acls;
	int r;

	if (request->ino != 0)
		return md_open_truncate(ctx, request, out);
	r = check_new_name(ctx, request->parent, request->name, &dir);
	if (r == 0 || r == -EACCES)
		r = request->flags & OPEN_CREATE ? r : -ENOENT;
	if (r == 0)
		r = md_acl_begin_new(ctx, &dir, request->umask, &mode, &acls);
	if (r == 0)
		r = md_new_attr(ctx, &out->attr);
	if (r < 0)
		return r;
	inode = new_inode(ctx, command, &dir, mode);
	inode.flags = MD_INODE_INLINE;
	md_acl_end_new(ctx, &inode, &acls);
	add_inode(ctx, &dir, request->name, &inode, 0);
	md_fill_attr(&inode, out->attr);
	out->created = true;
	return 0;
}

/*
 * Who may give a file another name? Its owner, and who could read and change it anyway. POSIX
 * leaves this open; with less, anybody could keep what its owner removes, quota included, and
 * touch the ctime of a file that is not his. Linux calls it protected_hardlinks.
 */
static int check_linkable(struct md_ctx *ctx, const struct md_inode *inode)
{
	bool set_id = (inode->mode & S_ISUID) ||
		      (inode->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);

	if (S_ISDIR(inode->mode))
		return -EPERM;
	if (inode->nlink == 0)
		return -ENOENT; /* an orphan does not come back */
	if (!md_owns(ctx, inode) &&
	    (!S_ISREG(inode->mode) || set_id || md_may(ctx, inode, MD_MAY_READ | MD_MAY_WRITE) < 0))
		return -EPERM;
	return inode->nlink >= MD_LINK_MAX ? -EMLINK : 0;
}

int md_apply_link(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		  ProtobufCMessage *reply)
{
	const PbMeta__LinkRequest *request = (const PbMeta__LinkRequest *)command->request;
	PbMeta__LinkReply *out = (PbMeta__LinkReply *)reply;
	struct md_inode dir, inode;
	int r;

	r = md_get_inode(ctx, request->ino, &inode);
	if (r == 0)
		r = check_new_name(ctx, request->parent, request->name, &dir);
	if (r == 0)
		r = check_linkable(ctx, &inode);
	if (r == 0)
		r = md_new_attr(ctx, &out->attr);
	if (r < 0)
		return r;
	inode.nlink++;
	inode.ctime_ns = ctx->time_ns;
	md_put_inode(ctx, &inode, false);
	md_put_entry(ctx, dir.ino, request->name, &inode);
	touch_dir(ctx, &dir, 1, 0);
	md_fill_attr(&inode, out->attr);
	return 0;
}

/* -- removing --------------------------------------------------------------------------- */

/* In a sticky directory only the owner of the name, of the directory, or root removes it. */
static int check_sticky(const struct md_ctx *ctx, const struct md_inode *dir,
			const struct md_inode *inode)
{
	if ((dir->mode & S_ISVTX) && !md_owns(ctx, dir) && !md_owns(ctx, inode))
		return -EPERM;
	return 0;
}

/* May this name go? `want_dir`: as rmdir or rename of a directory would remove it. */
static int check_removable(struct md_ctx *ctx, const struct md_inode *dir,
			   const struct md_inode *inode, bool want_dir)
{
	int r = check_sticky(ctx, dir, inode);

	if (r < 0)
		return r;
	if (want_dir && !S_ISDIR(inode->mode))
		return -ENOTDIR;
	if (!want_dir && S_ISDIR(inode->mode))
		return -EISDIR;
	if (!want_dir)
		return 0;
	/* Empty or not: that depends on who added and removed names in it. */
	md_depend_names(ctx, inode->ino);
	return inode->size > 0 ? -ENOTEMPTY : 0;
}

/*
 * The inode loses a name; with the last one it goes, or becomes an orphan while open. Its layout is
 * md_load_layout()'s.
 */
static void drop_name(struct md_ctx *ctx, struct md_command *command, bool live,
		      struct md_inode *inode, const PbMeta__LayoutRecord *layout)
{
	struct md_key key;
	bool busy;

	inode->nlink = S_ISDIR(inode->mode) ? 0 : inode->nlink - 1;
	inode->ctime_ns = ctx->time_ns;
	if (inode->nlink > 0) {
		md_put_inode(ctx, inode, false);
		return;
	}
	if (live && ctx->state->is_open && ctx->state->is_open(ctx->state->arg, inode->ino))
		command->flags |= MD_COMMAND_BUSY;
	busy = command->flags & MD_COMMAND_BUSY;
	if (!busy) {
		md_erase_inode(ctx, inode, layout);
		return;
	}
	md_put_inode(ctx, inode, false);
	md_key_orphan(&key, inode->ino);
	md_put(ctx, &key, "", 0, false);
}

/* A name that is to go. One that is not there is -ENOENT even where the caller may not write. */
static int get_named(struct md_ctx *ctx, uint64_t parent, const char *name,
		     struct md_inode *ret_dir, struct md_inode *ret_inode)
{
	uint64_t ino;
	uint32_t type;
	int r;

	r = md_name_check(name);
	if (r == 0)
		r = md_get_dir(ctx, parent, MD_MAY_EXEC, ret_dir);
	if (r == 0)
		r = md_get_entry(ctx, parent, name, &ino, &type);
	return r < 0 ? r : md_get_inode(ctx, ino, ret_inode);
}

int md_apply_unlink(struct md_ctx *ctx, struct md_command *command, bool live,
		    ProtobufCMessage *reply)
{
	const PbMeta__UnlinkRequest *request = (const PbMeta__UnlinkRequest *)command->request;
	PbMeta__UnlinkReply *out = (PbMeta__UnlinkReply *)reply;
	PbMeta__LayoutRecord *layout;
	struct md_inode dir, inode;
	int r;

	r = get_named(ctx, request->parent, request->name, &dir, &inode);
	if (r == 0)
		r = md_may(ctx, &dir, MD_MAY_WRITE);
	if (r == 0)
		r = check_removable(ctx, &dir, &inode, request->directory);
	if (r == 0)
		r = md_load_layout(ctx, &inode, &layout);
	if (r < 0)
		return r;
	md_delete_entry(ctx, dir.ino, request->name);
	touch_dir(ctx, &dir, -1, S_ISDIR(inode.mode) ? -1 : 0);
	drop_name(ctx, command, live, &inode, layout);
	out->ino = inode.ino;
	out->nlink = inode.nlink;
	return 0;
}

/* -- renaming --------------------------------------------------------------------------- */

#define RENAME_NOREPLACE_FLAG 1u
#define RENAME_EXCHANGE_FLAG 2u

struct rename {
	struct md_inode from_dir, to_dir; /* the same contents if it is one directory */
	struct md_inode moved, target;
	bool has_target;
	bool same_dir;
};

/* Would `moved`, a directory, come to lie inside itself? Walks up from the new parent. */
static int check_loop(struct md_ctx *ctx, uint64_t moved, uint64_t parent)
{
	for (unsigned depth = 0; parent != MD_ROOT_INO; depth++) {
		struct md_inode dir;
		int r;

		if (parent == moved)
			return -EINVAL;
		if (depth == MD_DEPTH_MAX)
			return -ENAMETOOLONG; /* a turn is short (rule N17) */
		r = md_get_inode(ctx, parent, &dir);
		if (r < 0)
			return r;
		parent = dir.parent;
	}
	return moved == MD_ROOT_INO ? -EINVAL : 0;
}

static int rename_look(struct md_ctx *ctx, const PbMeta__RenameRequest *request, struct rename *rn)
{
	uint64_t ino;
	uint32_t type;
	int r;

	if (request->flags & ~(RENAME_NOREPLACE_FLAG | RENAME_EXCHANGE_FLAG) ||
	    request->flags == (RENAME_NOREPLACE_FLAG | RENAME_EXCHANGE_FLAG))
		return -EINVAL;
	rn->same_dir = request->from_parent == request->to_parent;
	r = get_named(ctx, request->from_parent, request->from_name, &rn->from_dir, &rn->moved);
	if (r == 0)
		r = md_name_check(request->to_name);
	if (r == 0)
		r = md_get_dir(ctx, request->to_parent, MD_MAY_EXEC, &rn->to_dir);
	if (r < 0)
		return r;
	r = md_get_entry(ctx, request->to_parent, request->to_name, &ino, &type);
	rn->has_target = r == 0;
	if (rn->has_target)
		r = md_get_inode(ctx, ino, &rn->target);
	return r == -ENOENT ? 0 : r;
}

/* A directory that goes to another parent: not into itself, writable (its ".." changes). */
static int check_move(struct md_ctx *ctx, const struct md_inode *inode,
		      const struct md_inode *to_dir, bool gains)
{
	int r = check_loop(ctx, inode->ino, to_dir->ino);

	if (r == 0)
		r = md_may(ctx, inode, MD_MAY_WRITE);
	return r == 0 && gains && to_dir->nlink >= MD_LINK_MAX ? -EMLINK : r;
}

static int rename_judge(struct md_ctx *ctx, const PbMeta__RenameRequest *request,
			const struct rename *rn)
{
	bool exchange = request->flags & RENAME_EXCHANGE_FLAG;
	bool moves_dir = S_ISDIR(rn->moved.mode);
	bool replaces_dir = rn->has_target && S_ISDIR(rn->target.mode);
	int r;

	r = md_may(ctx, &rn->from_dir, MD_MAY_WRITE);
	if (r == 0)
		r = md_may(ctx, &rn->to_dir, MD_MAY_WRITE);
	if (r == 0)
		r = check_sticky(ctx, &rn->from_dir, &rn->moved);
	if (r == 0 && rn->to_dir.nlink == 0)
		r = -ENOENT;
	if (r == 0 && moves_dir && !rn->same_dir)
		r = check_move(ctx, &rn->moved, &rn->to_dir, !replaces_dir);
	if (r == 0 && exchange && replaces_dir && !rn->same_dir)
		r = check_move(ctx, &rn->target, &rn->from_dir, !moves_dir);
	if (r < 0 || !rn->has_target)
		return r;
	return exchange ? check_sticky(ctx, &rn->to_dir, &rn->target)
			: check_removable(ctx, &rn->to_dir, &rn->target, moves_dir);
}

/* An inode that stays but goes by another name, in another directory perhaps. */
static void place(struct md_ctx *ctx, struct md_inode *inode, uint64_t parent, const char *name)
{
	if (S_ISDIR(inode->mode))
		inode->parent = parent;
	inode->ctime_ns = ctx->time_ns;
	md_put_inode(ctx, inode, false);
	md_put_entry(ctx, parent, name, inode);
}

/* Both directories, with what came and went; one record if they are one. */
static void touch_both(struct md_ctx *ctx, struct rename *rn, int from_entries, int from_subdirs,
		       int to_entries, int to_subdirs)
{
	if (rn->same_dir) {
		touch_dir(ctx, &rn->to_dir, from_entries + to_entries, from_subdirs + to_subdirs);
		return;
	}
	touch_dir(ctx, &rn->from_dir, from_entries, from_subdirs);
	touch_dir(ctx, &rn->to_dir, to_entries, to_subdirs);
}

int md_apply_rename(struct md_ctx *ctx, struct md_command *command, bool live,
		    ProtobufCMessage *reply GX_UNUSED)
{
	const PbMeta__RenameRequest *request = (const PbMeta__RenameRequest *)command->request;
	struct rename rn = {.has_target = false};
	PbMeta__LayoutRecord *layout = NULL;
	int moved_dirs, target_dirs;
	int r;

	r = rename_look(ctx, request, &rn);
	if (r < 0)
		return r;
	if (rn.has_target && (request->flags & RENAME_NOREPLACE_FLAG))
		return -EEXIST;
	if (!rn.has_target && (request->flags & RENAME_EXCHANGE_FLAG))
		return -ENOENT;
	/* Two names of one file, or one name onto itself: nothing to do, says POSIX. */
	if (rn.has_target && rn.target.ino == rn.moved.ino)
		return 0;
	r = rename_judge(ctx, request, &rn);
	if (r == 0 && rn.has_target)
		r = md_load_layout(ctx, &rn.target, &layout);
	if (r < 0)
		return r;
	moved_dirs = S_ISDIR(rn.moved.mode) ? 1 : 0;
	target_dirs = rn.has_target && S_ISDIR(rn.target.mode) ? 1 : 0;
	if (request->flags & RENAME_EXCHANGE_FLAG) {
		place(ctx, &rn.moved, request->to_parent, request->to_name);
		place(ctx, &rn.target, request->from_parent, request->from_name);
		touch_both(ctx, &rn, 0, target_dirs - moved_dirs, 0, moved_dirs - target_dirs);
		return 0;
	}
	md_delete_entry(ctx, request->from_parent, request->from_name);
	if (rn.has_target)
		drop_name(ctx, command, live, &rn.target, layout);
	place(ctx, &rn.moved, request->to_parent, request->to_name);
	touch_both(ctx, &rn, -1, -moved_dirs, rn.has_target ? 0 : 1, moved_dirs - target_dirs);
	return 0;
}

/* -- listing --------------------------------------------------------------------------------------
 */

struct listing {
	struct md_ctx *ctx;
	PbMeta__ReaddirReply *reply;
	size_t max;
};

/* 1: the page is full, by its maximum or by the arena's; the next call goes on behind it. */
static int list_one(void *arg, const void *key, size_t key_bytes, const void *value,
		    size_t value_bytes, const struct md_tag *tag)
{
	struct listing *l = arg;
	PbMeta__DirEntry *entry;
	size_t name_bytes = key_bytes - 9;
	char *name;
	int r;

	if (l->reply->n_entries >= l->max)
		return 1;
	entry = rpc_arena_alloc(l->ctx->arena, sizeof(*entry));
	name = rpc_arena_alloc(l->ctx->arena, name_bytes + 1);
	if (!entry || !name)
		return l->reply->n_entries > 0 ? 1 : -ENOMEM;
	pb_meta__dir_entry__init(entry);
	r = md_entry_decode(value, value_bytes, &entry->ino, &entry->type);
	if (r < 0)
		return r;
	memcpy(name, (const char *)key + 9, name_bytes);
	name[name_bytes] = '\0';
	entry->name = name;
	md_depend(l->ctx, tag);
	l->reply->entries[l->reply->n_entries++] = entry;
	return 0;
}

/* 1: as above. */
static int add_attrs(struct md_ctx *ctx, PbMeta__ReaddirReply *reply)
{
	for (size_t i = 0; i < reply->n_entries; i++) {
		PbMeta__DirEntry *entry = reply->entries[i];
		struct md_inode inode;
		int r = md_get_inode(ctx, entry->ino, &inode);

		if (r < 0)
			return r;
		if (md_new_attr(ctx, &entry->attr) < 0) {
			reply->n_entries = i;
			return i > 0 ? 1 : -ENOMEM;
		}
		md_fill_attr(&inode, entry->attr);
	}
	return 0;
}

/* The scan stopped after the key in `next`, a name and a zero byte, perhaps with no name to show.
 */
static int go_on_after(struct md_ctx *ctx, const struct gx_buf *next, PbMeta__ReaddirReply *reply)
{
	size_t bytes = next->bytes - 9;
	char *after = rpc_arena_alloc(ctx->arena, bytes + 1);

	if (!after)
		return -ENOMEM;
	memcpy(after, next->data + 9, bytes);
	after[bytes] = '\0';
	reply->after = after;
	return 0;
}

/* One page. */
static int list(struct md_ctx *ctx, const struct md_key *from, const struct md_key *to, bool plus,
		struct listing *l)
{
	PbMeta__ReaddirReply *reply = l->reply;
	struct gx_buf next;
	int r, more;

	gx_buf_init(&next, MD_KEY_MAX + 1);
	more = md_kv_scan_some(ctx->state->kv, from->bytes, from->count, to->bytes, to->count,
			       READDIR_STEPS_MAX, list_one, l, &next);
	r = more == -EAGAIN ? go_on_after(ctx, &next, reply) : GX_MIN(more, 0);
	gx_buf_fini(&next);
	if (r == 0 && plus)
		r = add_attrs(ctx, reply);
	if (r < 0)
		return r;
	if (r == 1 || more == 1)
		reply->after = reply->entries[reply->n_entries - 1]->name;
	reply->end = r == 0 && more == 0;
	return 0;
}

int md_state_readdir(struct md_ctx *ctx, const PbMeta__ReaddirRequest *request,
		     PbMeta__ReaddirReply *reply)
{
	struct listing l = {.ctx = ctx, .reply = reply};
	struct md_key from, to;
	struct md_inode dir;
	size_t after_bytes = strlen(request->after);
	uint32_t max = request->plus ? READDIR_PLUS_MAX : READDIR_MAX;
	int r;

	r = md_get_dir(ctx, request->ino, MD_MAY_READ, &dir);
	if (r < 0)
		return r;
	if (after_bytes > MD_NAME_MAX)
		return -ENAMETOOLONG;
	l.max = request->entries_max == 0 ? max : GX_MIN(request->entries_max, max);
	reply->entries = rpc_arena_alloc(ctx->arena, l.max * sizeof(PbMeta__DirEntry *));
	if (!reply->entries)
		return -ENOMEM;
	md_depend_names(ctx, dir.ino);
	md_key_entry(&from, dir.ino, NULL, 0);
	md_key_end(&from, &to);
	md_key_entry(&from, dir.ino, request->after, after_bytes);
	if (after_bytes > 0)
		from.bytes[from.count++] = 0; /* the first name behind it */
	/* Who may read but not search sees the names, as with readdir and stat. */
	return list(ctx, &from, &to, request->plus && md_may(ctx, &dir, MD_MAY_EXEC) == 0, &l);
}
