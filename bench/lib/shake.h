/*
 * shake.h - the processor time of a TLS 1.3 handshake alone: both sides in one
 * thread, talking through memory. No sockets, no wake-ups, no protocol of ours.
 */
#ifndef BENCH_SHAKE_H
#define BENCH_SHAKE_H

#include "common/gx_base.h"
#include <openssl/ssl.h>

/* Contexts for an external PSK with (EC)DHE over `groups`, as rpc_tls.c sets them up. */
GX_MUST_CHECK int shake_psk_init(const char *groups, SSL_CTX **ret_server, SSL_CTX **ret_client);
/* One handshake and its clean-up; the client checks the server's name if it has a certificate. */
GX_MUST_CHECK int shake_once(SSL_CTX *server, SSL_CTX *client);

#endif
