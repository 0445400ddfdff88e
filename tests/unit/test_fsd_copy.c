/*
 * Copies between storage nodes (rule B9): whole ones, those that catch up from an older
 * generation, damage on either side, sources that fail.
 */
#include "common/gx_log.h"
#include "fsd/fsd_table_impl.h"
#include "rpc/rpc_status.h"
#include "tests/lib/fake_metad.h"
#include "tests/lib/fsd_fixture.h"
#include <check.h>

#define BLOCK FSD_BLOCK_BYTES
#define MIB (1024u * 1024)
#define BYTES (5 * MIB + 1234) /* of the object: several pieces, and a cut block */
#define INO 5u

static struct fsd_fixture from, second, to;
static struct rpc_client *source, *target; /* of FSD_FIXTURE_SESSION */
static unsigned char content[BYTES], in[8 * MIB];

/* A source as metad names it in a job. */
struct place {
	PbMeta__Place place;
	char address[GX_ADDR_TEXT_MAX], identity[GX_IDENTITY_MAX];
	char *addresses[1];
	unsigned char key[RPC_KEY_BYTES];
	struct fsd_sealed sealed;
};

/* -- fixture ----------------------------------------------------------------------------------- */

static void ignore_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		       const char *line GX_UNUSED)
{
}

static void fill(unsigned char *buf, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		buf[i] = (unsigned char)(seed + i * 7 + i / BLOCK * 13 + (i >> 16) + 1);
}

static ProtobufCBinaryData ticket_for(struct fsd_fixture *f, uint64_t generation, uint32_t rights)
{
	static struct fsd_sealed sealed;
	struct rpc_file_ticket ticket = fsd_fixture_ticket(f, INO, generation, 0);

	ticket.rights = rights;
	return fsd_fixture_seal(f, &ticket, &sealed);
}

static void put(struct fsd_fixture *f, struct rpc_client *client, uint64_t generation,
		const void *data, size_t bytes, uint64_t offset)
{
	ck_assert_int_eq(fsd_call_write(client,
					ticket_for(f, generation, RPC_FILE_READ | RPC_FILE_WRITE),
					data, bytes, offset),
			 0);
}

static void setup(void)
{
	gx_log_to_callback(ignore_log, NULL);
	fsd_gate_init();
	fsd_fixture_init(&from, "fsd1");
	fsd_fixture_init(&second, "fsd2");
	fsd_fixture_init(&to, "fsd3");
	to.options.env = fsd_gate_env();
	fsd_fixture_up(&from);
	fsd_fixture_up(&second);
	fsd_fixture_up(&to);
	source = fsd_fixture_client(&from, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
	target = fsd_fixture_client(&to, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
	fill(content, sizeof(content), 1);
	put(&from, source, 7, content, sizeof(content), 0);
}

static void teardown(void)
{
	fsd_gate_open();
	rpc_client_free(source);
	rpc_client_free(target);
	fsd_fixture_fini(&from);
	fsd_fixture_fini(&second);
	fsd_fixture_fini(&to);
	fsd_gate_fini();
}

static void make_place(struct fsd_fixture *f, enum fsd_fixture_kind kind, uint64_t generation,
		       struct place *p)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(f, INO, generation, 0);

	ticket.rights = RPC_FILE_READ;
	ticket.session = 900;
	rpc_endpoint_format(&f->endpoints[kind], p->address);
	fsd_fixture_session(f, 900, ticket.expires_ns, p->identity, p->key);
	p->addresses[0] = p->address;
	pb_meta__place__init(&p->place);
	p->place.node = (char *)f->options.name;
	p->place.addresses = p->addresses;
	p->place.n_addresses = 1;
	p->place.generation = generation;
	p->place.ticket = fsd_fixture_seal(f, &ticket, &p->sealed);
	p->place.session_ticket = p->identity;
	p->place.session_key = (ProtobufCBinaryData){.data = p->key, .len = sizeof(p->key)};
}

/* Copies generation 7 from these, with a base (0: none). */
static int copy_from(uint64_t base, struct place **places, size_t count)
{
	PbMeta__Place *list[4];
	PbMeta__Job job = PB_META__JOB__INIT;
	uint64_t size = 0;
	int r;

	for (size_t i = 0; i < count; i++)
		list[i] = &places[i]->place;
	job.kind = 1;
	job.ino = INO;
	job.generation = 7;
	job.from_generation = base;
	job.sources = list;
	job.n_sources = count;
	r = fsd_copy_job(to.server, &job, &size);
	/* Half a copy is never left. */
	ck_assert(!fsd_fixture_has(&to, INO, FSD_COPY_GENERATION));
	if (r == 0)
		ck_assert_uint_eq(size, sizeof(content));
	return r;
}

static int copy(uint64_t base)
{
	struct place place, *list[] = {&place};

	make_place(&from, FSD_FIXTURE_UNIX, 7, &place);
	return copy_from(base, list, 1);
}

static uint64_t reads_of(struct fsd_fixture *f)
{
	struct rpc_dispatcher *d = fsd_server_dispatcher(f->server);
	uint64_t count;

	rpc_dispatcher_lock(d);
	count = d->stats.methods[RPC_INDEX_DATA_READ].latency.count;
	rpc_dispatcher_unlock(d);
	return count;
}

/* The copy is the object, verified, on disk, and nothing of a base is left. */
static void copy_is_right(void)
{
	ProtobufCBinaryData ticket = ticket_for(&to, 7, RPC_FILE_READ);
	PbData__DataStatReply stat;

	for (size_t at = 0; at < sizeof(content); at += 2 * MIB) {
		size_t bytes = GX_MIN(sizeof(content) - at, (size_t)2 * MIB);

		ck_assert_int_eq(fsd_call_read(target, ticket, in, 2 * MIB, at, true),
				 (ssize_t)bytes);
		ck_assert_mem_eq(in, content + at, bytes);
	}
	ck_assert_int_eq(fsd_call_stat(target, ticket, &stat), 0);
	ck_assert_uint_eq(stat.size, sizeof(content));
	ck_assert(!stat.bad);
	for (uint64_t generation = 1; generation < 7; generation++)
		ck_assert(!fsd_fixture_has(&to, INO, generation));
}

/* -- copies ------------------------------------------------------------------------------------ */

START_TEST(a_copy_has_all_bytes_over_each_transport)
{
	struct place place, *list[] = {&place};
	PbData__DataStatReply stat;

	make_place(&from, (enum fsd_fixture_kind)_i, 7, &place);
	ck_assert_int_eq(copy_from(0, list, 1), 0);
	ck_assert_int_eq(fsd_call_stat(target, ticket_for(&to, 7, RPC_FILE_READ), &stat), 0);
	ck_assert(stat.stable);
	copy_is_right();
	/* Asked for again it costs no byte. */
	ck_assert_uint_eq(reads_of(&from), 6);
	ck_assert_int_eq(copy_from(0, list, 1), 0);
	ck_assert_uint_eq(reads_of(&from), 6);
	copy_is_right();
}
END_TEST

START_TEST(an_empty_object_is_copied_too)
{
	PbData__DataStatReply stat;
	struct place place;
	PbMeta__Place *list[] = {&place.place};
	PbMeta__Job job = PB_META__JOB__INIT;
	uint64_t size = 77;

	ck_assert_int_eq(
		fsd_call_truncate(source, ticket_for(&from, 7, RPC_FILE_READ | RPC_FILE_WRITE), 0),
		0);
	make_place(&from, FSD_FIXTURE_UNIX, 7, &place);
	job.kind = 1;
	job.ino = INO;
	job.generation = 7;
	job.sources = list;
	job.n_sources = 1;
	ck_assert_int_eq(fsd_copy_job(to.server, &job, &size), 0);
	ck_assert_uint_eq(size, 0);
	ck_assert_int_eq(fsd_call_stat(target, ticket_for(&to, 7, RPC_FILE_READ), &stat), 0);
	ck_assert_uint_eq(stat.size, 0);
}
END_TEST

START_TEST(holes_stay_holes)
{
	ProtobufCBinaryData ticket;
	PbData__DataStatReply here, there;

	ticket = ticket_for(&from, 7, RPC_FILE_READ | RPC_FILE_WRITE);
	ck_assert_int_eq(fsd_call_room(source, ticket, 1, MIB, 3 * MIB), 0);
	/* Zeros that somebody has written need not be stored, either. */
	memset(content + MIB, 0, 3 * MIB + 65536);
	put(&from, source, 7, content + 4 * MIB, 65536, 4 * MIB);
	/* On our side it is full of something. */
	memset(in, 'x', sizeof(in));
	put(&to, target, 3, in, sizeof(in), 0);
	ck_assert_int_eq(copy(3), 0);
	copy_is_right();
	ck_assert_int_eq(fsd_call_stat(source, ticket_for(&from, 7, RPC_FILE_READ), &there), 0);
	ck_assert_int_eq(fsd_call_stat(target, ticket_for(&to, 7, RPC_FILE_READ), &here), 0);
	ck_assert_uint_le(here.stored_bytes, there.stored_bytes);
}
END_TEST

START_TEST(only_blocks_that_differ_travel)
{
	/* The base: longer, shorter, the same but for one block, damaged, of the same length. */
	static const size_t sizes[] = {6 * MIB, MIB + 10, BYTES, BYTES, BYTES};
	static const uint64_t reads[] = {1, 5, 1, 1, 0};
	size_t same = GX_MIN(sizes[_i], (size_t)BYTES);

	memset(in, 'x', sizeof(in));
	memcpy(in, content, same);
	if (_i == 2)
		in[3 * MIB + 17] ^= 1;
	put(&to, target, 3, in, sizes[_i], 0);
	ck_assert_int_eq(fsd_call_sync(target, ticket_for(&to, 3, RPC_FILE_READ)), 0);
	if (_i == 3)
		fsd_fixture_flip(&to, INO, 3, 2 * MIB + 5);
	ck_assert_int_eq(copy(3), 0);
	ck_assert_uint_eq(reads_of(&from), reads[_i]);
	copy_is_right();
}
END_TEST

START_TEST(a_damaged_copy_is_mended_in_place)
{
	ck_assert_int_eq(copy(0), 0);
	fsd_fixture_flip(&to, INO, 7, MIB + 1);
	fsd_fixture_flip(&to, INO, 7, BYTES - 1);
	ck_assert_int_eq(
		fsd_call_read(target, ticket_for(&to, 7, RPC_FILE_READ), in, MIB, MIB, true),
		-EBADMSG);
	ck_assert_int_eq(copy(0), 0);
	ck_assert_int_eq(
		fsd_call_read(target, ticket_for(&to, 7, RPC_FILE_READ), in, MIB, MIB, true), MIB);
	ck_assert_mem_eq(in, content + MIB, MIB);
	copy_is_right();
}
END_TEST

START_TEST(one_that_cannot_be_opened_is_put_aside_and_made_anew)
{
	char path[GX_PATH_MAX];
	size_t bytes;

	ck_assert_int_eq(copy(0), 0);
	rpc_client_free(target);
	fsd_fixture_down(&to);
	/* Its checksums are lost. */
	fsd_fixture_path(&to, INO, 7, path);
	bytes = strlen(path);
	memcpy(path + bytes, ".sum", 5);
	ck_assert_int_eq(gx_env_unlink(to.env, path), 0);
	fsd_fixture_up(&to);
	target = fsd_fixture_client(&to, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
	ck_assert_int_eq(copy(0), 0);
	copy_is_right();
}
END_TEST

/* -- sources that are no good ------------------------------------------------------------------ */

START_TEST(a_damaged_source_is_given_up_and_nothing_of_it_counts)
{
	struct place bad, good, *list[] = {&bad, &good};
	struct rpc_client *client;

	ck_assert_int_eq(fsd_call_sync(source, ticket_for(&from, 7, RPC_FILE_READ)), 0);
	fsd_fixture_flip(&from, INO, 7, 4 * MIB + 7);
	ck_assert_int_eq(copy(0), -EBADMSG);
	ck_assert(!fsd_fixture_has(&to, INO, 7));
	client = fsd_fixture_client(&second, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
	put(&second, client, 7, content, sizeof(content), 0);
	rpc_client_free(client);
	make_place(&from, FSD_FIXTURE_UNIX, 7, &bad);
	make_place(&second, FSD_FIXTURE_TCP, 7, &good);
	ck_assert_int_eq(copy_from(0, list, 2), 0);
	copy_is_right();
	/* The second was asked for what the first had not brought. */
	ck_assert_uint_gt(reads_of(&second), 0);
}
END_TEST

START_TEST(a_source_that_is_away_is_passed_over)
{
	struct place away, good, *list[] = {&away, &good};

	make_place(&second, FSD_FIXTURE_TCP, 7, &away);
	make_place(&from, FSD_FIXTURE_TCP, 7, &good);
	fsd_fixture_down(&second);
	ck_assert_int_eq(copy_from(0, list, 2), 0);
	copy_is_right();
	ck_assert_int_eq(copy_from(0, list, 1), -EHOSTUNREACH);
	ck_assert_int_eq(copy_from(0, list, 0), -EHOSTUNREACH);
}
END_TEST

START_TEST(a_source_without_that_generation_is_stale)
{
	struct place other, *list[] = {&other};

	make_place(&from, FSD_FIXTURE_UNIX, 8, &other);
	ck_assert_int_eq(copy_from(0, list, 1), -ESTALE);
	/* A ticket that is over is not the object's fault: metad makes another. */
	make_place(&from, FSD_FIXTURE_UNIX, 7, &other);
	other.sealed.bytes[20] ^= 1;
	ck_assert_int_eq(copy_from(0, list, 1), -ESTALE);
	ck_assert(!fsd_fixture_has(&to, INO, 7));
}
END_TEST

START_TEST(an_old_base_stays_what_it_was_if_the_copy_fails)
{
	struct place other, *list[] = {&other};

	put(&to, target, 3, "old", 3, 0);
	make_place(&from, FSD_FIXTURE_UNIX, 8, &other);
	ck_assert_int_eq(copy_from(3, list, 1), -ESTALE);
	ck_assert_int_eq(
		fsd_call_read(target, ticket_for(&to, 3, RPC_FILE_READ), in, BLOCK, 0, true), 3);
	ck_assert_mem_eq(in, "old", 3);
}
END_TEST

/* -- while it is being made -------------------------------------------------------------------- */

struct running {
	struct gx_thread thread;
	uint64_t base;
	int result;
};

static void running_main(void *arg)
{
	struct running *running = arg;

	running->result = copy(running->base);
}

/* Its first write waits at the gate. */
static void begin_copy(struct running *running, uint64_t base)
{
	running->base = base;
	fsd_gate_close(false, true);
	ck_assert_int_eq(
		gx_env_thread_start(to.env, &running->thread, "copy", running_main, running), 0);
	fsd_gate_wait(1);
}

static int end_copy(struct running *running)
{
	fsd_gate_open();
	gx_env_thread_join(to.env, &running->thread);
	return running->result;
}

static int read_to(uint64_t generation, uint64_t base)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&to, INO, generation, base);
	struct fsd_sealed sealed;

	ticket.rights = RPC_FILE_READ;
	return (int)fsd_call_read(target, fsd_fixture_seal(&to, &ticket, &sealed), in, BLOCK, 0,
				  false);
}

START_TEST(nobody_sees_half_a_copy_or_the_base_it_is_made_from)
{
	struct running running;

	put(&to, target, 3, "old bytes", 9, 0);
	ck_assert_int_eq(read_to(3, 0), 9);
	begin_copy(&running, 3);
	ck_assert_int_eq(read_to(3, 0), -ESTALE);
	ck_assert_int_eq(read_to(7, 0), -ESTALE);
	ck_assert_int_eq(read_to(7, 3), -ESTALE);
	ck_assert_int_eq(read_to(FSD_COPY_GENERATION, 0), -ESTALE);
	ck_assert_int_eq(end_copy(&running), 0);
	ck_assert_int_eq(read_to(7, 0), BLOCK);
	ck_assert_int_eq(read_to(3, 0), -ESTALE);
	copy_is_right();
}
END_TEST

START_TEST(a_source_that_changes_meanwhile_was_the_wrong_one)
{
	struct running running;

	/* With a base nothing is written before the source has been looked at. */
	put(&to, target, 3, "old bytes", 9, 0);
	begin_copy(&running, 3);
	put(&from, source, 7, "changed", 7, 0);
	ck_assert_int_eq(end_copy(&running), -ESTALE);
	ck_assert(!fsd_fixture_has(&to, INO, 7));
	memcpy(content, "changed", 7);
	ck_assert_int_eq(copy(3), 0);
	copy_is_right();
}
END_TEST

START_TEST(the_base_goes_only_when_the_copy_is_on_disk)
{
	struct running running;

	put(&to, target, 3, content, MIB, 0);
	fsd_gate_close(true, false);
	running.base = 3;
	ck_assert_int_eq(
		gx_env_thread_start(to.env, &running.thread, "copy", running_main, &running), 0);
	fsd_gate_wait(1);
	ck_assert(fsd_fixture_has(&to, INO, 3));
	ck_assert(!fsd_fixture_has(&to, INO, 7));
	ck_assert_int_eq(end_copy(&running), 0);
	copy_is_right();
}
END_TEST

START_TEST(a_full_disk_makes_no_copy)
{
	uint64_t capacity, free_bytes;

	rpc_client_free(target);
	fsd_fixture_down(&to);
	to.options.reserved_bytes = 64 * MIB;
	fsd_fixture_up(&to);
	target = fsd_fixture_client(&to, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
	fsd_gate_space(64 * MIB + BLOCK);
	fsd_table_space(to.server->table, &capacity, &free_bytes);
	ck_assert_int_eq(copy(0), -ENOSPC);
	ck_assert(!fsd_fixture_has(&to, INO, 7));
	fsd_gate_space(500 * MIB);
	ck_assert_int_eq(copy(0), 0);
	copy_is_right();
}
END_TEST

/* -- as metad asks for it ---------------------------------------------------------------------- */

static bool has_done(const struct fake_metad_seen *seen, void *arg)
{
	return seen->done_count >= *(size_t *)arg;
}

static void give_job(struct fake_metad *metad, struct place *place)
{
	PbMeta__Place *list[] = {&place->place};
	PbMeta__Job job = PB_META__JOB__INIT;

	job.id = 1;
	job.kind = 1;
	job.ino = INO;
	job.generation = 7;
	job.sources = list;
	job.n_sources = 1;
	fake_metad_give(metad, &job);
}

START_TEST(a_job_of_metad_makes_a_copy_and_a_node_that_ends_gives_it_up)
{
	struct fake_metad *metad = fake_metad_start("fsd3");
	struct fake_metad_seen *seen;
	struct place place;
	size_t count = 1;

	make_place(&from, FSD_FIXTURE_UNIX, 7, &place);
	rpc_client_free(target);
	target = NULL;
	fsd_fixture_down(&to);
	fsd_fixture_use_metad(&to, metad);
	fsd_fixture_up(&to);
	if (_i == 0) {
		give_job(metad, &place);
		ck_assert(fake_metad_wait(metad, has_done, &count));
		seen = fake_metad_seen(metad);
		ck_assert_uint_eq(seen->done[0].status, RPC_STATUS_OK);
		ck_assert_uint_eq(seen->done[0].size, sizeof(content));
		ck_assert(seen->done[0].stable);
		free(seen);
		target = fsd_fixture_client(&to, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
		copy_is_right();
	} else {
		/* The gate lets one write through only when the node is stopping. */
		fsd_gate_close(false, true);
		give_job(metad, &place);
		fsd_gate_wait(1);
		fsd_gate_open();
		fsd_fixture_down(&to);
	}
	rpc_client_free(target);
	target = NULL;
	fsd_fixture_down(&to);
	fake_metad_stop(metad);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsd_copy");
	SRunner *runner = srunner_create(suite);
	TCase *tc = tcase_create("fsd_copy");
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_copy_has_all_bytes_over_each_transport, 0, FSD_FIXTURE_COUNT);
	tcase_add_test(tc, an_empty_object_is_copied_too);
	tcase_add_test(tc, holes_stay_holes);
	tcase_add_loop_test(tc, only_blocks_that_differ_travel, 0, 5);
	tcase_add_test(tc, a_damaged_copy_is_mended_in_place);
	tcase_add_test(tc, one_that_cannot_be_opened_is_put_aside_and_made_anew);
	tcase_add_test(tc, a_damaged_source_is_given_up_and_nothing_of_it_counts);
	tcase_add_test(tc, a_source_that_is_away_is_passed_over);
	tcase_add_test(tc, a_source_without_that_generation_is_stale);
	tcase_add_test(tc, an_old_base_stays_what_it_was_if_the_copy_fails);
	tcase_add_test(tc, nobody_sees_half_a_copy_or_the_base_it_is_made_from);
	tcase_add_test(tc, a_source_that_changes_meanwhile_was_the_wrong_one);
	tcase_add_test(tc, the_base_goes_only_when_the_copy_is_on_disk);
	tcase_add_test(tc, a_full_disk_makes_no_copy);
	tcase_add_loop_test(tc, a_job_of_metad_makes_a_copy_and_a_node_that_ends_gives_it_up, 0, 2);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
