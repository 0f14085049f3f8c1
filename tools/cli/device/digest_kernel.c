/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of the library's one kernel: what the driver says of its name, and whether it computes what the processor does. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/block_digest.h"
#include "runtime/base/clock.h"
#include "runtime/base/whole_file.h"
#include "tools/cli/device/libcuda.h"
#include "tools/cli/device/probe.h"
#include "tools/cli/device/probes.h"

/* ---- the file ------------------------------------------------------------------------------------------ */

void *probe_kernel_code(char *path, size_t size)
{
	static const char *const names[] = {"digest.fatbin", "digest.simgpu"};
	char library[TPCK_PATH_MAX], *slash;
	void *code = NULL;

	if (probe_cli.settings.kernels[0]) {
		snprintf(path, size, "%s", probe_cli.settings.kernels);
		return tpck_whole_file(path);
	}
	(void)cli_library("libtranspckpt.so", library);
	slash = strrchr(library, '/');
	/* The last that was looked for is not the one to name where there is none. */
	for (size_t i = sizeof names / sizeof *names; i-- && !code;) {
		if (snprintf(path, size, "%.*s/transpckpt/%s", slash ? (int)(slash - library) : 1, slash ? library : ".", names[i]) < (int)size)
			code = tpck_whole_file(path);
	}
	return code;
}

/* Loads it. False: a row about `what` said why not. */
static bool load(const char *what, void **code, CUfunction *function)
{
	char path[TPCK_PATH_MAX];
	CUmodule module;
	CUresult result;

	*code = probe_kernel_code(path, sizeof path);
	if (!*code) {
		probe_find(NOTE, what, "there is no kernel at %s: snapshots are taken without digests, of all memory and not compared with the device. "
			   "Build it with an nvcc, or name it in TRANSPCKPT_KERNELS", path);
		return false;
	}
	result = CALL(cuModuleLoadData, &module, *code);
	if (result == CUDA_SUCCESS)
		result = CALL(cuModuleGetFunction, function, module, TPCK_DIGEST_KERNEL);
	if (result == CUDA_SUCCESS)
		return true;
	probe_find(NOTE, what, "%s cannot be loaded (%s): snapshots are taken without digests, of all memory and not compared with the device. Build the "
		   "kernel for this device", path, probe_error(result));
	return false;
}

/* ---- names --------------------------------------------------------------------------------------------- */

static bool is_named(CUresult result, const char *name)
{
	return result == CUDA_SUCCESS && name && strcmp(name, TPCK_DIGEST_KERNEL) == 0;
}

/* A kernel of a library can be launched as it is, in the place of a function. */
static void examine_kernel(const void *code)
{
	const char *by_function = NULL, *by_kernel = NULL;
	CUlibrary library;
	CUkernel kernel;
	CUresult other, result = CALL(cuLibraryLoadData, &library, code, NULL, NULL, 0, NULL, NULL, 0);

	if (result == CUDA_SUCCESS)
		result = CALL(cuLibraryGetKernel, &kernel, library, TPCK_DIGEST_KERNEL);
	if (result != CUDA_SUCCESS) {
		probe_find(NOTE, "names of kernels", "the kernel cannot be had from a library (%s), as runtimes of CUDA 13 have theirs", probe_error(result));
		return;
	}
	result = CALL(cuFuncGetName, &by_function, (CUfunction)kernel);
	other = CALL(cuKernelGetName, &by_kernel, kernel);
	if (is_named(result, by_function))
		probe_find(GOOD, "names of kernels", "cuFuncGetName tells those of libraries' kernels, too");
	else if (is_named(other, by_kernel))
		probe_find(GOOD, "names of kernels", "cuKernelGetName tells those of libraries' kernels, which cuFuncGetName does not (%s)", probe_error(result));
	else
		probe_find(NOTE, "names of kernels", "neither cuFuncGetName nor cuKernelGetName tells those of libraries' kernels (%s): such a kernel has a "
			   "name only if the program asked for it by name", probe_error(result));
}

static void examine_parameters(CUfunction function)
{
	size_t offset = 99, bytes = 99;
	CUresult result = CALL(cuFuncGetParamInfo, function, 1, &offset, &bytes);

	if (result == CUDA_SUCCESS && offset == 8 && bytes == 8)
		probe_find(GOOD, "parameters", "the driver tells where those of kernels lie");
	else
		probe_find(NOTE, "parameters", "the driver does not tell where those of kernels lie (%s): which tensors an optimizer works on is not known",
			   result == CUDA_SUCCESS ? "wrongly" : probe_error(result));
}

void probe_names_run(void)
{
	const char *name = NULL;
	CUfunction function;
	CUresult result;
	void *code;

	if (!probe_device_open("names of kernels") || !load("names of kernels", &code, &function))
		return;
	result = CALL(cuFuncGetName, &name, function);
	if (is_named(result, name))
		probe_find(GOOD, "names of kernels", "cuFuncGetName tells those of modules' functions");
	else
		probe_find(NOTE, "names of kernels", "cuFuncGetName does not tell those of modules' functions (%s): a kernel has a name only if the program "
			   "asked for it by name", result == CUDA_SUCCESS ? "another name" : probe_error(result));
	examine_parameters(function);
	examine_kernel(code);
}

/* ---- digests ------------------------------------------------------------------------------------------- */

/* Each kind of unit: less than a word, a word, a whole unit, one with a tail, several. */
static const uint32_t sizes[] = {3, 8, TPCK_DIGEST_UNIT_BYTES, 1001, 2 * TPCK_DIGEST_UNIT_BYTES + 13, 4096, 7 * TPCK_DIGEST_UNIT_BYTES + 65};
enum { SIZES = sizeof sizes / sizeof *sizes, ROOM = 16 * TPCK_DIGEST_UNIT_BYTES, FAST_BYTES = 256 << 20, FAST_TIMES = 4 };

/* What the kernel works on: units in pinned memory, results in the device's. */
struct work {
	struct tpck_digest_unit *units;
	CUdeviceptr units_at, results_at;
	CUstream stream;
	CUfunction function;
};

static CUresult prepare(struct work *work, size_t units)
{
	void *host = NULL;
	CUresult result = CALL(cuMemHostAlloc, &host, units * sizeof *work->units, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);

	work->units = host;
	if (result == CUDA_SUCCESS)
		result = CALL(cuMemHostGetDevicePointer_v2, &work->units_at, host, 0);
	if (result == CUDA_SUCCESS)
		result = CALL(cuMemAlloc_v2, &work->results_at, SIZES * sizeof(uint64_t));
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamCreate, &work->stream, CU_STREAM_NON_BLOCKING);
	return result;
}

static uint32_t add_units(struct work *work, uint32_t count, CUdeviceptr at, uint64_t bytes, uint32_t result)
{
	for (uint64_t from = 0; from < bytes; from += TPCK_DIGEST_UNIT_BYTES)
		work->units[count++] = (struct tpck_digest_unit){
			at + from, from / 8, (uint32_t)(bytes - from < TPCK_DIGEST_UNIT_BYTES ? bytes - from : TPCK_DIGEST_UNIT_BYTES), result};
	return count;
}

static CUresult run(struct work *work, uint32_t count, uint64_t *results)
{
	void *parameters[] = {&work->units_at, &work->results_at};
	CUresult result = CALL(cuMemsetD8Async, work->results_at, 0, SIZES * sizeof *results, work->stream);

	if (result == CUDA_SUCCESS)
		result = CALL(cuLaunchKernel, work->function, count, 1, 1, TPCK_DIGEST_THREADS, 1, 1, 0, work->stream, parameters, NULL);
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamSynchronize, work->stream);
	if (result == CUDA_SUCCESS && results)
		result = CALL(cuMemcpyDtoH_v2, results, work->results_at, SIZES * sizeof *results);
	return result;
}

/* Over the device's memory and over the host's, which the library's own trial uses. How many sizes came out otherwise; -1: it failed. */
static int compare(struct work *work, const char *bytes, CUdeviceptr at, CUresult *result)
{
	uint64_t sums[SIZES];
	uint32_t count = 0, from = 0;
	int wrong = 0;

	for (uint32_t i = 0; i < SIZES; from += (sizes[i++] + 511) & ~511u)
		count = add_units(work, count, at + from, sizes[i], i);
	*result = run(work, count, sums);
	from = 0;
	for (uint32_t i = 0; i < SIZES; from += (sizes[i++] + 511) & ~511u)
		wrong += tpck_block_digest_finish(sums[i], sizes[i]) != tpck_block_digest(bytes + from, sizes[i]);
	return *result == CUDA_SUCCESS ? wrong : -1;
}

/* 0: it could not be measured. */
static double speed(struct work *work)
{
	uint32_t count;
	uint64_t begun;
	CUdeviceptr at;

	if (probe_map(FAST_BYTES, &at) != CUDA_SUCCESS || CALL(cuMemsetD8_v2, at, 1, FAST_BYTES) != CUDA_SUCCESS)
		return 0;
	count = add_units(work, 0, at, FAST_BYTES, 0);
	if (run(work, count, NULL) != CUDA_SUCCESS)
		return 0;
	begun = tpck_clock_monotonic_ns();
	for (int i = 0; i < FAST_TIMES; i++) {
		if (run(work, count, NULL) != CUDA_SUCCESS)
			return 0;
		/* A device that is slow has told enough. */
		if (tpck_clock_monotonic_ns() - begun > 500000000)
			return (double)(i + 1) * FAST_BYTES / (double)(tpck_clock_monotonic_ns() - begun);
	}
	return (double)FAST_TIMES * FAST_BYTES / (double)(tpck_clock_monotonic_ns() - begun);
}

void probe_digest_run(void)
{
	struct work work = {0};
	uint64_t word = TPCK_DIGEST_STEP;
	CUdeviceptr device_at = 0, host_at = 0;
	int wrong, wrong_host = 0;
	double fast;
	CUresult result;
	void *host = NULL, *code;

	if (!probe_device_open("digest kernel") || !load("digest kernel", &code, &work.function))
		return;
	result = prepare(&work, FAST_BYTES / TPCK_DIGEST_UNIT_BYTES);
	if (result == CUDA_SUCCESS)
		result = CALL(cuMemHostAlloc, &host, ROOM, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (result == CUDA_SUCCESS)
		result = CALL(cuMemHostGetDevicePointer_v2, &host_at, host, 0);
	if (result == CUDA_SUCCESS)
		result = probe_map(ROOM, &device_at);
	if (result == CUDA_SUCCESS) {
		for (uint64_t *w = host; w < (uint64_t *)host + ROOM / 8; w++)
			*w = word = word * 6364136223846793005ull + 1442695040888963407ull;
		result = CALL(cuMemcpyHtoD_v2, device_at, host, ROOM);
	}
	if (result != CUDA_SUCCESS) {
		probe_find(NOTE, "digest kernel", "not tried: there is no memory for it (%s)", probe_error(result));
		return;
	}
	wrong = compare(&work, host, device_at, &result);
	if (wrong >= 0)
		wrong_host = compare(&work, host, host_at, &result);
	if (wrong < 0 || wrong_host < 0)
		probe_find(BAD, "digest kernel", "fails when it runs (%s): a program that uses the device would fail with it. Name another in TRANSPCKPT_KERNELS",
			   probe_error(result));
	else if (wrong || wrong_host)
		probe_find(NOTE, "digest kernel", "computes other digests than the processor, for %d of %d sizes in the device's memory and %d in the host's: the "
			   "library does without it, and snapshots are of all memory and not compared with the device", wrong, (int)SIZES, wrong_host);
	else if ((fast = speed(&work)) > 0)
		probe_find(GOOD, "digest kernel", "computes what the processor does, for all of %d sizes, at %.1f GB/s", (int)SIZES, fast);
	else
		probe_find(GOOD, "digest kernel", "computes what the processor does, for all of %d sizes; how fast could not be measured", (int)SIZES);
}
