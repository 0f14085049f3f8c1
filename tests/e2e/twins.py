# SPDX-License-Identifier: Apache-2.0
"""A program that `transpckpt run --twin` has started: its processes, by what the kernel says of them."""
import os
import re
import signal
import time

import job


def started_at(pid):
    """By the kernel's clock; None: it is not there."""
    fields = job.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None


def processes(start):
    """The living one and its twin, None where there is none. The older one lives. Of a start, or of the supervisor of this number."""
    leader = start if isinstance(start, int) else start.process.pid
    there = sorted((at, pid) for pid in job.children_of(leader) for at in [started_at(pid)] if at is not None)
    return (*(pid for _, pid in there), None, None)[:2]


def living_and_twins(start):
    """Where there may be several twins: the living one, which is what took over last, and those that follow, the one that was made first first."""
    takers = re.findall(r"twin, process (\d+), takes over", start.said())
    there = [pid for _, pid in sorted((at, pid) for pid in job.children_of(start.process.pid) for at in [started_at(pid)] if at is not None)]
    living = next((pid for pid in there if takers and pid == int(takers[-1])), there[0] if there else None)
    return living, [pid for pid in there if pid != living and follows(pid)]


def kill_of_several(start, after=0.0):
    """As kill(), where there may be several twins."""
    if not start.until(lambda: living_and_twins(start)[1]):
        return False
    time.sleep(after)
    living, there = living_and_twins(start)
    if not there or not start.running():
        return False
    job.signal_if_there(living)
    return True


def supervisors(launchers):
    """By rank: what these processes, or what they have started, have started as ranks that may have twins."""
    found, look = {}, list(launchers)
    while look:
        pid = look.pop()
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                rank = [v.partition(b"=")[2] for v in f.read().split(b"\0") if v.partition(b"=")[0] in (b"RANK", b"OMPI_COMM_WORLD_RANK")]
        except OSError:
            continue
        children = job.children_of(pid)
        if rank and children:
            found[int(rank[0])] = pid
        elif not rank:
            look += children
    return found


def all_covered(launchers, ranks):
    """The living ones by rank, where each of so many has a twin that follows; else None."""
    there = {rank: processes(pid) for rank, pid in supervisors(launchers).items()}
    if len(there) < ranks or not all(twin and follows(twin) for _, twin in there.values()):
        return None
    return {rank: living for rank, (living, _) in there.items()}


def follows(pid):
    """Whether the twin runs forward: it has a thread for that."""
    try:
        return any(job.read(f"/proc/{pid}/task/{thread}/comm").strip() == "tpck-twin" for thread in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return False


def covered(start):
    """The living one, where a twin follows it; else None."""
    living, twin = processes(start)
    return living if twin and follows(twin) else None


def covered_below(supervisor):
    """Whether a twin follows the program of a supervisor."""
    twin = processes(supervisor)[1]
    return twin is not None and follows(twin)


def kill(start, after=0.0, number=signal.SIGKILL):
    """Ends the living one once there is a twin that follows, and so many seconds behind that. False: the program ended before."""
    if not start.until(lambda: covered(start)):
        return False
    time.sleep(after)
    living = covered(start)
    if not living or not start.running():
        return False
    job.signal_if_there(living, number)
    return True


def taken_over(start):
    """How often one took over, as it said itself."""
    return len(job.LIVE.findall(start.said()))
