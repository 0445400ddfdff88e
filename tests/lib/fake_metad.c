#include "tests/lib/fake_metad.h"
#include "rpc/rpc_server.h"
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>
#include <utlist.h>

#define WAIT_MS 10000u
#define POLL_MS 20u /* a NodeWork is answered after this long */
#define BEAT_MS 20u

struct given {
	struct given *prev, *next;
	PbMeta__Job *job;
};

struct parked {
	struct parked *prev, *next;
	struct rpc_call *call;
};

struct fake_metad {
	struct gx_env *env;
	char dir[64];
	struct rpc_endpoint endpoint;
	struct rpc_key key;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct rpc_sessions *sessions;
	struct rpc_dispatcher dispatcher;
	struct gx_loop *loop;
	struct gx_thread thread;
	struct rpc_server *server;
	struct gx_timer timer;
	uint64_t boot;
	bool is_up;

	/* On the loop. */
	struct parked *parked;

	struct gx_mutex lock; /* all below */
	struct gx_cond changed;
	uint64_t epoch;
	bool registered, refusing;
	struct fsd_object_id known[FAKE_METAD_MAX];
	size_t known_count;
	struct given *given;
	struct fake_metad_seen seen;
};

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "fake_metad: %s: %s\n", what, gx_strerror(r));
	abort();
}

static void lock(struct fake_metad *m)
{
	gx_env_mutex_lock(m->env, &m->lock);
}

static void unlock(struct fake_metad *m)
{
	gx_env_cond_broadcast(m->env, &m->changed);
	gx_env_mutex_unlock(m->env, &m->lock);
}

/* -- handlers ---------------------------------------------------------------------------------- */

static int node_register(struct rpc_call *call, const ProtobufCMessage *message,
			 ProtobufCMessage *reply_message)
{
	const PbMeta__Node *node = ((const PbMeta__NodeRegisterRequest *)message)->node;
	PbMeta__NodeRegisterReply *reply = (PbMeta__NodeRegisterReply *)reply_message;
	struct fake_metad *m = call->data;
	struct fake_metad_seen *seen = &m->seen;

	lock(m);
	must(gx_strcpy(seen->name, sizeof(seen->name), node->name), "name");
	must(gx_strcpy(seen->kind, sizeof(seen->kind), node->kind), "kind");
	must(gx_strcpy(seen->host, sizeof(seen->host), node->host), "host");
	must(gx_strcpy(seen->group, sizeof(seen->group), node->group), "group");
	seen->address_count = node->n_addresses;
	for (size_t i = 0; i < node->n_addresses; i++)
		must(gx_strcpy(seen->addresses[i], GX_ADDR_TEXT_MAX, node->addresses[i]),
		     "address");
	seen->boot = node->boot;
	seen->capacity_bytes = node->capacity_bytes;
	seen->free_bytes = node->free_bytes;
	seen->registrations++;
	seen->inventory_over = false;
	seen->listed_count = 0;
	m->registered = true;
	reply->epoch = m->epoch;
	reply->heartbeat_ms = BEAT_MS;
	unlock(m);
	return 0;
}

static int node_heartbeat(struct rpc_call *call, const ProtobufCMessage *message,
			  ProtobufCMessage *reply_message)
{
	const PbMeta__NodeHeartbeatRequest *request = (const PbMeta__NodeHeartbeatRequest *)message;
	struct fake_metad *m = call->data;
	bool registered;

	lock(m);
	registered = m->registered;
	((PbMeta__NodeHeartbeatReply *)reply_message)->epoch = m->epoch;
	if (registered) {
		m->seen.heartbeats++;
		m->seen.free_bytes = request->free_bytes;
	}
	unlock(m);
	return registered ? 0 : -ENOENT;
}

static bool knows(const struct fake_metad *m, const PbMeta__ObjectInfo *info)
{
	for (size_t i = 0; i < m->known_count; i++)
		if (m->known[i].ino == info->ino && m->known[i].generation == info->generation)
			return true;
	return false;
}

static int node_inventory(struct rpc_call *call, const ProtobufCMessage *message,
			  ProtobufCMessage *reply_message)
{
	const PbMeta__NodeInventoryRequest *request = (const PbMeta__NodeInventoryRequest *)message;
	PbMeta__NodeInventoryReply *reply = (PbMeta__NodeInventoryReply *)reply_message;
	struct fake_metad *m = call->data;
	struct fake_metad_seen *seen = &m->seen;

	reply->unknown = rpc_call_alloc(call, (request->n_objects + 1) * sizeof(void *));
	gx_assert(reply->unknown);
	lock(m);
	seen->inventories++;
	seen->inventory_over = request->last == UINT64_MAX;
	for (size_t i = 0; i < request->n_objects; i++) {
		PbMeta__ObjectInfo *info = request->objects[i];

		gx_assert(seen->listed_count < FAKE_METAD_MAX);
		gx_assert(info->ino >= request->first && info->ino <= request->last);
		seen->listed[seen->listed_count++] =
			(struct fsd_object_id){.ino = info->ino, .generation = info->generation};
		if (!knows(m, info))
			reply->unknown[reply->n_unknown++] = info;
	}
	unlock(m);
	return 0;
}

/* Answers a NodeWork with all jobs there are. */
static void answer_work(struct fake_metad *m, struct rpc_call *call)
{
	PbMeta__NodeWorkReply *reply = (PbMeta__NodeWorkReply *)call->reply;
	struct given *given, *tmp;
	uint8_t packed[16384];

	reply->jobs = rpc_call_alloc(call, 64 * sizeof(void *));
	gx_assert(reply->jobs);
	lock(m);
	DL_FOREACH_SAFE (m->given, given, tmp) {
		size_t bytes = pb_meta__job__get_packed_size(given->job);
		ProtobufCMessage *job;

		gx_assert(bytes <= sizeof(packed) && reply->n_jobs < 64);
		pb_meta__job__pack(given->job, packed);
		must(rpc_arena_unpack(&call->arena, &pb_meta__job__descriptor, packed, bytes, &job),
		     "job");
		reply->jobs[reply->n_jobs++] = (PbMeta__Job *)job;
		DL_DELETE(m->given, given);
		pb_meta__job__free_unpacked(given->job, NULL);
		free(given);
	}
	unlock(m);
	rpc_call_finish(call, 0);
}

static void hear(struct fake_metad *m, const PbMeta__NodeWorkRequest *request)
{
	struct fake_metad_seen *seen = &m->seen;

	for (size_t i = 0; i < request->n_done; i++) {
		gx_assert(seen->done_count < FAKE_METAD_MAX);
		seen->done[seen->done_count++] = *request->done[i];
	}
	for (size_t i = 0; i < request->n_notes; i++) {
		gx_assert(seen->note_count < FAKE_METAD_MAX);
		seen->notes[seen->note_count++] = *request->notes[i];
	}
}

static int node_work(struct rpc_call *call, const ProtobufCMessage *message,
		     ProtobufCMessage *reply GX_UNUSED)
{
	struct fake_metad *m = call->data;
	struct parked *parked;
	int r = 0;

	lock(m);
	if (!m->registered)
		r = -ENOENT;
	else if (m->refusing)
		r = -EIO;
	else
		hear(m, (const PbMeta__NodeWorkRequest *)message);
	unlock(m);
	if (r < 0)
		return r;
	parked = calloc(1, sizeof(*parked));
	gx_assert(parked);
	parked->call = call;
	DL_APPEND(m->parked, parked);
	return RPC_DEFERRED;
}

static int resume(struct rpc_call *call, const ProtobufCMessage *message GX_UNUSED,
		  ProtobufCMessage *reply GX_UNUSED)
{
	struct fake_metad *m = call->data;

	lock(m);
	m->seen.resumes++;
	unlock(m);
	return 0;
}

static int leave(struct rpc_call *call, const ProtobufCMessage *message GX_UNUSED,
		 ProtobufCMessage *reply GX_UNUSED)
{
	struct fake_metad *m = call->data;

	lock(m);
	m->seen.leaves++;
	unlock(m);
	return 0;
}

static const struct rpc_service_row rows[] = {
	{RPC_NODE_REGISTER, node_register},
	{RPC_NODE_HEARTBEAT, node_heartbeat},
	{RPC_NODE_INVENTORY, node_inventory},
	{RPC_NODE_WORK, node_work},
	{RPC_RESUME, resume},
	{RPC_LEAVE, leave},
};
static const struct rpc_service service = {rows, GX_COUNT_OF(rows)};

/* -- the loop ---------------------------------------------------------------------------------- */

static void answer_parked(struct fake_metad *m, bool cancel)
{
	struct parked *parked, *tmp;

	DL_FOREACH_SAFE (m->parked, parked, tmp) {
		DL_DELETE(m->parked, parked);
		if (cancel)
			rpc_call_finish(parked->call, -ECANCELED);
		else
			answer_work(m, parked->call);
		free(parked);
	}
}

static void on_timer(struct gx_timer *timer)
{
	struct fake_metad *m = GX_CONTAINER_OF(timer, struct fake_metad, timer);

	answer_parked(m, false);
	must(gx_timer_start(m->loop, timer, gx_env_deadline_ms(m->env, POLL_MS), on_timer),
	     "timer");
}

static void loop_main(void *arg)
{
	struct fake_metad *m = arg;

	must(gx_loop_run(m->loop), "loop");
}

static void server_up(struct fake_metad *m)
{
	struct rpc_server_options options = RPC_SERVER_OPTIONS_INIT;

	gx_assert(!m->is_up);
	must(gx_loop_new(m->env, &m->loop), "loop");
	rpc_dispatcher_init(&m->dispatcher, m->env, "fake", "fake/1");
	m->dispatcher.replay = rpc_sessions_replay(m->sessions);
	rpc_dispatcher_add(&m->dispatcher, &service, m);
	options.loop = m->loop;
	options.dispatcher = &m->dispatcher;
	options.auth = &m->auth;
	options.sessions = m->sessions;
	options.boot = m->boot;
	must(rpc_server_new(&options, &m->server), "server");
	must(rpc_server_listen(m->server, &m->endpoint, NULL), "listen");
	must(gx_timer_start(m->loop, &m->timer, gx_env_deadline_ms(m->env, POLL_MS), on_timer),
	     "timer");
	must(gx_env_thread_start(m->env, &m->thread, "fake-metad", loop_main, m), "thread");
	m->is_up = true;
}

static void server_down(struct fake_metad *m)
{
	gx_assert(m->is_up);
	gx_loop_stop(m->loop);
	gx_env_thread_join(m->env, &m->thread);
	answer_parked(m, true);
	gx_timer_stop(&m->timer);
	rpc_server_free(m->server);
	gx_loop_free(m->loop);
	m->is_up = false;
}

void fake_metad_up(struct fake_metad *m, uint64_t epoch)
{
	lock(m);
	m->epoch = epoch;
	m->registered = false;
	unlock(m);
	must(gx_env_random(m->env, &m->boot, sizeof(m->boot)), "random");
	server_up(m);
}

void fake_metad_down(struct fake_metad *m)
{
	server_down(m);
}

void fake_metad_cut(struct fake_metad *m)
{
	server_down(m);
}

void fake_metad_mend(struct fake_metad *m)
{
	server_up(m);
}

/* -- life -------------------------------------------------------------------------------------- */

struct fake_metad *fake_metad_start(const char *node)
{
	struct fake_metad *m = calloc(1, sizeof(*m));
	const char *tmp = getenv("TMPDIR");
	char text[GX_ADDR_TEXT_MAX];

	gx_assert(m);
	m->env = gx_env_posix();
	must(gx_env_mutex_init(m->env, &m->lock), "mutex");
	must(gx_env_cond_init(m->env, &m->changed), "cond");
	/* A unix socket's path has little room; fall back to where it is short. */
	must(gx_format(m->dir, sizeof(m->dir), "%s/fakemd.XXXXXX",
		       tmp && strlen(tmp) < 40 ? tmp : "/tmp"),
	     "scratch");
	if (!mkdtemp(m->dir))
		must(gx_errno(), m->dir);
	must(gx_format(text, sizeof(text), "unix:%s/sock", m->dir), "address");
	must(rpc_endpoint_parse(m->env, text, false, &m->endpoint, NULL), text);
	must(gx_format(text, sizeof(text), "host:%s", node), "identity");
	must(rpc_key_make(m->env, text, 0, false, &m->key), "key");
	must(rpc_keytab_new(&m->keys), "key table");
	must(rpc_keytab_put(m->keys, &m->key, false), "key table");
	m->auth = (struct rpc_auth){.env = m->env, .keys = m->keys};
	must(rpc_sessions_new(m->env, 60 * GX_NSEC_PER_SEC, &m->sessions), "sessions");
	fake_metad_up(m, 1);
	return m;
}

void fake_metad_stop(struct fake_metad *m)
{
	struct given *given, *tmp;
	char path[128];

	if (m->is_up)
		server_down(m);
	DL_FOREACH_SAFE (m->given, given, tmp) {
		DL_DELETE(m->given, given);
		pb_meta__job__free_unpacked(given->job, NULL);
		free(given);
	}
	rpc_sessions_free(m->sessions);
	rpc_keytab_free(m->keys);
	gx_env_cond_fini(m->env, &m->changed);
	gx_env_mutex_fini(m->env, &m->lock);
	must(gx_format(path, sizeof(path), "%s/sock", m->dir), "socket");
	unlink(path); /* the server has removed it, unless it could not */
	must(rmdir(m->dir) == 0 ? 0 : gx_errno(), m->dir);
	free(m);
}

const struct rpc_endpoint *fake_metad_endpoint(const struct fake_metad *m)
{
	return &m->endpoint;
}

const struct rpc_key *fake_metad_key(const struct fake_metad *m)
{
	return &m->key;
}

/* -- saying and asking ------------------------------------------------------------------------- */

void fake_metad_forget(struct fake_metad *m)
{
	lock(m);
	m->registered = false;
	unlock(m);
}

void fake_metad_refuse_work(struct fake_metad *m, bool refuse)
{
	lock(m);
	m->refusing = refuse;
	unlock(m);
}

void fake_metad_know(struct fake_metad *m, const struct fsd_object_id *id)
{
	lock(m);
	gx_assert(m->known_count < FAKE_METAD_MAX);
	m->known[m->known_count++] = *id;
	unlock(m);
}

void fake_metad_give(struct fake_metad *m, const PbMeta__Job *job)
{
	struct given *given = calloc(1, sizeof(*given));
	uint8_t packed[16384];
	size_t bytes = pb_meta__job__get_packed_size(job);

	gx_assert(given && bytes <= sizeof(packed));
	pb_meta__job__pack(job, packed);
	given->job = pb_meta__job__unpack(NULL, bytes, packed);
	gx_assert(given->job);
	lock(m);
	DL_APPEND(m->given, given);
	unlock(m);
}

bool fake_metad_wait(struct fake_metad *m, fake_metad_fn fn, void *arg)
{
	int64_t deadline_ns = gx_env_deadline_ms(m->env, WAIT_MS);
	bool yes;
	int r = 0;

	gx_env_mutex_lock(m->env, &m->lock);
	while (!(yes = fn(&m->seen, arg)) && r == 0)
		r = gx_env_cond_wait(m->env, &m->changed, &m->lock, deadline_ns);
	gx_env_mutex_unlock(m->env, &m->lock);
	return yes;
}

struct fake_metad_seen *fake_metad_seen(struct fake_metad *m)
{
	struct fake_metad_seen *copy = malloc(sizeof(*copy));

	gx_assert(copy);
	gx_env_mutex_lock(m->env, &m->lock);
	*copy = m->seen;
	gx_env_mutex_unlock(m->env, &m->lock);
	return copy;
}
