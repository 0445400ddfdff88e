/*
 * rpc_daemon.h - what every daemon that listens does the same way: the options of its section,
 * its key table, its addresses.
 */
#ifndef RPC_DAEMON_H
#define RPC_DAEMON_H

#include "common/gx_conf.h"
#include "common/gx_daemon.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_key.h"

struct rpc_daemon_conf {
	char *name;
	char *listen;
	char *address_file;
	char *keys;
	bool insecure;
	uint64_t connections_max;
	uint64_t half_open_max;
	int64_t handshake_timeout;
};
/* The rows of `section`; `field` is the program's struct rpc_daemon_conf. */
/* clang-format off */
#define RPC_DAEMON_CONF_ROWS(section, outer, field, default_name, default_listen)                  \
	{section, "name", GX_CONF_STRING, offsetof(outer, field.name), default_name, NULL, NULL,   \
	 NULL, 0, "The daemon's name, as clients see it."},                                        \
	{section, "listen", GX_CONF_LIST, offsetof(outer, field.listen), default_listen, NULL,     \
	 NULL, NULL, 0,                                                                            \
	 "Addresses to listen on: HOST:PORT, unix:/PATH, each optionally behind tls:. "            \
	 "Port 0 picks a free one. Beyond loopback it is always TLS."},                            \
	{section, "address_file", GX_CONF_PATH, offsetof(outer, field.address_file), NULL, NULL,   \
	 NULL, NULL, 0,                                                                            \
	 "Write the addresses really bound to this file, one a line, once ready."},                \
	{section, "keys", GX_CONF_PATH, offsetof(outer, field.keys), NULL, NULL, NULL, NULL,       \
	 GX_CONF_REQUIRED | GX_CONF_SECRET, "Key table: who may connect. Made with gfs key."},     \
	{section, "insecure", GX_CONF_BOOL, offsetof(outer, field.insecure), "no", NULL, NULL,     \
	 NULL, 0, "Allow listening beyond this machine without TLS. Do not."},                     \
	{section, "connections_max", GX_CONF_U64, offsetof(outer, field.connections_max), "4096",  \
	 "1", "1000000", NULL, 0, "Connections at the same time."},                                \
	{section, "half_open_max", GX_CONF_U64, offsetof(outer, field.half_open_max), "1024", "1", \
	 "100000", NULL, 0, "Of those, how many may not have authenticated yet."},                 \
	{section, "handshake_timeout", GX_CONF_DURATION, offsetof(outer, field.handshake_timeout), \
	 "10s", "100ms", "10m", NULL, 0, "Time a connection has to authenticate."}
/* clang-format on */

typedef int (*rpc_listen_fn)(void *server, const struct rpc_endpoint *endpoint,
			     struct rpc_endpoint *ret_bound);

/* Each address of a comma-separated list makes sense, or errors has a line. For spec.check. */
GX_MUST_CHECK int rpc_daemon_check_addresses(struct gx_env *env, const char *list, bool insecure,
					     struct gx_buf *errors);
/* Listens on each with fn; appends what was bound to `bound`, a line each. Failures are logged. */
GX_MUST_CHECK int rpc_daemon_listen(struct gx_env *env, const char *list, bool insecure,
				    rpc_listen_fn fn, void *server, struct gx_buf *bound);
/* Writes the address file, if there is to be one: beside it and renamed, all of it or nothing. */
GX_MUST_CHECK int rpc_daemon_write_addresses(struct gx_env *env, const char *path,
					     const struct gx_buf *bound);
/* Loads a key table; failures are logged. */
GX_MUST_CHECK int rpc_daemon_load_keys(struct gx_env *env, const char *path,
				       struct rpc_keytab **ret_keys);

#endif
