# metad's modules: a library for the daemon and for tests.
md_SRCS := \
	metad/md_access.c \
	metad/md_acl.c \
	metad/md_admin.c \
	metad/md_cache.c \
	metad/md_change.c \
	metad/md_cap.c \
	metad/md_check.c \
	metad/md_command.c \
	metad/md_data.c \
	metad/md_dir.c \
	metad/md_file.c \
	metad/md_forget.c \
	metad/md_grid.c \
	metad/md_inode.c \
	metad/md_jobs.c \
	metad/md_jobs_evict.c \
	metad/md_jobs_plan.c \
	metad/md_jobs_told.c \
	metad/md_kv.c \
	metad/md_layout.c \
	metad/md_layout_scan.c \
	metad/md_lease.c \
	metad/md_lock.c \
	metad/md_lock_queue.c \
	metad/md_locking.c \
	metad/md_log.c \
	metad/md_log_recover.c \
	metad/md_log_segment.c \
	metad/md_nodes.c \
	metad/md_names.c \
	metad/md_recall.c \
	metad/md_rights.c \
	metad/md_server.c \
	metad/md_session.c \
	metad/md_skip.c \
	metad/md_start.c \
	metad/md_state.c \
	metad/md_store.c \
	metad/md_store_leveldb.c \
	metad/md_store_mem.c \
	metad/md_users.c
# What a fuzzer links besides common/ and rpc/.
md_fuzz_SRCS := metad/md_users.c
# LevelDB has no .pc file in Debian 12.
LEVELDB_LIBS ?= -lleveldb
PROGRAMS += gfs-metad
gfs-metad_SRCS := metad/md_main.c
gfs-metad_ARCHIVES = $(LIB_MD)
gfs-metad_LIBS = $(LEVELDB_LIBS)
