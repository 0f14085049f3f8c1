/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by the driver's handle: a name, an identity that is the same in every run, the size of
 * their parameters. Look-ups take no lock. */
#ifndef TPCK_RUNTIME_TRACK_FUNCTIONS_H
#define TPCK_RUNTIME_TRACK_FUNCTIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of a parameter's value, whether it means the same in every run. */
enum tpck_meaning {
	TPCK_MEANS_NUMBER,  /* always */
	TPCK_MEANS_EITHER,  /* unless it may be a host's address: an integer as wide as one */
	TPCK_MEANS_ADDRESS, /* only if it is a device's: a pointer, or eight bytes of which nothing is known */
};

/* Parameters that are plain numbers, or pointers, or one of an array of these: which of the list of pointers, where in it, and where in a packed buffer. */
struct tpck_number {
	uint16_t index, within, offset;
	uint8_t bytes; /* 1, 2, 4 or 8 */
	uint8_t means; /* enum tpck_meaning */
};

/* Eight bytes of a launch's parameters that may be an address by which the kernel writes: of which parameter, where in it, and where in a packed
 * buffer. */
struct tpck_word {
	uint16_t index, within, offset;
};

struct tpck_function {
	const char *name;     /* lives as long as the process; NULL unknown */
	uint64_t id;          /* digest of the name */
	uint32_t parameters;  /* bytes; 0 unknown */
	const struct tpck_number *numbers; /* of them, `number_count`; live as long as the process */
	const struct tpck_word *words; /* of them, `word_count`; the same */
	uint32_t number_count, word_count;
	uint16_t described, compared; /* parameters that the function itself describes, and those of them that `numbers` has */
	bool undescribed;     /* the driver does not say */
	_Atomic bool launched;
	const void *layout;   /* what the parameters hold, for whoever reads them; NULL unknown; lives as long as the process */
	void *memo;           /* inference's, under its lock */
};

/* Remembers a handle with what `known` says of it, but for id and memo; a second call for it replaces what is known. The name is copied. -ENOSPC. */
int tpck_functions_add(const void *handle, const struct tpck_function *known);
/* NULL if the handle is not known. */
struct tpck_function *tpck_functions_find(const void *handle);

#endif
