/*
 * md_state.h - the namespace as a state machine over md_kv.
 *
 * A mutation is a command (md_command.h): md_state_apply() checks it against
 * the state, and changes the state only after every check has passed, so a
 * command that fails has done nothing and need not be in the log. The caller
 * logs the commands that succeeded, in the order they were applied, before any
 * reply leaves; replaying them gives the same state.
 *
 * Rights are checked here, for the authenticated user: mode bits, ownership,
 * sticky directories, setgid inheritance. uid 0 may everything.
 *
 * Rule N4: each call also tells on which not yet durable change of another
 * session its answer depends (the times and counters of a parent do not
 * count); the reply must wait until the log is on disk up to there.
 *
 * Errors of the machine itself (no memory, a store that cannot be read) end
 * the process, see md_kv.h.
 */
#ifndef MD_STATE_H
#define MD_STATE_H

#include "metad/md_command.h"
#include "metad/md_inode.h"
#include "metad/md_kv.h"
#include "meta.pb-c.h"

/*
 * Who changed names in a directory lately. A listing, and whether a directory is empty, depend on
 * names that are gone as well, and those have no record to carry a tag. Several directories may
 * share a slot: then a reply waits although it need not. Nothing here has to survive a restart.
 */
#define MD_RECENT_DIRS 1024u
struct md_recent {
	uint64_t session; /* made the newest change */
	uint64_t index;   /* of that one */
	uint64_t foreign; /* index of the newest one by any other session */
};

/*
 * What commands have left to do for storage nodes since somebody looked: who does clears it. With
 * `many` there are more inodes than these.
 */
#define MD_NEWS_MAX 64u
struct md_object_news {
	bool trash;
	bool many;
	unsigned count;
	uint64_t inos[MD_NEWS_MAX]; /* their copies are not as wanted */
};

struct md_state {
	struct md_kv *kv;
	struct md_object_news news;
	/* Is the inode open in some session? Asked while a live command is applied. */
	bool (*is_open)(void *arg, uint64_t ino);
	void *arg;
	struct md_recent recent[MD_RECENT_DIRS]; /* starts as zeros; private */
};

/* What a command changed, for those who may have it in a cache: an inode, or a name in one. */
struct md_touched {
	uint64_t ino;
	const char *name; /* borrowed from the request; NULL: the inode itself */
	bool rights;      /* of a directory: who may look up names in it has changed */
};
#define MD_TOUCHED_MAX 12u
#define MD_SEEN_MAX 8u

/* What a call has to do with the rest of the world. */
struct md_ctx {
	struct md_state *state;
	const struct md_cred *cred;
	struct rpc_arena *arena; /* for what the reply points to */
	uint64_t session;
	uint64_t index; /* that the command will have if it succeeds; 0 for a query */
	int64_t time_ns;
	/*
	 * Out, starts as 0: newest foreign change the answer depends on (N4), also if the call
	 * fails. It may be on disk already. What a session has changed on top of a foreign change
	 * counts as its own from then on: so its later replies must wait for whatever this one
	 * waits for.
	 */
	uint64_t depends;
	/* Out: inodes that were looked at; with seen_many there were more. */
	unsigned seen_count;
	bool seen_many;
	uint64_t seen[MD_SEEN_MAX];
	/* Out, of a command that succeeded. Nothing changed: there is nothing to log. */
	bool changed;
	unsigned touched_count;
	struct md_touched touched[MD_TOUCHED_MAX];
};

/* Tests: makes the root directory and the superblock in an empty store, as command `index`. */
void md_state_format(struct md_state *state, uint64_t index, int64_t time_ns);

#define MD_UUID_BYTES 16u
#define MD_SECRET_BYTES 16u
struct md_super {
	unsigned char uuid[MD_UUID_BYTES]; /* of the log that belongs to this state */
	unsigned char secret[MD_SECRET_BYTES];
};
/* -ENOENT: not formatted; -EPROTONOSUPPORT: a newer format; -EBADMSG. */
GX_MUST_CHECK int md_state_super(struct md_state *state, struct md_super *ret_super);

/* Ids below these have been reserved, and may have been given (rule N3). */
struct md_ids {
	uint64_t ino_limit;
	uint64_t session_limit;
	uint64_t lock_epoch; /* the last life that may have given new locks */
};
void md_state_ids(struct md_state *state, struct md_ids *ret_ids);

/*
 * The replay table (rule N5): a ring of results per session. Remembering is part of the command.
 * The bytes of the result are borrowed until the next call on the state.
 */
#define MD_RESULT_MAX 512u /* no mutation answers more */
struct md_result {
	uint64_t seq;
	uint64_t check; /* of the command */
	uint16_t method;
	const void *reply; /* packed */
	size_t reply_bytes;
};
void md_state_remember(struct md_ctx *ctx, const struct md_command *command, const void *reply,
		       size_t reply_bytes);
/* -ENOENT: the slot of this number is empty. Another number may be in it: see ret_result->seq. */
GX_MUST_CHECK int md_state_recall(struct md_state *state, uint64_t session, uint64_t seq,
				  struct md_result *ret_result);

/* The first session from this id on that has results in the table. */
bool md_state_next_ring(struct md_state *state, uint64_t from, uint64_t *ret_session);

/* All sessions; the text is borrowed until fn returns. Non-zero stops and is returned. */
typedef int (*md_session_fn)(void *arg, uint64_t session, const char *identity);
GX_MUST_CHECK int md_state_each_session(struct md_state *state, md_session_fn fn, void *arg);
/*
 * Orphans from `*from` on, at most `max`: how many. *from is where to go on; 0 when there are no
 * more.
 */
size_t md_state_orphans(struct md_state *state, uint64_t *from, uint64_t *ret_inos, size_t max);

/*
 * Applies a command; cred, session and time_ns of ctx are taken from it. `live`: MD_COMMAND_BUSY is
 * set in it as needed; when replaying it is obeyed. On success the reply is filled. -ENOSYS: not a
 * method of the state machine. -ENOMEM: the arena is full, nothing was done.
 *
 * Open makes a file that is not there; of one that is there it only truncates the content, and only
 * if asked to: -EEXIST otherwise. Whether it may be opened is md_state_may_open()'s. -ENOENT
 * without the create flag.
 */
GX_MUST_CHECK int md_state_apply(struct md_ctx *ctx, struct md_command *command, bool live,
				 ProtobufCMessage *reply);

/* Read-only calls. Payload bytes of a read live in the arena. */
GX_MUST_CHECK int md_state_lookup(struct md_ctx *ctx, const PbMeta__LookupRequest *request,
				  PbMeta__LookupReply *reply);
GX_MUST_CHECK int md_state_getattr(struct md_ctx *ctx, const PbMeta__GetattrRequest *request,
				   PbMeta__GetattrReply *reply);
GX_MUST_CHECK int md_state_readlink(struct md_ctx *ctx, const PbMeta__ReadlinkRequest *request,
				    PbMeta__ReadlinkReply *reply);
GX_MUST_CHECK int md_state_readdir(struct md_ctx *ctx, const PbMeta__ReaddirRequest *request,
				   PbMeta__ReaddirReply *reply);
GX_MUST_CHECK int md_state_getxattr(struct md_ctx *ctx, const PbMeta__GetxattrRequest *request,
				    PbMeta__GetxattrReply *reply);
GX_MUST_CHECK int md_state_listxattr(struct md_ctx *ctx, const PbMeta__ListxattrRequest *request,
				     PbMeta__ListxattrReply *reply);
/* Of an inode that the caller has open for reading. */
GX_MUST_CHECK int md_state_read(struct md_ctx *ctx, uint64_t ino, uint64_t offset, uint32_t bytes,
				PbMeta__ReadReply *reply, const void **ret_data, size_t *ret_bytes);
/* May the caller open this inode so? -EACCES, -EISDIR, -ELOOP … */
GX_MUST_CHECK int md_state_may_open(struct md_ctx *ctx, uint64_t ino, uint32_t flags,
				    PbMeta__Attr *attr);

/* Removes an orphan that nobody has open any more. No orphan: does nothing. -EBADMSG, -ENOMEM. */
GX_MUST_CHECK int md_state_reap(struct md_ctx *ctx, uint64_t ino);

struct md_counters {
	uint64_t inodes;
	uint64_t inline_bytes;
};
void md_state_counters(struct md_state *state, struct md_counters *ret_counters);

#endif
