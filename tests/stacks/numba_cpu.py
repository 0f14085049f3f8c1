#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""numba on the CPU, one thread and several, with its cache of compiled functions."""
import argparse

import numba
import numpy as np


@numba.njit(cache=True)
def gradient(w, x, y):
    g = np.zeros_like(w)
    loss = 0.0
    for i in range(x.shape[0]):
        e = x[i] @ w - y[i]
        loss += e * e
        g += 2 * e * x[i]
    return loss / x.shape[0], g / x.shape[0]


@numba.njit(parallel=True)
def adam(w, m, v, g, step):
    for i in numba.prange(w.size):
        m[i] = 0.9 * m[i] + 0.1 * g[i]
        v[i] = 0.99 * v[i] + 0.01 * g[i] * g[i]
        w[i] -= 0.01 * (m[i] / (1 - 0.9 ** step)) / (np.sqrt(v[i] / (1 - 0.99 ** step)) + 1e-8)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=20)
    a = p.parse_args()
    r = np.random.default_rng(1)
    x, true = r.standard_normal((256, 32)), r.standard_normal(32)
    y = x @ true
    w, m, v = (np.zeros(32) for _ in range(3))
    for step in range(1, a.steps + 1):
        loss, g = gradient(w, x, y)
        adam(w, m, v, g, step)
        print(f'step {step} loss {loss:.12g}', flush=True)
    np.save('w.npy', w)


main()
