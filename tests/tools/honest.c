/*
 * honest ADDRESS KEYFILE - pings every millisecond until standard input ends.
 *
 * One connection stays; each fiftieth ping is made by a newcomer who connects first. Prints one
 * JSON object: how many, how many failed, p50, p99 and worst. Prints "ready" after the first.
 */
#include "common/gx_hist.h"
#include "core.pb-c.h"
#include "tests/tools/peer.h"

#define RPC_SERVICE_CORE
#include "rpc/rpc_stub.h"

#define NEWCOMER_EVERY 50u

struct honest {
	struct rpc_client_options options;
	struct rpc_client *client;
	uint64_t failed;
	struct gx_hist stays, comes;
};

static int ping(struct honest *honest, struct rpc_client *client, struct gx_hist *hist)
{
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	struct rpc_call_options options = {.fail_fast = true};
	const PbCore__PingReply *message;
	struct gx_env *env = honest->options.env;
	int64_t start_ns = gx_env_now_ns(env);
	struct rpc_reply reply;
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, 4096);
	options.errors = &errors;
	options.deadline_ns = start_ns + PEER_WAIT_NS;
	r = core_call_ping(client, &request, &options, &reply, &message);
	gx_hist_add(hist, (uint64_t)(gx_env_now_ns(env) - start_ns));
	if (r < 0) {
		honest->failed++;
		fprintf(stderr, "honest: %s: %s\n", gx_strerror(r), gx_buf_text(&errors));
	}
	rpc_reply_fini(&reply);
	gx_buf_fini(&errors);
	return r;
}

static int ping_as_newcomer(struct honest *honest)
{
	struct rpc_client *client;
	int r = rpc_client_new(&honest->options, &client);

	if (r < 0)
		return r;
	r = ping(honest, client, &honest->comes);
	rpc_client_free(client);
	return r;
}

static void print_hist(const char *name, const struct gx_hist *hist)
{
	printf("\"%s\": {\"count\": %llu, \"p50_us\": %.0f, \"p99_us\": %.0f, \"max_us\": %.0f}",
	       name, (unsigned long long)hist->count, (double)gx_hist_quantile_ns(hist, 0.5) / 1e3,
	       (double)gx_hist_quantile_ns(hist, 0.99) / 1e3, (double)hist->max_ns / 1e3);
}

int main(int argc, char **argv)
{
	struct gx_env *env = gx_env_posix();
	static struct honest honest;
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	struct gx_pollfd in = {.fd = 0, .events = GX_READABLE};
	struct rpc_key key;

	if (argc != 3) {
		fprintf(stderr, "usage: honest ADDRESS KEYFILE\n");
		return 2;
	}
	honest.options = options;
	peer_arguments(env, argv[1], argv[2], &honest.options.endpoint, &key);
	honest.options.env = env;
	honest.options.identity = key.identity;
	honest.options.key = key.secret;
	gx_hist_init(&honest.stays);
	gx_hist_init(&honest.comes);
	if (rpc_client_new(&honest.options, &honest.client) < 0 ||
	    ping(&honest, honest.client, &honest.stays) < 0)
		return 1;
	printf("ready\n");
	fflush(stdout);
	for (uint64_t n = 1; gx_env_poll(env, &in, 1, gx_env_now_ns(env) + GX_NSEC_PER_MSEC) == 0;
	     n++) {
		/* Failures are counted, not fatal: the numbers at the end tell. */
		if (n % NEWCOMER_EVERY == 0)
			GX_IGNORE(ping_as_newcomer(&honest) < 0);
		else
			GX_IGNORE(ping(&honest, honest.client, &honest.stays) < 0);
	}
	printf("{\"failed\": %llu, ", (unsigned long long)honest.failed);
	print_hist("stays", &honest.stays);
	printf(", ");
	print_hist("comes", &honest.comes);
	printf("}\n");
	rpc_client_free(honest.client);
	rpc_key_clear(&key);
	return honest.failed > 0;
}
