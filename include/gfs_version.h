/*
 * gfs_version.h - which libgfs this is, at compile time and at run time.
 *
 * The macros tell what a program was compiled against, gfs_version() what it
 * runs with. Before 1.0 every minor version may change the interface.
 */
#ifndef GRIDSTAGE_GFS_VERSION_H
#define GRIDSTAGE_GFS_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

#define GFS_VERSION_MAJOR 0
#define GFS_VERSION_MINOR 1
#define GFS_VERSION_PATCH 0
#define GFS_VERSION "0.1.0"

/* The version of the library in use, "0.1.0": static text, never NULL. Any thread, any time. */
const char *gfs_version(void);

#ifdef __cplusplus
}
#endif

#endif
