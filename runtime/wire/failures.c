/* SPDX-License-Identifier: Apache-2.0 */
/* Names of classes of failures. */
#include "config.h"

#include "runtime/wire/failures.h"

const char *tpck_failure_name(uint32_t failure)
{
	static const char *const names[] = {
		[TPCK_FAILURE_NONE] = "",
#define TPCK_FAILURE(id, name, what, who, within, done) [TPCK_FAILURE_##id] = name,
#include "runtime/wire/failures.def"
#undef TPCK_FAILURE
	};

	return failure < TPCK_FAILURES ? names[failure] : "";
}
