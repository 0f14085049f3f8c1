/* SPDX-License-Identifier: Apache-2.0 */
/* Comes by symbols of the driver that it is linked to; a program, or with -DPLUGIN a library; with
 * -DNEWER=CALL to one that no header names, too. */
#include <cuda.h>

#include "alloc.h"

#ifdef NEWER
int NEWER(void);
#endif

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
#ifdef NEWER
	if (!error)
		error = (CUresult)NEWER();
#endif
	return door_answer((int)error, p);
}

#ifndef PLUGIN
int main(void)
{
	return door_try();
}
#endif
