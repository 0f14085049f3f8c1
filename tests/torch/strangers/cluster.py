# SPDX-License-Identifier: Apache-2.0
"""Ray Train on one node: a driver, the cluster's own programs, and a worker that trains. What the worker prints comes by the driver."""
import os

# As its documentation asks for, where workers are given the device by who starts them; and its output as the worker's lines.
os.environ.update(RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO='0', RAY_USAGE_STATS_ENABLED='0', RAY_DEDUP_LOGS='0', RAY_COLOR_PREFIX='0')

import ray  # noqa: E402
from ray import train  # noqa: E402
from ray.train import RunConfig, ScalingConfig  # noqa: E402
from ray.train.torch import TorchTrainer  # noqa: E402


def loop(config):
    import torch
    torch.manual_seed(4)
    model = torch.nn.Linear(8, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with open(os.path.join(config['out'], 'losses.txt'), 'w') as f:
        for step in range(400):
            x = torch.randn(64, 8)
            loss = (model(x.cuda()) - x[:, ::2].cuda()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f'step {step} loss {loss.item():.6f}', flush=True)
            print(f'step {step} loss {loss.item():.6f}', file=f, flush=True)
            if step % 100 == 99:
                train.report({'loss': loss.item()})
    torch.save(model.state_dict(), os.path.join(config['out'], 'model.pt'))


ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, object_store_memory=100 << 20, _temp_dir=os.environ.get('TMPDIR'))
TorchTrainer(loop, train_loop_config={'out': os.getcwd()}, scaling_config=ScalingConfig(num_workers=1, use_gpu=False),
             run_config=RunConfig(storage_path=os.path.join(os.getcwd(), 'results'), name='run')).fit()
