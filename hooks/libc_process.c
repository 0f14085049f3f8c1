/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of threads and of ends that run no exit handlers. */
#include "config.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/digest.h"
#include "runtime/engine/engine.h"
#include "shim/driver.h"

struct begin {
	void *(*routine)(void *);
	void *argument;
	uint32_t id;
	bool elsewhere;
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
	if (begin.elsewhere)
		tpck_thread_own();
	pthread_cleanup_push(ended, NULL);
	result = begin.routine(begin.argument);
	pthread_cleanup_pop(1);
	return result;
}

/* Where an address lies in its library or program, which is the same in every run; 0: in none. */
struct place {
	uintptr_t address;
	uint32_t digest;
	bool standard; /* in libstdc++ */
};

static int note_place(struct dl_phdr_info *info, size_t size, void *argument)
{
	const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
	struct place *place = argument;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t offset = place->address - info->dlpi_addr;

		if (info->dlpi_phdr[i].p_type != PT_LOAD || offset - info->dlpi_phdr[i].p_vaddr >= info->dlpi_phdr[i].p_memsz)
			continue;
		place->digest = (uint32_t)tpck_digest64(name, strlen(name), offset);
		place->standard = strncmp(name, "libstdc++", 9) == 0;
		return 1;
	}
	return 0;
}

/* What a thread is to run: where its function is; of a std::thread, where the vtable is of what it is given. */
static uint32_t kind_of(void *(*routine)(void *), void *argument)
{
	struct place place = {.address = (uintptr_t)routine};

	dl_iterate_phdr(note_place, &place);
	if (place.standard && argument) {
		struct place state = {.address = *(uintptr_t *)argument};

		dl_iterate_phdr(note_place, &state);
		return state.digest;
	}
	return place.digest;
}

/* A new thread gets its identity from its creator, so that it is the same in every run. One of NCCL's is passed by, and
 * counts for nothing. */
TPCK_EXPORT int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
			       void *(*routine)(void *), void *restrict argument)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	struct tpck_thread *self = tpck_engine_enter();
	const struct tpck_thread *peek = self ? NULL : tpck_thread_peek();
	bool elsewhere = peek && peek->elsewhere;
	struct begin *begin = NULL;
	int result;

	if (!real)
		real = (__typeof__(real))tpck_real_dlsym(RTLD_NEXT, "pthread_create");
	if (self || elsewhere)
		begin = malloc(sizeof *begin);
	if (!begin) {
		if (self)
			tpck_engine_leave(self);
		return real(thread, attributes, routine, argument);
	}
	*begin = (struct begin){routine, argument, elsewhere ? UINT32_MAX : tpck_thread_draw(kind_of(routine, argument)), elsewhere};
	result = real(thread, attributes, thread_main, begin);
	if (result)
		free(begin);
	if (self)
		tpck_engine_leave(self);
	return result;
}

/* ---- launchers ---- */

enum { LIBRARIES_MAX = 8 };
struct libraries {
	const char *names[LIBRARIES_MAX];
	unsigned count;
};

static int note_launcher(struct dl_phdr_info *info, size_t size, void *argument)
{
	const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
	struct libraries *found = argument;

	(void)size;
	if ((strncmp(name, "libmpi", 6) == 0 || strncmp(name, "libpmi", 6) == 0) && found->count < LIBRARIES_MAX)
		found->names[found->count++] = info->dlpi_name;
	return 0;
}

/* Whether an MPI or PMI library that is mapped has been initialised: its launcher waits for the end of the
 * process that did so, and lets nobody do it twice. */
const char *tpck_launcher_joined(void)
{
	struct libraries found = {.count = 0};

	dl_iterate_phdr(note_launcher, &found);
	for (unsigned i = 0; i < found.count; i++) {
		static const struct {
			const char *symbol, *what;
			bool fills;
		} asked[] = {
			{"MPI_Initialized", "it has initialised MPI", true},
			{"PMI_Initialized", "it has initialised PMI", true},
			{"PMI2_Initialized", "it has initialised PMI", false},
			{"PMIx_Initialized", "it has initialised PMIx", false},
		};
		void *library = tpck_real_dlopen(found.names[i], RTLD_LAZY | RTLD_NOLOAD);

		for (size_t a = 0; library && a < sizeof asked / sizeof *asked; a++) {
			int (*ask)(int *) = (int (*)(int *))tpck_real_dlsym(library, asked[a].symbol);
			int flag = 0, answer = ask ? ask(&flag) : 0;

			if (ask && (asked[a].fills ? flag : answer))
				return asked[a].what;
		}
		if (library)
			dlclose(library);
	}
	return NULL;
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
