/*
 * gx_limits.h - every maximum that a peer or user could otherwise make grow.
 *
 * One place, so that the memory a daemon can be made to use is a sum a reader
 * can do (docs/ARCHITECTURE.md does it). docs/PROTOCOL.md lists these lines:
 * tools/generate copies them, so each has its comment on the same line.
 */
#ifndef GX_LIMITS_H
#define GX_LIMITS_H

/* Wire. */
#define GX_MESSAGE_MAX (1024u * 1024)          /* one protobuf message, encoded */
#define GX_UNPACK_MAX (4u * 1024 * 1024)       /* the same, unpacked: all memory of one call */
#define GX_PAYLOAD_LOOP_MAX (2u * 1024 * 1024) /* payload to a loop server, buffered whole */
#define GX_PAYLOAD_MAX (1024u * 1024 * 1024)   /* payload to a threaded server, or in a reply */
#define GX_HELLO_MAX 2048u            /* any handshake message; all an unknown peer may send */
#define GX_DETAIL_MAX 256u            /* text for people behind an error status */
#define GX_IDENTITY_MAX 512u          /* "user:name", "host:name" or "ticket:<hex>", with a NUL */
#define GX_NAME_USER_MAX 64u          /* user, host and node names */
#define GX_INFLIGHT_PER_CONN_MAX 256u /* requests of one connection being worked on */
#define GX_OUT_QUEUE_PER_CONN_MAX (8u * 1024 * 1024) /* unsent bytes before reading stops */
#define GX_CALLS_PER_SERVER_MAX (256u * 1024 * 1024) /* decoded requests in work, all peers */
#define GX_PUSH_QUEUE_PER_SESSION_MAX 4096u          /* pushes not yet acknowledged */
#define GX_REPLAY_PER_SESSION_MAX 1024u              /* remembered results of one session */
#define GX_UNSYNCED_PER_SESSION_MAX                                                                \
	4096u /* mutations of one session that are not on disk: the ring in metad */
#define GX_REPLAY_SESSIONS_MAX 65536u           /* sessions in one in-memory table */
#define GX_REPLAY_BYTES_MAX (64u * 1024 * 1024) /* tables and replies, in memory */
#define GX_KEYTAB_BYTES_MAX (16u * 1024 * 1024) /* a key table file */

/* Files. */
#define GX_INLINE_MAX 8192u                 /* bytes of a file that metad keeps itself */
#define GX_LOCKS_MAX 1000000u               /* locks in one metad */
#define GX_LOCKS_PER_SESSION_MAX 65536u     /* of one session */
#define GX_LOCKS_PER_INODE_MAX 8192u        /* on one file, of all sessions */
#define GX_LOCK_WAITS_MAX 65536u            /* requests for locks that wait, in one metad */
#define GX_LOCK_WAITS_PER_INODE_MAX 1024u   /* for one file */
#define GX_LOCK_WAITS_PER_SESSION_MAX 1024u /* of one session */

/* Configuration and command line. */
#define GX_CONF_FILE_MAX (1024u * 1024) /* a configuration file or drop-in, bytes */
#define GX_CONF_LINE_MAX 4096u          /* one of its lines, bytes */
#define GX_CONF_DROPINS_MAX 256u        /* drop-ins beside one file */

/* Log. */
#define GX_LOG_LINE_MAX 2048u    /* one line, bytes; the rest is cut */
#define GX_LOG_VALUE_MAX 512u    /* one key's value, escaped, bytes */
#define GX_LOG_COMPONENT_MAX 32u /* name of a component, bytes */
#define GX_LOG_RULES_MAX 32u     /* components with their own level */

/* Paths and addresses. */
#define GX_PATH_MAX 4096u     /* a path, with its NUL */
#define GX_ADDR_TEXT_MAX 300u /* an address as text, with its NUL */

#endif
