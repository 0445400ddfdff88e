/*
 * bench/meta - how fast names are: metad through libgfs, next to a raw TCP ping-pong.
 *
 * It starts a grid of its own and measures one client without a cache, so that every operation is
 * its real number of round trips, on files in "/", so that a path is one name. Each figure runs
 * for many seconds on end, as metad's log, its database and its caches fill; a slow moment
 * anywhere in it counts. The yardstick runs right before and right after it.
 *
 * The client and metad's loop share a CPU, as client and server of the ping-pong do, and for the
 * same reason as in bench/wire; metad's other threads (log, database) run where they like.
 *
 * Speed never fails: the exit status is 0 unless something broke.
 */
#include "bench/lib/grid.h"
#include "bench/lib/measure.h"
#include "common/gx_num.h"
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define OP_SAMPLES_MAX (16u << 20)
#define FILE_BYTES 4096u
#define STAT_FILES 10000u
#define LIST_ENTRIES 1000u
#define RAW_ROUND_NS (500 * GX_NSEC_PER_MSEC)
#define RAW_ROUND_QUICK_NS (50 * GX_NSEC_PER_MSEC)
#define CLIENTS_MAX 8u

#define P99_MAX 20.0    /* times the median */
#define STALL_MAX 250.0 /* ms */
#define RATE_MIN 0.6    /* of one call per median */

struct meta {
	struct bench bench; /* for the ping-pong */
	pid_t raw_pid;
	struct grid grid;
	uint32_t *samples; /* OP_SAMPLES_MAX, nanoseconds */
	int64_t op_ns;     /* how long a figure takes over tcp */
	int64_t extra_ns;  /* and the others */
	bool pinned;
	const char *only;
	FILE *json;
	unsigned targets, met;
};

/* One client at work. */
struct worker {
	struct gfs *fs;
	unsigned id;
	uint64_t serial;   /* of the next name */
	uint64_t end;      /* unlink: names there are */
	uint64_t finished; /* what it did at last */
};

/* 0; 1: nothing left to do; negative. */
typedef int (*op_fn)(struct worker *w);

static char page[FILE_BYTES];

static void name_of(char path[64], char what, const struct worker *w, uint64_t serial)
{
	gx_format(path, 64, "/%c%u-%llu", what, w->id, (unsigned long long)serial);
}

/* -- the operations -------------------------------------------------------------------------- */

static int op_stat(struct worker *w)
{
	struct gfs_stat st;
	char path[64];

	/* In no order that helps. */
	gx_format(path, sizeof(path), "/s%u", (unsigned)(w->serial++ * 7919 % STAT_FILES));
	return gfs_stat(w->fs, path, &st);
}

static int create(struct worker *w, char what, size_t bytes)
{
	struct gfs_file *file;
	char path[64];
	ssize_t n = 0;
	int r;

	name_of(path, what, w, w->serial);
	r = gfs_open(w->fs, path, GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL, 0644, &file);
	if (r < 0)
		return r;
	if (bytes > 0)
		n = gfs_write(file, page, bytes);
	r = gfs_close(file);
	w->serial++;
	return n < 0 ? (int)n : r;
}

static int op_create(struct worker *w)
{
	return create(w, 'c', 0);
}

static int op_create_4k(struct worker *w)
{
	return create(w, 'k', FILE_BYTES);
}

/* Both, since a directory holds at most 65000 others. */
static int op_mkdir(struct worker *w)
{
	char path[64];
	int r;

	name_of(path, 'd', w, w->serial++);
	r = gfs_mkdir(w->fs, path, 0755);
	return r < 0 ? r : gfs_rmdir(w->fs, path);
}

/* Removes what op_create made. */
static int op_unlink(struct worker *w)
{
	char path[64];

	if (w->serial == w->end)
		return 1;
	name_of(path, 'c', w, w->serial++);
	return gfs_unlink(w->fs, path);
}

static int op_readdir(struct worker *w)
{
	struct gfs_dirent entry;
	struct gfs_dir *dir;
	unsigned count = 0;
	int r = gfs_opendir(w->fs, "/list", &dir);

	if (r < 0)
		return r;
	while ((r = gfs_readdir(dir, &entry)) > 0)
		count++;
	gfs_closedir(dir);
	if (r == 0 && count != LIST_ENTRIES)
		return -EBADMSG;
	return r;
}

/* -- measuring ------------------------------------------------------------------------------- */

struct figure {
	double raw_us; /* p50 of the ping-pong */
	double p50_us, p99_us, max_ms;
	double per_sec;
	uint64_t count;
};

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int64_t now_ns(void)
{
	return gx_env_now_ns(gx_env_posix());
}

static int sample(struct meta *m, op_fn fn, struct worker *w, int64_t duration_ns,
		  struct figure *ret_figure)
{
	int64_t start, last, end;
	size_t count = 0;
	int r = 0;

	start = last = now_ns();
	end = start + duration_ns;
	while (last < end && count < OP_SAMPLES_MAX) {
		int64_t now;

		r = fn(w);
		if (r != 0)
			break;
		now = now_ns();
		m->samples[count++] = (uint32_t)GX_MIN(now - last, (int64_t)UINT32_MAX);
		last = now;
	}
	if (r < 0)
		return r;
	if (count == 0)
		return -ENODATA;
	qsort(m->samples, count, sizeof(*m->samples), compare_u32);
	ret_figure->p50_us = m->samples[count / 2] / 1e3;
	ret_figure->p99_us = m->samples[count * 99 / 100] / 1e3;
	ret_figure->max_ms = m->samples[count - 1] / 1e6;
	ret_figure->per_sec = (double)count / ((double)(last - start) / 1e9);
	ret_figure->count = count;
	return 0;
}

static int raw_p50(struct meta *m, double *ret_us)
{
	static const struct job job = {RAW_TCP, OURS_TCP, false, SMALL_BYTES};
	struct result result;
	int r = side_raw_calls(&m->bench, &job, &result);

	if (r == 0)
		*ret_us = result.p50_us;
	return r;
}

/* The figure between two ping-pongs. */
static int measure(struct meta *m, op_fn fn, struct worker *w, int64_t duration_ns,
		   struct figure *ret_figure)
{
	double before, after;
	int r = raw_p50(m, &before);

	if (r == 0)
		r = sample(m, fn, w, duration_ns, ret_figure);
	if (r == 0)
		r = raw_p50(m, &after);
	if (r == 0)
		ret_figure->raw_us = (before + after) / 2;
	return r;
}

/* -- output ---------------------------------------------------------------------------------- */

static const char *verdict(struct meta *m, bool has_target, bool met)
{
	if (!has_target)
		return "";
	m->targets++;
	m->met += met;
	return met ? "ok" : "MISS";
}

static void print_head(void)
{
	printf("%-26s %8s %6s %6s %-5s %8s %6s %-5s %8s %-5s %8s %5s %-5s\n", "", "p50 us", "x raw",
	       "target", "", "p99 us", "x p50", "", "max ms", "", "/s", "x p50", "");
}

/* ratio_max 0: no targets on this line. */
static void print_figure(struct meta *m, const char *name, const struct figure *f, double ratio_max)
{
	double ratio = f->p50_us / f->raw_us, tail = f->p99_us / f->p50_us;
	double rate = f->per_sec * f->p50_us / 1e6;
	bool targets = ratio_max > 0;
	char target[16] = "";

	if (targets)
		gx_format(target, sizeof(target), "<=%.0f", ratio_max);
	printf("%-26s %8.1f %6.2f %6s", name, f->p50_us, ratio, target);
	printf(" %-5s", verdict(m, targets, ratio <= ratio_max));
	printf(" %8.1f %6.1f", f->p99_us, tail);
	printf(" %-5s", verdict(m, targets, tail <= P99_MAX));
	printf(" %8.1f", f->max_ms);
	printf(" %-5s", verdict(m, targets, f->max_ms <= STALL_MAX));
	printf(" %8.0f %5.2f", f->per_sec, rate);
	printf(" %-5s\n", verdict(m, targets, rate >= RATE_MIN));
	fflush(stdout);
	if (m->json)
		fprintf(m->json,
			"{\"name\": \"%s\", \"raw_p50_us\": %.2f, \"p50_us\": %.2f, \"ratio\": "
			"%.3f, \"ratio_target\": %.1f, \"p99_us\": %.1f, \"max_ms\": %.2f, "
			"\"per_sec\": %.0f, \"count\": %llu},\n",
			name, f->raw_us, f->p50_us, ratio, ratio_max, f->p99_us, f->max_ms,
			f->per_sec, (unsigned long long)f->count);
}

/* -- one client ------------------------------------------------------------------------------ */

enum { OP_STAT, OP_CREATE, OP_CREATE_4K, OP_MKDIR, OP_UNLINK, OP_READDIR, OP_COUNT };

/* Ratios to the ping-pong that we want; what has none is there to be seen. */
static const struct op {
	const char *name;
	op_fn fn;
	double ratio_max;
} ops[OP_COUNT] = {
	[OP_STAT] = {"stat", op_stat, 3},
	[OP_CREATE] = {"create+close", op_create, 6},
	[OP_CREATE_4K] = {"create+4KiB+close", op_create_4k, 10},
	[OP_MKDIR] = {"mkdir+rmdir", op_mkdir, 0},
	[OP_UNLINK] = {"unlink", op_unlink, 0},
	[OP_READDIR] = {"readdir(1000)", op_readdir, 0},
};

static int run_op(struct meta *m, struct worker *w, const struct op *op, const char *where,
		  int64_t duration_ns, bool targets)
{
	struct figure figure = {0};
	char name[64];
	uint64_t made = w->finished;
	int r;

	gx_format(name, sizeof(name), "%s, %s", op->name, where);
	if (m->only && !strstr(name, m->only))
		return 0;
	w->serial = 0;
	w->end = made;
	r = measure(m, op->fn, w, duration_ns, &figure);
	if (r < 0) {
		fprintf(stderr, "meta: %s: %s\n", name, gfs_error());
		return r;
	}
	w->finished = w->serial;
	print_figure(m, name, &figure, targets ? op->ratio_max : 0);
	return 0;
}

static int run_client(struct meta *m, enum grid_kind kind, int64_t cache_bytes, unsigned id,
		      const char *where, int64_t duration_ns, bool targets)
{
	/* Unlink comes right behind create, whose files it removes. */
	static const int order[] = {OP_STAT,   OP_CREATE_4K, OP_CREATE,
				    OP_UNLINK, OP_MKDIR,     OP_READDIR};
	struct worker w = {.id = id};
	int r = grid_connect(&m->grid, kind, cache_bytes, &w.fs);

	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(order); i++) {
		if (order[i] == OP_UNLINK && w.finished == 0)
			continue;
		r = run_op(m, &w, &ops[order[i]], where, duration_ns, targets);
	}
	if (w.fs) {
		int left = gfs_disconnect(w.fs);

		r = r < 0 ? r : left;
	}
	return r;
}

/* -- several clients ------------------------------------------------------------------------- */

struct member {
	struct worker w;
	op_fn fn;
	pthread_t thread;
	pthread_barrier_t *begin;
	int64_t duration_ns;
	uint64_t done;
	int err;
};

static void *member_main(void *arg)
{
	struct member *member = arg;
	int64_t end;

	pthread_barrier_wait(member->begin);
	end = now_ns() + member->duration_ns;
	while (member->err == 0 && now_ns() < end) {
		member->err = member->fn(&member->w);
		member->done++;
	}
	return NULL;
}

static int run_members(struct meta *m, struct member *members, unsigned count, const char *name)
{
	pthread_barrier_t begin;
	double loop[2], all[2];
	int64_t start;
	uint64_t done = 0;
	double sec;
	int r;

	pthread_barrier_init(&begin, NULL, count + 1);
	for (unsigned i = 0; i < count; i++) {
		members[i].begin = &begin;
		r = pthread_create(&members[i].thread, NULL, member_main, &members[i]);
		gx_assert(r == 0);
	}
	r = grid_cpu(&m->grid, &loop[0], &all[0]);
	start = now_ns();
	pthread_barrier_wait(&begin);
	for (unsigned i = 0; i < count; i++) {
		pthread_join(members[i].thread, NULL);
		done += members[i].done;
		r = r < 0 ? r : members[i].err;
	}
	sec = (double)(now_ns() - start) / 1e9;
	pthread_barrier_destroy(&begin);
	if (r == 0)
		r = grid_cpu(&m->grid, &loop[1], &all[1]);
	if (r < 0)
		return r;
	printf("%-16s %7u %10.0f %11.0f %% %10.0f %%\n", name, count, (double)done / sec,
	       (loop[1] - loop[0]) / sec * 100, (all[1] - all[0]) / sec * 100);
	fflush(stdout);
	if (m->json)
		fprintf(m->json,
			"{\"name\": \"%s, %u clients\", \"per_sec\": %.0f, \"loop_cpu\": %.2f, "
			"\"metad_cpu\": %.2f},\n",
			name, count, (double)done / sec, (loop[1] - loop[0]) / sec,
			(all[1] - all[0]) / sec);
	return 0;
}

static int run_crowd(struct meta *m, const struct op *op, unsigned count)
{
	static unsigned next_id = 1000;
	struct member members[CLIENTS_MAX] = {0};
	int r = 0;

	for (unsigned i = 0; r == 0 && i < count; i++) {
		members[i] = (struct member){.w = {.id = next_id++}, .fn = op->fn};
		members[i].duration_ns = m->extra_ns;
		r = grid_connect(&m->grid, GRID_TCP, -1, &members[i].w.fs);
	}
	if (r == 0)
		r = run_members(m, members, count, op->name);
	for (unsigned i = 0; i < count; i++) {
		int left = gfs_disconnect(members[i].w.fs);

		r = r < 0 ? r : left;
	}
	return r;
}

static int run_crowds(struct meta *m)
{
	static const int crowd_ops[] = {OP_STAT, OP_CREATE, OP_CREATE_4K};
	int r = 0;

	printf("\n%-16s %7s %10s %13s %12s\n", "", "clients", "/s", "metad's loop", "metad, all");
	for (size_t i = 0; i < GX_COUNT_OF(crowd_ops); i++)
		for (unsigned count = 1; r == 0 && count <= CLIENTS_MAX; count *= 2)
			r = run_crowd(m, &ops[crowd_ops[i]], count);
	return r;
}

/* -- running --------------------------------------------------------------------------------- */

static int prepare(struct meta *m)
{
	struct gfs *fs;
	char path[64];
	int r = grid_connect(&m->grid, GRID_UNIX, 0, &fs);

	if (r < 0)
		return r;
	for (unsigned i = 0; r == 0 && i < STAT_FILES; i++) {
		gx_format(path, sizeof(path), "/s%u", i);
		r = gfs_mknod(fs, path, S_IFREG | 0644, 0);
	}
	if (r == 0)
		r = gfs_mkdir(fs, "/list", 0755);
	for (unsigned i = 0; r == 0 && i < LIST_ENTRIES; i++) {
		gx_format(path, sizeof(path), "/list/entry-%u", i);
		r = gfs_mknod(fs, path, S_IFREG | 0644, 0);
	}
	if (r < 0)
		fprintf(stderr, "meta: %s\n", gfs_error());
	gfs_disconnect(fs);
	return r;
}

static void pin(pid_t thread)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	GX_IGNORE(sched_setaffinity(thread, sizeof(set), &set));
}

static void unpin(pid_t thread)
{
	cpu_set_t set;

	memset(&set, 0xff, sizeof(set));
	GX_IGNORE(sched_setaffinity(thread, sizeof(set), &set));
}

static void print_header(const struct meta *m)
{
	struct utsname host;

	uname(&host);
	printf("meta: %ld CPUs; %s %s; %.0f s per figure over tcp, %.0f s the others; %s\n\n",
	       sysconf(_SC_NPROCESSORS_ONLN), host.sysname, host.release, (double)m->op_ns / 1e9,
	       (double)m->extra_ns / 1e9,
	       m->pinned ? "client and metad's loop on one CPU" : "not pinned");
}

static int run_all(struct meta *m)
{
	struct gfs *fs;
	uint64_t turn_ns = 0, work_ns = 0;
	int r;

	print_header(m);
	print_head();
	r = run_client(m, GRID_TCP, -1, 0, "tcp", m->op_ns, true);
	if (r == 0)
		r = run_client(m, GRID_UNIX, -1, 1, "unix", m->extra_ns, false);
	/* With the cache a client keeps its leases, and a stat need not ask. */
	if (r == 0)
		r = run_client(m, GRID_TCP, 0, 2, "cache on", m->extra_ns, false);
	if (m->pinned) {
		unpin(0);
		unpin(m->grid.metad);
	}
	if (r == 0 && !m->only)
		r = run_crowds(m);
	if (r == 0)
		r = grid_connect(&m->grid, GRID_UNIX, -1, &fs);
	if (r < 0)
		return r;
	r = grid_longest_turn_ns(fs, &turn_ns, &work_ns);
	gfs_disconnect(fs);
	/* By the clock it contains waiting for a CPU, which on a busy machine is most of it. */
	printf("\nlongest turn of metad's loop: %.1f ms of work (<= 10 %s), %.1f ms by the clock\n",
	       (double)work_ns / 1e6, verdict(m, true, work_ns <= 10 * GX_NSEC_PER_MSEC),
	       (double)turn_ns / 1e6);
	printf("\nmeta: %u of %u targets met\n", m->met, m->targets);
	return r;
}

static int raw_path(const struct meta *m, char path[GX_PATH_MAX])
{
	return gx_format(path, GX_PATH_MAX, "%s/raw", m->grid.dir);
}

static int start_raw(struct meta *m)
{
	char path[GX_PATH_MAX];
	int r = raw_path(m, path);

	if (r == 0)
		r = raw_server_init(&m->bench.raw, NULL, path);
	if (r < 0)
		return r;
	fflush(NULL);
	m->raw_pid = fork();
	if (m->raw_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (m->pinned)
			pin(0);
		raw_server_run(&m->bench.raw);
	}
	return m->raw_pid < 0 ? gx_errno() : 0;
}

static int meta_init(struct meta *m)
{
	int r;

	memset(page, 'x', sizeof(page));
	m->bench.payload = calloc(1, SMALL_BYTES);
	m->bench.samples = malloc(SAMPLES_MAX * sizeof(*m->bench.samples));
	m->samples = malloc(OP_SAMPLES_MAX * sizeof(*m->samples));
	if (!m->bench.payload || !m->bench.samples || !m->samples)
		return -ENOMEM;
	r = grid_start(&m->grid, 0);
	if (r == 0)
		r = start_raw(m);
	if (r == 0)
		r = prepare(m);
	if (r == 0 && m->pinned) {
		pin(0);
		pin(m->grid.metad);
	}
	return r;
}

static void meta_fini(struct meta *m)
{
	char path[GX_PATH_MAX];

	if (m->raw_pid > 0) {
		kill(m->raw_pid, SIGKILL);
		waitpid(m->raw_pid, NULL, 0);
		raw_server_fini(&m->bench.raw);
		if (raw_path(m, path) == 0)
			unlink(path);
	}
	grid_stop(&m->grid);
	free(m->bench.payload);
	free(m->bench.samples);
	free(m->samples);
}

static int usage(void)
{
	fputs("usage: meta [--quick] [--json FILE] [--seconds N] [--pin same|none]\n"
	      "            [--only PART-OF-A-LINE]\n",
	      stderr);
	return 2;
}

static int parse_options(struct meta *m, int argc, char **argv, const char **ret_json)
{
	static const struct option options[] = {
		{"quick", no_argument, NULL, 'q'},         {"json", required_argument, NULL, 'j'},
		{"seconds", required_argument, NULL, 's'}, {"pin", required_argument, NULL, 'p'},
		{"only", required_argument, NULL, 'o'},    {NULL, 0, NULL, 0}};
	uint64_t number;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'q':
			m->op_ns = m->extra_ns = 200 * GX_NSEC_PER_MSEC;
			m->bench.round_ns = RAW_ROUND_QUICK_NS;
			break;
		case 'j':
			*ret_json = optarg;
			break;
		case 's':
			if (gx_parse_u64(optarg, &number) < 0 || number < 1 || number > 3600)
				return -EINVAL;
			m->op_ns = (int64_t)number * GX_NSEC_PER_SEC;
			break;
		case 'p':
			m->pinned = strcmp(optarg, "same") == 0;
			if (!m->pinned && strcmp(optarg, "none") != 0)
				return -EINVAL;
			break;
		case 'o':
			m->only = optarg;
			break;
		default:
			return -EINVAL;
		}
	}
	return optind == argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	static struct meta m = {.bench = {.round_ns = RAW_ROUND_NS},
				.op_ns = 30 * GX_NSEC_PER_SEC,
				.extra_ns = 5 * GX_NSEC_PER_SEC,
				.pinned = true};
	const char *json = NULL;
	int r;

	if (parse_options(&m, argc, argv, &json) < 0)
		return usage();
	sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
	m.json = json ? fopen(json, "we") : NULL;
	if (json && !m.json) {
		fprintf(stderr, "meta: %s: %s\n", json, gx_strerror(gx_errno()));
		return 1;
	}
	if (m.json)
		fprintf(m.json, "{\"figures\": [\n");
	r = meta_init(&m);
	if (r == 0)
		r = run_all(&m);
	if (m.json) {
		fprintf(m.json, "{\"name\": \"targets\", \"met\": %u, \"of\": %u}\n]}\n", m.met,
			m.targets);
		fclose(m.json);
	}
	if (r < 0)
		fprintf(stderr, "meta: %s\n", gx_strerror(r));
	meta_fini(&m);
	return r < 0 ? 1 : 0;
}
