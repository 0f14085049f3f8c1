#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 minutes=10 about=40s
"""What PyTorch's allocator has back and keeps is in no snapshot: images are smaller by it, and a resumed run, whose other memory holds what is no number,
ends with the same bytes. Where the user says so, and once there are graphs, all of it is copied."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'e2e'))
import job
import script_job
import scripts

GPT = ['gpt.py', '--accumulate', '1', '--steps', '80']
# Name: script, settings, whether memory is left out.
CASES = {
    'left out': (GPT, {}, True),
    'expandable segments': (GPT, {'PYTORCH_ALLOC_CONF': 'expandable_segments:True', 'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}, True),
    'copied, as the user has it': (GPT, {'TRANSPCKPT_UNUSED': 'copy'}, False),
    'copied, with graphs': (['graph.py', '--steps', '400'], {}, False),
}


def look(place, bytes_of):
    """Notes the most bytes that were left out, and that were copied."""
    for row in place.shown():
        for kind, found in row.get('notes', {}).get('classes', {}).items():
            key = 'dead' if kind == 'dead' else 'copied'
            bytes_of[key] = max(bytes_of.get(key, 0), found['bytes'])
    return bytes_of.get('copied', 0) > 0


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    checks = job.Checks()
    for name, (script, environment, left_out) in CASES.items():
        with job.Place() as place:
            this, bytes_of = script_job.ScriptJob(place, python, script, environment), {}
            this.run_plain()
            start = this.start()
            start.slowly_until(lambda: start.printed().count('\n') >= 20 and any(row['offered'] for row in place.listed()) and look(place, bytes_of))
            start.kill()
            status = this.start().wait()
            wrong = this.differences() + this.remarks()
            dead, copied = bytes_of.get('dead', 0), bytes_of.get('copied', 0)
            checks.ok(dead > copied if left_out else copied and not dead, f'{name}: {dead} bytes are left out, {copied} are copied', start.said())
            checks.ok(not status and this.resumed() == 1 and not wrong, f'{name}: resumed, to the same bytes', status, *wrong, this.starts[-1].said())
    checks.end()


main()
