/*
 * gfs touch - makes empty files, sets times.
 */
#include "client/tools/gfs_parse.h"
#include "client/tools/gfs_walk.h"

static const char help[] =
	"Usage: gfs touch [-a] [-m] [-c] [-d TIME | -r FILE] FILE...\n"
	"Sets the times of files to now; makes the files if they are not there.\n\n"
	"Options:\n"
	"  -a                 only the time of access\n"
	"  -c, --no-create    make no files\n"
	"  -d, --date TIME    this time: now, @SECONDS, 2026-11-16T12:00:00Z, or in the local\n"
	"                     time zone 2026-11-16 or \"2026-11-16 12:00:00\"\n"
	"  -m                 only the time of modification\n"
	"  -r, --reference FILE  the times of this file of the grid\n" GFS_COMMON_HELP;

struct touch {
	struct gfs_tool *tool;
	bool no_create, atime, mtime;
	const char *date, *reference;
	struct timespec times[2];
};

static int create(struct touch *t, const char *path)
{
	struct gfs_file *file;
	int r = gfs_open(t->tool->fs, path, GFS_O_WRITE | GFS_O_CREATE, 0666 & ~t->tool->umask,
			 &file);

	return r < 0 ? r : gfs_close(file);
}

static void touch_one(struct touch *t, const char *path)
{
	int r = gfs_utimens(t->tool->fs, path, t->times, true);

	if (r == -ENOENT && t->no_create)
		return;
	if (r == -ENOENT) {
		r = create(t, path);
		if (r == 0 && (t->date || t->reference))
			r = gfs_utimens(t->tool->fs, path, t->times, true);
	}
	if (r < 0)
		gfs_tool_error(t->tool, path, r);
}

static int find_times(struct touch *t)
{
	struct gfs_stat st;
	int r;

	if (t->reference) {
		r = gfs_stat(t->tool->fs, t->reference, &st);
		if (r < 0)
			return gfs_tool_error(t->tool, t->reference, r);
		t->times[0] = st.atime;
		t->times[1] = st.mtime;
	}
	if (t->atime && !t->mtime)
		t->times[1].tv_nsec = UTIME_OMIT;
	if (t->mtime && !t->atime)
		t->times[0].tv_nsec = UTIME_OMIT;
	return 0;
}

static bool parse_options(struct touch *t, int argc, char **argv)
{
	static const struct option longs[] = {{"no-create", no_argument, NULL, 'c'},
					      {"date", required_argument, NULL, 'd'},
					      {"reference", required_argument, NULL, 'r'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(t->tool, argc, argv, "acd:mr:", longs)) != -1) {
		switch (c) {
		case 'a':
			t->atime = true;
			break;
		case 'c':
			t->no_create = true;
			break;
		case 'd':
			t->date = optarg;
			break;
		case 'm':
			t->mtime = true;
			break;
		case 'r':
			t->reference = optarg;
			break;
		default:
			return false;
		}
	}
	return true;
}

int gfs_touch_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	struct gfs_tool tool;
	struct touch t = {.tool = &tool, .times = {{0, UTIME_NOW}, {0, UTIME_NOW}}};
	int code;

	gfs_tool_init(&tool, env, "touch", help);
	if (!parse_options(&t, argc, argv))
		return GFS_EXIT_USAGE;
	if (optind >= argc)
		return gfs_tool_usage(&tool, "wants one or more FILEs");
	if (t.date && t.reference)
		return gfs_tool_usage(&tool, "either -d or -r");
	if (t.date && gfs_time_parse(t.date, gx_env_wall_ns(env), &t.times[0]) < 0)
		return gfs_tool_usage(&tool, "--date %s: is no time", t.date);
	if (t.date)
		t.times[1] = t.times[0];
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	if (find_times(&t) == 0 && gfs_expand(&tool, argc - optind, argv + optind, &paths) == 0)
		for (size_t i = 0; i < paths.count; i++)
			touch_one(&t, paths.path[i]);
	return gfs_tool_finish(&tool);
}
