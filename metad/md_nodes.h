/*
 * md_nodes.h - daemons that store or compute: who is there, and how they are.
 *
 * A node registers when it starts and sends heartbeats; silent for MD_NODE_SILENT_NS it counts as
 * down. Silence counts only while metad was listening (rule N15): time during which the loop itself
 * did not turn (MD_NODE_DEAF_NS without a call here), or the first MD_NODE_SILENT_NS after a start,
 * is not held against a node; and when a third of the nodes that are up (at least two) falls silent
 * at once it is likelier the network, so they get MD_NODE_MASS_NS more, and the log says so. At
 * once: when the first of them is due, the others have missed heartbeats too
 * (MD_NODE_SUSPECT_NS). Nothing here is durable: nodes come back by themselves.
 *
 * Placement, the choice of nodes for a new object, stands behind struct md_placement: what is here
 * now takes the up nodes of kind "fsd" with the most free bytes (a busy node counts as a fuller
 * one), each on another host label, the caller's own host first unless it is nearly full.
 *
 * Threads: the loop's.
 */
#ifndef MD_NODES_H
#define MD_NODES_H

#include "common/gx_env.h"
#include "meta.pb-c.h"
#include "rpc/rpc_arena.h"

#define MD_NODE_HEARTBEAT_NS (2 * GX_NSEC_PER_SEC)
#define MD_NODE_SILENT_NS (10 * GX_NSEC_PER_SEC)
#define MD_NODE_MASS_NS (60 * GX_NSEC_PER_SEC)
#define MD_NODE_SUSPECT_NS (MD_NODE_SILENT_NS - 2 * MD_NODE_HEARTBEAT_NS)
#define MD_NODE_DEAF_NS GX_NSEC_PER_SEC
#define MD_NODES_MAX 4096u
#define MD_NODE_ADDRESSES_MAX 8u
#define MD_NODE_ATTRIBUTES_MAX 32u
#define MD_NODE_ATTRIBUTE_BYTES_MAX 256u /* NAME=VALUE */

struct md_nodes;

GX_MUST_CHECK int md_nodes_new(struct gx_env *env, struct md_nodes **ret_nodes);
void md_nodes_free(struct md_nodes *nodes);

/* As md_nodes_register() would say, without doing it. */
GX_MUST_CHECK int md_nodes_check(const char *identity, const PbMeta__Node *node,
				 const char **ret_problem);
/*
 * `identity` is the peer's ("host:fsd1"): a node registers under its own name only, -EPERM.
 * -EINVAL with *ret_problem (static text): kind, address, label, attribute that makes no sense.
 * Addresses are looked at, not resolved. -ENOSPC: too many; -ENOMEM. A new boot (not 0) of a known
 * node replaces what was known, so does the same boot.
 */
GX_MUST_CHECK int md_nodes_register(struct md_nodes *nodes, const char *identity,
				    const PbMeta__Node *node, const char **ret_problem);
/* -ENOENT: register again (not known, or another boot); -EPERM. */
GX_MUST_CHECK int md_nodes_heartbeat(struct md_nodes *nodes, const char *identity,
				     const PbMeta__NodeHeartbeatRequest *beat);
/* It is not what it was: down until it registers. */
void md_nodes_gone(struct md_nodes *nodes, const char *name);
/* So many bytes are on their way there: for choices until its next heartbeat. */
void md_nodes_expect(struct md_nodes *nodes, const char *name, uint64_t bytes);
/*
 * Now and then, a few times a second: decides who is down, and logs it. Who is heard again is up at
 * once.
 */
void md_nodes_tick(struct md_nodes *nodes);
size_t md_nodes_count(const struct md_nodes *nodes, bool up_only);
/* All nodes, in the arena, ordered by name. -ENOMEM, or -E2BIG if the arena is too small. */
GX_MUST_CHECK int md_nodes_list(const struct md_nodes *nodes, struct rpc_arena *arena,
				PbMeta__Node ***ret_list, size_t *ret_count);

/*
 * A daemon says something about itself, as md_nodes_heartbeat(): it is heard. -EPERM, -ENOENT.
 */
GX_MUST_CHECK int md_nodes_heard(struct md_nodes *nodes, const char *identity, const char *name,
				 uint64_t boot);
/* Borrowed until the next call that is not a question; NULL: never heard of. */
const PbMeta__Node *md_nodes_find(const struct md_nodes *nodes, const char *name, bool *ret_up);
/* Of the storage nodes that are up. */
void md_nodes_space(const struct md_nodes *nodes, uint64_t *ret_capacity_bytes,
		    uint64_t *ret_free_bytes);
/* Goes up whenever a node comes, goes or comes back. */
uint64_t md_nodes_changes(const struct md_nodes *nodes);

struct md_placement_request {
	const char *client_host; /* label; NULL: unknown */
	unsigned copies;
	uint64_t bytes;           /* expected; a node without that room is not taken */
	const char *const *avoid; /* names of nodes not to be taken … */
	size_t avoid_count;
	const char *const *hosts; /* … and labels of hosts */
	size_t host_count;
};
struct md_placement {
	/* Names of nodes, borrowed until the next call on nodes; how many (maybe fewer than asked).
	 */
	size_t (*choose)(struct md_nodes *nodes, const struct md_placement_request *request,
			 const char **ret_names, size_t names_max);
};
extern const struct md_placement md_placement_most_free;

#endif
