/* SPDX-License-Identifier: Apache-2.0 */
/* Begin and end of the preloaded library in its host. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/hooks.h"
#include "runtime/engine/engine.h"
#include "runtime/files/files.h"
#include "runtime/replay/restart.h"
#include "shim/doors.h"

static void at_exit(int status, void *unused)
{
	int saved = errno;

	(void)unused;
	tpck_engine_end(status);
	errno = saved;
}

static void before_fork(void)
{
	tpck_files_forking(true);
}

static void after_fork(void)
{
	tpck_files_forking(false);
}

/* glibc gives constructors what main() gets. */
__attribute__((constructor)) static void start(int count, char **arguments)
{
	const char *library = "";
	int saved = errno;
	Dl_info info;

	(void)count;
	if (dladdr((void *)tpck_hooks_cuda, &info) && info.dli_fname)
		library = info.dli_fname;
	tpck_hooks_syscall();
	tpck_hooks_cuda();
	tpck_hooks_nccl();
	pthread_atfork(before_fork, after_fork, tpck_engine_forked);
	tpck_doors_open(library);
	tpck_restart_launcher(tpck_launcher_joined);
	tpck_engine_start(library, arguments);
	on_exit(at_exit, NULL);
	errno = saved;
}
