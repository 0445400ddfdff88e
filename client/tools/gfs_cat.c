/*
 * gfs cat - files of the grid to standard output.
 */
#include "client/tools/gfs_walk.h"

static const char help[] = "Usage: gfs cat FILE...\n"
			   "Writes the files, one after the other, to standard output.\n\n"
			   "Options:\n" GFS_COMMON_HELP;

/* Big enough that a large file takes few calls. */
#define CAT_BYTES (1024u * 1024)

static int cat_one(struct gfs_tool *tool, const char *path, char *buf)
{
	struct gfs_file *file;
	ssize_t n = gfs_open(tool->fs, path, GFS_O_READ, 0, &file);
	int r;

	if (n < 0)
		return gfs_tool_error(tool, path, (int)n);
	while ((n = gfs_read(file, buf, CAT_BYTES)) > 0)
		if (fwrite(buf, 1, (size_t)n, stdout) != (size_t)n)
			break;
	r = gfs_close(file);
	if (n < 0 || r < 0)
		gfs_tool_error(tool, path, n < 0 ? (int)n : r);
	return 0;
}

int gfs_cat_main(struct gx_env *env, int argc, char **argv)
{
	static const struct option longs[] = {GFS_COMMON_OPTIONS, {NULL, 0, NULL, 0}};
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	GX_AUTOFREE char *buf = gx_alloc_pages(CAT_BYTES);
	struct gfs_tool tool;
	int code;

	gfs_tool_init(&tool, env, "cat", help);
	if (gfs_tool_getopt(&tool, argc, argv, "", longs) != -1)
		return GFS_EXIT_USAGE;
	if (optind >= argc)
		return gfs_tool_usage(&tool, "wants one or more FILEs");
	if (!buf)
		return gfs_fail("cat", GFS_EXIT_FAILED, "out of memory");
	tool.walks = true;
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	if (gfs_expand(&tool, argc - optind, argv + optind, &paths) == 0)
		for (size_t i = 0; i < paths.count && !ferror(stdout); i++)
			cat_one(&tool, paths.path[i], buf);
	return gfs_tool_finish(&tool);
}
