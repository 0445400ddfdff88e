/*
 * gfs_impl.h - what the files behind gfs.h share.
 *
 * The public functions are thin: they walk the path (gfs_path.h), call the client by inodes
 * (gfc.h for names, gfd.h for bytes) and put the path in front of what went wrong. State of our own
 * is small: the list of open files with the writes they hold back (gfs_file.c), and names of users
 * (gfs_grid.c).
 *
 * Locks: fs->lock before a file's lock, never the other way round.
 */
#ifndef GFS_IMPL_H
#define GFS_IMPL_H

/* What gfs.h declares leaves the library; everything else is compiled hidden. */
#pragma GCC visibility push(default)
#include "include/gfs.h"
#pragma GCC visibility pop

#include "client/fs/gfd.h"
#include <stdatomic.h>

#define GFS_IDS_CACHED 64u                /* names kept, of users and groups together */
#define GFS_IDS_NS (60 * GX_NSEC_PER_SEC) /* how long a name is believed */
#define GFS_IDS_NAME_MAX GX_NAME_USER_MAX /* bytes of such a name */
#define GFS_XATTR_VALUE_MAX (64u * 1024)  /* what metad allows */
#define GFS_XATTR_NAMES_MAX (64u * 1024)  /* all names of one inode, more than metad allows */

/* A number and its name, as metad told us. */
struct gfs_id {
	int64_t until_ns; /* believed until then; 0: nothing here */
	uint32_t number;
	bool group;
	bool none; /* nobody has this number */
	char name[GFS_IDS_NAME_MAX + 1];
};

struct gfs {
	struct gfc *gfc;
	struct gfd *gfd;
	struct gx_env *env;
	struct gx_mutex lock;
	struct gfs_file *files;            /* lock: open files */
	struct gfs_id ids[GFS_IDS_CACHED]; /* lock */
	atomic_uint holding;               /* files that hold writes back */
	atomic_uint large;                 /* files whose bytes are, or may be, at storage nodes */
	atomic_bool had_errors;            /* of a held write: now somebody may have to be told */
};

/* gfs_connect() behind its configuration; the simulation has none. */
GX_MUST_CHECK int gfs_connect_with(const struct gfc_options *gfc_options,
				   const struct gfd_options *gfd_options, struct gfs **ret_fs);

/* Evaluates to `result`; if it is negative, gfs_error() becomes "path: what". */
ssize_t gfs_result(ssize_t result, const char *path);
/*
 * The same for calls by path, where a directory that somebody removed while we were in it is
 * -ENOENT, as if we had come later.
 */
ssize_t gfs_path_result(ssize_t result, const char *path);

void gfs_stat_of(const struct gfc_attr *attr, struct gfs_stat *ret_st);

/*
 * Sends what files of this inode (0: all) hold back. An error is kept by the file it belongs to,
 * for its fsync or close; the first is returned too.
 */
GX_MUST_CHECK int gfs_files_flush(struct gfs *fs, uint64_t ino);
/* The same for all, and what storage nodes have of them is on disk. */
GX_MUST_CHECK int gfs_files_sync(struct gfs *fs);
/* Closes and frees all of them; the first error. */
GX_MUST_CHECK int gfs_files_close(struct gfs *fs);
/*
 * Writes whole mebibytes of a local file, which must be left as it is, and stay open, until the
 * gfs_file is closed. -EOPNOTSUPP: gfs_pwrite() must do it.
 */
GX_MUST_CHECK int gfs_pwrite_file(struct gfs_file *file, int fd, uint64_t from, size_t bytes,
				  uint64_t offset);
/* For gfs_lock.c: what the file holds back is sent, so that whoever gets a lock next sees it. */
GX_MUST_CHECK int gfs_file_settle(struct gfs_file *file);
void gfs_file_parts(struct gfs_file *file, struct gfs **ret_fs, struct gfc_open **ret_open,
		    const char **ret_path);
/* The size of a file whose bytes are not, or will not be, in metad. */
GX_MUST_CHECK int gfs_content_truncate(struct gfs *fs, struct gfc_ref ref, uint64_t size);

#endif
