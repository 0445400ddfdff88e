/*
 * gx_secret.h - handling key bytes (rule S3): wipe, compare, judge their file.
 */
#ifndef GX_SECRET_H
#define GX_SECRET_H

#include "common/gx_base.h"
#include <sys/stat.h>
#include <unistd.h>

/* Overwrites memory in a way the compiler may not drop. */
static inline void gx_wipe(void *data, size_t bytes)
{
	explicit_bzero(data, bytes);
}

/* Equality whose time depends only on `bytes`. */
static inline bool gx_equal_secret(const void *a, const void *b, size_t bytes)
{
	const volatile unsigned char *x = a;
	const volatile unsigned char *y = b;
	unsigned char diff = 0;

	for (size_t i = 0; i < bytes; i++)
		diff |= (unsigned char)(x[i] ^ y[i]);
	return diff == 0;
}

/*
 * What is wrong with a file that holds a secret, as text for a person; NULL if
 * nothing: a regular file, ours or root's, closed to group and others.
 */
static inline const char *gx_secret_problem(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "a key must be in a regular file";
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return "the key file belongs to another user";
	if (st->st_mode & 077)
		return "the key file is open to others; run: chmod 600 on it";
	return NULL;
}

#endif
