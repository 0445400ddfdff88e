/* Both stores, the same cases; then what only one of them has. */
#include "metad/md_store.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <leveldb/c.h>
#include <stdio.h>
#include <unistd.h>

#define GX_LOG_COMPONENT "test"
#include "common/gx_log.h"

static char dir[64];
static char path[96];
static unsigned errors_logged;

static void count_line(void *arg, enum gx_log_level level, const char *line)
{
	(void)arg;
	(void)line;
	errors_logged += level == GX_LOG_ERR;
}

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(name);
}

static void setup(void)
{
	memcpy(dir, "/tmp/md_store.XXXXXX", 21);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/store", dir);
	errors_logged = 0;
	gx_log_to_callback(count_line, NULL);
}

static void teardown(void)
{
	gx_env_posix()->fault = NULL;
	gx_log_to_stderr();
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* _i: 0 LevelDB, 1 memory. */
static int store_open(int kind, struct md_store **ret_store)
{
	return kind == 0 ? md_store_open_leveldb(gx_env_posix(), path, 1 << 20, ret_store)
			 : md_store_open_mem(gx_env_posix(), path, ret_store);
}

static struct md_store *must_open(int kind)
{
	struct md_store *store;

	ck_assert_int_eq(store_open(kind, &store), 0);
	return store;
}

static void put(struct md_store_batch *batch, const char *key, const char *value)
{
	ck_assert_int_eq(md_store_batch_put(batch, key, strlen(key), value, strlen(value)), 0);
}

/* "a=1 b= c" : puts a and an empty b, deletes c. One batch. */
static int write_text(struct md_store *store, const char *text)
{
	struct md_store_batch batch;
	char copy[256];
	char *save = copy, *word;
	int r;

	md_store_batch_init(&batch, 1 << 20);
	snprintf(copy, sizeof(copy), "%s", text);
	while ((word = strsep(&save, " ")) != NULL) {
		char *value = strchr(word, '=');

		if (value == NULL) {
			ck_assert_int_eq(md_store_batch_delete(&batch, word, strlen(word)), 0);
			continue;
		}
		*value = '\0';
		put(&batch, word, value + 1);
	}
	r = store->ops->write(store, &batch);
	md_store_batch_fini(&batch);
	return r;
}

static const char *get(struct md_store *store, const char *key)
{
	static char text[128];
	struct gx_buf value;
	int r;

	gx_buf_init(&value, MD_VALUE_MAX);
	r = store->ops->get(store, key, strlen(key), &value);
	snprintf(text, sizeof(text), "%.*s", r < 0 ? 0 : (int)value.bytes, (char *)value.data);
	gx_buf_fini(&value);
	return r == -ENOENT ? "(none)" : r < 0 ? gx_strerror(r) : text;
}

static const char *rest(struct md_store *store, struct md_store_iter *iter)
{
	static char text[512];
	const void *key, *value;
	size_t key_bytes, value_bytes, at = 0;
	int r;

	text[0] = '\0';
	while ((r = store->ops->iter_next(iter, &key, &key_bytes, &value, &value_bytes)) == 1)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%.*s=%.*s",
				       at > 0 ? " " : "", (int)key_bytes, (const char *)key,
				       (int)value_bytes, (const char *)value);
	ck_assert_int_eq(r, 0);
	/* The end stays the end. */
	ck_assert_int_eq(store->ops->iter_next(iter, &key, &key_bytes, &value, &value_bytes), 0);
	return text;
}

static const char *all(struct md_store *store, const char *from)
{
	struct md_store_iter *iter;
	const char *text;

	ck_assert_int_eq(store->ops->iter_open(store, from, strlen(from), &iter), 0);
	text = rest(store, iter);
	store->ops->iter_close(iter);
	return text;
}

/* -- batches ------------------------------------------------------------------------------- */

static int append_change(void *arg, const void *key, size_t key_bytes, const void *value,
			 size_t value_bytes)
{
	struct gx_buf *text = arg;

	return gx_buf_append_format(text, "%.*s%s%.*s ", (int)key_bytes, (const char *)key,
				    value != NULL ? "=" : "!", (int)value_bytes,
				    value != NULL ? (const char *)value : "");
}

START_TEST(a_batch_gives_back_its_changes_in_order)
{
	struct md_store_batch batch;
	struct gx_buf text;

	gx_buf_init(&text, 1000);
	md_store_batch_init(&batch, 1000);
	put(&batch, "b", "1");
	put(&batch, "a", "");
	ck_assert_int_eq(md_store_batch_delete(&batch, "b", 1), 0);
	ck_assert_uint_eq(batch.count, 3);
	ck_assert_int_eq(md_store_batch_each(&batch, append_change, &text), 0);
	ck_assert_str_eq(gx_buf_text(&text), "b=1 a= b! ");
	md_store_batch_clear(&batch);
	gx_buf_clear(&text);
	ck_assert_int_eq(md_store_batch_each(&batch, append_change, &text), 0);
	ck_assert_uint_eq(text.bytes + batch.count, 0);
	md_store_batch_fini(&batch);
	gx_buf_fini(&text);
}
END_TEST

START_TEST(a_full_batch_says_e2big_and_stays_as_it_was)
{
	struct md_store_batch batch;

	md_store_batch_init(&batch, 20);
	put(&batch, "key", "0123456789");
	ck_assert_int_eq(md_store_batch_put(&batch, "k", 1, "v", 1), -E2BIG);
	ck_assert_uint_eq(batch.count, 1);
	md_store_batch_fini(&batch);
}
END_TEST

static int nothing(void *arg, const void *key, size_t key_bytes, const void *value,
		   size_t value_bytes)
{
	(void)arg;
	(void)key;
	(void)key_bytes;
	(void)value;
	(void)value_bytes;
	return 0;
}

START_TEST(an_encoded_batch_cut_anywhere_is_ebadmsg_or_whole_changes)
{
	struct md_store_batch batch;

	md_store_batch_init(&batch, 1000);
	put(&batch, "key", "value");
	put(&batch, "kez", "");
	for (size_t bytes = 0; bytes <= batch.bytes.bytes; bytes++) {
		/* Exactly as many bytes on the heap, so that ASan sees a read past them. */
		unsigned char *copy = malloc(bytes > 0 ? bytes : 1);
		int r;

		memcpy(copy, batch.bytes.data, bytes);
		r = md_store_batch_decode(copy, bytes, nothing, NULL);
		ck_assert_int_eq(
			r, bytes == 0 || bytes == 14 || bytes == batch.bytes.bytes ? 0 : -EBADMSG);
		free(copy);
	}
	md_store_batch_fini(&batch);
}
END_TEST

/* -- both stores ------------------------------------------------------------------------------ */

START_TEST(what_was_written_is_there_and_after_reopening_too)
{
	struct md_store *store = must_open(_i);

	ck_assert_str_eq(get(store, "a"), "(none)");
	ck_assert_str_eq(all(store, ""), "");
	ck_assert_int_eq(write_text(store, "b=2 a=1 c=3"), 0);
	ck_assert_int_eq(write_text(store, "b c=33 d="), 0);
	for (int round = 0; round < 3; round++) {
		ck_assert_str_eq(get(store, "a"), "1");
		ck_assert_str_eq(get(store, "b"), "(none)");
		ck_assert_str_eq(get(store, "d"), "");
		ck_assert_str_eq(all(store, ""), "a=1 c=33 d=");
		ck_assert_str_eq(all(store, "b"), "c=33 d=");
		ck_assert_str_eq(all(store, "c"), "c=33 d=");
		ck_assert_str_eq(all(store, "dd"), "");
		store->ops->close(store);
		store = must_open(_i);
	}
	store->ops->close(store);
	ck_assert_uint_eq(errors_logged, 0);
}
END_TEST

START_TEST(the_last_change_of_a_key_in_a_batch_wins)
{
	struct md_store *store = must_open(_i);

	ck_assert_int_eq(write_text(store, "a=1 a a=2 b=1 b"), 0);
	ck_assert_str_eq(all(store, ""), "a=2");
	store->ops->close(store);
}
END_TEST

START_TEST(keys_are_ordered_as_bytes)
{
	struct md_store *store = must_open(_i);

	ck_assert_int_eq(write_text(store, "b=1 \xff=2 a=3 a\x01=4 aa=5 B=6"), 0);
	ck_assert_str_eq(all(store, ""), "B=6 a=3 a\x01=4 aa=5 b=1 \xff=2");
	store->ops->close(store);
}
END_TEST

START_TEST(keys_with_a_leading_zero_are_found_but_not_listed)
{
	struct md_store *store = must_open(_i);
	struct md_store_batch batch;
	struct gx_buf value;

	gx_buf_init(&value, MD_VALUE_MAX);
	md_store_batch_init(&batch, 100);
	ck_assert_int_eq(md_store_batch_put(&batch, "\0x", 2, "1", 1), 0);
	put(&batch, "a", "2");
	ck_assert_int_eq(store->ops->write(store, &batch), 0);
	ck_assert_int_eq(store->ops->get(store, "\0x", 2, &value), 0);
	ck_assert_str_eq(gx_buf_text(&value), "1");
	ck_assert_str_eq(all(store, ""), "a=2");
	md_store_batch_fini(&batch);
	gx_buf_fini(&value);
	store->ops->close(store);
}
END_TEST

START_TEST(an_iterator_does_not_see_later_writes)
{
	struct md_store *store = must_open(_i);
	struct md_store_iter *fresh, *begun, *late;
	const void *key, *value;
	size_t key_bytes, value_bytes;

	ck_assert_int_eq(write_text(store, "a=1 b=2 c=3 d=4"), 0);
	ck_assert_int_eq(store->ops->iter_open(store, "", 0, &fresh), 0);
	ck_assert_int_eq(store->ops->iter_open(store, "", 0, &begun), 0);
	ck_assert_int_eq(store->ops->iter_next(begun, &key, &key_bytes, &value, &value_bytes), 1);
	ck_assert_int_eq(write_text(store, "b c=333333333333 bb=new a"), 0);
	ck_assert_int_eq(write_text(store, "d"), 0);
	ck_assert_int_eq(store->ops->iter_open(store, "", 0, &late), 0);
	ck_assert_str_eq(rest(store, fresh), "a=1 b=2 c=3 d=4");
	ck_assert_str_eq(rest(store, begun), "b=2 c=3 d=4");
	ck_assert_str_eq(rest(store, late), "bb=new c=333333333333");
	store->ops->iter_close(begun);
	store->ops->iter_close(late);
	store->ops->iter_close(fresh);
	store->ops->close(store);
}
END_TEST

START_TEST(the_largest_key_and_value_fit)
{
	struct md_store *store = must_open(_i);
	struct md_store_batch batch;
	struct gx_buf value;
	unsigned char key[MD_KEY_MAX];
	unsigned char *data = malloc(MD_VALUE_MAX);

	memset(key, 'k', sizeof(key));
	for (size_t i = 0; i < MD_VALUE_MAX; i++)
		data[i] = (unsigned char)(i * 31 >> 3);
	gx_buf_init(&value, MD_VALUE_MAX);
	md_store_batch_init(&batch, 1 << 20);
	ck_assert_int_eq(md_store_batch_put(&batch, key, sizeof(key), data, MD_VALUE_MAX), 0);
	ck_assert_int_eq(store->ops->write(store, &batch), 0);
	store->ops->close(store);
	store = must_open(_i);
	ck_assert_int_eq(store->ops->get(store, key, sizeof(key), &value), 0);
	ck_assert_uint_eq(value.bytes, MD_VALUE_MAX);
	ck_assert(memcmp(value.data, data, MD_VALUE_MAX) == 0);
	md_store_batch_fini(&batch);
	gx_buf_fini(&value);
	free(data);
	store->ops->close(store);
}
END_TEST

START_TEST(many_overwrites_keep_the_last_values)
{
	struct md_store *store = must_open(_i);
	char text[64], key[16];

	for (unsigned i = 0; i < 407; i++) {
		snprintf(text, sizeof(text), "k%u=%u gone%u=1 gone%u", i % 7, i, i % 50,
			 (i + 20) % 50);
		ck_assert_int_eq(write_text(store, text), 0);
	}
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 400; i < 407; i++) {
			snprintf(key, sizeof(key), "k%u", i % 7);
			snprintf(text, sizeof(text), "%u", i);
			ck_assert_str_eq(get(store, key), text);
		}
		ck_assert_str_eq(get(store, "gone6"), "1");
		ck_assert_str_eq(get(store, "gone26"), "(none)");
		store->ops->close(store);
		store = must_open(_i);
	}
	store->ops->close(store);
}
END_TEST

START_TEST(a_failed_write_leaves_all_or_nothing_and_no_write_follows)
{
	static const enum gx_fault_kind kinds[] = {GX_FAULT_WRITE, GX_FAULT_SYNC};

	for (size_t k = 0; k < GX_COUNT_OF(kinds); k++) {
		struct md_store *store = must_open(_i);
		struct gx_fault fault = {.kinds = 1ull << kinds[k], .nth = 1, .err = EIO};
		const char *text;

		ck_assert_int_eq(write_text(store, "a=1 b=1"), 0);
		gx_env_posix()->fault = &fault;
		ck_assert_int_eq(write_text(store, "a=2 b=2"), -EIO);
		gx_env_posix()->fault = NULL;
		ck_assert_uint_eq(fault.fired, 1);
		ck_assert_int_eq(write_text(store, "a=3 b=3"), -EIO);
		ck_assert_str_eq(get(store, "a"), "1");
		store->ops->close(store);
		store = must_open(_i);
		text = all(store, "");
		ck_assert_msg(strcmp(text, "a=1 b=1") == 0 || strcmp(text, "a=2 b=2") == 0, "%s",
			      text);
		store->ops->close(store);
	}
}
END_TEST

START_TEST(failed_reads_say_so)
{
	struct md_store *store = must_open(_i);
	struct md_store_iter *iter;
	struct gx_fault fault = {.kinds = 1ull << GX_FAULT_READ, .nth = 1, .repeat = 2};

	ck_assert_int_eq(write_text(store, "a=1"), 0);
	gx_env_posix()->fault = &fault;
	ck_assert_str_eq(get(store, "a"), gx_strerror(-EIO));
	ck_assert_int_eq(store->ops->iter_open(store, "", 0, &iter), -EIO);
	gx_env_posix()->fault = NULL;
	ck_assert_str_eq(get(store, "a"), "1");
	store->ops->close(store);
}
END_TEST

/* Both of the next keep writing until told: readers never see half a batch. */
struct race {
	struct md_store *store;
	atomic_bool stop;
};

static void race_writer(void *arg)
{
	struct race *race = arg;
	char text[64];

	for (unsigned i = 1; !atomic_load(&race->stop); i++) {
		snprintf(text, sizeof(text), "a=%u b=%u c%u=x c%u", i, i, i % 9, (i + 4) % 9);
		ck_assert_int_eq(write_text(race->store, text), 0);
	}
}

START_TEST(readers_beside_a_writer_see_whole_batches)
{
	struct race race = {.store = must_open(_i)};
	struct gx_thread thread;

	ck_assert_int_eq(write_text(race.store, "a=0 b=0"), 0);
	ck_assert_int_eq(gx_env_thread_start(gx_env_posix(), &thread, "w", race_writer, &race), 0);
	for (int i = 0; i < 3000; i++) {
		unsigned a, b;

		ck_assert_int_eq(sscanf(all(race.store, ""), "a=%u b=%u", &a, &b), 2);
		ck_assert_uint_eq(a, b);
		ck_assert_int_eq(sscanf(get(race.store, "b"), "%u", &a), 1);
		ck_assert_uint_ge(a, b);
	}
	atomic_store(&race.stop, true);
	gx_env_thread_join(gx_env_posix(), &thread);
	race.store->ops->close(race.store);
}
END_TEST

/* -- formats (rule N18) --------------------------------------------------------------------------
 */

/* The memory store's file, version 1, with one batch: a=1, b deleted. */
static const unsigned char mem_v1[] = {
	0x67, 0x73, 0x2d, 0x73, 0x74, 0x6f, 0x72, 0x65, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x72, 0x64, 0x23, 0x83, 0x9a,
	0x2b, 0x85, 0xc4, 0xa7, 0x5b, 0x7c, 0x0f, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0xf5, 0x31, 0x7c, 0xea, 0xb6, 0xaf, 0x13, 0x48, 0x01, 0x00, 0x01, 0x00,
	0x00, 0x00, 0x61, 0x31, 0x01, 0x00, 0xff, 0xff, 0xff, 0xff, 0x62, 0x00,
};

START_TEST(a_file_of_version_1_can_be_read)
{
	struct md_store *store;
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(mem_v1, 1, sizeof(mem_v1), f), sizeof(mem_v1));
	fclose(f);
	store = must_open(1);
	ck_assert_str_eq(all(store, ""), "a=1");
	store->ops->close(store);
}
END_TEST

/* Rewrites a part of the file. */
static void patch(const char *name, long offset, const void *bytes, size_t count)
{
	FILE *f = fopen(name, "r+");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, offset, SEEK_SET), 0);
	ck_assert_uint_eq(fwrite(bytes, 1, count, f), count);
	fclose(f);
}

START_TEST(a_newer_mem_file_is_refused_and_garbage_is_ebadmsg)
{
	unsigned char header[32];
	struct md_store *store = must_open(1);

	store->ops->close(store);
	memcpy(header, mem_v1, sizeof(header));
	gx_put_le32(header + 8, MD_STORE_VERSION + 1);
	gx_put_le64(header + 24, gx_sum64(header, 24));
	patch(path, 0, header, sizeof(header));
	ck_assert_int_eq(store_open(1, &store), -EPROTONOSUPPORT);
	patch(path, 0, "x", 1);
	ck_assert_int_eq(store_open(1, &store), -EBADMSG);
}
END_TEST

static void raw_leveldb_put(const char *key, size_t key_bytes, const char *value,
			    size_t value_bytes)
{
	leveldb_options_t *options = leveldb_options_create();
	leveldb_writeoptions_t *writing = leveldb_writeoptions_create();
	char *text = NULL;
	leveldb_t *db;

	leveldb_options_set_create_if_missing(options, 1);
	db = leveldb_open(options, path, &text);
	ck_assert_ptr_null(text);
	if (value != NULL)
		leveldb_put(db, writing, key, key_bytes, value, value_bytes, &text);
	else
		leveldb_delete(db, writing, key, key_bytes, &text);
	ck_assert_ptr_null(text);
	leveldb_close(db);
	leveldb_options_destroy(options);
	leveldb_writeoptions_destroy(writing);
}

START_TEST(a_newer_leveldb_is_refused_and_a_foreign_one_is_ebadmsg)
{
	struct md_store *store = must_open(0);

	store->ops->close(store);
	raw_leveldb_put("\0\0format", 8, "\2\0\0", 4);
	ck_assert_int_eq(store_open(0, &store), -EPROTONOSUPPORT);
	raw_leveldb_put("\0\0format", 8, "\2", 1);
	ck_assert_int_eq(store_open(0, &store), -EBADMSG);
	raw_leveldb_put("\0\0format", 8, NULL, 0);
	raw_leveldb_put("key", 3, "value", 5);
	ck_assert_int_eq(store_open(0, &store), -EBADMSG);
}
END_TEST

/* -- torn and damaged
 * ------------------------------------------------------------------------------ */

static off_t file_bytes(const char *name)
{
	struct stat st;

	ck_assert_int_eq(stat(name, &st), 0);
	return st.st_size;
}

START_TEST(a_torn_last_record_is_cut_and_a_damaged_one_before_is_ebadmsg)
{
	struct md_store *store = must_open(1);
	off_t first, second;

	ck_assert_int_eq(write_text(store, "a=12"), 0);
	first = file_bytes(path);
	ck_assert_int_eq(write_text(store, "b=2"), 0);
	second = file_bytes(path);
	store->ops->close(store);
	for (off_t bytes = first; bytes < second; bytes++) {
		ck_assert_int_eq(truncate(path, bytes), 0);
		store = must_open(1);
		ck_assert_str_eq(all(store, ""), "a=12");
		ck_assert_int_eq(file_bytes(path), first);
		ck_assert_int_eq(write_text(store, "b=2"), 0);
		store->ops->close(store);
		store = must_open(1);
		ck_assert_str_eq(all(store, ""), "a=12 b=2");
		store->ops->close(store);
	}
	patch(path, first - 1, "x", 1); /* padding is not summed */
	store = must_open(1);
	store->ops->close(store);
	patch(path, first - 8, "x", 1); /* the value is */
	ck_assert_int_eq(store_open(1, &store), -EBADMSG);
}
END_TEST

/* LevelDB's own log: the newest file named *.log. */
static void leveldb_log(char *name, size_t bytes)
{
	char command[160];
	FILE *p;

	snprintf(command, sizeof(command), "ls -t %s/*.log | head -n 1", path);
	p = popen(command, "r");
	ck_assert_ptr_nonnull(p);
	ck_assert_ptr_nonnull(fgets(name, (int)bytes, p));
	pclose(p);
	name[strcspn(name, "\n")] = '\0';
}

/* A batch over several of LevelDB's blocks of 32 KiB. */
static void write_large(struct md_store *store, char letter)
{
	struct md_store_batch batch;
	char *value = malloc(100000);

	memset(value, letter, 100000);
	md_store_batch_init(&batch, 1 << 20);
	ck_assert_int_eq(md_store_batch_put(&batch, "large", 5, value, 100000), 0);
	put(&batch, "letter", (char[]){letter, 0});
	ck_assert_int_eq(store->ops->write(store, &batch), 0);
	md_store_batch_fini(&batch);
	free(value);
}

START_TEST(a_torn_end_of_leveldbs_log_is_dropped_and_a_hole_in_it_is_ebadmsg)
{
	struct md_store *store = must_open(0);
	char zeros[512] = {0};
	char name[128];
	off_t before;

	write_large(store, 'a');
	leveldb_log(name, sizeof(name));
	before = file_bytes(name);
	write_large(store, 'b');
	store->ops->close(store);
	/* A sector of the last batch did not reach the disk, those behind it did. */
	patch(name, before + 50000, zeros, sizeof(zeros));
	store = must_open(0);
	ck_assert_str_eq(get(store, "letter"), "a");
	ck_assert_uint_gt(errors_logged, 0);
	/* A batch in the middle is lost: that is no torn end. */
	write_large(store, 'c');
	leveldb_log(name, sizeof(name));
	write_large(store, 'd');
	store->ops->close(store);
	patch(name, 50000, zeros, sizeof(zeros));
	ck_assert_int_eq(store_open(0, &store), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_store");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_batch_gives_back_its_changes_in_order);
	tcase_add_test(tc, a_full_batch_says_e2big_and_stays_as_it_was);
	tcase_add_test(tc, an_encoded_batch_cut_anywhere_is_ebadmsg_or_whole_changes);
	tcase_add_loop_test(tc, what_was_written_is_there_and_after_reopening_too, 0, 2);
	tcase_add_loop_test(tc, the_last_change_of_a_key_in_a_batch_wins, 0, 2);
	tcase_add_loop_test(tc, keys_are_ordered_as_bytes, 0, 2);
	tcase_add_loop_test(tc, keys_with_a_leading_zero_are_found_but_not_listed, 0, 2);
	tcase_add_loop_test(tc, an_iterator_does_not_see_later_writes, 0, 2);
	tcase_add_loop_test(tc, the_largest_key_and_value_fit, 0, 2);
	tcase_add_loop_test(tc, many_overwrites_keep_the_last_values, 0, 2);
	tcase_add_loop_test(tc, a_failed_write_leaves_all_or_nothing_and_no_write_follows, 0, 2);
	tcase_add_loop_test(tc, failed_reads_say_so, 0, 2);
	tcase_add_loop_test(tc, readers_beside_a_writer_see_whole_batches, 0, 2);
	tcase_add_test(tc, a_file_of_version_1_can_be_read);
	tcase_add_test(tc, a_newer_mem_file_is_refused_and_garbage_is_ebadmsg);
	tcase_add_test(tc, a_newer_leveldb_is_refused_and_a_foreign_one_is_ebadmsg);
	tcase_add_test(tc, a_torn_last_record_is_cut_and_a_damaged_one_before_is_ebadmsg);
	tcase_add_test(tc, a_torn_end_of_leveldbs_log_is_dropped_and_a_hole_in_it_is_ebadmsg);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
