/* SPDX-License-Identifier: Apache-2.0 */
/* LD_PRELOAD is prepended to, never replaced; addresses are not randomised, as under `transpckpt run`. */
#include "config.h"

#include "tools/spank/task.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

static bool is_there(char path[static PATH_MAX], const char *folder, int length, const char *name)
{
	int used = snprintf(path, PATH_MAX, "%.*s/%s", length, folder, name);

	return used > 0 && used < PATH_MAX && access(path, R_OK) == 0;
}

/* LIBDIR/slurm has the plugin, LIBDIR the library; a build folder has them side by side. */
bool task_library(char path[static PATH_MAX])
{
	const char *slash;
	Dl_info self;

	if (dladdr((void *)(uintptr_t)task_library, &self) && self.dli_fname && (slash = strrchr(self.dli_fname, '/'))) {
		int length = (int)(slash - self.dli_fname);

		if (is_there(path, self.dli_fname, length, "../libtranspckpt.so") ||
		    is_there(path, self.dli_fname, length, "libtranspckpt.so")) {
			char *whole = realpath(path, NULL);

			if (whole && strlen(whole) < PATH_MAX)
				strcpy(path, whole);
			free(whole);
			return true;
		}
	}
	return is_there(path, LIBDIR, (int)strlen(LIBDIR), "libtranspckpt.so");
}

static void forwarder_of(const char *library, char path[static PATH_MAX])
{
	if (!is_there(path, library, (int)(strrchr(library, '/') - library), "transpckpt/libcuda.so.1"))
		path[0] = '\0';
}

/* Copies a list less its entries that are ours. */
static void without(const char *list, const char *library, const char *forwarder, char *to)
{
	size_t used = 0;

	for (const char *entry = list; *entry; entry += strspn(entry, ": ")) {
		size_t length = strcspn(entry, ": ");

		if (length && !(length == strlen(library) && memcmp(entry, library, length) == 0) &&
		    !(length == strlen(forwarder) && memcmp(entry, forwarder, length) == 0)) {
			if (used)
				to[used++] = ':';
			memcpy(to + used, entry, length);
			used += length;
		}
		entry += length;
	}
	to[used] = '\0';
}

static void set_preload(spank_t spank, bool ours)
{
	char library[PATH_MAX], forwarder[PATH_MAX], *before, *rest, *value = NULL;
	const size_t size = 128 << 10; /* of one variable, to execve */

	if (!task_library(library)) {
		if (ours)
			slurm_error("transpckpt: %s is not there; the job runs without snapshots", library);
		return;
	}
	forwarder_of(library, forwarder);
	before = calloc(1, size);
	rest = calloc(1, size);
	if (before && rest) {
		if (spank_getenv(spank, "LD_PRELOAD", before, (int)size) != ESPANK_SUCCESS)
			before[0] = '\0';
		without(before, library, forwarder, rest);
		/* The forwarder first, so that it is found under the driver's name. */
		if (ours && asprintf(&value, "%s%s%s%s%s", forwarder, forwarder[0] ? ":" : "", library, rest[0] ? ":" : "", rest) < 0)
			value = NULL;
		if (ours && value)
			spank_setenv(spank, "LD_PRELOAD", value, 1);
		else if (!ours && !rest[0])
			spank_unsetenv(spank, "LD_PRELOAD");
		else if (!ours)
			spank_setenv(spank, "LD_PRELOAD", rest, 1);
	}
	free(value);
	free(rest);
	free(before);
}

void task_preload(spank_t spank)
{
	char aslr[8] = "";
	int now = personality(0xffffffff);

	set_preload(spank, true);
	if (spank_getenv(spank, "TRANSPCKPT_ASLR", aslr, sizeof aslr) == ESPANK_SUCCESS && strcmp(aslr, "1") == 0)
		return;
	if (now < 0 || personality((unsigned long)now | ADDR_NO_RANDOMIZE) < 0)
		slurm_error("transpckpt: address randomisation cannot be switched off here (%m); going on with it");
}

void task_leave_alone(spank_t spank)
{
	char before[8];

	if (spank_getenv(spank, "LD_PRELOAD", before, sizeof before) != ESPANK_ENV_NOEXIST)
		set_preload(spank, false);
}
