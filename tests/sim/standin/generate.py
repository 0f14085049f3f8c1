#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the libraries that stand for the vendor's in a program built against them, from what that program imports.

  generate.py --package FOLDER --bodies FOLDER --cudart FILE --out FOLDER

--package the `torch` package: what its libraries leave undefined and a vendor library of the same installation
          defines is imported; or `cupy_backends`, which has no vendor's libraries beside it: there the versions and names
          of what is undefined tell whose they are
--bodies  archives lib<name>.a with the functions that simgpu has (libcublas.a for libcublas.so.13)
--cudart  simgpu's runtime: what it lacks goes into a library beside it
--out     gets one library per SONAME, and `preload`, their names in the order for LD_PRELOAD

A function without a body prints one line that names it when it is called and returns the library's "not supported".
"""
import argparse
import glob
import os
import re
import subprocess
import sys

# What a function of that library says when it is not supported.
NOT_SUPPORTED = {
    'libcublas': 15, 'libcublasLt': 15, 'libcudnn': 3000, 'libcufft': 16, 'libcusparse': 10, 'libcusparseLt': 10,
    'libcusolver': 9, 'libcurand': 999, 'libcupti': 27, 'libnccl': 3, 'libcufile': 5001, 'libnvshmem_host': 1, 'libcudart': 801,
}
# Compilers need no device: the vendor's own are used.
REAL = ('libnvrtc', 'libnvJitLink', 'libnvrtc-builtins')


def stem(soname):
    return soname.split('.so')[0]


def dynamic_symbols(path):
    """(name, version, defined, type, size) of each dynamic symbol."""
    text = subprocess.run(['readelf', '-W', '--dyn-syms', path], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        f = line.split()
        if len(f) < 8 or not f[0].endswith(':') or not f[0][:-1].isdigit():
            continue
        name, _, version = f[7].replace('@@', '@').partition('@')
        yield name, version, f[6] != 'UND', f[3], int(f[2], 0)


def dynamic_section(path, tag):
    text = subprocess.run(['readelf', '-W', '-d', path], check=True, capture_output=True, text=True).stdout
    return re.findall(r'\(%s\)[^\[]*\[([^\]]+)\]' % tag, text)


def libraries_of(package):
    if os.path.basename(package) == 'torch':
        return glob.glob(package + '/lib/*.so') + glob.glob(package + '/_C*.so')
    return [path for name in ('cupy_backends', 'cupy') for path in glob.glob(os.path.dirname(package) + '/%s/**/*.so' % name, recursive=True)]


def imports_of(package):
    needed, undefined = set(), set()
    for path in sorted(libraries_of(package)):
        needed.update(dynamic_section(path, 'NEEDED'))
        undefined.update((n, v) for n, v, defined, _, _ in dynamic_symbols(path) if not defined)
    return needed, undefined


def vendor_libraries(package, needed, undefined):
    """SONAME to what it defines, of those the program asks for by name."""
    site = os.path.dirname(package)
    files = {os.path.basename(p): p for p in sorted(glob.glob(site + '/nvidia/*/lib/*.so*'))}
    found = {s: {(n, v): (k, b) for n, v, d, k, b in dynamic_symbols(files[s]) if d}
             for s in sorted(needed) if s in files and stem(s) not in REAL}
    for s in sorted(needed):
        if s not in found and stem(s) in NOT_SUPPORTED and os.path.basename(package) != 'torch':
            mine = {(n, v): ('FUNC', 0) for n, v in undefined if (v == s if v else n.startswith(stem(s)[len('lib'):]))}
            if mine:
                found[s] = mine
    return found


def source(soname, rows):
    code = NOT_SUPPORTED.get(stem(soname), 1)
    out = ['/* Generated from what the program imports. */',
           'long simgpu_standin_called(const char *library, const char *symbol, long status);']
    for name, (_, kind, size) in sorted(rows.items()):
        weak = '__attribute__((weak, visibility("default")))'
        if kind in ('OBJECT', 'TLS'):
            out.append('%s char %s[%d];' % (weak, name, max(size, 1)))
        else:
            out.append('%s long %s(void);' % (weak, name))
            out.append('%s long %s(void) { return simgpu_standin_called("%s", "%s", %d); }' % (weak, name, soname, name, code))
    return '\n'.join(out) + '\n'


def version_script(rows):
    nodes = {}
    for name, (version, _, _) in rows.items():
        nodes.setdefault(version, []).append(name)
    if set(nodes) <= {''}:  # also where it is needed, and nothing of it is imported
        return None
    own = max(nodes, key=lambda v: len(nodes[v]))
    text = []
    for version, names in sorted(nodes.items()):
        # What a body defines and nobody imports goes to the node that most of the library has.
        text.append('%s { global: %s %s };' % (version or 'SIMGPU_UNVERSIONED', ' '.join(n + ';' for n in sorted(names)),
                                               '*;' if version == own else ''))
    return '\n'.join(text) + '\n'


def build(soname, rows, bodies, out):
    base = os.path.join(out, stem(soname))
    with open(base + '.c', 'w') as f:
        f.write(source(soname, rows))
    command = [os.environ.get('CC', 'cc'), '-shared', '-fPIC', '-O1', '-w', '-fvisibility=hidden', '-Wl,-soname,' + soname,
               '-Wl,-Bsymbolic', '-Wl,-z,defs', '-o', os.path.join(out, soname)]
    script = version_script(rows)
    if script:
        with open(base + '.map', 'w') as f:
            f.write(script)
        command.append('-Wl,--version-script=' + base + '.map')
    body = os.path.join(bodies, stem(soname) + '.a')
    common = os.path.join(bodies, 'libstandin.a')
    if os.path.exists(body):
        command += ['-Wl,--whole-archive', body, '-Wl,--no-whole-archive']
    # Of two weak ones the first counts, and NCCL's own are weak: what stands for nothing comes last.
    subprocess.run(command + [base + '.c', common, '-ldl', '-lpthread'], check=True)


def main():
    p = argparse.ArgumentParser()
    for name in ('package', 'bodies', 'cudart', 'out'):
        p.add_argument('--' + name, required=True)
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    needed, undefined = imports_of(os.path.realpath(a.package))
    vendor = vendor_libraries(os.path.realpath(a.package), needed, undefined)
    if not vendor:
        sys.exit('simgpu: no vendor library that %s asks for is known' % a.package)
    preload = []
    for soname, defined in vendor.items():
        # A vendor library that carries its own C++ library defines that as well; it is not what is asked of it.
        rows = {n: (v,) + defined[n, v] for n, v in undefined if (n, v) in defined and not n.startswith('_Z')}
        if stem(soname) == 'libcudart':
            have = {n for n, _, d, _, _ in dynamic_symbols(a.cudart) if d}
            rows = {n: r for n, r in rows.items() if n not in have}
            if rows:
                build('libsimgpu-cudart-rest.so', rows, a.bodies, a.out)
                preload.append('libsimgpu-cudart-rest.so')
            continue
        build(soname, rows, a.bodies, a.out)
        preload.append(soname)
    with open(os.path.join(a.out, 'preload.tmp'), 'w') as f:
        f.write('\n'.join(preload) + '\n')
    os.rename(os.path.join(a.out, 'preload.tmp'), os.path.join(a.out, 'preload'))


main()
