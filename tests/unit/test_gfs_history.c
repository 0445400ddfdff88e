/*
 * Clients that change and look at the same few names at the same time, with caches. Each call is
 * written down with the moments of its begin and end, drawn from one counter; afterwards the
 * history must have an explanation in which every call happens at one moment between the two. So a
 * name or an attribute that a cache still shows after another client's change was answered (rule
 * N11) is caught.
 *
 * What is checked:
 *  - a name is a register whose values are inode numbers, each written once, or nothing. Its
 *    history is atomic if the zones of its values do not meet (Gibbons and Korach, Testing shared
 *    memories, 1997): the zone of a value reaches from the first end to the last begin of the calls
 *    that wrote or saw it, and if that is not empty, the register held the value all this time;
 *  - the version of an inode never goes back, and a change makes a higher one;
 *  - one version of an inode is one set of attributes.
 *
 * GFS_MODEL_SEED and GFS_MODEL_RUNS as in test_gfs_model.c; the threads' timing is not repeated.
 */
#include "common/gx_num.h"
#include "include/gfs.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define CACHE (256 * 1024)
#define WORKERS_MAX 4u
#define SHARED 3u          /* names */
#define STEPS 150u         /* of a worker; each is some calls */
#define LOOKS_MAX 1000u    /* calls of one look */
#define EVENTS_MAX 300000u /* of a worker */
#define PATIENCE_NS (100 * GX_NSEC_PER_SEC)

/* A value seen or written: of a name (its inode number, 0: nothing), or of an inode. */
enum kind {
	NAME_WROTE, /* the name stands for `ino` now */
	NAME_SAW,
	NAME_SAW_SOME, /* it stands for something */
	INODE_WROTE,   /* it has `version` now */
	INODE_SAW,
	KIND_COUNT
};

struct event {
	enum kind kind;
	unsigned worker;
	unsigned name;
	uint64_t begin, end;
	uint64_t ino, version;
	uint64_t size;
	uint32_t mode, nlink;
};

struct worker {
	struct gx_thread thread;
	struct gfc *gfc;
	unsigned number;
	uint64_t random_state;
	struct event *events;
	unsigned count;
	const char *doing; /* lock */
};

static struct meta_fixture *fixture;
static struct gx_env *env;
static struct worker workers[WORKERS_MAX];
static struct gfc_ref dir;
static atomic_uint_fast64_t moment;
static atomic_uint changes; /* answered */
static struct gx_mutex lock;
static struct gx_cond changed;
static unsigned running; /* lock */
static uint64_t seed, seed_first = 1;
static const char *const names[SHARED] = {"x", "y", "z"};

/* -- writing down ---------------------------------------------------------------------------- */

static unsigned below(struct worker *w, unsigned bound)
{
	w->random_state ^= w->random_state << 13;
	w->random_state ^= w->random_state >> 7;
	w->random_state ^= w->random_state << 17;
	return (unsigned)((w->random_state >> 20) % bound);
}

static uint64_t now(void)
{
	return atomic_fetch_add(&moment, 1);
}

static void note_name(struct worker *w, enum kind kind, unsigned name, uint64_t begin, uint64_t ino)
{
	gx_assert(w->count < EVENTS_MAX);
	w->events[w->count++] = (struct event){
		.kind = kind, .name = name, .begin = begin, .end = now(), .ino = ino};
	if (kind == NAME_WROTE)
		atomic_fetch_add(&changes, 1);
}

static void note_inode(struct worker *w, enum kind kind, uint64_t begin,
		       const struct gfc_attr *attr)
{
	gx_assert(w->count < EVENTS_MAX);
	w->events[w->count++] = (struct event){.kind = kind,
					       .begin = begin,
					       .end = now(),
					       .ino = attr->ref.ino,
					       .version = attr->version,
					       .size = attr->size,
					       .mode = attr->mode,
					       .nlink = attr->nlink};
	if (kind == INODE_WROTE)
		atomic_fetch_add(&changes, 1);
}

/*
 * A cache answers fast, and if it is wrong, then for a short time after a change was answered. So
 * who looks does so until that has happened, and a little longer.
 */
struct look {
	unsigned count, changes, after;
};

static bool look_on(struct worker *w, struct look *look)
{
	if (look->count++ == 0) {
		look->changes = atomic_load(&changes);
		look->after = below(w, 200);
	}
	if (look->count > LOOKS_MAX || w->count + 2 * LOOKS_MAX > EVENTS_MAX)
		return false;
	return atomic_load(&changes) == look->changes || look->after-- > 0;
}

static void doing(struct worker *w, const char *what)
{
	gx_env_mutex_lock(env, &lock);
	w->doing = what;
	gx_env_mutex_unlock(env, &lock);
}

/* A call that failed in a way that has no excuse here ends the program: no thread could go on. */
static void must(struct worker *w, int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "seed %llu, worker %u: %s: %s (%s)\n", (unsigned long long)seed, w->number,
		what, gx_strerror(r), gfc_error());
	abort();
}

/* -- what workers do ------------------------------------------------------------------------- */

static void look_at_name(struct worker *w)
{
	unsigned name = below(w, SHARED);
	struct look look = {0};

	while (look_on(w, &look)) {
		struct gfc_attr attr;
		uint64_t begin = now();
		int r = gfc_lookup(w->gfc, dir, names[name], &attr);

		if (r != -ENOENT)
			must(w, r, "lookup");
		note_name(w, NAME_SAW, name, begin, r == 0 ? attr.ref.ino : 0);
		if (r == 0)
			note_inode(w, INODE_SAW, begin, &attr);
	}
}

static void look_at_inode(struct worker *w)
{
	unsigned name = below(w, SHARED);
	struct look look = {0};
	struct gfc_attr attr;
	int r = gfc_lookup(w->gfc, dir, names[name], &attr);

	while (r == 0 && look_on(w, &look)) {
		uint64_t begin = now();

		r = gfc_getattr(w->gfc, attr.ref, &attr);
		if (r == 0)
			note_inode(w, INODE_SAW, begin, &attr);
		else if (r != -ESTALE)
			must(w, r, "getattr");
	}
}

static int take_listed(void *arg, const struct gfc_dirent *entry)
{
	struct event *seen = arg;

	for (unsigned i = 0; i < SHARED; i++)
		if (strcmp(entry->name, names[i]) == 0)
			seen[i].ino = entry->ino;
	return 0;
}

static void look_at_all(struct worker *w)
{
	struct event seen[SHARED] = {{0}};
	char after[GFS_NAME_MAX + 1] = "";
	uint64_t begin = now();

	must(w, gfc_readdir(w->gfc, dir, after, true, take_listed, seen), "readdir");
	for (unsigned i = 0; i < SHARED; i++)
		note_name(w, NAME_SAW, i, begin, seen[i].ino);
}

static void make(struct worker *w)
{
	unsigned name = below(w, SHARED);
	struct gfc_attr attr;
	uint64_t begin = now();
	int r = gfc_make(w->gfc, dir, names[name], S_IFREG | 0644, 0, NULL, &attr);

	if (r == -EEXIST) {
		note_name(w, NAME_SAW_SOME, name, begin, 0);
		return;
	}
	must(w, r, "make");
	note_name(w, NAME_WROTE, name, begin, attr.ref.ino);
	note_inode(w, INODE_WROTE, begin, &attr);
}

static void remove_name(struct worker *w)
{
	unsigned name = below(w, SHARED);
	uint64_t begin = now();
	int r = gfc_unlink(w->gfc, dir, names[name], false);

	if (r != -ENOENT)
		must(w, r, "unlink");
	note_name(w, r == 0 ? NAME_WROTE : NAME_SAW, name, begin, 0);
}

/* A file under a name of this worker comes to a shared name, over it or for it. */
static void bring(struct worker *w, unsigned flags)
{
	unsigned name = below(w, SHARED);
	char own[16];
	struct gfc_attr attr;
	uint64_t begin;
	int r;

	must(w, gx_format(own, sizeof(own), "own%u", w->number), "name");
	must(w, gfc_make(w->gfc, dir, own, S_IFREG | 0600, 0, NULL, &attr), "make");
	begin = now();
	r = gfc_rename(w->gfc, dir, own, dir, names[name], flags);
	if (r == 0)
		note_name(w, NAME_WROTE, name, begin, attr.ref.ino);
	else if (r == -EEXIST && flags == GFS_RENAME_NOREPLACE)
		note_name(w, NAME_SAW_SOME, name, begin, 0);
	else if (r == -ENOENT && flags == GFS_RENAME_EXCHANGE)
		note_name(w, NAME_SAW, name, begin, 0);
	else
		must(w, r, "rename");
	if (r < 0 || flags == GFS_RENAME_EXCHANGE)
		must(w, gfc_unlink(w->gfc, dir, own, false), "unlink");
}

/* A shared name goes away to one of this worker. */
static void take_away(struct worker *w)
{
	unsigned name = below(w, SHARED);
	uint64_t begin = now();
	char own[16];
	int r;

	must(w, gx_format(own, sizeof(own), "own%u", w->number), "name");
	r = gfc_rename(w->gfc, dir, names[name], dir, own, 0);
	if (r != -ENOENT)
		must(w, r, "rename");
	note_name(w, r == 0 ? NAME_WROTE : NAME_SAW, name, begin, 0);
	if (r == 0)
		must(w, gfc_unlink(w->gfc, dir, own, false), "unlink");
}

static void change_mode(struct worker *w)
{
	struct gfc_change change = {.mask = GFC_SET_MODE, .mode = below(w, 01000)};
	struct gfc_attr attr;
	uint64_t begin;
	int r = gfc_lookup(w->gfc, dir, names[below(w, SHARED)], &attr);

	if (r < 0)
		return;
	begin = now();
	r = gfc_setattr(w->gfc, attr.ref, NULL, &change, &attr);
	if (r == 0)
		note_inode(w, INODE_WROTE, begin, &attr);
	else if (r != -ESTALE)
		must(w, r, "setattr");
}

static void change_content(struct worker *w)
{
	struct gfc_write write = {
		.data = "12345678", .bytes = 1 + below(w, 8), .truncate = true, .close = true};
	unsigned flags = GFC_OPEN_READ | GFC_OPEN_WRITE;
	struct gfc_open *open;
	struct gfc_attr attr;
	uint64_t begin = now();
	char buf[16];
	ssize_t got;
	int r = gfc_open(w->gfc, dir, names[below(w, SHARED)], flags, 0, &attr, &open);

	if (r == -ENOENT || r == -ESTALE)
		return;
	must(w, r, "open");
	note_inode(w, INODE_SAW, begin, &attr);
	begin = now();
	got = gfc_read(w->gfc, open, buf, sizeof(buf), 0, &attr);
	must(w, (int)got, "read");
	note_inode(w, INODE_SAW, begin, &attr);
	gx_assert((uint64_t)got == attr.size);
	begin = now();
	must(w, gfc_write(w->gfc, open, &write, NULL, &attr), "write");
	note_inode(w, INODE_WROTE, begin, &attr);
}

static void work_step(struct worker *w)
{
	switch (below(w, 16)) {
	case 0:
	case 1:
		doing(w, "making a name");
		make(w);
		break;
	case 2:
		doing(w, "removing a name");
		remove_name(w);
		break;
	case 3:
	case 4:
		doing(w, "renaming");
		bring(w, below(w, 3));
		break;
	case 5:
		doing(w, "renaming away");
		take_away(w);
		break;
	case 6:
		doing(w, "changing a mode");
		change_mode(w);
		break;
	case 7:
		doing(w, "changing content");
		change_content(w);
		break;
	case 8:
		doing(w, "listing");
		look_at_all(w);
		break;
	case 9:
	case 10:
		doing(w, "looking at an inode");
		look_at_inode(w);
		break;
	default:
		doing(w, "looking a name up");
		look_at_name(w);
		break;
	}
}

static void work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < STEPS; i++)
		work_step(w);
	gx_env_mutex_lock(env, &lock);
	w->doing = "nothing more";
	running--;
	gx_env_cond_broadcast(env, &changed);
	gx_env_mutex_unlock(env, &lock);
}

/* The watchdog: who waits for each other waits for ever. */
static void wait_for_workers(unsigned count)
{
	int64_t deadline_ns = gx_env_now_ns(env) + PATIENCE_NS;

	gx_env_mutex_lock(env, &lock);
	while (running > 0) {
		if (gx_env_cond_wait(env, &changed, &lock, deadline_ns) == 0)
			continue;
		for (unsigned i = 0; i < count; i++)
			fprintf(stderr, "seed %llu: worker %u hangs in: %s\n",
				(unsigned long long)seed, i, workers[i].doing);
		abort();
	}
	gx_env_mutex_unlock(env, &lock);
}

/* -- judging --------------------------------------------------------------------------------- */

/* A value of a name, and when the name certainly stood for it. */
struct zone {
	uint64_t ino;
	uint64_t first_end, last_begin; /* empty unless first_end < last_begin */
	bool written;
};

static struct {
	struct event *events; /* in the order of their begins */
	unsigned count;
	const struct event **writes; /* of the name being checked */
	unsigned write_count;
} history;

#define FAIL(fmt, ...) ck_abort_msg("seed %llu: " fmt, (unsigned long long)seed, __VA_ARGS__)

static int by_begin(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void gather(unsigned count)
{
	history.count = 0;
	for (unsigned i = 0; i < count; i++)
		history.count += workers[i].count;
	history.events = calloc(history.count + 1, sizeof(*history.events));
	gx_assert(history.events);
	history.count = 0;
	for (unsigned i = 0; i < count; i++) {
		for (unsigned k = 0; k < workers[i].count; k++)
			workers[i].events[k].worker = i;
		memcpy(history.events + history.count, workers[i].events,
		       workers[i].count * sizeof(*history.events));
		history.count += workers[i].count;
		free(workers[i].events);
	}
	qsort(history.events, history.count, sizeof(*history.events), by_begin);
}

static bool is_of(const struct event *e, unsigned name)
{
	return e->kind <= NAME_SAW_SOME && e->name == name;
}

/* For who has to find out why: a name or (SHARED) an inode; of looks, those that saw it change. */
static void print_history(unsigned name, uint64_t ino)
{
	static const char *const kinds[KIND_COUNT] = {"made", "saw", "saw something", "made",
						      "saw"};
	struct event last[WORKERS_MAX] = {{0}};

	for (unsigned i = 0; i < history.count; i++) {
		const struct event *e = &history.events[i];
		struct event *before = &last[e->worker];
		bool same = before->kind == e->kind && before->ino == e->ino &&
			    before->version == e->version;

		if (name < SHARED ? !is_of(e, name) : e->kind < INODE_WROTE || e->ino != ino)
			continue;
		if (same && (e->kind == NAME_SAW || e->kind == INODE_SAW)) {
			before->end = e->end;
			continue;
		}
		if (before->end > 0)
			fprintf(stderr, "  worker %u: ... until %llu\n", e->worker,
				(unsigned long long)before->end);
		fprintf(stderr, "%llu to %llu, worker %u %s inode %llu version %llu\n",
			(unsigned long long)e->begin, (unsigned long long)e->end, e->worker,
			kinds[e->kind], (unsigned long long)e->ino, (unsigned long long)e->version);
		*before = *e;
	}
}

static struct zone *zone_of(struct zone *zones, unsigned *count, const struct event *e)
{
	for (unsigned i = *count; i > 0; i--)
		if (zones[i - 1].ino == e->ino)
			return &zones[i - 1];
	zones[*count] = (struct zone){.ino = e->ino, .first_end = UINT64_MAX};
	return &zones[(*count)++];
}

static unsigned make_zones(unsigned name, struct zone *zones)
{
	unsigned count = 0;

	for (unsigned i = 0; i < history.count; i++) {
		const struct event *e = &history.events[i];
		struct zone *zone;

		if (!is_of(e, name) || e->kind == NAME_SAW_SOME || e->ino == 0)
			continue;
		zone = zone_of(zones, &count, e);
		zone->written = zone->written || e->kind == NAME_WROTE;
		zone->first_end = GX_MIN(zone->first_end, e->end);
		zone->last_begin = GX_MAX(zone->last_begin, e->begin);
	}
	return count;
}

/* Something happened between `from` and `to`; did the name stand for another inode all the time? */
static void check_inside(unsigned name, const struct zone *zone, uint64_t from, uint64_t to,
			 const char *what, uint64_t ino)
{
	if (zone->first_end < from && to < zone->last_begin) {
		print_history(name, 0);
		FAIL("name %s was inode %llu from %llu to %llu, but %s %llu from %llu to %llu",
		     names[name], (unsigned long long)zone->ino,
		     (unsigned long long)zone->first_end, (unsigned long long)zone->last_begin,
		     what, (unsigned long long)ino, (unsigned long long)from,
		     (unsigned long long)to);
	}
}

static void check_zones(unsigned name, const struct zone *zones, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const struct zone *a = &zones[i];

		if (!a->written)
			FAIL("name %s was seen as inode %llu, which it never became", names[name],
			     (unsigned long long)a->ino);
		for (unsigned k = 0; k < history.write_count; k++)
			if (history.writes[k]->ino != a->ino)
				check_inside(name, a, history.writes[k]->begin,
					     history.writes[k]->end, "became",
					     history.writes[k]->ino);
		for (unsigned k = 0; k < count; k++) {
			const struct zone *b = &zones[k];
			bool solid = b->first_end < b->last_begin;

			if (k == i || a->first_end >= a->last_begin)
				continue;
			if (solid && a->first_end < b->last_begin && b->first_end < a->last_begin)
				FAIL("name %s was inodes %llu and %llu at once, from %llu to %llu",
				     names[name], (unsigned long long)a->ino,
				     (unsigned long long)b->ino,
				     (unsigned long long)GX_MAX(a->first_end, b->first_end),
				     (unsigned long long)GX_MIN(a->last_begin, b->last_begin));
			if (!solid)
				check_inside(name, a, b->last_begin, b->first_end, "also", b->ino);
		}
	}
}

/*
 * Nothing and something are values that come again. One was seen from `e` on: it must have been
 * written before `e` ended, and not been replaced for good before `e` began.
 */
static void check_repeated(unsigned name, const struct event *e)
{
	bool absent = e->kind == NAME_SAW; /* else: something is there */
	uint64_t latest = 0;               /* begin of the last one that could be what was seen */
	bool found = absent;               /* in the beginning there is nothing */

	for (unsigned i = 0; i < history.write_count; i++) {
		const struct event *write = history.writes[i];

		if (write->begin < e->end && (write->ino == 0) == absent) {
			found = true;
			latest = GX_MAX(latest, write->end);
		}
	}
	if (!found)
		FAIL("name %s was seen from %llu to %llu and never made", names[name],
		     (unsigned long long)e->begin, (unsigned long long)e->end);
	/* A later write of the opposite, over before e began, with no way back in between. */
	for (unsigned i = 0; i < history.write_count; i++) {
		const struct event *write = history.writes[i];

		if ((write->ino == 0) != absent && write->begin > latest && write->end < e->begin)
			FAIL("name %s became inode %llu from %llu to %llu, but %s from %llu to "
			     "%llu",
			     names[name], (unsigned long long)write->ino,
			     (unsigned long long)write->begin, (unsigned long long)write->end,
			     absent ? "was not there" : "was there", (unsigned long long)e->begin,
			     (unsigned long long)e->end);
	}
}

static void check_name(unsigned name)
{
	struct zone *zones = calloc(history.count + 1, sizeof(*zones));
	unsigned count;

	history.writes = calloc(history.count + 1, sizeof(struct event *));
	gx_assert(zones && history.writes);
	history.write_count = 0;
	for (unsigned i = 0; i < history.count; i++)
		if (is_of(&history.events[i], name) && history.events[i].kind == NAME_WROTE)
			history.writes[history.write_count++] = &history.events[i];
	count = make_zones(name, zones);
	check_zones(name, zones, count);
	for (unsigned i = 0; i < history.count; i++) {
		const struct event *e = &history.events[i];

		if (!is_of(e, name) || (e->ino != 0 && e->kind != NAME_SAW_SOME))
			continue;
		if (e->kind == NAME_WROTE)
			continue;
		check_repeated(name, e);
		for (unsigned k = 0; k < count && e->kind == NAME_SAW; k++)
			check_inside(name, &zones[k], e->begin, e->end, "gone", 0);
	}
	free(history.writes);
	free(zones);
}

static int by_inode(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if ((x->kind >= INODE_WROTE) != (y->kind >= INODE_WROTE))
		return x->kind >= INODE_WROTE ? 1 : -1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->version != y->version)
		return x->version < y->version ? -1 : 1;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* In the order of versions: nothing may end before something with a lower version begins. */
static void check_inodes(void)
{
	uint64_t begin = 0; /* latest begin of a lower version, or of this one */

	qsort(history.events, history.count, sizeof(*history.events), by_inode);
	for (unsigned i = 1; i < history.count; i++) {
		const struct event *a = &history.events[i - 1], *b = &history.events[i];

		if (b->kind < INODE_WROTE)
			continue;
		if (a->kind < INODE_WROTE || a->ino != b->ino) {
			begin = b->begin;
			continue;
		}
		if (a->version == b->version) {
			if (a->mode != b->mode || a->size != b->size || a->nlink != b->nlink)
				FAIL("inode %llu has two versions %llu", (unsigned long long)b->ino,
				     (unsigned long long)b->version);
			if (a->kind == INODE_WROTE && b->kind == INODE_WROTE)
				FAIL("inode %llu was twice changed to version %llu",
				     (unsigned long long)b->ino, (unsigned long long)b->version);
		}
		if (a->version < b->version && b->end < begin) {
			print_history(SHARED, b->ino);
			FAIL("inode %llu had version %llu until %llu, and an older one from %llu "
			     "on",
			     (unsigned long long)b->ino, (unsigned long long)b->version,
			     (unsigned long long)b->end, (unsigned long long)begin);
		}
		begin = GX_MAX(begin, b->begin);
	}
}

/* -- runs ------------------------------------------------------------------------------------ */

static void begin(int run)
{
	struct gfc *root;
	struct gfc_attr attr;

	seed = seed_first + (uint64_t)run;
	env = gx_env_posix();
	fixture = meta_fixture_start(NULL);
	ck_assert_int_eq(gx_env_mutex_init(env, &lock), 0);
	ck_assert_int_eq(gx_env_cond_init(env, &changed), 0);
	root = meta_fixture_gfc(fixture, META_ROOT, 0);
	ck_assert_int_eq(gfc_make(root, GFC_ROOT, "d", S_IFDIR | 0755, 0, NULL, &attr), 0);
	dir = attr.ref;
	ck_assert_int_eq(gfc_free(root), 0);
}

static void start_worker(unsigned number, struct gfc *gfc)
{
	struct worker *w = &workers[number];

	*w = (struct worker){.gfc = gfc, .number = number, .doing = "nothing yet"};
	w->random_state = UINT64_C(0x9e3779b97f4a7c15) * (seed * WORKERS_MAX + number + 1);
	w->events = calloc(EVENTS_MAX, sizeof(*w->events));
	gx_assert(w->events);
	gx_env_mutex_lock(env, &lock);
	running++;
	gx_env_mutex_unlock(env, &lock);
	ck_assert_int_eq(gx_env_thread_start(env, &w->thread, "worker", work, w), 0);
}

static void end(unsigned count)
{
	wait_for_workers(count);
	for (unsigned i = 0; i < count; i++)
		gx_env_thread_join(env, &workers[i].thread);
	for (unsigned i = 0; i < count; i++)
		if (i == 0 || workers[i].gfc != workers[i - 1].gfc)
			ck_assert_int_eq(gfc_free(workers[i].gfc), 0);
	meta_fixture_check(fixture);
	meta_fixture_stop(fixture);
	gx_env_cond_fini(env, &changed);
	gx_env_mutex_fini(env, &lock);
	gather(count);
	for (unsigned i = 0; i < SHARED; i++)
		check_name(i);
	check_inodes();
	free(history.events);
}

static void two_clients(int run, size_t cache_a, size_t cache_b)
{
	begin(run);
	start_worker(0, meta_fixture_gfc(fixture, META_ROOT, cache_a));
	start_worker(1, meta_fixture_gfc(fixture, META_ROOT, cache_b));
	end(2);
}

START_TEST(two_clients_with_caches_see_one_history)
{
	two_clients(_i, CACHE, CACHE);
}
END_TEST

START_TEST(a_cache_is_not_fooled_by_a_client_without)
{
	two_clients(_i, CACHE, 0);
}
END_TEST

START_TEST(threads_that_share_a_cache_see_one_history)
{
	struct gfc *a, *b;

	begin(_i);
	a = meta_fixture_gfc(fixture, META_ROOT, CACHE);
	b = meta_fixture_gfc(fixture, META_ROOT, CACHE);
	for (unsigned i = 0; i < 4; i++)
		start_worker(i, i < 2 ? a : b);
	end(4);
}
END_TEST

START_TEST(a_restart_of_metad_is_no_gap_in_the_history)
{
	begin(_i);
	start_worker(0, meta_fixture_gfc(fixture, META_ROOT, CACHE));
	start_worker(1, meta_fixture_gfc(fixture, META_ROOT, CACHE));
	meta_fixture_down(fixture);
	meta_fixture_up(fixture);
	end(2);
}
END_TEST

static int env_number(const char *name, uint64_t *number)
{
	const char *text = getenv(name);

	return text ? gx_parse_u64(text, number) : 0;
}

int main(void)
{
	Suite *suite = suite_create("gfs_history");
	TCase *tc = tcase_create("history");
	SRunner *runner = srunner_create(suite);
	uint64_t runs = 2;
	int failed;

	if (env_number("GFS_MODEL_RUNS", &runs) < 0 ||
	    env_number("GFS_MODEL_SEED", &seed_first) < 0)
		return 2;
	printf("seeds %llu to %llu\n", (unsigned long long)seed_first,
	       (unsigned long long)(seed_first + runs - 1));
	fflush(stdout);
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, two_clients_with_caches_see_one_history, 0, (int)runs);
	tcase_add_loop_test(tc, a_cache_is_not_fooled_by_a_client_without, 0, (int)runs);
	tcase_add_loop_test(tc, threads_that_share_a_cache_see_one_history, 0, (int)runs);
	tcase_add_loop_test(tc, a_restart_of_metad_is_no_gap_in_the_history, 0, (int)runs);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
