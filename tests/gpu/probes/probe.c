/* SPDX-License-Identifier: Apache-2.0 */
/* What the probes of a driver share. */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/probes/probe.h"

struct probe_driver driver;
static struct probe_place nowhere;
_Thread_local struct probe_place *probe_here = &nowhere;

double probe_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void probe_sleep_ms(double ms)
{
	struct timespec time = {.tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(ms * 1e6) % 1000000000};

	nanosleep(&time, NULL);
}

void probe_say(const char *format, ...)
{
	char text[4096];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(text, sizeof text - 1, format, args);
	va_end(args);
	if (length < 0 || (size_t)length >= sizeof text - 1)
		return;
	text[length++] = '\n';
	/* One write: a thread that looks after the others may speak as well. */
	if (write(1, text, (size_t)length) != length)
		_exit(1);
}

void probe_refused(const char *what, const char *why)
{
	probe_say("{\"result\": \"refused\", \"call\": \"%s\", \"error\": \"%s\"}", what, why);
	_exit(0);
}

const char *probe_error(CUresult result)
{
	const char *name = NULL;

	if (driver.cuGetErrorName)
		driver.cuGetErrorName(result, &name);
	return name ? name : "an error without a name";
}

void probe_check(CUresult result, const char *call)
{
	if (result != CUDA_SUCCESS)
		probe_refused(call, probe_error(result));
}

void probe_missing(const char *function)
{
	probe_refused(function, "the driver has no such function");
}

double probe_enter(const char *call)
{
	atomic_store(&probe_here->call, call);
	return probe_ms();
}

CUresult probe_leave(double begun, CUresult result)
{
	double took = probe_ms() - begun;

	if (took > probe_here->longest_ms) {
		probe_here->longest_ms = took;
		probe_here->longest_call = atomic_load(&probe_here->call);
	}
	atomic_store(&probe_here->call, "");
	return result;
}

void *probe_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	char *bytes = NULL;
	long length;

	if (file && fseek(file, 0, SEEK_END) == 0 && (length = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0 &&
	    (bytes = calloc(1, (size_t)length + 1)) && fread(bytes, 1, (size_t)length, file) == (size_t)length) {
		fclose(file);
		if (size)
			*size = (size_t)length;
		return bytes;
	}
	probe_refused(path, strerror(errno));
}

void probe_begin(CUdevice *device, CUcontext *context)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		probe_refused("dlopen", "there is no libcuda.so.1");
#define PROBE_NAME(name) #name
#define PROBE_FIND(function) driver.function = (__typeof__(driver.function))dlsym(library, PROBE_NAME(function));
	PROBE_DRIVER(PROBE_FIND)
#undef PROBE_FIND
	DO(cuInit, 0);
	DO(cuDeviceGet, device, 0);
	DO(cuDevicePrimaryCtxRetain, context, *device);
	DO(cuCtxSetCurrent, *context);
}
