/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image that is resumed from. While the program runs forward, a thread of ours verifies it chunk
 * by chunk and pins it, so that little but the copy is left to do at the end.
 */
#ifndef TPCK_RUNTIME_ENGINE_OFFERED_H
#define TPCK_RUNTIME_ENGINE_OFFERED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/track/device.h"
#include "runtime/wire/segment.h"

/* Maps the session's offer, which must be of this step, and starts the thread. compare: the agent has left it to this process to compare it with what the
 * device had (TPCK_HELLO_TAKES_OVER). 0 or -errno. */
int tpck_offered_open(const char *session, uint64_t step, bool compare);
/* The mapped image; NULL if there is none. */
const struct tpck_image_header *tpck_offered(void);
/* There is a device: what is verified is pinned in this context, too. */
void tpck_offered_pin(const struct tpck_device *device, void *context);
/* How many bytes of the data area from `from` on can be copied to the device in one go: at least one,
 * waiting for it if need be, at most `bytes`. -EBADMSG, with the reason, if a chunk does not verify.
 * Nothing more is pinned from here on. */
int tpck_offered_ready(uint64_t from, uint64_t bytes, uint64_t *ready, char *why, size_t size);
/* Waits until all of it has been compared. 0, or -EBADMSG with what differs; 0 at once where the agent has done that. */
int tpck_offered_compared(char *why, size_t size);
/* The image is not needed any more. */
void tpck_offered_close(void);

#endif
