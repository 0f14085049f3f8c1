/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt: the command; one file a verb. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/cli.h"
#include "tools/cli/plain.h"

static const struct {
	const char *name;
	int (*verb)(int argc, char **argv);
	const char *help;
} verbs[] = {
	{"run", verb_run, "run a command with snapshots, as -- COMMAND [ARGUMENT]..."},
	{"ls", verb_ls, "list checkpoints in memory and on disk"},
	{"show", verb_show, "what was learnt about a program, or why nothing is captured"},
	{"top", verb_top, "what jobs are at, again every second"},
	{"report", verb_report, "a page of HTML about the life of a job"},
	{"verify", verb_verify, "read every chunk of checkpoints and compare it with its digest"},
	{"rm", verb_rm, "remove checkpoints"},
	{"infer", verb_infer, "find the ends of iterations in a recorded launch sequence"},
	{"spare", verb_spare, "have this node take over the ranks of one that is lost"},
	{"doctor", verb_doctor, "what this machine and these settings allow"},
};

static int usage(FILE *to, int rc)
{
	fputs("usage: transpckpt VERB [OPTION]... [OPERAND]...\n\n", to);
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].help);
	fputs("\ntranspckpt VERB --help says more.\n", to);
	return rc;
}

/* A command that is itself preloaded would see what the job sees, and not what is there. */
static void shed_preload(char **argv)
{
	if (!getenv("LD_PRELOAD"))
		return;
	unsetenv("LD_PRELOAD");
	execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage(stderr, CLI_USAGE);
	if (strcmp(argv[1], "run") != 0)
		shed_preload(argv);
	/* The screen of `top` is curses', which shows such characters by itself; what `run` starts has its own streams. */
	if (strcmp(argv[1], "top") != 0 && strcmp(argv[1], "run") != 0)
		plain_streams();
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].verb(argc - 1, argv + 1);
	if (strcmp(argv[1], "--version") == 0) {
		puts("transpckpt " PACKAGE_VERSION);
		return CLI_GOOD;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
		return usage(stdout, CLI_GOOD);
	fprintf(stderr, "transpckpt: '%s' is no verb\n", argv[1]);
	return usage(stderr, CLI_USAGE);
}
