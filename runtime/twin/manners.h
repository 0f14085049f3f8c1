/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a twin leaves to others while it follows (doc/twin.md): processor and disk are the program's first, and where memory is short the twin goes. Nothing is
 * given away that could not be taken back when it takes over.
 */
#ifndef TPCK_RUNTIME_TWIN_MANNERS_H
#define TPCK_RUNTIME_TWIN_MANNERS_H

/* In a twin that has one thread. cgroup: a folder of a hierarchy of version 2, which it moves into; "": it stays where it is. */
void tpck_manners_begin(const char *cgroup);
/* The twin takes over: all threads of the process, and the processes that it has made, are as the program was. */
void tpck_manners_end(void);

#endif
