/*
 * md_kv against a plain sorted array: whatever lies in which layer, cache or store, and whenever
 * the writer writes (rule N8), the answers are those of the array.
 */
#include "metad/md_kv.h"
#include "common/gx_num.h"
#include "metad/md_cache.h"
#include "metad/md_skip.h"
#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static char path[96];

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(name);
}

static void setup(void)
{
	memcpy(dir, "/tmp/md_kv.XXXXXX", 18);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/store", dir);
}

static void teardown(void)
{
	gx_env_posix()->fault = NULL;
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* -- the model: a sorted array --------------------------------------------------------------- */

#define MODEL_MAX 2048u
#define KEY_ROOM 24u
#define VALUE_ROOM 64u

struct model_pair {
	char key[KEY_ROOM];
	char value[VALUE_ROOM];
	struct md_tag tag;
	bool deleted; /* kept for its tag */
};

struct model {
	struct model_pair pairs[MODEL_MAX];
	size_t count;
};

static size_t model_at(const struct model *model, const char *key)
{
	size_t i = 0;

	while (i < model->count && strcmp(model->pairs[i].key, key) < 0)
		i++;
	return i;
}

static struct model_pair *model_find(struct model *model, const char *key)
{
	size_t i = model_at(model, key);

	return i < model->count && strcmp(model->pairs[i].key, key) == 0 ? &model->pairs[i] : NULL;
}

/* value NULL deletes. */
static void model_set(struct model *model, const char *key, const char *value, struct md_tag tag,
		      bool keep_tag)
{
	size_t i = model_at(model, key);
	struct model_pair *pair = &model->pairs[i];

	if (model_find(model, key) == NULL) {
		ck_assert_uint_lt(model->count, MODEL_MAX);
		memmove(pair + 1, pair, (model->count - i) * sizeof(*pair));
		model->count++;
		*pair = (struct model_pair){.tag = {0, 0}};
		snprintf(pair->key, sizeof(pair->key), "%s", key);
	}
	pair->deleted = value == NULL;
	if (!keep_tag)
		pair->tag = tag;
	if (value != NULL)
		snprintf(pair->value, sizeof(pair->value), "%s", value);
}

/* -- the thing under test, and the log around it ----------------------------------------------- */

struct world {
	struct gx_loop *loop;
	struct md_kv *kv;
	struct md_kv_options options;
	struct model model;
	uint64_t applied, durable;
	uint64_t stored;
	unsigned stored_calls;
	int stored_err;
	bool stop_when_stored;
	uint64_t random;
	int kind; /* 0 LevelDB, 1 memory */
};

static uint64_t below(struct world *w, uint64_t bound)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (w->random >> 11) % bound;
}

static void stored(void *arg, uint64_t index, int err)
{
	struct world *w = arg;

	ck_assert_uint_ge(index, w->stored);
	ck_assert_uint_le(index, w->durable); /* N1 */
	w->stored = index;
	w->stored_err = err;
	w->stored_calls++;
	if (w->stop_when_stored)
		gx_loop_stop(w->loop);
}

static uint64_t world_reopen(struct world *w)
{
	uint64_t index;

	md_kv_close(w->kv);
	if (w->kind == 0)
		ck_assert_int_eq(
			md_store_open_leveldb(gx_env_posix(), path, 1 << 20, &w->options.store), 0);
	else
		ck_assert_int_eq(md_store_open_mem(gx_env_posix(), path, &w->options.store), 0);
	ck_assert_int_eq(md_kv_open(&w->options, &w->kv, &index), 0);
	return index;
}

static struct world *world_new(int kind, int writer, size_t layer_bytes, size_t cache_bytes)
{
	struct world *w = calloc(1, sizeof(*w));

	ck_assert_int_eq(gx_loop_new(gx_env_posix(), &w->loop), 0);
	w->kind = kind;
	w->random = 88172645463325252u;
	w->options = (struct md_kv_options){
		.env = gx_env_posix(),
		.loop = w->loop,
		.cache_bytes = cache_bytes,
		.layer_bytes = layer_bytes,
		.overlay_bytes_max = 4 * layer_bytes,
		.stored_fn = stored,
		.arg = w,
		.test_writer = writer,
	};
	ck_assert_uint_eq(world_reopen(w), 0);
	return w;
}

static void world_free(struct world *w)
{
	md_kv_close(w->kv);
	gx_loop_free(w->loop);
	free(w);
}

/* Runs the loop until stored_fn is called. */
static void run_until_stored(struct world *w)
{
	w->stop_when_stored = true;
	ck_assert_int_eq(gx_loop_run(w->loop), 0);
	w->stop_when_stored = false;
}

static void put_tagged(struct world *w, const char *key, const char *value, struct md_tag tag,
		       bool keep_tag)
{
	if (value != NULL)
		md_kv_put(w->kv, key, strlen(key), value, strlen(value), tag, keep_tag);
	else
		md_kv_delete(w->kv, key, strlen(key), tag);
	model_set(&w->model, key, value, tag, keep_tag && value != NULL);
}

static void put(struct world *w, const char *key, const char *value)
{
	put_tagged(w, key, value, (struct md_tag){1, w->applied + 1}, false);
}

static void apply(struct world *w)
{
	md_kv_applied(w->kv, ++w->applied);
}

static void sync_to(struct world *w, uint64_t index)
{
	w->durable = index;
	md_kv_durable(w->kv, index);
}

/* -- comparing ------------------------------------------------------------------------------- */

static void check_tag(const struct world *w, const struct model_pair *pair, struct md_tag tag)
{
	bool matters = pair != NULL && pair->tag.index > w->durable;

	ck_assert_uint_eq(tag.index, matters ? pair->tag.index : 0);
	ck_assert_uint_eq(tag.session, matters ? pair->tag.session : 0);
}

static void check_get(struct world *w, const char *key)
{
	struct model_pair *pair = model_find(&w->model, key);
	const void *value;
	size_t value_bytes;
	struct md_tag tag;
	int r = md_kv_get(w->kv, key, strlen(key), &value, &value_bytes, &tag);

	if (pair == NULL || pair->deleted) {
		ck_assert_msg(r == -ENOENT, "%s: %d", key, r);
	} else {
		ck_assert_msg(r == 0, "%s: %d", key, r);
		ck_assert_ptr_nonnull(value);
		ck_assert_uint_eq(value_bytes, strlen(pair->value));
		ck_assert_mem_eq(value, pair->value, value_bytes);
		check_tag(w, pair, tag);
	}
	md_kv_tag(w->kv, key, strlen(key), &tag);
	check_tag(w, pair, tag);
}

struct scan_check {
	struct world *w;
	size_t at; /* next pair of the model */
	size_t seen, stop_after;
	bool changing; /* the map is changed while it is scanned */
	char last[KEY_ROOM];
};

static void random_change(struct world *w);

static int scan_pair(void *arg, const void *key, size_t key_bytes, const void *value,
		     size_t value_bytes, const struct md_tag *tag)
{
	struct scan_check *check = arg;
	struct model *model = &check->w->model;
	struct model_pair *pair;

	/* The next in the model as it is now, behind the last one seen. */
	check->at = model_at(model, check->last);
	while (check->at < model->count &&
	       (model->pairs[check->at].deleted ||
		(check->seen > 0 && strcmp(model->pairs[check->at].key, check->last) == 0)))
		check->at++;
	ck_assert_msg(check->at < model->count, "unexpected %.*s after %s", (int)key_bytes,
		      (const char *)key, check->last);
	pair = &model->pairs[check->at];
	ck_assert_msg(key_bytes == strlen(pair->key) && memcmp(key, pair->key, key_bytes) == 0,
		      "%.*s instead of %s", (int)key_bytes, (const char *)key, pair->key);
	ck_assert_uint_eq(value_bytes, strlen(pair->value));
	ck_assert_mem_eq(value, pair->value, value_bytes);
	check_tag(check->w, pair, *tag);
	snprintf(check->last, sizeof(check->last), "%s", pair->key);
	check->seen++;
	if (check->changing) {
		for (uint64_t n = below(check->w, 4); n > 0; n--)
			random_change(check->w);
		check_get(check->w, check->last);
		/* Even commands end and are stored while a scan is under way. */
		if (below(check->w, 8) == 0) {
			apply(check->w);
			sync_to(check->w, check->w->applied);
		}
	}
	return check->seen == check->stop_after ? 77 : 0;
}

/* Nothing of the model is left between the last pair and `to`. */
static void check_end(struct scan_check *check, const char *to)
{
	struct model *model = &check->w->model;

	for (size_t i = model_at(model, check->last); i < model->count; i++) {
		struct model_pair *pair = &model->pairs[i];

		if (pair->deleted || (check->seen > 0 && strcmp(pair->key, check->last) == 0))
			continue;
		ck_assert_msg(to[0] != '\0' && strcmp(pair->key, to) >= 0, "missing %s after %s",
			      pair->key, check->last);
	}
}

static void check_scan(struct world *w, const char *from, const char *to, bool changing)
{
	struct scan_check check = {.w = w, .changing = changing};

	snprintf(check.last, sizeof(check.last), "%s", from);
	ck_assert_int_eq(md_kv_scan(w->kv, from, strlen(from), to, strlen(to), scan_pair, &check),
			 0);
	check_end(&check, to);
}

/* The same in pieces. */
static void check_scan_some(struct world *w, const char *from, const char *to, size_t steps)
{
	struct scan_check check = {.w = w, .changing = below(w, 2) == 0};
	struct gx_buf next;
	int r = -EAGAIN;

	gx_buf_init(&next, MD_KEY_MAX + 1);
	ck_assert_int_eq(gx_buf_append(&next, from, strlen(from)), 0);
	snprintf(check.last, sizeof(check.last), "%s", from);
	while (r == -EAGAIN) {
		unsigned char copy[MD_KEY_MAX + 1];
		size_t seen = check.seen, bytes = next.bytes;

		if (bytes > 0)
			memcpy(copy, next.data, bytes);
		r = md_kv_scan_some(w->kv, copy, bytes, to, strlen(to), steps, scan_pair, &check,
				    &next);
		ck_assert_uint_le(check.seen - seen, steps);
	}
	ck_assert_int_eq(r, 0);
	check_end(&check, to);
	gx_buf_fini(&next);
}

static void check_all(struct world *w)
{
	check_scan(w, "", "", false);
	for (size_t i = 0; i < w->model.count; i++)
		check_get(w, w->model.pairs[i].key);
}

static void check_bounds(struct world *w)
{
	struct md_kv_stats stats;

	md_kv_stats(w->kv, &stats);
	ck_assert_uint_le(stats.cache_bytes, w->options.cache_bytes);
	ck_assert(w->options.test_writer == 1 ||
		  md_kv_room(w->kv) ==
			  (stats.active_bytes + stats.frozen_bytes < w->options.overlay_bytes_max));
}

/* -- random operations ----------------------------------------------------------------------------
 */

static void random_key(struct world *w, char *key)
{
	snprintf(key, KEY_ROOM, "%c%0*u", (char)('A' + below(w, 3)), (int)below(w, 2) * 3 + 1,
		 (unsigned)below(w, 120));
}

static void random_change(struct world *w)
{
	struct md_tag tag = {1 + below(w, 3), w->applied + 1};
	char key[KEY_ROOM], value[VALUE_ROOM];

	random_key(w, key);
	memset(value, (int)('a' + below(w, 26)), sizeof(value));
	value[below(w, sizeof(value))] = '\0';
	value[sizeof(value) - 1] = '\0';
	put_tagged(w, key, below(w, 3) == 0 ? NULL : value, tag, below(w, 4) == 0);
}

static void random_operation(struct world *w)
{
	char from[KEY_ROOM], to[KEY_ROOM];

	random_key(w, from);
	random_key(w, to);
	switch (below(w, 12)) {
	case 0:
		if (strcmp(from, to) < 0)
			check_scan(w, from, to, below(w, 2) == 0);
		break;
	case 1:
		check_scan_some(w, from, "", 1 + below(w, 40));
		break;
	case 2:
		if (w->durable < w->applied)
			sync_to(w, w->durable + 1 + below(w, w->applied - w->durable));
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		check_get(w, from);
		break;
	default:
		for (uint64_t n = 1 + below(w, 4); n > 0; n--)
			random_change(w);
		apply(w);
		break;
	}
	check_bounds(w);
}

struct shape {
	size_t layer_bytes, cache_bytes;
};
static const struct shape shapes[] = {{1500, 0}, {1500, 3000}, {6000, 100000}, {1 << 20, 1 << 20}};
#define WRITERS 3
#define KINDS 2
#define CASES ((int)GX_COUNT_OF(shapes) * WRITERS * KINDS)

START_TEST(random_operations_give_the_answers_of_a_sorted_array)
{
	const struct shape *shape = &shapes[_i / (WRITERS * KINDS)];
	struct world *w =
		world_new(_i % KINDS, _i / KINDS % WRITERS, shape->layer_bytes, shape->cache_bytes);
	/* The disk really syncs: fewer where every command is a batch. */
	unsigned operations = w->options.test_writer == 2 ? 100 : 700;
	struct md_kv_stats stats;

	w->random += (uint64_t)_i * 7919;
	for (unsigned i = 0; i < operations; i++)
		random_operation(w);
	check_all(w);
	md_kv_stats(w->kv, &stats);
	if (w->options.test_writer == 1)
		ck_assert_uint_eq(stats.batches, 0);
	else if (w->options.test_writer == 2)
		ck_assert_uint_gt(stats.batches, operations / 20);
	else if (shape->layer_bytes < 10000)
		ck_assert_uint_gt(stats.batches, 5);
	world_free(w);
}
END_TEST

START_TEST(with_the_writer_after_every_command_a_reopened_kv_has_it_all)
{
	struct world *w = world_new(_i, 2, 1500, 3000);

	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < 20; i++) {
			random_change(w);
			apply(w);
			sync_to(w, w->applied);
		}
		ck_assert_uint_eq(world_reopen(w), w->applied);
		check_all(w);
	}
	world_free(w);
}
END_TEST

/* -- what the contract says
 * ------------------------------------------------------------------------ */

START_TEST(nothing_is_stored_before_the_log_is_on_disk)
{
	struct world *w = world_new(1, 0, 500, 0);

	while (w->applied < 100) {
		random_change(w);
		apply(w);
	}
	ck_assert_uint_eq(world_reopen(w), 0);
	world_free(w);
}
END_TEST

START_TEST(the_writer_tells_how_far_the_store_is)
{
	struct world *w = world_new(1, 0, 500, 10000);

	for (unsigned i = 0; i < 30; i++) {
		random_change(w);
		apply(w);
	}
	sync_to(w, 30);
	run_until_stored(w);
	ck_assert_int_eq(w->stored_err, 0);
	ck_assert_uint_gt(w->stored, 0);
	ck_assert_uint_eq(world_reopen(w) >= w->stored, 1);
	world_free(w);
}
END_TEST

START_TEST(a_full_overlay_has_no_room_until_it_is_stored)
{
	struct world *w = world_new(1, 0, 4000, 10000);
	struct md_kv_stats stats;

	while (md_kv_room(w->kv)) {
		random_change(w);
		apply(w);
		ck_assert_uint_lt(w->applied, 10000);
	}
	md_kv_stats(w->kv, &stats);
	ck_assert_uint_ge(stats.frozen_bytes, 4000);
	ck_assert_uint_lt(stats.frozen_bytes + stats.active_bytes, 4 * 4000 + 1000);
	sync_to(w, w->applied);
	run_until_stored(w);
	ck_assert(md_kv_room(w->kv));
	check_all(w);
	world_free(w);
}
END_TEST

START_TEST(a_store_that_cannot_be_written_is_reported_and_reading_goes_on)
{
	static const enum gx_fault_kind kinds[] = {GX_FAULT_WRITE, GX_FAULT_SYNC};
	struct gx_fault fault = {.kinds = 1ull << kinds[_i / 2], .nth = 1, .err = EIO};
	struct world *w = world_new(_i % 2, 0, 500, 10000);

	for (unsigned i = 0; i < 30; i++) {
		random_change(w);
		apply(w);
	}
	gx_env_posix()->fault = &fault;
	sync_to(w, w->applied);
	run_until_stored(w);
	gx_env_posix()->fault = NULL;
	ck_assert_int_eq(w->stored_err, -EIO);
	ck_assert_uint_eq(w->stored, 0);
	for (unsigned i = 0; i < 300; i++)
		random_operation(w);
	check_all(w);
	ck_assert_uint_eq(w->stored_calls, 1);
	world_free(w);
}
END_TEST

static void exit_42(void *arg, int err)
{
	(void)arg;
	_exit(err == -EIO ? 42 : 43);
}

START_TEST(a_store_that_cannot_be_read_ends_the_process)
{
	struct gx_fault fault = {.kinds = 1ull << GX_FAULT_READ, .nth = 1, .err = EIO};
	struct world *w = world_new(1, 0, 500, 0);
	pid_t pid;
	int status;

	w->options.fatal_fn = _i < 2 ? exit_42 : NULL;
	world_reopen(w);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		gx_env_posix()->fault = &fault;
		if (_i == 2)
			fclose(stderr);
		if (_i == 1)
			check_scan(w, "", "", false);
		else
			check_get(w, "a");
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), _i < 2 ? 42 : 1);
	world_free(w);
}
END_TEST

START_TEST(a_scan_stops_with_what_fn_returns)
{
	struct world *w = world_new(1, 0, 1500, 3000);
	struct scan_check check = {.w = w, .stop_after = 2};

	put(w, "a", "1");
	put(w, "b", "2");
	put(w, "c", "3");
	apply(w);
	ck_assert_int_eq(md_kv_scan(w->kv, "", 0, "", 0, scan_pair, &check), 77);
	ck_assert_uint_eq(check.seen, 2);
	world_free(w);
}
END_TEST

START_TEST(a_large_directory_is_walked_over_its_deletions_in_bounded_steps)
{
	struct world *w = world_new(_i, 2, 1500, 3000);
	struct scan_check check = {.w = w};
	struct gx_buf next;
	char key[KEY_ROOM];
	unsigned pieces = 0;
	size_t bytes = 0;

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "D%04u", i);
		put(w, key, "x");
	}
	apply(w);
	sync_to(w, w->applied);
	for (unsigned i = 0; i < 999; i++) {
		snprintf(key, sizeof(key), "D%04u", i);
		put(w, key, NULL);
	}
	gx_buf_init(&next, MD_KEY_MAX + 1);
	key[0] = '\0';
	while (md_kv_scan_some(w->kv, key, bytes, "", 0, 100, scan_pair, &check, &next) ==
	       -EAGAIN) {
		ck_assert_uint_lt(next.bytes, sizeof(key));
		memcpy(key, next.data, next.bytes);
		bytes = next.bytes;
		pieces++;
	}
	ck_assert_uint_eq(check.seen, 1);
	ck_assert_uint_eq(pieces, 10);
	gx_buf_fini(&next);
	world_free(w);
}
END_TEST

START_TEST(a_borrowed_value_may_be_put_back_and_used_as_a_key)
{
	static const size_t caches[] = {0, 3000};
	struct world *w = world_new(_i % 2, 2, 1500, caches[_i / 2]);
	char key[KEY_ROOM];

	for (unsigned i = 0; i < 200; i++) {
		const void *value;
		size_t bytes;

		snprintf(key, sizeof(key), "k%u", i % 40);
		put(w, key, key);
		apply(w);
		sync_to(w, w->applied);
		snprintf(key, sizeof(key), "k%u", (i * 7) % 40);
		if (md_kv_get(w->kv, key, strlen(key), &value, &bytes, NULL) < 0)
			continue;
		/* The value is the key: looked up, and put as both, straight from where it is. */
		ck_assert_int_eq(md_kv_get(w->kv, value, bytes, &value, &bytes, NULL), 0);
		md_kv_put(w->kv, value, bytes, value, bytes, (struct md_tag){0, 0}, false);
		model_set(&w->model, key, key, (struct md_tag){0, 0}, false);
		apply(w);
		check_get(w, key);
	}
	sync_to(w, w->applied);
	check_all(w);
	world_free(w);
}
END_TEST

START_TEST(keep_tag_keeps_the_earlier_tag_even_from_a_frozen_layer)
{
	struct world *w = world_new(1, 0, 1, 1000);
	struct md_tag tag;

	put_tagged(w, "a", "1", (struct md_tag){7, 1}, false);
	apply(w); /* frozen, not stored: the log is behind */
	put_tagged(w, "a", "2", (struct md_tag){8, 2}, true);
	put_tagged(w, "b", "2", (struct md_tag){8, 2}, true);
	apply(w);
	md_kv_tag(w->kv, "a", 1, &tag);
	ck_assert_uint_eq(tag.session, 7);
	ck_assert_uint_eq(tag.index, 1);
	md_kv_tag(w->kv, "b", 1, &tag);
	ck_assert_uint_eq(tag.index, 0);
	put_tagged(w, "a", NULL, (struct md_tag){9, 3}, false);
	md_kv_tag(w->kv, "a", 1, &tag);
	ck_assert_uint_eq(tag.session, 9);
	apply(w);
	sync_to(w, 3);
	md_kv_tag(w->kv, "a", 1, &tag);
	ck_assert_uint_eq(tag.index, 0);
	world_free(w);
}
END_TEST

START_TEST(half_a_command_is_never_frozen)
{
	struct world *w = world_new(1, 0, 1, 100000);
	struct md_kv_stats stats;

	put(w, "a", "1");
	apply(w);
	put(w, "b", "2"); /* the next command is under way when the writer is done */
	sync_to(w, 1);
	run_until_stored(w);
	md_kv_stats(w->kv, &stats);
	ck_assert_uint_eq(stats.batches, 1);
	ck_assert_uint_eq(stats.frozen_bytes, 0);
	ck_assert_uint_eq(stats.active_count, 1);
	apply(w);
	md_kv_stats(w->kv, &stats);
	ck_assert_uint_gt(stats.frozen_bytes, 0);
	world_free(w);
}
END_TEST

START_TEST(what_was_just_stored_is_still_in_memory)
{
	struct world *w = world_new(1, 0, 2400, 100000);
	struct md_kv_stats stats;

	for (unsigned i = 0; i < 30; i++) {
		random_change(w);
		apply(w);
	}
	sync_to(w, w->applied);
	run_until_stored(w);
	for (size_t i = 0; i < w->model.count; i++)
		check_get(w, w->model.pairs[i].key);
	md_kv_stats(w->kv, &stats);
	ck_assert_uint_eq(stats.batches, 1);
	ck_assert_uint_eq(stats.misses, 0);
	ck_assert_uint_eq(stats.hits, w->model.count);
	world_free(w);
}
END_TEST

START_TEST(a_missing_key_is_asked_of_the_store_once)
{
	struct world *w = world_new(1, 0, 10000, 100000);
	struct md_kv_stats stats;

	for (int i = 0; i < 5; i++)
		check_get(w, "nobody");
	md_kv_stats(w->kv, &stats);
	ck_assert_uint_eq(stats.misses, 1);
	ck_assert_uint_eq(stats.hits, 4);
	put(w, "nobody", "somebody");
	check_get(w, "nobody");
	world_free(w);
}
END_TEST

/* -- the parts
 * -------------------------------------------------------------------------------------- */

START_TEST(the_cache_keeps_its_bound_and_what_was_used_last)
{
	struct md_cache cache;
	char key[16];

	ck_assert_int_eq(md_cache_init(&cache, 20000), 0);
	for (uint32_t i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "%u", i);
		md_cache_put(&cache, key, strlen(key), i * 2654435761u, "value", i % 6);
		ck_assert_uint_le(cache.bytes, 20000);
		ck_assert_ptr_nonnull(md_cache_find(&cache, "0", 1, 0)); /* so it stays */
	}
	ck_assert_uint_gt(cache.count, 100);
	ck_assert_ptr_null(md_cache_find(&cache, "1", 1, 2654435761u));
	md_cache_put(&cache, "0", 1, 0, NULL, 0);
	ck_assert_uint_eq(md_cache_find(&cache, "0", 1, 0)->value_bytes, MD_CACHE_MISSING);
	md_cache_remove(&cache, "0", 1, 0);
	ck_assert_ptr_null(md_cache_find(&cache, "0", 1, 0));
	md_cache_fini(&cache);
}
END_TEST

START_TEST(a_skip_list_is_in_order_and_survives_equal_hashes)
{
	struct md_skip *skip;
	struct md_skip_node *put_node;
	const struct md_skip_node *node, *last = NULL;
	char key[16];
	size_t count = 0;

	ck_assert_int_eq(md_skip_new(0, 1, &skip), 0);
	for (unsigned i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "%u", i * 7919 % 3001);
		ck_assert_int_eq(
			md_skip_put(skip, key, strlen(key), i % 3, key, strlen(key), &put_node), 0);
	}
	for (node = md_skip_next(md_skip_before(skip, "", 0)); node != NULL;
	     last = node, node = md_skip_next(node), count++)
		ck_assert(last == NULL || md_key_compare(md_skip_key(last), last->key_bytes,
							 md_skip_key(node), node->key_bytes) < 0);
	ck_assert_uint_eq(count, 3000);
	ck_assert_uint_eq(md_skip_count(skip), 3000);
	node = md_skip_next(md_skip_before(skip, "2999", 4));
	ck_assert_mem_eq(md_skip_key(node), "2999", 4);
	md_skip_free(skip);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_kv");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, random_operations_give_the_answers_of_a_sorted_array, 0, CASES);
	tcase_add_loop_test(tc, with_the_writer_after_every_command_a_reopened_kv_has_it_all, 0,
			    KINDS);
	tcase_add_test(tc, nothing_is_stored_before_the_log_is_on_disk);
	tcase_add_test(tc, the_writer_tells_how_far_the_store_is);
	tcase_add_test(tc, a_full_overlay_has_no_room_until_it_is_stored);
	tcase_add_loop_test(tc, a_store_that_cannot_be_written_is_reported_and_reading_goes_on, 0,
			    4);
	tcase_add_loop_test(tc, a_store_that_cannot_be_read_ends_the_process, 0, 3);
	tcase_add_test(tc, a_scan_stops_with_what_fn_returns);
	tcase_add_loop_test(tc, a_large_directory_is_walked_over_its_deletions_in_bounded_steps, 0,
			    KINDS);
	tcase_add_loop_test(tc, a_borrowed_value_may_be_put_back_and_used_as_a_key, 0, 4);
	tcase_add_test(tc, keep_tag_keeps_the_earlier_tag_even_from_a_frozen_layer);
	tcase_add_test(tc, half_a_command_is_never_frozen);
	tcase_add_test(tc, what_was_just_stored_is_still_in_memory);
	tcase_add_test(tc, a_missing_key_is_asked_of_the_store_once);
	tcase_add_test(tc, the_cache_keeps_its_bound_and_what_was_used_last);
	tcase_add_test(tc, a_skip_list_is_in_order_and_survives_equal_hashes);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
