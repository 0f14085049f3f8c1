// SPDX-License-Identifier: Apache-2.0
// The device code of the character-level GPT: rows are tokens (batch times sequence), a matrix w is [out, in].
#ifndef GPT_KERNELS_CUH
#define GPT_KERNELS_CUH
#include <cuda_runtime.h>

#include <cstddef>

#define BLOCK 64

// What takes most of the time on the software device has a thread for so many neighbours, which lie together in what it reads.
#define NEIGHBORS 8

static __host__ __device__ __forceinline__ size_t threads_for(size_t n)
{
    return (n + NEIGHBORS - 1) / NEIGHBORS;
}

__device__ unsigned long long dropout_counter; // one per micro-batch

__device__ unsigned hash_bits(unsigned long long x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (unsigned)(x >> 32);
}

__device__ float dropout_factor(unsigned long long counter, unsigned site, unsigned i, float p)
{
    unsigned bits = hash_bits((counter << 28) ^ ((unsigned long long)site << 22) ^ i);
    return (float)(bits >> 8) * (1.0f / 16777216.0f) < p ? 0.0f : 1.0f / (1.0f - p);
}

__global__ void dropout_advance_kernel()
{
    dropout_counter = dropout_counter + 1;
}

__device__ int bigram_slot(int before, int token, int slots)
{
    return (int)(((unsigned)before * 131u + (unsigned)token * 2654435761u) % (unsigned)slots);
}

__global__ void encoder_forward_kernel(float *out, const int *tokens, const float *wte, const float *wpe, const float *wbe,
                                       int rows, int T, int C, int slots)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * C)
        return;
    int row = i / C, c = i % C, b = row / T, t = row % T;
    const int *line = tokens + b * (T + 1);
    int slot = bigram_slot(t > 0 ? line[t - 1] : 0, line[t], slots);
    out[i] = wte[line[t] * C + c] + wpe[t * C + c] + wbe[slot * C + c];
}

// one thread a channel walks all rows, so that equal tokens are added in a fixed order
__global__ void encoder_backward_kernel(float *dwte, float *dwpe, float *dwbe, const float *dout, const int *tokens,
                                        int rows, int T, int C, int slots)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C)
        return;
    for (int row = 0; row < rows; row++) {
        int b = row / T, t = row % T;
        const int *line = tokens + b * (T + 1);
        int slot = bigram_slot(t > 0 ? line[t - 1] : 0, line[t], slots);
        float d = dout[row * C + c];
        dwte[line[t] * C + c] += d;
        dwpe[t * C + c] += d;
        dwbe[slot * C + c] += d;
    }
}

__global__ void layernorm_forward_kernel(float *out, float *mean, float *rstd, const float *in, const float *w,
                                         const float *b, int rows, int C)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    const float *x = in + row * C;
    float m = 0.0f, v = 0.0f;
    for (int c = 0; c < C; c++)
        m += x[c];
    m /= (float)C;
    for (int c = 0; c < C; c++)
        v += (x[c] - m) * (x[c] - m);
    float s = 1.0f / sqrtf(v / (float)C + 1e-5f);
    for (int c = 0; c < C; c++)
        out[row * C + c] = (x[c] - m) * s * w[c] + b[c];
    mean[row] = m;
    rstd[row] = s;
}

__global__ void layernorm_backward_input_kernel(float *din, const float *dout, const float *in, const float *w,
                                                const float *mean, const float *rstd, int rows, int C)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    const float *x = in + row * C, *d = dout + row * C;
    float m = mean[row], s = rstd[row], sum = 0.0f, dot = 0.0f;
    for (int c = 0; c < C; c++) {
        float g = d[c] * w[c];
        sum += g;
        dot += g * (x[c] - m) * s;
    }
    sum /= (float)C;
    dot /= (float)C;
    for (int c = 0; c < C; c++)
        din[row * C + c] += (d[c] * w[c] - sum - (x[c] - m) * s * dot) * s;
}

__global__ void layernorm_backward_weight_kernel(float *dw, float *db, const float *dout, const float *in,
                                                 const float *mean, const float *rstd, int rows, int C)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C)
        return;
    float gw = 0.0f, gb = 0.0f;
    for (int row = 0; row < rows; row++) {
        float d = dout[row * C + c];
        gb += d;
        gw += d * (in[row * C + c] - mean[row]) * rstd[row];
    }
    dw[c] += gw;
    db[c] += gb;
}

// four sums at a time, so that one addition need not wait for the other
__device__ __forceinline__ float dot(const float *x, const float *y, int n)
{
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        a += x[i] * y[i];
        b += x[i + 1] * y[i + 1];
        c += x[i + 2] * y[i + 2];
        d += x[i + 3] * y[i + 3];
    }
    for (; i < n; i++)
        a += x[i] * y[i];
    return (a + b) + (c + d);
}

// sum[j] = the sum over i of x[i * dx] * y[i * dy + j], for the first `columns` of them
__device__ __forceinline__ void dots(float *sum, int columns, const float *x, int dx, const float *y, int dy, int n)
{
    for (int j = 0; j < NEIGHBORS; j++)
        sum[j] = 0.0f;
    if (columns == NEIGHBORS) {
        for (int i = 0; i < n; i++, x += dx, y += dy) {
            float f = *x;
            sum[0] += f * y[0];
            sum[1] += f * y[1];
            sum[2] += f * y[2];
            sum[3] += f * y[3];
            sum[4] += f * y[4];
            sum[5] += f * y[5];
            sum[6] += f * y[6];
            sum[7] += f * y[7];
        }
        return;
    }
    for (int i = 0; i < n; i++, x += dx, y += dy)
        for (int j = 0; j < columns; j++)
            sum[j] += *x * y[j];
}

__global__ void matmul_forward_kernel(float *out, const float *in, const float *w, const float *b, int rows, int IC, int OC)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * OC)
        return;
    int row = i / OC, o = i % OC;
    out[i] = (b ? b[o] : 0.0f) + dot(in + row * IC, w + o * IC, IC);
}

// one thread for NEIGHBORS of a row, as in the next kernel
__global__ void matmul_backward_input_kernel(float *din, const float *dout, const float *w, int rows, int IC, int OC)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, threads = (int)threads_for(IC);
    if (i >= rows * threads)
        return;
    int row = i / threads, k = i % threads * NEIGHBORS, columns = min(IC - k, NEIGHBORS);
    float sum[NEIGHBORS];
    dots(sum, columns, dout + row * OC, 1, w + k, IC, OC);
    for (int j = 0; j < columns; j++)
        din[row * IC + k + j] = sum[j];
}

__global__ void matmul_backward_weight_kernel(float *dw, float *db, const float *dout, const float *in, int rows, int IC,
                                              int OC)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, threads = (int)threads_for(IC);
    if (i >= OC * threads)
        return;
    int o = i / threads, k = i % threads * NEIGHBORS, columns = min(IC - k, NEIGHBORS);
    float sum[NEIGHBORS];
    dots(sum, columns, dout + o, OC, in + k, IC, rows);
    for (int j = 0; j < columns; j++)
        dw[o * IC + k + j] += sum[j];
    if (db && k == 0) {
        float gb = 0.0f;
        for (int row = 0; row < rows; row++)
            gb += dout[row * OC + o];
        db[o] += gb;
    }
}

// qkv is [rows, 3, heads, D]; att is [batch, heads, T, T]; one thread a head and a query
__global__ void attention_forward_kernel(float *out, float *att, const float *qkv, int B, int T, int C, int H)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * H * T)
        return;
    int t = i % T, h = i / T % H, b = i / (T * H), D = C / H;
    const float *q = qkv + (b * T + t) * 3 * C + h * D;
    float *a = att + i * T, top = -1e30f, sum = 0.0f, scale = 1.0f / sqrtf((float)D);
    for (int s = 0; s <= t; s++) {
        const float *k = qkv + (b * T + s) * 3 * C + C + h * D;
        float dot = 0.0f;
        for (int d = 0; d < D; d++)
            dot += q[d] * k[d];
        a[s] = dot * scale;
        top = fmaxf(top, a[s]);
    }
    for (int s = 0; s <= t; s++) {
        a[s] = expf(a[s] - top);
        sum += a[s];
    }
    for (int s = 0; s <= t; s++)
        a[s] /= sum;
    float *o = out + (b * T + t) * C + h * D;
    for (int d = 0; d < D; d++) {
        float acc = 0.0f;
        for (int s = 0; s <= t; s++)
            acc += a[s] * qkv[(b * T + s) * 3 * C + 2 * C + h * D + d];
        o[d] = acc;
    }
}

__global__ void attention_backward_query_kernel(float *dqkv, float *datt, const float *dout, const float *qkv,
                                                const float *att, int B, int T, int C, int H)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * H * T)
        return;
    int t = i % T, h = i / T % H, b = i / (T * H), D = C / H;
    const float *a = att + i * T, *g = dout + (b * T + t) * C + h * D;
    float *da = datt + i * T, mean = 0.0f, scale = 1.0f / sqrtf((float)D);
    for (int s = 0; s <= t; s++) {
        const float *v = qkv + (b * T + s) * 3 * C + 2 * C + h * D;
        float dot = 0.0f;
        for (int d = 0; d < D; d++)
            dot += g[d] * v[d];
        da[s] = dot;
        mean += a[s] * dot;
    }
    for (int s = 0; s <= t; s++)
        da[s] = a[s] * (da[s] - mean) * scale;
    float *dq = dqkv + (b * T + t) * 3 * C + h * D;
    for (int d = 0; d < D; d++) {
        float acc = 0.0f;
        for (int s = 0; s <= t; s++)
            acc += da[s] * qkv[(b * T + s) * 3 * C + C + h * D + d];
        dq[d] = acc;
    }
}

__global__ void attention_backward_key_value_kernel(float *dqkv, const float *datt, const float *dout, const float *qkv,
                                                    const float *att, int B, int T, int C, int H)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * H * T)
        return;
    int s = i % T, h = i / T % H, b = i / (T * H), D = C / H;
    float *dk = dqkv + (b * T + s) * 3 * C + C + h * D, *dv = dk + C;
    for (int d = 0; d < D; d++) {
        float k = 0.0f, v = 0.0f;
        for (int t = s; t < T; t++) {
            int at = ((b * H + h) * T + t) * T + s;
            k += datt[at] * qkv[(b * T + t) * 3 * C + h * D + d];
            v += att[at] * dout[(b * T + t) * C + h * D + d];
        }
        dk[d] = k;
        dv[d] = v;
    }
}

__global__ void residual_dropout_forward_kernel(float *out, const float *residual, const float *x, int n, float p, int site)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = residual[i] + (p > 0.0f ? x[i] * dropout_factor(dropout_counter, site, i, p) : x[i]);
}

__global__ void dropout_backward_kernel(float *dx, const float *dout, int n, float p, int site)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        dx[i] = p > 0.0f ? dout[i] * dropout_factor(dropout_counter, site, i, p) : dout[i];
}

#define GELU_SCALE 0.7978845608f

__device__ __forceinline__ float gelu_tanh(float x)
{
    return 1.0f - 2.0f / (1.0f + expf(2.0f * GELU_SCALE * (x + 0.044715f * x * x * x)));
}

__global__ void gelu_forward_kernel(float *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i];
    out[i] = 0.5f * x * (1.0f + gelu_tanh(x));
}

__global__ void gelu_backward_kernel(float *din, const float *in, const float *dout, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i], th = gelu_tanh(x);
    float slope = 0.5f * (1.0f + th) + 0.5f * x * (1.0f - th * th) * GELU_SCALE * (1.0f + 3.0f * 0.044715f * x * x);
    din[i] = dout[i] * slope;
}

// logits become their own gradient, times scale
__global__ void cross_entropy_kernel(float *logits, float *losses, const int *tokens, int rows, int T, int V, float scale)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    int target = tokens[row / T * (T + 1) + row % T + 1];
    float *x = logits + row * V, top = -1e30f, sum = 0.0f, right = x[target];
    for (int v = 0; v < V; v++)
        top = fmaxf(top, x[v]);
    for (int v = 0; v < V; v++)
        sum += expf(x[v] - top);
    losses[row] = logf(sum) + top - right;
    for (int v = 0; v < V; v++)
        x[v] = (expf(x[v] - top) / sum - (v == target ? 1.0f : 0.0f)) * scale;
}

__device__ float block_sum(float *part, float x)
{
    part[threadIdx.x] = x;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

__global__ void add_mean_kernel(float *total, const float *x, int n, float scale)
{
    __shared__ float part[BLOCK];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += BLOCK)
        sum += x[i];
    sum = block_sum(part, sum);
    if (threadIdx.x == 0)
        *total += sum * scale;
}

#define NORM_BLOCKS 16

__device__ __forceinline__ float squares(const float *x, size_t n)
{
    if (n >= NEIGHBORS)
        return (x[0] * x[0] + x[1] * x[1]) + (x[2] * x[2] + x[3] * x[3]) + ((x[4] * x[4] + x[5] * x[5]) + (x[6] * x[6] + x[7] * x[7]));
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

__global__ void squared_norm_kernel(float *parts, const float *x, size_t n)
{
    __shared__ float part[BLOCK];
    float sum = 0.0f;
    for (size_t i = (blockIdx.x * blockDim.x + threadIdx.x) * NEIGHBORS; i < n; i += NORM_BLOCKS * BLOCK * NEIGHBORS)
        sum += squares(x + i, n - i);
    sum = block_sum(part, sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

__global__ void norm_kernel(float *norm, const float *parts)
{
    __shared__ float part[BLOCK];
    float sum = block_sum(part, threadIdx.x < NORM_BLOCKS ? parts[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0)
        *norm = sqrtf(sum);
}

__global__ void scale_gradients_kernel(float *grads, size_t n, float factor)
{
    size_t i = (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * NEIGHBORS;
    if (i + NEIGHBORS <= n)
        for (int j = 0; j < NEIGHBORS; j++)
            grads[i + j] *= factor;
    else
        for (; i < n; i++)
            grads[i] *= factor;
}

struct Hyper {
    float lr, correct1, correct2, clip;
};

#define BETA1 0.9f
#define BETA2 0.99f

__device__ __forceinline__ void adamw_update(float *p, float *m, float *v, float g, Hyper h, float decay)
{
    *m = BETA1 * *m + (1.0f - BETA1) * g;
    *v = BETA2 * *v + (1.0f - BETA2) * g * g;
    *p -= h.lr * (*m / h.correct1 / (sqrtf(*v / h.correct2) + 1e-8f) + decay * *p);
}

// the neighbours from i on, as far as there are any; the gradient times clip
__device__ void adamw_updates(float *__restrict__ p, float *__restrict__ m, float *__restrict__ v, const float *__restrict__ g, size_t i, size_t n,
                              Hyper h, float decay, float clip)
{
    if (i + NEIGHBORS <= n)
        for (int j = 0; j < NEIGHBORS; j++)
            adamw_update(p + i + j, m + i + j, v + i + j, g[i + j] * clip, h, decay);
    else
        for (; i < n; i++)
            adamw_update(p + i, m + i, v + i, g[i] * clip, h, decay);
}

// each of the following: one thread for NEIGHBORS values
__global__ void adamw_kernel(float *params, const float *grads, float *m, float *v, size_t n, Hyper h, float decay)
{
    size_t i = (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * NEIGHBORS;
    if (i < n)
        adamw_updates(params, m, v, grads, i, n, h, decay, 1.0f);
}

// the tensors that decay come first in the allocation
__global__ void adamw_fused_kernel(float *params, const float *grads, float *m, float *v, size_t n, size_t decayed, Hyper h,
                                   float decay)
{
    size_t i = (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * NEIGHBORS;
    if (i + NEIGHBORS <= decayed || i >= decayed) {
        if (i < n)
            adamw_updates(params, m, v, grads, i, n, h, i < decayed ? decay : 0.0f, 1.0f);
        return;
    }
    for (size_t end = i + NEIGHBORS; i < n && i < end; i++)
        adamw_update(params + i, m + i, v + i, grads[i], h, i < decayed ? decay : 0.0f);
}

// for captured steps: what changes from step to step, and the clipping, is read from device memory
__global__ void adamw_device_kernel(float *params, const float *grads, float *m, float *v, size_t n, const Hyper *h,
                                    const float *norm, float decay)
{
    size_t i = (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * NEIGHBORS;
    if (i >= n)
        return;
    float clip = h->clip > 0.0f && *norm > h->clip ? h->clip / *norm : 1.0f;
    adamw_updates(params, m, v, grads, i, n, *h, decay, clip);
}

#endif
