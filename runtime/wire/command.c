/* SPDX-License-Identifier: Apache-2.0 */
/* How a process was started, by what the kernel says of it. */
#include "config.h"

#include "runtime/wire/command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/kernel.h"

struct text {
	char *bytes;
	size_t size, room;
};

static int grow(struct text *text, size_t more)
{
	size_t room = text->room ? text->room : 64 << 10;
	char *larger;

	if (more > TPCK_COMMAND_MAX || text->size + more > TPCK_COMMAND_MAX)
		return -E2BIG;
	while (room < text->size + more)
		room *= 2;
	if (room == text->room)
		return 0;
	larger = realloc(text->bytes, room);
	if (!larger)
		return -ENOMEM;
	text->bytes = larger;
	text->room = room;
	return 0;
}

static int add(struct text *text, const void *bytes, size_t count)
{
	int rc = grow(text, count);

	if (!rc) {
		memcpy(text->bytes + text->size, bytes, count);
		text->size += count;
	}
	return rc;
}

static int add_link(struct text *text, pid_t process, const char *name)
{
	char path[64], to[PATH_MAX];
	ssize_t got;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
	got = tpck_sys_readlink(path, to, sizeof to - 1);
	if (got < 0)
		return -errno;
	to[got] = '\0';
	return add(text, to, (size_t)got + 1);
}

/* Strings with a NUL behind each; *count is how many. */
static int add_strings(struct text *text, pid_t process, const char *name, uint32_t *count)
{
	char path[64], piece[4096];
	size_t before = text->size;
	ssize_t got = 0;
	int fd, rc = 0;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	while (!rc && (got = tpck_sys_read(fd, piece, sizeof piece)) > 0)
		rc = add(text, piece, (size_t)got);
	if (!rc && got < 0)
		rc = -errno;
	tpck_sys_close(fd);
	if (!rc && text->size > before && text->bytes[text->size - 1])
		rc = add(text, "", 1);
	*count = 0;
	for (size_t i = before; !rc && i < text->size; i++)
		*count += !text->bytes[i];
	return rc;
}

static uint32_t personality_of(pid_t process)
{
	char path[64], text[16] = "";
	int fd;

	snprintf(path, sizeof path, "/proc/%d/personality", (int)process);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0) {
		(void)tpck_sys_read(fd, text, sizeof text - 1);
		tpck_sys_close(fd);
	}
	return (uint32_t)strtoul(text, NULL, 16);
}

int tpck_command_read(pid_t process, char **text, size_t *size, struct tpck_error *err)
{
	struct tpck_command_head head = {.personality = personality_of(process)};
	struct text made = {0};
	int rc = add(&made, &head, sizeof head);

	if (!rc)
		rc = add_link(&made, process, "exe");
	if (!rc)
		rc = add_link(&made, process, "cwd");
	if (!rc)
		rc = add_strings(&made, process, "cmdline", &head.arguments);
	if (!rc)
		rc = add_strings(&made, process, "environ", &head.variables);
	if (!rc && !head.arguments)
		rc = -ESRCH;
	if (rc) {
		free(made.bytes);
		return tpck_error_set(err, -rc, "reading how process %d was started", (int)process);
	}
	memcpy(made.bytes, &head, sizeof head);
	*text = made.bytes;
	*size = made.size;
	return 0;
}

/* The string at *at, which is moved behind it; NULL: there is none. */
static char *next(char **at, const char *end)
{
	char *string = *at, *last = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;

	if (!last)
		return NULL;
	*at = last + 1;
	return string;
}

static char **list(char **at, const char *end, uint32_t count)
{
	/* Each has a byte at least. */
	char **made = count <= (size_t)(end - *at) ? calloc((size_t)count + 1, sizeof *made) : NULL;

	for (uint32_t i = 0; made && i < count; i++) {
		made[i] = next(at, end);
		if (!made[i]) {
			free(made);
			return NULL;
		}
	}
	return made;
}

int tpck_command_parse(char *text, size_t size, struct tpck_command *command)
{
	const char *end = text + size;
	struct tpck_command_head head;
	char *at = text + sizeof head;

	*command = (struct tpck_command){0};
	if (size < sizeof head || size > TPCK_COMMAND_MAX)
		return -EBADMSG;
	memcpy(&head, text, sizeof head);
	command->personality = head.personality;
	command->program = next(&at, end);
	command->folder = next(&at, end);
	if (command->folder && head.arguments)
		command->arguments = list(&at, end, head.arguments);
	if (command->arguments)
		command->environment = list(&at, end, head.variables);
	if (command->environment && at == end)
		return 0;
	tpck_command_free(command);
	return -EBADMSG;
}

void tpck_command_free(struct tpck_command *command)
{
	free(command->arguments);
	free(command->environment);
	*command = (struct tpck_command){0};
}
