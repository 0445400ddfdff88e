/*
 * Key tables and tickets from any text: refused, or a table whose keys have valid identities.
 * No secret reaches an error message.
 */
#include "common/gx_num.h"
#include "rpc/rpc_key.h"
#include "rpc/rpc_ticket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_key(const struct rpc_keytab *tab, const struct rpc_key *key)
{
	enum rpc_identity_kind kind;
	char fingerprint[RPC_FINGERPRINT_TEXT];

	gx_assert(rpc_identity_parse(key->identity, &kind) == 0 && kind == key->kind);
	gx_assert(rpc_keytab_find(tab, key->identity) == key);
	rpc_key_fingerprint(key, fingerprint);
	gx_assert(strlen(fingerprint) == RPC_FINGERPRINT_TEXT - 1);
}

static void check_ticket(const char *text)
{
	char again[GX_IDENTITY_MAX];
	struct rpc_ticket ticket;

	if (rpc_ticket_parse(text, &ticket) < 0)
		return;
	rpc_ticket_format(&ticket, again);
	gx_assert(strcmp(text, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *tab = NULL;
	struct gx_buf errors;
	char *text;
	int r;

	gx_assert(rpc_keytab_new(&tab) == 0);
	gx_buf_init(&errors, 1 << 16);
	r = rpc_keytab_parse(tab, "fuzz", (const char *)data, bytes, &errors);
	gx_assert(r == 0 || r == -EINVAL || r == -EEXIST);
	gx_assert((r == 0) == (errors.bytes == 0));
	/* "fuzz:", a line number and one of our own sentences: nothing of the input. */
	gx_assert(errors.bytes < 120);
	for (size_t i = 0; i < rpc_keytab_count(tab) && i < 1000; i++)
		check_key(tab, rpc_keytab_get(tab, i));
	/* Not strndup(): in its strict mode ASan wants the end of the string inside the input. */
	text = calloc(1, bytes + 1);
	gx_assert(text);
	memcpy(text, data, bytes);
	check_ticket(text);
	free(text);
	gx_buf_fini(&errors);
	return 0;
}
