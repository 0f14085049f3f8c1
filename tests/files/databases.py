#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=1G minutes=10 about=20s disk
"""Databases that are killed: what they have said is committed is there, and whole, as without the library. In a folder of checkpoints,
by a name that says nothing, and with every file taken; by each kind of journal. KILLS says how often each of them is killed (SEED=)."""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, run_tests, until

KILLS = int(os.environ.get("KILLS", 10))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "transpckpt")
PYTHONS = [os.environ.get("DATABASES_PYTHON", ""), os.path.join(CACHE, "frameworks/bin/python"), sys.executable]
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
ROWS = 40
# Each writer changes all of its rows to one number, and says so once that is committed. It begins behind what is there.
SQLITE = f"""
import os, sqlite3, sys
path, mode = sys.argv[1:3]
os.makedirs(os.path.dirname(path), exist_ok=True)
db = sqlite3.connect(path, isolation_level=None, timeout=60)
db.execute("PRAGMA synchronous=FULL")
db.execute(f"PRAGMA journal_mode={{mode}}")
db.execute("PRAGMA wal_autocheckpoint=20")
db.execute("PRAGMA cache_size=8")
db.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, number INTEGER, padding BLOB)")
last = db.execute("SELECT max(number) FROM rows").fetchone()[0] or 0
print("begun", last, flush=True)
while True:
    last += 1
    db.execute("BEGIN IMMEDIATE")
    for i in range({ROWS}):
        db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, randomblob(900))", (i, last))
    db.execute("COMMIT")
    print("done", last, flush=True)
"""
LMDB = f"""
import os, sys, lmdb
path, mode = sys.argv[1:3]
os.makedirs(path, exist_ok=True)
env = lmdb.open(path, map_size=32 << 20, writemap=mode == "writemap")
with env.begin() as t:
    last = int(t.get(b"0") or b"0")
print("begun", last, flush=True)
while True:
    last += 1
    with env.begin(write=True) as t:
        for i in range({ROWS}):
            t.put(b"%d" % i, b"%d" % last)
            t.put(b"p%d" % i, os.urandom(900))
    print("done", last, flush=True)
"""
LEVELDB = f"""
import os, sys, plyvel
path, mode = sys.argv[1:3]
os.makedirs(path, exist_ok=True)
db = plyvel.DB(path, create_if_missing=True, write_buffer_size=1 << 16)
last = int(db.get(b"0") or b"0")
print("begun", last, flush=True)
while True:
    last += 1
    with db.write_batch(transaction=True, sync=True) as batch:
        for i in range({ROWS}):
            batch.put(b"%d" % i, b"%d" % last)
            batch.put(b"p%d" % i, os.urandom(900))
    print("done", last, flush=True)
"""
ROCKSDB = f"""
import os, sys, rocksdict
path, mode = sys.argv[1:3]
os.makedirs(path, exist_ok=True)
db = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True))
sync = rocksdict.WriteOptions()
sync.sync = True
last = int(db.get(b"0") or b"0")
print("begun", last, flush=True)
while True:
    last += 1
    batch = rocksdict.WriteBatch(raw_mode=True)
    for i in range({ROWS}):
        batch.put(b"%d" % i, b"%d" % last)
        batch.put(b"p%d" % i, os.urandom(900))
    db.write(batch, sync)
    print("done", last, flush=True)
"""


def look_sqlite(path):
    database = sqlite3.connect(path, timeout=60)
    try:
        good = database.execute("PRAGMA integrity_check").fetchone()[0]
        # What was killed before it had made its table.
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return good, [0]
        return good, [n for (n,) in database.execute("SELECT DISTINCT number FROM rows").fetchall()] or [0]
    finally:
        database.close()


# The others are read by a process without the library; the outcome has the same form.
READERS = {
    "lmdb": "import sys, lmdb; e = lmdb.open(sys.argv[1], map_size=32 << 20); t = e.begin(); get = t.get",
    "plyvel": "import sys, plyvel; d = plyvel.DB(sys.argv[1], create_if_missing=True); get = d.get",
    "rocksdict": "import sys, rocksdict; d = rocksdict.Rdict(sys.argv[1], rocksdict.Options(raw_mode=True)); get = d.get",
}
REST = f"; print(*sorted({{int(get(b'%d' % i) or b'0') for i in range({ROWS})}}))"


def python_with(module):
    text = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)"
    for python in PYTHONS:
        if os.access(python, os.X_OK) and not subprocess.run([python, "-c", text, module], check=False, timeout=120).returncode:
            return python
    return None


def looker(python, module):
    def look(path):
        done = subprocess.run([python, "-c", READERS[module] + REST, path], capture_output=True, text=True, timeout=120, check=False,
                              env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
        return ("ok" if not done.returncode else done.stderr[-300:]), [int(n) for n in done.stdout.split()]
    return look


def errors_of(process):
    process.kill()
    return process.communicate()[1][-1500:]


def one_kill(place, python, program, path, mode, chance, preload):
    """The number that was committed last, as far as the program said."""
    process = subprocess.Popen([python, "-u", "-c", program, path, mode], cwd=place.work, text=True, stdin=subprocess.DEVNULL,
                               env=place.environment if preload else place.plain, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = process.stdout.readline().split()
    if not line or line[0] != "begun":
        raise RuntimeError(f"it ended before it began: {errors_of(process)}")
    said = int(line[1])
    # At once, in the first changes, or behind some.
    for _ in range(chance.choice((0, 1, 3))):
        line = process.stdout.readline().split()
        if not line:
            raise RuntimeError(f"it ended by itself: {errors_of(process)}")
        said = int(line[1])
    time.sleep(chance.uniform(0, 0.03))
    process.send_signal(signal.SIGKILL)
    # What it had said before; a line without an end is none. communicate() would lose what readline() has read ahead.
    with process:
        rest = process.stdout.read()
    for text in rest.split("\n")[:-1]:
        said = int(text.split()[1])
    return said


def killed(checks, what, program, look, mode, path, preload=True, python=sys.executable, **settings):
    chance = random.Random(f"{SEED} {what} {mode} {path} {preload}")
    wrong, last = [], 0
    with Place(**settings) as place:
        # What is saved beside it is taken, and owed to its path meanwhile.
        if preload:
            place.run("import os; os.makedirs('checkpoint-1', exist_ok=True); open('checkpoint-1/model.pt', 'wb').write(b'm' * 3000000)")
        for turn in range(KILLS):
            try:
                said = one_kill(place, python, program, path, mode, chance, preload)
                good, found = look(place.path(path))
            except (RuntimeError, sqlite3.DatabaseError, OSError) as error:
                wrong.append(f"kill {turn}: {error}")
                break
            if good != "ok" or len(found) != 1 or not said <= found[0] <= said + 1:
                wrong.append(f"kill {turn}: {good}, {found} where {said} had been committed: {sorted(os.listdir(os.path.dirname(place.path(path))))}")
            last = max(last, said)
        until(lambda: not preload or not place.listed(), 20)
        left = [n for at, _, names in os.walk(place.work) for n in names if ".tpck-" in n]
        checks.ok(not wrong and not left and last, f"{what}, {mode}, {path}, {settings.get('TRANSPCKPT_FILES', 'auto') if preload else 'without the library'}: "
                  f"killed {KILLS} times, {last} changes", *wrong[:4], left, place.log()[-600:])


def sqlite(checks):
    """Rollback journals that are removed, cut, or kept, and a write-ahead log."""
    for mode in ("delete", "truncate", "persist", "wal"):
        killed(checks, "SQLite", SQLITE, look_sqlite, mode, "checkpoint-1/rows")
        killed(checks, "SQLite", SQLITE, look_sqlite, mode, "run/rows.db", TRANSPCKPT_FILES="*")


def sqlite_plain(checks):
    """What the test itself says without the library."""
    for mode in ("delete", "wal"):
        killed(checks, "SQLite", SQLITE, look_sqlite, mode, "checkpoint-1/rows", preload=False)


def others(checks):
    """Those that are installed."""
    for what, module, program, modes in (("LMDB", "lmdb", LMDB, ("map", "writemap")), ("LevelDB", "plyvel", LEVELDB, ("log",)),
                                         ("RocksDB", "rocksdict", ROCKSDB, ("log",))):
        python = python_with(module)
        if not python:
            checks.count += 1
            print(f"ok {checks.count} # SKIP no {module}")
            continue
        for mode in modes:
            killed(checks, what, program, looker(python, module), mode, "checkpoint-1", python=python)
            killed(checks, what, program, looker(python, module), mode, "run/rows", python=python, TRANSPCKPT_FILES="*")


if __name__ == "__main__":
    print(f"# SEED={SEED}")
    run_tests(Checks(), [sqlite, sqlite_plain, others])
