/*
 * gfs find - searches trees.
 */
#include "client/tools/gfs_parse.h"
#include "client/tools/gfs_print.h"
#include "client/tools/gfs_walk.h"
#include "common/gx_num.h"
#include <fnmatch.h>

static const char help[] =
	"Usage: gfs find [PATH]... [TEST]...\n"
	"Prints what is at and below the PATHs (default: /) and passes all tests.\n\n"
	"Tests and options, with one dash or two:\n"
	"      --name PATTERN   the last part of the path; also --iname, in any case\n"
	"      --type LETTERS   f file, d directory, l link, p pipe, s socket, b, c devices\n"
	"      --size [+-]N[cwbkMGT]  more, less or just as many; c is bytes, without a unit\n"
	"                       blocks of 512, rounded up\n"
	"      --mtime [+-]N    changed N days ago\n"
	"      --newer FILE     changed later than this file of the grid\n"
	"      --empty          an empty file or directory\n"
	"      --mindepth N     from N levels below PATH, which itself is level 0\n"
	"      --maxdepth N     at most N levels below PATH\n"
	"      --print          one path a line, which is the default\n"
	"      --print0         a NUL behind each path instead of a newline\n"
	"      --json           one JSON object a line\n" GFS_COMMON_HELP GFS_JSON_HELP;

struct find {
	struct gfs_tool *tool;
	struct gfs_owners owners;
	const char *name, *iname, *types, *newer;
	bool has_size, has_mtime, empty, zero, json;
	struct gfs_compare size, mtime;
	struct timespec newer_than;
	int64_t now_ns;
	uint64_t depth_min, depth_max;
};

static bool type_matches(const char *letters, uint32_t mode)
{
	char text[11];

	gfs_mode_text(mode, text);
	return strchr(letters, text[0] == '-' ? 'f' : text[0]) != NULL;
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

static bool is_empty_dir(struct find *f, const char *path)
{
	struct gfs_dirent entry;
	struct gfs_dir *dir;
	int r = gfs_opendir(f->tool->fs, path, &dir);

	if (r == 0) {
		r = gfs_readdir(dir, &entry);
		gfs_closedir(dir);
		if (r >= 0)
			return r == 0;
	}
	gfs_tool_error(f->tool, path, r);
	return false;
}

static bool is_empty(struct find *f, const struct gfs_walk_item *item)
{
	if (S_ISDIR(item->st->mode))
		return is_empty_dir(f, item->path);
	return S_ISREG(item->st->mode) && item->st->size == 0;
}

/* What costs a call comes last. */
static bool matches(struct find *f, const struct gfs_walk_item *item)
{
	const struct gfs_stat *st = item->st;
	const char *last = gfs_path_last(item->path);

	if (item->depth < f->depth_min)
		return false;
	if (f->name && fnmatch(f->name, last, 0) != 0)
		return false;
	if (f->iname && fnmatch(f->iname, last, FNM_CASEFOLD) != 0)
		return false;
	if (f->types && !type_matches(f->types, st->mode))
		return false;
	if (f->has_size && !gfs_size_matches(&f->size, st->size))
		return false;
	if (f->has_mtime &&
	    !gfs_age_matches(&f->mtime, f->now_ns / GX_NSEC_PER_SEC - st->mtime.tv_sec))
		return false;
	if (f->newer && !is_later(&st->mtime, &f->newer_than))
		return false;
	return !f->empty || is_empty(f, item);
}

static void print_json(struct find *f, const struct gfs_walk_item *item)
{
	char target[GFS_PATH_MAX];
	bool link =
		S_ISLNK(item->st->mode) && gfs_link_target(f->tool->fs, item->path, target) == 0;

	gfs_json_file(stdout, &f->owners, item->path, 0, item->st, link ? target : NULL);
	putchar('\n');
}

static int find_visit(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	struct find *f = arg;

	if (visit == GFS_VISIT_LEAVE)
		return 0;
	if (matches(f, item)) {
		if (f->json) {
			print_json(f, item);
		} else if (f->zero) {
			fputs(item->path, stdout);
			putchar('\0');
		} else {
			gfs_tool_print(f->tool, item->path);
			putchar('\n');
		}
	}
	/* Nobody reads on: a huge tree need not be walked to the end. */
	if (ferror(stdout))
		return -EPIPE;
	return item->depth >= f->depth_max ? GFS_WALK_SKIP : 0;
}

/* -- the command line -------------------------------------------------------------------------- */

enum {
	OPT_NAME = GFS_OPT_OWN,
	OPT_INAME,
	OPT_TYPE,
	OPT_SIZE,
	OPT_MTIME,
	OPT_NEWER,
	OPT_EMPTY,
	OPT_MINDEPTH,
	OPT_MAXDEPTH,
	OPT_PRINT,
	OPT_PRINT0,
	OPT_JSON
};

static const struct option longs[] = {{"name", required_argument, NULL, OPT_NAME},
				      {"iname", required_argument, NULL, OPT_INAME},
				      {"type", required_argument, NULL, OPT_TYPE},
				      {"size", required_argument, NULL, OPT_SIZE},
				      {"mtime", required_argument, NULL, OPT_MTIME},
				      {"newer", required_argument, NULL, OPT_NEWER},
				      {"empty", no_argument, NULL, OPT_EMPTY},
				      {"mindepth", required_argument, NULL, OPT_MINDEPTH},
				      {"maxdepth", required_argument, NULL, OPT_MAXDEPTH},
				      {"print", no_argument, NULL, OPT_PRINT},
				      {"print0", no_argument, NULL, OPT_PRINT0},
				      {"json", no_argument, NULL, OPT_JSON},
				      GFS_COMMON_OPTIONS,
				      {NULL, 0, NULL, 0}};

/* 0, or -EINVAL if the value makes no sense. */
static int take_option(struct find *f, int c)
{
	switch (c) {
	case OPT_NAME:
		f->name = optarg;
		return 0;
	case OPT_INAME:
		f->iname = optarg;
		return 0;
	case OPT_TYPE:
		/* "f,d" as find(1) has it, or "fd". */
		f->types = optarg;
		return *optarg && optarg[strspn(optarg, "fdlpsbc,")] == '\0' ? 0 : -EINVAL;
	case OPT_SIZE:
		f->has_size = true;
		return gfs_size_compare_parse(optarg, &f->size);
	case OPT_MTIME:
		f->has_mtime = true;
		return gfs_age_compare_parse(optarg, &f->mtime);
	case OPT_NEWER:
		f->newer = optarg;
		return 0;
	case OPT_EMPTY:
		f->empty = true;
		return 0;
	case OPT_MINDEPTH:
		return gx_parse_u64(optarg, &f->depth_min);
	case OPT_MAXDEPTH:
		return gx_parse_u64(optarg, &f->depth_max);
	case OPT_PRINT0:
		f->zero = true;
		return 0;
	case OPT_JSON:
		f->json = true;
		return 0;
	default: /* --print */
		return 0;
	}
}

static int parse_options(struct find *f, int argc, char **argv)
{
	int c;

	while ((c = gfs_tool_getopt(f->tool, argc, argv, "", longs)) != -1) {
		if (c == '?')
			return GFS_EXIT_USAGE;
		if (take_option(f, c) == 0)
			continue;
		for (const struct option *o = longs; o->name; o++)
			if (o->val == c)
				return gfs_tool_usage(f->tool, "-%s %s: makes no sense", o->name,
						      optarg);
	}
	return 0;
}

static int find_all(struct find *f, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	struct gfs_stat st;
	int r = 0;

	if (f->newer) {
		r = gfs_stat(f->tool->fs, f->newer, &st);
		if (r < 0)
			return gfs_tool_error(f->tool, f->newer, r);
		f->newer_than = st.mtime;
	}
	r = argc > 0 ? gfs_expand(f->tool, argc, argv, &paths) : gfs_paths_add(&paths, "/");
	for (size_t i = 0; r == 0 && i < paths.count; i++) {
		gfs_path_cut_slash(paths.path[i]);
		r = gfs_walk(f->tool, paths.path[i], false, find_visit, f);
	}
	return r;
}

int gfs_find_main(struct gx_env *env, int argc, char **argv)
{
	struct gfs_tool tool;
	struct find f = {.tool = &tool, .depth_max = UINT64_MAX};
	int code, r;

	gfs_tool_init(&tool, env, "find", help);
	tool.one_dash = true;
	tool.walks = true;
	code = parse_options(&f, argc, argv);
	if (code == 0)
		code = gfs_tool_connect(&tool);
	if (code)
		return code;
	f.owners.fs = tool.fs;
	f.now_ns = gx_env_wall_ns(env);
	r = find_all(&f, argc - optind, argv + optind);
	if (r < 0 && r != -EPIPE && !tool.failed)
		gfs_tool_error(&tool, "walk", r);
	return gfs_tool_finish(&tool);
}
