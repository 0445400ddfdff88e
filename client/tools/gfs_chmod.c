/*
 * gfs chmod - permissions.
 */
#include "client/tools/gfs_parse.h"
#include "client/tools/gfs_walk.h"

static const char help[] =
	"Usage: gfs chmod [-R] [-v] MODE FILE...\n"
	"Sets permissions. MODE is octal (644) or says what to change: who (u, g, o, a), then\n"
	"+, - or =, then some of r, w, x, X (x for directories, and where somebody has it),\n"
	"s, t, or one of u, g, o to copy from; several with commas (u+rwx,g-w,a=rX).\n\n"
	"Options:\n"
	"  -R, --recursive    directories with all in them; links are left alone\n"
	"  -v, --verbose      say what was changed\n" GFS_COMMON_HELP;

struct chmod {
	struct gfs_tool *tool;
	struct gfs_mode_change change;
	bool recursive, verbose;
};

static void set_mode(struct chmod *c, const char *path, const struct gfs_stat *st)
{
	uint32_t mode = gfs_mode_apply(&c->change, st->mode);
	int r = gfs_chmod(c->tool->fs, path, mode);

	gfs_tool_step(c->tool);
	if (r < 0) {
		gfs_tool_error(c->tool, path, r);
	} else if (c->verbose && mode != (st->mode & 07777)) {
		gfs_tool_print(c->tool, path);
		printf(": %04o to %04o\n", (unsigned)(st->mode & 07777), (unsigned)mode);
	}
}

/* A directory before what is in it, so that u+rwx opens the way; after it would shut it. */
static int chmod_visit(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	struct chmod *c = arg;
	bool opens = (gfs_mode_apply(&c->change, item->st->mode) & 0500) == 0500;

	if (S_ISLNK(item->st->mode))
		return 0;
	if (visit == GFS_VISIT_ENTRY || (visit == GFS_VISIT_ENTER && opens) ||
	    (visit == GFS_VISIT_LEAVE && !opens))
		set_mode(c, item->path, item->st);
	return 0;
}

static int chmod_one(struct chmod *c, const char *path)
{
	struct gfs_stat st;
	int r;

	if (c->recursive)
		return gfs_walk(c->tool, path, true, chmod_visit, c);
	r = gfs_stat(c->tool->fs, path, &st);
	if (r < 0)
		gfs_tool_error(c->tool, path, r);
	else
		set_mode(c, path, &st);
	return 0;
}

/*
 * "-w" and "-x" are modes that look like options: taken out of the arguments before getopt sees
 * them. None of our options starts with such a letter.
 */
static const char *take_minus_mode(int *argc, char **argv)
{
	for (int i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++) {
		const char *mode = argv[i];

		if (mode[0] != '-' || !mode[1] || !strchr("rwxXstugo", mode[1]))
			continue;
		memmove(&argv[i], &argv[i + 1], (size_t)(*argc - i) * sizeof(*argv));
		(*argc)--;
		return mode;
	}
	return NULL;
}

static bool parse_options(struct chmod *m, int argc, char **argv)
{
	static const struct option longs[] = {{"recursive", no_argument, NULL, 'R'},
					      {"verbose", no_argument, NULL, 'v'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(m->tool, argc, argv, "Rv", longs)) != -1) {
		switch (c) {
		case 'R':
			m->recursive = true;
			break;
		case 'v':
			m->verbose = true;
			break;
		default:
			return false;
		}
	}
	return true;
}

int gfs_chmod_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	struct gfs_tool tool;
	struct chmod c = {.tool = &tool};
	const char *mode = take_minus_mode(&argc, argv);
	int code, r = 0;

	gfs_tool_init(&tool, env, "chmod", help);
	if (!parse_options(&c, argc, argv))
		return GFS_EXIT_USAGE;
	if (!mode && optind < argc)
		mode = argv[optind++];
	if (optind >= argc)
		return gfs_tool_usage(&tool, "wants MODE and one or more FILEs");
	if (gfs_mode_parse(mode, tool.umask, &c.change) < 0)
		return gfs_tool_usage(&tool, "%s: is no mode", mode);
	tool.walks = c.recursive;
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	tool.progress.verb = "changed";
	if (gfs_expand(&tool, argc - optind, argv + optind, &paths) == 0)
		for (size_t i = 0; r == 0 && i < paths.count; i++)
			r = chmod_one(&c, paths.path[i]);
	if (r < 0)
		gfs_tool_error(&tool, "walk", r);
	return gfs_tool_finish(&tool);
}
