#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A perceptron in JAX, trained by optax: one compiled step, donated state, batches from the host, the loss read each step."""
import argparse
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import optax


def forward(layers, x):
    for weights, bias in layers[:-1]:
        x = jax.nn.gelu(x @ weights + bias)
    weights, bias = layers[-1]
    return x @ weights + bias


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=6)
    a = p.parse_args()
    assert jax.devices()[0].platform == 'gpu'
    key, layers = jax.random.key(1), []
    for fan_in, fan_out in ((32, 512), (512, 512), (512, 4)):
        key, drawn = jax.random.split(key)
        layers.append((jax.random.normal(drawn, (fan_in, fan_out)) / fan_in ** 0.5, jnp.zeros(fan_out)))
    optimizer = optax.adamw(1e-3)
    state = optimizer.init(layers)

    def step(layers, state, key, x, y):
        key, noise = jax.random.split(key)

        def loss_of(layers):
            return optax.softmax_cross_entropy_with_integer_labels(forward(layers, x + 0.01 * jax.random.normal(noise, x.shape)), y).mean()

        loss, gradients = jax.value_and_grad(loss_of)(layers)
        updates, state = optimizer.update(gradients, state, layers)
        return optax.apply_updates(layers, updates), state, key, loss

    step = jax.jit(step, donate_argnums=(0, 1, 2))
    rng = np.random.default_rng(1)
    for i in range(a.steps):
        x = rng.standard_normal((128, 32), dtype=np.float32)
        y = (x[:, :4].argmax(1)).astype(np.int32)
        layers, state, key, loss = step(layers, state, key, x, y)
        print(f'step {i} loss {float(loss):.6f}', flush=True)
    h = hashlib.sha256()
    for leaf in jax.tree.leaves((layers, state)):
        h.update(np.asarray(leaf).tobytes())
    print('final', h.hexdigest())


main()
