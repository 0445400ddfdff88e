/*
 * gfs ping - round trips to any daemon: is it there, does it know me, how fast is it.
 */
#include "client/tools/gfs_tool.h"
#include "common/gx_hist.h"
#include "common/gx_num.h"
#include "common/gx_secret.h"
#include "core.pb-c.h"
#include "rpc/rpc_key.h"
#include <getopt.h>

#define RPC_SERVICE_CORE
#include "rpc/rpc_stub.h"

struct ping {
	const char *address;
	const char *key_path;
	uint64_t count;
	int64_t interval_ns;
	int64_t timeout_ns;
	bool json, quiet, insecure;
	/* Copied from the first reply. */
	char server[GX_NAME_USER_MAX + 1];
	char program[GX_NAME_USER_MAX + 1];
	char identity[GX_IDENTITY_MAX];
	char transport[16];
	uint64_t uptime_ns;
	struct gx_hist hist;
	uint64_t connect_ns; /* to connect and authenticate, the first time */
	uint64_t failed;
};

static void print_help(void)
{
	printf("Usage: gfs ping --key FILE [OPTION]... ADDRESS\n"
	       "Measures round trips to the daemon at ADDRESS: HOST:PORT or unix:/PATH,\n"
	       "optionally behind tls: or plain:. Without a prefix, TLS is used beyond this\n"
	       "machine.\n\n"
	       "Options:\n"
	       "  -k, --key FILE       who is asking; default: the environment's GFS_KEY\n"
	       "  -c, --count N        number of round trips (10)\n"
	       "  -i, --interval TIME  pause between two (100ms; 0 for none)\n"
	       "  -W, --timeout TIME   give up a round trip after this long (5s)\n"
	       "  -q, --quiet          only the summary\n"
	       "      --insecure       allow plain: beyond this machine\n"
	       "      --json           print the result as one JSON object\n"
	       "  -h, --help           print this text\n");
}

static int parse_options(int argc, char **argv, struct ping *ping)
{
	static const struct option longs[] = {
		{"key", required_argument, NULL, 'k'},
		{"count", required_argument, NULL, 'c'},
		{"interval", required_argument, NULL, 'i'},
		{"timeout", required_argument, NULL, 'W'},
		{"quiet", no_argument, NULL, 'q'},
		{"insecure", no_argument, NULL, 'I'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "k:c:i:W:qh", longs, NULL)) != -1) {
		switch (c) {
		case 'k':
			ping->key_path = optarg;
			break;
		case 'c':
			if (gx_parse_u64(optarg, &ping->count) < 0 || ping->count == 0)
				return gfs_fail("ping", GFS_EXIT_USAGE,
						"--count %s: wants a number from 1", optarg);
			break;
		case 'i':
			if (gx_parse_duration(optarg, &ping->interval_ns) < 0)
				return gfs_fail("ping", GFS_EXIT_USAGE,
						"--interval %s: wants a time like 100ms", optarg);
			break;
		case 'W':
			if (gx_parse_duration(optarg, &ping->timeout_ns) < 0 ||
			    ping->timeout_ns == 0)
				return gfs_fail("ping", GFS_EXIT_USAGE,
						"--timeout %s: wants a time like 5s", optarg);
			break;
		case 'q':
			ping->quiet = true;
			break;
		case 'I':
			ping->insecure = true;
			break;
		case 'j':
			ping->json = true;
			break;
		case 'h':
			print_help();
			exit(GFS_EXIT_OK);
		default:
			fprintf(stderr, "Try: gfs ping --help\n");
			return GFS_EXIT_USAGE;
		}
	}
	if (optind != argc - 1)
		return gfs_fail("ping", GFS_EXIT_USAGE, "wants one ADDRESS. Try: gfs ping --help");
	ping->address = argv[optind];
	if (!ping->key_path)
		ping->key_path = getenv("GFS_KEY");
	if (!ping->key_path)
		return gfs_fail("ping", GFS_EXIT_USAGE,
				"--key FILE says who is asking (made with: gfs key new)");
	return 0;
}

static void keep_reply(struct ping *ping, const PbCore__PingReply *reply)
{
	/* Longer texts are cut: they are only shown. */
	(void)gx_format(ping->server, sizeof(ping->server), "%s", reply->server);
	(void)gx_format(ping->program, sizeof(ping->program), "%s", reply->program);
	(void)gx_format(ping->identity, sizeof(ping->identity), "%s", reply->identity);
	(void)gx_format(ping->transport, sizeof(ping->transport), "%s", reply->transport);
	ping->uptime_ns = reply->uptime_ns;
}

/* Connects before the clock runs, so that a round trip is only that. */
static int ping_connect(struct gx_env *env, struct rpc_client *client, struct ping *ping,
			struct gx_buf *errors)
{
	int64_t start_ns = gx_env_now_ns(env);
	struct rpc_chan *chan;
	int r = rpc_client_borrow(client, start_ns + ping->timeout_ns, errors, &chan);

	if (r < 0)
		return r;
	rpc_client_return(client, chan);
	if (ping->connect_ns == 0)
		ping->connect_ns = (uint64_t)(gx_env_now_ns(env) - start_ns);
	return 0;
}

static int ping_once(struct gx_env *env, struct rpc_client *client, struct ping *ping, uint64_t n)
{
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	const PbCore__PingReply *message;
	struct rpc_call_options options = {.fail_fast = true};
	struct rpc_reply reply;
	struct gx_buf errors;
	int64_t start_ns;
	int r;

	gx_buf_init(&errors, 4096);
	rpc_reply_init(&reply);
	options.errors = &errors;
	request.stamp = n;
	r = ping_connect(env, client, ping, &errors);
	start_ns = gx_env_now_ns(env);
	options.deadline_ns = start_ns + ping->timeout_ns;
	if (r == 0)
		r = core_call_ping(client, &request, &options, &reply, &message);
	if (r == 0 && message->stamp != n)
		r = -EPROTO;
	if (r == 0) {
		uint64_t took_ns = (uint64_t)(gx_env_now_ns(env) - start_ns);

		gx_hist_add(&ping->hist, took_ns);
		keep_reply(ping, message);
		if (!ping->quiet && !ping->json)
			printf("reply %llu from %s (%s): %.1f us\n", (unsigned long long)n,
			       ping->server, ping->transport, (double)took_ns / 1000);
	} else {
		ping->failed++;
		gfs_fail_buf("ping", &errors, r);
	}
	rpc_reply_fini(&reply);
	gx_buf_fini(&errors);
	return r;
}

static void print_summary(const struct ping *ping)
{
	const struct gx_hist *h = &ping->hist;
	double p50 = (double)gx_hist_quantile_ns(h, 0.5) / 1000;
	double p99 = (double)gx_hist_quantile_ns(h, 0.99) / 1000;
	double least = h->count ? (double)h->min_ns / 1000 : 0;
	double most = (double)h->max_ns / 1000;

	if (ping->json) {
		printf("{\"address\": ");
		gfs_json_string(stdout, ping->address);
		printf(", \"server\": ");
		gfs_json_string(stdout, ping->server);
		printf(", \"program\": ");
		gfs_json_string(stdout, ping->program);
		printf(", \"identity\": ");
		gfs_json_string(stdout, ping->identity);
		printf(", \"transport\": ");
		gfs_json_string(stdout, ping->transport);
		printf(", \"uptime_s\": %.3f, \"connect_us\": %.1f, \"sent\": %llu, "
		       "\"received\": %llu, \"min_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
		       "\"max_us\": %.1f}\n",
		       (double)ping->uptime_ns / 1e9, (double)ping->connect_ns / 1000,
		       (unsigned long long)(h->count + ping->failed), (unsigned long long)h->count,
		       least, p50, p99, most);
		return;
	}
	if (h->count == 0) {
		printf("%llu sent, 0 received\n", (unsigned long long)ping->failed);
		return;
	}
	printf("%s: %s over %s, you are %s, connected in %.1f us\n", ping->server, ping->program,
	       ping->transport, ping->identity, (double)ping->connect_ns / 1000);
	printf("%llu sent, %llu received, min/p50/p99/max %.1f/%.1f/%.1f/%.1f us\n",
	       (unsigned long long)(h->count + ping->failed), (unsigned long long)h->count, least,
	       p50, p99, most);
}

static int ping_all(struct gx_env *env, struct rpc_client *client, struct ping *ping)
{
	for (uint64_t n = 1; n <= ping->count; n++) {
		int r = ping_once(env, client, ping, n);

		/* A refusal stays a refusal; a daemon that is away may come back. */
		if (r == -EKEYREJECTED || r == -EPROTO || r == -EPROTONOSUPPORT)
			break;
		if (n < ping->count && ping->interval_ns > 0)
			gx_env_sleep_until(env, gx_env_now_ns(env) + ping->interval_ns);
	}
	print_summary(ping);
	return ping->failed == 0 ? GFS_EXIT_OK : GFS_EXIT_FAILED;
}

int gfs_ping_main(struct gx_env *env, int argc, char **argv)
{
	struct ping ping = {
		.count = 10,
		.interval_ns = 100 * GX_NSEC_PER_MSEC,
		.timeout_ns = 5 * GX_NSEC_PER_SEC,
	};
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	GX_CLEANUP(rpc_client_freep) struct rpc_client *client = NULL;
	struct rpc_key key;
	struct gx_buf errors;
	int code, r;

	code = parse_options(argc, argv, &ping);
	if (code)
		return code;
	gx_hist_init(&ping.hist);
	gx_buf_init(&errors, 4096);
	r = rpc_endpoint_parse(env, ping.address, ping.insecure, &options.endpoint, &errors);
	if (r == 0)
		r = rpc_key_load(env, ping.key_path, &key, &errors);
	if (r < 0) {
		code = gfs_fail_buf("ping", &errors, r);
		gx_buf_fini(&errors);
		return code;
	}
	options.env = env;
	options.identity = key.identity;
	options.key = key.secret;
	options.program = "gfs-ping/" GX_VERSION;
	r = rpc_client_new(&options, &client);
	rpc_key_clear(&key);
	gx_buf_fini(&errors);
	if (r < 0)
		return gfs_fail("ping", GFS_EXIT_FAILED, "%s", gx_strerror(r));
	return ping_all(env, client, &ping);
}
