/*
 * md_users.h - who is who in the grid: names, numbers, groups (rule N16).
 *
 * A text file, read at start and on SIGHUP:
 *
 *	# comment
 *	user  alice 1000 100 20,30   name, uid, first gid, further gids
 *	group staff 100              name, gid
 *
 * Names as in rpc_identity_parse(); numbers below 2^32 - 1; names and numbers of users are unique,
 * so are those of groups; at most MD_GROUPS_MAX further groups. A group that a user is
 * in need not have a name. Without a file (path NULL) there is one user, `root`, 0 and 0.
 *
 * A table never changes once it is made, so any thread may ask it.
 */
#ifndef MD_USERS_H
#define MD_USERS_H

#include "common/gx_buf.h"
#include "common/gx_env.h"
#include "metad/md_command.h"

#define MD_USERS_FILE_MAX (16u * 1024 * 1024)

struct md_users;

struct md_user {
	const char *name;
	struct md_cred cred; /* groups borrowed from the table */
};
struct md_group {
	const char *name;
	uint32_t gid;
};

/*
 * -EINVAL with all problems of the file, "PATH:LINE: what", one a line, in `errors` (may be NULL;
 * when it is full the rest is not looked for). -EPERM: not a regular file, or somebody else than we
 * and root could write to it; -E2BIG; -ENOENT and what else open and read have: "PATH: what".
 * Texts of the file are not quoted unless they are names.
 */
GX_MUST_CHECK int md_users_load(struct gx_env *env, const char *path, struct gx_buf *errors,
				struct md_users **ret_users);
/* The same from memory; `path` for the messages. */
GX_MUST_CHECK int md_users_parse(const char *path, const char *text, size_t bytes,
				 struct gx_buf *errors, struct md_users **ret_users);
void md_users_free(struct md_users *users);
GX_DEFINE_CLEANUP(struct md_users *, md_users_free)

/* NULL: nobody. Borrowed from the table. */
const struct md_user *md_users_by_name(const struct md_users *users, const char *name);
const struct md_user *md_users_by_uid(const struct md_users *users, uint32_t uid);
const struct md_group *md_groups_by_name(const struct md_users *users, const char *name);
const struct md_group *md_groups_by_gid(const struct md_users *users, uint32_t gid);

#endif
