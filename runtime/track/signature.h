/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters of a function are plain numbers, by its name as the compiler makes it (Itanium C++ ABI, section 5.1, name mangling). Numbers alone
 * have no padding, and mean the same in every run. */
#ifndef TPCK_RUNTIME_TRACK_SIGNATURE_H
#define TPCK_RUNTIME_TRACK_SIGNATURE_H

#include <stdint.h>

/* Parameters that are looked at; a flag of numbers that may be addresses; parameters that are a pointer to const, another pointer,
 * and an array of up to 15 pointers, with their count. */
enum { TPCK_SIGNATURE_MAX = 64, TPCK_NUMBER_ADDRESS = 0x80, TPCK_READS_THERE = 0x40, TPCK_IS_POINTER = 0x20, TPCK_POINTERS = 0x10 };

/* Sets bytes[i] to the size of parameter i if that is a number, with the flag if it is an integer as wide as a pointer, to TPCK_READS_THERE if it is known to
 * be a pointer by which nothing is written, to TPCK_IS_POINTER if it is another one or may be, to TPCK_POINTERS + N if it is an array of N (std::array), else to 0. The count of parameters; -1: the name has no signature, or not one that is
 * understood. */
int tpck_signature_numbers(const char *name, uint8_t bytes[TPCK_SIGNATURE_MAX]);

#endif
