/* SPDX-License-Identifier: Apache-2.0 */
/* Switches callgrind's counting on and off, for counted.py. */
#include <valgrind/callgrind.h>

void count_on(void);
void count_off(void);

void count_on(void)
{
	CALLGRIND_START_INSTRUMENTATION;
}

void count_off(void)
{
	CALLGRIND_STOP_INSTRUMENTATION;
}
