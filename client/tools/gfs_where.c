/*
 * gfs where - which storage nodes have the bytes of a file.
 */
#include "client/tools/gfs_walk.h"

static const char help[] =
	"Usage: gfs where [-r] [--json] PATH...\n"
	"Tells where the copies of files are, and how each of them is: current (the newest\n"
	"content) or old, and what else there is to know. Small files live in metad.\n\n"
	"Options:\n"
	"      --json         one JSON array of objects\n"
	"  -r, -R, --recursive  all files below a directory\n" GFS_COMMON_HELP GFS_JSON_HELP;

/* A node that is down still has its copy. */
#define PLACES_MAX 1024u

struct where {
	struct gfs_tool *tool;
	bool json, recursive;
	size_t count; /* printed */
	struct gfs_place places[PLACES_MAX];
};

static const char *yes_no(bool value)
{
	return value ? "true" : "false";
}

static void print_json(struct where *w, const char *path, size_t count, unsigned wanted)
{
	fputs(w->count ? ",\n {\"path\": " : "[{\"path\": ", stdout);
	gfs_json_string(stdout, path);
	printf(", \"inline\": %s, \"wanted\": %u, \"copies\": [", yes_no(count == 0), wanted);
	for (size_t i = 0; i < count; i++) {
		const struct gfs_place *p = &w->places[i];

		fputs(i > 0 ? ", {\"node\": " : "{\"node\": ", stdout);
		gfs_json_string(stdout, p->node);
		fputs(", \"host\": ", stdout);
		gfs_json_string(stdout, p->host);
		printf(", \"up\": %s, \"current\": %s, \"cache\": %s, \"stable\": %s, "
		       "\"damaged\": %s, \"primary\": %s, \"generation\": %llu}",
		       yes_no(p->up), yes_no(p->current), yes_no(p->cache), yes_no(p->stable),
		       yes_no(p->damaged), yes_no(p->primary), (unsigned long long)p->generation);
	}
	fputs("]}", stdout);
}

static void print_place(struct where *w, const struct gfs_place *p)
{
	printf("  ");
	gfs_tool_print(w->tool, p->node);
	printf(" on ");
	gfs_tool_print(w->tool, p->host);
	printf(": %s%s%s%s%s%s\n", p->current ? "current" : "old",
	       p->stable ? "" : ", not on disk yet", p->primary ? ", being written" : "",
	       p->cache ? ", a cache" : "", p->damaged ? ", DAMAGED" : "", p->up ? "" : ", DOWN");
}

static void print_text(struct where *w, const char *path, size_t count, unsigned wanted)
{
	gfs_tool_print(w->tool, path);
	if (count == 0) {
		printf(": in metad\n");
		return;
	}
	printf(": %u %s wanted\n", wanted, wanted == 1 ? "copy" : "copies");
	for (size_t i = 0; i < count; i++)
		print_place(w, &w->places[i]);
}

static void where_file(struct where *w, const char *path)
{
	unsigned wanted = 1;
	ssize_t n = gfs_where(w->tool->fs, path, w->places, PLACES_MAX, &wanted);

	if (n < 0) {
		gfs_tool_error(w->tool, path, (int)n);
		return;
	}
	if (w->json)
		print_json(w, path, GX_MIN((size_t)n, (size_t)PLACES_MAX), wanted);
	else
		print_text(w, path, GX_MIN((size_t)n, (size_t)PLACES_MAX), wanted);
	w->count++;
}

static int where_visit(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	if (visit == GFS_VISIT_ENTRY && S_ISREG(item->st->mode))
		where_file(arg, item->path);
	return 0;
}

static int where_one(struct where *w, const char *path)
{
	struct gfs_stat st;
	int r;

	if (w->recursive)
		return gfs_walk(w->tool, path, true, where_visit, w);
	r = gfs_stat(w->tool->fs, path, &st);
	if (r < 0)
		gfs_tool_error(w->tool, path, r);
	else if (S_ISDIR(st.mode))
		gfs_tool_problem(w->tool, "%s: is a directory (see -r)", path);
	else if (!S_ISREG(st.mode))
		gfs_tool_problem(w->tool, "%s: is not a file", path);
	else
		where_file(w, path);
	return 0;
}

int gfs_where_main(struct gx_env *env, int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, GFS_OPT_OWN},
					      {"recursive", no_argument, NULL, 'r'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	GX_AUTOFREE struct where *w = calloc(1, sizeof(*w));
	struct gfs_tool tool;
	int c, code, r = 0;

	gfs_tool_init(&tool, env, "where", help);
	if (!w)
		return gfs_fail("where", GFS_EXIT_FAILED, "out of memory");
	w->tool = &tool;
	while ((c = gfs_tool_getopt(&tool, argc, argv, "rR", longs)) != -1) {
		if (c == '?')
			return GFS_EXIT_USAGE;
		if (c == GFS_OPT_OWN)
			w->json = true;
		else
			w->recursive = true;
	}
	if (optind >= argc)
		return gfs_tool_usage(&tool, "wants one or more PATHs");
	tool.walks = w->recursive;
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	if (gfs_expand(&tool, argc - optind, argv + optind, &paths) == 0)
		for (size_t i = 0; r == 0 && i < paths.count; i++)
			r = where_one(w, paths.path[i]);
	if (r < 0)
		gfs_tool_error(&tool, "walk", r);
	if (w->json)
		puts(w->count ? "]" : "[]");
	return gfs_tool_finish(&tool);
}
