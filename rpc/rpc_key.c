#include "rpc/rpc_key.h"
#include "common/gx_hash.h"
#include "common/gx_num.h"
#include "common/gx_secret.h"
#include <ctype.h>
#include <fcntl.h>
#include <openssl/evp.h>

/* One key as text: identity, 64 digits, two times and the words around them. */
#define LINE_BYTES_MAX (GX_NAME_USER_MAX + 8 + 2 * RPC_KEY_BYTES + 112)

struct keytab_entry {
	struct rpc_key key;
	UT_hash_handle hh; /* by key.identity; uthash keeps insertion order */
};

struct rpc_keytab {
	struct keytab_entry *entries;
};

void rpc_key_clear(struct rpc_key *key)
{
	gx_wipe(key, sizeof(*key));
}

int rpc_identity_parse(const char *text, enum rpc_identity_kind *ret_kind)
{
	enum rpc_identity_kind kind;
	const char *name;
	size_t bytes;

	if (strncmp(text, "user:", 5) == 0)
		kind = RPC_IDENTITY_USER;
	else if (strncmp(text, "host:", 5) == 0)
		kind = RPC_IDENTITY_HOST;
	else
		return -EINVAL;
	name = text + 5;
	bytes = strlen(name);
	if (bytes == 0 || bytes > GX_NAME_USER_MAX || name[0] == '.' || name[0] == '-')
		return -EINVAL;
	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-@", *p))
			return -EINVAL;
	*ret_kind = kind;
	return 0;
}

const char *rpc_identity_name(const char *identity)
{
	const char *colon = strchr(identity, ':');

	return colon ? colon + 1 : identity;
}

int rpc_key_make(struct gx_env *env, const char *identity, int64_t lifetime_ns, bool admin,
		 struct rpc_key *ret_key)
{
	struct rpc_key key = {.admin = admin};
	int64_t now = gx_env_wall_ns(env);
	int r;

	r = rpc_identity_parse(identity, &key.kind);
	if (r < 0)
		return r;
	r = gx_strcpy(key.identity, sizeof(key.identity), identity);
	if (r < 0)
		return r;
	if (lifetime_ns < 0 || lifetime_ns > INT64_MAX - now)
		return -ERANGE;
	r = gx_env_random(env, key.secret, sizeof(key.secret));
	if (r < 0)
		return r;
	/* Whole seconds, so that the text form gives back the same key. */
	key.created_ns = now - now % GX_NSEC_PER_SEC;
	key.expires_ns =
		lifetime_ns ? now + lifetime_ns - (now + lifetime_ns) % GX_NSEC_PER_SEC : 0;
	*ret_key = key;
	gx_wipe(&key, sizeof(key));
	return 0;
}

void rpc_key_fingerprint(const struct rpc_key *key, char text[RPC_FINGERPRINT_TEXT])
{
	static const char label[] = "gridstage key fingerprint";
	unsigned char input[sizeof(label) + RPC_KEY_BYTES];
	unsigned char digest[32] = {0};
	char hex[17];

	memcpy(input, label, sizeof(label));
	memcpy(input + sizeof(label), key->secret, RPC_KEY_BYTES);
	if (!EVP_Q_digest(NULL, "SHA256", NULL, input, sizeof(input), digest, NULL))
		memset(digest, 0, sizeof(digest));
	gx_wipe(input, sizeof(input));
	gx_hex_encode(digest, 8, hex);
	(void)gx_format(text, RPC_FINGERPRINT_TEXT, "%.4s-%.4s-%.4s-%.4s", hex, hex + 4, hex + 8,
			hex + 12);
}

/* -- table ------------------------------------------------------------------ */

int rpc_keytab_new(struct rpc_keytab **ret_tab)
{
	struct rpc_keytab *tab = calloc(1, sizeof(*tab));

	if (!tab)
		return -ENOMEM;
	*ret_tab = tab;
	return 0;
}

static void entry_free(struct keytab_entry *entry)
{
	rpc_key_clear(&entry->key);
	free(entry);
}

void rpc_keytab_free(struct rpc_keytab *tab)
{
	struct keytab_entry *entry, *tmp;

	if (!tab)
		return;
	HASH_ITER (hh, tab->entries, entry, tmp) {
		HASH_DEL(tab->entries, entry);
		entry_free(entry);
	}
	free(tab);
}

static struct keytab_entry *entry_find(const struct rpc_keytab *tab, const char *identity)
{
	struct keytab_entry *entry = NULL;

	HASH_FIND_STR(tab->entries, identity, entry);
	return entry;
}

const struct rpc_key *rpc_keytab_find(const struct rpc_keytab *tab, const char *identity)
{
	struct keytab_entry *entry = entry_find(tab, identity);

	return entry ? &entry->key : NULL;
}

int rpc_keytab_put(struct rpc_keytab *tab, const struct rpc_key *key, bool replace)
{
	struct keytab_entry *entry = entry_find(tab, key->identity);
	bool gx_hash_failed = false;

	if (entry) {
		if (!replace)
			return -EEXIST;
		entry->key = *key;
		return 0;
	}
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->key = *key;
	HASH_ADD_STR(tab->entries, key.identity, entry);
	if (gx_hash_failed) {
		entry_free(entry);
		return -ENOMEM;
	}
	return 0;
}

int rpc_keytab_remove(struct rpc_keytab *tab, const char *identity)
{
	struct keytab_entry *entry = entry_find(tab, identity);

	if (!entry)
		return -ENOENT;
	HASH_DEL(tab->entries, entry);
	entry_free(entry);
	return 0;
}

size_t rpc_keytab_count(const struct rpc_keytab *tab)
{
	return HASH_COUNT(tab->entries);
}

const struct rpc_key *rpc_keytab_get(const struct rpc_keytab *tab, size_t index)
{
	struct keytab_entry *entry = tab->entries;

	gx_assert(index < HASH_COUNT(tab->entries));
	while (index-- > 0)
		entry = entry->hh.next;
	return &entry->key;
}

/* -- text ------------------------------------------------------------------- */

/* Next blank-separated word of a line that may be cut up; NULL at its end. */
static char *next_word(char **cursor)
{
	char *word = *cursor + strspn(*cursor, " \t\r");
	size_t bytes = strcspn(word, " \t\r");

	if (bytes == 0)
		return NULL;
	*cursor = word + bytes;
	if (**cursor)
		*(*cursor)++ = '\0';
	return word;
}

static int parse_when(const char *text, int64_t *ret_ns)
{
	if (strcmp(text, "never") == 0) {
		*ret_ns = 0;
		return 0;
	}
	return gx_parse_time(text, ret_ns);
}

static int parse_line(char *line, struct rpc_key *ret_key, const char **ret_problem)
{
	struct rpc_key key = {0};
	bool have_secret = false;
	char *cursor = line;
	char *word = next_word(&cursor);
	int r = 0;

	*ret_problem = "the line must start with user:NAME or host:NAME";
	if (!word || rpc_identity_parse(word, &key.kind) < 0 ||
	    gx_strcpy(key.identity, sizeof(key.identity), word) < 0)
		return -EINVAL;
	while (r == 0 && (word = next_word(&cursor))) {
		*ret_problem = "unknown word (known: key= created= expires= admin)";
		if (strncmp(word, "key=", 4) == 0) {
			*ret_problem = have_secret ? "key= twice" : "key= wants 64 hex digits";
			r = have_secret ? -EINVAL
					: gx_hex_decode(word + 4, key.secret, RPC_KEY_BYTES);
			have_secret = r == 0;
		} else if (strncmp(word, "created=", 8) == 0) {
			*ret_problem = "created= wants a time like 2026-11-16T09:00:00Z";
			r = parse_when(word + 8, &key.created_ns);
		} else if (strncmp(word, "expires=", 8) == 0) {
			*ret_problem = "expires= wants never or a time like 2026-11-16T09:00:00Z";
			r = parse_when(word + 8, &key.expires_ns);
			/* 1970 is long over, but as a number it would mean never. */
			if (r == 0 && key.expires_ns == 0 && strcmp(word + 8, "never") != 0)
				r = -EINVAL;
		} else if (strcmp(word, "admin") == 0) {
			key.admin = true;
		} else {
			r = -EINVAL;
		}
	}
	if (r == 0 && !have_secret) {
		*ret_problem = "key= is missing";
		r = -EINVAL;
	}
	if (r == 0)
		*ret_key = key;
	gx_wipe(&key, sizeof(key));
	return r < 0 ? -EINVAL : 0;
}

static int complain(struct gx_buf *errors, const char *name, unsigned line, const char *problem)
{
	/* The line itself is never quoted: it holds a secret. */
	if (errors && line > 0)
		return gx_buf_append_format(errors, "%s:%u: %s\n", name, line, problem);
	if (errors)
		return gx_buf_append_format(errors, "%s: %s\n", name, problem);
	return 0;
}

int rpc_keytab_parse(struct rpc_keytab *tab, const char *name, const char *text, size_t bytes,
		     struct gx_buf *errors)
{
	char line[512];
	unsigned number = 0;
	int r = 0;

	while (r == 0 && bytes > 0) {
		const char *end = memchr(text, '\n', bytes);
		size_t line_bytes = end ? (size_t)(end - text) : bytes;
		struct rpc_key key;
		const char *problem = NULL;

		number++;
		if (line_bytes >= sizeof(line) || memchr(text, '\0', line_bytes)) {
			r = -EINVAL;
			(void)complain(errors, name, number, "line too long or binary");
			break;
		}
		memcpy(line, text, line_bytes);
		line[line_bytes] = '\0';
		text += line_bytes + (end ? 1 : 0);
		bytes -= line_bytes + (end ? 1 : 0);
		if (line[strspn(line, " \t\r")] == '\0' || line[strspn(line, " \t")] == '#')
			continue;
		r = parse_line(line, &key, &problem);
		if (r == 0) {
			r = rpc_keytab_put(tab, &key, false);
			problem =
				r == -EEXIST ? "this identity has a key already" : "out of memory";
			rpc_key_clear(&key);
		}
		if (r < 0)
			(void)complain(errors, name, number, problem);
	}
	gx_wipe(line, sizeof(line));
	return r;
}

/* Reads a whole secret file after judging the very file that is open. */
static int read_secret(struct gx_env *env, const char *path, struct gx_buf *buf,
		       struct gx_buf *errors)
{
	const char *problem = NULL;
	struct stat st;
	ssize_t got = 0;
	int fd, r;

	fd = gx_env_open(env, path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
	if (fd < 0) {
		(void)complain(errors, path, 0, gx_strerror(fd));
		return fd;
	}
	r = gx_env_fstat(env, fd, &st);
	if (r == 0) {
		problem = gx_secret_problem(&st);
		if (problem)
			r = -EPERM;
		else if (st.st_size > GX_KEYTAB_BYTES_MAX)
			r = -E2BIG;
	}
	if (r == 0)
		r = gx_buf_reserve(buf, (size_t)st.st_size);
	if (r == 0) {
		got = gx_env_pread(env, fd, buf->data, (size_t)st.st_size, 0);
		if (got < 0)
			r = (int)got;
		else
			buf->bytes = (size_t)got;
	}
	gx_env_close(env, fd);
	if (r < 0)
		(void)complain(errors, path, 0, problem ? problem : gx_strerror(r));
	return r;
}

int rpc_keytab_load(struct rpc_keytab *tab, struct gx_env *env, const char *path,
		    struct gx_buf *errors)
{
	struct gx_buf buf;
	int r;

	gx_buf_init(&buf, GX_KEYTAB_BYTES_MAX);
	r = read_secret(env, path, &buf, errors);
	if (r == 0)
		r = rpc_keytab_parse(tab, path, (const char *)buf.data, buf.bytes, errors);
	gx_buf_wipe(&buf);
	return r;
}

int rpc_key_load(struct gx_env *env, const char *path, struct rpc_key *ret_key,
		 struct gx_buf *errors)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *tab = NULL;
	int r;

	r = rpc_keytab_new(&tab);
	if (r < 0)
		return r;
	r = rpc_keytab_load(tab, env, path, errors);
	if (r < 0)
		return r;
	if (rpc_keytab_count(tab) != 1) {
		(void)complain(errors, path, 0, "a key file holds exactly one key");
		return -EINVAL;
	}
	*ret_key = *rpc_keytab_get(tab, 0);
	return 0;
}

static int append_key(struct gx_buf *buf, const struct rpc_key *key)
{
	char hex[2 * RPC_KEY_BYTES + 1];
	char created[40];
	char expires[40] = "never";
	int r;

	gx_hex_encode(key->secret, RPC_KEY_BYTES, hex);
	gx_format_time(key->created_ns, false, created);
	if (key->expires_ns)
		gx_format_time(key->expires_ns, false, expires);
	r = gx_buf_append_format(buf, "%s key=%s created=%s expires=%s%s\n", key->identity, hex,
				 created, expires, key->admin ? " admin" : "");
	gx_wipe(hex, sizeof(hex));
	return r;
}

static int write_file(struct gx_env *env, const char *path, const struct gx_buf *buf)
{
	int fd, r;

	fd = gx_env_open(env, path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	r = gx_env_pwrite(env, fd, buf->data, buf->bytes, 0);
	if (r == 0)
		r = gx_env_fsync(env, fd);
	if (r < 0) {
		gx_env_close(env, fd);
		return r;
	}
	return gx_env_close(env, fd);
}

static int sync_parent(struct gx_env *env, const char *path)
{
	char dir[GX_PATH_MAX];
	char *slash;
	int r = gx_strcpy(dir, sizeof(dir), path);

	if (r < 0)
		return r;
	slash = strrchr(dir, '/');
	if (!slash)
		return gx_env_sync_dir(env, ".");
	slash[slash == dir ? 1 : 0] = '\0';
	return gx_env_sync_dir(env, dir);
}

static int write_and_rename(struct gx_env *env, const char *temporary, const char *path,
			    const struct gx_buf *buf)
{
	int r = write_file(env, temporary, buf);

	if (r == 0)
		r = gx_env_rename(env, temporary, path);
	if (r < 0) {
		/* Secrets do not lie about. */
		GX_IGNORE(gx_env_unlink(env, temporary));
		return r;
	}
	return sync_parent(env, path);
}

int rpc_keytab_save(const struct rpc_keytab *tab, struct gx_env *env, const char *path)
{
	char temporary[GX_PATH_MAX];
	struct gx_buf buf;
	int r;

	r = gx_format(temporary, sizeof(temporary), "%s.new", path);
	if (r < 0)
		return -ENAMETOOLONG;
	gx_buf_init(&buf, GX_KEYTAB_BYTES_MAX);
	/* At once, since growing would leave copies of the keys behind. */
	r = gx_buf_reserve(&buf, GX_MIN(HASH_COUNT(tab->entries) * (size_t)LINE_BYTES_MAX,
					(size_t)GX_KEYTAB_BYTES_MAX));
	for (struct keytab_entry *entry = tab->entries; r == 0 && entry; entry = entry->hh.next)
		r = append_key(&buf, &entry->key);
	if (r == 0) {
		/* Left over from a save that was cut short: never complete, so never wanted. */
		r = gx_env_unlink(env, temporary);
		if (r == -ENOENT)
			r = 0;
	}
	if (r == 0)
		r = write_and_rename(env, temporary, path, &buf);
	gx_buf_wipe(&buf);
	return r;
}
