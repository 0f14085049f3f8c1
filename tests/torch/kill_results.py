# SPDX-License-Identifier: Apache-2.0
"""What jobs of several ranks under torchrun say and leave, beside those of a run in which nobody died."""
import os
import re
import subprocess

from script_job import job

STEP = re.compile(r'(rank \d of \d step \d+) loss [\d.]{8} mean [\d.]{8}|(?:rank \d) final \w{64}')
# libuv, by which PyTorch's store speaks, has a ring.
FINE = re.compile(r'transpckpt: (resuming at|live at|not resuming: (?:the last start ended|nothing that earlier starts left) |this process uses io_uring: )')
# What a rank may live to say of the death of another.
LEFT_ALONE = re.compile(r'transpckpt: NCCL on rank \d of communicator \d+, of \d ranks: remote process exited')
# What a start may say of a folder that it takes away, where the agent is still putting a file at its path that the dead ranks had closed.
FOLDER_STAYS = re.compile(r'transpckpt: \S+ was made after this step, and what is in it was not made by the program alone: it stays there')


def printed(start):
    """What the ranks said of each step, the last time that they did; and their last words."""
    # All write into one file: a line may begin where another's newline is yet to come. So one must be one string for print().
    return {found[1] or found[0][:6]: found[0] for found in STEP.finditer(start.printed())}


# DCP's index has an identifier in it that is drawn for each save.
INDICES = """import dataclasses, pickle, sys
for a, b in zip(sys.argv[1::2], sys.argv[2::2]):
    pair = [pickle.load(open(path, 'rb')) for path in (a, b)]
    for found in pair:
        found.storage_meta = dataclasses.replace(found.storage_meta, save_id=None, checkpoint_id=None)
    if pair[0] != pair[1]:
        print(b, 'says something else')
"""


def files_differ(python, plain, killed):
    """The checkpoints that the program saved, as lines: bytes, but for what says that it is of another time."""
    names = [name for name in job.tree(plain) if name.endswith('.metadata')]
    pairs = [os.path.join(folder, name) for name in names for folder in (plain, killed)]
    lines = [line for line in job.differences(plain, killed) if not any(line.startswith(name + ' differs') for name in names)]
    if names and all(map(os.path.exists, pairs)):
        found = subprocess.run([python, '-W', 'ignore', '-c', INDICES, *pairs], capture_output=True, text=True, check=False)
        lines += found.stdout.splitlines() + (found.stderr.splitlines()[-1:] if found.returncode else [])
    return lines if os.listdir(plain) else ['it saved nothing']
