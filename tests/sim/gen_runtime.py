#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write every runtime symbol of the vendor's header as a weak function that says it is not supported.

  gen_runtime.py INCLUDE stubs|names|errors
"""
import re
import sys


def errors(inc):
    with open(inc + '/driver_types.h') as f:
        text = f.read()
    body = re.search(r'enum __device_builtin__ cudaError\s*\{(.*?)\};', text, re.S).group(1)
    for m in re.finditer(r'(?:/\*\*(.*?)\*/\s*)?(cuda(?:Success|Error\w+))\s*=\s*(\d+)', body, re.S):
        doc = re.sub(r'[\s*]+', ' ', m.group(1) or '').strip()
        doc = re.sub(r'\\ref\s*|::|"|\\', '', doc).split('. ')[0].rstrip('.')
        print('{ %s, "%s", "%s" },' % (m.group(3), m.group(2), 'no error' if m.group(3) == '0' else doc))


def main():
    inc, what = sys.argv[1:3]
    if what == 'errors':
        errors(inc)
        return
    with open(inc + '/cuda_runtime_api.h') as f:
        text = re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)
    found = set(re.findall(r'CUDARTAPI\s+(cuda\w+)\s*\(', text))
    for m in re.finditer(r'#\s*define\s+(cuda\w+)\s+__CUDART_API_(PTDS|PTSZ)\(\s*(cuda\w+)\s*\)', text):
        found.add(m.group(3))
        found.add(m.group(3) + ('_ptds' if m.group(2) == 'PTDS' else '_ptsz'))
    found -= {'cudaGetErrorName', 'cudaGetErrorString'}
    if what == 'names':
        print('\n'.join(sorted(found)))
        return
    print('/* SPDX-License-Identifier: Apache-2.0 */\n/* Generated: the runtime API without its implementation. */')
    print('int rt_unsupported(const char *symbol);')
    for s in sorted(found):
        print('__attribute__((weak, visibility("default"))) int %s(void);' % s)
        print('__attribute__((weak, visibility("default"))) int %s(void) { return rt_unsupported("%s"); }' % (s, s))


main()
