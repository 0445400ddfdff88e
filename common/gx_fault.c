#include "common/gx_fault.h"

static const struct {
	const char *name;
	int err;
} gx_fault_rows[] = {
#define X(name, err) [GX_FAULT_##name] = {#name, err},
	GX_FAULT_KINDS(X)
#undef X
};

_Static_assert(GX_FAULT_COUNT <= 64, "struct gx_fault.kinds has one bit per kind");

int gx_fault_check_slow(struct gx_fault *fault, enum gx_fault_kind kind)
{
	uint64_t count, repeat;

	gx_assert(kind < GX_FAULT_COUNT);
	if (!(fault->kinds >> kind & 1))
		return 0;
	count = atomic_fetch_add(&fault->count, 1) + 1;
	repeat = fault->repeat > 0 ? fault->repeat : 1;
	/* Subtracted, not added: nth + repeat may be past the largest number ("for ever"). */
	if (fault->nth == 0 || count < fault->nth || count - fault->nth >= repeat)
		return 0;
	atomic_fetch_add(&fault->fired, 1);
	atomic_store(&fault->last_kind, (int)kind);
	return fault->err > 0 ? -fault->err : -gx_fault_rows[kind].err;
}

const char *gx_fault_name(enum gx_fault_kind kind)
{
	return (unsigned)kind < GX_FAULT_COUNT ? gx_fault_rows[kind].name : "?";
}
