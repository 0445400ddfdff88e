#include "common/gx_conf.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define DROPIN_SUFFIX ".conf"

struct names {
	char *names[GX_CONF_DROPINS_MAX];
	size_t count;
};

static void names_fini(struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->names[i]);
	names->count = 0;
}

/* First failure wins; a -ENOMEM for the message does not hide what it was about. */
static int report(struct gx_buf *errors, const char *path, const char *what, int err)
{
	(void)!gx_buf_append_format(errors, "%s: %s%s%s\n", path, what, what[0] ? ": " : "",
				    gx_strerror(err));
	return err;
}

static int read_file(struct gx_env *env, int fd, struct gx_buf *text)
{
	ssize_t n;
	int r = gx_buf_reserve(text, text->bytes_max);

	if (r < 0)
		return r;
	n = gx_env_pread(env, fd, text->data, text->bytes_max, 0);
	if (n < 0)
		return (int)n;
	/* The buffer is one byte larger than a file may be, so a full one is too much. */
	if ((size_t)n == text->bytes_max)
		return -EFBIG;
	text->bytes = (size_t)n;
	return 0;
}

static int load_one(const struct gx_conf_table *table, void *config, struct gx_env *env,
		    const char *path, bool must_exist, struct gx_buf *errors)
{
	struct gx_buf text;
	int fd = gx_env_open(env, path, O_RDONLY | O_NOCTTY, 0);
	int r;

	if (fd == -ENOENT && !must_exist)
		return 0;
	if (fd < 0)
		return report(errors, path, "", fd);
	gx_buf_init(&text, GX_CONF_FILE_MAX + 1);
	r = read_file(env, fd, &text);
	if (r < 0)
		r = report(errors, path, "", r);
	else
		r = gx_conf_parse(table, config, path, (const char *)text.data, text.bytes, errors);
	gx_buf_fini(&text);
	(void)gx_env_close(env, fd); /* only read from */
	return r;
}

static int collect_dropin(void *arg, const char *name)
{
	struct names *names = arg;
	size_t bytes = strlen(name), suffix = strlen(DROPIN_SUFFIX);

	if (name[0] == '.' || bytes <= suffix || strcmp(name + bytes - suffix, DROPIN_SUFFIX) != 0)
		return 0;
	if (names->count == GX_CONF_DROPINS_MAX)
		return -E2BIG;
	names->names[names->count] = strdup(name);
	if (names->names[names->count] == NULL)
		return -ENOMEM;
	names->count++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int load_dropins(const struct gx_conf_table *table, void *config, struct gx_env *env,
			const char *dir, struct gx_buf *errors)
{
	GX_CLEANUP(names_fini) struct names names = {.count = 0};
	int result = 0;
	int r = gx_env_list_dir(env, dir, collect_dropin, &names);

	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	if (r < 0)
		return report(errors, dir, "cannot list drop-ins", r);
	if (names.count > 0)
		qsort(names.names, names.count, sizeof(names.names[0]), by_name);
	for (size_t i = 0; i < names.count && result != -ENOMEM; i++) {
		char path[GX_PATH_MAX];

		r = gx_format(path, sizeof(path), "%s/%s", dir, names.names[i]);
		if (r < 0)
			r = report(errors, dir, names.names[i], -ENAMETOOLONG);
		else
			r = load_one(table, config, env, path, true, errors);
		result = result < 0 ? result : r;
	}
	return result;
}

int gx_conf_load(const struct gx_conf_table *table, void *config, struct gx_env *env,
		 const char *path, bool must_exist, struct gx_buf *errors)
{
	char dir[GX_PATH_MAX];
	int result, r;

	if (gx_format(dir, sizeof(dir), "%s.d", path) < 0)
		return report(errors, path, "", -ENAMETOOLONG);
	result = load_one(table, config, env, path, must_exist, errors);
	if (result == -ENOMEM)
		return result;
	r = load_dropins(table, config, env, dir, errors);
	return result < 0 ? result : r;
}

int gx_conf_check_secret(struct gx_env *env, const char *path, struct gx_buf *errors)
{
	const char *wrong = NULL;
	struct stat st;
	int r = gx_env_stat(env, path, &st);

	if (r < 0)
		return errors == NULL ? r : report(errors, path, "", r);
	if (!S_ISREG(st.st_mode))
		wrong = "a secret must be in a regular file";
	else if (st.st_uid != 0 && st.st_uid != geteuid())
		wrong = "a secret must be owned by this user or root";
	else if ((st.st_mode & 077) != 0)
		wrong = "others can reach this secret, run chmod 600 on it";
	if (wrong == NULL)
		return 0;
	if (errors != NULL)
		(void)!gx_buf_append_format(errors, "%s: %s\n", path, wrong);
	return -EPERM;
}
