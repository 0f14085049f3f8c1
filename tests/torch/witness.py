#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=50s
"""Where the names of kernels say nothing (TRANSPCKPT_INFER=memory), the memory that launches change tells where iterations end: of jobs of
sequences.py, and of some more, the ends that the library finds are compared with where the job says that they are. None may be told
that is none.

  witness.py [JOB[@SETTING]...]    environment: as for scripts.py; STEPS; INFER, a setting for all; VERBOSE, a folder for what is compared

`all` is all of them; without names an optimizer of the script's own, and a few more, others each time (SEED).

The driver writes what is enqueued, and the library what it finds, into one pipe, in the order of the calls."""
import concurrent.futures
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = int(os.environ.get('STEPS') or 240)
# So many iterations it may take until the first end is told; of those behind it, such a part may be missed.
LEARNT, MISSED = 200, 0.1
# What is found, and what does not train. With @all names may be used, and tell nothing.
FOUND = ('sgd', 'sgd_loop', 'adam', 'adam_loop', 'adam_fused', 'own_optimizer', 'own_optimizer_hidden', 'hooks_own', 'hooks_adam_loop', 'hooks_sgd_loop@all', 'turns', 'turns_loop', 'turns_own', 'gan_equal', 'critics', 'critics_batches',
         'accumulate_kept', 'evaluates', 'norm', 'text')
SILENT = ('infers', 'none_normalize')
ENDED = 'an iteration ended: step'


def jobs():
    """In the process that runs one of them."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import sequences as s

    def trained(make, model=s.mlp, **more):
        return lambda: s.train(model(), make, **more)

    class Own(torch.optim.Optimizer):
        """Signs of averages, tensor by tensor; no kernel of it is an optimizer's."""
        def __init__(self, parameters):
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group['params']:
                    m = self.state[p].setdefault('m', torch.zeros_like(p))
                    m.copy_(torch.where(m.abs() > 1e9, p.grad, m * 0.9 + p.grad * 0.1))
                    p.copy_(p - 0.01 * torch.sign(m))

    class Flat:
        """One launch for all parameters, which lie in one tensor; gradients are clipped in front of it."""
        def __init__(self, parameters):
            parameters = list(parameters)
            self.parameters = parameters
            self.flat = torch.cat([p.data.flatten() for p in parameters])
            at = 0
            for p in parameters:
                p.data = self.flat[at:at + p.numel()].view_as(p)
                at += p.numel()

        def zero_grad(self, set_to_none=True):
            for p in self.parameters:
                p.grad = None

        def step(self):
            g = torch.cat([p.grad.flatten() for p in self.parameters])
            self.flat.add_(g.clamp(-1, 1), alpha=-0.1)

    def hooks(make, model=s.mlp):
        m = model()
        own = {p: make([p]) for p in m.parameters()}

        def hook(p):
            own[p].step()
            own[p].zero_grad()
        for p in m.parameters():
            p.register_post_accumulate_grad_hook(hook)
        for i in s.steps():
            value = s.classify(m, s.batch())
            value.backward()
            s.ended(i)
            value.item()

    def turns(make):
        models = [s.mlp(), s.mlp(3, 64)]
        optimizers = [make(m.parameters()) for m in models]
        for i in s.steps():
            for m, o in zip(models, optimizers):
                o.zero_grad()
                s.classify(m, s.batch()).backward()
                o.step()
            s.ended(i)

    def critics(make, own_batch):
        real, fake = s.mlp(), nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 40)).cuda()
        first, second = make(real.parameters()), make(fake.parameters())
        for i in s.steps():
            for _ in range(3):
                x, _y = s.batch()
                first.zero_grad()
                (real(fake(torch.randn(32, 16, device='cuda')).detach()).mean() - real(x).mean()).backward()
                first.step()
            second.zero_grad()
            noise = torch.randn(32, 16).cuda() if own_batch else torch.randn(32, 16, device='cuda')
            (-real(fake(noise)).mean()).backward()
            s.apply(i, second)

    def kept():
        """Gradients that stay where they are, of three micro-batches."""
        m = s.mlp()
        o = Own(m.parameters())
        for i in s.steps():
            for _ in range(3):
                s.classify(m, s.batch()).backward()
            s.apply(i, o)
            o.zero_grad(set_to_none=False)

    def evaluates():
        m = s.mlp()
        o = Own(m.parameters())
        for i in s.steps():
            o.zero_grad()
            s.classify(m, s.batch()).backward()
            s.apply(i, o)
            if i % 5 == 4:
                with torch.no_grad():
                    for _ in range(2):
                        s.classify(m, s.batch()).item()

    def norm():
        return nn.Sequential(nn.Linear(40, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 10)).cuda()

    def infers():
        m = s.mlp()
        with torch.no_grad():
            for _ in s.steps():
                m(s.batch()[0]).sum().item()
    optim = torch.optim
    s.JOBS.update({
        'sgd': trained(lambda p: optim.SGD(p, 0.1)), 'adam': trained(optim.Adam), 'adam_fused': trained(lambda p: optim.Adam(p, fused=True)),
        'own_optimizer': trained(Own), 'own_optimizer_hidden': trained(Flat), 'hooks_own': lambda: hooks(Own), 'hooks_sgd_loop': lambda: hooks(lambda p: optim.SGD(p, 0.1, foreach=False)), 'turns': lambda: turns(optim.Adam),
        'turns_loop': lambda: turns(lambda p: optim.Adam(p, foreach=False)), 'turns_own': lambda: turns(Own),
        'critics': lambda: critics(Own, False), 'critics_batches': lambda: critics(Own, True), 'accumulate_kept': kept, 'evaluates': evaluates, 'norm': trained(Own, norm), 'infers': infers,
        'text': lambda: s.train(s.GPT().cuda(), Own, s.text_loss, s.tokens, before=s.clipped(foreach=True)),
    })
    return torch, s


def run(name):
    torch, s = jobs()
    torch.manual_seed(1)
    s.JOBS[name]()
    s.mark('step after the last begin')
    torch.randn(32, 40).cuda()
    torch.cuda.synchronize()


def parse(lines):
    """Where ends may be, as numbers of operations of the program before them, and where they were told."""
    ops = [line.split('\t') for line in lines if line.startswith(('kernel\t', 'memcpy\t', 'memset\t'))]
    own = {op[6] for op in ops if 'tpck_digest' in op[1]}
    truths, told, count, waiting = [], [], 0, False
    for line in lines:
        if line.startswith(('kernel\t', 'memcpy\t', 'memset\t')):
            count += line.split('\t')[6] not in own
        elif line.startswith('# iteration-end'):
            truths.append([count, count])
            waiting = True
        elif line.startswith('# step') and 'begin' in line and waiting:
            truths[-1][1] = count
            waiting = False
        elif ENDED in line:
            told.append(count)
    return truths, told


def judge(python, place, name):
    import scripts
    folder = os.path.join(place.root, name)
    name, _, setting = name.partition('@')
    os.makedirs(folder)
    environment = {**place.environment, 'OMP_NUM_THREADS': '1', **scripts.caches(os.path.join(folder, 'caches')), 'SEQUENCE_STEPS': str(STEPS),
                   'SIMGPU_RECORD': '/dev/stderr', 'TRANSPCKPT_INFER': os.environ.get('INFER') or setting or 'memory', 'TRANSPCKPT_LOG': 'debug',
                   'TRANSPCKPT_STALL_SEC': '0', 'TRANSPCKPT_JOB': 'witness-' + name}
    done = subprocess.run([os.path.join(place.build, 'transpckpt'), 'run', '--', *place.runner, python, '-W', 'ignore', os.path.abspath(__file__), '--run', name],
                          cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, timeout=600)
    lines = done.stderr.decode(errors='replace').splitlines()
    if os.environ.get('VERBOSE'):
        with open(os.path.join(os.environ['VERBOSE'], name), 'w', encoding='utf-8') as f:
            f.write('\n'.join(lines))
    truths, told = parse(lines)
    found = [i for i, (begin, end) in enumerate(truths) if any(begin <= at <= end for at in told)]
    wrong = len(told) - len(found)
    return done.returncode, truths, found, wrong, lines


def main():
    sys.path.insert(0, HERE)
    import scripts
    from script_job import job
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    scripts.run(python, ['mlp.py', '--steps', '1'])  # the stand-ins are made once
    checks = job.Checks()
    names = sys.argv[1:]
    if not names:
        rng = job.drawn_from()
        names = ['own_optimizer_hidden', *rng.sample([name for name in FOUND if name != 'own_optimizer_hidden'], 2), rng.choice(SILENT)]
    if names == ['all']:
        names = [*FOUND, *SILENT]
    with job.Place() as place, concurrent.futures.ThreadPoolExecutor(int(os.environ.get('TORCH_JOBS') or os.cpu_count() or 1)) as pool:
        for name, (status, truths, found, wrong, lines) in zip(names, pool.map(lambda n: judge(python, place, n), names)):
            first = found[0] if found else len(truths)
            good = status == 0 and wrong == 0 and (not found if name in SILENT else
                                                   bool(found) and first < LEARNT and len(found) >= (len(truths) - first - 1) * (1 - MISSED))
            checks.ok(good, '%s: %d of %d ends found, from %d on, %d told that are none' % (name, len(found), len(truths), first + 1, wrong),
                      status, *[line[:300] for line in lines if not line.startswith(('kernel\t', 'memcpy\t', 'memset\t', '#', ' '))][-6:])
    checks.end()


if __name__ == '__main__':
    if sys.argv[1:2] == ['--run']:
        run(sys.argv[2])
    else:
        main()
