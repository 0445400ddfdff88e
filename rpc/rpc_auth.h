/*
 * rpc_auth.h - who may connect: from an identity text to a key and a peer.
 *
 * A server has an `rpc_auth`: a key table (metad: all users and hosts), or a
 * node key that makes it accept session tickets (fsd, rpcd), or both. The two
 * handshakes, HMAC (rpc_handshake.h) and TLS-PSK (rpc_tls.h), ask the same
 * rpc_auth_find(), so they accept and refuse the same peers for the same
 * reasons.
 */
#ifndef RPC_AUTH_H
#define RPC_AUTH_H

#include "rpc/rpc_key.h"
#include "rpc/rpc_ticket.h"

/* Who is at the other end, once proven. */
struct rpc_peer {
	enum rpc_identity_kind kind;         /* USER or HOST; a ticket speaks for its user */
	char identity[GX_NAME_USER_MAX + 8]; /* "user:alice" */
	bool admin;
	int64_t expires_ns; /* wall clock: when the key or ticket ends (with the skew); 0: never */
	bool by_ticket;
	uint64_t ticket_session; /* by_ticket: the only session it may use */
	uint64_t ticket_epoch;
};

struct rpc_auth {
	struct gx_env *env;
	struct rpc_keytab *keys; /* borrowed; NULL: no users and hosts */
	const char *node;        /* own name, for tickets; NULL: tickets are not accepted */
	unsigned char node_key[RPC_KEY_BYTES];
	int64_t skew_ns; /* how far a ticket's expiry may be exceeded (rule N13) */
};

/*
 * The key and peer behind an identity. -EKEYREJECTED with *ret_reason, a
 * static text for our log only: the peer is just told "authentication failed".
 */
GX_MUST_CHECK int rpc_auth_find(const struct rpc_auth *auth, const char *identity,
				struct rpc_peer *ret_peer, unsigned char ret_key[RPC_KEY_BYTES],
				const char **ret_reason);

/* An open connection ends with its key or ticket. The reason, a static text; NULL: still good. */
const char *rpc_peer_expired(const struct rpc_peer *peer, struct gx_env *env);

/* HMAC-SHA256(key, label || 0 || data). -EIO if the library fails. */
GX_MUST_CHECK int rpc_auth_mac(const unsigned char key[RPC_KEY_BYTES], const char *label,
			       const void *data, size_t bytes, unsigned char ret_mac[32]);

#endif
