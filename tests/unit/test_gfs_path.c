#include "tests/unit/gfs_fake.h"

#include "client/fs/gfs_path.h"

static void setup(void)
{
	fake_setup();
	ck_assert_int_eq(gfs_mkdir(fs, "/d", 0755), 0);
	ck_assert_int_eq(gfs_mkdir(fs, "/d/e", 0755), 0);
	ck_assert_int_eq(gfs_mkdir(fs, "/empty", 0755), 0);
	ck_assert_int_eq(gfs_mknod(fs, "/f", S_IFREG | 0644, 0), 0);
	ck_assert_int_eq(gfs_mknod(fs, "/d/e/g", 0600, 0), 0);
	ck_assert_int_eq(gfs_symlink(fs, "d/e", "/rel"), 0);
	ck_assert_int_eq(gfs_symlink(fs, "/d", "/abs"), 0);
	ck_assert_int_eq(gfs_symlink(fs, "../..", "/d/e/up"), 0);
	ck_assert_int_eq(gfs_symlink(fs, "/f", "/d/tofile"), 0);
	ck_assert_int_eq(gfs_symlink(fs, "nowhere", "/dangling"), 0);
	ck_assert_int_eq(gfs_symlink(fs, "loop2", "/loop1"), 0);
	ck_assert_int_eq(gfs_symlink(fs, "loop1", "/loop2"), 0);
	ck_assert_int_eq(gfs_symlink(fs, "/", "/toroot"), 0);
	ck_assert_int_eq(gfs_symlink(fs, "/", "/d/e/top"), 0);
	gx_buf_clear(&fake->diary);
}

/* The inode, or the error. */
static int64_t ino_at(const char *path, bool follow)
{
	struct gfc_attr attr;
	int r = gfs_path_find(fake, path, follow, &attr);

	return r < 0 ? r : (int64_t)attr.ref.ino;
}

#define ROOT 1
#define D 2
#define E 3
#define F 5
#define G 6
#define REL 7
#define TOFILE 10

static const struct {
	const char *path;
	bool follow;
	int64_t result;
} finds[] = {
	{"/", true, ROOT},
	{"//", true, ROOT},
	{"gfs:/", true, ROOT},
	{"gfs:", true, ROOT},
	{"", true, -ENOENT},
	{".", true, ROOT},
	{"..", true, ROOT},
	{"/../..", true, ROOT},
	{"/d", true, D},
	{"d", true, D},
	{"gfs:d", true, D},
	{"gfs:/d/e", true, E},
	{"/d/", true, D},
	{"//d//e///", true, E},
	{"/d/.", true, D},
	{"/d/./e/.", true, E},
	{"/d/e/..", true, D},
	{"/d/e/../..", true, ROOT},
	{"/d/e/../../../d", true, D},
	{"/d/e/../e/g", true, G},
	{"/f", true, F},
	{"/f/", true, -ENOTDIR},
	{"/f/.", true, -ENOTDIR},
	{"/f/..", true, -ENOTDIR},
	{"/f/x", true, -ENOTDIR},
	{"/x", true, -ENOENT},
	{"/x/", true, -ENOENT},
	{"/x/..", true, -ENOENT},
	{"/rel", true, E},
	{"/rel", false, REL},
	{"/rel/", false, E},
	{"/rel/g", false, G},
	{"/rel/..", true, D},
	{"/abs/e/g", true, G},
	{"/abs/..", true, ROOT},
	{"/d/e/up", true, ROOT},
	{"/d/e/up/d", true, D},
	{"/rel/up/rel/g", true, G},
	{"/d/tofile", true, F},
	{"/d/tofile", false, TOFILE},
	{"/d/tofile/", true, -ENOTDIR},
	{"/d/tofile/", false, -ENOTDIR},
	{"/d/tofile/x", true, -ENOTDIR},
	{"/dangling", true, -ENOENT},
	{"/dangling/", false, -ENOENT},
	{"/loop1", true, -ELOOP},
	{"/loop1/x", false, -ELOOP},
	{"/toroot", true, ROOT},
	{"/d/e/top/..", true, ROOT},
	{"/d/e/top/../d", true, D},
	{"/toroot/toroot/d/", true, D},
};

START_TEST(a_path_leads_to_its_inode)
{
	ck_assert_msg(ino_at(finds[_i].path, finds[_i].follow) == finds[_i].result,
		      "\"%s\" gave %lld, not %lld", finds[_i].path,
		      (long long)ino_at(finds[_i].path, finds[_i].follow),
		      (long long)finds[_i].result);
}
END_TEST

START_TEST(forty_links_are_fine_and_one_more_is_a_loop)
{
	char name[16], target[16];

	for (int i = 1; i <= 41; i++) {
		ck_assert_int_eq(gx_format(name, sizeof(name), "/n%d", i), 0);
		ck_assert_int_eq(gx_format(target, sizeof(target), i == 1 ? "f" : "n%d", i - 1), 0);
		ck_assert_int_eq(gfs_symlink(fs, target, name), 0);
	}
	ck_assert_int_eq(ino_at("/n40", true), F);
	ck_assert_int_eq(ino_at("/n41", true), -ELOOP);
}
END_TEST

START_TEST(long_names_and_paths_are_refused_before_metad_sees_them)
{
	char path[2 * GFS_PATH_MAX];

	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[256] = '\0';
	ck_assert_int_eq(ino_at(path, true), -ENOENT);
	path[256] = 'x';
	path[257] = '\0';
	ck_assert_int_eq(ino_at(path, true), -ENAMETOOLONG);
	ck_assert_int_eq(gfs_mkdir(fs, path, 0755), -ENAMETOOLONG);

	memset(path, '/', sizeof(path));
	path[GFS_PATH_MAX - 1] = '\0';
	ck_assert_int_eq(ino_at(path, true), ROOT);
	path[GFS_PATH_MAX - 1] = '/';
	path[GFS_PATH_MAX] = '\0';
	ck_assert_int_eq(ino_at(path, true), -ENAMETOOLONG);
	/* The scheme does not count. */
	memcpy(path, "gfs:", 4);
	ck_assert_int_eq(ino_at(path, true), ROOT);
}
END_TEST

START_TEST(a_link_that_makes_the_path_too_long_is_refused)
{
	char target[GFS_PATH_MAX] = "", path[GFS_PATH_MAX];

	memset(target, '/', 3000);
	ck_assert_int_eq(gfs_symlink(fs, target, "/long"), 0);
	memset(path, '/', sizeof(path));
	memcpy(path, "/long", 5);
	path[5 + 1095] = '\0';
	ck_assert_int_eq(ino_at(path, true), ROOT);
	path[5 + 1095] = '/';
	path[5 + 1096] = '\0';
	ck_assert_int_eq(ino_at(path, true), -ENAMETOOLONG);
}
END_TEST

START_TEST(depth_is_not_limited_by_the_length_of_a_path)
{
	/* Sixty directories down and up again by links. */
	char path[512] = "";

	for (int i = 0; i < 60; i++) {
		ck_assert_int_eq(gx_strcpy(path + 2 * i, sizeof(path) - 2 * (size_t)i, "/a"), 0);
		ck_assert_int_eq(gfs_mkdir(fs, path, 0755), 0);
	}
	ck_assert_int_eq(gx_strcpy(path + 120, 60, "/../../../../../../../../../.."), 0);
	ck_assert_int_eq(gfs_symlink(fs, path, "/deep"), 0);
	path[100] = '\0';
	ck_assert_int_eq(ino_at("/deep", true), ino_at(path, true));
}
END_TEST

/* -- calls by path ------------------------------------------------------------------------------
 */

enum op { MKDIR, MKNOD, SYMLINK, LINK, UNLINK, RMDIR, OPEN, CREATE, EXCL, NOFOLLOW, OPENDIR };

static int do_op(enum op op, const char *path)
{
	struct gfs_file *file = NULL;
	struct gfs_dir *dir;
	unsigned flags = GFS_O_READ | GFS_O_WRITE;
	int r = -1;

	switch (op) {
	case MKDIR:
		return gfs_mkdir(fs, path, 0700);
	case MKNOD:
		return gfs_mknod(fs, path, S_IFIFO | 0600, 0);
	case SYMLINK:
		return gfs_symlink(fs, "anything", path);
	case LINK:
		return gfs_link(fs, "/f", path);
	case UNLINK:
		return gfs_unlink(fs, path);
	case RMDIR:
		return gfs_rmdir(fs, path);
	case OPEN:
		r = gfs_open(fs, path, GFS_O_READ, 0, &file);
		break;
	case CREATE:
		r = gfs_open(fs, path, flags | GFS_O_CREATE, 0600, &file);
		break;
	case EXCL:
		r = gfs_open(fs, path, flags | GFS_O_CREATE | GFS_O_EXCL, 0600, &file);
		break;
	case NOFOLLOW:
		r = gfs_open(fs, path, flags | GFS_O_NOFOLLOW, 0600, &file);
		break;
	case OPENDIR:
		r = gfs_opendir(fs, path, &dir);
		if (r == 0)
			gfs_closedir(dir);
		return r;
	}
	ck_assert_int_eq(gfs_close(file), 0);
	return r;
}

static const struct {
	enum op op;
	const char *path;
	int result;
	const char *exists; /* afterwards, not NULL: this path does */
} ops[] = {
	{MKDIR, "/new", 0, "/new"},
	{MKDIR, "/new///", 0, "/new"},
	{MKDIR, "/d/e/../../new/", 0, "/new"},
	{MKDIR, "/d", -EEXIST, NULL},
	{MKDIR, "/", -EEXIST, NULL},
	{MKDIR, "/d/.", -EEXIST, NULL},
	{MKDIR, "/d/..", -EEXIST, NULL},
	{MKDIR, "/dangling", -EEXIST, NULL},
	{MKDIR, "/dangling/x", -ENOENT, NULL},
	{MKDIR, "/f/x", -ENOTDIR, NULL},
	{MKDIR, "/x/y", -ENOENT, NULL},
	{MKDIR, "", -ENOENT, NULL},
	{MKNOD, "/new", 0, "/new"},
	{MKNOD, "/new/", -ENOENT, NULL},
	{MKNOD, "/d/", -EEXIST, NULL},
	{SYMLINK, "/rel/new", 0, "/d/e/new"},
	{SYMLINK, "/new/", -ENOENT, NULL},
	{SYMLINK, "/rel", -EEXIST, NULL},
	{LINK, "/abs/new", 0, "/d/new"},
	{LINK, "/new/", -ENOENT, NULL},
	{LINK, "/d/.", -EEXIST, NULL},
	{UNLINK, "/f", 0, NULL},
	{UNLINK, "/rel", 0, "/d/e"},
	{UNLINK, "/f/", -ENOTDIR, "/f"},
	{UNLINK, "/rel/", -ENOTDIR, "/rel"},
	{UNLINK, "/d", -EISDIR, "/d"},
	{UNLINK, "/d/", -EISDIR, "/d"},
	{UNLINK, "/", -EISDIR, NULL},
	{UNLINK, "/d/.", -EISDIR, NULL},
	{UNLINK, "/x", -ENOENT, NULL},
	{UNLINK, "/x/", -ENOENT, NULL},
	{RMDIR, "/empty", 0, NULL},
	{RMDIR, "/empty/", 0, NULL},
	{RMDIR, "/d", -ENOTEMPTY, "/d"},
	{RMDIR, "/f", -ENOTDIR, "/f"},
	{RMDIR, "/rel/", -ENOTDIR, "/rel"},
	{RMDIR, "/", -EBUSY, NULL},
	{RMDIR, "/empty/.", -EINVAL, "/empty"},
	{RMDIR, "/empty/..", -ENOTEMPTY, "/empty"},
	{OPEN, "/f", 0, NULL},
	{OPEN, "/d/tofile", 0, NULL},
	{OPEN, "/d", -EISDIR, NULL},
	{OPEN, "/rel", -EISDIR, NULL},
	{OPEN, "/d/", -EISDIR, NULL},
	{OPEN, "/", -EISDIR, NULL},
	{OPEN, "/d/..", -EISDIR, NULL},
	{OPEN, "/f/", -ENOTDIR, NULL},
	{OPEN, "/d/tofile/", -ENOTDIR, NULL},
	{OPEN, "/rel/", -EISDIR, NULL},
	{OPEN, "/x", -ENOENT, NULL},
	{OPEN, "/dangling", -ENOENT, NULL},
	{OPEN, "/loop1", -ELOOP, NULL},
	{CREATE, "/new", 0, "/new"},
	{CREATE, "/new/", -EISDIR, NULL},
	{CREATE, "/f", 0, NULL},
	{CREATE, "/dangling", 0, "/nowhere"},
	{CREATE, "/d", -EISDIR, NULL},
	{EXCL, "/new", 0, "/new"},
	{EXCL, "/f", -EEXIST, NULL},
	{EXCL, "/dangling", -EEXIST, NULL},
	{EXCL, "/", -EEXIST, NULL},
	{NOFOLLOW, "/f", 0, NULL},
	{NOFOLLOW, "/d/tofile", -ELOOP, NULL},
	{NOFOLLOW, "/abs/tofile", -ELOOP, NULL},
	{OPENDIR, "/rel", 0, NULL},
	{OPENDIR, "/", 0, NULL},
	{OPENDIR, "/f", -ENOTDIR, NULL},
	{OPENDIR, "/x", -ENOENT, NULL},
};

START_TEST(a_call_by_path_ends_as_posix_says)
{
	struct gfs_stat st;
	int r = do_op(ops[_i].op, ops[_i].path);

	ck_assert_msg(r == ops[_i].result, "%d \"%s\" gave %d, not %d", (int)ops[_i].op,
		      ops[_i].path, r, ops[_i].result);
	if (ops[_i].exists)
		ck_assert_int_eq(gfs_lstat(fs, ops[_i].exists, &st), 0);
}
END_TEST

static const struct {
	const char *from, *to;
	unsigned flags;
	int result;
} renames[] = {
	{"/f", "/new", 0, 0},
	{"/d", "/new/", 0, 0},
	{"/d/", "/new", 0, 0},
	{"/rel", "/new", 0, 0},
	{"/f", "/new/", 0, -ENOTDIR},
	{"/f/", "/new", 0, -ENOTDIR},
	{"/rel/", "/new", 0, -ENOTDIR},
	{"/x", "/new", 0, -ENOENT},
	{"/", "/new", 0, -EBUSY},
	{"/d", "/", 0, -EBUSY},
	{"/d/.", "/new", 0, -EINVAL},
	{"/d/..", "/new", 0, -EINVAL},
	{"/f", "/d/.", 0, -EINVAL},
	{"/f", "/d", GFS_RENAME_NOREPLACE, -EEXIST},
	{"/f", "/d", GFS_RENAME_EXCHANGE, 0},
	{"/f", "/d/", GFS_RENAME_EXCHANGE, 0},
	{"/d", "/f/", GFS_RENAME_EXCHANGE, -ENOTDIR},
	{"/f", "/new", GFS_RENAME_EXCHANGE | GFS_RENAME_NOREPLACE, -EINVAL},
	{"/f", "/new", 4, -EINVAL},
};

START_TEST(a_rename_ends_as_posix_says)
{
	int r = gfs_rename(fs, renames[_i].from, renames[_i].to, renames[_i].flags);

	ck_assert_msg(r == renames[_i].result, "%s to %s gave %d, not %d", renames[_i].from,
		      renames[_i].to, r, renames[_i].result);
}
END_TEST

START_TEST(mkdir_all_makes_what_is_missing_and_nothing_else)
{
	struct gfs_stat st;

	ck_assert_int_eq(gfs_mkdir_all(fs, "gfs:/d/e//p/q/r/", 0750), 0);
	assert_diary("make p; make q; make r; ");
	ck_assert_int_eq(gfs_stat(fs, "/d/e/p/q/r", &st), 0);
	ck_assert_uint_eq(st.mode, S_IFDIR | 0750);
	ck_assert_int_eq(gfs_mkdir_all(fs, "/d/e/p/q", 0750), 0);
	assert_diary("");
	ck_assert_int_eq(gfs_mkdir_all(fs, "rel/s", 0750), 0);
	ck_assert_int_eq(gfs_mkdir_all(fs, "/", 0750), 0);
	ck_assert_int_eq(gfs_mkdir_all(fs, "/f", 0750), -EEXIST);
	ck_assert_int_eq(gfs_mkdir_all(fs, "/f/x/y", 0750), -ENOTDIR);
	ck_assert_int_eq(gfs_mkdir_all(fs, "/dangling/x", 0750), -ENOTDIR);
	ck_assert_int_eq(gfs_mkdir_all(fs, "", 0750), -ENOENT);
}
END_TEST

START_TEST(links_are_read_and_cut)
{
	char buf[8];

	ck_assert_int_eq(gfs_readlink(fs, "/rel", buf, sizeof(buf)), 3);
	ck_assert_int_eq(memcmp(buf, "d/e", 3), 0);
	ck_assert_int_eq(gfs_readlink(fs, "/dangling", buf, 2), 2);
	ck_assert_int_eq(gfs_readlink(fs, "/f", buf, sizeof(buf)), -EINVAL);
	ck_assert_int_eq(gfs_readlink(fs, "/rel/", buf, sizeof(buf)), -EINVAL);
	ck_assert_int_eq(gfs_readlink(fs, "/rel", buf, 0), -EINVAL);
	ck_assert_int_eq(gfs_symlink(fs, "", "/new"), -ENOENT);
}
END_TEST

START_TEST(attributes_change_on_the_link_or_behind_it)
{
	struct timespec times[2] = {{-1, 500000000}, {7, UTIME_OMIT}};
	struct gfs_stat st;

	ck_assert_int_eq(gfs_chown(fs, "/d/tofile", 7, (gid_t)-1, true), 0);
	ck_assert_int_eq(gfs_chown(fs, "/d/tofile", (uid_t)-1, 8, false), 0);
	ck_assert_int_eq(gfs_chown(fs, "/d/tofile", (uid_t)-1, (gid_t)-1, false), 0);
	assert_diary("setattr 2; setattr 4; ");
	ck_assert_int_eq(gfs_stat(fs, "/f", &st), 0);
	ck_assert_uint_eq(st.uid, 7);
	ck_assert_uint_eq(st.gid, 0);
	ck_assert_int_eq(gfs_chmod(fs, "/d/tofile", S_IFREG | 04711), 0);
	ck_assert_int_eq(gfs_utimens(fs, "/f", times, true), 0);
	ck_assert_int_eq(gfs_utimens(fs, "/f", NULL, true), 0);
	assert_diary("setattr 1; setattr 10; setattr c0; ");
	ck_assert_int_eq(gfs_stat(fs, "/f", &st), 0);
	ck_assert_uint_eq(st.mode, S_IFREG | 04711);
	ck_assert_int_eq(st.atime.tv_sec, -1);
	ck_assert_int_eq(st.atime.tv_nsec, 500000000);
	times[0].tv_nsec = 1000000000;
	ck_assert_int_eq(gfs_utimens(fs, "/f", times, true), -EINVAL);
	ck_assert_int_eq(gfs_truncate(fs, "/d", 0), -EISDIR);
}
END_TEST

START_TEST(errors_name_the_path_in_one_line)
{
	struct gfs_stat st;
	char path[512];

	ck_assert_int_eq(gfs_stat(fs, "/d/x", &st), -ENOENT);
	ck_assert_str_eq(gfs_error(), "/d/x: No such file or directory");
	fake_fail("lookup", -ETIMEDOUT);
	ck_assert_int_eq(gfs_stat(fs, "/d/x", &st), -ETIMEDOUT);
	ck_assert_str_eq(gfs_error(), "/d/x: lookup: told to fail");
	memset(path, 'x', sizeof(path));
	memcpy(path, "/d/", 3);
	path[300] = '\0';
	ck_assert_int_eq(gfs_stat(fs, path, &st), -ENAMETOOLONG);
	ck_assert_int_eq(strncmp(gfs_error(), "...xxx", 6), 0);
	ck_assert_ptr_nonnull(strstr(gfs_error(), "xxx: File name too long"));
	/* Nothing of an older failure shines through. */
	ck_assert_int_eq(gfs_stat(fs, "/f/x", &st), -ENOTDIR);
	ck_assert_str_eq(gfs_error(), "/f/x: Not a directory");
}
END_TEST

START_TEST(a_directory_removed_under_our_feet_is_enoent)
{
	struct gfs_stat st;
	struct gfs_file *file;

	fake_fail("lookup", -ESTALE);
	ck_assert_int_eq(gfs_stat(fs, "/d/x", &st), -ENOENT);
	ck_assert_str_eq(gfs_error(), "/d/x: No such file or directory");
	fake_fail("open", -ESTALE);
	ck_assert_int_eq(gfs_open(fs, "/d/x", GFS_O_READ, 0, &file), -ENOENT);
}
END_TEST

/* -- directories and attributes ------------------------------------------------------------------
 */

static void assert_next(struct gfs_dir *dir, const char *name, uint32_t type)
{
	struct gfs_dirent entry;

	ck_assert_int_eq(gfs_readdir(dir, &entry), 1);
	ck_assert_str_eq(entry.name, name);
	ck_assert_uint_eq(entry.type, type);
	ck_assert(entry.has_stat);
	ck_assert_uint_eq(entry.st.ino, entry.ino);
	ck_assert_uint_eq(entry.st.mode & S_IFMT, type);
}

START_TEST(a_directory_is_read_page_by_page_and_from_any_name)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
	struct gfs_dirent entry;
	struct gfs_dir *dir;
	char path[32];

	for (size_t i = 0; i < GX_COUNT_OF(names); i++) {
		ck_assert_int_eq(gx_format(path, sizeof(path), "/empty/%s", names[i]), 0);
		ck_assert_int_eq(gfs_mknod(fs, path, S_IFREG | 0600, 0), 0);
	}
	gx_buf_clear(&fake->diary);
	ck_assert_int_eq(gfs_opendir(fs, "/empty/", &dir), 0);
	for (size_t i = 0; i < GX_COUNT_OF(names); i++)
		assert_next(dir, names[i], S_IFREG);
	ck_assert_int_eq(gfs_readdir(dir, &entry), 0);
	ck_assert_int_eq(gfs_readdir(dir, &entry), 0);
	assert_diary("readdir \"\"; readdir \"c\"; readdir \"f\"; ");
	ck_assert_int_eq(gfs_seekdir(dir, "bb"), 0);
	assert_next(dir, "c", S_IFREG);
	ck_assert_int_eq(gfs_seekdir(dir, NULL), 0);
	assert_next(dir, "a", S_IFREG);
	ck_assert_int_eq(gfs_seekdir(dir, "zz"), 0);
	ck_assert_int_eq(gfs_readdir(dir, &entry), 0);
	gfs_closedir(dir);
}
END_TEST

START_TEST(a_page_that_fails_is_asked_for_again)
{
	struct gfs_dirent entry;
	struct gfs_dir *dir;

	fake_fail("readdir", -EACCES);
	ck_assert_int_eq(gfs_opendir(fs, "/d", &dir), -EACCES);
	ck_assert_str_eq(gfs_error(), "/d: readdir: told to fail");
	ck_assert_int_eq(gfs_opendir(fs, "/d", &dir), 0);
	ck_assert_int_eq(gfs_seekdir(dir, NULL), 0);
	fake_fail("readdir", -ETIMEDOUT);
	ck_assert_int_eq(gfs_readdir(dir, &entry), -ETIMEDOUT);
	assert_next(dir, "e", S_IFDIR);
	assert_next(dir, "tofile", S_IFLNK);
	ck_assert_int_eq(gfs_readdir(dir, &entry), 0);
	gfs_closedir(dir);
}
END_TEST

START_TEST(extended_attributes_come_in_the_size_asked_for)
{
	char buf[8];

	ck_assert_int_eq(gfs_setxattr(fs, "/f", "user.a", "hello", 5, GFS_XATTR_CREATE, true), 0);
	ck_assert_int_eq(gfs_setxattr(fs, "/f", "user.a", "hello", 5, 4, true), -EINVAL);
	ck_assert_int_eq(gfs_getxattr(fs, "/f", "user.a", NULL, 0, true), 5);
	ck_assert_int_eq(gfs_getxattr(fs, "/f", "user.a", buf, 4, true), -ERANGE);
	ck_assert_int_eq(gfs_getxattr(fs, "/f", "user.a", buf, sizeof(buf), true), 5);
	ck_assert_int_eq(memcmp(buf, "hello", 5), 0);
	ck_assert_int_eq(gfs_listxattr(fs, "/f", NULL, 0, true), 7);
	ck_assert_int_eq(gfs_listxattr(fs, "/f", buf, sizeof(buf), true), 7);
	ck_assert_str_eq(buf, "user.a");
	ck_assert_int_eq(gfs_removexattr(fs, "/f", "user.a", true), 0);
	ck_assert_int_eq(gfs_getxattr(fs, "/f", "user.a", buf, sizeof(buf), true), -ENODATA);
	ck_assert_int_eq(gfs_listxattr(fs, "/f", buf, sizeof(buf), true), 0);
	assert_diary("setxattr user.a 1; setxattr user.a 4; ");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfs_path");
	TCase *walk = tcase_create("walk"), *calls = tcase_create("calls");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(walk, setup, fake_teardown);
	tcase_add_loop_test(walk, a_path_leads_to_its_inode, 0, (int)GX_COUNT_OF(finds));
	tcase_add_test(walk, forty_links_are_fine_and_one_more_is_a_loop);
	tcase_add_test(walk, long_names_and_paths_are_refused_before_metad_sees_them);
	tcase_add_test(walk, a_link_that_makes_the_path_too_long_is_refused);
	tcase_add_test(walk, depth_is_not_limited_by_the_length_of_a_path);
	suite_add_tcase(suite, walk);
	tcase_add_checked_fixture(calls, setup, fake_teardown);
	tcase_add_loop_test(calls, a_call_by_path_ends_as_posix_says, 0, (int)GX_COUNT_OF(ops));
	tcase_add_loop_test(calls, a_rename_ends_as_posix_says, 0, (int)GX_COUNT_OF(renames));
	tcase_add_test(calls, mkdir_all_makes_what_is_missing_and_nothing_else);
	tcase_add_test(calls, links_are_read_and_cut);
	tcase_add_test(calls, attributes_change_on_the_link_or_behind_it);
	tcase_add_test(calls, errors_name_the_path_in_one_line);
	tcase_add_test(calls, a_directory_removed_under_our_feet_is_enoent);
	tcase_add_test(calls, a_directory_is_read_page_by_page_and_from_any_name);
	tcase_add_test(calls, a_page_that_fails_is_asked_for_again);
	tcase_add_test(calls, extended_attributes_come_in_the_size_asked_for);
	suite_add_tcase(suite, calls);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
