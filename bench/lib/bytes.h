/*
 * bytes.h - what bench/data measures: a local file, a raw stream and a file of the grid, each
 * written and read in the same way.
 *
 * Everything is in one directory, so raw and ours use the same disk. Each side (figure_fn, its
 * argument is the struct bytes) does its work once and tells a rate or a cost. Sides that write
 * begin with nothing left to write back and with all removed files really gone, so that no side
 * pays for the one before it.
 */
#ifndef BENCH_BYTES_H
#define BENCH_BYTES_H

#include "bench/lib/figure.h"
#include "bench/lib/grid.h"
#include "bench/lib/measure.h"

#define BYTES_PIECE MIB
#define BYTES_BLOCK 4096u
#define BYTES_SMALL (16u * 1024) /* a small file that metad does not keep */
#define BYTES_SMALL_FILES 200u
#define BYTES_CONNECTIONS 1000u

/* Both yardsticks of a stream, of which the lower counts. MB/s. */
struct bytes_note {
	double stream[FIGURE_ROUNDS_MAX], disk[FIGURE_ROUNDS_MAX];
	unsigned count;
};

struct bytes {
	struct grid grid;
	struct bench bench; /* the raw servers, and memory */
	pid_t raw_pid;
	char program[GX_PATH_MAX]; /* gfs */
	char source[GX_PATH_MAX];  /* a local file of file_bytes */
	int source_fd;
	int dir_fd;
	uint64_t file_bytes;
	uint64_t random_bytes; /* a power of two, at most file_bytes */
	uint64_t cpu_bytes;    /* at least so many for a figure about processor time */
	struct gfs *near, *far;
	struct gfs_file *open;  /* of the test that runs */
	int local;              /* the same */
	unsigned char *piece;   /* BYTES_PIECE, random */
	unsigned char *scratch; /* BYTES_PIECE */
	uint64_t serial;        /* of the next name, the next block */
	unsigned objects;       /* that nodes are to keep */
	enum raw_kind stream;   /* RAW_TCP, RAW_TLS */
	struct bytes_note note;
};

/* Starts a grid with one node and the raw servers, and makes the local file. */
GX_MUST_CHECK int bytes_init(struct bytes *b);
void bytes_fini(struct bytes *b);
/* Clients that know nothing yet: after a node was restarted, too. */
GX_MUST_CHECK int bytes_connect(struct bytes *b);
GX_MUST_CHECK int bytes_disconnect(struct bytes *b);

/* Nothing is left to write back, and no object but those that are kept is there. */
GX_MUST_CHECK int bytes_settle(struct bytes *b);
int64_t bytes_now_ns(void);
/* Of b->file_bytes in the time since then. */
double bytes_mb_per_sec(const struct bytes *b, int64_t start_ns);
/* Another block of the first random_bytes, all of them before one comes again. */
uint64_t bytes_next_offset(struct bytes *b);
/* DIR/NAME */
void bytes_path(const struct bytes *b, const char *name, char path[GX_PATH_MAX]);
/* Runs a program and waits; -ECHILD if it fails. */
GX_MUST_CHECK int bytes_command(char *const argv[]);

/* -- raw sides: bytes_raw.c -------------------------------------------------------------------- */

int raw_side_cp(void *arg, double *ret_mb);
int raw_side_cp_synced(void *arg, double *ret_mb); /* until all is on disk */
/* The lower of a stream from memory to memory and of writing a file. */
int raw_side_write(void *arg, double *ret_mb);
int raw_side_write_synced(void *arg, double *ret_mb);
int raw_side_write_twice(void *arg, double *ret_mb); /* two files, synced */
int raw_side_read(void *arg, double *ret_mb);
/* Only the stream. */
int raw_side_upload(void *arg, double *ret_mb);
int raw_side_download(void *arg, double *ret_mb);
int raw_side_pread(void *arg, double *ret_per_sec);
int raw_side_pread_once(void *arg, double *ret_per_sec);
int raw_side_ping(void *arg, double *ret_us);
/* Of a server with sendfile(). */
int raw_side_cpu(void *arg, double *ret_sec_per_gb);
int raw_side_append(void *arg, double *ret_per_sec);
int raw_side_small_write(void *arg, double *ret_per_sec); /* synced */
int raw_side_small_read(void *arg, double *ret_per_sec);

/* -- our sides: bytes_own.c ------------------------------------------------------------------- */

int own_side_put(void *arg, double *ret_mb);
int own_side_put_synced(void *arg, double *ret_mb);
int own_side_get(void *arg, double *ret_mb);
int own_side_get_synced(void *arg, double *ret_mb);
int own_side_write(void *arg, double *ret_mb);
int own_side_write_synced(void *arg, double *ret_mb);
int own_side_read(void *arg, double *ret_mb);
int own_side_pread(void *arg, double *ret_per_sec);
int own_side_pread_once(void *arg, double *ret_per_sec);
int own_side_pread_p50(void *arg, double *ret_us);
int own_side_cpu(void *arg, double *ret_sec_per_gb);
int own_side_connections(void *arg, double *ret_mib);
int own_side_append(void *arg, double *ret_per_sec);
int own_side_small_write(void *arg, double *ret_per_sec);
int own_side_small_read(void *arg, double *ret_per_sec);
int own_side_write_twice(void *arg, double *ret_mb);
int own_side_read_twice(void *arg, double *ret_mb);

/* What the sides above want to be there. */
GX_MUST_CHECK int bytes_make_file(struct bytes *b);        /* get, read, cpu */
GX_MUST_CHECK int bytes_make_random(struct bytes *b);      /* the 4 KiB reads */
GX_MUST_CHECK int bytes_open_random_near(struct bytes *b); /* steady ones */
GX_MUST_CHECK int bytes_open_random_far(struct bytes *b);  /* and pins all that take part */
GX_MUST_CHECK int bytes_open_append(struct bytes *b);
GX_MUST_CHECK int bytes_make_small(struct bytes *b);
GX_MUST_CHECK int bytes_make_twice(struct bytes *b);
/* After a test: what it had open, pinned or left over. */
GX_MUST_CHECK int bytes_end_test(struct bytes *b);

#endif
