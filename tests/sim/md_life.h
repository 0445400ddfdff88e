/*
 * md_life.h - the lives of one metad inside the simulation, and clients of it.
 *
 * A world has a host for metad, with its directory, and one for clients. A metad can be told to die
 * (kill -9, or a power cut) in its n-th call that touches the disk or a socket, or to meet a fault;
 * the next life starts on what is left. A look is a life that nobody talks to: it writes the whole
 * tree down as text, checks the state (md_check.h), lets all sessions run out, and checks again.
 *
 * All of it is static: one world at a time, and its memory does not belong to a simulated process.
 */
#ifndef MD_LIFE_H
#define MD_LIFE_H

#include "client/fs/gfc.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include "common/gx_sim.h"
#include "metad/md_check.h"
#include "metad/md_server.h"
#include <check.h>
#include <stdio.h>

#define LIFE_TEXT_MAX 4096u
#define LIFE_DIRS_MAX 64u
#define LIFE_FDS_MAX 4096
#define LIFE_ADDRESS "mem:metad:7601"
#define LIFE_IDENTITY "user:root"
#define LIFE_LOOK_NS GX_NSEC_PER_SEC
#define LIFE_SYNC_NS (10 * GX_NSEC_PER_MSEC)

enum life_crash { LIFE_NONE, LIFE_KILL, LIFE_POWER };

struct world {
	struct gx_sim *sim;
	struct gx_sim_host *host, *client_host;
	struct gx_sim_proc *metad, *client;
	struct md_server_options options;
	unsigned lives;

	/* The call to die in, counted while `counting`; 0: none. Then the one of the next life. */
	enum life_crash crash;
	bool client_dies; /* with it */
	bool counting;
	uint64_t crash_at, crash_again, calls;
	unsigned crashes;
	struct gx_fault *fault; /* of metad's disk; may be NULL */
	bool store_fails;       /* the store's file cannot be written */
	bool is_store[LIFE_FDS_MAX];
	bool sync_failed[LIFE_FDS_MAX]; /* in this life */
	uint64_t syncs_after;           /* of files whose fdatasync had failed */

	bool client_done;
	int start_err; /* of the present or last life */
	unsigned fatals;
	int fatal_err;
	bool fatal_power; /* and the host goes down with it */

	bool looking;
	bool skip_tree;           /* it is too large for a text */
	char tree[LIFE_TEXT_MAX]; /* as the last look found it */
	char wrong[LIFE_TEXT_MAX];
	unsigned wrong_count;
};
static struct world w;
static const struct gx_env_ops *life_sim_ops;
static const unsigned char life_key[RPC_KEY_BYTES] = {3, 1, 4};

static void life_wrong(void *arg, const char *text)
{
	size_t used = strlen(w.wrong);

	w.wrong_count++;
	snprintf(w.wrong + used, sizeof(w.wrong) - used, "%s%s\n", (const char *)arg, text);
}

/* -- dying in the n-th call -------------------------------------------------------------------- */

static void life_die(void)
{
	w.crashes++;
	w.calls = 0;
	w.crash_at = w.crash_again;
	w.crash_again = 0;
	if (w.client_dies && !w.client_done) {
		w.client_done = true;
		gx_sim_kill(w.client);
	}
	if (w.crash == LIFE_POWER)
		gx_sim_power_cut(w.host);
	else
		gx_sim_kill(w.metad);
}

static bool life_last_call(void)
{
	return w.counting && w.crash_at > 0 && ++w.calls == w.crash_at;
}

/* The fault of this call; seen here and not by the env, so that the test sees it too. */
static int life_fault(enum gx_fault_kind kind)
{
	return w.fault ? gx_fault_check_slow(w.fault, kind) : 0;
}

#define LIFE_CRASHING(type, op, kind, params, args)                                                \
	static type life_##op params                                                               \
	{                                                                                          \
		int r;                                                                             \
                                                                                                   \
		if (life_last_call())                                                              \
			life_die();                                                                \
		r = life_fault(GX_FAULT_##kind);                                                   \
		return r < 0 ? r : life_sim_ops->op args;                                          \
	}
LIFE_CRASHING(int, fsync, SYNC, (struct gx_env * e, int fd), (e, fd))
LIFE_CRASHING(int, ftruncate, TRUNCATE, (struct gx_env * e, int fd, uint64_t n), (e, fd, n))
LIFE_CRASHING(int, fallocate, ALLOCATE,
	      (struct gx_env * e, int fd, int mode, uint64_t o, uint64_t n), (e, fd, mode, o, n))
LIFE_CRASHING(int, rename, RENAME, (struct gx_env * e, const char *a, const char *b), (e, a, b))
LIFE_CRASHING(int, unlink, UNLINK, (struct gx_env * e, const char *p), (e, p))
LIFE_CRASHING(int, sync_dir, SYNC, (struct gx_env * e, const char *p), (e, p))
LIFE_CRASHING(ssize_t, writev, SEND,
	      (struct gx_env * e, int fd, const struct iovec *iov, int n, int64_t deadline_ns),
	      (e, fd, iov, n, deadline_ns))

/*
 * Before it, or after a long time in it, in which the others go on. Rule N7: what failed once is
 * not synced again in this life.
 */
static int life_fdatasync(struct gx_env *env, int fd)
{
	int r;

	if (life_last_call())
		life_die();
	if (life_last_call()) {
		gx_env_sleep_until(env, gx_env_now_ns(env) + LIFE_SYNC_NS);
		life_die();
	}
	w.syncs_after += w.sync_failed[fd];
	r = life_fault(GX_FAULT_SYNC);
	if (r == 0)
		r = w.store_fails && w.is_store[fd] ? -EIO : life_sim_ops->fdatasync(env, fd);
	w.sync_failed[fd] = w.sync_failed[fd] || r < 0;
	return r;
}

static int life_open(struct gx_env *env, const char *path, int flags, mode_t mode)
{
	int fd;

	if (life_last_call())
		life_die();
	fd = life_fault(GX_FAULT_OPEN);
	if (fd == 0)
		fd = life_sim_ops->open(env, path, flags, mode);
	gx_assert(fd < LIFE_FDS_MAX);
	if (fd >= 0) {
		w.is_store[fd] = strncmp(path, "/md/store", strlen("/md/store")) == 0;
		w.sync_failed[fd] = false;
	}
	return fd;
}

/* A write may get half way. */
static ssize_t life_pwritev(struct gx_env *env, int fd, const struct iovec *iov, int count,
			    uint64_t offset)
{
	int r;

	if (life_last_call()) {
		struct iovec part = iov[0];

		part.iov_len = (size_t)gx_sim_random_below(w.sim, part.iov_len + 1);
		if (part.iov_len > 0)
			GX_IGNORE((int)life_sim_ops->pwritev(env, fd, &part, 1, offset));
		life_die();
	}
	r = w.store_fails && w.is_store[fd] ? -EIO : life_fault(GX_FAULT_WRITE);
	return r < 0 ? r : life_sim_ops->pwritev(env, fd, iov, count, offset);
}

static void life_arm(struct gx_env *env)
{
	static struct gx_env_ops ops;

	life_sim_ops = env->ops == &ops ? life_sim_ops : env->ops;
	ops = *life_sim_ops;
	ops.open = life_open;
	ops.fdatasync = life_fdatasync;
	ops.fsync = life_fsync;
	ops.ftruncate = life_ftruncate;
	ops.fallocate = life_fallocate;
	ops.rename = life_rename;
	ops.unlink = life_unlink;
	ops.sync_dir = life_sync_dir;
	ops.writev = life_writev;
	ops.pwritev = life_pwritev;
	env->ops = &ops;
}

/* -- the tree as text -------------------------------------------------------------------------- */

struct life_walk {
	struct md_kv *kv;
	uint64_t dirs[LIFE_DIRS_MAX];
	char paths[LIFE_DIRS_MAX][64];
	unsigned count, at;
	size_t used;
};

GX_PRINTF(2, 3) static void life_print(struct life_walk *walk, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	walk->used +=
		(size_t)vsnprintf(w.tree + walk->used, sizeof(w.tree) - walk->used, fmt, args);
	va_end(args);
	gx_assert(walk->used < sizeof(w.tree));
}

static int life_print_xattr(void *arg, const void *key, size_t key_bytes, const void *value,
			    size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	life_print(arg, " %.*s=%.*s", (int)key_bytes - 9, (const char *)key + 9, (int)value_bytes,
		   (const char *)value);
	return 0;
}

static int life_print_entry(void *arg, const void *key, size_t key_bytes, const void *value,
			    size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	struct life_walk *walk = arg;
	struct md_inode inode;
	struct md_key other, end;
	const void *bytes;
	char path[64];
	uint64_t ino;
	uint32_t type;
	size_t count;

	ck_assert_int_eq(md_entry_decode(value, value_bytes, &ino, &type), 0);
	snprintf(path, sizeof(path), "%.31s/%.*s", walk->paths[walk->at], (int)key_bytes - 9,
		 (const char *)key + 9);
	md_key_inode(&other, ino);
	ck_assert_msg(md_kv_get(walk->kv, other.bytes, other.count, &bytes, &count, NULL) == 0 &&
			      md_inode_decode(bytes, count, &inode) == 0,
		      "%s leads nowhere", path);
	life_print(walk, "%s %o %u %llu", path, inode.mode, inode.nlink,
		   (unsigned long long)inode.size);
	md_key_content(&other, ino);
	if (md_kv_get(walk->kv, other.bytes, other.count, &bytes, &count, NULL) == 0)
		life_print(walk, " \"%.*s\"", (int)count, (const char *)bytes);
	md_key_xattr(&other, ino, "", 0);
	md_key_end(&other, &end);
	ck_assert_int_eq(md_kv_scan(walk->kv, other.bytes, other.count, end.bytes, end.count,
				    life_print_xattr, walk),
			 0);
	life_print(walk, "\n");
	if (S_ISDIR(inode.mode)) {
		ck_assert_uint_lt(walk->count, LIFE_DIRS_MAX);
		memcpy(walk->paths[walk->count], path, sizeof(path));
		walk->dirs[walk->count++] = ino;
	}
	return 0;
}

static void life_write_tree(struct md_state *state)
{
	static struct life_walk walk;
	struct md_key from, end;

	walk = (struct life_walk){.kv = state->kv, .dirs = {MD_ROOT_INO}, .count = 1};
	w.tree[0] = '\0';
	if (w.skip_tree)
		return;
	for (; walk.at < walk.count; walk.at++) {
		md_key_entry(&from, walk.dirs[walk.at], "", 0);
		md_key_end(&from, &end);
		ck_assert_int_eq(md_kv_scan(walk.kv, from.bytes, from.count, end.bytes, end.count,
					    life_print_entry, &walk),
				 0);
	}
}

static int life_left_session(void *arg GX_UNUSED, uint64_t session GX_UNUSED, const char *identity)
{
	life_wrong("a session is left: ", identity);
	return 0;
}

/* What must be gone when every session has run out. */
static void life_check_leftovers(struct md_state *state)
{
	static char before[LIFE_TEXT_MAX];
	uint64_t from = 0, ino;

	memcpy(before, w.tree, sizeof(before));
	life_write_tree(state);
	if (strcmp(before, w.tree) != 0)
		life_wrong("", "the tree changed although nobody did");
	if (md_state_orphans(state, &from, &ino, 1) > 0)
		life_wrong("", "an orphan is left");
	ck_assert_int_eq(md_state_each_session(state, life_left_session, NULL), 0);
	ck_assert_int_ge(md_check(state, life_wrong, "at the end: "), 0);
}

/* -- metad ------------------------------------------------------------------------------------- */

struct life {
	struct gx_loop *loop;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct md_server *server;
	struct gx_timer stop;
};

static void life_fatal(void *arg GX_UNUSED, int err)
{
	w.fatals++;
	w.fatal_err = err;
	if (w.fault)
		w.fault->nth = 0; /* the next life has a new disk */
	if (w.fatal_power)
		gx_sim_power_cut(w.host);
	else
		gx_sim_kill(w.metad);
}

static void life_stop(struct gx_timer *timer)
{
	gx_loop_stop(GX_CONTAINER_OF(timer, struct life, stop)->loop);
}

static int life_begin(struct gx_env *env, struct life *life)
{
	struct rpc_key key = {.kind = RPC_IDENTITY_USER, .identity = LIFE_IDENTITY};
	struct md_server_options options = w.options;
	struct rpc_endpoint endpoint;
	int r;

	memcpy(key.secret, life_key, sizeof(life_key));
	ck_assert_int_eq(gx_loop_new(env, &life->loop), 0);
	ck_assert_int_eq(rpc_keytab_new(&life->keys), 0);
	ck_assert_int_eq(rpc_keytab_put(life->keys, &key, false), 0);
	ck_assert_int_eq(md_users_load(env, NULL, NULL, &options.users), 0);
	life->auth = (struct rpc_auth){.env = env, .keys = life->keys};
	options.env = env;
	options.loop = life->loop;
	options.auth = &life->auth;
	options.dir = "/md";
	options.memory_store = true;
	options.fatal_fn = life_fatal;
	r = md_server_new(&options, &life->server);
	if (r < 0)
		return r;
	ck_assert_int_eq(rpc_endpoint_parse(env, LIFE_ADDRESS, false, &endpoint, NULL), 0);
	return md_server_listen(life->server, &endpoint, NULL);
}

static void life_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct life life = {0};

	life_arm(env);
	w.start_err = life_begin(env, &life);
	if (w.start_err == 0 && w.looking) {
		life_write_tree(md_server_state(life.server));
		ck_assert_int_ge(md_check(md_server_state(life.server), life_wrong, "at once: "),
				 0);
		ck_assert_int_eq(gx_timer_start(life.loop, &life.stop,
						gx_env_now_ns(env) + LIFE_LOOK_NS, life_stop),
				 0);
	}
	if (w.start_err == 0)
		ck_assert_int_eq(gx_loop_run(life.loop), 0);
	if (w.start_err == 0 && w.looking)
		life_check_leftovers(md_server_state(life.server));
	md_server_free(life.server);
	gx_timer_stop(&life.stop);
	gx_loop_free(life.loop);
	rpc_keytab_free(life.keys);
}

static void world_metad(void)
{
	w.lives++;
	memset(w.sync_failed, 0, sizeof(w.sync_failed));
	ck_assert_int_eq(gx_sim_spawn(w.host, "metad", life_main, NULL, &w.metad), 0);
}

/* -- the world --------------------------------------------------------------------------------- */

static void life_no_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED, const char *line)
{
	if (getenv("SIM_LOG"))
		fprintf(stderr, "%s\n", line);
}

static void life_mkdir(struct gx_env *env, void *arg GX_UNUSED)
{
	ck_assert_int_eq(gx_env_mkdir(env, "/md", 0700), 0);
	ck_assert_int_eq(gx_env_sync_dir(env, "/"), 0);
}

/* Afterwards w.options may be changed, and the first metad started. */
static void world_new(uint64_t seed)
{
	struct gx_sim_options options = GX_SIM_OPTIONS_INIT;
	struct gx_sim_proc *proc;

	memset(&w, 0, sizeof(w));
	gx_log_to_callback(life_no_log, NULL);
	options.seed = seed;
	w.options = (struct md_server_options)MD_SERVER_OPTIONS_INIT;
	w.options.session_timeout_ns = 6 * GX_NSEC_PER_SEC;
	w.options.recovery_ns = 4 * GX_NSEC_PER_SEC;
	w.options.cache_bytes = 1024 * 1024;
	w.options.leases_max = 1000;
	w.options.layer_bytes = 64 * 1024;
	w.options.overlay_bytes_max = 1024 * 1024;
	w.options.segment_bytes = 16384;
	ck_assert_int_eq(gx_sim_new(&options, &w.sim), 0);
	ck_assert_int_eq(gx_sim_host_new(w.sim, "metad", &w.host), 0);
	ck_assert_int_eq(gx_sim_host_new(w.sim, "client", &w.client_host), 0);
	ck_assert_int_eq(gx_sim_spawn(w.host, "mkdir", life_mkdir, NULL, &proc), 0);
	ck_assert_int_eq(gx_sim_run(w.sim, NULL), 0);
}

static void world_client(void (*fn)(struct gx_env *env, void *arg), void *arg)
{
	ck_assert_int_eq(gx_sim_spawn(w.client_host, "client", fn, arg, &w.client), 0);
}

/* Runs metad, life after life, until the client has said w.client_done and metad has ended. */
static void world_run(void)
{
	for (;;) {
		ck_assert_int_eq(gx_sim_run(w.sim, w.metad), 0);
		if (w.client_done)
			return;
		world_metad();
		/* A peer without power says nothing; keep-alive probes to its next life do. */
		if (w.crash == LIFE_POWER || w.fatal_power)
			gx_sim_reset_links(w.host, w.client_host);
	}
}

/* The last word of a client: it takes metad with it. */
static void world_client_done(void)
{
	w.counting = false;
	w.client_done = true;
	gx_sim_kill(w.metad);
}

/* The last life: what is left is in w.tree, what is wrong with it in w.wrong. */
static void world_look(void)
{
	unsigned crashes;

	w.looking = true;
	w.counting = true;
	w.fault = NULL;
	w.options.session_timeout_ns = LIFE_LOOK_NS / 4;
	w.options.recovery_ns = LIFE_LOOK_NS / 8;
	do {
		crashes = w.crashes;
		world_metad();
		ck_assert_int_eq(gx_sim_run(w.sim, w.metad), 0);
	} while (w.crashes > crashes);
	w.looking = false;
	ck_assert_msg(w.start_err == 0, "metad does not start: %s", gx_strerror(w.start_err));
}

static void world_free(void)
{
	gx_sim_free(w.sim);
	w.sim = NULL;
}

/* One session; the caller frees it, or dies. */
static struct gfc *world_connect(struct gx_env *env, size_t cache_bytes)
{
	struct gfc_options options = {.env = env,
				      .identity = LIFE_IDENTITY,
				      .key = life_key,
				      .program = "test",
				      .timeout_ns = 60 * GX_NSEC_PER_SEC,
				      .connections_max = 2,
				      .cache_bytes = cache_bytes};
	struct gfc *gfc;

	ck_assert_int_eq(rpc_endpoint_parse(env, LIFE_ADDRESS, false, &options.metad, NULL), 0);
	ck_assert_msg(gfc_new(&options, &gfc) == 0, "connect: %s", gfc_error());
	return gfc;
}

#endif
