#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keras on TensorFlow's CPU build: fit with callbacks that log and save the weights, and a checkpoint at the end."""
import argparse

import keras
import numpy as np
import tensorflow as tf


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--epochs', type=int, default=3)
    a = p.parse_args()
    keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    x = np.random.default_rng(1).standard_normal((512, 16), dtype=np.float32)
    y = (np.sin(x.sum(axis=1)) > 0).astype(np.int32)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, 'gelu'), keras.layers.Dropout(0.1), keras.layers.Dense(2)])
    model.compile('adam', keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=['accuracy'])
    history = model.fit(tf.data.Dataset.from_tensor_slices((x, y)).shuffle(512, seed=2).batch(64).prefetch(2), epochs=a.epochs, verbose=0, shuffle=False,
                        callbacks=[keras.callbacks.CSVLogger('log.csv'),
                                   keras.callbacks.ModelCheckpoint('epoch{epoch}.weights.h5', save_weights_only=True)])
    for epoch, loss in enumerate(history.history['loss']):
        print(f'epoch {epoch} loss {loss:.9g}')
    print(tf.train.Checkpoint(model=model).write('checkpoint'))


main()
