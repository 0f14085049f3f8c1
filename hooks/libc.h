/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of libc symbols share: they are exported under libc's own names. Each is listed in
 * hooks/libc.def, from which the export map is made. */
#ifndef TPCK_HOOKS_LIBC_H
#define TPCK_HOOKS_LIBC_H

#define TPCK_EXPORT __attribute__((visibility("default")))

#endif
