/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing between a snapshot and the program's own way to go on. */
#include "config.h"

#include "agent/session/own_start.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/wire/message.h"

struct own_start own_start_of(uint32_t flags)
{
	return (struct own_start){.flags = flags};
}

bool own_start_is_chosen(struct own_start *own, const struct tpck_point *point)
{
	own->chosen = own->flags & TPCK_HELLO_OWN;
	if (!own->chosen)
		return false;
	snprintf(own->said, sizeof own->said,
		 "not resuming at step %" PRIu64 " of generation %" PRIu64 " (TRANSPCKPT_RESUME=own): the program begins as it would without the library", point->step,
		 point->generation);
	tpck_log_info("%s", own->said);
	return true;
}
