/* SPDX-License-Identifier: Apache-2.0 */
/* Variables on the device that no host code ever asks for by name: they are state, and the driver
 * lists none. The runtime's registration names them; else the strings of the code that holds them. */
#include "config.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/cuda_driver.h"
#include "hooks/cudart_registry.h"
#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/track/threads.h"
#include "runtime/track/variables.h"

#define ASKING_NS 1000000000u
/* A question that takes longer loads the module, which the driver puts off until then. */
#define LOADING_NS 300000u
/* What a boundary asks for so long. */
#define BOUNDARY_NS 300000u
/* For how long a boundary leaves such modules to the thread that loads them ahead, while that gets no further. */
#define AHEAD_NS 2000000000u
/* For how long that thread looks often after something was used for the first time. */
#define OFTEN_NS 1000000000u
enum { LIBRARIES = 4096, STRINGS_BYTES = 16 << 20, NAME_BYTES = 4096 };

/* What the runtime, or the program, loaded. It is asked for variables only once something of it is used: a
 * question loads the library, and a program may hold hundreds of which it uses ten. */
static struct library {
	CUlibrary volatile library; /* NULL: unloaded */
	tpck_binary binary;
	uint32_t names_asked;
	bool used;
	_Atomic bool ahead;
	uint64_t used_ns; /* since when */
} libraries[LIBRARIES] TPCK_LARGE;
static _Atomic uint32_t libraries_count, libraries_used;
static uint32_t names_seen, used_seen;
static _Atomic bool asking; /* ahead of time, for a module */
static _Atomic uint64_t ahead_ns; /* when one was loaded so */
static tpck_spin lock;

/* A runtime that is linked statically registers variables where nobody can see it. Their names are
 * strings in the object that holds it, and the driver knows which of all its strings are variables. */
struct strings {
	const void *address;           /* of a caller inside the object */
	const char *begin[8], *end[8]; /* its read-only parts */
	int parts;
	const void *object;
};

static int find_strings(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct strings *strings = argument;
	uintptr_t address = (uintptr_t)strings->address;
	bool holds = false;

	(void)size;
	strings->parts = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		holds = holds || (address >= from && address < from + segment->p_memsz);
		if (!(segment->p_flags & (PF_W | PF_X)) && strings->parts < 8 && segment->p_filesz <= STRINGS_BYTES) {
			strings->begin[strings->parts] = (const char *)from;
			strings->end[strings->parts++] = (const char *)from + segment->p_filesz;
		}
	}
	strings->object = (const void *)info->dlpi_addr;
	return holds;
}

/* Where a variable may be: a library or a module. */
struct holder {
	CUlibrary library;
	CUmodule module;
};

static void ask(const struct holder *holder, const char *name, uint32_t rank)
{
	CUdeviceptr address = 0;
	size_t bytes = 0;
	CUresult result = CUDA_ERROR_NOT_FOUND;

	if (holder->library && tpck_cuda.cuLibraryGetGlobal)
		result = tpck_cuda.cuLibraryGetGlobal(&address, &bytes, holder->library, name);
	else if (holder->module && tpck_cuda.cuModuleGetGlobal_v2)
		result = tpck_cuda.cuModuleGetGlobal_v2(&address, &bytes, holder->module, name);
	if (result == CUDA_SUCCESS)
		tpck_engine_module_variable(name, rank, address, bytes);
}

static void ask_name(void *context, const char *name)
{
	ask(context, name, 0);
}

/* The vendor's libraries keep no training state in variables, and have too many strings to ask about. */
static bool vendors(const char *path)
{
	static const char *const vendor[] = {"libcudart", "libcublas", "libcudnn",  "libcufft",  "libcusolver",
					     "libcusparse", "libcurand", "libnccl", "libnvrtc", "libnvjitlink"};
	const char *slash = path ? strrchr(path, '/') : NULL;

	for (size_t i = 0; slash && i < sizeof vendor / sizeof *vendor; i++)
		if (strncmp(slash + 1, vendor[i], strlen(vendor[i])) == 0)
			return true;
	return false;
}

/* Asks about everything that the object of the caller, and the image, may call a variable. */
static void learn(struct holder *holder, const void *image, const void *caller)
{
	struct strings strings = {.address = caller};
	struct tpck_thread *self;
	Dl_info info;

	if (!dladdr(caller, &info) || vendors(info.dli_fname))
		return;
	self = tpck_engine_enter();
	if (!self)
		return;
	if (dl_iterate_phdr(find_strings, &strings))
		for (int i = 0; i < strings.parts; i++)
			tpck_variables_read_strings(strings.begin[i], (size_t)(strings.end[i] - strings.begin[i]), ask_name, holder);
	if (image)
		tpck_variables_read_image(image, ask_name, holder);
	tpck_engine_leave(self);
}

CUresult tpck_hook_cuModuleLoad(CUmodule *module, const char *fname)
{
	CUresult result = TPCK_CALL(cuModuleLoad, module, fname);

	if (result == CUDA_SUCCESS)
		learn(&(struct holder){.module = *module}, NULL, __builtin_return_address(0));
	return result;
}

CUresult tpck_hook_cuModuleLoadData(CUmodule *module, const void *image)
{
	CUresult result = TPCK_CALL(cuModuleLoadData, module, image);

	if (result == CUDA_SUCCESS)
		learn(&(struct holder){.module = *module}, image, __builtin_return_address(0));
	return result;
}

CUresult tpck_hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
				      CUjit_option *options, void **optionValues)
{
	CUresult result = TPCK_CALL(cuModuleLoadDataEx, module, image, numOptions, options, optionValues);

	if (result == CUDA_SUCCESS)
		learn(&(struct holder){.module = *module}, image, __builtin_return_address(0));
	return result;
}

CUresult tpck_hook_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	CUresult result = TPCK_CALL(cuModuleLoadFatBinary, module, fatCubin);

	if (result == CUDA_SUCCESS)
		learn(&(struct holder){.module = *module}, fatCubin, __builtin_return_address(0));
	return result;
}

CUresult tpck_hook_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
				     void **jitOptionsValues, unsigned int numJitOptions,
				     CUlibraryOption *libraryOptions, void **libraryOptionValues,
				     unsigned int numLibraryOptions)
{
	CUresult result = TPCK_CALL(cuLibraryLoadData, library, code, jitOptions, jitOptionsValues, numJitOptions,
				    libraryOptions, libraryOptionValues, numLibraryOptions);

	if (result == CUDA_SUCCESS) {
		tpck_binary binary = tpck_registry_find(code);
		uint32_t at;

		tpck_spin_lock(&lock);
		at = libraries_count;
		if (at < LIBRARIES)
			libraries[libraries_count++] = (struct library){.library = *library, .binary = binary};
		tpck_spin_unlock(&lock);
		if (at >= LIBRARIES)
			tpck_engine_unresumable("the program loads more libraries on the device than can be followed");
		learn(&(struct holder){.library = *library}, NULL, __builtin_return_address(0));
	}
	return result;
}

CUresult tpck_hook_cuLibraryUnload(CUlibrary library)
{
	tpck_spin_lock(&lock);
	for (uint32_t i = 0; i < libraries_count; i++)
		if (libraries[i].library == library)
			libraries[i].library = NULL;
	tpck_spin_unlock(&lock);
	/* The one that is being asked may be this one. A thread of ours that does not go on asks nothing either. */
	for (uint64_t begun = tpck_clock_monotonic_ns(); atomic_load(&asking) && tpck_clock_monotonic_ns() - begun < ASKING_NS;)
		sched_yield();
	return TPCK_CALL(cuLibraryUnload, library);
}

void tpck_cuda_library_used(CUlibrary library)
{
	tpck_spin_lock(&lock);
	for (uint32_t i = libraries_count; i-- > 0;)
		if (libraries[i].library == library) {
			if (!libraries[i].used) {
				libraries[i].used_ns = tpck_clock_monotonic_ns();
				libraries_used++;
			}
			libraries[i].used = true;
			break;
		}
	tpck_spin_unlock(&lock);
}

static void ask_registered(struct library *library, uint32_t names)
{
	char name[NAME_BYTES];

	for (uint32_t n = library->names_asked; n < names; n++)
		if (tpck_registry_name(n, library->binary, name, sizeof name))
			ask(&(struct holder){.library = library->library}, name, tpck_registry_rank(n));
	library->names_asked = names;
}

/* Whether the driver says that it loads modules when they are needed. */
static bool lazy(void)
{
	CUmoduleLoadingMode mode = CU_MODULE_EAGER_LOADING;

	return tpck_cuda.cuModuleGetLoadingMode && tpck_cuda.cuModuleGetLoadingMode(&mode) == CUDA_SUCCESS && mode == CU_MODULE_LAZY_LOADING;
}

/* The thread that loads ahead is at it, or will be. */
static bool left_to_it(const struct library *library, uint64_t now)
{
	uint64_t since = atomic_load(&ahead_ns);

	if (since < library->used_ns)
		since = library->used_ns;
	return !atomic_load(&library->ahead) && now < since + AHEAD_NS;
}

bool tpck_cuda_variables(bool all)
{
	static bool loads; /* the driver says that questions load modules, or was seen to */
	uint32_t names = tpck_registry_names(), used = atomic_load(&libraries_used);
	uint64_t begun, before, now;
	bool every = true;

	if (names == names_seen && used == used_seen)
		return true;
	loads = loads || lazy();
	begun = now = tpck_clock_monotonic_ns();
	for (uint32_t i = 0; i < libraries_count; i++) {
		struct library *library = &libraries[i];

		if (!library->used || !library->library || library->names_asked == names)
			continue;
		if (!all && (now - begun > BOUNDARY_NS || (loads && left_to_it(library, now)))) {
			every = false;
			continue;
		}
		before = now;
		ask_registered(library, names);
		now = tpck_clock_monotonic_ns();
		loads = loads || now - before > LOADING_NS;
	}
	if (every) {
		names_seen = names;
		used_seen = used;
	}
	return every;
}

/* By a question as a boundary asks it: some drivers load at no other. */
static void load(const struct library *library)
{
	uint32_t names = tpck_registry_names();
	char name[NAME_BYTES];
	CUdeviceptr address;
	CUmodule module;
	size_t bytes;

	if (tpck_cuda.cuLibraryGetModule)
		(void)tpck_cuda.cuLibraryGetModule(&module, library->library);
	for (uint32_t n = 0; n < names && tpck_cuda.cuLibraryGetGlobal; n++)
		if (tpck_registry_name(n, library->binary, name, sizeof name)) {
			(void)tpck_cuda.cuLibraryGetGlobal(&address, &bytes, library->library, name);
			break;
		}
}

bool tpck_cuda_variables_ahead(void)
{
	static uint64_t seen_ns;
	static uint32_t seen;
	uint32_t used = atomic_load(&libraries_used);

	seen_ns = seen_ns ? seen_ns : tpck_clock_monotonic_ns();
	if (used == seen)
		return tpck_clock_monotonic_ns() - seen_ns < OFTEN_NS;
	for (uint32_t i = 0; i < libraries_count; i++) {
		if (!libraries[i].used || atomic_load(&libraries[i].ahead))
			continue;
		atomic_store(&asking, true);
		if (libraries[i].library)
			load(&libraries[i]);
		atomic_store(&asking, false);
		atomic_store(&ahead_ns, tpck_clock_monotonic_ns());
		atomic_store(&libraries[i].ahead, true);
	}
	seen = used;
	seen_ns = tpck_clock_monotonic_ns();
	return true;
}

void tpck_cuda_variable_asked(CUlibrary library, const char *name, CUdeviceptr address, size_t bytes)
{
	tpck_binary binary = TPCK_BINARY_ANY;

	tpck_spin_lock(&lock);
	for (uint32_t i = libraries_count; library && i-- > 0;)
		if (libraries[i].library == library) {
			binary = libraries[i].binary;
			break;
		}
	tpck_spin_unlock(&lock);
	tpck_engine_module_variable(name, library ? tpck_registry_rank_of(binary, name) : 0, address, bytes);
}
