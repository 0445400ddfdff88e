/*
 * gfs du - how much there is below a directory.
 *
 * Sizes are those of the files as people see them, once for each inode, whatever the number of
 * copies; holes count. A walk keeps one sum per level.
 */
#include "client/tools/gfs_print.h"
#include "client/tools/gfs_walk.h"
#include "common/gx_hash.h"
#include "common/gx_num.h"

static const char help[] =
	"Usage: gfs du [OPTION]... [PATH]...\n"
	"Adds up the sizes of files, of each directory below PATH (/) with all in it. Of a\n"
	"file with several names one counts.\n\n"
	"Options:\n"
	"  -a, --all          show files as well as directories\n"
	"  -b, --bytes        exact numbers\n"
	"  -c, --total        show the sum of all arguments as well\n"
	"  -d, --max-depth N  show what is at most so far below PATH\n"
	"      --json         one JSON array of objects\n"
	"  -s, --summarize    show only the arguments themselves\n" GFS_COMMON_HELP GFS_JSON_HELP;

struct sum {
	uint64_t bytes, files;
};

/* A file with several names that has been seen. */
struct seen {
	uint64_t ino;
	UT_hash_handle hh;
};

struct du {
	struct gfs_tool *tool;
	bool all, exact, total, json;
	uint64_t max_depth;
	struct seen *seen;
	struct sum *levels; /* of the directories that the walk is in */
	size_t level_count;
	struct sum sum; /* of all arguments */
	size_t count;   /* printed */
};

static int parse_options(struct du *du, int argc, char **argv)
{
	static const struct option longs[] = {{"all", no_argument, NULL, 'a'},
					      {"bytes", no_argument, NULL, 'b'},
					      {"json", no_argument, NULL, GFS_OPT_OWN},
					      {"max-depth", required_argument, NULL, 'd'},
					      {"summarize", no_argument, NULL, 's'},
					      {"total", no_argument, NULL, 'c'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(du->tool, argc, argv, "abcd:s", longs)) != -1) {
		switch (c) {
		case 'a':
			du->all = true;
			break;
		case 'b':
			du->exact = true;
			break;
		case 'c':
			du->total = true;
			break;
		case 'd':
			if (gx_parse_u64(optarg, &du->max_depth) < 0)
				return gfs_tool_usage(du->tool, "--max-depth %s: wants a number",
						      optarg);
			break;
		case 's':
			du->max_depth = 0;
			break;
		case GFS_OPT_OWN:
			du->json = true;
			break;
		default:
			return GFS_EXIT_USAGE;
		}
	}
	return 0;
}

/* -- showing ----------------------------------------------------------------------------------- */

static void show(struct du *du, const char *path, const struct sum *sum)
{
	char text[32];

	if (du->json) {
		fputs(du->count ? ",\n {\"path\": " : "[{\"path\": ", stdout);
		gfs_json_string(stdout, path);
		printf(", \"bytes\": %llu, \"files\": %llu}", (unsigned long long)sum->bytes,
		       (unsigned long long)sum->files);
	} else {
		if (du->exact)
			GX_IGNORE(gx_format(text, sizeof(text), "%llu", /* fits */
					    (unsigned long long)sum->bytes));
		else
			gfs_size_text(sum->bytes, text);
		printf("%-7s ", text);
		gfs_tool_print(du->tool, path);
		putchar('\n');
	}
	du->count++;
}

/* -- adding up --------------------------------------------------------------------------------- */

static void add(struct sum *to, const struct sum *sum)
{
	to->bytes += sum->bytes;
	to->files += sum->files;
}

/* 1: this inode has been counted under another name. */
static int counted(struct du *du, const struct gfs_stat *st)
{
	bool gx_hash_failed = false;
	struct seen *seen;

	if (st->nlink < 2 || S_ISDIR(st->mode))
		return 0;
	HASH_FIND(hh, du->seen, &st->ino, sizeof(st->ino), seen);
	if (seen)
		return 1;
	seen = calloc(1, sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	seen->ino = st->ino;
	HASH_ADD(hh, du->seen, ino, sizeof(seen->ino), seen);
	if (gx_hash_failed)
		free(seen);
	return gx_hash_failed ? -ENOMEM : 0;
}

static int enter(struct du *du, size_t depth)
{
	if (depth >= du->level_count) {
		size_t count = GX_MAX((size_t)16, 2 * depth + 1);
		struct sum *levels = reallocarray(du->levels, count, sizeof(*levels));

		if (!levels)
			return -ENOMEM;
		du->levels = levels;
		du->level_count = count;
	}
	du->levels[depth] = (struct sum){0};
	return 0;
}

static int entry(struct du *du, const struct gfs_walk_item *item)
{
	struct sum sum = {.bytes = S_ISREG(item->st->mode) ? item->st->size : 0,
			  .files = S_ISREG(item->st->mode)};
	int r = counted(du, item->st);

	gfs_tool_step(du->tool);
	if (r != 0)
		return GX_MIN(r, 0);
	add(item->depth > 0 ? &du->levels[item->depth - 1] : &du->sum, &sum);
	if ((du->all && item->depth <= du->max_depth) || item->depth == 0)
		show(du, item->path, &sum);
	return 0;
}

static int visit_one(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	struct du *du = arg;
	struct sum *sum;

	if (visit == GFS_VISIT_ENTER)
		return enter(du, item->depth);
	if (visit == GFS_VISIT_ENTRY)
		return entry(du, item);
	sum = &du->levels[item->depth];
	add(item->depth > 0 ? &du->levels[item->depth - 1] : &du->sum, sum);
	if (item->depth <= du->max_depth)
		show(du, item->path, sum);
	return 0;
}

static void finish(struct du *du)
{
	struct seen *seen, *next;

	if (du->total && !du->json)
		show(du, "total", &du->sum);
	if (du->json)
		puts(du->count ? "]" : "[]");
	HASH_ITER (hh, du->seen, seen, next) {
		HASH_DEL(du->seen, seen);
		free(seen);
	}
	free(du->levels);
}

int gfs_du_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	static char root[] = "/";
	char *all[] = {root};
	struct gfs_tool tool;
	struct du du = {.tool = &tool, .max_depth = UINT64_MAX};
	bool none;
	int code, r;

	gfs_tool_init(&tool, env, "du", help);
	code = parse_options(&du, argc, argv);
	if (code)
		return code;
	tool.walks = true;
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	tool.progress.verb = "counted";
	none = optind >= argc;
	r = gfs_expand(&tool, none ? 1 : argc - optind, none ? all : argv + optind, &paths);
	for (size_t i = 0; r == 0 && i < paths.count; i++)
		r = gfs_walk(&tool, paths.path[i], true, visit_one, &du);
	if (r < 0 && r != -EINTR)
		gfs_tool_error(&tool, "walk", r);
	finish(&du);
	return gfs_tool_finish(&tool);
}
