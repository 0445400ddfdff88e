/*
 * gfs-metad - the metadata daemon: names, inodes and small files of the grid.
 */
#define GX_LOG_COMPONENT "metad"
#include "common/gx_daemon.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include "metad/md_server.h"
#include "rpc/rpc_daemon.h"
#include <stdlib.h>

#define PROGRAM "gfs-metad"
#define DRAIN_NS (5 * GX_NSEC_PER_SEC)

struct metad_conf {
	struct gx_daemon_conf daemon;
	struct rpc_daemon_conf rpc;
	char *dir;
	char *users;
	char *root_owner;
	char *root_mode;
	int durability;
	uint64_t cache;
	uint64_t store_cache;
	uint64_t unsaved;
	uint64_t segment;
	uint64_t leases_max;
	int64_t session_timeout;
	int64_t recovery_window;
};

static struct metad_conf conf;

static const char *const durabilities[] = {"relaxed", "strict", NULL};

static const struct gx_conf_row rows[] = {
	GX_DAEMON_CONF_ROWS(struct metad_conf, daemon),
	RPC_DAEMON_CONF_ROWS("metad", struct metad_conf, rpc, "metad", "127.0.0.1:7601"),
	{"metad", "dir", GX_CONF_PATH, offsetof(struct metad_conf, dir), NULL, NULL, NULL, NULL,
	 GX_CONF_REQUIRED,
	 "Where the log and the database are. Must exist; a new grid is made in an empty one."},
	{"metad", "users", GX_CONF_PATH, offsetof(struct metad_conf, users), NULL, NULL, NULL, NULL,
	 GX_CONF_RELOAD,
	 "Table of users and groups with their numbers; read again on SIGHUP. "
	 "Without it only root is known."},
	{"metad", "root_owner", GX_CONF_STRING, offsetof(struct metad_conf, root_owner), "0:0",
	 NULL, NULL, NULL, 0, "UID:GID of the root directory, when the grid is made."},
	{"metad", "root_mode", GX_CONF_STRING, offsetof(struct metad_conf, root_mode), "0755", NULL,
	 NULL, NULL, 0, "Its permissions, octal."},
	{"metad", "durability", GX_CONF_ENUM, offsetof(struct metad_conf, durability), "relaxed",
	 NULL, NULL, durabilities, 0,
	 "relaxed: a change is answered when a crash of this daemon cannot lose it, and the client "
	 "keeps it until it is on disk. strict: it is answered when it is on disk."},
	{"metad", "cache", GX_CONF_SIZE, offsetof(struct metad_conf, cache), "256MiB", "1MiB",
	 "1TiB", NULL, 0, "Names and inodes kept in memory."},
	{"metad", "store_cache", GX_CONF_SIZE, offsetof(struct metad_conf, store_cache), "64MiB",
	 "1MiB", "1TiB", NULL, 0, "Blocks of the database kept in memory."},
	{"metad", "unsaved", GX_CONF_SIZE, offsetof(struct metad_conf, unsaved), "128MiB", "4MiB",
	 "64GiB", NULL, 0,
	 "Changes kept in memory (and in the log) before they are in the database; when it is "
	 "full, changes wait."},
	{"metad", "segment", GX_CONF_SIZE, offsetof(struct metad_conf, segment), "16MiB", "256KiB",
	 "1GiB", NULL, 0, "Size of one file of the log."},
	{"metad", "leases_max", GX_CONF_U64, offsetof(struct metad_conf, leases_max), "1000000",
	 "1000", "100000000", NULL, 0,
	 "Names and inodes that all clients together may have in their caches; about 100 bytes "
	 "each."},
	{"metad", "session_timeout", GX_CONF_DURATION, offsetof(struct metad_conf, session_timeout),
	 "60s", "5s", "1d", NULL, 0,
	 "A client that has not been heard of for so long has lost its open files."},
	{"metad", "recovery_window", GX_CONF_DURATION, offsetof(struct metad_conf, recovery_window),
	 "10s", "2s", "10m", NULL, 0,
	 "How long a restarted daemon waits at most for clients to come back before it goes on."},
};

static const struct gx_conf_table table = {PROGRAM, rows, GX_COUNT_OF(rows),
					   sizeof(struct metad_conf)};

struct metad {
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct md_server *server;
	struct gx_buf addresses;
	bool addresses_written;
};

/* "UID:GID". */
static int parse_owner(const char *text, uint32_t *ret_uid, uint32_t *ret_gid)
{
	char part[24];
	const char *colon = strchr(text, ':');
	uint64_t uid, gid;

	if (!colon || gx_format(part, sizeof(part), "%.*s", (int)(colon - text), text) < 0 ||
	    gx_parse_u64(part, &uid) < 0 || gx_parse_u64(colon + 1, &gid) < 0 ||
	    uid >= UINT32_MAX || gid >= UINT32_MAX)
		return -EINVAL;
	*ret_uid = (uint32_t)uid;
	*ret_gid = (uint32_t)gid;
	return 0;
}

/* One to four octal digits. */
static int parse_mode(const char *text, uint32_t *ret_mode)
{
	size_t digits = strspn(text, "01234567");

	if (digits == 0 || digits > 4 || text[digits] != '\0')
		return -EINVAL;
	*ret_mode = 0;
	while (*text)
		*ret_mode = *ret_mode * 8 + (uint32_t)(*text++ - '0');
	return 0;
}

static int metad_check(const void *config, struct gx_env *env, struct gx_buf *errors)
{
	const struct metad_conf *c = config;
	uint32_t uid, gid, mode;
	int r = rpc_daemon_check_addresses(env, c->rpc.listen, c->rpc.insecure, errors);

	if (parse_owner(c->root_owner, &uid, &gid) < 0) {
		GX_IGNORE(gx_buf_append_format(
			errors, "metad.root_owner: \"%s\" is not UID:GID, as in 0:0\n",
			c->root_owner));
		r = -EINVAL;
	}
	if (parse_mode(c->root_mode, &mode) < 0) {
		GX_IGNORE(gx_buf_append_format(
			errors, "metad.root_mode: \"%s\" is not a mode, as in 0755\n",
			c->root_mode));
		r = -EINVAL;
	}
	return r;
}

static int load_users(struct gx_env *env, struct md_users **ret_users)
{
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, GX_CONF_FILE_MAX);
	r = md_users_load(env, conf.users && conf.users[0] ? conf.users : NULL, &errors, ret_users);
	if (r < 0)
		gx_log(ERR, "cannot load the table of users",
		       GX_KS("problem", errors.bytes > 0 ? gx_buf_text(&errors) : ""), GX_KE(r));
	gx_buf_fini(&errors);
	return r;
}

static int server_listen(void *server, const struct rpc_endpoint *endpoint,
			 struct rpc_endpoint *ret_bound)
{
	return md_server_listen(server, endpoint, ret_bound);
}

static int start_server(struct gx_daemon *d, struct metad *metad)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;
	int r;

	r = load_users(d->env, &options.users);
	if (r < 0)
		return r;
	options.env = d->env;
	options.loop = d->loop;
	options.dir = conf.dir;
	options.auth = &metad->auth;
	options.name = conf.rpc.name;
	options.program = PROGRAM "/" GX_VERSION;
	options.strict = conf.durability == 1;
	options.cache_bytes = conf.cache;
	options.store_cache_bytes = conf.store_cache;
	options.overlay_bytes_max = conf.unsaved;
	options.layer_bytes = conf.unsaved / 4;
	options.segment_bytes = conf.segment & ~UINT64_C(7);
	options.leases_max = conf.leases_max;
	options.session_timeout_ns = conf.session_timeout;
	options.recovery_ns = conf.recovery_window;
	options.connections_max = (unsigned)conf.rpc.connections_max;
	options.half_open_max = (unsigned)conf.rpc.half_open_max;
	options.handshake_ns = conf.rpc.handshake_timeout;
	r = parse_owner(conf.root_owner, &options.root_uid, &options.root_gid);
	if (r == 0)
		r = parse_mode(conf.root_mode, &options.root_mode);
	gx_assert(r == 0); /* metad_check() has seen them */
	r = md_server_new(&options, &metad->server);
	if (r < 0)
		return r;
	return rpc_daemon_listen(d->env, conf.rpc.listen, conf.rpc.insecure, server_listen,
				 metad->server, &metad->addresses);
}

static int metad_start(struct gx_daemon *d)
{
	struct metad *metad = calloc(1, sizeof(*metad));
	int r;

	if (!metad)
		return gx_log_errno(ERR, -ENOMEM, "cannot start");
	d->data = metad;
	gx_buf_init(&metad->addresses, GX_CONF_FILE_MAX);
	r = rpc_daemon_load_keys(d->env, conf.rpc.keys, &metad->keys);
	if (r < 0)
		return r;
	metad->auth = (struct rpc_auth){.env = d->env, .keys = metad->keys};
	r = start_server(d, metad);
	if (r == 0)
		r = rpc_daemon_write_addresses(d->env, conf.rpc.address_file, &metad->addresses);
	metad->addresses_written = r == 0;
	return r < 0 ? gx_log_errno(ERR, r, "cannot start") : 0;
}

/* With a bad table the old one stays. */
static void metad_reloaded(struct gx_daemon *d)
{
	struct metad *metad = d->data;
	struct rpc_keytab *keys, *old;
	struct md_users *users;

	if (rpc_daemon_load_keys(d->env, conf.rpc.keys, &keys) == 0) {
		old = metad->keys;
		metad->keys = metad->auth.keys = keys;
		rpc_keytab_free(old);
		md_server_keys_changed(metad->server);
		gx_log(NOTICE, "key table read again");
	}
	if (load_users(d->env, &users) == 0) {
		md_server_set_users(metad->server, users);
		gx_log(NOTICE, "table of users read again");
	}
}

static void on_drained(void *arg)
{
	struct gx_daemon *d = arg;

	gx_loop_stop(d->loop);
}

static void metad_stop(struct gx_daemon *d)
{
	struct metad *metad = d->data;

	md_server_drain(metad->server, gx_env_now_ns(d->env) + DRAIN_NS, on_drained, d);
}

static void metad_finish(struct gx_daemon *d)
{
	struct metad *metad = d->data;

	if (!metad)
		return;
	md_server_free(metad->server);
	rpc_keytab_free(metad->keys);
	/* Only our own: after a failed start it may be that of the daemon that is in our way. */
	if (metad->addresses_written && conf.rpc.address_file)
		GX_IGNORE(gx_env_unlink(d->env, conf.rpc.address_file));
	gx_buf_fini(&metad->addresses);
	free(metad);
}

int main(int argc, char **argv)
{
	static const struct gx_daemon_spec spec = {
		.program = PROGRAM,
		.synopsis = "metadata daemon of the Gridstage grid filesystem",
		.default_conf = "gridstage/metad.conf",
		.table = &table,
		.config = &conf,
		.daemon_conf = &conf.daemon,
		.check = metad_check,
		.start = metad_start,
		.stop = metad_stop,
		.finish = metad_finish,
		.reloaded = metad_reloaded,
	};

	return gx_daemon_main(&spec, argc, argv);
}
