/* SPDX-License-Identifier: Apache-2.0 */
/* The device process: no child of the host's, without its preloads, and gone when the host is gone, however it went. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* The device process of a host carries the host's id as its argument. */
static pid_t device_of(pid_t host)
{
	DIR *d = opendir("/proc");
	pid_t found = 0;

	CHECK(d);
	for (struct dirent *e; !found && (e = readdir(d));) {
		char path[300], line[4200] = "", want[32];
		FILE *f;

		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		size_t n = fread(line, 1, sizeof line - 1, f);
		fclose(f);
		snprintf(want, sizeof want, "%d", (int)host);
		if (n > strlen(line) + 1 && strstr(line, "simgpu-device") && !strcmp(line + strlen(line) + 1, want))
			found = (pid_t)atoi(e->d_name);
	}
	closedir(d);
	return found;
}

/* A process that has just been executed shows its arguments a little later. */
static pid_t device_wait(pid_t host)
{
	pid_t p = 0;

	for (int i = 0; i < 200 && !(p = device_of(host)); i++)
		usleep(5000);
	return p;
}

static void has_gone(pid_t host)
{
	for (int i = 0; i < 200; i++) {
		if (!device_of(host))
			return;
		usleep(10000);
	}
	fprintf(stderr, "the device process outlives its host\n");
	exit(1);
}

static void die_by(int sig, bool keep_child)
{
	int ready[2], over[2], status;
	char c;

	CHECK(!pipe(ready) && !pipe(over));
	pid_t host = fork();
	if (host == 0) {
		device_start();
		if (keep_child && fork() == 0) {
			/* Holds every other descriptor of the host's open. */
			close(over[1]);
			_exit(read(over[0], &c, 1) != 0);
		}
		CHECK(write(ready[1], "x", 1) == 1);
		if (!sig)
			exit(0);
		for (;;)
			pause();
	}
	CHECK(read(ready[0], &c, 1) == 1);
	if (sig) {
		CHECK(device_wait(host));
		kill(host, sig);
	}
	CHECK(waitpid(host, &status, 0) == host);
	has_gone(host);
	close(ready[0]);
	close(ready[1]);
	close(over[0]);
	close(over[1]);
}

static volatile int children;

static void on_child(int sig)
{
	(void)sig;
	children++;
}

static void unseen(void)
{
	signal(SIGCHLD, on_child);
	setenv("LD_PRELOAD", "", 1);
	device_start();
	pid_t device = device_wait(getpid());
	CHECK(device);
	CHECK(getpgid(device) != getpgrp() && getsid(device) != getsid(0));
	errno = 0;
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	/* Killed under the driver: the device is lost, the host is told and not harmed. */
	kill(device, SIGKILL);
	usleep(100000);
	CUdeviceptr p;
	CHECK(cuMemAlloc(&p, 16) != CUDA_SUCCESS);
	CHECK(children == 0);
}

static void forked(void)
{
	int n, status;

	/* In a child of a process that uses the driver, the driver does not work. */
	pid_t child = fork();
	if (child == 0) {
		CUdeviceptr p;

		_exit(cuMemAlloc(&p, 16) == CUDA_ERROR_NOT_INITIALIZED && cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	die_by(0, false);
	die_by(SIGKILL, false);
	die_by(SIGTERM, false);
	die_by(SIGKILL, true);
	unseen();
	forked();
	return 0;
}
