/*
 * rpc_stream.h - a byte stream to a peer: plain or TLS, over tcp, unix or the
 * simulation's network. Protocol code never asks which.
 *
 * Reads and writes take a deadline as the env's do: GX_NOWAIT on a loop, an
 * absolute time in blocking code. With GX_NOWAIT a -EAGAIN leaves in `want`
 * the event to wait for (TLS may have to write in order to read).
 *
 * Threads: on a loop, the loop's. In blocking code one thread may read while
 * another writes.
 */
#ifndef RPC_STREAM_H
#define RPC_STREAM_H

#include "common/gx_env.h"

struct rpc_stream;

struct rpc_stream_ops {
	/* The transport's own handshake; 0 when done. */
	int (*handshake)(struct rpc_stream *, int64_t deadline_ns);
	ssize_t (*readv)(struct rpc_stream *, const struct iovec *, int iov_count,
			 int64_t deadline_ns);
	ssize_t (*writev)(struct rpc_stream *, const struct iovec *, int iov_count,
			  int64_t deadline_ns);
	/* Bytes already taken from the socket but not yet read: no event will come for them. */
	bool (*pending)(struct rpc_stream *);
	/* Says goodbye if that needs no waiting, and frees what the transport holds (not fd). */
	void (*close)(struct rpc_stream *);
};

struct rpc_stream {
	const struct rpc_stream_ops *ops;
	struct gx_env *env;
	int fd;
	unsigned want; /* after -EAGAIN: GX_READABLE or GX_WRITABLE */
	bool tls;
	bool passes_fds; /* descriptors can go with the bytes */
	struct gx_addr local, remote;
	/* After a failure: static text for the log, or NULL. Of whoever failed last, reader or
	 * writer. */
	const char *_Atomic reason;
	void *impl; /* the TLS state */
};

/* A plain stream over a connected socket; owns fd from here on, also when it fails. */
GX_MUST_CHECK int rpc_stream_init(struct rpc_stream *stream, struct gx_env *env, int fd);
/* Closes the socket. Safe on a zeroed stream. */
void rpc_stream_fini(struct rpc_stream *stream);

static inline int rpc_stream_handshake(struct rpc_stream *s, int64_t deadline_ns)
{
	return s->ops->handshake(s, deadline_ns);
}

static inline ssize_t rpc_stream_readv(struct rpc_stream *s, const struct iovec *iov, int iov_count,
				       int64_t deadline_ns)
{
	return s->ops->readv(s, iov, iov_count, deadline_ns);
}

static inline ssize_t rpc_stream_writev(struct rpc_stream *s, const struct iovec *iov,
					int iov_count, int64_t deadline_ns)
{
	return s->ops->writev(s, iov, iov_count, deadline_ns);
}

static inline bool rpc_stream_pending(struct rpc_stream *s)
{
	return s->ops->pending(s);
}

/* All of it or an error; blocking only. -EPIPE at end of stream. */
GX_MUST_CHECK int rpc_stream_read_all(struct rpc_stream *s, void *buf, size_t bytes,
				      int64_t deadline_ns);
/* Consumes iov. */
GX_MUST_CHECK int rpc_stream_write_all(struct rpc_stream *s, struct iovec *iov, int iov_count,
				       int64_t deadline_ns);

/*
 * One write and one read with a descriptor (-EOPNOTSUPP unless passes_fds): it goes with the first
 * byte; the read may get one, or -1.
 */
GX_MUST_CHECK ssize_t rpc_stream_writev_fd(struct rpc_stream *s, const struct iovec *iov,
					   int iov_count, int passed, int64_t deadline_ns);
GX_MUST_CHECK ssize_t rpc_stream_readv_fd(struct rpc_stream *s, const struct iovec *iov,
					  int iov_count, int *ret_passed, int64_t deadline_ns);
/*
 * Writes bytes of a file: at least one, or 0 at its end. Not all that a blocking call has written
 * before an error is told: after one the stream is of no more use, unless it was GX_NOWAIT.
 */
GX_MUST_CHECK ssize_t rpc_stream_send_file(struct rpc_stream *s, int file, uint64_t offset,
					   uint64_t bytes, int64_t deadline_ns);

/* Moves an iovec array past `bytes` already done; returns the entries left, *iov moved. */
int rpc_iov_advance(struct iovec **iov, int iov_count, size_t bytes);

#endif
