/*
 * The data service of a storage node over its real sockets: every method, damage, room, syncs that
 * do not hold up others. Tickets and generations have a test of their own, test_fsd_ticket.c.
 */
#include "common/gx_log.h"
#include "fsd/fsd_sum.h"
#include "tests/lib/fake_metad.h"
#include "tests/lib/fsd_fixture.h"
#include <check.h>
#include <fcntl.h>
#include <unistd.h>

#define MIB (1024u * 1024)
#define BLOCK FSD_BLOCK_BYTES
#define HOLE 1u
#define GROW 2u
#define KEEP 3u

static struct fsd_fixture node;
static struct fake_metad *metad;  /* NULL: none */
static struct rpc_client *client; /* of FSD_FIXTURE_SESSION, on the unix socket */
static struct fsd_sealed sealed;  /* inode 5, generation 1 */
static unsigned char out[4 * MIB], in[4 * MIB];

/* -- fixture ----------------------------------------------------------------------------------- */

static void ignore_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		       const char *line GX_UNUSED)
{
}

static void seal_for(uint64_t ino, struct fsd_sealed *ret_sealed)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, ino, 1, 0);

	fsd_fixture_seal(&node, &ticket, ret_sealed);
}

static void start(void)
{
	fsd_fixture_up(&node);
	client = fsd_fixture_client(&node, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
	seal_for(5, &sealed);
}

static void setup_only(void)
{
	gx_log_to_callback(ignore_log, NULL);
	fsd_gate_init();
	fsd_fixture_init(&node, "fsd7");
	node.options.env = fsd_gate_env();
	metad = NULL;
	client = NULL;
}

static void setup(void)
{
	setup_only();
	start();
}

static void teardown(void)
{
	fsd_gate_open();
	rpc_client_free(client);
	fsd_fixture_fini(&node);
	if (metad)
		fake_metad_stop(metad);
	fsd_gate_fini();
}

static void start_with_metad(void)
{
	struct fsd_object_id id = {.ino = 5, .generation = 1};

	metad = fake_metad_start("fsd7");
	fake_metad_know(metad, &id);
	fsd_fixture_use_metad(&node, metad);
	start();
}

static void fill(unsigned char *buf, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		buf[i] = (unsigned char)(seed + i * 7 + i / BLOCK * 13 + (i >> 16) + 1);
}

static int put(const void *data, size_t bytes, uint64_t offset)
{
	return fsd_call_write(client, sealed.data, data, bytes, offset);
}

static ssize_t get(void *buf, size_t bytes, uint64_t offset)
{
	return fsd_call_read(client, sealed.data, buf, bytes, offset, false);
}

static PbData__DataStatReply stat_now(void)
{
	PbData__DataStatReply stat;

	ck_assert_int_eq(fsd_call_stat(client, sealed.data, &stat), 0);
	return stat;
}

/* -- reading and writing ----------------------------------------------------------------------- */

START_TEST(what_was_written_is_read_over_each_transport)
{
	size_t bytes = 3 * MIB + 100;
	struct rpc_client *c =
		fsd_fixture_client(&node, (enum fsd_fixture_kind)_i, FSD_FIXTURE_SESSION);

	fill(out, bytes, 1);
	ck_assert_int_eq(fsd_call_write(c, sealed.data, out, bytes, 0), 0);
	ck_assert_int_eq(fsd_call_read(c, sealed.data, in, sizeof(in), 0, false), (ssize_t)bytes);
	ck_assert_mem_eq(in, out, bytes);
	memset(in, 0, bytes);
	ck_assert_int_eq(fsd_call_read(c, sealed.data, in, sizeof(in), 0, true), (ssize_t)bytes);
	ck_assert_mem_eq(in, out, bytes);
	/* Without a copy where nothing has to be encrypted. */
	if (_i == FSD_FIXTURE_TLS)
		ck_assert_uint_eq(fsd_gate_sent(), 0);
	else
		ck_assert_uint_eq(fsd_gate_sent(), bytes);
	rpc_client_free(c);
}
END_TEST

START_TEST(writes_anywhere_make_one_content_and_gaps_are_zeros)
{
	static unsigned char model[2 * MIB];
	static const struct {
		uint64_t offset;
		size_t bytes;
	} writes[] = {{0, 10},        {4090, 12},        {8192, 4096}, {MIB - 3, 7},
		      {700001, 4097}, {1, MIB / 2},      {4096, 1},    {MIB + 12345, 300000},
		      {12288, 16384}, {MIB / 4, MIB / 2}};
	size_t size = 0;

	memset(model, 0, sizeof(model));
	for (size_t i = 0; i < GX_COUNT_OF(writes); i++) {
		fill(out, writes[i].bytes, (unsigned)i * 31);
		ck_assert_int_eq(put(out, writes[i].bytes, writes[i].offset), 0);
		memcpy(model + writes[i].offset, out, writes[i].bytes);
		size = GX_MAX(size, writes[i].offset + writes[i].bytes);
		ck_assert_uint_eq(stat_now().size, size);
		ck_assert_int_eq(get(in, 2 * MIB, 0), (ssize_t)size);
		ck_assert_mem_eq(in, model, size);
	}
	/* A part in the middle, and the last block. */
	ck_assert_int_eq(get(in, 8192, MIB), 8192);
	ck_assert_mem_eq(in, model + MIB, 8192);
	ck_assert_int_eq(get(in, BLOCK, size / BLOCK * BLOCK), (ssize_t)(size % BLOCK));
	ck_assert_mem_eq(in, model + size / BLOCK * BLOCK, size % BLOCK);
}
END_TEST

START_TEST(reads_are_of_whole_blocks_and_none_lies_behind_the_end)
{
	static const struct {
		uint64_t offset;
		size_t bytes;
	} wrong[] = {{1, BLOCK}, {0, 1}, {0, 0}, {BLOCK, BLOCK + 1}, {0, 4 * MIB + BLOCK}};
	bool prove = _i != 0;

	fill(out, 100, 1);
	ck_assert_int_eq(put(out, 100, 0), 0);
	for (size_t i = 0; i < GX_COUNT_OF(wrong); i++)
		ck_assert_int_eq(fsd_call_read(client, sealed.data, in, wrong[i].bytes,
					       wrong[i].offset, prove),
				 -EINVAL);
	ck_assert_int_eq(fsd_call_read(client, sealed.data, in, BLOCK, 0, prove), 100);
	ck_assert_int_eq(fsd_call_read(client, sealed.data, in, BLOCK, BLOCK, prove), 0);
	ck_assert_int_eq(
		fsd_call_read(client, sealed.data, in, BLOCK, UINT64_MAX - (BLOCK - 1), prove), 0);
}
END_TEST

START_TEST(the_clock_goes_up_with_every_change_and_not_without)
{
	uint64_t clock, before;

	ck_assert_int_eq(put("a", 1, 0), 0);
	before = stat_now().clock;
	ck_assert_uint_eq(stat_now().clock, before);
	ck_assert_int_eq(put("b", 1, 0), 0);
	clock = stat_now().clock;
	ck_assert_uint_gt(clock, before);
	ck_assert_int_eq(fsd_call_truncate(client, sealed.data, 9), 0);
	ck_assert_uint_gt(stat_now().clock, clock);
	clock = stat_now().clock;
	/* Also over a restart, so that an old report is never taken for a newer one. */
	rpc_client_free(client);
	fsd_fixture_down(&node);
	start();
	ck_assert_uint_gt(stat_now().clock, clock);
}
END_TEST

START_TEST(more_than_fits_is_refused)
{
	static const uint64_t end = FSD_OBJECT_BYTES_MAX;

	ck_assert_int_eq(put("a", 1, end), -EFBIG);
	ck_assert_int_eq(put("a", 1, UINT64_MAX), -EFBIG);
	ck_assert_int_eq(fsd_call_truncate(client, sealed.data, end + 1), -EFBIG);
	ck_assert_int_eq(fsd_call_room(client, sealed.data, GROW, end, 1), -EFBIG);
	ck_assert_int_eq(fsd_call_room(client, sealed.data, KEEP, UINT64_MAX, UINT64_MAX), -EFBIG);
	ck_assert_uint_eq(stat_now().size, 0);
}
END_TEST

/* -- append ------------------------------------------------------------------------------------ */

#define APPENDERS 4u
#define RECORDS 50u
#define RECORD_BYTES 1500u /* not a divisor of anything */

static void append_main(void *arg)
{
	unsigned me = *(unsigned *)arg;
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 1, 0);
	struct fsd_sealed mine;
	struct rpc_client *c =
		fsd_fixture_client(&node, me % 2 ? FSD_FIXTURE_TCP : FSD_FIXTURE_UNIX, 100 + me);
	unsigned char record[RECORD_BYTES];
	uint64_t offset;

	ticket.session = 100 + me;
	fsd_fixture_seal(&node, &ticket, &mine);
	for (unsigned i = 0; i < RECORDS; i++) {
		memset(record, (int)(me * RECORDS + i + 1), sizeof(record));
		ck_assert_int_eq(fsd_call_append(c, mine.data, record, sizeof(record), &offset), 0);
		ck_assert_uint_eq(offset % RECORD_BYTES, 0);
	}
	rpc_client_free(c);
}

START_TEST(appends_of_several_connections_are_whole_and_none_is_lost)
{
	struct gx_thread threads[APPENDERS];
	unsigned numbers[APPENDERS], seen[APPENDERS * RECORDS + 1] = {0};
	ssize_t bytes = APPENDERS * RECORDS * RECORD_BYTES;

	for (unsigned i = 0; i < APPENDERS; i++) {
		numbers[i] = i;
		ck_assert_int_eq(gx_env_thread_start(node.env, &threads[i], "append", append_main,
						     &numbers[i]),
				 0);
	}
	for (unsigned i = 0; i < APPENDERS; i++)
		gx_env_thread_join(node.env, &threads[i]);
	ck_assert_int_eq(get(in, MIB, 0), bytes);
	for (ssize_t at = 0; at < bytes; at += RECORD_BYTES) {
		for (size_t i = 1; i < RECORD_BYTES; i++)
			ck_assert_uint_eq(in[at + (ssize_t)i], in[at]);
		seen[in[at]]++;
	}
	for (unsigned i = 1; i <= APPENDERS * RECORDS; i++)
		ck_assert_uint_eq(seen[i], 1);
}
END_TEST

START_TEST(an_append_has_its_maximum_and_an_empty_one_tells_the_end)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 1, 0);
	unsigned char *much = calloc(1, 4 * MIB + 1);
	struct fsd_sealed small;
	uint64_t offset = 77;

	ck_assert_int_eq(fsd_call_append(client, sealed.data, much, 4 * MIB + 1, &offset), -EINVAL);
	ck_assert_int_eq(fsd_call_append(client, sealed.data, much, 4 * MIB, &offset), 0);
	ck_assert_uint_eq(offset, 0);
	ck_assert_int_eq(fsd_call_append(client, sealed.data, much, 0, &offset), 0);
	ck_assert_uint_eq(offset, 4 * MIB);
	ticket.size_max = 4 * MIB + 10;
	fsd_fixture_seal(&node, &ticket, &small);
	ck_assert_int_eq(fsd_call_append(client, small.data, much, 11, &offset), -EFBIG);
	ck_assert_int_eq(fsd_call_append(client, small.data, much, 10, &offset), 0);
	free(much);
}
END_TEST

/* -- holes and sizes --------------------------------------------------------------------------- */

START_TEST(sparse_stays_sparse)
{
	static const uint64_t far = UINT64_C(3) << 30;
	uint64_t sums[4], offset;
	size_t count;

	fill(out, MIB, 3);
	ck_assert_int_eq(put(out, 2 * BLOCK, 0), 0);
	ck_assert_int_eq(put(out, BLOCK, far), 0);
	ck_assert_uint_eq(stat_now().size, far + BLOCK);
	ck_assert_uint_lt(stat_now().stored_bytes, MIB);
	ck_assert_int_eq(fsd_call_seek(client, sealed.data, 0, true, &offset), 0);
	ck_assert_uint_eq(offset, 2 * BLOCK);
	ck_assert_int_eq(fsd_call_seek(client, sealed.data, offset, false, &offset), 0);
	ck_assert_uint_eq(offset, far);
	ck_assert_int_eq(fsd_call_seek(client, sealed.data, far, true, &offset), 0);
	ck_assert_uint_eq(offset, far + BLOCK);
	ck_assert_int_eq(fsd_call_seek(client, sealed.data, far + BLOCK, false, &offset), -ENXIO);
	/* Zeros that nobody has written have checksums like others. */
	ck_assert_int_eq(fsd_call_sums(client, sealed.data, 1, 4, sums, &count), 0);
	ck_assert_uint_eq(count, 4);
	ck_assert_uint_eq(sums[0], fsd_sum_block(out + BLOCK));
	for (size_t i = 1; i < 4; i++)
		ck_assert_uint_eq(sums[i], fsd_sum_zeros());
	memset(out, 0, MIB);
	for (unsigned prove = 0; prove < 2; prove++) {
		memset(in, 1, MIB);
		ck_assert_int_eq(fsd_call_read(client, sealed.data, in, MIB, MIB, prove), MIB);
		ck_assert_mem_eq(in, out, MIB);
	}
	ck_assert_int_eq(fsd_call_sync(client, sealed.data), 0);
	ck_assert_uint_lt(stat_now().stored_bytes, MIB);
}
END_TEST

START_TEST(a_hole_gives_its_space_back_and_reads_as_zeros)
{
	static unsigned char model[MIB];
	uint64_t stored;

	fill(model, MIB, 9);
	ck_assert_int_eq(put(model, MIB, 0), 0);
	ck_assert_int_eq(fsd_call_sync(client, sealed.data), 0);
	stored = stat_now().stored_bytes;
	ck_assert_int_eq(fsd_call_room(client, sealed.data, HOLE, 100, MIB / 2), 0);
	memset(model + 100, 0, MIB / 2);
	ck_assert_uint_eq(stat_now().size, MIB);
	ck_assert_uint_lt(stat_now().stored_bytes, stored);
	ck_assert_int_eq(get(in, MIB, 0), MIB);
	ck_assert_mem_eq(in, model, MIB);
	/* Over the end, and behind it: the size stays. */
	ck_assert_int_eq(fsd_call_room(client, sealed.data, HOLE, MIB - 10, UINT64_MAX), 0);
	ck_assert_int_eq(fsd_call_room(client, sealed.data, HOLE, 5 * MIB, MIB), 0);
	memset(model + MIB - 10, 0, 10);
	ck_assert_uint_eq(stat_now().size, MIB);
	ck_assert_int_eq(get(in, MIB, 0), MIB);
	ck_assert_mem_eq(in, model, MIB);
}
END_TEST

START_TEST(room_is_made_with_and_without_growing)
{
	static const uint32_t kinds[] = {0, 4, 77};

	ck_assert_int_eq(put("abc", 3, 0), 0);
	ck_assert_int_eq(fsd_call_room(client, sealed.data, KEEP, 0, 2 * MIB), 0);
	ck_assert_uint_eq(stat_now().size, 3);
	ck_assert_uint_ge(stat_now().stored_bytes, 2 * MIB);
	ck_assert_int_eq(fsd_call_room(client, sealed.data, GROW, MIB, MIB), 0);
	ck_assert_uint_eq(stat_now().size, 2 * MIB);
	ck_assert_int_eq(get(in, 2 * MIB, 0), 2 * MIB);
	ck_assert_mem_eq(in, "abc\0\0", 5);
	for (size_t i = 0; i < GX_COUNT_OF(kinds); i++)
		ck_assert_int_eq(fsd_call_room(client, sealed.data, kinds[i], 0, 10), -EINVAL);
	ck_assert_int_eq(fsd_call_room(client, sealed.data, GROW, 0, 0), -EINVAL);
}
END_TEST

/* Rule B6: room is for the checksums as well, or a write into it could still find no space. */
START_TEST(room_is_made_for_checksums_too)
{
	char path[GX_PATH_MAX], name[GX_PATH_MAX + 8];
	struct stat st;

	ck_assert_int_eq(put("abc", 3, 0), 0);
	ck_assert_int_eq(fsd_call_room(client, sealed.data, KEEP, 600 * MIB, 64 * MIB), 0);
	fsd_fixture_path(&node, 5, 1, path);
	snprintf(name, sizeof(name), "%s.new", path); /* not synced yet */
	ck_assert_int_eq(stat(name, &st), 0);
	ck_assert_uint_ge((uint64_t)st.st_blocks * 512, 64 * MIB / BLOCK * 8);
	ck_assert_uint_lt((uint64_t)st.st_blocks * 512, MIB);
	ck_assert_uint_eq(stat_now().size, 3);
	ck_assert_int_eq(get(in, BLOCK, 0), 3);
	ck_assert_mem_eq(in, "abc", 3);
}
END_TEST

START_TEST(cut_and_lengthened_again_shows_zeros)
{
	static unsigned char model[3 * BLOCK];

	fill(model, sizeof(model), 4);
	ck_assert_int_eq(put(model, sizeof(model), 0), 0);
	ck_assert_int_eq(fsd_call_truncate(client, sealed.data, BLOCK + 5), 0);
	ck_assert_int_eq(get(in, 4 * BLOCK, 0), BLOCK + 5);
	ck_assert_mem_eq(in, model, BLOCK + 5);
	ck_assert_int_eq(fsd_call_truncate(client, sealed.data, sizeof(model)), 0);
	memset(model + BLOCK + 5, 0, sizeof(model) - BLOCK - 5);
	ck_assert_int_eq(get(in, 4 * BLOCK, 0), sizeof(model));
	ck_assert_mem_eq(in, model, sizeof(model));
	ck_assert_int_eq(fsd_call_truncate(client, sealed.data, 0), 0);
	ck_assert_int_eq(get(in, BLOCK, 0), 0);
}
END_TEST

START_TEST(checksums_end_where_the_object_does)
{
	uint64_t sums[8];
	size_t count;

	fill(out, 3 * BLOCK, 6);
	ck_assert_int_eq(put(out, 2 * BLOCK + 1, 0), 0);
	ck_assert_int_eq(fsd_call_sums(client, sealed.data, 0, 8, sums, &count), 0);
	ck_assert_uint_eq(count, 3);
	memset(out + 2 * BLOCK + 1, 0, BLOCK - 1);
	for (size_t i = 0; i < count; i++)
		ck_assert_uint_eq(sums[i], fsd_sum_block(out + i * BLOCK));
	ck_assert_int_eq(fsd_call_sums(client, sealed.data, 3, 8, sums, &count), 0);
	ck_assert_uint_eq(count, 0);
	ck_assert_int_eq(fsd_call_sums(client, sealed.data, UINT64_MAX, 8, sums, &count), 0);
	ck_assert_uint_eq(count, 0);
	ck_assert_int_eq(fsd_call_sums(client, sealed.data, 0, 0, sums, &count), -EINVAL);
}
END_TEST

/* -- syncs ------------------------------------------------------------------------------------- */

static struct rpc_client *one_connection(void)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	unsigned char key[RPC_KEY_BYTES];
	char text[GX_IDENTITY_MAX];
	struct rpc_client *c;

	fsd_fixture_session(&node, FSD_FIXTURE_SESSION,
			    gx_env_wall_ns(node.env) + 60 * GX_NSEC_PER_SEC, text, key);
	options.env = node.env;
	options.endpoint = node.endpoints[FSD_FIXTURE_TCP];
	options.identity = text;
	options.key = key;
	options.connections_max = 1;
	ck_assert_int_eq(rpc_client_new(&options, &c), 0);
	return c;
}

static struct rpc_started *begin_sync(struct rpc_client *c, PbData__DataSyncRequest *request,
				      ProtobufCBinaryData ticket, int64_t silent_ns)
{
	struct rpc_call_options options = {.silent_ns = silent_ns};
	struct rpc_started *started;

	pb_data__data_sync_request__init(request);
	request->ticket = ticket;
	ck_assert_int_eq(rpc_client_start(c, rpc_method_get(RPC_INDEX_DATA_SYNC), &request->base,
					  &options, &started),
			 0);
	return started;
}

static int end_sync(struct rpc_started *started)
{
	struct rpc_reply reply;
	int r = rpc_client_finish(started, &reply);

	rpc_reply_fini(&reply);
	return r;
}

START_TEST(a_sync_does_not_hold_up_its_connection_and_is_not_silent)
{
	struct rpc_client *c = one_connection();
	PbData__DataSyncRequest request;
	struct rpc_started *started;

	ck_assert_int_eq(fsd_call_write(c, sealed.data, "abc", 3, 0), 0);
	fsd_gate_close(true, false);
	/* Without PROGRESS frames it would be given up after 400 ms (rule B10). */
	started = begin_sync(c, &request, sealed.data, 400 * GX_NSEC_PER_MSEC);
	fsd_gate_wait(1);
	ck_assert_int_eq(fsd_call_read(c, sealed.data, in, BLOCK, 0, false), 3);
	ck_assert_int_eq(fsd_call_write(c, sealed.data, "x", 1, 3), 0);
	ck_assert_int_eq(fsd_call_read(c, sealed.data, in, BLOCK, 0, true), 4);
	ck_assert(!rpc_client_started_done(started));
	/* The time is what is tested here. */
	gx_env_sleep_until(node.env, gx_env_now_ns(node.env) + 1200 * GX_NSEC_PER_MSEC);
	fsd_gate_open();
	ck_assert_int_eq(end_sync(started), 0);
	rpc_client_free(c);
}
END_TEST

START_TEST(objects_are_synced_side_by_side_and_one_sync_serves_many)
{
	PbData__DataSyncRequest requests[6];
	struct rpc_started *started[6];
	struct fsd_sealed other;

	seal_for(6, &other);
	ck_assert_int_eq(put("abc", 3, 0), 0);
	ck_assert_int_eq(fsd_call_write(client, other.data, "abc", 3, 0), 0);
	fsd_gate_close(true, false);
	for (size_t i = 0; i < GX_COUNT_OF(started); i++)
		started[i] = begin_sync(client, &requests[i], i % 2 ? other.data : sealed.data, 0);
	fsd_gate_wait(2); /* one of each */
	fsd_gate_open();
	for (size_t i = 0; i < GX_COUNT_OF(started); i++)
		ck_assert_int_eq(end_sync(started[i]), 0);
	ck_assert(stat_now().stable);
}
END_TEST

static _Atomic bool disk_is_broken;

static int broken_fdatasync(struct gx_env *env, int fd)
{
	return disk_is_broken ? -EIO : gx_env_posix()->ops->fdatasync(env, fd);
}

START_TEST(after_a_failed_sync_nothing_more_is_promised_for_the_object)
{
	static struct gx_env_ops ops;
	static struct gx_env env;
	struct fsd_sealed other;

	ck_assert_int_eq(put("abc", 3, 0), 0);
	rpc_client_free(client);
	fsd_fixture_down(&node);
	ops = *gx_env_posix()->ops;
	ops.fdatasync = broken_fdatasync;
	env = *gx_env_posix();
	env.ops = &ops;
	node.options.env = &env;
	start();
	disk_is_broken = true;
	ck_assert_int_eq(put("x", 1, 0), 0);
	ck_assert_int_eq(fsd_call_sync(client, sealed.data), -EIO);
	ck_assert_int_eq(put("y", 1, 0), -EIO);
	ck_assert_int_eq(fsd_call_sync(client, sealed.data), -EIO);
	/* It can still be read, and others are not concerned. */
	ck_assert_int_eq(get(in, BLOCK, 0), 3);
	seal_for(6, &other);
	ck_assert_int_eq(fsd_call_write(client, other.data, "abc", 3, 0), 0);
}
END_TEST

static bool has_note(const struct fake_metad_seen *seen, void *arg)
{
	for (size_t i = 0; i < seen->note_count; i++)
		if (seen->notes[i].ino == 5 && seen->notes[i].generation == 1 &&
		    seen->notes[i].what == *(unsigned *)arg)
			return true;
	return false;
}

START_TEST(what_is_not_written_any_more_is_synced_and_told_as_stable)
{
	unsigned what = FSD_NOTE_STABLE;

	node.options.sync_after_ns = 50 * GX_NSEC_PER_MSEC;
	start_with_metad();
	ck_assert_int_eq(put("abc", 3, 0), 0);
	ck_assert(fake_metad_wait(metad, has_note, &what));
	ck_assert(stat_now().stable);
}
END_TEST

START_TEST(a_drained_node_has_synced_all_and_told_metad)
{
	unsigned what = FSD_NOTE_STABLE;
	struct fake_metad_seen *seen;

	node.options.sync_after_ns = 5 * GX_NSEC_PER_SEC;
	start_with_metad();
	while (!fsd_server_known(node.server))
		ck_assert_int_eq(put("abc", 3, 0), 0);
	ck_assert_int_eq(put("abc", 3, 0), 0);
	rpc_client_free(client);
	client = NULL;
	fsd_fixture_drain(&node);
	seen = fake_metad_seen(metad);
	ck_assert(has_note(seen, &what));
	ck_assert_uint_eq(seen->leaves, 1);
	free(seen);
}
END_TEST

START_TEST(a_drain_answers_the_sync_that_is_being_done)
{
	PbData__DataSyncRequest request;
	struct rpc_started *started;

	ck_assert_int_eq(put("abc", 3, 0), 0);
	fsd_gate_close(true, false);
	started = begin_sync(client, &request, sealed.data, 0);
	fsd_gate_wait(1);
	fsd_gate_open();
	fsd_fixture_drain(&node);
	ck_assert_int_eq(end_sync(started), 0);
}
END_TEST

/* -- room -------------------------------------------------------------------------------------- */

/* The node looks at the disk now and then only. */
static void set_free(uint64_t bytes)
{
	uint64_t capacity, free_bytes;

	fsd_gate_space(bytes);
	fsd_table_space(node.server->table, &capacity, &free_bytes);
	ck_assert_uint_eq(free_bytes, bytes > 64 * MIB ? bytes - 64 * MIB : 0);
}

START_TEST(reserved_space_is_not_given_to_writers)
{
	struct fsd_sealed other;
	uint64_t offset;

	node.options.reserved_bytes = 64 * MIB;
	start();
	seal_for(6, &other);
	set_free(200 * MIB);
	fill(out, MIB, 2);
	ck_assert_int_eq(put(out, MIB, 0), 0);
	ck_assert_int_eq(fsd_call_truncate(client, sealed.data, 10 * MIB), 0);
	set_free(64 * MIB);
	ck_assert_int_eq(put(out, MIB, 10 * MIB), -ENOSPC);
	ck_assert_int_eq(fsd_call_append(client, sealed.data, out, 1, &offset), -ENOSPC);
	ck_assert_int_eq(put(out, MIB, 5 * MIB), -ENOSPC); /* a hole */
	ck_assert_int_eq(fsd_call_room(client, sealed.data, GROW, 0, 11 * MIB), -ENOSPC);
	ck_assert_int_eq(fsd_call_write(client, other.data, "new", 3, 0), -ENOSPC);
	/* What is there can be changed, synced and read. */
	ck_assert_int_eq(put(out + 1, MIB / 2, 0), 0);
	ck_assert_int_eq(fsd_call_sync(client, sealed.data), 0);
	ck_assert_int_eq(get(in, MIB, 0), MIB);
	ck_assert_mem_eq(in, out + 1, MIB / 2);
	ck_assert_mem_eq(in + MIB / 2, out + MIB / 2, MIB / 2);
	ck_assert_uint_eq(stat_now().size, 10 * MIB);
	set_free(67 * MIB);
	ck_assert_int_eq(put(out, 2 * MIB, 10 * MIB), 0);
	ck_assert_int_eq(fsd_call_write(client, other.data, "new", 3, 0), 0);
}
END_TEST

/* -- damage ------------------------------------------------------------------------------------ */

START_TEST(a_flipped_byte_is_proven_told_and_never_made_good_by_a_write)
{
	unsigned what = FSD_NOTE_DAMAGED;

	start_with_metad();
	fill(out, 16 * BLOCK, 8);
	ck_assert_int_eq(put(out, 16 * BLOCK, 0), 0);
	ck_assert_int_eq(fsd_call_sync(client, sealed.data), 0);
	fsd_fixture_flip(&node, 5, 1, 3 * BLOCK + 77);
	/* The reader finds out by itself, and gets its proof. */
	ck_assert_int_eq(get(in, 16 * BLOCK, 0), -EILSEQ);
	ck_assert_int_eq(fsd_call_read(client, sealed.data, in, 16 * BLOCK, 0, true), -EBADMSG);
	ck_assert(fake_metad_wait(metad, has_note, &what));
	ck_assert(stat_now().bad);
	/* The other blocks are good. */
	ck_assert_int_eq(fsd_call_read(client, sealed.data, in, 3 * BLOCK, 0, true), 3 * BLOCK);
	ck_assert_int_eq(fsd_call_read(client, sealed.data, in, 12 * BLOCK, 4 * BLOCK, true),
			 12 * BLOCK);
	ck_assert_mem_eq(in, out + 4 * BLOCK, 12 * BLOCK);
	/* Changing a part of the block would hide it; all of it is another block. */
	ck_assert_int_eq(put("x", 1, 3 * BLOCK + 5), -EBADMSG);
	ck_assert_int_eq(fsd_call_read(client, sealed.data, in, BLOCK, 3 * BLOCK, true), -EBADMSG);
	ck_assert_int_eq(put(out + 3 * BLOCK, BLOCK, 3 * BLOCK), 0);
	ck_assert_int_eq(get(in, 16 * BLOCK, 0), 16 * BLOCK);
	ck_assert_mem_eq(in, out, 16 * BLOCK);
}
END_TEST

START_TEST(a_reader_beside_a_writer_gets_a_proof)
{
	/* A quick read may meet bytes of one write and checksums of another; a proof may not. */
	for (unsigned i = 0; i < 200; i++) {
		PbData__DataWriteRequest request = PB_DATA__DATA_WRITE_REQUEST__INIT;
		struct iovec iov = {out, 64 * BLOCK};
		struct rpc_call_options options = {.payload_out = &iov, .payload_out_count = 1};
		struct rpc_started *started;
		struct rpc_reply reply;

		fill(out, 64 * BLOCK, i);
		request.ticket = sealed.data;
		ck_assert_int_eq(rpc_client_start(client, rpc_method_get(RPC_INDEX_DATA_WRITE),
						  &request.base, &options, &started),
				 0);
		ck_assert_int_ge(fsd_call_read(client, sealed.data, in, 64 * BLOCK, 0, true), 0);
		ck_assert_int_eq(rpc_client_finish(started, &reply), 0);
		rpc_reply_fini(&reply);
	}
	ck_assert(!stat_now().bad);
}
END_TEST

/* -- descriptors ------------------------------------------------------------------------------- */

START_TEST(a_descriptor_reads_and_can_do_nothing_else)
{
	int fd;

	fill(out, MIB, 1);
	ck_assert_int_eq(put(out, MIB, 0), 0);
	fd = fsd_call_descriptor(client, sealed.data);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_int_eq(gx_env_pread(node.env, fd, in, MIB, 0), MIB);
	ck_assert_mem_eq(in, out, MIB);
	ck_assert_int_eq(gx_env_pwrite(node.env, fd, "x", 1, 0), -EBADF);
	ck_assert_int_lt(ftruncate(fd, 0), 0);
	/* What is written later is seen by it: it is the same file. */
	ck_assert_int_eq(put("zz", 2, 0), 0);
	ck_assert_int_eq(gx_env_pread(node.env, fd, in, 2, 0), 2);
	ck_assert_mem_eq(in, "zz", 2);
	close(fd);
}
END_TEST

START_TEST(a_descriptor_is_only_passed_on_a_unix_socket)
{
	struct rpc_client *c =
		fsd_fixture_client(&node, (enum fsd_fixture_kind)_i, FSD_FIXTURE_SESSION);

	ck_assert_int_eq(put("abc", 3, 0), 0);
	ck_assert_int_eq(fsd_call_descriptor(c, sealed.data), -EOPNOTSUPP);
	rpc_client_free(c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsd_service");
	SRunner *runner = srunner_create(suite);
	TCase *tc = tcase_create("fsd_service");
	TCase *own = tcase_create("own_start");
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, what_was_written_is_read_over_each_transport, 0, FSD_FIXTURE_COUNT);
	tcase_add_test(tc, writes_anywhere_make_one_content_and_gaps_are_zeros);
	tcase_add_loop_test(tc, reads_are_of_whole_blocks_and_none_lies_behind_the_end, 0, 2);
	tcase_add_test(tc, the_clock_goes_up_with_every_change_and_not_without);
	tcase_add_test(tc, more_than_fits_is_refused);
	tcase_add_test(tc, appends_of_several_connections_are_whole_and_none_is_lost);
	tcase_add_test(tc, an_append_has_its_maximum_and_an_empty_one_tells_the_end);
	tcase_add_test(tc, sparse_stays_sparse);
	tcase_add_test(tc, a_hole_gives_its_space_back_and_reads_as_zeros);
	tcase_add_test(tc, room_is_made_with_and_without_growing);
	tcase_add_test(tc, room_is_made_for_checksums_too);
	tcase_add_test(tc, cut_and_lengthened_again_shows_zeros);
	tcase_add_test(tc, checksums_end_where_the_object_does);
	tcase_add_test(tc, a_sync_does_not_hold_up_its_connection_and_is_not_silent);
	tcase_add_test(tc, objects_are_synced_side_by_side_and_one_sync_serves_many);
	tcase_add_test(tc, after_a_failed_sync_nothing_more_is_promised_for_the_object);
	tcase_add_test(tc, a_drain_answers_the_sync_that_is_being_done);
	tcase_add_test(tc, a_reader_beside_a_writer_gets_a_proof);
	tcase_add_test(tc, a_descriptor_reads_and_can_do_nothing_else);
	tcase_add_loop_test(tc, a_descriptor_is_only_passed_on_a_unix_socket, FSD_FIXTURE_TCP,
			    FSD_FIXTURE_COUNT);
	tcase_add_checked_fixture(own, setup_only, teardown);
	tcase_set_timeout(own, 60);
	tcase_add_test(own, what_is_not_written_any_more_is_synced_and_told_as_stable);
	tcase_add_test(own, a_drained_node_has_synced_all_and_told_metad);
	tcase_add_test(own, reserved_space_is_not_given_to_writers);
	tcase_add_test(own, a_flipped_byte_is_proven_told_and_never_made_good_by_a_write);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, own);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
