# fsd's modules: a library for the daemon and for tests.
fsd_SRCS := $(filter-out fsd/fsd_main.c,$(wildcard fsd/fsd_*.c))
PROGRAMS += gfs-fsd
gfs-fsd_SRCS := fsd/fsd_main.c
gfs-fsd_ARCHIVES = $(LIB_FSD)
