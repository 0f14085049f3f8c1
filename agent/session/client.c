/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: packets in, packets out, whose they are. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/files/publisher.h"
#include "agent/session/clerk.h"
#include "agent/session/events.h"
#include "agent/session/own_known.h"
#include "agent/session/prepare.h"
#include "agent/session/sessions.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

static struct watch listener;

bool client_send(struct client *client, enum tpck_message_type type, const void *payload, size_t size)
{
	struct tpck_message head = {
		.magic = TPCK_MESSAGE_MAGIC, .version = TPCK_WIRE_VERSION, .type = (uint16_t)type,
		.bytes = (uint32_t)size,
	};
	struct iovec parts[2] = {{&head, sizeof head}, {(void *)(uintptr_t)payload, size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = size ? 2 : 1};

	return sendmsg(client->watch.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void client_close(struct agent *agent, struct client *client)
{
	struct live *live = client->live;

	loop_unwatch(&client->watch);
	close(client->watch.fd);
	client->watch.fd = -1;
	client->live = NULL;
	if (live && live->client == client)
		live->client = NULL;
	/* The clerk still holds it; hello_done() frees it then. */
	if (client->busy) {
		client->gone = true;
		/* Nobody waits for others of its start. */
		if (client->launch && client->launch->apart)
			client->launch->closed = true;
		return;
	}
	for (struct client **c = &agent->clients; *c; c = &(*c)->next) {
		if (*c == client) {
			*c = client->next;
			break;
		}
	}
	if (client->launch) {
		client->launch->closed = true;
		launch_said(agent, client->launch, 1);
	}
	free(client->deferred);
	free(client);
}

/* The end of a connection is the end of the process, unless the process says otherwise: then it
 * lives on without snapshots and may come back by ADOPT. */
static void connection_ended(struct agent *agent, struct client *client)
{
	struct live *live = client->live;

	if (client->files && !client->ended)
		agent->files_died_ns = tpck_clock_monotonic_ns();
	client_close(agent, client);
	if (live && live->pid_watch.fd < 0)
		live_died(agent, live);
	else
		live_poll(agent);
}

/* A log that cannot be run forward on one rank is of no use to any. */
static void diverged(struct agent *agent, struct live *live, const struct tpck_diverged *what)
{
	struct tpck_point point = {what->generation, what->at < what->step ? what->at : what->step};
	struct launch *launch = live->launch;
	struct live *other;
	uint32_t at = 0;

	/* The others say so, too, once they were told. */
	if (launch->began_anew)
		return;
	tpck_log_warn("resuming at step %llu (generation %llu) failed in iteration %llu: %.200s",
		      (unsigned long long)what->step, (unsigned long long)what->generation,
		      (unsigned long long)what->at, what->what);
	history_diverged(launch_first(launch), what);
	/* Who starts it again starts all ranks. */
	if (what->ends && what->again)
		return;
	if (what->ends) {
		point = (struct tpck_point){live->session->name.generation, 0};
		clerk_tell(live, NEWS_GAVE_UP, &point, TPCK_DEATH_FAR);
		return;
	}
	/* A start that did not come to its step is counted when its session ends. */
	while (!what->again && (other = launch_next(launch, &at)))
		clerk_tell(other, NEWS_DIVERGED, &point, TPCK_DEATH_FAR);
	launch_start_over(launch, live, what->again);
	if (launch->apart)
		launch_apart->over(agent, live, what->again);
}

static void take_session_message(struct agent *agent, struct client *client, int type, const void *payload)
{
	struct live *live = client->live;
	const struct tpck_held *held = payload;
	const struct tpck_ending *ending = payload;
	struct tpck_point point;

	if (type == TPCK_MSG_PREPARE) {
		prepare_begin(agent, live, payload);
	} else if (type == TPCK_MSG_HELD) {
		if (held->image < live->image_count && held->generation == live->session->name.generation)
			live_held(live, held->image);
		else
			tpck_log_warn("process %d reports image %u of generation %llu, which it does not have",
				      (int)client->pid, held->image, (unsigned long long)held->generation);
	} else if (type == TPCK_MSG_RESUMED) {
		char path[TPCK_PATH_MAX];

		live->resumed = true;
		/* The image is all in the device now; the session that it came from keeps its own name of it. */
		snprintf(path, sizeof path, "%s/resume.image", live->session->path);
		unlink(path);
		point = (struct tpck_point){live->session->name.generation, live->session->control->resume_step};
		clerk_tell(live, NEWS_RESUMED, &point, TPCK_DEATH_FAR);
		own_resumed(live);
		if (live->session->name.rank == 0)
			history_resumed(live);
	} else if (type == TPCK_MSG_DIVERGED) {
		diverged(agent, live, payload);
	} else if (type == TPCK_MSG_INJECTED) {
		launch_injected(agent, live->launch);
	} else if (type == TPCK_MSG_ID) {
		launch_pass_id(agent, live, payload);
	} else if (type == TPCK_MSG_BEGUN) {
		own_began(live, payload);
	} else if (type == TPCK_MSG_DUE) {
		launch_capture(agent, live->launch);
	} else if (type == TPCK_MSG_ENDING) {
		live->ending = live->end_known = true;
		live->status = ending->status;
	} else {
		tpck_log_warn("process %d sent a message of type %d, which is none", (int)client->pid, type);
	}
}

void client_last_words(struct agent *agent, struct client *client)
{
	union {
		struct tpck_message head;
		char bytes[1024];
	} packet;
	ssize_t got;

	while ((got = recv(client->watch.fd, packet.bytes, sizeof packet, MSG_DONTWAIT)) > 0) {
		int type = packet.head.type;

		if (!tpck_message_check(packet.bytes, (size_t)got) && tpck_message_is_sound(&packet.head, packet.bytes + sizeof packet.head) &&
		    client->live && (type == TPCK_MSG_RESUMED || type == TPCK_MSG_DIVERGED || type == TPCK_MSG_ENDING))
			take_session_message(agent, client, type, packet.bytes + sizeof packet.head);
	}
}

static void take_message(struct agent *agent, struct client *client, const struct tpck_message *head,
			 const void *payload)
{
	const struct tpck_hello *hello = payload;
	const struct tpck_ending *ending = payload;
	const struct tpck_meet *meet = payload;
	const struct tpck_spare *spare = payload;

	if (!tpck_message_is_sound(head, payload)) {
		tpck_log_warn("process %d sent a message of type %d and %u bytes, which is none", (int)client->pid, head->type, head->bytes);
		if (head->type == TPCK_MSG_HELLO)
			client_close(agent, client);
	} else if (head->type == TPCK_MSG_QUERY) {
		session_beyond->query(agent, client);
	} else if (head->type == TPCK_MSG_FILES) {
		agent->served = client->files = true;
		agent->nobody_returns = false;
		files_begin();
	} else if (head->type == TPCK_MSG_LOOK) {
		session_beyond->look(client);
	} else if (head->type == TPCK_MSG_SPARE) {
		agent->served = client->spare = true;
		client->spare_ranks = spare->ranks;
	} else if (head->type == TPCK_MSG_MEET) {
		session_beyond->meet(client, meet);
	} else if (head->type == TPCK_MSG_ENDING && client->files) {
		client->ended = ending->status == 0;
		if (client->ended)
			agent->files_died_ns = 0;
	} else if (head->type != TPCK_MSG_HELLO) {
		if (client->live)
			take_session_message(agent, client, head->type, payload);
	} else if (client->live || client->busy) {
		tpck_log_warn("process %d sent a second HELLO", (int)client->pid);
		client_close(agent, client);
	} else if (hello->flags & TPCK_HELLO_ADOPT) {
		session_beyond->adopt(agent, client, hello);
	} else {
		session_beyond->hello(agent, client, hello, (const char *)(hello + 1));
	}
}

static void client_ready(struct agent *agent, struct watch *watch)
{
	/* One byte more than a packet may have, for the NUL behind an identity text. */
	static union {
		struct tpck_message head;
		char bytes[TPCK_MESSAGE_BYTES_MAX + 1];
	} packet;
	struct client *client = (struct client *)watch;
	ssize_t got = recv(watch->fd, packet.bytes, TPCK_MESSAGE_BYTES_MAX, MSG_DONTWAIT | MSG_TRUNC);
	int rc;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		connection_ended(agent, client);
		return;
	}
	rc = got > TPCK_MESSAGE_BYTES_MAX ? -EPROTO : tpck_message_check(packet.bytes, (size_t)got);
	if (rc == -EPROTO) {
		tpck_log_warn("process %d sent a packet of %zd bytes that is no message", (int)client->pid, got);
		connection_ended(agent, client);
		return;
	}
	if (rc) {
		tpck_log_warn("process %d speaks version %u of the agent's protocol, this is %d", (int)client->pid,
			      packet.head.version, TPCK_WIRE_VERSION);
		connection_ended(agent, client);
		return;
	}
	packet.bytes[got] = '\0';
	take_message(agent, client, &packet.head, packet.bytes + sizeof packet.head);
}

static void listener_ready(struct agent *agent, struct watch *watch)
{
	int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *client;
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.uid != geteuid()) {
		tpck_log_warn("process %d of user %u is not allowed to speak to this agent", (int)peer.pid,
			      (unsigned)peer.uid);
		close(fd);
		return;
	}
	client = calloc(1, sizeof *client);
	if (!client) {
		close(fd);
		return;
	}
	client->watch = (struct watch){fd, client_ready};
	client->pid = peer.pid;
	client->next = agent->clients;
	agent->clients = client;
	if (loop_watch(&client->watch))
		client_close(agent, client);
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t mask;
	int fd, folder = -1, rc;

	(void)agent;
	if (strlen(home.socket_path) < sizeof address.sun_path) {
		strcpy(address.sun_path, home.socket_path);
	} else {
		/* A name that does not fit is reached through the folder's descriptor, on both sides. */
		folder = open(home.folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
		snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/agent.sock", folder);
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return tpck_error_set(err, errno, "making a socket");
	/* The lock is held: a socket that is there is a dead agent's. */
	unlink(home.socket_path);
	mask = umask(0077);
	rc = bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 128) ? errno : 0;
	umask(mask);
	if (folder >= 0)
		close(folder);
	if (rc) {
		close(fd);
		return tpck_error_set(err, rc, "listening on %s", home.socket_path);
	}
	listener = (struct watch){fd, listener_ready};
	return loop_watch(&listener);
}

static void stop(struct agent *agent)
{
	(void)agent;
	close(listener.fd);
	unlink(home.socket_path);
}

const struct loop_part clients_loop = {.begin = begin, .stop = stop};
