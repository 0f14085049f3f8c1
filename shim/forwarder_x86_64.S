/* SPDX-License-Identifier: Apache-2.0 */
/* The first call of a forwarded symbol: its number is on the stack, below the return address. */
	.text
	.globl tpck_forward_first
	.hidden tpck_forward_first
	.type tpck_forward_first, @function
tpck_forward_first:
	pushq %rax
	pushq %rdi
	pushq %rsi
	pushq %rdx
	pushq %rcx
	pushq %r8
	pushq %r9
	subq $136, %rsp
	movups %xmm0, (%rsp)
	movups %xmm1, 16(%rsp)
	movups %xmm2, 32(%rsp)
	movups %xmm3, 48(%rsp)
	movups %xmm4, 64(%rsp)
	movups %xmm5, 80(%rsp)
	movups %xmm6, 96(%rsp)
	movups %xmm7, 112(%rsp)
	movq 192(%rsp), %rdi
	call tpck_forward_resolve
	movq %rax, %r11
	movups (%rsp), %xmm0
	movups 16(%rsp), %xmm1
	movups 32(%rsp), %xmm2
	movups 48(%rsp), %xmm3
	movups 64(%rsp), %xmm4
	movups 80(%rsp), %xmm5
	movups 96(%rsp), %xmm6
	movups 112(%rsp), %xmm7
	addq $136, %rsp
	popq %r9
	popq %r8
	popq %rcx
	popq %rdx
	popq %rsi
	popq %rdi
	popq %rax
	addq $8, %rsp
	jmp *%r11
	.size tpck_forward_first, . - tpck_forward_first
	.section .note.GNU-stack,"",@progbits
