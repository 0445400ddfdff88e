#include "bench/lib/raw.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/un.h>
#include <unistd.h>

#define SUITE "TLS_AES_128_GCM_SHA256"
#define ECHO_BYTES 16384u
/* A message up to this size is received whole, a larger one in pieces of it. */
#define PIECE_BYTES (1024u * 1024)
#define BACKLOG 64
#define EPOLL_EVENTS 64

/* -- bytes ------------------------------------------------------------------------------- */

ssize_t raw_read(struct raw_conn *conn, void *buf, size_t bytes)
{
	ssize_t n;

	if (conn->ssl) {
		size_t got = 0;

		return SSL_read_ex(conn->ssl, buf, bytes, &got) == 1 ? (ssize_t)got : -EPIPE;
	}
	n = read(conn->fd, buf, bytes);
	if (n == 0)
		return -EPIPE;
	return n < 0 ? gx_errno() : n;
}

int raw_read_all(struct raw_conn *conn, void *buf, size_t bytes)
{
	unsigned char *p = buf;

	while (bytes > 0) {
		ssize_t n = raw_read(conn, p, bytes);

		if (n < 0)
			return (int)n;
		p += n;
		bytes -= (size_t)n;
	}
	return 0;
}

int raw_write_all(struct raw_conn *conn, const void *buf, size_t bytes)
{
	const unsigned char *p = buf;
	size_t done = 0;

	if (conn->ssl)
		return SSL_write_ex(conn->ssl, buf, bytes, &done) == 1 ? 0 : -EPIPE;
	while (bytes > 0) {
		ssize_t n = write(conn->fd, p, bytes);

		if (n < 0)
			return gx_errno();
		p += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* -- certificates ------------------------------------------------------------------------ */

static X509 *certificate(const char *name, EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key)
{
	X509 *cert = X509_new();
	X509V3_CTX v3;
	X509_EXTENSION *ext;

	if (!cert)
		return NULL;
	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), issuer ? 2 : 1);
	X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
	X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
	X509_set_pubkey(cert, key);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
				   (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer : cert));
	X509V3_set_ctx_nodb(&v3);
	X509V3_set_ctx(&v3, issuer ? issuer : cert, cert, NULL, NULL, 0);
	ext = issuer ? X509V3_EXT_conf_nid(NULL, &v3, NID_subject_alt_name, "DNS:localhost")
		     : X509V3_EXT_conf_nid(NULL, &v3, NID_basic_constraints, "critical,CA:TRUE");
	if (ext)
		X509_add_ext(cert, ext, -1);
	X509_EXTENSION_free(ext);
	if (!ext || X509_sign(cert, issuer_key, EVP_sha256()) == 0) {
		X509_free(cert);
		return NULL;
	}
	return cert;
}

static SSL_CTX *context(bool server)
{
	SSL_CTX *ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());

	if (!ctx)
		return NULL;
	SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
	SSL_CTX_set_ciphersuites(ctx, SUITE);
	SSL_CTX_set_mode(ctx, SSL_MODE_AUTO_RETRY);
	return ctx;
}

struct identity {
	EVP_PKEY *key;
	X509 *cert;
};

static int identity_init(struct identity *id, const char *name, const struct identity *issuer)
{
	id->key = EVP_EC_gen("P-256");
	if (id->key)
		id->cert = certificate(name, id->key, issuer ? issuer->cert : NULL,
				       issuer ? issuer->key : id->key);
	return id->cert ? 0 : -ENOMEM;
}

static void identity_fini(struct identity *id)
{
	X509_free(id->cert);
	EVP_PKEY_free(id->key);
}

static int context_show(SSL_CTX *ctx, const struct identity *own)
{
	return SSL_CTX_use_certificate(ctx, own->cert) == 1 &&
			       SSL_CTX_use_PrivateKey(ctx, own->key) == 1
		       ? 0
		       : -EINVAL;
}

static int context_demand(SSL_CTX *ctx, const struct identity *ca)
{
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	return X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), ca->cert) == 1 ? 0 : -EINVAL;
}

static int pair_init(struct raw_tls_pair *pair, const struct identity *ca,
		     const struct identity *server, const struct identity *client)
{
	static const unsigned char id[] = "wire";
	int r;

	pair->server = context(true);
	pair->client = context(false);
	if (!pair->server || !pair->client)
		return -ENOMEM;
	r = context_show(pair->server, server);
	if (r == 0)
		r = context_demand(pair->client, ca);
	if (r == 0 && client) {
		r = context_show(pair->client, client);
		if (r == 0)
			r = context_demand(pair->server, ca);
		/* OpenSSL wants one where clients are verified and tickets given. */
		SSL_CTX_set_session_id_context(pair->server, id, sizeof(id));
	}
	return r;
}

int raw_tls_init(struct raw_tls *tls)
{
	struct identity ca = {0}, server = {0}, client = {0};
	int r = identity_init(&ca, "bench CA", NULL);

	*tls = (struct raw_tls){0};
	if (r == 0)
		r = identity_init(&server, "localhost", &ca);
	if (r == 0)
		r = identity_init(&client, "client", &ca);
	if (r == 0)
		r = pair_init(&tls->one_sided, &ca, &server, NULL);
	if (r == 0)
		r = pair_init(&tls->mutual, &ca, &server, &client);
	identity_fini(&client);
	identity_fini(&server);
	identity_fini(&ca);
	if (r < 0)
		raw_tls_fini(tls);
	return r;
}

void raw_tls_fini(struct raw_tls *tls)
{
	SSL_CTX_free(tls->one_sided.server);
	SSL_CTX_free(tls->one_sided.client);
	SSL_CTX_free(tls->mutual.server);
	SSL_CTX_free(tls->mutual.client);
	*tls = (struct raw_tls){0};
}

const struct raw_tls_pair *raw_tls_pair(const struct raw_tls *tls, enum raw_kind kind)
{
	return kind == RAW_TLS_MUTUAL ? &tls->mutual : &tls->one_sided;
}

static bool is_tls(enum raw_kind kind)
{
	return kind == RAW_TLS || kind == RAW_TLS_MUTUAL;
}

/* -- servers ----------------------------------------------------------------------------- */

static void no_delay(int fd)
{
	int one = 1;

	/* Fails on a unix socket, which has no need of it. */
	GX_IGNORE(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
}

static void serve_echo(struct raw_conn *conn, unsigned char *space)
{
	for (;;) {
		ssize_t n = raw_read(conn, space, ECHO_BYTES);

		if (n < 0 || raw_write_all(conn, space, (size_t)n) < 0)
			return;
	}
}

static void serve_sink(struct raw_conn *conn, unsigned char *space, uint64_t request_bytes)
{
	static const unsigned char ack[RAW_ACK_BYTES] = {1};

	for (;;) {
		for (uint64_t left = request_bytes; left > 0;) {
			size_t part = (size_t)GX_MIN(left, (uint64_t)PIECE_BYTES);

			if (raw_read_all(conn, space, part) < 0)
				return;
			left -= part;
		}
		if (raw_write_all(conn, ack, sizeof(ack)) < 0)
			return;
	}
}

static int send_file(struct raw_conn *conn, int file, uint64_t bytes)
{
	off_t offset = 0;

	while ((uint64_t)offset < bytes) {
		size_t part = (size_t)GX_MIN(bytes - (uint64_t)offset, (uint64_t)PIECE_BYTES);
		ssize_t n = sendfile(conn->fd, file, &offset, part);

		if (n <= 0)
			return n < 0 ? gx_errno() : -ENODATA;
	}
	return 0;
}

static int send_memory(struct raw_conn *conn, const unsigned char *space, uint64_t bytes)
{
	int r = 0;

	while (r == 0 && bytes > 0) {
		size_t part = (size_t)GX_MIN(bytes, (uint64_t)PIECE_BYTES);

		r = raw_write_all(conn, space, part);
		bytes -= part;
	}
	return r;
}

/* A short request, a long reply. */
static void serve_source(struct raw_conn *conn, unsigned char *space, const struct raw_hello *hello,
			 int file)
{
	for (;;) {
		int r = raw_read_all(conn, space, hello->request_bytes);

		if (r == 0)
			r = hello->from_file ? send_file(conn, file, hello->reply_bytes)
					     : send_memory(conn, space, hello->reply_bytes);
		if (r < 0)
			return;
	}
}

struct acceptor {
	const struct raw_server *server;
	enum raw_kind kind;
	unsigned char *space; /* PIECE_BYTES */
};

static void serve_one(struct acceptor *a, int fd)
{
	struct raw_conn conn = {.fd = fd};
	struct raw_hello hello;

	no_delay(fd);
	if (is_tls(a->kind)) {
		conn.ssl = SSL_new(raw_tls_pair(a->server->tls, a->kind)->server);
		if (!conn.ssl || !SSL_set_fd(conn.ssl, fd) || SSL_accept(conn.ssl) != 1)
			goto out;
	}
	if (raw_read_all(&conn, &hello, sizeof(hello)) < 0)
		goto out;
	if (hello.request_bytes == hello.reply_bytes)
		serve_echo(&conn, a->space);
	else if (hello.reply_bytes > hello.request_bytes && hello.request_bytes <= PIECE_BYTES)
		serve_source(&conn, a->space, &hello, a->server->file);
	else
		serve_sink(&conn, a->space, hello.request_bytes);
out:
	ERR_clear_error();
	raw_close(&conn);
}

static void *acceptor_main(void *arg)
{
	struct acceptor *a = arg;

	for (;;) {
		int fd = accept(a->server->listeners[a->kind], NULL, NULL);

		if (fd >= 0)
			serve_one(a, fd);
	}
	return NULL;
}

static void epoll_add(int epoll, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data = {.fd = fd}};
	int r = epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev);

	gx_assert(r == 0);
}

/* Each message fits one read and one write: loopback does not split 64 bytes. */
static void epoll_echo(int fd)
{
	unsigned char space[ECHO_BYTES];
	ssize_t n = read(fd, space, sizeof(space));

	if (n <= 0 || write(fd, space, (size_t)n) != n)
		close(fd);
}

GX_NORETURN static void epoll_run(int listener)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	gx_assert(epoll >= 0);
	epoll_add(epoll, listener);
	for (;;) {
		struct epoll_event events[EPOLL_EVENTS];
		int count = epoll_wait(epoll, events, EPOLL_EVENTS, -1);

		for (int i = 0; i < count; i++) {
			if (events[i].data.fd == listener) {
				int fd = accept(listener, NULL, NULL);

				no_delay(fd);
				epoll_add(epoll, fd);
			} else {
				epoll_echo(events[i].data.fd);
			}
		}
	}
}

void raw_server_run(const struct raw_server *server)
{
	for (int kind = 0; kind < RAW_KIND_COUNT; kind++) {
		struct acceptor *a;
		pthread_t thread;
		int r;

		if (kind == RAW_EPOLL)
			continue;
		a = calloc(1, sizeof(*a));
		gx_assert(a);
		a->space = gx_alloc_pages(PIECE_BYTES);
		gx_assert(a->space);
		memset(a->space, 1, PIECE_BYTES);
		a->server = server;
		a->kind = (enum raw_kind)kind;
		r = pthread_create(&thread, NULL, acceptor_main, a);
		gx_assert(r == 0);
	}
	epoll_run(server->listeners[RAW_EPOLL]);
}

static int listen_on(struct raw_server *server, enum raw_kind kind, const char *path)
{
	struct sockaddr_storage *sa = &server->addr[kind];
	struct sockaddr_in *in = (struct sockaddr_in *)sa;
	struct sockaddr_un *un = (struct sockaddr_un *)sa;
	socklen_t *bytes = &server->addr_bytes[kind];
	int fd, r = 0;

	if (kind == RAW_UNIX) {
		un->sun_family = AF_UNIX;
		r = gx_strcpy(un->sun_path, sizeof(un->sun_path), path);
		*bytes = sizeof(*un);
	} else {
		in->sin_family = AF_INET;
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		*bytes = sizeof(*in);
	}
	if (r < 0)
		return r;
	fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return gx_errno();
	server->listeners[kind] = fd;
	if (bind(fd, (struct sockaddr *)sa, *bytes) < 0 || listen(fd, BACKLOG) < 0 ||
	    (kind != RAW_UNIX && getsockname(fd, (struct sockaddr *)sa, bytes) < 0))
		return gx_errno();
	return 0;
}

int raw_server_init(struct raw_server *server, const struct raw_tls *tls, const char *path)
{
	*server = (struct raw_server){.tls = tls, .file = -1};
	memset(server->listeners, -1, sizeof(server->listeners));
	for (int kind = 0; kind < RAW_KIND_COUNT; kind++) {
		int r = listen_on(server, (enum raw_kind)kind, path);

		if (r < 0) {
			raw_server_fini(server);
			return r;
		}
	}
	return 0;
}

void raw_server_fini(struct raw_server *server)
{
	for (int kind = 0; kind < RAW_KIND_COUNT; kind++) {
		if (server->listeners[kind] >= 0)
			close(server->listeners[kind]);
		server->listeners[kind] = -1;
	}
}

/* -- clients ----------------------------------------------------------------------------- */

static int tls_connect(const struct raw_server *server, enum raw_kind kind, struct raw_conn *conn)
{
	conn->ssl = SSL_new(raw_tls_pair(server->tls, kind)->client);
	if (!conn->ssl || !SSL_set_fd(conn->ssl, conn->fd) ||
	    !SSL_set_tlsext_host_name(conn->ssl, "localhost") ||
	    !SSL_set1_host(conn->ssl, "localhost"))
		return -ENOMEM;
	if (SSL_connect(conn->ssl) != 1) {
		ERR_print_errors_fp(stderr);
		return -EPROTO;
	}
	return 0;
}

int raw_open(const struct raw_server *server, enum raw_kind kind, const struct raw_hello *hello,
	     struct raw_conn *ret_conn)
{
	struct raw_conn conn = {
		.fd = socket(server->addr[kind].ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	int r = 0;

	if (conn.fd < 0)
		return gx_errno();
	no_delay(conn.fd);
	if (connect(conn.fd, (const struct sockaddr *)&server->addr[kind],
		    server->addr_bytes[kind]) < 0)
		r = gx_errno();
	if (r == 0 && is_tls(kind))
		r = tls_connect(server, kind, &conn);
	if (r == 0 && kind != RAW_EPOLL)
		r = raw_write_all(&conn, hello, sizeof(*hello));
	if (r < 0) {
		raw_close(&conn);
		return r;
	}
	*ret_conn = conn;
	return 0;
}

void raw_close(struct raw_conn *conn)
{
	if (conn->ssl) {
		SSL_shutdown(conn->ssl);
		SSL_free(conn->ssl);
	}
	ERR_clear_error();
	if (conn->fd >= 0)
		close(conn->fd);
	*conn = (struct raw_conn){.fd = -1};
}
