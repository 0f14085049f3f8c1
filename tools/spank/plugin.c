/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's ways into the plugin. Nothing here fails a job that has been submitted: it runs without snapshots. */
#include "config.h"

#pragma GCC visibility push(default)
#include <slurm/spank.h>

SPANK_PLUGIN(transpckpt, 1)
#pragma GCC visibility pop

#include "tools/spank/agent.h"
#include "tools/spank/epilog.h"
#include "tools/spank/job_container.h"
#include "tools/spank/job_record.h"
#include "tools/spank/options.h"
#include "tools/spank/task.h"

int slurm_spank_init(spank_t spank, int count, char *arguments[])
{
	spank_context_t context = spank_context();

	options_take_arguments(count, arguments);
	if (context == S_CTX_SLURMD)
		record_slurmd();
	if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE)
		return options_register(spank) && context != S_CTX_REMOTE ? -1 : 0;
	return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char *arguments[])
{
	spank_context_t context = spank_context();

	(void)spank, (void)count, (void)arguments;
	return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR ? options_check_environment() : 0;
}

int slurm_spank_user_init(spank_t spank, int count, char *arguments[])
{
	(void)count, (void)arguments;
	if (options_asked(spank) == OPTIONS_ON) {
		options_export(spank);
		agent_hold(spank);
	}
	return 0;
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char *arguments[])
{
	(void)count, (void)arguments;
	if (options_asked(spank) == OPTIONS_ON)
		private_enter(spank);
	return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char *arguments[])
{
	enum options_answer asked = options_asked(spank);

	(void)count, (void)arguments;
	if (asked == OPTIONS_ON)
		task_preload(spank);
	else if (asked == OPTIONS_OFF)
		task_leave_alone(spank);
	return 0;
}

int slurm_spank_job_epilog(spank_t spank, int count, char *arguments[])
{
	/* slurm_spank_init() is not called around prolog and epilog. */
	options_take_arguments(count, arguments);
	epilog_run(spank);
	return 0;
}
