/*
 * The configuration parser: any bytes are either refused with a message or make a configuration
 * whose dump parses back to the same dump.
 */
#include "common/gx_conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct config {
	char *text;
	char *path;
	char *list;
	bool flag;
	uint64_t number;
	uint64_t size;
	int64_t duration_ns;
	int choice;
};

static const char *const choices[] = {"one", "two", NULL};

static const struct gx_conf_row rows[] = {
	{"a", "text", GX_CONF_STRING, offsetof(struct config, text), "x", NULL, NULL, NULL,
	 GX_CONF_REQUIRED | GX_CONF_RELOAD, "Text."},
	{"a", "path", GX_CONF_PATH, offsetof(struct config, path), NULL, NULL, NULL, NULL, 0,
	 "Path."},
	{"a", "list", GX_CONF_LIST, offsetof(struct config, list), "p,q", NULL, NULL, NULL,
	 GX_CONF_RELOAD, "List."},
	{"b", "flag", GX_CONF_BOOL, offsetof(struct config, flag), "yes", NULL, NULL, NULL, 0,
	 "Flag."},
	{"b", "number", GX_CONF_U64, offsetof(struct config, number), "5", "1", "100", NULL,
	 GX_CONF_REQUIRED, "Number."},
	{"b", "size", GX_CONF_SIZE, offsetof(struct config, size), "1KiB", NULL, "1TiB", NULL, 0,
	 "Size."},
	{"b", "duration", GX_CONF_DURATION, offsetof(struct config, duration_ns), "1s", "1ns", NULL,
	 NULL, 0, "Duration."},
	{"b", "choice", GX_CONF_ENUM, offsetof(struct config, choice), "one", NULL, NULL, choices,
	 GX_CONF_RELOAD, "Choice."},
};

static const struct gx_conf_table table = {"fuzz", rows, GX_COUNT_OF(rows), sizeof(struct config)};

static void check_round_trip(const struct config *config, struct gx_buf *errors)
{
	struct config again, spare;
	struct gx_buf first, second, notes;

	gx_buf_init(&first, 1 << 20);
	gx_buf_init(&second, 1 << 20);
	gx_buf_init(&notes, 1 << 20);
	gx_assert(gx_conf_dump(&table, config, &first) == 0);
	gx_assert(gx_conf_init(&table, &again) == 0);
	gx_assert(gx_conf_init(&table, &spare) == 0);
	gx_assert(gx_conf_parse(&table, &again, "/dump", (const char *)first.data, first.bytes,
				errors) == 0);
	gx_assert(gx_conf_dump(&table, &again, &second) == 0);
	gx_assert(first.bytes == second.bytes);
	gx_assert(memcmp(first.data, second.data, first.bytes) == 0);
	gx_assert(gx_conf_reload(&table, &spare, &again, &notes) == 0);
	gx_conf_fini(&table, &again);
	gx_conf_fini(&table, &spare);
	gx_buf_fini(&first);
	gx_buf_fini(&second);
	gx_buf_fini(&notes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct gx_buf errors;
	struct config config;
	char *text;
	int r;

	gx_buf_init(&errors, 1 << 20);
	gx_assert(gx_conf_init(&table, &config) == 0);
	r = gx_conf_parse(&table, &config, "/fuzz/conf", (const char *)data, bytes, &errors);
	gx_assert(r == 0 || r == -EINVAL);
	gx_assert((r == 0) == (errors.bytes == 0) || errors.bytes + 4096 > errors.bytes_max);
	gx_buf_clear(&errors);
	if (r == 0)
		check_round_trip(&config, &errors);
	(void)!gx_conf_validate(&table, &config, &errors);

	/* The same bytes as one --set option. */
	/* Not strndup(): in its strict mode ASan wants the end of the string inside the input. */
	text = calloc(1, bytes + 1);
	gx_assert(text != NULL);
	memcpy(text, data, bytes);
	gx_buf_clear(&errors);
	r = gx_conf_set(&table, &config, text, &errors);
	gx_assert(r == 0 || r == -EINVAL);
	gx_buf_clear(&errors);
	if (r == 0)
		check_round_trip(&config, &errors);
	free(text);
	gx_conf_fini(&table, &config);
	gx_buf_fini(&errors);
	return 0;
}
