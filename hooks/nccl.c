/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's real functions, found when they are first called, and what the doors give for its names. */
#include "config.h"

#include "hooks/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "hooks/hooks.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/track/communicators.h"
#include "runtime/twin/supervisor.h"
#include "shim/doors.h"
#include "shim/driver.h"

/* No pointers: a program without NCCL is not to pay for them when it starts. */
static const char names[] =
#define TPCK_HOOK_TWICE(symbol, ret, params, args) "p" #symbol "\0"
#include "hooks/nccl_all.def"
#undef TPCK_HOOK_TWICE
	;
static void *_Atomic real[2][TPCK_NCCL_FUNCTIONS] TPCK_LARGE;

static const char *name_of(unsigned function)
{
	const char *name = names;

	while (function--)
		name += strlen(name) + 1;
	return name;
}

/* The function of this name, without its p, or TPCK_NCCL_FUNCTIONS. */
static unsigned function_of(const char *symbol)
{
	unsigned function = 0;

	for (const char *name = names; *name; name += strlen(name) + 1, function++)
		if (strcmp(name + 1, symbol) == 0)
			break;
	return function;
}

bool tpck_nccl_is_hooked(const char *symbol)
{
	return function_of(symbol) < TPCK_NCCL_FUNCTIONS;
}

bool tpck_nccl_is_first(void)
{
	Dl_info found, ours;

	if (!dladdr(names, &ours))
		return false;
	for (const char *name = names; *name; name += strlen(name) + 1)
		for (int skip = 0; skip < 2; skip++) {
			void *at = tpck_real_dlsym(RTLD_DEFAULT, name + skip);

			if (!at || !dladdr(at, &found) || found.dli_fbase != ours.dli_fbase)
				return false;
		}
	return true;
}

static void *hook_of(unsigned function, bool profiling)
{
	switch (function) {
#define TPCK_HOOK_TWICE(symbol, ret, params, args) \
	case TPCK_NCCL_##symbol:                   \
		return profiling ? (void *)tpck_hook_p##symbol : (void *)tpck_hook_##symbol;
#include "hooks/nccl_all.def"
#undef TPCK_HOOK_TWICE
	default:
		return NULL;
	}
}

/* Behind us in the order of libraries, where another tool's may come first; or a library that was loaded for itself. */
void *tpck_nccl_symbol(const char *symbol)
{
	int saved = errno;
	void *found = tpck_real_dlsym(RTLD_NEXT, symbol), *library;

	if (!found) {
		/* Kept open: what was found is called later. */
		library = tpck_real_dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
		found = library ? tpck_real_dlsym(library, symbol) : NULL;
	}
	errno = saved;
	return found;
}

void *tpck_nccl_real(enum tpck_nccl_function function, bool profiling)
{
	void *found = atomic_load_explicit(&real[profiling][function], memory_order_acquire);

	if (__builtin_expect(found != NULL, 1))
		return found;
	found = tpck_nccl_symbol(name_of(function) + !profiling);
	atomic_store_explicit(&real[profiling][function], found, memory_order_release);
	return found;
}

void *tpck_nccl_would_be(enum tpck_nccl_function function, bool profiling)
{
	void *found = atomic_load_explicit(&real[profiling][function], memory_order_acquire);

	return found ? found : tpck_nccl_symbol(name_of(function) + !profiling);
}

/* dlsym() on a handle gave `found` for a name. What to give: the hook, or NULL: as it is. */
static void *swap(const char *symbol, void *found)
{
	bool profiling = symbol[0] == 'p';
	unsigned function = function_of(symbol + profiling);
	void *none = NULL;
	Dl_info its, ours;

	if (function == TPCK_NCCL_FUNCTIONS || !found || !dladdr(found, &its) || !dladdr(names, &ours) ||
	    its.dli_fbase == ours.dli_fbase)
		return NULL;
	/* The one that was found is the one to call, unless another is called already. */
	if (tpck_nccl_real(function, profiling) == found ||
	    atomic_compare_exchange_strong(&real[profiling][function], &none, found))
		return hook_of(function, profiling);
	tpck_engine_unresumable("the program uses two libraries of NCCL");
	return NULL;
}

TPCK_AT_START void tpck_hooks_nccl(void)
{
	tpck_door_library("nccl", swap);
}

struct tpck_thread *tpck_nccl_enter(void)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (self)
		self->elsewhere = true;
	return self;
}

void tpck_nccl_leave(struct tpck_thread *self)
{
	if (!self)
		return;
	self->elsewhere = false;
	tpck_engine_leave(self);
}

ncclResult_t tpck_nccl_result(struct tpck_thread *self, ncclComm_t handle, const char *symbol, ncclResult_t result)
{
	static _Atomic bool said;
	const char *(*text)(ncclResult_t);
	struct tpck_communicator *communicator;

	if (__builtin_expect(result == ncclSuccess || result == ncclInProgress || !self, 1))
		return result;
	/* Not those of a program that calls it in a wrong way. */
	if (result != ncclInvalidArgument && result != ncclInvalidUsage)
		tpck_supervisor_excuse(TPCK_TWIN_COMMUNICATOR);
	communicator = handle ? tpck_communicator_find(handle) : NULL;
	if (atomic_exchange(communicator ? &communicator->failed : &said, true))
		return result;
	text = (__typeof__(text))tpck_nccl_symbol("ncclGetErrorString");
	if (communicator)
		tpck_engine_trouble("%s on rank %u of communicator %u, of %u ranks: %s", symbol, communicator->rank,
				    communicator->index, communicator->size, text ? text(result) : "an error");
	else
		tpck_engine_trouble("%s: %s", symbol, text ? text(result) : "an error");
	return result;
}
