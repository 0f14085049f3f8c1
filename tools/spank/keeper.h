/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of a job on its node has an end, whatever the user does. */
#ifndef TPCK_TOOLS_SPANK_KEEPER_H
#define TPCK_TOOLS_SPANK_KEEPER_H

#include <stdint.h>

/* At a job's end, as root: a process that waits, for plugstack.conf's stay=SECONDS at most, until nobody is left in the job's groups, and
 * ends who is. Then folders of the record that no agent serves are removed, as their user. A job that is back on the node is left alone. */
void keeper_start(uint32_t job, const char *record);

#endif
