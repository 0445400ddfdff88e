/*
 * md_log_segment.c - the bytes of a segment, and how a segment file is made.
 *
 * A segment is made whole before it is used: allocated, filled with zeros in
 * small writes, synced. Why not only allocated: writing into an allocated but
 * never written extent makes ext4 convert it, so each fdatasync() of the log
 * becomes a commit of the filesystem's journal, and pwrite() meets the lock of
 * a committing transaction. Measured here (ext4, virtio disk, busy machine,
 * 256-byte pwrite beside a thread in fdatasync):
 *
 *			     pwrite p50 / p99	  fdatasync p50
 *   growing file	     0.6 / 4 to 11 us	  150 to 300 us
 *   allocated		     0.6 / 3.3 to 7 us	  100 to 370 us
 *   zeros, 1 MiB writes     2.0 / 15 to 50 us	  100 to 300 us
 *   zeros, 16 KiB writes    0.6 / 1.7 to 4 us	   80 to 100 us
 *
 * The third row is why the writes are small: a large write makes large folios
 * in the page cache, and every later small write into one walks all of its
 * blocks, as every sync of one writes more of it. O_DSYNC was rejected: it
 * puts the disk into each commit. A second descriptor changes nothing, since
 * what two calls meet in is the inode.
 *
 * Filling is done in steps with a sync after each, so that the log's own sync
 * never waits behind a whole segment of zeros.
 *
 * A trimmed segment can be used again instead, without any writing. What it
 * still holds does not matter: its records have indexes that the store has on
 * disk, so none of them is ever the next one, and what they say about the disk
 * stays true (md_log_recover.c). Its header is the next one's before it gets the
 * next one's name; a power cut may keep either and lose the other, then it is
 * not part of the log (`valid` in md_log_recover.c) or, under its old name,
 * covered by the store.
 */
#include "metad/md_log_impl.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include <fcntl.h>

#define FILL_WRITE_BYTES (16u * 1024)
#define FILL_STEP_BYTES (1024u * 1024)
#define NAME_DIGITS 16u

static const uint8_t magic[8] = {'G', 'S', 'M', 'D', 'L', 'O', 'G', '\n'};

/* -- header ---------------------------------------------------------------- */

void md_log_header_encode(const struct md_log_header *header, void *ret_bytes)
{
	uint8_t *p = ret_bytes;

	memcpy(p, magic, sizeof(magic));
	gx_put_le32(p + 8, MD_LOG_VERSION);
	gx_put_le32(p + 12, MD_LOG_HEADER_BYTES);
	memcpy(p + 16, header->uuid, MD_LOG_UUID_BYTES);
	gx_put_le64(p + 32, header->first);
	gx_put_le64(p + 40, header->epoch);
	gx_put_le64(p + 48, header->durable);
	gx_put_le64(p + 56, gx_sum64(p, 56));
}

int md_log_header_decode(const void *data, size_t bytes, struct md_log_header *ret_header)
{
	const uint8_t *p = data;

	if (bytes < MD_LOG_HEADER_BYTES || memcmp(p, magic, sizeof(magic)) != 0 ||
	    gx_get_le64(p + 56) != gx_sum64(p, 56))
		return -EBADMSG;
	if (gx_get_le32(p + 8) > MD_LOG_VERSION)
		return -EPROTONOSUPPORT;
	if (gx_get_le32(p + 8) != MD_LOG_VERSION || gx_get_le32(p + 12) != MD_LOG_HEADER_BYTES)
		return -EBADMSG;
	memcpy(ret_header->uuid, p + 16, MD_LOG_UUID_BYTES);
	ret_header->first = gx_get_le64(p + 32);
	ret_header->epoch = gx_get_le64(p + 40);
	ret_header->durable = gx_get_le64(p + 48);
	return 0;
}

uint64_t md_log_seed(const uint8_t uuid[MD_LOG_UUID_BYTES])
{
	return gx_get_le64(uuid) ^ gx_get_le64(uuid + 8);
}

/* -- records --------------------------------------------------------------- */

void md_log_record_encode(const struct md_log_record *record, uint64_t seed, void *ret_bytes)
{
	uint8_t *p = ret_bytes;
	size_t end = MD_LOG_RECORD_HEADER_BYTES + record->bytes;
	size_t span = md_log_record_span(record->bytes);

	gx_assert(record->bytes <= MD_LOG_RECORD_MAX && record->index > record->durable);
	gx_put_le32(p + 8, (uint32_t)record->bytes);
	gx_put_le32(p + 12, (uint32_t)record->type);
	gx_put_le64(p + 16, record->index);
	gx_put_le64(p + 24, record->epoch);
	gx_put_le64(p + 32, record->durable);
	if (record->bytes > 0)
		memcpy(p + MD_LOG_RECORD_HEADER_BYTES, record->data, record->bytes);
	memset(p + end, 0, span - end);
	gx_put_le64(p, gx_sum64_seed(p + 8, end - 8, seed));
}

int md_log_record_decode(const void *data, size_t bytes, uint64_t seed,
			 struct md_log_record *ret_record)
{
	const uint8_t *p = data;
	size_t payload;

	if (bytes < MD_LOG_RECORD_HEADER_BYTES)
		return -EBADMSG;
	payload = gx_get_le32(p + 8);
	/* The cheap questions first: looking for records in a tail asks them at every 8 bytes. */
	if (gx_get_le64(p + 16) <= gx_get_le64(p + 32) || payload > MD_LOG_RECORD_MAX ||
	    gx_get_le32(p + 12) >= MD_LOG_TYPE_COUNT || md_log_record_span(payload) > bytes)
		return -EBADMSG;
	if (gx_get_le64(p) != gx_sum64_seed(p + 8, MD_LOG_RECORD_HEADER_BYTES + payload - 8, seed))
		return -EBADMSG;
	ret_record->type = (enum md_log_type)gx_get_le32(p + 12);
	ret_record->index = gx_get_le64(p + 16);
	ret_record->epoch = gx_get_le64(p + 24);
	ret_record->durable = gx_get_le64(p + 32);
	ret_record->data = p + MD_LOG_RECORD_HEADER_BYTES;
	ret_record->bytes = payload;
	return 0;
}

/* -- names ------------------------------------------------------------------- */

int md_log_path(const struct md_log *log, const char *name, char ret_path[PATH_MAX])
{
	return gx_format(ret_path, PATH_MAX, "%s/%s", log->dir, name);
}

int md_log_segment_path(const struct md_log *log, uint64_t first, char ret_path[PATH_MAX])
{
	return gx_format(ret_path, PATH_MAX, "%s/%016llx.log", log->dir, (unsigned long long)first);
}

int md_log_segment_name_parse(const char *name, uint64_t *ret_first)
{
	char digits[NAME_DIGITS + 1];
	uint8_t bytes[8];
	uint64_t first = 0;

	if (strlen(name) != NAME_DIGITS + 4 || strcmp(name + NAME_DIGITS, ".log") != 0)
		return -EINVAL;
	memcpy(digits, name, NAME_DIGITS);
	digits[NAME_DIGITS] = '\0';
	if (gx_hex_decode(digits, bytes, sizeof(bytes)) < 0)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(bytes); i++)
		first = first << 8 | bytes[i];
	*ret_first = first;
	return first > 0 ? 0 : -EINVAL;
}

int md_log_segment_add(struct md_log *log, uint64_t first, uint64_t bytes, int fd,
		       struct md_log_segment **ret_segment)
{
	struct md_log_segment *segment = calloc(1, sizeof(*segment));

	if (segment == NULL)
		return -ENOMEM;
	segment->first = first;
	segment->last = first - 1;
	segment->bytes = bytes;
	segment->used = MD_LOG_HEADER_BYTES;
	segment->fd = fd;
	if (log->current != NULL)
		log->current->next = segment;
	else
		log->segments = segment;
	log->current = segment;
	*ret_segment = segment;
	return 0;
}

/* -- making ------------------------------------------------------------------- */

static int fill(struct md_log *log, int fd)
{
	static const uint8_t zeros[FILL_WRITE_BYTES];
	uint64_t bytes = log->options.segment_bytes;
	int r = gx_env_fallocate(log->env, fd, 0, 0, bytes);

	/* A filesystem without it: the zeros below take the space. */
	if (r < 0 && r != -EOPNOTSUPP)
		return r;
	for (uint64_t at = 0; at < bytes;) {
		size_t n = (size_t)GX_MIN(bytes - at, (uint64_t)FILL_WRITE_BYTES);

		r = gx_env_pwrite(log->env, fd, zeros, n, at);
		at += n;
		if (r == 0 && at < bytes && at % FILL_STEP_BYTES == 0)
			r = gx_env_fdatasync(log->env, fd);
		if (r < 0)
			return r;
	}
	return gx_env_fsync(log->env, fd);
}

int md_log_spare_make(struct md_log *log)
{
	char unfinished[PATH_MAX];
	char spare[PATH_MAX];
	int fd;
	int r = md_log_path(log, MD_LOG_SPARE_UNFINISHED, unfinished);

	if (r == 0)
		r = md_log_path(log, MD_LOG_SPARE, spare);
	if (r < 0)
		return r;
	fd = gx_env_open(log->env, unfinished, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = fill(log, fd);
	if (r == 0)
		r = gx_env_rename(log->env, unfinished, spare);
	if (r < 0) {
		gx_env_close(log->env, fd);
		/* Gives the space back; if that fails too the next try truncates it. */
		GX_IGNORE(gx_env_unlink(log->env, unfinished));
		return r;
	}
	return fd;
}

int md_log_spare_take(struct md_log *log)
{
	char path[PATH_MAX];
	struct stat st;
	int fd;
	int r = md_log_path(log, MD_LOG_SPARE, path);

	if (r < 0)
		return r;
	fd = gx_env_open(log->env, path, O_RDWR, 0);
	if (fd < 0)
		return fd;
	/* It got its name when it was complete. What an earlier life wrote to it is of a lower
	 * epoch, so it does not matter that it may not be all zeros. */
	r = gx_env_fstat(log->env, fd, &st);
	if (r == 0 && (uint64_t)st.st_size != log->options.segment_bytes)
		r = -ENOENT;
	if (r < 0) {
		gx_env_close(log->env, fd);
		return r;
	}
	return fd;
}

/* -- using again -------------------------------------------------------------- */

static int kept_path(const struct md_log *log, unsigned number, char ret_path[PATH_MAX])
{
	return gx_format(ret_path, PATH_MAX, "%s/" MD_LOG_KEPT "%u", log->dir, number);
}

void md_log_segment_retire(struct md_log *log, const struct md_log_segment *segment)
{
	char path[PATH_MAX];
	char kept[PATH_MAX];

	if (md_log_segment_path(log, segment->first, path) < 0)
		return;
	if (segment->bytes == log->options.segment_bytes && log->kept_count < MD_LOG_KEPT_MAX &&
	    kept_path(log, log->kept_count, kept) == 0 &&
	    gx_env_rename(log->env, path, kept) == 0) {
		log->kept_count++;
		return;
	}
	/* One that stays costs space until the next start, which finds it covered by the store. */
	GX_IGNORE(gx_env_unlink(log->env, path));
}

int md_log_spare_from_kept(struct md_log *log)
{
	char kept[PATH_MAX];
	char spare[PATH_MAX];
	int r;

	if (log->kept_count == 0)
		return -ENOENT;
	r = kept_path(log, --log->kept_count, kept);
	if (r == 0)
		r = md_log_path(log, MD_LOG_SPARE, spare);
	if (r == 0)
		r = gx_env_rename(log->env, kept, spare);
	return r < 0 ? r : md_log_spare_take(log);
}

void md_log_kept_clear(struct md_log *log)
{
	char path[PATH_MAX];

	for (unsigned i = 0; i < MD_LOG_KEPT_MAX; i++)
		if (kept_path(log, i, path) == 0)
			GX_IGNORE(gx_env_unlink(log->env, path));
}
