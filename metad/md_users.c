#include "metad/md_users.h"
#include "common/gx_hash.h"
#include "common/gx_num.h"
#include "rpc/rpc_key.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define BLANKS " \t\r"
#define NAME_RULE "a name has 1 to 64 letters, digits, '.', '_', '-', '@', no '.' or '-' first"
#define NUMBER_RULE "wants a number from 0 to 4294967294"

/* A user or a group. */
struct entry {
	struct entry *next; /* of all, so that a half-built table can be freed */
	const char *name;   /* in the table's text */
	uint32_t id;
	unsigned line;
	bool name_ok, id_ok;
	union {
		struct md_user user;
		struct md_group group;
	};
	UT_hash_handle by_name, by_id;
	uint32_t gids[]; /* of a user: the further ones */
};

struct entry_map {
	struct entry *by_name, *by_id;
};

struct md_users {
	char *text; /* the file, cut into words */
	struct entry *all;
	struct entry_map users, groups;
};

void md_users_free(struct md_users *users)
{
	struct entry *entry, *next;

	if (users == NULL)
		return;
	HASH_CLEAR(by_name, users->users.by_name);
	HASH_CLEAR(by_id, users->users.by_id);
	HASH_CLEAR(by_name, users->groups.by_name);
	HASH_CLEAR(by_id, users->groups.by_id);
	for (entry = users->all; entry != NULL; entry = next) {
		next = entry->next;
		free(entry);
	}
	free(users->text);
	free(users);
}

/* -- asking -------------------------------------------------------------------------- */

static struct entry *find_name(const struct entry_map *map, const char *name)
{
	struct entry *entry = NULL;

	HASH_FIND(by_name, map->by_name, name, strlen(name), entry);
	return entry;
}

static struct entry *find_id(const struct entry_map *map, uint32_t id)
{
	struct entry *entry = NULL;

	HASH_FIND(by_id, map->by_id, &id, sizeof(id), entry);
	return entry;
}

const struct md_user *md_users_by_name(const struct md_users *users, const char *name)
{
	const struct entry *entry = find_name(&users->users, name);

	return entry != NULL ? &entry->user : NULL;
}

const struct md_user *md_users_by_uid(const struct md_users *users, uint32_t uid)
{
	const struct entry *entry = find_id(&users->users, uid);

	return entry != NULL ? &entry->user : NULL;
}

const struct md_group *md_groups_by_name(const struct md_users *users, const char *name)
{
	const struct entry *entry = find_name(&users->groups, name);

	return entry != NULL ? &entry->group : NULL;
}

const struct md_group *md_groups_by_gid(const struct md_users *users, uint32_t gid)
{
	const struct entry *entry = find_id(&users->groups, gid);

	return entry != NULL ? &entry->group : NULL;
}

/* -- reading ------------------------------------------------------------------------- */

struct parser {
	struct md_users *users;
	const char *path;
	struct gx_buf *errors;
	unsigned line;
	int err;   /* -EINVAL: something was wrong */
	bool full; /* no room for more problems */
};

static void complain(struct parser *p, const char *fmt, ...) GX_PRINTF(2, 3);

static void complain(struct parser *p, const char *fmt, ...)
{
	char what[256];
	va_list args;

	p->err = -EINVAL;
	if (p->errors == NULL)
		return;
	va_start(args, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	if (gx_buf_append_format(p->errors, "%s:%u: %s\n", p->path, p->line, what) < 0)
		p->full = true;
}

/* Next blank-separated word of a line, which is cut up; NULL at its end. */
static char *next_word(char **cursor)
{
	char *word = *cursor + strspn(*cursor, BLANKS);

	*cursor = word + strcspn(word, BLANKS);
	if (*cursor == word)
		return NULL;
	if (**cursor != '\0')
		*(*cursor)++ = '\0';
	return word;
}

static bool parse_name(const char *name)
{
	char identity[GX_NAME_USER_MAX + 8];
	enum rpc_identity_kind kind;

	return gx_format(identity, sizeof(identity), "user:%s", name) == 0 &&
	       rpc_identity_parse(identity, &kind) == 0;
}

/* 2^32 - 1 means "no id" to chown(2). */
static bool parse_id(const char *text, uint32_t *ret_id)
{
	uint64_t value;

	if (gx_parse_u64(text, &value) < 0 || value >= UINT32_MAX)
		return false;
	*ret_id = (uint32_t)value;
	return true;
}

/* "20,30", cut up. */
static void parse_gids(struct parser *p, char *list, struct md_cred *cred, uint32_t *gids)
{
	char *item;

	while ((item = strsep(&list, ",")) != NULL) {
		if (cred->group_count == MD_GROUPS_MAX) {
			complain(p, "more than %u further groups", MD_GROUPS_MAX);
			return;
		}
		if (!parse_id(item, &gids[cred->group_count])) {
			complain(p,
				 "each further gid " NUMBER_RULE ", commas and no blanks between");
			return;
		}
		cred->group_count++;
	}
}

static size_t count_items(const char *list)
{
	size_t count = 1;

	for (; *list != '\0'; list++)
		count += *list == ',';
	return count;
}

/*
 * Puts what is right of an entry into its map, even if the rest is wrong: so a name or number that
 * comes again is told in the same run.
 */
static int add_entry(struct parser *p, struct entry_map *map, struct entry *entry, const char *kind,
		     const char *id_kind)
{
	const struct entry *same_name = entry->name_ok ? find_name(map, entry->name) : NULL;
	const struct entry *same_id = entry->id_ok ? find_id(map, entry->id) : NULL;
	bool gx_hash_failed = false;

	if (same_name != NULL)
		complain(p, "%s %s is in line %u already", kind, entry->name, same_name->line);
	else if (entry->name_ok)
		HASH_ADD_KEYPTR(by_name, map->by_name, entry->name, strlen(entry->name), entry);
	if (same_id != NULL)
		complain(p, "%s %u is in line %u already", id_kind, entry->id, same_id->line);
	else if (entry->id_ok && !gx_hash_failed)
		HASH_ADD(by_id, map->by_id, id, sizeof(entry->id), entry);
	return gx_hash_failed ? -ENOMEM : 0;
}

/* A name and its number, with room for `gids` more; belongs to the table. NULL: no memory. */
static struct entry *new_entry(struct parser *p, const char *name, const char *id,
			       const char *id_kind, size_t gids)
{
	struct entry *entry = calloc(1, sizeof(*entry) + gids * sizeof(entry->gids[0]));

	if (entry == NULL)
		return NULL;
	entry->next = p->users->all;
	p->users->all = entry;
	entry->name = name;
	entry->line = p->line;
	entry->name_ok = parse_name(name);
	if (!entry->name_ok)
		complain(p, NAME_RULE);
	entry->id_ok = parse_id(id, &entry->id);
	if (!entry->id_ok)
		complain(p, "%s " NUMBER_RULE, id_kind);
	return entry;
}

static int parse_user(struct parser *p, char *rest)
{
	char *name = next_word(&rest), *uid = next_word(&rest), *gid = next_word(&rest);
	char *gids = next_word(&rest);
	struct entry *entry;
	struct md_cred *cred;

	if (gid == NULL || next_word(&rest) != NULL) {
		complain(p, "a user's line is: user NAME UID GID [GID,GID...]");
		return 0;
	}
	entry = new_entry(p, name, uid, "uid",
			  gids != NULL ? GX_MIN(count_items(gids), (size_t)MD_GROUPS_MAX) : 0);
	if (entry == NULL)
		return -ENOMEM;
	cred = &entry->user.cred;
	entry->user.name = name;
	cred->uid = entry->id;
	cred->groups = entry->gids;
	if (!parse_id(gid, &cred->gid))
		complain(p, "gid " NUMBER_RULE);
	if (gids != NULL)
		parse_gids(p, gids, cred, entry->gids);
	return add_entry(p, &p->users->users, entry, "user", "uid");
}

static int parse_group(struct parser *p, char *rest)
{
	char *name = next_word(&rest), *gid = next_word(&rest);
	struct entry *entry;

	if (gid == NULL || next_word(&rest) != NULL) {
		complain(p, "a group's line is: group NAME GID");
		return 0;
	}
	entry = new_entry(p, name, gid, "gid", 0);
	if (entry == NULL)
		return -ENOMEM;
	entry->group = (struct md_group){.name = name, .gid = entry->id};
	return add_entry(p, &p->users->groups, entry, "group", "gid");
}

static int parse_line(struct parser *p, char *line, size_t bytes)
{
	char *cursor = line;
	const char *word;

	if (memchr(line, '\0', bytes) != NULL) {
		complain(p, "a NUL byte");
		return 0;
	}
	word = next_word(&cursor);
	if (word == NULL || word[0] == '#')
		return 0;
	if (strcmp(word, "user") == 0)
		return parse_user(p, cursor);
	if (strcmp(word, "group") == 0)
		return parse_group(p, cursor);
	complain(p, "a line starts with user, group or #");
	return 0;
}

static int parse_lines(struct parser *p, char *text, size_t bytes)
{
	char *end = text + bytes;
	int r = 0;

	while (r == 0 && text < end && !p->full) {
		char *line = text;
		char *line_end = memchr(text, '\n', (size_t)(end - text));

		if (line_end == NULL)
			line_end = end;
		*line_end = '\0';
		text = line_end + 1;
		p->line++;
		r = parse_line(p, line, (size_t)(line_end - line));
	}
	return r < 0 ? r : p->err;
}

int md_users_parse(const char *path, const char *text, size_t bytes, struct gx_buf *errors,
		   struct md_users **ret_users)
{
	GX_CLEANUP(md_users_freep) struct md_users *users = calloc(1, sizeof(*users));
	struct parser parser = {.users = users, .path = path, .errors = errors};
	int r;

	if (users == NULL)
		return -ENOMEM;
	users->text = malloc(bytes + 1);
	if (users->text == NULL)
		return -ENOMEM;
	if (bytes > 0)
		memcpy(users->text, text, bytes);
	r = parse_lines(&parser, users->text, bytes);
	if (r < 0)
		return r;
	*ret_users = GX_TAKE(users);
	return 0;
}

/* -- the file ------------------------------------------------------------------------ */

/* Who can write to it can be anybody. Reading it harms nobody. */
static const char *file_problem(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "the table of users must be a regular file";
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return "the table of users belongs to another user";
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return "the table of users can be written by others; run: chmod go-w on it";
	return NULL;
}

static int read_fd(struct gx_env *env, int fd, struct gx_buf *buf, const char **ret_problem)
{
	struct stat st;
	ssize_t got;
	int r = gx_env_fstat(env, fd, &st);

	if (r < 0)
		return r;
	*ret_problem = file_problem(&st);
	if (*ret_problem != NULL)
		return -EPERM;
	/* -E2BIG for what is longer than MD_USERS_FILE_MAX. */
	r = gx_buf_reserve(buf, (size_t)st.st_size);
	if (r < 0)
		return r;
	got = gx_env_pread(env, fd, buf->data, (size_t)st.st_size, 0);
	if (got < 0)
		return (int)got;
	buf->bytes = (size_t)got;
	return 0;
}

static int read_file(struct gx_env *env, const char *path, struct gx_buf *buf,
		     struct gx_buf *errors)
{
	const char *problem = NULL;
	/* Not waiting for whoever might open the other end of a pipe. */
	int fd = gx_env_open(env, path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
	int r = fd;

	if (fd >= 0) {
		r = read_fd(env, fd, buf, &problem);
		gx_env_close(env, fd);
	}
	/* A message that does not fit is not worth another error. */
	if (r < 0 && errors != NULL)
		GX_IGNORE(gx_buf_append_format(errors, "%s: %s\n", path,
					       problem != NULL ? problem : gx_strerror(r)));
	return r;
}

int md_users_load(struct gx_env *env, const char *path, struct gx_buf *errors,
		  struct md_users **ret_users)
{
	static const char only_root[] = "user root 0 0\n";
	struct gx_buf buf;
	int r;

	if (path == NULL)
		return md_users_parse("built-in", only_root, strlen(only_root), errors, ret_users);
	gx_buf_init(&buf, MD_USERS_FILE_MAX);
	r = read_file(env, path, &buf, errors);
	if (r == 0)
		r = md_users_parse(path, (const char *)buf.data, buf.bytes, errors, ret_users);
	gx_buf_fini(&buf);
	return r;
}
