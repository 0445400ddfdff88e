/*
 * md_nodes.c - nodes in an array ordered by name: there are few, they are listed in that order and
 * found by bisection.
 *
 * Silence is measured on a clock of our own that stands still while the loop does: it moves with
 * every call here, except by a step so long that nothing can have been heard meanwhile. What nodes
 * sent during such a step lies in socket buffers and is read next, so the step is left out whole
 * rather than shortened.
 */
#define GX_LOG_COMPONENT "metad.nodes"
#include "metad/md_nodes.h"
#include "common/gx_buf.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_key.h"

/* More than a node that was accepted can take, encoded. */
#define NODE_BYTES_MAX                                                                             \
	(1024u + MD_NODE_ADDRESSES_MAX * (GX_ADDR_TEXT_MAX + 8) +                                  \
	 MD_NODE_ATTRIBUTES_MAX * (MD_NODE_ATTRIBUTE_BYTES_MAX + 8))

struct node {
	PbMeta__Node *info; /* as registered, with the news of the last heartbeat */
	int64_t heard_ns;   /* on the listening clock */
	bool up;
	bool excused;    /* fell silent with many others: gets MD_NODE_MASS_NS more */
	uint64_t choice; /* nodes->choices, if its host has been taken in this choice */
};

struct md_nodes {
	struct gx_env *env;
	int64_t now_ns;      /* of the last call here */
	int64_t listened_ns; /* the listening clock then; starts at 0 */
	struct node **list;  /* by name */
	size_t count, capacity;
	bool mass; /* nodes are excused, and the log has said so */
	uint64_t choices;
	uint64_t changes; /* of who is up */
};

int md_nodes_new(struct gx_env *env, struct md_nodes **ret_nodes)
{
	struct md_nodes *nodes = calloc(1, sizeof(*nodes));

	if (nodes == NULL)
		return -ENOMEM;
	nodes->env = env;
	nodes->now_ns = gx_env_now_ns(env);
	*ret_nodes = nodes;
	return 0;
}

static void node_free(struct node *node)
{
	if (node == NULL)
		return;
	pb_meta__node__free_unpacked(node->info, rpc_heap());
	free(node);
}

void md_nodes_free(struct md_nodes *nodes)
{
	if (nodes == NULL)
		return;
	for (size_t i = 0; i < nodes->count; i++)
		node_free(nodes->list[i]);
	free(nodes->list);
	free(nodes);
}

/* -- listening ----------------------------------------------------------------------- */

static int64_t listened_at(const struct md_nodes *nodes, int64_t now_ns)
{
	int64_t step = now_ns - nodes->now_ns;

	return nodes->listened_ns + (step <= MD_NODE_DEAF_NS ? step : 0);
}

static void move_clock(struct md_nodes *nodes)
{
	int64_t now = gx_env_now_ns(nodes->env);

	nodes->listened_ns = listened_at(nodes, now);
	nodes->now_ns = now;
}

static int64_t silence(const struct node *node, int64_t listened_ns)
{
	/* After a start everybody gets the time to come back. */
	int64_t since = GX_MAX(node->heard_ns, (int64_t)MD_NODE_SILENT_NS);

	return GX_MAX(listened_ns - since, INT64_C(0));
}

static void node_heard(struct md_nodes *nodes, struct node *node)
{
	node->heard_ns = nodes->listened_ns;
	node->excused = false;
	if (node->up)
		return;
	node->up = true;
	nodes->changes++;
	gx_log(NOTICE, "node is up", GX_KS("node", node->info->name),
	       GX_KS("kind", node->info->kind), GX_KX("boot", node->info->boot));
}

static bool is_due(const struct md_nodes *nodes, const struct node *node)
{
	return node->up && !node->excused && silence(node, nodes->listened_ns) >= MD_NODE_SILENT_NS;
}

static bool is_suspect(const struct md_nodes *nodes, const struct node *node)
{
	return node->up && silence(node, nodes->listened_ns) >= MD_NODE_SUSPECT_NS;
}

/* Some node is due. Is it one of many? Then all that are like it wait. */
static void excuse_many(struct md_nodes *nodes)
{
	size_t up = 0, suspect = 0;

	for (size_t i = 0; i < nodes->count; i++) {
		up += nodes->list[i]->up;
		suspect += is_suspect(nodes, nodes->list[i]);
	}
	if (suspect < 2 || 3 * suspect < up)
		return;
	for (size_t i = 0; i < nodes->count; i++)
		if (is_suspect(nodes, nodes->list[i]))
			nodes->list[i]->excused = true;
	if (!nodes->mass)
		gx_log(WARNING,
		       "many nodes fell silent at once, perhaps the network: waiting longer",
		       GX_KU("silent", suspect), GX_KU("of", up),
		       GX_KI("wait_sec", MD_NODE_MASS_NS / GX_NSEC_PER_SEC));
	nodes->mass = true;
}

static void judge(struct md_nodes *nodes, struct node *node)
{
	int64_t patience_ns = MD_NODE_SILENT_NS + (node->excused ? MD_NODE_MASS_NS : 0);
	int64_t silent_ns = silence(node, nodes->listened_ns);

	if (!node->up || silent_ns < patience_ns)
		return;
	node->up = false;
	node->excused = false;
	nodes->changes++;
	gx_log(WARNING, "node is down", GX_KS("node", node->info->name),
	       GX_KS("kind", node->info->kind), GX_KI("silent_ms", silent_ns / GX_NSEC_PER_MSEC));
}

void md_nodes_tick(struct md_nodes *nodes)
{
	bool due = false, excused = false;

	move_clock(nodes);
	for (size_t i = 0; i < nodes->count; i++)
		due |= is_due(nodes, nodes->list[i]);
	if (due)
		excuse_many(nodes);
	for (size_t i = 0; i < nodes->count; i++) {
		judge(nodes, nodes->list[i]);
		excused |= nodes->list[i]->excused;
	}
	nodes->mass = excused;
}

/* -- the table ----------------------------------------------------------------------- */

/* Where a node of this name is or would be. */
static size_t position(const struct md_nodes *nodes, const char *name, bool *ret_found)
{
	size_t low = 0, high = nodes->count;

	*ret_found = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(nodes->list[middle]->info->name, name);

		if (order == 0) {
			*ret_found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int make_room(struct md_nodes *nodes)
{
	size_t capacity = GX_MAX(2 * nodes->capacity, (size_t)16);
	struct node **list;

	if (nodes->count == MD_NODES_MAX)
		return -ENOSPC;
	if (nodes->count < nodes->capacity)
		return 0;
	list = realloc(nodes->list, capacity * sizeof(struct node *));
	if (list == NULL)
		return -ENOMEM;
	nodes->list = list;
	nodes->capacity = capacity;
	return 0;
}

static int insert(struct md_nodes *nodes, size_t at, struct node **ret_node)
{
	struct node *node;
	int r = make_room(nodes);

	if (r < 0)
		return r;
	node = calloc(1, sizeof(*node));
	if (node == NULL)
		return -ENOMEM;
	memmove(nodes->list + at + 1, nodes->list + at,
		(nodes->count - at) * sizeof(struct node *));
	nodes->list[at] = node;
	nodes->count++;
	*ret_node = node;
	return 0;
}

/* -- what a node may say ------------------------------------------------------------- */

static bool name_ok(const char *name)
{
	char identity[GX_NAME_USER_MAX + 8];
	enum rpc_identity_kind kind;

	return gx_format(identity, sizeof(identity), "host:%s", name) == 0 &&
	       rpc_identity_parse(identity, &kind) == 0;
}

static int resolve_nothing(struct gx_env *env GX_UNUSED, const char *host GX_UNUSED,
			   const char *port GX_UNUSED, struct gx_addr *ret_addr)
{
	*ret_addr = (struct gx_addr){.kind = GX_ADDR_INET};
	return 0;
}

/* The syntax alone: the loop does not wait for a name service, and clients resolve by themselves.
 */
static bool address_ok(const char *text)
{
	static const struct gx_env_ops ops = {.resolve = resolve_nothing};
	struct gx_env env = {.ops = &ops};
	enum gx_addr_security security;
	struct gx_addr addr;

	return strlen(text) < GX_ADDR_TEXT_MAX && gx_addr_parse(&env, text, &addr, &security) == 0;
}

static bool attribute_ok(const char *text)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	static const char more[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
	size_t bytes = strlen(text), name_bytes = strspn(text, more), step;

	if (strspn(text, letters) == 0 || text[name_bytes] != '=' ||
	    bytes > MD_NODE_ATTRIBUTE_BYTES_MAX)
		return false;
	for (size_t at = name_bytes + 1; at < bytes; at += step) {
		step = gx_utf8_char(text + at, bytes - at);
		if (step == 0 || (unsigned char)text[at] < ' ' || text[at] == 0x7f)
			return false;
	}
	return true;
}

static const char *node_problem(const PbMeta__Node *node)
{
	if (strcmp(node->kind, "fsd") != 0 && strcmp(node->kind, "rpcd") != 0)
		return "a node's kind is fsd or rpcd";
	if (node->boot == 0)
		return "a node's boot number is missing";
	if (node->n_addresses == 0 || node->n_addresses > MD_NODE_ADDRESSES_MAX)
		return "a node has 1 to 8 addresses";
	for (size_t i = 0; i < node->n_addresses; i++)
		if (!address_ok(node->addresses[i]))
			return "a node's address makes no sense";
	if (!name_ok(node->host))
		return "a node's host label must be written like a name";
	if (node->group[0] != '\0' && !name_ok(node->group))
		return "a node's group must be empty or written like a name";
	if (node->n_attributes > MD_NODE_ATTRIBUTES_MAX)
		return "a node has at most 32 attributes";
	for (size_t i = 0; i < node->n_attributes; i++)
		if (!attribute_ok(node->attributes[i]))
			return "a node's attribute must be NAME=VALUE, up to 256 bytes";
	if (node->free_bytes > node->capacity_bytes)
		return "a node has more free bytes than bytes";
	return NULL;
}

static bool is_own_name(const char *identity, const char *name)
{
	enum rpc_identity_kind kind;

	return rpc_identity_parse(identity, &kind) == 0 && kind == RPC_IDENTITY_HOST &&
	       strcmp(rpc_identity_name(identity), name) == 0;
}

/* -- registering --------------------------------------------------------------------- */

static int pack(const PbMeta__Node *info, struct gx_buf *buf)
{
	size_t bytes = pb_meta__node__get_packed_size(info);
	int r = gx_buf_reserve(buf, bytes);

	if (r < 0)
		return r;
	buf->bytes = pb_meta__node__pack(info, buf->data);
	return 0;
}

/* Without fields that nobody here knows. What only metad tells is put in when it is listed. */
static int copy_info(const PbMeta__Node *info, PbMeta__Node **ret_copy)
{
	PbMeta__Node known = *info;
	struct gx_buf buf;
	int r;

	known.base.n_unknown_fields = 0;
	gx_buf_init(&buf, NODE_BYTES_MAX);
	r = pack(&known, &buf);
	if (r == 0) {
		*ret_copy = pb_meta__node__unpack(rpc_heap(), buf.bytes, buf.data);
		r = *ret_copy != NULL ? 0 : -ENOMEM;
	}
	gx_buf_fini(&buf);
	return r;
}

int md_nodes_check(const char *identity, const PbMeta__Node *info, const char **ret_problem)
{
	if (!is_own_name(identity, info->name))
		return -EPERM;
	*ret_problem = node_problem(info);
	return *ret_problem != NULL ? -EINVAL : 0;
}

int md_nodes_register(struct md_nodes *nodes, const char *identity, const PbMeta__Node *info,
		      const char **ret_problem)
{
	PbMeta__Node *copy = NULL;
	struct node *node;
	bool found;
	size_t at;
	int r;

	r = md_nodes_check(identity, info, ret_problem);
	if (r == 0)
		r = copy_info(info, &copy);
	if (r < 0)
		return r;
	at = position(nodes, info->name, &found);
	if (!found) {
		r = insert(nodes, at, &node);
		if (r < 0) {
			pb_meta__node__free_unpacked(copy, rpc_heap());
			return r;
		}
	}
	node = nodes->list[at];
	/* Its log line says that a new boot came, even if the old one was never missed. */
	if (found && node->info->boot != copy->boot)
		node->up = false;
	pb_meta__node__free_unpacked(node->info, rpc_heap());
	node->info = copy;
	move_clock(nodes);
	node_heard(nodes, node);
	return 0;
}

int md_nodes_heard(struct md_nodes *nodes, const char *identity, const char *name, uint64_t boot)
{
	bool found;
	size_t at;

	if (!is_own_name(identity, name))
		return -EPERM;
	at = position(nodes, name, &found);
	if (!found || nodes->list[at]->info->boot != boot)
		return -ENOENT;
	move_clock(nodes);
	node_heard(nodes, nodes->list[at]);
	return 0;
}

int md_nodes_heartbeat(struct md_nodes *nodes, const char *identity,
		       const PbMeta__NodeHeartbeatRequest *beat)
{
	PbMeta__Node *info;
	bool found;
	int r = md_nodes_heard(nodes, identity, beat->name, beat->boot);

	if (r < 0)
		return r;
	info = nodes->list[position(nodes, beat->name, &found)]->info;
	info->free_bytes = GX_MIN(beat->free_bytes, info->capacity_bytes);
	info->load_percent = beat->load_percent;
	return 0;
}

void md_nodes_gone(struct md_nodes *nodes, const char *name)
{
	bool found;
	size_t at = position(nodes, name, &found);

	if (!found)
		return;
	nodes->changes += nodes->list[at]->up;
	nodes->list[at]->up = false;
	nodes->list[at]->info->boot = 0; /* nobody's: its heartbeats do not count */
}

void md_nodes_expect(struct md_nodes *nodes, const char *name, uint64_t bytes)
{
	PbMeta__Node *info;
	bool found;
	size_t at = position(nodes, name, &found);

	if (!found)
		return;
	info = nodes->list[at]->info;
	info->free_bytes -= GX_MIN(info->free_bytes, bytes);
}

/* -- asking -------------------------------------------------------------------------- */

size_t md_nodes_count(const struct md_nodes *nodes, bool up_only)
{
	size_t count = 0;

	for (size_t i = 0; i < nodes->count; i++)
		count += !up_only || nodes->list[i]->up;
	return count;
}

const PbMeta__Node *md_nodes_find(const struct md_nodes *nodes, const char *name, bool *ret_up)
{
	bool found;
	size_t at = position(nodes, name, &found);

	if (!found)
		return NULL;
	*ret_up = nodes->list[at]->up;
	return nodes->list[at]->info;
}

static bool stores(const struct node *node)
{
	return node->up && strcmp(node->info->kind, "fsd") == 0;
}

void md_nodes_space(const struct md_nodes *nodes, uint64_t *ret_capacity_bytes,
		    uint64_t *ret_free_bytes)
{
	uint64_t capacity_bytes = 0, free_bytes = 0;

	for (size_t i = 0; i < nodes->count; i++) {
		const struct node *node = nodes->list[i];

		if (!stores(node))
			continue;
		capacity_bytes += node->info->capacity_bytes;
		free_bytes += node->info->free_bytes;
	}
	*ret_capacity_bytes = capacity_bytes;
	*ret_free_bytes = free_bytes;
}

uint64_t md_nodes_changes(const struct md_nodes *nodes)
{
	return nodes->changes;
}

static int list_one(const struct node *node, int64_t silent_ns, struct gx_buf *buf,
		    struct rpc_arena *arena, PbMeta__Node **ret_node)
{
	ProtobufCMessage *message;
	int r;

	gx_buf_clear(buf);
	r = pack(node->info, buf);
	if (r == 0)
		r = rpc_arena_unpack(arena, &pb_meta__node__descriptor, buf->data, buf->bytes,
				     &message);
	if (r < 0)
		return r;
	*ret_node = (PbMeta__Node *)message;
	(*ret_node)->up = node->up;
	(*ret_node)->silent_ms = (uint64_t)(silent_ns / GX_NSEC_PER_MSEC);
	return 0;
}

int md_nodes_list(const struct md_nodes *nodes, struct rpc_arena *arena, PbMeta__Node ***ret_list,
		  size_t *ret_count)
{
	int64_t listened_ns = listened_at(nodes, gx_env_now_ns(nodes->env));
	PbMeta__Node **list = rpc_arena_alloc(arena, (nodes->count + 1) * sizeof(PbMeta__Node *));
	struct gx_buf buf;
	int r = 0;

	if (list == NULL)
		return arena->refused;
	gx_buf_init(&buf, NODE_BYTES_MAX);
	for (size_t i = 0; r == 0 && i < nodes->count; i++)
		r = list_one(nodes->list[i], listened_ns - nodes->list[i]->heard_ns, &buf, arena,
			     &list[i]);
	gx_buf_fini(&buf);
	if (r < 0)
		return r;
	*ret_list = list;
	*ret_count = nodes->count;
	return 0;
}

/* -- placement ----------------------------------------------------------------------- */

/* Below this share of its room a node is taken only if there is no better one. */
#define FULL_PART 20u

static bool is_near(const struct node *node, const struct md_placement_request *request)
{
	return request->client_host != NULL && strcmp(node->info->host, request->client_host) == 0;
}

static bool is_in(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(name, list[i]) == 0)
			return true;
	return false;
}

static bool may_take(const struct md_nodes *nodes, const struct node *node,
		     const struct md_placement_request *request)
{
	return stores(node) && node->choice != nodes->choices &&
	       node->info->free_bytes >= request->bytes &&
	       !is_in(node->info->name, request->avoid, request->avoid_count) &&
	       !is_in(node->info->host, request->hosts, request->host_count);
}

static bool is_full(const struct node *node)
{
	return node->info->free_bytes < node->info->capacity_bytes / FULL_PART;
}

/* Free bytes; of a node that is busy all the time half of them. */
static uint64_t score(const struct node *node)
{
	uint32_t load = GX_MIN(node->info->load_percent, 100u);

	return node->info->free_bytes - node->info->free_bytes / 200 * load;
}

static bool is_better(const struct node *a, const struct node *b,
		      const struct md_placement_request *request)
{
	bool near_a = is_near(a, request), near_b = is_near(b, request);

	if (is_full(a) != is_full(b))
		return is_full(b);
	if (near_a != near_b)
		return near_a;
	return score(a) > score(b);
}

static const struct node *choose_one(struct md_nodes *nodes,
				     const struct md_placement_request *request)
{
	const struct node *best = NULL;

	for (size_t i = 0; i < nodes->count; i++)
		if (may_take(nodes, nodes->list[i], request) &&
		    (best == NULL || is_better(nodes->list[i], best, request)))
			best = nodes->list[i];
	for (size_t i = 0; best != NULL && i < nodes->count; i++)
		if (strcmp(nodes->list[i]->info->host, best->info->host) == 0)
			nodes->list[i]->choice = nodes->choices;
	return best;
}

static size_t choose_most_free(struct md_nodes *nodes, const struct md_placement_request *request,
			       const char **ret_names, size_t names_max)
{
	size_t wanted = GX_MIN((size_t)request->copies, names_max);
	size_t count = 0;

	nodes->choices++;
	while (count < wanted) {
		const struct node *node = choose_one(nodes, request);

		if (node == NULL)
			break;
		ret_names[count++] = node->info->name;
	}
	return count;
}

const struct md_placement md_placement_most_free = {.choose = choose_most_free};
