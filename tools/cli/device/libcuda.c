/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's library and its device; what a probe says about itself. */
#include "config.h"

#include "runtime/base/tier_settings.h"
#include "tools/cli/device/libcuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/device/probe.h"
#include "tools/cli/device/probes.h"

extern char **environ;

struct probe_driver cuda;
struct cli probe_cli;
CUdevice probe_device;
int probe_ordinal = -1;
void *probe_driver_handle;
char probe_driver_path[TPCK_PATH_MAX];

static int out = -1;

/* ---- what a probe says ------------------------------------------------------------------------------ */

/* At once, as the next call may be its last. */
static void say(json_object *said)
{
	const char *text = json_object_to_json_string_ext(said, JSON_C_TO_STRING_PLAIN);
	size_t left = strlen(text);
	ssize_t wrote;

	while (left && ((wrote = write(out, text, left)) > 0 || errno == EINTR))
		if (wrote > 0) {
			text += wrote;
			left -= (size_t)wrote;
		}
	if (write(out, "\n", 1) != 1)
		_exit(1);
	json_object_put(said);
}

void probe_at(const char *call)
{
	json_object *said = json_object_new_object();

	json_object_object_add(said, "at", json_object_new_string(call));
	say(said);
}

static void find_by(enum finding finding, const char *what, json_object *names, const char *format, va_list args)
{
	json_object *row = json_object_new_object();
	char text[1500];

	vsnprintf(text, sizeof text, format, args);
	json_object_object_add(row, "what", json_object_new_string(what));
	json_object_object_add(row, "finding", json_object_new_string(cli_finding_names[finding]));
	json_object_object_add(row, "text", json_object_new_string(text));
	if (probe_ordinal >= 0)
		json_object_object_add(row, "device", json_object_new_int(probe_ordinal));
	if (names)
		json_object_object_add(row, "names", names);
	say(row);
}

void probe_find(enum finding finding, const char *what, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	find_by(finding, what, NULL, format, args);
	va_end(args);
}

void probe_find_names(enum finding finding, const char *what, json_object *names, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	find_by(finding, what, names, format, args);
	va_end(args);
}

/* ---- the driver ------------------------------------------------------------------------------------- */

const char *probe_error(CUresult result)
{
	static char number[32];
	const char *name = NULL;

	if (cuda.cuGetErrorName && cuda.cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
		return name;
	snprintf(number, sizeof number, "CUDA error %d", (int)result);
	return number;
}

static bool is_forwarder(const char *path)
{
	static const char end[] = "/transpckpt/libcuda.so.1";
	size_t length = strlen(path);

	return length >= sizeof end - 1 && strcmp(path + length - (sizeof end - 1), end) == 0;
}

bool probe_driver_open(void)
{
	struct link_map *map;

	probe_at("the loading of libcuda.so.1");
	probe_driver_handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!probe_driver_handle) {
		probe_find(BAD, "driver", "there is none: %s. Install the driver of the device; in a container, start that with the host's "
			   "(docker run --gpus all, apptainer --nv); where the library lies elsewhere, name its folder in LD_LIBRARY_PATH", dlerror());
		return false;
	}
	if (dlinfo(probe_driver_handle, RTLD_DI_LINKMAP, &map) == 0)
		snprintf(probe_driver_path, sizeof probe_driver_path, "%s", map->l_name);
	if (is_forwarder(probe_driver_path)) {
		probe_find(BAD, "driver", "%s is this library's own forwarder, not the driver: take its folder out of LD_LIBRARY_PATH",
			   probe_driver_path);
		return false;
	}
#define TPCK_NEEDED(symbol) cuda.symbol = (__typeof__(cuda.symbol))dlsym(probe_driver_handle, #symbol);
#define TPCK_MISSED(symbol, since, lost) TPCK_NEEDED(symbol)
#define TPCK_TRIED(symbol) TPCK_NEEDED(symbol)
#include "tools/cli/device/driver.def"
#undef TPCK_NEEDED
#undef TPCK_MISSED
#undef TPCK_TRIED
	return true;
}

bool probe_device_open(const char *what)
{
	const char *call = "cuInit";
	CUcontext context;
	CUresult result;

	if (!probe_driver_open())
		return false;
	result = CALL(cuInit, 0);
	if (result == CUDA_SUCCESS) {
		call = "cuDeviceGet";
		result = CALL(cuDeviceGet, &probe_device, probe_ordinal < 0 ? 0 : probe_ordinal);
	}
	if (result == CUDA_SUCCESS) {
		call = "cuDevicePrimaryCtxRetain";
		result = CALL(cuDevicePrimaryCtxRetain, &context, probe_device);
	}
	if (result == CUDA_SUCCESS) {
		call = "cuCtxSetCurrent";
		result = CALL(cuCtxSetCurrent, context);
	}
	if (result != CUDA_SUCCESS)
		probe_find(BAD, what, "not tried: %s says %s", call, probe_error(result));
	return result == CUDA_SUCCESS;
}

/* The version of the kernel's part, "580.65.06". */
static void kernel_module(char *version, size_t size)
{
	FILE *file = fopen("/proc/driver/nvidia/version", "re");
	char line[512], *rest = line, *word;

	version[0] = '\0';
	if (file && fgets(line, sizeof line, file))
		while ((word = strtok_r(rest, " \t\n", &rest)))
			if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
				snprintf(version, size, ", its kernel module %s", word);
				break;
			}
	if (file)
		fclose(file);
}

static void say_no_device(CUresult result)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *advice = "see that nvidia-smi shows it";

	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NO_DEVICE)
		advice = visible ? "CUDA_VISIBLE_DEVICES is set and may hide it"
				 : "see that nvidia-smi shows one, and in a container that it was given one (docker run --gpus all)";
	else if (result == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH || result == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)
		advice = "the library and the kernel's module are of different versions: load the module anew, or restart the machine";
	else if (result == CUDA_ERROR_SYSTEM_NOT_READY)
		advice = "the fabric manager does not run";
	probe_find(BAD, "driver", "%s answers, but there is no device (%s): %s", probe_driver_path,
		   result == CUDA_SUCCESS ? "none is counted" : probe_error(result), advice);
}

static void say_device(int count)
{
	int major = 0, minor = 0, mode = CU_COMPUTEMODE_DEFAULT;
	char name[128] = "without a name", text[300];
	size_t memory = 0;

	if (CALL(cuDeviceGet, &probe_device, probe_ordinal) != CUDA_SUCCESS) {
		probe_find(BAD, "device", "cannot be had, of %d", count);
		return;
	}
	(void)CALL(cuDeviceGetName, name, (int)sizeof name, probe_device);
	(void)CALL(cuDeviceTotalMem_v2, &memory, probe_device);
	(void)CALL(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, probe_device);
	(void)CALL(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, probe_device);
	(void)CALL(cuDeviceGetAttribute, &mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, probe_device);
	snprintf(text, sizeof text, "%s, capability %d.%d, %s; of %d", name, major, minor, cli_bytes(memory), count);
	if (mode == CU_COMPUTEMODE_PROHIBITED)
		probe_find(BAD, "device", "%s: its compute mode lets nobody use it (nvidia-smi --compute-mode=0)", text);
	else if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
		probe_find(NOTE, "device", "%s: its compute mode lets one process use it; what follows fails while a job does", text);
	else
		probe_find(GOOD, "device", "%s", text);
}

/* Kernels that write ordinary memory do it unseen. */
static void say_ordinary(void)
{
	int can = 0;

	if (CALL(cuDeviceGetAttribute, &can, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, probe_device) == CUDA_SUCCESS && can)
		probe_find(NOTE, "ordinary memory", "kernels can read and write it by themselves here: what one writes to malloc's memory is not in snapshots. "
						    "Programs that rely on it should set TRANSPCKPT_DISABLE=1");
}

static void say_loading(void)
{
	const char *set = getenv("CUDA_MODULE_LOADING");
	CUmoduleLoadingMode mode = CU_MODULE_EAGER_LOADING;

	if (!cuda.cuModuleGetLoadingMode || CALL(cuModuleGetLoadingMode, &mode) != CUDA_SUCCESS)
		return;
	probe_find(GOOD, "module loading", "%s (CUDA_MODULE_LOADING%s%s)",
		   mode == CU_MODULE_LAZY_LOADING ? "lazy: the first launch of a kernel loads it" : "eager: kernels are there before they are launched",
		   set ? "=" : " is not set", set ? set : "");
}

static void say_connections(void)
{
	const char *set = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char control[TPCK_PATH_MAX];

	probe_find(GOOD, "connections", "CUDA_DEVICE_MAX_CONNECTIONS%s%s: what is said of fences below is true with that", set ? "=" : " is not set",
		   set ? set : "");
	snprintf(control, sizeof control, "%s/control", pipe ? pipe : "/tmp/nvidia-mps");
	if (access(control, F_OK) == 0)
		probe_find(NOTE, "MPS", "%s is there: processes share the device's queues, and what others do may hold up copies", control);
}

void probe_driver_run(void)
{
	int version = 0, count = 0;
	char module[64], *real;
	CUresult result;

	if (!probe_driver_open())
		return;
	result = CALL(cuInit, 0);
	if (result == CUDA_SUCCESS)
		result = CALL(cuDeviceGetCount, &count);
	if (result != CUDA_SUCCESS || !count) {
		say_no_device(result);
		return;
	}
	(void)CALL(cuDriverGetVersion, &version);
	kernel_module(module, sizeof module);
	/* The file's own name ends with the driver's version. */
	real = realpath(probe_driver_path, NULL);
	probe_find(GOOD, "driver", "%s%s, of CUDA %d.%d", real ? real : probe_driver_path, module, version / 1000, version % 1000 / 10);
	free(real);
	for (probe_ordinal = 0; probe_ordinal < count; probe_ordinal++) {
		say_device(count);
		say_ordinary();
	}
	probe_ordinal = -1;
	say_loading();
	say_connections();
}

/* ---- one process of one probe ----------------------------------------------------------------------- */

int probe_main(const char *name, const char *device)
{
	const struct probe *probe = probes;
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

	/* What a driver prints goes elsewhere. */
	out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
	if (nowhere >= 0)
		dup2(nowhere, STDOUT_FILENO);
	tpck_settings_read(&probe_cli.settings, environ);
	tpck_settings_shm(&probe_cli.settings, probe_cli.shm, sizeof probe_cli.shm);
	while (probe->name && strcmp(probe->name, name) != 0)
		probe++;
	if (!probe->name || out < 0)
		return CLI_USAGE;
	if (probe->each)
		probe_ordinal = atoi(device);
	probe->run();
	/* The driver's own end of a process may wait for what a probe has left undone. */
	_exit(CLI_GOOD);
}
