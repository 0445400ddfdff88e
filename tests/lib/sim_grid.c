#include "tests/lib/sim_grid.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include "echo.pb-c.h"
#include "tests/lib/sim_alloc.h"
#include <stdio.h>

#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

#define IDENTITY "user:alice"

static const unsigned char client_key[RPC_KEY_BYTES] = {1, 2, 3, 4, 5};

/* Fault tests link another allocator, without this. */
__attribute__((weak)) size_t sim_alloc_blocks(const struct gx_sim_proc *proc GX_UNUSED)
{
	return 0;
}

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "sim_grid: %s: %s\n", what, gx_strerror(r));
	abort();
}

static void no_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		   const char *line GX_UNUSED)
{
}

uint64_t sim_seeds(uint64_t normal)
{
	const char *text = getenv("SIM_SEEDS");
	uint64_t n;

	return text != NULL && gx_parse_u64(text, &n) == 0 ? n : normal;
}

uint64_t sim_seeds_long(uint64_t normal)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	normal /= 5;
#endif
	return sim_seeds(normal);
}

/* -- a replay table that forgets, to break the promise on purpose ---------------------- */

static int forget_begin(struct rpc_replay *replay GX_UNUSED, struct rpc_call *call GX_UNUSED)
{
	return 0;
}

static void forget_finish(struct rpc_replay *replay GX_UNUSED, struct rpc_call *call GX_UNUSED,
			  const struct rpc_frame *frame GX_UNUSED, const void *message GX_UNUSED)
{
}

static const struct rpc_replay_ops forget_ops = {.begin = forget_begin, .finish = forget_finish};
static struct rpc_replay forget = {&forget_ops};

/* -- server -------------------------------------------------------------------------------- */

struct life {
	struct sim_grid *grid;
	struct gx_env *env;
	struct gx_loop *loop;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct rpc_sessions *sessions;
	struct rpc_server *server;
	struct gx_timer drain, stop;
};

static void on_drained(void *arg)
{
	struct life *life = arg;

	life->grid->drained = true;
	life->grid->drained_ns = gx_sim_now_ns(life->grid->sim);
	gx_loop_stop(life->loop);
}

static void on_drain(struct gx_timer *timer)
{
	struct life *life = GX_CONTAINER_OF(timer, struct life, drain);

	rpc_server_drain(life->server, gx_env_now_ns(life->env) + life->grid->drain_ns, on_drained,
			 life);
}

static void on_stop(struct gx_timer *timer)
{
	gx_loop_stop(GX_CONTAINER_OF(timer, struct life, stop)->loop);
}

static int make_keys(struct life *life)
{
	struct rpc_key key = {.kind = RPC_IDENTITY_USER, .identity = IDENTITY};
	int r = rpc_keytab_new(&life->keys);

	memcpy(key.secret, client_key, sizeof(client_key));
	return r < 0 ? r : rpc_keytab_put(life->keys, &key, false);
}

static int set_timers(struct life *life)
{
	struct sim_grid *grid = life->grid;
	int64_t now = gx_env_now_ns(life->env);
	int r = 0;

	if (grid->drain_after_ns > 0)
		r = gx_timer_start(life->loop, &life->drain, now + grid->drain_after_ns, on_drain);
	if (r == 0 && grid->stop_after_ns > 0)
		r = gx_timer_start(life->loop, &life->stop, now + grid->stop_after_ns, on_stop);
	return r;
}

static int life_begin(struct life *life)
{
	struct rpc_server_options options = RPC_SERVER_OPTIONS_INIT;
	struct sim_grid *grid = life->grid;
	struct rpc_endpoint endpoint;
	int r;

	r = make_keys(life);
	if (r == 0)
		r = gx_loop_new(life->env, &life->loop);
	if (r == 0)
		r = rpc_sessions_new(life->env, grid->linger_ns, &life->sessions);
	if (r == 0)
		r = echo_service_init(&grid->echo, life->env);
	if (r < 0)
		return r;
	rpc_dispatcher_init(&grid->dispatcher, life->env, "server", "sim");
	grid->dispatcher.replay =
		grid->ignore_replay ? &forget : rpc_sessions_replay(life->sessions);
	rpc_dispatcher_add(&grid->dispatcher, &echo_service_table, &grid->echo);
	grid->echo.loop = life->loop;
	life->auth = (struct rpc_auth){.env = life->env, .keys = life->keys};
	options.loop = life->loop;
	options.dispatcher = &grid->dispatcher;
	options.auth = &life->auth;
	options.sessions = life->sessions;
	options.boot = grid->lives;
	r = rpc_server_new(&options, &life->server);
	if (r < 0)
		return r;
	grid->echo.server = life->server;
	r = rpc_endpoint_parse(life->env, SIM_GRID_ADDRESS, false, &endpoint, NULL);
	if (r == 0)
		r = rpc_server_listen(life->server, &endpoint, NULL);
	return r < 0 ? r : set_timers(life);
}

static void server_main(struct gx_env *env, void *arg)
{
	struct sim_grid *grid = arg;
	struct life life = {.grid = grid, .env = env};
	int64_t tally;
	uint64_t tally_calls;
	int r;

	env->fault = grid->server_fault;
	grid->server_err = 1;
	grid->echo = (struct echo_service){.env = NULL};
	r = life_begin(&life);
	if (r == 0)
		r = gx_loop_run(life.loop);
	/* The service's end does not forget what it counted. */
	echo_service_fini(&grid->echo);
	tally = grid->echo.tally;
	tally_calls = grid->echo.tally_calls;
	rpc_server_free(life.server);
	rpc_sessions_free(life.sessions);
	if (life.loop != NULL) {
		gx_timer_stop(&life.drain);
		gx_timer_stop(&life.stop);
	}
	gx_loop_free(life.loop);
	rpc_keytab_free(life.keys);
	grid->echo = (struct echo_service){.tally = tally, .tally_calls = tally_calls};
	grid->server_err = r;
	grid->server_blocks = sim_alloc_blocks(gx_sim_current());
}

/* -- grid ------------------------------------------------------------------------------------ */

void sim_grid_init(struct sim_grid *grid, uint64_t seed)
{
	memset(grid, 0, sizeof(*grid));
	grid->options = (struct gx_sim_options)GX_SIM_OPTIONS_INIT;
	grid->options.seed = seed;
	grid->linger_ns = 60 * GX_NSEC_PER_SEC;
	grid->drain_ns = 5 * GX_NSEC_PER_SEC;
	gx_log_to_callback(no_log, NULL);
}

static void spawn_server(struct sim_grid *grid)
{
	grid->lives++;
	must(gx_sim_spawn(grid->server_host, "server", server_main, grid, &grid->server), "spawn");
}

void sim_grid_start(struct sim_grid *grid)
{
	must(gx_sim_new(&grid->options, &grid->sim), "sim");
	must(gx_sim_host_new(grid->sim, "server", &grid->server_host), "host");
	must(gx_sim_host_new(grid->sim, "client", &grid->client_host), "host");
	must(gx_sim_host_new(grid->sim, "other", &grid->other_host), "host");
	spawn_server(grid);
}

void sim_grid_restart_server(struct sim_grid *grid)
{
	grid->tally_before += grid->echo.tally;
	grid->echo.tally = 0;
	spawn_server(grid);
}

void sim_grid_free(struct sim_grid *grid)
{
	gx_sim_free(grid->sim);
	grid->sim = NULL;
}

unsigned sim_grid_done(const struct sim_grid *grid, unsigned i)
{
	return (unsigned)((grid->tally_before + grid->echo.tally) >> (3 * i)) & 7;
}

void sim_grid_client_options(struct gx_env *env, struct rpc_client_options *ret_options)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;

	options.env = env;
	/* A parse of a name in the simulation needs nothing that could fail but by a fault. */
	options.endpoint = (struct rpc_endpoint){.addr = {.kind = GX_ADDR_MEM}};
	must(gx_strcpy(options.endpoint.addr.mem_name, sizeof(options.endpoint.addr.mem_name),
		       SIM_GRID_ADDRESS + strlen("mem:")),
	     "address");
	options.identity = IDENTITY;
	options.key = client_key;
	*ret_options = options;
}

/* -- clients ------------------------------------------------------------------------------------
 */

int sim_tally(struct rpc_client *client, int64_t add, uint32_t delay_ms, int64_t deadline_ns,
	      int64_t *ret_value)
{
	PbEcho__TallyRequest request = PB_ECHO__TALLY_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = deadline_ns};
	const PbEcho__TallyReply *answer;
	struct rpc_reply reply;
	int r;

	request.add = add;
	request.delay_ms = delay_ms;
	r = echo_call_tally(client, &request, &options, &reply, &answer);
	if (r == 0)
		*ret_value = answer->value;
	rpc_reply_fini(&reply);
	return r;
}

static void adder_fiber(void *arg)
{
	struct sim_adder *adder = arg;
	struct gx_env *env = adder->env;

	while (adder->next < adder->calls) {
		unsigned i = adder->next++;
		int64_t deadline_ns = gx_env_now_ns(env) + adder->timeout_ns;

		adder->result[i] = sim_tally(adder->client, INT64_C(1) << (3 * i), adder->delay_ms,
					     deadline_ns, &adder->value[i]);
		adder->late_ns[i] = gx_env_now_ns(env) - deadline_ns;
		if (adder->pause_ns > 0)
			gx_env_sleep_until(env, gx_env_now_ns(env) + adder->pause_ns);
	}
}

static void adder_main(struct gx_env *env, void *arg)
{
	struct sim_adder *adder = arg;
	struct rpc_client_options options;
	struct gx_thread threads[SIM_GRID_FIBERS_MAX];
	unsigned started = 0;
	int r;

	env->fault = adder->fault;
	adder->env = env;
	sim_grid_client_options(env, &options);
	options.connections_max = adder->connections_max;
	r = rpc_client_new(&options, &adder->client);
	while (r == 0 && started + 1 < adder->fibers) {
		r = gx_env_thread_start(env, &threads[started], "adder", adder_fiber, adder);
		if (r == 0)
			started++;
	}
	if (adder->client != NULL)
		adder_fiber(adder);
	for (unsigned i = 0; i < started; i++)
		gx_env_thread_join(env, &threads[i]);
	rpc_client_free(adder->client);
	adder->client = NULL;
	adder->err = r;
	adder->blocks = sim_alloc_blocks(gx_sim_current());
}

void sim_adder_init(struct sim_adder *adder, unsigned fibers, unsigned calls)
{
	gx_assert(fibers >= 1 && fibers <= SIM_GRID_FIBERS_MAX && calls <= SIM_GRID_ADDS_MAX);
	*adder = (struct sim_adder){.fibers = fibers,
				    .calls = calls,
				    .connections_max = 2,
				    .timeout_ns = 30 * GX_NSEC_PER_SEC};
	for (unsigned i = 0; i < SIM_GRID_ADDS_MAX; i++)
		adder->result[i] = 1;
}

void sim_adder_start(struct sim_adder *adder, struct sim_grid *grid)
{
	must(gx_sim_spawn(grid->client_host, "adder", adder_main, adder, &adder->proc), "spawn");
}
