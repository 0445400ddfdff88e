/*
 * Nodes: who may register as what, when silence counts, and where a new object goes. The clock is
 * the test's.
 */
#define GX_LOG_COMPONENT "test"
#include "metad/md_nodes.h"
#include "common/gx_limits.h"
#include "common/gx_log.h"
#include <check.h>
#include <stdio.h>

#define TICK_MS 250

static struct gx_env_ops ops;
static struct gx_env env;
static int64_t now_ns;
static struct md_nodes *nodes;
static struct rpc_arena arena;
static char lines[16384];

static int64_t fake_now(struct gx_env *e GX_UNUSED)
{
	return now_ns;
}

static void on_line(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED, const char *line)
{
	size_t used = strlen(lines);

	snprintf(lines + used, sizeof(lines) - used, "%s\n", line);
}

static void setup(void)
{
	ops = *gx_env_posix()->ops;
	ops.now_ns = fake_now;
	env = (struct gx_env){.ops = &ops};
	now_ns = 5 * GX_NSEC_PER_SEC;
	lines[0] = '\0';
	gx_log_to_callback(on_line, NULL);
	rpc_arena_init(&arena, GX_UNPACK_MAX);
	ck_assert_int_eq(md_nodes_new(&env, &nodes), 0);
}

static void teardown(void)
{
	md_nodes_free(nodes);
	rpc_arena_clear(&arena);
	gx_log_to_stderr();
}

/* -- helpers ------------------------------------------------------------------------- */

static char *addresses[] = {(char *)"10.0.0.1:7001", (char *)"unix:/run/fsd"};
static char *attributes[] = {(char *)"Arch=x86_64", (char *)"Note=\xc3\xa4 = b"};

static PbMeta__Node node_of(const char *name, const char *host, uint64_t free_bytes)
{
	PbMeta__Node node = PB_META__NODE__INIT;

	node.name = (char *)name;
	node.kind = (char *)"fsd";
	node.n_addresses = GX_COUNT_OF(addresses);
	node.addresses = addresses;
	node.host = (char *)host;
	node.n_attributes = GX_COUNT_OF(attributes);
	node.attributes = attributes;
	node.capacity_bytes = 1000;
	node.free_bytes = free_bytes;
	node.boot = 77;
	return node;
}

static int enter(const PbMeta__Node *node)
{
	const char *problem = NULL;
	char identity[128];
	int r;

	snprintf(identity, sizeof(identity), "host:%s", node->name);
	r = md_nodes_register(nodes, identity, node, &problem);
	ck_assert((r == -EINVAL) == (problem != NULL));
	return r;
}

static void add(const char *name, const char *host, uint64_t free_bytes)
{
	PbMeta__Node node = node_of(name, host, free_bytes);

	ck_assert_int_eq(enter(&node), 0);
}

static int beat_as(const char *identity, const char *name, uint64_t boot)
{
	PbMeta__NodeHeartbeatRequest beat = PB_META__NODE_HEARTBEAT_REQUEST__INIT;

	beat.name = (char *)name;
	beat.boot = boot;
	beat.free_bytes = 500;
	beat.load_percent = 30;
	return md_nodes_heartbeat(nodes, identity, &beat);
}

static int beat(const char *name)
{
	char identity[128];

	snprintf(identity, sizeof(identity), "host:%s", name);
	return beat_as(identity, name, 77);
}

/* "n00", "n01", ... */
static const char *numbered(unsigned i)
{
	static char name[8];

	snprintf(name, sizeof(name), "n%02u", i % 100);
	return name;
}

static void add_numbered(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		add(numbered(i), numbered(i), 500);
}

/* Time goes by, in ticks; nodes from `first` up to `end` send heartbeats, each at its own time. */
static void pass(unsigned ms, unsigned first, unsigned end)
{
	for (unsigned t = 0; t < ms; t += TICK_MS) {
		now_ns += TICK_MS * GX_NSEC_PER_MSEC;
		for (unsigned i = first; i < end; i++)
			if ((now_ns / GX_NSEC_PER_MSEC / TICK_MS + i) % 8 == 0)
				ck_assert_int_eq(beat(numbered(i)), 0);
		md_nodes_tick(nodes);
	}
}

static size_t up(void)
{
	return md_nodes_count(nodes, true);
}

static unsigned log_count(const char *text)
{
	unsigned count = 0;

	for (const char *p = lines; (p = strstr(p, text)) != NULL; p++)
		count++;
	return count;
}

static const PbMeta__Node *listed(const char *name)
{
	PbMeta__Node **list;
	size_t count;

	rpc_arena_clear(&arena);
	ck_assert_int_eq(md_nodes_list(nodes, &arena, &list, &count), 0);
	ck_assert_uint_eq(count, md_nodes_count(nodes, false));
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i]->name, name) == 0)
			return list[i];
	return NULL;
}

/* -- registering --------------------------------------------------------------------- */

START_TEST(a_node_is_listed_as_it_registered)
{
	PbMeta__Node node = node_of("fsd1", "rack1", 400);
	const PbMeta__Node *found;

	node.group = (char *)"east";
	/* What only metad tells is not believed. */
	node.silent_ms = 12345;
	ck_assert_int_eq(enter(&node), 0);
	now_ns += 300 * GX_NSEC_PER_MSEC;
	found = listed("fsd1");
	ck_assert_ptr_nonnull(found);
	ck_assert_str_eq(found->kind, "fsd");
	ck_assert_str_eq(found->host, "rack1");
	ck_assert_str_eq(found->group, "east");
	ck_assert_uint_eq(found->n_addresses, 2);
	ck_assert_str_eq(found->addresses[1], "unix:/run/fsd");
	ck_assert_uint_eq(found->n_attributes, 2);
	ck_assert_str_eq(found->attributes[0], "Arch=x86_64");
	ck_assert_uint_eq(found->capacity_bytes, 1000);
	ck_assert_uint_eq(found->free_bytes, 400);
	ck_assert_uint_eq(found->boot, 77);
	ck_assert(found->up);
	ck_assert_uint_eq(found->silent_ms, 300);
	ck_assert_uint_eq(log_count("node is up"), 1);
}
END_TEST

START_TEST(fields_that_nobody_knows_are_not_kept)
{
	PbMeta__Node node = node_of("fsd1", "rack1", 400);
	ProtobufCMessageUnknownField unknown = {.tag = 1000,
						.wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
						.len = 3,
						.data = (uint8_t *)"\002hi"};

	node.base.n_unknown_fields = 1;
	node.base.unknown_fields = &unknown;
	ck_assert_int_eq(enter(&node), 0);
	ck_assert_uint_eq(listed("fsd1")->base.n_unknown_fields, 0);
}
END_TEST

START_TEST(nodes_are_listed_by_name)
{
	static const char *const names[] = {"m", "z", "a", "mm", "b", "l"};
	PbMeta__Node **list;
	size_t count;

	for (size_t i = 0; i < GX_COUNT_OF(names); i++)
		add(names[i], "h", 1);
	ck_assert_int_eq(md_nodes_list(nodes, &arena, &list, &count), 0);
	ck_assert_uint_eq(count, GX_COUNT_OF(names));
	for (size_t i = 1; i < count; i++)
		ck_assert_int_lt(strcmp(list[i - 1]->name, list[i]->name), 0);
}
END_TEST

START_TEST(a_list_that_does_not_fit_is_an_error)
{
	PbMeta__Node **list = NULL;
	struct rpc_arena small;
	size_t count;

	add_numbered(20);
	rpc_arena_init(&small, 4096);
	ck_assert_int_eq(md_nodes_list(nodes, &small, &list, &count), -E2BIG);
	ck_assert_ptr_null(list);
	rpc_arena_clear(&small);
}
END_TEST

START_TEST(a_node_speaks_for_itself_only)
{
	static const char *const others[] = {"host:fsd2", "user:fsd1", "fsd1", "host:fsd11",
					     "host:fsd",  "host:",     ""};
	PbMeta__Node node = node_of("fsd1", "rack1", 400);
	const char *problem = NULL;

	ck_assert_int_eq(enter(&node), 0);
	for (size_t i = 0; i < GX_COUNT_OF(others); i++) {
		ck_assert_int_eq(md_nodes_register(nodes, others[i], &node, &problem), -EPERM);
		ck_assert_int_eq(beat_as(others[i], "fsd1", 77), -EPERM);
	}
	ck_assert_uint_eq(md_nodes_count(nodes, false), 1);
}
END_TEST

static char long_text[GX_ADDR_TEXT_MAX + MD_NODE_ATTRIBUTE_BYTES_MAX];

/* One thing wrong with an otherwise good node, by number; false: there is no such number. */
static bool spoil(PbMeta__Node *node, int which)
{
	static const char *const kinds[] = {"", "metad", "FSD"};
	static const char *const bad_addresses[] = {"",         "10.0.0.1", "10.0.0.1:70000",
						    "unix:run", "a b:1",    "http://x"};
	static const char *const hosts[] = {"", "a b", ".x", "a/b"};
	static const char *const bad_attributes[] = {"",      "Arch", "=x",     "1A=x",
						     "A-B=x", "A=\n", "A=\xff", "A=\x7f"};
	static char *many[MD_NODE_ATTRIBUTES_MAX + 1], *one[1];
	int n = which;

	if (n < (int)GX_COUNT_OF(kinds)) {
		node->kind = (char *)kinds[n];
		return true;
	}
	n -= (int)GX_COUNT_OF(kinds);
	if (n < (int)GX_COUNT_OF(bad_addresses)) {
		one[0] = (char *)bad_addresses[n];
		node->addresses = one;
		node->n_addresses = 1;
		return true;
	}
	n -= (int)GX_COUNT_OF(bad_addresses);
	if (n < (int)GX_COUNT_OF(hosts)) {
		node->host = (char *)hosts[n];
		return true;
	}
	n -= (int)GX_COUNT_OF(hosts);
	if (n < (int)GX_COUNT_OF(bad_attributes)) {
		one[0] = (char *)bad_attributes[n];
		node->attributes = one;
		node->n_attributes = 1;
		return true;
	}
	n -= (int)GX_COUNT_OF(bad_attributes);
	memset(long_text, 'A', sizeof(long_text) - 1);
	for (size_t i = 0; i < GX_COUNT_OF(many); i++)
		many[i] = n == 4 ? addresses[0] : attributes[0];
	switch (n) {
	case 0:
		node->boot = 0;
		return true;
	case 1:
		node->free_bytes = node->capacity_bytes + 1;
		return true;
	case 2:
		node->group = (char *)"a b";
		return true;
	case 3:
		node->n_addresses = 0;
		return true;
	case 4:
		node->n_addresses = MD_NODE_ADDRESSES_MAX + 1;
		node->addresses = many;
		return true;
	case 5:
		node->n_attributes = MD_NODE_ATTRIBUTES_MAX + 1;
		node->attributes = many;
		return true;
	case 6: /* one byte too long */
		long_text[1] = '=';
		long_text[MD_NODE_ATTRIBUTE_BYTES_MAX + 1] = '\0';
		one[0] = long_text;
		node->attributes = one;
		node->n_attributes = 1;
		return true;
	case 7:
		memcpy(long_text, "unix:/", 6);
		one[0] = long_text;
		node->addresses = one;
		node->n_addresses = 1;
		return true;
	}
	return false;
}

START_TEST(what_makes_no_sense_is_refused_and_changes_nothing)
{
	PbMeta__Node node = node_of("fsd1", "rack1", 400);
	int which = 0;

	ck_assert_int_eq(enter(&node), 0);
	for (; spoil(&node, which); which++) {
		node.boot = node.boot != 0 ? 78 : 0;
		ck_assert_msg(enter(&node) == -EINVAL, "%d", which);
		node = node_of("fsd1", "rack1", 400);
	}
	ck_assert_int_eq(which, 3 + 6 + 4 + 8 + 8);
	ck_assert_uint_eq(listed("fsd1")->boot, 77);
}
END_TEST

START_TEST(the_largest_node_is_taken_and_listed)
{
	static char *many[MD_NODE_ATTRIBUTES_MAX], *far[MD_NODE_ADDRESSES_MAX];
	char name[GX_NAME_USER_MAX + 1] = {0}, address[GX_ADDR_TEXT_MAX] = {0};
	PbMeta__Node node;

	memset(name, 'x', GX_NAME_USER_MAX);
	memset(long_text, 'A', MD_NODE_ATTRIBUTE_BYTES_MAX);
	long_text[1] = '=';
	long_text[MD_NODE_ATTRIBUTE_BYTES_MAX] = '\0';
	memset(address, 'a', 255);
	memcpy(address + 255, ":65535", 6);
	for (size_t i = 0; i < GX_COUNT_OF(many); i++)
		many[i] = long_text;
	for (size_t i = 0; i < GX_COUNT_OF(far); i++)
		far[i] = address;
	node = node_of(name, name, UINT64_MAX);
	node.capacity_bytes = UINT64_MAX;
	node.group = name;
	node.n_attributes = GX_COUNT_OF(many);
	node.attributes = many;
	node.n_addresses = GX_COUNT_OF(far);
	node.addresses = far;
	ck_assert_int_eq(enter(&node), 0);
	ck_assert_str_eq(listed(name)->attributes[MD_NODE_ATTRIBUTES_MAX - 1], long_text);
}
END_TEST

START_TEST(there_is_room_for_so_many_nodes_and_no_more)
{
	PbMeta__Node node;
	char name[16];

	for (unsigned i = 0; i < MD_NODES_MAX; i++) {
		snprintf(name, sizeof(name), "x%u", i * 7919 % MD_NODES_MAX);
		node = node_of(name, "h", 1);
		ck_assert_int_eq(enter(&node), 0);
	}
	ck_assert_uint_eq(md_nodes_count(nodes, false), MD_NODES_MAX);
	node = node_of("one-more", "h", 1);
	ck_assert_int_eq(enter(&node), -ENOSPC);
	/* Who is there may still come again. */
	node = node_of("x5", "h", 1);
	node.boot = 78;
	ck_assert_int_eq(enter(&node), 0);
	ck_assert_uint_eq(md_nodes_count(nodes, false), MD_NODES_MAX);
}
END_TEST

START_TEST(a_heartbeat_brings_news_and_a_strange_one_asks_for_a_registration)
{
	PbMeta__NodeHeartbeatRequest news = PB_META__NODE_HEARTBEAT_REQUEST__INIT;
	PbMeta__Node node = node_of("fsd1", "rack1", 400);

	ck_assert_int_eq(beat("fsd1"), -ENOENT);
	ck_assert_int_eq(enter(&node), 0);
	ck_assert_int_eq(beat("fsd1"), 0);
	ck_assert_uint_eq(listed("fsd1")->free_bytes, 500);
	ck_assert_uint_eq(listed("fsd1")->load_percent, 30);
	ck_assert_int_eq(beat_as("host:fsd1", "fsd1", 78), -ENOENT);
	/* A new boot replaces the old one, whose heartbeats no longer count. */
	node.boot = 78;
	node.n_attributes = 0;
	ck_assert_int_eq(enter(&node), 0);
	ck_assert_uint_eq(listed("fsd1")->n_attributes, 0);
	ck_assert_uint_eq(listed("fsd1")->free_bytes, 400);
	ck_assert_int_eq(beat("fsd1"), -ENOENT);
	ck_assert_uint_eq(md_nodes_count(nodes, false), 1);
	ck_assert_uint_eq(log_count("node is up"), 2);
	news.name = (char *)"fsd1";
	news.boot = 78;
	news.free_bytes = UINT64_MAX;
	ck_assert_int_eq(md_nodes_heartbeat(nodes, "host:fsd1", &news), 0);
	ck_assert_uint_eq(listed("fsd1")->free_bytes, 1000);
}
END_TEST

/* -- silence (rule N15) -------------------------------------------------------------- */

START_TEST(a_silent_node_is_down_after_ten_seconds_and_up_when_it_is_heard)
{
	add_numbered(5);
	pass(30000, 0, 5);
	ck_assert_uint_eq(up(), 5);
	pass(7000, 0, 4);
	ck_assert_uint_eq(up(), 5);
	pass(4000, 0, 4);
	ck_assert_uint_eq(up(), 4);
	ck_assert(!listed("n04")->up);
	ck_assert_uint_ge(listed("n04")->silent_ms, 10000);
	ck_assert_uint_lt(listed("n04")->silent_ms, 13000);
	ck_assert_uint_eq(log_count("node is down"), 1);
	pass(60000, 0, 4);
	ck_assert_uint_eq(log_count("node is down"), 1);
	lines[0] = '\0';
	ck_assert_int_eq(beat("n04"), 0);
	ck_assert_uint_eq(up(), 5);
	ck_assert_uint_eq(log_count("node is up"), 1);
	ck_assert_uint_eq(md_nodes_count(nodes, false), 5);
}
END_TEST

START_TEST(the_first_ten_seconds_after_a_start_do_not_count)
{
	add_numbered(1);
	pass(19500, 0, 0);
	ck_assert_uint_eq(up(), 1);
	pass(1000, 0, 0);
	ck_assert_uint_eq(up(), 0);
}
END_TEST

START_TEST(time_in_which_the_loop_stood_still_does_not_count)
{
	add_numbered(4);
	pass(30000, 0, 4);
	/* One is nearly due; then metad is stopped for a minute, and so on. */
	pass(7000, 0, 3);
	for (int i = 0; i < 5; i++) {
		now_ns += 60 * GX_NSEC_PER_SEC;
		md_nodes_tick(nodes);
		ck_assert_uint_eq(up(), 4);
	}
	ck_assert_uint_lt(listed("n03")->silent_ms, 10000);
	/* A heartbeat may be the first thing that is heard after it, too. */
	now_ns += 60 * GX_NSEC_PER_SEC;
	ck_assert_int_eq(beat("n00"), 0);
	md_nodes_tick(nodes);
	ck_assert_uint_eq(up(), 4);
	/* From here on it counts again, for the one that stays silent. */
	pass(4000, 0, 3);
	ck_assert_uint_eq(up(), 3);
	ck_assert(!listed("n03")->up);
	ck_assert_uint_eq(log_count("many nodes"), 0);
}
END_TEST

START_TEST(a_third_at_once_gets_a_minute_more)
{
	add_numbered(6);
	pass(30000, 0, 6);
	pass(60000, 2, 6);
	ck_assert_uint_eq(up(), 6);
	ck_assert_uint_eq(log_count("many nodes fell silent at once"), 1);
	ck_assert_uint_eq(log_count("node is down"), 0);
	pass(15000, 2, 6);
	ck_assert_uint_eq(up(), 4);
	ck_assert_uint_eq(log_count("node is down"), 2);
	ck_assert_uint_eq(log_count("many nodes fell silent at once"), 1);
}
END_TEST

START_TEST(less_than_a_third_gets_no_more_time)
{
	add_numbered(7);
	pass(30000, 0, 7);
	pass(12500, 2, 7);
	ck_assert_uint_eq(up(), 5);
	ck_assert_uint_eq(log_count("many nodes"), 0);
}
END_TEST

START_TEST(one_of_two_is_no_crowd_but_both_are)
{
	add_numbered(2);
	pass(30000, 0, 2);
	pass(12500, 1, 2);
	ck_assert_uint_eq(up(), 1);
	ck_assert_int_eq(beat("n00"), 0);
	pass(10000, 0, 2);
	pass(30000, 0, 0);
	ck_assert_uint_eq(up(), 2);
	pass(45000, 0, 0);
	ck_assert_uint_eq(up(), 0);
}
END_TEST

START_TEST(nodes_that_fall_silent_one_after_another_get_no_more_time)
{
	add_numbered(9);
	pass(30000, 0, 9);
	for (unsigned i = 1; i <= 6; i++) {
		pass(13000, i, 9);
		ck_assert_uint_eq(up(), 9 - i);
	}
	ck_assert_uint_eq(log_count("many nodes"), 0);
}
END_TEST

START_TEST(who_comes_back_from_a_crowd_has_the_usual_patience_again)
{
	add_numbered(6);
	pass(30000, 0, 6);
	pass(30000, 3, 6);
	ck_assert_uint_eq(up(), 6);
	pass(10000, 0, 6);
	ck_assert_uint_eq(up(), 6);
	pass(12500, 1, 6);
	ck_assert_uint_eq(up(), 5);
	/* The next crowd is worth a line of its own. */
	pass(12500, 4, 6);
	ck_assert_uint_eq(log_count("many nodes fell silent at once"), 2);
}
END_TEST

/* -- placement ----------------------------------------------------------------------- */

static size_t choose(const char *client_host, unsigned copies, uint64_t bytes, const char **names)
{
	struct md_placement_request request = {
		.client_host = client_host, .copies = copies, .bytes = bytes};

	return md_placement_most_free.choose(nodes, &request, names, 4);
}

START_TEST(the_emptiest_nodes_are_chosen_on_different_hosts)
{
	const char *names[4];

	add("a", "h1", 300);
	add("b", "h1", 900);
	add("c", "h2", 500);
	add("d", "h3", 100);
	add("e", "h2", 600);
	ck_assert_uint_eq(choose(NULL, 2, 0, names), 2);
	ck_assert_str_eq(names[0], "b");
	ck_assert_str_eq(names[1], "e");
	ck_assert_uint_eq(choose(NULL, 3, 0, names), 3);
	ck_assert_str_eq(names[2], "d");
	/* No fourth host. */
	ck_assert_uint_eq(choose(NULL, 4, 0, names), 3);
	ck_assert_uint_eq(choose(NULL, 0, 0, names), 0);
}
END_TEST

START_TEST(the_callers_own_host_comes_first)
{
	const char *names[4];

	add("a", "h1", 300);
	add("b", "h2", 900);
	add("c", "h1", 400);
	ck_assert_uint_eq(choose("h1", 2, 0, names), 2);
	ck_assert_str_eq(names[0], "c");
	ck_assert_str_eq(names[1], "b");
	ck_assert_uint_eq(choose("elsewhere", 1, 0, names), 1);
	ck_assert_str_eq(names[0], "b");
	/* Unless there is no room. */
	ck_assert_uint_eq(choose("h1", 1, 400, names), 1);
	ck_assert_str_eq(names[0], "c");
	ck_assert_uint_eq(choose("h1", 1, 401, names), 1);
	ck_assert_str_eq(names[0], "b");
	ck_assert_uint_eq(choose("h1", 1, 901, names), 0);
}
END_TEST

/* A node that is at work all the time counts with half of what it has free. */
START_TEST(a_busy_node_comes_after_an_idle_one_with_as_much_room)
{
	const char *names[4];

	add("a", "h1", 500);
	add("b", "h2", 499);
	add("c", "h3", 430);
	ck_assert_uint_eq(choose(NULL, 3, 0, names), 3);
	ck_assert_str_eq(names[0], "a");
	ck_assert_int_eq(beat("a"), 0); /* 500 free, at work for 30 % of the time */
	ck_assert_uint_eq(choose(NULL, 3, 0, names), 3);
	ck_assert_str_eq(names[0], "b");
	ck_assert_str_eq(names[1], "a");
	ck_assert_str_eq(names[2], "c");
}
END_TEST

START_TEST(only_storage_that_is_up_is_chosen)
{
	PbMeta__Node rpcd = node_of("r", "h9", 999);
	const char *names[4];

	rpcd.kind = (char *)"rpcd";
	ck_assert_uint_eq(choose(NULL, 1, 0, names), 0);
	ck_assert_int_eq(enter(&rpcd), 0);
	ck_assert_uint_eq(choose(NULL, 1, 0, names), 0);
	add_numbered(5);
	add("z", "h1", 900);
	ck_assert_uint_eq(choose(NULL, 1, 0, names), 1);
	ck_assert_str_eq(names[0], "z");
	pass(10000, 0, 5);
	ck_assert_int_eq(beat("r"), 0);
	pass(10500, 0, 5);
	ck_assert(!listed("z")->up);
	ck_assert_uint_eq(choose(NULL, 1, 0, names), 1);
	/* Equal ones by name. */
	ck_assert_str_eq(names[0], "n00");
}
END_TEST

START_TEST(no_more_names_are_given_than_there_is_room_for)
{
	const char *names[4] = {NULL};

	add_numbered(9);
	ck_assert_uint_eq(choose(NULL, 9, 0, names), 4);
	ck_assert_str_eq(names[3], "n03");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_nodes");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_node_is_listed_as_it_registered);
	tcase_add_test(tc, fields_that_nobody_knows_are_not_kept);
	tcase_add_test(tc, nodes_are_listed_by_name);
	tcase_add_test(tc, a_list_that_does_not_fit_is_an_error);
	tcase_add_test(tc, a_node_speaks_for_itself_only);
	tcase_add_test(tc, what_makes_no_sense_is_refused_and_changes_nothing);
	tcase_add_test(tc, the_largest_node_is_taken_and_listed);
	tcase_add_test(tc, there_is_room_for_so_many_nodes_and_no_more);
	tcase_add_test(tc, a_heartbeat_brings_news_and_a_strange_one_asks_for_a_registration);
	tcase_add_test(tc, a_silent_node_is_down_after_ten_seconds_and_up_when_it_is_heard);
	tcase_add_test(tc, the_first_ten_seconds_after_a_start_do_not_count);
	tcase_add_test(tc, time_in_which_the_loop_stood_still_does_not_count);
	tcase_add_test(tc, a_third_at_once_gets_a_minute_more);
	tcase_add_test(tc, less_than_a_third_gets_no_more_time);
	tcase_add_test(tc, one_of_two_is_no_crowd_but_both_are);
	tcase_add_test(tc, nodes_that_fall_silent_one_after_another_get_no_more_time);
	tcase_add_test(tc, who_comes_back_from_a_crowd_has_the_usual_patience_again);
	tcase_add_test(tc, the_emptiest_nodes_are_chosen_on_different_hosts);
	tcase_add_test(tc, the_callers_own_host_comes_first);
	tcase_add_test(tc, a_busy_node_comes_after_an_idle_one_with_as_much_room);
	tcase_add_test(tc, only_storage_that_is_up_is_chosen);
	tcase_add_test(tc, no_more_names_are_given_than_there_is_room_for);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
