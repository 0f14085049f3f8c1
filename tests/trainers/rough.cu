// SPDX-License-Identifier: Apache-2.0
// A linear model of many small layers, trained as by scripts that nobody has tuned.
//
// With --late each iteration from the tenth, or that of --late-from, on launches a kernel that was never launched before; with --launches so many small ones; with
// --streams the layers' gradients are computed on so many streams; with --pageable all weights are copied to ordinary memory in each iteration,
// and with --allocate memory is taken and given back in each. With --clock the gradients are scaled by a number that follows the time since the start, with --counter by the processor's counter; with --graph in a graph: `captured` in
// each step, `updated` by what was captured in each step, `built` once, with a node that is changed, or `added` as a part of another one, by the call that adds
// nodes of any type, in each step; with `host` the loss comes by a node that copies it. --launch says how such a kernel is launched without a graph: `config` and
// `configured` by the runtime's call with a configuration, as C++ and as C; `driver` by the driver's call, `driver-config` by that with a configuration; `buffer` and
// `buffer-config` by these with all arguments in one buffer; `cooperative` by the call for kernels whose blocks wait for each other. With --tally a
// kernel counts in pinned host memory, by its own address, and the count is printed. Adam, one launch a layer. The loss is read back and printed.
#include <cuda.h>
#include <cuda_runtime.h>

#include <getopt.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#define CHECK(call) check_cuda((call), #call, __LINE__)
#define BLOCK 128
#define LATE 200

static void check_cuda(cudaError_t e, const char *call, int line)
{
	if (e != cudaSuccess) {
		fprintf(stderr, "rough.cu:%d: %s: %s\n", line, call, cudaGetErrorString(e));
		exit(1);
	}
}

struct Options {
	const char *out = ".";
	unsigned long long seed = 1;
	int steps = 40, layers = 24, size = 4096, launches = 0, streams = 1, late_from = 10;
	bool late = false, pageable = false, allocate = false, clock = false, counter = false, tally = false;
	std::string graph, launch;
};

static Options parse(int argc, char **argv)
{
	Options o;
	static const option table[] = {{"steps", 1, 0, 'n'},    {"out", 1, 0, 'o'},      {"seed", 1, 0, 's'}, {"layers", 1, 0, 'L'}, {"size", 1, 0, 'S'},
								   {"launches", 1, 0, 'l'}, {"streams", 1, 0, 't'}, {"late", 0, 0, 'a'}, {"late-from", 1, 0, 'F'}, {"pageable", 0, 0, 'p'}, {"allocate", 0, 0, 'A'}, {"clock", 0, 0, 'c'}, {"counter", 0, 0, 'C'}, {"tally", 0, 0, 'T'}, {"graph", 1, 0, 'G'}, {"launch", 1, 0, 'B'},
								   {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", table, nullptr)) != -1;)
		switch (c) {
		case 'n': o.steps = atoi(optarg); break;
		case 'o': o.out = optarg; break;
		case 's': o.seed = strtoull(optarg, nullptr, 0); break;
		case 'L': o.layers = atoi(optarg); break;
		case 'S': o.size = atoi(optarg); break;
		case 'l': o.launches = atoi(optarg); break;
		case 't': o.streams = atoi(optarg); break;
		case 'a': o.late = true; break;
		case 'F': o.late_from = atoi(optarg); break;
		case 'p': o.pageable = true; break;
		case 'A': o.allocate = true; break;
		case 'c': o.clock = true; break;
		case 'C': o.counter = true; break;
		case 'T': o.tally = true; break;
		case 'G': o.graph = optarg; break;
		case 'B': o.launch = optarg; break;
		default: exit(2);
		}
	return o;
}

static double seconds()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// What no library is asked for.
static double counter()
{
#if defined(__x86_64__)
	return (double)__builtin_ia32_rdtsc() * 1e-10;
#else
	return seconds();
#endif
}

__device__ unsigned mix(unsigned x)
{
	x = (x ^ (x >> 16)) * 0x45d9f3bu;
	x = (x ^ (x >> 16)) * 0x45d9f3bu;
	return x ^ (x >> 16);
}

__device__ float drawn(unsigned seed, unsigned i)
{
	return (float)(mix(seed * 2654435761u + i) >> 8) / 8388608.0f - 1.0f;
}

__global__ void init_weights(float *w, int n, unsigned seed)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i < n)
		w[i] = drawn(seed, (unsigned)i);
}

// What the layer should be, seen through noise.
__global__ void gradient(const float *w, float *g, int n, unsigned layer, unsigned batch)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i < n)
		g[i] = w[i] - drawn(layer + 1000, (unsigned)i) + 0.1f * drawn(batch, (unsigned)i);
}

template <int N> __global__ void regularize(float *g, const float *w, int n)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i < n)
		g[i] += w[i] * (1e-4f * (N + 1));
}

__global__ void scale(float *g, int n, float by)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i < n)
		g[i] *= by;
}

__global__ void add_loss(float *loss, const float *g, int n)
{
	float sum = 0;
	for (int i = 0; i < n; i++)
		sum += g[i] * g[i];
	*loss += sum / (float)n;
}

__global__ void adam(float *w, const float *g, float *m, float *v, int n, float rate, float correct1, float correct2)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i >= n)
		return;
	m[i] = 0.9f * m[i] + 0.1f * g[i];
	v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
	w[i] -= rate * (m[i] / correct1) / (sqrtf(v[i] / correct2) + 1e-8f);
}

__global__ void tally(unsigned *count)
{
	++*count;
}

struct Tally {
	unsigned *count;
	unsigned by;
};

__global__ void tally_by(Tally t)
{
	*t.count += t.by;
}

static void *driver_call(const char *name)
{
	void *found = nullptr;
	cudaDriverEntryPointQueryResult how;

#if CUDART_VERSION >= 12050
	CHECK(cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, cudaEnableDefault, &how));
#else
	CHECK(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how));
#endif
	if (!found) {
		fprintf(stderr, "rough.cu: no %s\n", name);
		exit(1);
	}
	return found;
}

// The scaling by one of the other calls that launch a kernel.
static void launch_scale(const std::string &how, float *g, int n, float by, int grid)
{
	static auto plain = (decltype(&cuLaunchKernel))driver_call("cuLaunchKernel");
	static auto with_config = (decltype(&cuLaunchKernelEx))driver_call("cuLaunchKernelEx");
	void *arguments[] = {&g, &n, &by};
	struct {
		float *g;
		int n;
		float by;
	} buffer = {g, n, by};
	size_t bytes = sizeof buffer;
	void *in_one[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	bool buffered = how == "buffer" || how == "buffer-config";
	void **one_by_one = buffered ? nullptr : arguments, **packed = buffered ? in_one : nullptr;
	cudaLaunchConfig_t config = {dim3((unsigned)grid), dim3(BLOCK), 0, nullptr, nullptr, 0};
	CUlaunchConfig drivers = {};
	cudaFunction_t function;
	CUresult result = CUDA_SUCCESS;

	CHECK(cudaGetFuncBySymbol(&function, (const void *)scale));
	drivers.gridDimX = (unsigned)grid;
	drivers.blockDimX = BLOCK;
	drivers.gridDimY = drivers.gridDimZ = drivers.blockDimY = drivers.blockDimZ = 1;
	if (how == "config")
		CHECK(cudaLaunchKernelEx(&config, scale, g, n, by));
	else if (how == "configured")
		CHECK(cudaLaunchKernelExC(&config, (const void *)scale, arguments));
	else if (how == "cooperative")
		CHECK(cudaLaunchCooperativeKernel((const void *)scale, dim3((unsigned)grid), dim3(BLOCK), arguments, 0, nullptr));
	else if (how == "driver-config" || how == "buffer-config")
		result = with_config(&drivers, (CUfunction)function, one_by_one, packed);
	else
		result = plain((CUfunction)function, (unsigned)grid, 1, 1, BLOCK, 1, 1, 0, nullptr, one_by_one, packed);
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "rough.cu: the driver says %d of a launch\n", (int)result);
		exit(1);
	}
}

// The scaling as a graph of one node, which is built once.
static void set_scale(cudaGraphExec_t *kept, float *g, int n, float by, int grid)
{
	static cudaGraphNode_t node;
	void *arguments[] = {&g, &n, &by};
	cudaKernelNodeParams p = {(void *)scale, dim3((unsigned)grid), dim3(BLOCK), 0, arguments, nullptr};

	if (!kept)
		return;
	if (!*kept) {
		cudaGraph_t graph;
		CHECK(cudaGraphCreate(&graph, 0));
		CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &p));
		CHECK(cudaGraphInstantiate(kept, graph, 0));
	} else {
		CHECK(cudaGraphExecKernelNodeSetParams(*kept, node, &p));
	}
	CHECK(cudaGraphLaunch(*kept, 0));
}

// The same as a part of a graph, both new.
static void add_scale(cudaGraph_t graph, float *g, int n, float by, int grid)
{
	void *arguments[] = {&g, &n, &by};
	cudaGraphNodeParams kernel = {}, part = {};
	cudaGraphNode_t node;
	cudaGraph_t child;

	CHECK(cudaGraphCreate(&child, 0));
	kernel.type = cudaGraphNodeTypeKernel;
	kernel.kernel = {(void *)scale, dim3((unsigned)grid), dim3(BLOCK), 0, arguments, nullptr};
	CHECK(cudaGraphAddNode(&node, child, nullptr, nullptr, 0, &kernel));
	part.type = cudaGraphNodeTypeGraph;
	part.graph.graph = child;
	CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &part));
	CHECK(cudaGraphDestroy(child));
}

// A graph that brings a number to the host, which is built once.
static void copy_out(cudaGraphExec_t *kept, float *to, const float *from)
{
	cudaGraphNode_t node;
	cudaGraph_t graph;

	if (!*kept) {
		CHECK(cudaGraphCreate(&graph, 0));
		CHECK(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, to, from, sizeof *to, cudaMemcpyDeviceToHost));
		CHECK(cudaGraphInstantiate(kept, graph, 0));
	}
	CHECK(cudaGraphLaunch(*kept, 0));
	CHECK(cudaStreamSynchronize(0));
}

template <int N> static void launch_late(int grid, cudaStream_t stream, float *g, const float *w, int n)
{
	regularize<N><<<grid, BLOCK, 0, stream>>>(g, w, n);
}

using Late = void (*)(int, cudaStream_t, float *, const float *, int);
template <int... N> static std::array<Late, sizeof...(N)> late_kernels(std::integer_sequence<int, N...>)
{
	return {{launch_late<N>...}};
}

struct Layer {
	float *w, *g, *m, *v;
};

int main(int argc, char **argv)
{
	Options o = parse(argc, argv);
	auto late = late_kernels(std::make_integer_sequence<int, LATE>());
	std::vector<Layer> layers((size_t)o.layers);
	std::vector<cudaStream_t> streams((size_t)o.streams);
	std::vector<cudaEvent_t> done((size_t)o.streams);
	std::vector<float> host((size_t)o.size);
	size_t bytes = (size_t)o.size * sizeof(float);
	int grid = (o.size + BLOCK - 1) / BLOCK;
	float *loss, correct1 = 1, correct2 = 1;
	cudaEvent_t ready;
	static float shown;
	double seen = 0, began = o.counter ? counter() : seconds();
	std::string path = std::string(o.out) + "/log.txt";
	unsigned *counts = nullptr;
	cudaStream_t capturing = nullptr;
	cudaGraphExec_t kept = nullptr;
	FILE *log;

	mkdir(o.out, 0777);
	log = fopen(path.c_str(), "w");
	if (!log) {
		perror(path.c_str());
		return 1;
	}
	if (o.tally) {
		CHECK(cudaHostAlloc((void **)&counts, 4096, cudaHostAllocMapped));
		memset(counts, 0, 4096);
	}
	if (!o.graph.empty())
		CHECK(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
	CHECK(cudaMalloc((void **)&loss, sizeof *loss));
	CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
	for (int i = 0; i < o.streams; i++) {
		CHECK(cudaStreamCreateWithFlags(&streams[(size_t)i], cudaStreamNonBlocking));
		CHECK(cudaEventCreateWithFlags(&done[(size_t)i], cudaEventDisableTiming));
	}
	for (Layer &l : layers) {
		for (float **p : {&l.w, &l.g, &l.m, &l.v}) {
			CHECK(cudaMalloc((void **)p, bytes));
			CHECK(cudaMemset(*p, 0, bytes));
		}
		init_weights<<<grid, BLOCK>>>(l.w, o.size, (unsigned)(o.seed * 77 + (unsigned)(&l - layers.data())));
	}
	for (int step = 1; step <= o.steps; step++) {
		float now = 0, *scratch = nullptr;

		if (o.allocate)
			CHECK(cudaMalloc((void **)&scratch, bytes * (size_t)(1 + step % 3)));
		CHECK(cudaMemsetAsync(loss, 0, sizeof *loss, 0));
		CHECK(cudaEventRecord(ready, 0));
		for (int i = 0; i < o.streams; i++)
			CHECK(cudaStreamWaitEvent(streams[(size_t)i], ready, 0));
		for (int k = 0; k < o.layers; k++) {
			Layer &l = layers[(size_t)k];
			cudaStream_t stream = streams[(size_t)(k % o.streams)];

			gradient<<<grid, BLOCK, 0, stream>>>(l.w, l.g, o.size, (unsigned)k, (unsigned)(o.seed * 1000003 + (unsigned)(step * o.layers + k)));
			if (o.late && step >= o.late_from && k == 0)
				late[(size_t)(step - o.late_from) % LATE](grid, stream, l.g, l.w, o.size);
			for (int i = 0; i < o.launches / o.layers; i++)
				scale<<<1, BLOCK, 0, stream>>>(l.g, BLOCK, i % 2 ? 0.5f : 2.0f);
		}
		for (int i = 0; i < o.streams; i++) {
			CHECK(cudaEventRecord(done[(size_t)i], streams[(size_t)i]));
			CHECK(cudaStreamWaitEvent(0, done[(size_t)i], 0));
		}
		if (o.clock || o.counter) {
			bool captured = o.graph == "captured" || o.graph == "updated", added = o.graph == "added";
			cudaGraph_t graph = nullptr;

			if (captured)
				CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeGlobal));
			if (added)
				CHECK(cudaGraphCreate(&graph, 0));
			for (Layer &l : layers) {
				float by = 1.0f + (step == 1 ? 0.0f : (float)((o.counter ? counter() : seconds()) - began));
				if (o.graph == "built")
					set_scale(&l == &layers[0] ? &kept : nullptr, l.g, o.size, by, grid);
				else if (added)
					add_scale(graph, l.g, o.size, by, grid);
				else if (!o.launch.empty())
					launch_scale(o.launch, l.g, o.size, by, grid);
				else
					scale<<<grid, BLOCK, 0, captured ? capturing : 0>>>(l.g, o.size, by);
			}
			if (captured)
				CHECK(cudaStreamEndCapture(capturing, &graph));
			if (graph) {
				if (kept && o.graph == "updated") {
					cudaGraphExecUpdateResultInfo info;
					CHECK(cudaGraphExecUpdate(kept, graph, &info));
				} else {
					CHECK(cudaGraphInstantiate(&kept, graph, 0));
				}
				CHECK(cudaGraphLaunch(kept, 0));
				CHECK(cudaGraphDestroy(graph));
				if (o.graph != "updated") {
					CHECK(cudaStreamSynchronize(0));
					CHECK(cudaGraphExecDestroy(kept));
				}
			}
		}
		for (Layer &l : layers)
			add_loss<<<1, 1>>>(loss, l.g, 64);
		if (scratch) {
			CHECK(cudaMemcpyAsync(scratch, layers[0].g, bytes, cudaMemcpyDeviceToDevice, 0));
			CHECK(cudaFree(scratch));
		}
		correct1 = 1 - (step == 1 ? 1 : 1 - correct1) * 0.9f;
		correct2 = 1 - (step == 1 ? 1 : 1 - correct2) * 0.999f;
		for (Layer &l : layers)
			adam<<<grid, BLOCK>>>(l.w, l.g, l.m, l.v, o.size, 0.01f, correct1, correct2);
		if (o.pageable)
			for (Layer &l : layers) {
				CHECK(cudaMemcpy(host.data(), l.w, bytes, cudaMemcpyDeviceToHost));
				seen += host[(size_t)step % host.size()];
			}
		if (o.graph == "host")
			copy_out(&kept, &shown, loss);
		CHECK(cudaMemcpy(&now, loss, sizeof now, cudaMemcpyDeviceToHost));
		if (o.tally) {
			tally<<<1, 1>>>(counts);
			tally_by<<<1, 1>>>(Tally{counts + 1, 1000});
			CHECK(cudaDeviceSynchronize());
			seen = counts[0] + counts[1];
		}
		for (FILE *to : {log, stdout}) {
			fprintf(to, "step %d loss %.6f seen %.6f\n", step, (double)now, seen);
			fflush(to);
		}
	}
	fclose(log);
	path = std::string(o.out) + "/final.bin";
	FILE *f = fopen(path.c_str(), "wb");
	if (!f) {
		perror(path.c_str());
		return 1;
	}
	for (Layer &l : layers) {
		CHECK(cudaMemcpy(host.data(), l.w, bytes, cudaMemcpyDeviceToHost));
		if (fwrite(host.data(), 1, bytes, f) != bytes) {
			perror(path.c_str());
			return 1;
		}
	}
	return fclose(f) ? 1 : 0;
}
