/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer that has a forked process write down how far it is: preloaded, it tells that of each copy to the host, by a pipe, and a row of it comes to the file `rows`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int told = -1;

static void __attribute__((noreturn)) write_down(int from)
{
	int rows = open("rows", O_WRONLY | O_CREAT | O_APPEND, 0666), row;
	char text[40];

	while (read(from, &row, sizeof row) == sizeof row)
		if (write(rows, text, (size_t)snprintf(text, sizeof text, "row %d\n", row)) < 0)
			break;
	_exit(0);
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	int (*real)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	static int copies;
	int ends[2];

	if (kind == 2 && copies == 0 && pipe(ends) == 0) {
		told = ends[1];
		if (fork() == 0) {
			close(ends[1]);
			write_down(ends[0]);
		}
		close(ends[0]);
	}
	if (kind == 2 && write(told, &copies, sizeof copies) == sizeof copies)
		copies++;
	return real(to, from, bytes, kind, stream);
}
