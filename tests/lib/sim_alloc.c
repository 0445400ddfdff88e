/*
 * sim_alloc.c - memory of simulated processes, freed at their death.
 *
 * Linked with --wrap=malloc and friends. An allocation made while a fiber of a
 * simulated process runs is noted in a table (address -> process); when the
 * process dies, gx_sim.c calls sim_alloc_on_death() and what is left is freed, as
 * a kernel would. A block has no header of its own: blocks that libc allocated
 * behind our back (getline, asprintf) are passed to free() by the same code, and
 * the sanitizers keep seeing the exact bounds.
 *
 * Do not keep memory across processes in static variables: it goes with the
 * process that happened to allocate it.
 */
#include "tests/lib/sim_alloc.h"
#include "common/gx_sim.h"
#include <pthread.h>

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
void sim_alloc_on_death(struct gx_sim_proc *proc);

/* Open addressing, linear probing; removal shifts back, so there are no tombstones. */
struct slot {
	void *p; /* NULL: empty */
	struct gx_sim_proc *proc;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *table; /* under table_lock, as the next two */
static size_t table_max;   /* a power of two */
static size_t table_count;

static size_t home_of(const void *p)
{
	return (size_t)(((uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (table_max - 1);
}

static void table_put(void *p, struct gx_sim_proc *proc)
{
	size_t i = home_of(p);

	while (table[i].p != NULL)
		i = (i + 1) & (table_max - 1);
	table[i] = (struct slot){p, proc};
}

static void table_grow(void)
{
	struct slot *old = table;
	size_t old_max = table_max;

	table_max = old_max > 0 ? 2 * old_max : 1024;
	table = __real_calloc(table_max, sizeof(*table));
	gx_assert(table != NULL);
	for (size_t i = 0; i < old_max; i++)
		if (old[i].p != NULL)
			table_put(old[i].p, old[i].proc);
	__real_free(old);
}

static void track(void *p, struct gx_sim_proc *proc)
{
	if (p == NULL || proc == NULL)
		return;
	pthread_mutex_lock(&table_lock);
	if (2 * (table_count + 1) > table_max)
		table_grow();
	table_put(p, proc);
	table_count++;
	pthread_mutex_unlock(&table_lock);
}

static void slot_remove(size_t i)
{
	size_t hole = i;

	for (size_t j = (i + 1) & (table_max - 1); table[j].p != NULL;
	     j = (j + 1) & (table_max - 1)) {
		size_t home = home_of(table[j].p);

		/* Move it into the hole unless its home lies behind the hole. */
		if (((j - home) & (table_max - 1)) >= ((j - hole) & (table_max - 1))) {
			table[hole] = table[j];
			hole = j;
		}
	}
	table[hole].p = NULL;
	table_count--;
}

/* The process a block was charged to, or NULL; it is not any more. */
static struct gx_sim_proc *untrack(const void *p)
{
	struct gx_sim_proc *proc = NULL;

	pthread_mutex_lock(&table_lock);
	if (p != NULL && table_count > 0) {
		size_t i = home_of(p);

		while (table[i].p != NULL && table[i].p != p)
			i = (i + 1) & (table_max - 1);
		if (table[i].p != NULL) {
			proc = table[i].proc;
			slot_remove(i);
		}
	}
	pthread_mutex_unlock(&table_lock);
	return proc;
}

/*
 * One pass is enough: removal only moves entries towards lower slots of the same run, and one
 * that moves around the end of the table has been looked at already.
 */
void sim_alloc_on_death(struct gx_sim_proc *proc)
{
	pthread_mutex_lock(&table_lock);
	for (size_t i = 0; i < table_max;) {
		void *p = table[i].p;

		if (p == NULL || table[i].proc != proc) {
			i++;
			continue;
		}
		slot_remove(i); /* may move another block into slot i: look at it again */
		__real_free(p);
	}
	if (table_count == 0) {
		__real_free(table);
		table = NULL;
		table_max = 0;
	}
	pthread_mutex_unlock(&table_lock);
}

size_t sim_alloc_blocks(const struct gx_sim_proc *proc)
{
	size_t blocks = 0;

	pthread_mutex_lock(&table_lock);
	for (size_t i = 0; i < table_max; i++)
		blocks += table[i].p != NULL && table[i].proc == proc;
	pthread_mutex_unlock(&table_lock);
	return blocks;
}

void *__wrap_malloc(size_t bytes)
{
	void *p = __real_malloc(bytes);

	track(p, gx_sim_current());
	return p;
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	void *p = __real_aligned_alloc(align, bytes);

	track(p, gx_sim_current());
	return p;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	void *p = __real_calloc(count, bytes);

	track(p, gx_sim_current());
	return p;
}

/* The block stays with the process that made it. */
void *__wrap_realloc(void *p, size_t bytes)
{
	struct gx_sim_proc *proc = p != NULL ? untrack(p) : gx_sim_current();
	void *moved = __real_realloc(p, bytes);

	if (moved == NULL && bytes > 0)
		track(p, proc);
	else
		track(moved, proc);
	return moved;
}

void *__wrap_reallocarray(void *p, size_t count, size_t bytes)
{
	size_t total;

	if (__builtin_mul_overflow(count, bytes, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	return __wrap_realloc(p, total);
}

void __wrap_free(void *p)
{
	(void)untrack(p);
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

/*
 * What libcrypto allocates it allocates behind our back, and keeps some of it for all processes; so
 * a killed process leaves its contexts behind. Read by LeakSanitizer, if it is there.
 */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libcrypto\n";
}
