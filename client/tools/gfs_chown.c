/*
 * gfs chown - owners and groups.
 */
#include "client/tools/gfs_walk.h"
#include "common/gx_num.h"

static const char help[] =
	"Usage: gfs chown [-R] [-h] [-v] USER[:[GROUP]] FILE...\n"
	"       gfs chown [-R] [-h] [-v] :GROUP FILE...\n"
	"Sets owner and group: names of the grid or numbers. \"USER:\" means that user's own\n"
	"group.\n\n"
	"Options:\n"
	"  -h, --no-dereference  of a symbolic link itself\n"
	"  -R, --recursive    directories with all in them; links in them themselves\n"
	"  -v, --verbose      say what was changed\n" GFS_COMMON_HELP;

struct chown {
	struct gfs_tool *tool;
	bool recursive, no_follow, verbose;
	uid_t uid; /* (uid_t)-1: leave it */
	gid_t gid;
};

static void set_owner(struct chown *c, const char *path, bool follow)
{
	int r = gfs_chown(c->tool->fs, path, c->uid, c->gid, follow);

	gfs_tool_step(c->tool);
	if (r < 0) {
		gfs_tool_error(c->tool, path, r);
	} else if (c->verbose) {
		fputs("changed ", stdout);
		gfs_tool_print(c->tool, path);
		putchar('\n');
	}
}

static int chown_visit(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	/* A directory behind what is in it: afterwards it may not be ours to walk. */
	if (visit != GFS_VISIT_ENTER)
		set_owner(arg, item->path, false);
	return 0;
}

/* A number that fits and is not the "leave it" of chown(2). */
static int parse_id(const char *text, uint32_t *ret_id)
{
	uint64_t number;

	if (gx_parse_u64(text, &number) < 0 || number >= UINT32_MAX)
		return -EINVAL;
	*ret_id = (uint32_t)number;
	return 0;
}

static int find_user(struct chown *c, const char *text, gid_t *ret_gid)
{
	int r = gfs_user_id(c->tool->fs, text, &c->uid, ret_gid);

	/* A name of digits is a name first, as everywhere. */
	if (r < 0 && parse_id(text, &c->uid) == 0)
		return 0;
	if (r < 0)
		gfs_tool_problem(c->tool, "%s: %s", text,
				 r == -ENOENT ? "no such user of the grid" : gx_strerror(r));
	return r;
}

static int find_group(struct chown *c, const char *text)
{
	int r = gfs_group_id(c->tool->fs, text, &c->gid);

	if (r < 0 && parse_id(text, &c->gid) == 0)
		return 0;
	if (r < 0)
		gfs_tool_problem(c->tool, "%s: %s", text,
				 r == -ENOENT ? "no such group of the grid" : gx_strerror(r));
	return r;
}

/* Splits `who`, which it changes. */
static int find_owner(struct chown *c, char *who)
{
	char *colon = strchr(who, ':');
	gid_t own_group = (gid_t)-1;
	int r = 0;

	if (colon)
		*colon = '\0';
	if (*who)
		r = find_user(c, who, &own_group);
	if (r < 0 || !colon)
		return r;
	if (colon[1])
		return find_group(c, colon + 1);
	if (*who && own_group == (gid_t)-1) {
		gfs_tool_problem(c->tool, "%s: a number has no group of its own", who);
		return -EINVAL;
	}
	c->gid = own_group;
	return 0;
}

static bool parse_options(struct chown *o, int argc, char **argv)
{
	static const struct option longs[] = {{"no-dereference", no_argument, NULL, 'h'},
					      {"recursive", no_argument, NULL, 'R'},
					      {"verbose", no_argument, NULL, 'v'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(o->tool, argc, argv, "hRv", longs)) != -1) {
		switch (c) {
		case 'h':
			o->no_follow = true;
			break;
		case 'R':
			o->recursive = true;
			break;
		case 'v':
			o->verbose = true;
			break;
		default:
			return false;
		}
	}
	return true;
}

static int chown_all(struct chown *c, const struct gfs_paths *paths)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < paths->count; i++) {
		if (c->recursive)
			r = gfs_walk(c->tool, paths->path[i], false, chown_visit, c);
		else
			set_owner(c, paths->path[i], !c->no_follow);
	}
	return r;
}

int gfs_chown_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	struct gfs_tool tool;
	struct chown c = {.tool = &tool, .uid = (uid_t)-1, .gid = (gid_t)-1};
	int code, r;

	gfs_tool_init(&tool, env, "chown", help);
	if (!parse_options(&c, argc, argv))
		return GFS_EXIT_USAGE;
	if (argc - optind < 2)
		return gfs_tool_usage(&tool, "wants USER[:GROUP] and one or more FILEs");
	tool.walks = c.recursive;
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	tool.progress.verb = "changed";
	r = find_owner(&c, argv[optind]);
	if (r == 0 && gfs_expand(&tool, argc - optind - 1, argv + optind + 1, &paths) == 0)
		r = chown_all(&c, &paths);
	if (r < 0 && !tool.failed)
		gfs_tool_error(&tool, "walk", r);
	return gfs_tool_finish(&tool);
}
