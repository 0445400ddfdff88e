#include "client/tools/gfs_walk.h"
#include "common/gx_buf.h"
#include <fnmatch.h>

/* -- patterns ---------------------------------------------------------------------------------- */

/* Backslashes only hide what would be a pattern; a plain component is used without them. */
static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		if (*text == '\\' && text[1])
			text++;
		*to++ = *text;
	}
	*to = '\0';
}

static int match_dir(struct gfs *fs, const char *dir, const char *pattern, struct gfs_paths *out)
{
	struct gfs_dirent entry;
	struct gfs_dir *d;
	int r = gfs_opendir(fs, dir, &d);

	/* What cannot be looked into has no match, as in a shell. */
	if (r < 0)
		return 0;
	while ((r = gfs_readdir(d, &entry)) > 0) {
		GX_AUTOFREE char *path = NULL;

		if (fnmatch(pattern, entry.name, FNM_PERIOD) != 0)
			continue;
		path = gfs_path_join(dir, entry.name);
		r = path ? gfs_paths_add(out, path) : -ENOMEM;
		if (r < 0)
			break;
	}
	gfs_closedir(d);
	return r;
}

/* One component further: every path of `from` with what matches below it. */
static int expand_step(struct gfs *fs, const struct gfs_paths *from, char *component,
		       struct gfs_paths *out)
{
	bool pattern = gfs_path_is_pattern(component);
	int r = 0;

	if (!pattern)
		unescape(component);
	for (size_t i = 0; r == 0 && i < from->count; i++) {
		GX_AUTOFREE char *path = NULL;
		struct gfs_stat st;

		if (pattern) {
			r = match_dir(fs, from->path[i], component, out);
			continue;
		}
		path = gfs_path_join(from->path[i], component);
		if (!path)
			return -ENOMEM;
		if (gfs_lstat(fs, path, &st) == 0)
			r = gfs_paths_add(out, path);
	}
	return r;
}

/* A clean path with a pattern to what it matches, in the order of the names' bytes. */
static int expand_pattern(struct gfs *fs, const char *pattern, struct gfs_paths *out)
{
	GX_AUTOFREE char *copy = strdup(pattern);
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths now = {0};
	char *rest = copy, *component;
	int r = copy ? gfs_paths_add(&now, "/") : -ENOMEM;

	while (r == 0 && (component = strsep(&rest, "/"))) {
		struct gfs_paths next = {0};

		if (!*component)
			continue;
		r = expand_step(fs, &now, component, &next);
		gfs_paths_fini(&now);
		now = next;
	}
	for (size_t i = 0; r == 0 && i < now.count; i++)
		r = gfs_paths_add(out, now.path[i]);
	return r;
}

static int expand_one(struct gfs_tool *tool, const char *argument, struct gfs_paths *out)
{
	GX_AUTOFREE char *path = gfs_path_clean(argument);
	size_t before = out->count;
	struct gfs_stat st;
	int r;

	if (!path)
		return -ENOMEM;
	if (!gfs_path_is_pattern(path) && !strchr(path, '\\'))
		return gfs_paths_add(out, path);
	/* Anything but "not there" is for the command to report. */
	r = gfs_lstat(tool->fs, path, &st);
	if (r != -ENOENT && r != -ENOTDIR && r != -ENAMETOOLONG)
		return gfs_paths_add(out, path);
	r = expand_pattern(tool->fs, path, out);
	if (r == 0 && out->count == before)
		gfs_tool_problem(tool, "%s: no match", path);
	return r;
}

int gfs_expand(struct gfs_tool *tool, int argc, char **argv, struct gfs_paths *ret_paths)
{
	struct gfs_paths paths = {0};

	for (int i = 0; i < argc; i++) {
		int r = *argv[i] ? expand_one(tool, argv[i], &paths) : -ENOENT;

		if (r == -ENOENT) {
			gfs_tool_error(tool, "''", r);
		} else if (r < 0) {
			gfs_tool_error(tool, argv[i], r);
			gfs_paths_fini(&paths);
			return r;
		}
	}
	*ret_paths = paths;
	return 0;
}

int gfs_link_target(struct gfs *fs, const char *path, char target[GFS_PATH_MAX])
{
	ssize_t n = gfs_readlink(fs, path, target, GFS_PATH_MAX);

	if (n < 0)
		return (int)n;
	if (n >= GFS_PATH_MAX)
		return -ENAMETOOLONG;
	target[n] = '\0';
	return 0;
}

/* -- trees ------------------------------------------------------------------------------------- */

struct level {
	struct gfs_dir *dir;
	struct gfs_stat st;
	size_t path_bytes; /* of this directory's own path */
	bool stopped;      /* reading failed; the rest of it is not visited */
};

struct walk {
	struct gfs_tool *tool;
	gfs_visit_fn fn;
	void *arg;
	struct gx_buf path;
	size_t start_bytes;
	struct level *level;
	size_t depth, capacity; /* levels in use, allocated */
};

static int visit(struct walk *w, enum gfs_visit kind, size_t depth, const struct gfs_stat *st)
{
	const char *path = gx_buf_text(&w->path);
	struct gfs_walk_item item = {.path = path, .depth = depth, .st = st};

	if (!path)
		return -ENOMEM;
	item.below = path + w->start_bytes;
	if (*item.below == '/')
		item.below++;
	return w->fn(w->arg, kind, &item);
}

static int push(struct walk *w, const struct gfs_stat *st)
{
	const char *path = gx_buf_text(&w->path);
	struct gfs_dir *dir;
	int r;

	if (!path)
		return -ENOMEM;
	if (w->depth == w->capacity) {
		size_t capacity = w->capacity ? w->capacity * 2 : 16;
		struct level *more = reallocarray(w->level, capacity, sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->level = more;
		w->capacity = capacity;
	}
	r = gfs_opendir(w->tool->fs, path, &dir);
	if (r < 0) {
		gfs_tool_error(w->tool, path, r);
		dir = NULL;
	}
	w->level[w->depth++] =
		(struct level){.dir = dir, .st = *st, .path_bytes = w->path.bytes, .stopped = !dir};
	return 0;
}

/* Something at the path now in w->path: visits it and, if it is a directory, goes in. */
static int arrive(struct walk *w, const struct gfs_stat *st)
{
	bool dir = S_ISDIR(st->mode);
	int r = visit(w, dir ? GFS_VISIT_ENTER : GFS_VISIT_ENTRY, w->depth, st);

	if (r < 0 || !dir || r == GFS_WALK_SKIP)
		return GX_MIN(r, 0);
	return push(w, st);
}

/* The next entry of the deepest directory. 0: none is left, 1: visited. */
static int advance(struct walk *w)
{
	struct level *level = &w->level[w->depth - 1];
	struct gfs_dirent entry;
	const char *slash;
	int r;

	w->path.bytes = level->path_bytes;
	r = level->stopped ? 0 : gfs_readdir(level->dir, &entry);
	if (r < 0) {
		const char *path = gx_buf_text(&w->path);

		gfs_tool_error(w->tool, path ? path : "?", r);
		level->stopped = true;
		return 0;
	}
	if (r == 0)
		return 0;
	slash = w->path.data[w->path.bytes - 1] == '/' ? "" : "/";
	r = gx_buf_append_format(&w->path, "%s%s", slash, entry.name);
	if (r == -E2BIG) {
		/* Deeper than a path can say: left out, and said so. */
		gfs_tool_error(w->tool, entry.name, -ENAMETOOLONG);
		return 1;
	}
	if (r == 0 && !entry.has_stat) {
		const char *path = gx_buf_text(&w->path);

		r = path ? gfs_lstat(w->tool->fs, path, &entry.st) : -ENOMEM;
		if (r < 0 && path) {
			/* Gone meanwhile is no problem. */
			if (r != -ENOENT)
				gfs_tool_error(w->tool, path, r);
			return 1;
		}
	}
	if (r == 0)
		r = arrive(w, &entry.st);
	return r < 0 ? r : 1;
}

static int leave(struct walk *w)
{
	struct level level = w->level[--w->depth];

	gfs_closedir(level.dir);
	w->path.bytes = level.path_bytes;
	return visit(w, GFS_VISIT_LEAVE, w->depth, &level.st);
}

static int walk_all(struct walk *w, const struct gfs_stat *st)
{
	int r = arrive(w, st);

	while (r >= 0 && w->depth > 0) {
		if (gfs_tool_interrupted())
			return -EINTR;
		r = advance(w);
		if (r == 0)
			r = leave(w);
	}
	return GX_MIN(r, 0);
}

int gfs_walk(struct gfs_tool *tool, const char *start, bool follow, gfs_visit_fn fn, void *arg)
{
	struct walk w = {.tool = tool, .fn = fn, .arg = arg};
	struct gfs_stat st;
	int r = follow ? gfs_stat(tool->fs, start, &st) : gfs_lstat(tool->fs, start, &st);

	if (r < 0) {
		gfs_tool_error(tool, start, r);
		return 0;
	}
	gx_buf_init(&w.path, GFS_PATH_MAX - 1);
	r = gx_buf_append(&w.path, start, strlen(start));
	w.start_bytes = w.path.bytes;
	if (r == 0)
		r = walk_all(&w, &st);
	while (w.depth > 0)
		gfs_closedir(w.level[--w.depth].dir);
	free(w.level);
	gx_buf_fini(&w.path);
	return r;
}
