/*
 * Pieces ahead of a sequential reader: several requests in flight, from several copies if the file
 * is large. Each piece is verified when it is taken. One whose node fails is read again from
 * another, by the reader that needs it; the others in flight to that node are not waited for.
 */
#include "client/fs/gfd_impl.h"

static unsigned slot_count(const struct gfd_file *file)
{
	size_t wanted = file->gfd->options.read_ahead / GFD_PIECE_BYTES + 1;

	return (unsigned)GX_MIN(GX_MAX(wanted, 2u), GFD_AHEAD_MAX);
}

/* Under the lock. */
static struct gfd_ahead *slot_of(struct gfd_file *file, uint64_t index)
{
	for (unsigned i = 0; i < GFD_AHEAD_MAX; i++)
		if (file->ahead[i].state != GFD_AHEAD_EMPTY && file->ahead[i].index == index)
			return &file->ahead[i];
	return NULL;
}

bool gfd_ahead_has(struct gfd_file *file, uint64_t offset)
{
	bool has;

	gfd_file_lock(file);
	has = slot_of(file, offset / GFD_PIECE_BYTES) != NULL;
	gfd_file_unlock(file);
	return has;
}

/* Under the lock: an empty one, or the one used longest ago, of pieces before `index`; or NULL. */
static struct gfd_ahead *victim(struct gfd_file *file, uint64_t index)
{
	struct gfd_ahead *best = NULL;

	for (unsigned i = 0; i < slot_count(file); i++) {
		struct gfd_ahead *slot = &file->ahead[i];

		if (slot->state == GFD_AHEAD_EMPTY)
			return slot;
		if (slot->state != GFD_AHEAD_READY ||
		    (slot->index >= index && slot->index < index + file->window))
			continue;
		if (!best || slot->used < best->used)
			best = slot;
	}
	return best;
}

static size_t prefer_of(const struct gfd_file *file, uint64_t index)
{
	if (file->mode != GFC_MODE_READ || file->size < GFD_STRIPE_MIN || file->place_count == 0)
		return 0;
	return (size_t)(index % file->place_count);
}

/* The slot is BUSY and ours. Without a request it is left to take_slot(). */
static void start(struct gfd_file *file, struct gfd_ahead *slot)
{
	struct rpc_call_options options = {.deadline_ns = gfd_deadline(file->gfd),
					   .payload_in = slot->data,
					   .payload_in_bytes = GFD_PIECE_BYTES,
					   .fail_fast = true};
	const struct gfc_place *place;
	ssize_t i = gfd_choose_place(file, prefer_of(file, slot->index), &options.silent_ns);
	int r;

	if (i < 0)
		return;
	place = &file->places[i].place;
	r = gfd_link_get(file->gfd, place->node, &slot->link);
	if (r < 0) {
		gfd_place_failed(file, (size_t)i, r);
		return;
	}
	memcpy(slot->node, place->node, sizeof(slot->node));
	memcpy(slot->ticket, place->ticket, place->ticket_bytes);
	pb_data__data_read_request__init(&slot->request);
	slot->request.ticket = (ProtobufCBinaryData){place->ticket_bytes, slot->ticket};
	slot->request.offset = slot->index * GFD_PIECE_BYTES;
	slot->request.bytes = GFD_PIECE_BYTES;
	r = rpc_client_start(slot->link->client, rpc_method_get(RPC_INDEX_DATA_READ),
			     &slot->request.base, &options, &slot->started);
	if (r == 0 && rpc_client_started_sent(slot->started))
		return;
	/* One more connection to a node that hangs has cost its time: others must not, too. */
	if (r == 0)
		gfd_place_failed(file, (size_t)i, -EHOSTDOWN);
	rpc_client_cancel(GX_TAKE(slot->started));
	gfd_link_put(file->gfd, GX_TAKE(slot->link));
}

/* Under the lock, which is let go: a slot for the piece; false: there is no room. */
static bool begin_slot(struct gfd_file *file, uint64_t index, uint64_t first)
{
	struct gfd_ahead *slot = victim(file, first);

	if (!slot)
		return false;
	slot->state = GFD_AHEAD_BUSY;
	slot->index = index;
	slot->used = ++file->ahead_tick;
	gfd_file_unlock(file);
	if (!slot->data)
		slot->data = gfd_buffer_get(file->gfd);
	if (slot->data)
		start(file, slot);
	gfd_file_lock(file);
	slot->state = slot->data ? GFD_AHEAD_STARTED : GFD_AHEAD_EMPTY;
	gx_env_cond_broadcast(file->gfd->env, &file->cond);
	return slot->data != NULL;
}

/* Under the lock: requests for the piece and those behind it. */
static void fill(struct gfd_file *file, uint64_t index)
{
	uint64_t end = (file->size + GFD_PIECE_BYTES - 1) / GFD_PIECE_BYTES;
	unsigned max = slot_count(file) - 1;

	file->window = GX_MIN(file->window ? file->window * 2 : 2, GX_MAX(max, 1u));
	for (uint64_t i = index; i < end && i < index + file->window; i++)
		if (!slot_of(file, i) && !begin_slot(file, i, index))
			break;
}

/*
 * What came, or what another place has. The slot is BUSY and ours; no lock. Into `whole`, if there
 * is such a buffer (of a piece) and it is not too late; *ret_data says where it is.
 */
static ssize_t take_slot(struct gfd_file *file, struct gfd_ahead *slot, uint8_t *whole,
			 uint8_t **ret_data)
{
	struct gfd *gfd = file->gfd;
	const PbData__DataReadReply *answer;
	struct rpc_reply reply;
	uint8_t *data = slot->data;
	ssize_t n = -EHOSTDOWN;

	if (whole && (!slot->started || rpc_client_redirect(slot->started, whole)))
		data = whole;
	*ret_data = data;

	if (slot->started && gfd_is_suspect(gfd, slot->node) && file->place_count > 1) {
		rpc_client_cancel(GX_TAKE(slot->started));
	} else if (slot->started) {
		n = rpc_client_finish(GX_TAKE(slot->started), &reply);
		if (n == 0) {
			answer = (const PbData__DataReadReply *)reply.message;
			n = (ssize_t)reply.payload_bytes;
			if (gfd_verify(gfd, data, (size_t)n, answer->sums.data, answer->sums.len) <
			    0)
				n = -EBADMSG;
			else if (gfd_is_rebooted(file, answer->boot))
				n = -ESTALE;
			else
				atomic_fetch_add(slot->link->near ? &gfd->read_local
								  : &gfd->read_remote,
						 (uint64_t)n);
		} else if (gfd_is_unreachable((int)n)) {
			gfd_suspect(gfd, slot->node);
			atomic_fetch_add(&gfd->failovers, 1);
		}
		rpc_reply_fini(&reply);
	}
	gfd_link_put(gfd, GX_TAKE(slot->link));
	if (n < 0)
		n = gfd_read_blocks(file, data, GFD_PIECE_BYTES, slot->index * GFD_PIECE_BYTES,
				    prefer_of(file, slot->index));
	return n;
}

/*
 * Under the lock: the slot of the piece, READY; NULL with an error, or with the number of bytes
 * that have gone to `whole` (may be NULL) instead.
 */
static struct gfd_ahead *wait_slot(struct gfd_file *file, uint64_t index, uint8_t *whole,
				   ssize_t *ret_n)
{
	for (;;) {
		struct gfd_ahead *slot = slot_of(file, index);
		uint8_t *data;
		ssize_t n;

		*ret_n = -EAGAIN;
		if (!slot || slot->state == GFD_AHEAD_READY)
			return slot;
		if (slot->state == GFD_AHEAD_BUSY) {
			GX_IGNORE(gx_env_cond_wait(file->gfd->env, &file->cond, &file->lock,
						   GX_FOREVER));
			continue;
		}
		slot->state = GFD_AHEAD_BUSY;
		gfd_file_unlock(file);
		n = take_slot(file, slot, whole, &data);
		gfd_file_lock(file);
		slot->state = n < 0 || data == whole ? GFD_AHEAD_EMPTY : GFD_AHEAD_READY;
		slot->bytes = n < 0 ? 0 : (size_t)n;
		gx_env_cond_broadcast(file->gfd->env, &file->cond);
		*ret_n = n;
		if (slot->state == GFD_AHEAD_EMPTY)
			return NULL;
	}
}

ssize_t gfd_ahead_read(struct gfd_file *file, uint8_t *buf, size_t bytes, uint64_t offset)
{
	uint64_t index = offset / GFD_PIECE_BYTES;
	size_t at = offset % GFD_PIECE_BYTES;
	struct gfd_ahead *slot;
	ssize_t n;

	gfd_file_lock(file);
	if (!slot_of(file, index) || at == 0)
		fill(file, index);
	slot = wait_slot(file, index, at == 0 && bytes >= GFD_PIECE_BYTES ? buf : NULL, &n);
	if (!slot) {
		gfd_file_unlock(file);
		/* No room for it, others read all over the file: just this. */
		return n == -EAGAIN ? -EOPNOTSUPP : n;
	}
	n = slot->bytes > at ? (ssize_t)GX_MIN(bytes, slot->bytes - at) : 0;
	/* Copied under the lock: a slot may be taken for another piece by the next one. */
	memcpy(buf, slot->data + at, (size_t)n);
	slot->used = ++file->ahead_tick;
	gfd_file_unlock(file);
	return n;
}

void gfd_ahead_drop(struct gfd_file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t end = bytes > UINT64_MAX - offset ? UINT64_MAX : offset + bytes;

	for (unsigned i = 0; i < GFD_AHEAD_MAX; i++) {
		struct gfd_ahead *slot = &file->ahead[i];

		gx_assert(slot->state != GFD_AHEAD_BUSY); /* who is alone drops */
		if (slot->state != GFD_AHEAD_EMPTY &&
		    (slot->index * GFD_PIECE_BYTES >= end ||
		     (slot->index + 1) * GFD_PIECE_BYTES <= offset))
			continue;
		rpc_client_cancel(GX_TAKE(slot->started));
		gfd_link_put(file->gfd, GX_TAKE(slot->link));
		slot->state = GFD_AHEAD_EMPTY;
		gfd_buffer_put(file->gfd, GX_TAKE(slot->data));
	}
}
