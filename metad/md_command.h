/*
 * md_command.h - a mutation as it stands in the log.
 *
 * Everything an apply may depend on besides the state is inside: the time, the
 * new inode number, who asks and with which groups, whether a file that loses
 * its last name is open. So applying the same commands to the same state gives
 * the same state, on any machine, any number of times.
 */
#ifndef MD_COMMAND_H
#define MD_COMMAND_H

#include "common/gx_buf.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_method.h"

#define MD_GROUPS_MAX 1024u
/*
 * The longest record: groups, an extended attribute, some names. Requests that carry more than
 * their method needs are refused by md_state_apply(), so they never get here.
 */
#define MD_COMMAND_BYTES_MAX (80u * 1024)

struct md_cred {
	uint32_t uid, gid;
	uint32_t group_count;
	const uint32_t *groups; /* supplementary; from metad's own table (rule N16) */
};

enum md_command_flag {
	MD_COMMAND_BUSY = 1u, /* the inode that loses its last name is open: keep it as an orphan */
	/*
	 * Truncate or write through a handle of the session that is open for writing: the mode bits
	 * were checked then. Without it they are checked now.
	 */
	MD_COMMAND_HANDLE = 2u,
	/* This Report ends the last lease that may write: the object is settled. */
	MD_COMMAND_SETTLE = 4u,
	MD_COMMAND_FLAGS = 7u, /* all there are */
};

struct md_command {
	const struct rpc_method *method;
	unsigned flags;  /* enum md_command_flag */
	int64_t time_ns; /* metad's clock (rule N13) */
	uint64_t session;
	uint64_t seq;     /* of the session; 0: metad's own command */
	uint64_t check;   /* hash of method and request as they came: what a retry has in common */
	uint64_t new_ino; /* for a command that makes an inode */
	struct md_cred cred;
	const ProtobufCMessage *request;
	const void *payload;
	uint32_t payload_bytes;
};

/*
 * Appends the bytes of a log record. Fields of the request that this version does not know are
 * left out: nobody obeys them, and they would let a client fill the log. -E2BIG, -ENOMEM.
 */
GX_MUST_CHECK int md_command_encode(const struct md_command *command, struct gx_buf *out);
/* Decodes; the request and the groups live in the arena, the payload in `data`. -EBADMSG, or
 * -EPROTONOSUPPORT for a newer format. An arena of GX_UNPACK_MAX is always enough. */
GX_MUST_CHECK int md_command_decode(const void *data, size_t bytes, struct rpc_arena *arena,
				    struct md_command *ret_command);

#endif
