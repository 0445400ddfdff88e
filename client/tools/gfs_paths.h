/*
 * gfs_paths.h - paths of the grid as text, and lists of them.
 *
 * A clean path starts with '/', has no "gfs:" and no double slashes, and ends with '/' only if it
 * is the root, or if the user wrote it so (which asks for a directory).
 */
#ifndef GFS_PATHS_H
#define GFS_PATHS_H

#include "common/gx_base.h"

/* What a pattern on the command line may match: beyond this the user is told to use find. */
#define GFS_PATHS_MAX 1000000u

struct gfs_paths {
	char **path;
	size_t count, capacity;
};

void gfs_paths_fini(struct gfs_paths *paths);
/* Copies. -ENOMEM, -E2BIG. */
GX_MUST_CHECK int gfs_paths_add(struct gfs_paths *paths, const char *path);

/* The clean path, or NULL without memory. */
GX_MUST_CHECK char *gfs_path_clean(const char *text);
/* DIR/NAME without a double slash; NULL without memory. */
GX_MUST_CHECK char *gfs_path_join(const char *dir, const char *name);
/* The directory that a clean path is in; "/" for the root. */
GX_MUST_CHECK char *gfs_path_parent(const char *path);
/* Behind the last slash (one at the end does not count); "/" for the root. Points into path. */
const char *gfs_path_last(const char *path);
/* The user wrote a slash at the end (and more than that). */
bool gfs_path_wants_dir(const char *path);
void gfs_path_cut_slash(char *path);
/* It has an unescaped *, ? or [. */
bool gfs_path_is_pattern(const char *path);

#endif
