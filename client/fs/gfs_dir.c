/*
 * A directory is read a page at a time: one call to metad gives some hundred entries with their
 * attributes, which are handed out one by one. The place to go on is a name, which no change of
 * the directory makes invalid.
 */
#include "client/fs/gfs_impl.h"
#include "client/fs/gfs_path.h"

#define PAGE_BYTES_MAX GX_UNPACK_MAX /* of entries, and of their names: what one reply can hold */

struct gfs_dir {
	struct gfs *fs;
	struct gfc_ref ref;
	struct gx_mutex lock;         /* all below */
	char after[GFS_NAME_MAX + 1]; /* the next page begins behind this name */
	bool end;                     /* there is no next page */
	struct gx_buf entries;        /* struct gfc_dirent of the page, names not set */
	struct gx_buf names;          /* of the page, each with its NUL */
	size_t entry_next;            /* index */
	size_t name_next;             /* offset */
	char path[];                  /* for messages */
};

static int take_entry(void *arg, const struct gfc_dirent *entry)
{
	struct gfs_dir *dir = arg;
	int r = gx_buf_append(&dir->names, entry->name, strlen(entry->name) + 1);

	if (r == 0)
		r = gx_buf_append(&dir->entries, entry, sizeof(*entry));
	return r;
}

static void drop_page(struct gfs_dir *dir)
{
	gx_buf_clear(&dir->entries);
	gx_buf_clear(&dir->names);
	dir->entry_next = 0;
	dir->name_next = 0;
}

/* Pages may come empty before the end. */
static int fill_page(struct gfs_dir *dir)
{
	drop_page(dir);
	/* As in stat: what this process has written counts. Which files it lists is not known. */
	GX_IGNORE(gfs_files_flush(dir->fs, 0)); /* its file keeps the error */
	while (!dir->end && dir->entries.bytes == 0) {
		int r = gfc_readdir(dir->fs->gfc, dir->ref, dir->after, true, take_entry, dir);

		if (r < 0) {
			drop_page(dir);
			return r;
		}
		dir->end = r > 0;
	}
	return 0;
}

static void dir_free(struct gfs_dir *dir)
{
	gx_buf_fini(&dir->entries);
	gx_buf_fini(&dir->names);
	free(dir);
}

static int dir_new(struct gfs *fs, const char *path, struct gfc_ref ref, struct gfs_dir **ret_dir)
{
	size_t path_bytes = strlen(path) + 1;
	struct gfs_dir *dir = calloc(1, sizeof(*dir) + path_bytes);
	int r;

	if (!dir)
		return -ENOMEM;
	dir->fs = fs;
	dir->ref = ref;
	memcpy(dir->path, path, path_bytes);
	gx_buf_init(&dir->entries, PAGE_BYTES_MAX);
	gx_buf_init(&dir->names, PAGE_BYTES_MAX);
	/* The first page now, so that who may not read it learns it here. */
	r = fill_page(dir);
	if (r == 0)
		r = gx_env_mutex_init(fs->env, &dir->lock);
	if (r < 0) {
		dir_free(dir);
		return r;
	}
	*ret_dir = dir;
	return 0;
}

int gfs_opendir(struct gfs *fs, const char *path, struct gfs_dir **ret_dir)
{
	struct gfc_attr attr;
	int r = gfs_path_find(fs->gfc, path, true, &attr);

	if (r == 0 && !S_ISDIR(attr.mode))
		r = -ENOTDIR;
	if (r == 0)
		r = dir_new(fs, path, attr.ref, ret_dir);
	return (int)gfs_path_result(r, path);
}

static int next_entry(struct gfs_dir *dir, struct gfs_dirent *ret_entry)
{
	size_t count = dir->entries.bytes / sizeof(struct gfc_dirent);
	struct gfc_dirent entry;

	if (dir->entry_next == count) {
		int r = fill_page(dir);

		if (r < 0)
			return r;
		if (dir->entries.bytes == 0)
			return 0;
	}
	memcpy(&entry, dir->entries.data + dir->entry_next * sizeof(entry), sizeof(entry));
	*ret_entry = (struct gfs_dirent){
		.name = (const char *)dir->names.data + dir->name_next,
		.ino = entry.ino,
		.type = entry.type,
		.has_stat = entry.has_attr,
	};
	/* What this process writes to storage nodes it knows better than metad. */
	if (entry.has_attr && atomic_load(&dir->fs->large) > 0)
		gfd_correct_attr(dir->fs->gfd, &entry.attr);
	if (entry.has_attr)
		gfs_stat_of(&entry.attr, &ret_entry->st);
	dir->name_next += strlen(ret_entry->name) + 1;
	dir->entry_next++;
	return 1;
}

int gfs_readdir(struct gfs_dir *dir, struct gfs_dirent *ret_entry)
{
	int r;

	gx_env_mutex_lock(dir->fs->env, &dir->lock);
	r = next_entry(dir, ret_entry);
	gx_env_mutex_unlock(dir->fs->env, &dir->lock);
	return (int)gfs_path_result(r, dir->path);
}

int gfs_seekdir(struct gfs_dir *dir, const char *after)
{
	if (!after)
		after = "";
	if (strlen(after) > GFS_NAME_MAX)
		return (int)gfs_path_result(-ENAMETOOLONG, after);
	gx_env_mutex_lock(dir->fs->env, &dir->lock);
	GX_IGNORE(gx_strcpy(dir->after, sizeof(dir->after), after)); /* fits */
	dir->end = false;
	drop_page(dir);
	gx_env_mutex_unlock(dir->fs->env, &dir->lock);
	return 0;
}

void gfs_closedir(struct gfs_dir *dir)
{
	if (!dir)
		return;
	gx_env_mutex_fini(dir->fs->env, &dir->lock);
	dir_free(dir);
}
