/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of shared memory and semaphores that have names (runtime/programs/shared_names.c). They are real in every mode. */
#include "config.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include "hooks/libc.h"
#include "runtime/engine/engine.h"
#include "runtime/programs/programs.h"
#include "runtime/wire/twin_names.h"
#include "shim/driver.h"

#define REAL(symbol) ((__typeof__(&(symbol)))tpck_real_dlsym(RTLD_NEXT, #symbol))

static const char *name_of(const char *name, char own[TPCK_SHARED_NAME])
{
	return tpck_unreadable(name) ? name : tpck_shared_name(name, own);
}

/* Whether the call makes what is not there. */
static bool makes(const struct tpck_thread *self, const char *kind, const char *name, int flags)
{
	return self && flags & O_CREAT && !tpck_unreadable(name) && tpck_shared_makes(kind, name, tpck_engine_forward());
}

static void made(struct tpck_thread *self, bool new, const char *kind, const char *name)
{
	if (new)
		tpck_shared_made(kind, name, tpck_engine_forward());
	if (self)
		tpck_engine_leave(self);
}

TPCK_EXPORT int shm_open(const char *name, int flags, mode_t mode)
{
	struct tpck_thread *self = tpck_engine_enter();
	bool new = makes(self, "", name, flags);
	char own[TPCK_SHARED_NAME];
	int fd = REAL(shm_open)(name_of(name, own), flags, mode);

	made(self, new && fd >= 0, "", name);
	return fd;
}

TPCK_EXPORT int shm_unlink(const char *name)
{
	char own[TPCK_SHARED_NAME];

	return REAL(shm_unlink)(name_of(name, own));
}

TPCK_EXPORT sem_t *sem_open(const char *name, int flags, ...)
{
	struct tpck_thread *self = tpck_engine_enter();
	bool new = makes(self, TPCK_SEMAPHORES, name, flags);
	char own[TPCK_SHARED_NAME];
	unsigned value = 0;
	mode_t mode = 0;
	va_list args;
	sem_t *found;

	va_start(args, flags);
	if (flags & O_CREAT) {
		mode = va_arg(args, mode_t);
		value = va_arg(args, unsigned);
	}
	va_end(args);
	found = REAL(sem_open)(name_of(name, own), flags, mode, value);
	made(self, new && found != SEM_FAILED, TPCK_SEMAPHORES, name);
	return found;
}

TPCK_EXPORT int sem_unlink(const char *name)
{
	char own[TPCK_SHARED_NAME];

	return REAL(sem_unlink)(name_of(name, own));
}
