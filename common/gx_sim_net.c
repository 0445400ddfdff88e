/*
 * gx_sim_net.c - stream sockets, listeners, events and poll of the simulation; gx_sim_link.c
 * tells how bytes travel.
 */
#include "common/gx_num.h"
#include "common/gx_sim_link.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#define SYN_RETRY_NS GX_NSEC_PER_SEC
#define SYN_TRIES_MAX 127 /* then connect gives up even without a deadline, as Linux does */
#define HOST_NET UINT32_C(0x0a000000) /* 10.0.0.0/16 */
#define LOOPBACK_NET UINT32_C(127)

/* Where somebody listens or wants to connect to. */
struct place {
	enum gx_addr_kind kind;
	struct gx_sim_host *host; /* NULL: mem name without a known host */
	uint32_t ip;              /* INET; 0 is any */
	uint16_t port;
	const char *text; /* UNIX path, MEM name; points into the address */
};

struct sim_listener {
	struct sim_obj obj;
	struct sim_listener *prev, *next;
	struct gx_addr addr;
	struct place place;
	struct sim_sock *queue;
	int queue_count, queue_max;
	bool shut;
};

struct sim_event {
	struct sim_obj obj;
	bool set;
};

/* -- addresses ---------------------------------------------------------------------- */

static struct gx_sim_host *host_by_number(struct gx_sim *sim, uint32_t number)
{
	struct gx_sim_host *host;

	DL_FOREACH (sim->hosts, host) {
		if (host->number == number)
			return host;
	}
	return NULL;
}

static struct gx_sim_host *host_by_name(struct gx_sim *sim, const char *name, size_t bytes)
{
	struct gx_sim_host *host;

	DL_FOREACH (sim->hosts, host) {
		if (strlen(host->name) == bytes && memcmp(host->name, name, bytes) == 0)
			return host;
	}
	return NULL;
}

static void inet_addr_make(uint32_t ip, uint16_t port, struct gx_addr *ret_addr)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&ret_addr->sa;

	memset(ret_addr, 0, sizeof(*ret_addr));
	ret_addr->kind = GX_ADDR_INET;
	ret_addr->sa_bytes = sizeof(*in);
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(ip);
	in->sin_port = htons(port);
}

void gx_sim_host_addr(const struct gx_sim_host *host, uint16_t port, struct gx_addr *ret_addr)
{
	inet_addr_make(HOST_NET | host->number, port, ret_addr);
}

static void addr_set_port(struct gx_addr *addr, uint16_t port)
{
	if (addr->sa.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&addr->sa)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&addr->sa)->sin_port = htons(port);
}

/* IPv4 as it is; of IPv6 only the loopback, "any" and mapped IPv4 exist here. */
static int inet_parts(const struct gx_addr *addr, uint32_t *ret_ip, uint16_t *ret_port)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr->sa;
	const struct sockaddr_in *in = (const struct sockaddr_in *)&addr->sa;
	uint32_t mapped;

	if (addr->sa.ss_family == AF_INET) {
		*ret_ip = ntohl(in->sin_addr.s_addr);
		*ret_port = ntohs(in->sin_port);
		return 0;
	}
	if (addr->sa.ss_family != AF_INET6)
		return -EAFNOSUPPORT;
	*ret_port = ntohs(in6->sin6_port);
	if (IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr)) {
		*ret_ip = INADDR_LOOPBACK;
	} else if (IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr)) {
		*ret_ip = 0;
	} else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(&mapped, &in6->sin6_addr.s6_addr[12], sizeof(mapped));
		*ret_ip = ntohl(mapped);
	} else {
		return -EADDRNOTAVAIL;
	}
	return 0;
}

/* What an address means to a process on `host`. -EHOSTUNREACH when no host has it. */
static int place_find(struct gx_sim_host *host, const struct gx_addr *addr, struct place *ret_place)
{
	struct place place = {.kind = addr->kind, .host = host};
	int r = 0;

	switch (addr->kind) {
	case GX_ADDR_INET:
		r = inet_parts(addr, &place.ip, &place.port);
		if (r == 0 && place.ip != 0 && place.ip >> 24 != LOOPBACK_NET) {
			place.host = NULL;
			if (place.ip >> 16 == HOST_NET >> 16)
				place.host = host_by_number(host->sim, place.ip & 0xffff);
			r = place.host == NULL ? -EHOSTUNREACH : 0;
		}
		break;
	case GX_ADDR_UNIX:
		place.text = ((const struct sockaddr_un *)&addr->sa)->sun_path;
		break;
	case GX_ADDR_MEM:
		place.text = addr->mem_name;
		place.host = NULL;
		if (strchr(place.text, ':') != NULL)
			place.host = host_by_name(host->sim, place.text, strcspn(place.text, ":"));
		break;
	case GX_ADDR_NONE:
	case GX_ADDR_COUNT:
		return -EINVAL;
	}
	*ret_place = place;
	return r;
}

/* Would a listener at `l` get what is sent to `to`? Wildcards only count on the listener. */
static bool place_covers(const struct place *l, const struct place *to)
{
	if (l->kind != to->kind)
		return false;
	if (l->kind == GX_ADDR_MEM)
		return strcmp(l->text, to->text) == 0;
	if (l->host != to->host)
		return false;
	if (l->kind == GX_ADDR_UNIX)
		return strcmp(l->text, to->text) == 0;
	return l->port == to->port && (l->ip == 0 || l->ip == to->ip);
}

static struct sim_listener *listener_find(struct gx_sim *sim, const struct place *to)
{
	struct sim_listener *l;

	DL_FOREACH (sim->listeners, l) {
		if (!l->shut && place_covers(&l->place, to))
			return l;
	}
	return NULL;
}

static bool place_taken(struct gx_sim *sim, const struct place *place)
{
	struct sim_listener *l;

	DL_FOREACH (sim->listeners, l) {
		if (place_covers(&l->place, place) || place_covers(place, &l->place))
			return true;
	}
	return false;
}

/* The next port above 32768 that nobody listens on. */
static uint16_t pick_port(struct gx_sim_host *host)
{
	struct place place = {.kind = GX_ADDR_INET, .host = host};

	do {
		place.port = host->next_port;
		host->next_port = host->next_port >= 60999 ? 32768 : (uint16_t)(place.port + 1);
	} while (place_taken(host->sim, &place));
	return place.port;
}

int sim_op_resolve(struct gx_env *env, const char *host_name, const char *port_text,
		   struct gx_addr *ret_addr)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct gx_sim_host *host = host_by_name(proc->sim, host_name, strlen(host_name));
	struct in_addr in;
	struct in6_addr in6;
	uint64_t port;

	if (gx_parse_u64(port_text, &port) < 0 || port > UINT16_MAX)
		return -EINVAL;
	if (host != NULL) {
		gx_sim_host_addr(host, (uint16_t)port, ret_addr);
	} else if (strcmp(host_name, "localhost") == 0) {
		inet_addr_make(INADDR_LOOPBACK, (uint16_t)port, ret_addr);
	} else if (inet_pton(AF_INET, host_name, &in) == 1) {
		inet_addr_make(ntohl(in.s_addr), (uint16_t)port, ret_addr);
	} else if (inet_pton(AF_INET6, host_name, &in6) == 1) {
		struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = in6};

		memset(ret_addr, 0, sizeof(*ret_addr));
		ret_addr->kind = GX_ADDR_INET;
		ret_addr->sa_bytes = sizeof(sa);
		memcpy(&ret_addr->sa, &sa, sizeof(sa));
		addr_set_port(ret_addr, (uint16_t)port);
	} else {
		return -EHOSTUNREACH;
	}
	return 0;
}

/* -- listening and connecting ---------------------------------------------------------- */

int sim_op_listen(struct gx_env *env, const struct gx_addr *addr, int backlog)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_listener *l;
	struct place place;
	int r = place_find(proc->host, addr, &place);

	if (r == -EHOSTUNREACH || (r == 0 && place.host != NULL && place.host != proc->host))
		return -EADDRNOTAVAIL;
	if (r < 0)
		return r;
	place.host = proc->host;
	if (place.kind == GX_ADDR_INET && place.port == 0)
		place.port = pick_port(proc->host);
	if (place_taken(proc->sim, &place))
		return -EADDRINUSE;
	l = sim_alloc(sizeof(*l));
	sim_obj_init(&l->obj, proc, SIM_LISTENER);
	l->addr = *addr;
	(void)place_find(proc->host, &l->addr, &l->place); /* texts point into our own copy now */
	l->place.host = proc->host;
	l->place.port = place.port;
	if (place.kind == GX_ADDR_INET)
		addr_set_port(&l->addr, place.port);
	l->queue_max = GX_MAX(backlog, 1);
	DL_APPEND(proc->sim->listeners, l);
	r = sim_fd_install(proc, &l->obj);
	if (r < 0)
		sim_obj_unref(&l->obj);
	return r;
}

void sim_listener_destroy(struct sim_obj *obj)
{
	struct sim_listener *l = GX_CONTAINER_OF(obj, struct sim_listener, obj);

	DL_DELETE(obj->proc->sim->listeners, l);
	while (l->queue != NULL) {
		struct sim_sock *sock = l->queue;

		/* Nobody will accept it: a reset, unless the host has no power to send one. */
		DL_DELETE(l->queue, sock);
		if (!sock->conn->host[SERVER_END]->down)
			sim_conn_reset(sock->conn);
		sim_obj_unref(&sock->obj);
	}
	sim_free(l);
}

static struct sim_sock *sock_new(struct gx_sim_proc *proc)
{
	struct sim_sock *sock = sim_alloc(sizeof(*sock));

	sim_obj_init(&sock->obj, proc, SIM_SOCK);
	return sock;
}

void sim_sock_destroy(struct sim_obj *obj)
{
	struct sim_sock *sock = GX_CONTAINER_OF(obj, struct sim_sock, obj);
	struct sim_conn *conn = sock->conn;

	if (conn != NULL) {
		struct sim_pipe *in = sim_pipe_to(conn, sock->end);
		struct sim_pipe *out = sim_pipe_to(conn, !sock->end);

		conn->end[sock->end] = NULL;
		if (conn->end[!sock->end] == NULL) {
			sim_conn_free(conn);
		} else if (!sock->reset && !obj->proc->host->down) {
			if (in->readable > 0)
				sim_pipe_send(out, SEGMENT_RESET, 0);
			else if (!out->ended)
				sim_pipe_send(out, SEGMENT_END, 0);
		}
	}
	sim_free(sock);
}

/* The client's own name, of the same family as the address it went to. */
static void name_client(struct gx_sim_proc *proc, const struct place *to, struct sim_sock *sock)
{
	sock->local = sock->peer;
	switch (to->kind) {
	case GX_ADDR_INET:
		if (sock->peer.sa.ss_family == AF_INET6)
			addr_set_port(&sock->local, pick_port(proc->host));
		else if (to->ip >> 24 == LOOPBACK_NET || to->ip == 0)
			inet_addr_make(INADDR_LOOPBACK, pick_port(proc->host), &sock->local);
		else
			gx_sim_host_addr(proc->host, pick_port(proc->host), &sock->local);
		break;
	case GX_ADDR_UNIX:
		memset(&sock->local.sa, 0, sizeof(sock->local.sa));
		sock->local.sa.ss_family = AF_UNIX;
		sock->local.sa_bytes = sizeof(sa_family_t);
		break;
	case GX_ADDR_MEM:
		(void)gx_format(sock->local.mem_name, sizeof(sock->local.mem_name), "client%llu",
				(unsigned long long)++proc->sim->clients);
		break;
	case GX_ADDR_NONE:
	case GX_ADDR_COUNT:
		break;
	}
}

/*
 * One attempt: the request travels, is looked at, and the answer travels back.
 * -EAGAIN: no answer came, try again.
 */
static int connect_once(struct gx_sim_proc *proc, const struct place *to, struct sim_sock *sock,
			int64_t deadline_ns)
{
	struct gx_sim *sim = proc->sim;
	struct gx_sim_host *host = to->host;
	struct sim_listener *l = listener_find(sim, to);
	struct sim_sock *server;
	int r;

	if (host == NULL)
		host = l != NULL ? l->place.host : proc->host;
	r = sim_pause(proc, sim_latency(sim, proc->host, host), deadline_ns, "connect");
	if (r < 0)
		return r;
	if (sim_link_blocked(sim, proc->host, host))
		return -EAGAIN;
	l = listener_find(sim, to);
	if (l == NULL) {
		r = sim_pause(proc, sim_latency(sim, proc->host, host), deadline_ns, "connect");
		return r < 0 ? r : -ECONNREFUSED;
	}
	if (l->queue_count >= l->queue_max)
		return -EAGAIN;
	server = sock_new(l->obj.proc);
	server->local = sock->peer;
	server->peer = sock->local;
	(void)sim_conn_new(sim, sock, server);
	for (size_t d = 0; d < GX_SIM_DIRECTION_COUNT; d++)
		if (sock->conn->pipe[d].cut_bytes == 0)
			sim_conn_reset(sock->conn);
	DL_APPEND(l->queue, server);
	l->queue_count++;
	sim_wake_all(&l->obj.waiters);
	return sim_pause(proc, sim_latency(sim, proc->host, host), deadline_ns, "connect");
}

int sim_op_connect(struct gx_env *env, const struct gx_addr *addr, int64_t deadline_ns)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_sock *sock;
	struct place to;
	int r;

	if (deadline_ns == GX_NOWAIT)
		return -EAGAIN;
	sock = sock_new(proc);
	sock->peer = *addr;
	r = place_find(proc->host, &sock->peer, &to);
	if (r == 0) {
		name_client(proc, &to, sock);
		for (int tries = 1;; tries++) {
			r = connect_once(proc, &to, sock, deadline_ns);
			if (r != -EAGAIN)
				break;
			r = tries < SYN_TRIES_MAX
				    ? sim_pause(proc, SYN_RETRY_NS, deadline_ns, "connect")
				    : -ETIMEDOUT;
			if (r < 0)
				break;
		}
	}
	if (r == 0)
		r = sim_fd_install(proc, &sock->obj);
	if (r < 0)
		sim_obj_unref(&sock->obj);
	return r;
}

int sim_op_accept(struct gx_env *env, int fd)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_listener *l;
	int r;

	if (obj == NULL)
		return -EBADF;
	if (obj->kind != SIM_LISTENER)
		return -EINVAL;
	l = GX_CONTAINER_OF(obj, struct sim_listener, obj);
	if (l->queue == NULL)
		return l->shut ? -EINVAL : -EAGAIN;
	r = sim_fd_install(proc, &l->queue->obj);
	if (r >= 0) {
		DL_DELETE(l->queue, l->queue);
		l->queue_count--;
	}
	return r;
}

/* -- sockets ------------------------------------------------------------------------------ */

static int sock_find(struct gx_sim_proc *proc, int fd, struct sim_sock **ret_sock)
{
	struct sim_obj *obj = sim_fd_find(proc, fd);

	if (obj == NULL)
		return -EBADF;
	if (obj->kind != SIM_SOCK)
		return obj->kind == SIM_LISTENER ? -ENOTCONN : -ENOTSOCK;
	*ret_sock = GX_CONTAINER_OF(obj, struct sim_sock, obj);
	return 0;
}

int sim_op_sock_name(struct gx_env *env, int fd, struct gx_addr *ret_addr)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_sock *sock;
	int r;

	if (obj != NULL && obj->kind == SIM_LISTENER) {
		*ret_addr = GX_CONTAINER_OF(obj, struct sim_listener, obj)->addr;
		return 0;
	}
	r = sock_find(proc, fd, &sock);
	if (r == 0)
		*ret_addr = sock->local;
	return r;
}

int sim_op_peer_name(struct gx_env *env, int fd, struct gx_addr *ret_addr)
{
	struct sim_sock *sock;
	int r = sock_find(sim_enter(env), fd, &sock);

	if (r == 0)
		*ret_addr = sock->peer;
	return r;
}

static size_t iov_bytes(const struct iovec *iov, int iov_count)
{
	size_t bytes = 0;

	for (int i = 0; i < iov_count; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

/* Fewer bytes than possible now and then: callers must cope. */
static size_t perhaps_short(struct gx_sim *sim, size_t bytes)
{
	if (bytes > 1 && sim_chance(sim, sim->options.short_io_percent))
		return 1 + sim_rng_below(&sim->rng, bytes);
	return bytes;
}

static ssize_t sock_read(struct gx_sim *sim, struct sim_sock *sock, const struct iovec *iov,
			 int iov_count)
{
	struct sim_pipe *pipe = sim_pipe_to(sock->conn, sock->end);
	size_t left;
	size_t done = 0;

	if (pipe->readable == 0) {
		if (sock->reset)
			return -ECONNRESET;
		return sock->end_received || sock->shut ? 0 : -EAGAIN;
	}
	left = perhaps_short(sim, GX_MIN(pipe->readable, iov_bytes(iov, iov_count)));
	for (int i = 0; i < iov_count && left > 0; i++) {
		size_t n = GX_MIN(left, iov[i].iov_len);

		sim_pipe_get(pipe, iov[i].iov_base, n);
		done += n;
		left -= n;
	}
	sim_wake_end(sock->conn, !sock->end); /* it has space again */
	return (ssize_t)done;
}

static ssize_t sock_write(struct gx_sim *sim, struct sim_sock *sock, const struct iovec *iov,
			  int iov_count)
{
	struct sim_pipe *pipe = sim_pipe_to(sock->conn, !sock->end);
	size_t left;
	size_t bytes;

	if (sock->reset) {
		bool told = sock->reset_told;

		sock->reset_told = true;
		return told ? -EPIPE : -ECONNRESET;
	}
	if (sock->shut)
		return -EPIPE;
	if (sim_pipe_space(pipe) == 0)
		return -EAGAIN;
	bytes = perhaps_short(sim, GX_MIN(sim_pipe_space(pipe), iov_bytes(iov, iov_count)));
	sim_pipe_reserve(pipe, bytes);
	left = bytes;
	for (int i = 0; i < iov_count && left > 0; i++) {
		size_t n = GX_MIN(left, iov[i].iov_len);

		sim_pipe_put(pipe, iov[i].iov_base, n);
		left -= n;
	}
	sim_pipe_send(pipe, SEGMENT_DATA, bytes);
	return (ssize_t)bytes;
}

typedef ssize_t (*sock_io_fn)(struct gx_sim *sim, struct sim_sock *sock, const struct iovec *iov,
			      int iov_count);

/* Tries, and waits for the socket to change as long as the answer is -EAGAIN. */
static ssize_t sock_io(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		       int64_t deadline_ns, sock_io_fn io, const char *why)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_sock *sock;
	ssize_t r = sock_find(proc, fd, &sock);

	if (r < 0)
		return r;
	if (iov_bytes(iov, iov_count) == 0)
		return 0;
	sock->obj.refs++;
	for (;;) {
		r = io(proc->sim, sock, iov, iov_count);
		if (r != -EAGAIN || deadline_ns == GX_NOWAIT)
			break;
		r = sim_wait_one(proc, &sock->obj.waiters, deadline_ns, why, fd);
		if (r < 0)
			break;
	}
	sim_obj_unref(&sock->obj);
	return r;
}

ssize_t sim_op_readv(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		     int64_t deadline_ns)
{
	return sock_io(env, fd, iov, iov_count, deadline_ns, sock_read, "read");
}

ssize_t sim_op_writev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		      int64_t deadline_ns)
{
	return sock_io(env, fd, iov, iov_count, deadline_ns, sock_write, "write");
}

int sim_op_shutdown(struct gx_env *env, int fd)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_sock *sock;
	int r;

	if (obj != NULL && obj->kind == SIM_LISTENER) {
		GX_CONTAINER_OF(obj, struct sim_listener, obj)->shut = true;
		sim_wake_all(&obj->waiters);
		return 0;
	}
	r = sock_find(proc, fd, &sock);
	if (r < 0)
		return r;
	if (sock->reset)
		return -ENOTCONN;
	if (!sock->shut) {
		struct sim_pipe *out = sim_pipe_to(sock->conn, !sock->end);

		sock->shut = true;
		out->ended = true;
		sim_pipe_send(out, SEGMENT_END, 0);
		sim_wake_all(&obj->waiters);
	}
	return 0;
}

/* -- events and poll ------------------------------------------------------------------------ */

int sim_op_event_open(struct gx_env *env)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_event *event = sim_alloc(sizeof(*event));
	int r;

	_Static_assert(offsetof(struct sim_event, obj) == 0, "freed through its obj");
	sim_obj_init(&event->obj, proc, SIM_EVENT);
	r = sim_fd_install(proc, &event->obj);
	if (r < 0)
		sim_obj_unref(&event->obj);
	return r;
}

static int event_change(struct gx_env *env, int fd, bool set)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);

	if (obj == NULL || obj->kind != SIM_EVENT)
		return -EBADF;
	GX_CONTAINER_OF(obj, struct sim_event, obj)->set = set;
	if (set)
		sim_wake_all(&obj->waiters);
	return 0;
}

int sim_op_event_set(struct gx_env *env, int fd)
{
	return event_change(env, fd, true);
}

int sim_op_event_clear(struct gx_env *env, int fd)
{
	return event_change(env, fd, false);
}

static unsigned obj_ready(struct sim_obj *obj)
{
	unsigned ready = 0;

	switch (obj->kind) {
	case SIM_FILE:
		ready = GX_READABLE | GX_WRITABLE;
		break;
	case SIM_EVENT:
		ready = GX_CONTAINER_OF(obj, struct sim_event, obj)->set ? GX_READABLE : 0;
		break;
	case SIM_LISTENER: {
		struct sim_listener *l = GX_CONTAINER_OF(obj, struct sim_listener, obj);

		ready = l->queue != NULL || l->shut ? GX_READABLE : 0;
		break;
	}
	case SIM_SOCK: {
		struct sim_sock *sock = GX_CONTAINER_OF(obj, struct sim_sock, obj);

		if (sock->reset || sock->shut)
			return GX_READABLE | GX_WRITABLE;
		if (sock->end_received || sim_pipe_to(sock->conn, sock->end)->readable > 0)
			ready |= GX_READABLE;
		if (sim_pipe_space(sim_pipe_to(sock->conn, !sock->end)) > 0)
			ready |= GX_WRITABLE;
		break;
	}
	}
	return ready;
}

/* Count of ready entries, -EBADF if one is no descriptor. */
static int poll_scan(struct gx_sim_proc *proc, struct gx_pollfd *fds, size_t count)
{
	int ready = 0;

	for (size_t i = 0; i < count; i++) {
		struct sim_obj *obj = sim_fd_find(proc, fds[i].fd);

		if (obj == NULL)
			return -EBADF;
		fds[i].revents = obj_ready(obj) & fds[i].events;
		ready += fds[i].revents != 0;
	}
	return ready;
}

int sim_op_poll(struct gx_env *env, struct gx_pollfd *fds, size_t count, int64_t deadline_ns)
{
	struct gx_sim_proc *proc = sim_enter(env);

	for (;;) {
		int r = poll_scan(proc, fds, count);

		if (r != 0 || deadline_ns == GX_NOWAIT)
			return r;
		for (size_t i = 0; i < count; i++)
			sim_wait_add(&sim_fd_find(proc, fds[i].fd)->waiters);
		if (sim_wait(proc, deadline_ns, "poll", count > 0 ? fds[0].fd : -1) < 0)
			return poll_scan(proc, fds, count);
	}
}
