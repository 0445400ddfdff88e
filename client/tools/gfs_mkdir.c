/*
 * gfs mkdir - makes directories.
 */
#include "client/tools/gfs_parse.h"
#include "client/tools/gfs_paths.h"
#include "client/tools/gfs_tool.h"
#include "include/gfs.h"

static const char help[] =
	"Usage: gfs mkdir [-p] [-m MODE] DIRECTORY...\n"
	"Makes directories.\n\n"
	"Options:\n"
	"  -m, --mode MODE    permissions, as for chmod; default: 777 less the umask\n"
	"  -p, --parents      make what is missing on the way; what exists is fine\n"
	"  -v, --verbose      say what was made\n" GFS_COMMON_HELP;

struct options {
	bool parents, verbose;
	mode_t mode;        /* of the directory itself */
	mode_t mode_parent; /* of those on the way to it: its owner can always go on */
};

static int make_with_parents(struct gfs *fs, const char *path, const struct options *o)
{
	GX_AUTOFREE char *parent = gfs_path_parent(path);
	struct gfs_stat st;
	int r;

	if (!parent)
		return -ENOMEM;
	r = gfs_mkdir_all(fs, parent, o->mode_parent);
	if (r == 0)
		r = gfs_mkdir(fs, path, o->mode);
	if (r == -EEXIST && gfs_stat(fs, path, &st) == 0 && S_ISDIR(st.mode))
		return 0;
	return r;
}

static void make_one(struct gfs_tool *tool, const char *argument, const struct options *o)
{
	GX_AUTOFREE char *path = gfs_path_clean(argument);
	int r = path ? 0 : -ENOMEM;

	if (r == 0) {
		gfs_path_cut_slash(path);
		r = o->parents ? make_with_parents(tool->fs, path, o)
			       : gfs_mkdir(tool->fs, path, o->mode);
	}
	if (r < 0) {
		gfs_tool_error(tool, path ? path : argument, r);
	} else if (o->verbose) {
		fputs("made ", stdout);
		gfs_tool_print(tool, path);
		putchar('\n');
	}
}

int gfs_mkdir_main(struct gx_env *env, int argc, char **argv)
{
	static const struct option longs[] = {{"mode", required_argument, NULL, 'm'},
					      {"parents", no_argument, NULL, 'p'},
					      {"verbose", no_argument, NULL, 'v'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	struct gfs_mode_change change;
	struct options o = {0};
	struct gfs_tool tool;
	int c, code;

	gfs_tool_init(&tool, env, "mkdir", help);
	o.mode = 0777 & ~tool.umask;
	o.mode_parent = o.mode | S_IWUSR | S_IXUSR;
	while ((c = gfs_tool_getopt(&tool, argc, argv, "m:pv", longs)) != -1) {
		switch (c) {
		case 'm':
			if (gfs_mode_parse(optarg, tool.umask, &change) < 0)
				return gfs_tool_usage(&tool, "--mode %s: is no mode", optarg);
			o.mode = gfs_mode_apply(&change, S_IFDIR | 0777);
			break;
		case 'p':
			o.parents = true;
			break;
		case 'v':
			o.verbose = true;
			break;
		default:
			return GFS_EXIT_USAGE;
		}
	}
	if (optind >= argc)
		return gfs_tool_usage(&tool, "wants one or more DIRECTORYs");
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	for (int i = optind; i < argc; i++)
		make_one(&tool, argv[i], &o);
	return gfs_tool_finish(&tool);
}
