#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=155s
"""PyTorch scripts are killed at random instants and started again by the same command; what they print, the files they
write and their last digest must be those of a run that was never killed.

  kill.py [CASE[=KILLS]...]    environment: as for scripts.py; KILLS, SEED

`all` is all of them; without names some are left out, other ones each time.

Each must have gone on at a snapshot at least once, and none may say anything else than that, or begin anew without a word.
"""
import concurrent.futures
import os
import random
import re
import socket
import sys

import script_job
import scripts
from script_job import job

ASYNC, EXPANDABLE = {'PYTORCH_CUDA_ALLOC_CONF': 'backend:cudaMallocAsync'}, {'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}
GPT = ['gpt.py', '--steps', '70', '--accumulate', '1']


def one_rank():
    """As torchrun --nproc-per-node 1 sets it, with a port that is free now."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return {'RANK': '0', 'WORLD_SIZE': '1', 'LOCAL_RANK': '0', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(s.getsockname()[1])}


CASES = {
    'sgd': (['mlp.py', '--optimizer', 'SGD', '--steps', '1000'], {}),
    'adam_fused': (['mlp.py', '--optimizer', 'Adam-fused', '--steps', '1000'], {}),
    'adadelta': (['mlp.py', '--optimizer', 'Adadelta', '--steps', '1000'], {}),
    'adamax': (['mlp.py', '--optimizer', 'Adamax', '--steps', '1000'], {}),
    # Shared memory and a semaphore by names.
    'shared_blocks': (['shared_blocks.py', '--steps', '800'], {}),
    'shared_tracked': (['shared_blocks.py', '--steps', '800', '--tracked'], {}),
    # Optimizers that have no kernels of their own: they are told by additions to tensors of several sizes.
    'lbfgs': (['mlp.py', '--optimizer', 'LBFGS', '--hidden', '300,120', '--steps', '200'], {}),
    'muon': (['mlp.py', '--optimizer', 'Muon', '--hidden', '300,120', '--steps', '300'], {}),
    'gpt': (GPT, {}),
    'gpt_async': (GPT, ASYNC),
    'gpt_expandable': (GPT, EXPANDABLE),
    'gpt_foreach': (GPT + ['--optimizer', 'foreach', '--accumulate', '3'], {}),
    'gpt_loop': (GPT + ['--optimizer', 'loop'], {}),
    'gpt_bf16': (GPT + ['--precision', 'bf16', '--recompute'], {}),
    'gpt_fp16': (GPT + ['--precision', 'fp16', '--optimizer', 'foreach'], {}),
    'gpt_save': (GPT + ['--save', 'own.pt', '--save-every', '20'], {'TRANSPCKPT_RESUME': 'forward'}),
    # What it reads back to save is more than the record holds.
    'gpt_save_much': (GPT + ['--save', 'own.pt', '--save-every', '5'], {'TRANSPCKPT_LOG_BYTES': '4M', 'TRANSPCKPT_RESUME': 'forward'}),
    'conv': (['conv.py', '--steps', '80'], {}),
    'conv_async': (['conv.py', '--steps', '80'], ASYNC),
    'conv_benchmark': (['conv.py', '--steps', '80', '--benchmark'], {}),
    'conv_gan': (['conv.py', '--gan', '--steps', '60'], {}),
    'graph': (['graph.py', '--steps', '1500'], {}),
    'fork_saves': (['fork_saves.py', '--steps', '800'], {}),
    'loader': (['loader.py', '--epochs', '40', '--out', '.'], {}),
    'loader_writes': (['loader_workers.py', '--batches', '60', '--epochs', '6', '--write-from', '0'], {}),
    'housekeeping': (['housekeeping.py', '--steps', '500'], {}),
    'compiled_cold': (['compiled.py', '--steps', '120'], {}),
    'compiled_graphs': (['compiled.py', '--steps', '120', '--mode', 'reduce-overhead'], {}),
}
# Each time one of each of these kinds, and of all a few that are killed twice; with LONG= they make all of their steps.
KINDS = (('sgd', 'adam_fused', 'adadelta', 'adamax'), ('lbfgs', 'muon'), ('gpt', 'gpt_save', 'gpt_save_much'), ('gpt_async', 'gpt_expandable', 'conv_async'),
         ('gpt_foreach', 'gpt_loop'), ('gpt_bf16', 'gpt_fp16'), ('conv', 'conv_benchmark', 'conv_gan'), ('graph',), ('loader', 'loader_writes', 'housekeeping', 'fork_saves'),
         ('compiled_cold', 'compiled_graphs'))
TWICE = 3
# Here the compilers make their caches in the run that is killed, and again in each start: a kill costs half a minute.
COLD = {'compiled_cold', 'compiled_graphs_cold'}
# Asked for by name only: the same two the other way round, and what kill_ranks.py does with two ranks.
MORE = {
    'ddp': (['ddp.py', '--steps', '120'], one_rank()),
    'fsdp': (['ddp.py', '--steps', '40', '--fsdp'], one_rank()),
    'compiled': (['compiled.py', '--steps', '120'], {}),
    'compiled_graphs_cold': (['compiled.py', '--steps', '120', '--mode', 'reduce-overhead'], {}),
}


def judge_once(python, script, environment, kills, rng, cold):
    """What is wrong, what happened, and how many starts there were."""
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, script, environment, cold)
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-300:], '', 0
        status = this.run_killed(rng, kills)
        if this.cold and this.run_plain_as_tuned():
            return 'the second plain run failed: %s' % this.plain.said()[-300:], '', 0
        told = '%d starts, %d resumed' % (len(this.starts), this.resumed())
        wrong = this.ended(status) + this.differences() + this.remarks()
        if not this.resumed():
            wrong.append('it never went on at a snapshot: ' + ' | '.join('; '.join(re.findall('^transpckpt: .*', start.said(), re.M)) for start in this.starts))
        wrong += this.silent()
        # Where the start before was killed ahead of its first snapshot, what numbers its folders by what is there, as Lightning, makes another one: done again.
        # Where there had been one to go on from, that is a failure; but a start that had come to its end before it was killed leaves nothing either.
        anew = wrong and (any(this.over()[:-1]) or any(not start.offered and 'left no snapshot' in start.said() for start in this.starts[1:]))
        return '; '.join(wrong + ([place.root] if os.environ.get('KEEP') else []) + [this.story()] if wrong else []), told, 1 if anew else len(this.starts)


def until_killed(once):
    """A start that ended before it could be killed, or was killed before there was a snapshot, shows nothing: all is done again, twice."""
    for _ in range(3):
        wrong, told, starts = once()
        if starts != 1:
            break
    return wrong, told


def judge_script(python, script, environment, kills, rng, cold=False):
    """What is wrong, and what happened."""
    return until_killed(lambda: judge_once(python, script, environment, kills, rng, cold))


def some_steps(count):
    """Of so many: what a start costs is its imports mostly, up to there."""
    return count if os.environ.get('LONG') else max(count // 3, min(count, 50))


def judge(python, name, kills, rng):
    script, environment = {**CASES, **MORE}[name]
    script = [str(some_steps(int(word))) if before in ('--steps', '--epochs') else word for before, word in zip([''] + script, script)]
    return judge_script(python, script, environment, kills, rng, name in COLD)


def main(cases, judge, python=None):
    python = python or scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    kills, seed = int(os.environ.get('KILLS') or 0), int(os.environ.get('SEED') or random.randrange(1 << 32))
    print('# SEED=%d' % seed)
    rng = random.Random(seed)
    twice = rng.sample(sorted(cases), min(TWICE, len(cases)))
    wanted = [(name, int(n or kills or (2 if name in twice and name not in COLD else 1)))
              for name, _, n in (case.partition('=') for case in sys.argv[1:] or cases)]
    scripts.run(python, ['mlp.py', '--steps', '1'])  # the stand-ins are made once
    checks = job.Checks()
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get('TORCH_JOBS') or os.cpu_count() or 1)) as pool:
        for (name, n), (wrong, told) in zip(wanted, pool.map(lambda w: judge(python, *w, random.Random('%d %s' % (seed, w[0]))), wanted)):
            checks.ok(not wrong, '%s: %d kills, %s' % (name, n, told), wrong)
    checks.end()


def chosen():
    """Without names on the command line."""
    if sys.argv[1:] == ['all']:
        sys.argv[1:] = [*CASES, *MORE]
    rng = random.Random(os.environ.setdefault('SEED', str(random.randrange(1 << 32))))
    return [rng.choice(kind) for kind in KINDS]


if __name__ == '__main__':
    main(chosen(), judge)
