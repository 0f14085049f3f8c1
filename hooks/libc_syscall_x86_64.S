/* SPDX-License-Identifier: Apache-2.0 */
/*
 * syscall(). What is about files goes to the hooks (libc_syscall.c); all else is a tail jump, so that every argument, the
 * caller's stack and errno are what they would be. The library's own calls of syscall() are bound to __wrap_syscall
 * (ld --wrap), past the hook.
 */
	.hidden tpck_syscall_next
	.hidden tpck_syscall_hooked
	.hidden tpck_syscall_seen
	.hidden __wrap_syscall
	.set NUMBERS, 512 /* as in libc_syscall.c */
	.text

	.globl syscall
	.type syscall, @function
syscall:
	endbr64
	cmpq $NUMBERS, %rdi
	jae 1f
	leaq tpck_syscall_hooked(%rip), %rax
	cmpb $0, (%rax,%rdi)
	jne tpck_syscall_seen
1:	jmp *tpck_syscall_next(%rip)
	.size syscall, . - syscall

	.section .text.startup, "ax", @progbits /* see runtime/base/layout.h */
	.globl __wrap_syscall
	.type __wrap_syscall, @function
__wrap_syscall:
	endbr64
	jmp *tpck_syscall_next(%rip)
	.size __wrap_syscall, . - __wrap_syscall
	.text

/* The same as libc's, for what comes before libc's has been looked up. */
	.type bare, @function
bare:
	endbr64
	movq %rdi, %rax
	movq %rsi, %rdi
	movq %rdx, %rsi
	movq %rcx, %rdx
	movq %r8, %r10
	movq %r9, %r8
	movq 8(%rsp), %r9
	syscall
	cmpq $-4095, %rax
	jae 1f
	ret
1:	negl %eax
	pushq %rax
	call __errno_location@PLT
	popq %rdx
	movl %edx, (%rax)
	movq $-1, %rax
	ret
	.size bare, . - bare

	.section .data.rel.local,"aw"
	.balign 8
	.globl tpck_syscall_next
	.type tpck_syscall_next, @object
tpck_syscall_next:
	.quad bare
	.size tpck_syscall_next, 8
	.section .note.GNU-stack,"",@progbits
