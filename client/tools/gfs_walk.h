/*
 * gfs_walk.h - from what the user named to the files meant: patterns, and walks over trees.
 *
 * A walk keeps one open directory per level and nothing else, so a directory of any size costs
 * the same memory, and entries may be removed while they are walked (the library continues
 * behind the last name). It does not recurse.
 */
#ifndef GFS_WALK_H
#define GFS_WALK_H

#include "client/tools/gfs_paths.h"
#include "client/tools/gfs_tool.h"
#include "include/gfs.h"

/*
 * Cleans the arguments and expands patterns, reporting those that match nothing. A path that
 * exists as it is written is no pattern. Negative errno: no memory, too many (reported).
 */
GX_MUST_CHECK int gfs_expand(struct gfs_tool *tool, int argc, char **argv,
			     struct gfs_paths *ret_paths);

/* The text of a symbolic link, terminated. */
GX_MUST_CHECK int gfs_link_target(struct gfs *fs, const char *path, char target[GFS_PATH_MAX]);

enum gfs_visit {
	GFS_VISIT_ENTRY, /* not a directory */
	GFS_VISIT_ENTER, /* a directory, before what is in it */
	GFS_VISIT_LEAVE, /* the same directory, behind what is in it */
	GFS_VISIT_COUNT
};

struct gfs_walk_item {
	const char *path;          /* from the root of the grid */
	const char *below;         /* the part behind the walk's start: "" or "a/b" */
	size_t depth;              /* 0: the start */
	const struct gfs_stat *st; /* never NULL */
};

/* Returned by a visitor: for ENTER, do not look into it (there will be no LEAVE). */
#define GFS_WALK_SKIP 1
/* 0 to go on, GFS_WALK_SKIP, or a negative errno that ends the walk and comes out of it. */
typedef int (*gfs_visit_fn)(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item);

/*
 * Visits `start` and all below it; a symbolic link is followed only as the start and only if
 * `follow`. What cannot be read is reported as a problem of the tool, and the walk goes on.
 * Ends with -EINTR when gfs_tool_interrupted().
 */
GX_MUST_CHECK int gfs_walk(struct gfs_tool *tool, const char *start, bool follow, gfs_visit_fn fn,
			   void *arg);

#endif
