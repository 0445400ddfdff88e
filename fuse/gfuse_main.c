/*
 * gfsmount: the grid filesystem as an ordinary directory.
 */
#define GX_LOG_COMPONENT "gfsmount"
#include "fuse/gfuse.h"
#include "client/fs/gfs_path.h"
#include "common/gx_daemon_os.h"
#include "common/gx_log.h"
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PROGRAM "gfsmount"
#define EXIT_USAGE 2
#define CONNECTIONS 16u /* to metad: handlers run at the same time */

static int fail(int code, const char *fmt, ...) GX_PRINTF(2, 3);
static int fail(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, PROGRAM ": ");
	vfprintf(stderr, fmt, args);
	fprintf(stderr, "\n");
	va_end(args);
	return code;
}

/* -- before anything is connected ---------------------------------------------------------------
 */

/* As an absolute path, because we change our directory; and it must be one. */
static int check_mountpoint(struct gfuse_conf *conf)
{
	char *path = conf->absolute;
	struct stat st;

	if (!realpath(conf->mountpoint, path)) {
		if (errno == ENOTCONN)
			return fail(
				1,
				"%s: a mount whose program is gone is in the way; fusermount3 -u "
				"%s or umount %s removes it",
				conf->mountpoint, conf->mountpoint, conf->mountpoint);
		return fail(1, "%s: %s%s", conf->mountpoint, gx_strerror(gx_errno()),
			    errno == ENOENT ? "; make the directory first" : "");
	}
	if (stat(path, &st) < 0)
		return fail(1, "%s: %s; if a dead mount is in the way, umount %s removes it", path,
			    gx_strerror(gx_errno()), path);
	if (!S_ISDIR(st.st_mode))
		return fail(1, "%s: not a directory", path);
	conf->mountpoint = path;
	return 0;
}

static int check_device(void)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	if (errno == ENOENT || errno == ENODEV)
		return fail(1, "/dev/fuse: %s; load the kernel's fuse module (modprobe fuse)",
			    gx_strerror(gx_errno()));
	return fail(1,
		    "/dev/fuse: %s; who may mount must be allowed to read and write it (mode 666)",
		    gx_strerror(gx_errno()));
}

/* "gfs:/a/b", "gfs:a/b", "/a/b", or nothing. */
static const char *subdir_of(const struct gfuse_conf *conf)
{
	const char *path = conf->source ? conf->source : "/";

	if (strncmp(path, "gfs:", 4) == 0)
		path += 4;
	return path[0] ? path : "/";
}

/* -- the parts ----------------------------------------------------------------------------------
 */

static int64_t timeout_ms(const struct gfuse_conf *conf, int64_t ns)
{
	return conf->hard ? -1 : (ns + GX_NSEC_PER_MSEC - 1) / GX_NSEC_PER_MSEC;
}

static int connect_grid(struct gfuse *g)
{
	const struct gfuse_conf *conf = g->conf;
	struct gfs_options options = {
		.config = conf->config && conf->config[0] ? conf->config : NULL,
		.program = PROGRAM "/" GX_VERSION,
		.meta_timeout_ms = timeout_ms(conf, conf->meta_timeout_ns),
		.data_timeout_ms = timeout_ms(conf, conf->data_timeout_ns),
		.cache_bytes = (int64_t)conf->cache_bytes,
		.connections = CONNECTIONS,
	};
	struct gfc_attr attr;
	uid_t uid;
	int r = gfs_connect(&options, &g->fs);

	if (r < 0)
		return fail(1, "%s", gfs_error());
	g->gfc = g->fs->gfc;
	g->gfd = g->fs->gfd;
	r = gfs_whoami(g->fs, &uid, NULL, NULL, 0);
	if (r < 0)
		return fail(1, "%s", gfs_error());
	g->uid = uid;
	r = gfs_path_find(g->gfc, subdir_of(conf), true, &attr);
	if (r == 0 && !S_ISDIR(attr.mode))
		r = gfc_fail(-ENOTDIR, "not a directory");
	if (r < 0)
		return fail(1, "%s in the grid: %s", subdir_of(conf), gx_strerror(r));
	g->root = attr.ref;
	g->root_attr = attr;
	if (gfs_statfs(g->fs, &g->statfs) < 0)
		return fail(1, "%s", gfs_error());
	return 0;
}

static int make_parts(struct gfuse *g)
{
	int r = gx_env_mutex_init(g->env, &g->lock);

	if (r == 0)
		r = gfuse_inodes_new(g->env, &g->inodes);
	if (r == 0)
		r = gfuse_ids_new(g->fs, g->conf->names, &g->ids);
	if (r == 0)
		r = gfuse_notify_new(g, &g->notify);
	if (r == 0)
		r = gfuse_locks_new(g, &g->locks);
	return r < 0 ? fail(1, "%s", gx_strerror(r)) : 0;
}

static void free_parts(struct gfuse *g)
{
	gfuse_locks_free(g->locks);
	gfuse_notify_free(g->notify);
	gfuse_ids_free(g->ids);
	gfuse_inodes_free(g->inodes);
	while (g->buffer_count > 0)
		free(g->buffers[--g->buffer_count]);
}

/* -- the pid file -------------------------------------------------------------------------------
 */

/* Its descriptor, whose lock says that we live; -1: none is wanted. -2: failed, and told. */
static int write_pid(const char *path)
{
	char text[32];
	int fd;

	if (!path || !path[0])
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0) {
		fail(1, "%s: %s", path, gx_strerror(gx_errno()));
		return -2;
	}
	if (gx_env_lock_file(gx_env_posix(), fd) < 0) {
		fail(1, "%s: another " PROGRAM " has it", path);
		close(fd);
		return -2;
	}
	GX_IGNORE(gx_format(text, sizeof(text), "%lld\n", (long long)getpid()));
	if (ftruncate(fd, 0) < 0 || write(fd, text, strlen(text)) < 0) {
		fail(1, "%s: %s", path, gx_strerror(gx_errno()));
		close(fd);
		return -2;
	}
	return fd;
}

/* -- life ---------------------------------------------------------------------------------------
 */

/* One byte for who started us: 0 it is mounted. */
static void tell_starter(int *status_fd, int code)
{
	unsigned char byte = (unsigned char)code;

	if (*status_fd < 0)
		return;
	if (code == 0)
		gx_daemon_null_stdio();
	GX_IGNORE(write(*status_fd, &byte, 1) < 0); /* nobody waits any more */
	close(*status_fd);
	*status_fd = -1;
}

static int serve(struct gfuse *g, int *status_fd)
{
	int code, closed, r;

	code = connect_grid(g);
	if (code == 0)
		code = make_parts(g);
	if (code == 0 && gfuse_session_open(g) < 0)
		code = fail(1, "%s: not mounted", g->conf->mountpoint);
	if (code)
		return code;
	r = gfuse_notify_start(g->notify);
	if (r == 0) {
		tell_starter(status_fd, 0);
		r = gfuse_session_run(g);
	}
	gfuse_locks_stop(g->locks);
	gfuse_notify_stop(g->notify);
	gfuse_session_close(g);
	/* Whatever programs still had open, with what they had written. */
	closed = gfuse_files_close(g);
	if (closed < 0)
		gx_log(ERR, "not all that was written could be kept", GX_KE(closed));
	return r < 0 || closed < 0 ? 1 : 0;
}

static int run(const struct gfuse_conf *conf, int *status_fd)
{
	struct gfuse g = {.env = gx_env_posix(), .conf = conf};
	int pid_fd = write_pid(conf->pid_file), code, r;

	if (pid_fd == -2)
		return 1;
	code = serve(&g, status_fd);
	free_parts(&g);
	r = gfs_disconnect(g.fs);
	if (r < 0 && code == 0)
		code = fail(1, "%s", gfs_error());
	if (pid_fd >= 0)
		unlink(conf->pid_file);
	return code;
}

static int start(struct gfuse_conf *conf)
{
	int status_fd = -1, starter_code = 1, code, r;

	code = check_device();
	if (code == 0)
		code = check_mountpoint(conf);
	if (code)
		return code;
	gx_daemon_harden();
	if (!conf->foreground) {
		r = gx_daemon_fork(PROGRAM, true, &status_fd, &starter_code);
		if (r != 0)
			return r < 0 ? 1 : starter_code;
	}
	/* It must not keep a file system busy, least of all its own. */
	if (!conf->foreground && chdir("/") < 0)
		code = fail(1, "/: %s", gx_strerror(gx_errno()));
	if (code == 0)
		code = run(conf, &status_fd);
	tell_starter(&status_fd, code);
	return code;
}

int main(int argc, char **argv)
{
	struct gfuse_conf conf;
	struct gx_buf errors;
	int r, code;

	gx_buf_init(&errors, GX_CONF_FILE_MAX);
	r = gfuse_conf_parse(&conf, argc, argv, &errors);
	if (r == 0) {
		code = start(&conf);
	} else if (r > 0) {
		code = 0;
	} else {
		const char *text = errors.bytes > 0 ? gx_buf_text(&errors) : NULL;

		code = fail(EXIT_USAGE, "%.*s", text ? (int)strcspn(text, "\n") : 0,
			    text ? text : "");
	}
	gx_buf_fini(&errors);
	gfuse_conf_fini(&conf);
	return code;
}
