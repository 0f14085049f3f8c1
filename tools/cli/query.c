/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the agent of a job what it is at. */
#include "config.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/wire/message.h"
#include "runtime/wire/segment.h"
#include "tools/cli/top.h"

static int reach(const char *memory_job)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_usec = 300000};
	int folder = open(memory_job, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = folder < 0 ? -1 : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	/* A path of any length. */
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/agent.sock", folder);
	if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
			setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) ||
			connect(fd, (struct sockaddr *)&address, sizeof address))) {
		close(fd);
		fd = -1;
	}
	if (folder >= 0)
		close(folder);
	return fd;
}

struct json_object *cli_query(const char *memory_job)
{
	struct tpck_message query = {.magic = TPCK_MESSAGE_MAGIC, .version = TPCK_WIRE_VERSION, .type = TPCK_MSG_QUERY}, head;
	struct json_object *answer = NULL;
	int fd = reach(memory_job);
	char *packet = fd < 0 ? NULL : malloc(TPCK_MESSAGE_BYTES_MAX + 1);
	ssize_t got;

	if (packet && send(fd, &query, sizeof query, MSG_NOSIGNAL) == sizeof query) {
		got = recv(fd, packet, TPCK_MESSAGE_BYTES_MAX, 0);
		if (got > (ssize_t)sizeof head) {
			memcpy(&head, packet, sizeof head);
			packet[got] = '\0';
			if (head.magic == TPCK_MESSAGE_MAGIC && head.version == TPCK_WIRE_VERSION && head.type == TPCK_MSG_ANSWER)
				answer = json_tokener_parse(packet + sizeof head);
		}
	}
	if (fd >= 0)
		close(fd);
	free(packet);
	return answer;
}
