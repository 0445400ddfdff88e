/*
 * The handshake, both ends in memory: who gets in, and every way not to.
 */
#include "core.pb-c.h"
#include "rpc/rpc_handshake.h"
#include "rpc/rpc_session.h"
#include "rpc/rpc_status.h"
#include <check.h>

enum { HELLO, CHALLENGE, PROOF, WELCOME, MESSAGES };
#define FRAME_MAX (RPC_FRAME_HEADER_BYTES + GX_HELLO_MAX)

static struct gx_env *env;
static struct rpc_keytab *keys;
static struct rpc_sessions *sessions;
static struct rpc_auth auth;
static struct rpc_handshake_server server;
static struct rpc_handshake_client client;
static struct gx_addr client_addr, server_addr, other_addr;
static unsigned char alice_key[RPC_KEY_BYTES], wrong_key[RPC_KEY_BYTES];

/* What passes between the two; a hook may change it on the way. */
struct bytes {
	unsigned char data[FRAME_MAX];
	size_t count;
};
typedef void (*tamper_fn)(int message, struct bytes *bytes);

struct outcome {
	struct rpc_handshake client, server;
	int client_result, server_result;
	unsigned sent; /* messages that passed, refusals included */
	struct bytes log[MESSAGES];
};

static void add_key(const char *identity, const unsigned char *secret, int64_t expires_ns)
{
	struct rpc_key key = {.expires_ns = expires_ns};

	ck_assert_int_eq(rpc_identity_parse(identity, &key.kind), 0);
	ck_assert_int_eq(gx_strcpy(key.identity, sizeof(key.identity), identity), 0);
	memcpy(key.secret, secret, RPC_KEY_BYTES);
	ck_assert_int_eq(rpc_keytab_put(keys, &key, false), 0);
}

static void setup(void)
{
	env = gx_env_posix();
	memset(alice_key, 0xa1, sizeof(alice_key));
	memset(wrong_key, 0x66, sizeof(wrong_key));
	ck_assert_int_eq(rpc_keytab_new(&keys), 0);
	add_key("user:alice", alice_key, 0);
	add_key("user:late", alice_key, gx_env_wall_ns(env) - GX_NSEC_PER_SEC);
	add_key("user:bob", wrong_key, 0);
	ck_assert_int_eq(rpc_sessions_new(env, GX_NSEC_PER_SEC, &sessions), 0);
	auth = (struct rpc_auth){.env = env, .keys = keys};
	server = (struct rpc_handshake_server){.auth = &auth,
					       .name = "srv",
					       .boot = 0xb007,
					       .session = rpc_sessions_open,
					       .session_arg = sessions};
	client = (struct rpc_handshake_client){
		.identity = "user:alice", .key = alice_key, .program = "test/1"};
	ck_assert_int_eq(gx_addr_parse(env, "127.0.0.1:1000", &client_addr, NULL), 0);
	ck_assert_int_eq(gx_addr_parse(env, "127.0.0.1:2000", &server_addr, NULL), 0);
	ck_assert_int_eq(gx_addr_parse(env, "127.0.0.1:3000", &other_addr, NULL), 0);
}

static void teardown(void)
{
	rpc_sessions_free(sessions);
	rpc_keytab_free(keys);
}

/* -- the wire --------------------------------------------------------------------- */

/* One frame into one end, judged as a connection would. */
static int deliver(struct rpc_handshake *hs, const struct bytes *bytes)
{
	struct rpc_frame_limits limits;
	struct rpc_frame frame;
	const char *reason = NULL;
	int r;

	if (bytes->count < RPC_FRAME_HEADER_BYTES)
		return -EPIPE;
	rpc_handshake_limits(hs, &limits);
	r = rpc_frame_decode(bytes->data, &limits, &frame, &reason);
	if (r < 0)
		return r;
	if (bytes->count < RPC_FRAME_HEADER_BYTES + frame.message_bytes)
		return -EPIPE;
	r = rpc_frame_verify(bytes->data, bytes->data + RPC_FRAME_HEADER_BYTES, frame.message_bytes,
			     0);
	if (r < 0)
		return r;
	return rpc_handshake_step(hs, &frame, bytes->data + RPC_FRAME_HEADER_BYTES);
}

static bool take(struct rpc_handshake *hs, struct bytes *ret_bytes)
{
	ck_assert_uint_le(hs->out.bytes, FRAME_MAX);
	if (hs->out.bytes == 0)
		return false;
	memcpy(ret_bytes->data, hs->out.data, hs->out.bytes);
	ret_bytes->count = hs->out.bytes;
	gx_buf_clear(&hs->out);
	return true;
}

/* Makes the header fit its message again, as an attacker would. */
static void reseal(struct bytes *bytes)
{
	struct rpc_frame_limits all = {UINT32_MAX, GX_HELLO_MAX, 0};
	struct rpc_frame frame;

	ck_assert_int_eq(rpc_frame_decode(bytes->data, &all, &frame, NULL), 0);
	frame.message_bytes = (uint32_t)(bytes->count - RPC_FRAME_HEADER_BYTES);
	rpc_frame_encode(&frame, bytes->data + RPC_FRAME_HEADER_BYTES, 0, bytes->data);
}

static int type_index(const struct bytes *bytes)
{
	return bytes->data[5] - RPC_FRAME_HELLO;
}

/* Runs until nobody has anything to say. */
static void converse(struct outcome *o, tamper_fn tamper)
{
	bool moved = true;

	while (moved) {
		struct bytes bytes;

		moved = false;
		for (int to_server = 1; to_server >= 0; to_server--) {
			struct rpc_handshake *from = to_server ? &o->client : &o->server;
			struct rpc_handshake *to = to_server ? &o->server : &o->client;
			int *result = to_server ? &o->server_result : &o->client_result;

			if (!take(from, &bytes))
				continue;
			moved = true;
			o->sent++;
			if (type_index(&bytes) < MESSAGES)
				o->log[type_index(&bytes)] = bytes;
			if (tamper)
				tamper(type_index(&bytes), &bytes);
			if (*result == 0)
				*result = deliver(to, &bytes);
		}
	}
}

static void begin(struct outcome *o, bool tls, const struct rpc_peer *tls_peer)
{
	memset(o, 0, sizeof(*o));
	rpc_handshake_init_server(&o->server, env, &server, tls, tls_peer, &server_addr,
				  &client_addr);
	ck_assert_int_eq(rpc_handshake_init_client(&o->client, env, &client, tls, &client_addr,
						   &server_addr),
			 0);
}

static void end(struct outcome *o)
{
	rpc_handshake_fini(&o->client);
	rpc_handshake_fini(&o->server);
}

static void shake(struct outcome *o, tamper_fn tamper)
{
	begin(o, false, NULL);
	converse(o, tamper);
}

/* -- getting in ----------------------------------------------------------------------- */

START_TEST(the_right_key_gets_in_and_both_agree)
{
	struct outcome o;

	client.channel = RPC_CHANNEL_PUSH;
	shake(&o, NULL);
	ck_assert_int_eq(o.client_result, 1);
	ck_assert_int_eq(o.server_result, 1);
	ck_assert_uint_eq(o.sent, 4);
	ck_assert_uint_eq(o.client.secret, o.server.secret);
	ck_assert_uint_ne(o.client.secret, 0);
	ck_assert_uint_eq(o.client.version, RPC_PROTOCOL_MAX);
	ck_assert_uint_eq(o.server.version, RPC_PROTOCOL_MAX);
	ck_assert_uint_eq(o.client.features, RPC_FEATURES_ALL);
	ck_assert_uint_eq(o.server.features, RPC_FEATURES_ALL);
	ck_assert_uint_eq(o.client.session, o.server.session);
	ck_assert_uint_ne(o.client.session, 0);
	ck_assert(!o.client.session_known);
	ck_assert_uint_eq(o.client.boot, 0xb007);
	ck_assert_str_eq(o.client.server_name, "srv");
	ck_assert_str_eq(o.server.peer.identity, "user:alice");
	ck_assert_str_eq(o.server.claimed, "user:alice");
	ck_assert_str_eq(o.server.program, "test/1");
	ck_assert_int_eq(o.server.channel, RPC_CHANNEL_PUSH);
	end(&o);
}
END_TEST

START_TEST(two_handshakes_have_different_secrets)
{
	struct outcome a, b;

	shake(&a, NULL);
	shake(&b, NULL);
	ck_assert_uint_ne(a.client.secret, b.client.secret);
	end(&a);
	end(&b);
}
END_TEST

START_TEST(a_session_is_resumed_by_its_owner_only)
{
	struct outcome first, again, thief;

	shake(&first, NULL);
	client.session = first.client.session;
	shake(&again, NULL);
	ck_assert_int_eq(again.client_result, 1);
	ck_assert(again.client.session_known && again.server.session_known);
	ck_assert_uint_eq(again.client.session, first.client.session);
	client.identity = "user:bob";
	client.key = wrong_key;
	shake(&thief, NULL);
	ck_assert_int_eq(thief.client_result, 1);
	ck_assert(!thief.client.session_known);
	ck_assert_uint_ne(thief.client.session, first.client.session);
	end(&first);
	end(&again);
	end(&thief);
}
END_TEST

static int no_session(void *arg GX_UNUSED, const struct rpc_peer *peer GX_UNUSED,
		      uint64_t asked GX_UNUSED, uint64_t *ret_session GX_UNUSED,
		      bool *ret_known GX_UNUSED)
{
	return -EAGAIN;
}

START_TEST(a_full_session_table_is_told_to_the_client)
{
	struct outcome o;

	server.session = no_session;
	shake(&o, NULL);
	ck_assert_int_eq(o.server_result, -EAGAIN);
	ck_assert_int_eq(o.client_result, -EAGAIN);
	ck_assert_str_eq(o.server.reason, "session refused");
	end(&o);
}
END_TEST

/* -- strangers ---------------------------------------------------------------------------- */

static const struct {
	const char *identity;
	const unsigned char *key;
	const char *reason; /* in the server's log */
} strangers[] = {
	{"user:alice", wrong_key, "wrong key or changed handshake"},
	{"user:mallory", wrong_key, "unknown user"},
	{"host:nobody", wrong_key, "unknown host"},
	{"user:late", alice_key, "expired key"},
	{"nonsense", alice_key, "malformed identity"},
	{"", alice_key, "malformed identity"},
	{"ticket:00", alice_key, "tickets are not accepted here"},
};

START_TEST(a_stranger_is_refused_without_learning_why)
{
	struct outcome o, wrong;

	shake(&wrong, NULL);
	end(&wrong);
	client.identity = strangers[_i].identity;
	client.key = strangers[_i].key;
	shake(&o, NULL);
	ck_assert_int_eq(o.server_result, -EKEYREJECTED);
	ck_assert_int_eq(o.client_result, -EKEYREJECTED);
	ck_assert_str_eq(o.server.reason, strangers[_i].reason);
	/* The same number of messages, the same words, for all of them. */
	ck_assert_uint_eq(o.sent, 4);
	ck_assert_str_eq(o.client.reason, "refused by the server");
	ck_assert_str_eq(o.client.detail, "authentication failed");
	ck_assert_str_eq(o.server.claimed, strangers[_i].identity);
	ck_assert_uint_eq(o.log[CHALLENGE].count, wrong.log[CHALLENGE].count);
	ck_assert_uint_eq(rpc_sessions_count(sessions), 1);
	end(&o);
}
END_TEST

START_TEST(a_server_that_lacks_the_key_is_refused_by_the_client)
{
	struct outcome o;
	struct bytes bytes;
	PbCore__Welcome welcome = PB_CORE__WELCOME__INIT;
	unsigned char mac[32] = {1};

	begin(&o, false, NULL);
	ck_assert(take(&o.client, &bytes));
	ck_assert_int_eq(deliver(&o.server, &bytes), 0);
	ck_assert(take(&o.server, &bytes));
	ck_assert_int_eq(deliver(&o.client, &bytes), 0);
	/* A liar that says "welcome" to whatever proof comes. */
	welcome.version = o.client.version;
	welcome.features = o.client.features;
	welcome.mac = (ProtobufCBinaryData){_i == 0 ? 32 : 0, mac};
	welcome.server = (char *)"srv";
	bytes.data[5] = RPC_FRAME_WELCOME;
	bytes.count = RPC_FRAME_HEADER_BYTES +
		      pb_core__welcome__pack(&welcome, bytes.data + RPC_FRAME_HEADER_BYTES);
	reseal(&bytes);
	ck_assert_int_eq(deliver(&o.client, &bytes), -EKEYREJECTED);
	ck_assert_str_eq(o.client.reason, "the server does not know our key");
	end(&o);
}
END_TEST

START_TEST(a_reflected_proof_is_no_welcome)
{
	struct outcome o;
	struct bytes bytes;
	PbCore__Welcome welcome = PB_CORE__WELCOME__INIT;
	PbCore__Proof *proof;

	begin(&o, false, NULL);
	ck_assert(take(&o.client, &bytes));
	ck_assert_int_eq(deliver(&o.server, &bytes), 0);
	ck_assert(take(&o.server, &bytes));
	ck_assert_int_eq(deliver(&o.client, &bytes), 0);
	ck_assert(take(&o.client, &bytes));
	proof = pb_core__proof__unpack(NULL, bytes.count - RPC_FRAME_HEADER_BYTES,
				       bytes.data + RPC_FRAME_HEADER_BYTES);
	ck_assert_ptr_nonnull(proof);
	welcome.version = o.client.version;
	welcome.features = o.client.features;
	welcome.mac = proof->mac;
	bytes.data[5] = RPC_FRAME_WELCOME;
	bytes.count = RPC_FRAME_HEADER_BYTES +
		      pb_core__welcome__pack(&welcome, bytes.data + RPC_FRAME_HEADER_BYTES);
	reseal(&bytes);
	ck_assert_int_eq(deliver(&o.client, &bytes), -EKEYREJECTED);
	pb_core__proof__free_unpacked(proof, NULL);
	end(&o);
}
END_TEST

START_TEST(a_replayed_handshake_is_refused)
{
	struct outcome good, replay;

	shake(&good, NULL);
	begin(&replay, false, NULL);
	ck_assert_int_eq(deliver(&replay.server, &good.log[HELLO]), 0);
	ck_assert_int_eq(deliver(&replay.server, &good.log[PROOF]), -EKEYREJECTED);
	ck_assert_str_eq(replay.server.reason, "wrong key or changed handshake");
	end(&good);
	end(&replay);
}
END_TEST

START_TEST(a_replayed_server_is_refused_by_the_client)
{
	struct outcome good, replay;

	shake(&good, NULL);
	begin(&replay, false, NULL);
	ck_assert_int_eq(deliver(&replay.client, &good.log[CHALLENGE]), 0);
	ck_assert_int_eq(deliver(&replay.client, &good.log[WELCOME]), -EKEYREJECTED);
	end(&good);
	end(&replay);
}
END_TEST

START_TEST(a_relay_through_another_address_is_refused)
{
	struct outcome o;

	/* The client believes to speak to other_addr; a relay there passes everything on. */
	memset(&o, 0, sizeof(o));
	rpc_handshake_init_server(&o.server, env, &server, false, NULL, &server_addr,
				  _i == 0 ? &client_addr : &other_addr);
	ck_assert_int_eq(rpc_handshake_init_client(&o.client, env, &client, false, &client_addr,
						   _i == 0 ? &other_addr : &server_addr),
			 0);
	converse(&o, NULL);
	ck_assert_int_eq(o.server_result, -EKEYREJECTED);
	ck_assert_int_eq(o.client_result, -EKEYREJECTED);
	end(&o);
}
END_TEST

/* -- changed on the way ----------------------------------------------------------------------- */

static struct {
	int message;
	size_t bit; /* of the frame, or of the message when resealed */
	bool reseal;
	size_t cut; /* > 0: message bytes that remain, plus one */
} change;

static void change_it(int message, struct bytes *bytes)
{
	if (message != change.message)
		return;
	if (change.cut > 0) {
		bytes->count = RPC_FRAME_HEADER_BYTES + change.cut - 1;
		reseal(bytes);
		return;
	}
	if (change.reseal) {
		bytes->data[RPC_FRAME_HEADER_BYTES + change.bit / 8] ^=
			(unsigned char)(1u << change.bit % 8);
		reseal(bytes);
	} else {
		bytes->data[change.bit / 8] ^= (unsigned char)(1u << change.bit % 8);
	}
}

/* Both may not end up "in"; if one does, the other has refused. */
static void try_change(void)
{
	struct outcome o;

	shake(&o, change_it);
	ck_assert_msg(o.client_result != 1 || o.server_result != 1,
		      "both accept: message %d bit %zu cut %zu", change.message, change.bit,
		      change.cut);
	/* The side that was lied to is the one that refuses, and it gives a reason or a refusal. */
	if (change.message == HELLO || change.message == PROOF)
		ck_assert_int_ne(o.server_result, 1);
	else
		ck_assert_int_ne(o.client_result, 1);
	end(&o);
}

static size_t message_bytes(int message)
{
	struct outcome o;
	size_t bytes;

	shake(&o, NULL);
	bytes = o.log[message].count;
	end(&o);
	return bytes;
}

START_TEST(every_bit_flipped_on_the_way_is_refused)
{
	size_t bytes = message_bytes(_i);

	change.message = _i;
	change.reseal = false;
	change.cut = 0;
	for (change.bit = 0; change.bit < 8 * bytes; change.bit++)
		try_change();
}
END_TEST

START_TEST(every_bit_flipped_by_someone_who_fixes_the_check_is_refused)
{
	size_t bytes = message_bytes(_i) - RPC_FRAME_HEADER_BYTES;

	change.message = _i;
	change.reseal = true;
	change.cut = 0;
	for (change.bit = 0; change.bit < 8 * bytes; change.bit++)
		try_change();
}
END_TEST

START_TEST(a_message_cut_at_any_length_is_refused)
{
	size_t bytes = message_bytes(_i) - RPC_FRAME_HEADER_BYTES;

	change.message = _i;
	for (change.cut = 1; change.cut <= bytes; change.cut++)
		try_change();
	change.cut = 0;
}
END_TEST

/* -- downgrades and malformed hellos ------------------------------------------------------------
 */

typedef void (*hello_fn)(PbCore__Hello *hello);
static hello_fn change_hello;

static void edit_hello(int message, struct bytes *bytes)
{
	PbCore__Hello *hello;

	if (message != HELLO)
		return;
	hello = pb_core__hello__unpack(NULL, bytes->count - RPC_FRAME_HEADER_BYTES,
				       bytes->data + RPC_FRAME_HEADER_BYTES);
	ck_assert_ptr_nonnull(hello);
	change_hello(hello);
	bytes->count = RPC_FRAME_HEADER_BYTES +
		       pb_core__hello__pack(hello, bytes->data + RPC_FRAME_HEADER_BYTES);
	reseal(bytes);
	pb_core__hello__free_unpacked(hello, NULL);
}

static void fewer_features(PbCore__Hello *hello)
{
	hello->features &= ~RPC_FEATURE_REPLAY;
}
static void more_features(PbCore__Hello *hello)
{
	hello->features |= UINT64_C(1) << 40;
}
static void lower_version(PbCore__Hello *hello)
{
	hello->version_min = 0;
}
static void old_version(PbCore__Hello *hello)
{
	hello->version_min = hello->version_max = 0;
}
static void future_version(PbCore__Hello *hello)
{
	hello->version_min = hello->version_max = RPC_PROTOCOL_MAX + 1;
}
static void mixed_version(PbCore__Hello *hello)
{
	hello->version_min = 2;
	hello->version_max = 1;
}
static void tls_mechanism(PbCore__Hello *hello)
{
	hello->mechanism = RPC_MECHANISM_TLS_PSK;
}
static void no_mechanism(PbCore__Hello *hello)
{
	hello->mechanism = 0;
}
static void short_nonce(PbCore__Hello *hello)
{
	hello->nonce.len = 31;
}
static void no_nonce(PbCore__Hello *hello)
{
	hello->nonce.len = 0;
}
static void odd_channel(PbCore__Hello *hello)
{
	hello->channel = RPC_CHANNEL_COUNT;
}
static void other_channel(PbCore__Hello *hello)
{
	hello->channel = RPC_CHANNEL_PUSH;
}
static void long_identity(PbCore__Hello *hello)
{
	free(hello->identity);
	hello->identity = malloc(GX_IDENTITY_MAX + 1);
	memset(hello->identity, 'x', GX_IDENTITY_MAX);
	hello->identity[GX_IDENTITY_MAX] = '\0';
}

static const struct {
	hello_fn fn;
	int result;
	const char *reason;
} hellos[] = {
	{fewer_features, -EKEYREJECTED, "wrong key or changed handshake"},
	{more_features, -EKEYREJECTED, "wrong key or changed handshake"},
	{lower_version, -EKEYREJECTED, "wrong key or changed handshake"},
	{other_channel, -EKEYREJECTED, "wrong key or changed handshake"},
	{old_version, -EPROTONOSUPPORT, "no common protocol version"},
	{future_version, -EPROTONOSUPPORT, "no common protocol version"},
	{mixed_version, -EPROTONOSUPPORT, "no common protocol version"},
	{tls_mechanism, -EKEYREJECTED, "mechanism not offered here (downgrade)"},
	{no_mechanism, -EKEYREJECTED, "mechanism not offered here (downgrade)"},
	{short_nonce, -EPROTO, "nonce has the wrong size"},
	{no_nonce, -EPROTO, "nonce has the wrong size"},
	{odd_channel, -EPROTO, "unknown channel"},
	{long_identity, -EPROTO, "identity too long"},
};

START_TEST(a_changed_hello_is_refused_with_its_reason)
{
	struct outcome o;

	change_hello = hellos[_i].fn;
	shake(&o, edit_hello);
	ck_assert_int_eq(o.server_result, hellos[_i].result);
	ck_assert_str_eq(o.server.reason, hellos[_i].reason);
	ck_assert_int_lt(o.client_result, 0);
	end(&o);
}
END_TEST

/* -- TLS ----------------------------------------------------------------------------------------
 */

static struct rpc_peer tls_peer = {.kind = RPC_IDENTITY_USER, .identity = "user:alice"};

START_TEST(behind_tls_hello_and_welcome_are_enough)
{
	struct outcome o;

	begin(&o, true, &tls_peer);
	converse(&o, NULL);
	ck_assert_int_eq(o.client_result, 1);
	ck_assert_int_eq(o.server_result, 1);
	ck_assert_uint_eq(o.sent, 2);
	ck_assert_str_eq(o.server.peer.identity, "user:alice");
	end(&o);
}
END_TEST

START_TEST(behind_tls_another_identity_is_refused)
{
	struct outcome o;

	client.identity = "user:bob";
	begin(&o, true, _i == 0 ? &tls_peer : NULL);
	converse(&o, NULL);
	ck_assert_int_eq(o.server_result, -EKEYREJECTED);
	ck_assert_int_eq(o.client_result, -EKEYREJECTED);
	ck_assert_str_eq(o.server.reason, "identity differs from the TLS one");
	end(&o);
}
END_TEST

static void hmac_mechanism(PbCore__Hello *hello)
{
	hello->mechanism = RPC_MECHANISM_HMAC;
}

START_TEST(behind_tls_the_plain_mechanism_is_refused)
{
	struct outcome o;

	change_hello = hmac_mechanism;
	begin(&o, true, &tls_peer);
	converse(&o, edit_hello);
	ck_assert_int_eq(o.server_result, -EKEYREJECTED);
	end(&o);
}
END_TEST

/* -- out of order --------------------------------------------------------------------------------
 */

START_TEST(each_state_takes_only_its_own_frame)
{
	static const enum rpc_frame_type types[] = {
		RPC_FRAME_HELLO,   RPC_FRAME_CHALLENGE, RPC_FRAME_PROOF, RPC_FRAME_WELCOME,
		RPC_FRAME_REFUSED, RPC_FRAME_REQUEST,   RPC_FRAME_REPLY, RPC_FRAME_PUSH};
	struct rpc_frame_limits limits;
	struct outcome o;
	uint32_t wanted;

	begin(&o, false, NULL);
	rpc_handshake_limits(&o.server, &limits);
	ck_assert_uint_eq(limits.types, 1u << RPC_FRAME_HELLO);
	ck_assert_uint_eq(limits.message_max, GX_HELLO_MAX);
	ck_assert_uint_eq(limits.payload_max, 0);
	rpc_handshake_limits(&o.client, &limits);
	wanted = 1u << RPC_FRAME_CHALLENGE | 1u << RPC_FRAME_REFUSED;
	for (size_t i = 0; i < GX_COUNT_OF(types); i++)
		ck_assert_int_eq((limits.types >> types[i]) & 1, (wanted >> types[i]) & 1);
	converse(&o, NULL);
	rpc_handshake_limits(&o.server, &limits);
	ck_assert_uint_eq(limits.types, 0);
	ck_assert_int_eq(deliver(&o.server, &o.log[HELLO]), -EPROTO);
	end(&o);
}
END_TEST

START_TEST(a_refusal_carries_status_and_text)
{
	struct outcome o;
	struct gx_buf out;
	struct bytes bytes;
	char text[2 * GX_DETAIL_MAX];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	begin(&o, false, NULL);
	gx_buf_init(&out, 4096);
	ck_assert_int_eq(rpc_handshake_refuse(&out, -EPROTONOSUPPORT, text), 0);
	memcpy(bytes.data, out.data, out.bytes);
	bytes.count = out.bytes;
	ck_assert_int_eq(deliver(&o.client, &bytes), -EPROTONOSUPPORT);
	ck_assert_uint_eq(strlen(o.client.detail), GX_DETAIL_MAX);
	gx_buf_fini(&out);
	end(&o);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_handshake");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 20);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_right_key_gets_in_and_both_agree);
	tcase_add_test(tc, two_handshakes_have_different_secrets);
	tcase_add_test(tc, a_session_is_resumed_by_its_owner_only);
	tcase_add_test(tc, a_full_session_table_is_told_to_the_client);
	tcase_add_loop_test(tc, a_stranger_is_refused_without_learning_why, 0,
			    (int)GX_COUNT_OF(strangers));
	tcase_add_loop_test(tc, a_server_that_lacks_the_key_is_refused_by_the_client, 0, 2);
	tcase_add_test(tc, a_reflected_proof_is_no_welcome);
	tcase_add_test(tc, a_replayed_handshake_is_refused);
	tcase_add_test(tc, a_replayed_server_is_refused_by_the_client);
	tcase_add_loop_test(tc, a_relay_through_another_address_is_refused, 0, 2);
	tcase_add_loop_test(tc, every_bit_flipped_on_the_way_is_refused, 0, MESSAGES);
	tcase_add_loop_test(tc, every_bit_flipped_by_someone_who_fixes_the_check_is_refused, 0,
			    MESSAGES);
	tcase_add_loop_test(tc, a_message_cut_at_any_length_is_refused, 0, MESSAGES);
	tcase_add_loop_test(tc, a_changed_hello_is_refused_with_its_reason, 0,
			    (int)GX_COUNT_OF(hellos));
	tcase_add_test(tc, behind_tls_hello_and_welcome_are_enough);
	tcase_add_loop_test(tc, behind_tls_another_identity_is_refused, 0, 2);
	tcase_add_test(tc, behind_tls_the_plain_mechanism_is_refused);
	tcase_add_test(tc, each_state_takes_only_its_own_frame);
	tcase_add_test(tc, a_refusal_carries_status_and_text);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
