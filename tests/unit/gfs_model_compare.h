/*
 * gfs_model_compare.h - libgfs and the model (gfs_model.h) side by side: chance, messages that tell
 * the seed and the call, and the comparison of attributes, contents and listings.
 */
#ifndef GFS_MODEL_COMPARE_H
#define GFS_MODEL_COMPARE_H

#include "gfs_model.h"
#include <ctype.h>
#include <stdio.h>

#define HANDLES_MAX 8u
#define NAMES_COUNT 8u
#define PATH_BYTES MODEL_PATH_MAX

struct handle {
	struct gfs_file *file; /* NULL: not in use */
	unsigned node, flags;
	uint64_t position;
};

static struct gfs *fs;
static struct handle handles[HANDLES_MAX];
static char names[NAMES_COUNT][GFS_NAME_MAX + 1];
static char call_text[1024]; /* what is being done, for messages */
static unsigned step_number;
static uint64_t seed, random_state, seed_first = 1;
static bool trace;

/* -- chance ---------------------------------------------------------------------------------- */

static unsigned below(unsigned bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)((random_state >> 20) % bound);
}

/* Names of all lengths, of all bytes a name may have. */
static void make_names(void)
{
	static const unsigned lengths[NAMES_COUNT] = {1, 1, 2, 3, 8, 0, 0, GFS_NAME_MAX};

	for (unsigned i = 0; i < NAMES_COUNT; i++) {
		unsigned bytes = lengths[i] ? lengths[i] : 1 + below(GFS_NAME_MAX);

		memset(names[i], 0, sizeof(names[i]));
		for (unsigned k = 0; k < bytes; k++)
			do
				names[i][k] = i < 2 ? "ab"[i] : (char)(1 + below(255));
			while (names[i][k] == '/' || names[i][k] == '.');
	}
}

/* -- messages -------------------------------------------------------------------------------- */

/* A path that a person can read, in one of some buffers. */
static const char *show(const char *path)
{
	static char buffers[4][120];
	static unsigned next;
	char *out = buffers[next++ % 4];
	size_t at = 0;

	for (; *path && at < sizeof(buffers[0]) - 8; path++)
		at += (size_t)snprintf(out + at, sizeof(buffers[0]) - at,
				       isprint((unsigned char)*path) ? "%c" : "\\%02x",
				       (unsigned char)*path);
	snprintf(out + at, sizeof(buffers[0]) - at, "%s", *path ? "..." : "");
	return out;
}

#define CALL(...)                                                                                  \
	do {                                                                                       \
		snprintf(call_text, sizeof(call_text), __VA_ARGS__);                               \
		if (trace)                                                                         \
			fprintf(stderr, "%u: %s\n", step_number, call_text);                       \
	} while (0)
#define AGREE(condition, fmt, ...)                                                                 \
	ck_assert_msg(condition, "seed %llu, step %u: %s: " fmt, (unsigned long long)seed,         \
		      step_number, call_text, __VA_ARGS__)
/* The real one first, then the model. */
#define SAME(real_call, model_call)                                                                \
	do {                                                                                       \
		long long got_ = (real_call), want_ = (model_call);                                \
		AGREE(got_ == want_, "got %lld, not %lld", got_, want_);                           \
	} while (0)

/* -- comparing ------------------------------------------------------------------------------- */

/* "" for what has no name. */
static const char *path_of(unsigned node)
{
	static char buf[PATH_BYTES];
	char *at = buf + sizeof(buf) - 1;

	*at = '\0';
	while (node != MODEL_ROOT) {
		const struct model_entry *e = NULL;
		size_t bytes;

		for (unsigned i = 0; i < MODEL_ENTRIES_MAX && !e; i++)
			if (model.entries[i].dir != 0 && model.entries[i].node == node)
				e = &model.entries[i];
		if (!e)
			return "";
		bytes = strlen(e->name);
		gx_assert(at - buf > (ptrdiff_t)bytes + 1);
		at -= bytes;
		memcpy(at, e->name, bytes);
		*--at = '/';
		node = e->dir;
	}
	return *at ? at : "/";
}

static void compare_time(const char *what, struct model_time *time, struct timespec ts)
{
	int64_t ns = ts.tv_sec * GX_NSEC_PER_SEC + ts.tv_nsec;

	if (time->moved)
		AGREE(ns >= time->since_ns, "%s %lld is before %lld", what, (long long)ns,
		      (long long)time->since_ns);
	else
		AGREE(ns == time->ns, "%s moved by %lld", what, (long long)(ns - time->ns));
	time->ns = ns;
	time->moved = false;
}

/* The first look at a node tells its number, which nothing had before (rule N3). */
static void learn_ino(struct model_node *n, uint64_t ino)
{
	for (unsigned i = 1; i < model.node_next; i++)
		AGREE(model.nodes[i].ino != ino, "inode %llu was given twice",
		      (unsigned long long)ino);
	n->ino = ino;
}

static void compare_stat(unsigned node, const struct gfs_stat *st)
{
	struct model_node *n = model_get(node);
	bool is_dir = S_ISDIR(n->mode);
	unsigned nlink = !is_dir ? n->names : n->names == 0 ? 0 : 2 + model_count(node, true);
	unsigned size = is_dir ? model_count(node, false) : n->size;
	int64_t ctime_ns = n->ctime.ns;

	if (n->ino == 0)
		learn_ino(n, st->ino);
	AGREE(st->ino == n->ino, "node %u is inode %llu", node, (unsigned long long)st->ino);
	AGREE(st->mode == n->mode, "mode %o, not %o", st->mode, n->mode);
	AGREE(st->nlink == nlink, "%u links, not %u", st->nlink, nlink);
	AGREE(st->uid == n->uid && st->gid == n->gid, "owner %u:%u, not %u:%u", st->uid, st->gid,
	      n->uid, n->gid);
	AGREE(st->size == size, "%llu bytes, not %u", (unsigned long long)st->size, size);
	AGREE(st->rdev == n->rdev, "device %llx", (unsigned long long)st->rdev);
	compare_time("atime", &n->atime, st->atime);
	compare_time("mtime", &n->mtime, st->mtime);
	compare_time("ctime", &n->ctime, st->ctime);
	AGREE(n->ctime.ns >= ctime_ns, "ctime went back by %lld",
	      (long long)(ctime_ns - n->ctime.ns));
	AGREE(n->changed ? st->version > n->version : st->version == n->version,
	      "version %llu after %llu", (unsigned long long)st->version,
	      (unsigned long long)n->version);
	n->version = st->version;
	n->changed = false;
	model.latest_ns = GX_MAX(model.latest_ns, n->ctime.ns);
}

static void compare_node(unsigned node)
{
	const char *path = path_of(node);
	struct gfs_stat st;
	unsigned found;
	int r;

	if (!model.nodes[node].alive)
		return;
	for (unsigned i = 0; path[0] == '\0' && i < HANDLES_MAX; i++)
		if (handles[i].file && handles[i].node == node) {
			SAME(gfs_fstat(handles[i].file, &st), 0);
			compare_stat(node, &st);
			return;
		}
	r = gfs_lstat(fs, path, &st);
	SAME(r, model_find(path, false, &found));
	if (r == 0)
		compare_stat(node, &st);
}

/* -- contents -------------------------------------------------------------------------------- */

static void compare_bytes(const void *got, ssize_t got_bytes, const struct model_node *n,
			  uint64_t offset, size_t bytes)
{
	size_t want = offset < n->size ? GX_MIN(bytes, (size_t)(n->size - offset)) : 0;

	AGREE(got_bytes == (ssize_t)want, "read %zd bytes, not %zu", got_bytes, want);
	AGREE(want == 0 || memcmp(got, n->data + offset, want) == 0, "other bytes than written%s",
	      "");
}

static void compare_content(unsigned node, const char *path)
{
	static unsigned char data[MODEL_INLINE_MAX + 1];
	const struct model_node *n = model_get(node);
	struct gfs_file *file;
	unsigned opened;
	int r;

	r = gfs_open(fs, path, GFS_O_READ, 0, &file);
	SAME(r, model_open(path, GFS_O_READ, 0, &opened));
	if (r < 0)
		return;
	compare_bytes(data, gfs_pread(file, data, sizeof(data), 0), n, 0, sizeof(data));
	SAME(gfs_close(file), 0);
	model_get(opened)->open--;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct model_entry *const *)a)->name,
		      (*(const struct model_entry *const *)b)->name);
}

/* Names in `dir` behind `after`, sorted. */
static unsigned list_of(unsigned dir, const char *after, const struct model_entry **list)
{
	unsigned count = 0;

	for (unsigned i = 0; i < MODEL_ENTRIES_MAX; i++)
		if (model.entries[i].dir == dir && strcmp(model.entries[i].name, after) > 0)
			list[count++] = &model.entries[i];
	if (count > 0)
		qsort(list, count, sizeof(struct model_entry *), by_name);
	return count;
}

static void compare_entry(unsigned dir, const struct gfs_dirent *got,
			  const struct model_entry *want)
{
	const struct model_node *n = model_get(want->node);

	AGREE(strcmp(got->name, want->name) == 0, "%s listed, not %s", show(got->name),
	      show(want->name));
	AGREE(got->type == (n->mode & S_IFMT), "%s is listed as type %o", show(got->name),
	      got->type);
	AGREE(got->has_stat == model_may(model_get(dir), 1), "%s is listed %s attributes",
	      show(got->name), got->has_stat ? "with" : "without");
	if (got->has_stat)
		compare_stat(want->node, &got->st);
}

static void compare_rest(unsigned dir, struct gfs_dir *handle, const char *after)
{
	static const struct model_entry *list[MODEL_ENTRIES_MAX];
	unsigned count = list_of(dir, after, list);
	struct gfs_dirent entry;

	for (unsigned i = 0; i < count; i++) {
		SAME(gfs_readdir(handle, &entry), 1);
		compare_entry(dir, &entry, list[i]);
	}
	SAME(gfs_readdir(handle, &entry), 0);
}

static void compare_listing(unsigned dir, const char *path)
{
	struct gfs_dir *handle;

	SAME(gfs_opendir(fs, path, &handle), 0);
	compare_rest(dir, handle, "");
	gfs_closedir(handle);
}

static void compare_xattrs(unsigned node, const char *path)
{
	const struct model_node *n = model_get(node);
	char list[256], value[256];
	ssize_t got = gfs_listxattr(fs, path, list, sizeof(list), false);
	size_t want = 0;

	for (unsigned i = 0; i < MODEL_XATTRS; i++) {
		SAME(gfs_getxattr(fs, path, model_xattr_names[i], value, sizeof(value), false),
		     model_getxattr(path, i, false));
		want += n->xattr[i] >= 0 ? strlen(model_xattr_names[i]) + 1 : 0;
	}
	AGREE(got == (ssize_t)want, "%zd bytes of names of extended attributes", got);
}

/* All of it, as root sees it; nothing may be held back any more. */
static void compare_tree(void)
{
	uint32_t uid = model.uid;

	model.uid = 0;
	for (unsigned node = 1; node < model.node_next; node++) {
		struct model_node *n = &model.nodes[node];
		char path[PATH_BYTES], target[GFS_PATH_MAX];

		if (!n->alive || n->names == 0)
			continue;
		ck_assert_int_eq(gx_strcpy(path, sizeof(path), path_of(node)), 0);
		if (strlen(path) >= GFS_PATH_MAX)
			continue;
		CALL("comparing %s", show(path));
		compare_node(node);
		compare_xattrs(node, path);
		if (S_ISREG(n->mode))
			compare_content(node, path);
		if (S_ISDIR(n->mode))
			compare_listing(node, path);
		if (S_ISLNK(n->mode))
			compare_bytes(target, gfs_readlink(fs, path, target, sizeof(target)), n, 0,
				      sizeof(target));
	}
	model.uid = uid;
}

#endif
