/*
 * gfs_model.h - what the tree behind gfs.h should be: nodes and names in two arrays, written from
 * the manual pages. Calls take paths as the real ones do and return what those should.
 *
 * Times are metad's, so they cannot be predicted; what can be is whether one moves, and that none
 * goes back. One test includes this once; the model is its only one.
 */
#ifndef GFS_MODEL_H
#define GFS_MODEL_H

#include "common/gx_env.h"
#include "include/gfs.h"
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_NODES_MAX 4000u
#define MODEL_ENTRIES_MAX 400u
#define MODEL_INLINE_MAX 8192u
#define MODEL_PATH_MAX (64u * 1024) /* longer than what is allowed */
#define MODEL_LINKS_MAX 40u         /* symbolic links on one walk */
#define MODEL_XATTRS 3u
#define MODEL_TOUCHED_MAX 8u
#define MODEL_ROOT 1u

/* A time of a node: its value when last seen, and whether it has moved since. */
struct model_time {
	int64_t ns;
	bool moved;
	int64_t since_ns; /* if moved: not before this */
};

struct model_node {
	bool alive;
	uint32_t mode, uid, gid;
	uint64_t rdev;
	unsigned names;  /* how many stand for it; a directory has one or none */
	unsigned parent; /* of a directory */
	unsigned open;   /* handles */
	unsigned size;
	unsigned char *data;     /* MODEL_INLINE_MAX bytes; of a link: its target */
	int xattr[MODEL_XATTRS]; /* bytes of the value, -1: none */
	struct model_time atime, mtime, ctime;
	bool changed;     /* since it was last seen */
	uint64_t ino;     /* 0: not seen yet */
	uint64_t version; /* when last seen */
};

struct model_entry {
	unsigned dir, node; /* dir 0: not in use */
	char name[GFS_NAME_MAX + 1];
};

static struct {
	struct model_node nodes[MODEL_NODES_MAX];
	struct model_entry entries[MODEL_ENTRIES_MAX];
	unsigned node_next;
	uint32_t uid, gid, group;            /* who calls; the group he is in besides */
	int64_t latest_ns;                   /* the newest time metad has shown */
	unsigned touched[MODEL_TOUCHED_MAX]; /* nodes the last call concerned, 0: none */
	unsigned touched_count;
} model;

static const char *const model_xattr_names[MODEL_XATTRS] = {"user.one", "user.two", "gfs.three"};

/* -- nodes and names ------------------------------------------------------------------------- */

static struct model_node *model_get(unsigned node)
{
	gx_assert(node > 0 && node < model.node_next && model.nodes[node].alive);
	return &model.nodes[node];
}

static void model_note(unsigned node)
{
	if (node > 0 && model.touched_count < MODEL_TOUCHED_MAX)
		model.touched[model.touched_count++] = node;
}

static void model_move(struct model_time *time)
{
	time->moved = true;
	time->since_ns = model.latest_ns;
}

static void model_changed(struct model_node *n)
{
	model_move(&n->ctime);
	n->changed = true;
}

static void model_modified(struct model_node *n)
{
	model_move(&n->mtime);
	model_changed(n);
}

static struct model_entry *model_entry(unsigned dir, const char *name)
{
	for (unsigned i = 0; i < MODEL_ENTRIES_MAX; i++)
		if (model.entries[i].dir == dir && strcmp(model.entries[i].name, name) == 0)
			return &model.entries[i];
	return NULL;
}

static unsigned model_count(unsigned dir, bool dirs_only)
{
	unsigned count = 0;

	for (unsigned i = 0; i < MODEL_ENTRIES_MAX; i++)
		count += model.entries[i].dir == dir &&
			 (!dirs_only || S_ISDIR(model.nodes[model.entries[i].node].mode));
	return count;
}

static void model_add_entry(unsigned dir, const char *name, unsigned node)
{
	for (unsigned i = 0; i < MODEL_ENTRIES_MAX; i++) {
		struct model_entry *e = &model.entries[i];

		if (e->dir != 0)
			continue;
		e->dir = dir;
		e->node = node;
		ck_assert_int_eq(gx_strcpy(e->name, sizeof(e->name), name), 0);
		return;
	}
	ck_abort_msg("the model is full");
}

static void model_let_go(struct model_node *n)
{
	if (n->names > 0 || n->open > 0)
		return;
	n->alive = false;
	free(n->data);
	n->data = NULL;
}

static void model_init(uint32_t uid, uint32_t gid, uint32_t group)
{
	struct model_node *root = &model.nodes[MODEL_ROOT];

	memset(&model, 0, sizeof(model));
	model.uid = uid;
	model.gid = gid;
	model.group = group;
	model.node_next = MODEL_ROOT + 1;
	*root = (struct model_node){
		.alive = true, .mode = S_IFDIR | 0777, .names = 1, .parent = MODEL_ROOT};
	for (unsigned i = 0; i < MODEL_XATTRS; i++)
		root->xattr[i] = -1;
	root->changed = root->atime.moved = root->mtime.moved = root->ctime.moved = true;
}

static void model_fini(void)
{
	for (unsigned i = 0; i < model.node_next; i++)
		free(model.nodes[i].data);
}

/* -- rights ---------------------------------------------------------------------------------- */

static bool model_member(uint32_t gid)
{
	return gid == model.gid || gid == model.group;
}

static bool model_may(const struct model_node *n, unsigned rwx)
{
	unsigned shift = model.uid == n->uid ? 6 : model_member(n->gid) ? 3 : 0;

	return model.uid == 0 || ((n->mode >> shift) & rwx) == rwx;
}

static bool model_owns(const struct model_node *n)
{
	return model.uid == 0 || model.uid == n->uid;
}

static bool model_sticky(const struct model_node *dir, const struct model_node *n)
{
	return (dir->mode & S_ISVTX) && !model_owns(n) && !model_owns(dir);
}

static void model_lose_set_id(struct model_node *n)
{
	if (!S_ISREG(n->mode))
		return;
	n->mode &= ~(uint32_t)S_ISUID;
	if (n->mode & S_IXGRP)
		n->mode &= ~(uint32_t)S_ISGID;
}

/* -- paths ----------------------------------------------------------------------------------- */

struct model_walk {
	unsigned dir;
	char name[GFS_NAME_MAX + 1]; /* "" for the root; "." and ".." as they are */
	bool slash;                  /* behind the name */
	unsigned links;
	char *rest;
	char text[2 * GFS_PATH_MAX];
};

static int model_walk_init(struct model_walk *walk, const char *path)
{
	walk->dir = MODEL_ROOT;
	walk->links = 0;
	walk->rest = walk->text;
	if (path[0] == '\0')
		return -ENOENT;
	if (strncmp(path, "gfs:", 4) == 0)
		path += 4;
	return gx_strcpy(walk->text, GFS_PATH_MAX, path) < 0 ? -ENAMETOOLONG : 0;
}

static bool model_is_name(const struct model_walk *walk)
{
	return walk->name[0] && strcmp(walk->name, ".") != 0 && strcmp(walk->name, "..") != 0;
}

static int model_lookup(unsigned dir, const char *name, unsigned *ret_node)
{
	const struct model_entry *e = model_entry(dir, name);

	if (!model_may(model_get(dir), 1))
		return -EACCES;
	if (!e)
		return -ENOENT;
	*ret_node = e->node;
	return 0;
}

static int model_follow(struct model_walk *walk, unsigned link)
{
	const struct model_node *n = model_get(link);
	size_t rest_bytes = strlen(walk->rest);

	if (++walk->links > MODEL_LINKS_MAX)
		return -ELOOP;
	if (n->size + rest_bytes >= GFS_PATH_MAX)
		return -ENAMETOOLONG;
	memmove(walk->text + n->size, walk->rest, rest_bytes + 1);
	memcpy(walk->text, n->data, n->size);
	walk->rest = walk->text;
	if (n->data[0] == '/')
		walk->dir = MODEL_ROOT;
	return 0;
}

static int model_step(struct model_walk *walk)
{
	unsigned node = 0;
	int r;

	if (strcmp(walk->name, "..") == 0)
		walk->dir = model_get(walk->dir)->parent;
	if (!model_is_name(walk))
		return 0;
	r = model_lookup(walk->dir, walk->name, &node);
	if (r < 0)
		return r;
	if (S_ISLNK(model_get(node)->mode))
		return model_follow(walk, node);
	if (!S_ISDIR(model_get(node)->mode))
		return -ENOTDIR;
	walk->dir = node;
	return 0;
}

/* Up to the last component. */
static int model_parent(struct model_walk *walk)
{
	for (;;) {
		size_t bytes;
		int r;

		walk->rest += strspn(walk->rest, "/");
		bytes = strcspn(walk->rest, "/");
		if (bytes > GFS_NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(walk->name, walk->rest, bytes);
		walk->name[bytes] = '\0';
		walk->rest += bytes;
		if (walk->rest[strspn(walk->rest, "/")] == '\0') {
			walk->slash = walk->rest[0] == '/';
			return 0;
		}
		r = model_step(walk);
		if (r < 0)
			return r;
	}
}

static int model_walk_find(struct model_walk *walk, bool follow, unsigned *ret_node)
{
	for (;;) {
		unsigned node = 0;
		int r = model_parent(walk);

		if (r == 0 && !model_is_name(walk)) {
			*ret_node = strcmp(walk->name, "..") == 0 ? model_get(walk->dir)->parent
								  : walk->dir;
			return 0;
		}
		if (r == 0)
			r = model_lookup(walk->dir, walk->name, &node);
		if (r < 0)
			return r;
		if (S_ISLNK(model_get(node)->mode) && (follow || walk->slash)) {
			r = model_follow(walk, node);
			if (r < 0)
				return r;
			continue;
		}
		if (walk->slash && !S_ISDIR(model_get(node)->mode))
			return -ENOTDIR;
		*ret_node = node;
		return 0;
	}
}

static int model_find(const char *path, bool follow, unsigned *ret_node)
{
	struct model_walk walk;
	int r = model_walk_init(&walk, path);

	return r < 0 ? r : model_walk_find(&walk, follow, ret_node);
}

/* Init and parent. */
static int model_at(struct model_walk *walk, const char *path)
{
	int r = model_walk_init(walk, path);

	return r < 0 ? r : model_parent(walk);
}

/* -- making ---------------------------------------------------------------------------------- */

static int model_can_add(unsigned dir, const char *name)
{
	unsigned node;
	int r = model_lookup(dir, name, &node);

	if (r != -ENOENT)
		return r == 0 ? -EEXIST : r;
	return model_may(model_get(dir), 2) ? 0 : -EACCES;
}

static unsigned model_new(unsigned dir, const char *name, uint32_t mode, const char *target)
{
	unsigned node = model.node_next++;
	struct model_node *n = &model.nodes[node], *d = model_get(dir);

	gx_assert(node < MODEL_NODES_MAX);
	*n = (struct model_node){.alive = true, .uid = model.uid, .gid = model.gid, .names = 1};
	n->mode = S_ISDIR(mode) ? mode & (S_IFMT | 01777) : S_ISLNK(mode) ? S_IFLNK | 0777 : mode;
	if (d->mode & S_ISGID) {
		n->gid = d->gid;
		if (S_ISDIR(mode))
			n->mode |= S_ISGID;
		else if (model.uid != 0 && !model_member(n->gid))
			n->mode &= ~(uint32_t)S_ISGID;
	}
	n->parent = S_ISDIR(mode) ? dir : 0;
	n->data = S_ISREG(mode) || S_ISLNK(mode) ? calloc(1, MODEL_INLINE_MAX) : NULL;
	if (target) {
		n->size = (unsigned)strlen(target);
		memcpy(n->data, target, n->size);
	}
	for (unsigned i = 0; i < MODEL_XATTRS; i++)
		n->xattr[i] = -1;
	model_move(&n->atime);
	model_modified(n);
	model_add_entry(dir, name, node);
	model_modified(d);
	model_note(node);
	model_note(dir);
	return node;
}

/* A slash behind what is not to be a directory. */
static int model_slash(const struct model_walk *walk)
{
	unsigned node;
	int r = model_lookup(walk->dir, walk->name, &node);

	return r == 0 ? -EEXIST : r;
}

static int model_make(const char *path, uint32_t mode, uint64_t rdev, const char *target)
{
	bool device = S_ISCHR(mode) || S_ISBLK(mode);
	struct model_walk walk;
	unsigned node;
	int r = model_at(&walk, path);

	if (r == 0 && !model_is_name(&walk))
		r = -EEXIST;
	if (r == 0 && walk.slash && !S_ISDIR(mode))
		r = model_slash(&walk);
	if (r == 0 && device && model.uid != 0)
		r = -EPERM;
	if (r == 0)
		r = model_can_add(walk.dir, walk.name);
	if (r < 0)
		return r;
	node = model_new(walk.dir, walk.name, mode, target);
	model.nodes[node].rdev = device ? rdev : 0;
	return 0;
}

static int model_link(const char *from, const char *to)
{
	struct model_walk walk;
	struct model_node *n;
	unsigned node = 0;
	int r = model_find(from, false, &node);

	if (r == 0)
		r = model_at(&walk, to);
	if (r == 0 && !model_is_name(&walk))
		r = -EEXIST;
	if (r == 0 && walk.slash)
		r = model_slash(&walk);
	if (r == 0)
		r = model_can_add(walk.dir, walk.name);
	if (r < 0)
		return r;
	n = model_get(node);
	if (S_ISDIR(n->mode))
		return -EPERM;
	if (!model_owns(n) &&
	    (!S_ISREG(n->mode) || (n->mode & S_ISUID) ||
	     (n->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) || !model_may(n, 6)))
		return -EPERM;
	n->names++;
	model_changed(n);
	model_add_entry(walk.dir, walk.name, node);
	model_modified(model_get(walk.dir));
	model_note(node);
	model_note(walk.dir);
	return 0;
}

/* -- removing and moving --------------------------------------------------------------------- */

static void model_lose_name(unsigned node)
{
	struct model_node *n = model_get(node);

	n->names--;
	model_changed(n);
	model_note(node);
	model_let_go(n);
}

static int model_can_remove(unsigned dir, unsigned node, bool as_dir)
{
	const struct model_node *n = model_get(node);

	if (model_sticky(model_get(dir), n))
		return -EPERM;
	if (as_dir && !S_ISDIR(n->mode))
		return -ENOTDIR;
	if (!as_dir && S_ISDIR(n->mode))
		return -EISDIR;
	return as_dir && model_count(node, false) > 0 ? -ENOTEMPTY : 0;
}

static int model_remove(const char *path, bool as_dir)
{
	struct model_walk walk;
	unsigned node = 0;
	int r = model_at(&walk, path);

	if (r == 0 && !model_is_name(&walk))
		return !as_dir                       ? -EISDIR
		       : walk.name[0] == '\0'        ? -EBUSY
		       : strcmp(walk.name, ".") == 0 ? -EINVAL
						     : -ENOTEMPTY;
	if (r == 0)
		r = model_lookup(walk.dir, walk.name, &node);
	if (r < 0)
		return r;
	if (walk.slash && !as_dir)
		return S_ISDIR(model_get(node)->mode) ? -EISDIR : -ENOTDIR;
	if (!model_may(model_get(walk.dir), 2))
		return -EACCES;
	r = model_can_remove(walk.dir, node, as_dir);
	if (r < 0)
		return r;
	model_entry(walk.dir, walk.name)->dir = 0;
	model_lose_name(node);
	model_modified(model_get(walk.dir));
	model_note(walk.dir);
	return 0;
}

static bool model_lies_in(unsigned dir, unsigned top)
{
	while (dir != MODEL_ROOT && dir != top)
		dir = model_get(dir)->parent;
	return dir == top;
}

/* Of a directory: not into itself, and its ".." must be writable. */
static int model_can_move(unsigned node, unsigned to_dir)
{
	if (!S_ISDIR(model_get(node)->mode))
		return 0;
	if (model_lies_in(to_dir, node))
		return -EINVAL;
	return model_may(model_get(node), 2) ? 0 : -EACCES;
}

static void model_placed(unsigned node, unsigned dir)
{
	struct model_node *n = model_get(node);

	model_changed(n);
	model_note(node);
	if (S_ISDIR(n->mode))
		n->parent = dir;
}

static int model_rename_checks(const struct model_walk *a, const struct model_walk *b,
			       unsigned moved, unsigned over, unsigned flags)
{
	bool exchange = flags == GFS_RENAME_EXCHANGE;
	int r = 0;

	if (!model_may(model_get(a->dir), 2) || !model_may(model_get(b->dir), 2))
		return -EACCES;
	if (model_sticky(model_get(a->dir), model_get(moved)))
		return -EPERM;
	if (a->dir != b->dir)
		r = model_can_move(moved, b->dir);
	if (r == 0 && exchange && a->dir != b->dir)
		r = model_can_move(over, a->dir);
	if (r == 0 && exchange && model_sticky(model_get(b->dir), model_get(over)))
		r = -EPERM;
	if (r == 0 && over && !exchange)
		r = model_can_remove(b->dir, over, S_ISDIR(model_get(moved)->mode));
	return r;
}

static void model_rename_do(const struct model_walk *a, const struct model_walk *b, unsigned moved,
			    unsigned over, unsigned flags)
{
	if (flags == GFS_RENAME_EXCHANGE) {
		model_entry(a->dir, a->name)->node = over;
		model_entry(b->dir, b->name)->node = moved;
		model_placed(over, a->dir);
	} else {
		model_entry(a->dir, a->name)->dir = 0;
		if (over) {
			model_entry(b->dir, b->name)->node = moved;
			model_lose_name(over);
		} else {
			model_add_entry(b->dir, b->name, moved);
		}
	}
	model_placed(moved, b->dir);
	model_modified(model_get(a->dir));
	model_modified(model_get(b->dir));
	model_note(a->dir);
	model_note(b->dir);
}

/* The last one must be a directory, it has a slash. */
static int model_must_be_dir(const struct model_walk *walk)
{
	unsigned node;
	int r = model_lookup(walk->dir, walk->name, &node);

	return r < 0 ? r : S_ISDIR(model_get(node)->mode) ? 0 : -ENOTDIR;
}

static int model_renamable(const struct model_walk *walk)
{
	return walk->name[0] == '\0' ? -EBUSY : model_is_name(walk) ? 0 : -EINVAL;
}

static int model_rename(const char *from, const char *to, unsigned flags)
{
	bool exchange = flags == GFS_RENAME_EXCHANGE;
	struct model_walk a, b;
	unsigned moved = 0, over = 0;
	int r;

	if (flags > GFS_RENAME_EXCHANGE)
		return -EINVAL;
	r = model_at(&a, from);
	if (r == 0)
		r = model_at(&b, to);
	if (r == 0)
		r = model_renamable(&a);
	if (r == 0)
		r = model_renamable(&b);
	if (r == 0 && (a.slash || (b.slash && !exchange)))
		r = model_must_be_dir(&a);
	if (r == 0 && b.slash && exchange)
		r = model_must_be_dir(&b);
	if (r == 0)
		r = model_lookup(a.dir, a.name, &moved);
	if (r < 0)
		return r;
	r = model_lookup(b.dir, b.name, &over);
	if (r < 0 && (r != -ENOENT || exchange))
		return r;
	if (over && flags == GFS_RENAME_NOREPLACE)
		return -EEXIST;
	if (over == moved)
		return 0;
	r = model_rename_checks(&a, &b, moved, over, flags);
	if (r == 0)
		model_rename_do(&a, &b, moved, over, flags);
	return r;
}

/* -- attributes ------------------------------------------------------------------------------ */

static int model_chmod(const char *path, uint32_t mode)
{
	struct model_node *n;
	unsigned node;
	int r = model_find(path, true, &node);

	if (r < 0)
		return r;
	n = model_get(node);
	if (!model_owns(n))
		return -EPERM;
	n->mode = (n->mode & S_IFMT) | mode;
	if (model.uid != 0 && !model_member(n->gid))
		n->mode &= ~(uint32_t)S_ISGID;
	model_changed(n);
	model_note(node);
	return 0;
}

static int model_chown(const char *path, uint32_t uid, uint32_t gid, bool follow)
{
	struct model_node *n;
	unsigned node;
	int r = model_find(path, follow, &node);

	if (r < 0 || (uid == UINT32_MAX && gid == UINT32_MAX))
		return r;
	n = model_get(node);
	if (model.uid != 0 && (!model_owns(n) || (uid != UINT32_MAX && uid != n->uid) ||
			       (gid != UINT32_MAX && gid != n->gid && !model_member(gid))))
		return -EPERM;
	model_lose_set_id(n);
	n->uid = uid != UINT32_MAX ? uid : n->uid;
	n->gid = gid != UINT32_MAX ? gid : n->gid;
	model_changed(n);
	model_note(node);
	return 0;
}

static void model_set_time(struct model_time *time, const struct timespec *ts)
{
	if (ts->tv_nsec == UTIME_OMIT)
		return;
	if (ts->tv_nsec == UTIME_NOW)
		model_move(time);
	else
		*time = (struct model_time){.ns = ts->tv_sec * GX_NSEC_PER_SEC + ts->tv_nsec};
}

static int model_utimens(const char *path, const struct timespec times[2], bool follow)
{
	bool now = false, given = false;
	struct model_node *n;
	unsigned node;
	int r = model_find(path, follow, &node);

	if (r < 0)
		return r;
	n = model_get(node);
	for (unsigned i = 0; i < 2; i++) {
		now = now || times[i].tv_nsec == UTIME_NOW;
		given = given || (times[i].tv_nsec != UTIME_NOW && times[i].tv_nsec != UTIME_OMIT);
	}
	if (given && !model_owns(n))
		return -EPERM;
	if (now && !model_owns(n) && !model_may(n, 2))
		return -EACCES;
	model_set_time(&n->atime, &times[0]);
	model_set_time(&n->mtime, &times[1]);
	if (now || given)
		model_changed(n);
	model_note(node);
	return 0;
}

/* -- extended attributes --------------------------------------------------------------------- */

static int model_setxattr(const char *path, unsigned which, int bytes, unsigned flags, bool follow)
{
	bool remove = bytes < 0;
	struct model_node *n;
	unsigned node;
	int r = model_find(path, follow, &node);

	if (r < 0)
		return r;
	n = model_get(node);
	if (which == 2 && !model_owns(n))
		return -EPERM;
	if (which != 2) {
		if (!S_ISREG(n->mode) && !S_ISDIR(n->mode))
			return -EPERM;
		if (S_ISDIR(n->mode) && (n->mode & S_ISVTX) && !model_owns(n))
			return -EPERM;
		if (!model_may(n, 2))
			return -EACCES;
	}
	if (n->xattr[which] >= 0 && (flags & GFS_XATTR_CREATE))
		return -EEXIST;
	if (n->xattr[which] < 0 && (remove || (flags & GFS_XATTR_REPLACE)))
		return -ENODATA;
	n->xattr[which] = bytes;
	model_changed(n);
	model_note(node);
	return 0;
}

/* Bytes of the value. */
static int model_getxattr(const char *path, unsigned which, bool follow)
{
	const struct model_node *n;
	unsigned node;
	int r = model_find(path, follow, &node);

	if (r < 0)
		return r;
	n = model_get(node);
	if (which != 2 && !S_ISREG(n->mode) && !S_ISDIR(n->mode))
		return -ENODATA;
	if (which != 2 && !model_may(n, 4))
		return -EACCES;
	return n->xattr[which] >= 0 ? n->xattr[which] : -ENODATA;
}

/* -- content --------------------------------------------------------------------------------- */

static int model_resize(struct model_node *n, uint64_t size)
{
	if (size > MODEL_INLINE_MAX)
		return -EHOSTUNREACH; /* no storage node */
	if (size > n->size)
		memset(n->data + n->size, 0, size - n->size);
	n->size = (unsigned)size;
	model_modified(n);
	if (model.uid != 0)
		model_lose_set_id(n);
	return 0;
}

static int model_truncate(const char *path, uint64_t size)
{
	struct model_node *n;
	unsigned node;
	int r = model_find(path, true, &node);

	if (r < 0)
		return r;
	n = model_get(node);
	if (!S_ISREG(n->mode))
		return S_ISDIR(n->mode) ? -EISDIR : -EINVAL;
	if (!model_may(n, 2))
		return -EACCES;
	model_note(node);
	return model_resize(n, size);
}

static int model_write(struct model_node *n, uint64_t offset, const void *data, unsigned bytes)
{
	if (bytes == 0)
		return 0;
	if (offset + bytes > MODEL_INLINE_MAX)
		return -EHOSTUNREACH; /* no storage node */
	if (offset > n->size)
		memset(n->data + n->size, 0, offset - n->size);
	memcpy(n->data + offset, data, bytes);
	n->size = GX_MAX(n->size, (unsigned)offset + bytes);
	model_modified(n);
	if (model.uid != 0)
		model_lose_set_id(n);
	return (int)bytes;
}

/* One try at the last name; 1: a link, go on. */
static int model_open_last(struct model_walk *walk, unsigned flags, uint32_t mode,
			   unsigned *ret_node)
{
	bool make = flags & GFS_O_CREATE, exclusive = make && (flags & GFS_O_EXCL);
	unsigned node = 0, want = (flags & GFS_O_READ ? 4 : 0) | (flags & GFS_O_WRITE ? 2 : 0);
	struct model_node *n;
	int r;

	if (!model_is_name(walk))
		return exclusive ? -EEXIST : -EISDIR;
	if (walk->slash && make)
		return -EISDIR;
	r = model_lookup(walk->dir, walk->name, &node);
	if (r == -ENOENT && make) {
		if (!model_may(model_get(walk->dir), 2))
			return -EACCES;
		*ret_node = model_new(walk->dir, walk->name, S_IFREG | mode, NULL);
		return 0;
	}
	if (r < 0)
		return r;
	if (exclusive)
		return -EEXIST;
	n = model_get(node);
	if (S_ISLNK(n->mode)) {
		if ((flags & GFS_O_NOFOLLOW) && !walk->slash)
			return -ELOOP;
		r = model_follow(walk, node);
		return r < 0 ? r : 1;
	}
	if (walk->slash)
		return S_ISDIR(n->mode) ? -EISDIR : -ENOTDIR;
	if (S_ISDIR(n->mode) && (flags & GFS_O_WRITE))
		return -EISDIR;
	if (!model_may(n, want))
		return -EACCES;
	if (S_ISDIR(n->mode))
		return -EISDIR;
	if ((flags & GFS_O_TRUNC) && S_ISREG(n->mode) && n->size > 0)
		GX_IGNORE(model_resize(n, 0)); /* cannot be too big */
	*ret_node = node;
	return 0;
}

static int model_open(const char *path, unsigned flags, uint32_t mode, unsigned *ret_node)
{
	struct model_walk walk;
	int r;

	if (!(flags & (GFS_O_READ | GFS_O_WRITE)) ||
	    ((flags & GFS_O_TRUNC) && !(flags & GFS_O_WRITE)))
		return -EINVAL;
	r = model_walk_init(&walk, path);
	if (r < 0)
		return r;
	do {
		r = model_parent(&walk);
		if (r == 0)
			r = model_open_last(&walk, flags, mode, ret_node);
	} while (r > 0);
	if (r == 0) {
		model_get(*ret_node)->open++;
		model_note(*ret_node);
	}
	return r;
}

#endif
