/*
 * Every allocation, and every call to the system, of the client of storage nodes fails once; the
 * node is a real one in another process.
 */
#include "tests/fault/fault_run.h"
#include "tests/unit/gfd_fake.h"

#define INO 2u
#define BYTES (2u * 1024 * 1024 + 300000)

static uint8_t pattern[BYTES + 1], got[BYTES];
static unsigned run;
static _Atomic bool counting;

static bool counts(void)
{
	return atomic_load(&counting);
}

static void mark(void)
{
	run++;
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 3 + i / 4096 + run);
}

/* What a caller may see: success, or that something is short or broken. Never wrong bytes. */
static bool use_file(struct gfd *gfd, struct gfc_open *open, bool *ret_read)
{
	struct gfc_attr attr;
	struct gfd_file *file;
	bool well = true;
	uint64_t where;
	ssize_t n;

	fake_lock();
	fake_attr(INO, &attr);
	fake_unlock();
	if (gfd_open(gfd, open, &attr, &file) < 0)
		return false;
	well = gfd_truncate(file, open, 0) == 0 && well;
	well = gfd_write(file, open, pattern, 5000, 0, false, NULL) == 0 && well;
	well = gfd_write(file, open, pattern + 5000, BYTES - 6000, 5000, false, NULL) == 0 && well;
	well = gfd_write(file, open, pattern + BYTES - 1000, 1000, 0, true, &where) == 0 && well;
	well = gfd_sync(file, open) == 0 && well;
	for (unsigned i = 0; i < 5; i++) {
		n = gfd_read(file, open, got, 300000, i * 300000);
		if (well && n > 0)
			fault_must(memcmp(got, pattern + i * 300000, (size_t)n) == 0,
				   "wrong bytes");
		*ret_read = *ret_read && n == 300000;
	}
	well = gfd_close(file, open) == 0 && well;
	return well;
}

/* All is as it was written. */
static void look(void)
{
	struct gfc_open open = {&grid.clients[1], INO, GFC_OPEN_READ, false};
	struct gfd_options options = GFD_OPTIONS_INIT;
	struct gfc_attr attr;
	struct gfd_file *file;
	struct gfd *gfd;
	ssize_t n;

	fault_must(gfd_new(&grid.clients[1], &options, &gfd) == 0, "new");
	fake_lock();
	fake_attr(INO, &attr);
	fake_unlock();
	fault_must(attr.size == BYTES, "%llu bytes", (unsigned long long)attr.size);
	fault_must(gfd_open(gfd, &open, &attr, &file) == 0, "open");
	n = gfd_read(file, &open, got, BYTES, 0);
	fault_must(n == (ssize_t)BYTES, "read %zd: %s", n, gfc_error());
	fault_must(memcmp(got, pattern, BYTES) == 0, "wrong bytes on disk");
	fault_must(gfd_close(file, &open) == 0, "close");
	gfd_free(gfd);
}

/* A lease that could not be given back ends with its session, as it were. */
static void end_session(void)
{
	struct fake_file *f = file_of(INO);

	fake_lock();
	if (f->grants[0].mode != GFC_MODE_NONE) {
		f->grants[0] = (struct fake_grant){GFC_MODE_NONE, false};
		if (f->writing)
			fake_recover(INO);
	}
	fake_unlock();
	grid.clients[0].session += 10;
}

static void scenario(struct gx_fault *fault)
{
	struct gfc_open open = {&grid.clients[0], INO, GFC_OPEN_READ | GFC_OPEN_WRITE, false};
	struct gfd_options options = GFD_OPTIONS_INIT;
	bool well = false, read = true;
	struct gfd *gfd;

	mark();
	options.data_timeout_ns = GX_NSEC_PER_SEC;
	grid.env->fault = fault;
	atomic_store(&counting, true);
	if (gfd_new(&grid.clients[0], &options, &gfd) == 0) {
		well = use_file(gfd, &open, &read);
		gfd_free(gfd);
	}
	atomic_store(&counting, false);
	grid.env->fault = NULL;
	end_session();
	if (well)
		look();
}

static void begin(bool near)
{
	fake_setup();
	fake_node_up(0);
	grid.near[0] = near;
	fault_alloc_filter(counts);
}

START_TEST(every_allocation_may_fail)
{
	begin(_i);
	fault_run_allocs("gfd", scenario, true);
	fake_teardown();
}
END_TEST

START_TEST(every_call_may_fail)
{
	begin(_i);
	fault_run_kinds("gfd", scenario, FAULT_BIT(CONNECT) | FAULT_BIT(RECV) | FAULT_BIT(SEND),
			true);
	fake_teardown();
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
	suite = suite_create("fault_gfd");
	tc = tcase_create("all");
	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, every_allocation_may_fail, 0, 2);
	tcase_add_loop_test(tc, every_call_may_fail, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
