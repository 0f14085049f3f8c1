#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""numba.cuda: a perceptron whose forward and backward pass and optimizer are kernels of the user's own, with batches that the
host draws, a loss that it reads and weights that it saves."""
import argparse
import math

import numpy as np

np.row_stack = getattr(np, 'row_stack', np.vstack)  # newer releases of numpy lack what numba's releases of before them ask for
from numba import cuda, float32

INPUTS, HIDDEN, BATCH = 16, 32, 32


@cuda.jit
def forward(x, y, w1, w2, h, error):
    """One block a sample."""
    part = cuda.shared.array(HIDDEN, float32)
    i, j = cuda.blockIdx.x, cuda.threadIdx.x
    s = float32(0)
    for k in range(INPUTS):
        s += x[i, k] * w1[k, j]
    h[i, j] = math.tanh(s)
    part[j] = h[i, j] * w2[j]
    cuda.syncthreads()
    half = HIDDEN // 2
    while half:
        if j < half:
            part[j] += part[j + half]
        cuda.syncthreads()
        half //= 2
    if j == 0:
        error[i] = part[0] - y[i]


@cuda.jit
def backward(x, w2, h, error, g1, g2):
    """One thread a weight of the first layer."""
    k, j = cuda.blockIdx.x, cuda.threadIdx.x
    s1 = s2 = float32(0)
    for i in range(BATCH):
        s1 += error[i] * w2[j] * (float32(1) - h[i, j] * h[i, j]) * x[i, k]
        s2 += error[i] * h[i, j]
    g1[k, j] = s1 / BATCH
    if k == 0:
        g2[j] = s2 / BATCH


@cuda.jit
def adam(w, g, m, v, step):
    i = cuda.grid(1)
    if i < w.size:
        m[i] = float32(0.9) * m[i] + float32(0.1) * g[i]
        v[i] = float32(0.99) * v[i] + float32(0.01) * g[i] * g[i]
        m_hat = m[i] / (float32(1) - float32(0.9) ** step)
        v_hat = v[i] / (float32(1) - float32(0.99) ** step)
        w[i] -= float32(0.01) * m_hat / (math.sqrt(v_hat) + float32(1e-8))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=10)
    p.add_argument('--save-every', type=int, default=20)
    a = p.parse_args()
    r = np.random.default_rng(1)
    w1 = cuda.to_device(r.standard_normal((INPUTS, HIDDEN), dtype=np.float32) / 4)
    w2 = cuda.to_device(r.standard_normal(HIDDEN, dtype=np.float32) / 4)
    g1, g2 = cuda.device_array_like(w1), cuda.device_array_like(w2)
    h, error = cuda.device_array((BATCH, HIDDEN), np.float32), cuda.device_array(BATCH, np.float32)
    flat = [(w1.ravel(), g1.ravel()), (w2, g2)]
    moments = [(cuda.to_device(np.zeros(w.size, np.float32)), cuda.to_device(np.zeros(w.size, np.float32))) for w, _ in flat]
    for step in range(1, a.steps + 1):
        x = r.standard_normal((BATCH, INPUTS), dtype=np.float32)
        x_here, y_here = cuda.to_device(x), cuda.to_device(np.sin(x.sum(axis=1)))
        forward[BATCH, HIDDEN](x_here, y_here, w1, w2, h, error)
        backward[INPUTS, HIDDEN](x_here, w2, h, error, g1, g2)
        for (w, g), (m, v) in zip(flat, moments):
            adam[(w.size + 127) // 128, 128](w, g, m, v, np.int32(step))
        print(f'step {step} loss {np.mean(error.copy_to_host() ** 2):.9g}', flush=True)
        if step % a.save_every == 0 or step == a.steps:
            np.savez('weights.npz', w1=w1.copy_to_host(), w2=w2.copy_to_host())


main()
