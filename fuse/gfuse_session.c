/*
 * The connection to the kernel.
 *
 * libfuse 3.14 knows less than the kernel does: it drops FUSE_PARALLEL_DIROPS (look-ups in one
 * directory would run one at a time), and does not know HANDLE_KILLPRIV_V2 (without which the
 * kernel asks for security.capability before each write) nor mmap() on files opened for direct I/O.
 * So the answer to INIT, the first message there is, gets these bits on its way out. Newer versions
 * of libfuse (3.17) set them; to set them twice does no harm.
 */
#define GX_LOG_COMPONENT "gfsmount"
#include "fuse/gfuse.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#define KILLPRIV_V2 (UINT32_C(1) << 28)
#define INIT_EXT (UINT32_C(1) << 30)
#define DIRECT_IO_ALLOW_MMAP2 (UINT32_C(1) << 4) /* bit 36, in flags2 */
#define IDLE_THREADS GFUSE_THREADS_MAX
#define BACKGROUND_MAX 64u

/* -- INIT ------------------------------------------------------------------------------------- */

/* libfuse offers one place for this: the functions have no argument of ours but `userdata`. */
struct negotiation {
	bool asked, answered;
	uint32_t flags, flags2; /* what the kernel can do */
};
static struct negotiation negotiation;

static ssize_t read_request(int fd, void *buf, size_t bytes, void *userdata GX_UNUSED)
{
	ssize_t n = read(fd, buf, bytes);
	const struct fuse_in_header *header = buf;
	struct fuse_init_in init = {0};

	if (negotiation.asked || n < (ssize_t)sizeof(*header) || header->opcode != FUSE_INIT)
		return n;
	memcpy(&init, (const char *)buf + sizeof(*header),
	       GX_MIN(sizeof(init), (size_t)n - sizeof(*header)));
	negotiation.asked = true;
	negotiation.flags = init.flags;
	negotiation.flags2 = init.flags & INIT_EXT ? init.flags2 : 0;
	return n;
}

static void add_flags(struct gfuse *g, struct fuse_init_out *out)
{
	uint32_t more = negotiation.flags & (FUSE_PARALLEL_DIROPS | KILLPRIV_V2);

	if (negotiation.flags2 & DIRECT_IO_ALLOW_MMAP2) {
		more |= INIT_EXT;
		out->flags2 |= DIRECT_IO_ALLOW_MMAP2;
	}
	out->flags |= more;
	g->kill_priv = (more & KILLPRIV_V2) != 0;
}

/* The mount's device number from the kernel's list: to ask the mount itself would wait for us. */
static int find_device(const char *mountpoint, char device[32])
{
	FILE *list = fopen("/proc/self/mountinfo", "re");
	char line[GX_PATH_MAX * 2], where[GX_PATH_MAX];
	int r = -ENOENT;

	if (!list)
		return gx_errno();
	/* The last one lies on top. */
	while (fgets(line, sizeof(line), list)) {
		char found[32];

		if (sscanf(line, "%*d %*d %31s %*s %4095s", found, where) == 2 &&
		    strcmp(where, mountpoint) == 0)
			r = gx_strcpy(device, 32, found);
	}
	fclose(list);
	return r;
}

/* Only root can; others read with the kernel's own 128 KiB. */
static void set_read_ahead(struct gfuse *g)
{
	char device[32], path[96], text[24];
	int fd;

	if (g->conf->read_ahead_bytes == 0 || find_device(g->conf->mountpoint, device) < 0)
		return;
	GX_IGNORE(gx_format(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", device));
	GX_IGNORE(gx_format(text, sizeof(text), "%llu",
			    (unsigned long long)g->conf->read_ahead_bytes / 1024));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		gx_log(DEBUG, "the kernel's read-ahead stays as it is", GX_KS("file", path));
	if (fd >= 0)
		close(fd);
}

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *userdata)
{
	struct gfuse *g = userdata;
	ssize_t n;

	if (GX_LIKELY(negotiation.answered))
		return writev(fd, iov, count);
	/* The kernel sends nothing else before it is answered. */
	if (count >= 2 && iov[1].iov_len >= offsetof(struct fuse_init_out, unused))
		add_flags(g, iov[1].iov_base);
	n = writev(fd, iov, count);
	negotiation.answered = true;
	/* INIT has just set it. */
	set_read_ahead(g);
	return n;
}

static ssize_t splice_in(int from, off_t *from_offset, int to, off_t *to_offset, size_t bytes,
			 unsigned flags, void *userdata GX_UNUSED)
{
	return splice(from, from_offset, to, to_offset, bytes, flags);
}

static ssize_t splice_out(int from, off_t *from_offset, int to, off_t *to_offset, size_t bytes,
			  unsigned flags, void *userdata GX_UNUSED)
{
	return splice(from, from_offset, to, to_offset, bytes, flags);
}

static const struct fuse_custom_io custom_io = {
	.writev = write_reply,
	.read = read_request,
	.splice_receive = splice_in,
	.splice_send = splice_out,
};

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
	struct gfuse *g = userdata;
	unsigned unwanted = FUSE_CAP_SPLICE_READ;
	unsigned wanted = FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
			  FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ASYNC_READ |
			  FUSE_CAP_ASYNC_DIO | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_AUTO_INVAL_DATA |
			  FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS;

	if (g->conf->writeback)
		wanted |= FUSE_CAP_WRITEBACK_CACHE;
	conn->want = (conn->want & ~unwanted) | (wanted & conn->capable);
	conn->max_write = GFUSE_IO_BYTES;
	conn->max_background = BACKGROUND_MAX;
	conn->congestion_threshold = BACKGROUND_MAX * 3 / 4;
	conn->time_gran = 1;
}

const struct fuse_lowlevel_ops gfuse_ops = {
	.init = on_init,
	.lookup = gfuse_lookup,
	.forget = gfuse_forget,
	.forget_multi = gfuse_forget_multi,
	.getattr = gfuse_getattr,
	.setattr = gfuse_setattr,
	.readlink = gfuse_readlink,
	.mknod = gfuse_mknod,
	.mkdir = gfuse_mkdir,
	.unlink = gfuse_unlink,
	.rmdir = gfuse_rmdir,
	.symlink = gfuse_symlink,
	.rename = gfuse_rename,
	.link = gfuse_link,
	.open = gfuse_open,
	.create = gfuse_create,
	.read = gfuse_read,
	.write = gfuse_write,
	.flush = gfuse_flush,
	.release = gfuse_release,
	.getlk = gfuse_getlk,
	.setlk = gfuse_setlk,
	.flock = gfuse_flock,
	.fsync = gfuse_fsync,
	.opendir = gfuse_opendir,
	.readdir = gfuse_readdir,
	.readdirplus = gfuse_readdirplus,
	.releasedir = gfuse_releasedir,
	.fsyncdir = gfuse_fsyncdir,
	.statfs = gfuse_statfs,
	.getxattr = gfuse_getxattr,
	.setxattr = gfuse_setxattr,
	.listxattr = gfuse_listxattr,
	.removexattr = gfuse_removexattr,
	.access = gfuse_access,
	.fallocate = gfuse_fallocate,
	.lseek = gfuse_lseek,
	.copy_file_range = gfuse_copy_file_range,
};

/* -- life ------------------------------------------------------------------------------------- */

static int session_new(struct gfuse *g)
{
	const struct gfuse_conf *conf = g->conf;
	char *argv[] = {"gfsmount", "-o", (char *)(uintptr_t)conf->pass.data, NULL};
	struct fuse_args args = {.argc = conf->pass.bytes > 0 ? 3 : 1, .argv = argv};

	g->session = fuse_session_new(&args, &gfuse_ops, sizeof(gfuse_ops), g);
	fuse_opt_free_args(&args);
	return g->session ? 0 : -EINVAL; /* libfuse has said why */
}

int gfuse_session_open(struct gfuse *g)
{
	int r = session_new(g);

	if (r < 0)
		return r;
	if (fuse_set_signal_handlers(g->session) != 0) {
		fuse_session_destroy(GX_TAKE(g->session));
		return -EIO;
	}
	if (fuse_session_mount(g->session, g->conf->mountpoint) != 0 ||
	    fuse_session_custom_io(g->session, &custom_io, fuse_session_fd(g->session)) != 0) {
		fuse_remove_signal_handlers(g->session);
		fuse_session_destroy(GX_TAKE(g->session));
		return -EIO;
	}
	return 0;
}

int gfuse_session_run(struct gfuse *g)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_max_threads(config, GFUSE_THREADS_MAX);
	fuse_loop_cfg_set_idle_threads(config, IDLE_THREADS);
	r = fuse_session_loop_mt(g->session, config);
	fuse_loop_cfg_destroy(config);
	/* Positive: the signal that ended it. */
	return r < 0 ? r : 0;
}

/* Unmounts, if nobody has; lazily, so that it does not hang on who still uses it. */
void gfuse_session_close(struct gfuse *g)
{
	if (!g->session)
		return;
	fuse_remove_signal_handlers(g->session);
	fuse_session_unmount(g->session);
	fuse_session_destroy(GX_TAKE(g->session));
}
