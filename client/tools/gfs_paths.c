#include "client/tools/gfs_paths.h"

void gfs_paths_fini(struct gfs_paths *paths)
{
	for (size_t i = 0; i < paths->count; i++)
		free(paths->path[i]);
	free(paths->path);
	*paths = (struct gfs_paths){0};
}

int gfs_paths_add(struct gfs_paths *paths, const char *path)
{
	char *copy;

	if (paths->count >= GFS_PATHS_MAX)
		return -E2BIG;
	if (paths->count == paths->capacity) {
		size_t capacity = paths->capacity ? paths->capacity * 2 : 16;
		char **more = reallocarray(paths->path, capacity, sizeof(*more));

		if (!more)
			return -ENOMEM;
		paths->path = more;
		paths->capacity = capacity;
	}
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	paths->path[paths->count++] = copy;
	return 0;
}

char *gfs_path_clean(const char *text)
{
	char *path, *to;

	if (strncmp(text, "gfs:", 4) == 0)
		text += 4;
	path = malloc(strlen(text) + 2);
	if (!path)
		return NULL;
	to = path;
	*to++ = '/';
	for (; *text; text++)
		if (*text != '/' || to[-1] != '/')
			*to++ = *text;
	*to = '\0';
	return path;
}

char *gfs_path_join(const char *dir, const char *name)
{
	size_t bytes = strlen(dir);
	char *path;

	if (asprintf(&path, "%s%s%s", dir, bytes > 0 && dir[bytes - 1] == '/' ? "" : "/", name) < 0)
		return NULL;
	return path;
}

const char *gfs_path_last(const char *path)
{
	const char *p = path + strlen(path);

	if (p > path + 1 && p[-1] == '/')
		p--;
	while (p > path && p[-1] != '/')
		p--;
	return *p ? p : path;
}

char *gfs_path_parent(const char *path)
{
	size_t bytes = (size_t)(gfs_path_last(path) - path);

	while (bytes > 1 && path[bytes - 1] == '/')
		bytes--;
	return bytes > 0 ? strndup(path, bytes) : strdup("/");
}

bool gfs_path_wants_dir(const char *path)
{
	size_t bytes = strlen(path);

	return bytes > 1 && path[bytes - 1] == '/';
}

void gfs_path_cut_slash(char *path)
{
	if (gfs_path_wants_dir(path))
		path[strlen(path) - 1] = '\0';
}

bool gfs_path_is_pattern(const char *path)
{
	for (; *path; path++) {
		if (*path == '\\' && path[1])
			path++;
		else if (strchr("*?[", *path))
			return true;
	}
	return false;
}
