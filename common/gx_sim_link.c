/*
 * gx_sim_link.c - connections between simulated hosts.
 *
 * A connection has two ends (sockets) and two pipes. A pipe holds all bytes sent
 * and not yet read in one ring, the first `readable` of them arrived; segments say
 * when the next ones do. Order within a pipe is kept: a later segment never arrives
 * before an earlier one. End of stream and reset travel as segments behind the data.
 *
 * As on Linux: closing with unread bytes resets the peer, else it sees the end of
 * stream; bytes that arrive at a closed end are answered by a reset; bytes received
 * before a reset can still be read.
 *
 * A segment whose way is blocked (partition, host without power) stays in the pipe
 * until somebody unblocks it; TCP's retransmission without the packets.
 */
#include "common/gx_sim_link.h"

/* -- links between hosts ---------------------------------------------------------- */

static struct sim_partition *partition_find(struct gx_sim *sim, const struct gx_sim_host *a,
					    const struct gx_sim_host *b)
{
	for (size_t i = 0; i < sim->partitions_count; i++) {
		struct sim_partition *p = &sim->partitions[i];

		if ((p->a == a && p->b == b) || (p->a == b && p->b == a))
			return p;
	}
	return NULL;
}

bool sim_link_blocked(struct gx_sim *sim, const struct gx_sim_host *from,
		      const struct gx_sim_host *to)
{
	return to->down || partition_find(sim, from, to) != NULL;
}

int64_t sim_latency(struct gx_sim *sim, const struct gx_sim_host *a, const struct gx_sim_host *b)
{
	const struct gx_sim_options *o = &sim->options;

	if (a == b)
		return o->local_latency_ns;
	return o->latency_min_ns +
	       (int64_t)sim_rng_below(&sim->rng,
				      (uint64_t)(o->latency_max_ns - o->latency_min_ns) + 1);
}

/* -- pipes ------------------------------------------------------------------------ */

void sim_wake_end(struct sim_conn *conn, unsigned end)
{
	if (conn->end[end] != NULL)
		sim_wake_all(&conn->end[end]->obj.waiters);
}

static void pipe_arm(struct sim_pipe *pipe)
{
	if (pipe->segments != NULL)
		sim_timer_start(pipe->conn->sim, &pipe->timer, pipe->segments->at_ns);
}

/* Data is in the ring already. */
void sim_pipe_send(struct sim_pipe *pipe, enum sim_segment_kind kind, size_t bytes)
{
	struct sim_conn *conn = pipe->conn;
	struct sim_segment *segment = sim_alloc(sizeof(*segment));
	int64_t at_ns = conn->sim->now_ns + sim_latency(conn->sim, conn->host[0], conn->host[1]);

	segment->kind = kind;
	segment->bytes = bytes;
	segment->at_ns = GX_MAX(at_ns, pipe->last_at_ns);
	pipe->last_at_ns = segment->at_ns;
	DL_APPEND(pipe->segments, segment);
	if (pipe->segments == segment)
		pipe_arm(pipe);
}

static void pipe_drop_segments(struct sim_pipe *pipe)
{
	struct sim_segment *segment;
	struct sim_segment *tmp;

	sim_timer_stop(pipe->conn->sim, &pipe->timer);
	DL_FOREACH_SAFE (pipe->segments, segment, tmp) {
		sim_free(segment);
	}
	pipe->segments = NULL;
	pipe->bytes = pipe->readable;
}

size_t sim_pipe_space(const struct sim_pipe *pipe)
{
	size_t max = pipe->conn->sim->options.socket_buffer_bytes;

	return max > pipe->bytes ? max - pipe->bytes : 0;
}

/* Room for `bytes` more; what is in the ring moves to the front when it grows. */
void sim_pipe_reserve(struct sim_pipe *pipe, size_t bytes)
{
	size_t max = GX_MAX(pipe->ring_max, 1024);
	size_t first = GX_MIN(pipe->bytes, pipe->ring_max - pipe->head);
	uint8_t *ring;

	if (pipe->bytes + bytes <= pipe->ring_max)
		return;
	while (max < pipe->bytes + bytes)
		max *= 2;
	ring = sim_alloc(max);
	if (pipe->bytes > 0) {
		memcpy(ring, pipe->ring + pipe->head, first);
		memcpy(ring + first, pipe->ring, pipe->bytes - first);
	}
	sim_free(pipe->ring);
	pipe->ring = ring;
	pipe->ring_max = max;
	pipe->head = 0;
}

void sim_pipe_put(struct sim_pipe *pipe, const uint8_t *data, size_t bytes)
{
	while (bytes > 0) {
		size_t at = (pipe->head + pipe->bytes) % pipe->ring_max;
		size_t n = GX_MIN(bytes, pipe->ring_max - at);

		memcpy(pipe->ring + at, data, n);
		pipe->bytes += n;
		data += n;
		bytes -= n;
	}
}

void sim_pipe_get(struct sim_pipe *pipe, uint8_t *data, size_t bytes)
{
	gx_assert(bytes <= pipe->readable);
	while (bytes > 0) {
		size_t n = GX_MIN(bytes, pipe->ring_max - pipe->head);

		memcpy(data, pipe->ring + pipe->head, n);
		pipe->head = (pipe->head + n) % pipe->ring_max;
		pipe->bytes -= n;
		pipe->readable -= n;
		data += n;
		bytes -= n;
	}
}

/* -- connections -------------------------------------------------------------------- */

struct sim_pipe *sim_pipe_to(struct sim_conn *conn, unsigned end)
{
	return &conn->pipe[end == SERVER_END ? GX_SIM_TO_SERVER : GX_SIM_TO_CLIENT];
}

void sim_conn_free(struct sim_conn *conn)
{
	for (size_t d = 0; d < GX_SIM_DIRECTION_COUNT; d++) {
		pipe_drop_segments(&conn->pipe[d]);
		sim_free(conn->pipe[d].ring);
	}
	DL_DELETE(conn->sim->conns, conn);
	sim_free(conn);
}

/* Both ends see it at once; nothing in flight arrives any more. */
void sim_conn_reset(struct sim_conn *conn)
{
	for (unsigned e = 0; e < 2; e++) {
		pipe_drop_segments(sim_pipe_to(conn, e));
		if (conn->end[e] != NULL)
			conn->end[e]->reset = true;
		sim_wake_end(conn, e);
	}
}

static void deliver_data(struct sim_pipe *pipe, size_t bytes)
{
	struct sim_conn *conn = pipe->conn;
	struct sim_sock *sock = conn->end[pipe->to];
	bool cut = pipe->passed_bytes + bytes >= pipe->cut_bytes;

	if (cut)
		bytes = pipe->cut_bytes - pipe->passed_bytes;
	pipe->passed_bytes += bytes;
	conn->sim->passed_bytes[pipe->direction] += bytes;
	sim_trace(conn->sim, bytes);
	if (sock != NULL && !sock->reset) {
		pipe->readable += bytes;
		sim_wake_end(conn, pipe->to);
		if (cut)
			sim_conn_reset(conn);
		return;
	}
	/* Nobody there any more: throw it away and say so. */
	pipe->bytes -= GX_MIN(bytes, pipe->bytes);
	if (cut)
		sim_conn_reset(conn);
	else if (sock == NULL && conn->end[!pipe->to] != NULL)
		sim_pipe_send(sim_pipe_to(conn, !pipe->to), SEGMENT_RESET, 0);
}

static void deliver(struct sim_pipe *pipe, enum sim_segment_kind kind, size_t bytes)
{
	struct sim_sock *sock = pipe->conn->end[pipe->to];

	switch (kind) {
	case SEGMENT_DATA:
		deliver_data(pipe, bytes);
		break;
	case SEGMENT_END:
		if (sock != NULL)
			sock->end_received = true;
		break;
	case SEGMENT_RESET:
		if (sock != NULL)
			sock->reset = true;
		break;
	}
	sim_wake_end(pipe->conn, pipe->to);
}

static void pipe_timer_fired(struct sim_timer *timer)
{
	struct sim_pipe *pipe = GX_CONTAINER_OF(timer, struct sim_pipe, timer);
	struct sim_conn *conn = pipe->conn;

	while (pipe->segments != NULL && pipe->segments->at_ns <= conn->sim->now_ns) {
		struct sim_segment *segment = pipe->segments;
		enum sim_segment_kind kind = segment->kind;
		size_t bytes = segment->bytes;

		if (sim_link_blocked(conn->sim, conn->host[!pipe->to], conn->host[pipe->to]))
			return; /* whoever unblocks it arms the timer again */
		DL_DELETE(pipe->segments, segment);
		sim_free(segment);
		deliver(pipe, kind, bytes);
	}
	pipe_arm(pipe);
}

/* Where the next connection is to be cut in a direction. */
static uint64_t take_cut(struct gx_sim *sim, unsigned direction)
{
	uint64_t *cuts = sim->cuts[direction];
	uint64_t bytes = cuts[0];

	if (sim->cuts_count[direction] == 0)
		return UINT64_MAX;
	sim->cuts_count[direction]--;
	memmove(cuts, cuts + 1, sim->cuts_count[direction] * sizeof(*cuts));
	return bytes;
}

struct sim_conn *sim_conn_new(struct gx_sim *sim, struct sim_sock *client, struct sim_sock *server)
{
	struct sim_conn *conn = sim_alloc(sizeof(*conn));

	conn->sim = sim;
	conn->end[CLIENT_END] = client;
	conn->end[SERVER_END] = server;
	for (unsigned e = 0; e < 2; e++) {
		conn->end[e]->conn = conn;
		conn->end[e]->end = e;
		conn->host[e] = conn->end[e]->obj.proc->host;
	}
	for (unsigned d = 0; d < GX_SIM_DIRECTION_COUNT; d++) {
		struct sim_pipe *pipe = &conn->pipe[d];

		pipe->conn = conn;
		pipe->direction = (enum gx_sim_direction)d;
		pipe->to = d == GX_SIM_TO_SERVER ? SERVER_END : CLIENT_END;
		pipe->timer.fn = pipe_timer_fired;
		pipe->cut_bytes = take_cut(sim, d);
	}
	DL_APPEND(sim->conns, conn);
	return conn;
}

/* -- what tests do to the network ------------------------------------------------------------ */

/* What was held starts to travel again. */
static void conn_release(struct sim_conn *conn)
{
	for (size_t d = 0; d < GX_SIM_DIRECTION_COUNT; d++) {
		struct sim_pipe *pipe = &conn->pipe[d];
		int64_t at_ns =
			conn->sim->now_ns + sim_latency(conn->sim, conn->host[0], conn->host[1]);
		struct sim_segment *segment;

		DL_FOREACH (pipe->segments, segment) {
			segment->at_ns = GX_MAX(segment->at_ns, at_ns);
			pipe->last_at_ns = GX_MAX(pipe->last_at_ns, segment->at_ns);
		}
		pipe_arm(pipe);
	}
}

static bool conn_between(const struct sim_conn *conn, const struct gx_sim_host *a,
			 const struct gx_sim_host *b)
{
	return (conn->host[0] == a && conn->host[1] == b) ||
	       (conn->host[0] == b && conn->host[1] == a);
}

/* True when something was sent that did not get through. */
static bool conn_stuck(const struct sim_conn *conn)
{
	return conn->pipe[0].segments != NULL || conn->pipe[1].segments != NULL;
}

static void partition_heal(struct gx_sim *sim, struct sim_partition *p)
{
	struct gx_sim_host *a = p->a;
	struct gx_sim_host *b = p->b;
	bool gave_up = sim->now_ns - p->since_ns >= sim->options.partition_reset_ns;
	struct sim_conn *conn;
	struct sim_conn *tmp;

	*p = sim->partitions[--sim->partitions_count];
	DL_FOREACH_SAFE (sim->conns, conn, tmp) {
		if (!conn_between(conn, a, b))
			continue;
		if (gave_up && conn_stuck(conn))
			sim_conn_reset(conn);
		else
			conn_release(conn);
	}
}

void gx_sim_partition(struct gx_sim_host *a, struct gx_sim_host *b, bool cut)
{
	struct gx_sim *sim = a->sim;
	struct sim_partition *p = partition_find(sim, a, b);

	sim_trace(sim, cut ? 11 : 12);
	if (cut == (p != NULL))
		return;
	if (!cut) {
		partition_heal(sim, p);
		return;
	}
	sim->partitions = sim_realloc(sim->partitions,
				      (sim->partitions_count + 1) * sizeof(*sim->partitions));
	sim->partitions[sim->partitions_count++] = (struct sim_partition){a, b, sim->now_ns};
}

void gx_sim_reset_links(struct gx_sim_host *a, struct gx_sim_host *b)
{
	struct sim_conn *conn;

	DL_FOREACH (a->sim->conns, conn) {
		if (conn_between(conn, a, b))
			sim_conn_reset(conn);
	}
}

void gx_sim_cut_after(struct gx_sim *sim, enum gx_sim_direction direction, uint64_t bytes)
{
	gx_assert(sim->cuts_count[direction] < SIM_CUTS_MAX);
	sim->cuts[direction][sim->cuts_count[direction]++] = bytes;
}

uint64_t gx_sim_bytes(struct gx_sim *sim, enum gx_sim_direction direction)
{
	return sim->passed_bytes[direction];
}

void sim_net_boot(struct gx_sim_host *host)
{
	struct sim_conn *conn;

	DL_FOREACH (host->sim->conns, conn) {
		if (conn->host[0] == host || conn->host[1] == host)
			conn_release(conn);
	}
}

void sim_net_fini(struct gx_sim *sim)
{
	gx_assert(sim->conns == NULL && sim->listeners == NULL);
	sim_free(sim->partitions);
}
