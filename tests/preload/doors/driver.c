/* SPDX-License-Identifier: Apache-2.0 */
/* Comes by symbols of the driver that it is linked to; a program, or with -DPLUGIN a library. */
#include <cuda.h>

#include "alloc.h"

int door_try(void);

int door_try(void)
{
	CUdeviceptr p = 0;
	CUcontext context;
	CUresult error = cuInit(0);

	if (!error)
		error = cuDevicePrimaryCtxRetain(&context, 0);
	if (!error)
		error = cuCtxSetCurrent(context);
	if (!error)
		error = cuMemAlloc(&p, 1 << 20);
	return door_answer((int)error, p);
}

#ifndef PLUGIN
int main(void)
{
	return door_try();
}
#endif
