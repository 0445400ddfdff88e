/*
 * One scan of the inodes, in order of their numbers, makes a table; the scans of entries,
 * attributes, content, orphans and copies count what they find into it; then each row must add up.
 */
#include "metad/md_check.h"
#include "common/gx_limits.h"
#include "common/gx_num.h"
#include "metad/md_layout.h"

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
	/* Of its layout, and what the others say about it. */
	bool layout, balanced, unbalanced;
	uint32_t copies, indexed;
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

static bool exists(struct check *check, const struct md_key *key)
{
	const void *value;
	size_t bytes;

	return md_kv_get(check->state->kv, key->bytes, key->count, &value, &bytes, NULL) == 0;
}

static void check_trash(struct check *check, uint64_t ino, const char *node, uint64_t first,
			uint64_t last)
{
	struct md_key key;

	for (uint64_t g = first; g <= last; g++) {
		md_key_trash(&key, node, ino, g);
		if (exists(check, &key))
			wrong(check, ino, "what is to be deleted is one of its copies");
	}
}

/* The generations of the layout and those of the inode. */
static void check_generations(struct check *check, const struct md_inode *inode,
			      const PbMeta__LayoutRecord *layout)
{
	const PbMeta__CopyRecord *primary = md_layout_find(layout, layout->primary);

	if ((layout->writing != 0) != ((inode->flags & MD_INODE_WRITING) != 0) ||
	    (layout->growing != 0) != ((inode->flags & MD_INODE_INLINE) != 0))
		wrong(check, inode->ino, "its flags are not those of its layout");
	if (layout->growing) {
		if (layout->n_copies > 0 || layout->from_generation != 0 ||
		    layout->writing <= inode->generation)
			wrong(check, inode->ino, "has copies though its content is inline");
		check_trash(check, inode->ino, layout->primary, layout->writing, layout->writing);
		return;
	}
	if (layout->last_generation != inode->generation)
		wrong(check, inode->ino, "its generation is not the highest there was");
	if (layout->writing != 0 && layout->writing != inode->generation)
		wrong(check, inode->ino, "another generation is written than its own");
	if (layout->primary[0] != '\0' && (!primary || primary->generation != inode->generation))
		wrong(check, inode->ino, "its primary has no copy that counts");
	if (layout->from_generation != 0 && layout->from_generation >= inode->generation)
		wrong(check, inode->ino, "it comes from a later generation than its own");
}

static int add_layout(void *arg, const void *key, size_t key_bytes, const void *value,
		      size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	struct check *check = arg;
	uint64_t ino = key_bytes == 9 ? gx_get_be64((const unsigned char *)key + 1) : 0;
	struct row *row = find(check, ino);
	PbMeta__LayoutRecord *layout;
	struct rpc_arena arena;
	struct md_key copy_key;

	if (!row) {
		wrong(check, ino, "has a layout but does not exist");
		return 0;
	}
	row->layout = true;
	rpc_arena_init(&arena, GX_UNPACK_MAX);
	if (md_layout_decode(value, value_bytes, &arena, &layout) < 0) {
		wrong(check, ino, "its layout is damaged");
		rpc_arena_clear(&arena);
		return 0;
	}
	row->balanced = md_layout_balanced(&row->inode, layout);
	row->copies = (uint32_t)layout->n_copies;
	check_generations(check, &row->inode, layout);
	for (size_t i = 0; i < layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = layout->copies[i];
		uint64_t base = md_copy_base(layout, copy);

		md_key_copy(&copy_key, copy->node, ino);
		if (!exists(check, &copy_key))
			wrong(check, ino, "a copy is missing in its node's index");
		check_trash(check, ino, copy->node, base > 0 ? base : copy->generation,
			    copy->generation);
	}
	rpc_arena_clear(&arena);
	return 0;
}

/* Behind the letter a node's name, a zero byte, and numbers; NULL if not so. */
static const unsigned char *after_node(const void *key, size_t key_bytes, size_t numbers_bytes)
{
	const unsigned char *bytes = key;
	const unsigned char *zero = memchr(bytes, 0, key_bytes);

	if (!zero || zero - bytes < 2 || (size_t)(zero - bytes) > 1 + MD_NODE_NAME_MAX ||
	    (size_t)(zero - bytes) + 1 + numbers_bytes != key_bytes)
		return NULL;
	return zero + 1;
}

static int add_copy(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
		    size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	struct check *check = arg;
	const unsigned char *numbers = after_node(key, key_bytes, 8);
	struct row *row = numbers ? find(check, gx_get_be64(numbers)) : NULL;

	if (row && value_bytes == 0)
		row->indexed++;
	else
		wrong(check, numbers ? gx_get_be64(numbers) : 0, "no such copy can be");
	return 0;
}

static int add_trash(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
		     size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	if (value_bytes != 0 || !after_node(key, key_bytes, 16))
		wrong(arg, 0, "the trash is damaged");
	return 0;
}

static int add_node(void *arg, const void *key, size_t key_bytes, const void *value,
		    size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	if (value_bytes != 8 || gx_get_be64(value) == 0 || !after_node(key, key_bytes, 0))
		wrong(arg, 0, "what is known of a node is damaged");
	return 0;
}

static int add_unbalanced(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
			  size_t value_bytes GX_UNUSED, const struct md_tag *tag GX_UNUSED)
{
	struct check *check = arg;
	uint64_t ino = key_bytes == 9 ? gx_get_be64((const unsigned char *)key + 1) : 0;
	struct row *row = find(check, ino);

	if (row)
		row->unbalanced = true;
	else
		wrong(check, ino, "lacks copies but does not exist");
	return 0;
}

static int scan_all(struct check *check)
{
	static const struct {
		char letter;
		md_kv_scan_fn fn;
	} scans[] = {{'I', add_inode},      {'D', add_entry},  {'X', add_xattr}, {'C', add_content},
		     {'O', add_orphan},     {'L', add_layout}, {'R', add_copy},  {'T', add_trash},
		     {'U', add_unbalanced}, {'N', add_node}};

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

static void check_copies(struct check *check, const struct row *row)
{
	const struct md_inode *inode = &row->inode;
	uint32_t place = inode->flags & (MD_INODE_INLINE | MD_INODE_WRITING);

	if (row->layout != (S_ISREG(inode->mode) && place != MD_INODE_INLINE))
		wrong(check, inode->ino, "what is not inline, and only that, has a layout");
	if (row->copies != row->indexed)
		wrong(check, inode->ino, "the nodes' indexes have other copies than it has");
	if (row->unbalanced != (row->layout && !row->balanced))
		wrong(check, inode->ino, "it is not marked as its copies are");
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
	check_copies(check, row);
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
