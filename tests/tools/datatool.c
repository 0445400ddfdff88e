/*
 * datatool - writes and checks large files through libgfs, for the tests of storage.
 *
 *	datatool write PATH BYTES SEED [sync] [wait]
 *		writes in pieces; "sync": fsync at the end; "wait": says "written", and closes when
 *		its input ends
 *	datatool slow PATH BYTES SEED MS
 *		the same in pieces with pauses of MS
 *	datatool read PATH BYTES SEED seq|random|back|odd|pages
 *		checks every byte; "MAX_MS TOTAL_MS": the slowest call and all of it. "pages": each
 *		page of 4 KiB once, in no order, and then again, as the faults of a mapping come
 *	datatool part PATH OFFSET COUNT SEED
 *		checks these bytes
 *	datatool paced PATH BYTES SEED MS
 *		seq with pauses of MS, says "reading" after a tenth
 *	datatool append PATH ID COUNT
 *		appends records
 *	datatool records PATH
 *		"ID COUNT" for each writer; fails if a record is torn, lost in the middle or there
 *		twice
 *	datatool size PATH BYTES
 *		waits until the size is BYTES; "MS"
 *	datatool hold PATH BYTES SEED
 *		reads and checks all, says "read", waits for its input to end and closes; "closed
 *MS" datatool truncate PATH BYTES datatool cut PATH BYTES SEED ROUNDS cuts the file somewhere,
 *lengthens it or not, and writes what is missing, each time datatool watch PATH BYTES SEED reads
 *pieces of such a file until its input ends: each block is the content up to some byte, and zeros
 *behind that; "READS SHORT ZEROS" datatool late PATH OFFSET BYTE COUNT [sync] writes COUNT times
 *BYTE at OFFSET ("sync": and syncs), says "held", waits for its input to end, writes BYTE + 1
 *behind that, syncs and closes; tells how the last three went, each "0" or an errno
 *
 * The grid is the one of GFS_CONFIG. Byte i of a file made with SEED is known: so pieces can be
 * checked in any order. A call that fails is told with its errno and ends the program with 1.
 */
#include "common/gx_base.h"
#include "common/gx_num.h"
#include "include/gfs.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (256u * 1024)
#define PAGE 4096u
#define RECORD_BYTES 1000u
#define LATE_MAX (4u * 1024 * 1024)

static struct gfs *fs;

/* Leaves the grid, so that a file that is removed next is not kept for us. */
GX_NORETURN static void leave(int status)
{
	GX_IGNORE(gfs_disconnect(fs)); /* what went wrong has been told */
	exit(status);
}

GX_NORETURN static void die(const char *what, ssize_t err)
{
	fprintf(stderr, "datatool: %s: %s (%s)\n", what, strerror((int)-err), gfs_error());
	leave(1);
}

static uint64_t number(const char *text)
{
	uint64_t n;

	if (gx_parse_u64(text, &n) < 0)
		die(text, -EINVAL);
	return n;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * GX_NSEC_PER_SEC + t.tv_nsec;
}

static void pause_ms(uint64_t ms)
{
	usleep((useconds_t)(ms * 1000));
}

/* A word of the content: a mixer, so that blocks differ from each other and from zeros. */
static uint64_t word_at(uint64_t seed, uint64_t index)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + index;

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static void fill(unsigned char *buf, size_t bytes, uint64_t seed, uint64_t offset)
{
	for (size_t i = 0; i < bytes;) {
		uint64_t word = word_at(seed, (offset + i) / 8);
		size_t skip = (offset + i) % 8;
		size_t n = GX_MIN(8 - skip, bytes - i);

		memcpy(buf + i, (unsigned char *)&word + skip, n);
		i += n;
	}
}

static struct gfs_file *open_file(const char *path, unsigned flags)
{
	struct gfs_file *file;
	int r = gfs_open(fs, path, flags, 0644, &file);

	if (r < 0)
		die(path, r);
	return file;
}

static void close_file(struct gfs_file *file)
{
	int r = gfs_close(file);

	if (r < 0)
		die("close", r);
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

static void wait_input(void)
{
	char c;

	while (read(STDIN_FILENO, &c, 1) > 0)
		;
}

static void write_all(const char *path, uint64_t bytes, uint64_t seed, uint64_t pause, bool sync,
		      bool wait)
{
	struct gfs_file *file = open_file(path, GFS_O_WRITE | GFS_O_CREATE | GFS_O_TRUNC);
	static unsigned char buf[PIECE];

	for (uint64_t done = 0; done < bytes;) {
		size_t piece = (size_t)GX_MIN((uint64_t)PIECE, bytes - done);
		ssize_t n;

		fill(buf, piece, seed, done);
		n = gfs_write(file, buf, piece);
		if (n != (ssize_t)piece)
			die("write", n < 0 ? n : -EIO);
		done += piece;
		if (pause > 0)
			pause_ms(pause);
	}
	if (sync) {
		int r = gfs_fsync(file);

		if (r < 0)
			die("fsync", r);
	}
	if (wait) {
		say("written");
		wait_input();
	}
	close_file(file);
}

static void check_piece(struct gfs_file *file, uint64_t offset, size_t bytes, uint64_t seed,
			int64_t *max_ns)
{
	static unsigned char got[PIECE], want[PIECE];
	int64_t begin = now_ns(), took;
	size_t have = 0;

	while (have < bytes) {
		ssize_t n = gfs_pread(file, got + have, bytes - have, offset + have);

		if (n <= 0)
			die("read", n < 0 ? n : -ENODATA);
		have += (size_t)n;
	}
	took = now_ns() - begin;
	*max_ns = GX_MAX(*max_ns, took);
	fill(want, bytes, seed, offset);
	if (memcmp(got, want, bytes) != 0) {
		fprintf(stderr, "datatool: wrong bytes at %llu\n", (unsigned long long)offset);
		leave(2);
	}
}

enum how { SEQ, RANDOM, BACK, ODD, PAGES, HOW_COUNT };

static enum how how_of(const char *text)
{
	static const char *const words[HOW_COUNT] = {"seq", "random", "back", "odd", "pages"};

	for (unsigned i = 0; i < HOW_COUNT; i++)
		if (strcmp(text, words[i]) == 0)
			return (enum how)i;
	die(text, -EINVAL);
}

static size_t piece_of(enum how how)
{
	return how == ODD ? 12345 : how == RANDOM || how == PAGES ? PAGE : PIECE;
}

/* Which of `pieces` is read as the i-th. */
static uint64_t piece_at(enum how how, uint64_t pieces, uint64_t seed, uint64_t i)
{
	/* A prime that is no divisor visits each once. */
	uint64_t stride = pieces % 7919 == 0 ? 7907 : 7919;

	switch (how) {
	case RANDOM:
		return word_at(seed + 1, i) % pieces;
	case BACK:
		return pieces - 1 - i;
	case PAGES:
		return i * stride % pieces;
	default:
		return i;
	}
}

static void check_size(struct gfs_file *file, const char *path, uint64_t bytes)
{
	struct gfs_stat st;
	int r = gfs_fstat(file, &st);

	if (r < 0)
		die("fstat", r);
	if (st.size != bytes) {
		fprintf(stderr, "datatool: %s has %llu bytes, not %llu\n", path,
			(unsigned long long)st.size, (unsigned long long)bytes);
		leave(2);
	}
}

static void read_all(const char *path, uint64_t bytes, uint64_t seed, enum how how, uint64_t pause)
{
	struct gfs_file *file = open_file(path, GFS_O_READ);
	size_t piece = piece_of(how);
	uint64_t pieces = (bytes + piece - 1) / piece;
	uint64_t reads = how == PAGES ? 2 * pieces : pieces;
	int64_t max_ns = 0, begin = now_ns();

	check_size(file, path, bytes);
	for (uint64_t i = 0; i < reads; i++) {
		uint64_t at = piece_at(how, pieces, seed, i % pieces);

		check_piece(file, at * piece, (size_t)GX_MIN((uint64_t)piece, bytes - at * piece),
			    seed, &max_ns);
		if (pause > 0) {
			if (i == pieces / 10)
				say("reading");
			pause_ms(pause);
		}
	}
	close_file(file);
	printf("%lld %lld\n", (long long)(max_ns / GX_NSEC_PER_MSEC),
	       (long long)((now_ns() - begin) / GX_NSEC_PER_MSEC));
}

static void read_part(const char *path, uint64_t offset, uint64_t count, uint64_t seed)
{
	struct gfs_file *file = open_file(path, GFS_O_READ);
	int64_t max_ns = 0;

	for (uint64_t done = 0; done < count;) {
		size_t piece = (size_t)GX_MIN((uint64_t)PIECE, count - done);

		check_piece(file, offset + done, piece, seed, &max_ns);
		done += piece;
	}
	close_file(file);
}

static void hold(const char *path, uint64_t bytes, uint64_t seed)
{
	struct gfs_file *file = open_file(path, GFS_O_READ);
	int64_t max_ns = 0, begin;

	check_size(file, path, bytes);
	for (uint64_t at = 0; at < bytes; at += PIECE)
		check_piece(file, at, (size_t)GX_MIN((uint64_t)PIECE, bytes - at), seed, &max_ns);
	say("read");
	wait_input();
	begin = now_ns();
	close_file(file);
	printf("closed %lld\n", (long long)((now_ns() - begin) / GX_NSEC_PER_MSEC));
	fflush(stdout);
}

/* -- records of several writers -----------------------------------------------------------------
 */

struct record {
	uint64_t id, number;
	unsigned char rest[RECORD_BYTES - 16];
};

static void record_make(struct record *record, uint64_t id, uint64_t n)
{
	record->id = id;
	record->number = n;
	fill(record->rest, sizeof(record->rest), id * 1000003 + n, 0);
}

static void append_all(const char *path, uint64_t id, uint64_t count)
{
	struct gfs_file *file = open_file(path, GFS_O_WRITE | GFS_O_CREATE | GFS_O_APPEND);
	struct record record;

	for (uint64_t i = 0; i < count; i++) {
		ssize_t n;

		record_make(&record, id, i);
		n = gfs_write(file, &record, sizeof(record));
		if (n != (ssize_t)sizeof(record))
			die("append", n < 0 ? n : -EIO);
	}
	close_file(file);
}

#define IDS_MAX 64u
static void records(const char *path)
{
	struct gfs_file *file = open_file(path, GFS_O_READ);
	uint64_t next[IDS_MAX] = {0};
	struct record record, want;
	ssize_t n;

	while ((n = gfs_read(file, &record, sizeof(record))) > 0) {
		record_make(&want, record.id, record.number);
		if (n != (ssize_t)sizeof(record) || record.id >= IDS_MAX ||
		    memcmp(&record, &want, sizeof(record)) != 0) {
			fprintf(stderr, "datatool: a torn record\n");
			leave(2);
		}
		if (record.number != next[record.id]) {
			fprintf(stderr, "datatool: writer %llu: record %llu instead of %llu\n",
				(unsigned long long)record.id, (unsigned long long)record.number,
				(unsigned long long)next[record.id]);
			leave(2);
		}
		next[record.id]++;
	}
	if (n < 0)
		die("read", n);
	close_file(file);
	for (unsigned i = 0; i < IDS_MAX; i++)
		if (next[i] > 0)
			printf("%u %llu\n", i, (unsigned long long)next[i]);
}

/* -- what others see ----------------------------------------------------------------------------
 */

static void wait_size(const char *path, uint64_t bytes)
{
	int64_t begin = now_ns();
	struct gfs_stat st;

	for (;;) {
		int r = gfs_stat(fs, path, &st);

		if (r < 0)
			die("stat", r);
		if (st.size >= bytes)
			break;
		if (now_ns() - begin > 20 * GX_NSEC_PER_SEC)
			die("size", -ETIMEDOUT);
		pause_ms(1);
	}
	printf("%lld\n", (long long)((now_ns() - begin) / GX_NSEC_PER_MSEC));
}

static void write_content(struct gfs_file *file, uint64_t from, uint64_t end, uint64_t seed)
{
	static unsigned char buf[PIECE];

	while (from < end) {
		size_t piece = (size_t)GX_MIN((uint64_t)PIECE, end - from);
		ssize_t n;

		fill(buf, piece, seed, from);
		n = gfs_pwrite(file, buf, piece, from);
		if (n != (ssize_t)piece)
			die("write", n < 0 ? n : -EIO);
		from += piece;
	}
}

static void cut(const char *path, uint64_t bytes, uint64_t seed, uint64_t rounds)
{
	struct gfs_file *file = open_file(path, GFS_O_READ | GFS_O_WRITE);

	for (uint64_t i = 0; i < rounds; i++) {
		uint64_t left = word_at(seed + 2, i) % bytes;
		int r = gfs_ftruncate(file, left);

		if (r == 0 && i % 2 == 1)
			r = gfs_ftruncate(file, bytes);
		if (r < 0)
			die("truncate", r);
		write_content(file, left, bytes, seed);
	}
	close_file(file);
}

/* How many of its bytes are content; the others must be zeros. */
static size_t check_block(const unsigned char *got, size_t bytes, uint64_t seed, uint64_t offset)
{
	unsigned char want[PAGE];
	size_t good = 0;

	fill(want, bytes, seed, offset);
	while (good < bytes && got[good] == want[good])
		good++;
	for (size_t i = good; i < bytes; i++) {
		if (got[i] != 0) {
			fprintf(stderr, "datatool: neither content nor zero at %llu\n",
				(unsigned long long)(offset + i));
			leave(2);
		}
	}
	return good;
}

static bool input_ended(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, 0) > 0;
}

static void watch(const char *path, uint64_t bytes, uint64_t seed)
{
	struct gfs_file *file = open_file(path, GFS_O_READ);
	unsigned long long reads = 0, ends = 0, zeros = 0;
	static unsigned char got[PIECE];

	while (!input_ended()) {
		uint64_t at = word_at(seed + 3, reads) % bytes / PAGE * PAGE;
		ssize_t n = gfs_pread(file, got, PIECE, at);

		if (n < 0)
			die("read", n);
		for (size_t i = 0; i < (size_t)n; i += PAGE) {
			size_t part = GX_MIN((size_t)n - i, (size_t)PAGE);

			zeros += check_block(got + i, part, seed, at + i) < part;
		}
		ends += (uint64_t)n < GX_MIN((uint64_t)PIECE, bytes - at);
		if (reads++ == 0)
			say("watching");
	}
	close_file(file);
	printf("%llu %llu %llu\n", reads, ends, zeros);
}

static int write_run(struct gfs_file *file, uint64_t offset, unsigned char byte, size_t count)
{
	static unsigned char buf[LATE_MAX];
	ssize_t n;

	memset(buf, byte, count);
	n = gfs_pwrite(file, buf, count, offset);
	return n == (ssize_t)count ? 0 : n < 0 ? (int)n : -EIO;
}

static void write_late(const char *path, uint64_t offset, unsigned char byte, uint64_t count,
		       bool sync)
{
	struct gfs_file *file = open_file(path, GFS_O_READ | GFS_O_WRITE);
	int written, synced, closed, r;

	if (count > LATE_MAX)
		die("late", -E2BIG);
	r = write_run(file, offset, byte, count);
	if (r == 0 && sync)
		r = gfs_fsync(file);
	if (r < 0)
		die("write", r);
	say("held");
	wait_input();
	written = write_run(file, offset + count, (unsigned char)(byte + 1), count);
	synced = gfs_fsync(file);
	closed = gfs_close(file);
	printf("%d %d %d\n", -written, -synced, -closed);
}

static bool run(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const char *path = argc > 2 ? argv[2] : "";

	if (strcmp(what, "write") == 0 && argc >= 5) {
		bool sync = false, wait = false;

		for (int i = 5; i < argc; i++) {
			sync |= strcmp(argv[i], "sync") == 0;
			wait |= strcmp(argv[i], "wait") == 0;
		}
		write_all(path, number(argv[3]), number(argv[4]), 0, sync, wait);
	} else if (strcmp(what, "slow") == 0 && argc == 6) {
		write_all(path, number(argv[3]), number(argv[4]), number(argv[5]), false, false);
	} else if (strcmp(what, "read") == 0 && argc == 6) {
		read_all(path, number(argv[3]), number(argv[4]), how_of(argv[5]), 0);
	} else if (strcmp(what, "part") == 0 && argc == 6) {
		read_part(path, number(argv[3]), number(argv[4]), number(argv[5]));
	} else if (strcmp(what, "hold") == 0 && argc == 5) {
		hold(path, number(argv[3]), number(argv[4]));
	} else if (strcmp(what, "truncate") == 0 && argc == 4) {
		int r = gfs_truncate(fs, path, number(argv[3]));

		if (r < 0)
			die("truncate", r);
	} else if (strcmp(what, "cut") == 0 && argc == 6) {
		cut(path, number(argv[3]), number(argv[4]), number(argv[5]));
	} else if (strcmp(what, "watch") == 0 && argc == 5) {
		watch(path, number(argv[3]), number(argv[4]));
	} else if (strcmp(what, "paced") == 0 && argc == 6) {
		read_all(path, number(argv[3]), number(argv[4]), SEQ, number(argv[5]));
	} else if (strcmp(what, "append") == 0 && argc == 5) {
		append_all(path, number(argv[3]), number(argv[4]));
	} else if (strcmp(what, "records") == 0 && argc == 3) {
		records(path);
	} else if (strcmp(what, "size") == 0 && argc == 4) {
		wait_size(path, number(argv[3]));
	} else if (strcmp(what, "late") == 0 && (argc == 6 || argc == 7)) {
		write_late(path, number(argv[3]), (unsigned char)number(argv[4]), number(argv[5]),
			   argc == 7 && strcmp(argv[6], "sync") == 0);
	} else {
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct gfs_options options = {.program = "datatool"};
	int r = gfs_connect(&options, &fs);

	if (r < 0)
		die("connect", r);
	if (!run(argc, argv)) {
		fprintf(stderr, "datatool: see the head of datatool.c\n");
		return 64;
	}
	r = gfs_disconnect(fs);
	if (r < 0)
		die("disconnect", r);
	return 0;
}
