/* SPDX-License-Identifier: Apache-2.0 */
/* A port that nobody listens at, for processes that are told to meet there. */
#ifndef TPCK_RUNTIME_BASE_FREE_PORT_H
#define TPCK_RUNTIME_BASE_FREE_PORT_H

#include <stdint.h>

/* A socket that is bound to it, at any address of both families where the kernel has them; the caller closes the socket, before somebody listens there. -1:
 * none is free, or there are no sockets, with errno. */
int tpck_free_port(uint16_t *port);

#endif
