/*
 * What all workers change: locks, a log, a mix of names.
 */
#include "include/gfs.h"
#include "tests/lib/sim_meta_work.h"
#include <stdio.h>

void work_lock_name(unsigned i, char name[8])
{
	snprintf(name, 8, "lock%u", i);
}

void work_mix_name(unsigned i, char name[8])
{
	snprintf(name, 8, "mix%u", i);
}

/* -- locks ------------------------------------------------------------------------------------- */

static void lock_event(struct work_lock *lock)
{
	lock->events++;
}

static void take(struct work_worker *worker, struct gfc *gfc, unsigned i)
{
	struct work_lock *lock = &worker->work->locks[i];
	uint64_t bit = UINT64_C(1) << worker->number;
	struct gfc_attr attr;
	char name[8];
	int r;

	work_lock_name(i, name);
	lock->pending |= bit;
	lock_event(lock);
	r = gfc_make(gfc, worker->work->shared, name, S_IFDIR | 0700, 0, NULL, &attr);
	lock->pending &= ~bit;
	lock_event(lock);
	if (r == -EEXIST)
		return;
	if (r < 0) {
		lock->unknown = true;
		work_failed(worker, "taking a lock", r, -EEXIST);
		return;
	}
	if (lock->holder >= 0 && !lock->releasing && work_lock_known(worker->work, lock))
		work_wrong(worker->work, "workers %d and %u have made lock %u", lock->holder,
			   worker->number, i);
	lock->holder = (int)worker->number;
	lock->last = worker->number;
	lock->releasing = false;
	lock->ino = attr.ref.ino;
}

static void release(struct work_worker *worker, struct gfc *gfc, unsigned i)
{
	struct work_lock *lock = &worker->work->locks[i];
	uint64_t bit = UINT64_C(1) << worker->number;
	char name[8];
	int r;

	work_lock_name(i, name);
	lock->pending |= bit;
	lock->releasing = true;
	lock_event(lock);
	r = gfc_unlink(gfc, worker->work->shared, name, true);
	lock->pending &= ~bit;
	lock_event(lock);
	if (r < 0) {
		lock->unknown = true;
		work_failed(worker, "releasing a lock", r, 0);
		return;
	}
	/* Somebody else may have it by now. */
	if (lock->holder == (int)worker->number) {
		lock->holder = -1;
		lock->last = worker->number;
		lock->releasing = false;
	}
}

bool work_lock_known(const struct work *work, const struct work_lock *lock)
{
	return !lock->unknown && !work_weak(&work->workers[lock->last]);
}

/* Nothing happens to it meanwhile: then it is known whether it is there. */
static void look_at_lock(struct work_worker *worker, struct gfc *gfc, unsigned i)
{
	const struct work_lock *lock = &worker->work->locks[i];
	bool quiet = lock->pending == 0;
	uint64_t events = lock->events;
	struct gfc_attr attr;
	char name[8];
	int r;

	work_lock_name(i, name);
	r = gfc_lookup(gfc, worker->work->shared, name, &attr);
	if (r < 0 && r != -ENOENT) {
		work_failed(worker, "looking at a lock", r, 0);
		return;
	}
	if (!quiet || lock->events != events || !work_lock_known(worker->work, lock))
		return;
	if ((lock->holder >= 0) != (r == 0) || (r == 0 && attr.ref.ino != lock->ino))
		work_wrong(worker->work, "worker %u: lock %u held by %d looks %s", worker->number,
			   i, lock->holder, r == 0 ? "made" : "free");
}

void work_step_lock(struct work_worker *worker, struct gfc *gfc)
{
	unsigned i = (unsigned)work_random(worker->work, WORK_LOCKS);
	struct work_lock *lock = &worker->work->locks[i];

	if (lock->unknown || work_random(worker->work, 3) == 0)
		look_at_lock(worker, gfc, i);
	else if (lock->holder == (int)worker->number)
		release(worker, gfc, i);
	else
		take(worker, gfc, i);
}

/* -- log ------------------------------------------------------------------------------------------
 */

void work_step_append(struct work_worker *worker, struct gfc *gfc)
{
	struct gfc_write write = {.bytes = 8, .append = true, .close = true};
	struct work_append *append;
	struct gfc_open *open;
	struct gfc_attr attr;
	int r;

	if (worker->append_count == WORK_APPENDS)
		return;
	r = gfc_open(gfc, worker->work->log, NULL, GFC_OPEN_WRITE, 0, &attr, &open);
	if (r < 0) {
		work_failed(worker, "opening the log", r, 0);
		return;
	}
	append = &worker->appends[worker->append_count++];
	append->token = (uint64_t)(worker->number + 1) << 32 | worker->append_count;
	write.data = &append->token;
	r = gfc_write(gfc, open, &write, &append->offset, &attr);
	if (r < 0)
		work_failed(worker, "appending to the log", r, 0);
	append->acked = r == 0;
	sim_meta_say(&worker->work->meta, "worker %u appends %llx at %llu: %d", worker->number,
		     (unsigned long long)append->token, (unsigned long long)append->offset, r);
}

/* -- mix ----------------------------------------------------------------------------------------
 */

/* These tell that somebody else was there first, or still is. */
static bool mix_ok(int r)
{
	switch (r) {
	case 0:
	case -ENOENT:
	case -ESTALE:
	case -EEXIST:
	case -EISDIR:
	case -ENOTDIR:
	case -EPERM:
	case -EMLINK:
		return true;
	default:
		return false;
	}
}

static int mix_write(struct gfc *gfc, struct gfc_ref dir, const char *name)
{
	struct gfc_write write = {.data = "12345678", .bytes = 8, .append = true, .close = true};
	struct gfc_open *open;
	struct gfc_attr attr;
	int r;

	r = gfc_open(gfc, dir, name, GFC_OPEN_CREATE | GFC_OPEN_WRITE, 0644, &attr, &open);
	/* After a while somebody begins anew. */
	write.truncate = r == 0 && attr.size > 256;
	return r < 0 ? r : gfc_write(gfc, open, &write, NULL, NULL);
}

static int mix_link(struct gfc *gfc, struct gfc_ref dir, const char *from, const char *to)
{
	struct gfc_attr attr;
	int r = gfc_lookup(gfc, dir, from, &attr);

	return r < 0 ? r : gfc_link(gfc, attr.ref, dir, to, &attr);
}

void work_step_mix(struct work_worker *worker, struct gfc *gfc)
{
	static const unsigned kinds[] = {0, GFS_RENAME_EXCHANGE, GFS_RENAME_NOREPLACE};
	struct work *work = worker->work;
	struct gfc_ref dir = work->shared;
	struct gfc_attr attr;
	char name[8], other[8];
	int r;

	work_mix_name((unsigned)work_random(work, WORK_MIX), name);
	work_mix_name((unsigned)work_random(work, WORK_MIX), other);
	switch (work_random(work, 7)) {
	case 0:
	case 1:
		r = mix_write(gfc, dir, name);
		break;
	case 2:
		r = gfc_make(gfc, dir, name, S_IFDIR | 0755, 0, NULL, &attr);
		break;
	case 3:
		r = gfc_unlink(gfc, dir, name, work_random(work, 2) == 0);
		break;
	case 4:
		r = mix_link(gfc, dir, name, other);
		break;
	case 5:
		r = gfc_lookup(gfc, dir, name, &attr);
		break;
	default:
		r = gfc_rename(gfc, dir, name, dir, other,
			       kinds[work_random(work, GX_COUNT_OF(kinds))]);
		break;
	}
	if (!mix_ok(r))
		work_failed(worker, "mixing", r, 0);
}
