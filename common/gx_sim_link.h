/*
 * gx_sim_link.h - what the files of the simulated network share; nobody else includes it.
 *
 * gx_sim_link.c  connections: what travels, when it arrives, what tests do to it
 * gx_sim_net.c   addresses, descriptors and the env's operations on sockets
 */
#ifndef GX_SIM_LINK_H
#define GX_SIM_LINK_H

#include "common/gx_sim_impl.h"
#include <utlist.h>

enum sim_segment_kind { SEGMENT_DATA, SEGMENT_END, SEGMENT_RESET };

struct sim_segment {
	struct sim_segment *prev, *next;
	enum sim_segment_kind kind;
	size_t bytes;
	int64_t at_ns;
};

/* One direction. pipe[d] of a connection carries bytes in direction d, to end[to]. */
struct sim_pipe {
	struct sim_conn *conn;
	enum gx_sim_direction direction;
	unsigned to; /* receiving end */
	struct sim_timer timer;
	uint8_t *ring;
	size_t ring_max, head; /* capacity; where the first byte is */
	size_t bytes;          /* in the ring */
	size_t readable;       /* arrived, the first of them */
	struct sim_segment *segments;
	int64_t last_at_ns;
	uint64_t passed_bytes;
	uint64_t cut_bytes; /* reset when so many have passed; UINT64_MAX: never */
	bool ended;         /* END was sent */
};

enum { CLIENT_END, SERVER_END };

struct sim_conn {
	struct gx_sim *sim;
	struct sim_conn *prev, *next;
	struct sim_sock *end[2];     /* NULL: closed */
	struct gx_sim_host *host[2]; /* where the ends are or were */
	struct sim_pipe pipe[GX_SIM_DIRECTION_COUNT];
};

struct sim_sock {
	struct sim_obj obj;
	struct sim_sock *prev, *next; /* in a listener's queue */
	struct sim_conn *conn;        /* NULL: connecting */
	unsigned end;
	bool reset;        /* the connection was reset */
	bool reset_told;   /* and a write has reported it */
	bool end_received; /* the peer's end of stream */
	bool shut;         /* our own shutdown */
	struct gx_addr local, peer;
};

/* Nothing gets from one host to the other: partition, or no power. */
bool sim_link_blocked(struct gx_sim *sim, const struct gx_sim_host *from,
		      const struct gx_sim_host *to);
int64_t sim_latency(struct gx_sim *sim, const struct gx_sim_host *a, const struct gx_sim_host *b);

struct sim_conn *sim_conn_new(struct gx_sim *sim, struct sim_sock *client, struct sim_sock *server);
/* When both ends are closed. */
void sim_conn_free(struct sim_conn *conn);
/* Both ends see it at once; nothing in flight arrives any more. */
void sim_conn_reset(struct sim_conn *conn);
/* Whoever waits for this end looks again. */
void sim_wake_end(struct sim_conn *conn, unsigned end);

struct sim_pipe *sim_pipe_to(struct sim_conn *conn, unsigned end);
size_t sim_pipe_space(const struct sim_pipe *pipe);
/* Room in the ring for `bytes` more; then put them, then send them on their way. */
void sim_pipe_reserve(struct sim_pipe *pipe, size_t bytes);
void sim_pipe_put(struct sim_pipe *pipe, const uint8_t *data, size_t bytes);
void sim_pipe_send(struct sim_pipe *pipe, enum sim_segment_kind kind, size_t bytes);
void sim_pipe_get(struct sim_pipe *pipe, uint8_t *data, size_t bytes);

#endif
