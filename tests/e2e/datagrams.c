/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer that tells others of each copy to the host by datagrams, as metrics are told to statsd: preloaded, it sends the number of the copy, from 1 on, to
 * 127.0.0.1:$DATAGRAMS_PORT by a way that $DATAGRAMS names:
 *
 *   to         sendto()
 *   number     sendto() and sendmsg() by syscall(), by turns
 *   message    sendmsg()
 *   messages   sendmmsg(), two at a time: the second one is as the first, with a minus
 *   connected  send() by a socket that is connected
 *   written    write() and writev() by such a socket, by turns
 *   log        syslog()
 *   forked     a forked process does it by its parent's, which is connected
 *   own        a forked process does it by sendto()
 *
 * Each copy takes some milliseconds more, for a job that is killed between two of its iterations.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

static struct sockaddr_in others;
static const char *way;
static int by = -1;

static int is(const char *name)
{
	return strcmp(way, name) == 0;
}

static void tell(int number)
{
	char text[2][20];
	struct iovec parts[2][1] = {{{text[0], (size_t)snprintf(text[0], sizeof text[0], "%d", number + 1)}}, {{text[1], (size_t)snprintf(text[1], sizeof text[1], "-%d", number + 1)}}};
	struct mmsghdr messages[2];
	size_t bytes = parts[0][0].iov_len;
	ssize_t done = -1;

	memset(messages, 0, sizeof messages);
	for (int i = 0; i < 2; i++)
		messages[i].msg_hdr = (struct msghdr){.msg_name = &others, .msg_namelen = sizeof others, .msg_iov = parts[i], .msg_iovlen = 1};
	if (is("message"))
		done = sendmsg(by, &messages[0].msg_hdr, 0);
	else if (is("messages"))
		/* The kernel, too, may take the first one only. */
		for (int sent = 0; sent < 2; sent += done > 0 ? (int)done : 2)
			done = sendmmsg(by, messages + sent, (unsigned)(2 - sent), 0);
	else if (is("connected") || is("forked"))
		done = send(by, text[0], bytes, 0);
	else if (is("written"))
		done = number % 2 ? write(by, text[0], bytes) : writev(by, parts[0], 1);
	else if (is("log"))
		done = 0, syslog(LOG_USER | LOG_INFO, "told %d", number + 1);
	else if (is("number"))
		done = number % 2 ? syscall(SYS_sendto, by, text[0], bytes, 0, &others, sizeof others) : syscall(SYS_sendmsg, by, &messages[0].msg_hdr, 0);
	else
		done = sendto(by, text[0], bytes, 0, (struct sockaddr *)&others, sizeof others);
	if (done < 0)
		perror("datagrams");
}

static int begin(void)
{
	int ends[2], number;

	way = getenv("DATAGRAMS");
	others.sin_family = AF_INET;
	others.sin_port = htons((uint16_t)atoi(getenv("DATAGRAMS_PORT")));
	others.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	by = socket(AF_INET, SOCK_DGRAM, 0);
	if (is("connected") || is("written") || is("forked"))
		(void)!connect(by, (struct sockaddr *)&others, sizeof others);
	if ((!is("forked") && !is("own")) || pipe(ends))
		return -1;
	if (fork() == 0) {
		close(ends[1]);
		while (read(ends[0], &number, sizeof number) == sizeof number)
			tell(number);
		_exit(0);
	}
	close(ends[0]);
	return ends[1];
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	int (*real)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	static int copies, told;

	if (kind == 2 && copies == 0)
		told = begin();
	if (kind == 2 && told < 0)
		tell(copies);
	if (kind == 2 && told >= 0)
		(void)!write(told, &copies, sizeof copies);
	if (kind == 2) {
		copies++;
		usleep(3000);
	}
	return real(to, from, bytes, kind, stream);
}
