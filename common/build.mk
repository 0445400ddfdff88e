common_SRCS := $(wildcard \
	common/gx_addr.c \
	common/gx_base.c \
	common/gx_buf.c \
	common/gx_conf.c \
	common/gx_conf_file.c \
	common/gx_conf_print.c \
	common/gx_daemon.c \
	common/gx_daemon_os.c \
	common/gx_env.c \
	common/gx_env_posix.c \
	common/gx_fault.c \
	common/gx_hist.c \
	common/gx_log.c \
	common/gx_loop.c \
	common/gx_loop_poll.c \
	common/gx_loop_uv.c \
	common/gx_num.c \
	common/gx_sum.c \
	common/gx_sum_avx2.c \
	common/gx_sum_avx512.c)

# The simulation: linked into tests only.
sim_SRCS := $(wildcard \
	common/gx_sim.c \
	common/gx_sim_disk.c \
	common/gx_sim_fs.c \
	common/gx_sim_link.c \
	common/gx_sim_net.c \
	common/gx_sim_sync.c)

# XXH3 once more per vector unit; gx_sum.c asks the CPU before calling these.
ifneq ($(filter x86_64-%,$(shell $(CC) -dumpmachine 2>/dev/null)),)
CFLAGS_common/gx_sum_avx2 := -mavx2
CFLAGS_common/gx_sum_avx512 := -mavx512f
endif
