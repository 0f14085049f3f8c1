/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of what the driver exports, and of the ways by which programs find it. */
#include "config.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/device/exported.h"
#include "tools/cli/device/libcuda.h"
#include "tools/cli/device/probe.h"
#include "tools/cli/device/probes.h"

/* The preloaded library's own names: the calls that it follows. */
static bool read_library(struct exported *hooked, char path[static TPCK_PATH_MAX])
{
	return cli_library("libtranspckpt.so", path) && exported_read(path, hooked) == 0;
}

/* ---- the calls that the library makes ---------------------------------------------------------------- */

static void examine_needed(void)
{
	unsigned there = 0;

#define TPCK_NEEDED(symbol)                                                                                                        \
	there += cuda.symbol != NULL;                                                                                              \
	if (!cuda.symbol)                                                                                                          \
		probe_find(BAD, "calls", "%s is missing: no snapshots. The driver is too old, or no driver of CUDA", #symbol);
#define TPCK_MISSED(symbol, since, lost)                                                                                           \
	there += cuda.symbol != NULL;                                                                                              \
	if (!cuda.symbol)                                                                                                          \
		probe_find(NOTE, "calls", "%s is missing, which drivers of CUDA %s have: %s", #symbol, since, lost);
#define TPCK_TRIED(symbol)
#include "tools/cli/device/driver.def"
#undef TPCK_NEEDED
#undef TPCK_MISSED
#undef TPCK_TRIED
	if (!cuda.cuGetProcAddress_v2)
		probe_find(NOTE, "calls", "cuGetProcAddress_v2 is missing, which drivers of CUDA 12.0 have: runtimes of CUDA 12 do not work here");
	probe_find(GOOD, "calls", "%u calls that the library makes are there", there);
}

/* ---- calls that the forwarder does not list ---------------------------------------------------------- */

static void examine_newer(void)
{
	char library[TPCK_PATH_MAX], forwarder[TPCK_PATH_MAX];
	struct exported driver, listed;
	json_object *names;
	char *slash;

	if (!cli_library("libtranspckpt.so", library)) {
		probe_find(BAD, "library", "%s is not there: commands run without snapshots. Install it", library);
		return;
	}
	slash = strrchr(library, '/');
	if (snprintf(forwarder, sizeof forwarder, "%.*s/transpckpt/libcuda.so.1", (int)(slash - library), library) >= (int)sizeof forwarder ||
	    exported_read(forwarder, &listed)) {
		probe_find(NOTE, "forwarder", "%s is not there, or cannot be read: programs that are linked to the driver itself, or have a "
			   "look-up of their own, are not followed", forwarder);
		return;
	}
	if (exported_read(probe_driver_path, &driver)) {
		probe_find(NOTE, "newer calls", "the names in %s cannot be read", probe_driver_path);
		return;
	}
	names = json_object_new_array();
	for (size_t i = 0; i < driver.count; i++)
		if (!exported_has(&listed, driver.names[i]) && (!i || strcmp(driver.names[i], driver.names[i - 1]) != 0))
			json_object_array_add(names, json_object_new_string(driver.names[i]));
	if (json_object_array_length(names))
		probe_find_names(NOTE, "newer calls", names, "%zu of the driver's %zu are not in the forwarder's list (--json names them): found by "
							     "look-up they work and are not followed; a library that is linked to one is loaded only once the driver is in use",
				 json_object_array_length(names), driver.count);
	else
		probe_find(GOOD, "newer calls", "none: the forwarder lists all %zu of the driver's", driver.count);
}

void probe_calls_run(void)
{
	if (!probe_driver_open())
		return;
	examine_needed();
	examine_newer();
}

/* ---- cuGetProcAddress against dlsym ------------------------------------------------------------------- */

/* "cuMemAlloc" of "cuMemAlloc_v2_ptsz". */
static void base_of(const char *symbol, char *base, size_t size)
{
	char *end;

	snprintf(base, size, "%s", symbol);
	end = strrchr(base, '_');
	if (end && (strcmp(end, "_ptsz") == 0 || strcmp(end, "_ptds") == 0)) {
		*end = '\0';
		end = strrchr(base, '_');
	}
	if (end && end[1] == 'v' && isdigit((unsigned char)end[2]))
		*end = '\0';
}

/* Whether the library would know what a look-up gave (shim/doors.c): by its address, or by the name that the loader has for that. */
enum known { KNOWN, OTHER_FORM, UNKNOWN };

static enum known known_by(const struct exported *hooked, const char *base, void *found, const char **symbol)
{
	char other[128];
	Dl_info info;

	*symbol = base;
	for (size_t i = 0; i < hooked->count; i++)
		if (strncmp(hooked->names[i], base, strlen(base)) == 0 && dlsym(probe_driver_handle, hooked->names[i]) == found)
			return KNOWN;
	if (!dladdr(found, &info) || info.dli_saddr != found || !info.dli_sname)
		return UNKNOWN;
	if (exported_has(hooked, info.dli_sname))
		return info.dli_fname && strstr(info.dli_fname, "libcuda.so") ? KNOWN : UNKNOWN;
	/* A form of the call that is newer, or older, than those that are followed. */
	*symbol = info.dli_sname;
	base_of(info.dli_sname, other, sizeof other);
	return strcmp(base, other) == 0 ? OTHER_FORM : UNKNOWN;
}

static void add_name(json_object *names, const char *name)
{
	for (size_t i = 0; i < json_object_array_length(names); i++)
		if (strcmp(json_object_get_string(json_object_array_get_idx(names, i)), name) == 0)
			return;
	json_object_array_add(names, json_object_new_string(name));
}

/* Asks for one call as runtimes of several versions would. How often there was an answer. */
static unsigned ask(const struct exported *hooked, const char *base, int newest, json_object *forms, json_object *unknown)
{
	const int versions[] = {11030, 12000, newest};
	const cuuint64_t flags[] = {CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
	unsigned answers = 0;

	for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
		for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
			CUdriverProcAddressQueryResult status;
			void *found = NULL;
			const char *symbol;
			enum known known;

			if (versions[v] > newest || cuda.cuGetProcAddress_v2(base, &found, versions[v], flags[f], &status) != CUDA_SUCCESS || !found)
				continue;
			answers++;
			known = known_by(hooked, base, found, &symbol);
			if (known != KNOWN)
				add_name(known == OTHER_FORM ? forms : unknown, known == OTHER_FORM ? symbol : base);
		}
	return answers;
}

static void say_doors(unsigned bases, unsigned answers, json_object *forms, json_object *unknown)
{
	size_t others = json_object_array_length(unknown), newer = json_object_array_length(forms);

	if (others)
		probe_find_names(BAD, "doors", json_object_get(unknown), "cuGetProcAddress gives other functions than dlsym for %zu of %u calls, %s "
									 "the first: programs with the vendor's runtime are not followed there, and have no snapshots that can be trusted",
				 others, bases, json_object_get_string(json_object_array_get_idx(unknown, 0)));
	if (newer)
		probe_find_names(NOTE, "doors", json_object_get(forms), "cuGetProcAddress also gives %zu forms of calls that the library does not follow "
				 "(--json names them): a program that asks for one as a runtime of another version would is not followed there", newer);
	if (!answers)
		probe_find(BAD, "doors", "cuGetProcAddress knows none of the %u calls that the library follows", bases);
	else if (!others)
		probe_find(GOOD, "doors", "dlsym and cuGetProcAddress lead to the same functions, for %u calls and as runtimes of three versions ask", bases);
}

void probe_doors_run(void)
{
	json_object *forms = json_object_new_array(), *unknown = json_object_new_array();
	char path[TPCK_PATH_MAX], base[128], before[128] = "";
	unsigned bases = 0, answers = 0;
	struct exported hooked;
	int newest = 0;

	if (!probe_device_open("doors"))
		return;
	if (!cuda.cuGetProcAddress_v2) {
		probe_find(NOTE, "doors", "the driver has no cuGetProcAddress_v2: dlsym is the only way to it");
		return;
	}
	if (!read_library(&hooked, path)) {
		probe_find(NOTE, "doors", "not tried: %s is not there", path);
		return;
	}
	(void)CALL(cuDriverGetVersion, &newest);
	probe_at("cuGetProcAddress");
	for (size_t i = 0; i < hooked.count; i++) {
		base_of(hooked.names[i], base, sizeof base);
		if (strcmp(base, before) == 0)
			continue;
		strcpy(before, base);
		bases++;
		answers += ask(&hooked, base, newest, forms, unknown);
	}
	say_doors(bases, answers, forms, unknown);
}
