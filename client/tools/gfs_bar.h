/*
 * gfs_bar.h - one line about a transfer that takes long: name, percent, bytes, rate, time left.
 *
 * The text is made by a pure function; gfs_bar_step() decides when it is shown: on a terminal for
 * transfers that take longer than a second, or always if the user wants so.
 */
#ifndef GFS_BAR_H
#define GFS_BAR_H

#include "client/tools/gfs_tool.h"

#define GFS_BAR_TEXT 512u

enum gfs_bar_when { GFS_BAR_AUTO, GFS_BAR_ALWAYS, GFS_BAR_NEVER, GFS_BAR_WHEN_COUNT };

struct gfs_bar {
	enum gfs_bar_when when;
	const char *name;
	uint64_t total; /* bytes; UINT64_MAX: not known */
	uint64_t from; /* where this transfer began: what was there before does not count as fast */
	uint64_t done;
	int64_t begin_ns;
	int64_t next_ns; /* when to show it again */
	bool shown;
};

/* "auto", "always" or "never"; -EINVAL. */
GX_MUST_CHECK int gfs_bar_parse(const char *text, enum gfs_bar_when *ret_when);

/*
 * The line as it is at now_ns, at most `columns` wide, terminated:
 * "name  45%  460M of 1.0G  98M/s  0:06 left".
 */
void gfs_bar_text(const struct gfs_bar *bar, int64_t now_ns, unsigned columns,
		  char text[GFS_BAR_TEXT]);

void gfs_bar_begin(struct gfs_bar *bar, struct gfs_tool *tool, const char *name, uint64_t total,
		   uint64_t from);
/* So many bytes are done now. */
void gfs_bar_step(struct gfs_bar *bar, struct gfs_tool *tool, uint64_t done);
/* Removes the line; with GFS_BAR_ALWAYS the last state stays. */
void gfs_bar_end(struct gfs_bar *bar, struct gfs_tool *tool);

#endif
