#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 memory=1G about=6s disk
"""Checkpoints whose names say nothing: the first one of a pattern is written as ever, and recognised when it is closed; the next
one is taken. Programs are plain Python, and NumPy, PyTorch and h5py are not needed: what they write is written here."""
import io
import json
import os
import pickle
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import time
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, run_tests, stand_still, until
from view import STEPS, end, go, told

LARGE = 300000
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "transpckpt")


# ---- what savers write, as they write it ------------------------------------------------------------

def torch_zip(number, first="data.pkl"):
    """Stored entries, each with a padding that begins with "FB" so that its bytes are aligned."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        for name, data in ((first, b"\x80\x02}q\x00."), ("byteorder", b"little"), ("data/0", bytes([number]) * LARGE), ("version", b"3\n")):
            info = zipfile.ZipInfo("archive/" + name)
            space = -(out.tell() + 30 + len(info.filename) + 4) % 64
            info.extra = b"FB" + struct.pack("<H", space) + b"Z" * space
            z.writestr(info, data)
    return out.getvalue()


def torch_pickle(number):
    return b"".join(pickle.dumps(x, protocol=2) for x in (0x1950a86a20f9469cfc6c, 1001, {"little_endian": True}, bytes([number]) * LARGE))


def safetensors(number):
    header = json.dumps({"w": {"dtype": "U8", "shape": [LARGE], "data_offsets": [0, LARGE]}}, separators=(",", ":")).encode()
    return struct.pack("<Q", len(header)) + header + bytes([number]) * LARGE


def hdf5(number):
    return b"\x89HDF\r\n\x1a\n" + b"\0" * 88 + bytes([number]) * LARGE


def npy(number):
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % LARGE
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes([number]) * LARGE


def npz(number, how=zipfile.ZIP_STORED):
    out = io.BytesIO()
    noise, entry = random.Random(number).randbytes(LARGE), zipfile.ZipInfo("arr_0.npy")
    entry.compress_type = how
    with zipfile.ZipFile(out, "w") as z:
        with z.open(entry, "w", force_zip64=True) as f:
            f.write(npy(number) + noise)
    return out.getvalue()


def data_zip(number):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr(zipfile.ZipInfo("images/0.jpg"), bytes([number]) * LARGE)
        z.writestr(zipfile.ZipInfo("data.pkl"), b"not torch's")
    return out.getvalue()


KINDS = {
    "torch": (torch_zip, "learnt by content: a file of torch.save"),
    "torch-format": (lambda n: torch_zip(n, ".format_version"), "learnt by content: a file of torch.save"),
    "torch-legacy": (torch_pickle, "learnt by content: an old file of torch.save"),
    "tensors": (safetensors, "learnt by content: a safetensors file"),
    "hdf": (hdf5, "learnt by content: an HDF5 file"),
    "array": (npy, "learnt by content: an array of NumPy"),
    "arrays": (npz, "learnt by content: arrays of NumPy"),
    "arrays-deflated": (lambda n: npz(n, zipfile.ZIP_DEFLATED), "learnt by content: arrays of NumPy"),
}
# What begins like something else, or is too small, or is changed in place.
OTHERS = {
    "zip": data_zip,
    "plain-zip": lambda n: torch_zip(n).replace(b"FB", b"XX"),
    "other-zip": lambda n: torch_zip(n, "model.json"),
    "pickle": lambda n: pickle.dumps(bytes([n]) * LARGE, protocol=2),
    "noise": lambda n: random.Random(n).randbytes(1 << 20),
    "text": lambda n: b"step %d loss 0.5\n" % n * 20000,
    "small": lambda n: safetensors(n)[:60000],
    "not-tensors": lambda n: struct.pack("<Q", 1 << 40) + b'{"' + bytes([n]) * LARGE,
}

# Copies the files that were made for it: the first ones, a step, the second ones.
COPIES = STEPS + """
how = sys.argv[1]
def save(source, name):
    data = open(source, "rb").read()
    if how == "stream":
        import ctypes
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        f = ctypes.c_void_p(libc.fopen(name.encode(), b"wb"))
        libc.fwrite(data, ctypes.c_size_t(1), ctypes.c_size_t(len(data)), f)
        libc.fclose(f)
    elif how == "new":
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(fd, data)
        os.close(fd)
    else:
        with open(name, "w+b" if how == "readable" else "wb") as f:
            f.write(data)
            f.flush()
            os.close(os.dup(f.fileno()))
for turn in (1, 2):
    for name in sys.argv[2:]:
        save("../from/%s.%d" % (name, turn), "%s.%d" % (name, turn))
    step("saved")
"""


def offer(place, makers):
    """The bytes that the program is to write lie beside its folder: numbers 1 and 2 of each."""
    os.makedirs(os.path.join(place.root, "from"), exist_ok=True)
    for name, make in makers.items():
        for turn in (1, 2):
            with open(os.path.join(place.root, f"from/{name}.{turn}"), "wb") as f:
                f.write(make(turn))


def shown(place, *names):
    return {os.path.relpath(row["path"], place.work): row for row in json.loads(place.command("show", "--files", "--json", *names).stdout)}


def pause(place):
    """The agent; 0: nothing has been learnt, and there is none."""
    pid = place.agent_pid()
    environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
    while pid:
        stand_still(pid)
        # The agent has just begun: not while it has the table locked, as the command would find it.
        try:
            subprocess.run([os.path.join(os.path.dirname(place.agent), "transpckpt"), "ls", "--files"], env=environment, timeout=3,
                           check=False, stdout=subprocess.DEVNULL)
            break
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGCONT)
    return pid


def resume(agent):
    if agent:
        os.kill(agent, signal.SIGCONT)


def taken(place):
    return sorted(os.path.relpath(row["path"], place.work) for row in place.listed())


def kinds(checks):
    makers = {name: kind[0] for name, kind in KINDS.items()} | OTHERS
    for how in ("write", "stream", "readable", "new"):
        with Place() as place:
            offer(place, makers)
            program = place.start(COPIES, how, *makers)
            told(program, "saved")
            said = shown(place, *(f"{name}.2" for name in makers))
            checks.ok(place.agent_pid() and not place.published() and all(place.content(f"{name}.1") == make(1) for name, make in makers.items()),
                      f"{how}: the first file of each name is written as ever", place.listed())
            agent = pause(place)
            go(program)
            told(program, "saved")
            now = taken(place)
            checks.ok(now == sorted(f"{name}.2" for name in KINDS), f"{how}: the second one is taken if it is a checkpoint, and no other", now)
            checks.ok({r["where"] for r in place.listed()} == {"memory"}, f"{how}: in memory", place.listed())
            checks.ok(sorted(name for name, row in said.items() if row["taken"]) == now and
                      all(said[f"{name}.2"]["why"] == kind[1] for name, kind in KINDS.items()) and
                      all(said[f"{name}.2"]["why"] == "nothing says that it is a checkpoint" for name in OTHERS),
                      f"{how}: which show --files had said, and why", said)
            checks.ok(all(place.content(f"{name}.2") is None for name in KINDS), f"{how}: nobody else sees them yet", place.listing())
            resume(agent)
            until(lambda: not place.listed())
            checks.ok(agent and place.published() == len(KINDS), f"{how}: as many are published", place.rows())
            go(program)
            status, _ = end(program)
            checks.ok(status == 0 and all(place.content(f"{name}.{turn}") == make(turn) for name, make in makers.items() for turn in (1, 2)),
                      f"{how}: all hold what was written", status)


IN_PLACE = STEPS + """
import sqlite3
data = open("../from/tensors.1", "rb").read()
def database(name):
    db = sqlite3.connect(name)
    db.execute("create table t (a blob)")
    db.execute("insert into t values (?)", (data,))
    db.commit(); db.close()
def appended(name):
    open(name, "ab").write(data)
def logged(name):
    open(name, "wb").write(data)
def exclusive(name):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, data); os.close(fd)
def opened_to_change(name):
    if not os.path.exists(name): os.mknod(name)
    with open(name, "r+b") as f: f.write(data)
def read(name):
    if not os.path.exists(name): os.link("../from/tensors.1", name)
    open(name, "rb").read()
def part_of_two(name):
    os.link("../from/hdf.1", "../from/" + name); os.link("../from/" + name, name)
    open(name, "wb").write(data)
def piped(name):
    os.mkfifo(name)
    fd = os.open(name, os.O_RDWR); os.close(fd)
for turn in (1, 2):
    for make in (database, appended, exclusive, opened_to_change, read, part_of_two, piped): make("%s.%d" % (make.__name__, turn))
    logged("events.out.tfevents.%d" % turn); logged("x-%d.log" % turn); logged("x-%d.py" % turn)
    step("saved")
"""


def in_place(checks):
    """What is a checkpoint by its bytes, and is not written as one; what is never one."""
    with Place() as place:
        offer(place, {"tensors": safetensors, "hdf": hdf5})
        program = place.start(IN_PLACE)
        told(program, "saved")
        go(program)
        told(program, "saved")
        learnt = [row for row in shown(place).values() if row["why"].startswith("learnt")]
        checks.ok(not place.agent_pid() and not learnt and len(place.listing()) == 20,
                  "databases, logs, what is appended to, changed in place, read or has several names: none is learnt or taken",
                  learnt, place.listing(), place.log())
        go(program)
        status, _ = end(program)
        with sqlite3.connect(place.path("database.2")) as db:
            checks.ok(status == 0 and db.execute("select a from t").fetchone()[0] == safetensors(1), "and they are right", status)
        db.close()


DEVICE = STEPS + """
import ctypes, mmap
how = sys.argv[1]
cuda, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
def call(name, *arguments):
    rc = getattr(cuda, name)(*arguments)
    assert rc == 0, (name, rc)
BYTES = 1 << 20
context, at = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(BYTES))
memory = mmap.mmap(-1, 2 * BYTES)
whole = (ctypes.c_char * (2 * BYTES)).from_buffer(memory)
state, elsewhere = ctypes.addressof(whole), ctypes.create_string_buffer(BYTES)
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]
def save(name, source, number):
    call("cuMemsetD8_v2", at, ctypes.c_ubyte(number), ctypes.c_size_t(BYTES))
    call("cuMemcpyDtoH_v2", ctypes.c_void_p(state), at, ctypes.c_size_t(BYTES))
    if how == "fwrite":
        f = ctypes.c_void_p(libc.fopen(name.encode(), b"wb"))
        libc.fwrite(b"head", 1, 4, f)
        assert libc.fwrite(ctypes.c_void_p(source), ctypes.c_size_t(1), ctypes.c_size_t(BYTES), f) == BYTES
        libc.fclose(f)
        return
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, b"head")
    if how == "write":
        for begin in range(0, BYTES, BYTES // 4):
            libc.write(fd, ctypes.c_void_p(source + begin), ctypes.c_size_t(BYTES // 4))
    elif how == "pwrite":
        libc.pwrite(fd, ctypes.c_void_p(source), ctypes.c_size_t(BYTES), ctypes.c_long(4))
    else:
        parts = (Part * 2)(Part(ctypes.addressof(elsewhere), 10), Part(source, BYTES))
        libc.writev(fd, parts, 2)
    os.close(fd)
os.mkdir("run")
for turn in (1, 2):
    save("run/step-%d" % turn, state, turn)
    save("run/noise-%d" % turn, ctypes.addressof(elsewhere), turn)
    step("saved")
"""


def on_device(place):
    """With the software device, where it has been built."""
    lib = os.path.join(os.path.abspath(os.environ.get("builddir", ".")), "tests/sim/lib")
    if not os.path.exists(os.path.join(lib, "libcuda.so.1")):
        return False
    place.environment["LD_LIBRARY_PATH"] = lib + (":" + place.environment["LD_LIBRARY_PATH"] if "LD_LIBRARY_PATH" in place.environment else "")
    return True


def device(checks):
    """A binary of its own kind is a checkpoint if it is written from where the device was copied to."""
    for how in ("fwrite", "write", "pwrite", "writev"):
        with Place() as place:
            if not on_device(place):
                print("# no software device: what is written from one is not tried")
                return
            program = place.start(DEVICE, how)
            told(program, "saved")
            said = shown(place, "run/step-2", "run/noise-2")
            checks.ok(not place.published() and len(place.content("run/step-1")) > 1 << 20, f"{how}: the first one is written as ever")
            agent = pause(place)
            go(program)
            told(program, "saved")
            now = taken(place)
            checks.ok(now == ["run/step-2"], f"{how}: a file from a device copy's target is taken, one from elsewhere is not", now)
            checks.ok(said["run/step-2"]["why"] == "learnt: written from a device copy's target" and not said["run/noise-2"]["taken"],
                      f"{how}: which show --files had said", said)
            resume(agent)
            go(program)
            status, _ = end(program)
            data = place.content("run/step-2")
            checks.ok(status == 0 and data[:4] == b"head" and data.endswith(b"\2" * (1 << 20)) and len(place.content("run/noise-2")) == len(data),
                      f"{how}: and holds what the device had", status)


RANK = STEPS + """
step("begin")
open(sys.argv[1], "wb").write(open("../from/tensors.%s" % sys.argv[2], "rb").read())
step("saved")
"""


def others(checks):
    """What one process of the job has learnt, the others know: those that began before, and later ones."""
    with Place() as place:
        offer(place, {"tensors": safetensors})
        elder, first = place.start(RANK, "weights-2", 2), place.start(RANK, "weights-1", 1)
        for program in (elder, first):
            told(program, "begin")
        go(first)
        told(first, "saved")
        time.sleep(0.01)
        agent = pause(place)
        go(elder)
        told(elder, "saved")
        younger = place.start(RANK, "weights-3", 2)
        told(younger, "begin")
        go(younger)
        told(younger, "saved")
        now = taken(place)
        checks.ok(now == ["weights-2", "weights-3"], "what one process learns all of the job know", now)
        # Globs alone.
        place.environment["TRANSPCKPT_FILES"] = "*.pt"
        said = shown(place, "weights-4")["weights-4"]
        plain = place.start(RANK, "weights-4", 1)
        told(plain, "begin")
        go(plain)
        told(plain, "saved")
        checks.ok(not said["taken"] and place.content("weights-4") == safetensors(1) and taken(place) == now,
                  "where TRANSPCKPT_FILES has no auto nothing of it counts", said)
        resume(agent)
        for program in (first, elder, younger, plain):
            go(program)
            end(program)
        checks.ok(place.content("weights-2") == safetensors(2) == place.content("weights-3"), "and their files are whole")


SAVES = STEPS + """
save = lambda i: open("weights", "wb").write(open("../from/tensors.%d" % i, "rb").read())
save(1)
step("first")
for i in range(100000):
    save(2 - i % 2)
    if not i: step("second")
"""


def killed(checks):
    """At a random instant of a later save the path holds one of them."""
    chance = random.Random()
    with Place() as place:
        offer(place, {"tensors": safetensors})
        wrong, seen = [], set()
        for _ in range(12):
            program = place.start(SAVES)
            told(program, "first")
            go(program)
            told(program, "second")
            go(program)
            time.sleep(chance.random() * 0.05)
            program.kill()
            program.wait()
            if place.content("weights") not in (safetensors(1), safetensors(2)):
                wrong.append(len(place.content("weights") or b""))
            until(lambda: not place.listed())
            data = place.content("weights")
            seen.add(data[-1:])
            if data not in (safetensors(1), safetensors(2)):
                wrong.append(len(data))
        checks.ok(not wrong and seen <= {b"\1", b"\2"}, "a program that is killed while it saves again: the path holds the old file or the new one",
                  wrong, seen)


REAL = STEPS + """
import importlib
def have(*names):
    try: return [importlib.import_module(name) for name in names]
    except ImportError: return None
torch, arrays, tensors, h5 = have("torch"), have("numpy"), have("safetensors.numpy", "numpy"), have("h5py", "numpy")
for turn in (1, 2):
    made = []
    def name(what):
        made.append("%s.%d" % (what, turn))
        return made[-1]
    if torch:
        x = torch[0].arange(100000.)
        torch[0].save({"w": x}, name("zip"))
        torch[0].save({"w": x}, name("legacy"), _use_new_zipfile_serialization=False)
        with open(name("stream"), "wb") as f: torch[0].save({"w": x}, f)
    if arrays:
        x = arrays[0].arange(100000.)
        with open(name("array"), "wb") as f: arrays[0].save(f, x)
        with open(name("arrays"), "wb") as f: arrays[0].savez(f, x)
        with open(name("deflated"), "wb") as f: arrays[0].savez_compressed(f, arrays[0].random.rand(100000))
    if tensors:
        with open(name("tensors"), "wb") as f: f.write(tensors[0].save({"w": x}))
    if h5:
        with h5[0].File(name("h5"), "w") as f: f["w"] = x
    print(" ".join(sorted(made)))
    step("saved")
"""


def real_ones(checks):
    """What is written above is what the savers write, where there are some."""
    for name in ("loops", "frameworks"):
        python = os.path.join(CACHE, name, "bin/python")
        if not os.path.exists(python):
            print(f"# {python} is not there: the files of what it has are not tried")
            continue
        with Place(OMP_NUM_THREADS="1") as place:
            program = subprocess.Popen([python, "-u", "-c", REAL], cwd=place.work, text=True, env=place.environment, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
            made = program.stdout.readline().split()
            told(program, "saved")
            checks.ok(made and all(place.content(one) for one in made), f"{name}: the first ones are written as ever", made)
            agent = pause(place)
            go(program)
            made = program.stdout.readline().split()
            told(program, "saved")
            now = taken(place)
            checks.ok(now == made, f"{name}: real savers' files are recognised: {' '.join(made)}", now)
            resume(agent)
            go(program)
            end(program)
            checks.ok(all(place.content(one) for one in made), f"{name}: and published")


def main():
    checks = Checks()
    run_tests(checks, [kinds, in_place, device, others, killed, real_ones])


if __name__ == "__main__":
    main()
