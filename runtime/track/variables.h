/* SPDX-License-Identifier: Apache-2.0 */
/* Names that variables on the device may have: what code for the device, or the object that holds it, says of itself. */
#ifndef TPCK_RUNTIME_TRACK_VARIABLES_H
#define TPCK_RUNTIME_TRACK_VARIABLES_H

#include <stddef.h>

typedef void tpck_variable_visit(void *context, const char *name);

/* Calls with each string in so many bytes, of those with a NUL behind them, that is an identifier. */
void tpck_variables_read_strings(const char *bytes, size_t size, tpck_variable_visit *visit, void *context);
/* The same with each word of a text (PTX), which no NUL ends. */
void tpck_variables_read_words(const char *text, tpck_variable_visit *visit, void *context);
/* Of an image, as the driver has taken it: an ELF file's strings, or a text's words. Anything else (a fat binary is
 * compressed) has its names in the object that holds it, if anywhere. Nobody says how large an image is: an ELF file goes as
 * far as its header says, which the driver has gone by. */
void tpck_variables_read_image(const void *image, tpck_variable_visit *visit, void *context);

#endif
