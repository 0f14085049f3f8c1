# SPDX-License-Identifier: Apache-2.0
"""Where the threads of a process are that does not come back, without a debugger: what the kernel says of each, and the return
addresses on its stack with the names of their functions. stacks.py PID...: a line of JSON for each; the processes are stopped, and stay so."""
import bisect
import json
import os
import signal
import struct
import sys
import time

FRAMES, STACK_BYTES = 30, 64 << 10
SYSCALLS = {0: "read", 1: "write", 7: "poll", 16: "ioctl", 23: "select", 24: "sched_yield", 34: "pause", 35: "nanosleep", 61: "wait4",
            202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait"}


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


class Names:
    """The functions of one ELF file, by address."""

    known = {}

    def __init__(self, path):
        self.loads, symbols = [], {}
        try:
            with open(path, "rb") as f:
                self.read_file(f, symbols)
        except (OSError, struct.error, MemoryError):
            pass
        self.starts = sorted(symbols)
        self.symbols = [symbols[start] for start in self.starts]

    def read_file(self, f, symbols):
        head = f.read(64)
        if head[:5] != b"\x7fELF\x02":
            return
        phoff, shoff = struct.unpack_from("<QQ", head, 32)
        phsize, phcount, shsize, shcount = struct.unpack_from("<HHHH", head, 54)
        f.seek(phoff)
        table = f.read(phsize * phcount)
        for i in range(phcount):
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", table, i * phsize)
            if kind == 1:
                self.loads.append((offset, address, size))
        f.seek(shoff)
        table = f.read(shsize * shcount)
        sections = [struct.unpack_from("<IIQQQQIIQQ", table, i * shsize) for i in range(shcount)]
        for _, kind, _, _, offset, size, link, *_ in sections:
            if kind in (2, 11):  # the symbols, all or those that others see
                f.seek(sections[link][4])
                strings = f.read(sections[link][5])
                f.seek(offset)
                for name, info, _, section, value, length in struct.iter_unpack("<IBBHQQ", f.read(size - size % 24)):
                    if info & 15 == 2 and section:
                        symbols[value] = (strings[name:strings.find(b"\0", name)].decode(errors="replace"), length)

    def at(self, offset):
        """`function+distance` of a place in the file, or nothing."""
        address = next((offset - begin + at for begin, at, size in self.loads if begin <= offset < begin + size), None)
        if address is None:
            return ""
        i = bisect.bisect_right(self.starts, address) - 1
        if i < 0:
            return ""
        name, length = self.symbols[i]
        distance = address - self.starts[i]
        return f"{name}+{distance:#x}" if distance < max(length, 1) else ""

    @classmethod
    def of(cls, path):
        if path not in cls.known:
            cls.known[path] = cls(path)
        return cls.known[path]


class Memory:
    """What a stopped process has mapped."""

    def __init__(self, pid):
        self.pid, self.code = pid, []
        for line in read(f"/proc/{pid}/maps").splitlines():
            fields = line.split(None, 5)
            if "x" in fields[1]:
                begin, end = (int(x, 16) for x in fields[0].split("-"))
                self.code.append((begin, end, int(fields[2], 16), fields[5] if len(fields) > 5 else "[no file]"))
        try:
            self.file = open(f"/proc/{pid}/mem", "rb", 0)
        except OSError:
            self.file = None

    def bytes(self, at, size):
        """As many as there are, up to the size."""
        while self.file and size > 0:
            try:
                self.file.seek(at)
                return self.file.read(size)
            except (OSError, ValueError, OverflowError):
                size //= 2
        return b""

    def name(self, address):
        for begin, end, offset, path in self.code:
            if begin <= address < end:
                place = address - begin + offset
                inside = f"/proc/{self.pid}/root{path}" if path.startswith("/") else ""
                function = Names.of(inside).at(place) if inside else ""
                return f"{os.path.basename(path)}:{function or hex(place)}"
        return None

    def is_return_address(self, address):
        """Whether what lies in front of it is a call."""
        if not any(begin < address < end for begin, end, *_ in self.code):
            return False
        before = self.bytes(address - 7, 7)
        return len(before) == 7 and (before[2] == 0xe8 or any(before[i] == 0xff and before[i + 1] >> 3 & 7 == 2 for i in (0, 1, 4, 5)))

    def frames(self, sp, pc):
        found = [self.name(pc) or hex(pc)]
        for word, in struct.iter_unpack("<Q", (lambda b: b[:len(b) & ~7])(self.bytes(sp, STACK_BYTES))):
            if self.is_return_address(word):
                found.append(self.name(word))
                if len(found) >= FRAMES:
                    break
        return found


def fields(pid, task):
    """State, and processor time in ticks."""
    found = read(f"/proc/{pid}/task/{task}/stat").rpartition(")")[2].split()
    return (found[0], int(found[11]) + int(found[12])) if len(found) > 12 else ("gone", 0)


def thread(memory, pid, task, before):
    found = {"tid": int(task), "name": read(f"/proc/{pid}/task/{task}/comm").strip(), **before.get((pid, task), {})}
    words = read(f"/proc/{pid}/task/{task}/syscall").split()
    if len(words) >= 3:
        number = int(words[0])
        found["call"] = "none" if number < 0 else SYSCALLS.get(number, str(number))
        found["frames"] = memory.frames(int(words[-2], 16), int(words[-1], 16))
    else:
        found["call"] = " ".join(words) or "not told"
    kernel = read(f"/proc/{pid}/task/{task}/stack").split("\n")
    if kernel[0]:
        found["kernel"] = [line.split("] ")[-1] for line in kernel if line][:8]
    return found


def tasks(pid):
    try:
        return sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        return []


def collect(pids):
    """Each process with all its threads; they are stopped."""
    before = {}
    for pid in pids:
        for task in tasks(pid):
            state, ticks = fields(pid, task)
            before[pid, task] = {"state": state, "ticks": ticks, "wchan": read(f"/proc/{pid}/task/{task}/wchan")}
    time.sleep(0.2)
    for key, what in before.items():
        what["busy"] = fields(*key)[1] > what.pop("ticks") + 5  # most of a fifth of a second
    for pid in pids:
        try:
            os.kill(pid, signal.SIGSTOP)
        except OSError:
            pass
    until = time.monotonic() + 1
    while time.monotonic() < until and any(fields(pid, task)[0] == "R" for pid in pids for task in tasks(pid)):
        time.sleep(0.01)
    for pid in sorted(pids):
        memory = Memory(pid)
        command = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:300]
        yield {"pid": pid, "command": command, "threads": [thread(memory, pid, task, before) for task in tasks(pid)[:64]]}
        if memory.file:
            memory.file.close()


def text(processes):
    """For a page: programs that are busy first, and agents last."""
    lines = []
    for process in sorted(processes, key=lambda p: ("transpckptd" in p["command"], not any(one.get("busy") for one in p["threads"]))):
        lines.append(f"{process['pid']} {process['command']}")
        for one in process["threads"]:
            lines.append(f"  {one['tid']} {one['name']}: {one.get('state', '?')}{', busy' if one.get('busy') else ''}, in {one['call']}")
            lines += [f"    {frame}" for frame in one.get("frames", [])[:12]]
    return lines


if __name__ == "__main__":
    for one_process in collect({int(word) for word in sys.argv[1:]}):
        print(json.dumps(one_process), flush=True)
