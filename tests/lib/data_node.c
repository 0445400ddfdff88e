#include "tests/lib/data_node.h"
#include "common/gx_num.h"
#include "fsd/fsd_server.h"
#include "rpc/rpc_ticket.h"
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOUR_NS (3600 * GX_NSEC_PER_SEC)
#define ARG "--data-node"

extern char **environ;

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "data_node: %s: %s\n", what, gx_strerror(r));
	abort();
}

/* -- the process ----------------------------------------------------------------------------------
 */

bool data_node_is(int argc, char **argv)
{
	return argc > 1 && strcmp(argv[1], ARG) == 0;
}

static void listen_on(struct fsd_server *server, struct gx_env *env, const char *text,
		      struct rpc_endpoint *ret_bound)
{
	struct rpc_endpoint endpoint;

	must(rpc_endpoint_parse(env, text, false, &endpoint, NULL), text);
	must(fsd_server_listen(server, &endpoint, ret_bound), text);
}

static void read_secret(struct gx_env *env, const char *dir, unsigned char *secret)
{
	char path[GX_PATH_MAX];
	int fd;

	must(gx_format(path, sizeof(path), "%s/secret", dir), "path");
	fd = gx_env_open(env, path, O_RDONLY, 0);
	must(fd, path);
	must(gx_env_pread(env, fd, secret, RPC_KEY_BYTES, 0) == RPC_KEY_BYTES ? 0 : -EIO, path);
	gx_env_close(env, fd);
}

/* ARG name host dir port boot reserved. */
int data_node_main(char **argv)
{
	struct fsd_server_options options = FSD_SERVER_OPTIONS_INIT;
	struct rpc_key key = {.kind = RPC_IDENTITY_HOST};
	char spool[GX_PATH_MAX], text[GX_ADDR_TEXT_MAX];
	const char *spools[] = {spool};
	struct rpc_endpoint bound;
	struct fsd_server *server;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == 1)
		return 1;
	options.env = gx_env_posix();
	must(gx_format(key.identity, sizeof(key.identity), "host:%s", argv[2]), "name");
	read_secret(options.env, argv[4], key.secret);
	must(gx_format(spool, sizeof(spool), "%s/spool", argv[4]), "spool");
	must(gx_loop_new(options.env, &options.loop), "loop");
	options.name = argv[2];
	options.host = argv[3];
	options.spools = spools;
	options.spool_count = 1;
	options.make_spools = true;
	options.key = &key;
	must(gx_parse_u64(argv[6], &options.boot), "boot");
	must(gx_parse_u64(argv[7], &options.reserved_bytes), "reserved");
	/* Only DataSync syncs: tests say what a power cut leaves. */
	options.sync_after_ns = HOUR_NS;
	must(fsd_server_new(&options, &server), "server");
	must(gx_format(text, sizeof(text), "unix:%s/socket", argv[4]), "address");
	listen_on(server, options.env, text, &bound);
	must(gx_format(text, sizeof(text), "plain:127.0.0.1:%s", argv[5]), "address");
	listen_on(server, options.env, text, &bound);
	must(fsd_server_start(server), "start");
	rpc_endpoint_format(&bound, text);
	printf("%s\n", strrchr(text, ':') + 1);
	fflush(stdout);
	return gx_loop_run(options.loop) < 0;
}

/* -- life -----------------------------------------------------------------------------------------
 */

static void path_in(const struct data_node *node, const char *name, char path[GX_PATH_MAX])
{
	must(gx_format(path, GX_PATH_MAX, "%s/%s", node->dir, name), "path");
}

void data_node_init(struct data_node *node, const char *name, const char *host)
{
	char path[GX_PATH_MAX];
	struct iovec iov;
	int fd;

	memset(node, 0, sizeof(*node));
	node->env = gx_env_posix();
	node->boot = 0xb001;
	must(gx_strcpy(node->name, sizeof(node->name), name), "name");
	must(gx_strcpy(node->host, sizeof(node->host), host), "host");
	must(gx_format(node->dir, sizeof(node->dir), "/tmp/gfd.XXXXXX"), "scratch");
	if (!mkdtemp(node->dir))
		must(gx_errno(), node->dir);
	path_in(node, "spool", path);
	must(gx_env_mkdir(node->env, path, 0700), path);
	must(gx_env_random(node->env, node->secret, sizeof(node->secret)), "key");
	must(rpc_node_key(node->secret, node->node_key), "node key");
	path_in(node, "secret", path);
	fd = gx_env_open(node->env, path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	must(fd, path);
	iov = (struct iovec){node->secret, sizeof(node->secret)};
	must((int)gx_env_pwritev(node->env, fd, &iov, 1, 0), path);
	gx_env_close(node->env, fd);
}

static int remove_one(const char *path, const struct stat *st GX_UNUSED, int flag GX_UNUSED,
		      struct FTW *ftw GX_UNUSED)
{
	return remove(path);
}

static void remove_tree(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void data_node_fini(struct data_node *node)
{
	data_node_kill(node);
	remove_tree(node->dir);
}

static void run(struct data_node *node, int out, const char *const *argv)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;

	must(-posix_spawn_file_actions_init(&actions), "spawn");
	must(-posix_spawn_file_actions_adddup2(&actions, out, 1), "spawn");
	must(-posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char **)(uintptr_t)argv,
			  environ),
	     "spawn");
	posix_spawn_file_actions_destroy(&actions);
	node->pid = pid;
}

void data_node_up(struct data_node *node)
{
	char port[16], boot[32], reserved[32], said[16] = "";
	const char *argv[] = {"data-node", ARG,  node->name, node->host, node->dir,
			      port,        boot, reserved,   NULL};
	size_t have = 0;
	uint64_t bound;
	int out[2];

	must(gx_format(port, sizeof(port), "%u", node->port), "port");
	must(gx_format(boot, sizeof(boot), "%llu", (unsigned long long)node->boot), "boot");
	must(gx_format(reserved, sizeof(reserved), "%llu", (unsigned long long)node->reserved),
	     "reserved");
	if (pipe2(out, O_CLOEXEC) < 0)
		must(gx_errno(), "pipe");
	run(node, out[1], argv);
	close(out[1]);
	while (!strchr(said, '\n')) {
		ssize_t n = read(out[0], said + have, sizeof(said) - 1 - have);

		must(n > 0 ? 0 : -EIO, "the node did not start");
		have += (size_t)n;
		said[have] = '\0';
	}
	close(out[0]);
	*strchr(said, '\n') = '\0';
	must(gx_parse_u64(said, &bound), "port");
	node->port = (unsigned)bound;
}

void data_node_kill(struct data_node *node)
{
	if (node->pid == 0)
		return;
	kill(node->pid, SIGKILL);
	waitpid(node->pid, NULL, 0);
	node->pid = 0;
}

void data_node_stop(struct data_node *node)
{
	int status;

	kill(node->pid, SIGSTOP);
	waitpid(node->pid, &status, WUNTRACED);
}

void data_node_go_on(struct data_node *node)
{
	kill(node->pid, SIGCONT);
}

/* -- its disk -------------------------------------------------------------------------------------
 */

static void copy_tree(const struct data_node *node, const char *from, const char *to)
{
	char source[GX_PATH_MAX], target[GX_PATH_MAX];
	const char *argv[] = {"cp", "-a", source, target, NULL};
	int status;
	pid_t pid;

	path_in(node, from, source);
	path_in(node, to, target);
	remove_tree(target);
	must(-posix_spawnp(&pid, "cp", NULL, NULL, (char **)(uintptr_t)argv, environ), "cp");
	waitpid(pid, &status, 0);
	must(status == 0 ? 0 : -EIO, "cp");
}

void data_node_save(struct data_node *node)
{
	copy_tree(node, "spool", "saved");
}

void data_node_power_cut(struct data_node *node)
{
	data_node_kill(node);
	copy_tree(node, "saved", "spool");
	node->boot++;
}

void data_node_path(const struct data_node *node, uint64_t ino, uint64_t generation,
		    char path[GX_PATH_MAX])
{
	must(gx_format(path, GX_PATH_MAX, "%s/spool/objects/%02x/%02x/%016llx.%016llx", node->dir,
		       (unsigned)(ino >> 16 & 0xff), (unsigned)(ino >> 8 & 0xff),
		       (unsigned long long)ino, (unsigned long long)generation),
	     "path");
}

void data_node_flip(const struct data_node *node, uint64_t ino, uint64_t generation,
		    uint64_t offset)
{
	char path[GX_PATH_MAX];
	uint8_t byte;
	int fd;

	data_node_path(node, ino, generation, path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		must(gx_errno(), path);
	must(pread(fd, &byte, 1, (off_t)offset) == 1 ? 0 : -EIO, path);
	byte ^= 4;
	must(pwrite(fd, &byte, 1, (off_t)offset) == 1 ? 0 : -EIO, path);
	close(fd);
}

void data_node_lose(const struct data_node *node, uint64_t ino, uint64_t generation)
{
	static const char *const names[] = {"", ".sum", ".new"};
	char path[GX_PATH_MAX], full[GX_PATH_MAX];

	data_node_path(node, ino, generation, path);
	for (size_t i = 0; i < GX_COUNT_OF(names); i++) {
		must(gx_format(full, sizeof(full), "%s%s", path, names[i]), "path");
		GX_IGNORE(remove(full)); /* one of the last two is not there */
	}
}

/* -- reaching it ----------------------------------------------------------------------------------
 */

void data_node_address(const struct data_node *node, bool near, char text[GX_ADDR_TEXT_MAX])
{
	if (near)
		must(gx_format(text, GX_ADDR_TEXT_MAX, "unix:%s/socket", node->dir), "address");
	else
		must(gx_format(text, GX_ADDR_TEXT_MAX, "plain:127.0.0.1:%u", node->port),
		     "address");
}

void data_node_session(const struct data_node *node, uint64_t session, char text[GX_IDENTITY_MAX],
		       unsigned char ret_key[RPC_KEY_BYTES])
{
	struct rpc_ticket ticket = {
		.session = session, .epoch = 1, .expires_ns = gx_env_wall_ns(node->env) + HOUR_NS};

	must(gx_strcpy(ticket.identity, sizeof(ticket.identity), "user:alice"), "identity");
	must(gx_strcpy(ticket.node, sizeof(ticket.node), node->name), "node");
	rpc_ticket_format(&ticket, text);
	must(rpc_ticket_key(text, node->node_key, ret_key), "ticket");
}
