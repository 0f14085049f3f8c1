/* SPDX-License-Identifier: Apache-2.0 */
/* The node's agent of a job: started outside of the step, and held. */
#ifndef TPCK_TOOLS_SPANK_AGENT_H
#define TPCK_TOOLS_SPANK_AGENT_H

#include <slurm/spank.h>

/* In a step, as the user, in the job's folder: gives the job a name where the user gives it none, starts the agent unless
 * one answers, and holds it until this process ends. */
void agent_hold(spank_t spank);

#endif
