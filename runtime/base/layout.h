/* SPDX-License-Identifier: Apache-2.0 */
/* Where code and variables lie in the preloaded library. Every short program that a job starts pays for each page that its start
 * touches, a microsecond or two: what the start runs and writes is together, and what is large lies behind. The linker sorts
 * sections by name. */
#ifndef TPCK_RUNTIME_BASE_LAYOUT_H
#define TPCK_RUNTIME_BASE_LAYOUT_H

/* Of a static variable of 256 bytes or more that is zero at first: behind all smaller ones. */
#define TPCK_LARGE __attribute__((section(".bss.zz_large")))
/* Of one whose first page a start does write: right behind the small ones. */
#define TPCK_LARGE_USED __attribute__((section(".bss.zy_large")))
/* Of a function that every start and end of a program runs, whatever the program does. */
#define TPCK_AT_START __attribute__((section(".text.startup")))

#endif
