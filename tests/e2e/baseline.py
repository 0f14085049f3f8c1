# SPDX-License-Identifier: Apache-2.0
"""What a program leaves behind that nobody watches or kills, made once for all tests of a build that compare something with it. It
is found by content: of the program, of the software device below it, and of the arguments."""
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile

_digests = {}


def digest(path):
    found = os.stat(path)
    known = (path, found.st_size, found.st_mtime_ns)
    if known not in _digests:
        with open(path, "rb") as f:
            _digests[known] = hashlib.file_digest(f, "sha256").hexdigest()
    return _digests[known]


def device(build):
    """The files of the software device."""
    for base, _, names in os.walk(os.path.join(build, "tests/sim/lib")):
        yield from (os.path.join(base, name) for name in names)


def copy(build, files, words, environment, make, to):
    """Puts into the folder `to`, which is there, what make(folder) leaves in one. It is called only where nobody has had the same
    files, words and settings of the software device yet; what it raises nobody keeps."""
    settings = sorted((k, v) for k, v in environment.items() if k.startswith("SIMGPU_") and k != "SIMGPU_FABRIC")
    contents = sorted((os.path.basename(f), digest(f)) for f in [*files, *device(build)])
    key = hashlib.sha256(json.dumps([contents, words, settings]).encode()).hexdigest()[:32]
    kept = os.path.join(build, "tests/baselines", key)
    with contextlib.ExitStack() as held:
        try:
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            lock = held.enter_context(open(kept + ".lock", "w", encoding="ascii"))
        except OSError:
            return make(to)  # somebody else's build
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(kept):
            folder = tempfile.mkdtemp(dir=os.path.dirname(kept))
            try:
                make(folder)
                os.rename(folder, kept)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, to, symlinks=True, dirs_exist_ok=True)
    return None
