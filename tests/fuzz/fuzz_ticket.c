/*
 * Tickets from a peer. The first byte chooses: even, the rest is a file ticket as it came; odd, the
 * rest is the text of a session ticket. A file ticket is opened as it is, and once more with its
 * seal made right, as if the fuzzer had the key; a session ticket that parses must be the only text
 * of its content.
 */
#include "rpc/rpc_auth.h"
#include "rpc/rpc_file_ticket.h"

#define SEAL_BYTES 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const unsigned char key[RPC_KEY_BYTES] = {0x13, 0x37, 0xc0, 0xde};

static void file_ticket(const uint8_t *data, size_t bytes)
{
	unsigned char sealed[RPC_FILE_TICKET_BYTES], again[RPC_FILE_TICKET_BYTES];
	unsigned char mac[32];
	struct rpc_file_ticket ticket;
	int r;

	/* Nobody has the key. */
	gx_assert(rpc_file_ticket_open(data, bytes, key, &ticket) == -EKEYREJECTED);
	if (bytes < RPC_FILE_TICKET_BYTES - SEAL_BYTES)
		return;
	memcpy(sealed, data, RPC_FILE_TICKET_BYTES - SEAL_BYTES);
	r = rpc_auth_mac(key, "gridstage file ticket", sealed, RPC_FILE_TICKET_BYTES - SEAL_BYTES,
			 mac);
	gx_assert(r == 0);
	memcpy(sealed + sizeof(sealed) - SEAL_BYTES, mac, SEAL_BYTES);
	r = rpc_file_ticket_open(sealed, sizeof(sealed), key, &ticket);
	gx_assert(r == 0 || r == -EKEYREJECTED);
	if (r < 0)
		return;
	r = rpc_file_ticket_seal(&ticket, key, again);
	gx_assert(r == 0 && memcmp(sealed, again, sizeof(again)) == 0);
}

static void session_ticket(const uint8_t *data, size_t bytes)
{
	struct rpc_auth node = {.env = gx_env_posix(), .node = "fsd1"};
	GX_AUTOFREE char *text = malloc(bytes + 1);
	char again[GX_IDENTITY_MAX];
	unsigned char found[RPC_KEY_BYTES];
	const char *reason = NULL;
	struct rpc_ticket ticket;
	struct rpc_peer peer;
	int r;

	gx_assert(text);
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	r = rpc_ticket_parse(text, &ticket);
	gx_assert(r == 0 || r == -EINVAL);
	if (r == 0) {
		rpc_ticket_format(&ticket, again);
		gx_assert(strcmp(again, text) == 0);
	}
	memcpy(node.node_key, key, sizeof(key));
	r = rpc_auth_find(&node, text, &peer, found, &reason);
	gx_assert(r == 0 || reason);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes == 0)
		return 0;
	if (data[0] % 2 == 0)
		file_ticket(data + 1, bytes - 1);
	else
		session_ticket(data + 1, bytes - 1);
	return 0;
}
