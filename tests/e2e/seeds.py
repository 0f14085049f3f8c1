#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=15s
"""Programs of other languages train (seeds.cu), and the order of a hash table's names, or a hash's value, decides how much the device does. Each language draws the
seed of its tables when it starts. Such a program is killed and started again: its tables are as they were, and it goes on; where they follow addresses, too, it begins
anew, with a line. A language that is not installed is left out.

  seeds.py [CASE...]
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

STEPS, KILLED = 300, 60
PERL = """
require DynaLoader;
my $library = DynaLoader::dl_load_file($ARGV[0]) or die DynaLoader::dl_error();
DynaLoader::dl_install_xsub("main::step", DynaLoader::dl_find_symbol($library, "step"));
my %names = map { ("name $_", 1) } 1 .. 30;
open(my $said, ">>", "said");
$said->autoflush(1);
for my $i (1 .. $ARGV[1]) {
    $names{"step $i"} = 1 if $i % 10 == 0;
    $ENV{WORK} = join ",", keys %names;
    print $said "$i $ENV{WORK}\\n";
    step();
}
"""
RUBY = """
require "fiddle"
step = Fiddle::Function.new(Fiddle.dlopen(ARGV[0])["step"], [], Fiddle::TYPE_VOID)
said = File.open("said", "a")
said.sync = true
(1..ARGV[1].to_i).each do |i|
  ENV["WORK"] = (%s).to_s
  said.puts "#{i} #{ENV["WORK"]}"
  step.call
end
"""
PYTHON = """
import ctypes, os, sys
step = ctypes.CDLL(sys.argv[1]).step
with open("said", "a", buffering=1) as said:
    for i in range(1, int(sys.argv[2]) + 1):
        os.environ["WORK"] = ",".join({f"name {k}" for k in range(i + 30)})
        print(i, os.environ["WORK"], file=said)
        step()
"""
# How each is executed, the program, its environment, and whether it goes on (None: it may). The program gets the library and how many iterations; the file `said` has what decided
# in each.
CASES = {
    "python": (["python3", "-c"], PYTHON, {}, True),
    "ruby": (["ruby", "-e"], RUBY % '"step #{i}".hash', {}, True),
    # The first number of the generator follows the process's number and an address, too.
    "ruby rand": (["ruby", "-e"], RUBY % "rand", {}, False),
    "perl": (["perl", "-MIO::Handle", "-e"], PERL, {"PERL_PERTURB_KEYS": "DETERMINISTIC"}, True),
    # Unless Perl is told otherwise a bit or two of addresses decide about the order, too: these may come again.
    "perl addresses": (["perl", "-MIO::Handle", "-e"], PERL, {}, None),
}


def built(place):
    made = os.path.join(place.root, "seeds")
    subprocess.run([os.path.join(place.build, "tests/sim/simnvcc"), "-std=c++17", "-O2", "-fPIC", "-c", "-o", made + ".o",
                    os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds.cu")], check=True)
    subprocess.run([*os.environ.get("CXX", "c++").split(), "-shared", "-o", made + ".so", made + ".o", "-L" + os.path.join(place.build, "tests/sim/lib"), "-lcudart"], check=True)
    return made + ".so"


def lines(folder):
    return job.read(os.path.join(folder, "said")).splitlines()


def goes(checks, name):
    executes, program, settings, goes_on = CASES[name]
    with job.Place() as place:
        library = built(place)
        environment = {**{key: value for key, value in place.environment.items() if not key.startswith(("PERL", "RUBY", "PYTHONHASHSEED"))}, **settings}
        work = os.path.join(place.root, "work")

        def begin(which, steps=STEPS, plain=False):
            folder = os.path.join(place.root, which) if plain else work
            os.makedirs(folder, exist_ok=True)
            under = [] if plain else [os.path.join(place.build, "transpckpt"), "run", "--"]
            return job.Start(place, [*place.runner, *under, shutil.which(executes[0]), *executes[1:], program, library, str(steps)], folder,
                             {key: value for key, value in environment.items() if not plain or not key.startswith("TRANSPCKPT_")}, which)

        plain = []
        for which in ("one", "other"):
            start = begin(which, 3, plain=True)
            assert start.wait() == 0, start.said()
            plain.append(lines(os.path.join(place.root, which)))
        checks.ok(len(plain[0]) == len(plain[1]) == 3 and plain[0] != plain[1], f"{name}: two runs without the library are told different things", *plain)
        first = begin("first")
        first.slowly_until(lambda: first.printed().count("step ") >= KILLED and any(row["offered"] for row in place.listed()), rest=0.02)
        first.kill()
        said = lines(work)
        last = begin("last")
        status = last.wait()
        at, kept = job.Job.resumed_at(last) or 0, lines(work)
        if goes_on or (goes_on is None and at):
            checks.ok(status == 0 and at > 0, f"{name}: killed, it goes on at step {at}", status, first.said(), last.said(), *said[-2:], *kept[:2])
            checks.ok(at > 0 and kept[:at] == said[:at] and [int(line.split(" ")[0]) for line in kept] == list(range(1, STEPS + 1)),
                      f"{name}: and was told the same up to there", len(kept), *kept[at:at + 2])
        else:
            why = [line for line in last.said().splitlines() if "starting the program again from its beginning" in line]
            checks.ok(status == 0 and not at and len(why) == 1, f"{name}: begins anew, with a line: {why}", status, first.said(), last.said())
        printed = [{int(number) for number in re.findall(r"^step (\d+) ", text, re.M)} for text in (first.printed(), last.printed())]
        checks.ok((printed[1] | printed[0] if at else printed[1]) == set(range(1, STEPS + 1)), f"{name}: each iteration is there", *printed)


def main():
    checks = job.Checks()
    for name in sys.argv[1:] or CASES:
        if shutil.which(CASES[name][0][0]):
            goes(checks, name)
        else:
            print(f"# {CASES[name][0][0]} is not installed")
    checks.end()


if __name__ == "__main__":
    main()
