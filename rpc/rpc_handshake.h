/*
 * rpc_handshake.h - the first messages of a connection, as a state machine
 * without I/O, so that loop, blocking and simulated code share it.
 *
 * Plain (loopback, unix, simulation), mutual HMAC challenge:
 *	client HELLO (who, versions, features, nonce)
 *	server CHALLENGE (choice, nonce)
 *	client PROOF   mac = HMAC(K, "client" | transcript)
 *	server WELCOME mac = HMAC(K, "server" | transcript | WELCOME without its mac)
 * transcript = HELLO | CHALLENGE | client address | server address. So a
 * replayed proof meets a new nonce, a changed version or feature word breaks
 * the mac (no downgrade), a mac reflected to its sender has the wrong role,
 * and a relay through another port has other addresses (rule S2).
 *
 * TLS has authenticated the peer already: HELLO, then WELCOME; the identity
 * named in HELLO must be the PSK's.
 *
 * The client proves itself first: a stranger gets no mac to work on, and an
 * unknown user takes the same path as a wrong key.
 */
#ifndef RPC_HANDSHAKE_H
#define RPC_HANDSHAKE_H

#include "rpc/rpc_auth.h"
#include "rpc/rpc_frame.h"

#define RPC_PROTOCOL_MIN 1u
#define RPC_PROTOCOL_MAX 1u

/* Feature bits; both sides' words are ANDed. */
#define RPC_FEATURE_REPLAY UINT64_C(0x1)   /* sequence numbers and the replay table */
#define RPC_FEATURE_PUSH UINT64_C(0x2)     /* push channels */
#define RPC_FEATURE_PROGRESS UINT64_C(0x4) /* progress frames */
#define RPC_FEATURES_ALL (RPC_FEATURE_REPLAY | RPC_FEATURE_PUSH | RPC_FEATURE_PROGRESS)

enum rpc_mechanism {
	RPC_MECHANISM_HMAC = 1,
	RPC_MECHANISM_TLS_PSK = 2,
	RPC_MECHANISM_TLS_CERT = 3 /* reserved */
};

enum rpc_channel { RPC_CHANNEL_CALLS, RPC_CHANNEL_PUSH, RPC_CHANNEL_COUNT };

/* Server: finds or makes the session a peer asks for; 0 asks for a new one. */
typedef int (*rpc_session_fn)(void *arg, const struct rpc_peer *peer, uint64_t asked,
			      uint64_t *ret_session, bool *ret_known);

struct rpc_handshake_server {
	const struct rpc_auth *auth;
	const char *name; /* the server's, told to the client */
	uint64_t boot;
	rpc_session_fn session;
	void *session_arg;
};

struct rpc_handshake_client {
	const char *identity;
	const unsigned char *key; /* RPC_KEY_BYTES; not used with TLS */
	const char *program;
	uint64_t session; /* to resume, or 0 */
	enum rpc_channel channel;
};

struct rpc_handshake {
	struct gx_env *env;
	bool tls;
	int state; /* private */
	const struct rpc_handshake_server *server;
	struct rpc_handshake_client client;
	const struct rpc_peer *tls_peer; /* server with TLS */
	struct gx_addr client_addr, server_addr;
	unsigned char key[RPC_KEY_BYTES]; /* server: of the peer (random if it is unknown) */
	const char *refusal;              /* server: rpc_auth_find() said no; told after PROOF */
	uint64_t session_asked;
	struct gx_buf transcript;
	struct gx_buf out; /* bytes to send now; the caller clears it */

	/* Results, valid once done. */
	uint64_t secret; /* for rpc_frame's check */
	uint32_t version;
	uint64_t features;
	uint64_t session;
	bool session_known;
	uint64_t boot;
	enum rpc_channel channel;
	struct rpc_peer peer;                   /* server side: the client */
	char claimed[GX_IDENTITY_MAX];          /* server side: identity as claimed, for the log */
	char server_name[GX_NAME_USER_MAX + 1]; /* client side */
	char program[GX_NAME_USER_MAX + 1];     /* server side: the client's program */

	/* After a failure: static text for the local log; a client adds what the server said. */
	const char *reason;
	char detail[GX_DETAIL_MAX + 1];
};

/* `local` and `remote` as this end of the connection sees them. */
void rpc_handshake_init_server(struct rpc_handshake *hs, struct gx_env *env,
			       const struct rpc_handshake_server *server, bool tls,
			       const struct rpc_peer *tls_peer, const struct gx_addr *local,
			       const struct gx_addr *remote);
/* Puts HELLO into hs->out. */
GX_MUST_CHECK int rpc_handshake_init_client(struct rpc_handshake *hs, struct gx_env *env,
					    const struct rpc_handshake_client *client, bool tls,
					    const struct gx_addr *local,
					    const struct gx_addr *remote);
void rpc_handshake_fini(struct rpc_handshake *hs);

/* What this side accepts next. */
void rpc_handshake_limits(const struct rpc_handshake *hs, struct rpc_frame_limits *ret_limits);

/*
 * Takes one frame, header verified and with its message. 1: done, 0: go on;
 * negative: refused (-EKEYREJECTED, -EPROTO, -EPROTONOSUPPORT …), with
 * hs->reason. hs->out may hold bytes to send in each case.
 */
GX_MUST_CHECK int rpc_handshake_step(struct rpc_handshake *hs, const struct rpc_frame *frame,
				     const void *message);

/*
 * Blocking code: reads one frame of the handshake from the stream, takes the
 * step and sends what there is to send. Results as rpc_handshake_step().
 */
struct rpc_stream;
GX_MUST_CHECK int rpc_handshake_round(struct rpc_handshake *hs, struct rpc_stream *stream,
				      int64_t deadline_ns);

/* Appends a REFUSED frame to a buffer: what the dispatcher's cousin says before hanging up. */
int rpc_handshake_refuse(struct gx_buf *out, int err, const char *detail);

#endif
