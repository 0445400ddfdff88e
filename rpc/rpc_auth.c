#include "rpc/rpc_auth.h"
#include "common/gx_secret.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>

int rpc_auth_mac(const unsigned char key[RPC_KEY_BYTES], const char *label, const void *data,
		 size_t bytes, unsigned char ret_mac[32])
{
	/* Every input we mac is short: a ticket or the two handshake messages. */
	unsigned char input[64 + GX_IDENTITY_MAX + 4 * GX_HELLO_MAX];
	size_t label_bytes = strlen(label) + 1;
	unsigned mac_bytes = 0;
	bool ok;

	gx_assert(label_bytes <= 64);
	if (bytes > sizeof(input) - label_bytes)
		return -E2BIG;
	memcpy(input, label, label_bytes);
	memcpy(input + label_bytes, data, bytes);
	ok = HMAC(EVP_sha256(), key, (int)RPC_KEY_BYTES, input, label_bytes + bytes, ret_mac,
		  &mac_bytes) != NULL;
	gx_wipe(input, label_bytes + bytes);
	return ok && mac_bytes == 32 ? 0 : -EIO;
}

static int refuse(const char *why, const char **ret_reason)
{
	*ret_reason = why;
	return -EKEYREJECTED;
}

static int find_ticket(const struct rpc_auth *auth, const char *identity, struct rpc_peer *ret_peer,
		       unsigned char ret_key[RPC_KEY_BYTES], const char **ret_reason)
{
	struct rpc_ticket ticket;
	struct rpc_peer peer = {.by_ticket = true};
	int r;

	if (!auth->node)
		return refuse("tickets are not accepted here", ret_reason);
	if (rpc_ticket_parse(identity, &ticket) < 0)
		return refuse("malformed ticket", ret_reason);
	if (strcmp(ticket.node, auth->node) != 0)
		return refuse("ticket for another node", ret_reason);
	if (gx_env_wall_ns(auth->env) - auth->skew_ns > ticket.expires_ns)
		return refuse("expired ticket", ret_reason);
	r = rpc_identity_parse(ticket.identity, &peer.kind);
	gx_assert(r == 0); /* rpc_ticket_parse() has checked it */
	r = gx_strcpy(peer.identity, sizeof(peer.identity), ticket.identity);
	gx_assert(r == 0);
	if (__builtin_add_overflow(ticket.expires_ns, auth->skew_ns, &peer.expires_ns))
		peer.expires_ns = INT64_MAX;
	peer.ticket_session = ticket.session;
	peer.ticket_epoch = ticket.epoch;
	r = rpc_ticket_key(identity, auth->node_key, ret_key);
	if (r < 0)
		return r;
	*ret_peer = peer;
	return 0;
}

int rpc_auth_find(const struct rpc_auth *auth, const char *identity, struct rpc_peer *ret_peer,
		  unsigned char ret_key[RPC_KEY_BYTES], const char **ret_reason)
{
	struct rpc_peer peer = {.kind = RPC_IDENTITY_NONE};
	const struct rpc_key *key;
	int r;

	if (strncmp(identity, "ticket:", 7) == 0)
		return find_ticket(auth, identity, ret_peer, ret_key, ret_reason);
	if (rpc_identity_parse(identity, &peer.kind) < 0)
		return refuse("malformed identity", ret_reason);
	key = auth->keys ? rpc_keytab_find(auth->keys, identity) : NULL;
	if (!key)
		return refuse(peer.kind == RPC_IDENTITY_USER ? "unknown user" : "unknown host",
			      ret_reason);
	if (key->expires_ns && gx_env_wall_ns(auth->env) > key->expires_ns)
		return refuse("expired key", ret_reason);
	r = gx_strcpy(peer.identity, sizeof(peer.identity), key->identity);
	gx_assert(r == 0);
	peer.expires_ns = key->expires_ns;
	peer.admin = key->admin;
	memcpy(ret_key, key->secret, RPC_KEY_BYTES);
	*ret_peer = peer;
	return 0;
}

const char *rpc_peer_expired(const struct rpc_peer *peer, struct gx_env *env)
{
	if (peer->expires_ns == 0 || gx_env_wall_ns(env) <= peer->expires_ns)
		return NULL;
	return peer->by_ticket ? "expired ticket" : "expired key";
}
