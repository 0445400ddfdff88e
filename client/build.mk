PROGRAMS += gfs
# The commands without main(), for their tests.
tool_SRCS := $(filter-out client/tools/gfs_main.c,$(wildcard client/tools/*.c))
libgfs_SRCS := $(wildcard client/fs/*.c)
gfs_SRCS := $(wildcard client/tools/*.c) $(libgfs_SRCS)
