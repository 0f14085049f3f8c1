/* SPDX-License-Identifier: Apache-2.0 */
/* Hangs in two ways, beside a child that leaves its session: what the kit has to find, tell and end. It uses no device. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile unsigned long turns;
static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER;

/* Visible names, which the stacks are to show. */
void *stuck_at_a_lock(void *unused);
void stuck_in_a_loop(void);

void *stuck_at_a_lock(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&taken);
	return NULL;
}

void stuck_in_a_loop(void)
{
	for (;;)
		turns++;
}

int main(void)
{
	pthread_t thread;

	pthread_mutex_lock(&taken);
	if (fork() == 0) {
		setsid();
		for (;;)
			pause();
	}
	pthread_create(&thread, NULL, stuck_at_a_lock, NULL);
	printf("{\"begun\": true}\n");
	fflush(stdout);
	stuck_in_a_loop();
	return 0;
}
