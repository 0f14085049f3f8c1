/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what runs a program: the kernel finds it by its path, where one that is pending has to be by then. */
#include "config.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/layout.h"
#include "runtime/files/files.h"
#include "runtime/programs/programs.h"
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

static int execute(int folder, const char *path, char *const arguments[], char *const variables[], int flags)
{
	struct tpck_programs_instead instead;

	if (tpck_files_owes() && tpck_readable_path(path) && tpck_files_runs(folder, path))
		return -1;
	if (folder != AT_FDCWD || flags)
		(void)syscall(SYS_execveat, folder, path, arguments, variables, flags);
	else if (tpck_readable_path(path) && tpck_programs_execute(path, arguments, variables, &instead))
		(void)syscall(SYS_execve, instead.path, instead.arguments, instead.variables);
	else
		(void)(next ? next(path, arguments, variables) : (int)syscall(SYS_execve, path, arguments, variables));
	if (folder == AT_FDCWD && !flags)
		tpck_programs_failed();
	return refused(folder, path);
}

TPCK_EXPORT int execve(const char *path, char *const arguments[], char *const variables[])
{
	return execute(AT_FDCWD, path, arguments, variables, 0);
}

TPCK_EXPORT int execveat(int folder, const char *path, char *const arguments[], char *const variables[], int flags)
{
	return execute(folder, path, arguments, variables, flags);
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

static int spawn(spawn_type real, pid_t *child, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
		 char *const arguments[], char *const variables[])
{
	struct tpck_programs_instead instead;
	pid_t made = 0;
	int error, place;

	if (!tpck_readable_path(path))
		return real(child, path, actions, how, arguments, variables);
	if (tpck_programs_spawn(path, arguments, variables, &instead, &place))
		error = real(&made, instead.path, actions, how, instead.arguments, instead.variables);
	else
		error = real(&made, path, actions, how, arguments, variables);
	tpck_programs_spawned(place, error ? 0 : made, actions && actions->__used);
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
	if (command && tpck_programs_system(&status, &place))
		return status;
	status = real(command);
	saved = errno;
	tpck_programs_system_ended(place, status);
	errno = saved;
	return status;
}
