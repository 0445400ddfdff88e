/*
 * gfs_path.h - from paths to inodes: the walk, with symbolic links, "." and "..".
 *
 * A walk starts at the root, always: there is no working directory. So it knows every directory
 * above the one it is in, and ".." is the one before, without a question to metad and without a
 * cached answer that a rename elsewhere would make wrong.
 *
 * A walk stops in front of the last name. What happens then is the caller's: he looks the name up,
 * makes it, removes it, and if it turns out to be a symbolic link that he wants to follow, the walk
 * goes on behind it.
 *
 * One walk is used by one thread.
 */
#ifndef GFS_PATH_H
#define GFS_PATH_H

#include "client/fs/gfc.h"
#include "include/gfs.h"

#define GFS_LINKS_MAX 40u          /* symbolic links on one walk, then -ELOOP */
#define GFS_DEPTH_MAX (64u * 1024) /* directories one inside the other */

enum gfs_last {
	GFS_LAST_ROOT,   /* nothing but slashes */
	GFS_LAST_NAME,   /* an ordinary name */
	GFS_LAST_DOT,    /* "." */
	GFS_LAST_DOTDOT, /* ".." */
	GFS_LAST_COUNT
};

struct gfs_walk {
	struct gfc *gfc;
	/* After gfs_walk_parent(): */
	struct gfc_ref dir;          /* where the last component stands */
	enum gfs_last last;          /* what kind it is */
	char name[GFS_NAME_MAX + 1]; /* its text */
	bool slash;                  /* slashes followed it: it must be a directory */
	/* Its own: */
	struct gx_buf above; /* struct gfc_ref: the directories above `dir`, root first */
	unsigned links;      /* followed so far */
	char *rest;          /* what is still to walk, in text */
	char text[GFS_PATH_MAX];
};

/* -ENOENT for "", -ENAMETOOLONG. Fini in any case. */
GX_MUST_CHECK int gfs_walk_init(struct gfs_walk *walk, struct gfc *gfc, const char *path);
void gfs_walk_fini(struct gfs_walk *walk);

/* Up to the last component. -ENOENT, -ENOTDIR, -EACCES, -ELOOP, -ENAMETOOLONG and metad's. */
GX_MUST_CHECK int gfs_walk_parent(struct gfs_walk *walk);
/* The last name is this symbolic link: gfs_walk_parent() now goes on through it. */
GX_MUST_CHECK int gfs_walk_follow(struct gfs_walk *walk, struct gfc_ref link);
/* All the way. A link at the end is followed if `follow` is set or a slash comes behind it. */
GX_MUST_CHECK int gfs_walk_find(struct gfs_walk *walk, bool follow, struct gfc_attr *ret_attr);

/* The three in one. */
GX_MUST_CHECK int gfs_path_find(struct gfc *gfc, const char *path, bool follow,
				struct gfc_attr *ret_attr);

#endif
