/* SPDX-License-Identifier: Apache-2.0 */
/* All settings, from environment, configuration files and defaults. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

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

/* Bytes of "node:" or "site:" at the begin of a tier; 0: it does not say its kind. */
static TPCK_AT_START size_t tier_kind(const char *tier)
{
	return strncmp(tier, "node:", 5) == 0 || strncmp(tier, "site:", 5) == 0 ? 5 : 0;
}

/* Of the first one of a list. */
static TPCK_AT_START size_t tier_length(const char *tiers)
{
	const char *comma = strchr(tiers, ',');

	return comma ? (size_t)(comma - tiers) : strlen(tiers);
}

/* A program may change its folder, and the agent leaves it: appends `path`, absolute. False: it is too long. */
static TPCK_AT_START bool append_absolute(char *to, const char *path, size_t length)
{
	size_t kind = tier_kind(path), used = strlen(to);
	char folder[TPCK_SETTING_TEXT_MAX] = "", whole[2 * TPCK_SETTING_TEXT_MAX + 8];

	if (path[kind] != '/' && (tpck_sys_getcwd(folder, sizeof folder) < 0 || folder[0] != '/'))
		folder[0] = '\0';
	snprintf(whole, sizeof whole, "%.*s%s%s%.*s", (int)kind, path, folder, folder[0] ? "/" : "", (int)(length - kind),
		 path + kind);
	if (used + strlen(whole) >= TPCK_SETTING_TEXT_MAX) {
		tpck_log_warn("%.200s, from the folder of this process, is too long a path", path);
		return false;
	}
	strcpy(to + used, whole);
	return true;
}

/* Whether `last`, a tier inside of the list, is there before. */
static TPCK_AT_START bool same_folder(const char *tiers, const char *last)
{
	const char *folder = last + tier_kind(last);

	for (; tiers < last; tiers += strcspn(tiers, ",") + 1) {
		size_t kind = tier_kind(tiers), length = strcspn(tiers, ",") - kind;

		if (length == strlen(folder) && strncmp(tiers + kind, folder, length) == 0)
			return true;
	}
	return false;
}

/* The list of tiers as it will be used: absolute, each once. Complaints. */
static TPCK_AT_START int settle_tiers(char *dir)
{
	char list[TPCK_SETTING_TEXT_MAX];
	unsigned count = 0;
	int complaints = 0;

	/* Mostly it is one folder. */
	if (dir[0] == '/' && !strchr(dir, ',') && !strchr(dir, ':'))
		return 0;
	strcpy(list, dir);
	dir[0] = '\0';
	for (const char *tier = list; *tier; tier += strcspn(tier, ",") + (tier[strcspn(tier, ",")] == ',')) {
		size_t length = strcspn(tier, ","), colon = strcspn(tier, ":"), before = strlen(dir);

		if (length == tier_kind(tier))
			continue;
		if (colon < length && colon < strcspn(tier, "/") && !tier_kind(tier)) {
			tpck_log_warn("TRANSPCKPT_DIR: '%.*s' is no kind of tier (node, site); the folder %.*s is used",
				      (int)colon, tier, (int)length, tier);
			complaints++;
		}
		if (count == TPCK_TIERS_MAX) {
			tpck_log_warn("TRANSPCKPT_DIR: only the first %d tiers are used; '%.400s' is not", TPCK_TIERS_MAX, tier);
			return complaints + 1;
		}
		if (before && before + 1 < TPCK_SETTING_TEXT_MAX)
			strcat(dir, ",");
		if (!append_absolute(dir, tier, length)) {
			complaints++;
			dir[before] = '\0';
			continue;
		}
		count++;
		if (before && same_folder(dir, dir + before + 1)) {
			tpck_log_warn("TRANSPCKPT_DIR: %.*s is there twice; it is one tier", (int)length, tier);
			complaints++;
			dir[before] = '\0';
			count--;
		}
	}
	return complaints;
}

static TPCK_AT_START int make_absolute(char *path)
{
	char given[TPCK_SETTING_TEXT_MAX];

	if (!path[0] || path[0] == '/')
		return 0;
	strcpy(given, path);
	path[0] = '\0';
	if (append_absolute(path, given, strlen(given)))
		return 0;
	strcpy(path, given);
	return 1;
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

	if (strcmp(settings->resume, "auto") != 0 && strcmp(settings->resume, "never") != 0 &&
	    strcmp(settings->resume, "must") != 0 && (!settings->resume[0] ||
	    settings->resume[strspn(settings->resume, "0123456789")])) {
		tpck_log_warn("TRANSPCKPT_RESUME=%.80s is not auto, never, must or a step; using auto", settings->resume);
		strcpy(settings->resume, "auto");
		complaints++;
	}
	return complaints + settle_tiers(settings->dir) + make_absolute(settings->shm);
}

TPCK_AT_START void tpck_settings_shm(const struct tpck_settings *settings, char *path, size_t size)
{
	static char known[TPCK_DOOR_MEMORY_NAME];
	static _Atomic uint64_t known_of; /* a user's number and one */
	char state[TPCK_SETTING_TEXT_MAX];
	struct tpck_text text = tpck_text_in(path, size);
	uint64_t user = (uint64_t)getuid() + 1;

	tpck_text_add(&text, settings->shm);
	if (settings->shm[0])
		return;
	/* A process stays with what it has found: the name is asked for often, and by several threads once there are some. */
	if (!known_of) {
		tpck_settings_state(state, sizeof state);
		tpck_door_memory(getuid(), state, known, sizeof known);
		known_of = user;
	}
	if (known_of == user) {
		tpck_text_add(&text, known);
		return;
	}
	tpck_settings_state(state, sizeof state);
	tpck_door_memory(getuid(), state, path, size);
}

TPCK_AT_START void tpck_settings_state(char *path, size_t size)
{
	tpck_settings_state_of(getenv("XDG_STATE_HOME"), getenv("HOME"), getuid(), path, size);
}

TPCK_AT_START void tpck_settings_state_of(const char *state, const char *home, uid_t uid, char *path, size_t size)
{
	struct tpck_text text = tpck_text_in(path, size);
	bool set = state && state[0] == '/';

	/* Without a home: of the user's own name, in a folder where others cannot replace it. */
	if (!set && !(home && home[0] == '/')) {
		tpck_text_add(&text, "/tmp/transpckpt-");
		tpck_text_number(&text, uid);
		return;
	}
	tpck_text_add(&text, set ? state : home);
	tpck_text_add(&text, set ? "/transpckpt" : "/.local/state/transpckpt");
}

TPCK_AT_START bool tpck_settings_tier(const struct tpck_settings *settings, unsigned index, char kind[TPCK_TIER_KIND], char *path,
			size_t size)
{
	struct tpck_text text = tpck_text_in(path, size), named = tpck_text_in(kind, TPCK_TIER_KIND);
	const char *tier = settings->dir;

	if (!tier[0]) {
		tpck_settings_state(path, size);
		return index == 0;
	}
	for (; index && *tier; index--)
		tier += tier_length(tier) + (tier[tier_length(tier)] == ',');
	if (!*tier)
		return false;
	if (tier_kind(tier))
		tpck_text_bytes(&named, tier, 4);
	tier += tier_kind(tier);
	tpck_text_bytes(&text, tier, tier_length(tier));
	return true;
}

void tpck_settings_shared_tier(const struct tpck_settings *settings, char *path, size_t size)
{
	char kind[TPCK_TIER_KIND];

	for (unsigned i = 0; tpck_settings_tier(settings, i, kind, path, size); i++)
		if (strcmp(kind, "site") == 0)
			return;
	(void)tpck_settings_tier(settings, 0, kind, path, size);
}

bool tpck_settings_are_local(const struct tpck_settings *settings)
{
	static const long local[] = {
		TMPFS_MAGIC, RAMFS_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,
	};
	char path[TPCK_SETTING_TEXT_MAX + 64];
	struct statfs found;

	tpck_settings_shared_tier(settings, path, sizeof path);
	/* What is not there yet will be where the nearest folder above it is. */
	while (tpck_sys_statfs(path, &found)) {
		char *slash = strrchr(path, '/');

		if (errno != ENOENT || !slash)
			return false;
		slash[slash == path] = '\0';
	}
	for (size_t i = 0; i < sizeof local / sizeof *local; i++)
		if ((long)found.f_type == local[i])
			return true;
	return false;
}

TPCK_AT_START void tpck_settings_store(const struct tpck_settings *settings, char *path, size_t size)
{
	char kind[TPCK_TIER_KIND];

	(void)tpck_settings_tier(settings, 0, kind, path, size);
}

TPCK_AT_START void tpck_settings_job_clean(char *job)
{
	for (char *p = job; *p; p++)
		if (*p == '/' || (unsigned char)*p < 0x21 || (p == job && *p == '.'))
			*p = '_';
}
