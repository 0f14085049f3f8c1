/* SPDX-License-Identifier: Apache-2.0 */
/* What PyTorch's caching allocator tells PyTorch's profiler, whether or not one runs: each part of device memory that it hands out, and that comes back
 * (c10/core/Allocator.h, reportMemoryUsageToProfiler; the same since 1.10). */
#include "config.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "hooks/libc.h"
#include "runtime/engine/engine.h"
#include "shim/driver.h"

/* c10/core/Device.h */
struct device {
	int8_t type, index;
};
enum { DEVICE_CUDA = 1 };

#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
typedef void report(void *part, int64_t bytes, size_t allocated, size_t reserved, struct device device);
report _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE;

/* The real function, of the object which calls or of those that it needs: PyTorch is mostly loaded where RTLD_NEXT does not look. */
static report *find(const void *caller)
{
	report *found = (report *)tpck_real_dlsym(RTLD_NEXT, REPORT);
	Dl_info info;
	void *library;

	if (found || !dladdr(caller, &info) || !info.dli_fname)
		return found;
	library = tpck_real_dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	found = library ? (report *)tpck_real_dlsym(library, REPORT) : NULL;
	return found == _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE ? NULL : found;
}

TPCK_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *part, int64_t bytes, size_t allocated, size_t reserved,
								       struct device device)
{
	static report *_Atomic real;
	report *call = atomic_load_explicit(&real, memory_order_acquire);

	if (device.type == DEVICE_CUDA)
		tpck_engine_handed((uint64_t)(uintptr_t)part, bytes);
	if (!call) {
		call = find(__builtin_return_address(0));
		atomic_store_explicit(&real, call, memory_order_release);
	}
	if (call)
		call(part, bytes, allocated, reserved, device);
}
