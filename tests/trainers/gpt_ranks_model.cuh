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
        bigrams = 512, tp = 1, pp = 1, late_rank = -1, late_step = 0, late = 0;
    float lr = 3e-3f, clip = 1.0f, dropout = 0.1f, decay = 0.1f;
    bool resume = false, zero = false, watch = false, chatty = false, graph = false, by_place = false;
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

// what each of several ranks has the same of counts by its share, so that their sum is that of the whole model
__global__ void shared_square_kernel(float *parts, const float *x, size_t n, size_t split, float share)
{
    __shared__ float part[BLOCK];
    float sum = 0.0f;
    for (size_t i = (blockIdx.x * blockDim.x + threadIdx.x) * NEIGHBORS; i < n; i += NORM_BLOCKS * BLOCK * NEIGHBORS)
        if (i + NEIGHBORS <= split || i >= split)
            sum += squares(x + i, n - i) * (i < split ? 1.0f : share);
        else
            for (size_t j = i; j < n && j < i + NEIGHBORS; j++)
                sum += x[j] * x[j] * (j < split ? 1.0f : share);
    sum = block_sum(part, sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

static int blocks(size_t n)
{
    return (int)((n + BLOCK - 1) / BLOCK);
}

// Which part of a tensor a rank has: all of it, its rows of each of three matrices above one another, or its columns.
enum Cut { WHOLE, ROWS, THREE_ROWS, COLUMNS };

struct Tensor {
    size_t offset, count;
    float spread; // of the initial values; negative: ones
    Cut cut;
    int rows, columns; // of the whole
    int id;            // whatever the layout
};

// Tensors that lie together: the embeddings, a layer, the head. Those that are cut come first, and the weights, which
// decay, before the biases.
// A shard is what this rank updates of a bucket: all of it, or with --zero a part as long as every other rank's.
struct Bucket {
    size_t offset, count, decayed, split;
    size_t shard, shard_count, moments; // where it begins in the parameters, its length, where its moments begin
    cudaEvent_t ready;
};

enum { QKV_W, PROJ_W, FC_W, OUT_W, QKV_B, FC_B, LN1_W, LN1_B, LN2_W, LN2_B, PROJ_B, OUT_B, PER_LAYER };

struct Model {
    Options o;
    const Ranks &job;
    int C, L, H, V = VOCABULARY, N; // layers and heads of this rank; N: rows of a micro-batch
    int own;                        // of the C channels, those of this rank's heads
    int first_layer;                // of this stage
    bool first, last;               // stage
    int ranks;                      // that share the batch
    ncclComm_t comm;                // of these
    int next_id = 0;
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
    std::vector<Activations> acts; // of the micro-batches under way
    float *losses, *dres, *dln, *dqkv, *datt, *dmix, *dfc, *dgelu, *ddrop;
    float *loss, *square, *parts; // loss: [0] this rank's, [1] the job's
    float *host; // page-locked, since a copy to other memory would wait for the stream by itself
    cudaStream_t stream, exchange;
    cudaGraphExec_t summing = nullptr; // --graph
    cudaEvent_t exchanged;

    static float *floats(size_t n)
    {
        float *p;
        CHECK(cudaMalloc((void **)&p, n * sizeof(float)));
        CHECK(cudaMemset(p, 0, n * sizeof(float)));
        return p;
    }
    int add(int rows, int columns, float spread, Cut cut = WHOLE)
    {
        size_t n = (size_t)rows * columns / (cut == WHOLE ? 1 : job.tensors);
        tensors.push_back({count, n, spread, cut, rows, columns, next_id++});
        count += n;
        return (int)tensors.size() - 1;
    }
    void open_bucket(int id)
    {
        next_id = id;
        buckets.push_back({count, 0, 0, 0, 0, 0, 0, nullptr});
    }
    void decayed_so_far() { buckets.back().decayed = count - buckets.back().offset; }
    void split_so_far() { buckets.back().split = count - buckets.back().offset; }
    void close_bucket()
    {
        Bucket &b = buckets.back();
        size_t n = o.zero ? ranks : 1;
        count = b.offset + (count - b.offset + n - 1) / n * n;
        b.count = count - b.offset;
        b.shard_count = b.count / n;
        b.shard = b.offset + (o.zero ? job.d * b.shard_count : 0);
        b.moments = moments;
        moments += b.shard_count;
        CHECK(cudaEventCreateWithFlags(&b.ready, cudaEventDisableTiming));
    }
    float *P(int t) { return params + tensors[t].offset; }
    float *G(int t) { return grads + tensors[t].offset; }

    void lay_out_layer(Weights &l)
    {
        float out = 0.02f / sqrtf(2.0f * (float)o.layers);
        l.w[QKV_W] = add(3 * C, C, 0.02f, THREE_ROWS);
        l.w[PROJ_W] = add(C, C, out, COLUMNS);
        l.w[FC_W] = add(4 * C, C, 0.02f, ROWS);
        l.w[OUT_W] = add(C, 4 * C, out, COLUMNS);
        decayed_so_far();
        l.w[QKV_B] = add(3 * C, 1, 0.0f, THREE_ROWS);
        l.w[FC_B] = add(4 * C, 1, 0.0f, ROWS);
        split_so_far();
        for (int k = LN1_W; k < PER_LAYER; k++)
            l.w[k] = add(C, 1, k == LN1_W || k == LN2_W ? -1.0f : 0.0f);
    }

    void lay_out()
    {
        weights.resize(L);
        if (first) {
            open_bucket(0);
            wte = add(V, C, 0.02f);
            wpe = add(o.context, C, 0.02f);
            wbe = add(o.bigrams, C, 0.02f);
            decayed_so_far();
            close_bucket();
        }
        for (int i = 0; i < L; i++) {
            open_bucket(16 * (1 + first_layer + i));
            lay_out_layer(weights[i]);
            close_bucket();
        }
        if (last) {
            open_bucket(16 * (1 + o.layers));
            head = add(V, C, 0.02f);
            decayed_so_far();
            lnf_w = add(C, 1, -1.0f);
            lnf_b = add(C, 1, 0.0f);
            close_bucket();
        }
    }

    void make_activations(Activations &a)
    {
        size_t n = N, S = (size_t)o.batch * H * o.context * o.context;
        a.layers.resize(L);
        for (Layer &l : a.layers) {
            l.ln1 = floats(n * C), l.mean1 = floats(n), l.rstd1 = floats(n), l.qkv = floats(3 * n * own), l.att = floats(S);
            l.mix = floats(n * own), l.proj = floats(n * C), l.res1 = floats(n * C), l.ln2 = floats(n * C);
            l.mean2 = floats(n), l.rstd2 = floats(n), l.fc = floats(4 * n * own), l.gelu = floats(4 * n * own);
            l.fc2 = floats(n * C), l.res2 = floats(n * C);
        }
        a.enc = floats(n * C), a.lnf = floats(n * C), a.meanf = floats(n), a.rstdf = floats(n), a.logits = floats(n * V);
        CHECK(cudaMalloc((void **)&a.tokens, sizeof(int) * o.batch * (o.context + 1)));
    }

    Model(const Options &options, const Ranks &ranks_)
        : o(options), job(ranks_), C(o.width), L(o.layers / job.stages), H(o.heads / job.tensors), N(o.batch * o.context),
          own(C / job.tensors), first_layer(job.p * L), first(job.p == 0), last(job.p == job.stages - 1), ranks(job.copies),
          comm(job.copy_comm)
    {
        size_t n = N;
        if (o.layers % job.stages || o.heads % job.tensors)
            die("the model does not go into the layout");
        lay_out();
        params = floats(count), grads = floats(count), m = floats(moments), v = floats(moments);
        acts.resize(o.accum < job.stages - job.p ? o.accum : job.stages - job.p);
        for (Activations &a : acts)
            make_activations(a);
        losses = floats(n), dres = floats(n * C), dln = floats(n * C), dqkv = floats(3 * n * own);
        datt = floats((size_t)o.batch * H * o.context * o.context);
        dmix = floats(n * own), dfc = floats(4 * n * own), dgelu = floats(4 * n * own), ddrop = floats(n * C);
        loss = floats(2), square = floats(1), parts = floats(NORM_BLOCKS * buckets.size());
        CHECK(cudaMallocHost((void **)&host, 2 * sizeof(float)));
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaStreamCreateWithFlags(&exchange, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&exchanged, cudaEventDisableTiming));
        // the zeros above are the default stream's, which `exchange` does not wait for
        CHECK(cudaDeviceSynchronize());
    }

    // where an element of the whole tensor lies in this rank's part, or -1
    long place(const Tensor &t, int row, int column) const
    {
        int n = t.cut == WHOLE ? 1 : job.tensors, me = n == 1 ? 0 : job.t, parts = t.cut == THREE_ROWS ? 3 : 1;
        int rows = t.cut == COLUMNS ? t.rows : t.rows / parts / n, columns = t.cut == COLUMNS ? t.columns / n : t.columns;
        int part = row / (t.rows / parts), within = row % (t.rows / parts);
        if ((t.cut == COLUMNS ? column / columns : within / rows) != me)
            return -1;
        return (long)(part * rows + within % rows) * columns + column % columns;
    }

    // each tensor has a sequence of its own and is drawn as a whole, so that the model is the same in all layouts
    void randomise()
    {
        std::vector<float> host(count);
        for (const Tensor &t : tensors) {
            Random random{o.seed * 1000003 + (unsigned)t.id};
            random.next();
            for (int row = 0; row < t.rows; row++)
                for (int column = 0; column < t.columns; column++) {
                    long at = place(t, row, column);
                    float x = t.spread < 0.0f ? 1.0f : t.spread > 0.0f ? t.spread * random.normal() : 0.0f;
                    if (at >= 0)
                        host[t.offset + at] = x;
                }
        }
        CHECK(cudaMemcpy(params, host.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    }

    // what each of the tensor-parallel ranks has computed a part of
    void sum_parts(float *x)
    {
        if (job.tensors > 1)
            NCCL(ncclAllReduce(x, x, (size_t)N * C, ncclFloat32, ncclSum, job.tensor_comm, stream));
    }
    // of which only one adds the bias
    const float *bias_once(int b) { return job.t == 0 ? P(b) : nullptr; }

    void linear(float *out, const float *in, int w, const float *b, int IC, int OC)
    {
        matmul_forward_kernel<<<blocks((size_t)N * OC), BLOCK, 0, stream>>>(out, in, P(w), b, N, IC, OC);
    }

    void linear_backward(float *din, const float *dout, const float *in, int w, int b, int IC, int OC)
    {
        matmul_backward_input_kernel<<<blocks(N * threads_for(IC)), BLOCK, 0, stream>>>(din, dout, P(w), N, IC, OC);
        matmul_backward_weight_kernel<<<blocks(OC * threads_for(IC)), BLOCK, 0, stream>>>(G(w), b < 0 ? nullptr : G(b), dout, in, N,
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
        int n = N * C, site = 2 * (first_layer + i), *w = weights[i].w;
        layernorm(l.ln1, l.mean1, l.rstd1, x, w[LN1_W], w[LN1_B]);
        linear(l.qkv, l.ln1, w[QKV_W], P(w[QKV_B]), C, 3 * own);
        attention_forward_kernel<<<blocks(o.batch * H * o.context), BLOCK, 0, stream>>>(l.mix, l.att, l.qkv, o.batch, o.context,
                                                                                      own, H);
        linear(l.proj, l.mix, w[PROJ_W], bias_once(w[PROJ_B]), own, C);
        sum_parts(l.proj);
        residual_dropout_forward_kernel<<<blocks(n), BLOCK, 0, stream>>>(l.res1, x, l.proj, n, o.dropout, site);
        layernorm(l.ln2, l.mean2, l.rstd2, l.res1, w[LN2_W], w[LN2_B]);
        linear(l.fc, l.ln2, w[FC_W], P(w[FC_B]), C, 4 * own);
        gelu_forward_kernel<<<blocks(4 * N * own), BLOCK, 0, stream>>>(l.gelu, l.fc, 4 * N * own);
        linear(l.fc2, l.gelu, w[OUT_W], bias_once(w[OUT_B]), 4 * own, C);
        sum_parts(l.fc2);
        residual_dropout_forward_kernel<<<blocks(n), BLOCK, 0, stream>>>(l.res2, l.res1, l.fc2, n, o.dropout, site + 1);
    }

    void layer_backward(int i, Layer &l, const float *x)
    {
        int n = N * C, site = 2 * (first_layer + i), threads = o.batch * H * o.context, *w = weights[i].w;
        dropout_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(ddrop, dres, n, o.dropout, site + 1);
        linear_backward(dgelu, ddrop, l.gelu, w[OUT_W], w[OUT_B], 4 * own, C);
        gelu_backward_kernel<<<blocks(4 * N * own), BLOCK, 0, stream>>>(dfc, l.fc, dgelu, 4 * N * own);
        linear_backward(dln, dfc, l.ln2, w[FC_W], w[FC_B], C, 4 * own);
        sum_parts(dln);
        layernorm_backward(dres, dln, l.res1, w[LN2_W], w[LN2_B], l.mean2, l.rstd2);
        dropout_backward_kernel<<<blocks(n), BLOCK, 0, stream>>>(ddrop, dres, n, o.dropout, site);
        linear_backward(dmix, ddrop, l.mix, w[PROJ_W], w[PROJ_B], own, C);
        attention_backward_query_kernel<<<blocks(threads), BLOCK, 0, stream>>>(dqkv, datt, dmix, l.qkv, l.att, o.batch, o.context,
                                                                              own, H);
        attention_backward_key_value_kernel<<<blocks(threads), BLOCK, 0, stream>>>(dqkv, datt, dmix, l.qkv, l.att, o.batch,
                                                                                  o.context, own, H);
        linear_backward(dln, dqkv, l.ln1, w[QKV_W], w[QKV_B], C, 3 * own);
        sum_parts(dln);
        layernorm_backward(dres, dln, x, w[LN1_W], w[LN1_B], l.mean1, l.rstd1);
    }

    float *output(Activations &a) { return a.layers.back().res2; }

    void seek_masks(unsigned long long number)
    {
        dropout_seek_kernel<<<1, 1, 0, stream>>>(number + (o.by_place ? (unsigned long long)job.local << 40 : 0));
    }

    // `number`: of the micro-batch in the run. Behind the first stage what it begins with has been received into enc.
    void forward(Activations &a, unsigned long long number)
    {
        float scale = 1.0f / (float)(N * o.accum);
        const float *x = a.enc;
        seek_masks(number);
        if (first)
            encoder_forward_kernel<<<blocks(N * C), BLOCK, 0, stream>>>(a.enc, a.tokens, P(wte), P(wpe), P(wbe), N, o.context, C,
                                                                       o.bigrams);
        for (int i = 0; i < L; i++) {
            layer_forward(i, a.layers[i], x);
            x = a.layers[i].res2;
        }
        if (last) {
            layernorm(a.lnf, a.meanf, a.rstdf, x, lnf_w, lnf_b);
            linear(a.logits, a.lnf, head, nullptr, C, V);
            cross_entropy_kernel<<<blocks(N), BLOCK, 0, stream>>>(a.logits, losses, a.tokens, N, o.context, V, scale);
            add_mean_kernel<<<1, BLOCK, 0, stream>>>(loss, losses, N, scale);
        }
        CHECK(cudaGetLastError());
    }

    // Before the last stage it begins with what has been received into dres. `done`: the step's last, so that what is done
    // with a bucket can travel while the layers below it are computed.
    void backward(Activations &a, unsigned long long number, bool done)
    {
        seek_masks(number);
        if (last) {
            linear_backward(dln, a.logits, a.lnf, head, -1, C, V);
            CHECK(cudaMemsetAsync(dres, 0, (size_t)N * C * sizeof(float), stream));
            layernorm_backward(dres, dln, output(a), lnf_w, lnf_b, a.meanf, a.rstdf);
            if (done)
                reduce(buckets.back());
        }
        for (int i = L - 1; i >= 0; i--) {
            layer_backward(i, a.layers[i], i ? a.layers[i - 1].res2 : a.enc);
            if (done)
                reduce(buckets[first + i]);
        }
        if (first) {
            encoder_backward_kernel<<<blocks(C), BLOCK, 0, stream>>>(G(wte), G(wpe), G(wbe), dres, a.tokens, N, o.context, C,
                                                                    o.bigrams);
            if (done)
                reduce(buckets[0]);
        }
        CHECK(cudaGetLastError());
    }

    // Activations go to the stage behind and gradients to the one before, each way at once; nullptr is nothing.
    void swap_with_next(const float *send, float *receive)
    {
        if (last)
            return;
        NCCL(ncclGroupStart());
        if (send)
            NCCL(ncclSend(send, (size_t)N * C, ncclFloat32, job.p + 1, job.stage_comm, stream));
        if (receive)
            NCCL(ncclRecv(receive, (size_t)N * C, ncclFloat32, job.p + 1, job.stage_comm, stream));
        NCCL(ncclGroupEnd());
    }

    void swap_with_previous(const float *send, float *receive)
    {
        if (first)
            return;
        NCCL(ncclGroupStart());
        if (send)
            NCCL(ncclSend(send, (size_t)N * C, ncclFloat32, job.p - 1, job.stage_comm, stream));
        if (receive)
            NCCL(ncclRecv(receive, (size_t)N * C, ncclFloat32, job.p - 1, job.stage_comm, stream));
        NCCL(ncclGroupEnd());
    }

    void reduce(const Bucket &b)
    {
        if (ranks == 1 && !o.chatty)
            return;
        ncclRedOp_t mean = ncclAvg;
        float share = 1.0f / (float)ranks;
        CHECK(cudaEventRecord(b.ready, stream));
        CHECK(cudaStreamWaitEvent(exchange, b.ready, 0));
        if (o.chatty)
            NCCL(ncclRedOpCreatePreMulSum(&mean, &share, ncclFloat32, ncclScalarHostImmediate, comm));
        if (o.zero)
            NCCL(ncclReduceScatter(grads + b.offset, grads + b.shard, b.shard_count, ncclFloat32, mean, comm, exchange));
        else
            NCCL(ncclAllReduce(grads + b.offset, grads + b.offset, b.count, ncclFloat32, mean, comm, exchange));
        if (o.chatty)
            NCCL(ncclRedOpDestroy(mean, comm));
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

    // of the whole model
    float gradient_norm()
    {
        ncclComm_t others = o.zero ? job.comm : job.model_comm;
        float share = 1.0f / (float)job.tensors;
        for (size_t i = 0; i < buckets.size(); i++) {
            const Bucket &b = buckets[i];
            size_t split = b.offset + b.split > b.shard ? b.offset + b.split - b.shard : 0;
            shared_square_kernel<<<NORM_BLOCKS, BLOCK, 0, stream>>>(parts + i * NORM_BLOCKS, grads + b.shard, b.shard_count, split,
                                                                   share);
        }
        add_parts_kernel<<<1, 1, 0, stream>>>(square, parts, (int)buckets.size() * NORM_BLOCKS);
        if (others)
            NCCL(ncclAllReduce(square, square, 1, ncclFloat32, ncclSum, others, stream));
        CHECK(cudaMemcpyAsync(host, square, sizeof *host, cudaMemcpyDeviceToHost, stream));
        job.wait(stream);
        return sqrtf(*host);
    }

    void scale_gradients(float factor)
    {
        for (const Bucket &b : buckets)
            scale_gradients_kernel<<<blocks(threads_for(b.shard_count)), BLOCK, 0, stream>>>(grads + b.shard, b.shard_count, factor);
    }

    // a launch a tensor, as the plainest trainers have it
    void update(Hyper h)
    {
        for (const Bucket &b : buckets)
            for (const Tensor &t : tensors)
                if (t.offset >= b.offset && t.offset < b.offset + b.count)
                    adamw_kernel<<<blocks(threads_for(t.count)), BLOCK, 0, stream>>>(params + t.offset, grads + t.offset, m + t.offset,
                                                                       v + t.offset, t.count, h,
                                                                       t.offset < b.offset + b.decayed ? o.decay : 0.0f);
    }

    // Shards end anywhere within a tensor. A bucket travels while the next one is updated.
    void update_shards(Hyper h)
    {
        for (const Bucket &b : buckets) {
            size_t decayed = b.offset + b.decayed > b.shard ? b.offset + b.decayed - b.shard : 0;
            adamw_fused_kernel<<<blocks(threads_for(b.shard_count)), BLOCK, 0, stream>>>(params + b.shard, grads + b.shard, m + b.moments,
                                                                           v + b.moments, b.shard_count, decayed, h, o.decay);
            if (ranks == 1 && !o.chatty)
                continue;
            CHECK(cudaEventRecord(b.ready, stream));
            CHECK(cudaStreamWaitEvent(exchange, b.ready, 0));
            NCCL(ncclAllGather(params + b.shard, params + b.offset, b.shard_count, ncclFloat32, comm, exchange));
        }
        wait_for_exchange();
    }

    void sum_losses(cudaStream_t other)
    {
        NCCL(ncclAllReduce(loss, loss + 1, 1, ncclFloat32, ncclSum, job.comm, stream));
        if (!o.chatty)
            return;
        // all have the same, so it is also what the rank before has
        NCCL(ncclGroupStart());
        NCCL(ncclSend(loss + 1, 1, ncclFloat32, (job.rank + 1) % job.world, job.comm, stream));
        NCCL(ncclRecv(square, 1, ncclFloat32, (job.rank + job.world - 1) % job.world, job.comm, other));
        NCCL(ncclGroupEnd());
        if (other != stream)
            wait_for_exchange();
        CHECK(cudaMemcpyAsync(loss + 1, square, sizeof *square, cudaMemcpyDeviceToDevice, stream));
    }

    // to[0] this rank's loss, 0 but in the last stage; to[1] the mean of all copies
    void read_loss(float *to)
    {
        if (!o.graph) {
            sum_losses(exchange);
        } else {
            if (!summing) {
                cudaGraph_t captured;
                CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
                sum_losses(stream);
                CHECK(cudaStreamEndCapture(stream, &captured));
                CHECK(cudaGraphInstantiate(&summing, captured, 0));
                CHECK(cudaGraphDestroy(captured));
            }
            CHECK(cudaGraphLaunch(summing, stream));
        }
        CHECK(cudaMemcpyAsync(host, loss, 2 * sizeof(float), cudaMemcpyDeviceToHost, stream));
        job.wait(stream);
        to[0] = host[0];
        to[1] = host[1] / (float)(job.copies * job.tensors);
    }
};

#endif
