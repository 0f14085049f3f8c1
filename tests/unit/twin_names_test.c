/* SPDX-License-Identifier: Apache-2.0 */
/* Names of twins in /dev/shm: whose they are, and that those of twins that live stay, in other containers, too. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/wire/twin_names.h"
#include "tests/unit/store_tap.h"

#define SHM "/dev/shm"

static void make(const char *entry)
{
	char path[400];
	int fd;

	snprintf(path, sizeof path, SHM "/%s", entry);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	tap_ok(fd >= 0, path, "");
	close(fd);
}

static bool is_there(const char *entry)
{
	char path[400];

	snprintf(path, sizeof path, SHM "/%s", entry);
	return access(path, F_OK) == 0;
}

/* A twin as far as its names go; it says so by the descriptor. */
static pid_t twin(int tells)
{
	pid_t child = fork();

	if (!child) {
		char holds = tpck_twin_names_hold(getpid());

		alarm(60);
		(void)!write(tells, &holds, 1);
		for (;;)
			pause();
	}
	return child;
}

static unsigned found;
static char kinds[100], own_names[100];
static void look(int folder, const struct tpck_twin_name *name)
{
	(void)folder;
	found++;
	strncat(kinds, *name->kind ? "s" : "m", sizeof kinds - strlen(kinds) - 1);
	strncat(own_names, name->name, sizeof own_names - strlen(own_names) - 1);
}

static unsigned count(pid_t process)
{
	found = 0;
	kinds[0] = own_names[0] = '\0';
	tpck_twin_names_each(process, look);
	return found;
}

/* The same names in another container: of a namespace that is not this one's, and of the same process number. */
static void elsewhere(const char *name, char other[300])
{
	const char *at = strstr(name, TPCK_TWIN_NAMES) + strlen(TPCK_TWIN_NAMES);

	snprintf(other, 300, "%.*s1%s", (int)(at - name), name, at);
}

int main(void)
{
	char memory[200], semaphore[210], other[300], held[300], its_owner[200], text[400], like[2][100];
	int fds[2], lock, status;
	pid_t process;
	char holds = 0;

	if (pipe(fds))
		return 1;
	process = twin(fds[1]);
	tap_ok(read(fds[0], &holds, 1) == 1 && holds, "a twin holds its names", "");
	tap_ok(tpck_twin_name(text, sizeof text, process, "a.b") == (int)strlen(text) && text[0] == '/' && strcmp(text + strlen(text) - 4, ".a.b") == 0, "a name of it", text);
	snprintf(memory, sizeof memory, "%.190s", text + 1);
	snprintf(semaphore, sizeof semaphore, TPCK_SEMAPHORES "%s", memory);
	strcpy(its_owner, memory);
	its_owner[strlen(memory) - strlen(".a.b")] = '\0';
	make(memory);
	make(semaphore);
	tap_ok(count(process) == 2 && strstr(kinds, "m") && strstr(kinds, "s") && strcmp(own_names, "a.ba.b") == 0, "its names are found, of both kinds", own_names);
	tap_ok(count(process + 1) == 0, "and are no other twin's", "");

	elsewhere(memory, other);
	elsewhere(its_owner, held);
	make(other);
	make(held);
	snprintf(text, sizeof text, SHM "/%s", held);
	lock = open(text, O_RDWR);
	tap_ok(!flock(lock, LOCK_EX | LOCK_NB), "another container has a twin of that number", "");
	tap_ok(count(process) == 2, "whose names are not this one's", "");
	tpck_twin_names_clear();
	tap_ok(is_there(memory) && is_there(semaphore) && is_there(other) && is_there(its_owner) && is_there(held), "names of twins that live stay", "");
	tpck_twin_names_remove(process);
	tap_ok(!is_there(memory) && !is_there(semaphore) && !is_there(its_owner), "a twin's names are removed", "");
	tap_ok(is_there(other) && is_there(held), "and those of the other container's stay", "");
	close(lock);
	tpck_twin_names_clear();
	tap_ok(!is_there(other) && !is_there(held), "once it lives no more they go", "");

	kill(process, SIGKILL);
	waitpid(process, &status, 0);
	process = twin(fds[1]);
	tap_ok(read(fds[0], &holds, 1) == 1 && holds, "another twin", "");
	(void)tpck_twin_name(text, sizeof text, process, "c");
	make(text + 1);
	kill(process, SIGKILL);
	waitpid(process, &status, 0);
	tpck_twin_names_clear();
	tap_ok(count(process) == 0, "names of one that was killed go", "");
	snprintf(like[0], sizeof like[0], TPCK_TWIN_NAMES "mine%d", (int)getpid());
	snprintf(like[1], sizeof like[1], TPCK_TWIN_NAMES "f.%dx", (int)getpid());
	make(like[0]);
	make(like[1]);
	tpck_twin_names_clear();
	for (int i = 0; i < 2; i++) {
		tap_ok(is_there(like[i]), "what only looks like such a name stays", like[i]);
		snprintf(text, sizeof text, SHM "/%s", like[i]);
		unlink(text);
	}
	return tap_done();
}
