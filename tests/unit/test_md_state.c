/*
 * Names: making, linking, removing, renaming, listing; one behaviour at a time.
 */
#include "md_state_tree.h"

/* -- every error of every operation that changes names ------------------------------------------
 */

static const char long_name[] =
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
	"nnnn"
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
	"nnnn"
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"; /* 258 */

static const struct name_case {
	const struct who *who;
	const char *op; /* mkdir, create, fifo, device, symlink, link, unlink, rmdir, lookup */
	uint64_t *parent;
	const char *name;
	int want;
} name_cases[] = {
	{&ann, "mkdir", &home, "new", 0},
	{&ann, "mkdir", &home, "file", -EEXIST},
	{&bob, "mkdir", &home, "file", -EEXIST},
	{&bob, "mkdir", &home, "new", -EACCES},
	{&ann, "mkdir", &file, "new", -ENOTDIR},
	{&ann, "mkdir", NULL, "new", -ESTALE},
	{&ann, "mkdir", &home, "", -EINVAL},
	{&ann, "mkdir", &home, ".", -EINVAL},
	{&ann, "mkdir", &home, "..", -EINVAL},
	{&ann, "mkdir", &home, "a/b", -EINVAL},
	{&ann, "mkdir", &home, long_name, -ENAMETOOLONG},
	{&ann, "create", &home, "new", 0},
	{&ann, "create", &home, "file", -EEXIST},
	{&bob, "create", &home, "new", -EACCES},
	{&ann, "create", &file, "new", -ENOTDIR},
	{&ann, "fifo", &home, "new", 0},
	{&ann, "socket", &home, "new", 0},
	{&ann, "regular", &home, "new", 0},
	{&ann, "typeless", &home, "new", -EINVAL},
	{&ann, "device", &home, "new", -EPERM},
	{&root, "device", &home, "new", 0},
	{&ann, "symlink", &home, "new", 0},
	{&ann, "symlink", &home, "file", -EEXIST},
	{&bob, "symlink", &home, "new", -EACCES},
	{&ann, "link", &home, "new", 0},
	{&ann, "link", &home, "file", -EEXIST},
	{&bob, "link", &home, "new", -EACCES},
	{&bob, "link", &home, "file", -EEXIST},
	{&ann, "unlink", &home, "file", 0},
	{&root, "unlink", &home, "file", 0},
	{&ann, "unlink", &home, "none", -ENOENT},
	{&bob, "unlink", &home, "none", -ENOENT},
	{&bob, "unlink", &home, "file", -EACCES},
	{&ann, "unlink", &home, "empty", -EISDIR},
	{&ann, "unlink", &file, "x", -ENOTDIR},
	{&ann, "rmdir", &home, "empty", 0},
	{&ann, "rmdir", &home, "full", -ENOTEMPTY},
	{&ann, "rmdir", &home, "file", -ENOTDIR},
	{&ann, "rmdir", &home, "none", -ENOENT},
	{&bob, "rmdir", &home, "empty", -EACCES},
	{&ann, "rmdir", &home, "..", -EINVAL},
	{&bob, "lookup", &home, "file", 0},
	{&bob, "lookup", &home, "none", -ENOENT},
	{&bob, "lookup", &home, "..", 0},
	{&bob, "lookup", &file, "x", -ENOTDIR},
	{&bob, "lookup", NULL, "x", -ESTALE},
};

static int run_name_case(const struct name_case *c)
{
	uint64_t parent = c->parent ? *c->parent : no_such_inode;

	if (strcmp(c->op, "mkdir") == 0)
		return do_mkdir(w, c->who, parent, c->name, 0755);
	if (strcmp(c->op, "create") == 0)
		return do_create(w, c->who, parent, c->name, 0644);
	if (strcmp(c->op, "fifo") == 0)
		return do_make(w, c->who, parent, c->name, S_IFIFO | 0644);
	if (strcmp(c->op, "socket") == 0)
		return do_make(w, c->who, parent, c->name, S_IFSOCK | 0644);
	if (strcmp(c->op, "regular") == 0)
		return do_make(w, c->who, parent, c->name, S_IFREG | 0644);
	if (strcmp(c->op, "typeless") == 0)
		return do_make(w, c->who, parent, c->name, 0644);
	if (strcmp(c->op, "device") == 0)
		return do_make(w, c->who, parent, c->name, S_IFCHR | 0644);
	if (strcmp(c->op, "symlink") == 0)
		return do_symlink(w, c->who, parent, c->name, "there");
	if (strcmp(c->op, "link") == 0)
		return do_link(w, c->who, full_x, parent, c->name);
	if (strcmp(c->op, "unlink") == 0)
		return do_unlink(w, c->who, parent, c->name);
	if (strcmp(c->op, "rmdir") == 0)
		return do_rmdir(w, c->who, parent, c->name);
	ck_assert_str_eq(c->op, "lookup");
	return do_lookup(w, c->who, parent, c->name);
}

START_TEST(operations_on_names_fail_as_posix_says)
{
	const struct name_case *c = &name_cases[_i];
	int r = run_name_case(c);

	ck_assert_msg(r == c->want, "%s %s: %d, want %d", c->op, c->name, r, c->want);
}
END_TEST

START_TEST(a_failed_command_changes_nothing)
{
	const struct name_case *c = &name_cases[_i];
	PbMeta__Attr before = attr_of(home), after;
	uint64_t index = w->index;

	if (run_name_case(c) == 0)
		return;
	after = attr_of(home);
	ck_assert_uint_eq(w->index, index);
	ck_assert_uint_eq(after.version, before.version);
	ck_assert_int_eq(after.mtime_ns, before.mtime_ns);
	ck_assert_uint_eq(after.size, before.size);
}
END_TEST

START_TEST(a_new_directory_has_two_links_and_its_parent_one_more)
{
	PbMeta__Attr before = attr_of(home), after;

	ck_assert_int_eq(do_mkdir(w, &ann, home, "new", 01755), 0);
	ck_assert_uint_eq(w->attr.nlink, 2);
	ck_assert_uint_eq(w->attr.mode, S_IFDIR | 01755);
	ck_assert_uint_eq(w->attr.uid, 100);
	ck_assert_uint_eq(w->attr.gid, 100);
	after = attr_of(home);
	ck_assert_uint_eq(after.nlink, before.nlink + 1);
	ck_assert_uint_eq(after.size, before.size + 1);
	ck_assert_int_eq(after.mtime_ns, w->time_ns);
	ck_assert_int_eq(after.ctime_ns, w->time_ns);
	ck_assert_uint_eq(ino_of(ino_of(home, "new"), ".."), home);
}
END_TEST

START_TEST(mkdir_gives_no_set_id_bits)
{
	ck_assert_int_eq(do_mkdir(w, &ann, home, "new", 07755), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFDIR | 01755);
}
END_TEST

START_TEST(only_devices_have_a_device_number)
{
	PbMeta__MakeRequest request = PB_META__MAKE_REQUEST__INIT;

	request.parent = home;
	request.rdev = 0x801;
	request.name = (char *)(uintptr_t) "fifo";
	request.mode = S_IFIFO | 0600;
	ck_assert_int_eq(do_make_full(w, &ann, &request), 0);
	ck_assert_uint_eq(w->attr.rdev, 0);
	request.name = (char *)(uintptr_t) "block";
	request.mode = S_IFBLK | 0600;
	ck_assert_int_eq(do_make_full(w, &root, &request), 0);
	ck_assert_uint_eq(w->attr.rdev, 0x801);
}
END_TEST

START_TEST(a_symbolic_link_keeps_its_target)
{
	PbMeta__ReadlinkRequest request = PB_META__READLINK_REQUEST__INIT;
	PbMeta__ReadlinkReply reply = PB_META__READLINK_REPLY__INIT;
	static char target[4097];
	struct md_ctx ctx;

	ck_assert_int_eq(do_symlink(w, &ann, home, "none", ""), -ENOENT);
	memset(target, 't', 4096);
	ck_assert_int_eq(do_symlink(w, &ann, home, "long", target), -ENAMETOOLONG);
	target[4095] = '\0';
	ck_assert_int_eq(do_symlink(w, &ann, home, "long", target), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFLNK | 0777);
	ck_assert_uint_eq(w->attr.size, 4095);
	request.ino = w->attr.ino;
	ctx = ctx_of(w, &bob);
	ck_assert_int_eq(md_state_readlink(&ctx, &request, &reply), 0);
	ck_assert_str_eq(reply.target, target);
	ck_assert_int_eq(do_chmod(w, &ann, request.ino, 0600), -EOPNOTSUPP);
	ck_assert_int_eq(do_may_open(w, &ann, request.ino, 1), -ELOOP);
	request.ino = file;
	ctx = ctx_of(w, &bob);
	ck_assert_int_eq(md_state_readlink(&ctx, &request, &reply), -EINVAL);
}
END_TEST

START_TEST(only_a_symbolic_link_carries_a_target)
{
	PbMeta__MakeRequest request = PB_META__MAKE_REQUEST__INIT;

	request.parent = home;
	request.name = (char *)(uintptr_t) "d";
	request.mode = S_IFDIR | 0755;
	request.target = (char *)(uintptr_t) "ballast for the log";
	ck_assert_int_eq(do_make_full(w, &ann, &request), -EINVAL);
}
END_TEST

START_TEST(open_without_the_create_flag_makes_nothing)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;
	PbMeta__OpenReply reply = PB_META__OPEN_REPLY__INIT;

	request.parent = home;
	request.name = (char *)(uintptr_t) "new";
	request.flags = 1;
	ck_assert_int_eq(apply(w, &ann, RPC_OPEN, &request.base, &reply.base), -ENOENT);
	ck_assert_int_eq(apply(w, &bob, RPC_OPEN, &request.base, &reply.base), -ENOENT);
}
END_TEST

START_TEST(a_full_arena_fails_before_anything_changes)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;
	PbMeta__OpenReply reply = PB_META__OPEN_REPLY__INIT;
	struct md_ctx ctx = ctx_of(w, &ann);
	struct md_command command = {
		.method = rpc_method_find(RPC_OPEN),
		.request = &request.base,
		.cred = ann.cred,
		.new_ino = 5000,
	};
	struct rpc_arena arena;

	rpc_arena_init(&arena, 64);
	ck_assert_ptr_nonnull(rpc_arena_alloc(&arena, 48));
	ctx.arena = &arena;
	request.parent = home;
	request.name = (char *)(uintptr_t) "new";
	request.flags = 4;
	ck_assert_int_eq(md_state_apply(&ctx, &command, true, &reply.base), -ENOMEM);
	ck_assert_int_eq(do_lookup(w, &ann, home, "new"), -ENOENT);
}
END_TEST

/* -- hard links and removal ----------------------------------------------------------------------
 */

START_TEST(link_and_unlink_count)
{
	ck_assert_int_eq(do_link(w, &ann, file, full, "second"), 0);
	ck_assert_uint_eq(w->attr.nlink, 2);
	ck_assert_int_eq(w->attr.ctime_ns, w->time_ns);
	ck_assert_int_ne(w->attr.mtime_ns, w->time_ns);
	ck_assert_int_eq(do_unlink(w, &ann, home, "file"), 0);
	ck_assert_uint_eq(attr_of(file).nlink, 1);
	ck_assert_int_eq(attr_of(file).ctime_ns, w->time_ns);
	ck_assert_int_eq(do_unlink(w, &ann, full, "second"), 0);
	ck_assert_int_eq(do_getattr(w, &ann, file), -ESTALE);
	ck_assert_int_eq(do_link(w, &ann, file, full, "third"), -ESTALE);
}
END_TEST

START_TEST(a_directory_cannot_be_linked)
{
	ck_assert_int_eq(do_link(w, &ann, empty, home, "second"), -EPERM);
	ck_assert_int_eq(do_link(w, &root, empty, home, "second"), -EPERM);
}
END_TEST

START_TEST(others_link_only_what_they_may_read_and_write)
{
	ck_assert_int_eq(do_link(w, &bob, file, ROOT, "mine"), -EPERM);
	ck_assert_int_eq(do_chmod(w, &ann, file, 0666), 0);
	ck_assert_int_eq(do_link(w, &bob, file, ROOT, "mine"), 0);
	ck_assert_int_eq(do_chmod(w, &ann, file, 04666), 0);
	ck_assert_int_eq(do_link(w, &bob, file, ROOT, "also"), -EPERM);
}
END_TEST

/* A limit is reached by putting the inode there, not by 65000 names. */
static void set_nlink(uint64_t ino, uint32_t nlink)
{
	unsigned char bytes[MD_INODE_BYTES_MAX];
	struct md_inode inode;
	struct md_key key;
	const void *value;
	size_t value_bytes;

	md_key_inode(&key, ino);
	ck_assert_int_eq(md_kv_get(w->kv, key.bytes, key.count, &value, &value_bytes, NULL), 0);
	ck_assert_int_eq(md_inode_decode(value, value_bytes, &inode), 0);
	inode.nlink = nlink;
	value_bytes = md_inode_encode(&inode, bytes);
	md_kv_put(w->kv, key.bytes, key.count, bytes, value_bytes, (struct md_tag){0, 0}, true);
}

START_TEST(too_many_links_fail_with_emlink)
{
	uint32_t home_nlink = attr_of(home).nlink;

	set_nlink(file, MD_LINK_MAX);
	ck_assert_int_eq(do_link(w, &ann, file, home, "second"), -EMLINK);
	set_nlink(file, 1);
	set_nlink(home, MD_LINK_MAX);
	ck_assert_int_eq(do_mkdir(w, &ann, home, "dir", 0755), -EMLINK);
	ck_assert_int_eq(do_mkdir(w, &ann, full, "dir", 0755), 0);
	ck_assert_int_eq(do_rename(w, &ann, full, "dir", home, "dir", 0), -EMLINK);
	ck_assert_int_eq(do_rename(w, &ann, full, "dir", home, "file", 2), -EMLINK);
	ck_assert_int_eq(do_rename(w, &ann, home, "file", full, "dir", 2), -EMLINK);
	/* Directory against directory: nobody gains. */
	ck_assert_int_eq(do_rename(w, &ann, full, "dir", home, "empty", 2), 0);
	ck_assert_int_eq(do_rename(w, &ann, full, "dir", home, "empty", 0), 0);
	set_nlink(home, home_nlink);
}
END_TEST

START_TEST(an_open_file_without_a_name_is_an_orphan_until_it_is_reaped)
{
	struct md_counters before, after;
	PbMeta__ListxattrReply names;
	const void *data;
	size_t bytes;

	ck_assert_int_eq(do_write(w, &ann, file, 0, "hello", 5, 0), 0);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "1", 1, 0), 0);
	md_state_counters(&w->state, &before);
	w->open[file] = 1;
	ck_assert_int_eq(do_unlink(w, &ann, home, "file"), 0);
	ck_assert_int_eq(do_lookup(w, &ann, home, "file"), -ENOENT);
	ck_assert_uint_eq(attr_of(file).nlink, 0);
	check_world(w);
	ck_assert_int_eq(do_link(w, &ann, file, home, "back"), -ENOENT);
	ck_assert_int_eq(do_write(w, &ann, file, 5, " world", 6, MD_COMMAND_HANDLE), 0);
	ck_assert_int_eq(do_read(w, &ann, file, 0, 100, &data, &bytes), 0);
	ck_assert_uint_eq(bytes, 11);
	ck_assert_mem_eq(data, "hello world", 11);
	w->open[file] = 0;
	do_reap(w, file);
	ck_assert_int_eq(do_getattr(w, &ann, file), -ESTALE);
	ck_assert_int_eq(do_listxattr(w, &ann, file, &names), -ESTALE);
	md_state_counters(&w->state, &after);
	ck_assert_uint_eq(after.inodes, before.inodes - 1);
	ck_assert_uint_eq(after.inline_bytes, before.inline_bytes - 5);
}
END_TEST

START_TEST(reaping_what_is_no_orphan_does_nothing)
{
	do_reap(w, file);
	do_reap(w, no_such_inode);
	ck_assert_uint_eq(attr_of(file).nlink, 1);
}
END_TEST

START_TEST(a_removed_directory_that_is_open_takes_no_names)
{
	w->open[empty] = 1;
	ck_assert_int_eq(do_rmdir(w, &ann, home, "empty"), 0);
	ck_assert_uint_eq(attr_of(empty).nlink, 0);
	ck_assert_int_eq(do_create(w, &ann, empty, "x", 0644), -ENOENT);
	ck_assert_int_eq(do_mkdir(w, &ann, empty, "x", 0755), -ENOENT);
	ck_assert_int_eq(do_link(w, &ann, file, empty, "x"), -ENOENT);
	ck_assert_int_eq(do_rename(w, &ann, home, "file", empty, "x", 0), -ENOENT);
	ck_assert_int_eq(do_rename(w, &ann, home, "full", empty, "x", 0), -ENOENT);
	check_world(w);
	do_reap(w, empty);
}
END_TEST

START_TEST(a_file_replaced_while_open_is_an_orphan)
{
	w->open[full_x] = 1;
	ck_assert_int_eq(do_rename(w, &ann, home, "file", full, "x", 0), 0);
	ck_assert_uint_eq(ino_of(full, "x"), file);
	ck_assert_uint_eq(attr_of(full_x).nlink, 0);
	check_world(w);
	do_reap(w, full_x);
}
END_TEST

/* -- rename --------------------------------------------------------------------------------------
 */

static const struct rename_case {
	const struct who *who;
	uint64_t *from_parent;
	const char *from;
	uint64_t *to_parent;
	const char *to;
	uint32_t flags;
	int want;
} rename_cases[] = {
	{&ann, &home, "file", &home, "new", 0, 0},
	{&ann, &home, "file", &full, "new", 0, 0},
	{&ann, &home, "file", &full, "x", 0, 0},
	{&ann, &home, "file", &home, "empty", 0, -EISDIR},
	{&ann, &home, "empty", &home, "file", 0, -ENOTDIR},
	{&ann, &home, "full", &home, "empty", 0, 0},
	{&ann, &home, "empty", &home, "full", 0, -ENOTEMPTY},
	{&ann, &home, "empty", &full, "sub", 0, 0},
	{&ann, &home, "full", &full, "sub", 0, -EINVAL},
	{&ann, &home, "full", &empty, "sub", 0, 0},
	{&ann, &full, "x", &home, "full", 0, -EISDIR},
	{&ann, &home, "none", &home, "new", 0, -ENOENT},
	{&bob, &home, "none", &home, "new", 0, -ENOENT},
	{&bob, &home, "file", &home, "new", 0, -EACCES},
	{&bob, &home, "file", &full, "new", 0, -EACCES},
	{&ann, &home, "file", &file, "new", 0, -ENOTDIR},
	{&ann, &file, "x", &home, "new", 0, -ENOTDIR},
	{&ann, NULL, "x", &home, "new", 0, -ESTALE},
	{&ann, &home, "file", NULL, "new", 0, -ESTALE},
	{&ann, &home, "file", &home, "..", 0, -EINVAL},
	{&ann, &home, ".", &home, "new", 0, -EINVAL},
	{&ann, &home, "file", &home, long_name, 0, -ENAMETOOLONG},
	{&ann, &home, "file", &home, "file", 0, 0},
	{&ann, &home, "full", &home, "full", 0, 0},
	{&ann, &home, "file", &home, "new", 1, 0},
	{&ann, &home, "file", &full, "x", 1, -EEXIST},
	{&ann, &home, "file", &home, "file", 1, -EEXIST},
	{&ann, &home, "file", &full, "x", 2, 0},
	{&ann, &home, "file", &home, "none", 2, -ENOENT},
	{&ann, &home, "full", &full, "x", 2, -EINVAL},
	{&ann, &full, "x", &home, "full", 2, -EINVAL},
	{&ann, &home, "full", &home, "empty", 2, 0},
	{&ann, &home, "file", &home, "full", 2, 0},
	{&ann, &home, "file", &home, "full", 3, -EINVAL},
	{&ann, &home, "file", &home, "full", 4, -EINVAL},
};

START_TEST(rename_does_as_posix_says)
{
	const struct rename_case *c = &rename_cases[_i];
	int r = do_rename(w, c->who, c->from_parent ? *c->from_parent : no_such_inode, c->from,
			  c->to_parent ? *c->to_parent : no_such_inode, c->to, c->flags);

	ck_assert_msg(r == c->want, "%s to %s: %d, want %d", c->from, c->to, r, c->want);
}
END_TEST

START_TEST(rename_moves_a_directory_with_its_parent_pointer_and_counts)
{
	uint32_t home_nlink = attr_of(home).nlink, full_nlink = attr_of(full).nlink;

	ck_assert_int_eq(do_rename(w, &ann, home, "empty", full, "sub", 0), 0);
	ck_assert_uint_eq(ino_of(empty, ".."), full);
	ck_assert_uint_eq(attr_of(home).nlink, home_nlink - 1);
	ck_assert_uint_eq(attr_of(full).nlink, full_nlink + 1);
	ck_assert_int_eq(attr_of(home).mtime_ns, w->time_ns);
	ck_assert_int_eq(attr_of(full).mtime_ns, w->time_ns);
	ck_assert_int_eq(attr_of(empty).ctime_ns, w->time_ns);
	/* Deeper is inside itself as well. */
	ck_assert_int_eq(do_rename(w, &ann, home, "full", empty, "loop", 0), -EINVAL);
	ck_assert_int_eq(do_rename(w, &ann, ROOT, "home", empty, "loop", 0), -EINVAL);
}
END_TEST

START_TEST(rename_over_a_directory_removes_it)
{
	ck_assert_int_eq(do_mkdir(w, &ann, full, "target", 0755), 0);
	ck_assert_int_eq(do_rename(w, &ann, home, "empty", full, "target", 0), 0);
	ck_assert_uint_eq(ino_of(full, "target"), empty);
	ck_assert_uint_eq(attr_of(full).nlink, 3);
	ck_assert_uint_eq(attr_of(home).nlink, 3);
}
END_TEST

START_TEST(exchange_of_file_and_directory_across_directories)
{
	/* home: file, empty, full(2 links). full: x, deep. */
	ck_assert_int_eq(do_mkdir(w, &ann, full, "deep", 0755), 0);
	ck_assert_int_eq(do_rename(w, &ann, home, "file", full, "deep", 2), 0);
	ck_assert_uint_eq(ino_of(full, "deep"), file);
	ck_assert_uint_eq(ino_of(ino_of(home, "file"), ".."), home);
	ck_assert_uint_eq(attr_of(full).nlink, 2);
	ck_assert_uint_eq(attr_of(home).nlink, 5);
	ck_assert_uint_eq(attr_of(home).size, 3);
	ck_assert_uint_eq(attr_of(full).size, 2);
	check_world(w);
	/* And two directories, back and forth. */
	ck_assert_int_eq(do_mkdir(w, &ann, full, "sub", 0755), 0);
	ck_assert_int_eq(do_rename(w, &ann, full, "sub", home, "empty", 2), 0);
	ck_assert_uint_eq(ino_of(empty, ".."), full);
	ck_assert_uint_eq(ino_of(ino_of(home, "empty"), ".."), home);
}
END_TEST

START_TEST(rename_onto_a_hard_link_of_itself_does_nothing)
{
	PbMeta__Attr before;

	ck_assert_int_eq(do_link(w, &ann, file, full, "same"), 0);
	before = attr_of(file);
	ck_assert_int_eq(do_rename(w, &ann, home, "file", full, "same", 0), 0);
	ck_assert_int_eq(do_rename(w, &ann, home, "file", full, "same", 2), 0);
	ck_assert_uint_eq(ino_of(home, "file"), file);
	ck_assert_uint_eq(ino_of(full, "same"), file);
	ck_assert_uint_eq(attr_of(file).version, before.version);
	ck_assert_int_eq(do_rename(w, &ann, home, "file", full, "same", 1), -EEXIST);
}
END_TEST

START_TEST(a_directory_moves_only_if_it_is_writable_since_its_parent_changes)
{
	ck_assert_int_eq(do_chmod(w, &ann, empty, 0555), 0);
	ck_assert_int_eq(do_rename(w, &ann, home, "empty", full, "sub", 0), -EACCES);
	ck_assert_int_eq(do_rename(w, &ann, full, "x", home, "empty", 2), -EACCES);
	ck_assert_int_eq(do_rename(w, &ann, home, "empty", full, "x", 2), -EACCES);
	ck_assert_int_eq(do_rename(w, &ann, home, "empty", home, "renamed", 0), 0);
}
END_TEST

START_TEST(rename_into_a_depth_no_path_reaches_is_refused)
{
	uint64_t dir = empty;

	for (unsigned i = 0; i < MD_DEPTH_MAX; i++) {
		ck_assert_int_eq(do_mkdir(w, &ann, dir, "d", 0755), 0);
		dir = w->attr.ino;
	}
	ck_assert_int_eq(do_rename(w, &ann, home, "full", dir, "x", 0), -ENAMETOOLONG);
	ck_assert_int_eq(do_rename(w, &ann, home, "file", dir, "x", 0), 0);
}
END_TEST

/* -- listing ---------------------------------------------------------------------------- */

/* Lists all in pages of `max`, between which something may happen; marks the numbers seen. */
static unsigned list_numbers(uint64_t dir, uint32_t max, bool plus, unsigned char *seen,
			     void (*between)(uint64_t dir))
{
	char after[MD_NAME_MAX + 1] = "";
	PbMeta__ReaddirReply reply;
	unsigned count = 0;

	do {
		ck_assert_int_eq(do_readdir(w, &ann, dir, after, max, plus, &reply), 0);
		ck_assert(reply.end || reply.n_entries > 0 || strcmp(reply.after, after) > 0);
		for (size_t i = 0; i < reply.n_entries; i++) {
			uint64_t number;

			ck_assert_int_gt(strcmp(reply.entries[i]->name, after), 0);
			snprintf(after, sizeof(after), "%s", reply.entries[i]->name);
			ck_assert_int_eq(gx_parse_u64(after + 1, &number), 0);
			seen[number]++;
			count++;
			if (plus)
				ck_assert_uint_eq(reply.entries[i]->attr->ino,
						  reply.entries[i]->ino);
			else
				ck_assert_ptr_null(reply.entries[i]->attr);
		}
		if (!reply.end)
			snprintf(after, sizeof(after), "%s", reply.after);
		if (between)
			between(dir);
	} while (!reply.end);
	return count;
}

static unsigned between_round;

/* Removes and adds names all over; those divisible by 4 stay. */
static void stir(uint64_t dir)
{
	char name[16];

	for (unsigned i = 0; i < 40; i++) {
		unsigned number = (between_round * 37 + i * 53) % 2000;

		if (number % 4 == 0)
			continue;
		snprintf(name, sizeof(name), "n%04u", number);
		if (do_unlink(w, &ann, dir, name) == -ENOENT)
			ck_assert_int_eq(do_create(w, &ann, dir, name, 0644), 0);
	}
	between_round++;
}

START_TEST(pages_show_every_name_that_stays_once_whatever_else_changes)
{
	static unsigned char seen[2000];
	char name[16];

	memset(seen, 0, sizeof(seen));
	between_round = 0;
	for (unsigned i = 0; i < 2000; i += 2) {
		snprintf(name, sizeof(name), "n%04u", i);
		ck_assert_int_eq(do_create(w, &ann, empty, name, 0644), 0);
	}
	ck_assert_uint_eq(list_numbers(empty, 0, true, seen, NULL), 1000);
	memset(seen, 0, sizeof(seen));
	list_numbers(empty, _i ? 7 : 100, _i == 1, seen, stir);
	for (unsigned i = 0; i < 2000; i++) {
		ck_assert_uint_le(seen[i], 1);
		ck_assert(i % 4 != 0 || seen[i] == 1);
	}
}
END_TEST

START_TEST(a_page_over_many_removed_names_is_short_and_goes_on)
{
	static unsigned char seen[30001];
	PbMeta__ReaddirReply reply;
	char name[16];

	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i <= 30000; i++) {
		snprintf(name, sizeof(name), "n%05u", i);
		ck_assert_int_eq(
			do_link(w, &ann, i == 0 || i == 30000 ? file : full_x, empty, name), 0);
		if (i > 0 && i < 30000)
			ck_assert_int_eq(do_unlink(w, &ann, empty, name), 0);
	}
	ck_assert_int_eq(do_readdir(w, &ann, empty, "n00000", 0, false, &reply), 0);
	ck_assert(!reply.end);
	ck_assert_uint_eq(reply.n_entries, 0);
	ck_assert_uint_eq(list_numbers(empty, 0, false, seen, NULL), 2);
	ck_assert_uint_eq(seen[0] + seen[30000], 2);
}
END_TEST

START_TEST(listing_needs_read_and_attributes_need_search)
{
	PbMeta__ReaddirReply reply;

	ck_assert_int_eq(do_chmod(w, &ann, full, 0744), 0);
	ck_assert_int_eq(do_readdir(w, &bob, full, "", 0, true, &reply), 0);
	ck_assert_uint_eq(reply.n_entries, 1);
	ck_assert_str_eq(reply.entries[0]->name, "x");
	ck_assert_uint_eq(reply.entries[0]->type, S_IFREG);
	ck_assert_ptr_null(reply.entries[0]->attr);
	ck_assert_int_eq(do_lookup(w, &bob, full, "x"), -EACCES);
	ck_assert_int_eq(do_chmod(w, &ann, full, 0711), 0);
	ck_assert_int_eq(do_readdir(w, &bob, full, "", 0, false, &reply), -EACCES);
	ck_assert_int_eq(do_lookup(w, &bob, full, "x"), 0);
	ck_assert_int_eq(do_readdir(w, &ann, file, "", 0, false, &reply), -ENOTDIR);
	ck_assert_int_eq(do_readdir(w, &ann, no_such_inode, "", 0, false, &reply), -ESTALE);
	ck_assert_int_eq(do_readdir(w, &ann, home, long_name, 0, false, &reply), -ENAMETOOLONG);
}
END_TEST

START_TEST(the_largest_page_fits_a_message)
{
	char name[MD_NAME_MAX + 1];
	PbMeta__ReaddirReply reply;

	memset(name, 'x', MD_NAME_MAX);
	name[MD_NAME_MAX] = '\0';
	for (unsigned i = 0; i < 1500; i++) {
		char digits[8];

		snprintf(digits, sizeof(digits), "%04u", i);
		memcpy(name + MD_NAME_MAX - 4, digits, 4);
		ck_assert_int_eq(do_create(w, &ann, empty, name, 0644), 0);
	}
	ck_assert_int_eq(do_readdir(w, &ann, empty, "", UINT32_MAX, false, &reply), 0);
	ck_assert(!reply.end);
	ck_assert_uint_ge(reply.n_entries, 1000);
	ck_assert_uint_le(pb_meta__readdir_reply__get_packed_size(&reply), GX_MESSAGE_MAX);
	/* With attributes an entry may be a read of the store, and a page is one turn (N17). */
	ck_assert_int_eq(do_readdir(w, &ann, empty, "", UINT32_MAX, true, &reply), 0);
	ck_assert(!reply.end);
	ck_assert_uint_ge(reply.n_entries, 100);
	ck_assert_uint_le(reply.n_entries, 256);
	ck_assert_uint_le(pb_meta__readdir_reply__get_packed_size(&reply), GX_MESSAGE_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_state");
	TCase *tc = tcase_create("state");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, operations_on_names_fail_as_posix_says, 0,
			    (int)GX_COUNT_OF(name_cases));
	tcase_add_loop_test(tc, a_failed_command_changes_nothing, 0, (int)GX_COUNT_OF(name_cases));
	tcase_add_test(tc, a_new_directory_has_two_links_and_its_parent_one_more);
	tcase_add_test(tc, mkdir_gives_no_set_id_bits);
	tcase_add_test(tc, only_devices_have_a_device_number);
	tcase_add_test(tc, a_symbolic_link_keeps_its_target);
	tcase_add_test(tc, only_a_symbolic_link_carries_a_target);
	tcase_add_test(tc, open_without_the_create_flag_makes_nothing);
	tcase_add_test(tc, a_full_arena_fails_before_anything_changes);
	tcase_add_test(tc, link_and_unlink_count);
	tcase_add_test(tc, a_directory_cannot_be_linked);
	tcase_add_test(tc, others_link_only_what_they_may_read_and_write);
	tcase_add_test(tc, too_many_links_fail_with_emlink);
	tcase_add_test(tc, an_open_file_without_a_name_is_an_orphan_until_it_is_reaped);
	tcase_add_test(tc, reaping_what_is_no_orphan_does_nothing);
	tcase_add_test(tc, a_removed_directory_that_is_open_takes_no_names);
	tcase_add_test(tc, a_file_replaced_while_open_is_an_orphan);
	tcase_add_loop_test(tc, rename_does_as_posix_says, 0, (int)GX_COUNT_OF(rename_cases));
	tcase_add_test(tc, rename_moves_a_directory_with_its_parent_pointer_and_counts);
	tcase_add_test(tc, rename_over_a_directory_removes_it);
	tcase_add_test(tc, exchange_of_file_and_directory_across_directories);
	tcase_add_test(tc, rename_onto_a_hard_link_of_itself_does_nothing);
	tcase_add_test(tc, a_directory_moves_only_if_it_is_writable_since_its_parent_changes);
	tcase_add_test(tc, rename_into_a_depth_no_path_reaches_is_refused);
	tcase_add_loop_test(tc, pages_show_every_name_that_stays_once_whatever_else_changes, 0, 2);
	tcase_add_test(tc, a_page_over_many_removed_names_is_short_and_goes_on);
	tcase_add_test(tc, listing_needs_read_and_attributes_need_search);
	tcase_add_test(tc, the_largest_page_fits_a_message);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
