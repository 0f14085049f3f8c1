/* SPDX-License-Identifier: Apache-2.0 */
/* Finding each other by files. */
#include "config.h"

#include "runtime/peer/rendezvous.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/peer/address.h"
#include "runtime/peer/transport.h"
#include "runtime/store/file.h"
#include "runtime/store/file_names.h"

/* The file of an agent that has not touched it for so long is a dead one's. Both times are the file server's. */
#define DEAD_SEC 3600
#define SUFFIX ".agent"

/* Of one machine; what does not fit into a file of the folder is of no use. */
enum { LOCAL_MOST = 64 };

static void add_line(char *text, size_t size, const struct sockaddr *address, uint16_t port)
{
	char line[TPCK_TRANSPORT_ADDRESS];
	size_t used = strlen(text);

	if (tpck_address_print(address, port, line, sizeof line) && used + strlen(line) + 2 <= size)
		snprintf(text + used, size - used, "%s\n", line);
}

void tpck_rendezvous_addresses(uint16_t port, char *text, size_t size)
{
	struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct tpck_local list[LOCAL_MOST];
	size_t count = tpck_address_chosen(list, LOCAL_MOST);

	text[0] = '\0';
	for (size_t i = 0; i < count; i++)
		add_line(text, size, (struct sockaddr *)&list[i].address, port);
	add_line(text, size, (struct sockaddr *)&loopback, port);
}

bool tpck_rendezvous_is_local(const char *address)
{
	struct sockaddr_storage given;
	struct tpck_local list[LOCAL_MOST];
	char wanted[TPCK_TRANSPORT_ADDRESS], own[TPCK_TRANSPORT_ADDRESS];
	size_t count;
	socklen_t bytes;

	if (tpck_address_read(address, &given, &bytes) ||
	    !tpck_address_print((struct sockaddr *)&given, 0, wanted, sizeof wanted))
		return false;
	if (strcmp(wanted, "127.0.0.1:0") == 0 || strcmp(wanted, "[::1]:0") == 0)
		return true;
	count = tpck_address_local(list, LOCAL_MOST);
	for (size_t i = 0; i < count; i++)
		if (tpck_address_print((struct sockaddr *)&list[i].address, 0, own, sizeof own) &&
		    strcmp(own, wanted) == 0)
			return true;
	return false;
}

bool tpck_rendezvous_answers(const char *lines, char *first, size_t size)
{
	struct tpck_local list[LOCAL_MOST];
	size_t count = tpck_address_local(list, LOCAL_MOST);
	bool other = false;

	for (const char *line = lines, *end; (end = strchr(line, '\n')); line = end + 1) {
		char one[TPCK_TRANSPORT_ADDRESS], own[TPCK_TRANSPORT_ADDRESS], said[TPCK_TRANSPORT_ADDRESS];
		const struct tpck_local *found;
		struct sockaddr_storage given;
		socklen_t bytes;

		snprintf(one, sizeof one, "%.*s", (int)(end - line), line);
		if (tpck_address_read(one, &given, &bytes))
			continue;
		found = tpck_address_first(list, count, (struct sockaddr *)&given);
		if (!found)
			continue;
		(void)tpck_address_print((struct sockaddr *)&found->address, 0, own, sizeof own);
		(void)tpck_address_print((struct sockaddr *)&given, 0, said, sizeof said);
		if (strcmp(own, said) == 0)
			return true;
		*strrchr(own, ':') = '\0';
		snprintf(first, size, "%s", own);
		other = true;
	}
	return !other;
}

bool tpck_rendezvous_has(const char *lines, const char *address)
{
	size_t length = strlen(address);

	for (const char *line = lines, *end; (end = strchr(line, '\n')); line = end + 1)
		if ((size_t)(end - line) == length && memcmp(line, address, length) == 0)
			return true;
	return false;
}

int tpck_rendezvous_resolve(const char *host, uint16_t standard, char *text, size_t size, uint16_t *port,
			    struct tpck_error *err)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
	char name[TPCK_HOST_NAME];
	bool link_local = false;
	int rc = tpck_address_split(host, standard, name, port, err);

	if (rc)
		return rc;
	text[0] = '\0';
	rc = getaddrinfo(name, NULL, &hints, &found);
	if (rc)
		return tpck_error_set(err, 0, "'%.100s' has no address: %s", name, gai_strerror(rc));
	/* In the resolver's order (RFC 6724), which is that in which they are tried. */
	for (struct addrinfo *i = found; i; i = i->ai_next)
		if (tpck_address_is_link_local(i->ai_addr))
			link_local = true;
		else
			add_line(text, size, i->ai_addr, *port);
	freeaddrinfo(found);
	if (text[0])
		return 0;
	if (link_local)
		return tpck_error_set(err, 0, "'%.100s' is a link-local address, which agents do not use: a global or a unique "
				      "local one (fd00::/8) is needed", name);
	return tpck_error_set(err, 0, "'%.100s' has no address of IPv4 or IPv6", name);
}

static void path_of(const char *folder, const char *node, char *path, size_t size)
{
	snprintf(path, size, "%s/%s" SUFFIX, folder, node);
}

/* Of the folder below that of the job, which is looked at: the folder above may be a group's. */
enum { NAMES = 1 };

int tpck_rendezvous_write(const char *folder, const char *node, const char *addresses, struct tpck_error *err)
{
	struct tpck_below below = {-1, strlen(folder) + 1};
	char path[TPCK_PATH_MAX], job[TPCK_PATH_MAX];
	int rc;

	snprintf(job, sizeof job, "%.*s", (int)(strrchr(folder, '/') - folder), folder);
	rc = tpck_folder_make(job, err);
	if (!rc)
		below.at = tpck_door_folder(folder, NAMES, TPCK_DOOR_MAKE);
	if (!rc && below.at < 0)
		rc = tpck_door_refused(job, below.at, "TRANSPCKPT_DIR", err);
	path_of(folder, node, path, sizeof path);
	if (!rc)
		rc = tpck_file_write_below(below, path, addresses, strlen(addresses), 0, err);
	if (below.at >= 0)
		close(below.at);
	return rc;
}

void tpck_rendezvous_remove(const char *folder, const char *node)
{
	char path[TPCK_PATH_MAX];

	path_of(folder, node, path, sizeof path);
	(void)tpck_door_remove(path, NAMES + 1);
}

static DIR *list_of(const char *folder)
{
	int fd = tpck_door_file(folder, NAMES, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list && fd >= 0)
		close(fd);
	return list;
}

static int is_entry(const char *name)
{
	size_t length = strlen(name);

	return name[0] != '.' && length > strlen(SUFFIX) && !strstr(name, ".tmp.") &&
	       strcmp(name + length - strlen(SUFFIX), SUFFIX) == 0;
}

void tpck_rendezvous_touch(const char *folder, const char *node)
{
	char path[TPCK_PATH_MAX];
	int fd;

	path_of(folder, node, path, sizeof path);
	fd = tpck_door_file(path, NAMES + 1, TPCK_DOOR_READ, 0);
	if (fd >= 0) {
		(void)futimens(fd, NULL);
		close(fd);
	}
}

void tpck_rendezvous_clear(const char *folder, const char *node)
{
	struct stat own, other;
	char name[TPCK_PATH_MAX];
	struct dirent *entry;
	DIR *list;

	tpck_rendezvous_touch(folder, node);
	list = list_of(folder);
	snprintf(name, sizeof name, "%s" SUFFIX, node);
	if (list && fstatat(dirfd(list), name, &own, AT_SYMLINK_NOFOLLOW) == 0)
		while ((entry = readdir(list)))
			if (is_entry(entry->d_name) && fstatat(dirfd(list), entry->d_name, &other, AT_SYMLINK_NOFOLLOW) == 0 &&
			    other.st_mtime + DEAD_SEC < own.st_mtime)
				unlinkat(dirfd(list), entry->d_name, 0);
	if (list)
		closedir(list);
}

void tpck_rendezvous_each(const char *folder, const char *node, bool (*known)(void *context, const char *node),
			  void (*visit)(void *context, const char *node, const char *addresses), void *context)
{
	DIR *list = list_of(folder);
	struct dirent *entry;

	while (list && (entry = readdir(list))) {
		struct tpck_below below = {dirfd(list), strlen(folder) + 1};
		char path[TPCK_PATH_MAX], name[256], *text;

		if (!is_entry(entry->d_name))
			continue;
		snprintf(name, sizeof name, "%.*s", (int)(strlen(entry->d_name) - strlen(SUFFIX)), entry->d_name);
		if (strcmp(name, node) == 0 || known(context, name) || tpck_path_join(path, sizeof path, folder, entry->d_name) ||
		    tpck_file_read_below(below, path, 4096, &text, NULL, NULL))
			continue;
		visit(context, name, text);
		free(text);
	}
	if (list)
		closedir(list);
}
