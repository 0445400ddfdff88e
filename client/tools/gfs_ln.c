/*
 * gfs ln - hard and symbolic links.
 */
#include "client/tools/gfs_copy.h"
#include "client/tools/gfs_walk.h"

static const char help[] =
	"Usage: gfs ln [-s] [-f] [-T] [-v] TARGET LINK\n"
	"       gfs ln [-s] [-f] [-v] TARGET... DIRECTORY\n"
	"Makes LINK another name of the file TARGET or, with -s, a symbolic link with the\n"
	"text TARGET.\n\n"
	"Options:\n"
	"  -f, --force        replace what is at LINK (but no directory)\n"
	"  -s, --symbolic     a symbolic link; TARGET need not exist\n"
	"  -T, --no-target-directory  LINK is the new name, even if it is a directory\n"
	"  -v, --verbose      say what was made\n" GFS_COMMON_HELP;

struct ln {
	struct gfs_tool *tool;
	bool symbolic, force, exact, verbose;
};

static int make(struct ln *ln, const char *target, const char *link)
{
	return ln->symbolic ? gfs_symlink(ln->tool->fs, target, link)
			    : gfs_link(ln->tool->fs, target, link);
}

/* Beside it and then over it, so that there is a link at every moment. */
static int replace(struct ln *ln, const char *target, const char *link)
{
	GX_AUTOFREE char *temp = NULL;
	struct gfs_stat st, old = {0};
	int r = gfs_temp_path(ln->tool->env, link, &temp);

	if (r < 0)
		return r;
	if (gfs_lstat(ln->tool->fs, link, &old) == 0 && S_ISDIR(old.mode))
		return -EISDIR;
	/* Renaming one name of a file to another does nothing, and would leave both. */
	if (!ln->symbolic && gfs_lstat(ln->tool->fs, target, &st) == 0 && st.ino == old.ino)
		return 0;
	r = make(ln, target, temp);
	if (r < 0)
		return r;
	r = gfs_rename(ln->tool->fs, temp, link, 0);
	if (r < 0)
		GX_IGNORE(gfs_unlink(ln->tool->fs, temp)); /* r says what went wrong */
	return r;
}

static void link_one(struct ln *ln, const char *target, const char *link)
{
	int r = make(ln, target, link);

	if (r == -EEXIST && ln->force)
		r = replace(ln, target, link);
	if (r < 0) {
		/* Which of the two is meant only the error itself can tell. */
		gfs_tool_problem(ln->tool, "%s to %s: %s", link, target, gx_strerror(r));
	} else if (ln->verbose) {
		gfs_tool_print(ln->tool, link);
		fputs(ln->symbolic ? " -> " : " = ", stdout);
		gfs_tool_print(ln->tool, target);
		putchar('\n');
	}
}

/* The text of a symbolic link is the user's; only our prefix means nothing to the grid. */
static char *target_text(const struct ln *ln, const char *argument)
{
	if (!ln->symbolic)
		return gfs_path_clean(argument);
	return strdup(strncmp(argument, "gfs:/", 5) == 0 ? argument + 4 : argument);
}

static void link_into(struct ln *ln, const char *argument, const char *dir)
{
	GX_AUTOFREE char *target = target_text(ln, argument);
	GX_AUTOFREE char *link = NULL;

	if (target) {
		gfs_path_cut_slash(target);
		link = gfs_path_join(dir, gfs_path_last(target));
	}
	if (link)
		link_one(ln, target, link);
	else
		gfs_tool_error(ln->tool, argument, -ENOMEM);
}

static void link_all(struct ln *ln, int argc, char **argv, const char *to)
{
	struct gfs_stat st;
	bool dir = !ln->exact && gfs_stat(ln->tool->fs, to, &st) == 0 && S_ISDIR(st.mode);
	GX_AUTOFREE char *target = target_text(ln, argv[0]);

	if (!target)
		gfs_tool_error(ln->tool, argv[0], -ENOMEM);
	else if (dir)
		for (int i = 0; i < argc; i++)
			link_into(ln, argv[i], to);
	else if (argc > 1)
		gfs_tool_error(ln->tool, to, -ENOTDIR);
	else
		link_one(ln, target, to);
}

static bool parse_options(struct ln *ln, int argc, char **argv)
{
	static const struct option longs[] = {{"force", no_argument, NULL, 'f'},
					      {"symbolic", no_argument, NULL, 's'},
					      {"no-target-directory", no_argument, NULL, 'T'},
					      {"verbose", no_argument, NULL, 'v'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(ln->tool, argc, argv, "fsTv", longs)) != -1) {
		switch (c) {
		case 'f':
			ln->force = true;
			break;
		case 's':
			ln->symbolic = true;
			break;
		case 'T':
			ln->exact = true;
			break;
		case 'v':
			ln->verbose = true;
			break;
		default:
			return false;
		}
	}
	return true;
}

int gfs_ln_main(struct gx_env *env, int argc, char **argv)
{
	GX_AUTOFREE char *to = NULL;
	struct gfs_tool tool;
	struct ln ln = {.tool = &tool};
	int code;

	gfs_tool_init(&tool, env, "ln", help);
	if (!parse_options(&ln, argc, argv))
		return GFS_EXIT_USAGE;
	if (argc - optind < 2 || (ln.exact && argc - optind > 2))
		return gfs_tool_usage(&tool, "wants TARGET and LINK, or TARGETs and a DIRECTORY");
	to = gfs_path_clean(argv[argc - 1]);
	if (!to)
		return gfs_fail("ln", GFS_EXIT_FAILED, "out of memory");
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	link_all(&ln, argc - optind - 1, argv + optind, to);
	return gfs_tool_finish(&tool);
}
