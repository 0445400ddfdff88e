#include "bench/lib/grid.h"
#include "client/fs/gfs_impl.h"
#include "common/gx_num.h"
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_WAIT_MS 30000

extern char **environ;

/* build/bench/meta -> build/bin/gfs */
int grid_program(char path[GX_PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, GX_PATH_MAX - 1);
	char *slash;

	if (n < 0)
		return gx_errno();
	path[n] = '\0';
	for (int i = 0; i < 2; i++) {
		slash = strrchr(path, '/');
		if (!slash)
			return -ENOENT;
		*slash = '\0';
	}
	slash = path + strlen(path);
	return gx_strcpy(slash, GX_PATH_MAX - (size_t)(slash - path), "/bin/gfs");
}

/* gfs COMMAND --dir DIR/grid OPTION OPTION, quietly but for errors. */
static int run_gfs(const struct grid *grid, const char *command, const char *option1,
		   const char *option2)
{
	char path[GX_PATH_MAX], dir[sizeof(grid->dir) + 8];
	char *argv[] = {path, (char *)(uintptr_t)command, (char *)(uintptr_t) "--dir",
			dir,  (char *)(uintptr_t)option1, (char *)(uintptr_t)option2,
			NULL};
	posix_spawn_file_actions_t quiet;
	pid_t pid;
	int status;
	int r = grid_program(path);

	if (r == 0)
		r = gx_format(dir, sizeof(dir), "%s/grid", grid->dir);
	if (r < 0)
		return r;
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", 1, 0);
	r = -posix_spawn(&pid, path, &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	if (r < 0)
		return r;
	if (waitpid(pid, &status, 0) < 0)
		return gx_errno();
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

static int read_line(FILE *f, char *line, size_t bytes)
{
	if (!fgets(line, (int)bytes, f))
		return -EBADMSG;
	line[strcspn(line, "\n")] = '\0';
	return 0;
}

static FILE *open_file(const struct grid *grid, const char *name)
{
	char path[GX_PATH_MAX];

	if (gx_format(path, sizeof(path), "%s/grid/run/%s", grid->dir, name) < 0)
		return NULL;
	return fopen(path, "re");
}

static int read_addresses(struct grid *grid)
{
	FILE *f = open_file(grid, "metad.addr");
	int r = f ? 0 : gx_errno();

	for (int kind = 0; r == 0 && kind < GRID_KIND_COUNT; kind++)
		r = read_line(f, grid->addresses[kind], sizeof(grid->addresses[kind]));
	if (f)
		fclose(f);
	return r;
}

static int read_pid(const struct grid *grid, const char *name, pid_t *ret_pid)
{
	char line[64];
	uint64_t pid = 0;
	FILE *f;
	int r = gx_format(line, sizeof(line), "%s.pid", name);

	if (r < 0)
		return r;
	f = open_file(grid, line);
	r = f ? read_line(f, line, sizeof(line)) : gx_errno();
	if (r == 0)
		r = gx_parse_u64(line, &pid);
	if (f)
		fclose(f);
	*ret_pid = (pid_t)pid;
	return r;
}

/* Starts what is not there. */
static int up(const struct grid *grid, unsigned fsds)
{
	char count[16];
	int r = gx_format(count, sizeof(count), "%u", fsds);

	return r < 0 ? r : run_gfs(grid, "up", "--fsd", count);
}

int grid_start(struct grid *grid, unsigned fsds)
{
	const char *tmp = getenv("TMPDIR");
	int r;

	*grid = (struct grid){0};
	r = gx_format(grid->dir, sizeof(grid->dir), "%s/grid.XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
	if (r < 0 || !mkdtemp(grid->dir)) {
		grid->dir[0] = '\0';
		return r < 0 ? r : gx_errno();
	}
	grid->fsds = fsds;
	r = up(grid, fsds);
	if (r == 0)
		r = read_addresses(grid);
	if (r == 0)
		r = read_pid(grid, "metad", &grid->metad);
	return r;
}

void grid_stop(struct grid *grid)
{
	if (grid->dir[0] == '\0')
		return;
	if (grid->metad > 0)
		GX_IGNORE(run_gfs(grid, "down", "--destroy", "--yes"));
	rmdir(grid->dir);
	grid->dir[0] = '\0';
}

int grid_connect(const struct grid *grid, enum grid_kind kind, int64_t cache_bytes,
		 struct gfs **ret_fs)
{
	char config[sizeof(grid->dir) + 16];
	struct gfs_options options = {.config = config,
				      .metad = grid->addresses[kind],
				      .program = "bench",
				      .connections = 1,
				      .cache_bytes = cache_bytes};
	int r = gx_format(config, sizeof(config), "%s/grid/gfs.conf", grid->dir);

	return r < 0 ? r : gfs_connect(&options, ret_fs);
}

/* Fields 14 and 15 of stat: ticks in user and kernel mode. */
static int cpu_of(const char *path, double *ret_sec)
{
	FILE *f = fopen(path, "re");
	char line[1024];
	char *p, *save = NULL;
	uint64_t ticks = 0;
	int r = f ? read_line(f, line, sizeof(line)) : gx_errno();

	if (f)
		fclose(f);
	/* The name in parentheses may contain anything; behind it comes field 3. */
	p = r == 0 ? strrchr(line, ')') : NULL;
	if (!p)
		return r < 0 ? r : -EBADMSG;
	p = strtok_r(p + 1, " ", &save);
	for (int field = 3; p && field <= 15; field++, p = strtok_r(NULL, " ", &save)) {
		uint64_t n;

		if (field >= 14 && gx_parse_u64(p, &n) == 0)
			ticks += n;
	}
	*ret_sec = (double)ticks / (double)sysconf(_SC_CLK_TCK);
	return 0;
}

int grid_cpu(const struct grid *grid, double *ret_loop, double *ret_all)
{
	char path[64];
	int r = gx_format(path, sizeof(path), "/proc/%d/task/%d/stat", (int)grid->metad,
			  (int)grid->metad);

	if (r == 0)
		r = cpu_of(path, ret_loop);
	if (r == 0)
		r = gx_format(path, sizeof(path), "/proc/%d/stat", (int)grid->metad);
	return r < 0 ? r : cpu_of(path, ret_all);
}

int grid_longest_turn_ns(struct gfs *fs, uint64_t *ret_ns, uint64_t *ret_work_ns)
{
	PbMeta__StatusRequest request = PB_META__STATUS_REQUEST__INIT;
	struct rpc_reply reply;
	int r = rpc_client_call(gfc_rpc(fs->gfc), rpc_method_get(RPC_INDEX_STATUS), &request.base,
				NULL, &reply);

	if (r == 0) {
		*ret_ns = ((PbMeta__StatusReply *)reply.message)->longest_turn_ns;
		*ret_work_ns = ((PbMeta__StatusReply *)reply.message)->longest_work_ns;
	}
	rpc_reply_fini(&reply);
	return r;
}

/* -- storage nodes ----------------------------------------------------------------------------- */

int grid_connect_host(const struct grid *grid, const char *host, struct gfs **ret_fs)
{
	char config[sizeof(grid->dir) + 16];
	struct gfs_options options = {.config = config, .program = "bench", .host = host};
	int r = gx_format(config, sizeof(config), "%s/grid/gfs.conf", grid->dir);

	return r < 0 ? r : gfs_connect(&options, ret_fs);
}

int grid_environ(const struct grid *grid, const char *host)
{
	char config[sizeof(grid->dir) + 16];
	int r = gx_format(config, sizeof(config), "%s/grid/gfs.conf", grid->dir);

	if (r == 0 && (setenv("GFS_CONFIG", config, 1) < 0 || setenv("GFS_HOST", host, 1) < 0))
		r = gx_errno();
	return r;
}

int grid_grow(struct grid *grid, unsigned fsds)
{
	if (grid->fsds < fsds)
		grid->fsds = fsds;
	return up(grid, grid->fsds);
}

/* Ends it and waits until it is gone; `gfs up` starts it again. */
static int stop_node(const struct grid *grid, const char *name)
{
	struct pollfd end = {.events = POLLIN};
	pid_t pid;
	int r = read_pid(grid, name, &pid);

	if (r < 0)
		return r;
	end.fd = pidfd_open(pid, 0);
	if (end.fd < 0)
		return gx_errno();
	if (kill(pid, SIGTERM) < 0)
		r = gx_errno();
	if (r == 0 && poll(&end, 1, STOP_WAIT_MS) != 1)
		r = -ETIMEDOUT;
	close(end.fd);
	return r;
}

static int write_dropin(const char *path, const char *unix_address)
{
	FILE *f = fopen(path, "we");
	bool failed;

	if (!f)
		return gx_errno();
	failed = fprintf(f, "[fsd]\nlisten = %s,tls:127.0.0.1:0\n", unix_address) < 0;
	return fclose(f) != 0 || failed ? -EIO : 0;
}

static int set_listen(const struct grid *grid, const char *name, bool tls)
{
	char dir[GX_PATH_MAX], path[GX_PATH_MAX + 16], line[GX_PATH_MAX];
	FILE *f;
	int r;

	if (gx_format(dir, sizeof(dir), "%s/grid/%s.conf.d", grid->dir, name) < 0 ||
	    gx_format(path, sizeof(path), "%s/bench.conf", dir) < 0 ||
	    gx_format(line, sizeof(line), "%s.addr", name) < 0)
		return -ENAMETOOLONG;
	if (!tls)
		return unlink(path) == 0 || errno == ENOENT ? 0 : gx_errno();
	f = open_file(grid, line);
	r = f ? read_line(f, line, sizeof(line)) : gx_errno(); /* its unix socket comes first */
	if (f)
		fclose(f);
	if (r == 0 && mkdir(dir, 0700) < 0 && errno != EEXIST)
		r = gx_errno();
	return r < 0 ? r : write_dropin(path, line);
}

int grid_use_tls(const struct grid *grid, bool tls)
{
	char name[16];
	int r = 0;

	for (unsigned i = 1; r == 0 && i <= grid->fsds; i++) {
		r = gx_format(name, sizeof(name), "fsd%u", i);
		if (r == 0)
			r = set_listen(grid, name, tls);
		if (r == 0)
			r = stop_node(grid, name);
	}
	return r < 0 ? r : up(grid, grid->fsds);
}

/* As fine as the kernel counts, and with what threads used that have ended. */
int grid_process_cpu(pid_t pid, double *ret_sec)
{
	struct timespec used;
	clockid_t clock;
	int r = -clock_getcpuclockid(pid, &clock);

	if (r < 0)
		return r;
	if (clock_gettime(clock, &used) < 0)
		return gx_errno();
	*ret_sec = (double)used.tv_sec + (double)used.tv_nsec / 1e9;
	return 0;
}

int grid_node_cpu(const struct grid *grid, const char *name, double *ret_sec)
{
	pid_t pid;
	int r = read_pid(grid, name, &pid);

	return r < 0 ? r : grid_process_cpu(pid, ret_sec);
}

int grid_node_rss(const struct grid *grid, const char *name, uint64_t *ret_bytes)
{
	char path[64], line[256];
	char *p, *save = NULL;
	uint64_t pages;
	pid_t pid;
	FILE *f;
	int r = read_pid(grid, name, &pid);

	if (r == 0)
		r = gx_format(path, sizeof(path), "/proc/%d/statm", (int)pid);
	if (r < 0)
		return r;
	f = fopen(path, "re");
	r = f ? read_line(f, line, sizeof(line)) : gx_errno();
	if (f)
		fclose(f);
	p = r == 0 && strtok_r(line, " ", &save) ? strtok_r(NULL, " ", &save) : NULL;
	if (!p || gx_parse_u64(p, &pages) < 0)
		return r < 0 ? r : -EBADMSG;
	*ret_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

int grid_pin(pid_t pid, bool pinned)
{
	struct dirent *entry;
	char path[64];
	cpu_set_t set;
	DIR *tasks;
	int r = gx_format(path, sizeof(path), "/proc/%d/task", (int)(pid ? pid : getpid()));

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < (pinned ? 1 : CPU_SETSIZE); cpu++)
		CPU_SET(cpu, &set);
	tasks = r == 0 ? opendir(path) : NULL;
	if (!tasks)
		return r < 0 ? r : gx_errno();
	while ((entry = readdir(tasks))) {
		uint64_t thread;

		/* Where it is forbidden, or the thread has ended, the figures are noisier. */
		if (gx_parse_u64(entry->d_name, &thread) == 0)
			GX_IGNORE(sched_setaffinity((pid_t)thread, sizeof(set), &set));
	}
	closedir(tasks);
	return 0;
}

int grid_node_pin(const struct grid *grid, const char *name, bool pinned)
{
	pid_t pid;
	int r = read_pid(grid, name, &pid);

	return r < 0 ? r : grid_pin(pid, pinned);
}
