/*
 * A program as users write them: it knows gfs.h and nothing else of the tree. libgfs.sh builds it
 * against the shared library, runs it on a grid, and restarts metad whenever it says "restart".
 */
#include <gfs.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RW (GFS_O_READ | GFS_O_WRITE)

/* Ends the program with the line, the value and the reason, unless it is what we want. */
#define WANT(expression, wanted)                                                                   \
	do {                                                                                       \
		long long got_ = (long long)(expression), want_ = (long long)(wanted);             \
		if (got_ != want_) {                                                               \
			fprintf(stderr, "line %d: %s is %lld, not %lld (%s)\n", __LINE__,          \
				#expression, got_, want_, gfs_error());                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct gfs *fs, *other; /* two clients, each with a cache of its own */

static void restart_metad(void)
{
	char line[16];

	puts("restart");
	fflush(stdout);
	WANT(fgets(line, sizeof(line), stdin) != NULL, 1);
}

static void put(struct gfs *client, const char *path, const char *text)
{
	struct gfs_file *f;

	WANT(gfs_open(client, path, GFS_O_WRITE | GFS_O_CREATE | GFS_O_TRUNC, 0644, &f), 0);
	WANT(gfs_write(f, text, strlen(text)), strlen(text));
	WANT(gfs_close(f), 0);
}

static void want_content(struct gfs *client, const char *path, const char *text)
{
	char buf[256] = "";
	struct gfs_file *f;

	WANT(gfs_open(client, path, GFS_O_READ, 0, &f), 0);
	WANT(gfs_read(f, buf, sizeof(buf) - 1), strlen(text));
	WANT(strcmp(buf, text), 0);
	WANT(gfs_read(f, buf, sizeof(buf)), 0);
	WANT(gfs_close(f), 0);
}

static void users(void)
{
	char name[65];
	uid_t uid;
	gid_t gid;

	WANT(gfs_whoami(fs, &uid, &gid, name, sizeof(name)), 0);
	WANT(strcmp(name, "ann"), 0);
	WANT(uid, 1000);
	WANT(gid, 100);
	WANT(gfs_user_id(fs, "bob", &uid, &gid), 0);
	WANT(uid, 1001);
	WANT(gfs_user_id(fs, "nobody", &uid, &gid), -ENOENT);
	WANT(gfs_group_id(fs, "staff", &gid), 0);
	WANT(gid, 100);
	for (int i = 0; i < 2; i++) { /* the second time from memory */
		WANT(gfs_user_name(fs, 1001, name, sizeof(name)), 0);
		WANT(strcmp(name, "bob"), 0);
		WANT(gfs_user_name(fs, 4711, name, sizeof(name)), -ENOENT);
		WANT(gfs_group_name(fs, 100, name, sizeof(name)), 0);
		WANT(strcmp(name, "staff"), 0);
	}
	WANT(gfs_user_name(fs, 1001, name, 3), -ERANGE);
}

static void names(void)
{
	struct timespec times[2] = {{1, 2}, {3, 4}};
	struct gfs_statfs sfs;
	struct gfs_stat st;
	char buf[64];

	WANT(gfs_mkdir_all(fs, "gfs:/people/ann/a/b", 0755), 0);
	WANT(gfs_mkdir(fs, "/people/ann", 0755), -EEXIST);
	put(fs, "/people/ann/f", "hello");
	WANT(gfs_stat(fs, "/people/ann/f", &st), 0);
	WANT(st.size, 5);
	WANT(st.mode, S_IFREG | 0644);
	WANT(st.uid, 1000);
	WANT(gfs_symlink(fs, "../f", "/people/ann/a/link"), 0);
	WANT(gfs_readlink(fs, "/people/ann/a/link", buf, sizeof(buf)), 4);
	want_content(fs, "/people/ann/a/link", "hello");
	WANT(gfs_stat(fs, "/people/ann/a/b/../link", &st), 0);
	WANT(st.size, 5);
	WANT(gfs_link(fs, "/people/ann/f", "/people/ann/g"), 0);
	WANT(gfs_stat(fs, "/people/ann/g", &st), 0);
	WANT(st.nlink, 2);
	WANT(gfs_rename(fs, "/people/ann/f", "/people/ann/a/", 0), -ENOTDIR);
	WANT(gfs_rename(fs, "/people/ann/f", "/people/ann/a", 0), -EISDIR);
	WANT(gfs_rename(fs, "/people/ann/g", "/people/ann/b", GFS_RENAME_NOREPLACE), 0);
	WANT(gfs_rmdir(fs, "/people/ann/a"), -ENOTEMPTY);
	WANT(gfs_rmdir(fs, "/people/ann/b"), -ENOTDIR);
	WANT(gfs_unlink(fs, "/people/ann/a"), -EISDIR);
	WANT(gfs_unlink(fs, "/people/ann/b"), 0);
	WANT(gfs_chmod(fs, "/people/ann/f", 0600), 0);
	WANT(gfs_chown(fs, "/people/ann/f", 0, (gid_t)-1, true), -EPERM);
	WANT(gfs_utimens(fs, "/people/ann/f", times, true), 0);
	WANT(gfs_truncate(fs, "/people/ann/f", 4), 0);
	WANT(gfs_stat(fs, "/people/ann/f", &st), 0);
	WANT(st.mode, S_IFREG | 0600);
	WANT(st.atime.tv_nsec, 2);
	WANT(st.size, 4);
	WANT(gfs_access(fs, "/people/ann/f", R_OK | W_OK), 0);
	WANT(gfs_access(fs, "/people/ann/f", X_OK), -EACCES);
	WANT(gfs_mknod(fs, "/people/ann/pipe", S_IFIFO | 0600, 0), 0);
	WANT(gfs_statfs(fs, &sfs), 0);
	WANT(sfs.name_max, 255);
}

static void directories(void)
{
	struct gfs_dirent entry;
	struct gfs_dir *dir;
	char path[64], want[16];

	WANT(gfs_mkdir(fs, "/many", 0755), 0);
	for (int i = 0; i < 1500; i++) {
		snprintf(path, sizeof(path), "/many/n%04d", i);
		put(fs, path, "");
	}
	WANT(gfs_opendir(other, "/many", &dir), 0);
	for (int i = 0; i < 1500; i++) {
		snprintf(want, sizeof(want), "n%04d", i);
		WANT(gfs_readdir(dir, &entry), 1);
		WANT(strcmp(entry.name, want), 0);
		WANT(entry.has_stat, 1);
		WANT(entry.st.size, 0);
	}
	WANT(gfs_readdir(dir, &entry), 0);
	WANT(gfs_seekdir(dir, "n1400"), 0);
	WANT(gfs_readdir(dir, &entry), 1);
	WANT(strcmp(entry.name, "n1401"), 0);
	gfs_closedir(dir);
	WANT(gfs_opendir(fs, "/people/ann/f", &dir), -ENOTDIR);
}

static void attributes(void)
{
	char buf[32];

	WANT(gfs_setxattr(fs, "/people/ann/f", "user.a", "one", 3, GFS_XATTR_CREATE, true), 0);
	WANT(gfs_setxattr(fs, "/people/ann/f", "user.a", "x", 1, GFS_XATTR_CREATE, true), -EEXIST);
	WANT(gfs_getxattr(fs, "/people/ann/f", "user.a", NULL, 0, true), 3);
	WANT(gfs_getxattr(fs, "/people/ann/f", "user.a", buf, 2, true), -ERANGE);
	WANT(gfs_listxattr(fs, "/people/ann/f", buf, sizeof(buf), true), 7);
	WANT(gfs_removexattr(fs, "/people/ann/f", "user.a", true), 0);
	WANT(gfs_getxattr(fs, "/people/ann/f", "user.a", buf, sizeof(buf), true), -ENODATA);
}

/* What one client does the other sees with its next call, whatever it had cached. */
static void two_clients(void)
{
	struct gfs_file *f, *g;
	struct gfs_stat st;

	WANT(gfs_stat(other, "/shared", &st), -ENOENT);
	put(fs, "/shared", "one");
	want_content(other, "/shared", "one");
	put(other, "/shared", "second");
	WANT(gfs_stat(fs, "/shared", &st), 0);
	WANT(st.size, 6);
	WANT(gfs_open(fs, "/shared", RW | GFS_O_APPEND, 0, &f), 0);
	WANT(gfs_open(other, "/shared", RW | GFS_O_APPEND, 0, &g), 0);
	WANT(gfs_write(f, "+f", 2), 2);
	WANT(gfs_fsync(f), 0);
	WANT(gfs_write(g, "+g", 2), 2);
	WANT(gfs_close(g), 0);
	WANT(gfs_close(f), 0);
	want_content(fs, "/shared", "second+f+g");
	WANT(gfs_unlink(fs, "/shared"), 0);
	WANT(gfs_stat(other, "/shared", &st), -ENOENT);
}

/* An open file, its unlinked name and what was held back live through a restart of metad. */
static void restart(void)
{
	struct gfs_file *f, *gone;
	struct gfs_stat st;
	char buf[16] = "";

	WANT(gfs_open(fs, "/r", RW | GFS_O_CREATE, 0644, &f), 0);
	WANT(gfs_open(fs, "/gone", RW | GFS_O_CREATE, 0644, &gone), 0);
	WANT(gfs_write(gone, "ghost", 5), 5);
	WANT(gfs_fsync(gone), 0);
	WANT(gfs_unlink(fs, "/gone"), 0);
	WANT(gfs_write(f, "before", 6), 6);
	WANT(gfs_fstat(f, &st), 0);
	WANT(gfs_write(f, "+held", 5), 5);
	restart_metad();
	WANT(gfs_write(f, "+after", 6), 6);
	WANT(gfs_close(f), 0);
	want_content(fs, "/r", "before+held+after");
	want_content(other, "/r", "before+held+after");
	WANT(gfs_pread(gone, buf, sizeof(buf), 0), 5);
	WANT(strcmp(buf, "ghost"), 0);
	WANT(gfs_close(gone), 0);
	WANT(gfs_stat(fs, "/gone", &st), -ENOENT);
}

static void limits(void)
{
	static char big[8193];
	struct gfs_file *f;

	WANT(gfs_open(fs, "/big", RW | GFS_O_CREATE, 0644, &f), 0);
	/* Larger files need a storage node, and there is none here. */
	WANT(gfs_write(f, big, sizeof(big)), -EHOSTUNREACH);
	WANT(gfs_write(f, big, 8192), 8192);
	WANT(gfs_write(f, big, 1), -EHOSTUNREACH);
	WANT(gfs_lseek(f, 0, SEEK_END), 8192);
	WANT(gfs_close(f), 0);
	WANT(gfs_open(fs, "/", GFS_O_READ, 0, &f), -EISDIR);
	WANT(gfs_open(fs, "/people", GFS_O_READ, 0, &f), -EISDIR);
}

int main(void)
{
	struct gfs_options uncached = {.cache_bytes = -1};

	WANT(gfs_connect(NULL, &fs), 0);
	WANT(gfs_connect(NULL, &other), 0);
	users();
	names();
	directories();
	attributes();
	two_clients();
	limits();
	restart();
	two_clients();
	WANT(gfs_disconnect(other), 0);
	WANT(gfs_disconnect(fs), 0);

	/* All of it again from the disk. */
	puts("kept");
	restart_metad();
	WANT(gfs_connect(&uncached, &fs), 0);
	WANT(gfs_connect(NULL, &other), 0);
	want_content(fs, "/r", "before+held+after");
	want_content(fs, "/people/ann/f", "hell");
	two_clients();
	WANT(gfs_disconnect(other), 0);
	WANT(gfs_disconnect(fs), 0);
	puts("done");
	return 0;
}
