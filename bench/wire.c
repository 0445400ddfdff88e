/*
 * bench/wire - how fast the wire is, next to raw sockets and raw OpenSSL.
 *
 * Each test has a raw and an own side that do the same work; every round runs
 * both, one right after the other, so that whatever else the machine is doing
 * hits both alike. Printed are the medians over the rounds and, as ratio, the
 * median of the rounds' ratios. The servers are processes of their own.
 *
 * Speed never fails: the exit status is 0 unless something broke.
 */
#include "bench/lib/measure.h"
#include "bench/lib/shake.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS_MAX 99u

enum pinning {
	PIN_SAME,  /* client and servers on one CPU */
	PIN_SPLIT, /* client on one, servers on another */
	PIN_NONE,
};

struct test {
	const char *name;
	side_fn raw, own;
	struct job job;
	struct result raw_rounds[ROUNDS_MAX], own_rounds[ROUNDS_MAX];
	unsigned rounds;
};

struct wire {
	struct bench bench;
	pid_t raw_pid, ours_pid;
	char directory[64];
	unsigned rounds;
	enum pinning pinning;
	const char *only; /* part of a test's name, or NULL */
};

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* -- what is measured -------------------------------------------------------------------- */

enum {
	TEST_TCP,
	TEST_TLS,
	TEST_UNIX,
	TEST_TCP_WINDOW,
	TEST_TLS_WINDOW,
	TEST_CROWD,
	TEST_TCP_1M,
	TEST_TLS_1M,
	TEST_TCP_1M_THREAD,
	TEST_TLS_1M_THREAD,
	TEST_TCP_64M,
	TEST_TLS_64M,
	TEST_OPEN_TLS,
	TEST_OPEN_MUTUAL,
	TEST_SHAKE,
	TEST_SHAKE_MUTUAL,
	TEST_OPEN_TCP,
	TEST_COUNT
};

static struct test tests[TEST_COUNT] = {
	[TEST_TCP] = {"call tcp",
		      side_raw_calls,
		      side_own_calls,
		      {RAW_TCP, OURS_TCP, false, SMALL_BYTES}},
	[TEST_TLS] = {"call tls",
		      side_raw_calls,
		      side_own_calls,
		      {RAW_TLS, OURS_TLS, false, SMALL_BYTES}},
	[TEST_UNIX] = {"call unix",
		       side_raw_calls,
		       side_own_calls,
		       {RAW_UNIX, OURS_UNIX, false, SMALL_BYTES}},
	[TEST_TCP_WINDOW] = {"window tcp",
			     side_raw_window,
			     side_own_window,
			     {RAW_TCP, OURS_TCP, false, SMALL_BYTES}},
	[TEST_TLS_WINDOW] = {"window tls",
			     side_raw_window,
			     side_own_window,
			     {RAW_TLS, OURS_TLS, false, SMALL_BYTES}},
	[TEST_CROWD] = {"crowd tcp",
			side_raw_crowd,
			side_own_crowd,
			{RAW_EPOLL, OURS_TCP, false, SMALL_BYTES}},
	[TEST_TCP_1M] = {"1m tcp loop",
			 side_raw_calls,
			 side_own_calls,
			 {RAW_TCP, OURS_TCP, false, MIB}},
	[TEST_TLS_1M] = {"1m tls loop",
			 side_raw_calls,
			 side_own_calls,
			 {RAW_TLS, OURS_TLS, false, MIB}},
	[TEST_TCP_1M_THREAD] = {"1m tcp thread",
				side_raw_calls,
				side_own_calls,
				{RAW_TCP, OURS_TCP, true, MIB}},
	[TEST_TLS_1M_THREAD] = {"1m tls thread",
				side_raw_calls,
				side_own_calls,
				{RAW_TLS, OURS_TLS, true, MIB}},
	[TEST_TCP_64M] = {"64m tcp thread",
			  side_raw_calls,
			  side_own_calls,
			  {RAW_TCP, OURS_TCP, true, LARGEST_BYTES}},
	[TEST_TLS_64M] = {"64m tls thread",
			  side_raw_calls,
			  side_own_calls,
			  {RAW_TLS, OURS_TLS, true, LARGEST_BYTES}},
	[TEST_OPEN_TLS] = {"open tls",
			   side_raw_opens,
			   side_own_opens,
			   {RAW_TLS, OURS_TLS, false, SMALL_BYTES}},
	[TEST_SHAKE] = {"shake",
			side_raw_shakes,
			side_own_shakes,
			{RAW_TLS, OURS_TLS, false, SMALL_BYTES}},
	[TEST_OPEN_MUTUAL] = {"open tls mutual",
			      side_raw_opens,
			      side_own_opens,
			      {RAW_TLS_MUTUAL, OURS_TLS, false, SMALL_BYTES}},
	[TEST_SHAKE_MUTUAL] = {"shake mutual",
			       side_raw_shakes,
			       side_own_shakes,
			       {RAW_TLS_MUTUAL, OURS_TLS, false, SMALL_BYTES}},
	[TEST_OPEN_TCP] = {"open tcp",
			   side_raw_opens,
			   side_own_opens,
			   {RAW_TCP, OURS_TCP, false, SMALL_BYTES}},
};

enum measure { P50_US, P99_US, PER_SEC, MB_PER_SEC };

/* A line of the table. Targets: ratio 0 means none; at most for times, at least for rates. */
static const struct row {
	int test;
	enum measure measure;
	const char *name;
	double ratio_target;
	double floor; /* least value, whatever the ratio */
} rows[] = {
	{TEST_TCP, P50_US, "64 B call, tcp, p50", 1.5, 0},
	{TEST_TCP, P99_US, "64 B call, tcp, p99", 0, 0},
	{TEST_TCP, PER_SEC, "64 B call, tcp", 0.65, 0},
	{TEST_TLS, P50_US, "64 B call, tls, p50", 1.5, 0},
	{TEST_TLS, P99_US, "64 B call, tls, p99", 0, 0},
	{TEST_TLS, PER_SEC, "64 B call, tls", 0.65, 0},
	{TEST_UNIX, P50_US, "64 B call, unix, p50", 1.5, 0},
	{TEST_UNIX, P99_US, "64 B call, unix, p99", 0, 0},
	{TEST_UNIX, PER_SEC, "64 B call, unix", 0.65, 0},
	{TEST_TCP_WINDOW, PER_SEC, "8 in flight, tcp", 0, 60000},
	{TEST_TLS_WINDOW, PER_SEC, "8 in flight, tls", 0, 0},
	{TEST_CROWD, PER_SEC, "8 connections, tcp (raw: epoll)", 0.6, 0},
	{TEST_TCP_1M, MB_PER_SEC, "1 MiB, tcp, loop server", 0.8, 0},
	{TEST_TLS_1M, MB_PER_SEC, "1 MiB, tls, loop server", 0.85, 0},
	{TEST_TCP_1M_THREAD, MB_PER_SEC, "1 MiB, tcp, threaded server", 0.8, 0},
	{TEST_TLS_1M_THREAD, MB_PER_SEC, "1 MiB, tls, threaded server", 0.85, 0},
	{TEST_TCP_64M, MB_PER_SEC, "64 MiB, tcp, threaded server", 0.9, 0},
	{TEST_TLS_64M, MB_PER_SEC, "64 MiB, tls, threaded server", 0.9, 0},
	{TEST_OPEN_TLS, P50_US, "connect, tls (raw: server cert.)", 0.5, 0},
	{TEST_OPEN_MUTUAL, P50_US, "connect, tls (raw: mutual cert.)", 0, 0},
	{TEST_SHAKE, P50_US, "TLS PSK in memory (raw: server cert.)", 0.5, 0},
	{TEST_SHAKE_MUTUAL, P50_US, "TLS PSK in memory (raw: mutual cert.)", 0, 0},
	{TEST_OPEN_TCP, P50_US, "connect, tcp with HMAC (raw: none)", 0, 0},
};

static bool is_time(enum measure measure)
{
	return measure == P50_US || measure == P99_US;
}

static const char *unit_of(enum measure measure)
{
	static const char *const units[] = {
		[P50_US] = "us", [P99_US] = "us", [PER_SEC] = "/s", [MB_PER_SEC] = "MB/s"};

	return units[measure];
}

static double value_of(const struct row *row, const struct result *result)
{
	switch (row->measure) {
	case P50_US:
		return result->p50_us;
	case P99_US:
		return result->p99_us;
	case PER_SEC:
		return result->per_sec;
	case MB_PER_SEC:
		return result->per_sec * (double)tests[row->test].job.bytes / 1e6;
	}
	return 0;
}

static double median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare_double);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

struct line {
	double raw, own, ratio;
	bool has_target, met;
};

static struct line line_of(const struct row *row)
{
	const struct test *t = &tests[row->test];
	double raw[ROUNDS_MAX], own[ROUNDS_MAX], ratio[ROUNDS_MAX];
	struct line line;

	for (unsigned i = 0; i < t->rounds; i++) {
		raw[i] = value_of(row, &t->raw_rounds[i]);
		own[i] = value_of(row, &t->own_rounds[i]);
		ratio[i] = own[i] / raw[i];
	}
	line = (struct line){median(raw, t->rounds), median(own, t->rounds),
			     median(ratio, t->rounds), row->ratio_target > 0 || row->floor > 0,
			     true};
	if (row->ratio_target > 0)
		line.met = is_time(row->measure) ? line.ratio <= row->ratio_target
						 : line.ratio >= row->ratio_target;
	if (row->floor > 0 && line.own < row->floor)
		line.met = false;
	return line;
}

/* -- output ------------------------------------------------------------------------------ */

static void cpu_model(char *text, size_t bytes)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[512];

	GX_IGNORE(gx_strcpy(text, bytes, "unknown"));
	while (f && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (!colon || strncmp(line, "model name", 10) != 0)
			continue;
		colon[strcspn(colon, "\n")] = '\0';
		GX_IGNORE(gx_format(text, bytes, "%s", colon + 2));
		break;
	}
	if (f)
		fclose(f);
}

static const char *pinning_text(enum pinning pinning)
{
	switch (pinning) {
	case PIN_SPLIT:
		return "client on one CPU, servers on another";
	case PIN_SAME:
		return "client and servers on one CPU";
	case PIN_NONE:
		return "not pinned";
	}
	return "?";
}

static void print_header(const struct wire *w)
{
	struct utsname host;
	char model[128];

	cpu_model(model, sizeof(model));
	uname(&host);
	printf("wire: %s, %ld CPUs; %s %s; OpenSSL %s; checksums %s\n", model,
	       sysconf(_SC_NPROCESSORS_ONLN), host.sysname, host.release,
	       OpenSSL_version(OPENSSL_VERSION_STRING), gx_sum_variant());
	printf("wire: %u rounds, raw and ours in turn; %s\n\n", w->rounds,
	       pinning_text(w->pinning));
	printf("%-38s %5s %10s %10s %7s %9s\n", "", "", "raw", "ours", "ratio", "target");
}

static void target_text(const struct row *row, char text[16])
{
	text[0] = '\0';
	if (row->ratio_target > 0)
		gx_format(text, 16, "%s %.2f",
			  is_time(row->measure) ? "<=" : ">=", row->ratio_target);
	else if (row->floor > 0)
		gx_format(text, 16, ">= %.0f", row->floor);
}

static void print_line(const struct row *row, const struct line *line)
{
	char target[16];
	int digits = is_time(row->measure) ? 1 : 0;

	target_text(row, target);
	printf("%-38s %5s %10.*f %10.*f %7.2f %9s %s\n", row->name, unit_of(row->measure), digits,
	       line->raw, digits, line->own, line->ratio, target,
	       !line->has_target ? "" : (line->met ? "ok" : "MISS"));
	fflush(stdout);
}

static int write_json(const struct wire *w, const char *path)
{
	FILE *f = fopen(path, "we");
	struct utsname host;
	const char *comma = "";
	char model[128];

	if (!f)
		return gx_errno();
	cpu_model(model, sizeof(model));
	uname(&host);
	fprintf(f,
		"{\n\"cpu\": \"%s\", \"cpus\": %ld, \"kernel\": \"%s\", \"openssl\": \"%s\",\n"
		"\"checksum\": \"%s\", \"rounds\": %u, \"pinning\": \"%s\",\n\"figures\": [",
		model, sysconf(_SC_NPROCESSORS_ONLN), host.release,
		OpenSSL_version(OPENSSL_VERSION_STRING), gx_sum_variant(), w->rounds,
		pinning_text(w->pinning));
	for (size_t i = 0; i < GX_COUNT_OF(rows); i++) {
		struct line line;

		if (tests[rows[i].test].rounds == 0)
			continue;
		line = line_of(&rows[i]);
		fprintf(f,
			"%s\n{\"name\": \"%s\", \"unit\": \"%s\", \"raw\": %.2f, \"ours\": %.2f, "
			"\"ratio\": %.3f, \"ratio_target\": %.2f, \"floor\": %.0f, \"met\": %s}",
			comma, rows[i].name, unit_of(rows[i].measure), line.raw, line.own,
			line.ratio, rows[i].ratio_target, rows[i].floor,
			line.has_target ? (line.met ? "true" : "false") : "null");
		comma = ",";
	}
	fprintf(f, "\n]}\n");
	return fclose(f) == 0 ? 0 : gx_errno();
}

/* -- running ----------------------------------------------------------------------------- */

static int run_test(struct wire *w, struct test *t)
{
	for (unsigned i = 0; i < w->rounds; i++) {
		bool raw_first = i % 2 == 0;
		int r;

		r = raw_first ? t->raw(&w->bench, &t->job, &t->raw_rounds[i])
			      : t->own(&w->bench, &t->job, &t->own_rounds[i]);
		if (r == 0)
			r = raw_first ? t->own(&w->bench, &t->job, &t->own_rounds[i])
				      : t->raw(&w->bench, &t->job, &t->raw_rounds[i]);
		if (r < 0) {
			fprintf(stderr, "wire: %s: %s\n", t->name, gx_strerror(r));
			return r;
		}
	}
	t->rounds = w->rounds;
	return 0;
}

static int run_all(struct wire *w)
{
	unsigned targets = 0, met = 0;

	print_header(w);
	for (int id = 0; id < TEST_COUNT; id++) {
		int r;

		if (w->only && !strstr(tests[id].name, w->only))
			continue;
		r = run_test(w, &tests[id]);
		if (r < 0)
			return r;
		for (size_t i = 0; i < GX_COUNT_OF(rows); i++) {
			struct line line;

			if (rows[i].test != id)
				continue;
			line = line_of(&rows[i]);
			print_line(&rows[i], &line);
			targets += line.has_target;
			met += line.has_target && line.met;
		}
	}
	printf("\nwire: %u of %u targets met\n", met, targets);
	return 0;
}

static void pin(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	/* A machine with one CPU, or a container that forbids it: the figures are noisier. */
	GX_IGNORE(sched_setaffinity(0, sizeof(set), &set));
}

/* In a new child: dies with its parent, runs where servers run. */
static void become_server(const struct wire *w)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (w->pinning != PIN_NONE)
		pin(0);
}

static int start_servers(struct wire *w)
{
	int ready[2];
	int r;

	fflush(NULL);
	w->raw_pid = fork();
	if (w->raw_pid == 0) {
		become_server(w);
		raw_server_run(&w->bench.raw);
	}
	if (w->raw_pid < 0 || pipe2(ready, O_CLOEXEC) < 0)
		return gx_errno();
	w->ours_pid = fork();
	if (w->ours_pid == 0) {
		become_server(w);
		ours_server_run(&w->bench.ours, ready[1]);
	}
	close(ready[1]);
	r = w->ours_pid < 0 ? gx_errno() : ours_take_endpoints(&w->bench.ours, ready[0]);
	close(ready[0]);
	return r;
}

static int wire_init(struct wire *w)
{
	int r;

	if (gx_strcpy(w->directory, sizeof(w->directory), "/tmp/wire.XXXXXX") < 0 ||
	    !mkdtemp(w->directory))
		return gx_errno();
	w->bench.payload = malloc(LARGEST_BYTES);
	w->bench.samples = malloc(SAMPLES_MAX * sizeof(*w->bench.samples));
	if (!w->bench.payload || !w->bench.samples)
		return -ENOMEM;
	memset(w->bench.payload, 7, LARGEST_BYTES);
	memset(w->bench.samples, 0, SAMPLES_MAX * sizeof(*w->bench.samples));
	r = raw_tls_init(&w->bench.tls);
	if (r == 0)
		r = shake_psk_init("X25519", &w->bench.psk_server, &w->bench.psk_client);
	if (r == 0) {
		char path[sizeof(w->directory) + 8];

		gx_format(path, sizeof(path), "%s/raw", w->directory);
		r = raw_server_init(&w->bench.raw, &w->bench.tls, path);
	}
	if (r == 0)
		r = ours_init(&w->bench.ours, gx_env_posix(), w->directory);
	if (r == 0)
		r = start_servers(w);
	if (r == 0 && w->pinning != PIN_NONE)
		pin(w->pinning == PIN_SPLIT ? 1 : 0);
	return r;
}

static void wire_fini(struct wire *w)
{
	static const char *const files[] = {"raw", "ours"};
	pid_t servers[] = {w->raw_pid, w->ours_pid};

	for (size_t i = 0; i < GX_COUNT_OF(servers); i++) {
		if (servers[i] > 0) {
			kill(servers[i], SIGKILL);
			waitpid(servers[i], NULL, 0);
		}
	}
	for (size_t i = 0; i < GX_COUNT_OF(files); i++) {
		char path[sizeof(w->directory) + 8];

		gx_format(path, sizeof(path), "%s/%s", w->directory, files[i]);
		unlink(path);
	}
	rmdir(w->directory);
	raw_server_fini(&w->bench.raw);
	raw_tls_fini(&w->bench.tls);
	SSL_CTX_free(w->bench.psk_server);
	SSL_CTX_free(w->bench.psk_client);
	rpc_key_clear(&w->bench.ours.key);
	free(w->bench.payload);
	free(w->bench.samples);
}

static int usage(void)
{
	fputs("usage: wire [--quick] [--json FILE] [--rounds N] [--round-ms N]\n"
	      "            [--pin split|same|none] [--only PART-OF-A-TEST]\n",
	      stderr);
	return 2;
}

static int parse_options(struct wire *w, int argc, char **argv, const char **ret_json)
{
	static const struct option options[] = {{"quick", no_argument, NULL, 'q'},
						{"json", required_argument, NULL, 'j'},
						{"rounds", required_argument, NULL, 'r'},
						{"round-ms", required_argument, NULL, 'm'},
						{"pin", required_argument, NULL, 'p'},
						{"only", required_argument, NULL, 'o'},
						{NULL, 0, NULL, 0}};
	uint64_t number;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'q':
			w->rounds = 3;
			w->bench.round_ns = 100 * GX_NSEC_PER_MSEC;
			break;
		case 'j':
			*ret_json = optarg;
			break;
		case 'r':
			if (gx_parse_u64(optarg, &number) < 0 || number < 1 || number > ROUNDS_MAX)
				return -EINVAL;
			w->rounds = (unsigned)number;
			break;
		case 'm':
			if (gx_parse_u64(optarg, &number) < 0 || number < 1 || number > 60000)
				return -EINVAL;
			w->bench.round_ns = (int64_t)number * GX_NSEC_PER_MSEC;
			break;
		case 'p':
			if (strcmp(optarg, "split") == 0)
				w->pinning = PIN_SPLIT;
			else if (strcmp(optarg, "same") == 0)
				w->pinning = PIN_SAME;
			else if (strcmp(optarg, "none") == 0)
				w->pinning = PIN_NONE;
			else
				return -EINVAL;
			break;
		case 'o':
			w->only = optarg;
			break;
		default:
			return -EINVAL;
		}
	}
	return optind == argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	static struct wire w = {
		.bench = {.round_ns = 200 * GX_NSEC_PER_MSEC}, .rounds = 9, .pinning = PIN_SAME};
	const char *json = NULL;
	int r;

	if (parse_options(&w, argc, argv, &json) < 0)
		return usage();
	/* A connection that the peer closed is an error code here, not the end. */
	sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
	r = wire_init(&w);
	if (r == 0)
		r = run_all(&w);
	if (r == 0 && json)
		r = write_json(&w, json);
	if (r < 0)
		fprintf(stderr, "wire: %s\n", gx_strerror(r));
	wire_fini(&w);
	return r < 0 ? 1 : 0;
}
