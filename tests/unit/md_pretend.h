/*
 * md_pretend.h - storage nodes that a test plays: it decides what each says and when. One client,
 * root, makes the files. No byte of content is anywhere.
 */
#ifndef MD_PRETEND_H
#define MD_PRETEND_H

#include "metad/md_check.h"
#include "metad/md_jobs_impl.h"
#include "rpc/rpc_file_ticket.h"
#include "rpc/rpc_status.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RPC_SERVICE_META
#include "rpc/rpc_stub.h"

#define COPY 1u
#define DELETE 2u
#define RECOVER 3u
#define STABLE 1u
#define DAMAGED 2u
#define GONE 3u
#define GIB (UINT64_C(1) << 30)
#define NODES 3u

static struct meta_fixture *f;
static struct rpc_client *user;
static struct md_server_options options;

/* A job as a node got it. */
struct job {
	uint64_t id, ino, generation, from_generation;
	uint32_t kind;
	size_t source_count;
	struct {
		char node[16];
		uint64_t generation;
		struct rpc_file_ticket ticket;
		bool has_session;
	} sources[8];
};

struct pretended {
	bool missed; /* an answer to NodeWork did not arrive */
	const char *name, *host;
	enum meta_who who;
	unsigned char seed; /* of its key */
	uint64_t boot, free_bytes, capacity_bytes;
	struct rpc_client *client;
	struct job jobs[64]; /* got, and not looked at yet */
	size_t job_count;
	struct job found; /* the last one that was */
};

static struct pretended nodes[NODES];

/* -- nodes ------------------------------------------------------------------------------------ */

GX_UNUSED static int node_register_with(struct pretended *node, const char *name)
{
	PbMeta__NodeRegisterRequest request = PB_META__NODE_REGISTER_REQUEST__INIT;
	const PbMeta__NodeRegisterReply *answer = NULL;
	PbMeta__Node info = PB_META__NODE__INIT;
	char *addresses[] = {(char *)(uintptr_t) "unix:/nowhere"};
	struct rpc_reply reply;
	int r;

	info.name = (char *)(uintptr_t)name;
	info.kind = (char *)(uintptr_t) "fsd";
	info.host = (char *)(uintptr_t)node->host;
	info.addresses = addresses;
	info.n_addresses = 1;
	info.capacity_bytes = node->capacity_bytes;
	info.free_bytes = node->free_bytes;
	info.boot = node->boot;
	request.node = &info;
	r = meta_call_node_register(node->client, &request, NULL, &reply, &answer);
	rpc_reply_fini(&reply);
	return r;
}

GX_UNUSED static void node_register(struct pretended *node)
{
	ck_assert_int_eq(node_register_with(node, node->name), 0);
}

GX_UNUSED static void node_beat(struct pretended *node)
{
	PbMeta__NodeHeartbeatRequest request = PB_META__NODE_HEARTBEAT_REQUEST__INIT;
	const PbMeta__NodeHeartbeatReply *answer = NULL;
	struct rpc_reply reply;

	request.name = (char *)(uintptr_t)node->name;
	request.boot = node->boot;
	request.free_bytes = node->free_bytes;
	ck_assert_int_eq(meta_call_node_heartbeat(node->client, &request, NULL, &reply, &answer),
			 0);
	rpc_reply_fini(&reply);
}

GX_UNUSED static struct rpc_file_ticket ticket_of(const PbMeta__Place *place)
{
	unsigned char host_key[RPC_KEY_BYTES], key[RPC_KEY_BYTES];
	struct rpc_file_ticket ticket = {.rights = 0};

	for (unsigned i = 0; i < NODES; i++)
		if (strcmp(nodes[i].name, place->node) == 0)
			memset(host_key, nodes[i].seed, sizeof(host_key));
	ck_assert_int_eq(rpc_node_key(host_key, key), 0);
	ck_assert_int_eq(rpc_file_ticket_open(place->ticket.data, place->ticket.len, key, &ticket),
			 0);
	return ticket;
}

GX_UNUSED static void take_jobs(struct pretended *node, const PbMeta__NodeWorkReply *answer)
{
	ck_assert_uint_le(answer->n_jobs, MD_JOBS_GIVEN_MAX);
	ck_assert_uint_le(node->job_count + answer->n_jobs, GX_COUNT_OF(node->jobs));
	for (size_t i = 0; i < answer->n_jobs; i++) {
		const PbMeta__Job *told = answer->jobs[i];
		struct job *job = &node->jobs[node->job_count++];

		*job = (struct job){.id = told->id,
				    .kind = told->kind,
				    .ino = told->ino,
				    .generation = told->generation,
				    .from_generation = told->from_generation,
				    .source_count = told->n_sources};
		for (size_t k = 0; k < told->n_sources; k++) {
			const PbMeta__Place *place = told->sources[k];

			ck_assert_int_eq(gx_strcpy(job->sources[k].node,
						   sizeof(job->sources[k].node), place->node),
					 0);
			job->sources[k].generation = place->generation;
			job->sources[k].ticket = ticket_of(place);
			job->sources[k].has_session = place->session_ticket[0] != '\0' &&
						      place->session_key.len == RPC_KEY_BYTES;
		}
	}
}

/* One NodeWork; what is to be said may be NULL. */
GX_UNUSED static int node_work(struct pretended *node, PbMeta__JobDone *done,
			       PbMeta__ObjectNote *note)
{
	PbMeta__NodeWorkRequest request = PB_META__NODE_WORK_REQUEST__INIT;
	const PbMeta__NodeWorkReply *answer = NULL;
	struct rpc_reply reply;
	int r;

	request.name = (char *)(uintptr_t)node->name;
	request.boot = node->boot;
	request.done = &done;
	request.n_done = done != NULL;
	request.notes = &note;
	request.n_notes = note != NULL;
	request.again = node->missed;
	node->missed = false;
	r = meta_call_node_work(node->client, &request, NULL, &reply, &answer);
	if (r == 0)
		take_jobs(node, answer);
	rpc_reply_fini(&reply);
	return r;
}

/* ino 0: of any. */
GX_UNUSED static bool take_job(struct pretended *node, uint32_t kind, uint64_t ino)
{
	for (size_t i = 0; i < node->job_count; i++) {
		if (node->jobs[i].kind != kind || (ino != 0 && node->jobs[i].ino != ino))
			continue;
		node->found = node->jobs[i];
		node->jobs[i] = node->jobs[--node->job_count];
		return true;
	}
	return false;
}

/* Asks until there is a job of this kind about the inode, for some seconds. NULL: none comes. */
GX_UNUSED static struct job *node_job_if(struct pretended *node, uint32_t kind, uint64_t ino,
					 unsigned tries)
{
	bool found = take_job(node, kind, ino);

	for (unsigned i = 0; i < tries && !found; i++) {
		ck_assert_int_eq(node_work(node, NULL, NULL), 0);
		found = take_job(node, kind, ino);
	}
	return found ? &node->found : NULL;
}

GX_UNUSED static struct job *node_job(struct pretended *node, uint32_t kind, uint64_t ino)
{
	struct job *job = node_job_if(node, kind, ino, 15);

	ck_assert_msg(job, "%s gets no job of kind %u", node->name, kind);
	return job;
}

/* Has metad thought about all it knows? */
GX_UNUSED static void ask_quiet(struct md_server *md, void *arg)
{
	const struct md_jobs *jobs = md->jobs;
	struct md_worker *worker, *tmp;
	bool quiet = !jobs->looks && !jobs->scanning && !jobs->scan_wanted &&
		     !jobs->abandoned_wanted && !jobs->abandoned_scan && !md->state.news.trash &&
		     md->state.news.count == 0 &&
		     md_log_durable(md->log) == md_log_next(md->log) - 1;
	bool up;

	HASH_ITER (hh, jobs->workers, worker, tmp) {
		if (md_nodes_find(md->nodes, worker->name, &up) && up)
			quiet &= !worker->trash_news && worker->trash_next.ino == 0;
	}
	*(bool *)arg = quiet;
}

/* Then there is nothing of this kind for the node. */
GX_UNUSED static void assert_no_job(struct pretended *node, uint32_t kind, uint64_t ino)
{
	PbMeta__ObjectNote note = PB_META__OBJECT_NOTE__INIT;
	bool quiet = false;

	for (unsigned i = 0; i < 2000 && !quiet; i++) {
		meta_fixture_run(f, ask_quiet, &quiet);
		if (!quiet)
			usleep(5000);
	}
	ck_assert(quiet);
	/* Who says something is answered at once. */
	note.ino = UINT64_MAX;
	note.what = STABLE;
	ck_assert_int_eq(node_work(node, NULL, &note), 0);
	ck_assert(!take_job(node, kind, ino));
}

GX_UNUSED static void node_did_with(struct pretended *node, const struct job *job, int err,
				    uint64_t size)
{
	PbMeta__JobDone done = PB_META__JOB_DONE__INIT;

	done.id = job->id;
	done.status = rpc_status_from_errno(err, NULL);
	done.size = size;
	done.stable = err == 0 && job->kind != DELETE;
	ck_assert_int_eq(node_work(node, &done, NULL), 0);
}

GX_UNUSED static void node_did(struct pretended *node, const struct job *job)
{
	node_did_with(node, job, 0, 0);
}

/* The writer's reports have clock 1 (give_back). */
GX_UNUSED static void node_notes(struct pretended *node, uint64_t ino, uint64_t generation,
				 uint32_t what)
{
	PbMeta__ObjectNote note = PB_META__OBJECT_NOTE__INIT;

	note.clock = 1;

	note.ino = ino;
	note.generation = generation;
	note.what = what;
	ck_assert_int_eq(node_work(node, NULL, &note), 0);
}

/* What metad said of an inventory. */
struct opinion {
	size_t unknown_count, stale_count, unstable_count;
	PbMeta__ObjectInfo unknown[16], stale[16], unstable[16];
};

GX_UNUSED static int node_inventory(struct pretended *node, uint64_t first, uint64_t last,
				    PbMeta__ObjectInfo *objects, size_t count,
				    struct opinion *ret_opinion)
{
	PbMeta__NodeInventoryRequest request = PB_META__NODE_INVENTORY_REQUEST__INIT;
	const PbMeta__NodeInventoryReply *answer = NULL;
	PbMeta__ObjectInfo *list[64];
	struct rpc_reply reply;
	int r;

	ck_assert_uint_le(count, GX_COUNT_OF(list));
	for (size_t i = 0; i < count; i++)
		list[i] = &objects[i];
	request.name = (char *)(uintptr_t)node->name;
	request.boot = node->boot;
	request.first = first;
	request.last = last;
	request.objects = list;
	request.n_objects = count;
	r = meta_call_node_inventory(node->client, &request, NULL, &reply, &answer);
	*ret_opinion = (struct opinion){.unknown_count = 0};
	for (size_t i = 0; r == 0 && i < answer->n_unknown && i < 16; i++)
		ret_opinion->unknown[ret_opinion->unknown_count++] = *answer->unknown[i];
	for (size_t i = 0; r == 0 && i < answer->n_stale && i < 16; i++)
		ret_opinion->stale[ret_opinion->stale_count++] = *answer->stale[i];
	for (size_t i = 0; r == 0 && i < answer->n_unstable && i < 16; i++)
		ret_opinion->unstable[ret_opinion->unstable_count++] = *answer->unstable[i];
	rpc_reply_fini(&reply);
	return r;
}

GX_UNUSED static PbMeta__ObjectInfo object(uint64_t ino, uint64_t generation)
{
	PbMeta__ObjectInfo info = PB_META__OBJECT_INFO__INIT;

	info.ino = ino;
	info.generation = generation;
	info.size = 10000;
	return info;
}

/* -- files ------------------------------------------------------------------------------------ */

struct file {
	char name[32];
	uint64_t handle, ino, cap, generation;
	uint32_t mode; /* of the lease */
	char primary[16];
};

GX_UNUSED static struct file open_file(const char *name)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;
	const PbMeta__OpenReply *answer = NULL;
	struct rpc_reply reply;
	struct file file = {.handle = 0};

	request.parent = 1;
	request.name = (char *)(uintptr_t)name;
	request.flags = MD_OPEN_READ | MD_OPEN_WRITE | MD_OPEN_CREATE;
	request.mode = 0644;
	ck_assert_int_eq(gx_strcpy(file.name, sizeof(file.name), name), 0);
	ck_assert_int_eq(meta_call_open(user, &request, NULL, &reply, &answer), 0);
	file.handle = answer->handle;
	file.ino = answer->attr->ino;
	file.cap = answer->attr->cap;
	rpc_reply_fini(&reply);
	return file;
}

/* A lease; negative, or how many places. */
GX_UNUSED static int take_lease_at(struct file *file, bool write, const char *host)
{
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;
	const PbMeta__LeaseReply *answer = NULL;
	struct rpc_reply reply;
	int r;

	request.handle = file->handle;
	request.ino = file->ino;
	request.write = write;
	request.host = (char *)(uintptr_t)host;
	r = meta_call_lease(user, &request, NULL, &reply, &answer);
	if (r == 0) {
		file->generation = answer->generation;
		file->mode = answer->mode;
		r = (int)answer->n_places;
		ck_assert_int_gt(r, 0);
		ck_assert_int_eq(
			gx_strcpy(file->primary, sizeof(file->primary), answer->places[0]->node),
			0);
	}
	rpc_reply_fini(&reply);
	return r;
}

GX_UNUSED static int take_lease(struct file *file, bool write)
{
	return take_lease_at(file, write, "");
}

/* All was written, of this size; the lease goes back. */
GX_UNUSED static void give_back(const struct file *file, uint64_t size, bool grown)
{
	PbMeta__ReportRequest request = PB_META__REPORT_REQUEST__INIT;
	const PbMeta__ReportReply *answer = NULL;
	struct rpc_reply reply;

	request.handle = file->handle;
	request.ino = file->ino;
	request.generation = file->generation;
	request.has_size = request.changed = true;
	request.size = size;
	request.clock = 1;
	request.grown = grown;
	request.mode = 1;
	ck_assert_int_eq(meta_call_report(user, &request, NULL, &reply, &answer), 0);
	rpc_reply_fini(&reply);
}

GX_UNUSED static void close_file(const struct file *file)
{
	PbMeta__CloseRequest request = PB_META__CLOSE_REQUEST__INIT;
	const PbMeta__CloseReply *answer = NULL;
	struct rpc_reply reply;

	request.handle = file->handle;
	ck_assert_int_eq(meta_call_close(user, &request, NULL, &reply, &answer), 0);
	rpc_reply_fini(&reply);
}

/* A settled object, on whatever node metad likes best: the one with the most free bytes. */
GX_UNUSED static struct file make_large(const char *name, uint64_t size)
{
	struct file file = open_file(name);

	ck_assert_int_eq(take_lease(&file, true), 1);
	give_back(&file, size, true);
	close_file(&file);
	return file;
}

/* Its content changes; the new generation. */
GX_UNUSED static void write_again(struct file *file, uint64_t size)
{
	struct file opened = open_file(file->name);

	ck_assert_int_eq(take_lease(&opened, true), 1);
	give_back(&opened, size, false);
	close_file(&opened);
	*file = opened;
}

GX_UNUSED static void set_ncopy(const struct file *file, const char *text)
{
	PbMeta__SetxattrRequest request = PB_META__SETXATTR_REQUEST__INIT;
	const PbMeta__SetxattrReply *answer = NULL;
	struct rpc_reply reply;

	request.ino = file->ino;
	request.cap = file->cap;
	request.name = (char *)(uintptr_t) "gfs.ncopy";
	request.value.data = (uint8_t *)(uintptr_t)text;
	request.value.len = strlen(text);
	ck_assert_int_eq(meta_call_setxattr(user, &request, NULL, &reply, &answer), 0);
	rpc_reply_fini(&reply);
}

GX_UNUSED static void unlink_file(const struct file *file)
{
	PbMeta__UnlinkRequest request = PB_META__UNLINK_REQUEST__INIT;
	const PbMeta__UnlinkReply *answer = NULL;
	struct rpc_reply reply;

	request.parent = 1;
	request.name = (char *)(uintptr_t)file->name;
	ck_assert_int_eq(meta_call_unlink(user, &request, NULL, &reply, &answer), 0);
	rpc_reply_fini(&reply);
}

GX_UNUSED static int want_cache(const struct file *file, const char *host)
{
	PbMeta__CacheRequest request = PB_META__CACHE_REQUEST__INIT;
	struct rpc_call_options once = {.deadline_ns = gx_env_now_ns(gx_env_posix()) +
						       200 * GX_NSEC_PER_MSEC};
	const PbMeta__CacheReply *answer = NULL;
	struct rpc_reply reply;
	int r;

	request.ino = file->ino;
	request.cap = file->cap;
	request.host = (char *)(uintptr_t)host;
	r = meta_call_cache(user, &request, &once, &reply, &answer);
	rpc_reply_fini(&reply);
	return r;
}

/* -- what metad has --------------------------------------------------------------------------- */

struct copy_query {
	uint64_t ino;
	const char *node;
	bool listed, current;
	uint32_t flags;
	uint64_t generation;
	bool writing;
};

GX_UNUSED static void ask_copy(struct md_server *md, void *arg)
{
	struct copy_query *query = arg;
	struct rpc_arena arena;
	struct md_ctx ctx = {.state = &md->state, .arena = &arena};
	PbMeta__LayoutRecord *layout;
	const PbMeta__CopyRecord *copy = NULL;
	struct md_inode inode;

	rpc_arena_init(&arena, GX_UNPACK_MAX);
	if (md_file_get(&ctx, query->ino, &inode, &layout) == 0 && layout)
		copy = md_layout_find(layout, query->node);
	query->listed = copy != NULL;
	if (copy) {
		query->current = md_copy_current(&inode, layout, copy);
		query->flags = copy->flags;
		query->generation = copy->generation;
		query->writing = layout->writing != 0;
	}
	rpc_arena_clear(&arena);
}

GX_UNUSED static struct copy_query copy_of(const struct file *file, const struct pretended *node)
{
	struct copy_query query = {.ino = file->ino, .node = node->name};

	meta_fixture_run(f, ask_copy, &query);
	return query;
}

/* The copy is made, by this node. */
GX_UNUSED static void node_copies(struct pretended *node, const struct file *file)
{
	node_did(node, node_job(node, COPY, file->ino));
	ck_assert(copy_of(file, node).current);
}

GX_UNUSED static void shift_jobs(struct md_server *md, void *arg)
{
	struct md_job *job, *tmp;

	HASH_ITER (hh, md->jobs->jobs, job, tmp) {
		if (job->given_ns != 0)
			job->given_ns -= *(int64_t *)arg;
	}
}

/* As if all jobs had been given so long ago. */
GX_UNUSED static void pass_time(int64_t ns)
{
	meta_fixture_run(f, shift_jobs, &ns);
}

GX_UNUSED static void put_down(struct md_server *md, void *arg)
{
	const struct pretended *node = arg;
	bool up;
	PbMeta__Node *info = (PbMeta__Node *)(uintptr_t)md_nodes_find(md->nodes, node->name, &up);

	md_nodes_gone(md->nodes, node->name);
	/* Unlike one whose machine has booted, it is up again with its next word. */
	info->boot = node->boot;
}

/* As if nothing had been heard of it for long. */
GX_UNUSED static void fall_silent(struct pretended *node)
{
	meta_fixture_run(f, put_down, node);
}

/* -- life ------------------------------------------------------------------------------------- */

GX_UNUSED static void on_fatal(void *arg GX_UNUSED, int err)
{
	fprintf(stderr, "metad gave up: %s\n", gx_strerror(err));
	abort();
}

GX_UNUSED static void connect_all(void)
{
	user = meta_fixture_client(f, META_ROOT);
	for (unsigned i = 0; i < NODES; i++)
		nodes[i].client = meta_fixture_client(f, nodes[i].who);
}

GX_UNUSED static void disconnect_all(void)
{
	rpc_client_free(user);
	for (unsigned i = 0; i < NODES; i++)
		rpc_client_free(nodes[i].client);
}

/* metad is killed and starts again, and nobody comes back to it: all are new. */
GX_UNUSED static void restart(void)
{
	meta_fixture_down(f);
	disconnect_all();
	meta_fixture_up(f);
	connect_all();
	for (unsigned i = 0; i < NODES; i++)
		nodes[i].job_count = 0; /* they mean nothing to another life of metad */
}

GX_UNUSED static void pretend_setup(void)
{
	static const struct pretended fresh[NODES] = {
		{.name = "fsd1", .host = "h1", .who = META_HOST, .seed = 0xfd},
		{.name = "fsd2", .host = "h2", .who = META_HOST2, .seed = 0xfe},
		{.name = "fsd3", .host = "h3", .who = META_HOST3, .seed = 0xfb},
	};

	memcpy(nodes, fresh, sizeof(nodes));
	for (unsigned i = 0; i < NODES; i++) {
		nodes[i].boot = 100 + i;
		nodes[i].capacity_bytes = 1000 * GIB;
		/* The first is the best one, the last the worst. */
		nodes[i].free_bytes = (900 - 100 * i) * GIB;
	}
	options = (struct md_server_options)MD_SERVER_OPTIONS_INIT;
	options.fatal_fn = on_fatal;
	options.recovery_ns = 100 * GX_NSEC_PER_MSEC;
}

GX_UNUSED static void start_grid(unsigned node_count)
{
	f = meta_fixture_start(&options);
	connect_all();
	for (unsigned i = 0; i < node_count; i++)
		node_register(&nodes[i]);
}

GX_UNUSED static void pretend_teardown(void)
{
	disconnect_all();
	meta_fixture_check(f);
	meta_fixture_stop(f);
}

#endif
