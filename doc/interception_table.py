#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of doc/interception.md from the hook tables and the families of driver symbols.

  interception_table.py TREE            prints it
  interception_table.py TREE --check    compares it with doc/interception.md
  interception_table.py TREE --write    puts it there

Fails, and writes nothing, if a symbol of doc/driver_families.txt has no line in RULES, or a hooked one is in a group of
those that are not."""
import glob
import re
import sys
import textwrap

TREE = sys.argv[1]
MODE = sys.argv[2] if len(sys.argv) > 2 else "--print"
LISTING = f"{TREE}/doc/driver_families.txt"
MARK = "<!-- made by doc/interception_table.py -->\n"
HOOK, REFUSE = set(), {}
for path in glob.glob(f"{TREE}/hooks/cuda_*.def"):
    text = re.sub(r"/\*.*?\*/", "", open(path, encoding="ascii").read(), flags=re.S)
    HOOK |= set(re.findall(r"\bTPCK_HOOK\(\s*(cu\w+)\s*,", text))
    for row in re.split(r"\bTPCK_REFUSE\(", text)[1:]:
        if row.startswith("cu"):
            REFUSE[row.split(",")[0]] = re.findall(r'"([^"]*)"\)', row)[-1]
known = {l.strip() for l in open(f"{TREE}/shim/driver_symbols.txt") if l.strip() and l[0] != "#"}
families, name = {}, None
for line in open(LISTING):
    if line.startswith("# "):
        continue
    if line.startswith("## "):
        name = re.sub(r"^\w\.| \(.*", "", line[3:].strip())
        families[name] = []
    elif name:
        families[name] += line.split()
families["resolve"].append("cuGetProcAddress_v2_ptsz")
listed = {s for l in families.values() for s in l}
for symbol in sorted((known | HOOK | set(REFUSE)) - listed):
    print(f"{symbol} is in no family of doc/driver_families.txt", file=sys.stderr)
if not known | HOOK | set(REFUSE) <= listed:
    sys.exit(1)

F, M, P, N, G = "followed", "marked", "passed on", "not followed", "gap"
# family, state, what it means there, patterns (whole names, tried in order)
RULES = [
    ("alloc", F, "served from the arena; the order of these calls is logged",
     r"cuMemAlloc_v2|cuMemAllocPitch_v2|cuMemFree_v2|cuMem(Alloc|AllocFromPool|Free)Async(_ptsz)?"),
    ("alloc", F, "answered for blocks of the arena, which the driver does not know one by one",
     r"cuMemGetAddressRange_v2|cuPointerGetAttributes?"),
    ("alloc", F, "the answer, memory that is mapped for no block counted as free, is logged and given again while "
                 "running forward", r"cuMemGetInfo_v2"),
    ("alloc", M, "by its body in hooks/cuda_memory.c: memory that the CPU reads without a call", r"cuMemAllocManaged"),
    ("alloc", M, "legacy IPC of memory, by bodies in hooks/cuda_ipc.c: the driver refuses it for the arena's, so descriptors of "
     "the mappings go from process to process; handles of the driver's go to the driver. What is opened is in no snapshot",
     r"cuIpcGetMemHandle|cuIpcOpenMemHandle_v2|cuIpcCloseMemHandle"),
    ("alloc", F, "real in every mode. Memory of up to 4 MiB whose device address is asked for, or of which a kernel is given an address (not to const; in structures of up to 64 bytes), is watched: as long as nothing changes there, kernels "
     "have written nothing that the record lacks. Larger memory of that kind, memory that was registered, and a change mark",
     r"cuMemHostAlloc|cuMemAllocHost_v2|cuMemFreeHost|cuMemHostGetDevicePointer_v2|cuMemHostRegister_v2|cuMemHostUnregister"),
    ("alloc", G, "page-locked and mapped host memory: real in every mode. What a kernel that is given its address otherwise writes there is "
     "read by the CPU without a call; it is not in the log", r"cuMemAllocHost(_v2)?|cuMemHost\w+|cuMemFreeHost"),
    ("alloc", G, "older entry points, most of them with another ABI: what they give comes from the driver, is in no snapshot, "
     "and does not mark", r"cuMemAlloc|cuMemAllocPitch|cuMemFree|cuMemGetAddressRange|cuMemGetInfo|cuIpcOpenMemHandle|"
     r"cuArrayCreate|cuArray3DCreate"),
    ("alloc", F, "real in every mode. Reservations are asked for at addresses that come again; what is mapped and may be read "
     "is live memory; the order of these calls is logged. Memory on the host, and memory mapped twice, marks; memory on "
     "another device ends snapshots, as does any other allocation there",
     r"cuMemAddress(Reserve|Free)|cuMemCreate|cuMemMap|cuMemUnmap|cuMemSetAccess"),
    ("alloc", N, "parts of mapping device memory oneself that give none without the calls above, an import or an export, "
     "which mark",
     r"cuMemRelease|cuMemGetAllocation\w+|cuMemMapArrayAsync(_ptsz)?|cuMulticast\w+"),
    ("alloc", N, "ask about or hand out the physical memory behind the arena; the driver answers for the arena's mappings",
     r"cuMemRetainAllocationHandle|cuMemGetHandleForAddressRange|cuPointerSetAttribute"),
    ("alloc", N, "arrays and what is asked about them. An array's creation marks",
     r"cu(Mipmapped)?Array\w+"),
    ("alloc", M, "by its body in hooks/cuda_memory.c: the other device gets access to the arena, as to the pool", r"cuMemPoolSetAccess"),
    ("alloc", N, "pools are real objects of the driver that stay empty: the arena serves what is asked of them. Their "
     "attributes are the driver's answers", r"cuMemPool\w+|cuDevice(Get|Set)(Default)?MemPool|cuDeviceGetDefaultMemPool|"
     r"cuMem(Get|Set)(Default)?MemPool"),
    ("alloc", N, "hints for managed memory, whose allocation marks",
     r"cuMemAdvise(_v2)?|cuMemPrefetch\w+|cuMemDiscard\w+|cuMemRangeGet\w+"),
    ("alloc", N, "memory of other APIs; its import marks",
     r"cuExternalMemory\w+|cuDestroyExternalMemory"),
    ("alloc", G, "waiting for other APIs: real in every mode, while the launches between are not made when running forward",
     r"cuImportExternalSemaphore|cuDestroyExternalSemaphore"),
    ("alloc", N, "nodes of graphs: see launches", r"cuGraphMem\w+|cuDeviceGraphMemTrim"),

    ("launch", F, "an operation: a token for inference, a record in the log, a fence before it while a copy is under way, "
     "not made while running forward", r"cuLaunchKernel(Ex)?(_ptsz)?|cuLaunchCooperativeKernel(_ptsz)?"),
    ("launch", F, "one operation however many nodes it has; a graph's identity is the order of its capture",
     r"cuGraphLaunch(_ptsz)?"),
    ("launch", F, "real in every mode; what the node does, with the numbers that it is given, is compared at the graph's launches, as with captured nodes",
     r"cuGraphAddKernelNode(_v2)?|cuGraphExecKernelNodeSetParams(_v2)?"),
    ("launch", F, "real in every mode: a node of any type. Kernels as by the calls above; a part, with what is added later to one that the graph owns, as the body of a "
     "condition; copies to the host, host functions, memory of the graph and what else is not followed mark",
     r"cuGraphAddNode(_v2)?|cuGraphExecNodeSetParams"),
    ("launch", F, "real in every mode: the graph does what the part does, and its collectives are counted", r"cuGraphAddChildGraphNode|cuGraphExecChildGraphNodeSetParams"),
    ("launch", F, "real in every mode: a copy to the host marks", r"cuGraphAddMemcpyNode|cuGraphExecMemcpyNodeSetParams"),
    ("launch", F, "real in every mode: waits for values, and writes of them, mark; a wait in memory that the library gave is tried out before, as a stream's own is",
     r"cuGraphAddBatchMemOpNode|cuGraphExecBatchMemOpNodeSetParams"),
    ("launch", F, "real in every mode: the executable graph stays the same one to inference, and does what the other graph does", r"cuGraphExecUpdate(_v2)?"),
    ("launch", F, "the executable graph, or the copy, gets the identity of the graph", r"cuGraphInstantiateWith\w+|cuGraphClone"),
    ("launch", F, "real in every mode; what gets the handle next is another graph", r"cuGraph(Exec)?Destroy"),
    ("launch", P, "the CPU's own work: made in every mode", r"cuLaunchHostFunc(_ptsz)?"),
    ("launch", G, "older instantiation: the graph's launch is an operation, but all such graphs look alike to inference "
     "and in the log", r"cuGraphInstantiate(_v2)?"),
    ("launch", G, "other nodes of graphs that are built node by node: not looked at",
     r"cuGraphAdd\w+|cuGraphCreate"),
    ("launch", N, "changes to a graph between launches: real in every mode. The launch that follows is the same token",
     r"cuGraphExec(?!Destroy)\w+|cuGraphKernelNode\w+|cuGraphNodeSet\w+"),
    ("launch", N, "handling and looking at graphs: real in every mode",
     r"cuGraphDestroyNode|cuGraphNode(Find|Get)\w+|cuGraphUpload(_ptsz)?"),
    ("launch", G, "launches that today's compilers do not emit: made in every mode, and not in the log",
     r"cuLaunch|cuLaunchGrid(Async)?|cuLaunchCooperativeKernelMultiDevice|cuParamSet\w+|cuFuncSetBlockShape"),
    ("launch", N, "questions that compute on the host", r"cuOccupancy\w+"),

    ("copy", F, "an operation. Uploaded bytes are digested; bytes that come to the host go into the log and come from "
     "there while running forward",
     r"cuMemcpy(Async)?(_ptds|_ptsz)?|cuMemcpy(HtoD|DtoH|DtoD)(Async)?_v2(_ptds|_ptsz)?|cuMemcpyPeer(Async)?(_ptds|_ptsz)?"),
    ("copy", F, "an operation. Uploaded bytes are not digested. Towards the host: marked",
     r"cuMemcpy2D(Unaligned|Async)?_v2(_ptds|_ptsz)?|cuMemcpy3D(Async)?_v2(_ptds|_ptsz)?"),
    ("copy", F, "an operation; the value is part of the token",
     r"cuMemsetD(2D)?(8|16|32)(_v2)?(Async)?(_ptds|_ptsz)?"),
    ("copy", N, "copies of arrays, whose creation marks", r"cuMemcpy(AtoA|AtoD|AtoH|DtoA|HtoA)\w*"),
    ("copy", G, "batches as CUDA 12.8 and 12.9 know them, batches in three dimensions, and decompression: made in every mode; what they bring to the host is not in the log",
     r"cuMemcpyBatchAsync(_ptsz)?|cuMemcpy3DBatchAsync\w*|cuMemBatchDecompressAsync(_ptsz)?"),
    ("copy", G, "entry points of CUDA before 3.2 with another ABI: made in every mode, and not in the log",
     r"cuMemcpy(2D|3D|2DUnaligned|HtoD|DtoH|DtoD)(Async)?|cuMemsetD(2D)?(8|16|32)"),

    ("stream", F, "the stream gets an identity that is the same in every run",
     r"cuStreamCreate(WithPriority)?|cuStreamDestroy_v2"),
    ("stream", F, "while a stream captures there is no boundary, and its operations are nodes",
     r"cuStream(BeginCapture_v2|EndCapture|BeginCaptureToGraph)(_ptsz)?|cuStreamBeginCapture"),
    ("stream", F, "real in every mode; what was queued before has arrived and goes into the log",
     r"cuStreamSynchronize(_ptsz)?"),
    ("stream", F, "the answer is logged and given again while running forward",
     r"cuStreamQuery(_ptsz)?|cuEventQuery|cuEventElapsedTime(_v2)?"),
    ("stream", F, "an operation; a wait is not made while running forward, since the write before it is not made either. One in the arena is refused "
     "where a device's streams do not see it",
     r"cuStream(Wait|Write)Value(32|64)(_v2)?(_ptsz)?"),
    ("stream", M, "by its body in hooks/cuda_waits.c; a wait for a value in the arena is refused where a device's streams do not see it",
     r"cuStreamBatchMemOp(_v2)?(_ptsz)?"),
    ("stream", F, "the end of the context that all is in frees all memory at once: the arena gives it back, and no snapshots are taken from then on",
     r"cuCtxDestroy_v2|cuDevicePrimaryCtxRe(set|lease)_v2"),
    ("stream", M, "by its body in hooks/cuda_context.c: the other device gets access to the arena, as to what the driver makes", r"cuCtxEnablePeerAccess"),
    ("stream", M, "by its body in hooks/cuda_context.c: a larger heap for memory that kernels take themselves", r"cuCtxSetLimit"),
    ("stream", P, "real in every mode", r"cuCtxSynchronize(_v2)?|cuStreamWaitEvent(_ptsz)?|cuEvent(Create|Destroy_v2|Synchronize)|"
     r"cuEventRecord(WithFlags)?(_ptsz)?|cuStreamAddCallback(_ptsz)?|cuDevicePrimaryCtxRetain"),
    ("stream", G, "frees all memory when the last reference goes; the arena is not told",
     r"cuDevicePrimaryCtxRelease(_v2)?|cuCtxDetach"),
    ("stream", G, "older entry points that free all memory; the arena is not told", r"cuCtxDestroy|cuDevicePrimaryCtxReset"),
    ("stream", G, "the per-thread twin of a way into capture that CUDA 10.1 replaced: not noticed",
     r"cuStreamBeginCapture_ptsz"),
    ("stream", N, "capture from the inside: real", r"cuStreamGetCaptureInfo\w*|cuStreamUpdateCaptureDependencies\w*|"
     r"cuStreamIsCapturing(_ptsz)?|cuThreadExchangeStreamCaptureMode"),
    ("stream", G, "waiting for and signalling other APIs: real in every mode",
     r"cu(Signal|Wait)ExternalSemaphoresAsync(_ptsz)?"),
    ("stream", N, "contexts are the driver's; the engine uses the one that is current at the first operation",
     r"cuCtx(Attach|Create\w*|Push\w+|Pop\w+|SetCurrent|FromGreenCtx|DisablePeerAccess)|cuDevicePrimaryCtx\w+"),
    ("stream", N, "streams of green contexts get an identity at their first operation; all such streams share one",
     r"cuGreenCtx\w+"),
    ("stream", N, "waiting for and ordering whole contexts: real in every mode",
     r"cuCtxRecordEvent|cuCtxWaitEvent|cuFlushGPUDirectRDMAWrites"),
    ("stream", N, "questions and limits: real in every mode, answers are not logged",
     r"cuCtx(Get|Set|Reset)\w+|cuStream(Get|Set|Copy)\w+"),
    ("stream", N, "managed memory, whose allocation marks", r"cuStreamAttachMemAsync(_ptsz)?"),
    ("stream", N, "host objects that graphs own", r"cuUserObject\w+"),
    ("stream", N, "the entry points of CUDA before 4.0; real in every mode", r"cuStreamDestroy|cuEventDestroy"),

    ("module", F, "the name and the parameters' size of a function; a function that comes another way is asked for both "
     "at its first launch. cuLibraryGetKernel also as one of the calls that use a library", r"cuModuleGetFunction|cuLibraryGetKernel|cuKernelGetFunction"),
    ("module", F, "a variable on the device becomes part of snapshots", r"cuModuleGetGlobal_v2|cuLibraryGetGlobal"),
    ("module", F, "which registered binary the library is; and it is asked for the strings of the object that loads it, where "
     "the runtime is linked statically", r"cuLibraryLoadData"),
    ("module", F, "something of the library is used: it is asked for the variables that were registered for its binary, before "
     "the next snapshot", r"cuLibraryEnumerateKernels|cuLibraryGetModule|cuLibraryGetUnifiedFunction"),
    ("module", F, "the library is asked no more; variables of it that are known already stay in the plan of snapshots",
     r"cuLibraryUnload"),
    ("module", F, "the module is asked for the words and strings of its image and of the object that loads it: those that "
     "name variables become part of snapshots",
     r"cuModuleLoad\w*"),
    ("module", G, "a library loaded from a file brings variables that are in no snapshot unless the host asks for them by name",
     r"cuLibraryLoadFromFile|cuModuleGetGlobal"),
    ("module", G, "variables of the module that are known already stay in the plan of snapshots", r"cuModuleUnload"),
    ("module", N, "names and descriptions; functions are asked for theirs at their first launch",
     r"cuFuncGet\w+|cuKernelGet\w+|cuLibraryGetKernelCount|cuModule(Enumerate|GetFunctionCount|GetLoading)\w*"),
    ("module", N, "state of a function on the host side: real in every mode", r"cuFunc(IsLoaded|Load|Set\w+)|cuKernelSet\w+"),
    ("module", N, "linking on the host; the result is loaded as a module", r"cuLink\w+"),
    ("module", N, "descriptions of memory that a program makes anew in every run, at the same addresses",
     r"cuTensorMap\w+|cuTex\w+|cuSurf\w+|cuModuleGet(Surf|Tex)Ref"),

    ("resolve", F, "the door: what the driver gives is swapped for the hook of that very function", r"cuGetProcAddress(_v2)?"),
    ("resolve", P, "real in every mode", r"cuInit"),
    ("resolve", G, "an entry of newer drivers: what it gives is not swapped", r"cuGetProcAddress_v2_ptsz"),
    ("resolve", N, "hands out tables of private functions; never touched", r"cuGetExportTable"),
    ("resolve", N, "questions about devices and the driver, errors, profiling, the driver's own checkpointing",
     r"cu(Checkpoint|Coredump|Device|Driver|GetError|Logs|Profiler)\w+"),
    ("other", G, "memory of graphics APIs: neither in a snapshot nor marked", r"cuGraphics\w+|cuGL\w+|cuEGL\w+|cuVDPAU\w+"),
    ("other", N, "graphs that are built node by node: see launches", r"cuGraph\w+"),
    ("other", N, "questions", r"cuDevResource\w+|cuDevSm\w+|cuMemGetAccess|cuMemGetAttribute(_v2)?"),
]

TITLES = {"alloc": "Allocation and freeing", "launch": "Launches and graphs", "copy": "Copies and sets",
          "stream": "Streams, events and contexts", "module": "Modules, functions and names",
          "resolve": "Look-up and questions", "other": "The rest"}
bad, out = [], []
for family, names in families.items():
    groups = {}
    for symbol in names:
        if symbol in REFUSE:
            key = (family, M, "hooks/cuda_refused.def")
        else:
            rule = next((r for r in RULES if r[0] == family and re.fullmatch(r[3], symbol)), None)
            # older names first meet patterns of the new ones: prefer the rule whose state fits
            if rule is None:
                bad.append(f"{symbol} has no line in RULES of doc/interception_table.py, family \"{family}\"")
                continue
            fits = [r for r in RULES if r[0] == family and re.fullmatch(r[3], symbol) and
                    ((r[1] in (F, P)) == (symbol in HOOK) or (symbol in HOOK and r[1] in (M, G)))]
            if not fits:
                bad.append(f"{symbol} has {'a' if symbol in HOOK else 'no'} hook, and its line in RULES of doc/interception_table.py, family \"{family}\", "
                           f"says {rule[1]}")
                continue
            key = fits[0][:3]
        groups.setdefault(key, []).append(symbol)
    out.append(f"### {TITLES[family]} ({len(names)})\n\n")
    order = [F, M, P, N, G]
    place = {r[:3]: i for i, r in enumerate(RULES)}
    for key in sorted(groups, key=lambda k: (order.index(k[1]), place.get(k, -1))):
        what = key[2]
        if what == "hooks/cuda_refused.def":
            what = "by hooks/cuda_refused.def: made in every mode, and the first one marks"
        out.append(textwrap.fill(f"**{key[1]}**: {what}", 110, break_long_words=False, break_on_hyphens=False) + "\n")
        out.append("```\n" + textwrap.fill(" ".join(groups[key]), 108, break_on_hyphens=False) + "\n```\n")
    out.append("\n")
table = "".join(out).rstrip("\n") + "\n"
page_path = f"{TREE}/doc/interception.md"
for line in bad:
    print(line, file=sys.stderr)
if bad:
    sys.exit(1)
with open(page_path, encoding="utf-8") as page_file:
    page = page_file.read()
head, _, rest = page.partition(MARK)
_, _, tail = rest.partition(MARK)
if MODE == "--print":
    print(table)
elif MODE == "--write":
    with open(page_path, "w", encoding="utf-8") as page_file:
        page_file.write(head + MARK + table + MARK + tail)
elif rest.partition(MARK)[0] != table:
    print("doc/interception.md is not what the hook tables say: doc/interception_table.py . --write", file=sys.stderr)
    sys.exit(1)
