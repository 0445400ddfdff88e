/*
 * fsd_object.c - life of an object: made, opened, synced, settled, advanced, removed.
 *
 * What sync and settle may rely on. A region that is being written is locked by its writer, and
 * becomes dirty when the writer lets go. A sync takes the dirty regions that nobody writes at that
 * moment, and after its fdatasync these are on disk; those written meanwhile are dirty again. So a
 * region that is neither dirty, nor taken by a running sync, nor locked by a writer is on disk with
 * its checksums: its mark may go, and the settled size may grow over it. Neither needs a sync,
 * since the old state on disk only says less. The settled size stops at the first region of which
 * that is not true.
 *
 * Sickness. The first failed sync is kept; nothing is written or synced after it (rule B12 takes it
 * from there), and the struct stays until the spool is closed, so that no other opening syncs the
 * same data once more.
 */
#include "fsd/fsd_object.h"
#include "fsd/fsd_object_impl.h"
#include <fcntl.h>

/* -- small things ---------------------------------------------------------------- */

static void lock_table(struct fsd_spool *spool)
{
	gx_env_mutex_lock(spool->env, &spool->lock);
}

static void unlock_table(struct fsd_spool *spool)
{
	gx_env_mutex_unlock(spool->env, &spool->lock);
}

uint64_t fsd_object_size(struct fsd_object *object)
{
	uint64_t bytes;

	fsd_object_lock(object);
	bytes = object->size_bytes;
	fsd_object_unlock(object);
	return bytes;
}

void fsd_object_get_id(struct fsd_object *object, struct fsd_object_id *ret_id)
{
	lock_table(object->spool);
	*ret_id = object->id;
	unlock_table(object->spool);
}

int fsd_object_data_fd(const struct fsd_object *object)
{
	return object->data_fd;
}

int fsd_object_open_reader(struct fsd_object *object)
{
	char path[PATH_MAX];
	int r;

	/* Its name must not change before it is opened. */
	gx_env_mutex_lock(object->env, &object->names);
	r = object->removed ? -ENOENT : fsd_spool_object_path(object->spool, &object->id, "", path);
	if (r == 0)
		r = gx_env_open(object->env, path, O_RDONLY, 0);
	gx_env_mutex_unlock(object->env, &object->names);
	return r;
}

int fsd_object_stored(struct fsd_object *object, uint64_t *ret_bytes)
{
	struct stat st;
	int r = gx_env_fstat(object->env, object->data_fd, &st);

	if (r == 0)
		*ret_bytes = (uint64_t)st.st_blocks * 512;
	return r;
}

bool fsd_object_bad(struct fsd_object *object)
{
	bool bad;

	fsd_object_lock(object);
	bad = object->bad;
	fsd_object_unlock(object);
	return bad;
}

void fsd_object_mended(struct fsd_object *object)
{
	fsd_object_lock(object);
	object->bad = false;
	fsd_object_unlock(object);
}

int fsd_object_sick(struct fsd_object *object)
{
	int sick;

	fsd_object_lock(object);
	sick = object->sick;
	fsd_object_unlock(object);
	return sick;
}

int fsd_object_fall_sick(struct fsd_object *object, int err)
{
	gx_assert(err < 0);
	fsd_object_lock(object);
	if (object->sick == 0)
		object->sick = err;
	fsd_object_unlock(object);
	return err;
}

int fsd_object_put_header(struct fsd_object *object)
{
	struct fsd_sum_header header = {.ino = object->id.ino,
					.generation = object->header_generation,
					.settled_bytes = object->settled_bytes};
	uint8_t bytes[FSD_SUM_HEADER_BYTES];

	fsd_sum_header_encode(&header, bytes);
	return gx_env_pwrite(object->env, object->sum_fd, bytes, sizeof(bytes), 0);
}

/* -- life ------------------------------------------------------------------------ */

static int object_init(struct fsd_object *object)
{
	struct gx_env *env = object->env;
	int r = gx_env_mutex_init(env, &object->names);

	object->names_ready = r == 0;
	if (r == 0) {
		r = gx_env_mutex_init(env, &object->sum_sync);
		object->sum_sync_ready = r == 0;
	}
	if (r == 0) {
		r = gx_env_mutex_init(env, &object->lock);
		object->lock_ready = r == 0;
	}
	if (r == 0) {
		r = gx_env_cond_init(env, &object->changed);
		object->changed_ready = r == 0;
	}
	return r;
}

void fsd_object_free(struct fsd_object *object)
{
	struct gx_env *env = object->env;
	struct fsd_region *region;
	struct fsd_region *tmp;

	HASH_ITER (hh, object->regions, region, tmp) {
		HASH_DELETE(hh, object->regions, region);
		free(region);
	}
	if (object->data_fd >= 0)
		gx_env_close(env, object->data_fd);
	if (object->sum_fd >= 0)
		gx_env_close(env, object->sum_fd);
	if (object->changed_ready)
		gx_env_cond_fini(env, &object->changed);
	if (object->lock_ready)
		gx_env_mutex_fini(env, &object->lock);
	if (object->sum_sync_ready)
		gx_env_mutex_fini(env, &object->sum_sync);
	if (object->names_ready)
		gx_env_mutex_fini(env, &object->names);
	free(object);
}

static int object_new(struct fsd_spool *spool, const struct fsd_object_id *id,
		      struct fsd_object **ret_object)
{
	struct fsd_object *object = calloc(1, sizeof(*object));
	int r;

	if (object == NULL)
		return -ENOMEM;
	object->spool = spool;
	object->env = spool->env;
	object->id = *id;
	object->data_fd = object->sum_fd = -1;
	object->refs = 1;
	object->limit_bytes = UINT64_MAX;
	object->opening = true;
	r = object_init(object);
	if (r < 0) {
		fsd_object_free(object);
		return r;
	}
	*ret_object = object;
	return 0;
}

/*
 * The object with a reference: one that is open, or (`opening`) a new one in the table that others
 * wait for, until opened() or abandon().
 */
static int acquire(struct fsd_spool *spool, const struct fsd_object_id *id,
		   struct fsd_object **ret_object)
{
	bool gx_hash_failed = false;
	struct fsd_object *object;
	int r = 0;

	lock_table(spool);
	for (;;) {
		HASH_FIND(hh, spool->objects, id, sizeof(*id), object);
		if (object == NULL || !object->opening)
			break;
		/* Woken or not, the table is asked again. */
		GX_IGNORE(gx_env_cond_wait(spool->env, &spool->changed, &spool->lock, GX_FOREVER));
	}
	if (object != NULL && object == spool->anchor) {
		r = -EINVAL;
	} else if (object != NULL) {
		object->refs++;
	} else {
		r = object_new(spool, id, &object);
		if (r == 0)
			HASH_ADD(hh, spool->objects, id, sizeof(object->id), object);
		if (r == 0 && gx_hash_failed) {
			fsd_object_free(object);
			r = -ENOMEM;
		}
	}
	unlock_table(spool);
	if (r == 0)
		*ret_object = object;
	return r;
}

static void opened(struct fsd_object *object)
{
	lock_table(object->spool);
	object->opening = false;
	gx_env_cond_broadcast(object->env, &object->spool->changed);
	unlock_table(object->spool);
}

/* Nobody else has it: those who wait look again. */
static void abandon(struct fsd_object *object)
{
	struct fsd_spool *spool = object->spool;

	lock_table(spool);
	HASH_DEL(spool->objects, object);
	gx_env_cond_broadcast(spool->env, &spool->changed);
	unlock_table(spool);
	fsd_object_free(object);
}

int fsd_object_open(struct fsd_spool *spool, const struct fsd_object_id *id,
		    struct fsd_object **ret_object)
{
	struct fsd_object *object;
	int r = acquire(spool, id, &object);

	if (r < 0)
		return r;
	if (object->opening) {
		r = fsd_object_recover(object);
		if (r < 0) {
			abandon(object);
			return r;
		}
		opened(object);
	}
	*ret_object = object;
	return 0;
}

static void unref(struct fsd_object *object)
{
	struct fsd_spool *spool = object->spool;
	bool last;

	lock_table(spool);
	last = --object->refs == 0 && (object->removed || object->sick == 0);
	if (last && !object->removed)
		HASH_DEL(spool->objects, object);
	unlock_table(spool);
	if (last)
		fsd_object_free(object);
}

void fsd_object_close(struct fsd_object *object)
{
	if (object == NULL)
		return;
	fsd_object_settle(object);
	unref(object);
}

/* -- making ---------------------------------------------------------------------- */

static int unlink_one(struct fsd_spool *spool, const struct fsd_object_id *id, const char *suffix)
{
	char path[PATH_MAX];
	int r = fsd_spool_object_path(spool, id, suffix, path);

	return r < 0 ? r : gx_env_unlink(spool->env, path);
}

static int unlink_sums(struct fsd_spool *spool, const struct fsd_object_id *id)
{
	int r = unlink_one(spool, id, FSD_SUFFIX_SUM);
	int r_new = unlink_one(spool, id, FSD_SUFFIX_NEW);

	if (r == 0 || r == -ENOENT)
		r = r_new;
	return r == -ENOENT ? 0 : r;
}

static int make_file(struct fsd_object *object, const char *suffix)
{
	char path[PATH_MAX];
	int fd;
	int r = fsd_spool_object_path(object->spool, &object->id, suffix, path);

	if (r < 0)
		return r;
	fd = gx_env_open(object->env, path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd != -ENOENT)
		return fd;
	r = fsd_spool_make_dirs(object->spool, object->id.ino);
	return r < 0 ? r : gx_env_open(object->env, path, O_RDWR | O_CREAT | O_EXCL, 0600);
}

/* The sum file first: a data file without one is damage. */
static int make_files(struct fsd_object *object)
{
	bool early = FSD_BROKEN(FSD_STEP_NEW_NAME);
	char path[PATH_MAX];
	struct stat st;
	int r = fsd_spool_object_path(object->spool, &object->id, "", path);

	if (r < 0)
		return r;
	r = gx_env_stat(object->env, path, &st);
	if (r == 0)
		return -EEXIST;
	/* What a removal or another making left when it was interrupted. */
	if (r == -ENOENT)
		r = unlink_sums(object->spool, &object->id);
	if (r < 0)
		return r;
	object->young = !early;
	object->sum_fd = make_file(object, early ? FSD_SUFFIX_SUM : FSD_SUFFIX_NEW);
	if (object->sum_fd < 0)
		return object->sum_fd;
	object->header_generation = object->id.generation;
	r = fsd_object_put_header(object);
	if (r == 0)
		object->data_fd = make_file(object, "");
	if (r == 0 && object->data_fd < 0)
		r = object->data_fd;
	if (r < 0)
		GX_IGNORE(unlink_sums(object->spool, &object->id)); /* else the next one does */
	return r;
}

int fsd_object_create(struct fsd_spool *spool, const struct fsd_object_id *id,
		      struct fsd_object **ret_object)
{
	struct fsd_object *object;
	int r = acquire(spool, id, &object);

	if (r < 0)
		return r;
	if (!object->opening) {
		unref(object);
		return -EEXIST;
	}
	r = make_files(object);
	if (r < 0) {
		abandon(object);
		return r;
	}
	object->resized = true; /* it is new; so is its size */
	opened(object);
	*ret_object = object;
	return 0;
}

/* -- sync ------------------------------------------------------------------------ */

int fsd_object_sync_sum(struct fsd_object *object)
{
	int r;

	gx_env_mutex_lock(object->env, &object->sum_sync);
	r = fsd_object_sick(object);
	if (r == 0) {
		r = gx_env_fdatasync(object->env, object->sum_fd);
		if (r < 0)
			r = fsd_object_fall_sick(object, r);
	}
	gx_env_mutex_unlock(object->env, &object->sum_sync);
	return r;
}

struct sum_job {
	struct fsd_object *object;
	int r;
};

static void sum_job_run(void *arg)
{
	struct sum_job *job = arg;

	job->r = FSD_BROKEN(FSD_STEP_SYNC_SUMS) ? 0 : fsd_object_sync_sum(job->object);
}

/* Both files at the same time: the sum file's sync is in a thread, which costs less than it gains.
 */
static int sync_files(struct fsd_object *object)
{
	struct sum_job job = {.object = object};
	struct gx_thread thread;
	bool threaded =
		gx_env_thread_start(object->env, &thread, "fsd-sync", sum_job_run, &job) == 0;
	int r = FSD_BROKEN(FSD_STEP_SYNC_DATA) ? 0 : gx_env_fdatasync(object->env, object->data_fd);

	if (threaded)
		gx_env_thread_join(object->env, &thread);
	else
		sum_job_run(&job);
	return r < 0 ? r : job.r;
}

/* Once both files are on disk, so are their names, and the sum file gets its own. */
static int sync_names(struct fsd_object *object)
{
	char from[PATH_MAX];
	char to[PATH_MAX];
	int r = 0;

	gx_env_mutex_lock(object->env, &object->names);
	if (object->young && !object->removed) {
		r = fsd_spool_object_path(object->spool, &object->id, FSD_SUFFIX_NEW, from);
		if (r == 0)
			r = fsd_spool_object_path(object->spool, &object->id, FSD_SUFFIX_SUM, to);
		if (r == 0)
			r = gx_env_rename(object->env, from, to);
		if (r == 0)
			object->young = false;
	}
	if (r == 0 && !object->removed && !FSD_BROKEN(FSD_STEP_SYNC_NAME))
		r = fsd_spool_sync_dirs(object->spool, object->id.ino);
	if (r == 0) {
		object->named = true;
		fsd_object_lock(object);
		object->header_generation = object->id.generation;
		fsd_object_unlock(object);
	}
	gx_env_mutex_unlock(object->env, &object->names);
	return r;
}

/* Under the lock. */
static void begin_sync(struct fsd_object *object)
{
	struct fsd_region *region;
	struct fsd_region *tmp;

	HASH_ITER (hh, object->regions, region, tmp) {
		if (!region->dirty || region->writer)
			continue;
		region->dirty = false;
		region->syncing = true;
	}
	object->snapshot_bytes = GX_MIN(object->size_bytes, object->limit_bytes);
	object->resize_syncing = object->resized;
	object->resized = false;
	object->sync_running = true;
	object->syncs_begun++;
}

/* Under the lock. After a failure nothing of this is asked any more: it is sick. */
static void end_sync(struct fsd_object *object, int err)
{
	struct fsd_region *region;
	struct fsd_region *tmp;

	if (err == 0) {
		HASH_ITER (hh, object->regions, region, tmp) {
			region->syncing = false;
			fsd_region_put(object, region);
		}
		object->synced_bytes = object->snapshot_bytes;
		object->resize_syncing = false;
	} else if (object->sick == 0) {
		object->sick = err;
	}
	object->sync_running = false;
	object->syncs_done++;
	gx_env_cond_broadcast(object->env, &object->changed);
}

/* Under the lock. */
static bool stable(struct fsd_object *object)
{
	struct fsd_region *region;
	struct fsd_region *tmp;

	if (object->resized || object->resize_syncing || !object->named)
		return false;
	HASH_ITER (hh, object->regions, region, tmp) {
		if (region->dirty || region->syncing || region->writer)
			return false;
	}
	return true;
}

bool fsd_object_stable(struct fsd_object *object)
{
	bool yes;

	fsd_object_lock(object);
	yes = object->sick == 0 && stable(object);
	fsd_object_unlock(object);
	return yes;
}

int fsd_object_sync(struct fsd_object *object)
{
	uint64_t wanted;
	int r;

	fsd_object_lock(object);
	/* One that runs may have begun before the last write; the next one has not. */
	wanted = object->syncs_begun + 1;
	while (object->sick == 0 && object->syncs_done < wanted && !stable(object)) {
		if (object->sync_running) {
			/* Woken or not, the loop asks again. */
			GX_IGNORE(gx_env_cond_wait(object->env, &object->changed, &object->lock,
						   GX_FOREVER));
			continue;
		}
		begin_sync(object);
		fsd_object_unlock(object);
		if (FSD_BROKEN(FSD_STEP_SETTLE_LATE))
			fsd_object_settle(object);
		r = sync_files(object);
		if (r == 0 && !object->named)
			r = sync_names(object);
		fsd_object_lock(object);
		end_sync(object, r);
	}
	r = object->sick;
	fsd_object_unlock(object);
	return r;
}

/* -- settle ---------------------------------------------------------------------- */

static bool is_on_disk(const struct fsd_region *region)
{
	if (FSD_BROKEN(FSD_STEP_SETTLE_LATE))
		return true;
	return !region->dirty && !region->syncing && !region->writer;
}

void fsd_object_settle(struct fsd_object *object)
{
	struct fsd_region *region;
	struct fsd_region *tmp;
	uint64_t limit;
	int r = 0;

	fsd_object_lock(object);
	if (object->sick != 0 || !object->named) {
		fsd_object_unlock(object);
		return;
	}
	limit = FSD_BROKEN(FSD_STEP_SETTLE_LATE) ? object->size_bytes : object->synced_bytes;
	HASH_ITER (hh, object->regions, region, tmp) {
		if (!is_on_disk(region)) {
			limit = GX_MIN(limit, region->number * FSD_REGION_BYTES);
			continue;
		}
		if (region->marked && r == 0)
			r = fsd_sum_mark(object->env, object->sum_fd, region->number, false);
		region->marked = region->marked && r < 0;
		fsd_region_put(object, region);
	}
	if (r == 0 && limit > object->settled_bytes) {
		object->settled_bytes = limit;
		r = fsd_object_put_header(object);
	}
	fsd_object_unlock(object);
	/* Which of the two the disk has is not known now. */
	if (r < 0)
		GX_IGNORE(fsd_object_fall_sick(object, r));
}

int fsd_object_sync_settled(struct fsd_object *object)
{
	int r = fsd_object_sync(object);

	if (r < 0)
		return r;
	fsd_object_settle(object);
	/* Also if nothing had to be settled: an earlier life may have done it just before its end.
	 */
	r = fsd_object_sick(object);
	return r < 0 ? r : fsd_object_sync_sum(object);
}

/* -- names ----------------------------------------------------------------------- */

static int rename_one(struct fsd_object *object, const struct fsd_object_id *from,
		      const struct fsd_object_id *to, const char *suffix)
{
	char from_path[PATH_MAX];
	char to_path[PATH_MAX];
	int r = fsd_spool_object_path(object->spool, from, suffix, from_path);

	if (r == 0)
		r = fsd_spool_object_path(object->spool, to, suffix, to_path);
	return r < 0 ? r : gx_env_rename(object->env, from_path, to_path);
}

/* The data file decides; a sum file left behind is found by fsd_object_recover(). */
static int rename_both(struct fsd_object *object, const struct fsd_object_id *to)
{
	int r = rename_one(object, &object->id, to, "");

	if (r < 0)
		return r;
	r = rename_one(object, &object->id, to, object->young ? FSD_SUFFIX_NEW : FSD_SUFFIX_SUM);
	if (r == 0)
		return 0;
	if (rename_one(object, to, &object->id, "") < 0)
		return fsd_object_fall_sick(object, r);
	return r;
}

/* Takes the new id in the table; -EEXIST. Others see the object there before its files are. */
static int claim_id(struct fsd_object *object, const struct fsd_object_id *id)
{
	struct fsd_spool *spool = object->spool;
	bool gx_hash_failed = false;
	struct fsd_object *other;

	lock_table(spool);
	HASH_FIND(hh, spool->objects, id, sizeof(*id), other);
	if (other == NULL && !object->removed) {
		UT_hash_table *table = object->hh.tbl;
		unsigned noexpand = table->noexpand;

		HASH_DEL(spool->objects, object);
		object->id.generation = id->generation;
		/* The anchor has kept the table; without growing it needs no memory. */
		table->noexpand = 1;
		HASH_ADD(hh, spool->objects, id, sizeof(object->id), object);
		table->noexpand = noexpand;
	}
	unlock_table(spool);
	gx_assert(!gx_hash_failed);
	return other != NULL ? -EEXIST : object->removed ? -ENOENT : 0;
}

static int advance(struct fsd_object *object, const struct fsd_object_id *to)
{
	char path[PATH_MAX];
	struct stat st;
	int r = fsd_spool_object_path(object->spool, to, "", path);

	if (r == 0)
		r = gx_env_stat(object->env, path, &st);
	if (r != -ENOENT)
		return r < 0 ? r : -EEXIST;
	/* A leftover of a removal must not be in the way, and not be found later. */
	r = unlink_sums(object->spool, to);
	if (r == 0)
		r = rename_both(object, to);
	if (r == 0)
		r = claim_id(object, to);
	if (r == 0 && !FSD_BROKEN(FSD_STEP_ADVANCE_SYNC))
		r = fsd_spool_sync_dirs(object->spool, to->ino);
	if (r < 0)
		return fsd_object_fall_sick(object, r);
	fsd_object_lock(object);
	object->header_generation = to->generation;
	r = fsd_object_put_header(object);
	fsd_object_unlock(object);
	return r < 0 ? fsd_object_fall_sick(object, r) : 0;
}

int fsd_object_advance(struct fsd_object *object, uint64_t generation)
{
	struct fsd_object_id to;
	int r = fsd_object_sick(object);

	if (r < 0)
		return r;
	gx_env_mutex_lock(object->env, &object->names);
	to = (struct fsd_object_id){.ino = object->id.ino, .generation = generation};
	if (object->removed)
		r = -ENOENT;
	else if (generation <= object->id.generation)
		r = -EINVAL;
	else
		r = advance(object, &to);
	gx_env_mutex_unlock(object->env, &object->names);
	return r;
}

/* The data file first, see make_files(). */
static int unlink_files(struct fsd_spool *spool, const struct fsd_object_id *id)
{
	int r = unlink_one(spool, id, "");

	return r < 0 ? r : unlink_sums(spool, id);
}

static int remove_open(struct fsd_object *object, const struct fsd_object_id *id)
{
	struct fsd_spool *spool = object->spool;
	int r;

	gx_env_mutex_lock(object->env, &object->names);
	/* It may have advanced meanwhile. */
	if (object->removed || object->id.generation != id->generation)
		r = -ENOENT;
	else
		r = unlink_files(spool, id);
	lock_table(spool);
	if (r == 0) {
		HASH_DEL(spool->objects, object);
		object->removed = true;
	}
	unlock_table(spool);
	gx_env_mutex_unlock(object->env, &object->names);
	unref(object);
	return r;
}

int fsd_object_remove(struct fsd_spool *spool, const struct fsd_object_id *id)
{
	struct fsd_object *object;
	int r = acquire(spool, id, &object);

	if (r < 0)
		return r;
	if (!object->opening)
		return remove_open(object, id);
	/* Nobody opens it meanwhile. */
	r = unlink_files(spool, id);
	abandon(object);
	return r;
}
