/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings that a core file leaves out. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/undumped.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

void *tpck_undumped(void *mapped, size_t bytes)
{
	int saved = errno;

	if (mapped != MAP_FAILED)
		(void)tpck_sys_madvise(mapped, bytes, MADV_DONTDUMP);
	errno = saved;
	return mapped;
}
