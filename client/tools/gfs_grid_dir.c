/*
 * Two processes that meet in one directory: the marker is locked before anything is looked at or
 * made. It may have been removed (gfs down --destroy) while we waited for it, so whoever gets the
 * lock checks that the name still leads to that file, and starts again if not.
 *
 * A unix socket's path has 107 bytes, must fit into a list of addresses, and into a configuration
 * file. Where the directory's name does not allow that, the socket gets a directory of its own in
 * /tmp. Its name follows from the grid's directory and nothing else (not from XDG_RUNTIME_DIR,
 * which is not the same in every login), so that up, down and a second up agree about it.
 */
#include "client/tools/gfs_grid_dir.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include <fcntl.h>
#include <ftw.h>
#include <pwd.h>
#include <sys/un.h>
#include <unistd.h>

#define MARK_TEXT "Gridstage grid directory, format 1\n"
#define MARK_TEXT_MAX 256u
#define LOCK_WAIT_MS 60000u
#define LOCK_POLL_MS 20
#define TRIES_MAX 1000 /* to get hold of a directory that others keep removing */
#define PASSWD_BYTES 16384
#define WALK_FDS 16 /* descriptors that removing a tree may use */

/* One line for a person, if there is room; evaluates to err. */
#define FAIL(errors, err, ...)                                                                     \
	({                                                                                         \
		GX_IGNORE(gx_buf_append_format(errors, __VA_ARGS__));                              \
		(err);                                                                             \
	})

int gfs_grid_default(const char *given, char path[GX_PATH_MAX])
{
	struct passwd entry, *found = NULL;
	char text[PASSWD_BYTES];
	const char *home = getenv("HOME");

	if (!given)
		given = getenv("GFS_GRID");
	if (given && given[0])
		return gx_strcpy(path, GX_PATH_MAX, given) < 0 ? -ENAMETOOLONG : 0;
	if (!home || home[0] != '/') {
		if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) != 0 || !found)
			return -ENOENT;
		home = entry.pw_dir;
	}
	return gx_format(path, GX_PATH_MAX, "%s/.gridstage/grid", home) < 0 ? -ENAMETOOLONG : 0;
}

int gfs_grid_path(const struct gfs_grid *grid, const char *name, char path[GX_PATH_MAX])
{
	return gx_format(path, GX_PATH_MAX, "%s/%s", grid->dir, name) < 0 ? -ENAMETOOLONG : 0;
}

int gfs_grid_socket(const struct gfs_grid *grid, const char *name, char path[GX_PATH_MAX])
{
	int r = grid->socket_dir[0]
			? gx_format(path, GX_PATH_MAX, "%s/%s.sock", grid->socket_dir, name)
			: GFS_GRID_PATH_OF(grid, GFS_GRID_SOCKET_OF, name, path);

	return r < 0 ? -ENAMETOOLONG : 0;
}

/* -- opening -------------------------------------------------------------- */

/* The directory and what is missing above it. */
static int make_dirs(struct gx_env *env, const char *path)
{
	char part[GX_PATH_MAX];
	int r = gx_strcpy(part, sizeof(part), path) < 0 ? -ENAMETOOLONG : 0;

	for (char *p = part; r == 0 && *p; p++) {
		if (*p != '/' || p == part)
			continue;
		*p = '\0';
		r = gx_env_mkdir(env, part, 0700);
		*p = '/';
		/* Above a directory that exists we may lack the right to make one. */
		if (r == -EEXIST || r == -EROFS || r == -EACCES || r == -EPERM)
			r = 0;
	}
	if (r == 0)
		r = gx_env_mkdir(env, part, 0700);
	return r == -EEXIST ? 0 : r;
}

bool gfs_grid_path_is_plain(const char *path)
{
	size_t bytes = strlen(path);

	for (size_t at = 0, n; at < bytes; at += n) {
		unsigned char c = (unsigned char)path[at];

		n = gx_utf8_char(path + at, bytes - at);
		if (n == 0 || c < 0x20 || c == 0x7f || c == ',')
			return false;
	}
	return true;
}

static bool socket_path_fits(const char *path)
{
	return strlen(path) < sizeof(((struct sockaddr_un *)NULL)->sun_path) &&
	       gfs_grid_path_is_plain(path);
}

/* All daemons' sockets are in one place: no name is longer than metad's. */
static int choose_socket_dir(struct gfs_grid *grid)
{
	uint64_t sum = gx_sum64(grid->dir, strlen(grid->dir));
	char path[GX_PATH_MAX];

	grid->socket_dir[0] = '\0';
	if (gfs_grid_socket(grid, GFS_GRID_METAD, path) == 0 && socket_path_fits(path))
		return 0;
	return gx_format(grid->socket_dir, sizeof(grid->socket_dir), "/tmp/gridstage-%llu-%016llx",
			 (unsigned long long)geteuid(), (unsigned long long)sum);
}

static int find_dir(struct gfs_grid *grid, const char *path, bool make, struct gx_buf *errors)
{
	GX_AUTOFREE char *real = NULL;
	struct stat st;
	int r = make ? make_dirs(grid->env, path) : 0;

	if (r < 0)
		return FAIL(errors, r, "cannot make %s: %s\n", path, gx_strerror(r));
	real = realpath(path, NULL);
	r = !real ? gx_errno() : gx_strcpy(grid->dir, sizeof(grid->dir), real);
	if (r == 0)
		r = gx_env_stat(grid->env, grid->dir, &st);
	if (r == 0 && !S_ISDIR(st.st_mode))
		r = -ENOTDIR;
	if (r < 0)
		return r == -ENOENT ? r : FAIL(errors, r, "%s: %s\n", path, gx_strerror(r));
	/* Root neither: he would leave files of his own, and signal whom the owner wrote down. */
	if (st.st_uid != geteuid())
		return FAIL(errors, -EPERM, "%s belongs to another user\n", path);
	return choose_socket_dir(grid);
}

static int count_others(void *arg, const char *name)
{
	size_t *others = arg;

	*others += strcmp(name, GFS_GRID_MARK) != 0;
	return 0;
}

/* 1: has a marker; 0: has none and is empty. */
static int look_for_mark(const struct gfs_grid *grid, const char *mark)
{
	size_t others = 0;
	struct stat st;
	int r = gx_env_stat(grid->env, mark, &st);

	if (r != -ENOENT)
		return r < 0 ? r : 1;
	r = gx_env_list_dir(grid->env, grid->dir, count_others, &others);
	if (r < 0 || others == 0)
		return r;
	/* Somebody may have begun a grid between the two looks. */
	r = gx_env_stat(grid->env, mark, &st);
	return r == -ENOENT ? -ENOTEMPTY : r < 0 ? r : 1;
}

static int wait_for_lock(const struct gfs_grid *grid, int fd)
{
	int64_t deadline_ns = gx_env_deadline_ms(grid->env, LOCK_WAIT_MS);
	int r;

	while ((r = gx_env_lock_file(grid->env, fd)) == -EAGAIN) {
		int64_t now_ns = gx_env_now_ns(grid->env);

		if (now_ns >= deadline_ns)
			break;
		gx_env_sleep_until(grid->env, now_ns + LOCK_POLL_MS * GX_NSEC_PER_MSEC);
	}
	return r;
}

/* The marker is locked: is it ours, or (empty, alone) about to become so? */
static int check_mark(struct gfs_grid *grid, int fd, bool make)
{
	char text[MARK_TEXT_MAX];
	size_t others = 0;
	ssize_t n = gx_env_pread(grid->env, fd, text, sizeof(text), 0);
	int r;

	if (n < 0)
		return (int)n;
	if ((size_t)n == strlen(MARK_TEXT) && memcmp(text, MARK_TEXT, (size_t)n) == 0)
		return 0;
	if (n > 0 || !make)
		return -EPROTONOSUPPORT;
	r = gx_env_list_dir(grid->env, grid->dir, count_others, &others);
	if (r == 0 && others > 0)
		r = -ENOTEMPTY;
	/* It was an empty directory of whatever mode; from here on keys are in it. */
	if (r == 0 && chmod(grid->dir, 0700) < 0)
		r = gx_errno();
	return r < 0 ? r : gx_env_pwrite(grid->env, fd, MARK_TEXT, strlen(MARK_TEXT), 0);
}

/* 1: locked; 0: removed meanwhile, try again. */
static int try_mark(struct gfs_grid *grid, bool make)
{
	char mark[GX_PATH_MAX];
	struct stat held, named;
	int fd, r = gfs_grid_path(grid, GFS_GRID_MARK, mark);

	if (r == 0)
		r = look_for_mark(grid, mark);
	if (!make && (r == 0 || r == -ENOTEMPTY))
		return -ENOENT;
	if (r < 0)
		return r;
	fd = gx_env_open(grid->env, mark, O_RDWR | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
	if (fd < 0)
		return fd == -ENOENT && make ? 0 : fd;
	r = wait_for_lock(grid, fd);
	if (r == 0)
		r = gx_env_fstat(grid->env, fd, &held);
	if (r == 0)
		r = gx_env_stat(grid->env, mark, &named);
	if (r == -ENOENT ||
	    (r == 0 && (held.st_ino != named.st_ino || held.st_dev != named.st_dev))) {
		gx_env_close(grid->env, fd);
		return 0;
	}
	if (r == 0)
		r = check_mark(grid, fd, make);
	if (r < 0) {
		gx_env_close(grid->env, fd);
		return r;
	}
	grid->lock_fd = fd;
	return 1;
}

int gfs_grid_open(struct gfs_grid *grid, struct gx_env *env, const char *path, bool make,
		  struct gx_buf *errors)
{
	int r = 0;

	*grid = (struct gfs_grid){.env = env, .lock_fd = -1};
	for (int i = 0; i < TRIES_MAX && (r == 0 || (r == -ENOENT && make)); i++) {
		r = find_dir(grid, path, make, errors);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r == 0)
			r = try_mark(grid, make);
	}
	if (r == 0 || r == -ENOENT)
		return FAIL(errors, -ENOENT, "there is no grid in %s\n", path);
	if (r == -ENOTEMPTY)
		return FAIL(errors, r, "%s is not empty, and not made by gfs up\n", path);
	if (r == -EPROTONOSUPPORT)
		return FAIL(errors, r, "%s is no grid directory that this version knows\n", path);
	if (r == -EAGAIN)
		return FAIL(errors, r, "another gfs up or gfs down is at work in %s\n", path);
	return r < 0 ? FAIL(errors, r, "%s: %s\n", path, gx_strerror(r)) : 0;
}

void gfs_grid_close(struct gfs_grid *grid)
{
	if (grid->lock_fd >= 0)
		gx_env_close(grid->env, grid->lock_fd);
	grid->lock_fd = -1;
}

/* -- making --------------------------------------------------------------- */

int gfs_grid_make_socket_dir(const struct gfs_grid *grid, struct gx_buf *errors)
{
	struct stat st;
	int r;

	if (!grid->socket_dir[0])
		return 0;
	r = gx_env_mkdir(grid->env, grid->socket_dir, 0700);
	if (r < 0 && r != -EEXIST)
		return FAIL(errors, r, "cannot make %s: %s\n", grid->socket_dir, gx_strerror(r));
	/* Anybody may make a name in /tmp; a link is not what we made either. */
	if (lstat(grid->socket_dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 077) != 0)
		return FAIL(errors, -EPERM,
			    "%s, for the sockets of %s, is not a private directory of ours\n",
			    grid->socket_dir, grid->dir);
	return 0;
}

static int write_new(struct gx_env *env, const char *path, const struct gx_buf *text)
{
	int fd, closed, r = gx_env_unlink(env, path); /* of a writing that was cut short */

	if (r < 0 && r != -ENOENT)
		return r;
	fd = gx_env_open(env, path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	r = gx_env_pwrite(env, fd, text->data, text->bytes, 0);
	if (r == 0)
		r = gx_env_fdatasync(env, fd);
	closed = gx_env_close(env, fd);
	return r < 0 ? r : closed;
}

int gfs_grid_write(const struct gfs_grid *grid, const char *name, const struct gx_buf *text)
{
	char path[GX_PATH_MAX], temporary[GX_PATH_MAX];
	int r = gfs_grid_path(grid, name, path);

	if (r == 0 && gx_format(temporary, sizeof(temporary), "%s.new", path) < 0)
		r = -ENAMETOOLONG;
	if (r == 0)
		r = write_new(grid->env, temporary, text);
	if (r == 0)
		r = gx_env_rename(grid->env, temporary, path);
	return r;
}

/* -- removing ------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st GX_UNUSED, int type,
		      struct FTW *ftw GX_UNUSED)
{
	return (type == FTW_DP ? rmdir(path) : unlink(path)) < 0 ? gx_errno() : 0;
}

/* Links are removed, not followed; what is mounted below stays. */
static int remove_tree(const char *path)
{
	int r = nftw(path, remove_one, WALK_FDS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);

	if (r == -1)
		r = gx_errno();
	return r == -ENOENT ? 0 : r;
}

static void remove_name(const struct gfs_grid *grid, const char *name)
{
	char path[GX_PATH_MAX];

	if (gfs_grid_path(grid, name, path) == 0)
		GX_IGNORE(gx_env_unlink(grid->env, path));
}

static void clean_socket(const struct gfs_grid *grid, const char *name)
{
	char path[GX_PATH_MAX];

	if (gfs_grid_socket(grid, name, path) == 0)
		GX_IGNORE(gx_env_unlink(grid->env, path)); /* what fails is not there */
}

void gfs_grid_node_name(uint64_t number, char name[GFS_GRID_NAME_MAX])
{
	/* Fits: there are not that many. */
	GX_IGNORE(gx_format(name, GFS_GRID_NAME_MAX, GFS_GRID_NODE "%llu",
			    (unsigned long long)number));
}

void gfs_grid_clean(const struct gfs_grid *grid)
{
	char run[GX_PATH_MAX], name[GFS_GRID_NAME_MAX];

	/* The daemons remove these themselves unless they were killed; what fails is not there. */
	remove_name(grid, GFS_GRID_ENV);
	if (gfs_grid_path(grid, GFS_GRID_RUN, run) == 0)
		GX_IGNORE(remove_tree(run));
	if (!grid->socket_dir[0])
		return;
	/* Not the tree: in /tmp anybody may have put something else in its place. */
	clean_socket(grid, GFS_GRID_METAD);
	for (uint64_t i = 1; i <= GFS_GRID_NODES_MAX; i++) {
		gfs_grid_node_name(i, name);
		clean_socket(grid, name);
	}
	GX_IGNORE(gx_env_rmdir(grid->env, grid->socket_dir));
}

static int destroy_one(const struct gfs_grid *grid, const char *name, struct gx_buf *errors)
{
	char path[GX_PATH_MAX];
	int r = gfs_grid_path(grid, name, path);

	if (r == 0)
		r = remove_tree(path);
	return r < 0 ? FAIL(errors, r, "cannot remove %s: %s\n", path, gx_strerror(r)) : 0;
}

/* Its data, keys, configurations, and what a writing that was cut short has left. */
static int destroy_daemon(const struct gfs_grid *grid, const char *name, struct gx_buf *errors)
{
	static const char *const ends[] = {"", ".conf", ".conf.new", ".conf.d", ".key", ".key.new"};
	int r = 0;

	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(ends); i++) {
		char file[GFS_GRID_NAME_MAX + 16];

		r = gx_format(file, sizeof(file), "%s%s", name, ends[i]);
		if (r == 0)
			r = destroy_one(grid, file, errors);
	}
	return r;
}

int gfs_grid_destroy(const struct gfs_grid *grid, struct gx_buf *errors)
{
	/* Nothing but what gfs up and the daemons made: a guest's file is not ours to delete. */
	static const char *const ours[] = {
		GFS_GRID_KEYS,
		GFS_GRID_KEYS ".new",
		GFS_GRID_CLIENT_KEY,
		GFS_GRID_CLIENT_KEY ".new",
		GFS_GRID_ROOT_KEY,
		GFS_GRID_ROOT_KEY ".new",
		GFS_GRID_USERS,
		GFS_GRID_USERS ".new",
		GFS_GRID_CLIENT_CONF,
		GFS_GRID_CLIENT_CONF ".new",
		GFS_GRID_CLIENT_CONF ".d",
		GFS_GRID_ENV ".new",
		GFS_GRID_LOG,
	};
	size_t others = 0;
	int r = 0;

	gfs_grid_clean(grid);
	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(ours); i++)
		r = destroy_one(grid, ours[i], errors);
	if (r == 0)
		r = destroy_daemon(grid, GFS_GRID_METAD, errors);
	for (uint64_t i = 1; r == 0 && i <= GFS_GRID_NODES_MAX; i++) {
		char name[GFS_GRID_NAME_MAX];

		gfs_grid_node_name(i, name);
		r = destroy_daemon(grid, name, errors);
	}
	if (r < 0)
		return r;
	r = gx_env_list_dir(grid->env, grid->dir, count_others, &others);
	if (r == 0)
		remove_name(grid, GFS_GRID_MARK);
	if (r == 0 && others > 0)
		return FAIL(errors, -ENOTEMPTY,
			    "the grid is gone; %s stays, for it holds other things\n", grid->dir);
	if (r == 0)
		r = gx_env_rmdir(grid->env, grid->dir);
	if (r == -ENOTEMPTY)
		r = 0; /* a gfs up that waited for us has begun a new grid */
	return r < 0 ? FAIL(errors, r, "cannot remove %s: %s\n", grid->dir, gx_strerror(r)) : 0;
}
