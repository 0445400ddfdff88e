#include "client/fs/gfs_conf.h"

#include "include/gfs.h"

#define PROGRAM "libgfs/" GX_VERSION
#define SYSTEM_CONF GX_SYSCONFDIR "/gridstage/gfs.conf"
#define HOME_CONF "/.gridstage/gfs.conf"
#define KEY_NAME "key"

static const struct gx_conf_row rows[] = {
	{"gfs", "metad", GX_CONF_STRING, offsetof(struct gfs_conf, metad), NULL, NULL, NULL, NULL,
	 GX_CONF_REQUIRED,
	 "Address of the metadata server: HOST:PORT or unix:/PATH, each optionally behind tls:. "
	 "Beyond this machine it is always TLS."},
	{"gfs", "key_file", GX_CONF_PATH, offsetof(struct gfs_conf, key_file), NULL, NULL, NULL,
	 NULL, GX_CONF_SECRET,
	 "Key file: who we are. Made with gfs key. Default: the file key beside this one."},
	{"gfs", "insecure", GX_CONF_BOOL, offsetof(struct gfs_conf, insecure), "no", NULL, NULL,
	 NULL, 0, "Allow connections beyond this machine without TLS. Do not."},
	{"gfs", "meta_timeout", GX_CONF_DURATION, offsetof(struct gfs_conf, meta_timeout_ns), "30s",
	 "1ms", "1d", NULL, 0, "How long a call waits for a metadata server that is away."},
	{"gfs", "connections", GX_CONF_U64, offsetof(struct gfs_conf, connections), "4", "1", "64",
	 NULL, 0, "Connections to the metadata server at the same time, at most."},
	{"gfs", "cache", GX_CONF_SIZE, offsetof(struct gfs_conf, cache_bytes), "32MiB", NULL,
	 "64GiB", NULL, 0, "Memory for names and attributes. 0: every question goes to metad."},
	{"gfs", "host", GX_CONF_STRING, offsetof(struct gfs_conf, host), NULL, NULL, NULL, NULL, 0,
	 "Label of this host: storage nodes with the same label are near. $GFS_HOST goes before "
	 "it. "
	 "Default: a storage node is near if its unix socket is here."},
	{"gfs", "data_timeout", GX_CONF_DURATION, offsetof(struct gfs_conf, data_timeout_ns), "10s",
	 "1ms", "1d", NULL, 0,
	 "How long a call waits for bytes none of whose storage nodes can be reached."},
	{"gfs", "data_connections", GX_CONF_U64, offsetof(struct gfs_conf, data_connections), "4",
	 "1", "64", NULL, 0, "Connections to one storage node at the same time, at most."},
	{"gfs", "write_behind", GX_CONF_SIZE, offsetof(struct gfs_conf, write_behind), "64MiB",
	 "1MiB", "64GiB", NULL, 0,
	 "Bytes of one file that are kept until they are on a storage node's disk."},
	{"gfs", "read_ahead", GX_CONF_SIZE, offsetof(struct gfs_conf, read_ahead), "8MiB", NULL,
	 "64GiB", NULL, 0,
	 "Bytes fetched ahead of a program that reads a file from front to back."},
	{"gfs", "cache_copies", GX_CONF_BOOL, offsetof(struct gfs_conf, cache_copies), "no", NULL,
	 NULL, NULL, 0,
	 "Reading a file from another host asks for a copy on a storage node of this one."},
};

const struct gx_conf_table gfs_conf_table = {"gfs", rows, GX_COUNT_OF(rows),
					     sizeof(struct gfs_conf)};

/* 1 if the file is there. A place that cannot even be looked at is as good as empty. */
static int place_exists(struct gx_env *env, const char *path)
{
	struct stat st;

	return gx_env_stat(env, path, &st) == 0;
}

static int named_file(struct gx_env *env, const char *config, const char *who,
		      char path[GX_PATH_MAX], struct gx_buf *errors)
{
	struct stat st;
	int r = gx_strcpy(path, GX_PATH_MAX, config);

	if (r == 0)
		r = gx_env_stat(env, path, &st);
	else
		r = -ENAMETOOLONG;
	if (r < 0)
		GX_IGNORE(gx_buf_append_format(errors, "%s%s: %s\n", who, config, gx_strerror(r)));
	return r;
}

int gfs_conf_find(struct gx_env *env, const char *config, char path[GX_PATH_MAX],
		  struct gx_buf *errors)
{
	const char *named = getenv("GFS_CONFIG");
	const char *home = getenv("HOME");

	if (config && config[0])
		return named_file(env, config, "", path, errors);
	if (named && named[0])
		return named_file(env, named, "$GFS_CONFIG: ", path, errors);
	if (home && home[0] && gx_format(path, GX_PATH_MAX, "%s" HOME_CONF, home) == 0 &&
	    place_exists(env, path))
		return 0;
	if (gx_strcpy(path, GX_PATH_MAX, SYSTEM_CONF) == 0 && place_exists(env, path))
		return 0;
	/* A line that did not fit is dropped: the errno remains. */
	GX_IGNORE(gx_buf_append_format(errors,
				       "no configuration found: $GFS_CONFIG is not set, and there "
				       "is neither ~" HOME_CONF " nor " SYSTEM_CONF
				       "; `gfs up` starts a grid and writes one\n"));
	return -ENOENT;
}

/* The key beside the configuration; file "" (none read): the caller must have named one. */
static int default_key(struct gfs_conf *conf, const char *file)
{
	const char *slash = strrchr(file, '/');
	char path[GX_PATH_MAX];

	if (file[0] == '\0')
		return 0;
	if (gx_format(path, sizeof(path), "%.*s" KEY_NAME, slash ? (int)(slash + 1 - file) : 0,
		      file) < 0)
		return -ENAMETOOLONG;
	free(conf->key_file);
	conf->key_file = strdup(path);
	return conf->key_file ? 0 : -ENOMEM;
}

static int replace_text(char **text, const char *value)
{
	char *copy;

	if (!value)
		return 0;
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	free(*text);
	*text = copy;
	return 0;
}

/* 0: as it is; -1: for ever. */
static void apply_timeout(int64_t *timeout_ns, int64_t wanted_ms)
{
	if (wanted_ms < 0 || wanted_ms > GX_FOREVER / GX_NSEC_PER_MSEC)
		*timeout_ns = GX_FOREVER;
	else if (wanted_ms > 0)
		*timeout_ns = wanted_ms * GX_NSEC_PER_MSEC;
}

/* The environment stands between the file and the caller. */
static int apply_host(struct gfs_conf *conf, const struct gfs_options *options)
{
	const char *host = options->host ? options->host : getenv("GFS_HOST");

	return replace_text(&conf->host, host && (options->host || host[0]) ? host : NULL);
}

static int apply_options(struct gfs_conf *conf, const struct gfs_options *options)
{
	int r = replace_text(&conf->metad, options->metad);

	if (r == 0)
		r = replace_text(&conf->key_file, options->key_file);
	if (r == 0)
		r = apply_host(conf, options);
	apply_timeout(&conf->meta_timeout_ns, options->meta_timeout_ms);
	apply_timeout(&conf->data_timeout_ns, options->data_timeout_ms);
	if (options->data_connections > 0)
		conf->data_connections = options->data_connections;
	if (options->write_behind > 0)
		conf->write_behind = options->write_behind;
	if (options->read_ahead != 0)
		conf->read_ahead = options->read_ahead < 0 ? 0 : (uint64_t)options->read_ahead;
	if (options->cache_copies != 0)
		conf->cache_copies = options->cache_copies > 0;
	if (options->connections > 0)
		conf->connections = options->connections;
	if (options->cache_bytes != 0)
		conf->cache_bytes = options->cache_bytes < 0 ? 0 : (uint64_t)options->cache_bytes;
	return r;
}

/* With address and key in hand a missing file is fine, unless it was asked for by name. */
static bool file_needed(const struct gfs_options *options)
{
	return !options->metad || !options->key_file || options->config;
}

/* The installed sample is such a file: it must not hide what to do. */
static int no_metad(const char *file, struct gx_buf *errors)
{
	GX_IGNORE(gx_buf_append_format(errors,
				       "%s: [gfs] metad is not set, so there is no grid to go to; "
				       "`gfs up` starts one\n",
				       file));
	return -EINVAL;
}

int gfs_conf_load(struct gx_env *env, const struct gfs_options *options, struct gfs_conf *ret_conf,
		  struct gx_buf *errors)
{
	static const struct gfs_options none;
	char file[GX_PATH_MAX] = "";
	size_t mark = errors->bytes;
	int r;

	if (!options)
		options = &none;
	*ret_conf = (struct gfs_conf){0};
	r = gx_conf_init(&gfs_conf_table, ret_conf);
	if (r < 0)
		return r;
	r = gfs_conf_find(env, options->config, file, errors);
	if (r == 0) {
		r = gx_conf_load(&gfs_conf_table, ret_conf, env, file, true, errors);
	} else if (r == -ENOENT && !file_needed(options)) {
		errors->bytes = mark;
		file[0] = '\0';
		r = 0;
	}
	if (r == 0 && (!ret_conf->key_file || !ret_conf->key_file[0]))
		r = default_key(ret_conf, file);
	if (r == 0)
		r = apply_options(ret_conf, options);
	if (r == 0 && (!ret_conf->metad || !ret_conf->metad[0]))
		r = no_metad(file, errors);
	if (r == 0)
		r = gx_conf_validate(&gfs_conf_table, ret_conf, errors);
	return r;
}

void gfs_conf_fini(struct gfs_conf *conf)
{
	gx_conf_fini(&gfs_conf_table, conf);
}

int gfs_conf_connect_options(struct gx_env *env, const struct gfs_conf *conf,
			     struct rpc_key *ret_key, struct gfc_options *ret_options,
			     struct gx_buf *errors)
{
	struct gfc_options options = {
		.env = env,
		.program = PROGRAM,
		.timeout_ns = conf->meta_timeout_ns,
		.connections_max = (unsigned)conf->connections,
		.cache_bytes = conf->cache_bytes,
	};
	int r;

	*ret_key = (struct rpc_key){0};
	r = rpc_endpoint_parse(env, conf->metad, conf->insecure, &options.metad, errors);
	if (r == 0)
		r = rpc_key_load(env, conf->key_file, ret_key, errors);
	if (r < 0)
		return r;
	options.identity = ret_key->identity;
	options.key = ret_key->secret;
	*ret_options = options;
	return 0;
}

void gfs_conf_data_options(const struct gfs_conf *conf, struct gfd_options *ret_options)
{
	*ret_options = (struct gfd_options){
		.host = conf->host,
		.data_timeout_ns = conf->data_timeout_ns,
		.connections = (unsigned)conf->data_connections,
		.write_behind = conf->write_behind,
		.read_ahead = conf->read_ahead,
		.cache_copies = conf->cache_copies,
	};
}
