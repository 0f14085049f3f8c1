/* SPDX-License-Identifier: Apache-2.0 */
/* The table of hooked driver calls, made from the .def files. */
#include "config.h"

#include "hooks/cuda_driver.h"

#include <stddef.h>

#include "hooks/hooks.h"
#include "runtime/base/layout.h"
#include "runtime/twin/supervisor.h"
#include "shim/table.h"

struct tpck_cuda tpck_cuda TPCK_LARGE;

enum {
#define TPCK_HOOK(symbol, base, since, ret, params, args) ROW_##symbol,
#include "hooks/cuda_all.def"
#undef TPCK_HOOK
	ROWS
};
static struct tpck_hook_row rows[ROWS] TPCK_LARGE;

/* Not by the loader: four addresses a row would be half of all that it has to put right when a program starts, with a device or
 * without. */
static const struct tpck_hook_row *make_rows(size_t *count)
{
#define TPCK_HOOK(symbol, base, since, ret, params, args) \
	rows[ROW_##symbol] = (struct tpck_hook_row){#symbol, base, since, (void *)tpck_hook_##symbol, (void **)&tpck_cuda.symbol};
#include "hooks/cuda_all.def"
#undef TPCK_HOOK
	*count = ROWS;
	return rows;
}

TPCK_AT_START void tpck_hooks_cuda(void)
{
	tpck_table_set(make_rows);
}

int tpck_cuda_bind(void)
{
	int result = tpck_driver_bind();

	if (result)
		return result;
#define TPCK_USE(symbol) \
	if (!tpck_cuda.symbol) \
		tpck_cuda.symbol = (__typeof__(tpck_cuda.symbol))tpck_driver_symbol(#symbol);
#include "hooks/cuda_used.def"
#undef TPCK_USE
	return 0;
}

/* Those of which NVIDIA's manual of the driver (CUresult) says that the process has to be ended and started again, and what a device says that is gone. */
static bool is_for_good(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
		return true;
	default:
		return false;
	}
}

void tpck_cuda_failed(CUresult result)
{
	if (is_for_good(result))
		tpck_supervisor_excuse(TPCK_TWIN_DEVICE);
}
