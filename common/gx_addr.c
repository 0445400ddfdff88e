/*
 * gx_addr.c - parsing is strict on purpose: what inet_aton() would also take
 * ("127.1", "0x7f000001", "1") is refused, because an address decides whether
 * a connection is encrypted and must not have two readings.
 */
#include "common/gx_addr.h"
#include "common/gx_env.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#define HOST_TEXT_MAX 256u /* a DNS name has at most 253 characters */
#define PORT_TEXT_MAX 6u

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool skip_prefix(const char **text, const char *prefix)
{
	size_t bytes = strlen(prefix);

	if (strncmp(*text, prefix, bytes) != 0)
		return false;
	*text += bytes;
	return true;
}

/* One way to write each port: no sign, no blanks, no leading zeros. */
static bool port_ok(const char *port)
{
	unsigned value = 0;
	size_t bytes = strlen(port);

	if (bytes == 0 || bytes > 5 || (port[0] == '0' && bytes > 1))
		return false;
	for (; *port != '\0'; port++) {
		if (!is_digit(*port))
			return false;
		value = value * 10 + (unsigned)(*port - '0');
	}
	return value <= UINT16_MAX;
}

/* "fe80::1" or "fe80::1%eth0". */
static bool v6_ok(const char *host)
{
	char number[HOST_TEXT_MAX];
	const char *scope = strchr(host, '%');
	struct in6_addr addr;

	if (gx_strcpy(number, sizeof(number), host) < 0)
		return false;
	if (scope != NULL) {
		number[scope - host] = '\0';
		if (*++scope == '\0')
			return false;
		for (; *scope != '\0'; scope++)
			if (!is_alnum(*scope) && strchr("-_.", *scope) == NULL)
				return false;
	}
	return inet_pton(AF_INET6, number, &addr) == 1;
}

/* A dotted quad, or a name whose last label cannot be taken for a number. */
static bool host_ok(const char *host)
{
	const char *last = host;
	struct in_addr addr;

	if (inet_pton(AF_INET, host, &addr) == 1)
		return true;
	if (!is_alnum(host[0]))
		return false;
	for (const char *p = host; *p != '\0'; p++) {
		if (!is_alnum(*p) && strchr("-_.", *p) == NULL)
			return false;
		if (*p == '.') {
			if (p[1] == '.')
				return false;
			if (p[1] != '\0')
				last = p + 1;
		}
	}
	if (last[0] == '0' && (last[1] == 'x' || last[1] == 'X'))
		return false;
	return last[strspn(last, "0123456789.")] != '\0';
}

static int parse_unix(const char *path, struct gx_addr *ret_addr)
{
	struct gx_addr addr = {.kind = GX_ADDR_UNIX};
	struct sockaddr_un *un = (struct sockaddr_un *)&addr.sa;

	if (path[0] != '/')
		return -EINVAL;
	un->sun_family = AF_UNIX;
	if (gx_strcpy(un->sun_path, sizeof(un->sun_path), path) < 0)
		return -E2BIG;
	addr.sa_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
	*ret_addr = addr;
	return 0;
}

static int parse_mem(const char *name, struct gx_addr *ret_addr)
{
	struct gx_addr addr = {.kind = GX_ADDR_MEM};

	if (name[0] == '\0')
		return -EINVAL;
	if (gx_strcpy(addr.mem_name, sizeof(addr.mem_name), name) < 0)
		return -E2BIG;
	*ret_addr = addr;
	return 0;
}

static int parse_inet(struct gx_env *env, const char *text, struct gx_addr *ret_addr)
{
	char host[HOST_TEXT_MAX], port[PORT_TEXT_MAX];
	const char *colon = strrchr(text, ':');
	bool bracketed = text[0] == '[';
	size_t host_bytes;

	if (colon == NULL)
		return -EINVAL;
	host_bytes = (size_t)(colon - text);
	if (bracketed) {
		if (host_bytes < 2 || colon[-1] != ']')
			return -EINVAL;
		text++;
		host_bytes -= 2;
	}
	if (host_bytes >= sizeof(host) || gx_strcpy(port, sizeof(port), colon + 1) < 0)
		return -EINVAL;
	memcpy(host, text, host_bytes);
	host[host_bytes] = '\0';
	if (!port_ok(port) || !(bracketed ? v6_ok(host) : host_ok(host)))
		return -EINVAL;
	return gx_env_resolve(env, host, port, ret_addr);
}

int gx_addr_parse(struct gx_env *env, const char *text, struct gx_addr *ret_addr,
		  enum gx_addr_security *ret_security)
{
	enum gx_addr_security security = GX_SECURITY_AUTO;
	int r;

	if (skip_prefix(&text, "tls:"))
		security = GX_SECURITY_TLS;
	else if (skip_prefix(&text, "plain:"))
		security = GX_SECURITY_PLAIN;
	if (security != GX_SECURITY_AUTO && ret_security == NULL)
		return -EINVAL;

	if (skip_prefix(&text, "unix:"))
		r = parse_unix(text, ret_addr);
	else if (skip_prefix(&text, "mem:"))
		r = parse_mem(text, ret_addr);
	else
		r = parse_inet(env, text, ret_addr);
	if (r < 0)
		return r;
	if (ret_security != NULL)
		*ret_security = security;
	return 0;
}

static void format_inet(const struct gx_addr *addr, char text[GX_ADDR_TEXT_MAX])
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&addr->sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr->sa;
	char host[INET6_ADDRSTRLEN];

	if (addr->sa.ss_family == AF_INET) {
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		gx_format(text, GX_ADDR_TEXT_MAX, "%s:%u", host, ntohs(in->sin_port));
		return;
	}
	inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
	if (in6->sin6_scope_id != 0)
		gx_format(text, GX_ADDR_TEXT_MAX, "[%s%%%u]:%u", host, in6->sin6_scope_id,
			  ntohs(in6->sin6_port));
	else
		gx_format(text, GX_ADDR_TEXT_MAX, "[%s]:%u", host, ntohs(in6->sin6_port));
}

/* Paths may fill sun_path to the last byte when they come from the kernel. */
static const char *unix_path(const struct gx_addr *addr, size_t *ret_bytes)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&addr->sa;
	size_t head = offsetof(struct sockaddr_un, sun_path);
	size_t held = addr->sa_bytes > head ? addr->sa_bytes - head : 0;

	*ret_bytes = strnlen(un->sun_path, GX_MIN(held, sizeof(un->sun_path)));
	return un->sun_path;
}

void gx_addr_format(const struct gx_addr *addr, char text[GX_ADDR_TEXT_MAX])
{
	const char *path;
	size_t bytes;

	switch (addr->kind) {
	case GX_ADDR_INET:
		format_inet(addr, text);
		return;
	case GX_ADDR_UNIX:
		path = unix_path(addr, &bytes);
		gx_format(text, GX_ADDR_TEXT_MAX, "unix:%.*s", (int)bytes, path);
		return;
	case GX_ADDR_MEM:
		gx_format(text, GX_ADDR_TEXT_MAX, "mem:%s", addr->mem_name);
		return;
	case GX_ADDR_NONE:
	case GX_ADDR_COUNT:
		break;
	}
	gx_format(text, GX_ADDR_TEXT_MAX, "none");
}

static bool inet_is_local(const struct gx_addr *addr)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&addr->sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr->sa;

	if (addr->sa.ss_family == AF_INET)
		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	if (addr->sa.ss_family != AF_INET6)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		return in6->sin6_addr.s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

bool gx_addr_is_local(const struct gx_addr *addr)
{
	switch (addr->kind) {
	case GX_ADDR_INET:
		return inet_is_local(addr);
	case GX_ADDR_UNIX:
	case GX_ADDR_MEM:
		return true;
	case GX_ADDR_NONE:
	case GX_ADDR_COUNT:
		break;
	}
	return false;
}

static bool inet_equal(const struct gx_addr *a, const struct gx_addr *b)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)&a->sa;
	const struct sockaddr_in *b4 = (const struct sockaddr_in *)&b->sa;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)&a->sa;
	const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)&b->sa;

	if (a->sa.ss_family != b->sa.ss_family)
		return false;
	if (a->sa.ss_family == AF_INET)
		return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a6->sin6_port == b6->sin6_port && a6->sin6_scope_id == b6->sin6_scope_id &&
	       IN6_ARE_ADDR_EQUAL(&a6->sin6_addr, &b6->sin6_addr);
}

bool gx_addr_equal(const struct gx_addr *a, const struct gx_addr *b)
{
	const char *a_path, *b_path;
	size_t a_bytes, b_bytes;

	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case GX_ADDR_INET:
		return inet_equal(a, b);
	case GX_ADDR_UNIX:
		a_path = unix_path(a, &a_bytes);
		b_path = unix_path(b, &b_bytes);
		return a_bytes == b_bytes && memcmp(a_path, b_path, a_bytes) == 0;
	case GX_ADDR_MEM:
		return strcmp(a->mem_name, b->mem_name) == 0;
	case GX_ADDR_NONE:
	case GX_ADDR_COUNT:
		break;
	}
	return true;
}
