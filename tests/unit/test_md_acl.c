/*
 * Access control lists: their bytes; decisions over a generated table, as acl(5) words them and, as
 * root on a filesystem that has lists, as the kernel takes them; and all of it through metad.
 */
#include "metad/md_acl.h"
#include "common/gx_num.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

/* "u:7 u1001:6 g:5 g50:4 m:6 o:1" */
static struct md_acl acl_of(const char *text)
{
	struct md_acl acl = {0};

	while (*text) {
		struct md_acl_entry *e = &acl.entries[acl.count++];
		bool named = text[1] != ':';

		e->tag = *text == 'u'   ? (named ? MD_ACL_USER : MD_ACL_USER_OBJ)
			 : *text == 'g' ? (named ? MD_ACL_GROUP : MD_ACL_GROUP_OBJ)
			 : *text == 'm' ? MD_ACL_MASK
					: MD_ACL_OTHER;
		for (text++; *text != ':'; text++)
			e->id = e->id * 10 + (uint32_t)(*text - '0');
		text++;
		e->perm = (uint16_t)(*text++ - '0');
		text += *text == ' ';
	}
	return acl;
}

static size_t bytes_of(const char *text, unsigned char bytes[MD_ACL_BYTES_MAX])
{
	struct md_acl acl = acl_of(text);

	return md_acl_encode(&acl, bytes);
}

static const char *text_of(const void *bytes, size_t count)
{
	static char text[512];
	struct md_acl acl;
	size_t used = 0;

	ck_assert_int_eq(md_acl_decode(bytes, count, &acl), 0);
	text[0] = '\0';
	for (unsigned i = 0; i < acl.count; i++) {
		const struct md_acl_entry *e = &acl.entries[i];
		bool named = e->tag == MD_ACL_USER || e->tag == MD_ACL_GROUP;
		const char *letter = e->tag & (MD_ACL_USER_OBJ | MD_ACL_USER)     ? "u"
				     : e->tag & (MD_ACL_GROUP_OBJ | MD_ACL_GROUP) ? "g"
				     : e->tag == MD_ACL_MASK                      ? "m"
										  : "o";

		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? " " : "",
					 letter);
		if (named)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%u", e->id);
		used += (size_t)snprintf(text + used, sizeof(text) - used, ":%u", e->perm);
	}
	return text;
}

START_TEST(bytes_are_those_of_linux)
{
	static const unsigned char expected[] = {
		2, 0,    0,    0,    1,    0,    6,  0, 0xff, 0xff, 0xff, 0xff, 2,    0,   7,
		0, 0xe9, 3,    0,    0,    4,    0,  4, 0,    0xff, 0xff, 0xff, 0xff, 16,  0,
		5, 0,    0xff, 0xff, 0xff, 0xff, 32, 0, 1,    0,    0xff, 0xff, 0xff, 0xff};
	unsigned char bytes[MD_ACL_BYTES_MAX];
	size_t count = bytes_of("u:6 u1001:7 g:4 m:5 o:1", bytes);

	ck_assert_uint_eq(count, sizeof(expected));
	ck_assert_mem_eq(bytes, expected, count);
	ck_assert_str_eq(text_of(bytes, count), "u:6 u1001:7 g:4 m:5 o:1");
}
END_TEST

START_TEST(what_is_no_list_is_refused)
{
	static const char *const bad[] = {
		"u:6 g:4",
		"g:4 o:0",
		"u:6 o:0",
		"u:6 u1:7 g:4 o:0",
		"u:6 g:4 g5:1 o:0",
		"g:4 u:6 o:0",
		"u:6 u:6 g:4 o:0",
		"u:6 g:4 o:0 m:7",
		"u:6 u1:7 u1:6 g:4 m:7 o:0",
		"u:8 g:4 o:0",
		"u:6 g:4 g4294967295:1 m:7 o:0",
	};
	unsigned char bytes[MD_ACL_BYTES_MAX + 8];
	struct md_acl acl;
	size_t count;

	for (size_t i = 0; i < GX_COUNT_OF(bad); i++) {
		count = bytes_of(bad[i], bytes);
		ck_assert_msg(md_acl_decode(bytes, count, &acl) == -EINVAL, "%s", bad[i]);
	}
	count = bytes_of("u:6 g:4 o:0", bytes);
	ck_assert_int_eq(md_acl_decode(bytes, count - 1, &acl), -EINVAL);
	ck_assert_int_eq(md_acl_decode(bytes, 3, &acl), -EINVAL);
	bytes[4] = 64;
	ck_assert_int_eq(md_acl_decode(bytes, count, &acl), -EINVAL);
	bytes[0] = 1;
	ck_assert_int_eq(md_acl_decode(bytes, count, &acl), -EOPNOTSUPP);
	bytes[0] = 2;
	ck_assert_int_eq(md_acl_decode(bytes, sizeof(bytes) - sizeof(bytes) % 8 + 4, &acl), -E2BIG);
	ck_assert_int_eq(md_acl_decode(bytes, 0, &acl), 0);
	ck_assert_uint_eq(acl.count, 0);
	ck_assert_int_eq(md_acl_decode(bytes, 4, &acl), 0);
	ck_assert_uint_eq(acl.count, 0);
}
END_TEST

/* -- a table of decisions ------------------------------------------------------------------------
 */

#define OWNER 1500u
#define NAMED 1501u
#define STRANGER 1502u
#define GROUP 1600u
#define NAMED_GROUP 1601u

/* The words of acl(5), "ACCESS CHECK ALGORITHM", one after the other. */
static bool model(const struct md_acl *acl, uint32_t uid, const uint32_t *groups, unsigned count,
		  unsigned want)
{
	unsigned user_obj = 0, group_obj = 0, mask = 7, other = 0;
	bool member = false, granted = false;

	for (unsigned i = 0; i < acl->count; i++) {
		const struct md_acl_entry *e = &acl->entries[i];

		user_obj = e->tag == MD_ACL_USER_OBJ ? e->perm : user_obj;
		group_obj = e->tag == MD_ACL_GROUP_OBJ ? e->perm : group_obj;
		mask = e->tag == MD_ACL_MASK ? e->perm : mask;
		other = e->tag == MD_ACL_OTHER ? e->perm : other;
	}
	/* 1. the owner; 2. a named user */
	if (uid == OWNER)
		return (user_obj & want) == want;
	for (unsigned i = 0; i < acl->count; i++)
		if (acl->entries[i].tag == MD_ACL_USER && acl->entries[i].id == uid)
			return (acl->entries[i].perm & want) == want && (mask & want) == want;
	/* 3. any of his groups that has the permissions; 4. one that has not; 5. the others */
	for (unsigned g = 0; g < count; g++) {
		if (groups[g] == GROUP) {
			member = true;
			granted = granted || (group_obj & want) == want;
		}
		for (unsigned i = 0; i < acl->count; i++) {
			if (acl->entries[i].tag != MD_ACL_GROUP || acl->entries[i].id != groups[g])
				continue;
			member = true;
			granted = granted || (acl->entries[i].perm & want) == want;
		}
	}
	if (member)
		return granted && (mask & want) == want;
	return (other & want) == want;
}

struct person {
	uint32_t uid;
	unsigned count;
	uint32_t groups[2]; /* the first is his first group */
};
static const struct person people[] = {
	{OWNER, 1, {1700}},
	{OWNER, 2, {GROUP, NAMED_GROUP}},
	{NAMED, 1, {1700}},
	{NAMED, 2, {1700, GROUP}},
	{STRANGER, 1, {1700}},
	{STRANGER, 1, {GROUP}},
	{STRANGER, 1, {NAMED_GROUP}},
	{STRANGER, 2, {1700, NAMED_GROUP}},
	{STRANGER, 2, {GROUP, NAMED_GROUP}},
};

/* One of many lists, by number. */
static struct md_acl table_acl(unsigned n)
{
	static const unsigned perms[] = {0, 1, 2, 4, 5, 6, 7, 3};
	char text[96];

	snprintf(text, sizeof(text), "u:%u u%u:%u g:%u g%u:%u m:%u o:%u", perms[n % 8], NAMED,
		 perms[n / 8 % 8], perms[(n / 64 + n) % 8], NAMED_GROUP,
		 perms[(n / 512 + 3 * n) % 8], perms[(n / 7) % 8], perms[(n / 3) % 8]);
	return acl_of(text);
}
#define TABLE 2048u

START_TEST(decisions_are_those_of_the_manual)
{
	unsigned yes = 0, no = 0;

	for (unsigned n = 0; n < TABLE; n++) {
		struct md_acl acl = table_acl(n);

		for (size_t p = 0; p < GX_COUNT_OF(people); p++) {
			const struct person *who = &people[p];
			struct md_cred cred = {.uid = who->uid,
					       .gid = who->groups[0],
					       .group_count = who->count - 1,
					       .groups = who->groups + 1};

			for (unsigned want = 1; want <= 7; want++) {
				bool expected =
					model(&acl, who->uid, who->groups, who->count, want);

				if (md_acl_allows(&acl, OWNER, GROUP, &cred, want) != expected)
					ck_abort_msg("list %u, person %zu, want %u", n, p, want);
				yes += expected;
				no += !expected;
			}
		}
	}
	ck_assert_uint_gt(yes, 10000);
	ck_assert_uint_gt(no, 10000);
}
END_TEST

/* In a child that is this person: what access(2) says of the file, a bit for each wanted set. */
static unsigned kernel_says(const char *path, const struct person *who)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		unsigned bits = 0;
		gid_t groups[2] = {who->groups[0], who->groups[1]};

		if (setgroups(who->count, groups) < 0 || setgid(who->groups[0]) < 0 ||
		    setuid(who->uid) < 0)
			_exit(0);
		for (int want = 1; want <= 7; want++)
			bits |= access(path, want) == 0 ? 1u << want : 0;
		_exit((int)(bits | 1));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) & 1));
	return (unsigned)WEXITSTATUS(status);
}

START_TEST(decisions_are_those_of_the_kernel)
{
	char dir[] = "/tmp/aclXXXXXX", path[64];
	unsigned char bytes[MD_ACL_BYTES_MAX];
	unsigned compared = 0;
	int fd;

	if (geteuid() != 0) {
		printf("not root: not compared with the kernel\n");
		return;
	}
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chmod(dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/f", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fchown(fd, OWNER, GROUP), 0);
	for (unsigned n = 1; n < TABLE; n += 37) {
		struct md_acl acl = table_acl(n);
		size_t count = md_acl_encode(&acl, bytes);
		uint32_t mode;

		ck_assert(md_acl_mode(&acl, &mode));
		/* With an empty mask Linux asks no list at all and takes others' bits; acl(5) says
		 * no. */
		if ((mode & 070) == 0)
			continue;
		if (fsetxattr(fd, ACCESS, bytes, count, 0) < 0) {
			ck_assert_int_eq(errno, EOPNOTSUPP);
			printf("no lists on this filesystem: not compared with the kernel\n");
			break;
		}
		for (size_t p = 0; p < GX_COUNT_OF(people); p++) {
			unsigned says = kernel_says(path, &people[p]);
			struct md_cred cred = {.uid = people[p].uid,
					       .gid = people[p].groups[0],
					       .group_count = people[p].count - 1,
					       .groups = people[p].groups + 1};

			for (unsigned want = 1; want <= 7; want++, compared++)
				if (md_acl_allows(&acl, OWNER, GROUP, &cred, want) !=
				    (says >> want & 1))
					ck_abort_msg("list %u, person %zu, want %u", n, p, want);
		}
	}
	printf("%u decisions compared with the kernel\n", compared);
	close(fd);
	unlink(path);
	rmdir(dir);
}
END_TEST

START_TEST(inheritance_takes_from_both)
{
	static const struct {
		const char *deflt;
		uint32_t mode;
		const char *access; /* "": the mode says it all */
		uint32_t result;
	} rows[] = {
		{"u:7 g:5 o:5", 0666, "", 0644},
		{"u:7 g:7 o:7", 0640, "", 0640},
		{"u:7 u9:7 g:5 m:7 o:5", 0666, "u:6 u9:7 g:5 m:6 o:4", 0664},
		{"u:7 u9:7 g:5 m:5 o:0", 0777, "u:7 u9:7 g:5 m:5 o:0", 0750},
		{"u:7 g:7 m:7 o:0", 0600, "u:6 g:7 m:0 o:0", 0600},
	};

	for (size_t i = 0; i < GX_COUNT_OF(rows); i++) {
		struct md_acl acl = acl_of(rows[i].deflt);
		unsigned char bytes[MD_ACL_BYTES_MAX];
		uint32_t mode = rows[i].mode;
		bool has = md_acl_inherit(&acl, &mode);

		ck_assert_uint_eq(mode, rows[i].result);
		ck_assert_int_eq(has, rows[i].access[0] != '\0');
		if (has)
			ck_assert_str_eq(text_of(bytes, md_acl_encode(&acl, bytes)),
					 rows[i].access);
	}
}
END_TEST

/* -- through metad ------------------------------------------------------------------------------
 */

static struct meta_fixture *fixture;
static struct gfc *alice, *bob, *carol;
static struct gfc_attr dir;

static void setup(void)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;

	options.root_mode = 0777;
	fixture = meta_fixture_start(&options);
	alice = meta_fixture_gfc(fixture, META_ALICE, 1 << 20);
	bob = meta_fixture_gfc(fixture, META_BOB, 1 << 20);
	carol = meta_fixture_gfc(fixture, META_CAROL, 0);
	ck_assert_int_eq(gfc_make(alice, GFC_ROOT, "d", S_IFDIR | 0755, 0, NULL, &dir), 0);
}

static void teardown(void)
{
	ck_assert_int_eq(gfc_free(alice), 0);
	ck_assert_int_eq(gfc_free(bob), 0);
	ck_assert_int_eq(gfc_free(carol), 0);
	meta_fixture_check(fixture);
	meta_fixture_stop(fixture);
}

static int set_acl(struct gfc *gfc, struct gfc_ref ref, const char *name, const char *text)
{
	unsigned char bytes[MD_ACL_BYTES_MAX];

	return gfc_setxattr(gfc, ref, name, bytes, bytes_of(text, bytes), 0);
}

static const char *get_acl(struct gfc *gfc, struct gfc_ref ref, const char *name)
{
	const char *text = "none";
	struct gx_buf buf;
	int r;

	gx_buf_init(&buf, 65536);
	r = gfc_getxattr(gfc, ref, name, &buf);
	if (r == 0)
		text = text_of(buf.data, buf.bytes);
	else
		ck_assert_int_eq(r, -ENODATA);
	gx_buf_fini(&buf);
	return text;
}

static int can_open(struct gfc *gfc, struct gfc_ref ref, unsigned flags)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	int r = gfc_open(gfc, ref, NULL, flags, 0, &attr, &open);

	return r < 0 ? r : gfc_close(gfc, open);
}

static struct gfc_attr make_file(struct gfc *gfc, const char *name, uint32_t mode, uint32_t umask)
{
	struct gfc_open *open;
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_open_masked(gfc, dir.ref, name, GFC_OPEN_WRITE | GFC_OPEN_CREATE, mode,
					 umask, &attr, &open),
			 0);
	ck_assert_int_eq(gfc_close(gfc, open), 0);
	return attr;
}

START_TEST(a_list_decides_and_the_mode_mirrors_it)
{
	struct gfc_attr file = make_file(alice, "f", 0600, 0), attr;
	struct gfc_change change = {.mask = GFC_SET_MODE, .mode = 0640};
	struct gx_buf names;

	ck_assert_int_eq(can_open(bob, file.ref, GFC_OPEN_READ), -EACCES);
	ck_assert_int_eq(set_acl(bob, file.ref, ACCESS, "u:6 u1001:6 g:0 m:6 o:0"), -EPERM);
	ck_assert_int_eq(set_acl(alice, file.ref, ACCESS, "u:6 u1001:6 g:0 g50:4 m:6 o:0"), 0);
	ck_assert_int_eq(gfc_getattr(bob, file.ref, &attr), 0);
	ck_assert_uint_eq(attr.mode, S_IFREG | 0660);
	ck_assert_int_eq(can_open(bob, file.ref, GFC_OPEN_READ | GFC_OPEN_WRITE), 0);
	ck_assert_int_eq(can_open(carol, file.ref, GFC_OPEN_READ), 0);
	ck_assert_int_eq(can_open(carol, file.ref, GFC_OPEN_WRITE), -EACCES);
	/* chmod changes the mask. */
	ck_assert_int_eq(gfc_setattr(alice, file.ref, NULL, &change, &attr), 0);
	ck_assert_str_eq(get_acl(bob, file.ref, ACCESS), "u:6 u1001:6 g:0 g50:4 m:4 o:0");
	ck_assert_int_eq(can_open(bob, file.ref, GFC_OPEN_WRITE), -EACCES);
	ck_assert_int_eq(can_open(bob, file.ref, GFC_OPEN_READ), 0);
	gx_buf_init(&names, 4096);
	ck_assert_int_eq(gfc_listxattr(carol, file.ref, &names), 0);
	ck_assert_str_eq((char *)names.data, ACCESS);
	gx_buf_fini(&names);
	/* One that says no more than a mode is none. */
	ck_assert_int_eq(set_acl(alice, file.ref, ACCESS, "u:6 g:4 o:4"), 0);
	ck_assert_str_eq(get_acl(alice, file.ref, ACCESS), "none");
	ck_assert_int_eq(gfc_getattr(alice, file.ref, &attr), 0);
	ck_assert_uint_eq(attr.mode, S_IFREG | 0644);
	ck_assert_int_eq(set_acl(alice, file.ref, ACCESS, "u:6 u1001:0 g:4 m:4 o:4"), 0);
	ck_assert_int_eq(can_open(bob, file.ref, GFC_OPEN_READ), -EACCES);
	ck_assert_int_eq(gfc_setxattr(alice, file.ref, ACCESS, NULL, 0, 4), 0);
	ck_assert_str_eq(get_acl(alice, file.ref, ACCESS), "none");
	ck_assert_int_eq(can_open(bob, file.ref, GFC_OPEN_READ), 0);
	/* What cannot be. */
	ck_assert_int_eq(set_acl(alice, file.ref, DEFAULT, "u:6 g:4 o:4"), -EACCES);
	ck_assert_int_eq(gfc_setxattr(alice, file.ref, ACCESS, "x", 1, 0), -EINVAL);
}
END_TEST

START_TEST(a_directory_gives_its_default_list_and_the_umask_does_not_count)
{
	struct gfc_attr file = make_file(alice, "plain", 0666, 022), sub, deep;

	ck_assert_uint_eq(file.mode, S_IFREG | 0644);
	ck_assert_int_eq(set_acl(alice, dir.ref, DEFAULT, "u:7 u1001:7 g:5 m:7 o:0"), 0);
	file = make_file(alice, "f", 0666, 077);
	ck_assert_uint_eq(file.mode, S_IFREG | 0660);
	ck_assert_str_eq(get_acl(alice, file.ref, ACCESS), "u:6 u1001:7 g:5 m:6 o:0");
	ck_assert_str_eq(get_acl(alice, file.ref, DEFAULT), "none");
	ck_assert_int_eq(can_open(bob, file.ref, GFC_OPEN_READ | GFC_OPEN_WRITE), 0);
	ck_assert_int_eq(can_open(carol, file.ref, GFC_OPEN_READ), -EACCES);
	ck_assert_int_eq(gfc_make_masked(alice, dir.ref, "s", S_IFDIR | 0777, 077, 0, NULL, &sub),
			 0);
	ck_assert_uint_eq(sub.mode, S_IFDIR | 0770);
	ck_assert_str_eq(get_acl(alice, sub.ref, DEFAULT), "u:7 u1001:7 g:5 m:7 o:0");
	ck_assert_int_eq(gfc_make_masked(bob, sub.ref, "t", S_IFDIR | 0700, 0, 0, NULL, &deep), 0);
	ck_assert_str_eq(get_acl(bob, deep.ref, ACCESS), "u:7 u1001:7 g:5 m:0 o:0");
	ck_assert_int_eq(gfc_make(alice, dir.ref, "l", S_IFLNK | 0777, 0, "f", &deep), 0);
	ck_assert_int_eq(set_acl(alice, deep.ref, ACCESS, "u:7 g:7 o:7"), -EOPNOTSUPP);
	ck_assert_int_eq(gfc_setxattr(alice, dir.ref, DEFAULT, NULL, 0, 4), 0);
	file = make_file(alice, "g", 0666, 027);
	ck_assert_uint_eq(file.mode, S_IFREG | 0640);
}
END_TEST

START_TEST(who_may_look_into_a_directory_is_known_at_once_and_after_a_restart)
{
	struct gfc_attr file = make_file(alice, "f", 0644, 0), attr;

	ck_assert_int_eq(gfc_lookup(bob, dir.ref, "f", &attr), 0);
	ck_assert_int_eq(set_acl(alice, dir.ref, ACCESS, "u:7 u1001:0 g:5 m:5 o:5"), 0);
	ck_assert_int_eq(gfc_lookup(bob, dir.ref, "f", &attr), -EACCES);
	ck_assert_int_eq(gfc_lookup(carol, dir.ref, "f", &attr), 0);
	ck_assert_int_eq(gfc_sync(alice), 0);
	meta_fixture_down(fixture);
	meta_fixture_up(fixture);
	ck_assert_int_eq(gfc_lookup(bob, dir.ref, "f", &attr), -EACCES);
	ck_assert_int_eq(set_acl(alice, dir.ref, ACCESS, "u:7 u1001:5 g:0 m:5 o:0"), 0);
	ck_assert_int_eq(gfc_lookup(bob, dir.ref, "f", &attr), 0);
	ck_assert_int_eq(gfc_lookup(carol, dir.ref, "f", &attr), -EACCES);
	ck_assert_int_eq(gfc_unlink(alice, dir.ref, "f", false), 0);
	ck_assert_int_eq(can_open(bob, file.ref, GFC_OPEN_READ), -ESTALE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_acl");
	TCase *pure = tcase_create("pure"), *metad = tcase_create("metad");
	SRunner *runner;
	int failed;

	tcase_set_timeout(pure, 120);
	tcase_add_test(pure, bytes_are_those_of_linux);
	tcase_add_test(pure, what_is_no_list_is_refused);
	tcase_add_test(pure, decisions_are_those_of_the_manual);
	tcase_add_test(pure, decisions_are_those_of_the_kernel);
	tcase_add_test(pure, inheritance_takes_from_both);
	suite_add_tcase(suite, pure);
	tcase_add_checked_fixture(metad, setup, teardown);
	tcase_add_test(metad, a_list_decides_and_the_mode_mirrors_it);
	tcase_add_test(metad, a_directory_gives_its_default_list_and_the_umask_does_not_count);
	tcase_add_test(metad, who_may_look_into_a_directory_is_known_at_once_and_after_a_restart);
	suite_add_tcase(suite, metad);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
