/* SPDX-License-Identifier: Apache-2.0 */
/* Looking into the file of the job's nodes. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/wire/nodes.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "runtime/wire/segment.h"

void tpck_nodes_address(const void *address, size_t bytes, uint8_t made[TPCK_NODES_ADDRESS])
{
	memset(made, 0, TPCK_NODES_ADDRESS);
	if (bytes == 4) {
		made[10] = made[11] = 0xff;
		memcpy(made + 12, address, 4);
	} else {
		memcpy(made, address, TPCK_NODES_ADDRESS);
	}
}

enum tpck_nodes_has tpck_nodes_find(const char *path, const uint8_t address[TPCK_NODES_ADDRESS])
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
	uint8_t some[128][TPCK_NODES_ADDRESS];
	struct tpck_nodes_head head = {0};
	enum tpck_nodes_has has = TPCK_NODES_UNKNOWN;
	long got;

	if (fd < 0)
		return has;
	if (tpck_sys_read(fd, &head, sizeof head) == (long)sizeof head && head.magic == TPCK_NODES_MAGIC && head.version == TPCK_WIRE_VERSION &&
	    head.count)
		has = TPCK_NODES_NO;
	/* The file is replaced whole, so what is read is whole addresses. */
	while (has == TPCK_NODES_NO && (got = tpck_sys_read(fd, some, sizeof some)) >= TPCK_NODES_ADDRESS)
		for (long i = 0; i < got / TPCK_NODES_ADDRESS && has == TPCK_NODES_NO; i++)
			if (memcmp(some[i], address, TPCK_NODES_ADDRESS) == 0)
				has = TPCK_NODES_YES;
	tpck_sys_close(fd);
	return has;
}
