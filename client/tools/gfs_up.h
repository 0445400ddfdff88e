/*
 * gfs_up.h - what the files of `gfs up` share.
 *
 *	gfs_up.c        the command line, the order of things, what is told
 *	gfs_up_make.c   users, keys, configuration: files that are made if they are missing
 *	gfs_up_run.c    daemons: found, started, waited for
 *	gfs_up_mount.c  the mount
 */
#ifndef GFS_UP_H
#define GFS_UP_H

#include "client/tools/gfs_grid_dir.h"
#include "client/tools/gfs_grid_proc.h"
#include "rpc/rpc_key.h"

#define GFS_UP_TEXT_MAX (256u * 1024) /* of a file we write */
#define GFS_UP_ADDRESSES_MAX 4096u

struct gfs_up_daemon {
	char name[GFS_GRID_NAME_MAX]; /* "metad", "fsd1" */
	pid_t pid;
	bool started;                         /* by us, now */
	char addresses[GFS_UP_ADDRESSES_MAX]; /* a line each, as its address file says */
};

struct gfs_up {
	struct gfs_grid grid;
	const char *dir;
	uint64_t fsd; /* storage daemons that shall run: 1 to this */
	bool fsd_given;
	uint64_t rpcd;
	const char *mount;
	bool json;
	/* Filled in on the way. */
	char identity[GX_NAME_USER_MAX + 8];
	bool keys_changed; /* a metad that runs has to read them again */
	struct gfs_up_daemon metad;
	struct gfs_up_daemon nodes[GFS_GRID_NODES_MAX];
	struct gfs_up_daemon mount_daemon; /* its address is the directory */
};

/* -- gfs_up_make.c ----------------------------------------------------------------------------- */

/*
 * How many storage daemons shall run: as many as were asked for, and all that there are already,
 * because files are on them; one in a new grid if nobody said a number.
 */
GX_MUST_CHECK int gfs_up_count_nodes(struct gfs_up *up);
/* Everything but running daemons. */
GX_MUST_CHECK int gfs_up_make(struct gfs_up *up, struct gx_buf *errors);
/* The word as any POSIX shell reads it back. */
GX_MUST_CHECK int gfs_up_append_quoted(struct gx_buf *text, const char *word);

/* -- gfs_up_run.c ------------------------------------------------------------------------------ */

/* All of them run, metad answers and has all the others. 0, or the exit code after a report. */
GX_MUST_CHECK int gfs_up_run(struct gfs_up *up);
/* 1: it runs, and ret_proc is to be closed; 0: it does not; -1: reported. */
GX_MUST_CHECK int gfs_up_find(struct gfs_up *up, const char *name, struct gfs_proc *ret_proc);
void gfs_up_read_addresses(struct gfs_up *up, struct gfs_up_daemon *daemon);

/* -- gfs_up_mount.c ---------------------------------------------------------------------------- */

/* The grid is mounted on up->mount. 0, or the exit code after a report. */
GX_MUST_CHECK int gfs_up_do_mount(struct gfs_up *up);

#endif
