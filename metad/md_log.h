/*
 * md_log.h - the log of commands: written ahead of everything else.
 *
 * The namespace is a state machine; a command is in force once it is in the
 * log (rule N1). The commands of a loop turn are applied, appended to a buffer
 * and written by one pwrite(), and only then answered; a sync thread runs
 * fdatasync() back to back and tells the loop how far the disk is.
 *
 * On disk: a directory of segments `<first index, 16 hex digits>.log` (layout:
 * md_log_impl.h). A segment is made whole before it is used, starts with a
 * header (magic, format version, the log's uuid, first index, epoch) and holds
 * records: length, index, epoch, checksum over all of it, payload, padded to 8
 * bytes. Reading stops at the first record that does not fit: wrong checksum,
 * an index that is not the next, or an epoch lower than the one before. Every
 * start writes (and syncs) a record of a new, higher epoch before anything
 * else, so whole records of an earlier life that lie behind a torn tail never
 * parse (N1). That record takes an index of its own and is not replayed: the
 * indexes a replay sees increase, with gaps.
 *
 * Each record also says which index was known to be on disk when it was
 * written. By that a torn tail (nobody was promised those records) is told
 * from damage (somebody was), see md_log_recover.c.
 *
 * An index is given again only if its record was lost in a power cut or never
 * committed, and then under a higher epoch: (epoch, index) is unique for ever.
 *
 * Space (N7): the next segment is made while the current one is filled. If
 * that fails, md_log_room() says so: mutations are answered ENOSPC, reads go
 * on, it is tried again. A failed pwrite or fdatasync makes the log sick for
 * good; metad stops. Nothing is ever synced twice after a failure; the next
 * start writes again what is not known to be on disk before it syncs it.
 *
 * Threads: all calls on the loop's thread; two threads (sync, space)
 * are inside. durable_fn must not close the log.
 */
#ifndef MD_LOG_H
#define MD_LOG_H

#include "common/gx_loop.h"

struct md_log;

#define MD_LOG_RECORD_MAX (2u * 1024 * 1024) /* one command; larger than any request */
#define MD_LOG_VERSION 1u
#define MD_LOG_UUID_BYTES 16u

struct md_log_options {
	struct gx_env *env;
	struct gx_loop *loop;   /* durable_fn is posted here; NULL: no threads (tools, tests) */
	const char *dir;        /* must exist; locked by the caller */
	uint64_t segment_bytes; /* 16 MiB; tests use small ones; 4 KiB to 1 GiB, -EINVAL */
	/*
	 * The disk has moved forward to this index, or (err < 0) the log is sick, or (the same
	 * index as before) the log is no longer busy. On the loop.
	 */
	void (*durable_fn)(void *arg, uint64_t durable_index, int err);
	void *arg;
};

/* One record met while opening; an error returned stops the opening with that error. */
typedef int (*md_log_replay_fn)(void *arg, uint64_t index, uint64_t epoch, const void *data,
				size_t bytes);

/*
 * Opens or makes the log, calls `fn` for every record with an index above
 * `after`, drops the torn tail and begins a new epoch, synced: all that was
 * replayed is then on disk. -EBADMSG: a hole or damage that is no torn tail
 * (what is missing was on disk once, or `after` itself is missing), or a
 * segment of another log; -EPROTONOSUPPORT: written by a newer version;
 * -ENOSPC: no segment has room for the epoch and none can be made (a reserve
 * in each segment makes that rare).
 */
GX_MUST_CHECK int md_log_open(const struct md_log_options *options, uint64_t after,
			      md_log_replay_fn fn, void *fn_arg, struct md_log **ret_log);
/* Does not sync: whoever wants that waits for md_log_durable() first. */
void md_log_close(struct md_log *log);

/*
 * Buffers a record; its index. It may write what is buffered when a segment or the buffer is full,
 * and waits when a segment is filled faster than the next can be made. -E2BIG (also for what does
 * not fit a segment), -ENOMEM, -ENOSPC (see md_log_room): nothing changed; else the log is sick.
 */
GX_MUST_CHECK int md_log_append(struct md_log *log, const void *data, size_t bytes,
				uint64_t *ret_index);
/* One write of all that is buffered. An error means the log is sick. */
GX_MUST_CHECK int md_log_commit(struct md_log *log);

uint64_t md_log_epoch(const struct md_log *log);
/* The index that the next record will get. */
uint64_t md_log_next(const struct md_log *log);
/* Newest index written to the file; newest known to be on disk. */
uint64_t md_log_written(const struct md_log *log);
uint64_t md_log_durable(const struct md_log *log);
/* Waits until everything written is on disk. For start and stop, not for the hot path. */
GX_MUST_CHECK int md_log_sync(struct md_log *log);
/* Is there room for a record of `bytes`? Tries to allocate when there is not. */
bool md_log_room(struct md_log *log, size_t bytes);
/*
 * The segment is nearly full and the next one still being made: an append may have to wait for it,
 * so commands that can wait elsewhere should. durable_fn is called once more when that is over.
 */
bool md_log_busy(struct md_log *log);
/* 0, or the error that made it sick. */
int md_log_sick(const struct md_log *log);
/* Names this log, for a store to remember, so that the two are never mixed up. */
void md_log_uuid(const struct md_log *log, uint8_t ret_uuid[MD_LOG_UUID_BYTES]);

/* Removes segments whose records are all at or below `index`: a synced batch covers them. */
void md_log_trim(struct md_log *log, uint64_t index);

#endif
