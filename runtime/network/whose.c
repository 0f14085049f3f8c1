/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end of a connection: the job itself, or somebody else. */
#include "config.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/settings.h"
#include "runtime/base/text.h"
#include "runtime/network/network_private.h"
#include "runtime/replay/forward.h"
#include "runtime/base/processes.h"
#include "runtime/wire/nodes.h"

/* ---- by whom a connection is made ------------------------------------------------------------------ */

/* Libraries that ranks of a job speak through: how their files' names begin. */
static const char ranks_speak_by[][16] = {
	"libtorch", "libnccl", "libgloo", "libmpi", "libopen-rte", "libopen-pal", "libprrte", "libpmix", "libpmi", "mca_", "libuc", "libfabric", "libnvshmem",
	"libhorovod", "mpi_lib", "libjax_common", "xla_extension", "libnccl-net", "libmunge", "libslurm",
};

/* Libraries that speak with the system by Unix sockets: with the driver's servers, about users' names, with the display. */
static const char systems_speak_by[][16] = {"libcuda", "libnvidia", "libnss", "libX11", "libxcb", "libwayland", "libsystemd"};

static bool is_library(const void *caller, const char names[][16], size_t count)
{
	struct dl_find_object found;
	const char *name, *slash;

	if (!caller || _dl_find_object((void *)caller, &found) || !found.dlfo_link_map || !found.dlfo_link_map->l_name)
		return false;
	slash = strrchr(found.dlfo_link_map->l_name, '/');
	name = slash ? slash + 1 : found.dlfo_link_map->l_name;
	for (size_t i = 0; i < count; i++)
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static bool is_ranks_library(const void *caller)
{
	return is_library(caller, ranks_speak_by, sizeof ranks_speak_by / sizeof ranks_speak_by[0]);
}

static bool is_systems_library(const void *caller)
{
	return is_library(caller, systems_speak_by, sizeof systems_speak_by / sizeof systems_speak_by[0]);
}

/* ---- what the user says ------------------------------------------------------------------------------ */

struct place {
	uint16_t family, port; /* family 0: any address; port 0: any */
	unsigned bits;
	uint8_t address[16];
};

static const char *real_places;
static int root; /* the process that the job's other processes here descend from, if not by the library */

static bool read_number(const char *text, unsigned most, unsigned *value)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || number > most)
		return false;
	*value = (unsigned)number;
	return true;
}

/* ADDRESS, ADDRESS/BITS, ADDRESS:PORT, [ADDRESS]:PORT or :PORT; the text is changed. */
static bool read_place(char *text, struct place *place)
{
	char *port = NULL, *bits = strchr(text, '/');
	unsigned number;

	memset(place, 0, sizeof *place);
	if (text[0] == '[') {
		char *end = strchr(++text, ']');

		if (!end || (end[1] && end[1] != ':'))
			return false;
		*end = '\0';
		port = end[1] ? end + 2 : NULL;
		bits = strchr(text, '/');
	} else if (strchr(text, ':') && !strchr(strchr(text, ':') + 1, ':')) {
		port = strchr(text, ':') + 1;
		port[-1] = '\0';
	}
	if (bits)
		*bits++ = '\0';
	if (port) {
		if (!read_number(port, 65535, &number) || !number)
			return false;
		place->port = (uint16_t)number;
	}
	if (!*text)
		return port && !bits;
	if (inet_pton(AF_INET, text, place->address) == 1)
		place->family = AF_INET;
	else if (inet_pton(AF_INET6, text, place->address) == 1)
		place->family = AF_INET6;
	else
		return false;
	place->bits = place->family == AF_INET ? 32 : 128;
	return !bits || (read_number(bits, place->bits, &place->bits));
}

static bool covers(const struct place *place, const struct tpck_record_peer *peer)
{
	unsigned whole = place->bits / 8, rest = place->bits % 8;

	if ((place->port && place->port != peer->port) || (place->family && place->family != peer->family))
		return false;
	return memcmp(place->address, peer->address, whole) == 0 &&
	       (!rest || (place->address[whole] ^ peer->address[whole]) >> (8 - rest) == 0);
}

/* Calls with each entry; stops where that says true. An entry that is too long is cut, and so no place. */
static bool any_entry(const char *list, bool (*call)(char *entry, const void *what), const void *what)
{
	char entry[112];

	while (*list) {
		size_t length = strcspn(list, ",");

		snprintf(entry, sizeof entry, "%.*s", (int)length, list);
		if (length && call(entry, what))
			return true;
		list += length + (list[length] == ',');
	}
	return false;
}

static bool is_there(char *entry, const void *peer)
{
	const struct tpck_record_peer *of = peer;
	size_t length = strlen(entry);
	struct place place;

	if (entry[0] == '/')
		return of->family == AF_UNIX && strncmp(of->path, entry, length) == 0 && (!of->path[length] || entry[length - 1] == '/' || of->path[length] == '/');
	return of->family != AF_UNIX && read_place(entry, &place) && covers(&place, of);
}

static bool is_wrong(char *entry, const void *err)
{
	char text[112];
	struct place place;

	snprintf(text, sizeof text, "%s", entry);
	if (entry[0] == '/' || read_place(entry, &place))
		return false;
	tpck_error_set((struct tpck_error *)err, EINVAL,
		       "\"%s\" is no address, network, port or path: ADDRESS, ADDRESS/BITS, ADDRESS:PORT, [ADDRESS]:PORT, :PORT or /PATH, with commas between", text);
	return true;
}

int tpck_network_real_check(const char *text, struct tpck_error *err)
{
	return any_entry(text, is_wrong, err) ? -EINVAL : 0;
}

TPCK_AT_START void tpck_whose_real(const char *real)
{
	real_places = real;
	root = tpck_sys_getpid();
}

/* ---- who is at the other end of a Unix socket ---------------------------------------------------- */

/* Where sockets are of who keeps what all programs say. */
static const char logs[][24] = {"/dev/log", "/run/systemd/journal/"};

static enum tpck_whose local_whose(const struct tpck_record_peer *peer, bool stream)
{
	if (stream)
		return TPCK_WHOSE_LOCAL;
	/* A datagram has no other end that could be asked. */
	for (size_t i = 0; i < sizeof logs / sizeof logs[0]; i++)
		if (strncmp(peer->path, logs[i], strlen(logs[i])) == 0)
			return TPCK_WHOSE_OTHER;
	return TPCK_WHOSE_OWN;
}

/* ---- who listens on this machine ------------------------------------------------------------------------ */

/* Whether the address is one of this machine's: a socket can be bound to it. */
static bool is_here(const struct tpck_record_peer *peer)
{
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	int fd = tpck_sys_socket(peer->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool here;

	if (fd < 0)
		return false;
	memcpy(&four.sin_addr, peer->address, sizeof four.sin_addr);
	memcpy(&six.sin6_addr, peer->address, sizeof six.sin6_addr);
	here = peer->family == AF_INET ? !tpck_sys_bind(fd, &four, sizeof four) : !tpck_sys_bind(fd, &six, sizeof six);
	tpck_sys_close(fd);
	return here;
}

/* The inode of the socket that listens at the port, and whose it is. Of several the last. 0: there is none. */
static uint64_t listener(const char *table, bool stream, uint16_t port, unsigned *user)
{
	struct tpck_lines from = {.fd = tpck_sys_openat(AT_FDCWD, table, O_RDONLY | O_CLOEXEC, 0)};
	uint64_t found = 0;
	char *line;

	while (from.fd >= 0 && (line = tpck_lines_next(&from))) {
		char *local = strchr(line, ':'), *colon, *state;
		unsigned uid;
		unsigned long long inode;

		/* "  sl: ADDRESS:PORT ADDRESS:PORT STATE ..." */
		colon = local ? strchr(local + 1, ':') : NULL;
		state = colon ? strchr(colon, ' ') : NULL;
		state = state ? strchr(state + 1, ' ') : NULL;
		if (!state || strtoul(colon + 1, NULL, 16) != port)
			continue;
		/* LISTEN of TCP; of UDP any that is not connected. */
		if (strtoul(state + 1, NULL, 16) != (stream ? 0x0Au : 0x07u) || sscanf(state, " %*x %*s %*s %*s %u %*s %llu", &uid, &inode) != 2)
			continue;
		found = inode;
		*user = uid;
	}
	if (from.fd >= 0)
		tpck_sys_close(from.fd);
	return found;
}

struct search {
	char socket[40];
	const char *process;
	unsigned user;
};

static bool is_socket(const char *name, void *what)
{
	const struct search *search = what;
	char path[340], target[64];
	long got;

	snprintf(path, sizeof path, "/proc/%s/fd/%.20s", search->process, name);
	got = tpck_sys_readlink(path, target, sizeof target - 1);
	if (got <= 0)
		return false;
	target[got] = '\0';
	return strcmp(target, search->socket) == 0;
}

/* Whether it is the living process beside which a twin follows, or one that this has made: they are in one group. */
static bool is_beside(int pid)
{
	return tpck_forward_stands_beside() && tpck_forward_living_group && tpck_sys_getpgid(pid) == tpck_forward_living_group;
}

/* Whether this process belongs to the job, and has the socket. */
static bool is_ours_with_it(const char *name, void *what)
{
	struct search *search = what;
	char path[300];
	struct stat found;

	snprintf(path, sizeof path, "/proc/%.20s", name);
	if (tpck_sys_fstatat(AT_FDCWD, path, &found, 0) || found.st_uid != search->user)
		return false;
	if (is_beside(atoi(name)))
		return false;
	if (!tpck_process_names_library(name, "environ") && !tpck_process_names_library(name, "maps") && !tpck_process_descends(atoi(name), root))
		return false;
	snprintf(path, sizeof path, "/proc/%.20s/fd", name);
	search->process = name;
	return tpck_process_any_number(path, is_socket, search);
}

/* The process that listened there, as unix(7) says of SO_PEERCRED. The job's own are those above, and who this process comes from. Of one that is gone,
 * as it has left the socket to another, nobody can say; 0 is one of another container. */
static bool is_other_process(int pid)
{
	char name[16], path[40];
	struct stat found;

	snprintf(name, sizeof name, "%d", pid);
	snprintf(path, sizeof path, "/proc/%d", pid);
	if (pid > 0 && tpck_sys_fstatat(AT_FDCWD, path, &found, 0))
		return false;
	return pid <= 0 || (!tpck_process_names_library(name, "environ") && !tpck_process_names_library(name, "maps") && !tpck_process_descends(pid, root) && !tpck_process_descends(root, pid));
}

/* Who connects often is not looked at each time. */
#define KNOWN_NS 1000000000ull
enum { KNOWN = 8 };
static struct known {
	uint64_t at_ns;
	uint16_t port;
	bool stream, other;
} known[KNOWN];
static tpck_spin known_lock;
static struct {
	uint64_t at_ns;
	int pid;
	bool other;
} known_process;

enum tpck_whose tpck_whose_connected(int fd)
{
	struct ucred peer = {.pid = 0};
	socklen_t bytes = sizeof peer;
	uint64_t now = tpck_clock_monotonic_ns();
	bool other = true, fresh;
	int saved = errno;

	(void)tpck_sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
	if (is_beside(peer.pid)) {
		errno = saved;
		return TPCK_WHOSE_OTHER;
	}
	tpck_spin_lock(&known_lock);
	fresh = known_process.at_ns && known_process.pid == peer.pid && now - known_process.at_ns < KNOWN_NS;
	if (fresh)
		other = known_process.other;
	tpck_spin_unlock(&known_lock);
	if (!fresh) {
		other = is_other_process(peer.pid);
		tpck_spin_lock(&known_lock);
		known_process.at_ns = now;
		known_process.pid = peer.pid;
		known_process.other = other;
		tpck_spin_unlock(&known_lock);
	}
	errno = saved;
	return other ? TPCK_WHOSE_OTHER : TPCK_WHOSE_OWN;
}

static bool listens_other(const struct tpck_record_peer *peer, bool stream)
{
	static const char tables[2][2][16] = {{"/proc/net/udp", "/proc/net/udp6"}, {"/proc/net/tcp", "/proc/net/tcp6"}};
	struct search search = {.user = 0};
	uint64_t inode = 0;

	for (int i = 0; i < 2 && !inode; i++)
		inode = listener(tables[stream][i], stream, peer->port, &search.user);
	/* Nobody hears it. */
	if (!inode)
		return false;
	if (search.user != (unsigned)tpck_sys_geteuid())
		return true;
	snprintf(search.socket, sizeof search.socket, "socket:[%llu]", (unsigned long long)inode);
	return !tpck_process_any_number("/proc", is_ours_with_it, &search);
}

static bool is_local_other(const struct tpck_record_peer *peer, bool stream)
{
	struct known *of = &known[(peer->port * 2u + stream) % KNOWN];
	uint64_t now = tpck_clock_monotonic_ns();
	bool other = false, fresh;

	/* What is found beside another process is something else once that is gone. */
	if (tpck_forward_stands_beside())
		return listens_other(peer, stream);
	tpck_spin_lock(&known_lock);
	fresh = of->at_ns && of->port == peer->port && of->stream == stream && now - of->at_ns < KNOWN_NS;
	if (fresh)
		other = of->other;
	tpck_spin_unlock(&known_lock);
	if (fresh)
		return other;
	other = listens_other(peer, stream);
	tpck_spin_lock(&known_lock);
	*of = (struct known){now, peer->port, stream, other};
	tpck_spin_unlock(&known_lock);
	return other;
}

/* ---- the job's other nodes -------------------------------------------------------------------------------- */

/* Of a job with ranks on other nodes: SHM/JOB/nodes. "": there are none. */
static char nodes_path[TPCK_SETTING_TEXT_MAX + 300] TPCK_LARGE;

TPCK_AT_START void tpck_whose_nodes(const char *shm, const char *job)
{
	struct tpck_text text = tpck_text_in(nodes_path, sizeof nodes_path);

	tpck_text_add(&text, shm);
	tpck_text_add(&text, "/");
	tpck_text_add(&text, job);
	tpck_text_add(&text, "/" TPCK_NODES_NAME);
}

bool tpck_whose_has_nodes(void)
{
	return nodes_path[0];
}

/* What has been looked at. A node stays one; others may have become one after a while. */
#define NODE_KNOWN_NS 200000000ull
enum { NODES_KNOWN = 64 };
static struct known_node {
	uint64_t at_ns; /* 0: none */
	uint8_t address[TPCK_NODES_ADDRESS];
	enum tpck_nodes_has has;
} known_nodes[NODES_KNOWN] TPCK_LARGE;
static tpck_spin nodes_lock;

static enum tpck_nodes_has look_for_node(const uint8_t address[TPCK_NODES_ADDRESS])
{
	struct known_node *of = &known_nodes[(address[15] + address[14] * 7u) % NODES_KNOWN];
	uint64_t now = tpck_clock_monotonic_ns();
	enum tpck_nodes_has has = TPCK_NODES_UNKNOWN;
	bool fresh;

	tpck_spin_lock(&nodes_lock);
	fresh = of->at_ns && memcmp(of->address, address, sizeof of->address) == 0 && (of->has == TPCK_NODES_YES || now - of->at_ns < NODE_KNOWN_NS);
	if (fresh)
		has = of->has;
	tpck_spin_unlock(&nodes_lock);
	if (fresh)
		return has;
	has = tpck_nodes_find(nodes_path, address);
	tpck_spin_lock(&nodes_lock);
	*of = (struct known_node){.at_ns = now, .has = has};
	memcpy(of->address, address, sizeof of->address);
	tpck_spin_unlock(&nodes_lock);
	return has;
}

/* A node of the job may serve others by these ports, too; ranks do not speak by them. */
static bool is_of_web(const struct tpck_record_peer *peer)
{
	return peer->port == 80 || peer->port == 443;
}

void tpck_whose_forked(void)
{
	atomic_store(&known_lock, 0);
	atomic_store(&nodes_lock, 0);
}

enum tpck_whose tpck_whose_elsewhere(const struct tpck_record_peer *peer)
{
	static const enum tpck_whose means[] = {
		[TPCK_NODES_UNKNOWN] = TPCK_WHOSE_UNKNOWN, [TPCK_NODES_NO] = TPCK_WHOSE_AWAY, [TPCK_NODES_YES] = TPCK_WHOSE_NODE};
	uint8_t address[TPCK_NODES_ADDRESS];

	if (!tpck_whose_has_nodes() || peer->family == AF_UNIX || is_of_web(peer))
		return TPCK_WHOSE_OTHER;
	tpck_nodes_address(peer->address, peer->family == AF_INET ? 4 : sizeof peer->address, address);
	return means[look_for_node(address)];
}

enum tpck_whose tpck_whose(const struct tpck_record_peer *peer, bool stream, const void *caller)
{
	int saved = errno;
	enum tpck_whose whose = TPCK_WHOSE_OWN;

	if (peer->family == AF_UNIX) {
		if (!is_ranks_library(caller) && !is_systems_library(caller) && !any_entry(real_places ? real_places : "", is_there, peer))
			whose = local_whose(peer, stream);
		errno = saved;
		return whose;
	}
	/* Names are asked for anew: nothing comes of it. */
	if (peer->port && !is_ranks_library(caller) && !any_entry(real_places ? real_places : "", is_there, peer) && (stream || peer->port != 53))
		whose = !is_here(peer) ? tpck_whose_elsewhere(peer) : is_local_other(peer, stream) ? TPCK_WHOSE_OTHER : TPCK_WHOSE_OWN;
	errno = saved;
	return whose;
}
