/*
 * gfs df - room on the storage nodes, each and all together, as their last heartbeats said.
 */
#include "client/tools/gfs_metad.h"
#include "client/tools/gfs_print.h"
#include "client/tools/gfs_tool.h"
#include "common/gx_num.h"

static const char help[] =
	"Usage: gfs df [OPTION]...\n"
	"Shows how much room the storage nodes have. What is reserved for a node's own work\n"
	"is not free; a node that is down has nothing to offer and does not count.\n\n"
	"Options:\n"
	"  -b, --bytes        exact numbers\n"
	"      --json         one JSON object\n"
	"  -W, --timeout TIME give up after this long (5s)\n" GFS_COMMON_HELP;

struct df {
	struct gfs_tool tool;
	int64_t timeout_ns;
	bool bytes, json;
};

/* Of all nodes that are up. */
struct total {
	uint64_t capacity, free;
	size_t up, nodes;
};

static int parse_options(int argc, char **argv, struct df *df)
{
	static const struct option longs[] = {
		{"bytes", no_argument, NULL, 'b'},
		{"json", no_argument, NULL, GFS_OPT_OWN},
		{"timeout", required_argument, NULL, 'W'},
		GFS_COMMON_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = gfs_tool_getopt(&df->tool, argc, argv, "bW:", longs)) != -1) {
		switch (c) {
		case 'b':
			df->bytes = true;
			break;
		case GFS_OPT_OWN:
			df->json = true;
			break;
		case 'W':
			if (gx_parse_duration(optarg, &df->timeout_ns) < 0 || df->timeout_ns == 0)
				return gfs_tool_usage(&df->tool,
						      "--timeout %s: wants a time like 5s", optarg);
			break;
		default:
			return GFS_EXIT_USAGE;
		}
	}
	return optind == argc ? 0 : gfs_tool_usage(&df->tool, "wants no argument");
}

static bool stores(const PbMeta__Node *node)
{
	return strcmp(node->kind, "fsd") == 0;
}

static struct total add_up(const PbMeta__StatusReply *status)
{
	struct total total = {0};

	for (size_t i = 0; i < status->n_nodes; i++) {
		const PbMeta__Node *node = status->nodes[i];

		total.nodes += stores(node);
		if (!stores(node) || !node->up)
			continue;
		total.up++;
		total.capacity += node->capacity_bytes;
		total.free += node->free_bytes;
	}
	return total;
}

/* -- as text ----------------------------------------------------------------------------------- */

static void print_sizes(const struct df *df, uint64_t capacity, uint64_t free)
{
	uint64_t numbers[] = {capacity, capacity - free, free};
	char text[32];

	for (size_t i = 0; i < GX_COUNT_OF(numbers); i++) {
		if (df->bytes)
			GX_IGNORE(gx_format(text, sizeof(text), "%llu", /* fits */
					    (unsigned long long)numbers[i]));
		else
			gfs_size_text(numbers[i], text);
		printf("  %*s", df->bytes ? 16 : 6, text);
	}
	if (capacity > 0)
		printf("  %3.0f%%", (double)(capacity - free) * 100 / (double)capacity);
	else
		printf("     -");
}

static void print_cell(const struct df *df, const char *text, int width)
{
	int columns = (int)gfs_name_columns(text);

	gfs_tool_print(&df->tool, text);
	printf("%*s", GX_MAX(width - columns, 0) + 2, "");
}

static void print_text(const struct df *df, const PbMeta__StatusReply *status)
{
	struct total total = add_up(status);
	int width = df->bytes ? 16 : 6;

	printf("%-16s  %-12s  %-5s  %*s  %*s  %*s  %4s\n", "NODE", "HOST", "STATE", width, "SIZE",
	       width, "USED", width, "FREE", "USE");
	for (size_t i = 0; i < status->n_nodes; i++) {
		const PbMeta__Node *node = status->nodes[i];

		if (!stores(node))
			continue;
		print_cell(df, node->name, 16);
		print_cell(df, node->host, 12);
		printf("%-5s", node->up ? "up" : "DOWN");
		print_sizes(df, node->capacity_bytes, node->free_bytes);
		printf("\n");
	}
	printf("%-16s  %-12s  %-5s", "total", "", "");
	print_sizes(df, total.capacity, total.free);
	printf("\n");
	if (total.nodes == 0)
		printf("There are no storage nodes, so files can have 8 KiB at most.\n");
	else if (total.up < total.nodes)
		printf("%zu of %zu nodes down\n", total.nodes - total.up, total.nodes);
}

/* -- as JSON ----------------------------------------------------------------------------------- */

static void json_sizes(uint64_t capacity, uint64_t free)
{
	printf("\"capacity_bytes\": %llu, \"used_bytes\": %llu, \"free_bytes\": %llu",
	       (unsigned long long)capacity, (unsigned long long)(capacity - free),
	       (unsigned long long)free);
}

static void print_json(const PbMeta__StatusReply *status)
{
	struct total total = add_up(status);
	const char *comma = "";

	printf("{");
	json_sizes(total.capacity, total.free);
	printf(", \"inodes\": %llu, \"inline_bytes\": %llu, \"nodes\": [",
	       (unsigned long long)status->inodes, (unsigned long long)status->inline_bytes);
	for (size_t i = 0; i < status->n_nodes; i++) {
		const PbMeta__Node *node = status->nodes[i];

		if (!stores(node))
			continue;
		printf("%s{\"name\": ", comma);
		gfs_json_string(stdout, node->name);
		printf(", \"host\": ");
		gfs_json_string(stdout, node->host);
		printf(", \"up\": %s, ", node->up ? "true" : "false");
		json_sizes(node->capacity_bytes, node->free_bytes);
		printf("}");
		comma = ", ";
	}
	printf("]}\n");
}

int gfs_df_main(struct gx_env *env, int argc, char **argv)
{
	struct df df = {.timeout_ns = 5 * GX_NSEC_PER_SEC};
	const PbMeta__StatusReply *status;
	struct rpc_client *client = NULL;
	struct rpc_reply reply;
	struct gx_buf errors;
	int code, r;

	gfs_tool_init(&df.tool, env, "df", help);
	code = parse_options(argc, argv, &df);
	if (code)
		return code;
	gx_buf_init(&errors, 8192);
	rpc_reply_init(&reply);
	r = gfs_metad_new(env, df.tool.config, "gfs-df/" GX_VERSION, df.timeout_ns, &errors,
			  &client);
	if (r == 0)
		r = gfs_metad_status(client, false, &errors, &reply, &status);
	if (r < 0)
		code = gfs_fail_buf("df", &errors, r);
	else if (df.json)
		print_json(status);
	else
		print_text(&df, status);
	rpc_reply_fini(&reply);
	gfs_metad_leave(env, client);
	gx_buf_fini(&errors);
	return code;
}
