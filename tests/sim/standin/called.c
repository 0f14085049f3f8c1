/* SPDX-License-Identifier: Apache-2.0 */
/* The one line of a function that has no body. */
#include "standin/standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

long simgpu_standin_called(const char *library, const char *symbol, long status)
{
	static const char *seen[1024];
	static int n;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < n && strcmp(seen[i], symbol); i++)
		;
	if (i == n) {
		if (n < 1024)
			seen[n++] = symbol;
		fprintf(stderr, "simgpu: %s of %s is not supported\n", symbol, library);
	}
	pthread_mutex_unlock(&lock);
	return status;
}
