/*
 * Copies, objects being written, trash: the records and the commands that change them.
 *
 * Every command looks and judges first; nothing fails after the first change. A command about what
 * is not true any more is no error: between a node's word and its command other commands may have
 * come. It then does nothing and says so.
 */
#include "metad/md_layout.h"
#include "common/gx_broken.h"
#include "common/gx_num.h"
#include "metad/md_state_impl.h"

#define LAYOUT_VERSION 1u
/* Names, numbers and tags of all copies, and some more. */
#define COPY_BYTES_MAX 112u
#define LAYOUT_BYTES_MAX (MD_COPIES_MAX * COPY_BYTES_MAX + 256u)
static_assert(MD_NODE_NAME_MAX + 48 <= COPY_BYTES_MAX, "a packed copy fits");

static char no_primary[] = "";

/* -- reading ------------------------------------------------------------------------------ */

PbMeta__CopyRecord *md_layout_find(const PbMeta__LayoutRecord *layout, const char *node)
{
	for (size_t i = 0; i < layout->n_copies; i++)
		if (strcmp(layout->copies[i]->node, node) == 0)
			return layout->copies[i];
	return NULL;
}

/* What every layout of ours fulfils. */
static bool layout_valid(const PbMeta__LayoutRecord *layout)
{
	bool has_primary = layout->primary[0] != '\0';

	if (layout->n_copies > MD_COPIES_MAX || strlen(layout->primary) > MD_NODE_NAME_MAX ||
	    has_primary != (layout->writing != 0 || layout->from_generation != 0) ||
	    (layout->growing && layout->writing == 0) || layout->writing > layout->last_generation)
		return false;
	for (size_t i = 0; i < layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = layout->copies[i];

		if (md_node_name_check(copy->node) < 0 || copy->generation == 0 ||
		    copy->generation > layout->last_generation ||
		    (copy->flags & ~MD_COPY_FLAGS) != 0 ||
		    md_layout_find(layout, copy->node) != copy)
			return false;
	}
	return true;
}

int md_layout_decode(const void *bytes, size_t byte_count, struct rpc_arena *arena,
		     PbMeta__LayoutRecord **ret_layout)
{
	PbMeta__LayoutRecord *layout;
	ProtobufCMessage *message;
	int r;

	r = rpc_arena_unpack(arena, &pb_meta__layout_record__descriptor, bytes, byte_count,
			     &message);
	if (r < 0)
		return r == -EPROTO ? -EBADMSG : -ENOMEM;
	layout = (PbMeta__LayoutRecord *)message;
	if (layout->version > LAYOUT_VERSION)
		return -EPROTONOSUPPORT;
	if (layout->version == 0 || !layout_valid(layout))
		return -EBADMSG;
	*ret_layout = layout;
	return 0;
}

int md_layout_get(struct md_ctx *ctx, uint64_t ino, PbMeta__LayoutRecord **ret)
{
	const void *value;
	struct md_key key;
	size_t bytes;
	int r;

	md_key_layout(&key, ino);
	r = md_get(ctx, &key, &value, &bytes);
	if (r == -ENOENT) {
		*ret = NULL;
		return 0;
	}
	return r < 0 ? r : md_layout_decode(value, bytes, ctx->arena, ret);
}

static bool has_layout(const struct md_inode *inode)
{
	return S_ISREG(inode->mode) &&
	       (inode->flags & (MD_INODE_INLINE | MD_INODE_WRITING)) != MD_INODE_INLINE;
}

int md_load_layout(struct md_ctx *ctx, const struct md_inode *inode,
		   PbMeta__LayoutRecord **ret_layout)
{
	int r;

	*ret_layout = NULL;
	if (!has_layout(inode))
		return 0;
	r = md_layout_get(ctx, inode->ino, ret_layout);
	if (r < 0)
		return r;
	if (!*ret_layout || ((*ret_layout)->writing != 0) != !!(inode->flags & MD_INODE_WRITING) ||
	    (*ret_layout)->growing != !!(inode->flags & MD_INODE_INLINE))
		return -EBADMSG;
	return 0;
}

unsigned md_ncopy(const struct md_inode *inode)
{
	return inode->ncopy > 0 ? inode->ncopy : 1;
}

static bool is_primary(const PbMeta__LayoutRecord *layout, const PbMeta__CopyRecord *copy)
{
	return strcmp(layout->primary, copy->node) == 0;
}

bool md_copy_current(const struct md_inode *inode, const PbMeta__LayoutRecord *layout,
		     const PbMeta__CopyRecord *copy)
{
	return copy->generation == inode->generation &&
	       (!(copy->flags & MD_COPY_STALE) || GX_BROKEN(209)) &&
	       (layout->writing == 0 || is_primary(layout, copy));
}

uint64_t md_copy_base(const PbMeta__LayoutRecord *layout, const PbMeta__CopyRecord *copy)
{
	return is_primary(layout, copy) ? layout->from_generation : 0;
}

/* One that has the bytes and is there to stay. */
static bool copy_counts(const struct md_inode *inode, const PbMeta__LayoutRecord *layout,
			const PbMeta__CopyRecord *copy)
{
	return md_copy_current(inode, layout, copy) &&
	       !(copy->flags & (MD_COPY_CACHE | MD_COPY_BAD));
}

unsigned md_layout_count(const struct md_inode *inode, const PbMeta__LayoutRecord *layout)
{
	unsigned count = 0;

	for (size_t i = 0; i < layout->n_copies; i++)
		count += copy_counts(inode, layout, layout->copies[i]);
	return count;
}

bool md_layout_balanced(const struct md_inode *inode, const PbMeta__LayoutRecord *layout)
{
	if (layout->writing != 0)
		return true;
	for (size_t i = 0; i < layout->n_copies; i++)
		if (!md_copy_current(inode, layout, layout->copies[i]) ||
		    (layout->copies[i]->flags & MD_COPY_BAD))
			return false;
	return md_layout_count(inode, layout) == md_ncopy(inode);
}

uint64_t md_next_generation(const struct md_inode *inode, const PbMeta__LayoutRecord *layout)
{
	return GX_MAX(inode->generation, layout ? layout->last_generation : 0) + 1;
}

/* -- changing ----------------------------------------------------------------------------- */

static void add_news(struct md_object_news *news, uint64_t ino)
{
	if (news->count < MD_NEWS_MAX)
		news->inos[news->count++] = ino;
	else
		news->many = true;
}

void md_balance(struct md_ctx *ctx, const struct md_inode *inode,
		const PbMeta__LayoutRecord *layout)
{
	bool want = layout && !md_layout_balanced(inode, layout);
	const void *value;
	struct md_key key;
	size_t bytes;
	bool have;

	md_key_unbalanced(&key, inode->ino);
	/* Our own bookkeeping: no answer depends on it. */
	have = md_kv_get(ctx->state->kv, key.bytes, key.count, &value, &bytes, NULL) == 0;
	if (want)
		add_news(&ctx->state->news, inode->ino);
	if (want && !have)
		md_put(ctx, &key, "", 0, true);
	if (!want && have)
		md_delete(ctx, &key);
}

static void put_layout(struct md_ctx *ctx, const struct md_inode *inode,
		       const PbMeta__LayoutRecord *layout)
{
	unsigned char bytes[LAYOUT_BYTES_MAX];
	struct md_key key;

	gx_assert(layout_valid(layout) && has_layout(inode));
	gx_assert(pb_meta__layout_record__get_packed_size(layout) <= sizeof(bytes));
	md_key_layout(&key, inode->ino);
	md_put(ctx, &key, bytes, pb_meta__layout_record__pack(layout, bytes), false);
	md_balance(ctx, inode, layout);
}

static void put_trash(struct md_ctx *ctx, const char *node, uint64_t ino, uint64_t generation)
{
	struct md_key key;

	md_key_trash(&key, node, ino, generation);
	md_put(ctx, &key, "", 0, true);
	ctx->state->news.trash = true;
}

/* What the node has of it is to be deleted. The primary may have one of several. */
static void trash_copy(struct md_ctx *ctx, uint64_t ino, const PbMeta__LayoutRecord *layout,
		       const PbMeta__CopyRecord *copy)
{
	uint64_t base = md_copy_base(layout, copy);

	for (uint64_t g = base > 0 ? base : copy->generation; g <= copy->generation; g++)
		put_trash(ctx, copy->node, ino, g);
}

static void delete_index(struct md_ctx *ctx, const char *node, uint64_t ino)
{
	struct md_key key;

	md_key_copy(&key, node, ino);
	md_delete(ctx, &key);
}

/* The primary was seen with its generation, or there is none any more. */
static void forget_base(PbMeta__LayoutRecord *layout)
{
	layout->from_generation = 0;
	if (layout->writing == 0)
		layout->primary = no_primary;
}

static void remove_copy(struct md_ctx *ctx, uint64_t ino, PbMeta__LayoutRecord *layout,
			PbMeta__CopyRecord *copy, bool trash)
{
	size_t kept = 0;

	if (trash)
		trash_copy(ctx, ino, layout, copy);
	delete_index(ctx, copy->node, ino);
	if (is_primary(layout, copy))
		forget_base(layout);
	for (size_t i = 0; i < layout->n_copies; i++)
		if (layout->copies[i] != copy)
			layout->copies[kept++] = layout->copies[i];
	layout->n_copies = kept;
}

/* Room for one more, before anything is changed. -ENOMEM. */
static int new_copy(struct md_ctx *ctx, PbMeta__LayoutRecord *layout, const char *node,
		    PbMeta__CopyRecord **ret_copy)
{
	PbMeta__CopyRecord *copy = rpc_arena_alloc(ctx->arena, sizeof(*copy));
	PbMeta__CopyRecord **copies =
		rpc_arena_alloc(ctx->arena, (layout->n_copies + 1) * sizeof(*copies));

	if (!copy || !copies)
		return -ENOMEM;
	pb_meta__copy_record__init(copy);
	copy->node = (char *)(uintptr_t)node;
	if (layout->n_copies > 0)
		memcpy(copies, layout->copies, layout->n_copies * sizeof(*copies));
	layout->copies = copies;
	*ret_copy = copy;
	return 0;
}

static void add_copy(struct md_ctx *ctx, uint64_t ino, PbMeta__LayoutRecord *layout,
		     PbMeta__CopyRecord *copy)
{
	struct md_key key;

	layout->copies[layout->n_copies++] = copy;
	md_key_copy(&key, copy->node, ino);
	md_put(ctx, &key, "", 0, true);
}

void md_drop_layout(struct md_ctx *ctx, uint64_t ino, const PbMeta__LayoutRecord *layout)
{
	struct md_key key;

	if (!layout)
		return;
	for (size_t i = 0; i < layout->n_copies; i++) {
		trash_copy(ctx, ino, layout, layout->copies[i]);
		delete_index(ctx, layout->copies[i]->node, ino);
	}
	if (layout->growing)
		put_trash(ctx, layout->primary, ino, layout->writing);
	md_key_layout(&key, ino);
	md_delete(ctx, &key);
	md_balance(ctx, &(struct md_inode){.ino = ino}, NULL);
}

/* A file, and its layout if it has one. -ESTALE, -EINVAL. */
static int get_file(struct md_ctx *ctx, uint64_t ino, struct md_inode *ret_inode,
		    PbMeta__LayoutRecord **ret_layout)
{
	int r = md_get_inode(ctx, ino, ret_inode);

	if (r == 0 && !S_ISREG(ret_inode->mode))
		r = -EINVAL;
	return r < 0 ? r : md_load_layout(ctx, ret_inode, ret_layout);
}

/* -- writing begins ------------------------------------------------------------------------- */

/* A new generation, for the copy of the primary alone (rule B1). */
static void move_on(struct md_inode *inode, PbMeta__LayoutRecord *layout, PbMeta__CopyRecord *copy)
{
	uint64_t generation = md_next_generation(inode, layout);

	if (layout->from_generation == 0)
		layout->from_generation = inode->generation;
	layout->writing = layout->last_generation = generation;
	layout->clock = layout->stable_clock = 0;
	inode->generation = copy->generation = generation;
}

/* A cache copy dies with its generation (rule B11). */
static void drop_old_caches(struct md_ctx *ctx, const struct md_inode *inode,
			    PbMeta__LayoutRecord *layout)
{
	for (size_t i = layout->n_copies; i-- > 0;)
		if ((layout->copies[i]->flags & MD_COPY_CACHE) &&
		    !md_copy_current(inode, layout, layout->copies[i]))
			remove_copy(ctx, inode->ino, layout, layout->copies[i], true);
}

static void begin_object(struct md_ctx *ctx, struct md_inode *inode, PbMeta__LayoutRecord *layout,
			 PbMeta__CopyRecord *copy)
{
	bool seen = md_copy_base(layout, copy) == 0;

	if (seen)
		layout->from_generation = 0;
	layout->primary = copy->node;
	/* If nobody was there since it moved last, it need not move again. */
	if (seen && !GX_BROKEN(201))
		move_on(inode, layout, copy);
	else
		layout->writing = inode->generation;
	copy->flags &= MD_COPY_BAD;
	drop_old_caches(ctx, inode, layout);
}

static int begin_growing(struct md_ctx *ctx, const struct md_inode *inode, const char *primary,
			 PbMeta__LayoutRecord **ret_layout)
{
	PbMeta__LayoutRecord *layout = rpc_arena_alloc(ctx->arena, sizeof(*layout));

	if (!layout)
		return -ENOMEM;
	pb_meta__layout_record__init(layout);
	layout->version = LAYOUT_VERSION;
	layout->writing = layout->last_generation = md_next_generation(inode, NULL);
	layout->primary = (char *)(uintptr_t)primary;
	layout->growing = true;
	*ret_layout = layout;
	return 0;
}

int md_apply_write_begin(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
			 ProtobufCMessage *reply)
{
	const PbMeta__WriteBeginRequest *request =
		(const PbMeta__WriteBeginRequest *)command->request;
	PbMeta__WriteBeginReply *out = (PbMeta__WriteBeginReply *)reply;
	PbMeta__LayoutRecord *layout;
	PbMeta__CopyRecord *copy = NULL;
	struct md_inode inode;
	int r;

	r = md_node_name_check(request->primary);
	if (r == 0)
		r = get_file(ctx, request->ino, &inode, &layout);
	if (r < 0)
		return r;
	if (inode.flags & MD_INODE_WRITING)
		return -EBUSY;
	if (layout) {
		copy = md_layout_find(layout, request->primary);
		if (!copy || !md_copy_current(&inode, layout, copy))
			return -EINVAL;
		begin_object(ctx, &inode, layout, copy);
	} else {
		r = begin_growing(ctx, &inode, request->primary, &layout);
		if (r < 0)
			return r;
	}
	inode.flags |= MD_INODE_WRITING;
	md_put_inode(ctx, &inode, false);
	put_layout(ctx, &inode, layout);
	out->generation = layout->writing;
	out->from_generation = layout->from_generation;
	out->growing = layout->growing;
	return 0;
}

/* -- writing ends --------------------------------------------------------------------------- */

/* The object did not become the content: what is inline stays, under the generation it had got. */
static void give_up_growing(struct md_ctx *ctx, struct md_inode *inode,
			    const PbMeta__LayoutRecord *layout)
{
	inode->generation = layout->last_generation;
	inode->flags &= ~(uint32_t)MD_INODE_WRITING;
	md_drop_layout(ctx, inode->ino, layout);
	md_put_inode(ctx, inode, false);
}

/*
 * The primary is stable if it told so meanwhile, and nothing was written after that; it will not
 * tell again (rule B3).
 */
static void settle(struct md_inode *inode, PbMeta__LayoutRecord *layout)
{
	PbMeta__CopyRecord *copy = md_layout_find(layout, layout->primary);

	if (copy && layout->stable_clock != 0 && layout->stable_clock >= layout->clock)
		copy->flags |= MD_COPY_STABLE;
	layout->stable_clock = 0;
	layout->writing = 0;
	inode->flags &= ~(uint32_t)MD_INODE_WRITING;
	if (layout->from_generation == 0)
		forget_base(layout);
}

int md_apply_write_recover(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
			   ProtobufCMessage *reply)
{
	const PbMeta__WriteRecoverRequest *request =
		(const PbMeta__WriteRecoverRequest *)command->request;
	PbMeta__WriteRecoverReply *out = (PbMeta__WriteRecoverReply *)reply;
	PbMeta__LayoutRecord *layout;
	PbMeta__CopyRecord *copy;
	struct md_inode inode;
	int r;

	r = get_file(ctx, request->ino, &inode, &layout);
	if (r < 0)
		return r;
	if (!(inode.flags & MD_INODE_WRITING))
		return -ESTALE;
	if (request->settle && request->size > MD_OBJECT_BYTES_MAX)
		return -EFBIG;
	if (layout->growing) {
		if (!request->settle)
			return -EINVAL;
		give_up_growing(ctx, &inode, layout);
		out->generation = inode.generation;
		return 0;
	}
	copy = md_layout_find(layout, layout->primary);
	if (!copy)
		return -EBADMSG;
	if (request->settle) {
		if (inode.size != request->size)
			inode.mtime_ns = inode.ctime_ns = ctx->time_ns;
		inode.size = request->size;
		layout->from_generation = 0; /* the primary has told its size */
		settle(&inode, layout);
	} else {
		move_on(&inode, layout, copy);
	}
	md_put_inode(ctx, &inode, false);
	put_layout(ctx, &inode, layout);
	out->generation = inode.generation;
	out->from_generation = layout->from_generation;
	return 0;
}

/* The object is the content from now on (rule N10); nobody has seen another generation of it. */
static void grow_out(struct md_ctx *ctx, struct md_inode *inode, PbMeta__LayoutRecord *layout,
		     PbMeta__CopyRecord *copy)
{
	if (inode->size > 0)
		md_put_content(ctx, inode->ino, NULL, 0);
	md_count(ctx, 0, -(int64_t)inode->size);
	inode->flags &= ~(uint32_t)MD_INODE_INLINE;
	inode->generation = copy->generation = layout->writing;
	layout->growing = false;
	add_copy(ctx, inode->ino, layout, copy);
}

/* Size and time as the writer says: did the inode change? */
static bool take_report(struct md_ctx *ctx, const PbMeta__ReportRequest *request,
			struct md_inode *inode, PbMeta__LayoutRecord *layout)
{
	bool newest = request->has_size && request->clock >= layout->clock;
	bool resized = newest && request->size != inode->size;

	if (newest) {
		layout->clock = request->clock;
		inode->size = request->size;
	}
	/* A size is the primary's word, so it has been there. */
	if (request->has_size)
		layout->from_generation = 0;
	if (!resized && !request->changed)
		return false;
	inode->mtime_ns = inode->ctime_ns = ctx->time_ns;
	if (ctx->cred->uid != 0)
		md_clear_setid(inode);
	return true;
}

int md_apply_report(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		    ProtobufCMessage *reply)
{
	const PbMeta__ReportRequest *request = (const PbMeta__ReportRequest *)command->request;
	PbMeta__ReportReply *out = (PbMeta__ReportReply *)reply;
	bool settles = command->flags & MD_COMMAND_SETTLE;
	PbMeta__LayoutRecord *layout;
	PbMeta__CopyRecord *copy = NULL;
	struct md_inode inode;
	uint64_t clock, base;
	bool changed;
	int r;

	r = get_file(ctx, request->ino, &inode, &layout);
	if (r == 0 && (!(inode.flags & MD_INODE_WRITING) || layout->writing != request->generation))
		r = -ESTALE;
	if (r == 0 && request->has_size && request->size > MD_OBJECT_BYTES_MAX)
		r = -EFBIG;
	if (r == 0)
		r = md_new_attr(ctx, &out->attr);
	if (r == 0 && layout->growing && request->grown)
		r = new_copy(ctx, layout, layout->primary, &copy);
	if (r < 0)
		return r;
	if (layout->growing && !request->grown) {
		/* What the object is like is nobody's business yet. */
		if (settles)
			give_up_growing(ctx, &inode, layout);
		md_fill_attr(&inode, out->attr);
		return 0;
	}
	if (layout->growing)
		grow_out(ctx, &inode, layout, copy);
	clock = layout->clock;
	base = layout->from_generation;
	changed = take_report(ctx, request, &inode, layout);
	if (settles)
		settle(&inode, layout);
	if (changed || settles || copy)
		md_put_inode(ctx, &inode, false);
	/*
	 * A lease given back is no change of the state, but it is not harmless either to do it
	 * again: so it has its place in the log, and a retry finds its answer.
	 */
	if (settles || copy || layout->clock != clock || layout->from_generation != base ||
	    request->mode == 1)
		put_layout(ctx, &inode, layout);
	md_fill_attr(&inode, out->attr);
	return 0;
}

/* -- copies --------------------------------------------------------------------------------- */

#define COPY_THERE 1u
#define COPY_IS_STALE 2u
#define COPY_GONE 3u
#define COPY_DELETE 4u

bool md_layout_in_trash(struct md_ctx *ctx, const char *node, uint64_t ino, uint64_t generation)
{
	const void *value;
	struct md_key key;
	size_t bytes;

	md_key_trash(&key, node, ino, generation);
	return md_get(ctx, &key, &value, &bytes) == 0;
}

/* Are the bytes safe elsewhere? */
static bool another_counts(const struct md_inode *inode, const PbMeta__LayoutRecord *layout,
			   const PbMeta__CopyRecord *but)
{
	for (size_t i = 0; i < layout->n_copies; i++)
		if (layout->copies[i] != but && copy_counts(inode, layout, layout->copies[i]))
			return true;
	return false;
}

/* It is there: so it says after the command, or it is not to be believed (false). */
static int copy_is_there(struct md_ctx *ctx, const PbMeta__CopyChangeRequest *request,
			 struct md_inode *inode, PbMeta__LayoutRecord *layout,
			 protobuf_c_boolean *ret_changed)
{
	PbMeta__CopyRecord *copy = md_layout_find(layout, request->node);
	bool is_new = !copy, is_old = request->generation != inode->generation;
	bool being_written = layout->writing != 0 && strcmp(layout->primary, request->node) == 0;
	/* While it is written nothing is stable, but what is on disk so far is remembered. */
	uint32_t flags = being_written ? request->flags & MD_COPY_BAD : request->flags;
	uint64_t stable = being_written && (request->flags & MD_COPY_STABLE) ? request->clock : 0;
	int r;

	if (layout->growing || request->generation > layout->last_generation ||
	    (copy && request->generation < copy->generation) ||
	    (layout->writing != 0 && !is_old && !being_written) ||
	    (is_new && layout->n_copies == MD_COPIES_MAX) ||
	    md_layout_in_trash(ctx, request->node, inode->ino, request->generation))
		return 0;
	if (is_old && (request->flags & MD_COPY_CACHE)) {
		if (copy)
			remove_copy(ctx, inode->ino, layout, copy, false);
		put_trash(ctx, request->node, inode->ino, request->generation);
		put_layout(ctx, inode, layout);
		return 0;
	}
	*ret_changed = true;
	if (copy && copy->generation == request->generation && copy->flags == flags &&
	    (is_old || layout->from_generation == 0) && stable <= layout->stable_clock)
		return 0;
	if (!is_old)
		layout->stable_clock = GX_MAX(layout->stable_clock, stable);
	if (is_new) {
		r = new_copy(ctx, layout, request->node, &copy);
		if (r < 0)
			return r;
		add_copy(ctx, inode->ino, layout, copy);
	}
	if (is_new || copy->generation != request->generation)
		copy->since_ns = (uint64_t)ctx->time_ns;
	copy->generation = request->generation;
	copy->flags = flags;
	/* The primary has it, or another has it from the primary. */
	if (!is_old)
		forget_base(layout);
	put_layout(ctx, inode, layout);
	return 0;
}

/* Can the grid do without what this copy has? */
static bool dispensable(const struct md_inode *inode, const PbMeta__LayoutRecord *layout,
			const PbMeta__CopyRecord *copy)
{
	if (copy->flags & MD_COPY_CACHE)
		return layout->writing == 0 || !is_primary(layout, copy);
	if (layout->writing != 0)
		return false;
	/* Stale ones are worth something until all wanted ones are there (rule B9). */
	if (!md_copy_current(inode, layout, copy))
		return md_layout_count(inode, layout) >= md_ncopy(inode);
	return another_counts(inode, layout, copy) || GX_BROKEN(229);
}

/* The object on the node is to be deleted, though the layout does not have it. */
static bool trash_unlisted(struct md_ctx *ctx, const PbMeta__CopyChangeRequest *request,
			   const struct md_inode *inode, const PbMeta__LayoutRecord *layout)
{
	if (inode && request->generation >= md_next_generation(inode, layout))
		return false; /* from a later life than ours: not for us to judge (rule N9) */
	if (layout && strcmp(layout->primary, request->node) == 0 &&
	    (layout->growing ? request->generation == layout->writing
			     : layout->from_generation > 0 &&
				       request->generation >= layout->from_generation))
		return false;
	if (!md_layout_in_trash(ctx, request->node, request->ino, request->generation))
		put_trash(ctx, request->node, request->ino, request->generation);
	return true;
}

/* It is stale, gone or to be deleted. */
static bool copy_changes(struct md_ctx *ctx, const PbMeta__CopyChangeRequest *request,
			 struct md_inode *inode, PbMeta__LayoutRecord *layout)
{
	PbMeta__CopyRecord *copy = md_layout_find(layout, request->node);
	bool listed = copy && copy->generation == request->generation;

	if (!listed)
		return request->what == COPY_DELETE && trash_unlisted(ctx, request, inode, layout);
	if (request->what == COPY_GONE) {
		if (layout->writing != 0 && is_primary(layout, copy))
			return false; /* writing has to end first */
		remove_copy(ctx, inode->ino, layout, copy, false);
	} else if (!md_copy_current(inode, layout, copy) && request->what == COPY_IS_STALE) {
		return true;
	} else if (!dispensable(inode, layout, copy)) {
		return false;
	} else if (request->what == COPY_DELETE || (copy->flags & MD_COPY_CACHE)) {
		remove_copy(ctx, inode->ino, layout, copy, true);
	} else {
		copy->flags = (copy->flags | MD_COPY_STALE) & ~MD_COPY_STABLE;
	}
	put_layout(ctx, inode, layout);
	return true;
}

int md_apply_copy_change(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
			 ProtobufCMessage *reply)
{
	const PbMeta__CopyChangeRequest *request =
		(const PbMeta__CopyChangeRequest *)command->request;
	PbMeta__CopyChangeReply *out = (PbMeta__CopyChangeReply *)reply;
	PbMeta__LayoutRecord *layout = NULL;
	struct md_inode inode;
	bool exists;
	int r;

	if (md_node_name_check(request->node) < 0 || request->generation == 0 ||
	    (request->flags & ~MD_COPY_FLAGS) != 0 || request->what < COPY_THERE ||
	    request->what > COPY_DELETE)
		return -EINVAL;
	r = get_file(ctx, request->ino, &inode, &layout);
	if (r < 0 && r != -ESTALE)
		return r;
	exists = r == 0;
	if (!layout) {
		out->changed = request->what == COPY_DELETE &&
			       trash_unlisted(ctx, request, exists ? &inode : NULL, NULL);
		return 0;
	}
	if (request->what == COPY_THERE)
		return copy_is_there(ctx, request, &inode, layout, &out->changed);
	out->changed = copy_changes(ctx, request, &inode, layout);
	return 0;
}

int md_apply_trash_done(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
			ProtobufCMessage *reply GX_UNUSED)
{
	const PbMeta__TrashDoneRequest *request =
		(const PbMeta__TrashDoneRequest *)command->request;
	struct md_key key;

	if (md_node_name_check(request->node) < 0)
		return -EINVAL;
	if (!md_layout_in_trash(ctx, request->node, request->ino, request->generation))
		return 0;
	md_key_trash(&key, request->node, request->ino, request->generation);
	md_delete(ctx, &key);
	return 0;
}

/* -- nodes ---------------------------------------------------------------------------------- */

uint64_t md_layout_boot(struct md_state *state, const char *node)
{
	const void *value;
	struct md_key key;
	size_t bytes;

	md_key_node(&key, node);
	if (md_kv_get(state->kv, key.bytes, key.count, &value, &bytes, NULL) < 0 || bytes != 8)
		return 0;
	return gx_get_be64(value);
}

int md_apply_node_boot(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		       ProtobufCMessage *reply GX_UNUSED)
{
	const PbMeta__NodeBootRequest *request = (const PbMeta__NodeBootRequest *)command->request;
	unsigned char bytes[8];
	struct md_key key;

	if (md_node_name_check(request->node) < 0 || request->boot == 0)
		return -EINVAL;
	if (md_layout_boot(ctx->state, request->node) == request->boot)
		return 0;
	gx_put_be64(bytes, request->boot);
	md_key_node(&key, request->node);
	md_put(ctx, &key, bytes, sizeof(bytes), true);
	return 0;
}
