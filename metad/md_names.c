/*
 * Handlers that look: lookup, attributes, listings, content.
 */
#include "metad/md_server_impl.h"

struct md_ctx md_ctx_of(struct md_server *md, struct md_session *session, struct rpc_call *call)
{
	return (struct md_ctx){
		.state = &md->state,
		.cred = &session->user->cred,
		.arena = &call->arena,
		.session = session->id,
	};
}

/* Who asks, and may he name this inode? As md_enter(). */
static int begin(struct rpc_call *call, uint64_t ino, uint64_t cap, struct md_session **ret_session,
		 struct md_ctx *ret_ctx)
{
	struct md_server *md = call->data;
	int r = md_enter(md, call, ret_session);

	if (r == 0)
		r = md_cap_check(md, ino, cap);
	if (r == 0)
		*ret_ctx = md_ctx_of(md, *ret_session, call);
	return r;
}

/* The answer is err; it rests on what ctx says. */
int md_looked(struct md_server *md, struct rpc_call *call, struct md_session *session,
	      const struct md_ctx *ctx, int err)
{
	/* What it does next counts as its own, but rests on this: so it waits for it, too. */
	session->need = GX_MAX(session->need, ctx->depends);
	return md_settle(md, call, session, NULL, session->need, err, ctx);
}

/* Somebody may know the size better (rule N12): 0, or RPC_DEFERRED, as md_wait_for(). */
static int ask_size(struct rpc_call *call, struct md_session *session, const PbMeta__Attr *attr)
{
	struct md_server *md = call->data;

	if (!(attr->flags & MD_INODE_WRITING) || !md_ask_size(md, call, session, attr->ino))
		return 0;
	return md_wait_for(md, call, attr->ino, md_ask_until(md, call));
}

int md_op_lookup(struct rpc_call *call, const PbMeta__LookupRequest *request,
		 PbMeta__LookupReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_ctx ctx;
	int r;

	r = begin(call, request->parent, request->cap, &session, &ctx);
	if (r != 0)
		return r;
	r = md_state_lookup(&ctx, request, reply);
	if (r == 0)
		r = ask_size(call, session, reply->attr);
	if (r == RPC_DEFERRED)
		return r;
	if (r == 0)
		md_show(md, session, reply->attr);
	/* That a name is not there may be cached as well. */
	if (r == 0 || r == -ENOENT)
		md_lease(md, session, request->parent, MD_LEASE_NAMES);
	return md_looked(md, call, session, &ctx, r);
}

int md_op_getattr(struct rpc_call *call, const PbMeta__GetattrRequest *request,
		  PbMeta__GetattrReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_open *open;
	struct md_ctx ctx;
	int r;

	r = md_enter(md, call, &session);
	if (r != 0)
		return r;
	if (request->handle != 0) {
		r = md_open_find(session, request->handle, 0, &open);
		if (r == 0 && open->ino != request->ino)
			r = -EBADF;
	} else {
		r = md_cap_check(md, request->ino, request->cap);
	}
	if (r < 0)
		return r;
	ctx = md_ctx_of(md, session, call);
	r = md_state_getattr(&ctx, request, reply);
	if (r == 0)
		r = ask_size(call, session, reply->attr);
	if (r == RPC_DEFERRED)
		return r;
	if (r == 0)
		md_show(md, session, reply->attr);
	return md_looked(md, call, session, &ctx, r);
}

int md_op_readlink(struct rpc_call *call, const PbMeta__ReadlinkRequest *request,
		   PbMeta__ReadlinkReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_ctx ctx;
	int r;

	r = begin(call, request->ino, request->cap, &session, &ctx);
	if (r != 0)
		return r;
	r = md_state_readlink(&ctx, request, reply);
	return md_looked(md, call, session, &ctx, r);
}

/* What a page shows may be cached: its names and, if they are there, attributes. */
static void lease_page(struct md_server *md, struct md_session *session, uint64_t dir,
		       PbMeta__ReaddirReply *reply)
{
	md_lease(md, session, dir, MD_LEASE_NAMES);
	for (size_t i = 0; i < reply->n_entries; i++) {
		PbMeta__Attr *attr = reply->entries[i]->attr;

		if (attr)
			md_show(md, session, attr);
	}
}

/*
 * All are asked at once. The page is read again whenever one has told, into the same memory: with
 * half of that gone the last reports have to do.
 */
static int ask_page(struct rpc_call *call, struct md_session *session,
		    const PbMeta__ReaddirReply *reply)
{
	struct md_server *md = call->data;
	uint64_t ino = 0;

	if (call->arena.total > call->arena.bytes_max / 2)
		return 0;
	for (size_t i = 0; i < reply->n_entries; i++) {
		const PbMeta__Attr *attr = reply->entries[i]->attr;

		if (attr && (attr->flags & MD_INODE_WRITING) &&
		    md_ask_size(md, call, session, attr->ino))
			ino = attr->ino;
	}
	return ino != 0 ? md_wait_for(md, call, ino, md_ask_until(md, call)) : 0;
}

int md_op_readdir(struct rpc_call *call, const PbMeta__ReaddirRequest *request,
		  PbMeta__ReaddirReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_ctx ctx;
	int r;

	r = begin(call, request->ino, request->cap, &session, &ctx);
	if (r != 0)
		return r;
	pb_meta__readdir_reply__init(reply); /* it may have been begun before */
	r = md_state_readdir(&ctx, request, reply);
	if (r == 0 && request->plus)
		r = ask_page(call, session, reply);
	if (r == RPC_DEFERRED)
		return r;
	if (r == 0)
		lease_page(md, session, request->ino, reply);
	return md_looked(md, call, session, &ctx, r);
}

int md_op_getxattr(struct rpc_call *call, const PbMeta__GetxattrRequest *request,
		   PbMeta__GetxattrReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_ctx ctx;
	int r;

	r = begin(call, request->ino, request->cap, &session, &ctx);
	if (r != 0)
		return r;
	r = md_state_getxattr(&ctx, request, reply);
	return md_looked(md, call, session, &ctx, r);
}

int md_op_listxattr(struct rpc_call *call, const PbMeta__ListxattrRequest *request,
		    PbMeta__ListxattrReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_ctx ctx;
	int r;

	r = begin(call, request->ino, request->cap, &session, &ctx);
	if (r != 0)
		return r;
	r = md_state_listxattr(&ctx, request, reply);
	return md_looked(md, call, session, &ctx, r);
}

/* Who has the lease to write and lets the file grow out of metad must have its bytes (rule N10). */
static int find_reader(struct md_server *md, struct md_session *session, uint64_t handle, bool any,
		       struct md_open **ret_open)
{
	const struct md_grant *grant;
	int r = md_open_find(session, handle, any ? 0 : MD_OPEN_READ, ret_open);

	if (r == 0 || any || md_open_find(session, handle, MD_OPEN_WRITE, ret_open) < 0)
		return r;
	grant = md_access_find(md->access, session->id, (*ret_open)->ino);
	return grant != NULL && grant->write ? 0 : r;
}

int md_op_read(struct rpc_call *call, const PbMeta__ReadRequest *request, PbMeta__ReadReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session;
	struct md_open *open;
	const void *data = NULL;
	struct md_ctx ctx;
	size_t bytes = 0;
	int r;

	r = md_enter(md, call, &session);
	if (r == 0)
		r = find_reader(md, session, request->handle, request->bytes == 0, &open);
	if (r == 0)
		r = md_inline_enter(md, call, session, open->ino, false);
	if (r != 0)
		return r;
	ctx = md_ctx_of(md, session, call);
	r = md_state_read(&ctx, open->ino, request->offset, request->bytes, reply, &data, &bytes);
	if (r == 0) {
		call->reply_payload = data;
		call->reply_payload_bytes = bytes;
		md_show(md, session, reply->attr);
	}
	return md_looked(md, call, session, &ctx, r);
}
