# SPDX-License-Identifier: Apache-2.0
"""Runs that MLflow tracks in a folder of files, or, with --base, in a database of SQLite."""
import argparse
import os

os.environ['MLFLOW_ALLOW_FILE_STORE'] = 'true'
import mlflow
import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=250)
p.add_argument('--base', action='store_true')
a = p.parse_args()
torch.manual_seed(20)
mlflow.set_tracking_uri('sqlite:///' + os.path.abspath('runs.db') if a.base else 'file:' + os.path.abspath('mlruns'))
mlflow.set_experiment('e')
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with mlflow.start_run():
    mlflow.log_params({'lr': 1e-2, 'steps': a.steps})
    for step in range(a.steps):
        x = torch.randn(64, 8)
        loss = (model(x.cuda()) - x[:, ::2].cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            mlflow.log_metric('loss', round(loss.item(), 6), step=step)
        print(f'step {step} loss {loss.item():.6f}', flush=True)
    torch.save(model.state_dict(), 'model.pt')
    mlflow.log_artifact('model.pt')
