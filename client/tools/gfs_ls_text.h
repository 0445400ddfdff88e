/*
 * gfs_ls_text.h - entries of directories as lines and columns, for gfs ls.
 */
#ifndef GFS_LS_TEXT_H
#define GFS_LS_TEXT_H

#include "client/tools/gfs_print.h"
#include "include/gfs.h"

struct gfs_tool;

struct gfs_ls_entry {
	char *name;
	char *target; /* of a symbolic link, if it is to be shown; or NULL */
	uint32_t type;
	bool has_stat;
	struct gfs_stat st; /* zero if !has_stat */
};

struct gfs_ls_text {
	const struct gfs_tool *tool;
	struct gfs_owners owners;
	bool details; /* -l */
	bool human;   /* -h */
	/* Columns of the terminal; 0: one name a line. */
	size_t columns;
	int64_t now_ns;
	/* Widths of -l so far: a batch never gets narrower than the one before. */
	int nlink_width, user_width, group_width, size_width;
};

void gfs_ls_text_init(struct gfs_ls_text *text, const struct gfs_tool *tool);
void gfs_ls_print(struct gfs_ls_text *text, const struct gfs_ls_entry *entries, size_t count);

#endif
