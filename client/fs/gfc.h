/*
 * gfc.h - the client of metad by inodes: what libgfs' paths and gfsmount stand on.
 *
 * One struct gfc is one session with metad. It has a pool of connections (rpc_client), a cache of
 * names and attributes kept honest by metad's pushes (gfc_cache.h), a buffer of mutations that are
 * answered but not known to be on disk (gfc_replay.h), and a table of open files. When metad
 * comes back after a restart, the first connection made tells it what is open and sends again
 * what it lost, before any other call goes on (rules N4 to N6).
 *
 * Errors: negative errno; the text is gfc_error() of the thread.
 *
 * Deadlines: every call waits at most `meta_timeout` for metad, then -ETIMEDOUT. A mutation that
 * may have been done and could not be asked about is -ETIMEDOUT or -ENOTRECOVERABLE.
 *
 * Threads: all functions, from any thread. One background thread listens for pushes and renews
 * the lease; it exists only if there is a cache.
 */
#ifndef GFC_H
#define GFC_H

#include "common/gx_buf.h"
#include "common/gx_env.h"
#include "meta.pb-c.h"
#include "rpc/rpc_client.h"
#include "rpc/rpc_file_ticket.h"
#include <sys/stat.h>

struct gfc;

struct gfc_options {
	struct gx_env *env;
	struct rpc_endpoint metad;
	const char *identity;     /* copied */
	const unsigned char *key; /* copied: RPC_KEY_BYTES */
	const char *program;      /* copied */
	int64_t timeout_ns;       /* GX_FOREVER: a hard mount */
	unsigned connections_max;
	size_t cache_bytes; /* 0: no cache, no background thread */
};

/* Connects and opens a session. */
GX_MUST_CHECK int gfc_new(const struct gfc_options *options, struct gfc **ret_gfc);
/* As gfs_disconnect(): waits for the disk (N6), leaves, frees in any case. */
GX_MUST_CHECK int gfc_free(struct gfc *gfc);
struct gx_env *gfc_env(struct gfc *gfc);

/* One line about this thread's last failure; "" before the first. */
const char *gfc_error(void);
/* Sets it and evaluates to err; for the layers above. */
int gfc_fail(int err, const char *fmt, ...) GX_PRINTF(2, 3);

/* Names an inode to metad: its number and the right to use it (meta.proto). */
struct gfc_ref {
	uint64_t ino;
	uint64_t cap;
};
#define GFC_ROOT ((struct gfc_ref){1, 0})

struct gfc_attr {
	struct gfc_ref ref;
	uint32_t mode, nlink, uid, gid;
	uint32_t flags; /* GFC_ATTR_ */
	uint64_t size, rdev;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	uint64_t generation, version;
	uint64_t clock; /* gfd_getattr() of a file that others write, too: of its bytes; else 0 */
};
#define GFC_ATTR_INLINE 1u
#define GFC_ATTR_WRITING 2u
#define GFC_ATTR_ACL 4u         /* has an access list */
#define GFC_ATTR_DEFAULT_ACL 8u /* a directory: has a default one */

/* -- names: answered from the cache where it may be -------------------------------------------- */

GX_MUST_CHECK int gfc_lookup(struct gfc *gfc, struct gfc_ref parent, const char *name,
			     struct gfc_attr *ret_attr);
/*
 * The same for who only passes through: what the name stands for and its type (S_IFMT). Needs no
 * call where gfc_lookup() does, because a change of our own made the attributes old: making many
 * files in a directory would otherwise ask for the directory again each time.
 */
GX_MUST_CHECK int gfc_lookup_ref(struct gfc *gfc, struct gfc_ref parent, const char *name,
				 struct gfc_ref *ret_ref, uint32_t *ret_type);
GX_MUST_CHECK int gfc_getattr(struct gfc *gfc, struct gfc_ref ref, struct gfc_attr *ret_attr);
GX_MUST_CHECK int gfc_readlink(struct gfc *gfc, struct gfc_ref ref, char buf[GX_PATH_MAX]);

/* -- names: mutations -------------------------------------------------------------------------- */

/* mkdir, mknod and symlink by the type in mode. `target` NULL unless a symbolic link. */
GX_MUST_CHECK int gfc_make(struct gfc *gfc, struct gfc_ref parent, const char *name, uint32_t mode,
			   uint64_t rdev, const char *target, struct gfc_attr *ret_attr);
/*
 * The same with a umask, which takes bits from the mode unless the directory has a default access
 * list: then that counts, and only metad knows it.
 */
GX_MUST_CHECK int gfc_make_masked(struct gfc *gfc, struct gfc_ref parent, const char *name,
				  uint32_t mode, uint32_t umask, uint64_t rdev, const char *target,
				  struct gfc_attr *ret_attr);
GX_MUST_CHECK int gfc_link(struct gfc *gfc, struct gfc_ref ref, struct gfc_ref parent,
			   const char *name, struct gfc_attr *ret_attr);
GX_MUST_CHECK int gfc_unlink(struct gfc *gfc, struct gfc_ref parent, const char *name,
			     bool directory);
GX_MUST_CHECK int gfc_rename(struct gfc *gfc, struct gfc_ref from_parent, const char *from_name,
			     struct gfc_ref to_parent, const char *to_name, unsigned flags);

/* Which fields of a change count; the bits of SetattrRequest. */
struct gfc_change {
	uint32_t mask;
	uint32_t mode, uid, gid;
	uint64_t size;
	int64_t atime_ns, mtime_ns;
};
#define GFC_SET_MODE 1u
#define GFC_SET_UID 2u
#define GFC_SET_GID 4u
#define GFC_SET_SIZE 8u
#define GFC_SET_ATIME 16u
#define GFC_SET_MTIME 32u
#define GFC_SET_ATIME_NOW 64u
#define GFC_SET_MTIME_NOW 128u
struct gfc_open;
/* `open` may be NULL: by the rights of the inode. */
GX_MUST_CHECK int gfc_setattr(struct gfc *gfc, struct gfc_ref ref, struct gfc_open *open,
			      const struct gfc_change *change, struct gfc_attr *ret_attr);

GX_MUST_CHECK int gfc_getxattr(struct gfc *gfc, struct gfc_ref ref, const char *name,
			       struct gx_buf *value);
/*
 * Bits of SetxattrRequest: 1 create, 2 replace, 4 remove. Access control lists are
 * system.posix_acl_access and system.posix_acl_default, in Linux's form with ids of the grid.
 */
GX_MUST_CHECK int gfc_setxattr(struct gfc *gfc, struct gfc_ref ref, const char *name,
			       const void *value, size_t bytes, unsigned flags);
/* Names with a NUL behind each. */
GX_MUST_CHECK int gfc_listxattr(struct gfc *gfc, struct gfc_ref ref, struct gx_buf *names);

/* -- directories
 * ----------------------------------------------------------------------------------- */

struct gfc_dirent {
	const char *name;
	uint64_t ino;
	uint32_t type;
	bool has_attr;
	struct gfc_attr attr;
};
typedef int (*gfc_dirent_fn)(void *arg, const struct gfc_dirent *entry);
/*
 * One page behind the name `after` ("" from the start): fn for each entry; non-zero stops and is
 * returned. 1: the end was reached, 0: go on from what `after` (GFS_NAME_MAX + 1 bytes) now holds.
 */
GX_MUST_CHECK int gfc_readdir(struct gfc *gfc, struct gfc_ref dir, char *after, bool plus,
			      gfc_dirent_fn fn, void *arg);

/* -- open files
 * -------------------------------------------------------------------------------------- */

#define GFC_OPEN_READ 1u
#define GFC_OPEN_WRITE 2u
#define GFC_OPEN_CREATE 4u
#define GFC_OPEN_EXCL 8u
#define GFC_OPEN_TRUNC 16u

/* By name in a directory, or (name NULL) `ref` itself. */
GX_MUST_CHECK int gfc_open(struct gfc *gfc, struct gfc_ref ref, const char *name, unsigned flags,
			   uint32_t mode, struct gfc_attr *ret_attr, struct gfc_open **ret_open);
/* The same with a umask, as gfc_make_masked(). */
GX_MUST_CHECK int gfc_open_masked(struct gfc *gfc, struct gfc_ref ref, const char *name,
				  unsigned flags, uint32_t mode, uint32_t umask,
				  struct gfc_attr *ret_attr, struct gfc_open **ret_open);
struct gfc_ref gfc_open_ref(const struct gfc_open *open);
GX_MUST_CHECK int gfc_open_getattr(struct gfc *gfc, struct gfc_open *open,
				   struct gfc_attr *ret_attr);
/* Inline content. Bytes read; ret_attr may be NULL. */
GX_MUST_CHECK ssize_t gfc_read(struct gfc *gfc, struct gfc_open *open, void *buf, size_t bytes,
			       uint64_t offset, struct gfc_attr *ret_attr);
struct gfc_write {
	const void *data;
	size_t bytes;
	uint64_t offset;
	bool append;   /* offset does not count */
	bool truncate; /* the file ends behind these bytes */
	bool within;   /* what is behind its end is not written */
	bool close;    /* and close: `open` is gone in any case but -EFBIG */
};
/* -EFBIG: the bytes are not, or would not be, inline any more; nothing was done. */
GX_MUST_CHECK int gfc_write(struct gfc *gfc, struct gfc_open *open, const struct gfc_write *write,
			    uint64_t *ret_offset, struct gfc_attr *ret_attr);
/* Frees it in any case. An error of a lost session, or of a replay (N4). */
GX_MUST_CHECK int gfc_close(struct gfc *gfc, struct gfc_open *open);
/* All mutations of this session are on disk. -EIO: one was lost, gfc_error() says which. */
GX_MUST_CHECK int gfc_sync(struct gfc *gfc);
/* How often that has been asked for. */
uint64_t gfc_syncs(struct gfc *gfc);

/* O_TRUNC was not done, because other sessions use the object: through the primary (gfd.h). */
bool gfc_open_truncate_later(const struct gfc_open *open);
uint32_t gfc_open_flags(const struct gfc_open *open); /* GFC_OPEN_READ, GFC_OPEN_WRITE */

/* -- bytes that are not inline: what metad says about them (gfd.h uses it) ------------------------
 */

#define GFC_PLACES_MAX 32u
#define GFC_ADDRESSES_MAX 8u

struct gfc_place {
	char node[GX_NAME_USER_MAX + 1];
	char host[GX_NAME_USER_MAX + 1];
	bool up;
	uint64_t generation;
	uint32_t flags; /* as Place.flags */
	uint8_t ticket[RPC_FILE_TICKET_BYTES];
	size_t ticket_bytes;
};
#define GFC_PLACE_CACHE 1u
#define GFC_PLACE_STABLE 2u
#define GFC_PLACE_DAMAGED 4u
#define GFC_PLACE_PRIMARY 8u
#define GFC_PLACE_STALE 16u /* of this generation, but not to be believed (rule B3) */

enum gfc_mode { GFC_MODE_NONE, GFC_MODE_READ, GFC_MODE_EXCLUSIVE, GFC_MODE_SHARED };
struct gfc_lease {
	struct gfc_attr attr;
	enum gfc_mode mode; /* NONE: inline */
	uint64_t generation;
	bool growing;
	uint64_t size_max;
	uint32_t report_ms;
	size_t place_count;
	struct gfc_place places[GFC_PLACES_MAX];
};
struct gfc_wish {
	bool write;
	const char *host;         /* label of ours; NULL: none */
	const char *const *avoid; /* nodes that cannot be reached … */
	size_t avoid_count;
	uint64_t unreached; /* … and the growing generation that we have at one of them; 0: none */
};
/* -EHOSTUNREACH: no copy is up now. */
GX_MUST_CHECK int gfc_lease(struct gfc *gfc, struct gfc_open *open, const struct gfc_wish *wish,
			    struct gfc_lease *ret_lease);

struct gfc_report {
	uint64_t generation;
	bool has_size;
	uint64_t size, clock;
	bool changed, grown, synced;
	unsigned mode;  /* 0 it stays, 1 given back, 3 shared */
	uint64_t asked; /* the newest question of metad's that this answers */
};
/* A mutation. -ESTALE: the lease was lost. */
GX_MUST_CHECK int gfc_report(struct gfc *gfc, struct gfc_open *open,
			     const struct gfc_report *report, struct gfc_attr *ret_attr);

struct gfc_attach {
	char identity[GX_IDENTITY_MAX];
	unsigned char key[RPC_KEY_BYTES];
	uint32_t lifetime_ms;
	char host[GX_NAME_USER_MAX + 1];
	size_t address_count;
	char addresses[GFC_ADDRESSES_MAX][GX_ADDR_TEXT_MAX];
};
GX_MUST_CHECK int gfc_attach(struct gfc *gfc, const char *node, struct gfc_attach *ret_attach);

/* Where the copies are: how many, at most max. */
GX_MUST_CHECK ssize_t gfc_where(struct gfc *gfc, struct gfc_ref ref, bool wait,
				struct gfc_attr *ret_attr, struct gfc_place *ret_places, size_t max,
				unsigned *ret_wanted);
/* Asks for a cache copy on this host. */
GX_MUST_CHECK int gfc_ask_copy(struct gfc *gfc, struct gfc_ref ref, const char *host);

/* May what metad has leased to this session be used without asking, by the clock (rule N11)? */
bool gfc_trusted(struct gfc *gfc);
struct gfd;
/* Who is told of recalls and of caches that end; NULL: nobody, and nobody is being told any more.
 */
void gfc_set_data(struct gfc *gfc, struct gfd *data);

/* -- locks
 * ------------------------------------------------------------------------------------------- */

#define GFC_LOCK_POSIX 1u
#define GFC_LOCK_FLOCK 2u
#define GFC_LOCK_NONE 0u
#define GFC_LOCK_READ 1u
#define GFC_LOCK_WRITE 2u
#define GFC_LOCK_END                                                                               \
	((uint64_t)INT64_MAX) /* the last byte there can be: to the end of the file                \
			       */

struct gfc_lock {
	uint64_t owner;      /* the caller's choice: a process, an open file */
	unsigned kind, type; /* GFC_LOCK_ */
	uint64_t start, end; /* both belong to it; of a flock 0 and GFC_LOCK_END */
	uint32_t pid;        /* shown to who is refused */
	bool own;            /* out: of this client, else the pid is of another machine */
};
/* A request that may be called off by another thread; starts as zeros. */
struct gfc_lock_cancel {
	bool cancelled;
};
/*
 * Sets, changes or (NONE) ends what the owner has in this range. deadline_ns 0: a try; else waits,
 * in the order of asking, without keeping a connection busy.
 *
 * -EAGAIN: somebody is in the way (a try); -ETIMEDOUT, -EINTR (cancelled), -EDEADLK: it was not
 * set, and what the owner had before is unchanged, except a flock of another type (flock(2)).
 * -EBADF: the file is not open for that. -ENOLCK: too many. -ESTALE: the open file was lost, in a
 * restart or because this client was silent and another wanted the lock; whatever it was locked
 * for must not be believed any more. If metad could not be asked (also -ETIMEDOUT), the owner keeps
 * what both the old and the new state have.
 *
 * Locks end with gfc_close() of the open file they were set by, at the latest; a process that
 * closes a file wants gfc_unlock_owner() even before that.
 */
GX_MUST_CHECK int gfc_lock(struct gfc *gfc, struct gfc_open *open, const struct gfc_lock *lock,
			   int64_t deadline_ns, struct gfc_lock_cancel *cancel);
/* May be called from anywhere, at any time while gfc_lock() runs; does not wait for anybody. */
void gfc_lock_cancel(struct gfc *gfc, struct gfc_lock_cancel *cancel);
/* Who is in the way? lock->type is NONE if nobody is; else *lock tells about one. */
GX_MUST_CHECK int gfc_getlock(struct gfc *gfc, struct gfc_open *open, struct gfc_lock *lock);
/*
 * Ends all that this owner has of this kind on the file. Costs nothing if it has nothing. Does not
 * wait for a metad that is away: it will hear of it.
 */
GX_MUST_CHECK int gfc_unlock_owner(struct gfc *gfc, struct gfc_open *open, unsigned kind,
				   uint64_t owner);

/* -- a cache above this one: a kernel's ---------------------------------------------------------
 */

/*
 * For how long, in ns, the layer above may keep what a call has just told it without asking again:
 * never longer than this client itself may trust its cache (rule N11), so that the layer above is
 * right even if this process is stopped. 0: not at all. ino 0: that there is no such name.
 */
int64_t gfc_keep_name(struct gfc *gfc, struct gfc_ref dir, const char *name, uint64_t ino);
int64_t gfc_keep_attr(struct gfc *gfc, const struct gfc_attr *attr);

/*
 * Who is told what metad says must be forgotten, in the background thread and with no lock held:
 * before the acknowledgement and before a lease on an object is given up; it may take its time,
 * within reason. forget NULL: everything, at once; from any thread, with locks held, so it must
 * not wait or call.
 */
typedef void (*gfc_told_fn)(void *arg, const PbMeta__ForgetRequest *forget);
/* NULL: nobody, and nobody is being told any more. */
void gfc_set_told(struct gfc *gfc, gfc_told_fn fn, void *arg);

/* -- the rest -------------------------------------------------------------------------------------
 */

GX_MUST_CHECK int gfc_statfs(struct gfc *gfc, uint64_t *ret_inodes, uint64_t *ret_inline_bytes,
			     uint32_t *ret_name_max);
/* The session in use; changes when metad has lost it. */
uint64_t gfc_session(struct gfc *gfc);
/* For calls that are not worth a function here (Ids, Status): as rpc_client_call(). */
struct rpc_client *gfc_rpc(struct gfc *gfc);

struct gfc_stats {
	uint64_t calls;       /* to metad */
	uint64_t cache_hits;  /* lookups and getattrs that needed no call */
	uint64_t cache_count; /* entries */
	uint64_t replayed;    /* mutations sent again after a restart that had lost them */
	uint64_t resumed;     /* restarts of metad survived */
	uint64_t forgotten;   /* pushes obeyed */
	uint64_t unsynced;    /* mutations in the buffer */
	uint64_t locks;       /* ranges locked */
	uint64_t lock_waits;  /* requests that wait */
};
void gfc_stats(struct gfc *gfc, struct gfc_stats *ret_stats);

#endif
