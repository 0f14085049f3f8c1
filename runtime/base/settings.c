/* SPDX-License-Identifier: Apache-2.0 */
/* All settings, from environment, configuration files and defaults. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/tier_settings.h"

#define PREFIX "TRANSPCKPT_"

const struct tpck_setting_row tpck_setting_rows[] = {
#define TPCK_SETTING(field, name, type, standard, choices, help) \
	{PREFIX #name, #type, standard, choices, help, offsetof(struct tpck_settings, field)},
#include "runtime/base/settings.def"
#undef TPCK_SETTING
	{NULL, NULL, NULL, NULL, NULL, 0},
};

static TPCK_AT_START int parse_number(const char *text, double *value, const char **rest)
{
	uint64_t whole = 0;
	char *end = (char *)text;

	/* Most are plain, and strtod() is much for the start of a short program. */
	while (*end >= '0' && *end <= '9' && end - text < 15)
		whole = whole * 10 + (uint64_t)(*end++ - '0');
	if (end > text && (!*end || strchr("KMGT%+s", *end))) {
		*value = (double)whole;
		*rest = end;
		return 0;
	}
	errno = 0;
	*value = strtod(text, &end);
	if (end == text || errno || !(*value >= 0) || *value > 1e18)
		return -EINVAL;
	*rest = end;
	return 0;
}

/* What sysconf() says, which costs more. */
static TPCK_AT_START uint64_t machine_bytes(void)
{
	struct sysinfo machine;

	return tpck_sys_sysinfo(&machine) ? 0 : (uint64_t)machine.totalram * machine.mem_unit;
}

static TPCK_AT_START int parse_bytes(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	const char *rest, *unit;
	double value;

	if (parse_number(text, &value, &rest))
		return -EINVAL;
	if (strcmp(rest, "%") == 0) {
		if (value > 100)
			return -EINVAL;
		value *= (double)machine_bytes() / 100;
	} else if (*rest) {
		unit = strchr(units, *rest & ~0x20);
		if (!unit || !*unit || (rest[1] && strcmp(rest + 1, "iB") != 0 && strcmp(rest + 1, "B") != 0))
			return -EINVAL;
		for (const char *u = units; u <= unit; u++)
			value *= 1024;
	}
	if (value >= 0x1p64)
		return -EINVAL;
	*bytes = (uint64_t)value;
	return 0;
}

static TPCK_AT_START int parse_interval(const char *text, struct tpck_interval *interval)
{
	struct tpck_interval parsed = {TPCK_INTERVAL_AUTO, 0};
	const char *rest;

	if (strcmp(text, "auto") != 0) {
		if (parse_number(text, &parsed.count, &rest) || (*rest && strcmp(rest, "s") != 0))
			return -EINVAL;
		parsed.unit = *rest ? TPCK_INTERVAL_SECONDS : TPCK_INTERVAL_ITERATIONS;
		if (!*rest && parsed.count < 1)
			return -EINVAL;
	}
	*interval = parsed;
	return 0;
}

/* K copies, or K+M fragments. */
static TPCK_AT_START int parse_copies(const char *text, struct tpck_copies *copies)
{
	struct tpck_copies parsed = {0};
	const char *rest;
	double first, second;

	if (*text < '0' || *text > '9' || parse_number(text, &first, &rest) || first != (double)(uint64_t)first)
		return -EINVAL;
	if (!*rest) {
		parsed.count = (uint64_t)first;
	} else {
		if (*rest != '+' || rest[1] < '0' || rest[1] > '9' || parse_number(rest + 1, &second, &rest) || *rest)
			return -EINVAL;
		/* Fewer are copies, and of more nobody wants to be the one who waits for all. */
		if (second != (double)(uint64_t)second || first < 2 || second < 1 || first + second > TPCK_SETTING_FRAGMENTS_MAX)
			return -EINVAL;
		parsed = (struct tpck_copies){(uint64_t)second + 1, (uint32_t)first, (uint32_t)second};
	}
	*copies = parsed;
	return 0;
}

static TPCK_AT_START int parse_choice(const char *text, const char *choices, char *field)
{
	size_t length = strlen(text);

	if (strchr(text, '|'))
		return -EINVAL;
	for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL) {
		if (strncmp(c, text, length) == 0 && length && (c[length] == '|' || !c[length])) {
			memcpy(field, text, length + 1);
			return 0;
		}
	}
	return -EINVAL;
}

TPCK_AT_START int tpck_settings_parse(const struct tpck_setting_row *row, const char *text,
				      struct tpck_settings *settings)
{
	void *field = (char *)settings + row->offset;
	const char *rest;
	double value;

	switch (row->type[0]) {
	case 'P':
		if (strcmp(row->type, "PATH") == 0)
			break;
		if (parse_number(text, &value, &rest) || (*rest && strcmp(rest, "%") != 0) || value > 100)
			return -EINVAL;
		*(double *)field = value;
		return 0;
	case 'B':
		if (strcmp(row->type, "BYTES") == 0)
			return parse_bytes(text, field);
		if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
			return -EINVAL;
		*(bool *)field = *text == '1';
		return 0;
	case 'C':
		if (strcmp(row->type, "CHOICE") == 0)
			return parse_choice(text, row->choices, field);
		if (strcmp(row->type, "COPIES") == 0)
			return parse_copies(text, field);
		if (parse_number(text, &value, &rest) || *rest || value != (double)(uint64_t)value)
			return -EINVAL;
		*(uint64_t *)field = (uint64_t)value;
		return 0;
	case 'I':
		return parse_interval(text, field);
	case 'R':
		return strchr(text, '%') ? -EINVAL : parse_bytes(text, field);
	case 'S':
		if (strcmp(row->type, "STRING") == 0)
			break;
		if (parse_number(text, &value, &rest) || (*rest && strcmp(rest, "s") != 0))
			return -EINVAL;
		*(double *)field = value;
		return 0;
	default: /* a new type, whose field may be shorter than a text */
		return -EINVAL;
	}
	if (strlen(text) >= TPCK_SETTING_TEXT_MAX)
		return -EINVAL;
	strcpy(field, text);
	return 0;
}

static TPCK_AT_START const struct tpck_setting_row *find_row(const char *name, size_t length)
{
	for (const struct tpck_setting_row *row = tpck_setting_rows; row->name; row++)
		if (strlen(row->name) == length && memcmp(row->name, name, length) == 0)
			return row;
	return NULL;
}

/* One NAME=VALUE of source ("environment" or a path). Returns complaints, 0 or 1. */
static TPCK_AT_START int apply(struct tpck_settings *settings, const char *pair, const char *source)
{
	const char *equals = strchr(pair, '=');
	const struct tpck_setting_row *row;

	if (!equals || strncmp(pair, PREFIX, sizeof PREFIX - 1) != 0) {
		tpck_log_warn("%s: '%.80s' is not of the form TRANSPCKPT_NAME=VALUE; ignored", source, pair);
		return 1;
	}
	row = find_row(pair, (size_t)(equals - pair));
	if (!row) {
		tpck_log_warn("%s: %.*s is no setting of transpckpt; ignored", source,
			      (int)(equals - pair), pair);
		return 1;
	}
	if (!equals[1])
		return 0;
	if (tpck_settings_parse(row, equals + 1, settings)) {
		tpck_log_warn("%s: %s=%.200s is not %s%s%s%s; using %s", source, row->name, equals + 1,
			      row->choices ? "one of " : "a value of type ",
			      row->choices ? row->choices : row->type, row->choices ? "" : ": ",
			      row->choices ? "" : row->help, row->standard[0] ? row->standard : "the default");
		return 1;
	}
	return 0;
}

/* The file's text up to what fits, whole lines only; *more tells that there was more. -errno where it cannot
 * be read. Closes the descriptor. */
static ssize_t read_lines(int fd, char *text, size_t size, bool *more)
{
	ssize_t got = tpck_sys_read_full(fd, text, size);
	size_t used = got > 0 ? (size_t)got : 0;

	*more = false;
	if (got < 0)
		got = -errno;
	tpck_sys_close(fd);
	if (got < 0)
		return got;
	if (used == size) {
		*more = true;
		used--;
		while (used && text[used - 1] != '\n')
			used--;
	}
	text[used] = '\0';
	return (ssize_t)used;
}

static TPCK_AT_START int unreadable(const char *path, bool must)
{
	if (must || errno != ENOENT)
		tpck_log_warn("cannot read %s%s: %m; going on without it", must ? "TRANSPCKPT_CONF=" : "", path);
	return must || errno != ENOENT;
}

int tpck_settings_parse_lines(struct tpck_settings *settings, char *text, const char *path)
{
	char *line, *next, *end;
	int complaints = 0;

	for (line = text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		line += strspn(line, " \t");
		for (end = line + strlen(line); end > line && strchr(" \t\r", end[-1]); end--)
			end[-1] = '\0';
		if (*line && *line != '#')
			complaints += apply(settings, line, path);
	}
	return complaints;
}

static __attribute__((noinline)) int apply_lines(struct tpck_settings *settings, int fd, const char *path, bool must)
{
	char text[16384];
	int complaints = 0;
	bool more;
	ssize_t got = read_lines(fd, text, sizeof text, &more);

	if (got < 0) {
		errno = (int)-got;
		return unreadable(path, must);
	}
	if (more) {
		tpck_log_warn("%s has more than %zu bytes; what comes after byte %zd is ignored", path, sizeof text - 1, got);
		complaints++;
	}
	return complaints + tpck_settings_parse_lines(settings, text, path);
}

/* A pipe or a device might let the program wait, or do what it does for who opens it. */
static __attribute__((noinline)) int apply_opened(struct tpck_settings *settings, int fd, const char *path, bool must)
{
	struct stat found = {0};

	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) == 0 && S_ISREG(found.st_mode))
		return apply_lines(settings, fd, path, must);
	errno = S_ISDIR(found.st_mode) ? EISDIR : EINVAL;
	tpck_sys_close(fd);
	return unreadable(path, must);
}

/* Mostly there is none, and room for its text is pages of the stack. */
static TPCK_AT_START int apply_file(struct tpck_settings *settings, const char *path, bool must)
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);

	return fd < 0 ? unreadable(path, must) : apply_opened(settings, fd, path, must);
}

/* In line: it is asked of every variable at the start of every program. */
static inline bool begins(const char *text, const char *with)
{
	while (*with && *with == *text)
		with++, text++;
	return !*with;
}

int tpck_settings_read(struct tpck_settings *settings, char *const *environment)
{
	memset(settings, 0, sizeof *settings);
	return tpck_settings_read_first(settings, environment);
}

TPCK_AT_START int tpck_settings_read_first(struct tpck_settings *settings, char *const *environment)
{
	static const char conf[] = PREFIX "CONF=", log[] = PREFIX "LOG=";
	const char *log_spec = NULL;
	int complaints = 0;

	for (const struct tpck_setting_row *row = tpck_setting_rows; row->name; row++)
		if (row->standard[0])
			tpck_settings_parse(row, row->standard, settings);
	for (char *const *e = environment; e && *e; e++)
		if (begins(*e, log))
			log_spec = *e + sizeof log - 1;
	if (log_spec)
		(void)tpck_log_configure(log_spec);
	complaints += apply_file(settings, "/etc/transpckpt.conf", false);
	for (char *const *e = environment; e && *e; e++)
		if (begins(*e, conf) && (*e)[sizeof conf - 1])
			complaints += apply_file(settings, *e + sizeof conf - 1, true);
	for (char *const *e = environment; e && *e; e++)
		if (begins(*e, PREFIX))
			complaints += apply(settings, *e, "environment");
	complaints += tpck_settings_settle(settings);
	if (tpck_log_configure(settings->log)) {
		tpck_log_warn("TRANSPCKPT_LOG=%s is not none, error, warn, info or debug with an optional :FILE; using warn",
			      settings->log);
		complaints++;
	}
	return complaints;
}

TPCK_AT_START int tpck_settings_settle(struct tpck_settings *settings)
{
	int complaints = 0;

	if (strcmp(settings->resume, "auto") != 0 && strcmp(settings->resume, "forward") != 0 && strcmp(settings->resume, "own") != 0 &&
	    strcmp(settings->resume, "never") != 0 && strcmp(settings->resume, "must") != 0 && (!settings->resume[0] ||
	    settings->resume[strspn(settings->resume, "0123456789")])) {
		tpck_log_warn("TRANSPCKPT_RESUME=%.80s is not auto, forward, own, never, must or a step; using auto", settings->resume);
		strcpy(settings->resume, "auto");
		complaints++;
	}
	return complaints + tpck_tiers_settle(settings->dir) + tpck_tiers_absolute(settings->shm);
}

TPCK_AT_START void tpck_settings_job_clean(char *job)
{
	for (char *p = job; *p; p++)
		if (*p == '/' || (unsigned char)*p < 0x21 || (p == job && *p == '.'))
			*p = '_';
}
