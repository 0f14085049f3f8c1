/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doors by which a program comes to the driver (doc/interception.md): symbols that the linker
 * binds to ours; dlsym() on a handle of the driver; the driver's own look-up function; and a
 * forwarder library with the driver's SONAME, which is what dlopen("libcuda.so.1") finds.
 */
#ifndef TPCK_SHIM_DOORS_H
#define TPCK_SHIM_DOORS_H

/* Called with what the real look-up gave for a symbol: the hook of that exact function, or the same. */
void *tpck_door_swap(void *real);
/* Loads the forwarder unless a driver is mapped already or there is none. `library` is the path of the preloaded
 * library, beside which it lies. Once; cheap afterwards. */
void tpck_door_forwarder(void);
/* What dlsym() on a handle gives for names that begin so, or so behind a p: `swap` is asked with what was found, and may
 * answer NULL: that. One library; before any door opens. */
void tpck_door_library(const char *prefix, void *(*swap)(const char *symbol, void *found));
/* Whether code at this address is that library's own (or a plugin of it): what it looks up is the driver's own, so that what
 * it does inside is neither followed nor slowed. */
int tpck_door_passes(const void *caller);
void tpck_doors_open(const char *library);
/* Whether a library was opened with RTLD_DEEPBIND: it finds what it is linked to before us. */
int tpck_doors_deepbound(void);
/* Exported for the forwarder: our hook of a driver symbol, the real one, or NULL. */
void *tpck_forward_lookup(const char *symbol);

#endif
