/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt doctor --device: starts one probe after the other, and says what they found, or that one did not come back. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tools/cli/device/probe.h"
#include "tools/cli/doctor.h"

/* A process that is killed ends once the kernel's part of the driver has given back what it had, unless that is stuck. */
#define END_NS 10000000000ull

/* What one process of a probe said. */
struct heard {
	json_object *rows; /* an array */
	char at[160];
	bool hung, stuck;
	int status; /* as of waitpid() */
};

/* ---- one process ------------------------------------------------------------------------------------ */

static void become_probe(const char *name, int device, int out, pid_t parent)
{
	char number[16], *words[] = {(char *)"transpckpt", (char *)"doctor", (char *)PROBE_WORD, (char *)name, number, NULL};
	int nowhere;

	/* Whatever ends the command ends its probe. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	setpgid(0, 0);
	snprintf(number, sizeof number, "%d", device);
	nowhere = open("/dev/null", O_RDWR);
	dup2(nowhere, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	/* What a driver prints is no finding, but of use to who looks for its reason. */
	if (!getenv("TRANSPCKPT_LOG") || strncmp(getenv("TRANSPCKPT_LOG"), "debug", 5) != 0)
		dup2(nowhere, STDERR_FILENO);
	execv("/proc/self/exe", words);
	_exit(1);
}

static void hear_line(struct heard *heard, const char *line)
{
	json_object *said = json_tokener_parse(line), *at;

	if (!said)
		return;
	if (json_object_object_get_ex(said, "at", &at)) {
		snprintf(heard->at, sizeof heard->at, "%s", json_object_get_string(at));
		json_object_put(said);
	} else {
		json_object_array_add(heard->rows, said);
	}
}

/* Until the other end is closed, or there is no time left. */
static void hear(struct heard *heard, int fd, uint64_t until)
{
	size_t filled = 0, size = 65536;
	char *text = malloc(size), *end;

	while (text) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		uint64_t now = tpck_clock_monotonic_ns();
		ssize_t got;

		if (now >= until) {
			heard->hung = true;
			break;
		}
		if (poll(&wait, 1, (int)((until - now) / 1000000) + 1) <= 0)
			continue;
		/* A list of names is a long line. */
		if (size - filled < 4096) {
			char *more = realloc(text, size *= 2);

			if (!more)
				break;
			text = more;
		}
		got = read(fd, text + filled, size - filled - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		filled += (size_t)got;
		text[filled] = '\0';
		while ((end = memchr(text, '\n', filled))) {
			*end = '\0';
			hear_line(heard, text);
			filled -= (size_t)(end + 1 - text);
			memmove(text, end + 1, filled + 1);
		}
	}
	free(text);
}

/* The probe's process ends here, whatever it is at; one that even SIGKILL does not end is left to the kernel. */
static void end(struct heard *heard, pid_t pid, uint64_t until)
{
	const struct timespec pause = {0, 2000000};
	pid_t ended;

	/* The child may have closed its output and go on. */
	while ((ended = waitpid(pid, &heard->status, WNOHANG)) == 0 && !heard->hung) {
		heard->hung = tpck_clock_monotonic_ns() >= until;
		nanosleep(&pause, NULL);
	}
	kill(-pid, SIGKILL);
	until = tpck_clock_monotonic_ns() + END_NS;
	while (ended == 0 && (ended = waitpid(pid, &heard->status, WNOHANG)) == 0 && !heard->stuck) {
		heard->stuck = tpck_clock_monotonic_ns() >= until;
		nanosleep(&pause, NULL);
	}
}

static int start(struct heard *heard, const char *name, int device, double seconds)
{
	uint64_t until = tpck_clock_monotonic_ns() + (uint64_t)(seconds * 1e9);
	pid_t pid, parent = getpid();
	int ends[2];

	*heard = (struct heard){.rows = json_object_new_array()};
	fflush(stdout);
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0) {
		close(ends[0]);
		close(ends[1]);
		return -EAGAIN;
	}
	if (pid == 0)
		become_probe(name, device, ends[1], parent);
	close(ends[1]);
	hear(heard, ends[0], until);
	end(heard, pid, until);
	close(ends[0]);
	return 0;
}

/* ---- what a probe's processes found ------------------------------------------------------------------ */

static const char *text_of(json_object *row, const char *key)
{
	json_object *value;

	return json_object_object_get_ex(row, key, &value) ? json_object_get_string(value) : "";
}

static enum finding finding_of(json_object *row)
{
	const char *name = text_of(row, "finding");

	return strcmp(name, "good") == 0 ? GOOD : strcmp(name, "note") == 0 ? NOTE : BAD;
}

static void row_add(json_object *rows, const char *what, enum finding finding, const char *text)
{
	json_object *row = json_object_new_object();

	json_object_object_add(row, "what", json_object_new_string(what));
	json_object_object_add(row, "finding", json_object_new_string(cli_finding_names[finding]));
	json_object_object_add(row, "text", json_object_new_string(text));
	json_object_array_add(rows, row);
}

/* A row of its own about how the process ended, unless that was as it should. Whether it was not. */
static bool ended_badly(const struct probe *probe, struct heard *heard, double seconds)
{
	char how[400], text[900];

	if (heard->hung)
		snprintf(how, sizeof how, "did not end within %g s, in %s%s", seconds, heard->at[0] ? heard->at : "its beginning",
			 heard->stuck ? "; its process cannot even be killed: it is stuck in the kernel's part of the driver" : "");
	else if (WIFSIGNALED(heard->status))
		snprintf(how, sizeof how, "crashed in %s: %s", heard->at[0] ? heard->at : "its beginning",
			 strsignal(WTERMSIG(heard->status)));
	else if (WEXITSTATUS(heard->status) || !json_object_array_length(heard->rows))
		snprintf(how, sizeof how, "its process ended with status %d, in %s", WEXITSTATUS(heard->status),
			 heard->at[0] ? heard->at : "its beginning");
	else
		return false;
	snprintf(text, sizeof text, "%s. %s", how, probe->meaning);
	row_add(heard->rows, probe->name, probe->hung, text);
	return true;
}

static void say(struct examination *e, json_object *row, unsigned times, unsigned starts)
{
	json_object *names = NULL, *device;
	char *text = NULL;
	int before = e->device;

	/* The first probe speaks of all of them. */
	if (json_object_object_get_ex(row, "device", &device))
		e->device = json_object_get_int(device);

	json_object_object_get_ex(row, "names", &names);
	if (starts < 2 || asprintf(&text, times < starts ? "%s (in %u of %u starts)" : "%s (%u of %u starts)", text_of(row, "text"), times,
				   starts) < 0)
		text = NULL;
	cli_find_names(e, finding_of(row), text_of(row, "what"), text ? text : text_of(row, "text"), names);
	e->device = before;
	free(text);
}

/* Rows that several starts have alike are one. */
static void say_rows(struct examination *e, json_object *rows, unsigned starts)
{
	size_t count = json_object_array_length(rows);

	for (size_t i = 0; i < count; i++) {
		json_object *row = json_object_array_get_idx(rows, i);
		unsigned times = 0;
		bool said = false;

		for (size_t k = 0; k < count; k++) {
			bool same = json_object_equal(row, json_object_array_get_idx(rows, k));

			said = said || (same && k < i);
			times += same;
		}
		if (!said)
			say(e, row, times, starts);
	}
}

/* Which devices the rows of the first probe say there are, as bits of those that can be used. */
static void count_devices(struct examination *e, json_object *rows, uint64_t *usable)
{
	for (size_t i = 0; i < json_object_array_length(rows); i++) {
		json_object *row = json_object_array_get_idx(rows, i), *device;

		if (strcmp(text_of(row, "what"), "device") != 0 || !json_object_object_get_ex(row, "device", &device))
			continue;
		if (finding_of(row) != BAD && json_object_get_int(device) < 64)
			*usable |= 1ull << json_object_get_int(device);
		e->devices++;
	}
}

/* With `usable` the first one, which finds them. */
static void examine(struct examination *e, const struct probe *probe, double seconds, uint64_t *usable)
{
	json_object *rows = json_object_new_array();
	unsigned begun = 0;
	bool good = true;

	while (begun < probe->starts && good) {
		struct heard heard;

		if (start(&heard, probe->name, e->device, seconds))
			row_add(heard.rows, probe->name, BAD, "no process can be started for it");
		else if (ended_badly(probe, &heard, seconds))
			good = false;
		begun++;
		for (size_t i = 0; i < json_object_array_length(heard.rows); i++) {
			json_object *row = json_object_array_get_idx(heard.rows, i);

			good = good && finding_of(row) != BAD;
			json_object_array_add(rows, json_object_get(row));
		}
		json_object_put(heard.rows);
	}
	if (usable)
		count_devices(e, rows, usable);
	say_rows(e, rows, begun);
	json_object_put(rows);
}

/* Without operands all are wanted. The first is tried in any case. */
static bool is_wanted(const struct cli *cli, const struct probe *probe)
{
	for (int i = 0; i < cli->count; i++)
		if (strcmp(cli->operands[i], probe->name) == 0)
			return true;
	return !cli->count;
}

static bool is_probe(const char *name)
{
	const struct probe *probe = probes;

	while (probe->name && strcmp(probe->name, name) != 0)
		probe++;
	return probe->name != NULL;
}

int cli_examine_device(struct examination *e)
{
	const struct cli *cli = e->cli;
	uint64_t usable = 0;

	e->device = -1;
	for (int i = 0; i < cli->count; i++)
		if (!is_probe(cli->operands[i])) {
			fprintf(stderr, "transpckpt: '%.100s' is no probe; these are:", cli->operands[i]);
			for (const struct probe *probe = probes; probe->name; probe++)
				fprintf(stderr, "%s '%s'", probe == probes ? "" : ",", probe->name);
			fputc('\n', stderr);
			return CLI_USAGE;
		}
	examine(e, &probes[0], cli->wait, &usable);
	if (!usable) {
		cli_find(e, NOTE, "everything else", "has not been tried: it needs a device");
		return CLI_GOOD;
	}
	for (const struct probe *probe = probes + 1; probe->name; probe++)
		if (!probe->each && is_wanted(cli, probe))
			examine(e, probe, cli->wait, NULL);
	for (e->device = 0; e->device < e->devices; e->device++)
		for (const struct probe *probe = probes + 1; probe->name; probe++)
			if (usable >> e->device & 1 && probe->each && is_wanted(cli, probe))
				examine(e, probe, cli->wait, NULL);
	return CLI_GOOD;
}
