# SPDX-License-Identifier: Apache-2.0
"""As much of the server of Weights & Biases as a run needs: who is asking, runs by their ids, and rows by their offsets in a run's
files, where a later row takes the place of an earlier one."""
import gzip
import http.server
import json
import re
import threading

ROWS = 'wandb-history.jsonl'


class Run:
    def __init__(self, name):
        self.name, self.begun = name, 0
        self.files = {}  # of each: {offset: line}
        self.changed = []  # lines that took the place of others

    def rows(self):
        """(step, loss) of each, by offset."""
        rows = sorted(self.files.get(ROWS, {}).items())
        return [(offset, row.get('_step'), row.get('loss')) for offset, row in ((offset, json.loads(line)) for offset, line in rows)]

    def take(self, files):
        for name, part in files.items():
            lines = self.files.setdefault(name, {})
            for offset, line in enumerate(part['content'], part['offset']):
                if name == ROWS and lines.get(offset, line) != line:
                    self.changed.append(line)
                lines[offset] = line

    def count(self, name):
        return max(self.files.get(name, {}), default=-1) + 1

    def status(self):
        """What a client is told that goes on with it."""
        return {'id': self.name, 'name': self.name, 'displayName': 'd', 'config': '{}', 'wandbConfig': '{"t": 1}', 'summaryMetrics': '{}', 'tags': [],
                'historyTail': json.dumps([line for _, line in sorted(self.files.get(ROWS, {}).items())[-1:]]), 'eventsTail': '[]',
                'historyLineCount': self.count(ROWS), 'eventsLineCount': self.count('wandb-events.jsonl'), 'logLineCount': self.count('output.log'),
                'sweepName': None, 'project': {'id': 'P', 'name': 'p', 'entity': {'id': 'E', 'name': 'e'}}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def do_POST(self):  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        if self.headers.get('Content-Encoding') == 'gzip':
            body = gzip.decompress(body)
        with self.server.lock:
            answer = json.dumps(self.server.answer(self.path, body)).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST


class Tracker(http.server.ThreadingHTTPServer):
    """A with statement; `runs` is what it has been told."""
    daemon_threads = True

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.lock, self.runs = threading.Lock(), {}
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        """A client that is killed leaves its connection."""

    def taken(self):
        """The runs so far, which it forgets."""
        with self.lock:
            runs, self.runs = self.runs, {}
        return list(runs.values())

    def answer(self, path, body):
        stream = re.search(r'/files/\w+/\w+/(\w+)/file_stream$', path)
        if stream:
            self.runs.setdefault(stream[1], Run(stream[1])).take(json.loads(body).get('files') or {})
        if path != '/graphql':
            return {}
        asked = json.loads(body)
        return {'data': self.data(re.search(r'(?:query|mutation)\s+(\w+)', asked['query'])[1], asked.get('variables') or {})}

    def data(self, operation, given):
        if operation == 'Viewer':
            return {'viewer': {'id': 'V', 'entity': 'e', 'username': 'u', 'flags': '{}', 'teams': {'edges': []}}}
        if operation == 'RunResumeStatus':
            run = self.runs.get(given['name'])
            return {'model': {'id': 'P', 'name': 'p', 'entity': {'id': 'E', 'name': 'e'}, 'bucket': run and run.status()}}
        if operation == 'UpsertBucket':
            run = self.runs.setdefault(given.get('name') or given.get('id'), Run(given.get('name') or given.get('id')))
            run.begun += 1
            return {'upsertBucket': {'bucket': {**run.status(), 'historyLineCount': run.count(ROWS)}, 'inserted': run.begun == 1}}
        if operation == 'CreateRunFiles':
            return {'createRunFiles': {'runID': 'B', 'uploadHeaders': [], 'files': [
                {'name': name, 'uploadUrl': 'http://127.0.0.1:%d/upload' % self.server_address[1]} for name in given['files']]}}
        return {'serverInfo': {'features': []}} if operation == 'ServerFeaturesQuery' else {}
