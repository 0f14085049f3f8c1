# SPDX-License-Identifier: Apache-2.0
"""Lightning's ModelCheckpoint: the best two and the last one, and one with a link to it."""
import logging
import os
import warnings

import torch
import lightning

import saver

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(100, 300)

    def training_step(self, batch, _):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Numbers(lightning.Callback):
    def on_train_batch_end(self, trainer, model, *_):
        model.log("step_done", float(trainer.global_step))
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.fill_(trainer.global_step)


class Linked(lightning.pytorch.callbacks.ModelCheckpoint):
    """There may be one of each name."""


def run(first, last):
    del first
    lightning.seed_everything(1, verbose=False)
    keep = lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath="ck", filename="{step}", monitor="step_done", mode="max", save_top_k=2, save_last=True, every_n_train_steps=1)
    link = Linked(
        dirpath="linked", filename="{step}", monitor="step_done", mode="max", save_top_k=2, save_last="link", every_n_train_steps=1)
    trainer = lightning.Trainer(max_steps=last, accelerator="cpu", logger=False, enable_progress_bar=False,
                                callbacks=[Numbers(), keep, link], enable_model_summary=False, default_root_dir=".")
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(4, 100), batch_size=4),
                ckpt_path="ck/last.ckpt" if os.path.exists("ck/last.ckpt") else None, weights_only=False)


def loaded(path):
    found = torch.load(path, weights_only=False)
    return saver.number([*found["state_dict"].values(), torch.tensor(float(found["global_step"]))])


def look():
    found = []
    for path in saver.there("ck/*.ckpt"):
        found += saver.unless_gone(path, loaded)
    # Resumed from a file of before it was made, a link is nobody's, and Lightning makes one of the next version.
    found += [pair for link in saver.there("linked/last*.ckpt")[-1:] for pair in saver.linked(link, loaded)]
    return found


if __name__ == "__main__":
    saver.main(run)
