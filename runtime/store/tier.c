/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same for tiers of every kind. */
#include "config.h"

#include "runtime/store/tier.h"

int tpck_tier_while_held(struct tpck_tier *tier, enum tpck_hold how, double wait_sec, int (*act)(void *with), void *with, struct tpck_error *err)
{
	int rc = tpck_tier_check(tier, err), hold;

	if (rc)
		return rc;
	hold = tpck_tier_hold(tier, how, wait_sec, err);
	if (hold < 0)
		return hold;
	rc = act(with);
	tpck_tier_release(tier, hold);
	return rc;
}

void tpck_tier_close(struct tpck_tier *tier)
{
	if (tier)
		tier->operations->close(tier);
}
