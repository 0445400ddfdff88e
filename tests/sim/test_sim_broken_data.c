/*
 * Each rule of bytes, and what rules of names say about storage, is broken on purpose
 * (common/gx_broken.h): the checks of sim_data_work.h, or a scene below, have to notice it, and
 * unbroken they notice nothing.
 *
 * Of B6 two steps are broken here; tests/sim/test_sim_fsd_object.c does so with each of them, at
 * every point of a crash. B5's writable descriptor is never given; what is left of the rule is that
 * late writes of who has lost his lease change nothing that is served.
 *
 * SIM_SEEDS=n runs more seeds of the controls; SIM_LOG=info (or another level) shows what happens.
 */
#include "client/fs/gfs_impl.h"
#include "common/gx_broken.h"
#include "fsd/fsd_broken.h"
#include "fsd/fsd_object.h"
#include "tests/lib/sim_data_work.h"
#include "tests/lib/sim_grid.h"
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned gx_broken;

/* -- in any weather ---------------------------------------------------------------------------- */

/* The weather in which a rule matters, and the seeds in which it must show. */
static const struct {
	unsigned rule;
	unsigned faults;
	unsigned seeds;
	const char *text;
} rules[] = {
	{10, 0, 50, "N10: who grows a file out of metad has it alone"},
	{110, DWORK_FSD_CUTS, 100, "N10: the object is on disk before it is the truth"},
	{12, 0, 50, "N12: a writer is asked for the size"},
	{201, 0, 50, "B1: the generation moves before the first byte changes"},
	{202, DWORK_CLIENT_KILLS, 100, "B2: a writer that has vanished is recovered from"},
	{203, DWORK_FSD_CUTS, 100, "B3: what was not stable is stale after a power cut"},
	{303, DWORK_FSD_CUTS, 100, "B3: what a power cut took is sent again"},
	{204, 0, 50, "B4: an exclusive lease is recalled"},
	{304, 0, 50, "B4: who is recalled sends what he holds"},
	{324, 0, 100, "B4: appending is done by the primary"},
	{FSD_BROKEN_RULE(FSD_STEP_SYNC_DATA), DWORK_FSD_CUTS, 50, "B6: fsync: the data"},
	{FSD_BROKEN_RULE(FSD_STEP_SYNC_SUMS), DWORK_FSD_CUTS, 50, "B6: fsync: the checksums"},
	{208, DWORK_FLIPS, 50, "B8: what is copied is verified"},
	{308, DWORK_FLIPS, 50, "B8: what is read is verified"},
	{209, DWORK_FSD_CUTS, 100, "B9: stale copies are not served"},
	{229, DWORK_FSD_CUTS, 100, "B9: the last good copy is not given up"},
};

static const unsigned weathers[] = {0, DWORK_FSD_CUTS, DWORK_CLIENT_KILLS, DWORK_FLIPS};

static struct dwork work;

/* The seed in which something was wrong; 0: nothing was. */
static uint64_t look_for(unsigned faults, uint64_t seeds)
{
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		dwork_init(&work, seed);
		work.faults = faults;
		work.write_back = seed % 2 == 1 || (faults & DWORK_FLIPS);
		if (dwork_run(&work)[0] != '\0')
			return seed;
	}
	return 0;
}

/* In a process of its own: what a daemon finds out itself may end in an assertion. */
static bool is_caught(unsigned rule, const char *text, bool (*look)(int i), int i)
{
	int status;
	pid_t pid;

	printf("%u, %s: ", rule, text);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		bool wrong;

		gx_broken = rule;
		wrong = look(i);
		fflush(NULL);
		_exit(wrong);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		printf("an assertion\n");
	return WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == 1;
}

static bool look_in_weather(int i)
{
	uint64_t seed = look_for(rules[i].faults, rules[i].seeds);

	printf("seed %llu: %s\n", (unsigned long long)seed, work.wrong);
	return seed != 0;
}

START_TEST(a_broken_rule_is_noticed)
{
	ck_assert_msg(is_caught(rules[_i].rule, rules[_i].text, look_in_weather, _i),
		      "%u, %s, was broken and nobody noticed", rules[_i].rule, rules[_i].text);
}
END_TEST

START_TEST(in_the_same_weather_unbroken_rules_show_nothing_wrong)
{
	uint64_t seed;

	gx_broken = 0;
	seed = look_for(weathers[_i], sim_seeds(60));
	ck_assert_msg(seed == 0, "faults %u, seed %llu: %s", weathers[_i], (unsigned long long)seed,
		      work.wrong);
}
END_TEST

/* -- scenes ------------------------------------------------------------------------------------ */

#define BLOCK 4096u
#define FILE_BYTES (64u * BLOCK)
#define COPIES_MS (120 * 1000)

/* A grid, a director who does things one after the other, and somebody else to be stopped. */
struct scene {
	struct sim_data data;
	struct gx_env *env; /* the director's */
	struct gx_sim_proc *other;
	bool ready; /* the other has done its first half … */
	bool go;    /* … and may do the second */
	int err;    /* of the second */
	char wrong[240];
};
static struct scene s;

static void wrong(const char *fmt, ...) GX_PRINTF(1, 2);
static void wrong(const char *fmt, ...)
{
	va_list args;

	if (s.wrong[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(s.wrong, sizeof(s.wrong), fmt, args);
	va_end(args);
	sim_meta_say(&s.data.meta, "WRONG %s", s.wrong);
}

/* Part of the scene, not of what it is about: when it fails nothing has been caught. */
static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s (%s)\n", what, gx_strerror(r), gfs_error());
	_exit(2);
}

static void wait_ms(uint64_t ms)
{
	gx_env_sleep_until(s.env, gx_env_deadline_ms(s.env, ms));
}

static int64_t now_ms(void)
{
	return gx_sim_now_ns(s.data.meta.sim) / GX_NSEC_PER_MSEC;
}

/* By a client that reads nothing ahead and has one connection to a node. */
static struct gfs *connect_as(struct gx_env *env, const char *host, size_t cache_bytes)
{
	struct gfd_options options = GFD_OPTIONS_INIT;
	struct gfs *fs;

	options.host = host;
	options.data_timeout_ns = s.data.data_timeout_ns;
	options.connections = 1;
	options.read_ahead = 0;
	must(sim_data_connect(&s.data, env, &options, cache_bytes, &fs), "connect");
	return fs;
}

static struct gfs_file *open_it(struct gfs *fs, const char *path, unsigned flags)
{
	struct gfs_file *f;

	must(gfs_open(fs, path, flags, 0666, &f), path);
	return f;
}

static unsigned char bytes[FILE_BYTES];

static void fill(unsigned char with)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(with + i / BLOCK);
}

static void write_blocks(struct gfs_file *f, unsigned first, unsigned count, unsigned char with)
{
	fill(with);
	must((int)gfs_pwrite(f, bytes + (size_t)first * BLOCK, (size_t)count * BLOCK,
			     (uint64_t)first * BLOCK),
	     "write");
}

/* A file of that many copies, all there, and closed. */
static void make_file(struct gfs *fs, const char *path, unsigned copies, unsigned char with)
{
	struct gfs_file *f = open_it(fs, path, GFS_O_WRITE | GFS_O_CREATE);

	if (copies > 1)
		must(gfs_set_copies(fs, path, copies), "copies");
	write_blocks(f, 0, FILE_BYTES / BLOCK, with);
	must(gfs_close(f), "close");
	must(gfs_wait_copies(fs, path, COPIES_MS), "copies");
}

/* What a block has; -1: no single byte; or an error. */
static int read_block(struct gfs_file *f, unsigned block)
{
	unsigned char got[BLOCK];
	ssize_t n = gfs_pread(f, got, BLOCK, (uint64_t)block * BLOCK);

	if (n < 0)
		return (int)n;
	for (size_t i = 1; i < BLOCK; i++)
		if (got[i] != got[0])
			return -1;
	return n == BLOCK ? got[0] : -1;
}

static void expect_block(struct gfs_file *f, unsigned block, unsigned char with)
{
	int got = read_block(f, block);

	if (got != (unsigned char)(with + block))
		wrong("block %u is %d, not %u", block, got, (unsigned char)(with + block));
}

static void start_other(void (*fn)(struct gx_env *, void *))
{
	must(gx_sim_spawn(s.data.meta.client_hosts[1], "other", fn, NULL, &s.other), "spawn");
	while (!s.ready)
		wait_ms(1);
}

static void end_other(void)
{
	s.go = true;
	while (!gx_sim_proc_ended(s.other))
		wait_ms(10);
}

static void wait_go(struct gx_env *env)
{
	s.ready = true;
	while (!s.go)
		gx_env_sleep_until(env, gx_env_deadline_ms(env, 1));
}

static void begin_main(void *arg)
{
	fill('b');
	s.err = (int)gfs_pwrite(arg, bytes + (size_t)3 * BLOCK, BLOCK, (uint64_t)3 * BLOCK);
}

/* B1: metad loses its power when writing has just begun. */
static void a_generation_is_on_disk(void)
{
	struct gfs *fs = connect_as(s.env, "", 0);
	struct gx_thread thread;
	struct gfs_file *f;

	make_file(fs, "/a", 1, 'a');
	wait_ms(20 * 1000);
	f = open_it(fs, "/a", GFS_O_READ | GFS_O_WRITE);
	must(gx_env_thread_start(s.env, &thread, "begin", begin_main, f), "thread");
	wait_ms(10);
	gx_sim_power_cut(s.data.meta.metad_host);
	wait_ms(100);
	sim_data_up(&s.data);
	gx_env_thread_join(s.env, &thread);
	if (s.err != (int)BLOCK)
		wrong("what was written is lost: %s", gx_strerror(s.err));
	GX_IGNORE(gfs_close(f));
	wait_ms(30 * 1000);
	f = open_it(fs, "/a", GFS_O_READ);
	expect_block(f, 2, 'a');
	expect_block(f, 3, 'b');
	must(gfs_close(f), "close");
	must(gfs_disconnect(fs), "leave");
}

static void late_writer(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfs *fs = connect_as(env, "", 1 << 20);
	struct gfs_file *f = open_it(fs, "/a", GFS_O_READ | GFS_O_WRITE);

	write_blocks(f, 3, 2, 'b'); /* held back */
	wait_go(env);
	s.err = gfs_fsync(f);
	GX_IGNORE(gfs_close(f));
	GX_IGNORE(gfs_disconnect(fs));
}

/* B5: a writer is stopped past its lease, and goes on. */
static void late_writes_change_nothing(void)
{
	struct gfs *fs = connect_as(s.env, "", 1 << 20);
	struct gfs_file *f;

	make_file(fs, "/a", 1, 'a');
	start_other(late_writer);
	gx_sim_stop(s.other);
	f = open_it(fs, "/a", GFS_O_READ | GFS_O_WRITE);
	write_blocks(f, 3, 1, 'c');
	must(gfs_fsync(f), "fsync");
	gx_sim_continue(s.other);
	end_other();
	if (s.err != -EIO)
		wrong("who lost what he wrote hears %d", s.err);
	expect_block(f, 3, 'c');
	expect_block(f, 4, 'a');
	must(gfs_close(f), "close");
	must(gfs_disconnect(fs), "leave");
}

static void restless_writer(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfs *fs = connect_as(env, "", 1 << 20);
	struct gfs_file *f = open_it(fs, "/a", GFS_O_READ | GFS_O_WRITE);

	s.ready = true;
	for (unsigned i = 0; !s.go; i++)
		write_blocks(f, 32, 32, (unsigned char)('a' + i % 2));
	must(gfs_close(f), "close");
	must(gfs_disconnect(fs), "leave");
}

/* B7: who reads what is being written finds blocks that do not fit, and none is damaged. */
static void no_mismatch_counts_unproven(void)
{
	struct gfs *fs = connect_as(s.env, "", 1 << 20);
	struct gfd_stats stats;
	struct gfs_file *f;

	make_file(fs, "/a", 1, 'a');
	f = open_it(fs, "/a", GFS_O_READ);
	start_other(restless_writer);
	for (unsigned i = 0; i < 200 && s.wrong[0] == '\0'; i++) {
		static unsigned char all[FILE_BYTES];
		ssize_t n = gfs_pread(f, all, FILE_BYTES, 0);

		if (n != (ssize_t)FILE_BYTES)
			wrong("a read returns %zd", n);
	}
	end_other();
	gfd_stats(fs->gfd, &stats);
	if (stats.damaged > 0)
		wrong("%llu blocks were damaged, and nobody flipped a bit",
		      (unsigned long long)stats.damaged);
	must(gfs_close(f), "close");
	must(gfs_disconnect(fs), "leave");
}

/* B10: the nearer one of two nodes hangs. */
static void a_hung_node_costs_little(void)
{
	struct gfs *fs = connect_as(s.env, "host1", 1 << 20);
	struct gfs_file *f;
	int64_t start;

	make_file(fs, "/a", 2, 'a');
	f = open_it(fs, "/a", GFS_O_READ);
	expect_block(f, 0, 'a');
	gx_sim_stop(s.data.fsds[0].proc);
	start = now_ms();
	for (unsigned b = 1; b < 4; b++)
		expect_block(f, b, 'a');
	if (now_ms() - start > 2000)
		wrong("a node hangs, and a read takes %lld ms", (long long)(now_ms() - start));
	gx_sim_continue(s.data.fsds[0].proc);
	must(gfs_close(f), "close");
	must(gfs_disconnect(fs), "leave");
}

static void sync_main(void *arg)
{
	s.ready = true;
	s.err = gfs_fsync(arg);
}

/*
 * B10: a node that has to wait for its disk is not taken for a hung one. A block that is settled is
 * written, so it has to be marked on disk, and a read of another file waits behind that.
 */
static void a_slow_node_is_waited_for(void)
{
	struct gfs *fs = connect_as(s.env, "host1", 1 << 20);
	struct gfs_file *a, *b;
	struct gfd_stats stats;
	struct gx_thread thread;

	make_file(fs, "/a", 2, 'a');
	make_file(fs, "/b", 1, 'a');
	a = open_it(fs, "/a", GFS_O_READ);
	b = open_it(fs, "/b", GFS_O_READ | GFS_O_WRITE);
	expect_block(a, 0, 'a');
	for (unsigned i = 1; i < 10 && s.wrong[0] == '\0'; i++) {
		s.ready = false;
		write_blocks(b, 3, 1, (unsigned char)i);
		must(gx_env_thread_start(s.env, &thread, "sync", sync_main, b), "thread");
		while (!s.ready)
			wait_ms(1);
		wait_ms(20);
		expect_block(a, i, 'a');
		gfd_stats(fs->gfd, &stats);
		if (stats.failovers > 0)
			wrong("a node was left because its disk is slow");
		gx_env_thread_join(s.env, &thread);
		must(s.err, "fsync");
	}
	must(gfs_close(a), "close");
	must(gfs_close(b), "close");
	must(gfs_disconnect(fs), "leave");
}

/* B10: a fsync that takes long does not keep up a read of another file on the same connection. */
static void a_sync_keeps_nobody_waiting(void)
{
	struct gfs *fs = connect_as(s.env, "host1", 1 << 20);
	struct gfs_file *a, *b;
	struct gx_thread thread;
	int64_t start;

	make_file(fs, "/a", 1, 'a');
	a = open_it(fs, "/a", GFS_O_READ);
	b = open_it(fs, "/b", GFS_O_WRITE | GFS_O_CREATE);
	expect_block(a, 0, 'a');
	for (unsigned i = 1; i < 20; i++) {
		s.ready = false;
		/* Behind what is settled: a block that is has to be marked first, which is slow. */
		write_blocks(b, 3 * i, 3, 'b');
		wait_ms(10 * 1000);
		must(gx_env_thread_start(s.env, &thread, "sync", sync_main, b), "thread");
		while (!s.ready)
			wait_ms(1);
		wait_ms(20);
		start = now_ms();
		expect_block(a, i, 'a');
		if (now_ms() - start > 500)
			wrong("a read waits %lld ms for a fsync", (long long)(now_ms() - start));
		gx_env_thread_join(s.env, &thread);
		must(s.err, "fsync");
	}
	must(gfs_close(a), "close");
	must(gfs_close(b), "close");
	must(gfs_disconnect(fs), "leave");
}

static void growing_writer(struct gx_env *env, void *arg GX_UNUSED)
{
	struct gfs *fs = connect_as(env, "", 1 << 20);
	struct gfs_file *f = open_it(fs, "/a", GFS_O_WRITE | GFS_O_CREATE);

	write_blocks(f, 0, 32, 'a');
	gx_env_sleep_until(env, gx_env_deadline_ms(env, 300));
	wait_go(env);
	must(gfs_close(f), "close");
	must(gfs_disconnect(fs), "leave");
}

/* N12: a writer that hangs has told how long the file is. */
static void a_hung_writer_has_told_the_size(void)
{
	struct gfs *fs = connect_as(s.env, "", 1 << 20);
	int64_t start;
	struct gfs_stat st;

	start_other(growing_writer);
	gx_sim_stop(s.other);
	start = now_ms();
	must(gfs_stat(fs, "/a", &st), "stat");
	if (st.size != 32 * BLOCK)
		wrong("the file has %llu bytes", (unsigned long long)st.size);
	if (now_ms() - start > 1500)
		wrong("a stat takes %lld ms", (long long)(now_ms() - start));
	gx_sim_continue(s.other);
	end_other();
	must(gfs_disconnect(fs), "leave");
}

/* -- what is in a spool ---- */

struct finding {
	struct gx_sim_proc *proc;
	unsigned objects, aside;
	bool make; /* first an object that nobody knows */
};

static const struct fsd_object_id stranger = {.ino = 0x7777, .generation = 5};

static void make_stranger(struct gx_env *env)
{
	struct fsd_object *object;
	struct fsd_spool *spool;

	must(fsd_spool_open(env, "/spool1", false, &spool), "spool");
	must(fsd_object_create(spool, &stranger, &object), "object");
	must(fsd_object_write(object, "bytes", 5, 0), "object");
	must(fsd_object_sync(object), "object");
	fsd_object_close(object);
	fsd_spool_close(spool);
}

static int count_entry(void *arg, const char *name GX_UNUSED)
{
	++*(unsigned *)arg;
	return 0;
}

static int count_object(void *arg, const struct fsd_object_id *id GX_UNUSED,
			uint64_t size GX_UNUSED)
{
	++*(unsigned *)arg;
	return 0;
}

static void find_main(struct gx_env *env, void *arg)
{
	static const char *const spools[] = {"/spool1", "/spool2"};
	struct finding *finding = arg;
	char path[32];

	if (finding->make)
		make_stranger(env);
	for (unsigned i = 0; i < SIM_DATA_SPOOLS; i++) {
		struct fsd_spool *spool;

		must(fsd_spool_open(env, spools[i], false, &spool), "spool");
		must(fsd_spool_each(spool, count_object, &finding->objects), "objects");
		fsd_spool_close(spool);
		snprintf(path, sizeof(path), "%s/quarantine", spools[i]);
		must(gx_env_list_dir(env, path, count_entry, &finding->aside), "quarantine");
	}
}

/* Of a node that does not run. */
static void look_into(struct sim_data_fsd *fsd, bool make, struct finding *finding)
{
	gx_sim_kill(fsd->proc);
	*finding = (struct finding){.make = make};
	must(gx_sim_spawn(fsd->host, "find", find_main, finding, &finding->proc), "spawn");
	while (!gx_sim_proc_ended(finding->proc))
		wait_ms(1);
}

/* N9: what metad does not know is kept for a while. */
static void an_unknown_object_is_put_aside(void)
{
	struct finding before, after;

	wait_ms(1000);
	look_into(&s.data.fsds[0], true, &before);
	sim_data_up(&s.data);
	wait_ms(10 * 1000);
	look_into(&s.data.fsds[0], false, &after);
	if (before.objects != 1 || after.objects != 0 || after.aside == 0)
		wrong("of %u objects %u are left, %u files are put aside", before.objects,
		      after.objects, after.aside);
}

/* N9: a metad from before all that a node has seen is not believed about what it does not know. */
static void an_old_metad_is_not_believed(void)
{
	struct gfs *fs = connect_as(s.env, "host1", 0);
	struct finding before, after;

	make_file(fs, "/a", 2, 'a');
	must(gfs_disconnect(fs), "leave");
	gx_sim_kill(s.data.meta.metad); /* the second epoch is higher than that of a new one */
	sim_data_up(&s.data);
	wait_ms(20 * 1000);
	look_into(&s.data.fsds[0], false, &before);
	gx_sim_kill(s.data.meta.metad);
	s.data.meta.dir = "/backup";
	sim_data_up(&s.data);
	wait_ms(30 * 1000);
	look_into(&s.data.fsds[0], false, &after);
	if (before.objects != 1 || after.objects != 1)
		wrong("of %u objects %u are left", before.objects, after.objects);
}

/* -- playing them ---- */

static void slow_disks(struct sim_data *data)
{
	data->meta.options.sync_max_ns = 4 * GX_NSEC_PER_SEC;
}

/* A node that sends what is asked for waits in the middle of it. */
static void narrow_links(struct sim_data *data)
{
	data->meta.options.socket_buffer_bytes = 16u * 1024;
}

static const struct {
	unsigned rule;
	void (*fn)(void);
	void (*set)(struct sim_data *data); /* or NULL */
	unsigned seeds;
	const char *text;
} scenes[] = {
	{29, an_unknown_object_is_put_aside, NULL, 1, "N9: an unknown object is quarantined"},
	{49, an_old_metad_is_not_believed, NULL, 1, "N9: not by a metad from an old backup"},
	{112, a_hung_writer_has_told_the_size, NULL, 1, "N12: sizes are reported while writing"},
	{221, a_generation_is_on_disk, slow_disks, 60, "B1: the generation is on disk before that"},
	{205, late_writes_change_nothing, NULL, 3, "B5: another generation is refused"},
	{307, no_mismatch_counts_unproven, narrow_links, 3, "B7: a mismatch is proven"},
	{310, a_hung_node_costs_little, NULL, 3, "B10: silence is a hang"},
	{210, a_slow_node_is_waited_for, slow_disks, 3, "B10: slowness is not"},
	{230, a_sync_keeps_nobody_waiting, slow_disks, 30, "B10: fsync runs beside reads"},
};

static void director_main(struct gx_env *env, void *arg)
{
	void (*const *fn)(void) = arg;

	s.env = env;
	(*fn)();
}

/* The seed in which something was wrong; 0: nothing was. */
static uint64_t play(int i, uint64_t seeds)
{
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		void (*fn)(void) = scenes[i].fn;
		struct gx_sim_proc *proc;
		int r;

		memset(&s, 0, sizeof(s));
		sim_data_init(&s.data, seed);
		if (scenes[i].set != NULL)
			scenes[i].set(&s.data);
		sim_data_start(&s.data);
		must(gx_sim_spawn(s.data.meta.client_hosts[0], "director", director_main, &fn,
				  &proc),
		     "spawn");
		r = gx_sim_run(s.data.meta.sim, proc);
		if (r < 0)
			wrong("the scene does not end: %s", gx_strerror(r));
		sim_data_free(&s.data);
		if (s.wrong[0] != '\0')
			return seed;
	}
	return 0;
}

static bool look_at_scene(int i)
{
	uint64_t seed = play(i, scenes[i].seeds);

	printf("seed %llu: %s\n", (unsigned long long)seed, s.wrong);
	return seed != 0;
}

START_TEST(a_rule_broken_in_its_scene_is_noticed)
{
	ck_assert_msg(is_caught(scenes[_i].rule, scenes[_i].text, look_at_scene, _i),
		      "%u, %s, was broken and nobody noticed", scenes[_i].rule, scenes[_i].text);
}
END_TEST

START_TEST(in_the_same_scene_unbroken_rules_show_nothing_wrong)
{
	uint64_t seed;

	gx_broken = 0;
	seed = play(_i, sim_seeds(10));
	ck_assert_msg(seed == 0, "%s, seed %llu: %s", scenes[_i].text, (unsigned long long)seed,
		      s.wrong);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_broken_data");
	TCase *tc = tcase_create("sim_broken_data");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, a_broken_rule_is_noticed, 0, (int)GX_COUNT_OF(rules));
	tcase_add_loop_test(tc, in_the_same_weather_unbroken_rules_show_nothing_wrong, 0,
			    (int)GX_COUNT_OF(weathers));
	tcase_add_loop_test(tc, a_rule_broken_in_its_scene_is_noticed, 0, (int)GX_COUNT_OF(scenes));
	tcase_add_loop_test(tc, in_the_same_scene_unbroken_rules_show_nothing_wrong, 0,
			    (int)GX_COUNT_OF(scenes));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
