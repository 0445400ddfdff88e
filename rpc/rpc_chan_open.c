/*
 * Opening and closing a client connection.
 */
#include "rpc/rpc_chan_impl.h"

#define READ_BYTES 65536u

static void explain(struct gx_buf *errors, const char *where, const char *what, const char *detail)
{
	if (!errors)
		return;
	/* A text that does not fit is no reason for another error. */
	if (detail && detail[0])
		GX_IGNORE(gx_buf_append_format(errors, "%s: %s: %s\n", where, what, detail));
	else
		GX_IGNORE(gx_buf_append_format(errors, "%s: %s\n", where, what));
}

static int run_handshake(struct rpc_chan *chan, const struct rpc_chan_options *options,
			 struct rpc_handshake *hs)
{
	struct rpc_handshake_client client = {
		.identity = options->identity,
		.key = options->key,
		.program = options->program,
		.session = options->session,
		.channel = options->channel,
	};
	int r;

	r = rpc_handshake_init_client(hs, chan->env, &client, chan->stream.tls, &chan->stream.local,
				      &chan->stream.remote);
	if (r == 0) {
		struct iovec iov = {hs->out.data, hs->out.bytes};

		r = rpc_stream_write_all(&chan->stream, &iov, 1, options->deadline_ns);
		if (r < 0)
			hs->reason = gx_strerror(r);
		gx_buf_clear(&hs->out);
	}
	while (r == 0)
		r = rpc_handshake_round(hs, &chan->stream, options->deadline_ns);
	return r < 0 ? r : 0;
}

static int chan_connect(struct rpc_chan *chan, const struct rpc_chan_options *options)
{
	struct rpc_handshake hs;
	int fd, r;

	fd = gx_env_connect(chan->env, &options->endpoint->addr, options->deadline_ns);
	if (fd < 0) {
		explain(options->errors, chan->remote, "cannot connect", gx_strerror(fd));
		return fd;
	}
	r = rpc_stream_init(&chan->stream, chan->env, fd);
	if (r == 0 && options->endpoint->tls) {
		r = rpc_tls_start(&chan->stream, options->tls);
		if (r == 0)
			r = rpc_stream_handshake(&chan->stream, options->deadline_ns);
	}
	if (r < 0) {
		explain(options->errors, chan->remote, "TLS handshake failed",
			chan->stream.reason ? chan->stream.reason : gx_strerror(r));
		return r;
	}
	r = run_handshake(chan, options, &hs);
	if (r < 0) {
		explain(options->errors, chan->remote, hs.reason ? hs.reason : gx_strerror(r),
			hs.detail);
	} else {
		chan->secret = hs.secret;
		chan->info = (struct rpc_chan_info){hs.session, hs.session_known, hs.boot,
						    hs.features, chan->server};
		memcpy(chan->server, hs.server_name, sizeof(chan->server));
	}
	rpc_handshake_fini(&hs);
	return r;
}

static void chan_free(struct rpc_chan *chan)
{
	while (chan->passed_count > 0)
		gx_env_close(chan->env, chan->passed[--chan->passed_count]);
	for (size_t i = 0; i < SLOTS; i++) {
		free(chan->slots[i].held);
		if (chan->slots[i].state != SLOT_FREE && chan->slots[i].descriptor >= 0)
			gx_env_close(chan->env, chan->slots[i].descriptor);
		if (chan->slots[i].has_wake)
			gx_env_cond_fini(chan->env, &chan->slots[i].wake);
	}
	rpc_stream_fini(&chan->stream);
	free(chan->in);
	free(chan);
}

int rpc_chan_open(const struct rpc_chan_options *options, struct rpc_chan **ret_chan)
{
	struct rpc_chan *chan = calloc(1, sizeof(*chan));
	int r;

	if (!chan)
		return -ENOMEM;
	chan->env = options->env;
	chan->next_call = 1;
	rpc_endpoint_format(options->endpoint, chan->remote);
	chan->in = gx_alloc_pages(READ_BYTES);
	chan->in_size = READ_BYTES;
	r = chan->in ? chan_connect(chan, options) : -ENOMEM;
	if (r < 0) {
		chan_free(chan);
		return r;
	}
	r = gx_env_mutex_init(chan->env, &chan->lock);
	if (r == 0) {
		r = gx_env_cond_init(chan->env, &chan->writable);
		if (r < 0)
			gx_env_mutex_fini(chan->env, &chan->lock);
	}
	if (r < 0) {
		chan_free(chan);
		return r;
	}
	*ret_chan = chan;
	return 0;
}

void rpc_chan_close(struct rpc_chan *chan)
{
	if (!chan)
		return;
	gx_env_cond_fini(chan->env, &chan->writable);
	gx_env_mutex_fini(chan->env, &chan->lock);
	chan_free(chan);
}

void rpc_chan_info(const struct rpc_chan *chan, struct rpc_chan_info *ret_info)
{
	*ret_info = chan->info;
}

unsigned rpc_chan_load(struct rpc_chan *chan)
{
	unsigned load;

	gx_env_mutex_lock(chan->env, &chan->lock);
	load = chan->load;
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return load;
}
