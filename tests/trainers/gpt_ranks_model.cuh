// SPDX-License-Identifier: Apache-2.0
// The GPT of gpt_ranks: its tensors, in the buckets whose gradients travel together, and its launches.
#ifndef GPT_RANKS_MODEL_CUH
#define GPT_RANKS_MODEL_CUH
#include "gpt_kernels.cuh"
#include "ranks.cuh"

#include <cmath>
#include <vector>

struct Options {
    const char *data = nullptr;
    const char *out = ".";
    unsigned long long seed = 1;
    int steps = 20, stop_at = 1 << 30, save_every = 0, accum = 2, layers = 2, width = 32, context = 32, batch = 1, heads = 4,
        bigrams = 512;
    float lr = 3e-3f, clip = 1.0f, dropout = 0.1f, decay = 0.1f;
    bool resume = false, zero = false;
};

#define VOCABULARY 96

struct Random {
    unsigned long long state;
    unsigned next()
    {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        unsigned x = (unsigned)(((state >> 18) ^ state) >> 27), r = (unsigned)(state >> 59);
        return x >> r | x << (-r & 31);
    }
    float uniform() { return ((float)(next() >> 8) + 0.5f) / 16777216.0f; }
    float normal() { return sqrtf(-2.0f * logf(uniform())) * cosf(6.2831853f * uniform()); }
};

// the masks follow from the number of the micro-batch among all of the run, whoever computes it
__global__ void dropout_seek_kernel(unsigned long long to)
{
    dropout_counter = to;
}

__global__ void add_parts_kernel(float *square, const float *parts, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += parts[i];
    *square = sum;
}

static int blocks(size_t n)
{
    return (int)((n + BLOCK - 1) / BLOCK);
}

struct Tensor {
    size_t offset, count;
    float spread; // of the initial values; negative: ones
};

// Tensors that lie together: the embeddings, a layer, the head. Those that decay come first.
// A shard is what this rank updates of a bucket: all of it, or with --zero a part as long as every other rank's.
struct Bucket {
    size_t offset, count, decayed;
    size_t shard, shard_count, moments; // where it begins in the parameters, its length, where its moments begin
    cudaEvent_t ready;
};

enum { QKV_W, PROJ_W, FC_W, OUT_W, QKV_B, FC_B, LN1_W, LN1_B, LN2_W, LN2_B, PROJ_B, OUT_B, PER_LAYER };

struct Model {
    Options o;
    int C, L, H, V = VOCABULARY, N; // N: rows of a micro-batch
    int ranks, rank;                // that share the batch, and which of them this is
    ncclComm_t comm;
    std::vector<Tensor> tensors;
    std::vector<Bucket> buckets;
    int wte, wpe, wbe, head, lnf_w, lnf_b;
    size_t count = 0, moments = 0;
    float *params, *grads, *m, *v;
    struct Layer {
        float *ln1, *mean1, *rstd1, *qkv, *att, *mix, *proj, *res1, *ln2, *mean2, *rstd2, *fc, *gelu, *fc2, *res2;
    };
    struct Weights {
        int w[PER_LAYER];
    };
    struct Activations {
        std::vector<Layer> layers;
        float *enc, *lnf, *meanf, *rstdf, *logits;
        int *tokens;
    };
    std::vector<Weights> weights;
    Activations acts;
    float *losses, *dres, *dln, *dqkv, *datt, *dmix, *dfc, *dgelu, *ddrop;
    float *loss, *square, *parts; // loss: [0] this rank's, [1] the job's
    cudaStream_t stream, exchange;
    cudaEvent_t exchanged;

    static float *floats(size_t n)
    {
        float *p;
        CHECK(cudaMalloc((void **)&p, n * sizeof(float)));
        CHECK(cudaMemset(p, 0, n * sizeof(float)));
        return p;
    }
    int add(size_t n, float spread)
    {
        tensors.push_back({count, n, spread});
        count += n;
        return (int)tensors.size() - 1;
    }
    void open_bucket() { buckets.push_back({count, 0, 0, 0, 0, 0, nullptr}); }
    void decayed_so_far() { buckets.back().decayed = count - buckets.back().offset; }
    void close_bucket()
    {
        Bucket &b = buckets.back();
        size_t n = o.zero ? ranks : 1;
        count = b.offset + (count - b.offset + n - 1) / n * n;
        b.count = count - b.offset;
        b.shard_count = b.count / n;
        b.shard = b.offset + (o.zero ? rank * b.shard_count : 0);
        b.moments = moments;
        moments += b.shard_count;
        CHECK(cudaEventCreateWithFlags(&b.ready, cudaEventDisableTiming));
    }
    float *P(int t) { return params + tensors[t].offset; }
    float *G(int t) { return grads + tensors[t].offset; }

    void lay_out()
    {
        float out = 0.02f / sqrtf(2.0f * (float)L);
        weights.resize(L);
        open_bucket();
        wte = add((size_t)V * C, 0.02f);
        wpe = add((size_t)o.context * C, 0.02f);
        wbe = add((size_t)o.bigrams * C, 0.02f);
        decayed_so_far();
        close_bucket();
        for (Weights &l : weights) {
            open_bucket();
            l.w[QKV_W] = add((size_t)3 * C * C, 0.02f);
            l.w[PROJ_W] = add((size_t)C * C, out);
            l.w[FC_W] = add((size_t)4 * C * C, 0.02f);
            l.w[OUT_W] = add((size_t)4 * C * C, out);
            decayed_so_far();
            l.w[QKV_B] = add((size_t)3 * C, 0.0f);
            l.w[FC_B] = add((size_t)4 * C, 0.0f);
            l.w[LN1_W] = add(C, -1.0f);
            l.w[LN1_B] = add(C, 0.0f);
            l.w[LN2_W] = add(C, -1.0f);
            l.w[LN2_B] = add(C, 0.0f);
            l.w[PROJ_B] = add(C, 0.0f);
            l.w[OUT_B] = add(C, 0.0f);
            close_bucket();
        }
        open_bucket();
        head = add((size_t)V * C, 0.02f);
        decayed_so_far();
        lnf_w = add(C, -1.0f);
        lnf_b = add(C, 0.0f);
        close_bucket();
    }

    void make_activations(Activations &a)
    {
        size_t n = N, S = (size_t)o.batch * H * o.context * o.context;
        a.layers.resize(L);
        for (Layer &l : a.layers) {
            l.ln1 = floats(n * C), l.mean1 = floats(n), l.rstd1 = floats(n), l.qkv = floats(3 * n * C), l.att = floats(S);
            l.mix = floats(n * C), l.proj = floats(n * C), l.res1 = floats(n * C), l.ln2 = floats(n * C);
            l.mean2 = floats(n), l.rstd2 = floats(n), l.fc = floats(4 * n * C), l.gelu = floats(4 * n * C);
            l.fc2 = floats(n * C), l.res2 = floats(n * C);
        }
        a.enc = floats(n * C), a.lnf = floats(n * C), a.meanf = floats(n), a.rstdf = floats(n), a.logits = floats(n * V);
        CHECK(cudaMalloc((void **)&a.tokens, sizeof(int) * o.batch * (o.context + 1)));
    }

    Model(const Options &options, const Ranks &job)
        : o(options), C(o.width), L(o.layers), H(o.heads), N(o.batch * o.context), ranks(job.world), rank(job.rank),
          comm(job.comm)
    {
        size_t n = N;
        lay_out();
        params = floats(count), grads = floats(count), m = floats(moments), v = floats(moments);
        make_activations(acts);
        losses = floats(n), dres = floats(n * C), dln = floats(n * C), dqkv = floats(3 * n * C);
        datt = floats((size_t)o.batch * H * o.context * o.context);
        dmix = floats(n * C), dfc = floats(4 * n * C), dgelu = floats(4 * n * C), ddrop = floats(n * C);
        loss = floats(2), square = floats(1), parts = floats(NORM_BLOCKS * buckets.size());
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaStreamCreateWithFlags(&exchange, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&exchanged, cudaEventDisableTiming));
        // the zeros above are the default stream's, which `exchange` does not wait for
        CHECK(cudaDeviceSynchronize());
    }

    // each tensor has a sequence of its own, so that no rank's depends on what else it holds
    void randomise()
    {
        std::vector<float> host(count);
        for (size_t k = 0; k < tensors.size(); k++) {
            const Tensor &t = tensors[k];
            Random random{o.seed * 1000003 + k};
            random.next();
            for (size_t i = 0; i < t.count; i++)
                host[t.offset + i] = t.spread < 0.0f ? 1.0f : t.spread > 0.0f ? t.spread * random.normal() : 0.0f;
        }
        CHECK(cudaMemcpy(params, host.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    }

    void linear(float *out, const float *in, int w, const float *b, int IC, int OC)
    {
        matmul_forward_kernel<<<blocks((size_t)N * OC), BLOCK, 0, stream>>>(out, in, P(w), b, N, IC, OC);
    }

    void linear_backward(float *din, const float *dout, const float *in, int w, int b, int IC, int OC)
    {
        matmul_backward_input_kernel<<<blocks((size_t)N * IC), BLOCK, 0, stream>>>(din, dout, P(w), N, IC, OC);
        matmul_backward_weight_kernel<<<blocks((size_t)OC * IC), BLOCK, 0, stream>>>(G(w), b < 0 ? nullptr : G(b), dout, in, N,
                                                                                    IC, OC);
    }

    void layernorm(float *out, float *mean, float *rstd, const float *in, int w, int b)
    {
        layernorm_forward_kernel<<<blocks(N), BLOCK, 0, stream>>>(out, mean, rstd, in, P(w), P(b), N, C);
    }

    void layernorm_backward(float *din, const float *dout, const float *in, int w, int b, const float *mean,
                            const float *rstd)
    {
        layernorm_backward_input_kernel<<<blocks(N), BLOCK, 0, stream>>>(din, dout, in, P(w), mean, rstd, N, C);
        layernorm_backward_weight_kernel<<<blocks(C), BLOCK, 0, stream>>>(G(w), G(b), dout, in, mean, rstd, N, C);
    }

    void layer_forward(int i, Layer &l, const float *x)
    {
        int n = N * C, site = 2 * i, *w = weights[i].w;
        layernorm(l.ln1, l.mean1, l.rstd1, x, w[LN1_W], w[LN1_B]);
        linear(l.qkv, l.ln1, w[QKV_W], P(w[QKV_B]), C, 3 * C);
        attention_forward_kernel<<<blocks(o.batch * H * o.context), BLOCK, 0, stream>>>(l.mix, l.att, l.qkv, o.batch, o.context, C, H);
        linear(l.proj, l.mix, w[PROJ_W], P(w[PROJ_B]), C, C);
        residual_dropout_forward_kernel<<<blocks(n), BLOCK, 0, stream>>>(l.res1, x, l.proj, n, o.dropout, site);
        layernorm(l.ln2, l.mean2, l.rstd2, l.res1, w[LN2_W], w[LN2_B]);
        linear(l.fc, l.ln2, w[FC_W], P(w[FC_B]), C, 4 * C);
        gelu_forward_kernel<<<blocks(4 * n), BLOCK, 0, stream>>>(l.gelu, l.fc, 4 * n);
        linear(l.fc2, l.gelu, w[OUT_W], P(w[OUT_B]), 4 * C, C);
        residual_dropout_forward_kernel<<<blocks(n), BLOCK, 0, stream>>>(l.res2, l.res1, l.fc2, n, o.dropout, site + 1);
    }

    void layer_backward(int i, Layer &l, const float *x)
    {
        int n = N * C, site = 2 * i, threads = o.batch * H * o.context, *w = weights[i].w;
        dropout_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(ddrop, dres, n, o.dropout, site + 1);
        linear_backward(dgelu, ddrop, l.gelu, w[OUT_W], w[OUT_B], 4 * C, C);
        gelu_backward_kernel<<<blocks(4 * n), BLOCK, 0, stream>>>(dfc, l.fc, dgelu, 4 * n);
        linear_backward(dln, dfc, l.ln2, w[FC_W], w[FC_B], C, 4 * C);
        layernorm_backward(dres, dln, l.res1, w[LN2_W], w[LN2_B], l.mean2, l.rstd2);
        dropout_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(ddrop, dres, n, o.dropout, site);
        linear_backward(dmix, ddrop, l.mix, w[PROJ_W], w[PROJ_B], C, C);
        attention_backward_query_kernel<<<blocks(threads), BLOCK, 0, stream>>>(dqkv, datt, dmix, l.qkv, l.att, o.batch, o.context,
                                                                              C, H);
        attention_backward_key_value_kernel<<<blocks(threads), BLOCK, 0, stream>>>(dqkv, datt, dmix, l.qkv, l.att, o.batch,
                                                                                  o.context, C, H);
        linear_backward(dln, dqkv, l.ln1, w[QKV_W], w[QKV_B], C, 3 * C);
        layernorm_backward(dres, dln, x, w[LN1_W], w[LN1_B], l.mean1, l.rstd1);
    }

    // `number`: of the micro-batch in the run
    void forward(Activations &a, unsigned long long number)
    {
        float scale = 1.0f / (float)(N * o.accum);
        const float *x = a.enc;
        dropout_seek_kernel<<<1, 1, 0, stream>>>(number);
        encoder_forward_kernel<<<blocks(N * C), BLOCK, 0, stream>>>(a.enc, a.tokens, P(wte), P(wpe), P(wbe), N, o.context, C,
                                                                   o.bigrams);
        for (int i = 0; i < L; i++) {
            layer_forward(i, a.layers[i], x);
            x = a.layers[i].res2;
        }
        layernorm(a.lnf, a.meanf, a.rstdf, x, lnf_w, lnf_b);
        linear(a.logits, a.lnf, head, nullptr, C, V);
        cross_entropy_kernel<<<blocks(N), BLOCK, 0, stream>>>(a.logits, losses, a.tokens, N, o.context, V, scale);
        add_mean_kernel<<<1, BLOCK, 0, stream>>>(loss, losses, N, scale);
        CHECK(cudaGetLastError());
    }

    // `last`: of the step, so that what is done with a bucket can travel while the layers below it are computed
    void backward(Activations &a, unsigned long long number, bool last)
    {
        dropout_seek_kernel<<<1, 1, 0, stream>>>(number);
        linear_backward(dln, a.logits, a.lnf, head, -1, C, V);
        CHECK(cudaMemsetAsync(dres, 0, (size_t)N * C * sizeof(float), stream));
        layernorm_backward(dres, dln, a.layers[L - 1].res2, lnf_w, lnf_b, a.meanf, a.rstdf);
        if (last)
            reduce(buckets.back());
        for (int i = L - 1; i >= 0; i--) {
            layer_backward(i, a.layers[i], i ? a.layers[i - 1].res2 : a.enc);
            if (last)
                reduce(buckets[1 + i]);
        }
        encoder_backward_kernel<<<blocks(C), BLOCK, 0, stream>>>(G(wte), G(wpe), G(wbe), dres, a.tokens, N, o.context, C, o.bigrams);
        if (last)
            reduce(buckets[0]);
        CHECK(cudaGetLastError());
    }

    void reduce(const Bucket &b)
    {
        if (ranks == 1)
            return;
        CHECK(cudaEventRecord(b.ready, stream));
        CHECK(cudaStreamWaitEvent(exchange, b.ready, 0));
        if (o.zero)
            NCCL(ncclReduceScatter(grads + b.offset, grads + b.shard, b.shard_count, ncclFloat32, ncclAvg, comm, exchange));
        else
            NCCL(ncclAllReduce(grads + b.offset, grads + b.offset, b.count, ncclFloat32, ncclAvg, comm, exchange));
    }

    void wait_for_exchange()
    {
        CHECK(cudaEventRecord(exchanged, exchange));
        CHECK(cudaStreamWaitEvent(stream, exchanged, 0));
    }

    void clear()
    {
        CHECK(cudaMemsetAsync(grads, 0, count * sizeof(float), stream));
        CHECK(cudaMemsetAsync(loss, 0, 2 * sizeof(float), stream));
    }

    float gradient_norm()
    {
        float x;
        for (size_t i = 0; i < buckets.size(); i++)
            squared_norm_kernel<<<NORM_BLOCKS, BLOCK, 0, stream>>>(parts + i * NORM_BLOCKS, grads + buckets[i].shard,
                                                                  buckets[i].shard_count);
        add_parts_kernel<<<1, 1, 0, stream>>>(square, parts, (int)buckets.size() * NORM_BLOCKS);
        if (o.zero && ranks > 1)
            NCCL(ncclAllReduce(square, square, 1, ncclFloat32, ncclSum, comm, stream));
        CHECK(cudaMemcpyAsync(&x, square, sizeof x, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        return sqrtf(x);
    }

    void scale_gradients(float factor)
    {
        for (const Bucket &b : buckets)
            scale_gradients_kernel<<<blocks(b.shard_count), BLOCK, 0, stream>>>(grads + b.shard, b.shard_count, factor);
    }

    // a launch a tensor, as the plainest trainers have it
    void update(Hyper h)
    {
        for (const Bucket &b : buckets)
            for (const Tensor &t : tensors)
                if (t.offset >= b.offset && t.offset < b.offset + b.count)
                    adamw_kernel<<<blocks(t.count), BLOCK, 0, stream>>>(params + t.offset, grads + t.offset, m + t.offset,
                                                                       v + t.offset, t.count, h,
                                                                       t.offset < b.offset + b.decayed ? o.decay : 0.0f);
    }

    // Shards end anywhere within a tensor. A bucket travels while the next one is updated.
    void update_shards(Hyper h)
    {
        for (const Bucket &b : buckets) {
            size_t decayed = b.offset + b.decayed > b.shard ? b.offset + b.decayed - b.shard : 0;
            adamw_fused_kernel<<<blocks(b.shard_count), BLOCK, 0, stream>>>(params + b.shard, grads + b.shard, m + b.moments,
                                                                           v + b.moments, b.shard_count, decayed, h, o.decay);
            if (ranks == 1)
                continue;
            CHECK(cudaEventRecord(b.ready, stream));
            CHECK(cudaStreamWaitEvent(exchange, b.ready, 0));
            NCCL(ncclAllGather(params + b.shard, params + b.offset, b.shard_count, ncclFloat32, comm, exchange));
        }
        wait_for_exchange();
    }

    // to[0] this rank's loss, to[1] the mean of all
    void read_loss(float *to)
    {
        NCCL(ncclAllReduce(loss, loss + 1, 1, ncclFloat32, ncclAvg, comm, stream));
        CHECK(cudaMemcpyAsync(to, loss, 2 * sizeof(float), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
};

#endif
