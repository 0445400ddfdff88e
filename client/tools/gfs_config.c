/* What tools/generate asks: the sample configuration of clients and the list for its manual. */
#include "client/fs/gfs_conf.h"
#include "client/tools/gfs_tool.h"

bool gfs_config_print(const char *option, int *ret_code)
{
	struct gx_buf out;
	int r;

	gx_buf_init(&out, GX_CONF_FILE_MAX);
	if (strcmp(option, "--sample-config") == 0)
		r = gx_conf_sample(&gfs_conf_table, &out);
	else if (strcmp(option, "--mdoc-config") == 0)
		r = gx_conf_mdoc(&gfs_conf_table, &out);
	else
		return false;
	if (r == 0)
		fwrite(out.data, 1, out.bytes, stdout);
	*ret_code = r < 0 || fflush(stdout) != 0 ? GFS_EXIT_FAILED : GFS_EXIT_OK;
	gx_buf_fini(&out);
	return true;
}
