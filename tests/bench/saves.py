# SPDX-License-Identifier: Apache-2.0
"""One process of the rows `saves`: what a save costs, in this process as it was started. Arguments: what to measure,
MiB, folder. Prints JSON. It knows nothing of the library."""
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch


def timed(what):
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def state(mib):
    tensors = 8
    return {f"t{i}": torch.randn(mib * (1 << 20) // 4 // tensors) for i in range(tensors)}


def warm_copy(mib, shm):
    """Into pages that are there and have been used."""
    path, data = os.path.join(shm, "warm"), torch.ones(mib << 20, dtype=torch.uint8)
    with open(path, "wb+") as f:
        f.truncate(mib << 20)
        into = torch.frombuffer(mmap.mmap(f.fileno(), mib << 20), dtype=torch.uint8)
        times = [timed(lambda: into.copy_(data)) for _ in range(3)][1:]
    os.unlink(path)
    return times


def saves(mib, folder, count, pause):
    """Each by another name of the same pattern, as checkpoints are; the first is not counted."""
    kept, stall, durable, huge = state(mib), [], [], 0
    for i in range(count):
        path = os.path.join(folder, f"step-{i}.pt")
        begun = time.perf_counter()
        torch.save(kept, path)
        stall.append(time.perf_counter() - begun)
        # Behind a sync of its folder it is at its path and on the disk, whoever puts it there; plain, the file first.
        if not os.environ.get("LD_PRELOAD"):
            sync(path)
        sync(folder)
        durable.append(time.perf_counter() - begun)
        if i:
            os.unlink(os.path.join(folder, f"step-{i - 1}.pt"))
        time.sleep(pause)
        with open("/proc/meminfo", encoding="ascii") as f:
            huge = max(huge, *(int(line.split()[1]) for line in f if line.startswith("ShmemHugePages")))
    return {"stall": stall[1:], "durable": durable[1:], "huge": huge}


def each_save(save, folder, count, pause):
    """Stall, and time until all of it is on the disk, of a save into one file or one folder per step; the first is not counted."""
    stall, durable = [], []
    for i in range(count):
        path = os.path.join(folder, f"step-{i}")
        begun = time.perf_counter()
        save(path)
        stall.append(time.perf_counter() - begun)
        for at, _, names in os.walk(folder):
            for name in names:
                sync(os.path.join(at, name))
            sync(at)
        durable.append(time.perf_counter() - begun)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(next(p for p in (path, path + ".safetensors") if os.path.exists(p)))
        time.sleep(pause)
    return {"stall": stall[1:], "durable": durable[1:]}


def safetensors_saves(mib, folder, count, pause):
    try:
        from safetensors.torch import save_file
    except ImportError:
        return {"stall": [], "durable": []}
    kept = state(mib)
    return each_save(lambda path: save_file(kept, path + ".safetensors"), folder, count, pause)


def dcp_saves(mib, folder, count, pause, alone):
    """`alone`: async_save's own stall, which is until it returns."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    dist.init_process_group("gloo", init_method=f"file://{folder}/../meet-{os.getpid()}", rank=0, world_size=1)
    kept, stall = state(mib), []
    if not alone:
        return each_save(lambda path: dcp.save(kept, checkpoint_id=path), folder, count, pause)
    for i in range(count):
        begun = time.perf_counter()
        future = dcp.async_save(kept, checkpoint_id=os.path.join(folder, f"step-{i}"))
        stall.append(time.perf_counter() - begun)
        future.result()
        shutil.rmtree(os.path.join(folder, f"step-{i}"))
    return {"stall": stall[1:]}


def loads(mib, folder):
    """Reads what was saved a moment ago: plain from the page cache, else while it is in memory alone."""
    path, buffer, seconds, memory = os.path.join(folder, "step-0.pt"), bytearray(8 << 20), [], 0
    kept = state(mib)
    for _ in range(4):
        torch.save(kept, path)
        with open(path, "rb", buffering=0) as f:
            memory += not os.readlink(f"/proc/self/fd/{f.fileno()}").startswith(os.path.realpath(folder))
            begun = time.perf_counter()
            while f.readinto(buffer):
                pass
            seconds.append(time.perf_counter() - begun)
    return {"seconds": seconds, "in memory": memory}


def cold_loads(mib, folder):
    """Opens and reads what was saved, is on the disk, and is not in the page cache any more."""
    buffer, seconds, memory = bytearray(8 << 20), [], 0
    kept = state(mib)
    for i in range(5):
        path = os.path.join(folder, f"step-{i}.pt")
        torch.save(kept, path)
        sync(path)
        sync(folder)
        time.sleep(1 + mib / 400)
        # By a program that is not of the job, which opens the file itself.
        subprocess.run(["dd", f"if={path}", "iflag=nocache", "count=0"], env={"PATH": os.environ["PATH"]}, stderr=subprocess.DEVNULL, check=True)
        begun = time.perf_counter()
        with open(path, "rb", buffering=0) as f:
            memory += i > 0 and not os.readlink(f"/proc/self/fd/{f.fileno()}").startswith(os.path.realpath(folder))
            while f.readinto(buffer):
                pass
        seconds.append(time.perf_counter() - begun)
    return {"seconds": seconds[1:], "in memory": memory}


def null(mib):
    kept = state(mib)
    return [timed(lambda: torch.save(kept, "/dev/null")) for _ in range(4)][1:]


def fresh(mib, shm):
    """Into a file on tmpfs that is not there yet: its pages are found while it waits."""
    kept, found, path = state(mib), [], os.path.join(shm, "fresh.bin")
    for _ in range(3):
        found.append(timed(lambda: torch.save(kept, path)))
        os.unlink(path)
    return found


def calls(folder):
    """Nanoseconds of stat and open of a file that nobody takes, while nothing is pending and while something is."""
    path, rounds, found = os.path.join(folder, "plain.txt"), 20000, {}
    with open(path, "w", encoding="utf-8"):
        pass

    def stat():
        for _ in range(rounds):
            os.stat(path)

    def both():
        for _ in range(rounds // 4):
            os.close(os.open(path, os.O_RDONLY))

    def writes(fd):
        for _ in range(rounds):
            os.write(fd, b"x")

    # Each path once, as who lists a data set does: their entries are in the kernel's memory.
    several = [os.path.join(folder, "set", f"{i:05}") for i in range(4000)]
    os.makedirs(os.path.join(folder, "set"), exist_ok=True)
    for one in several:
        if not os.path.exists(one):
            os.close(os.open(one, os.O_WRONLY | os.O_CREAT, 0o600))
    subprocess.run(["ls", "-l", os.path.join(folder, "set")], stdout=subprocess.DEVNULL, check=True)
    time.sleep(0.1)  # what was looked at a moment ago would be known

    def first_stat():
        for one in several:
            os.lstat(one)

    def first_open():
        for one in several:
            os.close(os.open(one, os.O_RDONLY))

    found["lstat, each path once"] = timed(first_stat) / len(several) * 1e9
    time.sleep(0.1)
    found["open+close, each path once"] = timed(first_open) / len(several) * 1e9
    for state_of in ("idle", "pending"):
        held = open(os.path.join(folder, "held.pt"), "wb") if state_of == "pending" else None
        found["stat " + state_of] = statistics.median(timed(stat) for _ in range(7)) / rounds * 1e9
        with open(path, "ab", buffering=0) as f:
            found["write " + state_of] = statistics.median(timed(lambda: writes(f.fileno())) for _ in range(7)) / rounds * 1e9
        found["open+close " + state_of] = statistics.median(timed(both) for _ in range(7)) / (rounds // 4) * 1e9
        if held:
            held.close()
    return found


def main():
    what, mib, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    print(json.dumps({
        "warm": lambda: warm_copy(mib, folder), "null": lambda: null(mib), "fresh": lambda: fresh(mib, folder),
        "saves": lambda: saves(mib, folder, 5, 1 + mib / 150), "calls": lambda: calls(folder), "load": lambda: loads(mib, folder),
        "cold": lambda: cold_loads(mib, folder),
        "safetensors": lambda: safetensors_saves(mib, folder, 3, 1 + mib / 400),
        "dcp": lambda: dcp_saves(mib, folder, 3, 0, True), "dcp_save": lambda: dcp_saves(mib, folder, 3, 1 + mib / 400, False),
    }[what]()))


main()
