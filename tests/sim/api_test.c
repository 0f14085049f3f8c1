/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, modules, launches and copies, as the driver API documents them. */
#include "check.h"

static void modules(CUmodule m)
{
	CUfunction f;
	const char *name;
	size_t offset, size, bytes;
	CUdeviceptr va;
	unsigned n;
	int v = 0;

	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, m, "nothing"));
	f = kernel(m, "scale");
	OK(cuFuncGetName(&name, f));
	CHECK(!strcmp(name, "scale"));
	/* char, double, pointer, pointer, int */
	static const size_t want[][2] = { { 0, 1 }, { 8, 8 }, { 16, 8 }, { 24, 8 }, { 32, 4 } };
	for (size_t i = 0; i < 5; i++) {
		OK(cuFuncGetParamInfo(f, i, &offset, &size));
		CHECK(offset == want[i][0] && size == want[i][1]);
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(f, 5, &offset, &size));
	OK(cuModuleGetFunctionCount(&n, m));
	CHECK(n == 8);
	OK(cuModuleGetGlobal(&va, &bytes, m, "counter"));
	CHECK(bytes == 4);
	OK(cuMemcpyDtoH(&v, va, 4));
	CHECK(v == 5);
	OK(cuLaunchKernel(kernel(m, "count"), 3, 1, 1, 7, 1, 1, 0, NULL, NULL, NULL));
	OK(cuMemcpyDtoH(&v, va, 4));
	CHECK(v == 5 + 21);
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, "not an image at all, only text to look at"));
}

static void shapes(CUmodule m)
{
	CUdeviceptr p;
	int h[4 * 6 * 4], v;
	void *args[] = { &p };

	OK(cuMemAlloc(&p, sizeof h));
	OK(cuLaunchKernel(kernel(m, "index3"), 2, 3, 1, 2, 2, 4, 0, NULL, args, NULL));
	OK(cuMemcpyDtoH(h, p, sizeof h));
	for (int z = 0; z < 4; z++)
		for (int y = 0; y < 6; y++)
			for (int x = 0; x < 4; x++)
				CHECK(h[(z * 6 + y) * 4 + x] == x * 10000 + y * 100 + z);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(kernel(m, "count"), 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(kernel(m, "count"), 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(kernel(m, "count"), 1, 1, 1, 1, 1, 1, 1 << 20, NULL, NULL, NULL));
	OK(cuMemsetD32(p, 0, 1));
	OK(cuLaunchKernel(kernel(m, "early_exit"), 2, 1, 1, 64, 1, 1, 0, NULL, args, NULL));
	OK(cuMemcpyDtoH(&v, p, 4));
	CHECK(v == 64);
	OK(cuMemFree(p));
}

static void threads(CUmodule m)
{
	enum { N = 256 };
	CUdeviceptr p, out;
	int h[N], n = N, sum = 0, v = 0;
	void *args[] = { &p, &n }, *args2[] = { &p, &out };

	for (int i = 0; i < N; i++)
		sum += h[i] = i * i;
	OK(cuMemAlloc(&p, sizeof h));
	OK(cuMemAlloc(&out, 4));
	OK(cuMemcpyHtoD(p, h, sizeof h));
	OK(cuMemsetD32(out, 0, 1));
	OK(cuLaunchKernel(kernel(m, "warp_sum"), 2, 1, 1, 128, 1, 1, 0, NULL, args2, NULL));
	OK(cuMemcpyDtoH(&v, out, 4));
	CHECK(v == sum);
	OK(cuLaunchKernel(kernel(m, "reverse"), 1, 1, 1, N, 1, 1, sizeof h, NULL, args, NULL));
	OK(cuMemcpyDtoH(h, p, sizeof h));
	for (int i = 0; i < N; i++)
		CHECK(h[i] == (N - 1 - i) * (N - 1 - i));
	/* Parameters as one packed buffer. */
	struct {
		CUdeviceptr p;
		int n, v;
	} packed = { p, N, 1 };
	size_t bytes = sizeof packed;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
	OK(cuLaunchKernel(kernel(m, "add"), 1, 1, 1, N, 1, 1, 0, NULL, NULL, extra));
	OK(cuMemcpyDtoH(&v, p, 4));
	CHECK(v == (N - 1) * (N - 1) + 1);
	OK(cuMemFree(p));
	OK(cuMemFree(out));
}

static void copies(void)
{
	CUdeviceptr p;
	size_t pitch;
	unsigned char a[24], b[24];

	OK(cuMemAllocPitch(&p, &pitch, 6, 4, 4));
	CHECK(pitch >= 6 && pitch % 512 == 0);
	for (int i = 0; i < 24; i++)
		a[i] = (unsigned char)i;
	CUDA_MEMCPY2D c = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = a, .srcPitch = 6, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = p, .dstPitch = pitch, .WidthInBytes = 6, .Height = 4 };
	OK(cuMemcpy2D(&c));
	OK(cuMemcpyDtoH(b, p + pitch * 3, 6));
	CHECK(!memcmp(b, a + 18, 6));
	OK(cuMemsetD2D8(p, pitch, 7, 3, 4));
	CUDA_MEMCPY2D back = { .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = b, .dstPitch = 6, .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = p, .srcPitch = pitch, .WidthInBytes = 6, .Height = 4 };
	OK(cuMemcpy2D(&back));
	for (int i = 0; i < 24; i++)
		CHECK(b[i] == (i % 6 < 3 ? 7 : i));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(b, (CUdeviceptr)(uintptr_t)a, 4));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(b, p, 1 << 30));
	OK(cuMemFree(p));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0));
}

static void contexts(CUcontext primary)
{
	CUcontext c, d;
	int v;
	size_t n;

	OK(cuDriverGetVersion(&v));
	CHECK(v == CUDA_VERSION);
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem(&n, 1));
	OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	CHECK(v == 1);
	OK(cuCtxCreate(&c, NULL, 0, 0));
	OK(cuCtxGetCurrent(&d));
	CHECK(d == c);
	OK(cuCtxDestroy(c));
	OK(cuCtxGetCurrent(&d));
	CHECK(d == primary);
	OK(cuCtxPopCurrent(&d));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
	OK(cuCtxPushCurrent(d));
}

int main(void)
{
	int n;

	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
	CUcontext c = device_start();
	CUmodule m = kernels_load();
	contexts(c);
	modules(m);
	shapes(m);
	threads(m);
	copies();
	OK(cuModuleUnload(m));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(m));
	/* Exported and not implemented: never a success. */
	CUarray a;
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuArrayCreate(&a, NULL));
	return 0;
}
