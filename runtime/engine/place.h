/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a rank is: its number on its node, the node's number, which device. A rank goes on wherever there is room, and its
 * program must not see that: it may compute with these numbers. So they are no part of its identity (engine/identity.h); they
 * are in its log, and a resume gives them back before the program looks, with the device that the rank has now at the
 * number of the one that it had.
 */
#ifndef TPCK_RUNTIME_ENGINE_PLACE_H
#define TPCK_RUNTIME_ENGINE_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/replay/record_log.h"
#include "runtime/track/device.h"

/* Whether "NAME=..." says only where a rank of several is, or what devices its process sees. */
bool tpck_place_tells(const char *variable);

/* Notes where this rank is, for the log; before the program can change its environment. */
void tpck_place_note(char *const *environment);
/* Into a log that begins. */
void tpck_place_record(struct tpck_log *log);
void tpck_place_record_device(struct tpck_log *log, const struct tpck_device *device, int ordinal);

/* A record of the log that the program goes on from; it stays where it is. */
void tpck_place_learn(const struct tpck_record *record);
/* Gives the environment of that log's beginning back. -errno, with why, where the present place does not allow it. */
int tpck_place_return(char *why, size_t size);
/* Whether the device can go on with what that one computed; -EXDEV, with why. */
int tpck_place_compare(const struct tpck_device *device, int ordinal, char *why, size_t size);

/* Rank `local` of a node was on device `ordinal` of `count`. */
struct tpck_place_device {
	long local;              /* -1: nobody said */
	unsigned ordinal, count;
};
/*
 * The CUDA_VISIBLE_DEVICES by which the device that rank `local` of this node is to use has the number that it had `then`; "": as it is.
 * `visible` is the present one, or NULL, and then there are `here` devices, 0 if that is not known.
 */
int tpck_place_devices(const struct tpck_place_device *then, long local, const char *visible, unsigned here, char *list, size_t list_size,
		       char *why, size_t size);

#endif
