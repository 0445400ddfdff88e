/*
 * gfs.h - the grid filesystem from C: libgfs.
 *
 *	#include <gfs.h>
 *	cc prog.c $(pkg-config --cflags --libs gfs)
 *
 *	struct gfs *fs;
 *	struct gfs_file *f;
 *
 *	if (gfs_connect(NULL, &fs) < 0)
 *		errx(1, "%s", gfs_error());
 *	gfs_open(fs, "/people/alice/result", GFS_O_WRITE | GFS_O_CREATE, 0644, &f);
 *	gfs_write(f, data, bytes);
 *	gfs_close(f);
 *	gfs_disconnect(fs);
 *
 * Results: functions return 0 or a count, or a negative errno; the text behind
 * the last failure of the calling thread is gfs_error(). Names and meanings
 * are those of POSIX; what differs is said here.
 *
 * Paths: "/a/b" or "gfs:/a/b". There is no working directory: a path without
 * a leading '/' is taken from the root. At most 4095 bytes, names at most 255.
 *
 * Threads: every function may be called by any thread at any time, except that
 * nobody may use a gfs, gfs_file or gfs_dir while or after it is closed. A
 * gfs_file has one position; gfs_pread() and gfs_pwrite() do not touch it.
 * After fork() a child connects anew.
 *
 * What is on disk when: a change is safe against a crash of metad as soon as
 * the function has returned, and against a power cut of metad's host as long
 * as this process lives (it sends again what was lost). gfs_fsync(),
 * gfs_sync() and gfs_disconnect() return when it is on disk whatever happens.
 *
 * The bytes of larger files (more than 8 KiB) are at storage nodes. After
 * gfs_fsync() and gfs_sync() those of open files are on disk there. A file that
 * is closed without is safe against a crash of the storage daemon at once, and
 * on disk a few seconds later; if it has several copies, the others are made
 * after the close, see gfs_wait_copies().
 *
 * If metad is away, calls wait for it: up to `meta_timeout`, then -ETIMEDOUT.
 * Open files survive its restart. -ENOTRECOVERABLE: the session is lost (it was away for
 * longer than metad keeps one), so whether the last change was made is unknown.
 *
 * If the storage nodes of a file are away, its reads and writes wait for them:
 * up to `data_timeout`, then -EHOSTUNREACH. -EIO: the bytes are damaged in every
 * copy, or were written and could not be kept.
 */
#ifndef GFS_H
#define GFS_H

#include "gfs_version.h"
#include <sched.h> /* struct timespec, in strict C99 as well */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GFS_PATH_MAX 4096 /* with its NUL */
#define GFS_NAME_MAX 255  /* without */

/* -- the connection ----------------------------------------------------------------------- */

struct gfs;

/* All zero: everything from the configuration. */
struct gfs_options {
	const char *config;      /* file; NULL: $GFS_CONFIG, ~/.gridstage/gfs.conf, the system's */
	const char *metad;       /* address; overrides the file: HOST:PORT, unix:/PATH, tls:… */
	const char *key_file;    /* overrides the file */
	const char *program;     /* for metad's log and `gfs status`; NULL: "libgfs/VERSION" */
	int64_t meta_timeout_ms; /* 0: as configured (30 s); -1: for ever */
	unsigned connections;    /* 0: as configured (4) */
	int64_t cache_bytes;     /* names and attributes kept; 0: as configured; -1: no cache */
	int64_t data_timeout_ms; /* 0: as configured (10 s); -1: for ever */
	const char *host;        /* label of this host; NULL: $GFS_HOST, or as configured */
	unsigned data_connections; /* to each storage node; 0: as configured (4) */
	uint64_t write_behind;     /* bytes of a file kept until on disk; 0: as configured */
	int64_t read_ahead;        /* bytes; 0: as configured (8 MiB); -1: none */
	int cache_copies;          /* 1: yes; -1: no; 0: as configured (no) */
};

/* Connects (options may be NULL). -EKEYREJECTED, -ECONNREFUSED, -ENOENT (no configuration) … */
int gfs_connect(const struct gfs_options *options, struct gfs **ret_fs);
/*
 * Closes and frees files that are still open, waits until everything this process did is on disk,
 * ends the session and frees fs in any case. An error says what may be lost. NULL is fine.
 * Directories are to be closed before.
 */
int gfs_disconnect(struct gfs *fs);

/* This thread's last failure: "PATH: WHAT", one line, never NULL, valid until its next call. */
const char *gfs_error(void);

/*
 * All that this process did is on disk, also what open files still held in memory. -EIO: something
 * could not be kept, see gfs_error().
 */
int gfs_sync(struct gfs *fs);

/* -- names ------------------------------------------------------------------------------------ */

struct gfs_stat {
	uint64_t ino;
	uint32_t mode; /* S_IFREG … and permissions */
	uint32_t nlink;
	uint32_t uid, gid; /* of the grid: gfs_user_name() */
	uint64_t size;
	uint64_t rdev;
	struct timespec atime, mtime, ctime, btime; /* metad's clock */
	uint64_t generation;                        /* of the content */
	uint64_t version;                           /* goes up with every change of the inode */
};

int gfs_stat(struct gfs *fs, const char *path, struct gfs_stat *ret_st);
int gfs_lstat(struct gfs *fs, const char *path, struct gfs_stat *ret_st);

int gfs_mkdir(struct gfs *fs, const char *path, mode_t mode);
/* With all that is missing on the way, in that mode; what exists as a directory is fine. */
int gfs_mkdir_all(struct gfs *fs, const char *path, mode_t mode);
/* Files, pipes, sockets, and (for grid root) device nodes. */
int gfs_mknod(struct gfs *fs, const char *path, mode_t mode, dev_t dev);
int gfs_symlink(struct gfs *fs, const char *target, const char *path);
/* Bytes of the target, cut to `bytes`, not terminated. -EINVAL: not a link. */
ssize_t gfs_readlink(struct gfs *fs, const char *path, char *buf, size_t bytes);
/* A symbolic link at the end of `from` is not followed. */
int gfs_link(struct gfs *fs, const char *from, const char *to);
int gfs_unlink(struct gfs *fs, const char *path);
int gfs_rmdir(struct gfs *fs, const char *path);

#define GFS_RENAME_NOREPLACE 1u
#define GFS_RENAME_EXCHANGE 2u
int gfs_rename(struct gfs *fs, const char *from, const char *to, unsigned flags);

int gfs_chmod(struct gfs *fs, const char *path, mode_t mode);
/* `follow` false, here and below: of a symbolic link itself. (uid_t)-1, (gid_t)-1: leave it. */
int gfs_chown(struct gfs *fs, const char *path, uid_t uid, gid_t gid, bool follow);
/* UTIME_NOW and UTIME_OMIT as in utimensat(); times NULL: both now. */
int gfs_utimens(struct gfs *fs, const char *path, const struct timespec times[2], bool follow);
/* Of a large file this opens it, so the right to write is needed. */
int gfs_truncate(struct gfs *fs, const char *path, uint64_t size);
/* R_OK, W_OK, X_OK, F_OK, for the authenticated user. */
int gfs_access(struct gfs *fs, const char *path, int mode);

/* -- directories ------------------------------------------------------------------------------ */

struct gfs_dir;

struct gfs_dirent {
	const char *name; /* valid until the next call on this directory */
	uint64_t ino;
	uint32_t type;      /* S_IFMT bits */
	bool has_stat;      /* false: the directory may be read but not searched */
	struct gfs_stat st; /* of the entry itself, links are not followed */
};

int gfs_opendir(struct gfs *fs, const char *path, struct gfs_dir **ret_dir);
/* 1 and the next entry, in the order of the names' bytes, without "." and ".."; 0 at the end. */
int gfs_readdir(struct gfs_dir *dir, struct gfs_dirent *ret_entry);
/* From the beginning; or behind `after` if it is not NULL, whether that name exists or not. */
int gfs_seekdir(struct gfs_dir *dir, const char *after);
void gfs_closedir(struct gfs_dir *dir);

/* -- files ------------------------------------------------------------------------------------ */

struct gfs_file;

#define GFS_O_READ 1u
#define GFS_O_WRITE 2u
#define GFS_O_CREATE 4u
#define GFS_O_EXCL 8u
#define GFS_O_TRUNC 16u
#define GFS_O_APPEND 32u
#define GFS_O_SYNC 64u      /* every write is on disk when it returns */
#define GFS_O_NOFOLLOW 128u /* a symbolic link at the end is -ELOOP */

/*
 * `mode` only matters when a file is made; no umask is applied. GFS_O_READ or GFS_O_WRITE or both
 * must be there. A directory is -EISDIR: see gfs_opendir().
 */
int gfs_open(struct gfs *fs, const char *path, unsigned flags, mode_t mode,
	     struct gfs_file **ret_file);
/*
 * Writes may be kept in memory until gfs_close() or gfs_fsync(), as long as no other client has the
 * file open; others see them then. Calls of this process see them at once. The error of such a
 * write comes from whoever sends it, at the latest from the next gfs_fsync() or gfs_close(). Frees
 * the file in any case; NULL is fine.
 */
int gfs_close(struct gfs_file *file);

ssize_t gfs_read(struct gfs_file *file, void *buf, size_t bytes);
ssize_t gfs_write(struct gfs_file *file, const void *buf, size_t bytes);
ssize_t gfs_pread(struct gfs_file *file, void *buf, size_t bytes, uint64_t offset);
/* Writes at `offset` even with GFS_O_APPEND. */
ssize_t gfs_pwrite(struct gfs_file *file, const void *buf, size_t bytes, uint64_t offset);
/*
 * SEEK_SET, SEEK_CUR, SEEK_END, and SEEK_DATA and SEEK_HOLE (-ENXIO: nothing behind offset); the
 * new position.
 */
int64_t gfs_lseek(struct gfs_file *file, int64_t offset, int whence);
int gfs_ftruncate(struct gfs_file *file, uint64_t size);
/* Frees a range, which reads as zeros then; the size stays. */
int gfs_punch(struct gfs_file *file, uint64_t offset, uint64_t bytes);
/* Room on disk for a range; the file grows if it must, unless keep_size. */
int gfs_allocate(struct gfs_file *file, uint64_t offset, uint64_t bytes, bool keep_size);
int gfs_fstat(struct gfs_file *file, struct gfs_stat *ret_st);
int gfs_fsync(struct gfs_file *file);

/* -- locks ------------------------------------------------------------------------------------ */

/*
 * Locks belong to the open file, as Linux's F_OFD_SETLK and flock() do, and end with gfs_close().
 * They are advisory, and hold between all clients of the grid. Ranges exclude ranges and flocks
 * exclude flocks; the two do not see each other. Whatever this file wrote before it lets go, or
 * exchanges a lock for a weaker one, is seen by who gets the lock next.
 *
 * wait_ms: 0 tries, -1 waits for ever, otherwise so long; who asked first gets it first. -EAGAIN:
 * another has it; -ETIMEDOUT: still; -EDEADLK: all would wait for each other (ranges only);
 * -EBADF: not open for that; -ENOLCK: too many. -ESTALE: the open file was lost, because this
 * process could not be reached and another wanted the lock; it cannot be used any more.
 */
#define GFS_LOCK_NONE 0u
#define GFS_LOCK_READ 1u  /* with others who read; the file must be open for reading */
#define GFS_LOCK_WRITE 2u /* alone; for writing */

/* bytes 0: to the end, however long the file gets. A range locked again changes its type. */
int gfs_lock(struct gfs_file *file, unsigned type, uint64_t offset, uint64_t bytes,
	     int64_t wait_ms);
int gfs_unlock(struct gfs_file *file, uint64_t offset, uint64_t bytes);
struct gfs_lock_info {
	unsigned type; /* GFS_LOCK_NONE: nobody is in the way */
	uint64_t offset, bytes;
	pid_t pid; /* of who has it; 0: on another machine, or another client */
};
/* Who is in the way of gfs_lock()? */
int gfs_getlock(struct gfs_file *file, unsigned type, uint64_t offset, uint64_t bytes,
		struct gfs_lock_info *ret_info);
/* All of the file; GFS_LOCK_NONE lets go. A lock that cannot be changed at once is lost. */
int gfs_flock(struct gfs_file *file, unsigned type, int64_t wait_ms);

/* -- extended attributes ----------------------------------------------------------------------- */

#define GFS_XATTR_CREATE 1u
#define GFS_XATTR_REPLACE 2u

/*
 * user.NAME as everywhere; gfs.NAME are the grid's own. `follow` as above. As in POSIX, bytes 0
 * asks for the size, and -ERANGE means the buffer is too small.
 */
ssize_t gfs_getxattr(struct gfs *fs, const char *path, const char *name, void *value, size_t bytes,
		     bool follow);
int gfs_setxattr(struct gfs *fs, const char *path, const char *name, const void *value,
		 size_t bytes, unsigned flags, bool follow);
int gfs_removexattr(struct gfs *fs, const char *path, const char *name, bool follow);
/* Names one after the other, each with its NUL. */
ssize_t gfs_listxattr(struct gfs *fs, const char *path, char *list, size_t bytes, bool follow);

/* -- copies ------------------------------------------------------------------------------------ */

#define GFS_COPIES_MAX 64 /* that can be wanted of a file */

/* One node with a copy of a file's bytes. */
struct gfs_place {
	char node[65];
	char host[65];
	bool up;
	bool current; /* the newest content; else stale, kept until it is replaced */
	bool cache;   /* made for a reader on that host: does not count */
	bool stable;  /* on disk */
	bool damaged;
	bool primary; /* the file is being written, there */
	uint64_t generation;
};

/*
 * Where the bytes of a file are: how many places there are, of which at most `max` are told. 0: it
 * is small and lives in metad, or is empty. *ret_wanted (may be NULL): how many copies it shall
 * have. -EISDIR, -EINVAL: not a file.
 */
ssize_t gfs_where(struct gfs *fs, const char *path, struct gfs_place *ret_places, size_t max,
		  unsigned *ret_wanted);
/*
 * How many copies a file shall have, 1 to GFS_COPIES_MAX; of a directory: what is made in it from
 * now on. The same as the extended attribute gfs.ncopy.
 */
int gfs_set_copies(struct gfs *fs, const char *path, unsigned copies);
/* Until it has them; -1: however long it takes. -ETIMEDOUT. */
int gfs_wait_copies(struct gfs *fs, const char *path, int64_t timeout_ms);

/* -- the grid --------------------------------------------------------------------------------- */

struct gfs_statfs {
	uint64_t inodes;
	uint64_t inline_bytes; /* of files small enough to live in metad */
	uint32_t name_max;
	uint64_t capacity_bytes; /* of the storage nodes that are up */
	uint64_t free_bytes;
};
int gfs_statfs(struct gfs *fs, struct gfs_statfs *ret_st);

/*
 * Numbers of users and groups of the grid, and back. -ENOENT: there is none; -ERANGE: buf is too
 * small (65 bytes are enough). Names may be up to a minute old. ret_ pointers and whoami's buf may
 * be NULL.
 */
int gfs_user_id(struct gfs *fs, const char *name, uid_t *ret_uid, gid_t *ret_gid);
int gfs_group_id(struct gfs *fs, const char *name, gid_t *ret_gid);
int gfs_user_name(struct gfs *fs, uid_t uid, char *buf, size_t bytes);
int gfs_group_name(struct gfs *fs, gid_t gid, char *buf, size_t bytes);
/* Who metad says we are. */
int gfs_whoami(struct gfs *fs, uid_t *ret_uid, gid_t *ret_gid, char *buf, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
