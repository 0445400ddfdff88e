#include "client/tools/gfs_print.h"
#include "client/tools/gfs_paths.h"
#include "client/tools/gfs_tool.h"
#include "common/gx_num.h"
#include "include/gfs.h"
#include <sys/stat.h>

/* -- names ------------------------------------------------------------------------------------- */

/* U+0080 to U+009F: terminals obey these as they obey ESC. */
static bool is_control(const unsigned char *p, size_t bytes)
{
	return (bytes == 1 && (*p < 0x20 || *p == 0x7f)) ||
	       (bytes == 2 && p[0] == 0xc2 && p[1] < 0xa0);
}

/* Length of what stands at the front; *ret_show is false if people get a '?' for it. */
static size_t next_char(const char *text, size_t left, bool *ret_show)
{
	size_t bytes = gx_utf8_char(text, left);

	*ret_show = bytes > 0 && !is_control((const unsigned char *)text, bytes);
	return bytes > 0 ? bytes : 1;
}

void gfs_print_name(FILE *out, const char *name, bool for_people)
{
	size_t left = strlen(name);

	if (!for_people) {
		fwrite(name, 1, left, out);
		return;
	}
	while (left > 0) {
		bool show;
		size_t bytes = next_char(name, left, &show);

		if (show)
			fwrite(name, 1, bytes, out);
		else
			fputc('?', out);
		name += bytes;
		left -= bytes;
	}
}

size_t gfs_name_columns(const char *name)
{
	size_t left = strlen(name), columns = 0;

	while (left > 0) {
		bool show;
		size_t bytes = next_char(name, left, &show);

		name += bytes;
		left -= bytes;
		columns++;
	}
	return columns;
}

void gfs_json_string(FILE *out, const char *text)
{
	size_t left = strlen(text);

	fputc('"', out);
	while (left > 0) {
		size_t bytes = gx_utf8_char(text, left);
		unsigned char c = (unsigned char)*text;

		if (bytes == 0)
			fprintf(out, "\\udc%02x", c);
		else if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\u%04x", c);
		else
			fwrite(text, 1, bytes, out);
		bytes = bytes > 0 ? bytes : 1;
		text += bytes;
		left -= bytes;
	}
	fputc('"', out);
}

/* -- modes, sizes, times ----------------------------------------------------------------------- */

static const struct {
	uint32_t type;
	char letter;
	const char *word;
	const char *text;
} types[] = {
	{S_IFREG, '-', "file", "regular file"},     {S_IFDIR, 'd', "dir", "directory"},
	{S_IFLNK, 'l', "link", "symbolic link"},    {S_IFIFO, 'p', "pipe", "pipe"},
	{S_IFSOCK, 's', "socket", "socket"},        {S_IFBLK, 'b', "block", "block device"},
	{S_IFCHR, 'c', "char", "character device"}, {0, '?', "unknown", "unknown"},
};

static size_t type_index(uint32_t mode)
{
	size_t i = 0;

	while (types[i].type != 0 && types[i].type != (mode & S_IFMT))
		i++;
	return i;
}

const char *gfs_type_text(uint32_t mode)
{
	return types[type_index(mode)].text;
}

const char *gfs_type_word(uint32_t mode)
{
	return types[type_index(mode)].word;
}

void gfs_mode_text(uint32_t mode, char text[11])
{
	static const struct {
		uint32_t bit;
		int place;
		char with_x, without_x;
	} specials[] = {{S_ISUID, 3, 's', 'S'}, {S_ISGID, 6, 's', 'S'}, {S_ISVTX, 9, 't', 'T'}};

	text[0] = types[type_index(mode)].letter;
	for (int i = 0; i < 9; i++)
		text[1 + i] = (mode & (0400u >> i)) ? "rwxrwxrwx"[i] : '-';
	for (size_t i = 0; i < GX_COUNT_OF(specials); i++) {
		char *at = &text[specials[i].place];

		if (mode & specials[i].bit)
			*at = *at == 'x' ? specials[i].with_x : specials[i].without_x;
	}
	text[10] = '\0';
}

void gfs_size_text(uint64_t bytes, char text[16])
{
	const char *units = "KMGTPE";
	uint64_t unit = 1024;
	uint64_t tenths;

	if (bytes < 1024) {
		(void)gx_format(text, 16, "%u", (unsigned)bytes);
		return;
	}
	/* Rounding up may not make it 1024K: that is 1.0M. */
	while (bytes > unit * 1023 && units[1]) {
		unit *= 1024;
		units++;
	}
	/* unit is at most 2^60: eleven times that fits. */
	tenths = bytes / unit * 10 + (bytes % unit * 10 + unit - 1) / unit;
	if (tenths < 100)
		(void)gx_format(text, 16, "%u.%u%c", (unsigned)(tenths / 10),
				(unsigned)(tenths % 10), *units);
	else
		(void)gx_format(text, 16, "%u%c", (unsigned)((tenths + 9) / 10), *units);
}

void gfs_time_short(const struct timespec *ts, int64_t now_ns, char text[32])
{
	const int64_t half_year_sec = 31556952 / 2;
	int64_t age_sec = now_ns / GX_NSEC_PER_SEC - ts->tv_sec;
	bool recent = age_sec < half_year_sec && age_sec > -half_year_sec;
	struct tm tm;

	if (!localtime_r(&ts->tv_sec, &tm) ||
	    strftime(text, 32, recent ? "%b %e %H:%M" : "%b %e  %Y", &tm) == 0)
		(void)gx_format(text, 32, "%lld", (long long)ts->tv_sec);
}

void gfs_time_long(const struct timespec *ts, char text[64])
{
	char date[32], zone[16];
	struct tm tm;

	if (!localtime_r(&ts->tv_sec, &tm) ||
	    strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm) == 0 ||
	    strftime(zone, sizeof(zone), "%z", &tm) == 0)
		(void)gx_format(text, 64, "%lld", (long long)ts->tv_sec);
	else
		(void)gx_format(text, 64, "%s.%09ld %s", date, ts->tv_nsec, zone);
}

/* -- files ------------------------------------------------------------------------------------- */

const char *gfs_owner_text(struct gfs_owners *owners, uint32_t id, bool group)
{
	struct gfs_owner *o = &owners->kept[(id * 2 + group) % GFS_OWNERS_KEPT];
	int r;

	if (o->known && o->id == id && o->group == group)
		return o->text;
	r = group ? gfs_group_name(owners->fs, id, o->text, sizeof(o->text))
		  : gfs_user_name(owners->fs, id, o->text, sizeof(o->text));
	if (r < 0)
		(void)gx_format(o->text, sizeof(o->text), "%u", (unsigned)id);
	o->known = true;
	o->id = id;
	o->group = group;
	return o->text;
}

static void json_time(FILE *out, const char *key, const struct timespec *ts)
{
	char text[40];

	gx_format_time(ts->tv_sec * GX_NSEC_PER_SEC + ts->tv_nsec, true, text);
	fprintf(out, ", \"%s\": \"%s\"", key, text);
}

static void json_owner(FILE *out, struct gfs_owners *owners, const char *key, uint32_t id,
		       bool group)
{
	fprintf(out, ", \"%s\": ", key);
	gfs_json_string(out, gfs_owner_text(owners, id, group));
}

static void json_stat(FILE *out, struct gfs_owners *owners, const struct gfs_stat *st)
{
	fprintf(out,
		", \"mode\": \"%04o\", \"size\": %llu, \"nlink\": %u, \"uid\": %u, \"gid\": %u",
		(unsigned)(st->mode & 07777), (unsigned long long)st->size, (unsigned)st->nlink,
		(unsigned)st->uid, (unsigned)st->gid);
	json_owner(out, owners, "user", st->uid, false);
	json_owner(out, owners, "group", st->gid, true);
	fprintf(out, ", \"ino\": %llu, \"generation\": %llu, \"version\": %llu",
		(unsigned long long)st->ino, (unsigned long long)st->generation,
		(unsigned long long)st->version);
	json_time(out, "atime", &st->atime);
	json_time(out, "mtime", &st->mtime);
	json_time(out, "ctime", &st->ctime);
	json_time(out, "btime", &st->btime);
}

void gfs_json_file(FILE *out, struct gfs_owners *owners, const char *path, uint32_t type,
		   const struct gfs_stat *st, const char *target)
{
	fputs("{\"path\": ", out);
	gfs_json_string(out, path);
	fputs(", \"name\": ", out);
	gfs_json_string(out, gfs_path_last(path));
	fprintf(out, ", \"type\": \"%s\"", gfs_type_word(st ? st->mode : type));
	if (st)
		json_stat(out, owners, st);
	if (target) {
		fputs(", \"target\": ", out);
		gfs_json_string(out, target);
	}
	fputc('}', out);
}
