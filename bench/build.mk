bench_PROGRAMS := $(wildcard bench/*.c)
