/*
 * gfs rm - removes files and trees.
 *
 * A tree is removed while it is walked, page by page, so its size does not matter. What cannot
 * be removed is reported and the rest goes on; a directory that is not empty because of that is
 * not reported again.
 */
#include "client/tools/gfs_walk.h"

static const char help[] = "Usage: gfs rm [-r] [-f] [-i] [-v] FILE...\n"
			   "Removes files, and with -r whole trees. Links are not followed.\n\n"
			   "Options:\n"
			   "  -f, --force        what is not there is no error; never ask\n"
			   "  -i, --interactive  ask before each removal\n"
			   "  -r, -R, --recursive  directories too, with all in them\n"
			   "  -v, --verbose      say what was removed\n" GFS_COMMON_HELP;

struct rm {
	struct gfs_tool *tool;
	bool force, interactive, recursive, verbose;
	bool kept; /* something below the directory being removed stays */
};

static int removed(struct rm *rm, const char *path, int r)
{
	/* Somebody else was faster: with -f, or inside a tree, that is as good. */
	if (r == -ENOENT && (rm->force || rm->recursive))
		return 0;
	if (r < 0) {
		rm->kept = true;
		gfs_tool_error(rm->tool, path, r);
		return 0;
	}
	gfs_tool_step(rm->tool);
	if (rm->verbose) {
		fputs("removed ", stdout);
		gfs_tool_print(rm->tool, path);
		putchar('\n');
	}
	return 0;
}

static bool may(struct rm *rm, const char *question, const char *path)
{
	if (!rm->interactive || gfs_tool_ask(rm->tool, question, path))
		return true;
	rm->kept = true;
	return false;
}

static int rm_visit(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	struct rm *rm = arg;
	int r;

	switch (visit) {
	case GFS_VISIT_ENTRY:
		if (!may(rm, "remove", item->path))
			return 0;
		return removed(rm, item->path, gfs_unlink(rm->tool->fs, item->path));
	case GFS_VISIT_ENTER:
		return may(rm, "look into directory", item->path) ? 0 : GFS_WALK_SKIP;
	case GFS_VISIT_LEAVE:
		if (!may(rm, "remove directory", item->path))
			return 0;
		r = gfs_rmdir(rm->tool->fs, item->path);
		/* What stayed in it has been reported, or was a wish. */
		return r == -ENOTEMPTY && rm->kept ? 0 : removed(rm, item->path, r);
	case GFS_VISIT_COUNT:
		break;
	}
	return -EINVAL;
}

/* "/", and what ends in "." or "..", is a mistake in all cases known. */
static bool is_forbidden(const char *path)
{
	const char *last = gfs_path_last(path);

	return strcmp(path, "/") == 0 || strcmp(last, ".") == 0 || strcmp(last, "..") == 0 ||
	       strcmp(last, "./") == 0 || strcmp(last, "../") == 0;
}

static int rm_one(struct rm *rm, const char *path)
{
	struct gfs_stat st;
	int r;

	rm->kept = false;
	if (is_forbidden(path)) {
		gfs_tool_problem(rm->tool, "%s: refusing to remove it", path);
		return 0;
	}
	r = gfs_lstat(rm->tool->fs, path, &st);
	if (r == -ENOENT && rm->force)
		return 0;
	if (r < 0) {
		gfs_tool_error(rm->tool, path, r);
		return 0;
	}
	if (rm->recursive)
		return gfs_walk(rm->tool, path, false, rm_visit, rm);
	if (S_ISDIR(st.mode)) {
		gfs_tool_error(rm->tool, path, -EISDIR);
		return 0;
	}
	if (may(rm, "remove", path))
		removed(rm, path, gfs_unlink(rm->tool->fs, path));
	return 0;
}

static bool parse_options(struct rm *rm, int argc, char **argv)
{
	static const struct option longs[] = {{"force", no_argument, NULL, 'f'},
					      {"interactive", no_argument, NULL, 'i'},
					      {"recursive", no_argument, NULL, 'r'},
					      {"verbose", no_argument, NULL, 'v'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(rm->tool, argc, argv, "firRv", longs)) != -1) {
		switch (c) {
		case 'f':
			rm->force = true;
			rm->interactive = false;
			break;
		case 'i':
			rm->interactive = true;
			rm->force = false;
			break;
		case 'r':
		case 'R':
			rm->recursive = true;
			break;
		case 'v':
			rm->verbose = true;
			break;
		default:
			return false;
		}
	}
	return true;
}

int gfs_rm_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	struct gfs_tool tool;
	struct rm rm = {.tool = &tool};
	int code, r = 0;

	gfs_tool_init(&tool, env, "rm", help);
	if (!parse_options(&rm, argc, argv))
		return GFS_EXIT_USAGE;
	if (optind >= argc && !rm.force)
		return gfs_tool_usage(&tool, "wants one or more FILEs");
	tool.walks = rm.recursive;
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	tool.progress.verb = "removed";
	/* So that what was removed is also on disk when we end. */
	gfs_tool_catch_signals();
	if (gfs_expand(&tool, argc - optind, argv + optind, &paths) == 0)
		for (size_t i = 0; r == 0 && i < paths.count && !gfs_tool_interrupted(); i++)
			r = rm_one(&rm, paths.path[i]);
	if (r < 0 && r != -EINTR)
		gfs_tool_error(&tool, "walk", r);
	return gfs_tool_finish(&tool);
}
