// SPDX-License-Identifier: Apache-2.0
// The character-level GPT on several ranks, in plain CUDA C++ over NCCL, as small published trainers do it.
//
// Data parallel: each rank takes its part of the micro-batches of a step, and the gradients are averaged, a layer's at a
// time, on a second stream while the layers below are still computed. A sampler that every rank runs in full says who
// takes what, and a micro-batch's dropout masks follow from its number, so the same global batch on one rank is the same
// step but for the order of sums. AdamW, warm-up, cosine decay and clipping by the global norm as in gpt.
//
// With --zero the optimizer is sharded as in ZeRO stage 1: gradients are reduced and scattered, each rank has the moments
// of its shards and updates those, and the weights are gathered. --tp N cuts heads and hidden units into N as Megatron-LM
// does, with a sum over the parts behind each block and, in the backward pass, before it. --pp N gives the layers to N
// stages, which send activations and gradients of micro-batches to each other. All go together.
//
// --chatty exchanges gradients with one rank, too, as trainers do that make no difference; their mean is a sum that
// multiplies first; the loss goes round once; and the communicator begins in a group.
//
// --graph captures that exchange of losses once, and launches it as a graph from then on.
//
// --watch looks for errors of NCCL while it waits for the device, and ends.
//
// --by-place seeds the masks by the rank's number on its node as well, which only its kernels' parameters show, and says in its log
// which device it is on.
//
// --late RANK:STEP:SECONDS: one rank's data come late once, as from a disk that others read.
//
// TRACKER=ADDRESS:PORT in its environment: each rank sends a row for each step there.
//
// Each part of the model is model_%08d_m%02d.bin with weights and moments, written by its rank of the first copy; each
// rank writes its state_%08d_r%02d.bin, which holds the moments of its shards; when all have, rank 0 writes an empty
// DONE_%08d. The last two are kept. Each rank has a log_r%02d.txt and a final_r%02d.bin.
#include "gpt_ranks_model.cuh"
#include "report.cuh"

#include <dirent.h>
#include <getopt.h>
#include <sys/stat.h>
#include <unistd.h>

static Options parse(int argc, char **argv)
{
	Options o;
	static const option table[] = {
		{"data", 1, 0, 'd'},    {"steps", 1, 0, 'n'}, {"stop-at", 1, 0, 'q'}, {"out", 1, 0, 'o'},   {"seed", 1, 0, 's'},
		{"save-every", 1, 0, 'k'}, {"resume", 0, 0, 'r'},  {"layers", 1, 0, 'L'},  {"width", 1, 0, 'W'}, {"context", 1, 0, 'T'},
		{"batch", 1, 0, 'B'},   {"heads", 1, 0, 'H'}, {"bigrams", 1, 0, 'G'}, {"accum", 1, 0, 'a'}, {"lr", 1, 0, 'l'},
		{"clip", 1, 0, 'c'},    {"dropout", 1, 0, 'p'}, {"zero", 0, 0, 'z'}, {"tp", 1, 0, 't'},
		{"pp", 1, 0, 'P'},      {"watch", 0, 0, 'w'}, {"chatty", 0, 0, 'y'}, {"late", 1, 0, 'e'},
		{"graph", 0, 0, 'g'},   {"by-place", 0, 0, 'b'}, {0, 0, 0, 0}};
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
		case 'a': o.accum = atoi(optarg); break; // micro-batches of a rank in a step
		case 'l': o.lr = (float)atof(optarg); break;
		case 'c': o.clip = (float)atof(optarg); break;
		case 'p': o.dropout = (float)atof(optarg); break;
		case 'z': o.zero = true; break;
		case 't': o.tp = atoi(optarg); break;
		case 'P': o.pp = atoi(optarg); break;
		case 'w': o.watch = true; break; // end when NCCL has an error
		case 'y': o.chatty = true; break;
		case 'g': o.graph = true; break;
		case 'b': o.by_place = true; break;
		case 'e':
			if (sscanf(optarg, "%d:%d:%d", &o.late_rank, &o.late_step, &o.late) != 3)
				die("--late wants RANK:STEP:SECONDS");
			break;
		default: exit(2);
		}
	if (o.layers < 1 || o.heads < 1 || o.width % o.heads || o.context < 4 || o.batch < 1 || o.accum < 1 || o.bigrams < 1)
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
	Ranks &job;
	std::vector<int> text;
	Model model;
	Random random;
	int step = 0;
	FILE *log = nullptr;

	Trainer(const Options &options, Ranks &ranks)
	    : o(options), job(ranks), text(read_text(o.data)), model(o, ranks), random{o.seed * 2 + 1}
	{
		model.randomise();
	}

	std::string path(const char *format, int a = 0, int b = 0) const
	{
		char name[64];
		snprintf(name, sizeof name, format, a, b);
		return std::string(o.out) + "/" + name;
	}

	FILE *open(const std::string &name, const char *mode)
	{
		FILE *f = fopen(name.c_str(), mode);
		if (!f)
			die("cannot open " + name);
		return f;
	}

	// the lines that the ranks take next, one micro-batch each; the sampler moves on for all of them
	void sample(int *to)
	{
		int T = o.context;
		for (int d = 0; d < job.copies; d++)
			for (int b = 0; b < o.batch; b++) {
				size_t at = random.next() % (text.size() - T - 1);
				if (d == job.d)
					memcpy(to + b * (T + 1), &text[at], sizeof(int) * (T + 1));
			}
	}

	unsigned long long number(int micro) const
	{
		return ((unsigned long long)step * o.accum + micro) * job.copies + job.d;
	}

	float schedule() const
	{
		int warm = 5;
		if (step < warm)
			return o.lr * (float)(step + 1) / (float)warm;
		float done = (float)(step - warm) / (float)(o.steps > warm ? o.steps - warm : 1);
		return o.lr * (0.1f + 0.45f * (1.0f + cosf(3.1415927f * done)));
	}

	Model::Activations &slot(int micro) { return model.acts[micro % model.acts.size()]; }

	void forward(int micro)
	{
		std::vector<int> batch(o.batch * (o.context + 1));
		if (job.rank == o.late_rank && step == o.late_step && micro == 0)
			sleep(o.late);
		sample(batch.data());
		CHECK(cudaMemcpyAsync(slot(micro).tokens, batch.data(), batch.size() * sizeof(int), cudaMemcpyHostToDevice,
				      model.stream));
		model.forward(slot(micro), number(micro));
	}

	void backward(int micro) { model.backward(slot(micro), number(micro), micro == o.accum - 1); }

	// One forward, one backward (PipeDream-flush): a stage is as many micro-batches ahead as there are stages behind it.
	// With one stage they simply take turns.
	void compute_gradients()
	{
		int behind = job.stages - 1 - job.p, ahead = behind < o.accum ? behind : o.accum;
		for (int micro = 0; micro < ahead; micro++) {
			model.swap_with_previous(nullptr, slot(micro).enc);
			forward(micro);
			model.swap_with_next(model.output(slot(micro)), nullptr);
		}
		if (ahead < o.accum)
			model.swap_with_previous(nullptr, slot(ahead).enc);
		for (int micro = 0; micro < o.accum - ahead; micro++) {
			forward(micro + ahead);
			model.swap_with_next(model.output(slot(micro + ahead)), model.dres);
			backward(micro);
			model.swap_with_previous(model.dres, micro + ahead + 1 < o.accum ? slot(micro + ahead + 1).enc : nullptr);
		}
		for (int micro = o.accum - ahead; micro < o.accum; micro++) {
			model.swap_with_next(nullptr, model.dres);
			backward(micro);
			model.swap_with_previous(model.dres, nullptr);
		}
	}

	void train_step()
	{
		float lr = schedule(), loss[2];
		model.clear();
		compute_gradients();
		model.wait_for_exchange();
		float norm = model.gradient_norm();
		if (o.clip > 0.0f && norm > o.clip)
			model.scale_gradients(o.clip / norm);
		Hyper h = {lr, 1.0f - powf(BETA1, (float)(step + 1)), 1.0f - powf(BETA2, (float)(step + 1)), o.clip};
		o.zero ? model.update_shards(h) : model.update(h);
		CHECK(cudaGetLastError());
		model.read_loss(loss);
		fprintf(log, "step %d loss %.9g norm %.9g lr %.9g own %.9g\n", step, loss[1], norm, lr, loss[0]);
		fflush(log);
		report(job.rank, step, loss[1]);
		if (job.rank == 0) {
			printf("step %d loss %.9g norm %.9g lr %.9g\n", step, loss[1], norm, lr);
			fflush(stdout);
		}
	}

	// --- checkpoints -------------------------------------------------------------------------------------------

	struct State {
		int magic, step, world, rank;
		unsigned long long random;
		long long log_bytes;
	};

	void transfer(FILE *f, float *device, size_t count, bool save)
	{
		std::vector<float> host(count);
		if (save)
			CHECK(cudaMemcpy(host.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost));
		if ((save ? fwrite(host.data(), sizeof(float), count, f) : fread(host.data(), sizeof(float), count, f)) != count)
			die("a checkpoint is cut short");
		if (!save)
			CHECK(cudaMemcpy(device, host.data(), count * sizeof(float), cudaMemcpyHostToDevice));
	}

	int model_part() const { return job.rank % (job.tensors * job.stages); }

	void transfer_model(int of, bool save)
	{
		int header[8] = {20250117, o.context, VOCABULARY, o.layers, o.heads, o.width, o.bigrams, o.tp * 100 + o.pp}, found[8];
		FILE *f = open(path("model_%08d_m%02d.bin", of, model_part()), save ? "wb" : "rb");
		if (save ? fwrite(header, sizeof header, 1, f) != 1
			 : fread(found, sizeof found, 1, f) != 1 || memcmp(header, found, sizeof header))
			die("a checkpoint of another model");
		transfer(f, model.params, model.count, save);
		if (!o.zero)
			transfer_moments(f, save);
		if (fclose(f))
			die("a checkpoint cannot be closed");
	}

	void transfer_moments(FILE *f, bool save)
	{
		transfer(f, model.m, model.moments, save);
		transfer(f, model.v, model.moments, save);
	}

	void transfer_state(int of, bool save)
	{
		State s = {20250118, step, job.world, job.rank, random.state, save ? (long long)ftell(log) : 0};
		FILE *f = open(path("state_%08d_r%02d.bin", of, job.rank), save ? "wb" : "rb");
		if ((save ? fwrite(&s, sizeof s, 1, f) : fread(&s, sizeof s, 1, f)) != 1 || s.magic != 20250118)
			die("a checkpoint without its state");
		if (s.world != job.world || s.rank != job.rank)
			die("a checkpoint of another job");
		if (o.zero)
			transfer_moments(f, save);
		if (fclose(f))
			die("a checkpoint cannot be closed");
		step = s.step, random.state = s.random;
		if (!save && truncate(path("log_r%02d.txt", job.rank).c_str(), s.log_bytes))
			die("a checkpoint without its log");
	}

	void save()
	{
		int old = step - 2 * o.save_every;
		if (job.d == 0)
			transfer_model(step, true);
		transfer_state(step, true);
		job.barrier(model.square, model.stream);
		if (job.rank == 0)
			fclose(open(path("DONE_%08d", step), "w"));
		if (old <= 0)
			return;
		if (job.rank == 0)
			remove(path("DONE_%08d", old).c_str());
		if (job.d == 0)
			remove(path("model_%08d_m%02d.bin", old, model_part()).c_str());
		remove(path("state_%08d_r%02d.bin", old, job.rank).c_str());
	}

	// what rank 0 finds is what all take
	bool resume()
	{
		int last = -1, n, *shared = (int *)model.square;
		if (DIR *folder = job.rank == 0 ? opendir(o.out) : nullptr) {
			while (dirent *entry = readdir(folder))
				if (sscanf(entry->d_name, "DONE_%8d", &n) == 1 && n > last)
					last = n;
			closedir(folder);
		}
		CHECK(cudaMemcpyAsync(shared, &last, sizeof last, cudaMemcpyHostToDevice, model.stream));
		NCCL(ncclBroadcast(shared, shared, 1, ncclInt32, 0, job.comm, model.stream));
		CHECK(cudaMemcpyAsync(&last, shared, sizeof last, cudaMemcpyDeviceToHost, model.stream));
		CHECK(cudaStreamSynchronize(model.stream));
		if (last < 0)
			return false;
		transfer_model(last, false);
		transfer_state(last, false);
		return true;
	}

	// as the program sees it, and which one of the node's it really is
	void say_place(FILE *to, bool really) const
	{
		int device, devices;
		char bus[32] = "";
		CHECK(cudaGetDevice(&device));
		CHECK(cudaGetDeviceCount(&devices));
		if (really)
			CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
		fprintf(to, "rank %d of its node on device %d of %d %s\n", job.local, device, devices, bus);
	}

	void run()
	{
		bool resumed = o.resume && resume();
		log = open(path("log_r%02d.txt", job.rank), resumed ? "a" : "w");
		fseek(log, 0, SEEK_END);
		if (o.by_place)
			say_place(log, false);
		if (job.rank == 0)
			printf("gpt_ranks: %d ranks, %zu parameters, from step %d\n", job.world, model.count, step);
		while (step < o.steps && step < o.stop_at) {
			train_step();
			step++;
			if (o.save_every && step % o.save_every == 0)
				save();
		}
		FILE *f = open(path("final_r%02d.bin", job.rank), "wb");
		transfer(f, model.params, model.count, true);
		if (fclose(f) || fclose(log))
			die("cannot write the end");
		job.barrier(model.square, model.stream);
		CHECK(cudaDeviceSynchronize());
		if (o.by_place)
			say_place(stderr, true);
		job.part();
	}
};

int main(int argc, char **argv)
{
	Options o = parse(argc, argv);
	Ranks job;
	mkdir(o.out, 0777);
	job.chatty = o.chatty;
	job.meet(o.out);
	job.arrange(o.tp, o.pp);
	job.watch = o.watch;
	Trainer(o, job).run();
	return 0;
}
