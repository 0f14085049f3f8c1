/* SPDX-License-Identifier: Apache-2.0 */
/* Begin and end of the preloaded library in its host. */
#include "config.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "hooks/hooks.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/readable.h"
#include "runtime/engine/engine.h"
#include "runtime/files/files.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/replay/restart.h"
#include "runtime/twin/supervisor.h"
#include "shim/doors.h"

static TPCK_AT_START void at_exit(int status, void *unused)
{
	int saved = errno;

	(void)unused;
	tpck_engine_end(status);
	errno = saved;
}

static void before_fork(void)
{
	if (tpck_supervisor_forks())
		return;
	tpck_files_forking(true);
	tpck_programs_forking();
	tpck_network_forking();
}

static void after_fork(void)
{
	if (tpck_supervisor_forks())
		return;
	tpck_files_forking(false);
}

static void in_forked(void)
{
	if (tpck_supervisor_forks())
		return;
	tpck_hooks_tls_forked();
	tpck_engine_forked();
}

/* What pthread_atfork() calls, which is a function of each library's own, far from what else runs at the start. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

/* The path that this library was loaded by. dladdr() looks at every symbol of it first. */
static TPCK_AT_START const char *own_path(void)
{
	extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
		if (map->l_ld == _DYNAMIC)
			return map->l_name;
	return "";
}

/* glibc gives constructors what main() gets. */
__attribute__((constructor)) static void start(int count, char **arguments)
{
	const char *library = own_path();
	int saved = errno;

	(void)count;
	tpck_hooks_syscall();
	tpck_hooks_execute();
	tpck_hooks_time();
	tpck_readable_start();
	tpck_hooks_cuda();
	tpck_hooks_nccl();
	__register_atfork(before_fork, after_fork, in_forked, &__dso_handle);
	tpck_doors_open(library);
	/* A program with more rights than who starts it, in which /etc/ld.so.preload alone can have the library: that user's variables would
	 * say which files are read and written, the log among them. */
	if (getauxval(AT_SECURE)) {
		tpck_log_hold(1);
	} else {
		tpck_restart_launcher(tpck_launcher_joined);
		tpck_engine_start(library, arguments);
		tpck_hooks_machine();
		on_exit(at_exit, NULL);
	}
	errno = saved;
}
