# SPDX-License-Identifier: Apache-2.0
"""A training that tells somebody else of itself by programs of its own, each of which keeps its connection: `service` is started before the device is met,
and is given a row a line on its standard input; `spawn` is a process of multiprocessing's that is executed anew."""
import argparse
import http.client
import json
import multiprocessing
import ssl
import subprocess
import sys

p = argparse.ArgumentParser()
p.add_argument('way')
p.add_argument('port', type=int)
p.add_argument('--certificate')
p.add_argument('--steps', type=int, default=300)
p.add_argument('--every', type=int, default=10)
p.add_argument('--serve', action='store_true')


class Sender:
    """Sends rows by one connection for as long as it holds."""

    def __init__(self, a):
        self.a = a
        self.kept = None

    def send(self, step, loss):
        for attempt in range(2):
            if not self.kept:
                secure = ssl.create_default_context(cafile=self.a.certificate) if self.a.certificate else None
                self.kept = (http.client.HTTPSConnection('localhost', self.a.port, context=secure) if secure
                             else http.client.HTTPConnection('localhost', self.a.port))
            try:
                self.kept.request('POST', '/rows', json.dumps({'step': step, 'loss': round(loss, 6)}).encode())
                return json.loads(self.kept.getresponse().read())['rate']
            except (http.client.RemoteDisconnected, ConnectionError):
                self.kept.close()
                self.kept = None
                if attempt:
                    raise


def work(a, rows):
    sender = Sender(a)
    for row in iter(rows.recv, None):
        sender.send(*row)


def serve(a):
    sender = Sender(a)
    for line in sys.stdin:
        sender.send(**json.loads(line))


def train(a):
    if a.way == 'service':
        service = subprocess.Popen([sys.executable, sys.argv[0], *sys.argv[1:], '--serve'], stdin=subprocess.PIPE, text=True)
        # Before there is a device.
        service.stdin.write(json.dumps({'step': 0, 'loss': 0.0}) + '\n')
        service.stdin.flush()
    import torch
    torch.manual_seed(3)
    model = torch.nn.Linear(8, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if a.way == 'spawn':
        # Not a queue: its semaphores have names, and who is killed leaves them.
        theirs, rows = multiprocessing.Pipe(duplex=False)
        worker = multiprocessing.get_context('spawn').Process(target=work, args=(a, theirs))
        worker.start()
    for step in range(a.steps):
        x = torch.randn(32, 8)
        loss = (model(x.cuda()) - x[:, :4].cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step and step % a.every == 0 and a.way == 'service':
            service.stdin.write(json.dumps({'step': step, 'loss': loss.item()}) + '\n')
            service.stdin.flush()
        elif step % a.every == 0 and a.way == 'spawn':
            rows.send((step, loss.item()))
        print('step %d loss %.6f' % (step, loss.item()), flush=True)
    if a.way == 'spawn':
        rows.send(None)
        worker.join()
    else:
        service.stdin.close()
        service.wait()
    torch.save(model.state_dict(), 'model.pt')


if __name__ == '__main__':
    given = p.parse_args()
    if given.serve:
        serve(given)
    else:
        train(given)
