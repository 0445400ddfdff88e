/*
 * Leases that are in somebody's way (rules B2, B4, N10, N12).
 *
 * Who wants what another session holds waits: its call is kept and simply runs again, from its
 * start, whenever something about the inode changes. So there is no state of a half-done lease, and
 * the order in which holders answer, vanish or come back does not matter.
 *
 * A holder that is asked to give way and does not, although it is there, loses its lease after
 * RECALL_NS; one that is silent after MD_LEASE_NS, as its caches do (rule N11). A writer that has
 * lost its lease without having given it back has left an object nobody knows the size of: the
 * generation moves, which shuts out whatever he still sends, and the primary tells.
 */
#define GX_LOG_COMPONENT "metad.access"
#include "metad/md_server_impl.h"
#include "common/gx_broken.h"
#include "common/gx_log.h"

#define RECALL_NS (10 * GX_NSEC_PER_SEC)

/* -- calls that wait ------------------------------------------------------------------------------
 */

/* As for calls that wait for the end of recovery. */
#define WAIT_BYTES_MAX (64u * 1024 * 1024)
#define WAIT_BYTES_PER_SESSION_MAX (8u * 1024 * 1024)

static struct md_wait_list *wait_list(struct md_server *md, uint64_t ino)
{
	struct md_wait_list *list;
	bool gx_hash_failed = false;

	HASH_FIND(hh, md->wait_lists, &ino, sizeof(ino), list);
	if (list)
		return list;
	list = calloc(1, sizeof(*list));
	if (!list)
		return NULL;
	list->ino = ino;
	HASH_ADD(hh, md->wait_lists, ino, sizeof(list->ino), list);
	if (!gx_hash_failed)
		return list;
	free(list);
	return NULL;
}

int md_wait_for(struct md_server *md, struct rpc_call *call, uint64_t ino, int64_t until_ns)
{
	struct md_session *session = md_session_get(md, call->session);
	size_t bytes = call->held_bytes + sizeof(*call) + sizeof(struct md_wait);
	struct md_wait_list *list;
	struct md_wait *wait;

	if (md->stopping)
		return -ESHUTDOWN;
	if (!session || md->wait_bytes + bytes > WAIT_BYTES_MAX ||
	    session->wait_bytes + bytes > WAIT_BYTES_PER_SESSION_MAX)
		return -EAGAIN;
	wait = calloc(1, sizeof(*wait));
	list = wait ? wait_list(md, ino) : NULL;
	if (!list) {
		free(wait);
		return -EAGAIN;
	}
	*wait = (struct md_wait){.list = list, .call = call, .bytes = bytes, .until_ns = until_ns};
	DL_APPEND(list->waits, wait);
	md->wait_count++;
	md->wait_bytes += bytes;
	session->wait_bytes += bytes;
	return RPC_DEFERRED;
}

static void make_ready(struct md_server *md, struct md_wait *wait)
{
	struct md_wait_list *list = wait->list;

	DL_DELETE(list->waits, wait);
	if (!list->waits) {
		HASH_DEL(md->wait_lists, list);
		free(list);
	}
	wait->list = NULL;
	DL_APPEND(md->ready, wait);
}

void md_inode_news(struct md_server *md, uint64_t ino)
{
	struct md_wait_list *list;
	struct md_wait *wait, *tmp;

	HASH_FIND(hh, md->wait_lists, &ino, sizeof(ino), list);
	if (!list)
		return;
	/* The list goes with its last. */
	for (wait = list->waits; wait; wait = tmp) {
		tmp = wait->next;
		make_ready(md, wait);
	}
	md_more_work(md);
}

void md_nodes_news(struct md_server *md)
{
	while (md->wait_lists)
		md_inode_news(md, md->wait_lists->ino);
}

void md_waits_work(struct md_server *md)
{
	struct md_wait *list = md->ready;

	md->ready = NULL;
	while (list) {
		struct md_wait *wait = list;
		struct rpc_call *call = wait->call;
		struct md_session *session = md_session_get(md, call->session);

		DL_DELETE(list, wait);
		md->wait_count--;
		md->wait_bytes -= wait->bytes;
		if (session)
			session->wait_bytes -= wait->bytes;
		free(wait);
		if (md->stopping)
			rpc_call_finish(call, -ESHUTDOWN);
		else
			rpc_call_run_again(call);
	}
}

void md_waits_stop(struct md_server *md)
{
	md_nodes_news(md);
	md_waits_work(md);
}

static void waits_tick(struct md_server *md, int64_t now)
{
	struct md_wait_list *list, *tmp;

	HASH_ITER (hh, md->wait_lists, list, tmp) {
		struct md_wait *wait;
		bool due = false;

		DL_FOREACH (list->waits, wait)
			due = due || now >= wait->until_ns || now >= wait->call->deadline_ns;
		if (due)
			md_inode_news(md, list->ino);
	}
}

/* -- giving way -----------------------------------------------------------------------------------
 */

static void lose(struct md_server *md, struct md_grant *grant, const char *reason)
{
	uint64_t ino = grant->ino;
	bool write = grant->write;

	if (write)
		gx_log(NOTICE, "a writer has lost its lease", GX_KU("ino", ino),
		       GX_KX("session", grant->session), GX_KS("reason", reason));
	md_access_lose(md->access, grant);
	if (write)
		md_recover(md, ino);
	md_inode_news(md, ino);
}

/* Who has no connection left and was not heard of for a lease has most likely ended. */
static bool is_gone(const struct md_session *holder, int64_t now)
{
	return !holder || holder->ending ||
	       (holder->connections == 0 && now - holder->contact_ns > MD_LEASE_NS);
}

/*
 * A writer that is in nobody's way, because all goes through the primary, but has ended without a
 * word: metad does not know how far it came (rule B2).
 */
static bool is_left_over(struct md_server *md, const struct md_grant *grant)
{
	return grant->write &&
	       is_gone(md_session_get(md, grant->session), gx_loop_now_ns(md->loop));
}

/* True: the grant is still there, and is to be waited for. */
static bool recall_one(struct md_server *md, struct md_grant *grant)
{
	struct md_session *holder = md_session_get(md, grant->session);

	if (is_gone(holder, gx_loop_now_ns(md->loop))) {
		lose(md, grant, "its session is over");
		return false;
	}
	/* Who has no push channel caches nothing: its next look at the primary tells it. */
	if (!grant->write && !holder->push && !holder->distrusted) {
		md_access_drop(md->access, grant);
		return false;
	}
	if (!grant->recalled) {
		md_access_recall(md->access, grant, gx_loop_now_ns(md->loop));
		if (holder->push)
			md_tell(md, holder, grant->ino, MD_TELL_RECALL, 0);
	}
	return true;
}

bool md_recall(struct md_server *md, struct md_session *session, uint64_t ino, bool write,
	       bool growing, bool begins)
{
	struct md_grant *grant, *next;
	bool waits = false;

	/* What is lost may be recovered at once, but that changes no other grant. */
	for (grant = md_access_first(md->access, ino); grant; grant = next) {
		next = grant->next;
		if (grant->session != session->id &&
		    (md_access_in_way(grant, write, growing) || begins ||
		     is_left_over(md, grant)) &&
		    !GX_BROKEN(204))
			waits |= recall_one(md, grant);
	}
	return waits;
}

/* Recalls are over after RECALL_NS; somebody else may have to be recalled then. */
static int wait_recalled(struct md_server *md, struct rpc_call *call, uint64_t ino)
{
	if (gx_env_now_ns(md->env) >= call->deadline_ns)
		return -EAGAIN;
	return md_wait_for(md, call, ino, gx_loop_now_ns(md->loop) + 2 * RECALL_NS);
}

int md_inline_enter(struct md_server *md, struct rpc_call *call, struct md_session *session,
		    uint64_t ino, bool write)
{
	struct md_ctx ctx = {.state = &md->state, .arena = &call->arena, .session = session->id};
	PbMeta__LayoutRecord *layout;

	if (!md_access_has_writer(md->access, session->id, ino) || GX_BROKEN(10))
		return 0;
	if (md_layout_get(&ctx, ino, &layout) < 0 || !layout || !layout->growing)
		return 0; /* it is not inline: the handler will say so */
	return md_recall(md, session, ino, write, true, false) ? wait_recalled(md, call, ino) : 0;
}

/* Has this writer told, or can he not be asked? If not he has been asked when this returns. */
static bool has_told(struct md_server *md, const struct rpc_call *call, struct md_grant *grant,
		     int64_t now)
{
	struct md_session *holder = md_session_get(md, grant->session);

	if (!holder || holder->ending || !holder->push || grant->told_ns >= call->start_ns)
		return true;
	/* One question at a time: who comes later asks again when the answer is there. */
	if (!grant->asking || now - grant->asked_ns >= md->ask_ns) {
		grant->asking = true;
		grant->asked_ns = now;
		grant->ask = ++md->asks;
		md_tell(md, holder, grant->ino, MD_TELL_SIZE, grant->ask);
	}
	return false;
}

int64_t md_ask_until(const struct md_server *md, const struct rpc_call *call)
{
	return GX_MIN(call->start_ns + md->ask_ns, call->deadline_ns);
}

bool md_ask_size(struct md_server *md, struct rpc_call *call, struct md_session *session,
		 uint64_t ino)
{
	int64_t now = gx_env_now_ns(md->env);
	struct md_grant *grant;
	bool waits = false;

	if (now >= md_ask_until(md, call) || GX_BROKEN(12))
		return false;
	for (grant = md_access_first(md->access, ino); grant; grant = grant->next)
		if (grant->write && grant->session != session->id)
			waits |= !has_told(md, call, grant, now);
	return waits;
}

/* -- writers that have vanished -------------------------------------------------------------------
 */

/* One step; *reply tells what there is to do for the primary. */
static int write_recover(struct md_server *md, uint64_t ino, bool settle, uint64_t size,
			 PbMeta__WriteRecoverReply *reply)
{
	PbMeta__WriteRecoverRequest request = PB_META__WRITE_RECOVER_REQUEST__INIT;

	request.ino = ino;
	request.settle = settle;
	request.size = size;
	return md_own_command(md, RPC_INDEX_WRITE_RECOVER, 0, &request.base, &reply->base, NULL);
}

void md_recover(struct md_server *md, uint64_t ino)
{
	PbMeta__WriteRecoverReply reply = PB_META__WRITE_RECOVER_REPLY__INIT;
	struct md_ctx ctx = {.state = &md->state, .arena = &md->arena};
	char primary[GX_NAME_USER_MAX + 1];
	PbMeta__LayoutRecord *layout;
	struct md_inode inode;
	bool settles;
	int r;

	/* Before all have reported there may be a writer; what is left then is found when asked
	 * for. */
	if (md->recovering || md->stopping || md_access_has_writer(md->access, 0, ino) ||
	    md_jobs_is_recovering(md->jobs, ino))
		return;
	r = md_file_get(&ctx, ino, &inode, &layout);
	if (r < 0 || !layout || layout->writing == 0) {
		rpc_arena_clear(&md->arena);
		return;
	}
	/* What was growing stays inline; else the generation moves, and the primary is asked. */
	settles = layout->growing || GX_BROKEN(202);
	r = gx_strcpy(primary, sizeof(primary), layout->primary);
	rpc_arena_clear(&md->arena);
	if (r == 0)
		r = write_recover(md, ino, settles, inode.size, &reply);
	if (r < 0) {
		/* A full log: whoever asks next tries again. */
		gx_log(WARNING, "cannot recover from a writer that has vanished", GX_KU("ino", ino),
		       GX_KE(r));
		return;
	}
	md_access_clean(md->access, ino);
	if (settles)
		md_inode_news(md, ino);
	else
		md_jobs_recover(md->jobs, primary, ino, reply.generation, reply.from_generation);
	gx_log(NOTICE, "the writer of a file has vanished", GX_KU("ino", ino),
	       GX_KS("primary", primary), GX_KU("generation", reply.generation));
}

void md_recovered(struct md_server *md, uint64_t ino, uint64_t generation, uint64_t size)
{
	PbMeta__WriteRecoverReply reply = PB_META__WRITE_RECOVER_REPLY__INIT;
	struct md_ctx ctx = {.state = &md->state, .arena = &md->arena};
	PbMeta__LayoutRecord *layout;
	bool wanted;

	wanted = md_layout_get(&ctx, ino, &layout) == 0 && layout &&
		 layout->writing == generation && !layout->growing;
	rpc_arena_clear(&md->arena);
	/* It may have been truncated or deleted meanwhile. */
	if (wanted && write_recover(md, ino, true, size, &reply) < 0)
		gx_log(WARNING, "cannot recover from a writer that has vanished",
		       GX_KU("ino", ino));
	md_jobs_look(md->jobs, ino);
	md_inode_news(md, ino);
}

/* -- the ends of leases ---------------------------------------------------------------------------
 */

void md_access_closed(struct md_server *md, struct md_session *session, uint64_t ino)
{
	struct md_grant *grant = md_access_find(md->access, session->id, ino);

	if (grant && !md_session_has_open(md, session, ino, 0))
		lose(md, grant, "closed without a report");
}

bool md_access_ended(struct md_server *md, struct md_session *session, unsigned steps)
{
	struct md_grant *grant;

	while ((grant = md_access_first_of(md->access, session->id)) != NULL && steps-- > 0)
		lose(md, grant, "its session is over");
	return grant == NULL;
}

void md_access_rejoined(struct md_server *md, struct md_session *session)
{
	struct md_grant *grant = md_access_first_of(md->access, session->id);

	for (; grant; grant = grant->of_next) {
		if (grant->recalled)
			md_tell(md, session, grant->ino, MD_TELL_RECALL, 0);
		if (grant->asking)
			md_tell(md, session, grant->ino, MD_TELL_SIZE, grant->ask);
	}
}

/* Who only reads, and may keep what it read, gives way to who writes, whoever came first. */
static void drop_readers(struct md_server *md, uint64_t ino)
{
	struct md_grant *grant, *next;

	for (grant = md_access_first(md->access, ino); grant; grant = next) {
		next = grant->next;
		if (grant->mode == MD_ACCESS_READ && !grant->write)
			md_access_drop(md->access, grant);
	}
}

/* Can it have what it says beside those who were there first? */
static bool fits(struct md_server *md, const struct md_session *session, uint64_t ino,
		 unsigned mode)
{
	const struct md_grant *grant = md_access_first(md->access, ino);

	for (; grant; grant = grant->next) {
		if (grant->session == session->id)
			continue;
		if ((mode == MD_ACCESS_EXCLUSIVE && grant->mode == MD_ACCESS_EXCLUSIVE) ||
		    (mode == MD_ACCESS_READ && grant->write))
			return false;
	}
	return true;
}

/*
 * One has it alone, and others share it: it was recalled, has given way, and does not know that
 * this was heard, since metad ended before it could answer. It holds nothing back as long as that
 * report is on its way, and is asked once more in case it has come to an end.
 */
static void recall_half_shared(struct md_server *md, uint64_t ino)
{
	struct md_grant *grant, *alone = NULL;
	bool shared = false;

	for (grant = md_access_first(md->access, ino); grant; grant = grant->next) {
		if (grant->mode == MD_ACCESS_EXCLUSIVE)
			alone = grant;
		shared = shared || grant->mode == MD_ACCESS_SHARED;
	}
	if (alone && shared)
		recall_one(md, alone);
}

void md_access_resume(struct md_server *md, struct md_session *session,
		      const PbMeta__OpenFile *file)
{
	struct md_ctx ctx = {.state = &md->state, .arena = &md->arena};
	bool write = file->lease_write && (file->flags & MD_OPEN_WRITE);
	PbMeta__LayoutRecord *layout;
	struct md_grant *grant;
	struct md_inode inode;
	bool valid, growing;

	valid = md_file_get(&ctx, file->ino, &inode, &layout) == 0 && layout &&
		file->lease <= MD_ACCESS_SHARED &&
		file->lease_generation ==
			(layout->writing != 0 ? layout->writing : inode.generation) &&
		(layout->writing != 0 || (file->lease != MD_ACCESS_EXCLUSIVE && !write));
	growing = valid && layout->growing;
	rpc_arena_clear(&md->arena);
	if (!valid)
		return; /* it was given back, or taken away */
	if (file->lease == MD_ACCESS_READ && !fits(md, session, file->ino, file->lease))
		return;
	if (write)
		drop_readers(md, file->ino);
	if (md_access_give(md->access, session->id, file->ino, file->lease, write, &grant) < 0)
		md_fatal(md, -ENOMEM);
	/* There may have been another writer, who died with what he had not told (rule B2). */
	if (write && file->lease == MD_ACCESS_SHARED && !growing)
		md_access_taint(grant);
	/* Two who each had it alone: what the second still sends must not count for ever. */
	if (!fits(md, session, file->ino, file->lease))
		lose(md, grant, "somebody else has it");
	else
		recall_half_shared(md, file->ino);
}

void md_access_tick(struct md_server *md, int64_t now)
{
	struct md_grant *grant = md_access_first_recalled(md->access), *next;

	/* Nobody can give way before all have reported; then each has its time. */
	for (; grant && !md->recovering; grant = next) {
		struct md_session *holder = md_session_get(md, grant->session);
		bool silent = is_gone(holder, now) ||
			      ((holder->push || holder->distrusted) &&
			       now - GX_MAX(holder->contact_ns, md->recovered_ns) > MD_LEASE_NS);

		next = grant->way_next;
		if (silent)
			lose(md, grant, "silent");
		else if (now - GX_MAX(grant->recalled_ns, md->recovered_ns) > RECALL_NS)
			lose(md, grant, "did not give way");
	}
	if (md->node_changes != md_nodes_changes(md->nodes)) {
		md->node_changes = md_nodes_changes(md->nodes);
		md_nodes_news(md);
		md_jobs_news(md->jobs);
	}
	waits_tick(md, now);
}
