/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at once: each checks that its own stream kept its order while the others allocate, copy, wait and free. */
#include <pthread.h>

#include "check.h"

#define THREADS 4
#define N 512
/* SOAK_ROUNDS= is for a longer one. */
static int rounds = 1500;

static CUcontext ctx;
static CUfunction add;
static CUdeviceptr shared; /* one counter a thread, added to on streams that wait for each other */
static CUevent events[THREADS];

static void *worker(void *arg)
{
	int id = (int)(intptr_t)arg;
	unsigned seed = (unsigned)id * 7919 + 1;
	int *pinned, pageable[N], want = 0;
	CUdeviceptr p, q;
	CUstream s;

	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamCreate(&s, id % 2 ? CU_STREAM_NON_BLOCKING : 0));
	OK(cuMemHostAlloc((void **)&pinned, sizeof pageable, 0));
	OK(cuMemAlloc(&p, sizeof pageable));
	OK(cuMemsetD32Async(p, 0, N, s));
	for (int i = 0; i < rounds; i++) {
		int v = rand_r(&seed) % 100;

		OK(launch_add(add, s, p, N, v));
		want += v;
		switch (rand_r(&seed) % 7) {
		case 0:
			OK(cuMemAllocAsync(&q, 1 + (size_t)(rand_r(&seed) % 3000000), s));
			OK(cuMemsetD8Async(q, 1, 1, s));
			OK(cuMemFreeAsync(q, s));
			break;
		case 1:
			OK(cuMemAlloc(&q, 4096 * (1 + (size_t)id)));
			OK(cuMemFree(q));
			break;
		case 2:
			OK(cuMemcpyDtoHAsync(pinned, p, sizeof pageable, s));
			OK(cuStreamSynchronize(s));
			for (int k = 0; k < N; k++)
				CHECK(pinned[k] == want);
			break;
		case 3:
			OK(cuMemcpyDtoHAsync(pageable, p, sizeof pageable, s));
			for (int k = 0; k < N; k++)
				CHECK(pageable[k] == want);
			break;
		case 4:
			OK(cuEventRecord(events[id], s));
			OK(cuStreamWaitEvent(s, events[(id + 1) % THREADS], 0));
			break;
		case 5:
			for (int k = 0; k < N; k++)
				pageable[k] = v;
			want = v;
			OK(cuMemcpyHtoDAsync(p, pageable, sizeof pageable, s));
			break;
		default:
			OK(launch_add(add, CU_STREAM_LEGACY, shared + 4 * (CUdeviceptr)id, 1, 1));
			break;
		}
	}
	OK(cuStreamDestroy(s));
	OK(cuMemcpyDtoH(pageable, p, 4)); /* not in order with a destroyed, non-blocking stream */
	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH(pageable, p, 4));
	CHECK(pageable[0] == want);
	OK(cuMemFree(p));
	OK(cuMemFreeHost(pinned));
	return NULL;
}

int main(void)
{
	if (getenv("SOAK_ROUNDS"))
		rounds = atoi(getenv("SOAK_ROUNDS"));
	pthread_t t[THREADS];
	size_t before, after, total;
	CUmemoryPool pool;

	ctx = device_start();
	add = kernel(kernels_load(), "add");
	OK(cuMemAlloc(&shared, 4096));
	OK(cuMemsetD32(shared, 0, 1024));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemGetInfo(&before, &total));
	for (int i = 0; i < THREADS; i++)
		OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, worker, (void *)(intptr_t)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	OK(cuCtxSynchronize());
	OK(cuMemPoolTrimTo(pool, 0));
	OK(cuMemGetInfo(&after, &total));
	CHECK(before == after);
	return 0;
}
