/* SPDX-License-Identifier: Apache-2.0 */
/* The doors. dlsym and dlopen themselves are tail jumps (doors_x86_64.S): a C wrapper would change
 * the caller that the loader sees, and with it what RTLD_NEXT and RUNPATH mean. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "shim/doors.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "shim/driver.h"
#include "shim/table.h"

static const char *own_path; /* of this library; the forwarder lies beside it */
static _Atomic int forwarder_tried, deepbound;

void *tpck_door_swap(void *real)
{
	const struct tpck_hook_row *row = tpck_table_find_real(real);
	Dl_info info;

	if (row)
		return row->hook;
	/* A driver may give an entry that is not the address of its exported symbol: then the name that
	 * the loader knows it by decides, and only an exact one. */
	if (real && dladdr(real, &info) && info.dli_saddr == real && info.dli_sname) {
		row = tpck_table_find(info.dli_sname);
		if (row && info.dli_fname && strstr(info.dli_fname, "libcuda.so"))
			return row->hook;
	}
	return real;
}

__attribute__((visibility("default"))) void *tpck_forward_lookup(const char *symbol)
{
	const struct tpck_hook_row *row = tpck_table_find(symbol);

	if (row) {
		(void)tpck_driver_bind();
		return row->hook;
	}
	return tpck_driver_symbol(symbol);
}

void tpck_door_forwarder(void)
{
	const char *slash = own_path ? strrchr(own_path, '/') : NULL;
	char forwarder[1100];
	int saved = errno;

	if (atomic_load(&forwarder_tried) || !own_path)
		return;
	snprintf(forwarder, sizeof forwarder, "%.*s/transpckpt/libcuda.so.1", slash ? (int)(slash - own_path) : 1, slash ? own_path : ".");
	/* On a machine without a driver the program is to be told so by the loader, as ever. */
	if (tpck_driver_exists() && !atomic_exchange(&forwarder_tried, 1) && !tpck_driver_mapped() &&
	    !tpck_sys_faccessat(AT_FDCWD, forwarder, R_OK) && !tpck_real_dlopen(forwarder, RTLD_LAZY | RTLD_GLOBAL))
		tpck_log_info("cannot load %s: %s", forwarder, dlerror());
	errno = saved;
}

/* Libraries that will look for a driver by themselves. */
static TPCK_AT_START int uses_driver(struct dl_phdr_info *info, size_t size, void *unused)
{
	static const char *const names[] = {"libcudart", "libcuda.so", "libnccl", "libtorch_cuda", "libc10_cuda"};
	const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

	(void)size;
	(void)unused;
	for (size_t i = 0; slash && i < sizeof names / sizeof *names; i++)
		if (strncmp(slash + 1, names[i], strlen(names[i])) == 0)
			return 1;
	return 0;
}

TPCK_AT_START void tpck_doors_open(const char *library)
{
	own_path = library;
	if (dl_iterate_phdr(uses_driver, NULL))
		tpck_door_forwarder();
}

int tpck_doors_deepbound(void)
{
	return atomic_load(&deepbound);
}

/* ---- a library that is by itself ---------------------------------------------------------------- */

static const char *library_prefix;
static void *(*library_swap)(const char *symbol, void *found);

TPCK_AT_START void tpck_door_library(const char *prefix, void *(*swap)(const char *symbol, void *found))
{
	library_prefix = prefix;
	library_swap = swap;
}

struct place {
	uintptr_t at, begin, end;
	int passes;
};

static int find_place(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct place *place = argument;
	const char *slash;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;

		if (info->dlpi_phdr[i].p_type != PT_LOAD || place->at < begin || place->at >= end)
			continue;
		slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
		place->begin = begin;
		place->end = end;
		place->passes = slash && strncmp(slash + 1, "lib", 3) == 0 &&
				strncmp(slash + 4, library_prefix, strlen(library_prefix)) == 0;
		return 1;
	}
	return 0;
}

int tpck_door_passes(const void *caller)
{
	/* A runtime asks some hundred times in a row. */
	static __thread struct place last __attribute__((tls_model("initial-exec")));
	int saved = errno;

	if (!library_prefix)
		return 0;
	if ((uintptr_t)caller < last.begin || (uintptr_t)caller >= last.end) {
		struct place place = {.at = (uintptr_t)caller};

		dl_iterate_phdr(find_place, &place);
		last = place;
	}
	errno = saved;
	return last.passes;
}

/* ---- what the tail jumps ask ------------------------------------------------------------------- */

void *tpck_door_dlsym(void *handle, const char *symbol, const void *caller);
void tpck_door_dlopen(const char *path, int flags);

static bool is_forwarder(void *handle)
{
	static const char end[] = "/transpckpt/libcuda.so.1";
	struct link_map *map;
	size_t length;

	if (dlinfo(handle, RTLD_DI_LINKMAP, &map))
		return false;
	length = strlen(map->l_name);
	return length >= sizeof end - 1 && strcmp(map->l_name + length - (sizeof end - 1), end) == 0;
}

/* A driver may be newer than the forwarder's list: what that does not have is looked for in the driver itself. */
static void *beyond_forwarder(void *handle, const char *symbol)
{
	void *found;

	if (!atomic_load(&forwarder_tried) && !tpck_driver_mapped())
		return NULL;
	found = tpck_real_dlsym(handle, symbol);
	if (found || !is_forwarder(handle))
		return NULL;
	found = tpck_driver_symbol(symbol);
	/* Nothing is wrong any more. */
	if (found)
		(void)dlerror();
	return found;
}

/* The hook to return for dlsym(handle, symbol), or NULL: jump to the real one. */
__attribute__((visibility("hidden"))) void *tpck_door_dlsym(void *handle, const char *symbol, const void *caller)
{
	const struct tpck_hook_row *row;
	int saved = errno;
	void *found;

	if (!symbol || handle == RTLD_NEXT || handle == RTLD_DEFAULT)
		return NULL;
	if (library_prefix && strncmp(symbol + (symbol[0] == 'p'), library_prefix, strlen(library_prefix)) == 0) {
		found = library_swap(symbol, tpck_real_dlsym(handle, symbol));
		errno = saved;
		return found;
	}
	if (symbol[0] != 'c' || symbol[1] != 'u')
		return NULL;
	if (tpck_door_passes(caller)) {
		/* A runtime in it has symbols of its own that begin so. */
		found = tpck_driver_symbol(symbol);
		errno = saved;
		return found;
	}
	row = tpck_table_find(symbol);
	if (!row || tpck_driver_bind()) {
		found = row ? NULL : beyond_forwarder(handle, symbol);
		errno = saved;
		return found;
	}
	/* Ask first, then swap: only the real driver's own function is replaced. */
	found = tpck_real_dlsym(handle, symbol);
	errno = saved;
	return found && found == *row->real ? row->hook : NULL;
}

__attribute__((visibility("hidden"))) void tpck_door_dlopen(const char *path, int flags)
{
	/* A library opened with RTLD_DEEPBIND sees libc before us: what it opens later must find the
	 * forwarder already there. */
	const bool is_driver = path && strstr(path, "libcuda.so");

	if (flags & RTLD_DEEPBIND)
		atomic_store(&deepbound, 1);
	if (is_driver || flags & RTLD_DEEPBIND)
		tpck_door_forwarder();
	/* Without the forwarder it would be loaded by now, and what is opened next may need more of it than that lists. */
	if (is_driver && atomic_load(&forwarder_tried))
		(void)tpck_driver_bind();
}
