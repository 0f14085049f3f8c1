/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to who does not belong to the job: what the log gets of them, and that their other ends are played from it without anybody being asked. */
#include "config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/network/network_private.h"
#include "runtime/network/speakers.h"
#include "runtime/replay/forward.h"
#include "runtime/wire/nodes.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

/* What a server of somebody else's, which is no child of this process, has seen. */
static struct seen {
	_Atomic int port, connections, pid;
	_Atomic uint64_t bytes;
} *seen;

static char folder_of_sockets[300];

static struct sockaddr_un local_address(const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	snprintf(at.sun_path, sizeof at.sun_path, "%.80s/%s", folder_of_sockets, name);
	return at;
}

static int local_listener(const char *name)
{
	struct sockaddr_un at = local_address(name);
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);

	return bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8) ? -1 : listener;
}

/* The server answers in capitals. None of its processes stays for longer than a minute. */
static void serve(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct pollfd ends[2] = {{socket(AF_INET, SOCK_STREAM, 0), POLLIN, 0}, {local_listener("other"), POLLIN, 0}};
	socklen_t length = sizeof at;
	char bytes[4096];

	alarm(60);
	signal(SIGCHLD, SIG_IGN);
	if (bind(ends[0].fd, (struct sockaddr *)&at, sizeof at) || listen(ends[0].fd, 8) || getsockname(ends[0].fd, (struct sockaddr *)&at, &length))
		_exit(1);
	seen->pid = getpid();
	seen->port = ntohs(at.sin_port);
	for (;;) {
		ssize_t got;
		int fd;

		poll(ends, 2, -1);
		fd = accept(ends[ends[0].revents ? 0 : 1].fd, NULL, NULL);

		seen->connections++;
		if (fork()) {
			close(fd);
			continue;
		}
		alarm(60);
		while ((got = read(fd, bytes, sizeof bytes)) > 0) {
			seen->bytes += (uint64_t)got;
			for (ssize_t i = 0; i < got; i++)
				bytes[i] = (char)toupper(bytes[i]);
			if (write(fd, bytes, (size_t)got) != got)
				break;
		}
		_exit(0);
	}
}

static bool begin_server(void)
{
	pid_t child;

	seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child = fork();
	if (!child) {
		if (!fork())
			serve();
		_exit(0);
	}
	waitpid(child, NULL, 0);
	for (int i = 0; i < 500 && !seen->port; i++)
		usleep(10000);
	return seen->port != 0;
}

/* ---- what the hooks do ------------------------------------------------------------------------------------ */

static int error_of;

static int open_to(struct tpck_thread *self, int port, bool waits)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct tpck_network_connect state;
	int fd = socket(AF_INET, SOCK_STREAM | (waits ? 0 : SOCK_NONBLOCK), 0), result;
	enum tpck_network_way way = tpck_network_connects(self, fd, (struct sockaddr *)&to, sizeof to, NULL, &state);

	error_of = 0;
	if (way == TPCK_NETWORK_FAILS) {
		error_of = state.error;
		close(fd);
		return -1;
	}
	result = way == TPCK_NETWORK_INSTEAD ? connect(fd, (struct sockaddr *)&state.instead, sizeof to) : connect(fd, (struct sockaddr *)&to, sizeof to);
	error_of = result ? errno : 0;
	if (way != TPCK_NETWORK_REAL)
		tpck_network_connected(&state, fd, error_of);
	if (result && error_of != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

static int open_local(struct tpck_thread *self, const char *name)
{
	struct sockaddr_un to = local_address(name);
	struct tpck_network_connect state;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), result;
	enum tpck_network_way way = tpck_network_connects(self, fd, (struct sockaddr *)&to, sizeof to, NULL, &state);

	result = way == TPCK_NETWORK_INSTEAD ? connect(fd, (struct sockaddr *)&state.instead, state.instead_bytes) : connect(fd, (struct sockaddr *)&to, sizeof to);
	if (way != TPCK_NETWORK_REAL)
		tpck_network_connected(&state, fd, result ? errno : 0);
	return fd;
}

static void say(int fd, const char *text)
{
	tpck_network_wrote(fd, text, send(fd, text, strlen(text), 0));
}

static void hear(int fd, char *text, size_t size)
{
	size_t got = 0;
	struct pollfd comes = {fd, POLLIN, 0};
	ssize_t part = 1;

	/* As long as there is something within a while. */
	while (part > 0 && got < size - 1 && poll(&comes, 1, got ? 100 : 2000) > 0) {
		part = recv(fd, text + got, size - 1 - got, 0);
		tpck_network_read(fd, text + got, part);
		got += part > 0 ? (size_t)part : 0;
	}
	text[got] = '\0';
}

static void end(int fd)
{
	tpck_network_closes(fd);
	close(fd);
}

static int last_detail(struct tpck_log *log, const char *folder)
{
	const struct tpck_record *record;
	struct tpck_log_reader *reader;
	int detail = -1;

	if (!tpck_log_open(&reader, folder, tpck_log_end(log)))
		while ((record = tpck_log_next(reader)))
			detail = record->type == TPCK_RECORD_TALK ? record->detail : detail;
	return detail;
}

/* ---- one program, run twice -------------------------------------------------------------------------------- */

enum { HEARD = 7 };
static char heard[2][HEARD][200];
/* The same of forked children, which share this. */
static char (*children)[2][HEARD][200];

static void run(int round, struct tpck_thread *main_thread, struct tpck_thread *other, int nobody)
{
	int one = open_to(main_thread, seen->port, true), two;

	say(one, "first");
	hear(one, heard[round][0], sizeof heard[0][0]);
	say(one, "sec");
	say(one, "ond");
	hear(one, heard[round][1], sizeof heard[0][0]);
	end(one);
	/* Two at once, which say first what they are in another order. */
	one = open_to(main_thread, seen->port, false);
	two = open_to(main_thread, seen->port, false);
	poll(NULL, 0, 50);
	say(round ? two : one, "left");
	say(round ? one : two, "right");
	hear(round ? two : one, heard[round][2], sizeof heard[0][0]);
	hear(round ? one : two, heard[round][3], sizeof heard[0][0]);
	end(one);
	end(two);
	two = open_to(main_thread, nobody, true);
	snprintf(heard[round][4], sizeof heard[0][0], "%d", two < 0 ? error_of : 0);
	one = open_to(other, seen->port, true);
	say(one, "other");
	hear(one, heard[round][5], sizeof heard[0][0]);
	end(one);
	one = open_local(main_thread, "other");
	say(one, "nearby");
	hear(one, heard[round][6], sizeof heard[0][0]);
	end(one);
}

/* Unix sockets of the job's own, and such as nobody could stand in for. */
static void locals(struct tpck_log *log, const char *folder, struct tpck_thread *self)
{
	int own = local_listener("own"), fd = open_local(self, "own");
	char real[400];

	tap_ok(own >= 0 && !tpck_network_has(fd), "a Unix socket of the job's own is not followed", "");
	close(fd);
	fd = open_local(self, "nobody");
	tap_ok(!tpck_network_has(fd), "nor is one where nobody is", "");
	close(fd);
	fd = open_local(self, "other");
	tap_ok(tpck_network_has(fd), "that of somebody else's is", "");
	tpck_network_passes(fd);
	say(fd, "passed");
	end(fd);
	tap_ok(last_detail(log, folder) == TPCK_TALK_OWN, "until descriptors are passed by it", "");
	snprintf(real, sizeof real, "10.0.0.1,%s/", folder_of_sockets);
	tpck_network_record(log, 64 << 20, real, NULL, NULL);
	fd = open_local(self, "other");
	tap_ok(!tpck_network_has(fd), "and not where TRANSPCKPT_NETWORK_REAL names its folder", "");
	close(fd);
	close(own);
}

/* A child with this number, which says two things by one connection and one by another, and one that the first run does not say. */
static pid_t child_runs(int round, uint32_t number)
{
	int one, two;
	pid_t child;

	tpck_network_forking();
	child = fork();
	if (child)
		return child;
	alarm(60);
	tpck_network_forked(number);
	one = open_to(NULL, seen->port, true);
	say(one, "chi");
	say(one, "ld");
	hear(one, (*children)[round][0], sizeof heard[0][0]);
	two = open_to(NULL, seen->port, true);
	say(two, "its second");
	hear(two, (*children)[round][1], sizeof heard[0][0]);
	say(one, "more");
	hear(one, (*children)[round][2], sizeof heard[0][0]);
	end(one);
	end(two);
	if (round) {
		one = open_to(NULL, seen->port, true);
		say(one, "later");
		hear(one, (*children)[round][3], sizeof heard[0][0]);
		end(one);
	}
	_exit(0);
}

/* A child that the record does not have, while others wait for it. */
static void held(int connections)
{
	int status = 1;
	pid_t child;

	tpck_network_unlearn();
	tpck_network_forward(NULL);
	child = child_runs(0, 5);
	for (int i = 0; i < 500 && !tpck_network_children_held(); i++)
		usleep(10000);
	tap_ok(tpck_network_children_held() && seen->connections == connections, "a child that the record does not have waits", "");
	tpck_network_children_release();
	waitpid(child, &status, 0);
	tap_ok(!status && !tpck_network_children_held() && seen->connections == connections + 2, "and goes on where others wait for it", "");
	tpck_network_live(6);
}

/* ---- programs that are started ----------------------------------------------------------------------------- */

/* `early`: it ends when its standard input does. */
static int program(int port, const char *what)
{
	static struct tpck_thread self = {.id = 1};
	char text[200];
	int fd;

	alarm(60);
	tpck_network_record(tpck_log_new(1 << 20), 1 << 20, "", NULL, NULL);
	tpck_started_may_be(true);
	fd = open_to(&self, port, true);
	say(fd, "prog");
	hear(fd, text, sizeof text);
	printf("%s ", text);
	say(fd, what);
	hear(fd, text, sizeof text);
	printf("%s ", text);
	end(fd);
	if (strcmp(what, "anew") == 0) {
		fd = open_to(&self, port, true);
		say(fd, what);
		hear(fd, text, sizeof text);
		printf("%s", text);
		end(fd);
	}
	fflush(stdout);
	if (strcmp(what, "early") == 0)
		(void)!read(0, text, 1);
	return 0;
}

/* Starts this test's file as such a program with this number, or a shell that starts it, and hears it by *from; with 0 of what it says to standard error, too. */
static pid_t starts(const char *itself, const char *what, uint32_t number, bool by_shell, FILE **from, int *to)
{
	char port[12], command[500];
	int out[2], in[2];
	pid_t child;

	snprintf(port, sizeof port, "%d", seen->port);
	snprintf(command, sizeof command, "%s --program %s %s; :", itself, port, what);
	if (pipe(out) || pipe(in))
		return -1;
	child = fork();
	if (!child) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		if (!number)
			dup2(out[1], 2);
		close(in[1]);
		close(out[0]);
		if (by_shell)
			execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		else
			execl(itself, itself, "--program", port, what, (char *)NULL);
		_exit(1);
	}
	tpck_network_executes(child, number);
	close(in[0]);
	close(out[1]);
	*from = fdopen(out[0], "r");
	*to = in[1];
	return child;
}

static void program_says(const char *itself, const char *what, uint32_t number, bool by_shell, char said[200])
{
	FILE *from;
	int to, status;
	pid_t child = starts(itself, what, number, by_shell, &from, &to);

	said[0] = '\0';
	if (child < 0 || !fgets(said, 200, from))
		said[0] = '\0';
	waitpid(child, &status, 0);
	fclose(from);
	close(to);
}

/* Whether the log has a connection of that program's. */
static bool log_has(struct tpck_log *log, const char *folder, uint32_t thread)
{
	const struct tpck_record *record;
	struct tpck_log_reader *reader;
	bool has = false;

	if (tpck_log_open(&reader, folder, tpck_log_end(log)))
		return false;
	while ((record = tpck_log_next(reader)))
		has = has || (record->type == TPCK_RECORD_TALK && record->detail == TPCK_TALK_CHILD && ((const struct tpck_record_talk *)(record + 1))->thread == thread);
	tpck_log_close(reader);
	return has;
}

/* What a process says that has a session without a folder, and starts a program. */
static void roomless(char said[200])
{
	int fds[2], status;
	pid_t child;
	ssize_t got;

	if (pipe(fds))
		return;
	child = fork();
	if (!child) {
		dup2(fds[1], 2);
		tpck_network_record(tpck_log_new(1 << 20), 1 << 20, "", NULL, NULL);
		tpck_network_session("/proc/none", NULL);
		tpck_network_executes(1, 5);
		tpck_network_executes(1, 6);
		_exit(0);
	}
	close(fds[1]);
	got = read(fds[0], said, 199);
	said[got > 0 ? got : 0] = '\0';
	close(fds[0]);
	waitpid(child, &status, 0);
}

/* An empty file of that size which this process has mapped; NULL: there is none. */
static void *mapped(const char *folder, const char *name, size_t bytes)
{
	char path[300];
	void *at = MAP_FAILED;
	int fd;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
		at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

/* One that speaks before the root has a session: an ancestor that has the library may have one later, and may still be filling in what others look for. */
static void early_one(const char *itself, struct tpck_log *log, const char *folder)
{
	char said[200] = "";
	FILE *from;
	int to, status;
	pid_t child;
	void *unfilled = mapped(folder, TPCK_SPEAKERS, sizeof(struct tpck_speakers));

	if (!unfilled || !mapped(folder, "libtranspckpt", 4096))
		return;
	child = starts(itself, "early", 41, false, &from, &to);
	while (strlen(said) < strlen("PROG EARLY ")) {
		int c = fgetc(from);

		if (c == EOF)
			break;
		said[strlen(said)] = (char)c;
	}
	munmap(unfilled, sizeof(struct tpck_speakers));
	tpck_network_session(folder, NULL);
	for (int i = 0; i < 1000 && !log_has(log, folder, tpck_digest_pair(41, 1)); i++) {
		usleep(10000);
		tpck_network_boundary();
	}
	tap_ok(log_has(log, folder, tpck_digest_pair(41, 1)), "what a program said before its root had a session comes into the log", said);
	close(to);
	waitpid(child, &status, 0);
	fclose(from);
}

static int port_of_nobody(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof at;

	if (bind(fd, (struct sockaddr *)&at, sizeof at) || getsockname(fd, (struct sockaddr *)&at, &length))
		return 0;
	return ntohs(at.sin_port); /* bound, and nobody listens */
}

static void real_places(void)
{
	static const char *const right[] = {"", "10.0.0.5:5432,10.1.0.0/16,:6379", "fd00::/8", "[fd00::1]:80", "::1", "/run/x.sock,10.0.0.1"};
	static const char *const wrong[] = {"host", "10.0.0.1:0", "10.0.0.0/33", ":", "10.0.0.1:99999", "[fd00::1]80", "10.0.0.1,x"};
	struct tpck_error err;
	bool fine = true;

	for (size_t i = 0; i < sizeof right / sizeof *right; i++)
		fine &= !tpck_network_real_check(right[i], &err);
	tap_ok(fine, "addresses, networks and ports are read", err.text);
	fine = true;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		fine &= tpck_network_real_check(wrong[i], &err) < 0;
	tap_ok(fine && strstr(err.text, "\"x\""), "what is none is an error that names it", err.text);
}

/* More at once than are followed: the log says of the rest that it has not all of them, for a resume not to go by what it has. */
static void many(struct tpck_log *log, const char *folder, struct tpck_thread *self)
{
	enum { FOLLOWED = 256, MORE = 3 };
	static int open_ones[FOLLOWED + MORE];
	const struct tpck_record *record;
	struct tpck_log_reader *reader;
	unsigned lost = 0;

	for (int i = 0; i < FOLLOWED + MORE; i++)
		open_ones[i] = open_to(self, seen->port, true);
	for (int i = 0; i < FOLLOWED + MORE; i++)
		end(open_ones[i]);
	if (!tpck_log_open(&reader, folder, tpck_log_end(log)))
		while ((record = tpck_log_next(reader)))
			lost += record->type == TPCK_RECORD_TALK && record->detail == TPCK_TALK_LOST;
	tap_ok(lost == MORE, "of more connections at once than are followed the log says that it has not all", "");
}

static void nodes_write(const char *path, unsigned count, const uint8_t last[][4])
{
	struct tpck_nodes_head head = {TPCK_NODES_MAGIC, TPCK_WIRE_VERSION, count};
	uint8_t address[TPCK_NODES_ADDRESS];
	FILE *to = fopen(path, "wb");

	fwrite(&head, sizeof head, 1, to);
	for (unsigned i = 0; i < count; i++) {
		tpck_nodes_address(last[i], 4, address);
		fwrite(address, sizeof address, 1, to);
	}
	fclose(to);
}

/* Another machine's: 203.0.113.0/24 is nobody's (RFC 5737). Each question is about another one, as an answer holds for a while. */
static enum tpck_whose whose_of(uint8_t last, uint16_t port)
{
	struct tpck_record_peer peer = {.family = AF_INET, .port = port, .address = {203, 0, 113, last}};

	return tpck_whose(&peer, true, NULL);
}

/* Of a job with ranks on other nodes: who the agent says belongs to it. */
static void nodes(struct tpck_log *log, const char *folder)
{
	static const uint8_t some[][4] = {{203, 0, 113, 1}, {203, 0, 113, 2}, {203, 0, 113, 200}};
	char path[300], job[300];

	snprintf(job, sizeof job, "%s/j", folder);
	snprintf(path, sizeof path, "%s/j/" TPCK_NODES_NAME, folder);
	mkdir(job, 0700);
	tap_ok(whose_of(1, 5000) == TPCK_WHOSE_OTHER, "of a job on one node other machines are somebody else's", "");
	tpck_network_record(log, 64 << 20, "", folder, "j");
	tap_ok(whose_of(3, 5000) == TPCK_WHOSE_UNKNOWN && whose_of(4, 443) == TPCK_WHOSE_OTHER,
	       "of one on several nothing is known before agents meet, but that ranks do not speak by the web's ports", "");
	nodes_write(path, 0, some);
	tap_ok(whose_of(5, 5000) == TPCK_WHOSE_UNKNOWN, "a list of nobody says nothing", "");
	nodes_write(path, 3, some);
	tap_ok(whose_of(1, 5000) == TPCK_WHOSE_NODE && whose_of(200, 29400) == TPCK_WHOSE_NODE && whose_of(2, 80) == TPCK_WHOSE_OTHER,
	       "its nodes are its own", "");
	tap_ok(whose_of(6, 5000) == TPCK_WHOSE_AWAY && whose_of(201, 5000) == TPCK_WHOSE_AWAY, "and other machines are not", "");
	usleep(250000);
	tap_ok(whose_of(3, 5000) == TPCK_WHOSE_AWAY, "what was not known is looked for again", "");
	unlink(path);
	tap_ok(whose_of(1, 5001) == TPCK_WHOSE_NODE, "a node stays one", "");
}

int main(int count, char **arguments)
{
	static struct tpck_thread main_thread = {.id = 1}, other = {.id = 7};
	char said[2][200], shell_said[2][200];
	char *folder = tap_folder("/tmp"), real[40], text[200];
	struct tpck_log *log = tpck_log_new(64 << 20);
	struct tpck_log_position cut;
	struct tpck_log_reader *reader;
	const struct tpck_record *record;
	uint64_t bytes;
	int nobody = port_of_nobody(), connections, fd, status = 1;
	bool at_once;
	pid_t child;

	if (count == 4)
		return program(atoi(arguments[2]), arguments[3]);
	snprintf(folder_of_sockets, sizeof folder_of_sockets, "%s", folder);
	real_places();
	children = mmap(NULL, sizeof *children, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!begin_server() || !log)
		return 1;
	roomless(said[0]);
	tap_ok(strncmp(said[0], "transpckpt: what programs say that are started to others will be in no record (", 79) == 0 && strchr(said[0], '\n') == strrchr(said[0], '\n'),
	       "a session that has no room for what they say has one line", said[0]);
	tpck_network_record(log, 64 << 20, "", NULL, NULL);
	tpck_log_attach(log, folder, 1, NULL);
	early_one(arguments[0], log, folder);
	program_says(arguments[0], "twice", 31, false, said[0]);
	program_says(arguments[0], "twice", 51, true, shell_said[0]);
	tap_ok(strcmp(said[0], "PROG TWICE ") == 0 && strcmp(shell_said[0], said[0]) == 0, "the server was heard by programs", said[0]);
	waitpid(child_runs(0, 99), &status, 0);
	tap_ok(!status && strcmp((*children)[0][0], "CHILD") == 0 && strcmp((*children)[0][1], "ITS SECOND") == 0 && strcmp((*children)[0][2], "MORE") == 0,
	       "the server was heard by a forked child", (*children)[0][0]);
	tpck_network_boundary();
	run(0, &main_thread, &other, nobody);
	tap_ok(strcmp(heard[0][0], "FIRST") == 0 && strcmp(heard[0][1], "SECOND") == 0 && strcmp(heard[0][2], "LEFT") == 0 && strcmp(heard[0][3], "RIGHT") == 0 &&
	       strcmp(heard[0][5], "OTHER") == 0 && strcmp(heard[0][6], "NEARBY") == 0, "the server was heard", heard[0][3]);
	connections = seen->connections;
	bytes = seen->bytes;
	if (tpck_log_open(&reader, folder, tpck_log_end(log)))
		return 1;
	while ((record = tpck_log_next(reader)))
		tpck_network_learn(record);
	main_thread.talks = main_thread.locals = other.talks = 0;
	cut = tpck_log_end(log);
	tpck_network_session(folder, &cut);
	tpck_network_forward(NULL);
	run(1, &main_thread, &other, nobody);
	tap_ok(memcmp(heard[0], heard[1], sizeof heard[0]) == 0, "while running forward the same is heard", heard[1][0]);
	tap_ok(seen->connections == connections && seen->bytes == bytes, "and nobody was asked", "");
	child = child_runs(1, 99);
	for (int i = 0; i < 6000 && !tpck_network_children_held(); i++)
		usleep(10000);
	tap_ok(memcmp((*children)[0], (*children)[1], sizeof heard[0]) == 0, "a child hears the same", (*children)[1][2]);
	tap_ok(tpck_network_children_held() && seen->connections == connections && seen->bytes == bytes, "and asks nobody: it waits with what is new", "");
	program_says(arguments[0], "twice", 31, false, said[1]);
	program_says(arguments[0], "twice", 51, true, shell_said[1]);
	tap_ok(strcmp(said[0], said[1]) == 0 && strcmp(shell_said[0], shell_said[1]) == 0 && seen->connections == connections, "programs hear the same, and ask nobody", said[1]);
	tap_ok(!tpck_network_difference(&at_once), "nothing differs", tpck_network_difference(&at_once));
	tpck_network_settle();
	tpck_network_live(5);
	waitpid(child, &status, 0);
	tap_ok(!status && strcmp((*children)[1][3], "LATER") == 0 && seen->connections == connections + 1, "which is said once the program is live", (*children)[1][3]);
	connections = seen->connections;
	fd = open_to(&main_thread, seen->port, true);
	say(fd, "live");
	hear(fd, text, sizeof text);
	end(fd);
	program_says(arguments[0], "twice", 0, false, said[0]);
	tap_ok(strstr(said[0], "that it belongs to, which does not know it: a resume does it again\n"), "a program that its root does not know says so", said[0]);
	connections++;
	tap_ok(strcmp(text, "LIVE") == 0 && seen->connections == connections + 1, "a live program speaks for itself", text);
	held(connections + 1);
	locals(log, folder, &main_thread);
	tpck_network_record(log, 64 << 20, "", NULL, NULL);
	many(log, folder, &main_thread);
	snprintf(real, sizeof real, ":%d", seen->port);
	tpck_network_record(log, 64 << 20, real, NULL, NULL);
	main_thread.talks = 0;
	end(open_to(&main_thread, seen->port, true));
	tap_ok(!main_thread.talks, "what TRANSPCKPT_NETWORK_REAL names is not followed", "");
	nodes(log, folder);
	kill(seen->pid, SIGKILL);
	return tap_done();
}
