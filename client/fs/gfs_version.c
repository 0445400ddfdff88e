#include "include/gfs_version.h"

#include <assert.h>

#define TEXT_OF(x) TEXT_OF_VALUE(x)
#define TEXT_OF_VALUE(x) #x

#define PARTS                                                                                      \
	TEXT_OF(GFS_VERSION_MAJOR) "." TEXT_OF(GFS_VERSION_MINOR) "." TEXT_OF(GFS_VERSION_PATCH)

/* The Makefile's version is the source; a header left behind does not compile. */
static_assert(__builtin_strcmp(GFS_VERSION, GX_VERSION) == 0,
	      "GFS_VERSION differs from VERSION in the Makefile");
static_assert(__builtin_strcmp(GFS_VERSION, PARTS) == 0, "GFS_VERSION differs from its parts");

__attribute__((visibility("default"))) const char *gfs_version(void)
{
	return GFS_VERSION;
}
