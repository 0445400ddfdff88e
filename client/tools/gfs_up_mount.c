/*
 * The mount of a grid: one gfsmount, found by its pid file as the daemons are. Where it is mounted
 * stands in its address file.
 */
#include "client/tools/gfs_tool.h"
#include "client/tools/gfs_up.h"
#include <limits.h>
#include <unistd.h>

#define PROGRAM "gfsmount"

/* The directory, made if it is missing, as an absolute path. */
static int make_mountpoint(struct gfs_up *up, char path[PATH_MAX])
{
	int r = gx_env_mkdir(up->grid.env, up->mount, 0755);

	if (r < 0 && r != -EEXIST)
		return gfs_fail("up", GFS_EXIT_FAILED, "--mount %s: %s", up->mount, gx_strerror(r));
	if (!realpath(up->mount, path))
		return gfs_fail(
			"up", GFS_EXIT_FAILED,
			"--mount %s: %s; if a dead mount is in the way, umount %s removes it",
			up->mount, gx_strerror(gx_errno()), up->mount);
	return 0;
}

static int write_place(struct gfs_up *up, const char *path)
{
	char file[GFS_GRID_NAME_MAX + 16];
	struct gx_buf text;
	int r = gx_format(file, sizeof(file), GFS_GRID_ADDR_OF, GFS_GRID_MOUNT);

	gx_buf_init(&text, GFS_UP_ADDRESSES_MAX);
	if (r == 0)
		r = gx_buf_append_format(&text, "%s\n", path);
	if (r == 0)
		r = gfs_grid_write(&up->grid, file, &text);
	gx_buf_fini(&text);
	return r;
}

/* A comma would end the option. */
static int make_option(struct gfs_up *up, char *option, size_t bytes)
{
	char conf[GX_PATH_MAX], pid[GX_PATH_MAX];
	int r = gfs_grid_path(&up->grid, GFS_GRID_CLIENT_CONF, conf);

	if (r == 0)
		r = GFS_GRID_PATH_OF(&up->grid, GFS_GRID_PID_OF, GFS_GRID_MOUNT, pid);
	if (r == 0 && (strchr(conf, ',') || strchr(pid, ',')))
		r = -EINVAL;
	return r < 0 ? r : gx_format(option, bytes, "config=%s,pid_file=%s", conf, pid);
}

static int start(struct gfs_up *up, const char *path)
{
	char option[2 * GX_PATH_MAX + 32];
	char *argv[] = {PROGRAM, "-o", option, (char *)(uintptr_t)path, NULL};
	int r = make_option(up, option, sizeof(option));

	if (r < 0)
		return gfs_fail("up", GFS_EXIT_FAILED,
				"--mount: the grid's directory must not have a comma in its name");
	r = write_place(up, path);
	if (r == 0)
		r = gfs_proc_run(up->grid.env, argv, up->grid.dir);
	if (r == 0) {
		up->mount_daemon.started = true;
		return 0;
	}
	if (r == -ENOENT)
		return gfs_fail("up", GFS_EXIT_FAILED,
				"there is no " PROGRAM ": not beside gfs and not in PATH");
	if (r == -ECHILD) /* it has said why */
		return gfs_fail("up", GFS_EXIT_FAILED, "%s: not mounted", path);
	return gfs_fail("up", GFS_EXIT_FAILED, "cannot start " PROGRAM ": %s", gx_strerror(r));
}

/* One that runs must be the one that is wanted. */
static int check_place(struct gfs_up *up, const char *path)
{
	char *line = up->mount_daemon.addresses;

	gfs_up_read_addresses(up, &up->mount_daemon);
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, path) != 0)
		return gfs_fail("up", GFS_EXIT_FAILED,
				"--mount %s: the grid is mounted on %s already; umount that first",
				path, line);
	return 0;
}

int gfs_up_do_mount(struct gfs_up *up)
{
	struct gfs_proc proc;
	char path[PATH_MAX];
	int found, code = make_mountpoint(up, path);

	if (code)
		return code;
	GX_IGNORE(gx_strcpy(up->mount_daemon.name, GFS_GRID_NAME_MAX, GFS_GRID_MOUNT)); /* fits */
	found = gfs_up_find(up, GFS_GRID_MOUNT, &proc);
	if (found == 0) {
		code = start(up, path);
		if (code == 0)
			found = gfs_up_find(up, GFS_GRID_MOUNT, &proc);
		if (code == 0 && found == 0)
			code = gfs_fail("up", GFS_EXIT_FAILED, PROGRAM " has ended again");
	}
	if (code || found < 0)
		return code ? code : GFS_EXIT_FAILED;
	up->mount_daemon.pid = proc.pid;
	gfs_proc_close(up->grid.env, &proc);
	return check_place(up, path);
}
