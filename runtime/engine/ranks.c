/* SPDX-License-Identifier: Apache-2.0 */
/* Rank, world and launch, from the variables of torchrun, Open MPI, MPICH and Slurm. */
#include "config.h"

#include "runtime/engine/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/base/layout.h"

/* Whole and not negative, or -1. */
static TPCK_AT_START long number(const char *name)
{
	const char *text = getenv(name);
	char *end;
	long value;

	if (!text || *text < '0' || *text > '9')
		return -1;
	value = strtol(text, &end, 10);
	return *end || value > 0x7fffffff ? -1 : value;
}

/* Scripts that tell srun's tasks their ranks by torchrun's names leave out how many are here, as PMI does. Where Slurm counts
 * the same ranks it knows. */
static TPCK_AT_START bool slurm_has_more(long rank, long world)
{
	return number("SLURM_PROCID") == rank && number("SLURM_STEP_NUM_TASKS") == world && getenv("SLURM_STEP_TASKS_PER_NODE") &&
	       number("SLURM_STEP_TASKS_PER_NODE") != world;
}

/*
 * A launcher inside another's allocation says less than that one (srun of one task a node, torchrun in each), so whoever
 * says that there are several is believed, the nearest first. Slurm's own count is that of the step: SLURM_NTASKS is the
 * allocation's, and also there, as SLURM_PROCID is, in the batch script, which is one process.
 */
static TPCK_AT_START void find_rank(struct tpck_ranks *ranks)
{
	static const char *const names[][3] = {
		{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
		{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
		{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
		{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"},
	};

	*ranks = (struct tpck_ranks){.world = 1};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		long rank = number(names[i][0]), world = number(names[i][1]), here = number(names[i][2]);

		if (world > 1 && rank >= 0 && rank < world) {
			ranks->rank = (uint32_t)rank;
			ranks->world = (uint32_t)world;
			/* Slurm writes "2(x4)" where there are several nodes. */
			ranks->elsewhere = getenv(names[i][2]) ? here != world : slurm_has_more(rank, world);
			if (number("SLURM_STEP_NUM_NODES") > 0 && here < 0)
				ranks->nodes = (uint32_t)number("SLURM_STEP_NUM_NODES");
			else if (here > 0)
				ranks->nodes = (uint32_t)((world + here - 1) / here);
			return;
		}
	}
}

TPCK_AT_START void tpck_ranks_find(struct tpck_ranks *ranks)
{
	static const char *const told[] = {
		"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID",
		"SLURM_STEP_ID", "SLURM_RESTART_COUNT", "PMIX_NAMESPACE", "PMI_JOBID", "OMPI_MCA_ess_base_jobid",
	};

	find_rank(ranks);
	for (size_t i = 0; ranks->world > 1 && i < sizeof told / sizeof *told; i++) {
		const char *value = getenv(told[i]);

		/* Each node's torchrun counts for itself: where it restarts only because another did, it counts none. */
		if (value && !(ranks->elsewhere && strcmp(told[i], "TORCHELASTIC_RESTART_COUNT") == 0))
			ranks->launch = tpck_digest64(value, strlen(value), ranks->launch + i + 1);
	}
}
