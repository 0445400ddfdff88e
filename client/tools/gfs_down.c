/*
 * gfs down - stops the daemons of a grid that gfs up has started; with --destroy the grid goes,
 * too.
 */
#include "client/tools/gfs_grid_dir.h"
#include "client/tools/gfs_grid_proc.h"
#include "client/tools/gfs_tool.h"
#include "common/gx_num.h"
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#define DAEMONS_MAX 256u
#define NAME_BYTES 64u
#define KILL_WAIT_MS 5000u

struct down {
	struct gfs_grid grid;
	const char *dir;
	int64_t timeout_ns;
	bool force, destroy, yes;
	/* What has a pid file. */
	char names[DAEMONS_MAX][NAME_BYTES]; /* "metad" */
	size_t count;
	size_t stopped;
};

static void print_help(void)
{
	printf("Usage: gfs down [OPTION]...\n"
	       "Stops the grid that gfs up has started. Its data stay.\n\n"
	       "Options:\n"
	       "  -d, --dir DIR       the directory; default: $GFS_GRID, else ~/.gridstage/grid\n"
	       "  -W, --timeout TIME  how long a daemon may take to stop (30s)\n"
	       "      --force         kill those that take longer\n"
	       "      --destroy       remove the grid with all its data as well\n"
	       "  -y, --yes           do not ask before that\n"
	       "  -h, --help          print this text\n");
}

static int parse_options(int argc, char **argv, struct down *down)
{
	static const struct option longs[] = {
		{"dir", required_argument, NULL, 'd'},
		{"timeout", required_argument, NULL, 'W'},
		{"force", no_argument, NULL, 'f'},
		{"destroy", no_argument, NULL, 'D'},
		{"yes", no_argument, NULL, 'y'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "d:W:yh", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			down->dir = optarg;
			break;
		case 'W':
			if (gx_parse_duration(optarg, &down->timeout_ns) < 0)
				return gfs_fail("down", GFS_EXIT_USAGE,
						"--timeout %s: wants a time like 30s", optarg);
			break;
		case 'f':
			down->force = true;
			break;
		case 'D':
			down->destroy = true;
			break;
		case 'y':
			down->yes = true;
			break;
		case 'h':
			print_help();
			exit(GFS_EXIT_OK);
		default:
			fprintf(stderr, "Try: gfs down --help\n");
			return GFS_EXIT_USAGE;
		}
	}
	if (optind != argc)
		return gfs_fail("down", GFS_EXIT_USAGE,
				"wants no argument; the directory is --dir");
	if (down->dir && !down->dir[0])
		return gfs_fail("down", GFS_EXIT_USAGE, "--dir wants a directory");
	return 0;
}

/* Before anything is stopped. */
static int ask(const struct down *down)
{
	char answer[16] = "";

	if (!down->destroy || down->yes)
		return 0;
	if (!isatty(STDIN_FILENO))
		return gfs_fail("down", GFS_EXIT_USAGE,
				"--destroy wants --yes if nobody can be "
				"asked");
	printf("Remove the grid in %s with all its files? Type yes: ", down->grid.dir);
	fflush(stdout);
	if (!fgets(answer, sizeof(answer), stdin) || strcmp(answer, "yes\n") != 0)
		return gfs_fail("down", GFS_EXIT_FAILED, "nothing was done");
	return 0;
}

/* -- stopping ------------------------------------------------------------- */

static int add_name(void *arg, const char *file)
{
	struct down *down = arg;
	const char *dot = strrchr(file, '.');

	if (!dot || strcmp(dot, ".pid") != 0)
		return 0;
	if (down->count == DAEMONS_MAX ||
	    gx_format(down->names[down->count], NAME_BYTES, "%.*s", (int)(dot - file), file) < 0)
		return -E2BIG;
	down->count++;
	return 0;
}

static int list_daemons(struct down *down)
{
	char path[GX_PATH_MAX];
	int r = gfs_grid_path(&down->grid, GFS_GRID_RUN, path);

	if (r == 0)
		r = gx_env_list_dir(down->grid.env, path, add_name, down);
	return r == -ENOENT ? 0 : r;
}

static int stop_found(struct down *down, const char *name, const struct gfs_proc *proc)
{
	struct gx_env *env = down->grid.env;
	const char *how = "stopped";
	int r = gfs_proc_stop(env, proc, SIGTERM, gx_env_now_ns(env) + down->timeout_ns);

	if (r == -ETIMEDOUT && down->force) {
		how = "killed";
		r = gfs_proc_stop(env, proc, SIGKILL, gx_env_deadline_ms(env, KILL_WAIT_MS));
	}
	if (r == -ETIMEDOUT)
		return gfs_fail("down", GFS_EXIT_FAILED, "%s (process %lld) does not stop%s", name,
				(long long)proc->pid, down->force ? "" : "; see --force");
	if (r < 0)
		return gfs_fail("down", GFS_EXIT_FAILED, "%s (process %lld): %s", name,
				(long long)proc->pid, gx_strerror(r));
	printf("%s (process %lld) %s\n", name, (long long)proc->pid, how);
	down->stopped++;
	return 0;
}

static int stop_one(struct down *down, const char *name)
{
	char file[NAME_BYTES + 16], path[GX_PATH_MAX];
	struct gfs_proc proc;
	int code, r;

	(void)gx_format(file, sizeof(file), GFS_GRID_PID_OF, name);
	r = gfs_grid_path(&down->grid, file, path);
	if (r == 0)
		r = gfs_proc_find(down->grid.env, path, &proc);
	if (r == -EAGAIN)
		return gfs_fail("down", GFS_EXIT_FAILED,
				"%s is just starting or stopping; try again", name);
	if (r == -EBADMSG)
		return gfs_fail("down", GFS_EXIT_FAILED,
				"%s: the process named there is no daemon of ours, left alone",
				path);
	if (r < 0)
		return gfs_fail("down", GFS_EXIT_FAILED, "%s: %s", path, gx_strerror(r));
	if (r == 0)
		return 0; /* only the file is left, of a crash */
	code = stop_found(down, name, &proc);
	gfs_proc_close(down->grid.env, &proc);
	return code;
}

/* The mount first, because it writes to the others; metad last: they tell it that they leave. */
static int turn_of(const char *name)
{
	return strcmp(name, GFS_GRID_MOUNT) == 0 ? 0 : strcmp(name, GFS_GRID_METAD) == 0 ? 2 : 1;
}

static int stop_all(struct down *down)
{
	int code = 0;

	for (int turn = 0; turn < 3; turn++) {
		for (size_t i = 0; i < down->count; i++) {
			if (turn_of(down->names[i]) != turn)
				continue;
			if (stop_one(down, down->names[i]) != 0)
				code = GFS_EXIT_FAILED;
		}
	}
	return code;
}

static int down_grid(struct down *down, struct gx_buf *errors)
{
	int code, r;

	code = ask(down);
	if (code)
		return code;
	r = list_daemons(down);
	if (r < 0)
		return gfs_fail("down", GFS_EXIT_FAILED, "%s/" GFS_GRID_RUN ": %s", down->grid.dir,
				gx_strerror(r));
	code = stop_all(down);
	if (code)
		return code;
	if (down->stopped == 0)
		printf("nothing was running in %s\n", down->grid.dir);
	if (!down->destroy) {
		gfs_grid_clean(&down->grid);
		return GFS_EXIT_OK;
	}
	r = gfs_grid_destroy(&down->grid, errors);
	if (r < 0)
		return gfs_fail_buf("down", errors, r);
	printf("%s removed\n", down->grid.dir);
	return GFS_EXIT_OK;
}

int gfs_down_main(struct gx_env *env, int argc, char **argv)
{
	GX_AUTOFREE struct down *down = calloc(1, sizeof(*down));
	char path[GX_PATH_MAX];
	struct gx_buf errors;
	int code, r;

	if (!down)
		return gfs_fail("down", GFS_EXIT_FAILED, "out of memory");
	down->timeout_ns = 30 * GX_NSEC_PER_SEC;
	code = parse_options(argc, argv, down);
	if (code)
		return code;
	r = gfs_grid_default(down->dir, path);
	if (r < 0)
		return gfs_fail("down", GFS_EXIT_FAILED, "which directory? %s; see --dir",
				gx_strerror(r));
	gx_buf_init(&errors, 8192);
	r = gfs_grid_open(&down->grid, env, path, false, &errors);
	code = r < 0 ? gfs_fail_buf("down", &errors, r) : down_grid(down, &errors);
	gx_buf_fini(&errors);
	gfs_grid_close(&down->grid);
	return code;
}
