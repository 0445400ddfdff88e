/*
 * Leases: asking metad for them, telling it what is new, and giving them back when it asks.
 */
#define GX_LOG_COMPONENT "gfs.data"
#include "client/fs/gfd_impl.h"
#include "common/gx_broken.h"
#include "common/gx_log.h"

#define REPORT_MS 50u
#define AVOID_MAX 16u
#define PAUSE_NS (100 * GX_NSEC_PER_MSEC)

/* -- asking ------------------------------------------------------------------------------------ */

void gfd_lose(struct gfd_file *file)
{
	/* While it grows all that is in the object goes with it, on disk or not (rule N10). */
	bool lost = file->unsynced || gfd_holds(file) ||
		    (file->growing && file->clock > 0 && !file->spoiled);

	gx_log(DEBUG, "lease lost", GX_KU("ino", file->ino), GX_KU("unsynced", lost));
	gfd_ops_drop(file);
	gfd_drop_all(file);
	gfd_file_lock(file);
	if (lost)
		gfd_set_error(file, -EIO);
	file->mode = GFC_MODE_NONE;
	file->may_write = false;
	file->is_inline = file->growing;
	file->growing = file->based = file->spoiled = false;
	file->unsynced = file->dropped = file->changed = file->rebooted = false;
	file->on_disk = false;
	file->due_ns = 0;
	gfd_file_unlock(file);
}

static void set_places(struct gfd_file *file, const struct gfc_lease *lease)
{
	bool same = lease->generation == file->generation;
	bool bad[GFC_PLACES_MAX] = {false};

	for (size_t i = 0; i < lease->place_count; i++)
		for (size_t j = 0; same && j < file->place_count; j++)
			if (strcmp(lease->places[i].node, file->places[j].place.node) == 0)
				bad[i] = file->places[j].bad;
	for (size_t i = 0; i < lease->place_count; i++) {
		file->places[i].place = lease->places[i];
		file->places[i].bad = bad[i];
	}
	file->place_count = lease->place_count;
}

/* Under the lock. */
static void apply(struct gfd_file *file, const struct gfc_lease *lease, bool write)
{
	bool same = lease->generation == file->generation && lease->mode != GFC_MODE_NONE;
	bool stays_shared = same && file->mode == GFC_MODE_SHARED;

	if (lease->mode != GFC_MODE_EXCLUSIVE || file->mode != GFC_MODE_EXCLUSIVE || !same)
		file->size = lease->attr.size;
	if (!same) {
		file->spoiled = file->on_disk = false;
		file->clock = file->reported_clock = 0;
		file->boot = 0;
		file->based = false;
		file->next_offset = 0;
	}
	file->no_descriptor = false;
	set_places(file, lease);
	file->generation = lease->generation;
	/* From shared back to exclusive our idea of the size would be old; shared is always right.
	 */
	file->mode = stays_shared || (file->recalled && lease->mode != GFC_MODE_NONE)
			     ? GFC_MODE_SHARED
			     : lease->mode;
	file->may_write = write && lease->mode != GFC_MODE_NONE;
	file->growing = file->may_write && lease->growing;
	file->is_inline = lease->mode == GFC_MODE_NONE;
	file->report_ms = lease->report_ms > 0 ? lease->report_ms : REPORT_MS;
}

static int ask_once(struct gfd_file *file, struct gfc_open *open, bool write,
		    struct gfc_lease *ret_lease)
{
	struct gfd *gfd = file->gfd;
	const char *avoid[AVOID_MAX];
	/* A place that has bytes of ours is not to be changed for another. */
	bool stays = file->may_write && (file->clock > 0 || gfd_holds(file));
	struct gfc_wish wish = {
		.write = write,
		.host = gfd->host,
		.avoid = avoid,
		.avoid_count = stays ? 0 : gfd_suspects(gfd, avoid, AVOID_MAX),
		.unreached = file->may_write && file->growing && !stays ? file->generation : 0,
	};
	bool asked;
	int r;

	gfd_file_lock(file);
	file->distrust = false;
	file->recalled = file->quick = false;
	file->asking = true;
	asked = file->asked != 0;
	gfd_file_unlock(file);
	if (asked)
		gfd_activate(file);
	r = gfc_lease(gfd->gfc, open, &wish, ret_lease);
	gfd_file_lock(file);
	file->asking = false;
	while (file->quick_busy)
		GX_IGNORE(gx_env_cond_wait(gfd->env, &file->cond, &file->lock, GX_FOREVER));
	gfd_file_unlock(file);
	return r;
}

/* Waits for a node. */
static int ask(struct gfd_file *file, struct gfc_open *open, bool write, int64_t deadline_ns)
{
	GX_AUTOFREE struct gfc_lease *lease = calloc(1, sizeof(*lease));
	struct gfd *gfd = file->gfd;
	bool lost;
	int r;

	if (!lease)
		return gfc_fail(-ENOMEM, "out of memory");
	r = gfd_thread_start(gfd);
	if (r < 0)
		return r;
	for (;;) {
		r = ask_once(file, open, write, lease);
		if (r != -EHOSTUNREACH || gx_env_now_ns(gfd->env) + PAUSE_NS >= deadline_ns)
			break;
		gx_env_sleep_until(gfd->env, gx_env_now_ns(gfd->env) + PAUSE_NS);
	}
	if (r < 0) {
		if (r == -ESTALE || r == -EBADF)
			gfd_lose(file);
		return r;
	}
	gx_log(DEBUG, "lease", GX_KU("ino", file->ino), GX_KU("mode", lease->mode),
	       GX_KU("write", write), GX_KU("generation", lease->generation),
	       GX_KU("before", file->generation));
	lost = file->may_write &&
	       (lease->mode == GFC_MODE_NONE || !write || lease->generation != file->generation);
	if (lost)
		gfd_lose(file);
	else if (lease->generation != file->generation || lease->mode == GFC_MODE_NONE)
		gfd_drop_all(file);
	gfd_file_lock(file);
	apply(file, lease, write);
	gfd_file_unlock(file);
	if (file->mode == GFC_MODE_SHARED) {
		gfd_drop_all(file);
		gfd_keep_none(file);
	}
	return lost && file->error < 0 ? file->error : 0;
}

bool gfd_has_lease(struct gfd_file *file, bool *ret_cached)
{
	bool trusted = gfc_trusted(file->gfd->gfc), good;

	gfd_file_lock(file);
	trusted = trusted && !file->distrust;
	*ret_cached = trusted && file->mode != GFC_MODE_SHARED;
	good = file->mode != GFC_MODE_NONE && (!file->growing || (file->based && !file->spoiled)) &&
	       /* Who only reads must be told when writing begins anew, at another node perhaps. */
	       (trusted || (file->mode == GFC_MODE_SHARED && file->may_write && !file->distrust));
	gfd_file_unlock(file);
	return good;
}

/* One try. -EFBIG: the lease was lost before the growing file had its first bytes. */
static int need_lease(struct gfd_file *file, struct gfc_open *open, bool write, int64_t deadline_ns,
		      bool *ret_cached)
{
	int r = 0;

	if (write ? !file->may_write : !gfd_has_lease(file, ret_cached)) {
		struct gfc_open *by = write || !file->may_write ? open : gfd_some_open(file, true);

		r = ask(file, by ? by : open, write || file->may_write, deadline_ns);
		if (file->error < 0) {
			r = gfd_take_error(file);
			/* Who reads tries again if a node is away, but that is told only once. */
			if (!write && gfd_is_unreachable(r))
				r = -EIO;
		}
		if (r == 0 && !gfd_has_lease(file, ret_cached))
			*ret_cached = false; /* true when it was answered: good for one use */
	}
	if (r == 0 && file->growing && !file->based)
		r = gfd_put_base(file, open);
	return r;
}

int gfd_need_lease(struct gfd_file *file, struct gfc_open *open, bool write, int64_t deadline_ns,
		   bool *ret_cached)
{
	bool cached = false;
	int r = 0;

	/* The content is metad's again; what was written since has been told as an error. */
	if (file->spoiled)
		r = gfd_report(file, gfd_some_open(file, true), GFC_MODE_READ, false);
	if (r < 0)
		return r;
	r = need_lease(file, open, write, deadline_ns, &cached);
	if (r == -EFBIG) {
		gfd_lose(file);
		r = need_lease(file, open, write, deadline_ns, &cached);
	}
	if (ret_cached)
		*ret_cached = cached;
	return r;
}

int gfd_lease_again(struct gfd_file *file, struct gfc_open *open)
{
	bool wrote = file->may_write;
	struct gfc_open *by = wrote ? gfd_some_open(file, true) : open;

	return ask(file, by ? by : open, wrote, gfd_deadline(file->gfd));
}

/* -- telling ----------------------------------------------------------------------------------- */

/* Inline content may have been synced by whoever wrote it: then the object must be, too (N10). */
static int before_grown(struct gfd_file *file, bool *synced)
{
	int r;

	if (*synced || file->fresh || GX_BROKEN(110))
		return 0;
	r = gfd_sync_object(file);
	*synced = r == 0;
	return r;
}

static void reported(struct gfd_file *file, const struct gfc_report *report)
{
	bool drop = false;

	gfd_file_lock(file);
	if (report->grown)
		file->growing = false;
	file->reported_clock = report->clock;
	file->changed = false;
	file->due_ns = 0;
	if (report->mode == GFC_MODE_SHARED && !file->growing) {
		file->mode = GFC_MODE_SHARED;
		file->distrust = true;
		drop = true;
	} else if (report->mode != 0) {
		/* Given back; who grows cannot share. */
		file->is_inline = file->growing;
		file->mode = GFC_MODE_NONE;
		file->may_write = file->growing = file->based = file->spoiled = false;
		file->unsynced = file->dropped = file->on_disk = false;
	}
	gfd_file_unlock(file);
	if (!drop)
		return;
	gfd_drop_all(file);
	gfd_keep_none(file);
}

int gfd_report(struct gfd_file *file, struct gfc_open *open, unsigned mode, bool synced)
{
	struct gfc_report report = {.mode = mode};
	struct gfc_attr attr;
	int r = 0;

	if (!open || file->mode == GFC_MODE_NONE)
		return 0;
	if (file->spoiled) {
		report.mode = GFC_MODE_READ;
		gfd_ops_drop(file);
	}
	report.grown = file->growing && file->clock > 0 && !file->spoiled;
	if (report.grown)
		r = before_grown(file, &synced);
	if (r < 0)
		return r;
	if (file->mode == GFC_MODE_NONE) /* lost meanwhile */
		return 0;
	report.generation = file->generation;
	report.has_size = file->may_write && file->clock > 0;
	report.size = file->object_size;
	report.clock = file->clock;
	report.changed = file->changed;
	report.synced = report.grown && synced;
	report.asked = file->told;
	r = gfc_report(file->gfd->gfc, open, &report, &attr);
	gx_log(DEBUG, "report", GX_KU("ino", file->ino), GX_KU("mode", report.mode),
	       GX_KU("generation", report.generation), GX_KU("size", report.size), GX_KE(r));
	if (r == 0) {
		reported(file, &report);
	} else if (r == -ESTALE || r == -EBADF) {
		gfd_lose(file);
		r = file->error;
	}
	return r;
}

/* -- the background thread --------------------------------------------------------------------- */

/* Alone. */
static void obey(struct gfd_file *file, unsigned asked, uint64_t ask)
{
	struct gfc_open *open = gfd_some_open(file, file->may_write);
	bool idle = !file->touched;

	if (!open || file->mode == GFC_MODE_NONE)
		return;
	file->touched = false;
	if (file->may_write && ((asked & ~GFD_ASKED_DUE) || idle) &&
	    !(GX_BROKEN(304) && (asked & GFD_ASKED_RECALL)))
		GX_IGNORE(gfd_send_all(file)); /* who closes or syncs is told */
	if (asked & ~GFD_ASKED_DUE)
		file->told = ask;
	if ((asked & (GFD_ASKED_RECALL | GFD_ASKED_SIZE)) || (file->changed && !GX_BROKEN(112))) {
		int r = gfd_report(file, open, asked & GFD_ASKED_RECALL ? GFC_MODE_SHARED : 0,
				   false);

		/* metad is away: later again. */
		if (r < 0 && r != -ETIMEDOUT && r != -ENOTRECOVERABLE)
			gfd_set_error(file, r);
	}
	gfd_file_lock(file);
	if ((file->dirty || file->changed) && file->due_ns == 0)
		file->due_ns =
			gx_env_now_ns(file->gfd->env) + (int64_t)file->report_ms * GX_NSEC_PER_MSEC;
	gfd_file_unlock(file);
}

/* Not in a section: the thread that is waits for a lease, and metad perhaps for us. */
static void obey_quickly(struct gfd_file *file, uint64_t ask)
{
	struct gfc_report report = {.mode = GFC_MODE_SHARED};
	struct gfc_open *open = gfd_some_open(file, file->may_write);
	struct gfc_attr attr;
	int r;

	report.generation = file->generation;
	report.has_size = file->may_write && file->clock > 0;
	report.size = file->object_size;
	report.clock = file->clock;
	report.changed = file->changed;
	report.asked = ask;
	r = open ? gfc_report(file->gfd->gfc, open, &report, &attr) : -EBADF;
	gfd_file_lock(file);
	file->quick_busy = false;
	if (r == 0) {
		file->asked = 0;
		file->recalled = true;
	}
	gx_env_cond_broadcast(file->gfd->env, &file->cond);
	gfd_file_unlock(file);
}

enum turn { TURN_NONE, TURN_LATER, TURN_ALONE, TURN_QUICK };

/* Under gfd's lock and the file's. */
static enum turn turn_of(struct gfd_file *file, int64_t now, int64_t *next_ns)
{
	if (file->due_ns > 0 && file->due_ns <= now) {
		file->asked |= GFD_ASKED_DUE;
		file->due_ns = 0;
	}
	if (file->asked == 0) {
		if (file->due_ns == 0)
			return TURN_NONE;
		*next_ns = GX_MIN(*next_ns, file->due_ns);
		return TURN_LATER;
	}
	if (!file->alone && file->readers == 0)
		return TURN_ALONE;
	if (file->asking && !file->quick && (file->asked & ~GFD_ASKED_DUE) &&
	    file->mode != GFC_MODE_NONE && !file->growing && !gfd_holds(file))
		return TURN_QUICK;
	return TURN_LATER; /* whoever leaves the section wakes us */
}

/* The next file to do something for, with a reference. Under gfd's lock. */
static struct gfd_file *pick(struct gfd *gfd, enum turn *ret_turn, unsigned *ret_asked,
			     uint64_t *ret_ask, int64_t *next_ns)
{
	int64_t now = gx_env_now_ns(gfd->env);
	struct gfd_file *file, *next;

	*next_ns = GX_FOREVER;
	DL_FOREACH_SAFE (gfd->active, file, next) {
		enum turn turn;

		gfd_file_lock(file);
		turn = turn_of(file, now, next_ns);
		*ret_ask = file->ask;
		if (turn == TURN_ALONE) {
			file->alone = true;
			*ret_asked = file->asked;
			file->asked = 0;
		} else if (turn == TURN_QUICK) {
			file->quick = file->quick_busy = true;
		}
		gfd_file_unlock(file);
		if (turn == TURN_NONE) {
			DL_DELETE(gfd->active, file);
			file->is_active = false;
		} else if (turn != TURN_LATER) {
			file->refs++;
			*ret_turn = turn;
			return file;
		}
	}
	return NULL;
}

static void thread_main(void *arg)
{
	struct gfd *gfd = arg;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	while (!gfd->stopping) {
		int64_t next_ns;
		unsigned asked = 0;
		uint64_t ask = 0;
		enum turn turn = TURN_NONE;
		struct gfd_file *file = pick(gfd, &turn, &asked, &ask, &next_ns);

		if (!file) {
			GX_IGNORE(gx_env_cond_wait(gfd->env, &gfd->wake, &gfd->lock, next_ns));
			continue;
		}
		gx_env_mutex_unlock(gfd->env, &gfd->lock);
		if (turn == TURN_ALONE) {
			obey(file, asked, ask);
			gfd_end(file, true);
		} else {
			obey_quickly(file, ask);
		}
		gfd_file_unref(file);
		gx_env_mutex_lock(gfd->env, &gfd->lock);
	}
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
}

int gfd_thread_start(struct gfd *gfd)
{
	int r = 0;

	gx_env_mutex_lock(gfd->env, &gfd->lock);
	if (!gfd->has_thread) {
		r = gx_env_thread_start(gfd->env, &gfd->thread, "gfs-data", thread_main, gfd);
		gfd->has_thread = r == 0;
	}
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	return r < 0 ? gfc_fail(r, "cannot start a thread: %s", gx_strerror(r)) : 0;
}

void gfd_thread_stop(struct gfd *gfd)
{
	if (!gfd->has_thread)
		return;
	gx_env_mutex_lock(gfd->env, &gfd->lock);
	gfd->stopping = true;
	gx_env_cond_broadcast(gfd->env, &gfd->wake);
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
	gx_env_thread_join(gfd->env, &gfd->thread);
	gfd->has_thread = false;
}
