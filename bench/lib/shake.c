#include "bench/lib/shake.h"
#include <openssl/err.h>

#define SUITE "TLS_AES_128_GCM_SHA256"
#define SUITE_ID "\x13\x01"

static const unsigned char psk[32] = {1, 2, 3};
static const char psk_identity[] = "user:bench";

static SSL_SESSION *psk_session(SSL *ssl)
{
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && (!SSL_SESSION_set1_master_key(session, psk, sizeof(psk)) ||
			!SSL_SESSION_set_cipher(
				session, SSL_CIPHER_find(ssl, (const unsigned char *)SUITE_ID)) ||
			!SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))) {
		SSL_SESSION_free(session);
		return NULL;
	}
	return session;
}

static int psk_find(SSL *ssl, const unsigned char *identity GX_UNUSED, size_t bytes GX_UNUSED,
		    SSL_SESSION **ret_session)
{
	*ret_session = psk_session(ssl);
	return 1;
}

static int psk_use(SSL *ssl, const EVP_MD *md GX_UNUSED, const unsigned char **ret_id,
		   size_t *ret_id_bytes, SSL_SESSION **ret_session)
{
	*ret_session = psk_session(ssl);
	*ret_id = (const unsigned char *)psk_identity;
	*ret_id_bytes = sizeof(psk_identity) - 1;
	return 1;
}

static SSL_CTX *context(const SSL_METHOD *method, const char *groups)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (!ctx)
		return NULL;
	if (!SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(ctx, SUITE) || !SSL_CTX_set1_groups_list(ctx, groups)) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	SSL_CTX_set_num_tickets(ctx, 0);
	return ctx;
}

int shake_psk_init(const char *groups, SSL_CTX **ret_server, SSL_CTX **ret_client)
{
	SSL_CTX *server = context(TLS_server_method(), groups);
	SSL_CTX *client = context(TLS_client_method(), groups);

	if (!server || !client) {
		SSL_CTX_free(server);
		SSL_CTX_free(client);
		return -ENOMEM;
	}
	SSL_CTX_set_psk_find_session_callback(server, psk_find);
	SSL_CTX_set_psk_use_session_callback(client, psk_use);
	*ret_server = server;
	*ret_client = client;
	return 0;
}

/* One side's turn: 1 done, 0 waits for the other, -EPROTO. */
static int advance(SSL *ssl)
{
	int r = SSL_do_handshake(ssl);

	if (r == 1)
		return 1;
	return SSL_get_error(ssl, r) == SSL_ERROR_WANT_READ ? 0 : -EPROTO;
}

int shake_once(SSL_CTX *server, SSL_CTX *client)
{
	SSL *s = SSL_new(server);
	SSL *c = SSL_new(client);
	BIO *s_bio = NULL, *c_bio = NULL;
	int r = -ENOMEM;

	if (!s || !c || !BIO_new_bio_pair(&s_bio, 0, &c_bio, 0))
		goto out;
	SSL_set_bio(s, s_bio, s_bio);
	SSL_set_bio(c, c_bio, c_bio);
	SSL_set_accept_state(s);
	SSL_set_connect_state(c);
	SSL_set1_host(c, "localhost");
	do {
		int done = advance(c);

		r = done < 0 ? done : advance(s);
		if (r == 1)
			r = done;
	} while (r == 0);
	r = r < 0 ? r : 0;
out:
	ERR_clear_error();
	SSL_free(s);
	SSL_free(c);
	return r;
}
