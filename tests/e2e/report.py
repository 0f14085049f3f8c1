#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transpckpt report: a page that is well-formed, needs nothing from elsewhere, says what the history says, and shows hostile
names and texts as text."""
import html.parser
import json
import os
import re
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

HOSTILE = "<img src=x onerror=alert(1)>&amp;\"'"
VOID = {"meta", "br", "img", "link", "hr", "input"}
BEGUN = 1700000000


class Page(html.parser.HTMLParser):
    """Elements in balance, their attributes, the text of those that are asked for."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.faults, self.seen, self.attributes, self.texts = [], [], [], [], []
        self.feed(text)
        self.close()
        self.faults += [f"{name} is not closed" for name in self.open]

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"{tag} is closed at {self.getpos()}")

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self, tag=None):
        return "".join(t for at, t in self.texts if at == tag or (tag is None and at != "style"))


def history(folder, events, tail=""):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "history"), "w", encoding="utf-8", errors="surrogateescape") as f:
        for n, (at, event, more) in enumerate(events):
            f.write(json.dumps({"at_ns": int((BEGUN + at) * 1e9), "event": event, "agent": "h.1.2", "serial": n, **more},
                               ensure_ascii=False) + "\n")
        f.write(tail)


def process(generation, iterations, **more):
    return {"program": "p", "generation": generation, "rank": 0, "iterations": iterations, "iteration_sec": 2.0,
            "captured": iterations, "skipped": 0, "waited_sec": 0.5, **more}


LIFE = [
    (0, "started", process(1, 0, host="h", executable="/bin/" + HOSTILE)),
    (600, "durable", process(1, 300, tier="disk", step=300, bytes=4 << 20, new_bytes=1 << 20, write_sec=1.0, verify_sec=1.0)),
    (1000, "died", process(1, 500, running_sec=1000, how="was killed", kept_step=480, lost=20)),
    (1100, "started", process(2, 0, host="h", executable="/bin/x", from_generation=1, from_step=480, **{"from": "memory"}, from_level=0)),
    (1110, "resumed", process(2, 480, from_generation=1, from_step=480, **{"from": "memory"}, from_level=0, forward_sec=9.0,
                              inject_sec=1.0)),
    (1200, "store failed", {"tier": "disk", "why": "</script><script>alert(2)</script>\udcff\x01\u202e"}),
    (1300, "store works", {"tier": "disk"}),
    # Nobody sees this one die.
    (2000, "durable", process(2, 900, tier="disk", step=900, bytes=4 << 20, new_bytes=1 << 20, write_sec=1.0, verify_sec=1.0)),
    (5000, "started", process(3, 0, host="g", executable="/bin/x", from_generation=2, from_step=900, **{"from": "disk"}, from_level=1)),
    (5020, "resumed", process(3, 900, from_generation=2, from_step=900, **{"from": "disk"}, from_level=1, forward_sec=19.0, inject_sec=1.0)),
    (6000, "ended", process(3, 1400, running_sec=1000)),
]


def check_page(checks, place):
    history(os.path.join(place.store, HOSTILE), LIFE, tail='{"at_ns":1,"ev')
    done = place.command("report", "--job", HOSTILE, TZ="UTC")
    if not checks.ok(done.returncode == 0 and not done.stderr, "a page for a job with a hostile name", done.stderr):
        return
    page = Page(done.stdout)
    checks.ok(not page.faults, "elements are in balance", *page.faults)
    checks.ok(done.stdout.startswith("<!doctype html>") and page.text("title").startswith(HOSTILE) and page.text("h1") == HOSTILE,
              "the name is text in title and heading", page.text("title"), page.text("h1"))
    checks.ok(not {"script", "img", "link", "iframe", "object", "use"} & set(page.seen), "nothing of it is markup", set(page.seen))
    checks.ok(all(not name.startswith("on") and name not in ("href", "src") and "url(" not in (value or "")
                  for name, value in page.attributes) and "@import" not in done.stdout and "://" not in done.stdout,
              "nothing comes from elsewhere, nothing runs")
    checks.ok("</script><script>alert(2)</script>" in page.text() and "\x01" not in done.stdout and "\u202e" not in done.stdout,
              "a hostile reason is text, without what cannot be shown")
    drawings = re.findall(r"<svg.*?</svg>", done.stdout, re.S)
    try:
        trees = [xml.etree.ElementTree.fromstring(d) for d in drawings]
    except xml.etree.ElementTree.ParseError as error:
        trees = []
        checks.ok(False, "drawings are XML", error)
    checks.ok(len(trees) == 2, "two drawings")
    numbers = [float(n) for n in re.findall(r'\b(?:x|y|x1|x2|y1|y2|cx|cy|width|height)="([^"]*)"', "".join(drawings))]
    checks.ok(numbers and all(-1 <= n <= 1001 for n in numbers), "and all in them lies inside")
    checks.ok(len(re.findall(r'class="run"', done.stdout)) == 3 and len(re.findall(r'class="dur" c', done.stdout)) == 2 and
              len(re.findall(r'class="lost"', done.stdout)) == 1 and len(re.findall(r'class="away"', done.stdout)) == 1,
              "three starts, two checkpoints, one loss, a time without a store")
    words = " ".join(page.text().split())
    for said in ("started 3 times and has come to iteration 1400", "It failed twice and went on from a snapshot twice, once from memory and once from disk",
                 "It lost 20 iterations, about 40 s of computing", "would have cost 46 min more", "1 line of the history could not be read",
                 "2 checkpoints of 8.0 MiB in all were written as 2.0 MiB: 75% was there already", "A tier of the store could not be written once",
                 "nobody saw it: node or memory was lost", "step 900 from disk"):
        checks.ok(said in words, said, words)


def check_file(checks, place):
    target = os.path.join(place.root, "page.html")
    done = place.command("report", "-o", target, HOSTILE)
    checks.ok(done.returncode == 0 and not done.stdout and job.read(target).endswith("</html>\n"), "into a file", done.stderr)
    done = place.command("report", "-o", "/no/such/folder/x", HOSTILE)
    checks.ok(done.returncode == 1 and len(done.stderr.splitlines()) == 1, "one line where that cannot be", done.stderr)
    done = place.command("report", "nobody")
    checks.ok(done.returncode == 1 and "nothing is known of job 'nobody'" in done.stderr and not done.stdout, "a job that is not there")
    history(os.path.join(place.store, "other"), LIFE[:1])
    done = place.command("report", TRANSPCKPT_JOB="")
    checks.ok(done.returncode == 2 and "name one" in done.stderr, "of several jobs one has to be named", done.stderr)
    done = place.command("report", "other")
    checks.ok(done.returncode == 0 and not Page(done.stdout).faults and "It has not failed" in done.stdout, "one that has only begun")


def main():
    checks = job.Checks()
    with job.Place() as place:
        check_page(checks, place)
        check_file(checks, place)
    checks.end()


if __name__ == "__main__":
    main()
