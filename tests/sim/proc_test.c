/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: every entry is found by name, version and flags, and every public name is exported. */
#include <dlfcn.h>

#include "check.h"

static void *self;

/* A program's or a preload's function of the same name is not what the driver hands out. */
__attribute__((visibility("default"))) CUresult cuMemFree(CUdeviceptr p)
{
	(void)p;
	return CUDA_ERROR_UNKNOWN;
}

static void is(const char *name, int version, cuuint64_t flags, const char *symbol)
{
	CUdriverProcAddressQueryResult st = (CUdriverProcAddressQueryResult)-1;
	void *p = NULL;

	OK(cuGetProcAddress(name, &p, version, flags, &st));
	if (!p || p != dlsym(self, symbol) || st != CU_GET_PROC_ADDRESS_SUCCESS) {
		fprintf(stderr, "%s at %d with flags %d is not %s\n", name, version, (int)flags, symbol);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	CUdriverProcAddressQueryResult st;
	const cuuint64_t ptds = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	void *p;

	self = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(self);
	is("cuMemAlloc", 2000, 0, "cuMemAlloc");
	is("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
	is("cuMemAlloc", 12000, 0, "cuMemAlloc_v2");
	is("cuMemFree", 12000, 0, "cuMemFree_v2");
	is("cuMemcpyAsync", 4000, 0, "cuMemcpyAsync");
	is("cuMemcpyAsync", 7000, ptds, "cuMemcpyAsync_ptsz");
	is("cuMemcpyAsync", 4000, ptds, "cuMemcpyAsync");
	is("cuMemcpyHtoD", 7000, ptds, "cuMemcpyHtoD_v2_ptds");
	is("cuMemcpyHtoDAsync", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, "cuMemcpyHtoDAsync_v2");
	is("cuCtxCreate", 3020, 0, "cuCtxCreate_v2");
	is("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
	is("cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
	is("cuCtxSynchronize", 12080, 0, "cuCtxSynchronize");
	is("cuStreamGetCaptureInfo", 12000, 0, "cuStreamGetCaptureInfo_v2");
	is("cuStreamGetCaptureInfo", 12030, ptds, "cuStreamGetCaptureInfo_v3_ptsz");
	is("cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2");
	is("cuGraphAddKernelNode", 11000, 0, "cuGraphAddKernelNode");
	is("cuGraphAddKernelNode", 12000, 0, "cuGraphAddKernelNode_v2");
	is("cuStreamWaitValue32", 8000, 0, "cuStreamWaitValue32");
	is("cuStreamWaitValue32", 11070, 0, "cuStreamWaitValue32_v2");
	is("cuMemHostRegister", 6050, 0, "cuMemHostRegister_v2");
	is("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
	/* With a status a missing name is an answer, without one an error. */
	OK(cuGetProcAddress("cuNothing", &p, 12000, 0, &st));
	CHECK(!p && st == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(cuGetProcAddress("cuLibraryLoadData", &p, 11000, 0, &st));
	CHECK(!p && st == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	EXPECT(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNothing", &p, 12000, 0, NULL));
	OK(cuGetProcAddress("cuMemAlloc", &p, 12000, 0, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuMemAlloc", &p, 12000, 64, &st));
	CHECK(((CUresult(*)(const void **, const CUuuid *))dlsym(self, "cuGetExportTable"))((const void **)&p, NULL) != CUDA_SUCCESS);
	/* The names come one a line from the generator. */
	FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
	char line[128];
	int n = 0;
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		if (!dlsym(self, line)) {
			fprintf(stderr, "%s is not exported\n", line);
			return 1;
		}
		n++;
	}
	CHECK(argc < 2 || n > 500);
	return 0;
}
