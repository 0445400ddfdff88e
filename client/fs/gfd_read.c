/*
 * Verified blocks from whoever has them, and gfd_read().
 *
 * Errors of one place are dealt with here as long as there is another. What needs another lease
 * (a ticket that is refused, no place left) goes back to gfd_read(), which asks for one and begins
 * again.
 */
#include "client/fs/gfd_impl.h"
#include "common/gx_broken.h"
#include "common/gx_num.h"
#include <limits.h>

#define PAUSE_NS (100 * GX_NSEC_PER_MSEC)
#define SMALL_MAX                                                                                  \
	(128u * 1024) /* unaligned reads up to this go through a buffer in one request             \
		       */
#define LARGE_MAX (4u * 1024 * 1024) /* one request */

/* -- one place --------------------------------------------------------------------------------- */

int gfd_verify(struct gfd *gfd, const void *data, size_t bytes, const uint8_t *sums,
	       size_t sum_bytes)
{
	const uint8_t *p = data;
	size_t count = (bytes + GFD_BLOCK_BYTES - 1) / GFD_BLOCK_BYTES;
	uint8_t last[GFD_BLOCK_BYTES];

	if (sum_bytes != count * 8)
		return -EPROTO;
	for (size_t i = 0; i < count; i++, p += GFD_BLOCK_BYTES) {
		size_t part = GX_MIN(bytes - i * GFD_BLOCK_BYTES, GFD_BLOCK_BYTES);
		const uint8_t *block = p;

		if (part < GFD_BLOCK_BYTES) {
			memcpy(last, p, part);
			memset(last + part, 0, GFD_BLOCK_BYTES - part);
			block = last;
		}
		if (gx_block_sum(block) != gx_get_le64(sums + i * 8) && !GX_BROKEN(308))
			return -EBADMSG;
	}
	atomic_fetch_add(&gfd->verified, count);
	return 0;
}

static ssize_t read_once(struct gfd *gfd, struct gfd_link *link, const struct gfc_place *place,
			 void *buf, size_t bytes, uint64_t offset, int64_t silent_ns, bool prove,
			 uint64_t *ret_boot)
{
	PbData__DataReadRequest request = PB_DATA__DATA_READ_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = gfd_deadline(gfd),
					   .payload_in = buf,
					   .payload_in_bytes = bytes,
					   .silent_ns = silent_ns,
					   .fail_fast = true};
	const PbData__DataReadReply *answer;
	struct rpc_reply reply;
	ssize_t n;

	request.ticket =
		(ProtobufCBinaryData){place->ticket_bytes, (uint8_t *)(uintptr_t)place->ticket};
	request.offset = offset;
	request.bytes = (uint32_t)bytes;
	request.prove = prove;
	n = rpc_client_call(link->client, rpc_method_get(RPC_INDEX_DATA_READ), &request.base,
			    &options, &reply);
	if (n == 0) {
		answer = (const PbData__DataReadReply *)reply.message;
		n = (ssize_t)reply.payload_bytes;
		*ret_boot = answer->boot;
		if (gfd_verify(gfd, buf, (size_t)n, answer->sums.data, answer->sums.len) < 0)
			n = -EBADMSG;
	}
	rpc_reply_fini(&reply);
	return n;
}

static ssize_t read_from(struct gfd *gfd, const struct gfc_place *place, void *buf, size_t bytes,
			 uint64_t offset, int64_t silent_ns, uint64_t *ret_boot)
{
	struct gfd_link *link;
	ssize_t n = gfd_link_get(gfd, place->node, &link);

	if (n < 0)
		return n;
	n = read_once(gfd, link, place, buf, bytes, offset, silent_ns, false, ret_boot);
	/* Somebody may have written meanwhile: it counts when the node proves it (rule B7). */
	if (n == -EBADMSG && !GX_BROKEN(307))
		n = read_once(gfd, link, place, buf, bytes, offset, silent_ns, true, ret_boot);
	if (n == -EBADMSG)
		atomic_fetch_add(&gfd->damaged, 1);
	if (n > 0)
		atomic_fetch_add(link->near ? &gfd->read_local : &gfd->read_remote, (uint64_t)n);
	gfd_link_put(gfd, link);
	return n;
}

/* -- choosing ---------------------------------------------------------------------------------- */

/* Others that could be asked. */
static bool has_other(const struct gfd_file *file)
{
	return file->place_count > 1;
}

/* How long a place may be silent before another is asked (rule B10); 0: as long as it likes. */
static int64_t silence(const struct gfd_file *file)
{
	return has_other(file) && !GX_BROKEN(310) ? GFD_SILENT_NS : 0;
}

/* Lower is better. */
static unsigned rank(struct gfd_file *file, size_t index)
{
	bool bad;

	gfd_file_lock(file);
	bad = file->places[index].bad;
	gfd_file_unlock(file);
	if (bad)
		return 2;
	return gfd_is_suspect(file->gfd, file->places[index].place.node) ? 1 : 0;
}

/*
 * The next place to try from `prefer` on. -1: none. One with a damaged block comes last, but comes:
 * its other blocks may be all there is.
 */
static ssize_t choose(struct gfd_file *file, size_t prefer, uint32_t tried)
{
	unsigned best_rank = UINT_MAX;
	ssize_t best = -1;

	for (size_t n = 0; n < file->place_count && best_rank > 0; n++) {
		size_t i = (prefer + n) % file->place_count;
		unsigned r;

		if (tried & (UINT32_C(1) << i))
			continue;
		r = rank(file, i);
		if (r < best_rank) {
			best_rank = r;
			best = (ssize_t)i;
		}
	}
	return best;
}

ssize_t gfd_choose_place(struct gfd_file *file, size_t prefer, int64_t *ret_silent_ns)
{
	ssize_t i = choose(file, prefer, 0);

	*ret_silent_ns = silence(file);
	return i;
}

void gfd_place_failed(struct gfd_file *file, size_t index, int err)
{
	if (gfd_is_unreachable(err)) {
		gfd_suspect(file->gfd, file->places[index].place.node);
	} else {
		gfd_file_lock(file);
		file->places[index].bad = true;
		gfd_file_unlock(file);
	}
	atomic_fetch_add(&file->gfd->failovers, 1);
}

/* These do not have what we may read, and others do. */
static void set_bad(struct gfd_file *file, uint32_t places)
{
	if (places == 0)
		return;
	gfd_file_lock(file);
	for (size_t i = 0; i < file->place_count; i++)
		if (places & (UINT32_C(1) << i))
			file->places[i].bad = true;
	gfd_file_unlock(file);
}

/* What has come of a read, by place: bits. */
struct tries {
	uint32_t away, refused, damaged;
	int refusal;
};

static ssize_t read_any(struct gfd_file *file, void *buf, size_t bytes, uint64_t offset,
			size_t prefer, struct tries *tries)
{
	tries->refused = tries->damaged = 0;
	for (;;) {
		ssize_t i = choose(file, prefer, tries->away | tries->refused | tries->damaged);
		uint64_t boot = 0;
		ssize_t n;

		if (i < 0)
			return -EIO;
		n = read_from(file->gfd, &file->places[i].place, buf, bytes, offset, silence(file),
			      &boot);
		if (n >= 0) {
			gfd_trust_node(file->gfd, file->places[i].place.node);
			set_bad(file, tries->refused);
			/* What it has lost is sent again before it is read. */
			return gfd_is_rebooted(file, boot) ? -ESTALE : n;
		}
		if (n == -ENOMEM)
			return n;
		if (gfd_is_refused((int)n)) {
			tries->refused |= UINT32_C(1) << i;
			tries->refusal = (int)n;
			continue;
		}
		gfd_place_failed(file, (size_t)i, (int)n);
		if (gfd_is_unreachable((int)n))
			tries->away |= UINT32_C(1) << i;
		else
			tries->damaged |= UINT32_C(1) << i;
	}
}

/* In halves, if different copies have different blocks. */
static ssize_t read_halves(struct gfd_file *file, uint8_t *buf, size_t bytes, uint64_t offset,
			   size_t prefer, struct tries *tries)
{
	ssize_t n = read_any(file, buf, bytes, offset, prefer, tries), more;
	size_t half = bytes / 2 / GFD_BLOCK_BYTES * GFD_BLOCK_BYTES;

	if (n != -EIO || tries->damaged == 0 || half == 0 || !has_other(file))
		return n;
	n = read_halves(file, buf, half, offset, prefer, tries);
	if (n < (ssize_t)half)
		return n;
	more = read_halves(file, buf + half, bytes - half, offset + half, prefer, tries);
	return more < 0 ? more : n + more;
}

ssize_t gfd_read_blocks(struct gfd_file *file, void *buf, size_t bytes, uint64_t offset,
			size_t prefer)
{
	struct tries tries = {0};
	ssize_t n = read_halves(file, buf, bytes, offset, prefer, &tries);

	if (n >= 0 || n == -ESTALE)
		return n;
	if (n == -ENOMEM)
		return gfc_fail(-ENOMEM, "out of memory");
	/* A better lease may help, or patience. */
	if (tries.refused)
		return tries.refusal;
	if (tries.away || !tries.damaged)
		return gfc_fail(-EHOSTUNREACH, "no node that has a copy can be reached");
	return gfc_fail(-EIO, "every copy that can be reached is damaged");
}

/* -- what is known of the content -------------------------------------------------------------- */

void gfd_drop_range(struct gfd_file *file, uint64_t offset, uint64_t bytes)
{
	gfd_ahead_drop(file, offset, bytes);
	gfd_batches_drop(file, offset, bytes);
}

void gfd_drop_all(struct gfd_file *file)
{
	int fd;

	gfd_drop_range(file, 0, UINT64_MAX);
	gfd_file_lock(file);
	fd = file->descriptor;
	file->descriptor = -1;
	file->window = 0;
	gfd_file_unlock(file);
	if (fd >= 0)
		gx_env_close(file->gfd->env, fd);
}

/* -- gfd_read() -------------------------------------------------------------------------------- */

/* Through a buffer of whole blocks. */
static ssize_t read_buffered(struct gfd_file *file, uint8_t *buf, size_t bytes, uint64_t offset)
{
	size_t skip = offset % GFD_BLOCK_BYTES;
	/* Less than wanted only up to a whole block: see read_section(). */
	size_t whole = (GX_MIN(bytes, GFD_PIECE_BYTES - skip) + skip + GFD_BLOCK_BYTES - 1) /
		       GFD_BLOCK_BYTES * GFD_BLOCK_BYTES;
	uint8_t *data = gfd_buffer_get(file->gfd);
	ssize_t n;

	if (!data)
		return -ENOMEM;
	n = gfd_read_blocks(file, data, whole, offset - skip, 0);
	if (n >= 0) {
		n = (size_t)n > skip ? (ssize_t)GX_MIN((size_t)n - skip, bytes) : 0;
		memcpy(buf, data + skip, (size_t)n);
	}
	gfd_buffer_put(file->gfd, data);
	return n;
}

/* Just these bytes, without keeping anything. */
static ssize_t read_exact(struct gfd_file *file, uint8_t *buf, size_t bytes, uint64_t offset)
{
	if (offset % GFD_BLOCK_BYTES == 0 && bytes >= GFD_BLOCK_BYTES &&
	    (bytes % GFD_BLOCK_BYTES == 0 || bytes > SMALL_MAX))
		return gfd_read_blocks(file, buf,
				       GX_MIN(bytes, LARGE_MAX) / GFD_BLOCK_BYTES * GFD_BLOCK_BYTES,
				       offset, 0);
	return read_buffered(file, buf, bytes, offset);
}

/* Is this the next of a row of reads? */
static bool is_sequential(struct gfd_file *file, size_t bytes, uint64_t offset)
{
	bool yes;

	gfd_file_lock(file);
	file->hits = offset == file->next_offset ? file->hits + 1 : 0;
	yes = file->hits >= 3 || (file->hits > 0 && bytes >= SMALL_MAX);
	file->next_offset = offset + bytes;
	if (file->hits == 0)
		file->window = 0;
	gfd_file_unlock(file);
	return yes;
}

static void ask_copy(struct gfd_file *file, struct gfc_open *open)
{
	struct gfd *gfd = file->gfd;
	bool ask;

	gfd_file_lock(file);
	ask = gfd->options.cache_copies && gfd->host[0] && !file->has_asked_copy;
	file->has_asked_copy = true;
	gfd_file_unlock(file);
	if (ask)
		GX_IGNORE(gfc_ask_copy(gfd->gfc, gfc_open_ref(open), gfd->host)); /* a favour */
}

static ssize_t read_part(struct gfd_file *file, struct gfc_open *open, bool cached, bool row,
			 uint8_t *buf, size_t bytes, uint64_t offset)
{
	ssize_t n = -EOPNOTSUPP;

	if (cached)
		n = gfd_read_near(file, buf, bytes, offset);
	if (n != -EOPNOTSUPP)
		return n;
	if (cached && file->gfd->options.read_ahead > 0 && (row || gfd_ahead_has(file, offset))) {
		if (row)
			ask_copy(file, open);
		n = gfd_ahead_read(file, buf, bytes, offset);
		/* The piece cannot be had as a whole, or has no room: just what is wanted. */
		if (n != -EOPNOTSUPP && n != -EIO)
			return n;
	}
	return read_exact(file, buf, bytes, offset);
}

/* In a section, with a lease. */
static ssize_t read_section(struct gfd_file *file, struct gfc_open *open, bool cached, uint8_t *buf,
			    size_t bytes, uint64_t offset)
{
	bool row = is_sequential(file, bytes, offset);
	size_t done = 0;

	if (file->mode != GFC_MODE_SHARED) {
		if (offset >= file->size)
			return 0;
		bytes = GX_MIN(bytes, file->size - offset);
	}
	while (done < bytes) {
		ssize_t n =
			read_part(file, open, cached, row, buf + done, bytes - done, offset + done);

		if (n == -EIO && done > 0)
			break; /* the next read begins there */
		if (n < 0)
			return n;
		done += (size_t)n;
		/* The end: what has come behind it since would be of another moment. */
		if (n == 0 || (offset + done) % GFD_BLOCK_BYTES != 0)
			break;
	}
	return (ssize_t)done;
}

/* 0: in a shared section with a lease; 1: the content is inline, and there is no section. */
static int read_begin(struct gfd_file *file, struct gfc_open *open, int64_t deadline_ns,
		      bool *ret_cached)
{
	int r = 0;

	gfd_begin(file, false);
	if (!gfd_holds(file) && !file->rebooted && gfd_has_lease(file, ret_cached))
		return 0;
	if (!gfd_holds(file) && file->mode == GFC_MODE_NONE && file->is_inline) {
		gfd_end(file, false);
		return 1;
	}
	gfd_end(file, false);
	gfd_begin(file, true);
	if (gfd_holds(file) || file->rebooted)
		r = gfd_send_all(file);
	if (r == 0)
		r = gfd_need_lease(file, open, false, deadline_ns, ret_cached);
	if (r < 0 || file->mode == GFC_MODE_NONE) {
		gfd_end(file, true);
		return r < 0 ? r : 1;
	}
	gfd_downgrade(file);
	return 0;
}

static void distrust(struct gfd_file *file, bool is_inline)
{
	gfd_file_lock(file);
	file->distrust = true;
	if (!is_inline && file->mode == GFC_MODE_NONE)
		file->is_inline = false;
	gfd_file_unlock(file);
}

static ssize_t read_try(struct gfd_file *file, struct gfc_open *open, void *buf, size_t bytes,
			uint64_t offset, int64_t deadline_ns)
{
	bool cached = false;
	ssize_t n = read_begin(file, open, deadline_ns, &cached);

	if (n == 1) {
		n = gfc_read(file->gfd->gfc, open, buf, GX_MIN(bytes, GX_INLINE_MAX), offset, NULL);
		if (n == -EFBIG) {
			distrust(file, false);
			n = -ESTALE; /* it has grown: ask again */
		}
		return n;
	}
	if (n < 0)
		return n;
	if (file->growing && file->clock == 0) {
		/* There is no object yet: what was to go into it is not there. */
		n = gfc_read(file->gfd->gfc, open, buf, GX_MIN(bytes, GX_INLINE_MAX), offset, NULL);
		gfd_end(file, false);
		return n;
	}
	n = read_section(file, open, cached, buf, bytes, offset);
	gfd_end(file, false);
	return n;
}

ssize_t gfd_read(struct gfd_file *file, struct gfc_open *open, void *buf, size_t bytes,
		 uint64_t offset)
{
	struct gfd *gfd = file->gfd;
	int64_t deadline_ns;
	unsigned refused = 0;
	ssize_t n;

	if (bytes == 0)
		return 0;
	n = gfd_read_quick(file, buf, bytes, offset);
	if (n != -EAGAIN)
		return n;
	deadline_ns = gfd_deadline(gfd);
	for (;;) {
		n = read_try(file, open, buf, bytes, offset, deadline_ns);

		if (gfd_is_refused((int)n)) {
			if (++refused > 3)
				return gfc_fail(-EIO, "the nodes do not accept our tickets");
		} else if (n == -EHOSTUNREACH && gx_env_now_ns(gfd->env) + PAUSE_NS < deadline_ns) {
			gx_env_sleep_until(gfd->env, gx_env_now_ns(gfd->env) + PAUSE_NS);
		} else {
			return n;
		}
		distrust(file, true);
	}
}

/* -- calls that are not reads ------------------------------------------------------------------ */

int gfd_call_primary(struct gfd_file *file, struct gfc_open *open, struct gfd_data_call *call)
{
	struct gfd *gfd = file->gfd;
	int64_t deadline_ns = gfd_deadline(gfd);
	struct rpc_call_options options = {.deadline_ns = deadline_ns};
	bool renewed = false;
	size_t at = 0;

	rpc_reply_init(&call->reply);
	for (;;) {
		const struct gfc_place *place = &file->places[at].place;
		struct gfd_link *link;
		int r = gfd_link_get(gfd, place->node, &link);
		/* Not the node's word: metad, just restarted perhaps, has not heard of it yet. */
		bool unknown = r == -ENOENT;

		if (r == 0) {
			*call->ticket = (ProtobufCBinaryData){place->ticket_bytes,
							      (uint8_t *)(uintptr_t)place->ticket};
			options.silent_ns = silence(file);
			options.fail_fast = has_other(file);
			rpc_reply_fini(&call->reply);
			r = rpc_client_call(link->client, rpc_method_get(call->method),
					    call->request, &options, &call->reply);
			gfd_link_put(gfd, link);
		}
		if (gfd_is_refused(r) && !renewed) {
			renewed = true;
			r = gfd_lease_again(file, open);
			if (r < 0 || file->mode == GFC_MODE_NONE)
				return r < 0 ? r : -ESTALE;
			at = 0;
		} else if (gfd_is_unreachable(r) && (r != -ENOENT || unknown)) {
			gfd_suspect(gfd, place->node);
			if (gx_env_now_ns(gfd->env) + PAUSE_NS >= deadline_ns)
				return -EHOSTUNREACH;
			at = (at + 1) % file->place_count;
			if (at == 0)
				gx_env_sleep_until(gfd->env, gx_env_now_ns(gfd->env) + PAUSE_NS);
		} else {
			return r == -EBADMSG ? -EIO : r;
		}
	}
}
