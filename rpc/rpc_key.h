/*
 * rpc_key.h - keys, key files and key tables (rules S1, S3).
 *
 * A key is 32 random bytes that belong to one identity. A key file holds one,
 * a key table many; both have the same format, one key per line:
 *
 *	user:alice key=<64 hex digits> created=2026-11-16T09:00:00Z expires=never admin
 *
 * and both must be regular files, owned by the reader or root, without any
 * bit for group and others. Key bytes never reach a log, a message or argv;
 * people see the fingerprint.
 */
#ifndef RPC_KEY_H
#define RPC_KEY_H

#include "common/gx_buf.h"
#include "common/gx_env.h"

#define RPC_KEY_BYTES 32u
#define RPC_FINGERPRINT_TEXT 20u

enum rpc_identity_kind {
	RPC_IDENTITY_NONE,
	RPC_IDENTITY_USER,
	RPC_IDENTITY_HOST,
	RPC_IDENTITY_TICKET, /* rpc_ticket.h; never in a key file */
	RPC_IDENTITY_COUNT
};

struct rpc_key {
	enum rpc_identity_kind kind;
	char identity[GX_NAME_USER_MAX + 8]; /* "user:alice" */
	unsigned char secret[RPC_KEY_BYTES];
	int64_t created_ns; /* wall clock */
	int64_t expires_ns; /* wall clock; 0: never */
	bool admin;
};

/* Overwrites the secret. */
void rpc_key_clear(struct rpc_key *key);

/*
 * "user:NAME" or "host:NAME", NAME of 1 to 64 letters, digits, '.', '_', '-',
 * '@', not starting with '.' or '-'. -EINVAL otherwise.
 */
GX_MUST_CHECK int rpc_identity_parse(const char *text, enum rpc_identity_kind *ret_kind);
/* The part after the colon; borrowed. */
const char *rpc_identity_name(const char *identity);

/* A fresh random key. `lifetime_ns` 0: never expires. */
GX_MUST_CHECK int rpc_key_make(struct gx_env *env, const char *identity, int64_t lifetime_ns,
			       bool admin, struct rpc_key *ret_key);
/* Reads a file that must hold exactly one key. Errors as rpc_keytab_load. */
GX_MUST_CHECK int rpc_key_load(struct gx_env *env, const char *path, struct rpc_key *ret_key,
			       struct gx_buf *errors);
/* "a1b2-c3d4-e5f6-0718": enough to compare two keys by eye, useless to guess one. */
void rpc_key_fingerprint(const struct rpc_key *key, char text[RPC_FINGERPRINT_TEXT]);

struct rpc_keytab;

GX_MUST_CHECK int rpc_keytab_new(struct rpc_keytab **ret_tab);
void rpc_keytab_free(struct rpc_keytab *tab);
GX_DEFINE_CLEANUP(struct rpc_keytab *, rpc_keytab_free)

/*
 * Adds all keys of a file. -EPERM: mode or owner is wrong; -EINVAL: bad line;
 * -EEXIST: an identity twice. `errors` (may be NULL) gets "file:line: message".
 */
GX_MUST_CHECK int rpc_keytab_load(struct rpc_keytab *tab, struct gx_env *env, const char *path,
				  struct gx_buf *errors);
/* The same from memory; `name` stands for the file in messages. */
GX_MUST_CHECK int rpc_keytab_parse(struct rpc_keytab *tab, const char *name, const char *text,
				   size_t bytes, struct gx_buf *errors);
/* Writes a new file beside it, syncs, and renames it into place; mode 0600. */
GX_MUST_CHECK int rpc_keytab_save(const struct rpc_keytab *tab, struct gx_env *env,
				  const char *path);

/* Borrowed until the table changes; NULL if absent. */
const struct rpc_key *rpc_keytab_find(const struct rpc_keytab *tab, const char *identity);
/* Copies the key in; -EEXIST unless `replace`. */
GX_MUST_CHECK int rpc_keytab_put(struct rpc_keytab *tab, const struct rpc_key *key, bool replace);
/* -ENOENT if absent. */
int rpc_keytab_remove(struct rpc_keytab *tab, const char *identity);
size_t rpc_keytab_count(const struct rpc_keytab *tab);
/* In the order of the file; index < count. */
const struct rpc_key *rpc_keytab_get(const struct rpc_keytab *tab, size_t index);

#endif
