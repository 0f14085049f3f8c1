/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt spare: starts ranks of a node that is lost, as the job's agent here says. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/settings.h"
#include "runtime/base/log.h"
#include "runtime/reach/reach.h"
#include "runtime/store/file.h"
#include "runtime/wire/command.h"
#include "runtime/wire/message.h"
#include "runtime/wire/segment.h"
#include "tools/cli/cli.h"

extern char **environ;

static const char usage[] =
	"usage: transpckpt spare [--job JOB]\n"
	"Makes this node a spare one of JOB, whose ranks are on several other nodes: the ranks of a node that is lost are\n"
	"started here, and go on, while their launchers on the others see no process end. It runs until these ranks have\n"
	"ended, or until it is told to end.\n"
	"  --job JOB  in place of TRANSPCKPT_JOB\n";

enum { RANKS_MOST = 65536, TRY_AGAIN_MS = 1000 };

static struct {
	struct tpck_reach reach;
	uint32_t room;      /* ranks that may still be started */
	int agent;          /* connection; -1: none */
	pid_t *child;
	size_t started, running;
	int status;         /* of the first that failed */
} spare = {.agent = -1};

/* ---- the agent ---------------------------------------------------------------------------- */

static bool say_room(void)
{
	struct {
		struct tpck_message head;
		struct tpck_spare spare;
	} message = {{.magic = TPCK_MESSAGE_MAGIC, .version = TPCK_WIRE_VERSION, .type = TPCK_MSG_SPARE, .bytes = sizeof message.spare}, {.ranks = spare.room}};

	return send(spare.agent, &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
}

static void hang_up(void)
{
	if (spare.agent >= 0)
		close(spare.agent);
	spare.agent = -1;
}

static int reach_agent(void)
{
	struct tpck_error err = {0};
	int fd = tpck_reach(&spare.reach, &err);

	if (fd < 0) {
		fprintf(stderr, "transpckpt: this node is no spare one for now: %s\n", err.text);
		return fd;
	}
	spare.agent = fd;
	if (!say_room())
		hang_up();
	return 0;
}

/* ---- ranks -------------------------------------------------------------------------------- */

static const char *value_of(const struct tpck_command *command, const char *name)
{
	size_t length = strlen(name);

	for (char **variable = command->environment; *variable; variable++)
		if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=')
			return *variable + length + 1;
	return NULL;
}

/* Without the library the rank would begin from its beginning. */
static bool has_library(const struct tpck_command *command)
{
	const char *preload = value_of(command, "LD_PRELOAD");
	char list[TPCK_PATH_MAX], *rest = list, *path;

	snprintf(list, sizeof list, "%s", preload ? preload : "");
	while ((path = strtok_r(rest, ": ", &rest)))
		if (strstr(path, "libtranspckpt.so"))
			return access(path, R_OK) == 0;
	return false;
}

/* Does not return. */
static void become(const struct tpck_command *command, uint32_t rank, const char **environment)
{
	static const int ours[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGQUIT};
	int null = open("/dev/null", O_RDONLY);
	sigset_t mask;

	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		sigaddset(&mask, ours[i]);
	sigprocmask(SIG_UNBLOCK, &mask, NULL);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	if (null > STDERR_FILENO)
		close(null);
	(void)personality(command->personality);
	if (chdir(command->folder))
		fprintf(stderr, "transpckpt: rank %u cannot be started in %s: %s\n", rank, command->folder, strerror(errno));
	else if (!has_library(command))
		fprintf(stderr, "transpckpt: rank %u cannot be started: the libtranspckpt.so of its LD_PRELOAD is not on this node\n", rank);
	else if (execve(command->program, command->arguments, (char **)(uintptr_t)environment))
		fprintf(stderr, "transpckpt: rank %u cannot be started: %s: %s\n", rank, command->program, strerror(errno));
	_exit(126);
}

static void start(const struct tpck_stand *stand)
{
	struct tpck_command command = {0};
	struct tpck_error err = {0};
	const char **environment = NULL;
	size_t size, count = 0, used = 0;
	pid_t *larger, child = -1;
	char *text = NULL;

	if (!tpck_file_read(stand->command, TPCK_COMMAND_MAX, &text, &size, &err) && tpck_command_parse(text, size, &command))
		tpck_error_set(&err, EBADMSG, "reading %s", stand->command);
	unlink(stand->command);
	while (command.environment && command.environment[count])
		count++;
	environment = calloc(count + 2, sizeof *environment);
	larger = realloc(spare.child, (spare.started + 1) * sizeof *larger);
	if (larger)
		spare.child = larger;
	if (!err.text[0] && (!environment || !larger))
		tpck_error_set(&err, ENOMEM, "starting rank %u", stand->rank);
	if (!err.text[0]) {
		for (size_t i = 0; i < count; i++)
			environment[used++] = command.environment[i];
		environment[used] = "TPCK_TWIN_STANDS_IN=1";
		child = fork();
		if (!child)
			become(&command, stand->rank, environment);
		if (child < 0)
			tpck_error_set(&err, errno, "starting rank %u", stand->rank);
	}
	if (child > 0) {
		fprintf(stderr, "transpckpt: rank %u of %u is started here, as process %d\n", stand->rank, stand->world, (int)child);
		spare.child[spare.started++] = child;
		spare.running++;
		spare.room -= spare.room > 0;
	} else {
		fprintf(stderr, "transpckpt: rank %u cannot be started here: %s\n", stand->rank, err.text);
	}
	tpck_command_free(&command);
	free(environment);
	free(text);
}

static void hear_agent(void)
{
	union {
		struct tpck_message head;
		char bytes[sizeof(struct tpck_message) + sizeof(struct tpck_stand)];
	} packet;
	struct tpck_stand stand;
	ssize_t got = recv(spare.agent, packet.bytes, sizeof packet, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0 || tpck_message_check(packet.bytes, (size_t)got)) {
		hang_up();
		return;
	}
	if (packet.head.type != TPCK_MSG_STAND || got != sizeof packet)
		return;
	memcpy(&stand, packet.bytes + sizeof packet.head, sizeof stand);
	if (!memchr(stand.command, 0, sizeof stand.command))
		return;
	start(&stand);
	if (!say_room())
		hang_up();
}

static void look_at_children(void)
{
	int status;
	pid_t child;

	while ((child = waitpid(-1, &status, WNOHANG)) > 0)
		for (size_t i = 0; i < spare.started; i++)
			if (spare.child[i] == child) {
				int now = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

				spare.child[i] = 0;
				spare.running--;
				spare.status = spare.status ? spare.status : now;
			}
}

/* ---- the loop ----------------------------------------------------------------------------- */

/* False: it is told to end, and has nothing to wait for. */
static bool take_signal(int signals)
{
	struct signalfd_siginfo info;

	if (read(signals, &info, sizeof info) != sizeof info || info.ssi_signo == SIGCHLD)
		return true;
	for (size_t i = 0; i < spare.started; i++)
		if (spare.child[i])
			kill(spare.child[i], (int)info.ssi_signo);
	return spare.running > 0;
}

static int stand_by(void)
{
	sigset_t mask;
	int signals;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	sigaddset(&mask, SIGQUIT);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0) {
		fprintf(stderr, "transpckpt: signals cannot be waited for: %s\n", strerror(errno));
		return CLI_BAD;
	}
	while (!spare.started || spare.running) {
		struct pollfd waits[] = {{signals, POLLIN, 0}, {spare.agent, POLLIN, 0}};

		if (poll(waits, 2, spare.agent < 0 ? TRY_AGAIN_MS : -1) < 0 && errno != EINTR)
			break;
		if (waits[0].revents && !take_signal(signals))
			return CLI_GOOD;
		look_at_children();
		if (spare.agent >= 0 && waits[1].revents)
			hear_agent();
		else if (spare.agent < 0)
			(void)reach_agent();
	}
	return spare.status;
}

static int check(const struct cli *cli)
{
	if (!cli->job && !cli->settings.job[0]) {
		fprintf(stderr, "transpckpt: which job is meant? Set TRANSPCKPT_JOB as its ranks have it, or say --job\n");
		return CLI_USAGE;
	}
	if (!cli->settings.peers.count) {
		fprintf(stderr, "transpckpt: TRANSPCKPT_PEERS is 0, so that this node would hear of no other: set it as the job's ranks have it\n");
		return CLI_USAGE;
	}
	return CLI_GOOD;
}

int verb_spare(int argc, char **argv)
{
	static char library[TPCK_PATH_MAX], folder[TPCK_PATH_MAX];
	static struct cli cli;
	int rc = cli_options(&cli, argc, argv, usage, CLI_OWN_NONE);

	if (rc)
		return rc < 0 ? CLI_GOOD : rc;
	rc = cli.count ? CLI_USAGE : check(&cli);
	if (cli.count)
		fputs(usage, stderr);
	if (rc)
		return rc;
	(void)cli_library("libtranspckpt.so", library);
	if (!getcwd(folder, sizeof folder))
		folder[0] = '\0';
	spare.room = cli.settings.spare_ranks ? (uint32_t)cli.settings.spare_ranks : RANKS_MOST;
	spare.reach = (struct tpck_reach){.settings = &cli.settings, .environment = environ, .job = cli.job ? cli.job : cli.settings.job, .library = library,
					  .start_folder = folder};
	if (reach_agent())
		return CLI_BAD;
	fprintf(stderr, "transpckpt: this node is a spare one of job %s\n", spare.reach.job);
	return stand_by();
}
