/*
 * A gfc that is all of metad in memory, for tests of gfd against real storage nodes (data_node.h):
 * files, leases and recalls of several clients in one process, tickets as metad makes them. It can
 * be told to fail, and counts what it was asked. Include it in one file of a program, which then
 * must not link the real one. Its calls do not allocate, but for fake_recover().
 */
#ifndef TEST_GFD_FAKE_H
#define TEST_GFD_FAKE_H

#include "client/fs/gfd_impl.h"
#include "rpc/rpc_status.h"
#include "tests/lib/data_node.h"
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define RPC_SERVICE_DATA
#include "rpc/rpc_stub.h"

#define FAKE_CLIENTS 3u
#define FAKE_FILES 8u
#define FAKE_NODES 3u
#define FAKE_RAW_SESSION 999u

struct fake_grant {
	enum gfc_mode mode; /* NONE: none */
	bool write;
};

struct fake_file {
	uint8_t content[GX_INLINE_MAX];
	uint64_t size, version, generation, clock;
	uint64_t from; /* what the primary may have instead, until it has been heard of */
	bool is_inline, writing, growing;
	unsigned primary;
	uint64_t copies[FAKE_NODES]; /* their generation */
	struct fake_grant grants[FAKE_CLIENTS];
	/* What was reported. */
	unsigned reports;
	bool grown_synced, changed;
};

struct gfc {
	unsigned index;
	uint64_t session;
	_Atomic bool trusted;
	_Atomic uint64_t syncs;
	struct gfd *data;
};

struct gfc_open {
	struct gfc *gfc;
	uint64_t ino;
	uint32_t flags;
	bool truncate_later;
};

static struct {
	struct gx_env *env;
	struct gx_mutex lock; /* all below but the nodes; before gfd's locks */
	struct gx_cond changed;
	struct data_node nodes[FAKE_NODES];
	bool up[FAKE_NODES];   /* as metad believes */
	bool near[FAKE_NODES]; /* reached by its unix socket */
	struct gfc clients[FAKE_CLIENTS];
	struct fake_file files[FAKE_FILES]; /* inode numbers from 2 on */
	int64_t recall_ns;                  /* then a lease is taken away */
	bool silent;                        /* writers do not tell sizes in time (rule N12) */
	int64_t ticket_ns;                  /* life of file tickets */
	uint64_t asks;
	unsigned leases, attaches, copies_asked;
	/* Fail the next so many. */
	unsigned fail_leases, fail_reports, fail_attaches;
	int fail_err;
	unsigned refuse; /* tickets that are no good, to come */
} grid;

static _Thread_local char fake_text[512];

static void fake_lock(void)
{
	gx_env_mutex_lock(grid.env, &grid.lock);
}

static void fake_unlock(void)
{
	gx_env_cond_broadcast(grid.env, &grid.changed);
	gx_env_mutex_unlock(grid.env, &grid.lock);
}

static struct fake_file *file_of(uint64_t ino)
{
	gx_assert(ino >= 2);
	gx_assert(ino - 2 < FAKE_FILES);
	return &grid.files[ino - 2];
}

/* -- small things ---------------------------------------------------------------------------------
 */

struct gx_env *gfc_env(struct gfc *gfc GX_UNUSED)
{
	return grid.env;
}

const char *gfc_error(void)
{
	return fake_text;
}

int gfc_fail(int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(fake_text, sizeof(fake_text), fmt, args);
	va_end(args);
	return err;
}

uint64_t gfc_session(struct gfc *gfc)
{
	return gfc->session;
}

uint64_t gfc_syncs(struct gfc *gfc)
{
	return atomic_load(&gfc->syncs);
}

int gfc_sync(struct gfc *gfc)
{
	atomic_fetch_add(&gfc->syncs, 1);
	return 0;
}

bool gfc_trusted(struct gfc *gfc)
{
	return atomic_load(&gfc->trusted);
}

void gfc_set_data(struct gfc *gfc, struct gfd *data)
{
	fake_lock();
	gfc->data = data;
	fake_unlock();
}

struct gfc_ref gfc_open_ref(const struct gfc_open *open)
{
	return (struct gfc_ref){open->ino, 7};
}

uint32_t gfc_open_flags(const struct gfc_open *open)
{
	return open->flags;
}

bool gfc_open_truncate_later(const struct gfc_open *open)
{
	return open->truncate_later;
}

static void fake_attr(uint64_t ino, struct gfc_attr *ret_attr)
{
	const struct fake_file *f = file_of(ino);

	*ret_attr = (struct gfc_attr){.ref = {ino, 7},
				      .mode = S_IFREG | 0644,
				      .nlink = 1,
				      .flags = f->is_inline ? GFC_ATTR_INLINE : 0,
				      .size = f->size,
				      .generation = f->generation,
				      .version = f->version};
}

int gfc_open_getattr(struct gfc *gfc, struct gfc_open *open, struct gfc_attr *ret_attr)
{
	const struct fake_file *f = file_of(open->ino);
	struct gfd *asked[FAKE_CLIENTS] = {NULL};
	unsigned reports;
	int64_t deadline_ns = gx_env_now_ns(grid.env) + GX_NSEC_PER_SEC;

	/* Rule N12. */
	fake_lock();
	reports = f->reports;
	for (unsigned i = 0; i < FAKE_CLIENTS; i++)
		if (i != gfc->index && f->grants[i].mode == GFC_MODE_EXCLUSIVE && !grid.silent)
			asked[i] = grid.clients[i].data;
	for (unsigned i = 0; i < FAKE_CLIENTS; i++) {
		if (!asked[i])
			continue;
		gfd_asked(asked[i], open->ino, GFD_ASKED_SIZE, ++grid.asks);
		while (f->reports == reports &&
		       gx_env_cond_wait(grid.env, &grid.changed, &grid.lock, deadline_ns) == 0)
			;
	}
	fake_attr(open->ino, ret_attr);
	fake_unlock();
	return 0;
}

/* -- inline content ---------------------------------------------------------------------------- */

static bool fake_recall(const struct gfc *gfc, uint64_t ino, bool write);
static void fake_take_away(const struct gfc *gfc, uint64_t ino, bool write);

/* Who lets the file grow gives way first, as in metad. */
static void fake_enter(const struct gfc *gfc, uint64_t ino, bool write)
{
	int64_t deadline_ns = gx_env_now_ns(grid.env) + grid.recall_ns;

	while (file_of(ino)->is_inline && fake_recall(gfc, ino, write))
		if (gx_env_cond_wait(grid.env, &grid.changed, &grid.lock, deadline_ns) < 0)
			fake_take_away(gfc, ino, write);
}

ssize_t gfc_read(struct gfc *gfc, struct gfc_open *open, void *buf, size_t bytes, uint64_t offset,
		 struct gfc_attr *ret_attr)
{
	const struct fake_file *f = file_of(open->ino);
	ssize_t n = -EFBIG;

	fake_lock();
	fake_enter(gfc, open->ino, false);
	if (f->is_inline) {
		n = offset < f->size ? (ssize_t)GX_MIN(bytes, f->size - offset) : 0;
		if (n > 0)
			memcpy(buf, f->content + offset, (size_t)n);
	}
	if (ret_attr)
		fake_attr(open->ino, ret_attr);
	fake_unlock();
	return n;
}

static void fake_resize(struct fake_file *f, uint64_t size)
{
	if (size < f->size)
		memset(f->content + size, 0, f->size - size);
	f->size = size;
}

int gfc_write(struct gfc *gfc, struct gfc_open *open, const struct gfc_write *write,
	      uint64_t *ret_offset, struct gfc_attr *ret_attr)
{
	struct fake_file *f = file_of(open->ino);
	size_t bytes = write->bytes;
	uint64_t offset;
	int r = -EFBIG;

	fake_lock();
	fake_enter(gfc, open->ino, true);
	offset = write->append ? f->size : write->offset;
	if (write->within)
		bytes = offset < f->size ? GX_MIN(bytes, f->size - offset) : 0;
	if (f->is_inline && !f->writing && offset + bytes <= GX_INLINE_MAX) {
		r = 0;
		if (bytes > 0) {
			fake_resize(f, GX_MAX(f->size, offset + bytes));
			memcpy(f->content + offset, write->data, bytes);
		}
		f->version++;
		if (ret_offset)
			*ret_offset = offset;
		fake_attr(open->ino, ret_attr);
	}
	fake_unlock();
	return r;
}

int gfc_setattr(struct gfc *gfc, struct gfc_ref ref, struct gfc_open *open GX_UNUSED,
		const struct gfc_change *change, struct gfc_attr *ret_attr)
{
	struct fake_file *f = file_of(ref.ino);
	int r = -EFBIG;

	gx_assert(change->mask == GFC_SET_SIZE);
	fake_lock();
	fake_enter(gfc, ref.ino, true);
	if (f->is_inline && !f->writing && change->size <= GX_INLINE_MAX) {
		r = 0;
		fake_resize(f, change->size);
		f->version++;
		fake_attr(ref.ino, ret_attr);
	}
	fake_unlock();
	return r;
}

/* -- leases ------------------------------------------------------------------------------------ */

static void fake_seal(unsigned node, uint64_t session, uint64_t ino, uint64_t generation,
		      uint64_t base, uint32_t rights, int64_t life_ns, uint8_t *ret_bytes)
{
	struct rpc_file_ticket ticket = {
		.rights = rights,
		.ino = ino,
		.generation = generation,
		.base = base,
		.session = session,
		.size_max = UINT64_C(1) << 40,
		.epoch = 1,
		.expires_ns = gx_env_wall_ns(grid.env) + life_ns,
	};

	gx_assert(rpc_file_ticket_seal(&ticket, grid.nodes[node].node_key, ret_bytes) == 0);
}

static void fake_place(const struct gfc *gfc, uint64_t ino, unsigned node, uint32_t flags,
		       bool write, struct gfc_lease *lease)
{
	const struct fake_file *f = file_of(ino);
	struct gfc_place *place = &lease->places[lease->place_count++];
	uint64_t generation = lease->generation;

	*place = (struct gfc_place){.up = true, .generation = generation, .flags = flags};
	memcpy(place->node, grid.nodes[node].name, sizeof(place->node));
	memcpy(place->host, grid.nodes[node].host, sizeof(place->host));
	place->ticket_bytes = RPC_FILE_TICKET_BYTES;
	if (grid.refuse > 0) {
		grid.refuse--;
		generation += 100;
	}
	fake_seal(node, gfc->session, ino, generation, node == f->primary ? f->from : 0,
		  RPC_FILE_READ | (write ? RPC_FILE_WRITE : 0), grid.ticket_ns, place->ticket);
}

/* The raw way to a node, not gfd's: as metad, which recovers. */
static struct rpc_client *fake_raw(unsigned node)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	unsigned char key[RPC_KEY_BYTES];
	char identity[GX_IDENTITY_MAX], address[GX_ADDR_TEXT_MAX];
	struct rpc_client *client;

	data_node_session(&grid.nodes[node], FAKE_RAW_SESSION, identity, key);
	data_node_address(&grid.nodes[node], false, address);
	options.env = grid.env;
	options.identity = identity;
	options.key = key;
	gx_assert(rpc_endpoint_parse(grid.env, address, false, &options.endpoint, NULL) == 0);
	gx_assert(rpc_client_new(&options, &client) == 0);
	return client;
}

/* The writer has been given up (rule B2): the object moves on, and tells its size. */
static void fake_recover(uint64_t ino)
{
	PbData__DataStatRequest request = PB_DATA__DATA_STAT_REQUEST__INIT;
	struct fake_file *f = file_of(ino);
	const PbData__DataStatReply *answer = NULL;
	uint8_t ticket[RPC_FILE_TICKET_BYTES];
	struct rpc_client *client;
	struct rpc_reply reply;

	f->writing = false;
	if (f->growing) { /* the inline content stays the truth */
		f->growing = false;
		return;
	}
	client = fake_raw(f->primary);
	fake_seal(f->primary, FAKE_RAW_SESSION, ino, f->generation + 1, f->generation,
		  RPC_FILE_READ, GX_NSEC_PER_SEC * 60, ticket);
	request.ticket = (ProtobufCBinaryData){sizeof(ticket), ticket};
	gx_assert(data_call_data_stat(client, &request, NULL, &reply, &answer) == 0);
	f->size = answer->size;
	rpc_reply_fini(&reply);
	rpc_client_free(client);
	f->generation++;
	f->from = f->clock = 0;
	f->copies[f->primary] = f->generation;
}

/* Must this client give way? */
static bool fake_in_way(const struct fake_grant *grant, bool write)
{
	if (grant->mode == GFC_MODE_EXCLUSIVE)
		return true;
	return write && grant->mode == GFC_MODE_READ;
}

static bool fake_recall(const struct gfc *gfc, uint64_t ino, bool write)
{
	struct fake_file *f = file_of(ino);
	bool wait = false;

	for (unsigned i = 0; i < FAKE_CLIENTS; i++) {
		if (i == gfc->index || !fake_in_way(&f->grants[i], write))
			continue;
		/* What was only read ends with its reader. */
		if (!grid.clients[i].data && !f->grants[i].write) {
			f->grants[i].mode = GFC_MODE_NONE;
			continue;
		}
		wait = true;
		gfd_asked(grid.clients[i].data, ino, GFD_ASKED_RECALL, ++grid.asks);
	}
	return wait;
}

static void fake_take_away(const struct gfc *gfc, uint64_t ino, bool write)
{
	struct fake_file *f = file_of(ino);
	bool writers = false, had = false;

	for (unsigned i = 0; i < FAKE_CLIENTS; i++) {
		if (i != gfc->index && fake_in_way(&f->grants[i], write)) {
			had = had || f->grants[i].write;
			f->grants[i] = (struct fake_grant){GFC_MODE_NONE, false};
		}
		writers = writers || f->grants[i].write;
	}
	if (had && !writers)
		fake_recover(ino);
}

static bool fake_others(const struct gfc *gfc, const struct fake_file *f, bool *ret_writer)
{
	bool any = false;

	*ret_writer = false;
	for (unsigned i = 0; i < FAKE_CLIENTS; i++) {
		if (i == gfc->index || f->grants[i].mode == GFC_MODE_NONE)
			continue;
		any = true;
		*ret_writer = *ret_writer || f->grants[i].write;
	}
	return any;
}

static bool fake_avoided(unsigned node, const char *const *avoid, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(grid.nodes[node].name, avoid[i]) == 0)
			return true;
	return false;
}

/* Writing begins (rule B1). */
static int fake_begin(struct fake_file *f, const char *const *avoid, size_t count)
{
	int best = -1;

	for (unsigned i = 0; i < FAKE_NODES; i++) {
		bool has = f->is_inline || f->copies[i] == f->generation;

		if (has && grid.up[i] && best < 0 &&
		    !(f->is_inline && fake_avoided(i, avoid, count)))
			best = (int)i;
	}
	if (best < 0)
		return -EHOSTUNREACH;
	f->writing = true;
	f->primary = (unsigned)best;
	f->growing = f->is_inline;
	f->clock = 0;
	if (f->is_inline)
		f->from = 0;
	else if (f->from == 0)
		f->from = f->generation;
	if (!f->is_inline)
		f->generation++;
	return 0;
}

static void fake_give(struct gfc *gfc, uint64_t ino, bool write, struct gfc_lease *lease)
{
	struct fake_file *f = file_of(ino);
	bool other_writer, others = fake_others(gfc, f, &other_writer);
	struct fake_grant *grant = &f->grants[gfc->index];

	grant->write = grant->write || write;
	if (others && (other_writer || grant->write))
		grant->mode = GFC_MODE_SHARED;
	else
		grant->mode = grant->write ? GFC_MODE_EXCLUSIVE : GFC_MODE_READ;
	lease->mode = grant->mode;
	lease->growing = f->growing;
	/* While it grows the generation is the coming one. */
	lease->generation = f->generation + f->growing;
	lease->report_ms = 50;
	if (f->writing) {
		fake_place(gfc, ino, f->primary, GFC_PLACE_PRIMARY, grant->write, lease);
		return;
	}
	for (unsigned i = 0; i < FAKE_NODES; i++)
		if (f->copies[i] == f->generation && grid.up[i])
			fake_place(gfc, ino, i, 0, false, lease);
}

int gfc_lease(struct gfc *gfc, struct gfc_open *open, const struct gfc_wish *wish,
	      struct gfc_lease *ret_lease)
{
	bool write = wish->write;
	struct fake_file *f = file_of(open->ino);
	int64_t deadline_ns = gx_env_now_ns(grid.env) + grid.recall_ns;
	int r = 0;

	gx_assert(!write || (open->flags & GFC_OPEN_WRITE));
	memset(ret_lease, 0, sizeof(*ret_lease));
	fake_lock();
	grid.leases++;
	if (grid.fail_leases > 0) {
		grid.fail_leases--;
		r = grid.fail_err;
	}
	while (r == 0 && fake_recall(gfc, open->ino, write))
		if (gx_env_cond_wait(grid.env, &grid.changed, &grid.lock, deadline_ns) < 0)
			fake_take_away(gfc, open->ino, write);
	if (r == 0 && write && !f->writing)
		r = fake_begin(f, wish->avoid, wish->avoid_count);
	if (r == 0) {
		fake_attr(open->ino, &ret_lease->attr);
		if (!f->is_inline || write || f->grants[gfc->index].mode != GFC_MODE_NONE)
			fake_give(gfc, open->ino, write, ret_lease);
		if (ret_lease->mode != GFC_MODE_NONE && ret_lease->place_count == 0)
			r = -EHOSTUNREACH;
	}
	fake_unlock();
	return r;
}

static int fake_report(struct gfc *gfc, uint64_t ino, const struct gfc_report *report)
{
	struct fake_file *f = file_of(ino);
	struct fake_grant *grant = &f->grants[gfc->index];
	bool other_writer, gives;

	if (grid.fail_reports > 0) {
		grid.fail_reports--;
		return grid.fail_err;
	}
	if (grant->mode == GFC_MODE_NONE || report->generation != f->generation + f->growing)
		return -ESTALE;
	f->reports++;
	f->changed = f->changed || report->changed;
	if (report->grown && f->growing) {
		f->generation++;
		f->is_inline = f->growing = false;
		f->copies[f->primary] = f->generation;
		f->grown_synced = report->synced;
	}
	if (report->has_size && !f->is_inline) {
		f->from = 0;
		if (report->clock >= f->clock) {
			f->size = report->size;
			f->clock = report->clock;
		}
	}
	f->version++;
	gives = report->mode == GFC_MODE_READ || (report->mode == GFC_MODE_SHARED && f->growing);
	if (gives) {
		bool wrote = grant->write;

		*grant = (struct fake_grant){GFC_MODE_NONE, false};
		GX_IGNORE(fake_others(gfc, f, &other_writer));
		if (wrote && !other_writer) {
			f->writing = f->growing = false;
			if (!f->is_inline)
				f->copies[f->primary] = f->generation;
		}
	} else if (report->mode == GFC_MODE_SHARED) {
		grant->mode = GFC_MODE_SHARED;
	}
	return 0;
}

int gfc_report(struct gfc *gfc, struct gfc_open *open, const struct gfc_report *report,
	       struct gfc_attr *ret_attr)
{
	int r;

	fake_lock();
	r = fake_report(gfc, open->ino, report);
	fake_attr(open->ino, ret_attr);
	fake_unlock();
	return r;
}

int gfc_attach(struct gfc *gfc, const char *node, struct gfc_attach *ret_attach)
{
	for (unsigned i = 0; i < FAKE_NODES; i++) {
		const struct data_node *n = &grid.nodes[i];
		bool fails;

		if (strcmp(n->name, node) != 0)
			continue;
		fake_lock();
		grid.attaches++;
		fails = grid.fail_attaches > 0;
		grid.fail_attaches -= fails;
		fake_unlock();
		if (fails)
			return grid.fail_err;
		memset(ret_attach, 0, sizeof(*ret_attach));
		data_node_session(n, gfc->session, ret_attach->identity, ret_attach->key);
		ret_attach->lifetime_ms = 600000;
		memcpy(ret_attach->host, n->host, sizeof(ret_attach->host));
		if (grid.near[i])
			data_node_address(n, true,
					  ret_attach->addresses[ret_attach->address_count++]);
		data_node_address(n, false, ret_attach->addresses[ret_attach->address_count++]);
		return 0;
	}
	return -ENOENT;
}

ssize_t gfc_where(struct gfc *gfc GX_UNUSED, struct gfc_ref ref, bool wait GX_UNUSED,
		  struct gfc_attr *ret_attr, struct gfc_place *ret_places, size_t max,
		  unsigned *ret_wanted)
{
	const struct fake_file *f = file_of(ref.ino);
	size_t count = 0;

	fake_lock();
	fake_attr(ref.ino, ret_attr);
	for (unsigned i = 0; i < FAKE_NODES && count < max; i++) {
		if (f->copies[i] == 0)
			continue;
		ret_places[count] = (struct gfc_place){
			.up = grid.up[i], .generation = f->copies[i], .flags = GFC_PLACE_STABLE};
		memcpy(ret_places[count].node, grid.nodes[i].name, sizeof(ret_places[count].node));
		memcpy(ret_places[count].host, grid.nodes[i].host, sizeof(ret_places[count].host));
		count++;
	}
	fake_unlock();
	*ret_wanted = 2;
	return (ssize_t)count;
}

int gfc_ask_copy(struct gfc *gfc GX_UNUSED, struct gfc_ref ref GX_UNUSED, const char *host)
{
	gx_assert(host[0] != '\0');
	fake_lock();
	grid.copies_asked++;
	fake_unlock();
	return 0;
}

/* -- for tests --------------------------------------------------------------------------------- */

static void fake_setup(void)
{
	memset(&grid, 0, sizeof(grid));
	grid.env = gx_env_posix();
	ck_assert_int_eq(gx_env_mutex_init(grid.env, &grid.lock), 0);
	ck_assert_int_eq(gx_env_cond_init(grid.env, &grid.changed), 0);
	grid.recall_ns = 10 * GX_NSEC_PER_SEC;
	grid.ticket_ns = 600 * GX_NSEC_PER_SEC;
	for (unsigned i = 0; i < FAKE_NODES; i++) {
		char name[16], host[16];

		snprintf(name, sizeof(name), "fsd%u", i + 1);
		snprintf(host, sizeof(host), "host%u", i + 1);
		data_node_init(&grid.nodes[i], name, host);
	}
	for (unsigned i = 0; i < FAKE_CLIENTS; i++) {
		grid.clients[i].index = i;
		grid.clients[i].session = 10 + i;
		atomic_store(&grid.clients[i].trusted, true);
	}
	for (unsigned i = 0; i < FAKE_FILES; i++)
		grid.files[i].is_inline = true;
}

static void fake_teardown(void)
{
	for (unsigned i = 0; i < FAKE_NODES; i++)
		data_node_fini(&grid.nodes[i]);
	gx_env_cond_fini(grid.env, &grid.changed);
	gx_env_mutex_fini(grid.env, &grid.lock);
}

static void fake_node_up(unsigned node)
{
	data_node_up(&grid.nodes[node]);
	grid.up[node] = true;
}

/* One open file of one client. */
struct fake_open {
	struct gfc_open open;
	struct gfd_file *file;
};

GX_UNUSED static struct gfd *fake_client(unsigned client, const struct gfd_options *options)
{
	struct gfd_options usual = GFD_OPTIONS_INIT;
	struct gfd *gfd;

	usual.host = "";
	ck_assert_int_eq(gfd_new(&grid.clients[client], options ? options : &usual, &gfd), 0);
	return gfd;
}

GX_UNUSED static void fake_open(unsigned client, uint64_t ino, uint32_t flags,
				struct fake_open *ret_open)
{
	struct gfc_attr attr;

	*ret_open = (struct fake_open){.open = {&grid.clients[client], ino, flags, false}};
	fake_lock();
	fake_attr(ino, &attr);
	fake_unlock();
	ck_assert_int_eq(
		gfd_open(grid.clients[client].data, &ret_open->open, &attr, &ret_open->file), 0);
}

GX_UNUSED static int fake_close(struct fake_open *o)
{
	return gfd_close(o->file, &o->open);
}

/* Another copy of a file that nobody writes, fsd to fsd as it were. */
GX_UNUSED static void fake_copy(uint64_t ino, unsigned from, unsigned to)
{
	struct fake_file *f = file_of(ino);
	struct rpc_client *source = fake_raw(from), *target = fake_raw(to);
	uint8_t reading[RPC_FILE_TICKET_BYTES], writing[RPC_FILE_TICKET_BYTES];
	uint8_t *data = malloc(GFD_PIECE_BYTES);

	fake_seal(from, FAKE_RAW_SESSION, ino, f->generation, 0, RPC_FILE_READ,
		  60 * GX_NSEC_PER_SEC, reading);
	fake_seal(to, FAKE_RAW_SESSION, ino, f->generation, 0, RPC_FILE_READ | RPC_FILE_WRITE,
		  60 * GX_NSEC_PER_SEC, writing);
	for (uint64_t at = 0; at < f->size; at += GFD_PIECE_BYTES) {
		PbData__DataReadRequest get = PB_DATA__DATA_READ_REQUEST__INIT;
		PbData__DataWriteRequest put = PB_DATA__DATA_WRITE_REQUEST__INIT;
		struct rpc_call_options in = {.payload_in = data,
					      .payload_in_bytes = GFD_PIECE_BYTES};
		const PbData__DataWriteReply *written;
		const PbData__DataReadReply *got;
		struct iovec iov = {data, 0};
		struct rpc_call_options out = {.payload_out = &iov, .payload_out_count = 1};
		struct rpc_reply reply;

		get.ticket = (ProtobufCBinaryData){sizeof(reading), reading};
		get.offset = put.offset = at;
		get.bytes = GFD_PIECE_BYTES;
		ck_assert_int_eq(data_call_data_read(source, &get, &in, &reply, &got), 0);
		iov.iov_len = reply.payload_bytes;
		rpc_reply_fini(&reply);
		put.ticket = (ProtobufCBinaryData){sizeof(writing), writing};
		ck_assert_int_eq(data_call_data_write(target, &put, &out, &reply, &written), 0);
		rpc_reply_fini(&reply);
	}
	free(data);
	rpc_client_free(source);
	rpc_client_free(target);
	f->copies[to] = f->generation;
}

/* How many bytes from the beginning are `byte`; an assertion for each would take its time. */
GX_UNUSED static size_t run_of(const uint8_t *data, size_t bytes, uint8_t byte)
{
	size_t n = 0;

	while (n < bytes && data[n] == byte)
		n++;
	return n;
}

#endif
