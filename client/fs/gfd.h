/*
 * gfd.h - bytes of large files: the client of the fsds, by inodes.
 *
 * gfc.h is the client of metad; this is the other half. A struct gfd belongs to a gfc and has the
 * connections to storage nodes. A struct gfd_file is the content of one inode as this process sees
 * it, shared by all its opens of it: the lease, the places, what is written and not sent, what has
 * been read ahead, which blocks have been verified.
 *
 * Inline files: content up to GX_INLINE_MAX stays in metad. gfd_read() and gfd_write() work for
 * both and grow the file out of metad when a write needs it (rule N10), so who uses them need not
 * know.
 *
 * Writing: under an exclusive lease writes are collected to pieces of GFD_PIECE_BYTES and sent with
 * several in flight; an error comes from a later call, at the latest from gfd_sync() or the close,
 * once. What has been sent and is not on disk yet is kept (up to write_behind bytes) and sent again
 * if the node comes back from a power cut (its boot id differs, rule B3); what is no longer kept is
 * then -EIO. Under a shared lease every write is one call to the primary.
 *
 * Reading: blocks are verified before they are handed out, each once per generation and file (rule
 * B8). A node on the same machine hands us a descriptor. Otherwise pieces come over the network,
 * ahead of a sequential reader with several in flight, from several copies if the file is large. A
 * node that fails, is silent for a second (rule B10) or hands out damaged blocks is left for the
 * next copy in the middle of a read.
 *
 * Waiting: a file without a reachable copy is -EHOSTUNREACH after data_timeout; damaged everywhere:
 * -EIO. Lost lease with unsynced bytes: -EIO at sync or close.
 *
 * Threads: all functions from any thread. One background thread per gfd (reports, recalls), started
 * with the first lease.
 */
#ifndef GFD_H
#define GFD_H

#include "client/fs/gfc.h"

#define GFD_PIECE_BYTES (1024u * 1024)
#define GFD_BLOCK_BYTES 4096u
#define GFD_APPEND_MAX (4u * 1024 * 1024) /* in one piece */

struct gfd;
struct gfd_file;

struct gfd_options {
	const char *host;        /* label of this host; NULL or "": by unix sockets */
	int64_t data_timeout_ns; /* GX_FOREVER: hard */
	unsigned connections;    /* per node, at most */
	size_t write_behind;     /* bytes of one file not known to be on disk that are kept */
	size_t read_ahead;       /* bytes in flight for a sequential reader */
	bool cache_copies;       /* reading a remote file asks for a cache copy here (rule B11) */
};
#define GFD_OPTIONS_INIT                                                                           \
	{                                                                                          \
		.data_timeout_ns = 10 * GX_NSEC_PER_SEC, .connections = 4,                         \
		.write_behind = 64u * 1024 * 1024, .read_ahead = 8u * 1024 * 1024                  \
	}

GX_MUST_CHECK int gfd_new(struct gfc *gfc, const struct gfd_options *options, struct gfd **ret_gfd);
/* No file may be open. */
void gfd_free(struct gfd *gfd);

/*
 * The content behind an open file. Needs no call. `open` must stay open until gfd_close(); attr is
 * what the opening said.
 */
GX_MUST_CHECK int gfd_open(struct gfd *gfd, struct gfc_open *open, const struct gfc_attr *attr,
			   struct gfd_file **ret_file);
/* Sends what is held, reports, gives the lease back with the last opener. An error once. */
GX_MUST_CHECK int gfd_close(struct gfd_file *file, struct gfc_open *open);

/* Bytes read, 0 at the end. */
GX_MUST_CHECK ssize_t gfd_read(struct gfd_file *file, struct gfc_open *open, void *buf,
			       size_t bytes, uint64_t offset);
/* append: at the end of the file, in one piece, at most GFD_APPEND_MAX; *ret_offset (may be NULL)
 * tells where it went. */
GX_MUST_CHECK int gfd_write(struct gfd_file *file, struct gfc_open *open, const void *buf,
			    size_t bytes, uint64_t offset, bool append, uint64_t *ret_offset);
/*
 * The same with bytes of a local file, which are not copied: it must be left as it is, and stay
 * open, until gfd_close(). -EOPNOTSUPP: not possible, nothing has happened. Whole pieces only.
 */
GX_MUST_CHECK int gfd_write_file(struct gfd_file *file, struct gfc_open *open, int fd,
				 uint64_t from, size_t bytes, uint64_t offset);
GX_MUST_CHECK int gfd_truncate(struct gfd_file *file, struct gfc_open *open, uint64_t size);
/* Frees the bytes of a range; the size stays. */
GX_MUST_CHECK int gfd_punch(struct gfd_file *file, struct gfc_open *open, uint64_t offset,
			    uint64_t bytes);
/* Room on disk; grows the file unless keep_size. */
GX_MUST_CHECK int gfd_allocate(struct gfd_file *file, struct gfc_open *open, uint64_t offset,
			       uint64_t bytes, bool keep_size);
/* The next data (or hole) from offset on; -ENXIO. */
GX_MUST_CHECK int gfd_seek(struct gfd_file *file, struct gfc_open *open, uint64_t offset, bool hole,
			   uint64_t *ret_offset);
/* All that was written is at its node, and metad knows the size. */
GX_MUST_CHECK int gfd_flush(struct gfd_file *file, struct gfc_open *open);
/* The same, and on disk, at the node and at metad. */
GX_MUST_CHECK int gfd_sync(struct gfd_file *file, struct gfc_open *open);
/* Attributes with the size this process knows better while it writes; and gfc_attr.clock. */
GX_MUST_CHECK int gfd_getattr(struct gfd_file *file, struct gfc_open *open,
			      struct gfc_attr *ret_attr);
/* What any file of this process knows better about an inode; true if it changed *attr. */
bool gfd_correct_attr(struct gfd *gfd, struct gfc_attr *attr);
/* Flushes the file of this inode, if it is open and holds anything; ino 0: all. */
GX_MUST_CHECK int gfd_flush_ino(struct gfd *gfd, uint64_t ino);

/* -- for gfc -------------------------------------------------------------------------------------
 */

/* metad asks (Forget.what): 8 give up the lease, 16 report; `ask`: which. Returns at once. */
void gfd_asked(struct gfd *gfd, uint64_t ino, unsigned what, uint64_t ask);
/* Cached content of this inode (0: all) is not to be trusted any more. */
void gfd_forget(struct gfd *gfd, uint64_t ino);
/*
 * The lease this session has on an inode, for Resume: LeaseReply.mode, 0 none; and of which
 * generation (may be NULL).
 */
unsigned gfd_lease_of(struct gfd *gfd, uint64_t ino, bool *ret_write, uint64_t *ret_generation);

/* -- copies ---------------------------------------------------------------------------------------
 */

struct gfd_place {
	char node[GX_NAME_USER_MAX + 1];
	char host[GX_NAME_USER_MAX + 1];
	bool up, current, cache, stable, damaged, primary;
	uint64_t generation;
};
/* Where the copies are; count, at most max. `wait`: until the wanted number is there. */
GX_MUST_CHECK ssize_t gfd_where(struct gfd *gfd, struct gfc_ref ref, bool wait,
				struct gfd_place *ret_places, size_t max, unsigned *ret_wanted);

struct gfd_stats {
	uint64_t read_local, read_remote; /* bytes */
	uint64_t written;
	uint64_t verified;  /* blocks */
	uint64_t damaged;   /* blocks that did not fit and were asked for again */
	uint64_t failovers; /* reads that went on at another node */
	uint64_t resent;    /* bytes sent again after a power cut */
};
void gfd_stats(struct gfd *gfd, struct gfd_stats *ret_stats);

#endif
