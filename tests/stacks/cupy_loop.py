#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy: a perceptron of array expressions, with products by cuBLAS, activations as an ElementwiseKernel, a loss as a ReductionKernel
and Adam as a RawKernel; batches come from the host, the loss is read and the weights are saved."""
import argparse

import cupy as cp
import numpy as np

gelu = cp.ElementwiseKernel('T x', 'T y, T slope', '''
    T t = tanh(T(0.79788456) * (x + T(0.044715) * x * x * x));
    y = T(0.5) * x * (T(1) + t);
    slope = T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * T(0.79788456) * (T(1) + T(0.134145) * x * x)''', 'gelu')
squares = cp.ReductionKernel('T x', 'T y', 'x * x', 'a + b', 'y = a / _in_ind.size()', '0', 'squares')
adam = cp.RawKernel('''
extern "C" __global__ void adam(float *w, const float *g, float *m, float *v, float rate, int step, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    v[i] = 0.99f * v[i] + 0.01f * g[i] * g[i];
    w[i] -= rate * m[i] / (1 - powf(0.9f, step)) / (sqrtf(v[i] / (1 - powf(0.99f, step))) + 1e-8f);
}
''', 'adam')


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=10)
    p.add_argument('--save-every', type=int, default=20)
    p.add_argument('--allocator', choices=('pool', 'async'), default='pool')
    a = p.parse_args()
    if a.allocator == 'async':
        cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
    r = np.random.default_rng(1)
    weights = [cp.asarray(r.standard_normal(shape, dtype=np.float32) / 4) for shape in ((16, 48), (48,), (48, 1))]
    moments = [(cp.zeros_like(w), cp.zeros_like(w)) for w in weights]
    for step in range(1, a.steps + 1):
        batch = r.standard_normal((32, 16), dtype=np.float32)
        x, y = cp.asarray(batch), cp.asarray(np.sin(batch.sum(axis=1, keepdims=True)))
        w1, b1, w2 = weights
        h, slope = gelu(x @ w1 + b1)
        error = h @ w2 - y
        loss = squares(error)
        back = (error @ w2.T) * slope * (2 / error.size)
        gradients = [x.T @ back, back.sum(axis=0), h.T @ error * np.float32(2 / error.size)]
        for w, g, (m, v) in zip(weights, gradients, moments):
            adam(((w.size + 127) // 128,), (128,), (w, g, m, v, np.float32(0.01), np.int32(step), np.int32(w.size)))
        print(f'step {step} loss {float(loss):.9g}', flush=True)
        if step % a.save_every == 0 or step == a.steps:
            np.savez('weights.npz', *map(cp.asnumpy, weights))


main()
