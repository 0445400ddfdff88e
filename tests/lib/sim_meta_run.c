/*
 * One run: make the grid, let clients work in bad weather, look at what is left.
 */
#include "include/gfs.h"
#include "tests/lib/sim_meta_work.h"
#include <stdio.h>

#define TIMEOUT_NS (200 * GX_NSEC_PER_SEC)
/* Together shorter than the recovery window, so that every living client reports in time. */
#define AWAY_MAX_MS 4000u
#define LONG_AWAY_MAX_MS 40000u
#define KEEPALIVE_MS 3000u

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "sim_meta: %s: %s\n", what, gx_strerror(r));
	abort();
}

static void sleep_ms(struct gx_env *env, uint64_t ms)
{
	gx_env_sleep_until(env, gx_env_deadline_ms(env, ms));
}

void work_init(struct work *work, uint64_t seed)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 32;
	memset(work, 0, offsetof(struct work, clients));
	memset(work->clients, 0, sizeof(work->clients));
	memset(work->locks, 0, sizeof(work->locks));
	work->cuts = 0;
	work->counts = (struct work_counts){0};
	work->wrong[0] = '\0';
	sim_meta_init(&work->meta, seed);
	work->client_count = 2 + (unsigned)(x % 3);
	work->worker_count = work->client_count + (unsigned)(x >> 4) % 3;
	work->faults = (unsigned)(x >> 8) & WORK_FAULTS;
	/* Long partitions promise less, so they are rare. */
	if ((x >> 20) % 8 > 0)
		work->faults &= ~(unsigned)WORK_LONG;
	if (work->faults & WORK_LONG)
		work->meta.session_timeout_ns = 15 * GX_NSEC_PER_SEC;
	work->steps = 40;
	work->acts = 5;
	work->act_gap_ns = (int64_t)(20 + (x >> 24) % 200) * GX_NSEC_PER_MSEC;
	work->meta.strict = (x >> 32) % 16 == 0;
	work->meta.leases_max = (x >> 36) % 4 == 0 ? 8 : 1000;
	work->meta.options.short_io_percent = (unsigned)((x >> 40) % 20);
	work->meta.options.latency_max_ns = (int64_t)(1 + (x >> 44) % 8) * GX_NSEC_PER_MSEC / 2;
	if (work->faults & WORK_SLOW_DISK)
		work->meta.options.sync_max_ns = 100 * GX_NSEC_PER_MSEC;
	work->meta.options.partition_reset_ns = GX_NSEC_PER_SEC;
	for (unsigned i = 0; i < work->client_count; i++) {
		work->clients[i].work = work;
		work->clients[i].number = i;
		/* Without, with hardly any, and with a cache that holds all. */
		work->clients[i].cache_bytes =
			(const size_t[]){0, 2048, 1 << 20, 1 << 20}[(x >> (48 + 2 * i)) & 3];
	}
	for (unsigned i = 0; i < work->worker_count; i++) {
		struct work_worker *worker = &work->workers[i];

		memset(worker, 0, offsetof(struct work_worker, model));
		memset(&worker->dirs, 0, sizeof(*worker) - offsetof(struct work_worker, dirs));
		model_init(&worker->model);
		worker->work = work;
		worker->number = i;
		worker->client = i % work->client_count;
	}
	for (unsigned i = 0; i < WORK_LOCKS; i++)
		work->locks[i].holder = -1;
}

/* -- the empty grid ------------------------------------------------------------------------------
 */

static int make_dir(struct gfc *gfc, struct gfc_ref parent, const char *name,
		    struct gfc_ref *ret_ref)
{
	struct gfc_attr attr;
	int r = gfc_make(gfc, parent, name, S_IFDIR | 0777, 0, NULL, &attr);

	if (r == 0)
		*ret_ref = attr.ref;
	return r;
}

static int make_all(struct work *work, struct gfc *gfc)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	char name[16];
	int r;

	r = make_dir(gfc, GFC_ROOT, "shared", &work->shared);
	for (unsigned i = 0; r == 0 && i < work->worker_count; i++) {
		for (unsigned d = 0; r == 0 && d < MODEL_DIRS; d++) {
			snprintf(name, sizeof(name), "w%u-%u", i, d);
			r = make_dir(gfc, GFC_ROOT, name, &work->workers[i].dirs[d]);
		}
	}
	if (r == 0)
		r = gfc_open(gfc, GFC_ROOT, "log", GFC_OPEN_CREATE | GFC_OPEN_WRITE, 0666, &attr,
			     &open);
	if (r < 0)
		return r;
	work->log = attr.ref;
	return gfc_close(gfc, open);
}

static void setup_main(struct gx_env *env, void *arg)
{
	struct work *work = arg;
	struct gfc *gfc;
	int r = sim_meta_connect(&work->meta, env, 0, TIMEOUT_NS, &gfc);
	int left;

	if (r == 0) {
		r = make_all(work, gfc);
		left = gfc_free(gfc);
		r = r < 0 ? r : left;
	}
	if (r < 0)
		work_wrong(work, "the grid cannot be made: %s", gx_strerror(r));
}

/* -- clients ------------------------------------------------------------------------------------
 */

static void worker_main(void *arg)
{
	struct work_worker *worker = arg;
	struct work *work = worker->work;
	struct gfc *gfc = work->clients[worker->client].gfc;
	struct gx_env *env = gfc_env(gfc);

	for (worker->steps = 0; worker->steps < work->steps; worker->steps++) {
		if (worker->lost || work->wrong[0] != '\0')
			break;
		work_step(worker, gfc);
		if (work_random(work, 3) == 0)
			gx_env_sleep_until(env, gx_env_now_ns(env) +
							(int64_t)work_random(work, 40000000));
	}
	work_close_all(worker, gfc);
}

/* All that are still alive have done their work. */
static bool all_done(const struct work *work)
{
	for (unsigned i = 0; i < work->client_count; i++)
		if (!work->clients[i].done && !work->clients[i].dead)
			return false;
	return true;
}

static bool client_lost(const struct work_client *client)
{
	const struct work *work = client->work;

	for (unsigned i = 0; i < work->worker_count; i++)
		if (work->workers[i].client == client->number && work->workers[i].lost)
			return true;
	return false;
}

/* What this client believes about the mix, when nobody changes it any more. */
static void see_mix(struct work_client *client)
{
	struct gfc_attr attr;
	char name[8];

	for (unsigned i = 0; i < WORK_MIX; i++) {
		int r;

		work_mix_name(i, name);
		r = gfc_lookup(client->gfc, client->work->shared, name, &attr);
		if (r < 0 && r != -ENOENT)
			return;
		client->mix[i] = r == 0 ? attr.ref.ino : 0;
	}
	client->has_mix = true;
}

static void count_client(struct work_client *client)
{
	struct work_counts *counts = &client->work->counts;
	struct gfc_stats stats;

	gfc_stats(client->gfc, &stats);
	counts->hits += stats.cache_hits;
	counts->replayed += stats.replayed;
	counts->resumed += stats.resumed;
	counts->forgotten += stats.forgotten;
}

static void work_in_threads(struct work_client *client, struct gx_env *env)
{
	struct work *work = client->work;

	for (unsigned i = 0; i < work->worker_count; i++)
		if (work->workers[i].client == client->number)
			must(gx_env_thread_start(env, &work->workers[i].thread, "worker",
						 worker_main, &work->workers[i]),
			     "thread");
	for (unsigned i = 0; i < work->worker_count; i++)
		if (work->workers[i].client == client->number)
			gx_env_thread_join(env, &work->workers[i].thread);
}

/*
 * Connects. A session that metad loses before its first change was answered is no loss, but what
 * became of that change is unknown: so the first one is of no account.
 */
static int client_begin(struct work_client *client, struct gx_env *env)
{
	struct work *work = client->work;
	struct gfc_ref ref;
	char name[16];
	int r;

	r = sim_meta_connect(&work->meta, env, client->cache_bytes, TIMEOUT_NS, &client->gfc);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "client%u", client->number);
	do {
		r = make_dir(client->gfc, GFC_ROOT, name, &ref);
	} while (r == -ENOTRECOVERABLE);
	return r == -EEXIST ? 0 : r;
}

static void client_main(struct gx_env *env, void *arg)
{
	struct work_client *client = arg;
	struct work *work = client->work;
	bool lost;
	int r;

	r = client_begin(client, env);
	if (r < 0) {
		work_wrong(work, "client %u cannot connect: %s", client->number, gx_strerror(r));
		client->done = true;
		return;
	}
	work_in_threads(client, env);
	client->done = true;
	while (!all_done(work) && work->wrong[0] == '\0')
		sleep_ms(env, 20);
	if (work->wrong[0] == '\0')
		see_mix(client);
	count_client(client);
	lost = client_lost(client);
	work->counts.lost += lost;
	r = gfc_free(client->gfc);
	if (r < 0 && !lost && !(work->faults & WORK_LONG))
		work_wrong(work, "client %u cannot leave: %s", client->number, gx_strerror(r));
	client->left = r == 0 && !lost;
	for (unsigned i = 0; client->left && i < work->worker_count; i++) {
		struct work_worker *worker = &work->workers[i];

		if (worker->client != client->number)
			continue;
		worker->model.synced = worker->model.answered;
		worker->append_synced = worker->append_count;
	}
}

/* -- weather --------------------------------------------------------------------------------------
 */

static void kill_client(struct work_client *client)
{
	struct work *work = client->work;

	if (client->dead || gx_sim_proc_ended(client->proc))
		return;
	client->dead = true;
	for (unsigned i = 0; i < work->worker_count; i++)
		for (unsigned k = 0; k < WORK_LOCKS; k++)
			if (work->workers[i].client == client->number &&
			    (work->locks[k].pending >> i & 1))
				work->locks[k].unknown = true;
	gx_sim_kill(client->proc);
}

static void power_cut(struct work *work)
{
	work->cuts++;
	gx_sim_power_cut(work->meta.metad_host);
}

/*
 * Who waits for an answer of a machine that lost its power hears nothing, even when it is back: a
 * reset comes only for what is sent. TCP's keepalive (gx_env_posix.c) sends; this is what it does.
 */
static void keepalive(struct work *work, struct gx_env *env)
{
	sleep_ms(env, work_random(work, KEEPALIVE_MS));
	for (unsigned i = 0; i < work->client_count; i++)
		gx_sim_reset_links(work->meta.metad_host, work->meta.client_hosts[i]);
}

static unsigned pick_fault(struct work *work)
{
	unsigned bit;

	if ((work->faults & ~(unsigned)(WORK_SLOW_DISK | WORK_LONG)) == 0)
		return 0;
	do {
		bit = 1u << work_random(work, 8);
	} while (!(work->faults & bit));
	return bit;
}

static void act(struct work *work, struct gx_env *env)
{
	struct sim_meta *meta = &work->meta;
	struct work_client *client = &work->clients[work_random(work, work->client_count)];
	struct gx_sim_host *host = meta->client_hosts[client->number];
	bool is_long = (work->faults & WORK_LONG) && work_random(work, 2) == 0;
	uint64_t away_ms = work_random(work, is_long ? LONG_AWAY_MAX_MS : AWAY_MAX_MS);
	struct gx_sim_proc *stopped = NULL;
	unsigned fault = pick_fault(work);

	sim_meta_say(meta, "fault %u, client %u", fault, client->number);
	switch (fault) {
	case WORK_KILLS:
		gx_sim_kill(meta->metad);
		sleep_ms(env, work_random(work, 300));
		return;
	case WORK_CUTS:
		power_cut(work);
		/* Who dies now cannot say again what was lost. */
		if ((work->faults & WORK_CLIENT_KILLS) && work_random(work, 2) == 0)
			kill_client(client);
		sleep_ms(env, work_random(work, 300));
		sim_meta_up(meta);
		keepalive(work, env);
		return;
	case WORK_RESETS:
		gx_sim_reset_links(meta->metad_host, host);
		return;
	case WORK_PARTITIONS:
		gx_sim_partition(meta->metad_host, host, true);
		sleep_ms(env, away_ms / 2);
		if ((work->faults & WORK_KILLS) && work_random(work, 2) == 0) {
			gx_sim_kill(meta->metad);
			sim_meta_up(meta);
		}
		sleep_ms(env, away_ms / 2);
		gx_sim_partition(meta->metad_host, host, false);
		return;
	case WORK_STOPS:
		stopped = work_random(work, 2) == 0 ? meta->metad : client->proc;
		gx_sim_stop(stopped);
		sleep_ms(env, away_ms);
		gx_sim_continue(stopped);
		return;
	case WORK_CLIENT_KILLS:
		kill_client(client);
		return;
	case WORK_CLOCKS:
		gx_sim_clock(work_random(work, 2) == 0 ? meta->metad_host : host,
			     (int64_t)work_random(work, 20 * GX_NSEC_PER_SEC) -
				     10 * GX_NSEC_PER_SEC,
			     (int64_t)work_random(work, 40001) - 20000);
		return;
	case WORK_BAD_DISK:
		sim_meta_break_disk(meta);
		sleep_ms(env, work_random(work, 100));
		/* A sick store only makes it slow; a sick log has ended it, or kept it from
		 * starting. */
		meta->metad_err = 1;
		if (work->faults & WORK_CUTS)
			power_cut(work);
		else
			gx_sim_kill(meta->metad);
		sleep_ms(env, work_random(work, 300));
		sim_meta_up(meta);
		keepalive(work, env);
		return;
	default:
		return;
	}
}

static void weather_main(struct gx_env *env, void *arg)
{
	struct work *work = arg;

	for (unsigned i = 0; i < work->acts && work->wrong[0] == '\0' && !all_done(work); i++) {
		gx_env_sleep_until(env,
				   gx_env_now_ns(env) +
					   (int64_t)work_random(work, (uint64_t)work->act_gap_ns));
		act(work, env);
		if (work->meta.metad_err < 0)
			work_wrong(work, "metad does not start: %s",
				   gx_strerror(work->meta.metad_err));
		sim_meta_up(&work->meta);
	}
}

/* -- afterwards -----------------------------------------------------------------------------------
 */

static int read_tokens(struct gfc *gfc, struct gfc_ref ref, void *buf, size_t bytes,
		       size_t *ret_bytes)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	ssize_t n;
	int r = gfc_open(gfc, ref, NULL, GFC_OPEN_READ, 0, &attr, &open);

	if (r < 0)
		return r;
	n = gfc_read(gfc, open, buf, bytes, 0, NULL);
	r = gfc_close(gfc, open);
	if (n < 0)
		return (int)n;
	*ret_bytes = (size_t)n;
	return r;
}

static int count_entry(void *arg, const struct gfc_dirent *entry GX_UNUSED)
{
	++*(unsigned *)arg;
	return 0;
}

static void audit_worker(struct work_worker *worker, struct gfc *gfc)
{
	struct model_file files[MODEL_DIRS][MODEL_NAMES];
	const struct model *model = &worker->model;
	unsigned lo = work_weak(worker) ? model->synced : model->answered;
	char name[8];
	int r = 0, k;

	memset(files, 0, sizeof(files));
	for (unsigned d = 0; r == 0 && d < MODEL_DIRS; d++) {
		char after[GFS_NAME_MAX + 1] = "";
		unsigned listed = 0, found = 0;

		for (unsigned n = 0; r == 0 && n < MODEL_NAMES; n++) {
			struct model_file *file = &files[d][n];

			work_own_name(n, name);
			r = gfc_lookup(gfc, worker->dirs[d], name, &file->attr);
			file->found = r == 0;
			found += r == 0;
			if (r == 0 && S_ISREG(file->attr.mode))
				r = read_tokens(gfc, file->attr.ref, file->tokens,
						sizeof(file->tokens), &file->bytes);
			r = r == -ENOENT ? 0 : r;
		}
		if (r == 0)
			r = gfc_readdir(gfc, worker->dirs[d], after, false, count_entry, &listed);
		r = r == 1 ? 0 : r;
		if (r == 0 && listed != found)
			work_wrong(worker->work, "worker %u: %u names are listed, %u are there",
				   worker->number, listed, found);
	}
	if (r < 0) {
		work_wrong(worker->work, "audit of worker %u: %s", worker->number, gx_strerror(r));
		return;
	}
	lo = GX_MAX(lo, model->seen);
	k = model_find(model, lo, files);
	if (k < 0)
		work_wrong(worker->work,
			   "worker %u: what is left is state %d; answered %u synced %u seen %u "
			   "begun %u%s",
			   worker->number, model_find(model, 0, files), model->answered,
			   model->synced, model->seen, model->started,
			   work_weak(worker) ? ", weak" : "");
}

/* Whose token is it, and at which place? */
static struct work_append *find_append(struct work *work, uint64_t token)
{
	uint64_t w = token >> 32, n = token & UINT32_MAX;

	if (w < 1 || w > work->worker_count || n < 1 || n > work->workers[w - 1].append_count)
		return NULL;
	return &work->workers[w - 1].appends[n - 1];
}

static void audit_log(struct work *work, struct gfc *gfc)
{
	static uint64_t tokens[WORKERS_MAX * WORK_APPENDS + 1];
	bool here[WORKERS_MAX][WORK_APPENDS] = {{false}};
	size_t bytes = 0;
	int r = read_tokens(gfc, work->log, tokens, sizeof(tokens), &bytes);

	if (r < 0)
		work_wrong(work, "audit of the log: %s", gx_strerror(r));
	for (size_t i = 0; r == 0 && i < bytes / 8; i++) {
		struct work_append *append = find_append(work, tokens[i]);
		bool *mark;

		if (append == NULL) {
			work_wrong(work, "token %zu of the log is nobody's", i);
			return;
		}
		mark = &here[(tokens[i] >> 32) - 1][(tokens[i] & UINT32_MAX) - 1];
		if (*mark)
			work_wrong(work, "token %llx is twice in the log",
				   (unsigned long long)tokens[i]);
		if (append->acked && append->offset != 8 * i && !(work->faults & WORK_LONG))
			work_wrong(work, "token %llx is at %zu, not at %llu",
				   (unsigned long long)tokens[i], 8 * i,
				   (unsigned long long)append->offset);
		*mark = true;
	}
	for (unsigned w = 0; w < work->worker_count; w++) {
		const struct work_worker *worker = &work->workers[w];

		for (unsigned n = 0; n < worker->append_count; n++)
			if (!here[w][n] && worker->appends[n].acked &&
			    (n < worker->append_synced || !work_weak(worker)))
				work_wrong(work, "token %u of worker %u is not in the log", n, w);
	}
}

static void audit_shared(struct work *work, struct gfc *gfc)
{
	struct gfc_attr attr;
	char name[8];

	for (unsigned i = 0; i < WORK_LOCKS; i++) {
		const struct work_lock *lock = &work->locks[i];
		int r;

		work_lock_name(i, name);
		r = gfc_lookup(gfc, work->shared, name, &attr);
		if (work_lock_known(work, lock) && (lock->holder >= 0) != (r == 0))
			work_wrong(work, "lock %u, held by %d, is %s in the end", i, lock->holder,
				   r == 0 ? "made" : "free");
	}
	for (unsigned i = 0; i < WORK_MIX; i++) {
		uint64_t ino;

		work_mix_name(i, name);
		ino = gfc_lookup(gfc, work->shared, name, &attr) == 0 ? attr.ref.ino : 0;
		for (unsigned c = 0; c < work->client_count; c++)
			if (work->clients[c].has_mix && work->clients[c].mix[i] != ino &&
			    !(work->faults & WORK_LONG))
				work_wrong(work, "client %u believes that %s is %llu, it is %llu",
					   c, name, (unsigned long long)work->clients[c].mix[i],
					   (unsigned long long)ino);
	}
}

static void audit_main(struct gx_env *env, void *arg)
{
	struct work *work = arg;
	struct gfc *gfc;
	int r = sim_meta_connect(&work->meta, env, 0, TIMEOUT_NS, &gfc);

	if (r < 0) {
		work_wrong(work, "nobody can connect in the end: %s", gx_strerror(r));
		return;
	}
	for (unsigned i = 0; i < work->worker_count; i++)
		audit_worker(&work->workers[i], gfc);
	audit_log(work, gfc);
	audit_shared(work, gfc);
	r = gfc_free(gfc);
	if (r < 0)
		work_wrong(work, "the last one cannot leave: %s", gx_strerror(r));
	/* Those who died are forgotten, and what they had open with them. */
	gx_env_sleep_until(env, gx_env_now_ns(env) + work->meta.session_timeout_ns +
					2 * GX_NSEC_PER_SEC);
}

static void run_proc(struct work *work, const char *name, void (*fn)(struct gx_env *, void *))
{
	struct gx_sim_proc *proc;
	int r;

	must(gx_sim_spawn(work->meta.other_host, name, fn, work, &proc), "spawn");
	r = gx_sim_run(work->meta.sim, proc);
	if (r < 0)
		work_wrong(work, "%s: %s", name, gx_strerror(r));
}

static void run_clients(struct work *work)
{
	struct gx_sim_proc *weather;
	int r;

	for (unsigned i = 0; i < work->client_count; i++)
		must(gx_sim_spawn(work->meta.client_hosts[i], "client", client_main,
				  &work->clients[i], &work->clients[i].proc),
		     "spawn");
	must(gx_sim_spawn(work->meta.other_host, "weather", weather_main, work, &weather), "spawn");
	for (unsigned i = 0; i < work->client_count; i++) {
		r = gx_sim_run(work->meta.sim, work->clients[i].proc);
		if (r < 0)
			work_wrong(work, "client %u does not end: %s", i, gx_strerror(r));
	}
	r = gx_sim_run(work->meta.sim, weather);
	if (r < 0)
		work_wrong(work, "the weather does not end: %s", gx_strerror(r));
}

static void look_at_state(struct work *work)
{
	struct sim_meta *meta = &work->meta;

	sim_meta_check(meta);
	if (meta->wrong[0] != '\0')
		work_wrong(work, "the state: %s", meta->wrong);
	if (meta->orphans > 0 || meta->sessions > 0)
		work_wrong(work, "%llu orphans and %u sessions stay for ever",
			   (unsigned long long)meta->orphans, meta->sessions);
}

const char *work_run(struct work *work)
{
	struct sim_meta *meta = &work->meta;

	sim_meta_start(meta);
	sim_meta_say(meta, "faults %u clients %u workers %u", work->faults, work->client_count,
		     work->worker_count);
	run_proc(work, "setup", setup_main);
	if (work->wrong[0] == '\0')
		run_clients(work);
	if (work->wrong[0] == '\0') {
		/* Whoever has left has all of it on disk (rule N6). */
		power_cut(work);
		sim_meta_up(meta);
		run_proc(work, "audit", audit_main);
	}
	if (work->wrong[0] == '\0')
		look_at_state(work);
	work->counts.lives = meta->lives;
	work->trace = gx_sim_trace(meta->sim);
	sim_meta_free(meta);
	return work->wrong;
}
