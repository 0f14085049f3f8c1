# SPDX-License-Identifier: Apache-2.0
"""Bytes of the record that an iteration takes, of scripts with PyTorch. Beside them the same record without what answers the program's questions to clocks
and the machine, and what tells of programs that it starts."""
import glob
import os
import signal
import struct
import subprocess
import sys

import job
from table import LeftOut

HERE = os.path.dirname(os.path.abspath(__file__))
# Iterations that are counted: nothing is learnt any more, and no library is loaded.
FROM, TO = 100, 300
SCRIPTS = {
    "GPT": ["gpt.py"], "one line a step to three logs": ["strangers/loggers.py"], "saves by a thread, links": ["strangers/savers.py"],
    "batches ahead, pinned": ["strangers/prefetch.py"], "a loop by time": ["strangers/timed.py"], "programs each 20 steps": ["starts.py", "--how", "run"],
}
HEADER, RECORD = struct.Struct("<QIIQQQQ"), struct.Struct("<IHHII")
# enum tpck_record_type of runtime/replay/record_log.h
BOUNDARY, FROM_DEVICE, FILE, ASKED = 2, 3, 10, {9: "clocks", 15: "programs", 16: "the machine"}


def counted(session):
    """Bytes by type between two boundaries, and how many iterations lie between them."""
    found, first, last = {}, None, None
    for path in sorted(glob.glob(os.path.join(session, "log.*"))):
        with open(path, "rb") as f:
            data = f.read()
        at, end = HEADER.size, HEADER.unpack_from(data)[6]
        while at + RECORD.size <= end:
            size, kind, _, _, _ = RECORD.unpack_from(data, at)
            if kind == BOUNDARY:
                step = struct.unpack_from("<Q", data, at + RECORD.size)[0]
                if first is None and step >= FROM:
                    first, found = step, {}
                last, upto = step, dict(found)
            room = (RECORD.size + size + 15) // 16 * 16
            found[kind] = found.get(kind, 0) + room
            at += room
    if first is None or last < first + 50:
        raise ValueError(f"the record has no iterations from {first} to {last}")
    return upto, last - first


def record(table):
    sys.path.insert(0, os.path.join(HERE, "../torch"))
    import scripts
    python = scripts.find_python()
    if not python:
        raise LeftOut("there is no Python with PyTorch: ./bootstrap.sh torch installs one")
    for name, (script, *more) in SCRIPTS.items():
        table.step(name)
        with job.Place(OMP_NUM_THREADS="1", TRANSPCKPT_INTERVAL="100") as place:
            argv = [*place.runner, os.path.join(place.build, "transpckpt"), "run", "--", python, "-W", "ignore", os.path.join(scripts.HERE, script),
                    "--steps", "1000", *more]
            with subprocess.Popen(argv, env=place.environment, cwd=place.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True, start_new_session=True) as process:
                for line in process.stdout:
                    if line.startswith("step ") and int(line.split()[1]) >= TO:
                        break
                os.killpg(process.pid, signal.SIGSTOP)
                found, iterations = counted(glob.glob(os.path.join(place.environment["TRANSPCKPT_SHM"], "j", "g*"))[0])
                os.killpg(process.pid, signal.SIGKILL)
        whole, asked = sum(found.values()), sum(found.get(kind, 0) for kind in ASKED)
        parts = {**ASKED, FROM_DEVICE: "read-backs", FILE: "files"}
        table.row(f"record of an iteration: {name}", whole / iterations, (whole - asked) / iterations, "B", tolerance=0.2,
                  note=", ".join(f"{what} {found[kind] / iterations:.0f}" for kind, what in parts.items() if found.get(kind)))
