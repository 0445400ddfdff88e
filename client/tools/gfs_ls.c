/*
 * gfs ls - lists directories.
 *
 * The library gives names in the order of their bytes, so a listing in that order is printed in
 * batches while it is read, and a directory of any size needs little memory. Only another order
 * (-t, -S, -r) needs all entries at once.
 */
#include "client/tools/gfs_ls_text.h"
#include "client/tools/gfs_print.h"
#include "client/tools/gfs_walk.h"

static const char help[] =
	"Usage: gfs ls [OPTION]... [PATH]...\n"
	"Lists files, and what is in directories (default: /).\n\n"
	"Options:\n"
	"  -1                 one name a line, which is the default unless on a terminal\n"
	"  -a, --all          names that start with a dot, too\n"
	"  -d, --directory    directories themselves, not what is in them\n"
	"  -h, --human-readable  with -l: sizes as 1.5K\n"
	"  -l                 type, permissions, links, owner, group, size, time of change\n"
	"  -R, --recursive    all directories below, too\n"
	"  -r, --reverse      the other way round\n"
	"  -S                 by size, largest first\n"
	"  -t                 by time of change, latest first\n"
	"      --json         one JSON array of objects, with paths\n" GFS_COMMON_HELP
		GFS_JSON_HELP;

/* Entries printed at once when the order is that of names. */
#define LS_BATCH 4096u

struct ls {
	struct gfs_ls_text text; /* how it is printed */
	struct gfs_tool *tool;
	struct gfs_ls_entry *entry; /* read and not yet printed */
	size_t count, capacity;
	bool all, directory, recursive, reverse, by_size, by_time, json;
	bool headings;  /* name each directory before what is in it */
	bool printed;   /* something was, so a heading comes behind an empty line */
	size_t objects; /* in the JSON array so far */
};

/* -- entries ----------------------------------------------------------------------------------- */

static void clear_entries(struct ls *ls)
{
	for (size_t i = 0; i < ls->count; i++) {
		free(ls->entry[i].name);
		free(ls->entry[i].target);
	}
	ls->count = 0;
}

/* `path` is the whole path, for what has to be asked. */
static int add_entry(struct ls *ls, const char *path, const char *name, uint32_t type,
		     const struct gfs_stat *st)
{
	struct gfs_ls_entry *e;
	char target[GFS_PATH_MAX];

	if (ls->count == ls->capacity) {
		size_t capacity = ls->capacity ? ls->capacity * 2 : 64;
		struct gfs_ls_entry *more = reallocarray(ls->entry, capacity, sizeof(*more));

		if (!more)
			return -ENOMEM;
		ls->entry = more;
		ls->capacity = capacity;
	}
	e = &ls->entry[ls->count];
	*e = (struct gfs_ls_entry){.type = type, .has_stat = st != NULL};
	if (st)
		e->st = *st;
	e->name = strdup(ls->json ? path : name);
	if (!e->name)
		return -ENOMEM;
	/* A link whose text cannot be read is still a link. */
	if (S_ISLNK(type) && (ls->text.details || ls->json) &&
	    gfs_link_target(ls->tool->fs, path, target) == 0)
		e->target = strdup(target);
	ls->count++;
	return 0;
}

static int by_size(const void *a, const void *b)
{
	const struct gfs_ls_entry *x = a, *y = b;

	if (x->st.size != y->st.size)
		return x->st.size < y->st.size ? 1 : -1;
	return strcmp(x->name, y->name);
}

static int by_time(const void *a, const void *b)
{
	const struct gfs_ls_entry *x = a, *y = b;

	if (x->st.mtime.tv_sec != y->st.mtime.tv_sec)
		return x->st.mtime.tv_sec < y->st.mtime.tv_sec ? 1 : -1;
	if (x->st.mtime.tv_nsec != y->st.mtime.tv_nsec)
		return x->st.mtime.tv_nsec < y->st.mtime.tv_nsec ? 1 : -1;
	return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct gfs_ls_entry *)a)->name,
		      ((const struct gfs_ls_entry *)b)->name);
}

static bool needs_all(const struct ls *ls)
{
	return ls->by_size || ls->by_time || ls->reverse;
}

static void sort_entries(struct ls *ls)
{
	if (ls->count == 0)
		return;
	qsort(ls->entry, ls->count, sizeof(*ls->entry),
	      ls->by_time   ? by_time
	      : ls->by_size ? by_size
			    : by_name);
	for (size_t i = 0, j = ls->count - 1; ls->reverse && i < j; i++, j--) {
		struct gfs_ls_entry e = ls->entry[i];

		ls->entry[i] = ls->entry[j];
		ls->entry[j] = e;
	}
}

static void print_json(struct ls *ls)
{
	for (size_t i = 0; i < ls->count; i++) {
		const struct gfs_ls_entry *e = &ls->entry[i];

		fputs(ls->objects++ ? ",\n " : "[", stdout);
		gfs_json_file(stdout, &ls->text.owners, e->name, e->type,
			      e->has_stat ? &e->st : NULL, e->target);
	}
}

static void flush_entries(struct ls *ls)
{
	if (ls->json)
		print_json(ls);
	else
		gfs_ls_print(&ls->text, ls->entry, ls->count);
	ls->printed = ls->printed || ls->count > 0;
	clear_entries(ls);
}

/* -- directories ------------------------------------------------------------------------------- */

static void print_heading(struct ls *ls, const char *path)
{
	if (!ls->headings || ls->json)
		return;
	if (ls->printed)
		putchar('\n');
	gfs_tool_print(ls->tool, path);
	puts(":");
	ls->printed = true;
}

/* "." and "..", which the library leaves out. */
static int add_dots(struct ls *ls, const char *dir)
{
	static const char *const dots[] = {".", ".."};
	int r = 0;

	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(dots); i++) {
		GX_AUTOFREE char *path = gfs_path_join(dir, dots[i]);
		struct gfs_stat st;

		if (!path)
			return -ENOMEM;
		if (gfs_lstat(ls->tool->fs, path, &st) == 0)
			r = add_entry(ls, path, dots[i], st.mode, &st);
		else
			r = add_entry(ls, path, dots[i], S_IFDIR, NULL);
	}
	return r;
}

static int read_entries(struct ls *ls, const char *path, struct gfs_dir *dir,
			struct gfs_paths *subdirs)
{
	struct gfs_dirent entry;
	int r;

	while ((r = gfs_readdir(dir, &entry)) > 0) {
		GX_AUTOFREE char *below = NULL;

		if (entry.name[0] == '.' && !ls->all)
			continue;
		below = gfs_path_join(path, entry.name);
		r = below ? add_entry(ls, below, entry.name, entry.type,
				      entry.has_stat ? &entry.st : NULL)
			  : -ENOMEM;
		if (r == 0 && ls->recursive && S_ISDIR(entry.type))
			r = gfs_paths_add(subdirs, below);
		if (r < 0)
			return r;
		if (ls->count >= LS_BATCH && !needs_all(ls))
			flush_entries(ls);
	}
	return r;
}

static void list_dir(struct ls *ls, const char *path, struct gfs_paths *subdirs)
{
	struct gfs_dir *dir;
	int r = gfs_opendir(ls->tool->fs, path, &dir);

	if (r < 0) {
		gfs_tool_error(ls->tool, path, r);
		return;
	}
	print_heading(ls, path);
	/* Not in JSON: every path in the array is a different file. */
	r = ls->all && !ls->json ? add_dots(ls, path) : 0;
	if (r == 0)
		r = read_entries(ls, path, dir, subdirs);
	gfs_closedir(dir);
	if (needs_all(ls))
		sort_entries(ls);
	flush_entries(ls);
	if (r < 0)
		gfs_tool_error(ls->tool, path, r);
}

/* Depth first, in the order of names (or backwards), without recursion: a stack of paths. */
static void list_tree(struct ls *ls, const char *start)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths stack = {0};
	int r = gfs_paths_add(&stack, start);

	while (r == 0 && stack.count > 0 && !ferror(stdout)) {
		GX_AUTOFREE char *path = stack.path[--stack.count];
		GX_CLEANUP(gfs_paths_fini) struct gfs_paths subdirs = {0};

		list_dir(ls, path, &subdirs);
		for (size_t i = subdirs.count; r == 0 && i-- > 0;)
			r = gfs_paths_add(&stack,
					  subdirs.path[ls->reverse ? subdirs.count - 1 - i : i]);
	}
	if (r < 0)
		gfs_tool_error(ls->tool, start, r);
}

/* Files among the arguments come first, together; the directories are left in `ret_dirs`. */
static int list_files(struct ls *ls, const struct gfs_paths *paths, struct gfs_paths *ret_dirs)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < paths->count; i++) {
		const char *path = paths->path[i];
		struct gfs_stat st, target;

		r = gfs_lstat(ls->tool->fs, path, &st);
		if (r < 0) {
			gfs_tool_error(ls->tool, path, r);
			r = 0;
			continue;
		}
		/* As ls: without -l or -d a link to a directory is that directory. */
		if (S_ISLNK(st.mode) && !ls->text.details && !ls->directory &&
		    gfs_stat(ls->tool->fs, path, &target) == 0 && S_ISDIR(target.mode))
			st = target;
		if (S_ISDIR(st.mode) && !ls->directory)
			r = gfs_paths_add(ret_dirs, path);
		else
			r = add_entry(ls, path, path, st.mode, &st);
	}
	sort_entries(ls);
	flush_entries(ls);
	return r;
}

static void list_all(struct ls *ls, const struct gfs_paths *paths)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths dirs = {0};
	int r = list_files(ls, paths, &dirs);

	if (r < 0)
		gfs_tool_error(ls->tool, "arguments", r);
	ls->headings = ls->recursive || paths->count > 1 || ls->tool->failed;
	for (size_t i = 0; i < dirs.count; i++)
		list_tree(ls, dirs.path[i]);
	if (ls->json)
		puts(ls->objects ? "]" : "[]");
}

/* -- the command line -------------------------------------------------------------------------- */

static bool parse_options(struct ls *ls, int argc, char **argv)
{
	static const struct option longs[] = {{"all", no_argument, NULL, 'a'},
					      {"directory", no_argument, NULL, 'd'},
					      {"human-readable", no_argument, NULL, 'h'},
					      {"recursive", no_argument, NULL, 'R'},
					      {"reverse", no_argument, NULL, 'r'},
					      {"json", no_argument, NULL, GFS_OPT_OWN},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(ls->tool, argc, argv, "1adhlRrSt", longs)) != -1) {
		switch (c) {
		case '1':
			ls->text.columns = 0;
			break;
		case 'a':
			ls->all = true;
			break;
		case 'd':
			ls->directory = true;
			break;
		case 'h':
			ls->text.human = true;
			break;
		case 'l':
			ls->text.details = true;
			break;
		case 'R':
			ls->recursive = true;
			break;
		case 'r':
			ls->reverse = true;
			break;
		case 'S':
			ls->by_size = true;
			ls->by_time = false;
			break;
		case 't':
			ls->by_time = true;
			ls->by_size = false;
			break;
		case GFS_OPT_OWN:
			ls->json = true;
			break;
		default:
			return false;
		}
	}
	return true;
}

int gfs_ls_main(struct gx_env *env, int argc, char **argv)
{
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	struct gfs_tool tool;
	struct ls ls = {.tool = &tool};
	char *root[] = {(char *)"/"};
	bool default_path;
	int code, r;

	gfs_tool_init(&tool, env, "ls", help);
	gfs_ls_text_init(&ls.text, &tool);
	if (!parse_options(&ls, argc, argv))
		return GFS_EXIT_USAGE;
	default_path = optind >= argc;
	tool.walks = ls.recursive;
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	ls.text.owners.fs = tool.fs;
	r = default_path ? gfs_expand(&tool, 1, root, &paths)
			 : gfs_expand(&tool, argc - optind, argv + optind, &paths);
	if (r == 0)
		list_all(&ls, &paths);
	free(ls.entry);
	return gfs_tool_finish(&tool);
}
