/*
 * gx_addr.h - where a daemon listens or is reached, as value and as text.
 *
 * Text forms: "HOST:PORT", "[V6]:PORT", "unix:/absolute/path", "mem:NAME"
 * (only in the simulation), each optionally behind "tls:" or "plain:". Without
 * a prefix the security follows the address: plain on what stays inside the
 * machine, TLS elsewhere (rpc_endpoint.h decides; this file only parses).
 */
#ifndef GX_ADDR_H
#define GX_ADDR_H

#include "common/gx_base.h"
#include "common/gx_limits.h"
#include <sys/socket.h>

struct gx_env;

enum gx_addr_kind {
	GX_ADDR_NONE,
	GX_ADDR_INET, /* tcp over IPv4 or IPv6 */
	GX_ADDR_UNIX,
	GX_ADDR_MEM, /* the simulation's own network */
	GX_ADDR_COUNT
};

struct gx_addr {
	enum gx_addr_kind kind;
	socklen_t sa_bytes;              /* INET, UNIX */
	struct sockaddr_storage sa;      /* INET, UNIX */
	char mem_name[GX_NAME_USER_MAX]; /* MEM: "host:port" or any name */
};

enum gx_addr_security {
	GX_SECURITY_AUTO, /* no prefix given */
	GX_SECURITY_PLAIN,
	GX_SECURITY_TLS,
	GX_SECURITY_COUNT
};

/*
 * Parses one address. Names are resolved through env. -EINVAL for bad syntax,
 * -E2BIG for a path too long for a unix socket, -EHOSTUNREACH for an unknown
 * name. ret_security may be NULL, then a prefix is -EINVAL.
 */
GX_MUST_CHECK int gx_addr_parse(struct gx_env *env, const char *text, struct gx_addr *ret_addr,
				enum gx_addr_security *ret_security);

/* Numeric text without prefix ("127.0.0.1:70", "unix:/p", "unix:" if unnamed, "mem:x"). */
void gx_addr_format(const struct gx_addr *addr, char text[GX_ADDR_TEXT_MAX]);

/* True where only this machine's root can listen in: loopback, unix, mem. */
bool gx_addr_is_local(const struct gx_addr *addr);

bool gx_addr_equal(const struct gx_addr *a, const struct gx_addr *b);

#endif
