/* SPDX-License-Identifier: Apache-2.0 */
/* One logger for every process of ours. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/base/unsignalled.h"

static const char *const level_names[] = {"none", "error", "warn", "info", "debug"};
static enum tpck_log_level level_now = TPCK_LOG_WARN;
static char file_path[512] TPCK_LARGE;
static int file_fd = -1;
static int held_back;

TPCK_AT_START int tpck_log_configure(const char *spec)
{
	const char *colon = strchr(spec, ':');
	size_t length = colon ? (size_t)(colon - spec) : strlen(spec);

	for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++) {
		if (strlen(level_names[i]) != length || strncmp(level_names[i], spec, length) != 0)
			continue;
		if (colon && (!colon[1] || strlen(colon + 1) >= sizeof file_path))
			return -EINVAL;
		level_now = (enum tpck_log_level)i;
		if (colon)
			strcpy(file_path, colon + 1);
		return 0;
	}
	return -EINVAL;
}

enum tpck_log_level tpck_log_level(void)
{
	return level_now;
}

TPCK_AT_START void tpck_log_hold(int held)
{
	held_back = held;
}

/* What goes wrong at each snapshot would fill a terminal. Places in the code that write lines, as they came; what finds no room is not counted. */
enum { PLACES = 64, LINES_MAX = 8 };
#define MINUTE_NS 60000000000ull

static struct counted {
	_Atomic(const void *) place;
	_Atomic uint64_t since;
	_Atomic uint32_t written, left_out;
} counted[PLACES] TPCK_LARGE;

/* Whether one more line from there is to be written; `before`: how many were not, since one was. */
static bool is_welcome(const void *place, uint32_t *before)
{
	uint64_t now = tpck_clock_coarse_ns();
	struct counted *c = NULL;

	for (size_t i = 0; i < PLACES && !c; i++) {
		const void *there = atomic_load(&counted[i].place);

		if (there == place || (!there && atomic_compare_exchange_strong(&counted[i].place, &there, place)) || there == place)
			c = &counted[i];
	}
	*before = 0;
	if (!c)
		return true;
	if (now - atomic_load(&c->since) > MINUTE_NS) {
		atomic_store(&c->since, now);
		atomic_store(&c->written, 0);
	}
	if (atomic_fetch_add(&c->written, 1) >= LINES_MAX) {
		atomic_fetch_add(&c->left_out, 1);
		return false;
	}
	*before = atomic_exchange(&c->left_out, 0);
	return true;
}

/* Compilers make one call of two that differ in their format only, and several places may have the same one. */
static const void *place_of(const void *caller, const char *format)
{
	return (const void *)((uintptr_t)caller ^ (uintptr_t)format * 31);
}

/* By system call, so that a line of ours never meets our own hook of open(). */
static int destination(void)
{
	if (!file_path[0])
		return STDERR_FILENO;
	if (file_fd < 0)
		file_fd = tpck_sys_openat(AT_FDCWD, file_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return file_fd < 0 ? STDERR_FILENO : file_fd;
}

void tpck_log(enum tpck_log_level level, const char *format, ...)
{
	int saved = errno;
	struct tpck_unsignalled signals;
	char line[1024];
	va_list args;
	uint32_t before = 0;
	int prefix, text;
	size_t length;

	if (level > level_now || held_back)
		return;
	if (level <= TPCK_LOG_WARN && !is_welcome(place_of(__builtin_return_address(0), format), &before)) {
		errno = saved;
		return;
	}
	prefix = snprintf(line, sizeof line, "transpckpt: ");
	va_start(args, format);
	errno = saved;
	text = vsnprintf(line + prefix, sizeof line - (size_t)prefix - 1, format, args);
	va_end(args);
	if (text >= 0) {
		length = strlen(line);
		if (before)
			length += (size_t)snprintf(line + length, sizeof line - length - 1, " (and %u more such lines in the last minutes)", before);
		length = length < sizeof line - 1 ? length : sizeof line - 2;
		line[length++] = '\n';
		tpck_unsignalled_begin(&signals);
		if (tpck_sys_write(destination(), line, length) < 0)
			file_path[0] = '\0';
		tpck_unsignalled_end(&signals);
	}
	errno = saved;
}
