# SPDX-License-Identifier: Apache-2.0
"""SQLite, whose files are never taken: not even in a folder of checkpoints, by whatever name, nor with its journal in another mode."""
import os
import sqlite3

import saver


NAMES = ("study.db", "study.sqlite3", "checkpoint-1/runs.db", "checkpoint-1/rows")


def save(i):
    os.makedirs("checkpoint-1", exist_ok=True)
    for name in NAMES:
        with sqlite3.connect(name, timeout=60) as database:
            if "3" in name:
                database.execute("PRAGMA journal_mode=WAL")
            database.execute("CREATE TABLE IF NOT EXISTS steps (step INTEGER, padding BLOB)")
            database.execute("DELETE FROM steps")
            database.executemany("INSERT INTO steps VALUES (?, zeroblob(1000))", [(i,)] * 20)
        database.close()


def loaded(path):
    with sqlite3.connect(path, timeout=60) as database:
        good = database.execute("PRAGMA integrity_check").fetchone()
        found = database.execute("SELECT DISTINCT step FROM steps").fetchall()
    database.close()
    if good == ("ok",) and not found and empty(path):
        return None
    if good != ("ok",) or len(found) != 1:
        raise saver.Torn(f"{good}, {found}")
    return found[0][0]


def empty(path):
    """Whether a database was just made, or holds nothing since who looks has taken back the first rows of a writer that was killed."""
    return os.path.getsize(path) <= 8192


def look():
    """Only what is there and has been begun."""
    seen = [(os.path.basename(path).split(".")[0], loaded(path)) for path in NAMES if os.path.exists(path) and not empty(path)]
    return [(name, step) for name, step in seen if step is not None]


run = saver.each(save)

if __name__ == "__main__":
    saver.main(run)
