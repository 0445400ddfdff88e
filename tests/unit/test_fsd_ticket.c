/*
 * Who may do what at a storage node: session tickets, file tickets (rule S1), and the generations
 * they name (rules B1, B2).
 */
#include "common/gx_log.h"
#include "fsd/fsd_table_impl.h"
#include "rpc/rpc_chan.h"
#include "rpc/rpc_ticket.h"
#include "tests/lib/fsd_fixture.h"
#include <check.h>
#include <unistd.h>

#define BLOCK FSD_BLOCK_BYTES
#define PAST_NS (120 * GX_NSEC_PER_SEC) /* more than clocks may differ */

static struct fsd_fixture node, other_node;
static struct rpc_client *client; /* of FSD_FIXTURE_SESSION, on the unix socket */
static struct fsd_sealed sealed;  /* inode 5, generation 3 */
static unsigned char in[2 * BLOCK];

/* -- fixture ----------------------------------------------------------------------------------- */

static void ignore_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		       const char *line GX_UNUSED)
{
}

static void start(void)
{
	fsd_fixture_up(&node);
	client = fsd_fixture_client(&node, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
}

/* An object with something in it. */
static void setup(void)
{
	struct rpc_file_ticket ticket;

	gx_log_to_callback(ignore_log, NULL);
	fsd_gate_init();
	fsd_fixture_init(&node, "fsd7");
	fsd_fixture_init(&other_node, "fsd8");
	node.options.env = fsd_gate_env();
	start();
	ticket = fsd_fixture_ticket(&node, 5, 3, 0);
	fsd_fixture_seal(&node, &ticket, &sealed);
	ck_assert_int_eq(fsd_call_write(client, sealed.data, "first", 5, 0), 0);
}

static void teardown(void)
{
	fsd_gate_open();
	rpc_client_free(client);
	fsd_fixture_fini(&node);
	fsd_fixture_fini(&other_node);
	fsd_gate_fini();
}

static void restart(void)
{
	rpc_client_free(client);
	fsd_fixture_down(&node);
	start();
}

/* What each method says to this ticket. */
enum method { READ, PROVE, WRITE, APPEND, SYNC, TRUNCATE, ROOM, SEEK, SUMS, STAT, FD, METHODS };
#define READS UINT32_C(0x583)  /* of these, which want the right to read, */
#define WRITES UINT32_C(0x06c) /* or to write */

static int try_method(enum method method, ProtobufCBinaryData ticket)
{
	PbData__DataStatReply stat;
	uint64_t number;
	size_t count;
	int r = -ENOSYS;

	switch (method) {
	case READ:
	case PROVE:
		return (int)fsd_call_read(client, ticket, in, BLOCK, 0, method == PROVE);
	case WRITE:
		return fsd_call_write(client, ticket, "x", 1, 0);
	case APPEND:
		return fsd_call_append(client, ticket, "x", 1, &number);
	case SYNC:
		return fsd_call_sync(client, ticket);
	case TRUNCATE:
		return fsd_call_truncate(client, ticket, 1);
	case ROOM:
		return fsd_call_room(client, ticket, 1, 0, 1);
	case SEEK:
		return fsd_call_seek(client, ticket, 0, false, &number);
	case SUMS:
		return fsd_call_sums(client, ticket, 0, 1, &number, &count);
	case STAT:
		return fsd_call_stat(client, ticket, &stat);
	case FD:
		r = fsd_call_descriptor(client, ticket);
		if (r >= 0)
			close(r);
		return r;
	case METHODS:
		break;
	}
	return r;
}

static void refused_by_all(ProtobufCBinaryData ticket, int err)
{
	for (enum method i = READ; i < METHODS; i++)
		ck_assert_msg(try_method(i, ticket) == err, "method %d", (int)i);
}

static void content_is(ProtobufCBinaryData ticket, const char *text)
{
	ck_assert_int_eq(fsd_call_read(client, ticket, in, BLOCK, 0, false), (ssize_t)strlen(text));
	ck_assert_mem_eq(in, text, strlen(text));
}

static int get_as(uint64_t generation, uint64_t base)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, generation, base);
	struct fsd_sealed one;

	return (int)fsd_call_read(client, fsd_fixture_seal(&node, &ticket, &one), in, BLOCK, 0,
				  false);
}

/* -- file tickets ------------------------------------------------------------------------------ */

START_TEST(a_stolen_ticket_is_worth_nothing)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 3, 0);
	struct fsd_sealed one;

	ticket.session++;
	refused_by_all(fsd_fixture_seal(&node, &ticket, &one), -EKEYREJECTED);
	content_is(sealed.data, "first");
}
END_TEST

START_TEST(a_ticket_of_another_node_is_worth_nothing)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 3, 0);
	struct fsd_sealed one;

	refused_by_all(fsd_fixture_seal(&other_node, &ticket, &one), -EKEYREJECTED);
	/* The node's own key is not the one that seals: metad has both. */
	ck_assert_int_eq(rpc_file_ticket_seal(&ticket, node.key.secret, one.bytes), 0);
	refused_by_all(one.data, -EKEYREJECTED);
	content_is(sealed.data, "first");
}
END_TEST

START_TEST(a_ticket_ends_with_its_time)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 3, 0);
	struct fsd_sealed one;

	ticket.expires_ns = gx_env_wall_ns(node.env) - PAST_NS;
	refused_by_all(fsd_fixture_seal(&node, &ticket, &one), -EKEYREJECTED);
	ticket.expires_ns = INT64_MIN;
	refused_by_all(fsd_fixture_seal(&node, &ticket, &one), -EKEYREJECTED);
	/* Clocks differ a little (rule N13). */
	ticket.expires_ns = gx_env_wall_ns(node.env) - GX_NSEC_PER_SEC;
	content_is(fsd_fixture_seal(&node, &ticket, &one), "first");
}
END_TEST

START_TEST(a_ticket_gives_the_rights_it_names)
{
	static const uint32_t rights[] = {0, RPC_FILE_READ, RPC_FILE_WRITE};
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 3, 0);
	struct fsd_sealed one;

	ticket.rights = rights[_i];
	fsd_fixture_seal(&node, &ticket, &one);
	for (enum method i = READ; i < METHODS; i++) {
		bool allowed = (!(READS >> i & 1) || ticket.rights & RPC_FILE_READ) &&
			       (!(WRITES >> i & 1) || ticket.rights & RPC_FILE_WRITE);
		int r = try_method(i, one.data);

		ck_assert_msg(allowed ? r >= 0 : r == -EACCES, "method %d: %d", (int)i, r);
	}
}
END_TEST

START_TEST(a_changed_ticket_is_refused_whichever_bit_it_is)
{
	struct fsd_sealed one = sealed;

	one.data.data = one.bytes;
	for (size_t i = 0; i < RPC_FILE_TICKET_BYTES * 8; i++) {
		one.bytes[i / 8] ^= (unsigned char)(1u << i % 8);
		ck_assert_int_eq(try_method(WRITE, one.data), -EKEYREJECTED);
		one.bytes[i / 8] ^= (unsigned char)(1u << i % 8);
	}
	for (size_t i = 0; i < RPC_FILE_TICKET_BYTES; i += 11) {
		one.data.len = i;
		ck_assert_int_eq(try_method(WRITE, one.data), -EKEYREJECTED);
	}
	content_is(sealed.data, "first");
}
END_TEST

START_TEST(a_ticket_opens_its_object_and_no_other)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 6, 3, 0);
	struct fsd_sealed one;

	fsd_fixture_seal(&node, &ticket, &one);
	ck_assert_int_eq(fsd_call_write(client, one.data, "another", 7, 0), 0);
	content_is(one.data, "another");
	content_is(sealed.data, "first");
}
END_TEST

START_TEST(no_write_ends_behind_what_the_ticket_allows)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 3, 0);
	struct fsd_sealed one;
	uint64_t offset;

	ticket.size_max = 8;
	fsd_fixture_seal(&node, &ticket, &one);
	ck_assert_int_eq(fsd_call_write(client, one.data, "0123456789", 9, 0), -EFBIG);
	ck_assert_int_eq(fsd_call_write(client, one.data, "x", 1, 8), -EFBIG);
	ck_assert_int_eq(fsd_call_append(client, one.data, "abcd", 4, &offset), -EFBIG);
	ck_assert_int_eq(fsd_call_truncate(client, one.data, 9), -EFBIG);
	ck_assert_int_eq(fsd_call_room(client, one.data, 2, 0, 9), -EFBIG);
	content_is(sealed.data, "first");
	ck_assert_int_eq(fsd_call_append(client, one.data, "abc", 3, &offset), 0);
	/* What is too long already may become shorter, but not longer. */
	ticket.size_max = 2;
	fsd_fixture_seal(&node, &ticket, &one);
	ck_assert_int_eq(fsd_call_truncate(client, one.data, 9), -EFBIG);
	ck_assert_int_eq(fsd_call_truncate(client, one.data, 6), 0);
	content_is(sealed.data, "firsta");
}
END_TEST

/* -- session tickets --------------------------------------------------------------------------- */

static int connect_as(const char *identity, const unsigned char *key)
{
	struct rpc_chan_options options = {
		.env = node.env,
		.endpoint = &node.endpoints[FSD_FIXTURE_UNIX],
		.identity = identity,
		.key = key,
		.program = "test",
		.deadline_ns = gx_env_deadline_ms(node.env, 10000),
	};
	struct rpc_chan *chan;
	int r = rpc_chan_open(&options, &chan);

	if (r == 0)
		rpc_chan_close(chan);
	return r;
}

START_TEST(only_who_has_a_ticket_of_metad_for_this_node_may_connect)
{
	int64_t now = gx_env_wall_ns(node.env);
	unsigned char key[RPC_KEY_BYTES];
	char text[GX_IDENTITY_MAX];

	fsd_fixture_session(&node, 1, now + PAST_NS, text, key);
	ck_assert_int_eq(connect_as(text, key), 0);
	key[5] ^= 1;
	ck_assert_int_lt(connect_as(text, key), 0);
	fsd_fixture_session(&node, 1, now - PAST_NS, text, key);
	ck_assert_int_lt(connect_as(text, key), 0);
	fsd_fixture_session(&other_node, 1, now + PAST_NS, text, key);
	ck_assert_int_lt(connect_as(text, key), 0);
	/* Another node's name under this node's key: as a rogue node would make it. */
	other_node.options.name = "fsd7";
	fsd_fixture_session(&other_node, 1, now + PAST_NS, text, key);
	ck_assert_int_lt(connect_as(text, key), 0);
	/* Not even who has a key of the grid. */
	ck_assert_int_lt(connect_as("user:alice", key), 0);
	ck_assert_int_lt(connect_as(node.key.identity, node.key.secret), 0);
}
END_TEST

START_TEST(a_session_belongs_to_one_user)
{
	struct rpc_ticket ticket = {.session = FSD_FIXTURE_SESSION,
				    .epoch = 1,
				    .expires_ns = gx_env_wall_ns(node.env) + PAST_NS,
				    .identity = "user:mallory",
				    .node = "fsd7"};
	unsigned char key[RPC_KEY_BYTES];
	char text[GX_IDENTITY_MAX];

	rpc_ticket_format(&ticket, text);
	ck_assert_int_eq(rpc_ticket_key(text, node.node_key, key), 0);
	ck_assert_int_lt(connect_as(text, key), 0);
}
END_TEST

START_TEST(administrators_of_the_key_table_may_connect_but_have_no_object)
{
	struct rpc_keytab *keys;
	struct rpc_key key;

	ck_assert_int_eq(rpc_keytab_new(&keys), 0);
	ck_assert_int_eq(rpc_key_make(node.env, "user:root", 0, true, &key), 0);
	ck_assert_int_eq(rpc_keytab_put(keys, &key, false), 0);
	node.options.keys = keys;
	restart();
	ck_assert_int_eq(connect_as("user:root", key.secret), 0);
	rpc_client_free(client);
	fsd_fixture_down(&node);
	client = NULL;
	rpc_keytab_free(keys);
}
END_TEST

/* -- generations ------------------------------------------------------------------------------- */

START_TEST(no_other_generation_than_the_one_here_is_served)
{
	ck_assert_int_eq(get_as(3, 0), 5);
	ck_assert_int_eq(get_as(2, 0), -ESTALE);
	ck_assert_int_eq(get_as(2, 1), -ESTALE);
	ck_assert_int_eq(get_as(4, 2), -ESTALE);
	ck_assert_int_eq(get_as(5, 4), -ESTALE);
	ck_assert_int_eq(get_as(0, 0), -ESTALE);
	restart();
	ck_assert_int_eq(get_as(2, 0), -ESTALE);
	ck_assert_int_eq(get_as(4, 2), -ESTALE);
	ck_assert_int_eq(get_as(3, 0), 5);
}
END_TEST

START_TEST(the_base_moves_on_and_old_tickets_are_shut_out)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 8, 3);
	struct fsd_sealed one;

	/* A reader is enough, and who comes later with the same ticket finds it done. */
	ticket.rights = RPC_FILE_READ;
	fsd_fixture_seal(&node, &ticket, &one);
	for (unsigned i = 0; i < 3; i++)
		content_is(one.data, "first");
	refused_by_all(sealed.data, -ESTALE);
	ck_assert(fsd_fixture_has(&node, 5, 8));
	ck_assert(!fsd_fixture_has(&node, 5, 3));
	restart();
	refused_by_all(sealed.data, -ESTALE);
	content_is(one.data, "first");
	/* Nobody moves it back, or to the same from elsewhere. */
	ck_assert_int_eq(get_as(7, 3), -ESTALE);
	ck_assert_int_eq(get_as(9, 3), -ESTALE);
	ck_assert_int_eq(get_as(8, 3), 5);
}
END_TEST

START_TEST(a_new_object_is_made_only_by_who_may_write_and_without_base)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 6, 1, 0);
	struct fsd_sealed one;

	ticket.rights = RPC_FILE_READ;
	ck_assert_int_eq(try_method(STAT, fsd_fixture_seal(&node, &ticket, &one)), -ESTALE);
	ticket.rights = RPC_FILE_READ | RPC_FILE_WRITE;
	ticket.generation = 2;
	ticket.base = 1;
	ck_assert_int_eq(try_method(WRITE, fsd_fixture_seal(&node, &ticket, &one)), -ESTALE);
	ck_assert(!fsd_fixture_has(&node, 6, 2));
	ticket.base = 0;
	ck_assert_int_eq(try_method(WRITE, fsd_fixture_seal(&node, &ticket, &one)), 0);
	ck_assert(fsd_fixture_has(&node, 6, 2));
}
END_TEST

START_TEST(a_new_object_beside_an_old_one_makes_it_old)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 4, 0);
	struct fsd_sealed one;

	/* As O_TRUNC does: it begins empty, and the old one is deleted by a job later. */
	fsd_fixture_seal(&node, &ticket, &one);
	content_is(one.data, "");
	refused_by_all(sealed.data, -ESTALE);
	ck_assert_int_eq(fsd_call_write(client, one.data, "second", 6, 0), 0);
	restart();
	refused_by_all(sealed.data, -ESTALE);
	content_is(one.data, "second");
	ck_assert(fsd_fixture_has(&node, 5, 3));
}
END_TEST

struct late {
	struct rpc_client *client;
	struct fsd_sealed sealed;
	int result;
};

/* A write of two pieces; the first waits at the gate. */
static void late_main(void *arg)
{
	static unsigned char much[512 * 1024];
	struct late *late = arg;

	memset(much, 'l', sizeof(much));
	late->result = fsd_call_write(late->client, late->sealed.data, much, sizeof(much), 0);
}

static void mover_main(void *arg)
{
	*(int *)arg = get_as(8, 3);
}

static bool is_moving(void)
{
	struct fsd_object_id id = {.ino = 5, .generation = 3};
	struct fsd_table *table = node.server->table;
	const struct fsd_entry *entry;
	bool moving;

	fsd_table_lock(table);
	entry = fsd_entry_find(table, &id);
	moving = entry && entry->is_moving;
	fsd_table_unlock(table);
	return moving;
}

START_TEST(a_generation_waits_for_the_change_under_way_and_stops_the_rest_of_it)
{
	struct late late = {.client = fsd_fixture_client(&node, FSD_FIXTURE_TCP, 99)};
	struct rpc_file_ticket old = fsd_fixture_ticket(&node, 5, 3, 0);
	struct gx_thread writer, mover;
	PbData__DataStatReply stat;
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, 8, 3);
	struct fsd_sealed one;
	int moved;

	old.session = 99;
	fsd_fixture_seal(&node, &old, &late.sealed);
	fsd_gate_close(false, true);
	ck_assert_int_eq(gx_env_thread_start(node.env, &writer, "writer", late_main, &late), 0);
	fsd_gate_wait(1);
	ck_assert_int_eq(gx_env_thread_start(node.env, &mover, "mover", mover_main, &moved), 0);
	while (!is_moving())
		gx_env_sleep_until(node.env, gx_env_now_ns(node.env) + GX_NSEC_PER_MSEC);
	fsd_gate_open();
	gx_env_thread_join(node.env, &writer);
	gx_env_thread_join(node.env, &mover);
	ck_assert_int_eq(late.result, -ESTALE);
	ck_assert_int_eq(moved, BLOCK);
	/* The first piece is there, because the move waited for it; no more. */
	ck_assert_int_eq(fsd_call_stat(client, fsd_fixture_seal(&node, &ticket, &one), &stat), 0);
	ck_assert_uint_eq(stat.size, 256 * 1024);
	rpc_client_free(late.client);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsd_ticket");
	SRunner *runner = srunner_create(suite);
	TCase *tc = tcase_create("fsd_ticket");
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_stolen_ticket_is_worth_nothing);
	tcase_add_test(tc, a_ticket_of_another_node_is_worth_nothing);
	tcase_add_test(tc, a_ticket_ends_with_its_time);
	tcase_add_loop_test(tc, a_ticket_gives_the_rights_it_names, 0, 3);
	tcase_add_test(tc, a_changed_ticket_is_refused_whichever_bit_it_is);
	tcase_add_test(tc, a_ticket_opens_its_object_and_no_other);
	tcase_add_test(tc, no_write_ends_behind_what_the_ticket_allows);
	tcase_add_test(tc, only_who_has_a_ticket_of_metad_for_this_node_may_connect);
	tcase_add_test(tc, a_session_belongs_to_one_user);
	tcase_add_test(tc, administrators_of_the_key_table_may_connect_but_have_no_object);
	tcase_add_test(tc, no_other_generation_than_the_one_here_is_served);
	tcase_add_test(tc, the_base_moves_on_and_old_tickets_are_shut_out);
	tcase_add_test(tc, a_new_object_is_made_only_by_who_may_write_and_without_base);
	tcase_add_test(tc, a_new_object_beside_an_old_one_makes_it_old);
	tcase_add_test(tc, a_generation_waits_for_the_change_under_way_and_stops_the_rest_of_it);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
