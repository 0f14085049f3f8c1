# SPDX-License-Identifier: Apache-2.0
"""Prints what the driver says of the first device, as JSON: version, name, memory, and each attribute by its number in cuda.h."""
import ctypes
import json

ATTRIBUTES = 160


def main():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(json.dumps({"result": "refused", "call": "dlopen", "error": str(error)}))
        return
    number, name = ctypes.c_int(), ctypes.create_string_buffer(200)
    device = ctypes.c_int()
    found = {}
    status = cuda.cuInit(0)
    if status:
        print(json.dumps({"result": "refused", "call": "cuInit", "error": status}))
        return
    cuda.cuDriverGetVersion(ctypes.byref(number))
    found["driver_version"] = number.value
    cuda.cuDeviceGetCount(ctypes.byref(number))
    found["devices"] = number.value
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, len(name), device)
    found["name"] = name.value.decode()
    total = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    found["memory_GiB"] = round(total.value / 2**30, 1)
    found["attributes"] = {}
    for i in range(1, ATTRIBUTES):
        if cuda.cuDeviceGetAttribute(ctypes.byref(number), i, device) == 0:
            found["attributes"][i] = number.value
    found["capability"] = f"{found['attributes'].get(75)}.{found['attributes'].get(76)}"
    print(json.dumps(found))


main()
