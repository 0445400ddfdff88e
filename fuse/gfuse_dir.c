/*
 * Directories. metad lists names in order and goes on behind any name, so that no change of the
 * directory makes a listing stale. The kernel wants numbers: an entry's is its place in this
 * listing, and we remember by which name each page of it began, for who goes back.
 */
#include "fuse/gfuse.h"

#define DOTS 2u /* "." and ".." come first */

struct entry {
	struct gfc_dirent dirent;
	size_t name; /* in dir->names */
};

struct page {
	uint64_t first;               /* number of its first entry */
	char after[GFS_NAME_MAX + 1]; /* it comes behind this name */
};

struct gfuse_dir {
	struct gfc_ref ref;
	struct gx_mutex lock; /* all below */
	struct page *pages;   /* all that have been read, and the one to come */
	size_t page_count, page_room;
	size_t at; /* which is in memory; page_count: none */
	bool plus; /* with attributes */
	bool end;  /* and it is the last */
	struct entry *entries;
	size_t count, room;
	struct gx_buf names;
};

static struct gfuse_dir *dir_of(const struct fuse_file_info *fi)
{
	return (struct gfuse_dir *)(uintptr_t)fi->fh;
}

static void dir_free(struct gfuse *g, struct gfuse_dir *dir)
{
	gx_env_mutex_fini(g->env, &dir->lock);
	gx_buf_fini(&dir->names);
	free(dir->entries);
	free(dir->pages);
	free(dir);
}

static int add_page(struct gfuse_dir *dir, uint64_t first, const char *after)
{
	if (dir->page_count == dir->page_room) {
		size_t room = dir->page_room ? 2 * dir->page_room : 2;
		struct page *pages = realloc(dir->pages, room * sizeof(*pages));

		if (!pages)
			return -ENOMEM;
		dir->pages = pages;
		dir->page_room = room;
	}
	dir->pages[dir->page_count].first = first;
	GX_IGNORE(gx_strcpy(dir->pages[dir->page_count].after, GFS_NAME_MAX + 1, after)); /* fits */
	dir->page_count++;
	return 0;
}

static int dir_new(struct gfuse *g, struct gfc_ref ref, struct gfuse_dir **ret_dir)
{
	struct gfuse_dir *dir = calloc(1, sizeof(*dir));
	int r;

	if (!dir)
		return -ENOMEM;
	dir->ref = ref;
	gx_buf_init(&dir->names, GX_MESSAGE_MAX);
	r = add_page(dir, DOTS, "");
	dir->at = dir->page_count;
	if (r == 0)
		r = gx_env_mutex_init(g->env, &dir->lock);
	if (r < 0) {
		free(dir->pages);
		free(dir);
		return r;
	}
	*ret_dir = dir;
	return 0;
}

void gfuse_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct gfuse *g = gfuse_of(req);
	struct gfuse_dir *dir = NULL;
	struct gfc_ref ref;
	int r = gfuse_ref(g, ino, &ref);

	if (r == 0)
		r = dir_new(g, ref, &dir);
	if (r < 0) {
		gfuse_reply(req, r);
		return;
	}
	gx_assert(dir);
	fi->fh = (uintptr_t)dir;
	if (fuse_reply_open(req, fi) < 0)
		dir_free(g, dir);
}

void gfuse_releasedir(fuse_req_t req, fuse_ino_t ino GX_UNUSED, struct fuse_file_info *fi)
{
	dir_free(gfuse_of(req), dir_of(fi));
	gfuse_reply(req, 0);
}

void gfuse_fsyncdir(fuse_req_t req, fuse_ino_t ino GX_UNUSED, int datasync GX_UNUSED,
		    struct fuse_file_info *fi GX_UNUSED)
{
	gfuse_reply(req, gfc_sync(gfuse_of(req)->gfc));
}

/* -- pages (the lock is held) ------------------------------------------------------------------ */

/* A gfc_dirent_fn. */
static int take(void *arg, const struct gfc_dirent *dirent)
{
	struct gfuse_dir *dir = arg;

	if (dir->count == dir->room) {
		size_t room = dir->room ? 2 * dir->room : 64;
		struct entry *entries = realloc(dir->entries, room * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		dir->entries = entries;
		dir->room = room;
	}
	dir->entries[dir->count++] = (struct entry){*dirent, dir->names.bytes};
	return gx_buf_append(&dir->names, dirent->name, strlen(dirent->name) + 1);
}

static int load(struct gfuse *g, struct gfuse_dir *dir, size_t index, bool plus)
{
	char after[GFS_NAME_MAX + 1];
	int r;

	GX_IGNORE(gx_strcpy(after, sizeof(after), dir->pages[index].after)); /* fits */
	dir->at = dir->page_count;
	dir->count = 0;
	gx_buf_clear(&dir->names);
	/* Where many names have just been removed a page may be empty before the end. */
	do
		r = gfc_readdir(g->gfc, dir->ref, after, plus, take, dir);
	while (r == 0 && dir->count == 0);
	if (r < 0)
		return r;
	dir->end = r == 1;
	dir->plus = plus;
	/* Those behind it may begin elsewhere now. */
	dir->page_count = index + 1;
	r = dir->end ? 0 : add_page(dir, dir->pages[index].first + dir->count, after);
	if (r == 0)
		dir->at = index;
	return r;
}

/* The page with that entry, or the last one that there is. */
static int find_page(struct gfuse *g, struct gfuse_dir *dir, uint64_t number, bool plus)
{
	size_t index = dir->page_count - 1;

	if (number == DOTS) /* from the start: as it is now */
		return load(g, dir, 0, plus);
	while (index > 0 && dir->pages[index].first > number)
		index--;
	for (;;) {
		int r = 0;

		if (dir->at != index)
			r = load(g, dir, index, plus);
		if (r < 0)
			return r;
		if (dir->end || number < dir->pages[index].first + dir->count)
			return 0;
		index++;
	}
}

/* -- answers ----------------------------------------------------------------------------------- */

struct listing {
	struct gfuse *g;
	fuse_req_t req;
	struct gfuse_dir *dir;
	bool plus;
	char *buf;
	size_t bytes, room;
};

/* False: it has no room. */
static bool put_plain(struct listing *l, const char *name, uint64_t ino, uint32_t type,
		      uint64_t number)
{
	struct stat st = {.st_ino = ino, .st_mode = type};
	size_t n;

	if (l->plus) {
		/* Node 0: the kernel takes the name and nothing else. */
		struct fuse_entry_param entry = {.attr = st};

		n = fuse_add_direntry_plus(l->req, l->buf + l->bytes, l->room - l->bytes, name,
					   &entry, (off_t)number + 1);
	} else {
		n = fuse_add_direntry(l->req, l->buf + l->bytes, l->room - l->bytes, name, &st,
				      (off_t)number + 1);
	}
	if (n > l->room - l->bytes)
		return false;
	l->bytes += n;
	return true;
}

/* With attributes, if they are still those that we have just been told. */
static bool put_entry(struct listing *l, const struct entry *e, uint64_t number)
{
	const char *name = (const char *)l->dir->names.data + e->name;
	struct gfc_attr attr = e->dirent.attr;
	struct fuse_entry_param entry;
	size_t n;

	if (!l->plus || !e->dirent.has_attr ||
	    gfc_keep_name(l->g->gfc, l->dir->ref, name, e->dirent.ino) <= 0 ||
	    gfc_keep_attr(l->g->gfc, &attr) <= 0 ||
	    gfuse_entry(l->g, l->dir->ref, name, &attr, &entry) < 0)
		return put_plain(l, name, e->dirent.ino, e->dirent.type, number);
	n = fuse_add_direntry_plus(l->req, l->buf + l->bytes, l->room - l->bytes, name, &entry,
				   (off_t)number + 1);
	if (n > l->room - l->bytes) {
		gfuse_unentry(l->g, &entry);
		return false;
	}
	l->bytes += n;
	return true;
}

static int fill(struct listing *l, fuse_ino_t ino, uint64_t number)
{
	struct gfuse_dir *dir = l->dir;
	int r;

	if (number == 0 && !put_plain(l, ".", dir->ref.ino, S_IFDIR, number++))
		return 0;
	/* The kernel knows itself what is above. */
	if (number == 1 && !put_plain(l, "..", ino, S_IFDIR, number++))
		return 0;
	number = GX_MAX(number, 2);
	for (;;) {
		uint64_t first;

		r = find_page(l->g, dir, number, l->plus);
		/* Something is there already: the error comes with the next call. */
		if (r < 0)
			return l->bytes > 0 ? 0 : r;
		first = dir->pages[dir->at].first;
		for (; number < first + dir->count; number++)
			if (!put_entry(l, &dir->entries[number - first], number))
				return 0;
		if (dir->end)
			return 0;
	}
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		 struct fuse_file_info *fi, bool plus)
{
	struct gfuse *g = gfuse_of(req);
	struct listing l = {.g = g,
			    .req = req,
			    .dir = dir_of(fi),
			    .plus = plus,
			    .buf = gfuse_buffer_get(g),
			    .room = GX_MIN(size, GFUSE_IO_BYTES)};
	int r = l.buf ? 0 : -ENOMEM;

	gfuse_busy_begin(g->notify, ino);
	gx_env_mutex_lock(g->env, &l.dir->lock);
	if (r == 0)
		r = fill(&l, ino, offset > 0 ? (uint64_t)offset : 0);
	gx_env_mutex_unlock(g->env, &l.dir->lock);
	if (r < 0)
		gfuse_reply(req, r);
	else
		fuse_reply_buf(req, l.buf, l.bytes);
	gfuse_busy_end(g->notify, ino);
	gfuse_buffer_put(g, l.buf);
}

void gfuse_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		   struct fuse_file_info *fi)
{
	list(req, ino, size, offset, fi, false);
}

void gfuse_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	list(req, ino, size, offset, fi, true);
}
