#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record the launch sequences of training jobs: one file a job, with the truth about its iterations in comments.

  simgpu-run python tests/torch/sequences.py FOLDER [JOB...]

Each job is plain PyTorch in a process of its own. The names and grids of PyTorch's kernels are real; values are not, so
that what depends on them (a line search, a scaler) takes some course, not the true one.
"""
import contextlib
import ctypes
import gzip
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

JOBS = {}
STEPS = int(os.environ.get('SEQUENCE_STEPS', 16))


def job(f):
    JOBS[f.__name__] = f
    return f


def mark(text):
    ctypes.CDLL('libcuda.so.1').simgpu_mark(text.encode())


@contextlib.contextmanager
def window(what):
    mark(what + ' begin')
    yield
    mark(what + ' end')


def steps(count=STEPS):
    """Iterations whose end the job marks itself by ended()."""
    for i in range(count):
        mark('step %d begin' % i)
        yield i
        mark('step %d end' % i)


def ended(i):
    mark('iteration-end %d' % i)


def apply(i, *optimizers):
    with window('optimizer'):
        for o in optimizers:
            o.step()
    ended(i)


def mlp(depth=4, width=96):
    sizes = [40] + [width + 32 * k for k in range(depth - 1)] + [10]
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.GELU()]
    return nn.Sequential(*layers[:-1]).cuda()


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (s.view(b, t, self.heads, c // self.heads).transpose(1, 2) for s in self.qkv(self.before(x)).split(c, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    def __init__(self, layers=2, width=64, vocabulary=64, length=32, recompute=None):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.recompute = recompute

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x) if self.recompute is None else checkpoint(block, x, use_reentrant=self.recompute)
        return self.head(self.norm(x))


def batch(n=32):
    return torch.randn(n, 40).cuda(), torch.randint(0, 10, (n,)).cuda()


def tokens(n=4, length=32):
    return torch.randint(0, 64, (n, length)).cuda(), torch.randint(0, 64, (n, length)).cuda()


def text_loss(model, pair):
    return F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten())


def classify(model, pair):
    return F.cross_entropy(model(pair[0]), pair[1])


def train(model, make, loss=classify, data=batch, count=STEPS, read=True, none=True, after=None, before=None):
    """The plain loop: clear, forward, backward, step."""
    optimizer = make(model.parameters())
    for i in steps(count):
        pair = data()
        optimizer.zero_grad(set_to_none=none)
        value = loss(model, pair)
        value.backward()
        if before:
            before(model)
        apply(i, optimizer)
        if after:
            after(model, i)
        if read:
            value.item()


def optimizer_job(name, make, **settings):
    JOBS[name] = lambda: train(mlp(), make, **settings)


optim = torch.optim
for kind in ('Adadelta', 'Adamax', 'NAdam', 'RAdam', 'Rprop', 'ASGD', 'Adafactor', 'Adagrad'):
    optimizer_job(kind.lower() + '_foreach', lambda p, k=kind: getattr(optim, k)(p, foreach=True))
    optimizer_job(kind.lower() + '_loop', lambda p, k=kind: getattr(optim, k)(p, foreach=False))
optimizer_job('adam_loop', lambda p: optim.Adam(p, foreach=False))
optimizer_job('adam_amsgrad', lambda p: optim.Adam(p, amsgrad=True, weight_decay=0.1))
optimizer_job('adam_amsgrad_fused', lambda p: optim.Adam(p, amsgrad=True, fused=True))
optimizer_job('sgd_nesterov', lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1))
optimizer_job('sgd_loop', lambda p: optim.SGD(p, 0.1, foreach=False))
optimizer_job('sgd_momentum_loop', lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, foreach=False))
optimizer_job('sgd_momentum_fused', lambda p: optim.SGD(p, 0.1, momentum=0.9, fused=True))
optimizer_job('rmsprop_full', lambda p: optim.RMSprop(p, centered=True, momentum=0.9, weight_decay=0.1))
optimizer_job('rmsprop_loop', lambda p: optim.RMSprop(p, foreach=False))
optimizer_job('adagrad_fused', lambda p: optim.Adagrad(p, fused=True))
optimizer_job('adamw_capturable_loop', lambda p: optim.AdamW(p, capturable=True, foreach=False))
optimizer_job('adamw_tensor_lr', lambda p: optim.AdamW(p, lr=torch.tensor(1e-3), fused=True))
optimizer_job('adamw_fill', lambda p: optim.AdamW(p), none=False)
optimizer_job('adamw_loop_fill', lambda p: optim.AdamW(p, foreach=False), none=False)
optimizer_job('adamw_quiet', lambda p: optim.AdamW(p, foreach=False), read=False)
optimizer_job('sgd_quiet', lambda p: optim.SGD(p, 0.1, foreach=False), read=False)


@job
def muon():
    model = mlp()
    optimizer = optim.Muon([p for p in model.parameters() if p.dim() == 2])
    train(model, lambda p: optimizer)


@job
def muon_adamw():
    model = GPT().cuda()
    matrices = [p for p in model.blocks.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
    first, second = optim.Muon(matrices), optim.AdamW(rest, fused=True)
    for i in steps():
        text_loss(model, tokens()).backward()
        apply(i, first, second)
        first.zero_grad()
        second.zero_grad()


@job
def adamw_muon():
    model = GPT().cuda()
    matrices = [p for p in model.blocks.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
    first, second = optim.Muon(matrices), optim.AdamW(rest)
    for i in steps():
        text_loss(model, tokens()).backward()
        apply(i, second, first)
        first.zero_grad()
        second.zero_grad()


@job
def sparse_adam():
    table, head = nn.Embedding(1000, 32, sparse=True).cuda(), mlp()
    first, second = optim.SparseAdam(table.parameters()), optim.Adam(head.parameters())
    mix = nn.Linear(32, 40).cuda()
    for i in steps():
        x, y = torch.randint(0, 1000, (32,)).cuda(), torch.randint(0, 10, (32,)).cuda()
        first.zero_grad()
        second.zero_grad()
        classify(head, (mix(table(x)), y)).backward()
        apply(i, first, second)


def accumulate(counts, make, clear=True):
    model = GPT().cuda()
    optimizer = make(model.parameters())
    for i, n in zip(steps(len(counts)), counts):
        for _ in range(n):
            (text_loss(model, tokens()) / n).backward()
        apply(i, optimizer)
        optimizer.zero_grad(set_to_none=clear)


@job
def accumulate_varying():
    accumulate([3, 1, 2, 4, 2, 2, 1, 5, 3, 3, 1, 2, 4, 4, 2, 1, 3, 2], lambda p: optim.AdamW(p, fused=True))


@job
def accumulate_varying_loop():
    accumulate([2, 2, 3, 1, 4, 2, 1, 1, 5, 3, 3, 1, 2, 4, 4, 2, 1, 3], lambda p: optim.AdamW(p, foreach=False), False)


@job
def accumulate_growing():
    accumulate([1] * 5 + [2] * 5 + [4] * 5, lambda p: optim.SGD(p, 0.1, momentum=0.9))


@job
def accumulate_losses_read():
    model = mlp()
    optimizer = optim.AdamW(model.parameters())
    for i in steps():
        total = 0
        for _ in range(4):
            x, y = batch()
            out = model(x)
            value = F.cross_entropy(out, y) / 4
            value.backward()
            total += value.item() + (out.argmax(1) == y).float().mean().item()
        apply(i, optimizer)
        optimizer.zero_grad()


@job
def accumulate_ddp_style():
    """Gradients copied into one flat buffer and back, as reducers do."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters())
    flat = torch.zeros(sum(p.numel() for p in model.parameters())).cuda()
    for i in steps():
        for _ in range(2):
            classify(model, batch()).backward()
        parts = [flat[a:a + p.numel()].view_as(p) for a, p in zip(
            torch.tensor([0] + [p.numel() for p in model.parameters()]).cumsum(0).tolist(), model.parameters())]
        torch._foreach_copy_(parts, [p.grad for p in model.parameters()])
        flat.div_(2)
        torch._foreach_copy_([p.grad for p in model.parameters()], parts)
        apply(i, optimizer)
        optimizer.zero_grad()


def in_hooks(make):
    model = mlp()
    own = {p: make([p]) for p in model.parameters()}
    for p in model.parameters():
        def hook(p):
            own[p].step()
            own[p].zero_grad()
        p.register_post_accumulate_grad_hook(hook)
    for i in steps():
        with window('optimizer in hooks'):
            value = classify(model, batch())
            value.backward()
        ended(i)
        value.item()


JOBS['hooks_sgd'] = lambda: in_hooks(lambda p: optim.SGD(p, 0.1))
JOBS['hooks_adamw_fused'] = lambda: in_hooks(lambda p: optim.AdamW(p, fused=True))
JOBS['hooks_adam_loop'] = lambda: in_hooks(lambda p: optim.Adam(p, foreach=False))


def scaled(make, skip):
    """A gradient scaler whose flag is set by hand: values here are not gradients."""
    model = GPT().cuda()
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler(growth_interval=4)
    for i in steps(24):
        optimizer.zero_grad()
        pair = tokens()
        with torch.autocast('cuda', torch.float16):
            value = text_loss(model, pair)
        scaler.scale(value).backward()
        with window('optimizer'):
            scaler.unscale_(optimizer)
            state = scaler._per_optimizer_states[id(optimizer)]
            for flag in state['found_inf_per_device'].values():
                flag.fill_(1.0 if i in skip else 0.0)
            scaler.step(optimizer)
        ended(i)
        scaler.update()
        value.item()


JOBS['scaler_foreach'] = lambda: scaled(lambda p: optim.AdamW(p), (0, 1, 7, 15))
JOBS['scaler_loop'] = lambda: scaled(lambda p: optim.SGD(p, 0.1, momentum=0.9, foreach=False), (5, 6, 12))
JOBS['scaler_fused'] = lambda: scaled(lambda p: optim.AdamW(p, fused=True), (0, 8))


def clipped(**settings):
    return lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0, **settings)


JOBS['clip_norm_loop'] = lambda: train(mlp(), lambda p: optim.AdamW(p, foreach=False), before=clipped(foreach=False))
JOBS['clip_norm_foreach_sgd'] = lambda: train(mlp(), lambda p: optim.SGD(p, 0.1), before=clipped(foreach=True))
JOBS['clip_value'] = lambda: train(mlp(), lambda p: optim.AdamW(p),
                                   before=lambda m: nn.utils.clip_grad_value_(m.parameters(), 0.5))


@job
def clip_and_log():
    """Norms of gradients and weights are logged every fourth step."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), fused=True)
    for i in steps():
        optimizer.zero_grad()
        value = classify(model, batch())
        value.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        apply(i, optimizer)
        if i % 4 == 3:
            print(norm.item(), value.item(), [torch.stack(torch._foreach_norm(list(model.parameters()))).max().item()])


def averaged(foreach, every):
    model = mlp()
    average = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.99)) if foreach else \
        optim.swa_utils.AveragedModel(model, avg_fn=optim.swa_utils.get_ema_avg_fn(0.99))

    def after(m, i):
        if i % every == every - 1:
            average.update_parameters(m)
    train(model, lambda p: optim.AdamW(p, foreach=foreach), after=after, count=20)


JOBS['ema_foreach'] = lambda: averaged(True, 1)
JOBS['ema_loop'] = lambda: averaged(False, 1)
JOBS['ema_foreach_every2'] = lambda: averaged(True, 2)
JOBS['ema_loop_every3'] = lambda: averaged(False, 3)


@job
def ema_by_hand():
    """DQN's soft update: per tensor mul_ and add_."""
    model, target = mlp(), mlp()

    def after(m, i):
        with torch.no_grad():
            for p, q in zip(m.parameters(), target.parameters()):
                q.mul_(0.99).add_(p, alpha=0.01)
    train(model, lambda p: optim.Adam(p), after=after)


@job
def metrics_after():
    model = mlp()
    optimizer = optim.AdamW(model.parameters())
    right = torch.zeros(()).cuda()
    for i in steps(24):
        x, y = batch()
        out = model(x)
        value = F.cross_entropy(out, y)
        optimizer.zero_grad()
        value.backward()
        apply(i, optimizer)
        right += (out.argmax(1) == y).sum()
        if i % 5 == 4:
            print(right.item())
            right.zero_()


@job
def clear_after():
    model = mlp()
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for i in steps():
        classify(model, batch()).backward()
        apply(i, optimizer)
        with window('zero_grad'):
            optimizer.zero_grad(set_to_none=False)


@job
def clear_after_large():
    """So many parameters that optimizer and clearing are several launches each, and batches that are drawn on the device."""
    parameters = [nn.Parameter(torch.zeros(n, device='cuda')) for n in (60 << 20, 24 << 20)]
    optimizer = optim.Adam(parameters, fused=True)
    for i in steps(8):
        for w in parameters:
            (w - torch.randn(1, device='cuda')).square().mean().backward()
        apply(i, optimizer)
        with window('zero_grad'):
            optimizer.zero_grad(set_to_none=False)


@job
def evaluate_often():
    """Evaluation every fourth step, of changing length, with the best model saved."""
    model = GPT().cuda()
    optimizer = optim.AdamW(model.parameters(), fused=True)
    for i in steps(24):
        optimizer.zero_grad()
        value = text_loss(model, tokens())
        value.backward()
        apply(i, optimizer)
        if i % 4 == 3:
            model.eval()
            with torch.no_grad():
                for _ in range(2 + i % 3):
                    text_loss(model, tokens()).item()
            saved = {k: v.cpu() for k, v in model.state_dict().items()}
            model.train()
            del saved


@job
def generate_between():
    """Text is generated every eighth step, one token a forward pass."""
    model = GPT().cuda()
    optimizer = optim.AdamW(model.parameters())
    for i in steps(24):
        optimizer.zero_grad()
        text_loss(model, tokens()).backward()
        apply(i, optimizer)
        if i % 8 == 7:
            with torch.no_grad():
                text = torch.zeros(1, 1, dtype=torch.long).cuda()
                for _ in range(12):
                    text = torch.cat([text, model(text)[:, -1].argmax(-1, keepdim=True)], 1)
                text.tolist()


@job
def lbfgs_search():
    model = mlp()
    optimizer = optim.LBFGS(model.parameters(), max_iter=4, line_search_fn='strong_wolfe')
    for i in steps(12):
        pair = batch()

        def closure():
            optimizer.zero_grad()
            value = classify(model, pair)
            value.backward()
            return value
        with window('optimizer with closure'):
            optimizer.step(closure)
        ended(i)


@job
def closure_adam():
    """Lightning's way: the step calls forward and backward."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters())
    for i in steps():
        pair = batch()

        def closure():
            optimizer.zero_grad()
            value = classify(model, pair)
            value.backward()
            return value
        with window('optimizer with closure'):
            optimizer.step(closure)
        ended(i)


def gan(critics, make, clip=False):
    real, fake = mlp(), nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 40)).cuda()
    first, second = make(real.parameters()), make(fake.parameters())
    for i in steps(18):
        for _ in range(critics):
            x, _y = batch()
            first.zero_grad()
            loss = real(fake(torch.randn(32, 16, device='cuda')).detach()).mean() - real(x).mean()
            loss.backward()
            with window('optimizer'):
                first.step()
            if clip:
                with torch.no_grad():
                    for p in real.parameters():
                        p.clamp_(-0.01, 0.01)
        second.zero_grad()
        loss = -real(fake(torch.randn(32, 16, device='cuda'))).mean()
        loss.backward()
        apply(i, second)


JOBS['gan_fused'] = lambda: gan(1, lambda p: optim.Adam(p, fused=True))
JOBS['gan_loop'] = lambda: gan(1, lambda p: optim.RMSprop(p, foreach=False))
JOBS['critics'] = lambda: gan(3, lambda p: optim.RMSprop(p))
JOBS['wgan'] = lambda: gan(3, lambda p: optim.RMSprop(p), True)


@job
def gan_equal():
    """Two networks of one shape, trained in turn."""
    a, b = mlp(), mlp()
    first, second = optim.Adam(a.parameters()), optim.Adam(b.parameters())
    for i in steps():
        x, y = batch()
        first.zero_grad()
        classify(a, (x, y)).backward()
        with window('optimizer'):
            first.step()
        second.zero_grad()
        (classify(b, (x, y)) + a(x).detach().pow(2).mean()).backward()
        apply(i, second)


@job
def actor_critic():
    """SAC-like: three optimizers, soft targets, a batch from a replay memory on the host."""
    actor, critic, target = mlp(), mlp(), mlp()
    scale = torch.zeros(1, device='cuda', requires_grad=True)
    optimizers = [optim.Adam(critic.parameters()), optim.Adam(actor.parameters()), optim.Adam([scale])]
    for i in steps():
        x, y = batch()
        with torch.no_grad():
            goal = target(x).logsumexp(1)
        optimizers[0].zero_grad()
        F.mse_loss(critic(x).gather(1, y[:, None])[:, 0], goal).backward()
        with window('optimizer'):
            optimizers[0].step()
        optimizers[1].zero_grad()
        (actor(x).softmax(1) * (actor(x).log_softmax(1) * scale.exp().detach() - critic(x).detach())).sum(1).mean().backward()
        with window('optimizer'):
            optimizers[1].step()
        optimizers[2].zero_grad()
        (scale * actor(x).detach().mean()).sum().backward()
        apply(i, optimizers[2])
        with torch.no_grad():
            for p, q in zip(critic.parameters(), target.parameters()):
                q.lerp_(p, 0.005)


@job
def policy_delayed():
    """TD3: the second optimizer steps every other time only."""
    actor, critic = mlp(), nn.Sequential(nn.Linear(40, 160), nn.ReLU(), nn.Linear(160, 1)).cuda()
    first, second = optim.Adam(critic.parameters(), fused=True), optim.Adam(actor.parameters(), fused=True)
    for i in steps(24):
        x, _y = batch()
        first.zero_grad()
        critic(x).pow(2).mean().backward()
        with window('optimizer'):
            first.step()
        if i % 2:
            second.zero_grad()
            actor(x).mean().backward()
            with window('optimizer'):
                second.step()
        ended(i)


@job
def reinforce():
    """PPO: a rollout of forward passes, then epochs of minibatches; every minibatch is an iteration."""
    model = mlp()
    optimizer = optim.Adam(model.parameters())
    count = iter(steps(32))
    for _ in range(4):
        with torch.no_grad():
            for _ in range(6):
                model(torch.randn(8, 40).cuda()).argmax(1).tolist()
        data = torch.randn(256, 40).cuda(), torch.randint(0, 10, (256,)).cuda()
        for _ in range(2):
            order = torch.randperm(256).cuda()
            for k in range(4):
                i = next(count)
                pick = order[64 * k:64 * k + 64]
                optimizer.zero_grad()
                classify(model, (data[0][pick], data[1][pick])).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                apply(i, optimizer)
    for _ in count:
        pass


@job
def sharpness_aware():
    """SAM: weights are moved along the gradient, a second pass, moved back, stepped."""
    model = mlp()
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for i in steps():
        pair = batch()
        classify(model, pair).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moved = [p.grad * (0.05 / (norm + 1e-12)) for p in model.parameters()]
            for p, e in zip(model.parameters(), moved):
                p.add_(e)
        optimizer.zero_grad()
        classify(model, pair).backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), moved):
                p.sub_(e)
        apply(i, optimizer)
        optimizer.zero_grad()


@job
def gradient_penalty():
    model = mlp()
    optimizer = optim.AdamW(model.parameters())
    for i in steps():
        x, y = batch()
        x.requires_grad_()
        optimizer.zero_grad()
        value = classify(model, (x, y))
        g, = torch.autograd.grad(value, x, create_graph=True)
        (value + g.pow(2).sum()).backward()
        apply(i, optimizer)


def recompute(reentrant):
    model = GPT(recompute=reentrant).cuda()
    train(model, lambda p: optim.AdamW(p), loss=text_loss, data=tokens)


JOBS['recompute'] = lambda: recompute(False)
JOBS['recompute_reentrant'] = lambda: recompute(True)


@job
def graph_forward_backward():
    """Forward and backward in a graph, the optimizer outside."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), fused=True)
    x, y = batch()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            classify(model, (x, y)).backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = classify(model, (x, y))
        value.backward()
    for i in steps():
        x.copy_(torch.randn(32, 40))
        y.copy_(torch.randint(0, 10, (32,)))
        graph.replay()
        apply(i, optimizer)
        value.item()


@job
def graphed_callables():
    model = mlp()
    x, y = batch()
    body = torch.cuda.make_graphed_callables(model, (x.clone(),))
    train(body, lambda p: optim.AdamW(p))


@job
def graph_of_optimizer():
    """The optimizer in a graph, forward and backward outside."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), capturable=True)
    for i in steps(6):
        optimizer.zero_grad(set_to_none=False)
        classify(model, batch()).backward()
        apply(i, optimizer)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=False)
    with torch.cuda.graph(graph):
        optimizer.step()
    for i in range(6, 20):
        mark('step %d begin' % i)
        optimizer.zero_grad(set_to_none=False)
        classify(model, batch()).backward()
        with window('optimizer'):
            graph.replay()
        ended(i)
        mark('step %d end' % i)


@job
def graph_two():
    """Two optimizers, each step of each in its own graph: two graphs an iteration."""
    models = [mlp(), mlp(3)]
    optimizers = [optim.Adam(m.parameters(), capturable=True) for m in models]
    x, y = batch()
    graphs = []
    for m, o in zip(models, optimizers):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(2):
                o.zero_grad()
                classify(m, (x, y)).backward()
                o.step()
                ended(-1)
        torch.cuda.current_stream().wait_stream(side)
        o.zero_grad()
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            classify(m, (x, y)).backward()
            o.step()
    for i in steps():
        x.copy_(torch.randn(32, 40))
        y.copy_(torch.randint(0, 10, (32,)))
        with window('optimizer'):
            for g in graphs:
                g.replay()
        ended(i)


@job
def shape_changes():
    """The batch grows half way, lengths vary before."""
    model = GPT().cuda()
    optimizer = optim.AdamW(model.parameters(), fused=True)
    for i in steps(24):
        optimizer.zero_grad()
        value = text_loss(model, tokens(4, 16 + 4 * (i % 3)) if i < 12 else tokens(16))
        value.backward()
        apply(i, optimizer)
        value.item()


@job
def freezes():
    """Parameters are frozen and a group is added half way; the optimizer is made anew later."""
    model, more = mlp(), nn.Linear(10, 10).cuda()
    optimizer = optim.AdamW(model.parameters())
    for i in steps(30):
        if i == 8:
            model[0].requires_grad_(False)
        if i == 16:
            optimizer.add_param_group({'params': more.parameters()})
        if i == 23:
            optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
        x, y = batch()
        optimizer.zero_grad()
        out = model(x)
        value = F.cross_entropy(more(out) if i >= 16 else out, y)
        value.backward()
        apply(i, optimizer)
        value.item()


@job
def groups():
    """Four parameter groups, as for layer-wise rates."""
    model = GPT().cuda()
    p = list(model.parameters())
    optimizer = optim.AdamW([{'params': p[k::4], 'lr': 1e-3 * (k + 1)} for k in range(4)])
    for i in steps():
        optimizer.zero_grad()
        value = text_loss(model, tokens())
        value.backward()
        apply(i, optimizer)
        value.item()


@job
def mixed_types():
    """bf16 and float32 parameters in one optimizer."""
    model = mlp()
    model[0].to(torch.bfloat16)
    optimizer = optim.AdamW(model.parameters())
    for i in steps():
        x, y = batch()
        optimizer.zero_grad()
        h = model[0](x.to(torch.bfloat16)).float()
        F.cross_entropy(model[1:](h), y).backward()
        apply(i, optimizer)


@job
def master_weights():
    """Apex's way by hand: half parameters, float32 masters, copies both ways."""
    model = mlp().half()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = optim.Adam(masters)
    for i in steps():
        x, y = batch()
        model.zero_grad()
        value = F.cross_entropy(model(x.half()).float(), y)
        (value * 128).backward()
        for m, p in zip(masters, model.parameters()):
            m.grad = p.grad.float().div_(128)
        with window('optimizer'):
            optimizer.step()
            with torch.no_grad():
                for m, p in zip(masters, model.parameters()):
                    p.copy_(m)
        ended(i)
        value.item()


@job
def prefetch():
    """The next batch is copied on a stream of its own during the step."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), fused=True)
    side = torch.cuda.Stream()

    def load():
        with torch.cuda.stream(side):
            return torch.randn(32, 40).pin_memory().cuda(non_blocking=True), torch.randint(0, 10, (32,)).pin_memory().cuda(non_blocking=True)
    pair = load()
    for i in steps():
        torch.cuda.current_stream().wait_stream(side)
        now, pair = pair, load()
        optimizer.zero_grad()
        classify(model, now).backward()
        apply(i, optimizer)


@job
def own_sgd():
    """No optimizer at all: the script moves its parameters itself."""
    model = mlp()
    for i in steps():
        value = classify(model, batch())
        value.backward()
        with window('optimizer'):
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
        ended(i)
        value.item()


@job
def scheduler_tensor():
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), fused=True)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    for i in steps():
        optimizer.zero_grad()
        value = classify(model, batch())
        value.backward()
        apply(i, optimizer)
        scheduler.step()
        value.item()


@job
def decay_by_hand():
    """Weights are decayed by the script behind the step."""
    model = mlp()
    optimizer = optim.Adam(model.parameters(), fused=True)
    for i in steps():
        optimizer.zero_grad()
        classify(model, batch()).backward()
        with window('optimizer'):
            optimizer.step()
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(0.999)
        ended(i)


@job
def gan_average():
    """Weights of the generator are averaged by hand."""
    def pair():
        return nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 40)).cuda()
    real, fake, average = mlp(), pair(), pair()
    first, second = optim.Adam(real.parameters()), optim.Adam(fake.parameters())
    for i in steps():
        x, _y = batch()
        first.zero_grad()
        (real(fake(torch.randn(32, 16, device='cuda')).detach()).mean() - real(x).mean()).backward()
        with window('optimizer'):
            first.step()
        second.zero_grad()
        (-real(fake(torch.randn(32, 16, device='cuda'))).mean()).backward()
        apply(i, second)
        with torch.no_grad():
            for p, q in zip(fake.parameters(), average.parameters()):
                q.mul_(0.9).add_(p, alpha=0.1)


@job
def scalers_two():
    models = [GPT().cuda(), GPT(1).cuda()]
    optimizers = [optim.AdamW(m.parameters()) for m in models]
    scalers = [torch.amp.GradScaler() for m in models]
    for i in steps(20):
        pair = tokens()
        with torch.autocast('cuda', torch.float16):
            values = [text_loss(m, pair) for m in models]
        for scaler, value in zip(scalers, values):
            scaler.scale(value).backward()
        with window('optimizer'):
            for scaler, optimizer in zip(scalers, optimizers):
                scaler.unscale_(optimizer)
                for flag in scaler._per_optimizer_states[id(optimizer)]['found_inf_per_device'].values():
                    flag.fill_(0.0)
                scaler.step(optimizer)
        ended(i)
        for scaler, optimizer in zip(scalers, optimizers):
            scaler.update()
            optimizer.zero_grad()


@job
def resident():
    """One batch that lies on the device, nothing read."""
    pair = batch()
    train(mlp(), lambda p: optim.AdamW(p), data=lambda: pair, read=False)


@job
def dqn():
    """The environment asks for actions, the target is set anew every seventh step."""
    model, target = mlp(), mlp()
    optimizer = optim.Adam(model.parameters())
    for i in steps(24):
        with torch.no_grad():
            for _ in range(2):
                model(torch.randn(1, 40).cuda()).argmax(1).item()
        x, y = batch()
        with torch.no_grad():
            goal = target(x).amax(1)
        optimizer.zero_grad()
        F.smooth_l1_loss(model(x).gather(1, y[:, None])[:, 0], goal).backward()
        apply(i, optimizer)
        if i % 7 == 6:
            target.load_state_dict(model.state_dict())


@job
def inner_steps():
    """MAML: gradient steps inside the forward pass."""
    model = nn.Linear(40, 10).cuda()
    optimizer = optim.Adam(model.parameters())
    for i in steps():
        optimizer.zero_grad()
        total = 0
        for _ in range(3):
            x, y = batch()
            g = torch.autograd.grad(classify(model, (x, y)), list(model.parameters()), create_graph=True)
            total = total + F.cross_entropy(F.linear(x, model.weight - 0.1 * g[0], model.bias - 0.1 * g[1]), y)
        total.backward()
        apply(i, optimizer)


# --- what is no training: nothing may be said ---

@job
def none_inference():
    model = GPT(4).cuda().eval()
    with torch.no_grad():
        for i in range(20):
            model(tokens()[0]).argmax(-1).cpu()


@job
def none_generation():
    model = GPT().cuda().eval()
    with torch.no_grad():
        for _ in range(3):
            text = torch.zeros(2, 1, dtype=torch.long).cuda()
            for _ in range(16):
                text = torch.cat([text, model(text)[:, -1].softmax(-1).argmax(-1, keepdim=True)], 1)
            text.tolist()


@job
def none_saliency():
    """Backward passes to the input; nothing is updated."""
    model = mlp()
    for i in range(20):
        x, y = batch()
        x.requires_grad_()
        g, = torch.autograd.grad(classify(model, (x, y)), x)
        (g.abs() / g.abs().amax()).mean(0).cpu()


@job
def none_norms():
    """Gradients are accumulated and measured, never applied."""
    model = mlp()
    for i in range(20):
        classify(model, batch()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        model.zero_grad()


@job
def none_merging():
    """Models are averaged by foreach arithmetic."""
    a, b = GPT().cuda(), GPT().cuda()
    with torch.no_grad():
        for i in range(12):
            torch._foreach_lerp_(list(a.parameters()), list(b.parameters()), 0.1)
            torch._foreach_add_(list(b.parameters()), list(a.parameters()), alpha=0.5)
            text_loss(a, tokens()).item()


@job
def none_kmeans():
    x = torch.randn(2048, 16).cuda()
    centres = x[:32].clone()
    for i in range(20):
        which = torch.cdist(x, centres).argmin(1)
        total = torch.zeros_like(centres).index_add_(0, which, x)
        count = torch.bincount(which, minlength=32).clamp(min=1)
        centres.lerp_(total / count[:, None], 0.5)
        centres.addcdiv_(total, count[:, None].float().expand_as(total), value=0.1)
        centres.norm().item()


@job
def none_filter():
    """A Kalman-like filter: addcmul and sqrt in a loop."""
    state, spread = torch.zeros(512).cuda(), torch.ones(512).cuda()
    for i in range(30):
        seen = torch.randn(512).cuda()
        gain = spread / (spread + 0.5)
        state.addcmul_(gain, seen - state)
        spread.mul_(1 - gain).add_(0.01).sqrt_()
        state.mean().item()


@job
def none_attack():
    """An input is moved along its gradient; the model stays as it is."""
    model = mlp()
    for i in range(12):
        x, y = batch()
        moved = torch.zeros_like(x, requires_grad=True)
        for _ in range(5):
            g, = torch.autograd.grad(classify(model, (x + moved, y)), moved)
            moved = (moved + 0.1 * g.sign()).clamp(-0.3, 0.3).detach().requires_grad_()
        moved.cpu()


@job
def none_normalize():
    """Batch statistics are estimated anew with forward passes in training mode."""
    model = nn.Sequential(nn.Linear(40, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 10)).cuda().train()
    with torch.no_grad():
        for i in range(20):
            model(batch()[0]).mean().item()


def record(name, folder):
    raw = os.path.join(folder, name + '.raw')
    pid = os.fork()
    if pid == 0:
        os.environ['SIMGPU_RECORD'] = raw
        status = 1
        try:
            torch.manual_seed(1)
            torch.cuda.init()
            torch.zeros(1)
            JOBS[name]()
            mark('step after the last begin')  # its first operation tells where the last one ended
            torch.randn(32, 40).cuda()
            torch.cuda.synchronize()
            status = 0
        except Exception as e:  # pylint: disable=broad-except
            print(name, repr(e), file=sys.stderr)
        os._exit(finish(raw, name, folder) if status == 0 else status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def finish(raw, name, folder):
    ctypes.CDLL(None).fflush(None)
    with open(raw, encoding='utf-8') as f:
        lines = f.read()
    os.unlink(raw)
    head = '# job %s of tests/torch/sequences.py, torch %s on simgpu: names, grids and threads of PyTorch itself are real\n' % (
        name, torch.__version__)
    with open(os.path.join(folder, 'torch-%s.tsv.gz' % name), 'wb') as f:
        f.write(gzip.compress((head + lines).encode(), 9, mtime=0))
    return 0


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(JOBS)
    os.makedirs(folder, exist_ok=True)
    bad = [name for name in names if record(name, folder)]
    print('%d recorded, failed: %s' % (len(names) - len(bad), ' '.join(bad) or 'none'))
    return bool(bad)


if __name__ == '__main__':
    sys.exit(main())
