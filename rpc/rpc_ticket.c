#include "rpc/rpc_ticket.h"
#include "common/gx_num.h"
#include "rpc/rpc_auth.h"

#define PREFIX "ticket:"
#define TICKET_VERSION 1
/* version, session, epoch, expiry, two lengths */
#define FIXED_BYTES (1 + 8 + 8 + 8 + 1 + 1)
#define TICKET_BYTES_MAX (FIXED_BYTES + GX_NAME_USER_MAX + 8 + GX_NAME_USER_MAX)

_Static_assert(sizeof(PREFIX) + 2 * TICKET_BYTES_MAX <= GX_IDENTITY_MAX, "a ticket fits");

void rpc_ticket_format(const struct rpc_ticket *ticket, char text[GX_IDENTITY_MAX])
{
	unsigned char bytes[TICKET_BYTES_MAX];
	size_t identity_bytes = strlen(ticket->identity);
	size_t node_bytes = strlen(ticket->node);
	unsigned char *p = bytes;

	*p++ = TICKET_VERSION;
	gx_put_le64(p, ticket->session);
	gx_put_le64(p + 8, ticket->epoch);
	gx_put_le64(p + 16, (uint64_t)ticket->expires_ns);
	p += 24;
	*p++ = (unsigned char)identity_bytes;
	*p++ = (unsigned char)node_bytes;
	memcpy(p, ticket->identity, identity_bytes);
	memcpy(p + identity_bytes, ticket->node, node_bytes);
	p += identity_bytes + node_bytes;
	memcpy(text, PREFIX, sizeof(PREFIX));
	gx_hex_encode(bytes, (size_t)(p - bytes), text + strlen(PREFIX));
}

int rpc_ticket_parse(const char *text, struct rpc_ticket *ret_ticket)
{
	unsigned char bytes[TICKET_BYTES_MAX];
	struct rpc_ticket ticket = {.session = 0};
	enum rpc_identity_kind kind;
	size_t count, identity_bytes, node_bytes;
	char again[GX_IDENTITY_MAX];
	const char *hex = text + strlen(PREFIX);

	if (strncmp(text, PREFIX, strlen(PREFIX)) != 0)
		return -EINVAL;
	count = strlen(hex) / 2;
	if (count < FIXED_BYTES || count > sizeof(bytes) || gx_hex_decode(hex, bytes, count) < 0)
		return -EINVAL;
	identity_bytes = bytes[25];
	node_bytes = bytes[26];
	if (bytes[0] != TICKET_VERSION || count != FIXED_BYTES + identity_bytes + node_bytes ||
	    identity_bytes >= sizeof(ticket.identity) || node_bytes >= sizeof(ticket.node) ||
	    node_bytes == 0)
		return -EINVAL;
	ticket.session = gx_get_le64(bytes + 1);
	ticket.epoch = gx_get_le64(bytes + 9);
	ticket.expires_ns = (int64_t)gx_get_le64(bytes + 17);
	memcpy(ticket.identity, bytes + FIXED_BYTES, identity_bytes);
	memcpy(ticket.node, bytes + FIXED_BYTES + identity_bytes, node_bytes);
	if (strlen(ticket.identity) != identity_bytes || strlen(ticket.node) != node_bytes ||
	    rpc_identity_parse(ticket.identity, &kind) < 0)
		return -EINVAL;
	/* One ticket has one text: upper-case digits would be a second one. */
	rpc_ticket_format(&ticket, again);
	if (strcmp(again, text) != 0)
		return -EINVAL;
	*ret_ticket = ticket;
	return 0;
}

int rpc_ticket_key(const char *text, const unsigned char node_key[RPC_KEY_BYTES],
		   unsigned char ret_key[RPC_KEY_BYTES])
{
	return rpc_auth_mac(node_key, "gridstage ticket", text, strlen(text), ret_key);
}
