#include "client/tools/gfs_parse.h"
#include "common/gx_num.h"
#include <sys/stat.h>

/* -- modes ------------------------------------------------------------------------------------- */

static bool parse_octal(const char *text, uint32_t *ret_bits)
{
	uint32_t bits = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '7' || bits > 07777)
			return false;
		bits = bits * 8 + (uint32_t)(*text - '0');
	}
	*ret_bits = bits;
	return bits <= 07777;
}

/* "ug" in front of an operator; 0 if there is none. */
static uint32_t parse_who(const char **text)
{
	uint32_t who = 0;

	for (;; (*text)++) {
		switch (**text) {
		case 'u':
			who |= S_ISUID | S_IRWXU;
			break;
		case 'g':
			who |= S_ISGID | S_IRWXG;
			break;
		case 'o':
			who |= S_ISVTX | S_IRWXO;
			break;
		case 'a':
			who |= 07777;
			break;
		default:
			return who;
		}
	}
}

/* What stands behind an operator: letters, or one of u, g, o to copy from. */
static void parse_permissions(const char **text, struct gfs_mode_step *step)
{
	if (**text == 'u' || **text == 'g' || **text == 'o') {
		step->copy = *(*text)++;
		return;
	}
	for (;; (*text)++) {
		switch (**text) {
		case 'r':
			step->bits |= 0444;
			break;
		case 'w':
			step->bits |= 0222;
			break;
		case 'x':
			step->bits |= 0111;
			break;
		case 'X':
			step->x_if_any = true;
			break;
		case 's':
			step->bits |= S_ISUID | S_ISGID;
			break;
		case 't':
			step->bits |= S_ISVTX;
			break;
		default:
			return;
		}
	}
}

/* One part between commas: who, then one or more operators. */
static int parse_part(const char **text, mode_t umask, struct gfs_mode_change *change)
{
	uint32_t who = parse_who(text);

	if (!**text || !strchr("+-=", **text))
		return -EINVAL;
	while (**text && strchr("+-=", **text)) {
		struct gfs_mode_step *step = &change->step[change->count];

		if (change->count >= GFS_MODE_STEPS_MAX)
			return -E2BIG;
		/* Without a who, '=' clears all, also what the umask keeps from being set. */
		*step = (struct gfs_mode_step){
			.op = *(*text)++,
			.who = who ? who : 07777 & ~(uint32_t)umask,
			.clears = who ? who : 07777,
		};
		parse_permissions(text, step);
		step->keeps_high = !(step->bits & (S_ISUID | S_ISGID));
		change->count++;
	}
	return 0;
}

int gfs_mode_parse(const char *text, mode_t umask, struct gfs_mode_change *ret_change)
{
	struct gfs_mode_change change = {0};
	uint32_t bits;

	if (parse_octal(text, &bits)) {
		change.step[0] = (struct gfs_mode_step){
			.op = '=', .who = 07777, .clears = 07777, .bits = bits};
		/* As chmod(1): only a mode of five digits clears them on a directory. */
		change.step[0].keeps_high = strlen(text) < 5;
		change.count = 1;
		*ret_change = change;
		return 0;
	}
	for (;;) {
		int r = parse_part(&text, umask, &change);

		if (r < 0)
			return r;
		if (*text == '\0')
			break;
		if (*text++ != ',')
			return -EINVAL;
	}
	*ret_change = change;
	return 0;
}

static uint32_t step_bits(const struct gfs_mode_step *step, uint32_t mode)
{
	uint32_t bits = step->bits;

	if (step->copy) {
		int shift = step->copy == 'u' ? 6 : step->copy == 'g' ? 3 : 0;
		uint32_t three = (mode >> shift) & 7;

		bits = three * 0111;
	}
	if (step->x_if_any && (S_ISDIR(mode) || (mode & 0111)))
		bits |= 0111;
	return bits & step->who;
}

uint32_t gfs_mode_apply(const struct gfs_mode_change *change, uint32_t mode)
{
	for (size_t i = 0; i < change->count; i++) {
		const struct gfs_mode_step *step = &change->step[i];
		uint32_t bits = step_bits(step, mode);
		uint32_t cleared = step->clears;

		if (step->op == '+') {
			mode |= bits;
			continue;
		}
		if (step->op == '-') {
			mode &= ~bits;
			continue;
		}
		/* Only an explicit s takes these from a directory. */
		if (S_ISDIR(mode) && step->keeps_high)
			cleared &= ~(uint32_t)(S_ISUID | S_ISGID);
		mode = (mode & ~cleared) | bits;
	}
	return mode & 07777;
}

/* -- times ------------------------------------------------------------------------------------- */

static int parse_epoch(const char *text, struct timespec *ret_ts)
{
	char whole[24];
	size_t bytes = strcspn(text, ".");
	const char *fraction = text[bytes] ? text + bytes + 1 : NULL;
	long nsec = 0, scale = 100000000;
	int64_t sec;

	if (bytes >= sizeof(whole))
		return -EINVAL;
	memcpy(whole, text, bytes);
	whole[bytes] = '\0';
	/* A negative fraction would have to be carried; nobody writes one. */
	if (gx_parse_i64(whole, &sec) < 0 || (fraction && (!*fraction || whole[0] == '-')))
		return -EINVAL;
	for (; fraction && *fraction; fraction++) {
		if (*fraction < '0' || *fraction > '9')
			return -EINVAL;
		nsec += (*fraction - '0') * scale;
		scale /= 10;
	}
	*ret_ts = (struct timespec){.tv_sec = sec, .tv_nsec = nsec};
	return 0;
}

static int parse_local(const char *text, struct timespec *ret_ts)
{
	static const char *const formats[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M",
					      "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"};

	for (size_t i = 0; i < GX_COUNT_OF(formats); i++) {
		struct tm tm = {.tm_isdst = -1};
		const char *end = strptime(text, formats[i], &tm);
		struct tm wanted = tm;

		if (!end || *end)
			continue;
		ret_ts->tv_nsec = 0;
		ret_ts->tv_sec = mktime(&tm);
		/* mktime() turns February 30 into a day in March. */
		return tm.tm_mday == wanted.tm_mday && tm.tm_mon == wanted.tm_mon ? 0 : -EINVAL;
	}
	return -EINVAL;
}

int gfs_time_parse(const char *text, int64_t now_ns, struct timespec *ret_ts)
{
	size_t bytes = strlen(text);
	struct timespec ts;
	int64_t wall_ns;
	int r;

	if (strcmp(text, "now") == 0)
		wall_ns = now_ns;
	else if (text[0] == '@')
		return parse_epoch(text + 1, ret_ts);
	else if (bytes > 0 && text[bytes - 1] == 'Z') {
		r = gx_parse_time(text, &wall_ns);
		if (r < 0)
			return -EINVAL;
	} else {
		r = parse_local(text, &ts);
		if (r == 0)
			*ret_ts = ts;
		return r;
	}
	ts.tv_sec = wall_ns / GX_NSEC_PER_SEC;
	ts.tv_nsec = (long)(wall_ns % GX_NSEC_PER_SEC);
	if (ts.tv_nsec < 0) {
		ts.tv_sec--;
		ts.tv_nsec += (long)GX_NSEC_PER_SEC;
	}
	*ret_ts = ts;
	return 0;
}

/* -- find's numbers ---------------------------------------------------------------------------- */

static const char *parse_sign(const char *text, int *ret_sign)
{
	*ret_sign = *text == '+' ? 1 : *text == '-' ? -1 : 0;
	return *ret_sign ? text + 1 : text;
}

int gfs_size_compare_parse(const char *text, struct gfs_compare *ret_compare)
{
	static const struct {
		char letter;
		uint64_t unit;
	} units[] = {{'c', 1},          {'w', 2},          {'b', 512},       {'k', 1ull << 10},
		     {'M', 1ull << 20}, {'G', 1ull << 30}, {'T', 1ull << 40}};
	struct gfs_compare compare = {.unit = 512};
	char digits[24];
	size_t bytes;

	text = parse_sign(text, &compare.sign);
	bytes = strlen(text);
	if (bytes == 0 || bytes >= sizeof(digits))
		return -EINVAL;
	memcpy(digits, text, bytes + 1);
	for (size_t i = 0; i < GX_COUNT_OF(units); i++) {
		if (digits[bytes - 1] != units[i].letter)
			continue;
		compare.unit = units[i].unit;
		digits[bytes - 1] = '\0';
		break;
	}
	if (gx_parse_u64(digits, &compare.number) < 0)
		return -EINVAL;
	*ret_compare = compare;
	return 0;
}

int gfs_age_compare_parse(const char *text, struct gfs_compare *ret_compare)
{
	struct gfs_compare compare = {.unit = 86400};

	text = parse_sign(text, &compare.sign);
	if (gx_parse_u64(text, &compare.number) < 0)
		return -EINVAL;
	*ret_compare = compare;
	return 0;
}

static bool matches(const struct gfs_compare *compare, uint64_t number)
{
	if (compare->sign > 0)
		return number > compare->number;
	return compare->sign < 0 ? number < compare->number : number == compare->number;
}

bool gfs_size_matches(const struct gfs_compare *compare, uint64_t bytes)
{
	return matches(compare, bytes / compare->unit + (bytes % compare->unit != 0));
}

bool gfs_age_matches(const struct gfs_compare *compare, int64_t age_sec)
{
	/* What was changed in the future is less than a day old. */
	return matches(compare, age_sec > 0 ? (uint64_t)age_sec / compare->unit : 0);
}
