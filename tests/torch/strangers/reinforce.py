# SPDX-License-Identifier: Apache-2.0
"""REINFORCE in four environments at once, all in this process or each in one of its own: what the policy on the device thinks is
read back, actions are drawn and played on the CPU."""
import argparse

import gymnasium as gym
import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=60)
p.add_argument('--vectorization', default='sync', choices=('sync', 'async'))
a = p.parse_args()
torch.manual_seed(9)
envs = gym.make_vec('CartPole-v1', num_envs=4, vectorization_mode=a.vectorization)
seen, _ = envs.reset(seed=9)
policy = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).cuda()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for step in range(a.steps):
    logs, rewards = [], []
    for _ in range(12):
        logit = policy(torch.as_tensor(seen).cuda())[:, 0]
        action = (logit.detach().cpu() > torch.randn(4)).long()
        logs.append(torch.nn.functional.logsigmoid(logit * (action * 2 - 1).cuda()))
        seen, reward, ended, cut, _ = envs.step(action.numpy())
        rewards.append(torch.as_tensor(reward - 5.0 * ended, dtype=torch.float32))
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = -(torch.stack(logs) * returns.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    print(f'step {step} loss {loss.item():.6f} return {torch.stack(rewards).sum():.1f}', flush=True)
envs.close()
