/*
 * metascale - many names: fills a grid, looks names up, lists and empties a huge directory, and
 * tells what that costs. For tests/integ/meta_scale.sh and tests/soak/meta_scale.sh.
 *
 *	metascale fill CONF DIR FILES PER_DIR THREADS	makes DIR with FILES files below it
 *	metascale look CONF DIR FILES PER_DIR SAMPLES	random look-ups: "P50_NS P99_NS"
 *	metascale empty CONF DIR			lists DIR and removes all that is in it;
 *							"LISTED REMOVED P99_NS MAX_NS" where the
 *							times are those of another client meanwhile
 *
 * CONF is a client's configuration, as in GFS_CONFIG. Clients have no cache.
 */
#include "client/fs/gfs_impl.h"
#include "common/gx_hist.h"
#include "common/gx_num.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define THREADS_MAX 16u
#define PROBE_PAUSE_NS GX_NSEC_PER_MSEC

struct job {
	const char *conf;
	const char *dir; /* a name in "/" */
	uint64_t files, per_dir;
	unsigned threads;
	struct gfc_ref ref; /* of the directory */
	atomic_bool stop;
};

GX_NORETURN static void die(const char *what, int err)
{
	fprintf(stderr, "metascale: %s: %s (%s)\n", what, gx_strerror(err), gfs_error());
	exit(1);
}

static struct gfs *connect_to(const char *conf)
{
	struct gfs_options options = {.config = conf, .program = "metascale", .cache_bytes = -1};
	struct gfs *fs;
	int r = gfs_connect(&options, &fs);

	if (r < 0)
		die("connect", r);
	return fs;
}

static void leave(struct gfs *fs)
{
	int r = gfs_disconnect(fs);

	if (r < 0)
		die("disconnect", r);
}

static uint64_t number(const char *text)
{
	uint64_t n;

	if (gx_parse_u64(text, &n) < 0 || n == 0)
		die(text, -EINVAL);
	return n;
}

static void dir_name(char name[32], uint64_t dir)
{
	gx_format(name, 32, "d%07llu", (unsigned long long)dir);
}

static void file_name(char name[32], uint64_t file)
{
	gx_format(name, 32, "f%09llu", (unsigned long long)file);
}

/* -- fill ------------------------------------------------------------------------------------- */

struct filler {
	struct job *job;
	unsigned number;
	pthread_t thread;
};

static void make(struct gfc *gfc, struct gfc_ref parent, const char *name, uint32_t mode,
		 struct gfc_ref *ret_ref)
{
	struct gfc_attr attr;
	int r = gfc_make(gfc, parent, name, mode, 0, NULL, &attr);

	if (r < 0)
		die(name, r);
	*ret_ref = attr.ref;
}

/* Every threads-th directory; or, if there is only one, every threads-th file. */
static void *fill_main(void *arg)
{
	struct filler *f = arg;
	struct job *job = f->job;
	struct gfs *fs = connect_to(job->conf);
	bool flat = job->per_dir >= job->files;
	uint64_t step = flat ? 1 : job->per_dir;
	struct gfc_ref ref;
	char name[32];

	for (uint64_t at = f->number * step; at < job->files; at += job->threads * step) {
		struct gfc_ref parent = job->ref;

		if (!flat) {
			dir_name(name, at / step);
			make(fs->gfc, job->ref, name, S_IFDIR | 0755, &parent);
		}
		for (uint64_t i = at; i < at + step && i < job->files; i++) {
			file_name(name, i);
			make(fs->gfc, parent, name, S_IFREG | 0644, &ref);
		}
	}
	leave(fs);
	return NULL;
}

static void fill(struct job *job)
{
	struct filler fillers[THREADS_MAX];
	struct gfs *fs = connect_to(job->conf);

	make(fs->gfc, GFC_ROOT, job->dir, S_IFDIR | 0755, &job->ref);
	leave(fs);
	for (unsigned i = 0; i < job->threads; i++) {
		fillers[i] = (struct filler){.job = job, .number = i};
		if (pthread_create(&fillers[i].thread, NULL, fill_main, &fillers[i]) != 0)
			die("thread", -EAGAIN);
	}
	for (unsigned i = 0; i < job->threads; i++)
		pthread_join(fillers[i].thread, NULL);
}

/* -- look-ups --------------------------------------------------------------------------------- */

static struct gfc_ref find(struct gfs *fs, struct gfc_ref parent, const char *name)
{
	struct gfc_attr attr;
	int r = gfc_lookup(fs->gfc, parent, name, &attr);

	if (r < 0)
		die(name, r);
	return attr.ref;
}

static uint64_t now_ns(void)
{
	return (uint64_t)gx_env_now_ns(gx_env_posix());
}

static void look(struct job *job, uint64_t samples)
{
	struct gfs *fs = connect_to(job->conf);
	uint64_t dirs = (job->files + job->per_dir - 1) / job->per_dir;
	struct gfc_ref *refs = calloc(dirs, sizeof(*refs));
	uint64_t random = now_ns() | 1; /* others each time: metad keeps what it was asked for */
	struct gx_hist hist;
	char name[32];

	if (!refs)
		die("memory", -ENOMEM);
	job->ref = find(fs, GFC_ROOT, job->dir);
	for (uint64_t i = 0; i < dirs; i++) {
		dir_name(name, i);
		refs[i] = find(fs, job->ref, name);
	}
	gx_hist_init(&hist);
	for (uint64_t i = 0; i < samples; i++) {
		uint64_t file, start;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		file = random % job->files;
		file_name(name, file);
		start = now_ns();
		find(fs, refs[file / job->per_dir], name);
		gx_hist_add(&hist, now_ns() - start);
	}
	printf("%llu %llu\n", (unsigned long long)gx_hist_quantile_ns(&hist, 0.5),
	       (unsigned long long)gx_hist_quantile_ns(&hist, 0.99));
	free(refs);
	leave(fs);
}

/* -- a huge directory ------------------------------------------------------------------------- */

/* Another client at work: makes, finds and removes a name, now and then. */
struct prober {
	struct job *job;
	pthread_t thread;
	struct gx_hist hist;
};

static void *probe_main(void *arg)
{
	struct prober *p = arg;
	struct gfs *fs = connect_to(p->job->conf);
	char name[64];

	gx_format(name, sizeof(name), "probe-of-%s", p->job->dir);
	while (!p->job->stop) {
		struct gfc_ref ref;
		uint64_t start = now_ns(), t;
		int r;

		make(fs->gfc, GFC_ROOT, name, S_IFREG | 0644, &ref);
		t = now_ns();
		gx_hist_add(&p->hist, t - start);
		find(fs, GFC_ROOT, name);
		start = now_ns();
		gx_hist_add(&p->hist, start - t);
		r = gfc_unlink(fs->gfc, GFC_ROOT, name, false);
		if (r < 0)
			die(name, r);
		gx_hist_add(&p->hist, now_ns() - start);
		GX_IGNORE(gx_env_sleep_until(gx_env_posix(), (int64_t)now_ns() + PROBE_PAUSE_NS));
	}
	leave(fs);
	return NULL;
}

static uint64_t list(struct gfs *fs, const char *path)
{
	struct gfs_dirent entry;
	struct gfs_dir *dir;
	uint64_t count = 0;
	int r = gfs_opendir(fs, path, &dir);

	while (r >= 0 && (r = gfs_readdir(dir, &entry)) > 0)
		count++;
	if (r < 0)
		die(path, r);
	gfs_closedir(dir);
	return count;
}

/* Names with their NULs. */
static int collect(void *arg, const struct gfc_dirent *entry)
{
	return gx_buf_append(arg, entry->name, strlen(entry->name) + 1);
}

static uint64_t remove_all(struct gfs *fs, struct gfc_ref dir)
{
	char after[GFS_NAME_MAX + 1] = "";
	struct gx_buf names;
	uint64_t count = 0;
	int r = 0;

	gx_buf_init(&names, 16u * 1024 * 1024);
	while (r == 0) {
		gx_buf_clear(&names);
		r = gfc_readdir(fs->gfc, dir, after, false, collect, &names);
		if (r < 0)
			die("readdir", r);
		for (size_t at = 0; at < names.bytes; count++) {
			const char *name = (const char *)names.data + at;
			int err = gfc_unlink(fs->gfc, dir, name, false);

			if (err < 0)
				die(name, err);
			at += strlen(name) + 1;
		}
	}
	gx_buf_fini(&names);
	return count;
}

static void empty(struct job *job)
{
	struct prober prober = {.job = job};
	struct gfs *fs = connect_to(job->conf);
	uint64_t listed, removed;
	char path[64];
	int r;

	gx_format(path, sizeof(path), "/%s", job->dir);
	gx_hist_init(&prober.hist);
	if (pthread_create(&prober.thread, NULL, probe_main, &prober) != 0)
		die("thread", -EAGAIN);
	listed = list(fs, path);
	removed = remove_all(fs, find(fs, GFC_ROOT, job->dir));
	r = gfs_rmdir(fs, path);
	if (r < 0)
		die(path, r);
	job->stop = true;
	pthread_join(prober.thread, NULL);
	leave(fs);
	printf("%llu %llu %llu %llu\n", (unsigned long long)listed, (unsigned long long)removed,
	       (unsigned long long)gx_hist_quantile_ns(&prober.hist, 0.99),
	       (unsigned long long)prober.hist.max_ns);
}

int main(int argc, char **argv)
{
	struct job job = {0};

	if (argc >= 4) {
		job.conf = argv[2];
		job.dir = argv[3];
	}
	if (argc >= 6) {
		job.files = number(argv[4]);
		job.per_dir = number(argv[5]);
	}
	if (argc == 7 && strcmp(argv[1], "fill") == 0) {
		job.threads = (unsigned)GX_MIN(number(argv[6]), (uint64_t)THREADS_MAX);
		fill(&job);
	} else if (argc == 7 && strcmp(argv[1], "look") == 0) {
		look(&job, number(argv[6]));
	} else if (argc == 4 && strcmp(argv[1], "empty") == 0) {
		empty(&job);
	} else {
		fputs("usage: metascale fill|look|empty CONF ...\n", stderr);
		return 2;
	}
	return 0;
}
