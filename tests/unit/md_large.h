/*
 * md_large.h - large files at a real metad: clients that are raw channels, so that a test decides
 * what each says and when, and storage nodes that only say they are there and do jobs as they are
 * told. No byte of content is anywhere.
 */
#ifndef MD_LARGE_H
#define MD_LARGE_H

#include "md_party.h"
#include "rpc/rpc_file_ticket.h"
#include <stdio.h>
#include <stdlib.h>

#define RPC_SERVICE_META
#include "rpc/rpc_stub.h"

#define TELL_FORGET 1u
#define TELL_RECALL 8u
#define TELL_SIZE 16u
#define MODE_READ 1u
#define MODE_EXCLUSIVE 2u
#define MODE_SHARED 3u
#define KEEP 0u
#define BACK 1u

struct client {
	struct party party;
	uint64_t seq;
	struct rpc_push_message pushed; /* the last one */
};

struct file {
	uint64_t handle;
	uint64_t token;
	uint32_t flags;
	PbMeta__Attr attr;
};

static struct client alice, bob, root;
static struct rpc_client *nodes[2];

/* -- clients ------------------------------------------------------------------------------------
 */

static void join(struct client *client, enum meta_who who, bool push)
{
	*client = (struct client){0};
	party_open(&client->party, who, push);
	rpc_push_message_init(&client->pushed);
}

static void part(struct client *client)
{
	party_close(&client->party);
	rpc_push_message_fini(&client->pushed);
	rpc_push_message_init(&client->pushed);
}

static void *reply_of(struct client *client)
{
	return client->party.reply.message;
}

static uint64_t begin_change(struct client *client, enum rpc_method_index method,
			     const void *message, const char *payload)
{
	uint64_t seq = ++client->seq;

	return submit(&client->party, method, message, seq, (uint32_t)GX_MIN(seq, RING), payload);
}

static int do_change(struct client *client, enum rpc_method_index method, const void *message)
{
	return wait_for(&client->party, begin_change(client, method, message, NULL));
}

/* Has no answer, and none can come: metad has been asked for something else since. */
static void assert_waits(struct client *client, uint64_t call)
{
	PbMeta__RenewRequest request = PB_META__RENEW_REQUEST__INIT;

	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(look(&client->party, RPC_INDEX_RENEW, &request), 0);
	ck_assert_uint_eq(rpc_chan_load(client->party.calls), 1);
	GX_IGNORE(call);
}

/* The next push that says this of the inode, acknowledged like all before it: the number asked. */
static uint64_t told(struct client *client, uint64_t ino, uint32_t what)
{
	for (;;) {
		const PbMeta__ForgetRequest *forget;

		ck_assert_int_eq(
			rpc_chan_receive(client->party.push, now_ns() + WAIT_NS, &client->pushed),
			0);
		ck_assert_int_eq(
			rpc_chan_ack(client->party.push, client->pushed.seq, now_ns() + WAIT_NS),
			0);
		forget = (const PbMeta__ForgetRequest *)client->pushed.message;
		for (size_t i = 0; i < forget->n_items; i++)
			if (forget->items[i]->ino == ino && (forget->items[i]->what & what))
				return forget->items[i]->ask;
	}
}

/* -- files --------------------------------------------------------------------------------------
 */

static PbMeta__OpenRequest open_request(const char *name, uint32_t flags)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;

	request.parent = 1;
	request.name = (char *)(uintptr_t)name;
	request.flags = flags;
	request.mode = 0666;
	return request;
}

static struct file opened(struct client *client, uint32_t flags)
{
	const PbMeta__OpenReply *reply = reply_of(client);

	return (struct file){reply->handle, reply->token, flags & 3, *reply->attr};
}

static struct file open_as(struct client *client, const char *name, uint32_t flags)
{
	PbMeta__OpenRequest request = open_request(name, flags);

	ck_assert_int_eq(do_change(client, RPC_INDEX_OPEN, &request), 0);
	return opened(client, flags);
}

static struct file open_rw(struct client *client, const char *name)
{
	return open_as(client, name, MD_OPEN_READ | MD_OPEN_WRITE | MD_OPEN_CREATE);
}

static void close_file(struct client *client, const struct file *file)
{
	PbMeta__CloseRequest request = PB_META__CLOSE_REQUEST__INIT;

	request.handle = file->handle;
	ck_assert_int_eq(look(&client->party, RPC_INDEX_CLOSE, &request), 0);
}

static int write_inline(struct client *client, const struct file *file, const char *text)
{
	PbMeta__WriteRequest request = PB_META__WRITE_REQUEST__INIT;

	request.handle = file->handle;
	request.ino = file->attr.ino;
	return wait_for(&client->party, begin_change(client, RPC_INDEX_WRITE, &request, text));
}

/* -- leases -------------------------------------------------------------------------------------
 */

static uint64_t begin_lease(struct client *client, const struct file *file, bool write)
{
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;

	request.handle = file->handle;
	request.ino = file->attr.ino;
	request.write = write;
	return submit(&client->party, RPC_INDEX_LEASE, &request, 0, 0, NULL);
}

static const PbMeta__LeaseReply *leased(struct client *client, uint64_t call)
{
	ck_assert_int_eq(wait_for(&client->party, call), 0);
	return reply_of(client);
}

static const PbMeta__LeaseReply *lease(struct client *client, const struct file *file, bool write)
{
	return leased(client, begin_lease(client, file, write));
}

/* A lease to write that another client has to forget the attributes for (rule N12). */
static uint64_t lease_told(struct client *client, const struct file *file, struct client *other)
{
	uint64_t call = begin_lease(client, file, true);

	told(other, file->attr.ino, TELL_FORGET);
	return leased(client, call)->generation;
}

static PbMeta__ReportRequest report_of(const struct file *file, uint64_t generation, uint32_t mode)
{
	PbMeta__ReportRequest request = PB_META__REPORT_REQUEST__INIT;

	request.handle = file->handle;
	request.ino = file->attr.ino;
	request.generation = generation;
	request.mode = mode;
	return request;
}

/* The size, as the primary's `clock`-th change left it; clock 0: says nothing of it. */
static int report(struct client *client, const struct file *file, uint64_t generation,
		  uint32_t mode, uint64_t size, uint64_t clock)
{
	PbMeta__ReportRequest request = report_of(file, generation, mode);

	request.has_size = request.changed = clock > 0;
	request.size = size;
	request.clock = clock;
	return do_change(client, RPC_INDEX_REPORT, &request);
}

static int report_grown(struct client *client, const struct file *file, uint64_t generation,
			uint32_t mode, uint64_t size)
{
	PbMeta__ReportRequest request = report_of(file, generation, mode);

	request.has_size = request.changed = request.grown = true;
	request.size = size;
	request.clock = 1;
	return do_change(client, RPC_INDEX_REPORT, &request);
}

/* A file with an object, settled; its generation. */
static uint64_t make_large(struct client *client, const char *name, uint64_t size)
{
	struct file file = open_rw(client, name);
	uint64_t generation = lease(client, &file, true)->generation;

	ck_assert_int_eq(report_grown(client, &file, generation, BACK, size), 0);
	close_file(client, &file);
	return generation;
}

/* -- nodes --------------------------------------------------------------------------------------
 */

static const char *node_name(unsigned node)
{
	return node == 0 ? "fsd1" : "fsd2";
}

static void node_start(unsigned node)
{
	PbMeta__NodeRegisterRequest request = PB_META__NODE_REGISTER_REQUEST__INIT;
	const PbMeta__NodeRegisterReply *answer = NULL;
	PbMeta__Node info = PB_META__NODE__INIT;
	char *addresses[] = {(char *)(uintptr_t) "unix:/nowhere"};
	struct rpc_reply reply;

	if (!nodes[node])
		nodes[node] = meta_fixture_client(f, node == 0 ? META_HOST : META_HOST2);
	info.name = (char *)(uintptr_t)node_name(node);
	info.kind = (char *)(uintptr_t) "fsd";
	info.host = (char *)(uintptr_t)(node == 0 ? "h1" : "h2");
	info.addresses = addresses;
	info.n_addresses = 1;
	info.capacity_bytes = UINT64_C(1) << 40;
	/* The first is the better one. */
	info.free_bytes = (UINT64_C(1) << 39) >> node;
	info.boot = 5;
	request.node = &info;
	ck_assert_int_eq(meta_call_node_register(nodes[node], &request, NULL, &reply, &answer), 0);
	rpc_reply_fini(&reply);
}

/* Waits for a job of this kind about the inode; what others there were is said to be done. */
static PbMeta__Job node_job(unsigned node, uint32_t kind, uint64_t ino)
{
	PbMeta__JobDone done[MD_JOBS_GIVEN_MAX], *pointers[MD_JOBS_GIVEN_MAX];
	PbMeta__NodeWorkRequest request = PB_META__NODE_WORK_REQUEST__INIT;

	request.name = (char *)(uintptr_t)node_name(node);
	request.boot = 5;
	request.done = pointers;
	for (unsigned i = 0; i < 50; i++) {
		const PbMeta__NodeWorkReply *answer = NULL;
		PbMeta__Job found = PB_META__JOB__INIT;
		struct rpc_reply reply;

		ck_assert_int_eq(meta_call_node_work(nodes[node], &request, NULL, &reply, &answer),
				 0);
		request.n_done = 0;
		for (size_t k = 0; k < answer->n_jobs; k++) {
			const PbMeta__Job *job = answer->jobs[k];

			if (job->kind == kind && job->ino == ino) {
				found = *job;
				continue;
			}
			pb_meta__job_done__init(&done[request.n_done]);
			done[request.n_done].id = job->id;
			pointers[request.n_done] = &done[request.n_done];
			request.n_done++;
		}
		rpc_reply_fini(&reply);
		if (found.id != 0)
			return found;
	}
	ck_abort_msg("no job");
}

static void node_did(unsigned node, const PbMeta__Job *job, uint64_t size)
{
	PbMeta__JobDone done = PB_META__JOB_DONE__INIT, *pointer = &done;
	PbMeta__NodeWorkRequest request = PB_META__NODE_WORK_REQUEST__INIT;
	const PbMeta__NodeWorkReply *answer = NULL;
	struct rpc_reply reply;

	request.name = (char *)(uintptr_t)node_name(node);
	request.boot = 5;
	request.done = &pointer;
	request.n_done = 1;
	done.id = job->id;
	done.size = size;
	done.stable = true;
	ck_assert_int_eq(meta_call_node_work(nodes[node], &request, NULL, &reply, &answer), 0);
	rpc_reply_fini(&reply);
}

/* The primary moves on from a writer that has vanished; the new generation. */
static uint64_t node_recovers(unsigned node, uint64_t ino, uint64_t from_generation, uint64_t size)
{
	PbMeta__Job job = node_job(node, 3, ino);

	ck_assert_uint_eq(job.from_generation, from_generation);
	ck_assert_uint_gt(job.generation, from_generation);
	node_did(node, &job, size);
	return job.generation;
}

/* What metad has sealed for a node. */
static struct rpc_file_ticket ticket_of(const PbMeta__Place *place)
{
	unsigned char host_key[RPC_KEY_BYTES], key[RPC_KEY_BYTES];
	struct rpc_file_ticket ticket;

	memset(host_key, strcmp(place->node, "fsd1") == 0 ? 0xfd : 0xfe, sizeof(host_key));
	ck_assert_int_eq(rpc_node_key(host_key, key), 0);
	ck_assert_int_eq(rpc_file_ticket_open(place->ticket.data, place->ticket.len, key, &ticket),
			 0);
	return ticket;
}

/* -- metad --------------------------------------------------------------------------------------
 */

static void on_fatal(void *arg GX_UNUSED, int err)
{
	fprintf(stderr, "metad gave up: %s\n", gx_strerror(err));
	abort();
}

static void large_setup(void)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;

	options.root_mode = 0777;
	options.fatal_fn = on_fatal;
	f = meta_fixture_start(&options);
	join(&alice, META_ALICE, true);
	join(&bob, META_BOB, true);
	join(&root, META_ROOT, false);
	node_start(0);
}

static void large_teardown(void)
{
	part(&alice);
	part(&bob);
	part(&root);
	for (unsigned i = 0; i < GX_COUNT_OF(nodes); i++) {
		rpc_client_free(nodes[i]);
		nodes[i] = NULL;
	}
	meta_fixture_check(f);
	meta_fixture_stop(f);
}

struct shift {
	uint64_t session, ino;
	int64_t silent_ns, recalled_ns;
};

static void shift_clocks(struct md_server *md, void *arg)
{
	const struct shift *shift = arg;
	struct md_grant *grant = md_access_find(md->access, shift->session, shift->ino);

	md_session_get(md, shift->session)->contact_ns -= shift->silent_ns;
	md_session_get(md, shift->session)->trust_ns -= shift->silent_ns;
	if (grant)
		grant->recalled_ns -= shift->recalled_ns;
}

/* As if nothing had been heard of the client for so long. */
static void is_silent(struct client *client, int64_t ns)
{
	struct shift shift = {.session = client->party.session, .silent_ns = ns};

	meta_fixture_run(f, shift_clocks, &shift);
}

/* As if it had been asked to give way so long ago. */
static void is_slow(struct client *client, uint64_t ino, int64_t ns)
{
	struct shift shift = {.session = client->party.session, .ino = ino, .recalled_ns = ns};

	meta_fixture_run(f, shift_clocks, &shift);
}

#endif
