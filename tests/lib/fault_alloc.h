/*
 * fault_alloc.h - the n-th allocation fails.
 *
 * Linked into fault tests with --wrap=malloc and friends, so it sees the
 * allocations of our own code, not those inside libc or OpenSSL. A test runs its
 * scenario with nth = 1, 2, 3 … until a run ends in which nothing fired.
 *
 * Thread-safe: allocations of all threads are counted together.
 */
#ifndef FAULT_ALLOC_H
#define FAULT_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* The nth allocation from now (from 1) returns NULL, once. 0: none. Resets count and fired. */
void fault_alloc_set(uint64_t nth);
/* Allocations since the last fault_alloc_set(). */
uint64_t fault_alloc_count(void);
/* True when an allocation was failed since the last fault_alloc_set(). */
bool fault_alloc_fired(void);
/*
 * Only allocations for which `counts` says true are counted and failed (NULL: all). A test in the
 * simulation leaves out the simulator's own.
 */
void fault_alloc_filter(bool (*counts)(void));
/* Blocks allocated and not freed, those left out by the filter too. To compare before and after. */
int64_t fault_alloc_live(void);

#endif
