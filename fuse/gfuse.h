/*
 * gfuse.h - gfsmount: the grid as an ordinary directory, on libfuse's low-level interface.
 *
 *	gfuse_main.c     command line, life of the process
 *	gfuse_conf.c     options
 *	gfuse_session.c  the connection to the kernel: what is negotiated, threads, the end
 *	gfuse_inode.c    which inodes the kernel knows, and our right to name them
 *	gfuse_ids.c      users and groups of the grid and of this machine (rule N16)
 *	gfuse_names.c    names and attributes
 *	gfuse_make.c     names that are made, moved and removed
 *	gfuse_dir.c      directories
 *	gfuse_file.c     open files
 *	gfuse_data.c     their bytes
 *	gfuse_lock.c     locks on them
 *	gfuse_xattr.c    extended attributes
 *	gfuse_notify.c   what the kernel must forget
 *
 * A handler runs in a thread of libfuse's, calls gfc.h (names) and gfd.h (bytes), which block, and
 * answers once. Node numbers of FUSE are inode numbers of the grid; the directory that is mounted
 * is 1 for the kernel, whatever it is in the grid.
 *
 * Honest caching. What the kernel keeps is what our own cache may keep: metad tells us of every
 * change of it by another client, and the change waits until we have told the kernel
 * (gfuse_notify.c). And it keeps it only as long as we could trust it (gfc_keep_name(), at most
 * 1.5 s; then it asks us, which costs little): if this process is stopped or cut off, so that
 * nobody can tell it anything, the kernel stops believing by its own clock (rule N11).
 *
 * Locks: the mutexes here guard tables and are held shortly; never while metad, a storage node
 * or the kernel is called.
 */
#ifndef GFUSE_H
#define GFUSE_H

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>

#include "client/fs/gfs_impl.h"
#include "common/gx_conf.h"
#include <limits.h>

#define GFUSE_IO_BYTES (1024u * 1024) /* one read or write of the kernel's, at most */
#define GFUSE_BUFFERS_MAX 64u         /* of that size, kept for their next use */
#define GFUSE_THREADS_MAX 64u         /* of libfuse's */

/* -- options ------------------------------------------------------------------------------------
 */

struct gfuse_conf {
	/* Rows of the table: -o KEY=VALUE. */
	char *config; /* gfs.conf */
	bool hard;
	bool soft;
	int64_t meta_timeout_ns, data_timeout_ns; /* 0: as configured */
	uint64_t cache_bytes;                     /* 0: as configured */
	uint64_t ncopy;                           /* 0: as the directory says */
	int64_t timeout_ns;                       /* how long the kernel keeps things, at most */
	bool names;                               /* map users and groups by name */
	bool writeback;
	bool noatime;
	uint64_t read_ahead_bytes; /* of the kernel; 0: its own default */
	char *pid_file;            /* NULL: none */
	/* The rest. */
	bool foreground, debug;
	bool read_only;
	bool no_permissions; /* the kernel shall not check */
	const char *source;  /* "gfs:/subdir", or NULL */
	const char *mountpoint;
	char absolute[PATH_MAX]; /* its text */
	struct gx_buf pass;      /* options for libfuse, comma separated */
};

extern const struct gx_conf_table gfuse_conf_table;

/*
 * 0: go on; 1: it was --help or the like, and is done; -EINVAL: wrong, a line is in `errors`. Fini
 * in any case.
 */
GX_MUST_CHECK int gfuse_conf_parse(struct gfuse_conf *conf, int argc, char **argv,
				   struct gx_buf *errors);
void gfuse_conf_fini(struct gfuse_conf *conf);

/* -- the mount ----------------------------------------------------------------------------------
 */

struct gfuse_inodes;
struct gfuse_ids;
struct gfuse_notify;
struct gfuse_locks;
struct gfuse_file;

struct gfuse {
	struct gx_env *env;
	const struct gfuse_conf *conf;
	struct gfs *fs; /* its gfc and gfd are used directly */
	struct gfc *gfc;
	struct gfd *gfd;
	struct gfc_ref root; /* what is mounted */
	uint32_t uid;        /* who we are in the grid */
	struct fuse_session *session;
	struct gfuse_inodes *inodes;
	struct gfuse_ids *ids;
	struct gfuse_notify *notify;
	struct gfuse_locks *locks;
	_Atomic uint64_t chmods; /* so often a mode may have got a set-id bit */
	bool kill_priv;          /* the kernel leaves removing set-id bits to us */

	struct gx_mutex lock;      /* all below */
	struct gfuse_file *files;  /* open */
	struct gfc_attr root_attr; /* as last seen, for when metad is away … */
	struct gfs_statfs statfs;  /* … and this */
	unsigned buffer_count;
	void *buffers[GFUSE_BUFFERS_MAX];
};

static inline struct gfuse *gfuse_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* Buffers of GFUSE_IO_BYTES; NULL: out of memory. */
void *gfuse_buffer_get(struct gfuse *g);
void gfuse_buffer_put(struct gfuse *g, void *buffer);

/* Our errno as the kernel takes it. */
int gfuse_errno(int r);
/* Answers with an error, or (r 0) that it went well. */
void gfuse_reply(fuse_req_t req, int r);

/* -- gfuse_session.c ----------------------------------------------------------------------------
 */

/* Mounts. One line on stderr if it fails. */
GX_MUST_CHECK int gfuse_session_open(struct gfuse *g);
/* Until it is unmounted or a signal comes. */
GX_MUST_CHECK int gfuse_session_run(struct gfuse *g);
void gfuse_session_close(struct gfuse *g);

extern const struct fuse_lowlevel_ops gfuse_ops;

/* -- gfuse_inode.c: inode to capability, by what the kernel knows -------------------------------
 */

GX_MUST_CHECK int gfuse_inodes_new(struct gx_env *env, struct gfuse_inodes **ret_inodes);
void gfuse_inodes_free(struct gfuse_inodes *inodes);
/* The kernel is about to know it once more. -ENOMEM. */
GX_MUST_CHECK int gfuse_inodes_add(struct gfuse_inodes *inodes, struct gfc_ref ref);
/* It knows it `count` times less. */
void gfuse_inodes_forget(struct gfuse_inodes *inodes, uint64_t ino, uint64_t count);
/* -ESTALE: the kernel should not know it. */
GX_MUST_CHECK int gfuse_inodes_find(struct gfuse_inodes *inodes, uint64_t ino,
				    struct gfc_ref *ret_ref);
size_t gfuse_inodes_count(struct gfuse_inodes *inodes);
/*
 * The kernel may have pages of it, which show the content marked so; evaluates to whether they were
 * marked the same before, and nobody has said gfuse_inodes_doubt() since: may they stay?
 */
bool gfuse_inodes_pages(struct gfuse_inodes *inodes, uint64_t ino, uint64_t mark);
/* Its pages are not to be believed at the next opening; true: there may be some. */
bool gfuse_inodes_doubt(struct gfuse_inodes *inodes, uint64_t ino);
/* The same for all; calls fn for those with pages, without a lock. */
void gfuse_inodes_doubt_all(struct gfuse_inodes *inodes, void (*fn)(void *arg, uint64_t ino),
			    void *arg);

/* What the kernel's number of an inode means. */
GX_MUST_CHECK int gfuse_ref(struct gfuse *g, fuse_ino_t ino, struct gfc_ref *ret_ref);
/* And back. */
fuse_ino_t gfuse_node(const struct gfuse *g, uint64_t ino);

/* -- gfuse_ids.c --------------------------------------------------------------------------------
 */

#define GFUSE_NOBODY 65534u

GX_MUST_CHECK int gfuse_ids_new(struct gfs *fs, bool by_name, struct gfuse_ids **ret_ids);
void gfuse_ids_free(struct gfuse_ids *ids);
/* A number of the grid as one of this machine; GFUSE_NOBODY if there is none. */
uint32_t gfuse_ids_local(struct gfuse_ids *ids, uint32_t number, bool group);
/* And back; -EINVAL: nobody in the grid. */
GX_MUST_CHECK int gfuse_ids_grid(struct gfuse_ids *ids, uint32_t number, bool group,
				 uint32_t *ret_number);

/* -- gfuse_names.c ------------------------------------------------------------------------------
 */

void gfuse_stat_of(struct gfuse *g, const struct gfc_attr *attr, struct stat *ret_st);
/* Seconds the kernel may keep it. */
double gfuse_keep_name(struct gfuse *g, struct gfc_ref dir, const char *name, uint64_t ino);
double gfuse_keep_attr(struct gfuse *g, const struct gfc_attr *attr);
/* What a name stands for, counted; a failed answer must be followed by gfuse_unentry(). */
GX_MUST_CHECK int gfuse_entry(struct gfuse *g, struct gfc_ref dir, const char *name,
			      struct gfc_attr *attr, struct fuse_entry_param *ret_entry);
void gfuse_unentry(struct gfuse *g, const struct fuse_entry_param *entry);
void gfuse_reply_entry(fuse_req_t req, struct gfc_ref dir, const char *name, struct gfc_attr *attr);

void gfuse_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void gfuse_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count);
void gfuse_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void gfuse_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void gfuse_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		   struct fuse_file_info *fi);
void gfuse_readlink(fuse_req_t req, fuse_ino_t ino);
void gfuse_access(fuse_req_t req, fuse_ino_t ino, int mask);
void gfuse_statfs(fuse_req_t req, fuse_ino_t ino);

/* -- gfuse_make.c -------------------------------------------------------------------------------
 */

/*
 * Whose is what the caller of this request makes, if that is not ourselves: to be set behind the
 * making. False: nothing is to be set.
 */
bool gfuse_owner(fuse_req_t req, struct gfc_ref dir, uint32_t mode, struct gfc_change *ret_change);

void gfuse_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void gfuse_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void gfuse_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void gfuse_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void gfuse_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void gfuse_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void gfuse_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		  const char *new_name, unsigned flags);

/* -- gfuse_dir.c --------------------------------------------------------------------------------
 */

void gfuse_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void gfuse_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		   struct fuse_file_info *fi);
void gfuse_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi);
void gfuse_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void gfuse_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* -- gfuse_file.c, gfuse_data.c -----------------------------------------------------------------
 */

struct gfuse_file {
	struct gfuse *g;
	struct gfuse_file *prev, *next; /* g->lock */
	struct gfc_open *open;
	struct gfd_file *content;
	uint64_t ino;
	bool writes;           /* opened for it */
	_Atomic bool written;  /* and since used for it */
	_Atomic bool was_read; /* for the access time */
	_Atomic uint64_t safe; /* g->chmods when the mode had no set-id bits; UINT64_MAX: look */
	struct gfc_attr attr;  /* as it was opened */
};

static inline struct gfuse_file *gfuse_file_of(const struct fuse_file_info *fi)
{
	return (struct gfuse_file *)(uintptr_t)fi->fh;
}

void gfuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void gfuse_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		  struct fuse_file_info *fi);
void gfuse_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void gfuse_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* Those that are still open at the end. */
GX_MUST_CHECK int gfuse_files_close(struct gfuse *g);
/* The size of an inode by number. */
GX_MUST_CHECK int gfuse_truncate(struct gfuse *g, struct gfc_ref ref, uint64_t size);

void gfuse_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		struct fuse_file_info *fi);
void gfuse_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
		 struct fuse_file_info *fi);
void gfuse_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void gfuse_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		     struct fuse_file_info *fi);
void gfuse_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
		 struct fuse_file_info *fi);
void gfuse_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			   struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			   struct fuse_file_info *fi_out, size_t len, int flags);

/* -- gfuse_lock.c -------------------------------------------------------------------------------
 */

GX_MUST_CHECK int gfuse_locks_new(struct gfuse *g, struct gfuse_locks **ret_locks);
/* No more requests come: who still waits is told that this is the end. */
void gfuse_locks_stop(struct gfuse_locks *locks);
void gfuse_locks_free(struct gfuse_locks *locks);

void gfuse_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *flock);
void gfuse_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *flock,
		 int sleep);
void gfuse_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op);

/* -- gfuse_xattr.c ------------------------------------------------------------------------------
 */

void gfuse_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void gfuse_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		    size_t size, int flags);
void gfuse_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void gfuse_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* -- gfuse_notify.c -----------------------------------------------------------------------------
 */

/*
 * One thread tells the kernel what to forget, because that may wait for a lock of the kernel's that
 * the process holds whose request a handler is at.
 */
GX_MUST_CHECK int gfuse_notify_new(struct gfuse *g, struct gfuse_notify **ret_notify);
/* The kernel is there: start. */
GX_MUST_CHECK int gfuse_notify_start(struct gfuse_notify *notify);
/* Nothing is told any more. */
void gfuse_notify_stop(struct gfuse_notify *notify);
void gfuse_notify_free(struct gfuse_notify *notify);
/*
 * Around every handler that works while the kernel holds a lock on this inode: a directory in which
 * names are looked for or changed, a file whose pages are read or written. Nobody waits for the
 * kernel to forget something there meanwhile.
 */
void gfuse_busy_begin(struct gfuse_notify *notify, uint64_t ino);
void gfuse_busy_end(struct gfuse_notify *notify, uint64_t ino);

#endif
