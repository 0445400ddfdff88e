/*
 * rpc_ticket.h - session tickets for data connections (rule S1).
 *
 * fsd and rpcd never ask metad about a connection. metad shares one key with
 * each node; it hands the client a ticket (who, which session, which node,
 * until when) and K = HMAC(node key, ticket). The client uses the ticket as
 * its identity and K as its key; the node, seeing the ticket, computes the
 * same K. So a ticket seen by someone else is worthless without K, and a node
 * can forge nothing for another node, whose key it does not have.
 */
#ifndef RPC_TICKET_H
#define RPC_TICKET_H

#include "rpc/rpc_key.h"

struct rpc_ticket {
	char identity[GX_NAME_USER_MAX + 8]; /* on whose behalf: "user:alice" */
	char node[GX_NAME_USER_MAX + 1];     /* the only node that may accept it */
	uint64_t session;
	uint64_t epoch;     /* metad's start epoch (rule N3) */
	int64_t expires_ns; /* wall clock */
};

/* "ticket:<hex>"; always fits. */
void rpc_ticket_format(const struct rpc_ticket *ticket, char text[GX_IDENTITY_MAX]);
/* -EINVAL for anything that rpc_ticket_format() would not have written. */
GX_MUST_CHECK int rpc_ticket_parse(const char *text, struct rpc_ticket *ret_ticket);
/* K for this ticket text under a node's key. */
GX_MUST_CHECK int rpc_ticket_key(const char *text, const unsigned char node_key[RPC_KEY_BYTES],
				 unsigned char ret_key[RPC_KEY_BYTES]);

#endif
