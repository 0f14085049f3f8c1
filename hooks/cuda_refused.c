/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the calls in cuda_refused.def: they pass through, and later snapshots are marked. */
#include "config.h"

#include "hooks/cuda_driver.h"

void tpck_cuda_refuse(const char *why)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (!self)
		return;
	tpck_engine_unresumable(why);
	tpck_engine_leave(self);
}

#define TPCK_REFUSE(symbol, base, since, ret, params, args, why)                      \
	ret tpck_hook_##symbol params                                                 \
	{                                                                             \
		tpck_cuda_refuse(why);                                                \
		return TPCK_REAL(symbol) ? tpck_cuda.symbol args : CUDA_ERROR_NO_DEVICE; \
	}
#include "hooks/cuda_refused.def"
#undef TPCK_REFUSE
