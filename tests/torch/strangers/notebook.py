# SPDX-License-Identifier: Apache-2.0
"""A notebook that trains, executed without a screen as nbconvert does it: its kernel is a process of a session of its own."""
import sys

import nbformat
from nbconvert.preprocessors import ExecutePreprocessor

CELLS = ['''import torch
torch.manual_seed(23)
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)''', '''with open('losses.txt', 'w') as f:
    for step in range(250):
        x = torch.randn(64, 8)
        loss = (model(x.cuda()) - x[:, ::2].cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f'step {step} loss {loss.item():.6f}', flush=True)
        print(f'step {step} loss {loss.item():.6f}', file=f, flush=True)
''', 'torch.save(model.state_dict(), "model.pt")']


class Shown(ExecutePreprocessor):
    """What cells say, as they say it."""

    def process_message(self, msg, cell, cell_index):
        if msg['msg_type'] == 'stream':
            print(msg['content']['text'], end='', flush=True, file=sys.stdout if msg['content']['name'] == 'stdout' else sys.stderr)
        return super().process_message(msg, cell, cell_index)


notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text, id=f'c{i}') for i, text in enumerate(CELLS)])
Shown(timeout=200, kernel_name='python3').preprocess(notebook, {'metadata': {'path': '.'}})
for cell in notebook.cells:
    cell.metadata.clear()
nbformat.write(notebook, 'train.ipynb')
