# SPDX-License-Identifier: Apache-2.0
"""Hydra: settings from a file, and a folder for the output that is called after date and time, into which it goes."""
import logging
import os

import hydra
import torch

log = logging.getLogger(__name__)


@hydra.main(version_base='1.1', config_path='.', config_name='dated')
def main(settings):
    torch.manual_seed(settings.seed)
    model = torch.nn.Linear(8, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    for step in range(settings.steps):
        x = torch.randn(64, 8)
        loss = (model(x.cuda()) - x[:, 4:].cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            log.info('step %d loss %.6f', step, loss.item())
        print(f'step {step} loss {loss.item():.6f}', flush=True)
    torch.save(model.state_dict(), 'model.pt')
    print('here', len(os.listdir('.')))


main()
