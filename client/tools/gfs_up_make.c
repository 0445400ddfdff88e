/*
 * The files of a grid. Keys, users and data are made once and kept; configurations are written at
 * every start (gfs_grid_dir.h says why).
 *
 * A storage node's key is in its own file and in the key table. metad knows the node by it, and
 * makes the tickets that the node opens with it (rule S1), so no node needs the table.
 */
#include "client/tools/gfs_up.h"
#include "common/gx_num.h"
#include "common/gx_secret.h"
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#define GROUPS_MAX 1024u /* that metad takes for one user */
#define NSS_BYTES 65536u /* one entry of the system's tables, a group with its members */

/* -- who is who ----------------------------------------------------------- */

static bool is_grid_name(const char *name)
{
	char identity[GX_NAME_USER_MAX + 8];
	enum rpc_identity_kind kind;

	return gx_format(identity, sizeof(identity), "user:%s", name) == 0 &&
	       rpc_identity_parse(identity, &kind) == 0;
}

/* His login name where the grid can have it; the grid's root is always called root. */
static void find_my_name(char name[GX_NAME_USER_MAX + 1])
{
	struct passwd entry, *found = NULL;
	GX_AUTOFREE char *text = malloc(NSS_BYTES);
	uid_t uid = geteuid();

	if (uid == 0)
		(void)gx_format(name, GX_NAME_USER_MAX + 1, "root");
	else
		(void)gx_format(name, GX_NAME_USER_MAX + 1, "uid%llu", (unsigned long long)uid);
	if (uid == 0 || !text || getpwuid_r(uid, &entry, text, NSS_BYTES, &found) != 0 || !found)
		return;
	if (is_grid_name(entry.pw_name) && strcmp(entry.pw_name, "root") != 0)
		GX_IGNORE(gx_strcpy(name, GX_NAME_USER_MAX + 1, entry.pw_name));
}

/* "group NAME GID", if the system has a name for it that is valid and leads back to it. */
static int append_group(struct gx_buf *text, gid_t gid)
{
	GX_AUTOFREE char *forth_text = malloc(NSS_BYTES);
	GX_AUTOFREE char *back_text = malloc(NSS_BYTES);
	struct group forth, back, *found = NULL;

	if (!forth_text || !back_text)
		return -ENOMEM;
	if (getgrgid_r(gid, &forth, forth_text, NSS_BYTES, &found) != 0 || !found ||
	    getgrnam_r(forth.gr_name, &back, back_text, NSS_BYTES, &found) != 0 || !found)
		return 0;
	if (back.gr_gid != gid || !is_grid_name(forth.gr_name) ||
	    strcmp(forth.gr_name, "root") == 0)
		return 0;
	return gx_buf_append_format(text, "group %s %llu\n", forth.gr_name,
				    (unsigned long long)gid);
}

static bool seen_before(const gid_t *gids, int at, gid_t first)
{
	for (int i = 0; i < at; i++)
		if (gids[i] == gids[at])
			return true;
	return gids[at] == first;
}

static int append_me(struct gx_buf *text, const char *name, const gid_t *gids, int count)
{
	gid_t first = getegid();
	const char *comma = " ";
	unsigned further = 0;
	int r = gx_buf_append_format(text, "user %s %llu %llu", name, (unsigned long long)geteuid(),
				     (unsigned long long)first);

	for (int i = 0; r == 0 && i < count && further < GROUPS_MAX; i++) {
		if (seen_before(gids, i, first))
			continue;
		r = gx_buf_append_format(text, "%s%llu", comma, (unsigned long long)gids[i]);
		comma = ",";
		further++;
	}
	return r < 0 ? r : gx_buf_append(text, "\n", 1);
}

static int append_groups(struct gx_buf *text, const gid_t *gids, int count)
{
	gid_t first = getegid();
	int r = gx_buf_append_format(text, "group root 0\n");

	if (r == 0 && first != 0)
		r = append_group(text, first);
	for (int i = 0; r == 0 && i < count; i++)
		if (gids[i] != 0 && !seen_before(gids, i, first))
			r = append_group(text, gids[i]);
	return r;
}

static int make_users(struct gfs_up *up, const char *name)
{
	int count = getgroups(0, NULL);
	GX_AUTOFREE gid_t *gids = calloc((size_t)GX_MAX(count, 0) + 1, sizeof(*gids));
	char path[GX_PATH_MAX];
	struct stat st;
	struct gx_buf text;
	int r = gfs_grid_path(&up->grid, GFS_GRID_USERS, path);

	if (r < 0 || gx_env_stat(up->grid.env, path, &st) == 0)
		return r;
	if (!gids)
		return -ENOMEM;
	count = getgroups(GX_MAX(count, 0), gids);
	if (count < 0)
		return gx_errno();
	gx_buf_init(&text, GFS_UP_TEXT_MAX);
	r = gx_buf_append_format(&text, "# user NAME UID GID [GID,...]; group NAME GID\n");
	if (r == 0 && geteuid() != 0)
		r = gx_buf_append_format(&text, "user root 0 0\n");
	if (r == 0)
		r = append_me(&text, name, gids, count);
	if (r == 0)
		r = append_groups(&text, gids, count);
	if (r == 0)
		r = gfs_grid_write(&up->grid, GFS_GRID_USERS, &text);
	gx_buf_fini(&text);
	return r;
}

/* -- keys ----------------------------------------------------------------- */

/* The key in that file, which is made if it is absent. */
static int load_or_make_key(struct gx_env *env, const char *path, const char *identity,
			    struct gx_buf *errors, struct rpc_key *ret_key)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *one = NULL;
	bool admin = strncmp(identity, "user:", 5) == 0;
	struct stat st;
	int r;

	if (gx_env_stat(env, path, &st) == 0)
		return rpc_key_load(env, path, ret_key, errors);
	r = rpc_key_make(env, identity, 0, admin, ret_key);
	if (r == 0)
		r = rpc_keytab_new(&one);
	if (r == 0)
		r = rpc_keytab_put(one, ret_key, false);
	if (r == 0)
		r = rpc_keytab_save(one, env, path);
	if (r < 0)
		rpc_key_clear(ret_key);
	return r;
}

/* A key file and its row in the table. The file is the older of the two, so it is right. */
static int ensure_key(struct gfs_up *up, struct rpc_keytab *table, const char *file,
		      const char *identity, struct gx_buf *errors)
{
	char path[GX_PATH_MAX];
	const struct rpc_key *known;
	struct rpc_key key;
	int r = gfs_grid_path(&up->grid, file, path);

	if (r == 0)
		r = load_or_make_key(up->grid.env, path, identity, errors, &key);
	if (r < 0)
		return r;
	known = rpc_keytab_find(table, key.identity);
	if (!known || !gx_equal_secret(known->secret, key.secret, RPC_KEY_BYTES)) {
		r = rpc_keytab_put(table, &key, true);
		up->keys_changed = true;
	}
	if (strcmp(file, GFS_GRID_CLIENT_KEY) == 0)
		GX_IGNORE(gx_strcpy(up->identity, sizeof(up->identity), key.identity));
	rpc_key_clear(&key);
	return r;
}

static int make_node_keys(struct gfs_up *up, struct rpc_keytab *table, struct gx_buf *errors)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < up->fsd; i++) {
		const char *name = up->nodes[i].name;
		char file[GFS_GRID_NAME_MAX + 8], identity[GFS_GRID_NAME_MAX + 8];

		r = gx_format(file, sizeof(file), GFS_GRID_KEY_OF, name);
		if (r == 0)
			r = gx_format(identity, sizeof(identity), "host:%s", name);
		if (r == 0)
			r = ensure_key(up, table, file, identity, errors);
	}
	return r;
}

static int make_keys(struct gfs_up *up, const char *me, struct gx_buf *errors)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *table = NULL;
	char path[GX_PATH_MAX], identity[GX_NAME_USER_MAX + 8];
	struct stat st;
	int r = gfs_grid_path(&up->grid, GFS_GRID_KEYS, path);

	if (r == 0)
		r = gx_format(identity, sizeof(identity), "user:%s", me);
	if (r == 0)
		r = rpc_keytab_new(&table);
	if (r == 0 && gx_env_stat(up->grid.env, path, &st) == 0)
		r = rpc_keytab_load(table, up->grid.env, path, errors);
	if (r == 0)
		r = ensure_key(up, table, GFS_GRID_CLIENT_KEY, identity, errors);
	if (r == 0 && strcmp(up->identity, "user:root") != 0)
		r = ensure_key(up, table, GFS_GRID_ROOT_KEY, "user:root", errors);
	if (r == 0)
		r = make_node_keys(up, table, errors);
	if (r == 0 && up->keys_changed)
		r = rpc_keytab_save(table, up->grid.env, path);
	return r;
}

/* -- directories ---------------------------------------------------------- */

static bool has_key(const struct gfs_up *up, const char *node)
{
	char path[GX_PATH_MAX];
	struct stat st;

	return GFS_GRID_PATH_OF(&up->grid, GFS_GRID_KEY_OF, node, path) == 0 &&
	       gx_env_stat(up->grid.env, path, &st) == 0;
}

int gfs_up_count_nodes(struct gfs_up *up)
{
	char name[GFS_GRID_NAME_MAX], path[GX_PATH_MAX];
	struct stat st;
	int r = gfs_grid_path(&up->grid, GFS_GRID_KEYS, path);

	if (r < 0)
		return r;
	if (!up->fsd_given && gx_env_stat(up->grid.env, path, &st) == -ENOENT)
		up->fsd = 1;
	for (uint64_t i = up->fsd + 1; i <= GFS_GRID_NODES_MAX; i++) {
		gfs_grid_node_name(i, name);
		if (has_key(up, name))
			up->fsd = i;
	}
	for (uint64_t i = 0; i < up->fsd; i++)
		gfs_grid_node_name(i + 1, up->nodes[i].name);
	return 0;
}

static int make_dir(struct gfs_up *up, const char *path)
{
	int r = gx_env_mkdir(up->grid.env, path, 0700);

	return r == -EEXIST ? 0 : r;
}

static int make_dirs(struct gfs_up *up)
{
	static const char *const names[] = {GFS_GRID_METAD, GFS_GRID_LOG, GFS_GRID_RUN};
	char path[GX_PATH_MAX];
	int r = 0;

	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(names); i++) {
		r = gfs_grid_path(&up->grid, names[i], path);
		if (r == 0)
			r = make_dir(up, path);
	}
	return r;
}

/*
 * Only before the node has a key, that is, once: a spool that is missing later is on a disk that is
 * not there, and a new one in its place would tell metad that all of its files are gone.
 */
static int make_spools(struct gfs_up *up)
{
	char path[GX_PATH_MAX];
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < up->fsd; i++) {
		const char *name = up->nodes[i].name;

		if (has_key(up, name))
			continue;
		r = GFS_GRID_PATH_OF(&up->grid, GFS_GRID_DIR_OF, name, path);
		if (r == 0)
			r = make_dir(up, path);
		if (r == 0)
			r = GFS_GRID_PATH_OF(&up->grid, GFS_GRID_SPOOL_OF, name, path);
		if (r == 0)
			r = make_dir(up, path);
	}
	return r;
}

/* -- configuration -------------------------------------------------------- */

int gfs_up_append_quoted(struct gx_buf *text, const char *word)
{
	int r = gx_buf_append(text, "'", 1);

	for (; r == 0 && *word; word++)
		r = *word == '\'' ? gx_buf_append(text, "'\\''", 4) : gx_buf_append(text, word, 1);
	return r < 0 ? r : gx_buf_append(text, "'", 1);
}

/* The part that all daemons have. */
static int append_daemon(struct gx_buf *text, const char *name)
{
	return gx_buf_append_format(
		text,
		"# Written by gfs up at every start. Changes belong into " GFS_GRID_CONF_OF
		".d/NAME.conf.\n"
		"[daemon]\n"
		"pid_file = " GFS_GRID_PID_OF "\n"
		"log_file = " GFS_GRID_LOG_OF "\n\n",
		name, name, name);
}

static int write_conf(struct gfs_up *up, const char *name, const struct gx_buf *text)
{
	char file[GFS_GRID_NAME_MAX + 8];
	int r = gx_format(file, sizeof(file), GFS_GRID_CONF_OF, name);

	return r < 0 ? r : gfs_grid_write(&up->grid, file, text);
}

static int write_metad_conf(struct gfs_up *up, struct gx_buf *text)
{
	char socket[GX_PATH_MAX];
	int r = gfs_grid_socket(&up->grid, GFS_GRID_METAD, socket);

	if (r == 0)
		r = append_daemon(text, GFS_GRID_METAD);
	if (r == 0)
		r = gx_buf_append_format(text,
					 "[metad]\n"
					 "dir = " GFS_GRID_DIR_OF "\n"
					 "listen = unix:%s,127.0.0.1:0\n"
					 "address_file = " GFS_GRID_ADDR_OF "\n"
					 "keys = " GFS_GRID_KEYS "\n"
					 "users = " GFS_GRID_USERS "\n"
					 "root_owner = %llu:%llu\n",
					 GFS_GRID_METAD, socket, GFS_GRID_METAD,
					 (unsigned long long)geteuid(),
					 (unsigned long long)getegid());
	return r < 0 ? r : write_conf(up, GFS_GRID_METAD, text);
}

static int count_entry(void *arg, const char *name GX_UNUSED)
{
	size_t *count = arg;

	(*count)++;
	return 0;
}

/*
 * Where the spool is, as an absolute path that can stand in a list; the daemon's working directory
 * is the grid's. And whether there is none in it yet.
 */
static int find_spool(struct gfs_up *up, const char *name, char path[GX_PATH_MAX], bool *ret_empty)
{
	size_t entries = 0;
	int r = GFS_GRID_PATH_OF(&up->grid, GFS_GRID_SPOOL_OF, name, path);

	if (r < 0)
		return r;
	r = gx_env_list_dir(up->grid.env, path, count_entry, &entries);
	*ret_empty = r == 0 && entries == 0;
	if (!gfs_grid_path_is_plain(path))
		return gx_format(path, GX_PATH_MAX, "/proc/self/cwd/" GFS_GRID_SPOOL_OF, name);
	return 0;
}

static int write_node_conf(struct gfs_up *up, uint64_t index, struct gx_buf *text)
{
	const char *name = up->nodes[index].name;
	char metad[GX_PATH_MAX], socket[GX_PATH_MAX], spool[GX_PATH_MAX];
	bool empty = false;
	int r = gfs_grid_socket(&up->grid, GFS_GRID_METAD, metad);

	if (r == 0)
		r = gfs_grid_socket(&up->grid, name, socket);
	if (r == 0)
		r = find_spool(up, name, spool, &empty);
	if (r == 0)
		r = append_daemon(text, name);
	if (r == 0)
		r = gx_buf_append_format(text,
					 "[fsd]\n"
					 "name = %s\n"
					 "host = host%llu\n"
					 "key = " GFS_GRID_KEY_OF "\n"
					 "metad = unix:%s\n"
					 "listen = unix:%s,127.0.0.1:0\n"
					 "address_file = " GFS_GRID_ADDR_OF "\n"
					 "spools = %s\n"
					 "make_spools = %s\n",
					 name, (unsigned long long)index + 1, name, metad, socket,
					 name, spool, empty ? "yes" : "no");
	return r < 0 ? r : write_conf(up, name, text);
}

static int write_client_conf(struct gfs_up *up, struct gx_buf *text)
{
	char socket[GX_PATH_MAX];
	int r = gfs_grid_socket(&up->grid, GFS_GRID_METAD, socket);

	if (r == 0)
		r = gx_buf_append_format(text,
					 "# Written by gfs up at every start. Changes belong into "
					 "%s.d/NAME.conf.\n"
					 "[gfs]\n"
					 "metad = unix:%s\n"
					 "key_file = " GFS_GRID_CLIENT_KEY "\n",
					 GFS_GRID_CLIENT_CONF, socket);
	return r < 0 ? r : gfs_grid_write(&up->grid, GFS_GRID_CLIENT_CONF, text);
}

static int write_env(struct gfs_up *up, struct gx_buf *text)
{
	char conf[GX_PATH_MAX];
	int r = gfs_grid_path(&up->grid, GFS_GRID_CLIENT_CONF, conf);

	if (r == 0)
		r = gx_buf_append_format(text, "# Written by gfs up. In a shell: . env.sh\n"
					       "export GFS_GRID=");
	if (r == 0)
		r = gfs_up_append_quoted(text, up->grid.dir);
	if (r == 0)
		r = gx_buf_append_format(text, "\nexport GFS_CONFIG=");
	if (r == 0)
		r = gfs_up_append_quoted(text, conf);
	if (r == 0)
		r = gx_buf_append(text, "\n", 1);
	return r < 0 ? r : gfs_grid_write(&up->grid, GFS_GRID_ENV, text);
}

int gfs_up_make(struct gfs_up *up, struct gx_buf *errors)
{
	static int (*const writers[])(struct gfs_up *, struct gx_buf *) = {
		write_metad_conf, write_client_conf, write_env};
	char name[GX_NAME_USER_MAX + 1];
	struct gx_buf text;
	int r = make_dirs(up);

	find_my_name(name);
	if (r == 0)
		r = make_spools(up);
	if (r == 0)
		r = gfs_grid_make_socket_dir(&up->grid, errors);
	if (r == 0)
		r = make_keys(up, name, errors);
	/* By the name of the key, which is kept, while a login name may change. */
	if (r == 0)
		r = make_users(up, rpc_identity_name(up->identity));
	gx_buf_init(&text, GFS_UP_TEXT_MAX);
	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(writers); i++) {
		gx_buf_clear(&text);
		r = writers[i](up, &text);
	}
	for (uint64_t i = 0; r == 0 && i < up->fsd; i++) {
		gx_buf_clear(&text);
		r = write_node_conf(up, i, &text);
	}
	gx_buf_fini(&text);
	return r;
}
