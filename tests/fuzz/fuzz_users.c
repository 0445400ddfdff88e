/*
 * Tables of users from any text: refused with a reason, or a table in which everybody that the text
 * names is found, by name and by number. Nothing of the input that is no name reaches a message.
 */
#include "metad/md_users.h"
#include "rpc/rpc_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_user(const struct md_users *users, const struct md_user *user)
{
	char identity[GX_NAME_USER_MAX + 8];
	enum rpc_identity_kind kind;

	gx_assert(gx_format(identity, sizeof(identity), "user:%s", user->name) == 0);
	gx_assert(rpc_identity_parse(identity, &kind) == 0);
	gx_assert(md_users_by_uid(users, user->cred.uid) == user);
	gx_assert(user->cred.uid != UINT32_MAX && user->cred.gid != UINT32_MAX);
	gx_assert(user->cred.group_count <= MD_GROUPS_MAX);
	for (uint32_t i = 0; i < user->cred.group_count; i++)
		gx_assert(user->cred.groups[i] != UINT32_MAX);
}

/* Every second word of a line that was accepted is a name. */
static void check_line(const struct md_users *users, char *line)
{
	char *rest;
	const char *kind = strtok_r(line, " \t\r", &rest);
	const char *name = strtok_r(NULL, " \t\r", &rest);

	if (kind == NULL || kind[0] == '#')
		return;
	gx_assert(name != NULL);
	if (strcmp(kind, "user") == 0) {
		gx_assert(md_users_by_name(users, name) != NULL);
		check_user(users, md_users_by_name(users, name));
	} else {
		const struct md_group *group = md_groups_by_name(users, name);

		gx_assert(group != NULL && md_groups_by_gid(users, group->gid) == group);
	}
}

static void check_errors(struct gx_buf *errors)
{
	gx_assert(errors->bytes > 0 && errors->data[errors->bytes - 1] == '\n');
	gx_assert(memcmp(errors->data, "fuzz:", 5) == 0);
	for (size_t i = 0; i < errors->bytes; i++)
		gx_assert(errors->data[i] == '\n' ||
			  (errors->data[i] >= ' ' && errors->data[i] < 0x7f));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	GX_CLEANUP(md_users_freep) struct md_users *users = NULL;
	GX_AUTOFREE char *text = calloc(1, bytes + 1);
	struct gx_buf errors;
	char *rest = text, *line;
	int r;

	gx_buf_init(&errors, 1 << 16);
	r = md_users_parse("fuzz", (const char *)data, bytes, &errors, &users);
	gx_assert(r == 0 || r == -EINVAL);
	gx_assert((r == 0) == (users != NULL) && (r == 0) == (errors.bytes == 0));
	if (r < 0)
		check_errors(&errors);
	gx_buf_fini(&errors);
	gx_assert(text);
	memcpy(text, data, bytes);
	while (r == 0 && (line = strsep(&rest, "\n")) != NULL)
		check_line(users, line);
	return 0;
}
