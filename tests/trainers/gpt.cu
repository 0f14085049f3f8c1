// SPDX-License-Identifier: Apache-2.0
// A character-level GPT trained from scratch in plain CUDA C++, with the habits of small published trainers.
//
// The model is the usual pre-norm decoder (token, position and hashed bigram embeddings, causal attention,
// GELU blocks, tied head) and the optimizer is AdamW with warm-up, cosine decay and clipping by the global
// gradient norm, which the CPU reads in order to decide whether the gradients are scaled. The parameters lie in
// one allocation, and so do the gradients and each moment. Dropout draws its masks from a counter that lives in
// a device variable and that a kernel advances. Checkpoints are model_%08d.bin and state_%08d.bin, then an empty
// DONE_%08d; the last two are kept. There are no atomics: the same seed gives the same bytes.
#include "gpt_model.cuh"

#include <dirent.h>
#include <getopt.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

static void die(const std::string &what)
{
	fprintf(stderr, "gpt: %s\n", what.c_str());
	exit(1);
}

static Options parse(int argc, char **argv)
{
	Options o;
	static const option table[] = {
		{"data", 1, 0, 'd'},    {"steps", 1, 0, 'n'}, {"stop-at", 1, 0, 'q'},      {"out", 1, 0, 'o'},       {"seed", 1, 0, 's'},
		{"save-every", 1, 0, 'k'}, {"resume", 0, 0, 'r'},  {"layers", 1, 0, 'L'},    {"width", 1, 0, 'W'},
		{"context", 1, 0, 'T'}, {"batch", 1, 0, 'B'},      {"heads", 1, 0, 'H'},     {"bigrams", 1, 0, 'G'},
		{"accum", 1, 0, 'a'},   {"eval-every", 1, 0, 'e'}, {"lr", 1, 0, 'l'},        {"clip", 1, 0, 'c'},
		{"dropout", 1, 0, 'p'}, {"fused", 0, 0, 'f'},      {"graph", 0, 0, 'g'},     {"async-loss", 0, 0, 'y'},
		{"overwrite", 0, 0, 'w'}, {"rename", 0, 0, 'm'},   {"varlen", 0, 0, 'v'},    {"log-append", 0, 0, 'A'},
		{"save-best", 0, 0, 'b'}, {"check-zeros", 0, 0, 'z'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", table, nullptr)) != -1;)
		switch (c) {
		case 'd': o.data = optarg; break;
		case 'n': o.steps = atoi(optarg); break;
		case 'q': o.stop_at = atoi(optarg); break; // leave early, as at the end of a job's time
		case 'o': o.out = optarg; break;
		case 's': o.seed = strtoull(optarg, nullptr, 0); break;
		case 'k': o.save_every = atoi(optarg); break;
		case 'r': o.resume = true; break;
		case 'L': o.layers = atoi(optarg); break;
		case 'W': o.width = atoi(optarg); break;
		case 'T': o.context = atoi(optarg); break;
		case 'B': o.batch = atoi(optarg); break;
		case 'H': o.heads = atoi(optarg); break;
		case 'G': o.bigrams = atoi(optarg); break;
		case 'a': o.accum = atoi(optarg); break;
		case 'e': o.eval_every = atoi(optarg); break;
		case 'l': o.lr = (float)atof(optarg); break;
		case 'c': o.clip = (float)atof(optarg); break;
		case 'p': o.dropout = (float)atof(optarg); break;
		case 'f': o.fused = true; break;
		case 'g': o.graph = true; break;
		case 'y': o.async_loss = true; break;
		case 'w': o.overwrite = true; break;
		case 'm': o.overwrite = o.rename = true; break;
		case 'v': o.varlen = true; break;
		case 'A': o.log_append = true; break;
		case 'b': o.save_best = true; break;
		case 'z': o.check_zeros = true; break; // look at all gradients, some at a time, before each iteration
		default: exit(2);
		}
	if (o.graph && (o.varlen || o.async_loss))
		die("--graph goes with neither --varlen nor --async-loss");
	if (o.layers < 1 || o.width % o.heads || o.context < 4 || o.batch < 1 || o.accum < 1 || o.bigrams < 1)
		die("the model's shape makes no sense");
	return o;
}

static std::vector<int> read_text(const char *path)
{
	static const char *const usual[] = {"/usr/share/common-licenses/GPL-2",    "/usr/share/common-licenses/MPL-1.1",
					    "/usr/share/common-licenses/Artistic", "/usr/share/common-licenses/Apache-2.0",
					    "/usr/include/stdio.h",                "/usr/include/stdlib.h"};
	std::vector<int> text;
	for (const char *name : usual) {
		FILE *f = fopen(path ? path : name, "rb");
		if (f) {
			for (int c; (c = fgetc(f)) != EOF;)
				text.push_back(c >= 32 && c < 127 ? c - 31 : 0);
			fclose(f);
		}
		if (path)
			break;
	}
	if (text.size() < 4096)
		die(std::string("too little text in ") + (path ? path : "the usual places; use --data"));
	return text;
}

struct Trainer {
	Options o;
	std::vector<int> text;
	Model model;
	Random random;
	int step = 0;
	float best_loss = 1e30f;
	std::vector<float> best;
	FILE *log = nullptr;
	int *pinned_tokens = nullptr; // --graph
	Hyper *pinned_hyper = nullptr;
	float *pinned_loss = nullptr; // --async-loss
	cudaEvent_t loss_ready;
	int loss_of = -1; // the step whose loss is under way
	float lr_of = 0.0f, norm_of = 0.0f;
	cudaGraphExec_t graph = nullptr;

	explicit Trainer(const Options &options) : o(options), text(read_text(o.data)), model(o), random{o.seed * 2 + 1}
	{
		model.randomise(random);
		CHECK(cudaMallocHost((void **)&pinned_tokens, sizeof(int) * o.accum * o.batch * (o.context + 1)));
		CHECK(cudaMallocHost((void **)&pinned_hyper, sizeof(Hyper)));
		CHECK(cudaMallocHost((void **)&pinned_loss, sizeof(float)));
		CHECK(cudaEventCreateWithFlags(&loss_ready, cudaEventDisableTiming));
	}

	std::string path(const char *format, int n = 0) const
	{
		char name[64];
		snprintf(name, sizeof name, format, n);
		return std::string(o.out) + "/" + name;
	}

	void sample(int *to, int T)
	{
		for (int b = 0; b < o.batch; b++) {
			size_t at = random.next() % (text.size() * 9 / 10 - T - 1);
			memcpy(to + b * (T + 1), &text[at], sizeof(int) * (T + 1));
		}
	}

	float schedule() const
	{
		int warm = 5;
		if (step < warm)
			return o.lr * (float)(step + 1) / (float)warm;
		float done = (float)(step - warm) / (float)(o.steps > warm ? o.steps - warm : 1);
		return o.lr * (0.1f + 0.45f * (1.0f + cosf(3.1415927f * done)));
	}

	Hyper hyper(float lr) const
	{
		return {lr, 1.0f - powf(BETA1, (float)(step + 1)), 1.0f - powf(BETA2, (float)(step + 1)), o.clip};
	}

	void note(const char *line)
	{
		if (o.log_append && !(log = fopen(path("log.txt").c_str(), "a")))
			die("cannot append to the log");
		fputs(line, log);
		if (o.log_append)
			fclose(log);
		else
			fflush(log);
		fputs(line, stdout);
		fflush(stdout);
	}

	void note_step(int of, float loss, float norm, float lr)
	{
		char line[160];
		snprintf(line, sizeof line, "step %d loss %.9g norm %.9g lr %.9g\n", of, loss, norm, lr);
		note(line);
	}

	void finish_async_loss()
	{
		if (loss_of < 0)
			return;
		CHECK(cudaEventSynchronize(loss_ready));
		note_step(loss_of, *pinned_loss, norm_of, lr_of);
		loss_of = -1;
	}

	void find_zeros()
	{
		std::vector<float> some(1000);
		for (size_t at = 0; at < model.count; at += some.size()) {
			size_t n = std::min(some.size(), model.count - at);
			CHECK(cudaMemcpyAsync(some.data(), model.grads + at, n * sizeof(float), cudaMemcpyDeviceToHost, model.stream));
			CHECK(cudaStreamSynchronize(model.stream));
			for (size_t i = 0; i < n; i++)
				if (some[i] != 0.0f)
					die("a gradient is left over");
		}
	}

	void train_step()
	{
		int T = o.varlen ? o.context / 4 * (1 + (int)(random.next() % 4)) : o.context;
		std::vector<int> batch(o.batch * (T + 1));
		float lr = schedule();
		model.clear();
		if (o.check_zeros)
			find_zeros();
		for (int micro = 0; micro < o.accum; micro++) {
			sample(batch.data(), T);
			CHECK(cudaMemcpy(model.tokens, batch.data(), batch.size() * sizeof(int), cudaMemcpyHostToDevice));
			model.forward(model.tokens, T, o.dropout, model.loss, o.accum);
			if (micro == 0)
				finish_async_loss();
			model.backward(model.tokens, T, o.dropout);
		}
		model.gradient_norm();
		float norm = model.read(model.norm);
		if (o.clip > 0.0f && norm > o.clip)
			scale_gradients_kernel<<<blocks(threads_for(model.count)), BLOCK, 0, model.stream>>>(model.grads, model.count, o.clip / norm);
		model.update(hyper(lr));
		CHECK(cudaGetLastError());
		if (!o.async_loss) {
			note_step(step, model.read(model.loss), norm, lr);
			return;
		}
		CHECK(cudaMemcpyAsync(pinned_loss, model.loss, sizeof(float), cudaMemcpyDeviceToHost, model.stream));
		CHECK(cudaEventRecord(loss_ready, model.stream));
		loss_of = step, lr_of = lr, norm_of = norm;
	}

	void capture()
	{
		cudaGraph_t whole;
		size_t line = o.batch * (o.context + 1);
		CHECK(cudaStreamBeginCapture(model.stream, cudaStreamCaptureModeGlobal));
		CHECK(cudaMemcpyAsync(model.tokens, pinned_tokens, o.accum * line * sizeof(int), cudaMemcpyHostToDevice, model.stream));
		CHECK(cudaMemcpyAsync(model.hyper, pinned_hyper, sizeof(Hyper), cudaMemcpyHostToDevice, model.stream));
		model.clear();
		for (int micro = 0; micro < o.accum; micro++) {
			model.forward(model.tokens + micro * line, o.context, o.dropout, model.loss, o.accum);
			model.backward(model.tokens + micro * line, o.context, o.dropout);
		}
		model.gradient_norm();
		model.update_by_device();
		CHECK(cudaStreamEndCapture(model.stream, &whole));
		CHECK(cudaGraphInstantiate(&graph, whole, 0));
		CHECK(cudaGraphDestroy(whole));
	}

	void graph_step()
	{
		if (!graph)
			capture();
		*pinned_hyper = hyper(schedule());
		for (int micro = 0; micro < o.accum; micro++)
			sample(pinned_tokens + micro * o.batch * (o.context + 1), o.context);
		CHECK(cudaGraphLaunch(graph, model.stream));
		float norm = model.read(model.norm);
		note_step(step, model.read(model.loss), norm, pinned_hyper->lr);
	}

	float evaluate()
	{
		const int parts = 2;
		std::vector<int> batch(o.batch * (o.context + 1));
		Random held_out{4242};
		size_t from = text.size() * 9 / 10;
		CHECK(cudaMemsetAsync(model.loss + 1, 0, sizeof(float), model.stream));
		for (int part = 0; part < parts; part++) {
			for (int b = 0; b < o.batch; b++)
				memcpy(&batch[b * (o.context + 1)], &text[from + held_out.next() % (text.size() - from - o.context - 1)],
				       sizeof(int) * (o.context + 1));
			CHECK(cudaMemcpy(model.tokens, batch.data(), batch.size() * sizeof(int), cudaMemcpyHostToDevice));
			model.forward(model.tokens, o.context, 0.0f, model.loss + 1, parts);
		}
		return model.read(model.loss + 1);
	}

	void keep_best(float loss)
	{
		if (loss >= best_loss)
			return;
		bool first = access(path("best.bin").c_str(), F_OK) != 0;
		best_loss = loss;
		best.resize(model.count);
		CHECK(cudaMemcpy(best.data(), model.params, model.count * sizeof(float), cudaMemcpyDeviceToHost));
		write_floats(path("best.bin"), best.data());
		note(first ? "best: first\n" : "best: better\n");
	}

	void write_floats(const std::string &to, const float *host)
	{
		FILE *f = fopen(to.c_str(), "wb");
		if (!f || fwrite(host, sizeof(float), model.count, f) != model.count || fclose(f))
			die("cannot write " + to);
	}

	void evaluate_and_note()
	{
		char line[80];
		float loss = evaluate();
		snprintf(line, sizeof line, "eval %d loss %.9g\n", step, loss);
		note(line);
		if (o.save_best)
			keep_best(loss);
	}

	// --- checkpoints -------------------------------------------------------------------------------------------

	struct State {
		int magic, version, step, pad;
		unsigned long long random, dropout;
		long long log_bytes;
		float best_loss, pad2;
	};

	void transfer(FILE *f, float *device, bool save)
	{
		std::vector<float> host(model.count);
		if (save)
			CHECK(cudaMemcpy(host.data(), device, model.count * sizeof(float), cudaMemcpyDeviceToHost));
		if ((save ? fwrite(host.data(), sizeof(float), model.count, f) : fread(host.data(), sizeof(float), model.count, f)) !=
		    model.count)
			die("a checkpoint is cut short");
		if (!save)
			CHECK(cudaMemcpy(device, host.data(), model.count * sizeof(float), cudaMemcpyHostToDevice));
	}

	void transfer_weights(FILE *f, bool save)
	{
		int header[256] = {20240326, 3, o.context, VOCABULARY, o.layers, o.heads, o.width, o.bigrams}, found[256];
		if (save ? fwrite(header, sizeof header, 1, f) != 1
			 : fread(found, sizeof found, 1, f) != 1 || memcmp(header, found, sizeof header))
			die("a checkpoint of another model");
		transfer(f, model.params, save);
	}

	void transfer_state(FILE *f, bool save)
	{
		State s = {20240527, 1, step, 0, random.state, 0, 0, best_loss, 0.0f};
		if (save) {
			struct stat st;
			CHECK(cudaMemcpyFromSymbol(&s.dropout, dropout_counter, sizeof s.dropout));
			s.log_bytes = stat(path("log.txt").c_str(), &st) == 0 ? (long long)st.st_size : 0;
		}
		if ((save ? fwrite(&s, sizeof s, 1, f) : fread(&s, sizeof s, 1, f)) != 1 || s.magic != 20240527)
			die("a checkpoint without its state");
		transfer(f, model.m, save);
		transfer(f, model.v, save);
		if (save)
			return;
		CHECK(cudaMemcpyToSymbol(dropout_counter, &s.dropout, sizeof s.dropout));
		step = s.step, random.state = s.random, best_loss = s.best_loss;
		if (truncate(path("log.txt").c_str(), s.log_bytes))
			perror("gpt: log.txt");
	}

	FILE *open(const std::string &name, const char *mode)
	{
		FILE *f = fopen(name.c_str(), mode);
		if (!f)
			die("cannot open " + name);
		return f;
	}

	void save()
	{
		finish_async_loss();
		if (o.overwrite) {
			std::string to = path("ckpt.bin"), at = o.rename ? to + ".tmp" : to;
			FILE *f = open(at, "wb");
			transfer_weights(f, true);
			transfer_state(f, true);
			if (fclose(f) || (o.rename && ::rename(at.c_str(), to.c_str())))
				die("cannot write " + to);
			return;
		}
		FILE *f = open(path("model_%08d.bin", step), "wb");
		transfer_weights(f, true);
		fclose(f);
		f = open(path("state_%08d.bin", step), "wb");
		transfer_state(f, true);
		fclose(f);
		fclose(open(path("DONE_%08d", step), "w"));
		int old = step - 2 * o.save_every;
		if (old > 0) {
			remove(path("DONE_%08d", old).c_str());
			remove(path("model_%08d.bin", old).c_str());
			remove(path("state_%08d.bin", old).c_str());
		}
	}

	bool resume()
	{
		if (o.overwrite) {
			FILE *f = fopen(path("ckpt.bin").c_str(), "rb");
			if (!f)
				return false;
			transfer_weights(f, false);
			transfer_state(f, false);
			fclose(f);
			return true;
		}
		int last = -1, n;
		if (DIR *folder = opendir(o.out)) {
			while (dirent *entry = readdir(folder))
				if (sscanf(entry->d_name, "DONE_%8d", &n) == 1 && n > last)
					last = n;
			closedir(folder);
		}
		if (last < 0)
			return false;
		FILE *f = open(path("model_%08d.bin", last), "rb");
		transfer_weights(f, false);
		fclose(f);
		f = open(path("state_%08d.bin", last), "rb");
		transfer_state(f, false);
		fclose(f);
		return true;
	}

	void run()
	{
		bool resumed = o.resume && resume();
		if (!o.log_append)
			log = open(path("log.txt"), resumed ? "a" : "w");
		else if (!resumed)
			remove(path("log.txt").c_str());
		printf("gpt: %zu parameters, from step %d\n", model.count, step);
		while (step < o.steps && step < o.stop_at) {
			if (o.graph)
				graph_step();
			else
				train_step();
			step++;
			if (o.eval_every && step % o.eval_every == 0) {
				finish_async_loss();
				evaluate_and_note();
			}
			if (o.save_every && step % o.save_every == 0)
				save();
		}
		finish_async_loss();
		std::vector<float> host(model.count);
		CHECK(cudaMemcpy(host.data(), model.params, model.count * sizeof(float), cudaMemcpyDeviceToHost));
		write_floats(path("final.bin"), host.data());
		struct stat st;
		if (o.save_best && stat(path("best.bin").c_str(), &st) == 0) {
			FILE *f = open(path("best.bin"), "rb");
			transfer(f, model.params, false);
			fclose(f);
			char line[80];
			snprintf(line, sizeof line, "best.bin loss %.9g\n", evaluate());
			note(line);
		}
		CHECK(cudaDeviceSynchronize());
		if (!o.log_append)
			fclose(log);
	}
};

int main(int argc, char **argv)
{
	Options o = parse(argc, argv);
	mkdir(o.out, 0777);
	Trainer(o).run();
	return 0;
}
