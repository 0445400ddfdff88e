# Gridstage: one non-recursive Makefile. Each folder lists its sources in build.mk.
# Output goes under build/ only (sanitizer variants under build/<variant>/).
#
#   make help        what there is
#   make V=1 ...     show the commands
#   make DEV=1 ...   warnings are errors (what .ci/run uses)

VERSION    := 0.1.0
PREFIX     ?= /usr/local
SYSCONFDIR ?= $(PREFIX)/etc
BINDIR     ?= $(PREFIX)/bin
SBINDIR    ?= $(PREFIX)/sbin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR     ?= $(PREFIX)/share/man
UNITDIR    ?= $(PREFIX)/lib/systemd/system
COMPDIR    ?= $(PREFIX)/share/bash-completion/completions
DESTDIR    ?=

BUILD      ?= build
SANITIZE   ?=
CC         ?= gcc
AR         ?= ar
PKG_CONFIG ?= pkg-config
PROTOC_C   ?= protoc-c

# -- flags: ours first, the user's CFLAGS, CPPFLAGS and LDFLAGS appended --------
OUR_CPPFLAGS := -I. -I$(BUILD)/gen -D_GNU_SOURCE -DGX_VERSION='"$(VERSION)"' \
	-DGX_SYSCONFDIR='"$(SYSCONFDIR)"'
OUR_CFLAGS := -std=gnu17 -O2 -g -fPIC -fvisibility=hidden -pthread -fno-omit-frame-pointer \
	-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wformat=2 -Wvla -Wundef -Wpointer-arith \
	-fstack-protector-strong
OUR_LDFLAGS := -pthread -Wl,-z,relro,-z,now -Wl,--as-needed
ifeq ($(SANITIZE),)
OUR_CPPFLAGS += -D_FORTIFY_SOURCE=2
else
OUR_CFLAGS  += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -O1
OUR_LDFLAGS += -fsanitize=$(SANITIZE)
endif
ifeq ($(DEV),1)
OUR_CFLAGS += -Werror
endif

# pkg-config is asked once, and not at all for targets that build nothing.
QUIET_GOALS := help clean deps demo check asan tsan fuzz coverage dist
ifneq ($(filter-out $(QUIET_GOALS),$(or $(MAKECMDGOALS),all)),)
PKGS := openssl libprotobuf-c libuv
OUR_CPPFLAGS += $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)
LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null)
CHECK_LIBS := $(shell $(PKG_CONFIG) --libs check 2>/dev/null)
endif

ifeq ($(V),1)
Q :=
SAY := @:
else
Q := @
SAY := @printf '  %-7s %s\n'
MAKEFLAGS += --no-print-directory
endif

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

# -- what each folder holds ------------------------------------------------------
include common/build.mk
include idl/build.mk
include rpc/build.mk
include metad/build.mk
include fsd/build.mk
include client/build.mk
include fuse/build.mk
include tests/build.mk
include bench/build.mk
include docs/build.mk

objs = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

LIB_GX    := $(BUILD)/lib/libgx.a
LIB_SIM   := $(BUILD)/lib/libgxsim.a
LIB_RPC   := $(BUILD)/lib/librpc.a
LIB_MD    := $(BUILD)/lib/libmetad.a
LIB_FSD   := $(BUILD)/lib/libfsd.a
LIB_TEST  := $(BUILD)/lib/libtest.a
LIB_GFS   := $(BUILD)/lib/libgfs.so
LIB_GFC   := $(BUILD)/lib/libgfs.a
LIB_TOOL  := $(BUILD)/lib/libgfstool.a
LIB_GFUSE := $(BUILD)/lib/libgfuse.a
PRODUCT_LIBS := $(LIB_RPC) $(LIB_GX)

# -- rules -----------------------------------------------------------------------
GEN_SRCS := $(patsubst idl/proto/%.proto,$(BUILD)/gen/idl/%.pb-c.c,$(idl_PROTOS))
GEN_HDRS := $(GEN_SRCS:.c=.h)
GEN_OBJS := $(GEN_SRCS:.c=.o)
.SECONDARY: $(GEN_SRCS) $(GEN_HDRS)

$(BUILD)/gen/idl/%.pb-c.c $(BUILD)/gen/idl/%.pb-c.h &: idl/proto/%.proto
	@mkdir -p $(@D)
	$(SAY) PROTOC $<
	$(Q)$(PROTOC_C) --proto_path=idl/proto --c_out=$(BUILD)/gen/idl $<

$(BUILD)/gen/idl/%.o: $(BUILD)/gen/idl/%.c
	$(SAY) CC $(<F)
	$(Q)$(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) -I$(BUILD)/gen/idl $(OUR_CFLAGS) -w $(CFLAGS) -MMD -MP -c -o $@ $<

# FILE_CFLAGS lets one file ask for more (vector units); set in build.mk as CFLAGS_<path>.
$(BUILD)/obj/%.o: %.c | $(GEN_HDRS)
	@mkdir -p $(@D)
	$(SAY) CC $<
	$(Q)$(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) -I$(BUILD)/gen/idl $(OUR_CFLAGS) $(CFLAGS_$*) $(CFLAGS) -MMD -MP -c -o $@ $<

$(LIB_GX): $(call objs,$(common_SRCS))
$(LIB_SIM): $(call objs,$(sim_SRCS))
$(LIB_RPC): $(call objs,$(rpc_SRCS)) $(GEN_OBJS)
$(LIB_MD): $(call objs,$(md_SRCS))
$(LIB_FSD): $(call objs,$(fsd_SRCS))
$(LIB_GFC): $(call objs,$(libgfs_SRCS))
$(LIB_TOOL): $(call objs,$(tool_SRCS))
$(LIB_GFUSE): $(call objs,$(gfuse_SRCS))
$(LIB_TEST): $(call objs,$(test_lib_SRCS) $(echo_service_SRCS))
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	$(SAY) AR $(@F)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# -z,defs: a shared library that links is complete. Sanitizer runtimes are exempt.
GFS_SOVERSION := 0
$(LIB_GFS): $(call objs,$(libgfs_SRCS)) $(PRODUCT_LIBS) client/fs/libgfs.map
	@mkdir -p $(@D)
	$(SAY) LD $(@F)
	$(Q)$(CC) -shared $(OUR_LDFLAGS) $(if $(SANITIZE),,-Wl,-z,defs) -Wl,-soname,libgfs.so.$(GFS_SOVERSION) \
		-Wl,--version-script=client/fs/libgfs.map $(LDFLAGS) -o $@ \
		$(call objs,$(libgfs_SRCS)) $(PRODUCT_LIBS) $(LIBS)
	$(Q)ln -sf libgfs.so $(BUILD)/lib/libgfs.so.$(GFS_SOVERSION)

# Programs: $(call program,name,objects): build/bin/<name>
define program
$(BUILD)/bin/$(1): $(call objs,$(2)) $($(1)_ARCHIVES) $(PRODUCT_LIBS)
	@mkdir -p $$(@D)
	$$(SAY) LD $(1)
	$$(Q)$$(CC) $$(OUR_LDFLAGS) $$(LDFLAGS) -o $$@ $$^ $($(1)_LIBS) $$(LIBS)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p),$($(p)_SRCS))))

# Tests and benchmarks: one binary per file; support objects from tests/lib,
# and the echo service, so that there is something to call.
TEST_LIBS := $(LIB_TEST) $(LIB_TOOL) $(LIB_GFUSE) $(LIB_GFC) $(LIB_MD) $(LIB_FSD) $(LIB_SIM) $(PRODUCT_LIBS)
# Fault and simulation tests see our own allocations (not libc's, not OpenSSL's).
WRAP_ALLOC := -Wl,--wrap=malloc,--wrap=aligned_alloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=strdup,--wrap=strndup,--wrap=reallocarray
define test_program
$(BUILD)/$(1:.c=): $(call objs,$(1)) $(call objs,$(3)) $(4) $(TEST_LIBS)
	@mkdir -p $$(@D)
	$$(SAY) LD $(1:.c=)
	$$(Q)$$(CC) $$(OUR_LDFLAGS) $(2) $$(LDFLAGS) -o $$@ $$^ $$(CHECK_LIBS) $$(LEVELDB_LIBS) $$(FUSE_LIBS) $$(LIBS)
endef
$(foreach t,$(unit_TESTS) $(test_TOOLS),$(eval $(call test_program,$(t),,)))
$(foreach t,$(fault_TESTS),$(eval $(call test_program,$(t),$(WRAP_ALLOC),tests/lib/fault_alloc.c)))
# Rules broken on purpose (common/gx_broken.h): their tests have objects of their own, in front of the libraries.
BREAKABLE_OBJS := $(patsubst %.c,$(BUILD)/obj/breakable/%.o,$(md_SRCS) $(fsd_SRCS) $(libgfs_SRCS) rpc/rpc_serve_reply.c)
$(BUILD)/obj/breakable/%.o: %.c | $(GEN_HDRS)
	@mkdir -p $(@D)
	$(SAY) CC "$< (breakable)"
	$(Q)$(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) -DGX_BREAKABLE -I$(BUILD)/gen/idl $(OUR_CFLAGS) $(CFLAGS_$*) $(CFLAGS) -MMD -MP -c -o $@ $<
$(foreach t,$(sim_TESTS),$(eval $(call test_program,$(t),$(WRAP_ALLOC),tests/lib/sim_alloc.c,$(if \
	$(findstring test_sim_broken,$(t)),$(BREAKABLE_OBJS)))))
$(foreach t,$(bench_PROGRAMS),$(eval $(call test_program,$(t),,$(bench_lib_SRCS))))

# Fuzzers: each is a libFuzzer target with clang, and with any compiler a program that runs its corpus.
$(foreach t,$(fuzz_TESTS),$(eval $(call test_program,$(t),,tests/fuzz/standalone.c)))
FUZZ_BUILD := build/fuzz
FUZZ_SECONDS ?= 30

UNIT_BINS  := $(patsubst %.c,$(BUILD)/%,$(unit_TESTS))
FAULT_BINS := $(patsubst %.c,$(BUILD)/%,$(fault_TESTS))
SIM_BINS   := $(patsubst %.c,$(BUILD)/%,$(sim_TESTS))
FUZZ_BINS  := $(patsubst %.c,$(BUILD)/%,$(fuzz_TESTS))
TOOL_BINS  := $(patsubst %.c,$(BUILD)/%,$(test_TOOLS))
BENCH_BINS := $(patsubst %.c,$(BUILD)/%,$(bench_PROGRAMS))
BIN_FILES  := $(addprefix $(BUILD)/bin/,$(PROGRAMS))

# -- targets ---------------------------------------------------------------------
.PHONY: all deps demo check check-built bench soak lint asan tsan fuzz coverage install uninstall dist clean help \
	tests generate

all: $(BIN_FILES) $(LIB_GFS)
tests: all $(UNIT_BINS) $(FAULT_BINS) $(SIM_BINS) $(FUZZ_BINS) $(TOOL_BINS) $(BENCH_BINS)

deps:
	@tools/install-deps

# demo and check bring the machine up to what they need, then build in a second make,
# because the first one was read before the packages were there.
demo:
	@tools/install-deps
	@$(MAKE) -j$$(nproc) BUILD=$(BUILD) all
	@BUILD=$(BUILD) tools/demo

check:
	@tools/install-deps
	@$(MAKE) -j$$(nproc) BUILD=$(BUILD) tests
	@$(MAKE) BUILD=$(BUILD) TEST_FLAGS=--lint check-built

# Runs what `make tests` built; lint rides along where TEST_FLAGS asks for it, so that one
# count stands at the end.
check-built:
	@BUILD=$(BUILD) SANITIZE=$(SANITIZE) PROGRAMS='$(PROGRAMS)' tests/run $(TEST_FLAGS) $(TESTS)

bench: all $(BENCH_BINS)
	@BUILD=$(BUILD) bench/run

soak: tests
	@BUILD=$(BUILD) SANITIZE=$(SANITIZE) tests/run --soak $(TESTS)

lint: $(GEN_HDRS) all
	@BUILD=$(BUILD) PROGRAMS='$(PROGRAMS)' tools/lint

# ASan and UBSan; TSan. The same tests, other builds.
asan:
	@$(MAKE) -j$$(nproc) BUILD=build/asan SANITIZE=address,undefined tests
	@$(MAKE) BUILD=build/asan SANITIZE=address,undefined check-built
tsan:
	@$(MAKE) -j$$(nproc) BUILD=build/tsan SANITIZE=thread tests
	@$(MAKE) BUILD=build/tsan SANITIZE=thread check-built

fuzz:
	@$(MAKE) -j$$(nproc) BUILD=$(FUZZ_BUILD) fuzz-programs
	@BUILD=$(FUZZ_BUILD) FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run $(fuzz_TESTS)

# clang's libFuzzer build of everything a fuzzer links; only inside build/fuzz.
.PHONY: fuzz-programs
fuzz-programs: $(patsubst tests/fuzz/%.c,$(BUILD)/bin/%,$(fuzz_TESTS))
$(BUILD)/bin/fuzz_%: tests/fuzz/fuzz_%.c $(common_SRCS) $(rpc_SRCS) $(md_fuzz_SRCS) $(GEN_SRCS) | $(GEN_HDRS)
	@mkdir -p $(@D)
	$(SAY) FUZZ $(@F)
	$(Q)clang -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -g -O1 -w -std=gnu17 -pthread \
		$(OUR_CPPFLAGS) -U_FORTIFY_SOURCE -I$(BUILD)/gen/idl -DGX_SUM_PORTABLE -o $@ \
		$< $(filter-out common/gx_sum_%.c,$(common_SRCS)) $(rpc_SRCS) $(md_fuzz_SRCS) $(GEN_SRCS) $(LIBS)

coverage:
	@$(MAKE) -j$$(nproc) BUILD=build/coverage CFLAGS="--coverage -O0" LDFLAGS=--coverage tests
	@$(MAKE) BUILD=build/coverage check-built
	@tools/coverage build/coverage

# Regenerates what is derived from the .def files and config tables and kept in git.
generate: all
	@BUILD=$(BUILD) PROGRAMS='$(PROGRAMS)' tools/generate

INSTALL_ENV = BUILD=$(BUILD) DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' BINDIR='$(BINDIR)' \
	SBINDIR='$(SBINDIR)' LIBDIR='$(LIBDIR)' INCLUDEDIR='$(INCLUDEDIR)' MANDIR='$(MANDIR)' \
	UNITDIR='$(UNITDIR)' COMPDIR='$(COMPDIR)' SYSCONFDIR='$(SYSCONFDIR)' VERSION='$(VERSION)' \
	GFS_SOVERSION='$(GFS_SOVERSION)' PROGRAMS='$(PROGRAMS)' V='$(V)'
install: all
	@$(INSTALL_ENV) tools/install-files install
uninstall:
	@$(INSTALL_ENV) tools/install-files uninstall

dist:
	@mkdir -p build
	@git archive --format=tar.gz --prefix=gridstage-$(VERSION)/ -o build/gridstage-$(VERSION).tar.gz HEAD
	@echo "build/gridstage-$(VERSION).tar.gz"

clean:
	@rm -rf build

help:
	@tools/make-help

-include $(shell find $(BUILD)/obj $(BUILD)/gen -name '*.d' 2>/dev/null)
