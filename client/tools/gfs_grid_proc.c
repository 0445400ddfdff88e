#include "client/tools/gfs_grid_proc.h"
#include "common/gx_num.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_WAIT_MS 120000u
#define FIND_WAIT_MS 3000u
#define EXITING 0x4u /* PF_EXITING of the kernel, in /proc/PID/stat */
#define FIND_POLL_MS 10
#define OUR_NAMES "gfs" /* how the names of our daemons begin */

extern char **environ;

/* -- starting ------------------------------------------------------------- */

/* The program's path, or its bare name if it can only be in PATH. */
static void find_program(const char *program, char path[GX_PATH_MAX])
{
	static const char *const places[] = {"", "../sbin/"};
	char self[GX_PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	for (size_t i = 0; slash && i < GX_COUNT_OF(places); i++) {
		slash[1] = '\0';
		if (gx_format(path, GX_PATH_MAX, "%s%s%s", self, places[i], program) == 0 &&
		    access(path, X_OK) == 0)
			return;
	}
	(void)gx_format(path, GX_PATH_MAX, "%s", program);
}

/* The daemon must neither read our terminal nor keep our working directory busy. */
static int spawn(const char *path, char *const *argv, const char *dir, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int r = posix_spawn_file_actions_init(&actions);

	if (r != 0)
		return -r;
	r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_addchdir_np(&actions, dir);
	if (r == 0)
		r = posix_spawnp(ret_pid, path, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

/* Waits for the end of what the pidfd stands for; -ETIMEDOUT. */
static int wait_end(struct gx_env *env, int fd, int64_t deadline_ns)
{
	struct gx_pollfd poll = {.fd = fd, .events = GX_READABLE};
	int r = gx_env_poll(env, &poll, 1, deadline_ns);

	return r < 0 ? r : r == 0 ? -ETIMEDOUT : 0;
}

int gfs_proc_start(struct gx_env *env, const char *program, const char *conf, const char *dir)
{
	char *argv[] = {(char *)program, "--background", "-c", (char *)conf, NULL};

	return gfs_proc_run(env, argv, dir);
}

int gfs_proc_run(struct gx_env *env, char *const *argv, const char *dir)
{
	char path[GX_PATH_MAX];
	int fd, status, r;
	pid_t pid;

	find_program(argv[0], path);
	r = spawn(path, argv, dir, &pid);
	if (r < 0)
		return r;
	fd = pidfd_open(pid, 0);
	if (fd < 0)
		return gx_errno();
	r = wait_end(env, fd, gx_env_deadline_ms(env, START_WAIT_MS));
	gx_env_close(env, fd);
	if (r < 0)
		return r;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return gx_errno();
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* -- finding -------------------------------------------------------------- */

static int read_pid(struct gx_env *env, int fd, pid_t *ret_pid)
{
	char text[32];
	uint64_t pid;
	ssize_t n = gx_env_pread(env, fd, text, sizeof(text) - 1, 0);

	if (n < 0)
		return (int)n;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (gx_parse_u64(text, &pid) < 0 || pid == 0 || pid > INT32_MAX)
		return -EAGAIN;
	*ret_pid = (pid_t)pid;
	return 0;
}

/* The beginning of /proc/PID/<file>; -EAGAIN: the process is gone. */
static int read_proc(struct gx_env *env, pid_t pid, const char *file, char *text, size_t bytes)
{
	char path[64];
	ssize_t n;
	int fd;

	(void)gx_format(path, sizeof(path), "/proc/%lld/%s", (long long)pid, file);
	fd = gx_env_open(env, path, O_RDONLY, 0);
	if (fd < 0)
		return fd == -ENOENT ? -EAGAIN : fd;
	n = gx_env_pread(env, fd, text, bytes - 1, 0);
	gx_env_close(env, fd);
	if (n < 0)
		return n == -ESRCH ? -EAGAIN : (int)n;
	text[n] = '\0';
	return 0;
}

/* A daemon that is starting has the lock before its number is in the file: look at the name too. */
static int check_name(struct gx_env *env, pid_t pid)
{
	char name[32];
	int r = read_proc(env, pid, "comm", name, sizeof(name));

	if (r < 0)
		return r;
	return strncmp(name, OUR_NAMES, strlen(OUR_NAMES)) == 0 ? 0 : -EBADMSG;
}

/* The signals that wait for it, of the line `field` of /proc/PID/status. */
static bool has_pending(const char *status, const char *field, int signo)
{
	const char *line = strstr(status, field);
	unsigned long long set;

	return line && sscanf(line + strlen(field), " %llx", &set) == 1 &&
	       (set & 1ull << (signo - 1));
}

/*
 * A process that was killed keeps its lock until the kernel has taken it apart, which takes time
 * where there is much memory: it is not one that runs. First the signal waits, then the process
 * is exiting. -EAGAIN: it is dying.
 */
static int check_alive(struct gx_env *env, pid_t pid)
{
	char text[4096], *rest;
	unsigned flags;
	int r = read_proc(env, pid, "status", text, sizeof(text));

	if (r < 0)
		return r;
	if (has_pending(text, "\nSigPnd:", SIGKILL) || has_pending(text, "\nShdPnd:", SIGKILL))
		return -EAGAIN;
	r = read_proc(env, pid, "stat", text, sizeof(text));
	if (r < 0)
		return r;
	/* Behind the name: state, parent, group, session, terminal, its group, flags. */
	rest = strrchr(text, ')');
	if (!rest || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
		return -EBADMSG;
	return flags & EXITING ? -EAGAIN : 0;
}

/*
 * The order matters: first the number, then the pidfd, then once more the lock. If it is still
 * held, whoever wrote the number was alive when the pidfd was made.
 */
static int look(struct gx_env *env, int file, struct gfs_proc *ret_proc)
{
	struct gfs_proc proc;
	int r = gx_env_lock_file(env, file);

	if (r != -EAGAIN)
		return r;
	r = read_pid(env, file, &proc.pid);
	if (r < 0)
		return r;
	proc.fd = pidfd_open(proc.pid, 0);
	if (proc.fd < 0)
		return errno == ESRCH ? -EAGAIN : gx_errno();
	r = check_name(env, proc.pid);
	if (r == 0)
		r = check_alive(env, proc.pid);
	if (r == 0) {
		r = gx_env_lock_file(env, file);
		if (r == -EAGAIN) {
			*ret_proc = proc;
			return 1;
		}
	}
	gx_env_close(env, proc.fd);
	return r;
}

int gfs_proc_find(struct gx_env *env, const char *pid_path, struct gfs_proc *ret_proc)
{
	int64_t deadline_ns = gx_env_deadline_ms(env, FIND_WAIT_MS);

	for (;;) {
		/* Opened afresh each time: the name may lead to another file by now. */
		int file = gx_env_open(env, pid_path, O_RDWR | O_NOFOLLOW, 0);
		int64_t now_ns;
		int r;

		if (file < 0)
			return file == -ENOENT ? 0 : file;
		r = look(env, file, ret_proc);
		gx_env_close(env, file);
		now_ns = gx_env_now_ns(env);
		if (r != -EAGAIN || now_ns >= deadline_ns)
			return r;
		gx_env_sleep_until(env, now_ns + FIND_POLL_MS * GX_NSEC_PER_MSEC);
	}
}

void gfs_proc_close(struct gx_env *env, struct gfs_proc *proc)
{
	if (proc->fd >= 0)
		gx_env_close(env, proc->fd);
	proc->fd = -1;
}

/* -- signals -------------------------------------------------------------- */

int gfs_proc_signal(const struct gfs_proc *proc, int signo)
{
	return pidfd_send_signal(proc->fd, signo, NULL, 0) < 0 ? gx_errno() : 0;
}

int gfs_proc_stop(struct gx_env *env, const struct gfs_proc *proc, int signo, int64_t deadline_ns)
{
	int r = gfs_proc_signal(proc, signo);

	if (r < 0 && r != -ESRCH)
		return r;
	return wait_end(env, proc->fd, deadline_ns);
}
