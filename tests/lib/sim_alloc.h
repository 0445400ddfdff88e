/*
 * sim_alloc.h - what tests may ask about the memory of simulated processes (sim_alloc.c).
 */
#ifndef SIM_ALLOC_H
#define SIM_ALLOC_H

#include <stddef.h>

struct gx_sim_proc;

/* Blocks charged to the process and not freed; 0 after its death. */
size_t sim_alloc_blocks(const struct gx_sim_proc *proc);

#endif
