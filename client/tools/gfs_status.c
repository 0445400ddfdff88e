/*
 * gfs status - how the grid is: metad, the nodes, and for administrators who is using it.
 */
#include "client/tools/gfs_metad.h"
#include "client/tools/gfs_print.h"
#include "client/tools/gfs_tool.h"
#include "common/gx_num.h"

static const char help[] =
	"Usage: gfs status [OPTION]...\n"
	"Tells whether the grid is healthy: the metadata server, the nodes, and, for\n"
	"administrators, who is connected. Exit status 0: healthy, 1: not, or not there.\n\n"
	"Options:\n"
	"      --json         print all of it as one JSON object\n"
	"  -W, --timeout TIME give up after this long (5s)\n" GFS_COMMON_HELP;

struct status {
	struct gfs_tool tool;
	int64_t timeout_ns;
	bool json;
};

static int parse_options(int argc, char **argv, struct status *status)
{
	static const struct option longs[] = {
		{"json", no_argument, NULL, 'j'},
		{"timeout", required_argument, NULL, 'W'},
		GFS_COMMON_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = gfs_tool_getopt(&status->tool, argc, argv, "W:", longs)) != -1) {
		switch (c) {
		case 'j':
			status->json = true;
			break;
		case 'W':
			if (gx_parse_duration(optarg, &status->timeout_ns) < 0 ||
			    status->timeout_ns == 0)
				return gfs_tool_usage(&status->tool,
						      "--timeout %s: wants a time like 5s", optarg);
			break;
		default:
			return GFS_EXIT_USAGE;
		}
	}
	if (optind != argc)
		return gfs_tool_usage(&status->tool, "wants no argument");
	return 0;
}

/* What is wrong, in one line; "" if nothing is. */
static void find_problem(const PbMeta__StatusReply *s, char text[GX_LOG_LINE_MAX])
{
	size_t down = 0;

	text[0] = '\0';
	for (size_t i = 0; i < s->n_nodes; i++)
		down += !s->nodes[i]->up;
	/* A text too long is cut: it is only shown. */
	if (s->problem && s->problem[0])
		(void)gx_format(text, GX_LOG_LINE_MAX, "%s", s->problem);
	else if (s->recovering)
		(void)gx_format(text, GX_LOG_LINE_MAX,
				"recovering: waits for the clients it had before its restart");
	else if (down > 0)
		(void)gx_format(text, GX_LOG_LINE_MAX, "%zu of %zu nodes down", down, s->n_nodes);
}

/* -- as text -------------------------------------------------------------- */

/* A text in a column; control characters stay away from terminals. */
static void print_cell(const struct status *status, const char *text, int width)
{
	size_t columns = gfs_name_columns(text);
	int blanks = columns < (size_t)width ? width - (int)columns : 0;

	gfs_tool_print(&status->tool, text);
	printf("%*s", blanks + 2, "");
}

static void print_size_line(const char *what, uint64_t bytes)
{
	char text[16];

	gfs_size_text(bytes, text);
	printf("  %-14s %s\n", what, text);
}

static void print_count_line(const char *what, uint64_t count)
{
	printf("  %-14s %llu\n", what, (unsigned long long)count);
}

static void print_uptime(uint64_t ns)
{
	uint64_t s = ns / GX_NSEC_PER_SEC;

	printf("  %-14s ", "uptime");
	if (s >= 86400)
		printf("%llud ", (unsigned long long)(s / 86400));
	if (s >= 3600)
		printf("%lluh ", (unsigned long long)(s / 3600 % 24));
	if (s >= 60)
		printf("%llum ", (unsigned long long)(s / 60 % 60));
	printf("%llus\n", (unsigned long long)(s % 60));
}

static void print_metad(const PbMeta__StatusReply *s)
{
	print_count_line("epoch", s->epoch);
	print_uptime(s->uptime_ns);
	print_count_line("inodes", s->inodes);
	print_size_line("inline content", s->inline_bytes);
	print_count_line("sessions", s->session_count);
	print_count_line("open files", s->open_files);
	print_count_line("leases", s->leases);
	print_count_line("parked calls", s->parked);
	printf("  %-14s %llu written, %llu on disk, %llu in the store\n", "log",
	       (unsigned long long)s->log_written, (unsigned long long)s->log_durable,
	       (unsigned long long)s->stored);
	print_size_line("overlay", s->overlay_bytes);
	print_size_line("cache", s->cache_bytes);
	printf("  %-14s %llu hits, %llu misses\n", "", (unsigned long long)s->cache_hits,
	       (unsigned long long)s->cache_misses);
	printf("  %-14s %.3f ms, %.3f ms of work\n", "longest turn",
	       (double)s->longest_turn_ns / 1e6, (double)s->longest_work_ns / 1e6);
}

static void print_nodes(const struct status *status, const PbMeta__StatusReply *s)
{
	if (s->n_nodes == 0)
		return;
	printf("\n%-16s  %-5s  %-12s  %-5s  %9s  %9s  %5s\n", "NODE", "KIND", "HOST", "STATE",
	       "FREE GiB", "SIZE GiB", "LOAD");
	for (size_t i = 0; i < s->n_nodes; i++) {
		const PbMeta__Node *n = s->nodes[i];

		print_cell(status, n->name, 16);
		print_cell(status, n->kind, 5);
		print_cell(status, n->host, 12);
		printf("%-5s  %9.1f  %9.1f  %4u%%", n->up ? "up" : "DOWN",
		       (double)n->free_bytes / (1 << 30), (double)n->capacity_bytes / (1 << 30),
		       n->load_percent);
		if (!n->up)
			printf("  silent for %.1f s", (double)n->silent_ms / 1000);
		printf("\n");
	}
}

static void print_sessions(const struct status *status, const PbMeta__StatusReply *s)
{
	if (s->n_sessions == 0)
		return;
	printf("\n%-10s  %-16s  %-20s  %5s  %5s  %7s  %8s  %s\n", "SESSION", "WHO", "PROGRAM",
	       "CONNS", "FILES", "LEASES", "IDLE", "FROM");
	for (size_t i = 0; i < s->n_sessions; i++) {
		const PbMeta__SessionInfo *n = s->sessions[i];

		printf("%-10llu  ", (unsigned long long)n->id);
		print_cell(status, n->identity, 16);
		print_cell(status, n->program, 20);
		printf("%5u  %5u  %7llu  %6.1f s  ", n->connections, n->open_files,
		       (unsigned long long)n->leases, (double)n->idle_ms / 1000);
		gfs_tool_print(&status->tool, n->address);
		printf("\n");
	}
}

/* -- as JSON -------------------------------------------------------------- */

static void json_text(const char *key, const char *text)
{
	printf("\"%s\": ", key);
	gfs_json_string(stdout, text);
	printf(", ");
}

static void json_count(const char *key, uint64_t count)
{
	printf("\"%s\": %llu, ", key, (unsigned long long)count);
}

static void json_metad(const PbMeta__StatusReply *s)
{
	json_count("epoch", s->epoch);
	printf("\"recovering\": %s, ", s->recovering ? "true" : "false");
	printf("\"uptime_s\": %.3f, ", (double)s->uptime_ns / 1e9);
	json_count("inodes", s->inodes);
	json_count("inline_bytes", s->inline_bytes);
	json_count("session_count", s->session_count);
	json_count("open_files", s->open_files);
	json_count("leases", s->leases);
	json_count("parked", s->parked);
	json_count("log_written", s->log_written);
	json_count("log_durable", s->log_durable);
	json_count("stored", s->stored);
	json_count("overlay_bytes", s->overlay_bytes);
	json_count("cache_bytes", s->cache_bytes);
	json_count("cache_hits", s->cache_hits);
	json_count("cache_misses", s->cache_misses);
	printf("\"longest_turn_us\": %.1f, ", (double)s->longest_turn_ns / 1e3);
	printf("\"longest_work_us\": %.1f, ", (double)s->longest_work_ns / 1e3);
}

static void json_nodes(const PbMeta__StatusReply *s)
{
	printf("\"nodes\": [");
	for (size_t i = 0; i < s->n_nodes; i++) {
		const PbMeta__Node *n = s->nodes[i];

		printf("%s{", i > 0 ? ", " : "");
		json_text("name", n->name);
		json_text("kind", n->kind);
		json_text("host", n->host);
		json_text("group", n->group);
		json_count("capacity_bytes", n->capacity_bytes);
		json_count("free_bytes", n->free_bytes);
		json_count("load_percent", n->load_percent);
		json_count("silent_ms", n->silent_ms);
		printf("\"up\": %s}", n->up ? "true" : "false");
	}
	printf("]");
}

static void json_sessions(const PbMeta__StatusReply *s)
{
	printf("\"sessions\": [");
	for (size_t i = 0; i < s->n_sessions; i++) {
		const PbMeta__SessionInfo *n = s->sessions[i];

		printf("%s{", i > 0 ? ", " : "");
		json_text("identity", n->identity);
		json_text("program", n->program);
		json_text("address", n->address);
		json_count("connections", n->connections);
		json_count("open_files", n->open_files);
		json_count("leases", n->leases);
		json_count("idle_ms", n->idle_ms);
		printf("\"id\": %llu}", (unsigned long long)n->id);
	}
	printf("]");
}

/* -- asking --------------------------------------------------------------- */

static int show(const struct status *status, const PbMeta__StatusReply *s)
{
	char problem[GX_LOG_LINE_MAX];

	find_problem(s, problem);
	if (status->json) {
		printf("{\"healthy\": %s, ", problem[0] ? "false" : "true");
		json_text("problem", problem);
		json_metad(s);
		json_nodes(s);
		printf(", ");
		json_sessions(s);
		printf("}\n");
	} else {
		printf("%s", problem[0] ? "NOT healthy: " : "healthy");
		gfs_tool_print(&status->tool, problem);
		printf("\n");
		print_metad(s);
		print_nodes(status, s);
		print_sessions(status, s);
	}
	return problem[0] ? GFS_EXIT_FAILED : GFS_EXIT_OK;
}

static int ask(struct status *status, struct rpc_client *client, bool sessions,
	       struct gx_buf *errors, int *ret_code)
{
	const PbMeta__StatusReply *message;
	struct rpc_reply reply;
	int r;

	rpc_reply_init(&reply);
	r = gfs_metad_status(client, sessions, errors, &reply, &message);
	if (r == 0)
		*ret_code = show(status, message);
	rpc_reply_fini(&reply);
	return r;
}

int gfs_status_main(struct gx_env *env, int argc, char **argv)
{
	struct status status = {.timeout_ns = 5 * GX_NSEC_PER_SEC};
	struct rpc_client *client = NULL;
	struct gx_buf errors;
	int code, r;

	gfs_tool_init(&status.tool, env, "status", help);
	code = parse_options(argc, argv, &status);
	if (code)
		return code;
	gx_buf_init(&errors, 8192);
	r = gfs_metad_new(env, status.tool.config, "gfs-status/" GX_VERSION, status.timeout_ns,
			  &errors, &client);
	if (r == 0)
		r = ask(&status, client, true, &errors, &code);
	if (r == -EPERM || r == -EACCES) { /* not an administrator */
		gx_buf_clear(&errors);
		r = ask(&status, client, false, &errors, &code);
	}
	if (r < 0) {
		if (status.json)
			printf("{\"healthy\": false, \"problem\": \"metad cannot be asked\"}\n");
		code = gfs_fail_buf("status", &errors, r);
	}
	gfs_metad_leave(env, client);
	gx_buf_fini(&errors);
	return code;
}
