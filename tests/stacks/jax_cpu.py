#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX on the CPU: a loop with jit, grad and scan that writes its state with numpy every now and then."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np


def forward(params, x):
    for w, b in params[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss_of(params, x, y):
    return jnp.mean((forward(params, x) - y) ** 2)


@jax.jit
def train(params, moments, key):
    def step(carry, key):
        params, moments = carry
        x = jax.random.normal(key, (64, 16))
        y = jnp.sin(x.sum(axis=1, keepdims=True))
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return (jax.tree.map(lambda p, m: p - 0.01 * m, params, moments), moments), loss
    return jax.lax.scan(step, (params, moments), jax.random.split(key, 10))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=5)
    a = p.parse_args()
    keys = jax.random.split(jax.random.key(1), 3)
    sizes = (16, 64, 64, 1)
    params = [(jax.random.normal(k, (i, o)) / i ** 0.5, jnp.zeros(o)) for k, i, o in zip(keys, sizes, sizes[1:])]
    moments = jax.tree.map(jnp.zeros_like, params)
    for step in range(a.steps):
        (params, moments), losses = train(params, moments, jax.random.fold_in(jax.random.key(2), step))
        print(f'step {step} loss {losses[-1]:.9g}', flush=True)
        np.savez('state.npz', *map(np.asarray, jax.tree.leaves((params, moments))))


main()
