/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what runs a program: the kernel finds it by its path, where one that is pending has to be by then. */
#include "config.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/layout.h"
#include "runtime/base/lock_order.h"
#include "runtime/files/files.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/twin/supervisor.h"
#include "shim/driver.h"

extern char **environ;

/* The one behind ours, which may be another library's that follows programs. It is looked up at the start: the child of a fork of a
 * program with threads may not look symbols up. */
static int (*next)(const char *, char *const[], char *const[]);

TPCK_AT_START void tpck_hooks_execute(void)
{
	next = (int (*)(const char *, char *const[], char *const[]))tpck_real_dlsym(RTLD_NEXT, "execve");
}

/* The kernel has said no. */
static int refused(int folder, const char *path)
{
	if (tpck_files_owes() && tpck_readable_path(path))
		tpck_files_through(folder, path, TPCK_THROUGH_PATH);
	return -1;
}

/* The variables of a program with what it is to be told. */
#define TOLD(variables)                                                                                      \
	do {                                                                                                 \
		size_t room_ = tpck_caches_hiding() ? tpck_caches_room_slow(variables) : 0;                  \
		if (room_)                                                                                   \
			(variables) = tpck_caches_told(variables, alloca(room_ * sizeof(char *)), room_);    \
	} while (0)

static bool executes(const char *path, char *const arguments[], char *const variables[], struct tpck_programs_instead *instead)
{
	bool other = tpck_programs_execute(path, arguments, variables, instead);

	tpck_network_executes((int)syscall(SYS_getpid), tpck_programs_here());
	return other;
}

static int execute(int folder, const char *path, char *const arguments[], char *const variables[], int flags)
{
	struct tpck_programs_instead instead;

	if (tpck_files_owes() && tpck_readable_path(path) && tpck_files_runs(folder, path))
		return -1;
	TOLD(variables);
	tpck_supervisor_leaves(true);
	if (folder != AT_FDCWD || flags)
		(void)syscall(SYS_execveat, folder, path, arguments, variables, flags);
	else if (tpck_readable_path(path) && executes(path, arguments, variables, &instead))
		(void)syscall(SYS_execve, instead.path, instead.arguments, instead.variables);
	else
		(void)(next ? next(path, arguments, variables) : (int)syscall(SYS_execve, path, arguments, variables));
	tpck_supervisor_leaves(false);
	if (folder == AT_FDCWD && !flags)
		tpck_programs_failed();
	return refused(folder, path);
}

TPCK_EXPORT int execve(const char *path, char *const arguments[], char *const variables[])
{
	return execute(AT_FDCWD, path, arguments, variables, 0);
}

/* A program that is known by a descriptor. One that has no path any more, as a file in memory, is told by its number, which it keeps where it is started
 * later. */
static int execute_descriptor(int fd, char *const arguments[], char *const variables[], int flags)
{
	struct tpck_programs_instead instead;
	char link[40], path[PATH_MAX];
	int kept;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = syscall(SYS_readlink, link, path, sizeof path - 1);
	path[got > 0 ? got : 0] = '\0';
	if (got > 0 && (path[0] != '/' || syscall(SYS_faccessat, AT_FDCWD, path, X_OK))) {
		strcpy(path, link);
		kept = (int)syscall(SYS_fcntl, fd, F_GETFD);
	} else {
		kept = -1;
	}
	TOLD(variables);
	tpck_supervisor_leaves(true);
	if (got > 0 && executes(path, arguments, variables, &instead)) {
		if (kept >= 0)
			(void)syscall(SYS_fcntl, fd, F_SETFD, kept & ~FD_CLOEXEC);
		(void)syscall(SYS_execve, instead.path, instead.arguments, instead.variables);
		if (kept >= 0)
			(void)syscall(SYS_fcntl, fd, F_SETFD, kept);
	} else {
		(void)syscall(SYS_execveat, fd, "", arguments, variables, flags);
	}
	tpck_supervisor_leaves(false);
	tpck_programs_failed();
	return -1;
}

TPCK_EXPORT int fexecve(int fd, char *const arguments[], char *const variables[])
{
	TPCK_MAYBE_NULL(arguments);
	TPCK_MAYBE_NULL(variables);
	if (fd < 0 || !arguments || !variables) {
		errno = EINVAL;
		return -1;
	}
	return execute_descriptor(fd, arguments, variables, AT_EMPTY_PATH);
}

TPCK_EXPORT int execveat(int folder, const char *path, char *const arguments[], char *const variables[], int flags)
{
	char whole[PATH_MAX], link[40];
	ssize_t got;

	if (!tpck_readable_path(path) || (flags & ~AT_EMPTY_PATH))
		return execute(folder, path, arguments, variables, flags);
	if (!*path && flags && folder >= 0)
		return execute_descriptor(folder, arguments, variables, flags);
	if (*path == '/' || folder == AT_FDCWD)
		return *path ? execute(AT_FDCWD, path, arguments, variables, 0) : execute(folder, path, arguments, variables, flags);
	snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
	got = syscall(SYS_readlink, link, whole, sizeof whole - 1);
	if (got <= 0 || (size_t)got + strlen(path) + 2 > sizeof whole || whole[0] != '/')
		return execute(folder, path, arguments, variables, flags);
	whole[got] = '/';
	strcpy(whole + got + 1, path);
	return execute(AT_FDCWD, whole, arguments, variables, 0);
}

TPCK_EXPORT int execv(const char *path, char *const arguments[])
{
	return execute(AT_FDCWD, path, arguments, environ, 0);
}

/* ---- along PATH, as glibc does it ------------------------------------------------------------- */

/* A file that the kernel does not know how to run is a shell's. */
static void run_script(const char *path, char *const arguments[], char *const variables[])
{
	size_t count = 0;
	char **given;

	while (arguments[count])
		count++;
	given = alloca((count + 3) * sizeof *given);
	given[0] = (char *)"/bin/sh";
	given[1] = (char *)path;
	given[2] = NULL;
	if (count > 1)
		memcpy(given + 2, arguments + 1, count * sizeof *arguments);
	(void)execute(AT_FDCWD, given[0], given, variables, 0);
}

static void run(const char *path, char *const arguments[], char *const variables[])
{
	(void)execute(AT_FDCWD, path, arguments, variables, 0);
	if (errno == ENOEXEC)
		run_script(path, arguments, variables);
}

static bool is_elsewhere(int error)
{
	return error == EACCES || error == ENOENT || error == ESTALE || error == ENOTDIR || error == ENODEV || error == ETIMEDOUT;
}

static int search(const char *name, char *const arguments[], char *const variables[])
{
	const char *folders = getenv("PATH"), *end;
	size_t length = strnlen(name, NAME_MAX + 1);
	char path[PATH_MAX + NAME_MAX + 2];
	bool refused = false;

	if (!length || length > NAME_MAX) {
		errno = length ? ENAMETOOLONG : ENOENT;
		return -1;
	}
	for (const char *at = folders ? folders : "/bin:/usr/bin";; at = end + 1) {
		size_t used;

		end = strchrnul(at, ':');
		used = (size_t)(end - at);
		if (used < PATH_MAX) {
			memcpy(path, at, used);
			if (used)
				path[used++] = '/';
			memcpy(path + used, name, length + 1);
			run(path, arguments, variables);
			refused = refused || errno == EACCES;
			if (!is_elsewhere(errno))
				return -1;
		}
		if (!*end)
			break;
	}
	if (refused)
		errno = EACCES;
	return -1;
}

TPCK_EXPORT int execvpe(const char *name, char *const arguments[], char *const variables[])
{
	if (!strchr(name, '/'))
		return search(name, arguments, variables);
	run(name, arguments, variables);
	return -1;
}

TPCK_EXPORT int execvp(const char *name, char *const arguments[])
{
	return execvpe(name, arguments, environ);
}

/* ---- arguments one by one --------------------------------------------------------------------- */

/* How many there are up to the NULL, with `first`. */
static size_t count_of(const char *first, va_list *args)
{
	size_t count = 0;

	for (const char *argument = first; argument; argument = va_arg(*args, const char *))
		count++;
	return count;
}

static void fill(char **arguments, size_t count, const char *first, va_list *args)
{
	for (size_t i = 0; i <= count; i++)
		arguments[i] = i ? va_arg(*args, char *) : (char *)first;
}

/* The array is on the stack of who calls: nothing may be allocated here. Behind the NULL may come the variables. */
#define EXECUTE_LIST(call)                                \
	char **arguments;                                 \
	va_list args;                                     \
	size_t count;                                     \
	va_start(args, first);                            \
	count = count_of(first, &args);                   \
	va_end(args);                                     \
	arguments = alloca((count + 1) * sizeof *arguments); \
	va_start(args, first);                            \
	fill(arguments, count, first, &args);             \
	call;                                             \
	va_end(args)

TPCK_EXPORT int execl(const char *path, const char *first, ...)
{
	int result;
	EXECUTE_LIST(result = execv(path, arguments));

	return result;
}

TPCK_EXPORT int execlp(const char *name, const char *first, ...)
{
	int result;
	EXECUTE_LIST(result = execvp(name, arguments));

	return result;
}

TPCK_EXPORT int execle(const char *path, const char *first, ...)
{
	int result;
	EXECUTE_LIST(result = execve(path, arguments, va_arg(args, char **)));

	return result;
}

/* ---- by the C library's own child -------------------------------------------------------------- */

typedef int (*spawn_type)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
			  char *const[]);

/* 0, or an errno. */
static int comes(const char *path)
{
	int saved = errno, error = 0;

	if (tpck_files_owes() && tpck_readable_path(path) && tpck_files_runs(AT_FDCWD, path))
		error = errno;
	errno = saved;
	return error;
}

/* What posix_spawn_file_actions_t holds: glibc's own, the same since 2.2 but for more kinds at the end. */
struct action {
	enum { CLOSES, DUPLICATES, OPENS, OTHER } kind;
	union {
		int fd;
		struct {
			int fd, to;
		} duplicate;
		struct {
			int fd;
			char *path;
			int flags;
			mode_t mode;
		} open;
	};
};

/* How the child gets its output. */
struct output {
	int fds[3];    /* this process's descriptor that becomes the child's 1 or 2; -1: none */
	bool known;
	int opened[2]; /* those of them that were opened here, in the place of the child; -1 */
	posix_spawn_file_actions_t actions; /* with `opened`: what is left to do */
};

/* 0, or an errno. Files for output are opened here, by the hook, since they are the program's as much as those that it opens itself. */
static int open_output(struct output *out, const struct action *action, int which)
{
	int fd = open(action->open.path, action->open.flags | O_CLOEXEC, action->open.mode);

	if (fd < 0)
		return errno;
	out->opened[which - 1] = fd;
	return 0;
}

static bool for_output(const struct action *action)
{
	return action->kind == OPENS && (action->open.fd == 1 || action->open.fd == 2) && (action->open.flags & O_ACCMODE) != O_RDONLY;
}

/* Whether it is known which of this process's descriptors the child's output will be, but for what it opens itself. */
static bool plain(const struct action *actions, int count)
{
	bool changed[64] = {false};

	for (int i = 0; i < count; i++) {
		const struct action *a = &actions[i];
		int to = a->kind == CLOSES ? -1 : a->kind == DUPLICATES ? a->duplicate.to : a->open.fd;

		if (a->kind > OPENS || to >= 64)
			return false;
		if (a->kind == DUPLICATES && (a->duplicate.fd >= 64 || (a->duplicate.fd >= 0 && a->duplicate.fd > 2 && changed[a->duplicate.fd])))
			return false;
		if (to >= 0)
			changed[to] = true;
	}
	return true;
}

static int find_output(struct output *out, const posix_spawn_file_actions_t *given)
{
	const struct action *actions = given ? (const void *)given->__actions : NULL;
	int count = given ? given->__used : 0, error = 0;
	bool opens = tpck_follow_keeps_any();

	*out = (struct output){.fds = {0, 1, 2}, .opened = {-1, -1}};
	out->known = plain(actions, count);
	for (int i = 0; out->known && i < count; i++)
		opens = opens || for_output(&actions[i]);
	if (!out->known || (opens && posix_spawn_file_actions_init(&out->actions))) {
		out->known = false;
		return 0;
	}
	for (int i = 0; i < count && !error; i++) {
		const struct action *a = &actions[i];
		bool here = for_output(a) && out->opened[a->open.fd - 1] < 0;
		int to = a->kind == CLOSES ? a->fd : a->kind == DUPLICATES ? a->duplicate.to : a->open.fd;
		int from = a->kind == CLOSES ? -1 : a->kind == DUPLICATES ? (a->duplicate.fd >= 0 && a->duplicate.fd <= 2 ? out->fds[a->duplicate.fd] : a->duplicate.fd) : -1;

		if (here) {
			error = open_output(out, a, a->open.fd);
			from = out->opened[a->open.fd - 1];
			if (!error)
				error = posix_spawn_file_actions_adddup2(&out->actions, from, to);
		} else if (opens && a->kind == CLOSES) {
			error = posix_spawn_file_actions_addclose(&out->actions, a->fd);
		} else if (opens && a->kind == DUPLICATES) {
			error = posix_spawn_file_actions_adddup2(&out->actions, a->duplicate.fd, a->duplicate.to);
		} else if (opens) {
			error = posix_spawn_file_actions_addopen(&out->actions, a->open.fd, a->open.path, a->open.flags, a->open.mode);
		}
		if (to >= 0 && to <= 2)
			out->fds[to] = from;
	}
	if (!opens)
		out->actions.__used = -1;
	return error;
}

static void output_end(struct output *out)
{
	int saved = errno;

	if (out->known && out->actions.__used >= 0)
		posix_spawn_file_actions_destroy(&out->actions);
	for (int i = 0; i < 2; i++)
		if (out->opened[i] >= 0)
			(void)close(out->opened[i]);
	errno = saved;
}

static int spawn(spawn_type real, pid_t *child, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
		 char *const arguments[], char *const variables[])
{
	struct tpck_programs_instead instead;
	struct output out;
	pid_t made = 0;
	int error, place;
	bool other;

	TOLD(variables);
	if (!tpck_readable_path(path) || !tpck_programs_followed())
		return real(child, path, actions, how, arguments, variables);
	error = find_output(&out, actions);
	if (error) {
		output_end(&out);
		return error;
	}
	if (out.known && out.actions.__used >= 0)
		actions = &out.actions;
	other = tpck_programs_spawn(path, arguments, variables, out.known ? out.fds : NULL, &instead, &place);
	/* What plays another one says nothing for real. */
	for (int fd = 1; fd <= 2 && !(other && instead.plays) && out.known && out.actions.__used >= 0; fd++)
		if (tpck_follow_output_real(out.fds[fd]) >= 0)
			(void)posix_spawn_file_actions_adddup2(&out.actions, tpck_follow_output_real(out.fds[fd]), fd);
	if (other)
		error = real(&made, instead.path, actions, how, instead.arguments, instead.variables);
	else
		error = real(&made, path, actions, how, arguments, variables);
	tpck_programs_spawned(place, error ? 0 : made, !out.known);
	if (!error)
		tpck_network_executes(made, tpck_programs_number(place));
	output_end(&out);
	if (!error && child)
		*child = made;
	return error;
}

TPCK_EXPORT int posix_spawn(pid_t *restrict child, const char *restrict path, const posix_spawn_file_actions_t *actions,
			    const posix_spawnattr_t *restrict how, char *const arguments[restrict], char *const variables[restrict])
{
	static spawn_type real;
	int error = comes(path);

	if (!real)
		real = (spawn_type)tpck_real_dlsym(RTLD_NEXT, "posix_spawn");
	return error ? error : spawn(real, child, path, actions, how, arguments, variables);
}

TPCK_EXPORT int posix_spawnp(pid_t *restrict child, const char *restrict name, const posix_spawn_file_actions_t *actions,
			     const posix_spawnattr_t *restrict how, char *const arguments[restrict], char *const variables[restrict])
{
	static spawn_type real;
	int error = tpck_readable_path(name) && strchr(name, '/') ? comes(name) : 0;

	if (!real)
		real = (spawn_type)tpck_real_dlsym(RTLD_NEXT, "posix_spawnp");
	return error ? error : spawn(real, child, name, actions, how, arguments, variables);
}

TPCK_EXPORT int system(const char *command)
{
	static int (*real)(const char *);
	int status, place = -1, saved;

	if (!real)
		real = (int (*)(const char *))tpck_real_dlsym(RTLD_NEXT, "system");
	if (command && tpck_programs_system(command, &status, &place))
		return status;
	tpck_network_shell(tpck_programs_number(place));
	status = real(command);
	saved = errno;
	tpck_programs_system_ended(place, status);
	errno = saved;
	return status;
}

/* ---- popen(): libc starts the shell by a call inside ---------------------------------------------- */

static struct popened {
	FILE *stream;
	pid_t child;
	struct popened *next;
} *popened;
static pthread_mutex_t popened_lock = PTHREAD_MUTEX_INITIALIZER;

bool tpck_hooks_popened(FILE *stream)
{
	struct popened *at;

	if (__builtin_expect(!popened, 1))
		return false;
	pthread_mutex_lock(&popened_lock);
	for (at = popened; at && at->stream != stream; at = at->next)
		;
	pthread_mutex_unlock(&popened_lock);
	return at != NULL;
}

/* The shell with `theirs` as its `end`, and without the streams of others that popen() has made. 0, or an errno. */
static int start_shell(pid_t *child, const char *command, int theirs, int end)
{
	char *arguments[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
	posix_spawn_file_actions_t actions;
	int error = posix_spawn_file_actions_init(&actions);

	if (error)
		return error;
	error = posix_spawn_file_actions_adddup2(&actions, theirs, end);
	for (const struct popened *at = popened; at && !error; at = at->next)
		if (fileno(at->stream) != end)
			error = posix_spawn_file_actions_addclose(&actions, fileno(at->stream));
	if (!error)
		error = posix_spawn(child, "/bin/sh", &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

static FILE *popen_here(const char *command, bool reads, bool closes)
{
	struct popened *made = malloc(sizeof *made);
	int ends[2], error, saved = errno;

	if (!made)
		return NULL;
	if (pipe2(ends, O_CLOEXEC)) {
		free(made);
		return NULL;
	}
	made->stream = fdopen(ends[!reads], reads ? "r" : "w");
	error = made->stream ? 0 : errno;
	if (!error) {
		pthread_mutex_lock(&popened_lock);
		error = start_shell(&made->child, command, ends[reads], reads);
		if (!error) {
			made->next = popened;
			popened = made;
		}
		pthread_mutex_unlock(&popened_lock);
	}
	(void)syscall(SYS_close, ends[reads]);
	if (error) {
		if (made->stream)
			(void)fclose(made->stream);
		else
			(void)syscall(SYS_close, ends[!reads]);
		free(made);
		errno = error;
		return NULL;
	}
	if (!closes)
		(void)syscall(SYS_fcntl, ends[!reads], F_SETFD, 0);
	errno = saved;
	return made->stream;
}

TPCK_EXPORT FILE *popen(const char *command, const char *mode)
{
	static FILE *(*real)(const char *, const char *);

	if (!real)
		real = (FILE * (*)(const char *, const char *)) tpck_real_dlsym(RTLD_NEXT, "popen");
	/* Anything else is libc's to refuse. */
	if (!tpck_programs_followed() || (strcmp(mode, "r") && strcmp(mode, "w") && strcmp(mode, "re") && strcmp(mode, "we")))
		return real(command, mode);
	return popen_here(command, mode[0] == 'r', mode[1] == 'e');
}

TPCK_EXPORT int pclose(FILE *stream)
{
	static int (*real)(FILE *);
	struct popened **at, *found;
	int status = -1;
	pid_t child;

	if (!real)
		real = (int (*)(FILE *))tpck_real_dlsym(RTLD_NEXT, "pclose");
	pthread_mutex_lock(&popened_lock);
	for (at = &popened; *at && (*at)->stream != stream; at = &(*at)->next)
		;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&popened_lock);
	if (!found)
		return real(stream);
	child = found->child;
	free(found);
	(void)fclose(stream);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status;
}
