#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 about=5s
"""Holds the rules of the tree: who may include whom, what a file begins with, what the preloaded
library must never call, and that the hook tables and the bodies of the hooks name the same symbols.

  tree.py [SOURCE-FOLDER [BUILD-FOLDER]]    TAP on standard output; a broken rule is one line of file:line
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

SRC = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("srcdir", "."))
BUILD = os.path.realpath(sys.argv[2] if len(sys.argv) > 2 else os.environ.get("builddir", "."))

# What the preloaded library is made of, and the agent; the first ones are in both.
BOTH = {"base", "wire", "view", "reach"}
SHIM_SIDE = BOTH | {"track", "infer", "capture", "replay", "files", "follow", "programs", "network", "twin", "engine"}
AGENT_SIDE = BOTH | {"store", "peer", "policy"}
AGENT_BELOW = {"runtime/" + r for r in AGENT_SIDE} | {"agent/loop", "agent/home", "agent/programs", "agent/files"}

# Who may include whom. A folder may always include itself.
MAY_INCLUDE = {
    "runtime/base": set(),
    "runtime/wire": {"runtime/base"},
    "runtime/view": {"runtime/base", "runtime/wire"},
    "runtime/reach": {"runtime/base", "runtime/wire"},
    "runtime/track": {"runtime/base", "runtime/wire"},
    "runtime/infer": {"runtime/base", "runtime/wire", "runtime/track"},
    "runtime/replay": {"runtime/base", "runtime/wire", "runtime/track"},
    "runtime/files": {"runtime/base", "runtime/wire", "runtime/view", "runtime/reach", "runtime/track"},
    "runtime/follow": {"runtime/base", "runtime/wire", "runtime/track", "runtime/replay", "runtime/files"},
    "runtime/programs": {"runtime/base", "runtime/wire", "runtime/view", "runtime/track", "runtime/replay", "runtime/follow"},
    "runtime/network": {"runtime/base", "runtime/wire", "runtime/view", "runtime/track", "runtime/replay"},
    "runtime/twin": {"runtime/base", "runtime/wire"},
    "runtime/capture": {"runtime/" + r for r in SHIM_SIDE - {"engine", "twin", "follow", "files", "programs", "network", "view", "reach"}},
    "runtime/engine": {"runtime/" + r for r in SHIM_SIDE} | {"kernels"},
    "runtime/policy": {"runtime/base", "runtime/wire"},
    "runtime/store": {"runtime/base", "runtime/wire", "runtime/view", "runtime/policy"},
    "runtime/peer": {"runtime/" + r for r in AGENT_SIDE},
    "kernels": {"runtime/base", "runtime/wire"},
    "shim": {"runtime/base", "runtime/wire", "runtime/track"},
    "hooks": {"runtime/" + r for r in SHIM_SIDE} | {"shim", "kernels"},
    "agent/loop": {"runtime/base"},
    "agent/home": {"runtime/base", "runtime/wire", "runtime/store"},
    "agent/programs": {"runtime/base", "runtime/store", "agent/home"},
    "agent/files": {"runtime/base", "runtime/wire", "runtime/view", "runtime/store", "runtime/peer", "agent/loop", "agent/home"},
    "agent/session": AGENT_BELOW,
    "agent/durable": AGENT_BELOW | {"agent/session"},
    "agent/peers": AGENT_BELOW | {"agent/session"},
    "agent/copies": AGENT_BELOW | {"agent/session", "agent/peers"},
    "agent/twins": AGENT_BELOW | {"agent/session", "agent/peers"},
    "agent/spares": AGENT_BELOW | {"agent/session", "agent/peers", "agent/twins"},
    "agent/hello": AGENT_BELOW | {"agent/session", "agent/peers", "agent/copies", "agent/twins"},
    "agent/accord": AGENT_BELOW | {"agent/session", "agent/durable", "agent/peers", "agent/copies", "agent/hello"},
    "agent/salvage": AGENT_BELOW | {"agent/session", "agent/durable", "agent/peers", "agent/copies", "agent/accord"},
    "tools/agent": AGENT_BELOW | {"agent/session", "agent/durable", "agent/peers", "agent/copies", "agent/twins", "agent/spares", "agent/hello", "agent/accord", "agent/salvage"},
    "tools/cli": {"runtime/" + r for r in AGENT_SIDE | {"infer"}},
    "tools/spank": {"runtime/base", "runtime/wire", "runtime/reach"},
    "tools/standin": {"runtime/base", "runtime/wire"},
}
# Programs that stand by themselves, beside the columns of doc/architecture.md.
OUT_OF_THE_PICTURE = {"tools/spank", "tools/standin"}
SOURCE = (".c", ".h", ".S", ".cu", ".cuh", ".cpp", ".hpp", ".def", ".py", ".sh")
BUILD_FILE = (".inc", ".am", ".ac", ".m4", ".in")
ENDS = {"exit", "abort", "_exit", "_Exit", "quick_exit", "assert", "err", "errx", "raise", "pthread_exit", "__builtin_trap"}
ENDS_BY_NUMBER = {"SYS_exit", "SYS_exit_group", "tpck_sys_exit", "tpck_sys_exit_group"}
# The ends that are there on purpose (see the comments at each).
ENDS_ALLOWED = {
    ("hooks/libc_process.c", "_exit"),           # the hook of that name
    ("hooks/libc_process.c", "_Exit"),
    ("hooks/libc_process.c", "SYS_exit_group"),
    ("runtime/base/kernel.h", "SYS_exit"), ("runtime/base/kernel.h", "SYS_exit_group"),
    ("runtime/base/kernel.h", "tpck_sys_exit"), ("runtime/base/kernel.h", "tpck_sys_exit_group"),
    ("runtime/engine/resume.c", "tpck_sys_exit_group"), # the program cannot be started again and must not go on
    ("runtime/engine/following.c", "tpck_sys_exit_group"), # a twin, which is nobody's program
    ("runtime/programs/undecided.c", "tpck_sys_exit_group"), # a process that a twin has made, which is gone
    ("runtime/twin/supervisor.c", "tpck_sys_exit_group"), # who kept the place of a program that has ended
    ("runtime/base/lock_order.c", "__builtin_trap"), # in builds that look for locks out of order
    ("runtime/reach/reach.c", "tpck_sys_exit"),  # the child that becomes the agent
}


def listing():
    """The files of the project: what git knows or would add, else everything (an unpacked archive)."""
    def git(*words):
        return subprocess.run(("git", "-C", SRC) + words, capture_output=True, text=True, check=False)
    top = git("rev-parse", "--show-toplevel") if shutil.which("git") else None
    if top and top.returncode == 0 and os.path.realpath(top.stdout.strip()) == SRC:
        names = git("ls-files", "-co", "--exclude-standard").stdout.splitlines()
        return sorted(n for n in names if os.path.exists(os.path.join(SRC, n)))
    found = []
    for room in ("runtime", "kernels", "shim", "hooks", "agent", "tools", "tests", "doc", "m4"):
        for folder, folders, names in os.walk(os.path.join(SRC, room)):
            folders[:] = [f for f in folders if not f.startswith(".") and f != "__pycache__"]
            found += [os.path.relpath(os.path.join(folder, n), SRC) for n in names]
    # What autoreconf and a build put among the sources.
    made = re.compile(r"m4/(libtool|lt[^/]*)\.m4$|_stubs\.c$|_(errors|procs)\.inc$|shim/(exports|forwarder_table)\.S$")
    return sorted(n for n in found if not made.search(n))


FILES = listing()
TEXT = {}


def text(name):
    if name not in TEXT:
        with open(os.path.join(SRC, name), encoding="utf-8", errors="replace") as f:
            TEXT[name] = f.read()
    return TEXT[name]


def code(name):
    """The text with comments and string contents blanked; lines keep their numbers."""
    def blank(match):
        keep = "\n" * match.group(0).count("\n")
        return '""' + keep if match.group(0)[0] == '"' else " " + keep
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text(name), flags=re.S)


def room_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] in ("runtime", "agent", "tools") and len(parts) > 1 else parts[0]


def line_at(body, offset):
    return body.count("\n", 0, offset) + 1


# ---- rules: each gives the lines of what breaks it --------------------------------------------------

def rule_include_directions():
    for name in FILES:
        room = room_of(name)
        if not name.endswith((".c", ".h", ".def", ".cu", ".cuh")) or room not in MAY_INCLUDE:
            if name.split("/")[0] in ("runtime", "agent", "tools") and name.endswith((".c", ".h")):
                yield f"{name}: {room} has no row in the table of this lint"
            continue
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', text(name), re.M):
            other = match.group(1)
            if other == "config.h":
                continue
            at = f"{name}:{line_at(text(name), match.start())}"
            if "/" not in other:
                yield f'{at}: "{other}" is not named from the top of the tree'
            elif room_of(other) != room and room_of(other) not in MAY_INCLUDE[room]:
                yield f"{at}: {room} may not know {room_of(other)}"
            elif not os.path.exists(os.path.join(SRC, other)):
                yield f"{at}: {other} is not there"


def rule_table_keeps_the_sides_apart():
    """The table itself: what the two processes share is BOTH."""
    for room, others in MAY_INCLUDE.items():
        here = room.split("/")[-1]
        for other in others:
            there = other.split("/")[-1]
            if room.startswith("runtime/") and other.startswith("runtime/") and here not in BOTH:
                if (here in SHIM_SIDE) != (there in SHIM_SIDE) and there not in BOTH:
                    yield f"{room} on one side may know {other} on the other"
            above = other.split("/")[0] in ("hooks", "tools", "tests")
            if above or (other.startswith("agent/") and not room.startswith(("agent/", "tools/agent"))):
                yield f"{room} may know {other}"


def rule_rooms_are_in_the_architecture():
    """Each has a row in the page's table, and a place in its picture."""
    name = "doc/architecture.md"
    if name not in FILES:
        return
    body = text(name)
    picture = "\n".join(p for p in re.findall(r"^```\n(.*?)^```", body, re.M | re.S) if "runtime/base" in p)
    for room in MAY_INCLUDE:
        if f"\n| `{room}` |" not in body:
            yield f"{name}: the table of rooms has no row for {room}"
        if not re.search(rf"(?<![\w/]){room}(?![\w/])", picture) and room not in OUT_OF_THE_PICTURE:
            yield f"{name}: the picture has no {room}"


def rule_only_hooks_see_the_vendor_header():
    """And the command's probes of a device, which call the driver as a program does."""
    for name in FILES:
        if name.startswith("tools/cli/device/"):
            continue
        if name.split("/")[0] in ("runtime", "shim", "agent", "tools", "kernels") and name.endswith((".c", ".h", ".def")):
            for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+[<"]((?:cuda|nccl|cudart)\w*\.h)[>"]', text(name), re.M):
                yield f"{name}:{line_at(text(name), match.start())}: {match.group(1)} belongs to hooks/"


def rule_config_first():
    for name in FILES:
        if name.endswith(".c") and name.split("/")[0] in ("runtime", "shim", "hooks", "agent", "tools"):
            first = re.search(r'^[ \t]*#[ \t]*(?:include|define)[ \t]+(\S+)', text(name), re.M)
            if not first or first.group(1) != '"config.h"':
                yield f"{name}: config.h is not its first include"


def rule_heads():
    for name in FILES:
        body = text(name)
        if not name.endswith(SOURCE + BUILD_FILE) or not body:
            continue
        lines = body.splitlines()
        if lines[0].startswith("#!"):
            lines = lines[1:]
        if not lines or "SPDX-License-Identifier: Apache-2.0" not in lines[0]:
            yield f"{name}:1: no SPDX line at its head"
        elif name.endswith(SOURCE) and not re.match(r'\s*(/\*|//|#|"""|dnl)', lines[1] if len(lines) > 1 else ""):
            yield f"{name}:2: no sentence on what it is for"


def rule_guards():
    for name in FILES:
        if not name.endswith(".h") or name.split("/")[0] not in ("runtime", "shim", "hooks", "agent", "tools", "kernels"):
            continue
        names = re.findall(r"^#ifndef (\w+)\n#define (\w+)$", text(name), re.M)
        want = re.sub(r"\W", "_", name[:-2]).upper() + "_H"
        if not names or names[0][0] != names[0][1] or names[0][0] != "TPCK_" + want:
            yield f"{name}: its guard is not TPCK_{want}"


def rule_names():
    for name in FILES:
        stem = re.split(r"[/.]", name)
        if {"utils", "util", "misc", "common", "helpers", "helper"} & set(stem):
            yield f"{name}: say what is in it"


def rule_no_two_files_have_the_same_name():
    """So that a name in a comment, a log line or a debugger is of one file. Each program has a main.c; tests may be called as what they test."""
    of = {}
    for name in FILES:
        if name.endswith((".c", ".h")) and not name.startswith("tests/") and os.path.basename(name) != "main.c":
            of.setdefault(os.path.basename(name), []).append(name)
    for name, paths in sorted(of.items()):
        if len(paths) > 1:
            yield f"{', '.join(paths)}: give all but one of them a name of their own, which says what is in it"


# Where the path is the program's or the user's own, who may have a link there.
MADE_THROUGH_LINKS = {
    ("runtime/base/log.c", "O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC"),
    ("runtime/follow/overlay.c", "O_WRONLY | O_CREAT"),
    ("runtime/follow/reconcile.c", "O_RDWR | O_CREAT | O_CLOEXEC"),
    ("runtime/follow/folders.c", "O_WRONLY | O_CREAT | O_CLOEXEC"),
}
# All that these reach is below a descriptor that the door gave.
BEHIND_THE_DOOR = {"runtime/view/view.c": r"AT_FDCWD|\bopen\s*\(|\bmkdir\s*\(", "runtime/store/durable_tier.c": r"\b(open|mkdir|stat|unlink|rename|opendir)\s*\(",
                   "runtime/store/history.c": r"\b(open|mkdir|stat|lstat|unlink|rename|tpck_file_write)\s*\(", "runtime/engine/attach.c": r"AT_FDCWD, engine->keep",
                   "agent/durable/stasher.c": r"\b(open|mkdir|stat|unlink|rename|statvfs)\s*\("}
# Versions and lists of files that are kept in the store, and stashes.
BEHIND_THE_DOOR |= {f"runtime/{name}.c": r"AT_FDCWD, (kept|making|version|name|leaving|tpck_follow_keep|made\.store)\b"
                    for name in ("follow/record", "follow/lists", "follow/leftovers", "follow/learnt", "follow/reconcile", "follow/overlay", "replay/stash")}
# The user's key, and programs that were noted with another one.
BEHIND_THE_DOOR |= {"runtime/base/key.c": r"AT_FDCWD(?!, path, TPCK_DOOR_READ)|\b(open|mkdir|rename|link)\s*\(", "runtime/engine/adopt.c": r"AT_FDCWD|\b(open|opendir|stat|access)\s*\("}
# What agents leave for each other in the store.
BEHIND_THE_DOOR |= {"agent/peers/alone.c": r"\b(open|access|unlink|rename|tpck_file_\w+)\s*\(",
                    "agent/peers/agents_folder.c": r"\b(open|access|unlink|rename|opendir|stat|tpck_file_(read|write))\s*\(",
                    "agent/copies/takeover.c": r"\b(opendir|access|unlink|rename)\s*\((peers\.folder|path|mark|missed)\b",
                    "agent/copies/sent_files.c": r"\b(access|unlink|tpck_file_\w+)\s*\((path|mark)\b",
                    "runtime/peer/rendezvous.c": r"\b(open|opendir|access|unlink|rename|stat|utimensat|tpck_file_(read|write))\s*\("}
BEHIND_THE_DOOR_ALLOWED = re.compile(r"tpck_door_open\(AT_FDCWD|tpck_sys_openat\(AT_FDCWD, path, O_RDONLY \| O_CLOEXEC, 0\)|"
                                     r"tpck_sys_unlinkat\(AT_FDCWD, (bytes|synced)|\{AT_FDCWD, 0\}|tpck_sys_fstatat\(AT_FDCWD, .{1,4}, &root, 0")


def rule_nothing_of_ours_is_made_through_a_link():
    for name in FILES:
        if not name.endswith(".c") or not name.startswith(("runtime/", "agent/", "tools/")):
            continue
        body = code(name)
        for match in re.finditer(r"(?:\bO_\w+ \| )*\bO_CREAT\b(?:\s*\| O_\w+)*", body):
            flags = re.sub(r"\s+", " ", match.group(0))
            before = body[max(0, match.start() - 3):match.start()]
            # A look at flags that somebody gave, not flags of a call.
            if "|" not in flags or re.search(r"[~&(] ?\(?$", before) and "O_WRONLY" not in flags and "O_RDWR" not in flags:
                continue
            if "O_EXCL" not in flags and "O_NOFOLLOW" not in flags and (name, flags) not in MADE_THROUGH_LINKS:
                yield f"{name}:{line_at(body, match.start())}: {flags}: a file of ours is made with O_EXCL or O_NOFOLLOW"
    for name, ways in BEHIND_THE_DOOR.items():
        body = code(name) if name in FILES else ""
        for number, line in enumerate(body.splitlines(), 1):
            if re.search(ways, line) and not BEHIND_THE_DOOR_ALLOWED.search(line):
                yield f"{name}:{number}: not by way of tpck_door_open()"


# What looks at what a job's user names is done by the user: in a user_work (tools/spank/user.h), or in what user_settings.c's calls.
OF_THE_USER = re.compile(r"\b(tpck_settings_read\w*|tpck_settings_shm|tpck_settings_state|tpck_door_\w+|tpck_reach|tpck_reach_connect|opendir|lstat|realpath)\s*\(")
AS_THE_USER = re.compile(r"\(void \*argument, void \*answer\)")


# A tier that is no folder has no such file: tpck_tier_path() and the other verbs (runtime/store/tier.h) say so.
def rule_files_of_a_tier_are_gone_to_by_its_verbs():
    for name in FILES:
        if not name.endswith(".c") or not name.startswith(("agent/", "tools/")):
            continue
        for number, line in enumerate(code(name).splitlines(), 1):
            if re.search(r"\b(snprintf|tpck_path_join)\s*\(.*(tier\w*(\(\)|\[[^]]*\])?|slower)->root\b", line):
                yield f"{name}:{number}: a path below a tier's root is what tpck_tier_path() gives"


def rule_root_opens_nothing_of_a_user_under_slurm():
    for name in FILES:
        if not name.startswith("tools/spank/") or not name.endswith(".c") or name in ("tools/spank/user_settings.c", "tools/spank/task.c"):
            continue
        head = ""
        for number, line in enumerate(code(name).splitlines(), 1):
            if re.match(r"\w.*\)$", line):
                head = line
            if OF_THE_USER.search(line) and not AS_THE_USER.search(head):
                yield f"{name}:{number}: in what user_run() calls only"


def rule_never_ends_its_host():
    for name in FILES:
        room = room_of(name)
        mine = room in ("shim", "hooks", "kernels") or (room.startswith("runtime/") and room[8:] in SHIM_SIDE)
        if not mine or not name.endswith((".c", ".h")):
            continue
        body = code(name)
        for match in re.finditer(r"(?<![\w.>])(\w+)(\s*\()?", body):
            word = match.group(1)
            ends = word in ENDS_BY_NUMBER or (word in ENDS and match.group(2))
            if ends and (name, word) not in ENDS_ALLOWED:
                yield f"{name}:{line_at(body, match.start())}: {word}"


# What libc's function does there besides is meant: a thread with its stack, a walk through folders that the overlay is not told of, a call that the
# program has made by its number, and what the program's stream holds back.
LIBCS_OWN = {("runtime/follow/output.c", "fflush"), ("runtime/track/threads.c", "pthread_create"), ("runtime/follow/temporary.c", "nftw"), ("runtime/follow/syscalls.c", "syscall")}


def rule_the_kernel_is_asked_by_kernel_h():
    """A function of libc's that is hooked would take the library for the program."""
    hooked = {"syscall"} | {name for name, _ in rows(r"TPCK_HOOK_EXPORT\w*", ["hooks/libc.def"])}
    for name in FILES:
        room = room_of(name)
        if not room.startswith("runtime/") or room[8:] not in SHIM_SIDE or not name.endswith((".c", ".h")) or name == "runtime/base/kernel.h":
            continue
        body = code(name)
        for match in re.finditer(r"(?<![\w.>])(\w+)\(", body):
            if match.group(1) in hooked and (name, match.group(1)) not in LIBCS_OWN and not re.search(r"^\w[\w ]*[ *]$", body[body.rfind("\n", 0, match.start()) + 1:match.start()]):
                yield f"{name}:{line_at(body, match.start())}: {match.group(1)}() is hooked: runtime/base/kernel.h asks the kernel itself"


def rows(kind, tables):
    found = []
    for name in tables:
        found += [(m.group(1), name) for m in re.finditer(r"\b(?:" + kind + r")\(\s*(\w+)", code(name))
                  if m.group(1) != "symbol"]
    return found


def rule_tables_and_bodies_agree():
    driver = rows("TPCK_HOOK|TPCK_REFUSE", [n for n in FILES if re.match(r"hooks/cuda_.*\.def$", n)])
    exported = rows("TPCK_HOOK_EXPORT", [n for n in FILES if re.match(r"hooks/.*\.def$", n)])
    used = rows("TPCK_USE", ["hooks/cuda_used.def"])
    sources = [n for n in FILES if re.match(r"(hooks|shim)/.*\.(c|S)$", n)]
    bodies = "\n".join(re.sub(r"/\*.*?\*/", "", text(n), flags=re.S) for n in sources)
    known = set(text("shim/driver_symbols.txt").split())
    symbols = [s for s, _ in driver + exported]
    for symbol, table in driver + used:
        if symbol not in known:
            yield f"{table}: {symbol} is not in shim/driver_symbols.txt"
    for symbol in sorted({s for s in symbols if symbols.count(s) > 1}):
        yield f"{symbol} has two rows"
    visible = set(re.findall(r'(?:TPCK_EXPORT|__attribute__\(\(visibility\("default"\)\)\))\s+[\w *]*?[ *](\w+)\s*\(', bodies))
    doors = "\n".join(code(n) for n in sources if n in ("shim/doors_x86_64.S", "hooks/libc_syscall_x86_64.S"))
    visible |= set(re.findall(r"^\s*\.globl\s+(\w+)", doors, re.M)) - set(re.findall(r"^\s*\.hidden\s+(\w+)", doors, re.M))
    listed = {s for s, _ in exported}
    for symbol in sorted(visible - listed):
        yield f"{symbol} is exported, but has no row in a table"
    for symbol in sorted(listed - visible):
        yield f"{symbol} has a row, but no exported body"


def rule_doctor_asks_for_what_the_library_calls():
    """Each call of the driver that the library makes by itself is one that `transpckpt doctor --device` looks for."""
    tables = {"hooks/cuda_used.def", "hooks/cuda_device.c", "tools/cli/device/driver.def"}
    if not tables <= set(FILES):
        return
    asked = {s for s, _ in rows("TPCK_NEEDED|TPCK_MISSED|TPCK_TRIED", ["tools/cli/device/driver.def"])}
    made = {s: table for s, table in rows("TPCK_USE", ["hooks/cuda_used.def"])}
    made.update({s: "hooks/cuda_device.c" for s in re.findall(r"tpck_cuda\.(cu\w+)|DEVICE_CALL\((cu\w+)", code("hooks/cuda_device.c")) for s in s if s})
    for symbol in sorted(set(made) - asked):
        yield f"{made[symbol]}: {symbol} is not in tools/cli/device/driver.def"


# Names of functions that take bytes apart; and calls by which a file does so by itself, or gets packets.
PARSES = re.compile(r"(?:^|_)(parse|read|decode|split|load|scan|unpack|hear|said|obey|message|learn|arrived)(?:_|$)")
TAKES_APART = re.compile(r"\b(v?sscanf|json_tokener_parse\w*|strtok_r|strtok|strsep|(?:tpck_sys_)?recv(?:msg|from)?)\s*\(")
# Parameters that are bytes, or a structure that begins some.
OF_BYTES = re.compile(r"\b(void|char|uint8_t|unsigned char|struct tpck_(?:record|message|accord_message|peer_message)) \*")
FUZZED_ROOMS = ("runtime/", "hooks/", "shim/", "agent/", "tools/")


def declarations(name):
    """The functions that a header declares: (function, parameters, line)."""
    for match in re.finditer(r"^[A-Za-z_][\w \t]*[\w*][ \t*]+(\w+)\s*\(([^;{}]*?)\)\s*(?:__attribute__\(\(.*?\)\)\s*)?;", code(name), re.M):
        yield match.group(1), re.sub(r"\s+", " ", match.group(2)), line_at(code(name), match.start(1))


def rule_each_parser_is_fuzzed():
    """tests/fuzz/parsers.txt names the target of each parser, or why there is none."""
    table = "tests/fuzz/parsers.txt"
    if table not in FILES:
        yield f"{table} is not there"
        return
    known, declared, calls = {}, {}, {}
    for number, line in enumerate(text(table).splitlines(), 1):
        words = line.split(None, 2)
        if words and not line.startswith("#"):
            known[words[0]] = (words[1] if len(words) > 1 else "", words[2] if len(words) > 2 else "", f"{table}:{number}")
    for name in FILES:
        if name.startswith(FUZZED_ROOMS) and name.endswith(".h"):
            for function, parameters, line in declarations(name):
                declared[function] = name
                if PARSES.search(function) and OF_BYTES.search(parameters) and function not in known:
                    yield f"{name}:{line}: {function} has no line in {table}"
        elif name.startswith(FUZZED_ROOMS) and name.endswith(".c"):
            match = TAKES_APART.search(code(name))
            if match:
                calls[name] = match.group(1)
                if name not in known:
                    yield f"{name}:{line_at(code(name), match.start())}: it calls {match.group(1)}(), and has no line in {table}"
    for what, (target, why, at) in known.items():
        source = f"tests/fuzz/{target}.c"
        if what not in declared and what not in calls:
            yield f"{at}: {what} is no parser any more"
        elif target == "-":
            if not why:
                yield f"{at}: {what} has neither a target nor a reason"
        elif source not in FILES:
            yield f"{at}: there is no {source}"
        elif what in declared and not re.search(r"\b" + what + r"\b", code(source)):
            yield f"{at}: {source} does not call {what}"


def rule_each_target_is_run():
    table = "tests/fuzz/Makefile.inc"
    built = set(re.findall(r"^  tests/fuzz/(\w+)(?: \\)?$", text(table), re.M)) if table in FILES else set()
    for name in FILES:
        match = re.fullmatch(r"tests/fuzz/(\w+)\.c", name)
        if not match or "LLVMFuzzerTestOneInput(const uint8_t" not in code(name):
            continue
        if match.group(1) not in built:
            yield f"{name}: it is not in fuzz_targets of {table}"
        if not any(n.startswith(f"tests/fuzz/corpus/{match.group(1)}/") for n in FILES):
            yield f"{name}: there is no input for it in tests/fuzz/corpus/{match.group(1)}"


def rule_makefiles_have_one_file_a_line():
    """Two who add a file each do not meet in one line."""
    for name in FILES:
        if name.endswith("Makefile.inc"):
            for number, line in enumerate(text(name).splitlines(), 1):
                named = re.findall(r"(?:^|\s)[\w%./-]+\.(?:c|cc|cu|h|cuh|py|sh|def)(?=\s|$)", line)
                if len(named) > (2 if "=" in line else 1) and not line.startswith(("\t", "#")) and ":" not in line:
                    yield f"{name}:{number}: one file a line"


# "This process goes on" says what goes on, "Those that wait" are said by what they do; "This is" and "Those are" leave it open.
PRONOUN = (r"(?:(?:It|Its|They|Their)|(?:This|That|These|Those) (?:is|are|was|were|has|have|had|does|do|did|may|might|can|could|will|would|must|"
           r"should|shall|goes|go|makes|make|takes|take|gives|give|gets|get|needs|need|says|say|holds|hold|keeps|keep|comes|come|stands|stand)) ")


def rule_comments_name_their_subject():
    """A comment that begins with a pronoun speaks of something that stands elsewhere."""
    for name in FILES:
        mark = r"#" if name.endswith((".py", ".sh")) else r"/\*|//"
        if re.search(r"\.(c|cc|cu|h|cuh|def|py|sh)$", name):
            before = ""
            for number, line in enumerate(text(name).splitlines(), 1):
                begins = re.search(rf"(?:^|\s)(?:{mark}) {PRONOUN}", line)
                if begins or before.strip() in ("/*", "/**") and re.match(rf"\s*\* {PRONOUN}", line):
                    yield f"{name}:{number}: a comment begins with a pronoun: say what is meant"
                before = line


# Pages whose text is read from its begin to its end: all of doc/ but the manual pages.
PAGES = (
    "README",
    "doc/architecture.md",
    "doc/bench.md",
    "doc/cluster.md",
    "doc/files.md",
    "doc/format.md",
    "doc/gpu.md",
    "doc/hacking.md",
    "doc/inference.md",
    "doc/install.md",
    "doc/interception.md",
    "doc/limits.md",
    "doc/outside.md",
    "doc/twin.md",
    "doc/ranks.md",
    "doc/record.md",
    "doc/security.md",
    "doc/shown.md",
    "doc/simgpu.md",
    "doc/slurm.md",
    "doc/snapshots.md",
    "doc/store.md",
)
PAGE_BLOCK = 10
PAGE_WIDTH = 120


def blocks_of(name):
    """Paragraphs and items of lists, without headings, tables and code: (line, lines)."""
    block, first, fenced = [], 0, False
    for number, line in enumerate(text(name).splitlines() + [""], 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        indented = not block and line.startswith("    ")
        item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        outside = fence or fenced or indented or not line.strip() or line.startswith(("|", "#", "<!--"))
        if block and (outside or item):
            yield first, block
            block = []
        if not outside:
            first = first if block else number
            block.append(line)


def rule_pages_have_short_blocks():
    for name in PAGES:
        if not os.path.exists(os.path.join(SRC, name)):
            continue
        for first, block in blocks_of(name):
            if len(block) > PAGE_BLOCK:
                yield f"{name}:{first}: a block of {len(block)} lines: {PAGE_BLOCK} at most"
            for number, line in enumerate(block, first):
                if len(line) > PAGE_WIDTH:
                    yield f"{name}:{number}: a line of {len(line)} characters: {PAGE_WIDTH} at most"


def rule_blocks_of_pages_name_their_subject():
    """As comments do; an item of a list may begin with the "its" of what the line above the list names."""
    for name in PAGES:
        if os.path.exists(os.path.join(SRC, name)):
            for first, block in blocks_of(name):
                if re.match(rf"\s*(?:(?:[-*]|\d+\.) )?(?!Its |Their ){PRONOUN}", block[0]):
                    yield f"{name}:{first}: a block begins with a pronoun: say what is meant"


def rule_files_that_pages_name_are_there():
    """Those with a path from the top of the tree; one in capitals is whichever is added."""
    for name in PAGES:
        if not os.path.exists(os.path.join(SRC, name)):
            continue
        for match in re.finditer(r"`((?:runtime|kernels|shim|hooks|tools|tests|m4)/[a-z0-9_./-]+\.[a-z]+)[ `]", text(name)):
            if not os.path.exists(os.path.join(SRC, match.group(1))):
                yield f"{name}:{line_at(text(name), match.start())}: there is no {match.group(1)}"


def rule_pages_that_are_named_are_there():
    """And so is the heading that is named behind one, in quotes."""
    if not any(n.startswith("doc/") for n in FILES):
        return
    for name in FILES:
        if name == "tests/lint/tree_fails.sh" or not name.endswith(SOURCE + BUILD_FILE + (".md", ".txt")) and name not in ("README", "NEWS"):
            continue
        for match in re.finditer(r'\b(doc/\w+\.md)\b(?:, "([^"\n]+)")?', text(name)):
            page, heading = match.groups()
            at = f"{name}:{line_at(text(name), match.start())}"
            if page not in FILES:
                yield f"{at}: there is no {page}"
            elif heading and not re.search(rf"^#+ {re.escape(heading)}$", text(page), re.M):
                yield f"{at}: {page} has no heading \"{heading}\""


def rule_locks_have_a_rank():
    """Each call that waits for a lock is in runtime/base/locks.def by its file and its words, and includes what looks for the order."""
    listed = re.findall(r'^TPCK_LOCK(?:_ALSO)?\(\w+, (?:NULL|"([^"]+)"), "([^"]+)"\)', text("runtime/base/locks.def"), re.M)
    used = set()
    for name in FILES:
        if name.split("/")[0] not in ("runtime", "shim", "hooks", "agent", "tools") or not name.endswith((".c", ".h")):
            continue
        body = code(name)
        for match in re.finditer(r"(?<!\w)(pthread_mutex_lock|tpck_spin_lock|tpck_shared_lock_take)\(([^()]*)\)(?!\s*\{)", body):
            if body[:match.start()].endswith(("define ", "void ", "bool ")):
                continue
            rows = [row for row in listed if row[1] == match[2] and row[0] in ("", name)]
            used.update(rows)
            if not rows:
                yield f"{name}:{line_at(body, match.start())}: {match[2]} has no rank in runtime/base/locks.def"
            if match[1] == "pthread_mutex_lock" and '#include "runtime/base/lock_order.h"' not in text(name):
                yield f"{name}: lock_order.h is not included, so that its locks are not seen"
    yield from (f"runtime/base/locks.def: nothing takes {lock} in {file or 'any file'}" for file, lock in listed
                if (file, lock) not in used and f"TPCK_LOCK_WAITS({lock})" not in "".join(text(n) for n in FILES if n == file))


def rule_headers_compile_alone():
    compiler = shlex.split(os.environ.get("CC", "cc"))
    cuda = shlex.split(os.environ.get("CUDA_CPPFLAGS", ""))
    if not shutil.which(compiler[0]):
        return
    headers = [n for n in FILES if n.endswith(".h") and n.split("/")[0] in ("runtime", "shim", "hooks", "agent", "tools", "kernels")]

    def compile_one(name):
        done = subprocess.run(compiler + ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                                          "-I" + SRC, "-I" + BUILD] + cuda + ["-x", "c", "-"],
                              input=f'#include "{name}"\n', capture_output=True, text=True, check=False)
        errors = [line for line in done.stderr.splitlines() if "error:" in line] or [done.stderr.strip()]
        return f"{name}: {errors[0]}" if done.returncode else None

    with ThreadPoolExecutor(2) as pool:
        yield from filter(None, pool.map(compile_one, headers))


def rule_shell_scripts():
    scripts = [n for n in FILES if n.endswith((".sh", ".in")) and re.match(r"(#!/bin/sh|# SPDX[^\n]*\n# shellcheck)", text(n))]
    if not shutil.which("shellcheck"):
        return
    done = subprocess.run(["shellcheck", "-f", "gcc", "-x", "-P", "SCRIPTDIR"] + scripts, cwd=SRC, capture_output=True,
                          text=True, check=False)
    yield from done.stdout.splitlines()


def main():
    rules = [(n[5:].replace("_", " "), f) for n, f in globals().items() if n.startswith("rule_")]
    failed = 0
    for number, (what, rule) in enumerate(rules, 1):
        broken = list(rule())
        print(f"{'not ok' if broken else 'ok'} {number} - {what}")
        for line in broken:
            print(f"#   {line}")
        failed += bool(broken)
    print(f"1..{len(rules)}")
    return 1 if failed else 0


sys.exit(main())
