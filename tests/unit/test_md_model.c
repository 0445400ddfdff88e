/*
 * Long random sequences from several users and sessions, against a model: two arrays, written from
 * the manual pages, that share no code with the state machine. Result codes, attributes, contents
 * and listings must be the same; the state must hold together all along; and the commands, encoded,
 * decoded and applied to an empty state, must give the same bytes, whatever the writer does.
 */
#include "md_state_fixture.h"

#define NODES_MAX 4000u
#define ENTRIES_MAX 2000u
#define ALIVE_MAX 120u
#define OPS_PER_RUN 6000u
#define NAME_COUNT 6u
#define XATTR_COUNT 3u
#define MODEL_INLINE 8192u

struct node {
	bool alive;
	char type; /* d, f, l, p (fifo), c */
	unsigned perm, uid, gid;
	unsigned links; /* names; a directory's are computed */
	uint64_t parent;
	int64_t atime, mtime, ctime;
	unsigned open;
	unsigned size; /* of data */
	unsigned char data[MODEL_INLINE];
	int xattr[XATTR_COUNT]; /* length, -1: none */
};

struct entry {
	bool used;
	uint64_t dir, ino;
	unsigned name;
};

static struct node *nodes; /* by inode number */
static struct entry entries[ENTRIES_MAX];
static uint64_t random_state;
static struct world *w;

static const char *const names[NAME_COUNT] = {"a", "b", "c.txt", "\xff\xfe", "e e", "zz"};
static const char *const xattr_names[XATTR_COUNT] = {"user.one", "user.two", "gfs.other"};
static const struct who ann2 = {6, {100, 100, 1, project}};
static const struct who *const people[] = {&root, &root, &root, &ann, &ann, &ann2, &bob, &eve};

static unsigned below(unsigned bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)((random_state >> 20) % bound);
}

/* -- the model ------------------------------------------------------------------------------------
 */

static struct node *node_of(uint64_t ino)
{
	return ino < NODES_MAX && nodes[ino].alive ? &nodes[ino] : NULL;
}

static struct entry *entry_of(uint64_t dir, unsigned name)
{
	for (size_t i = 0; i < ENTRIES_MAX; i++)
		if (entries[i].used && entries[i].dir == dir && entries[i].name == name)
			return &entries[i];
	return NULL;
}

static unsigned count_entries(uint64_t dir, bool dirs_only)
{
	unsigned count = 0;

	for (size_t i = 0; i < ENTRIES_MAX; i++)
		count += entries[i].used && entries[i].dir == dir &&
			 (!dirs_only || nodes[entries[i].ino].type == 'd');
	return count;
}

static bool member(const struct who *who, unsigned gid)
{
	return who->cred.gid == gid || (who->cred.group_count == 1 && who->cred.groups[0] == gid);
}

static bool allowed(const struct who *who, const struct node *n, unsigned rwx)
{
	unsigned shift = who->cred.uid == n->uid ? 6 : member(who, n->gid) ? 3 : 0;

	return who->cred.uid == 0 || ((n->perm >> shift) & rwx) == rwx;
}

static bool owner(const struct who *who, const struct node *n)
{
	return who->cred.uid == 0 || who->cred.uid == n->uid;
}

static int enter(const struct who *who, uint64_t dir)
{
	const struct node *n = node_of(dir);

	return !n ? -ESTALE : n->type != 'd' ? -ENOTDIR : allowed(who, n, 1) ? 0 : -EACCES;
}

static int can_add(const struct who *who, uint64_t dir, unsigned name)
{
	int r = enter(who, dir);

	if (r < 0)
		return r;
	if (entry_of(dir, name))
		return -EEXIST;
	if (nodes[dir].links == 0)
		return -ENOENT;
	return allowed(who, &nodes[dir], 2) ? 0 : -EACCES;
}

static void touch(uint64_t dir)
{
	nodes[dir].mtime = nodes[dir].ctime = w->time_ns;
}

static void add_entry(uint64_t dir, unsigned name, uint64_t ino)
{
	for (size_t i = 0; i < ENTRIES_MAX; i++)
		if (!entries[i].used) {
			entries[i] = (struct entry){true, dir, ino, name};
			return;
		}
	ck_abort_msg("the model is full");
}

static int model_make(const struct who *who, uint64_t dir, unsigned name, char type, unsigned perm,
		      uint64_t ino)
{
	int r = type == 'c' && who->cred.uid != 0 ? -EPERM : can_add(who, dir, name);
	struct node *n = &nodes[ino];

	if (r < 0)
		return r;
	memset(n, 0, sizeof(*n));
	*n = (struct node){.alive = true,
			   .type = type,
			   .uid = who->cred.uid,
			   .gid = who->cred.gid,
			   .links = 1};
	n->perm = type == 'l' ? 0777 : type == 'd' ? perm & 01777 : perm;
	if (nodes[dir].perm & 02000) {
		n->gid = nodes[dir].gid;
		if (type == 'd')
			n->perm |= 02000;
		else if (type != 'l' && who->cred.uid != 0 && !member(who, n->gid))
			n->perm &= ~02000u;
	}
	n->atime = n->mtime = n->ctime = w->time_ns;
	n->parent = type == 'd' ? dir : 0;
	for (unsigned i = 0; i < XATTR_COUNT; i++)
		n->xattr[i] = -1;
	if (type == 'l') {
		n->size = 6;
		memcpy(n->data, "target", 6);
	}
	add_entry(dir, name, ino);
	touch(dir);
	return 0;
}

static int model_link(const struct who *who, uint64_t ino, uint64_t dir, unsigned name)
{
	struct node *n = node_of(ino);
	int r = n ? can_add(who, dir, name) : -ESTALE;

	if (r < 0)
		return r;
	if (n->type == 'd')
		return -EPERM;
	if (n->links == 0)
		return -ENOENT;
	if (!owner(who, n) && (n->type != 'f' || (n->perm & 04000) || (n->perm & 02010) == 02010 ||
			       !allowed(who, n, 6)))
		return -EPERM;
	n->links++;
	n->ctime = w->time_ns;
	add_entry(dir, name, ino);
	touch(dir);
	return 0;
}

static bool sticky_forbids(const struct who *who, uint64_t dir, const struct node *n)
{
	return (nodes[dir].perm & 01000) && !owner(who, n) && !owner(who, &nodes[dir]);
}

static void lose_name(struct node *n)
{
	n->links--;
	n->ctime = w->time_ns;
	if (n->links == 0 && n->open == 0)
		n->alive = false;
}

static int can_remove(const struct who *who, uint64_t dir, const struct node *n, uint64_t ino,
		      bool as_dir)
{
	if (sticky_forbids(who, dir, n))
		return -EPERM;
	if (as_dir && n->type != 'd')
		return -ENOTDIR;
	if (!as_dir && n->type == 'd')
		return -EISDIR;
	return as_dir && count_entries(ino, false) > 0 ? -ENOTEMPTY : 0;
}

static int model_remove(const struct who *who, uint64_t dir, unsigned name, bool as_dir)
{
	struct entry *e;
	int r = enter(who, dir);

	if (r < 0)
		return r;
	e = entry_of(dir, name);
	if (!e)
		return -ENOENT;
	if (!allowed(who, &nodes[dir], 2))
		return -EACCES;
	r = can_remove(who, dir, &nodes[e->ino], e->ino, as_dir);
	if (r < 0)
		return r;
	e->used = false;
	lose_name(&nodes[e->ino]);
	touch(dir);
	return 0;
}

/* Does `dir` lie in `top`, or is it `top`? */
static bool lies_in(uint64_t dir, uint64_t top)
{
	for (; dir != 1; dir = nodes[dir].parent)
		if (dir == top)
			return true;
	return top == 1;
}

static int can_move(const struct who *who, uint64_t ino, uint64_t to_dir)
{
	if (nodes[ino].type != 'd')
		return 0;
	if (lies_in(to_dir, ino))
		return -EINVAL;
	return allowed(who, &nodes[ino], 2) ? 0 : -EACCES;
}

static void placed(uint64_t ino, uint64_t dir)
{
	nodes[ino].ctime = w->time_ns;
	if (nodes[ino].type == 'd')
		nodes[ino].parent = dir;
}

static int model_rename(const struct who *who, uint64_t from_dir, unsigned from, uint64_t to_dir,
			unsigned to, unsigned flags)
{
	bool exchange = flags == 2;
	struct entry *a, *b;
	uint64_t moved;
	int r = enter(who, from_dir);

	if (r < 0)
		return r;
	a = entry_of(from_dir, from);
	if (!a)
		return -ENOENT;
	r = enter(who, to_dir);
	if (r < 0)
		return r;
	b = entry_of(to_dir, to);
	if (b && flags == 1)
		return -EEXIST;
	if (!b && exchange)
		return -ENOENT;
	moved = a->ino;
	if (b && b->ino == moved)
		return 0;
	if (!allowed(who, &nodes[from_dir], 2) || !allowed(who, &nodes[to_dir], 2))
		return -EACCES;
	if (sticky_forbids(who, from_dir, &nodes[moved]))
		return -EPERM;
	if (nodes[to_dir].links == 0)
		return -ENOENT;
	if (from_dir != to_dir)
		r = can_move(who, moved, to_dir);
	if (r == 0 && exchange && from_dir != to_dir)
		r = can_move(who, b->ino, from_dir);
	if (r == 0 && b && exchange && sticky_forbids(who, to_dir, &nodes[b->ino]))
		r = -EPERM;
	if (r == 0 && b && !exchange)
		r = can_remove(who, to_dir, &nodes[b->ino], b->ino, nodes[moved].type == 'd');
	if (r < 0)
		return r;
	if (exchange) {
		a->ino = b->ino;
		b->ino = moved;
		placed(a->ino, from_dir);
	} else {
		a->used = false;
		if (b) {
			lose_name(&nodes[b->ino]);
			b->ino = moved;
		} else {
			add_entry(to_dir, to, moved);
		}
	}
	placed(moved, to_dir);
	touch(from_dir);
	touch(to_dir);
	return 0;
}

static void lose_set_id(struct node *n)
{
	if (n->type != 'f')
		return;
	n->perm &= ~04000u;
	if (n->perm & 010)
		n->perm &= ~02000u;
}

static int model_chmod(const struct who *who, uint64_t ino, unsigned perm)
{
	struct node *n = node_of(ino);

	if (!n)
		return -ESTALE;
	if (n->type == 'l')
		return -EOPNOTSUPP;
	if (!owner(who, n))
		return -EPERM;
	n->perm = perm & 07777;
	if (who->cred.uid != 0 && !member(who, n->gid))
		n->perm &= ~02000u;
	n->ctime = w->time_ns;
	return 0;
}

static int model_chown(const struct who *who, uint64_t ino, unsigned uid, bool group)
{
	struct node *n = node_of(ino);

	if (!n)
		return -ESTALE;
	if (who->cred.uid != 0 && who->cred.uid != n->uid)
		return -EPERM;
	if (who->cred.uid != 0 && (group ? uid != n->gid && !member(who, uid) : uid != n->uid))
		return -EPERM;
	*(group ? &n->gid : &n->uid) = uid;
	lose_set_id(n);
	n->ctime = w->time_ns;
	return 0;
}

static int model_truncate(const struct who *who, uint64_t ino, uint64_t size)
{
	struct node *n = node_of(ino);

	if (!n)
		return -ESTALE;
	if (n->type != 'f')
		return n->type == 'd' ? -EISDIR : -EINVAL;
	if (!allowed(who, n, 2))
		return -EACCES;
	if (size > MODEL_INLINE)
		return -EFBIG;
	if (size > n->size)
		memset(n->data + n->size, 0, size - n->size);
	n->size = (unsigned)size;
	n->mtime = n->ctime = w->time_ns;
	if (who->cred.uid != 0)
		lose_set_id(n);
	return 0;
}

static int model_write(const struct who *who, uint64_t ino, uint64_t offset, const void *data,
		       unsigned bytes)
{
	struct node *n = node_of(ino);

	if (!n)
		return -ESTALE;
	if (n->type != 'f')
		return n->type == 'd' ? -EISDIR : -EINVAL;
	if (!allowed(who, n, 2))
		return -EACCES;
	if (offset == UINT64_MAX)
		offset = n->size;
	if (offset + bytes > MODEL_INLINE)
		return -EFBIG;
	if (bytes == 0)
		return 0;
	if (offset > n->size)
		memset(n->data + n->size, 0, offset - n->size);
	memcpy(n->data + offset, data, bytes);
	if (offset + bytes > n->size)
		n->size = (unsigned)offset + bytes;
	n->mtime = n->ctime = w->time_ns;
	if (who->cred.uid != 0)
		lose_set_id(n);
	return 0;
}

static int model_utimes(const struct who *who, uint64_t ino, bool now, int64_t time)
{
	struct node *n = node_of(ino);

	if (!n)
		return -ESTALE;
	if (!owner(who, n) && (!now || !allowed(who, n, 2)))
		return now ? -EACCES : -EPERM;
	n->atime = n->mtime = now ? w->time_ns : time;
	n->ctime = w->time_ns;
	return 0;
}

static int model_setxattr(const struct who *who, uint64_t ino, unsigned which, int bytes,
			  unsigned flags)
{
	struct node *n = node_of(ino);
	bool remove = flags == 4;

	if (!n)
		return -ESTALE;
	if (which == 2) {
		if (!owner(who, n))
			return -EPERM;
	} else {
		if (n->type != 'f' && n->type != 'd')
			return -EPERM;
		if (n->type == 'd' && (n->perm & 01000) && !owner(who, n))
			return -EPERM;
		if (!allowed(who, n, 2))
			return -EACCES;
	}
	if (n->xattr[which] >= 0 && flags == 1)
		return -EEXIST;
	if (n->xattr[which] < 0 && (remove || flags == 2))
		return -ENODATA;
	n->xattr[which] = remove ? -1 : bytes;
	n->ctime = w->time_ns;
	return 0;
}

/* -- comparing -------------------------------------------------------------------------- */

static unsigned links_of(uint64_t ino)
{
	const struct node *n = &nodes[ino];

	return n->type != 'd' ? n->links : n->links == 0 ? 0 : 2 + count_entries(ino, true);
}

static void compare_node(uint64_t ino)
{
	static const char letters[] = "dflpc";
	static const unsigned types[] = {S_IFDIR, S_IFREG, S_IFLNK, S_IFIFO, S_IFCHR};
	const struct node *n = node_of(ino);
	int r = do_getattr(w, &root, ino);

	ck_assert_msg(r == (n ? 0 : -ESTALE), "inode %llu: %d", (unsigned long long)ino, r);
	if (!n)
		return;
	ck_assert_uint_eq(w->attr.mode, types[strchr(letters, n->type) - letters] | n->perm);
	ck_assert_uint_eq(w->attr.nlink, links_of(ino));
	ck_assert_uint_eq(w->attr.uid, n->uid);
	ck_assert_uint_eq(w->attr.gid, n->gid);
	ck_assert_uint_eq(w->attr.size, n->type == 'd' ? count_entries(ino, false) : n->size);
	ck_assert_int_eq(w->attr.atime_ns, n->atime);
	ck_assert_int_eq(w->attr.mtime_ns, n->mtime);
	ck_assert_int_eq(w->attr.ctime_ns, n->ctime);
}

static void compare_deep(uint64_t ino)
{
	const struct node *n = &nodes[ino];
	PbMeta__ListxattrReply list;
	PbMeta__ReaddirReply dir;
	ProtobufCBinaryData value;
	unsigned count = 0;
	const void *data;
	size_t bytes;

	if (n->type == 'f') {
		ck_assert_int_eq(do_read(w, &root, ino, 0, UINT32_MAX, &data, &bytes), 0);
		ck_assert_uint_eq(bytes, n->size);
		ck_assert_mem_eq(data, n->data, bytes);
	}
	for (unsigned i = 0; i < XATTR_COUNT; i++) {
		int r = do_getxattr(w, &root, ino, xattr_names[i], &value);

		ck_assert_int_eq(r, n->xattr[i] >= 0 ? 0 : -ENODATA);
		ck_assert(r < 0 || value.len == (size_t)n->xattr[i]);
		count += n->xattr[i] >= 0;
	}
	ck_assert_int_eq(do_listxattr(w, &root, ino, &list), 0);
	ck_assert_uint_eq(list.n_names, count);
	if (n->type != 'd')
		return;
	ck_assert_int_eq(do_lookup(w, &root, ino, ".."),
			 n->links > 0 || node_of(n->parent) ? 0 : -ESTALE);
	ck_assert_int_eq(do_readdir(w, &root, ino, "", 0, true, &dir), 0);
	ck_assert(dir.end);
	ck_assert_uint_eq(dir.n_entries, count_entries(ino, false));
	for (size_t i = 0; i < dir.n_entries; i++) {
		unsigned name = 0;
		const struct entry *e;

		while (strcmp(names[name], dir.entries[i]->name) != 0)
			ck_assert_uint_lt(++name, NAME_COUNT);
		e = entry_of(ino, name);
		ck_assert_ptr_nonnull(e);
		ck_assert_uint_eq(e->ino, dir.entries[i]->ino);
		ck_assert_uint_eq(e->ino, dir.entries[i]->attr->ino);
	}
}

static void compare_all(void)
{
	for (uint64_t ino = 1; ino < w->next_ino; ino++) {
		compare_node(ino);
		if (node_of(ino))
			compare_deep(ino);
	}
	check_world(w);
}

/* -- one random step -------------------------------------------------------------------- */

static unsigned alive_count(void)
{
	unsigned count = 0;

	for (uint64_t ino = 1; ino < w->next_ino; ino++)
		count += nodes[ino].alive;
	return count;
}

/* Mostly one that exists, and of the wanted type (0: any). */
static uint64_t pick(char type)
{
	uint64_t found = 1;
	unsigned count = 0;

	if (below(100) == 0)
		return 1 + below((unsigned)w->next_ino);
	for (uint64_t ino = 1; ino < w->next_ino; ino++)
		if (nodes[ino].alive && (type == 0 || nodes[ino].type == type) &&
		    below(++count) == 0)
			found = ino;
	return found;
}

static unsigned pick_perm(void)
{
	static const unsigned perms[] = {0777,  0755,  0700,  0666, 0644, 0600, 01777, 02775,
					 02770, 06755, 04711, 0070, 0007, 0500, 02644, 0};

	return perms[below(below(2) ? 3 : GX_COUNT_OF(perms))];
}

/* The state first, then the model: it takes the time from there. */
#define SAME(what, state_call, model_call)                                                         \
	do {                                                                                       \
		int got = (state_call);                                                            \
		int want = (model_call);                                                           \
		ck_assert_msg(got == want, "%s: state %d, model %d", what, got, want);             \
	} while (0)

static void step_make(const struct who *who, uint64_t dir, unsigned name, unsigned perm)
{
	static const char kinds[] = "dddlpcff";
	char kind = kinds[below(8)];
	uint64_t ino = w->next_ino;
	int r;

	if (alive_count() > ALIVE_MAX)
		return;
	if (kind == 'd')
		r = do_mkdir(w, who, dir, names[name], perm);
	else if (kind == 'l')
		r = do_symlink(w, who, dir, names[name], "target");
	else if (kind == 'f')
		r = below(2) ? do_create(w, who, dir, names[name], perm)
			     : do_make(w, who, dir, names[name], S_IFREG | perm);
	else
		r = do_make(w, who, dir, names[name], (kind == 'p' ? S_IFIFO : S_IFCHR) | perm);
	SAME("make", r, model_make(who, dir, name, kind, perm, ino));
	if (r == 0)
		compare_node(ino);
	compare_node(dir);
}

static void step_remove(const struct who *who, uint64_t dir, unsigned name)
{
	const struct entry *e = entry_of(dir, name);
	uint64_t ino = e ? e->ino : 1;
	bool as_dir = e && below(10) ? nodes[ino].type == 'd' : below(2);
	int r = do_remove(w, who, dir, names[name], as_dir);

	SAME("remove", r, model_remove(who, dir, name, as_dir));
	compare_node(dir);
	compare_node(ino);
}

static void step_rename(const struct who *who, uint64_t from_dir, unsigned from)
{
	const struct entry *target;
	uint64_t to_dir = below(3) ? pick('d') : from_dir, replaced;
	unsigned to = below(NAME_COUNT), flags = below(2) ? 0 : below(3);
	int r;

	target = entry_of(to_dir, to);
	replaced = target ? target->ino : 1;
	r = do_rename(w, who, from_dir, names[from], to_dir, names[to], flags);
	SAME("rename", r, model_rename(who, from_dir, from, to_dir, to, flags));
	compare_node(from_dir);
	compare_node(to_dir);
	compare_node(replaced);
	target = entry_of(to_dir, to);
	compare_node(target ? target->ino : 1);
}

static void step_content(const struct who *who, uint64_t ino)
{
	static unsigned char data[MODEL_INLINE + 10];
	unsigned bytes = below(8) ? below(300) : below(sizeof(data));
	uint64_t offset = below(3) == 0 ? UINT64_MAX : below(4) ? below(600) : below(9000);
	int r;

	if (below(3) == 0) {
		uint64_t size = below(4) ? below(700) : below(9000);

		r = do_setattr(w, who, ino, SIZE, size, 0);
		SAME("truncate", r, model_truncate(who, ino, size));
	} else {
		memset(data, (int)below(256), sizeof(data));
		r = do_write(w, who, ino, offset, data, bytes, 0);
		SAME("write", r, model_write(who, ino, offset, data, bytes));
	}
	compare_node(ino);
}

static void step_attributes(const struct who *who, uint64_t ino)
{
	static const unsigned ids[] = {0, 100, 101, 102, 200};
	unsigned perm = pick_perm(), id = ids[below(GX_COUNT_OF(ids))];

	switch (below(5)) {
	case 0:
		SAME("chmod", do_chmod(w, who, ino, perm), model_chmod(who, ino, perm));
		break;
	case 1:
		SAME("chown", do_setattr(w, who, ino, UID, id, 0),
		     model_chown(who, ino, id, false));
		break;
	case 2:
		SAME("chgrp", do_setattr(w, who, ino, GID, id, 0), model_chown(who, ino, id, true));
		break;
	case 3:
		SAME("utimes", do_setattr(w, who, ino, ATIME | MTIME, perm, 0),
		     model_utimes(who, ino, false, perm));
		break;
	default:
		SAME("touch", do_setattr(w, who, ino, ATIME_NOW | MTIME_NOW, 0, 0),
		     model_utimes(who, ino, true, 0));
		break;
	}
	compare_node(ino);
}

static void step_xattr(const struct who *who, uint64_t ino)
{
	static const unsigned flags[] = {0, 0, 1, 2, 4};
	static unsigned char value[70];
	unsigned which = below(XATTR_COUNT), flag = flags[below(5)];
	int bytes = flag == 4 ? 0 : (int)below(sizeof(value));
	int r = do_setxattr(w, who, ino, xattr_names[which], value, (size_t)bytes, flag);

	SAME("setxattr", r, model_setxattr(who, ino, which, bytes, flag));
	compare_node(ino);
}

static void step_open_close(uint64_t ino)
{
	struct node *n = node_of(ino);

	if (!n || n->type == 'l')
		return;
	if (n->open == 0 || below(3) == 0) {
		n->open++;
		w->open[ino]++;
		return;
	}
	w->open[ino]--;
	if (--n->open == 0 && n->links == 0) {
		do_reap(w, ino);
		n->alive = false;
	}
	compare_node(ino);
}

static void step_look(const struct who *who, uint64_t dir, unsigned name)
{
	const struct entry *e = entry_of(dir, name);
	unsigned rw = 1 + below(3);
	uint64_t ino;
	const struct node *n;
	int expected = enter(who, dir);
	int r = do_lookup(w, who, dir, names[name]);

	SAME("lookup", r, expected < 0 ? expected : e ? 0 : -ENOENT);
	if (r == 0)
		ck_assert_uint_eq(w->attr.ino, e->ino);
	ino = pick(0);
	n = node_of(ino);
	if (!n)
		expected = -ESTALE;
	else if (n->type == 'l')
		expected = -ELOOP;
	else if (n->type == 'd' && (rw & 2))
		expected = -EISDIR;
	else
		expected = allowed(who, n, (rw & 1 ? 4 : 0) | (rw & 2)) ? 0 : -EACCES;
	SAME("open", do_may_open(w, who, ino, rw), expected);
}

static void step(void)
{
	const struct who *who = people[below(GX_COUNT_OF(people))];
	uint64_t dir = pick('d');
	unsigned name = below(NAME_COUNT), kind = below(16);

	/* What goes or moves is mostly there. */
	for (unsigned i = below(64); kind >= 6 && kind <= 9 && below(8) && i < ENTRIES_MAX; i++)
		if (entries[i].used) {
			dir = entries[i].dir;
			name = entries[i].name;
			break;
		}
	switch (kind) {
	case 0:
	case 1:
	case 2:
	case 3:
		step_make(who, dir, name, pick_perm());
		break;
	case 4:
	case 5: {
		uint64_t ino = pick(below(5) ? 'f' : 0);

		SAME("link", do_link(w, who, ino, dir, names[name]),
		     model_link(who, ino, dir, name));
		compare_node(ino);
		compare_node(dir);
		break;
	}
	case 6:
	case 7:
		step_remove(who, dir, name);
		break;
	case 8:
	case 9:
		step_rename(who, dir, name);
		break;
	case 10:
	case 11:
		step_content(who, pick(below(8) ? 'f' : 0));
		break;
	case 12:
		step_attributes(who, pick(0));
		break;
	case 13:
		step_xattr(who, pick(0));
		break;
	case 14:
		step_open_close(pick(below(4) ? 'f' : 0));
		break;
	default:
		step_look(who, dir, name);
		break;
	}
}

START_TEST(state_and_model_agree_and_replay_gives_the_same_bytes)
{
	struct world *other;

	random_state = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(_i + 1);
	nodes = calloc(NODES_MAX, sizeof(*nodes));
	memset(entries, 0, sizeof(entries));
	w = world_new_empty(_i % 3, 1 << 14);
	world_format(w);
	nodes[1] = (struct node){.alive = true,
				 .type = 'd',
				 .perm = 0755,
				 .links = 1,
				 .parent = 1,
				 .atime = 1000,
				 .mtime = 1000,
				 .ctime = 1000,
				 .xattr = {-1, -1, -1}};
	SAME("chmod", do_chmod(w, &root, 1, 0777), model_chmod(&root, 1, 0777));
	for (unsigned i = 0; i < OPS_PER_RUN && w->next_ino + 1 < NODES_MAX; i++) {
		step();
		if (below(_i % 3 == 2 ? 40 : 10) == 0)
			world_sync(w);
		if (i % 500 == 0)
			compare_all();
	}
	compare_all();
	/* Neither all refused nor all easy. */
	ck_assert_uint_gt(w->index, OPS_PER_RUN / 5);
	for (int writer = 0; writer < 3; writer++) {
		other = world_replay(w, writer);
		assert_same_state(w, other);
		check_world(other);
		world_free(other);
	}
	world_free(w);
	free(nodes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_model");
	TCase *tc = tcase_create("model");
	SRunner *runner = srunner_create(suite);
	const char *runs = getenv("MD_MODEL_RUNS");
	uint64_t count = 6;
	int failed;

	if (runs && gx_parse_u64(runs, &count) < 0)
		return 2;
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, state_and_model_agree_and_replay_gives_the_same_bytes, 0,
			    (int)count);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
