/* SPDX-License-Identifier: Apache-2.0 */
/* Names of kernels: what is read off them. An input is the sizes of a kernel's parameters, so many as its first byte says,
 * and its name. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/infer/kernel_names.h"
#include "runtime/infer/layouts.h"
#include "runtime/track/signature.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tpck_parameter parameters[TPCK_LAYOUT_PARAMETERS + 8] = {{0, 0}};
	struct fuzz_input input = {data, size};
	uint32_t count = fuzz_byte(&input) % (TPCK_LAYOUT_PARAMETERS + 8), at = 0;
	uint8_t bytes[TPCK_SIGNATURE_MAX];
	struct tpck_layout layout;
	char *name;
	int numbers;

	for (uint32_t i = 0; i < count; i++) {
		parameters[i] = (struct tpck_parameter){at, fuzz_short(&input)};
		at += parameters[i].size;
	}
	name = fuzz_text(&input, input.left);
	numbers = tpck_signature_numbers(name, bytes);
	FUZZ_HOLDS(numbers <= TPCK_SIGNATURE_MAX);
	(void)tpck_name_kernel(name, at);
	if (tpck_layout_find(name, parameters, count, &layout)) {
		FUZZ_HOLDS(layout.lists <= TPCK_LAYOUT_LISTS && layout.scalars <= TPCK_LAYOUT_SCALARS);
		FUZZ_HOLDS(!layout.listed || layout.parameter < count);
		for (uint32_t i = 0; !layout.listed && i < layout.lists; i++)
			FUZZ_HOLDS(layout.pointer[i] < count);
	}
	free(name);
	return 0;
}
