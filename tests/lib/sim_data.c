#include "tests/lib/sim_data.h"
#include "client/fs/gfs_impl.h"
#include "common/gx_loop.h"
#include "common/gx_sum.h"
#include "fsd/fsd_object.h"
#include "fsd/fsd_server.h"
#include "metad/md_layout.h"
#include "metad/md_state_impl.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

#define RESERVED_BYTES (16u * 1024)
#define LOOK_NS (50 * GX_NSEC_PER_MSEC) /* at the wish to end */
#define DRAIN_NS (5 * GX_NSEC_PER_SEC)

static const char *const spools[SIM_DATA_SPOOLS] = {"/spool1", "/spool2"};

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "sim_data: %s: %s\n", what, gx_strerror(r));
	abort();
}

static void wrong(struct sim_data *data, const char *fmt, ...) GX_PRINTF(2, 3);
static void wrong(struct sim_data *data, const char *fmt, ...)
{
	va_list args;

	if (data->wrong[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(data->wrong, sizeof(data->wrong), fmt, args);
	va_end(args);
}

/* -- fsd --------------------------------------------------------------------------------------- */

struct life {
	struct sim_data_fsd *fsd;
	struct gx_env *env;
	struct gx_loop *loop;
	struct fsd_server *server;
	struct rpc_key key;
	struct gx_timer look;
};

static void on_fatal(void *arg, int err GX_UNUSED)
{
	struct sim_data_fsd *fsd = arg;

	fsd->fatals++;
}

static void on_drained(void *arg)
{
	struct life *life = arg;

	gx_loop_stop(life->loop);
}

static void on_look(struct gx_timer *timer)
{
	struct life *life = GX_CONTAINER_OF(timer, struct life, look);
	int64_t now = gx_env_now_ns(life->env);

	if (life->fsd->drain)
		fsd_server_drain(life->server, now + DRAIN_NS, on_drained, life);
	else
		must(gx_timer_start(life->loop, &life->look, now + LOOK_NS, on_look), "timer");
}

static void endpoint_of(const struct sim_data_fsd *fsd, struct rpc_endpoint *ret_endpoint)
{
	*ret_endpoint = (struct rpc_endpoint){.addr = {.kind = GX_ADDR_MEM}};
	must(gx_format(ret_endpoint->addr.mem_name, sizeof(ret_endpoint->addr.mem_name), "%s:7001",
		       fsd->name),
	     "address");
}

static int make_dirs(struct gx_env *env)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < SIM_DATA_SPOOLS; i++) {
		r = gx_env_mkdir(env, spools[i], 0700);
		r = r == -EEXIST ? 0 : r;
	}
	return r < 0 ? r : gx_env_sync_dir(env, "/");
}

static int life_begin(struct life *life)
{
	struct fsd_server_options options = FSD_SERVER_OPTIONS_INIT;
	struct sim_data_fsd *fsd = life->fsd;
	struct rpc_endpoint endpoint, bound;
	int r = make_dirs(life->env);

	if (r == 0)
		r = gx_loop_new(life->env, &life->loop);
	if (r < 0)
		return r;
	sim_meta_node_key(fsd->name, &life->key);
	options.env = life->env;
	options.loop = life->loop;
	options.name = fsd->name;
	options.host = fsd->label;
	options.spools = spools;
	options.spool_count = SIM_DATA_SPOOLS;
	options.make_spools = true;
	options.key = &life->key;
	sim_meta_endpoint(&options.metad);
	options.boot = fsd->boot;
	options.reserved_bytes = RESERVED_BYTES;
	options.threads_max = 64;
	options.jobs_max = 2;
	options.sync_after_ns = fsd->data->sync_after_ns;
	options.fatal_fn = on_fatal;
	options.fatal_arg = fsd;
	r = fsd_server_new(&options, &life->server);
	endpoint_of(fsd, &endpoint);
	if (r == 0)
		r = fsd_server_listen(life->server, &endpoint, &bound);
	return r < 0 ? r : fsd_server_start(life->server);
}

static void fsd_main(struct gx_env *env, void *arg)
{
	struct life life = {.fsd = arg, .env = env};
	int r;

	life.fsd->err = 1;
	life.fsd->drain = false;
	r = life_begin(&life);
	if (r == 0)
		r = gx_timer_start(life.loop, &life.look, gx_env_now_ns(env) + LOOK_NS, on_look);
	if (r == 0)
		r = gx_loop_run(life.loop);
	fsd_server_free(life.server);
	if (life.loop != NULL)
		gx_timer_stop(&life.look);
	gx_loop_free(life.loop);
	life.fsd->err = r;
}

void sim_data_fsd_up(struct sim_data_fsd *fsd)
{
	if (fsd->proc != NULL && !gx_sim_proc_ended(fsd->proc))
		return;
	fsd->lives++;
	must(gx_sim_spawn(fsd->host, fsd->name, fsd_main, fsd, &fsd->proc), "spawn");
}

void sim_data_fsd_cut(struct sim_data_fsd *fsd)
{
	fsd->boot++;
	gx_sim_power_cut(fsd->host);
}

/* -- grid -------------------------------------------------------------------------------------- */

void sim_data_init(struct sim_data *data, uint64_t seed)
{
	memset(data, 0, sizeof(*data));
	sim_meta_init(&data->meta, seed);
	data->meta.nodes = SIM_DATA_FSDS;
	data->sync_after_ns = 2 * GX_NSEC_PER_SEC;
	data->data_timeout_ns = 30 * GX_NSEC_PER_SEC;
	data->meta_timeout_ns = 100 * GX_NSEC_PER_SEC;
	for (unsigned i = 0; i < SIM_DATA_FSDS; i++) {
		struct sim_data_fsd *fsd = &data->fsds[i];

		fsd->data = data;
		fsd->number = i;
		fsd->boot = 1000 * (i + 1);
		snprintf(fsd->name, sizeof(fsd->name), "fsd%u", i + 1);
		snprintf(fsd->label, sizeof(fsd->label), "host%u", i + 1);
	}
}

void sim_data_up(struct sim_data *data)
{
	sim_meta_up(&data->meta);
	for (unsigned i = 0; i < SIM_DATA_FSDS; i++)
		sim_data_fsd_up(&data->fsds[i]);
}

void sim_data_start(struct sim_data *data)
{
	sim_meta_start(&data->meta);
	for (unsigned i = 0; i < SIM_DATA_FSDS; i++)
		must(gx_sim_host_new(data->meta.sim, data->fsds[i].name, &data->fsds[i].host),
		     "host");
	sim_data_up(data);
}

void sim_data_free(struct sim_data *data)
{
	sim_meta_free(&data->meta);
}

int sim_data_connect(const struct sim_data *data, struct gx_env *env,
		     const struct gfd_options *options, size_t cache_bytes, struct gfs **ret_fs)
{
	struct gfc_options gfc_options;

	sim_meta_client_options(env, cache_bytes, data->meta_timeout_ns, &gfc_options);
	return gfs_connect_with(&gfc_options, options, ret_fs);
}

/* -- what metad has ---------------------------------------------------------------------------- */

static void add_copy(struct sim_data_fsd *fsd, const struct md_inode *inode,
		     const PbMeta__LayoutRecord *layout, const PbMeta__CopyRecord *record)
{
	gx_assert(fsd->copy_count < SIM_DATA_OBJECTS_MAX);
	fsd->copies[fsd->copy_count++] = (struct sim_data_copy){
		.ino = inode->ino,
		.generation = record->generation,
		.base = md_copy_base(layout, record),
		.size = inode->size,
		.current = md_copy_current(inode, layout, record),
		.cache = record->flags & MD_COPY_CACHE,
		.bad = record->flags & MD_COPY_BAD,
	};
}

static int look_at_copy(struct sim_data_fsd *fsd, struct md_ctx *ctx, uint64_t ino)
{
	const PbMeta__CopyRecord *record;
	PbMeta__LayoutRecord *layout;
	struct md_inode inode;
	int r = md_get_inode(ctx, ino, &inode);

	if (r == 0)
		r = md_layout_get(ctx, ino, &layout);
	if (r < 0)
		return r;
	record = layout != NULL ? md_layout_find(layout, fsd->name) : NULL;
	if (record == NULL)
		return -ENOENT;
	add_copy(fsd, &inode, layout, record);
	if (layout->writing != 0)
		wrong(fsd->data, "inode %llu is still being written",
		      (unsigned long long)inode.ino);
	return 0;
}

static int look_at_node(struct sim_data_fsd *fsd, struct md_ctx *ctx)
{
	struct md_trash at = {0}, trash[32];
	uint64_t first = 0, inos[32];
	size_t count;
	int r;

	do {
		r = md_layout_each_copy(ctx, fsd->name, first, GX_COUNT_OF(inos), inos, &count,
					&first);
		for (size_t i = 0; r == 0 && i < count; i++)
			r = look_at_copy(fsd, ctx, inos[i]);
	} while (r == 0 && first != 0);
	if (r < 0)
		return r;
	do {
		r = md_layout_each_trash(ctx, fsd->name, &at, GX_COUNT_OF(trash), trash, &count,
					 &at);
		fsd->trash += (unsigned)count;
	} while (r == 0 && at.ino != 0);
	return r;
}

static void look_at_state(void *arg, struct md_state *state)
{
	struct sim_data *data = arg;
	struct rpc_arena arena;
	struct md_ctx ctx = {.state = state, .arena = &arena};

	rpc_arena_init(&arena, 64u * 1024 * 1024);
	for (unsigned i = 0; i < SIM_DATA_FSDS; i++) {
		int r = look_at_node(&data->fsds[i], &ctx);

		if (r < 0)
			wrong(data, "what metad has of %s: %s", data->fsds[i].name, gx_strerror(r));
	}
	rpc_arena_clear(&arena);
}

/* -- what nodes have --------------------------------------------------------------------------- */

struct listing {
	struct sim_data_fsd *fsd;
	struct fsd_spool *spool;
	const char *dir;
};

static int sum_object(struct fsd_object *object, struct sim_data_object *item)
{
	unsigned char *bytes = malloc(item->bytes + 1);
	uint64_t got = 0;
	ssize_t n;

	if (bytes == NULL)
		return -ENOMEM;
	do {
		n = fsd_object_read(object, bytes + got, item->bytes + 1 - got, got, NULL);
		got += n > 0 ? (uint64_t)n : 0;
	} while (n > 0);
	item->sum = gx_sum64(bytes, got);
	free(bytes);
	return (int)GX_MIN(n, 0);
}

static int list_object(void *arg, const struct fsd_object_id *id, uint64_t bytes)
{
	struct listing *listing = arg;
	struct sim_data_fsd *fsd = listing->fsd;
	struct sim_data_object *item = &fsd->objects[fsd->object_count];
	struct fsd_object *object;

	gx_assert(fsd->object_count < SIM_DATA_OBJECTS_MAX);
	*item = (struct sim_data_object){id->ino, id->generation, bytes, 0, 0};
	item->err = fsd_object_open(listing->spool, id, &object);
	if (item->err == 0) {
		item->err = sum_object(object, item);
		fsd_object_close(object);
	}
	fsd->object_count++;
	return 0;
}

static void list_main(struct gx_env *env, void *arg)
{
	struct sim_data_fsd *fsd = arg;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < SIM_DATA_SPOOLS; i++) {
		struct listing listing = {.fsd = fsd};

		r = fsd_spool_open(env, spools[i], false, &listing.spool);
		if (r < 0)
			break;
		r = fsd_spool_each(listing.spool, list_object, &listing);
		fsd_spool_close(listing.spool);
	}
	if (r < 0)
		wrong(fsd->data, "the spools of %s: %s", fsd->name, gx_strerror(r));
}

static struct sim_data_object *find_object(struct sim_data_fsd *fsd,
					   const struct sim_data_copy *copy)
{
	for (unsigned i = 0; i < fsd->object_count; i++) {
		struct sim_data_object *o = &fsd->objects[i];

		if (o->ino == copy->ino && (o->generation == copy->generation ||
					    (copy->base != 0 && o->generation >= copy->base &&
					     o->generation <= copy->generation)))
			return o;
	}
	return NULL;
}

static bool is_flipped(const struct sim_data *data, uint64_t ino)
{
	for (unsigned i = 0; i < data->flip_count; i++)
		if (data->flipped[i] == ino)
			return true;
	return false;
}

static void check_copy(struct sim_data_fsd *fsd, struct sim_data_copy *copy)
{
	struct sim_data *data = fsd->data;
	const struct sim_data_object *object = find_object(fsd, copy), *other;

	if (!copy->current || copy->bad)
		return;
	if (object != NULL && object->err == -EBADMSG && is_flipped(data, copy->ino))
		return;
	if (object == NULL || object->err < 0) {
		wrong(data, "%s does not have inode %llu, generation %llu: %s", fsd->name,
		      (unsigned long long)copy->ino, (unsigned long long)copy->generation,
		      object != NULL ? gx_strerror(object->err) : "no object");
		return;
	}
	/* A power cut may have taken what nobody had synced. */
	if (object->bytes != copy->size && !data->cut)
		wrong(data, "%s has %llu bytes of inode %llu, which is %llu long", fsd->name,
		      (unsigned long long)object->bytes, (unsigned long long)copy->ino,
		      (unsigned long long)copy->size);
	for (unsigned n = 0; n < SIM_DATA_FSDS; n++) {
		for (unsigned i = 0; i < data->fsds[n].copy_count; i++) {
			const struct sim_data_copy *c = &data->fsds[n].copies[i];

			if (c->ino != copy->ino || !c->current || c->bad)
				continue;
			other = find_object(&data->fsds[n], c);
			if (other != NULL && other->err == 0 && other->sum != object->sum)
				wrong(data,
				      "copies of inode %llu differ: %s %llu.%llu %llu, %s "
				      "%llu.%llu %llu",
				      (unsigned long long)copy->ino, fsd->name,
				      (unsigned long long)object->generation,
				      (unsigned long long)object->bytes,
				      (unsigned long long)object->sum, data->fsds[n].name,
				      (unsigned long long)other->generation,
				      (unsigned long long)other->bytes,
				      (unsigned long long)other->sum);
		}
	}
}

static void check_object(struct sim_data_fsd *fsd, const struct sim_data_object *object)
{
	for (unsigned i = 0; i < fsd->copy_count; i++)
		if (find_object(fsd, &fsd->copies[i]) == object)
			return;
	wrong(fsd->data, "nobody owns inode %llu, generation %llu of %s",
	      (unsigned long long)object->ino, (unsigned long long)object->generation, fsd->name);
}

static void run(struct sim_data *data, struct gx_sim_host *host, const char *name,
		void (*fn)(struct gx_env *, void *), void *arg)
{
	struct gx_sim_proc *proc;
	int r;

	must(gx_sim_spawn(host, name, fn, arg, &proc), "spawn");
	r = gx_sim_run(data->meta.sim, proc);
	if (r < 0)
		wrong(data, "%s: %s", name, gx_strerror(r));
}

void sim_data_check(struct sim_data *data)
{
	data->wrong[0] = '\0';
	for (unsigned n = 0; n < SIM_DATA_FSDS; n++) {
		gx_sim_kill(data->fsds[n].proc);
		data->fsds[n].object_count = data->fsds[n].copy_count = data->fsds[n].trash = 0;
	}
	data->meta.look_fn = look_at_state;
	data->meta.look_arg = data;
	sim_meta_check(&data->meta);
	if (data->meta.wrong[0] != '\0')
		wrong(data, "the state: %s", data->meta.wrong);
	for (unsigned n = 0; n < SIM_DATA_FSDS; n++)
		run(data, data->fsds[n].host, "list", list_main, &data->fsds[n]);
	for (unsigned n = 0; n < SIM_DATA_FSDS; n++) {
		struct sim_data_fsd *fsd = &data->fsds[n];

		for (unsigned i = 0; i < fsd->copy_count; i++)
			check_copy(fsd, &fsd->copies[i]);
		for (unsigned i = 0; i < fsd->object_count; i++)
			check_object(fsd, &fsd->objects[i]);
		if (fsd->trash > 0)
			wrong(data, "%s is to delete %u objects, and does not", fsd->name,
			      fsd->trash);
	}
}

/* -- picking a file ---------------------------------------------------------------------------- */

#define DEPTH 3u /* objects/xx/yy */

struct picking {
	struct sim_data_fsd *fsd;
	struct gx_env *env;
	uint64_t ino;
	unsigned seen;
};

struct picking_dir {
	struct picking *picking;
	char path[96];
	unsigned depth;
};

static int pick_entry(void *arg, const char *name)
{
	const struct picking_dir *dir = arg;
	struct picking *picking = dir->picking;
	struct picking_dir sub = {picking, "", dir->depth + 1};
	struct sim_data *data = picking->fsd->data;
	char wanted[32];

	snprintf(sub.path, sizeof(sub.path), "%.40s/%.50s", dir->path, name);
	if (dir->depth < DEPTH)
		return gx_env_list_dir(picking->env, sub.path, pick_entry, &sub);
	snprintf(wanted, sizeof(wanted), "%016llx.", (unsigned long long)picking->ino);
	if (strlen(name) != 33 || (picking->ino != 0 && strncmp(name, wanted, 17) != 0))
		return 0;
	if (gx_sim_random_below(data->meta.sim, ++picking->seen) == 0)
		GX_IGNORE(gx_strcpy(data->found, sizeof(data->found), sub.path));
	return 0;
}

void sim_data_pick(struct sim_data_fsd *fsd, struct gx_env *env, uint64_t ino)
{
	struct picking picking = {.fsd = fsd, .env = env, .ino = ino};

	fsd->data->found[0] = '\0';
	for (unsigned i = 0; i < SIM_DATA_SPOOLS; i++) {
		struct picking_dir dir = {&picking, "", 1};

		snprintf(dir.path, sizeof(dir.path), "%s/objects", spools[i]);
		GX_IGNORE(gx_env_list_dir(env, dir.path, pick_entry, &dir));
	}
}

/* -- writing back ------------------------------------------------------------------------------ */

struct flushing {
	struct gx_env *env;
	char path[96];
	unsigned depth;
};

static int flush_entry(void *arg, const char *name)
{
	const struct flushing *dir = arg;
	struct flushing sub = {dir->env, "", dir->depth + 1};
	int fd;

	snprintf(sub.path, sizeof(sub.path), "%.40s/%.50s", dir->path, name);
	if (dir->depth < DEPTH)
		GX_IGNORE(gx_env_list_dir(dir->env, sub.path, flush_entry, &sub));
	if (dir->depth < DEPTH)
		return gx_env_sync_dir(dir->env, sub.path);
	fd = gx_env_open(dir->env, sub.path, O_RDWR, 0);
	if (fd < 0)
		return 0; /* just removed */
	GX_IGNORE(gx_env_fdatasync(dir->env, fd));
	gx_env_close(dir->env, fd);
	return 0;
}

static void flush_main(struct gx_env *env, void *arg GX_UNUSED)
{
	for (unsigned i = 0; i < SIM_DATA_SPOOLS; i++) {
		struct flushing dir = {env, "", 1};

		snprintf(dir.path, sizeof(dir.path), "%s/objects", spools[i]);
		GX_IGNORE(gx_env_list_dir(env, dir.path, flush_entry, &dir));
	}
}

void sim_data_write_back(struct sim_data *data)
{
	for (unsigned n = 0; n < SIM_DATA_FSDS; n++)
		run(data, data->fsds[n].host, "write back", flush_main, NULL);
}
