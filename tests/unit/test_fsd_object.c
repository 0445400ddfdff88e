/*
 * Objects in a spool on real files: what they hold, against a plain buffer; flipped bits; holes;
 * threads; disks that are full or fail. What a crash leaves: tests/sim/test_sim_fsd_object.c.
 */
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include "fsd/fsd_object_impl.h"
#include "fsd/fsd_sum.h"
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#define BLOCK FSD_BLOCK_BYTES
#define REGION FSD_REGION_BYTES
#define MODEL_MAX (4u * REGION)

static char dir[128];
static struct gx_env env; /* the posix one, with a fault */
static struct gx_fault fault;
static struct fsd_spool *spool;
static const struct fsd_object_id id1 = {.ino = 0x123456, .generation = 7};

/* -- fixture ------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void make_dir_for_test(void)
{
	const char *tmp = getenv("TMPDIR");

	ck_assert_int_eq(gx_format(dir, sizeof(dir), "%s/test_fsd_object.XXXXXX",
				   tmp != NULL ? tmp : "/tmp"),
			 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	memset(&fault, 0, sizeof(fault));
	env = *gx_env_posix();
	env.fault = &fault;
}

static void setup(void)
{
	make_dir_for_test();
	ck_assert_int_eq(fsd_spool_open(&env, dir, true, &spool), 0);
}

static void remove_dir(void)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void teardown(void)
{
	fsd_spool_close(spool);
	remove_dir();
}

static struct fsd_object *create(void)
{
	struct fsd_object *object;

	ck_assert_int_eq(fsd_object_create(spool, &id1, &object), 0);
	return object;
}

static struct fsd_object *open_it(void)
{
	struct fsd_object *object;

	ck_assert_int_eq(fsd_object_open(spool, &id1, &object), 0);
	return object;
}

static void put(struct fsd_object *object, const void *data, size_t bytes, uint64_t offset)
{
	ck_assert_int_eq(fsd_object_write(object, data, bytes, offset), 0);
}

static void fill(struct fsd_object *object, uint8_t byte, size_t bytes, uint64_t offset)
{
	GX_AUTOFREE uint8_t *data = malloc(bytes);

	ck_assert_ptr_nonnull(data);
	memset(data, byte, bytes);
	put(object, data, bytes, offset);
}

static void check_filled(struct fsd_object *object, uint8_t byte, size_t bytes, uint64_t offset)
{
	GX_AUTOFREE uint8_t *data = malloc(bytes);

	ck_assert_ptr_nonnull(data);
	ck_assert_int_eq(fsd_object_read(object, data, bytes, offset, NULL), (ssize_t)bytes);
	for (size_t i = 0; i < bytes; i++)
		if (data[i] != byte)
			ck_abort_msg("byte %zu is %u, not %u", i, data[i], byte);
}

static const char *path_of(const char *suffix)
{
	static char path[PATH_MAX];

	ck_assert_int_eq(fsd_spool_object_path(spool, &id1, suffix, path), 0);
	return path;
}

static void flip(const char *path, uint64_t bit)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
	byte ^= (uint8_t)(1u << bit % 8);
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
	close(fd);
}

/* Counts the calls of a kind from now on, and fails the nth (0: none). */
static void fail_nth(enum gx_fault_kind kind, uint64_t nth, uint64_t repeat, int err)
{
	fault.kinds = UINT64_C(1) << kind;
	fault.repeat = repeat;
	fault.err = err;
	fault.count = 0;
	fault.fired = 0;
	fault.nth = nth;
}

/* As ck_assert, without a note in check's file for each that holds: for loops over bytes. */
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			ck_abort_msg("%s", #cond);                                                 \
	} while (0)

static uint64_t rng;

static uint64_t draw(uint64_t bound)
{
	uint64_t z = rng += 0x9E3779B97F4A7C15u;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return (z ^ (z >> 31)) % bound;
}

/* -- the spool ------------------------------------------------------------------------------- */

START_TEST(an_empty_directory_is_a_spool_only_if_asked_for)
{
	uint8_t uuid[16];
	uint8_t again[16];

	make_dir_for_test();
	ck_assert_int_eq(fsd_spool_open(&env, dir, false, &spool), -ENODEV);
	ck_assert_int_eq(fsd_spool_open(&env, dir, true, &spool), 0);
	fsd_spool_uuid(spool, uuid);
	fsd_spool_close(spool);
	ck_assert_int_eq(fsd_spool_open(&env, dir, false, &spool), 0);
	fsd_spool_uuid(spool, again);
	ck_assert_mem_eq(uuid, again, sizeof(uuid));
	fsd_spool_close(spool);
	remove_dir();
}
END_TEST

START_TEST(a_directory_with_other_things_does_not_become_a_spool)
{
	char path[160];
	int fd;

	make_dir_for_test();
	gx_format(path, sizeof(path), "%s/precious", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(fsd_spool_open(&env, dir, true, &spool), -ENOTEMPTY);
	remove_dir();
}
END_TEST

START_TEST(a_spool_has_one_owner)
{
	struct fsd_spool *other;

	ck_assert_int_eq(fsd_spool_open(&env, dir, false, &other), -EBUSY);
}
END_TEST

START_TEST(every_flipped_bit_of_the_spool_file_is_noticed)
{
	char path[160];

	gx_format(path, sizeof(path), "%s/spool", dir);
	fsd_spool_close(spool);
	for (uint64_t bit = 0; bit < 64 * 8; bit++) {
		flip(path, bit);
		ck_assert_int_eq(fsd_spool_open(&env, dir, false, &spool), -EBADMSG);
		flip(path, bit);
	}
	ck_assert_int_eq(fsd_spool_open(&env, dir, false, &spool), 0);
}
END_TEST

/* Sets the version in a header of 64 bytes and makes its checksum right. */
static void set_version(const char *path, uint32_t version)
{
	uint8_t bytes[64];
	int fd = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, bytes, sizeof(bytes), 0), 64);
	gx_put_le32(bytes + 8, version);
	gx_put_le64(bytes + 56, gx_sum64(bytes, 56));
	ck_assert_int_eq(pwrite(fd, bytes, sizeof(bytes), 0), 64);
	close(fd);
}

START_TEST(newer_formats_are_refused)
{
	struct fsd_object *object = create();
	char path[160];

	ck_assert_int_eq(fsd_object_sync(object), 0);
	fsd_object_close(object);
	set_version(path_of(".sum"), FSD_SUM_VERSION + 1);
	ck_assert_int_eq(fsd_object_open(spool, &id1, &object), -EPROTONOSUPPORT);
	set_version(path_of(".sum"), FSD_SUM_VERSION);
	fsd_object_close(open_it());

	gx_format(path, sizeof(path), "%s/spool", dir);
	fsd_spool_close(spool);
	set_version(path, FSD_SPOOL_VERSION + 1);
	ck_assert_int_eq(fsd_spool_open(&env, dir, false, &spool), -EPROTONOSUPPORT);
	set_version(path, FSD_SPOOL_VERSION);
	ck_assert_int_eq(fsd_spool_open(&env, dir, false, &spool), 0);
}
END_TEST

struct seen {
	unsigned count;
	uint64_t ino_sum, bytes;
};

static int see(void *arg, const struct fsd_object_id *id, uint64_t bytes)
{
	struct seen *seen = arg;

	seen->count++;
	seen->ino_sum += id->ino;
	seen->bytes += bytes;
	return 0;
}

START_TEST(each_shows_all_objects_and_quarantine_takes_one_away)
{
	struct seen seen = {0};
	struct fsd_object *object;

	for (uint64_t ino = 1; ino <= 2000; ino += 100) {
		struct fsd_object_id id = {.ino = ino << 6, .generation = 1};

		ck_assert_int_eq(fsd_object_create(spool, &id, &object), 0);
		fill(object, 1, 10, 0);
		fsd_object_close(object);
	}
	object = create();
	ck_assert_int_eq(fsd_spool_quarantine(spool, &id1), -EBUSY);
	fsd_object_close(object);
	ck_assert_int_eq(fsd_spool_each(spool, see, &seen), 0);
	ck_assert_uint_eq(seen.count, 21);
	ck_assert_uint_eq(seen.bytes, 200);
	ck_assert_int_eq(fsd_spool_quarantine(spool, &id1), 0);
	ck_assert_int_eq(fsd_spool_quarantine(spool, &id1), -ENOENT);
	ck_assert_int_eq(fsd_object_open(spool, &id1, &object), -ENOENT);
	seen.count = 0;
	ck_assert_int_eq(fsd_spool_each(spool, see, &seen), 0);
	ck_assert_uint_eq(seen.count, 20);
}
END_TEST

/* -- life -------------------------------------------------------------------------------------- */

START_TEST(an_object_is_one_struct_however_often_it_is_open)
{
	struct fsd_object *object;
	struct fsd_object *a = create();
	struct fsd_object *b;

	ck_assert_int_eq(fsd_object_create(spool, &id1, &object), -EEXIST);
	b = open_it();
	ck_assert_ptr_eq(a, b);
	fsd_object_close(a);
	fsd_object_close(b);
	ck_assert_int_eq(fsd_object_create(spool, &id1, &object), -EEXIST);
	ck_assert_int_eq(fsd_object_open(spool, &(struct fsd_object_id){id1.ino, 8}, &object),
			 -ENOENT);
}
END_TEST

START_TEST(a_removed_object_lives_until_it_is_closed)
{
	struct fsd_object *object = create();
	struct fsd_object *other;

	fill(object, 5, 5000, 0);
	ck_assert_int_eq(fsd_object_remove(spool, &id1), 0);
	ck_assert_int_eq(fsd_object_remove(spool, &id1), -ENOENT);
	ck_assert_int_eq(fsd_object_open(spool, &id1, &other), -ENOENT);
	fill(object, 6, 100, 5000);
	check_filled(object, 5, 5000, 0);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	fsd_object_close(object);
	object = create();
	ck_assert_uint_eq(fsd_object_size(object), 0);
	fsd_object_close(object);
	ck_assert_int_eq(fsd_object_remove(spool, &id1), 0);
}
END_TEST

START_TEST(advance_keeps_the_bytes_and_ends_the_old_generation)
{
	struct fsd_object_id next = {.ino = id1.ino, .generation = 9};
	struct fsd_object_id other_id = {.ino = id1.ino, .generation = 11};
	struct fsd_object *object = create();
	struct fsd_object *other;

	fill(object, 3, 9000, 0);
	ck_assert_int_eq(fsd_object_advance(object, 7), -EINVAL);
	ck_assert_int_eq(fsd_object_advance(object, 8), 0);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	ck_assert_int_eq(fsd_object_advance(object, 9), 0);
	ck_assert_int_eq(fsd_object_open(spool, &id1, &other), -ENOENT);
	ck_assert_int_eq(fsd_object_create(spool, &other_id, &other), 0);
	fsd_object_close(other);
	ck_assert_int_eq(fsd_object_advance(object, 11), -EEXIST);
	fsd_object_close(object);
	ck_assert_int_eq(fsd_object_open(spool, &next, &object), 0);
	check_filled(object, 3, 9000, 0);
	fsd_object_close(object);
}
END_TEST

START_TEST(a_lost_sum_file_is_damage)
{
	struct fsd_object *object = create();

	fill(object, 3, 9000, 0);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	fsd_object_close(object);
	ck_assert_int_eq(unlink(path_of(".sum")), 0);
	ck_assert_int_eq(fsd_object_open(spool, &id1, &object), -EBADMSG);
}
END_TEST

START_TEST(a_data_file_shorter_than_what_is_settled_is_damage)
{
	struct fsd_object *object = create();

	fill(object, 3, 9000, 0);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	fsd_object_close(object);
	ck_assert_int_eq(truncate(path_of(""), 8999), 0);
	ck_assert_int_eq(fsd_object_open(spool, &id1, &object), -EBADMSG);
}
END_TEST

/* -- content -------------------------------------------------------------------------------------
 */

static uint8_t model[MODEL_MAX];
static uint8_t buf[MODEL_MAX];
static uint64_t model_bytes;

static void check_model(struct fsd_object *object, uint64_t offset, size_t bytes)
{
	size_t expected = offset < model_bytes ? GX_MIN(bytes, model_bytes - offset) : 0;

	ck_assert_uint_eq(fsd_object_size(object), model_bytes);
	ck_assert_int_eq(fsd_object_read(object, buf, bytes, offset, NULL), (ssize_t)expected);
	ck_assert(memcmp(buf, model + offset, expected) == 0);
}

static uint64_t some_offset(void)
{
	uint64_t offset = draw(MODEL_MAX);

	return draw(2) == 0 ? offset / BLOCK * BLOCK : offset;
}

static void model_write(struct fsd_object *object, bool append)
{
	uint64_t offset = append ? model_bytes : some_offset();
	uint64_t bytes = draw(3) == 0 ? draw(2 * REGION) : draw(20000);
	uint64_t where = offset;

	bytes = GX_MIN(bytes, MODEL_MAX - offset);
	for (uint64_t i = 0; i < bytes; i++)
		model[offset + i] = (uint8_t)(rng >> (i % 7) ^ i);
	if (append)
		ck_assert_int_eq(fsd_object_append(object, model + offset, bytes, &where), 0);
	else
		put(object, model + offset, bytes, offset);
	ck_assert_uint_eq(where, offset);
	if (bytes > 0)
		model_bytes = GX_MAX(model_bytes, offset + bytes);
}

static void model_truncate(struct fsd_object *object)
{
	uint64_t bytes = some_offset();

	if (bytes < model_bytes)
		memset(model + bytes, 0, model_bytes - bytes);
	model_bytes = bytes;
	ck_assert_int_eq(fsd_object_truncate(object, bytes), 0);
}

static void model_punch(struct fsd_object *object)
{
	uint64_t offset = some_offset();
	uint64_t bytes = draw(2 * REGION);

	bytes = GX_MIN(bytes, MODEL_MAX - offset);
	memset(model + offset, 0, bytes);
	ck_assert_int_eq(fsd_object_punch(object, offset, bytes), 0);
}

static void check_sums(struct fsd_object *object)
{
	size_t count = (size_t)fsd_blocks(model_bytes);
	GX_AUTOFREE uint64_t *sums = calloc(count + 1, sizeof(*sums));

	ck_assert_ptr_nonnull(sums);
	ck_assert_int_eq(fsd_object_sums(object, 0, count + 1, sums), 0);
	for (size_t i = 0; i < count; i++)
		CHECK(sums[i] == gx_sum64(model + i * BLOCK, BLOCK));
	ck_assert_uint_eq(sums[count], fsd_sum_zeros());
}

START_TEST(random_operations_agree_with_a_buffer)
{
	struct fsd_object *object = create();

	rng = (uint64_t)_i;
	memset(model, 0, sizeof(model));
	model_bytes = 0;
	for (unsigned i = 0; i < 150; i++) {
		switch (draw(10)) {
		case 0:
		case 1:
		case 2:
			model_write(object, false);
			break;
		case 3:
			model_write(object, true);
			break;
		case 4:
			model_truncate(object);
			break;
		case 5:
			model_punch(object);
			break;
		case 6:
			ck_assert_int_eq(fsd_object_sync(object), 0);
			ck_assert(fsd_object_stable(object));
			break;
		case 7:
			fsd_object_settle(object);
			break;
		case 8:
			fsd_object_close(object);
			object = open_it();
			break;
		default:
			check_model(object, some_offset(), draw(REGION));
			break;
		}
		if (i % 10 == 0)
			check_model(object, 0, MODEL_MAX);
	}
	check_sums(object);
	ck_assert(!fsd_object_bad(object));
	fsd_object_close(object);
}
END_TEST

START_TEST(reading_gives_the_checksums_of_all_blocks_touched)
{
	struct fsd_object *object = create();
	uint8_t block[BLOCK] = {0};
	struct gx_buf sums;

	gx_buf_init(&sums, 1024);
	fill(object, 9, 10000, 0);
	ck_assert_int_eq(fsd_object_read(object, buf, 6000, 4000, &sums), 6000);
	ck_assert_uint_eq(sums.bytes, 3 * 8);
	memset(block, 9, 10000 - 2 * BLOCK);
	ck_assert_uint_eq(gx_get_le64(sums.data + 16), gx_sum64(block, BLOCK));
	gx_buf_fini(&sums);
	fsd_object_close(object);
}
END_TEST

START_TEST(a_block_of_zeros_has_the_checksum_that_is_written_down)
{
	static const uint8_t zeros[BLOCK];

	ck_assert_uint_eq(fsd_sum_zeros(), gx_sum64(zeros, sizeof(zeros)));
}
END_TEST

START_TEST(the_header_has_its_bytes_for_ever)
{
	static const char golden[] = "4753465344"
				     "53554d"
				     "0100000040000000"
				     "5634120000000000"
				     "0700000000000000"
				     "8813000000000000"
				     "0010000000001000"
				     "0000000000000000";
	struct fsd_sum_header header = {0x123456, 7, 5000};
	uint8_t bytes[FSD_SUM_HEADER_BYTES];
	char text[2 * sizeof(bytes) + 1];

	fsd_sum_header_encode(&header, bytes);
	ck_assert_uint_eq(gx_get_le64(bytes + 56), gx_sum64(bytes, 56));
	gx_hex_encode(bytes, 56, text);
	ck_assert_str_eq(text, golden);
	/* One group per 504 regions: marks of 4 KiB, then the checksums. */
	ck_assert_uint_eq(fsd_sum_file_bytes(0), 4096);
	ck_assert_uint_eq(fsd_sum_file_bytes(1), 4104);
	ck_assert_uint_eq(fsd_sum_file_bytes(504 * 256), 4096 + 504 * 2048);
	ck_assert_uint_eq(fsd_sum_file_bytes(504 * 256 + 1), 4096 + 504 * 2048 + 4096 + 8);
}
END_TEST

START_TEST(too_large_is_efbig)
{
	struct fsd_object *object = create();
	uint64_t end = FSD_OBJECT_BYTES_MAX;

	ck_assert_int_eq(fsd_object_write(object, "xy", 2, end - 1), -EFBIG);
	ck_assert_int_eq(fsd_object_write(object, "xy", 2, UINT64_MAX - 1), -EFBIG);
	ck_assert_int_eq(fsd_object_truncate(object, end + 1), -EFBIG);
	ck_assert_uint_eq(fsd_object_size(object), 0);
	ck_assert_int_eq(fsd_object_sick(object), 0);
	fsd_object_close(object);
}
END_TEST

/* -- holes ----------------------------------------------------------------------------------------
 */

static uint64_t disk_bytes(const char *path)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

START_TEST(a_sparse_object_stays_sparse)
{
	const uint64_t far = UINT64_C(3) << 30;
	struct fsd_object *object = create();
	uint64_t at;

	ck_assert_int_eq(fsd_object_truncate(object, far), 0);
	fill(object, 1, 100, far);
	fill(object, 2, 100, far / 2);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	fsd_object_close(object);
	object = open_it();
	ck_assert_uint_eq(fsd_object_size(object), far + 100);
	check_filled(object, 0, 100000, 12345);
	check_filled(object, 1, 100, far);
	ck_assert_int_eq(fsd_object_seek(object, 0, true, &at), 0);
	ck_assert_uint_eq(at, 0);
	ck_assert_int_eq(fsd_object_seek(object, 0, false, &at), 0);
	ck_assert_uint_eq(at / BLOCK, far / 2 / BLOCK);
	ck_assert_int_eq(fsd_object_seek(object, far, true, &at), 0);
	ck_assert_uint_eq(at, far + 100);
	ck_assert_int_eq(fsd_object_seek(object, far + 100, true, &at), -ENXIO);
	ck_assert_int_eq(fsd_object_punch(object, 0, UINT64_MAX), 0);
	ck_assert_int_eq(fsd_object_seek(object, 0, false, &at), -ENXIO);
	fsd_object_close(object);
	ck_assert_uint_lt(disk_bytes(path_of("")), 100000);
	ck_assert_uint_lt(disk_bytes(path_of(".sum")), 100000);
}
END_TEST

START_TEST(punching_gives_space_back)
{
	struct fsd_object *object = create();

	fill(object, 1, 2 * REGION, 0);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	ck_assert_int_eq(fsd_object_punch(object, 100, 2 * REGION - 200), 0);
	check_filled(object, 1, 100, 0);
	check_filled(object, 0, 2 * REGION - 200, 100);
	check_filled(object, 1, 100, 2 * REGION - 100);
	fsd_object_close(object);
	ck_assert_uint_lt(disk_bytes(path_of("")), 4 * BLOCK);
}
END_TEST

/* -- damage
 * ----------------------------------------------------------------------------------------- */

/* Synced, settled and closed. */
static void make_settled(size_t bytes)
{
	struct fsd_object *object = create();

	for (size_t i = 0; i < bytes; i++)
		buf[i] = (uint8_t)(i * 31 + i / BLOCK);
	put(object, buf, bytes, 0);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	fsd_object_close(object);
}

START_TEST(a_flipped_bit_of_the_data_is_never_handed_out)
{
	const size_t bytes = REGION + 3 * BLOCK + 77;

	rng = 1;
	make_settled(bytes);
	for (unsigned i = 0; i < 300; i++) {
		uint64_t bit = i < 8 ? (bytes - 1) * 8 + i : draw(bytes * 8);
		uint64_t block = bit / 8 / BLOCK;
		struct fsd_object *object;

		flip(path_of(""), bit);
		object = open_it();
		ck_assert_int_eq(fsd_object_read(object, buf, bytes, 0, NULL), -EBADMSG);
		ck_assert_int_eq(fsd_object_read(object, buf, 1, block * BLOCK, NULL), -EBADMSG);
		ck_assert(fsd_object_bad(object));
		if (block > 0)
			ck_assert_int_eq(fsd_object_read(object, buf, block * BLOCK, 0, NULL),
					 (ssize_t)(block * BLOCK));
		fsd_object_close(object);
		flip(path_of(""), bit);
	}
}
END_TEST

START_TEST(damage_does_not_get_a_new_checksum)
{
	struct fsd_object *object;
	uint64_t where;

	make_settled(3 * BLOCK + 100);
	flip(path_of(""), BLOCK * 8 + 5);
	flip(path_of(""), (3 * BLOCK + 50) * 8);
	object = open_it();
	ck_assert_int_eq(fsd_object_write(object, "x", 1, BLOCK + 100), -EBADMSG);
	ck_assert_int_eq(fsd_object_write(object, buf, BLOCK, BLOCK / 2), -EBADMSG);
	ck_assert_int_eq(fsd_object_punch(object, BLOCK + 10, 10), -EBADMSG);
	ck_assert_int_eq(fsd_object_truncate(object, BLOCK + 100), -EBADMSG);
	ck_assert_int_eq(fsd_object_append(object, "x", 1, &where), -EBADMSG);
	ck_assert_uint_eq(fsd_object_size(object), 3 * BLOCK + 100);
	fsd_object_close(object);
	object = open_it();
	ck_assert_int_eq(fsd_object_read(object, buf, 1, BLOCK, NULL), -EBADMSG);
	ck_assert_int_eq(fsd_object_read(object, buf, 1, 3 * BLOCK, NULL), -EBADMSG);
	/* What replaces the whole block heals it. */
	fill(object, 4, BLOCK, BLOCK);
	check_filled(object, 4, BLOCK, BLOCK);
	fsd_object_close(object);
}
END_TEST

START_TEST(a_flipped_bit_of_the_sum_file_is_noticed)
{
	const size_t bytes = 5 * BLOCK + 10;
	uint64_t sum_bytes = fsd_sum_file_bytes(6);

	make_settled(bytes);
	for (uint64_t byte = 0; byte < sum_bytes; byte++) {
		uint64_t bit = byte * 8 + byte % 8;
		struct fsd_object *object;
		ssize_t n;

		flip(path_of(".sum"), bit);
		n = fsd_object_open(spool, &id1, &object);
		if (n == 0) {
			n = fsd_object_read(object, buf, bytes, 0, NULL);
			fsd_object_close(object);
		}
		ck_assert_msg(n == -EBADMSG, "byte %llu: %zd", (unsigned long long)byte, n);
		flip(path_of(".sum"), bit);
	}
}
END_TEST

START_TEST(bytes_behind_the_settled_size_are_hashed_anew)
{
	struct fsd_object *object = create();

	fill(object, 1, 3 * BLOCK, 0);
	fsd_object_close(object); /* not synced: nobody was promised anything */
	flip(path_of(""), 8 * 5000);
	object = open_it();
	ck_assert_int_eq(fsd_object_read(object, buf, BLOCK, BLOCK, NULL), BLOCK);
	ck_assert(!fsd_object_bad(object));
	fsd_object_close(object);
}
END_TEST

/* -- syncs
 * ----------------------------------------------------------------------------------------- */

START_TEST(only_the_first_change_of_a_settled_region_costs_a_sync)
{
	struct fsd_object *object = create();

	fail_nth(GX_FAULT_SYNC, 0, 1, 0);
	fill(object, 1, 4 * REGION, 0);
	fill(object, 2, 100, 50);
	ck_assert_uint_eq(fault.count, 0);
	ck_assert(!fsd_object_stable(object));
	ck_assert_int_eq(fsd_object_sync(object), 0);
	ck_assert(fsd_object_stable(object));
	fsd_object_settle(object);

	fail_nth(GX_FAULT_SYNC, 0, 1, 0);
	ck_assert_int_eq(fsd_object_sync(object), 0); /* nothing to do */
	ck_assert_uint_eq(fault.count, 0);
	fill(object, 3, 2 * REGION, REGION / 2); /* three regions, one sync */
	ck_assert_uint_eq(fault.count, 1);
	fill(object, 4, REGION, 0);
	fill(object, 5, 10, REGION);
	fill(object, 6, REGION, 4 * REGION); /* behind the settled size */
	ck_assert_uint_eq(fault.count, 1);
	fill(object, 7, 1, 4 * REGION - 1);
	ck_assert_uint_eq(fault.count, 2);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	ck_assert_uint_eq(fault.count, 4);
	fill(object, 8, 1, 0); /* not settled yet: still marked */
	ck_assert_uint_eq(fault.count, 4);
	fsd_object_close(object);
}
END_TEST

START_TEST(after_a_failed_sync_there_is_no_second)
{
	struct fsd_object *object = create();

	for (uint64_t nth = 1; nth <= 2; nth++) {
		fill(object, 1, 10000, 0);
		fail_nth(GX_FAULT_SYNC, nth, 1, EIO);
		ck_assert_int_eq(fsd_object_sync(object), -EIO);
		fail_nth(GX_FAULT_SYNC, 0, 1, 0);
		ck_assert_int_eq(fsd_object_sync(object), -EIO);
		ck_assert_int_eq(fsd_object_write(object, "x", 1, 0), -EIO);
		ck_assert_int_eq(fsd_object_truncate(object, 10), -EIO);
		ck_assert_int_eq(fsd_object_punch(object, 0, 10), -EIO);
		ck_assert(!fsd_object_stable(object));
		check_filled(object, 1, 10000, 0);
		/* Nor after it was closed by all. */
		fsd_object_close(object);
		object = open_it();
		ck_assert_int_eq(fsd_object_sync(object), -EIO);
		ck_assert_uint_eq(fault.count, 0);
		fsd_object_close(object);
		ck_assert_int_eq(fsd_object_remove(spool, &id1), 0);
		object = create();
	}
	fsd_object_close(object);
}
END_TEST

START_TEST(a_mark_that_cannot_be_synced_keeps_the_bytes_as_they_are)
{
	struct fsd_object *object;

	make_settled(10000);
	object = open_it();
	fail_nth(GX_FAULT_SYNC, 1, 1, EIO);
	ck_assert_int_eq(fsd_object_write(object, "x", 1, 0), -EIO);
	fail_nth(GX_FAULT_SYNC, 0, 1, 0);
	ck_assert_int_eq(fsd_object_sick(object), -EIO);
	memset(buf, 0, 10000);
	ck_assert_int_eq(fsd_object_read(object, buf, 10000, 0, NULL), 10000);
	for (size_t i = 0; i < 10000; i++)
		CHECK(buf[i] == (uint8_t)(i * 31 + i / BLOCK));
	fsd_object_close(object);
}
END_TEST

/* -- full and failing disks
 * -------------------------------------------------------------------------- */

/* A pwritev that writes half of it and then finds no space. */
static const struct gx_env_ops *real_ops;
static uint64_t writes_left;

static ssize_t full_pwritev(struct gx_env *e, int fd, const struct iovec *iov, int iov_count,
			    uint64_t offset)
{
	struct iovec half = iov[0];

	if (writes_left > 0) {
		writes_left--;
		return real_ops->pwritev(e, fd, iov, iov_count, offset);
	}
	half.iov_len /= 2;
	if (half.iov_len < 4) {
		writes_left = UINT64_MAX; /* there is space again */
		return -ENOSPC;
	}
	return real_ops->pwritev(e, fd, &half, 1, offset);
}

static void check_old_or_new(struct fsd_object *object, uint8_t old, uint8_t new, size_t bytes,
			     uint64_t offset)
{
	ck_assert_int_eq(fsd_object_read(object, buf, bytes, offset, NULL), (ssize_t)bytes);
	for (size_t i = 0; i < bytes; i++)
		CHECK(buf[i] == old || buf[i] == new);
}

START_TEST(no_space_leaves_what_was_there)
{
	static struct gx_env_ops ops;
	const size_t bytes = 3 * BLOCK + 500;

	real_ops = env.ops;
	ops = *env.ops;
	ops.pwritev = full_pwritev;
	for (unsigned n = 0; n < 3; n++) {
		struct fsd_object *object = create();
		uint64_t where;

		writes_left = UINT64_MAX;
		env.ops = &ops;
		fill(object, 1, bytes, 0);
		memset(buf, 2, sizeof(buf));
		/* Into the middle, over the end, at the end. */
		writes_left = n;
		if (fsd_object_write(object, buf, 2 * BLOCK, 1000) < 0)
			check_old_or_new(object, 1, 2, bytes, 0);
		writes_left = n;
		if (fsd_object_write(object, buf, 4 * BLOCK, 2 * BLOCK + 1) < 0) {
			ck_assert_uint_eq(fsd_object_size(object), bytes);
			check_old_or_new(object, 1, 2, bytes, 0);
			ck_assert_int_eq(fsd_object_truncate(object, 8 * BLOCK), 0);
			check_filled(object, 0, 8 * BLOCK - bytes, bytes);
			ck_assert_int_eq(fsd_object_truncate(object, bytes), 0);
		}
		writes_left = n;
		if (fsd_object_append(object, buf, REGION, &where) < 0) {
			ck_assert_uint_eq(fsd_object_size(object), bytes);
			check_old_or_new(object, 1, 2, bytes, 0);
		}
		ck_assert(n == 2 || writes_left > n);
		env.ops = real_ops;
		ck_assert_int_eq(fsd_object_sick(object), 0);
		ck_assert_int_eq(fsd_object_sync(object), 0);
		fsd_object_close(object);
		ck_assert_int_eq(fsd_object_remove(spool, &id1), 0);
	}
}
END_TEST

/* Stops at the first error. */
static int scenario(struct fsd_spool *s, struct fsd_object **ret_object)
{
	struct fsd_object *object;
	uint64_t where;
	int r = fsd_object_create(s, &id1, &object);

	if (r < 0)
		return r;
	*ret_object = object;
	memset(buf, 1, sizeof(buf));
	r = fsd_object_write(object, buf, REGION + 5000, 0);
	if (r == 0)
		r = fsd_object_sync(object);
	fsd_object_settle(object);
	if (r == 0)
		r = fsd_object_write(object, buf, 3000, 100);
	if (r == 0)
		r = fsd_object_append(object, buf, 3000, &where);
	if (r == 0)
		r = fsd_object_punch(object, 5000, 9000);
	if (r == 0)
		r = fsd_object_truncate(object, REGION + 100);
	if (r == 0)
		r = fsd_object_advance(object, 8);
	if (r == 0)
		r = fsd_object_sync(object);
	fsd_object_settle(object);
	return r;
}

static int read_all(void *arg, const struct fsd_object_id *id, uint64_t bytes)
{
	struct fsd_object *object;

	ck_assert_int_eq(fsd_object_open(arg, id, &object), 0);
	ck_assert_int_eq(fsd_object_read(object, buf, sizeof(buf), 0, NULL), (ssize_t)bytes);
	for (uint64_t i = 0; i < bytes; i++)
		CHECK(buf[i] == 1 || (i >= 5000 && i < 14000 && buf[i] == 0));
	fsd_object_close(object);
	return 0;
}

static int no_sync(struct gx_env *e, int fd)
{
	(void)e;
	(void)fd;
	return 0;
}

static int no_sync_dir(struct gx_env *e, const char *path)
{
	(void)e;
	(void)path;
	return 0;
}

/* Nothing is lost here, so the disk need not be waited for. */
static void do_not_sync(void)
{
	static struct gx_env_ops ops;

	ops = *env.ops;
	ops.fdatasync = no_sync;
	ops.fsync = no_sync;
	ops.sync_dir = no_sync_dir;
	env.ops = &ops;
}

START_TEST(every_failing_call_leaves_an_object_that_can_be_read)
{
	bool fired = true;

	for (uint64_t nth = 1; fired; nth++) {
		struct fsd_object *object = NULL;
		int r;

		make_dir_for_test();
		do_not_sync();
		ck_assert_int_eq(fsd_spool_open(&env, dir, true, &spool), 0);
		fault.kinds = ~UINT64_C(0);
		fault.nth = nth;
		r = scenario(spool, &object);
		fired = fault.fired > 0;
		ck_assert(fired || r == 0);
		fault.nth = 0;
		if (object != NULL && fsd_object_size(object) > 0)
			ck_assert_msg(fsd_object_read(object, buf, sizeof(buf), 0, NULL) > 0,
				      "call %llu, %s: the scenario said %d",
				      (unsigned long long)nth,
				      gx_fault_name((enum gx_fault_kind)fault.last_kind), r);
		fsd_object_close(object);
		fsd_spool_close(spool);
		ck_assert_int_eq(fsd_spool_open(&env, dir, false, &spool), 0);
		ck_assert_int_eq(fsd_spool_each(spool, read_all, spool), 0);
		fsd_spool_close(spool);
		remove_dir();
		ck_assert_uint_lt(nth, 1000);
	}
}
END_TEST

/* -- threads
 * ------------------------------------------------------------------------------------------ */

#define ROUNDS 300u
#define CELL 6000u /* not a multiple of a block: neighbours share them */

struct worker {
	struct fsd_object *object;
	unsigned number;
	struct gx_thread thread;
};

/* Each cell is of one byte at any time, since a cell's writer holds its regions. */
static void write_cells(void *arg)
{
	struct worker *w = arg;
	uint8_t data[CELL];

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t cell = (i * 7 + w->number) % 16;

		memset(data, (int)(1 + i % 250), sizeof(data));
		ck_assert_int_eq(fsd_object_write(w->object, data, sizeof(data), cell * CELL), 0);
		if (i % 50 == w->number)
			ck_assert_int_eq(fsd_object_sync(w->object), 0);
		if (i % 20 == 0)
			fsd_object_settle(w->object);
	}
}

static void read_cells(void *arg)
{
	struct worker *w = arg;
	uint8_t data[CELL];

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t cell = i % 16;
		ssize_t n = fsd_object_read(w->object, data, sizeof(data), cell * CELL, NULL);

		ck_assert_msg(n == CELL, "%zd", n);
		for (size_t j = 1; j < sizeof(data); j++)
			CHECK(data[j] == data[0]);
		if (i % 64 == 0)
			fsd_object_close(open_it());
	}
}

static void append_lines(void *arg)
{
	struct worker *w = arg;
	uint8_t line[500];
	uint64_t at;

	memset(line, (int)w->number, sizeof(line));
	for (unsigned i = 0; i < ROUNDS; i++) {
		ck_assert_int_eq(fsd_object_append(w->object, line, sizeof(line), &at), 0);
		ck_assert_uint_eq(at % sizeof(line), 0);
	}
}

static void run_workers(struct fsd_object *object, const gx_thread_fn *fns, unsigned count)
{
	struct worker workers[4];

	for (unsigned i = 0; i < count; i++) {
		workers[i] = (struct worker){.object = object, .number = i + 1};
		ck_assert_int_eq(gx_env_thread_start(&env, &workers[i].thread, "worker", fns[i],
						     &workers[i]),
				 0);
	}
	for (unsigned i = 0; i < count; i++)
		gx_env_thread_join(&env, &workers[i].thread);
}

START_TEST(writers_and_readers_side_by_side_see_whole_writes)
{
	static const gx_thread_fn fns[] = {write_cells, write_cells, read_cells, read_cells};
	struct fsd_object *object = create();

	fill(object, 1, 16 * CELL, 0);
	run_workers(object, fns, 4);
	ck_assert_int_eq(fsd_object_sync(object), 0);
	ck_assert(fsd_object_stable(object));
	ck_assert(!fsd_object_bad(object));
	fsd_object_close(object);
	object = open_it();
	ck_assert_int_eq(fsd_object_read(object, buf, sizeof(buf), 0, NULL), 16 * CELL);
	fsd_object_close(object);
}
END_TEST

/* As a client does: bytes behind the end of the last block are zeros. */
static void read_verified_ends(void *arg)
{
	static uint8_t data[2 * 500 * ROUNDS + BLOCK];
	struct worker *w = arg;
	struct gx_buf sums;

	gx_buf_init(&sums, sizeof(data));
	for (unsigned i = 0; i < 4 * ROUNDS; i++) {
		ssize_t n;

		memset(data, 0, sizeof(data));
		gx_buf_clear(&sums);
		n = fsd_object_read(w->object, data, sizeof(data) / BLOCK * BLOCK, 0, &sums);
		ck_assert_int_ge(n, 0);
		CHECK(sums.bytes == ((size_t)n + BLOCK - 1) / BLOCK * sizeof(uint64_t));
		for (size_t at = 0; at < (size_t)n; at += BLOCK) {
			uint64_t sum;

			memcpy(&sum, sums.data + at / BLOCK * sizeof(sum), sizeof(sum));
			CHECK(fsd_sum_block(data + at) == sum);
		}
	}
	gx_buf_fini(&sums);
}

static void write_lines(void *arg)
{
	struct worker *w = arg;
	uint8_t line[500];

	for (unsigned i = 0; i < 2 * ROUNDS; i++) {
		memset(line, (int)(1 + i % 250), sizeof(line));
		ck_assert_int_eq(fsd_object_write(w->object, line, sizeof(line), i * sizeof(line)),
				 0);
	}
}

START_TEST(a_read_beside_a_growing_end_fits_its_checksums)
{
	static const gx_thread_fn fns[] = {write_lines, read_verified_ends};
	struct fsd_object *object = create();

	run_workers(object, fns, 2);
	fsd_object_close(object);
}
END_TEST

START_TEST(appends_of_two_threads_do_not_mix)
{
	static const gx_thread_fn fns[] = {append_lines, append_lines};
	struct fsd_object *object = create();
	unsigned of_first = 0;

	run_workers(object, fns, 2);
	ck_assert_uint_eq(fsd_object_size(object), 2 * ROUNDS * 500);
	ck_assert_int_eq(fsd_object_read(object, buf, sizeof(buf), 0, NULL), 2 * ROUNDS * 500);
	for (unsigned i = 0; i < 2 * ROUNDS; i++) {
		of_first += buf[i * 500] == 1;
		for (unsigned j = 1; j < 500; j++)
			CHECK(buf[i * 500 + j] == buf[i * 500]);
	}
	ck_assert_uint_eq(of_first, ROUNDS);
	fsd_object_close(object);
}
END_TEST

static void sync_often(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < 20; i++) {
		fill(w->object, (uint8_t)i, 100, w->number * 1000);
		ck_assert_int_eq(fsd_object_sync(w->object), 0);
	}
}

START_TEST(several_callers_share_a_sync)
{
	static const gx_thread_fn fns[] = {sync_often, sync_often, sync_often, sync_often};
	struct fsd_object *object = create();

	fail_nth(GX_FAULT_SYNC, 0, 1, 0);
	run_workers(object, fns, 4);
	/* Alone each would be two fdatasync. */
	ck_assert_uint_lt(fault.count, 4 * 20 * 2);
	ck_assert(fsd_object_stable(object));
	fsd_object_close(object);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsd_object");
	TCase *tc = tcase_create("core");
	TCase *bare = tcase_create("own directories");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_set_timeout(bare, 60);
	tcase_add_test(bare, an_empty_directory_is_a_spool_only_if_asked_for);
	tcase_add_test(bare, a_directory_with_other_things_does_not_become_a_spool);
	tcase_add_test(tc, a_spool_has_one_owner);
	tcase_add_test(tc, every_flipped_bit_of_the_spool_file_is_noticed);
	tcase_add_test(tc, newer_formats_are_refused);
	tcase_add_test(tc, each_shows_all_objects_and_quarantine_takes_one_away);
	tcase_add_test(tc, an_object_is_one_struct_however_often_it_is_open);
	tcase_add_test(tc, a_removed_object_lives_until_it_is_closed);
	tcase_add_test(tc, advance_keeps_the_bytes_and_ends_the_old_generation);
	tcase_add_test(tc, a_lost_sum_file_is_damage);
	tcase_add_test(tc, a_data_file_shorter_than_what_is_settled_is_damage);
	tcase_add_loop_test(tc, random_operations_agree_with_a_buffer, 1, 13);
	tcase_add_test(tc, reading_gives_the_checksums_of_all_blocks_touched);
	tcase_add_test(tc, a_block_of_zeros_has_the_checksum_that_is_written_down);
	tcase_add_test(tc, the_header_has_its_bytes_for_ever);
	tcase_add_test(tc, too_large_is_efbig);
	tcase_add_test(tc, a_sparse_object_stays_sparse);
	tcase_add_test(tc, punching_gives_space_back);
	tcase_add_test(tc, a_flipped_bit_of_the_data_is_never_handed_out);
	tcase_add_test(tc, damage_does_not_get_a_new_checksum);
	tcase_add_test(tc, a_flipped_bit_of_the_sum_file_is_noticed);
	tcase_add_test(tc, bytes_behind_the_settled_size_are_hashed_anew);
	tcase_add_test(tc, only_the_first_change_of_a_settled_region_costs_a_sync);
	tcase_add_test(tc, after_a_failed_sync_there_is_no_second);
	tcase_add_test(tc, a_mark_that_cannot_be_synced_keeps_the_bytes_as_they_are);
	tcase_add_test(tc, no_space_leaves_what_was_there);
	tcase_add_test(bare, every_failing_call_leaves_an_object_that_can_be_read);
	tcase_add_test(tc, writers_and_readers_side_by_side_see_whole_writes);
	tcase_add_test(tc, appends_of_two_threads_do_not_mix);
	tcase_add_test(tc, a_read_beside_a_growing_end_fits_its_checksums);
	tcase_add_test(tc, several_callers_share_a_sync);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, bare);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
