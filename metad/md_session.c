/*
 * Sessions: who is connected, what they have open, what they did last (rules N4, N5, N9).
 */
#define GX_LOG_COMPONENT "metad.session"
#include "metad/md_server_impl.h"
#include "common/gx_broken.h"
#include "common/gx_limits.h"
#include "common/gx_log.h"
#include "rpc/rpc_status.h"

#define SESSIONS_MAX 65536u
#define SESSIONS_PER_IDENTITY_MAX 8192u
/* Work of one turn (rule N17). */
#define CLOSE_STEPS 256u
#define REAP_STEPS 64u
/* Two ticks further apart than this: the process was stopped, or its machine. */
#define DEAF_NS GX_NSEC_PER_SEC

struct md_session *md_session_get(struct md_server *md, uint64_t id)
{
	struct md_session *session;

	HASH_FIND(hh, md->sessions, &id, sizeof(id), session);
	return session;
}

static bool is_user(const char *identity)
{
	enum rpc_identity_kind kind;

	return rpc_identity_parse(identity, &kind) == 0 && kind == RPC_IDENTITY_USER;
}

static const struct md_user *user_of(const struct md_server *md, const char *identity)
{
	if (!is_user(identity))
		return NULL;
	return md_users_by_name(md->users, rpc_identity_name(identity));
}

static int session_make(struct md_server *md, uint64_t id, const char *identity,
			struct md_session **ret_session)
{
	struct md_session *session = calloc(1, sizeof(*session));
	bool gx_hash_failed = false;
	int r;

	if (!session)
		return -ENOMEM;
	session->id = id;
	session->fresh_from = 1;
	session->contact_ns = gx_env_now_ns(md->env);
	r = gx_strcpy(session->identity, sizeof(session->identity), identity);
	if (r == 0)
		r = md_lease_join(md, session);
	if (r < 0) {
		free(session);
		return r;
	}
	HASH_ADD(hh, md->sessions, id, sizeof(session->id), session);
	if (gx_hash_failed) {
		HASH_DELETE(hh_lease, md->lease_holders, session);
		free(session);
		return -ENOMEM;
	}
	session->user = user_of(md, identity);
	*ret_session = session;
	return 0;
}

void md_sessions_users(struct md_server *md)
{
	struct md_session *session, *tmp;

	HASH_ITER (hh, md->sessions, session, tmp)
		session->user = user_of(md, session->identity);
}

static size_t sessions_of(const struct md_server *md, const char *identity)
{
	const struct md_session *session, *tmp;
	size_t count = 0;

	/* Only where there are many: everybody's share is larger than this. */
	if (HASH_COUNT(md->sessions) < SESSIONS_PER_IDENTITY_MAX)
		return 0;
	HASH_ITER (hh, md->sessions, session, tmp)
		count += strcmp(session->identity, identity) == 0;
	return count;
}

int md_session_log(struct md_server *md, struct md_session *session)
{
	PbMeta__SessionOpenRequest request = PB_META__SESSION_OPEN_REQUEST__INIT;
	PbMeta__SessionOpenReply reply = PB_META__SESSION_OPEN_REPLY__INIT;
	int r;

	if (session->logged)
		return 0;
	request.identity = session->identity;
	r = md_own_command(md, RPC_INDEX_SESSION_OPEN, session->id, &request.base, &reply.base,
			   &session->open_index);
	session->logged = r == 0;
	return r;
}

/*
 * With a full log no range can be reserved, and who only wants to look shall not be turned away for
 * that: such ids are random, in the upper half where no range will come for a long time.
 */
static int session_id(struct md_server *md, uint64_t *ret_id)
{
	int r;

	if (md_take_session_id(md, ret_id) == 0)
		return 0;
	r = gx_env_random(md->env, ret_id, sizeof(*ret_id));
	*ret_id |= UINT64_C(1) << 63;
	return r == 0 && md_session_get(md, *ret_id) ? -EAGAIN : r;
}

static int open_session(struct md_server *md, const struct rpc_peer *peer,
			struct md_session **ret_session)
{
	struct md_session *session;
	uint64_t id;
	int r;

	if (HASH_COUNT(md->sessions) >= SESSIONS_MAX ||
	    sessions_of(md, peer->identity) >= SESSIONS_PER_IDENTITY_MAX)
		return -EAGAIN;
	r = session_id(md, &id);
	if (r == 0)
		r = session_make(md, id, peer->identity, &session);
	if (r < 0)
		return r;
	/* Without room in the log it may look, but not change anything until there is. */
	GX_IGNORE(md_session_log(md, session));
	*ret_session = session;
	return 0;
}

int md_session_find_or_make(void *arg, const struct rpc_peer *peer, uint64_t asked,
			    uint64_t *ret_session, bool *ret_known)
{
	struct md_server *md = arg;
	struct md_session *session = asked ? md_session_get(md, asked) : NULL;
	int r = 0;

	if (session && (session->ending || strcmp(session->identity, peer->identity) != 0))
		session = NULL;
	*ret_known = session != NULL;
	if (!session)
		r = open_session(md, peer, &session);
	if (r < 0)
		return r;
	if (!session->distrusted)
		session->contact_ns = gx_loop_now_ns(md->loop);
	*ret_session = session->id;
	return 0;
}

static void on_attached(void *arg, uint64_t id, bool push, const char *program, const char *remote)
{
	struct md_server *md = arg;
	struct md_session *session = md_session_get(md, id);

	if (!session)
		return;
	session->connections++;
	GX_IGNORE(gx_strcpy(session->program, sizeof(session->program), program));
	GX_IGNORE(gx_strcpy(session->remote, sizeof(session->remote), remote));
	if (push) {
		/* Its cache is empty: it empties it before it asks for a channel. */
		session->push = session->pushed = true;
		session->kick = false;
		md_forget_over(md, session);
		md_access_rejoined(md, session);
	}
}

static void on_detached(void *arg, uint64_t id, bool push)
{
	struct md_server *md = arg;
	struct md_session *session = md_session_get(md, id);

	if (!session)
		return;
	gx_assert(session->connections > 0);
	session->connections--;
	if (session->ending)
		md_more_work(md);
	if (push && session->push) {
		/*
		 * It can no longer be told anything, and may not know. It gets no more answers,
		 * which would renew its trust in its cache, until it has a new channel or that
		 * trust must have ended (N11); its connections go, so that it notices.
		 */
		session->push = false;
		session->distrusted = true;
		session->trust_ns = session->contact_ns + MD_LEASE_NS;
		session->kick = true;
		md->kicks = true;
	}
}

const struct rpc_session_events md_session_events = {
	.attached = on_attached,
	.detached = on_detached,
};

int md_enter(struct md_server *md, struct rpc_call *call, struct md_session **ret_session)
{
	struct md_session *session = md_session_get(md, call->session);

	if (!session || session->ending)
		return rpc_call_fail(call, -ENOTRECOVERABLE, "the session is over");
	*ret_session = session;
	/* An answer would renew its trust in a cache that it may not know to be stale (N11). */
	if (session->distrusted)
		return md_park(md, call, false);
	session->contact_ns = gx_loop_now_ns(md->loop);
	if (!session->user)
		return rpc_call_fail(call, -EACCES, "%s is not in the grid's table of users",
				     session->identity);
	return md->recovering ? md_park(md, call, false) : 0;
}

/* -- open files ---------------------------------------------------------------------------------
 */

int md_open_find(struct md_session *session, uint64_t handle, uint32_t want,
		 struct md_open **ret_open)
{
	struct md_open *open;

	HASH_FIND(hh, session->opens, &handle, sizeof(handle), open);
	if (!open || (open->flags & want) != want)
		return -EBADF;
	*ret_open = open;
	return 0;
}

static struct md_open_inode *open_inode(struct md_server *md, uint64_t ino)
{
	struct md_open_inode *inode;

	HASH_FIND(hh, md->open_inodes, &ino, sizeof(ino), inode);
	return inode;
}

static int link_open(struct md_server *md, struct md_open *open)
{
	struct md_open_inode *inode = open_inode(md, open->ino);
	bool gx_hash_failed = false;

	if (!inode) {
		inode = calloc(1, sizeof(*inode));
		if (!inode)
			return -ENOMEM;
		inode->ino = open->ino;
		HASH_ADD(hh, md->open_inodes, ino, sizeof(inode->ino), inode);
		if (gx_hash_failed) {
			free(inode);
			return -ENOMEM;
		}
	}
	DL_APPEND(inode->opens, open);
	return 0;
}

static void reap(struct md_server *md, uint64_t ino)
{
	PbMeta__ReapRequest request = PB_META__REAP_REQUEST__INIT;
	PbMeta__ReapReply reply = PB_META__REAP_REPLY__INIT;

	request.ino = ino;
	/* Without room in the log it stays; all orphans are looked at again then. */
	if (md_own_command(md, RPC_INDEX_REAP, 0, &request.base, &reply.base, NULL) < 0)
		md->reaping = true;
}

static void unlink_open(struct md_server *md, struct md_open *open)
{
	struct md_open_inode *inode = open_inode(md, open->ino);
	bool orphan;

	gx_assert(inode);
	DL_DELETE(inode->opens, open);
	if (inode->opens)
		return;
	orphan = inode->orphan;
	HASH_DEL(md->open_inodes, inode);
	free(inode);
	/* During recovery somebody else may still say that it is open (rule N9). */
	if (orphan && !md->recovering && !md->stopping)
		reap(md, open->ino);
}

bool md_session_has_open(struct md_server *md, const struct md_session *session, uint64_t ino,
			 uint32_t want)
{
	const struct md_open_inode *inode = open_inode(md, ino);
	const struct md_open *open;

	if (!inode)
		return false;
	DL_FOREACH (inode->opens, open)
		if (open->session == session && (open->flags & want) == want)
			return true;
	return false;
}

bool md_open_room(const struct md_server *md, const struct md_session *session)
{
	const struct md_session *other, *tmp;
	size_t count = 0;

	if (HASH_COUNT(session->opens) >= MD_OPENS_PER_SESSION_MAX ||
	    md->open_count >= MD_OPENS_MAX)
		return false;
	/* Nobody takes so much that others get nothing; asked only when there are many. */
	if (md->open_count < MD_OPENS_MAX / 2)
		return true;
	HASH_ITER (hh, md->sessions, other, tmp)
		if (strcmp(other->identity, session->identity) == 0)
			count += HASH_COUNT(other->opens);
	return count < MD_OPENS_MAX / 4;
}

int md_open_add(struct md_server *md, struct md_session *session, uint64_t handle, uint64_t ino,
		uint32_t flags)
{
	bool gx_hash_failed = false;
	struct md_open *open;
	int r;

	if (md_open_find(session, handle, 0, &open) == 0) {
		if (open->ino == ino)
			return 0; /* the same mutation, sent again */
		/* So is this, but by now the name leads elsewhere: nobody knows of the first. */
		md_open_close(md, session, open);
	}
	if (!md_open_room(md, session))
		return -EMFILE;
	open = malloc(sizeof(*open));
	if (!open)
		return -ENOMEM;
	*open = (struct md_open){.handle = handle, .ino = ino, .flags = flags, .session = session};
	r = link_open(md, open);
	if (r == 0) {
		HASH_ADD(hh, session->opens, handle, sizeof(open->handle), open);
		if (gx_hash_failed) {
			unlink_open(md, open);
			r = -ENOMEM;
		}
	}
	if (r < 0) {
		free(open);
		return r;
	}
	md->open_count++;
	return 0;
}

void md_open_close(struct md_server *md, struct md_session *session, struct md_open *open)
{
	uint64_t ino = open->ino;

	HASH_DEL(session->opens, open);
	md->open_count--;
	unlink_open(md, open);
	free(open);
	if (md->freeing)
		return;
	md_access_closed(md, session, ino);
	md_locking_closed(md, session, ino);
}

void md_open_close_all(struct md_server *md, struct md_session *session, uint64_t ino)
{
	for (;;) {
		struct md_open_inode *inode = open_inode(md, ino);
		struct md_open *open = inode ? inode->opens : NULL;

		while (open && open->session != session)
			open = open->next;
		if (!open)
			return;
		md_open_close(md, session, open);
	}
}

bool md_is_open(void *arg, uint64_t ino)
{
	struct md_server *md = arg;
	struct md_open_inode *inode = open_inode(md, ino);

	if (inode)
		inode->orphan = true;
	/* Before all have reported, everything may be open. */
	return inode || (md->recovering && !GX_BROKEN(9));
}

/* -- the end of a session -------------------------------------------------------------------------
 */

/* One turn's share of what a session leaves behind; true: nothing is left in the state. */
static bool end_piece(struct md_server *md, struct md_session *session)
{
	PbMeta__SessionEndRequest request = PB_META__SESSION_END_REQUEST__INIT;
	PbMeta__SessionEndReply reply = PB_META__SESSION_END_REPLY__INIT;
	struct md_open *open, *tmp;
	unsigned steps = 0;

	if (!md_locking_ended(md, session, CLOSE_STEPS) ||
	    !md_access_ended(md, session, CLOSE_STEPS))
		return false;
	HASH_ITER (hh, session->opens, open, tmp) {
		if (steps++ == CLOSE_STEPS)
			return false;
		md_open_close(md, session, open);
	}
	if (session->logged) {
		if (md_own_command(md, RPC_INDEX_SESSION_END, session->id, &request.base,
				   &reply.base, NULL) < 0 ||
		    !reply.gone)
			return false;
		session->logged = false;
	}
	return true;
}

void md_session_end(struct md_server *md, struct md_session *session, const char *reason)
{
	if (session->ending)
		return;
	gx_log(INFO, "session ends", GX_KX("session", session->id),
	       GX_KS("identity", session->identity), GX_KS("reason", reason));
	session->ending = true;
	md->endings++;
	md_forget_over(md, session); /* it gets no more answers */
	if (session->awaited) {
		session->awaited = false;
		md->awaited--;
		md->recovery_ends = true;
		md_more_work(md);
	}
	/* At once, if it is little: a restart would wait for a session that has left. */
	GX_IGNORE(end_piece(md, session));
	md_more_work(md);
}

int md_session_end_for_sure(struct md_server *md, struct md_session *session, const char *reason,
			    uint64_t *ret_index)
{
	PbMeta__SessionEndRequest request = PB_META__SESSION_END_REQUEST__INIT;
	PbMeta__SessionEndReply reply = PB_META__SESSION_END_REPLY__INIT;
	int r = 0;

	*ret_index = 0;
	/* Its record goes with the first piece. */
	if (session->logged)
		r = md_own_command(md, RPC_INDEX_SESSION_END, session->id, &request.base,
				   &reply.base, ret_index);
	if (r == 0)
		md_session_end(md, session, reason);
	return r;
}

/* The rest of it. */
static void end_one(struct md_server *md, struct md_session *session)
{
	if (session->connections > 0) {
		session->kick = true;
		md->kicks = true;
	}
	if (!end_piece(md, session)) {
		if (md_log_room(md->log, 4096))
			md_more_work(md);
		return;
	}
	/* Calls that wait and connections that are going still mean it. */
	if (session->tells || session->pendings > 0 || session->connections > 0)
		return;
	md_lease_part(md, session);
	HASH_DEL(md->sessions, session);
	free(session);
	md->endings--;
}

static void end_pieces(struct md_server *md)
{
	struct md_session *session, *tmp;

	HASH_ITER (hh, md->sessions, session, tmp) {
		if (session->ending)
			end_one(md, session);
	}
}

/* Orphans that nobody has declared open go, a few per turn. */
static void reap_pieces(struct md_server *md)
{
	uint64_t inos[REAP_STEPS];
	size_t count = md_state_orphans(&md->state, &md->reap_from, inos, REAP_STEPS);

	md->reaping = md->reap_from != 0;
	for (size_t i = 0; i < count; i++) {
		struct md_open_inode *inode = open_inode(md, inos[i]);

		if (inode)
			inode->orphan = true;
		else
			reap(md, inos[i]);
	}
	if (md->reaping && md->reap_from != 0)
		md_more_work(md);
}

void md_sessions_work(struct md_server *md)
{
	if (md->recovery_ends)
		md_recovery_check(md);
	md->recovery_ends = false;
	if (md_lease_work(md))
		md_more_work(md);
	if (md->endings > 0)
		end_pieces(md);
	if (md->reaping && !md->recovering)
		reap_pieces(md);
}

/* Time in which we did not listen is held against nobody (rule N15). */
static void forgive(struct md_server *md, int64_t now)
{
	int64_t gap = now - md->ticked_ns;
	struct md_session *session, *tmp;

	md->ticked_ns = now;
	if (gap < DEAF_NS)
		return;
	gx_log(WARNING, "this daemon did not run for a while; silence in it does not count",
	       GX_KI("ms", gap / GX_NSEC_PER_MSEC));
	md->recovery_deadline_ns += gap;
	md_access_forgive(md->access, gap);
	md_locking_forgive(md, gap);
	HASH_ITER (hh, md->sessions, session, tmp) {
		struct md_tell *tell;

		session->contact_ns += gap;
		DL_FOREACH (session->tells, tell)
			tell->sent_ns += gap;
	}
}

void md_sessions_tick(struct md_server *md, int64_t now)
{
	struct md_session *session, *tmp;

	forgive(md, now);
	if (md->recovering && now >= md->recovery_deadline_ns) {
		gx_log(WARNING, "recovery ends without all sessions",
		       GX_KU("missing", md->awaited));
		md->awaited = 0;
		md_recovery_check(md);
	}
	HASH_ITER (hh, md->sessions, session, tmp) {
		if (!session->ending && session->pendings == 0 &&
		    now - session->contact_ns > md->options.session_timeout_ns)
			md_session_end(md, session, "no contact");
	}
	if (md->endings > 0 || md->reaping)
		md_more_work(md);
}

static void free_opens(struct md_server *md, struct md_session *session)
{
	struct md_open *open, *tmp;

	HASH_ITER (hh, session->opens, open, tmp)
		md_open_close(md, session, open);
}

void md_sessions_free(struct md_server *md)
{
	struct md_session *session, *tmp;

	HASH_ITER (hh, md->sessions, session, tmp) {
		free_opens(md, session);
		md_forget_over(md, session);
		HASH_DELETE(hh_lease, md->lease_holders, session);
		HASH_DEL(md->sessions, session);
		free(session);
	}
}

/* -- recovery
 * ---------------------------------------------------------------------------------------- */

static int load_one(void *arg, uint64_t id, const char *identity)
{
	struct md_server *md = arg;
	struct md_session *session;
	int r = session_make(md, id, identity, &session);

	if (r < 0)
		return r;
	session->logged = true;
	/* Any number may be in the table, until the client says which are new. */
	session->fresh_from = UINT64_MAX;
	/* Daemons have nothing to report: they open no files. */
	session->awaited = is_user(identity);
	md->awaited += session->awaited;
	return 0;
}

/* Results of sessions that had begun to end. With a full log they stay until the next start. */
static void sweep_rings(struct md_server *md)
{
	uint64_t from = 0, id;

	while (md_state_next_ring(&md->state, from, &id)) {
		PbMeta__SessionEndRequest request = PB_META__SESSION_END_REQUEST__INIT;
		PbMeta__SessionEndReply reply = PB_META__SESSION_END_REPLY__INIT;

		if (!md_session_get(md, id) && md_own_command(md, RPC_INDEX_SESSION_END, id,
							      &request.base, &reply.base, NULL) < 0)
			return;
		if (md_session_get(md, id) || reply.gone)
			from = id + 1;
	}
}

int md_sessions_load(struct md_server *md)
{
	int r = md_state_each_session(&md->state, load_one, md);

	if (r < 0)
		return gx_log_errno(ERR, r, "cannot read the sessions");
	sweep_rings(md);
	md->recovering = true;
	md->ticked_ns = gx_env_now_ns(md->env);
	md->recovery_deadline_ns = md->ticked_ns + md->options.recovery_ns;
	md_recovery_check(md);
	return 0;
}

void md_recovery_check(struct md_server *md)
{
	struct md_session *session, *tmp;

	if (!md->recovering || (md->awaited > 0 && !GX_BROKEN(4)))
		return;
	md->recovering = false;
	md->recovered_ns = gx_env_now_ns(md->env);
	HASH_ITER (hh, md->sessions, session, tmp) {
		session->late = session->awaited;
		session->awaited = false;
	}
	gx_log(INFO, "recovery is over", GX_KU("sessions", HASH_COUNT(md->sessions)),
	       GX_KU("open_files", md->open_count));
	md->reaping = true;
	md->reap_from = 0;
	md_jobs_news(md->jobs);
	md_more_work(md);
	md_unpark(md);
}

/* -- the replay table
 * ------------------------------------------------------------------------------ */

/* A file that was opened in an earlier life of ours, by an answer that got lost, is open now. */
static int open_again(struct md_server *md, struct md_session *session, struct rpc_call *call,
		      const struct md_result *result)
{
	const PbMeta__OpenRequest *request = (const PbMeta__OpenRequest *)call->request;
	const PbMeta__OpenReply *reply;
	ProtobufCMessage *message;
	int r;

	r = rpc_arena_unpack(&call->arena, call->method->reply, result->reply, result->reply_bytes,
			     &message);
	if (r < 0)
		return -EAGAIN;
	reply = (const PbMeta__OpenReply *)message;
	r = reply->attr ? md_open_add(md, session, reply->handle, reply->attr->ino,
				      request->flags & (MD_OPEN_READ | MD_OPEN_WRITE))
			: -EBADMSG;
	return r == -ENOMEM ? -EAGAIN : r;
}

/* It was done before: the same answer again. */
static int answer_again(struct md_server *md, struct md_session *session, struct rpc_call *call,
			const struct md_result *result)
{
	void *copy;
	int r;

	if (result->method != call->frame.code ||
	    result->check != md_check_with(call->request_check, call))
		return rpc_call_fail(call, -EPROTO, "sequence number used for another request");
	if (result->method == RPC_OPEN) {
		r = open_again(md, session, call, result);
		if (r < 0)
			return r;
	}
	copy = rpc_call_alloc(call, result->reply_bytes);
	if (!copy)
		return -EAGAIN;
	memcpy(copy, result->reply, result->reply_bytes);
	rpc_call_answer(call, RPC_STATUS_OK, copy, (uint32_t)result->reply_bytes);
	return RPC_ANSWERED;
}

static struct md_pending *find_running(struct md_session *session, uint64_t seq)
{
	struct md_pending *pending;

	DL_FOREACH2(session->running, pending, run_next)
	if (pending->seq == seq)
		return pending;
	return NULL;
}

static int replay_begin(struct rpc_replay *replay, struct rpc_call *call)
{
	struct md_server *md = GX_CONTAINER_OF(replay, struct md_server, replay);
	struct md_session *session = md_session_get(md, call->session);
	uint64_t seq = call->frame.seq;
	struct md_pending *pending;
	struct md_result result;

	if (!session || session->ending)
		return rpc_call_fail(call, -ENOTRECOVERABLE, "the session is over");
	if (call->frame.window == 0 || call->frame.window > seq)
		return rpc_call_fail(call, -EPROTO, "impossible replay window");
	if (call->frame.window > GX_UNSYNCED_PER_SESSION_MAX)
		return rpc_call_fail(call, -E2BIG, "too many results not acknowledged");
	/* An answer would renew its trust (md_enter); what it is told of now is "again". */
	if (session->distrusted)
		return -EAGAIN;
	session->contact_ns = gx_loop_now_ns(md->loop);
	session->acked = GX_MAX(session->acked, seq - call->frame.window);
	if (seq <= session->acked)
		return rpc_call_fail(call, -ENOTRECOVERABLE, "it was given up before");
	pending = find_running(session, seq);
	if (pending) {
		if (pending->call->frame.code != call->frame.code ||
		    md_check_with(pending->call->request_check, pending->call) !=
			    md_check_with(call->request_check, call))
			return rpc_call_fail(call, -EPROTO,
					     "sequence number used for another request");
		call->next = pending->waiters;
		pending->waiters = call;
		return RPC_DEFERRED;
	}
	if (seq < session->fresh_from && call->frame.code != RPC_REPLAY && !GX_BROKEN(5) &&
	    md_state_recall(&md->state, session->id, seq, &result) == 0) {
		if (result.seq == seq)
			return answer_again(md, session, call, &result);
		if (result.seq > seq)
			return rpc_call_fail(call, -ENOTRECOVERABLE,
					     "its result was acknowledged before");
	}
	if (session->fresh_from != UINT64_MAX)
		session->fresh_from = GX_MAX(session->fresh_from, seq + 1);
	pending = md_pending_new(session, call);
	if (!pending)
		return -EAGAIN;
	pending->seq = seq;
	pending->is_mutation = true;
	DL_APPEND2(session->running, pending, run_prev, run_next);
	call->replay_data = pending;
	return 0;
}

static void replay_finish(struct rpc_replay *replay GX_UNUSED, struct rpc_call *call,
			  const struct rpc_frame *frame, const void *message)
{
	struct md_pending *pending = call->replay_data;
	struct md_session *session = pending->session;

	DL_DELETE2(session->running, pending, run_prev, run_next);
	session->pendings--;
	while (pending->waiters) {
		struct rpc_call *waiter = pending->waiters;

		pending->waiters = waiter->next;
		rpc_call_answer(waiter, frame->code, message, frame->message_bytes);
	}
}

const struct rpc_replay_ops md_replay_ops = {.begin = replay_begin, .finish = replay_finish};
