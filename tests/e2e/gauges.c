/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for NVIDIA's management library: what it says of the device is the machine's, and another thing each time. */
#include <sys/syscall.h>
#include <time.h>

#include "past_libc.h"

struct use {
	unsigned gpu, memory;
};

/* As the kernel's driver answers: nobody can be put before that. */
static unsigned chance(void)
{
	struct timespec now = {0, 0};

	past_libc(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0);
	return (unsigned)(now.tv_nsec / 1000);
}

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = &"device"[index];
	return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees)
{
	(void)device;
	(void)sensor;
	*degrees = 30 + chance() % 50;
	return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, struct use *use)
{
	(void)device;
	use->gpu = chance() % 101;
	use->memory = chance() % 101;
	return 0;
}
