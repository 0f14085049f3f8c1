/* SPDX-License-Identifier: Apache-2.0 */
/* All settings, from environment, configuration files and defaults, read once. */
#ifndef TPCK_RUNTIME_BASE_SETTINGS_H
#define TPCK_RUNTIME_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An interval: automatic, or so many iterations, or so many seconds. */
struct tpck_interval {
	enum { TPCK_INTERVAL_AUTO, TPCK_INTERVAL_ITERATIONS, TPCK_INTERVAL_SECONDS } unit;
	double count;
};

/* Copies on other nodes: so many, which is how many losses are survived beside the node's own; or, where `data` is not 0 and there are as many nodes,
 * `data` + `parity` fragments of which any `data` are enough, which survive as many. */
struct tpck_copies {
	uint64_t count;
	uint32_t data, parity;
};

enum { TPCK_SETTING_TEXT_MAX = 1024, TPCK_SETTING_FRAGMENTS_MAX = 32 };

#define TPCK_SETTING_TYPE_STRING char
#define TPCK_SETTING_TEXT_STRING(field) char field[TPCK_SETTING_TEXT_MAX];
#define TPCK_SETTING_TEXT_PATH(field) char field[TPCK_SETTING_TEXT_MAX];
#define TPCK_SETTING_FIELD_CHOICE(field) char field[32];
#define TPCK_SETTING_FIELD_BOOL(field) bool field;
#define TPCK_SETTING_FIELD_COUNT(field) uint64_t field;
#define TPCK_SETTING_FIELD_COPIES(field) struct tpck_copies field;
#define TPCK_SETTING_FIELD_BYTES(field) uint64_t field;
#define TPCK_SETTING_FIELD_RATE(field) uint64_t field;
#define TPCK_SETTING_FIELD_PERCENT(field) double field;
#define TPCK_SETTING_FIELD_SECONDS(field) double field;
#define TPCK_SETTING_FIELD_INTERVAL(field) struct tpck_interval field;

/* Texts are not of the one kind, and all else is not of the other. */
#define TPCK_SETTING_FIELD_STRING(field)
#define TPCK_SETTING_FIELD_PATH(field)
#define TPCK_SETTING_TEXT_CHOICE(field)
#define TPCK_SETTING_TEXT_BOOL(field)
#define TPCK_SETTING_TEXT_COUNT(field)
#define TPCK_SETTING_TEXT_COPIES(field)
#define TPCK_SETTING_TEXT_BYTES(field)
#define TPCK_SETTING_TEXT_RATE(field)
#define TPCK_SETTING_TEXT_PERCENT(field)
#define TPCK_SETTING_TEXT_SECONDS(field)
#define TPCK_SETTING_TEXT_INTERVAL(field)

/* Texts, most of which are empty, lie behind the rest, so that a start touches few pages. */
struct tpck_settings {
#define TPCK_SETTING(field, name, type, standard, choices, help) TPCK_SETTING_FIELD_##type(field)
#include "runtime/base/settings.def"
#undef TPCK_SETTING
#define TPCK_SETTING(field, name, type, standard, choices, help) TPCK_SETTING_TEXT_##type(field)
#include "runtime/base/settings.def"
#undef TPCK_SETTING
};

struct tpck_setting_row {
	const char *name; /* with TRANSPCKPT_ */
	const char *type;
	const char *standard;
	const char *choices; /* "a|b" or NULL */
	const char *help;
	size_t offset; /* in struct tpck_settings */
};

/* The table, ended by a row whose name is NULL. */
extern const struct tpck_setting_row tpck_setting_rows[];

/* Fills *settings: environment beats $TRANSPCKPT_CONF beats /etc/transpckpt.conf beats defaults.
 * An unknown TRANSPCKPT_ name and a bad value are one warning each and count as not given.
 * Returns how many such complaints there were. */
int tpck_settings_read(struct tpck_settings *settings, char *const *environment);
/* The same where *settings is all zeros; what is not set is not written. */
int tpck_settings_read_first(struct tpck_settings *settings, char *const *environment);

/* Parses text into the field of a row. 0, or -EINVAL with the field untouched. */
int tpck_settings_parse(const struct tpck_setting_row *row, const char *text,
			struct tpck_settings *settings);

/* Parses the lines of a configuration file, a NUL behind them, which are changed. Complaints name `path`; their number. */
int tpck_settings_parse_lines(struct tpck_settings *settings, char *text, const char *path);
/* Once all were given: which step a start goes on from is one, tiers and the memory tier's folder are absolute, each once. The
 * number of complaints. */
int tpck_settings_settle(struct tpck_settings *settings);

/* A job's name is the name of its folders: so many bytes of what the user says, and what a folder's name cannot have
 * becomes '_'. */
enum { TPCK_SETTINGS_JOB_MAX = 100 };
void tpck_settings_job_clean(char *job);

#endif
