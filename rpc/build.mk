rpc_SRCS := $(wildcard rpc/rpc_*.c)

PROGRAMS += gfs-echod
gfs-echod_SRCS := $(wildcard rpc/echod/*.c)
