/* SPDX-License-Identifier: Apache-2.0 */
/* Names and descriptions of the driver's error codes. */
#include "driver/sim.h"

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
#include "driver_errors.inc"
};

SIM_API CUresult cuGetErrorName(CUresult error, const char **out)
{
	for (size_t i = 0; out && i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == (int)error) {
			*out = errors[i].name;
			return CUDA_SUCCESS;
		}
	if (out)
		*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGetErrorString(CUresult error, const char **out)
{
	for (size_t i = 0; out && i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == (int)error) {
			*out = error == CUDA_SUCCESS ? "no error" : errors[i].text;
			return CUDA_SUCCESS;
		}
	if (out)
		*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

/* The driver's log, in which this one writes nothing. */
SIM_API CUresult cuLogsRegisterCallback(CUlogsCallback fn, void *data, CUlogsCallbackHandle *out)
{
	static char handle;

	(void)data;
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	if (out)
		*out = (CUlogsCallbackHandle)(void *)&handle;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle h)
{
	return h ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
