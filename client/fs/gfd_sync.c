/*
 * That what was written is on disk: at the node, with its checksums, and at metad.
 *
 * A sync may take long. The file is not kept alone meanwhile: others read and write, and metad may
 * have its lease back. So a sync covers what had been answered when it began, by number.
 */
#include "client/fs/gfd_impl.h"

#define PAUSE_NS (50 * GX_NSEC_PER_MSEC)

/* A DataSync on its way, and what it covers. */
struct syncing {
	struct gfd_link *link;
	struct rpc_started *started;
	int err;     /* of the start */
	bool writer; /* begun with a lease to write */
	uint64_t generation, boot, order, answers, drops;
	uint8_t ticket[RPC_FILE_TICKET_BYTES];
	PbData__DataSyncRequest request;
};

/* Over all tries. */
struct patience {
	int64_t deadline_ns;
	bool renewed;
};

/* -- one DataSync ------------------------------------------------------------------------------ */

/* Alone. */
static void sync_begin(struct gfd_file *file, struct syncing *s)
{
	struct rpc_call_options options = {.deadline_ns = gfd_deadline(file->gfd)};
	const struct gfc_place *place = &file->places[0].place;

	s->generation = file->generation;
	s->boot = file->boot;
	s->order = file->order;
	s->answers = file->answers;
	s->drops = file->drops;
	s->link = NULL;
	s->started = NULL;
	memcpy(s->ticket, place->ticket, place->ticket_bytes);
	pb_data__data_sync_request__init(&s->request);
	s->request.ticket = (ProtobufCBinaryData){place->ticket_bytes, s->ticket};
	s->err = gfd_link_get(file->gfd, place->node, &s->link);
	if (s->err < 0)
		return;
	s->err = rpc_client_start(s->link->client, rpc_method_get(RPC_INDEX_DATA_SYNC),
				  &s->request.base, &options, &s->started);
}

/* In a section or not. */
static int sync_wait(struct gfd_file *file, struct syncing *s, uint64_t *ret_boot)
{
	struct rpc_reply reply;
	int r = s->err;

	if (r == 0) {
		rpc_reply_init(&reply);
		r = rpc_client_finish(GX_TAKE(s->started), &reply);
		if (r == 0)
			*ret_boot = ((const PbData__DataSyncReply *)reply.message)->boot;
		rpc_reply_fini(&reply);
	}
	gfd_link_put(file->gfd, GX_TAKE(s->link));
	return r;
}

/* Alone: what it covers is on disk. */
static void synced(struct gfd_file *file, const struct syncing *s)
{
	gfd_unkeep(file, s->order);
	gfd_file_lock(file);
	if (file->drops == s->drops)
		file->dropped = false;
	if (file->answers == s->answers) {
		file->unsynced = false;
		file->on_disk = true;
		file->boot = 0;
	}
	gfd_file_unlock(file);
}

enum { DONE, AGAIN, LATER };

/* Alone: what follows from the answer `err`. DONE, AGAIN, LATER, or an error. */
static int judge(struct gfd_file *file, const struct syncing *s, int err, uint64_t boot,
		 struct patience *p)
{
	int r;

	if (!file->may_write || file->generation != s->generation)
		return file->error < 0 ? file->error : -EIO;
	if (err == 0 && !file->rebooted && (s->boot == 0 || boot == s->boot)) {
		synced(file, s);
		return DONE;
	}
	if (err == 0) {
		file->rebooted = true;
		file->boot = 0; /* the next answer tells */
		r = gfd_send_again(file);
		if (file->error < 0)
			return file->error;
		return r < 0 ? r : AGAIN;
	}
	if (gfd_is_refused(err) && !p->renewed) {
		p->renewed = true;
		r = gfd_lease_again(file, gfd_some_open(file, true));
		return r < 0 ? r : AGAIN;
	}
	if (gfd_is_refused(err))
		return -EIO;
	if (!gfd_is_unreachable(err))
		return err;
	gfd_suspect(file->gfd, file->places[0].place.node);
	return gx_env_now_ns(file->gfd->env) + PAUSE_NS < p->deadline_ns ? LATER : -EHOSTUNREACH;
}

static void pause_a_little(struct gfd *gfd)
{
	gx_env_sleep_until(gfd->env, gx_env_now_ns(gfd->env) + PAUSE_NS);
}

int gfd_sync_object(struct gfd_file *file)
{
	struct patience patience = {.deadline_ns = gfd_deadline(file->gfd)};

	for (;;) {
		struct syncing s;
		uint64_t boot = 0;
		int r;

		sync_begin(file, &s);
		r = sync_wait(file, &s, &boot);
		r = judge(file, &s, r, boot, &patience);
		if (r < 0 || r == DONE)
			return r;
		if (r == LATER)
			pause_a_little(file->gfd);
	}
}

/* -- flush ------------------------------------------------------------------------------------- */

int gfd_flush_alone(struct gfd_file *file)
{
	int r = 0;

	if (file->may_write)
		r = gfd_send_all(file);
	if (r == 0 && file->may_write && (file->changed || file->growing))
		r = gfd_report(file, gfd_some_open(file, true), 0, false);
	return r;
}

int gfd_flush(struct gfd_file *file, struct gfc_open *open GX_UNUSED)
{
	int told, r;

	gfd_begin(file, true);
	r = gfd_flush_alone(file);
	told = gfd_take_error(file);
	gfd_end(file, true);
	return told < 0 ? told : r;
}

/* -- both halves ------------------------------------------------------------------------------- */

/* Alone: what we send, and what was in the object before, or others put there. */
static bool is_on_disk(const struct gfd_file *file)
{
	if (file->unsynced)
		return false;
	/* Nothing is there yet; the inline content is metad's. */
	if (file->growing)
		return true;
	return file->on_disk && file->mode == GFC_MODE_EXCLUSIVE;
}

/* Alone, with a lease to write. 0: it is on its way. 1: there is nothing to sync at the node. */
static int begin_writer(struct gfd_file *file, struct syncing *s)
{
	bool wait;
	int r = gfd_send_all(file);

	/* The object is the truth only when it is on disk, unless nobody relied on the other. */
	wait = file->growing && !file->fresh;
	if (r == 0 && file->may_write && !wait && (file->changed || file->growing))
		r = gfd_report(file, gfd_some_open(file, true), 0, false);
	if (r < 0)
		return r;
	if (!file->may_write || is_on_disk(file))
		return 1;
	sync_begin(file, s);
	return 0;
}

/* Does metad count on a copy being on disk? One that was made of another has been synced. */
static bool has_stable_place(const struct gfd_file *file)
{
	if (file->mode != GFC_MODE_READ)
		return false;
	for (size_t i = 0; i < file->place_count; i++)
		if (file->places[i].place.flags & GFC_PLACE_STABLE)
			return true;
	return file->place_count > 1;
}

/*
 * The same without one: what was written through a handle that is closed, or under a lease that was
 * given back, is at the node, but perhaps not on its disk.
 */
static int begin_other(struct gfd_file *file, struct gfc_open *open, struct syncing *s,
		       int64_t deadline_ns)
{
	int r;

	if (file->error < 0)
		return file->error;
	if (!file->regular || (file->mode == GFC_MODE_NONE && file->is_inline))
		return 1;
	r = gfd_need_lease(file, open, false, deadline_ns, NULL);
	/* Who has no right to read it has the one to write. */
	if (r == -EACCES && (gfc_open_flags(open) & GFC_OPEN_WRITE))
		r = gfd_need_lease(file, open, true, deadline_ns, NULL);
	if (r < 0)
		return r;
	if (file->mode == GFC_MODE_NONE || file->place_count == 0 || has_stable_place(file))
		return 1;
	sync_begin(file, s);
	return 0;
}

static int begin_both(struct gfd_file *file, struct gfc_open *open, struct syncing *s,
		      struct patience *p)
{
	int r;

	gfd_begin(file, true);
	s->writer = file->may_write;
	r = s->writer ? begin_writer(file, s) : begin_other(file, open, s, p->deadline_ns);
	gfd_end(file, true);
	return r;
}

/* Alone: as judge() of one that was begun without a lease to write: nothing of ours is kept. */
static int judge_other(struct gfd_file *file, struct gfc_open *open, int err, struct patience *p)
{
	bool again = p->renewed;
	int r;

	if (err == 0)
		return DONE;
	if (!gfd_is_refused(err) && !gfd_is_unreachable(err))
		return err == -EBADMSG ? -EIO : err;
	if (gx_env_now_ns(file->gfd->env) + PAUSE_NS >= p->deadline_ns)
		return gfd_is_refused(err) ? -EIO : -EHOSTUNREACH;
	if (gfd_is_unreachable(err)) {
		gfd_suspect(file->gfd, file->places[0].place.node);
		return LATER;
	}
	/* Somebody has begun to write, or has been recovered. */
	p->renewed = true;
	r = gfd_lease_again(file, open);
	return r < 0 ? r : again ? LATER : AGAIN;
}

/* As judge(); *ret_told: metad has heard something new. */
static int end_both(struct gfd_file *file, struct gfc_open *open, struct syncing *s,
		    struct patience *p, bool *ret_told)
{
	uint64_t boot = 0;
	int r = sync_wait(file, s, &boot);

	gfd_begin(file, true);
	r = s->writer ? judge(file, s, r, boot, p) : judge_other(file, open, r, p);
	if (r == DONE && file->growing) {
		*ret_told = true;
		r = gfd_report(file, gfd_some_open(file, true), 0, !file->unsynced);
	}
	gfd_end(file, true);
	return r;
}

static int sync_both(struct gfd_file *file, struct gfc_open *open)
{
	struct patience patience = {.deadline_ns = gfd_deadline(file->gfd)};
	struct gfc *gfc = file->gfd->gfc;

	for (;;) {
		bool told = false;
		struct syncing s;
		int meta, r = begin_both(file, open, &s, &patience);

		if (r < 0)
			return r;
		/* metad's disk and the node's at the same time. */
		meta = gfc_sync(gfc);
		if (r == 1)
			return meta;
		r = end_both(file, open, &s, &patience, &told);
		if (r == DONE && told && meta == 0)
			meta = gfc_sync(gfc);
		if (r < 0 || r == DONE)
			return r < 0 ? r : meta;
		if (r == LATER)
			pause_a_little(file->gfd);
	}
}

int gfd_sync(struct gfd_file *file, struct gfc_open *open)
{
	int told, r = sync_both(file, open);

	gfd_begin(file, true);
	told = gfd_take_error(file);
	gfd_end(file, true);
	return told < 0 ? told : r;
}
