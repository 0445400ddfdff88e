#include "bench/lib/bytes.h"
#include "client/fs/gfd_impl.h"
#include "client/fs/gfs_impl.h"
#include "common/gx_secret.h"
#include <fcntl.h>
#include <unistd.h>

#define FILE_PATH "/file"
#define RANDOM_PATH "/random"
#define TWICE_PATH "/twice/file"

/* libgfs says more than the number. */
static int told(ssize_t result)
{
	if (result < 0)
		fprintf(stderr, "data: %s\n", gfs_error());
	return result < 0 ? (int)result : 0;
}

/* -- whole files ------------------------------------------------------------------------------- */

static int write_path(struct bytes *b, struct gfs *fs, const char *path, uint64_t bytes, bool sync)
{
	struct gfs_file *file;
	int closed, r;

	r = told(gfs_open(fs, path, GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL, 0644, &file));
	if (r < 0)
		return r;
	for (uint64_t at = 0; r == 0 && at < bytes; at += BYTES_PIECE)
		r = told(gfs_write(file, b->piece, BYTES_PIECE));
	if (r == 0 && sync)
		r = told(gfs_fsync(file));
	closed = told(gfs_close(file));
	return r < 0 ? r : closed;
}

static int read_path(struct bytes *b, struct gfs *fs, const char *path, uint64_t bytes)
{
	struct gfs_file *file;
	int r = told(gfs_open(fs, path, GFS_O_READ, 0, &file));

	if (r < 0)
		return r;
	for (uint64_t at = 0; r == 0 && at < bytes; at += BYTES_PIECE) {
		ssize_t n = gfs_read(file, b->scratch, BYTES_PIECE);

		r = told(n);
		if (r == 0 && n != (ssize_t)BYTES_PIECE)
			r = -ENODATA;
	}
	GX_IGNORE(gfs_close(file)); /* nothing was written */
	return r;
}

/* The local file itself, so that what is read can be compared. */
static int put_source(struct bytes *b, const char *path, uint64_t bytes)
{
	struct gfs_file *file;
	int closed, r;

	r = told(gfs_open(b->near, path, GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL, 0644, &file));
	if (r < 0)
		return r;
	for (uint64_t at = 0; r == 0 && at < bytes; at += BYTES_PIECE) {
		if (pread(b->source_fd, b->scratch, BYTES_PIECE, (off_t)at) != (ssize_t)BYTES_PIECE)
			r = -EIO;
		else
			r = told(gfs_write(file, b->scratch, BYTES_PIECE));
	}
	if (r == 0)
		r = told(gfs_fsync(file));
	closed = told(gfs_close(file));
	return r < 0 ? r : closed;
}

static bool exists(struct bytes *b, const char *path)
{
	struct gfs_stat st;

	return gfs_stat(b->near, path, &st) == 0;
}

int bytes_make_file(struct bytes *b)
{
	if (exists(b, FILE_PATH))
		return 0;
	b->objects++;
	return put_source(b, FILE_PATH, b->file_bytes);
}

int bytes_make_random(struct bytes *b)
{
	if (exists(b, RANDOM_PATH))
		return 0;
	b->objects++;
	return put_source(b, RANDOM_PATH, b->random_bytes);
}

/* -- the command ------------------------------------------------------------------------------- */

static int run_gfs(struct bytes *b, const char *command, const char *from, const char *to)
{
	char *argv[] = {b->program, (char *)(uintptr_t)command, (char *)(uintptr_t)from,
			(char *)(uintptr_t)to, NULL};

	return bytes_command(argv);
}

static int put(struct bytes *b, bool sync, double *ret_mb)
{
	int64_t start;
	int r = bytes_settle(b);

	start = bytes_now_ns();
	if (r == 0)
		r = run_gfs(b, "put", b->source, "/put");
	if (r == 0 && sync && syncfs(b->dir_fd) < 0)
		r = gx_errno();
	*ret_mb = bytes_mb_per_sec(b, start);
	return r < 0 ? r : told(gfs_unlink(b->near, "/put"));
}

int own_side_put(void *arg, double *ret_mb)
{
	return put(arg, false, ret_mb);
}

int own_side_put_synced(void *arg, double *ret_mb)
{
	return put(arg, true, ret_mb);
}

static int check_same(struct bytes *b, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char *other = malloc(BYTES_PIECE);
	int r = fd < 0 ? gx_errno() : other ? 0 : -ENOMEM;

	for (uint64_t at = 0; r == 0 && at < b->file_bytes; at += BYTES_PIECE)
		if (pread(fd, other, BYTES_PIECE, (off_t)at) != (ssize_t)BYTES_PIECE ||
		    pread(b->source_fd, b->scratch, BYTES_PIECE, (off_t)at) !=
			    (ssize_t)BYTES_PIECE ||
		    memcmp(other, b->scratch, BYTES_PIECE) != 0)
			r = -EBADMSG;
	free(other);
	if (fd >= 0)
		close(fd);
	return r;
}

static int get(struct bytes *b, bool sync, double *ret_mb)
{
	char to[GX_PATH_MAX];
	int64_t start;
	int r = bytes_settle(b);

	bytes_path(b, "got", to);
	start = bytes_now_ns();
	if (r == 0)
		r = run_gfs(b, "get", FILE_PATH, to);
	if (r == 0 && sync && syncfs(b->dir_fd) < 0)
		r = gx_errno();
	*ret_mb = bytes_mb_per_sec(b, start);
	if (r == 0)
		r = check_same(b, to);
	unlink(to);
	return r;
}

int own_side_get(void *arg, double *ret_mb)
{
	return get(arg, false, ret_mb);
}

int own_side_get_synced(void *arg, double *ret_mb)
{
	return get(arg, true, ret_mb);
}

/* -- from another host ------------------------------------------------------------------------- */

static int write_far(struct bytes *b, bool sync, double *ret_mb)
{
	int64_t start;
	int r = bytes_settle(b);

	start = bytes_now_ns();
	if (r == 0)
		r = write_path(b, b->far, "/written", b->file_bytes, sync);
	*ret_mb = bytes_mb_per_sec(b, start);
	return r < 0 ? r : told(gfs_unlink(b->far, "/written"));
}

int own_side_write(void *arg, double *ret_mb)
{
	return write_far(arg, false, ret_mb);
}

int own_side_write_synced(void *arg, double *ret_mb)
{
	return write_far(arg, true, ret_mb);
}

int own_side_read(void *arg, double *ret_mb)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns();
	int r = read_path(b, b->far, FILE_PATH, b->file_bytes);

	*ret_mb = bytes_mb_per_sec(b, start);
	return r;
}

int own_side_cpu(void *arg, double *ret_sec_per_gb)
{
	struct bytes *b = arg;
	uint64_t bytes = 0;
	double before, after;
	int r = grid_node_cpu(&b->grid, "fsd1", &before);

	for (; r == 0 && bytes < b->cpu_bytes; bytes += b->file_bytes)
		r = read_path(b, b->far, FILE_PATH, b->file_bytes);
	if (r == 0)
		r = grid_node_cpu(&b->grid, "fsd1", &after);
	if (r == 0)
		*ret_sec_per_gb = (after - before) / ((double)bytes / 1e9);
	return r;
}

/* -- blocks ------------------------------------------------------------------------------------ */

static int pread_block(struct bytes *b)
{
	ssize_t n = gfs_pread(b->open, b->scratch, BYTES_BLOCK, bytes_next_offset(b));

	if (n == (ssize_t)BYTES_BLOCK)
		return 0;
	return n < 0 ? told(n) : -ENODATA;
}

static int pread_all(struct bytes *b)
{
	uint64_t blocks = b->random_bytes / BYTES_BLOCK;
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < blocks; i++)
		r = pread_block(b);
	return r;
}

int bytes_open_random_near(struct bytes *b)
{
	int r = bytes_make_random(b);

	if (r == 0)
		r = told(gfs_open(b->near, RANDOM_PATH, GFS_O_READ, 0, &b->open));
	return r < 0 ? r : pread_all(b);
}

static int pin_all(struct bytes *b, bool pinned)
{
	int r = grid_node_pin(&b->grid, "fsd1", pinned);

	if (r == 0)
		r = grid_pin(b->raw_pid, pinned);
	return r < 0 ? r : grid_pin(0, pinned);
}

int bytes_open_random_far(struct bytes *b)
{
	int r = bytes_make_random(b);

	if (r == 0)
		r = told(gfs_open(b->far, RANDOM_PATH, GFS_O_READ, 0, &b->open));
	if (r == 0)
		r = pread_block(b);
	return r < 0 ? r : pin_all(b, true);
}

int own_side_pread(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns(), now = start;
	uint64_t count = 0;
	int r = 0;

	for (; r == 0 && now < start + b->bench.round_ns; now = bytes_now_ns())
		for (unsigned i = 0; r == 0 && i < 64; i++, count++)
			r = pread_block(b);
	*ret_per_sec = (double)count / ((double)(now - start) / 1e9);
	return r;
}

/* With everything that a program pays that has just opened the file. */
int own_side_pread_once(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns();
	int r = told(gfs_open(b->near, RANDOM_PATH, GFS_O_READ, 0, &b->open));

	if (r == 0)
		r = pread_all(b);
	*ret_per_sec =
		(double)b->random_bytes / BYTES_BLOCK / ((double)(bytes_now_ns() - start) / 1e9);
	GX_IGNORE(gfs_close(GX_TAKE(b->open))); /* nothing was written */
	return r;
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

int own_side_pread_p50(void *arg, double *ret_us)
{
	struct bytes *b = arg;
	uint32_t *samples = b->bench.samples;
	int64_t start = bytes_now_ns(), last = start;
	size_t count = 0;
	int r = 0;

	while (r == 0 && last < start + b->bench.round_ns && count < SAMPLES_MAX) {
		int64_t now;

		r = pread_block(b);
		now = bytes_now_ns();
		samples[count++] = (uint32_t)GX_MIN(now - last, (int64_t)UINT32_MAX);
		last = now;
	}
	qsort(samples, count, sizeof(*samples), compare_u32);
	*ret_us = samples[count / 2] / 1e3;
	return r;
}

/* -- many connections -------------------------------------------------------------------------- */

/* All with one ticket, as the connections of one client. */
struct crowd {
	struct gfc_attach attach;
	struct rpc_endpoint endpoint;
	struct rpc_tls_ctx *tls;
	uint8_t ticket[RPC_FILE_TICKET_BYTES]; /* of the file */
	size_t ticket_bytes;
	unsigned count;
	struct rpc_chan *chans[BYTES_CONNECTIONS];
};

static int crowd_init(struct crowd *crowd, struct bytes *b)
{
	const struct gfc_place *place = &b->far->gfd->files->places[0].place;
	int r = gfc_attach(b->far->gfc, "fsd1", &crowd->attach);

	if (r < 0)
		return told(r);
	memcpy(crowd->ticket, place->ticket, place->ticket_bytes);
	crowd->ticket_bytes = place->ticket_bytes;
	/* Its unix socket comes first. */
	if (crowd->attach.address_count < 2)
		return -EBADMSG;
	r = rpc_endpoint_parse(gx_env_posix(), crowd->attach.addresses[1], false, &crowd->endpoint,
			       NULL);
	return r < 0 ? r
		     : rpc_tls_ctx_new_client(gx_env_posix(), crowd->attach.identity,
					      crowd->attach.key, &crowd->tls);
}

static void crowd_fini(struct crowd *crowd)
{
	while (crowd->count > 0)
		rpc_chan_close(crowd->chans[--crowd->count]);
	rpc_tls_ctx_free(crowd->tls);
	gx_wipe(&crowd->attach, sizeof(crowd->attach));
}

/* A piece, so that the connection has done some work before it is idle. */
static int read_on(struct crowd *crowd, struct bytes *b, struct rpc_chan *chan)
{
	PbData__DataReadRequest message = PB_DATA__DATA_READ_REQUEST__INIT;
	struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_DATA_READ),
				      .message = &message.base,
				      .payload_in = b->scratch,
				      .payload_in_bytes = BYTES_PIECE,
				      .deadline_ns = bytes_now_ns() + 10 * GX_NSEC_PER_SEC};
	struct rpc_reply reply;
	uint64_t call;
	int r;

	message.ticket = (ProtobufCBinaryData){crowd->ticket_bytes, crowd->ticket};
	message.bytes = BYTES_PIECE;
	r = rpc_chan_submit(chan, &request, &call, NULL);
	if (r < 0)
		return r;
	rpc_reply_init(&reply);
	r = rpc_chan_wait(chan, call, &reply);
	if (r == 0 && (reply.status != 0 || reply.payload_bytes != BYTES_PIECE))
		r = -EBADMSG;
	rpc_reply_fini(&reply);
	return r;
}

static int crowd_open(struct crowd *crowd, struct bytes *b)
{
	struct rpc_chan_options options = {.env = gx_env_posix(),
					   .endpoint = &crowd->endpoint,
					   .tls = crowd->tls,
					   .identity = crowd->attach.identity,
					   .key = crowd->attach.key,
					   .program = "bench"};
	int r = 0;

	while (r == 0 && crowd->count < BYTES_CONNECTIONS) {
		options.deadline_ns = bytes_now_ns() + 10 * GX_NSEC_PER_SEC;
		r = rpc_chan_open(&options, &crowd->chans[crowd->count]);
		if (r == 0)
			r = read_on(crowd, b, crowd->chans[crowd->count++]);
	}
	return r;
}

int own_side_connections(void *arg, double *ret_mib)
{
	struct bytes *b = arg;
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	uint64_t bytes = 0;
	int r;

	if (!crowd)
		return -ENOMEM;
	r = crowd_init(crowd, b);
	if (r == 0)
		r = crowd_open(crowd, b);
	if (r == 0)
		r = grid_node_rss(&b->grid, "fsd1", &bytes);
	*ret_mib = (double)bytes / MIB;
	crowd_fini(crowd);
	free(crowd);
	return r;
}

/* -- small ones -------------------------------------------------------------------------------- */

int bytes_open_append(struct bytes *b)
{
	char path[GX_PATH_MAX];
	int r = told(gfs_open(b->near, "/append", GFS_O_WRITE | GFS_O_CREATE | GFS_O_APPEND, 0644,
			      &b->open));

	bytes_path(b, "append", path);
	b->local = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return r == 0 && b->local < 0 ? gx_errno() : r;
}

int own_side_append(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns(), now = start;
	uint64_t count = 0;
	int r = 0;

	for (; r == 0 && now < start + b->bench.round_ns; now = bytes_now_ns(), count++) {
		r = told(gfs_write(b->open, b->piece, BYTES_BLOCK));
		if (r == 0)
			r = told(gfs_fsync(b->open));
	}
	*ret_per_sec = (double)count / ((double)(now - start) / 1e9);
	return r;
}

static int write_small(struct bytes *b, const char *path)
{
	struct gfs_file *file;
	int closed;
	int r = told(gfs_open(b->near, path, GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL, 0644, &file));

	if (r < 0)
		return r;
	r = told(gfs_write(file, b->piece, BYTES_SMALL));
	closed = told(gfs_close(file));
	return r < 0 ? r : closed;
}

int own_side_small_write(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns(), now = start;
	uint64_t count = 0;
	char path[32];
	int r = 0;

	for (; r == 0 && now < start + b->bench.round_ns; now = bytes_now_ns(), count++) {
		GX_IGNORE(gx_format(path, sizeof(path), "/small%llu", (unsigned long long)count));
		r = write_small(b, path);
	}
	*ret_per_sec = (double)count / ((double)(now - start) / 1e9);
	while (r == 0 && count-- > 0) {
		GX_IGNORE(gx_format(path, sizeof(path), "/small%llu", (unsigned long long)count));
		r = told(gfs_unlink(b->near, path));
	}
	return r < 0 ? r : bytes_settle(b);
}

int bytes_make_small(struct bytes *b)
{
	char name[32], path[GX_PATH_MAX];
	int r = 0;

	for (unsigned i = 0; r == 0 && i < BYTES_SMALL_FILES; i++) {
		int fd;

		GX_IGNORE(gx_format(name, sizeof(name), "/s%u", i));
		bytes_path(b, name + 1, path);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, b->piece, BYTES_SMALL) != (ssize_t)BYTES_SMALL)
			r = gx_errno();
		if (fd >= 0)
			close(fd);
		if (r == 0)
			r = write_small(b, name);
		b->objects++;
	}
	return r;
}

int own_side_small_read(void *arg, double *ret_per_sec)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns(), now = start;
	uint64_t count = 0;
	char path[32];
	int r = 0;

	for (; r == 0 && now < start + b->bench.round_ns; now = bytes_now_ns(), count++) {
		struct gfs_file *file;
		ssize_t n;

		GX_IGNORE(gx_format(path, sizeof(path), "/s%u",
				    (unsigned)(count % BYTES_SMALL_FILES)));
		r = told(gfs_open(b->near, path, GFS_O_READ, 0, &file));
		if (r < 0)
			return r;
		n = gfs_read(file, b->scratch, BYTES_SMALL);
		r = n == (ssize_t)BYTES_SMALL ? 0 : n < 0 ? told(n) : -ENODATA;
		GX_IGNORE(gfs_close(file)); /* nothing was written */
	}
	*ret_per_sec = (double)count / ((double)(now - start) / 1e9);
	return r;
}

/* -- copies ------------------------------------------------------------------------------------ */

static int make_dir(struct bytes *b)
{
	int r = gfs_mkdir(b->far, "/twice", 0755);

	return r == -EEXIST ? 0 : r < 0 ? told(r) : told(gfs_set_copies(b->far, "/twice", 2));
}

/* Until the second copy is on disk, too. */
int own_side_write_twice(void *arg, double *ret_mb)
{
	struct bytes *b = arg;
	int64_t start;
	int r = make_dir(b);

	if (r == 0)
		r = bytes_settle(b);
	start = bytes_now_ns();
	if (r == 0)
		r = write_path(b, b->far, "/twice/new", b->file_bytes, true);
	if (r == 0)
		r = told(gfs_wait_copies(b->far, "/twice/new", 60000));
	*ret_mb = bytes_mb_per_sec(b, start);
	return r < 0 ? r : told(gfs_unlink(b->far, "/twice/new"));
}

int bytes_make_twice(struct bytes *b)
{
	int r = make_dir(b);

	if (r < 0 || exists(b, TWICE_PATH))
		return r;
	b->objects += 2;
	r = write_path(b, b->far, TWICE_PATH, b->file_bytes, true);
	return r < 0 ? r : told(gfs_wait_copies(b->far, TWICE_PATH, 60000));
}

int own_side_read_twice(void *arg, double *ret_mb)
{
	struct bytes *b = arg;
	int64_t start = bytes_now_ns();
	int r = read_path(b, b->far, TWICE_PATH, b->file_bytes);

	*ret_mb = bytes_mb_per_sec(b, start);
	return r;
}

/* -- after a test ------------------------------------------------------------------------------ */

static int remove_both(struct bytes *b, const char *name)
{
	char path[GX_PATH_MAX];
	int r = 0;

	bytes_path(b, name + 1, path);
	if (unlink(path) == 0)
		r = told(gfs_unlink(b->near, name));
	return r;
}

int bytes_end_test(struct bytes *b)
{
	char name[32];
	int r = b->open ? told(gfs_close(GX_TAKE(b->open))) : 0;

	if (b->local >= 0)
		close(b->local);
	b->local = -1;
	if (r == 0 && b->raw_pid > 0)
		r = pin_all(b, false);
	if (r == 0)
		r = remove_both(b, "/append");
	for (unsigned i = 0; r == 0 && i < BYTES_SMALL_FILES; i++) {
		GX_IGNORE(gx_format(name, sizeof(name), "/s%u", i));
		r = remove_both(b, name);
	}
	return r;
}
