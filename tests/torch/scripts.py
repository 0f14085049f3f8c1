#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=135s
"""Run PyTorch scripts on simgpu: each ends as it should, says the same twice and with other allocators, and no kernel is
without a rule.

  scripts.py [NAME...]     environment: srcdir, builddir; TORCH_PYTHON is a Python with PyTorch (CUDA build)

`all` is all of them; without names most of those that are alike are left out, others each time (SEED).

Exits with 77 where there is none.
"""
import os
import subprocess
import sys
import tempfile
import concurrent.futures

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'e2e'))
import job

SCRIPTS = {
    'sgd': ['mlp.py', '--optimizer', 'SGD'],
    'sgd_fused': ['mlp.py', '--optimizer', 'SGD-fused'],
    'adam': ['mlp.py', '--optimizer', 'Adam'],
    'adam_fused': ['mlp.py', '--optimizer', 'Adam-fused'],
    'amsgrad': ['mlp.py', '--optimizer', 'Adam-amsgrad'],
    'adadelta': ['mlp.py', '--optimizer', 'Adadelta'],
    'adagrad': ['mlp.py', '--optimizer', 'Adagrad'],
    'adagrad_fused': ['mlp.py', '--optimizer', 'Adagrad-fused'],
    'adamax': ['mlp.py', '--optimizer', 'Adamax'],
    'nadam': ['mlp.py', '--optimizer', 'NAdam'],
    'radam': ['mlp.py', '--optimizer', 'RAdam'],
    'rmsprop': ['mlp.py', '--optimizer', 'RMSprop-centered'],
    'rprop': ['mlp.py', '--optimizer', 'Rprop'],
    'asgd': ['mlp.py', '--optimizer', 'ASGD'],
    'adafactor': ['mlp.py', '--optimizer', 'Adafactor'],
    'lbfgs': ['mlp.py', '--optimizer', 'LBFGS'],
    'muon': ['mlp.py', '--optimizer', 'Muon'],
    'gpt_fused': ['gpt.py', '--optimizer', 'fused'],
    'gpt_foreach': ['gpt.py', '--optimizer', 'foreach', '--accumulate', '3'],
    'gpt_loop': ['gpt.py', '--optimizer', 'loop', '--accumulate', '1'],
    'gpt_bf16': ['gpt.py', '--precision', 'bf16', '--optimizer', 'foreach'],
    'gpt_fp16': ['gpt.py', '--precision', 'fp16', '--steps', '12'],
    'gpt_fp16_foreach': ['gpt.py', '--precision', 'fp16', '--optimizer', 'foreach', '--steps', '12'],
    'gpt_recompute': ['gpt.py', '--recompute', '--precision', 'bf16'],
    'conv': ['conv.py'],
    'conv_gan': ['conv.py', '--gan'],
    'graph': ['graph.py'],
    'loader': ['loader.py'],
    'conditions': ['conditions.py'],
    'draws': ['draws.py'],
    'triton': ['kernels.py'],
    'nvrtc': ['kernels.py', '--how', 'nvrtc'],
    'compiled': ['compiled.py', '--steps', '4'],
}
# Of these a few at a time: most are one more optimizer of the same script.
DRAWN = ['sgd', 'sgd_fused', 'adam', 'adam_fused', 'amsgrad', 'adadelta', 'adagrad', 'adagrad_fused', 'adamax', 'nadam', 'radam', 'rmsprop', 'rprop',
         'asgd', 'adafactor', 'lbfgs', 'muon', 'gpt_loop', 'gpt_fp16_foreach', 'gpt_bf16', 'conv', 'conv_gan', 'triton', 'nvrtc']
ALLOCATORS = ('', 'backend:cudaMallocAsync', 'expandable_segments:True')


def find_python():
    candidates = [os.environ.get('TORCH_PYTHON')]
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    candidates.append(os.path.join(cache, 'transpckpt', 'torch', 'bin', 'python'))
    for python in candidates:
        if python and os.access(python, os.X_OK) and subprocess.run(
                [python, '-c', 'import torch; assert torch.version.cuda'], capture_output=True).returncode == 0:
            return python
    return None


def package(python):
    """The folder of its PyTorch."""
    return subprocess.run([python, '-W', 'ignore', '-c', 'import os, torch; print(os.path.dirname(torch.__file__))'], check=True,
                          capture_output=True, text=True).stdout.split()[-1]


def caches(folder):
    """Where compilers keep what they made. The first run measures which variant of a kernel is faster; others must find that."""
    return {'TORCHINDUCTOR_CACHE_DIR': os.path.join(folder, 'inductor'), 'TRITON_CACHE_DIR': os.path.join(folder, 'triton')}


def run(python, script, allocator='', fault=None, extra=(), environment=None):
    env = dict(os.environ, SIMGPU_UNKNOWN='list', PYTORCH_CUDA_ALLOC_CONF=allocator, OMP_NUM_THREADS='1', **(environment or {}))
    env.pop('SIMGPU_FAULT', None)
    if fault:
        env['SIMGPU_FAULT'] = fault
    return subprocess.run([os.path.join(os.environ.get('builddir', '.'), 'tests', 'sim', 'simgpu-run'), python, '-W', 'ignore',
                           os.path.join(HERE, script[0])] + list(script[1:]) + list(extra), env=env, capture_output=True, text=True, timeout=300)


def final(result):
    lines = [line for line in result.stdout.splitlines() if line.startswith('final ')]
    return lines[-1] if result.returncode == 0 and lines else None


def one(python, name):
    """What is wrong with it, or None."""
    with tempfile.TemporaryDirectory(prefix='scripts-') as folder:
        return with_each_allocator(python, name, caches(folder))


def with_each_allocator(python, name, environment):
    first = None
    # A script says little of an allocator: the default, and the others in turn.
    script = SCRIPTS[name]
    turn = [a for i, a in enumerate(ALLOCATORS) if not (i and i % 2 == list(SCRIPTS).index(name) % 2)]
    for allocator in turn:
        r = run(python, script, allocator, environment=environment)
        said = [line for line in r.stderr.splitlines() if line.startswith('simgpu:')]
        if said or final(r) is None:
            return 'with "%s": exit %d, %s' % (allocator, r.returncode, (said or r.stderr.splitlines() or ['nothing said'])[-1][:400])
        if first is None:
            first = r.stdout
        elif r.stdout != first:
            return 'with "%s" it says something else' % allocator
    return None


def main():
    python = find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(77)
    left = set(DRAWN) - set(job.drawn_from().sample(DRAWN, 4))
    names = list(SCRIPTS) if sys.argv[1:] == ['all'] else sys.argv[1:] or [name for name in SCRIPTS if name not in left]
    bad = 0
    run(python, ['mlp.py', '--steps', '1'])  # the stand-ins are made once
    print('1..%d' % len(names), flush=True)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get('TORCH_JOBS') or os.cpu_count() or 1)) as pool:
        for i, (name, wrong) in enumerate(zip(names, pool.map(lambda n: one(python, n), names)), 1):
            bad += wrong is not None
            print('%sok %d - %s%s' % ('not ' if wrong else '', i, name, ' # ' + wrong if wrong else ''), flush=True)
    sys.exit(bad != 0)


if __name__ == '__main__':
    main()
