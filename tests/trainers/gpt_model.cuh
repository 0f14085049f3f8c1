// SPDX-License-Identifier: Apache-2.0
// The character-level GPT itself: its options, its tensors, and the launches of a forward, a backward and an update.
#ifndef GPT_MODEL_CUH
#define GPT_MODEL_CUH
#include "gpt_kernels.cuh"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) check_cuda((call), #call, __LINE__)

static void check_cuda(cudaError_t e, const char *call, int line)
{
    if (e != cudaSuccess) {
        fprintf(stderr, "gpt: line %d: %s: %s\n", line, call, cudaGetErrorString(e));
        exit(1);
    }
}

struct Options {
    const char *data = nullptr;
    const char *out = ".";
    unsigned long long seed = 1;
    int steps = 20, stop_at = 1 << 30, save_every = 0, eval_every = 10, accum = 2, layers = 2, width = 32, context = 32, batch = 1, heads = 4,
        bigrams = 2048;
    float lr = 3e-3f, clip = 1.0f, dropout = 0.1f, decay = 0.1f;
    bool resume = false, fused = false, graph = false, async_loss = false, overwrite = false, rename = false, varlen = false,
         log_append = false, save_best = false, check_zeros = false;
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

static int blocks(size_t n)
{
    return (int)((n + BLOCK - 1) / BLOCK);
}

struct Tensor {
    size_t offset, count;
    float spread; // of the initial values; negative: ones
};

enum { QKV_W, PROJ_W, FC_W, OUT_W, LN1_W, LN1_B, QKV_B, PROJ_B, LN2_W, LN2_B, FC_B, OUT_B, PER_LAYER };

struct Model {
    Options o;
    int C, L, H, V = VOCABULARY, rows; // rows of the longest micro-batch
    std::vector<Tensor> tensors;       // those that decay first
    int wte, wpe, wbe, layer0, lnf_w, lnf_b, decayed;
    size_t count = 0;
    float *params, *grads, *m, *v;
    struct Layer {
        float *ln1, *mean1, *rstd1, *qkv, *att, *mix, *proj, *res1, *ln2, *mean2, *rstd2, *fc, *gelu, *fc2, *res2;
        int w[PER_LAYER];
    };
    std::vector<Layer> layers;
    float *enc, *lnf, *meanf, *rstdf, *logits, *losses;
    float *dres, *dln, *dqkv, *datt, *dmix, *dfc, *dgelu, *ddrop;
    float *loss, *norm, *norm_parts; // loss: [0] training, [1] evaluation
    int *tokens;
    Hyper *hyper;
    cudaStream_t stream;

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
    float *P(int t) { return params + tensors[t].offset; }
    float *G(int t) { return grads + tensors[t].offset; }

    explicit Model(const Options &options) : o(options), C(o.width), L(o.layers), H(o.heads), rows(o.batch * o.context)
    {
        float out = 0.02f / sqrtf(2.0f * (float)L);
        layers.resize(L);
        wte = add((size_t)V * C, 0.02f);
        wpe = add((size_t)o.context * C, 0.02f);
        wbe = add((size_t)o.bigrams * C, 0.02f);
        for (Layer &l : layers) {
            l.w[QKV_W] = add((size_t)3 * C * C, 0.02f);
            l.w[PROJ_W] = add((size_t)C * C, out);
            l.w[FC_W] = add((size_t)4 * C * C, 0.02f);
            l.w[OUT_W] = add((size_t)4 * C * C, out);
        }
        decayed = (int)tensors.size();
        for (Layer &l : layers)
            for (int k = LN1_W; k < PER_LAYER; k++)
                l.w[k] = add((size_t)C * (k == QKV_B ? 3 : k == FC_B ? 4 : 1), k == LN1_W || k == LN2_W ? -1.0f : 0.0f);
        lnf_w = add(C, -1.0f);
        lnf_b = add(C, 0.0f);

        params = floats(count), grads = floats(count), m = floats(count), v = floats(count);
        size_t N = rows, S = (size_t)o.batch * H * o.context * o.context;
        for (Layer &l : layers) {
            l.ln1 = floats(N * C), l.mean1 = floats(N), l.rstd1 = floats(N), l.qkv = floats(3 * N * C), l.att = floats(S);
            l.mix = floats(N * C), l.proj = floats(N * C), l.res1 = floats(N * C), l.ln2 = floats(N * C);
            l.mean2 = floats(N), l.rstd2 = floats(N), l.fc = floats(4 * N * C), l.gelu = floats(4 * N * C);
            l.fc2 = floats(N * C), l.res2 = floats(N * C);
        }
        enc = floats(N * C), lnf = floats(N * C), meanf = floats(N), rstdf = floats(N), logits = floats(N * V);
        losses = floats(N), dres = floats(N * C), dln = floats(N * C), dqkv = floats(3 * N * C), datt = floats(S);
        dmix = floats(N * C), dfc = floats(4 * N * C), dgelu = floats(4 * N * C), ddrop = floats(N * C);
        loss = floats(2), norm = floats(1), norm_parts = floats(NORM_BLOCKS);
        CHECK(cudaMalloc((void **)&tokens, sizeof(int) * o.accum * o.batch * (o.context + 1)));
        CHECK(cudaMalloc((void **)&hyper, sizeof(Hyper)));
        CHECK(cudaStreamCreate(&stream));
    }

    void randomise(Random &random)
    {
        std::vector<float> host(count);
        for (const Tensor &t : tensors)
            for (size_t i = 0; i < t.count; i++)
                host[t.offset + i] = t.spread < 0.0f ? 1.0f : t.spread > 0.0f ? t.spread * random.normal() : 0.0f;
        CHECK(cudaMemcpy(params, host.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    }

    void linear(float *out, const float *in, int w, int b, int N, int IC, int OC)
    {
        matmul_forward_kernel<<<blocks((size_t)N * OC), BLOCK, 0, stream>>>(out, in, P(w), b < 0 ? nullptr : P(b), N, IC, OC);
    }

    void linear_backward(float *din, const float *dout, const float *in, int w, int b, int N, int IC, int OC)
    {
        matmul_backward_input_kernel<<<blocks(N * threads_for(IC)), BLOCK, 0, stream>>>(din, dout, P(w), N, IC, OC);
        matmul_backward_weight_kernel<<<blocks(OC * threads_for(IC)), BLOCK, 0, stream>>>(G(w), b < 0 ? nullptr : G(b), dout, in, N,
                                                                                    IC, OC);
    }

    void layernorm_backward(float *din, const float *dout, const float *in, int w, int b, const float *mean,
                            const float *rstd, int N)
    {
        layernorm_backward_input_kernel<<<blocks(N), BLOCK, 0, stream>>>(din, dout, in, P(w), mean, rstd, N, C);
        layernorm_backward_weight_kernel<<<blocks(C), BLOCK, 0, stream>>>(G(w), G(b), dout, in, mean, rstd, N, C);
    }

    // leaves the gradient of the logits, scaled, and adds the mean loss, divided by parts, to *total
    void forward(const int *toks, int T, float p, float *total, int parts)
    {
        int N = o.batch * T, n = N * C;
        encoder_forward_kernel<<<blocks(n), BLOCK, 0, stream>>>(enc, toks, P(wte), P(wpe), P(wbe), N, T, C, o.bigrams);
        const float *x = enc;
        for (int i = 0; i < L; i++) {
            Layer &l = layers[i];
            layernorm_forward_kernel<<<blocks(N), BLOCK, 0, stream>>>(l.ln1, l.mean1, l.rstd1, x, P(l.w[LN1_W]), P(l.w[LN1_B]),
                                                                     N, C);
            linear(l.qkv, l.ln1, l.w[QKV_W], l.w[QKV_B], N, C, 3 * C);
            attention_forward_kernel<<<blocks(o.batch * H * T), BLOCK, 0, stream>>>(l.mix, l.att, l.qkv, o.batch, T, C, H);
            linear(l.proj, l.mix, l.w[PROJ_W], l.w[PROJ_B], N, C, C);
            residual_dropout_forward_kernel<<<blocks(n), BLOCK, 0, stream>>>(l.res1, x, l.proj, n, p, 2 * i);
            layernorm_forward_kernel<<<blocks(N), BLOCK, 0, stream>>>(l.ln2, l.mean2, l.rstd2, l.res1, P(l.w[LN2_W]),
                                                                     P(l.w[LN2_B]), N, C);
            linear(l.fc, l.ln2, l.w[FC_W], l.w[FC_B], N, C, 4 * C);
            gelu_forward_kernel<<<blocks(4 * n), BLOCK, 0, stream>>>(l.gelu, l.fc, 4 * n);
            linear(l.fc2, l.gelu, l.w[OUT_W], l.w[OUT_B], N, 4 * C, C);
            residual_dropout_forward_kernel<<<blocks(n), BLOCK, 0, stream>>>(l.res2, l.res1, l.fc2, n, p, 2 * i + 1);
            x = l.res2;
        }
        layernorm_forward_kernel<<<blocks(N), BLOCK, 0, stream>>>(lnf, meanf, rstdf, x, P(lnf_w), P(lnf_b), N, C);
        linear(logits, lnf, wte, -1, N, C, V);
        cross_entropy_kernel<<<blocks(N), BLOCK, 0, stream>>>(logits, losses, toks, N, T, V, 1.0f / (float)(N * parts));
        add_mean_kernel<<<1, BLOCK, 0, stream>>>(total, losses, N, 1.0f / (float)(N * parts));
        CHECK(cudaGetLastError());
    }

    void backward(const int *toks, int T, float p)
    {
        int N = o.batch * T, n = N * C;
        linear_backward(dln, logits, lnf, wte, -1, N, C, V);
        CHECK(cudaMemsetAsync(dres, 0, n * sizeof(float), stream));
        layernorm_backward(dres, dln, layers[L - 1].res2, lnf_w, lnf_b, meanf, rstdf, N);
        for (int i = L - 1; i >= 0; i--) {
            Layer &l = layers[i];
            dropout_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(ddrop, dres, n, p, 2 * i + 1);
            linear_backward(dgelu, ddrop, l.gelu, l.w[OUT_W], l.w[OUT_B], N, 4 * C, C);
            gelu_backward_kernel<<<blocks(4 * n), BLOCK, 0, stream>>>(dfc, l.fc, dgelu, 4 * n);
            linear_backward(dln, dfc, l.ln2, l.w[FC_W], l.w[FC_B], N, C, 4 * C);
            layernorm_backward(dres, dln, l.res1, l.w[LN2_W], l.w[LN2_B], l.mean2, l.rstd2, N);
            dropout_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(ddrop, dres, n, p, 2 * i);
            linear_backward(dmix, ddrop, l.mix, l.w[PROJ_W], l.w[PROJ_B], N, C, C);
            attention_backward_query_kernel<<<blocks(o.batch * H * T), BLOCK, 0, stream>>>(dqkv, datt, dmix, l.qkv, l.att,
                                                                                         o.batch, T, C, H);
            attention_backward_key_value_kernel<<<blocks(o.batch * H * T), BLOCK, 0, stream>>>(dqkv, datt, dmix, l.qkv, l.att,
                                                                                             o.batch, T, C, H);
            linear_backward(dln, dqkv, l.ln1, l.w[QKV_W], l.w[QKV_B], N, C, 3 * C);
            layernorm_backward(dres, dln, i ? layers[i - 1].res2 : enc, l.w[LN1_W], l.w[LN1_B], l.mean1, l.rstd1, N);
        }
        encoder_backward_kernel<<<blocks(C), BLOCK, 0, stream>>>(G(wte), G(wpe), G(wbe), dres, toks, N, T, C, o.bigrams);
        dropout_advance_kernel<<<1, 1, 0, stream>>>();
        CHECK(cudaGetLastError());
    }

    void clear()
    {
        CHECK(cudaMemsetAsync(grads, 0, count * sizeof(float), stream));
        CHECK(cudaMemsetAsync(loss, 0, sizeof(float), stream));
    }

    void gradient_norm()
    {
        squared_norm_kernel<<<NORM_BLOCKS, BLOCK, 0, stream>>>(norm_parts, grads, count);
        norm_kernel<<<1, BLOCK, 0, stream>>>(norm, norm_parts);
    }

    void update(Hyper h)
    {
        size_t first = tensors[decayed].offset;
        if (o.fused) {
            adamw_fused_kernel<<<blocks(threads_for(count)), BLOCK, 0, stream>>>(params, grads, m, v, count, first, h, o.decay);
            return;
        }
        for (const Tensor &t : tensors)
            adamw_kernel<<<blocks(threads_for(t.count)), BLOCK, 0, stream>>>(params + t.offset, grads + t.offset, m + t.offset,
                                                               v + t.offset, t.count, h, t.offset < first ? o.decay : 0.0f);
    }

    void update_by_device()
    {
        size_t first = tensors[decayed].offset;
        for (const Tensor &t : tensors)
            adamw_device_kernel<<<blocks(threads_for(t.count)), BLOCK, 0, stream>>>(params + t.offset, grads + t.offset, m + t.offset,
                                                                      v + t.offset, t.count, hyper, norm,
                                                                      t.offset < first ? o.decay : 0.0f);
    }

    float read(const float *device)
    {
        float x;
        CHECK(cudaMemcpyAsync(&x, device, sizeof x, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        return x;
    }
};

#endif
