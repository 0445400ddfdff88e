#include "common/gx_num.h"
#include <strings.h>

/* Reads decimal digits at *p; -EINVAL without any, -ERANGE past 64 bits (*p is then undefined). */
static int take_digits(const char **p, uint64_t *ret_value)
{
	const char *s = *p;
	uint64_t value = 0;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++) {
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value))
			return -ERANGE;
	}
	*p = s;
	*ret_value = value;
	return 0;
}

/* "Too large" is only said of something that is a number; "99999999999999999999x" is not. */
static int range_or_syntax(const char *text)
{
	return text[strspn(text, "0123456789")] == '\0' ? -ERANGE : -EINVAL;
}

int gx_parse_u64(const char *text, uint64_t *ret_value)
{
	const char *p = text;
	uint64_t value;
	int r = take_digits(&p, &value);

	if (r == -ERANGE)
		return range_or_syntax(text);
	if (r < 0)
		return r;
	if (*p != '\0')
		return -EINVAL;
	*ret_value = value;
	return 0;
}

int gx_parse_i64(const char *text, int64_t *ret_value)
{
	bool negative = text[0] == '-';
	uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
	uint64_t magnitude;
	int r = gx_parse_u64(text + negative, &magnitude);

	if (r < 0)
		return r;
	if (magnitude > limit)
		return -ERANGE;
	/* Negated as unsigned, because -INT64_MIN does not exist. */
	*ret_value = (int64_t)(negative ? -magnitude : magnitude);
	return 0;
}

int gx_parse_bool(const char *text, bool *ret_value)
{
	static const char *const words[][2] = {
		{"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};

	for (size_t i = 0; i < GX_COUNT_OF(words); i++) {
		for (int value = 0; value < 2; value++) {
			if (strcasecmp(text, words[i][value]) == 0) {
				*ret_value = value == 1;
				return 0;
			}
		}
	}
	return -EINVAL;
}

struct unit {
	const char *name;
	uint64_t factor;
};

/* Largest first: formatting takes the first that divides. Binary ones also format. */
#define SIZE_FORMAT_UNITS 6
static const struct unit size_units[] = {
	{"EiB", UINT64_C(1) << 60},
	{"PiB", UINT64_C(1) << 50},
	{"TiB", UINT64_C(1) << 40},
	{"GiB", UINT64_C(1) << 30},
	{"MiB", UINT64_C(1) << 20},
	{"KiB", UINT64_C(1) << 10},
	{"E", UINT64_C(1) << 60},
	{"P", UINT64_C(1) << 50},
	{"T", UINT64_C(1) << 40},
	{"G", UINT64_C(1) << 30},
	{"M", UINT64_C(1) << 20},
	{"K", UINT64_C(1) << 10},
	{"EB", UINT64_C(1000000000000000000)},
	{"PB", UINT64_C(1000000000000000)},
	{"TB", UINT64_C(1000000000000)},
	{"GB", UINT64_C(1000000000)},
	{"MB", UINT64_C(1000000)},
	{"KB", UINT64_C(1000)},
	{"kB", UINT64_C(1000)},
	{"B", 1},
	{NULL, 0},
};

static const struct unit duration_units[] = {
	{"d", UINT64_C(86400000000000)},
	{"h", UINT64_C(3600000000000)},
	{"m", UINT64_C(60000000000)},
	{"s", UINT64_C(1000000000)},
	{"ms", UINT64_C(1000000)},
	{"us", UINT64_C(1000)},
	{"ns", 1},
	{NULL, 0},
};

static const struct unit *unit_find(const struct unit *units, const char *name)
{
	for (const struct unit *u = units; u->name != NULL; u++) {
		if (strcmp(u->name, name) == 0)
			return u;
	}
	return NULL;
}

/*
 * Whole number, optional fraction of up to 9 digits, unit. A fraction needs a unit larger than
 * one; what is left below one byte or nanosecond is dropped ("0.1KiB" is 102 bytes).
 */
static int parse_with_unit(const char *text, const struct unit *units, bool bare_allowed,
			   uint64_t limit, uint64_t *ret_value)
{
	const char *p = text;
	unsigned __int128 total;
	uint64_t whole = 0, fraction = 0, divisor = 1, factor = 1;
	bool too_large;
	int r = take_digits(&p, &whole);

	if (r == -EINVAL)
		return r;
	too_large = r == -ERANGE;
	if (too_large)
		p += strspn(p, "0123456789");
	if (*p == '.') {
		const char *start = ++p;

		r = take_digits(&p, &fraction);
		if (r < 0 || p - start > 9)
			return -EINVAL;
		for (const char *s = start; s < p; s++)
			divisor *= 10;
	}
	if (*p != '\0') {
		const struct unit *unit = unit_find(units, p);

		if (unit == NULL)
			return -EINVAL;
		factor = unit->factor;
	} else if (!bare_allowed && (whole != 0 || too_large)) {
		return -EINVAL;
	}
	if (divisor > 1 && factor == 1)
		return -EINVAL;
	if (too_large)
		return -ERANGE;
	total = (unsigned __int128)whole * factor;
	total += (unsigned __int128)fraction * factor / divisor;
	if (total > limit)
		return -ERANGE;
	*ret_value = (uint64_t)total;
	return 0;
}

int gx_parse_size(const char *text, uint64_t *ret_bytes)
{
	return parse_with_unit(text, size_units, true, UINT64_MAX, ret_bytes);
}

int gx_parse_duration(const char *text, int64_t *ret_ns)
{
	uint64_t ns;
	int r = parse_with_unit(text, duration_units, false, (uint64_t)INT64_MAX, &ns);

	if (r < 0)
		return r;
	*ret_ns = (int64_t)ns;
	return 0;
}

void gx_format_size(uint64_t bytes, char text[32])
{
	for (size_t i = 0; bytes != 0 && i < SIZE_FORMAT_UNITS; i++) {
		if (bytes % size_units[i].factor == 0) {
			(void)gx_format(text, 32, "%llu%s",
					(unsigned long long)(bytes / size_units[i].factor),
					size_units[i].name);
			return;
		}
	}
	(void)gx_format(text, 32, "%llu", (unsigned long long)bytes);
}

void gx_format_duration(int64_t ns, char text[32])
{
	uint64_t magnitude = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
	const struct unit *u = duration_units;

	if (ns == 0) {
		(void)gx_format(text, 32, "0s");
		return;
	}
	while (magnitude % u->factor != 0)
		u++;
	(void)gx_format(text, 32, "%s%llu%s", ns < 0 ? "-" : "",
			(unsigned long long)(magnitude / u->factor), u->name);
}

/* -- calendar ------------------------------------------------------------- */

#define SEC_PER_DAY 86400

/*
 * Days since 1970-01-01 of a proleptic Gregorian date. The year is taken to start in March, so
 * that the leap day is its last; 400 years are exactly 146097 days.
 */
static int64_t days_from_civil(int64_t year, int64_t month, int64_t day)
{
	int64_t y = year - (month <= 2);
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t year_of_era = y - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

	return era * 146097 + day_of_era - 719468;
}

static void civil_from_days(int64_t days, int64_t *ret_year, int64_t *ret_month, int64_t *ret_day)
{
	int64_t z = days + 719468;
	int64_t era = (z >= 0 ? z : z - 146096) / 146097;
	int64_t day_of_era = z - era * 146097;
	int64_t year_of_era =
		(day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	int64_t day_of_year =
		day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int64_t shifted_month = (5 * day_of_year + 2) / 153;

	*ret_day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
	*ret_month = shifted_month + (shifted_month < 10 ? 3 : -9);
	*ret_year = year_of_era + era * 400 + (*ret_month <= 2);
}

static int64_t days_in_month(int64_t year, int64_t month)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return days[month - 1] + (month == 2 && leap);
}

/* Exactly `count` digits at *p, then the character `after`. */
static int take_field(const char **p, int count, char after, int64_t *ret_value)
{
	const char *s = *p;
	int64_t value = 0;

	for (int i = 0; i < count; i++, s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		value = value * 10 + (*s - '0');
	}
	if (*s != after)
		return -EINVAL;
	*p = after == '\0' ? s : s + 1;
	*ret_value = value;
	return 0;
}

/* ".5Z", ".123456789Z" or "Z" behind the seconds. */
static int take_fraction(const char *p, int64_t *ret_ns)
{
	int64_t ns = 0, scale = GX_NSEC_PER_SEC;

	if (*p == '.') {
		const char *start = ++p;

		for (; *p >= '0' && *p <= '9' && scale > 1; p++) {
			scale /= 10;
			ns += (*p - '0') * scale;
		}
		if (p == start)
			return -EINVAL;
	}
	if (strcmp(p, "Z") != 0)
		return -EINVAL;
	*ret_ns = ns;
	return 0;
}

int gx_parse_time(const char *text, int64_t *ret_wall_ns)
{
	const char *p = text;
	int64_t year, month, day, hour = 0, minute = 0, second = 0, ns = 0;
	bool date_only = strlen(text) == strlen("2026-11-16");
	__int128 total;

	if (take_field(&p, 4, '-', &year) < 0 || take_field(&p, 2, '-', &month) < 0 ||
	    take_field(&p, 2, date_only ? '\0' : 'T', &day) < 0)
		return -EINVAL;
	if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month))
		return -EINVAL;
	if (!date_only) {
		if (take_field(&p, 2, ':', &hour) < 0 || take_field(&p, 2, ':', &minute) < 0)
			return -EINVAL;
		/* The seconds end with '.' or 'Z'; take_fraction looks at that character again. */
		if (strlen(p) < 3 || take_field(&p, 2, p[2], &second) < 0 ||
		    take_fraction(p - 1, &ns) < 0)
			return -EINVAL;
		if (hour > 23 || minute > 59 || second > 59)
			return -EINVAL;
	}
	total = (__int128)days_from_civil(year, month, day) * SEC_PER_DAY;
	total = (total + hour * 3600 + minute * 60 + second) * GX_NSEC_PER_SEC + ns;
	if (total > INT64_MAX || total < INT64_MIN)
		return -ERANGE;
	*ret_wall_ns = (int64_t)total;
	return 0;
}

void gx_format_time(int64_t wall_ns, bool micros, char text[40])
{
	int64_t sec = wall_ns / GX_NSEC_PER_SEC;
	int64_t ns = wall_ns % GX_NSEC_PER_SEC;
	int64_t days, year, month, day;

	if (ns < 0) { /* before 1970: round towards the past, so that the fraction is positive */
		sec--;
		ns += GX_NSEC_PER_SEC;
	}
	days = sec / SEC_PER_DAY;
	sec %= SEC_PER_DAY;
	if (sec < 0) {
		days--;
		sec += SEC_PER_DAY;
	}
	civil_from_days(days, &year, &month, &day);
	if (micros)
		(void)gx_format(text, 40, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", (int)year,
				(int)month, (int)day, (int)(sec / 3600), (int)(sec / 60 % 60),
				(int)(sec % 60), (int)(ns / 1000));
	else
		(void)gx_format(text, 40, "%04d-%02d-%02dT%02d:%02d:%02dZ", (int)year, (int)month,
				(int)day, (int)(sec / 3600), (int)(sec / 60 % 60), (int)(sec % 60));
}

/* -- hex ------------------------------------------------------------------ */

void gx_hex_encode(const void *data, size_t bytes, char *text)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = data;

	for (size_t i = 0; i < bytes; i++) {
		text[2 * i] = digits[p[i] >> 4];
		text[2 * i + 1] = digits[p[i] & 15];
	}
	text[2 * bytes] = '\0';
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int gx_hex_decode(const char *text, void *data, size_t bytes)
{
	unsigned char *out = data;

	/* Checked whole before the first byte is written: data changes only on success. */
	if (strnlen(text, 2 * bytes + 1) != 2 * bytes)
		return -EINVAL;
	for (size_t i = 0; i < 2 * bytes; i++) {
		if (hex_value(text[i]) < 0)
			return -EINVAL;
	}
	for (size_t i = 0; i < bytes; i++)
		out[i] = (unsigned char)(hex_value(text[2 * i]) << 4 | hex_value(text[2 * i + 1]));
	return 0;
}

/* -- UTF-8 ---------------------------------------------------------------- */

size_t gx_utf8_char(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	unsigned char low = 0x80, high = 0xbf; /* allowed range of the second byte */
	size_t length;

	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	length = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (bytes < length)
		return 0;
	/* RFC 3629: these four lead bytes narrow what may follow. */
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	return length;
}
