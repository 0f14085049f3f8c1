# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder have in common: how they are told what to do, and how they are looked at.

A program has run(first, last), which saves numbers as its users do, and look(), which says of the working folder what a
reader would find: a list of (what, number), number being the one in all of its tensors, or a text that says what is
wrong.
"""
import os
import sys


class Torn(Exception):
    pass


def number(tensors):
    """The number that each element of each tensor is."""
    values = set()
    for tensor in tensors:
        flat = tensor.reshape(-1)
        low, high = float(flat.min()), float(flat.max())
        values |= {low, high}
    if len(values) != 1:
        raise Torn(f"holds {sorted(values)}")
    return int(values.pop())


def there(pattern):
    """What matches, in the order of the numbers in the names."""
    import glob
    import re
    return sorted(glob.glob(pattern), key=lambda name: [int(d) for d in re.findall(r"\d+", name)])


def unless_gone(path, load):
    """What is removed while it is looked at is not there."""
    try:
        return [(path, load(path))]
    except BaseException:  # pylint: disable=broad-except
        if not os.path.exists(path):
            return []
        raise


def pointed(pointer, load):
    """What a pointer file names: its number; what it names is there, unless it points elsewhere by now."""
    while os.path.exists(pointer):
        with open(pointer, encoding="utf-8") as f:
            target = f.read()
        try:
            return [(f"{pointer}: {target}", load(target))]
        except BaseException as error:  # pylint: disable=broad-except
            with open(pointer, encoding="utf-8") as f:
                if f.read() == target:
                    raise Torn(f"{pointer} says {target!r}: {error}") from error
    return []


def linked(link, load):
    """The same of a symbolic link, which may be removed before the next one is made."""
    while True:
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            return []
        try:
            return [(f"{link}: {target}", load(os.path.join(os.path.dirname(link), target)))]
        except BaseException as error:  # pylint: disable=broad-except
            if os.path.islink(link) and os.readlink(link) == target:
                raise Torn(f"{link} leads to {target!r}: {error}") from error


def main(run):
    """PROGRAM FIRST LAST runs and ends. Without numbers they come from stdin, behind "fork" or "here"."""
    if len(sys.argv) > 1:
        print("begun", flush=True)
        return run(int(sys.argv[1]), int(sys.argv[2]))
    print("ready", flush=True)
    for line in sys.stdin:
        how, first, last = line.split()
        child = os.fork() if how == "fork" else 0
        if not child:
            print(f"begun {os.getpid()}", flush=True)
            run(int(first), int(last))
            print("over", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("ended", flush=True)
    return None


def each(save):
    def run(first, last):
        for i in range(first, last + 1):
            save(i)
    return run


if __name__ == "__main__":
    # The one who looks: lines of "look PROGRAM FOLDER" come in, one of JSON goes out. "run PROGRAM FOLDER FIRST LAST" is
    # the program in a process of its own.
    import importlib
    import json
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    for line in sys.stdin:
        what, program, folder, *numbers = line.split()
        os.chdir(folder)
        found = 0
        try:
            module = importlib.import_module(program)
            if what == "look":
                found = module.look()
            else:
                child = os.fork()
                if not child:
                    module.run(*map(int, numbers))
                    sys.stdout.flush()
                    os._exit(0)
                found = os.waitpid(child, 0)[1]
        except BaseException as error:  # pylint: disable=broad-except
            if what != "look":
                raise
            found = [["all", f"{type(error).__name__}: {error}"]]
        print("seen " + json.dumps(found), flush=True)
