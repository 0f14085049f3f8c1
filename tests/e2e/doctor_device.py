#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.4 about=25s
"""transpckpt doctor --device: on a device that does what is asked of it all is good. Where one call is missing, refused, done wrongly, never ends or
crashes, a line says so, weighed by what it means for snapshots, and everything else is tried all the same; nothing is left of what was tried."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import digests
import job

PROBES = ["driver", "calls", "doors", "address range", "mapped memory", "pinned images", "names of kernels", "digest kernel", "waits for events",
          "first launch", "many launches", "pageable copies", "memory calls", "waiting", "waits on memory"]
# Further rows of probes.
ROWS = ["device", "module loading", "connections", "newer calls", "network's adapter", "copies", "parameters", "legacy stream"]

# A driver between the program and simgpu's: STUB=hang:NAME, crash:NAME, refuse:NAME (not supported), skip:NAME (success, and nothing is
# done), full:NAME (out of memory).
STUB = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const char *const stub_names[];
extern void *stub_table[];
static void *driver;

static int hang(void) { for (;;) pause(); }
static int crash(void) { raise_it: *(volatile int *)8 = 1; goto raise_it; }
static int refuse(void) { return 801; }
static int skip(void) { return 0; }
static int full(void) { return 2; }

/* The next word is never written. */
static int wait_past(void *stream, unsigned long long at, unsigned value, unsigned flags)
{
	int (*real)(void *, unsigned long long, unsigned, unsigned) = dlsym(driver, "cuStreamWaitValue32_v2");

	return real(stream, at >= 0x4a0000000000 ? at + 64 : at, value, flags);
}

/* Memory is refused to the second device. */
static int second(unsigned long long at, size_t bytes, const int *access, size_t count)
{
	int (*real)(unsigned long long, size_t, const int *, size_t) = dlsym(driver, "cuMemSetAccess");

	return access[1] == 1 ? 801 : real(at, bytes, access, count);
}

/* Kernels reach ordinary memory. */
static int ordinary(int *value, int what, int device)
{
	int (*real)(int *, int, int) = dlsym(driver, "cuDeviceGetAttribute");
	int result = real(value, what, device);

	if (what == 88)
		*value = 1;
	return result;
}

/* A way of its own to one call. */
static int elsewhere(const char *name, void **found, int version, unsigned long long flags, void *status)
{
	int (*real)(const char *, void **, int, unsigned long long, void *) = dlsym(driver, "cuGetProcAddress_v2");
	int result = real(name, found, version, flags, status);

	if (!strcmp(name, "cuLaunchKernel"))
		*found = skip;
	return result;
}

__attribute__((constructor)) static void fill(void)
{
	static const struct { const char *word; void *body; } bodies[] = {
		{"hang:", hang}, {"crash:", crash}, {"refuse:", refuse}, {"skip:", skip}, {"full:", full}, {"past:", wait_past}, {"elsewhere:", elsewhere}, {"ordinary:", ordinary}, {"second:", second}};
	const char *wanted = getenv("STUB");

	driver = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; stub_names[i]; i++) {
		stub_table[i] = dlsym(driver, stub_names[i]);
		for (size_t b = 0; wanted && b < sizeof bodies / sizeof *bodies; b++)
			if (!strncmp(wanted, bodies[b].word, strlen(bodies[b].word)) && !strcmp(wanted + strlen(bodies[b].word), stub_names[i]))
				stub_table[i] = bodies[b].body;
	}
}
"""


def stub(place, folder, missing=()):
    """The folder of such a driver; without the calls `missing`."""
    real = os.path.join(place.build, "tests/sim/lib/libcuda.so.1")
    listed = subprocess.run(["nm", "-D", "--defined-only", real], capture_output=True, text=True, check=True).stdout
    names = sorted({line.split()[-1] for line in listed.splitlines() if line.split()[-1].startswith("cu")} - set(missing))
    path = os.path.join(place.root, folder)
    os.mkdir(path)
    with open(os.path.join(path, "stub.c"), "w", encoding="ascii") as f:
        f.write(STUB)
    with open(os.path.join(path, "stub_table.S"), "w", encoding="ascii") as f:
        f.write("\t.text\n")
        for i, name in enumerate(names):
            f.write(f"\t.globl {name}\n\t.type {name}, @function\n{name}:\n\tjmp *stub_table+{8 * i}(%rip)\n\t.size {name}, . - {name}\n")
        f.write("\t.section .rodata\n" + "".join(f"name_{i}:\t.asciz \"{name}\"\n" for i, name in enumerate(names)))
        f.write("\t.data\n\t.balign 8\n\t.globl stub_names, stub_table\n\t.hidden stub_names, stub_table\nstub_names:\n")
        f.write("".join(f"\t.quad name_{i}\n" for i in range(len(names))) + f"\t.quad 0\nstub_table:\n\t.zero {8 * len(names)}\n")
        f.write("\t.section .note.GNU-stack,\"\",@progbits\n")
    subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-O1", "-w", f'-DREAL="{real}"', "-Wl,-soname,libcuda.so.1", "-o",
                    os.path.join(path, "libcuda.so.1"), os.path.join(path, "stub.c"), os.path.join(path, "stub_table.S"), "-ldl"], check=True)
    return path


def installed(place):
    """The command with the library and its files beside it, as after `make install`."""
    folder = os.path.join(place.root, "bin")
    os.makedirs(os.path.join(folder, ".libs/transpckpt"))
    shutil.copy(os.path.join(place.build, "transpckpt"), folder)
    for name, of in (("libtranspckpt.so", ".libs/libtranspckpt.so"), ("transpckpt/libcuda.so.1", "shim/lib/transpckpt/libcuda.so.1"),
                     ("transpckpt/digest.simgpu", "kernels/digest.simgpu")):
        os.symlink(os.path.join(place.build, of), os.path.join(folder, ".libs", name))
    place.environment.pop("TRANSPCKPT_KERNELS", None)
    return os.path.join(folder, "transpckpt")


class Doctor:
    def __init__(self, checks, place):
        self.checks, self.place = checks, place
        self.command = installed(place)
        self.rows, self.status = [], None
        self.patience = 10  # seconds that are enough for a probe that does not hang, however busy the machine is

    def look(self, *probes, driver=None, plain=False, wait=60, **environment):
        """Runs it; `driver` is a folder with another libcuda.so.1, `plain`: without simgpu."""
        words = ([] if plain else list(self.place.runner))
        env = dict(self.place.environment, **environment)
        if driver:
            # Behind the wrapper, which puts its own folder in front.
            words += ["env", f"LD_LIBRARY_PATH={driver}"]
        done = subprocess.run([*words, self.command, "doctor", "--device", "--wait", str(wait), "--json", *probes], env=env, capture_output=True, text=True,
                              check=False, timeout=job.WAIT_SEC)
        self.rows, self.status = json.loads(done.stdout), done.returncode
        return self

    def found(self, what, finding, text=""):
        return any(r["what"] == what and r["finding"] == finding and re.search(text, r["text"]) for r in self.rows)

    def ok(self, what, *wanted, status, never=()):
        """Each of `wanted` is (what, finding, a pattern of its text), `never` is (what, finding)."""
        missing = [w for w in wanted if not self.found(*w)] + [n for n in never if self.found(*n)]
        self.checks.ok(not missing and self.status == status, what, f"status {self.status}, not as it should be: {missing}", json.dumps(self.rows, indent=1))


def left(place):
    """Processes of the command's and of the device's that are of this place."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            if place.shm in job.read(path):
                with open(path.replace("environ", "cmdline"), "rb") as f:
                    found.append(f.read().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return found


def is_empty(place):
    end = time.monotonic() + 20
    while left(place) and time.monotonic() < end:
        time.sleep(0.05)
    return not left(place) and not os.listdir(place.shm)


def whole(doctor):
    begun = time.monotonic()
    doctor.look()
    # By now some 18 processes have been started.
    doctor.patience = round(max(2.0, (time.monotonic() - begun) / 2), 1)
    bad = [r for r in doctor.rows if r["finding"] == "bad"]
    absent = [w for w in PROBES + ROWS if not any(r["what"] == w for r in doctor.rows)]
    doctor.checks.ok(doctor.status == 0 and not bad and not absent, "a device that does all: nothing is bad, each probe has a row", doctor.status, bad, absent)
    # What simgpu's driver has and the forwarder does not, on purpose, and forms of calls that nobody follows.
    notes = {r["what"] for r in doctor.rows if r["finding"] == "note"} - {"newer calls", "doors"}
    doctor.checks.ok(not notes, "nor is there anything to note", json.dumps([r for r in doctor.rows if r["finding"] == "note"], indent=1))
    doctor.ok("with what was tried", ("device", "good", r"simgpu, capability 9\.0"), ("module loading", "good", "lazy"),
              ("address range", "good", r"256\.0 GiB at 0x4a0000000000 \(3 of 3 starts\)"), ("copies", "good", r"[1-9][0-9.]* GB/s.*refused, so the library"),
              ("digest kernel", "good", r"all of 7 sizes, at .*GB/s"), ("waits for events", "good", "null stream.*legacy.*thread.*blocking.*priority"),
              ("first launch", "good", "cuLaunchKernel"), ("waits on memory", "good", "as in cuMemAlloc's"), status=0)
    forms = [r["names"] for r in doctor.rows if r["what"] == "doors" and r["finding"] == "note"]
    doctor.checks.ok(forms == [["cuGetProcAddress_v2_ptsz"]], "forms of calls that nobody follows are named", forms)
    named = [r.get("names") for r in doctor.rows if r["what"] == "newer calls"]
    doctor.checks.ok(named == [["cuSimNewerThanTheList"]], "calls that the forwarder does not list are named", named)
    doctor.checks.ok(is_empty(doctor.place), "nothing is left of it", left(doctor.place), os.listdir(doctor.place.shm))


def lines(doctor):
    done = subprocess.run([*doctor.place.runner, doctor.command, "doctor", "--device", "calls", "connections"], env=doctor.place.environment,
                          capture_output=True, text=True, check=False)
    doctor.checks.ok(done.returncode == 2 and "'connections' is no probe" in done.stderr and "'waits on memory'" in done.stderr, "a name of no probe", done)
    done = subprocess.run([*doctor.place.runner, doctor.command, "doctor", "--device", "calls"], env=dict(doctor.place.environment, CUDA_MODULE_LOADING="EAGER",
                          CUDA_DEVICE_MAX_CONNECTIONS="1"), capture_output=True, text=True, check=False)
    doctor.checks.ok(done.returncode == 0 and re.search(r"^good  module loading +eager.*=EAGER", done.stdout, re.M) and
                     re.search(r"^good  connections +CUDA_DEVICE_MAX_CONNECTIONS=1", done.stdout, re.M) and
                     re.search(r"^good  calls ", done.stdout, re.M) and "doors" not in done.stdout, "lines, of the probes that are named", done)


def absent(doctor):
    if subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], env=doctor.place.environment, capture_output=True,
                      check=False).returncode:
        doctor.look(plain=True).ok("no driver", ("driver", "bad", "there is none.*libcuda"), ("everything else", "note", "not been tried"), status=1)
    doctor.look(CUDA_VISIBLE_DEVICES="-1").ok("no device", ("driver", "bad", "no device.*CUDA_VISIBLE_DEVICES is set"),
                                              ("everything else", "note", "not been tried"), status=1)
    doctor.look(driver=os.path.join(os.path.dirname(doctor.command), ".libs/transpckpt")).ok(
        "the forwarder in the driver's place", ("driver", "bad", "forwarder, not the driver"), status=1)


def addresses(doctor):
    doctor.look("address range", SIMGPU_FAULT="refuse_hint").ok("the range is refused", ("address range", "bad", "refuses.*INVALID_VALUE"), status=1)
    doctor.look("address range", SIMGPU_FAULT="move_hint").ok("the range is elsewhere", ("address range", "bad", "the driver gives 0x"), status=1)


def several(doctor):
    """Each device has rows of its own; those about none have no number."""
    doctor.look("calls", "mapped memory", "digest kernel", SIMGPU_DEVICES="3").ok(
        "three devices", ("device", "good", "of 3"), ("other devices", "good", "can be given to device 0, 1$"), status=0)
    numbers = {what: [r.get("device") for r in doctor.rows if r["what"] == what] for what in ("device", "mapped memory", "other devices", "digest kernel", "calls", "driver")}
    doctor.checks.ok(all(numbers[w] == [0, 1, 2] for w in ("device", "mapped memory", "other devices", "digest kernel")) and
                     numbers["calls"] == numbers["driver"] == [None], "each is looked at", numbers)
    doctor.look("mapped memory", SIMGPU_DEVICES="3", CUDA_VISIBLE_DEVICES="2,0").ok("two of them", ("device", "good", "of 2"), status=0)
    doctor.checks.ok([r.get("device") for r in doctor.rows if r["what"] == "mapped memory"] == [0, 1], "which CUDA_VISIBLE_DEVICES leaves", doctor.rows)
    done = subprocess.run([*doctor.place.runner, doctor.command, "doctor", "--device", "mapped memory"], env=dict(doctor.place.environment, SIMGPU_DEVICES="2"),
                          capture_output=True, text=True, check=False)
    doctor.checks.ok(all(re.search(rf"^good  device {i}, mapped memory  ", done.stdout, re.M) for i in (0, 1)) and "device 0, driver" not in done.stdout,
                     "lines say which device", done)


def kernels(doctor):
    for what, fault in digests.WRONG.items():
        doctor.look("digest kernel", TRANSPCKPT_KERNELS=digests.built(doctor.place, what, *fault)).ok(
            f"a kernel that computes something else: {what}", ("digest kernel", "note", "other digests than the processor"), status=0,
            never=[("digest kernel", "good")])
    doctor.look("digest kernel", "first launch", TRANSPCKPT_KERNELS="/nowhere").ok(
        "no kernel", ("digest kernel", "note", "no kernel at /nowhere"), ("first launch", "note", "not tried"), status=0)
    doctor.look("digest kernel", TRANSPCKPT_KERNELS=os.path.abspath(__file__)).ok("a file that is none", ("digest kernel", "note", "cannot be loaded"), status=0)
    doctor.look("digest kernel", SIMGPU_FAULT="sticky@1").ok("a kernel that fails", ("digest kernel", "bad", "fails when it runs"), status=1)


def hung(doctor):
    begun = time.monotonic()
    doctor.look("digest kernel", "first launch", "waiting", wait=doctor.patience, SIMGPU_FAULT="stall@1").ok(
        "a kernel that never ends", ("digest kernel", "bad", rf"did not end within {doctor.patience:g} s, in cuStreamSynchronize\."),
        ("first launch", "bad", "did not end.*EAGER"), ("waiting", "good"), status=1)
    doctor.checks.ok(time.monotonic() - begun < 4 * doctor.patience + 20, "does not hold up the rest", time.monotonic() - begun)
    doctor.checks.ok(is_empty(doctor.place), "and nothing is left of it", left(doctor.place), os.listdir(doctor.place.shm))


def stubs(doctor):
    driver = stub(doctor.place, "stub")
    # What one device does not do is said of that one alone.
    doctor.look("mapped memory", driver=driver, STUB="second:cuMemSetAccess", SIMGPU_DEVICES="2").ok(
        "one device of two refuses", ("other devices", "note", "refused to device 1, which reaches"), ("mapped memory", "bad", "cannot be had"), status=1)
    bad = [(r["what"], r.get("device")) for r in doctor.rows if r["finding"] != "good" and r["what"] != "newer calls"]
    doctor.checks.ok(bad == [("other devices", 0), ("mapped memory", 1)], "and the other one is good", bad)
    doctor.look("mapped memory", driver=driver, STUB="skip:cuDeviceCanAccessPeer", SIMGPU_DEVICES="2").ok(
        "devices that do not reach each other", ("other devices", "good", "not reached by device 0"), ("mapped memory", "good"), status=0)

    def look(fault, *probes, **more):
        return doctor.look(*probes, driver=driver, STUB=fault, **more)

    look("", "doors", "calls").ok("a driver in front of the driver", ("doors", "good"), ("calls", "good"), status=0)
    look("hang:cuMemHostRegister_v2", "pinned images", "mapped memory", "address range", wait=doctor.patience).ok(
        "a call that never returns", ("pinned images", "bad", "did not end within.*, in cuMemHostRegister"), ("mapped memory", "good"),
        ("address range", "good"), status=1)
    look("hang:cuInit", wait=1).ok("a driver that never answers", ("driver", "bad", "did not end within 1 s, in cuInit"), ("everything else", "note"), status=1)
    look("ordinary:cuDeviceGetAttribute", "calls").ok("kernels reach ordinary memory", ("ordinary memory", "note", "not in snapshots"), status=0)
    look("crash:cuFuncGetName", "names of kernels", "digest kernel").ok(
        "a call that crashes", ("names of kernels", "bad", "crashed in cuFuncGetName: Segmentation"), ("digest kernel", "good"), status=1)
    look("refuse:cuFuncGetName", "names of kernels").ok("names are refused", ("names of kernels", "note", "of modules' functions.*NOT_SUPPORTED"), status=0)
    look("refuse:cuMemHostRegister_v2", "pinned images", "waiting").ok(
        "registering is refused", ("pinned images", "note", "cannot be pinned.*NOT_SUPPORTED.*locked memory"), ("copies", "note", "not pinned"),
        ("waiting", "good"), status=0)
    look("skip:cuMemcpyDtoHAsync_v2", "pinned images").ok("copies that bring nothing", ("copies", "bad", "other bytes"), status=1)
    look("refuse:cuMemSetAccess", "mapped memory").ok("mapping is refused", ("mapped memory", "bad", "cannot be had"), status=1)
    look("full:cuMemCreate", "mapped memory", "pinned images", "waiting").ok(
        "a device that is full", ("mapped memory", "note", "memory is full"), ("copies", "note", "no device memory"), ("waiting", "note", "not tried"), status=0)
    look("skip:cuMemsetD8_v2", "mapped memory").ok("memory that is not what was set", ("mapped memory", "bad", "cannot be had"), status=1)
    look("skip:cuStreamWaitEvent", "waits for events", SIMGPU_COPY_GBPS="4").ok(
        "streams that do not wait", ("waits for events", "bad", "null stream: does not wait"), status=1)
    look("refuse:cuStreamWaitEvent", "waits for events").ok("waits are refused", ("waits for events", "note", "null stream: refused"), status=0)
    look("refuse:cuStreamWaitEvent", "waiting").ok("and the thread waits instead", ("waiting", "good", "waits for the copy"), status=0)
    look("refuse:cuMemAlloc_v2", "memory calls").ok("a call that fails beside a copy", never=[("memory calls", "good")], status=0)
    look("past:cuStreamWaitValue32_v2", "waits on memory").ok("waits on mapped memory are dead", ("waits on memory", "note", "wait for ever.*are refused it"), status=0)
    look("refuse:cuStreamWaitValue32_v2", "waits on memory").ok("there are no waits on memory", ("waits on memory", "good", "NOT_SUPPORTED"), status=0)
    look("elsewhere:cuGetProcAddress_v2", "doors").ok("a look-up that leads elsewhere", ("doors", "bad", "1 of .*cuLaunchKernel"), status=1,
                                                      never=[("doors", "good")])
    without = stub(doctor.place, "old", ["cuFuncGetName", "cuMemMap"])
    doctor.look("calls", driver=without).ok("calls that are missing", ("calls", "note", "cuFuncGetName is missing.*12.3"), ("calls", "bad", "cuMemMap is missing"),
                                            status=1)
    doctor.look("pinned images", SIMGPU_HELPFUL="straddle").ok("a driver that copies over two registrations", ("copies", "good", "carried out here"), status=0)
    ended(doctor, driver)


def ended(doctor, driver):
    """Who ends the command ends the probe that it waits for."""
    env = dict(doctor.place.environment, LD_LIBRARY_PATH=driver, STUB="hang:cuInit")
    with subprocess.Popen([doctor.command, "doctor", "--device", "--wait", "600"], env=env, stdout=subprocess.DEVNULL) as command:
        end = time.monotonic() + 30
        while not any("--device-probe" in words for words in left(doctor.place)) and time.monotonic() < end:
            time.sleep(0.02)
        there = left(doctor.place)
        command.send_signal(signal.SIGKILL)
        command.wait()
    doctor.checks.ok(any("--device-probe" in words for words in there) and is_empty(doctor.place), "who ends the command ends its probe", there,
                     left(doctor.place))


def main():
    checks = job.Checks()
    with job.Place() as place:
        doctor = Doctor(checks, place)
        for case in (whole, lines, absent, addresses, several, kernels, hung, stubs):
            case(doctor)
    checks.end()


if __name__ == "__main__":
    main()
