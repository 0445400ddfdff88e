/*
 * Handlers about bytes that are not inline: the way to storage nodes, leases, reports, where copies
 * are (rules B1, B2, B4, N10, S1).
 */
#define GX_LOG_COMPONENT "metad.data"
#include "common/gx_broken.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include "common/gx_secret.h"
#include "metad/md_server_impl.h"
#include "metad/md_state_impl.h"
#include "rpc/rpc_file_ticket.h"
#include "rpc/rpc_ticket.h"

#define SESSION_TICKET_NS (3600 * GX_NSEC_PER_SEC)
#define FILE_TICKET_NS (600 * GX_NSEC_PER_SEC)
/* While writing a client reports at least so often (rule N12). */
#define REPORT_MS 50u
/* No quota yet (rule N14): what an object can be. */
#define SIZE_MAX_BYTES MD_OBJECT_BYTES_MAX
/* A call waits so long for a node; nodes have this time to come back to a metad just started. */
#define NODE_WAIT_NS (2 * GX_NSEC_PER_SEC)
/* … for the primary of a writer that has vanished. */
#define RECOVER_WAIT_NS (10 * GX_NSEC_PER_SEC)
/* Where{wait} is answered before its caller gives up. */
#define WHERE_EARLY_NS (250 * GX_NSEC_PER_MSEC)
#define WHERE_WAIT_NS (60 * GX_NSEC_PER_SEC)
#define AVOID_MAX 64u

int md_file_get(struct md_ctx *ctx, uint64_t ino, struct md_inode *ret_inode,
		PbMeta__LayoutRecord **ret_layout)
{
	int r = md_get_inode(ctx, ino, ret_inode);

	if (r < 0)
		return r;
	if (!S_ISREG(ret_inode->mode))
		return S_ISDIR(ret_inode->mode) ? -EISDIR : -EINVAL;
	return md_layout_get(ctx, ino, ret_layout);
}

static bool is_inline(const struct md_inode *inode)
{
	return inode->flags & MD_INODE_INLINE;
}

/* The generation in force: the one being written, or the file's. */
static uint64_t generation_of(const struct md_inode *inode, const PbMeta__LayoutRecord *layout)
{
	return layout && layout->writing != 0 ? layout->writing : inode->generation;
}

static int attr_of(struct md_server *md, struct md_ctx *ctx, const struct md_inode *inode,
		   PbMeta__Attr **ret_attr)
{
	int r = md_new_attr(ctx, ret_attr);

	if (r < 0)
		return r;
	md_fill_attr(inode, *ret_attr);
	md_fill_cap(md, *ret_attr);
	return 0;
}

/* -- tickets and places ---------------------------------------------------------------------------
 */

/* -ENOKEY: not in our table. */
static int node_key(struct md_server *md, const char *node, unsigned char key[RPC_KEY_BYTES])
{
	char identity[GX_NAME_USER_MAX + 8];
	const struct rpc_key *host;

	if (gx_format(identity, sizeof(identity), "host:%s", node) < 0)
		return -ENOKEY;
	host = rpc_keytab_find(md->options.auth->keys, identity);
	return host ? rpc_node_key(host->secret, key) : -ENOKEY;
}

static char *copy_text(struct rpc_call *call, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = rpc_call_alloc(call, bytes);

	return copy ? memcpy(copy, text, bytes) : NULL;
}

/* Copied: the answer may wait for the disk, and the node register anew meanwhile. */
static int place_fill(struct rpc_call *call, const PbMeta__Node *node, PbMeta__Place *place)
{
	place->host = copy_text(call, node->host);
	place->addresses = rpc_call_alloc(call, (node->n_addresses + 1) * sizeof(char *));
	if (!place->host || !place->addresses)
		return -EAGAIN;
	for (size_t i = 0; i < node->n_addresses; i++) {
		place->addresses[i] = copy_text(call, node->addresses[i]);
		if (!place->addresses[i])
			return -EAGAIN;
		place->n_addresses++;
	}
	return 0;
}

PbMeta__Place *md_place_new(struct md_server *md, struct rpc_call *call, const char *node)
{
	PbMeta__Place *place = rpc_call_alloc(call, sizeof(*place));
	bool up = false;
	const PbMeta__Node *info = md_nodes_find(md->nodes, node, &up);

	if (!place)
		return NULL;
	pb_meta__place__init(place);
	place->node = copy_text(call, node);
	place->up = up;
	if (!place->node || (info && place_fill(call, info, place) < 0))
		return NULL;
	return place;
}

int md_place_ticket(struct md_server *md, struct rpc_call *call, PbMeta__Place *place, uint64_t ino,
		    uint64_t generation, uint64_t base, uint32_t rights)
{
	struct rpc_file_ticket ticket = {
		.rights = rights,
		.ino = ino,
		.generation = generation,
		.base = base,
		.session = call->session,
		.size_max = SIZE_MAX_BYTES,
		.epoch = md_log_epoch(md->log),
		.expires_ns = gx_env_wall_ns(md->env) + FILE_TICKET_NS,
	};
	unsigned char *bytes = rpc_call_alloc(call, RPC_FILE_TICKET_BYTES);
	unsigned char key[RPC_KEY_BYTES];
	int r;

	if (!bytes)
		return -EAGAIN;
	r = node_key(md, place->node, key);
	if (r == 0)
		r = rpc_file_ticket_seal(&ticket, key, bytes);
	gx_wipe(key, sizeof(key));
	if (r == 0)
		place->ticket = (ProtobufCBinaryData){RPC_FILE_TICKET_BYTES, bytes};
	return r;
}

/* A ticket for data connections of the caller to a node, and its key, in the call's memory. */
static int session_ticket(struct md_server *md, struct rpc_call *call, const char *node,
			  char **ret_text, ProtobufCBinaryData *ret_key)
{
	struct rpc_ticket ticket = {
		.session = call->session,
		.epoch = md_log_epoch(md->log),
		.expires_ns = gx_env_wall_ns(md->env) + SESSION_TICKET_NS,
	};
	char *text = rpc_call_alloc(call, GX_IDENTITY_MAX);
	unsigned char *key = rpc_call_alloc(call, RPC_KEY_BYTES);
	unsigned char secret[RPC_KEY_BYTES];
	int r;

	if (!text || !key)
		return -EAGAIN;
	r = node_key(md, node, secret);
	if (r == 0)
		r = gx_strcpy(ticket.identity, sizeof(ticket.identity), call->peer->identity);
	if (r == 0)
		r = gx_strcpy(ticket.node, sizeof(ticket.node), node);
	if (r == 0) {
		rpc_ticket_format(&ticket, text);
		r = rpc_ticket_key(text, secret, key);
	}
	gx_wipe(secret, sizeof(secret));
	if (r < 0)
		return r;
	*ret_text = text;
	*ret_key = (ProtobufCBinaryData){RPC_KEY_BYTES, key};
	return 0;
}

int md_place_session(struct md_server *md, struct rpc_call *call, PbMeta__Place *place)
{
	return session_ticket(md, call, place->node, &place->session_ticket, &place->session_key);
}

int md_op_attach(struct rpc_call *call, const PbMeta__AttachRequest *request,
		 PbMeta__AttachReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	bool up;
	int r;

	r = md_enter(md, call, &session);
	if (r != 0)
		return r;
	if (!md_nodes_find(md->nodes, request->node, &up))
		return rpc_call_fail(call, -ENOENT, "no such node is known");
	reply->place = md_place_new(md, call, request->node);
	if (!reply->place)
		return -EAGAIN;
	reply->lifetime_ms = SESSION_TICKET_NS / GX_NSEC_PER_MSEC;
	return session_ticket(md, call, request->node, &reply->ticket, &reply->key);
}

/* -- which copies ---------------------------------------------------------------------------------
 */

#define GOOD_SCORE 4u /* neither damaged nor to be avoided */

struct choice {
	const PbMeta__CopyRecord *copy;
	unsigned score; /* the nearest and safest first */
};

/* Current copies on nodes that are up, best first; how many. */
static size_t choose_copies(struct md_server *md, const struct md_inode *inode,
			    const PbMeta__LayoutRecord *layout, const PbMeta__LeaseRequest *request,
			    struct choice choices[MD_COPIES_MAX])
{
	size_t count = 0;

	for (size_t i = 0; i < layout->n_copies && count < MD_COPIES_MAX; i++) {
		const PbMeta__CopyRecord *copy = layout->copies[i];
		struct choice choice = {.copy = copy};
		bool up = false;
		const PbMeta__Node *node = md_nodes_find(md->nodes, copy->node, &up);
		size_t at = count;

		if (!node || !up || !md_copy_current(inode, layout, copy))
			continue;
		if (!(copy->flags & MD_COPY_BAD))
			choice.score += GOOD_SCORE;
		for (size_t k = 0; k < request->n_avoid; k++)
			if (strcmp(request->avoid[k], copy->node) == 0)
				choice.score = 0;
		if (choice.score > 0 && request->host[0] && strcmp(request->host, node->host) == 0)
			choice.score += 2;
		choice.score += (copy->flags & MD_COPY_STABLE) != 0;
		for (; at > 0 && choices[at - 1].score < choice.score; at--)
			choices[at] = choices[at - 1];
		choices[at] = choice;
		count++;
	}
	return count;
}

/* Does any node, up or not, have the content? `good`: without a damaged block. */
static bool has_copy_of_all(const struct md_inode *inode, const PbMeta__LayoutRecord *layout,
			    bool good)
{
	for (size_t i = 0; i < layout->n_copies; i++)
		if (md_copy_current(inode, layout, layout->copies[i]) &&
		    !(good && (layout->copies[i]->flags & MD_COPY_BAD)))
			return true;
	return false;
}

/* Since when the call could have been answered: it may have waited for the end of recovery. */
static int64_t waits_since(const struct md_server *md, const struct rpc_call *call)
{
	return GX_MAX(call->start_ns, md->recovered_ns);
}

/* No node is there: wait a little for one, then fail. */
static int wait_for_node(struct md_server *md, struct rpc_call *call, uint64_t ino, int err)
{
	int64_t now = gx_env_now_ns(md->env);
	int64_t until = md->started_ns + md->options.start_wait_ns;

	if (md_nodes_count(md->nodes, false) > 0)
		until = GX_MAX(until, waits_since(md, call) + NODE_WAIT_NS);
	if (now < until && now < call->deadline_ns)
		return md_wait_for(md, call, ino, until);
	return rpc_call_fail(call, err, "no storage node %s is up",
			     err == -ENOSPC ? "with room for it" : "that has the file, or could,");
}

/* -- lease ----------------------------------------------------------------------------------------
 */

/* The node that a new object, or one not written yet, is written on. NULL: none is up. */
static const char *choose_primary(struct md_server *md, const PbMeta__LeaseRequest *request,
				  const struct md_inode *inode, const PbMeta__LayoutRecord *layout)
{
	struct md_placement_request wanted = {
		.client_host = request->host[0] ? request->host : NULL,
		.copies = 1,
		.avoid = (const char *const *)request->avoid,
		.avoid_count = request->n_avoid,
	};
	struct choice choices[MD_COPIES_MAX];
	const char *name = NULL;
	size_t count;

	if (is_inline(inode)) {
		count = md_placement_most_free.choose(md->nodes, &wanted, &name, 1);

		/* One that the client could not reach just now is better than none. */
		wanted.avoid_count = 0;
		if (count == 0)
			count = md_placement_most_free.choose(md->nodes, &wanted, &name, 1);
		return count == 1 ? name : NULL;
	}
	count = layout ? choose_copies(md, inode, layout, request, choices) : 0;
	/*
	 * What was synced may be on the disk of one of them only: it must not become the stale one,
	 * also if another is nearer to the writer (rule B2).
	 */
	for (size_t i = 0; i < count; i++)
		if (choices[i].score >= GOOD_SCORE && (choices[i].copy->flags & MD_COPY_STABLE))
			return choices[i].copy->node;
	/* If all are damaged it is better to go on with what there is than not at all. */
	if (count > 0 && (choices[0].score >= GOOD_SCORE || !has_copy_of_all(inode, layout, true)))
		name = choices[0].copy->node;
	return name;
}

/*
 * Writing begins (rule B1). It must be on disk before anybody hears of it, and whoever has the
 * attributes in a cache must forget them: they now change without a word to him (rule N12).
 */
static int write_begin(struct md_server *md, struct rpc_call *call, struct md_session *session,
		       uint64_t ino, const char *primary, struct md_pending **ret_pending)
{
	PbMeta__WriteBeginRequest request = PB_META__WRITE_BEGIN_REQUEST__INIT;
	PbMeta__WriteBeginReply reply = PB_META__WRITE_BEGIN_REPLY__INIT;
	struct md_pending *pending = md_pending_new(session, call);
	struct md_ctx ctx;
	int r;

	if (!pending)
		return -EAGAIN;
	request.ino = ino;
	request.primary = (char *)(uintptr_t)primary;
	md_jobs_written(md->jobs, ino);
	r = md_own_execute(md, RPC_INDEX_WRITE_BEGIN, 0, &request.base, &reply.base, &ctx);
	if (r < 0) {
		session->pendings--;
		return r == -ENOSPC ? rpc_call_fail(call, r, "no room in metad's log") : r;
	}
	session->need = GX_MAX(session->need, ctx.index);
	md_forget(md, session, &ctx, pending);
	*ret_pending = pending;
	return 0;
}

static bool is_avoided(const PbMeta__LeaseRequest *request, const char *node)
{
	for (size_t i = 0; i < request->n_avoid; i++)
		if (strcmp(request->avoid[i], node) == 0)
			return true;
	return false;
}

/*
 * Everything that has to happen before the session may have what it asks for. 0; RPC_DEFERRED: the
 * call runs again; negative. *ret_pending: the answer has to wait (write_begin()).
 */
static int lease_prepare(struct md_server *md, struct rpc_call *call, struct md_session *session,
			 const PbMeta__LeaseRequest *request, const struct md_inode *inode,
			 const PbMeta__LayoutRecord *layout, struct md_pending **ret_pending)
{
	int64_t now = gx_env_now_ns(md->env);
	bool writing = layout && layout->writing != 0;
	uint64_t ino = request->ino;
	const char *primary;

	/*
	 * The one writer of a growing file cannot reach the place it was given: another one. It
	 * names what it was given: a request from before that, which was sent again and has been
	 * answered, must not take it away.
	 */
	if (writing && layout->growing && is_avoided(request, layout->primary) &&
	    request->unreached == layout->writing &&
	    !md_access_has_writer(md->access, session->id, ino)) {
		struct md_grant *grant = md_access_find(md->access, session->id, ino);

		if (grant)
			md_access_drop(md->access, grant);
	}
	/* Those who have shared it read from a node that need not be the next primary. */
	if (md_recall(md, session, ino, request->write, is_inline(inode),
		      request->write && !writing && !is_inline(inode)))
		return now >= call->deadline_ns ? -EAGAIN
						: md_wait_for(md, call, ino, now + RECOVER_WAIT_NS);
	if (writing && !md_access_has_writer(md->access, 0, ino)) {
		int64_t until = waits_since(md, call) + RECOVER_WAIT_NS;

		md_recover(md, ino);
		if (now >= GX_MIN(until, call->deadline_ns))
			return rpc_call_fail(call, -EHOSTUNREACH,
					     "its writer has vanished and %s does not answer",
					     layout->primary);
		return md_wait_for(md, call, ino, until);
	}
	if (!request->write || writing)
		return 0;
	if (md_session_log(md, session) < 0)
		return rpc_call_fail(call, -ENOSPC, "no room in metad's log");
	if (!md_kv_room(md->kv) || md_log_busy(md->log))
		return md_park(md, call, true);
	primary = choose_primary(md, request, inode, layout);
	if (!primary && layout && !is_inline(inode) && !has_copy_of_all(inode, layout, false))
		return rpc_call_fail(call, -EIO, "no copy is left");
	if (!primary)
		return wait_for_node(md, call, ino,
				     is_inline(inode) && md_nodes_count(md->nodes, true) > 0
					     ? -ENOSPC
					     : -EHOSTUNREACH);
	return write_begin(md, call, session, ino, primary, ret_pending);
}

static int add_place(struct md_server *md, struct rpc_call *call, const char *node, uint64_t base,
		     uint32_t flags, const PbMeta__LeaseRequest *request, uint32_t rights,
		     PbMeta__LeaseReply *reply)
{
	PbMeta__Place *place = md_place_new(md, call, node);

	if (!place)
		return -EAGAIN;
	place->generation = reply->generation;
	place->flags = flags;
	reply->places[reply->n_places++] = place;
	return md_place_ticket(md, call, place, request->ino, reply->generation, base, rights);
}

/*
 * What its tickets say. Who may only write gets no right to read, unless he has it open for reading
 * from a time when he could.
 */
static uint32_t ticket_rights(struct md_server *md, const struct md_session *session,
			      struct md_ctx *ctx, uint64_t ino, bool write)
{
	PbMeta__Attr attr = PB_META__ATTR__INIT;
	bool read = md_session_has_open(md, session, ino, MD_OPEN_READ) ||
		    md_state_may_open(ctx, ino, MD_OPEN_READ, &attr) == 0;

	return (read ? RPC_FILE_READ : 0) | (write ? RPC_FILE_WRITE : 0);
}

/* The places that fit the mode. As md_wait_for() if there is none. */
static int lease_places(struct md_server *md, struct rpc_call *call,
			const PbMeta__LeaseRequest *request, const struct md_inode *inode,
			const PbMeta__LayoutRecord *layout, uint32_t rights,
			PbMeta__LeaseReply *reply)
{
	struct choice choices[MD_COPIES_MAX];
	size_t count;
	int r = 0;

	reply->generation = generation_of(inode, layout);
	reply->places = rpc_call_alloc(call, MD_COPIES_MAX * sizeof(void *));
	if (!reply->places)
		return -EAGAIN;
	if (layout->writing != 0) {
		reply->from_generation = layout->from_generation;
		reply->growing = layout->growing;
		return add_place(md, call, layout->primary, layout->from_generation, 8, request,
				 rights, reply);
	}
	count = choose_copies(md, inode, layout, request, choices);
	if (count == 0 && !has_copy_of_all(inode, layout, false))
		return rpc_call_fail(call, -EIO, "no copy is left");
	if (count == 0)
		return wait_for_node(md, call, request->ino, -EHOSTUNREACH);
	for (size_t i = 0; r == 0 && i < count; i++) {
		const PbMeta__CopyRecord *copy = choices[i].copy;

		r = add_place(md, call, copy->node, md_copy_base(layout, copy), copy->flags,
			      request, rights & RPC_FILE_READ, reply);
	}
	return r;
}

/* Nobody is in the way any more. */
static int lease_give(struct md_server *md, struct rpc_call *call, struct md_session *session,
		      const PbMeta__LeaseRequest *request, struct md_ctx *ctx,
		      PbMeta__LeaseReply *reply)
{
	unsigned mode = md_access_mode(md->access, session->id, request->ino, request->write,
				       session->push);
	struct md_grant *grant = md_access_find(md->access, session->id, request->ino);
	bool had = grant != NULL;
	PbMeta__LayoutRecord *layout;
	struct md_inode inode;
	uint32_t rights;
	int r;

	/* What lease_prepare() has done counts. */
	r = md_file_get(ctx, request->ino, &inode, &layout);
	if (r == 0)
		r = attr_of(md, ctx, &inode, &reply->attr);
	if (r == 0)
		r = md_access_give(md->access, session->id, request->ino, mode, request->write,
				   &grant);
	if (r < 0)
		return r;
	reply->mode = mode;
	reply->size_max = SIZE_MAX_BYTES;
	reply->report_ms = REPORT_MS;
	rights = ticket_rights(md, session, ctx, request->ino, grant->write);
	if (rights == 0)
		r = rpc_call_fail(call, -EACCES, "no right to read it");
	else
		r = layout ? lease_places(md, call, request, &inode, layout, rights, reply)
			   : -EBADMSG;
	/* It may have begun to write: whoever has no answer has no lease, and it is recovered. */
	if (r != 0 && !had)
		md_access_drop(md->access, grant);
	return r;
}

int md_op_lease(struct rpc_call *call, const PbMeta__LeaseRequest *request,
		PbMeta__LeaseReply *reply)
{
	struct md_server *md = call->data;
	PbMeta__LayoutRecord *layout;
	struct md_session *session;
	struct md_inode inode;
	struct md_open *open;
	struct md_pending *pending = NULL;
	struct md_ctx ctx;
	int r;

	r = md_enter(md, call, &session);
	if (r == 0)
		r = md_open_find(session, request->handle, request->write ? MD_OPEN_WRITE : 0,
				 &open);
	if (r != 0)
		return r;
	if (open->ino != request->ino)
		return rpc_call_fail(call, -EBADF, "the handle is of another inode");
	if (request->n_avoid > AVOID_MAX)
		return rpc_call_fail(call, -E2BIG, "at most %u nodes to avoid", AVOID_MAX);
	pb_meta__lease_reply__init(reply); /* it may have been begun before */
	ctx = md_ctx_of(md, session, call);
	r = md_file_get(&ctx, request->ino, &inode, &layout);
	if (r == 0)
		r = lease_prepare(md, call, session, request, &inode, layout, &pending);
	if (r == 0 && is_inline(&inode) && !request->write &&
	    !md_access_find(md->access, session->id, request->ino))
		r = attr_of(md, &ctx, &inode, &reply->attr);
	else if (r == 0)
		r = lease_give(md, call, session, request, &ctx, reply);
	if (r == RPC_DEFERRED)
		return r;
	if (r == 0)
		md_show(md, session, reply->attr);
	session->need = GX_MAX(session->need, ctx.depends);
	r = md_settle(md, call, session, pending, GX_BROKEN(221) ? 0 : session->need, r, &ctx);
	if (pending && r != RPC_DEFERRED)
		session->pendings--;
	return r;
}

/* -- report ---------------------------------------------------------------------------------------
 */

/* Does it say anything about the content? Then it is a change. */
static bool report_tells(const PbMeta__ReportRequest *request)
{
	return request->has_size || request->changed || request->grown;
}

/* May this session say so? -ESTALE: its lease is lost. */
static int report_check(struct rpc_call *call, const PbMeta__ReportRequest *request,
			const struct md_grant *grant, const struct md_inode *inode,
			const PbMeta__LayoutRecord *layout)
{
	if (!grant)
		return rpc_call_fail(call, -ESTALE, "no lease");
	if (!layout || request->generation != generation_of(inode, layout))
		return rpc_call_fail(call, -ESTALE, "the generation has moved");
	if ((request->mode != 0 && request->mode != 1 && request->mode != 3) ||
	    (request->grown && !request->has_size))
		return -EINVAL;
	if (report_tells(request) && !grant->write)
		return rpc_call_fail(call, -EACCES, "no lease to write");
	if (report_tells(request) && layout->writing == 0)
		return rpc_call_fail(call, -ESTALE, "writing has not begun");
	return request->has_size && request->size > SIZE_MAX_BYTES ? -EFBIG : 0;
}

/* What the report means for the table of leases. */
static void report_done(struct md_server *md, const PbMeta__ReportRequest *request,
			struct md_grant *grant, bool gives)
{
	uint64_t ino = request->ino;
	bool write = grant->write;

	if (grant->asking && request->asked >= grant->ask) {
		grant->asking = false;
		grant->told_ns = grant->asked_ns;
	}
	if (gives) {
		md_access_drop(md->access, grant);
		if (write)
			md_recover(md, ino); /* if it has not been settled */
	} else if (request->mode == 3 || (request->grown && grant->mode == MD_ACCESS_SHARED)) {
		/* Also who cannot be told of the recall is in nobody's way any more. */
		md_access_share(md->access, grant);
	}
	md_jobs_look(md->jobs, ino);
	md_inode_news(md, ino);
}

/* It gives way or the lease back, and nothing in the state changes. */
static int report_plain(struct md_server *md, struct md_ctx *ctx, const struct md_inode *inode,
			PbMeta__ReportReply *reply)
{
	int r = attr_of(md, ctx, inode, &reply->attr);

	ctx->changed = false;
	return r;
}

int md_op_report(struct rpc_call *call, const PbMeta__ReportRequest *request,
		 PbMeta__ReportReply *reply)
{
	struct md_server *md = call->data;
	PbMeta__LayoutRecord *layout;
	struct md_session *session;
	struct md_command command;
	struct md_grant *grant;
	struct md_inode inode;
	struct md_ctx ctx;
	bool gives, growing;
	int r;

	r = md_change_enter(md, call, &session);
	if (r != 0)
		return r;
	ctx = md_ctx_of(md, session, call);
	r = md_file_get(&ctx, request->ino, &inode, &layout);
	grant = md_access_find(md->access, session->id, request->ino);
	if (r == 0)
		r = report_check(call, request, grant, &inode, layout);
	if (r < 0)
		return r;
	growing = layout->writing != 0 && layout->growing && !request->grown;
	/*
	 * Shared growing there is none: the inline content has one successor. And who only reads
	 * what nobody writes gives way to the next writer.
	 */
	gives = request->mode == 1 ||
		(request->mode == 3 && (growing || (!grant->write && layout->writing == 0)));
	command = md_command_of(md, session, call);
	/* With somebody about who may still write, only a new generation ends it (rule B2). */
	if (gives && grant->write && layout->writing != 0 &&
	    !md_access_has_writer(md->access, session->id, request->ino) &&
	    !md_access_is_tainted(md->access, request->ino))
		command.flags |= MD_COMMAND_SETTLE;
	if (report_tells(request) || (grant->write && layout->writing != 0))
		r = md_change_execute(md, call, &command, &ctx);
	else
		r = report_plain(md, &ctx, &inode, reply);
	if (r == 0) {
		md_show(md, session, reply->attr);
		report_done(md, request, grant, gives);
		md_jobs_written(md->jobs, request->ino);
	}
	return md_changed(md, call, session, &ctx, r);
}

/* -- where ----------------------------------------------------------------------------------------
 */

static int where_places(struct md_server *md, struct rpc_call *call, const struct md_inode *inode,
			const PbMeta__LayoutRecord *layout, PbMeta__WhereReply *reply)
{
	bool listed = layout->writing == 0;

	reply->places = rpc_call_alloc(call, (layout->n_copies + 1) * sizeof(void *));
	if (!reply->places)
		return -EAGAIN;
	for (size_t i = 0; i < layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = layout->copies[i];
		PbMeta__Place *place = md_place_new(md, call, copy->node);

		if (!place)
			return -EAGAIN;
		place->generation = copy->generation;
		place->flags = copy->flags;
		if (layout->writing != 0 && strcmp(copy->node, layout->primary) == 0) {
			place->flags |= 8;
			place->generation = layout->writing;
			listed = true;
		}
		reply->places[reply->n_places++] = place;
	}
	if (!listed && !is_inline(inode)) {
		PbMeta__Place *place = md_place_new(md, call, layout->primary);

		if (!place)
			return -EAGAIN;
		place->generation = layout->writing;
		place->flags = 8;
		reply->places[reply->n_places++] = place;
	}
	return 0;
}

int md_op_where(struct rpc_call *call, const PbMeta__WhereRequest *request,
		PbMeta__WhereReply *reply)
{
	struct md_server *md = call->data;
	PbMeta__LayoutRecord *layout;
	struct md_session *session;
	struct md_inode inode;
	struct md_ctx ctx;
	PbMeta__Attr attr = PB_META__ATTR__INIT;
	int64_t until;
	int r;

	r = md_enter(md, call, &session);
	if (r == 0)
		r = md_cap_check(md, request->ino, request->cap);
	if (r != 0)
		return r;
	ctx = md_ctx_of(md, session, call);
	r = md_file_get(&ctx, request->ino, &inode, &layout);
	/* Where the bytes are is for those who may have them. */
	if (r == 0)
		r = md_state_may_open(&ctx, request->ino, MD_OPEN_READ, &attr);
	if (r < 0)
		return md_looked(md, call, session, &ctx, r);
	if (layout && layout->writing != 0)
		md_recover(md, request->ino); /* if nobody writes it any more */
	until = GX_MIN(call->deadline_ns, call->start_ns + WHERE_WAIT_NS) - WHERE_EARLY_NS;
	if (request->wait && layout && gx_env_now_ns(md->env) < until &&
	    (layout->writing != 0 ||
	     (!is_inline(&inode) && md_layout_count(&inode, layout) < md_ncopy(&inode))))
		return md_wait_for(md, call, request->ino, until);
	reply->wanted = md_ncopy(&inode);
	reply->writing = layout && layout->writing != 0;
	r = attr_of(md, &ctx, &inode, &reply->attr);
	if (r == 0 && layout)
		r = where_places(md, call, &inode, layout, reply);
	if (r == 0)
		md_show(md, session, reply->attr);
	return md_looked(md, call, session, &ctx, r);
}

/* -- cache copies ---------------------------------------------------------------------------------
 */

static bool has_copy(const PbMeta__LayoutRecord *layout, const char *node)
{
	for (size_t i = 0; i < layout->n_copies; i++)
		if (strcmp(layout->copies[i]->node, node) == 0)
			return true;
	return false;
}

/* A node of this host that has no copy yet; NULL: none, or one of its nodes has one. */
static const char *cache_node(struct md_server *md, const PbMeta__LayoutRecord *layout,
			      const char *host, uint64_t bytes)
{
	struct md_placement_request wanted = {.client_host = host, .copies = 1, .bytes = bytes};
	const PbMeta__Node *node;
	const char *name;
	bool up;

	if (md_placement_most_free.choose(md->nodes, &wanted, &name, 1) == 0)
		return NULL;
	node = md_nodes_find(md->nodes, name, &up);
	if (!node || strcmp(node->host, host) != 0 || has_copy(layout, name))
		return NULL;
	return name;
}

int md_op_cache(struct rpc_call *call, const PbMeta__CacheRequest *request,
		PbMeta__CacheReply *reply GX_UNUSED)
{
	struct md_server *md = call->data;
	PbMeta__LayoutRecord *layout;
	struct md_session *session;
	struct md_inode inode;
	PbMeta__Attr attr = PB_META__ATTR__INIT;
	struct md_ctx ctx;
	const char *node;
	int r;

	r = md_enter(md, call, &session);
	if (r == 0)
		r = md_cap_check(md, request->ino, request->cap);
	if (r != 0)
		return r;
	ctx = md_ctx_of(md, session, call);
	r = md_state_may_open(&ctx, request->ino, MD_OPEN_READ, &attr);
	if (r == 0)
		r = md_file_get(&ctx, request->ino, &inode, &layout);
	if (r < 0)
		return r;
	if (!layout || layout->writing != 0 || layout->n_copies >= MD_COPIES_MAX)
		return 0; /* it is only a wish */
	node = cache_node(md, layout, request->host, inode.size);
	if (node && md_jobs_cache(md->jobs, node, request->ino, inode.generation) < 0)
		return -EAGAIN;
	return 0;
}
