/*
 * gfs_conf.h - where metad is and which key opens it: the configuration of clients.
 *
 * Found in this order: the file the caller names, $GFS_CONFIG, ~/.gridstage/gfs.conf,
 * SYSCONFDIR/gridstage/gfs.conf. Only the first that exists is read. A file that was named and does
 * not exist is an error. No file is needed if the caller gives address and key himself.
 *
 * Used by libgfs and by the command line tools.
 */
#ifndef GFS_CONF_H
#define GFS_CONF_H

#include "client/fs/gfd.h"
#include "common/gx_conf.h"
#include "rpc/rpc_key.h"

struct gfs_options;

struct gfs_conf {
	char *metad;             /* address as text */
	char *key_file;          /* path; "key" beside the file unless set */
	bool insecure;           /* plain connections beyond this machine */
	int64_t meta_timeout_ns; /* GX_FOREVER: wait as long as it takes */
	uint64_t connections;
	uint64_t cache_bytes;    /* 0: no cache */
	int64_t data_timeout_ns; /* GX_FOREVER: wait as long as it takes */
	uint64_t data_connections;
	uint64_t write_behind;
	uint64_t read_ahead;
	char *host; /* label of this host; "": storage nodes are near if their sockets are here */
	bool cache_copies;
};

/* Rows of [gfs]; for --sample-config and the manual. */
extern const struct gx_conf_table gfs_conf_table;

/*
 * Which file it is. -ENOENT with a line that names the places searched; -ENAMETOOLONG. `config`
 * may be NULL.
 */
GX_MUST_CHECK int gfs_conf_find(struct gx_env *env, const char *config, char path[GX_PATH_MAX],
				struct gx_buf *errors);
/*
 * Finds and reads it, puts `options` (may be NULL) above it and validates. Errors of
 * gfs_conf_find() and gx_conf_load(), -EINVAL; lines for a person in `errors`. Fini in any case.
 */
GX_MUST_CHECK int gfs_conf_load(struct gx_env *env, const struct gfs_options *options,
				struct gfs_conf *ret_conf, struct gx_buf *errors);
void gfs_conf_fini(struct gfs_conf *conf);

/*
 * Resolves the address and reads the key. ret_options points into ret_key: keep that until
 * gfc_new() has returned, then rpc_key_clear() it, in each case.
 */
GX_MUST_CHECK int gfs_conf_connect_options(struct gx_env *env, const struct gfs_conf *conf,
					   struct rpc_key *ret_key, struct gfc_options *ret_options,
					   struct gx_buf *errors);
/* The same for gfd_new(); points into conf. */
void gfs_conf_data_options(const struct gfs_conf *conf, struct gfd_options *ret_options);

#endif
