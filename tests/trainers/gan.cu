// SPDX-License-Identifier: Apache-2.0
// A generative adversarial pair that learns to write short strings of bytes: generator and discriminator in turn.
//
// Both are three linear layers, each with its own Adam, one launch a tensor. Gradients are kept within the range
// of a 16-bit float, and the loss is scaled, as mixed-precision training does it: a kernel unscales the gradients
// and raises a flag where it finds an infinity, the CPU reads the flag, skips that optimizer's step if it is up and
// shrinks the scale, and lets the scale grow again after a run of clean steps. The scale starts high, so steps are
// skipped at the start and now and then later. Noise comes from a counter in device memory that a kernel advances.
// --augment loads an extension that changes the real strings; what it keeps on the device is its own.
// The checkpoint is written to a temporary file made by mkstemp, renamed to gan.ckpt; beside it are folders with marks of the
// last two, made and removed as libraries of Rust and Python do it.
#include <cuda_runtime.h>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(call) check_cuda((call), #call, __LINE__)

static void check_cuda(cudaError_t e, const char *call, int line)
{
	if (e != cudaSuccess) {
		fprintf(stderr, "gan.cu:%d: %s: %s\n", line, call, cudaGetErrorString(e));
		exit(1);
	}
}

static void die(const std::string &what)
{
	fprintf(stderr, "gan: %s\n", what.c_str());
	exit(1);
}

#define BLOCK 64
#define NOISE 16
#define STRING 32
#define HALF_MAX 65504.0f

static int blocks(int n)
{
	return (n + BLOCK - 1) / BLOCK;
}

// ---------------------------------------------------------------------------------------------------------------
// kernels

__device__ float to_half_range(float x)
{
	return x > HALF_MAX || x < -HALF_MAX ? x * INFINITY : x;
}

__device__ unsigned mix(unsigned long long x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return (unsigned)(x >> 32);
}

__global__ void noise_kernel(float *out, int n, const unsigned long long *counter)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = (float)(mix((*counter + (unsigned long long)i) * 0x9e3779b97f4a7c15ull) >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

__global__ void advance_counter_kernel(unsigned long long *counter, int by)
{
	*counter += (unsigned long long)by;
}

__global__ void strings_to_float_kernel(float *out, const unsigned char *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = ((float)in[i] - 64.0f) * (1.0f / 64.0f);
}

// bend: 0 none, 1 leaky rectifier, 2 tanh
__global__ void layer_forward_kernel(float *out, const float *in, const float *w, const float *b, int batch, int IC, int OC, int bend)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= batch * OC)
		return;
	const float *x = in + i / OC * IC, *u = w + i % OC * IC;
	float sum = b[i % OC];
	for (int k = 0; k < IC; k++)
		sum += x[k] * u[k];
	out[i] = bend == 2 ? tanhf(sum) : bend == 1 && sum < 0.0f ? 0.2f * sum : sum;
}

// in is what came out of the layer before, whose bend is undone
__global__ void layer_backward_input_kernel(float *din, const float *dout, const float *w, const float *in, int batch, int IC,
					    int OC, int bend)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= batch * IC)
		return;
	int row = i / IC, k = i % IC;
	float sum = 0.0f;
	for (int o = 0; o < OC; o++)
		sum += dout[row * OC + o] * w[o * IC + k];
	if (bend == 1 && in[i] < 0.0f)
		sum *= 0.2f;
	if (bend == 2)
		sum *= 1.0f - in[i] * in[i];
	din[i] = to_half_range(sum);
}

__global__ void layer_backward_weight_kernel(float *dw, float *db, const float *dout, const float *in, int batch, int IC, int OC)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= OC * IC)
		return;
	int o = i / IC, k = i % IC;
	float gw = 0.0f, gb = 0.0f;
	for (int row = 0; row < batch; row++) {
		gw += dout[row * OC + o] * in[row * IC + k];
		gb += dout[row * OC + o];
	}
	dw[i] = to_half_range(dw[i] + gw);
	if (k == 0)
		db[o] = to_half_range(db[o] + gb);
}

// binary cross entropy of a batch of logits against one target; its gradient is scaled
__global__ void logistic_loss_kernel(float *loss, float *dlogits, const float *logits, float target, int batch, float scale)
{
	__shared__ float part[BLOCK];
	float mine = 0.0f;
	for (int i = threadIdx.x; i < batch; i += BLOCK) {
		float x = logits[i], p = 1.0f / (1.0f + expf(-x));
		mine += fmaxf(x, 0.0f) - x * target + logf(1.0f + expf(-fabsf(x)));
		dlogits[i] = to_half_range((p - target) / (float)batch * scale);
	}
	part[threadIdx.x] = mine;
	__syncthreads();
	for (int half = BLOCK / 2; half > 0; half /= 2) {
		if ((int)threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		*loss += part[0] / (float)batch;
}

__global__ void unscale_kernel(float *grads, int n, float inverse, float *found_inf)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	float g = grads[i];
	if (!(g <= HALF_MAX && g >= -HALF_MAX))
		*found_inf = 1.0f; // every writer writes the same
	grads[i] = g * inverse;
}

__global__ void adam_kernel(float *params, const float *grads, float *m, float *v, int n, float lr, float correct1, float correct2)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	float g = grads[i];
	m[i] = 0.5f * m[i] + 0.5f * g;
	v[i] = 0.99f * v[i] + 0.01f * g * g;
	params[i] -= lr * (m[i] / correct1) / (sqrtf(v[i] / correct2) + 1e-8f);
}

// ---------------------------------------------------------------------------------------------------------------

struct Options {
	const char *data = nullptr, *out = ".";
	unsigned long long seed = 1;
	int steps = 20, stop_at = 1 << 30, save_every = 0, batch = 8, width = 160, growth = 12;
	float lr = 1e-3f, scale = 4194304.0f;
	std::vector<int (*)(float *, int)> augment;
	bool resume = false;
};

static int (*load_extension(const char *path))(float *, int)
{
	// Looked at first, as a program that lists its plugins does.
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library)
		dlclose(library);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *symbol = library ? dlsym(library, "augment") : nullptr;
	if (!symbol)
		die(dlerror());
	return reinterpret_cast<int (*)(float *, int)>(symbol);
}

static Options parse(int argc, char **argv)
{
	Options o;
	static const option table[] = {{"data", 1, 0, 'd'},       {"steps", 1, 0, 'n'}, {"stop-at", 1, 0, 'q'},  {"out", 1, 0, 'o'},   {"seed", 1, 0, 's'},
								   {"save-every", 1, 0, 'k'}, {"resume", 0, 0, 'r'}, {"batch", 1, 0, 'B'}, {"width", 1, 0, 'W'},
								   {"lr", 1, 0, 'l'},         {"scale", 1, 0, 'S'},  {"growth", 1, 0, 'g'}, {"augment", 1, 0, 'a'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", table, nullptr)) != -1;)
		switch (c) {
		case 'd': o.data = optarg; break;
		case 'n': o.steps = atoi(optarg); break;
		case 'q': o.stop_at = atoi(optarg); break; // leave early, as at the end of a job's time
		case 'o': o.out = optarg; break;
		case 's': o.seed = strtoull(optarg, nullptr, 0); break;
		case 'k': o.save_every = atoi(optarg); break;
		case 'r': o.resume = true; break;
		case 'B': o.batch = atoi(optarg); break;
		case 'W': o.width = atoi(optarg); break;
		case 'l': o.lr = (float)atof(optarg); break;
		case 'S': o.scale = (float)atof(optarg); break;
		case 'a': o.augment.push_back(load_extension(optarg)); break;
		case 'g': o.growth = atoi(optarg); break;
		default: exit(2);
		}
	if (o.batch < 1 || o.width < 1 || o.growth < 1)
		die("the model's shape makes no sense");
	return o;
}

static std::vector<unsigned char> read_bytes(const char *path)
{
	static const char *const usual[] = {"/usr/share/common-licenses/Apache-2.0", "/usr/share/common-licenses/GPL-2",
					    "/usr/include/stdio.h", "/usr/include/stdlib.h"};
	std::vector<unsigned char> bytes;
	for (const char *name : usual) {
		if (FILE *f = fopen(path ? path : name, "rb")) {
			for (int c; (c = fgetc(f)) != EOF;)
				bytes.push_back(c < 128 ? (unsigned char)c : '?');
			fclose(f);
		}
		if (path)
			break;
	}
	if (bytes.size() < 1024)
		die("too little data; use --data");
	return bytes;
}

struct Random {
	unsigned long long state;
	unsigned next()
	{
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		return (unsigned)(state >> 33);
	}
	float uniform() { return ((float)(next() >> 7) + 0.5f) / 16777216.0f; }
};

static float *floats(size_t n)
{
	float *p;
	CHECK(cudaMalloc((void **)&p, n * sizeof(float)));
	CHECK(cudaMemset(p, 0, n * sizeof(float)));
	return p;
}

// three layers and their Adam
struct Net {
	int batch, shape[4], bend[4], count[6], steps = 0; // bend[i] belongs to what goes into layer i
	float *params[6], *grads[6], *m[6], *v[6];
	float *out[4], *dout[4]; // [0] is the input

	Net(int b, int in, int width, int result, int last_bend, Random &random)
	    : batch(b), shape{in, width, width, result}, bend{0, 1, 1, last_bend}
	{
		for (int t = 0; t < 6; t++) {
			int IC = shape[t / 2], OC = shape[t / 2 + 1];
			count[t] = t % 2 ? OC : OC * IC;
			params[t] = floats(count[t]), grads[t] = floats(count[t]), m[t] = floats(count[t]), v[t] = floats(count[t]);
			std::vector<float> host(count[t], 0.0f);
			for (int i = 0; t % 2 == 0 && i < count[t]; i++)
				host[i] = (2.0f * random.uniform() - 1.0f) * sqrtf(3.0f / (float)IC);
			CHECK(cudaMemcpy(params[t], host.data(), count[t] * sizeof(float), cudaMemcpyHostToDevice));
		}
		for (int i = 0; i < 4; i++)
			out[i] = floats((size_t)batch * shape[i]), dout[i] = floats((size_t)batch * shape[i]);
	}

	void zero_grad()
	{
		for (int t = 0; t < 6; t++)
			CHECK(cudaMemsetAsync(grads[t], 0, count[t] * sizeof(float)));
	}

	void forward(const float *in)
	{
		CHECK(cudaMemcpyAsync(out[0], in, sizeof(float) * batch * shape[0], cudaMemcpyDeviceToDevice));
		for (int i = 0; i < 3; i++)
			layer_forward_kernel<<<blocks(batch * shape[i + 1]), BLOCK>>>(out[i + 1], out[i], params[2 * i], params[2 * i + 1], batch,
										      shape[i], shape[i + 1], bend[i + 1]);
	}

	// dout[3] is there; dout[0] is computed if wanted, and the weights' gradients if learning
	void backward(bool learning, bool wanted, int input_bend)
	{
		for (int i = 2; i >= 0; i--) {
			if (learning)
				layer_backward_weight_kernel<<<blocks(shape[i] * shape[i + 1]), BLOCK>>>(grads[2 * i], grads[2 * i + 1], dout[i + 1],
													 out[i], batch, shape[i], shape[i + 1]);
			if (i > 0 || wanted)
				layer_backward_input_kernel<<<blocks(batch * shape[i]), BLOCK>>>(dout[i], dout[i + 1], params[2 * i], out[i], batch,
												 shape[i], shape[i + 1], i ? bend[i] : input_bend);
		}
		CHECK(cudaGetLastError());
	}

	void adam(float lr)
	{
		steps++;
		float c1 = 1.0f - powf(0.5f, (float)steps), c2 = 1.0f - powf(0.99f, (float)steps);
		for (int t = 0; t < 6; t++)
			adam_kernel<<<blocks(count[t]), BLOCK>>>(params[t], grads[t], m[t], v[t], count[t], lr, c1, c2);
		CHECK(cudaGetLastError());
	}
};

struct Scaler {
	float scale;
	int growth, clean = 0;
	float *found_inf;

	// true if the gradients may be used
	bool unscale(Net &net)
	{
		float found;
		CHECK(cudaMemsetAsync(found_inf, 0, sizeof(float)));
		for (int t = 0; t < 6; t++)
			unscale_kernel<<<blocks(net.count[t]), BLOCK>>>(net.grads[t], net.count[t], 1.0f / scale, found_inf);
		CHECK(cudaMemcpy(&found, found_inf, sizeof found, cudaMemcpyDeviceToHost));
		if (found != 0.0f) {
			scale *= 0.5f, clean = 0;
			return false;
		}
		if (++clean == growth)
			scale *= 2.0f, clean = 0;
		return true;
	}
};

struct State {
	char magic[8];
	unsigned long long random, counter;
	long long log_bytes;
	int step, steps[2], clean[2];
	float scale[2];
	int pad;
};

struct Trainer {
	Options o;
	std::vector<unsigned char> bytes;
	Random random;
	Net generator, discriminator;
	Scaler scalers[2]; // of the discriminator, of the generator
	unsigned char *strings;
	float *real, *noise, *losses;
	unsigned long long *counter;
	int step = 0;

	explicit Trainer(const Options &options)
	    : o(options), bytes(read_bytes(o.data)), random{o.seed * 2 + 1}, generator(o.batch, NOISE, o.width, STRING, 2, random),
	      discriminator(o.batch, STRING, o.width, 1, 0, random),
	      scalers{{o.scale, o.growth, 0, floats(1)}, {o.scale, o.growth, 0, floats(1)}}, real(floats((size_t)o.batch * STRING)),
	      noise(floats((size_t)o.batch * NOISE)), losses(floats(2))
	{
		unsigned long long start = o.seed << 32;
		CHECK(cudaMalloc((void **)&strings, (size_t)o.batch * STRING));
		CHECK(cudaMalloc((void **)&counter, sizeof *counter));
		CHECK(cudaMemcpy(counter, &start, sizeof start, cudaMemcpyHostToDevice));
	}

	std::string path(const char *name) const { return std::string(o.out) + "/" + name; }

	void make_fakes()
	{
		noise_kernel<<<blocks(o.batch * NOISE), BLOCK>>>(noise, o.batch * NOISE, counter);
		advance_counter_kernel<<<1, 1>>>(counter, o.batch * NOISE);
		generator.forward(noise);
	}

	void judge(const float *what, float target, float *loss, float scale)
	{
		discriminator.forward(what);
		logistic_loss_kernel<<<1, BLOCK>>>(loss, discriminator.dout[3], discriminator.out[3], target, o.batch, scale);
	}

	bool train_discriminator()
	{
		std::vector<unsigned char> host((size_t)o.batch * STRING);
		for (int b = 0; b < o.batch; b++)
			memcpy(&host[b * STRING], &bytes[random.next() % (bytes.size() - STRING)], STRING);
		CHECK(cudaMemcpy(strings, host.data(), host.size(), cudaMemcpyHostToDevice));
		strings_to_float_kernel<<<blocks(o.batch * STRING), BLOCK>>>(real, strings, o.batch * STRING);
		for (auto augment : o.augment)
			if (augment(real, o.batch * STRING))
				die("an extension failed");
		discriminator.zero_grad();
		judge(real, 0.9f, losses, scalers[0].scale);
		discriminator.backward(true, false, 0);
		make_fakes();
		judge(generator.out[3], 0.0f, losses, scalers[0].scale);
		discriminator.backward(true, false, 0);
		if (!scalers[0].unscale(discriminator))
			return false;
		discriminator.adam(o.lr);
		return true;
	}

	bool train_generator()
	{
		generator.zero_grad();
		make_fakes();
		judge(generator.out[3], 1.0f, losses + 1, scalers[1].scale);
		discriminator.backward(false, true, 2);
		CHECK(cudaMemcpyAsync(generator.dout[3], discriminator.dout[0], sizeof(float) * o.batch * STRING, cudaMemcpyDeviceToDevice));
		generator.backward(true, false, 0);
		if (!scalers[1].unscale(generator))
			return false;
		generator.adam(o.lr);
		return true;
	}

	void transfer(FILE *f, float *device, int n, bool save)
	{
		std::vector<float> host(n);
		if (save)
			CHECK(cudaMemcpy(host.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
		if ((save ? fwrite(host.data(), sizeof(float), n, f) : fread(host.data(), sizeof(float), n, f)) != (size_t)n)
			die("a checkpoint is cut short");
		if (!save)
			CHECK(cudaMemcpy(device, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
	}

	void transfer_all(FILE *f, bool save, bool weights_only)
	{
		for (Net *net : {&generator, &discriminator})
			for (int t = 0; t < 6; t++) {
				transfer(f, net->params[t], net->count[t], save);
				if (!weights_only) {
					transfer(f, net->m[t], net->count[t], save);
					transfer(f, net->v[t], net->count[t], save);
				}
			}
	}

	void save()
	{
		State s = {{'G', 'A', 'N', 'C', 'K', 'P', 'T', '1'}, random.state, 0, 0, step, {discriminator.steps, generator.steps},
				   {scalers[0].clean, scalers[1].clean}, {scalers[0].scale, scalers[1].scale}, 0};
		struct stat st;
		s.log_bytes = stat(path("log.txt").c_str(), &st) == 0 ? (long long)st.st_size : 0;
		CHECK(cudaMemcpy(&s.counter, counter, sizeof s.counter, cudaMemcpyDeviceToHost));
		std::string name = path("gan.ckpt.XXXXXX");
		int fd = mkstemp(&name[0]);
		FILE *f = fd < 0 ? nullptr : fdopen(fd, "wb");
		if (!f || fwrite(&s, sizeof s, 1, f) != 1)
			die("cannot write a checkpoint");
		transfer_all(f, true, false);
		if (fflush(f) || fsync(fd) || fclose(f) || rename(name.c_str(), path("gan.ckpt").c_str()))
			die("cannot write a checkpoint");
		mark(s);
	}

	// A folder for each checkpoint, named after its step; the last two stay.
	void mark(const State &s)
	{
		const struct timeval when[2] = {{step, 0}, {step, 500}};
		const std::string folder = path(("gan.step" + std::to_string(step)).c_str()), made = folder + "/.made", name = folder + "/scale";
		remove_folder(folder);
		int fd = mkdir(folder.c_str(), 0755) ? -1 : open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (fd < 0 || write(fd, &s.scale, sizeof s.scale) != (ssize_t)sizeof s.scale || close(fd) ||
		    rename_as_rust_does(made.c_str(), name.c_str()) || chmod(name.c_str(), 0440) || utimes(name.c_str(), when))
			die("cannot write a mark");
		remove_folder(path(("gan.step" + std::to_string(step - 2 * o.save_every)).c_str()));
	}

	// A program of Rust's has libraries that make system calls of their own, without libc.
	static int rename_as_rust_does(const char *from, const char *to)
	{
#ifdef __x86_64__
		long result;
		asm volatile("syscall" : "=a"(result) : "a"(SYS_rename), "D"(from), "S"(to) : "rcx", "r11", "memory");
		return result ? -1 : 0;
#else
		return rename(from, to);
#endif
	}

	// As Python's shutil.rmtree: by descriptors, and only if the folder is still the one that was looked at.
	static void remove_folder(const std::string &name)
	{
		struct stat looked, opened;
		if (lstat(name.c_str(), &looked))
			return;
		int fd = open(name.c_str(), O_RDONLY);
		if (fd < 0 || fstat(fd, &opened) || opened.st_ino != looked.st_ino || opened.st_dev != looked.st_dev)
			die("the folder to be removed is another");
		DIR *list = fdopendir(fd);
		int removed = 0;
		while (struct dirent *entry = list ? readdir(list) : nullptr)
			if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2)
				removed += unlinkat(fd, entry->d_name, 0) == 0;
		// A run that was killed between the folder and its file has left it empty.
		if (!list || removed > 1 || rmdir(name.c_str()))
			die("cannot remove a mark");
		closedir(list);
	}

	bool resume()
	{
		State s;
		FILE *f = fopen(path("gan.ckpt").c_str(), "rb");
		if (!f)
			return false;
		if (fread(&s, sizeof s, 1, f) != 1 || memcmp(s.magic, "GANCKPT1", 8))
			die("gan.ckpt is not a checkpoint");
		transfer_all(f, false, false);
		fclose(f);
		CHECK(cudaMemcpy(counter, &s.counter, sizeof s.counter, cudaMemcpyHostToDevice));
		random.state = s.random, step = s.step;
		discriminator.steps = s.steps[0], generator.steps = s.steps[1];
		for (int i = 0; i < 2; i++)
			scalers[i].clean = s.clean[i], scalers[i].scale = s.scale[i];
		if (truncate(path("log.txt").c_str(), s.log_bytes))
			perror("gan: log.txt");
		return true;
	}

	void run()
	{
		bool resumed = o.resume && resume();
		FILE *log = fopen(path("log.txt").c_str(), resumed ? "a" : "w");
		if (!log)
			die("cannot write the log");
		while (step < o.steps && step < o.stop_at) {
			char line[160];
			float loss[2];
			CHECK(cudaMemsetAsync(losses, 0, 2 * sizeof(float)));
			bool d = train_discriminator();
			bool g = train_generator();
			CHECK(cudaMemcpy(loss, losses, sizeof loss, cudaMemcpyDeviceToHost));
			snprintf(line, sizeof line, "step %d discriminator %.9g%s generator %.9g%s scale %g %g\n", step, loss[0],
				 d ? "" : " skipped", loss[1], g ? "" : " skipped", scalers[0].scale, scalers[1].scale);
			fputs(line, log);
			fflush(log);
			fputs(line, stdout);
			fflush(stdout);
			step++;
			if (o.save_every && step % o.save_every == 0)
				save();
		}
		fclose(log);
		FILE *f = fopen(path("final.bin").c_str(), "wb");
		if (!f)
			die("cannot write final.bin");
		transfer_all(f, true, true);
		fclose(f);
		CHECK(cudaDeviceSynchronize());
	}
};

int main(int argc, char **argv)
{
	Options o = parse(argc, argv);
	mkdir(o.out, 0777);
	Trainer(o).run();
	return 0;
}
