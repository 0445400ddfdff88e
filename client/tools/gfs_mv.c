/*
 * gfs mv - renames within the grid.
 */
#include "client/tools/gfs_walk.h"

static const char help[] =
	"Usage: gfs mv [-n] [-v] [-T] FROM TO\n"
	"       gfs mv [-n] [-v] FROM... DIRECTORY\n"
	"       gfs mv --exchange ONE OTHER\n"
	"Renames files and directories, each in one step that others see whole or not at\n"
	"all. What is at TO already is replaced.\n\n"
	"Options:\n"
	"      --exchange     swap the two, which both exist\n"
	"  -f, --force        replace, which is the default\n"
	"  -n, --no-clobber   leave what is at TO as it is, and FROM too\n"
	"  -T, --no-target-directory  TO is the new name, even if it is a directory\n"
	"  -v, --verbose      say what was renamed\n" GFS_COMMON_HELP;

struct mv {
	struct gfs_tool *tool;
	bool no_clobber, exact, exchange, verbose;
};

static void move(struct mv *mv, const char *from, const char *to)
{
	unsigned flags = (mv->no_clobber ? GFS_RENAME_NOREPLACE : 0) |
			 (mv->exchange ? GFS_RENAME_EXCHANGE : 0);
	int r = gfs_rename(mv->tool->fs, from, to, flags);

	if (r == -EEXIST && mv->no_clobber)
		return;
	if (r == -EINVAL) {
		gfs_tool_problem(mv->tool, "%s: cannot become a part of itself: %s", from, to);
	} else if (r < 0) {
		gfs_tool_problem(mv->tool, "%s to %s: %s", from, to, gx_strerror(r));
	} else if (mv->verbose) {
		fputs(mv->exchange ? "exchanged " : "renamed ", stdout);
		gfs_tool_print(mv->tool, from);
		fputs(mv->exchange ? " with " : " to ", stdout);
		gfs_tool_print(mv->tool, to);
		putchar('\n');
	}
}

static void move_into(struct mv *mv, const char *from, const char *dir)
{
	GX_AUTOFREE char *copy = strdup(from);
	GX_AUTOFREE char *to = NULL;

	if (copy) {
		gfs_path_cut_slash(copy);
		to = gfs_path_join(dir, gfs_path_last(copy));
	}
	if (to)
		move(mv, from, to);
	else
		gfs_tool_error(mv->tool, from, -ENOMEM);
}

static void move_all(struct mv *mv, const struct gfs_paths *from, char *to)
{
	struct gfs_stat st;
	bool dir = !mv->exact && !mv->exchange && gfs_stat(mv->tool->fs, to, &st) == 0 &&
		   S_ISDIR(st.mode);

	if (!dir && from->count > 1) {
		gfs_tool_error(mv->tool, to, -ENOTDIR);
		return;
	}
	for (size_t i = 0; i < from->count; i++) {
		if (dir)
			move_into(mv, from->path[i], to);
		else
			move(mv, from->path[i], to);
	}
}

static bool parse_options(struct mv *mv, int argc, char **argv)
{
	static const struct option longs[] = {{"exchange", no_argument, NULL, GFS_OPT_OWN},
					      {"force", no_argument, NULL, 'f'},
					      {"no-clobber", no_argument, NULL, 'n'},
					      {"no-target-directory", no_argument, NULL, 'T'},
					      {"verbose", no_argument, NULL, 'v'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(mv->tool, argc, argv, "fnTv", longs)) != -1) {
		switch (c) {
		case GFS_OPT_OWN:
			mv->exchange = true;
			break;
		case 'f':
			mv->no_clobber = false;
			break;
		case 'n':
			mv->no_clobber = true;
			break;
		case 'T':
			mv->exact = true;
			break;
		case 'v':
			mv->verbose = true;
			break;
		default:
			return false;
		}
	}
	return true;
}

int gfs_mv_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths from = {0};
	GX_AUTOFREE char *to = NULL;
	struct gfs_tool tool;
	struct mv mv = {.tool = &tool};
	int code;

	gfs_tool_init(&tool, env, "mv", help);
	if (!parse_options(&mv, argc, argv))
		return GFS_EXIT_USAGE;
	if (argc - optind < 2 || ((mv.exact || mv.exchange) && argc - optind > 2))
		return gfs_tool_usage(&tool, "wants FROM and TO, or FROMs and a DIRECTORY");
	if (mv.exchange && mv.no_clobber)
		return gfs_tool_usage(&tool, "--exchange and -n contradict each other");
	to = gfs_path_clean(argv[argc - 1]);
	if (!to)
		return gfs_fail("mv", GFS_EXIT_FAILED, "out of memory");
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	if (gfs_expand(&tool, argc - optind - 1, argv + optind, &from) == 0 && from.count > 0)
		move_all(&mv, &from, to);
	return gfs_tool_finish(&tool);
}
