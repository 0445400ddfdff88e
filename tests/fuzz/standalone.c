/*
 * Runs a fuzz target over files, without a fuzzer: each argument is a file or a directory of
 * files. This is how the corpus is part of `make check` with any compiler.
 */
#include "common/gx_base.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_MAX (64u * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int run_fd(int fd, const char *path)
{
	struct stat st;
	GX_AUTOFREE uint8_t *data = NULL;
	size_t bytes = 0;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > INPUT_MAX) {
		fprintf(stderr, "%s: not a regular file of a usable size\n", path);
		return -EINVAL;
	}
	/* Exactly the size of the input, so that a sanitizer sees every byte read past it. */
	data = malloc(st.st_size > 0 ? (size_t)st.st_size : 1);
	if (data == NULL)
		return -ENOMEM;
	while (bytes < (size_t)st.st_size) {
		ssize_t n = read(fd, data + bytes, (size_t)st.st_size - bytes);

		if (n <= 0) {
			fprintf(stderr, "%s: cannot read\n", path);
			return -EIO;
		}
		bytes += (size_t)n;
	}
	(void)LLVMFuzzerTestOneInput(data, bytes);
	return 0;
}

static int run_file(const char *path, unsigned *passed)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0) {
		r = gx_errno();
		fprintf(stderr, "%s: %s\n", path, gx_strerror(r));
		return r;
	}
	r = run_fd(fd, path);
	close(fd);
	if (r == 0)
		(*passed)++;
	return r;
}

static int run_dir(DIR *dir, const char *path, unsigned *passed)
{
	const struct dirent *entry;
	int result = 0;

	while ((entry = readdir(dir)) != NULL) {
		char file[4096];
		int r;

		if (entry->d_name[0] == '.')
			continue;
		if (gx_format(file, sizeof(file), "%s/%s", path, entry->d_name) < 0)
			r = -ENAMETOOLONG;
		else
			r = run_file(file, passed);
		result = result < 0 ? result : r;
	}
	return result;
}

int main(int argc, char **argv)
{
	unsigned passed = 0, failed = 0;

	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		int r = dir == NULL ? run_file(argv[i], &passed) : run_dir(dir, argv[i], &passed);

		if (dir != NULL)
			closedir(dir);
		failed += r < 0;
	}
	if (passed + failed == 0) {
		fprintf(stderr, "%s: no input files\n", argv[0]);
		failed = 1;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed == 0 ? 0 : 1;
}
