# SPDX-License-Identifier: Apache-2.0
"""A search for good settings by Optuna with its study in a SQLite file: each trial trains a model of its own on the device."""
import argparse

import optuna
import torch

p = argparse.ArgumentParser()
p.add_argument('--trials', type=int, default=10)
a = p.parse_args()
optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(trial):
    torch.manual_seed(10)
    width = trial.suggest_int('width', 8, 64, log=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.suggest_float('lr', 1e-3, 1e-1, log=True))
    for step in range(30):
        x = torch.randn(64, 8)
        loss = (model(x.cuda()) - x.prod(1, keepdim=True).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            trial.report(loss.item(), step)
            print(f'trial {trial.number} step {step} loss {loss.item():.6f}', flush=True)
            if trial.should_prune():
                raise optuna.TrialPruned()
    return loss.item()


study = optuna.create_study(storage='sqlite:///study.db', study_name='s', load_if_exists=True, sampler=optuna.samplers.TPESampler(seed=10),
                            pruner=optuna.pruners.MedianPruner(n_startup_trials=4))
study.optimize(objective, n_trials=a.trials)
print('best', study.best_trial.number, f'{study.best_value:.6f}', len(study.trials))
