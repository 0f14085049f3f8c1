#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A root folder with glibc, its loader, a shell, a few commands and Python, and nothing else: bare_root.py ROOT [MORE-LIBRARY-OF]...

For a chroot in a mount namespace of its own. Of a program that is named the libraries of the compiler (libstdc++, libgcc) come along."""
import os
import shutil
import subprocess
import sys

# What the kit's modules and the tests import.
IMPORTS = ("argparse bisect concurrent.futures contextlib ctypes fcntl fnmatch functools glob hashlib importlib json math os platform random re resource select "
           "shutil signal socket struct subprocess tempfile threading time traceback")
COMMANDS = ("sh", "mkdir", "rm", "cat", "ls", "mount", "dirname", "env", "true", "sleep")


def libraries(program):
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]


def put(root, path, at=None):
    target = root + (at or path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not os.path.exists(target):
        shutil.copy(os.path.realpath(path), target)


def bind(root, path):
    os.makedirs(root + path, exist_ok=True)
    subprocess.run(["mount", "--bind", path, root + path], check=True)


def python(root):
    """The interpreter, where it is, its modules, and what those are linked to."""
    look = f"import {IMPORTS.replace(' ', ', ')}, sys; print(*sys.path, sep='\\n'); print(*{{l.split()[-1] for l in open('/proc/self/maps') if '.so' in l}}, sep='\\n')"
    said = subprocess.run([sys.executable, "-I", "-c", look], capture_output=True, text=True, check=True).stdout.splitlines()
    modules = [p for p in said if os.path.isdir(p) and p.startswith(sys.base_prefix) and "site-packages" not in p]
    for path in (sys.executable, os.path.realpath(sys.executable)):
        put(root, path)
    for loaded in (sys.executable, *[p for p in said if ".so" in p]):
        for library in libraries(loaded):
            put(root, library)
    for folder in sorted(modules):
        if not os.path.exists(root + folder):
            bind(root, folder)
    os.makedirs(root + "/bin", exist_ok=True)
    os.symlink(os.path.realpath(sys.executable), root + "/bin/python3")


def main():
    root = os.path.realpath(sys.argv[1])
    for command in COMMANDS:
        path = shutil.which(command)
        put(root, path, "/bin/" + command)
        for library in libraries(path):
            put(root, library)
    for program in sys.argv[2:]:
        for library in libraries(program):
            if os.path.basename(library).startswith(("libstdc++", "libgcc_s", "libm.", "libc.", "ld-linux")):
                put(root, library)
    # Small parts of glibc that programs name, though all is in libc by now.
    libc = next(p for p in libraries(shutil.which("sh")) if os.path.basename(p).startswith("libc."))
    for name in ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"):
        put(root, os.path.join(os.path.dirname(libc), name))
    python(root)
    for folder in ("/tmp", "/dev/shm", "/etc", "/proc"):
        os.makedirs(root + folder, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g,mode=1777", "tmpfs", root + "/dev/shm"], check=True)
    subprocess.run(["mount", "--bind", "/proc", root + "/proc"], check=True)
    for name in ("null", "zero", "urandom", "random"):
        open(root + "/dev/" + name, "w", encoding="ascii").close()
        subprocess.run(["mount", "--bind", "/dev/" + name, root + "/dev/" + name], check=True)


main()
