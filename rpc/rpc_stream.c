#include "rpc/rpc_stream.h"

#define COPY_BYTES 65536u
#define COPY_NOWAIT_BYTES 16384u

static int plain_handshake(struct rpc_stream *s GX_UNUSED, int64_t deadline_ns GX_UNUSED)
{
	return 0;
}

static ssize_t plain_readv(struct rpc_stream *s, const struct iovec *iov, int iov_count,
			   int64_t deadline_ns)
{
	ssize_t n = gx_env_readv(s->env, s->fd, iov, iov_count, deadline_ns);

	if (n == -EAGAIN)
		s->want = GX_READABLE;
	return n;
}

static ssize_t plain_writev(struct rpc_stream *s, const struct iovec *iov, int iov_count,
			    int64_t deadline_ns)
{
	ssize_t n = gx_env_writev(s->env, s->fd, iov, iov_count, deadline_ns);

	if (n == -EAGAIN)
		s->want = GX_WRITABLE;
	return n;
}

static bool plain_pending(struct rpc_stream *s GX_UNUSED)
{
	return false;
}

static void plain_close(struct rpc_stream *s GX_UNUSED)
{
}

static const struct rpc_stream_ops plain_ops = {
	.handshake = plain_handshake,
	.readv = plain_readv,
	.writev = plain_writev,
	.pending = plain_pending,
	.close = plain_close,
};

int rpc_stream_init(struct rpc_stream *stream, struct gx_env *env, int fd)
{
	int r;

	*stream = (struct rpc_stream){.ops = &plain_ops, .env = env, .fd = fd};
	r = gx_env_sock_name(env, fd, &stream->local);
	if (r == 0)
		r = gx_env_peer_name(env, fd, &stream->remote);
	if (r < 0)
		rpc_stream_fini(stream);
	else
		stream->passes_fds = gx_env_passes_fds(env, &stream->local);
	return r;
}

void rpc_stream_fini(struct rpc_stream *stream)
{
	if (!stream->ops)
		return;
	stream->ops->close(stream);
	gx_env_close(stream->env, stream->fd);
	stream->ops = NULL;
	stream->fd = -1;
}

int rpc_stream_read_all(struct rpc_stream *s, void *buf, size_t bytes, int64_t deadline_ns)
{
	unsigned char *p = buf;

	while (bytes > 0) {
		struct iovec iov = {p, bytes};
		ssize_t n = rpc_stream_readv(s, &iov, 1, deadline_ns);

		if (n <= 0)
			return n < 0 ? (int)n : -EPIPE;
		p += n;
		bytes -= (size_t)n;
	}
	return 0;
}

int rpc_iov_advance(struct iovec **iov, int iov_count, size_t bytes)
{
	while (iov_count > 0 && bytes >= (*iov)->iov_len) {
		bytes -= (*iov)->iov_len;
		(*iov)++;
		iov_count--;
	}
	if (iov_count > 0) {
		(*iov)->iov_base = (unsigned char *)(*iov)->iov_base + bytes;
		(*iov)->iov_len -= bytes;
	}
	return iov_count;
}

int rpc_stream_write_all(struct rpc_stream *s, struct iovec *iov, int iov_count,
			 int64_t deadline_ns)
{
	iov_count = rpc_iov_advance(&iov, iov_count, 0);
	while (iov_count > 0) {
		ssize_t n = rpc_stream_writev(s, iov, iov_count, deadline_ns);

		if (n < 0)
			return (int)n;
		iov_count = rpc_iov_advance(&iov, iov_count, (size_t)n);
	}
	return 0;
}

ssize_t rpc_stream_writev_fd(struct rpc_stream *s, const struct iovec *iov, int iov_count,
			     int passed, int64_t deadline_ns)
{
	if (!s->passes_fds)
		return -EOPNOTSUPP;
	return gx_env_send_fd(s->env, s->fd, iov, iov_count, passed, deadline_ns);
}

ssize_t rpc_stream_readv_fd(struct rpc_stream *s, const struct iovec *iov, int iov_count,
			    int *ret_passed, int64_t deadline_ns)
{
	*ret_passed = -1;
	if (!s->passes_fds)
		return rpc_stream_readv(s, iov, iov_count, deadline_ns);
	return gx_env_recv_fd(s->env, s->fd, iov, iov_count, ret_passed, deadline_ns);
}

/* TLS must see the bytes. Without waiting it takes one record, with waiting all we read. */
static ssize_t send_copy(struct rpc_stream *s, int file, uint64_t offset, uint64_t bytes,
			 int64_t deadline_ns)
{
	unsigned char space[COPY_BYTES];
	size_t most = deadline_ns == GX_NOWAIT ? COPY_NOWAIT_BYTES : sizeof(space);
	ssize_t n =
		gx_env_pread(s->env, file, space, (size_t)GX_MIN(bytes, (uint64_t)most), offset);
	struct iovec iov = {space, (size_t)GX_MAX(n, 0)};
	int r;

	if (n <= 0)
		return n;
	if (deadline_ns == GX_NOWAIT)
		return rpc_stream_writev(s, &iov, 1, deadline_ns);
	r = rpc_stream_write_all(s, &iov, 1, deadline_ns);
	return r < 0 ? r : n;
}

ssize_t rpc_stream_send_file(struct rpc_stream *s, int file, uint64_t offset, uint64_t bytes,
			     int64_t deadline_ns)
{
	if (s->tls)
		return send_copy(s, file, offset, bytes, deadline_ns);
	return gx_env_sendfile(s->env, s->fd, file, offset, (size_t)bytes, deadline_ns);
}
