/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file of 100 KB: writer FILE. The test copies it to other names. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char bytes[100000];
	int fd = argc > 1 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;

	if (fd < 0 || write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes || close(fd)) {
		perror("writer");
		return 1;
	}
	return 0;
}
