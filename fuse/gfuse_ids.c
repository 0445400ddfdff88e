/*
 * Users and groups (rule N16): owners in the grid are numbers from metad's table, and a name means
 * the same person on both sides. Who has no name on the other side keeps his number, if that is
 * nobody else's there; else he is nobody. So two machines that number people differently never
 * confuse them, and files of people whom the grid does not know (an archive unpacked by root) keep
 * their owners.
 */
#include "fuse/gfuse.h"
#include <grp.h>
#include <pwd.h>

#define SLOTS 512u /* per direction and kind */
#define BELIEVED_NS (60 * GX_NSEC_PER_SEC)
#define NSS_BYTES 65536u

enum { TO_LOCAL, TO_GRID, DIRECTIONS };

struct slot {
	int64_t until_ns; /* 0: nothing here */
	uint32_t from, to;
	bool none;
};

struct gfuse_ids {
	struct gfs *fs;
	struct gx_env *env;
	bool by_name;
	struct gx_mutex lock;
	struct slot slots[DIRECTIONS][2][SLOTS];
};

int gfuse_ids_new(struct gfs *fs, bool by_name, struct gfuse_ids **ret_ids)
{
	struct gfuse_ids *ids = calloc(1, sizeof(*ids));
	int r;

	if (!ids)
		return -ENOMEM;
	ids->fs = fs;
	ids->env = fs->env;
	ids->by_name = by_name;
	r = gx_env_mutex_init(ids->env, &ids->lock);
	if (r < 0) {
		free(ids);
		return r;
	}
	*ret_ids = ids;
	return 0;
}

void gfuse_ids_free(struct gfuse_ids *ids)
{
	if (!ids)
		return;
	gx_env_mutex_fini(ids->env, &ids->lock);
	free(ids);
}

/* -- this machine's tables ------------------------------------------------------------------------
 */

/* 0, -ENOENT, or the system's error. */
static int system_name(uint32_t number, bool group, char name[GFS_IDS_NAME_MAX + 1])
{
	GX_AUTOFREE char *text = malloc(NSS_BYTES);
	struct passwd user, *found_user = NULL;
	struct group entry, *found_group = NULL;
	int r;

	if (!text)
		return -ENOMEM;
	if (group)
		r = getgrgid_r(number, &entry, text, NSS_BYTES, &found_group);
	else
		r = getpwuid_r(number, &user, text, NSS_BYTES, &found_user);
	if (!found_group && !found_user)
		return r == 0 ? -ENOENT : -r;
	return gx_strcpy(name, GFS_IDS_NAME_MAX + 1, group ? entry.gr_name : user.pw_name) < 0
		       ? -ENOENT
		       : 0;
}

static int system_number(const char *name, bool group, uint32_t *ret_number)
{
	GX_AUTOFREE char *text = malloc(NSS_BYTES);
	struct passwd user, *found_user = NULL;
	struct group entry, *found_group = NULL;
	int r;

	if (!text)
		return -ENOMEM;
	if (group)
		r = getgrnam_r(name, &entry, text, NSS_BYTES, &found_group);
	else
		r = getpwnam_r(name, &user, text, NSS_BYTES, &found_user);
	if (!found_group && !found_user)
		return r == 0 ? -ENOENT : -r;
	*ret_number = group ? entry.gr_gid : user.pw_uid;
	return 0;
}

/* -- the grid's ------------------------------------------------------------------------------- */

static int grid_name(struct gfuse_ids *ids, uint32_t number, bool group,
		     char name[GFS_IDS_NAME_MAX + 1])
{
	return group ? gfs_group_name(ids->fs, number, name, GFS_IDS_NAME_MAX + 1)
		     : gfs_user_name(ids->fs, number, name, GFS_IDS_NAME_MAX + 1);
}

static int grid_number(struct gfuse_ids *ids, const char *name, bool group, uint32_t *ret_number)
{
	return group ? gfs_group_id(ids->fs, name, ret_number)
		     : gfs_user_id(ids->fs, name, ret_number, NULL);
}

/* -- mapping ---------------------------------------------------------------------------------- */

/* -ENOENT: nobody. */
static int map_to_grid(struct gfuse_ids *ids, uint32_t number, bool group, uint32_t *ret_number)
{
	char name[GFS_IDS_NAME_MAX + 1], other[GFS_IDS_NAME_MAX + 1];
	int r = system_name(number, group, name);

	if (r == 0)
		r = grid_number(ids, name, group, ret_number);
	if (r != -ENOENT)
		return r;
	/* Without a name there: his own number, unless somebody has it. */
	r = grid_name(ids, number, group, other);
	if (r == 0)
		return -ENOENT;
	*ret_number = number;
	return r == -ENOENT ? 0 : r;
}

static int map_to_local(struct gfuse_ids *ids, uint32_t number, bool group, uint32_t *ret_number)
{
	char name[GFS_IDS_NAME_MAX + 1], other[GFS_IDS_NAME_MAX + 1];
	bool named = false;
	uint32_t theirs;
	int r = grid_name(ids, number, group, name);

	if (r == 0) {
		named = true;
		r = system_number(name, group, ret_number);
	}
	if (r != -ENOENT)
		return r;
	*ret_number = number;
	r = system_name(number, group, other);
	if (r != 0)
		return r == -ENOENT ? 0 : r;
	/* Somebody here has the number: is he the one that map_to_grid() makes it of? */
	if (named)
		return -ENOENT;
	r = grid_number(ids, other, group, &theirs);
	return r == 0 ? -ENOENT : r == -ENOENT ? 0 : r;
}

static bool known(struct gfuse_ids *ids, int way, uint32_t number, bool group,
		  struct slot *ret_slot)
{
	bool hit;

	gx_env_mutex_lock(ids->env, &ids->lock);
	*ret_slot = ids->slots[way][group][number % SLOTS];
	gx_env_mutex_unlock(ids->env, &ids->lock);
	hit = ret_slot->from == number && ret_slot->until_ns > gx_env_now_ns(ids->env);
	return hit;
}

static int map(struct gfuse_ids *ids, int way, uint32_t number, bool group, uint32_t *ret_number)
{
	struct slot slot;
	int r;

	*ret_number = number;
	/* The grid's root is root here, which saves asking; and so is its group. */
	if (!ids->by_name || number == 0)
		return 0;
	if (!known(ids, way, number, group, &slot)) {
		slot = (struct slot){.from = number};
		r = way == TO_GRID ? map_to_grid(ids, number, group, &slot.to)
				   : map_to_local(ids, number, group, &slot.to);
		if (r < 0 && r != -ENOENT)
			return r;
		slot.none = r < 0;
		slot.until_ns = gx_env_now_ns(ids->env) + BELIEVED_NS;
		gx_env_mutex_lock(ids->env, &ids->lock);
		ids->slots[way][group][number % SLOTS] = slot;
		gx_env_mutex_unlock(ids->env, &ids->lock);
	}
	*ret_number = slot.to;
	return slot.none ? -ENOENT : 0;
}

uint32_t gfuse_ids_local(struct gfuse_ids *ids, uint32_t number, bool group)
{
	uint32_t local;

	return map(ids, TO_LOCAL, number, group, &local) == 0 ? local : GFUSE_NOBODY;
}

int gfuse_ids_grid(struct gfuse_ids *ids, uint32_t number, bool group, uint32_t *ret_number)
{
	int r = map(ids, TO_GRID, number, group, ret_number);

	return r == -ENOENT ? -EINVAL : r;
}
