/*
 * Bytes of large files, one client: writing behind, syncing, growing, and nodes that fail.
 */
#include "tests/unit/gfd_fake.h"
#include <unistd.h>

#define INO 2u
#define KIB 1024u
#define MIB (1024u * KIB)
#define RW (GFC_OPEN_READ | GFC_OPEN_WRITE)

static uint8_t *pattern, *got;
#define PATTERN_BYTES (16u * MIB)
static struct gfd *gfd;
static struct fake_open f;

static void setup(void)
{
	fake_setup();
	fake_node_up(0);
	pattern = malloc(PATTERN_BYTES);
	got = malloc(PATTERN_BYTES);
	for (size_t i = 0; i < PATTERN_BYTES; i++)
		pattern[i] = (uint8_t)(i * 7 + i / 4096 * 13 + 1);
	gfd = fake_client(0, NULL);
	fake_open(0, INO, RW, &f);
}

static void teardown(void)
{
	gfd_free(gfd);
	free(pattern);
	free(got);
	fake_teardown();
}

static int put(size_t bytes, uint64_t offset)
{
	return gfd_write(f.file, &f.open, pattern + offset, bytes, offset, false, NULL);
}

static void must_put(size_t bytes, uint64_t offset)
{
	int r = put(bytes, offset);

	ck_assert_msg(r == 0, "%d: %s", r, gfc_error());
}

/* All of [offset, offset + bytes) is the pattern. */
static void must_get(size_t bytes, uint64_t offset)
{
	ssize_t n = gfd_read(f.file, &f.open, got, bytes, offset);

	ck_assert_msg(n == (ssize_t)bytes, "%zd: %s", n, gfc_error());
	ck_assert_int_eq(memcmp(got, pattern + offset, bytes), 0);
}

static struct gfd_stats stats(void)
{
	struct gfd_stats s;

	gfd_stats(gfd, &s);
	return s;
}

static const struct fake_file *meta(void)
{
	return file_of(INO);
}

static void reopen(uint32_t flags)
{
	ck_assert_int_eq(fake_close(&f), 0);
	fake_open(0, INO, flags, &f);
}

/* By the unix socket. */
static void reopen_near(void)
{
	ck_assert_int_eq(fake_close(&f), 0);
	gfd_free(gfd);
	grid.near[0] = true;
	gfd = fake_client(0, NULL);
	fake_open(0, INO, RW, &f);
}

/* -- growing ----------------------------------------------------------------------------------- */

START_TEST(small_files_stay_in_metad)
{
	must_put(5000, 0);
	must_get(5000, 0);
	must_get(100, 1234);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 100, 5000), 0);
	ck_assert_int_eq(gfd_truncate(f.file, &f.open, 300), 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_get(300, 0);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert(meta()->is_inline);
	ck_assert_uint_eq(meta()->size, 300);
	ck_assert_uint_eq(grid.leases, 0);
}
END_TEST

START_TEST(a_file_grows_out_of_metad)
{
	must_put(5000, 0);
	must_put(100000, 5000);
	must_get(105000, 0);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert(!meta()->is_inline);
	ck_assert(!meta()->writing);
	ck_assert(meta()->changed);
	ck_assert_uint_eq(meta()->size, 105000);
	/* All of it was ours and unsynced: nothing had to wait for the disk. */
	ck_assert(!meta()->grown_synced);
	fake_open(0, INO, GFC_OPEN_READ, &f);
	must_get(105000, 0);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 10, 105000), 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* Rule N10: what was synced inline is synced before the object counts. */
START_TEST(what_was_synced_inline_is_synced_when_it_grows)
{
	must_put(5000, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_put(100000, 5000);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert(meta()->grown_synced);
	fake_open(0, INO, RW, &f);
	must_get(105000, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(what_others_left_inline_is_synced_when_it_grows)
{
	ck_assert_int_eq(fake_close(&f), 0);
	memcpy(file_of(INO)->content, pattern, 4000);
	file_of(INO)->size = 4000;
	fake_open(0, INO, GFC_OPEN_WRITE, &f);
	must_put(100000, 4000);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert(meta()->grown_synced);
	fake_open(0, INO, GFC_OPEN_READ, &f);
	must_get(104000, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* -- writing behind ---------------------------------------------------------------------------- */

START_TEST(writes_of_all_sizes_come_back)
{
	uint64_t at = 0;

	for (unsigned i = 1; at < 9 * MIB; i++) {
		size_t bytes = i * 7919 % 200000 + 1;

		must_put(bytes, at);
		at += bytes;
	}
	must_get(9 * MIB, 0);
	/* Back to front, and all over. */
	memset(got, 0, MIB);
	for (unsigned i = 64; i > 0; i--)
		ck_assert_int_eq(gfd_write(f.file, &f.open, got, 4096, i * 65536, false, NULL), 0);
	for (unsigned i = 64; i > 0; i--)
		must_put(4096, i * 65536);
	must_get(9 * MIB, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	ck_assert_uint_eq(meta()->size, at);
	reopen(GFC_OPEN_READ);
	must_get(9 * MIB, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(small_writes_travel_together)
{
	must_put(64 * KIB, 0);
	for (unsigned i = 0; i < 16384; i++)
		must_put(64, 64 * KIB + i * 64);
	ck_assert_int_eq(gfd_flush(f.file, &f.open), 0);
	ck_assert_uint_eq(meta()->size, 64 * KIB + MIB);
	must_get(64 * KIB + MIB, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* The pattern as a local file; closed by the caller. */
static int pattern_file(void)
{
	FILE *file = tmpfile();
	int fd;

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(pattern, 1, PATTERN_BYTES, file), PATTERN_BYTES);
	ck_assert_int_eq(fflush(file), 0);
	fd = dup(fileno(file));
	fclose(file);
	return fd;
}

/* _i: the node loses its power before the sync, so that all is sent a second time. */
START_TEST(a_local_file_is_written_without_a_copy)
{
	int fd = pattern_file();

	reopen_near();
	/* Not before there is a lease, and whole pieces only. */
	ck_assert_int_eq(gfd_write_file(f.file, &f.open, fd, 0, MIB, 0), -EOPNOTSUPP);
	must_put(MIB, 0);
	ck_assert_int_eq(gfd_write_file(f.file, &f.open, fd, MIB, 100, MIB), -EOPNOTSUPP);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	data_node_save(&grid.nodes[0]);
	ck_assert_int_eq(gfd_write_file(f.file, &f.open, fd, MIB, 12 * MIB, MIB), 0);
	must_put(5000, 13 * MIB);
	if (_i) {
		ck_assert_int_eq(gfd_flush(f.file, &f.open), 0);
		data_node_power_cut(&grid.nodes[0]);
		data_node_up(&grid.nodes[0]);
	}
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_get(13 * MIB + 5000, 0);
	reopen(GFC_OPEN_READ);
	ck_assert_uint_eq(meta()->size, 13 * MIB + 5000);
	must_get(13 * MIB + 5000, 0);
	ck_assert_int_eq(fake_close(&f), 0);
	close(fd);
}
END_TEST

START_TEST(appends_go_to_the_end)
{
	uint64_t where = 0;

	must_put(10000, 0);
	for (unsigned i = 0; i < 100; i++) {
		ck_assert_int_eq(
			gfd_write(f.file, &f.open, pattern + 10000 + i * 777, 777, 0, true, &where),
			0);
		ck_assert_uint_eq(where, 10000 + i * 777);
	}
	must_get(10000 + 77700, 0);
	ck_assert_int_eq(gfd_write(f.file, &f.open, pattern, GFD_APPEND_MAX + 1, 0, true, &where),
			 -EMSGSIZE);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* Rule N12: metad hears of it without being asked. */
START_TEST(the_size_is_reported_while_writing)
{
	int64_t deadline_ns = gx_env_now_ns(grid.env) + 5 * GX_NSEC_PER_SEC;
	uint64_t size = 0;

	must_put(MIB, 0);
	must_put(1000, MIB);
	fake_lock();
	while ((size = meta()->size) != MIB + 1000 &&
	       gx_env_cond_wait(grid.env, &grid.changed, &grid.lock, deadline_ns) == 0)
		;
	fake_unlock();
	ck_assert_uint_eq(size, MIB + 1000);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(truncate_punch_allocate_and_seek)
{
	struct gfc_attr attr;
	uint64_t at;

	must_put(3 * MIB, 0);
	ck_assert_int_eq(gfd_truncate(f.file, &f.open, 2 * MIB + 100), 0);
	must_get(2 * MIB + 100, 0);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 1, 2 * MIB + 100), 0);
	ck_assert_int_eq(gfd_truncate(f.file, &f.open, 3 * MIB), 0);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, MIB, 2 * MIB), MIB);
	ck_assert_int_eq(memcmp(got, pattern + 2 * MIB, 100), 0);
	ck_assert_uint_eq(run_of(got + 100, MIB - 100, 0), MIB - 100);
	ck_assert_int_eq(gfd_punch(f.file, &f.open, MIB, 512 * KIB), 0);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, MIB, MIB), MIB);
	ck_assert_uint_eq(run_of(got, 512 * KIB, 0), 512 * KIB);
	ck_assert_int_eq(memcmp(got + 512 * KIB, pattern + MIB + 512 * KIB, 512 * KIB), 0);
	ck_assert_int_eq(gfd_seek(f.file, &f.open, 0, true, &at), 0);
	ck_assert_uint_eq(at, MIB);
	ck_assert_int_eq(gfd_seek(f.file, &f.open, MIB + 5, false, &at), 0);
	ck_assert_uint_eq(at, MIB + 512 * KIB);
	ck_assert_int_eq(gfd_seek(f.file, &f.open, 3 * MIB, false, &at), -ENXIO);
	ck_assert_int_eq(gfd_allocate(f.file, &f.open, 3 * MIB, MIB, true), 0);
	ck_assert_int_eq(gfd_getattr(f.file, &f.open, &attr), 0);
	ck_assert_uint_eq(attr.size, 3 * MIB);
	ck_assert_int_eq(gfd_allocate(f.file, &f.open, 3 * MIB, MIB, false), 0);
	ck_assert_int_eq(gfd_getattr(f.file, &f.open, &attr), 0);
	ck_assert_uint_eq(attr.size, 4 * MIB);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert_uint_eq(meta()->size, 4 * MIB);
}
END_TEST

START_TEST(the_same_for_small_files)
{
	struct gfc_attr attr;
	uint64_t at;

	must_put(5000, 0);
	ck_assert_int_eq(gfd_punch(f.file, &f.open, 1000, 2000), 0);
	ck_assert_int_eq(gfd_punch(f.file, &f.open, 4000, MIB), 0);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 8192, 0), 5000);
	for (size_t i = 0; i < 5000; i++)
		ck_assert_uint_eq(got[i], (i >= 1000 && i < 3000) || i >= 4000 ? 0 : pattern[i]);
	ck_assert_int_eq(gfd_allocate(f.file, &f.open, 0, 8000, true), 0);
	ck_assert_int_eq(gfd_seek(f.file, &f.open, 10, true, &at), 0);
	ck_assert_uint_eq(at, 5000);
	ck_assert_int_eq(gfd_seek(f.file, &f.open, 10, false, &at), 0);
	ck_assert_uint_eq(at, 10);
	ck_assert_int_eq(gfd_seek(f.file, &f.open, 5000, false, &at), -ENXIO);
	ck_assert_int_eq(gfd_allocate(f.file, &f.open, 0, 8000, false), 0);
	ck_assert_int_eq(gfd_getattr(f.file, &f.open, &attr), 0);
	ck_assert_uint_eq(attr.size, 8000);
	ck_assert(meta()->is_inline);
	/* And beyond: it grows, with what was there. */
	ck_assert_int_eq(gfd_allocate(f.file, &f.open, 0, MIB, false), 0);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 1000, 0), 1000);
	ck_assert_int_eq(memcmp(got, pattern, 1000), 0);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert(!meta()->is_inline);
	ck_assert_uint_eq(meta()->size, MIB);
}
END_TEST

/* -- faults ------------------------------------------------------------------------------------ */

/* What has arrived is safe from kill -9, and the write goes on when the node is back. */
START_TEST(a_node_that_is_killed_while_written_to)
{
	must_put(3 * MIB, 0);
	data_node_kill(&grid.nodes[0]);
	data_node_up(&grid.nodes[0]);
	must_put(3 * MIB, 3 * MIB);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_get(6 * MIB, 0);
	data_node_kill(&grid.nodes[0]);
	data_node_up(&grid.nodes[0]);
	must_get(6 * MIB, 0);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert_uint_eq(meta()->size, 6 * MIB);
	ck_assert_uint_eq(stats().resent, 0); /* the machine was never down */
}
END_TEST

/* Rule B3. */
START_TEST(after_a_power_cut_what_was_not_synced_is_sent_again)
{
	must_put(2 * MIB, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	data_node_save(&grid.nodes[0]);
	must_put(3 * MIB, 2 * MIB);
	must_put(MIB, 512 * KIB); /* over old bytes, too */
	ck_assert_int_eq(gfd_truncate(f.file, &f.open, 4 * MIB), 0);
	must_put(5000, 4 * MIB);
	ck_assert_int_eq(gfd_flush(f.file, &f.open), 0);
	data_node_power_cut(&grid.nodes[0]);
	data_node_up(&grid.nodes[0]);
	if (_i == 0) {
		ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	} else {
		must_put(5000, 4 * MIB + 5000);
		ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
		must_get(4 * MIB + 10000, 0);
	}
	ck_assert_uint_ge(stats().resent, 4 * MIB);
	must_get(4 * MIB + 5000, 0);
	data_node_save(&grid.nodes[0]);
	data_node_power_cut(&grid.nodes[0]);
	data_node_up(&grid.nodes[0]);
	must_get(4 * MIB + 5000, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/*
 * What is waited for is done to what a power cut has left: the size that the node tells then is not
 * that of the file, which ends where it did as soon as the rest has been sent again.
 */
START_TEST(a_change_just_after_a_power_cut_does_not_make_the_file_shorter)
{
	uint64_t where;

	must_put(MIB, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	data_node_save(&grid.nodes[0]);
	must_put(MIB, MIB);
	ck_assert_int_eq(gfd_flush(f.file, &f.open), 0);
	data_node_power_cut(&grid.nodes[0]);
	data_node_up(&grid.nodes[0]);
	ck_assert_int_eq(gfd_punch(f.file, &f.open, 0, 4096), 0);
	ck_assert_int_eq(gfd_write(f.file, &f.open, pattern + 2 * MIB, KIB, 0, true, &where), 0);
	ck_assert_uint_eq(where, 2 * MIB);
	must_get(2 * MIB + KIB - 4096, 4096);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_get(2 * MIB + KIB - 4096, 4096);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert_uint_eq(meta()->size, 2 * MIB + KIB);
}
END_TEST

/* The sum file of an object has another name before its first sync (STORAGE.md). */
static bool is_synced(void)
{
	char path[GX_PATH_MAX], name[GX_PATH_MAX + 8];

	data_node_path(&grid.nodes[0], INO, meta()->generation, path);
	snprintf(name, sizeof(name), "%s.sum", path);
	return access(name, F_OK) == 0;
}

/* CONSISTENCY.md: after fsync the file is on disk, whoever wrote it, and through which handle. */
START_TEST(what_was_written_and_closed_before_is_synced_too)
{
	must_put(MIB, 0);
	reopen(_i == 0 ? RW : GFC_OPEN_READ);
	ck_assert(!is_synced());
	if (_i == 2)
		must_get(MIB, 0);
	/* metad does not know yet that the writer has been there. */
	grid.refuse = 1;
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	ck_assert(is_synced());
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* metad is away just when a sync needs to know where the node is. */
START_TEST(a_sync_that_finds_no_way_to_the_node_is_tried_again)
{
	must_put(MIB, 0);
	ck_assert_int_eq(gfd_flush(f.file, &f.open), 0);
	gfd_suspect(gfd, grid.nodes[0].name);
	fake_lock();
	grid.fail_attaches = 1;
	grid.fail_err = -EHOSTUNREACH;
	fake_unlock();
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	ck_assert_uint_eq(grid.fail_attaches, 0);
	ck_assert(is_synced());
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(what_is_no_longer_kept_is_an_error_once)
{
	struct gfd_options options = GFD_OPTIONS_INIT;

	ck_assert_int_eq(fake_close(&f), 0);
	gfd_free(gfd);
	options.write_behind = 2 * MIB;
	gfd = fake_client(0, &options);
	fake_open(0, INO, RW, &f);
	must_put(MIB, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	data_node_save(&grid.nodes[0]);
	must_put(8 * MIB, MIB);
	ck_assert_int_eq(gfd_flush(f.file, &f.open), 0);
	data_node_power_cut(&grid.nodes[0]);
	data_node_up(&grid.nodes[0]);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), -EIO);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_get(MIB, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* The file grows: what metad had is in the object, which is not the content yet (rule N10). */
START_TEST(what_metad_had_is_there_when_the_node_has_lost_it)
{
	struct gfd_options options = GFD_OPTIONS_INIT;

	must_put(5000, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	ck_assert_int_eq(fake_close(&f), 0);
	gfd_free(gfd);
	options.write_behind = 1; /* nothing can be sent again */
	gfd = fake_client(0, &options);
	fake_open(0, INO, RW, &f);
	data_node_save(&grid.nodes[0]);
	must_put(12 * MIB, 5000); /* more than is in flight: some is answered, and not kept */
	data_node_power_cut(&grid.nodes[0]);
	data_node_up(&grid.nodes[0]);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), -EIO);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_get(5000, 0);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert(meta()->is_inline);
	ck_assert_uint_eq(meta()->size, 5000);
}
END_TEST

START_TEST(a_node_that_stays_away_is_an_error_after_the_time)
{
	struct gfd_options options = GFD_OPTIONS_INIT;
	int64_t begin_ns;

	ck_assert_int_eq(fake_close(&f), 0);
	gfd_free(gfd);
	options.data_timeout_ns = GX_NSEC_PER_SEC;
	gfd = fake_client(0, &options);
	fake_open(0, INO, RW, &f);
	must_put(MIB, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	data_node_kill(&grid.nodes[0]);
	begin_ns = gx_env_now_ns(grid.env);
	must_put(1000, 0); /* held */
	ck_assert_int_eq(gfd_sync(f.file, &f.open), -EHOSTUNREACH);
	ck_assert_int_ge(gx_env_now_ns(grid.env) - begin_ns, 900 * GX_NSEC_PER_MSEC);
	ck_assert_int_lt(gx_env_now_ns(grid.env) - begin_ns, 5 * GX_NSEC_PER_SEC);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 1000, 4096), -EHOSTUNREACH);
	data_node_up(&grid.nodes[0]);
	must_get(MIB - 4096, 4096);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* A reader waits for a node that is away; that a write was lost is no reason to. */
START_TEST(a_write_that_was_lost_is_told_to_who_reads_too)
{
	struct gfd_options options = GFD_OPTIONS_INIT;
	struct gfc_attr attr;

	ck_assert_int_eq(fake_close(&f), 0);
	gfd_free(gfd);
	options.data_timeout_ns = GX_NSEC_PER_SEC;
	gfd = fake_client(0, &options);
	fake_open(0, INO, RW, &f);
	must_put(MIB, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	data_node_kill(&grid.nodes[0]);
	must_put(1000, 0);
	ck_assert_int_eq(gfd_getattr(f.file, &f.open, &attr), -EHOSTUNREACH);
	data_node_up(&grid.nodes[0]);
	gfd_forget(gfd, INO);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 1000, 4096), -EIO);
	must_get(MIB - 4096, 4096);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* Tickets end, leases go on. */
START_TEST(a_ticket_that_is_over_is_renewed)
{
	must_put(MIB, 0);
	ck_assert_int_eq(gfd_flush(f.file, &f.open), 0);
	/* metad may be of another opinion once, too. */
	grid.refuse = 1;
	reopen(RW);
	must_put(MIB, MIB);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_get(2 * MIB, 0);
	grid.refuse = 1;
	reopen(GFC_OPEN_READ);
	must_get(2 * MIB, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* Rule B5: somebody has moved the generation. */
START_TEST(a_lost_lease_is_an_error_once_and_changes_nothing)
{
	must_put(MIB, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	ck_assert_int_eq(gfd_write(f.file, &f.open, pattern + 77, 1000, 0, false, NULL), 0);
	fake_lock();
	file_of(INO)->grants[0] = (struct fake_grant){GFC_MODE_NONE, false};
	fake_recover(INO);
	fake_unlock();
	ck_assert_int_eq(gfd_sync(f.file, &f.open), -EIO);
	must_get(MIB, 0);
	ck_assert_int_eq(gfd_sync(f.file, &f.open), 0);
	must_put(1000, MIB);
	ck_assert_int_eq(fake_close(&f), 0);
	ck_assert_uint_eq(meta()->size, MIB + 1000);
}
END_TEST

START_TEST(a_full_disk_is_told)
{
	int r = 0;

	data_node_kill(&grid.nodes[0]);
	grid.nodes[0].reserved = UINT64_C(1) << 60;
	data_node_up(&grid.nodes[0]);
	for (unsigned i = 0; i < 12 && r == 0; i++)
		r = put(MIB, i * MIB);
	if (r == 0)
		r = gfd_sync(f.file, &f.open);
	ck_assert_int_eq(r, -ENOSPC);
	/* The inline content is still the truth. */
	ck_assert(meta()->is_inline);
	GX_IGNORE(fake_close(&f));
	ck_assert_uint_eq(meta()->size, 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	SRunner *runner;
	TCase *tc;
	int failed;

	if (data_node_is(argc, argv))
		return data_node_main(argv);
	suite = suite_create("gfd");
	tc = tcase_create("writing");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, small_files_stay_in_metad);
	tcase_add_test(tc, a_file_grows_out_of_metad);
	tcase_add_test(tc, what_was_synced_inline_is_synced_when_it_grows);
	tcase_add_test(tc, what_others_left_inline_is_synced_when_it_grows);
	tcase_add_test(tc, writes_of_all_sizes_come_back);
	tcase_add_test(tc, small_writes_travel_together);
	tcase_add_loop_test(tc, a_local_file_is_written_without_a_copy, 0, 2);
	tcase_add_test(tc, appends_go_to_the_end);
	tcase_add_test(tc, the_size_is_reported_while_writing);
	tcase_add_test(tc, truncate_punch_allocate_and_seek);
	tcase_add_test(tc, the_same_for_small_files);
	suite_add_tcase(suite, tc);
	tc = tcase_create("faults");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_node_that_is_killed_while_written_to);
	tcase_add_loop_test(tc, after_a_power_cut_what_was_not_synced_is_sent_again, 0, 2);
	tcase_add_test(tc, a_change_just_after_a_power_cut_does_not_make_the_file_shorter);
	tcase_add_loop_test(tc, what_was_written_and_closed_before_is_synced_too, 0, 3);
	tcase_add_test(tc, a_sync_that_finds_no_way_to_the_node_is_tried_again);
	tcase_add_test(tc, what_is_no_longer_kept_is_an_error_once);
	tcase_add_test(tc, what_metad_had_is_there_when_the_node_has_lost_it);
	tcase_add_test(tc, a_node_that_stays_away_is_an_error_after_the_time);
	tcase_add_test(tc, a_write_that_was_lost_is_told_to_who_reads_too);
	tcase_add_test(tc, a_ticket_that_is_over_is_renewed);
	tcase_add_test(tc, a_lost_lease_is_an_error_once_and_changes_nothing);
	tcase_add_test(tc, a_full_disk_is_told);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
