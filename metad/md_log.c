/*
 * md_log.c - appending, committing, syncing; the threads of the log.
 *
 * The problem: a command must be in the log before it is answered, and the
 * disk must not be in that path. So the loop's thread only copies a record
 * into a buffer and hands the buffer to the page cache with one pwrite() per
 * turn. Two threads do what is slow:
 *
 *   sync	fdatasync() back to back, as long as something is not on disk.
 *		Under load it never sleeps, so a commit does not even wake it.
 *   space	makes the next segment while the current one is filled, and
 *		removes trimmed ones or keeps a few to be used again: their blocks
 *		are written already, and under load zeros cost as much disk as the log.
 *
 * Measured (200-byte records, 16 MiB segments, two busy cores): append and
 * commit cost 0.14 us of CPU besides the pwrite, 0.9 us with it; p50 is the
 * same with the sync thread beside it (0.7 us), p99 2.4 us instead of 1.9.
 * How a segment must be made for that: md_log_segment.c.
 *
 * Order of the disk. Everything that was written when a sync began is durable
 * when it ends: all segments up to the current one are synced, oldest first,
 * and the directory, if one of them is new; only then does the durable index
 * move. Between two syncs anything may reach the disk in any order;
 * md_log_recover.c sorts that out.
 *
 * Space (N7). A record goes where the file already has blocks. The last bytes
 * of a segment are kept for the epoch records of later starts while there is
 * no next segment: a full disk must not keep metad from starting and serving
 * reads.
 *
 * Sickness. The first failed write or sync is kept in `sick`; after it nothing
 * is written or synced, since the kernel may have dropped the pages and a
 * second fdatasync would claim what is not true. An error while the spare is
 * made concerns no record and only means that there is no room.
 */
#include "metad/md_log.h"
#include "metad/md_log_impl.h"
#include "common/gx_broken.h"
#include "common/gx_num.h"
#include <fcntl.h>

#define SEGMENT_BYTES_MIN 4096u
#define RETRY_MS 100u       /* between two tries to make a segment */
#define RESERVE_BYTES 4096u /* at the end of a segment, at most 1/16 of it */
#define BUFFER_BYTES 65536u /* to begin with */
#define BUSY_BYTES 262144u  /* left in a segment: more than a turn writes; at most 1/8 of it */

static void report(struct gx_task *task);

static bool threaded(const struct md_log *log)
{
	return log->options.loop != NULL;
}

static void lock(struct md_log *log)
{
	gx_env_mutex_lock(log->env, &log->lock);
}

static void unlock(struct md_log *log)
{
	gx_env_mutex_unlock(log->env, &log->lock);
}

/* First failure wins. Under no lock; returns the error for convenience. */
static int fall_sick(struct md_log *log, int err)
{
	lock(log);
	if (log->sick == 0)
		log->sick = err;
	gx_env_cond_broadcast(log->env, &log->changed);
	gx_env_cond_signal(log->env, &log->sync_wanted);
	unlock(log);
	if (threaded(log))
		gx_loop_post(log->options.loop, &log->report_task);
	return err;
}

/* -- syncing ------------------------------------------------------------------ */

static void segment_synced(struct md_log *log, struct md_log_segment *segment)
{
	int fd = segment->fd;

	lock(log);
	segment->fd = -1;
	segment->synced = true;
	unlock(log);
	/* Its bytes are on disk; whatever close says changes nothing. */
	GX_IGNORE(gx_env_close(log->env, fd));
}

/*
 * Puts everything on disk that is written now. Without the lock during I/O: the segments it
 * works on stay, since only synced ones are trimmed. One caller at a time.
 */
static int sync_pass(struct md_log *log)
{
	struct md_log_segment *first;
	struct md_log_segment *last;
	bool new_names = false;
	uint64_t target;
	int r = 0;

	lock(log);
	/* In this order: all that is written now is in the segments up to the one of later. */
	target = log->written;
	last = log->current;
	for (first = log->segments; first->synced; first = first->next)
		gx_assert(first != last);
	for (struct md_log_segment *s = first; s != NULL; s = s->next)
		new_names = new_names || !s->anchored;
	unlock(log);

	if (new_names)
		r = gx_env_sync_dir(log->env, log->dir);
	for (struct md_log_segment *s = first; r == 0; s = s->next) {
		r = gx_env_fdatasync(log->env, s->fd);
		if (s == last)
			break;
		/* Full when the pass began, so nothing was added since. */
		if (r == 0)
			segment_synced(log, s);
	}
	if (r < 0 && !GX_BROKEN(7))
		return fall_sick(log, r);
	lock(log);
	for (struct md_log_segment *s = log->segments; new_names; s = s->next) {
		s->anchored = true;
		if (s == last)
			break;
	}
	log->durable = target;
	gx_env_cond_broadcast(log->env, &log->changed);
	unlock(log);
	return 0;
}

static void sync_main(void *arg)
{
	struct md_log *log = arg;

	for (;;) {
		lock(log);
		log->sync_idle = true;
		while (!log->stopping && log->sick == 0 && log->written == log->durable)
			GX_IGNORE(gx_env_cond_wait(log->env, &log->sync_wanted, &log->lock,
						   GX_FOREVER)); /* the condition is asked again */
		log->sync_idle = false;
		if (log->stopping || log->sick != 0) {
			unlock(log);
			return;
		}
		unlock(log);
		if (sync_pass(log) == 0)
			gx_loop_post(log->options.loop, &log->report_task);
	}
}

static void report(struct gx_task *task)
{
	struct md_log *log = GX_CONTAINER_OF(task, struct md_log, report_task);
	uint64_t durable = log->durable;
	int sick = log->sick;
	bool news;

	lock(log);
	news = log->spare_news;
	log->spare_news = false;
	unlock(log);
	if (log->options.durable_fn == NULL || log->reported_sick)
		return;
	if (durable == log->reported && sick == 0 && !news)
		return;
	log->reported = durable;
	log->reported_sick = sick != 0;
	log->options.durable_fn(log->options.arg, durable, sick);
}

int md_log_sync(struct md_log *log)
{
	int r;

	if (!log->sync_started && log->sick == 0)
		return log->durable < log->written ? sync_pass(log) : 0;
	lock(log);
	while (log->sick == 0 && log->durable < log->written)
		GX_IGNORE(gx_env_cond_wait(log->env, &log->changed, &log->lock, GX_FOREVER));
	r = log->sick;
	unlock(log);
	return r;
}

/* -- space -------------------------------------------------------------------- */

/* Called with the lock, which is let go meanwhile. */
static void make_spare(struct md_log *log)
{
	int fd;

	log->spare_wanted = false;
	log->spare_making = true;
	unlock(log);
	fd = md_log_spare_from_kept(log);
	if (fd < 0)
		fd = md_log_spare_make(log);
	lock(log);
	log->spare_making = false;
	log->spare_err = fd < 0 ? fd : 0;
	if (fd < 0) {
		log->retry_ns = gx_env_deadline_ms(log->env, RETRY_MS);
	} else {
		log->spare_fd = fd;
		log->spare_ready = true;
	}
	if (log->spare_awaited) {
		log->spare_awaited = false;
		log->spare_news = true;
		gx_loop_post(log->options.loop, &log->report_task);
	}
	gx_env_cond_broadcast(log->env, &log->changed);
}

static void empty_trash(struct md_log *log)
{
	struct md_log_segment *segment = log->trash;

	log->trash = NULL;
	unlock(log);
	while (segment != NULL) {
		struct md_log_segment *next = segment->next;

		md_log_segment_retire(log, segment);
		free(segment);
		segment = next;
	}
	lock(log);
}

static void space_main(void *arg)
{
	struct md_log *log = arg;

	lock(log);
	while (!log->stopping) {
		if (log->trash != NULL)
			empty_trash(log);
		else if (log->spare_wanted)
			make_spare(log);
		else
			GX_IGNORE(gx_env_cond_wait(log->env, &log->space_wanted, &log->lock,
						   GX_FOREVER));
	}
	unlock(log);
}

/* With the lock. Asks for a spare; after a failure not at once again. */
static void want_spare(struct md_log *log)
{
	if (log->spare_ready || log->spare_wanted || log->spare_making || log->sick != 0 ||
	    (log->spare_err != 0 && gx_env_now_ns(log->env) < log->retry_ns))
		return;
	log->spare_wanted = true;
	gx_env_cond_signal(log->env, &log->space_wanted);
}

/*
 * 0 when there is a next segment, or why not. Waits if one is being made, which happens when a
 * segment is filled faster than zeros can be written; not if the last try failed: then there is no
 * space, and waiting for the next try would stop the loop.
 */
static int need_spare(struct md_log *log)
{
	int r;

	lock(log);
	if (!log->spare_ready && !log->space_started) {
		make_spare(log);
	} else {
		want_spare(log);
		while (!log->spare_ready && log->spare_err == 0 &&
		       (log->spare_wanted || log->spare_making))
			GX_IGNORE(
				gx_env_cond_wait(log->env, &log->changed, &log->lock, GX_FOREVER));
	}
	r = log->spare_ready ? 0 : log->spare_err != 0 ? log->spare_err : log->sick;
	unlock(log);
	return r;
}

static bool fits(struct md_log *log, enum md_log_type type, size_t span)
{
	const struct md_log_segment *s = log->current;
	uint64_t reserve = GX_MIN((uint64_t)RESERVE_BYTES, log->options.segment_bytes / 16);
	uint64_t end;
	bool spare_ready;

	if (s == NULL)
		return false;
	end = s->used + log->buffer.bytes + span;
	if (GX_LIKELY(end + reserve <= s->bytes))
		return true;
	if (end > s->bytes || type == MD_LOG_EPOCH)
		return end <= s->bytes;
	lock(log);
	spare_ready = log->spare_ready;
	unlock(log);
	return spare_ready;
}

/* -- writing ------------------------------------------------------------------ */

static int flush(struct md_log *log)
{
	int r;

	if (log->buffer.bytes == 0)
		return 0;
	r = gx_env_pwrite(log->env, log->current->fd, log->buffer.data, log->buffer.bytes,
			  log->current->used);
	if (GX_UNLIKELY(r < 0))
		return fall_sick(log, r);
	log->current->used += log->buffer.bytes;
	gx_buf_clear(&log->buffer);
	log->written = log->next_index - 1;
	/*
	 * The lock is left alone while the sync thread works: it may have been taken off its CPU
	 * with it. It says that it is idle before it looks at `written` for the last time.
	 */
	if (GX_LIKELY(!log->sync_idle && log->spare_err == 0))
		return 0;
	lock(log);
	gx_env_cond_signal(log->env, &log->sync_wanted);
	/* After a failure try again well before the space is needed. */
	if (GX_UNLIKELY(log->spare_err != 0 && log->space_started))
		want_spare(log);
	unlock(log);
	return 0;
}

/* Turns the spare into the segment that begins with next_index. */
static int begin_segment(struct md_log *log)
{
	struct md_log_header header = {
		.first = log->next_index, .epoch = log->epoch, .durable = log->durable};
	uint8_t bytes[MD_LOG_HEADER_BYTES];
	char spare[PATH_MAX];
	char path[PATH_MAX];
	int r = md_log_path(log, MD_LOG_SPARE, spare);

	memcpy(header.uuid, log->uuid, sizeof(header.uuid));
	md_log_header_encode(&header, bytes);
	if (r == 0)
		r = md_log_segment_path(log, log->next_index, path);
	if (r == 0)
		r = gx_env_pwrite(log->env, log->spare_fd, bytes, sizeof(bytes), 0);
	/* The first segment of all is sound when it gets its name, so a log without a sound
	 * header is a damaged one, never a young one. */
	if (r == 0 && log->current == NULL)
		r = gx_env_fdatasync(log->env, log->spare_fd);
	if (r == 0)
		r = gx_env_rename(log->env, spare, path);
	return r;
}

/* The next segment becomes the current one; the spare is there. */
static int roll_over(struct md_log *log)
{
	struct md_log_segment *old = log->current;
	struct md_log_segment *segment;
	int r = flush(log);

	if (r < 0)
		return r;
	r = begin_segment(log);
	if (r < 0)
		return fall_sick(log, r);
	lock(log);
	r = md_log_segment_add(log, log->next_index, log->options.segment_bytes, log->spare_fd,
			       &segment);
	if (r == 0) {
		log->spare_ready = false;
		log->spare_fd = -1;
		if (old != NULL) {
			old->last = log->next_index - 1;
			old->full = true;
		}
		if (log->space_started)
			want_spare(log);
	}
	unlock(log);
	return r < 0 ? fall_sick(log, r) : 0;
}

static int append(struct md_log *log, enum md_log_type type, const void *data, size_t bytes)
{
	size_t span = md_log_record_span(bytes);
	struct md_log_record record = {.type = type,
				       .index = log->next_index,
				       .epoch = log->epoch,
				       .durable = log->durable,
				       .data = data,
				       .bytes = bytes};
	int r = 0;

	if (GX_UNLIKELY(log->sick != 0))
		return log->sick;
	if (GX_UNLIKELY(!fits(log, type, span))) {
		r = need_spare(log);
		/* With the spare at hand the reserve may be used up first. */
		if (r == 0 && !fits(log, type, span))
			r = roll_over(log);
	} else if (GX_UNLIKELY(log->buffer.bytes + span > MD_LOG_BUFFER_MAX)) {
		r = flush(log);
	}
	if (r == 0)
		r = gx_buf_reserve(&log->buffer, span);
	if (r < 0)
		return r;
	md_log_record_encode(&record, log->seed, log->buffer.data + log->buffer.bytes);
	log->buffer.bytes += span;
	log->next_index++;
	return 0;
}

static size_t record_max(const struct md_log *log)
{
	return (size_t)GX_MIN((uint64_t)MD_LOG_RECORD_MAX, log->options.segment_bytes * 15 / 16 -
								   MD_LOG_HEADER_BYTES -
								   MD_LOG_RECORD_HEADER_BYTES - 8);
}

int md_log_append(struct md_log *log, const void *data, size_t bytes, uint64_t *ret_index)
{
	int r;

	if (bytes > record_max(log))
		return -E2BIG;
	r = append(log, MD_LOG_COMMAND, data, bytes);
	if (r == 0)
		*ret_index = log->next_index - 1;
	else if (r != -ENOMEM && log->sick == 0)
		r = -ENOSPC; /* whatever kept the next segment from being made */
	return r;
}

int md_log_commit(struct md_log *log)
{
	return GX_UNLIKELY(log->sick != 0) ? log->sick : flush(log);
}

bool md_log_room(struct md_log *log, size_t bytes)
{
	if (log->sick != 0 || bytes > record_max(log))
		return false;
	return fits(log, MD_LOG_COMMAND, md_log_record_span(bytes)) || need_spare(log) == 0;
}

bool md_log_busy(struct md_log *log)
{
	const struct md_log_segment *s = log->current;
	uint64_t margin = GX_MIN((uint64_t)BUSY_BYTES, log->options.segment_bytes / 8);
	bool busy;

	if (GX_LIKELY(s->used + log->buffer.bytes + margin <= s->bytes) || !log->space_started)
		return false;
	lock(log);
	want_spare(log);
	busy = !log->spare_ready && log->spare_err == 0 && log->sick == 0;
	log->spare_awaited = log->spare_awaited || busy;
	unlock(log);
	return busy;
}

void md_log_trim(struct md_log *log, uint64_t index)
{
	struct md_log_segment *list = NULL;
	struct md_log_segment **end = &list;

	lock(log);
	/* The next one is the log's only anchor then, so its name must be on disk. */
	while (log->segments != log->current && log->segments->synced &&
	       log->segments->last <= index && log->segments->next->anchored) {
		*end = log->segments;
		end = &(*end)->next;
		log->segments = log->segments->next;
	}
	*end = NULL;
	for (end = &log->trash; *end != NULL; end = &(*end)->next)
		; /* oldest first, also across two trims */
	*end = list;
	if (!log->space_started)
		empty_trash(log);
	else if (list != NULL)
		gx_env_cond_signal(log->env, &log->space_wanted);
	unlock(log);
}

/* -- queries ------------------------------------------------------------------ */

uint64_t md_log_epoch(const struct md_log *log)
{
	return log->epoch;
}

uint64_t md_log_next(const struct md_log *log)
{
	return log->next_index;
}

uint64_t md_log_written(const struct md_log *log)
{
	return log->written;
}

uint64_t md_log_durable(const struct md_log *log)
{
	return log->durable;
}

int md_log_sick(const struct md_log *log)
{
	return log->sick;
}

void md_log_uuid(const struct md_log *log, uint8_t ret_uuid[MD_LOG_UUID_BYTES])
{
	memcpy(ret_uuid, log->uuid, MD_LOG_UUID_BYTES);
}

/* -- life --------------------------------------------------------------------- */

/* A life begins: its epoch is on disk before anything else is. */
static int begin_epoch(struct md_log *log)
{
	char path[PATH_MAX];
	int fd = md_log_spare_take(log);
	int r = md_log_path(log, MD_LOG_SPARE_UNFINISHED, path);

	if (fd >= 0) {
		log->spare_fd = fd;
		log->spare_ready = true;
	}
	if (r < 0)
		return r;
	/* What a maker left in the middle of its work; usually there is none. */
	GX_IGNORE(gx_env_unlink(log->env, path));
	md_log_kept_clear(log);
	log->epoch++;
	r = append(log, MD_LOG_EPOCH, NULL, 0);
	if (r == 0)
		r = flush(log);
	if (r == 0)
		r = sync_pass(log);
	return r;
}

static int init(struct md_log *log)
{
	struct gx_env *env = log->env;
	int r;

	log->dir = strdup(log->options.dir);
	if (log->dir == NULL)
		return -ENOMEM;
	log->options.dir = log->dir;
	r = gx_env_mutex_init(env, &log->lock);
	log->lock_ready = r == 0;
	if (r == 0) {
		r = gx_env_cond_init(env, &log->sync_wanted);
		log->sync_wanted_ready = r == 0;
	}
	if (r == 0) {
		r = gx_env_cond_init(env, &log->space_wanted);
		log->space_wanted_ready = r == 0;
	}
	if (r == 0) {
		r = gx_env_cond_init(env, &log->changed);
		log->changed_ready = r == 0;
	}
	return r < 0 ? r : gx_buf_reserve(&log->buffer, BUFFER_BYTES);
}

static int start_threads(struct md_log *log)
{
	int r = gx_env_thread_start(log->env, &log->sync_thread, "log-sync", sync_main, log);

	if (r < 0)
		return r;
	log->sync_started = true;
	r = gx_env_thread_start(log->env, &log->space_thread, "log-space", space_main, log);
	if (r < 0)
		return r;
	log->space_started = true;
	lock(log);
	want_spare(log);
	unlock(log);
	return 0;
}

int md_log_open(const struct md_log_options *options, uint64_t after, md_log_replay_fn fn,
		void *fn_arg, struct md_log **ret_log)
{
	struct md_log *log;
	int r;

	if (options->segment_bytes < SEGMENT_BYTES_MIN || options->segment_bytes % 8 != 0 ||
	    options->segment_bytes > MD_LOG_SEGMENT_MAX)
		return -EINVAL;
	log = calloc(1, sizeof(*log));
	if (log == NULL)
		return -ENOMEM;
	log->options = *options;
	log->env = options->env;
	log->spare_fd = -1;
	log->report_task.fn = report;
	gx_buf_init(&log->buffer, MD_LOG_BUFFER_MAX);
	r = init(log);
	if (r == 0)
		r = md_log_recover(log, after, fn, fn_arg);
	if (r == 0)
		r = begin_epoch(log);
	log->reported = log->durable;
	if (r == 0 && threaded(log))
		r = start_threads(log);
	if (r < 0) {
		md_log_close(log);
		return r;
	}
	*ret_log = log;
	return 0;
}

static void stop_threads(struct md_log *log)
{
	if (log->changed_ready) {
		lock(log);
		log->stopping = true;
		gx_env_cond_signal(log->env, &log->sync_wanted);
		gx_env_cond_signal(log->env, &log->space_wanted);
		unlock(log);
	}
	if (log->sync_started)
		gx_env_thread_join(log->env, &log->sync_thread);
	if (log->space_started)
		gx_env_thread_join(log->env, &log->space_thread);
	if (threaded(log))
		gx_loop_unpost(log->options.loop, &log->report_task);
}

static void free_segments(struct md_log *log, struct md_log_segment *segment)
{
	while (segment != NULL) {
		struct md_log_segment *next = segment->next;

		if (segment->fd >= 0)
			gx_env_close(log->env, segment->fd);
		free(segment);
		segment = next;
	}
}

void md_log_close(struct md_log *log)
{
	if (log == NULL)
		return;
	stop_threads(log);
	free_segments(log, log->segments);
	free_segments(log, log->trash);
	if (log->spare_fd >= 0)
		gx_env_close(log->env, log->spare_fd);
	if (log->changed_ready)
		gx_env_cond_fini(log->env, &log->changed);
	if (log->space_wanted_ready)
		gx_env_cond_fini(log->env, &log->space_wanted);
	if (log->sync_wanted_ready)
		gx_env_cond_fini(log->env, &log->sync_wanted);
	if (log->lock_ready)
		gx_env_mutex_fini(log->env, &log->lock);
	gx_buf_fini(&log->buffer);
	free(log->dir);
	free(log);
}
