#include "rpc/rpc_status.h"

struct status_row {
	uint32_t number;
	const char *name;
	int err;
	bool retryable;
	const char *text;
};

static const struct status_row rows[] = {
#define RPC_STATUS(number, name, err, retryable, text) {number, #name, err, retryable, text},
#include "idl/status.def"
};

static const struct status_row *row_find(uint32_t number)
{
	/* Numbers are given in order without gaps; the unit test keeps it so. */
	return number < GX_COUNT_OF(rows) ? &rows[number] : NULL;
}

enum rpc_status rpc_status_from_errno(int err, bool *ret_exact)
{
	bool exact = true;
	enum rpc_status status = RPC_STATUS_IO;

	if (err == 0) {
		status = RPC_STATUS_OK;
	} else {
		exact = false;
		for (size_t i = 1; i < GX_COUNT_OF(rows); i++) {
			if (err == -rows[i].err) {
				status = (enum rpc_status)rows[i].number;
				exact = true;
				break;
			}
		}
	}
	if (ret_exact)
		*ret_exact = exact;
	return status;
}

int rpc_status_to_errno(uint32_t number)
{
	const struct status_row *row = row_find(number);

	return row ? -row->err : -EPROTO;
}

const char *rpc_status_name(uint32_t number)
{
	const struct status_row *row = row_find(number);

	return row ? row->name : NULL;
}

const char *rpc_status_text(uint32_t number)
{
	const struct status_row *row = row_find(number);

	return row ? row->text : "unknown status";
}

bool rpc_status_retryable(uint32_t number)
{
	const struct status_row *row = row_find(number);

	return row && row->retryable;
}

void rpc_detail_copy(const void *message, size_t bytes, char ret_detail[GX_DETAIL_MAX + 1])
{
	const unsigned char *from = message;
	size_t n = GX_MIN(bytes, (size_t)GX_DETAIL_MAX);

	for (size_t i = 0; i < n; i++) {
		/* C0 and DEL; and C1, which UTF-8 writes as 0xc2 and the code itself. */
		bool control = from[i] < 0x20 || from[i] == 0x7f ||
			       (from[i] == 0xc2 && i + 1 < n && from[i + 1] < 0xa0) ||
			       (i > 0 && from[i - 1] == 0xc2 && from[i] < 0xa0);

		ret_detail[i] = control ? '?' : (char)from[i];
	}
	ret_detail[n] = '\0';
}
