#include "tests/lib/fault_alloc.h"
#include "common/gx_base.h"
#include <stdatomic.h>

void *__real_malloc(size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void __real_free(void *p);

void *__wrap_malloc(size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_reallocarray(void *p, size_t count, size_t bytes);
void __wrap_free(void *p);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t bytes_max);

static _Atomic uint64_t fail_at; /* 0: never */
static _Atomic uint64_t count;
static _Atomic bool fired;
static _Atomic int64_t live;
static bool (*filter)(void);

void fault_alloc_set(uint64_t nth)
{
	atomic_store(&fail_at, 0);
	atomic_store(&count, 0);
	atomic_store(&fired, false);
	atomic_store(&fail_at, nth);
}

uint64_t fault_alloc_count(void)
{
	return atomic_load(&count);
}

bool fault_alloc_fired(void)
{
	return atomic_load(&fired);
}

void fault_alloc_filter(bool (*counts)(void))
{
	filter = counts;
}

int64_t fault_alloc_live(void)
{
	return atomic_load(&live);
}

static bool strikes(void)
{
	uint64_t n;

	if (filter != NULL && !filter())
		return false;
	n = atomic_fetch_add(&count, 1) + 1;
	if (n != atomic_load(&fail_at))
		return false;
	atomic_store(&fired, true);
	errno = ENOMEM;
	return true;
}

static void *counted(void *p)
{
	if (p != NULL)
		atomic_fetch_add(&live, 1);
	return p;
}

void *__wrap_malloc(size_t bytes)
{
	return strikes() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return strikes() ? NULL : counted(__real_aligned_alloc(align, bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return strikes() ? NULL : counted(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *p, size_t bytes)
{
	void *moved;

	if (strikes())
		return NULL;
	moved = __real_realloc(p, bytes);
	if (p == NULL)
		return counted(moved);
	if (moved == NULL && bytes == 0)
		atomic_fetch_sub(&live, 1);
	return moved;
}

void *__wrap_reallocarray(void *p, size_t n, size_t bytes)
{
	size_t total;

	if (__builtin_mul_overflow(n, bytes, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	return __wrap_realloc(p, total);
}

void __wrap_free(void *p)
{
	if (p != NULL)
		atomic_fetch_sub(&live, 1);
	__real_free(p);
}

char *__wrap_strndup(const char *s, size_t bytes_max)
{
	size_t bytes = strnlen(s, bytes_max);
	char *copy = __wrap_malloc(bytes + 1);

	if (copy != NULL) {
		memcpy(copy, s, bytes);
		copy[bytes] = '\0';
	}
	return copy;
}

char *__wrap_strdup(const char *s)
{
	return __wrap_strndup(s, strlen(s));
}
