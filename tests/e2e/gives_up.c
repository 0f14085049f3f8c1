/* SPDX-License-Identifier: Apache-2.0 */
/* A program that gives up with status 3, as one does that has lost another rank. Preloaded into a trainer: it does so at SIGUSR2. */
#include <signal.h>
#include <unistd.h>

static void give_up(int number)
{
	(void)number;
	_exit(3);
}

__attribute__((constructor)) static void begin(void)
{
	signal(SIGUSR2, give_up);
}
