/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what tells the system's log: libc sends that within itself. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "hooks/libc.h"
#include "runtime/network/network.h"
#include "shim/driver.h"

static const struct sockaddr_un at = {AF_UNIX, _PATH_LOG};
#define ADDRESS ((const struct sockaddr *)&at)

/* Whether the first run has told it. */
static bool is_muted(const void *caller)
{
	return (tpck_network_forwards() || tpck_network_unsure()) && tpck_network_mutes(TPCK_NETWORK_LOG, ADDRESS, sizeof at, caller);
}

/* Where nobody listens nothing was sent. */
static void told(const void *caller)
{
	struct stat found;
	int saved = errno;

	if (!syscall(SYS_newfstatat, AT_FDCWD, _PATH_LOG, &found, 0))
		tpck_network_datagram(TPCK_NETWORK_LOG, ADDRESS, sizeof at, caller);
	errno = saved;
}

static void tell(int priority, const char *format, va_list list, const void *caller)
{
	static void (*real)(int, const char *, va_list);

	if (!real)
		real = (void (*)(int, const char *, va_list))tpck_real_dlsym(RTLD_NEXT, "vsyslog");
	if (is_muted(caller))
		return;
	real(priority, format, list);
	told(caller);
}

static void tell_checked(int priority, int flag, const char *format, va_list list, const void *caller)
{
	static void (*real)(int, int, const char *, va_list);

	if (!real)
		real = (void (*)(int, int, const char *, va_list))tpck_real_dlsym(RTLD_NEXT, "__vsyslog_chk");
	if (is_muted(caller))
		return;
	real(priority, flag, format, list);
	told(caller);
}

TPCK_EXPORT void vsyslog(int priority, const char *format, va_list list)
{
	tell(priority, format, list, __builtin_return_address(0));
}

TPCK_EXPORT void syslog(int priority, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	tell(priority, format, list, __builtin_return_address(0));
	va_end(list);
}

void __vsyslog_chk(int priority, int flag, const char *format, va_list list);
TPCK_EXPORT void __vsyslog_chk(int priority, int flag, const char *format, va_list list)
{
	tell_checked(priority, flag, format, list, __builtin_return_address(0));
}

void __syslog_chk(int priority, int flag, const char *format, ...);
TPCK_EXPORT void __syslog_chk(int priority, int flag, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	tell_checked(priority, flag, format, list, __builtin_return_address(0));
	va_end(list);
}
