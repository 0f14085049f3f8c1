/* SPDX-License-Identifier: Apache-2.0 */
/* Finding each other by files. */
#include "config.h"

#include "runtime/peer/rendezvous.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/store/file.h"
#include "runtime/store/layout.h"

/* The file of an agent that has not touched it for so long is a dead one's. Both times are the file server's. */
#define DEAD_SEC 3600
#define SUFFIX ".agent"

static void add_line(char *text, size_t size, const char *address, unsigned port)
{
	size_t used = strlen(text);

	if (used + strlen(address) + 16 < size)
		snprintf(text + used, size - used, "%s:%u\n", address, port);
}

void tpck_rendezvous_addresses(uint16_t port, char *text, size_t size)
{
	struct ifaddrs *list = NULL;
	char address[INET_ADDRSTRLEN];

	text[0] = '\0';
	if (getifaddrs(&list) == 0)
		for (struct ifaddrs *i = list; i; i = i->ifa_next)
			if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
			    !(i->ifa_flags & IFF_LOOPBACK) &&
			    inet_ntop(AF_INET, &((struct sockaddr_in *)i->ifa_addr)->sin_addr, address, sizeof address))
				add_line(text, size, address, port);
	if (list)
		freeifaddrs(list);
	add_line(text, size, "127.0.0.1", port);
}

int tpck_rendezvous_is_local(const char *address)
{
	char text[4096], line[80];

	tpck_rendezvous_addresses(0, text, sizeof text);
	snprintf(line, sizeof line, "%s:0\n", address);
	return strstr(text, line) != NULL;
}

int tpck_rendezvous_resolve(const char *host, uint16_t standard, char *text, size_t size, uint16_t *port)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
	char name[256], address[INET_ADDRSTRLEN];
	const char *colon = strchr(host, ':');

	snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - host) : (int)strlen(host), host);
	*port = colon && atoi(colon + 1) > 0 ? (uint16_t)atoi(colon + 1) : standard;
	text[0] = '\0';
	if (getaddrinfo(name, NULL, &hints, &found))
		return -1;
	for (struct addrinfo *i = found; i; i = i->ai_next)
		if (inet_ntop(AF_INET, &((struct sockaddr_in *)i->ai_addr)->sin_addr, address, sizeof address))
			add_line(text, size, address, *port);
	freeaddrinfo(found);
	return text[0] ? 0 : -1;
}

static void path_of(const char *folder, const char *node, char *path, size_t size)
{
	snprintf(path, size, "%s/%s" SUFFIX, folder, node);
}

int tpck_rendezvous_write(const char *folder, const char *node, const char *addresses, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	int rc = tpck_folder_make(folder, err);

	path_of(folder, node, path, sizeof path);
	return rc ? rc : tpck_file_write(path, addresses, strlen(addresses), 0, err);
}

void tpck_rendezvous_remove(const char *folder, const char *node)
{
	char path[TPCK_PATH_MAX];

	path_of(folder, node, path, sizeof path);
	unlink(path);
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
	struct stat own, other;
	struct dirent *entry;
	DIR *list;

	path_of(folder, node, path, sizeof path);
	if (utimensat(AT_FDCWD, path, NULL, 0) || stat(path, &own))
		return;
	list = opendir(folder);
	while (list && (entry = readdir(list)))
		if (is_entry(entry->d_name) && fstatat(dirfd(list), entry->d_name, &other, AT_SYMLINK_NOFOLLOW) == 0 &&
		    other.st_mtime + DEAD_SEC < own.st_mtime)
			unlinkat(dirfd(list), entry->d_name, 0);
	if (list)
		closedir(list);
}

void tpck_rendezvous_each(const char *folder, const char *node,
			  void (*visit)(void *context, const char *node, const char *addresses), void *context)
{
	DIR *list = opendir(folder);
	struct dirent *entry;

	while (list && (entry = readdir(list))) {
		char path[TPCK_PATH_MAX], name[256], *text;

		if (!is_entry(entry->d_name))
			continue;
		snprintf(name, sizeof name, "%.*s", (int)(strlen(entry->d_name) - strlen(SUFFIX)), entry->d_name);
		if (strcmp(name, node) == 0 || tpck_path_join(path, sizeof path, folder, entry->d_name) ||
		    tpck_file_read(path, 4096, &text, NULL, NULL))
			continue;
		visit(context, name, text);
		free(text);
	}
	if (list)
		closedir(list);
}
