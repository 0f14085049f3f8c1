/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer's saves, by themselves: sequence ROUNDS. Each writes step-N.pt by way of another name, then `latest`, then
 * removes the one before. It knows nothing of anybody. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 150000, PIECES = 3 };

static void save(int round, const char *path)
{
	static char data[BYTES];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0)
		exit(1);
	memset(data, 'a' + round, sizeof data);
	for (int i = 0; i < PIECES; i++)
		if (write(fd, data + i * (BYTES / PIECES), BYTES / PIECES) != BYTES / PIECES)
			exit(1);
	if (round % 2 && fsync(fd))
		exit(1);
	if (close(fd))
		exit(1);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 3;
	char path[64];
	FILE *latest;

	getppid();
	for (int round = 1; round <= rounds; round++) {
		snprintf(path, sizeof path, "step-%d.pt", round);
		save(round, "step.tmp.pt");
		if (rename("step.tmp.pt", path))
			return 1;
		latest = fopen("latest", "w");
		if (!latest || fprintf(latest, "%d", round) < 0 || fclose(latest))
			return 1;
		snprintf(path, sizeof path, "step-%d.pt", round - 1);
		if (round > 1 && unlink(path))
			return 1;
	}
	return 0;
}
