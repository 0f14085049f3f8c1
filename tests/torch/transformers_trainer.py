#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 trained by the Trainer of transformers: its data collation, schedule and checkpoints."""
import argparse
import ctypes
import hashlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = torch.randint(0, 90, (n, 20), generator=g)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {'input_ids': self.rows[i], 'labels': self.rows[i]}


class Tell(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **more):
        kept = {k: v for k, v in (logs or {}).items() if k in ('loss', 'grad_norm', 'learning_rate', 'eval_loss')}
        if kept:
            print('step', state.global_step, ' '.join(f'{k} {float(v):.6g}' for k, v in kept.items()), flush=True)


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--save-every', type=int, default=25)
    p.add_argument('--precision', choices=('fp32', 'bf16', 'fp16'), default='fp32')
    a = p.parse_args()
    arguments = TrainingArguments(
        output_dir='out', max_steps=a.steps, per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=1e-3,
        logging_steps=1, save_steps=a.save_every, save_total_limit=2, report_to='none',
        disable_tqdm=True, seed=5, bf16=a.precision == 'bf16', fp16=a.precision == 'fp16', warmup_steps=4)
    torch.manual_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=90, n_positions=20, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0))
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(64, 1), callbacks=[Tell()])
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    assert model.device.type == 'cuda'
    trainer.train()
    trainer.save_model('model')
    print('final', digest(model.state_dict().values()))


main()
