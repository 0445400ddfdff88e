/*
 * raw.h - the yardsticks: what a plain socket, a plain OpenSSL connection and a
 * bare epoll loop reach on this machine.
 *
 * Everything here is as direct as it gets: blocking reads and writes, no
 * frames, no names, OpenSSL with its defaults. A client says once what it is
 * going to send (struct raw_hello), then both sides know all sizes. The epoll
 * server only echoes and takes no hello.
 */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include "common/gx_base.h"
#include <openssl/ssl.h>
#include <sys/socket.h>

enum raw_kind {
	RAW_TCP,
	RAW_UNIX,
	RAW_TLS,        /* the server shows a certificate */
	RAW_TLS_MUTUAL, /* both do */
	RAW_EPOLL,
	RAW_KIND_COUNT
};

#define RAW_ACK_BYTES 8u

struct raw_hello {
	uint64_t request_bytes;
	uint64_t reply_bytes; /* equal to request_bytes: echo whatever comes */
	bool from_file;       /* replies are the beginning of the server's file, by sendfile() */
};

/* A pair of contexts that trust the same CA. */
struct raw_tls_pair {
	SSL_CTX *server, *client;
};

/* Certificates are P-256, all else as OpenSSL has it, resumption tickets included. */
struct raw_tls {
	struct raw_tls_pair one_sided, mutual;
};

GX_MUST_CHECK int raw_tls_init(struct raw_tls *tls);
void raw_tls_fini(struct raw_tls *tls);
const struct raw_tls_pair *raw_tls_pair(const struct raw_tls *tls, enum raw_kind kind);

struct raw_server {
	const struct raw_tls *tls; /* borrowed */
	int listeners[RAW_KIND_COUNT];
	struct sockaddr_storage addr[RAW_KIND_COUNT];
	socklen_t addr_bytes[RAW_KIND_COUNT];
	int file; /* -1: none; borrowed */
};

/* Binds all listeners; the unix socket is `path`. */
GX_MUST_CHECK int raw_server_init(struct raw_server *server, const struct raw_tls *tls,
				  const char *path);
void raw_server_fini(struct raw_server *server);
/*
 * Serves for ever: a thread per listener, which takes one connection after the
 * other (no thread is made per connection: that would be charged to the handshakes).
 */
GX_NORETURN void raw_server_run(const struct raw_server *server);

struct raw_conn {
	int fd;
	SSL *ssl;
};

/* Connects, does the TLS handshake if there is one, says hello. */
GX_MUST_CHECK int raw_open(const struct raw_server *server, enum raw_kind kind,
			   const struct raw_hello *hello, struct raw_conn *ret_conn);
void raw_close(struct raw_conn *conn);
/* What comes with one read: the count, or negative errno (-EPIPE at the end). */
GX_MUST_CHECK ssize_t raw_read(struct raw_conn *conn, void *buf, size_t bytes);
GX_MUST_CHECK int raw_read_all(struct raw_conn *conn, void *buf, size_t bytes);
GX_MUST_CHECK int raw_write_all(struct raw_conn *conn, const void *buf, size_t bytes);

#endif
