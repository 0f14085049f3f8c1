/* SPDX-License-Identifier: Apache-2.0 */
/* Starting over by execve: what a process has at its start and keeps across an execve is put back first. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/replay/restart.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/layout.h"

enum { DESCRIPTORS_MAX = 1024, SIGNALS = 65 };
enum { TERM_MS = 1000, KILL_MS = 2000, STEP_MS = 5 };

/* NUL-terminated texts one behind the other, and the list that execve wants: `extra` free places and NULL. */
struct texts {
	char *bytes, **list;
	size_t used, count;
};

static struct texts arguments, variables;
static char folder[4096] TPCK_LARGE;
static unsigned char open_at_start[DESCRIPTORS_MAX / 8];
static sigset_t mask_at_start;
static bool ignored_at_start[SIGNALS];
static mode_t umask_at_start;
static off_t input_at_start;
static _Atomic bool input_taken;
static const char *(*launcher)(void);
static char meeting[40]; /* MASTER_PORT=..., where ranks that start over meet; "": where they met before */

/* ---- remembering ---------------------------------------------------------------------------------- */

static int list_texts(struct texts *texts, size_t extra)
{
	texts->count = 0;
	for (size_t at = 0; at < texts->used; at += strlen(texts->bytes + at) + 1)
		texts->count++;
	texts->list = calloc(texts->count + extra + 1, sizeof *texts->list);
	if (!texts->list)
		return -ENOMEM;
	texts->count = 0;
	for (size_t at = 0; at < texts->used; at += strlen(texts->bytes + at) + 1)
		texts->list[texts->count++] = texts->bytes + at;
	return 0;
}

static void remember_variables(char *const *environment)
{
	size_t bytes = 0;

	for (char *const *e = environment; e && *e; e++)
		bytes += strlen(*e) + 1;
	variables.bytes = malloc(bytes + 1);
	if (!variables.bytes)
		return;
	for (char *const *e = environment; e && *e; e++) {
		size_t length = strlen(*e) + 1;

		memcpy(variables.bytes + variables.used, *e, length);
		variables.used += length;
	}
	list_texts(&variables, 1);
}

/* Now, and not when it is needed: a program may write over its arguments to be called otherwise. */
static void remember_arguments(void)
{
	int fd = tpck_sys_openat(AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
	size_t size = 0;
	ssize_t got = 1;

	while (fd >= 0 && got > 0) {
		if (size - arguments.used < 4096) {
			char *grown = realloc(arguments.bytes, size = size * 2 + 16384);

			if (!grown)
				break;
			arguments.bytes = grown;
		}
		got = tpck_sys_read(fd, arguments.bytes + arguments.used, size - arguments.used - 1);
		arguments.used += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	if (got || !arguments.bytes)
		return;
	arguments.bytes[arguments.used] = '\0';
	list_texts(&arguments, 0);
}

static void each_descriptor(void (*call)(int fd))
{
	char buffer[8192];
	int list = tpck_sys_openat(AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	ssize_t got;

	if (list < 0)
		return;
	while ((got = tpck_sys_getdents(list, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const char *name = ((struct dirent64 *)at)->d_name;

			if (*name != '.' && atoi(name) != list)
				call(atoi(name));
		}
	tpck_sys_close(list);
}

static void remember_descriptor(int fd)
{
	if (fd < DESCRIPTORS_MAX)
		open_at_start[fd / 8] |= (unsigned char)(1u << (fd % 8));
}

void tpck_restart_remember(char *const *environment)
{
	remember_variables(environment);
	remember_arguments();
	tpck_sys_getcwd(folder, sizeof folder);
	each_descriptor(remember_descriptor);
	input_at_start = tpck_sys_lseek(STDIN_FILENO, 0, SEEK_CUR);
	umask_at_start = tpck_sys_umask(077);
	tpck_sys_umask(umask_at_start);
	sigprocmask(SIG_SETMASK, NULL, &mask_at_start);
	for (int s = 1; s < SIGNALS; s++) {
		struct sigaction action;

		ignored_at_start[s] = !sigaction(s, NULL, &action) && action.sa_handler == SIG_IGN;
	}
}

/* ---- what cannot be done twice ---------------------------------------------------------------------- */

void tpck_restart_input_taken(void)
{
	input_taken = true;
}

TPCK_AT_START void tpck_restart_launcher(const char *(*joined)(void))
{
	launcher = joined;
}

/* A file is read again from where it was at the start. What came by a pipe or a terminal is gone. */
bool tpck_restart_input_gone(void)
{
	struct stat found;

	if (tpck_sys_fstatat(STDIN_FILENO, "", &found, AT_EMPTY_PATH) || S_ISREG(found.st_mode) ||
	    (S_ISCHR(found.st_mode) && found.st_rdev == makedev(1, 3)))
		return false;
	/* The C library reads into the stream's buffer by calls of its own. */
	return input_taken || (fileno_unlocked(stdin) == STDIN_FILENO &&
			       (feof_unlocked(stdin) || stdin->_IO_read_end != stdin->_IO_read_base));
}

const char *tpck_restart_joined(void)
{
	return launcher ? launcher() : NULL;
}

void tpck_restart_meet(unsigned port)
{
	if (port)
		snprintf(meeting, sizeof meeting, "MASTER_PORT=%u", port);
}

const char *tpck_restart_obstacle(void)
{
	return tpck_restart_input_gone() ? "it has read from standard input" : tpck_restart_joined();
}

/* ---- children --------------------------------------------------------------------------------------- */

static pid_t parent_of(const char *name)
{
	char path[64], text[512], *end;
	ssize_t got;
	int fd;

	snprintf(path, sizeof path, "/proc/%.20s/stat", name);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	got = tpck_sys_read(fd, text, sizeof text - 1);
	tpck_sys_close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	/* "pid (name) state parent": the name may hold anything. */
	end = strrchr(text, ')');
	return end && strlen(end) > 4 ? atoi(end + 4) : 0;
}

/* Sends the signal to every child; how many there are. */
static unsigned signal_children(int signal_number, pid_t spared)
{
	int processes = tpck_sys_openat(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char buffer[8192];
	pid_t self = getpid();
	unsigned count = 0;
	ssize_t got;

	if (processes < 0)
		return 0;
	while ((got = tpck_sys_getdents(processes, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const char *name = ((struct dirent64 *)at)->d_name;
			pid_t pid = *name >= '1' && *name <= '9' ? atoi(name) : 0;

			if (pid && pid != spared && pid != self && parent_of(name) == self) {
				count++;
				if (signal_number)
					kill(pid, signal_number);
			}
		}
	tpck_sys_close(processes);
	return count;
}

static void end_children(pid_t spared)
{
	static const struct {
		int number, limit_ms;
	} signals[] = {{SIGTERM, TERM_MS}, {SIGKILL, KILL_MS}};
	const struct timespec step = {0, STEP_MS * 1000000};

	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
		if (!signal_children(signals[i].number, spared))
			return;
		if (signals[i].number == SIGTERM)
			signal_children(SIGCONT, spared);
		for (int ms = 0; ms < signals[i].limit_ms; ms += STEP_MS) {
			while (tpck_sys_wait4(-1, NULL, 0x40000001 /* __WALL | WNOHANG */, NULL) > 0)
				;
			if (!signal_children(0, spared))
				return;
			tpck_sys_nanosleep(&step, NULL);
		}
	}
}

/* ---- starting over ------------------------------------------------------------------------------------ */

static void close_later(int fd)
{
	if (fd > 2 && (fd >= DESCRIPTORS_MAX || !(open_at_start[fd / 8] >> (fd % 8) & 1)))
		tpck_sys_fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void restore_signals(void)
{
	static const struct itimerval none;

	for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++)
		tpck_sys_setitimer(which, &none, NULL);
	for (int s = 1; s < SIGNALS; s++)
		if (s != SIGKILL && s != SIGSTOP)
			signal(s, ignored_at_start[s] ? SIG_IGN : SIG_DFL);
}

/* What stands in the place of a variable, or NULL: it goes. */
static char *variable_now(char *variable, bool resumes)
{
	static char own_store[] = "TORCHELASTIC_USE_AGENT_STORE=False";

	if (!resumes && strncmp(variable, "TRANSPCKPT_RESUME=", 18) == 0)
		return NULL;
	/* At the old place some ranks would still meet others that have not begun anew, and the store of torchrun's agent
	 * remembers what was said in it. */
	if (meeting[0] && strncmp(variable, "MASTER_PORT=", 12) == 0)
		return meeting;
	if (meeting[0] && strncmp(variable, own_store, strcspn(own_store, "=") + 1) == 0)
		return own_store;
	return variable;
}

int tpck_restart(pid_t spared, bool resumes)
{
	static char never[] = "TRANSPCKPT_RESUME=never";
	struct stat input;
	size_t kept = 0;

	if (!arguments.list || !variables.list)
		return -ENOMEM;
	for (size_t i = 0; i < variables.count; i++) {
		char *now = variable_now(variables.list[i], resumes);

		if (now)
			variables.list[kept++] = now;
	}
	if (!resumes)
		variables.list[kept++] = never;
	variables.list[kept] = NULL;
	if (folder[0] && tpck_sys_chdir(folder))
		return -errno;
	restore_signals();
	end_children(spared);
	if (!tpck_sys_fstatat(STDIN_FILENO, "", &input, AT_EMPTY_PATH) && S_ISREG(input.st_mode) && input_at_start >= 0)
		tpck_sys_lseek(STDIN_FILENO, input_at_start, SEEK_SET);
	tpck_sys_umask(umask_at_start);
	each_descriptor(close_later);
	sigprocmask(SIG_SETMASK, &mask_at_start, NULL);
	tpck_sys_execve("/proc/self/exe", arguments.list, variables.list);
	return -errno;
}
