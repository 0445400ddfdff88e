#include "tests/lib/sim_meta.h"
#include "common/gx_log.h"
#include "metad/md_check.h"
#include "metad/md_server.h"
#include <stdarg.h>
#include <stdio.h>

#define DIR "/metad"
#define ADDRESS "metad:7000"
#define IDENTITY "user:alice"
#define USERS "user alice 1000 100\n"

static const unsigned char client_key[RPC_KEY_BYTES] = {1, 2, 3, 4, 5};

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "sim_meta: %s: %s\n", what, gx_strerror(r));
	abort();
}

void sim_meta_say(const struct sim_meta *meta, const char *fmt, ...)
{
	va_list args;

	if (getenv("SIM_LOG") == NULL)
		return;
	fprintf(stderr, "%12.6f ",
		meta->sim != NULL ? (double)gx_sim_now_ns(meta->sim) / 1e9 : 0.0);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

static void no_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		   const char *line GX_UNUSED)
{
}

/* A seed that fails is run again with SIM_LOG=debug, or what gx_log_set_levels() takes. */
static void loud_log(void *arg, enum gx_log_level level GX_UNUSED, const char *line)
{
	sim_meta_say(arg, "%s", line);
}

/* -- metad -------------------------------------------------------------------------------------
 */

struct life {
	struct gx_loop *loop;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct md_server *server;
};

static void on_fatal(void *arg, int err GX_UNUSED)
{
	struct sim_meta *meta = arg;

	meta->fatals++;
	gx_sim_kill(gx_sim_current());
}

void sim_meta_node_key(const char *name, struct rpc_key *ret_key)
{
	*ret_key = (struct rpc_key){.kind = RPC_IDENTITY_HOST};
	must(gx_format(ret_key->identity, sizeof(ret_key->identity), "host:%s", name), "name");
	memcpy(ret_key->secret, name, strlen(name));
}

static int make_keys(const struct sim_meta *meta, struct life *life)
{
	struct rpc_key key = {.kind = RPC_IDENTITY_USER, .identity = IDENTITY};
	char name[16];
	int r = rpc_keytab_new(&life->keys);

	memcpy(key.secret, client_key, sizeof(client_key));
	if (r == 0)
		r = rpc_keytab_put(life->keys, &key, false);
	for (unsigned i = 1; r == 0 && i <= meta->nodes; i++) {
		snprintf(name, sizeof(name), "fsd%u", i);
		sim_meta_node_key(name, &key);
		r = rpc_keytab_put(life->keys, &key, false);
	}
	return r;
}

static int life_begin(struct sim_meta *meta, struct gx_env *env, struct life *life)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;
	int r;

	r = gx_env_mkdir(env, meta->dir, 0700);
	if (r == 0)
		r = gx_env_sync_dir(env, "/");
	if (r < 0 && r != -EEXIST)
		return r;
	r = make_keys(meta, life);
	if (r == 0)
		r = gx_loop_new(env, &life->loop);
	if (r == 0)
		r = md_users_parse("users", USERS, strlen(USERS), NULL, &options.users);
	if (r < 0)
		return r;
	life->auth = (struct rpc_auth){.env = env, .keys = life->keys};
	options.env = env;
	options.loop = life->loop;
	options.dir = meta->dir;
	options.auth = &life->auth;
	options.root_mode = 0777;
	options.strict = meta->strict;
	options.cache_bytes = 256 * 1024;
	options.store_cache_bytes = 64 * 1024;
	options.layer_bytes = meta->layer_bytes;
	options.overlay_bytes_max = 16 * meta->layer_bytes;
	options.segment_bytes = meta->segment_bytes;
	options.leases_max = meta->leases_max;
	options.session_timeout_ns = meta->session_timeout_ns;
	options.recovery_ns = meta->recovery_ns;
	options.fatal_fn = on_fatal;
	options.fatal_arg = meta;
	options.memory_store = true;
	return md_server_new(&options, &life->server);
}

static void life_end(struct life *life)
{
	md_server_free(life->server);
	gx_loop_free(life->loop);
	rpc_keytab_free(life->keys);
}

void sim_meta_endpoint(struct rpc_endpoint *ret_endpoint)
{
	*ret_endpoint = (struct rpc_endpoint){.addr = {.kind = GX_ADDR_MEM}};
	must(gx_strcpy(ret_endpoint->addr.mem_name, sizeof(ret_endpoint->addr.mem_name), ADDRESS),
	     "address");
}

static void metad_main(struct gx_env *env, void *arg)
{
	struct sim_meta *meta = arg;
	struct life life = {0};
	struct rpc_endpoint endpoint;
	int r;

	meta->fault.kinds = 0;
	env->fault = &meta->fault;
	meta->metad_err = 1;
	r = life_begin(meta, env, &life);
	sim_meta_endpoint(&endpoint);
	if (r == 0)
		r = md_server_listen(life.server, &endpoint, NULL);
	if (r == 0)
		r = gx_loop_run(life.loop);
	meta->metad_err = r;
	life_end(&life);
}

/* -- looking at what it left ------------------------------------------------------------------ */

static void on_wrong(void *arg, const char *text)
{
	struct sim_meta *meta = arg;

	if (meta->wrong[0] == '\0')
		snprintf(meta->wrong, sizeof(meta->wrong), "%s", text);
}

static int on_session(void *arg, uint64_t session GX_UNUSED, const char *identity GX_UNUSED)
{
	struct sim_meta *meta = arg;

	meta->sessions++;
	return 0;
}

static void check_main(struct gx_env *env, void *arg)
{
	struct sim_meta *meta = arg;
	struct life life = {0};
	struct md_state *state;
	uint64_t from = 0, inos[64];
	int r = life_begin(meta, env, &life);

	if (r < 0) {
		snprintf(meta->wrong, sizeof(meta->wrong), "metad does not start: %s",
			 gx_strerror(r));
		life_end(&life);
		return;
	}
	state = md_server_state(life.server);
	r = md_check(state, on_wrong, meta);
	if (r < 0)
		on_wrong(meta, gx_strerror(r));
	do {
		meta->orphans += md_state_orphans(state, &from, inos, GX_COUNT_OF(inos));
	} while (from != 0);
	r = md_state_each_session(state, on_session, meta);
	if (r < 0)
		on_wrong(meta, gx_strerror(r));
	if (meta->look_fn != NULL)
		meta->look_fn(meta->look_arg, state);
	life_end(&life);
}

void sim_meta_check(struct sim_meta *meta)
{
	struct gx_sim_proc *proc;
	int r;

	gx_sim_kill(meta->metad);
	meta->wrong[0] = '\0';
	meta->orphans = 0;
	meta->sessions = 0;
	must(gx_sim_spawn(meta->metad_host, "check", check_main, meta, &proc), "spawn");
	r = gx_sim_run(meta->sim, proc);
	if (r < 0)
		on_wrong(meta, gx_strerror(r));
}

/* -- grid ---------------------------------------------------------------------------------------
 */

void sim_meta_init(struct sim_meta *meta, uint64_t seed)
{
	const char *levels = getenv("SIM_LOG");

	memset(meta, 0, sizeof(*meta));
	meta->options = (struct gx_sim_options)GX_SIM_OPTIONS_INIT;
	meta->options.seed = seed;
	meta->dir = DIR;
	meta->segment_bytes = 16 * 1024;
	meta->layer_bytes = 4 * 1024;
	meta->leases_max = 1000;
	meta->session_timeout_ns = 60 * GX_NSEC_PER_SEC;
	meta->recovery_ns = 10 * GX_NSEC_PER_SEC;
	gx_log_to_callback(levels != NULL ? loud_log : no_log, meta);
	if (levels != NULL)
		must(gx_log_set_levels(levels), "SIM_LOG");
}

void sim_meta_up(struct sim_meta *meta)
{
	if (meta->metad != NULL && !gx_sim_proc_ended(meta->metad))
		return;
	meta->lives++;
	must(gx_sim_spawn(meta->metad_host, "metad", metad_main, meta, &meta->metad), "spawn");
}

void sim_meta_start(struct sim_meta *meta)
{
	char name[16];

	must(gx_sim_new(&meta->options, &meta->sim), "sim");
	must(gx_sim_host_new(meta->sim, "metad", &meta->metad_host), "host");
	must(gx_sim_host_new(meta->sim, "other", &meta->other_host), "host");
	for (unsigned i = 0; i < SIM_META_CLIENTS_MAX; i++) {
		snprintf(name, sizeof(name), "client%u", i);
		must(gx_sim_host_new(meta->sim, name, &meta->client_hosts[i]), "host");
	}
	sim_meta_up(meta);
}

void sim_meta_free(struct sim_meta *meta)
{
	gx_sim_free(meta->sim);
	meta->sim = NULL;
}

void sim_meta_break_disk(struct sim_meta *meta)
{
	meta->fault.nth = atomic_load(&meta->fault.count) + 1;
	meta->fault.kinds = UINT64_C(1) << GX_FAULT_SYNC;
}

void sim_meta_client_options(struct gx_env *env, size_t cache_bytes, int64_t timeout_ns,
			     struct gfc_options *ret_options)
{
	*ret_options = (struct gfc_options){
		.env = env,
		.identity = IDENTITY,
		.key = client_key,
		.program = "sim",
		.timeout_ns = timeout_ns,
		.connections_max = 2,
		.cache_bytes = cache_bytes,
	};
	sim_meta_endpoint(&ret_options->metad);
}

int sim_meta_connect(const struct sim_meta *meta GX_UNUSED, struct gx_env *env, size_t cache_bytes,
		     int64_t timeout_ns, struct gfc **ret_gfc)
{
	struct gfc_options options;

	sim_meta_client_options(env, cache_bytes, timeout_ns, &options);
	return gfc_new(&options, ret_gfc);
}
