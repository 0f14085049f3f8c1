/* SPDX-License-Identifier: Apache-2.0 */
/* How often each tier is written, and what that follows from. */
#ifndef TPCK_TOOLS_CLI_CADENCE_H
#define TPCK_TOOLS_CLI_CADENCE_H

#include "runtime/store/tiers.h"
#include "tools/cli/cli.h"

/* Of a job, as its agent says; where there is none, as the next one would find it in the history. The caller's to free. */
struct json_object *interval_json(const struct cli *cli, const char *job, const struct tpck_tiers *tiers);
/* The same in words. */
void interval_print(struct json_object *intervals);

#endif
