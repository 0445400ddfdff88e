/*
 * Copies: where they are, how many there shall be, and waiting for them.
 */
#include "client/fs/gfs_impl.h"
#include "client/fs/gfs_path.h"
#include <assert.h>

#define PLACES_MAX 1024u /* asked for at once: wanted ones, cache copies and stale ones */
/* metad answers a question that waits when the copies are there; not long before that, so ask. */
#define WAIT_STEP_NS (100 * GX_NSEC_PER_MSEC)

static_assert(sizeof(((struct gfs_place *)NULL)->node) ==
			      sizeof(((struct gfd_place *)NULL)->node) &&
		      sizeof(((struct gfs_place *)NULL)->host) ==
			      sizeof(((struct gfd_place *)NULL)->host),
	      "names fit");

static void place_of(const struct gfd_place *from, struct gfs_place *ret_place)
{
	*ret_place = (struct gfs_place){
		.up = from->up,
		.current = from->current,
		.cache = from->cache,
		.stable = from->stable,
		.damaged = from->damaged,
		.primary = from->primary,
		.generation = from->generation,
	};
	memcpy(ret_place->node, from->node, sizeof(from->node));
	memcpy(ret_place->host, from->host, sizeof(from->host));
}

static int find_file(struct gfs *fs, const char *path, struct gfc_attr *ret_attr)
{
	int r = gfs_path_find(fs->gfc, path, true, ret_attr);

	if (r < 0)
		return r;
	if (S_ISDIR(ret_attr->mode))
		return -EISDIR;
	return S_ISREG(ret_attr->mode) ? 0 : -EINVAL;
}

static ssize_t where(struct gfs *fs, const char *path, struct gfs_place *ret_places, size_t max,
		     unsigned *ret_wanted)
{
	GX_AUTOFREE struct gfd_place *places = calloc(PLACES_MAX, sizeof(*places));
	struct gfc_attr attr;
	unsigned wanted = 1;
	ssize_t n;

	if (!places)
		return -ENOMEM;
	n = find_file(fs, path, &attr);
	if (n == 0)
		n = gfd_where(fs->gfd, attr.ref, false, places, PLACES_MAX, &wanted);
	if (n < 0)
		return n;
	for (size_t i = 0; i < GX_MIN((size_t)n, GX_MIN(max, PLACES_MAX)); i++)
		place_of(&places[i], &ret_places[i]);
	if (ret_wanted)
		*ret_wanted = wanted;
	return n;
}

ssize_t gfs_where(struct gfs *fs, const char *path, struct gfs_place *ret_places, size_t max,
		  unsigned *ret_wanted)
{
	return gfs_path_result(where(fs, path, ret_places, max, ret_wanted), path);
}

int gfs_set_copies(struct gfs *fs, const char *path, unsigned copies)
{
	char text[16];

	if (copies < 1 || copies > GFS_COPIES_MAX)
		return (int)gfs_path_result(-EINVAL, path);
	GX_IGNORE(gx_format(text, sizeof(text), "%u", copies)); /* fits */
	return gfs_setxattr(fs, path, "gfs.ncopy", text, strlen(text), 0, true);
}

/* 1: they are there, and nobody writes who would make them old. */
static int enough(struct gfs *fs, const struct gfc_attr *attr, struct gfd_place *places)
{
	unsigned wanted = 1, good = 0;
	bool writing = false;
	ssize_t n = gfd_where(fs->gfd, attr->ref, false, places, PLACES_MAX, &wanted);

	if (n < 0)
		return (int)n;
	for (size_t i = 0; i < GX_MIN((size_t)n, (size_t)PLACES_MAX); i++) {
		good += places[i].current && !places[i].cache && !places[i].damaged;
		writing = writing || places[i].primary;
	}
	/* Without any place it is metad that has the bytes. */
	return n == 0 || (good >= wanted && !writing);
}

static int wait_copies(struct gfs *fs, const char *path, int64_t deadline_ns)
{
	GX_AUTOFREE struct gfd_place *places = calloc(PLACES_MAX, sizeof(*places));
	struct gfc_attr attr;
	int r;

	if (!places)
		return -ENOMEM;
	r = find_file(fs, path, &attr);
	while (r == 0) {
		int64_t now_ns;

		r = enough(fs, &attr, places);
		now_ns = gx_env_now_ns(fs->env);
		if (r == 0 && now_ns >= deadline_ns)
			return gfc_fail(-ETIMEDOUT, "the copies are not there yet");
		if (r == 0)
			gx_env_sleep_until(fs->env, GX_MIN(deadline_ns, now_ns + WAIT_STEP_NS));
	}
	return r < 0 ? r : 0;
}

int gfs_wait_copies(struct gfs *fs, const char *path, int64_t timeout_ms)
{
	int64_t deadline_ns =
		timeout_ms < 0 ? GX_FOREVER : gx_env_deadline_ms(fs->env, (uint64_t)timeout_ms);

	return (int)gfs_path_result(wait_copies(fs, path, deadline_ns), path);
}
