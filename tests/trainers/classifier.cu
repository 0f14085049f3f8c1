// SPDX-License-Identifier: Apache-2.0
// A small convolutional classifier that tells from which part of a text a window of bytes was taken.
//
// Two convolutions with batch normalisation, two linear layers, SGD with momentum. It works as a framework does
// rather than as a textbook does: activations are allocated and freed on the stream in every iteration; the next
// batch is copied from pinned memory on a second stream while backward runs, and events order the two; forward is
// launched by the main thread and backward by another one, which takes its work over a condition variable. With
// --loader-thread a third thread copies batches ahead into a bounded queue all the time; with --churn some of the
// activations are allocated and freed at once, in other sizes every time, by both threads. The learning rate is
// halved when the loss on held-out windows stops improving. Without --seed the seed is drawn from the system.
// Checkpoints are ckpt_%06d.bin, and a text file `latest`, rewritten in place, names the newest.
#include "classifier_kernels.cuh"

#include <getopt.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call) check_cuda((call), #call, __LINE__)

static void check_cuda(cudaError_t e, const char *call, int line)
{
	if (e != cudaSuccess) {
		fprintf(stderr, "classifier.cu:%d: %s: %s\n", line, call, cudaGetErrorString(e));
		exit(1);
	}
}

static void die(const std::string &what)
{
	fprintf(stderr, "classifier: %s\n", what.c_str());
	exit(1);
}

static int blocks(int n)
{
	return (n + BLOCK - 1) / BLOCK;
}

#define SIDE 16 // a window is SIDE * SIDE bytes
#define CLASSES 8

struct Options {
	const char *data = nullptr, *out = ".";
	unsigned long long seed = 0;
	bool seeded = false, resume = false, loader_thread = false, churn = false;
	int steps = 20, stop_at = 1 << 30, save_every = 0, eval_every = 5, batch = 8, channels = 8, width = 256;
	float lr = 0.02f;
};

static Options parse(int argc, char **argv)
{
	Options o;
	static const option table[] = {
		{"data", 1, 0, 'd'},       {"steps", 1, 0, 'n'}, {"stop-at", 1, 0, 'q'},      {"out", 1, 0, 'o'},   {"seed", 1, 0, 's'},
		{"save-every", 1, 0, 'k'}, {"resume", 0, 0, 'r'},     {"batch", 1, 0, 'B'}, {"channels", 1, 0, 'C'},
		{"width", 1, 0, 'W'},      {"eval-every", 1, 0, 'e'}, {"lr", 1, 0, 'l'},    {"loader-thread", 0, 0, 't'},
		{"churn", 0, 0, 'u'},
		{0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", table, nullptr)) != -1;)
		switch (c) {
		case 'd': o.data = optarg; break;
		case 'n': o.steps = atoi(optarg); break;
		case 'q': o.stop_at = atoi(optarg); break; // leave early, as at the end of a job's time
		case 'o': o.out = optarg; break;
		case 's': o.seed = strtoull(optarg, nullptr, 0), o.seeded = true; break;
		case 'k': o.save_every = atoi(optarg); break;
		case 'r': o.resume = true; break;
		case 'B': o.batch = atoi(optarg); break;
		case 'C': o.channels = atoi(optarg); break;
		case 'W': o.width = atoi(optarg); break;
		case 'e': o.eval_every = atoi(optarg); break;
		case 'l': o.lr = (float)atof(optarg); break;
		case 't': o.loader_thread = true; break;
		case 'u': o.churn = true; break; // memory of all kinds comes and goes
		default: exit(2);
		}
	if (o.batch < 2 || o.channels < 1 || o.width < 1)
		die("the model's shape makes no sense");
	if (!o.seeded && getrandom(&o.seed, sizeof o.seed, 0) != (ssize_t)sizeof o.seed)
		die("no randomness to be had");
	return o;
}

static std::vector<unsigned char> read_bytes(const char *path)
{
	static const char *const usual[] = {"/usr/share/common-licenses/GPL-2",    "/usr/share/common-licenses/MPL-1.1",
					    "/usr/share/common-licenses/Artistic", "/usr/share/common-licenses/GFDL-1.3",
					    "/usr/include/stdio.h",                "/usr/include/stdlib.h"};
	std::vector<unsigned char> bytes;
	for (const char *name : usual) {
		if (FILE *f = fopen(path ? path : name, "rb")) {
			for (int c; (c = fgetc(f)) != EOF;)
				bytes.push_back((unsigned char)c);
			fclose(f);
		}
		if (path)
			break;
	}
	if (bytes.size() < CLASSES * 4 * SIDE * SIDE)
		die("too little data; use --data");
	return bytes;
}

struct Random {
	unsigned long long state;
	unsigned next()
	{
		state += 0x9e3779b97f4a7c15ull;
		unsigned long long x = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
		x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
		return (unsigned)(x >> 32);
	}
	float uniform() { return ((float)(next() >> 8) + 0.5f) / 16777216.0f; }
};

// ---------------------------------------------------------------------------------------------------------------
// batches: windows and then their labels, one byte each; batch i depends on the seed and i alone

struct Loader {
	struct Slot {
		unsigned char *host, *device;
		cudaEvent_t ready, used; // copied; no longer read by the computation
	};
	const Options &o;
	std::vector<unsigned char> bytes;
	unsigned long long seed;
	size_t size;
	cudaStream_t copies;
	std::vector<Slot> slots;
	int produced = 0, taken = 0, released = 0, end;
	std::mutex lock;
	std::condition_variable moved;
	std::thread thread;

	Loader(const Options &options, unsigned long long s, int from, int to)
	    : o(options), bytes(read_bytes(o.data)), seed(s), size((size_t)o.batch * (SIDE * SIDE + 1)), slots(o.loader_thread ? 4 : 2),
	      produced(from), taken(from), released(from), end(to)
	{
		CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
		for (Slot &slot : slots) {
			CHECK(cudaMallocHost((void **)&slot.host, size));
			CHECK(cudaMalloc((void **)&slot.device, size));
			CHECK(cudaEventCreateWithFlags(&slot.ready, cudaEventDisableTiming));
			CHECK(cudaEventCreateWithFlags(&slot.used, cudaEventDisableTiming));
		}
		if (o.loader_thread)
			thread = std::thread(&Loader::run_ahead, this);
		else if (produced < end)
			produce();
	}

	~Loader()
	{
		if (thread.joinable())
			thread.join();
	}

	// the last eighth of each part is held out
	void fill(unsigned char *to, unsigned long long key, bool held_out) const
	{
		Random random{key};
		size_t part = bytes.size() / CLASSES, train = part * 7 / 8;
		for (int b = 0; b < o.batch; b++) {
			unsigned label = random.next() % CLASSES;
			size_t from = held_out ? train : 0, room = (held_out ? part - train : train) - SIDE * SIDE;
			memcpy(to + b * SIDE * SIDE, &bytes[label * part + from + random.next() % room], SIDE * SIDE);
			to[o.batch * SIDE * SIDE + b] = (unsigned char)label;
		}
	}

	void produce()
	{
		Slot &slot = slots[produced % slots.size()];
		CHECK(cudaEventSynchronize(slot.ready)); // its pinned memory is read no longer
		fill(slot.host, seed * 1000003ull + (unsigned long long)produced * 7919ull, false);
		CHECK(cudaStreamWaitEvent(copies, slot.used, 0));
		CHECK(cudaMemcpyAsync(slot.device, slot.host, size, cudaMemcpyHostToDevice, copies));
		CHECK(cudaEventRecord(slot.ready, copies));
		std::lock_guard<std::mutex> held(lock);
		produced++;
		moved.notify_all();
	}

	void run_ahead()
	{
		CHECK(cudaSetDevice(0));
		while (produced < end) {
			{
				std::unique_lock<std::mutex> held(lock);
				moved.wait(held, [&] { return produced - released < (int)slots.size(); });
			}
			produce();
		}
	}

	const unsigned char *take(cudaStream_t stream)
	{
		{
			std::unique_lock<std::mutex> held(lock);
			moved.wait(held, [&] { return produced > taken; });
		}
		Slot &slot = slots[taken++ % slots.size()];
		CHECK(cudaStreamWaitEvent(stream, slot.ready, 0));
		return slot.device;
	}

	void prefetch()
	{
		if (!o.loader_thread && produced < end)
			produce();
	}

	void release(cudaStream_t stream)
	{
		CHECK(cudaEventRecord(slots[released % slots.size()].used, stream));
		std::lock_guard<std::mutex> held(lock);
		released++;
		moved.notify_all();
	}
};

// a thread that does one job at a time for another
struct Worker {
	std::mutex lock;
	std::condition_variable changed;
	void (*job)(void *) = nullptr;
	void *argument = nullptr;
	bool leave = false;
	std::thread thread; // last: it uses all of the above

	Worker() : thread(&Worker::loop, this) {}
	~Worker()
	{
		{
			std::lock_guard<std::mutex> held(lock);
			leave = true;
		}
		changed.notify_all();
		thread.join();
	}
	void loop()
	{
		CHECK(cudaSetDevice(0));
		std::unique_lock<std::mutex> held(lock);
		for (;;) {
			changed.wait(held, [&] { return job || leave; });
			if (!job)
				return;
			job(argument);
			job = nullptr;
			changed.notify_all();
		}
	}
	void run(void (*what)(void *), void *with)
	{
		std::unique_lock<std::mutex> held(lock);
		job = what, argument = with;
		changed.notify_all();
		changed.wait(held, [&] { return !job; });
	}
};

// ---------------------------------------------------------------------------------------------------------------
// the network: conv, norm, relu, pool, twice; then two linear layers

enum { CONV1, NORM1_W, NORM1_B, CONV2, NORM2_W, NORM2_B, FC1_W, FC1_B, FC2_W, FC2_B, TENSORS };

struct Network {
	const Options &o;
	int B, C1, C2, W, flat, sizes[TENSORS];
	float *params[TENSORS], *grads[TENSORS], *momentum[TENSORS];
	float *running[4];                   // mean and variance of both norms
	float *mean1, *rstd1, *mean2, *rstd2, *loss; // loss: [0] training, [1] evaluation
	float *x, *c1, *n1, *p1, *c2, *n2, *p2, *h, *logits; // of the iteration under way
	const unsigned char *labels;
	cudaStream_t stream;

	static float *floats(size_t n)
	{
		float *p;
		CHECK(cudaMalloc((void **)&p, n * sizeof(float)));
		CHECK(cudaMemset(p, 0, n * sizeof(float)));
		return p;
	}

	// With --churn every third array is none of the pool's, its size is another every time, and freeing it waits.
	std::vector<float *> plain;
	size_t taken = 0;

	float *scratch(size_t n)
	{
		void *p;
		if (o.churn && ++taken % 3 == 0) {
			CHECK(cudaMalloc(&p, (n + taken * 37 % 11 * 1000) * sizeof(float)));
			plain.push_back((float *)p);
			return (float *)p;
		}
		CHECK(cudaMallocAsync(&p, n * sizeof(float), stream));
		return (float *)p;
	}

	void drop(float *p)
	{
		auto found = std::find(plain.begin(), plain.end(), p);
		if (found != plain.end()) {
			plain.erase(found);
			CHECK(cudaFree(p));
			return;
		}
		CHECK(cudaFreeAsync(p, stream));
	}

	Network(const Options &options, Random random) : o(options), B(o.batch), C1(o.channels), C2(2 * o.channels), W(o.width)
	{
		flat = C2 * (SIDE / 4) * (SIDE / 4);
		const int count[TENSORS] = {C1 * 9, C1, C1, C2 * C1 * 9, C2, C2, W * flat, W, CLASSES * W, CLASSES};
		const int fan[TENSORS] = {9, 0, -1, C1 * 9, 0, -1, flat, -1, W, -1};
		std::vector<float> host;
		for (int t = 0; t < TENSORS; t++) {
			sizes[t] = count[t];
			params[t] = floats(count[t]), grads[t] = floats(count[t]), momentum[t] = floats(count[t]);
			host.assign(count[t], fan[t] == 0 ? 1.0f : 0.0f);
			for (int i = 0; fan[t] > 0 && i < count[t]; i++)
				host[i] = (2.0f * random.uniform() - 1.0f) * sqrtf(6.0f / (float)fan[t]) * (t == FC2_W ? 0.3f : 1.0f);
			CHECK(cudaMemcpy(params[t], host.data(), count[t] * sizeof(float), cudaMemcpyHostToDevice));
		}
		for (int k = 0; k < 4; k++) {
			running[k] = floats(k < 2 ? C1 : C2);
			host.assign(C2, (float)(k % 2));
			CHECK(cudaMemcpy(running[k], host.data(), (k < 2 ? C1 : C2) * sizeof(float), cudaMemcpyHostToDevice));
		}
		mean1 = floats(C1), rstd1 = floats(C1), mean2 = floats(C2), rstd2 = floats(C2), loss = floats(2);
		CHECK(cudaStreamCreate(&stream));
	}

	void norm_relu(float *out, const float *in, float *mean, float *rstd, int first, float **run, int C, int side, bool training)
	{
		int area = side * side;
		if (training)
			batchnorm_statistics_kernel<<<C, BLOCK, 0, stream>>>(mean, rstd, run[0], run[1], in, B, C, area);
		else
			batchnorm_from_running_kernel<<<blocks(C), BLOCK, 0, stream>>>(mean, rstd, run[0], run[1], C);
		batchnorm_relu_kernel<<<blocks(B * C * area), BLOCK, 0, stream>>>(out, in, mean, rstd, params[first], params[first + 1],
										  B * C * area, C, area);
	}

	void forward(const unsigned char *batch, bool training)
	{
		int A = SIDE * SIDE, S = SIDE / 2;
		labels = batch + B * A;
		x = scratch(B * A);
		bytes_to_float_kernel<<<blocks(B * A), BLOCK, 0, stream>>>(x, batch, B * A);
		c1 = scratch(B * C1 * A);
		conv_forward_kernel<<<blocks(B * C1 * A), BLOCK, 0, stream>>>(c1, x, params[CONV1], B, 1, C1, SIDE);
		n1 = scratch(B * C1 * A);
		norm_relu(n1, c1, mean1, rstd1, NORM1_W, running, C1, SIDE, training);
		p1 = scratch(B * C1 * A / 4);
		pool_forward_kernel<<<blocks(B * C1 * A / 4), BLOCK, 0, stream>>>(p1, n1, B * C1 * A / 4, S);
		c2 = scratch(B * C2 * A / 4);
		conv_forward_kernel<<<blocks(B * C2 * A / 4), BLOCK, 0, stream>>>(c2, p1, params[CONV2], B, C1, C2, S);
		n2 = scratch(B * C2 * A / 4);
		norm_relu(n2, c2, mean2, rstd2, NORM2_W, running + 2, C2, S, training);
		p2 = scratch(B * flat);
		pool_forward_kernel<<<blocks(B * flat), BLOCK, 0, stream>>>(p2, n2, B * flat, S / 2);
		h = scratch(B * W);
		linear_forward_kernel<<<blocks(B * W), BLOCK, 0, stream>>>(h, p2, params[FC1_W], params[FC1_B], B, flat, W, 1);
		logits = scratch(B * CLASSES);
		linear_forward_kernel<<<blocks(B * CLASSES), BLOCK, 0, stream>>>(logits, h, params[FC2_W], params[FC2_B], B, W, CLASSES, 0);
		softmax_loss_kernel<<<1, BLOCK, 0, stream>>>(training ? loss : loss + 1, logits, labels, B, CLASSES, training ? 0 : 1);
		CHECK(cudaGetLastError());
	}

	void drop_activations()
	{
		float *all[] = {x, c1, n1, p1, c2, n2, p2, h, logits};
		for (float *p : all)
			drop(p);
	}

	void backward()
	{
		int A = SIDE * SIDE, S = SIDE / 2, n = B * C2 * A / 4;
		float *dh = scratch(B * W);
		linear_backward_input_kernel<<<blocks(B * W), BLOCK, 0, stream>>>(dh, logits, params[FC2_W], h, B, W, CLASSES);
		linear_backward_weight_kernel<<<blocks(CLASSES * W), BLOCK, 0, stream>>>(grads[FC2_W], grads[FC2_B], logits, h, B, W,
											 CLASSES);
		float *dp2 = scratch(B * flat);
		linear_backward_input_kernel<<<blocks(B * flat), BLOCK, 0, stream>>>(dp2, dh, params[FC1_W], nullptr, B, flat, W);
		linear_backward_weight_kernel<<<blocks(W * flat), BLOCK, 0, stream>>>(grads[FC1_W], grads[FC1_B], dh, p2, B, flat, W);
		drop(dh);
		float *dn2 = scratch(n), *dc2 = scratch(n);
		pool_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(dn2, dp2, n, S);
		drop(dp2);
		batchnorm_backward_statistics_kernel<<<C2, BLOCK, 0, stream>>>(grads[NORM2_W], grads[NORM2_B], dn2, n2, c2, mean2, rstd2,
									       B, C2, S * S);
		batchnorm_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(dc2, dn2, n2, c2, mean2, rstd2, params[NORM2_W],
									   grads[NORM2_W], grads[NORM2_B], n, C2, S * S);
		drop(dn2);
		n = B * C1 * A / 4;
		float *dp1 = scratch(n);
		conv_backward_input_kernel<<<blocks(n), BLOCK, 0, stream>>>(dp1, dc2, params[CONV2], B, C1, C2, S);
		conv_backward_weight_kernel<<<blocks(C2 * C1 * 9), BLOCK, 0, stream>>>(grads[CONV2], dc2, p1, B, C1, C2, S);
		drop(dc2);
		n = B * C1 * A;
		float *dn1 = scratch(n), *dc1 = scratch(n);
		pool_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(dn1, dp1, n, SIDE);
		drop(dp1);
		batchnorm_backward_statistics_kernel<<<C1, BLOCK, 0, stream>>>(grads[NORM1_W], grads[NORM1_B], dn1, n1, c1, mean1, rstd1,
									       B, C1, A);
		batchnorm_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(dc1, dn1, n1, c1, mean1, rstd1, params[NORM1_W],
									   grads[NORM1_W], grads[NORM1_B], n, C1, A);
		drop(dn1);
		conv_backward_weight_kernel<<<blocks(C1 * 9), BLOCK, 0, stream>>>(grads[CONV1], dc1, x, B, 1, C1, SIDE);
		drop(dc1);
		CHECK(cudaGetLastError());
	}

	void update(float lr)
	{
		for (int t = 0; t < TENSORS; t++)
			sgd_momentum_kernel<<<blocks(sizes[t]), BLOCK, 0, stream>>>(params[t], momentum[t], grads[t], sizes[t], lr, 0.9f,
										    1e-4f);
		CHECK(cudaGetLastError());
	}

	float read_loss(int which)
	{
		float value;
		CHECK(cudaMemcpyAsync(&value, loss + which, sizeof value, cudaMemcpyDeviceToHost, stream));
		CHECK(cudaStreamSynchronize(stream));
		return value;
	}
};

// ---------------------------------------------------------------------------------------------------------------
// training

struct State {
	char magic[8];
	unsigned long long seed;
	long long log_bytes;
	int step, stale; // stale: evaluations without improvement
	float lr, best;
};

static void transfer(FILE *f, float *device, int n, bool save)
{
	std::vector<float> host(n);
	if (save)
		CHECK(cudaMemcpy(host.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
	if ((save ? fwrite(host.data(), sizeof(float), n, f) : fread(host.data(), sizeof(float), n, f)) != (size_t)n)
		die("a checkpoint is cut short");
	if (!save)
		CHECK(cudaMemcpy(device, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
}

static void transfer_all(FILE *f, Network &net, bool save, bool weights_only)
{
	for (int t = 0; t < TENSORS; t++)
		transfer(f, net.params[t], net.sizes[t], save);
	for (int k = 0; k < 4; k++)
		transfer(f, net.running[k], k < 2 ? net.C1 : net.C2, save);
	for (int t = 0; t < TENSORS && !weights_only; t++)
		transfer(f, net.momentum[t], net.sizes[t], save);
}

static FILE *open_file(const std::string &path, const char *mode)
{
	FILE *f = fopen(path.c_str(), mode);
	if (!f)
		die("cannot open " + path);
	return f;
}

static void save_checkpoint(const std::string &out, Network &net, State s)
{
	char name[32];
	struct stat st;
	snprintf(name, sizeof name, "ckpt_%06d.bin", s.step);
	s.log_bytes = stat((out + "/log.txt").c_str(), &st) == 0 ? (long long)st.st_size : 0;
	FILE *f = open_file(out + "/" + name, "wb");
	fwrite(&s, sizeof s, 1, f);
	transfer_all(f, net, true, false);
	if (fclose(f))
		die("cannot write a checkpoint");
	f = open_file(out + "/latest", "w");
	fprintf(f, "%s\n", name);
	fclose(f);
}

static bool read_state(const std::string &out, State *s, std::string *path)
{
	char name[32] = "";
	FILE *f = fopen((out + "/latest").c_str(), "r");
	if (!f)
		return false;
	bool named = fscanf(f, "%31s", name) == 1;
	fclose(f);
	if (!named)
		return false;
	*path = out + "/" + name;
	f = open_file(*path, "rb");
	if (fread(s, sizeof *s, 1, f) != 1 || memcmp(s->magic, "CLASSIF1", 8))
		die("not a checkpoint: " + *path);
	fclose(f);
	return true;
}

static float evaluate(Network &net, const Loader &loader, unsigned char *device)
{
	const int rounds = 3;
	std::vector<unsigned char> host(loader.size);
	CHECK(cudaMemsetAsync(net.loss + 1, 0, sizeof(float), net.stream));
	for (int i = 0; i < rounds; i++) {
		loader.fill(host.data(), 77 + 1000 * i, true);
		CHECK(cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, net.stream));
		net.forward(device, false);
		net.drop_activations();
	}
	return net.read_loss(1) / (float)rounds;
}

static void note(FILE *log, const char *line)
{
	fputs(line, log);
	fflush(log);
	fputs(line, stdout);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	Options o = parse(argc, argv);
	std::string out = o.out, from;
	char line[120];
	mkdir(o.out, 0777);
	State s = {{'C', 'L', 'A', 'S', 'S', 'I', 'F', '1'}, o.seed, 0, 0, 0, o.lr, 1e30f};
	bool resumed = o.resume && read_state(out, &s, &from);

	Network net(o, Random{s.seed});
	if (resumed) {
		FILE *f = open_file(from, "rb");
		fseek(f, sizeof s, SEEK_SET);
		transfer_all(f, net, false, false);
		fclose(f);
		if (truncate((out + "/log.txt").c_str(), s.log_bytes))
			perror("classifier: log.txt");
	}
	FILE *log = open_file(out + "/log.txt", resumed ? "a" : "w");
	if (!resumed) {
		fprintf(log, "seed %llu\n", s.seed);
		fflush(log);
	}

	Loader loader(o, s.seed, s.step, std::min(o.steps, o.stop_at));
	Worker backward_thread;
	unsigned char *eval_batch;
	CHECK(cudaMalloc((void **)&eval_batch, loader.size));
	while (s.step < o.steps && s.step < o.stop_at) {
		net.forward(loader.take(net.stream), true);
		loader.prefetch();
		backward_thread.run([](void *n) { ((Network *)n)->backward(); }, &net);
		loader.release(net.stream);
		net.update(s.lr);
		net.drop_activations();
		snprintf(line, sizeof line, "step %d loss %.9g lr %.9g\n", s.step, net.read_loss(0), s.lr);
		note(log, line);
		s.step++;
		if (o.eval_every && s.step % o.eval_every == 0) {
			float loss = evaluate(net, loader, eval_batch);
			snprintf(line, sizeof line, "eval %d loss %.9g\n", s.step, loss);
			note(log, line);
			if (loss < s.best - 1e-3f)
				s.best = loss, s.stale = 0;
			else if (++s.stale == 2)
				s.lr *= 0.5f, s.stale = 0;
		}
		if (o.save_every && s.step % o.save_every == 0)
			save_checkpoint(out, net, s);
	}
	FILE *f = open_file(out + "/final.bin", "wb");
	transfer_all(f, net, true, true);
	fclose(f);
	fclose(log);
	CHECK(cudaDeviceSynchronize());
	return 0;
}
