/*
 * gfs_grid_dir.h - a whole grid on this machine in one directory: what `gfs up` makes.
 *
 *	grid.mark       says that gfs up made this directory; its lock serializes up and down
 *	keys            key table of the daemons
 *	client.key      key of the person who started it
 *	root.key        key of the grid's root
 *	fsd1.key …      keys of the storage nodes
 *	users           users and groups of the grid
 *	metad.conf      metad's configuration; changes go into metad.conf.d/NAME.conf
 *	fsd1.conf …     the same of the storage nodes
 *	gfs.conf        the clients' configuration
 *	env.sh          for shells: where gfs.conf is
 *	metad/          metad's data
 *	fsd1/spool/ …   the bytes of large files
 *	log/            logs of the daemons
 *	run/            pid files, addresses, sockets; nothing of it outlives the daemons
 *
 * Keys, users and data are made once and kept. The .conf files and env.sh are written at every
 * start, so a directory that was moved works in its new place. Paths in the daemons' are relative
 * to it, so any name of the directory will do.
 *
 * The marker is the first thing made and the last one removed, and is only made in a directory
 * that is empty: what it stands in is ours.
 */
#ifndef GFS_GRID_DIR_H
#define GFS_GRID_DIR_H

#include "common/gx_buf.h"
#include "common/gx_env.h"

#define GFS_GRID_MARK "grid.mark"
#define GFS_GRID_KEYS "keys"
#define GFS_GRID_CLIENT_KEY "client.key"
#define GFS_GRID_ROOT_KEY "root.key"
#define GFS_GRID_USERS "users"
#define GFS_GRID_CLIENT_CONF "gfs.conf"
#define GFS_GRID_ENV "env.sh"
#define GFS_GRID_LOG "log"
#define GFS_GRID_RUN "run"
/* Of a daemon, by its name: "metad", "fsd1". */
#define GFS_GRID_DIR_OF "%s"
#define GFS_GRID_SPOOL_OF "%s/spool"
#define GFS_GRID_CONF_OF "%s.conf"
#define GFS_GRID_KEY_OF "%s.key"
#define GFS_GRID_LOG_OF GFS_GRID_LOG "/%s.log"
#define GFS_GRID_PID_OF GFS_GRID_RUN "/%s.pid"
#define GFS_GRID_ADDR_OF GFS_GRID_RUN "/%s.addr"
#define GFS_GRID_SOCKET_OF GFS_GRID_RUN "/%s.sock"
#define GFS_GRID_METAD "metad"
#define GFS_GRID_NODE "fsd" /* and a number */
#define GFS_GRID_MOUNT "mount"

#define GFS_GRID_NODES_MAX 99u /* so that no name of a node is longer than metad's */
#define GFS_GRID_NAME_MAX 16u  /* bytes of a daemon's name with its NUL */

struct gfs_grid {
	struct gx_env *env;
	char dir[GX_PATH_MAX]; /* absolute, no symbolic link in it */
	char socket_dir[64];   /* made only for sockets, because `dir` is too long; else "" */
	int lock_fd;           /* of the marker */
};

/* `given` if not NULL, else $GFS_GRID, else ~/.gridstage/grid. -ENOENT: nobody is at home. */
GX_MUST_CHECK int gfs_grid_default(const char *given, char path[GX_PATH_MAX]);

/*
 * Opens the grid's directory and waits for its lock. With `make` the directory is made if it is
 * absent or empty. -ENOENT: no such directory, or no grid in it; -EPERM: it belongs to somebody
 * else; -ENOTEMPTY: it holds other things; -EAGAIN: the lock did not come free. `errors` has a
 * line for each.
 */
GX_MUST_CHECK int gfs_grid_open(struct gfs_grid *grid, struct gx_env *env, const char *path,
				bool make, struct gx_buf *errors);
void gfs_grid_close(struct gfs_grid *grid);

/* Of the storage node with that number, from 1 on: "fsd1". */
void gfs_grid_node_name(uint64_t number, char name[GFS_GRID_NAME_MAX]);
/* DIR/NAME; -ENAMETOOLONG. */
GX_MUST_CHECK int gfs_grid_path(const struct gfs_grid *grid, const char *name,
				char path[GX_PATH_MAX]);
/* The same of a daemon's file: `format` is one of the GFS_GRID_…_OF. */
#define GFS_GRID_PATH_OF(grid, format, name, path)                                                 \
	(gx_format(path, GX_PATH_MAX, "%s/" format, (grid)->dir, name) < 0 ? -ENAMETOOLONG : 0)
/* It can stand in a list of a configuration file. */
bool gfs_grid_path_is_plain(const char *path);
/* Where that daemon's unix socket is. */
GX_MUST_CHECK int gfs_grid_socket(const struct gfs_grid *grid, const char *name,
				  char path[GX_PATH_MAX]);
/* Makes the directory for sockets, if they have one of their own. -EPERM: somebody else did. */
GX_MUST_CHECK int gfs_grid_make_socket_dir(const struct gfs_grid *grid, struct gx_buf *errors);
/* Writes a file of the grid, mode 0600: all of it or nothing. */
GX_MUST_CHECK int gfs_grid_write(const struct gfs_grid *grid, const char *name,
				 const struct gx_buf *text);

/* After the daemons have stopped: what only means something while they run. */
void gfs_grid_clean(const struct gfs_grid *grid);
/*
 * Removes the grid with all its data, the marker last, and its directory if that is empty then;
 * -ENOTEMPTY: it holds other things. The grid may only be closed afterwards.
 */
GX_MUST_CHECK int gfs_grid_destroy(const struct gfs_grid *grid, struct gx_buf *errors);

#endif
