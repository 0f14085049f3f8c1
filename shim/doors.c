/* SPDX-License-Identifier: Apache-2.0 */
/* The doors. dlsym and dlopen themselves are tail jumps (doors_x86_64.S): a C wrapper would change
 * the caller that the loader sees, and with it what RTLD_NEXT and RUNPATH mean. */
#include "config.h"

#include "shim/doors.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "shim/driver.h"
#include "shim/table.h"

static char forwarder[1100];
static _Atomic int forwarder_tried;

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
	int saved = errno;

	if (atomic_load(&forwarder_tried) || !forwarder[0])
		return;
	/* On a machine without a driver the program is to be told so by the loader, as ever. */
	if (tpck_driver_exists() && !atomic_exchange(&forwarder_tried, 1) && !tpck_driver_mapped() &&
	    !syscall(SYS_faccessat, AT_FDCWD, forwarder, R_OK) && !tpck_real_dlopen(forwarder, RTLD_LAZY | RTLD_GLOBAL))
		tpck_log_info("cannot load %s: %s", forwarder, dlerror());
	errno = saved;
}

/* Libraries that will look for a driver by themselves. */
static int uses_driver(struct dl_phdr_info *info, size_t size, void *unused)
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

void tpck_doors_open(const char *library)
{
	const char *slash = strrchr(library, '/');

	snprintf(forwarder, sizeof forwarder, "%.*s/transpckpt/libcuda.so.1", slash ? (int)(slash - library) : 1,
		 slash ? library : ".");
	if (dl_iterate_phdr(uses_driver, NULL))
		tpck_door_forwarder();
}

/* ---- what the tail jumps ask ------------------------------------------------------------------- */

void *tpck_door_dlsym(void *handle, const char *symbol);
void tpck_door_dlopen(const char *path, int flags);

/* The hook to return for dlsym(handle, symbol), or NULL: jump to the real one. */
__attribute__((visibility("hidden"))) void *tpck_door_dlsym(void *handle, const char *symbol)
{
	const struct tpck_hook_row *row;
	int saved = errno;
	void *found;

	if (!symbol || symbol[0] != 'c' || symbol[1] != 'u' || handle == RTLD_NEXT || handle == RTLD_DEFAULT)
		return NULL;
	row = tpck_table_find(symbol);
	if (!row || tpck_driver_bind()) {
		errno = saved;
		return NULL;
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
	if ((path && strstr(path, "libcuda.so")) || flags & RTLD_DEEPBIND)
		tpck_door_forwarder();
}
