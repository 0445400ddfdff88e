/*
 * The life of a storage node: what it refuses to start on (rule N9), what it finds again after an
 * end of any kind, what it tells metad, and what its connections cost.
 */
#include "common/gx_log.h"
#include "tests/lib/fake_metad.h"
#include "tests/lib/fsd_fixture.h"
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK FSD_BLOCK_BYTES
#define MIB (1024u * 1024)

static struct fsd_fixture node;
static struct fake_metad *metad;  /* NULL: none */
static struct rpc_client *client; /* NULL: none */
static struct fsd_sealed sealed;  /* inode 5, generation 1 */
static unsigned char in[MIB];

/* -- fixture ----------------------------------------------------------------------------------- */

static void ignore_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		       const char *line GX_UNUSED)
{
}

static void setup(void)
{
	gx_log_to_callback(ignore_log, NULL);
	fsd_gate_init();
	fsd_fixture_init(&node, "fsd7");
	metad = NULL;
	client = NULL;
}

static void stop(void)
{
	rpc_client_free(client);
	client = NULL;
	fsd_fixture_down(&node);
}

static void teardown(void)
{
	stop();
	fsd_fixture_fini(&node);
	if (metad)
		fake_metad_stop(metad);
	fsd_gate_fini();
}

static void start(void)
{
	struct rpc_file_ticket ticket;

	fsd_fixture_up(&node);
	client = fsd_fixture_client(&node, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
	ticket = fsd_fixture_ticket(&node, 5, 1, 0);
	fsd_fixture_seal(&node, &ticket, &sealed);
}

static void use_metad(void)
{
	metad = fake_metad_start("fsd7");
	fsd_fixture_use_metad(&node, metad);
}

static size_t count_entries(const char *path)
{
	DIR *dir = opendir(path);
	size_t count = 0;

	ck_assert_ptr_nonnull(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		if (entry->d_name[0] != '.')
			count++;
	closedir(dir);
	return count;
}

static int put(uint64_t ino, const char *text)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, ino, 1, 0);
	struct fsd_sealed one;

	return fsd_call_write(client, fsd_fixture_seal(&node, &ticket, &one), text, strlen(text),
			      0);
}

static void content_is(uint64_t ino, const char *text)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, ino, 1, 0);
	struct fsd_sealed one;

	ticket.rights = RPC_FILE_READ;
	ck_assert_int_eq(
		fsd_call_read(client, fsd_fixture_seal(&node, &ticket, &one), in, BLOCK, 0, false),
		(ssize_t)strlen(text));
	ck_assert_mem_eq(in, text, strlen(text));
}

/* -- starting ---------------------------------------------------------------------------------- */

START_TEST(an_empty_directory_is_no_spool_unless_one_is_to_be_made)
{
	node.options.make_spools = false;
	ck_assert_int_eq(fsd_fixture_try(&node), -ENODEV);
	ck_assert_uint_eq(count_entries(node.spools[0]), 0);
	node.options.make_spools = true;
	start();
	ck_assert_int_eq(put(5, "bytes"), 0);
	stop();
	node.options.make_spools = false;
	start();
	content_is(5, "bytes");
	stop();
	/* The second disk is not mounted: a node with half its objects does not start. */
	node.options.spool_count = 2;
	ck_assert_int_eq(fsd_fixture_try(&node), -ENODEV);
	ck_assert_uint_eq(count_entries(node.spools[1]), 0);
}
END_TEST

START_TEST(a_spool_is_made_in_an_empty_directory_only)
{
	char path[GX_PATH_MAX];

	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/letters", node.spools[0]), 0);
	ck_assert_int_eq(gx_env_mkdir(node.env, path, 0700), 0);
	ck_assert_int_eq(fsd_fixture_try(&node), -ENOTEMPTY);
	ck_assert_uint_eq(count_entries(node.spools[0]), 1);
	ck_assert_int_eq(gx_env_rmdir(node.env, path), 0);
	ck_assert_int_eq(gx_env_rmdir(node.env, node.spools[0]), 0);
	ck_assert_int_eq(fsd_fixture_try(&node), -ENOENT);
}
END_TEST

START_TEST(a_spool_has_one_daemon)
{
	struct fsd_fixture second;

	start();
	fsd_fixture_init(&second, "fsd7");
	second.options.spools = node.options.spools;
	ck_assert_int_eq(fsd_fixture_try(&second), -EBUSY);
	fsd_fixture_fini(&second);
	/* Nor has one daemon the same spool twice. */
	stop();
	node.spool_list[1] = node.spools[0];
	node.options.spool_count = 2;
	ck_assert_int_eq(fsd_fixture_try(&node), -EBUSY);
}
END_TEST

START_TEST(the_key_must_be_that_of_the_node)
{
	node.options.name = "fsd8";
	ck_assert_int_eq(fsd_fixture_try(&node), -EKEYREJECTED);
	node.options.name = "fsd7";
	ck_assert_int_eq(rpc_key_make(node.env, "user:fsd7", 0, false, &node.key), 0);
	ck_assert_int_eq(fsd_fixture_try(&node), -EKEYREJECTED);
}
END_TEST

/* -- after an end ------------------------------------------------------------------------------ */

START_TEST(what_was_answered_is_there_after_a_kill_and_the_boot_number_stays)
{
	PbData__DataStatReply before, after;

	node.options.boot = 0; /* the kernel's */
	start();
	ck_assert_int_eq(put(5, "not synced"), 0);
	ck_assert_int_eq(fsd_call_stat(client, sealed.data, &before), 0);
	ck_assert_uint_ne(before.boot, 0);
	ck_assert(!before.stable);
	stop();
	start();
	content_is(5, "not synced");
	ck_assert_int_eq(fsd_call_stat(client, sealed.data, &after), 0);
	ck_assert_uint_eq(after.boot, before.boot);
	/* Who has lost its page cache has another (rule B3). */
	stop();
	node.options.boot = 99;
	start();
	ck_assert_int_eq(fsd_call_stat(client, sealed.data, &after), 0);
	ck_assert_uint_eq(after.boot, 99);
}
END_TEST

static bool has_stable(const struct fake_metad_seen *seen, void *arg GX_UNUSED)
{
	for (size_t i = 0; i < seen->note_count; i++)
		if (seen->notes[i].ino == 5 && seen->notes[i].what == FSD_NOTE_STABLE)
			return true;
	return false;
}

START_TEST(what_a_killed_node_had_not_synced_is_synced_by_the_next_one_that_opens_it)
{
	struct fsd_object_id id = {.ino = 5, .generation = 1};
	PbData__DataStatReply stat;

	node.options.sync_after_ns = 5 * GX_NSEC_PER_SEC;
	start();
	ck_assert_int_eq(put(5, "bytes"), 0);
	stop();
	use_metad();
	fake_metad_know(metad, &id);
	node.options.sync_after_ns = 10 * GX_NSEC_PER_MSEC;
	start();
	content_is(5, "bytes");
	ck_assert(fake_metad_wait(metad, has_stable, NULL));
	ck_assert_int_eq(fsd_call_stat(client, sealed.data, &stat), 0);
	ck_assert(stat.stable);
}
END_TEST

START_TEST(objects_lie_in_all_spools_and_are_found_again)
{
	size_t counts[2] = {0, 0};
	char path[GX_PATH_MAX], text[16];

	node.options.spool_count = 2;
	start();
	for (uint64_t ino = 1; ino <= 20; ino++) {
		ck_assert_int_eq(gx_format(text, sizeof(text), "object %u", (unsigned)ino), 0);
		ck_assert_int_eq(put(ino, text), 0);
	}
	stop();
	for (uint64_t ino = 1; ino <= 20; ino++) {
		fsd_fixture_path(&node, ino, 1, path);
		counts[strncmp(path, node.spools[1], strlen(node.spools[1])) == 0]++;
	}
	ck_assert_uint_eq(counts[0] + counts[1], 20);
	/* One of them goes to the other disk, as an administrator would move it. */
	ck_assert_uint_gt(GX_MAX(counts[0], counts[1]), 0);
	start();
	for (uint64_t ino = 1; ino <= 20; ino++) {
		ck_assert_int_eq(gx_format(text, sizeof(text), "object %u", (unsigned)ino), 0);
		content_is(ino, text);
	}
}
END_TEST

/* -- metad ------------------------------------------------------------------------------------- */

static bool has_inventory(const struct fake_metad_seen *seen, void *arg GX_UNUSED)
{
	return seen->inventory_over;
}

START_TEST(metad_is_told_the_addresses_that_are_bound_or_those_configured)
{
	struct fake_metad_seen *seen;
	char text[GX_ADDR_TEXT_MAX];

	use_metad();
	if (_i != 0)
		node.options.addresses = "unix:/run/there,tls:fsd7.example.org:7611";
	start();
	ck_assert(fake_metad_wait(metad, has_inventory, NULL));
	seen = fake_metad_seen(metad);
	if (_i == 0) {
		ck_assert_uint_eq(seen->address_count, 3);
		for (size_t i = 0; i < 3; i++) {
			rpc_endpoint_format(&node.endpoints[i], text);
			ck_assert_str_eq(seen->addresses[i], text);
		}
	} else {
		ck_assert_uint_eq(seen->address_count, 2);
		ck_assert_str_eq(seen->addresses[0], "unix:/run/there");
		ck_assert_str_eq(seen->addresses[1], "tls:fsd7.example.org:7611");
	}
	free(seen);
}
END_TEST

static void wait_known(void)
{
	while (!fsd_server_known(node.server))
		gx_env_sleep_until(node.env, gx_env_now_ns(node.env) + GX_NSEC_PER_MSEC);
}

START_TEST(unknown_objects_are_kept_for_their_time_and_a_restored_metad_removes_nothing)
{
	char quarantine[GX_PATH_MAX];

	ck_assert_int_eq(gx_format(quarantine, sizeof(quarantine), "%s/quarantine", node.spools[0]),
			 0);
	start();
	ck_assert_int_eq(put(5, "bytes"), 0);
	stop();
	/* It has seen epoch 9; then comes one of an old backup, that knows nothing. */
	use_metad();
	fake_metad_know(metad, &(struct fsd_object_id){.ino = 5, .generation = 1});
	fake_metad_down(metad);
	fake_metad_up(metad, 9);
	start();
	wait_known();
	stop();
	fake_metad_stop(metad);
	use_metad();
	start();
	wait_known();
	content_is(5, "bytes");
	stop();
	ck_assert_uint_eq(count_entries(quarantine), 0);
	/* A newer one is believed. */
	fake_metad_down(metad);
	fake_metad_up(metad, 10);
	start();
	wait_known();
	stop();
	ck_assert(!fsd_fixture_has(&node, 5, 1));
	ck_assert_uint_gt(count_entries(quarantine), 0);
	start();
	wait_known();
	stop();
	ck_assert_uint_gt(count_entries(quarantine), 0);
	node.options.quarantine_ns = 0;
	start();
	while (count_entries(quarantine) > 0)
		gx_env_sleep_until(node.env, gx_env_now_ns(node.env) + GX_NSEC_PER_MSEC);
}
END_TEST

START_TEST(a_node_serves_while_metad_is_away_and_ends_soon)
{
	int64_t begin;

	use_metad();
	fake_metad_down(metad);
	start();
	ck_assert_int_eq(put(5, "bytes"), 0);
	content_is(5, "bytes");
	rpc_client_free(client);
	client = NULL;
	begin = gx_env_now_ns(node.env);
	fsd_fixture_drain(&node);
	ck_assert_int_lt(gx_env_now_ns(node.env) - begin, 5 * GX_NSEC_PER_SEC);
	fake_metad_up(metad, 1);
}
END_TEST

/* -- connections ------------------------------------------------------------------------------- */

struct waiter {
	struct rpc_client *client;
	_Atomic bool done;
};

static void waiter_main(void *arg)
{
	struct waiter *waiter = arg;
	PbData__DataStatReply stat;

	/* Whatever it says: it is served. */
	GX_IGNORE(fsd_call_stat(waiter->client, sealed.data, &stat));
	waiter->done = true;
}

START_TEST(above_the_ceiling_a_connection_waits)
{
	struct waiter waiter = {.done = false};
	struct rpc_client *others[2];
	struct gx_thread thread;
	PbData__DataStatReply stat;

	node.options.threads_max = 2;
	start();
	for (unsigned i = 0; i < 2; i++) {
		others[i] = fsd_fixture_client(&node, FSD_FIXTURE_TCP, 50 + i);
		ck_assert_int_eq(fsd_call_stat(others[i], sealed.data, &stat), -EKEYREJECTED);
	}
	waiter.client = client;
	ck_assert_int_eq(gx_env_thread_start(node.env, &thread, "waiter", waiter_main, &waiter), 0);
	gx_env_sleep_until(node.env, gx_env_now_ns(node.env) + 200 * GX_NSEC_PER_MSEC);
	ck_assert(!waiter.done);
	rpc_client_free(others[0]);
	gx_env_thread_join(node.env, &thread);
	ck_assert(waiter.done);
	rpc_client_free(others[1]);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONNECTIONS 60u /* and no word about memory */
#define RSS_MAX UINT64_MAX
#else
#define CONNECTIONS 1000u
#define RSS_MAX (200u * UINT64_C(1024)) /* KiB */
#endif

/* The node in a process of its own: tells its addresses and waits to be killed. */
static void child_main(int out)
{
	node.options.threads_max = CONNECTIONS + 24;
	node.options.sync_after_ns = 5 * GX_NSEC_PER_SEC;
	fsd_fixture_up(&node);
	if (write(out, node.endpoints, sizeof(node.endpoints)) < 0)
		_exit(1);
	for (;;)
		pause();
}

static uint64_t peak_kib(pid_t pid)
{
	char path[64], line[256];
	unsigned long kib = 0;
	FILE *file;

	ck_assert_int_eq(gx_format(path, sizeof(path), "/proc/%d/status", (int)pid), 0);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %lu", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

/* A session of its own writes and reads one of some objects, and stays. */
static struct rpc_client *busy_connection(enum fsd_fixture_kind kind, uint64_t number)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 1 + number % 50, 1, 0);
	struct rpc_client *c = fsd_fixture_client(&node, kind, 1000 + number);
	struct fsd_sealed one;

	ticket.session = 1000 + number;
	fsd_fixture_seal(&node, &ticket, &one);
	ck_assert_int_eq(fsd_call_write(c, one.data, in, 64 * 1024, 0), 0);
	for (unsigned prove = 0; prove < 2; prove++)
		ck_assert_int_eq(fsd_call_read(c, one.data, in, 64 * 1024, 0, prove), 64 * 1024);
	return c;
}

START_TEST(a_thousand_connections_cost_little)
{
	static struct rpc_client *clients[CONNECTIONS];
	enum fsd_fixture_kind kind = (enum fsd_fixture_kind)_i;
	/* A fourth of them over TLS, which takes its time, for a fourth of the memory. */
	unsigned divisor = kind == FSD_FIXTURE_TLS ? 4 : 1;
	struct rlimit limit;
	uint64_t kib;
	int pipes[2];
	pid_t child;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_max < CONNECTIONS + 100)
		return; /* not on this machine */
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	if (child == 0)
		child_main(pipes[1]);
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(read(pipes[0], node.endpoints, sizeof(node.endpoints)),
			 sizeof(node.endpoints));
	for (unsigned i = 0; i < CONNECTIONS / divisor; i++)
		clients[i] = busy_connection(kind, i);
	kib = peak_kib(child);
	for (unsigned i = 0; i < CONNECTIONS / divisor; i++)
		rpc_client_free(clients[i]);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	printf("%u connections: %lu KiB\n", CONNECTIONS / divisor, (unsigned long)kib);
	ck_assert_uint_gt(kib, 0);
	ck_assert_uint_le(kib, RSS_MAX / divisor);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsd_server");
	SRunner *runner = srunner_create(suite);
	TCase *tc = tcase_create("fsd_server");
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, an_empty_directory_is_no_spool_unless_one_is_to_be_made);
	tcase_add_test(tc, a_spool_is_made_in_an_empty_directory_only);
	tcase_add_test(tc, a_spool_has_one_daemon);
	tcase_add_test(tc, the_key_must_be_that_of_the_node);
	tcase_add_test(tc, what_was_answered_is_there_after_a_kill_and_the_boot_number_stays);
	tcase_add_test(tc,
		       what_a_killed_node_had_not_synced_is_synced_by_the_next_one_that_opens_it);
	tcase_add_test(tc, objects_lie_in_all_spools_and_are_found_again);
	tcase_add_loop_test(tc, metad_is_told_the_addresses_that_are_bound_or_those_configured, 0,
			    2);
	tcase_add_test(
		tc, unknown_objects_are_kept_for_their_time_and_a_restored_metad_removes_nothing);
	tcase_add_test(tc, a_node_serves_while_metad_is_away_and_ends_soon);
	tcase_add_test(tc, above_the_ceiling_a_connection_waits);
	tcase_add_loop_test(tc, a_thousand_connections_cost_little, FSD_FIXTURE_TCP,
			    FSD_FIXTURE_COUNT);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
