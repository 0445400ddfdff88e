/*
 * Reading large files: ahead, through descriptors, from several copies, and with nodes that die,
 * hang, lose or damage what they have.
 */
#include "tests/unit/gfd_fake.h"

#define INO 2u
#define KIB 1024u
#define MIB (1024u * KIB)
#define BYTES (8u * MIB + 12345u)

static uint8_t *pattern, *got;
static struct gfd *gfd;
static struct fake_open f;
static int64_t longest_ns; /* read */
static int64_t stalled_ns; /* all reads that took long */

/* A file with copies on the first so many nodes. */
static void make_file(unsigned copies)
{
	struct gfd *writer = fake_client(1, NULL);
	struct fake_open w;

	fake_open(1, INO, GFC_OPEN_WRITE, &w);
	ck_assert_int_eq(gfd_write(w.file, &w.open, pattern, BYTES, 0, false, NULL), 0);
	ck_assert_int_eq(fake_close(&w), 0);
	gfd_free(writer);
	for (unsigned i = 1; i < copies; i++)
		fake_copy(INO, 0, i);
}

static void setup(void)
{
	fake_setup();
	for (unsigned i = 0; i < FAKE_NODES; i++)
		fake_node_up(i);
	pattern = malloc(BYTES);
	got = malloc(BYTES);
	for (size_t i = 0; i < BYTES; i++)
		pattern[i] = (uint8_t)(i * 11 + i / 4096 * 3 + 7);
}

static void teardown(void)
{
	gfd_free(gfd);
	gfd = NULL;
	free(pattern);
	free(got);
	fake_teardown();
}

static void use(const struct gfd_options *options)
{
	gfd = fake_client(0, options);
	fake_open(0, INO, GFC_OPEN_READ, &f);
}

static struct gfd_stats stats(void)
{
	struct gfd_stats s;

	gfd_stats(gfd, &s);
	return s;
}

static int64_t now(void)
{
	return gx_env_now_ns(grid.env);
}

static void must_get(size_t bytes, uint64_t offset)
{
	int64_t begin_ns = now();
	ssize_t n = gfd_read(f.file, &f.open, got, bytes, offset);

	longest_ns = GX_MAX(longest_ns, now() - begin_ns);
	ck_assert_msg(n == (ssize_t)bytes, "%zd of %zu at %llu: %s", n, bytes,
		      (unsigned long long)offset, gfc_error());
	ck_assert_int_eq(memcmp(got, pattern + offset, bytes), 0);
}

static void must_get_row(size_t piece, uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at += piece)
		must_get(GX_MIN(piece, to - at), at);
}

/* All ways in which a program may read. */
static void read_all_ways(void)
{
	unsigned seed = 1;

	must_get_row(64 * KIB, 0, BYTES);
	must_get(BYTES, 0);
	must_get(4 * MIB, 777);
	must_get(2 * MIB + 1, MIB - 1);
	must_get_row(MIB + 1, 0, BYTES);
	for (uint64_t at = BYTES / 4096 * 4096; at > 0; at -= 128 * KIB + 4096)
		if (at >= 4096 && at + 100 < BYTES)
			must_get(100, at);
		else
			break;
	for (unsigned i = 0; i < 300; i++) {
		uint64_t at = (uint64_t)rand_r(&seed) % (BYTES - 70000);

		must_get((size_t)rand_r(&seed) % 65536 + 1, at);
		must_get(4096, at / 4096 * 4096);
	}
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 100, BYTES), 0);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 100, BYTES - 1), 1);
}

START_TEST(every_way_of_reading)
{
	struct gfd_options options = GFD_OPTIONS_INIT;

	grid.near[0] = _i & 1;
	if (_i & 2)
		options.host = "host1";
	make_file(1);
	use(&options);
	read_all_ways();
	if (_i & 1)
		ck_assert_uint_eq(stats().read_remote, 0);
	else
		ck_assert_uint_eq(stats().read_local, 0);
	ck_assert_uint_eq(stats().damaged, 0);
	ck_assert_uint_eq(stats().failovers, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(a_row_of_reads_is_read_ahead_once)
{
	make_file(1);
	use(NULL);
	must_get_row(16 * KIB, 0, BYTES);
	/* The first few, before it was a row, came by themselves. */
	ck_assert_uint_lt(stats().read_remote, BYTES + 128 * KIB);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(without_reading_ahead_only_what_is_wanted_travels)
{
	struct gfd_options options = GFD_OPTIONS_INIT;

	options.read_ahead = 0;
	make_file(1);
	use(&options);
	must_get_row(4096, 0, MIB);
	ck_assert_uint_eq(stats().read_remote, MIB);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* Rule B8: a bit per block. */
START_TEST(through_a_descriptor_each_block_is_hashed_once)
{
	grid.near[0] = true;
	make_file(1);
	use(NULL);
	must_get(BYTES, 0);
	ck_assert_uint_eq(stats().verified, (BYTES + 4095) / 4096);
	read_all_ways();
	ck_assert_uint_eq(stats().verified, (BYTES + 4095) / 4096);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(the_node_on_this_host_is_preferred_for_its_descriptor)
{
	struct gfd_options options = GFD_OPTIONS_INIT;

	options.host = "host2";
	for (unsigned i = 0; i < FAKE_NODES; i++)
		grid.near[i] = true;
	make_file(2);
	use(&options);
	must_get(BYTES, 0);
	ck_assert_uint_eq(stats().read_local, BYTES);
	data_node_kill(&grid.nodes[0]);
	must_get(BYTES, 0);
	ck_assert_uint_eq(stats().failovers, 0);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* -- accidents --------------------------------------------------------------------------------- */

START_TEST(a_node_that_dies_in_the_middle)
{
	struct gfd_options options = GFD_OPTIONS_INIT;

	options.read_ahead = 2 * MIB;
	make_file(2);
	use(&options);
	must_get_row(64 * KIB, 0, 3 * MIB);
	data_node_kill(&grid.nodes[0]);
	longest_ns = 0;
	must_get_row(64 * KIB, 3 * MIB, BYTES);
	ck_assert_int_lt(longest_ns, 900 * GX_NSEC_PER_MSEC);
	ck_assert_uint_ge(stats().failovers, 1);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(a_node_on_this_host_that_dies_in_the_middle)
{
	grid.near[0] = true;
	make_file(2);
	use(NULL);
	must_get(4096, 0);
	data_node_kill(&grid.nodes[0]);
	/* What needs nobody needs nobody. */
	must_get(4096, 0);
	ck_assert_int_eq(fake_close(&f), 0);
	fake_open(0, INO, GFC_OPEN_READ, &f);
	read_all_ways();
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* Rule B10: silence for a second. */
START_TEST(a_node_that_hangs_in_the_middle)
{
	struct gfd_options options = GFD_OPTIONS_INIT;

	options.read_ahead = 2 * MIB;
	make_file(2);
	use(&options);
	must_get_row(64 * KIB, 0, 3 * MIB);
	data_node_stop(&grid.nodes[0]);
	longest_ns = 0;
	must_get_row(64 * KIB, 3 * MIB, BYTES);
	ck_assert_int_lt(longest_ns, 2 * GX_NSEC_PER_SEC);
	/* It is not waited for again. */
	longest_ns = 0;
	must_get(4096, 4096);
	must_get_row(64 * KIB, 0, BYTES);
	ck_assert_int_lt(longest_ns, 900 * GX_NSEC_PER_MSEC);
	data_node_go_on(&grid.nodes[0]);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(a_hang_at_the_first_read)
{
	int64_t begin_ns;

	make_file(2);
	data_node_stop(&grid.nodes[0]);
	use(NULL);
	begin_ns = now();
	must_get(4096, 0);
	ck_assert_int_lt(now() - begin_ns, 2 * GX_NSEC_PER_SEC);
	data_node_go_on(&grid.nodes[0]);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* Rules B7, B8. _i: by descriptor. */
START_TEST(a_flipped_byte_comes_right_from_the_other_copy)
{
	grid.near[0] = _i;
	make_file(2);
	for (unsigned i = 0; i < 5; i++)
		data_node_flip(&grid.nodes[0], INO, file_of(INO)->generation, i * 1700000 + 33 * i);
	use(NULL);
	read_all_ways();
	ck_assert_uint_ge(stats().damaged, 1);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(a_flipped_byte_of_the_only_copy_is_never_handed_out)
{
	uint64_t bad = 5 * MIB + 4097;

	grid.near[0] = _i;
	make_file(1);
	data_node_flip(&grid.nodes[0], INO, file_of(INO)->generation, bad);
	use(NULL);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 4096, bad / 4096 * 4096), -EIO);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 1, bad), -EIO);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 1, bad + 1), -EIO);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, MIB, 5 * MIB), -EIO);
	must_get(4096, 5 * MIB);
	ck_assert_int_eq(fake_close(&f), 0);
	/* The rest of the file is not hurt. */
	fake_open(0, INO, GFC_OPEN_READ, &f);
	must_get_row(64 * KIB, 0, 5 * MIB);
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 64 * KIB, 5 * MIB), -EIO);
	must_get_row(64 * KIB, 5 * MIB + 64 * KIB, BYTES);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(different_damage_in_two_copies_hurts_nobody)
{
	make_file(2);
	data_node_flip(&grid.nodes[0], INO, file_of(INO)->generation, MIB);
	data_node_flip(&grid.nodes[1], INO, file_of(INO)->generation, MIB + 64 * KIB);
	data_node_flip(&grid.nodes[1], INO, file_of(INO)->generation, 7 * MIB);
	use(NULL);
	if (_i == 0)
		must_get_row(64 * KIB, 0, BYTES);
	else
		must_get(BYTES - 4096, 4096);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* metad does not know yet that the node has lost it. */
START_TEST(a_copy_that_is_not_there_any_more)
{
	grid.near[0] = _i;
	make_file(2);
	data_node_kill(&grid.nodes[0]);
	data_node_lose(&grid.nodes[0], INO, file_of(INO)->generation);
	data_node_up(&grid.nodes[0]);
	use(NULL);
	read_all_ways();
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(nobody_has_it_for_a_while)
{
	struct gfd_options options = GFD_OPTIONS_INIT;
	int64_t begin_ns;

	options.data_timeout_ns = GX_NSEC_PER_SEC;
	make_file(2);
	use(&options);
	must_get(4096, 0);
	data_node_kill(&grid.nodes[0]);
	data_node_kill(&grid.nodes[1]);
	begin_ns = now();
	ck_assert_int_eq(gfd_read(f.file, &f.open, got, 4096, MIB), -EHOSTUNREACH);
	ck_assert_int_ge(now() - begin_ns, 800 * GX_NSEC_PER_MSEC);
	ck_assert_int_lt(now() - begin_ns, 4 * GX_NSEC_PER_SEC);
	data_node_up(&grid.nodes[1]);
	must_get(4096, MIB);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* -- several copies, large files --------------------------------------------------------------- */

/* On the first three nodes, of which all are used. */
static void make_large(void)
{
	struct gfd *writer = fake_client(1, NULL);
	struct fake_open w;

	fake_open(1, INO, GFC_OPEN_WRITE, &w);
	for (uint64_t at = 0; at < GFD_STRIPE_MIN; at += 8 * MIB)
		ck_assert_int_eq(gfd_write(w.file, &w.open, pattern, 8 * MIB, at, false, NULL), 0);
	ck_assert_int_eq(fake_close(&w), 0);
	gfd_free(writer);
	fake_copy(INO, 0, 1);
	fake_copy(INO, 0, 2);
}

static void must_get_large(uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at += 64 * KIB) {
		int64_t begin_ns = now(), took_ns;

		ck_assert_int_eq(gfd_read(f.file, &f.open, got, 64 * KIB, at), 64 * KIB);
		took_ns = now() - begin_ns;
		stalled_ns += took_ns > 200 * GX_NSEC_PER_MSEC ? took_ns : 0;
		ck_assert_int_eq(memcmp(got, pattern + at % (8 * MIB), 64 * KIB), 0);
	}
}

START_TEST(a_large_file_comes_from_several_nodes)
{
	const struct gfd_node *node;
	unsigned used = 0;

	make_large();
	use(NULL);
	must_get_large(0, GFD_STRIPE_MIN);
	LL_FOREACH (gfd->nodes, node)
		used += node->link != NULL;
	ck_assert_uint_eq(used, 3);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/*
 * What is on its way to a hung node takes its second, and so does one more connection to it: but
 * not one after the other. _i: where it hangs, in MiB.
 */
START_TEST(a_node_of_several_that_hangs_is_waited_for_once)
{
	uint64_t at = (uint64_t)_i * MIB;

	make_large();
	use(NULL);
	must_get_large(0, at);
	data_node_stop(&grid.nodes[1]);
	stalled_ns = 0;
	must_get_large(at, at + 16 * MIB);
	ck_assert_int_lt(stalled_ns, 1900 * GX_NSEC_PER_MSEC);
	data_node_go_on(&grid.nodes[1]);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* -- leases ------------------------------------------------------------------------------------ */

START_TEST(the_lease_is_asked_for_again_only_when_it_must)
{
	make_file(1);
	use(NULL);
	grid.leases = 0;
	must_get(BYTES, 0);
	must_get(BYTES, 0);
	ck_assert_uint_eq(grid.leases, 1);
	gfd_forget(gfd, INO + 1);
	must_get(4096, 0);
	ck_assert_uint_eq(grid.leases, 1);
	gfd_forget(gfd, INO);
	must_get(4096, 0);
	must_get(4096, 0);
	ck_assert_uint_eq(grid.leases, 2);
	gfd_forget(gfd, 0);
	must_get(4096, 0);
	ck_assert_uint_eq(grid.leases, 3);
	/* Without contact with metad nothing is believed for longer than one read. */
	atomic_store(&grid.clients[0].trusted, false);
	must_get(4096, 0);
	must_get(4096, 0);
	ck_assert_uint_eq(grid.leases, 5);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(a_cache_copy_is_asked_for_once)
{
	struct gfd_options options = GFD_OPTIONS_INIT;

	options.host = "here";
	options.cache_copies = true;
	make_file(1);
	use(&options);
	must_get_row(64 * KIB, 0, BYTES);
	must_get_row(64 * KIB, 0, BYTES);
	ck_assert_uint_eq(grid.copies_asked, 1);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

START_TEST(where_it_is)
{
	struct gfd_place places[4];
	unsigned wanted;

	make_file(2);
	use(NULL);
	ck_assert_int_eq(gfd_where(gfd, gfc_open_ref(&f.open), false, places, 4, &wanted), 2);
	ck_assert_str_eq(places[1].node, "fsd2");
	ck_assert_str_eq(places[1].host, "host2");
	ck_assert(places[1].current && places[1].up && places[1].stable && !places[1].cache);
	ck_assert_uint_eq(wanted, 2);
	ck_assert_int_eq(fake_close(&f), 0);
}
END_TEST

/* Several threads, each with its own row, in one file. */
struct reader {
	struct gx_thread thread;
	uint64_t from, to;
	bool right;
};

static void reader_main(void *arg)
{
	struct reader *r = arg;
	uint8_t *buf = malloc(64 * KIB);

	r->right = true;
	for (unsigned round = 0; round < 3; round++) {
		for (uint64_t at = r->from; at < r->to; at += 64 * KIB) {
			size_t want = (size_t)GX_MIN((uint64_t)64 * KIB, r->to - at);
			ssize_t n = gfd_read(f.file, &f.open, buf, want, at);

			if (n != (ssize_t)want || memcmp(buf, pattern + at, want) != 0)
				r->right = false;
		}
	}
	free(buf);
}

START_TEST(threads_read_one_file)
{
	struct reader readers[6];

	grid.near[0] = _i;
	make_file(1);
	use(NULL);
	for (unsigned i = 0; i < GX_COUNT_OF(readers); i++) {
		readers[i].from = i * MIB;
		readers[i].to = BYTES - i * 1000;
		ck_assert_int_eq(gx_env_thread_start(grid.env, &readers[i].thread, "reader",
						     reader_main, &readers[i]),
				 0);
	}
	for (unsigned i = 0; i < GX_COUNT_OF(readers); i++) {
		gx_env_thread_join(grid.env, &readers[i].thread);
		ck_assert(readers[i].right);
	}
	ck_assert_int_eq(fake_close(&f), 0);
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
	suite = suite_create("gfd_read");
	tc = tcase_create("reading");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, every_way_of_reading, 0, 4);
	tcase_add_test(tc, a_row_of_reads_is_read_ahead_once);
	tcase_add_test(tc, without_reading_ahead_only_what_is_wanted_travels);
	tcase_add_test(tc, through_a_descriptor_each_block_is_hashed_once);
	tcase_add_test(tc, the_node_on_this_host_is_preferred_for_its_descriptor);
	tcase_add_test(tc, a_large_file_comes_from_several_nodes);
	tcase_add_loop_test(tc, a_node_of_several_that_hangs_is_waited_for_once, 0, 4);
	tcase_add_test(tc, the_lease_is_asked_for_again_only_when_it_must);
	tcase_add_test(tc, a_cache_copy_is_asked_for_once);
	tcase_add_test(tc, where_it_is);
	tcase_add_loop_test(tc, threads_read_one_file, 0, 2);
	suite_add_tcase(suite, tc);
	tc = tcase_create("accidents");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_node_that_dies_in_the_middle);
	tcase_add_test(tc, a_node_on_this_host_that_dies_in_the_middle);
	tcase_add_test(tc, a_node_that_hangs_in_the_middle);
	tcase_add_test(tc, a_hang_at_the_first_read);
	tcase_add_loop_test(tc, a_flipped_byte_comes_right_from_the_other_copy, 0, 2);
	tcase_add_loop_test(tc, a_flipped_byte_of_the_only_copy_is_never_handed_out, 0, 2);
	tcase_add_loop_test(tc, different_damage_in_two_copies_hurts_nobody, 0, 2);
	tcase_add_loop_test(tc, a_copy_that_is_not_there_any_more, 0, 2);
	tcase_add_test(tc, nobody_has_it_for_a_while);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
