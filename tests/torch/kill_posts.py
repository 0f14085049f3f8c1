#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=3G minutes=15 about=45s
"""A script that posts to a server which does not belong to its job, and is killed: what the first run sent before the step that is gone on from
is not sent again, and the script is answered as it was (posts.py has the ways).

  kill_posts.py [WAY...]    WAY: http kept thread asyncio datagram fetch pool requests httpx, and with s before it (shttp ...) by TLS;
                            real: as http, to who is named by TRANSPCKPT_NETWORK_REAL; child: as http, by a forked child for each row;
                            local: as kept, by a Unix socket, and localworker: as worker by one; udpworker: as datagram by such a process;
                            localsent, localstream: as local, by sendfile() and by a stream of libc's, of which a line says that it is sent again;
                            large: the same with more answered than is kept; worker: as kept, by a forked process that is there for long;
                            service: as kept, by a program that is told what to say; spawn: by a process that is executed anew

`all` is all of them; without names a fifth, drawn.
"""
import http.server
import json
import os
import re
import socket
import ssl
import socketserver
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'e2e'))
import job
import kill_strangers
import script_job
import scripts

WAYS = ['http', 'kept', 'thread', 'asyncio', 'datagram', 'shttp', 'skept', 'sthread', 'sasyncio', 'sfetch', 'pool', 'spool', 'real', 'child', 'schild', 'large', 'worker', 'sworker', 'local', 'localworker', 'localsent', 'localstream', 'udpworker', 'service', 'sservice', 'spawn', 'sspawn']
# By packages, where a Python has them.
PACKAGES = ['requests', 'httpx', 'srequests', 'shttpx']
# By programs of the script's own (posts_programs.py).
OTHERS = ['service', 'spawn']
# Of a process of its own, which may be slow to begin: so that two kills find it at work.
MORE_STEPS, EVERY = 450, 10
# More than the record holds of one connection.
LARGE = bytes(5 << 20) + b'.'


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def answer(self, bytes_):
        self.send_response(200)
        self.send_header('Content-Length', str(len(bytes_)))
        self.end_headers()
        self.wfile.write(bytes_)

    def do_GET(self):  # pylint: disable=invalid-name
        self.server.rows.append('fetched')
        self.answer(str(int(self.path.split('/')[-1]) ** 2).encode() if 'part' in self.path else LARGE)

    def do_POST(self):  # pylint: disable=invalid-name
        row = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        self.server.rows.append(row['step'])
        # What it was told, a program cannot guess.
        self.answer(json.dumps({'rate': 1 + row['step'] % 7 / 10}).encode() + self.server.more)


class Server(http.server.ThreadingHTTPServer):
    """What came, by step, with a mark where a start of the script begins."""
    daemon_threads = True

    def __init__(self, certificate, udp, more):
        super().__init__(('127.0.0.1', 0), Handler)
        self.rows, self.udp, self.more = [], None, b' ' * more
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        if udp:
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.udp.bind(('127.0.0.1', self.server_port))
            threading.Thread(target=self.listen, daemon=True).start()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass

    def listen(self):
        while True:
            self.rows.append(json.loads(self.udp.recv(1000))['step'])


class Rows:
    """What came, in a file that another process adds to."""

    def __init__(self, path):
        self.path = path

    def append(self, row):
        with open(self.path, 'a', encoding='ascii') as to:
            to.write(f'{row}\n')

    def __delitem__(self, _):
        open(self.path, 'w', encoding='ascii').close()

    def __iter__(self):
        with open(self.path, encoding='ascii') as rows:
            return iter([row if row == 'start' else int(row) for row in rows.read().split()])

    def __getitem__(self, which):
        return list(self)[which]


class LocalServer:
    """At a Unix socket, in a process that the script does not come from: who starts a program counts as its job's."""
    more = b''

    def __init__(self, place):
        self.path, self.server_port = os.path.join(place.root, 'socket'), 1
        self.rows = Rows(os.path.join(place.root, 'rows'))
        self.rows.append('start')
        del self.rows[:]
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), '--serve', self.path, self.rows.path])
        while not os.path.exists(self.path):
            time.sleep(0.01)

    def shutdown(self):
        self.process.kill()
        self.process.wait()

    def server_close(self):
        os.unlink(self.path)


def serve(path, rows):
    server = socketserver.ThreadingUnixStreamServer(path, Handler)
    server.rows, server.more, server.daemon_threads = Rows(rows), b'', True
    server.serve_forever()


def certificate_in(folder):
    path = os.path.join(folder, 'certificate.pem')
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=localhost',
                    '-addext', 'subjectAltName=DNS:localhost', '-keyout', path + '.key', '-out', path], check=True, capture_output=True)
    with open(path, 'a', encoding='ascii') as both, open(path + '.key', encoding='ascii') as key:
        both.write(key.read())
    return path


def sent(rows):
    """What each start sent, by the marks."""
    starts = [[]]
    for row in rows:
        if row == 'start':
            starts.append([])
        else:
            starts[-1].append(row)
    return starts


def steps(start):
    return start.printed().count('step ')


def goes(checks, python, package, way):
    secure = way[0] == 's' and way not in OTHERS
    plain_way = way[1:] if secure else way
    own = plain_way.endswith('worker') or plain_way in OTHERS
    with job.Place() as place:
        certificate = certificate_in(place.root) if secure else None
        local = plain_way.startswith('local')
        server = LocalServer(place) if local else Server(certificate, plain_way in ('datagram', 'udpworker'), len(LARGE) if plain_way == 'large' else 0)
        if plain_way == 'real':
            place.environment['TRANSPCKPT_NETWORK_REAL'] = f'127.0.0.1:{server.server_port}'
        this = script_job.ScriptJob(place, python, ['posts_programs.py' if plain_way in OTHERS else 'posts.py', 'http' if plain_way == 'real' else plain_way, str(server.server_port)] + (['--certificate', certificate] if secure else ['--path', server.path] if local else []) + (['--steps', str(MORE_STEPS)] if own else []), {'SIMGPU_TORCH': package})
        done = this.run_plain()
        plain = server.rows[:]
        del server.rows[:]
        resumed, kept = [], [set()]
        for number in range(3):
            server.rows.append('start')
            start, looks = this.start(), script_job.Looks()

            def ready(start=start, looks=looks):
                newest = max((row['step'] for row in place.listed() if row['offered']), default=0)
                if own:
                    looks.look(start, sent(server.rows[:])[-1])
                # A process of its own may be slow to send something at first.
                return steps(start) > 60 and newest >= 40 + (resumed or [0])[-1] and (not own or len(looks.before(newest)) > (not resumed))
            if number < 2:
                start.slowly_until(ready)
                start.kill()
            else:
                status = start.wait()
            resumed.append(job.Job.resumed_at(start) or 0)
            if number:
                kept.append(kept[-1] | set(before.before(resumed[-1])))
            before = looks
        starts = sent(server.rows)[1:]
        checks.ok(done == 0 and status == 0 and resumed[1] > 0 and resumed[2] > resumed[1], f'{way}: it goes on at steps {resumed[1:]}', done, status, this.starts[-1].said())
        if plain_way == 'fetch':
            checks.ok(re.search(r'is more than the record holds, and was asked for again on the way to step \d+: 127.0.0.1:\d+$', this.starts[-1].said(), re.M),
                      f'{way}: what changes nothing is asked for again, with a line', this.starts[-1].said())
        elif plain_way == 'large':
            # Of a child that much is not in the record.
            checks.ok(re.search(rf'on the way to step \d+ a forked child, or a program that was started, sent something to 127.0.0.1:{server.server_port} that the first run may have sent already',
                                this.starts[-1].said()), f'{way}: a line says that it is sent again', this.starts[-1].said(), starts)
        elif plain_way in ('localsent', 'localstream'):
            checks.ok(re.search(r'was sent again on the way to step \d+: ' + re.escape(server.path) + '$', this.starts[-1].said(), re.M), f'{way}: a line says that it is sent again',
                      this.starts[-1].said(), starts)
            checks.ok(set(plain) == {row for rows in starts for row in rows}, f'{way}: all is sent', plain, starts)
        elif plain_way == 'real':
            again = [row for row in starts[2] if row < resumed[2]]
            checks.ok(again == [row for row in plain if row < resumed[2]], f'{way}: all that was sent before the step is sent again', again, starts)
        elif own:
            # The child is as far as it comes; what had no answer at the snapshot is asked again.
            again = [sorted(kept[i] & set(starts[i])) for i in range(3)]
            checks.ok(not any(again) and kept[1] and kept[2] > kept[1], f'{way}: nothing is sent again that had its answer', again, kept, starts, this.starts[-1].said())
            checks.ok(sorted({row for rows in starts for row in rows}) == plain, f'{way}: all is sent', plain, starts)
        elif plain_way != 'pool':
            # A thread of its own may be behind, by two.
            before = 2 * EVERY if plain_way == 'thread' else 0
            early = [(at, [row for row in starts[i] if row < at - before and any(row in rows for rows in starts[:i])]) for i, at in enumerate(resumed)]
            checks.ok(not any(rows for _, rows in early), f'{way}: nothing is sent again that was sent before the step', early, this.starts[-1].said())
            checks.ok(set(plain) == {row for rows in starts for row in rows} and len(plain) == len(set(plain)), f'{way}: all is sent', plain, starts)
        checks.ok(not this.differences(), f'{way}: and it does what it did without the library', *this.differences(), this.starts[-1].said())
        server.shutdown()
        server.server_close()


def main():
    if sys.argv[1:2] == ['--serve']:
        serve(*sys.argv[2:])
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    checks = job.Checks()
    other, package = kill_strangers.find_python()
    has = other and not subprocess.run([other, '-c', 'import requests, httpx'], capture_output=True, check=False).returncode
    ways = WAYS + (PACKAGES if has else [])
    chosen = sys.argv[1:] or ways[job.drawn_from().randrange(5)::5]
    for way in ways if chosen == ['all'] else chosen:
        goes(checks, *((other, package) if way in PACKAGES else (python, scripts.package(python))), way)
    checks.end()


if __name__ == '__main__':
    main()
