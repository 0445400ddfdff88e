/*
 * md_log_impl.h - what the files of the log share: the bytes of a segment, and
 * the object itself.
 *
 * md_log.c appends, commits and syncs; md_log_recover.c reads a directory back;
 * md_log_segment.c knows the bytes and makes segment files.
 */
#ifndef MD_LOG_IMPL_H
#define MD_LOG_IMPL_H

#include "common/gx_buf.h"
#include "metad/md_log.h"
#include <limits.h>

/*
 * A segment: header, then records, then zeros (or what a torn tail left). All
 * numbers little-endian.
 *
 *   header, 64 bytes            record, 40 bytes and the payload, padded to 8
 *    0  magic "GSMDLOG\n"        0  XXH3 of the rest, seeded with the uuid
 *    8  version, 4 bytes         8  payload bytes, 4 bytes
 *   12  header bytes, 4 bytes   12  type, 4 bytes
 *   16  uuid of the log         16  index
 *   32  index of first record   24  epoch
 *   40  epoch when it was made  32  durable: known to be on disk by then
 *   48  durable, as in records
 *   56  XXH3 of the 56 before
 *
 * The header keeps its size and the places of magic, version and checksum in
 * every version, so that a newer one can be told from a damaged one.
 */
#define MD_LOG_HEADER_BYTES 64u
#define MD_LOG_RECORD_HEADER_BYTES 40u
#define MD_LOG_SEGMENT_MAX (UINT64_C(1) << 30) /* a larger file is not ours */
#define MD_LOG_BUFFER_MAX (MD_LOG_RECORD_MAX + 2u * 1024 * 1024)
#define MD_LOG_SPARE "spare"
#define MD_LOG_SPARE_UNFINISHED "spare.tmp"
#define MD_LOG_KEPT "kept." /* and a number below MD_LOG_KEPT_MAX */
#define MD_LOG_KEPT_MAX 4u

enum md_log_type {
	MD_LOG_COMMAND,
	MD_LOG_EPOCH, /* a life of metad begins; no payload, not shown to the replay */
	MD_LOG_TYPE_COUNT
};

struct md_log_header {
	uint8_t uuid[MD_LOG_UUID_BYTES];
	uint64_t first;
	uint64_t epoch;
	uint64_t durable;
};

struct md_log_record {
	enum md_log_type type;
	uint64_t index;
	uint64_t epoch;
	uint64_t durable;
	const void *data;
	size_t bytes;
};

struct md_log_segment {
	struct md_log_segment *next;
	uint64_t first, last; /* indexes; last counts once it is full */
	uint64_t bytes;       /* of the file */
	uint64_t used;        /* header and records; the loop's thread only */
	int fd;               /* -1 once synced and full */
	bool full;            /* nothing is written to it any more */
	bool synced;          /* full, and all of it on disk */
	bool anchored;        /* its name is on disk */
};

struct md_log {
	/* Set by open, then constant. */
	struct md_log_options options;
	struct gx_env *env;
	char *dir;
	uint8_t uuid[MD_LOG_UUID_BYTES];
	uint64_t seed; /* of the checksums, from the uuid */
	uint64_t epoch;

	/* The loop's thread. */
	struct gx_buf buffer; /* records not written yet; they belong at current->used */
	uint64_t next_index;
	uint64_t reported;
	bool reported_sick;

	/* Under the lock. */
	struct gx_mutex lock;
	struct gx_cond sync_wanted, space_wanted, changed;
	bool lock_ready, sync_wanted_ready, space_wanted_ready, changed_ready;
	struct md_log_segment *segments, *current; /* oldest first; current is the last */
	struct md_log_segment *trash;              /* trimmed; names to be removed */
	bool spare_ready, spare_wanted, spare_making;
	bool spare_awaited; /* md_log_busy() was true: its end is to be reported … */
	bool spare_news;    /* … by the next report */
	int spare_fd;
	int64_t retry_ns;    /* after an error: not before */
	unsigned kept_count; /* trimmed segments that will be spares; the space thread's */
	bool stopping;

	/* Written under the lock, read anywhere. */
	_Atomic uint64_t durable;
	_Atomic int sick;
	_Atomic int spare_err;  /* of the last try to make one */
	_Atomic bool sync_idle; /* the sync thread waits, or is about to ask `written` once more */
	/* Written by the loop's thread, without the lock; read anywhere. */
	_Atomic uint64_t written;

	struct gx_thread sync_thread, space_thread;
	bool sync_started, space_started;
	struct gx_task report_task;
};

/* -- md_log_segment.c: bytes and files ------------------------------------- */

static inline size_t md_log_record_span(size_t payload_bytes)
{
	return (MD_LOG_RECORD_HEADER_BYTES + payload_bytes + 7) & ~(size_t)7;
}

void md_log_header_encode(const struct md_log_header *header, void *ret_bytes);
/* -EBADMSG: not a header; -EPROTONOSUPPORT: one of a newer version. */
GX_MUST_CHECK int md_log_header_decode(const void *data, size_t bytes,
				       struct md_log_header *ret_header);
uint64_t md_log_seed(const uint8_t uuid[MD_LOG_UUID_BYTES]);
/* Writes md_log_record_span(record->bytes) bytes. */
void md_log_record_encode(const struct md_log_record *record, uint64_t seed, void *ret_bytes);
/* -EBADMSG: not a whole record. The payload is borrowed. */
GX_MUST_CHECK int md_log_record_decode(const void *data, size_t bytes, uint64_t seed,
				       struct md_log_record *ret_record);

/* <dir>/<first>.log */
GX_MUST_CHECK int md_log_segment_path(const struct md_log *log, uint64_t first,
				      char ret_path[PATH_MAX]);
GX_MUST_CHECK int md_log_path(const struct md_log *log, const char *name, char ret_path[PATH_MAX]);
/* The first index that a segment's name tells; -EINVAL if it is not such a name. */
GX_MUST_CHECK int md_log_segment_name_parse(const char *name, uint64_t *ret_first);
/* A new list element at the end; -ENOMEM. Takes the descriptor. Under the lock once threads run. */
GX_MUST_CHECK int md_log_segment_add(struct md_log *log, uint64_t first, uint64_t bytes, int fd,
				     struct md_log_segment **ret_segment);

/*
 * Makes the spare segment, filled and synced, or takes the one an earlier life
 * left; its descriptor. Slow: tens of milliseconds.
 */
GX_MUST_CHECK int md_log_spare_make(struct md_log *log);
GX_MUST_CHECK int md_log_spare_take(struct md_log *log);
/* Removes a trimmed segment; or keeps it, to become the spare when there is need of one. */
void md_log_segment_retire(struct md_log *log, const struct md_log_segment *segment);
/* Makes a spare of one that was kept; -ENOENT: there is none. */
GX_MUST_CHECK int md_log_spare_from_kept(struct md_log *log);
/* Removes what an earlier life kept. */
void md_log_kept_clear(struct md_log *log);

/* -- md_log_recover.c ------------------------------------------------------- */

/*
 * Reads the directory: fills the list of segments, uuid, epoch (the highest
 * seen), next_index, written and durable (known by now). Bytes that are not
 * known to be on disk are written again; syncing is the caller's.
 */
GX_MUST_CHECK int md_log_recover(struct md_log *log, uint64_t after, md_log_replay_fn fn,
				 void *fn_arg);

#endif
