#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a stage of the kit on a machine with a GPU.

  run.sh STAGE [CASE...]    probes or trainers; `all` is both. CASE may be a pattern
  run.sh report             the tables of what is in the folder of results, as Markdown
  run.sh self               a case that hangs, to see that it becomes a result

RESULTS is the folder of results (results/ beside run.sh), LIMIT how many seconds a stage may take. Each result is a line of
STAGE.jsonl as soon as it is known. The status is 0 if nothing failed or hung."""
import importlib
import os
import shutil
import sys
import tempfile

import cases
import machine
import report

STAGES = ("probes", "trainers")
LIMIT_SEC = 510


def stage(name, results, patterns):
    """Returns whether all went well."""
    work = tempfile.mkdtemp(prefix=f"tpck-kit-{name}.", dir=os.environ.get("TMPDIR", "/tmp"))
    this = cases.Stage(name, results, work, float(os.environ.get("LIMIT") or LIMIT_SEC), patterns)
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
    return good


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in (*STAGES, "all", "report", "self"):
        print(__doc__)
        return 2
    results = os.path.abspath(os.environ.get("RESULTS") or machine.path("results"))
    if sys.argv[1] == "report":
        print(report.document(results))
        return 0
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.pop("LD_PRELOAD", None)
    machine.use_driver()
    cases.adopt_orphans()
    wanted = STAGES if sys.argv[1] == "all" else sys.argv[1:2]
    return 0 if all([stage(name, results, sys.argv[2:]) for name in wanted]) else 1


sys.exit(main())
