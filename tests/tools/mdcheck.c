/*
 * mdcheck DIR - reads the state of a metad that does not run, and checks it (md_check.h).
 *
 * DIR is a copy of metad's directory: opening it replays the log and begins a new epoch, as a start
 * does. Prints one line per problem, then "inodes N orphans N sessions N problems N"; the exit
 * status is 1 if there are problems.
 */
#include "common/gx_log.h"
#include "metad/md_check.h"
#include "metad/md_server.h"
#include <stdio.h>
#include <stdlib.h>

static void print_problem(void *arg GX_UNUSED, const char *text)
{
	printf("%s\n", text);
}

static int count_session(void *arg, uint64_t session GX_UNUSED, const char *identity GX_UNUSED)
{
	++*(unsigned *)arg;
	return 0;
}

static unsigned long long count_orphans(struct md_state *state)
{
	unsigned long long count = 0;
	uint64_t inos[64], from = 0;

	do
		count += md_state_orphans(state, &from, inos, GX_COUNT_OF(inos));
	while (from != 0);
	return count;
}

static int check(struct md_state *state)
{
	struct md_counters counters;
	unsigned sessions = 0;
	int problems = md_check(state, print_problem, NULL);

	if (problems < 0 || md_state_each_session(state, count_session, &sessions) < 0)
		return -ENOMEM;
	md_state_counters(state, &counters);
	printf("inodes %llu orphans %llu sessions %u problems %d\n",
	       (unsigned long long)counters.inodes, count_orphans(state), sessions, problems);
	return problems;
}

int main(int argc, char **argv)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;
	struct rpc_auth auth = {.env = gx_env_posix()};
	struct md_server *server = NULL;
	struct gx_loop *loop = NULL;
	struct rpc_keytab *keys = NULL;
	int r;

	if (argc != 2) {
		fputs("usage: mdcheck DIR\n", stderr);
		return 2;
	}
	options.env = auth.env;
	options.dir = argv[1];
	options.auth = &auth;
	r = gx_loop_new(options.env, &loop);
	if (r == 0)
		r = rpc_keytab_new(&keys);
	auth.keys = keys;
	options.loop = loop;
	if (r == 0)
		r = md_users_load(options.env, NULL, NULL, &options.users);
	if (r == 0)
		r = md_server_new(&options, &server);
	if (r == 0)
		r = check(md_server_state(server));
	if (r < 0)
		fprintf(stderr, "mdcheck: %s: %s\n", argv[1], gx_strerror(r));
	md_server_free(server);
	rpc_keytab_free(keys);
	gx_loop_free(loop);
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
