/*
 * The command line. Options of -o are rows of one table, as the keys of other programs are; what is
 * not in it and is known to the kernel or to libfuse goes there, and what only means something to
 * mount(8) and fstab(5) is dropped.
 */
#include "fuse/gfuse.h"
#include <getopt.h>
#include <stdio.h>

#define PROGRAM "gfsmount"
#define SECTION "mount"
#define OPTIONS_MAX (64u * 1024) /* bytes of all of them */

#define FIELD(name) offsetof(struct gfuse_conf, name)
static const struct gx_conf_row rows[] = {
	{SECTION, "config", GX_CONF_PATH, FIELD(config), NULL, NULL, NULL, NULL, 0,
	 "Client configuration: where the grid is and which key opens it. Default: $GFS_CONFIG, "
	 "~/.gridstage/gfs.conf, or the system's."},
	{SECTION, "hard", GX_CONF_BOOL, FIELD(hard), "no", NULL, NULL, NULL, 0,
	 "Wait for servers that are away as long as it takes."},
	{SECTION, "soft", GX_CONF_BOOL, FIELD(soft), "no", NULL, NULL, NULL, 0,
	 "Wait as long as the time-outs say, then fail. This is the default."},
	{SECTION, "meta_timeout", GX_CONF_DURATION, FIELD(meta_timeout_ns), NULL, NULL, "1d", NULL,
	 0, "How long a call waits for a metadata server that is away. 0: as configured."},
	{SECTION, "data_timeout", GX_CONF_DURATION, FIELD(data_timeout_ns), NULL, NULL, "1d", NULL,
	 0, "How long a call waits for bytes whose storage nodes are away. 0: as configured."},
	{SECTION, "cache", GX_CONF_SIZE, FIELD(cache_bytes), "128MiB", "1MiB", "64GiB", NULL, 0,
	 "Memory for names and attributes, besides what the kernel keeps."},
	{SECTION, "ncopy", GX_CONF_U64, FIELD(ncopy), "0", NULL, "64", NULL, 0,
	 "Copies that files made through this mount shall have. 0: what their directory says."},
	{SECTION, "timeout", GX_CONF_DURATION, FIELD(timeout_ns), "1s", "0s", "1d", NULL, 0,
	 "How long the kernel keeps names and attributes before it asks gfsmount again; never "
	 "longer "
	 "than gfsmount itself may believe them, 1.5 s. Changes by others are told at once in "
	 "any case. 0: it always asks."},
	{SECTION, "names", GX_CONF_BOOL, FIELD(names), "yes", NULL, NULL, NULL, 0,
	 "Users and groups of the grid are those of the same name on this machine. no: those of "
	 "the "
	 "same number."},
	{SECTION, "writeback", GX_CONF_BOOL, FIELD(writeback), "no", NULL, NULL, NULL, 0,
	 "The kernel collects small writes. Only for a mount that alone writes and reads its "
	 "files: "
	 "others' changes of a file that is known here may go unseen."},
	{SECTION, "read_ahead", GX_CONF_SIZE, FIELD(read_ahead_bytes), "512KiB", NULL, "64MiB",
	 NULL, 0, "What the kernel reads ahead. Only root can set it. 0: the kernel's default."},
	{SECTION, "pid_file", GX_CONF_PATH, FIELD(pid_file), NULL, NULL, NULL, NULL, 0,
	 "File that holds the process id while it is mounted, and its lock."},
};

const struct gx_conf_table gfuse_conf_table = {PROGRAM, rows, GX_COUNT_OF(rows),
					       sizeof(struct gfuse_conf)};

/* -- -o -----------------------------------------------------------------------------------------
 */

/* For libfuse and the kernel; "=": with a value. */
static const char *const passed[] = {
	"allow_other", "allow_root", "auto_unmount", "nodev",        "dev",         "nosuid",
	"suid",        "noexec",     "exec",         "noatime",      "atime",       "nodiratime",
	"relatime",    "sync",       "async",        "dirsync",      "fsname=",     "subtype=",
	"max_read=",   "context=",   "fscontext=",   "rootcontext=", "defcontext=",
};
/* For mount(8) and those who start it. */
static const char *const dropped[] = {
	"defaults", "auto",  "noauto",   "nofail", "_netdev",     "user",
	"nouser",   "users", "nousers",  "owner",  "noowner",     "group",
	"nogroup",  "rw",    "comment=", "x-",     "strictatime",
};

static bool is_in(const char *const *list, size_t count, const char *option)
{
	for (size_t i = 0; i < count; i++) {
		size_t bytes = strlen(list[i]);
		char last = list[i][bytes - 1];

		if (last == '=' || last == '-' ? strncmp(option, list[i], bytes) == 0
					       : strcmp(option, list[i]) == 0)
			return true;
	}
	return false;
}

static int pass_on(struct gfuse_conf *conf, const char *option)
{
	int r = conf->pass.bytes > 0 ? gx_buf_append(&conf->pass, ",", 1) : 0;

	return r < 0 ? r : gx_buf_append(&conf->pass, option, strlen(option));
}

static bool is_flag(const char *name)
{
	for (size_t i = 0; i < GX_COUNT_OF(rows); i++)
		if (strcmp(rows[i].key, name) == 0)
			return rows[i].type == GX_CONF_BOOL;
	return false;
}

/* The table's errors speak of --set. */
static int set_row(struct gfuse_conf *conf, const char *option, struct gx_buf *errors)
{
	static const char theirs[] = "--set: ";
	char assignment[GX_PATH_MAX + 64];
	struct gx_buf lines;
	const char *text;
	int r;

	if (gx_format(assignment, sizeof(assignment), SECTION ".%s%s", option,
		      strchr(option, '=') ? ""
		      : is_flag(option)   ? "=yes"
					  : "=") < 0)
		return -EINVAL;
	gx_buf_init(&lines, GX_LOG_LINE_MAX);
	r = gx_conf_set(&gfuse_conf_table, conf, assignment, &lines);
	text = r < 0 && lines.bytes > 0 ? gx_buf_text(&lines) : NULL;
	if (text && strncmp(text, theirs, strlen(theirs)) == 0)
		text += strlen(theirs);
	if (r < 0)
		GX_IGNORE(gx_buf_append_format(errors, "-o %s: %s", option,
					       text ? text : "not understood\n"));
	gx_buf_fini(&lines);
	return r;
}

static int take_option(struct gfuse_conf *conf, const char *option, struct gx_buf *errors)
{
	if (option[0] == '\0' || is_in(dropped, GX_COUNT_OF(dropped), option))
		return 0;
	if (strcmp(option, "noatime") == 0)
		conf->noatime = true;
	if (strcmp(option, "ro") == 0)
		conf->read_only = true;
	if (strcmp(option, "default_permissions") == 0)
		return 0; /* it is, unless it was switched off */
	if (strcmp(option, "no_default_permissions") == 0) {
		conf->no_permissions = true;
		return 0;
	}
	if (strcmp(option, "ro") == 0 || is_in(passed, GX_COUNT_OF(passed), option))
		return pass_on(conf, option);
	return set_row(conf, option, errors);
}

static int take_options(struct gfuse_conf *conf, const char *text, struct gx_buf *errors)
{
	GX_AUTOFREE char *copy = strdup(text);
	char *rest = copy, *option;
	int r = copy ? 0 : -ENOMEM;

	while (r == 0 && (option = strsep(&rest, ",")) != NULL)
		r = take_option(conf, option, errors);
	return r;
}

/* -- the rest -----------------------------------------------------------------------------------
 */

static void print_help(void)
{
	printf("Usage: " PROGRAM " [OPTION]... [gfs:/SUBDIR] MOUNTPOINT\n"
	       "Mounts the grid, or a directory of it. umount MOUNTPOINT or fusermount3 -u "
	       "MOUNTPOINT\n"
	       "ends it.\n\n"
	       "Options:\n"
	       "  -o OPTION,...     mount options, see below\n"
	       "  -f, --foreground  stay in the foreground\n"
	       "  -d, --debug       the same, and print every request\n"
	       "  -h, --help        print this text\n"
	       "  -V, --version     print the version\n\n"
	       "Mount options, beside those of every file system (ro, nosuid, nodev, noexec, "
	       "noatime)\n"
	       "and of FUSE (allow_other, auto_unmount):\n");
	for (size_t i = 0; i < GX_COUNT_OF(rows); i++)
		printf("  %s%s\n", rows[i].key, rows[i].type == GX_CONF_BOOL ? "" : "=VALUE");
	printf("  no_default_permissions\n\nThey are described in " PROGRAM "(8).\n");
}

static int print_mdoc(void)
{
	struct gx_buf text;
	int r;

	gx_buf_init(&text, GX_CONF_FILE_MAX);
	r = gx_conf_mdoc(&gfuse_conf_table, &text);
	if (r == 0)
		fwrite(text.data, 1, text.bytes, stdout);
	gx_buf_fini(&text);
	return r < 0 ? r : 1;
}

static int take_arguments(struct gfuse_conf *conf, int argc, char **argv, struct gx_buf *errors)
{
	const char *wrong = NULL;

	if (argc == 2)
		conf->source = argv[0];
	if (argc == 1 || argc == 2)
		conf->mountpoint = argv[argc - 1];
	if (argc < 1)
		wrong = "where to mount? " PROGRAM " MOUNTPOINT";
	else if (argc > 2)
		wrong = "too many arguments: " PROGRAM " [gfs:/SUBDIR] MOUNTPOINT";
	else if (conf->hard && conf->soft)
		wrong = "-o hard and -o soft exclude each other";
	if (wrong)
		GX_IGNORE(gx_buf_append_format(errors, "%s\n", wrong));
	return wrong ? -EINVAL : 0;
}

/* What libfuse is told in any case. */
static int finish(struct gfuse_conf *conf)
{
	char name[GX_PATH_MAX + 16];
	int r = 0;

	if (!conf->no_permissions)
		r = pass_on(conf, "default_permissions");
	if (r == 0 && !memmem(conf->pass.data, conf->pass.bytes, "subtype=", 8))
		r = pass_on(conf, "subtype=" PROGRAM);
	if (r == 0 && !memmem(conf->pass.data, conf->pass.bytes, "fsname=", 7)) {
		r = gx_format(name, sizeof(name), "fsname=%s",
			      conf->source && !strpbrk(conf->source, ",\\") ? conf->source
									    : "gfs:/");
		r = r < 0 ? r : pass_on(conf, name);
	}
	return r < 0 ? r : gx_buf_append(&conf->pass, "", 1);
}

int gfuse_conf_parse(struct gfuse_conf *conf, int argc, char **argv, struct gx_buf *errors)
{
	static const struct option longs[] = {
		{"foreground", no_argument, NULL, 'f'},  {"debug", no_argument, NULL, 'd'},
		{"help", no_argument, NULL, 'h'},        {"version", no_argument, NULL, 'V'},
		{"mdoc-config", no_argument, NULL, 'M'}, {NULL, 0, NULL, 0},
	};
	int c, r;

	r = gx_conf_init(&gfuse_conf_table, conf);
	gx_buf_init(&conf->pass, OPTIONS_MAX);
	while (r == 0 && (c = getopt_long(argc, argv, "o:fdhV", longs, NULL)) != -1) {
		switch (c) {
		case 'o':
			r = take_options(conf, optarg, errors);
			break;
		case 'd':
			conf->debug = true;
			conf->foreground = true;
			r = pass_on(conf, "debug");
			break;
		case 'f':
			conf->foreground = true;
			break;
		case 'h':
			print_help();
			return 1;
		case 'V':
			printf(PROGRAM " " GX_VERSION "\n");
			return 1;
		case 'M':
			return print_mdoc();
		default:
			GX_IGNORE(gx_buf_append_format(errors, "see " PROGRAM " --help\n"));
			return -EINVAL;
		}
	}
	if (r == 0)
		r = take_arguments(conf, argc - optind, argv + optind, errors);
	return r < 0 ? r : finish(conf);
}

void gfuse_conf_fini(struct gfuse_conf *conf)
{
	gx_buf_fini(&conf->pass);
	gx_conf_fini(&gfuse_conf_table, conf);
}
