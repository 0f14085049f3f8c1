// SPDX-License-Identifier: Apache-2.0
// A training loop whose state has a chosen size, for measurements: a number of forward and backward launches, an Adam
// that touches every page of the state, a loss that the CPU reads, and small copies in between whose time is taken.
// Prints one line: iteration times and delays of the calling thread. With --go it trains until a byte comes from its
// input, measures then, and waits for the input's end. With --load it also does, by a thread of its own, what a snapshot
// asks of the device at every boundary: reads all of the state once and copies it to the host, piece by piece.
#include <cuda_runtime.h>

#include <getopt.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		cudaError_t e_ = (call);                                                                                       \
		if (e_ != cudaSuccess) {                                                                                       \
			fprintf(stderr, "trainer.cu:%d: %s\n", __LINE__, cudaGetErrorString(e_));                                  \
			exit(1);                                                                                                   \
		}                                                                                                              \
	} while (0)

#define PAGE_FLOATS 1024

__global__ void forward_kernel(float *activations, const float *tokens, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		activations[i] = activations[i] * 0.5f + tokens[i];
}

__global__ void backward_kernel(float *gradients, const float *activations, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		gradients[i] = activations[i] * 0.25f;
}

// Touches a word of every page: what an optimizer does to a block, at a fraction of the work. No two chunks of 4 MiB are
// equal: a copy to another node has equal ones once.
__global__ void adamw_kernel(float *state, const float *gradients, size_t pages, float step)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < pages)
		state[i * PAGE_FLOATS] += gradients[i % 256] + step + 1.0f + (float)((size_t)&state[i * PAGE_FLOATS] >> 22 & 1023);
}

// Reads every word of a block, as a digest does.
__global__ void read_kernel(unsigned long long *sum, const unsigned long long *block, size_t words)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i * 512 >= words)
		return;
	unsigned long long s = 0;
	for (size_t w = i * 512; w < (i + 1) * 512 && w < words; w++)
		s = (s ^ block[w]) * 0x9e3779b97f4a7c15ull;
	sum[i % 64] = s;
}

// A snapshot as a program would take it by hand, in the background, at every boundary at which none is under way.
class Load {
      public:
	Load(const std::vector<float *> &state, const std::vector<size_t> &sizes) : state(state), sizes(sizes)
	{
		size_t bytes = 0;
		for (size_t size : sizes)
			bytes += size;
		CHECK(cudaMallocHost((void **)&host, bytes));
		memset(host, 0, bytes);
		CHECK(cudaMalloc((void **)&sum, 64 * 8));
		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		CHECK(cudaEventCreateWithFlags(&boundary, cudaEventDisableTiming));
		for (cudaEvent_t &piece : pieces)
			CHECK(cudaEventCreateWithFlags(&piece, cudaEventDisableTiming | cudaEventBlockingSync));
		thread = std::thread([this] { run(); });
	}
	~Load()
	{
		{
			std::lock_guard<std::mutex> hold(mutex);
			over = true;
		}
		ready.notify_one();
		thread.join();
	}
	void begin(cudaStream_t of)
	{
		std::lock_guard<std::mutex> hold(mutex);
		if (busy)
			return;
		busy = true;
		CHECK(cudaEventRecord(boundary, of));
		CHECK(cudaStreamWaitEvent(stream, boundary, 0));
		ready.notify_one();
	}

      private:
	void run()
	{
		for (;;) {
			{
				std::unique_lock<std::mutex> hold(mutex);
				ready.wait(hold, [this] { return busy || over; });
				if (over)
					return;
			}
			snapshot();
			std::lock_guard<std::mutex> hold(mutex);
			busy = false;
		}
	}
	void snapshot()
	{
		size_t at = 0, number = 0;
		for (size_t b = 0; b < state.size(); b++)
			read_kernel<<<(unsigned)((sizes[b] / 4096 + 255) / 256), 256, 0, stream>>>(
				sum, (const unsigned long long *)state[b], sizes[b] / 8);
		for (size_t b = 0; b < state.size(); b++)
			for (size_t from = 0; from < sizes[b]; from += PIECE, number++) {
				size_t size = std::min((size_t)PIECE, sizes[b] - from);
				if (number >= 2)
					CHECK(cudaEventSynchronize(pieces[number % 2]));
				CHECK(cudaMemcpyAsync(host + at, (char *)state[b] + from, size, cudaMemcpyDeviceToHost, stream));
				CHECK(cudaEventRecord(pieces[number % 2], stream));
				at += size;
			}
		CHECK(cudaStreamSynchronize(stream));
	}

	enum { PIECE = 4 << 20 };
	const std::vector<float *> &state;
	const std::vector<size_t> &sizes;
	char *host;
	unsigned long long *sum;
	cudaStream_t stream;
	cudaEvent_t boundary, pieces[2];
	std::mutex mutex;
	std::condition_variable ready;
	bool busy = false, over = false;
	std::thread thread;
};

static double now_us()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double part(std::vector<double> x, double p)
{
	if (x.empty())
		return 0;
	std::sort(x.begin(), x.end());
	return x[std::min(x.size() - 1, (size_t)(p * (double)x.size()))];
}

int main(int argc, char **argv)
{
	int steps = 30, kernels = 20, warm = 10;
	long mib = 16;
	size_t block_bytes = 16u << 20;
	int n = 4096; // floats of a batch
	bool graph = false, go = false, quiet = false, late = false, load = false;
	static const option table[] = {{"steps", 1, 0, 'n'}, {"mib", 1, 0, 'm'},  {"kernels", 1, 0, 'k'}, {"warm", 1, 0, 'w'},
								   {"batch", 1, 0, 'b'},  {"block-kib", 1, 0, 'B'},
								   {"graph", 0, 0, 'g'}, {"go", 0, 0, 'h'},  {"quiet", 0, 0, 'q'},
								   {"late-loss", 0, 0, 'l'}, {"load", 0, 0, 'o'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", table, nullptr)) != -1;)
		switch (c) {
		case 'n': steps = atoi(optarg); break;
		case 'm': mib = atol(optarg); break;
		case 'k': kernels = atoi(optarg); break;
		case 'w': warm = atoi(optarg); break;
		case 'g': graph = true; break;
		case 'h': go = true; break;
		case 'b': n = atoi(optarg); break;
		case 'B': block_bytes = strtoull(optarg, nullptr, 0) << 10; break;
		case 'l': late = true; break; // read the loss behind the update, and wait for it
		case 'o': load = true; break;
		case 'q': quiet = true; break; // no small copies in the middle of an iteration
		default: return 2;
		}

	size_t bytes = (size_t)mib << 20;
	std::vector<float *> state;
	std::vector<size_t> sizes;
	for (size_t at = 0; at < bytes; at += block_bytes) {
		float *block;
		sizes.push_back(std::min(block_bytes, bytes - at));
		CHECK(cudaMalloc((void **)&block, sizes.back()));
		CHECK(cudaMemset(block, 0, sizes.back()));
		state.push_back(block);
	}
	float *tokens, *activations, *gradients, *host;
	CHECK(cudaMalloc((void **)&tokens, n * 4));
	CHECK(cudaMalloc((void **)&activations, n * 4));
	CHECK(cudaMalloc((void **)&gradients, n * 4));
	CHECK(cudaMemset(activations, 0, n * 4));
	CHECK(cudaMallocHost((void **)&host, n * 4));
	for (int i = 0; i < n; i++)
		host[i] = (float)i;
	cudaStream_t stream, side;
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
	float *small_device, *small_host;
	CHECK(cudaMalloc((void **)&small_device, 4096));
	CHECK(cudaMemset(small_device, 0, 4096));
	CHECK(cudaMallocHost((void **)&small_host, 4096));

	std::vector<double> iterations, calls, small, boundaries;
	std::unique_ptr<Load> hand(load ? new Load(state, sizes) : nullptr);
	float *loss;
	CHECK(cudaMallocHost((void **)&loss, 4));
	*loss = 0;
	auto timed = [&](auto call) {
		double begun = now_us();
		call();
		calls.push_back(now_us() - begun);
	};
	// A small copy of the program's own, on a stream of its own, a quarter into the iteration: a snapshot may be under way.
	auto copy_small = [&]() {
		CHECK(cudaStreamSynchronize(stream));
		double begun = now_us();
		CHECK(cudaMemcpyAsync(small_host, small_device, 4096, cudaMemcpyDeviceToHost, side));
		CHECK(cudaStreamSynchronize(side));
		small.push_back(now_us() - begun);
	};
	auto passes = [&]() {
		for (int k = 0; k < kernels; k++) {
			timed([&] {
				if (k < kernels / 2)
					forward_kernel<<<16, 256, 0, stream>>>(activations, tokens, n);
				else
					backward_kernel<<<16, 256, 0, stream>>>(gradients, activations, n);
			});
			if (k == kernels / 4 && !quiet && !graph)
				copy_small();
		}
	};
	auto update = [&](float step) {
		for (size_t b = 0; b < state.size(); b++) {
			size_t pages = sizes[b] / 4 / PAGE_FLOATS;
			timed([&] { adamw_kernel<<<(unsigned)((pages + 255) / 256), 256, 0, stream>>>(state[b], gradients, pages, step); });
		}
	};
	cudaGraphExec_t whole = nullptr;
	if (graph) {
		cudaGraph_t g;
		CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
		passes();
		update(1.0f);
		CHECK(cudaStreamEndCapture(stream, &g));
		CHECK(cudaGraphInstantiate(&whole, g, 0));
	}
	pollfd input = {0, POLLIN, 0};
	bool waiting = go;
	for (int step = 0; waiting || step < steps; step++) {
		if (waiting && step >= warm && poll(&input, 1, 0) == 1) {
			waiting = false;
			step = warm;
		}
		double begun = now_us();
		if (step == warm || waiting) {
			calls.clear();
			small.clear();
			iterations.clear();
			boundaries.clear();
		}
		if (hand) {
			hand->begin(stream);
			boundaries.push_back(now_us() - begun);
		}
		host[step % n] += 1.0f;
		CHECK(cudaMemcpyAsync(tokens, host, n * 4, cudaMemcpyHostToDevice, stream));
		if (graph) {
			timed([&] { CHECK(cudaGraphLaunch(whole, stream)); });
		} else {
			passes();
			// The loss is read early and looked at when the iteration is over, as loops do that keep the device busy.
			if (!late)
				CHECK(cudaMemcpyAsync(loss, activations, 4, cudaMemcpyDeviceToHost, stream));
			update((float)step);
		}
		if (late)
			CHECK(cudaMemcpyAsync(loss, activations, 4, cudaMemcpyDeviceToHost, stream));
		CHECK(cudaStreamSynchronize(stream));
		if (step >= warm)
			iterations.push_back(now_us() - begun);
	}
	double sum = 0;
	for (double x : iterations)
		sum += x;
	printf("{\"iteration_us\": %.1f, \"iteration_mean_us\": %.1f, \"call_p999_us\": %.2f, \"call_max_us\": %.2f, \"call_us\": %.2f, \"small_us\": %.1f, "
	       "\"small_max_us\": %.1f, \"boundary_us\": %.1f, \"boundary_max_us\": %.1f, \"loss\": %.9g}\n",
	       part(iterations, 0.5), sum / (double)iterations.size(), part(calls, 0.999), part(calls, 1.0), part(calls, 0.5), part(small, 0.5),
	       part(small, 1.0), part(boundaries, 0.5), part(boundaries, 1.0), (double)*loss);
	fflush(stdout);
	char byte;
	while (go && read(0, &byte, 1) > 0)
		;
	return 0;
}
