# SPDX-License-Identifier: Apache-2.0
"""The machine that the kit is on: what it has, and where. Nothing but a driver is taken for granted.

In the environment: DRIVER is a folder with a libcuda.so.1 (and more) that comes before what the loader finds; PROGRAMS a folder with
trainers, probes' kernels and digest kernel made elsewhere; TORCH_PYTHON a Python with PyTorch; NVCC a compiler; TIMES how much longer the trainers run than on a slow device."""
import functools
import glob
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile

import stacks

KIT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TESTS = os.path.join(KIT, "tests")
PROGRAMS = os.environ.get("PROGRAMS") or os.path.join(KIT, "programs")
TRAINERS = ("gpt", "classifier", "gan", "rough", "gpt_ranks", "augment.so", "augment-too.so")


def path(*names):
    return os.path.join(KIT, *names)


def probe(name):
    return path("probes", name)


def kernels():
    return os.path.join(PROGRAMS, "kernels.fatbin")


def digest_kernel():
    own = os.path.join(PROGRAMS, "digest.fatbin")
    return own if os.path.exists(own) else path("inst", "lib", "transpckpt", "digest.fatbin")


def use_driver():
    """For this process's children."""
    if os.environ.get("DRIVER"):
        prepend(os.environ, "LD_LIBRARY_PATH", os.environ["DRIVER"])


def prepend(environment, name, folder):
    if folder not in environment.get(name, "").split(":"):
        environment[name] = folder + (":" + environment[name] if environment.get(name) else "")


def said_by(argv, seconds=60):
    """What a command prints; nothing if it fails, or does not come back: it is not waited for then, as it may not end by being killed."""
    with tempfile.TemporaryFile("w+") as out:
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True)
            status = process.wait(seconds)
        except OSError:
            return ""
        except subprocess.TimeoutExpired:
            process.kill()
            return ""
        out.seek(0)
        return out.read().strip() if status == 0 else ""


@functools.lru_cache(None)
def nvcc():
    found = os.environ.get("NVCC") or shutil.which("nvcc")
    for candidate in [found, *sorted(glob.glob("/usr/local/cuda*/bin/nvcc"))]:
        if candidate and said_by([candidate, "--version"]):
            return candidate
    return None


@functools.lru_cache(None)
def torch_python():
    for python in (os.environ.get("TORCH_PYTHON"), shutil.which("python3"), shutil.which("python"), sys.executable):
        if python and said_by([python, "-c", "import torch; print(torch.version.cuda or '')"], 120):
            return python
    return None


@functools.lru_cache(None)
def nccl_folder():
    """Where a libnccl.so.2 is that the loader does not find by itself; empty where it does, None where there is none."""
    if said_by([sys.executable, "-c", "import ctypes; ctypes.CDLL('libnccl.so.2'); print(1)"]):
        return ""
    where = torch_python() and said_by([torch_python(), "-c", "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))"], 120)
    found = glob.glob(os.path.join(where or "/nowhere", "nvidia", "nccl", "lib", "libnccl.so.2"))
    return os.path.dirname(found[0]) if found else None


def free_bytes(folder):
    try:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
    except OSError:
        return 0


def memory_available():
    """Of the machine, and of this process's control group where that has a limit."""
    found = next((int(line.split()[1]) << 10 for line in stacks.read("/proc/meminfo").splitlines() if line.startswith("MemAvailable:")), 0)
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        limit, used = (stacks.read("/sys/fs/cgroup/" + name).strip() for name in (limit, used))
        if limit.isdigit() and used.isdigit():
            found = min(found, max(int(limit) - int(used), 0))
    return found


def limits():
    names = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC, "core": resource.RLIMIT_CORE}
    return {name: resource.getrlimit(which) for name, which in names.items()}


def driver_symbols(library):
    """The functions that a driver exports."""
    names = stacks.Names(library)
    return {name for name, _ in names.symbols if name.startswith("cu") and "." not in name}


def driver_path():
    """The file that libcuda.so.1 is, as a child finds it."""
    return said_by([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1'); "
                    "print(next(l.split()[-1] for l in open('/proc/self/maps') if 'libcuda.so' in l))"])


def facts():
    """Of the machine, without its driver's help."""
    library = driver_path()
    known = {line for line in stacks.read(path("shim", "driver_symbols.txt")).splitlines() if line and not line.startswith("#")}
    exported = driver_symbols(library) if library else set()
    return {
        "kernel": platform.release(), "glibc": " ".join(platform.libc_ver()), "python": platform.python_version(), "cores": os.cpu_count(),
        "memory_available_GiB": round(memory_available() / 2**30, 1), "shm_free_GiB": round(free_bytes("/dev/shm") / 2**30, 1),
        "tmp_free_GiB": round(free_bytes("/tmp") / 2**30, 1), "limits": limits(), "user": os.getuid(),
        "cgroup": stacks.read("/sys/fs/cgroup/memory.max").strip() or "?", "randomised": stacks.read("/proc/sys/kernel/randomize_va_space").strip(),
        "nvidia_smi": said_by(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.free,pcie.link.gen.max,compute_mode,mig.mode.current",
                               "--format=csv,noheader"]),
        "module": stacks.read("/proc/driver/nvidia/version").strip(), "driver": library, "nvcc": nvcc() and said_by([nvcc(), "--version"]).splitlines()[-1],
        "exported": len(exported), "unknown_to_us": sorted(exported - known)[:400],
        "missing_there": sorted(known - exported)[:400] if exported else [],
        "environment": {name: value for name, value in os.environ.items() if name.startswith(("CUDA", "NCCL", "NVIDIA", "LD_", "PYTORCH"))},
    }


def build_folder(work):
    """What the tests take for a build folder: the installed programs, and trainers where those for hardware lie."""
    made = os.path.join(work, "build")
    for folder in ("tests/gpu", "kernels"):
        os.makedirs(os.path.join(made, folder), exist_ok=True)
    wanted = {"transpckpt": path("inst", "bin", "transpckpt"), "transpckptd": path("inst", "bin", "transpckptd"),
              "kernels/digest.fatbin": digest_kernel()}
    for name in TRAINERS:
        wanted["tests/gpu/" + name] = next((p for p in (os.path.join(PROGRAMS, name), path("programs", name)) if os.path.exists(p)), "")
    for name, target in wanted.items():
        place = os.path.join(made, name)
        if os.path.lexists(place):
            os.unlink(place)
        if os.path.exists(target):
            os.symlink(target, place)
    return made


def test_environment(work):
    """For the tests of tests/e2e and tests/torch."""
    environment = {"builddir": build_folder(work), "srcdir": KIT, "DEVICE": "gpu", "PYTHONDONTWRITEBYTECODE": "1",
                   "TPCK_TEST_DATA": path("data.txt"), "TPCK_TEST_TIMES": os.environ.get("TIMES") or "40"}
    if nvcc():
        environment["CUDA_CPPFLAGS"] = "-I" + os.path.join(os.path.dirname(os.path.dirname(nvcc())), "include")
    return environment


if __name__ == "__main__":
    print(json.dumps(facts()))
