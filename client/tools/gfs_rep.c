/*
 * gfs rep - how many copies files shall have.
 *
 * With --wait the numbers are set first and everything is waited for then, in a second walk: so the
 * nodes copy many files at a time.
 */
#include "client/tools/gfs_walk.h"
#include "common/gx_num.h"

static const char help[] =
	"Usage: gfs rep -n N [-r] [--wait] [-v] PATH...\n"
	"       gfs rep --wait [-r] PATH...\n"
	"Says how many copies a file shall have, on as many hosts; of a directory: what is\n"
	"made in it from now on. Storage nodes make them one after the other. A small file\n"
	"keeps the number for the time when it is larger.\n\n"
	"Options:\n"
	"  -n, --copies N     1 to 64\n"
	"  -r, -R, --recursive  directories with all in them\n"
	"      --wait         until the copies are there\n"
	"  -W, --timeout TIME wait for at most so long for all of them (for ever)\n"
	"  -v, --verbose      say what was changed\n" GFS_COMMON_HELP;

enum { OPT_WAIT = GFS_OPT_OWN };

struct rep {
	struct gfs_tool *tool;
	uint64_t copies; /* 0: not to be changed */
	bool recursive, wait, verbose;
	int64_t timeout_ns;  /* 0: for ever */
	int64_t deadline_ns; /* GX_FOREVER */
};

static int parse_value(struct rep *rep, int c)
{
	if (c == 'n' && (gx_parse_u64(optarg, &rep->copies) < 0 || rep->copies < 1 ||
			 rep->copies > GFS_COPIES_MAX))
		return gfs_tool_usage(rep->tool, "--copies %s: wants a number from 1 to %d", optarg,
				      GFS_COPIES_MAX);
	if (c == 'W' && (gx_parse_duration(optarg, &rep->timeout_ns) < 0 || rep->timeout_ns == 0))
		return gfs_tool_usage(rep->tool, "--timeout %s: wants a time like 30s", optarg);
	return 0;
}

static int parse_options(struct rep *rep, int argc, char **argv)
{
	static const struct option longs[] = {{"copies", required_argument, NULL, 'n'},
					      {"recursive", no_argument, NULL, 'r'},
					      {"timeout", required_argument, NULL, 'W'},
					      {"verbose", no_argument, NULL, 'v'},
					      {"wait", no_argument, NULL, OPT_WAIT},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c, code = 0;

	while (code == 0 && (c = gfs_tool_getopt(rep->tool, argc, argv, "n:rRvW:", longs)) != -1) {
		switch (c) {
		case 'n':
		case 'W':
			code = parse_value(rep, c);
			break;
		case 'r':
		case 'R':
			rep->recursive = true;
			break;
		case 'v':
			rep->verbose = true;
			break;
		case OPT_WAIT:
			rep->wait = true;
			break;
		default:
			return GFS_EXIT_USAGE;
		}
	}
	if (code)
		return code;
	if (rep->copies == 0 && !rep->wait)
		return gfs_tool_usage(rep->tool, "wants -n, or --wait, or both");
	if (optind >= argc)
		return gfs_tool_usage(rep->tool, "wants one or more PATHs");
	return 0;
}

/* -- setting ----------------------------------------------------------------------------------- */

static void set_copies(struct rep *rep, const char *path)
{
	int r = gfs_set_copies(rep->tool->fs, path, (unsigned)rep->copies);

	gfs_tool_step(rep->tool);
	if (r < 0) {
		gfs_tool_error(rep->tool, path, r);
	} else if (rep->verbose) {
		gfs_tool_print(rep->tool, path);
		printf(": %llu\n", (unsigned long long)rep->copies);
	}
}

static int set_visit(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	if (visit == GFS_VISIT_ENTER || (visit == GFS_VISIT_ENTRY && S_ISREG(item->st->mode)))
		set_copies(arg, item->path);
	return 0;
}

static int set_one(struct rep *rep, const char *path)
{
	struct gfs_stat st;
	int r;

	if (rep->recursive)
		return gfs_walk(rep->tool, path, true, set_visit, rep);
	r = gfs_stat(rep->tool->fs, path, &st);
	if (r < 0)
		gfs_tool_error(rep->tool, path, r);
	else if (!S_ISDIR(st.mode) && !S_ISREG(st.mode))
		gfs_tool_problem(rep->tool, "%s: is neither a file nor a directory", path);
	else
		set_copies(rep, path);
	return 0;
}

/* -- waiting ----------------------------------------------------------------------------------- */

static int wait_file(struct rep *rep, const char *path)
{
	int64_t left_ns = rep->deadline_ns - gx_env_now_ns(rep->tool->env);
	int64_t left_ms = rep->deadline_ns == GX_FOREVER
				  ? -1
				  : GX_MAX(left_ns, INT64_C(0)) / GX_NSEC_PER_MSEC;
	int r = gfs_wait_copies(rep->tool->fs, path, left_ms);

	if (r < 0)
		gfs_tool_error(rep->tool, path, r);
	return 0;
}

static int wait_visit(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	return visit == GFS_VISIT_ENTRY && S_ISREG(item->st->mode) ? wait_file(arg, item->path) : 0;
}

static int wait_one(struct rep *rep, const char *path)
{
	struct gfs_stat st;
	int r;

	if (rep->recursive)
		return gfs_walk(rep->tool, path, true, wait_visit, rep);
	r = gfs_stat(rep->tool->fs, path, &st);
	/* Setting has reported it, unless only waiting was asked for. */
	if (r < 0 && rep->copies == 0)
		gfs_tool_error(rep->tool, path, r);
	return r == 0 && S_ISREG(st.mode) ? wait_file(rep, path) : 0;
}

static int rep_all(struct rep *rep, const struct gfs_paths *paths)
{
	int r = 0;

	for (size_t i = 0; rep->copies > 0 && r == 0 && i < paths->count; i++)
		r = set_one(rep, paths->path[i]);
	for (size_t i = 0; rep->wait && r == 0 && i < paths->count; i++)
		r = wait_one(rep, paths->path[i]);
	return r;
}

int gfs_rep_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	struct gfs_tool tool;
	struct rep rep = {.tool = &tool};
	int code, r = 0;

	gfs_tool_init(&tool, env, "rep", help);
	code = parse_options(&rep, argc, argv);
	if (code)
		return code;
	tool.walks = rep.recursive;
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	tool.progress.verb = "set";
	rep.deadline_ns = rep.timeout_ns == 0 ? GX_FOREVER : gx_env_now_ns(env) + rep.timeout_ns;
	if (gfs_expand(&tool, argc - optind, argv + optind, &paths) == 0)
		r = rep_all(&rep, &paths);
	if (r < 0)
		gfs_tool_error(&tool, "walk", r);
	return gfs_tool_finish(&tool);
}
