/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a job on this node. */
#ifndef TPCK_TOOLS_SPANK_EPILOG_H
#define TPCK_TOOLS_SPANK_EPILOG_H

#include <slurm/spank.h>

/* Tells the job's agents that nobody comes back, unless the job is requeued. */
void epilog_run(spank_t spank);

#endif
