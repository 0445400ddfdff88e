/*
 * The steps of a worker: each is put into the history of its file, done, and judged.
 */
#include "tests/lib/sim_data_work.h"
#include <stdarg.h>
#include <stdio.h>

#define WHOLE_BYTES (1100u * 1024) /* more than any file of cells has */
#define LOG_BYTES_MAX (HIST_WRITES * RECORD_BYTES_MAX)
#define LOG_CHUNK_BYTES (64u * 1024)
/* Nothing that these faults do keeps a call longer than that. */
#define PATIENCE_NS (60 * GX_NSEC_PER_SEC)
#define REPORTED_NS (100 * GX_NSEC_PER_MSEC)
#define ASKED_NS GX_NSEC_PER_SEC
#define TOLD_NS (1500 * GX_NSEC_PER_MSEC)
#define TEMPORARY_BYTES (48u * 1024)

void dwork_wrong(struct dwork *work, const char *fmt, ...)
{
	va_list args;

	if (work->wrong[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(work->wrong, sizeof(work->wrong), fmt, args);
	va_end(args);
	sim_meta_say(&work->data.meta, "WRONG %s", work->wrong);
}

uint64_t dwork_random(struct dwork *work, uint64_t bound)
{
	return gx_sim_random_below(work->data.meta.sim, bound);
}

unsigned dwork_alive(const struct dwork *work)
{
	unsigned alive = 0;

	for (unsigned i = 0; i < work->client_count; i++)
		if (!work->clients[i].dead && !work->clients[i].left)
			alive |= 1u << i;
	return alive;
}

void dwork_doubt(struct dwork_client *client)
{
	struct dwork *work = client->work;

	for (unsigned i = 0; i < work->file_count; i++) {
		struct dwork_file *file = &work->files[i];

		hist_doubt(&file->hist, client->number);
		file->doubt[client->number] = file->may_fail[client->number] = true;
	}
}

void dwork_hamper(struct dwork_client *client)
{
	client->hampers++;
	dwork_doubt(client);
}

void dwork_unhamper(struct dwork_client *client)
{
	client->hampers--;
	client->hampered = ++client->work->tick;
}

static int64_t now_ns(const struct dwork *work)
{
	return gx_sim_now_ns(work->data.meta.sim);
}

/* -- what may fail ----------------------------------------------------------------------------- */

/* A call of a worker about a file. */
struct step {
	struct dwork_worker *worker;
	struct dwork_file *file;
	const char *what;
	uint32_t since;
	int64_t start_ns;
	unsigned lives; /* of fsds, then */
};

static unsigned fsd_lives(const struct dwork *work)
{
	unsigned lives = 0;

	for (unsigned i = 0; i < SIM_DATA_FSDS; i++)
		lives += 2 * work->data.fsds[i].lives + gx_sim_proc_ended(work->data.fsds[i].proc);
	return lives;
}

static struct step step_begin(struct dwork_worker *worker, struct dwork_file *file,
			      const char *what)
{
	struct dwork *work = worker->work;

	sim_meta_say(&work->data.meta, "w%u c%u %s %s ...", worker->number, worker->client, what,
		     file->path);
	return (struct step){.worker = worker,
			     .file = file,
			     .what = what,
			     .since = ++work->tick,
			     .start_ns = now_ns(work),
			     .lives = fsd_lives(work)};
}

/* Does anything in this run explain the error? CONSISTENCY.md says which errors there are. */
static bool allowed(const struct step *step, int r)
{
	const struct dwork *work = step->worker->work;
	const struct dwork_file *file = step->file;
	unsigned client = step->worker->client;

	if (work->faults & DWORK_LONG)
		return true;
	switch (-r) {
	case EIO:
		/* Another worker of the client may have synced it meanwhile. */
		return file->may_fail[client] || file->could_fail[client] > step->since ||
		       file->flipped || hist_may_be_gone(&file->hist) ||
		       /* Was it appended or not? Nobody can tell when the node has lost its memory.
			*/
		       (file->log && step->lives != fsd_lives(work));
	case ENOSPC:
		return work->faults & DWORK_FULL;
	default:
		return false;
	}
}

/* The call has ended with r; true: well. */
static bool step_end(struct step *step, ssize_t r)
{
	struct dwork *work = step->worker->work;
	struct dwork_file *file = step->file;
	unsigned client = step->worker->client;
	int64_t took_ns = gx_sim_now_ns(work->data.meta.sim) - step->start_ns;

	sim_meta_say(&work->data.meta, "w%u c%u %s %s: %zd %s", step->worker->number, client,
		     step->what, file->path, r, r < 0 ? gfs_error() : "");
	if (took_ns > PATIENCE_NS && !(work->faults & DWORK_LONG))
		dwork_wrong(work, "worker %u: %s of %s took %lld ms", step->worker->number,
			    step->what, file->path, (long long)(took_ns / GX_NSEC_PER_MSEC));
	file->changed_ns = now_ns(work);
	if (r >= 0)
		return true;
	work->counts.failures++;
	if (!allowed(step, (int)r))
		dwork_wrong(work, "worker %u: %s of %s: %s (%s)", step->worker->number, step->what,
			    file->path, gx_strerror((int)r), gfs_error());
	/* Whatever it held back may be what failed. */
	hist_loose(&file->hist, client, false);
	return false;
}

/* A fsync or close went well: all doubts are over. */
static void step_synced(const struct step *step, unsigned handle, bool durable)
{
	struct dwork *work = step->worker->work;
	const struct dwork_client *client = &work->clients[step->worker->client];
	struct dwork_file *file = step->file;

	hist_synced(&file->hist, client->number, handle, step->since, durable,
		    gx_sim_now_ns(work->data.meta.sim));
	/* What happened since it began may show later. */
	if (client->hampers == 0 && client->hampered < step->since && work->fsd_cut < step->since) {
		if (file->may_fail[client->number])
			file->could_fail[client->number] = ++work->tick;
		file->doubt[client->number] = file->may_fail[client->number] = false;
	}
}

/* May what is answered now still be lost? Also a block that is damaged may not take it. */
static bool in_doubt(const struct dwork_worker *worker, const struct dwork_file *file)
{
	return file->doubt[worker->client] || file->flipped;
}

static void step_failed_write(struct hist_write *write)
{
	write->failed = true;
	write->risk = HIST_LOOSE;
}

static struct hist_reader reader_of(const struct step *step)
{
	return (struct hist_reader){step->worker->client, step->since,
				    dwork_alive(step->worker->work), false};
}

static void judge(struct step *step, bool good)
{
	if (!good)
		dwork_wrong(step->worker->work, "worker %u of client %u, %s of %s from %u: %s",
			    step->worker->number, step->worker->client, step->what,
			    step->file->path, step->since, step->file->hist.wrong);
}

/* May the handle hold this write back? */
static bool may_hold(struct dwork_held *held, const struct hist_write *write)
{
	struct dwork_file *file = held->of;

	if (!held->small)
		return false;
	if (!file->log && hist_cell_offset(write->hi - 1) + CELL_BYTES > HIST_INLINE_BYTES)
		return false;
	if (file->log && hist_is_large(&file->hist))
		held->late += write->bytes;
	return held->late <= HIST_INLINE_BYTES;
}

/* The handle has sent all that it held: it knows how large the file is. */
static void handle_knows(struct dwork_held *held)
{
	if (hist_is_large(&held->of->hist))
		held->small = false;
}

/* -- cells ------------------------------------------------------------------------------------- */

/* Some cells of one piece. */
static void pick_cells(struct dwork *work, unsigned *lo, unsigned *hi)
{
	unsigned at = (unsigned)dwork_random(work, HIST_CELLS);
	unsigned count = dwork_random(work, 8) == 0 ? HIST_CELLS : 16;

	/* The beginning is used more: files grow out of metad there. */
	if (dwork_random(work, 3) > 0)
		at %= 24;
	count = 1 + (unsigned)dwork_random(work, count);
	*lo = at;
	*hi = GX_MIN(at + count, hist_piece_end(at));
}

static void write_cells(struct dwork_worker *worker, struct dwork_held *held)
{
	unsigned char *bytes = malloc(HIST_CELLS * CELL_BYTES);
	struct dwork_file *file = held->of;
	struct hist_write *write;
	struct step step;
	ssize_t r;

	gx_assert(bytes != NULL);
	step = step_begin(worker, file, "write");
	write = hist_write_begin(&file->hist, worker->client, held->number);
	pick_cells(worker->work, &write->lo, &write->hi);
	for (unsigned c = write->lo; c < write->hi; c++)
		hist_cell_fill(&file->hist, write, c, bytes + (size_t)(c - write->lo) * CELL_BYTES);
	sim_meta_say(&worker->work->data.meta, "w%u write %u of cells %u to %u", worker->number,
		     (unsigned)(write - file->hist.writes), write->lo, write->hi);
	r = gfs_pwrite(held->file, bytes, (write->hi - write->lo) * CELL_BYTES,
		       hist_cell_offset(write->lo));
	worker->work->counts.writes++;
	write->may_hold = may_hold(held, write);
	if (step_end(&step, r))
		hist_write_end(&file->hist, write, in_doubt(worker, file));
	else
		step_failed_write(write);
	if (!write->may_hold)
		handle_knows(held);
	free(bytes);
}

static void erase_cells(struct dwork_worker *worker, struct dwork_held *held)
{
	struct dwork_file *file = held->of;
	bool truncate = dwork_random(worker->work, 2) == 0;
	struct hist_write *write;
	struct step step;
	int r;

	step = step_begin(worker, file, truncate ? "truncate" : "punch");
	write = hist_write_begin(&file->hist, worker->client, held->number);
	pick_cells(worker->work, &write->lo, &write->hi);
	write->erase = true;
	if (truncate) {
		write->truncate = true;
		write->hi = HIST_CELLS;
	}
	sim_meta_say(&worker->work->data.meta, "w%u write %u erases cells %u to %u", worker->number,
		     (unsigned)(write - file->hist.writes), write->lo, write->hi);
	if (truncate)
		r = gfs_ftruncate(held->file, hist_cell_offset(write->lo));
	else
		r = gfs_punch(held->file, hist_cell_offset(write->lo),
			      (write->hi - write->lo) * CELL_BYTES);
	worker->work->counts.writes++;
	if (step_end(&step, r))
		hist_write_end(&file->hist, write, in_doubt(worker, file));
	else
		step_failed_write(write);
}

static void read_cells(struct dwork_worker *worker, struct dwork_held *held)
{
	unsigned char *bytes = malloc(HIST_CELLS * CELL_BYTES);
	struct dwork_file *file = held->of;
	struct step step;
	unsigned lo, hi;
	ssize_t r;

	gx_assert(bytes != NULL);
	pick_cells(worker->work, &lo, &hi);
	step = step_begin(worker, file, "read");
	r = gfs_pread(held->file, bytes, (hi - lo) * CELL_BYTES, hist_cell_offset(lo));
	worker->work->counts.reads++;
	if (step_end(&step, r)) {
		struct hist_reader reader = reader_of(&step);

		handle_knows(held);
		judge(&step, hist_read_cells(&file->hist, lo, hi, &reader, bytes, (size_t)r));
	}
	free(bytes);
}

/* What lies between the pieces was never written. */
static bool judge_whole(struct dwork_file *file, const struct hist_reader *reader,
			const unsigned char *bytes, size_t got)
{
	size_t end = hist_cell_offset(hist_piece_end(0) - 1) + CELL_BYTES;
	size_t second = hist_cell_offset(hist_piece_end(0));

	for (size_t i = end; i < GX_MIN(second, got); i++) {
		if (bytes[i] == 0)
			continue;
		snprintf(file->hist.wrong, sizeof(file->hist.wrong),
			 "byte %zu, which nobody wrote, is %02x", i, bytes[i]);
		return false;
	}
	return hist_read_cells(&file->hist, 0, hist_piece_end(0), reader, bytes, got) &&
	       hist_read_cells(&file->hist, hist_piece_end(0), HIST_CELLS, reader, bytes + second,
			       got > second ? got - second : 0);
}

/* From front to back, as a program does it. */
static ssize_t read_through(struct gfs_file *f, unsigned char *bytes, size_t max, size_t chunk)
{
	size_t got = 0;

	while (got < max) {
		ssize_t n = gfs_pread(f, bytes + got, GX_MIN(chunk, max - got), got);

		if (n < 0)
			return n;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

static void read_whole(struct dwork_worker *worker, struct dwork_held *held)
{
	struct dwork_file *file = held->of;
	size_t max = file->log ? LOG_BYTES_MAX : WHOLE_BYTES;
	unsigned char *bytes = calloc(1, max);
	struct step step;
	ssize_t r;

	gx_assert(bytes != NULL);
	step = step_begin(worker, file, "read all");
	r = read_through(held->file, bytes, max, LOG_CHUNK_BYTES);
	worker->work->counts.reads++;
	if (step_end(&step, r)) {
		struct hist_reader reader = reader_of(&step);

		handle_knows(held);
		reader.pieces = true;
		judge(&step, file->log ? hist_read_log(&file->hist, &reader, bytes, (size_t)r)
				       : judge_whole(file, &reader, bytes, (size_t)r));
	}
	free(bytes);
}

/* -- logs -------------------------------------------------------------------------------------- */

static void append_record(struct dwork_worker *worker, struct dwork_held *held)
{
	unsigned char bytes[RECORD_BYTES_MAX];
	struct dwork_file *file = held->of;
	struct hist_write *write;
	struct step step;
	ssize_t r;

	step = step_begin(worker, file, "append");
	write = hist_write_begin(&file->hist, worker->client, held->number);
	write->hi = 1;
	write->bytes = RECORD_BYTES_MIN +
		       (unsigned)dwork_random(worker->work, RECORD_BYTES_MAX - RECORD_BYTES_MIN);
	hist_record_fill(&file->hist, write, bytes);
	sim_meta_say(&worker->work->data.meta, "w%u record %u of %u bytes", worker->number,
		     (unsigned)(write - file->hist.writes), write->bytes);
	r = gfs_write(held->file, bytes, write->bytes);
	worker->work->counts.appends++;
	write->may_hold = may_hold(held, write);
	if (step_end(&step, r))
		hist_write_end(&file->hist, write, in_doubt(worker, file));
	else
		step_failed_write(write);
}

/* A file that has just outgrown metad is opened as if it had not until its writer has told. */
static bool looks_small(const struct dwork *work, struct dwork_file *file)
{
	if (!hist_is_large(&file->hist))
		file->large_ns = 0;
	else if (file->large_ns == 0)
		file->large_ns = now_ns(work);
	return file->large_ns == 0 || now_ns(work) - file->large_ns < TOLD_NS;
}

/* -- open and close ---------------------------------------------------------------------------- */

static void sync_file(struct dwork_worker *worker, struct dwork_held *held)
{
	struct step step = step_begin(worker, held->of, "fsync");

	worker->work->counts.syncs++;
	if (step_end(&step, gfs_fsync(held->file)))
		step_synced(&step, held->number, true);
}

static void close_file(struct dwork_worker *worker, struct dwork_held *held)
{
	struct step step = step_begin(worker, held->of, "close");
	struct gfs_file *f = held->file;
	bool wrote = held->flags & GFS_O_WRITE;

	held->file = NULL;
	if (step_end(&step, gfs_close(f)) && wrote)
		step_synced(&step, held->number, false);
}

static struct dwork_file *pick_file(struct dwork_worker *worker)
{
	struct dwork *work = worker->work;
	unsigned private = work->worker_count;

	switch (dwork_random(work, 10)) {
	case 0:
	case 1:
	case 2:
	case 3:
		return &work->files[worker->number];
	case 4:
	case 5:
		return &work->files[private + dwork_random(work, DWORK_SHARED)];
	case 6:
	case 7:
		return &work->files[private + DWORK_SHARED + dwork_random(work, DWORK_LOGS)];
	default:
		return &work->files[dwork_random(work, work->file_count)];
	}
}

static void open_file(struct dwork_worker *worker, struct gfs *fs, struct dwork_held *held)
{
	struct dwork *work = worker->work;
	struct dwork_file *file = pick_file(worker);
	bool may_write = file->owner < 0 || file->owner == (int)worker->number;
	unsigned flags = GFS_O_READ;
	struct hist_write *write = NULL;
	struct step step;
	bool good;

	*held = (struct dwork_held){.of = file, .number = ++work->handles};
	if (may_write && dwork_random(work, 4) > 0)
		flags |= GFS_O_WRITE;
	if (file->log && (flags & GFS_O_WRITE))
		flags |= GFS_O_APPEND;
	step = step_begin(worker, file, flags & GFS_O_WRITE ? "open to write" : "open");
	if (!file->log && (flags & GFS_O_WRITE) && dwork_random(work, 8) == 0 &&
	    !hist_file_full(&file->hist)) {
		flags |= GFS_O_TRUNC;
		write = hist_write_begin(&file->hist, worker->client, held->number);
		write->hi = HIST_CELLS;
		write->erase = write->truncate = true;
		sim_meta_say(&work->data.meta, "w%u write %u truncates at open", worker->number,
			     (unsigned)(write - file->hist.writes));
	}
	good = step_end(&step, gfs_open(fs, file->path, flags, 0666, &held->file));
	held->small = looks_small(work, file);
	if (good)
		held->flags = flags;
	else
		held->file = NULL;
	if (write != NULL && good)
		hist_write_end(&file->hist, write, in_doubt(worker, file));
	else if (write != NULL)
		step_failed_write(write);
}

void dwork_close_all(struct dwork_worker *worker)
{
	for (unsigned i = 0; i < DWORK_HELD; i++)
		if (worker->held[i].file != NULL)
			close_file(worker, &worker->held[i]);
}

/* -- stat -------------------------------------------------------------------------------------- */

/*
 * So old is what metad says about the size at most: nothing, since it asks the writers (rule N12),
 * unless one of them has no channel for questions, or it may be broken, or the node away to which
 * he would send what he holds.
 */
static int64_t report_age_ns(const struct dwork *work, const struct hist_file *hist)
{
	if (work->faults & ~(DWORK_CLIENT_KILLS | DWORK_CLOCKS | DWORK_FLIPS | DWORK_SLOW_DISK))
		return REPORTED_NS;
	for (unsigned i = 0; i < hist->write_count; i++)
		if (work->clients[hist->writes[i].client].cache_bytes == 0)
			return REPORTED_NS;
	return 0;
}

/* A writer that waits for its node, and whose push channel was reset, is asked nothing. */
static bool cannot_be_asked(const struct dwork *work)
{
	return (work->faults & DWORK_RESETS) &&
	       (work->faults & (DWORK_FSD_KILLS | DWORK_FSD_CUTS | DWORK_FSD_RESTARTS));
}

/* The size of a file that nobody is at work on. */
static void stat_file(struct dwork_worker *worker, struct gfs *fs)
{
	struct dwork_file *file = pick_file(worker);
	struct dwork *work = worker->work;
	struct gfs_stat st;
	struct step step;
	uint64_t size, after;
	int64_t changed_ns;
	bool known;

	step = step_begin(worker, file, "stat");
	changed_ns = file->changed_ns;
	known = hist_size(&file->hist, &size);
	if (!step_end(&step, gfs_stat(fs, file->path, &st)))
		return;
	/*
	 * Who has a writer that hangs, or cannot be asked, gets what it last reported; also one
	 * that waits for a node that is away (N12).
	 */
	if (now_ns(work) - step.start_ns >= ASKED_NS || cannot_be_asked(work))
		return;
	if (!known || step.start_ns - changed_ns < report_age_ns(work, &file->hist) ||
	    (work->faults &
	     (DWORK_STOPS | DWORK_PARTITIONS | DWORK_LONG | DWORK_META_KILLS | DWORK_META_CUTS)))
		return;
	if (!hist_size(&file->hist, &after) || after != size || st.size == size)
		return;
	/* Something may be on its way that has no answer yet. */
	for (unsigned i = 0; i < file->hist.write_count; i++)
		if (file->hist.writes[i].end >= step.since)
			return;
	dwork_wrong(work, "worker %u: %s is %llu long, not %llu", worker->number, file->path,
		    (unsigned long long)st.size, (unsigned long long)size);
}

/* -- temporary files --------------------------------------------------------------------------- */

static bool temporary_failed(struct dwork_worker *worker, const char *what, ssize_t r)
{
	struct dwork *work = worker->work;
	unsigned reasons = DWORK_STOPS | DWORK_PARTITIONS | DWORK_LONG | DWORK_FSD_CUTS |
			   DWORK_FULL | DWORK_FLIPS;

	if (r >= 0)
		return false;
	work->counts.failures++;
	if (!(work->faults & reasons))
		dwork_wrong(work, "worker %u: %s of a temporary file: %s (%s)", worker->number,
			    what, gx_strerror((int)r), gfs_error());
	return true;
}

static void use_temporary(struct dwork_worker *worker, struct gfs *fs, const char *path,
			  struct gfs_file *f, unsigned char *bytes)
{
	struct dwork *work = worker->work;
	size_t size = 1 + (size_t)dwork_random(work, TEMPORARY_BYTES);
	unsigned char *back = bytes + TEMPORARY_BYTES;
	bool early = dwork_random(work, 3) == 0;
	ssize_t n;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(i * 7 + worker->temporary);
	if (early)
		temporary_failed(worker, "early unlink", gfs_unlink(fs, path));
	n = gfs_write(f, bytes, size);
	if (!temporary_failed(worker, "write", n) && dwork_random(work, 3) == 0) {
		n = gfs_pread(f, back, TEMPORARY_BYTES, 0);
		if (!temporary_failed(worker, "read", n) && !(work->faults & DWORK_FSD_CUTS) &&
		    !(work->faults & (DWORK_STOPS | DWORK_PARTITIONS | DWORK_LONG)) &&
		    ((size_t)n != size || memcmp(bytes, back, size) != 0))
			dwork_wrong(work, "worker %u: a temporary file has other bytes",
				    worker->number);
	}
	if (dwork_random(work, 3) == 0)
		temporary_failed(worker, "fsync", gfs_fsync(f));
	temporary_failed(worker, "close", gfs_close(f));
	if (!early)
		temporary_failed(worker, "unlink", gfs_unlink(fs, path));
}

static void temporary_file(struct dwork_worker *worker, struct gfs *fs)
{
	unsigned char *bytes = malloc((size_t)2 * TEMPORARY_BYTES);
	struct gfs_file *f;
	char path[32];
	int r;

	gx_assert(bytes != NULL);
	snprintf(path, sizeof(path), "/%s/t%u-%u", worker->number % 2 ? "two" : "one",
		 worker->number, ++worker->temporary);
	sim_meta_say(&worker->work->data.meta, "w%u temporary %s", worker->number, path);
	r = gfs_open(fs, path, GFS_O_READ | GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL, 0600, &f);
	worker->work->counts.temporary++;
	if (!temporary_failed(worker, "open", r))
		use_temporary(worker, fs, path, f, bytes);
	free(bytes);
}

/* -- steps ------------------------------------------------------------------------------------- */

static void use_held(struct dwork_worker *worker, struct dwork_held *held)
{
	struct dwork *work = worker->work;
	struct dwork_file *file = held->of;
	bool writes = (held->flags & GFS_O_WRITE) && !hist_file_full(&file->hist);

	switch (dwork_random(work, 16)) {
	case 0:
	case 1:
		close_file(worker, held);
		break;
	case 2:
		if (held->flags & GFS_O_WRITE)
			sync_file(worker, held);
		break;
	case 3:
		if (writes && !file->log)
			erase_cells(worker, held);
		break;
	case 4:
	case 5:
		read_whole(worker, held);
		break;
	case 6:
	case 7:
	case 8:
	case 9:
	case 10:
		if (file->log)
			read_whole(worker, held);
		else
			read_cells(worker, held);
		break;
	default:
		if (writes && file->log)
			append_record(worker, held);
		else if (writes)
			write_cells(worker, held);
		break;
	}
}

void dwork_step(struct dwork_worker *worker, struct gfs *fs)
{
	struct dwork *work = worker->work;
	struct dwork_held *held = &worker->held[dwork_random(work, DWORK_HELD)];

	switch (dwork_random(work, 20)) {
	case 0:
		temporary_file(worker, fs);
		return;
	case 1:
		stat_file(worker, fs);
		return;
	default:
		break;
	}
	if (held->file == NULL)
		open_file(worker, fs, held);
	if (held->file != NULL)
		use_held(worker, held);
}

/* -- the auditor ------------------------------------------------------------------------------- */

bool dwork_all_there(struct gfs *fs, struct gx_env *env, const struct dwork_file *file)
{
	struct gfs_place places[8];
	ssize_t count;
	bool up;

	do {
		count = gfs_where(fs, file->path, places, GX_COUNT_OF(places), NULL);
		up = true;
		for (ssize_t i = 0; i < count; i++)
			up = up && places[i].up;
		if (!up)
			gx_env_sleep_until(env, gx_env_deadline_ms(env, 20));
	} while (!up);
	return count >= 2;
}

int dwork_read_all(struct dwork *work, struct gfs *fs, struct dwork_file *file, int client)
{
	size_t max = file->log ? LOG_BYTES_MAX : WHOLE_BYTES;
	unsigned char *bytes = calloc(1, max);
	struct hist_reader reader = {HIST_NOBODY, ++work->tick, 0, true};
	struct gfs_file *f;
	uint64_t size;
	bool good;
	ssize_t n;
	int r;

	gx_assert(bytes != NULL);
	r = gfs_open(fs, file->path, GFS_O_READ, 0, &f);
	if (r < 0) {
		free(bytes);
		return r;
	}
	n = read_through(f, bytes, max, LOG_CHUNK_BYTES);
	r = gfs_close(f);
	if (n >= 0) {
		good = file->log ? hist_read_log(&file->hist, &reader, bytes, (size_t)n)
				 : judge_whole(file, &reader, bytes, (size_t)n);
		if (!good)
			dwork_wrong(work, "client %d reads %s in the end: %s", client, file->path,
				    file->hist.wrong);
		if (hist_size(&file->hist, &size) && size != (uint64_t)n)
			dwork_wrong(work, "%s is %zd long in the end, not %llu", file->path, n,
				    (unsigned long long)size);
	}
	free(bytes);
	return n < 0 ? (int)n : r;
}
