/* SPDX-License-Identifier: Apache-2.0 */
/* Setting checkpoints aside. */
#include "config.h"

#include "runtime/store/quarantine.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/log.h"

int tpck_quarantine(struct tpck_tier *tier, const struct tpck_point *point, const char *reason,
		    struct tpck_error *err)
{
	char name[64], text[600];
	int rc;

	tpck_checkpoint_name_format(point, name, sizeof name);
	snprintf(text, sizeof text, "%s\n", reason);
	rc = tier->operations->set_aside(tier, name, text, err);
	tpck_log_warn("checkpoint of step %" PRIu64 " (generation %" PRIu64 ") is %s: %s", point->step,
		      point->generation, rc ? "not usable" : "set aside in " TPCK_QUARANTINE, reason);
	return rc;
}
