/*
 * rpc_endpoint.h - an address together with how it is protected: the policy.
 *
 * Inside the machine (loopback, unix, simulation) the HMAC handshake without
 * encryption is the default, because only root could listen in. Anywhere else
 * it is TLS, and plain is refused, for listeners and for connections, unless
 * the configuration says `insecure = yes`.
 */
#ifndef RPC_ENDPOINT_H
#define RPC_ENDPOINT_H

#include "common/gx_buf.h"
#include "common/gx_env.h"

struct rpc_endpoint {
	struct gx_addr addr;
	bool tls;
	bool insecure; /* plain beyond this machine, because told so: worth a loud warning */
};

/*
 * Parses an address of gx_addr.h's syntax and applies the policy. -EPERM when
 * it would be plain beyond this machine; the other errors are gx_addr_parse()'s.
 * `errors` (may be NULL) gets one line for a person.
 */
GX_MUST_CHECK int rpc_endpoint_parse(struct gx_env *env, const char *text, bool insecure,
				     struct rpc_endpoint *ret_endpoint, struct gx_buf *errors);

/* The address as a client would write it: "127.0.0.1:7000", "tls:10.1.1.1:7000", "unix:/p". */
void rpc_endpoint_format(const struct rpc_endpoint *endpoint, char text[GX_ADDR_TEXT_MAX]);
/* "tcp", "unix", "mem", "tls", "tls+unix": for people. */
const char *rpc_endpoint_transport(const struct rpc_endpoint *endpoint);

#endif
