#include "tests/lib/fsd_fixture.h"
#include "common/gx_num.h"
#include "fsd/fsd_sum.h"
#include "rpc/rpc_ticket.h"
#include "tests/lib/fake_metad.h"
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#define CALL_MS 20000u
#define HOUR_NS (3600 * GX_NSEC_PER_SEC)

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "fsd_fixture: %s: %s\n", what, gx_strerror(r));
	abort();
}

/* -- life -------------------------------------------------------------------------------------- */

void fsd_fixture_init(struct fsd_fixture *f, const char *name)
{
	const char *tmp = getenv("TMPDIR");
	char identity[GX_NAME_USER_MAX + 8];

	memset(f, 0, sizeof(*f));
	f->env = gx_env_posix();
	/* A unix socket's path has little room; fall back to where it is short. */
	must(gx_format(f->dir, sizeof(f->dir), "%s/fsd.XXXXXX",
		       tmp && strlen(tmp) < 40 ? tmp : "/tmp"),
	     "scratch");
	if (!mkdtemp(f->dir))
		must(gx_errno(), f->dir);
	for (size_t i = 0; i < GX_COUNT_OF(f->spools); i++) {
		must(gx_format(f->spools[i], sizeof(f->spools[i]), "%s/spool%zu", f->dir, i),
		     "spool");
		must(gx_env_mkdir(f->env, f->spools[i], 0700), f->spools[i]);
		f->spool_list[i] = f->spools[i];
	}
	must(gx_format(identity, sizeof(identity), "host:%s", name), "identity");
	must(rpc_key_make(f->env, identity, 0, false, &f->key), "key");
	must(rpc_node_key(f->key.secret, f->node_key), "node key");
	f->options = (struct fsd_server_options)FSD_SERVER_OPTIONS_INIT;
	f->options.env = f->env;
	f->options.name = rpc_identity_name(f->key.identity);
	f->options.spools = f->spool_list;
	f->options.spool_count = 1;
	f->options.make_spools = true;
	f->options.key = &f->key;
	f->options.boot = FSD_FIXTURE_BOOT;
	f->options.reserved_bytes = 0;
}

void fsd_fixture_use_metad(struct fsd_fixture *f, struct fake_metad *metad)
{
	f->key = *fake_metad_key(metad);
	must(rpc_node_key(f->key.secret, f->node_key), "node key");
	f->options.metad = *fake_metad_endpoint(metad);
}

static int remove_one(const char *path, const struct stat *st GX_UNUSED, int flag GX_UNUSED,
		      struct FTW *ftw GX_UNUSED)
{
	return remove(path);
}

void fsd_fixture_fini(struct fsd_fixture *f)
{
	fsd_fixture_down(f);
	nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void listen_on(struct fsd_fixture *f, enum fsd_fixture_kind kind, const char *text)
{
	struct rpc_endpoint endpoint;

	must(rpc_endpoint_parse(f->env, text, false, &endpoint, NULL), text);
	must(fsd_server_listen(f->server, &endpoint, &f->endpoints[kind]), text);
}

static void loop_main(void *arg)
{
	must(gx_loop_run(arg), "loop");
}

int fsd_fixture_try(struct fsd_fixture *f)
{
	char text[GX_ADDR_TEXT_MAX];
	int r;

	must(gx_loop_new(f->options.env, &f->loop), "loop");
	f->options.loop = f->loop;
	r = fsd_server_new(&f->options, &f->server);
	if (r < 0) {
		gx_loop_free(f->loop);
		f->server = NULL;
		return r;
	}
	must(gx_format(text, sizeof(text), "unix:%s/sock", f->dir), "address");
	listen_on(f, FSD_FIXTURE_UNIX, text);
	listen_on(f, FSD_FIXTURE_TCP, "127.0.0.1:0");
	listen_on(f, FSD_FIXTURE_TLS, "tls:127.0.0.1:0");
	must(fsd_server_start(f->server), "start");
	must(gx_env_thread_start(f->env, &f->thread, "fsd-loop", loop_main, f->loop), "thread");
	return 0;
}

void fsd_fixture_up(struct fsd_fixture *f)
{
	must(fsd_fixture_try(f), "server");
}

void fsd_fixture_down(struct fsd_fixture *f)
{
	if (!f->server)
		return;
	gx_loop_stop(f->loop);
	must(gx_env_thread_join(f->env, &f->thread), "thread");
	fsd_server_free(f->server);
	f->server = NULL;
	gx_loop_free(f->loop);
}

struct drain {
	struct gx_task task;
	struct fsd_fixture *fixture;
};

static void on_drained(void *arg)
{
	struct fsd_fixture *f = arg;

	gx_loop_stop(f->loop);
}

static void on_drain(struct gx_task *task)
{
	struct fsd_fixture *f = GX_CONTAINER_OF(task, struct drain, task)->fixture;

	fsd_server_drain(f->server, gx_env_deadline_ms(f->env, CALL_MS), on_drained, f);
}

void fsd_fixture_drain(struct fsd_fixture *f)
{
	struct drain drain = {.task = {.fn = on_drain}, .fixture = f};

	gx_loop_post(f->loop, &drain.task);
	must(gx_env_thread_join(f->env, &f->thread), "thread");
	fsd_server_free(f->server);
	f->server = NULL;
	gx_loop_free(f->loop);
}

/* -- tickets ----------------------------------------------------------------------------------- */

void fsd_fixture_session(struct fsd_fixture *f, uint64_t session, int64_t expires_ns,
			 char text[GX_IDENTITY_MAX], unsigned char ret_key[RPC_KEY_BYTES])
{
	struct rpc_ticket ticket = {.session = session, .epoch = 1, .expires_ns = expires_ns};

	must(gx_strcpy(ticket.identity, sizeof(ticket.identity), "user:alice"), "identity");
	must(gx_strcpy(ticket.node, sizeof(ticket.node), f->options.name), "node");
	rpc_ticket_format(&ticket, text);
	must(rpc_ticket_key(text, f->node_key, ret_key), "session key");
}

struct rpc_client *fsd_fixture_client(struct fsd_fixture *f, enum fsd_fixture_kind kind,
				      uint64_t session)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	unsigned char key[RPC_KEY_BYTES];
	char text[GX_IDENTITY_MAX];
	struct rpc_client *client;

	fsd_fixture_session(f, session, gx_env_wall_ns(f->env) + HOUR_NS, text, key);
	options.env = f->env;
	options.endpoint = f->endpoints[kind];
	options.identity = text;
	options.key = key;
	options.timeout_ns = CALL_MS * GX_NSEC_PER_MSEC;
	must(rpc_client_new(&options, &client), "client");
	return client;
}

struct rpc_file_ticket fsd_fixture_ticket(struct fsd_fixture *f, uint64_t ino, uint64_t generation,
					  uint64_t base)
{
	return (struct rpc_file_ticket){
		.rights = RPC_FILE_READ | RPC_FILE_WRITE,
		.ino = ino,
		.generation = generation,
		.base = base,
		.session = FSD_FIXTURE_SESSION,
		.size_max = UINT64_MAX,
		.epoch = 1,
		.expires_ns = gx_env_wall_ns(f->env) + HOUR_NS,
	};
}

ProtobufCBinaryData fsd_fixture_seal(struct fsd_fixture *f, const struct rpc_file_ticket *ticket,
				     struct fsd_sealed *sealed)
{
	must(rpc_file_ticket_seal(ticket, f->node_key, sealed->bytes), "seal");
	sealed->data = (ProtobufCBinaryData){.data = sealed->bytes, .len = sizeof(sealed->bytes)};
	return sealed->data;
}

/* -- behind its back --------------------------------------------------------------------------- */

static bool find_path(struct fsd_fixture *f, uint64_t ino, uint64_t generation,
		      char path[GX_PATH_MAX])
{
	for (size_t i = 0; i < f->options.spool_count; i++) {
		struct stat st;

		must(gx_format(path, GX_PATH_MAX, "%s/objects/%02x/%02x/%016llx.%016llx",
			       f->spools[i], (unsigned)(ino >> 16 & 0xff),
			       (unsigned)(ino >> 8 & 0xff), (unsigned long long)ino,
			       (unsigned long long)generation),
		     "path");
		if (gx_env_stat(f->env, path, &st) == 0)
			return true;
	}
	return false;
}

void fsd_fixture_path(struct fsd_fixture *f, uint64_t ino, uint64_t generation,
		      char path[GX_PATH_MAX])
{
	if (!find_path(f, ino, generation, path))
		must(-ENOENT, path);
}

bool fsd_fixture_has(struct fsd_fixture *f, uint64_t ino, uint64_t generation)
{
	char path[GX_PATH_MAX];

	return find_path(f, ino, generation, path);
}

void fsd_fixture_flip(struct fsd_fixture *f, uint64_t ino, uint64_t generation, uint64_t offset)
{
	char path[GX_PATH_MAX];
	unsigned char byte;
	int fd;

	fsd_fixture_path(f, ino, generation, path);
	fd = gx_env_open(f->env, path, O_RDWR, 0);
	must(fd, path);
	if (gx_env_pread(f->env, fd, &byte, 1, offset) != 1)
		must(-ENODATA, path);
	byte ^= 4;
	must(gx_env_pwrite(f->env, fd, &byte, 1, offset), path);
	gx_env_close(f->env, fd);
}

/* -- the gate ---------------------------------------------------------------------------------- */

static struct {
	struct gx_env env;
	struct gx_env_ops ops;
	struct gx_mutex lock;
	struct gx_cond changed;
	bool closed_to_syncs, closed_to_writes; /* and below: under the lock */
	unsigned waiting;
	uint64_t free_bytes;
	_Atomic uint64_t sent_bytes;
} gate;

static void gate_pass(const bool *closed)
{
	struct gx_env *env = gx_env_posix();

	gx_env_mutex_lock(env, &gate.lock);
	gate.waiting++;
	while (*closed) {
		gx_env_cond_broadcast(env, &gate.changed);
		GX_IGNORE(gx_env_cond_wait(env, &gate.changed, &gate.lock, GX_FOREVER));
	}
	gate.waiting--;
	gx_env_mutex_unlock(env, &gate.lock);
}

static int gate_fdatasync(struct gx_env *env, int fd)
{
	gate_pass(&gate.closed_to_syncs);
	return gx_env_posix()->ops->fdatasync(env, fd);
}

static ssize_t gate_pwritev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
			    uint64_t offset)
{
	gate_pass(&gate.closed_to_writes);
	return gx_env_posix()->ops->pwritev(env, fd, iov, iov_count, offset);
}

static int gate_get_space(struct gx_env *env, const char *path, uint64_t *ret_bytes,
			  uint64_t *ret_free)
{
	int r = gx_env_posix()->ops->space(env, path, ret_bytes, ret_free);

	gx_env_mutex_lock(gx_env_posix(), &gate.lock);
	if (gate.free_bytes > 0)
		*ret_free = gate.free_bytes;
	gx_env_mutex_unlock(gx_env_posix(), &gate.lock);
	return r;
}

static ssize_t gate_sendfile(struct gx_env *env, int fd, int file, uint64_t offset, size_t bytes,
			     int64_t deadline_ns)
{
	ssize_t n = gx_env_posix()->ops->sendfile(env, fd, file, offset, bytes, deadline_ns);

	if (n > 0)
		atomic_fetch_add(&gate.sent_bytes, (uint64_t)n);
	return n;
}

void fsd_gate_init(void)
{
	memset(&gate, 0, sizeof(gate));
	must(gx_env_mutex_init(gx_env_posix(), &gate.lock), "mutex");
	must(gx_env_cond_init(gx_env_posix(), &gate.changed), "cond");
	gate.ops = *gx_env_posix()->ops;
	gate.ops.fdatasync = gate_fdatasync;
	gate.ops.pwritev = gate_pwritev;
	gate.ops.space = gate_get_space;
	gate.ops.sendfile = gate_sendfile;
	gate.env = *gx_env_posix();
	gate.env.ops = &gate.ops;
}

void fsd_gate_fini(void)
{
	gx_env_cond_fini(gx_env_posix(), &gate.changed);
	gx_env_mutex_fini(gx_env_posix(), &gate.lock);
}

struct gx_env *fsd_gate_env(void)
{
	return &gate.env;
}

void fsd_gate_close(bool syncs, bool writes)
{
	gx_env_mutex_lock(gx_env_posix(), &gate.lock);
	gate.closed_to_syncs = syncs;
	gate.closed_to_writes = writes;
	gx_env_cond_broadcast(gx_env_posix(), &gate.changed);
	gx_env_mutex_unlock(gx_env_posix(), &gate.lock);
}

void fsd_gate_open(void)
{
	fsd_gate_close(false, false);
}

void fsd_gate_wait(unsigned count)
{
	gx_env_mutex_lock(gx_env_posix(), &gate.lock);
	while (gate.waiting < count)
		GX_IGNORE(gx_env_cond_wait(gx_env_posix(), &gate.changed, &gate.lock, GX_FOREVER));
	gx_env_mutex_unlock(gx_env_posix(), &gate.lock);
}

void fsd_gate_space(uint64_t free_bytes)
{
	gx_env_mutex_lock(gx_env_posix(), &gate.lock);
	gate.free_bytes = free_bytes;
	gx_env_mutex_unlock(gx_env_posix(), &gate.lock);
}

uint64_t fsd_gate_sent(void)
{
	return atomic_load(&gate.sent_bytes);
}

/* -- calls ------------------------------------------------------------------------------------- */

static int write_or_append(struct rpc_client *client, ProtobufCBinaryData ticket, const void *data,
			   size_t bytes, uint64_t offset, bool append, uint64_t *ret_offset)
{
	PbData__DataWriteRequest request = PB_DATA__DATA_WRITE_REQUEST__INIT;
	struct iovec iov = {(void *)data, bytes};
	struct rpc_call_options options = {.payload_out = &iov, .payload_out_count = 1};
	const PbData__DataWriteReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket;
	request.offset = offset;
	request.append = append;
	r = data_call_data_write(client, &request, &options, &reply, &answer);
	if (r == 0 && ret_offset)
		*ret_offset = answer->offset;
	rpc_reply_fini(&reply);
	return r;
}

int fsd_call_write(struct rpc_client *client, ProtobufCBinaryData ticket, const void *data,
		   size_t bytes, uint64_t offset)
{
	return write_or_append(client, ticket, data, bytes, offset, false, NULL);
}

int fsd_call_append(struct rpc_client *client, ProtobufCBinaryData ticket, const void *data,
		    size_t bytes, uint64_t *ret_offset)
{
	return write_or_append(client, ticket, data, bytes, 0, true, ret_offset);
}

static bool sums_fit(const unsigned char *data, size_t bytes, const ProtobufCBinaryData *sums)
{
	unsigned char block[FSD_BLOCK_BYTES];
	size_t count = (bytes + FSD_BLOCK_BYTES - 1) / FSD_BLOCK_BYTES;

	if (sums->len != count * sizeof(uint64_t))
		return false;
	for (size_t i = 0; i < count; i++) {
		size_t n = GX_MIN(bytes - i * FSD_BLOCK_BYTES, (size_t)FSD_BLOCK_BYTES);

		memset(block, 0, sizeof(block));
		memcpy(block, data + i * FSD_BLOCK_BYTES, n);
		if (fsd_sum_block(block) != gx_get_le64(sums->data + i * sizeof(uint64_t)))
			return false;
	}
	return true;
}

ssize_t fsd_call_read(struct rpc_client *client, ProtobufCBinaryData ticket, void *buf,
		      size_t bytes, uint64_t offset, bool prove)
{
	PbData__DataReadRequest request = PB_DATA__DATA_READ_REQUEST__INIT;
	struct rpc_call_options options = {.payload_in = buf, .payload_in_bytes = bytes};
	const PbData__DataReadReply *answer = NULL;
	struct rpc_reply reply;
	ssize_t n;

	request.ticket = ticket;
	request.offset = offset;
	request.bytes = (uint32_t)bytes;
	request.prove = prove;
	n = data_call_data_read(client, &request, &options, &reply, &answer);
	if (n == 0)
		n = sums_fit(buf, reply.payload_bytes, &answer->sums) ? (ssize_t)reply.payload_bytes
								      : -EILSEQ;
	rpc_reply_fini(&reply);
	return n;
}

int fsd_call_sync(struct rpc_client *client, ProtobufCBinaryData ticket)
{
	PbData__DataSyncRequest request = PB_DATA__DATA_SYNC_REQUEST__INIT;
	const PbData__DataSyncReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket;
	r = data_call_data_sync(client, &request, NULL, &reply, &answer);
	if (r == 0 && answer->boot != FSD_FIXTURE_BOOT)
		r = -EPROTO;
	rpc_reply_fini(&reply);
	return r;
}

int fsd_call_truncate(struct rpc_client *client, ProtobufCBinaryData ticket, uint64_t size)
{
	PbData__DataTruncateRequest request = PB_DATA__DATA_TRUNCATE_REQUEST__INIT;
	const PbData__DataTruncateReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket;
	request.size = size;
	r = data_call_data_truncate(client, &request, NULL, &reply, &answer);
	if (r == 0 && answer->size != size)
		r = -EPROTO;
	rpc_reply_fini(&reply);
	return r;
}

int fsd_call_room(struct rpc_client *client, ProtobufCBinaryData ticket, uint32_t kind,
		  uint64_t offset, uint64_t bytes)
{
	PbData__DataRoomRequest request = PB_DATA__DATA_ROOM_REQUEST__INIT;
	const PbData__DataRoomReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket;
	request.kind = kind;
	request.offset = offset;
	request.bytes = bytes;
	r = data_call_data_room(client, &request, NULL, &reply, &answer);
	rpc_reply_fini(&reply);
	return r;
}

int fsd_call_seek(struct rpc_client *client, ProtobufCBinaryData ticket, uint64_t offset, bool hole,
		  uint64_t *ret_offset)
{
	PbData__DataSeekRequest request = PB_DATA__DATA_SEEK_REQUEST__INIT;
	const PbData__DataSeekReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket;
	request.offset = offset;
	request.hole = hole;
	r = data_call_data_seek(client, &request, NULL, &reply, &answer);
	if (r == 0)
		*ret_offset = answer->offset;
	rpc_reply_fini(&reply);
	return r;
}

int fsd_call_stat(struct rpc_client *client, ProtobufCBinaryData ticket,
		  PbData__DataStatReply *ret_stat)
{
	PbData__DataStatRequest request = PB_DATA__DATA_STAT_REQUEST__INIT;
	const PbData__DataStatReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket;
	r = data_call_data_stat(client, &request, NULL, &reply, &answer);
	if (r == 0)
		*ret_stat = *answer;
	rpc_reply_fini(&reply);
	return r;
}

int fsd_call_sums(struct rpc_client *client, ProtobufCBinaryData ticket, uint64_t first,
		  uint32_t count, uint64_t *ret_sums, size_t *ret_count)
{
	PbData__DataSumsRequest request = PB_DATA__DATA_SUMS_REQUEST__INIT;
	struct rpc_call_options options = {.payload_in = ret_sums,
					   .payload_in_bytes = count * sizeof(*ret_sums)};
	const PbData__DataSumsReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket;
	request.first = first;
	request.count = count;
	r = data_call_data_sums(client, &request, &options, &reply, &answer);
	if (r == 0)
		*ret_count = reply.payload_bytes / sizeof(*ret_sums);
	rpc_reply_fini(&reply);
	return r;
}

int fsd_call_descriptor(struct rpc_client *client, ProtobufCBinaryData ticket)
{
	PbData__DataDescriptorRequest request = PB_DATA__DATA_DESCRIPTOR_REQUEST__INIT;
	const PbData__DataDescriptorReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket;
	r = data_call_data_descriptor(client, &request, NULL, &reply, &answer);
	if (r == 0) {
		r = reply.descriptor;
		reply.descriptor = -1;
	}
	rpc_reply_fini(&reply);
	return r;
}
