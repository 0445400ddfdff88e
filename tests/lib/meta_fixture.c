#include "tests/lib/meta_fixture.h"
#include "client/fs/gfs_impl.h"
#include "metad/md_check.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct meta_fixture {
	struct gx_env *env;
	struct md_server_options options;
	char dir[64];
	struct rpc_endpoint endpoint;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	bool is_up;
	struct gx_loop *loop;
	struct gx_thread thread;
	struct md_server *server;
	struct gx_mutex lock;
	struct gx_cond changed;
};

static const struct {
	const char *identity;
	unsigned char seed; /* the key is this byte 32 times */
	bool admin;
} people[META_WHO_COUNT] = {
	[META_ROOT] = {"user:root", 0x40, true},   [META_ALICE] = {"user:alice", 0xa1, false},
	[META_BOB] = {"user:bob", 0xb0, false},    [META_CAROL] = {"user:carol", 0xca, false},
	[META_HOST] = {"host:fsd1", 0xfd, false},  [META_NOBODY] = {"user:dave", 0xda, false},
	[META_HOST2] = {"host:fsd2", 0xfe, false}, [META_HOST3] = {"host:fsd3", 0xfb, false},
};

static const char users_text[] = "user root 0 0\n"
				 "user alice 1000 1000\n"
				 "user bob 1001 1001 50\n"
				 "user carol 1002 50\n"
				 "group staff 50\n";

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "meta_fixture: %s: %s\n", what, gx_strerror(r));
	abort();
}

const char *meta_fixture_identity(enum meta_who who)
{
	return people[who].identity;
}

static void key_of(enum meta_who who, unsigned char key[RPC_KEY_BYTES])
{
	memset(key, people[who].seed, RPC_KEY_BYTES);
}

static void make_keys(struct meta_fixture *f)
{
	must(rpc_keytab_new(&f->keys), "key table");
	for (unsigned i = 0; i < META_WHO_COUNT; i++) {
		struct rpc_key key = {.admin = people[i].admin, .created_ns = 1};

		must(rpc_identity_parse(people[i].identity, &key.kind), "identity");
		must(gx_strcpy(key.identity, sizeof(key.identity), people[i].identity), "identity");
		key_of(i, key.secret);
		must(rpc_keytab_put(f->keys, &key, false), "key");
	}
}

static void loop_main(void *arg)
{
	struct meta_fixture *f = arg;

	must(gx_loop_run(f->loop), "loop");
}

void meta_fixture_up(struct meta_fixture *f)
{
	gx_assert(!f->is_up);
	must(gx_loop_new(f->env, &f->loop), "loop");
	f->options.loop = f->loop;
	must(md_users_parse("users", users_text, strlen(users_text), NULL, &f->options.users),
	     "users");
	must(md_server_new(&f->options, &f->server), "metad");
	must(md_server_listen(f->server, &f->endpoint, NULL), "listen");
	must(gx_env_thread_start(f->env, &f->thread, "metad", loop_main, f), "thread");
	f->is_up = true;
}

void meta_fixture_down(struct meta_fixture *f)
{
	gx_assert(f->is_up);
	gx_loop_stop(f->loop);
	gx_env_thread_join(f->env, &f->thread);
	md_server_free(f->server);
	gx_loop_free(f->loop);
	f->is_up = false;
}

struct meta_fixture *meta_fixture_start(const struct md_server_options *options)
{
	static const struct md_server_options defaults = MD_SERVER_OPTIONS_INIT;
	struct meta_fixture *f = calloc(1, sizeof(*f));
	const char *tmp = getenv("TMPDIR");
	char text[GX_ADDR_TEXT_MAX];

	gx_assert(f);
	f->env = gx_env_posix();
	f->options = options ? *options : defaults;
	must(gx_env_mutex_init(f->env, &f->lock), "mutex");
	must(gx_env_cond_init(f->env, &f->changed), "cond");
	/* A unix socket's path has little room; fall back to where it is short. */
	must(gx_format(f->dir, sizeof(f->dir), "%s/metafix.XXXXXX",
		       tmp && strlen(tmp) < 40 ? tmp : "/tmp"),
	     "scratch");
	if (!mkdtemp(f->dir))
		must(gx_errno(), f->dir);
	make_keys(f);
	f->auth = (struct rpc_auth){.env = f->env, .keys = f->keys};
	if (!f->options.env)
		f->options.env = f->env;
	f->options.dir = f->dir;
	f->options.auth = &f->auth;
	must(gx_format(text, sizeof(text), "unix:%s/sock", f->dir), "address");
	must(rpc_endpoint_parse(f->env, text, false, &f->endpoint, NULL), text);
	meta_fixture_up(f);
	return f;
}

static int remove_one(const char *path, const struct stat *st GX_UNUSED, int type GX_UNUSED,
		      struct FTW *ftw GX_UNUSED)
{
	return remove(path);
}

void meta_fixture_stop(struct meta_fixture *f)
{
	if (!f)
		return;
	if (f->is_up)
		meta_fixture_down(f);
	rpc_keytab_free(f->keys);
	gx_env_cond_fini(f->env, &f->changed);
	gx_env_mutex_fini(f->env, &f->lock);
	GX_IGNORE(nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS));
	free(f);
}

const char *meta_fixture_dir(const struct meta_fixture *f)
{
	return f->dir;
}

/* -- clients --------------------------------------------------------------------------------- */

struct rpc_client *meta_fixture_client(struct meta_fixture *f, enum meta_who who)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	unsigned char key[RPC_KEY_BYTES];
	struct rpc_client *client;

	key_of(who, key);
	options.env = f->env;
	options.endpoint = f->endpoint;
	options.identity = people[who].identity;
	options.key = key;
	options.timeout_ns = 20 * GX_NSEC_PER_SEC;
	must(rpc_client_new(&options, &client), "client");
	return client;
}

static struct gfc_options options_of(struct meta_fixture *f, enum meta_who who, size_t cache_bytes,
				     unsigned char key[RPC_KEY_BYTES])
{
	key_of(who, key);
	return (struct gfc_options){
		.env = f->env,
		.metad = f->endpoint,
		.identity = people[who].identity,
		.key = key,
		.program = "test/1",
		.timeout_ns = 20 * GX_NSEC_PER_SEC,
		.connections_max = 4,
		.cache_bytes = cache_bytes,
	};
}

struct gfs *meta_fixture_gfs(struct meta_fixture *f, enum meta_who who)
{
	struct gfd_options data = GFD_OPTIONS_INIT;
	unsigned char key[RPC_KEY_BYTES];
	struct gfc_options options = options_of(f, who, 1 << 20, key);
	struct gfs *fs;

	must(gfs_connect_with(&options, &data, &fs), gfc_error());
	return fs;
}

struct gfc *meta_fixture_gfc(struct meta_fixture *f, enum meta_who who, size_t cache_bytes)
{
	unsigned char key[RPC_KEY_BYTES];
	struct gfc_options options = options_of(f, who, cache_bytes, key);
	struct gfc *gfc;

	must(gfc_new(&options, &gfc), gfc_error());
	return gfc;
}

/* -- looking inside -----------------------------------------------------------------------------
 */

struct visit {
	struct gx_task task;
	struct meta_fixture *fixture;
	meta_fixture_fn fn;
	void *arg;
	bool done;
};

static void on_visit(struct gx_task *task)
{
	struct visit *visit = GX_CONTAINER_OF(task, struct visit, task);
	struct meta_fixture *f = visit->fixture;

	visit->fn(f->server, visit->arg);
	gx_env_mutex_lock(f->env, &f->lock);
	visit->done = true;
	gx_env_cond_broadcast(f->env, &f->changed);
	gx_env_mutex_unlock(f->env, &f->lock);
}

void meta_fixture_run(struct meta_fixture *f, meta_fixture_fn fn, void *arg)
{
	struct visit visit = {.task = {.fn = on_visit}, .fixture = f, .fn = fn, .arg = arg};

	gx_assert(f->is_up);
	gx_loop_post(f->loop, &visit.task);
	gx_env_mutex_lock(f->env, &f->lock);
	while (!visit.done)
		GX_IGNORE(gx_env_cond_wait(f->env, &f->changed, &f->lock, GX_FOREVER));
	gx_env_mutex_unlock(f->env, &f->lock);
}

static void on_problem(void *arg GX_UNUSED, const char *text)
{
	fprintf(stderr, "meta_fixture: state: %s\n", text);
}

static void check_state(struct md_server *server, void *arg)
{
	*(int *)arg = md_check(md_server_state(server), on_problem, NULL);
}

void meta_fixture_check(struct meta_fixture *f)
{
	int problems;

	meta_fixture_run(f, check_state, &problems);
	must(problems == 0 ? 0 : -EBADMSG, "the state does not hold together");
}
