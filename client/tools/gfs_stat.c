/*
 * gfs stat - all that is known about a file.
 */
#include "client/tools/gfs_print.h"
#include "client/tools/gfs_walk.h"

static const char help[] =
	"Usage: gfs stat [-L] [--json] FILE...\n"
	"Shows all that is known about files.\n\n"
	"Options:\n"
	"      --json         one JSON array of objects\n"
	"  -L, --dereference  follow symbolic links\n" GFS_COMMON_HELP GFS_JSON_HELP;

struct stat_command {
	struct gfs_tool *tool;
	struct gfs_owners owners;
	bool json, follow;
	size_t count; /* printed */
};

static void print_time(const char *title, const struct timespec *ts)
{
	char text[64];

	gfs_time_long(ts, text);
	printf("%-8s%s\n", title, text);
}

static void print_text(struct stat_command *s, const char *path, const struct gfs_stat *st,
		       const char *target)
{
	char mode[11];

	gfs_mode_text(st->mode, mode);
	printf("File:   ");
	gfs_tool_print(s->tool, path);
	if (target) {
		printf(" -> ");
		gfs_tool_print(s->tool, target);
	}
	printf("\nType:   %s\n", gfs_type_text(st->mode));
	if (S_ISBLK(st->mode) || S_ISCHR(st->mode))
		printf("Device: %llu\n", (unsigned long long)st->rdev);
	printf("Size:   %llu\n", (unsigned long long)st->size);
	printf("Mode:   %04o %s\n", (unsigned)(st->mode & 07777), mode);
	printf("User:   %u %s\n", (unsigned)st->uid, gfs_owner_text(&s->owners, st->uid, false));
	printf("Group:  %u %s\n", (unsigned)st->gid, gfs_owner_text(&s->owners, st->gid, true));
	printf("Inode:  %llu, links %u, generation %llu, version %llu\n",
	       (unsigned long long)st->ino, (unsigned)st->nlink, (unsigned long long)st->generation,
	       (unsigned long long)st->version);
	print_time("Access:", &st->atime);
	print_time("Modify:", &st->mtime);
	print_time("Change:", &st->ctime);
	print_time("Birth:", &st->btime);
}

static void stat_one(struct stat_command *s, const char *path)
{
	struct gfs *fs = s->tool->fs;
	char buf[GFS_PATH_MAX];
	const char *target = NULL;
	struct gfs_stat st;
	int r = s->follow ? gfs_stat(fs, path, &st) : gfs_lstat(fs, path, &st);

	if (r == 0 && S_ISLNK(st.mode)) {
		r = gfs_link_target(fs, path, buf);
		target = buf;
	}
	if (r < 0) {
		gfs_tool_error(s->tool, path, r);
		return;
	}
	if (s->json) {
		fputs(s->count ? ",\n " : "[", stdout);
		gfs_json_file(stdout, &s->owners, path, 0, &st, target);
	} else {
		print_text(s, path, &st, target);
	}
	s->count++;
}

int gfs_stat_main(struct gx_env *env, int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, GFS_OPT_OWN},
					      {"dereference", no_argument, NULL, 'L'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	GX_CLEANUP(gfs_paths_fini) struct gfs_paths paths = {0};
	struct gfs_tool tool;
	struct stat_command s = {.tool = &tool};
	int c, code;

	gfs_tool_init(&tool, env, "stat", help);
	while ((c = gfs_tool_getopt(&tool, argc, argv, "L", longs)) != -1) {
		if (c == '?')
			return GFS_EXIT_USAGE;
		if (c == 'L')
			s.follow = true;
		else
			s.json = true;
	}
	if (optind >= argc)
		return gfs_tool_usage(&tool, "wants one or more FILEs");
	code = gfs_tool_connect(&tool);
	if (code)
		return code;
	s.owners.fs = tool.fs;
	if (gfs_expand(&tool, argc - optind, argv + optind, &paths) == 0)
		for (size_t i = 0; i < paths.count; i++)
			stat_one(&s, paths.path[i]);
	if (s.json)
		puts(s.count ? "]" : "[]");
	return gfs_tool_finish(&tool);
}
