/*
 * bench/data - how fast bytes are: fsd through libgfs and the gfs command, next to cp, raw streams
 * and local files on the same disk.
 *
 * It starts a grid of its own and measures raw and ours in turn (figure.h); what the sides do is in
 * bench/lib/bytes.h. Local files are warm, in the page cache, as are those of the grid: this is
 * about the software, not about the disk. Lines that end with "on disk" wait for it, on both sides.
 *
 * Nothing is pinned to a CPU but what takes part in the 4 KiB remote read and its ping-pong, for
 * the reason that bench/wire has.
 *
 * Speed never fails: the exit status is 0 unless something broke.
 */
#include "bench/lib/bytes.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include <getopt.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/* What the grid looks like. */
enum stage {
	STAGE_PLAIN, /* one node: unix socket, TCP */
	STAGE_TLS,   /* one node: unix socket, TLS */
	STAGE_TWO,   /* two nodes: unix sockets, TCP */
};

struct test {
	enum stage stage;
	int (*begin)(struct bytes *b); /* may be NULL */
	figure_fn raw, own;
	struct figure figure;
};

/* Targets are those of the project; lines without are there to be seen. */
static const struct test tests[] = {
	{STAGE_PLAIN, NULL, raw_side_cp, own_side_put, {"gfs put (raw: cp)", "MB/s", false, 0.9}},
	{STAGE_PLAIN,
	 bytes_make_file,
	 raw_side_cp,
	 own_side_get,
	 {"gfs get (raw: cp)", "MB/s", false, 0.9}},
	{STAGE_PLAIN,
	 NULL,
	 raw_side_cp_synced,
	 own_side_put_synced,
	 {"gfs put, on disk (raw: cp)", "MB/s", false, 0}},
	{STAGE_PLAIN,
	 bytes_make_file,
	 raw_side_cp_synced,
	 own_side_get_synced,
	 {"gfs get, on disk (raw: cp)", "MB/s", false, 0}},
	{STAGE_PLAIN, NULL, raw_side_write, own_side_write, {"write, tcp", "MB/s", false, 0.85}},
	{STAGE_PLAIN,
	 bytes_make_file,
	 raw_side_read,
	 own_side_read,
	 {"read, tcp", "MB/s", false, 0.85}},
	{STAGE_PLAIN,
	 NULL,
	 raw_side_write_synced,
	 own_side_write_synced,
	 {"write, tcp, on disk", "MB/s", false, 0}},
	{STAGE_PLAIN,
	 bytes_open_random_near,
	 raw_side_pread,
	 own_side_pread,
	 {"4 KiB random read, near (raw: pread)", "/s", false, 0.8}},
	{STAGE_PLAIN,
	 bytes_make_random,
	 raw_side_pread_once,
	 own_side_pread_once,
	 {"4 KiB random read, near, first pass", "/s", false, 0}},
	{STAGE_PLAIN,
	 bytes_open_random_far,
	 raw_side_ping,
	 own_side_pread_p50,
	 {"4 KiB random read, tcp, p50 (raw: ping)", "us", true, 3}},
	{STAGE_PLAIN,
	 bytes_make_file,
	 raw_side_cpu,
	 own_side_cpu,
	 {"fsd's CPU of a read, tcp (raw: sendfile)", "s/GB", true, 1.3}},
	{STAGE_PLAIN,
	 bytes_open_random_far,
	 NULL,
	 own_side_connections,
	 {"fsd's memory, 1000 connections, tcp", "MiB", true, 200}},
	{STAGE_PLAIN,
	 bytes_open_append,
	 raw_side_append,
	 own_side_append,
	 {"append 4 KiB and fsync, near", "/s", false, 0}},
	{STAGE_PLAIN,
	 NULL,
	 raw_side_small_write,
	 own_side_small_write,
	 {"new file of 16 KiB, near (raw: with fsync)", "/s", false, 0}},
	{STAGE_PLAIN,
	 bytes_make_small,
	 raw_side_small_read,
	 own_side_small_read,
	 {"open, read 16 KiB, close, near", "/s", false, 0}},
	{STAGE_TLS, NULL, raw_side_upload, own_side_write, {"write, tls", "MB/s", false, 0.85}},
	{STAGE_TLS,
	 bytes_make_file,
	 raw_side_download,
	 own_side_read,
	 {"read, tls", "MB/s", false, 0.85}},
	{STAGE_TLS,
	 bytes_open_random_far,
	 NULL,
	 own_side_connections,
	 {"fsd's memory, 1000 connections, tls", "MiB", true, 0}},
	{STAGE_TWO,
	 NULL,
	 raw_side_write_twice,
	 own_side_write_twice,
	 {"write 2 copies, tcp, on disk (raw: 2 files)", "MB/s", false, 0}},
	{STAGE_TWO,
	 bytes_make_twice,
	 raw_side_download,
	 own_side_read_twice,
	 {"read of 2 copies, tcp", "MB/s", false, 0}},
};

struct data {
	struct bytes bytes;
	struct figure_sheet sheet;
	enum stage stage;
};

/* -- running ----------------------------------------------------------------------------------- */

static int enter_stage(struct data *d, enum stage stage)
{
	struct bytes *b = &d->bytes;
	int r = bytes_disconnect(b);

	if (r == 0 && (stage == STAGE_TLS) != (d->stage == STAGE_TLS))
		r = grid_use_tls(&b->grid, stage == STAGE_TLS);
	if (r == 0 && stage == STAGE_TWO)
		r = grid_grow(&b->grid, 2);
	b->stream = stage == STAGE_TLS ? RAW_TLS : RAW_TCP;
	d->stage = stage;
	return r < 0 ? r : bytes_connect(b);
}

/* The two of which the lower counted. */
static void print_note(struct bytes *b)
{
	struct bytes_note *note = &b->note;

	if (note->count > 0)
		printf("%-44s %5s %10.0f stream, %.0f disk\n", "", "",
		       figure_median(note->stream, note->count),
		       figure_median(note->disk, note->count));
	note->count = 0;
}

static int run_test(struct data *d, const struct test *test)
{
	struct bytes *b = &d->bytes;
	int r = test->stage == d->stage ? 0 : enter_stage(d, test->stage);
	int ended;

	if (r == 0 && test->begin)
		r = test->begin(b);
	if (r == 0)
		r = figure_run(&d->sheet, &test->figure, test->raw, test->own, b);
	if (r == 0)
		print_note(b);
	ended = bytes_end_test(b);
	r = r < 0 ? r : ended;
	if (r < 0)
		fprintf(stderr, "data: %s: %s\n", test->figure.name, gx_strerror(r));
	return r;
}

static void print_header(const struct data *d)
{
	struct utsname host;

	uname(&host);
	printf("data: %ld CPUs; %s %s; OpenSSL %s; checksums %s\n", sysconf(_SC_NPROCESSORS_ONLN),
	       host.sysname, host.release, OpenSSL_version(OPENSSL_VERSION_STRING),
	       gx_sum_variant());
	printf("data: %u rounds, raw and ours in turn; files of %llu MiB, random reads in %llu "
	       "MiB\n\n",
	       d->sheet.rounds, (unsigned long long)(d->bytes.file_bytes / MIB),
	       (unsigned long long)(d->bytes.random_bytes / MIB));
	figure_print_head();
}

static int run_all(struct data *d)
{
	int r = 0;

	print_header(d);
	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(tests); i++)
		if (figure_wanted(&d->sheet, &tests[i].figure))
			r = run_test(d, &tests[i]);
	return r;
}

/* Both ends of a thousand connections; daemons that we start get the same. */
static void allow_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		GX_IGNORE(setrlimit(RLIMIT_NOFILE, &limit));
	}
}

/* -- the command line -------------------------------------------------------------------------- */

static int usage(void)
{
	fputs("usage: data [--quick] [--json FILE] [--rounds N] [--mib N] [--round-ms N]\n"
	      "            [--only PART-OF-A-LINE]\n",
	      stderr);
	return 2;
}

static int parse_number(const char *text, uint64_t max, uint64_t *ret_number)
{
	if (gx_parse_u64(text, ret_number) < 0 || *ret_number < 1 || *ret_number > max)
		return -EINVAL;
	return 0;
}

static int set_option(struct data *d, int c)
{
	uint64_t number;
	int r = 0;

	switch (c) {
	case 'q':
		d->sheet.rounds = 3;
		d->bytes.file_bytes = 64u * MIB;
		d->bytes.random_bytes = 16u * MIB;
		d->bytes.cpu_bytes = 256u * MIB;
		d->bytes.bench.round_ns = 100 * GX_NSEC_PER_MSEC;
		break;
	case 'r':
		r = parse_number(optarg, FIGURE_ROUNDS_MAX, &number);
		d->sheet.rounds = (unsigned)number;
		break;
	case 'b':
		r = parse_number(optarg, 1u << 20, &number);
		d->bytes.file_bytes = number * MIB;
		break;
	case 'm':
		r = parse_number(optarg, 60000, &number);
		d->bytes.bench.round_ns = (int64_t)number * GX_NSEC_PER_MSEC;
		break;
	case 'o':
		d->sheet.only = optarg;
		break;
	default:
		r = -EINVAL;
	}
	return r;
}

static int parse_options(struct data *d, int argc, char **argv, const char **ret_json)
{
	static const struct option options[] = {{"quick", no_argument, NULL, 'q'},
						{"json", required_argument, NULL, 'j'},
						{"rounds", required_argument, NULL, 'r'},
						{"mib", required_argument, NULL, 'b'},
						{"round-ms", required_argument, NULL, 'm'},
						{"only", required_argument, NULL, 'o'},
						{NULL, 0, NULL, 0}};
	int c, r = 0;

	while (r == 0 && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'j')
			*ret_json = optarg;
		else
			r = set_option(d, c);
	}
	while (d->bytes.random_bytes > d->bytes.file_bytes)
		d->bytes.random_bytes /= 2;
	return r == 0 && optind == argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	static struct data d = {.bytes = {.file_bytes = 1024ull * MIB,
					  .random_bytes = 256u * MIB,
					  .cpu_bytes = 4096ull * MIB,
					  .bench = {.round_ns = GX_NSEC_PER_SEC}},
				.sheet = {.program = "data", .rounds = 5}};
	const char *json = NULL;
	int r;

	if (parse_options(&d, argc, argv, &json) < 0)
		return usage();
	sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
	allow_descriptors();
	r = figure_sheet_open(&d.sheet, json);
	if (r < 0) {
		fprintf(stderr, "data: %s: %s\n", json, gx_strerror(r));
		return 1;
	}
	r = bytes_init(&d.bytes);
	if (r < 0)
		fprintf(stderr, "data: cannot begin: %s\n", gx_strerror(r));
	else
		r = run_all(&d);
	figure_sheet_close(&d.sheet, r == 0);
	bytes_fini(&d.bytes);
	return r < 0 ? 1 : 0;
}
