#include "rpc/rpc_tls.h"
#include "common/gx_secret.h"
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#define SUITE "TLS_AES_128_GCM_SHA256"
#define SUITE_ID "\x13\x01"
/*
 * X25519 first, because it makes the handshake almost twice as fast as P-256 (OpenSSL 3 spends
 * more on handling a P-256 key than on its arithmetic); P-256 is there for other clients.
 */
#define GROUPS "X25519:P-256"
/* Small segments are gathered into one record up to this size. */
#define RECORD_BYTES 16384

struct rpc_tls_ctx {
	SSL_CTX *ssl_ctx;
	struct gx_env *env;
	bool server;
	const struct rpc_auth *auth;      /* server */
	char identity[GX_IDENTITY_MAX];   /* client */
	unsigned char key[RPC_KEY_BYTES]; /* client */
};

struct tls_state {
	SSL *ssl;
	struct rpc_tls_ctx *ctx;
	struct gx_mutex lock; /* around every call on ssl */
	struct rpc_peer peer; /* server: who the PSK belongs to */
	bool peer_known;
	bool established;
	char identity[GX_IDENTITY_MAX];
	const char *refusal; /* why rpc_auth_find() said no */
};

/* Position of our pointers inside SSL and SSL_CTX objects; set up once. */
static int ssl_index = -1;
static int ctx_index = -1;
/* OpenSSL's socket BIO, but one whose write never raises SIGPIPE in somebody's application. */
static BIO_METHOD *quiet_socket;

static int quiet_write(BIO *bio, const char *data, int bytes)
{
	ssize_t n;
	int fd;

	BIO_clear_retry_flags(bio);
	if (BIO_get_fd(bio, &fd) < 0)
		return -1;
	do {
		n = send(fd, data, (size_t)bytes, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && BIO_sock_should_retry((int)n))
		BIO_set_retry_write(bio);
	return (int)n;
}

static BIO_METHOD *quiet_socket_make(void)
{
	const BIO_METHOD *plain = BIO_s_socket();
	BIO_METHOD *quiet = BIO_meth_new(BIO_TYPE_SOCKET, "socket without SIGPIPE");

	if (!quiet || !BIO_meth_set_write(quiet, quiet_write) ||
	    !BIO_meth_set_read(quiet, BIO_meth_get_read(plain)) ||
	    !BIO_meth_set_ctrl(quiet, BIO_meth_get_ctrl(plain)) ||
	    !BIO_meth_set_create(quiet, BIO_meth_get_create(plain)) ||
	    !BIO_meth_set_destroy(quiet, BIO_meth_get_destroy(plain))) {
		BIO_meth_free(quiet);
		return NULL;
	}
	return quiet;
}

__attribute__((constructor)) static void globals_make(void)
{
	ssl_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
	ctx_index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL);
	quiet_socket = quiet_socket_make();
}

static int socket_attach(SSL *ssl, int fd)
{
	BIO *bio = quiet_socket ? BIO_new(quiet_socket) : NULL;

	if (!bio)
		return 0;
	BIO_set_fd(bio, fd, BIO_NOCLOSE);
	SSL_set_bio(ssl, bio, bio);
	return 1;
}

/* -- PSK callbacks ----------------------------------------------------------- */

static SSL_SESSION *psk_session(SSL *ssl, const unsigned char key[RPC_KEY_BYTES])
{
	SSL_SESSION *session = SSL_SESSION_new();
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, (const unsigned char *)SUITE_ID);

	if (!session || !cipher || !SSL_SESSION_set1_master_key(session, key, RPC_KEY_BYTES) ||
	    !SSL_SESSION_set_cipher(session, cipher) ||
	    !SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION)) {
		SSL_SESSION_free(session);
		return NULL;
	}
	return session;
}

static int psk_find(SSL *ssl, const unsigned char *identity, size_t identity_bytes,
		    SSL_SESSION **ret_session)
{
	struct tls_state *state = SSL_get_ex_data(ssl, ssl_index);
	unsigned char key[RPC_KEY_BYTES];
	int r;

	*ret_session = NULL;
	state->refusal = NULL; /* of an identity offered before this one */
	if (identity_bytes == 0 || identity_bytes >= sizeof(state->identity) ||
	    memchr(identity, '\0', identity_bytes)) {
		state->refusal = "malformed identity";
		return 1;
	}
	memcpy(state->identity, identity, identity_bytes);
	state->identity[identity_bytes] = '\0';
	r = rpc_auth_find(state->ctx->auth, state->identity, &state->peer, key, &state->refusal);
	state->peer_known = r == 0;
	/*
	 * An unknown identity gets a key nobody has, so that it fails exactly where a wrong
	 * key does and a stranger cannot find out who exists.
	 */
	if (r == -EKEYREJECTED)
		r = gx_env_random(state->ctx->env, key, sizeof(key));
	if (r < 0)
		return 0;
	*ret_session = psk_session(ssl, key);
	gx_wipe(key, sizeof(key));
	return *ret_session != NULL;
}

static int psk_use(SSL *ssl, const EVP_MD *md, const unsigned char **ret_id, size_t *ret_id_bytes,
		   SSL_SESSION **ret_session)
{
	struct tls_state *state = SSL_get_ex_data(ssl, ssl_index);
	SSL_SESSION *session;

	*ret_session = NULL;
	*ret_id = NULL;
	*ret_id_bytes = 0;
	/* A server that insists on another hash after a retry cannot use our PSK. */
	if (md && !EVP_MD_is_a(md, "SHA256"))
		return 1;
	session = psk_session(ssl, state->ctx->key);
	if (!session)
		return 0;
	*ret_id = (const unsigned char *)state->ctx->identity;
	*ret_id_bytes = strlen(state->ctx->identity);
	*ret_session = session;
	return 1;
}

/* -- contexts ------------------------------------------------------------------ */

static int ctx_new(struct gx_env *env, bool server, struct rpc_tls_ctx **ret_ctx)
{
	struct rpc_tls_ctx *ctx;
	SSL_CTX *s;
	int r;

	if (env->simulated)
		return -ENOSYS;
	r = gx_fault_check(env, GX_FAULT_TLS);
	if (r < 0)
		return r;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	ctx->env = env;
	ctx->server = server;
	s = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
	ctx->ssl_ctx = s;
	if (!s || !SSL_CTX_set_min_proto_version(s, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(s, SUITE) || !SSL_CTX_set1_groups_list(s, GROUPS) ||
	    !SSL_CTX_set_ex_data(s, ctx_index, ctx)) {
		ERR_clear_error();
		rpc_tls_ctx_free(ctx);
		return -ENOMEM;
	}
	SSL_CTX_set_options(s, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
				       SSL_OP_ENABLE_KTLS);
	SSL_CTX_set_mode(s, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				    SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(s, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(s, 0);
	/* One recv for a record's head and body instead of two. */
	SSL_CTX_set_read_ahead(s, 1);
	/*
	 * A server without our PSK would have to show a certificate: none is trusted. A
	 * server has none to show, so a client without a PSK cannot finish either.
	 */
	SSL_CTX_set_verify(s, server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
	*ret_ctx = ctx;
	return 0;
}

int rpc_tls_ctx_new_server(const struct rpc_auth *auth, struct rpc_tls_ctx **ret_ctx)
{
	struct rpc_tls_ctx *ctx;
	int r = ctx_new(auth->env, true, &ctx);

	if (r < 0)
		return r;
	ctx->auth = auth;
	SSL_CTX_set_psk_find_session_callback(ctx->ssl_ctx, psk_find);
	*ret_ctx = ctx;
	return 0;
}

int rpc_tls_ctx_new_client(struct gx_env *env, const char *identity,
			   const unsigned char key[RPC_KEY_BYTES], struct rpc_tls_ctx **ret_ctx)
{
	struct rpc_tls_ctx *ctx;
	int r = ctx_new(env, false, &ctx);

	if (r < 0)
		return r;
	r = gx_strcpy(ctx->identity, sizeof(ctx->identity), identity);
	if (r < 0) {
		rpc_tls_ctx_free(ctx);
		return r;
	}
	memcpy(ctx->key, key, RPC_KEY_BYTES);
	SSL_CTX_set_psk_use_session_callback(ctx->ssl_ctx, psk_use);
	*ret_ctx = ctx;
	return 0;
}

void rpc_tls_ctx_free(struct rpc_tls_ctx *ctx)
{
	if (!ctx)
		return;
	SSL_CTX_free(ctx->ssl_ctx);
	gx_wipe(ctx->key, sizeof(ctx->key));
	free(ctx);
}

/* -- streams ------------------------------------------------------------------- */

/* The peer is gone without a goodbye: killed, or cut off. No breach of the protocol. */
static const char lost[] = "connection lost";

/* What OpenSSL's queue says, as one of our texts; the queue is empty afterwards. */
static const char *drain_reason(const struct tls_state *state)
{
	const char *reason = NULL;
	unsigned long e;

	while ((e = ERR_get_error()) != 0) {
		if (reason)
			continue;
		switch (ERR_GET_REASON(e)) {
		case SSL_R_WRONG_VERSION_NUMBER:
		case SSL_R_HTTP_REQUEST:
		case SSL_R_PACKET_LENGTH_TOO_LONG:
			/* The record layer met bytes that are no TLS record. */
			reason = "peer does not speak TLS (plain client on a TLS port?)";
			break;
		case SSL_R_UNSUPPORTED_PROTOCOL:
		case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
			reason = "TLS below 1.3 refused (downgrade)";
			break;
		case SSL_R_UNEXPECTED_EOF_WHILE_READING:
			reason = lost;
			break;
		case SSL_R_BINDER_DOES_NOT_VERIFY:
			reason = "wrong key";
			break;
		case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
		case SSL_R_SSLV3_ALERT_BAD_RECORD_MAC:
			reason = "tampered record";
			break;
		case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
		case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER: /* the alert for a wrong PSK binder */
		case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
			reason = "authentication failed";
			break;
		case SSL_R_NO_SHARED_CIPHER:
		case SSL_R_NO_SUITABLE_KEY_SHARE:
		case SSL_R_NO_CERTIFICATE_SET:
		case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
			reason = "no usable identity offered";
			break;
		default:
			reason = "TLS error";
			break;
		}
	}
	if (state->refusal)
		return state->refusal;
	return reason;
}

/*
 * After an SSL call that did not succeed: -EAGAIN with what to wait for, 0 for
 * a clean end of stream, or the error with s->reason. Called under the lock.
 */
static int ssl_failure(struct rpc_stream *s, int result, unsigned *ret_want)
{
	struct tls_state *state = s->impl;
	int saved = errno;
	int why = SSL_get_error(state->ssl, result);
	const char *reason;

	switch (why) {
	case SSL_ERROR_WANT_READ:
		*ret_want = GX_READABLE;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		*ret_want = GX_WRITABLE;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		break;
	}
	reason = drain_reason(state);
	if (!reason)
		reason = lost;
	s->reason = reason;
	if (reason == lost)
		return why == SSL_ERROR_SYSCALL && saved > 0 ? -saved : -ECONNRESET;
	return state->established ? -EPROTO : -EKEYREJECTED;
}

/*
 * A blocking reader and a blocking writer wait at the same time, each for its own event: s->want,
 * which they share, is only for the one user of a loop.
 */
static int wait_for(struct rpc_stream *s, unsigned want, int64_t deadline_ns)
{
	struct gx_pollfd pfd = {.fd = s->fd, .events = want};
	int r;

	if (deadline_ns == GX_NOWAIT) {
		s->want = want;
		return -EAGAIN;
	}
	r = gx_env_poll(s->env, &pfd, 1, deadline_ns);
	if (r < 0)
		return r;
	return r == 0 ? -ETIMEDOUT : 0;
}

static int tls_handshake(struct rpc_stream *s, int64_t deadline_ns)
{
	struct tls_state *state = s->impl;
	int r;

	while (!state->established) {
		unsigned want = GX_READABLE;

		r = gx_fault_check(s->env, GX_FAULT_TLS);
		if (r < 0)
			return r;
		gx_env_mutex_lock(s->env, &state->lock);
		ERR_clear_error();
		errno = 0;
		r = SSL_do_handshake(state->ssl);
		if (r == 1) {
			/* VERIFY_PEER with no trusted root has stopped certificates; be sure. */
			state->established = SSL_session_reused(state->ssl) == 1;
			r = state->established ? 0 : -EKEYREJECTED;
		} else {
			r = ssl_failure(s, r, &want);
			if (r == 0)
				r = -ECONNRESET;
		}
		gx_env_mutex_unlock(s->env, &state->lock);
		if (r == -EAGAIN)
			r = wait_for(s, want, deadline_ns);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool tls_pending(struct rpc_stream *s)
{
	struct tls_state *state = s->impl;
	bool pending;

	gx_env_mutex_lock(s->env, &state->lock);
	pending = SSL_has_pending(state->ssl) == 1;
	gx_env_mutex_unlock(s->env, &state->lock);
	return pending;
}

static ssize_t tls_read_once(struct rpc_stream *s, void *buf, size_t bytes, unsigned *ret_want)
{
	struct tls_state *state = s->impl;
	size_t got = 0;
	ssize_t n;
	int r = gx_fault_check(s->env, GX_FAULT_TLS);

	if (r < 0)
		return r;
	gx_env_mutex_lock(s->env, &state->lock);
	ERR_clear_error();
	errno = 0;
	r = SSL_read_ex(state->ssl, buf, bytes, &got);
	n = r == 1 ? (ssize_t)got : ssl_failure(s, r, ret_want);
	gx_env_mutex_unlock(s->env, &state->lock);
	return n;
}

static ssize_t tls_readv(struct rpc_stream *s, const struct iovec *iov, int iov_count,
			 int64_t deadline_ns)
{
	/* A blocking caller has mostly just sent its request: wait first, then read once. */
	bool wait_first = deadline_ns != GX_NOWAIT && !tls_pending(s);

	gx_assert(iov_count > 0);
	for (;;) {
		unsigned want = GX_READABLE;
		ssize_t total = 0;
		ssize_t n = -EAGAIN;
		int r;

		if (!wait_first) {
			/* Fill as much as is there without waiting: a record gives 16 KiB at most.
			 */
			for (int i = 0; i < iov_count; i++) {
				unsigned char *p = iov[i].iov_base;
				size_t left = iov[i].iov_len;

				while (left > 0) {
					n = tls_read_once(s, p, left, &want);
					if (n <= 0)
						break;
					p += n;
					left -= (size_t)n;
					total += n;
					if (!tls_pending(s))
						break;
				}
				if (left > 0)
					break;
			}
			if (total > 0 || n != -EAGAIN)
				return total > 0 ? total : n;
		}
		wait_first = false;
		r = wait_for(s, want, deadline_ns);
		if (r < 0)
			return r;
	}
}

/* The bytes for one SSL_write: the first segment if it is big, else several gathered. */
static size_t gather(const struct iovec *iov, int iov_count, unsigned char *space,
		     const void **ret_data)
{
	size_t bytes = 0;

	if (iov_count == 1 || iov[0].iov_len >= RECORD_BYTES) {
		*ret_data = iov[0].iov_base;
		return iov[0].iov_len;
	}
	for (int i = 0; i < iov_count && bytes < RECORD_BYTES; i++) {
		size_t part = GX_MIN(iov[i].iov_len, RECORD_BYTES - bytes);

		/* An empty part may have no memory at all. */
		if (part > 0)
			memcpy(space + bytes, iov[i].iov_base, part);
		bytes += part;
	}
	*ret_data = space;
	return bytes;
}

static ssize_t tls_writev(struct rpc_stream *s, const struct iovec *iov, int iov_count,
			  int64_t deadline_ns)
{
	struct tls_state *state = s->impl;
	unsigned char space[RECORD_BYTES];
	const void *data;
	size_t bytes;

	while (iov_count > 1 && iov[0].iov_len == 0) {
		iov++;
		iov_count--;
	}
	bytes = gather(iov, iov_count, space, &data);
	for (;;) {
		unsigned want = GX_WRITABLE;
		size_t done = 0;
		ssize_t n;
		int r = gx_fault_check(s->env, GX_FAULT_TLS);

		if (r < 0)
			return r;
		gx_env_mutex_lock(s->env, &state->lock);
		ERR_clear_error();
		errno = 0;
		r = SSL_write_ex(state->ssl, data, bytes, &done);
		n = r == 1 ? (ssize_t)done : ssl_failure(s, r, &want);
		gx_env_mutex_unlock(s->env, &state->lock);
		if (n == 0)
			return -EPIPE;
		if (n != -EAGAIN)
			return n;
		r = wait_for(s, want, deadline_ns);
		if (r < 0)
			return r;
	}
}

static void tls_close(struct rpc_stream *s)
{
	struct tls_state *state = s->impl;

	if (state->established) {
		ERR_clear_error();
		SSL_shutdown(state->ssl);
	}
	ERR_clear_error();
	SSL_free(state->ssl);
	gx_env_mutex_fini(s->env, &state->lock);
	free(state);
	s->impl = NULL;
}

static const struct rpc_stream_ops tls_ops = {
	.handshake = tls_handshake,
	.readv = tls_readv,
	.writev = tls_writev,
	.pending = tls_pending,
	.close = tls_close,
};

static int ssl_attach(struct tls_state *state, struct rpc_stream *stream)
{
	int flags = fcntl(stream->fd, F_GETFL);

	if (flags < 0 || fcntl(stream->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return gx_errno();
	state->ssl = SSL_new(state->ctx->ssl_ctx);
	if (!state->ssl || !socket_attach(state->ssl, stream->fd) ||
	    !SSL_set_ex_data(state->ssl, ssl_index, state)) {
		ERR_clear_error();
		return -ENOMEM;
	}
	if (state->ctx->server)
		SSL_set_accept_state(state->ssl);
	else
		SSL_set_connect_state(state->ssl);
	return 0;
}

int rpc_tls_start(struct rpc_stream *stream, struct rpc_tls_ctx *ctx)
{
	struct tls_state *state;
	int r = gx_fault_check(stream->env, GX_FAULT_TLS);

	if (r < 0)
		return r;
	state = calloc(1, sizeof(*state));
	if (!state)
		return -ENOMEM;
	state->ctx = ctx;
	r = ssl_attach(state, stream);
	if (r == 0)
		r = gx_env_mutex_init(stream->env, &state->lock);
	if (r < 0) {
		SSL_free(state->ssl);
		free(state);
		return r;
	}
	stream->impl = state;
	stream->ops = &tls_ops;
	stream->tls = true;
	stream->passes_fds = false;
	return 0;
}

const struct rpc_peer *rpc_tls_peer(const struct rpc_stream *stream)
{
	const struct tls_state *state = stream->impl;

	return state && state->established && state->peer_known ? &state->peer : NULL;
}

const char *rpc_tls_identity(const struct rpc_stream *stream)
{
	const struct tls_state *state = stream->impl;

	return state ? state->identity : "";
}
