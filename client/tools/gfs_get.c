/*
 * gfs get - files of the grid to local files.
 */
#include "client/tools/gfs_copy.h"

static const char help[] =
	"Usage: gfs get [OPTION]... REMOTE LOCAL\n"
	"       gfs get [OPTION]... REMOTE... DIRECTORY\n"
	"Copies files of the grid to local files; LOCAL \"-\" is standard output. A file\n"
	"appears at its destination when it is complete.\n\n"
	"Options:\n" GFS_COPY_HELP GFS_COMMON_HELP;

static int write_stdout(void *arg GX_UNUSED, const void *buf, size_t bytes,
			uint64_t offset GX_UNUSED)
{
	/* What went wrong stays with stdout, and gfs_tool_finish() tells. */
	return fwrite(buf, 1, bytes, stdout) == bytes ? 0 : -EALREADY;
}

static int get_to_stdout(struct gfs_copy *copy, const struct gfs_paths *from)
{
	struct gfs_copy_sink sink = {.write = write_stdout};
	int r = 0;

	for (size_t i = 0; r >= 0 && i < from->count && !ferror(stdout); i++) {
		struct gfs_copy_source source;
		struct gfs_file *file;

		if (gfs_copy_open(copy, from->path[i], &file, &source) < 0)
			continue;
		r = gfs_copy_bytes(copy, &source, &sink, 0);
		GX_IGNORE(gfs_close(file)); /* nothing was written */
		if (r == -EALREADY)
			r = 0;
	}
	return r;
}

static int get_all(struct gfs_copy *copy, const struct gfs_paths *from, const char *to)
{
	size_t bytes = strlen(to);
	bool wants_dir = bytes > 0 && to[bytes - 1] == '/';
	struct stat st;
	bool into = gx_env_stat(copy->tool->env, to, &st) == 0 && S_ISDIR(st.st_mode);
	int r = 0;

	if (!into && (from->count > 1 || (wants_dir && !copy->recursive))) {
		gfs_tool_problem(copy->tool, "%s: %s", to, gx_strerror(-ENOTDIR));
		return 0;
	}
	for (size_t i = 0; r == 0 && i < from->count; i++) {
		GX_AUTOFREE char *target = gfs_copy_target(from->path[i], to, into);

		r = target ? gfs_copy_from_grid(copy, from->path[i], target) : -ENOMEM;
	}
	return r;
}

int gfs_get_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths from = {0};
	struct gfs_tool tool;
	struct gfs_copy copy;
	const char *to;
	int code, r;

	gfs_tool_init(&tool, env, "get", help);
	code = gfs_copy_init(&copy, &tool, argc, argv, &gfs_copy_dest_local);
	if (code)
		return code;
	to = argv[argc - 1];
	r = gfs_expand(&tool, argc - optind - 1, argv + optind, &from);
	if (r == 0 && from.count > 0)
		r = strcmp(to, "-") == 0 ? get_to_stdout(&copy, &from) : get_all(&copy, &from, to);
	return gfs_copy_finish(&copy, r);
}
