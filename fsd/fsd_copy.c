/*
 * fsd_copy.c - one job: an object comes here from another fsd (rule B9).
 *
 * Whatever this node has of the inode is what the copy begins with: the wanted generation itself
 * (metad does not trust it, or has not heard that it is here), else the base that metad named, else
 * an empty object of FSD_COPY_GENERATION. That is changed in place, block by block, until it has
 * the checksums of the source; synced; and only then it gets the wanted generation. So a crash
 * leaves the old generation, or half a copy under a generation that no ticket names; never
 * something that passes for a copy. Meanwhile the object is held: no ticket opens it. (Rejected: a
 * new object into which unchanged blocks are copied. It keeps the base whole, but needs the space
 * twice.)
 *
 * Per batch of blocks the checksums of the source are compared with ours. Blocks of zeros do not
 * travel, they become holes. A block that is the same here is read, and so verified, before it
 * counts. Others are read from the source, several requests in flight, and verified against the
 * checksums that came with them; if one does not fit, the source must prove it (rule B7), and one
 * that cannot is given up. A source that changes meanwhile was the wrong one.
 */
#define GX_LOG_COMPONENT "fsd.copy"
#include "common/gx_broken.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include "fsd/fsd_server_impl.h"
#include "fsd/fsd_sum.h"
#define RPC_SERVICE_DATA
#include "rpc/rpc_stub.h"

#define PIECE_BYTES (1024u * 1024)
#define PIECE_BLOCKS (PIECE_BYTES / FSD_BLOCK_BYTES)
#define PIECES 6u            /* requests in flight */
#define BATCH_BLOCKS 8192u   /* compared at once: 32 MiB of content */
#define SOURCE_CONNECTIONS 2 /* a server does the requests of one in order */
#define REACH_NS (3 * GX_NSEC_PER_SEC)
#define CALL_NS (60 * GX_NSEC_PER_SEC)
#define SILENT_NS (5 * GX_NSEC_PER_SEC) /* rule B10 */

/* One DataRead. */
struct piece {
	PbData__DataReadRequest request;
	struct rpc_started *started; /* NULL: none */
	unsigned char *data;         /* PIECE_BYTES */
};

struct copy {
	struct fsd_server *server;
	struct fsd_table *table;
	const PbMeta__Job *job;
	struct fsd_ref ref;   /* held */
	uint64_t begun_bytes; /* of ours, when the copy began: what is behind is new */
	int local;            /* an error of this node: no other source helps */

	/* The source in use. */
	const PbMeta__Place *source;
	struct rpc_client *client;
	uint64_t size, clock;
	struct piece pieces[PIECES];
	unsigned oldest, in_flight; /* pieces, a ring */
	uint64_t *theirs, *ours;    /* checksums of a batch */
	uint64_t moved_bytes;
};

/* -- the source -------------------------------------------------------------------------------- */

static ProtobufCBinaryData ticket_of(const struct copy *copy)
{
	return copy->source->ticket;
}

static struct rpc_call_options call_options(const struct copy *copy)
{
	return (struct rpc_call_options){.deadline_ns = gx_env_now_ns(copy->server->env) + CALL_NS,
					 .silent_ns = SILENT_NS};
}

static int source_stat(struct copy *copy, bool first, uint64_t *ret_size, uint64_t *ret_clock)
{
	PbData__DataStatRequest request = PB_DATA__DATA_STAT_REQUEST__INIT;
	struct rpc_call_options options = call_options(copy);
	const PbData__DataStatReply *answer;
	struct rpc_reply reply;
	int r;

	if (first) {
		options.deadline_ns = gx_env_now_ns(copy->server->env) + REACH_NS;
		options.fail_fast = true;
	}
	request.ticket = ticket_of(copy);
	r = data_call_data_stat(copy->client, &request, &options, &reply, &answer);
	if (r == 0) {
		*ret_size = answer->size;
		*ret_clock = answer->clock;
	}
	rpc_reply_fini(&reply);
	return r;
}

/* The server has answered, whatever it said; else another address may do. */
static bool has_answered(int err)
{
	return err == 0 || err == -ESTALE || err == -EKEYREJECTED || err == -EBADMSG || err == -EIO;
}

static int open_address(struct copy *copy, const char *text)
{
	struct rpc_client_options o = RPC_CLIENT_OPTIONS_INIT;
	struct gx_env *env = copy->server->env;
	int r = rpc_endpoint_parse(env, text, false, &o.endpoint, NULL);

	if (r < 0)
		return r;
	o.env = env;
	o.identity = copy->source->session_ticket;
	o.key = copy->source->session_key.data;
	o.program = copy->server->options.program;
	o.connections_max = SOURCE_CONNECTIONS;
	r = rpc_client_new(&o, &copy->client);
	if (r < 0)
		return r;
	r = source_stat(copy, true, &copy->size, &copy->clock);
	if (r < 0) {
		rpc_client_free(copy->client);
		copy->client = NULL;
	}
	return r;
}

static bool is_unix(const char *text)
{
	return strncmp(text, "unix:", 5) == 0;
}

/* A socket of this name may be on another machine. */
static bool is_here(const struct copy *copy, const char *text)
{
	struct stat st;

	return gx_env_stat(copy->server->env, text + strlen("unix:"), &st) == 0;
}

/* Unix sockets first, then the others in their order. */
static int open_source(struct copy *copy)
{
	const PbMeta__Place *source = copy->source;
	int r = -EHOSTUNREACH;

	if (source->session_key.len != RPC_KEY_BYTES)
		return -EKEYREJECTED;
	for (unsigned pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < source->n_addresses; i++) {
			const char *text = source->addresses[i];

			if (is_unix(text) != (pass == 0) || (pass == 0 && !is_here(copy, text)))
				continue;
			r = open_address(copy, text);
			if (has_answered(r))
				return r;
		}
	}
	return r;
}

static void close_source(struct copy *copy)
{
	for (unsigned i = 0; i < PIECES; i++) {
		rpc_client_cancel(copy->pieces[i].started);
		copy->pieces[i].started = NULL;
	}
	copy->in_flight = 0;
	rpc_client_free(copy->client);
	copy->client = NULL;
}

static int source_sums(struct copy *copy, uint64_t first, size_t count)
{
	PbData__DataSumsRequest request = PB_DATA__DATA_SUMS_REQUEST__INIT;
	struct rpc_call_options options = call_options(copy);
	const PbData__DataSumsReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket_of(copy);
	request.first = first;
	request.count = (uint32_t)count;
	options.payload_in = copy->theirs;
	options.payload_in_bytes = count * sizeof(uint64_t);
	r = data_call_data_sums(copy->client, &request, &options, &reply, &answer);
	if (r == 0 && (reply.payload_bytes != count * sizeof(uint64_t)))
		r = answer->size == copy->size ? -EPROTO : -ESTALE;
	rpc_reply_fini(&reply);
	for (size_t i = 0; r == 0 && i < count; i++)
		copy->theirs[i] = gx_get_le64(&copy->theirs[i]);
	return r;
}

/* The next block from this one on that has data; the one behind the last if there is none. */
static int source_seek(struct copy *copy, uint64_t block, uint64_t *ret_block)
{
	PbData__DataSeekRequest request = PB_DATA__DATA_SEEK_REQUEST__INIT;
	uint64_t end = (copy->size + FSD_BLOCK_BYTES - 1) / FSD_BLOCK_BYTES;
	struct rpc_call_options options = call_options(copy);
	const PbData__DataSeekReply *answer;
	struct rpc_reply reply;
	int r;

	request.ticket = ticket_of(copy);
	request.offset = block * FSD_BLOCK_BYTES;
	r = data_call_data_seek(copy->client, &request, &options, &reply, &answer);
	if (r == 0 && answer->offset < request.offset)
		r = -EPROTO;
	if (r == 0)
		*ret_block = GX_MIN(answer->offset / FSD_BLOCK_BYTES, end);
	rpc_reply_fini(&reply);
	if (r == -ENXIO) {
		*ret_block = end;
		return 0;
	}
	return r;
}

/* -- our object -------------------------------------------------------------------------------- */

/* An error of this node ends the job; it is remembered as such. */
static int ours_failed(struct copy *copy, int err)
{
	gx_assert(err < 0);
	copy->local = err;
	return err;
}

static int write_blocks(struct copy *copy, uint64_t offset, const void *data, size_t bytes)
{
	int r = fsd_table_room(copy->table, &copy->ref, bytes);

	if (r == 0)
		r = fsd_table_begin(copy->table, &copy->ref);
	if (r < 0)
		return ours_failed(copy, r);
	r = fsd_object_write(copy->ref.object, data, bytes, offset);
	fsd_table_changed(copy->table, &copy->ref);
	fsd_table_end(copy->table, &copy->ref);
	return r < 0 ? ours_failed(copy, r) : 0;
}

/* Blocks of zeros. What is behind our end is a hole already. */
static int punch_blocks(struct copy *copy, uint64_t from, uint64_t to)
{
	int r;

	if (from >= GX_MIN(to, fsd_object_size(copy->ref.object)))
		return 0;
	r = fsd_table_begin(copy->table, &copy->ref);
	if (r < 0)
		return ours_failed(copy, r);
	/* All of the last block: what lies there behind the end may be damaged, too. */
	r = fsd_object_punch(copy->ref.object, from, to - from);
	fsd_table_changed(copy->table, &copy->ref);
	fsd_table_end(copy->table, &copy->ref);
	return r < 0 ? ours_failed(copy, r) : 0;
}

static int cut(struct copy *copy, uint64_t bytes)
{
	int r;

	if (fsd_object_size(copy->ref.object) == bytes)
		return 0;
	r = fsd_table_begin(copy->table, &copy->ref);
	if (r < 0)
		return ours_failed(copy, r);
	r = fsd_object_truncate(copy->ref.object, bytes);
	fsd_table_changed(copy->table, &copy->ref);
	fsd_table_end(copy->table, &copy->ref);
	return r < 0 ? ours_failed(copy, r) : 0;
}

/*
 * Blocks that have the right checksum already: reading verifies them. 0; -EBADMSG: one is damaged,
 * which this job will mend.
 */
static int verify_ours(struct copy *copy, uint64_t first, size_t count, void *buf)
{
	uint64_t offset = first * FSD_BLOCK_BYTES;
	ssize_t n;

	if (offset >= copy->begun_bytes)
		return 0;
	n = fsd_object_read(copy->ref.object, buf, count * FSD_BLOCK_BYTES, offset, NULL);
	if (n < 0 && n != -EBADMSG)
		return ours_failed(copy, (int)n);
	return n < 0 ? (int)n : 0;
}

/* -- pieces ------------------------------------------------------------------------------------ */

/* Do these bytes have the checksums that came with them? Zeros fill the last block. */
static bool fits(const struct piece *piece, const struct rpc_reply *reply, uint64_t wanted_bytes)
{
	const PbData__DataReadReply *answer = (const PbData__DataReadReply *)reply->message;
	size_t blocks = (wanted_bytes + FSD_BLOCK_BYTES - 1) / FSD_BLOCK_BYTES;

	if (reply->payload_bytes != wanted_bytes || answer->sums.len != blocks * sizeof(uint64_t))
		return false;
	memset(piece->data + wanted_bytes, 0, blocks * FSD_BLOCK_BYTES - wanted_bytes);
	for (size_t i = 0; i < blocks; i++)
		if (fsd_sum_block(piece->data + i * FSD_BLOCK_BYTES) !=
			    gx_get_le64(answer->sums.data + i * sizeof(uint64_t)) &&
		    !GX_BROKEN(208))
			return false;
	return true;
}

static struct rpc_call_options piece_options(const struct copy *copy, struct piece *piece)
{
	struct rpc_call_options options = call_options(copy);

	options.payload_in = piece->data;
	options.payload_in_bytes = PIECE_BYTES;
	return options;
}

/* The source hashes under the lock of the block: right bytes, or -EBADMSG (rule B7). */
static int prove_piece(struct copy *copy, struct piece *piece, uint64_t wanted_bytes)
{
	struct rpc_call_options options = piece_options(copy, piece);
	const PbData__DataReadReply *answer;
	struct rpc_reply reply;
	int r;

	piece->request.prove = true;
	r = data_call_data_read(copy->client, &piece->request, &options, &reply, &answer);
	if (r == 0 && !fits(piece, &reply, wanted_bytes))
		r = answer->size == copy->size ? -EBADMSG : -ESTALE;
	rpc_reply_fini(&reply);
	return r;
}

static int finish_piece(struct copy *copy)
{
	struct piece *piece = &copy->pieces[copy->oldest];
	uint64_t offset = piece->request.offset;
	uint64_t wanted = GX_MIN((uint64_t)piece->request.bytes, copy->size - offset);
	struct rpc_reply reply;
	bool right;
	int r;

	copy->oldest = (copy->oldest + 1) % PIECES;
	copy->in_flight--;
	r = rpc_client_finish(GX_TAKE(piece->started), &reply);
	right = r == 0 && fits(piece, &reply, wanted);
	rpc_reply_fini(&reply);
	if (r < 0)
		return r;
	if (!right) {
		r = prove_piece(copy, piece, wanted);
		if (r < 0)
			return r;
	}
	copy->moved_bytes += wanted;
	/* Whole blocks: one that is damaged here is not asked what it was. */
	return write_blocks(copy, offset, piece->data,
			    (wanted + FSD_BLOCK_BYTES - 1) / FSD_BLOCK_BYTES * FSD_BLOCK_BYTES);
}

static int finish_pieces(struct copy *copy)
{
	int r = 0;

	while (r == 0 && copy->in_flight > 0)
		r = finish_piece(copy);
	return r;
}

static int fetch(struct copy *copy, uint64_t first, size_t count)
{
	struct rpc_call_options options;
	struct piece *piece;
	int r = copy->in_flight == PIECES ? finish_piece(copy) : 0;

	if (r < 0)
		return r;
	if (fsd_agent_stopping(copy->server->agent))
		return ours_failed(copy, -ECANCELED);
	piece = &copy->pieces[(copy->oldest + copy->in_flight) % PIECES];
	pb_data__data_read_request__init(&piece->request);
	piece->request.ticket = ticket_of(copy);
	piece->request.offset = first * FSD_BLOCK_BYTES;
	piece->request.bytes = (uint32_t)(count * FSD_BLOCK_BYTES);
	options = piece_options(copy, piece);
	r = rpc_client_start(copy->client, rpc_method_get(RPC_INDEX_DATA_READ),
			     &piece->request.base, &options, &piece->started);
	if (r == 0)
		copy->in_flight++;
	return r;
}

/* -- batches ----------------------------------------------------------------------------------- */

enum need { NEED_NOTHING, NEED_ZEROS, NEED_BYTES, NEED_COUNT };

static enum need need_of(const struct copy *copy, size_t i)
{
	if (copy->theirs[i] == copy->ours[i])
		return NEED_NOTHING;
	return copy->theirs[i] == fsd_sum_zeros() ? NEED_ZEROS : NEED_BYTES;
}

/* Blocks that are right if they are what their checksums say; else they come from the source. */
static int check_blocks(struct copy *copy, uint64_t first, size_t count, void *buf)
{
	int r = verify_ours(copy, first, count, buf);

	if (r != -EBADMSG)
		return r;
	r = 0;
	for (size_t i = 0; r == 0 && i < count; i++) {
		r = verify_ours(copy, first + i, 1, buf);
		if (r == -EBADMSG)
			r = fetch(copy, first + i, 1);
	}
	return r;
}

/* Blocks from batch + i on, all of the same need. */
static int settle_run(struct copy *copy, uint64_t batch, size_t i, size_t count, void *buf)
{
	uint64_t first = batch + i;

	switch (need_of(copy, i)) {
	case NEED_NOTHING:
		return check_blocks(copy, first, count, buf);
	case NEED_ZEROS:
		return punch_blocks(copy, first * FSD_BLOCK_BYTES,
				    (first + count) * FSD_BLOCK_BYTES);
	case NEED_BYTES:
		return fetch(copy, first, count);
	case NEED_COUNT:
		break;
	}
	return -EINVAL;
}

static int settle_batch(struct copy *copy, uint64_t batch, size_t count, void *buf)
{
	int r = source_sums(copy, batch, count);

	if (r < 0)
		return r;
	r = fsd_object_sums(copy->ref.object, batch, count, copy->ours);
	if (r < 0)
		return ours_failed(copy, r);
	for (size_t i = 0, n; r == 0 && i < count; i += n) {
		for (n = 1; i + n < count && n < PIECE_BLOCKS; n++)
			if (need_of(copy, i + n) != need_of(copy, i))
				break;
		r = settle_run(copy, batch, i, n, buf);
	}
	return r;
}

/* All that the source has. Ours ends at a block's border then. */
static int settle_all(struct copy *copy, void *buf)
{
	uint64_t blocks = (copy->size + FSD_BLOCK_BYTES - 1) / FSD_BLOCK_BYTES;
	uint64_t data = 0;
	int r = 0;

	if (fsd_object_size(copy->ref.object) > blocks * FSD_BLOCK_BYTES)
		r = cut(copy, blocks * FSD_BLOCK_BYTES);
	for (uint64_t at = 0; r == 0 && at < blocks;) {
		size_t count;

		r = source_seek(copy, at, &data);
		if (r == 0)
			r = punch_blocks(copy, at * FSD_BLOCK_BYTES, data * FSD_BLOCK_BYTES);
		if (r < 0)
			return r;
		count = (size_t)GX_MIN(blocks - data, (uint64_t)BATCH_BLOCKS);
		r = count > 0 ? settle_batch(copy, data, count, buf) : 0;
		at = data + count;
	}
	return r < 0 ? r : finish_pieces(copy);
}

/* -- the job ----------------------------------------------------------------------------------- */

static int copy_from(struct copy *copy, const PbMeta__Place *source, void *buf)
{
	uint64_t size, clock;
	int r;

	copy->source = source;
	r = open_source(copy);
	if (r == 0)
		r = settle_all(copy, buf);
	if (r == 0)
		r = source_stat(copy, false, &size, &clock);
	if (r == 0 && (size != copy->size || clock != copy->clock))
		r = -ESTALE;
	close_source(copy);
	if (r < 0 && copy->local == 0)
		gx_log(WARNING, "cannot copy from this node", GX_KS("node", source->node),
		       GX_KX("ino", copy->job->ino), GX_KU("generation", copy->job->generation),
		       GX_KE(r));
	return r;
}

/* What to say if none of several sources was good: the most telling. */
static int worse(int before, int err)
{
	if (err == -EKEYREJECTED)
		err = -ESTALE; /* of a ticket that is too old; metad makes new ones */
	if (before == -EBADMSG || err == -EBADMSG)
		return -EBADMSG;
	return before == -ESTALE || err == -ESTALE ? -ESTALE : -EHOSTUNREACH;
}

static int copy_from_any(struct copy *copy)
{
	GX_AUTOFREE unsigned char *buffers = gx_alloc_pages((PIECES + 1) * (size_t)PIECE_BYTES);
	GX_AUTOFREE uint64_t *sums = calloc(2 * BATCH_BLOCKS, sizeof(*sums));
	int result = -EHOSTUNREACH;

	if (!buffers || !sums)
		return -ENOMEM;
	for (unsigned i = 0; i < PIECES; i++)
		copy->pieces[i].data = buffers + (size_t)i * PIECE_BYTES;
	copy->theirs = sums;
	copy->ours = sums + BATCH_BLOCKS;
	for (size_t i = 0; i < copy->job->n_sources; i++) {
		/* What an earlier source has brought is as good as a base. */
		int r = copy_from(copy, copy->job->sources[i],
				  buffers + (size_t)PIECES * PIECE_BYTES);

		if (r == 0 || copy->local < 0)
			return r;
		copy->begun_bytes = fsd_object_size(copy->ref.object);
		result = worse(result, r);
	}
	return result;
}

/* The object to begin with, held. */
static int begin(struct copy *copy)
{
	struct fsd_object_id id = {.ino = copy->job->ino, .generation = copy->job->generation};
	int r = fsd_table_get_id(copy->table, &id, false, &copy->ref);

	/* It cannot even be opened: out of the way. */
	if (r == -EBADMSG)
		r = fsd_table_quarantine(copy->table, &id) < 0 ? r : -ENOENT;
	if (r == -ENOENT && copy->job->from_generation > 0) {
		id.generation = copy->job->from_generation;
		r = fsd_table_get_id(copy->table, &id, false, &copy->ref);
		if (r == -EBADMSG)
			r = -ENOENT;
	}
	if (r == -ENOENT) {
		id.generation = FSD_COPY_GENERATION;
		r = fsd_table_get_id(copy->table, &id, true, &copy->ref);
	}
	if (r < 0)
		return r;
	r = fsd_table_hold(copy->table, &copy->ref);
	if (r < 0) {
		fsd_table_put(copy->table, &copy->ref);
		return r;
	}
	copy->begun_bytes = fsd_object_size(copy->ref.object);
	return 0;
}

/* It has all bytes: on disk, and then it has its name. */
static int complete(struct copy *copy)
{
	struct fsd_object_id base = {.ino = copy->job->ino,
				     .generation = copy->job->from_generation};
	int r = cut(copy, copy->size);

	if (r == 0)
		r = fsd_object_sync_settled(copy->ref.object);
	if (r == 0)
		fsd_table_mended(copy->table, &copy->ref);
	if (r == 0 && copy->ref.generation != copy->job->generation)
		r = fsd_table_advance(copy->table, &copy->ref, copy->job->generation);
	/* One that was of no use; of the one that was there is nothing left. */
	if (r == 0 && base.generation > 0 && base.generation < copy->job->generation)
		r = fsd_table_remove(copy->table, &base);
	return r;
}

int fsd_copy_job(struct fsd_server *server, const PbMeta__Job *job, uint64_t *ret_size)
{
	struct copy copy = {.server = server, .table = server->table, .job = job};
	struct fsd_object_id part = {.ino = job->ino, .generation = FSD_COPY_GENERATION};
	bool is_part;
	int r;

	if (job->generation == FSD_COPY_GENERATION)
		return -EINVAL;
	r = begin(&copy);
	if (r < 0)
		return r;
	r = copy_from_any(&copy);
	if (r == 0)
		r = complete(&copy);
	is_part = copy.ref.generation == FSD_COPY_GENERATION;
	if (r == 0) {
		*ret_size = copy.size;
		gx_log(DEBUG, "copied", GX_KX("ino", job->ino), GX_KU("size", copy.size),
		       GX_KU("moved", copy.moved_bytes));
	}
	fsd_table_release(copy.table, &copy.ref);
	fsd_table_put(copy.table, &copy.ref);
	if (r < 0 && is_part)
		GX_IGNORE(fsd_table_remove(copy.table, &part)); /* else the next start does */
	return r;
}
