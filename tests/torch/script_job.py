# SPDX-License-Identifier: Apache-2.0
"""A PyTorch script as its user runs it: plain in one folder; in another under `transpckpt run`, killed and started
again by the same command."""
import os
import re
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'e2e'))
import job
import scripts

# What the library says in a run that goes well.
FINE = re.compile(r'transpckpt: (resuming at|live at|not resuming at|not resuming: (?:the last start ended|nothing that earlier starts left) |the snapshot of step \d+ does not hold what the device had|'
                  # libuv, by which PyTorch's store speaks, has a ring.
                  r'this process uses io_uring: |'
                  r'.* is written as ever, and so is all else there: this process changes a file in place in that folder$)')


class ScriptJob:
    """The script of one case in two folders, plain and killed."""

    def __init__(self, place, python, script, environment, cold=False):
        self.place = place
        self.argv = [python, '-W', 'ignore', os.path.join(HERE, script[0])] + script[1:]
        self.environment = {**place.environment, 'OMP_NUM_THREADS': '1', **scripts.caches(os.path.join(place.root, 'caches')), **environment}
        # What no snapshot put in place is no number.
        self.garbage = {'SIMGPU_FRESH': '255'}
        self.cold = cold
        self.folders = [os.path.join(place.root, name) for name in ('plain', 'killed')]
        for folder in self.folders:
            os.makedirs(folder)
        self.starts = []
        self.plain = self.first_sec = self.plain_sec = None

    def run_plain(self):
        environment = {k: v for k, v in self.environment.items() if not k.startswith('TRANSPCKPT_')}
        if self.cold:
            environment.update(scripts.caches(os.path.join(self.place.root, 'caches of the plain run')))
        return self.run_plain_in(environment)

    def run_plain_as_tuned(self):
        """Again with what the killed run's compilers kept: two that measure for themselves may choose otherwise."""
        shutil.rmtree(self.folders[0])
        os.makedirs(self.folders[0])
        return self.run_plain_in({k: v for k, v in self.environment.items() if not k.startswith('TRANSPCKPT_')})

    def run_plain_in(self, environment):
        self.plain = job.Start(self.place, self.place.runner + self.argv, self.folders[0], environment, 'plain')
        self.plain.until(self.plain.printed)
        self.first_sec = time.monotonic() - self.plain.begun
        status = self.plain.wait()
        self.plain_sec = time.monotonic() - self.plain.begun
        return status

    def start(self):
        argv = self.place.runner + [os.path.join(self.place.build, 'transpckpt'), 'run', '--'] + self.argv
        offered = any(row['offered'] and row['resumable'] for row in self.place.listed())
        self.starts.append(job.Start(self.place, argv, self.folders[1], {**self.environment, **self.garbage}, 'start%d' % len(self.starts)))
        self.starts[-1].offered = offered
        return self.starts[-1]

    def run_killed(self, rng, kills):
        """Every other kill comes when the run got somewhere, the others at any instant up to then."""
        lines = len(self.plain.printed().splitlines()) - 1
        goals = sorted(rng.uniform(0.1, 0.95) * lines for _ in range(kills))
        for i, goal in enumerate(goals):
            start = self.start()
            if i % 2:
                start.until(lambda: False, rng.uniform(0, 1.5 * self.first_sec))
            else:
                step_sec = (self.plain_sec - self.first_sec) / max(lines, 1)
                # A busy machine may be slow to make room for the first snapshots.
                start.slowly_until(lambda: start.printed().count('\n') >= 6 and self.printed() >= goal and
                                   any(row['offered'] for row in self.place.listed()))
                start.go_on()
                time.sleep(3 * rng.random() * step_sec)
            if not start.running():
                return start.wait()
            start.kill()
        return self.start().wait()

    def printed(self):
        return len({line for start in self.starts for line in start.printed().splitlines()})

    def resumed(self):
        return sum(bool(job.LIVE.search(start.said())) for start in self.starts)

    def ended(self, status):
        """What is wrong with the status of the last start, and what it said."""
        return ['ended with %s: %s' % (status, self.starts[-1].said()[-900:])] if status else []

    def over(self):
        """Of each start whether it printed its last line: one that was killed behind that had come to its end, and the next one has nothing to go on with."""
        last = self.plain.printed().splitlines()[-1:]
        return [start.printed().splitlines()[-1:] == last for start in self.starts]

    def story(self):
        """What was said in all starts, and by the agent, for a failure."""
        said = ['--- start %d, %s\n%s' % (i, 'with a snapshot to go on from' if start.offered else 'without one',
                                         '\n'.join(re.findall('^transpckpt: .*', start.said(), re.M))) for i, start in enumerate(self.starts)]
        return '\n'.join(said + ['--- agent'] + self.place.agent_log().splitlines()[-60:])

    def silent(self):
        """Starts behind one that had begun to train, or where there was something to go on from, that said nothing."""
        over = [False] + self.over()
        return ['start %d began anew without a word' % i for i, start in enumerate(self.starts)
                if (start.offered or (i and self.starts[i - 1].printed())) and start.printed() and 'transpckpt: ' not in start.said() and not over[i]]

    def remarks(self):
        return sorted({line for start in self.starts for line in start.said().splitlines()
                       if line.startswith('transpckpt: ') and not FINE.match(line)})

    def differences(self):
        lines = job.differences(*self.folders)
        texts = [self.plain.printed(), '\n'.join(start.printed() for start in self.starts)]
        plain, killed = ([line for line in job.each_once(text) if line] for text in texts)
        if plain != killed:
            extra = [line for line in killed if line not in plain] or ['(fewer lines)']
            lines.append('it printed something else: %s' % extra[0])
        return lines


class Looks:
    """What a process of its own had done of a start, in its order, when the training was at which step. What it had done before a snapshot, but for the newest,
    which may have no end yet, is not done again by a resume from there; what it does behind it is, as it comes."""

    def __init__(self):
        self.looks = []

    def look(self, start, done):
        printed = re.findall(r'^step (\d+) ', start.printed(), re.M)
        self.looks.append((int(printed[-1]) if printed else -1, done))

    def before(self, step):
        # What is printed last may be behind the iteration by one, and the snapshot is of those that are done.
        return next((done[:-1] for at, done in reversed(self.looks) if at + 2 < step), [])
