/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that can be asked by a Unix socket how it does. Preloaded into a trainer: at its copy to the host of number $SERVES_AT it takes away what is at $SERVES, listens
 * there, and has a thread answer; from then on it asks itself at each such copy, and writes the answers to out/served. SERVES_ENDS=1: at its end it takes the socket away.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un at = {.sun_family = AF_UNIX};

static void fails(const char *what)
{
	perror(what);
	_exit(7);
}

static void *answers(void *listening)
{
	for (;;) {
		int number, fd = accept((int)(long)listening, NULL, NULL);

		if (fd < 0)
			fails("accept");
		if (read(fd, &number, sizeof number) == sizeof number) {
			number = number * 3 + 1;
			if (write(fd, &number, sizeof number) != sizeof number)
				perror("write");
		}
		close(fd);
	}
}

static void begins(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	socklen_t bytes = sizeof name;
	struct stat found;
	pthread_t thread;

	strcpy(at.sun_path, getenv("SERVES"));
	if (!stat(at.sun_path, &found) && unlink(at.sun_path))
		fails("unlink");
	if (bind(fd, (struct sockaddr *)&at, sizeof at))
		fails("bind");
	if (chmod(at.sun_path, 0600) || listen(fd, 5))
		fails("listen");
	if (getsockname(fd, (struct sockaddr *)&name, &bytes) || name.sun_family != AF_UNIX || strcmp(name.sun_path + strlen(name.sun_path) - strlen(at.sun_path), at.sun_path) != 0)
		fails("getsockname");
	if (stat(at.sun_path, &found) || !S_ISSOCK(found.st_mode) || (found.st_mode & 0777) != 0600)
		fails("stat");
	if (pthread_create(&thread, NULL, answers, (void *)(long)fd))
		fails("pthread_create");
}

static int asks(int number)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), answer = 0;
	struct sockaddr_un name;
	socklen_t bytes = sizeof name;

	if (connect(fd, (struct sockaddr *)&at, sizeof at))
		fails("connect");
	if (getpeername(fd, (struct sockaddr *)&name, &bytes) || strcmp(name.sun_path + strlen(name.sun_path) - strlen(at.sun_path), at.sun_path) != 0)
		fails("getpeername");
	if (write(fd, &number, sizeof number) != sizeof number || read(fd, &answer, sizeof answer) != sizeof answer)
		fails("answer");
	close(fd);
	return answer;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	int (*real)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	static int copies;

	copies += kind == 2;
	if (kind == 2 && copies == atoi(getenv("SERVES_AT")))
		begins();
	if (kind == 2 && copies >= atoi(getenv("SERVES_AT"))) {
		FILE *served = fopen("out/served", "a");

		if (!served)
			fails("out/served");
		fprintf(served, "%d\n", asks(copies));
		fclose(served);
	}
	return real(to, from, bytes, kind, stream);
}

__attribute__((destructor)) static void ends(void)
{
	if (at.sun_path[0] && getenv("SERVES_ENDS"))
		unlink(at.sun_path);
}
