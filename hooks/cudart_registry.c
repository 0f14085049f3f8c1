/* SPDX-License-Identifier: Apache-2.0 */
/* What is registered with a shared runtime. Texts and images belong to the object that registers them, and are
 * forgotten when it takes them back, which it does before it is unmapped. */
#include "config.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "hooks/cuda_driver.h"
#include "hooks/cudart_registry.h"
#include "hooks/libc.h"
#include "runtime/base/digest.h"
#include "runtime/base/layout.h"
#include "runtime/track/threads.h"

/* PyTorch 2.15 registers 476 binaries and 18,430 variables. */
enum { BINARIES = 4096, NAMES = 65536, WRAPPER_MAGIC = 0x466243b1 };

/* fatbinary_section.h: what nvcc's host code passes. */
struct wrapper {
	int magic, version;
	const void *data;
	void *names;
};

static struct binary {
	void **handle; /* NULL: taken back */
	const void *wrapper, *data;
} binaries[BINARIES] TPCK_LARGE;
static struct name {
	const char *text; /* NULL: taken back */
	uint64_t digest;  /* of the text, and stays */
	tpck_binary binary;
	uint32_t rank;    /* which of those of its text it is, from 1 */
} names[NAMES] TPCK_LARGE;
/* How many names there are of a text, by its digest; 0: unused. */
static struct {
	uint64_t digest;
	uint32_t count;
} counts[2 * NAMES] TPCK_LARGE;
static _Atomic uint32_t names_count;
static uint32_t binaries_count;
static _Atomic bool overflow; /* said later: objects register before the engine is there */
static tpck_spin lock;

/* The runtime may be loaded RTLD_LOCAL, where RTLD_NEXT does not look. */
struct search {
	const char *symbol;
	void *found;
};

static int find_runtime(struct dl_phdr_info *info, size_t size, void *argument)
{
	const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	struct search *search = argument;
	void *library;

	(void)size;
	if (!slash || strncmp(slash + 1, "libcudart.so", 12) != 0)
		return 0;
	library = tpck_real_dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
	search->found = library ? tpck_real_dlsym(library, search->symbol) : NULL;
	return search->found != NULL;
}

static void *runtime_symbol(const char *symbol)
{
	struct search search = {.symbol = symbol};

	search.found = tpck_real_dlsym(RTLD_NEXT, symbol);
	if (!search.found)
		dl_iterate_phdr(find_runtime, &search);
	return search.found;
}

static uint32_t rank_next(uint64_t digest)
{
	uint32_t at = (uint32_t)(digest % (2 * NAMES));

	while (counts[at].count && counts[at].digest != digest)
		at = (at + 1) % (2 * NAMES);
	counts[at].digest = digest;
	return ++counts[at].count;
}

/* The one taken last, where an address was used again. */
static tpck_binary find_handle(void **handle)
{
	for (uint32_t i = binaries_count; i-- > 0;)
		if (binaries[i].handle == handle)
			return i;
	return TPCK_BINARY_ANY;
}

/* Objects of classes without members, as the standard library defines by the thousand: no state. */
static bool is_empty_object(const char *name, size_t bytes)
{
	static const char *const within[] = {"4cuda3std", "4cuda3__4", "6thrust", "4cute", "3cub"};

	for (size_t i = 0; bytes == 1 && i < sizeof within / sizeof *within; i++)
		if (strstr(name, within[i]))
			return true;
	return false;
}

static void forget(void **handle)
{
	tpck_binary binary;

	tpck_spin_lock(&lock);
	binary = find_handle(handle);
	if (binary != TPCK_BINARY_ANY) {
		binaries[binary] = (struct binary){NULL, NULL, NULL};
		for (uint32_t i = 0; i < names_count; i++)
			if (names[i].binary == binary)
				names[i].text = NULL;
	}
	tpck_spin_unlock(&lock);
}

void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterVar(void **handle, char *host, char *device_address, const char *device_name, int external,
		       size_t bytes, int constant, int global);
void __cudaUnregisterFatBinary(void **handle);

TPCK_EXPORT void **__cudaRegisterFatBinary(void *image)
{
	static __typeof__(&__cudaRegisterFatBinary) real;
	const struct wrapper *wrapper = image;
	void **handle;
	uint32_t at;

	if (!real)
		real = (__typeof__(real))runtime_symbol("__cudaRegisterFatBinary");
	handle = real ? real(image) : NULL;
	if (!handle)
		return handle;
	tpck_spin_lock(&lock);
	at = binaries_count;
	if (at < BINARIES)
		binaries[binaries_count++] =
			(struct binary){handle, image, wrapper && wrapper->magic == WRAPPER_MAGIC ? wrapper->data : NULL};
	tpck_spin_unlock(&lock);
	if (at >= BINARIES)
		atomic_store(&overflow, true);
	return handle;
}

TPCK_EXPORT void __cudaRegisterVar(void **handle, char *host, char *device_address, const char *device_name, int external,
				   size_t bytes, int constant, int global)
{
	static __typeof__(&__cudaRegisterVar) real;

	if (!real)
		real = (__typeof__(real))runtime_symbol("__cudaRegisterVar");
	if (device_name && !is_empty_object(device_name, bytes)) {
		uint64_t digest = tpck_digest64(device_name, strlen(device_name), 0);
		uint32_t at;

		tpck_spin_lock(&lock);
		at = atomic_load(&names_count);
		if (at < NAMES) {
			names[at] = (struct name){device_name, digest, find_handle(handle), rank_next(digest)};
			atomic_store(&names_count, at + 1);
		}
		tpck_spin_unlock(&lock);
		if (at >= NAMES)
			atomic_store(&overflow, true);
	}
	if (real)
		real(handle, host, device_address, device_name, external, bytes, constant, global);
}

TPCK_EXPORT void __cudaUnregisterFatBinary(void **handle)
{
	static __typeof__(&__cudaUnregisterFatBinary) real;
	if (!real)
		real = (__typeof__(real))runtime_symbol("__cudaUnregisterFatBinary");
	/* A child of fork() must not wait for a lock that a thread of its parent held. */
	if (atomic_load(&tpck_engine_mode_now))
		forget(handle);
	if (real)
		real(handle);
}

tpck_binary tpck_registry_find(const void *code)
{
	tpck_binary found = TPCK_BINARY_ANY;

	tpck_spin_lock(&lock);
	for (uint32_t i = binaries_count; code && found == TPCK_BINARY_ANY && i-- > 0;)
		if (binaries[i].wrapper == code || binaries[i].data == code)
			found = i;
	tpck_spin_unlock(&lock);
	return found;
}

uint32_t tpck_registry_names(void)
{
	if (atomic_load(&overflow))
		tpck_engine_unresumable("the program registers more variables on the device than can be followed");
	return atomic_load(&names_count);
}

bool tpck_registry_name(uint32_t index, tpck_binary binary, char *text, uint32_t room)
{
	const struct name *name = &names[index];
	size_t length = 0;

	/* A name's binary never changes: most are not this one's. */
	if (binary != TPCK_BINARY_ANY && name->binary != TPCK_BINARY_ANY && name->binary != binary)
		return false;
	tpck_spin_lock(&lock);
	length = name->text ? strlen(name->text) : 0;
	if (length < room)
		memcpy(text, name->text ? name->text : "", length + 1);
	tpck_spin_unlock(&lock);
	if (length >= room)
		tpck_engine_unresumable("the name of a variable on the device is too long to be asked for");
	return length > 0 && length < room;
}

uint32_t tpck_registry_rank(uint32_t index)
{
	return names[index].rank;
}

uint32_t tpck_registry_rank_of(tpck_binary binary, const char *text)
{
	uint32_t count = atomic_load(&names_count);
	uint64_t digest = tpck_digest64(text, strlen(text), 0);

	for (uint32_t i = 0; i < count; i++)
		if (names[i].digest == digest && (binary == TPCK_BINARY_ANY || names[i].binary == TPCK_BINARY_ANY || names[i].binary == binary))
			return names[i].rank;
	return 0;
}
