/*
 * Changes of an object: held back, in flight, and kept until they are on disk.
 *
 * Held back is one range per piece (GFD_PIECE_BYTES): small writes side by side become one request.
 * A piece leaves when it is full, when a write does not join it, when there are too many, when
 * somebody reads, and when the background thread sees that nothing is added any more. Requests of
 * the same piece are never in flight together, so their order is that of the writes.
 *
 * What has been answered is kept, in the order in which it was done, until a sync covers it. If the
 * node's machine comes back from a power cut (its boot id differs) all that is kept is sent again
 * in that order (rule B3). Overlapping requests are sent again too, even those the new life has
 * seen: only all of them in their order give the same bytes.
 *
 * Everything here is done by who has the file alone.
 */
#include "client/fs/gfd_impl.h"
#include "common/gx_broken.h"

/* -- life of an op ----------------------------------------------------------------------------- */

static void data_free(struct gfd_file *file, struct gfd_op *op)
{
	if (op->capacity == GFD_PIECE_BYTES)
		gfd_buffer_put(file->gfd, op->data);
	else
		free(op->data);
	op->data = NULL;
}

static void op_free(struct gfd_file *file, struct gfd_op *op)
{
	data_free(file, op);
	free(op);
}

static uint64_t piece_of(uint64_t offset)
{
	return offset / GFD_PIECE_BYTES;
}

bool gfd_holds(const struct gfd_file *file)
{
	return file->dirty_count > 0 || file->flight_count > 0;
}

static void link_drop(struct gfd_file *file)
{
	gfd_link_put(file->gfd, GX_TAKE(file->link));
}

void gfd_ops_drop(struct gfd_file *file)
{
	struct gfd_op *op, *next;

	DL_FOREACH_SAFE (file->flights, op, next) {
		rpc_client_cancel(op->started);
		op_free(file, op);
	}
	DL_FOREACH_SAFE (file->dirty, op, next)
		op_free(file, op);
	DL_FOREACH_SAFE (file->kept, op, next)
		op_free(file, op);
	file->flights = file->dirty = file->kept = NULL;
	file->flight_count = file->dirty_count = 0;
	file->kept_bytes = 0;
	link_drop(file);
}

/* -- answers ----------------------------------------------------------------------------------- */

struct answer {
	uint64_t offset, size, clock, boot;
};

static struct answer answer_of(const struct gfd_op *op, const struct rpc_reply *reply)
{
	switch (op->kind) {
	case GFD_OP_WRITE: {
		const PbData__DataWriteReply *a = (const PbData__DataWriteReply *)reply->message;

		return (struct answer){a->offset, a->size, a->clock, a->boot};
	}
	case GFD_OP_TRUNCATE: {
		const PbData__DataTruncateReply *a =
			(const PbData__DataTruncateReply *)reply->message;

		return (struct answer){0, a->size, a->clock, a->boot};
	}
	case GFD_OP_ROOM: {
		const PbData__DataRoomReply *a = (const PbData__DataRoomReply *)reply->message;

		return (struct answer){0, a->size, a->clock, a->boot};
	}
	}
	gx_assert(!"kind");
}

/* The node's word about the object. */
static void note(struct gfd_file *file, const struct answer *a)
{
	bool is_due;

	gfd_file_lock(file);
	if (a->clock > file->clock) {
		file->clock = a->clock;
		file->object_size = a->size;
	}
	if (file->boot != 0 && a->boot != file->boot)
		file->rebooted = true;
	file->boot = a->boot;
	file->answers++;
	file->changed = true;
	file->unsynced = true;
	is_due = file->due_ns == 0;
	if (is_due)
		file->due_ns =
			gx_env_now_ns(file->gfd->env) + (int64_t)file->report_ms * GX_NSEC_PER_MSEC;
	if (file->mode == GFC_MODE_SHARED)
		file->size = file->object_size;
	gfd_file_unlock(file);
	if (is_due)
		gfd_activate(file);
}

bool gfd_is_rebooted(struct gfd_file *file, uint64_t boot)
{
	bool rebooted;

	gfd_file_lock(file);
	if (file->unsynced && file->boot != 0 && boot != 0 && boot != file->boot) {
		file->rebooted = true;
		file->boot = boot;
	}
	/* Whoever asks, until it has got again what it lost: it may have nothing at all. */
	rebooted = file->rebooted;
	gfd_file_unlock(file);
	return rebooted;
}

/* It cannot be sent again. */
static void drop_kept(struct gfd_file *file, struct gfd_op *op)
{
	file->dropped = true;
	file->drops++;
	op_free(file, op);
}

void gfd_keep_none(struct gfd_file *file)
{
	struct gfd_op *op, *next;

	DL_FOREACH_SAFE (file->kept, op, next)
		drop_kept(file, op);
	file->kept = NULL;
	file->kept_bytes = 0;
}

static void keep_take(struct gfd_file *file, struct gfd_op *op)
{
	size_t max = file->gfd->options.write_behind;

	/* Others write too: to send ours again could undo theirs. */
	if (file->mode == GFC_MODE_SHARED || op->borrowed || op->append) {
		drop_kept(file, op);
		return;
	}
	op->order = ++file->order;
	DL_APPEND(file->kept, op);
	file->kept_bytes += op->capacity + sizeof(*op);
	while (file->kept && file->kept_bytes > max) {
		struct gfd_op *oldest = file->kept;

		DL_DELETE(file->kept, oldest);
		file->kept_bytes -= oldest->capacity + sizeof(*oldest);
		drop_kept(file, oldest);
	}
}

/* -- sending ----------------------------------------------------------------------------------- */

static const struct gfc_place *primary(const struct gfd_file *file)
{
	return &file->places[0].place;
}

static int need_link(struct gfd_file *file)
{
	if (file->link && file->flight_count == 0 && gfd_link_stale(file->gfd, file->link))
		link_drop(file);
	if (file->link)
		return 0;
	return gfd_link_get(file->gfd, primary(file)->node, &file->link);
}

static const struct rpc_method *prepare(struct gfd_file *file, struct gfd_op *op,
					struct rpc_call_options *options)
{
	const struct gfc_place *place = primary(file);
	ProtobufCBinaryData ticket = {place->ticket_bytes, op->ticket};

	memcpy(op->ticket, place->ticket, place->ticket_bytes);
	*options = (struct rpc_call_options){.deadline_ns = op->deadline_ns};
	switch (op->kind) {
	case GFD_OP_WRITE:
		pb_data__data_write_request__init(&op->request.write);
		op->request.write.ticket = ticket;
		op->request.write.offset = op->offset;
		op->request.write.append = op->append;
		op->payload.iov_base = op->borrowed ? (void *)op->borrowed : op->data;
		op->payload.iov_len = op->bytes;
		options->payload_out = &op->payload;
		options->payload_out_count = op->bytes > 0 && !op->from_file ? 1 : 0;
		options->payload_file = op->from_file ? &op->file : NULL;
		return rpc_method_get(RPC_INDEX_DATA_WRITE);
	case GFD_OP_TRUNCATE:
		pb_data__data_truncate_request__init(&op->request.truncate);
		op->request.truncate.ticket = ticket;
		op->request.truncate.size = op->offset;
		return rpc_method_get(RPC_INDEX_DATA_TRUNCATE);
	case GFD_OP_ROOM:
		pb_data__data_room_request__init(&op->request.make_room);
		op->request.make_room.ticket = ticket;
		op->request.make_room.kind = op->room;
		op->request.make_room.offset = op->offset;
		op->request.make_room.bytes = op->bytes;
		return rpc_method_get(RPC_INDEX_DATA_ROOM);
	}
	gx_assert(!"kind");
}

static int op_start(struct gfd_file *file, struct gfd_op *op)
{
	struct rpc_call_options options;
	const struct rpc_method *method;
	int r = need_link(file);

	if (r < 0)
		return r;
	method = prepare(file, op, &options);
	return rpc_client_start(file->link->client, method, &op->request.write.base, &options,
				&op->started);
}

static bool may_repeat(const struct gfd_op *op, int err)
{
	/* A node that was restarted does not know; only an append done twice would be seen. */
	if (err == -ENOTRECOVERABLE)
		return !op->append;
	return gfd_is_unreachable(err);
}

/*
 * Until the answer, or an error nothing helps against. A ticket that is refused is renewed once: if
 * only its time was over, the lease is still ours.
 */
static int op_finish(struct gfd_file *file, struct gfd_op *op, int started, struct answer *ret)
{
	struct gfd *gfd = file->gfd;
	uint64_t generation = op->generation;
	bool renewed = false;
	int r = started;

	for (;;) {
		struct rpc_reply reply;

		rpc_reply_init(&reply);
		if (r == 0)
			r = rpc_client_finish(GX_TAKE(op->started), &reply);
		if (r == 0)
			*ret = answer_of(op, &reply);
		rpc_reply_fini(&reply);
		if (r == 0) {
			note(file, ret);
			return 0;
		}
		if (gfd_is_refused(r) && !renewed) {
			renewed = true;
			r = gfd_lease_again(file, gfd_some_open(file, true));
			if (r < 0 || !file->may_write)
				return r < 0 ? r : -EIO;
			/* Others may have written since: it must not come behind them. */
			if (generation != 0 && generation != file->generation)
				return -EIO;
		} else if (gfd_is_refused(r)) {
			return -EIO;
		} else if (!may_repeat(op, r)) {
			/* Bytes beside it are damaged: they cannot be kept. */
			return r == -ENOTRECOVERABLE || r == -EBADMSG ? -EIO : r;
		} else {
			int64_t pause = gx_env_now_ns(gfd->env) + 50 * GX_NSEC_PER_MSEC;

			gfd_suspect(gfd, primary(file)->node);
			if (pause >= op->deadline_ns)
				return -EHOSTUNREACH;
			if (r != -ENOTRECOVERABLE)
				gx_env_sleep_until(gfd->env, pause);
			if (file->flight_count == 0)
				link_drop(file); /* it may have moved */
		}
		r = op_start(file, op);
	}
}

static void grow(struct gfd_file *file, uint64_t end)
{
	gfd_file_lock(file);
	file->size = GX_MAX(file->size, end);
	gfd_file_unlock(file);
}

/*
 * Under the lock: who has the file alone takes it to be as long as what arrived, and what may still
 * arrive. `without` (may be NULL) will not.
 */
static void count_size(struct gfd_file *file, const struct gfd_op *without)
{
	uint64_t size = file->object_size;

	if (file->clock == 0 || file->mode != GFC_MODE_EXCLUSIVE)
		return;
	for (const struct gfd_op *o = file->dirty; o; o = o->next)
		size = GX_MAX(size, o->offset + o->bytes);
	for (const struct gfd_op *o = file->flights; o; o = o->next)
		if (o != without && o->kind == GFD_OP_WRITE)
			size = GX_MAX(size, o->offset + o->bytes);
	file->size = size;
}

static void failed(struct gfd_file *file, const struct gfd_op *op, int err)
{
	gfd_file_lock(file);
	gfd_set_error(file, err);
	/* Without metad's bytes the object must never become the truth (rule N10). */
	file->spoiled = file->spoiled || (op->base && file->growing);
	count_size(file, op);
	gfd_file_unlock(file);
}

/* The answer of one in flight. */
static void land(struct gfd_file *file, struct gfd_op *op)
{
	struct answer answer;
	int r = op_finish(file, op, 0, &answer);

	/* The lease may have been lost under it: gfd_ops_drop() has freed what was left. */
	if (file->flight_count == 0)
		return;
	DL_DELETE(file->flights, op);
	file->flight_count--;
	if (r == 0) {
		atomic_fetch_add(&file->gfd->written, op->bytes);
		keep_take(file, op);
	} else {
		failed(file, op, r);
		op_free(file, op);
	}
	if (file->flight_count == 0)
		link_drop(file);
}

static void land_all(struct gfd_file *file)
{
	while (file->flights)
		land(file, file->flights);
}

/* Nothing of these pieces is in flight any more. */
static void land_piece(struct gfd_file *file, uint64_t piece)
{
	struct gfd_op *op, *next;

again:
	DL_FOREACH_SAFE (file->flights, op, next) {
		if (piece_of(op->offset) == piece) {
			land(file, op);
			goto again;
		}
	}
}

/* From the dirty ones into the air. */
static void launch(struct gfd_file *file, struct gfd_op *op)
{
	int r;

	DL_DELETE(file->dirty, op);
	file->dirty_count--;
	/* Not among the flights yet, so a lease lost meanwhile must not leave it behind. */
	land_piece(file, piece_of(op->offset));
	/* A file is sent without a copy by who has a connection to itself. */
	while (file->flight_count >=
	       (op->from_file ? file->gfd->options.connections : GFD_FLIGHT_MAX))
		land(file, file->flights);
	if (file->rebooted && gfd_send_again(file) < 0) {
		op_free(file, op);
		return;
	}
	if (file->link && gfd_link_stale(file->gfd, file->link))
		land_all(file);
	/* The lease it was written under is lost. */
	if (!file->may_write || op->generation != file->generation) {
		gfd_set_error(file, -EIO);
		op_free(file, op);
		return;
	}
	/* Others may have failed, or been sent again, while it was in no list. */
	grow(file, op->offset + op->bytes);
	op->deadline_ns = gfd_deadline(file->gfd);
	r = op_start(file, op);
	if (r == 0) {
		DL_APPEND(file->flights, op);
		file->flight_count++;
	} else {
		struct answer answer;

		r = op_finish(file, op, r, &answer);
		if (r == 0 && file->may_write) {
			keep_take(file, op);
		} else {
			if (r < 0)
				failed(file, op, r);
			op_free(file, op);
		}
	}
	while (file->flights && rpc_client_started_done(file->flights->started))
		land(file, file->flights);
}

/* The machine of the node has been down: all that is kept, in its order. */
int gfd_send_again(struct gfd_file *file)
{
	land_all(file);
	while (file->rebooted && file->may_write) {
		struct gfd_op *op;

		file->rebooted = false;
		if (file->dropped) {
			gfd_set_error(file, -EIO);
			file->dropped = false;
			/* Metad's bytes may be among them: they are still there (rule N10). */
			file->spoiled = file->growing;
		}
		DL_FOREACH (file->kept, op) {
			struct answer answer;
			int r;

			if (GX_BROKEN(303))
				continue;
			op->deadline_ns = gfd_deadline(file->gfd);
			r = op_finish(file, op, op_start(file, op), &answer);
			if (r < 0) {
				if (file->may_write)
					failed(file, op, r);
				link_drop(file);
				return r;
			}
			atomic_fetch_add(&file->gfd->resent, op->bytes);
		}
	}
	/* What the node said before it had all of it again was too short, or too long. */
	gfd_file_lock(file);
	count_size(file, NULL);
	gfd_file_unlock(file);
	if (file->flight_count == 0)
		link_drop(file);
	return file->may_write ? 0 : -EIO;
}

void gfd_unkeep(struct gfd_file *file, uint64_t order)
{
	while (file->kept && file->kept->order <= order) {
		struct gfd_op *op = file->kept;

		DL_DELETE(file->kept, op);
		file->kept_bytes -= op->capacity + sizeof(*op);
		op_free(file, op);
	}
}

int gfd_send_all(struct gfd_file *file)
{
	while (file->dirty)
		launch(file, file->dirty);
	land_all(file);
	if (file->rebooted)
		GX_IGNORE(gfd_send_again(file)); /* the error stays */
	return file->error;
}

/* A call that changes nothing; the error stays. */
static int hear_of_node(struct gfd_file *file)
{
	PbData__DataStatRequest request = PB_DATA__DATA_STAT_REQUEST__INIT;
	struct gfd_data_call call = {
		.method = RPC_INDEX_DATA_STAT, .request = &request.base, .ticket = &request.ticket};
	int r = gfd_call_primary(file, gfd_some_open(file, true), &call);

	if (r == 0)
		gfd_is_rebooted(file, ((const PbData__DataStatReply *)call.reply.message)->boot);
	rpc_reply_fini(&call.reply);
	if (r < 0) {
		gfd_file_lock(file);
		gfd_set_error(file, r == -ESTALE ? -EIO : r);
		gfd_file_unlock(file);
	}
	return r;
}

int gfd_send_surely(struct gfd_file *file)
{
	uint64_t answers = file->answers;
	int r = gfd_send_all(file);

	if (r < 0 || !file->may_write || !file->unsynced || file->answers != answers)
		return r;
	r = hear_of_node(file);
	return r < 0 ? r : gfd_send_all(file);
}

/* -- collecting -------------------------------------------------------------------------------- */

static struct gfd_op *dirty_of(struct gfd_file *file, uint64_t piece)
{
	struct gfd_op *op;

	DL_FOREACH (file->dirty, op)
		if (piece_of(op->offset) == piece)
			return op;
	return NULL;
}

/* A write that is held back under the lease there is. */
static struct gfd_op *dirty_new(struct gfd_file *file, uint64_t offset)
{
	struct gfd_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->kind = GFD_OP_WRITE;
	op->offset = offset;
	op->generation = file->generation;
	DL_APPEND(file->dirty, op);
	file->dirty_count++;
	return op;
}

/* Room for `bytes`, which begin `shift` bytes before what is there. */
static int make_room(struct gfd_file *file, struct gfd_op *op, size_t bytes, size_t shift)
{
	size_t capacity = op->capacity;
	uint8_t *data;

	if (bytes > capacity) {
		/* Most files are written from front to back. */
		capacity = GX_MAX(bytes, capacity * 2);
		capacity = capacity > 64u * 1024 ? GFD_PIECE_BYTES : GX_MAX(capacity, 4096u);
		data = capacity == GFD_PIECE_BYTES ? gfd_buffer_get(file->gfd) : malloc(capacity);
		if (!data)
			return -ENOMEM;
		if (op->data)
			memcpy(data + shift, op->data, op->bytes);
		data_free(file, op);
		op->data = data;
		op->capacity = capacity;
	} else if (shift > 0) {
		memmove(op->data + shift, op->data, op->bytes);
	}
	return 0;
}

static bool joins(const struct gfd_op *op, uint64_t offset, size_t bytes)
{
	return offset <= op->offset + op->bytes && op->offset <= offset + bytes;
}

static int merge(struct gfd_file *file, struct gfd_op *op, const void *data, size_t bytes,
		 uint64_t offset)
{
	uint64_t begin = op->bytes ? GX_MIN(op->offset, offset) : offset;
	uint64_t end = op->bytes ? GX_MAX(op->offset + op->bytes, offset + bytes) : offset + bytes;
	int r = make_room(file, op, end - begin, op->bytes ? op->offset - begin : 0);

	if (r < 0)
		return r;
	op->offset = begin;
	op->bytes = end - begin;
	memcpy(op->data + (offset - begin), data, bytes);
	grow(file, end);
	return 0;
}

/* All in one piece. */
static int put_piece(struct gfd_file *file, const void *data, size_t bytes, uint64_t offset)
{
	struct gfd_op *op = dirty_of(file, piece_of(offset));
	int r;

	if (op && !joins(op, offset, bytes)) {
		launch(file, op);
		op = NULL;
	}
	if (!op) {
		if (file->dirty_count >= GFD_DIRTY_MAX)
			launch(file, file->dirty);
		if (file->error < 0 || !file->may_write)
			return file->error < 0 ? gfd_take_error(file) : -EIO;
		op = dirty_new(file, offset);
		if (!op)
			return -ENOMEM;
	}
	r = merge(file, op, data, bytes, offset);
	if (r < 0) {
		if (op->bytes == 0) {
			DL_DELETE(file->dirty, op);
			file->dirty_count--;
			op_free(file, op);
		}
		return r;
	}
	if ((op->offset + op->bytes) % GFD_PIECE_BYTES == 0)
		launch(file, op);
	return 0;
}

/* The file is as long as that now, and metad will be told. */
static void touch(struct gfd_file *file, uint64_t end)
{
	bool is_due;

	gfd_file_lock(file);
	file->size = GX_MAX(file->size, end);
	file->touched = true;
	is_due = file->due_ns == 0;
	if (is_due)
		file->due_ns =
			gx_env_now_ns(file->gfd->env) + (int64_t)file->report_ms * GX_NSEC_PER_MSEC;
	gfd_file_unlock(file);
	if (is_due)
		gfd_activate(file);
}

int gfd_put(struct gfd_file *file, const void *data, size_t bytes, uint64_t offset)
{
	const uint8_t *p = data;

	touch(file, offset + bytes);
	while (bytes > 0) {
		size_t part = GX_MIN(bytes, GFD_PIECE_BYTES - (size_t)(offset % GFD_PIECE_BYTES));
		int r = put_piece(file, p, part, offset);

		if (r < 0)
			return r;
		p += part;
		offset += part;
		bytes -= part;
	}
	return 0;
}

static int put_file_piece(struct gfd_file *file, int fd, uint64_t from, uint64_t offset)
{
	struct gfd_op *op = dirty_of(file, piece_of(offset));

	if (op)
		launch(file, op);
	if (file->error < 0 || !file->may_write)
		return file->error < 0 ? gfd_take_error(file) : -EIO;
	op = dirty_new(file, offset);
	if (!op)
		return -ENOMEM;
	op->bytes = GFD_PIECE_BYTES;
	op->from_file = true;
	op->file = (struct rpc_payload_file){fd, from, GFD_PIECE_BYTES};
	launch(file, op);
	return 0;
}

int gfd_put_file(struct gfd_file *file, int fd, uint64_t from, size_t bytes, uint64_t offset)
{
	int r = need_link(file);

	if (r == 0 && !file->link->near)
		r = -EOPNOTSUPP;
	if (file->flight_count == 0)
		link_drop(file);
	if (r < 0)
		return r;
	touch(file, offset + bytes);
	for (size_t done = 0; r == 0 && done < bytes; done += GFD_PIECE_BYTES)
		r = put_file_piece(file, fd, from + done, offset + done);
	return r;
}

void gfd_leave_files(struct gfd_file *file)
{
	struct gfd_op *op, *next;

	DL_FOREACH_SAFE (file->kept, op, next) {
		if (!op->from_file)
			continue;
		DL_DELETE(file->kept, op);
		file->kept_bytes -= op->capacity + sizeof(*op);
		drop_kept(file, op);
	}
}

int gfd_do(struct gfd_file *file, const struct gfd_op *what, uint64_t *ret_offset)
{
	struct gfd_op *op = malloc(sizeof(*op));
	struct answer answer;
	int r;

	if (!op)
		return -ENOMEM;
	*op = *what;
	r = gfd_send_all(file);
	if (r < 0) {
		free(op);
		return gfd_take_error(file);
	}
	op->deadline_ns = gfd_deadline(file->gfd);
	r = op_finish(file, op, op_start(file, op), &answer);
	if (r == 0) {
		atomic_fetch_add(&file->gfd->written, op->kind == GFD_OP_WRITE ? op->bytes : 0);
		if (ret_offset)
			*ret_offset = answer.offset;
		gfd_file_lock(file);
		file->size = file->object_size;
		gfd_file_unlock(file);
		keep_take(file, op);
		/* It was done to what a power cut had left: the rest, and then it, once more. */
		if (file->rebooted)
			GX_IGNORE(gfd_send_again(file)); /* the error stays */
	} else {
		free(op);
	}
	link_drop(file);
	if (r < 0 && file->error < 0)
		r = gfd_take_error(file); /* the lease was lost: that is told now */
	return r;
}
