/* SPDX-License-Identifier: Apache-2.0 */
/* The classes of failures. */
#ifndef TPCK_RUNTIME_WIRE_FAILURES_H
#define TPCK_RUNTIME_WIRE_FAILURES_H

#include <stdint.h>

enum tpck_failure {
	TPCK_FAILURE_NONE,
#define TPCK_FAILURE(id, name, what, who, within, done) TPCK_FAILURE_##id,
#include "runtime/wire/failures.def"
#undef TPCK_FAILURE
	TPCK_FAILURES,
};

/* The name of a class; "": there is none, or nobody knows it. */
const char *tpck_failure_name(uint32_t failure);

#endif
