/* SPDX-License-Identifier: Apache-2.0 */
/* Variables on the device that no host code ever asks for by name: they are state, and the driver
 * lists none. The runtime's registration names them; else the strings of the code that holds them. */
#include "config.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/cuda_driver.h"
#include "hooks/libc.h"
#include "runtime/track/threads.h"

enum { NAMES = 4096, LIBRARIES = 1024, STRINGS_BYTES = 16 << 20 };

static const char *names[NAMES];
static CUlibrary libraries[LIBRARIES];
static _Atomic uint32_t names_count, libraries_count;
static uint32_t names_asked, libraries_asked;
static tpck_spin lock;

typedef void (*register_type)(void **, char *, char *, const char *, int, size_t, int, int);

void __cudaRegisterVar(void **fatbin, char *host, char *device_address, const char *device_name, int external,
		       size_t bytes, int constant, int global);

/* The runtime may be loaded RTLD_LOCAL, where RTLD_NEXT does not look. */
static int find_runtime(struct dl_phdr_info *info, size_t size, void *argument)
{
	const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	void *library;

	(void)size;
	if (!slash || strncmp(slash + 1, "libcudart.so", 12) != 0)
		return 0;
	library = tpck_real_dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
	*(void **)argument = library ? tpck_real_dlsym(library, "__cudaRegisterVar") : NULL;
	return *(void **)argument != NULL;
}

TPCK_EXPORT void __cudaRegisterVar(void **fatbin, char *host, char *device_address, const char *device_name,
				   int external, size_t bytes, int constant, int global)
{
	static register_type real;

	if (!real)
		real = (register_type)tpck_real_dlsym(RTLD_NEXT, "__cudaRegisterVar");
	if (!real)
		dl_iterate_phdr(find_runtime, &real);
	/* Constants are written before the first launch that reads them and by copies that are seen. */
	if (device_name) {
		tpck_spin_lock(&lock);
		if (names_count < NAMES)
			names[names_count++] = device_name;
		else
			tpck_engine_unresumable("the program has more variables on the device than can be followed");
		tpck_spin_unlock(&lock);
	}
	if (real)
		real(fatbin, host, device_address, device_name, external, bytes, constant, global);
}

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

static bool identifier(const char *text, size_t length)
{
	if (!length || length > 96 || (text[0] >= '0' && text[0] <= '9'))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!(text[i] == '_' || text[i] == '$' || (text[i] >= '0' && text[i] <= '9') ||
		      (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z')))
			return false;
	return true;
}

/* Where a variable may be: a library or a module. */
struct holder {
	CUlibrary library;
	CUmodule module;
};

static void ask(const struct holder *holder, const char *name)
{
	CUdeviceptr address = 0;
	size_t bytes = 0;
	CUresult result = CUDA_ERROR_NOT_FOUND;

	if (holder->library && tpck_cuda.cuLibraryGetGlobal)
		result = tpck_cuda.cuLibraryGetGlobal(&address, &bytes, holder->library, name);
	else if (holder->module && tpck_cuda.cuModuleGetGlobal_v2)
		result = tpck_cuda.cuModuleGetGlobal_v2(&address, &bytes, holder->module, name);
	if (result == CUDA_SUCCESS)
		tpck_engine_module_variable(name, address, bytes);
}

static void ask_strings(const char *at, const char *end, const struct holder *holder)
{
	while (at < end) {
		size_t length = strnlen(at, (size_t)(end - at));

		if (at + length < end && identifier(at, length))
			ask(holder, at);
		at += length + 1;
	}
}

/* The words of a text (PTX), which no NUL ends. */
static void ask_words(const char *at, const struct holder *holder)
{
	char word[97];

	while (*at) {
		size_t length = 0;

		while (at[length] == '_' || at[length] == '$' || (at[length] >= '0' && at[length] <= '9') ||
		       (at[length] >= 'a' && at[length] <= 'z') || (at[length] >= 'A' && at[length] <= 'Z'))
			length++;
		if (identifier(at, length)) {
			memcpy(word, at, length);
			word[length] = '\0';
			ask(holder, word);
		}
		at += length ? length : 1;
	}
}

/* What an image says of itself: an ELF file's strings, or a text's words. Anything else (a fat binary is
 * compressed) has its names in the object that holds it, if anywhere. */
static void ask_image(const void *image, const struct holder *holder)
{
	const Elf64_Ehdr *elf = image;
	const char *text = image;

	if (!image)
		return;
	if (memcmp(text, ELFMAG, SELFMAG) == 0)
		ask_strings(text, text + elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize, holder);
	else if (text[0] == '/' || text[0] == '.' || text[0] == '\n')
		ask_words(text, holder);
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
static void learn(const struct holder *holder, const void *image, const void *caller)
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
			ask_strings(strings.begin[i], strings.end[i], holder);
	ask_image(image, holder);
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
		tpck_spin_lock(&lock);
		if (libraries_count < LIBRARIES)
			libraries[libraries_count++] = *library;
		tpck_spin_unlock(&lock);
		learn(&(struct holder){.library = *library}, NULL, __builtin_return_address(0));
	}
	return result;
}

CUresult tpck_hook_cuLibraryUnload(CUlibrary library)
{
	tpck_spin_lock(&lock);
	for (uint32_t i = 0; i < libraries_count; i++)
		if (libraries[i] == library)
			libraries[i] = NULL;
	tpck_spin_unlock(&lock);
	return TPCK_CALL(cuLibraryUnload, library);
}

/* Asks for the addresses of registered variables in libraries that came since the last time. Not
 * while a stream captures: the first question loads the module. */
void tpck_cuda_variables(void)
{
	uint32_t all_names = atomic_load(&names_count), all_libraries = atomic_load(&libraries_count);

	if (all_names == names_asked && all_libraries == libraries_asked)
		return;
	for (uint32_t l = 0; l < all_libraries; l++)
		for (uint32_t n = l < libraries_asked ? names_asked : 0; n < all_names; n++) {
			CUdeviceptr address = 0;
			size_t bytes = 0;

			if (libraries[l] && tpck_cuda.cuLibraryGetGlobal &&
			    tpck_cuda.cuLibraryGetGlobal(&address, &bytes, libraries[l], names[n]) == CUDA_SUCCESS)
				tpck_engine_module_variable(names[n], address, bytes);
		}
	names_asked = all_names;
	libraries_asked = all_libraries;
}
