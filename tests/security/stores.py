#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.15 memory=512M minutes=6 about=15s
"""What another user has put where a user's store is, or into what the command reads: it is not written to, nobody waits for it, and
it is shown as text. As root, since it takes two users."""
import os
import shutil
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import job
from others import Checks, Others, ended, look_until, ready, saves

PROMPT_SEC = 30


def left_there(folder):
    return sorted(os.path.join(base, name)[len(folder):] for base, _, names in os.walk(folder) for name in names)


def saved(here, **more):
    """A program saves a file, and its agent ends. Whether it was as ever."""
    process = here.start(**more)
    good = ready(process) and saves(process, "a.pt")
    good = ended(process) == 0 and good
    look_until(lambda: not here.agents(), 60, 0.02)
    return good


def stores(checks):
    for what in ("another user's", "a link", "open to others"):
        with Others() as here:
            store, elsewhere = here.folder("store", here.attacker, 0o777), here.folder("elsewhere", here.victim)
            at = os.path.join(store, "j")
            if what == "a link":
                os.symlink(elsewhere, at)
            else:
                os.mkdir(at)
                os.chmod(at, 0o777)
                if what == "another user's":
                    os.chown(at, here.attacker, here.attacker)
                else:
                    os.chown(at, here.victim, here.victim)
            good = saved(here, TRANSPCKPT_DIR=store, TRANSPCKPT_LOG=f"warn:{here.log}")
            checks.ok(good and not left_there(at) and not left_there(elsewhere), f"a job's folder in the store that is {what} is not written to",
                      left_there(at), left_there(elsewhere), here.said())
            lines = [line for line in here.said().splitlines() if at in line]
            checks.ok(lines and "TRANSPCKPT_DIR" in lines[0], f"{what}: a line says so", here.said())


def state_folders(checks):
    """The state folder of another user, and none at all."""
    with Others() as here:
        state = here.folder("state", here.attacker, 0o777)
        os.mkdir(os.path.join(state, "transpckpt"))
        os.chown(os.path.join(state, "transpckpt"), here.attacker, here.attacker)
        os.chmod(os.path.join(state, "transpckpt"), 0o777)
        good = saved(here, XDG_STATE_HOME=state, TRANSPCKPT_LOG=f"warn:{here.log}")
        checks.ok(good and not left_there(state), "another user's state folder is not written to", left_there(state), here.said())
    with Others() as here:
        mine = f"/tmp/transpckpt-{here.victim}"
        before = os.path.exists("/tmp/.local")
        environment = here.environment
        here.environment = {k: v for k, v in environment.items() if k != "HOME"}
        good = saved(here)
        found = os.path.isdir(mine) and os.stat(mine)
        checks.ok(good and found and found.st_uid == here.victim and stat.S_IMODE(found.st_mode) == 0o700 and os.path.exists("/tmp/.local") == before,
                  "without a home the store is in a folder of the user's own name", found, here.said())
        shutil.rmtree(mine, ignore_errors=True)
        # Somebody else is there first.
        os.mkdir(mine)
        os.chown(mine, here.attacker, here.attacker)
        os.chmod(mine, 0o777)
        good = saved(here, TRANSPCKPT_LOG=f"warn:{here.log}")
        checks.ok(good and not left_there(mine), "and not in it if that is another user's", left_there(mine), here.said())
        shutil.rmtree(mine, ignore_errors=True)


def fifos(checks):
    """Nobody waits for what is no file."""
    with Others() as here:
        store = here.folder("store", here.attacker, 0o755)
        step = os.path.join(store, "j", "step-000000000007.g1")
        os.makedirs(step)
        os.mkfifo(os.path.join(step, "MANIFEST"), 0o666)
        os.chmod(os.path.join(step, "MANIFEST"), 0o666)
        for verb in ("ls", "show", "verify"):
            try:
                done = subprocess.run([os.path.join(here.build, "transpckpt"), verb, "--dir", store, "--job", "j"], user=here.victim, group=here.victim,
                                      extra_groups=[], env=here.plain, cwd="/", text=True, capture_output=True, timeout=PROMPT_SEC, check=False)
                said = done.stdout + done.stderr
            except subprocess.TimeoutExpired:
                said = None
            checks.ok(said is not None, f"a FIFO as a manifest does not hold up {verb}", said)
    with Others() as here:
        tier = here.folder("tier", here.victim)
        os.mkdir(os.path.join(tier, "j"))
        os.mkfifo(os.path.join(tier, "j/agent.lock"))
        for path in (os.path.join(tier, "j"), os.path.join(tier, "j/agent.lock")):
            os.chown(path, here.victim, here.victim)
        # An agent that leaves at once: the program looks whether one is coming.
        process = here.start(TRANSPCKPT_SHM=tier, TRANSPCKPT_AGENT="/bin/true")
        good = ready(process)
        process.stdin.write("a.pt\n")
        process.stdin.flush()
        try:
            process.stdin.close()
            code = process.wait(PROMPT_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        checks.ok(good and code == 0, "a FIFO as the agent's lock does not hold up a program", code, here.said())
        process.stdout.close()


def fifo_in_store(checks):
    """The same in a store of one's own, for the agent and a resume: the next good checkpoint counts."""
    with job.Place() as place:
        work = os.path.join(place.root, "work")
        os.mkdir(work)
        command = [*place.runner, place.trainer("gpt"), "--seed", "5", "--steps", "100000", "--save-every", "1000", "--out", "out"]
        environment = {**place.environment, "LD_PRELOAD": os.path.join(place.build, ".libs/libtranspckpt.so")}
        start = job.Start(place, command, work, environment, "first")
        try:
            durable = look_until(lambda: "is durable" in place.agent_log(), PROMPT_SEC, 0.05, start.running)
        finally:
            start.kill()
        place.signal_agents()
        gone = look_until(lambda: not place.agents(), PROMPT_SEC, 0.05)
        checks.ok(durable and gone, "a checkpoint is in the store, and nobody has it in memory", start.said())
        shutil.rmtree(os.path.join(place.shm, "j"))
        for name in ("step-000000900000.g1", "step-000000000001.g1"):
            os.makedirs(os.path.join(place.store, "j", name), exist_ok=True)
            path = os.path.join(place.store, "j", name, "MANIFEST")
            if os.path.lexists(path):
                os.unlink(path)
            os.mkfifo(path, 0o600)
        start = job.Start(place, command, work, environment, "second")
        try:
            live = look_until(lambda: job.LIVE.search(start.said()), PROMPT_SEC, 0.05, start.running)
            checks.ok(live, "with FIFOs as manifests beside it the program goes on from it", start.said(), place.agent_log())
            durable = look_until(lambda: "is durable" in place.agent_log(), PROMPT_SEC, 0.05, start.running)
            checks.ok(durable, "and the agent makes more of them", start.said(), place.agent_log())
        finally:
            start.kill()


def terminals(checks):
    with Others() as here:
        store = here.folder("store", here.attacker, 0o755)
        name = "evil\033]0;mine\a\033[2J"
        os.makedirs(os.path.join(store, name, "step-000000000007.g1"))
        with open(os.path.join(store, name, "step-000000000007.g1", "MANIFEST"), "w", encoding="utf-8") as f:
            f.write("\033[2Jno manifest\n")
        with open(os.path.join(store, name, "agent.log"), "w", encoding="utf-8") as f:
            f.write("transpckptd: \033[2J\n")
        shown = ""
        for verb in ("ls", "show", "verify", "rm", "report"):
            for job in ([], ["--job", name]):
                done = here.command(verb, *job, TRANSPCKPT_DIR=store)
                shown += done.stdout + done.stderr
        checks.ok("\\x1b" in shown and not any(letter in shown for letter in "\033\a\b\r"), "names of others give a terminal no orders", repr(shown))


def more_rights(checks):
    """A program that is root for whoever starts it, with the library by /etc/ld.so.preload: it takes no orders from that user's variables."""
    with Others() as here:
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            print("# no mount namespace: a program with more rights is not tried")
            return
        program, etc, mine = os.path.join(here.root, "saves"), os.path.join(here.root, "etc"), here.folder("roots", 0)
        shutil.copy("/bin/cp", program)
        os.chmod(program, 0o4755)
        subprocess.run(["cp", "-a", "/etc", etc], check=True)
        with open(os.path.join(etc, "ld.so.preload"), "w", encoding="utf-8") as f:
            f.write(os.path.join(here.build, "libtranspckpt.so") + "\n")
        agent, ran = os.path.join(here.home, "agent"), os.path.join(here.home, "ran")
        with open(agent, "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\n/usr/bin/id -u >{ran}\n")
        os.chmod(agent, 0o755)
        here.precious()
        os.chmod(here.home, 0o755)
        # Only this program has the variables: setpriv is root's own.
        variables = f"TRANSPCKPT_LOG=debug:{mine}/log TRANSPCKPT_SHM={mine}/tier TRANSPCKPT_AGENT={agent} TRANSPCKPT_FSYNC=replicated TRANSPCKPT_PEERS=1"
        script = (f"mount --bind {etc} /etc && exec setpriv --reuid={here.victim} --regid={here.victim} --clear-groups "
                  f"env {variables} {program} {here.home}/thesis.tex {mine}/a.pt")
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=PROMPT_SEC, env=here.plain)
        checks.ok(done.returncode == 0 and sorted(os.listdir(mine)) == ["a.pt"] and not os.path.exists(ran) and not done.stderr,
                  "a program with more rights than its user reads no setting, writes no log and starts no agent", done, os.listdir(mine),
                  os.path.exists(ran) and open(ran, encoding="utf-8").read())


def main():
    checks = Checks()
    for test in (stores, state_folders, fifos, fifo_in_store, terminals, more_rights):
        if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
            test(checks)
    checks.end()


if __name__ == "__main__":
    main()
