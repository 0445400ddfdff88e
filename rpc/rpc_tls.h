/*
 * rpc_tls.h - TLS 1.3 with an external pre-shared key, over any stream.
 *
 * The identity of the PSK is the peer's identity text, the PSK its key; no
 * certificates, no older versions, no session tickets, one cipher suite whose
 * hash fits the key (TLS_AES_128_GCM_SHA256), always with a fresh key exchange
 * (psk_dhe_ke), so that a stolen key does not open recorded traffic.
 *
 * OpenSSL works on the socket itself (kTLS stays possible) and its error queue
 * is drained here, never elsewhere. An SSL object is not safe for a reader and
 * a writer at once, so its socket is non-blocking, SSL calls are made under a
 * mutex, and waiting happens outside it.
 */
#ifndef RPC_TLS_H
#define RPC_TLS_H

#include "rpc/rpc_auth.h"
#include "rpc/rpc_stream.h"

struct rpc_tls_ctx;

/* Server: `auth` is borrowed and asked during each handshake. -ENOSYS in a simulation. */
GX_MUST_CHECK int rpc_tls_ctx_new_server(const struct rpc_auth *auth, struct rpc_tls_ctx **ret_ctx);
/* Client: identity and key are copied. */
GX_MUST_CHECK int rpc_tls_ctx_new_client(struct gx_env *env, const char *identity,
					 const unsigned char key[RPC_KEY_BYTES],
					 struct rpc_tls_ctx **ret_ctx);
void rpc_tls_ctx_free(struct rpc_tls_ctx *ctx);
GX_DEFINE_CLEANUP(struct rpc_tls_ctx *, rpc_tls_ctx_free)

/* Puts TLS on a plain stream that has carried nothing yet. The ctx must outlive it. */
GX_MUST_CHECK int rpc_tls_start(struct rpc_stream *stream, struct rpc_tls_ctx *ctx);

/* Server, after the handshake: who proved itself. NULL before. Borrowed. */
const struct rpc_peer *rpc_tls_peer(const struct rpc_stream *stream);
/* Server: the PSK identity text the client offered, for the log; "" if none yet. */
const char *rpc_tls_identity(const struct rpc_stream *stream);

#endif
