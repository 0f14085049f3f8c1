# SPDX-License-Identifier: Apache-2.0
"""A run that a tracker notes offline: comet, neptune or aim."""
import argparse
import os

os.environ.update(HOME=os.getcwd(), COMET_OFFLINE_DIRECTORY='comet', COMET_LOGGING_CONSOLE='error', AIM_UI_TELEMETRY_ENABLED='0')
import torch

p = argparse.ArgumentParser()
p.add_argument('tracker')
p.add_argument('--steps', type=int, default=250)
a = p.parse_args()
torch.manual_seed(25)
if a.tracker == 'comet':
    import comet_ml
    run = comet_ml.OfflineExperiment(project_name='p', auto_metric_logging=False, auto_output_logging=False, log_env_details=False, log_code=False, parse_args=False)
    log, end = lambda step, loss: run.log_metric('loss', loss, step=step), run.end
elif a.tracker == 'neptune':
    import neptune
    run = neptune.init_run(mode='offline', project='w/p', capture_stdout=False, capture_stderr=False, capture_hardware_metrics=False, capture_traceback=False,
                           source_files=[], git_ref=False)
    log, end = lambda step, loss: run['train/loss'].append(loss, step=step), run.stop
else:
    import aim
    run = aim.Run(repo='.', experiment='e', system_tracking_interval=None, capture_terminal_logs=False, log_system_params=False)
    log, end = lambda step, loss: run.track(loss, name='loss', step=step), run.close
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(a.steps):
    x = torch.randn(64, 8)
    loss = (model(x.cuda()) - x[:, ::2].cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log(step, round(loss.item(), 6))
    print(f'step {step} loss {loss.item():.6f}', flush=True)
end()
