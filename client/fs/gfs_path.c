#include "client/fs/gfs_path.h"

#define SCHEME "gfs:"

int gfs_walk_init(struct gfs_walk *walk, struct gfc *gfc, const char *path)
{
	*walk = (struct gfs_walk){.gfc = gfc, .dir = GFC_ROOT, .rest = walk->text};
	gx_buf_init(&walk->above, GFS_DEPTH_MAX * sizeof(struct gfc_ref));
	if (path[0] == '\0')
		return -ENOENT;
	if (strncmp(path, SCHEME, strlen(SCHEME)) == 0)
		path += strlen(SCHEME);
	return gx_strcpy(walk->text, sizeof(walk->text), path) < 0 ? -ENAMETOOLONG : 0;
}

void gfs_walk_fini(struct gfs_walk *walk)
{
	gx_buf_fini(&walk->above);
}

static int enter(struct gfs_walk *walk, struct gfc_ref dir)
{
	int r = gx_buf_append(&walk->above, &walk->dir, sizeof(walk->dir));

	if (r < 0)
		return r == -E2BIG ? -ENAMETOOLONG : r;
	walk->dir = dir;
	return 0;
}

/* The root is its own parent. */
static void leave(struct gfs_walk *walk)
{
	if (walk->above.bytes == 0)
		return;
	walk->above.bytes -= sizeof(walk->dir);
	memcpy(&walk->dir, walk->above.data + walk->above.bytes, sizeof(walk->dir));
}

/* Takes the next component off the rest. */
static int next_component(struct gfs_walk *walk)
{
	size_t bytes;

	walk->rest += strspn(walk->rest, "/");
	bytes = strcspn(walk->rest, "/");
	if (bytes > GFS_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(walk->name, walk->rest, bytes);
	walk->name[bytes] = '\0';
	walk->rest += bytes;
	if (bytes == 0)
		walk->last = GFS_LAST_ROOT;
	else if (strcmp(walk->name, ".") == 0)
		walk->last = GFS_LAST_DOT;
	else if (strcmp(walk->name, "..") == 0)
		walk->last = GFS_LAST_DOTDOT;
	else
		walk->last = GFS_LAST_NAME;
	return 0;
}

/* Into a component that is not the last one. */
static int step(struct gfs_walk *walk)
{
	struct gfc_ref ref;
	uint32_t type;
	int r;

	if (walk->last == GFS_LAST_DOTDOT)
		leave(walk);
	if (walk->last != GFS_LAST_NAME)
		return 0;
	r = gfc_lookup_ref(walk->gfc, walk->dir, walk->name, &ref, &type);
	if (r < 0)
		return r;
	if (S_ISLNK(type))
		return gfs_walk_follow(walk, ref);
	return S_ISDIR(type) ? enter(walk, ref) : -ENOTDIR;
}

int gfs_walk_parent(struct gfs_walk *walk)
{
	for (;;) {
		int r = next_component(walk);

		if (r < 0)
			return r;
		if (walk->rest[strspn(walk->rest, "/")] == '\0') {
			walk->slash = walk->rest[0] == '/';
			return 0;
		}
		r = step(walk);
		if (r < 0)
			return r;
	}
}

int gfs_walk_follow(struct gfs_walk *walk, struct gfc_ref link)
{
	char target[GX_PATH_MAX];
	size_t target_bytes, rest_bytes = strlen(walk->rest);
	int r;

	if (++walk->links > GFS_LINKS_MAX)
		return -ELOOP;
	r = gfc_readlink(walk->gfc, link, target);
	if (r < 0)
		return r;
	target_bytes = strlen(target);
	if (target_bytes == 0)
		return -ENOENT;
	if (target_bytes + rest_bytes >= sizeof(walk->text))
		return -ENAMETOOLONG;
	memmove(walk->text + target_bytes, walk->rest, rest_bytes + 1);
	memcpy(walk->text, target, target_bytes);
	walk->rest = walk->text;
	if (target[0] == '/') {
		gx_buf_clear(&walk->above);
		walk->dir = GFC_ROOT;
	}
	return 0;
}

int gfs_walk_find(struct gfs_walk *walk, bool follow, struct gfc_attr *ret_attr)
{
	for (;;) {
		struct gfc_attr attr;
		int r = gfs_walk_parent(walk);

		if (r < 0)
			return r;
		if (walk->last == GFS_LAST_DOTDOT)
			leave(walk);
		if (walk->last != GFS_LAST_NAME)
			return gfc_getattr(walk->gfc, walk->dir, ret_attr);
		r = gfc_lookup(walk->gfc, walk->dir, walk->name, &attr);
		if (r < 0)
			return r;
		if (S_ISLNK(attr.mode) && (follow || walk->slash)) {
			r = gfs_walk_follow(walk, attr.ref);
			if (r < 0)
				return r;
			continue;
		}
		if (walk->slash && !S_ISDIR(attr.mode))
			return -ENOTDIR;
		*ret_attr = attr;
		return 0;
	}
}

int gfs_path_find(struct gfc *gfc, const char *path, bool follow, struct gfc_attr *ret_attr)
{
	struct gfs_walk walk;
	int r = gfs_walk_init(&walk, gfc, path);

	if (r == 0)
		r = gfs_walk_find(&walk, follow, ret_attr);
	gfs_walk_fini(&walk);
	return r;
}
