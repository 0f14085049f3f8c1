/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym and dlopen as tail jumps: the real functions see the application's return address. */
	.hidden tpck_dlsym_next
	.hidden tpck_dlopen_next
	.hidden tpck_door_dlsym
	.hidden tpck_door_dlopen
	.text
	.macro KEEP
	pushq %rdi
	pushq %rsi
	subq $8, %rsp
	.endm
	.macro GIVE
	addq $8, %rsp
	popq %rsi
	popq %rdi
	.endm

	.globl dlsym
	.type dlsym, @function
dlsym:
	endbr64
	movq (%rsp), %rdx
	KEEP
	call tpck_door_dlsym
	GIVE
	testq %rax, %rax
	jnz 1f
	jmp *tpck_dlsym_next(%rip)
1:	ret
	.size dlsym, . - dlsym

	.globl dlopen
	.type dlopen, @function
dlopen:
	endbr64
	KEEP
	call tpck_door_dlopen
	GIVE
	jmp *tpck_dlopen_next(%rip)
	.size dlopen, . - dlopen
	.section .note.GNU-stack,"",@progbits
