/*
 * Objects under kill -9 and power cuts at every single disk operation, and with steps of the
 * protocol left out.
 *
 * A model beside the simulation remembers every state since the last sync. After a kill each byte
 * must be that of the last state (or of the change that was under way), after a power cut that of
 * any of them; never -EBADMSG, since no byte was flipped. What was synced is one state, so it must
 * be there exactly. The last life syncs, settles and then finds a bit that is flipped, so blocks do
 * become settled.
 *
 * The engine is compiled into this program, with regions of four blocks, so that a small file has
 * several, and with GX_BREAKABLE: for each step left out (fsd_broken.h) some crash must be
 * noticed, else this test would prove nothing.
 *
 * SIM_SEEDS=n runs more seeds; the number of a failed test (name:seed) is its seed, SIM_SEED=<seed>
 * runs that one alone.
 */
#define GX_BREAKABLE
#define FSD_REGION_BYTES 16384u
#include "fsd/fsd_object.c"
#include "fsd/fsd_object_io.c"
#include "fsd/fsd_object_recover.c"
#include "fsd/fsd_spool.c"
#include "fsd/fsd_sum.c"

#include "common/gx_sim.h"
#include <check.h>
#include <stdio.h>

#define CONTENT_MAX (6u * FSD_REGION_BYTES)
#define VERSIONS_MAX 80u
#define OPS_PER_LIFE 14u
#define INO 0x1234u
#define DIR "/spool"
#define SECTOR 512u

unsigned gx_broken;

enum crash { NONE, KILL, POWER };

struct version {
	uint64_t bytes;
	uint8_t content[CONTENT_MAX]; /* zeros behind the end */
};

struct model {
	struct gx_sim *sim;
	struct gx_sim_host *host;
	struct gx_sim_proc *proc;
	uint64_t rng; /* what is done; the simulation's own decides how it goes */

	/* All states since the last sync; the last may be under way. */
	struct version versions[VERSIONS_MAX];
	size_t count;
	bool under_way;
	uint64_t generation, next_generation; /* the second one while an advance is under way */
	bool created;                         /* the call has returned */
	bool promised;                        /* synced once */
	bool removing, removed;

	enum crash crash_mode, crashed;
	uint64_t crash_at, calls; /* the call to die in; 0: none */
	unsigned lives, ops;
	bool last_life;
	bool only_advance; /* a short script instead of random work */
	char wrong[200];
};
static struct model m;
static const struct gx_env_ops *sim_ops;
static uint8_t read_buf[CONTENT_MAX + 1];

/* The first thing that is wrong; false for convenience. */
static bool wrong(const char *what, int64_t a, int64_t b)
{
	if (m.wrong[0] == '\0')
		snprintf(m.wrong, sizeof(m.wrong), "%s (%lld, %lld) in life %u, op %u, call %llu",
			 what, (long long)a, (long long)b, m.lives, m.ops,
			 (unsigned long long)m.crash_at);
	return false;
}

static uint64_t draw(uint64_t bound)
{
	uint64_t z = m.rng += 0x9E3779B97F4A7C15u;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return (z ^ (z >> 31)) % bound;
}

/* -- dying in the n-th call ------------------------------------------------------------------ */

static void die(void)
{
	/* A power cut that nobody has looked at yet stays one. */
	m.crashed = GX_MAX(m.crashed, m.crash_mode);
	if (m.crash_mode == POWER)
		gx_sim_power_cut(m.host);
	else
		gx_sim_kill(m.proc);
}

static bool last_call(void)
{
	return ++m.calls == m.crash_at;
}

#define CRASHING(op, params, args)                                                                 \
	static int crash_##op params                                                               \
	{                                                                                          \
		if (last_call())                                                                   \
			die();                                                                     \
		return sim_ops->op args;                                                           \
	}
CRASHING(open, (struct gx_env * e, const char *p, int f, mode_t mode), (e, p, f, mode))
CRASHING(fdatasync, (struct gx_env * e, int fd), (e, fd))
CRASHING(fsync, (struct gx_env * e, int fd), (e, fd))
CRASHING(ftruncate, (struct gx_env * e, int fd, uint64_t n), (e, fd, n))
CRASHING(fallocate, (struct gx_env * e, int fd, int mode, uint64_t o, uint64_t n),
	 (e, fd, mode, o, n))
CRASHING(rename, (struct gx_env * e, const char *a, const char *b), (e, a, b))
CRASHING(unlink, (struct gx_env * e, const char *p), (e, p))
CRASHING(mkdir, (struct gx_env * e, const char *p, mode_t mode), (e, p, mode))
CRASHING(sync_dir, (struct gx_env * e, const char *p), (e, p))
CRASHING(close, (struct gx_env * e, int fd), (e, fd))

/* A write may get half way: up to a sector. Neither a disk nor a dying process ends inside of one.
 */
static ssize_t crash_pwritev(struct gx_env *e, int fd, const struct iovec *iov, int iov_count,
			     uint64_t offset)
{
	if (last_call()) {
		struct iovec part = iov[0];

		uint64_t end = offset + gx_sim_random_below(m.sim, part.iov_len + 1);

		end = end / SECTOR * SECTOR;
		part.iov_len = end > offset ? (size_t)(end - offset) : 0;
		if (part.iov_len > 0 && sim_ops->pwritev(e, fd, &part, 1, offset) >= 0)
			die();
		die();
	}
	return sim_ops->pwritev(e, fd, iov, iov_count, offset);
}

static void arm(struct gx_env *env)
{
	static struct gx_env_ops ops;

	sim_ops = env->ops == &ops ? sim_ops : env->ops;
	ops = *sim_ops;
	ops.open = crash_open;
	ops.close = crash_close;
	ops.pwritev = crash_pwritev;
	ops.fdatasync = crash_fdatasync;
	ops.fsync = crash_fsync;
	ops.ftruncate = crash_ftruncate;
	ops.fallocate = crash_fallocate;
	ops.rename = crash_rename;
	ops.unlink = crash_unlink;
	ops.mkdir = crash_mkdir;
	ops.sync_dir = crash_sync_dir;
	env->ops = &ops;
}

/* -- the model -----------------------------------------------------------------------------------
 */

static struct version *current(void)
{
	return &m.versions[m.count - 1];
}

/* A copy of the current state, to be changed; it is under way until done(). */
static struct version *begin(void)
{
	ck_assert_uint_lt(m.count, VERSIONS_MAX);
	m.versions[m.count] = m.versions[m.count - 1];
	m.count++;
	m.under_way = true;
	return current();
}

static bool done(const char *what, int r)
{
	m.under_way = false;
	return r == 0 ? true : wrong(what, r, 0);
}

static void synced(void)
{
	m.versions[0] = *current();
	m.count = 1;
	m.promised = true;
}

/* -- checking
 * -------------------------------------------------------------------------------------- */

static bool one_of(size_t from, uint64_t at, uint8_t byte)
{
	for (size_t i = m.count; i-- > from;)
		if (m.versions[i].content[at] == byte)
			return true;
	return false;
}

/* The object reads as one of the versions from `from` on, byte by byte; it is then the only one. */
static bool check_content(struct fsd_object *object, size_t from)
{
	uint64_t size_min = UINT64_MAX;
	uint64_t size_max = 0;
	uint64_t size = fsd_object_size(object);
	ssize_t n;

	for (size_t i = from; i < m.count; i++) {
		size_min = GX_MIN(size_min, m.versions[i].bytes);
		size_max = GX_MAX(size_max, m.versions[i].bytes);
	}
	if (size < size_min || size > size_max)
		return wrong("size", (int64_t)size, (int64_t)size_min);
	memset(read_buf, 0, sizeof(read_buf));
	n = fsd_object_read(object, read_buf, sizeof(read_buf), 0, NULL);
	if (n != (ssize_t)size)
		return wrong("read", n, (int64_t)size);
	for (uint64_t i = 0; i < size; i++)
		if (!one_of(from, i, read_buf[i]))
			return wrong("byte", (int64_t)i, read_buf[i]);
	return true;
}

struct listing {
	unsigned count;
	struct fsd_object_id id;
};

static int list_one(void *arg, const struct fsd_object_id *id, uint64_t bytes GX_UNUSED)
{
	struct listing *listing = arg;

	listing->count++;
	listing->id = *id;
	return 0;
}

/* Which generation is there; 0: none, as may be. */
static bool find_object(struct fsd_spool *spool, uint64_t *ret_generation)
{
	struct listing listing = {0};
	int r = fsd_spool_each(spool, list_one, &listing);

	*ret_generation = 0;
	if (r < 0 || listing.count > 1)
		return wrong("objects", r, listing.count);
	if (listing.count == 0) {
		bool owed = m.crashed == POWER ? m.promised : m.created;

		return !owed || m.removing ? true : wrong("the object is gone", 0, 0);
	}
	if (m.removed && m.crashed == KILL)
		return wrong("the object is back", 0, 0);
	if (listing.id.generation != m.generation && listing.id.generation != m.next_generation)
		return wrong("generation", (int64_t)listing.id.generation, (int64_t)m.generation);
	*ret_generation = listing.id.generation;
	return true;
}

/* After a crash: what is there becomes the current version. */
static bool check_after_crash(struct fsd_object *object)
{
	size_t last = m.count - 1;
	struct version *now;

	if (!check_content(object, m.crashed == POWER ? 0 : last - (m.under_way && last > 0)))
		return false;
	/* After a kill the disk may still have any of them. */
	if (m.crashed == POWER)
		m.count = 0;
	else
		ck_assert_uint_lt(m.count, VERSIONS_MAX);
	m.under_way = false;
	now = &m.versions[m.count++];
	now->bytes = fsd_object_size(object);
	memcpy(now->content, read_buf, CONTENT_MAX);
	return true;
}

/* -- what a life does
 * -------------------------------------------------------------------------------- */

static bool op_write(struct fsd_object *object, bool append)
{
	struct version *v = begin();
	bool whole = draw(2) == 0;
	uint64_t unit = whole ? FSD_BLOCK_BYTES : 1;
	uint64_t offset = append ? v->bytes : draw(CONTENT_MAX * 3 / 4 / unit) * unit;
	uint64_t bytes = (1 + draw((whole ? 4 * FSD_BLOCK_BYTES : 6000) / unit)) * unit;
	uint8_t fill = (uint8_t)(1 + draw(255));
	uint64_t where = offset;
	int r;

	bytes = GX_MIN(bytes, CONTENT_MAX - offset);
	if (bytes == 0)
		return done("nothing to append", 0);
	memset(v->content + offset, fill, bytes);
	v->bytes = GX_MAX(v->bytes, offset + bytes);
	memcpy(read_buf, v->content + offset, bytes);
	r = append ? fsd_object_append(object, read_buf, bytes, &where)
		   : fsd_object_write(object, read_buf, bytes, offset);
	if (where != offset)
		return wrong("appended at", (int64_t)where, (int64_t)offset);
	return done("write", r);
}

static bool op_truncate(struct fsd_object *object)
{
	struct version *v = begin();
	uint64_t bytes = draw(3) == 0 ? draw(CONTENT_MAX / FSD_BLOCK_BYTES) * FSD_BLOCK_BYTES
				      : draw(CONTENT_MAX);

	if (bytes < v->bytes)
		memset(v->content + bytes, 0, v->bytes - bytes);
	v->bytes = bytes;
	return done("truncate", fsd_object_truncate(object, bytes));
}

static bool op_punch(struct fsd_object *object)
{
	struct version *v = begin();
	uint64_t offset = draw(CONTENT_MAX);
	uint64_t bytes = 1 + draw(FSD_REGION_BYTES * 2);

	bytes = GX_MIN(bytes, CONTENT_MAX - offset);
	memset(v->content + offset, 0, bytes);
	return done("punch", fsd_object_punch(object, offset, bytes));
}

static bool op_sync(struct fsd_object *object)
{
	int r = fsd_object_sync(object);

	if (r < 0)
		return wrong("sync", r, 0);
	synced();
	return fsd_object_stable(object) ? true : wrong("not stable", 0, 0);
}

static bool op_advance(struct fsd_object *object)
{
	int r;

	m.next_generation = m.generation + 1 + draw(3);
	r = fsd_object_advance(object, m.next_generation);
	if (r < 0)
		return wrong("advance", r, 0);
	m.generation = m.next_generation;
	return true;
}

static bool op_reopen(struct fsd_spool *spool, struct fsd_object **object)
{
	struct fsd_object_id id = {INO, m.generation};
	int r;

	fsd_object_close(*object);
	*object = NULL;
	r = fsd_object_open(spool, &id, object);
	return r == 0 ? true : wrong("open again", r, 0);
}

static bool one_op(struct fsd_spool *spool, struct fsd_object **object)
{
	bool ok;

	m.ops++;
	switch (draw(12)) {
	case 0:
	case 1:
	case 2:
		ok = op_write(*object, false);
		break;
	case 3:
		ok = op_write(*object, true);
		break;
	case 4:
	case 5:
		ok = op_truncate(*object);
		break;
	case 6:
		ok = op_punch(*object);
		break;
	case 7:
		ok = op_advance(*object);
		break;
	case 8:
		ok = op_reopen(spool, object);
		break;
	default:
		ok = op_sync(*object);
		if (ok && draw(4) > 0)
			fsd_object_settle(*object);
		break;
	}
	return ok && check_content(*object, m.count - 1);
}

/* Everything is settled: each bit that flips is noticed. */
static void flip_and_look(struct fsd_spool *spool, struct fsd_object *object)
{
	struct fsd_object_id id = {INO, m.generation};
	uint64_t bytes = current()->bytes;
	uint64_t bit = bytes > 0 ? draw(bytes * 8) : 0;
	char path[PATH_MAX];
	ssize_t n;

	if (!op_sync(object))
		return;
	fsd_object_close(object);
	ck_assert_int_eq(fsd_spool_object_path(spool, &id, "", path), 0);
	if (bytes > 0)
		ck_assert_int_eq(gx_sim_flip_bit(m.host, path, bit), 0);
	if (fsd_object_open(spool, &id, &object) < 0) {
		wrong("open after a flip", 0, 0);
		return;
	}
	n = fsd_object_read(object, read_buf, sizeof(read_buf), 0, NULL);
	if (n != (bytes > 0 ? -EBADMSG : 0))
		wrong("a flipped bit is read", n, (int64_t)bit);
	fsd_object_close(object);
}

static void remove_it(struct fsd_spool *spool, struct fsd_object *object)
{
	struct fsd_object_id id = {INO, m.generation};
	int r;

	m.removing = true;
	r = fsd_object_remove(spool, &id);
	m.removed = r == 0;
	if (r < 0)
		wrong("remove", r, 0);
	fsd_object_close(object);
}

/* Life 1 advances; life 2 has opened what it found and loses power at once. */
static void advance_only(struct fsd_object *object)
{
	if (m.lives == 1 && op_write(object, false) && op_sync(object))
		op_advance(object);
	if (m.lives == 2) {
		m.crash_mode = POWER;
		die();
	}
	fsd_object_close(object);
}

static void work(struct fsd_spool *spool, struct fsd_object *object)
{
	if (m.only_advance) {
		advance_only(object);
		return;
	}
	for (unsigned i = 0; i < OPS_PER_LIFE; i++)
		if (!one_op(spool, &object)) {
			fsd_object_close(object);
			return;
		}
	if (m.last_life)
		flip_and_look(spool, object);
	else if (draw(4) == 0)
		remove_it(spool, object);
	else
		fsd_object_close(object);
}

static bool first_object(struct fsd_spool *spool, struct fsd_object **ret_object)
{
	struct fsd_object_id id = {INO, 1};
	int r;

	m.generation = m.next_generation = 1;
	m.count = 1;
	r = fsd_object_create(spool, &id, ret_object);
	m.created = r == 0;
	return r == 0 ? true : wrong("create", r, 0);
}

static bool old_object(struct fsd_spool *spool, struct fsd_object **ret_object)
{
	struct fsd_object_id id = {.ino = INO};
	int r;

	*ret_object = NULL;
	if (!find_object(spool, &id.generation) || id.generation == 0)
		return false;
	r = fsd_object_open(spool, &id, ret_object);
	if (r < 0)
		return wrong("open", r, (int64_t)id.generation);
	m.generation = m.next_generation = id.generation;
	m.removing = m.removed = false;
	if (check_after_crash(*ret_object)) {
		m.crashed = NONE;
		return true;
	}
	fsd_object_close(*ret_object);
	return false;
}

static void live(struct gx_env *env, void *arg GX_UNUSED)
{
	struct fsd_spool *spool;
	struct fsd_object *object;
	int r;

	arm(env);
	r = fsd_spool_open(env, DIR, m.lives == 1, &spool);
	if (r < 0) {
		/* The making of a spool may have been interrupted. */
		if (r != -ENODEV || m.created)
			wrong("spool", r, 0);
		return;
	}
	if (m.lives == 1 ? first_object(spool, &object) : old_object(spool, &object))
		work(spool, object);
	fsd_spool_close(spool);
}

/* -- the world
 * ----------------------------------------------------------------------------------------- */

static void make_spool_dir(struct gx_env *env, void *arg GX_UNUSED)
{
	ck_assert_int_eq(gx_env_mkdir(env, DIR, 0700), 0);
	ck_assert_int_eq(gx_env_sync_dir(env, "/"), 0);
}

static void world_new(uint64_t seed)
{
	struct gx_sim_options options = GX_SIM_OPTIONS_INIT;

	memset(&m, 0, sizeof(m));
	m.rng = seed;
	options.seed = seed;
	ck_assert_int_eq(gx_sim_new(&options, &m.sim), 0);
	ck_assert_int_eq(gx_sim_host_new(m.sim, "fsd", &m.host), 0);
	ck_assert_int_eq(gx_sim_spawn(m.host, "mkdir", make_spool_dir, NULL, &m.proc), 0);
	ck_assert_int_eq(gx_sim_run(m.sim, NULL), 0);
}

/* A life that ends by itself is a clean end, or a kill after the last call. */
static void run_life(enum crash mode, uint64_t crash_at)
{
	m.lives++;
	m.ops = 0;
	m.crash_mode = mode;
	m.crash_at = crash_at;
	m.calls = 0;
	ck_assert_int_eq(gx_sim_spawn(m.host, "fsd", live, NULL, &m.proc), 0);
	ck_assert_int_eq(gx_sim_run(m.sim, NULL), 0);
	m.crashed = m.crashed == NONE ? KILL : m.crashed;
}

/* Life 1 dies in its n-th call, life 2 in some call of its own, life 3 must stand. */
static bool crash_in_call(uint64_t seed, uint64_t nth, enum crash mode)
{
	bool reached;

	world_new(seed);
	run_life(mode, nth);
	reached = m.calls >= nth;
	if (m.wrong[0] == '\0')
		run_life(gx_sim_random_below(m.sim, 2) == 0 ? KILL : POWER,
			 1 + gx_sim_random_below(m.sim, 80));
	m.last_life = true;
	if (m.wrong[0] == '\0')
		run_life(NONE, 0);
	gx_sim_free(m.sim);
	return reached;
}

static void crash_in_every_call(uint64_t seed, enum crash mode)
{
	uint64_t nth = 1;

	while (crash_in_call(seed, nth, mode)) {
		if (m.wrong[0] != '\0')
			ck_abort_msg("life 1 dies in call %llu: %s", (unsigned long long)nth,
				     m.wrong);
		nth++;
	}
	ck_assert_uint_gt(nth, 40);
}

START_TEST(a_kill_in_every_disk_operation_is_survived)
{
	crash_in_every_call((uint64_t)_i, KILL);
}
END_TEST

START_TEST(a_power_cut_in_every_disk_operation_is_survived)
{
	crash_in_every_call((uint64_t)_i, POWER);
}
END_TEST

/* Is it wrong for some call that life 1 is killed in? */
static bool advance_goes_back(uint64_t seed)
{
	bool reached = true;

	for (uint64_t nth = 1; reached; nth++) {
		world_new(seed);
		m.only_advance = true;
		run_life(KILL, nth);
		reached = m.calls >= nth;
		run_life(NONE, 0);
		run_life(NONE, 0);
		gx_sim_free(m.sim);
		if (m.wrong[0] != '\0')
			return true;
	}
	return false;
}

START_TEST(a_generation_that_was_seen_open_does_not_go_back)
{
	gx_broken = 0;
	if (advance_goes_back((uint64_t)_i))
		ck_abort_msg("%s", m.wrong);
}
END_TEST

START_TEST(one_that_may_go_back_is_noticed)
{
	gx_broken = FSD_BROKEN_RULE(FSD_STEP_ADVANCE_OPEN);
	for (uint64_t seed = 1; seed <= 50; seed++)
		if (advance_goes_back(seed))
			return;
	ck_abort_msg("nobody notices");
}
END_TEST

/* -- several threads -----------------------------------------------------------------------------
 */

static void crowd_check(const char *what, int64_t r)
{
	if (r < 0)
		wrong(what, r, 0);
}

static void crowd_write(void *arg)
{
	struct fsd_object *object = arg;
	uint8_t data[3 * FSD_BLOCK_BYTES];

	for (unsigned i = 0; i < 25; i++) {
		uint64_t offset = gx_sim_random_below(m.sim, CONTENT_MAX - sizeof(data));
		size_t bytes = 1 + (size_t)gx_sim_random_below(m.sim, sizeof(data));
		uint64_t end;

		memset(data, (int)gx_sim_random_below(m.sim, 256), bytes);
		switch (gx_sim_random_below(m.sim, 8)) {
		case 0:
			if (bytes % 2 == 0)
				offset -= offset % FSD_BLOCK_BYTES;
			crowd_check("truncate", fsd_object_truncate(object, offset));
			break;
		case 1:
			crowd_check("punch", fsd_object_punch(object, offset, bytes));
			break;
		case 2:
			if (fsd_object_size(object) < CONTENT_MAX / 2)
				crowd_check("append", fsd_object_append(object, data, bytes, &end));
			break;
		default:
			crowd_check("write", fsd_object_write(object, data, bytes, offset));
			break;
		}
	}
}

static void crowd_sync(void *arg)
{
	for (unsigned i = 0; i < 20; i++) {
		crowd_check("sync", fsd_object_sync(arg));
		fsd_object_settle(arg);
	}
}

static void crowd_read(void *arg)
{
	static uint8_t data[2 * CONTENT_MAX];

	for (unsigned i = 0; i < 20; i++)
		crowd_check("read", fsd_object_read(arg, data, sizeof(data), 0, NULL));
}

static void live_in_crowd(struct gx_env *env, void *arg GX_UNUSED)
{
	static const gx_thread_fn fns[] = {crowd_read, crowd_write, crowd_write, crowd_sync};
	struct fsd_object_id id = {INO, 1};
	struct gx_thread threads[GX_COUNT_OF(fns)];
	struct fsd_spool *spool;
	struct fsd_object *object;
	int r;

	arm(env);
	r = fsd_spool_open(env, DIR, true, &spool);
	if (r < 0) {
		wrong("spool", r, 0);
		return;
	}
	r = fsd_object_open(spool, &id, &object);
	if (r == -ENOENT)
		r = fsd_object_create(spool, &id, &object);
	if (r == 0) {
		crowd_read(object);
		for (size_t i = 0; i < GX_COUNT_OF(fns); i++)
			ck_assert_int_eq(
				gx_env_thread_start(env, &threads[i], "crowd", fns[i], object), 0);
		for (size_t i = 0; i < GX_COUNT_OF(fns); i++)
			gx_env_thread_join(env, &threads[i]);
		crowd_read(object);
		fsd_object_close(object);
	} else {
		wrong("open", r, 0);
	}
	fsd_spool_close(spool);
}

START_TEST(a_power_cut_among_several_threads_looks_like_no_damage)
{
	world_new((uint64_t)_i);
	for (unsigned i = 0; i < 6 && m.wrong[0] == '\0'; i++) {
		m.lives++;
		m.crash_mode = POWER;
		m.crash_at = i == 5 ? 0 : 1 + gx_sim_random_below(m.sim, 300);
		m.calls = 0;
		ck_assert_int_eq(gx_sim_spawn(m.host, "fsd", live_in_crowd, NULL, &m.proc), 0);
		ck_assert_int_eq(gx_sim_run(m.sim, NULL), 0);
	}
	gx_sim_free(m.sim);
	ck_assert_msg(m.wrong[0] == '\0', "%s", m.wrong);
}
END_TEST

START_TEST(each_step_left_out_is_noticed)
{
	gx_broken = FSD_BROKEN_RULE(_i);
	for (uint64_t seed = 1; seed <= 100; seed++)
		for (uint64_t nth = 1; crash_in_call(seed, nth, seed % 2 == 0 ? KILL : POWER);
		     nth += 1 + seed % 3)
			if (m.wrong[0] != '\0') {
				printf("step %d: seed %llu, call %llu: %s\n", _i,
				       (unsigned long long)seed, (unsigned long long)nth, m.wrong);
				return;
			}
	ck_abort_msg("nobody notices that step %d is left out", _i);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, uint64_t count)
{
	TCase *tc = tcase_create(name);
	const char *text = getenv("SIM_SEED");
	uint64_t one = 0;

	if (text != NULL && gx_parse_u64(text, &one) == 0)
		count = 1;
	else
		one = 1;
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test, (int)one, (int)(one + count));
	suite_add_tcase(suite, tc);
}

int main(void)
{
	Suite *suite = suite_create("sim_fsd_object");
	TCase *broken = tcase_create("broken");
	SRunner *runner = srunner_create(suite);
	const char *text = getenv("SIM_SEEDS");
	uint64_t count = 10;
	int failed;

	if (text != NULL && gx_parse_u64(text, &count) < 0)
		return 1;
	add(suite, "kill", a_kill_in_every_disk_operation_is_survived, count);
	add(suite, "power", a_power_cut_in_every_disk_operation_is_survived, 3 * count);
	add(suite, "advance", a_generation_that_was_seen_open_does_not_go_back, count);
	add(suite, "crowd", a_power_cut_among_several_threads_looks_like_no_damage, 10 * count);
	tcase_set_timeout(broken, 60);
	tcase_add_loop_test(broken, each_step_left_out_is_noticed, FSD_STEP_NONE + 1,
			    FSD_STEP_ADVANCE_OPEN);
	tcase_add_test(broken, one_that_may_go_back_is_noticed);
	suite_add_tcase(suite, broken);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
