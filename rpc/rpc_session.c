#include "rpc/rpc_session.h"
#include "common/gx_hash.h"
#include "rpc/rpc_status.h"

struct replay_entry {
	enum { ENTRY_FREE, ENTRY_RUNNING, ENTRY_DONE } state;
	uint64_t seq;
	uint16_t method;
	uint64_t request_check; /* of the frame: a retry is the same request, not a new one */
	uint16_t status;
	uint32_t bytes;
	unsigned char *message;
	struct rpc_call *waiters; /* RUNNING: retries that came meanwhile */
};

/* What one identity takes of the table; nobody may take so much that others get nothing. */
struct share {
	char identity[GX_NAME_USER_MAX + 8];
	size_t sessions;
	size_t bytes; /* tables and remembered replies */
	UT_hash_handle hh;
};

struct rpc_session {
	uint64_t id;
	struct share *share;
	unsigned connections;
	unsigned running;      /* entries being worked on */
	int64_t idle_since_ns; /* valid while connections == 0 */
	uint64_t acked;        /* the client has the replies up to here */
	/* A ring, by seq, for (acked, acked + entry_count]; it grows with what is unanswered. */
	struct replay_entry *entries;
	size_t entry_count; /* a power of two */
	UT_hash_handle hh;
};

struct rpc_sessions {
	struct rpc_replay replay; /* first: the dispatcher's handle */
	struct gx_env *env;
	struct gx_mutex lock;
	int64_t linger_ns;
	size_t bytes;         /* tables and remembered replies, all shares */
	struct share *shares; /* by identity; as long as it has sessions */
	struct rpc_session *by_id;
};

/* One identity may have a fourth of the sessions and of the bytes. */
#define SHARE_DIVISOR 4
#define ENTRIES_MIN 8u

static const struct rpc_replay_ops replay_ops;

int rpc_sessions_new(struct gx_env *env, int64_t linger_ns, struct rpc_sessions **ret_sessions)
{
	struct rpc_sessions *sessions = calloc(1, sizeof(*sessions));
	int r;

	if (!sessions)
		return -ENOMEM;
	sessions->replay.ops = &replay_ops;
	sessions->env = env;
	sessions->linger_ns = linger_ns;
	r = gx_env_mutex_init(env, &sessions->lock);
	if (r < 0) {
		free(sessions);
		return r;
	}
	*ret_sessions = sessions;
	return 0;
}

static bool has_room(const struct rpc_sessions *sessions, const struct rpc_session *session,
		     size_t bytes)
{
	return sessions->bytes + bytes <= GX_REPLAY_BYTES_MAX &&
	       session->share->bytes + bytes <= GX_REPLAY_BYTES_MAX / SHARE_DIVISOR;
}

/* Without asking: a result that exists is remembered, and only the next one refused. */
static void charge(struct rpc_sessions *sessions, struct rpc_session *session, size_t bytes)
{
	sessions->bytes += bytes;
	session->share->bytes += bytes;
}

static void discharge(struct rpc_sessions *sessions, struct rpc_session *session, size_t bytes)
{
	sessions->bytes -= bytes;
	session->share->bytes -= bytes;
}

static void entry_clear(struct rpc_sessions *sessions, struct rpc_session *session,
			struct replay_entry *entry)
{
	discharge(sessions, session, entry->bytes);
	free(entry->message);
	*entry = (struct replay_entry){.state = ENTRY_FREE};
}

/* The share of an identity, made with its first session. */
static int share_join(struct rpc_sessions *sessions, const char *identity, struct share **ret_share)
{
	bool gx_hash_failed = false;
	struct share *share;
	int r;

	HASH_FIND_STR(sessions->shares, identity, share);
	if (!share) {
		share = calloc(1, sizeof(*share));
		if (!share)
			return -ENOMEM;
		r = gx_strcpy(share->identity, sizeof(share->identity), identity);
		gx_assert(r == 0);
		HASH_ADD_STR(sessions->shares, identity, share);
		if (gx_hash_failed) {
			free(share);
			return -ENOMEM;
		}
	}
	if (share->sessions >= GX_REPLAY_SESSIONS_MAX / SHARE_DIVISOR)
		return -EAGAIN;
	share->sessions++;
	*ret_share = share;
	return 0;
}

static void share_leave(struct rpc_sessions *sessions, struct share *share)
{
	if (--share->sessions > 0)
		return;
	gx_assert(share->bytes == 0);
	HASH_DEL(sessions->shares, share);
	free(share);
}

static void session_free(struct rpc_sessions *sessions, struct rpc_session *session)
{
	HASH_DEL(sessions->by_id, session);
	for (size_t i = 0; i < session->entry_count; i++) {
		gx_assert(!session->entries[i].waiters);
		entry_clear(sessions, session, &session->entries[i]);
	}
	discharge(sessions, session, session->entry_count * sizeof(*session->entries));
	share_leave(sessions, session->share);
	free(session->entries);
	free(session);
}

void rpc_sessions_free(struct rpc_sessions *sessions)
{
	struct rpc_session *session, *tmp;

	if (!sessions)
		return;
	HASH_ITER (hh, sessions->by_id, session, tmp)
		session_free(sessions, session);
	gx_env_mutex_fini(sessions->env, &sessions->lock);
	free(sessions);
}

struct rpc_replay *rpc_sessions_replay(struct rpc_sessions *sessions)
{
	return &sessions->replay;
}

static struct rpc_session *session_find(struct rpc_sessions *sessions, uint64_t id)
{
	struct rpc_session *session;

	HASH_FIND(hh, sessions->by_id, &id, sizeof(id), session);
	return session;
}

/* -- opening ---------------------------------------------------------------------- */

static int session_make(struct rpc_sessions *sessions, const struct rpc_peer *peer, uint64_t id,
			struct rpc_session **ret_session)
{
	bool gx_hash_failed = false;
	struct rpc_session *session;
	int r = 0;

	if (HASH_COUNT(sessions->by_id) >= GX_REPLAY_SESSIONS_MAX)
		return -EAGAIN;
	/* Random, so that an id says nothing about other sessions; 0 means none. */
	while (r == 0 && (id == 0 || session_find(sessions, id)))
		r = gx_env_random(sessions->env, &id, sizeof(id));
	if (r < 0)
		return r;
	session = calloc(1, sizeof(*session));
	if (!session)
		return -ENOMEM;
	session->id = id;
	r = share_join(sessions, peer->identity, &session->share);
	if (r < 0) {
		free(session);
		return r;
	}
	session->idle_since_ns = gx_env_now_ns(sessions->env);
	HASH_ADD(hh, sessions->by_id, id, sizeof(session->id), session);
	if (gx_hash_failed) {
		share_leave(sessions, session->share);
		free(session);
		return -ENOMEM;
	}
	*ret_session = session;
	return 0;
}

int rpc_sessions_open(void *arg, const struct rpc_peer *peer, uint64_t asked, uint64_t *ret_session,
		      bool *ret_known)
{
	struct rpc_sessions *sessions = arg;
	struct rpc_session *session = NULL;
	uint64_t wanted = peer->by_ticket ? peer->ticket_session : asked;
	bool known;
	int r = 0;

	gx_env_mutex_lock(sessions->env, &sessions->lock);
	if (wanted)
		session = session_find(sessions, wanted);
	if (session && strcmp(session->share->identity, peer->identity) != 0) {
		/* Without a ticket it gets a new one; a ticket is good for no other session. */
		r = peer->by_ticket ? -EKEYREJECTED : 0;
		session = NULL;
	}
	known = session != NULL;
	/* It must not expire before the connection is attached to it. */
	if (known)
		session->idle_since_ns = gx_env_now_ns(sessions->env);
	else if (r == 0)
		r = session_make(sessions, peer, peer->by_ticket ? wanted : 0, &session);
	if (r == 0) {
		*ret_session = session->id;
		*ret_known = known;
	}
	gx_env_mutex_unlock(sessions->env, &sessions->lock);
	return r;
}

void rpc_sessions_attach(struct rpc_sessions *sessions, uint64_t id)
{
	struct rpc_session *session;

	gx_env_mutex_lock(sessions->env, &sessions->lock);
	session = session_find(sessions, id);
	if (session)
		session->connections++;
	gx_env_mutex_unlock(sessions->env, &sessions->lock);
}

void rpc_sessions_detach(struct rpc_sessions *sessions, uint64_t id)
{
	struct rpc_session *session;

	gx_env_mutex_lock(sessions->env, &sessions->lock);
	session = session_find(sessions, id);
	if (session) {
		gx_assert(session->connections > 0);
		session->connections--;
		session->idle_since_ns = gx_env_now_ns(sessions->env);
	}
	gx_env_mutex_unlock(sessions->env, &sessions->lock);
}

void rpc_sessions_expire(struct rpc_sessions *sessions)
{
	int64_t now = gx_env_now_ns(sessions->env);
	struct rpc_session *session, *tmp;

	gx_env_mutex_lock(sessions->env, &sessions->lock);
	HASH_ITER (hh, sessions->by_id, session, tmp) {
		if (session->connections == 0 && session->running == 0 &&
		    now - session->idle_since_ns > sessions->linger_ns)
			session_free(sessions, session);
	}
	gx_env_mutex_unlock(sessions->env, &sessions->lock);
}

size_t rpc_sessions_count(struct rpc_sessions *sessions)
{
	size_t count;

	gx_env_mutex_lock(sessions->env, &sessions->lock);
	count = HASH_COUNT(sessions->by_id);
	gx_env_mutex_unlock(sessions->env, &sessions->lock);
	return count;
}

/* -- replay ------------------------------------------------------------------------- */

static struct replay_entry *entry_at(struct rpc_session *session, uint64_t seq)
{
	return &session->entries[seq % session->entry_count];
}

/* Room for numbers up to acked + count. */
static int ring_grow(struct rpc_sessions *sessions, struct rpc_session *session, uint64_t count)
{
	struct rpc_session bigger = *session;
	size_t added;

	bigger.entry_count = GX_MAX(session->entry_count, (size_t)ENTRIES_MIN);
	while (bigger.entry_count < count)
		bigger.entry_count *= 2;
	if (bigger.entry_count == session->entry_count)
		return 0;
	added = (bigger.entry_count - session->entry_count) * sizeof(*bigger.entries);
	if (!has_room(sessions, session, added))
		return -EAGAIN;
	bigger.entries = calloc(bigger.entry_count, sizeof(*bigger.entries));
	if (!bigger.entries)
		return -ENOMEM;
	for (size_t i = 0; i < session->entry_count; i++)
		if (session->entries[i].state != ENTRY_FREE)
			*entry_at(&bigger, session->entries[i].seq) = session->entries[i];
	charge(sessions, session, added);
	free(session->entries);
	session->entries = bigger.entries;
	session->entry_count = bigger.entry_count;
	return 0;
}

/*
 * The client has everything up to `acked`: forget those. It cannot have the
 * reply of something still running, so the line stops before such a one.
 */
static void trim(struct rpc_sessions *sessions, struct rpc_session *session, uint64_t acked)
{
	if (acked <= session->acked)
		return;
	for (size_t i = 0; session->running > 0 && i < session->entry_count; i++) {
		const struct replay_entry *entry = &session->entries[i];

		if (entry->state == ENTRY_RUNNING && entry->seq <= acked)
			acked = entry->seq - 1;
	}
	/* A jump over more than the table holds visits each entry once. */
	for (uint64_t n = GX_MIN(acked - session->acked, (uint64_t)session->entry_count); n > 0;
	     n--) {
		struct replay_entry *entry = entry_at(session, session->acked + n);

		if (entry->state == ENTRY_DONE)
			entry_clear(sessions, session, entry);
	}
	session->acked = acked;
}

static int begin_locked(struct rpc_sessions *sessions, struct rpc_session *session,
			struct rpc_call *call)
{
	uint64_t seq = call->frame.seq;
	struct replay_entry *entry;
	int r;

	if (call->frame.window == 0 || call->frame.window > seq)
		return rpc_call_fail(call, -EPROTO, "impossible replay window");
	trim(sessions, session, seq - call->frame.window);
	if (seq <= session->acked)
		return rpc_call_fail(call, -ENOTRECOVERABLE, "its result was acknowledged before");
	if (seq - session->acked > GX_REPLAY_PER_SESSION_MAX)
		return rpc_call_fail(call, -E2BIG, "too many results not acknowledged");
	r = ring_grow(sessions, session, seq - session->acked);
	if (r < 0)
		return r == -EAGAIN ? rpc_call_fail(call, r, "the replay table is full") : r;
	entry = entry_at(session, seq);
	if (entry->state == ENTRY_FREE) {
		if (!has_room(sessions, session, 0))
			return rpc_call_fail(call, -EAGAIN, "the replay table is full");
		*entry = (struct replay_entry){.state = ENTRY_RUNNING,
					       .seq = seq,
					       .method = call->frame.code,
					       .request_check = call->request_check};
		session->running++;
		return 0;
	}
	gx_assert(entry->seq == seq);
	if (entry->method != call->frame.code || entry->request_check != call->request_check)
		return rpc_call_fail(call, -EPROTO, "sequence number used for another request");
	if (entry->state == ENTRY_RUNNING) {
		call->next = entry->waiters;
		entry->waiters = call;
		return RPC_DEFERRED;
	}
	return RPC_ANSWERED;
}

static int replay_begin(struct rpc_replay *replay, struct rpc_call *call)
{
	struct rpc_sessions *sessions = (struct rpc_sessions *)replay;
	struct rpc_session *session;
	struct replay_entry *entry;
	unsigned char *copy = NULL;
	uint16_t status = 0;
	uint32_t bytes = 0;
	int r;

	gx_env_mutex_lock(sessions->env, &sessions->lock);
	session = session_find(sessions, call->session);
	r = session ? begin_locked(sessions, session, call)
		    : rpc_call_fail(call, -ENOTRECOVERABLE, "the session is gone");
	if (r == RPC_ANSWERED) {
		/* The reply is sent outside the lock, from memory of this call. */
		entry = entry_at(session, call->frame.seq);
		status = entry->status;
		bytes = entry->bytes;
		copy = rpc_call_alloc(call, bytes);
		if (copy && bytes > 0)
			memcpy(copy, entry->message, bytes);
		/* Not -ENOMEM, which would deny what was done: asked again, it can be told. */
		if (!copy)
			r = -EAGAIN;
	}
	gx_env_mutex_unlock(sessions->env, &sessions->lock);
	if (r == RPC_ANSWERED)
		rpc_call_answer(call, status, copy, bytes);
	return r;
}

/* The message is another call's, which may be gone before this one's reply is out. */
static void answer_waiter(struct rpc_call *waiter, uint16_t status, const void *message,
			  uint32_t bytes)
{
	void *copy = rpc_call_alloc(waiter, bytes);

	if (copy && bytes > 0)
		memcpy(copy, message, bytes);
	/* Asked again, it can be told. */
	if (!copy)
		rpc_call_answer(waiter, RPC_STATUS_AGAIN, NULL, 0);
	else
		rpc_call_answer(waiter, status, copy, bytes);
}

static void replay_finish(struct rpc_replay *replay, struct rpc_call *call,
			  const struct rpc_frame *frame, const void *message)
{
	struct rpc_sessions *sessions = (struct rpc_sessions *)replay;
	struct rpc_call *waiters;
	struct rpc_session *session;
	struct replay_entry *entry;

	gx_env_mutex_lock(sessions->env, &sessions->lock);
	/* `running` has kept the session. */
	session = session_find(sessions, call->session);
	gx_assert(session && session->running > 0);
	session->running--;
	entry = entry_at(session, frame->seq);
	gx_assert(entry->state == ENTRY_RUNNING && entry->seq == frame->seq);
	waiters = entry->waiters;
	entry->waiters = NULL;
	if (rpc_status_retryable(frame->code)) {
		/* Nothing was done: the next try is a first try. */
		entry_clear(sessions, session, entry);
	} else {
		entry->state = ENTRY_DONE;
		entry->status = frame->code;
		if (frame->message_bytes > 0) {
			entry->message = malloc(frame->message_bytes);
			if (entry->message) {
				memcpy(entry->message, message, frame->message_bytes);
				entry->bytes = frame->message_bytes;
				charge(sessions, session, entry->bytes);
			} else {
				/* Done, but the result cannot be told twice: say so if asked. */
				entry->status = RPC_STATUS_UNKNOWN_OUTCOME;
			}
		}
	}
	gx_env_mutex_unlock(sessions->env, &sessions->lock);
	while (waiters) {
		struct rpc_call *waiter = waiters;

		waiters = waiter->next;
		answer_waiter(waiter, frame->code, message, frame->message_bytes);
	}
}

static const struct rpc_replay_ops replay_ops = {.begin = replay_begin, .finish = replay_finish};
