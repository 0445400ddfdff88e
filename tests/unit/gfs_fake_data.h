/*
 * The other half of gfs_fake.h: a gfd whose storage node is the same memory. A write beyond what
 * metad keeps makes the file an object, under a lease that the last closer gives back; metad's idea
 * of the size follows only when something is flushed. The diary has "data write 0+9000", "data read
 * 0", "data sync", "report 9000". Told to fail "data", "dsync", "dclose".
 */
#ifndef TEST_GFS_FAKE_DATA_H
#define TEST_GFS_FAKE_DATA_H

struct gfd_file {
	struct gfd *gfd;
	uint64_t ino;
};

struct gfd {
	struct gfc *gfc;
	struct gfd_options options; /* pointers are not valid any more */
	char host[64];
	unsigned users[FAKE_NODES];
	bool leased[FAKE_NODES];
	bool dirty[FAKE_NODES]; /* metad's size is old */
	uint64_t size[FAKE_NODES];
	unsigned opens;
	unsigned copies; /* that a file has, as long as it is an object */
};

static struct gfd *fake_data;

static struct fake_node *data_node(const struct gfd_file *file)
{
	return &fake->nodes[file->ino];
}

static uint64_t data_size(const struct gfd_file *file)
{
	return file->gfd->dirty[file->ino] ? file->gfd->size[file->ino] : data_node(file)->size;
}

static void data_report(struct gfd *gfd, uint64_t ino)
{
	if (!gfd->dirty[ino])
		return;
	note("report %llu", (unsigned long long)gfd->size[ino]);
	fake->nodes[ino].size = gfd->size[ino];
	gfd->dirty[ino] = false;
}

static void data_grow(struct gfd_file *file, uint64_t size)
{
	file->gfd->size[file->ino] = size;
	file->gfd->dirty[file->ino] = true;
	file->gfd->leased[file->ino] = true;
	data_node(file)->object = true;
}

int gfd_new(struct gfc *gfc, const struct gfd_options *options, struct gfd **ret_gfd)
{
	fake_must(!fake_data);
	fake_data = calloc(1, sizeof(*fake_data));
	if (!fake_data)
		return -ENOMEM;
	fake_data->gfc = gfc;
	fake_data->options = *options;
	fake_must(gx_strcpy(fake_data->host, sizeof(fake_data->host),
			    options->host ? options->host : "") == 0);
	fake_data->copies = 1;
	*ret_gfd = fake_data;
	return 0;
}

void gfd_free(struct gfd *gfd)
{
	fake_must(gfd->opens == 0);
	free(gfd);
	fake_data = NULL;
}

int gfd_open(struct gfd *gfd, struct gfc_open *open, const struct gfc_attr *attr,
	     struct gfd_file **ret_file)
{
	struct gfd_file *file = calloc(1, sizeof(*file));

	if (!file)
		return -ENOMEM;
	fake_must(attr->ref.ino == open->ino);
	*file = (struct gfd_file){gfd, open->ino};
	gfd->users[open->ino]++;
	gfd->opens++;
	*ret_file = file;
	return 0;
}

int gfd_close(struct gfd_file *file, struct gfc_open *open)
{
	struct gfd *gfd = file->gfd;

	fake_must(open->ino == file->ino);
	data_report(gfd, file->ino);
	if (--gfd->users[file->ino] == 0)
		gfd->leased[file->ino] = false;
	gfd->opens--;
	free(file);
	return told_to_fail("dclose");
}

ssize_t gfd_read(struct gfd_file *file, struct gfc_open *open, void *buf, size_t bytes,
		 uint64_t offset)
{
	const struct fake_node *node = data_node(file);
	uint64_t size = data_size(file);

	if (!node->object)
		return gfc_read(file->gfd->gfc, open, buf, bytes, offset, NULL);
	note("data read %llu", (unsigned long long)offset);
	if (offset >= size)
		return 0;
	bytes = GX_MIN(bytes, size - offset);
	memcpy(buf, node->data + offset, bytes);
	return (ssize_t)bytes;
}

int gfd_write(struct gfd_file *file, struct gfc_open *open, const void *buf, size_t bytes,
	      uint64_t offset, bool append, uint64_t *ret_offset)
{
	struct gfc_write write = {.data = buf, .bytes = bytes, .offset = offset, .append = append};
	struct gfc_attr attr;
	int r = -EFBIG;

	if (!data_node(file)->object)
		r = gfc_write(file->gfd->gfc, open, &write, ret_offset, &attr);
	if (r != -EFBIG)
		return r;
	offset = append ? data_size(file) : offset;
	note("data write %s%llu+%zu", append ? "end " : "", (unsigned long long)offset, bytes);
	r = told_to_fail("data");
	if (r < 0)
		return r;
	if (offset + bytes > FAKE_OBJECT_BYTES)
		return -ENOSPC;
	memcpy(data_node(file)->data + offset, buf, bytes);
	data_grow(file, GX_MAX(data_size(file), offset + bytes));
	*ret_offset = offset;
	return 0;
}

int gfd_truncate(struct gfd_file *file, struct gfc_open *open, uint64_t size)
{
	struct gfc_change change = {.mask = GFC_SET_SIZE, .size = size};
	struct gfc_attr attr;
	uint64_t old = data_size(file);
	int r = -EFBIG;

	if (!data_node(file)->object)
		r = gfc_setattr(file->gfd->gfc, gfc_open_ref(open), open, &change, &attr);
	if (r != -EFBIG)
		return r;
	note("data truncate %llu", (unsigned long long)size);
	if (size > FAKE_OBJECT_BYTES)
		return -ENOSPC;
	if (size < old)
		memset(data_node(file)->data + size, 0, old - size);
	data_grow(file, size);
	return 0;
}

int gfd_write_file(struct gfd_file *file, struct gfc_open *open, int fd, uint64_t from,
		   size_t bytes, uint64_t offset)
{
	(void)file, (void)open, (void)fd, (void)from, (void)bytes, (void)offset;
	return -EOPNOTSUPP;
}

int gfd_punch(struct gfd_file *file, struct gfc_open *open, uint64_t offset, uint64_t bytes)
{
	(void)open;
	note("data punch %llu+%llu", (unsigned long long)offset, (unsigned long long)bytes);
	fake_must(offset + bytes <= FAKE_OBJECT_BYTES);
	memset(data_node(file)->data + offset, 0, bytes);
	return 0;
}

int gfd_allocate(struct gfd_file *file, struct gfc_open *open, uint64_t offset, uint64_t bytes,
		 bool keep_size)
{
	(void)open;
	note("data allocate %llu+%llu%s", (unsigned long long)offset, (unsigned long long)bytes,
	     keep_size ? " keep" : "");
	if (!keep_size)
		data_grow(file, GX_MAX(data_size(file), offset + bytes));
	return 0;
}

/* Blocks of zeros are holes. */
int gfd_seek(struct gfd_file *file, struct gfc_open *open, uint64_t offset, bool hole,
	     uint64_t *ret_offset)
{
	static const unsigned char zeros[GFD_BLOCK_BYTES];
	uint64_t size = data_size(file);

	(void)open;
	if (offset >= size)
		return -ENXIO;
	while (offset < size) {
		uint64_t block = offset / GFD_BLOCK_BYTES * GFD_BLOCK_BYTES;

		if ((memcmp(data_node(file)->data + block, zeros, GFD_BLOCK_BYTES) == 0) == hole)
			break;
		offset = block + GFD_BLOCK_BYTES;
	}
	if (offset >= size && !hole)
		return -ENXIO;
	*ret_offset = GX_MIN(offset, size);
	return 0;
}

int gfd_flush(struct gfd_file *file, struct gfc_open *open)
{
	(void)open;
	data_report(file->gfd, file->ino);
	return 0;
}

int gfd_sync(struct gfd_file *file, struct gfc_open *open)
{
	int r = told_to_fail("dsync");

	(void)open;
	if (data_node(file)->object) {
		note("data sync");
		data_report(file->gfd, file->ino);
	}
	return r < 0 ? r : gfc_sync(file->gfd->gfc);
}

int gfd_getattr(struct gfd_file *file, struct gfc_open *open, struct gfc_attr *ret_attr)
{
	int r = gfc_open_getattr(file->gfd->gfc, open, ret_attr);

	if (r == 0)
		gfd_correct_attr(file->gfd, ret_attr);
	return r;
}

bool gfd_correct_attr(struct gfd *gfd, struct gfc_attr *attr)
{
	if (!gfd->dirty[attr->ref.ino])
		return false;
	attr->size = gfd->size[attr->ref.ino];
	return true;
}

int gfd_flush_ino(struct gfd *gfd, uint64_t ino)
{
	for (uint64_t i = 1; i < FAKE_NODES; i++)
		if (ino == 0 || ino == i)
			data_report(gfd, i);
	return 0;
}

unsigned gfd_lease_of(struct gfd *gfd, uint64_t ino, bool *ret_write, uint64_t *ret_generation)
{
	if (ret_generation)
		*ret_generation = 7;
	*ret_write = gfd->leased[ino];
	return gfd->leased[ino] ? 2 : 0;
}

ssize_t gfd_where(struct gfd *gfd, struct gfc_ref ref, bool wait, struct gfd_place *ret_places,
		  size_t max, unsigned *ret_wanted)
{
	uint64_t wanted = 1;
	unsigned count = node_of(ref)->object ? gfd->copies : 0;

	(void)wait;
	note("where");
	if (fake->xattr.bytes == 1)
		wanted = (uint64_t)(fake->xattr.data[0] - '0');
	for (unsigned i = 0; i < count && i < max; i++) {
		ret_places[i] = (struct gfd_place){.up = true, .current = true, .generation = 7};
		snprintf(ret_places[i].node, sizeof(ret_places[i].node), "fsd%u", i + 1);
		snprintf(ret_places[i].host, sizeof(ret_places[i].host), "host%u", i + 1);
	}
	*ret_wanted = (unsigned)wanted;
	/* The next copy is there when it is asked for next. */
	gfd->copies += gfd->copies < wanted;
	return (ssize_t)count;
}

#endif
