rpc_SRCS := $(wildcard rpc/rpc_*.c)

PROGRAMS += gfs-echod
gfs-echod_SRCS := $(wildcard rpc/echod/*.c)

# The handlers without a daemon around them: for tests and benchmarks.
echo_service_SRCS := rpc/echod/echo_service.c
