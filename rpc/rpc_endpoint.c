#include "rpc/rpc_endpoint.h"

static int complain(struct gx_buf *errors, int err, const char *text, const char *problem)
{
	/* A text that does not fit is no reason for another error. */
	if (errors)
		GX_IGNORE(gx_buf_append_format(errors, "address \"%s\": %s\n", text, problem));
	return err;
}

int rpc_endpoint_parse(struct gx_env *env, const char *text, bool insecure,
		       struct rpc_endpoint *ret_endpoint, struct gx_buf *errors)
{
	struct rpc_endpoint endpoint = {.tls = false};
	enum gx_addr_security security;
	bool local;
	int r;

	r = gx_addr_parse(env, text, &endpoint.addr, &security);
	if (r < 0)
		return complain(errors, r, text,
				r == -EINVAL ? "wants HOST:PORT or unix:/PATH, optionally behind "
					       "tls: or plain:"
					     : gx_strerror(r));
	local = gx_addr_is_local(&endpoint.addr);
	/* Even where plain is allowed, it has to be asked for by name. */
	endpoint.tls = security == GX_SECURITY_TLS || (security == GX_SECURITY_AUTO && !local);
	if (!endpoint.tls && !local) {
		if (!insecure)
			return complain(errors, -EPERM, text,
					"plain is only for loopback and unix sockets; use tls: "
					"(or insecure = yes)");
		endpoint.insecure = true;
	}
	*ret_endpoint = endpoint;
	return 0;
}

void rpc_endpoint_format(const struct rpc_endpoint *endpoint, char text[GX_ADDR_TEXT_MAX])
{
	char plain[GX_ADDR_TEXT_MAX];

	gx_addr_format(&endpoint->addr, plain);
	/* A path near the maximum of sockaddr_un still leaves room for the prefix. */
	(void)gx_format(text, GX_ADDR_TEXT_MAX, "%s%s",
			endpoint->tls        ? "tls:"
			: endpoint->insecure ? "plain:"
					     : "",
			plain);
}

const char *rpc_endpoint_transport(const struct rpc_endpoint *endpoint)
{
	if (endpoint->addr.kind == GX_ADDR_UNIX)
		return endpoint->tls ? "tls+unix" : "unix";
	if (endpoint->addr.kind == GX_ADDR_MEM)
		return "mem";
	return endpoint->tls ? "tls" : "tcp";
}
