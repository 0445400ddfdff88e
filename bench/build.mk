# bench/*.c are programs; what they share is in bench/lib.
bench_PROGRAMS := $(wildcard bench/*.c)
bench_lib_SRCS := $(wildcard bench/lib/*.c)
