/*
 * One run: make the grid, let clients work in bad weather, look at what is left.
 */
#include "client/fs/gfs_impl.h"
#include "tests/lib/sim_data_work.h"
#include <stdio.h>

/* How long something is away. A recalled lease has 10 s, and several faults may follow on another.
 */
#define AWAY_MAX_MS 4000u
#define FSD_AWAY_MAX_MS 2500u
#define FSD_AWAY_SUM_MS 6000u
#define LONG_AWAY_MAX_MS 40000u
/* Silence that costs a lease takes longer than that. */
#define HAMPER_MS 1000u
#define KEEPALIVE_MS 3000u
/* A closed file is on disk (rule B3: 5 s). */
#define SETTLE_NS (6 * GX_NSEC_PER_SEC)
#define COPIES_MS (120 * 1000)

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "sim_data: %s: %s\n", what, gx_strerror(r));
	abort();
}

static void sleep_ms(struct gx_env *env, uint64_t ms)
{
	gx_env_sleep_until(env, gx_env_deadline_ms(env, ms));
}

static int64_t now_ns(const struct dwork *work)
{
	return gx_sim_now_ns(work->data.meta.sim);
}

/* -- choosing ---------------------------------------------------------------------------------- */

static void choose_client(struct dwork_client *client, struct dwork *work, unsigned number,
			  uint64_t x)
{
	static const char *const labels[] = {"host1", "host2", "", "elsewhere"};

	*client = (struct dwork_client){.work = work, .number = number};
	client->options = (struct gfd_options)GFD_OPTIONS_INIT;
	client->options.data_timeout_ns = work->data.data_timeout_ns;
	client->options.host = labels[(x + number) % 4];
	client->options.connections = 1 + (unsigned)(x >> 4) % 3;
	client->options.write_behind = (x >> 8) % 4 == 0 ? 1024u * 1024 : 64u * 1024 * 1024;
	client->options.read_ahead = (x >> 12) % 4 == 0 ? 0 : 2u * 1024 * 1024;
	client->options.cache_copies = (x >> 16) % 4 == 0;
	/* Without, with hardly any, and with a cache that holds all. */
	client->cache_bytes = (const size_t[]){0, 2048, 1 << 20, 1 << 20}[(x >> 20) & 3];
}

static void add_file(struct dwork *work, const char *name, int owner, bool log)
{
	unsigned n = work->file_count++;
	struct dwork_file *file = &work->files[n];

	memset(&file->path, 0, sizeof(*file) - offsetof(struct dwork_file, path));
	hist_file_init(&file->hist, n, log, &work->tick);
	file->owner = owner;
	file->log = log;
	file->ncopy = 1 + n % 2;
	snprintf(file->path, sizeof(file->path), "/%s/%s%u", n % 2 ? "two" : "one", name, n);
}

void dwork_init(struct dwork *work, uint64_t seed)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 32;
	sim_data_init(&work->data, seed);
	work->client_count = 2 + (unsigned)(x % 3);
	work->worker_count = work->client_count + (unsigned)(x >> 4) % 3;
	work->faults = (unsigned)(x >> 8) & DWORK_FAULTS & (unsigned)(x >> 30 | x >> 11);
	if ((x >> 22) % 8 > 0)
		work->faults &= ~(unsigned)DWORK_LONG;
	if ((x >> 25) % 4 > 0)
		work->faults &= ~(unsigned)DWORK_FLIPS;
	if (work->faults & DWORK_FLIPS)
		work->faults &= ~(unsigned)(DWORK_FSD_KILLS | DWORK_FSD_CUTS | DWORK_FSD_RESTARTS);
	work->steps = 40;
	work->acts = 5;
	work->act_gap_ns = (int64_t)(20 + (x >> 24) % 200) * GX_NSEC_PER_MSEC;
	work->gentle_end = false;
	/* A block that is not settled on disk is believed after a crash, whatever it is
	 * (STORAGE.md).
	 */
	work->write_back = (x >> 50) % 2 == 0 || (work->faults & DWORK_FLIPS);
	work->data.meta.strict = (x >> 32) % 16 == 0;
	work->data.meta.leases_max = (x >> 36) % 8 == 0 ? 8 : 1000;
	work->data.meta.options.short_io_percent = (unsigned)((x >> 40) % 10);
	work->data.meta.options.latency_max_ns =
		(int64_t)(1 + (x >> 44) % 8) * GX_NSEC_PER_MSEC / 2;
	work->data.meta.options.partition_reset_ns = GX_NSEC_PER_SEC;
	work->tick = work->handles = 0;
	work->meta_cut_ns = 0;
	work->fsd_cut = 0;
	memset(work->fsd_away_ms, 0, sizeof(work->fsd_away_ms));
	work->counts = (struct dwork_counts){0};
	work->wrong[0] = '\0';
	for (unsigned i = 0; i < work->client_count; i++)
		choose_client(&work->clients[i], work, i, x >> (7 * i));
	work->file_count = 0;
	for (unsigned i = 0; i < work->worker_count; i++) {
		work->workers[i] = (struct dwork_worker){
			.work = work, .number = i, .client = i % work->client_count};
		add_file(work, "private", (int)i, false);
	}
	for (unsigned i = 0; i < DWORK_SHARED; i++)
		add_file(work, "shared", -1, false);
	for (unsigned i = 0; i < DWORK_LOGS; i++)
		add_file(work, "log", -1, true);
}

/* What depends on the faults, which the test may have changed. */
static void apply_faults(struct dwork *work)
{
	if (work->faults & DWORK_LONG)
		work->data.meta.session_timeout_ns = 15 * GX_NSEC_PER_SEC;
	if (work->faults & DWORK_SLOW_DISK)
		work->data.meta.options.sync_max_ns = 100 * GX_NSEC_PER_MSEC;
}

/* -- the empty grid ---------------------------------------------------------------------------- */

static int make_all(struct dwork *work, struct gfs *fs)
{
	struct gfs_file *f;
	struct gfs_stat st;
	int r;

	r = gfs_mkdir(fs, "/one", 0777);
	if (r == 0)
		r = gfs_mkdir(fs, "/two", 0777);
	if (r == 0)
		r = gfs_set_copies(fs, "/two", 2);
	for (unsigned i = 0; r == 0 && i < work->file_count; i++) {
		struct dwork_file *file = &work->files[i];

		r = gfs_open(fs, file->path, GFS_O_WRITE | GFS_O_CREATE, 0666, &f);
		if (r == 0)
			r = gfs_fstat(f, &st);
		if (r < 0)
			break;
		file->ino = st.ino;
		r = gfs_close(f);
	}
	return r;
}

static void setup_main(struct gx_env *env, void *arg)
{
	struct dwork *work = arg;
	struct gfd_options options = GFD_OPTIONS_INIT;
	struct gfs *fs;
	int left, r = sim_data_connect(&work->data, env, &options, 0, &fs);

	if (r == 0) {
		r = make_all(work, fs);
		if (r < 0)
			dwork_wrong(work, "setup: %s", gfs_error());
		left = gfs_disconnect(fs);
		r = r < 0 ? r : left;
	}
	if (r < 0)
		dwork_wrong(work, "the grid cannot be made: %s", gx_strerror(r));
}

/* -- clients ----------------------------------------------------------------------------------- */

static void worker_main(void *arg)
{
	struct dwork_worker *worker = arg;
	struct dwork *work = worker->work;
	struct gfs *fs = work->clients[worker->client].fs;

	for (worker->steps = 0; worker->steps < work->steps; worker->steps++) {
		if (worker->lost || work->wrong[0] != '\0')
			break;
		dwork_step(worker, fs);
		if (dwork_random(work, 3) == 0)
			gx_env_sleep_until(fs->env, gx_env_now_ns(fs->env) +
							    (int64_t)dwork_random(work, 40000000));
	}
	dwork_close_all(worker);
}

/* All that are still alive have done their work. */
static bool all_done(const struct dwork *work)
{
	for (unsigned i = 0; i < work->client_count; i++)
		if (!work->clients[i].done && !work->clients[i].dead)
			return false;
	return true;
}

static void count_client(struct dwork_client *client)
{
	struct dwork_counts *counts = &client->work->counts;
	struct gfd_stats stats;

	gfd_stats(client->fs->gfd, &stats);
	counts->resent += stats.resent;
	counts->failovers += stats.failovers;
	counts->verified += stats.verified;
	counts->damaged += stats.damaged;
}

static bool may_have_failed(const struct dwork_client *client)
{
	const struct dwork *work = client->work;

	for (unsigned i = 0; i < work->file_count; i++)
		if (work->files[i].may_fail[client->number])
			return true;
	return work->faults & DWORK_LONG;
}

static void work_in_threads(struct dwork_client *client)
{
	struct dwork *work = client->work;
	struct gx_env *env = client->fs->env;

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
static int client_begin(struct dwork_client *client, struct gx_env *env)
{
	char path[16];
	int r;

	r = sim_data_connect(&client->work->data, env, &client->options, client->cache_bytes,
			     &client->fs);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/client%u", client->number);
	do {
		r = gfs_mkdir(client->fs, path, 0777);
	} while (r == -ENOTRECOVERABLE);
	return r == -EEXIST ? 0 : r;
}

static void client_main(struct gx_env *env, void *arg)
{
	struct dwork_client *client = arg;
	struct dwork *work = client->work;
	int r;

	r = client_begin(client, env);
	if (r < 0) {
		dwork_wrong(work, "client %u cannot connect: %s", client->number, gx_strerror(r));
		client->done = true;
		return;
	}
	work_in_threads(client);
	client->done = true;
	while (!all_done(work) && work->wrong[0] == '\0')
		sleep_ms(env, 20);
	count_client(client);
	r = gfs_disconnect(client->fs);
	if (r < 0 && !may_have_failed(client))
		dwork_wrong(work, "client %u cannot leave: %s", client->number, gx_strerror(r));
	client->left = true;
}

/* -- weather ----------------------------------------------------------------------------------- */

static void kill_client(struct dwork_client *client)
{
	struct dwork *work = client->work;
	/* What metad lost and was not told again yet. */
	bool all = work->meta_cut_ns > 0 && now_ns(work) - work->meta_cut_ns < 20 * GX_NSEC_PER_SEC;

	if (client->dead || gx_sim_proc_ended(client->proc))
		return;
	client->dead = true;
	for (unsigned i = 0; i < work->file_count; i++)
		hist_loose(&work->files[i].hist, client->number, all);
	gx_sim_kill(client->proc);
}

static void meta_cut(struct dwork *work)
{
	work->meta_cut_ns = now_ns(work);
	for (unsigned c = 0; c < work->client_count; c++)
		for (unsigned i = 0; work->clients[c].dead && i < work->file_count; i++)
			hist_loose(&work->files[i].hist, c, true);
	gx_sim_power_cut(work->data.meta.metad_host);
}

static void fsd_cut(struct dwork *work, struct sim_data_fsd *fsd)
{
	work->fsd_cut = ++work->tick;
	for (unsigned i = 0; i < work->file_count; i++) {
		struct dwork_file *file = &work->files[i];
		unsigned clients = hist_power_cut(&file->hist, now_ns(work), SETTLE_NS);

		work->data.cut = work->data.cut || hist_has_loose(&file->hist);
		for (unsigned c = 0; c < work->client_count; c++) {
			if (!(clients >> c & 1))
				continue;
			file->may_fail[c] = true;
			if (work->clients[c].dead)
				hist_loose(&file->hist, c, false);
		}
	}
	sim_data_fsd_cut(fsd);
}

/*
 * Who waits for an answer of a machine that lost its power hears nothing, even when it is back: a
 * reset comes only for what is sent. TCP's keepalive (gx_env_posix.c) sends; this is what it does.
 */
static void keepalive(struct dwork *work, struct gx_env *env, struct gx_sim_host *host)
{
	struct sim_data *data = &work->data;

	sleep_ms(env, dwork_random(work, KEEPALIVE_MS));
	for (unsigned i = 0; i < work->client_count; i++)
		gx_sim_reset_links(host, data->meta.client_hosts[i]);
	for (unsigned i = 0; i < SIM_DATA_FSDS; i++)
		if (host != data->fsds[i].host)
			gx_sim_reset_links(host, data->fsds[i].host);
	if (host != data->meta.metad_host)
		gx_sim_reset_links(host, data->meta.metad_host);
}

/* A node is away for so long: in the end a writer that was recalled has not come through. */
static void fsd_is_away(struct dwork *work, struct sim_data_fsd *fsd, uint64_t ms)
{
	work->fsd_away_ms[fsd->number] += ms;
	if (work->fsd_away_ms[fsd->number] <= FSD_AWAY_SUM_MS)
		return;
	for (unsigned c = 0; c < work->client_count; c++)
		dwork_doubt(&work->clients[c]);
}

static void wait_hampered(struct gx_env *env, struct dwork_client *client, uint64_t ms)
{
	bool hampers = ms >= HAMPER_MS;

	if (hampers)
		dwork_hamper(client);
	sleep_ms(env, ms);
	if (hampers)
		dwork_unhamper(client);
}

static void act_stop(struct dwork *work, struct gx_env *env, struct dwork_client *client,
		     struct sim_data_fsd *fsd, uint64_t away_ms)
{
	struct gx_sim_proc *proc;

	switch (dwork_random(work, 3)) {
	case 0:
		proc = work->data.meta.metad;
		gx_sim_stop(proc);
		sleep_ms(env, away_ms);
		break;
	case 1:
		proc = fsd->proc;
		away_ms = GX_MIN(away_ms, FSD_AWAY_MAX_MS);
		fsd_is_away(work, fsd, away_ms);
		gx_sim_stop(proc);
		sleep_ms(env, away_ms);
		break;
	default:
		proc = client->proc;
		gx_sim_stop(proc);
		wait_hampered(env, client, away_ms);
		break;
	}
	gx_sim_continue(proc);
}

static void act_partition(struct dwork *work, struct gx_env *env, struct dwork_client *client,
			  struct sim_data_fsd *fsd, uint64_t away_ms)
{
	struct gx_sim_host *metad = work->data.meta.metad_host;
	struct gx_sim_host *host = work->data.meta.client_hosts[client->number];
	struct gx_sim_host *other = work->data.fsds[(fsd->number + 1) % SIM_DATA_FSDS].host;
	struct gx_sim_host *a, *b;

	switch (dwork_random(work, 4)) {
	case 0:
		a = metad, b = host;
		gx_sim_partition(a, b, true);
		wait_hampered(env, client, away_ms);
		break;
	case 1:
		a = metad, b = fsd->host;
		gx_sim_partition(a, b, true);
		sleep_ms(env, away_ms);
		break;
	case 2:
		a = host, b = fsd->host;
		away_ms = GX_MIN(away_ms, FSD_AWAY_MAX_MS);
		fsd_is_away(work, fsd, away_ms);
		gx_sim_partition(a, b, true);
		sleep_ms(env, away_ms);
		break;
	default:
		a = fsd->host, b = other;
		gx_sim_partition(a, b, true);
		sleep_ms(env, away_ms);
		break;
	}
	gx_sim_partition(a, b, false);
}

static void act_reset(struct dwork *work, struct dwork_client *client, struct sim_data_fsd *fsd)
{
	struct gx_sim_host *hosts[] = {work->data.meta.metad_host,
				       work->data.meta.client_hosts[client->number], fsd->host};
	unsigned at = (unsigned)dwork_random(work, 3);

	gx_sim_reset_links(hosts[at], hosts[(at + 1) % 3]);
}

static void act_clock(struct dwork *work, struct dwork_client *client, struct sim_data_fsd *fsd)
{
	struct gx_sim_host *hosts[] = {work->data.meta.metad_host,
				       work->data.meta.client_hosts[client->number], fsd->host};

	gx_sim_clock(hosts[dwork_random(work, 3)],
		     (int64_t)dwork_random(work, 20 * GX_NSEC_PER_SEC) - 10 * GX_NSEC_PER_SEC,
		     (int64_t)dwork_random(work, 40001) - 20000);
}

/* -- flipped bits ------------------------------------------------------------------------------ */

struct flip {
	struct dwork *work;
	struct sim_data_fsd *fsd;
	uint64_t ino; /* 0: any */
	bool done, flipped;
};

static void flip_main(struct gx_env *env, void *arg)
{
	struct flip *flip = arg;
	struct dwork *work = flip->work;
	struct sim_data *data = &work->data;
	struct stat st;
	uint64_t ino = 0, bit;
	const char *name;

	sim_data_pick(flip->fsd, env, flip->ino);
	name = strrchr(data->found, '/');
	if (name == NULL || gx_env_stat(env, data->found, &st) < 0 || st.st_size == 0)
		return;
	GX_IGNORE(sscanf(name + 1, "%16llx", (unsigned long long *)&ino));
	bit = 8 * dwork_random(work, (uint64_t)st.st_size) + dwork_random(work, 8);
	for (unsigned i = 0; i < work->file_count; i++) {
		struct dwork_file *file = &work->files[i];

		file->flipped = file->flipped || file->ino == ino;
		/* What is held back may fail, and who reads before he is told sees that. */
		for (unsigned c = 0; file->ino == ino && c < work->client_count; c++)
			hist_doubt(&file->hist, c);
	}
	if (data->flip_count == SIM_DATA_FLIPS_MAX)
		return;
	data->flipped[data->flip_count++] = ino;
	flip->flipped = gx_sim_flip_bit(flip->fsd->host, data->found, bit) == 0;
	sim_meta_say(&data->meta, "%s: bit %llu of %s is flipped", flip->fsd->name,
		     (unsigned long long)bit, data->found);
	work->counts.flips += flip->flipped;
}

static bool flip_some(struct dwork *work, struct gx_env *env, struct sim_data_fsd *fsd,
		      uint64_t ino)
{
	struct flip flip = {.work = work, .fsd = fsd, .ino = ino};
	struct gx_sim_proc *proc;

	must(gx_sim_spawn(fsd->host, "flip", flip_main, &flip, &proc), "spawn");
	while (!gx_sim_proc_ended(proc))
		sleep_ms(env, 1);
	return flip.flipped;
}

/* -- one act ----------------------------------------------------------------------------------- */

static unsigned pick_fault(struct dwork *work)
{
	unsigned bit;

	if ((work->faults & ((1u << DWORK_ACTS) - 1)) == 0)
		return 0;
	do {
		bit = 1u << dwork_random(work, DWORK_ACTS);
	} while (!(work->faults & bit));
	return bit;
}

static void act(struct dwork *work, struct gx_env *env)
{
	struct sim_data *data = &work->data;
	struct dwork_client *client = &work->clients[dwork_random(work, work->client_count)];
	struct sim_data_fsd *fsd = &data->fsds[dwork_random(work, SIM_DATA_FSDS)];
	bool is_long = (work->faults & DWORK_LONG) && dwork_random(work, 2) == 0;
	uint64_t away_ms = dwork_random(work, is_long ? LONG_AWAY_MAX_MS : AWAY_MAX_MS);
	unsigned fault = pick_fault(work);

	sim_meta_say(&data->meta, "FAULT %u, client %u, %s, %llu ms", fault, client->number,
		     fsd->name, (unsigned long long)away_ms);
	switch (fault) {
	case DWORK_META_KILLS:
		gx_sim_kill(data->meta.metad);
		sleep_ms(env, dwork_random(work, 300));
		return;
	case DWORK_META_CUTS:
		meta_cut(work);
		if ((work->faults & DWORK_CLIENT_KILLS) && dwork_random(work, 2) == 0)
			kill_client(client);
		sleep_ms(env, dwork_random(work, 300));
		sim_data_up(data);
		keepalive(work, env, data->meta.metad_host);
		return;
	case DWORK_FSD_KILLS:
		gx_sim_kill(fsd->proc);
		away_ms = dwork_random(work, dwork_random(work, 4) == 0 ? FSD_AWAY_MAX_MS : 300);
		fsd_is_away(work, fsd, away_ms);
		sleep_ms(env, away_ms);
		return;
	case DWORK_FSD_CUTS:
		fsd_cut(work, fsd);
		if ((work->faults & DWORK_CLIENT_KILLS) && dwork_random(work, 3) == 0)
			kill_client(client);
		away_ms = dwork_random(work, 300);
		fsd_is_away(work, fsd, away_ms + KEEPALIVE_MS / 2);
		sleep_ms(env, away_ms);
		sim_data_up(data);
		keepalive(work, env, fsd->host);
		return;
	case DWORK_FSD_RESTARTS:
		fsd->drain = true;
		for (unsigned i = 0; i < 100 && !gx_sim_proc_ended(fsd->proc); i++)
			sleep_ms(env, 100);
		if (!gx_sim_proc_ended(fsd->proc))
			dwork_wrong(work, "%s does not end", fsd->name);
		return;
	case DWORK_CLIENT_KILLS:
		kill_client(client);
		return;
	case DWORK_STOPS:
		act_stop(work, env, client, fsd, away_ms);
		return;
	case DWORK_PARTITIONS:
		act_partition(work, env, client, fsd, away_ms);
		return;
	case DWORK_RESETS:
		act_reset(work, client, fsd);
		return;
	case DWORK_CLOCKS:
		act_clock(work, client, fsd);
		return;
	case DWORK_FULL:
		/* What was held back may fail; who reads it before he is told sees that. */
		for (unsigned c = 0; c < work->client_count; c++)
			dwork_hamper(&work->clients[c]);
		gx_sim_disk_limit(fsd->host, 1 + dwork_random(work, 1024) * 1024);
		sleep_ms(env, away_ms);
		gx_sim_disk_limit(fsd->host, 0);
		for (unsigned c = 0; c < work->client_count; c++)
			dwork_unhamper(&work->clients[c]);
		return;
	case DWORK_FLIPS:
		flip_some(work, env, fsd, 0);
		return;
	default:
		return;
	}
}

static void weather_main(struct gx_env *env, void *arg)
{
	struct dwork *work = arg;
	struct sim_data *data = &work->data;

	for (unsigned i = 0; i < work->acts && work->wrong[0] == '\0' && !all_done(work); i++) {
		gx_env_sleep_until(env,
				   gx_env_now_ns(env) +
					   (int64_t)dwork_random(work, (uint64_t)work->act_gap_ns));
		act(work, env);
		if (data->meta.metad_err < 0)
			dwork_wrong(work, "metad does not start: %s",
				    gx_strerror(data->meta.metad_err));
		for (unsigned n = 0; n < SIM_DATA_FSDS; n++)
			if (data->fsds[n].err < 0 && !(work->faults & DWORK_FULL))
				dwork_wrong(work, "%s does not start: %s", data->fsds[n].name,
					    gx_strerror(data->fsds[n].err));
		sim_data_up(data);
	}
}

/* -- afterwards -------------------------------------------------------------------------------- */

/* Damaged everywhere: nobody can read it, and no copies can be made of it. */
static bool may_be_damaged(const struct dwork_file *file)
{
	return file->flipped || hist_may_be_gone(&file->hist);
}

static void audit_file(struct dwork *work, struct gfs *fs, struct dwork_file *file)
{
	int r = dwork_read_all(work, fs, file, -1);

	if (r < 0 && !(r == -EIO && may_be_damaged(file)))
		dwork_wrong(work, "audit of %s: %s (%s)", file->path, gx_strerror(r), gfs_error());
}

/* All copies that are wanted are there, and nothing else. */
static void audit_copies(struct dwork *work, struct gfs *fs, struct dwork_file *file)
{
	struct gfs_place places[8];
	unsigned wanted = 0, current = 0;
	ssize_t count;
	int r;

	if (may_be_damaged(file))
		return;
	r = gfs_wait_copies(fs, file->path, COPIES_MS);
	count = r < 0 ? r : gfs_where(fs, file->path, places, GX_COUNT_OF(places), &wanted);
	if (count < 0) {
		dwork_wrong(work, "copies of %s: %s (%s)", file->path, gx_strerror((int)count),
			    gfs_error());
		return;
	}
	for (ssize_t i = 0; i < count; i++) {
		current += places[i].current && !places[i].cache && !places[i].damaged;
		sim_meta_say(&work->data.meta, "%s is on %s: generation %llu%s%s%s%s", file->path,
			     places[i].node, (unsigned long long)places[i].generation,
			     places[i].current ? ", current" : "",
			     places[i].stable ? ", stable" : "", places[i].cache ? ", cache" : "",
			     places[i].damaged ? ", damaged" : "");
	}
	if (wanted != file->ncopy || (count > 0 && current != wanted))
		dwork_wrong(work, "%s has %u of %u copies, %u were asked for", file->path, current,
			    wanted, file->ncopy);
}

/* A bit of one of two copies: nobody sees it, and it is replaced. */
static void audit_flip(struct dwork *work, struct gfs *fs, struct gx_env *env)
{
	struct dwork_file *file = &work->files[dwork_random(work, work->file_count)];
	struct sim_data_fsd *fsd = &work->data.fsds[dwork_random(work, SIM_DATA_FSDS)];
	if (file->ncopy < 2 || file->flipped || !dwork_all_there(fs, env, file))
		return;
	if (!flip_some(work, env, fsd, file->ino))
		return;
	file->flipped = false; /* the other one is good */
	for (unsigned i = 0; i < 4; i++)
		audit_file(work, fs, file);
}

static void audit_all(struct dwork *work, struct gfs *fs, bool copies)
{
	for (unsigned i = 0; i < work->file_count && work->wrong[0] == '\0'; i++)
		audit_file(work, fs, &work->files[i]);
	for (unsigned i = 0; copies && i < work->file_count && work->wrong[0] == '\0'; i++)
		audit_copies(work, fs, &work->files[i]);
}

static void audit_main(struct gx_env *env, void *arg)
{
	struct dwork *work = arg;
	struct gfd_options options = GFD_OPTIONS_INIT;
	struct gfs *fs;
	int r;

	options.data_timeout_ns = work->data.data_timeout_ns;
	options.host = work->data.fsds[dwork_random(work, SIM_DATA_FSDS)].label;
	r = sim_data_connect(&work->data, env, &options, 0, &fs);
	if (r < 0) {
		dwork_wrong(work, "nobody can connect in the end: %s", gx_strerror(r));
		return;
	}
	audit_all(work, fs, true);
	if (work->wrong[0] == '\0' && work->write_back) {
		audit_flip(work, fs, env);
		audit_all(work, fs, true);
	}
	r = gfs_disconnect(fs);
	if (r < 0)
		dwork_wrong(work, "the last one cannot leave: %s", gx_strerror(r));
	/* Those who died are forgotten, what they had open with them, and what nobody needs goes.
	 */
	gx_env_sleep_until(env, gx_env_now_ns(env) + work->data.meta.session_timeout_ns +
					15 * GX_NSEC_PER_SEC);
}

/* What is closed comes to disk by itself. */
static void settle_main(struct gx_env *env, void *arg GX_UNUSED)
{
	gx_env_sleep_until(env, gx_env_now_ns(env) + SETTLE_NS + GX_NSEC_PER_SEC);
}

static void run_proc(struct dwork *work, const char *name, void (*fn)(struct gx_env *, void *))
{
	struct gx_sim_proc *proc;
	int r;

	must(gx_sim_spawn(work->data.meta.other_host, name, fn, work, &proc), "spawn");
	r = gx_sim_run(work->data.meta.sim, proc);
	if (r < 0)
		dwork_wrong(work, "%s: %s", name, gx_strerror(r));
}

static void run_clients(struct dwork *work)
{
	struct sim_meta *meta = &work->data.meta;
	struct gx_sim_proc *weather;
	int r;

	for (unsigned i = 0; i < work->client_count; i++)
		must(gx_sim_spawn(meta->client_hosts[i], "client", client_main, &work->clients[i],
				  &work->clients[i].proc),
		     "spawn");
	must(gx_sim_spawn(meta->other_host, "weather", weather_main, work, &weather), "spawn");
	for (unsigned i = 0; i < work->client_count; i++) {
		r = gx_sim_run(meta->sim, work->clients[i].proc);
		if (r < 0)
			dwork_wrong(work, "client %u does not end: %s", i, gx_strerror(r));
	}
	r = gx_sim_run(meta->sim, weather);
	if (r < 0)
		dwork_wrong(work, "the weather does not end: %s", gx_strerror(r));
}

static void cut_all(struct dwork *work)
{
	meta_cut(work);
	for (unsigned i = 0; i < SIM_DATA_FSDS; i++)
		fsd_cut(work, &work->data.fsds[i]);
	sim_data_up(&work->data);
}

static void look_at_disks(struct dwork *work)
{
	sim_data_check(&work->data);
	if (work->data.wrong[0] != '\0')
		dwork_wrong(work, "on disk: %s", work->data.wrong);
}

const char *dwork_run(struct dwork *work)
{
	struct sim_data *data = &work->data;

	apply_faults(work);
	sim_data_start(data);
	sim_meta_say(&data->meta, "faults %u clients %u workers %u", work->faults,
		     work->client_count, work->worker_count);
	run_proc(work, "setup", setup_main);
	if (work->wrong[0] == '\0')
		run_clients(work);
	if (work->wrong[0] == '\0') {
		run_proc(work, "settle", settle_main);
		if (work->write_back)
			sim_data_write_back(data);
		if (!work->gentle_end)
			cut_all(work);
		run_proc(work, "audit", audit_main);
	}
	if (work->wrong[0] == '\0')
		look_at_disks(work);
	if (work->wrong[0] == '\0' && work->counts.damaged > 0 && work->counts.flips == 0)
		dwork_wrong(work, "%llu blocks were damaged, and nobody flipped a bit",
			    (unsigned long long)work->counts.damaged);
	work->counts.lives = data->meta.lives + data->fsds[0].lives + data->fsds[1].lives;
	work->trace = gx_sim_trace(data->meta.sim);
	sim_data_free(data);
	return work->wrong;
}
