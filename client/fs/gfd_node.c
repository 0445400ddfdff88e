/*
 * Connections to nodes. metad gives a session ticket (Attach); with it an rpc_client is made, which
 * does the rest. Before three quarters of the ticket's life are over a new one is fetched.
 */
#include "client/fs/gfd_impl.h"
#include "common/gx_secret.h"

static void lock(struct gfd *gfd)
{
	gx_env_mutex_lock(gfd->env, &gfd->lock);
}

static void unlock(struct gfd *gfd)
{
	gx_env_mutex_unlock(gfd->env, &gfd->lock);
}

/* Under the lock. */
static struct gfd_node *node_find(struct gfd *gfd, const char *name)
{
	struct gfd_node *node;

	LL_FOREACH (gfd->nodes, node)
		if (strcmp(node->name, name) == 0)
			return node;
	return NULL;
}

/* Under the lock. */
static struct gfd_node *node_get(struct gfd *gfd, const char *name)
{
	struct gfd_node *node = node_find(gfd, name);

	if (node)
		return node;
	node = calloc(1, sizeof(*node));
	if (!node)
		return NULL;
	GX_IGNORE(gx_strcpy(node->name, sizeof(node->name), name)); /* of a struct gfc_place */
	LL_PREPEND(gfd->nodes, node);
	return node;
}

bool gfd_is_unreachable(int err)
{
	switch (err) {
	case -EHOSTDOWN:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ECONNABORTED:
	case -EPIPE:
	case -ENOTCONN:
	case -ETIMEDOUT:
	case -ESHUTDOWN:
	case -ENOENT: /* the socket's path */
	case -ENODEV:
	case -EADDRNOTAVAIL:
	case -EAGAIN:
	case -EPROTO:
		return true;
	default:
		return false;
	}
}

bool gfd_is_refused(int err)
{
	return err == -ESTALE || err == -EKEYREJECTED;
}

/* -- suspects ---------------------------------------------------------------------------------- */

void gfd_suspect(struct gfd *gfd, const char *name)
{
	struct gfd_node *node;

	lock(gfd);
	node = node_get(gfd, name);
	if (node) {
		node->suspect_ns = gx_env_now_ns(gfd->env) + GFD_SUSPECT_NS;
		node->doubted = true;
	}
	unlock(gfd);
}

void gfd_trust_node(struct gfd *gfd, const char *name)
{
	struct gfd_node *node;

	lock(gfd);
	node = node_find(gfd, name);
	if (node) {
		node->suspect_ns = 0;
		node->doubted = false;
	}
	unlock(gfd);
}

bool gfd_is_suspect(struct gfd *gfd, const char *name)
{
	int64_t now = gx_env_now_ns(gfd->env);
	struct gfd_node *node;
	bool suspect;

	lock(gfd);
	node = node_find(gfd, name);
	suspect = node && node->suspect_ns > now;
	unlock(gfd);
	return suspect;
}

/* Names live as long as gfd. */
size_t gfd_suspects(struct gfd *gfd, const char **ret_names, size_t max)
{
	int64_t now = gx_env_now_ns(gfd->env);
	struct gfd_node *node;
	size_t count = 0;

	lock(gfd);
	LL_FOREACH (gfd->nodes, node)
		if (node->suspect_ns > now && count < max)
			ret_names[count++] = node->name;
	unlock(gfd);
	return count;
}

/* -- links ------------------------------------------------------------------------------------- */

static bool is_unix(const char *address)
{
	return strncmp(address, "unix:", 5) == 0 || strncmp(address, "tls:unix:", 9) == 0 ||
	       strncmp(address, "plain:unix:", 11) == 0;
}

/* With a label of our own it decides; without, whether the socket is there. */
static bool is_near(struct gfd *gfd, const struct gfc_attach *attach, const char *address)
{
	struct stat st;

	if (!is_unix(address))
		return false;
	if (gfd->host[0])
		return strcmp(gfd->host, attach->host) == 0;
	return gx_env_stat(gfd->env, strchr(address, '/') ? strchr(address, '/') : "", &st) == 0;
}

/* The best address there is; NULL: none. */
static const char *choose(struct gfd *gfd, const struct gfc_attach *attach, bool *ret_near)
{
	for (size_t i = 0; i < attach->address_count; i++) {
		if (is_near(gfd, attach, attach->addresses[i])) {
			*ret_near = true;
			return attach->addresses[i];
		}
	}
	*ret_near = false;
	for (size_t i = 0; i < attach->address_count; i++)
		if (!is_unix(attach->addresses[i]))
			return attach->addresses[i];
	return NULL;
}

static void link_free(struct gfd_link *link)
{
	if (!link)
		return;
	rpc_client_free(link->client);
	free(link);
}

static int link_new(struct gfd *gfd, const struct gfc_attach *attach, uint64_t session,
		    const struct gfd_link *before, struct gfd_link **ret_link)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	struct gfd_link *link;
	const char *address;
	bool near;
	int r;

	address = choose(gfd, attach, &near);
	if (!address)
		return -EHOSTUNREACH;
	options.env = gfd->env;
	options.identity = attach->identity;
	options.key = attach->key;
	options.connections_max = gfd->options.connections;
	options.timeout_ns = gfd->options.data_timeout_ns;
	/* The node knows numbers of this session: go on behind them. */
	if (before && before->session == session)
		options.first_seq = rpc_client_next_seq(before->client);
	r = rpc_endpoint_parse(gfd->env, address, false, &options.endpoint, NULL);
	if (r < 0)
		return r;
	link = calloc(1, sizeof(*link));
	if (!link)
		return -ENOMEM;
	memcpy(link->address, address, strlen(address) + 1);
	link->near = near;
	link->session = session;
	link->renew_ns =
		gx_env_now_ns(gfd->env) + (int64_t)attach->lifetime_ms * GX_NSEC_PER_MSEC / 4 * 3;
	r = rpc_client_new(&options, &link->client);
	if (r < 0) {
		free(link);
		return r;
	}
	*ret_link = link;
	return 0;
}

static uint64_t session_of(struct gfd *gfd)
{
	return gfc_session(gfd->gfc);
}

bool gfd_link_stale(struct gfd *gfd, const struct gfd_link *link)
{
	return link->session != session_of(gfd) || gx_env_now_ns(gfd->env) >= link->renew_ns;
}

/* The one who makes a link: asks metad, and takes the new one if it is better than the old. */
static int attach_node(struct gfd *gfd, struct gfd_node *node)
{
	struct gfc_attach attach = {0};
	uint64_t session = session_of(gfd);
	struct gfd_link *made = NULL, *old = node->link;
	int r = gfc_attach(gfd->gfc, node->name, &attach);
	bool near;

	if (r == 0) {
		const char *address = choose(gfd, &attach, &near);

		/* Its address is still true, and so is the ticket. */
		if (old && !gfd_link_stale(gfd, old) && address &&
		    strcmp(address, old->address) == 0)
			made = old;
		else
			r = link_new(gfd, &attach, session, old, &made);
	}
	gx_wipe(&attach, sizeof(attach));
	lock(gfd);
	node->doubted = false;
	if (r == 0 && made != old) {
		node->link = made;
		link_free(old);
	}
	unlock(gfd);
	return r;
}

/*
 * A link is replaced only when nobody uses the old one: requests under way have numbers the node
 * must not take for forgotten ones.
 */
int gfd_link_get(struct gfd *gfd, const char *name, struct gfd_link **ret_link)
{
	int64_t deadline_ns = gfd_deadline(gfd);
	struct gfd_node *node;
	int r = 0;

	lock(gfd);
	node = node_get(gfd, name);
	if (!node)
		r = -ENOMEM;
	while (r == 0) {
		bool fresh = node->link && !node->doubted && !gfd_link_stale(gfd, node->link);

		if (fresh && !node->attaching)
			break;
		if (node->attaching || (node->link && node->link->refs > 0)) {
			/* One that is only in doubt may be shared meanwhile. */
			if (!node->attaching && !gfd_link_stale(gfd, node->link))
				break;
			r = gx_env_cond_wait(gfd->env, &gfd->changed, &gfd->lock, deadline_ns);
			continue;
		}
		node->attaching = true;
		unlock(gfd);
		r = attach_node(gfd, node);
		lock(gfd);
		node->attaching = false;
		gx_env_cond_broadcast(gfd->env, &gfd->changed);
	}
	if (r == 0) {
		node->link->refs++;
		*ret_link = node->link;
	}
	unlock(gfd);
	return r;
}

void gfd_link_put(struct gfd *gfd, struct gfd_link *link)
{
	if (!link)
		return;
	lock(gfd);
	gx_assert(link->refs > 0);
	link->refs--;
	if (link->refs == 0)
		gx_env_cond_broadcast(gfd->env, &gfd->changed);
	unlock(gfd);
}

void gfd_nodes_free(struct gfd *gfd)
{
	struct gfd_node *node;

	while ((node = gfd->nodes)) {
		LL_DELETE(gfd->nodes, node);
		link_free(node->link);
		free(node);
	}
}
