/* SPDX-License-Identifier: Apache-2.0 */
/* The real driver library: finding it past our forwarder, which has its SONAME, and binding the
 * rows of the table to it. */
#ifndef TPCK_SHIM_DRIVER_H
#define TPCK_SHIM_DRIVER_H

/* Loads the real libcuda.so.1 if need be and binds every row. Thread-safe. 0, or -ENOENT: no driver was
 * found up to now. */
int tpck_driver_bind(void);
/* A symbol of the real driver, or NULL. Binds first. */
void *tpck_driver_symbol(const char *symbol);
/* The path of the driver's library, or "". */
const char *tpck_driver_path(void);
/* Whether this code is the driver library's own. */
int tpck_driver_has(const void *code);
/* Whether a driver library has been mapped by somebody, so that symbols asked for may be its. */
int tpck_driver_mapped(void);
/* Whether there is a driver library, mapped or to be found. Loads nothing. */
int tpck_driver_exists(void);
/* The real dlsym and dlopen of libc. */
void *tpck_real_dlsym(void *handle, const char *symbol);
void *tpck_real_dlopen(const char *path, int flags);

#endif
