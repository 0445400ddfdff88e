PROGRAMS += gfs
gfs_SRCS := $(wildcard client/tools/*.c)
libgfs_SRCS := $(wildcard client/fs/*.c)
