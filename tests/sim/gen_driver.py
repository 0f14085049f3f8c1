#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write what simgpu's libcuda.so.1 needs to know about the vendor's API.

  gen_driver.py INCLUDE stubs   every symbol as a weak function that says it is not supported
  gen_driver.py INCLUDE procs   base name, version and symbol, for cuGetProcAddress
  gen_driver.py INCLUDE errors  error codes, their names and descriptions
  gen_driver.py INCLUDE names   the symbols, one a line

INCLUDE is the folder of cuda.h. A symbol defined elsewhere wins over its weak stub.
"""
import os
import re
import sys


def read(path):
    with open(path) as f:
        return f.read()


def symbols(inc):
    text = re.sub(r'/\*.*?\*/', '', read(inc + '/cuda.h'), flags=re.S)
    if os.path.exists(inc + '/cudaProfiler.h'):  # a toolkit has it, the runtime's wheel has not
        text += re.sub(r'/\*.*?\*/', '', read(inc + '/cudaProfiler.h'), flags=re.S)
    found = set(re.findall(r'CUresult\s+CUDAAPI\s+(cu\w+)\s*\(', text))
    for m in re.finditer(r'#\s*define\s+(cu\w+)\s+__CUDA_API_(PTDS|PTSZ)\((cu\w+)\)', text):
        found.add(m.group(3) + ('_ptds' if m.group(2) == 'PTDS' else '_ptsz'))
        found.add(m.group(3))
    for m in re.finditer(r'#\s*define\s+cu[A-Z]\w+\s+(cu[A-Z]\w+)\s*$', text, re.M):
        found.add(m.group(1))
    # Old entry points are declared through the macros of the first ABI as well.
    found.update(re.findall(r'\b(cu[A-Z]\w+_pt[sd][sz])\b', text))
    return {f for f in found if not re.search(r'_v\d+_v\d+', f)}


def procs(inc, known):
    """From PFN_<base>_v<version>: the n-th version of a base is its n-th ABI."""
    text = read(inc + '/cudaTypedefs.h')
    versions = {}
    for base, version in re.findall(r'\bPFN_(cu\w+?)_v(\d{4,5})(?:_pt[sd][sz])?\b', text):
        versions.setdefault(base, set()).add(int(version))
    rows = []
    for base in sorted({re.sub(r'(_v\d+)?(_pt[sd][sz])?$', '', k) for k in known}):
        abis = [base + s for s in ('', '_v2', '_v3', '_v4', '_v5') if base + s in known]
        vs = sorted(versions.get(base, []))
        ordinary = [v for v in vs]
        per_thread = [a for a in abis if a + '_ptds' in known or a + '_ptsz' in known]
        # 7000 marks the arrival of the per-thread twins, not another ABI.
        if len(ordinary) > len(abis) and 7000 in ordinary and per_thread:
            ordinary.remove(7000)
        if not ordinary:
            ordinary = [2000]
        while len(ordinary) < len(abis):
            ordinary.append(ordinary[-1])
        for v, a in zip(ordinary, abis[-len(ordinary):] if len(abis) > len(ordinary) else abis):
            twin = next((a + s for s in ('_ptsz', '_ptds') if a + s in known), None)
            rows.append((base, v, a, twin))
    return rows


def main():
    inc, what = sys.argv[1:3]
    known = symbols(inc)
    out = []
    if what == 'names':
        out = sorted(known)
    elif what == 'stubs':
        out = ['/* SPDX-License-Identifier: Apache-2.0 */', '/* Generated: the driver API without its implementation. */',
               'int sim_unsupported(const char *symbol);']
        for s in sorted(known):
            out.append('__attribute__((weak, visibility("default"))) int %s(void);' % s)
            out.append('__attribute__((weak, visibility("default"))) int %s(void) { return sim_unsupported("%s"); }' % (s, s))
    elif what == 'procs':
        rows = procs(inc, known)
        for _, _, a, twin in rows:
            out += ['extern CUresult sim_as_%s(void) __asm__("%s");' % (s, s) for s in (a, twin) if s]
        out = sorted(set(out)) + ['static const struct proc procs[] = {']
        for base, v, a, twin in rows:
            out.append('\t{ "%s", %d, "%s", (void *)sim_as_%s, %s, %s },' % (
                base, v, a, a, '"%s"' % twin if twin else '0', '(void *)sim_as_%s' % twin if twin else '0'))
        out += ['\t{ 0, 0, 0, 0, 0, 0 },', '};']
    elif what == 'errors':
        text = read(inc + '/cuda.h')
        body = re.search(r'typedef enum cudaError_enum \{(.*?)\} CUresult;', text, re.S).group(1)
        for m in re.finditer(r'(?:/\*\*(.*?)\*/\s*)?(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)', body, re.S):
            doc = re.sub(r'[\s*]+', ' ', m.group(1) or '').strip()
            doc = re.sub(r'\\ref\s*|::|"|\\', '', doc).split('. ')[0].rstrip('.')
            out.append('{ %s, "%s", "%s" },' % (m.group(3), m.group(2), doc))
    print('\n'.join(out))


main()
