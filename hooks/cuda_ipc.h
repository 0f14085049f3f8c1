/* SPDX-License-Identifier: Apache-2.0 */
/* What other hooks ask about memory that processes share by legacy IPC. */
#ifndef TPCK_HOOKS_CUDA_IPC_H
#define TPCK_HOOKS_CUDA_IPC_H

#include <stdbool.h>
#include <stdint.h>

/* The block at that address is freed: its handle is void. */
void tpck_ipc_freed(uint64_t address);
/* The block of another process that holds address, as it lies here. */
bool tpck_ipc_block(uint64_t address, uint64_t *base, uint64_t *bytes);

/* The context has gone, and with it what it had open. */
void tpck_ipc_context_destroyed(const void *context);

#endif
