# metad's modules: a library for tests, and for the daemon when it comes.
md_SRCS := \
	metad/md_cache.c \
	metad/md_check.c \
	metad/md_command.c \
	metad/md_dir.c \
	metad/md_file.c \
	metad/md_inode.c \
	metad/md_kv.c \
	metad/md_log.c \
	metad/md_log_recover.c \
	metad/md_log_segment.c \
	metad/md_skip.c \
	metad/md_state.c \
	metad/md_store.c \
	metad/md_store_leveldb.c \
	metad/md_store_mem.c
# LevelDB has no .pc file in Debian 12.
LEVELDB_LIBS ?= -lleveldb
