/*
 * md_server.h - metad as an object: the namespace behind a wire.
 *
 * It owns the state (md_state over md_kv over a store), the log, sessions, leases and the rpc
 * server in front of them, all on one loop. The daemon (md_main.c) is options and this; so is a
 * metad of the simulation.
 *
 * A mutation is applied, put into the log's buffer and answered into the connection's buffer; at
 * the end of the turn, or before the first byte leaves, one write makes all of the turn's commands
 * safe against a kill; then the replies leave. A reply waits longer
 *
 *	for the disk	if it depends on what another session did and the disk does not have yet, if
 *it is the session's first, or with `strict` (rule N4); for others	who may have what it changes
 *in their cache (rule N11).
 *
 * After a start it answers only Resume and Replay until every session it knows has reported, or the
 * recovery window is over.
 *
 * Threads: the loop's.
 */
#ifndef MD_SERVER_H
#define MD_SERVER_H

#include "common/gx_loop.h"
#include "metad/md_users.h"
#include "rpc/rpc_auth.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_server.h"

struct md_server;

struct md_server_options {
	struct gx_env *env;
	struct gx_loop *loop;
	const char *dir; /* exists; holds `lock`, `log/` and `db/` */
	const struct rpc_auth *auth;
	struct md_users *users;                 /* owned from here on, also on failure */
	const char *name;                       /* of this server, told to clients; borrowed */
	const char *program;                    /* "gfs-metad/VERSION", likewise */
	uint32_t root_uid, root_gid, root_mode; /* of "/", when the grid is made */
	bool strict;                            /* every reply to a mutation waits for the disk */
	size_t cache_bytes;                     /* of names and inodes */
	size_t store_cache_bytes;
	size_t layer_bytes;
	size_t overlay_bytes_max;
	uint64_t segment_bytes;
	size_t leases_max;
	int64_t session_timeout_ns; /* without contact; the session then ends */
	int64_t recovery_ns;
	int64_t start_wait_ns; /* after a start: so long nodes may take to come back */
	int64_t cache_age_ns;  /* an older cache copy goes (rule B11); 0: a day */
	unsigned connections_max;
	unsigned half_open_max;
	int64_t handshake_ns;
	/* Ends the process without another byte to anybody; does not return. NULL: _exit(1). */
	void (*fatal_fn)(void *arg, int err);
	void *fatal_arg;
	bool memory_store; /* tests: md_store_mem.c instead of LevelDB */
	int test_writer;   /* tests: md_kv.h */
};
/* clang-format off */
#define MD_SERVER_OPTIONS_INIT                                                                     \
	{                                                                                          \
		.name = "metad", .program = "gfs-metad", .root_mode = 0755, .cache_bytes = 256u * 1024 * 1024,             \
		.store_cache_bytes = 64u * 1024 * 1024, .layer_bytes = 32u * 1024 * 1024,          \
		.overlay_bytes_max = 128u * 1024 * 1024, .segment_bytes = 16u * 1024 * 1024,       \
		.leases_max = 1024u * 1024, .session_timeout_ns = 60 * GX_NSEC_PER_SEC,            \
		.recovery_ns = 10 * GX_NSEC_PER_SEC, .start_wait_ns = 3 * GX_NSEC_PER_SEC,         \
		.connections_max = 4096,                                                           \
		.half_open_max = 1024, .handshake_ns = 10 * GX_NSEC_PER_SEC                        \
	}
/* clang-format on */

/* A cache lease lasts this long after the last contact; a client stops earlier (rules N11, N13). */
#define MD_LEASE_NS (2 * GX_NSEC_PER_SEC)

/*
 * Opens or makes the state and replays the log. What is wrong is logged. -EBUSY: another metad runs
 * on this directory; -EBADMSG: damage; -EPROTONOSUPPORT: written by a newer version.
 */
GX_MUST_CHECK int md_server_new(const struct md_server_options *options,
				struct md_server **ret_server);
/* At once; what is acknowledged is in the log. NULL is fine. */
void md_server_free(struct md_server *server);

GX_MUST_CHECK int md_server_listen(struct md_server *server, const struct rpc_endpoint *endpoint,
				   struct rpc_endpoint *ret_bound);
/* Graceful end: answers what is in work, waits for the disk, calls fn. */
void md_server_drain(struct md_server *server, int64_t deadline_ns, rpc_drained_fn fn, void *arg);
/* Other users from now on; owned. */
void md_server_set_users(struct md_server *server, struct md_users *users);
/* The key table behind `auth` has changed: sessions of identities that are not in it end. */
void md_server_keys_changed(struct md_server *server);

/* For tests: the state, between two turns. */
struct md_state *md_server_state(struct md_server *server);
struct rpc_dispatcher *md_server_dispatcher(struct md_server *server);
bool md_server_recovering(const struct md_server *server);

#endif
