/*
 * gfs cp - copies within the grid.
 */
#include "client/tools/gfs_copy.h"

static const char help[] =
	"Usage: gfs cp [OPTION]... FROM TO\n"
	"       gfs cp [OPTION]... FROM... DIRECTORY\n"
	"Copies files of the grid to other places of the grid; see put and get for local\n"
	"files. A file appears at its destination when it is complete.\n\n"
	"Options:\n" GFS_COPY_HELP GFS_COMMON_HELP;

static int copy_all(struct gfs_copy *copy, const struct gfs_paths *from, char *to)
{
	struct gfs_stat st;
	bool into = gfs_stat(copy->tool->fs, to, &st) == 0 && S_ISDIR(st.mode);
	int r = 0;

	if (!into && (from->count > 1 || (gfs_path_wants_dir(to) && !copy->recursive))) {
		gfs_tool_error(copy->tool, to, -ENOTDIR);
		return 0;
	}
	gfs_path_cut_slash(to);
	for (size_t i = 0; r == 0 && i < from->count; i++) {
		GX_AUTOFREE char *target = gfs_copy_target(from->path[i], to, into);

		r = target ? gfs_copy_from_grid(copy, from->path[i], target) : -ENOMEM;
	}
	return r;
}

int gfs_cp_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths from = {0};
	GX_AUTOFREE char *to = NULL;
	struct gfs_tool tool;
	struct gfs_copy copy;
	int code, r;

	gfs_tool_init(&tool, env, "cp", help);
	code = gfs_copy_init(&copy, &tool, argc, argv, &gfs_copy_dest_grid);
	if (code)
		return code;
	to = gfs_path_clean(argv[argc - 1]);
	r = to ? gfs_expand(&tool, argc - optind - 1, argv + optind, &from) : -ENOMEM;
	if (r == 0 && from.count > 0)
		r = copy_all(&copy, &from, to);
	return gfs_copy_finish(&copy, r);
}
