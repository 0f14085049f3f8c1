/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that do not verify are set aside with their reason, never deleted in haste. */
#ifndef TPCK_RUNTIME_STORE_QUARANTINE_H
#define TPCK_RUNTIME_STORE_QUARANTINE_H

#include "runtime/store/tier.h"

#define TPCK_QUARANTINE "quarantine"

/* Sets the checkpoint aside; one line says so. */
int tpck_quarantine(struct tpck_tier *tier, const struct tpck_point *point, const char *reason,
		    struct tpck_error *err);

#endif
