/*
 * gfd_impl.h - what the files of the client of the fsds share.
 *
 *	gfd.c        life, the table of files, opening and closing
 *	gfd_node.c   connections to nodes
 *	gfd_lease.c  leases, reports, the background thread
 *	gfd_read.c   verified blocks from whoever has them
 *	gfd_ahead.c  pieces ahead of a sequential reader
 *	gfd_sums.c   checksums of a file that is read through a descriptor
 *	gfd_op.c     writes on their way, and kept until they are on disk
 *	gfd_write.c  what changes a file, and growing out of metad
 *	gfd_sync.c   that it is on disk, here and there
 *
 * Sections: whatever uses a file does so between gfd_begin() and gfd_end(); who reads shares the
 * file, who changes it or its lease has it alone. Calls are made inside a section and without any
 * lock. When metad asks for something (file->asked) newcomers wait until the background thread has
 * had its turn.
 *
 * One exception, or two clients that ask for leases would wait for each other: while somebody asks
 * metad for a lease (file->asking) and nothing is held back, the background thread gives up the old
 * one without a section.
 *
 * Locks: gfc's data_lock, gfd->lock, file->lock, in this order, each held shortly.
 */
#ifndef GFD_IMPL_H
#define GFD_IMPL_H

#include "client/fs/gfd.h"
#include "common/gx_hash.h"
#include "common/gx_sum.h"
#include "data.pb-c.h"
#include <stdatomic.h>

#define GFD_DIRTY_MAX 16u   /* pieces held back */
#define GFD_FLIGHT_MAX 8u   /* writes in flight */
#define GFD_NODES_MAX 4096u /* nodes known */
#define GFD_POOL_MAX 32u    /* buffers of a piece that wait for their next use */
#define GFD_SUSPECT_NS (5 * GX_NSEC_PER_SEC)
#define GFD_SILENT_NS GX_NSEC_PER_SEC
#define GFD_STRIPE_MIN (64u * 1024 * 1024)

/* -- nodes ------------------------------------------------------------------------------------- */

/*
 * A way to a node: one rpc_client. There is never more than one in use per node, since a node
 * knows mutations by their number in our session.
 */
struct gfd_link {
	struct rpc_client *client;
	char address[GX_ADDR_TEXT_MAX];
	bool near;        /* by a unix socket: hands out descriptors */
	uint64_t session; /* with metad: another one needs another ticket */
	int64_t renew_ns; /* a new ticket is due */
	unsigned refs;    /* gfd->lock */
};

struct gfd_node {
	struct gfd_node *next;
	char name[GX_NAME_USER_MAX + 1];
	/* gfd->lock: */
	struct gfd_link *link; /* NULL: none */
	bool attaching;        /* somebody makes one */
	bool doubted;          /* it may have another address now */
	int64_t suspect_ns;    /* avoided until then */
};

struct gfd {
	struct gfc *gfc;
	struct gx_env *env;
	struct gfd_options options;
	char host[GX_NAME_USER_MAX + 1];

	struct gx_mutex lock;    /* all below */
	struct gx_cond changed;  /* links */
	struct gx_cond wake;     /* the background thread */
	struct gfd_file *files;  /* by inode */
	struct gfd_file *active; /* what the background thread looks after */
	struct gfd_node *nodes;
	bool has_thread, stopping;
	struct gx_thread thread;
	unsigned pool_count;
	uint8_t *pool[GFD_POOL_MAX];

	_Atomic uint64_t read_local, read_remote, written, verified, damaged, failovers, resent;
};

/* A connection to the node, to be given back. May call metad. */
GX_MUST_CHECK int gfd_link_get(struct gfd *gfd, const char *node, struct gfd_link **ret_link);
void gfd_link_put(struct gfd *gfd, struct gfd_link *link);
bool gfd_link_stale(struct gfd *gfd, const struct gfd_link *link);
/* It did not answer: others first for a while. */
void gfd_suspect(struct gfd *gfd, const char *node);
void gfd_trust_node(struct gfd *gfd, const char *node);
bool gfd_is_suspect(struct gfd *gfd, const char *node);
size_t gfd_suspects(struct gfd *gfd, const char **ret_names, size_t max);
void gfd_nodes_free(struct gfd *gfd);
/* The node could not be reached, or did not answer; another may. */
bool gfd_is_unreachable(int err);
/* The node does not accept our ticket: its time is over, or it has another generation. */
bool gfd_is_refused(int err);

/* Buffers of GFD_PIECE_BYTES. */
uint8_t *gfd_buffer_get(struct gfd *gfd);
void gfd_buffer_put(struct gfd *gfd, uint8_t *buffer);

/* -- files ------------------------------------------------------------------------------------- */

struct gfd_opened {
	struct gfd_opened *next;
	struct gfc_open *open;
};

struct gfd_place_state {
	struct gfc_place place;
	bool bad; /* damaged or stale, for this file */
};

enum gfd_op_kind { GFD_OP_WRITE, GFD_OP_TRUNCATE, GFD_OP_ROOM };

/* A change of the object, on its way or kept. */
struct gfd_op {
	struct gfd_op *prev, *next;
	enum gfd_op_kind kind;
	uint64_t offset, bytes; /* truncate: the size is in offset */
	uint32_t room;          /* DataRoom's kind */
	bool append;
	bool base;            /* write: has the bytes that were metad's */
	uint8_t *data;        /* write: of `capacity`; GFD_PIECE_BYTES: from the pool */
	const void *borrowed; /* write: instead, the caller's */
	bool from_file;       /* write: instead, a part of a local file */
	struct rpc_payload_file file;
	size_t capacity;
	uint64_t order; /* kept: of those that are kept */
	/* In flight. */
	struct rpc_started *started;
	int64_t deadline_ns;
	uint64_t generation; /* under which it was held back; 0: somebody waits for it */
	struct iovec payload;
	uint8_t ticket[RPC_FILE_TICKET_BYTES];
	union {
		PbData__DataWriteRequest write;
		PbData__DataTruncateRequest truncate;
		PbData__DataRoomRequest make_room;
	} request;
};

/* Checksums of GFD_BATCH_BLOCKS blocks, and which of them have been verified. */
#define GFD_BATCH_BLOCKS 4096u
#define GFD_BATCHES_MAX 256u
struct gfd_batch {
	struct gfd_batch *prev, *next; /* least recently used first */
	UT_hash_handle hh;
	uint64_t index;
	uint32_t count; /* of sums */
	uint64_t verified[GFD_BATCH_BLOCKS / 64];
	uint64_t sums[GFD_BATCH_BLOCKS];
};

/* A piece that is being, or has been, read ahead. */
enum gfd_ahead_state { GFD_AHEAD_EMPTY, GFD_AHEAD_STARTED, GFD_AHEAD_BUSY, GFD_AHEAD_READY };
#define GFD_AHEAD_MAX 32u
struct gfd_ahead {
	enum gfd_ahead_state state;
	uint64_t index; /* of the piece */
	uint64_t used;  /* when, for choosing a victim */
	uint8_t *data;  /* GFD_PIECE_BYTES */
	size_t bytes;   /* READY */
	struct rpc_started *started;
	struct gfd_link *link;
	char node[GX_NAME_USER_MAX + 1];
	uint8_t ticket[RPC_FILE_TICKET_BYTES];
	PbData__DataReadRequest request;
};

#define GFD_ASKED_RECALL 8u
#define GFD_ASKED_SIZE 16u
#define GFD_ASKED_DUE 32u /* our own: the report is due */

struct gfd_file {
	struct gfd *gfd;
	uint64_t ino;
	UT_hash_handle hh;
	struct gfd_file *prev, *next; /* gfd->active */
	bool is_active;               /* gfd->lock */
	unsigned refs;                /* gfd->lock: openers, and the background thread */

	struct gx_mutex lock;
	struct gx_cond cond;
	/* Under the lock: the section, and what is asked. */
	unsigned readers;
	bool alone;
	bool asking;     /* metad is being asked for a lease … */
	bool quick;      /* … and meanwhile the old one was to be given up (obey_quickly) */
	bool quick_busy; /* that is under way */
	bool recalled;   /* and has been done: what metad grants is shared */
	unsigned asked;
	uint64_t ask;  /* the newest question … */
	uint64_t told; /* … and the newest that a report from now on answers */
	bool distrust; /* the lease must be asked for again before something cached is used */
	struct gfd_opened *opens;
	bool regular; /* else it has no bytes anywhere, and nothing to lease or to sync at a node */

	/* Changed by who is alone, under the lock; so either is enough to read them. */
	enum gfc_mode mode;
	bool may_write;
	bool is_inline; /* as far as we know */
	bool growing;
	bool spoiled; /* growing: metad's bytes could not be put into the object */
	bool based;   /* growing: the inline content is in the object, or on its way */
	bool fresh;   /* inline content was never synced: it began empty, all of it is ours … */
	uint64_t fresh_version, fresh_syncs; /* … if the inode and gfc_syncs() are still at these */
	uint64_t generation;
	uint32_t report_ms;
	size_t place_count;
	struct gfd_place_state places[GFC_PLACES_MAX];
	uint64_t size;               /* exclusive: as it is, with what is held back */
	bool unsynced;               /* changes that no sync has covered */
	bool on_disk;                /* exclusive: all that was there before is on disk, too */
	bool dropped;                /* some of them are not kept any more */
	uint64_t boot;               /* of the primary, since the last sync; 0: none seen */
	bool rebooted;               /* it has changed: what is kept must be sent again */
	uint64_t answers;            /* of the primary to changes */
	uint64_t object_size, clock; /* the primary's last word */
	uint64_t reported_clock;
	bool changed;   /* not reported */
	bool touched;   /* since the background thread looked */
	int64_t due_ns; /* next report; 0: none */
	int error;      /* to be told once */
	bool has_asked_copy;

	/* Only by who is alone. */
	struct gfd_op *dirty, *flights, *kept; /* oldest first */
	unsigned dirty_count, flight_count;
	size_t kept_bytes;
	uint64_t order;        /* of the newest that was kept */
	uint64_t changes;      /* answered */
	uint64_t drops;        /* that could not be kept */
	struct gfd_link *link; /* while there are flights */

	/* Reading; under the lock. */
	struct gfd_batch *batches, *batch_list;
	unsigned batch_count;
	int descriptor; /* -1: none */
	bool no_descriptor;
	struct gfd_ahead ahead[GFD_AHEAD_MAX];
	uint64_t ahead_tick;
	uint64_t next_offset; /* where a sequential reader goes on */
	unsigned hits;        /* reads in a row */
	unsigned window;      /* pieces */
};

void gfd_begin(struct gfd_file *file, bool alone);
void gfd_end(struct gfd_file *file, bool alone);
/* The same under the lock; true: gfd_activate() it then. */
bool gfd_end_locked(struct gfd_file *file, bool alone);
/* From alone to shared. */
void gfd_downgrade(struct gfd_file *file);
void gfd_file_lock(struct gfd_file *file);
void gfd_file_unlock(struct gfd_file *file);
/* The background thread shall look at it; *_at: not before then. */
void gfd_activate(struct gfd_file *file);
/* gfd->lock is held. */
void gfd_activate_locked(struct gfd_file *file);
void gfd_file_unref(struct gfd_file *file);
int64_t gfd_deadline(struct gfd *gfd);
/* Of the file's, one that may write if `write`; NULL: none. */
struct gfc_open *gfd_some_open(struct gfd_file *file, bool write);

/* -- leases (alone, unless said otherwise) ----------------------------------------------------- */

/*
 * A lease that allows reading, or writing, with a node to do it at, which is waited for until the
 * deadline; *ret_cached (may be NULL): may be trusted for a while
 */
GX_MUST_CHECK int gfd_need_lease(struct gfd_file *file, struct gfc_open *open, bool write,
				 int64_t deadline_ns, bool *ret_cached);
/* Shared section too: is what we have good enough to read? */
bool gfd_has_lease(struct gfd_file *file, bool *ret_cached);
/* The node did not accept our ticket. -EIO: the lease was lost, with what was not synced. */
GX_MUST_CHECK int gfd_lease_again(struct gfd_file *file, struct gfc_open *open);
/* Tells metad what is new. mode as in ReportRequest; synced: the object is on disk. */
GX_MUST_CHECK int gfd_report(struct gfd_file *file, struct gfc_open *open, unsigned mode,
			     bool synced);
GX_MUST_CHECK int gfd_thread_start(struct gfd *gfd);
void gfd_thread_stop(struct gfd *gfd);
/* The lease is gone; what was held is lost. */
void gfd_lose(struct gfd_file *file);
/* Under the file's lock or alone. */
void gfd_set_error(struct gfd_file *file, int err);
int gfd_take_error(struct gfd_file *file);

/* -- reading (in a section) -------------------------------------------------------------------- */

/* Blocks as they are, verified; bytes read, less only at the end. offset and bytes of blocks. */
GX_MUST_CHECK ssize_t gfd_read_blocks(struct gfd_file *file, void *buf, size_t bytes,
				      uint64_t offset, size_t prefer);
/* A place for a request of one's own; -1: none. */
ssize_t gfd_choose_place(struct gfd_file *file, size_t prefer, int64_t *ret_silent_ns);
void gfd_place_failed(struct gfd_file *file, size_t index, int err);
GX_MUST_CHECK int gfd_verify(struct gfd *gfd, const void *data, size_t bytes, const uint8_t *sums,
			     size_t sum_bytes);
/* What is known of content in this range is old. bytes UINT64_MAX: to the end. */
void gfd_drop_range(struct gfd_file *file, uint64_t offset, uint64_t bytes);
void gfd_drop_all(struct gfd_file *file);

void gfd_batches_drop(struct gfd_file *file, uint64_t offset, uint64_t bytes);
/* Through the descriptor; -EOPNOTSUPP: not possible, -ESTALE: the lease is not good any more. */
GX_MUST_CHECK ssize_t gfd_read_near(struct gfd_file *file, uint8_t *buf, size_t bytes,
				    uint64_t offset);
/* All of it, without a section and quickly; -EAGAIN: in the ordinary way. */
GX_MUST_CHECK ssize_t gfd_read_quick(struct gfd_file *file, uint8_t *buf, size_t bytes,
				     uint64_t offset);

/* A part of the piece, from what was read ahead; starts more. */
GX_MUST_CHECK ssize_t gfd_ahead_read(struct gfd_file *file, uint8_t *buf, size_t bytes,
				     uint64_t offset);
bool gfd_ahead_has(struct gfd_file *file, uint64_t offset);
void gfd_ahead_drop(struct gfd_file *file, uint64_t offset, uint64_t bytes);

/* One call to the primary (or, shared section, a place); with a new ticket if that is refused. */
struct gfd_data_call {
	enum rpc_method_index method;
	ProtobufCMessage *request;
	ProtobufCBinaryData *ticket; /* in the request */
	struct rpc_reply reply;
};
GX_MUST_CHECK int gfd_call_primary(struct gfd_file *file, struct gfc_open *open,
				   struct gfd_data_call *call);

/* -- changes (alone) --------------------------------------------------------------------------- */

/* Takes a copy and sends it sooner or later. */
GX_MUST_CHECK int gfd_put(struct gfd_file *file, const void *data, size_t bytes, uint64_t offset);
/* The same from a local file, whole pieces. -EOPNOTSUPP: the node is not on this machine. */
GX_MUST_CHECK int gfd_put_file(struct gfd_file *file, int fd, uint64_t from, size_t bytes,
			       uint64_t offset);
/* Local files are not looked at any more: what was taken from them is as good as not kept. */
void gfd_leave_files(struct gfd_file *file);
/* One that is waited for; *ret_offset where an append went. */
GX_MUST_CHECK int gfd_do(struct gfd_file *file, const struct gfd_op *what, uint64_t *ret_offset);
/* All is at the node. The error stays to be taken. */
GX_MUST_CHECK int gfd_send_all(struct gfd_file *file);
/*
 * The same, and the node has been heard of since this began: it has not lost its power, or has got
 * again what it lost (rule B3).
 */
GX_MUST_CHECK int gfd_send_surely(struct gfd_file *file);
/* The node told its boot id: true if it lost what was not synced, which is to be sent again. */
bool gfd_is_rebooted(struct gfd_file *file, uint64_t boot);
/* Others may write from now on: what is kept is not sent again. */
void gfd_keep_none(struct gfd_file *file);
/* The node's machine has been down: all that is kept, in its order. The error stays, too. */
GX_MUST_CHECK int gfd_send_again(struct gfd_file *file);
/* Those up to this one are on disk. */
void gfd_unkeep(struct gfd_file *file, uint64_t order);
/* All that was sent is on disk there. */
GX_MUST_CHECK int gfd_sync_object(struct gfd_file *file);
/* Forgets all that is held, in flight and kept. */
void gfd_ops_drop(struct gfd_file *file);
/* The lease says that the file is growing: the object begins with the inline content. */
GX_MUST_CHECK int gfd_put_base(struct gfd_file *file, struct gfc_open *open);
/* All is sent, and metad knows. The error stays to be taken. */
GX_MUST_CHECK int gfd_flush_alone(struct gfd_file *file);
bool gfd_holds(const struct gfd_file *file);

#endif
