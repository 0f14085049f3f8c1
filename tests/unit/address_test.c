/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts, ports and addresses of both families: how they are written, what is none of these, and which are this machine's. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/peer/address.h"
#include "runtime/peer/rendezvous.h"
#include "runtime/peer/transport.h"
#include "tests/unit/store_tap.h"

static void is_host(const char *text, const char *host, unsigned port)
{
	char what[400], found[TPCK_HOST_NAME] = "";
	struct tpck_error err = {0};
	uint16_t number = 0;
	int rc = tpck_address_split(text, 7, found, &number, &err);

	snprintf(what, sizeof what, "'%.100s' is '%s' and %u", text, host, port);
	tap_ok(rc == 0 && strcmp(found, host) == 0 && number == port, what, rc ? err.text : found);
}

static void is_none(const char *text, const char *why)
{
	char what[400], found[TPCK_HOST_NAME] = "as before";
	struct tpck_error err = {0};
	uint16_t number = 1;
	int rc = tpck_address_split(text, 7, found, &number, &err);

	snprintf(what, sizeof what, "'%.100s' %s", text, why);
	tap_ok(rc < 0 && strstr(err.text, why) && strcmp(found, "as before") == 0 && number == 1, what, err.text);
}

static void written(void)
{
	char longest[300], text[400];

	is_host("hosta", "hosta", 7);
	is_host("hosta:7000", "hosta", 7000);
	is_host("hosta.example.org:65535", "hosta.example.org", 65535);
	is_host("10.0.0.1", "10.0.0.1", 7);
	is_host("10.0.0.1:1", "10.0.0.1", 1);
	is_host("fd00::1", "fd00::1", 7);
	is_host("fd00::1:4800", "fd00::1:4800", 7);
	is_host("[fd00::1]", "fd00::1", 7);
	is_host("[fd00::1]:4800", "fd00::1", 4800);
	is_host("::ffff:10.0.0.1", "::ffff:10.0.0.1", 7);
	is_host("fe80::1%eth0", "fe80::1%eth0", 7);
	is_host("[fe80::1%eth0]:4800", "fe80::1%eth0", 4800);
	is_none("", "names no host");
	is_none(":80", "names no host");
	is_none("[]:80", "names no host");
	is_none("hosta:", "no port from 1 to 65535");
	is_none("hosta:0", "no port from 1 to 65535");
	is_none("hosta:65536", "no port from 1 to 65535");
	is_none("hosta:4294967297", "no port from 1 to 65535");
	is_none("hosta:http", "no port from 1 to 65535");
	is_none("hosta:80x", "no port from 1 to 65535");
	is_none("[fd00::1]:", "no port from 1 to 65535");
	is_none("[fd00::1", "no ]");
	is_none("[fd00::1]80", "something else than :PORT");
	is_none("[hosta]:80", "no IPv6 address");
	is_none("[10.0.0.1]:80", "no IPv6 address");
	is_none("hosta]:80", "no IPv6 address");
	is_none("hosta:80:90", "no IPv6 address");
	is_none("fd00::1::2", "no IPv6 address");
	is_none("[fe80::1%]:80", "no IPv6 address");
	memset(longest, 'a', sizeof longest);
	longest[255] = '\0';
	snprintf(text, sizeof text, "%s:80", longest);
	is_host(text, longest, 80);
	longest[255] = 'a';
	longest[256] = '\0';
	is_none(longest, "names no host");
}

/* Any text: a host is never empty, a port never 0, and what is left of brackets is an address. */
static void any_text(void)
{
	static const char letters[] = "[]:%0f1a.-";
	unsigned seed = 11, hosts = 0, bad = 0;

	for (unsigned i = 0; i < 300000; i++) {
		char text[24], host[TPCK_HOST_NAME];
		size_t length = (size_t)(rand_r(&seed) % 20);
		uint16_t port = 0;

		for (size_t k = 0; k < length; k++)
			text[k] = letters[(size_t)rand_r(&seed) % (sizeof letters - 1)];
		text[length] = '\0';
		if (tpck_address_split(text, 7, host, &port, NULL))
			continue;
		hosts++;
		bad += !host[0] || !port || strchr(host, ']') != NULL;
	}
	tap_ok(hosts > 1000 && !bad, "of any text", "");
}

static void numerical(const char *text, const char *again)
{
	char what[200], found[TPCK_TRANSPORT_ADDRESS] = "";
	struct sockaddr_storage address;
	socklen_t bytes = 0;
	int rc = tpck_address_read(text, &address, &bytes);

	snprintf(what, sizeof what, "'%s' is %s", text, again ? again : "no address");
	if (rc) {
		tap_ok(!again, what, "not read");
		return;
	}
	/* The port is at one place in both. */
	(void)tpck_address_print((struct sockaddr *)&address, ntohs(((struct sockaddr_in *)&address)->sin_port), found,
				 sizeof found);
	tap_ok(again && strcmp(found, again) == 0 &&
		       bytes == (address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)),
	       what, found);
}

static void resolves(const char *host, const char *lines, uint16_t port, const char *why)
{
	char what[300], found[1024] = "";
	struct tpck_error err = {0};
	uint16_t number = 0;
	int rc = tpck_rendezvous_resolve(host, 47117, found, sizeof found, &number, &err);

	snprintf(what, sizeof what, "%s is found at %.*s%s", host, (int)strcspn(lines, "\n"), lines, why);
	tap_ok(why[0] ? rc < 0 && strstr(err.text, why) != NULL : rc == 0 && strcmp(found, lines) == 0 && number == port, what,
	       rc ? err.text : found);
}

static void has(const char *lines, const char *address, bool yes)
{
	char what[200];

	snprintf(what, sizeof what, "%s is %sof these", address, yes ? "" : "not ");
	tap_ok(tpck_rendezvous_has(lines, address) == yes, what, lines);
}

static struct tpck_local local(const char *interface, const char *address)
{
	struct tpck_local one = {0};

	snprintf(one.interface, sizeof one.interface, "%s", interface);
	(void)tpck_address_read(address, &one.address, &one.bytes);
	return one;
}

static void firsts(void)
{
	const struct tpck_local list[] = {
		local("eth0", "10.0.0.1:1"), local("eth1", "10.1.0.1:1"), local("eth1", "10.1.0.2:1"), local("eth0", "[fd00::2]:1"),
		local("eth1", "[fd01::1]:1"), local("eth0", "[fd00::1]:1"),
	};
	static const int first[] = {0, 1, 1, 3, 4, 3};
	struct tpck_local none = local("eth0", "[fd00::3]:1");
	bool good = tpck_address_first(list, 6, (const struct sockaddr *)&none.address) == NULL;

	for (size_t i = 0; i < 6; i++)
		good = good && tpck_address_first(list, 6, (const struct sockaddr *)&list[i].address) == &list[first[i]];
	tap_ok(good, "the first address of the same interface and family", "");
}

static void own(void)
{
	char lines[4096], copy[4096], *rest = copy, *line;
	bool good = true;

	tpck_rendezvous_addresses(4800, lines, sizeof lines);
	snprintf(copy, sizeof copy, "%s", lines);
	while ((line = strtok_r(rest, "\n", &rest)))
		good = good && tpck_rendezvous_is_local(line) && tpck_rendezvous_has(lines, line) &&
		       strcmp(strrchr(line, ':'), ":4800") == 0;
	tap_ok(good && tpck_rendezvous_has(lines, "127.0.0.1:4800"), "this machine's own addresses are its own", lines);
	tap_ok(tpck_rendezvous_is_local("[::1]:9") && tpck_rendezvous_is_local("127.0.0.1:9"), "and so are those of loopback", lines);
	tap_ok(!tpck_rendezvous_is_local("[2001:db8::1]:4800") && !tpck_rendezvous_is_local("192.0.2.1:4800"), "those of documents are not", lines);
}

/* ---- those that the user names --------------------------------------------------------------- */

/* Whether an entry, behind another one, chooses all of this machine's addresses, or none; -1: some. */
static int chooses(const char *entry)
{
	struct tpck_local list[64];
	char both[100];
	size_t all = tpck_address_local(list, 64), count;

	snprintf(both, sizeof both, "none0, %s", entry);
	(void)tpck_address_choose(both, NULL);
	count = tpck_address_chosen(list, 64);
	(void)tpck_address_choose("", NULL);
	return count == all ? 1 : count == 0 ? 0 : -1;
}

static void choose(void)
{
	static const char *const wrong[] = {"10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "fd00::/129", "fd00::1%eth0", "10.0.0.0/8x", "10.0.0.1:80",
					    "aninterfaceofalongname", "10.0.0.0/4294967304", "/8"};
	struct tpck_local list[64];
	size_t all = tpck_address_local(list, 64), good = 0;
	struct tpck_error err = {0};
	char own[TPCK_TRANSPORT_ADDRESS], network[TPCK_TRANSPORT_ADDRESS + 4];

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		good += tpck_address_choose(wrong[i], &err) == -EINVAL && strstr(err.text, wrong[i]) && tpck_address_chosen(list, 64) == 0;
	tap_ok(good == sizeof wrong / sizeof *wrong, "what is no entry is said, and chooses nothing", err.text);
	tap_ok(tpck_address_choose("ib0,10.1.0.0/16 fd00::/8,fd00::5,10.0.0.1", &err) == 0, "interfaces, networks and addresses are entries", err.text);
	(void)tpck_address_choose("", &err);
	tap_ok(tpck_address_chosen(list, 64) == all, "with none all are chosen", "");
	tap_ok(!all || chooses("0.0.0.0/0,::/0") == 1, "networks have addresses", "");
	good = 0;
	all = tpck_address_local(list, 64);
	for (size_t i = 0; i < all; i++) {
		struct tpck_local found[64];
		size_t count;
		bool is = false;

		(void)tpck_address_print((struct sockaddr *)&list[i].address, 0, own, sizeof own);
		*strrchr(own, ':') = '\0';
		snprintf(network, sizeof network, "%.*s/%d", (int)strcspn(own + (own[0] == '['), "]"), own + (own[0] == '['), own[0] == '[' ? 127 : 31);
		if (i % 3 == 2)
			*strchr(network, '/') = '\0';
		(void)tpck_address_choose(i % 3 == 0 ? list[i].interface : network, &err);
		count = tpck_address_chosen(found, 64);
		for (size_t k = 0; k < count; k++)
			is = is || memcmp(&found[k].address, &list[i].address, list[i].bytes) == 0;
		good += is;
	}
	tap_ok(good == all, "each address is chosen by its interface, its network or itself", err.text);
	tap_ok(chooses("203.0.113.0/24,2001:db8::/32") == 0 || !all, "others' are not", "");
	(void)tpck_address_choose("", &err);
}

/* ---- files of the rendezvous -------------------------------------------------------------- */

static char visited[100];

static void note_visit(void *context, const char *node, const char *addresses)
{
	(void)context;
	snprintf(visited + strlen(visited), sizeof visited - strlen(visited), "%s %s", node, addresses);
}

static bool is_b(void *context, const char *node)
{
	(void)context;
	return strcmp(node, "b") == 0;
}

static bool is_nobody(void *context, const char *node)
{
	(void)context;
	(void)node;
	return false;
}

/* Somebody who may write to the folder above has put a link into the job's place. */
static void elsewhere(char *folder)
{
	char job[200], away[210];
	struct tpck_error err = {0};
	bool refused;

	snprintf(job, sizeof job, "%.*s", (int)(strrchr(folder, '/') - folder), folder);
	snprintf(away, sizeof away, "%s.away", job);
	tap_ok(!rename(job, away) && !symlink(away, job), "a link is in the place of the job's folder", "");
	refused = tpck_rendezvous_write(folder, "d", "10.0.0.1:80\n", &err) == -EPERM && strstr(err.text, "a link");
	visited[0] = '\0';
	tpck_rendezvous_remove(folder, "a");
	tpck_rendezvous_clear(folder, "c");
	tpck_rendezvous_each(folder, "", is_nobody, note_visit, NULL);
	tap_ok(refused && !visited[0], "nothing is written, and nothing is read there", err.text);
	(void)(unlink(job) || rename(away, job));
	tpck_rendezvous_each(folder, "", is_nobody, note_visit, NULL);
	tap_ok(strstr(visited, "a 10.0.0.1:80\n") && !strstr(visited, "d 10"), "nor removed", visited);
}

static void files(void)
{
	char folder[200];

	snprintf(folder, sizeof folder, "%s/agents", tap_folder("/tmp"));
	for (const char *name = "abc"; *name; name++)
		(void)tpck_rendezvous_write(folder, (char[]){*name, 0}, "10.0.0.1:80\n", NULL);
	tpck_rendezvous_each(folder, "a", is_b, note_visit, NULL);
	tap_ok(strcmp(visited, "c 10.0.0.1:80\n") == 0, "of the others' files those that are known are not read", visited);
	visited[0] = '\0';
	tpck_rendezvous_remove(folder, "b");
	tpck_rendezvous_clear(folder, "a");
	tpck_rendezvous_each(folder, "a", is_nobody, note_visit, NULL);
	tap_ok(strcmp(visited, "c 10.0.0.1:80\n") == 0, "and one whose agent was there lately stays", visited);
	elsewhere(folder);
	tpck_rendezvous_remove(folder, "a");
	tpck_rendezvous_remove(folder, "c");
	rmdir(folder);
}

int main(void)
{
	static const char lines[] = "110.77.0.1:80\n[fd00::1]:80\n10.77.0.2:8000\n";

	written();
	any_text();
	numerical("10.0.0.1:80", "10.0.0.1:80");
	numerical("[fd00:0::0001]:80", "[fd00::1]:80");
	numerical("fd00::1", NULL);
	numerical("[::ffff:10.0.0.1]:80", "10.0.0.1:80");
	numerical("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
	numerical("hosta:80", NULL);
	numerical("10.0.0.1", NULL);
	resolves("10.0.0.1", "10.0.0.1:47117\n", 47117, "");
	resolves("[fd00::1]:80", "[fd00::1]:80\n", 80, "");
	resolves("fd00::1", "[fd00::1]:47117\n", 47117, "");
	resolves("[::ffff:10.0.0.1]:80", "10.0.0.1:80\n", 80, "");
	resolves("[fe80::1%lo]:80", "", 0, "is a link-local address");
	resolves("[fd00::1", "", 0, "no ]");
	has(lines, "110.77.0.1:80", true);
	has(lines, "10.77.0.1:80", false);
	has(lines, "[fd00::1]:80", true);
	has(lines, "10.77.0.2:80", false);
	has(lines, "10.77.0.2:8000", true);
	has(lines, "", false);
	firsts();
	own();
	choose();
	files();
	return tap_done();
}
