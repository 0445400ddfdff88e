/*
 * fsd_service.c - handlers of the data service (idl/proto/data.proto), and the tickets they want.
 *
 * Each runs in the thread of its connection and may block. A read costs no copy: the checksums come
 * from the sum file, and the bytes go from the data file to the socket after the handler is done,
 * without any lock. A writer may come between; then the reader finds that bytes and checksums do
 * not fit and asks for a proof, which is read and verified under the lock, into memory (rule B7).
 *
 * A write is taken from the socket in pieces, each of which is one change of the object: a slow
 * peer holds no lock and does not keep a generation from moving. An append is one piece.
 *
 * Tickets are opened anew for each request: 0.3 us, which a table of known ones would not beat.
 */
#include "common/gx_broken.h"
#include "common/gx_num.h"
#include "fsd/fsd_server_impl.h"
#include "fsd/fsd_sum.h"

#define RPC_SERVICE_DATA
#define RPC_HANDLER(lower) fsd_op_##lower
#define RPC_TABLE fsd_service_table
#include "rpc/rpc_service_def.h"

#define READ_MAX (4u * 1024 * 1024)
#define APPEND_MAX (4u * 1024 * 1024)
#define SUMS_MAX 65536u
#define PIECE_BYTES (256u * 1024) /* stays in a cache between the socket, the hash and the file */
#define PIECES_KEPT 16u
/* So that many connections cost little: above so many pieces, and for little data, smaller ones. */
#define PIECES_MAX 256u
#define SMALL_PIECE_BYTES (16u * 1024)
/* What appends and proofs may have in memory together; more are asked to come again. */
#define WHOLE_BYTES_MAX (64u * 1024 * 1024)
#define WHOLE_RETRY_MS 10u

enum { ROOM_HOLE = 1, ROOM_GROW = 2, ROOM_KEEP = 3 };

/* Memory for a piece; at most one per connection is in use. */
struct piece {
	struct piece *next;
};

struct fsd_service {
	struct fsd_server *server;
	struct gx_mutex lock;
	struct piece *pieces; /* free ones */
	unsigned piece_count;
	unsigned piece_total; /* with those in use */
	_Atomic uint64_t whole_bytes;
};

/* -- tickets ----------------------------------------------------------------------------------- */

static int check_ticket(struct rpc_call *call, const ProtobufCBinaryData *bytes, uint32_t rights,
			struct rpc_file_ticket *ret_ticket)
{
	const struct fsd_service *service = call->data;
	struct rpc_file_ticket ticket;
	int r = rpc_file_ticket_open(bytes->data, bytes->len, service->server->auth.node_key,
				     &ticket);

	if (r < 0)
		return rpc_call_fail(call, r, "not a file ticket for this node");
	if (ticket.session != call->session)
		return rpc_call_fail(call, -EKEYREJECTED, "file ticket of another session");
	if (gx_env_wall_ns(call->env) - FSD_SKEW_NS > ticket.expires_ns)
		return rpc_call_fail(call, -EKEYREJECTED, "file ticket expired");
	if ((ticket.rights & rights) != rights)
		return rpc_call_fail(call, -EACCES, "file ticket without this right");
	/* Half copies have the generation 0. */
	if (ticket.generation == 0)
		return -ESTALE;
	*ret_ticket = ticket;
	return 0;
}

/* The ticket is good and the object is there. */
static int get_object(struct rpc_call *call, const ProtobufCBinaryData *bytes, uint32_t rights,
		      struct rpc_file_ticket *ret_ticket, struct fsd_ref *ret_ref)
{
	const struct fsd_service *service = call->data;
	int r = check_ticket(call, bytes, rights, ret_ticket);

	return r < 0 ? r : fsd_table_get(service->server->table, ret_ticket, ret_ref);
}

/* -- what replies have in common --------------------------------------------------------------- */

static struct fsd_server *server_of(struct rpc_call *call)
{
	return ((struct fsd_service *)call->data)->server;
}

/* In this order: see fsd_table_changed(). */
static void tell_state(struct rpc_call *call, const struct fsd_ref *ref, uint64_t *ret_clock,
		       uint64_t *ret_size)
{
	*ret_clock = fsd_table_clock(server_of(call)->table, ref);
	*ret_size = fsd_object_size(ref->object);
}

/* Memory for all of a request or reply; NULL: none, and the call says why. */
static void *whole_take(struct rpc_call *call, size_t bytes, int *ret_err)
{
	struct fsd_service *service = call->data;
	void *memory = NULL;

	if (atomic_fetch_add(&service->whole_bytes, bytes) + bytes > WHOLE_BYTES_MAX) {
		call->retry_after_ms = WHOLE_RETRY_MS;
		*ret_err = rpc_call_fail(call, -EAGAIN, "too much at the same time");
	} else {
		memory = gx_alloc_pages(GX_MAX(bytes, (size_t)1));
		*ret_err = memory ? 0 : -ENOMEM;
	}
	if (!memory)
		atomic_fetch_sub(&service->whole_bytes, bytes);
	return memory;
}

static void whole_give(struct rpc_call *call, void *memory, size_t bytes)
{
	struct fsd_service *service = call->data;

	if (memory)
		atomic_fetch_sub(&service->whole_bytes, bytes);
	free(memory);
}

/* What a call holds until its reply is out. */
struct held {
	struct fsd_ref ref;
	void *memory;
	size_t memory_bytes;
	int fd;
};

static void release_held(struct rpc_call *call)
{
	struct held *held = call->reply_done_arg;

	fsd_table_put(server_of(call)->table, &held->ref);
	whole_give(call, held->memory, held->memory_bytes);
	if (held->fd >= 0)
		gx_env_close(call->env, held->fd);
}

/* Takes over the reference, also when it fails. */
static int hold(struct rpc_call *call, struct fsd_ref *ref, struct held **ret_held)
{
	struct held *held = rpc_call_alloc(call, sizeof(*held));

	if (!held) {
		fsd_table_put(server_of(call)->table, ref);
		return -ENOMEM;
	}
	*held = (struct held){.ref = *ref, .fd = -1};
	call->reply_done = release_held;
	call->reply_done_arg = held;
	*ret_held = held;
	return 0;
}

/* -- reading ----------------------------------------------------------------------------------- */

/* As the wire has them: little-endian. */
static void sums_to_wire(uint64_t *sums, size_t count)
{
	for (size_t i = 0; i < count; i++)
		gx_put_le64(&sums[i], sums[i]);
}

static int read_quick(struct rpc_call *call, const PbData__DataReadRequest *request,
		      PbData__DataReadReply *reply, struct fsd_object *object)
{
	size_t bytes = (size_t)GX_MIN((uint64_t)request->bytes, reply->size - request->offset);
	size_t count = (bytes + FSD_BLOCK_BYTES - 1) / FSD_BLOCK_BYTES;
	uint64_t *sums = rpc_call_alloc(call, count * sizeof(*sums));
	int r;

	if (!sums)
		return -ENOMEM;
	r = fsd_object_sums(object, request->offset / FSD_BLOCK_BYTES, count, sums);
	if (r < 0)
		return r;
	sums_to_wire(sums, count);
	reply->sums = (ProtobufCBinaryData){.data = (uint8_t *)sums, .len = count * sizeof(*sums)};
	call->reply_file = fsd_object_data_fd(object);
	call->reply_file_offset = request->offset;
	call->reply_payload_bytes = bytes;
	return 0;
}

static int copy_sums(struct rpc_call *call, const struct gx_buf *sums,
		     ProtobufCBinaryData *ret_sums)
{
	uint64_t *copy = rpc_call_alloc(call, sums->bytes);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, sums->data, sums->bytes);
	sums_to_wire(copy, sums->bytes / sizeof(*copy));
	*ret_sums = (ProtobufCBinaryData){.data = (uint8_t *)copy, .len = sums->bytes};
	return 0;
}

static int read_proven(struct rpc_call *call, const PbData__DataReadRequest *request,
		       PbData__DataReadReply *reply, struct held *held)
{
	struct gx_buf sums;
	ssize_t n;
	int r;

	held->memory = whole_take(call, request->bytes, &r);
	held->memory_bytes = request->bytes;
	if (!held->memory)
		return r;
	gx_buf_init(&sums, READ_MAX / FSD_BLOCK_BYTES * sizeof(uint64_t));
	n = fsd_object_read(held->ref.object, held->memory, request->bytes, request->offset, &sums);
	r = n > 0 ? copy_sums(call, &sums, &reply->sums) : (int)n;
	gx_buf_fini(&sums);
	if (r < 0)
		return r;
	call->reply_payload = held->memory;
	call->reply_payload_bytes = (uint64_t)n;
	return 0;
}

int fsd_op_data_read(struct rpc_call *call, const PbData__DataReadRequest *request,
		     PbData__DataReadReply *reply)
{
	struct rpc_file_ticket ticket;
	struct held *held;
	struct fsd_ref ref;
	int r;

	if (request->offset % FSD_BLOCK_BYTES != 0 || request->bytes % FSD_BLOCK_BYTES != 0 ||
	    request->bytes == 0 || request->bytes > READ_MAX)
		return rpc_call_fail(call, -EINVAL, "not whole blocks, or too many");
	r = get_object(call, &request->ticket, RPC_FILE_READ, &ticket, &ref);
	if (r == 0)
		r = hold(call, &ref, &held);
	if (r < 0)
		return r;
	tell_state(call, &held->ref, &reply->clock, &reply->size);
	reply->boot = server_of(call)->boot;
	if (request->prove)
		r = read_proven(call, request, reply, held);
	else if (request->offset < reply->size)
		r = read_quick(call, request, reply, held->ref.object);
	if (r == -EBADMSG)
		fsd_table_damaged(server_of(call)->table, &held->ref);
	return r;
}

int fsd_op_data_sums(struct rpc_call *call, const PbData__DataSumsRequest *request,
		     PbData__DataSumsReply *reply)
{
	struct rpc_file_ticket ticket;
	struct fsd_ref ref;
	uint64_t blocks;
	uint64_t *sums;
	size_t count;
	int r;

	if (request->count == 0 || request->count > SUMS_MAX)
		return rpc_call_fail(call, -EINVAL, "no blocks, or too many");
	r = get_object(call, &request->ticket, RPC_FILE_READ, &ticket, &ref);
	if (r < 0)
		return r;
	tell_state(call, &ref, &reply->clock, &reply->size);
	blocks = (reply->size + FSD_BLOCK_BYTES - 1) / FSD_BLOCK_BYTES;
	if (request->first < blocks) {
		count = (size_t)GX_MIN((uint64_t)request->count, blocks - request->first);
		sums = rpc_call_alloc(call, count * sizeof(*sums));
		r = sums ? fsd_object_sums(ref.object, request->first, count, sums) : -ENOMEM;
		if (r == 0)
			sums_to_wire(sums, count);
		call->reply_payload = sums;
		call->reply_payload_bytes = count * sizeof(*sums);
	}
	fsd_table_put(server_of(call)->table, &ref);
	return r;
}

int fsd_op_data_seek(struct rpc_call *call, const PbData__DataSeekRequest *request,
		     PbData__DataSeekReply *reply)
{
	struct rpc_file_ticket ticket;
	struct fsd_ref ref;
	int r = get_object(call, &request->ticket, RPC_FILE_READ, &ticket, &ref);

	if (r < 0)
		return r;
	r = fsd_object_seek(ref.object, request->offset, request->hole, &reply->offset);
	fsd_table_put(server_of(call)->table, &ref);
	return r;
}

int fsd_op_data_stat(struct rpc_call *call, const PbData__DataStatRequest *request,
		     PbData__DataStatReply *reply)
{
	struct rpc_file_ticket ticket;
	struct fsd_ref ref;
	int r = get_object(call, &request->ticket, 0, &ticket, &ref);

	if (r < 0)
		return r;
	tell_state(call, &ref, &reply->clock, &reply->size);
	reply->boot = server_of(call)->boot;
	reply->stable = fsd_object_stable(ref.object);
	reply->bad = fsd_object_bad(ref.object);
	r = fsd_object_stored(ref.object, &reply->stored_bytes);
	fsd_table_put(server_of(call)->table, &ref);
	return r;
}

int fsd_op_data_descriptor(struct rpc_call *call, const PbData__DataDescriptorRequest *request,
			   PbData__DataDescriptorReply *reply)
{
	struct rpc_file_ticket ticket;
	struct held *held;
	struct fsd_ref ref;
	int r;

	if (!call->passes_descriptors)
		return rpc_call_fail(call, -EOPNOTSUPP, "only on a unix socket");
	r = get_object(call, &request->ticket, RPC_FILE_READ, &ticket, &ref);
	if (r == 0)
		r = hold(call, &ref, &held);
	if (r < 0)
		return r;
	/* Never the one that fsd writes with (rule B5). */
	held->fd = fsd_object_open_reader(held->ref.object);
	if (held->fd < 0)
		return held->fd == -ENOENT ? -ESTALE : held->fd;
	tell_state(call, &held->ref, &reply->clock, &reply->size);
	call->reply_descriptor = held->fd;
	return 0;
}

/* -- changing ---------------------------------------------------------------------------------- */

/*
 * Between these two the generation stays. A change that failed may have been done in part, so the
 * clock moves in any case.
 */
static int change_begin(struct rpc_call *call, const struct fsd_ref *ref)
{
	return fsd_table_begin(server_of(call)->table, ref);
}

static int change_end(struct rpc_call *call, struct fsd_ref *ref, int err)
{
	struct fsd_table *table = server_of(call)->table;

	GX_IGNORE(fsd_table_changed(table, ref)); /* told with the reply */
	if (err == -EBADMSG)
		fsd_table_damaged(table, ref);
	fsd_table_end(table, ref);
	return err;
}

/* The disk has room for these bytes already: they are no hole. */
static bool has_own_room(struct fsd_object *object, uint64_t offset, uint64_t end)
{
	uint64_t size = fsd_object_size(object);
	uint64_t found;

	if (end > size)
		return false;
	/* Room that was made beforehand may look like a hole to a seek. */
	return (fsd_object_stored(object, &found) == 0 && found >= size) ||
	       (fsd_object_seek(object, offset, true, &found) == 0 && found >= end);
}

/* On a full disk what is there can be overwritten; which bytes those are is asked only then. */
static int check_room(struct rpc_call *call, const struct fsd_ref *ref, uint64_t offset,
		      uint64_t bytes)
{
	int r = fsd_table_room(server_of(call)->table, ref, bytes);

	return r == -ENOSPC && has_own_room(ref->object, offset, offset + bytes) ? 0 : r;
}

/* A large one if there is one to be had. */
static struct piece *large_piece_take(struct fsd_service *service)
{
	struct piece *piece;
	bool make = false;

	gx_env_mutex_lock(service->server->env, &service->lock);
	piece = service->pieces;
	if (piece) {
		service->pieces = piece->next;
		service->piece_count--;
	} else if (service->piece_total < PIECES_MAX) {
		service->piece_total++;
		make = true;
	}
	gx_env_mutex_unlock(service->server->env, &service->lock);
	if (!make)
		return piece;
	piece = gx_alloc_pages(PIECE_BYTES);
	if (!piece) {
		gx_env_mutex_lock(service->server->env, &service->lock);
		service->piece_total--;
		gx_env_mutex_unlock(service->server->env, &service->lock);
	}
	return piece;
}

static struct piece *piece_take(struct fsd_service *service, uint64_t wanted, size_t *ret_bytes)
{
	struct piece *piece = wanted > SMALL_PIECE_BYTES ? large_piece_take(service) : NULL;

	*ret_bytes = piece ? PIECE_BYTES : SMALL_PIECE_BYTES;
	return piece ? piece : gx_alloc_pages(SMALL_PIECE_BYTES);
}

static void piece_give(struct fsd_service *service, struct piece *piece, size_t bytes)
{
	if (piece && bytes == PIECE_BYTES) {
		gx_env_mutex_lock(service->server->env, &service->lock);
		if (service->piece_count < PIECES_KEPT) {
			piece->next = service->pieces;
			service->pieces = piece;
			service->piece_count++;
			piece = NULL;
		} else {
			service->piece_total--;
		}
		gx_env_mutex_unlock(service->server->env, &service->lock);
	}
	free(piece);
}

/*
 * Exactly so many bytes of the payload. A connection that breaks is no answer that could be
 * remembered: whoever sends the same request again must find that it is not done.
 */
static int read_payload(struct rpc_call *call, void *buf, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = rpc_call_read_payload(call, (uint8_t *)buf + done, bytes - done);

		if (n <= 0)
			return -EAGAIN;
		done += (size_t)n;
	}
	return 0;
}

static int write_piece(struct rpc_call *call, struct fsd_ref *ref, const void *data, size_t bytes,
		       uint64_t offset)
{
	int r = change_begin(call, ref);

	if (r < 0)
		return r;
	r = check_room(call, ref, offset, bytes);
	if (r == 0)
		r = fsd_object_write(ref->object, data, bytes, offset);
	return change_end(call, ref, r);
}

/* Pieces end where regions do, so that each locks one. */
static int write_at(struct rpc_call *call, struct fsd_ref *ref, uint64_t offset)
{
	struct fsd_service *service = call->data;
	uint64_t left = call->payload_bytes;
	size_t piece_bytes;
	struct piece *piece = piece_take(service, left, &piece_bytes);
	int r = piece ? 0 : -ENOMEM;

	while (r == 0 && left > 0) {
		size_t n = (size_t)GX_MIN(left, piece_bytes - offset % piece_bytes);

		r = read_payload(call, piece, n);
		if (r == 0)
			r = write_piece(call, ref, piece, n, offset);
		offset += n;
		left -= n;
	}
	piece_give(service, piece, piece_bytes);
	return r;
}

static int append_piece(struct rpc_call *call, struct fsd_ref *ref, const void *data, size_t bytes,
			uint64_t size_max, uint64_t *ret_offset)
{
	int r = change_begin(call, ref);

	if (r < 0)
		return r;
	r = fsd_table_room(server_of(call)->table, ref, bytes);
	if (r == 0)
		r = fsd_object_append_max(ref->object, data, bytes, size_max, ret_offset);
	return change_end(call, ref, r);
}

static int append(struct rpc_call *call, struct fsd_ref *ref, uint64_t size_max,
		  uint64_t *ret_offset)
{
	size_t bytes = (size_t)call->payload_bytes;
	void *data;
	int r;

	data = whole_take(call, bytes, &r);
	if (!data)
		return r;
	r = read_payload(call, data, bytes);
	if (r == 0)
		r = append_piece(call, ref, data, bytes, size_max, ret_offset);
	whole_give(call, data, bytes);
	return r;
}

/* Ends a range behind what the ticket allows, or behind all numbers? */
static int check_end(const struct rpc_file_ticket *ticket, uint64_t offset, uint64_t bytes)
{
	uint64_t max = GX_MIN(ticket->size_max, FSD_OBJECT_BYTES_MAX);

	return offset > max || bytes > max - offset ? -EFBIG : 0;
}

int fsd_op_data_write(struct rpc_call *call, const PbData__DataWriteRequest *request,
		      PbData__DataWriteReply *reply)
{
	struct rpc_file_ticket ticket;
	struct fsd_ref ref;
	int r;

	if (request->append && call->payload_bytes > APPEND_MAX)
		return rpc_call_fail(call, -EINVAL, "too much for one piece");
	r = get_object(call, &request->ticket, RPC_FILE_WRITE, &ticket, &ref);
	if (r < 0)
		return r;
	if (request->append) {
		r = append(call, &ref, ticket.size_max, &reply->offset);
	} else {
		r = check_end(&ticket, request->offset, call->payload_bytes);
		if (r == 0)
			r = write_at(call, &ref, request->offset);
		reply->offset = request->offset;
	}
	tell_state(call, &ref, &reply->clock, &reply->size);
	reply->boot = server_of(call)->boot;
	fsd_table_put(server_of(call)->table, &ref);
	return r;
}

int fsd_op_data_truncate(struct rpc_call *call, const PbData__DataTruncateRequest *request,
			 PbData__DataTruncateReply *reply)
{
	struct rpc_file_ticket ticket;
	struct fsd_ref ref;
	int r = get_object(call, &request->ticket, RPC_FILE_WRITE, &ticket, &ref);

	if (r < 0)
		return r;
	/* Shorter is always allowed: what is too long already must be able to become better. */
	if (request->size > fsd_object_size(ref.object))
		r = check_end(&ticket, request->size, 0);
	if (r == 0)
		r = change_begin(call, &ref);
	if (r == 0)
		r = change_end(call, &ref, fsd_object_truncate(ref.object, request->size));
	tell_state(call, &ref, &reply->clock, &reply->size);
	reply->boot = server_of(call)->boot;
	fsd_table_put(server_of(call)->table, &ref);
	return r;
}

static int make_room(struct rpc_call *call, struct fsd_ref *ref,
		     const PbData__DataRoomRequest *request)
{
	int r = change_begin(call, ref);

	if (r < 0)
		return r;
	if (request->kind == ROOM_HOLE) {
		r = fsd_object_punch(ref->object, request->offset, request->bytes);
	} else {
		r = fsd_table_room(server_of(call)->table, ref, request->bytes);
		if (r == 0)
			r = fsd_object_allocate(ref->object, request->offset, request->bytes,
						request->kind == ROOM_GROW);
	}
	return change_end(call, ref, r);
}

int fsd_op_data_room(struct rpc_call *call, const PbData__DataRoomRequest *request,
		     PbData__DataRoomReply *reply)
{
	struct rpc_file_ticket ticket;
	struct fsd_ref ref;
	int r;

	if (request->kind < ROOM_HOLE || request->kind > ROOM_KEEP || request->bytes == 0)
		return rpc_call_fail(call, -EINVAL, "no such kind of room, or none");
	r = get_object(call, &request->ticket, RPC_FILE_WRITE, &ticket, &ref);
	if (r < 0)
		return r;
	if (request->kind != ROOM_HOLE)
		r = check_end(&ticket, request->offset, request->bytes);
	if (r == 0)
		r = make_room(call, &ref, request);
	tell_state(call, &ref, &reply->clock, &reply->size);
	reply->boot = server_of(call)->boot;
	fsd_table_put(server_of(call)->table, &ref);
	return r;
}

/* -- syncing ----------------------------------------------------------------------------------- */

static void on_synced(struct rpc_call *call, struct fsd_ref *ref, int err)
{
	PbData__DataSyncReply *reply = (PbData__DataSyncReply *)call->reply;

	tell_state(call, ref, &reply->clock, &reply->size);
	reply->boot = server_of(call)->boot;
	fsd_table_put(server_of(call)->table, ref);
	rpc_call_finish(call, err);
}

int fsd_op_data_sync(struct rpc_call *call, const PbData__DataSyncRequest *request,
		     PbData__DataSyncReply *reply GX_UNUSED)
{
	struct rpc_file_ticket ticket;
	struct fsd_ref ref;
	int r = get_object(call, &request->ticket, 0, &ticket, &ref);

	if (r < 0)
		return r;
	/* Beside what comes later on this connection (rule B10). */
	if (GX_BROKEN(230))
		GX_IGNORE(fsd_object_sync(ref.object));
	r = fsd_syncer_add(server_of(call)->syncer, &ref, call, on_synced);
	if (r == 0)
		return RPC_DEFERRED;
	fsd_table_put(server_of(call)->table, &ref);
	return r;
}

/* -- life -------------------------------------------------------------------------------------- */

int fsd_service_new(struct fsd_server *server, struct fsd_service **ret_service)
{
	struct fsd_service *service = calloc(1, sizeof(*service));
	int r;

	if (!service)
		return -ENOMEM;
	service->server = server;
	r = gx_env_mutex_init(server->env, &service->lock);
	if (r < 0) {
		free(service);
		return r;
	}
	*ret_service = service;
	return 0;
}

void fsd_service_free(struct fsd_service *service)
{
	if (!service)
		return;
	while (service->pieces) {
		struct piece *piece = service->pieces;

		service->pieces = piece->next;
		free(piece);
	}
	gx_env_mutex_fini(service->server->env, &service->lock);
	free(service);
}
