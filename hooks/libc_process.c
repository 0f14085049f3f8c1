/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of threads and of ends that run no exit handlers. */
#include "config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/libc.h"
#include "runtime/engine/engine.h"
#include "shim/driver.h"

struct begin {
	void *(*routine)(void *);
	void *argument;
	uint32_t id;
};

static void ended(void *unused)
{
	(void)unused;
	tpck_thread_end();
}

static void *thread_main(void *argument)
{
	struct begin begin = *(struct begin *)argument;
	void *result;

	free(argument);
	tpck_thread_begin(begin.id);
	pthread_cleanup_push(ended, NULL);
	result = begin.routine(begin.argument);
	pthread_cleanup_pop(1);
	return result;
}

/* A new thread gets its identity from its creator, so that it is the same in every run. */
TPCK_EXPORT int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
			       void *(*routine)(void *), void *restrict argument)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	struct tpck_thread *self = tpck_engine_enter();
	struct begin *begin = NULL;
	int result;

	if (!real)
		real = (__typeof__(real))tpck_real_dlsym(RTLD_NEXT, "pthread_create");
	if (self)
		begin = malloc(sizeof *begin);
	if (!begin) {
		if (self)
			tpck_engine_leave(self);
		return real(thread, attributes, routine, argument);
	}
	*begin = (struct begin){routine, argument, tpck_thread_draw()};
	result = real(thread, attributes, thread_main, begin);
	if (result)
		free(begin);
	tpck_engine_leave(self);
	return result;
}

TPCK_EXPORT void _exit(int status)
{
	tpck_engine_end(status);
	syscall(SYS_exit_group, status);
	__builtin_unreachable();
}

TPCK_EXPORT void _Exit(int status)
{
	_exit(status);
}
