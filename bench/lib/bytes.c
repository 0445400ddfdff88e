#include "bench/lib/bytes.h"
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#define GONE_WAIT_NS (20 * GX_NSEC_PER_SEC)
#define GONE_PAUSE_NS (20 * GX_NSEC_PER_MSEC)

extern char **environ;

int64_t bytes_now_ns(void)
{
	return gx_env_now_ns(gx_env_posix());
}

double bytes_mb_per_sec(const struct bytes *b, int64_t start_ns)
{
	return (double)b->file_bytes / 1e6 / ((double)(bytes_now_ns() - start_ns) / 1e9);
}

/* An odd factor and a power of two: each block once before any comes again. */
uint64_t bytes_next_offset(struct bytes *b)
{
	uint64_t blocks = b->random_bytes / BYTES_BLOCK;

	return (b->serial++ * 2654435761u) % blocks * BYTES_BLOCK;
}

void bytes_path(const struct bytes *b, const char *name, char path[GX_PATH_MAX])
{
	GX_IGNORE(gx_format(path, GX_PATH_MAX, "%s/%s", b->grid.dir, name));
}

int bytes_command(char *const argv[])
{
	posix_spawn_file_actions_t quiet;
	pid_t pid;
	int status;
	int r;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", 1, 0);
	r = -posix_spawnp(&pid, argv[0], &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	if (r < 0)
		return r;
	if (waitpid(pid, &status, 0) < 0)
		return gx_errno();
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* -- between two measurements ------------------------------------------------------------------ */

static unsigned objects_seen; /* nftw() takes no argument */

/* The bytes of an object: two numbers and a dot, no ending. */
static int count_object(const char *path, const struct stat *st GX_UNUSED, int type, struct FTW *at)
{
	if (type == FTW_F && !strchr(path + at->base, 's') && !strchr(path + at->base, 'n'))
		objects_seen++;
	return 0;
}

static unsigned count_objects(const struct bytes *b)
{
	char name[64], path[GX_PATH_MAX];

	objects_seen = 0;
	for (unsigned i = 1; i <= b->grid.fsds; i++) {
		GX_IGNORE(gx_format(name, sizeof(name), "grid/fsd%u/spool/objects", i));
		bytes_path(b, name, path);
		nftw(path, count_object, 16, FTW_PHYS); /* what vanishes meanwhile is gone */
	}
	return objects_seen;
}

/* metad tells nodes to remove objects when it is ready to, and tells nobody else. */
static void wait_until_gone(const struct bytes *b)
{
	int64_t end = bytes_now_ns() + GONE_WAIT_NS;

	while (count_objects(b) > b->objects) {
		if (bytes_now_ns() > end) {
			fprintf(stderr, "data: removed files are still there after %d s\n",
				(int)(GONE_WAIT_NS / GX_NSEC_PER_SEC));
			return;
		}
		gx_env_sleep_until(gx_env_posix(), bytes_now_ns() + GONE_PAUSE_NS);
	}
}

/*
 * A virtual machine may have given free memory back to its host, and the first touch of a page then
 * costs more than all that is measured here. So a file is written and removed, and the next one
 * gets its memory.
 */
static int warm_memory(const struct bytes *b)
{
	char path[GX_PATH_MAX];
	int fd, r = 0;

	bytes_path(b, "warm", path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return gx_errno();
	for (uint64_t at = 0; r == 0 && at < b->file_bytes; at += BYTES_PIECE)
		if (write(fd, b->piece, BYTES_PIECE) != (ssize_t)BYTES_PIECE)
			r = errno ? gx_errno() : -ENOSPC;
	close(fd);
	unlink(path);
	return r;
}

int bytes_settle(struct bytes *b)
{
	wait_until_gone(b);
	if (syncfs(b->dir_fd) < 0)
		return gx_errno();
	return warm_memory(b);
}

/* -- life -------------------------------------------------------------------------------------- */

static int fill_random(void *buf, size_t bytes)
{
	unsigned char *p = buf;

	while (bytes > 0) {
		ssize_t n = getrandom(p, bytes, 0);

		if (n < 0)
			return gx_errno();
		p += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Each piece differs from the others in its first bytes. */
static int make_source(struct bytes *b)
{
	bytes_path(b, "source", b->source);
	b->source_fd = open(b->source, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (b->source_fd < 0)
		return gx_errno();
	for (uint64_t at = 0; at < b->file_bytes; at += BYTES_PIECE) {
		memcpy(b->piece, &at, sizeof(at));
		if (write(b->source_fd, b->piece, BYTES_PIECE) != (ssize_t)BYTES_PIECE)
			return errno ? gx_errno() : -ENOSPC;
	}
	return 0;
}

static int start_raw(struct bytes *b)
{
	char path[GX_PATH_MAX];
	int r = raw_tls_init(&b->bench.tls);

	bytes_path(b, "raw", path);
	if (r == 0)
		r = raw_server_init(&b->bench.raw, &b->bench.tls, path);
	if (r < 0)
		return r;
	b->bench.raw.file = b->source_fd;
	fflush(NULL);
	b->raw_pid = fork();
	if (b->raw_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		raw_server_run(&b->bench.raw);
	}
	return b->raw_pid < 0 ? gx_errno() : 0;
}

int bytes_init(struct bytes *b)
{
	int r;

	b->source_fd = b->dir_fd = b->local = -1;
	b->piece = gx_alloc_pages(BYTES_PIECE);
	b->scratch = gx_alloc_pages(BYTES_PIECE);
	b->bench.payload = calloc(1, SMALL_BYTES);
	b->bench.samples = calloc(SAMPLES_MAX, sizeof(*b->bench.samples));
	if (!b->piece || !b->scratch || !b->bench.payload || !b->bench.samples)
		return -ENOMEM;
	r = fill_random(b->piece, BYTES_PIECE);
	if (r == 0)
		r = grid_program(b->program);
	if (r == 0)
		r = grid_start(&b->grid, 1);
	if (r == 0)
		r = grid_environ(&b->grid, GRID_NEAR);
	if (r == 0) {
		b->dir_fd = open(b->grid.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = b->dir_fd < 0 ? gx_errno() : make_source(b);
	}
	if (r == 0)
		r = start_raw(b);
	return r < 0 ? r : bytes_connect(b);
}

int bytes_connect(struct bytes *b)
{
	int r = grid_connect_host(&b->grid, GRID_NEAR, &b->near);

	return r < 0 ? r : grid_connect_host(&b->grid, GRID_FAR, &b->far);
}

int bytes_disconnect(struct bytes *b)
{
	int near = gfs_disconnect(GX_TAKE(b->near));
	int far = gfs_disconnect(GX_TAKE(b->far));

	return near < 0 ? near : far;
}

void bytes_fini(struct bytes *b)
{
	char path[GX_PATH_MAX];

	GX_IGNORE(bytes_end_test(b)); /* what went wrong was told before */
	GX_IGNORE(bytes_disconnect(b));
	if (b->raw_pid > 0) {
		kill(b->raw_pid, SIGKILL);
		waitpid(b->raw_pid, NULL, 0);
		bytes_path(b, "raw", path);
		unlink(path);
	}
	raw_server_fini(&b->bench.raw);
	raw_tls_fini(&b->bench.tls);
	if (b->source_fd >= 0) {
		close(b->source_fd);
		unlink(b->source);
	}
	if (b->dir_fd >= 0)
		close(b->dir_fd);
	grid_stop(&b->grid);
	free(b->piece);
	free(b->scratch);
	free(b->bench.payload);
	free(b->bench.samples);
}
