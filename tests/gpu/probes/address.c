/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process gets the address range that the library wants for its arena: address [HEX]; and with a second argument, which ranges it gets beside
 * that, of sizes and at places as programs that map memory themselves need them. */
#include <stdlib.h>

#include "tests/gpu/probes/probe.h"

/* In MiB: what an expandable segment of PyTorch's reserves on a device of 140 GiB, and powers of two. */
static void places(void)
{
	static const struct {
		unsigned long long at;
		size_t mib;
	} tried[] = {{0x4b0000000000, 161060}, {0x4b0000000000, 262144}, {0x4b4000000000, 161060}, {0x4b2752400000, 161060}, {0x4c0000000000, 2},
		     {0x4c0000200000, 6},      {0x4d0000000000, 1048576}, {0x4e0000000000, 163840}, {0x480000000000, 161060}, {0x400000000000, 161060},
		     {0x300000000000, 161060}, {0x100000000000, 161060}, {0x530000000000, 161060}, {0x4f0000000000, 32}, {0x4f0100000000, 256}, {0x4f0200000000, 1024}, {0x4f1000000000, 8192},
		     {0x4f2000000000, 32768}, {0x500000000000, 65536},   {0x504000000000, 131072}};

	for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
		size_t bytes = tried[i].mib << 20;
		CUdeviceptr got = 0;
		CUresult result = driver.cuMemAddressReserve(&got, bytes, 0, tried[i].at, 0);

		probe_say("{\"row\": {\"wanted\": \"%#llx\", \"MiB\": %zu, \"result\": %d, \"got\": \"%#llx\"}}", tried[i].at, tried[i].mib,
			  (int)result, (unsigned long long)got);
	}
}

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
	if (argc > 2)
		places();
	else
		DO(cuMemAddressFree, got, bytes);
	return 0;
}
