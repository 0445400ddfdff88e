/*
 * The grid's users. `ls -l` asks for the same few names again and again, so numbers and their
 * names are kept for a minute in a small table. Questions the other way are rare and always asked.
 */
#include "client/fs/gfs_impl.h"
#include "client/fs/gfs_path.h"
#include <unistd.h>

#define RPC_SERVICE_META
#include "rpc/rpc_stub.h"

/* -- asking ------------------------------------------------------------------------------------ */

/* What a failed call has to say becomes this thread's error. */
static int told(int r, struct gx_buf *errors, const struct rpc_reply *reply)
{
	const char *text = errors->bytes > 0 ? gx_buf_text(errors) : NULL;

	if (r == 0)
		return 0;
	if (text)
		return gfc_fail(r, "%.*s", (int)strcspn(text, "\n"), text);
	return gfc_fail(r, "%s", reply->detail[0] ? reply->detail : gx_strerror(r));
}

/* Reply in each case to be ended with rpc_reply_fini(). */
static int ask(struct gfs *fs, const PbMeta__IdsRequest *request, struct rpc_reply *reply,
	       const PbMeta__IdsReply **ret_ids)
{
	struct rpc_call_options options = {0};
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, GX_LOG_LINE_MAX);
	options.errors = &errors;
	rpc_reply_init(reply);
	r = told(meta_call_ids(gfc_rpc(fs->gfc), request, &options, reply, ret_ids), &errors,
		 reply);
	gx_buf_fini(&errors);
	return r;
}

int gfs_statfs(struct gfs *fs, struct gfs_statfs *ret_st)
{
	PbMeta__StatfsRequest request = PB_META__STATFS_REQUEST__INIT;
	struct rpc_call_options options = {0};
	const PbMeta__StatfsReply *answer = NULL;
	struct rpc_reply reply;
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, GX_LOG_LINE_MAX);
	options.errors = &errors;
	rpc_reply_init(&reply);
	r = told(meta_call_statfs(gfc_rpc(fs->gfc), &request, &options, &reply, &answer), &errors,
		 &reply);
	if (r == 0)
		*ret_st = (struct gfs_statfs){
			.inodes = answer->inodes,
			.inline_bytes = answer->inline_bytes,
			.name_max = answer->name_max,
			.capacity_bytes = answer->capacity_bytes,
			.free_bytes = answer->free_bytes,
		};
	rpc_reply_fini(&reply);
	gx_buf_fini(&errors);
	return (int)gfs_result(r, "/");
}

static int copy_name(const char *name, char *buf, size_t bytes)
{
	return gx_strcpy(buf, bytes, name) < 0 ? -ERANGE : 0;
}

/* -- numbers to names ---------------------------------------------------------------------------
 */

static struct gfs_id *slot(struct gfs *fs, uint32_t number, bool group)
{
	return &fs->ids[(number * 2 + group) % GFS_IDS_CACHED];
}

/* True and what is known, if it is. */
static bool cached(struct gfs *fs, uint32_t number, bool group, struct gfs_id *ret_id)
{
	const struct gfs_id *id = slot(fs, number, group);
	bool known;

	gx_env_mutex_lock(fs->env, &fs->lock);
	known = id->until_ns > gx_env_now_ns(fs->env) && id->number == number && id->group == group;
	if (known)
		*ret_id = *id;
	gx_env_mutex_unlock(fs->env, &fs->lock);
	return known;
}

static void keep(struct gfs *fs, struct gfs_id *id)
{
	id->until_ns = gx_env_now_ns(fs->env) + GFS_IDS_NS;
	gx_env_mutex_lock(fs->env, &fs->lock);
	*slot(fs, id->number, id->group) = *id;
	gx_env_mutex_unlock(fs->env, &fs->lock);
}

static int ask_name(struct gfs *fs, uint32_t number, bool group, struct gfs_id *ret_id)
{
	PbMeta__IdsRequest request = PB_META__IDS_REQUEST__INIT;
	struct gfs_id id = {.number = number, .group = group, .none = true};
	const PbMeta__IdsReply *ids;
	struct rpc_reply reply;
	int r;

	*(group ? &request.n_gids : &request.n_uids) = 1;
	*(group ? &request.gids : &request.uids) = &number;
	r = ask(fs, &request, &reply, &ids);
	if (r == 0 && (group ? ids->n_groups : ids->n_users) > 0) {
		id.none = false;
		r = gx_strcpy(id.name, sizeof(id.name),
			      (group ? ids->groups : ids->users)[0]->name);
		if (r < 0)
			r = -EPROTO;
	}
	rpc_reply_fini(&reply);
	if (r < 0)
		return r;
	keep(fs, &id);
	*ret_id = id;
	return 0;
}

static int name_of(struct gfs *fs, uint32_t number, bool group, char *buf, size_t bytes)
{
	struct gfs_id id;
	int r = 0;

	if (!cached(fs, number, group, &id))
		r = ask_name(fs, number, group, &id);
	if (r == 0 && id.none)
		r = -ENOENT;
	if (r == 0)
		r = copy_name(id.name, buf, bytes);
	return r;
}

/* "user 1000: what" */
static int number_result(int result, const char *kind, uint32_t number)
{
	char text[32];

	if (result == 0)
		return 0;
	GX_IGNORE(gx_format(text, sizeof(text), "%s %u", kind, number)); /* fits */
	return (int)gfs_result(result, text);
}

int gfs_user_name(struct gfs *fs, uid_t uid, char *buf, size_t bytes)
{
	return number_result(name_of(fs, uid, false, buf, bytes), "user", uid);
}

int gfs_group_name(struct gfs *fs, gid_t gid, char *buf, size_t bytes)
{
	return number_result(name_of(fs, gid, true, buf, bytes), "group", gid);
}

/* -- names to numbers -----------------------------------------------------------------------------
 */

static int ask_number(struct gfs *fs, const char *name, bool group, uint32_t *ret_number,
		      uint32_t *ret_gid)
{
	PbMeta__IdsRequest request = PB_META__IDS_REQUEST__INIT;
	const PbMeta__IdsReply *ids;
	struct rpc_reply reply;
	char *names[] = {(char *)name}; /* protobuf-c does not know const; it only reads */
	int r;

	*(group ? &request.n_groups : &request.n_users) = 1;
	*(group ? &request.groups : &request.users) = names;
	r = ask(fs, &request, &reply, &ids);
	if (r == 0 && (group ? ids->n_groups : ids->n_users) == 0)
		r = -ENOENT;
	if (r == 0) {
		const PbMeta__Id *id = (group ? ids->groups : ids->users)[0];

		*ret_number = id->id;
		*ret_gid = id->gid;
	}
	rpc_reply_fini(&reply);
	return r;
}

int gfs_user_id(struct gfs *fs, const char *name, uid_t *ret_uid, gid_t *ret_gid)
{
	uint32_t uid, gid;
	int r = ask_number(fs, name, false, &uid, &gid);

	if (r < 0)
		return (int)gfs_result(r, name);
	if (ret_uid)
		*ret_uid = uid;
	if (ret_gid)
		*ret_gid = gid;
	return 0;
}

int gfs_group_id(struct gfs *fs, const char *name, gid_t *ret_gid)
{
	uint32_t gid, none;
	int r = ask_number(fs, name, true, &gid, &none);

	if (r == 0 && ret_gid)
		*ret_gid = gid;
	return (int)gfs_result(r, name);
}

/* -- ourselves ----------------------------------------------------------------------------------
 */

int gfs_whoami(struct gfs *fs, uid_t *ret_uid, gid_t *ret_gid, char *buf, size_t bytes)
{
	PbMeta__IdsRequest request = PB_META__IDS_REQUEST__INIT;
	const PbMeta__IdsReply *ids;
	struct rpc_reply reply;
	int r = ask(fs, &request, &reply, &ids);

	if (r == 0 && !ids->self)
		r = gfc_fail(-EPROTO, "metad did not say who we are");
	if (r == 0 && buf)
		r = copy_name(ids->self->name, buf, bytes);
	if (r == 0 && ret_uid)
		*ret_uid = ids->self->id;
	if (r == 0 && ret_gid)
		*ret_gid = ids->self->gid;
	rpc_reply_fini(&reply);
	return (int)gfs_result(r, "whoami");
}

static bool in_group(const PbMeta__Id *self, uint32_t gid)
{
	bool in = self->gid == gid;

	for (size_t i = 0; i < self->n_gids; i++)
		in = in || self->gids[i] == gid;
	return in;
}

/* The rwx bits that count for us. Root may do anything but run what nobody may run. */
static unsigned rights(const PbMeta__IdsReply *ids, const struct gfc_attr *attr)
{
	bool anybody_runs = S_ISDIR(attr->mode) || (attr->mode & 0111);

	if (ids->self->id == 0)
		return anybody_runs ? 7 : 6;
	if (ids->self->id == attr->uid)
		return attr->mode >> 6 & 7;
	return in_group(ids->self, attr->gid) ? attr->mode >> 3 & 7 : attr->mode & 7;
}

static int access_path(struct gfs *fs, const char *path, int mode)
{
	PbMeta__IdsRequest request = PB_META__IDS_REQUEST__INIT;
	const PbMeta__IdsReply *ids;
	struct rpc_reply reply;
	struct gfc_attr attr;
	unsigned wanted = (unsigned)mode;
	int r;

	if (mode & ~(R_OK | W_OK | X_OK))
		return -EINVAL;
	r = gfs_path_find(fs->gfc, path, true, &attr);
	if (r < 0 || mode == F_OK)
		return r;
	r = ask(fs, &request, &reply, &ids);
	if (r == 0 && (!ids->self || (rights(ids, &attr) & wanted) != wanted))
		r = gfc_fail(-EACCES, "%s", gx_strerror(-EACCES));
	rpc_reply_fini(&reply);
	return r;
}

int gfs_access(struct gfs *fs, const char *path, int mode)
{
	return (int)gfs_path_result(access_path(fs, path, mode), path);
}
