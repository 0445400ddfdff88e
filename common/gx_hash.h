/*
 * gx_hash.h - uthash with the settings we use: out of memory is an error, not an exit.
 *
 * A function that adds declares `bool gx_hash_failed = false;`, adds, and looks
 * at it: true means the element is not in the table.
 */
#ifndef GX_HASH_H
#define GX_HASH_H

#include "common/gx_base.h"

#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) (gx_hash_failed = true)
#include <uthash.h>
#include <utlist.h>

#endif
