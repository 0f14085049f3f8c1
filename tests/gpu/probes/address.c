/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process gets the address range that the library wants for its arena: address [HEX]. */
#include <stdlib.h>

#include "tests/gpu/probes/probe.h"

int main(int argc, char **argv)
{
	unsigned long long wanted = argc > 1 ? strtoull(argv[1], NULL, 16) : 0x4a0000000000ull;
	size_t bytes = (size_t)256 << 30;
	CUdeviceptr got = 0;
	CUdevice device;
	CUcontext context;
	double begun;

	probe_begin(&device, &context);
	begun = probe_ms();
	DO(cuMemAddressReserve, &got, bytes, 0, wanted, 0);
	probe_say("{\"result\": \"%s\", \"wanted\": \"%#llx\", \"got\": \"%#llx\", \"ms\": %.2f}", got == wanted ? "passed" : "elsewhere", wanted,
		  (unsigned long long)got, probe_ms() - begun);
	DO(cuMemAddressFree, got, bytes);
	return 0;
}
