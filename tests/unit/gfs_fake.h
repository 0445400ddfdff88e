/*
 * A gfc over a tree in memory, so that what stands on gfc.h can be tested without a metad (and a
 * gfd without storage nodes: gfs_fake_data.h). It says no where metad does (as far as these tests
 * ask), keeps a diary of the calls that would have gone over the wire, and fails the next call of a
 * name on request. One tree per process; include it in one file of a program, which then must not
 * link the real one.
 */
#ifndef TEST_GFS_FAKE_H
#define TEST_GFS_FAKE_H

#include "client/fs/gfs_conf.h"
#include "client/fs/gfs_impl.h"
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define FAKE_NODES 256u
#define FAKE_NAMES 256u
#define FAKE_BYTES 8192u /* what metad keeps */
#define FAKE_OBJECT_BYTES 65536u
#define FAKE_PAGE 3u /* entries */
#define FAKE_CAP(ino) ((ino) == 1 ? 0 : (ino)*1000 + 7)

struct fake_node {
	uint32_t mode, nlink, uid, gid;
	int64_t atime_ns, mtime_ns;
	uint64_t size, version;
	bool object;                           /* not metad's */
	unsigned char data[FAKE_OBJECT_BYTES]; /* or the target of a link */
};

struct fake_name {
	uint64_t parent, ino; /* ino 0: free */
	char name[GFS_NAME_MAX + 1];
};

struct gfc_open {
	uint64_t ino;
	unsigned flags;
	bool truncate_later;
};

struct gfc {
	struct gfc_options options; /* pointers are not valid any more */
	char identity[64], program[64];
	unsigned char key[RPC_KEY_BYTES];
	struct fake_node nodes[FAKE_NODES]; /* by number; mode 0: free */
	struct fake_name names[FAKE_NAMES];
	uint64_t ino_next;
	struct gx_buf diary;
	char fail_op[16];
	int fail_err;
	unsigned opens; /* not closed */
	bool shared;    /* other sessions use the objects */
	char xattr_name[GFS_NAME_MAX + 1];
	struct gx_buf xattr; /* the only one, of everything */
};

static struct gfc *fake;                                      /* the connected one */
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER; /* of the diary */
static _Thread_local char fake_text[8192];
static struct gfs *fs;
static char fake_dir[64];

/* -- for tests --------------------------------------------------------------------------------- */

/* The next call of this kind ("write", "open" …) fails. */
GX_UNUSED static void fake_fail(const char *op, int err)
{
	ck_assert_int_eq(gx_strcpy(fake->fail_op, sizeof(fake->fail_op), op), 0);
	fake->fail_err = err;
}

/* What metad was asked since the last time, "open f; write 0+4 close; ". */
#define assert_diary(expected)                                                                     \
	do {                                                                                       \
		ck_assert_str_eq(gx_buf_text(&fake->diary), expected);                             \
		gx_buf_clear(&fake->diary);                                                        \
	} while (0)

GX_UNUSED static void fake_setup(void)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *tab = NULL;
	const char *tmp = getenv("TMPDIR");
	char path[128];
	struct gfs_options options = {.metad = "127.0.0.1:1", .key_file = path};
	struct rpc_key key;

	setenv("HOME", "/nonexistent", 1);
	unsetenv("GFS_CONFIG");
	ck_assert_int_eq(gx_format(fake_dir, sizeof(fake_dir), "%s/gfsfake.XXXXXX",
				   tmp && strlen(tmp) < 40 ? tmp : "/tmp"),
			 0);
	ck_assert_ptr_nonnull(mkdtemp(fake_dir));
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/key", fake_dir), 0);
	ck_assert_int_eq(rpc_key_make(gx_env_posix(), "user:ann", 0, false, &key), 0);
	ck_assert_int_eq(rpc_keytab_new(&tab), 0);
	ck_assert_int_eq(rpc_keytab_put(tab, &key, false), 0);
	ck_assert_int_eq(rpc_keytab_save(tab, gx_env_posix(), path), 0);
	ck_assert_msg(gfs_connect(&options, &fs) == 0, "%s", gfs_error());
}

GX_UNUSED static void fake_teardown(void)
{
	char path[128];

	if (fs)
		ck_assert_int_eq(gfs_disconnect(fs), 0);
	fs = NULL;
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/key", fake_dir), 0);
	unlink(path);
	rmdir(fake_dir);
}

/* -- inside -------------------------------------------------------------------------------------
 */

/* Not ck_assert(), which would itself meet a failing allocation (tests/fault). */
#define fake_must(condition)                                                                       \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static void note(const char *fmt, ...) GX_PRINTF(1, 2);
static void note(const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	pthread_mutex_lock(&fake_lock);
	fake_must(gx_buf_append_format(&fake->diary, "%s; ", text) == 0);
	pthread_mutex_unlock(&fake_lock);
}

static int told_to_fail(const char *op)
{
	int err = fake->fail_err;

	if (strcmp(fake->fail_op, op) != 0)
		return 0;
	fake->fail_op[0] = '\0';
	return gfc_fail(err, "%s: told to fail", op);
}

static struct fake_node *node_of(struct gfc_ref ref)
{
	fake_must(ref.ino < FAKE_NODES);
	fake_must(ref.cap == FAKE_CAP(ref.ino));
	fake_must(fake->nodes[ref.ino].mode != 0);
	return &fake->nodes[ref.ino];
}

static struct fake_name *name_find(uint64_t parent, const char *name)
{
	for (size_t i = 0; i < FAKE_NAMES; i++)
		if (fake->names[i].ino && fake->names[i].parent == parent &&
		    strcmp(fake->names[i].name, name) == 0)
			return &fake->names[i];
	return NULL;
}

static bool has_names(uint64_t parent)
{
	for (size_t i = 0; i < FAKE_NAMES; i++)
		if (fake->names[i].ino && fake->names[i].parent == parent)
			return true;
	return false;
}

static void name_add(uint64_t parent, const char *name, uint64_t ino)
{
	for (size_t i = 0; i < FAKE_NAMES; i++) {
		struct fake_name *n = &fake->names[i];

		if (n->ino)
			continue;
		n->parent = parent;
		n->ino = ino;
		fake_must(gx_strcpy(n->name, sizeof(n->name), name) == 0);
		return;
	}
	fake_must(false);
}

static void attr_of(uint64_t ino, struct gfc_attr *ret_attr)
{
	const struct fake_node *node = &fake->nodes[ino];

	*ret_attr = (struct gfc_attr){
		.ref = {ino, FAKE_CAP(ino)},
		.mode = node->mode,
		.nlink = node->nlink,
		.uid = node->uid,
		.gid = node->gid,
		.size = node->size,
		.atime_ns = node->atime_ns,
		.mtime_ns = node->mtime_ns,
		.version = node->version,
		.flags = node->object ? 0 : GFC_ATTR_INLINE,
	};
}

static uint64_t node_new(uint32_t mode)
{
	uint64_t ino = fake->ino_next++;

	fake_must(ino < FAKE_NODES);
	fake->nodes[ino] = (struct fake_node){.mode = mode, .nlink = S_ISDIR(mode) ? 2 : 1};
	return ino;
}

/* What walks may never send: these are the walk's own business. */
static void check_name(const char *name)
{
	fake_must(name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
	fake_must(!strchr(name, '/'));
	fake_must(strlen(name) <= GFS_NAME_MAX);
}

/* -- gfc.h --------------------------------------------------------------------------------------
 */

int gfc_fail(int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(fake_text, sizeof(fake_text), fmt, args);
	va_end(args);
	return err;
}

const char *gfc_error(void)
{
	return fake_text;
}

int gfc_new(const struct gfc_options *options, struct gfc **ret_gfc)
{
	fake_must(!fake);
	fake = calloc(1, sizeof(*fake));
	if (!fake)
		return -ENOMEM;
	gx_buf_init(&fake->diary, 65536);
	gx_buf_init(&fake->xattr, 65536);
	if (gx_buf_reserve(&fake->diary, 65536) < 0) {
		free(GX_TAKE(fake));
		return -ENOMEM;
	}
	fake->options = *options;
	fake_must(gx_strcpy(fake->identity, sizeof(fake->identity), options->identity) == 0);
	fake_must(gx_strcpy(fake->program, sizeof(fake->program), options->program) == 0);
	memcpy(fake->key, options->key, RPC_KEY_BYTES);
	fake->ino_next = 1;
	node_new(S_IFDIR | 0755);
	*ret_gfc = fake;
	return 0;
}

int gfc_free(struct gfc *gfc)
{
	int r = told_to_fail("leave");

	fake_must(gfc->opens == 0);
	gx_buf_fini(&gfc->diary);
	gx_buf_fini(&gfc->xattr);
	free(gfc);
	fake = NULL;
	return r;
}

struct gx_env *gfc_env(struct gfc *gfc)
{
	return gfc->options.env;
}

int gfc_lookup(struct gfc *gfc, struct gfc_ref parent, const char *name, struct gfc_attr *ret_attr)
{
	struct fake_name *found;
	int r = told_to_fail("lookup");

	(void)gfc;
	if (r < 0)
		return r;
	check_name(name);
	fake_must(S_ISDIR(node_of(parent)->mode));
	found = name_find(parent.ino, name);
	if (!found)
		return gfc_fail(-ENOENT, "lookup: nothing");
	attr_of(found->ino, ret_attr);
	return 0;
}

int gfc_lookup_ref(struct gfc *gfc, struct gfc_ref parent, const char *name,
		   struct gfc_ref *ret_ref, uint32_t *ret_type)
{
	struct gfc_attr attr;
	int r = gfc_lookup(gfc, parent, name, &attr);

	if (r < 0)
		return r;
	*ret_ref = attr.ref;
	*ret_type = attr.mode & S_IFMT;
	return 0;
}

int gfc_getattr(struct gfc *gfc, struct gfc_ref ref, struct gfc_attr *ret_attr)
{
	(void)gfc;
	node_of(ref);
	attr_of(ref.ino, ret_attr);
	return 0;
}

int gfc_readlink(struct gfc *gfc, struct gfc_ref ref, char buf[GX_PATH_MAX])
{
	(void)gfc;
	fake_must(S_ISLNK(node_of(ref)->mode));
	return gx_strcpy(buf, GX_PATH_MAX, (const char *)node_of(ref)->data);
}

int gfc_make(struct gfc *gfc, struct gfc_ref parent, const char *name, uint32_t mode, uint64_t rdev,
	     const char *target, struct gfc_attr *ret_attr)
{
	uint64_t ino;

	(void)gfc;
	(void)rdev;
	note("make %s", name);
	check_name(name);
	fake_must(S_ISDIR(node_of(parent)->mode));
	if (name_find(parent.ino, name))
		return -EEXIST;
	ino = node_new(mode);
	name_add(parent.ino, name, ino);
	if (target) {
		fake_must(gx_strcpy((char *)fake->nodes[ino].data, FAKE_BYTES, target) == 0);
		fake->nodes[ino].size = strlen(target);
	}
	attr_of(ino, ret_attr);
	return 0;
}

int gfc_link(struct gfc *gfc, struct gfc_ref ref, struct gfc_ref parent, const char *name,
	     struct gfc_attr *ret_attr)
{
	(void)gfc;
	note("link %s", name);
	check_name(name);
	if (S_ISDIR(node_of(ref)->mode))
		return -EPERM;
	if (name_find(parent.ino, name))
		return -EEXIST;
	name_add(parent.ino, name, ref.ino);
	node_of(ref)->nlink++;
	attr_of(ref.ino, ret_attr);
	return 0;
}

int gfc_unlink(struct gfc *gfc, struct gfc_ref parent, const char *name, bool directory)
{
	struct fake_name *found;

	(void)gfc;
	note("%s %s", directory ? "rmdir" : "unlink", name);
	check_name(name);
	node_of(parent);
	found = name_find(parent.ino, name);
	if (!found)
		return -ENOENT;
	if (directory != !!S_ISDIR(fake->nodes[found->ino].mode))
		return directory ? -ENOTDIR : -EISDIR;
	if (directory && has_names(found->ino))
		return -ENOTEMPTY;
	found->ino = 0;
	return 0;
}

int gfc_rename(struct gfc *gfc, struct gfc_ref from_parent, const char *from_name,
	       struct gfc_ref to_parent, const char *to_name, unsigned flags)
{
	struct fake_name *from, *to;
	uint64_t ino;

	(void)gfc;
	note("rename %s %s %u", from_name, to_name, flags);
	check_name(from_name);
	check_name(to_name);
	from = name_find(from_parent.ino, from_name);
	to = name_find(to_parent.ino, to_name);
	if (!from)
		return -ENOENT;
	ino = from->ino;
	if (to && (flags & GFS_RENAME_NOREPLACE))
		return -EEXIST;
	if (!to)
		name_add(to_parent.ino, to_name, ino);
	from->ino = to && (flags & GFS_RENAME_EXCHANGE) ? to->ino : 0;
	if (to)
		to->ino = ino;
	return 0;
}

int gfc_setattr(struct gfc *gfc, struct gfc_ref ref, struct gfc_open *open,
		const struct gfc_change *change, struct gfc_attr *ret_attr)
{
	struct fake_node *node = node_of(ref);

	(void)gfc;
	note("setattr %x%s", change->mask, open ? " open" : "");
	if (change->mask & GFC_SET_MODE)
		node->mode = (node->mode & S_IFMT) | change->mode;
	if (change->mask & GFC_SET_UID)
		node->uid = change->uid;
	if (change->mask & GFC_SET_GID)
		node->gid = change->gid;
	if (change->mask & GFC_SET_ATIME)
		node->atime_ns = change->atime_ns;
	if (change->mask & GFC_SET_MTIME)
		node->mtime_ns = change->mtime_ns;
	if (change->mask & GFC_SET_SIZE) {
		if (node->object || change->size > FAKE_BYTES)
			return -EFBIG;
		if (change->size < node->size)
			memset(node->data + change->size, 0, node->size - change->size);
		node->size = change->size;
	}
	attr_of(ref.ino, ret_attr);
	return 0;
}

int gfc_getxattr(struct gfc *gfc, struct gfc_ref ref, const char *name, struct gx_buf *value)
{
	node_of(ref);
	if (strcmp(gfc->xattr_name, name) != 0)
		return -ENODATA;
	return gx_buf_append(value, gfc->xattr.data, gfc->xattr.bytes);
}

int gfc_setxattr(struct gfc *gfc, struct gfc_ref ref, const char *name, const void *value,
		 size_t bytes, unsigned flags)
{
	node_of(ref);
	note("setxattr %s %u", name, flags);
	gx_buf_clear(&gfc->xattr);
	if (flags & 4) {
		gfc->xattr_name[0] = '\0';
		return 0;
	}
	fake_must(gx_strcpy(gfc->xattr_name, sizeof(gfc->xattr_name), name) == 0);
	return gx_buf_append(&gfc->xattr, value, bytes);
}

int gfc_listxattr(struct gfc *gfc, struct gfc_ref ref, struct gx_buf *names)
{
	node_of(ref);
	if (!gfc->xattr_name[0])
		return 0;
	return gx_buf_append(names, gfc->xattr_name, strlen(gfc->xattr_name) + 1);
}

/* The name of the directory that comes next behind `after`. */
static struct fake_name *name_behind(uint64_t parent, const char *after)
{
	struct fake_name *best = NULL;

	for (size_t i = 0; i < FAKE_NAMES; i++) {
		struct fake_name *n = &fake->names[i];

		if (n->ino && n->parent == parent && strcmp(n->name, after) > 0 &&
		    (!best || strcmp(n->name, best->name) < 0))
			best = n;
	}
	return best;
}

int gfc_readdir(struct gfc *gfc, struct gfc_ref dir, char *after, bool plus, gfc_dirent_fn fn,
		void *arg)
{
	int failed = told_to_fail("readdir");

	(void)gfc;
	note("readdir \"%s\"", after);
	if (failed < 0)
		return failed;
	fake_must(plus && S_ISDIR(node_of(dir)->mode));
	for (unsigned i = 0; i < FAKE_PAGE; i++) {
		struct fake_name *n = name_behind(dir.ino, after);
		struct gfc_dirent entry;
		int r;

		if (!n)
			return 1;
		entry = (struct gfc_dirent){.name = n->name, .ino = n->ino, .has_attr = true};
		entry.type = fake->nodes[n->ino].mode & S_IFMT;
		attr_of(n->ino, &entry.attr);
		r = fn(arg, &entry);
		if (r != 0)
			return r;
		fake_must(gx_strcpy(after, GFS_NAME_MAX + 1, n->name) == 0);
	}
	return 0;
}

int gfc_open(struct gfc *gfc, struct gfc_ref ref, const char *name, unsigned flags, uint32_t mode,
	     struct gfc_attr *ret_attr, struct gfc_open **ret_open)
{
	struct fake_name itself = {.ino = ref.ino};
	struct fake_name *found = name ? name_find(ref.ino, name) : &itself;
	struct gfc_open *open;
	uint64_t ino;
	bool later = false;
	int r = told_to_fail("open");

	(void)gfc;
	note("open %s %u", name ? name : "by number", flags);
	if (name)
		check_name(name);
	fake_must(S_ISDIR(node_of(ref)->mode) == (name != NULL));
	if (r < 0)
		return r;
	if (found && (flags & GFC_OPEN_CREATE) && (flags & GFC_OPEN_EXCL))
		return -EEXIST;
	if (!found && !(flags & GFC_OPEN_CREATE))
		return -ENOENT;
	ino = found ? found->ino : node_new(S_IFREG | mode);
	if (S_ISLNK(fake->nodes[ino].mode))
		return -ELOOP;
	if (S_ISDIR(fake->nodes[ino].mode) && (flags & GFC_OPEN_WRITE))
		return -EISDIR;
	if (!found)
		name_add(ref.ino, name, ino);
	later = (flags & GFC_OPEN_TRUNC) && fake->nodes[ino].object && fake->shared;
	if ((flags & GFC_OPEN_TRUNC) && !later) {
		memset(fake->nodes[ino].data, 0, FAKE_OBJECT_BYTES);
		fake->nodes[ino].size = 0;
		fake->nodes[ino].object = false;
	}
	open = calloc(1, sizeof(*open));
	if (!open)
		return -ENOMEM;
	*open = (struct gfc_open){ino, flags, later};
	fake->opens++;
	attr_of(ino, ret_attr);
	*ret_open = open;
	return 0;
}

struct gfc_ref gfc_open_ref(const struct gfc_open *open)
{
	return (struct gfc_ref){open->ino, FAKE_CAP(open->ino)};
}

bool gfc_open_truncate_later(const struct gfc_open *open)
{
	return open->truncate_later;
}

int gfc_open_getattr(struct gfc *gfc, struct gfc_open *open, struct gfc_attr *ret_attr)
{
	(void)gfc;
	attr_of(open->ino, ret_attr);
	return 0;
}

ssize_t gfc_read(struct gfc *gfc, struct gfc_open *open, void *buf, size_t bytes, uint64_t offset,
		 struct gfc_attr *ret_attr)
{
	const struct fake_node *node = &fake->nodes[open->ino];

	(void)gfc;
	(void)ret_attr;
	note("read %llu", (unsigned long long)offset);
	fake_must(open->flags & GFC_OPEN_READ);
	if (offset >= node->size)
		return 0;
	bytes = GX_MIN(bytes, node->size - offset);
	memcpy(buf, node->data + offset, bytes);
	return (ssize_t)bytes;
}

static int write_node(struct fake_node *node, const struct gfc_write *write, uint64_t offset)
{
	if (node->object || offset > FAKE_BYTES || write->bytes > FAKE_BYTES - offset)
		return -EFBIG;
	memcpy(node->data + offset, write->data, write->bytes);
	node->size = GX_MAX(node->size, offset + write->bytes);
	return 0;
}

int gfc_write(struct gfc *gfc, struct gfc_open *open, const struct gfc_write *write,
	      uint64_t *ret_offset, struct gfc_attr *ret_attr)
{
	struct fake_node *node = &fake->nodes[open->ino];
	uint64_t ino = open->ino, offset = write->append ? node->size : write->offset;
	int r = told_to_fail("write");

	(void)gfc;
	fake_must(open->flags & GFC_OPEN_WRITE);
	note("write %s%llu+%zu%s", write->append ? "end " : "", (unsigned long long)offset,
	     write->bytes, write->close ? " close" : "");
	if (r == 0)
		r = write_node(node, write, offset);
	if (write->close && r != -EFBIG) {
		free(open);
		fake->opens--;
	}
	if (r < 0)
		return r;
	if (ret_offset)
		*ret_offset = offset;
	if (ret_attr)
		attr_of(ino, ret_attr);
	return 0;
}

int gfc_close(struct gfc *gfc, struct gfc_open *open)
{
	(void)gfc;
	note("close");
	free(open);
	fake->opens--;
	return told_to_fail("close");
}

int gfc_sync(struct gfc *gfc)
{
	(void)gfc;
	note("sync");
	return told_to_fail("sync");
}

struct rpc_client *gfc_rpc(struct gfc *gfc)
{
	(void)gfc;
	return NULL;
}

#include "tests/unit/gfs_fake_data.h"

#endif
