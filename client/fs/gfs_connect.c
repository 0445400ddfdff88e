#include "client/fs/gfs_conf.h"
#include "client/fs/gfs_impl.h"

#define TEXT_PATH_MAX 256u /* bytes of a path in gfs_error() */

/* -- errors ---------------------------------------------------------------------------------- */

/* An errno that says it all; with others (metad away, something lost) the reason is worth more. */
static bool speaks_for_itself(int err)
{
	switch (-err) {
	case EBADF:
	case EBUSY:
	case EEXIST:
	case EFBIG:
	case EINVAL:
	case EISDIR:
	case ELOOP:
	case EMLINK:
	case ENAMETOOLONG:
	case ENODATA:
	case ENOENT:
	case ENOMEM:
	case ENOTDIR:
	case ENOTEMPTY:
	case EPERM:
	case ERANGE:
	case EXDEV:
		return true;
	default:
		return false;
	}
}

ssize_t gfs_result(ssize_t result, const char *path)
{
	char why[GX_LOG_LINE_MAX];
	int err = (int)result;
	size_t bytes;
	const char *cut = "";

	if (result >= 0)
		return result;
	/* The end of a long path tells more than its beginning, and the reason must fit. */
	bytes = strlen(path);
	if (bytes > TEXT_PATH_MAX) {
		path += bytes - TEXT_PATH_MAX;
		cut = "...";
	}
	/* Copied: gfc_fail() writes where gfc_error() points. */
	GX_IGNORE(gx_format(why, sizeof(why), "%s", gfc_error()));
	if (speaks_for_itself(err) || why[0] == '\0')
		return gfc_fail(err, "%s%s: %s", cut, path, gx_strerror(err));
	return gfc_fail(err, "%s%s: %s", cut, path, why);
}

ssize_t gfs_path_result(ssize_t result, const char *path)
{
	return gfs_result(result == -ESTALE ? -ENOENT : result, path);
}

const char *gfs_error(void)
{
	return gfc_error();
}

/* Several problems of a file become one line: the first, which is the cause as a rule. */
static int fail_with(int err, struct gx_buf *errors)
{
	const char *text = errors->bytes > 0 ? gx_buf_text(errors) : NULL;

	if (!text)
		return gfc_fail(err, "cannot connect: %s", gx_strerror(err));
	return gfc_fail(err, "%.*s", (int)strcspn(text, "\n"), text);
}

/* -- life ------------------------------------------------------------------------------------- */

/* Both halves, or neither. */
static int connect_halves(const struct gfc_options *gfc_options,
			  const struct gfd_options *gfd_options, struct gfs *fs)
{
	int r = gfc_new(gfc_options, &fs->gfc);

	if (r < 0)
		return r;
	r = gfd_new(fs->gfc, gfd_options, &fs->gfd);
	if (r < 0)
		GX_IGNORE(gfc_free(fs->gfc)); /* nothing was done yet that could be lost */
	return r;
}

int gfs_connect_with(const struct gfc_options *gfc_options, const struct gfd_options *gfd_options,
		     struct gfs **ret_fs)
{
	struct gfs *fs = calloc(1, sizeof(*fs));
	int r;

	if (!fs)
		return gfc_fail(-ENOMEM, "cannot connect: %s", gx_strerror(-ENOMEM));
	r = connect_halves(gfc_options, gfd_options, fs);
	if (r < 0) {
		free(fs);
		return r;
	}
	fs->env = gfc_env(fs->gfc);
	r = gx_env_mutex_init(fs->env, &fs->lock);
	if (r < 0) {
		gfd_free(fs->gfd);
		GX_IGNORE(gfc_free(fs->gfc)); /* nothing was done yet that could be lost */
		free(fs);
		return gfc_fail(r, "cannot connect: %s", gx_strerror(r));
	}
	*ret_fs = fs;
	return 0;
}

/* What the connection says begins with its address, as a rule. */
static int connect_result(int err, const char *metad)
{
	size_t bytes = strlen(metad);

	if (strncmp(gfc_error(), metad, bytes) == 0 && gfc_error()[bytes] == ':')
		return err;
	return (int)gfs_result(err, metad);
}

int gfs_connect(const struct gfs_options *options, struct gfs **ret_fs)
{
	struct gx_env *env = gx_env_posix();
	struct gfc_options gfc_options;
	struct gfd_options gfd_options;
	struct gfs_conf conf;
	struct gx_buf errors;
	struct rpc_key key = {0};
	int r;

	gx_buf_init(&errors, GX_CONF_FILE_MAX);
	r = gfs_conf_load(env, options, &conf, &errors);
	if (r == 0)
		r = gfs_conf_connect_options(env, &conf, &key, &gfc_options, &errors);
	if (r < 0) {
		r = fail_with(r, &errors);
	} else {
		if (options && options->program)
			gfc_options.program = options->program;
		gfs_conf_data_options(&conf, &gfd_options);
		r = gfs_connect_with(&gfc_options, &gfd_options, ret_fs);
		if (r < 0)
			r = connect_result(r, conf.metad);
	}
	rpc_key_clear(&key);
	gfs_conf_fini(&conf);
	gx_buf_fini(&errors);
	return r;
}

int gfs_disconnect(struct gfs *fs)
{
	int closed, freed;

	if (!fs)
		return 0;
	closed = gfs_files_close(fs);
	gx_env_mutex_fini(fs->env, &fs->lock);
	gfd_free(fs->gfd);
	freed = gfc_free(fs->gfc);
	free(fs);
	return closed < 0 ? closed : freed;
}

int gfs_sync(struct gfs *fs)
{
	int flushed = gfs_files_sync(fs);
	int r = gfc_sync(fs->gfc);

	return flushed < 0 ? flushed : r;
}
