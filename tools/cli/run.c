/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt run: a command, preloaded, and started again when it fails. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cli/cli.h"

extern char **environ;

static const char usage[] =
	"usage: transpckpt run [--restarts N] [--twin] [--aslr] -- COMMAND [ARGUMENT]...\n"
	"Runs COMMAND with snapshots. Its exit status is kept; 128 + N when signal N ended it.\n"
	"  --restarts N  start it again up to N times when it fails\n"
	"  --twin        have a second process follow it, which takes over where a signal ends it\n"
	"  --aslr        leave address randomisation on (resuming needs the same addresses)\n";

struct running {
	long restarts;
	bool aslr;
	const char *twin; /* the setting's value */
	char **command;
};

/* ---- the libraries ------------------------------------------------------------------------ */

/* The forwarder first, so that it is found under the driver's name; then the library. */
static int preload(void)
{
	char forwarder[TPCK_PATH_MAX], library[TPCK_PATH_MAX];
	const char *before = getenv("LD_PRELOAD");
	char *value;
	int rc;

	if (!cli_library("libtranspckpt.so", library)) {
		fprintf(stderr, "transpckpt: %s is not there; the command runs without snapshots\n", library);
		return 0;
	}
	/* The forwarder of this very library, not of another installation. */
	rc = snprintf(forwarder, sizeof forwarder, "%.*s/transpckpt/libcuda.so.1",
		      (int)(strrchr(library, '/') - library), library);
	if (rc < 0 || (size_t)rc >= sizeof forwarder || access(forwarder, R_OK) != 0)
		forwarder[0] = '\0';
	rc = asprintf(&value, "%s%s%s%s%s", forwarder, forwarder[0] ? ":" : "", library,
		      before && before[0] ? ":" : "", before ? before : "");
	if (rc < 0)
		return -ENOMEM;
	setenv("LD_PRELOAD", value, 1);
	free(value);
	return 0;
}

static void keep_addresses(void)
{
	int now = personality(0xffffffff);

	if (now < 0 || personality((unsigned long)now | ADDR_NO_RANDOMIZE) < 0)
		fprintf(stderr, "transpckpt: address randomisation cannot be switched off here (%s); going on with it\n",
			strerror(errno));
}

/* The program keeps this process's number. What it starts has others, and no twins. */
static void name_process(const char *twin)
{
	char process[16];

	snprintf(process, sizeof process, "%d", (int)getpid());
	setenv("TPCK_TWIN_PROCESS", process, 1);
	setenv("TRANSPCKPT_TWIN", twin, 1);
}

/* ---- the command -------------------------------------------------------------------------- */

static void start(const struct running *running)
{
	if (!running->aslr)
		keep_addresses();
	if (strcmp(running->twin, "off") != 0)
		name_process(running->twin);
	if (preload()) {
		fprintf(stderr, "transpckpt: out of memory\n");
		_exit(126);
	}
	execvp(running->command[0], running->command);
	fprintf(stderr, "transpckpt: cannot run %s: %s\n", running->command[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static volatile sig_atomic_t child, told;

/* Signals to us are for the command; one that ends it is not a reason to start it again. */
static void pass_on(int number)
{
	if (number != SIGCHLD) {
		told = number;
		if (child > 0)
			kill((pid_t)child, number);
	}
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 126;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run_again_and_again(const struct running *running)
{
	static const int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
	struct sigaction action = {.sa_handler = pass_on};
	int status = 0;

	for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
		sigaction(passed[i], &action, NULL);
	for (long left = running->restarts;; left--) {
		pid_t pid = fork();

		if (pid < 0) {
			fprintf(stderr, "transpckpt: cannot fork: %s\n", strerror(errno));
			return 126;
		}
		if (pid == 0) {
			for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
				signal(passed[i], SIG_DFL);
			start(running);
		}
		child = pid;
		status = wait_for(pid);
		child = 0;
		if (status == 0 || left <= 0 || told)
			return status;
		if (status > 128)
			fprintf(stderr, "transpckpt: %s was ended by signal %d (%s); starting it again, %ld left\n",
				running->command[0], status - 128, strsignal(status - 128), left - 1);
		else
			fprintf(stderr, "transpckpt: %s ended with status %d; starting it again, %ld left\n",
				running->command[0], status, left - 1);
	}
}

int verb_run(int argc, char **argv)
{
	static const struct option options[] = {
		{"restarts", required_argument, NULL, 'r'}, {"aslr", no_argument, NULL, 'a'},
		{"twin", no_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
	};
	struct tpck_settings settings;
	struct running running = {0};
	char *end;
	int option;

	tpck_settings_read(&settings, environ);
	running.aslr = settings.aslr;
	running.twin = settings.twin;
	while ((option = getopt_long(argc, argv, "+r:ath", options, NULL)) != -1) {
		if (option == 'r') {
			running.restarts = strtol(optarg, &end, 10);
			if (end == optarg || *end || running.restarts < 0) {
				fprintf(stderr, "transpckpt: '%s' is no number of restarts\n", optarg);
				return CLI_USAGE;
			}
		} else if (option == 'a') {
			running.aslr = true;
		} else if (option == 't') {
			running.twin = strcmp(settings.twin, "off") == 0 ? "1" : settings.twin;
		} else {
			fputs(usage, option == 'h' ? stdout : stderr);
			return option == 'h' ? CLI_GOOD : CLI_USAGE;
		}
	}
	if (optind >= argc) {
		fputs(usage, stderr);
		return CLI_USAGE;
	}
	running.command = argv + optind;
	/* Without restarts there is nothing to come back for: the command takes this process's place. */
	if (running.restarts == 0)
		start(&running);
	return run_again_and_again(&running);
}
