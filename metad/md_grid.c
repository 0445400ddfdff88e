/*
 * What the state holds besides files: the superblock, reserved ids, sessions and the results of
 * their mutations; and the commands metad gives itself.
 */
#include "metad/md_state_impl.h"
#include "common/gx_limits.h"
#include "common/gx_num.h"

/* 1: without objects; 2: ids without lock_epoch, no ACLs. The first Reserve upgrades it. */
#define SUPER_VERSION 3
#define SUPER_BYTES (1u + MD_UUID_BYTES + MD_SECRET_BYTES)
#define IDS_BYTES 24u
#define IDS_BYTES_V2 16u /* without lock_epoch */
#define RESULT_HEADER_BYTES 18u
/* Results removed by one command: no turn is long (rule N17). */
#define END_STEPS 512u
#define SESSION_TEXT_MAX 256u

/* -- superblock, ids ---------------------------------------------------------------------- */

static void put_ids(struct md_ctx *ctx, const struct md_ids *ids)
{
	unsigned char bytes[IDS_BYTES];
	struct md_key key;

	gx_put_le64(bytes, ids->ino_limit);
	gx_put_le64(bytes + 8, ids->session_limit);
	gx_put_le64(bytes + 16, ids->lock_epoch);
	md_key_ids(&key);
	md_put(ctx, &key, bytes, sizeof(bytes), true);
}

static int put_super(struct md_ctx *ctx, const PbMeta__FormatRequest *request)
{
	unsigned char bytes[SUPER_BYTES] = {SUPER_VERSION};
	struct md_key key;

	if (request->secret.len != MD_SECRET_BYTES)
		return -EINVAL;
	gx_put_le64(bytes + 1, request->uuid_low);
	gx_put_le64(bytes + 9, request->uuid_high);
	memcpy(bytes + 1 + MD_UUID_BYTES, request->secret.data, MD_SECRET_BYTES);
	md_key_super(&key);
	md_put(ctx, &key, bytes, sizeof(bytes), false);
	return 0;
}

int md_apply_format(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		    ProtobufCMessage *reply GX_UNUSED)
{
	const PbMeta__FormatRequest *request = (const PbMeta__FormatRequest *)command->request;
	struct md_inode root = {
		.ino = MD_ROOT_INO,
		.mode = S_IFDIR | (request->root_mode & 07777),
		.nlink = 2,
		.uid = request->root_uid,
		.gid = request->root_gid,
		.parent = MD_ROOT_INO,
		.atime_ns = ctx->time_ns,
		.mtime_ns = ctx->time_ns,
		.ctime_ns = ctx->time_ns,
		.btime_ns = ctx->time_ns,
	};
	struct md_super super;
	int r;

	r = md_state_super(ctx->state, &super);
	if (r != -ENOENT)
		return r < 0 ? r : -EEXIST;
	r = put_super(ctx, request);
	if (r < 0)
		return r;
	put_ids(ctx, &(struct md_ids){.ino_limit = MD_ROOT_INO + 1, .session_limit = 1});
	md_put_inode(ctx, &root, false);
	md_count(ctx, 1, 0);
	return 0;
}

void md_state_format(struct md_state *state, uint64_t index, int64_t time_ns)
{
	PbMeta__FormatRequest request = PB_META__FORMAT_REQUEST__INIT;
	unsigned char secret[MD_SECRET_BYTES] = {0};
	struct md_command command = {
		.method = rpc_method_get(RPC_INDEX_FORMAT),
		.time_ns = time_ns,
		.request = &request.base,
	};
	struct md_ctx ctx = {.state = state, .index = index};
	int r;

	request.root_mode = 0755;
	request.secret.data = secret;
	request.secret.len = sizeof(secret);
	r = md_state_apply(&ctx, &command, true, NULL);
	gx_assert(r == 0);
}

int md_state_super(struct md_state *state, struct md_super *ret_super)
{
	const unsigned char *bytes;
	const void *value;
	struct md_key key;
	size_t count;
	int r;

	md_key_super(&key);
	r = md_kv_get(state->kv, key.bytes, key.count, &value, &count, NULL);
	if (r < 0)
		return r;
	bytes = value;
	if (count < 1 || bytes[0] == 0)
		return -EBADMSG;
	if (bytes[0] > SUPER_VERSION)
		return -EPROTONOSUPPORT;
	if (count != SUPER_BYTES)
		return -EBADMSG;
	memcpy(ret_super->uuid, bytes + 1, MD_UUID_BYTES);
	memcpy(ret_super->secret, bytes + 1 + MD_UUID_BYTES, MD_SECRET_BYTES);
	return 0;
}

void md_state_ids(struct md_state *state, struct md_ids *ret_ids)
{
	const void *value;
	struct md_key key;
	size_t bytes;
	int r;

	md_key_ids(&key);
	r = md_kv_get(state->kv, key.bytes, key.count, &value, &bytes, NULL);
	gx_assert(r == 0 && (bytes == IDS_BYTES || bytes == IDS_BYTES_V2));
	ret_ids->ino_limit = gx_get_le64(value);
	ret_ids->session_limit = gx_get_le64((const unsigned char *)value + 8);
	ret_ids->lock_epoch =
		bytes == IDS_BYTES ? gx_get_le64((const unsigned char *)value + 16) : 0;
}

/* From now on there may be what an older metad does not understand (rule N18). */
static int upgrade_super(struct md_ctx *ctx)
{
	unsigned char bytes[SUPER_BYTES];
	const void *value;
	struct md_key key;
	size_t count;
	int r;

	md_key_super(&key);
	r = md_get(ctx, &key, &value, &count);
	if (r < 0)
		return r;
	if (count != SUPER_BYTES)
		return -EBADMSG;
	memcpy(bytes, value, SUPER_BYTES);
	if (bytes[0] < SUPER_VERSION) {
		bytes[0] = SUPER_VERSION;
		md_put(ctx, &key, bytes, sizeof(bytes), false);
	}
	return 0;
}

int md_apply_reserve(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		     ProtobufCMessage *reply GX_UNUSED)
{
	const PbMeta__ReserveRequest *request = (const PbMeta__ReserveRequest *)command->request;
	struct md_ids ids;
	int r;

	r = upgrade_super(ctx);
	if (r < 0)
		return r;
	md_state_ids(ctx->state, &ids);
	/* They only go up: what was promised never to be given again stays so. */
	ids.ino_limit = GX_MAX(ids.ino_limit, request->ino_limit);
	ids.session_limit = GX_MAX(ids.session_limit, request->session_limit);
	ids.lock_epoch = GX_MAX(ids.lock_epoch, request->lock_epoch);
	put_ids(ctx, &ids);
	return 0;
}

/* -- sessions --------------------------------------------------------------------------------- */

int md_apply_session_open(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
			  ProtobufCMessage *reply GX_UNUSED)
{
	const PbMeta__SessionOpenRequest *request =
		(const PbMeta__SessionOpenRequest *)command->request;
	size_t bytes = strlen(request->identity) + 1;
	const void *value;
	struct md_key key;
	size_t value_bytes;

	if (bytes > SESSION_TEXT_MAX)
		return -E2BIG;
	md_key_session(&key, ctx->session);
	if (md_get(ctx, &key, &value, &value_bytes) == 0)
		return -EEXIST;
	md_put(ctx, &key, request->identity, bytes, true);
	return 0;
}

struct end {
	struct md_key keys[END_STEPS];
	size_t count;
};

static int end_collect(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
		       size_t value_bytes GX_UNUSED, const struct md_tag *tag GX_UNUSED)
{
	struct end *end = arg;

	if (end->count == END_STEPS)
		return 1;
	memcpy(end->keys[end->count].bytes, key, key_bytes);
	end->keys[end->count++].count = key_bytes;
	return 0;
}

/*
 * A session ends: itself first, so that nobody comes back to a part of its results, then the
 * results, a piece at a time. What a crash leaves of them is found at the next start
 * (md_state_next_ring).
 */
int md_apply_session_end(struct md_ctx *ctx, struct md_command *command GX_UNUSED,
			 bool live GX_UNUSED, ProtobufCMessage *reply)
{
	PbMeta__SessionEndReply *out = (PbMeta__SessionEndReply *)reply;
	struct md_key from, to;
	struct end *end;
	int r;

	end = malloc(sizeof(*end));
	if (!end)
		return -ENOMEM;
	end->count = 0;
	md_key_replays(&from, ctx->session);
	md_key_end(&from, &to);
	r = md_kv_scan(ctx->state->kv, from.bytes, from.count, to.bytes, to.count, end_collect,
		       end);
	for (size_t i = 0; i < end->count; i++)
		md_delete(ctx, &end->keys[i]);
	free(end);
	out->gone = r == 0;
	md_key_session(&from, ctx->session);
	md_delete(ctx, &from);
	return 0;
}

static int ring_found(void *arg, const void *key, size_t key_bytes GX_UNUSED,
		      const void *value GX_UNUSED, size_t value_bytes GX_UNUSED,
		      const struct md_tag *tag GX_UNUSED)
{
	*(uint64_t *)arg = gx_get_be64((const unsigned char *)key + 2);
	return 1;
}

bool md_state_next_ring(struct md_state *state, uint64_t from, uint64_t *ret_session)
{
	struct md_key first, all, to;

	md_key_replays(&first, from);
	all = first;
	all.count = 2; /* of all sessions */
	md_key_end(&all, &to);
	return md_kv_scan(state->kv, first.bytes, first.count, to.bytes, to.count, ring_found,
			  ret_session) == 1;
}

struct each_session {
	md_session_fn fn;
	void *arg;
};

static int each_session(void *arg, const void *key, size_t key_bytes, const void *value,
			size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	struct each_session *each = arg;
	const char *text = value;

	if (key_bytes != 10 || value_bytes < 2 || strnlen(text, value_bytes) != value_bytes - 1)
		return -EBADMSG;
	return each->fn(each->arg, gx_get_be64((const unsigned char *)key + 2), text);
}

int md_state_each_session(struct md_state *state, md_session_fn fn, void *arg)
{
	struct each_session each = {fn, arg};
	struct md_key from, to;

	md_key_sessions(&from);
	md_key_end(&from, &to);
	return md_kv_scan(state->kv, from.bytes, from.count, to.bytes, to.count, each_session,
			  &each);
}

/* -- results ------------------------------------------------------------------------------------
 */

void md_state_remember(struct md_ctx *ctx, const struct md_command *command, const void *reply,
		       size_t reply_bytes)
{
	unsigned char bytes[RESULT_HEADER_BYTES + MD_RESULT_MAX];
	struct md_key key;

	gx_assert(reply_bytes <= MD_RESULT_MAX);
	gx_put_le64(bytes, command->seq);
	gx_put_le64(bytes + 8, command->check);
	gx_put_le16(bytes + 16, command->method->id);
	memcpy(bytes + RESULT_HEADER_BYTES, reply, reply_bytes);
	md_key_replay(&key, command->session, command->seq);
	md_put(ctx, &key, bytes, RESULT_HEADER_BYTES + reply_bytes, true);
}

int md_state_recall(struct md_state *state, uint64_t session, uint64_t seq,
		    struct md_result *ret_result)
{
	const unsigned char *bytes;
	const void *value;
	struct md_key key;
	size_t count;
	int r;

	md_key_replay(&key, session, seq);
	r = md_kv_get(state->kv, key.bytes, key.count, &value, &count, NULL);
	if (r < 0)
		return r;
	if (count < RESULT_HEADER_BYTES)
		return -EBADMSG;
	bytes = value;
	*ret_result = (struct md_result){
		.seq = gx_get_le64(bytes),
		.check = gx_get_le64(bytes + 8),
		.method = gx_get_le16(bytes + 16),
		.reply = bytes + RESULT_HEADER_BYTES,
		.reply_bytes = count - RESULT_HEADER_BYTES,
	};
	return 0;
}

/* -- orphans --------------------------------------------------------------------------------------
 */

struct orphans {
	uint64_t *inos;
	size_t count, max;
};

static int orphan_collect(void *arg, const void *key, size_t key_bytes, const void *value GX_UNUSED,
			  size_t value_bytes GX_UNUSED, const struct md_tag *tag GX_UNUSED)
{
	struct orphans *orphans = arg;

	if (orphans->count == orphans->max)
		return 1;
	gx_assert(key_bytes == 9);
	orphans->inos[orphans->count++] = gx_get_be64((const unsigned char *)key + 1);
	return 0;
}

size_t md_state_orphans(struct md_state *state, uint64_t *from, uint64_t *ret_inos, size_t max)
{
	struct orphans orphans = {.inos = ret_inos, .max = max};
	struct md_key first, all, to;

	md_key_orphan(&first, *from);
	md_key_orphans(&all);
	md_key_end(&all, &to);
	*from = 0;
	if (md_kv_scan(state->kv, first.bytes, first.count, to.bytes, to.count, orphan_collect,
		       &orphans) == 1)
		*from = ret_inos[orphans.count - 1] + 1;
	return orphans.count;
}

int md_apply_reap(struct md_ctx *ctx, struct md_command *command, bool live GX_UNUSED,
		  ProtobufCMessage *reply GX_UNUSED)
{
	const PbMeta__ReapRequest *request = (const PbMeta__ReapRequest *)command->request;

	return md_state_reap(ctx, request->ino);
}

int md_state_reap(struct md_ctx *ctx, uint64_t ino)
{
	PbMeta__LayoutRecord *layout = NULL;
	struct md_inode inode;
	const void *value;
	struct md_key key;
	size_t bytes;
	bool exists;
	int r;

	md_key_orphan(&key, ino);
	if (md_get(ctx, &key, &value, &bytes) < 0)
		return 0;
	exists = md_get_inode(ctx, ino, &inode) == 0;
	r = exists ? md_load_layout(ctx, &inode, &layout) : 0;
	if (r < 0)
		return r;
	md_delete(ctx, &key);
	if (exists)
		md_erase_inode(ctx, &inode, layout);
	return 0;
}
