# gfsmount: its modules as a library, for its tests, and main().
gfuse_SRCS := $(filter-out fuse/gfuse_main.c,$(wildcard fuse/gfuse*.c))
FUSE_CFLAGS := $(shell $(PKG_CONFIG) --cflags fuse3 2>/dev/null)
FUSE_LIBS ?= $(shell $(PKG_CONFIG) --libs fuse3 2>/dev/null)
$(foreach s,$(gfuse_SRCS) fuse/gfuse_main.c tests/unit/test_gfuse.c,$(eval CFLAGS_$(s:.c=) := $(FUSE_CFLAGS)))
PROGRAMS += gfsmount
gfsmount_SRCS := fuse/gfuse_main.c
gfsmount_ARCHIVES = $(LIB_GFUSE) $(LIB_GFC)
gfsmount_LIBS = $(FUSE_LIBS)
