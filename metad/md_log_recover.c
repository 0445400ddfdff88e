/*
 * md_log_recover.c - reading the log back after whatever happened.
 *
 * The valid records are a prefix: they are read until one does not fit. What
 * lies behind that point is either a torn tail, which a power cut leaves and
 * which nobody was promised, or damage, which must not be passed over. They
 * are told apart by testimony: every record and header carries the index that
 * was known to be on disk when it was written. If any whole one, wherever it
 * lies behind the end, says that the index now missing was on disk once, then
 * it is damage (-EBADMSG). Such a statement stays true in every later life,
 * because what is on disk is never taken back, so stale records may be heard
 * as well. Rejected: "a later segment exists, so it is damage"; a power cut
 * may keep a later segment and lose the end of the one before it.
 *
 * After a kill the end of the log may still be in memory only, and after a
 * failed fdatasync the kernel takes the pages for clean that it could not
 * write. Another fdatasync would then succeed and mean nothing (N7). So what
 * is not known to be on disk is written once more, the same bytes at the same
 * place, before it is synced and built upon.
 */
#include "metad/md_log_impl.h"
#include "common/gx_num.h"
#include <fcntl.h>

struct found {
	uint64_t first;
	bool valid; /* its header is */
	struct md_log_header header;
};

struct recovery {
	struct md_log *log;
	uint64_t after;
	md_log_replay_fn fn;
	void *fn_arg;
	struct found *found; /* by first index */
	size_t found_count;
	uint64_t epoch;     /* of the last accepted record or header */
	uint64_t testified; /* highest index that was on disk once, by what is read so far */
	uint64_t epoch_max; /* highest in anything whole, accepted or not */
	uint8_t *content;   /* of the segment read last */
	size_t content_bytes;
	size_t end; /* of the accepted records in it */
};

/* -- what is there --------------------------------------------------------- */

static int collect(void *arg, const char *name)
{
	struct recovery *rec = arg;
	struct found *grown;
	uint64_t first;

	if (md_log_segment_name_parse(name, &first) < 0)
		return 0;
	grown = realloc(rec->found, (rec->found_count + 1) * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	rec->found = grown;
	rec->found[rec->found_count++] = (struct found){.first = first};
	return 0;
}

static int compare_found(const void *a, const void *b)
{
	const struct found *x = a;
	const struct found *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

static void hear(struct recovery *rec, uint64_t epoch, uint64_t durable)
{
	rec->epoch_max = GX_MAX(rec->epoch_max, epoch);
	rec->testified = GX_MAX(rec->testified, durable);
}

static int segment_open(struct recovery *rec, const struct found *found)
{
	char path[PATH_MAX];
	int r = md_log_segment_path(rec->log, found->first, path);

	return r < 0 ? r : gx_env_open(rec->log->env, path, O_RDWR, 0);
}

static int read_header(struct recovery *rec, struct found *found, bool *uuid_known)
{
	struct md_log *log = rec->log;
	uint8_t bytes[MD_LOG_HEADER_BYTES];
	ssize_t n;
	int fd = segment_open(rec, found);
	int r;

	if (fd < 0)
		return fd;
	n = gx_env_pread(log->env, fd, bytes, sizeof(bytes), 0);
	gx_env_close(log->env, fd);
	if (n < 0)
		return (int)n;
	r = md_log_header_decode(bytes, (size_t)n, &found->header);
	if (r == -EBADMSG)
		return 0; /* the tail may begin here; recover() decides */
	if (r < 0)
		return r;
	if (*uuid_known && memcmp(log->uuid, found->header.uuid, sizeof(log->uuid)) != 0)
		return -EBADMSG;
	memcpy(log->uuid, found->header.uuid, sizeof(log->uuid));
	*uuid_known = true;
	/* A spare that an earlier life had begun to use carries a header of then; a power cut may
	 * have kept its new name and lost its new header. No damage: the tail begins here. */
	found->valid = found->header.first == found->first;
	hear(rec, found->header.epoch, found->header.durable);
	return 0;
}

static int read_headers(struct recovery *rec, bool *ret_uuid_known)
{
	bool uuid_known = false;
	int r = gx_env_list_dir(rec->log->env, rec->log->dir, collect, rec);

	if (rec->found_count > 0)
		qsort(rec->found, rec->found_count, sizeof(*rec->found), compare_found);
	for (size_t i = 0; i < rec->found_count && r == 0; i++)
		r = read_header(rec, &rec->found[i], &uuid_known);
	if (r == 0)
		*ret_uuid_known = uuid_known;
	return r;
}

static int read_content(struct recovery *rec, int fd)
{
	struct md_log *log = rec->log;
	struct stat st;
	ssize_t n;
	int r = gx_env_fstat(log->env, fd, &st);

	if (r < 0)
		return r;
	if ((uint64_t)st.st_size > MD_LOG_SEGMENT_MAX)
		return -EBADMSG;
	free(rec->content);
	rec->content_bytes = 0;
	rec->content = malloc((size_t)st.st_size + 1);
	if (rec->content == NULL)
		return -ENOMEM;
	n = gx_env_pread(log->env, fd, rec->content, (size_t)st.st_size, 0);
	if (n < 0)
		return (int)n;
	rec->content_bytes = (size_t)n;
	return 0;
}

/* -- the prefix ------------------------------------------------------------ */

/* Accepts records up to the first that does not fit. */
static int walk(struct recovery *rec)
{
	struct md_log *log = rec->log;
	struct md_log_record record;
	size_t at = MD_LOG_HEADER_BYTES;

	while (at < rec->content_bytes &&
	       md_log_record_decode(rec->content + at, rec->content_bytes - at, log->seed,
				    &record) == 0) {
		if (record.index != log->next_index || record.epoch < rec->epoch)
			break;
		if (record.index > rec->after && record.type == MD_LOG_COMMAND) {
			int r = rec->fn(rec->fn_arg, record.index, record.epoch, record.data,
					record.bytes);

			if (r < 0)
				return r;
		}
		rec->epoch = record.epoch;
		hear(rec, record.epoch, record.durable);
		log->next_index++;
		at += md_log_record_span(record.bytes);
	}
	rec->end = at;
	return 0;
}

/* Writes the accepted records above `testified` once more. */
static int write_again(struct recovery *rec, int fd)
{
	size_t at = MD_LOG_HEADER_BYTES;

	while (at < rec->end && gx_get_le64(rec->content + at + 16) <= rec->testified)
		at += md_log_record_span(gx_get_le32(rec->content + at + 8));
	if (at == MD_LOG_HEADER_BYTES)
		at = 0; /* the header was written just before these */
	return gx_env_pwrite(rec->log->env, fd, rec->content + at, rec->end - at, at);
}

static int accept_segment(struct recovery *rec, const struct found *found)
{
	struct md_log *log = rec->log;
	struct md_log_segment *segment;
	int fd = segment_open(rec, found);
	int r;

	if (fd < 0)
		return fd;
	rec->epoch = found->header.epoch;
	r = read_content(rec, fd);
	if (r == 0)
		r = walk(rec);
	/* Of an empty segment the header itself may be as new. */
	if (r == 0 && (rec->end == MD_LOG_HEADER_BYTES || log->next_index - 1 > rec->testified))
		r = write_again(rec, fd);
	if (r == 0)
		r = md_log_segment_add(log, found->first, rec->content_bytes, fd, &segment);
	if (r < 0) {
		gx_env_close(log->env, fd);
		return r;
	}
	segment->used = rec->end;
	segment->last = log->next_index - 1;
	return 0;
}

/* Segments that are full: known to be on disk, or to be synced with the next. */
static void settle_segments(struct recovery *rec)
{
	struct md_log *log = rec->log;

	for (struct md_log_segment *s = log->segments; s != NULL && s->next != NULL; s = s->next) {
		s->full = true;
		if (s->last > rec->testified)
			continue;
		s->synced = true;
		if (s->fd >= 0)
			gx_env_close(log->env, s->fd);
		s->fd = -1;
	}
}

/* -- what lies behind it --------------------------------------------------- */

/*
 * At every 8 bytes, for nobody knows where records begin behind a torn one; but a sound record is
 * whole, so none begins inside it. A segment used again is full of old ones: without that step its
 * tail costs seconds.
 */
static void listen_from(struct recovery *rec, size_t at)
{
	struct md_log_record record;

	while (at + MD_LOG_RECORD_HEADER_BYTES <= rec->content_bytes) {
		if (md_log_record_decode(rec->content + at, rec->content_bytes - at, rec->log->seed,
					 &record) < 0) {
			at += 8;
			continue;
		}
		hear(rec, record.epoch, record.durable);
		at += md_log_record_span(record.bytes);
	}
}

/* Hears everything behind the end and removes the segments that are not part of the log. */
static int judge_tail(struct recovery *rec, size_t rest)
{
	struct md_log *log = rec->log;
	int r = 0;

	if (log->current != NULL)
		listen_from(rec, rec->end);
	for (size_t i = rest; i < rec->found_count && r == 0; i++) {
		int fd = segment_open(rec, &rec->found[i]);

		if (fd < 0)
			return fd;
		r = read_content(rec, fd);
		gx_env_close(log->env, fd);
		if (r == 0)
			listen_from(rec, MD_LOG_HEADER_BYTES);
	}
	if (r == 0 && rec->testified >= log->next_index)
		r = -EBADMSG;
	for (size_t i = rec->found_count; i > rest && r == 0; i--) {
		char path[PATH_MAX];

		r = md_log_segment_path(log, rec->found[i - 1].first, path);
		if (r == 0)
			r = gx_env_unlink(log->env, path);
	}
	/* Their names must not come back once others have been given the same indexes. */
	if (r == 0 && rest < rec->found_count)
		r = gx_env_sync_dir(log->env, log->dir);
	return r;
}

/* The segment that holds `after + 1` or will: the last sound one that does not begin behind it. */
static int find_start(const struct recovery *rec, size_t *ret_start)
{
	for (size_t i = rec->found_count; i > 0; i--) {
		if (rec->found[i - 1].valid && rec->found[i - 1].first <= rec->after + 1) {
			*ret_start = i - 1;
			return 0;
		}
	}
	return -EBADMSG;
}

/* Those before the start are covered by the store and wait for the next trim. */
static int keep_covered(struct recovery *rec, size_t start)
{
	int r = 0;

	for (size_t i = 0; i < start && r == 0; i++) {
		struct md_log_segment *segment;

		r = md_log_segment_add(rec->log, rec->found[i].first, 0, -1, &segment);
		if (r == 0)
			segment->last = rec->found[i + 1].first - 1;
	}
	return r;
}

static int recover(struct recovery *rec)
{
	struct md_log *log = rec->log;
	bool uuid_known;
	size_t i;
	int r = read_headers(rec, &uuid_known);

	if (r < 0)
		return r;
	log->next_index = 1;
	if (rec->found_count == 0) {
		if (rec->after > 0)
			return -EBADMSG;
		return gx_env_random(log->env, log->uuid, sizeof(log->uuid));
	}
	r = find_start(rec, &i);
	if (r == 0)
		r = keep_covered(rec, i);
	if (r < 0)
		return r;
	log->seed = md_log_seed(log->uuid);
	log->next_index = rec->found[i].first;
	for (; i < rec->found_count && r == 0; i++) {
		const struct found *found = &rec->found[i];

		if (!found->valid || found->first != log->next_index ||
		    found->header.epoch < rec->epoch)
			break;
		r = accept_segment(rec, found);
	}
	if (r == 0)
		r = judge_tail(rec, i);
	if (r == 0 && log->next_index <= rec->after)
		r = -EBADMSG;
	if (r == 0)
		settle_segments(rec);
	return r;
}

int md_log_recover(struct md_log *log, uint64_t after, md_log_replay_fn fn, void *fn_arg)
{
	/* The store holds only what was on disk in the log (N1): it testifies too. */
	struct recovery rec = {
		.log = log, .after = after, .fn = fn, .fn_arg = fn_arg, .testified = after};
	int r = recover(&rec);

	if (r == 0) {
		log->seed = md_log_seed(log->uuid);
		log->epoch = rec.epoch_max;
		log->written = log->next_index - 1;
		log->durable = rec.testified;
	}
	free(rec.found);
	free(rec.content);
	return r;
}
