/*
 * gfs-fsd - the storage daemon: the bytes of large files, on the disks of one host.
 */
#define GX_LOG_COMPONENT "fsd"
#include "common/gx_daemon.h"
#include "common/gx_log.h"
#include "fsd/fsd_server.h"
#include "rpc/rpc_daemon.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#define PROGRAM "gfs-fsd"
#define DRAIN_NS (5 * GX_NSEC_PER_SEC)
#define SPOOLS_MAX 64u
#define HOST_TEXT_MAX (GX_NAME_USER_MAX + 1)

struct fsd_conf {
	struct gx_daemon_conf daemon;
	char *name;
	char *host;
	char *group;
	char *key;
	char *keys;
	char *metad;
	char *listen;
	char *addresses;
	char *address_file;
	bool insecure;
	char *spools;
	bool make_spools;
	uint64_t reserved;
	uint64_t threads_max;
	uint64_t jobs;
	int64_t sync_after;
	int64_t quarantine;
	int64_t handshake_timeout;
	uint64_t boot;
};

static struct fsd_conf conf;

#define AT(field) offsetof(struct fsd_conf, field)
static const struct gx_conf_row rows[] = {
	GX_DAEMON_CONF_ROWS(struct fsd_conf, daemon),
	{"fsd", "key", GX_CONF_PATH, AT(key), NULL, NULL, NULL, NULL,
	 GX_CONF_REQUIRED | GX_CONF_SECRET,
	 "File with the key host:NAME of this node; metad has the same in its table. Made with gfs "
	 "key."},
	{"fsd", "name", GX_CONF_STRING, AT(name), NULL, NULL, NULL, NULL, 0,
	 "The node's name. Default: that of its key."},
	{"fsd", "host", GX_CONF_STRING, AT(host), NULL, NULL, NULL, NULL, 0,
	 "Label of what fails as one: a file never has two copies under the same. Default: the "
	 "name of this machine."},
	{"fsd", "group", GX_CONF_STRING, AT(group), NULL, NULL, NULL, NULL, 0,
	 "Label of nodes that are alike or near each other, for people and for placement."},
	{"fsd", "metad", GX_CONF_STRING, AT(metad), NULL, NULL, NULL, NULL, GX_CONF_REQUIRED,
	 "Address of the metadata server: HOST:PORT or unix:/PATH, each optionally behind tls:."},
	{"fsd", "listen", GX_CONF_LIST, AT(listen), "127.0.0.1:7611", NULL, NULL, NULL, 0,
	 "Addresses to listen on: HOST:PORT, unix:/PATH, each optionally behind tls:. Port 0 picks "
	 "a free one. Beyond loopback it is always TLS."},
	{"fsd", "addresses", GX_CONF_LIST, AT(addresses), NULL, NULL, NULL, NULL, 0,
	 "Addresses by which others reach this node, at most 8; metad tells them to clients. "
	 "Default: those it listens on."},
	{"fsd", "address_file", GX_CONF_PATH, AT(address_file), NULL, NULL, NULL, NULL, 0,
	 "Write the addresses really bound to this file, one a line, once ready."},
	{"fsd", "keys", GX_CONF_PATH, AT(keys), NULL, NULL, NULL, NULL, GX_CONF_SECRET,
	 "Key table: who may connect without a ticket of metad, to ask for counters. Default: "
	 "nobody."},
	{"fsd", "insecure", GX_CONF_BOOL, AT(insecure), "no", NULL, NULL, NULL, 0,
	 "Allow listening beyond this machine, and reaching metad, without TLS. Do not."},
	{"fsd", "spools", GX_CONF_LIST, AT(spools), NULL, NULL, NULL, NULL, GX_CONF_REQUIRED,
	 "Directories that hold the bytes, absolute, one on each disk."},
	{"fsd", "make_spools", GX_CONF_BOOL, AT(make_spools), "no", NULL, NULL, NULL, 0,
	 "Make a spool in each of them that is empty. Only for the first start: otherwise a disk "
	 "that is not mounted becomes an empty node."},
	{"fsd", "reserved", GX_CONF_SIZE, AT(reserved), "64MiB", "0", "1TiB", NULL, 0,
	 "Space of each spool that is kept free: writers get ENOSPC before."},
	{"fsd", "threads_max", GX_CONF_U64, AT(threads_max), "1024", "4", "100000", NULL, 0,
	 "Connections at the same time, each with a thread. More wait."},
	{"fsd", "jobs", GX_CONF_U64, AT(jobs), "4", "1", "64", NULL, 0,
	 "Copies and deletions for metad at the same time."},
	{"fsd", "sync_after", GX_CONF_DURATION, AT(sync_after), "2s", "10ms", "5s", NULL, 0,
	 "What has not been written for so long is brought to disk without being asked."},
	{"fsd", "quarantine", GX_CONF_DURATION, AT(quarantine), "1d", "0s", "365d", NULL, 0,
	 "How long objects are kept that metad does not know."},
	{"fsd", "handshake_timeout", GX_CONF_DURATION, AT(handshake_timeout), "10s", "100ms", "10m",
	 NULL, 0, "Time a connection has to authenticate."},
	{"fsd", "boot", GX_CONF_U64, AT(boot), "0", NULL, NULL, NULL, GX_CONF_HIDDEN,
	 "The machine's life, in place of the kernel's."},
};
#undef AT

static const struct gx_conf_table table = {PROGRAM, rows, GX_COUNT_OF(rows),
					   sizeof(struct fsd_conf)};

struct fsd {
	struct rpc_key key;
	struct rpc_keytab *keys;
	char host[HOST_TEXT_MAX];
	char *spool_text; /* conf.spools, a NUL behind each */
	const char *spools[SPOOLS_MAX];
	size_t spool_count;
	struct fsd_server *server;
	struct gx_buf addresses;
	bool addresses_written;
};

/* -- configuration ---------------------------------------------------------------------------- */

static bool is_set(const char *text)
{
	return text && text[0];
}

static int complain(struct gx_buf *errors, const char *key, const char *text, const char *problem)
{
	GX_IGNORE(gx_buf_append_format(errors, "fsd.%s: \"%s\" %s\n", key, text, problem));
	return -EINVAL;
}

/* Names and labels go to metad, which takes what can be part of an identity. */
static int check_label(const char *key, const char *text, struct gx_buf *errors)
{
	char identity[GX_NAME_USER_MAX + 8];
	enum rpc_identity_kind kind;

	if (!is_set(text) || (gx_format(identity, sizeof(identity), "host:%s", text) == 0 &&
			      rpc_identity_parse(identity, &kind) == 0))
		return 0;
	return complain(errors, key, text, "is not 1 to 64 letters, digits, . _ - @");
}

static bool is_any(const struct gx_addr *addr)
{
	const struct sockaddr *sa = (const struct sockaddr *)&addr->sa;

	if (addr->kind != GX_ADDR_INET)
		return false;
	if (sa->sa_family == AF_INET)
		return ((const struct sockaddr_in *)&addr->sa)->sin_addr.s_addr ==
		       htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)&addr->sa)->sin6_addr);
}

/* Nobody can connect to "all addresses of this machine". */
static int check_reachable(struct gx_env *env, const char *key, const char *list, bool insecure,
			   struct gx_buf *errors)
{
	int result = 0;

	while (is_set(list)) {
		size_t bytes = strcspn(list, ",");
		char text[GX_ADDR_TEXT_MAX];
		struct rpc_endpoint endpoint;

		if (gx_format(text, sizeof(text), "%.*s", (int)bytes, list) == 0 &&
		    rpc_endpoint_parse(env, text, insecure, &endpoint, NULL) == 0 &&
		    is_any(&endpoint.addr))
			result = complain(errors, key, text,
					  "is no address to connect to: name one in fsd.addresses");
		list += bytes + (list[bytes] == ',');
	}
	return result;
}

static int check_addresses(const struct fsd_conf *c, struct gx_env *env, struct gx_buf *errors)
{
	bool told = is_set(c->addresses);
	struct rpc_endpoint endpoint;
	int r[4];

	r[0] = rpc_daemon_check_addresses(env, c->listen, c->insecure, errors);
	r[1] = rpc_daemon_check_addresses(env, c->addresses, c->insecure, errors);
	r[2] = check_reachable(env, told ? "addresses" : "listen", told ? c->addresses : c->listen,
			       c->insecure, errors);
	r[3] = rpc_endpoint_parse(env, c->metad, c->insecure, &endpoint, errors);
	if (!is_set(c->listen))
		return complain(errors, "listen", "", "must be set");
	return r[0] < 0 || r[1] < 0 || r[2] < 0 || r[3] < 0 ? -EINVAL : 0;
}

static int check_spools(const char *list, struct gx_buf *errors)
{
	size_t count = 0;
	int r = 0;

	while (is_set(list)) {
		size_t bytes = strcspn(list, ",");

		if (list[0] != '/')
			r = complain(errors, "spools", list, "is not an absolute path");
		count++;
		list += bytes + (list[bytes] == ',');
	}
	if (count > SPOOLS_MAX)
		r = complain(errors, "spools", "", "has too many directories");
	return r;
}

static int fsd_check(const void *config, struct gx_env *env, struct gx_buf *errors)
{
	const struct fsd_conf *c = config;
	int r[] = {
		check_label("name", c->name, errors),   check_label("host", c->host, errors),
		check_label("group", c->group, errors), check_addresses(c, env, errors),
		check_spools(c->spools, errors),
	};
	int result = 0;

	for (size_t i = 0; i < GX_COUNT_OF(r); i++)
		if (r[i] < 0)
			result = -EINVAL;
	return result;
}

/* -- life ------------------------------------------------------------------------------------- */

static int load_key(struct gx_env *env, struct rpc_key *ret_key)
{
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, GX_CONF_LINE_MAX);
	r = rpc_key_load(env, conf.key, ret_key, &errors);
	if (r < 0)
		gx_log(ERR, "cannot load the key",
		       GX_KS("problem", errors.bytes > 0 ? gx_buf_text(&errors) : ""), GX_KE(r));
	gx_buf_fini(&errors);
	return r;
}

static int split_spools(struct fsd *fsd)
{
	char *at = strdup(conf.spools);

	fsd->spool_text = at;
	if (!at)
		return -ENOMEM;
	while (*at) {
		size_t bytes = strcspn(at, ",");
		bool more = at[bytes] == ',';

		gx_assert(fsd->spool_count < SPOOLS_MAX); /* fsd_check() has counted them */
		at[bytes] = '\0';
		fsd->spools[fsd->spool_count++] = at;
		at += bytes + more;
	}
	return 0;
}

static int find_host(struct fsd *fsd)
{
	struct gx_buf ignored;
	int r;

	if (is_set(conf.host))
		return gx_format(fsd->host, sizeof(fsd->host), "%s", conf.host);
	if (gethostname(fsd->host, sizeof(fsd->host)) < 0)
		return gx_log_errno(ERR, -errno, "cannot tell the name of this machine");
	fsd->host[sizeof(fsd->host) - 1] = '\0';
	gx_buf_init(&ignored, GX_CONF_LINE_MAX);
	r = check_label("host", fsd->host, &ignored);
	gx_buf_fini(&ignored);
	if (r < 0)
		gx_log(ERR, "this machine's name is no label: set fsd.host",
		       GX_KS("name", fsd->host));
	return r;
}

static int server_listen(void *server, const struct rpc_endpoint *endpoint,
			 struct rpc_endpoint *ret_bound)
{
	return fsd_server_listen(server, endpoint, ret_bound);
}

static int start_server(struct gx_daemon *d, struct fsd *fsd)
{
	struct fsd_server_options options = FSD_SERVER_OPTIONS_INIT;
	int r;

	options.env = d->env;
	options.loop = d->loop;
	options.name = is_set(conf.name) ? conf.name : rpc_identity_name(fsd->key.identity);
	options.host = fsd->host;
	options.group = is_set(conf.group) ? conf.group : NULL;
	options.program = PROGRAM "/" GX_VERSION;
	options.spools = fsd->spools;
	options.spool_count = fsd->spool_count;
	options.make_spools = conf.make_spools;
	options.key = &fsd->key;
	options.keys = fsd->keys;
	options.addresses = is_set(conf.addresses) ? conf.addresses : NULL;
	options.boot = conf.boot;
	options.reserved_bytes = conf.reserved;
	options.threads_max = (unsigned)conf.threads_max;
	options.jobs_max = (unsigned)conf.jobs;
	options.sync_after_ns = conf.sync_after;
	options.quarantine_ns = conf.quarantine;
	options.handshake_ns = conf.handshake_timeout;
	r = rpc_endpoint_parse(d->env, conf.metad, conf.insecure, &options.metad, NULL);
	if (r == 0)
		r = fsd_server_new(&options, &fsd->server);
	if (r == 0)
		r = rpc_daemon_listen(d->env, conf.listen, conf.insecure, server_listen,
				      fsd->server, &fsd->addresses);
	return r;
}

static int start_all(struct gx_daemon *d, struct fsd *fsd)
{
	int r = load_key(d->env, &fsd->key);

	if (r == 0 && is_set(conf.keys))
		r = rpc_daemon_load_keys(d->env, conf.keys, &fsd->keys);
	if (r == 0)
		r = find_host(fsd);
	if (r == 0)
		r = split_spools(fsd);
	if (r == 0)
		r = start_server(d, fsd);
	if (r == 0) {
		r = rpc_daemon_write_addresses(d->env, conf.address_file, &fsd->addresses);
		fsd->addresses_written = r == 0;
	}
	/* Last: metad sends clients as soon as it hears of us. */
	return r < 0 ? r : fsd_server_start(fsd->server);
}

static int fsd_start(struct gx_daemon *d)
{
	struct fsd *fsd = calloc(1, sizeof(*fsd));
	int r;

	if (!fsd)
		return gx_log_errno(ERR, -ENOMEM, "cannot start");
	d->data = fsd;
	gx_buf_init(&fsd->addresses, GX_CONF_FILE_MAX);
	r = start_all(d, fsd);
	return r < 0 ? gx_log_errno(ERR, r, "cannot start") : 0;
}

static void on_drained(void *arg)
{
	struct gx_daemon *d = arg;

	gx_loop_stop(d->loop);
}

static void fsd_stop(struct gx_daemon *d)
{
	struct fsd *fsd = d->data;

	fsd_server_drain(fsd->server, gx_env_now_ns(d->env) + DRAIN_NS, on_drained, d);
}

static void fsd_finish(struct gx_daemon *d)
{
	struct fsd *fsd = d->data;

	if (!fsd)
		return;
	fsd_server_free(fsd->server);
	rpc_keytab_free(fsd->keys);
	rpc_key_clear(&fsd->key);
	free(fsd->spool_text);
	/* Only our own: after a failed start it may be that of the daemon that is in our way. */
	if (fsd->addresses_written && conf.address_file)
		GX_IGNORE(gx_env_unlink(d->env, conf.address_file));
	gx_buf_fini(&fsd->addresses);
	free(fsd);
}

int main(int argc, char **argv)
{
	static const struct gx_daemon_spec spec = {
		.program = PROGRAM,
		.synopsis = "storage daemon of the Gridstage grid filesystem",
		.default_conf = "gridstage/fsd.conf",
		.table = &table,
		.config = &conf,
		.daemon_conf = &conf.daemon,
		.check = fsd_check,
		.start = fsd_start,
		.stop = fsd_stop,
		.finish = fsd_finish,
	};

	return gx_daemon_main(&spec, argc, argv);
}
