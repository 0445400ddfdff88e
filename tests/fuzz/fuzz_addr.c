/*
 * Addresses: any text is refused or gives an endpoint that prints to a text meaning the same.
 * Plain beyond the machine never comes out without `insecure`.
 */
#include "rpc/rpc_endpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* No name service from a fuzzer; numbers only. */
static bool is_numeric(const char *text)
{
	return text[strspn(text, "0123456789abcdefABCDEF.:[]tlsplainux/")] == '\0';
}

static struct gx_env_ops ops;

static int no_resolve(struct gx_env *env GX_UNUSED, const char *host, const char *port,
		      struct gx_addr *ret_addr)
{
	/* Names that only look numeric would ask a server and hang the run. */
	if (host[strspn(host, "0123456789abcdefABCDEF.:")] != '\0' || !strpbrk(host, "0123456789:"))
		return -EHOSTUNREACH;
	return gx_env_posix()->ops->resolve(gx_env_posix(), host, port, ret_addr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char text[1024], again_text[GX_ADDR_TEXT_MAX];
	struct rpc_endpoint endpoint, again;
	struct gx_env env;
	struct gx_buf errors;
	int r;

	if (bytes >= sizeof(text))
		return 0;
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	ops = *gx_env_posix()->ops;
	ops.resolve = no_resolve;
	env = (struct gx_env){.ops = &ops};
	gx_buf_init(&errors, 4096);
	r = rpc_endpoint_parse(&env, text, false, &endpoint, &errors);
	gx_assert((r == 0) == (errors.bytes == 0));
	gx_buf_fini(&errors);
	if (r < 0)
		return 0;
	gx_assert(!endpoint.insecure);
	gx_assert(endpoint.tls || gx_addr_is_local(&endpoint.addr));
	gx_assert(rpc_endpoint_transport(&endpoint));
	rpc_endpoint_format(&endpoint, again_text);
	if (endpoint.addr.kind != GX_ADDR_INET || !is_numeric(again_text))
		return 0;
	gx_assert(rpc_endpoint_parse(&env, again_text, false, &again, NULL) == 0);
	gx_assert(again.tls == endpoint.tls && gx_addr_equal(&again.addr, &endpoint.addr));
	return 0;
}
