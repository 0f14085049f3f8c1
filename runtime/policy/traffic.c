/* SPDX-License-Identifier: Apache-2.0 */
/* What others send over the node's network links. */
#include "config.h"

#include "runtime/policy/traffic.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/digest.h"

/* What is handed over is on its link soon, but for what lies in a socket's buffer. */
#define UNDER_WAY_MOST (1ull << 20)
#define UNDER_WAY_NS 10000000ull

void tpck_traffic_begin(struct tpck_traffic *traffic, const char *root)
{
	char path[300];
	glob_t found;

	*traffic = (struct tpck_traffic){.net = -1};
	snprintf(path, sizeof path, "%s/proc/net/dev", root);
	traffic->net = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof path, "%s/sys/class/infiniband/*/ports/*/counters/port_xmit_data", root);
	if (glob(path, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc && traffic->ports < TPCK_TRAFFIC_LINKS; i++) {
		int fd = open(found.gl_pathv[i], O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			traffic->port[traffic->ports++] = fd;
	}
	globfree(&found);
}

void tpck_traffic_end(struct tpck_traffic *traffic)
{
	if (traffic->net >= 0)
		close(traffic->net);
	for (unsigned i = 0; i < traffic->ports; i++)
		close(traffic->port[i]);
	*traffic = (struct tpck_traffic){.net = -1};
}

void tpck_traffic_ours(struct tpck_traffic *traffic, uint64_t now_ns, uint64_t bytes)
{
	traffic->ours += bytes;
	traffic->ours_at_ns = now_ns;
}

static struct tpck_traffic_link *link_of(struct tpck_traffic *traffic, uint64_t name)
{
	for (unsigned i = 0; i < TPCK_TRAFFIC_LINKS; i++) {
		struct tpck_traffic_link *link = &traffic->link[(name + i) % TPCK_TRAFFIC_LINKS];

		if (link->name == name || !link->name)
			return link;
	}
	return NULL;
}

/* What of `sent` is not ours, where the link was known before. */
static uint64_t others(struct tpck_traffic *traffic, uint64_t name, uint64_t sent, uint64_t now_ns)
{
	struct tpck_traffic_link *link = link_of(traffic, name);
	uint64_t more, ours;

	if (!link)
		return 0;
	if (!link->name || sent < link->sent) {
		*link = (struct tpck_traffic_link){.name = name, .sent = sent};
		return 0;
	}
	more = sent - link->sent;
	link->sent = sent;
	link->ours += traffic->ours - traffic->seen_ours;
	if (link->ours > UNDER_WAY_MOST)
		link->ours = UNDER_WAY_MOST;
	/* With its headers. */
	ours = link->ours + link->ours / 16;
	if (more < ours) {
		/* A small rest is headers that were fewer. */
		link->ours = ours - more > ours / 8 ? link->ours - more * 16 / 17 : 0;
		more = 0;
	} else {
		more -= ours;
		link->ours = 0;
	}
	/* What was handed over went over another link. */
	if (now_ns - traffic->ours_at_ns > UNDER_WAY_NS)
		link->ours = 0;
	return more;
}

static ssize_t read_all(int fd, char *text, size_t size)
{
	ssize_t got = fd >= 0 ? pread(fd, text, size - 1, 0) : -1;

	text[got > 0 ? got : 0] = '\0';
	return got;
}

uint64_t tpck_traffic_look(struct tpck_traffic *traffic, uint64_t now_ns)
{
	char text[8192], *line = text;
	uint64_t most = 0, found;

	(void)read_all(traffic->net, text, sizeof text);
	while (line && *line) {
		char *end = strchr(line, '\n'), *colon = strchr(line, ':');
		unsigned long long sent;

		line += strspn(line, " ");
		/* Behind the name eight numbers of what came, then those of what went. */
		if (end && colon && colon < end && strncmp(line, "lo:", 3) != 0 &&
		    sscanf(colon + 1, "%*u %*u %*u %*u %*u %*u %*u %*u %llu", &sent) == 1) {
			found = others(traffic, tpck_digest64(line, (size_t)(colon - line), 1) | 1, sent, now_ns);
			most = found > most ? found : most;
		}
		line = end ? end + 1 : NULL;
	}
	for (unsigned i = 0; i < traffic->ports; i++) {
		if (read_all(traffic->port[i], text, sizeof text) <= 0)
			continue;
		found = others(traffic, 2 * (i + 1ull), 4 * strtoull(text, NULL, 10), now_ns);
		most = found > most ? found : most;
	}
	traffic->seen_ours = traffic->ours;
	traffic->looked_ns = now_ns;
	return most;
}
