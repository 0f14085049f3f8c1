/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers among a kernel's parameters, by the names that compilers make. */
#include "config.h"

#include "runtime/track/signature.h"
#include "tests/unit/store_tap.h"

/* A name, and its parameters: the size of each number, 9 for one of eight bytes that may be an address, r for a pointer to const, p for another, a to o for an array of 1 to 15, . for what is neither; "?" where there is no signature to be understood. */
static const struct {
	const char *name, *parameters;
} cases[] = {
	/* Kernels of trainers in CUDA C++. */
	{"_Z13adamw_kernel2PfS_S_S_lfffffff", "pppp94444444"},
	{"_Z5emptyv", ""},
	{"_ZL12scale_kernelPfif", "p44"},
	{"_ZN5space6kernelEPKdjbsh", "r4121"},
	{"_Z10regularizeILi3EEvPfPKfi", "pr4"},
	{"_Z3addIfdEvPT_T0_S1_i", "p8p4"},
	/* Of PyTorch. */
	{"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_", "4.a"},
	{"_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi4EEENS1_22TernaryOpScalarFunctorIfLi4ELi3ELi3EEEJSt10multipliesIfEfEEEvT_T0_DpT1_", "...4"},
	{"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZZZNS0_11sum_functorIfffEclERNS_14TensorIteratorEENKUlvE_clEvEUlffE_EEjfLi4ELi4EEEEEvT1_", "?"},
	{"_Z1kSt5arrayIPKfLm3EESt5arrayIPfLm15EES_IPfLm16EESt5arrayIfLm2EE", "cop."},
	/* Functions, arrays and pointers to them. */
	{"_Z4callPFvidEPA4_fA2_iRKd", "pp.."},
	{"_Z5constKiVf", "44"},
	{"_Z4readIPKfPfEvT_T0_PKPf", "rpr"},
	/* Of compilers that mangle nothing. */
	{"triton_poi_fused_add_0", "?"},
	{"tpck_digest_units", "?"},
	/* Cut off, and rubbish. */
	{"_Z", "?"},
	{"_Z3", "?"},
	{"_Z99short", "?"},
	{"_ZN5space6kernel", "?"},
	{"_Z3addIfEvT9_", "."},
	{"_Z3addIfEvT", "?"},
	{"_Z3addIf", "?"},
	{"_Z1kDpT_", "?"},
	{"_Z1kIiEvDpT_", "?"},
	{"_Z1kPPPPPPPP", "?"},
	{"_Z18446744073709551617k", "?"},
};

/* Every beginning of a name is read without looking behind its end. */
static void beginnings(const char *name)
{
	uint8_t bytes[TPCK_SIGNATURE_MAX];

	for (size_t n = 0; n <= strlen(name); n++) {
		char *cut = strndup(name, n);

		(void)tpck_signature_numbers(cut, bytes);
		free(cut);
	}
}

int main(void)
{
	char deep[1000] = "_Z1k";

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t bytes[TPCK_SIGNATURE_MAX];
		char got[TPCK_SIGNATURE_MAX + 1] = "?";
		int count = tpck_signature_numbers(cases[i].name, bytes);

		for (int k = 0; k < count; k++)
			got[k] = (char)(bytes[k] & TPCK_POINTERS ? 'a' - 1 + (bytes[k] & 15) : !bytes[k] ? '.' : bytes[k] == TPCK_READS_THERE ? 'r' : bytes[k] == TPCK_IS_POINTER ? 'p' : bytes[k] & TPCK_NUMBER_ADDRESS ? '9' : '0' + bytes[k]);
		if (count >= 0)
			got[count] = 0;
		tap_ok(strcmp(got, cases[i].parameters) == 0, cases[i].name, got);
		beginnings(cases[i].name);
	}
	for (size_t i = 4; i + 1 < sizeof deep; i++)
		deep[i] = 'F';
	tap_ok(tpck_signature_numbers(deep, (uint8_t[TPCK_SIGNATURE_MAX]){0}) == -1, "types within types without end", NULL);
	return tap_done();
}
