// SPDX-License-Identifier: Apache-2.0
// The device code of the small convolutional classifier: activations are [batch, channel, height, width].
#ifndef CLASSIFIER_KERNELS_CUH
#define CLASSIFIER_KERNELS_CUH
#include <cuda_runtime.h>

#define BLOCK 64

__global__ void bytes_to_float_kernel(float *out, const unsigned char *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = ((float)in[i] - 96.0f) * (1.0f / 32.0f);
}

// 3 by 3, padded by one; w is [out channel, in channel, 3, 3]
__global__ void conv_forward_kernel(float *out, const float *in, const float *w, int batch, int IC, int OC, int side)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, area = side * side;
    if (i >= batch * OC * area)
        return;
    int x = i % side, y = i / side % side, o = i / area % OC, b = i / (area * OC);
    float sum = 0.0f;
    for (int c = 0; c < IC; c++)
        for (int ky = 0; ky < 3; ky++) {
            int yy = y + ky - 1;
            if (yy < 0 || yy >= side)
                continue;
            for (int kx = 0; kx < 3; kx++) {
                int xx = x + kx - 1;
                if (xx >= 0 && xx < side)
                    sum += in[((b * IC + c) * side + yy) * side + xx] * w[((o * IC + c) * 3 + ky) * 3 + kx];
            }
        }
    out[i] = sum;
}

__global__ void conv_backward_input_kernel(float *din, const float *dout, const float *w, int batch, int IC, int OC, int side)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, area = side * side;
    if (i >= batch * IC * area)
        return;
    int x = i % side, y = i / side % side, c = i / area % IC, b = i / (area * IC);
    float sum = 0.0f;
    for (int o = 0; o < OC; o++)
        for (int ky = 0; ky < 3; ky++) {
            int yy = y - ky + 1;
            if (yy < 0 || yy >= side)
                continue;
            for (int kx = 0; kx < 3; kx++) {
                int xx = x - kx + 1;
                if (xx >= 0 && xx < side)
                    sum += dout[((b * OC + o) * side + yy) * side + xx] * w[((o * IC + c) * 3 + ky) * 3 + kx];
            }
        }
    din[i] = sum;
}

__global__ void conv_backward_weight_kernel(float *dw, const float *dout, const float *in, int batch, int IC, int OC, int side)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= OC * IC * 9)
        return;
    int kx = i % 3 - 1, ky = i / 3 % 3 - 1, c = i / 9 % IC, o = i / (9 * IC);
    float sum = 0.0f;
    for (int b = 0; b < batch; b++)
        for (int y = ky < 0 ? 1 : 0; y < side - (ky > 0 ? 1 : 0); y++)
            for (int x = kx < 0 ? 1 : 0; x < side - (kx > 0 ? 1 : 0); x++)
                sum += dout[((b * OC + o) * side + y) * side + x] * in[((b * IC + c) * side + y + ky) * side + x + kx];
    dw[i] = sum;
}

__device__ float block_sum(float *part, float x)
{
    __syncthreads();
    part[threadIdx.x] = x;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

// one block a channel; the running statistics move a tenth of the way
__global__ void batchnorm_statistics_kernel(float *mean, float *rstd, float *running_mean, float *running_var, const float *in,
                                            int batch, int channels, int area)
{
    __shared__ float part[BLOCK];
    int c = blockIdx.x, n = batch * area;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < n; i += BLOCK)
        sum += in[(i / area * channels + c) * area + i % area];
    float m = block_sum(part, sum) / (float)n;
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        float d = in[(i / area * channels + c) * area + i % area] - m;
        squares += d * d;
    }
    float v = block_sum(part, squares) / (float)n;
    if (threadIdx.x == 0) {
        mean[c] = m;
        rstd[c] = 1.0f / sqrtf(v + 1e-5f);
        running_mean[c] += 0.1f * (m - running_mean[c]);
        running_var[c] += 0.1f * (v * (float)n / (float)(n - 1) - running_var[c]);
    }
}

__global__ void batchnorm_from_running_kernel(float *mean, float *rstd, const float *running_mean, const float *running_var,
                                              int channels)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c < channels) {
        mean[c] = running_mean[c];
        rstd[c] = 1.0f / sqrtf(running_var[c] + 1e-5f);
    }
}

__global__ void batchnorm_relu_kernel(float *out, const float *in, const float *mean, const float *rstd, const float *w,
                                      const float *b, int n, int channels, int area)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int c = i / area % channels;
        out[i] = fmaxf(0.0f, (in[i] - mean[c]) * rstd[c] * w[c] + b[c]);
    }
}

// dout is the gradient behind the relu; out tells where it was cut
__global__ void batchnorm_backward_statistics_kernel(float *dw, float *db, const float *dout, const float *out, const float *in,
                                                     const float *mean, const float *rstd, int batch, int channels, int area)
{
    __shared__ float part[BLOCK];
    int c = blockIdx.x, n = batch * area;
    float gw = 0.0f, gb = 0.0f;
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        int at = (i / area * channels + c) * area + i % area;
        float d = out[at] > 0.0f ? dout[at] : 0.0f;
        gb += d;
        gw += d * (in[at] - mean[c]) * rstd[c];
    }
    gw = block_sum(part, gw);
    gb = block_sum(part, gb);
    if (threadIdx.x == 0) {
        dw[c] = gw;
        db[c] = gb;
    }
}

__global__ void batchnorm_backward_kernel(float *din, const float *dout, const float *out, const float *in, const float *mean,
                                          const float *rstd, const float *w, const float *dw, const float *db, int n,
                                          int channels, int area)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int c = i / area % channels;
    float count = (float)(n / channels), d = out[i] > 0.0f ? dout[i] : 0.0f;
    din[i] = w[c] * rstd[c] * (d - (db[c] + (in[i] - mean[c]) * rstd[c] * dw[c]) / count);
}

// the mean of two by two; side is that of the output
__global__ void pool_forward_kernel(float *out, const float *in, int n, int side)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = i % side, y = i / side % side, plane = i / (side * side);
    const float *from = in + plane * 4 * side * side + 4 * side * y + 2 * x;
    out[i] = 0.25f * (from[0] + from[1] + from[2 * side] + from[2 * side + 1]);
}

__global__ void pool_backward_kernel(float *din, const float *dout, int n, int side)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = i % side, y = i / side % side, plane = i / (side * side);
    din[i] = 0.25f * dout[(plane * (side / 2) + y / 2) * (side / 2) + x / 2];
}

__global__ void linear_forward_kernel(float *out, const float *in, const float *w, const float *b, int batch, int IC, int OC,
                                      int relu)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * OC)
        return;
    int row = i / OC, o = i % OC;
    float sum = b[o];
    for (int k = 0; k < IC; k++)
        sum += in[row * IC + k] * w[o * IC + k];
    out[i] = relu ? fmaxf(0.0f, sum) : sum;
}

// if behind is given, the input came out of a relu
__global__ void linear_backward_input_kernel(float *din, const float *dout, const float *w, const float *behind, int batch,
                                             int IC, int OC)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * IC)
        return;
    int row = i / IC, k = i % IC;
    float sum = 0.0f;
    for (int o = 0; o < OC; o++)
        sum += dout[row * OC + o] * w[o * IC + k];
    din[i] = behind && behind[i] <= 0.0f ? 0.0f : sum;
}

__global__ void linear_backward_weight_kernel(float *dw, float *db, const float *dout, const float *in, int batch, int IC,
                                              int OC)
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
    dw[i] = gw;
    if (k == 0)
        db[o] = gb;
}

// one block; logits become their own gradient; the mean loss is stored, or added if add is set
__global__ void softmax_loss_kernel(float *loss, float *logits, const unsigned char *labels, int batch, int classes, int add)
{
    __shared__ float part[BLOCK];
    float mine = 0.0f;
    for (int row = threadIdx.x; row < batch; row += BLOCK) {
        float *x = logits + row * classes, top = -1e30f, sum = 0.0f;
        for (int k = 0; k < classes; k++)
            top = fmaxf(top, x[k]);
        for (int k = 0; k < classes; k++)
            sum += expf(x[k] - top);
        mine += logf(sum) + top - x[labels[row]];
        for (int k = 0; k < classes; k++)
            x[k] = (expf(x[k] - top) / sum - (k == labels[row] ? 1.0f : 0.0f)) / (float)batch;
    }
    mine = block_sum(part, mine);
    if (threadIdx.x == 0)
        *loss = (add ? *loss : 0.0f) + mine / (float)batch;
}

__global__ void sgd_momentum_kernel(float *params, float *momentum, const float *grads, int n, float lr, float mu, float decay)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = mu * momentum[i] + grads[i] + decay * params[i];
        momentum[i] = v;
        params[i] -= lr * v;
    }
}

#endif
