/*
 * One scan of the inodes, in order of their numbers, makes a table; the scans of entries,
 * attributes, content and orphans count what they find into it; then each row must add up.
 */
#include "metad/md_check.h"
#include "common/gx_num.h"

struct row {
	struct md_inode inode;
	uint64_t entries; /* found in it, if it is a directory */
	uint64_t names;   /* found for it */
	uint32_t subdirs;
	uint32_t xattrs;
	uint64_t content_bytes;
	uint64_t named_in; /* a directory that has a name for it */
	bool orphan;
	bool rooted; /* known to hang below the root */
};

struct check {
	struct md_state *state;
	md_check_fn fn;
	void *arg;
	struct row *rows;
	size_t count, capacity;
	int problems;
};

static void wrong(struct check *check, uint64_t ino, const char *what)
{
	char text[128];

	check->problems++;
	(void)gx_format(text, sizeof(text), "inode %llu: %s", (unsigned long long)ino, what);
	if (check->fn)
		check->fn(check->arg, text);
}

static int compare_rows(const void *ino, const void *row)
{
	uint64_t a = *(const uint64_t *)ino;
	uint64_t b = ((const struct row *)row)->inode.ino;

	return a < b ? -1 : a > b;
}

static struct row *find(struct check *check, uint64_t ino)
{
	if (check->count == 0)
		return NULL;
	return bsearch(&ino, check->rows, check->count, sizeof(*check->rows), compare_rows);
}

static int add_inode(void *arg, const void *key, size_t key_bytes, const void *value,
		     size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	struct check *check = arg;
	uint64_t ino = key_bytes == 9 ? gx_get_be64((const unsigned char *)key + 1) : 0;
	struct row row = {.orphan = false};

	if (md_inode_decode(value, value_bytes, &row.inode) < 0 || row.inode.ino != ino) {
		wrong(check, ino, "damaged");
		return 0;
	}
	if (check->count == check->capacity) {
		size_t capacity = GX_MAX(2 * check->capacity, (size_t)64);
		struct row *rows = reallocarray(check->rows, capacity, sizeof(*rows));

		if (!rows)
			return -ENOMEM;
		check->rows = rows;
		check->capacity = capacity;
	}
	check->rows[check->count++] = row;
	return 0;
}

static int add_entry(void *arg, const void *key, size_t key_bytes, const void *value,
		     size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	struct check *check = arg;
	uint64_t parent = key_bytes > 9 ? gx_get_be64((const unsigned char *)key + 1) : 0;
	struct row *dir = find(check, parent);
	struct row *row;
	uint64_t ino;
	uint32_t type;

	if (!dir || !S_ISDIR(dir->inode.mode)) {
		wrong(check, parent, "has names but is no directory");
		return 0;
	}
	dir->entries++;
	if (md_entry_decode(value, value_bytes, &ino, &type) < 0) {
		wrong(check, parent, "has a damaged name");
		return 0;
	}
	row = find(check, ino);
	if (!row) {
		wrong(check, ino, "has a name but does not exist");
		return 0;
	}
	row->names++;
	row->named_in = parent;
	if (type != (row->inode.mode & S_IFMT))
		wrong(check, ino, "its name tells another type");
	dir->subdirs += S_ISDIR(row->inode.mode);
	return 0;
}

static int add_xattr(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
		     size_t value_bytes GX_UNUSED, const struct md_tag *tag GX_UNUSED)
{
	struct check *check = arg;
	uint64_t ino = key_bytes > 9 ? gx_get_be64((const unsigned char *)key + 1) : 0;
	struct row *row = find(check, ino);

	if (row)
		row->xattrs++;
	else
		wrong(check, ino, "has an attribute but does not exist");
	return 0;
}

static int add_content(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
		       size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	struct check *check = arg;
	uint64_t ino = key_bytes == 9 ? gx_get_be64((const unsigned char *)key + 1) : 0;
	struct row *row = find(check, ino);

	if (row)
		row->content_bytes = value_bytes;
	if (!row)
		wrong(check, ino, "has content but does not exist");
	else if (value_bytes == 0)
		wrong(check, ino, "has an empty content record");
	return 0;
}

static int add_orphan(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
		      size_t value_bytes GX_UNUSED, const struct md_tag *tag GX_UNUSED)
{
	struct check *check = arg;
	uint64_t ino = key_bytes == 9 ? gx_get_be64((const unsigned char *)key + 1) : 0;
	struct row *row = find(check, ino);

	if (row)
		row->orphan = true;
	else
		wrong(check, ino, "is an orphan but does not exist");
	return 0;
}

static int scan_all(struct check *check)
{
	static const struct {
		char letter;
		md_kv_scan_fn fn;
	} scans[] = {{'I', add_inode},
		     {'D', add_entry},
		     {'X', add_xattr},
		     {'C', add_content},
		     {'O', add_orphan}};

	for (size_t i = 0; i < GX_COUNT_OF(scans); i++) {
		char from = scans[i].letter, to = (char)(from + 1);
		int r = md_kv_scan(check->state->kv, &from, 1, &to, 1, scans[i].fn, check);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Up from a directory to the root, or to one that is known to hang there. */
static void check_rooted(struct check *check, struct row *start)
{
	struct row *row = start;
	size_t steps = 0;

	while (row && !row->rooted && row->inode.ino != MD_ROOT_INO && steps++ <= check->count)
		row = find(check, row->inode.parent);
	if (!row || (!row->rooted && row->inode.ino != MD_ROOT_INO)) {
		wrong(check, start->inode.ino, "does not hang below the root");
		return;
	}
	for (row = start; !row->rooted && row->inode.ino != MD_ROOT_INO;) {
		row->rooted = true;
		row = find(check, row->inode.parent);
	}
}

static void check_dir(struct check *check, struct row *row)
{
	const struct md_inode *inode = &row->inode;
	bool is_root = inode->ino == MD_ROOT_INO;

	if (inode->size != row->entries)
		wrong(check, inode->ino, "its size is not the number of its names");
	if (row->names != (is_root || row->orphan ? 0 : 1))
		wrong(check, inode->ino, "a directory has one name, the root and orphans none");
	if (inode->nlink != (row->orphan ? 0 : 2 + row->subdirs))
		wrong(check, inode->ino, "its link count is not two and its directories");
	if (inode->parent != (is_root ? MD_ROOT_INO : row->orphan ? inode->parent : row->named_in))
		wrong(check, inode->ino, "its parent is not where its name is");
	if (row->orphan && row->entries > 0)
		wrong(check, inode->ino, "removed, but not empty");
	if (!row->orphan)
		check_rooted(check, row);
}

static void check_row(struct check *check, struct row *row)
{
	const struct md_inode *inode = &row->inode;
	bool has_content = S_ISREG(inode->mode) || S_ISLNK(inode->mode);

	if (S_ISDIR(inode->mode))
		check_dir(check, row);
	else if (inode->nlink != row->names)
		wrong(check, inode->ino, "its link count is not the number of its names");
	if (row->orphan != (inode->nlink == 0))
		wrong(check, inode->ino, "without a name, and only then, it is an orphan");
	if (inode->xattrs != row->xattrs)
		wrong(check, inode->ino, "its attributes are miscounted");
	if (row->content_bytes != ((inode->flags & MD_INODE_INLINE) ? inode->size : 0))
		wrong(check, inode->ino, "its content is not as long as its size");
	if (!has_content && !S_ISDIR(inode->mode) && inode->size != 0)
		wrong(check, inode->ino, "a special file has a size");
}

int md_check(struct md_state *state, md_check_fn fn, void *arg)
{
	struct check check = {.state = state, .fn = fn, .arg = arg};
	struct md_counters counters;
	uint64_t inline_bytes = 0;
	int r = scan_all(&check);

	if (r == 0) {
		for (size_t i = 0; i < check.count; i++) {
			check_row(&check, &check.rows[i]);
			inline_bytes += check.rows[i].content_bytes;
		}
		md_state_counters(state, &counters);
		if (!find(&check, MD_ROOT_INO))
			wrong(&check, MD_ROOT_INO, "there is no root");
		if (counters.inodes != check.count)
			wrong(&check, 0, "the counter of inodes is wrong");
		if (counters.inline_bytes != inline_bytes)
			wrong(&check, 0, "the counter of inline bytes is wrong");
	}
	free(check.rows);
	return r < 0 ? r : check.problems;
}
