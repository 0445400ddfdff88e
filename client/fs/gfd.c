/*
 * Life, the table of files with its sections, opening and closing.
 */
#include "client/fs/gfd.h"
#include "client/fs/gfd_impl.h"

/* -- sections ---------------------------------------------------------------------------------- */

void gfd_file_lock(struct gfd_file *file)
{
	gx_env_mutex_lock(file->gfd->env, &file->lock);
}

void gfd_file_unlock(struct gfd_file *file)
{
	gx_env_mutex_unlock(file->gfd->env, &file->lock);
}

void gfd_begin(struct gfd_file *file, bool alone)
{
	gfd_file_lock(file);
	while (file->alone || (alone && file->readers > 0) || file->asked != 0)
		GX_IGNORE(gx_env_cond_wait(file->gfd->env, &file->cond, &file->lock, GX_FOREVER));
	if (alone)
		file->alone = true;
	else
		file->readers++;
	gfd_file_unlock(file);
}

bool gfd_end_locked(struct gfd_file *file, bool alone)
{
	if (alone)
		file->alone = false;
	else
		file->readers--;
	if (file->readers > 0)
		return false;
	gx_env_cond_broadcast(file->gfd->env, &file->cond);
	return file->asked != 0;
}

void gfd_end(struct gfd_file *file, bool alone)
{
	bool asked;

	gfd_file_lock(file);
	asked = gfd_end_locked(file, alone);
	gfd_file_unlock(file);
	if (asked)
		gfd_activate(file);
}

void gfd_downgrade(struct gfd_file *file)
{
	gfd_file_lock(file);
	file->alone = false;
	file->readers = 1;
	gx_env_cond_broadcast(file->gfd->env, &file->cond);
	gfd_file_unlock(file);
}

void gfd_activate_locked(struct gfd_file *file)
{
	struct gfd *gfd = file->gfd;

	if (!file->is_active) {
		DL_APPEND(gfd->active, file);
		file->is_active = true;
	}
	gx_env_cond_signal(gfd->env, &gfd->wake);
}

void gfd_activate(struct gfd_file *file)
{
	gx_env_mutex_lock(file->gfd->env, &file->gfd->lock);
	gfd_activate_locked(file);
	gx_env_mutex_unlock(file->gfd->env, &file->gfd->lock);
}

int64_t gfd_deadline(struct gfd *gfd)
{
	int64_t now = gx_env_now_ns(gfd->env);
	int64_t timeout = gfd->options.data_timeout_ns;

	return timeout < GX_FOREVER - now ? now + timeout : GX_FOREVER;
}

/* -- errors that are told later ---------------------------------------------------------------- */

void gfd_set_error(struct gfd_file *file, int err)
{
	if (file->error == 0)
		file->error = err;
}

int gfd_take_error(struct gfd_file *file)
{
	int err = file->error;

	file->error = 0;
	return err < 0 ? gfc_fail(err, "a write that was held back failed: %s", gx_strerror(err))
		       : 0;
}

/* -- buffers ----------------------------------------------------------------------------------- */

uint8_t *gfd_buffer_get(struct gfd *gfd)
{
	uint8_t *buffer = NULL;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	if (gfd->pool_count > 0)
		buffer = gfd->pool[--gfd->pool_count];
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	return buffer ? buffer : gx_alloc_pages(GFD_PIECE_BYTES);
}

void gfd_buffer_put(struct gfd *gfd, uint8_t *buffer)
{
	if (!buffer)
		return;
	gx_env_mutex_lock(gfd->env, &gfd->lock);
	if (gfd->pool_count < GFD_POOL_MAX)
		gfd->pool[gfd->pool_count++] = GX_TAKE(buffer);
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	free(buffer);
}

/* -- life -------------------------------------------------------------------------------------- */

static int init_locks(struct gfd *gfd)
{
	int r = gx_env_mutex_init(gfd->env, &gfd->lock);

	if (r < 0)
		return r;
	r = gx_env_cond_init(gfd->env, &gfd->changed);
	if (r < 0)
		goto fail;
	r = gx_env_cond_init(gfd->env, &gfd->wake);
	if (r == 0)
		return 0;
	gx_env_cond_fini(gfd->env, &gfd->changed);
fail:
	gx_env_mutex_fini(gfd->env, &gfd->lock);
	return r;
}

int gfd_new(struct gfc *gfc, const struct gfd_options *options, struct gfd **ret_gfd)
{
	struct gfd *gfd = calloc(1, sizeof(*gfd));
	int r;

	if (!gfd)
		return gfc_fail(-ENOMEM, "out of memory");
	gfd->gfc = gfc;
	gfd->env = gfc_env(gfc);
	gfd->options = *options;
	r = gx_strcpy(gfd->host, sizeof(gfd->host), options->host ? options->host : "");
	if (r == 0)
		r = init_locks(gfd);
	if (r < 0) {
		free(gfd);
		return gfc_fail(r, "%s", gx_strerror(r));
	}
	gfd->options.host = gfd->host;
	gfc_set_data(gfc, gfd);
	*ret_gfd = gfd;
	return 0;
}

void gfd_free(struct gfd *gfd)
{
	if (!gfd)
		return;
	gfc_set_data(gfd->gfc, NULL);
	gfd_thread_stop(gfd);
	gx_assert(!gfd->files); /* the thread may have had the last reference */
	gfd_nodes_free(gfd);
	while (gfd->pool_count > 0)
		free(gfd->pool[--gfd->pool_count]);
	gx_env_cond_fini(gfd->env, &gfd->wake);
	gx_env_cond_fini(gfd->env, &gfd->changed);
	gx_env_mutex_fini(gfd->env, &gfd->lock);
	free(gfd);
}

void gfd_stats(struct gfd *gfd, struct gfd_stats *ret_stats)
{
	*ret_stats = (struct gfd_stats){
		.read_local = atomic_load(&gfd->read_local),
		.read_remote = atomic_load(&gfd->read_remote),
		.written = atomic_load(&gfd->written),
		.verified = atomic_load(&gfd->verified),
		.damaged = atomic_load(&gfd->damaged),
		.failovers = atomic_load(&gfd->failovers),
		.resent = atomic_load(&gfd->resent),
	};
}

/* -- the table --------------------------------------------------------------------------------- */

static int file_new(struct gfd *gfd, uint64_t ino, const struct gfc_attr *attr,
		    struct gfd_file **ret_file)
{
	struct gfd_file *file = calloc(1, sizeof(*file));
	int r;

	if (!file)
		return -ENOMEM;
	r = gx_env_mutex_init(gfd->env, &file->lock);
	if (r == 0) {
		r = gx_env_cond_init(gfd->env, &file->cond);
		if (r < 0)
			gx_env_mutex_fini(gfd->env, &file->lock);
	}
	if (r < 0) {
		free(file);
		return r;
	}
	file->gfd = gfd;
	file->ino = ino;
	file->descriptor = -1;
	file->regular = S_ISREG(attr->mode);
	file->size = attr->size;
	file->is_inline = (attr->flags & GFC_ATTR_INLINE) != 0;
	file->fresh = file->is_inline && attr->size == 0;
	file->fresh_version = attr->version;
	file->fresh_syncs = gfc_syncs(gfd->gfc);
	*ret_file = file;
	return 0;
}

static void file_free(struct gfd_file *file)
{
	struct gfd *gfd = file->gfd;

	gfd_ops_drop(file);
	gfd_drop_all(file);
	gx_env_cond_fini(gfd->env, &file->cond);
	gx_env_mutex_fini(gfd->env, &file->lock);
	free(file);
}

void gfd_file_unref(struct gfd_file *file)
{
	struct gfd *gfd = file->gfd;
	bool last;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	last = --file->refs == 0;
	if (last) {
		HASH_DEL(gfd->files, file);
		if (file->is_active)
			DL_DELETE(gfd->active, file);
	}
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	if (last)
		file_free(file);
}

/* With a reference. */
static struct gfd_file *file_find(struct gfd *gfd, uint64_t ino)
{
	struct gfd_file *file;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	HASH_FIND(hh, gfd->files, &ino, sizeof(ino), file);
	if (file)
		file->refs++;
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	return file;
}

/* The file of the inode with one more reference, made if need be. */
static int file_get(struct gfd *gfd, uint64_t ino, const struct gfc_attr *attr,
		    struct gfd_file **ret_file)
{
	bool gx_hash_failed = false;
	struct gfd_file *file, *made;
	int r = file_new(gfd, ino, attr, &made);

	if (r < 0)
		return r;
	gx_env_mutex_lock(gfd->env, &gfd->lock);
	HASH_FIND(hh, gfd->files, &ino, sizeof(ino), file);
	if (!file) {
		HASH_ADD(hh, gfd->files, ino, sizeof(ino), made);
		if (!gx_hash_failed)
			file = GX_TAKE(made);
	}
	if (file)
		file->refs++;
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	if (made)
		file_free(made);
	if (!file)
		return -ENOMEM;
	*ret_file = file;
	return 0;
}

struct gfc_open *gfd_some_open(struct gfd_file *file, bool write)
{
	struct gfc_open *open = NULL;

	gfd_file_lock(file);
	for (struct gfd_opened *o = file->opens; o && !open; o = o->next)
		if (!write || (gfc_open_flags(o->open) & GFC_OPEN_WRITE))
			open = o->open;
	gfd_file_unlock(file);
	return open;
}

static int opens_add(struct gfd_file *file, struct gfc_open *open)
{
	struct gfd_opened *opened = calloc(1, sizeof(*opened));

	if (!opened)
		return -ENOMEM;
	opened->open = open;
	gfd_file_lock(file);
	LL_PREPEND(file->opens, opened);
	gfd_file_unlock(file);
	return 0;
}

/* Are there others that may write? */
static bool opens_remove(struct gfd_file *file, struct gfc_open *open)
{
	struct gfd_opened *opened = NULL, *o, *next;
	bool writers = false;

	gfd_file_lock(file);
	LL_FOREACH_SAFE (file->opens, o, next) {
		if (o->open == open) {
			LL_DELETE(file->opens, o);
			opened = o;
		} else if (gfc_open_flags(o->open) & GFC_OPEN_WRITE) {
			writers = true;
		}
	}
	gfd_file_unlock(file);
	gx_assert(opened);
	free(opened);
	return writers;
}

int gfd_open(struct gfd *gfd, struct gfc_open *open, const struct gfc_attr *attr,
	     struct gfd_file **ret_file)
{
	struct gfd_file *file;
	int r = file_get(gfd, attr->ref.ino, attr, &file);

	if (r < 0)
		return gfc_fail(r, "%s", gx_strerror(r));
	r = opens_add(file, open);
	if (r < 0) {
		gfd_file_unref(file);
		return gfc_fail(r, "%s", gx_strerror(r));
	}
	/* What metad could not do, because others use the object. */
	if (gfc_open_truncate_later(open))
		r = gfd_truncate(file, open, 0);
	if (r < 0) {
		GX_IGNORE(gfd_close(file, open)); /* the first failure counts */
		return r;
	}
	*ret_file = file;
	return 0;
}

/* Alone: `open` is about to go. */
static int close_open(struct gfd_file *file, struct gfc_open *open)
{
	bool writes = (gfc_open_flags(open) & GFC_OPEN_WRITE) != 0;
	bool others;
	int err = 0, r = 0;

	if (writes && file->may_write)
		GX_IGNORE(gfd_send_surely(file)); /* the error stays with the file */
	others = opens_remove(file, open);
	if (writes && file->may_write && (!others || file->changed || file->growing))
		r = gfd_report(file, open, others ? 0 : 1, false);
	if (writes && !others)
		gfd_ops_drop(file);
	else if (writes)
		gfd_leave_files(file);
	if (writes)
		err = gfd_take_error(file);
	if (err < 0)
		return err;
	return r;
}

int gfd_close(struct gfd_file *file, struct gfc_open *open)
{
	int r;

	gfd_begin(file, true);
	r = close_open(file, open);
	gfd_end(file, true);
	gfd_file_unref(file);
	return r;
}

/* -- what metad says --------------------------------------------------------------------------- */

void gfd_asked(struct gfd *gfd, uint64_t ino, unsigned what, uint64_t ask)
{
	struct gfd_file *file;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	HASH_FIND(hh, gfd->files, &ino, sizeof(ino), file);
	/* Without the thread there has never been a lease. */
	if (file && gfd->has_thread && !gfd->stopping) {
		gfd_file_lock(file);
		file->asked |= what & (GFD_ASKED_RECALL | GFD_ASKED_SIZE);
		file->ask = GX_MAX(file->ask, ask);
		gfd_file_unlock(file);
		gfd_activate_locked(file);
	}
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
}

static void distrust(struct gfd_file *file)
{
	gfd_file_lock(file);
	file->distrust = true;
	gfd_file_unlock(file);
}

void gfd_forget(struct gfd *gfd, uint64_t ino)
{
	struct gfd_file *file, *next;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	if (ino == 0) {
		HASH_ITER (hh, gfd->files, file, next)
			distrust(file);
	} else {
		HASH_FIND(hh, gfd->files, &ino, sizeof(ino), file);
		if (file)
			distrust(file);
	}
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
}

unsigned gfd_lease_of(struct gfd *gfd, uint64_t ino, bool *ret_write, uint64_t *ret_generation)
{
	struct gfd_file *file;
	unsigned mode = 0;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	HASH_FIND(hh, gfd->files, &ino, sizeof(ino), file);
	if (file) {
		gfd_file_lock(file);
		mode = file->mode;
		*ret_write = file->may_write;
		if (ret_generation)
			*ret_generation = file->generation;
		gfd_file_unlock(file);
	}
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	return mode;
}

/* -- attributes -------------------------------------------------------------------------------- */

/* Does this process know the size better than metad? Under the lock. */
static bool knows_size(const struct gfd_file *file, uint64_t *ret_size)
{
	if (!file->may_write)
		return false;
	if (file->mode == GFC_MODE_EXCLUSIVE)
		*ret_size = file->size;
	else if (file->clock > file->reported_clock)
		*ret_size = file->object_size;
	else
		return false;
	return true;
}

bool gfd_correct_attr(struct gfd *gfd, struct gfc_attr *attr)
{
	uint64_t ino = attr->ref.ino, size;
	struct gfd_file *file;
	bool changed = false;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	HASH_FIND(hh, gfd->files, &ino, sizeof(ino), file);
	if (file) {
		gfd_file_lock(file);
		changed = knows_size(file, &size) && size != attr->size;
		gfd_file_unlock(file);
	}
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	if (changed)
		attr->size = size;
	return changed;
}

static int shared_size(struct gfd_file *file, struct gfc_open *open, uint64_t *ret_size,
		       uint64_t *ret_clock)
{
	PbData__DataStatRequest request = PB_DATA__DATA_STAT_REQUEST__INIT;
	struct gfd_data_call call = {
		.method = RPC_INDEX_DATA_STAT, .request = &request.base, .ticket = &request.ticket};
	int r = gfd_call_primary(file, open, &call);

	if (r == 0) {
		*ret_size = ((const PbData__DataStatReply *)call.reply.message)->size;
		*ret_clock = ((const PbData__DataStatReply *)call.reply.message)->clock;
	}
	rpc_reply_fini(&call.reply);
	return r;
}

/*
 * Alone: is the primary the one to ask for the size? A shared lease that metad has not confirmed
 * since it was asked for is none: somebody may hold an exclusive one by now, and bytes that the
 * primary does not have. So it is asked for again, as for reading. If that fails, metad knows.
 */
static bool is_shared(struct gfd_file *file, struct gfc_open *open)
{
	bool cached;

	if (file->mode != GFC_MODE_SHARED)
		return false;
	if (!gfd_has_lease(file, &cached) &&
	    gfd_need_lease(file, open, false, gfd_deadline(file->gfd), NULL) < 0)
		return false;
	return file->mode == GFC_MODE_SHARED;
}

int gfd_getattr(struct gfd_file *file, struct gfc_open *open, struct gfc_attr *ret_attr)
{
	uint64_t size = 0, clock = 0;
	bool shared;
	int r = 0;

	gfd_begin(file, true);
	/* What was written before has its time, too. */
	if (file->may_write && (file->changed || file->dirty)) {
		r = gfd_send_all(file);
		if (r == 0)
			r = gfd_report(file, gfd_some_open(file, true), 0, false);
	}
	shared = r == 0 && is_shared(file, open);
	if (shared)
		r = shared_size(file, open, &size, &clock);
	gfd_end(file, true);
	if (r < 0)
		return r;
	r = gfc_open_getattr(file->gfd->gfc, open, ret_attr);
	if (r < 0)
		return r;
	ret_attr->clock = clock;
	if (shared)
		ret_attr->size = size;
	else
		gfd_correct_attr(file->gfd, ret_attr);
	return r;
}

static int flush_file(struct gfd_file *file)
{
	int r;

	gfd_begin(file, true);
	r = gfd_flush_alone(file);
	gfd_end(file, true);
	return r;
}

/* The next file after this inode, with a reference. */
static struct gfd_file *file_after(struct gfd *gfd, uint64_t ino)
{
	struct gfd_file *file, *next, *best = NULL;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	HASH_ITER (hh, gfd->files, file, next)
		if (file->ino > ino && (!best || file->ino < best->ino))
			best = file;
	if (best)
		best->refs++;
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	return best;
}

int gfd_flush_ino(struct gfd *gfd, uint64_t ino)
{
	struct gfd_file *file;
	int result = 0;

	for (file = ino ? file_find(gfd, ino) : file_after(gfd, 0); file;) {
		uint64_t at = file->ino;
		int r = flush_file(file);

		if (r < 0 && result == 0)
			result = r;
		gfd_file_unref(file);
		file = ino ? NULL : file_after(gfd, at);
	}
	return result;
}

/* -- copies ------------------------------------------------------------------------------------ */

ssize_t gfd_where(struct gfd *gfd, struct gfc_ref ref, bool wait, struct gfd_place *ret_places,
		  size_t max, unsigned *ret_wanted)
{
	GX_AUTOFREE struct gfc_place *places = calloc(GFC_PLACES_MAX, sizeof(*places));
	struct gfc_attr attr;
	ssize_t count;

	if (!places)
		return gfc_fail(-ENOMEM, "out of memory");
	count = gfc_where(gfd->gfc, ref, wait, &attr, places, GX_MIN(max, GFC_PLACES_MAX),
			  ret_wanted);
	for (ssize_t i = 0; i < count; i++) {
		ret_places[i] = (struct gfd_place){
			.up = places[i].up,
			.current = places[i].generation == attr.generation &&
				   !(places[i].flags & GFC_PLACE_STALE),
			.cache = places[i].flags & GFC_PLACE_CACHE,
			.stable = places[i].flags & GFC_PLACE_STABLE,
			.damaged = places[i].flags & GFC_PLACE_DAMAGED,
			.primary = places[i].flags & GFC_PLACE_PRIMARY,
			.generation = places[i].generation,
		};
		memcpy(ret_places[i].node, places[i].node, sizeof(places[i].node));
		memcpy(ret_places[i].host, places[i].host, sizeof(places[i].host));
	}
	return count;
}
