/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that kernels may write to. */
#include "config.h"

#include "runtime/track/host_memory.h"

#include <errno.h>

#include "runtime/base/log.h"
#include "runtime/engine/engine_private.h"

/* What is compared wherever the program has waited. */
enum { SMALL = 4096 };

static struct tpck_engine *const engine = &tpck_engine;

void tpck_engine_host_memory(const void *host, uint64_t bytes)
{
	tpck_host_memory_add(host, bytes);
}

void tpck_engine_host_memory_ends(const void *host)
{
	tpck_host_memory_drop(host);
}

void tpck_engine_host_memory_shown(const void *host)
{
	if (engine->unresumable)
		return;
	if (tpck_host_memory_shown(host))
		tpck_engine_unresumable("kernels of the program may write to host memory (cuMemHostGetDevicePointer)");
	else
		tpck_log_debug("the program, or a library of it, has host memory that kernels may write to: it is watched");
}

void tpck_engine_host_memory_launched(uint64_t address)
{
	int result = engine->unresumable ? 0 : tpck_host_memory_shown((const void *)(uintptr_t)address); // NOLINT(performance-no-int-to-ptr)

	/* A word that is no address of such memory is another number. */
	if (result && result != -ENOENT)
		tpck_engine_unresumable("kernels of the program may write to host memory by its own address");
}

void tpck_engine_host_memory_registered(const void *host, uint64_t bytes)
{
	tpck_host_memory_register(host, bytes);
}

void tpck_host_memory_look(bool all)
{
	if (!engine->unresumable && tpck_host_memory_changed(all ? UINT64_MAX : SMALL))
		tpck_engine_unresumable("host memory that kernels of the program may write to was changed");
}
