/* SPDX-License-Identifier: Apache-2.0 */
/* System calls by the instruction itself, as runtimes of some other languages make them: nobody can be put before these. */
#ifndef TPCK_TESTS_E2E_PAST_LIBC_H
#define TPCK_TESTS_E2E_PAST_LIBC_H

static inline long past_libc(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
	return result;
}

#endif
