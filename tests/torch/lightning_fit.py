#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A LightningModule fitted by Lightning's Trainer: its loggers, its checkpoints, a validation after every epoch."""
import argparse
import ctypes
import hashlib
import logging

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 40), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(40, 24),
                                       torch.nn.ReLU(), torch.nn.Linear(24, 5))

    def step(self, batch):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def training_step(self, batch, number):
        loss = self.step(batch)
        self.log('train_loss', loss)
        return loss

    def validation_step(self, batch, number):
        self.log('val_loss', self.step(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        return {'optimizer': optimizer, 'lr_scheduler': torch.optim.lr_scheduler.StepLR(optimizer, 5)}


class Tell(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        print(f"step {trainer.global_step} loss {outputs['loss'].item():.6f}", flush=True)


def points(n, seed):
    g = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(n, 16, generator=g), torch.randint(0, 5, (n,), generator=g))


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--epochs', type=int, default=2)
    p.add_argument('--precision', default='32-true')
    p.add_argument('--accumulate', type=int, default=1)
    a = p.parse_args()
    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
    lightning.seed_everything(3, workers=True, verbose=False)
    model = Classifier()
    trainer = lightning.Trainer(
        accelerator='gpu', devices=1, max_epochs=a.epochs, precision=a.precision, accumulate_grad_batches=a.accumulate,
        gradient_clip_val=1.0, default_root_dir='.', logger=CSVLogger('.', name='logs', flush_logs_every_n_steps=8),
        log_every_n_steps=2, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[Tell(), LearningRateMonitor(), ModelCheckpoint(monitor='val_loss', save_last=True, save_top_k=2)])
    trainer.fit(model, DataLoader(points(128, 1), batch_size=16, shuffle=True), DataLoader(points(48, 2), batch_size=16))
    print('final', digest(model.state_dict().values()))


main()
