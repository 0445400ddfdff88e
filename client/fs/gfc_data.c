/*
 * What metad says about bytes that are not inline, and the way of its pushes to who has them.
 */
#include "client/fs/gfc_impl.h"
#include "client/fs/gfd.h"
#include "common/gx_secret.h"

/* -- places ----------------------------------------------------------------------------------- */

static int place_from(const PbMeta__Place *pb, struct gfc_place *ret_place)
{
	int r = gx_strcpy(ret_place->node, sizeof(ret_place->node), pb->node);

	if (r == 0)
		r = gx_strcpy(ret_place->host, sizeof(ret_place->host), pb->host);
	if (r < 0 || pb->ticket.len > sizeof(ret_place->ticket))
		return -EPROTO;
	ret_place->up = pb->up;
	ret_place->generation = pb->generation;
	ret_place->flags = pb->flags;
	ret_place->ticket_bytes = pb->ticket.len;
	if (pb->ticket.len > 0)
		memcpy(ret_place->ticket, pb->ticket.data, pb->ticket.len);
	return 0;
}

/* Those that do not fit are further away than the others. */
static int places_from(PbMeta__Place **list, size_t count, struct gfc_place *ret_places, size_t max,
		       size_t *ret_count)
{
	count = GX_MIN(count, max);
	for (size_t i = 0; i < count; i++) {
		int r = place_from(list[i], &ret_places[i]);

		if (r < 0)
			return r;
	}
	*ret_count = count;
	return 0;
}

/* -- calls ------------------------------------------------------------------------------------ */

static int lease_from(struct gfc_call *call, const PbMeta__LeaseReply *answer,
		      struct gfc_lease *ret_lease)
{
	int r = gfc_learn(call, answer->attr, &ret_lease->attr);

	if (r < 0)
		return r;
	if (answer->mode > GFC_MODE_SHARED || (answer->mode > 0 && answer->n_places == 0))
		return -EPROTO;
	ret_lease->mode = (enum gfc_mode)answer->mode;
	ret_lease->generation = answer->generation;
	ret_lease->growing = answer->growing;
	ret_lease->size_max = answer->size_max;
	ret_lease->report_ms = answer->report_ms;
	return places_from(answer->places, answer->n_places, ret_lease->places, GFC_PLACES_MAX,
			   &ret_lease->place_count);
}

static int lost(void)
{
	return gfc_fail(-ESTALE, "the open file was lost in a restart of metad");
}

int gfc_lease(struct gfc *gfc, struct gfc_open *open, const struct gfc_wish *wish,
	      struct gfc_lease *ret_lease)
{
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;
	const PbMeta__LeaseReply *answer;
	struct gfc_call call;
	int r;

	if (gfc_open_lost(gfc, open))
		return lost();
	gfc_push_wait(gfc);
	gfc_call_init(&call, gfc);
	request.handle = open->handle;
	request.ino = open->ref.ino;
	request.write = wish->write;
	request.host = (char *)(wish->host ? wish->host : "");
	request.avoid = (char **)wish->avoid;
	request.n_avoid = wish->avoid_count;
	request.unreached = wish->unreached;
	r = meta_call_lease(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = lease_from(&call, answer, ret_lease);
	r = gfc_call_end(&call, r);
	return gfc_open_refused(gfc, open, wish->write ? GFC_OPEN_WRITE : GFC_OPEN_READ, r);
}

int gfc_report(struct gfc *gfc, struct gfc_open *open, const struct gfc_report *report,
	       struct gfc_attr *ret_attr)
{
	struct gfc_cache_change change = {.inos = {open->ref.ino}, .attr = ret_attr};
	PbMeta__ReportRequest request = PB_META__REPORT_REQUEST__INIT;
	const PbMeta__ReportReply *answer;
	struct gfc_call call;
	int r;

	if (gfc_open_lost(gfc, open))
		return lost();
	gfc_call_init(&call, gfc);
	request.handle = open->handle;
	request.ino = open->ref.ino;
	request.generation = report->generation;
	request.has_size = report->has_size;
	request.size = report->size;
	request.clock = report->clock;
	request.changed = report->changed;
	request.grown = report->grown;
	request.synced = report->synced;
	request.mode = report->mode;
	request.asked = report->asked;
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_REPORT, &request.base,
			     offsetof(PbMeta__ReportReply, done));
	if (r == 0)
		r = meta_call_report(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_attr_from(answer->attr, ret_attr);
	gfc_changed(&call, r, &change);
	return gfc_call_end(&call, r);
}

static int attach_from(const PbMeta__AttachReply *answer, struct gfc_attach *ret_attach)
{
	const PbMeta__Place *place = answer->place;
	int r;

	if (!place || answer->key.len != RPC_KEY_BYTES)
		return -EPROTO;
	memcpy(ret_attach->key, answer->key.data, RPC_KEY_BYTES);
	ret_attach->lifetime_ms = answer->lifetime_ms;
	r = gx_strcpy(ret_attach->identity, sizeof(ret_attach->identity), answer->ticket);
	if (r == 0)
		r = gx_strcpy(ret_attach->host, sizeof(ret_attach->host), place->host);
	ret_attach->address_count = GX_MIN(place->n_addresses, GFC_ADDRESSES_MAX);
	for (size_t i = 0; r == 0 && i < ret_attach->address_count; i++)
		r = gx_strcpy(ret_attach->addresses[i], GX_ADDR_TEXT_MAX, place->addresses[i]);
	return r < 0 ? -EPROTO : 0;
}

int gfc_attach(struct gfc *gfc, const char *node, struct gfc_attach *ret_attach)
{
	PbMeta__AttachRequest request = PB_META__ATTACH_REQUEST__INIT;
	const PbMeta__AttachReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.node = (char *)node;
	r = meta_call_attach(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0) {
		r = attach_from(answer, ret_attach);
		gx_wipe(answer->key.data, answer->key.len);
	}
	return gfc_call_end(&call, r);
}

ssize_t gfc_where(struct gfc *gfc, struct gfc_ref ref, bool wait, struct gfc_attr *ret_attr,
		  struct gfc_place *ret_places, size_t max, unsigned *ret_wanted)
{
	PbMeta__WhereRequest request = PB_META__WHERE_REQUEST__INIT;
	const PbMeta__WhereReply *answer;
	struct gfc_call call;
	size_t count = 0;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	request.wait = wait;
	r = meta_call_where(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_learn(&call, answer->attr, ret_attr);
	if (r == 0)
		r = places_from(answer->places, answer->n_places, ret_places, max, &count);
	if (r == 0)
		*ret_wanted = answer->wanted;
	r = gfc_call_end(&call, r);
	return r < 0 ? r : (ssize_t)count;
}

int gfc_ask_copy(struct gfc *gfc, struct gfc_ref ref, const char *host)
{
	PbMeta__CacheRequest request = PB_META__CACHE_REQUEST__INIT;
	const PbMeta__CacheReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	request.host = (char *)host;
	r = meta_call_cache(gfc->client, &request, &call.options, &call.reply, &answer);
	return gfc_call_end(&call, r);
}

bool gfc_trusted(struct gfc *gfc)
{
	return gfc->cache && gfc_cache_trusted(gfc->cache);
}

/* -- pushes ----------------------------------------------------------------------------------- */

#define FORGET_RECALL 8u
#define FORGET_SIZE 16u

void gfc_set_data(struct gfc *gfc, struct gfd *data)
{
	gx_env_mutex_lock(gfc->env, &gfc->data_lock);
	gfc->data = data;
	gx_env_mutex_unlock(gfc->env, &gfc->data_lock);
}

void gfc_data_obey(struct gfc *gfc, const PbMeta__ForgetRequest *forget)
{
	gx_env_mutex_lock(gfc->env, &gfc->data_lock);
	if (gfc->data && forget->all)
		gfd_forget(gfc->data, 0);
	for (size_t i = 0; gfc->data && i < forget->n_items; i++) {
		const PbMeta__Forget *item = forget->items[i];

		if (item->what & GFC_FORGET_ATTR)
			gfd_forget(gfc->data, item->ino);
		if (item->what & (FORGET_RECALL | FORGET_SIZE))
			gfd_asked(gfc->data, item->ino, item->what, item->ask);
	}
	gx_env_mutex_unlock(gfc->env, &gfc->data_lock);
}

void gfc_set_told(struct gfc *gfc, gfc_told_fn fn, void *arg)
{
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	gfc->predicts = gfc->predicts || fn;
	gfc->told_fn = fn;
	gfc->told_arg = arg;
	while (!fn && gfc->telling > 0)
		GX_IGNORE(gx_env_cond_wait(gfc->env, &gfc->wake, &gfc->lock, GX_FOREVER));
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

void gfc_tell(struct gfc *gfc, const PbMeta__ForgetRequest *forget)
{
	gfc_told_fn fn;
	void *arg;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	fn = gfc->told_fn;
	arg = gfc->told_arg;
	gfc->telling += fn != NULL;
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	if (!fn)
		return;
	fn(arg, forget);
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	gfc->telling--;
	gx_env_cond_broadcast(gfc->env, &gfc->wake);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

int64_t gfc_keep_name(struct gfc *gfc, struct gfc_ref dir, const char *name, uint64_t ino)
{
	return gfc->cache ? gfc_cache_keep_name(gfc->cache, dir.ino, name, ino) : 0;
}

int64_t gfc_keep_attr(struct gfc *gfc, const struct gfc_attr *attr)
{
	return gfc->cache ? gfc_cache_keep_attr(gfc->cache, attr->ref.ino, attr->version) : 0;
}

void gfc_data_reset(struct gfc *gfc)
{
	gx_env_mutex_lock(gfc->env, &gfc->data_lock);
	if (gfc->data)
		gfd_forget(gfc->data, 0);
	gx_env_mutex_unlock(gfc->env, &gfc->data_lock);
	gfc_tell(gfc, NULL);
}

void gfc_data_leases(struct gfc *gfc, PbMeta__OpenFile *files, size_t count)
{
	gx_env_mutex_lock(gfc->env, &gfc->data_lock);
	for (size_t i = 0; gfc->data && i < count; i++) {
		bool write = false;

		files[i].lease =
			gfd_lease_of(gfc->data, files[i].ino, &write, &files[i].lease_generation);
		files[i].lease_write = write;
	}
	gx_env_mutex_unlock(gfc->env, &gfc->data_lock);
}
