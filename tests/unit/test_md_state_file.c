/*
 * Rights, attributes, inline content and extended attributes, one behaviour at a time.
 */
#include "md_state_tree.h"

/* -- sticky, setgid, modes and owners --------------------------------------------------- */

START_TEST(in_a_sticky_directory_only_owners_remove_and_rename)
{
	uint64_t tmp;

	ck_assert_int_eq(do_mkdir(w, &root, ROOT, "tmp", 01777), 0);
	tmp = w->attr.ino;
	ck_assert_int_eq(do_create(w, &ann, tmp, "anns", 0666), 0);
	ck_assert_int_eq(do_create(w, &bob, tmp, "bobs", 0666), 0);
	ck_assert_int_eq(do_mkdir(w, &ann, tmp, "dir", 0777), 0);
	ck_assert_int_eq(do_unlink(w, &bob, tmp, "anns"), -EPERM);
	ck_assert_int_eq(do_rmdir(w, &bob, tmp, "dir"), -EPERM);
	ck_assert_int_eq(do_rename(w, &bob, tmp, "anns", tmp, "new", 0), -EPERM);
	ck_assert_int_eq(do_rename(w, &bob, tmp, "bobs", tmp, "anns", 0), -EPERM);
	ck_assert_int_eq(do_rename(w, &bob, tmp, "bobs", tmp, "anns", 2), -EPERM);
	ck_assert_int_eq(do_rename(w, &ann, tmp, "bobs", tmp, "anns", 2), -EPERM);
	ck_assert_int_eq(do_rename(w, &bob, tmp, "bobs", tmp, "new", 0), 0);
	ck_assert_int_eq(do_unlink(w, &ann, tmp, "anns"), 0);
	ck_assert_int_eq(do_unlink(w, &root, tmp, "new"), 0);
	/* The owner of the directory may as well. */
	ck_assert_int_eq(do_mkdir(w, &ann, ROOT, "anntmp", 01777), 0);
	tmp = w->attr.ino;
	ck_assert_int_eq(do_create(w, &bob, tmp, "bobs", 0600), 0);
	ck_assert_int_eq(do_unlink(w, &ann, tmp, "bobs"), 0);
}
END_TEST

START_TEST(a_setgid_directory_gives_its_group)
{
	uint64_t shared;

	ck_assert_int_eq(do_mkdir(w, &root, ROOT, "shared", 0777), 0);
	shared = w->attr.ino;
	ck_assert_int_eq(do_setattr(w, &root, shared, GID, 200, 0), 0);
	ck_assert_int_eq(do_chmod(w, &root, shared, 02777), 0);
	ck_assert_int_eq(do_create(w, &ann, shared, "f", 02755), 0);
	ck_assert_uint_eq(w->attr.gid, 200);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 02755);
	ck_assert_int_eq(do_create(w, &eve, shared, "g", 02755), 0);
	ck_assert_uint_eq(w->attr.gid, 200);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 0755); /* eve is not in that group */
	ck_assert_int_eq(do_mkdir(w, &eve, shared, "d", 0755), 0);
	ck_assert_uint_eq(w->attr.gid, 200);
	ck_assert_uint_eq(w->attr.mode, S_IFDIR | 02755);
	ck_assert_int_eq(do_symlink(w, &eve, shared, "l", "x"), 0);
	ck_assert_uint_eq(w->attr.gid, 200);
}
END_TEST

START_TEST(chmod_is_for_the_owner_and_drops_setgid_of_foreign_groups)
{
	ck_assert_int_eq(do_chmod(w, &bob, file, 0600), -EPERM);
	ck_assert_int_eq(do_chmod(w, &ann, file, 07777), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 07777);
	ck_assert_int_eq(w->attr.ctime_ns, w->time_ns);
	ck_assert_int_eq(do_setattr(w, &root, file, GID, 102, 0), 0);
	ck_assert_int_eq(do_chmod(w, &ann, file, 06755), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 04755);
	ck_assert_int_eq(do_chmod(w, &root, file, 06755), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 06755);
	ck_assert_int_eq(do_chmod(w, &ann, no_such_inode, 0600), -ESTALE);
}
END_TEST

START_TEST(chown_is_for_root_chgrp_for_the_owner_within_his_groups)
{
	ck_assert_int_eq(do_setattr(w, &ann, file, UID, 101, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, &ann, file, UID, 100, 0), 0);
	ck_assert_int_eq(do_setattr(w, &bob, file, UID, 101, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, &bob, file, UID, 100, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, &ann, file, GID, 200, 0), 0);
	ck_assert_int_eq(do_setattr(w, &ann, file, GID, 101, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, &bob, file, GID, 200, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, &root, file, UID | GID, 101, 0), 0);
	ck_assert_uint_eq(w->attr.uid, 101);
	ck_assert_uint_eq(w->attr.gid, 101);
	ck_assert_int_eq(do_setattr(w, &root, file, UID, UINT32_MAX, 0), -EINVAL);
	ck_assert_int_eq(do_setattr(w, &root, file, GID, UINT32_MAX, 0), -EINVAL);
}
END_TEST

START_TEST(a_change_of_owner_or_content_takes_the_set_id_bits)
{
	ck_assert_int_eq(do_chmod(w, &ann, file, 06755), 0);
	ck_assert_int_eq(do_setattr(w, &ann, file, GID, 200, 0), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 0755);
	ck_assert_int_eq(do_chmod(w, &ann, file, 06755), 0);
	ck_assert_int_eq(do_write(w, &ann, file, 0, "x", 1, 0), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 0755);
	ck_assert_int_eq(do_chmod(w, &ann, file, 06755), 0);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, 0, 0), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 0755);
	/* Setgid without group execute is not a set-id bit. */
	ck_assert_int_eq(do_chmod(w, &ann, file, 02644), 0);
	ck_assert_int_eq(do_setattr(w, &ann, file, GID, 100, 0), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 02644);
	/* Root writes without that, but his chown clears, too. */
	ck_assert_int_eq(do_chmod(w, &ann, file, 04755), 0);
	ck_assert_int_eq(do_write(w, &root, file, 0, "y", 1, 0), 0);
	ck_assert_int_eq(do_setattr(w, &root, file, SIZE, 0, 0), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 04755);
	ck_assert_int_eq(do_setattr(w, &root, file, UID, 101, 0), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFREG | 0755);
	/* Directories keep theirs. */
	ck_assert_int_eq(do_chmod(w, &ann, empty, 02755), 0);
	ck_assert_int_eq(do_setattr(w, &ann, empty, GID, 200, 0), 0);
	ck_assert_uint_eq(w->attr.mode, S_IFDIR | 02755);
}
END_TEST

START_TEST(times_are_for_the_owner_now_is_for_writers)
{
	ck_assert_int_eq(do_setattr(w, &ann, file, ATIME | MTIME, 123456789, 0), 0);
	ck_assert_int_eq(w->attr.atime_ns, 123456789);
	ck_assert_int_eq(w->attr.mtime_ns, 123456789);
	ck_assert_int_eq(w->attr.ctime_ns, w->time_ns);
	ck_assert_int_eq(do_setattr(w, &ann, file, MTIME, (uint64_t)-5, 0), 0);
	ck_assert_int_eq(w->attr.mtime_ns, -5);
	ck_assert_int_eq(do_setattr(w, &bob, file, MTIME, 1, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, &bob, file, ATIME_NOW | MTIME_NOW, 0, 0), -EACCES);
	ck_assert_int_eq(do_chmod(w, &ann, file, 0666), 0);
	ck_assert_int_eq(do_setattr(w, &bob, file, MTIME, 1, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, &bob, file, ATIME_NOW | MTIME_NOW, 0, 0), 0);
	ck_assert_int_eq(w->attr.atime_ns, w->time_ns);
	ck_assert_int_eq(w->attr.mtime_ns, w->time_ns);
}
END_TEST

START_TEST(setattr_of_nothing_changes_nothing)
{
	PbMeta__Attr before = attr_of(file);

	ck_assert_int_eq(do_setattr(w, &bob, file, 0, 0, 0), 0);
	ck_assert_uint_eq(attr_of(file).version, before.version);
	ck_assert_int_eq(do_setattr(w, &ann, file, 256, 0, 0), -EINVAL);
}
END_TEST

/* -- inline content --------------------------------------------------------------------- */

static void expect_content(uint64_t ino, const void *want, size_t want_bytes)
{
	const void *data;
	size_t bytes;

	ck_assert_int_eq(do_read(w, &ann, ino, 0, UINT32_MAX, &data, &bytes), 0);
	ck_assert_uint_eq(bytes, want_bytes);
	ck_assert_mem_eq(data, want, want_bytes);
	ck_assert_uint_eq(w->attr.size, want_bytes);
}

START_TEST(writes_appends_and_holes_give_the_right_bytes)
{
	const void *data;
	size_t bytes;

	expect_content(file, "", 0);
	ck_assert_int_eq(do_write(w, &ann, file, 0, "hello", 5, 0), 0);
	ck_assert_int_eq(w->attr.mtime_ns, w->time_ns);
	ck_assert_int_eq(do_write(w, &ann, file, UINT64_MAX, " all", 4, 0), 0);
	ck_assert_uint_eq(w->offset, 5);
	ck_assert_uint_eq(w->attr.size, 9);
	ck_assert_int_eq(do_write(w, &ann, file, 1, "E", 1, 0), 0);
	expect_content(file, "hEllo all", 9);
	ck_assert_int_eq(do_write(w, &ann, file, 12, "!", 1, 0), 0);
	expect_content(file, "hEllo all\0\0\0!", 13);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, 3, 0), 0);
	expect_content(file, "hEl", 3);
	/* What was cut off does not come back. */
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, 6, 0), 0);
	expect_content(file, "hEl\0\0\0", 6);
	ck_assert_int_eq(do_read(w, &ann, file, 2, 2, &data, &bytes), 0);
	ck_assert_uint_eq(bytes, 2);
	ck_assert_mem_eq(data, "l\0", 2);
	ck_assert_int_eq(do_read(w, &ann, file, 6, 2, &data, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
	ck_assert_int_eq(do_read(w, &ann, file, UINT64_MAX, 2, &data, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, 0, 0), 0);
	expect_content(file, "", 0);
}
END_TEST

START_TEST(a_write_within_the_file_does_not_make_it_longer)
{
	ck_assert_int_eq(do_write(w, &ann, file, 0, "hello", 5, 0), 0);
	ck_assert_int_eq(do_write_as(w, &ann, file, 3, "\0\0\0\0", 4, 0, true), 0);
	expect_content(file, "hel\0\0", 5);
	/* Behind its end, and behind all that could be inline: nothing. */
	ck_assert_int_eq(do_write_as(w, &ann, file, 5, "x", 1, 0, true), 0);
	ck_assert_int_eq(do_write_as(w, &ann, file, UINT64_MAX - 1, "x", 1, 0, true), 0);
	expect_content(file, "hel\0\0", 5);
	ck_assert_int_eq(do_write_as(w, &ann, file, UINT64_MAX, "x", 1, 0, true), -EINVAL);
}
END_TEST

START_TEST(inline_content_ends_at_8_kib)
{
	static unsigned char data[MD_INLINE_MAX + 1];
	PbMeta__Attr before;

	memset(data, 'd', sizeof(data));
	ck_assert_int_eq(do_write(w, &ann, file, 0, data, MD_INLINE_MAX, 0), 0);
	expect_content(file, data, MD_INLINE_MAX);
	before = w->attr;
	ck_assert_int_eq(do_write(w, &ann, file, UINT64_MAX, "x", 1, 0), -EFBIG);
	ck_assert_int_eq(do_write(w, &ann, file, MD_INLINE_MAX, "x", 1, 0), -EFBIG);
	ck_assert_int_eq(do_write(w, &ann, file, UINT64_MAX - 1, "xyz", 3, 0), -EFBIG);
	ck_assert_int_eq(do_write(w, &ann, file, 0, data, MD_INLINE_MAX + 1, 0), -EFBIG);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, MD_INLINE_MAX + 1, 0), -EFBIG);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, UINT64_MAX, 0), -EFBIG);
	expect_content(file, data, MD_INLINE_MAX);
	ck_assert_uint_eq(w->attr.version, before.version);
	ck_assert_int_eq(do_write(w, &ann, file, UINT64_MAX, "", 0, 0), 0);
	ck_assert_uint_eq(w->attr.version, before.version);
	ck_assert_int_eq(do_write(w, &ann, file, MD_INLINE_MAX - 1, "x", 1, 0), 0);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, 1, 0), 0);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, MD_INLINE_MAX, 0), 0);
	memset(data + 1, 0, MD_INLINE_MAX);
	expect_content(file, data, MD_INLINE_MAX);
}
END_TEST

START_TEST(only_files_have_content)
{
	const void *data;
	size_t bytes;
	uint64_t fifo;

	ck_assert_int_eq(do_make(w, &ann, home, "fifo", S_IFIFO | 0644), 0);
	fifo = w->attr.ino;
	ck_assert_int_eq(do_write(w, &ann, home, 0, "x", 1, 0), -EISDIR);
	ck_assert_int_eq(do_write(w, &ann, fifo, 0, "x", 1, 0), -EINVAL);
	ck_assert_int_eq(do_write(w, &ann, no_such_inode, 0, "x", 1, 0), -ESTALE);
	ck_assert_int_eq(do_read(w, &ann, home, 0, 1, &data, &bytes), -EISDIR);
	ck_assert_int_eq(do_read(w, &ann, fifo, 0, 1, &data, &bytes), -EINVAL);
	ck_assert_int_eq(do_setattr(w, &ann, home, SIZE, 0, 0), -EISDIR);
	ck_assert_int_eq(do_setattr(w, &ann, fifo, SIZE, 0, 0), -EINVAL);
	ck_assert_int_eq(do_may_open(w, &ann, home, 2), -EISDIR);
	ck_assert_int_eq(do_may_open(w, &ann, home, 1), 0);
}
END_TEST

START_TEST(a_handle_open_for_writing_outlives_the_mode)
{
	ck_assert_int_eq(do_chmod(w, &ann, file, 0444), 0);
	ck_assert_int_eq(do_write(w, &ann, file, 0, "x", 1, 0), -EACCES);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, 5, 0), -EACCES);
	ck_assert_int_eq(do_write(w, &ann, file, 0, "x", 1, MD_COMMAND_HANDLE), 0);
	ck_assert_int_eq(do_setattr(w, &ann, file, SIZE, 5, MD_COMMAND_HANDLE), 0);
}
END_TEST

/* -- extended attributes ---------------------------------------------------------------- */

START_TEST(attributes_are_set_read_listed_and_removed)
{
	ProtobufCBinaryData value;
	PbMeta__ListxattrReply names;

	ck_assert_int_eq(do_getxattr(w, &ann, file, "user.a", &value), -ENODATA);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "1", 1, 2), -ENODATA);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "", 0, 1), 0);
	ck_assert_int_eq(do_getxattr(w, &ann, file, "user.a", &value), 0);
	ck_assert_uint_eq(value.len, 0);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "1", 1, 1), -EEXIST);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "one", 3, 2), 0);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "gfs.ncopy", "2", 1, 0), 0);
	ck_assert_int_eq(attr_of(file).ctime_ns, w->time_ns);
	ck_assert_int_eq(do_getxattr(w, &bob, file, "user.a", &value), 0);
	ck_assert_uint_eq(value.len, 3);
	ck_assert_mem_eq(value.data, "one", 3);
	ck_assert_int_eq(do_listxattr(w, &ann, file, &names), 0);
	ck_assert_uint_eq(names.n_names, 2);
	ck_assert_str_eq(names.names[0], "gfs.ncopy");
	ck_assert_str_eq(names.names[1], "user.a");
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "", 0, 4), 0);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "", 0, 4), -ENODATA);
	ck_assert_int_eq(do_listxattr(w, &ann, file, &names), 0);
	ck_assert_uint_eq(names.n_names, 1);
	ck_assert_int_eq(do_listxattr(w, &ann, empty, &names), 0);
	ck_assert_uint_eq(names.n_names, 0);
}
END_TEST

START_TEST(attributes_have_limits)
{
	static unsigned char big[MD_XATTR_VALUE_MAX + 1];
	char name[260];
	ProtobufCBinaryData value;

	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.0", big, sizeof(big), 0), -E2BIG);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.0", big, sizeof(big) - 1, 0), 0);
	ck_assert_int_eq(do_getxattr(w, &ann, file, "user.0", &value), 0);
	ck_assert_uint_eq(value.len, MD_XATTR_VALUE_MAX);
	for (unsigned i = 1; i < MD_XATTRS_PER_INODE_MAX; i++) {
		snprintf(name, sizeof(name), "user.%u", i);
		ck_assert_int_eq(do_setxattr(w, &ann, file, name, "v", 1, 0), 0);
	}
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.more", "v", 1, 0), -ENOSPC);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.0", "v", 1, 0), 0);
	memset(name, 'n', 256);
	memcpy(name, "user.", 5);
	name[256] = '\0';
	ck_assert_int_eq(do_setxattr(w, &ann, empty, name, "v", 1, 0), -ERANGE);
	name[255] = '\0';
	ck_assert_int_eq(do_setxattr(w, &ann, empty, name, "v", 1, 0), 0);
	/* All of them go with the file. */
	ck_assert_int_eq(do_unlink(w, &ann, home, "file"), 0);
}
END_TEST

START_TEST(attributes_are_guarded)
{
	ProtobufCBinaryData value;
	uint64_t fifo;

	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.", "", 0, 0), -EINVAL);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "gfs.", "", 0, 0), -EINVAL);
	ck_assert_int_eq(do_setxattr(w, &root, file, "trusted.x", "", 0, 0), -EOPNOTSUPP);
	ck_assert_int_eq(do_setxattr(w, &root, file, "security.x", "", 0, 0), -EOPNOTSUPP);
	ck_assert_int_eq(do_setxattr(w, &root, file, "", "", 0, 0), -EOPNOTSUPP);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "", 0, 8), -EINVAL);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "", 0, 5), -EINVAL);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "ballast", 7, 4), -EINVAL);
	ck_assert_int_eq(do_setxattr(w, &bob, file, "user.a", "", 0, 0), -EACCES);
	ck_assert_int_eq(do_chmod(w, &ann, file, 0666), 0);
	ck_assert_int_eq(do_setxattr(w, &bob, file, "user.a", "", 0, 0), 0);
	ck_assert_int_eq(do_setxattr(w, &bob, file, "gfs.ncopy", "9", 1, 0), -EPERM);
	ck_assert_int_eq(do_chmod(w, &ann, empty, 01777), 0);
	ck_assert_int_eq(do_setxattr(w, &bob, empty, "user.a", "", 0, 0), -EPERM);
	ck_assert_int_eq(do_make(w, &ann, home, "fifo", S_IFIFO | 0666), 0);
	fifo = w->attr.ino;
	ck_assert_int_eq(do_setxattr(w, &ann, fifo, "user.a", "", 0, 0), -EPERM);
	ck_assert_int_eq(do_getxattr(w, &ann, fifo, "user.a", &value), -ENODATA);
}
END_TEST

/* -- one user's things are not another's ------------------------------------------------ */

START_TEST(what_is_private_cannot_be_read_listed_changed_or_removed)
{
	static const struct who *others[] = {&bob, &eve};
	const struct who *other = others[_i];
	uint64_t secret, private, inside;
	ProtobufCBinaryData value;
	PbMeta__ReaddirReply list;
	PbMeta__Attr before[3];

	ck_assert_int_eq(do_create(w, &ann, ROOT, "secret", 0600), 0);
	secret = w->attr.ino;
	ck_assert_int_eq(do_write(w, &ann, secret, 0, "key", 3, 0), 0);
	ck_assert_int_eq(do_setxattr(w, &ann, secret, "user.a", "1", 1, 0), 0);
	ck_assert_int_eq(do_mkdir(w, &ann, ROOT, "private", 0700), 0);
	private = w->attr.ino;
	ck_assert_int_eq(do_create(w, &ann, private, "inside", 0600), 0);
	inside = w->attr.ino;
	ck_assert_int_eq(do_chmod(w, &root, ROOT, 01777), 0);
	before[0] = attr_of(secret);
	before[1] = attr_of(private);
	before[2] = attr_of(inside);

	ck_assert_int_eq(do_may_open(w, other, secret, 1), -EACCES);
	ck_assert_int_eq(do_may_open(w, other, secret, 2), -EACCES);
	ck_assert_int_eq(do_may_open(w, other, private, 1), -EACCES);
	ck_assert_int_eq(do_may_open(w, other, inside, 1), -EACCES);
	ck_assert_int_eq(do_getxattr(w, other, secret, "user.a", &value), -EACCES);
	ck_assert_int_eq(do_readdir(w, other, private, "", 0, false, &list), -EACCES);
	ck_assert_int_eq(do_readdir(w, other, private, "", 0, true, &list), -EACCES);
	ck_assert_int_eq(do_lookup(w, other, private, "inside"), -EACCES);
	ck_assert_int_eq(do_lookup(w, other, private, "none"), -EACCES);
	ck_assert_int_eq(do_lookup(w, other, private, ".."), -EACCES);

	ck_assert_int_eq(do_chmod(w, other, secret, 0666), -EPERM);
	ck_assert_int_eq(do_chmod(w, other, private, 0777), -EPERM);
	ck_assert_int_eq(do_setattr(w, other, secret, UID, other->cred.uid, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, other, secret, GID, other->cred.gid, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, other, secret, GID, 200, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, other, secret, SIZE, 0, 0), -EACCES);
	ck_assert_int_eq(do_setattr(w, other, secret, MTIME, 0, 0), -EPERM);
	ck_assert_int_eq(do_setattr(w, other, secret, MTIME_NOW, 0, 0), -EACCES);
	ck_assert_int_eq(do_write(w, other, secret, 0, "x", 1, 0), -EACCES);
	ck_assert_int_eq(do_setxattr(w, other, secret, "user.a", "2", 1, 0), -EACCES);
	ck_assert_int_eq(do_setxattr(w, other, secret, "user.a", "", 0, 4), -EACCES);
	ck_assert_int_eq(do_setxattr(w, other, secret, "gfs.ncopy", "2", 1, 0), -EPERM);
	ck_assert_int_eq(do_setxattr(w, other, private, "user.a", "2", 1, 0), -EACCES);
	ck_assert_int_eq(do_link(w, other, secret, ROOT, "stolen"), -EPERM);
	ck_assert_int_eq(do_link(w, other, inside, ROOT, "stolen"), -EPERM);
	ck_assert_int_eq(do_create(w, other, private, "new", 0600), -EACCES);
	ck_assert_int_eq(do_mkdir(w, other, private, "new", 0700), -EACCES);
	ck_assert_int_eq(do_symlink(w, other, private, "new", "x"), -EACCES);
	ck_assert_int_eq(do_unlink(w, other, private, "inside"), -EACCES);
	ck_assert_int_eq(do_unlink(w, other, ROOT, "secret"), -EPERM);
	ck_assert_int_eq(do_rmdir(w, other, ROOT, "private"), -EPERM);
	ck_assert_int_eq(do_rename(w, other, ROOT, "secret", ROOT, "moved", 0), -EPERM);
	ck_assert_int_eq(do_rename(w, other, ROOT, "private", ROOT, "moved", 0), -EPERM);
	ck_assert_int_eq(do_rename(w, other, private, "inside", ROOT, "moved", 0), -EACCES);
	ck_assert_int_eq(do_create(w, other, ROOT, "own", 0600), 0);
	ck_assert_int_eq(do_rename(w, other, ROOT, "own", private, "inside", 0), -EACCES);
	ck_assert_int_eq(do_rename(w, other, ROOT, "own", private, "new", 0), -EACCES);
	ck_assert_int_eq(do_rename(w, other, ROOT, "own", ROOT, "secret", 0), -EPERM);
	ck_assert_int_eq(do_rename(w, other, ROOT, "own", ROOT, "secret", 2), -EPERM);

	ck_assert_uint_eq(attr_of(secret).version, before[0].version);
	ck_assert_uint_eq(attr_of(private).version, before[1].version);
	ck_assert_uint_eq(attr_of(inside).version, before[2].version);
}
END_TEST

START_TEST(group_rights_count_for_members_and_the_owner_class_comes_first)
{
	ck_assert_int_eq(do_setattr(w, &ann, file, GID, 200, 0), 0);
	ck_assert_int_eq(do_chmod(w, &ann, file, 0060), 0);
	ck_assert_int_eq(do_may_open(w, &ann, file, 1), -EACCES);
	ck_assert_int_eq(do_may_open(w, &bob, file, 3), 0);
	ck_assert_int_eq(do_may_open(w, &eve, file, 1), -EACCES);
	ck_assert_int_eq(do_chmod(w, &ann, file, 0606), 0);
	ck_assert_int_eq(do_may_open(w, &bob, file, 1), -EACCES);
	ck_assert_int_eq(do_may_open(w, &eve, file, 3), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_state_file");
	TCase *tc = tcase_create("state");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, in_a_sticky_directory_only_owners_remove_and_rename);
	tcase_add_test(tc, a_setgid_directory_gives_its_group);
	tcase_add_test(tc, chmod_is_for_the_owner_and_drops_setgid_of_foreign_groups);
	tcase_add_test(tc, chown_is_for_root_chgrp_for_the_owner_within_his_groups);
	tcase_add_test(tc, a_change_of_owner_or_content_takes_the_set_id_bits);
	tcase_add_test(tc, times_are_for_the_owner_now_is_for_writers);
	tcase_add_test(tc, setattr_of_nothing_changes_nothing);
	tcase_add_test(tc, writes_appends_and_holes_give_the_right_bytes);
	tcase_add_test(tc, a_write_within_the_file_does_not_make_it_longer);
	tcase_add_test(tc, inline_content_ends_at_8_kib);
	tcase_add_test(tc, only_files_have_content);
	tcase_add_test(tc, a_handle_open_for_writing_outlives_the_mode);
	tcase_add_test(tc, attributes_are_set_read_listed_and_removed);
	tcase_add_test(tc, attributes_have_limits);
	tcase_add_test(tc, attributes_are_guarded);
	tcase_add_loop_test(tc, what_is_private_cannot_be_read_listed_changed_or_removed, 0, 2);
	tcase_add_test(tc, group_rights_count_for_members_and_the_owner_class_comes_first);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
