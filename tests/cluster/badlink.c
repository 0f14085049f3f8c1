/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link of a test's node that is far away and loses packets, where the kernel has no netem. It stands between two tap devices, one in
 * the node's namespace of network and one in the test's own, and each packet that leaves the node goes on late, or never; what comes
 * there passes as it is, as with netem at the node's device.
 *
 * badlink PID INNER OUTER SEED [NAME=VALUE...]
 *
 * Says "ready" once both devices are there. Its input has lines of NAME=VALUE, from when on that holds, each answered by a line with the
 * packets that left the node until then: "passed N lost N overflowed N altered N". It ends with its input, and the devices end with it.
 *
 * It is also what somebody between two nodes can be: with record=PATH what leaves the node over TCP is appended to this file, and with alter=N
 * one byte in the middle of each of the next N full packets of TCP is changed, so that TCP does not notice.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <unistd.h>

#include "runtime/base/clock.h"

/* Two to the power of something. A queue that is full loses what comes. */
enum { QUEUE = 8192, PACKET = 2048, ROUND = 64, FULL = 1300 };

struct packet {
	uint64_t due_ns;
	size_t size;
	char bytes[PACKET];
};

static struct {
	double delay_ms, jitter_ms; /* evenly between delay - jitter and delay + jitter; packets keep their order */
	double loss;                /* 0.01: one of a hundred, each by itself */
	double rate_mbit;           /* 0: as it comes */
	double alter;               /* packets */
	int record;                 /* a file, or -1 */
} link_is = {.record = -1};

static struct packet queue[QUEUE];
static uint64_t head, tail, chance, passed, lost, overflowed, altered, sent_ns;

static double draw(void)
{
	uint64_t x = chance += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return (double)((x ^ x >> 31) >> 11) / (double)(1ull << 53);
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return -1;
}

static int open_tap(const char *name)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	/* Else it counts as one of 10 Mb/s, by which UCX would choose how it sends. */
	struct ethtool_cmd speed = {.cmd = ETHTOOL_GSET};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), control;

	if (fd < 0)
		return fail("/dev/net/tun");
	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	if (ioctl(fd, TUNSETIFF, &request)) {
		fail(name);
		close(fd);
		return -1;
	}
	control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	request.ifr_data = (void *)&speed;
	if (ioctl(control, SIOCETHTOOL, &request) == 0) {
		speed.cmd = ETHTOOL_SSET;
		ethtool_cmd_speed_set(&speed, 10000);
		(void)ioctl(control, SIOCETHTOOL, &request);
	}
	close(control);
	return fd;
}

static int enter(const char *pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/%.20s/ns/net", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		return fail(path);
	close(fd);
	return 0;
}

static bool set(char *text)
{
	static const struct { const char *name; double *value; } settings[] = {
		{"delay_ms", &link_is.delay_ms}, {"jitter_ms", &link_is.jitter_ms}, {"loss", &link_is.loss}, {"rate_mbit", &link_is.rate_mbit},
		{"alter", &link_is.alter},
	};
	char *value = strchr(text, '='), *end;

	if (strncmp(text, "record=", 7) == 0) {
		link_is.record = open(value + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		return link_is.record >= 0 || fail(value + 1) == 0;
	}

	for (size_t i = 0; value && i < sizeof settings / sizeof *settings; i++)
		if (strncmp(text, settings[i].name, (size_t)(value - text)) == 0 && !settings[i].name[value - text]) {
			*settings[i].value = strtod(value + 1, &end);
			return !*end && end != value + 1;
		}
	fprintf(stderr, "%s: no such setting\n", text);
	return false;
}

/* False: the input has ended. */
static bool read_input(void)
{
	static char text[1024];
	static size_t have;
	ssize_t got = read(STDIN_FILENO, text + have, sizeof text - 1 - have);
	char *line = text, *end;

	if (got <= 0)
		return got < 0 && (errno == EAGAIN || errno == EINTR);
	have += (size_t)got;
	text[have] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		for (char *rest = line, *word; (word = strtok_r(rest, " ", &rest));)
			if (!set(word))
				return false;
		printf("passed %llu lost %llu overflowed %llu altered %llu\n", (unsigned long long)passed, (unsigned long long)lost,
		       (unsigned long long)overflowed, (unsigned long long)altered);
		fflush(stdout);
		line = end + 1;
	}
	have = strlen(line);
	memmove(text, line, have + 1);
	return true;
}

/* What a packet of TCP over IPv4 has for its receiver; NULL: it is none, or has nothing. */
static uint8_t *tcp_bytes(struct packet *packet, size_t *count, uint8_t **checksum)
{
	uint8_t *frame = (uint8_t *)packet->bytes, *ip = frame + 14, *tcp;
	size_t header, whole;

	if (packet->size < 54 || frame[12] != 8 || frame[13] || ip[0] >> 4 != 4 || ip[9] != 6)
		return NULL;
	tcp = ip + (ip[0] & 15) * 4;
	header = (size_t)(tcp - ip) + (size_t)(tcp[12] >> 4) * 4;
	whole = (size_t)ip[2] << 8 | ip[3];
	if (whole <= header || whole + 14 > packet->size)
		return NULL;
	*count = whole - header;
	*checksum = tcp + 16;
	return ip + header;
}

/* RFC 1624. A word of the packet is changed, which begins an even number of bytes behind the header. */
static void alter(uint8_t *word, uint8_t *checksum)
{
	uint32_t before = (uint32_t)word[0] << 8 | word[1], after, sum = (uint32_t)checksum[0] << 8 | checksum[1];

	word[0] ^= 0x10;
	after = (uint32_t)word[0] << 8 | word[1];
	sum = (~sum & 0xffff) + (~before & 0xffff) + after;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~sum & 0xffff;
	checksum[0] = (uint8_t)(sum >> 8);
	checksum[1] = (uint8_t)sum;
	altered++;
	link_is.alter--;
}

static void listen_in(struct packet *packet)
{
	uint8_t *checksum, *bytes;
	size_t count;

	if (link_is.record < 0 && link_is.alter < 1)
		return;
	bytes = tcp_bytes(packet, &count, &checksum);
	if (bytes && link_is.record >= 0)
		(void)!write(link_is.record, bytes, count);
	if (bytes && link_is.alter >= 1 && count >= FULL)
		alter(bytes + FULL / 2, checksum);
}

static void take(int from, uint64_t now)
{
	for (int i = 0; i < ROUND; i++) {
		struct packet *packet = &queue[tail % QUEUE], *before = &queue[(tail - 1) % QUEUE];
		ssize_t size = read(from, packet->bytes, sizeof packet->bytes);
		double wait_ms = link_is.delay_ms + link_is.jitter_ms * (2 * draw() - 1);

		if (size <= 0)
			return;
		if (draw() < link_is.loss) {
			lost++;
			continue;
		}
		if (tail - head >= QUEUE - 1) {
			overflowed++;
			continue;
		}
		packet->size = (size_t)size;
		listen_in(packet);
		if (link_is.rate_mbit > 0) {
			sent_ns = (sent_ns > now ? sent_ns : now) + (uint64_t)((double)size * 8e3 / link_is.rate_mbit);
			wait_ms += (double)(sent_ns - now) / 1e6;
		}
		packet->due_ns = now + (uint64_t)((wait_ms > 0 ? wait_ms : 0) * 1e6);
		if (tail > head && packet->due_ns < before->due_ns)
			packet->due_ns = before->due_ns;
		tail++;
	}
}

static void give(int to, uint64_t now)
{
	for (; head < tail && queue[head % QUEUE].due_ns <= now; head++) {
		/* A device that is down loses it, as a cut wire does. */
		if (write(to, queue[head % QUEUE].bytes, queue[head % QUEUE].size) < 0 && errno == EAGAIN)
			return;
		passed++;
	}
}

static void pass(int from, int to)
{
	char bytes[PACKET];
	ssize_t size;

	for (int i = 0; i < ROUND && (size = read(from, bytes, sizeof bytes)) > 0; i++)
		(void)!write(to, bytes, (size_t)size);
}

int main(int argc, char **argv)
{
	int inner, outer;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc < 5) {
		fprintf(stderr, "badlink PID INNER OUTER SEED [NAME=VALUE...]\n");
		return 2;
	}
	chance = strtoull(argv[4], NULL, 0);
	for (int i = 5; i < argc; i++)
		if (!set(argv[i]))
			return 2;
	outer = open_tap(argv[3]);
	if (outer < 0 || enter(argv[1]))
		return 1;
	inner = open_tap(argv[2]);
	if (inner < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = inner, .events = POLLIN}, {.fd = outer, .events = POLLIN}};
		uint64_t now = tpck_clock_monotonic_ns(), due = head < tail ? queue[head % QUEUE].due_ns : now + 1000000000ull;
		struct timespec until = {0};

		if (due > now)
			until = (struct timespec){(time_t)((due - now) / 1000000000ull), (long)((due - now) % 1000000000ull)};
		(void)ppoll(fds, 3, &until, NULL);
		if (fds[0].revents && !read_input())
			return 0;
		now = tpck_clock_monotonic_ns();
		if (fds[1].revents & POLLIN)
			take(inner, now);
		give(outer, now);
		if (fds[2].revents & POLLIN)
			pass(outer, inner);
		if ((fds[1].revents | fds[2].revents) & (POLLERR | POLLNVAL)) /* the node, or the device, is gone; or one is down yet */
			(void)usleep(10000);
	}
}
