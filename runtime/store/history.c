/* SPDX-License-Identifier: Apache-2.0 */
/* The history file: read, appended to, cut. */
#include "config.h"

#include "runtime/store/history.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/store/file.h"

/* No file is as long, whoever wrote it. */
#define READ_BYTES_MAX (64u << 20)
#define LOCK_WAIT_NS 2000000000ull

/* ---- reading -------------------------------------------------------------------------------- */

static struct json_object *parse(const char *text, size_t size)
{
	struct json_tokener *tokener = json_tokener_new_ex(4);
	struct json_object *json, *member;

	if (!tokener)
		return NULL;
	json = json_tokener_parse_ex(tokener, text, (int)size);
	if (json_tokener_get_error(tokener) != json_tokener_success || json_tokener_get_parse_end(tokener) != size ||
	    !json_object_is_type(json, json_type_object) || !json_object_object_get_ex(json, "event", &member) ||
	    !json_object_is_type(member, json_type_string) || !json_object_object_get_ex(json, "at_ns", &member) ||
	    !json_object_is_type(member, json_type_int)) {
		json_object_put(json);
		json = NULL;
	}
	json_tokener_free(tokener);
	return json;
}

static int add(struct tpck_history *history, const char *text, size_t size)
{
	struct tpck_event event = {.json = size < TPCK_HISTORY_LINE ? parse(text, size) : NULL};

	if (!event.json) {
		history->bad++;
		return 0;
	}
	if (history->count == history->room) {
		size_t room = history->room ? history->room * 2 : 256;
		struct tpck_event *grown = reallocarray(history->events, room, sizeof *grown);

		if (grown) {
			history->events = grown;
			history->room = room;
		}
	}
	event.text = strndup(text, size);
	if (history->count == history->room || !event.text) {
		free(event.text);
		json_object_put(event.json);
		return -ENOMEM;
	}
	event.at_ns = tpck_event_number(&event, "at_ns");
	history->events[history->count++] = event;
	return 0;
}

int tpck_history_add(struct tpck_history *history, const char *lines, size_t size)
{
	int rc = 0;

	for (size_t at = 0, length; !rc && at < size; at += length + 1) {
		const char *end = memchr(lines + at, '\n', size - at);

		length = end ? (size_t)(end - lines) - at : size - at;
		if (length)
			rc = add(history, lines + at, length);
	}
	return rc;
}

int tpck_history_read(struct tpck_history *history, const char *path, struct tpck_error *err)
{
	struct tpck_error why = {0};
	size_t size;
	char *text;
	int rc = tpck_file_read(path, READ_BYTES_MAX, &text, &size, &why);

	if (rc == -ENOENT)
		return 0;
	if (rc) {
		if (err)
			*err = why;
		return rc;
	}
	rc = tpck_history_add(history, text, size);
	free(text);
	return rc ? tpck_error_set(err, -rc, "reading %s", path) : 0;
}

static int by_time(const void *a, const void *b)
{
	const struct tpck_event *x = a, *y = b;

	return x->at_ns != y->at_ns ? (x->at_ns < y->at_ns ? -1 : 1) : strcmp(x->text, y->text);
}

static void event_free(struct tpck_event *event)
{
	json_object_put(event->json);
	free(event->text);
}

void tpck_history_settle(struct tpck_history *history)
{
	size_t kept = 0;

	if (history->count)
		qsort(history->events, history->count, sizeof *history->events, by_time);
	for (size_t i = 0; i < history->count; i++) {
		if (kept && by_time(&history->events[kept - 1], &history->events[i]) == 0)
			event_free(&history->events[i]);
		else
			history->events[kept++] = history->events[i];
	}
	history->count = kept;
}

int tpck_history_load(struct tpck_history *history, const char *memory_job, const struct tpck_tiers *tiers,
		      struct tpck_error *err)
{
	struct tpck_error why = {0};
	char path[TPCK_PATH_MAX], *text;
	size_t size;
	int rc = 0, one;

	memset(history, 0, sizeof *history);
	if (memory_job && tpck_path_join(path, sizeof path, memory_job, TPCK_HISTORY) == 0)
		rc = tpck_history_read(history, path, err);
	for (size_t t = 0; tiers && t < tiers->count; t++) {
		/* What is somebody else's is not looked at by who acts on it. */
		one = tiers->tier[t]->operations->get_text(tiers->tier[t], TPCK_HISTORY, READ_BYTES_MAX, &text, &size, &why);
		if (!one) {
			one = tpck_history_add(history, text, size);
			free(text);
		}
		if (one && one != -ENOENT && one != -ENOTDIR) {
			rc = one;
			if (err)
				*err = why;
		}
	}
	tpck_history_settle(history);
	return rc;
}

void tpck_history_free(struct tpck_history *history)
{
	for (size_t i = 0; i < history->count; i++)
		event_free(&history->events[i]);
	free(history->events);
	memset(history, 0, sizeof *history);
}

static struct json_object *member(const struct tpck_event *event, const char *key)
{
	struct json_object *found;

	return json_object_object_get_ex(event->json, key, &found) ? found : NULL;
}

const char *tpck_event_text(const struct tpck_event *event, const char *key)
{
	struct json_object *found = member(event, key);

	return found && json_object_is_type(found, json_type_string) ? json_object_get_string(found) : "";
}

uint64_t tpck_event_number(const struct tpck_event *event, const char *key)
{
	struct json_object *found = member(event, key);
	bool number = found && (json_object_is_type(found, json_type_int) || json_object_is_type(found, json_type_double));

	return number ? json_object_get_uint64(found) : 0;
}

double tpck_event_real(const struct tpck_event *event, const char *key)
{
	struct json_object *found = member(event, key);
	double value = found && (json_object_is_type(found, json_type_int) || json_object_is_type(found, json_type_double))
			       ? json_object_get_double(found) : 0;

	return value > 0 && value < 1e18 ? value : 0;
}

bool tpck_event_is(const struct tpck_event *event, const char *kind)
{
	return strcmp(tpck_event_text(event, "event"), kind) == 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* The file, locked: whoever cuts it puts another one in its place. */
static int open_locked(struct tpck_below below, const char *path, struct tpck_error *err)
{
	uint64_t until = tpck_clock_monotonic_ns() + LOCK_WAIT_NS;

	for (;;) {
		int fd = openat(below.at, path + below.skip, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		struct stat held, there;
		bool locked;

		if (fd < 0)
			return tpck_error_set(err, errno, "opening %s", path);
		if (fstat(fd, &held) || !S_ISREG(held.st_mode)) {
			close(fd);
			return tpck_error_set(err, EINVAL, "opening %s", path);
		}
		locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
		/* A file system without locks has none to wait for. */
		if (!locked && (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS))
			return fd;
		if (locked && fstatat(below.at, path + below.skip, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == held.st_ino && there.st_dev == held.st_dev)
			return fd;
		close(fd);
		if (tpck_clock_monotonic_ns() > until)
			return tpck_error_set(err, EBUSY, "locking %s", path);
		if (!locked)
			usleep(5000);
	}
}

/* The newest lines of a file, half of what it may hold, take its place. The lock is held. */
static int cut(struct tpck_below below, const char *path, uint64_t limit, struct tpck_error *err)
{
	size_t size, from;
	char *text, *line;
	int rc = tpck_file_read_below(below, path, READ_BYTES_MAX, &text, &size, err);

	if (rc)
		return rc;
	from = size > limit / 2 ? size - (size_t)(limit / 2) : 0;
	/* From the begin of a line; where one line is longer than all that, from its begin. */
	line = from ? memchr(text + from - 1, '\n', size - from + 1) : NULL;
	if (from && line && line + 1 < text + size)
		from = (size_t)(line + 1 - text);
	else
		while (from && text[from - 1] != '\n')
			from--;
	rc = from ? tpck_file_write_below(below, path, text + from, size - from, TPCK_FILE_DURABLE, err) : 0;
	free(text);
	return rc;
}

int tpck_history_append(struct tpck_below below, const char *path, const char *lines, size_t size, uint64_t limit, struct tpck_error *err)
{
	struct stat status;
	char *with = NULL, last;
	ssize_t put;
	int rc = 0, fd = open_locked(below, path, err);

	if (fd < 0)
		return fd;
	/* In one write: without locks lines of others come before or behind it, not in between. */
	if (fstat(fd, &status) == 0 && status.st_size > 0 && pread(fd, &last, 1, status.st_size - 1) == 1 && last != '\n') {
		with = malloc(size + 1);
		if (with) {
			with[0] = '\n';
			memcpy(with + 1, lines, size);
			lines = with;
			size++;
		}
	}
	put = write(fd, lines, size);
	if (put != (ssize_t)size)
		rc = tpck_error_set(err, put < 0 ? errno : ENOSPC, "writing %s", path);
	/* Half a line is nobody's; the next writer would close it, and lines that are tried again come twice. */
	if (put > 0 && rc)
		(void)!ftruncate(fd, status.st_size);
	if (!rc && fdatasync(fd))
		rc = tpck_error_set(err, errno, "syncing %s", path);
	if (!rc && fstat(fd, &status) == 0 && (uint64_t)status.st_size > limit)
		rc = cut(below, path, limit, err);
	close(fd);
	free(with);
	return rc;
}

static bool has(const struct tpck_history *history, const struct tpck_event *event)
{
	return history->count && bsearch(event, history->events, history->count, sizeof *event, by_time);
}

int tpck_history_missing(const struct tpck_history *history, const struct tpck_history *have, char **lines, size_t *size)
{
	uint64_t oldest = have->count ? have->events[0].at_ns : 0;
	size_t room = 0, used = 0;
	char *text;

	for (size_t i = 0; i < history->count; i++)
		room += strlen(history->events[i].text) + 1;
	text = malloc(room + 1);
	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < history->count; i++) {
		const struct tpck_event *event = &history->events[i];
		size_t length = strlen(event->text);

		if (event->at_ns < oldest || has(have, event))
			continue;
		memcpy(text + used, event->text, length);
		text[used + length] = '\n';
		used += length + 1;
	}
	*lines = text;
	*size = used;
	return 0;
}
