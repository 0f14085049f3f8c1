// SPDX-License-Identifier: Apache-2.0
/* A training loop of several ranks with communicators of every kind: two of all ranks that are used in turns, of which the second's id comes by the
 * first; parts, and all ranks in the other order, by splits; one that is gone before the first step; buffers that are registered and a sum that
 * multiplies, which live through all steps; one whose id is asked for before the first step and used late; parts that end late, and others that begin
 * then. A thread asks all the time whether something is wrong. Argument: how many steps. */
#include <arpa/inet.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <nccl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

enum { N = 1 << 12, TENSORS = 4 };

#define CHECK(call)                                                                                    \
	do {                                                                                               \
		int e_ = (int)(call);                                                                          \
		if (e_) {                                                                                      \
			fprintf(stderr, "communicators: line %d: %s: %d %s\n", __LINE__, #call, e_, ncclGetLastError(nullptr)); \
			exit(1);                                                                                   \
		}                                                                                              \
	} while (0)

static int rank, world;

__global__ void gradient_kernel(const float *p, float *g, long n, int step, int rank)
{
	long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
	if (i < n)
		g[i] = p[i] * 0.25f + (float)((i + step * 7 + rank * 3) % 11) * 0.125f;
}

extern "C" __global__ void _Z13adamw_kernel2PfS_S_S_lfffffff(float *p, float *g, float *m, float *v, long n, float lr, float beta1, float beta2,
							     float correction1, float correction2, float eps, float decay)
{
	long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	m[i] = beta1 * m[i] + (1.0f - beta1) * g[i];
	v[i] = beta2 * v[i] + (1.0f - beta2) * g[i] * g[i];
	p[i] -= lr * (m[i] / correction1 / (sqrtf(v[i] / correction2) + eps) + decay * p[i]);
}

static void whole(int fd, void *bytes, size_t n, bool out)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = out ? write(fd, (char *)bytes + done, n - done) : read(fd, (char *)bytes + done, n - done);
		if (k <= 0)
			exit(2);
		done += (size_t)k;
	}
}

/* Rank 0 gives its ids to all. */
static void meet(ncclUniqueId *ids, size_t count)
{
	sockaddr_in at = {};
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	at.sin_family = AF_INET, at.sin_port = htons((uint16_t)atoi(getenv("MASTER_PORT"))), at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (rank == 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		CHECK(bind(fd, (sockaddr *)&at, sizeof at) || listen(fd, world));
		for (int i = 1; i < world; i++) {
			int to = accept(fd, nullptr, nullptr);
			whole(to, ids, count * sizeof *ids, true);
			close(to);
		}
	} else {
		for (int patience = 3000; connect(fd, (sockaddr *)&at, sizeof at); usleep(20000)) {
			if (!patience--)
				exit(3);
			close(fd);
			fd = socket(AF_INET, SOCK_STREAM, 0);
		}
		whole(fd, ids, count * sizeof *ids, false);
	}
	close(fd);
}

static std::atomic<bool> done;
static std::atomic<int> wrong;

static void watch(std::vector<ncclComm_t> all)
{
	while (!done) {
		for (ncclComm_t c : all) {
			ncclResult_t e = ncclSuccess;
			if (ncclCommGetAsyncError(c, &e) || e)
				wrong++;
		}
		usleep(2000);
	}
}

static int number(ncclResult_t (*of)(ncclComm_t, int *), ncclComm_t c)
{
	int n = -1;
	CHECK(of(c, &n));
	return n;
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 60, devices;
	ncclComm_t all, second, parts = nullptr, turned, gone, late = nullptr;
	ncclUniqueId ids[2], other;
	float *p[TENSORS], *g[TENSORS], *m[TENSORS], *v[TENSORS], *gathered, half = 0.5f;
	std::vector<float> host(N);
	void *registered, *given_up, *bytes;
	ncclRedOp_t mean;
	cudaStream_t stream;

	/* Or as a launcher says it that nobody knows. */
	rank = atoi(getenv(getenv("RANK") ? "RANK" : "OWN_RANK")), world = atoi(getenv(getenv("RANK") ? "WORLD_SIZE" : "OWN_WORLD"));
	CHECK(cudaGetDeviceCount(&devices));
	CHECK(cudaSetDevice(rank % devices));
	CHECK(cudaStreamCreate(&stream));
	if (rank == 0)
		for (ncclUniqueId &id : ids)
			CHECK(ncclGetUniqueId(&id));
	meet(ids, 2);
	CHECK(ncclCommInitRank(&all, world, ids[0], rank));
	for (int i = 0; i < TENSORS; i++)
		for (float **t : {&p[i], &g[i], &m[i], &v[i]}) {
			CHECK(cudaMalloc((void **)t, N * sizeof(float)));
			CHECK(cudaMemset(*t, 0, N * sizeof(float)));
		}
	/* Where the first weights begin is in a file of the rank's. */
	char path[32];
	snprintf(path, sizeof path, "begin.%d", rank);
	if (FILE *from = fopen(path, "r")) {
		host[0] = (float)fgetc(from);
		fclose(from);
	}
	CHECK(cudaMemcpy(p[0], host.data(), sizeof(float), cudaMemcpyHostToDevice));
	CHECK(cudaMalloc((void **)&gathered, world * N * sizeof(float)));

	/* The second one's id goes by the first, and is read back from the device. */
	CHECK(cudaMalloc(&bytes, sizeof other));
	if (rank == world - 1) {
		CHECK(ncclGetUniqueId(&other));
		CHECK(cudaMemcpy(bytes, &other, sizeof other, cudaMemcpyHostToDevice));
	}
	CHECK(ncclBroadcast(bytes, bytes, sizeof other, ncclUint8, world - 1, all, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMemcpy(&other, bytes, sizeof other, cudaMemcpyDeviceToHost));
	CHECK(ncclCommInitRankConfig(&second, world, other, rank, nullptr));

	CHECK(ncclCommSplit(all, 0, rank, &gone, nullptr));
	CHECK(ncclAllReduce(g[0], g[0], N, ncclFloat32, ncclSum, gone, stream));
	CHECK(ncclCommSplit(all, rank % 2, rank, &parts, nullptr));
	CHECK(ncclCommSplit(second, 0, -rank, &turned, nullptr));
	CHECK(ncclCommRegister(all, g[0], N * sizeof(float), &registered));
	CHECK(ncclCommRegister(all, g[1], N * sizeof(float), &given_up));
	CHECK(ncclRedOpCreatePreMulSum(&mean, &half, ncclFloat32, ncclScalarHostImmediate, all));
	CHECK(ncclCommDeregister(all, given_up));
	CHECK(ncclCommDestroy(gone));
	std::thread watcher(watch, std::vector<ncclComm_t>{all, second, turned});
	/* Ranks of the turned one are in the other order; parts are of every second. */
	printf("rank %d of %d, %d of %d, part %d of %d, device %d\n", number(ncclCommUserRank, all), number(ncclCommCount, all),
	       number(ncclCommUserRank, turned), number(ncclCommCount, turned), number(ncclCommUserRank, parts), number(ncclCommCount, parts),
	       number(ncclCommCuDevice, turned) == number(ncclCommCuDevice, all));

	for (int step = 0; step < steps; step++) {
		if (step == steps * 3 / 4) {
			ncclComm_t fewer;
			CHECK(ncclCommInitRank(&late, world, ids[1], rank));
			CHECK(ncclCommSplit(turned, rank < world / 2, rank, &fewer, nullptr));
			CHECK(ncclCommDestroy(parts));
			parts = fewer;
			CHECK(ncclCommDeregister(all, registered));
		}
		for (int i = 0; i < TENSORS; i++) {
			gradient_kernel<<<N / 256, 256, 0, stream>>>(p[i], g[i], N, step, rank);
			CHECK(ncclAllReduce(g[i], g[i], N, ncclFloat32, i ? ncclSum : mean, i ? (step + i) % 2 ? all : second : all, stream));
		}
		CHECK(ncclGroupStart());
		CHECK(ncclReduceScatter(g[1], g[1] + number(ncclCommUserRank, turned) * (N / world), N / world, ncclFloat32, ncclSum, turned, stream));
		CHECK(ncclAllReduce(g[2], g[2], N, ncclFloat32, ncclMax, parts, stream));
		CHECK(ncclGroupEnd());
		CHECK(ncclAllGather(g[3], gathered, N, ncclFloat32, late ? late : second, stream));
		for (int i = 0; i < TENSORS; i++)
			_Z13adamw_kernel2PfS_S_S_lfffffff<<<N / 256, 256, 0, stream>>>(p[i], g[i], m[i], v[i], (long)N, 0.01f, 0.9f, 0.99f, 0.1f, 0.1f,
										       1e-8f, 0.01f);
		CHECK(cudaMemcpyAsync(host.data(), p[step % TENSORS], N * sizeof(float), cudaMemcpyDeviceToHost, stream));
		CHECK(cudaStreamSynchronize(stream));
		printf("step %d %.9g\n", step, host[step % N]);
		fflush(stdout);
	}
	done = true;
	watcher.join();
	char name[64];
	snprintf(name, sizeof name, "out/final_r%02d.bin", rank);
	FILE *f = fopen(name, "wb");
	for (int i = 0; i < TENSORS; i++) {
		CHECK(cudaMemcpy(host.data(), p[i], N * sizeof(float), cudaMemcpyDeviceToHost));
		fwrite(host.data(), sizeof(float), N, f);
	}
	fprintf(f, "%d\n", wrong.load());
	fclose(f);
	CHECK(ncclRedOpDestroy(mean, all));
	for (ncclComm_t c : {late, parts, turned, second, all})
		CHECK(ncclCommDestroy(c));
	return 0;
}
