/* SPDX-License-Identifier: Apache-2.0 */
/*
 * killer N PROGRAM [ARGUMENT...]: runs the program and kills it by SIGKILL where its N-th system call begins, those of
 * all its threads counted together, from its first getppid() on if it is called `sequence`, else from its start. With N
 * 0 it is not killed. Prints how many calls there were to standard error.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 64 };

/* Threads that are inside of a call. */
static struct {
	pid_t id;
	bool inside;
} threads[THREADS];

static bool enters(pid_t id)
{
	unsigned i = 0;

	while (i < THREADS - 1 && threads[i].id && threads[i].id != id)
		i++;
	threads[i].id = id;
	threads[i].inside = !threads[i].inside;
	return threads[i].inside;
}

int main(int argc, char **argv)
{
	long when = argc > 2 ? atol(argv[1]) : -1, calls = 0;
	const char *slash = argc > 2 ? strrchr(argv[2], '/') : NULL;
	bool counting = !slash || strcmp(slash, "/sequence") != 0;
	int status = 0, result = 1;
	pid_t child, id;

	if (when < 0) {
		fprintf(stderr, "usage: killer N PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	child = fork();
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		execv(argv[2], argv + 2);
		_exit(127);
	}
	waitpid(child, &status, 0);
	/* Threads are followed; processes that it starts are not. */
	ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
	ptrace(PTRACE_SYSCALL, child, 0, 0);
	while ((id = waitpid(-1, &status, __WALL)) > 0) {
		long deliver = 0;

		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			if (id == child) {
				result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
				break;
			}
			continue;
		}
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			struct user_regs_struct registers;

			if (enters(id)) {
				ptrace(PTRACE_GETREGS, id, 0, &registers);
				if (counting && ++calls == when)
					kill(child, SIGKILL);
				if (registers.orig_rax == SYS_getppid)
					counting = true;
			}
		} else if (status >> 8 == (SIGTRAP | PTRACE_EVENT_CLONE << 8)) {
			unsigned long made = 0;
			char path[64], text[4096] = "";
			FILE *file;
			int group = 0;

			/* A clone that is not a thread: the agent, or a child of it. */
			ptrace(PTRACE_GETEVENTMSG, id, 0, &made);
			snprintf(path, sizeof path, "/proc/%lu/status", made);
			file = fopen(path, "r");
			if (file && fread(text, 1, sizeof text - 1, file) > 0 && strstr(text, "\nTgid:"))
				group = atoi(strstr(text, "\nTgid:") + 6);
			if (file)
				fclose(file);
			if (group && group != child) {
				int stopped;

				waitpid((pid_t)made, &stopped, __WALL);
				ptrace(PTRACE_DETACH, (pid_t)made, 0, 0);
			}
		} else if (status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP && WSTOPSIG(status) != SIGTRAP) {
			deliver = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, id, 0, deliver);
	}
	fprintf(stderr, "calls %ld\n", calls);
	return result;
}
