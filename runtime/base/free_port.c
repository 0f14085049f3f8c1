/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/base/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/base/kernel.h"

static int bound(int family, void *address, socklen_t bytes)
{
	int fd = tpck_sys_socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0;

	if (fd < 0)
		return -1;
	if ((family == AF_INET6 && tpck_sys_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off)) || tpck_sys_bind(fd, address, bytes) ||
	    tpck_sys_getsockname(fd, address, &bytes)) {
		tpck_sys_close(fd);
		return -1;
	}
	return fd;
}

int tpck_free_port(uint16_t *port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	int fd = bound(AF_INET6, &six, sizeof six);

	*port = 0;
	if (fd >= 0) {
		*port = ntohs(six.sin6_port);
		return fd;
	}
	fd = bound(AF_INET, &four, sizeof four);
	if (fd >= 0)
		*port = ntohs(four.sin_port);
	return fd;
}
