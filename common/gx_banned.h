/*
 * gx_banned.h - calls that may not appear in our sources (docs/STYLE.md).
 *
 * Each has a checked replacement: gx_strcpy, gx_format, gx_buf_append_format,
 * gx_parse_u64, gx_time_format, sigaction through gx_daemon.
 */
#ifndef GX_BANNED_H
#define GX_BANNED_H

#include <dirent.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* libgen.h makes it a macro, and poisoning a macro warns. */
#undef basename

#ifndef __cplusplus
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atoll
#pragma GCC poison strtol strtoul strtoll strtoull gmtime localtime readdir_r basename mktemp
#endif

#endif
