/*
 * data_node.h - a real fsd in a process of its own, for tests of its clients: it can be killed,
 * stopped like a hung machine, and lose what it had not synced.
 *
 * The process is the test program itself, started again; its main() gives way:
 *
 *	if (data_node_is(argc, argv))
 *		return data_node_main(argv);
 *
 * The node has one spool in a scratch directory, a unix socket there and a port of 127.0.0.1, which
 * stay the same over its lives. It has no metad: the test makes the tickets. What goes wrong inside
 * the fixture aborts the program with a message.
 */
#ifndef DATA_NODE_H
#define DATA_NODE_H

#include "rpc/rpc_client.h"
#include "rpc/rpc_file_ticket.h"
#include <sys/types.h>

struct data_node {
	struct gx_env *env;
	char name[GX_NAME_USER_MAX + 1];
	char host[GX_NAME_USER_MAX + 1];
	char dir[64];
	unsigned char secret[RPC_KEY_BYTES];
	unsigned char node_key[RPC_KEY_BYTES];
	unsigned port; /* 0: not known yet */
	uint64_t boot;
	uint64_t reserved; /* bytes of the disk it must not use; for -ENOSPC */
	pid_t pid;         /* 0: down */
};

bool data_node_is(int argc, char **argv);
int data_node_main(char **argv);

/* Nothing runs yet. */
void data_node_init(struct data_node *node, const char *name, const char *host);
void data_node_fini(struct data_node *node);
/* Returns when it listens. */
void data_node_up(struct data_node *node);
/* kill -9, and it is gone when this returns. */
void data_node_kill(struct data_node *node);
/* SIGSTOP and SIGCONT. */
void data_node_stop(struct data_node *node);
void data_node_go_on(struct data_node *node);
/* What is in the spool now is what is on disk. */
void data_node_save(struct data_node *node);
/* A power cut: down, with the spool as it was saved and another boot id. */
void data_node_power_cut(struct data_node *node);

/* "plain:127.0.0.1:PORT", or the unix socket's. */
void data_node_address(const struct data_node *node, bool near, char text[GX_ADDR_TEXT_MAX]);
/* The file with the object's bytes. */
void data_node_path(const struct data_node *node, uint64_t ino, uint64_t generation,
		    char path[GX_PATH_MAX]);
/* Changes one bit of it, behind everybody's back. */
void data_node_flip(const struct data_node *node, uint64_t ino, uint64_t generation,
		    uint64_t offset);
/* Removes it, while the node is down. */
void data_node_lose(const struct data_node *node, uint64_t ino, uint64_t generation);

/* A session ticket as metad makes them. */
void data_node_session(const struct data_node *node, uint64_t session, char text[GX_IDENTITY_MAX],
		       unsigned char ret_key[RPC_KEY_BYTES]);

#endif
