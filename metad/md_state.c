#include "metad/md_state.h"
#include "metad/md_state_impl.h"
#include "common/gx_num.h"

#define COUNTERS_BYTES 16u

/* -- records ---------------------------------------------------------------------------- */

struct md_tag md_tag_of(const struct md_ctx *ctx)
{
	return (struct md_tag){.session = ctx->session, .index = ctx->index};
}

void md_depend(struct md_ctx *ctx, const struct md_tag *tag)
{
	if (tag->index > ctx->depends && tag->session != ctx->session)
		ctx->depends = tag->index;
}

static void touch(struct md_ctx *ctx, uint64_t ino, const char *name)
{
	for (unsigned i = 0; i < ctx->touched_count; i++)
		if (ctx->touched[i].ino == ino && !ctx->touched[i].name && !name)
			return;
	gx_assert(ctx->touched_count < MD_TOUCHED_MAX);
	ctx->touched[ctx->touched_count++] = (struct md_touched){ino, name, false};
}

static struct md_recent *recent_of(struct md_ctx *ctx, uint64_t dir)
{
	return &ctx->state->recent[dir % MD_RECENT_DIRS];
}

void md_names_changed(struct md_ctx *ctx, uint64_t dir)
{
	struct md_recent *recent = recent_of(ctx, dir);

	if (recent->session != ctx->session) {
		recent->foreign = recent->index;
		recent->session = ctx->session;
	}
	recent->index = ctx->index;
}

void md_depend_names(struct md_ctx *ctx, uint64_t dir)
{
	const struct md_recent *recent = recent_of(ctx, dir);
	bool foreign = recent->session != ctx->session;

	ctx->depends = GX_MAX(ctx->depends, foreign ? recent->index : recent->foreign);
}

int md_get(struct md_ctx *ctx, const struct md_key *key, const void **ret_value, size_t *ret_bytes)
{
	struct md_tag tag = {0, 0};
	int r = md_kv_get(ctx->state->kv, key->bytes, key->count, ret_value, ret_bytes, &tag);

	if (r == -ENOENT)
		md_kv_tag(ctx->state->kv, key->bytes, key->count, &tag);
	md_depend(ctx, &tag);
	return r;
}

void md_put(struct md_ctx *ctx, const struct md_key *key, const void *value, size_t bytes,
	    bool keep_tag)
{
	ctx->changed = true;
	md_kv_put(ctx->state->kv, key->bytes, key->count, value, bytes, md_tag_of(ctx), keep_tag);
}

void md_delete(struct md_ctx *ctx, const struct md_key *key)
{
	ctx->changed = true;
	md_kv_delete(ctx->state->kv, key->bytes, key->count, md_tag_of(ctx));
}

static void see(struct md_ctx *ctx, uint64_t ino)
{
	for (unsigned i = 0; i < ctx->seen_count; i++)
		if (ctx->seen[i] == ino)
			return;
	if (ctx->seen_count < MD_SEEN_MAX)
		ctx->seen[ctx->seen_count++] = ino;
	else
		ctx->seen_many = true;
}

int md_get_inode(struct md_ctx *ctx, uint64_t ino, struct md_inode *ret_inode)
{
	const void *value;
	struct md_key key;
	size_t bytes;
	int r;

	see(ctx, ino);
	md_key_inode(&key, ino);
	r = md_get(ctx, &key, &value, &bytes);
	if (r == -ENOENT)
		return -ESTALE;
	if (r == 0)
		r = md_inode_decode(value, bytes, ret_inode);
	return r == 0 && ret_inode->ino != ino ? -EBADMSG : r;
}

void md_put_inode(struct md_ctx *ctx, struct md_inode *inode, bool as_parent)
{
	unsigned char bytes[MD_INODE_BYTES_MAX];
	struct md_key key;
	size_t count;

	inode->version++;
	count = md_inode_encode(inode, bytes);
	md_key_inode(&key, inode->ino);
	touch(ctx, inode->ino, NULL);
	md_put(ctx, &key, bytes, count, as_parent);
}

int md_get_entry(struct md_ctx *ctx, uint64_t parent, const char *name, uint64_t *ret_ino,
		 uint32_t *ret_type)
{
	const void *value;
	struct md_key key;
	size_t bytes;
	int r;

	md_key_entry(&key, parent, name, strlen(name));
	r = md_get(ctx, &key, &value, &bytes);
	return r < 0 ? r : md_entry_decode(value, bytes, ret_ino, ret_type);
}

void md_put_entry(struct md_ctx *ctx, uint64_t parent, const char *name,
		  const struct md_inode *inode)
{
	unsigned char bytes[MD_ENTRY_BYTES];
	struct md_key key;

	md_entry_encode(inode->ino, inode->mode, bytes);
	md_key_entry(&key, parent, name, strlen(name));
	touch(ctx, parent, name);
	md_put(ctx, &key, bytes, sizeof(bytes), false);
}

void md_delete_entry(struct md_ctx *ctx, uint64_t parent, const char *name)
{
	struct md_key key;

	md_key_entry(&key, parent, name, strlen(name));
	touch(ctx, parent, name);
	md_delete(ctx, &key);
}

int md_get_content(struct md_ctx *ctx, uint64_t ino, const void **ret_data, size_t *ret_bytes)
{
	struct md_key key;
	int r;

	md_key_content(&key, ino);
	r = md_get(ctx, &key, ret_data, ret_bytes);
	if (r == -ENOENT) {
		*ret_data = "";
		*ret_bytes = 0;
		return 0;
	}
	return r;
}

void md_put_content(struct md_ctx *ctx, uint64_t ino, const void *data, size_t bytes)
{
	struct md_key key;

	md_key_content(&key, ino);
	if (bytes > 0)
		md_put(ctx, &key, data, bytes, false);
	else
		md_delete(ctx, &key);
}

/* -- rights ----------------------------------------------------------------------------- */

bool md_in_group(const struct md_ctx *ctx, uint32_t gid)
{
	if (ctx->cred->gid == gid)
		return true;
	for (uint32_t i = 0; i < ctx->cred->group_count; i++)
		if (ctx->cred->groups[i] == gid)
			return true;
	return false;
}

bool md_owns(const struct md_ctx *ctx, const struct md_inode *inode)
{
	return ctx->cred->uid == 0 || ctx->cred->uid == inode->uid;
}

int md_get_dir(struct md_ctx *ctx, uint64_t ino, unsigned want, struct md_inode *ret_dir)
{
	int r = md_get_inode(ctx, ino, ret_dir);

	if (r < 0)
		return r;
	if (!S_ISDIR(ret_dir->mode))
		return -ENOTDIR;
	return md_may(ctx, ret_dir, want);
}

/* -- attributes and counters ------------------------------------------------------------ */

void md_fill_attr(const struct md_inode *inode, PbMeta__Attr *attr)
{
	pb_meta__attr__init(attr);
	attr->ino = inode->ino;
	attr->mode = inode->mode;
	attr->nlink = inode->nlink;
	attr->uid = inode->uid;
	attr->gid = inode->gid;
	attr->size = inode->size;
	attr->rdev = inode->rdev;
	attr->atime_ns = inode->atime_ns;
	attr->mtime_ns = inode->mtime_ns;
	attr->ctime_ns = inode->ctime_ns;
	attr->btime_ns = inode->btime_ns;
	attr->generation = inode->generation;
	attr->version = inode->version;
	attr->flags = inode->flags;
}

int md_new_attr(struct md_ctx *ctx, PbMeta__Attr **ret_attr)
{
	PbMeta__Attr *attr = rpc_arena_alloc(ctx->arena, sizeof(*attr));

	if (!attr)
		return -ENOMEM;
	*ret_attr = attr;
	return 0;
}

void md_state_counters(struct md_state *state, struct md_counters *ret_counters)
{
	const void *value;
	struct md_key key;
	size_t bytes;

	*ret_counters = (struct md_counters){0, 0};
	md_key_counters(&key);
	if (md_kv_get(state->kv, key.bytes, key.count, &value, &bytes, NULL) == 0 &&
	    bytes == COUNTERS_BYTES) {
		ret_counters->inodes = gx_get_le64(value);
		ret_counters->inline_bytes = gx_get_le64((const unsigned char *)value + 8);
	}
}

void md_count(struct md_ctx *ctx, int64_t inodes, int64_t inline_bytes)
{
	unsigned char bytes[COUNTERS_BYTES];
	struct md_counters c;
	struct md_key key;

	if (inodes == 0 && inline_bytes == 0)
		return;
	md_state_counters(ctx->state, &c);
	gx_put_le64(bytes, c.inodes + (uint64_t)inodes);
	gx_put_le64(bytes + 8, c.inline_bytes + (uint64_t)inline_bytes);
	md_key_counters(&key);
	md_put(ctx, &key, bytes, sizeof(bytes), true);
}

/* -- the end of an inode ---------------------------------------------------------------- */

struct erase {
	struct md_key keys[MD_XATTRS_PER_INODE_MAX];
	size_t count;
};

static int erase_collect(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
			 size_t value_bytes GX_UNUSED, const struct md_tag *tag GX_UNUSED)
{
	struct erase *erase = arg;

	gx_assert(erase->count < MD_XATTRS_PER_INODE_MAX && key_bytes <= MD_KEY_MAX);
	memcpy(erase->keys[erase->count].bytes, key, key_bytes);
	erase->keys[erase->count++].count = key_bytes;
	return 0;
}

static void erase_xattrs(struct md_ctx *ctx, uint64_t ino)
{
	struct erase erase; /* 20 KiB; in the middle of a change no allocation may fail */
	struct md_key from, to;
	int r;

	erase.count = 0;
	md_key_xattr(&from, ino, NULL, 0);
	md_key_end(&from, &to);
	r = md_kv_scan(ctx->state->kv, from.bytes, from.count, to.bytes, to.count, erase_collect,
		       &erase);
	gx_assert(r == 0);
	for (size_t i = 0; i < erase.count; i++)
		md_delete(ctx, &erase.keys[i]);
}

void md_erase_inode(struct md_ctx *ctx, const struct md_inode *inode,
		    const PbMeta__LayoutRecord *layout)
{
	bool content = (inode->flags & MD_INODE_INLINE) && inode->size > 0;
	struct md_key key;

	if (content) {
		md_key_content(&key, inode->ino);
		md_delete(ctx, &key);
	}
	if (inode->xattrs > 0)
		erase_xattrs(ctx, inode->ino);
	md_drop_layout(ctx, inode->ino, layout);
	md_key_inode(&key, inode->ino);
	touch(ctx, inode->ino, NULL);
	md_delete(ctx, &key);
	md_count(ctx, -1, content ? -(int64_t)inode->size : 0);
}

int md_state_apply(struct md_ctx *ctx, struct md_command *command, bool live,
		   ProtobufCMessage *reply)
{
	static const struct {
		uint16_t method;
		md_apply_fn fn;
	} rows[] = {
		{RPC_SETATTR, md_apply_setattr},
		{RPC_MAKE, md_apply_make},
		{RPC_LINK, md_apply_link},
		{RPC_UNLINK, md_apply_unlink},
		{RPC_RENAME, md_apply_rename},
		{RPC_OPEN, md_apply_open},
		{RPC_WRITE, md_apply_write},
		{RPC_SETXATTR, md_apply_setxattr},
		{RPC_REPORT, md_apply_report},
		{RPC_FORMAT, md_apply_format},
		{RPC_RESERVE, md_apply_reserve},
		{RPC_SESSION_OPEN, md_apply_session_open},
		{RPC_SESSION_END, md_apply_session_end},
		{RPC_REAP, md_apply_reap},
		{RPC_WRITE_BEGIN, md_apply_write_begin},
		{RPC_WRITE_RECOVER, md_apply_write_recover},
		{RPC_COPY_CHANGE, md_apply_copy_change},
		{RPC_TRASH_DONE, md_apply_trash_done},
		{RPC_NODE_BOOT, md_apply_node_boot},
	};

	ctx->cred = &command->cred;
	ctx->session = command->session;
	ctx->time_ns = command->time_ns;
	for (size_t i = 0; i < GX_COUNT_OF(rows); i++)
		if (rows[i].method == command->method->id)
			return rows[i].fn(ctx, command, live, reply);
	return -ENOSYS;
}
