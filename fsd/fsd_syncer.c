/*
 * fsd_syncer.c - brings objects to disk: for who asks (DataSync), and by itself when an object has
 * not been written for a while (rule B3).
 *
 * A few threads sync, each one object at a time; what is asked for an object whose sync is under
 * way waits for the next one, together with all others who ask meanwhile. Another thread sleeps
 * until the oldest change is old enough. It is also the one that empties the quarantine.
 *
 * Locks: the syncer's is innermost, since the table wakes it under its own.
 */
#define GX_LOG_COMPONENT "fsd.syncer"
#include "common/gx_hash.h"
#include "common/gx_log.h"
#include "fsd/fsd_server_impl.h"

#define WORKERS 4u
#define BATCH 32u
#define EXPIRE_MAX_NS (600 * GX_NSEC_PER_SEC) /* how often the quarantine is looked at */
#define EXPIRE_MIN_NS GX_NSEC_PER_SEC

/* Somebody who waits for a sync; call NULL: the background. */
struct waiter {
	struct waiter *next;
	struct rpc_call *call;
	fsd_synced_fn fn;
	struct fsd_ref ref;
};

/* An object that is to be synced, or is being. */
struct job {
	UT_hash_handle hh;       /* by entry */
	struct job *prev, *next; /* the queue */
	struct fsd_entry *entry;
	struct waiter *waiters; /* for the next sync */
	bool is_running;
};

/* An object of an earlier life that the sleeper looks at. */
struct look {
	struct look *next;
	struct fsd_object_id id;
};

struct fsd_syncer {
	struct fsd_server *server;
	struct gx_env *env;
	struct gx_thread workers[WORKERS];
	unsigned worker_count;
	struct gx_thread sleeper;
	bool sleeper_runs;
	struct gx_mutex lock;
	struct gx_cond changed;
	bool lock_ready, changed_ready;

	/* Under the lock. */
	struct job *jobs; /* all */
	struct job *queue;
	bool is_woken; /* the sleeper looks again */
	struct look *looks;
	bool is_stopping;
};

static void lock(struct fsd_syncer *syncer)
{
	gx_env_mutex_lock(syncer->env, &syncer->lock);
}

static void unlock(struct fsd_syncer *syncer)
{
	gx_env_mutex_unlock(syncer->env, &syncer->lock);
}

/* -- syncing ----------------------------------------------------------------------------------- */

static int sync_object(struct fsd_syncer *syncer, const struct fsd_ref *ref, bool settled)
{
	struct fsd_server *server = syncer->server;
	struct fsd_object_id id;
	int sick = fsd_object_sick(ref->object);
	int r = settled ? fsd_object_sync_settled(ref->object) : fsd_object_sync(ref->object);

	if (r == 0 || sick < 0)
		return r;
	fsd_object_get_id(ref->object, &id);
	gx_log(ERR, "an object cannot be synced", GX_KU("ino", id.ino),
	       GX_KU("generation", id.generation), GX_KE(r));
	if (server->options.fatal_fn)
		server->options.fatal_fn(server->options.fatal_arg, r);
	return r;
}

/* The background has synced it: metad may count on this copy. */
static void tell_stable(struct fsd_syncer *syncer, struct fsd_ref *ref)
{
	struct fsd_object_id id;
	uint64_t clock;

	/* First: what changes from now on is not meant, whatever is said of it meanwhile. */
	clock = fsd_table_clock(syncer->server->table, ref);
	if (sync_object(syncer, ref, true) < 0)
		return;
	fsd_object_get_id(ref->object, &id);
	if (fsd_object_stable(ref->object))
		fsd_agent_note(syncer->server->agent, &id, FSD_NOTE_STABLE, clock);
}

static void answer(struct fsd_syncer *syncer, struct waiter *waiter, int err)
{
	struct fsd_ref ref = waiter->ref;

	/* A waiter with a call lives in the call, which is gone afterwards. */
	if (waiter->call) {
		waiter->fn(waiter->call, &ref, err);
		return;
	}
	free(waiter);
	if (err == 0)
		tell_stable(syncer, &ref);
	fsd_table_put(syncer->server->table, &ref);
}

/* Under the lock, which it leaves meanwhile. */
static void run_job(struct fsd_syncer *syncer, struct job *job)
{
	struct waiter *waiters = job->waiters;
	int r;

	DL_DELETE(syncer->queue, job);
	job->waiters = NULL;
	job->is_running = true;
	unlock(syncer);
	r = sync_object(syncer, &waiters->ref, false);
	while (waiters) {
		struct waiter *waiter = waiters;

		waiters = waiter->next;
		answer(syncer, waiter, r);
	}
	lock(syncer);
	job->is_running = false;
	if (job->waiters) {
		DL_APPEND(syncer->queue, job);
	} else {
		HASH_DEL(syncer->jobs, job);
		free(job);
	}
	gx_env_cond_broadcast(syncer->env, &syncer->changed);
}

static void worker_main(void *arg)
{
	struct fsd_syncer *syncer = arg;

	lock(syncer);
	while (!syncer->is_stopping) {
		if (syncer->queue)
			run_job(syncer, syncer->queue);
		else
			GX_IGNORE(gx_env_cond_wait(syncer->env, &syncer->changed, &syncer->lock,
						   GX_FOREVER));
	}
	unlock(syncer);
}

/* -- asking ------------------------------------------------------------------------------------ */

/* Under the lock: that of an object, made if there is none. NULL: no memory. */
static struct job *job_get(struct fsd_syncer *syncer, struct fsd_entry *entry)
{
	bool gx_hash_failed = false;
	struct job *job;

	HASH_FIND_PTR(syncer->jobs, &entry, job);
	if (job)
		return job;
	job = calloc(1, sizeof(*job));
	if (!job)
		return NULL;
	job->entry = entry;
	HASH_ADD_PTR(syncer->jobs, entry, job);
	if (gx_hash_failed) {
		free(job);
		return NULL;
	}
	DL_APPEND(syncer->queue, job);
	gx_env_cond_broadcast(syncer->env, &syncer->changed);
	return job;
}

static int add(struct fsd_syncer *syncer, struct waiter *waiter)
{
	struct job *job;
	int r = 0;

	lock(syncer);
	job = syncer->is_stopping ? NULL : job_get(syncer, waiter->ref.entry);
	if (job)
		LL_PREPEND(job->waiters, waiter);
	else
		r = syncer->is_stopping ? -ESHUTDOWN : -ENOMEM;
	unlock(syncer);
	return r;
}

int fsd_syncer_add(struct fsd_syncer *syncer, struct fsd_ref *ref, struct rpc_call *call,
		   fsd_synced_fn fn)
{
	struct waiter *waiter = rpc_call_alloc(call, sizeof(*waiter));

	if (!waiter)
		return -ENOMEM;
	*waiter = (struct waiter){.call = call, .fn = fn, .ref = *ref};
	return add(syncer, waiter);
}

/* Takes the reference. Without memory it is done here and now. */
static void add_background(struct fsd_syncer *syncer, struct fsd_ref *ref)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));

	if (waiter)
		waiter->ref = *ref;
	if (waiter && add(syncer, waiter) == 0)
		return;
	free(waiter);
	tell_stable(syncer, ref);
	fsd_table_put(syncer->server->table, ref);
}

static void add_dirty(struct fsd_syncer *syncer, int64_t idle_ns)
{
	struct fsd_ref refs[BATCH];
	size_t count;

	do {
		count = fsd_table_dirty(syncer->server->table, idle_ns, refs, GX_COUNT_OF(refs));
		for (size_t i = 0; i < count; i++)
			add_background(syncer, &refs[i]);
	} while (count == GX_COUNT_OF(refs));
}

void fsd_syncer_flush(struct fsd_syncer *syncer)
{
	add_dirty(syncer, 0);
	lock(syncer);
	while (syncer->jobs)
		GX_IGNORE(
			gx_env_cond_wait(syncer->env, &syncer->changed, &syncer->lock, GX_FOREVER));
	unlock(syncer);
}

/* -- the background ---------------------------------------------------------------------------- */

static void wake_sleeper(void *arg)
{
	struct fsd_syncer *syncer = arg;

	lock(syncer);
	syncer->is_woken = true;
	gx_env_cond_broadcast(syncer->env, &syncer->changed);
	unlock(syncer);
}

void fsd_syncer_look(struct fsd_syncer *syncer, const struct fsd_object_id *id)
{
	struct look *look = malloc(sizeof(*look));

	/* Without memory: the next inventory asks again. */
	if (!look)
		return;
	look->id = *id;
	lock(syncer);
	LL_PREPEND(syncer->looks, look);
	syncer->is_woken = true;
	gx_env_cond_broadcast(syncer->env, &syncer->changed);
	unlock(syncer);
}

/* Opening an object that is not stable makes it dirty, and so it is synced like others. */
static void look_at(struct fsd_syncer *syncer, const struct fsd_object_id *id)
{
	struct fsd_table *table = syncer->server->table;
	struct fsd_ref ref;

	if (fsd_table_get_id(table, id, false, &ref) < 0)
		return; /* removed, or damaged: whoever reads it is told */
	if (fsd_object_stable(ref.object))
		tell_stable(syncer, &ref);
	fsd_table_put(table, &ref);
}

static void look_at_all(struct fsd_syncer *syncer)
{
	struct look *look;

	lock(syncer);
	while ((look = syncer->looks) && !syncer->is_stopping) {
		LL_DELETE(syncer->looks, look);
		unlock(syncer);
		look_at(syncer, &look->id);
		free(look);
		lock(syncer);
	}
	unlock(syncer);
}

/* False: it is time to stop. */
static bool sleep_until(struct fsd_syncer *syncer, int64_t deadline_ns)
{
	bool stopping;
	int r = 0;

	lock(syncer);
	while (r == 0 && !syncer->is_stopping && !syncer->is_woken)
		r = gx_env_cond_wait(syncer->env, &syncer->changed, &syncer->lock, deadline_ns);
	syncer->is_woken = false;
	stopping = syncer->is_stopping;
	unlock(syncer);
	return !stopping;
}

static void sleeper_main(void *arg)
{
	struct fsd_syncer *syncer = arg;
	struct fsd_table *table = syncer->server->table;
	int64_t idle_ns = syncer->server->options.sync_after_ns;
	int64_t every_ns = GX_MAX(GX_MIN(syncer->server->options.quarantine_ns / 4, EXPIRE_MAX_NS),
				  EXPIRE_MIN_NS);
	int64_t expire_ns = 0;
	int64_t now;

	do {
		now = gx_env_now_ns(syncer->env);
		if (now >= expire_ns) {
			fsd_table_expire(table);
			expire_ns = now + every_ns;
		}
		look_at_all(syncer);
		add_dirty(syncer, idle_ns);
	} while (sleep_until(syncer, GX_MIN(expire_ns, fsd_table_due(table, idle_ns))));
}

/* -- life -------------------------------------------------------------------------------------- */

static int start_threads(struct fsd_syncer *syncer)
{
	int r = 0;

	while (r == 0 && syncer->worker_count < WORKERS) {
		r = gx_env_thread_start(syncer->env, &syncer->workers[syncer->worker_count],
					"fsd-syncer", worker_main, syncer);
		if (r == 0)
			syncer->worker_count++;
	}
	if (r == 0)
		r = gx_env_thread_start(syncer->env, &syncer->sleeper, "fsd-sleeper", sleeper_main,
					syncer);
	syncer->sleeper_runs = r == 0;
	return r;
}

int fsd_syncer_new(struct fsd_server *server, struct fsd_syncer **ret_syncer)
{
	struct fsd_syncer *syncer = calloc(1, sizeof(*syncer));
	int r;

	if (!syncer)
		return -ENOMEM;
	syncer->server = server;
	syncer->env = server->env;
	r = gx_env_mutex_init(syncer->env, &syncer->lock);
	syncer->lock_ready = r == 0;
	if (r == 0) {
		r = gx_env_cond_init(syncer->env, &syncer->changed);
		syncer->changed_ready = r == 0;
	}
	if (r == 0) {
		fsd_table_set_waker(server->table, wake_sleeper, syncer);
		r = start_threads(syncer);
	}
	if (r < 0) {
		fsd_syncer_free(syncer);
		return r;
	}
	*ret_syncer = syncer;
	return 0;
}

static void stop_threads(struct fsd_syncer *syncer)
{
	fsd_table_set_waker(syncer->server->table, NULL, NULL);
	lock(syncer);
	syncer->is_stopping = true;
	gx_env_cond_broadcast(syncer->env, &syncer->changed);
	unlock(syncer);
	for (unsigned i = 0; i < syncer->worker_count; i++)
		gx_env_thread_join(syncer->env, &syncer->workers[i]);
	if (syncer->sleeper_runs)
		gx_env_thread_join(syncer->env, &syncer->sleeper);
}

void fsd_syncer_free(struct fsd_syncer *syncer)
{
	struct job *job, *tmp;

	if (!syncer)
		return;
	if (syncer->changed_ready)
		stop_threads(syncer);
	HASH_ITER (hh, syncer->jobs, job, tmp) {
		HASH_DEL(syncer->jobs, job);
		while (job->waiters) {
			struct waiter *waiter = job->waiters;

			job->waiters = waiter->next;
			answer(syncer, waiter, -ESHUTDOWN);
		}
		free(job);
	}
	while (syncer->looks) {
		struct look *look = syncer->looks;

		LL_DELETE(syncer->looks, look);
		free(look);
	}
	if (syncer->changed_ready)
		gx_env_cond_fini(syncer->env, &syncer->changed);
	if (syncer->lock_ready)
		gx_env_mutex_fini(syncer->env, &syncer->lock);
	free(syncer);
}
