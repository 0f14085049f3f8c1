#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a stage of the kit on a machine with a GPU.

  run.sh STAGE [CASE...]    probes, trainers, pytorch, nccl or large; `all` is all of them in this order. CASE may be a pattern
  run.sh first              all of them in nine minutes, each with its share of the time: what matters most in each comes first
  run.sh report             the tables of what is in the folder of results, as Markdown; report.md there has them, too
  run.sh self               a case that hangs, to see that it becomes a result

RESULTS is the folder of results (results/ beside run.sh), LIMIT how many seconds a stage may take. Each result is a line of
STAGE.jsonl as soon as it is known. The status is 0 if nothing failed or hung."""
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cases
import machine
import report

# With the shares of the time when all are to fit into one.
STAGES = {"probes": 0.25, "trainers": 0.2, "pytorch": 0.3, "nccl": 0.12, "large": 0.13}
LIMIT_SEC = 510


def stage(name, results, limit, patterns):
    """Returns whether all went well."""
    work = tempfile.mkdtemp(prefix=f"tpck-kit-{name}.", dir=os.environ.get("TMPDIR", "/tmp"))
    this = cases.Stage(name, results, work, limit, patterns)
    try:
        if name == "self":
            this.run("stuck", [machine.probe("stuck")], 2)
        else:
            importlib.import_module(name).main(this)
    except Exception as error:  # what was found stays, and the next stage has its turn
        this.say("the stage itself", "failed", why=f"{type(error).__name__}: {error}")
    finally:
        good = this.close()
        shutil.rmtree(work, ignore_errors=True)
    print("\n" + report.page(name, this.rows), flush=True)
    with open(os.path.join(results, "report.md"), "w", encoding="utf-8") as f:
        f.write(report.document(results))
    return good


def end_all(number, _):
    """Nobody of ours stays where the kit itself is ended."""
    signal.signal(number, signal.SIG_IGN)
    cases.end(cases.descendants(os.getpid()))
    sys.exit(128 + number)


def may_run():
    """Where the kit was carried the programs' modes may have been lost."""
    for folder in ("inst/bin", "probes", "programs"):
        for base, _, names in os.walk(machine.path(folder)):
            for name in names:
                try:
                    os.chmod(os.path.join(base, name), 0o755)
                except OSError:
                    pass


def with_shared_memory():
    """Containers have 64 MiB of it unless they are told otherwise: where that is allowed, the kit is started again with more, of its own."""
    wanted = machine.memory_available() * 5 // 8
    if os.environ.get("TPCK_OWN_SHM") or machine.free_bytes("/dev/shm") > wanted // 2 or not shutil.which("unshare"):
        return
    own = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={wanted >> 20}m,mode=1777 tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode == 0:
        os.environ["TPCK_OWN_SHM"] = str(wanted >> 20)
        os.execvp("unshare", [*own, sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]])


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in (*STAGES, "all", "first", "report", "self"):
        print(__doc__)
        return 2
    results = os.path.abspath(os.environ.get("RESULTS") or machine.path("results"))
    if sys.argv[1] == "report":
        print(report.document(results))
        return 0
    with_shared_memory()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.pop("LD_PRELOAD", None)
    machine.use_driver()
    cases.adopt_orphans()
    may_run()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_all)
    limit, good, spared = float(os.environ.get("LIMIT") or LIMIT_SEC), True, 0
    if sys.argv[1] != "first":
        return 0 if all([stage(name, results, limit, sys.argv[2:]) for name in (STAGES if sys.argv[1] == "all" else sys.argv[1:2])]) else 1
    for name, share in STAGES.items():
        begun, given = time.monotonic(), limit * share + spared
        good = stage(name, results, given, sys.argv[2:]) and good
        spared = given - (time.monotonic() - begun)
    return 0 if good else 1


sys.exit(main())
