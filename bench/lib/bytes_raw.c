#include "bench/lib/bytes.h"
#include <fcntl.h>
#include <unistd.h>

static int check_written(ssize_t n, size_t bytes)
{
	if (n == (ssize_t)bytes)
		return 0;
	return n < 0 ? gx_errno() : -ENOSPC;
}

static int check_read(ssize_t n, size_t bytes)
{
	if (n == (ssize_t)bytes)
		return 0;
	return n < 0 ? gx_errno() : -ENODATA;
}

static int new_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);

	return fd < 0 ? gx_errno() : fd;
}

/* -- copies ------------------------------------------------------------------------------------ */

static int copy(struct bytes *b, bool sync, double *ret_mb)
{
	char to[GX_PATH_MAX];
	char *argv[] = {(char *)(uintptr_t) "cp", b->source, to, NULL};
	int64_t start;
	int r = bytes_settle(b);

	bytes_path(b, "copy", to);
	start = bytes_now_ns();
	if (r == 0)
		r = bytes_command(argv);
	if (r == 0 && sync && syncfs(b->dir_fd) < 0)
		r = gx_errno();
	*ret_mb = bytes_mb_per_sec(b, start);
	unlink(to);
	return r;
}

int raw_side_cp(void *arg, double *ret_mb)
{
	return copy(arg, false, ret_mb);
}

int raw_side_cp_synced(void *arg, double *ret_mb)
{
	return copy(arg, true, ret_mb);
}

/* -- streams ----------------------------------------------------------------------------------- */

int raw_side_upload(void *arg, double *ret_mb)
{
	struct bytes *b = arg;
	struct raw_hello hello = {.request_bytes = b->file_bytes, .reply_bytes = RAW_ACK_BYTES};
	unsigned char ack[RAW_ACK_BYTES];
	struct raw_conn conn;
	int64_t start;
	int r = raw_open(&b->bench.raw, b->stream, &hello, &conn);

	if (r < 0)
		return r;
	start = bytes_now_ns();
	for (uint64_t at = 0; r == 0 && at < b->file_bytes; at += BYTES_PIECE)
		r = raw_write_all(&conn, b->piece, BYTES_PIECE);
	if (r == 0)
		r = raw_read_all(&conn, ack, sizeof(ack));
	*ret_mb = bytes_mb_per_sec(b, start);
	raw_close(&conn);
	return r;
}

static int download(struct bytes *b, bool from_file, double *ret_mb)
{
	struct raw_hello hello = {.request_bytes = RAW_ACK_BYTES,
				  .reply_bytes = b->file_bytes,
				  .from_file = from_file};
	unsigned char request[RAW_ACK_BYTES] = {1};
	struct raw_conn conn;
	int64_t start;
	int r = raw_open(&b->bench.raw, from_file ? RAW_TCP : b->stream, &hello, &conn);

	if (r < 0)
		return r;
	start = bytes_now_ns();
	r = raw_write_all(&conn, request, sizeof(request));
	for (uint64_t at = 0; r == 0 && at < b->file_bytes; at += BYTES_PIECE)
		r = raw_read_all(&conn, b->scratch, BYTES_PIECE);
	*ret_mb = bytes_mb_per_sec(b, start);
	raw_close(&conn);
	return r;
}

int raw_side_download(void *arg, double *ret_mb)
{
	return download(arg, false, ret_mb);
}

/* -- files ------------------------------------------------------------------------------------- */

static int write_file(struct bytes *b, const char *name, bool sync)
{
	char path[GX_PATH_MAX];
	int fd, r = 0;

	bytes_path(b, name, path);
	fd = new_file(path);
	if (fd < 0)
		return fd;
	for (uint64_t at = 0; r == 0 && at < b->file_bytes; at += BYTES_PIECE)
		r = check_written(write(fd, b->piece, BYTES_PIECE), BYTES_PIECE);
	if (r == 0 && sync && fsync(fd) < 0)
		r = gx_errno();
	close(fd);
	return r;
}

static void remove_file(struct bytes *b, const char *name)
{
	char path[GX_PATH_MAX];

	bytes_path(b, name, path);
	unlink(path);
}

static int disk_write(struct bytes *b, bool sync, double *ret_mb)
{
	int64_t start;
	int r = bytes_settle(b);

	start = bytes_now_ns();
	if (r == 0)
		r = write_file(b, "written", sync);
	*ret_mb = bytes_mb_per_sec(b, start);
	remove_file(b, "written");
	return r;
}

static int lower(struct bytes *b, double disk, double *ret_mb)
{
	struct bytes_note *note = &b->note;

	gx_assert(note->count < FIGURE_ROUNDS_MAX);
	note->stream[note->count] = *ret_mb;
	note->disk[note->count++] = disk;
	*ret_mb = GX_MIN(*ret_mb, disk);
	return 0;
}

int raw_side_write(void *arg, double *ret_mb)
{
	double disk;
	int r = raw_side_upload(arg, ret_mb);

	if (r == 0)
		r = disk_write(arg, false, &disk);
	return r < 0 ? r : lower(arg, disk, ret_mb);
}

int raw_side_write_synced(void *arg, double *ret_mb)
{
	double disk;
	int r = raw_side_upload(arg, ret_mb);

	if (r == 0)
		r = disk_write(arg, true, &disk);
	return r < 0 ? r : lower(arg, disk, ret_mb);
}

int raw_side_write_twice(void *arg, double *ret_mb)
{
	struct bytes *b = arg;
	int64_t start;
	int r = bytes_settle(b);

	start = bytes_now_ns();
	if (r == 0)
		r = write_file(b, "written", true);
	if (r == 0)
		r = write_file(b, "again", true);
	*ret_mb = bytes_mb_per_sec(b, start);
	remove_file(b, "written");
	remove_file(b, "again");
	return r;
}

int raw_side_read(void *arg, double *ret_mb)
{
	struct bytes *b = arg;
	int64_t start;
	double disk;
	int r = raw_side_download(b, ret_mb);

	start = bytes_now_ns();
	for (uint64_t at = 0; r == 0 && at < b->file_bytes; at += BYTES_PIECE)
		r = check_read(pread(b->source_fd, b->scratch, BYTES_PIECE, (off_t)at),
			       BYTES_PIECE);
	disk = bytes_mb_per_sec(b, start);
	return r < 0 ? r : lower(b, disk, ret_mb);
}

/* -- blocks ------------------------------------------------------------------------------------ */

static int pread_block(struct bytes *b)
{
	return check_read(pread(b->source_fd, b->scratch, BYTES_BLOCK, (off_t)bytes_next_offset(b)),
			  BYTES_BLOCK);
}

int raw_side_pread(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns(), now = start;
	uint64_t count = 0;
	int r = 0;

	/* The clock is looked at now and then, on both sides. */
	for (; r == 0 && now < start + b->bench.round_ns; now = bytes_now_ns())
		for (unsigned i = 0; r == 0 && i < 64; i++, count++)
			r = pread_block(b);
	*ret_per_sec = (double)count / ((double)(now - start) / 1e9);
	return r;
}

int raw_side_pread_once(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	uint64_t blocks = b->random_bytes / BYTES_BLOCK;
	int64_t start = bytes_now_ns();
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < blocks; i++)
		r = pread_block(b);
	*ret_per_sec = (double)blocks / ((double)(bytes_now_ns() - start) / 1e9);
	return r;
}

int raw_side_ping(void *arg, double *ret_us)
{
	static const struct job job = {RAW_TCP, OURS_TCP, false, SMALL_BYTES};
	struct bytes *b = arg;
	struct result result;
	int r = side_raw_calls(&b->bench, &job, &result);

	if (r == 0)
		*ret_us = result.p50_us;
	return r;
}

int raw_side_cpu(void *arg, double *ret_sec_per_gb)
{
	struct bytes *b = arg;
	uint64_t bytes = 0;
	double before, after, ignored;
	int r = grid_process_cpu(b->raw_pid, &before);

	for (; r == 0 && bytes < b->cpu_bytes; bytes += b->file_bytes)
		r = download(b, true, &ignored);
	if (r == 0)
		r = grid_process_cpu(b->raw_pid, &after);
	if (r == 0)
		*ret_sec_per_gb = (after - before) / ((double)bytes / 1e9);
	return r;
}

/* -- small ones -------------------------------------------------------------------------------- */

int raw_side_append(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns(), now = start;
	uint64_t count = 0;
	int r = 0;

	for (; r == 0 && now < start + b->bench.round_ns; now = bytes_now_ns(), count++) {
		r = check_written(write(b->local, b->piece, BYTES_BLOCK), BYTES_BLOCK);
		if (r == 0 && fsync(b->local) < 0)
			r = gx_errno();
	}
	*ret_per_sec = (double)count / ((double)(now - start) / 1e9);
	return r;
}

/* Each is removed again, when the time is over. */
int raw_side_small_write(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns(), now = start;
	uint64_t count = 0;
	char name[32], path[GX_PATH_MAX];
	int r = 0;

	for (; r == 0 && now < start + b->bench.round_ns; now = bytes_now_ns(), count++) {
		int fd;

		GX_IGNORE(gx_format(name, sizeof(name), "small%llu", (unsigned long long)count));
		bytes_path(b, name, path);
		fd = new_file(path);
		if (fd < 0)
			return fd;
		r = check_written(write(fd, b->piece, BYTES_SMALL), BYTES_SMALL);
		if (r == 0 && fsync(fd) < 0)
			r = gx_errno();
		close(fd);
	}
	*ret_per_sec = (double)count / ((double)(now - start) / 1e9);
	while (count-- > 0) {
		GX_IGNORE(gx_format(name, sizeof(name), "small%llu", (unsigned long long)count));
		remove_file(b, name);
	}
	return r;
}

int raw_side_small_read(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns(), now = start;
	uint64_t count = 0;
	char name[32], path[GX_PATH_MAX];
	int r = 0;

	for (; r == 0 && now < start + b->bench.round_ns; now = bytes_now_ns(), count++) {
		int fd;

		GX_IGNORE(gx_format(name, sizeof(name), "s%u",
				    (unsigned)(count % BYTES_SMALL_FILES)));
		bytes_path(b, name, path);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return gx_errno();
		r = check_read(read(fd, b->scratch, BYTES_SMALL), BYTES_SMALL);
		close(fd);
	}
	*ret_per_sec = (double)count / ((double)(now - start) / 1e9);
	return r;
}
