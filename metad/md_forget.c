/*
 * Caches are leases (rule N11): who may have a changed thing in a cache is told to forget it, and
 * the change is answered when all have acknowledged or can no longer trust their caches.
 *
 * A session that has been told and does not acknowledge in time, or whose push channel broke, loses
 * all its connections and gets no answer. So its own clock ends its trust at the latest MD_LEASE_NS
 * after its last contact; nobody waits longer than that, itself included. When it comes back with a
 * new push channel its cache is empty, and all goes on at once.
 */
#define GX_LOG_COMPONENT "metad.lease"
#include "metad/md_server_impl.h"
#include "common/gx_broken.h"
#include "common/gx_log.h"

void md_lease(struct md_server *md, struct md_session *session, uint64_t ino, unsigned what)
{
	if (!session->push)
		return;
	/* The answer is on its way and the client will believe it: it has to be told otherwise. */
	if (md_lease_give(md->leases, session->lease_id, ino, what) < 0) {
		session->kick = true;
		md->kicks = true;
	}
}

void md_show(struct md_server *md, struct md_session *session, PbMeta__Attr *attr)
{
	md_fill_cap(md, attr);
	if (!(attr->flags & MD_INODE_WRITING))
		md_lease(md, session, attr->ino, MD_LEASE_ATTR);
}

#define LEASE_STEPS 4096u

static struct md_session *holder(struct md_server *md, uint64_t lease_id)
{
	struct md_session *session;

	HASH_FIND(hh_lease, md->lease_holders, &lease_id, sizeof(lease_id), session);
	return session;
}

int md_lease_join(struct md_server *md, struct md_session *session)
{
	bool gx_hash_failed = false;

	session->lease_id = ++md->lease_ids;
	HASH_ADD(hh_lease, md->lease_holders, lease_id, sizeof(session->lease_id), session);
	return gx_hash_failed ? -ENOMEM : 0;
}

void md_lease_part(struct md_server *md, struct md_session *session)
{
	struct md_old_leases *old;

	HASH_DELETE(hh_lease, md->lease_holders, session);
	if (md_lease_count_of(md->leases, session->lease_id) == 0)
		return;
	old = malloc(sizeof(*old));
	if (!old)
		md_fatal(md, -ENOMEM);
	*old = (struct md_old_leases){md->old_leases, session->lease_id};
	md->old_leases = old;
	md_more_work(md);
}

bool md_lease_work(struct md_server *md)
{
	struct md_old_leases *old = md->old_leases;

	if (old && md_lease_drop_session(md->leases, old->lease_id, LEASE_STEPS)) {
		md->old_leases = old->next;
		free(old);
	}
	return md->old_leases != NULL;
}

/* -- waiting ------------------------------------------------------------------------------------
 */

static void link_add(struct md_server *md, struct md_link **list, struct md_pending *pending)
{
	struct md_link *link = malloc(sizeof(*link));

	if (!link)
		md_fatal(md, -ENOMEM);
	*link = (struct md_link){*list, pending};
	*list = link;
	pending->tells++;
}

void md_links_release(struct md_server *md, struct md_link **list)
{
	struct md_link *link = *list;

	*list = NULL;
	while (link) {
		struct md_link *next = link->next;
		struct md_pending *pending = link->pending;

		free(link);
		link = next;
		if (md->freeing)
			continue; /* all calls have been ended */
		gx_assert(pending->tells > 0);
		if (--pending->tells == 0) {
			if (pending->touched_count > 0) {
				pending->touched_count = 0;
				md->unsettled--;
				md_links_release(md, &pending->links);
			}
			md_pending_check(md, pending);
		}
	}
}

/* Did the call look at something that this one has changed? */
static bool rests_on(const struct md_ctx *ctx, const struct md_pending *other)
{
	if (other->touched_count > 0 && ctx->seen_many)
		return true;
	for (size_t i = 0; i < other->touched_count; i++)
		for (size_t k = 0; k < ctx->seen_count; k++)
			if (other->touched[i] == ctx->seen[k])
				return true;
	return false;
}

bool md_is_unsettled(struct md_server *md, const struct md_ctx *ctx)
{
	struct md_pending *other;

	DL_FOREACH (md->waiting, other)
		if (rests_on(ctx, other))
			return true;
	return false;
}

void md_wait_settled(struct md_server *md, struct md_pending *pending, const struct md_ctx *ctx)
{
	struct md_pending *other;

	DL_FOREACH (md->waiting, other)
		if (rests_on(ctx, other))
			link_add(md, &other->links, pending);
}

/* -- telling --------------------------------------------------------------------------------------
 */

static void tell_done(struct md_server *md, struct md_tell *tell)
{
	struct md_link *links = tell->links;

	gx_assert(!tell->pushed);
	DL_DELETE(tell->session->tells, tell);
	if (tell->evicted)
		md->evictions--;
	free(tell);
	md_links_release(md, &links);
}

struct told {
	struct md_server *md;
	struct md_tell *tell;
};

static void on_told(void *arg, int err)
{
	struct told *told = arg;
	struct md_server *md = told->md;
	struct md_tell *tell = told->tell;

	free(told);
	tell->pushed = false;
	if (err == 0 || tell->over)
		tell_done(md, tell);
	/* Else its channel broke: the tick ends the waiting when its trust must have ended. */
}

/* Sends it; the tell stays until it has been acknowledged or does not matter any more. */
static struct md_tell *tell(struct md_server *md, struct md_session *session,
			    const PbMeta__ForgetRequest *request)
{
	struct md_tell *tell = calloc(1, sizeof(*tell));
	struct told *told = malloc(sizeof(*told));
	int r;

	if (!tell || !told)
		md_fatal(md, -ENOMEM);
	tell->session = session;
	tell->sent_ns = gx_loop_now_ns(md->loop);
	*told = (struct told){md, tell};
	DL_APPEND(session->tells, tell);
	r = rpc_server_push(md->rpc, session->id, RPC_FORGET, &request->base, on_told, told);
	tell->pushed = r == 0;
	if (r < 0) {
		free(told);
		session->kick = true;
		md->kicks = true;
	}
	return tell;
}

void md_tell(struct md_server *md, struct md_session *session, uint64_t ino, uint32_t what,
	     uint64_t ask)
{
	PbMeta__ForgetRequest request = PB_META__FORGET_REQUEST__INIT;
	PbMeta__Forget item = PB_META__FORGET__INIT, *items = &item;

	item.ino = ino;
	item.what = what;
	item.ask = ask;
	request.items = &items;
	request.n_items = 1;
	tell(md, session, &request);
}

void md_forget_over(struct md_server *md, struct md_session *session)
{
	struct md_tell *tell, *tmp;

	if (md_lease_count_of(md->leases, session->lease_id) > 0) {
		md_lease_part(md, session);
		if (md_lease_join(md, session) < 0)
			md_fatal(md, -ENOMEM);
	}
	DL_FOREACH_SAFE (session->tells, tell, tmp) {
		tell->over = true;
		if (!tell->pushed)
			tell_done(md, tell);
	}
	session->distrusted = false;
	/* Its calls were held back. */
	if (md->parked && !md->freeing)
		md_more_work(md);
}

void md_forget_tick(struct md_server *md, int64_t now)
{
	struct md_session *session, *tmp;

	HASH_ITER (hh, md->sessions, session, tmp) {
		if (session->tells && session->push &&
		    now - session->tells->sent_ns > MD_LEASE_NS) {
			gx_log(WARNING, "a client does not acknowledge: disconnected",
			       GX_KX("session", session->id), GX_KS("peer", session->remote),
			       GX_KS("identity", session->identity));
			session->kick = true;
			md->kicks = true;
		}
		if (session->distrusted && now > session->trust_ns)
			md_forget_over(md, session);
	}
}

void md_forget_evicted(void *arg, uint64_t id, uint64_t ino, unsigned what)
{
	PbMeta__ForgetRequest request = PB_META__FORGET_REQUEST__INIT;
	PbMeta__Forget items[2] = {PB_META__FORGET__INIT, PB_META__FORGET__INIT};
	PbMeta__Forget *pointers[2] = {&items[0], &items[1]};
	struct md_server *md = arg;
	struct md_session *session = holder(md, id);

	if (!session)
		return;
	request.items = pointers;
	if (what & MD_LEASE_ATTR) {
		items[request.n_items].ino = ino;
		items[request.n_items++].what = 1;
	}
	if (what & MD_LEASE_NAMES) {
		items[request.n_items].ino = ino;
		items[request.n_items++].what = 4;
	}
	tell(md, session, &request)->evicted = true;
	md->evictions++;
}

/* -- a change
 * ----------------------------------------------------------------------------------------- */

/* What sessions are to be told about one command. */
struct item {
	uint64_t session; /* its lease_id */
	uint64_t ino;
	uint32_t what;
	const char *name;
};

struct list {
	struct md_server *md;
	struct item *items;
	size_t count, room;
	const char *name;
};

static void collect(void *arg, uint64_t session, uint64_t ino, unsigned what, bool all)
{
	struct list *list = arg;
	struct item *item;

	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 16;
		struct item *items = realloc(list->items, room * sizeof(*items));

		if (!items)
			md_fatal(list->md, -ENOMEM);
		list->items = items;
		list->room = room;
	}
	item = &list->items[list->count++];
	*item = (struct item){.session = session, .ino = ino, .what = 1};
	if (what & MD_LEASE_NAMES) {
		item->what = all ? 4 : 2;
		item->name = all ? NULL : list->name;
	}
}

static int by_session(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return (x->session > y->session) - (x->session < y->session);
}

/* Tells a session all that is in the list for it, from items[0] on; how many items that were. */
static size_t tell_one(struct md_server *md, const struct item *list, size_t count,
		       struct md_pending *pending)
{
	PbMeta__Forget items[2 * MD_TOUCHED_MAX], *pointers[2 * MD_TOUCHED_MAX];
	PbMeta__ForgetRequest request = PB_META__FORGET_REQUEST__INIT;
	struct md_session *session = holder(md, list->session);
	size_t i;

	request.items = pointers;
	for (i = 0; i < count && list[i].session == list->session; i++) {
		PbMeta__Forget *out = &items[i];

		gx_assert(i < GX_COUNT_OF(items));
		pb_meta__forget__init(out);
		out->ino = list[i].ino;
		out->what = list[i].what;
		if (list[i].name)
			out->name = (char *)(uintptr_t)list[i].name;
		pointers[i] = out;
	}
	request.n_items = i;
	if (session)
		link_add(md, &tell(md, session, &request)->links, pending);
	return i;
}

/* All at once: there may be thousands, and a turn is short (rule N17). */
static void tell_all(struct md_server *md, struct list *list, struct md_pending *pending)
{
	if (list->count > 1)
		qsort(list->items, list->count, sizeof(*list->items), by_session);
	for (size_t i = 0; i < list->count;)
		i += tell_one(md, list->items + i, list->count - i, pending);
}

/* Evicted leases are not in the table any more, but who had them may still believe: wait as well.
 */
static void wait_evictions(struct md_server *md, struct md_session *by, struct md_pending *pending)
{
	struct md_session *session, *tmp;

	HASH_ITER (hh, md->sessions, session, tmp) {
		struct md_tell *tell, *newest = NULL;

		if (session == by)
			continue;
		/* They are acknowledged in order: the newest is enough. */
		DL_FOREACH (session->tells, tell)
			if (tell->evicted)
				newest = tell;
		if (newest)
			link_add(md, &newest->links, pending);
	}
}

void md_forget(struct md_server *md, struct md_session *by, const struct md_ctx *ctx,
	       struct md_pending *pending)
{
	struct list list = {.md = md};
	uint64_t id = by ? by->lease_id : 0;

	if (md_lease_count(md->leases) == 0 && md->evictions == 0)
		return;
	for (unsigned i = 0; i < ctx->touched_count; i++) {
		list.name = ctx->touched[i].name;
		md_lease_break(md->leases, id, ctx->touched[i].ino,
			       list.name ? MD_LEASE_NAMES : MD_LEASE_ATTR, collect, &list);
		/* What is in a cache is used without asking for rights. */
		if (ctx->touched[i].rights)
			md_lease_break(md->leases, id, ctx->touched[i].ino, MD_LEASE_ALL_NAMES,
				       collect, &list);
	}
	if (GX_BROKEN(11))
		list.count = 0;
	tell_all(md, &list, pending);
	free(list.items);
	if (md->evictions > 0)
		wait_evictions(md, by, pending);
	if (pending->tells == 0)
		return;
	for (unsigned i = 0; i < ctx->touched_count; i++)
		pending->touched[i] = ctx->touched[i].ino;
	pending->touched_count = ctx->touched_count;
	md->unsettled++;
}
