/*
 * gfc_fake.h - a metad of a few lines for tests of its client: one flat table of names, a "log"
 * that is on disk as far as the test says, and a list of what was asked for, in order.
 *
 * It runs on a loop in a thread of its own. fake_crash() ends it and forgets what was not on
 * disk; fake_up() starts it again at the same address with another boot number. Sessions are kept
 * unless the test says otherwise.
 */
#ifndef GFC_FAKE_H
#define GFC_FAKE_H

#include "client/fs/gfc.h"
#include "meta.pb-c.h"
#include "rpc/rpc_conn.h"
#include "rpc/rpc_server.h"
#include <check.h>
#include <stdio.h>

#define RPC_SERVICE_META
#define RPC_HANDLER(lower) fake_op_##lower
#define RPC_TABLE fake_table
#include "rpc/rpc_service_def.h"

#define FAKE_NAMES 8192u
#define FAKE_HELD 64u
#define FAKE_WAIT_MS 10000u

struct fake_name {
	uint64_t ino;   /* 0: free */
	uint64_t index; /* of the command that made it */
	uint64_t version;
	char name[64];
};

struct fake {
	struct gx_env *env;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct rpc_endpoint endpoint;
	uint64_t boot;
	bool is_up;
	struct gx_loop *loop;
	struct gx_thread thread;
	struct rpc_dispatcher dispatcher;
	struct rpc_replay replay;
	struct rpc_server *server;

	struct gx_mutex lock; /* all below */
	struct gx_cond changed;
	struct gx_buf events; /* one line each */
	uint64_t session;     /* the one it knows */
	uint64_t sessions;    /* given so far */
	struct fake_name names[FAKE_NAMES];
	uint64_t next_ino, index, durable;
	uint64_t lose_handle;   /* Resume says that this one could not be opened */
	bool refuse_replays;    /* they do not apply any more */
	bool mute;              /* Renew and Getattr are not answered */
	bool hold_lookups;      /* their answers are made, but do not leave */
	bool auto_durable;      /* everything is on disk at once */
	int64_t last_answer_ns; /* when Renew or Lookup was answered last */
	struct rpc_call *held[FAKE_HELD];
	unsigned held_count;
	uint64_t counts[RPC_METHOD_COUNT];
};

static struct fake *fake;

static void fake_lock(void)
{
	gx_env_mutex_lock(fake->env, &fake->lock);
}

static void fake_unlock(void)
{
	gx_env_mutex_unlock(fake->env, &fake->lock);
}

/* -- what was asked for ------------------------------------------------------------------------ */

/* Under the lock. */
GX_PRINTF(1, 2) static void event(const char *fmt, ...)
{
	char line[128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	gx_assert(gx_buf_append_format(&fake->events, "%s\n", line) == 0);
	gx_env_cond_broadcast(fake->env, &fake->changed);
}

/* Where a line is in the list (0: the first), or -1. Under the lock. */
static int event_find(const char *line)
{
	const char *text = gx_buf_text(&fake->events);
	size_t bytes = strlen(line);
	int n = 0;

	for (; text && *text; n++) {
		size_t length = strcspn(text, "\n");

		if (length == bytes && memcmp(text, line, bytes) == 0)
			return n;
		text += length + 1;
	}
	return -1;
}

static int fake_event(const char *line)
{
	int n;

	fake_lock();
	n = event_find(line);
	fake_unlock();
	return n;
}

/* Waits for it; its place. */
GX_UNUSED static int fake_wait_event(const char *line)
{
	int64_t deadline_ns = gx_env_deadline_ms(fake->env, FAKE_WAIT_MS);
	int n, r = 0;

	fake_lock();
	while ((n = event_find(line)) < 0 && r == 0)
		r = gx_env_cond_wait(fake->env, &fake->changed, &fake->lock, deadline_ns);
	if (n < 0)
		fprintf(stderr, "never came: %s; there were:\n%s", line,
			gx_buf_text(&fake->events));
	fake_unlock();
	ck_assert_int_ge(n, 0);
	return n;
}

static void fake_clear_events(void)
{
	fake_lock();
	gx_buf_clear(&fake->events);
	fake_unlock();
}

GX_UNUSED static uint64_t fake_count(enum rpc_method_index method)
{
	uint64_t count;

	fake_lock();
	count = fake->counts[method];
	fake_unlock();
	return count;
}

/* Waits until the method was called so often. */
GX_UNUSED static void fake_wait_count(enum rpc_method_index method, uint64_t count)
{
	int64_t deadline_ns = gx_env_deadline_ms(fake->env, FAKE_WAIT_MS);
	int r = 0;

	fake_lock();
	while (fake->counts[method] < count && r == 0)
		r = gx_env_cond_wait(fake->env, &fake->changed, &fake->lock, deadline_ns);
	fake_unlock();
	ck_assert_int_eq(r, 0);
}

/* -- its state (under the lock) ------------------------------------------------------------------
 */

static struct fake_name *name_of(const char *name)
{
	for (size_t i = 0; i < FAKE_NAMES; i++)
		if (fake->names[i].ino && strcmp(fake->names[i].name, name) == 0)
			return &fake->names[i];
	return NULL;
}

static struct fake_name *inode_of(uint64_t ino)
{
	for (size_t i = 0; i < FAKE_NAMES; i++)
		if (fake->names[i].ino == ino)
			return &fake->names[i];
	return NULL;
}

static struct fake_name *name_add(const char *name, uint64_t ino)
{
	for (size_t i = 0; i < FAKE_NAMES; i++) {
		struct fake_name *n = &fake->names[i];

		if (n->ino)
			continue;
		n->ino = ino ? ino : fake->next_ino++;
		n->index = ++fake->index;
		n->version = n->index;
		if (fake->auto_durable)
			fake->durable = fake->index;
		gx_assert(gx_strcpy(n->name, sizeof(n->name), name) == 0);
		return n;
	}
	gx_assert(!"the fake is full");
}

/* -- handlers ------------------------------------------------------------------------------------
 */

static PbMeta__Attr *attr_of(struct rpc_call *call, uint64_t ino, uint64_t version)
{
	PbMeta__Attr *attr = rpc_call_alloc(call, sizeof(*attr));

	pb_meta__attr__init(attr);
	attr->ino = ino;
	attr->cap = ino * 100;
	attr->mode = 0100644;
	attr->nlink = 1;
	attr->version = version;
	return attr;
}

static PbMeta__Done *done_of(struct rpc_call *call, uint64_t index, uint64_t new_ino)
{
	PbMeta__Done *done = rpc_call_alloc(call, sizeof(*done));

	pb_meta__done__init(done);
	done->index = index;
	done->time_ns = 1234;
	done->new_ino = new_ino;
	done->receipt = call->frame.seq * 3;
	return done;
}

static void counted(struct rpc_call *call)
{
	fake->counts[call->method->index]++;
	gx_env_cond_broadcast(fake->env, &fake->changed);
}

static int hold(struct rpc_call *call)
{
	gx_assert(fake->held_count < FAKE_HELD);
	fake->held[fake->held_count++] = call;
	return RPC_DEFERRED;
}

int fake_op_lookup(struct rpc_call *call, const PbMeta__LookupRequest *request,
		   PbMeta__LookupReply *reply)
{
	struct fake_name *n;
	int r = 0;

	fake_lock();
	counted(call);
	n = name_of(request->name);
	if (n)
		reply->attr = attr_of(call, n->ino, n->version);
	else
		r = -ENOENT;
	fake->last_answer_ns = gx_env_now_ns(fake->env);
	if (fake->hold_lookups && r == 0)
		r = hold(call);
	fake_unlock();
	return r;
}

int fake_op_getattr(struct rpc_call *call, const PbMeta__GetattrRequest *request,
		    PbMeta__GetattrReply *reply)
{
	struct fake_name *n;
	int r = 0;

	fake_lock();
	counted(call);
	n = inode_of(request->ino);
	if (fake->mute)
		r = hold(call);
	else if (n || request->ino == 1)
		reply->attr = attr_of(call, request->ino, n ? n->version : 1);
	else
		r = -ESTALE;
	fake_unlock();
	return r;
}

int fake_op_make(struct rpc_call *call, const PbMeta__MakeRequest *request,
		 PbMeta__MakeReply *reply)
{
	struct fake_name *n;
	int r = 0;

	fake_lock();
	counted(call);
	if (name_of(request->name)) {
		r = -EEXIST;
	} else {
		n = name_add(request->name, 0);
		reply->attr = attr_of(call, n->ino, n->version);
		reply->done = done_of(call, n->index, n->ino);
		event("make %s seq %llu window %u", request->name,
		      (unsigned long long)call->frame.seq, call->frame.window);
	}
	fake_unlock();
	return r;
}

int fake_op_open(struct rpc_call *call, const PbMeta__OpenRequest *request,
		 PbMeta__OpenReply *reply)
{
	struct fake_name *n;

	fake_lock();
	counted(call);
	n = name_of(request->name);
	if (!n) {
		n = name_add(request->name, 0);
		reply->created = true;
		reply->done = done_of(call, n->index, n->ino);
	}
	reply->attr = attr_of(call, n->ino, n->version);
	reply->handle = call->frame.seq;
	reply->token = reply->handle * 7;
	fake_unlock();
	return 0;
}

int fake_op_write(struct rpc_call *call, const PbMeta__WriteRequest *request,
		  PbMeta__WriteReply *reply)
{
	struct fake_name *n;

	fake_lock();
	counted(call);
	n = inode_of(request->ino);
	gx_assert(n);
	n->version = ++fake->index;
	if (fake->auto_durable)
		fake->durable = fake->index;
	reply->attr = attr_of(call, n->ino, n->version);
	reply->attr->size = call->payload_bytes;
	reply->done = done_of(call, fake->index, 0);
	event("write handle %llu %.*s", (unsigned long long)request->handle,
	      (int)call->payload_bytes, (const char *)call->payload);
	fake_unlock();
	return 0;
}

int fake_op_close(struct rpc_call *call, const PbMeta__CloseRequest *request,
		  PbMeta__CloseReply *reply GX_UNUSED)
{
	fake_lock();
	counted(call);
	event("close %llu", (unsigned long long)request->handle);
	fake_unlock();
	return 0;
}

int fake_op_unlink(struct rpc_call *call, const PbMeta__UnlinkRequest *request,
		   PbMeta__UnlinkReply *reply)
{
	struct fake_name *n;
	int r = 0;

	fake_lock();
	counted(call);
	n = name_of(request->name);
	if (n) {
		reply->ino = n->ino;
		n->ino = 0;
		reply->done = done_of(call, ++fake->index, 0);
	} else {
		r = -ENOENT;
	}
	fake_unlock();
	return r;
}

int fake_op_sync(struct rpc_call *call, const PbMeta__SyncRequest *request,
		 PbMeta__SyncReply *reply)
{
	fake_lock();
	counted(call);
	if (!request->nowait)
		fake->durable = fake->index;
	reply->index = fake->durable;
	event("sync %s", request->nowait ? "nowait" : "wait");
	fake_unlock();
	return 0;
}

int fake_op_renew(struct rpc_call *call, const PbMeta__RenewRequest *request GX_UNUSED,
		  PbMeta__RenewReply *reply)
{
	int r = 0;

	fake_lock();
	counted(call);
	reply->durable = fake->durable;
	if (fake->mute)
		r = hold(call);
	else
		fake->last_answer_ns = gx_env_now_ns(fake->env);
	fake_unlock();
	return r;
}

int fake_op_leave(struct rpc_call *call, const PbMeta__LeaveRequest *request GX_UNUSED,
		  PbMeta__LeaveReply *reply)
{
	fake_lock();
	counted(call);
	reply->index = fake->durable = fake->index;
	event("leave");
	fake_unlock();
	return 0;
}

int fake_op_resume(struct rpc_call *call, const PbMeta__ResumeRequest *request,
		   PbMeta__ResumeReply *reply)
{
	fake_lock();
	counted(call);
	for (size_t i = 0; i < request->n_files; i++) {
		gx_assert(request->files[i]->token == request->files[i]->handle * 7);
		event("resume file %llu flags %u", (unsigned long long)request->files[i]->handle,
		      request->files[i]->flags);
		if (request->files[i]->handle == fake->lose_handle) {
			reply->lost = rpc_call_alloc(call, sizeof(*reply->lost));
			reply->lost[0] = fake->lose_handle;
			reply->n_lost = 1;
		}
	}
	if (request->last)
		event("resume next %llu", (unsigned long long)request->next_seq);
	fake_unlock();
	return 0;
}

int fake_op_replay(struct rpc_call *call, const PbMeta__ReplayRequest *request,
		   PbMeta__ReplayReply *reply)
{
	PbMeta__MakeRequest *make;
	struct fake_name *n;
	int r = 0;

	fake_lock();
	counted(call);
	event("replay %llu window %u method %x payload %.*s", (unsigned long long)call->frame.seq,
	      call->frame.window, request->method, (int)call->payload_bytes,
	      (const char *)call->payload);
	if (fake->refuse_replays) {
		r = rpc_call_fail(call, -ENOENT, "its directory is gone");
	} else if (request->method == RPC_MAKE) {
		make = pb_meta__make_request__unpack(NULL, request->request.len,
						     request->request.data);
		gx_assert(make && request->done && request->done->time_ns == 1234);
		gx_assert(request->done->receipt == call->frame.seq * 3);
		n = name_of(make->name);
		reply->again = !n;
		if (!n)
			n = name_add(make->name, request->done->new_ino);
		/* As metad: what was not lost is where the client says it is. */
		reply->index = reply->again ? n->index : request->done->index;
		gx_assert(reply->index == n->index);
		pb_meta__make_request__free_unpacked(make, NULL);
	} else {
		reply->again = true;
		reply->index = ++fake->index;
	}
	fake_unlock();
	return r;
}

/* Leases are none of its business, but who asks for one can be recalled, or cannot. */
int fake_op_lease(struct rpc_call *call, const PbMeta__LeaseRequest *request GX_UNUSED,
		  PbMeta__LeaseReply *reply GX_UNUSED)
{
	fake_lock();
	counted(call);
	event("lease %s push channel", fake->server->push_conns ? "with" : "without");
	fake_unlock();
	return -EHOSTUNREACH;
}

#define FAKE_NOT_HERE(lower, Camel)                                                                \
	int fake_op_##lower(struct rpc_call *call GX_UNUSED,                                       \
			    const PbMeta__##Camel##Request *request GX_UNUSED,                     \
			    PbMeta__##Camel##Reply *reply GX_UNUSED)                               \
	{                                                                                          \
		return -ENOSYS;                                                                    \
	}
FAKE_NOT_HERE(setattr, Setattr)
FAKE_NOT_HERE(readlink, Readlink)
FAKE_NOT_HERE(link, Link)
FAKE_NOT_HERE(rename, Rename)
FAKE_NOT_HERE(read, Read)
FAKE_NOT_HERE(readdir, Readdir)
FAKE_NOT_HERE(getxattr, Getxattr)
FAKE_NOT_HERE(setxattr, Setxattr)
FAKE_NOT_HERE(listxattr, Listxattr)
FAKE_NOT_HERE(statfs, Statfs)
FAKE_NOT_HERE(ids, Ids)
FAKE_NOT_HERE(lock, Lock)
FAKE_NOT_HERE(lock_wait, LockWait)
FAKE_NOT_HERE(status, Status)
FAKE_NOT_HERE(node_register, NodeRegister)
FAKE_NOT_HERE(node_heartbeat, NodeHeartbeat)
FAKE_NOT_HERE(attach, Attach)
FAKE_NOT_HERE(report, Report)
FAKE_NOT_HERE(where, Where)
FAKE_NOT_HERE(cache, Cache)
FAKE_NOT_HERE(node_work, NodeWork)
FAKE_NOT_HERE(node_inventory, NodeInventory)

/* -- the server
 * ------------------------------------------------------------------------------------ */

static int fake_session(void *arg GX_UNUSED, const struct rpc_peer *peer GX_UNUSED, uint64_t asked,
			uint64_t *ret_session, bool *ret_known)
{
	fake_lock();
	*ret_known = asked != 0 && asked == fake->session;
	if (!*ret_known)
		fake->session = 1000 + ++fake->sessions;
	*ret_session = fake->session;
	event("connection of %llu", (unsigned long long)fake->session);
	fake_unlock();
	return 0;
}

static int replay_begin(struct rpc_replay *replay GX_UNUSED, struct rpc_call *call GX_UNUSED)
{
	return 0;
}

static void replay_finish(struct rpc_replay *replay GX_UNUSED, struct rpc_call *call GX_UNUSED,
			  const struct rpc_frame *frame GX_UNUSED, const void *message GX_UNUSED)
{
}

static const struct rpc_replay_ops fake_replay_ops = {.begin = replay_begin,
						      .finish = replay_finish};

static void loop_main(void *arg GX_UNUSED)
{
	gx_assert(gx_loop_run(fake->loop) >= 0);
}

static void fake_up(void)
{
	struct rpc_server_options options = RPC_SERVER_OPTIONS_INIT;

	gx_assert(!fake->is_up);
	gx_assert(gx_loop_new(fake->env, &fake->loop) == 0);
	rpc_dispatcher_init(&fake->dispatcher, fake->env, "fake", "fake/1");
	fake->replay.ops = &fake_replay_ops;
	fake->dispatcher.replay = &fake->replay;
	rpc_dispatcher_add(&fake->dispatcher, &fake_table, NULL);
	options.loop = fake->loop;
	options.dispatcher = &fake->dispatcher;
	options.auth = &fake->auth;
	options.session_fn = fake_session;
	options.boot = ++fake->boot;
	gx_assert(rpc_server_new(&options, &fake->server) == 0);
	gx_assert(rpc_server_listen(fake->server, &fake->endpoint, &fake->endpoint) == 0);
	gx_assert(gx_env_thread_start(fake->env, &fake->thread, "fake", loop_main, NULL) == 0);
	fake->is_up = true;
}

/* On the loop, or when it has ended. */
static void answer_held(void)
{
	while (fake->held_count > 0)
		rpc_call_finish(fake->held[--fake->held_count], 0);
}

static void close_all(void)
{
	while (fake->server->conns)
		rpc_conn_close(fake->server->conns, "cut by the fake");
}

static void fake_down(void)
{
	gx_assert(fake->is_up);
	gx_loop_stop(fake->loop);
	gx_env_thread_join(fake->env, &fake->thread);
	close_all();
	answer_held();
	rpc_server_free(fake->server);
	gx_loop_free(fake->loop);
	fake->is_up = false;
}

/* The power goes: what was not on disk is lost. */
static void fake_crash(void)
{
	fake_down();
	for (size_t i = 0; i < FAKE_NAMES; i++)
		if (fake->names[i].index > fake->durable)
			fake->names[i].ino = 0;
	fake->index = fake->durable;
}

struct visit {
	struct gx_task task;
	void (*fn)(void *arg);
	void *arg;
	bool done;
};

static void on_visit(struct gx_task *task)
{
	struct visit *v = GX_CONTAINER_OF(task, struct visit, task);

	v->fn(v->arg);
	fake_lock();
	v->done = true;
	gx_env_cond_broadcast(fake->env, &fake->changed);
	fake_unlock();
}

/* Runs fn on the loop and waits for it. */
static void fake_run(void (*fn)(void *arg), void *arg)
{
	struct visit v = {.task = {.fn = on_visit}, .fn = fn, .arg = arg};

	gx_loop_post(fake->loop, &v.task);
	fake_lock();
	while (!v.done)
		GX_IGNORE(gx_env_cond_wait(fake->env, &fake->changed, &fake->lock, GX_FOREVER));
	fake_unlock();
}

static void fake_start(void)
{
	struct rpc_key key = {.created_ns = 1};

	fake = calloc(1, sizeof(*fake));
	gx_assert(fake);
	fake->env = gx_env_posix();
	fake->next_ino = 2;
	gx_assert(gx_env_mutex_init(fake->env, &fake->lock) == 0);
	gx_assert(gx_env_cond_init(fake->env, &fake->changed) == 0);
	gx_buf_init(&fake->events, 16u * 1024 * 1024);
	gx_assert(rpc_keytab_new(&fake->keys) == 0);
	gx_assert(rpc_identity_parse("user:alice", &key.kind) == 0);
	gx_assert(gx_strcpy(key.identity, sizeof(key.identity), "user:alice") == 0);
	memset(key.secret, 0xa1, RPC_KEY_BYTES);
	gx_assert(rpc_keytab_put(fake->keys, &key, false) == 0);
	fake->auth = (struct rpc_auth){.env = fake->env, .keys = fake->keys};
	gx_assert(rpc_endpoint_parse(fake->env, "plain:127.0.0.1:0", false, &fake->endpoint,
				     NULL) == 0);
	fake_up();
}

static void fake_stop(void)
{
	if (fake->is_up)
		fake_down();
	rpc_keytab_free(fake->keys);
	gx_buf_fini(&fake->events);
	gx_env_cond_fini(fake->env, &fake->changed);
	gx_env_mutex_fini(fake->env, &fake->lock);
	free(fake);
}

GX_UNUSED static void fake_options(struct gfc_options *options, size_t cache_bytes)
{
	static unsigned char key[RPC_KEY_BYTES];

	memset(key, 0xa1, sizeof(key));
	*options = (struct gfc_options){.env = fake->env,
					.metad = fake->endpoint,
					.identity = "user:alice",
					.key = key,
					.program = "test/1",
					.timeout_ns = 10 * GX_NSEC_PER_SEC,
					.connections_max = 4,
					.cache_bytes = cache_bytes};
}

#endif
