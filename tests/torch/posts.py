# SPDX-License-Identifier: Apache-2.0
"""A training that tells somebody else of itself each few steps, and does what it is told: over plain connections and encrypted ones, new ones and one that is
kept, by itself, by a thread or a child of its own, by asyncio, and by datagrams."""
import argparse
import asyncio
import concurrent.futures
import ctypes
import http.client
import json
import multiprocessing
import os
import queue
import socket
import ssl
import tempfile
import threading
import urllib.request

import torch

p = argparse.ArgumentParser()
p.add_argument('way')
p.add_argument('port', type=int)
p.add_argument('--certificate')
p.add_argument('--path', help='a Unix socket in place of the port')
p.add_argument('--steps', type=int, default=300)
p.add_argument('--every', type=int, default=10)
a = p.parse_args()
secure = ssl.create_default_context(cafile=a.certificate) if a.certificate else None
address = ('localhost', a.port)


def body(step, loss):
    return json.dumps({'step': step, 'loss': round(loss, 6)}).encode()


def post(step, loss):
    url = '%s://%s:%d/rows' % ('https' if secure else 'http', *address)
    with urllib.request.urlopen(urllib.request.Request(url, data=body(step, loss)), context=secure) as answer:
        return json.loads(answer.read().strip())['rate']


kept = None


class Local(http.client.HTTPConnection):
    """By a Unix socket, as to a daemon of this machine."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(a.path)


class Sent(Local):
    """What is sent goes by sendfile()."""

    def send(self, data):
        if not self.sock:
            self.connect()
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            self.sock.sendfile(file)


class Stream(Local):
    """By a stream of libc's."""
    stream = None

    def send(self, data):
        libc = ctypes.CDLL(None)
        libc.fdopen.restype = ctypes.c_void_p
        if not self.sock:
            self.connect()
        if not self.stream:
            self.stream = libc.fdopen(os.dup(self.sock.fileno()), b'w')
        libc.fwrite(data, ctypes.c_size_t(1), ctypes.c_size_t(len(data)), ctypes.c_void_p(self.stream))
        libc.fflush(ctypes.c_void_p(self.stream))


def post_kept(step, loss):
    global kept
    for attempt in range(2):
        if not kept and a.path:
            kept = {'localsent': Sent, 'localstream': Stream}.get(a.way, Local)('localhost')
        elif not kept:
            kept = http.client.HTTPSConnection(*address, context=secure) if secure else http.client.HTTPConnection(*address)
        try:
            kept.request('POST', '/rows', body(step, loss))
            return json.loads(kept.getresponse().read())['rate']
        except (http.client.RemoteDisconnected, ConnectionError):
            kept.close()
            kept = None
            if attempt:
                raise


session = None


def post_by(package, step, loss):
    """By a session that is kept, of a package that many use."""
    global session
    url = '%s://%s:%d/rows' % ('https' if secure else 'http', *address)
    if package == 'requests':
        import requests
        session = session or requests.Session()
        return session.post(url, json={'step': step, 'loss': round(loss, 6)}, verify=a.certificate).json()['rate']
    import httpx
    if not session:
        session = httpx.Client(verify=secure or True)
    return session.post(url, json={'step': step, 'loss': round(loss, 6)}).json()['rate']


def fetch(number):
    url = '%s://%s:%d/part/%d' % ('https' if secure else 'http', *address, number)
    with urllib.request.urlopen(url, context=secure) as answer:
        return int(answer.read())


async def speak(step, loss):
    reader, writer = await asyncio.open_connection(*address, ssl=secure)
    said = body(step, loss)
    writer.write(b'POST /rows HTTP/1.0\r\nContent-Length: %d\r\n\r\n' % len(said) + said)
    answer = await reader.read()
    writer.close()
    return json.loads(answer.split(b'\r\n\r\n')[1])['rate']


async def speak_twice(step, loss):
    return (await asyncio.gather(speak(step, loss), speak(step + 1, loss)))[0]


rows = queue.Queue(1)


def sender():
    for row in iter(rows.get, None):
        post(*row)


def told(step, loss):
    if a.way == 'thread':
        rows.put((step, loss))
        return 1.0
    if a.way in ('child', 'large'):
        # What the child was told decides: its status says it.
        child = os.fork()
        if not child:
            os._exit(round(10 * post(step, loss)))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) / 10
    if a.way in ('worker', 'localworker', 'udpworker'):
        if not workers:
            workers.append(multiprocessing.get_context('fork').Process(target=work))
            workers[0].start()
        for_worker.put((step, loss))
        return 1.0
    if a.way == 'datagram':
        udp.sendto(body(step, loss), address)
        return 1.0
    if a.way == 'fetch':
        url = '%s://%s:%d/data' % ('https' if secure else 'http', *address)
        with urllib.request.urlopen(url, context=secure) as answer:
            return 1.0 + len(answer.read()) % 2
    if a.way == 'pool':
        # What is fetched decides, whoever of the threads fetches it, and by whatever connection.
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return 1.0 + sum(pool.map(fetch, range(step, step + 8))) % 7 / 10
    if a.way == 'asyncio':
        # Of encrypted ones that are begun at once nobody can tell which is which.
        return asyncio.run((speak if secure else speak_twice)(step, loss))
    if a.way in ('requests', 'httpx'):
        return post_by(a.way, step, loss)
    return post_kept(step, loss) if a.way in ('kept', 'local', 'localsent', 'localstream') else post(step, loss)


def work():
    """A process that is there for as long as the training, and keeps its connection."""
    for row in iter(for_worker.get, None):
        if a.way == 'udpworker':
            udp.sendto(body(*row), address)
        else:
            post_kept(*row)


workers, for_worker = [], multiprocessing.get_context('fork').Queue()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other = threading.Thread(target=sender, daemon=True)
other.start()
torch.manual_seed(3)
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(a.steps):
    x = torch.randn(32, 8)
    loss = (model(x.cuda()) - x[:, :4].cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % a.every == 0:
        optimizer.param_groups[0]['lr'] = 0.01 * told(step, loss.item())
    print('step %d loss %.6f' % (step, loss.item()), flush=True)
rows.put(None)
for_worker.put(None)
for worker in workers:
    worker.join()
other.join()
torch.save(model.state_dict(), 'model.pt')
